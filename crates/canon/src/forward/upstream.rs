//! One connection to the primary.

use super::{LOGIN, Pool};
use crate::gate::cores::Core;
use crate::gate::socket::Socket;
use crate::gate::wire::{Input, gone};
use crate::replication::Link;
use base::{Error, Result, SqlState};
use futures::task::noop_waker;
use sql::session::Known;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;

/// Messages to the primary are sent when there are this many bytes of them.
const HIGH_WATER: usize = 64 << 10;

/// A connection that is logged in for sessions of this node.
pub struct Upstream {
    socket: Socket<mio::net::TcpStream>,
    pub input: Input,
    out: Vec<u8>,
    /// Process number and secret, for cancel requests.
    key: (i32, i32),
    /// What it knows of the session that it served last.
    pub known: Known,
    /// That session.
    pub owner: u64,
    /// Bytes were sent since the work began that is going on.
    pub sent: bool,
    pool: Arc<Pool>,
    place: Option<OwnedSemaphorePermit>,
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.pool.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Upstream {
    /// Connects and logs in.
    pub async fn connect(pool: Arc<Pool>, core: &Arc<Core>) -> Result<Upstream> {
        let primary = pool.primary.clone();
        // On the runtime, whose sockets wake its own threads; from then on the socket is the core's.
        let login = tokio::spawn(async move { Link::connect(&primary, &LOGIN).await });
        let lost = |e: &dyn std::fmt::Display| {
            Error::new(
                SqlState::CONNECTION_FAILURE,
                format!("connection lost: {e}"),
            )
        };
        let link = login.await.map_err(|e| lost(&e))??;
        let key = link.key();
        let stream = link.into_std().map_err(|e| lost(&e))?;
        crate::gate::keep_alive(&stream);
        let socket = mio::net::TcpStream::from_std(stream);
        let socket = Socket::new(socket, core.clone()).map_err(|e| lost(&e))?;
        pool.open.fetch_add(1, Ordering::Relaxed);
        Ok(Upstream {
            socket,
            input: Input::default(),
            out: Vec::new(),
            key,
            known: Known::default(),
            owner: 0,
            sent: false,
            pool,
            place: None,
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

    /// Whether the other end is there and silent, as it is between two pieces of work.
    pub fn is_alive(&mut self) -> bool {
        let waker = noop_waker();
        let mut byte = [0; 1];
        let mut buf = ReadBuf::new(&mut byte);
        let read = Pin::new(&mut self.socket).poll_read(&mut Context::from_waker(&waker), &mut buf);
        matches!(read, Poll::Pending) && self.input.bytes().is_empty() && self.out.is_empty()
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

    pub async fn send(&mut self) -> Result<()> {
        if self.out.is_empty() {
            return Ok(());
        }
        self.sent = true;
        let written = tokio::select! {
            biased;
            r = self.socket.write_all(&self.out) => r,
            e = self.pool.silence() => return Err(e),
        };
        self.out.clear();
        if self.out.capacity() > 4 * HIGH_WATER {
            self.out = Vec::new();
        }
        written.map_err(|e| gone(&e))
    }

    /// A whole message at the front of what has come: its type and length in all.
    pub fn message(&self) -> Option<(u8, usize)> {
        let have = self.input.bytes();
        let head = have.first_chunk::<5>()?;
        let whole = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize + 1;
        (have.len() >= whole).then_some((head[0], whole))
    }

    /// Reads more. An error also when the primary is not heard any more.
    pub async fn fill(&mut self) -> Result<()> {
        let came = tokio::select! {
            biased;
            r = self.input.fill(&mut self.socket) => r,
            e = self.pool.silence() => return Err(e),
        };
        match came {
            Ok(0) => Err(gone(&std::io::ErrorKind::UnexpectedEof.into())),
            Ok(_) => Ok(()),
            Err(e) => Err(gone(&e)),
        }
    }

    /// Asks the primary to cancel what runs here, on a connection of its own as the protocol wants it.
    pub fn cancel(&self) {
        let (primary, (pid, secret)) = (self.pool.primary.clone(), self.key);
        tokio::spawn(async move {
            let address = (primary.host.as_str(), primary.port);
            let connect = tokio::net::TcpStream::connect(address);
            let connected = tokio::time::timeout(primary.connect_timeout, connect).await;
            let Ok(Ok(mut s)) = connected else { return };
            let mut message = 16u32.to_be_bytes().to_vec();
            message.extend_from_slice(&80_877_102u32.to_be_bytes());
            message.extend_from_slice(&pid.to_be_bytes());
            message.extend_from_slice(&secret.to_be_bytes());
            _ = s.write_all(&message).await;
        });
    }
}
