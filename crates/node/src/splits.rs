//! The worker of split values: how many further records each has.
//!
//! ```text
//! once a second, at a primary      how often commits waited for the record of a value -> how many records it shall have -> one commit
//! ```
//! The decision is a pure function of what was seen ([`Policy::records`], the thesis's Algorithms 7 to 9); the step is a transaction as any
//! other, so a crash leaves all of it or nothing. It gives records beside running deltas, takes them away only where no transaction
//! has the row, waits for no lock, and so never makes a user's transaction fail.
//!
//! | | |
//! |---|---|
//! | many commits wait (more than `goal`) | more records, up to the column's `split_max` |
//! | few do (less than `least`), or there are no deltas | fewer, down to `split_min` |
//! | a value with deltas has fewer than `split_min` | it gets them |
//!
//! The thesis's worker removes `max(-(1 + n * rate), max - n)`, which is never below zero; here the minimum takes the place of the maximum.
//!
//! Left out on purpose: the thesis's balance worker and its least average of a record. Bounds belong to the sum, so a record that holds
//! nothing refuses nothing.

use base::Isolation;
use std::sync::atomic::Ordering;
use std::time::Duration;
use txn::{Durability, SplitValue, TxnOptions};

use crate::node::{Node, Shared};
use crate::promote::Role;

/// Between two looks at the values.
const LOOK: Duration = Duration::from_secs(1);

/// How many records are added or removed at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adjust {
    /// One.
    Binary,
    /// As many as there are, times the share of commits that waited.
    Linear,
    /// The same squared.
    Quadratic,
}

/// What the number of records follows.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    pub adjust: Adjust,
    /// The share of commits that may wait.
    pub goal: f64,
    /// Below this share, records are removed.
    pub least: f64,
}

impl Default for Policy {
    fn default() -> Self {
        Policy {
            adjust: Adjust::Linear,
            goal: 0.05,
            least: 0.01,
        }
    }
}

impl Policy {
    /// How many records a value shall have that has `now`, at least `min` and at most `max`, and of whose commits the share `rate` waited.
    pub fn records(&self, rate: f64, now: u16, (min, max): (u16, u16)) -> u16 {
        // A value without further records has one.
        let n = f64::from(now.max(1));
        let step = match self.adjust {
            Adjust::Binary => 1.0,
            Adjust::Linear => 1.0 + n * rate,
            Adjust::Quadratic => 1.0 + (n * rate) * (n * rate),
        };
        // Few commits wait when records go, so the share says little: an eighth.
        let fewer = match self.adjust {
            Adjust::Binary => 1,
            _ => 1 + now / 8,
        };
        let to = if rate > self.goal {
            now.saturating_add(step.min(f64::from(u16::MAX)) as u16)
        } else if rate < self.least {
            now.saturating_sub(fewer)
        } else {
            now
        };
        to.clamp(min.min(max), max)
    }
}

impl Shared {
    /// Looks at all values once and gives each the records that it shall have. How many values changed.
    pub(crate) fn adjust_splits(&self, policy: Policy) -> usize {
        if self.role() != Role::Primary || !self.manager.marks.is_open() {
            return 0;
        }
        let values = self.manager.split_values(true);
        let changed = values.iter().filter(|v| {
            // A value without deltas is not worth a read of several records.
            let rate = v.heat.rate_now();
            let to = policy.records(rate, v.records, (v.least, v.most));
            to != v.records && self.adjust_split(v, to)
        });
        changed.count()
    }

    /// One transaction. Whatever is in its way, the next look finds the value again.
    fn adjust_split(&self, v: &SplitValue, to: u16) -> bool {
        let options = TxnOptions {
            isolation: Isolation::ReadCommitted,
            durability: Durability::Off,
            ..TxnOptions::default()
        };
        let mut txn = self.manager.begin(options, false);
        let Some(table) = txn.catalog().table(v.table).cloned() else {
            return false;
        };
        let column = usize::from(v.column);
        let more = to > v.records;
        let step = txn.begin_statement().map_err(txn::Stop::Error);
        let step = step.and_then(|()| match more {
            true => txn.spread_value(&table, &v.key, column, to),
            false => txn.gather_value(&table, &v.key, column, to),
        });
        if !matches!(step, Ok(true)) {
            return false;
        }
        match more {
            true => env::fault::point("splits.spread.before_commit"),
            false => env::fault::point("splits.gather.before_commit"),
        }
        let committed = txn.commit(&self.pipeline).is_ok();
        match more {
            true => env::fault::point("splits.spread.after_commit"),
            false => env::fault::point("splits.gather.after_commit"),
        }
        if committed {
            let steps = match more {
                true => &self.split_steps.0,
                false => &self.split_steps.1,
            };
            steps.fetch_add(1, Ordering::Relaxed);
            self.pipeline.order.nudge();
        }
        committed
    }

    pub(crate) fn run_splits(&self) {
        self.options.env.spawn.give_way();
        let clock = &self.options.env.clock;
        let pause = Duration::from_millis(50);
        let mut since = Duration::ZERO;
        while !self.stopping.load(Ordering::SeqCst) {
            clock.sleep(pause);
            since += pause;
            if since >= LOOK {
                since = Duration::ZERO;
                self.adjust_splits(Policy::default());
            }
        }
    }
}

impl Node {
    /// What the worker of split values does once a second; for nodes without threads. How many values changed.
    pub fn splits_step(&self) -> usize {
        self.shared().adjust_splits(Policy::default())
    }

    /// How often the worker gave a value more records, and fewer.
    pub fn split_steps(&self) -> (u64, u64) {
        let steps = &self.shared().split_steps;
        let (more, fewer) = (&steps.0, &steps.1);
        (more.load(Ordering::Relaxed), fewer.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(adjust: Adjust) -> Policy {
        Policy {
            adjust,
            ..Policy::default()
        }
    }

    #[test]
    fn records_follow_the_share_of_commits_that_wait() {
        let p = policy(Adjust::Linear);
        assert_eq!(p.records(0.5, 0, (0, 64)), 1);
        assert_eq!(p.records(0.5, 8, (0, 64)), 13);
        assert_eq!(p.records(1.0, 60, (0, 64)), 64);
        assert_eq!(p.records(0.03, 8, (0, 64)), 8);
        assert_eq!(p.records(0.0, 64, (0, 64)), 55);
        assert_eq!(p.records(0.0, 1, (0, 64)), 0);
        assert_eq!(p.records(0.0, 0, (4, 64)), 4);
        assert_eq!(p.records(0.0, 5, (4, 64)), 4);
        assert_eq!(p.records(0.0, 2, (9, 3)), 3);
        assert_eq!(policy(Adjust::Binary).records(1.0, 8, (0, 64)), 9);
        assert_eq!(policy(Adjust::Binary).records(0.0, 8, (0, 64)), 7);
        assert_eq!(policy(Adjust::Quadratic).records(0.5, 8, (0, 64)), 25);
    }

    /// The thesis's simulation, roughly: the share that waits falls as records are added, and the number settles between the two bounds.
    #[test]
    fn the_number_settles() {
        for adjust in [Adjust::Binary, Adjust::Linear, Adjust::Quadratic] {
            let p = policy(adjust);
            let rate = |n: u16| 0.8 / f64::from(n.max(1));
            let mut n = 0;
            for _ in 0..60 {
                n = p.records(rate(n), n, (0, 64));
            }
            assert!(rate(n) <= p.goal && rate(n) >= p.least, "{adjust:?}: {n}");
            assert_eq!(p.records(rate(n), n, (0, 64)), n);
            // The load goes: so do the records.
            for _ in 0..64 {
                n = p.records(0.0, n, (0, 64));
            }
            assert_eq!(n, 0);
        }
    }
}
