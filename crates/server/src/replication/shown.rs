//! As of when what a replica shows is the newest there was (`replica::read::AsOf`), for reads that may be so old and on whatever core they are.
//!
//! Every fetch that lands and every look at mapped words tells, at most one in a millisecond: who only tells or asks finds out by a load or two
//! that there is nothing to do. A task asks the primary now and then by itself (`fresh`), so that such reads find an answer while
//! nobody reads strongly, and for as long as they may when the primary is away.
//!
//! Left out on purpose: how old that is now. Who asks knows what is too old.

use base::Position;
use parking_lot::Mutex;
use replica::read::AsOf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Nanoseconds from one that is taken to the next.
const STEP: u64 = 1_000_000;
/// For so long after a read that may be old another one is expected.
const LATELY: u64 = 10_000_000_000;

/// What a read that may be old gets here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// What is shown is new enough.
    Shown,
    /// This would be, and is not shown.
    At(Position),
    /// The primary has to be asked.
    Nothing,
}

/// See the head of the file. Times are nanoseconds of the clock that fetches are stamped with.
#[derive(Default)]
pub(super) struct Shown {
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

    /// Whether somebody asked lately.
    pub fn is_wanted(&self, now: u64) -> bool {
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
        s.find(5 * S, 4 * S, || p(1));
        assert!(s.is_wanted(6 * S));
        assert!(!s.is_wanted(5 * S + LATELY));
    }
}
