//! One end of a proxied session: a connection, what has come over it, and what is to be sent.
//!
//! A plain socket is parted in two halves that share nothing. Inside of TLS both halves share the layer, and take turns by a lock.

use base::{Error, Result, SqlState};
use bytes::BytesMut;
use protocol::Line;
use protocol::tls::Acceptor;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

/// Longest message.
pub const MAX_MESSAGE: usize = 1 << 30;
/// The same of a client that has not proved who it is.
pub const MAX_WORD: usize = 64 << 10;
pub const CHUNK: usize = 16 << 10;

/// What comes.
pub enum Reader {
    Plain(OwnedReadHalf),
    Secured(ReadHalf<Line<TcpStream>>),
    Gone,
}

/// What goes.
pub enum Writer {
    Plain(OwnedWriteHalf),
    Secured(WriteHalf<Line<TcpStream>>),
    Gone,
}

fn none() -> io::Error {
    io::ErrorKind::NotConnected.into()
}

impl AsyncRead for Reader {
    #[inline]
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Reader::Plain(s) => Pin::new(s).poll_read(cx, buf),
            Reader::Secured(s) => Pin::new(s).poll_read(cx, buf),
            Reader::Gone => Poll::Ready(Err(none())),
        }
    }
}

impl AsyncWrite for Writer {
    #[inline]
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Writer::Plain(s) => Pin::new(s).poll_write(cx, bytes),
            Writer::Secured(s) => Pin::new(s).poll_write(cx, bytes),
            Writer::Gone => Poll::Ready(Err(none())),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Writer::Plain(s) => Pin::new(s).poll_flush(cx),
            Writer::Secured(s) => Pin::new(s).poll_flush(cx),
            Writer::Gone => Poll::Ready(Err(none())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Writer::Plain(s) => Pin::new(s).poll_shutdown(cx),
            Writer::Secured(s) => Pin::new(s).poll_shutdown(cx),
            Writer::Gone => Poll::Ready(Ok(())),
        }
    }
}

/// Both halves of a connection.
fn parted(line: Line<TcpStream>) -> (Reader, Writer) {
    match line {
        Line::Plain(socket) => {
            let (r, w) = socket.into_split();
            (Reader::Plain(r), Writer::Plain(w))
        }
        line => {
            let (r, w) = tokio::io::split(line);
            (Reader::Secured(r), Writer::Secured(w))
        }
    }
}

/// One end.
pub struct End {
    pub reader: Reader,
    pub writer: Writer,
    pub input: BytesMut,
    pub output: BytesMut,
    /// Longest message that is taken.
    pub most: usize,
}

impl End {
    pub fn new(line: Line<TcpStream>, input: &[u8]) -> End {
        let (reader, writer) = parted(line);
        End {
            reader,
            writer,
            input: BytesMut::from(input),
            output: BytesMut::new(),
            most: MAX_MESSAGE,
        }
    }

    /// Answers a client's request for TLS with yes, and shakes hands. Nothing has come behind the request.
    pub async fn secure(&mut self, tls: &Acceptor) -> io::Result<()> {
        let reader = std::mem::replace(&mut self.reader, Reader::Gone);
        let writer = std::mem::replace(&mut self.writer, Writer::Gone);
        let (Reader::Plain(r), Writer::Plain(w)) = (reader, writer) else {
            return Err(none());
        };
        let mut line = Line::Plain(r.reunite(w).map_err(io::Error::other)?);
        tls.accept(&mut line).await?;
        (self.reader, self.writer) = parted(line);
        Ok(())
    }

    pub fn is_secured(&self) -> bool {
        matches!(self.reader, Reader::Secured(_))
    }

    /// Sends what can be sent without waiting, for a last word.
    pub fn send_at_once(&mut self) {
        let mut cx = Context::from_waker(Waker::noop());
        _ = Pin::new(&mut self.writer).poll_write(&mut cx, &self.output);
    }

    pub async fn fill(&mut self) -> io::Result<()> {
        self.input.reserve(CHUNK);
        match self.reader.read_buf(&mut self.input).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    pub async fn flush(&mut self) -> io::Result<()> {
        self.writer.write_all_buf(&mut self.output).await
    }

    pub fn put(&mut self, bytes: &[u8]) {
        self.output.extend_from_slice(bytes);
    }

    /// The next whole message.
    pub fn message(&mut self) -> Result<Option<(u8, BytesMut)>> {
        let Some(head) = self.input.first_chunk::<5>() else {
            return Ok(None);
        };
        let (kind, len) = (head[0], [head[1], head[2], head[3], head[4]]);
        let len = u32::from_be_bytes(len) as usize;
        if !(4..=self.most).contains(&len) {
            return Err(Error::new(
                SqlState::PROTOCOL_VIOLATION,
                "invalid message length",
            ));
        }
        if self.input.len() <= len {
            return Ok(None);
        }
        Ok(Some((kind, self.input.split_to(len + 1))))
    }

    /// The next whole message, waited for.
    pub async fn next(&mut self) -> Result<(u8, BytesMut)> {
        loop {
            if let Some(m) = self.message()? {
                return Ok(m);
            }
            self.fill().await.map_err(|e| gone(&e))?;
        }
    }
}

/// The other side is not there any more.
pub fn gone(e: &io::Error) -> Error {
    Error::new(
        SqlState::CONNECTION_FAILURE,
        format!("connection lost: {e}"),
    )
}
