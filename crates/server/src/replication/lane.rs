//! One connection over which a primary's region is read, and the reads that share its fetches.
//!
//! ```text
//! a core's turn   reads that find no timestamp ──▶ leave their arrival ──▶ (the others of the turn, too) ──▶ one fetch for all
//! its next turns  the answer ──▶ landed ──▶ all who wait go on, in the same thread
//! ```
//! Each core of a replica has a lane of its own, whose socket it waits for with its sessions': nothing of a fetch crosses a thread. What
//! is no core (and a core whose connection is not there yet) goes by the last lane, which runs in the runtime and tells where the region
//! is mapped (`strong_reads`). A fetch begins when the turn's tasks have run, not when the first of them asks: a read of the same turn that
//! arrived a little later may use it, too.
//!
//! So it is with what else every read looks at: where the primary's words are mapped, and what is counted. Each of the first eight cores has its
//! own, which no other core's processor takes from it.
//!
//! Left out on purpose: sharing between cores. It would save fetches, and cost a hand-over between threads for each.

use super::shared::Mapped;
use base::Position;
use node::Notice;
use node::reading::{Checking, May, NodeView, Place, Placing};
use parking_lot::{Mutex, RwLock};
use replica::read::{Ask, Check, Fetch, Rejected, Timestamps, Touch};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use tokio::sync::Notify;

/// What was done for strong reads.
#[derive(Debug, Default)]
pub struct FreshStats {
    /// Fetches over the connection, those for slots included.
    pub fetches: AtomicU64,
    /// Looks at mapped words: a fetch for one read each.
    pub looked: AtomicU64,
    /// Timestamps by a read lease: nothing was asked for them.
    pub leased: AtomicU64,
    /// Answers that were rejected.
    pub rejected: AtomicU64,
    /// Reads that took a timestamp that was there, joined a fetch in flight (or the next), or began one.
    pub reused: AtomicU64,
    pub joined: AtomicU64,
    pub began: AtomicU64,
    /// Reads that could go on at once, and why: everything was visible, or nothing had changed globally, in the schema, the tables, the
    /// rows.
    pub at_once: [AtomicU64; 5],
    /// Reads that waited, for what, and how long, in nanoseconds.
    pub waits: [AtomicU64; 5],
    pub waited: AtomicU64,
    /// Nanoseconds that reads waited for timestamps and slots.
    pub fetching: AtomicU64,
}

impl FreshStats {
    /// Adds what others have counted.
    pub fn add(&mut self, other: &FreshStats) {
        let add = |to: &mut AtomicU64, n: &AtomicU64| *to.get_mut() += n.load(Relaxed);
        add(&mut self.fetches, &other.fetches);
        add(&mut self.looked, &other.looked);
        add(&mut self.leased, &other.leased);
        add(&mut self.rejected, &other.rejected);
        add(&mut self.reused, &other.reused);
        add(&mut self.joined, &other.joined);
        add(&mut self.began, &other.began);
        for (to, n) in self.at_once.iter_mut().zip(&other.at_once) {
            add(to, n);
        }
        for (to, n) in self.waits.iter_mut().zip(&other.waits) {
            add(to, n);
        }
        add(&mut self.waited, &other.waited);
        add(&mut self.fetching, &other.fetching);
    }
}

/// See the head of the file.
pub(super) struct Lane {
    timestamps: Mutex<Timestamps>,
    /// The primary's words, where this host has them.
    pub mapped: RwLock<Option<Arc<Mapped>>>,
    pub stats: FreshStats,
    /// A fetch landed, or nothing that was in flight will.
    pub landed: Notice,
    /// There is something to send, perhaps.
    pub due: Notify,
    pub connected: AtomicBool,
    /// Not connected to before; `u64::MAX`: somebody does.
    pub again: AtomicU64,
}

impl Lane {
    pub fn new(cluster: u128) -> Lane {
        Lane {
            timestamps: Mutex::new(Timestamps::new(cluster)),
            mapped: RwLock::default(),
            stats: FreshStats::default(),
            landed: Notice::default(),
            due: Notify::new(),
            connected: AtomicBool::new(false),
            again: AtomicU64::new(0),
        }
    }

    pub fn is_connected(&self) -> bool {
        self.connected.load(Relaxed)
    }

    /// See [`Placing::ask`]; what it wants fetched will be.
    pub fn ask(
        &self,
        placing: &mut Placing,
        node: &NodeView,
        brought: Option<Position>,
        touches: impl FnOnce() -> Vec<Touch>,
    ) -> Place {
        let place = placing.ask(node, brought, &mut self.timestamps.lock(), touches);
        if place == (Place::Fetch { first: true }) {
            self.due.notify_one();
        }
        place
    }

    /// The primary is asked what it has published, for no read.
    pub fn ask_ahead(&self, now: u64) {
        if self.timestamps.lock().ask(now, Vec::new) == Ask::First {
            self.due.notify_one();
        }
    }

    /// See [`Placing::known`].
    pub fn known(&self, placing: &Placing) -> Option<Position> {
        placing.known(&self.timestamps.lock())
    }

    /// See [`Placing::give_up`].
    pub fn give_up(&self, placing: &mut Placing) {
        if placing.is_alone() {
            placing.give_up(&mut self.timestamps.lock());
        }
    }

    /// See [`Checking::step`]; what it wants fetched will be.
    pub fn check(&self, checking: &mut Checking, node: &NodeView, here: Option<Check>) -> May {
        let may = checking.step(node, here, &mut self.timestamps.lock());
        if matches!(may, May::Fetch { .. }) {
            self.due.notify_one();
        }
        may
    }

    /// What is to be sent now.
    pub fn begin(&self, now: u64) -> Vec<Fetch> {
        self.timestamps.lock().begin(now)
    }

    /// An answer came: *published* in it, and when its fetch began. Wakes all who wait, unless it is of no use.
    pub fn land(
        &self,
        number: u64,
        values: &[u64],
        followed: u64,
    ) -> Result<(Position, u64), Rejected> {
        let (took, more) = {
            let mut t = self.timestamps.lock();
            let began = t.began(number).unwrap_or(0);
            let took = t.landed(number, values, followed);
            (took.map(|at| (at, began)), t.is_due())
        };
        if more {
            self.due.notify_one();
        }
        if took.is_ok() {
            self.landed.moved();
        }
        took
    }

    /// The connection ended, or begins: nothing that is in flight lands, and whoever waits asks again.
    pub fn lost(&self) {
        self.timestamps.lock().lost();
        self.landed.moved();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::record::{CommitBuilder, RecordKind};
    use base::region::{Region, row_hash};
    use base::{Consistency, ReadPolicy, ReadWant, RelId};
    use node::Role;
    use replica::read::Level;

    const TABLE: RelId = 20_000;

    fn land(lane: &Lane, r: &Region, f: &Fetch) {
        let mut values = Vec::new();
        r.read(&f.words, &mut values).expect("words that there are");
        lane.land(f.number, &values, 3).expect("taken");
    }

    fn want(policy: ReadPolicy, arrived: u64) -> ReadWant {
        ReadWant {
            consistency: Consistency::Strong,
            policy,
            arrived,
        }
    }

    fn view(visible: u64) -> NodeView {
        NodeView {
            role: Role::Replica,
            leads_after: None,
            visible: Position::from_u64(visible),
        }
    }

    fn row(key: &[u8]) -> Vec<Touch> {
        vec![Touch::Row(TABLE, row_hash(TABLE, key))]
    }

    fn ask(lane: &Lane, arrived: u64, key: &[u8]) -> Place {
        let mut read = Placing::new(want(ReadPolicy::Tracker, arrived));
        lane.ask(&mut read, &view(0), None, || row(key))
    }

    #[test]
    fn a_turn_has_one_fetch_and_it_brings_the_slots() {
        let [first, joined] = [true, false].map(|first| Place::Fetch { first });
        let region = Region::default();
        let at = Position::from_u64(40);
        region.lead(7, 3, Position::from_u64(20), || at);
        let mut other = CommitBuilder::new();
        other.push(RecordKind::Put, TABLE, b"z", b"");
        region.modified(&other.finish(Position::from_u64(35), 0).0);
        let lane = Lane::new(7);
        assert_eq!(ask(&lane, 5, b"a"), first);
        assert_eq!(ask(&lane, 6, b"b"), joined);
        let sent = lane.begin(10);
        assert_eq!(sent.len(), 1);
        // In flight: a read that arrived before it began joins it, a later one waits for the next.
        assert_eq!(ask(&lane, 9, b"a"), joined);
        assert_eq!(ask(&lane, 11, b"c"), first);
        assert!(lane.begin(12).is_empty());
        land(&lane, &region, &sent[0]);
        assert_eq!(ask(&lane, 9, b"a"), Place::At(at));
        // Another row was written after 30: both may be read where 30 is shown, without another fetch.
        for key in [b"a", b"b"] {
            let tracker = want(ReadPolicy::Tracker, 9);
            let mut read = Checking::new(&tracker, at, || row(key));
            let may = lane.check(&mut read, &view(30), None);
            assert_eq!(may, May::Read(Level::Row));
        }
        let sent = lane.begin(20);
        assert_eq!(sent.len(), 1);
        lane.lost();
        assert!(lane.begin(30).is_empty());
        assert_eq!(ask(&lane, 11, b"a"), first);
        assert_eq!(lane.begin(31).len(), 1);
    }

    #[test]
    fn a_read_of_its_own_that_gives_up_is_not_fetched_for() {
        let first = Place::Fetch { first: true };
        let lane = Lane::new(7);
        let mut reads = [0, 1].map(|_| Placing::new(want(ReadPolicy::ReadWait, 5)));
        for r in &mut reads {
            assert_eq!(lane.ask(r, &view(0), None, Vec::new), first);
        }
        let [mut given_up, mut waits] = reads;
        lane.give_up(&mut given_up);
        assert_eq!(lane.begin(10).len(), 1);
        let joined = lane.ask(&mut waits, &view(0), None, Vec::new);
        assert_eq!(joined, Place::Fetch { first: false });
        lane.lost();
        assert_eq!(lane.ask(&mut waits, &view(0), None, Vec::new), first);
    }
}
