//! A socket on a core (`cores.rs`): tokio's traits over a non-blocking socket of `mio`.
//!
//! It is tried first and waited for only when it says that it would block; a read that fills less than it may has emptied the
//! socket, and the next waits for an event without asking.
//!
//! One that [may move](Socket::may_move) looks around now and then where it waits for its client (`core_choice.rs`), and takes its task to another
//! core. Nothing of the task is between two cores then: it runs while it moves, and wakers push it where it belongs once it waits.

use super::core_choice::{CoreChoice, LOOK};
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

    /// The processor that took the last packet.
    fn from(&self) -> Option<usize>;

    /// The other end is a node that works here for its clients: its loss is noticed soon.
    fn notice_loss(&self) {}
}

impl Inner for TcpStream {
    fn end(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }

    fn from(&self) -> Option<usize> {
        socket2::SockRef::from(self).cpu_affinity().ok()
    }

    fn notice_loss(&self) {
        protocol::dial::notice_loss(self);
    }
}

impl Inner for UnixStream {
    fn end(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }

    fn from(&self) -> Option<usize> {
        None
    }
}

/// See the head of the file.
pub struct Socket<T: Inner> {
    inner: T,
    core: Arc<Core>,
    /// `None`: on no core, after a failure.
    token: Option<Token>,
    readiness: Arc<Readiness>,
    /// Of one that may move.
    choice: Option<CoreChoice>,
    reads: u32,
    /// The period in which it was counted as busy.
    period: u32,
}

impl<T: Inner> Socket<T> {
    /// Puts a socket on a core.
    pub fn new(mut inner: T, core: Arc<Core>) -> io::Result<Socket<T>> {
        let (token, readiness) = core.register(&mut inner)?;
        Ok(Socket {
            inner,
            core,
            token: Some(token),
            readiness,
            choice: None,
            reads: 0,
            period: u32::MAX,
        })
    }

    /// It takes its task with it. Other sockets of the task stay where they are: their events come from another thread then, which costs a
    /// hand-over.
    pub fn may_move(&mut self) {
        self.choice = Some(CoreChoice::default());
    }

    /// See [`Inner::notice_loss`].
    pub fn notice_loss(&self) {
        self.inner.notice_loss();
    }

    /// Who is at the other end.
    pub fn peer(&self) -> Arc<dyn sql::session::ClientSide> {
        self.readiness.clone()
    }

    fn has_read(&mut self) {
        self.reads = self.reads.saturating_add(1);
        let period = self.core.period();
        if std::mem::replace(&mut self.period, period) != period {
            self.core.is_busy();
        }
    }

    /// Moves to another core if it is time and worth it.
    fn look(&mut self) -> io::Result<()> {
        let restless = env::fault::planted("gate.restless");
        let Some(choice) = &mut self.choice else {
            return Ok(());
        };
        if self.reads < LOOK && !(restless && self.reads > 0) {
            return Ok(());
        }
        self.reads = 0;
        let Some((own, busy)) = self.core.view() else {
            return Ok(());
        };
        let to = match restless {
            true => Some((own + 1) % busy.len()),
            false => choice.look(own, self.inner.from(), &busy),
        };
        if let Some(to) = to.filter(|to| *to != own)
            && let Some(token) = self.token.take()
        {
            let held = (token, &self.readiness);
            let (core, token) = self.core.hand_over(&mut self.inner, held, to)?;
            (self.core, self.token) = (core, Some(token));
        }
        Ok(())
    }
}

impl<T: Inner> Drop for Socket<T> {
    fn drop(&mut self) {
        if let Some(t) = self.token {
            self.core.forget(&mut self.inner, t);
        }
    }
}

impl<T: Inner> AsyncRead for Socket<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            let side = &this.readiness.read;
            if side.poll_ready(cx).is_pending() {
                // Whoever moves now has said that it waits, and is told so by either core.
                this.look()?;
                return Poll::Pending;
            }
            let ended = side.lower();
            let room = buf.initialize_unfilled();
            let read = this.inner.read(room);
            if ended && !matches!(&read, Err(e) if e.kind() == ErrorKind::WouldBlock) {
                side.keep_end();
            }
            match read {
                Ok(n) => {
                    if n == room.len() {
                        side.keep();
                    }
                    buf.advance(n);
                    this.has_read();
                    return Poll::Ready(Ok(()));
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
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
                Err(e) if e.kind() == ErrorKind::WouldBlock => ready!(side.poll_ready(cx)),
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

#[cfg(test)]
mod tests {
    use super::super::cores::Cores;
    use super::*;
    use futures::task::noop_waker;
    use mio::{Interest, Registry};
    use std::collections::VecDeque;

    /// What a read does: events that another thread has raised by its end, and its outcome.
    type Step = (Option<bool>, io::Result<usize>);

    /// A socket that does what it is told.
    #[derive(Default)]
    struct Fake {
        readiness: Option<Arc<Readiness>>,
        steps: VecDeque<Step>,
    }

    impl Source for Fake {
        fn register(&mut self, _: &Registry, _: Token, _: Interest) -> io::Result<()> {
            Ok(())
        }

        fn reregister(&mut self, _: &Registry, _: Token, _: Interest) -> io::Result<()> {
            Ok(())
        }

        fn deregister(&mut self, _: &Registry) -> io::Result<()> {
            Ok(())
        }
    }

    impl Read for Fake {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            let (raised, outcome) = self.steps.pop_front().expect("nothing more is to be had");
            if let Some(ended) = raised {
                let readiness = self.readiness.as_ref().expect("it is on a core");
                readiness.read.raise(ended);
            }
            outcome
        }
    }

    impl Write for Fake {
        fn write(&mut self, b: &[u8]) -> io::Result<usize> {
            Ok(b.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Inner for Fake {
        fn end(&self) -> io::Result<()> {
            Ok(())
        }

        fn from(&self) -> Option<usize> {
            None
        }
    }

    /// What reads give, one after the other, up to the first that waits.
    fn reads(steps: Vec<Step>) -> Vec<usize> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let _inside = runtime.enter();
        let cores = Cores::start(1).unwrap();
        let mut socket = Socket::new(Fake::default(), cores.pick(None).clone()).unwrap();
        socket.inner.readiness = Some(socket.readiness.clone());
        socket.inner.steps = steps.into();
        socket.readiness.read.raise(false);
        let (mut got, mut room, waker) = (Vec::new(), [0; 64], noop_waker());
        loop {
            let mut buf = ReadBuf::new(&mut room);
            let cx = &mut Context::from_waker(&waker);
            match Pin::new(&mut socket).poll_read(cx, &mut buf) {
                Poll::Ready(r) => {
                    r.unwrap();
                    got.push(buf.filled().len());
                    if got.ends_with(&[0, 0]) {
                        return got;
                    }
                }
                Poll::Pending => return got,
            }
        }
    }

    #[test]
    fn the_end_of_a_stream_is_not_lost() {
        let blocks = || Err(ErrorKind::WouldBlock.into());
        let end = || (None, Ok(0));
        // Data and the end come together, while the socket seems empty.
        assert_eq!(
            reads(vec![(Some(true), blocks()), (None, Ok(5)), end(), end()]),
            [5, 0, 0]
        );
        // The end comes behind the data, before they are read and after.
        assert_eq!(reads(vec![(Some(true), Ok(5)), end(), end()]), [5, 0, 0]);
        assert_eq!(
            reads(vec![(None, Ok(64)), (Some(true), blocks()), end(), end()]),
            [64, 0, 0]
        );
        // An event that was for nothing; and a short read is the last.
        assert!(reads(vec![(Some(false), blocks()), (None, blocks())]).is_empty());
        assert_eq!(reads(vec![(Some(false), Ok(5)), (None, blocks())]), [5]);
        assert_eq!(reads(vec![(None, Ok(5))]), [5]);
        // The end was announced and is not there: it waits.
        assert_eq!(reads(vec![(Some(true), Ok(5)), (None, blocks())]), [5]);
    }
}
