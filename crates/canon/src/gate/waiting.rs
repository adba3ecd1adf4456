//! Who comes while there is no database yet: a replica's first copy is still to come, and until then nothing here knows a role.
//!
//! ```text
//! for PATIENCE   nobody is accepted: if the copy comes meanwhile, the gate takes who stands in the kernel's queue
//! then           accept ──▶ start-up message (a request for TLS: no) ──▶ 57P03, and the reason
//! ```
//! The listeners go on to the gate afterwards. Without this a client would hang in that queue for as long as the primary is away.
//!
//! Left out on purpose: letting in who has been accepted when the copy comes.

use protocol::message;
use protocol::startup::{CANCEL_REQUEST, GSS_REQUEST, MAX_STARTUP, SSL_REQUEST};
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
/// Most connections that are answered at once; others wait to be accepted.
const MOST: usize = 256;

/// See the head of the file.
pub struct WaitingRoom {
    listeners: Arc<Vec<TcpListener>>,
    accepting: JoinSet<()>,
}

impl WaitingRoom {
    pub fn open(listeners: Vec<TcpListener>, why: String) -> WaitingRoom {
        let (listeners, why) = (Arc::new(listeners), Arc::<str>::from(why));
        let mut accepting = JoinSet::new();
        for i in 0..listeners.len() {
            accepting.spawn(accept(listeners.clone(), i, why.clone()));
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

async fn accept(listeners: Arc<Vec<TcpListener>>, i: usize, why: Arc<str>) {
    tokio::time::sleep(PATIENCE).await;
    let here = Arc::new(tokio::sync::Semaphore::new(MOST));
    loop {
        let place = here.clone().acquire_owned().await;
        match listeners[i].accept().await {
            Ok((socket, _)) => {
                let why = why.clone();
                // It outlives the acceptor, so that who was accepted is answered.
                tokio::spawn(async move {
                    _ = tokio::time::timeout(SILENCE, refuse(socket, &why)).await;
                    drop(place);
                });
            }
            // No descriptors, say.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

async fn refuse(mut socket: TcpStream, why: &str) -> io::Result<()> {
    loop {
        let length = socket.read_u32().await? as usize;
        if !(8..=MAX_STARTUP).contains(&length) {
            return Ok(());
        }
        let code = socket.read_u32().await?;
        let mut rest = vec![0; length - 8];
        socket.read_exact(&mut rest).await?;
        match code {
            SSL_REQUEST | GSS_REQUEST => socket.write_all(b"N").await?,
            CANCEL_REQUEST => return Ok(()),
            _ => break,
        }
    }
    let told = message::error("FATAL", "57P03", why);
    socket.write_all(&told).await?;
    socket.shutdown().await
}
