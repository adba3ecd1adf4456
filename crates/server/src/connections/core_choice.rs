//! Where a connection belongs: the pure decision to move it to another core, and the counts that it needs.
//!
//! ```text
//! every LOOK reads of a connection:   from which processor do its packets come?   how many busy connections has each core?
//!   wanted = that processor's core, unless it would be SKEW above another: then the one with the fewest
//!   the same core is wanted at PATIENCE looks in a row ──▶ go there
//! ```
//! A client thread that reads many connections is woken once for all answers that one core gives in a turn. Spread over two cores
//! its connections break its turns in pieces (decision 0014), and where they were accepted says little: one thread often opens all
//! and others use them.
//!
//! **Not to and fro.** A client thread that wanders between processors takes its connections with it, which is of no use. So each move
//! doubles the looks that the next one takes, and looks that find nothing to do lower that again, one at a time. A move for balance
//! must lessen the difference by more than the next one could.
//!
//! Busy is who has read within the last period or the one before ([`Busy`]): idle connections of a pool are no load.
//!
//! Left out on purpose: how much work a connection makes.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Reads between two looks.
pub const LOOK: u32 = 64;
/// Looks in a row, at first and at most.
const PATIENCE: (u32, u32) = (4, 1024);
/// Connections that a core may have more than another for the sake of their neighbourhood.
pub const SKEW: usize = 4;

/// What a connection remembers between looks.
#[derive(Debug)]
pub struct CoreChoice {
    wanted: usize,
    streak: u32,
    patience: u32,
}

impl Default for CoreChoice {
    fn default() -> CoreChoice {
        CoreChoice {
            wanted: usize::MAX,
            streak: 0,
            patience: PATIENCE.0,
        }
    }
}

impl CoreChoice {
    /// One look of a connection at core `own`, whose packets come from processor `from`, while each core has so many busy connections,
    /// itself among them. The core to go to.
    pub fn look(&mut self, own: usize, from: Option<usize>, busy: &[usize]) -> Option<usize> {
        let wanted = wanted(own, from, busy);
        if wanted == own {
            self.streak = 0;
            self.patience = (self.patience - 1).max(PATIENCE.0);
            return None;
        }
        self.streak = if wanted == self.wanted {
            self.streak + 1
        } else {
            1
        };
        self.wanted = wanted;
        if self.streak < self.patience {
            return None;
        }
        self.streak = 0;
        self.patience = (self.patience * 2).min(PATIENCE.1);
        Some(wanted)
    }
}

fn wanted(own: usize, from: Option<usize>, busy: &[usize]) -> usize {
    let home = from.map_or(own, |cpu| cpu % busy.len());
    // As it would be when it is there, so that a move never gives a reason to go back.
    let moved = |(core, n): (usize, &usize)| {
        let (comes, goes) = (core == home && home != own, core == own && home != own);
        (n + usize::from(comes)).saturating_sub(usize::from(goes))
    };
    let few = (busy.iter().enumerate().map(moved))
        .min()
        .expect("one core at least");
    if moved((home, &busy[home])) <= few + SKEW {
        return home;
    }
    let (least, few) = (busy.iter().enumerate())
        .min_by_key(|(_, n)| **n)
        .expect("one core at least");
    if busy[own] > few + SKEW { least } else { own }
}

/// How many connections of a core were busy, by periods that a clock begins.
#[derive(Default)]
pub struct Busy {
    now: AtomicUsize,
    before: AtomicUsize,
}

impl Busy {
    /// A connection has read for the first time in this period.
    pub fn one(&self) {
        self.now.fetch_add(1, Ordering::Relaxed);
    }

    /// One that is counted goes to `other`.
    pub fn moves(&self, other: &Busy) {
        let less = |n: &AtomicUsize| {
            _ = n.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        };
        less(&self.now);
        less(&self.before);
        other.now.fetch_add(1, Ordering::Relaxed);
        other.before.fetch_add(1, Ordering::Relaxed);
    }

    /// The next period begins.
    pub fn turn(&self) {
        let n = self.now.swap(0, Ordering::Relaxed);
        self.before.store(n, Ordering::Relaxed);
    }

    pub fn count(&self) -> usize {
        let (now, before) = (&self.now, &self.before);
        now.load(Ordering::Relaxed)
            .max(before.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks until a move, at most `n` times.
    fn until(p: &mut CoreChoice, own: usize, from: usize, busy: &[usize], n: u32) -> Option<u32> {
        (1..=n).find(|_| p.look(own, Some(from), busy).is_some())
    }

    #[test]
    fn a_connection_goes_where_its_packets_come_from_after_a_while() {
        let mut p = CoreChoice::default();
        assert_eq!(until(&mut p, 0, 1, &[4, 4], 100), Some(PATIENCE.0));
        // There it stays.
        assert_eq!(until(&mut p, 1, 1, &[3, 5], 100), None);
        // Unix sockets know no processor.
        assert!((0..100).all(|_| p.look(0, None, &[4, 4]).is_none()));
    }

    #[test]
    fn looks_that_disagree_move_nobody() {
        let mut p = CoreChoice::default();
        for i in 0..1000 {
            assert_eq!(p.look(0, Some(usize::from(i % 4 != 0)), &[4, 4]), None);
        }
    }

    #[test]
    fn who_wanders_moves_ever_more_seldom() {
        let (mut p, mut own, mut moves) = (CoreChoice::default(), 0, 0);
        for _ in 0..10_000 {
            if let Some(to) = p.look(own, Some(1 - own), &[4, 4]) {
                (own, moves) = (to, moves + 1);
            }
        }
        assert!((5..20).contains(&moves), "{moves}");
        // What was quiet for long is quick again.
        assert_eq!(until(&mut p, own, own, &[4, 4], 2000), None);
        assert_eq!(until(&mut p, own, 1 - own, &[4, 4], 10), Some(PATIENCE.0));
    }

    #[test]
    fn neighbours_that_are_too_many_are_spread() {
        // All from one processor, wherever they begin: they end within the skew and stop.
        for (n, away) in [(3, 0), (4, 0), (5, 1), (6, 1), (7, 2), (8, 2), (9, 3)] {
            for begin in 0..=n {
                let mut at: Vec<usize> = (0..n).map(|i| usize::from(i >= begin)).collect();
                let mut all: Vec<CoreChoice> = (0..n).map(|_| CoreChoice::default()).collect();
                let mut last = 0;
                for round in 0..5000 {
                    for i in 0..n {
                        let ones = at.iter().sum::<usize>();
                        if let Some(to) = all[i].look(at[i], Some(0), &[n - ones, ones]) {
                            (at[i], last) = (to, round);
                        }
                    }
                }
                let ones = at.iter().sum::<usize>();
                assert!(last < 100, "{n}, {begin}: still moved at {last}");
                assert_eq!(ones, away, "{n}, {begin}");
            }
        }
    }

    #[test]
    fn idle_connections_are_no_load() {
        let (a, b) = (Busy::default(), Busy::default());
        a.one();
        a.one();
        a.turn();
        assert_eq!(a.count(), 2, "until the next period has shown otherwise");
        a.moves(&b);
        assert_eq!((a.count(), b.count()), (1, 1));
        a.turn();
        b.turn();
        a.turn();
        assert_eq!((a.count(), b.count()), (0, 1));
    }
}
