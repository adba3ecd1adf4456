//! As of when what a replica shows is the newest there was ([`AsOf`]), for the reads of all threads that may be so old.
//!
//! Every fetch that lands and every look at mapped words tells, and one in a millisecond is taken: a load or two show that there is
//! nothing to do. The primary is asked now and then without a read ([`Shown::is_due`]), so that reads which may be old find an
//! answer also when no strong read has asked.
//!
//! Left out on purpose: how old that is now. Each read knows what is too old for it.

use base::Position;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::as_of::AsOf;

/// Nanoseconds from one that is taken to the next.
const STEP: u64 = 1_000_000;
/// For so long after a read that may be old another one is expected.
const LATELY: u64 = 10_000_000_000;
/// While no such reads come, the primary is asked at one of so many looks.
const IDLE: u32 = 10;

/// What a read that may be old gets here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// What is shown is new enough.
    Shown,
    /// This would be, and is not shown.
    At(Position),
    /// The primary has to be asked.
    Nothing,
}

/// See the head of the file. Times are nanoseconds of the clock that fetches are stamped with.
#[derive(Debug, Default)]
pub struct Shown {
    /// 0: nothing is known.
    newest: AtomicU64,
    /// Nothing that began before is taken.
    next: AtomicU64,
    /// The last read that asked, about.
    asked: AtomicU64,
    pairs: Mutex<AsOf>,
}

impl Shown {
    /// See [`AsOf::told`].
    pub fn told(&self, term: u64, upto: Position, began: u64, visible: Position) {
        if began < self.next.load(Relaxed) {
            return;
        }
        self.next.fetch_max(began + STEP, Relaxed);
        let mut pairs = self.pairs.lock();
        pairs.told(term, upto, began);
        let reached = pairs.reached(visible).unwrap_or(0);
        self.newest.fetch_max(reached, Relaxed);
    }

    /// For a read that arrived at `arrived` and is to see everything acknowledged before `since`.
    pub fn find(&self, arrived: u64, since: u64, visible: impl FnOnce() -> Position) -> Found {
        if self.asked.load(Relaxed) + STEP < arrived {
            self.asked.fetch_max(arrived, Relaxed);
        }
        let enough = |newest: u64| newest != 0 && newest >= since;
        if enough(self.newest.load(Relaxed)) {
            return Found::Shown;
        }
        let mut pairs = self.pairs.lock();
        let newest = pairs.reached(visible()).unwrap_or(0);
        self.newest.fetch_max(newest, Relaxed);
        match pairs.least(since) {
            _ if enough(newest) => Found::Shown,
            Some(at) => Found::At(at),
            None => Found::Nothing,
        }
    }

    /// Whether the primary is to be asked, at the look of this number.
    pub fn is_due(&self, now: u64, look: u32) -> bool {
        self.is_wanted(now) || look % IDLE == 1
    }

    /// Whether such a read came lately.
    fn is_wanted(&self, now: u64) -> bool {
        let asked = self.asked.load(Relaxed);
        asked != 0 && now < asked + LATELY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn p(n: u64) -> Position {
        Position::from_u64(n)
    }

    const S: u64 = 1_000_000_000;

    #[test]
    fn what_is_shown_is_as_old_as_the_fetch_that_named_it() {
        let s = Shown::default();
        // However old it may be: nobody knows.
        assert_eq!(s.find(S, 0, || p(9)), Found::Nothing);
        s.told(1, p(10), 2 * S, p(9));
        assert_eq!(s.find(3 * S, 0, || p(9)), Found::At(p(10)));
        assert_eq!(s.find(3 * S, 2 * S, || p(10)), Found::Shown);
        assert_eq!(s.find(3 * S, 2 * S + 1, || p(10)), Found::Nothing);
        // One that is told right after is not taken, a later one is.
        s.told(1, p(10), 2 * S + STEP - 1, p(10));
        assert_eq!(s.find(3 * S, 2 * S + 1, || p(10)), Found::Nothing);
        s.told(1, p(10), 2 * S + STEP, p(10));
        assert_eq!(s.find(3 * S, 2 * S + 1, || p(10)), Found::Shown);
    }

    #[test]
    fn it_is_asked_for_while_somebody_reads() {
        let s = Shown::default();
        assert!(!s.is_wanted(1));
        assert!(s.is_due(1, 1) && !s.is_due(1, 2));
        s.find(5 * S, 4 * S, || p(1));
        assert!(s.is_wanted(6 * S));
        assert!(!s.is_wanted(5 * S + LATELY));
    }
}
