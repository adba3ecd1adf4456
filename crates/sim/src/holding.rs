//! Transactions at REPEATABLE READ that begin at a replica: the primary keeps their snapshot until they move there or end (`node::holding`).
//!
//! ```text
//! replica   begins ──▶ asks ──▶ stands at the answer's position ──▶ reads when that is visible ──┬──▶ ends: lets go
//! primary                └─ keeps a snapshot there ─────────────────────────────────────────────┴──▶ goes on at that snapshot
//! ```
//! Three things must hold. The position is a timestamp, so it has everything that was acknowledged before the transaction began. While the
//! connection stands, the primary has every row as it was there, however much it reclaims. And what goes on at the primary reads those rows.
//!
//! Left out on purpose: what the session does (`sql`), and connections that lose nothing but their end.

use base::Footprint;
use node::holding::{Came, HeldSnapshot, Kept, Request, SnapshotRequests};
use replica::read::Answer;
use replica::ship::term_at;
use std::collections::BTreeSet;
use store::pin;
use txn::{Isolation, RemoteSnapshot, Txn, TxnOptions};

use crate::follower::Follower;
use crate::forward::{Open, options};
use crate::machine::{Running, table};
use crate::primary::Primary;
use crate::reads::StrongRead;
use crate::schema::{TABLE, key};
use crate::world::{What, World};
use base::Position;

/// Longest that one reads at a replica: microseconds.
const LONGEST: u64 = 200_000;
/// Before a connection is tried again.
const AGAIN: u64 = 10_000;

/// A replica's end.
pub struct HoldEnd {
    core: SnapshotRequests<u64>,
    link: Option<Link>,
}

/// A connection to the primary, in one of its lives.
#[derive(Clone, Copy)]
struct Link {
    number: u64,
    to: usize,
    life: u64,
    /// When the last request arrives there: they keep their order.
    arrives: u64,
}

impl HoldEnd {
    pub fn new(cluster: u128) -> HoldEnd {
        HoldEnd {
            core: SnapshotRequests::new(cluster),
            link: None,
        }
    }
}

/// A transaction that reads at a replica.
pub struct Holding {
    number: u64,
    pub node: usize,
    /// What it has to see.
    acknowledged: BTreeSet<(Position, u64)>,
    /// What is kept for it, and on which connection.
    kept: Option<(HeldSnapshot, u64)>,
    /// That connection has ended: it reads on as if nothing had been kept.
    lost: bool,
    txn: Option<Txn>,
    has_read: bool,
    ends: u64,
}

/// On its way to a primary.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HeldMove {
    number: u64,
    term: u64,
    footprint: Vec<u8>,
}

/// Between a replica and a primary.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OnTheWay {
    /// A primary, in one of its lives, is asked to keep a snapshot: by whom, in which of its lives, on which connection.
    Ask(usize, u64, usize, u64, u64, Vec<u8>),
    /// ... its answer; and the end of that connection at the primary.
    Answer(usize, u64, u64, u64, Vec<u64>),
    Gone(usize, u64, u64),
    /// A transaction whose snapshot is kept arrives there.
    Move(usize, usize, u64, HeldMove),
}

struct Number(HeldSnapshot);

impl RemoteSnapshot for Number {
    fn number(&self) -> u64 {
        self.0.number
    }

    fn position(&self) -> Position {
        self.0.at
    }
}

fn repeatable() -> TxnOptions {
    TxnOptions {
        isolation: Isolation::RepeatableRead,
        ..options()
    }
}

impl World {
    /// It arrives; at which node.
    pub fn holds_hear(&mut self, message: OnTheWay) -> usize {
        match message {
            OnTheWay::Ask(to, to_life, i, life, link, bytes) => {
                if self.is_alive(to, to_life) {
                    self.hold_asked(to, i, life, link, &bytes);
                }
                to
            }
            OnTheWay::Answer(i, life, link, number, values) => {
                if self.is_alive(i, life) {
                    self.hold_answered(i, link, &Answer { number, values });
                }
                i
            }
            OnTheWay::Gone(to, life, link) => {
                if self.is_alive(to, life) {
                    self.hold_gone(to, link);
                }
                to
            }
            OnTheWay::Move(to, i, life, moving) => {
                self.held_moves_in(to, i, life, &moving);
                to
            }
        }
    }

    /// A client begins such a transaction at a replica.
    pub fn begin_holding(&mut self, i: usize) {
        self.holds_begun += 1;
        let (number, now) = (self.holds_begun, self.now);
        self.on_node(i, |w, up| {
            let Running::Follower(f) = up else { return };
            if f.shown().is_none() || f.holds.core.ask(number, now * 1_000).is_some() {
                return;
            }
            w.holding.push(Holding {
                number,
                node: i,
                acknowledged: w.model.all_acknowledged(),
                kept: None,
                lost: false,
                txn: None,
                has_read: false,
                ends: 0,
            });
            w.send_requests(i, f);
        });
    }

    fn send_requests(&mut self, i: usize, f: &mut Follower) {
        for request in f.holds.core.requests() {
            let Some(mut link) = self.hold_link(i, f) else {
                return self.lose_holds(i, f);
            };
            link.arrives = (link.arrives + 1).max(self.now + 100 + self.dice.below(900));
            f.holds.link = Some(link);
            let mut bytes = Vec::new();
            request.encode(&mut bytes);
            let life = self.machines[i].life;
            let ask = What::Hold(OnTheWay::Ask(
                link.to,
                link.life,
                i,
                life,
                link.number,
                bytes,
            ));
            self.later(link.arrives - self.now, ask);
        }
    }

    /// The connection, made if there is none.
    fn hold_link(&mut self, i: usize, f: &Follower) -> Option<Link> {
        let to = f.target;
        let m = &self.machines[to];
        if m.primary().is_none() || !self.net.reaches(i, to) {
            return None;
        }
        match f.holds.link {
            Some(link) => (link.to == to && link.life == m.life).then_some(link),
            None => {
                let life = m.life;
                self.holds_begun += 1;
                Some(Link {
                    number: self.holds_begun,
                    to,
                    life,
                    arrives: 0,
                })
            }
        }
    }

    /// The connection has ended, and the primary learns it.
    fn lose_holds(&mut self, i: usize, f: &mut Follower) {
        let again = (self.now + AGAIN) * 1_000;
        if let Some(link) = f.holds.link.take() {
            let learns = What::Hold(OnTheWay::Gone(link.to, link.life, link.number));
            self.later(link.arrives.saturating_sub(self.now) + 500, learns);
        }
        let waited = f.holds.core.lost(Some(again));
        self.holding
            .retain(|h| h.node != i || !waited.contains(&h.number));
        for h in self.holding.iter_mut().filter(|h| h.node == i) {
            h.lost = true;
        }
    }

    /// Transactions at this node, whose snapshot is lost or is not, end no sooner and no later than this.
    pub fn hold_until(&mut self, i: usize, lost: bool, until: u64) {
        let mine = |h: &&mut Holding| h.node == i && h.lost == lost && h.ends != u64::MAX;
        self.holding
            .iter_mut()
            .filter(mine)
            .for_each(|h| h.ends = until);
    }

    /// How many snapshots are kept for transactions at this node, and how many of its transactions have lost theirs.
    pub fn kept_for(&self, i: usize) -> (usize, usize) {
        let mine = self.holding.iter().filter(|h| h.node == i);
        let (lost, kept): (Vec<_>, Vec<_>) =
            mine.filter(|h| h.kept.is_some()).partition(|h| h.lost);
        (kept.len(), lost.len())
    }

    /// A request arrives at a primary.
    fn hold_asked(&mut self, to: usize, i: usize, life: u64, link: u64, bytes: &[u8]) {
        if !self.net.reaches(i, to) {
            return;
        }
        let answer = self.on_node(to, |_, up| {
            let Running::Primary(p) = up else { return None };
            let node = p.node.clone();
            let kept = p.kept.entry(link).or_insert_with(|| Kept::new(node));
            let request = Request::decode(bytes).expect("just encoded");
            kept.handle(request, || true)
        });
        if let Some(Answer { number, values }) = answer.flatten() {
            let delay = 100 + self.dice.below(900);
            self.later(
                delay,
                What::Hold(OnTheWay::Answer(i, life, link, number, values)),
            );
        }
    }

    /// The primary learns that a connection has ended.
    fn hold_gone(&mut self, to: usize, link: u64) {
        self.on_node(to, |_, up| {
            if let Running::Primary(p) = up {
                p.kept.remove(&link);
            }
        });
    }

    /// An answer arrives at a replica.
    fn hold_answered(&mut self, i: usize, link: u64, a: &Answer) {
        let now = self.now;
        self.on_node(i, |w, up| {
            let Running::Follower(f) = up else { return };
            let current = f.holds.link.is_some_and(|l| l.number == link);
            let node = f.node.clone();
            let Some(following) = node
                .as_ref()
                .and_then(|n| n.following())
                .filter(|_| current)
            else {
                return;
            };
            let came = f.holds.core.answered(a, following.followed());
            if let Some((number, came)) = came {
                let at = w.holding.iter().position(|h| h.number == number);
                let mut h = w.holding.swap_remove(at.expect("it waits"));
                if let Came::Held(held) = came {
                    following.published(held.term, held.at);
                    let mut t = node.expect("it follows").begin(repeatable(), true);
                    if t.stand_held(Box::new(Number(held))) {
                        w.report.held += 1;
                        h.txn = Some(t);
                        h.kept = Some((held, link));
                        h.ends = now + 1 + w.dice.below(LONGEST);
                        w.holding.push(h);
                    } else {
                        f.holds.core.let_go(held);
                    }
                }
            }
            w.send_requests(i, f);
        });
    }

    /// Transactions at a node go on, as far as they can now.
    pub fn holds_go_on(&mut self, i: usize) {
        let mine = |h: &Holding| h.node == i && h.kept.is_some();
        if !self.holding.iter().any(mine) {
            return;
        }
        self.on_node(i, |w, up| match up {
            Running::Follower(f) => {
                let (all, others) = std::mem::take(&mut w.holding).into_iter().partition(mine);
                w.holding = others;
                for h in all {
                    let left = w.hold_goes_on(i, f, h);
                    w.holding.extend(left);
                }
                w.send_requests(i, f);
            }
            // It was promoted meanwhile.
            Running::Primary(_) => w.holding.retain(|h| h.node != i),
        });
    }

    fn hold_goes_on(&mut self, i: usize, f: &mut Follower, mut h: Holding) -> Option<Holding> {
        let (held, _) = h.kept?;
        let node = f.node.clone()?;
        let visible = f.shown()?;
        if !h.has_read && visible >= held.at {
            h.has_read = true;
            if let Some(snapshot) = node.manager().store.snapshots.take_at(held.at) {
                let read = StrongRead::held(i, h.acknowledged.clone());
                self.see(&read, &node, &snapshot);
            }
            let (t, ids) = (h.txn.as_mut()?, 1 + self.dice.below(3));
            t.begin_statement().ok()?;
            for _ in 0..ids {
                let id = self.dice.below(crate::clients::IDS) as i64;
                t.get(&table(&node, TABLE), &key(id), |_| ()).ok()?;
            }
        }
        if self.now < h.ends {
            return Some(h);
        }
        let moves = h.has_read && !h.lost && self.dice.percent(70);
        if let Some(reads) = h.txn.take().filter(|_| moves).and_then(|t| t.reads().ok()?) {
            let held_move = HeldMove {
                number: h.number,
                term: term_at(&node.terms(), Position::MAX),
                footprint: reads.encode_reads(),
            };
            let delay = 100 + self.dice.below(900);
            let life = self.machines[i].life;
            self.later(
                delay,
                What::Hold(OnTheWay::Move(f.target, i, life, held_move)),
            );
            // Kept until it has arrived there.
            h.ends = u64::MAX;
            return Some(h);
        }
        f.holds.core.let_go(held);
        None
    }

    /// It arrives at a primary, and goes on there; then what was kept is let go.
    fn held_moves_in(&mut self, to: usize, i: usize, life: u64, moving: &HeldMove) {
        if self.net.reaches(i, to) {
            self.on_node(to, |w, up| {
                if let Running::Primary(p) = up
                    && !p.is_sealing()
                    && p.open.len() < 6
                {
                    w.goes_on_there(to, p, moving);
                }
            });
        }
        if self.machines[i].life != life {
            return;
        }
        let at = self.holding.iter().position(|h| h.number == moving.number);
        if let Some((held, _)) = at.and_then(|at| self.holding.swap_remove(at).kept) {
            self.on_node(i, |w, up| {
                if let Running::Follower(f) = up {
                    f.holds.core.let_go(held);
                    w.send_requests(i, f);
                }
            });
        }
    }

    fn goes_on_there(&mut self, to: usize, p: &mut Primary, moving: &HeldMove) {
        let footprint = Footprint::decode_reads(&moving.footprint).expect("just encoded");
        let at = footprint.snapshot;
        let next = p.terms.iter().find(|(term, _)| *term > moving.term);
        if moving.term > p.term || next.is_some_and(|(_, start)| at > *start) {
            return;
        }
        let mut t = p.node.begin(repeatable(), false);
        if t.adopt_reads(&footprint).is_err() {
            return;
        }
        // Where nothing is kept any more it stands at what is newest.
        let at = t.snapshot().unwrap_or(at);
        self.report.held_moved += 1;
        self.say(|| format!("node {to}: a transaction goes on at {at}"));
        self.check_rows_there(to, p, at);
        if self.write_some(p, &mut t, 2).is_ok() {
            let read = Vec::new();
            p.open.push(Open {
                txn: t,
                read,
                stock: Vec::new(),
            });
        }
    }

    /// A primary has every row as it was where it keeps snapshots.
    pub fn check_holds(&mut self, i: usize) {
        let Some(p) = self.machines[i].primary() else {
            return;
        };
        let kept = |h: &Holding| {
            let (held, link) = h.kept?;
            let f = self.machines[h.node].follower()?;
            let here = |l: &Link| l.number == link && l.to == i && l.life == self.machines[i].life;
            f.holds.link.as_ref().filter(|l| here(l))?;
            p.kept.contains_key(&link).then_some(held.at)
        };
        let all: BTreeSet<Position> = self.holding.iter().filter_map(kept).collect();
        for at in all {
            self.check_rows_there(i, p, at);
        }
    }

    fn check_rows_there(&self, i: usize, p: &Primary, at: Position) {
        if !self.report.false_premises.is_empty() {
            return;
        }
        let model = self.model.rows(&p.terms, at);
        let guard = pin();
        for id in 0..crate::clients::IDS {
            let key = key(id as i64);
            let record = p.table.storage.primary.get(&key, &guard);
            let known = model.get(&(p.table.storage.id, key.clone()));
            let row = record.and_then(|r| r.row_at(at, &guard).map(<[u8]>::to_vec));
            assert!(
                row.as_ref() == known,
                "node {i} keeps a snapshot at {at} and has {row:?} under {key:?} there, the history has {:?}",
                known
            );
        }
    }
}
