//! One connection's bytes: what has come and is not read yet, what is to be sent; and the session's [`Client`] over it.
//!
//! Input is read into one buffer and messages are taken from its front without a copy. Output gathers in [`Replies`] and is sent
//! with one write at Sync, at Flush, when it has grown big, and before anything that may wait for the client. A client that does
//! not read stops its own session and nothing else: the buffer does not grow while a write waits. When the session is ended meanwhile
//! the connection is closed without a word, since one that has been cut off in the middle of a message cannot be told why.

use base::{Error, Result, SqlState};
use protocol::Line;
use protocol::backend::{Field, Replies};
use protocol::frontend::{self, Frontend};
use sql::session::{Client, Column, CopyInput, Format, Handle, Severity};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

/// A socket.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send + 'static> Stream for T {}

/// A connection whose client sends without a pause reads so much, then others have their turn.
const TURN: usize = 256 << 10;
/// Bytes to read at once.
const CHUNK: usize = 16 << 10;
/// A message longer than this is asked for by its statement's account.
const LARGE: usize = 256 << 10;
/// A buffer that grew beyond this for one big message is let go after it.
const KEEP: usize = 256 << 10;

/// Bytes that have come.
#[derive(Default)]
pub struct Input {
    /// Initialised to its end, so that it can be read into.
    buf: Vec<u8>,
    /// What has come and is not taken.
    at: usize,
    end: usize,
    /// Bytes still to come of a message that was refused; they are thrown away.
    pass: usize,
    /// It was asked whether the message at the front may be so long.
    asked: bool,
    /// Bytes that came since another connection had its turn.
    run: usize,
    /// When the newest of it was taken off the wire, as a stamp of the engine (`Engine::arrival`). Forgotten with each read; who reads
    /// says it anew. Older bytes get the newer stamp too, which is safe.
    pub arrived: Option<u64>,
}

impl Input {
    /// What is not taken yet.
    pub fn bytes(&self) -> &[u8] {
        &self.buf[self.at..self.end]
    }

    /// Takes `n` bytes.
    pub fn take(&mut self, n: usize) {
        self.at += n;
        self.asked = false;
        debug_assert!(self.at <= self.end);
    }

    /// 53200 when the statement may not take the whole message at the front, of which a part is here; the message is passed over then.
    pub fn admit(&mut self) -> Result<()> {
        let Some(whole) = frontend::wanted(self.bytes()).filter(|w| *w > LARGE) else {
            return Ok(());
        };
        let rest = whole.saturating_sub(self.bytes().len());
        let admitted = match std::mem::replace(&mut self.asked, true) {
            false => base::memory::want(rest),
            true => base::memory::check(),
        };
        if admitted.is_err() {
            self.take(self.bytes().len());
            self.pass = rest;
        }
        admitted
    }

    /// Room for more, to be read into.
    pub fn room(&mut self) -> &mut [u8] {
        if self.at == self.end {
            (self.at, self.end) = (0, 0);
            if self.buf.len() > KEEP {
                self.buf = Vec::new();
            }
        } else if self.at >= CHUNK {
            self.buf.copy_within(self.at..self.end, 0);
            (self.at, self.end) = (0, self.end - self.at);
        }
        let want =
            frontend::wanted(self.bytes()).map_or(0, |w| w.saturating_sub(self.bytes().len()));
        // Never more than a megabyte ahead of what has really come.
        let room = self.end + want.clamp(CHUNK / 2, 1 << 20);
        if self.buf.len() < room {
            self.buf.resize(room.max(self.end + CHUNK), 0);
        }
        &mut self.buf[self.end..]
    }

    /// So many bytes are in the room now.
    pub fn came(&mut self, n: usize) {
        self.end += n;
        self.arrived = None;
        let passed = self.pass.min(n);
        self.pass -= passed;
        self.at += passed;
    }

    /// Lets other connections have their turn, where much has come since the last one.
    pub async fn pause(&mut self) {
        if self.run >= TURN {
            self.run = 0;
            super::cores::next_turn().await;
        }
    }

    /// Reads more. 0: the client has closed its side.
    pub fn poll_fill<S: Stream>(
        &mut self,
        stream: &mut Line<S>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let mut room = ReadBuf::new(self.room());
        ready!(Pin::new(stream).poll_read(cx, &mut room))?;
        let n = room.filled().len();
        self.run += n;
        self.came(n);
        Poll::Ready(Ok(n))
    }

    /// The same, after a pause.
    pub async fn fill<S: Stream>(&mut self, stream: &mut Line<S>) -> io::Result<usize> {
        self.pause().await;
        poll_fn(|cx| self.poll_fill(stream, cx)).await
    }
}

/// A connection.
pub struct Wire<S> {
    pub stream: Line<S>,
    pub input: Input,
    pub out: Replies,
    /// Messages of a COPY that failed are skipped up to its end.
    pub skip_copy: bool,
    /// Its session: whoever ends it ends a write that waits for the client.
    pub session: Option<Arc<Handle>>,
}

/// The connection is gone.
pub fn gone(e: &io::Error) -> Error {
    Error::new(
        SqlState::CONNECTION_FAILURE,
        format!("connection lost: {e}"),
    )
}

impl<S: Stream> Wire<S> {
    /// Over a socket, as yet plain.
    pub fn new(socket: S) -> Wire<S> {
        Wire {
            stream: Line::Plain(socket),
            input: Input::default(),
            out: Replies::default(),
            skip_copy: false,
            session: None,
        }
    }

    /// Sends everything.
    pub async fn send(&mut self) -> io::Result<()> {
        if self.out.buf.is_empty() {
            return Ok(());
        }
        let Wire {
            stream,
            out,
            session,
            ..
        } = self;
        let mut written = 0;
        poll_fn(|cx| -> Poll<io::Result<()>> {
            while let Some(rest) = out.buf.get(written..).filter(|r| !r.is_empty()) {
                match Pin::new(&mut *stream).poll_write(cx, rest) {
                    Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                    Poll::Ready(n) => written += n?,
                    // Looked at only where the write has to wait.
                    Poll::Pending => {
                        let ended = session.as_ref().is_some_and(|s| s.ends_write(cx));
                        return match ended {
                            true => Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into())),
                            false => Poll::Pending,
                        };
                    }
                }
            }
            Poll::Ready(Ok(()))
        })
        .await?;
        self.out.sent += self.out.buf.len() as u64;
        if self.out.buf.capacity() > KEEP {
            self.out.buf = Vec::new();
        } else {
            self.out.buf.clear();
        }
        Ok(())
    }
}

impl<S: Stream> Wire<S> {
    /// Sends everything, says that nothing follows, and takes what still comes: a socket that is closed with unread bytes is
    /// reset, and the reset can overtake the last message.
    pub async fn last_words(&mut self) -> io::Result<()> {
        // Whoever ended the session has done so already.
        self.session = None;
        self.send().await?;
        self.stream.shutdown().await?;
        let mut rest = [0; 4096];
        while self.stream.read(&mut rest).await? > 0 {}
        Ok(())
    }
}

/// Writes what the columns of a result are.
pub fn describe(out: &mut Replies, columns: &[Column], format: impl Fn(usize) -> Format) {
    out.row_description(columns.iter().enumerate().map(|(i, c)| Field {
        name: &c.name,
        table: c.table,
        attribute: c.attribute,
        oid: c.ty.ty.oid(),
        typlen: c.ty.ty.typlen(),
        typmod: c.ty.typmod,
        format: format(i),
    }));
}

impl<S: Stream> Client for Wire<S> {
    fn row_description(&mut self, columns: &[Column], format: &[Format]) {
        describe(&mut self.out, columns, |i| format[i]);
    }

    #[inline]
    fn row<R>(&mut self, fields: usize, fill: impl FnOnce(&mut Vec<u8>) -> Result<R>) -> Result<R> {
        let start = self.out.buf.len();
        let r = self.out.message(b'D', |b| {
            b.extend_from_slice(&(fields as u16).to_be_bytes());
            fill(b)
        });
        if r.is_err() {
            self.out.buf.truncate(start);
        }
        r
    }

    fn command_complete(&mut self, tag: &str) {
        self.out.command_complete(tag);
    }

    fn portal_suspended(&mut self) {
        self.out.plain(b's');
    }

    fn empty_query(&mut self) {
        self.out.plain(b'I');
    }

    fn notice(&mut self, severity: Severity, e: &Error) {
        self.out.error(severity, e);
    }

    fn parameter_status(&mut self, name: &str, value: &str) {
        self.out.parameter_status(name, value);
    }

    fn copy_in_response(&mut self, columns: usize, format: Format) {
        self.out.copy_in(columns, format);
    }

    fn copy_out_response(&mut self, columns: usize, format: Format) {
        self.out.copy_out(columns, format);
    }

    fn copy_data(&mut self, data: &[u8]) {
        self.out.message(b'd', |b| b.extend_from_slice(data));
    }

    fn copy_done(&mut self) {
        self.out.plain(b'c');
    }

    fn copy_in_failed(&mut self) {
        self.skip_copy = true;
    }

    fn mark(&self) -> u64 {
        self.out.mark()
    }

    fn rewind(&mut self, mark: u64) -> bool {
        self.out.rewind(mark)
    }

    fn pending(&self) -> usize {
        self.out.buf.len()
    }

    async fn flush(&mut self) -> Result<()> {
        self.send().await.map_err(|e| gone(&e))
    }

    async fn copy_input(&mut self) -> Result<CopyInput> {
        loop {
            if let Some((kind, len)) = frontend::frame(self.input.bytes())? {
                let body = &self.input.bytes()[5..len];
                let piece = match frontend::decode(kind, body)? {
                    Frontend::CopyData(d) => Some(CopyInput::Data(d.to_vec())),
                    Frontend::CopyDone => Some(CopyInput::Done),
                    Frontend::CopyFail(why) => Some(CopyInput::Fail(why.to_owned())),
                    // Sent by libpq together with Execute, and meant for after the COPY.
                    Frontend::Flush | Frontend::Sync => None,
                    Frontend::Terminate => {
                        return Err(Error::new(
                            SqlState::CONNECTION_FAILURE,
                            "connection closed during COPY",
                        ));
                    }
                    _ => {
                        return Err(frontend::violation(format!(
                            "unexpected message type 0x{kind:02X} during COPY from stdin"
                        )));
                    }
                };
                let done = matches!(piece, Some(CopyInput::Done | CopyInput::Fail(_)));
                self.input.take(len);
                if let Some(p) = piece {
                    if done {
                        self.skip_copy = false;
                    }
                    return Ok(p);
                }
                continue;
            }
            self.input.admit()?;
            match self.input.fill(&mut self.stream).await {
                Ok(0) => {
                    let e = io::Error::from(io::ErrorKind::UnexpectedEof);
                    return Err(gone(&e));
                }
                Ok(_) => {}
                Err(e) => return Err(gone(&e)),
            }
        }
    }

    fn pause(&mut self, time: Duration) -> impl Future<Output = ()> + Send {
        tokio::time::sleep(time)
    }
}
