//! Snapshots that the primary keeps for transactions which read here and may yet move there (`txn::hold`): both ends of a connection.
//!
//! ```text
//! session ──▶ Holds::keep ──▶ HOLD n ──▶ TxnManager::hold         answer n: cluster, term, number, position, term
//!                                ◀──     a number, and its position: a timestamp, as fresh as a fetch that began when the read came
//! session drops it    ──▶ LET GO number ──▶ TxnManager::let_go    (or the transaction has come and taken it)
//! ```
//! One connection for all sessions, made when the first one asks. What it keeps ends with it, at both ends: a transaction whose snapshot
//! was lost so goes on as if none had been kept. The term is read before and after, as with words of the region: the position counts
//! as published by the primary of this term.
//!
//! | message | bytes, little-endian |
//! |---|---|
//! | request | kind u8 (1 keep, 2 let go), number u64 |
//! | answer | as of the region (`replica::read::Answer`): the request's number, five values (the cluster is two) |
//!
//! Left out on purpose: doing it in shared memory. It is asked once per transaction at REPEATABLE READ that is not declared READ ONLY, which
//! is not the level that sessions begin with; and the primary has to write what it keeps.

use super::Fresh;
use super::accept::copy_both;
use super::copy_both::{CopyBoth, lost};
use super::fresh::AGAIN;
use crate::gate::wire::{Stream, Wire};
use base::{Error, Position, Result, SqlState};
use futures::channel::oneshot;
use node::{Node, Role};
use parking_lot::Mutex;
use replica::read::{Answer, decode_answer, encode_answer};
use sql::reading::Kept;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::{debug, warn};
use txn::{Hold, TxnManager};

/// The command that turns a connection over.
pub const COMMAND: &str = "HOLD_SNAPSHOTS";

/// A primary that does not answer for so long is taken for gone.
const SILENCE: Duration = Duration::from_secs(2);

/// Answers in bytes that a replica may leave unread before it is asked no more.
const UNREAD: usize = 1 << 20;

/// Most that are kept for one node. Whoever asks then is told number 0.
const MOST: usize = 1 << 16;

const KEEP: u8 = 1;
const LET_GO: u8 = 2;

type Request = (u8, u64);

fn encode_request((kind, number): Request, out: &mut Vec<u8>) {
    out.push(kind);
    out.extend_from_slice(&number.to_le_bytes());
}

fn decode_request(bytes: &[u8]) -> std::result::Result<Request, &'static str> {
    let (kind, number) = bytes.split_first().ok_or("an empty request")?;
    let number = number.try_into().map_err(|_| "a request without number")?;
    match *kind {
        KEEP | LET_GO => Ok((*kind, u64::from_le_bytes(number))),
        _ => Err("a request of no known kind"),
    }
}

/// What the primary says of what it keeps, and of itself.
struct Told {
    cluster: u128,
    /// None: it was not the primary all the while.
    term: Option<u64>,
    number: u64,
    at: Position,
}

fn read_answer(values: &[u64]) -> Option<Told> {
    let &[high, low, term, number, at, after] = values else {
        return None;
    };
    Some(Told {
        cluster: u128::from(high) << 64 | u128::from(low),
        term: (term == after && term != 0).then_some(term),
        number,
        at: Position::from_u64(at),
    })
}

/// What a connection's replica has kept; let go with it.
struct Mine<'a>(&'a TxnManager, HashSet<u64>);

impl Drop for Mine<'_> {
    fn drop(&mut self) {
        self.1.iter().for_each(|n| self.0.let_go(*n));
    }
}

/// The primary's end: serves a replica until it goes.
pub async fn serve<S: Stream>(wire: &mut Wire<S>, node: &Node) -> Result<()> {
    let mut link = copy_both(wire).await?;
    let mut mine = Mine(node.manager(), HashSet::new());
    loop {
        let (kind, number) = link.next_as(decode_request).await?;
        if kind == LET_GO {
            if mine.1.remove(&number) {
                mine.0.let_go(number);
            }
            continue;
        }
        let region = node.region();
        let term = region.term();
        let (kept, at) = match mine.1.len() < MOST {
            true => mine.0.hold(),
            false => (0, Position::ZERO),
        };
        if kept != 0 {
            mine.1.insert(kept);
        }
        let cluster = node.cluster();
        let (high, low) = ((cluster >> 64) as u64, cluster as u64);
        let values = [high, low, term, kept, at.as_u64(), region.term()];
        link.send_with(|out| encode_answer(number, &values, out));
        if link.pending() > UNREAD {
            link.flush().await.map_err(|e| lost(&e))?;
        }
    }
}

#[derive(Default)]
struct Queue {
    last: u64,
    /// Counts connections, so that nobody lets go of another one's.
    connection: u64,
    out: Vec<Request>,
    waiting: HashMap<u64, oneshot::Sender<(Told, Held)>>,
    /// No connection could be made, so none is tried before; whoever asks until then is told at once.
    again: Option<Instant>,
    /// Nobody will send any more.
    closed: bool,
}

/// The replica's end.
#[derive(Default)]
pub struct Holds {
    queue: Mutex<Queue>,
    moved: Notify,
}

/// One that the primary keeps.
struct Held {
    holds: Arc<Holds>,
    connection: u64,
    number: u64,
    at: Position,
}

impl Hold for Held {
    fn number(&self) -> u64 {
        self.number
    }

    fn position(&self) -> Position {
        self.at
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.holds.let_go(self.connection, self.number);
    }
}

impl Holds {
    /// Asks for one. The answer is lost with the connection, and if there is none.
    fn ask(&self) -> oneshot::Receiver<(Told, Held)> {
        let (tell, told) = oneshot::channel();
        let mut q = self.queue.lock();
        let refused = q.again.is_some_and(|at| Instant::now() < at);
        if !q.closed && !refused {
            q.last += 1;
            let number = q.last;
            q.out.push((KEEP, number));
            q.waiting.insert(number, tell);
            drop(q);
            self.moved.notify_one();
        }
        told
    }

    fn let_go(&self, connection: u64, number: u64) {
        let mut q = self.queue.lock();
        if q.connection == connection && !q.closed && number != 0 {
            q.out.push((LET_GO, number));
            drop(q);
            self.moved.notify_one();
        }
    }

    fn answered(self: &Arc<Self>, a: &Answer) {
        let Some(told) = read_answer(&a.values) else {
            return;
        };
        let (waiting, connection) = {
            let mut q = self.queue.lock();
            (q.waiting.remove(&a.number), q.connection)
        };
        let held = Held {
            holds: self.clone(),
            connection,
            number: told.number,
            at: told.at,
        };
        if let Some(tell) = waiting {
            // Who asked may have given up: then it is let go.
            _ = tell.send((told, held));
        }
    }

    /// A connection ended, or none was had and none is tried before this: whoever waits learns it.
    fn lost(&self, again: Option<Instant>) {
        let mut q = self.queue.lock();
        q.connection += 1;
        q.again = again;
        q.out.clear();
        let waiting = std::mem::take(&mut q.waiting);
        drop(q);
        drop(waiting);
    }

    fn close(&self) {
        self.queue.lock().closed = true;
        self.lost(None);
    }

    fn is_wanted(&self) -> bool {
        !self.queue.lock().waiting.is_empty()
    }

    /// Carries requests and answers until the connection ends; why it did.
    async fn drive<S: AsyncRead + AsyncWrite>(self: &Arc<Self>, link: &mut CopyBoth<S>) -> Error {
        let mut heard = Instant::now();
        let mut look = tokio::time::interval(SILENCE / 8);
        loop {
            let out = std::mem::take(&mut self.queue.lock().out);
            for r in out {
                link.send_with(|b| encode_request(r, b));
            }
            tokio::select! {
                a = link.next_as(decode_answer) => match a {
                    Ok(a) => {
                        heard = Instant::now();
                        self.answered(&a);
                    }
                    Err(e) => return e,
                },
                () = self.moved.notified() => {}
                _ = look.tick() => match self.is_wanted() {
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
}

impl Fresh {
    /// Has connections made when they are wanted, while this node follows.
    pub(super) async fn run_holds(&self) {
        let holds = &self.holds;
        let looking = async {
            while self.node.role() == Role::Replica {
                tokio::time::sleep(super::fresh::LOOK).await;
            }
        };
        let carrying = async {
            let mut failures = 0u32;
            loop {
                while !holds.is_wanted() {
                    holds.moved.notified().await;
                }
                let parameters = [
                    ("replication", "canon"),
                    ("application_name", self.name.as_str()),
                ];
                let mut found = self.primary.found();
                let connecting = async {
                    let link = self.primary.connect(&parameters).await?;
                    CopyBoth::begin(link, COMMAND).await
                };
                let again = match connecting.await {
                    Ok(mut link) => {
                        failures = 0;
                        tokio::select! {
                            why = holds.drive(&mut link) => {
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
                        Some(Instant::now() + step)
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
    pub(super) async fn keep(self: Arc<Fresh>) -> Result<Kept> {
        loop {
            if let Some(end) = self.follows() {
                return end.map(|_| None);
            }
            match self.holds.ask().await {
                Ok((told, held)) if told.cluster == self.node.cluster() => {
                    if told.number == 0 {
                        return Ok(None);
                    }
                    if let Some(term) = told.term.filter(|t| *t == self.followed()) {
                        self.tell(term, told.at);
                        return Ok(Some(Box::new(held)));
                    }
                }
                Err(_) if self.is_connected() => return Ok(None),
                _ => {}
            }
            tokio::time::sleep(AGAIN).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_round_trip_and_rubbish_is_refused() {
        for r in [(KEEP, 1), (LET_GO, u64::MAX)] {
            let mut b = vec![];
            encode_request(r, &mut b);
            assert_eq!(decode_request(&b), Ok(r));
            assert!(decode_request(&b[..8]).is_err());
        }
        for bad in [&[][..], &[3, 0, 0, 0, 0, 0, 0, 0, 0], &[1, 0]] {
            assert!(decode_request(bad).is_err());
        }
    }

    #[test]
    fn an_answer_counts_if_its_node_was_the_primary_all_the_while() {
        let of = |term, after| read_answer(&[1, 2, term, 9, 77, after]).expect("six");
        let told = of(3, 3);
        assert_eq!(told.cluster, (1 << 64) | 2);
        let found = (told.term, told.number, told.at.as_u64());
        assert_eq!(found, (Some(3), 9, 77));
        for (before, after) in [(0, 0), (3, 4), (3, 0), (0, 3)] {
            assert_eq!(of(before, after).term, None);
        }
        assert!(read_answer(&[1, 2, 3]).is_none());
    }

    #[test]
    fn who_has_given_up_has_nothing_kept() {
        let holds = Arc::new(Holds::default());
        let (early, mut late) = (holds.ask(), holds.ask());
        let sent = || std::mem::take(&mut holds.queue.lock().out);
        assert_eq!(sent(), [(KEEP, 1), (KEEP, 2)]);
        drop(early);
        for number in [1, 2] {
            let values = vec![1, 2, 3, 40 + number, 77, 3];
            holds.answered(&Answer { number, values });
        }
        assert_eq!(sent(), [(LET_GO, 41)], "before it was answered");
        let (_, held) = late.try_recv().unwrap().expect("it was answered");
        drop(late);
        assert_eq!((held.number(), sent().len()), (42, 0));
        drop(held);
        assert_eq!(sent(), [(LET_GO, 42)]);
        // Of a connection that is gone nothing is to be let go.
        holds.lost(None);
        holds.let_go(0, 41);
        assert!(sent().is_empty());
        let mut asked = holds.ask();
        assert!(asked.try_recv().unwrap().is_none() && sent().len() == 1);
        // No connection is to be had: for a while whoever asks is told so at once.
        holds.lost(Some(Instant::now() + SILENCE));
        assert!(asked.try_recv().is_err());
        assert!(holds.ask().try_recv().is_err() && sent().is_empty());
        holds.lost(None);
        assert!(holds.ask().try_recv().unwrap().is_none());
        holds.close();
        assert!(holds.ask().try_recv().is_err());
    }
}
