//! Clients that come while there is no database yet: a replica's first copy is still to come, and until then nothing here knows a role. At a member of a cluster
//! that runs itself also while its database is opened: the other members are heard there.
//!
//! ```text
//! for PATIENCE   nobody is accepted: if the copy comes meanwhile, the server takes who stands in the kernel's queue
//! then           accept ──▶ (TLS) ──▶ start-up message ──▶ 57P03, and the reason
//! with a door    accept ──▶ start-up message ──▶ replication=control: the proof, and the control plane; others: 57P03, and the reason
//! ```
//! The listeners go on to the server afterwards. Without this a client would hang in that queue for as long as the primary is away.
//!
//! Left out on purpose: letting in who has been accepted when the copy comes.

use super::startup;
use super::wire::Wire;
use crate::replication::Membership;
use crate::replication::members::{self, Members};
use base::{Error, SqlState};
use protocol::startup::{CANCEL_REQUEST, GSS_REQUEST, MAX_STARTUP, SSL_REQUEST};
use protocol::tls::Acceptor;
use protocol::{Line, message};
use service::room::Room;
use sql::session::Severity;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// As at a node that is there and does not serve (`startup`).
const PATIENCE: Duration = Duration::from_secs(5);
/// A client that says nothing.
const SILENCE: Duration = Duration::from_secs(60);
/// The same where members are heard: clients that say nothing must not hold their places.
const FIRST: Duration = Duration::from_secs(10);
/// For the last words to one that does not read them.
const LAST: Duration = Duration::from_secs(1);
/// Most connections that have not proven themselves; a further one pushes out the oldest.
const MOST: usize = 256;

/// The way to the control plane.
#[derive(Clone)]
pub struct Door {
    pub membership: Arc<Membership>,
    pub members: Arc<dyn Members>,
}

/// See the head of the file.
pub struct WaitingRoom {
    listeners: Arc<Vec<TcpListener>>,
    accepting: JoinSet<()>,
}

impl WaitingRoom {
    pub fn open(
        listeners: Vec<TcpListener>,
        why: String,
        tls: Option<Arc<Acceptor>>,
    ) -> WaitingRoom {
        WaitingRoom::start(listeners, why, None, tls)
    }

    /// One in which other members are heard.
    pub fn with_door(
        listeners: Vec<TcpListener>,
        why: String,
        door: Door,
        tls: Option<Arc<Acceptor>>,
    ) -> WaitingRoom {
        WaitingRoom::start(listeners, why, Some(door), tls)
    }

    fn start(
        listeners: Vec<TcpListener>,
        why: String,
        door: Option<Door>,
        tls: Option<Arc<Acceptor>>,
    ) -> WaitingRoom {
        let (listeners, why) = (Arc::new(listeners), Arc::<str>::from(why));
        let mut accepting = JoinSet::new();
        for i in 0..listeners.len() {
            let (door, tls) = (door.clone(), tls.clone());
            accepting.spawn(accept(listeners.clone(), i, why.clone(), door, tls));
        }
        WaitingRoom {
            listeners,
            accepting,
        }
    }

    /// Nobody else is refused; the listeners.
    pub async fn close(mut self) -> Vec<TcpListener> {
        self.accepting.shutdown().await;
        Arc::try_unwrap(self.listeners).expect("nobody accepts any more")
    }
}

async fn accept(
    listeners: Arc<Vec<TcpListener>>,
    i: usize,
    why: Arc<str>,
    door: Option<Door>,
    tls: Option<Arc<Acceptor>>,
) {
    if door.is_none() {
        tokio::time::sleep(PATIENCE).await;
    }
    let here = Room::of(MOST);
    loop {
        match listeners[i].accept().await {
            Ok((socket, address)) => {
                let (why, door, tls) = (why.clone(), door.clone(), tls.clone());
                let (place, mut notice) = here.enter();
                // It outlives the acceptor, so that who was accepted is answered.
                tokio::spawn(async move {
                    let local = super::is_local(&address);
                    let answered = async {
                        let door = door.as_ref();
                        let Some(door) = door else {
                            let refuse = refuse(socket, &why, tls.as_deref());
                            _ = tokio::time::timeout(SILENCE, refuse).await;
                            return None;
                        };
                        let let_in = let_in(socket, &why, door, tls.as_deref(), local);
                        let_in.await.map(|wire| (wire, door))
                    };
                    let proven = tokio::select! {
                        proven = answered => proven,
                        () = notice.given() => None,
                    };
                    // One that has proven itself needs no place.
                    drop(place);
                    if let Some((mut wire, door)) = proven {
                        hear(&mut wire, door).await;
                    }
                });
            }
            // No descriptors, say.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Lets a member in, and refuses all others.
async fn let_in(
    socket: TcpStream,
    why: &str,
    door: &Door,
    tls: Option<&Acceptor>,
    local: bool,
) -> Option<Wire<TcpStream>> {
    _ = socket.set_nodelay(true);
    let mut wire = Wire::new(socket);
    let knocked = startup::knock(&mut wire, &door.membership, &door.members, tls, local);
    let refused = match tokio::time::timeout(FIRST, knocked).await {
        Ok(Ok(true)) => return Some(wire),
        Ok(Ok(false)) => Error::new(SqlState::CANNOT_CONNECT_NOW, why),
        Ok(Err(e)) => e,
        Err(_) => return None,
    };
    last_words(&mut wire, &refused).await;
    None
}

/// Answers a member until it goes.
async fn hear(wire: &mut Wire<TcpStream>, door: &Door) {
    if let Err(e) = members::serve(wire, Some(&door.members)).await {
        last_words(wire, &e).await;
    }
}

async fn last_words(wire: &mut Wire<TcpStream>, e: &Error) {
    wire.out.error(Severity::Fatal, e);
    _ = tokio::time::timeout(LAST, wire.last_words()).await;
}

async fn refuse(socket: TcpStream, why: &str, tls: Option<&Acceptor>) -> io::Result<()> {
    let mut socket = Line::Plain(socket);
    loop {
        let length = socket.read_u32().await? as usize;
        if !(8..=MAX_STARTUP).contains(&length) {
            return Ok(());
        }
        let code = socket.read_u32().await?;
        let mut rest = vec![0; length - 8];
        socket.read_exact(&mut rest).await?;
        match code {
            SSL_REQUEST | GSS_REQUEST => {
                let tls = tls.filter(|_| code == SSL_REQUEST && !socket.is_secured());
                match tls {
                    Some(tls) => tls.accept(&mut socket).await?,
                    None => socket.write_all(b"N").await?,
                }
            }
            CANCEL_REQUEST => return Ok(()),
            _ => break,
        }
    }
    let told = message::error("FATAL", "57P03", why);
    socket.write_all(&told).await?;
    socket.flush().await?;
    socket.shutdown().await
}
