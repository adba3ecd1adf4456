//! A link between two members: a proxy of bytes that can be slow, silent or broken.
//!
//! What comes in waits in order until it is due, and goes out; so a delay shifts the stream and does not thin it.

use base::{Error, Result, SqlState};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// What a link is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weather {
    /// Bytes take this long, each way.
    Open(Duration),
    /// Bytes stay on their way.
    Silent,
    /// Connections break.
    Cut,
}

/// Pieces on their way in one direction of one connection.
const ON_THE_WAY: usize = 256;

/// See the head of the file.
pub struct Link {
    address: SocketAddr,
    weather: watch::Sender<Weather>,
    target: watch::Sender<SocketAddr>,
    task: JoinHandle<()>,
}

impl Link {
    /// A link on an address of its own that leads to `target`. Call inside of a runtime.
    pub fn start(target: SocketAddr) -> Result<Link> {
        let failed = |e: io::Error| Error::new(SqlState::SYSTEM_ERROR, e.to_string());
        let listener = std::net::TcpListener::bind("127.0.0.1:0").map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let listener = TcpListener::from_std(listener).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (weather, seen) = watch::channel(Weather::Open(Duration::ZERO));
        let (target, to) = watch::channel(target);
        let task = tokio::spawn(listen(listener, seen, to));
        Ok(Link {
            address,
            weather,
            target,
            task,
        })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn set(&self, w: Weather) {
        self.weather.send_replace(w);
    }

    /// New connections lead there; those that led elsewhere break.
    pub fn lead_to(&self, target: SocketAddr) {
        self.target
            .send_if_modified(|t| std::mem::replace(t, target) != target);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn listen(
    listener: TcpListener,
    weather: watch::Receiver<Weather>,
    target: watch::Receiver<SocketAddr>,
) {
    while let Ok((from, _)) = listener.accept().await {
        let (weather, target) = (weather.clone(), target.clone());
        tokio::spawn(async move {
            _ = carry(from, weather, target).await;
        });
    }
}

/// One connection, until it ends or the link says so.
async fn carry(
    from: TcpStream,
    mut weather: watch::Receiver<Weather>,
    mut target: watch::Receiver<SocketAddr>,
) -> io::Result<()> {
    if *weather.borrow() == Weather::Cut {
        return Ok(());
    }
    let to = *target.borrow_and_update();
    let to = TcpStream::connect(to).await?;
    for s in [&from, &to] {
        s.set_nodelay(true)?;
    }
    let ((a, b), (c, d)) = (from.into_split(), to.into_split());
    let (there, back) = (pipe(a, d, weather.clone()), pipe(c, b, weather.clone()));
    tokio::select! {
        r = there => r,
        r = back => r,
        _ = weather.wait_for(|w| *w == Weather::Cut) => Ok(()),
        _ = target.changed() => Ok(()),
    }
}

/// One direction.
async fn pipe(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut weather: watch::Receiver<Weather>,
) -> io::Result<()> {
    let (queue, mut queued) = mpsc::channel::<(Instant, Vec<u8>)>(ON_THE_WAY);
    let seen = weather.clone();
    let read = async move {
        loop {
            let mut piece = Vec::with_capacity(64 << 10);
            if from.read_buf(&mut piece).await? == 0 {
                return Ok(());
            }
            let due = match *seen.borrow() {
                Weather::Open(delay) => Instant::now() + delay,
                _ => Instant::now(),
            };
            if queue.send((due, piece)).await.is_err() {
                return Ok(());
            }
        }
    };
    let write = async move {
        while let Some((due, piece)) = queued.recv().await {
            tokio::time::sleep_until(due).await;
            let open = weather.wait_for(|w| *w != Weather::Silent);
            if open.await.is_err() {
                break;
            }
            to.write_all(&piece).await?;
        }
        io::Result::Ok(())
    };
    tokio::select! {
        r = read => r,
        r = write => r,
    }
}
