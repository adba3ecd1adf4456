//! One connection over which a primary's region is read, and the reads that share its fetches.
//!
//! ```text
//! a core's turn   reads that find no timestamp ──▶ leave their arrival ──▶ (the others of the turn, too) ──▶ one fetch for all
//! its next turns  the answer ──▶ landed ──▶ all who wait go on, in the same thread
//! ```
//! Each core of a replica has a lane of its own, whose socket it waits for with its sessions': nothing of a fetch crosses a thread. What
//! is no core (and a core whose connection is not there yet) goes by the last lane, which runs in the runtime and tells where the region
//! is mapped (`fresh`). A fetch begins when the turn's tasks have run, not when the first of them asks: a read of the same turn that
//! arrived a little later may use it, too.
//!
//! Left out on purpose: sharing between cores. It would save fetches, and cost a hand-over between threads for each.

use base::Position;
use node::Notice;
use parking_lot::Mutex;
use replica::read::{Ask, Check, Fetch, Rejected, Timestamps, Touch};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use tokio::sync::Notify;

/// Shared fetches in flight. With more, a read waits for less than a round trip and a half, but fewer share a fetch, and fetches are what
/// the processors of both nodes pay for.
const FLIGHTS: usize = 1;

struct State {
    timestamps: Timestamps,
    /// The latest arrival of those who found nothing.
    wanted: Option<u64>,
    /// What they will read.
    touches: Vec<Touch>,
    /// To be sent, those that one read or one check asked for.
    fetches: Vec<Fetch>,
}

/// See the head of the file.
pub(super) struct Lane {
    state: Mutex<State>,
    /// A fetch landed, or nothing that was in flight will.
    pub landed: Notice,
    /// There is something to send, perhaps.
    pub due: Notify,
    pub connected: AtomicBool,
    /// Not connected to before; `u64::MAX`: somebody does.
    pub again: AtomicU64,
}

/// How a read comes to its timestamp.
pub(super) enum Found {
    Known(Position),
    /// With a fetch that others began or will begin.
    Joined,
    /// It is the first who asks for the next.
    First,
}

impl Lane {
    pub fn new(cluster: u128) -> Lane {
        Lane {
            state: Mutex::new(State {
                timestamps: Timestamps::new(cluster),
                wanted: None,
                touches: Vec::new(),
                fetches: Vec::new(),
            }),
            landed: Notice::default(),
            due: Notify::new(),
            connected: AtomicBool::new(false),
            again: AtomicU64::new(0),
        }
    }

    pub fn is_connected(&self) -> bool {
        self.connected.load(Relaxed)
    }

    /// A timestamp, or a place among those who wait for one; the slots of `touches` come with it.
    pub fn ask(&self, arrived: u64, touches: impl FnOnce() -> Vec<Touch>) -> Found {
        let mut s = self.state.lock();
        match s.timestamps.find(arrived) {
            Some(Ask::Known(at)) => return Found::Known(at),
            Some(_) => return Found::Joined,
            None => {}
        }
        s.touches.extend(touches());
        let first = s.wanted.is_none();
        s.wanted = s.wanted.max(Some(arrived));
        drop(s);
        if first {
            self.due.notify_one();
            return Found::First;
        }
        Found::Joined
    }

    /// A fetch for one read; its number.
    pub fn fetch_alone(&self, now: u64) -> u64 {
        let mut s = self.state.lock();
        let fetch = s.timestamps.fetch_alone(now);
        let number = fetch.number;
        s.fetches.push(fetch);
        drop(s);
        self.due.notify_one();
        number
    }

    /// See [`Timestamps::take_alone`].
    pub fn take_alone(&self, number: u64) -> Option<Result<Position, ()>> {
        self.state.lock().timestamps.take_alone(number)
    }

    /// See [`Timestamps::check`]; what it wants fetched will be.
    pub fn check(&self, at: Position, visible: Position, touches: &[Touch], now: u64) -> Check {
        let mut s = self.state.lock();
        let mut check = s.timestamps.check(at, visible, touches, now);
        if let Check::Missing(fetch) = &mut check
            && let Some(fetch) = fetch.take()
        {
            s.fetches.push(fetch);
            drop(s);
            self.due.notify_one();
        }
        check
    }

    /// What is to be sent now.
    pub fn begin(&self, now: u64) -> Vec<Fetch> {
        let mut s = self.state.lock();
        let mut all = std::mem::take(&mut s.fetches);
        if s.timestamps.flying() < FLIGHTS
            && let Some(arrived) = s.wanted.take()
        {
            let touches = std::mem::take(&mut s.touches);
            s.timestamps.want(&touches);
            if let Ask::Begin(fetch) = s.timestamps.ask(arrived, now) {
                all.push(fetch);
            }
        }
        all
    }

    /// An answer came. Wakes all who wait, unless it is of no use.
    pub fn land(
        &self,
        number: u64,
        values: &[u64],
        followed: u64,
        now: u64,
    ) -> Result<Position, Rejected> {
        let mut s = self.state.lock();
        let (took, next) = s.timestamps.landed(number, values, followed, now);
        s.fetches.extend(next);
        let more = s.wanted.is_some() || !s.fetches.is_empty();
        drop(s);
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
        let mut s = self.state.lock();
        s.timestamps.lost();
        s.fetches.clear();
        s.touches.clear();
        s.wanted = None;
        drop(s);
        self.landed.moved();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::RelId;
    use base::record::{CommitBuilder, RecordKind};
    use base::region::{Region, row_hash};
    use replica::read::Level;

    const TABLE: RelId = 20_000;

    fn land(lane: &Lane, r: &Region, f: &Fetch) {
        let mut values = Vec::new();
        r.read(&f.words, &mut values).expect("words that there are");
        lane.land(f.number, &values, 3, 1000).expect("taken");
    }

    #[test]
    fn a_turn_has_one_fetch_and_it_brings_the_slots() {
        let region = Region::default();
        let at = Position::from_u64(40);
        region.lead(7, 3, Position::from_u64(20), at);
        let mut other = CommitBuilder::new();
        other.push(RecordKind::Put, TABLE, b"z", b"");
        region.modified(&other.finish(Position::from_u64(35), 0).0);
        let lane = Lane::new(7);
        let row = |key: &[u8]| vec![Touch::Row(TABLE, row_hash(TABLE, key))];
        assert!(matches!(lane.ask(5, || row(b"a")), Found::First));
        assert!(matches!(lane.ask(6, || row(b"b")), Found::Joined));
        let sent = lane.begin(10);
        assert_eq!(sent.len(), 1);
        // In flight: whoever arrived before it began joins it, who came later waits for the next.
        assert!(matches!(lane.ask(9, Vec::new), Found::Joined));
        assert!(matches!(lane.ask(11, || row(b"c")), Found::First));
        assert!(lane.begin(12).is_empty());
        land(&lane, &region, &sent[0]);
        assert!(matches!(lane.ask(9, Vec::new), Found::Known(t) if t == at));
        // Another row was written after 30: both may be read where 30 is shown, without another fetch.
        let visible = Position::from_u64(30);
        for key in [b"a", b"b"] {
            let check = lane.check(at, visible, &row(key), 20);
            assert_eq!(check, Check::Read(Level::Row));
        }
        let sent = lane.begin(20);
        assert_eq!(sent.len(), 1);
        lane.lost();
        assert!(lane.begin(30).is_empty());
        assert!(matches!(lane.ask(11, Vec::new), Found::First));
        assert_eq!(lane.begin(31).len(), 1);
    }
}
