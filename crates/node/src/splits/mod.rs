//! The worker of split values: how many further records each has, and, in the mode `rows`, what lies in which.
//!
//! ```text
//! once a second, at a primary      adjust    how often commits waited for the record of a value -> how many records it shall have -> one commit
//! four times a second              balance   what the records hold ([`balance`], the mode `rows` only) -> moves between them -> one commit
//! ```
//! The decisions are pure functions of what was seen ([`adjust`], [`balance`]); a step is a transaction as any
//! other, so a crash leaves all of it or nothing. It gives records beside running deltas, takes them away only where no transaction
//! has the row, waits for no lock, and so never makes a user's transaction fail.
//!
//! Left out on purpose: balance for the other mode. Its bounds belong to the sum, so a record that holds nothing refuses nothing.

pub mod adjust;
pub mod balance;
pub(crate) mod steps;

use adjust::Policy;
use balance::Balance;
use base::Isolation;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use txn::{CommitOrder, Durability, Move, SplitValue, Txn, TxnOptions};

use crate::house::Chore;
use crate::node::{Node, Shared};
use crate::promote::Role;

/// Between two looks at how values are used. A whole number of visits.
const LOOK: Duration = Duration::from_secs(1);

/// Between two looks at what lies in which record.
const BALANCE: Duration = Duration::from_millis(250);

impl Shared {
    /// Looks at all values once and gives each the records that it shall have. How many values changed.
    pub(crate) fn adjust_splits(&self, policy: Policy) -> usize {
        if self.role() != Role::Primary || !self.manager.marks.is_open() {
            return 0;
        }
        let values = self.manager.split_values(true);
        let changed = values.iter().filter(|v| {
            let rate = v.heat.rate_now();
            let to = policy.records(rate, v.records, (v.least, policy.most(v)));
            to != v.records && self.adjust_split(v, to)
        });
        changed.count()
    }

    /// One transaction. Whatever is in its way, the next look finds the value again.
    fn adjust_split(&self, v: &SplitValue, to: u16) -> bool {
        let Some(mut txn) = self.begin_step() else {
            return false;
        };
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
                true => &self.split_steps.more,
                false => &self.split_steps.fewer,
            };
            steps.fetch_add(1, Ordering::Relaxed);
            self.pipeline.order.nudge();
        }
        committed
    }

    /// Looks once at what lies in which record, in the mode `rows`. How many values changed.
    pub(crate) fn balance_splits(&self, policy: Balance) -> usize {
        let is_primary = self.role() == Role::Primary && self.manager.marks.is_open();
        if policy == Balance::None || !is_primary {
            return 0;
        }
        let look = self.split_steps.looks.fetch_add(1, Ordering::Relaxed);
        let values = self.manager.rows_in_use();
        let balanced = values.iter().filter(|v| {
            let Some(shares) = &v.shares else {
                return false;
            };
            let chance = base::key::hash(look as u32, &v.key);
            let moves = policy.moves(shares, chance);
            if moves.is_empty() {
                return false;
            }
            let done = self.balance_split(v, &moves);
            let steps = match done {
                true => &self.split_steps.balanced,
                false => &self.split_steps.gave_up,
            };
            steps.fetch_add(1, Ordering::Relaxed);
            done
        });
        balanced.count()
    }

    fn balance_split(&self, v: &SplitValue, moves: &[Move]) -> bool {
        let Some(mut txn) = self.begin_step() else {
            return false;
        };
        let Some(table) = txn.catalog().table(v.table).cloned() else {
            return false;
        };
        let step = txn.begin_statement().map_err(txn::Stop::Error);
        let column = usize::from(v.column);
        let step = step.and_then(|()| txn.balance_value(&table, &v.key, column, moves));
        if !matches!(step, Ok(true)) {
            return false;
        }
        env::fault::point("splits.balance.before_commit");
        let committed = txn.commit(&self.pipeline).is_ok();
        env::fault::point("splits.balance.after_commit");
        if committed {
            self.pipeline.order.nudge();
        }
        committed
    }

    /// The transaction of a step. It acknowledges nothing to any client, so it waits for no log. Where the log has no room it waits here, where
    /// it holds no lock. None: this node takes no writes.
    fn begin_step(&self) -> Option<Txn> {
        let manager = &self.manager;
        let goes_on = || manager.check_accepts_writes();
        CommitOrder::wait_for_room(&self.pipeline, &goes_on).ok()?;
        let options = TxnOptions {
            isolation: Isolation::ReadCommitted,
            durability: Durability::Off,
            ..TxnOptions::default()
        };
        Some(manager.begin(options, false))
    }

    fn policy(&self) -> Policy {
        Policy {
            adjust: self.options.split_adjust,
            ..Policy::default()
        }
    }
}

/// The worker's visits to a node (`house`).
pub(crate) struct Splits {
    node: Arc<Shared>,
    /// When records are next given and taken, in the clock's nanoseconds.
    look: u64,
}

impl Splits {
    pub(crate) fn of(node: Arc<Shared>) -> Splits {
        let now = node.options.env.clock.monotonic_nanos();
        Splits {
            node,
            look: now + LOOK.as_nanos() as u64,
        }
    }
}

impl Chore for Splits {
    fn visit(&mut self, _: &dyn Fn()) -> Duration {
        let node = &*self.node;
        let now = node.options.env.clock.monotonic_nanos();
        if now >= self.look {
            self.look = now + LOOK.as_nanos() as u64;
            node.adjust_splits(node.policy());
        }
        node.balance_splits(node.options.split_balance);
        BALANCE
    }
}

impl Node {
    /// What the worker of split values does once a second; for nodes without threads. How many values changed.
    pub fn splits_step(&self) -> usize {
        let shared = self.shared();
        shared.adjust_splits(shared.policy())
    }

    /// The same for what lies in which record, four times a second.
    pub fn balance_step(&self) -> usize {
        let shared = self.shared();
        shared.balance_splits(shared.options.split_balance)
    }

    /// How often the worker gave a value more records, and fewer.
    pub fn split_steps(&self) -> (u64, u64) {
        let steps = &self.shared().split_steps;
        let (more, fewer) = (&steps.more, &steps.fewer);
        (more.load(Ordering::Relaxed), fewer.load(Ordering::Relaxed))
    }

    /// How often the worker moved parts of a value between its records, and gave up because one of them was in use.
    pub fn balance_steps(&self) -> (u64, u64) {
        let steps = &self.shared().split_steps;
        let (done, gave_up) = (&steps.balanced, &steps.gave_up);
        (
            done.load(Ordering::Relaxed),
            gave_up.load(Ordering::Relaxed),
        )
    }
}
