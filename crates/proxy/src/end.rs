//! One end of a proxied session: a connection, what has come over it, and what is to be sent.
//!
//! A message is taken when all of it is there. A longer one is handed out in pieces, of which the first shows what it is, so that no client
//! and no node has more here than [`WHOLE`] and what waits to be written:
//!
//! ```text
//! message():  a whole message of at most WHOLE bytes
//!             or the head of a longer one ──▶ rest > 0 ──▶ piece(), up to rest = 0
//! ```
//! Only messages with data or a text may be longer. All others are refused then, as by PostgreSQL.
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
/// The same of a client that has not proved who it is, and of a node meanwhile.
pub const MAX_WORD: usize = 64 << 10;
/// Longest message that is taken as a whole.
pub const WHOLE: usize = 4 << 20;
/// What shows the kind of a longer one, and the names in it.
pub const HEAD: usize = 64 << 10;
/// A client's messages that may be longer: Query, Parse, Bind, FunctionCall, CopyData, CopyFail.
const FROM_CLIENTS: &[u8] = b"QPBFdf";
/// A node's: DataRow, CopyData, FunctionCallResponse. Of others nothing is known, so they are taken as a whole.
const FROM_NODES: &[u8] = b"DdV";
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
    /// Bytes that are to come of the message whose head was handed out.
    pub rest: usize,
    /// A client's end, after it has logged in.
    client: bool,
    /// What a login over this connection can be bound to (RFC 5929).
    pub end_point: Option<Vec<u8>>,
}

impl End {
    pub fn new(line: Line<TcpStream>, input: &[u8]) -> End {
        let end_point = line.end_point().map(<[u8]>::to_vec);
        let (reader, writer) = parted(line);
        End {
            end_point,
            reader,
            writer,
            input: BytesMut::from(input),
            output: BytesMut::new(),
            most: MAX_MESSAGE,
            rest: 0,
            client: false,
        }
    }

    /// It is that of a client that has logged in.
    pub fn is_clients(&mut self) {
        (self.client, self.most) = (true, MAX_MESSAGE);
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
        self.end_point = line.end_point().map(<[u8]>::to_vec);
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

    /// The next message, or the head of one: `rest` says how much of it is to come, as [`End::piece`].
    pub fn message(&mut self) -> Result<Option<(u8, BytesMut)>> {
        assert_eq!(self.rest, 0, "a message is not over");
        let Some(head) = self.input.first_chunk::<5>() else {
            return Ok(None);
        };
        let (kind, len) = (head[0], [head[1], head[2], head[3], head[4]]);
        let len = u32::from_be_bytes(len) as usize;
        let may_be_long = match self.client {
            true => FROM_CLIENTS.contains(&kind),
            false => FROM_NODES.contains(&kind),
        };
        let is_long = len > WHOLE;
        if !(4..=self.most).contains(&len) || (is_long && self.client && !may_be_long) {
            return Err(Error::new(
                SqlState::PROTOCOL_VIOLATION,
                "invalid message length",
            ));
        }
        if is_long && may_be_long && self.input.len() >= HEAD {
            self.rest = len + 1 - HEAD;
            return Ok(Some((kind, self.input.split_to(HEAD))));
        }
        if self.input.len() <= len {
            return Ok(None);
        }
        Ok(Some((kind, self.input.split_to(len + 1))))
    }

    /// What has come of the rest of a message.
    pub fn piece(&mut self) -> Option<BytesMut> {
        let n = self.rest.min(self.input.len());
        self.rest -= n;
        (n > 0).then(|| self.input.split_to(n))
    }

    /// The next whole message, waited for. Of a login, whose messages are short.
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

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    async fn end() -> End {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let at = listener.local_addr().expect("an address");
        let socket = TcpStream::connect(at).await.expect("connected");
        End::new(Line::Plain(socket), &[])
    }

    fn begun(kind: u8, len: usize, have: usize) -> Vec<u8> {
        let mut m = vec![kind];
        m.extend_from_slice(&(len as u32).to_be_bytes());
        m.resize(have, b'x');
        m
    }

    #[tokio::test]
    async fn a_long_message_passes_in_pieces() {
        let long = WHOLE + 1;
        for (client, kind) in [(true, b'Q'), (true, b'd'), (false, b'D')] {
            let mut e = end().await;
            if client {
                e.is_clients();
            }
            e.input.extend_from_slice(&begun(kind, long, HEAD - 1));
            assert_eq!(e.message().expect("good"), None);
            e.input.extend_from_slice(b"xab");
            let (k, head) = e.message().expect("good").expect("its head");
            assert_eq!((k, head.len()), (kind, HEAD));
            assert_eq!(e.piece().as_deref(), Some(&b"ab"[..]));
            assert_eq!((e.piece(), e.rest), (None, long + 1 - HEAD - 2));
            let left = e.rest;
            e.input.resize(left, b'y');
            e.input.extend_from_slice(&begun(b'S', 4, 5));
            assert_eq!(e.piece().map(|p| p.len()), Some(left));
            assert_eq!(e.message().expect("good").expect("the next").0, b'S');
        }
    }

    #[tokio::test]
    async fn what_has_no_data_is_not_long() {
        let mut e = end().await;
        e.is_clients();
        e.input.extend_from_slice(&begun(b'C', WHOLE + 1, 5));
        let refused = e.message().expect_err("too long");
        assert_eq!(refused.code(), SqlState::PROTOCOL_VIOLATION);
        let mut e = end().await;
        e.input.extend_from_slice(&begun(b'E', WHOLE + 1, HEAD));
        assert_eq!(e.message().expect("it may come"), None);
    }
}
