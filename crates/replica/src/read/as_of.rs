//! As of when what a replica shows is the newest there was: exact, whatever the ways of messages take.
//!
//! ```text
//! local time ──────▶  b: a fetch began      landed: published = p
//!                     └ whatever was acknowledged before b is at or below p (docs/design/fresh-reads.md, 1)
//! so whoever shows everything up to p is at least as new as b, however long the answer took, and the log to bring p
//! ```
//! Pairs (p, b) are kept until p is shown. One that is as new and asks for less makes those before it superfluous; so does the answer of a
//! primary that came back without what it had published: what it has is everything that it will not lose. Nothing of an older term is
//! waited for. What was shown stays as new as it was, also while nobody answers.
//!
//! Left out on purpose: which clock the times are of; it does not go back.

use base::Position;
use std::collections::VecDeque;

/// Pairs remembered. Beyond, every second one is forgotten, and new ones are kept at such distances, until all are shown. That can only make
/// what is shown look older.
const MOST: usize = 1024;

/// See the head of the file.
#[derive(Debug, Default)]
pub struct AsOf {
    term: u64,
    /// Not known to be shown; both parts grow.
    waiting: VecDeque<(Position, u64)>,
    gap: u64,
    reached: Option<u64>,
}

impl AsOf {
    /// A fetch that began at this time brought that everything up to `upto` is published by the primary of this term.
    pub fn told(&mut self, term: u64, upto: Position, began: u64) {
        if term < self.term {
            return;
        }
        if term > self.term {
            self.term = term;
            self.waiting.clear();
        }
        let newest = self.waiting.back().map(|w| w.1).or(self.reached);
        if newest.is_some_and(|n| began <= n) {
            return;
        }
        let before = self.waiting.len();
        while self.waiting.back().is_some_and(|w| w.0 >= upto) {
            self.waiting.pop_back();
        }
        let more = self.waiting.len() == before;
        match self.waiting.back() {
            None => self.gap = 0,
            Some(w) if more && began - w.1 < self.gap => return,
            Some(_) => {}
        }
        if self.waiting.len() >= MOST {
            let (oldest, last) = (self.waiting[0].1, self.waiting[MOST - 1].1);
            self.gap = 2 * (last - oldest) / MOST as u64;
            let mut n = 0;
            self.waiting.retain(|_| {
                n += 1;
                // The oldest stays.
                n % 2 == 1
            });
        }
        self.waiting.push_back((upto, began));
    }

    /// Everything up to `visible` is shown: as of when that is the newest there was; none: nobody can tell.
    pub fn reached(&mut self, visible: Position) -> Option<u64> {
        while let Some(&(upto, began)) = self.waiting.front()
            && (upto <= visible || env::fault::planted("read.as_of_unshown"))
        {
            self.reached = Some(began);
            self.waiting.pop_front();
        }
        self.reached
    }

    /// The least known that is as new as that, and not shown.
    pub fn least(&self, since: u64) -> Option<Position> {
        let n = self.waiting.partition_point(|w| w.1 < since);
        self.waiting.get(n).map(|w| w.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn p(n: u64) -> Position {
        Position::from_u64(n)
    }

    #[test]
    fn it_counts_when_the_fetch_began() {
        let mut a = AsOf::default();
        assert_eq!((a.reached(p(9)), a.least(0)), (None, None));
        a.told(1, p(10), 100);
        a.told(1, p(20), 200);
        assert_eq!(a.reached(p(9)), None);
        assert_eq!(a.least(50), Some(p(10)));
        assert_eq!(a.least(101), Some(p(20)));
        assert_eq!(a.least(201), None);
        assert_eq!(a.reached(p(15)), Some(100));
        assert_eq!(
            a.least(50),
            Some(p(20)),
            "what is known of what is not shown"
        );
        assert_eq!(a.reached(p(20)), Some(200));
        // Nothing is heard: it stays as new as it was, and no newer.
        assert_eq!(a.reached(p(90)), Some(200));
    }

    #[test]
    fn answers_come_in_any_order() {
        let mut a = AsOf::default();
        a.told(1, p(20), 200);
        a.told(1, p(10), 100);
        assert_eq!(a.reached(p(10)), None, "older, and known less well");
        assert_eq!(a.reached(p(20)), Some(200));
        a.told(1, p(20), 150);
        assert_eq!(a.reached(p(20)), Some(200));
    }

    #[test]
    fn an_idle_primary_makes_one_pair() {
        let mut a = AsOf::default();
        for t in 1..10_000 {
            a.told(1, p(7), t);
            assert_eq!(a.waiting.len(), 1);
        }
        assert_eq!(a.reached(p(7)), Some(9_999));
    }

    /// It had published up to 9 what was never on its disk.
    #[test]
    fn what_was_lost_with_the_primary_is_not_waited_for() {
        let mut a = AsOf::default();
        a.told(1, p(4), 100);
        a.told(1, p(8), 150);
        a.told(1, p(9), 200);
        a.told(1, p(5), 300);
        assert_eq!(a.reached(p(4)), Some(100), "what has come counts as before");
        assert_eq!(a.least(150), Some(p(5)));
        assert_eq!(a.reached(p(5)), Some(300));
    }

    #[test]
    fn the_positions_of_an_older_term_are_not_waited_for() {
        let mut a = AsOf::default();
        a.told(1, p(4), 100);
        assert_eq!(a.reached(p(4)), Some(100));
        a.told(1, p(9), 200);
        a.told(2, p(50), 300);
        a.told(1, p(10), 400);
        assert_eq!(a.reached(p(10)), Some(100));
        assert_eq!(a.least(0), Some(p(50)));
        assert_eq!(a.reached(p(50)), Some(300));
    }

    #[test]
    fn memory_is_bounded_and_it_is_never_newer_than_true() {
        let mut a = AsOf::default();
        for t in 1..=100_000 {
            a.told(1, p(t), t);
            assert!(a.waiting.len() <= MOST);
        }
        let half = a.reached(p(50_000)).expect("something");
        assert!((49_000..=50_000).contains(&half), "{half}");
        let least = a.least(60_000).expect("something").as_u64();
        assert!((60_000..61_000).contains(&least), "{least}");
        a.reached(p(100_000));
        a.told(1, p(100_001), 100_001);
        assert_eq!(a.reached(p(100_001)), Some(100_001));
    }
}
