//! A primary's memory over a connection of its own: [`RemoteMemory`] by messages.
//!
//! ```text
//! read ──▶ queue ──▶ drive: all that is queued goes out in one write; answers go to who asked ──▶ reads
//! ```
//! Whoever reads also drives, in the same task ([`Tcp::drive`]): an answer costs no hand-over between threads.

use super::Primary;
use super::commands;
use super::copy_both::CopyBoth;
use super::shared::Mapped;
use base::{Error, Result, SqlState};
use futures::channel::oneshot;
use parking_lot::Mutex;
use protocol::Line;
use replica::read::{Reading, RemoteMemory, decode_answer, decode_place, encode_request};
use std::collections::HashMap;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::Instant;

/// A primary that does not answer for so long is taken for gone.
const SILENCE: Duration = Duration::from_secs(2);

#[derive(Default)]
struct Queue {
    number: u64,
    asked: Vec<(u64, Vec<u32>)>,
    waiting: HashMap<u64, oneshot::Sender<Vec<u64>>>,
}

/// See the head of the file.
#[derive(Default)]
pub struct Tcp {
    queue: Mutex<Queue>,
    moved: Notify,
}

impl RemoteMemory for Tcp {
    fn read(&self, words: Vec<u32>) -> Reading {
        let (tell, told) = oneshot::channel();
        {
            let mut q = self.queue.lock();
            q.number += 1;
            let number = q.number;
            q.asked.push((number, words));
            q.waiting.insert(number, tell);
        }
        self.moved.notify_one();
        Box::pin(async move {
            told.await
                .map_err(|_| io::ErrorKind::ConnectionReset.into())
        })
    }
}

/// A connection over which a primary's region is read; the region's name and path, for who is on its host.
pub async fn link(
    primary: &Primary,
    name: &str,
) -> Result<(CopyBoth<Line<TcpStream>>, u64, String)> {
    let parameters = [("replication", "canon"), ("application_name", name)];
    let link = primary.connect(&parameters).await?;
    let mut link = CopyBoth::begin(link, commands::REGION).await?;
    let place = tokio::time::timeout(SILENCE, link.next_as(decode_place));
    let (name, path) = place.await.map_err(|_| silent())??;
    Ok((link, name, path))
}

/// The same, and the words mapped, if the primary is on this host.
pub async fn connect(
    primary: &Primary,
    name: &str,
) -> Result<(CopyBoth<Line<TcpStream>>, Option<Mapped>)> {
    let (link, name, path) = link(primary, name).await?;
    let mapped = tokio::task::block_in_place(|| Mapped::find(name, &path));
    Ok((link, mapped))
}

fn silent() -> Error {
    Error::new(
        SqlState::CONNECTION_FAILURE,
        format!("the primary has not answered for {SILENCE:?}"),
    )
}

impl Tcp {
    /// Carries requests and answers until the connection ends; why it did.
    pub async fn drive<S: AsyncRead + AsyncWrite>(&self, link: &mut CopyBoth<S>) -> Error {
        let mut asked = Instant::now();
        // Not a timer for each request: it is long.
        let mut look = tokio::time::interval(SILENCE / 8);
        loop {
            {
                let mut q = self.queue.lock();
                if q.waiting.len() == q.asked.len() && !q.asked.is_empty() {
                    // Nothing was on its way.
                    asked = Instant::now();
                }
                for (number, words) in q.asked.drain(..) {
                    link.send_with(|out| encode_request(number, &words, out));
                }
            }
            tokio::select! {
                a = link.next_as(decode_answer) => match a {
                    Ok(a) => {
                        asked = Instant::now();
                        let waiting = self.queue.lock().waiting.remove(&a.number);
                        if let Some(tell) = waiting {
                            // Who asked may have gone.
                            _ = tell.send(a.values);
                        }
                    }
                    Err(e) => return e,
                },
                () = self.moved.notified() => {}
                _ = look.tick() => {
                    if asked.elapsed() > SILENCE && !self.queue.lock().waiting.is_empty() {
                        return silent();
                    }
                }
            }
        }
    }
}
