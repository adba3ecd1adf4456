//! A socket on a core (`cores.rs`): tokio's traits over a non-blocking socket of `mio`.
//!
//! It is tried first and waited for only when it says that it would block; a read that fills less than it may has emptied the
//! socket, and the next waits for an event without asking.

use super::cores::{Core, Readiness};
use mio::Token;
use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A socket of the operating system.
pub trait Inner: Source + Read + Write + Unpin + Send {
    /// Nothing more will be written.
    fn end(&self) -> io::Result<()>;
}

impl Inner for TcpStream {
    fn end(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

impl Inner for UnixStream {
    fn end(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

/// See the head of the file.
pub struct Socket<T: Inner> {
    inner: T,
    core: Arc<Core>,
    token: Token,
    readiness: Arc<Readiness>,
}

impl<T: Inner> Socket<T> {
    /// Puts a socket on a core.
    pub fn new(mut inner: T, core: Arc<Core>) -> io::Result<Socket<T>> {
        let (token, readiness) = core.register(&mut inner)?;
        Ok(Socket {
            inner,
            core,
            token,
            readiness,
        })
    }
}

impl<T: Inner> Drop for Socket<T> {
    fn drop(&mut self) {
        self.core.forget(&mut self.inner, self.token);
    }
}

impl<T: Inner> AsyncRead for Socket<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let side = &this.readiness.read;
        loop {
            ready!(side.poll_ready(cx));
            side.lower();
            let room = buf.initialize_unfilled();
            match this.inner.read(room) {
                Ok(n) => {
                    if n == room.len() {
                        side.keep();
                    }
                    buf.advance(n);
                    return Poll::Ready(Ok(()));
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => side.not_ended(),
                Err(e) if e.kind() == ErrorKind::Interrupted => side.keep(),
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
    }
}

impl<T: Inner> AsyncWrite for Socket<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let side = &this.readiness.write;
        loop {
            side.lower();
            match this.inner.write(bytes) {
                Ok(n) => return Poll::Ready(Ok(n)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    side.not_ended();
                    ready!(side.poll_ready(cx));
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.inner.end())
    }
}
