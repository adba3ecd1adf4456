//! One connection to the primary.

use super::{LOGIN, Slot};
use crate::connections::cores::Core;
use crate::connections::socket::Socket;
use crate::connections::wire::{Input, gone};
use crate::replication::Found;
use base::{Error, Result, SqlState};
use futures::task::noop_waker;
use protocol::{Conninfo, Line};
use sql::session::Known;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;

/// Messages to the primary are sent when there are this many bytes of them.
const HIGH_WATER: usize = 64 << 10;

/// Why relaying ended before.
pub enum Broken {
    /// The connection to the primary.
    Primary(Error),
    /// The client's, or the session is to end.
    Client(Error),
}

/// A connection that is logged in for sessions of this node.
pub struct Upstream {
    socket: Line<Socket<mio::net::TcpStream>>,
    pub input: Input,
    /// What is to be sent, and how much of it was.
    out: Vec<u8>,
    at: usize,
    /// Process number and secret, for cancel requests.
    key: [u8; 8],
    /// What it knows of the session that it served last.
    pub known: Known,
    /// That session.
    pub owner: u64,
    /// Bytes were sent since the work began that is going on.
    pub sent: bool,
    /// A cancel request was sent, which may come late.
    pub cancelled: bool,
    // In this order: who gets the place finds the slot free.
    slot: Slot,
    place: Option<OwnedSemaphorePermit>,
    /// The node that it is connected to.
    found: Found,
    server: Conninfo,
}

impl Upstream {
    /// Connects and logs in.
    pub async fn connect(slot: Slot, core: &Arc<Core>) -> Result<Upstream> {
        let primary = slot.0.primary.clone();
        let (found, server) = (primary.found(), primary.server());
        // On the runtime, whose sockets wake its own threads; from then on the socket is the core's.
        let login = tokio::spawn(async move { primary.connect(&LOGIN).await });
        let lost = |e: &dyn std::fmt::Display| {
            Error::new(
                SqlState::CONNECTION_FAILURE,
                format!("connection lost: {e}"),
            )
        };
        let link = login.await.map_err(|e| lost(&e))??;
        let key = link.key();
        let on_core = |tcp: tokio::net::TcpStream| {
            let tcp = mio::net::TcpStream::from_std(tcp.into_std()?);
            Socket::new(tcp, core.clone())
        };
        // Nothing has been said on it since the start.
        let (line, _) = link.into_parts();
        let socket = line.over(on_core).map_err(|e| lost(&e))?;
        Ok(Upstream {
            socket,
            input: Input::default(),
            out: Vec::new(),
            at: 0,
            key,
            known: Known::default(),
            owner: 0,
            sent: false,
            cancelled: false,
            slot,
            place: None,
            found,
            server,
        })
    }

    /// Belongs to this client from now on.
    pub fn serve(&mut self, owner: u64, place: OwnedSemaphorePermit) {
        if self.owner != owner {
            self.known = Known::default();
            self.owner = owner;
        }
        self.place = Some(place);
        self.sent = false;
    }

    /// Belongs to nobody.
    pub fn rest(&mut self) {
        self.place = None;
    }

    /// Whether the other end is there and silent, as it is between two pieces of work. Data of a COPY that has failed may be on its way
    /// still: what comes next goes behind it.
    pub fn is_alive(&mut self) -> bool {
        let waker = noop_waker();
        let mut byte = [0; 1];
        let mut buf = ReadBuf::new(&mut byte);
        let read = Pin::new(&mut self.socket).poll_read(&mut Context::from_waker(&waker), &mut buf);
        matches!(read, Poll::Pending) && self.input.bytes().is_empty() && !self.found.has_moved()
    }

    /// Puts a message among what is to be sent.
    pub fn put(&mut self, kind: u8, body: &[u8]) {
        self.out.push(kind);
        self.out
            .extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
        self.out.extend_from_slice(body);
    }

    /// Puts a whole message as it came.
    pub fn pass(&mut self, message: &[u8]) {
        self.out.extend_from_slice(message);
    }

    /// Whether enough has gathered to be sent.
    pub fn is_full(&self) -> bool {
        self.out.len() > HIGH_WATER
    }

    /// Whether everything has been sent.
    pub fn is_sent(&self) -> bool {
        self.out.is_empty()
    }

    /// Sends some of what is to be sent, or reads some of what has come: the primary stops to read while nobody takes its replies. An
    /// error also when it is not heard any more.
    pub async fn step(&mut self) -> Result<()> {
        let pool = self.slot.0.clone();
        let mut found = self.found.clone();
        let done = tokio::select! {
            biased;
            r = poll_fn(|cx| self.poll_step(cx)) => r,
            () = found.moved() => Err(io::Error::other("the primary is another node now")),
            e = pool.silence() => return Err(e),
        };
        done.map_err(|e| gone(&e))
    }

    fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut wrote = false;
        if !self.is_sent() {
            self.sent = true;
            let written = Pin::new(&mut self.socket).poll_write(cx, &self.out[self.at..]);
            if let Poll::Ready(n) = written {
                self.at += n?;
                if self.at == self.out.len() {
                    self.at = 0;
                    self.out.clear();
                    if self.out.capacity() > 4 * HIGH_WATER {
                        self.out = Vec::new();
                    }
                }
                wrote = true;
            }
        }
        // Also after a write: who always has something to send hears of an error all the same.
        let mut room = ReadBuf::new(self.input.room());
        match Pin::new(&mut self.socket).poll_read(cx, &mut room) {
            Poll::Pending if wrote => return Poll::Ready(Ok(())),
            read => ready!(read)?,
        }
        let n = room.filled().len();
        self.input.came(n);
        Poll::Ready(match n {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        })
    }

    /// A whole message at the front of what has come: its type and length in all.
    pub fn message(&self) -> Option<(u8, usize)> {
        let have = self.input.bytes();
        let head = have.first_chunk::<5>()?;
        let whole = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize + 1;
        (have.len() >= whole).then_some((head[0], whole))
    }

    /// Asks the primary to cancel what runs here, on a connection of its own as the protocol wants it. It may come when something else
    /// runs, so no other client gets this connection.
    pub fn cancel(&mut self) {
        self.cancelled = true;
        let (server, key) = (self.server.clone(), self.key);
        tokio::spawn(async move { protocol::link::cancel(&server, key).await });
    }
}
