//! Cycles that another order of waiters opens.
//!
//! A wait is *hard* where a holder is in the way, and *soft* where only another waiter is, which came first. As in PostgreSQL, a cycle that has a soft
//! wait is no deadlock if the later one may go first:
//!
//! ```text
//! a1: held by d1   ◀─ e1 waits   ◀─ d2 waits (soft)         d2 ─▶ e1 ─▶ d1 ─▶ e2 ─▶ d2: a cycle
//! a2: held by d2   ◀─ e2 waits   ◀─ d1 waits (soft)         d1 before e2: d1 gets a2 at once
//! ```
//! The search sets a soft wait of the cycle aside, the one farthest from where it began first, and looks again, from each transaction whose
//! place that changes. Orders are tried until there is no cycle; then the queues get that order.
//!
//! Left out on purpose: cycles of courtesies, and those for which the search would look at more than [`LOOKS`] waits and places. They end with 40P01.

use super::{Ids, LockName, LockTable, TxnId, WaitState};
use std::collections::HashMap;
use std::sync::Arc;

/// Waits and places in queues that a search looks at, since all others that want to wait have to wait for it.
const LOOKS: usize = 100_000;

/// Waiters that go first, in one search.
const MOST: usize = 8;

pub(super) type Waiting = HashMap<TxnId, (LockName, Arc<WaitState>)>;

/// `first` goes before `then` in this queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Swap {
    name: LockName,
    first: TxnId,
    then: TxnId,
}

/// A wait: for whom, and how to have it no more if it is soft.
type Wait = (TxnId, Option<Swap>);

struct Search<'a> {
    locks: &'a LockTable,
    waiting: &'a Waiting,
    swaps: Vec<Swap>,
    looks: usize,
}

impl LockTable {
    /// Opens the cycle that this one's wait is part of by another order of waiters. Whose lock that gives; none: there is no such order.
    pub(super) fn open_cycle(
        &self,
        me: TxnId,
        waiting: &Waiting,
    ) -> Option<Vec<(TxnId, Arc<WaitState>)>> {
        let mut search = Search {
            locks: self,
            waiting,
            swaps: vec![],
            looks: LOOKS,
        };
        // What this search does not see it does not open.
        search.cycle(me).filter(|c| !c.is_empty())?;
        if !search.opens(me) {
            return None;
        }
        let mut granted = vec![];
        for swap in search.swaps {
            let mut shard = self.shard(swap.name).lock();
            let Some(q) = shard.get_mut(&swap.name) else {
                continue;
            };
            let place = |who| q.waiters.iter().position(|w| w.0 == who);
            if let (Some(first), Some(then)) = (place(swap.first), place(swap.then))
                && first > then
            {
                let waiter = q.waiters.remove(first).expect("just seen");
                q.waiters.insert(then, waiter);
            }
            q.admit(&mut granted);
        }
        Some(granted)
    }
}

impl Search<'_> {
    /// Whether there is an order without a cycle through `me`. It is that of `swaps` then.
    fn opens(&mut self, me: TxnId) -> bool {
        let moved = self.swaps.iter().flat_map(|s| [s.first, s.then]);
        let starts: Vec<TxnId> = std::iter::once(me).chain(moved).collect();
        for start in starts {
            let Some(soft) = self.cycle(start) else {
                continue;
            };
            if self.swaps.len() == MOST {
                return false;
            }
            for swap in soft {
                let back =
                    |s: &Swap| (s.name, s.first, s.then) == (swap.name, swap.then, swap.first);
                if self.swaps.iter().any(back) {
                    continue;
                }
                self.swaps.push(swap);
                if self.opens(me) {
                    return true;
                }
                self.swaps.pop();
            }
            return false;
        }
        true
    }

    /// The soft waits of a cycle through this one, the last first; none: there is no cycle. Where the search is over too early, a cycle without any.
    fn cycle(&mut self, start: TxnId) -> Option<Vec<Swap>> {
        let mut seen = Ids::default();
        // The way from `start`, each with the waits that are still to be followed.
        let mut way: Vec<(Option<Swap>, Vec<Wait>)> = vec![(None, self.waits(start))];
        while let Some((_, left)) = way.last_mut() {
            let Some((next, soft)) = left.pop() else {
                way.pop();
                continue;
            };
            if self.looks == 0 {
                return Some(vec![]);
            }
            self.looks -= 1;
            if next == start {
                let all = std::iter::once(soft).chain(way.iter().rev().map(|w| w.0));
                return Some(all.flatten().collect());
            }
            if seen.insert(next) {
                let waits = self.waits(next);
                way.push((soft, waits));
            }
        }
        None
    }

    /// Whom this one waits for, under the order that is tried. The last is to be followed first: holders, then who came first.
    fn waits(&mut self, who: TxnId) -> Vec<Wait> {
        let Some(&(name, _)) = self.waiting.get(&who) else {
            return vec![];
        };
        if name.is_courtesy() {
            return vec![];
        }
        let queue = self.locks.standing(name);
        let places = queue.holders.len() + queue.waiters.len();
        self.looks = self.looks.saturating_sub(places);
        let mut order = queue.waiters;
        for s in self.swaps.iter().filter(|s| s.name == name) {
            let place = |who| order.iter().position(|w| w.0 == who);
            if let (Some(first), Some(then)) = (place(s.first), place(s.then))
                && first > then
            {
                order[then..=first].rotate_right(1);
            }
        }
        let Some(at) = order.iter().position(|w| w.0 == who) else {
            return vec![];
        };
        let mode = order[at].1;
        let twins = self.locks.twins.lock();
        let waits = |b: TxnId| twins.get(&b).copied().unwrap_or(b);
        let soft = |then| Swap {
            name,
            first: who,
            then,
        };
        let holders = queue.holders.iter();
        let holders = holders.filter(|h| h.0 != who && h.1.conflicts(mode));
        let before = order[..at].iter();
        let before = before.filter(|w| w.0 != who && w.1.conflicts(mode));
        let held: Vec<TxnId> = holders.map(|h| h.0).collect();
        let mut all: Vec<Wait> = held.iter().map(|h| (waits(*h), None)).collect();
        // A waiter that holds it, too, is in the way wherever it stands.
        let before = before.filter(|w| !held.contains(&w.0));
        all.extend(before.map(|w| (waits(w.0), Some(soft(w.0)))));
        all.reverse();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Attempt, LockMode, LockWait};
    use super::*;
    use crate::table_modes::TableModes;

    const A: LockName = LockName { space: 1, hash: 1 };
    const B: LockName = LockName { space: 1, hash: 2 };
    const READ: LockMode = LockMode::Table(TableModes::ACCESS_SHARE);
    const ALL: LockMode = LockMode::Table(TableModes::ACCESS_EXCLUSIVE);
    const SOME: LockMode = LockMode::Table(TableModes::SHARE_UPDATE_EXCLUSIVE);

    fn wait(t: &LockTable, who: TxnId, name: LockName, mode: LockMode) -> LockWait {
        match t.acquire(who, name, mode, true).0 {
            Attempt::Wait(w) => w,
            _ => panic!("{who} should wait"),
        }
    }

    fn is_given(w: &LockWait) -> bool {
        w.0.0.lock().0
    }

    /// The picture above: 1 and 2 are d1 and d2, 3 and 4 are e1 and e2.
    #[test]
    fn the_other_soft_wait_is_set_aside() {
        let t = LockTable::default();
        t.acquire(1, A, READ, true);
        t.acquire(2, B, READ, true);
        let (e1, e2) = (wait(&t, 3, A, ALL), wait(&t, 4, B, ALL));
        let d1 = wait(&t, 1, B, READ);
        let d2 = wait(&t, 2, A, READ);
        assert!(is_given(&d1) && !is_given(&d2) && !is_given(&e1) && !is_given(&e2));
        t.release(1, A);
        t.release(1, B);
        assert!(is_given(&e1) && !is_given(&d2));
        t.release(3, A);
        assert!(is_given(&d2) && !is_given(&e2));
    }

    #[test]
    fn one_passes_several() {
        let t = LockTable::default();
        t.acquire(1, A, SOME, true);
        t.acquire(2, B, READ, true);
        let two = wait(&t, 2, A, SOME);
        let (three, four) = (wait(&t, 3, B, ALL), wait(&t, 4, B, ALL));
        let one = wait(&t, 1, B, SOME);
        assert!(is_given(&one) && !is_given(&two) && !is_given(&three) && !is_given(&four));
        t.release(1, A);
        t.release(1, B);
        assert!(is_given(&two));
        t.release(2, B);
        assert!(is_given(&three) && !is_given(&four));
    }

    #[test]
    fn a_cycle_of_holders_stays_one() {
        let t = LockTable::default();
        t.acquire(1, A, READ, true);
        t.acquire(2, B, ALL, true);
        wait(&t, 3, A, ALL);
        // 1 waits for 2, which holds B; no order of A's queue lets 2 have ALL of A.
        wait(&t, 1, B, READ);
        assert!(matches!(t.acquire(2, A, ALL, true).0, Attempt::Deadlock));
    }

    /// Readers of a row pass one that waits to change it, if they would wait for each other otherwise.
    #[test]
    fn rows_are_no_different() {
        let t = LockTable::default();
        t.acquire(1, A, LockMode::KeyShare, true);
        t.acquire(2, B, LockMode::Update, true);
        let three = wait(&t, 3, A, LockMode::Update);
        wait(&t, 1, B, LockMode::KeyShare);
        let two = wait(&t, 2, A, LockMode::KeyShare);
        assert!(is_given(&two) && !is_given(&three));
    }
}
