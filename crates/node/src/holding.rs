//! Snapshots that the primary keeps for transactions which read at a replica and may yet move there (`txn::hold`): what both ends of a connection do.
//!
//! ```text
//! session ──▶ SnapshotRequests::ask ──▶ keep n ──▶ Kept::handle ──▶ TxnManager::hold
//!                   ◀── SnapshotRequests::answered ◀── answer n: cluster, term, number, position, term
//! session ends ──▶ SnapshotRequests::let_go ──▶ let go of number ──▶ Kept::handle ──▶ TxnManager::let_go
//! ```
//! The position is a timestamp, as fresh as a fetch that began when the transaction did. The term is read before and after, as with words of the
//! region: the position counts as published by the primary of this term. A node that may lead no more says no term.
//!
//! One connection serves all sessions of a node. What it keeps ends with it, at both ends: a transaction that loses its snapshot so
//! goes on as if none had been kept. Connections are counted, so that a number of an earlier one is let go of by nothing.
//!
//! | message | bytes, little-endian |
//! |---|---|
//! | request | kind u8 (1 keep, 2 let go), number u64 |
//! | answer | as of the region (`replica::read::Answer`): the request's number, five values (the cluster is two) |
//!
//! Left out on purpose: sockets, and waiting. Shared memory, too: one snapshot is asked for per transaction at REPEATABLE READ that is not declared
//! READ ONLY, which is not the level that sessions begin with; and the primary has to write what it keeps.

use base::Position;
use env::fault::planted;
use replica::read::Answer;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::node::Node;

/// Most that are kept for one node. The next request is answered with number 0.
const MOST: usize = 1 << 16;

const KEEP: u8 = 1;
const LET_GO: u8 = 2;

/// What a replica asks of its primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Keep a snapshot; the answer has this number.
    Keep(u64),
    /// What was answered with this number is not needed any more.
    LetGo(u64),
}

impl Request {
    pub fn encode(self, out: &mut Vec<u8>) {
        let (kind, number) = match self {
            Request::Keep(n) => (KEEP, n),
            Request::LetGo(n) => (LET_GO, n),
        };
        out.push(kind);
        out.extend_from_slice(&number.to_le_bytes());
    }

    pub fn decode(bytes: &[u8]) -> Result<Request, &'static str> {
        let (kind, number) = bytes.split_first().ok_or("an empty request")?;
        let number = number.try_into().map_err(|_| "a request without number")?;
        let number = u64::from_le_bytes(number);
        match *kind {
            KEEP => Ok(Request::Keep(number)),
            LET_GO => Ok(Request::LetGo(number)),
            _ => Err("a request of no known kind"),
        }
    }
}

/// What a primary keeps for one connection of a replica; let go with it.
pub struct Kept {
    node: Arc<Node>,
    mine: HashSet<u64>,
}

impl Kept {
    pub fn new(node: Arc<Node>) -> Kept {
        Kept {
            node,
            mine: HashSet::new(),
        }
    }

    /// A request came; its answer. `leads`: whether no other node can be primary yet, if this one is.
    pub fn handle(&mut self, request: Request, leads: impl FnOnce() -> bool) -> Option<Answer> {
        let manager = self.node.manager();
        let number = match request {
            Request::Keep(number) => number,
            Request::LetGo(number) => {
                if self.mine.remove(&number) {
                    manager.let_go(number);
                }
                return None;
            }
        };
        let region = self.node.region();
        let term = region.term();
        let (kept, at) = match self.mine.len() < MOST {
            true => manager.hold(),
            false => (0, Position::ZERO),
        };
        if kept != 0 {
            self.mine.insert(kept);
        }
        if planted("holding.answered_is_done") {
            manager.let_go(kept);
        }
        let cluster = self.node.cluster();
        let (high, low) = ((cluster >> 64) as u64, cluster as u64);
        let after = match leads() {
            true => region.term(),
            false => 0,
        };
        let values = vec![high, low, term, kept, at.as_u64(), after];
        Some(Answer { number, values })
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let manager = self.node.manager();
        self.mine.iter().for_each(|n| manager.let_go(*n));
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

/// A snapshot that the primary keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldSnapshot {
    /// The replica's connection that it belongs to.
    pub connection: u64,
    pub number: u64,
    pub at: Position,
    /// The term whose primary has published up to there.
    pub term: u64,
}

/// What came of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Came {
    Held(HeldSnapshot),
    /// The primary keeps too many already.
    Full,
    /// What answered is not the primary that is followed: to be asked again.
    Another,
}

/// The replica's end. `T`: who waits for an answer.
pub struct SnapshotRequests<T> {
    cluster: u128,
    last: u64,
    /// Counts connections.
    connection: u64,
    out: Vec<Request>,
    waiting: HashMap<u64, T>,
    /// No connection could be made, so none is tried before: nanoseconds of the caller's clock.
    again: Option<u64>,
    /// Nothing will be sent any more.
    closed: bool,
}

impl<T> SnapshotRequests<T> {
    pub fn new(cluster: u128) -> SnapshotRequests<T> {
        SnapshotRequests {
            cluster,
            last: 0,
            connection: 0,
            out: Vec::new(),
            waiting: HashMap::new(),
            again: None,
            closed: false,
        }
    }

    /// Asks for a snapshot. Given back: no connection is to be had now.
    pub fn ask(&mut self, who: T, now: u64) -> Option<T> {
        if self.closed || self.again.is_some_and(|at| now < at) {
            return Some(who);
        }
        self.last += 1;
        self.out.push(Request::Keep(self.last));
        self.waiting.insert(self.last, who);
        None
    }

    /// What is to be sent.
    pub fn requests(&mut self) -> Vec<Request> {
        std::mem::take(&mut self.out)
    }

    /// Whether an answer is waited for.
    pub fn is_wanted(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// An answer came on the present connection, while the primary of term `followed` is followed (0: none is). What came, and for whom.
    pub fn answered(&mut self, a: &Answer, followed: u64) -> Option<(T, Came)> {
        let told = read_answer(&a.values)?;
        let who = self.waiting.remove(&a.number)?;
        let ours = told.cluster == self.cluster;
        if ours && told.number == 0 {
            return Some((who, Came::Full));
        }
        if let Some(term) = told.term.filter(|t| ours && *t == followed) {
            let held = HeldSnapshot {
                connection: self.connection,
                number: told.number,
                at: told.at,
                term,
            };
            return Some((who, Came::Held(held)));
        }
        self.out.push(Request::LetGo(told.number));
        Some((who, Came::Another))
    }

    /// It is not needed any more. Whether there is something to be sent.
    pub fn let_go(&mut self, held: HeldSnapshot) -> bool {
        let mine = held.connection == self.connection || planted("holding.any_connection");
        let sends = mine && !self.closed;
        if sends {
            self.out.push(Request::LetGo(held.number));
        }
        sends
    }

    /// The connection ended, or none was had and none is tried before this. What waits learns it.
    pub fn lost(&mut self, again: Option<u64>) -> Vec<T> {
        self.connection += 1;
        self.again = again;
        self.out.clear();
        self.waiting.drain().map(|w| w.1).collect()
    }

    /// This node follows no more.
    pub fn close(&mut self) -> Vec<T> {
        self.closed = true;
        self.lost(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_round_trip_and_rubbish_is_refused() {
        for r in [Request::Keep(1), Request::LetGo(u64::MAX)] {
            let mut b = vec![];
            r.encode(&mut b);
            assert_eq!(Request::decode(&b), Ok(r));
            assert!(Request::decode(&b[..8]).is_err());
        }
        for bad in [&[][..], &[3, 0, 0, 0, 0, 0, 0, 0, 0], &[1, 0]] {
            assert!(Request::decode(bad).is_err());
        }
    }

    fn answer(number: u64, cluster: u64, terms: [u64; 2], kept: u64) -> Answer {
        let [term, after] = terms;
        let values = vec![0, cluster, term, kept, 77, after];
        Answer { number, values }
    }

    #[test]
    fn an_answer_counts_if_its_node_was_the_primary_all_the_while() {
        let mut holds = SnapshotRequests::new(2);
        for (cluster, terms) in [
            (2, [0, 0]),
            (2, [3, 4]),
            (2, [3, 0]),
            (2, [4, 4]),
            (1, [3, 3]),
        ] {
            assert_eq!(holds.ask("a", 0), None);
            let asked = holds.last;
            let came = holds.answered(&answer(asked, cluster, terms, 9), 3);
            assert_eq!(came, Some(("a", Came::Another)));
            let sent = holds.requests();
            assert_eq!(sent, [Request::Keep(asked), Request::LetGo(9)]);
        }
        holds.ask("b", 0);
        let (_, came) = holds
            .answered(&answer(holds.last, 2, [3, 3], 9), 3)
            .expect("b waits");
        let Came::Held(held) = came else {
            panic!("{came:?}");
        };
        assert_eq!((held.number, held.at.as_u64(), held.term), (9, 77, 3));
        holds.ask("c", 0);
        let full = holds.answered(&answer(holds.last, 2, [3, 3], 0), 3);
        assert_eq!(full, Some(("c", Came::Full)));
        let again = holds.answered(&answer(holds.last, 2, [3, 3], 8), 3);
        assert_eq!(again, None, "nothing waits for it");
    }

    #[test]
    fn nothing_of_a_connection_that_is_gone_is_let_go() {
        let mut holds = SnapshotRequests::new(2);
        holds.ask('a', 5);
        let (_, came) = holds
            .answered(&answer(1, 2, [3, 3], 41), 3)
            .expect("a waits");
        let Came::Held(held) = came else {
            panic!("{came:?}");
        };
        holds.ask('b', 5);
        holds.requests();
        assert_eq!(holds.lost(Some(9)), ['b']);
        assert!(!holds.let_go(held) && holds.requests().is_empty());
        // No connection is to be had for a while.
        assert_eq!(holds.ask('c', 8), Some('c'));
        assert_eq!(holds.ask('c', 9), None);
        assert!(holds.is_wanted());
        assert_eq!(holds.close(), ['c']);
        assert_eq!(holds.ask('d', 10), Some('d'));
    }
}
