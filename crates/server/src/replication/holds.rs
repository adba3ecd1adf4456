//! Snapshots that the primary keeps for transactions which read here and may yet move there: the tasks at both ends of the connection.
//!
//! One connection carries the requests of all sessions, and is made when the first one asks. What is asked and answered, and what is let go when,
//! `node::holding` decides.
//!
//! Left out on purpose: the bytes of the messages, which stand there.

use super::StrongReads;
use super::accept::copy_both;
use super::commands;
use super::copy_both::{CopyBoth, lost};
use super::strong_reads::{AGAIN, gone};
use crate::connections::wire::{Stream, Wire};
use base::{Error, Position, Result, SqlState};
use futures::channel::oneshot;
use node::holding::{Came, HeldSnapshot, Kept, Request, SnapshotRequests as Core};
use node::{Node, Role};
use parking_lot::Mutex;
use replica::read::{decode_answer, encode_answer};
use sql::reading::Kept as KeptThere;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::{debug, warn};
use txn::RemoteSnapshot;

/// A primary that does not answer for so long is taken for gone.
const SILENCE: Duration = Duration::from_secs(2);

/// Answers in bytes that a replica may leave unread before it is asked no more.
const UNREAD: usize = 1 << 20;

/// The primary's end: serves a replica until it goes. `leads`: whether this node may serve strong reads, as far as it is the primary.
pub async fn serve<S: Stream>(
    wire: &mut Wire<S>,
    node: &Arc<Node>,
    leads: impl Fn() -> bool,
) -> Result<()> {
    let mut link = copy_both(wire).await?;
    let mut kept = Kept::new(node.clone());
    loop {
        let request = link.next_as(Request::decode).await?;
        if let Some(a) = kept.handle(request, &leads) {
            link.send_with(|out| encode_answer(a.number, &a.values, out));
        }
        if link.pending() > UNREAD {
            link.flush().await.map_err(|e| lost(&e))?;
        }
    }
}

/// What a session that asked is told.
enum Answered {
    Held(Snapshot),
    Full,
    Another,
}

/// The replica's end.
pub struct RemoteSnapshots {
    core: Mutex<Core<oneshot::Sender<Answered>>>,
    moved: Notify,
}

/// A snapshot that the primary keeps; dropped, it is let go.
struct Snapshot {
    holds: Arc<RemoteSnapshots>,
    held: HeldSnapshot,
}

impl RemoteSnapshot for Snapshot {
    fn number(&self) -> u64 {
        self.held.number
    }

    fn position(&self) -> Position {
        self.held.at
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        if self.holds.core.lock().let_go(self.held) {
            self.holds.moved.notify_one();
        }
    }
}

impl RemoteSnapshots {
    pub fn new(cluster: u128) -> RemoteSnapshots {
        RemoteSnapshots {
            core: Mutex::new(Core::new(cluster)),
            moved: Notify::new(),
        }
    }

    /// Asks for one. The answer is lost with the connection, and if there is none.
    fn ask(&self, now: u64) -> oneshot::Receiver<Answered> {
        let (tell, told) = oneshot::channel();
        if self.core.lock().ask(tell, now).is_none() {
            self.moved.notify_one();
        }
        told
    }

    /// Carries requests and answers until the connection ends; why it did. `followed`: the term of the primary that is followed.
    async fn drive<S: AsyncRead + AsyncWrite>(
        self: &Arc<Self>,
        link: &mut CopyBoth<S>,
        followed: &(dyn Fn() -> u64 + Sync),
    ) -> Error {
        let mut heard = Instant::now();
        let mut look = tokio::time::interval(SILENCE / 8);
        loop {
            let requests = self.core.lock().requests();
            for r in requests {
                link.send_with(|b| r.encode(b));
            }
            tokio::select! {
                a = link.next_as(decode_answer) => match a {
                    Ok(a) => {
                        heard = Instant::now();
                        let came = self.core.lock().answered(&a, followed());
                        if let Some((tell, came)) = came {
                            // A session that has given up drops what came: then it is let go.
                            _ = tell.send(self.answered(came));
                        }
                    }
                    Err(e) => return e,
                },
                () = self.moved.notified() => {}
                _ = look.tick() => match self.core.lock().is_wanted() {
                    true if heard.elapsed() > SILENCE => {
                        let what = format!("the primary has not answered for {SILENCE:?}");
                        return Error::new(SqlState::CONNECTION_FAILURE, what);
                    }
                    true => {}
                    false => heard = Instant::now(),
                },
            }
        }
    }

    /// What waits learns it once nothing is locked.
    fn lost(&self, again: Option<u64>) {
        let waiting = self.core.lock().lost(again);
        drop(waiting);
    }

    fn close(&self) {
        let waiting = self.core.lock().close();
        drop(waiting);
    }

    fn answered(self: &Arc<Self>, came: Came) -> Answered {
        match came {
            Came::Held(held) => Answered::Held(Snapshot {
                holds: self.clone(),
                held,
            }),
            Came::Full => Answered::Full,
            Came::Another => Answered::Another,
        }
    }
}

impl StrongReads {
    /// Has connections made when they are wanted, while this node follows.
    pub(super) async fn run_holds(&self) {
        let holds = &self.holds;
        let followed = || self.followed();
        let looking = async {
            while self.node.role() == Role::Replica {
                tokio::time::sleep(super::strong_reads::LOOK).await;
            }
        };
        let carrying = async {
            let mut failures = 0u32;
            loop {
                while !holds.core.lock().is_wanted() {
                    holds.moved.notified().await;
                }
                let parameters = [
                    ("replication", "canon"),
                    ("application_name", self.name.as_str()),
                ];
                let mut found = self.primary.found();
                let connecting = async {
                    let link = self.primary.connect(&parameters).await?;
                    CopyBoth::begin(link, commands::HOLDS).await
                };
                let again = match connecting.await {
                    Ok(mut link) => {
                        failures = 0;
                        tokio::select! {
                            why = holds.drive(&mut link, &followed) => {
                                debug!("snapshots are kept no more: {}", why.fields().message);
                            }
                            () = found.moved() => {}
                        }
                        None
                    }
                    Err(why) => {
                        failures += 1;
                        if failures == 1 {
                            let what = "the primary keeps no snapshots for transactions here";
                            warn!(primary = %self.primary, "{what}: {}", why.fields().message);
                        }
                        let step = AGAIN * (1 << failures.min(6));
                        Some(self.now() + step.as_nanos() as u64)
                    }
                };
                holds.lost(again);
            }
        };
        tokio::select! {
            () = looking => {}
            () = carrying => {}
        }
        holds.close();
    }

    /// See `Engine::hold`. Until the primary has answered, or this node follows no more. None is kept, either, while it can be asked for
    /// timestamps and cannot be asked for this (it takes no more connections, say): reads are not to wait for that.
    pub(super) async fn keep(self: Arc<StrongReads>) -> Result<KeptThere> {
        loop {
            match self.node.role() {
                Role::Replica => {}
                Role::Primary => return Ok(None),
                Role::Sealed => return Err(gone()),
            }
            match self.holds.ask(self.now()).await {
                Ok(Answered::Held(kept)) => {
                    self.tell(kept.held.term, kept.held.at);
                    return Ok(Some(Box::new(kept)));
                }
                Ok(Answered::Full) => return Ok(None),
                Ok(Answered::Another) => {}
                Err(_) if self.is_connected() => return Ok(None),
                Err(_) => {}
            }
            tokio::time::sleep(AGAIN).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_kept_for_a_session_that_has_given_up() {
        let holds = Arc::new(RemoteSnapshots::new(2));
        let told = holds.ask(0);
        holds.core.lock().requests();
        let values = vec![0, 2, 3, 41, 77, 3];
        let answer = replica::read::Answer { number: 1, values };
        let came = holds.core.lock().answered(&answer, 3);
        let (tell, came) = came.expect("it was asked for");
        drop(told);
        _ = tell.send(holds.answered(came));
        assert_eq!(holds.core.lock().requests(), [Request::LetGo(41)]);
    }
}
