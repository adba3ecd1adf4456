//! A transaction's locks, and its waits for those of others: one at a time, and it stands in no other queue.
//!
//! Left out on purpose: time limits, which are the caller's ([`Txn::stop_waiting`]).

use base::{Error, SqlState};

use crate::errors::Wanted;
use crate::handle::TableHandle;
use crate::locks::{Attempt, LockMode, LockName, LockWait, TxnId, WaitPolicy, Waiter};
use crate::state::Since;
use crate::stats::Cause;
use crate::stop::{Result, Stop};
use crate::txn::Txn;

/// Whether ROLLBACK TO gives the lock back: one on a row or a key is. Those that stand for deltas of split values, of the row or of one of its
/// records, have a life of their own (`split`).
fn goes_back(wanted: Wanted<'_>, name: LockName, mode: LockMode) -> bool {
    match wanted {
        Wanted::Row(t, key) => {
            mode != LockMode::Delta && (!t.has_splits() || name == t.row_lock(key))
        }
        Wanted::Key(_) => true,
        Wanted::Table(_) | Wanted::Schema => false,
    }
}

impl Txn {
    /// Takes a lock; false: skipped. `table` names it in errors.
    pub(crate) fn lock(
        &mut self,
        name: LockName,
        mode: LockMode,
        wait: WaitPolicy,
        wanted: Wanted<'_>,
    ) -> Result<bool> {
        let how = Waiter {
            twin: self.locks.bearer,
            patient: self.locks.patient,
        };
        let wait_for_it = wait == WaitPolicy::Wait;
        let before = match !self.savepoints.is_empty() && goes_back(wanted, name, mode) {
            true => Some(self.shared.locks.mode_of(self.id, name)),
            false => None,
        };
        let (attempt, new) = self
            .shared
            .locks
            .acquire_as(self.id, name, mode, wait_for_it, how);
        if new {
            self.locks.held.push(name);
        }
        if let (Some(before), Attempt::Granted | Attempt::Wait(_)) = (before, &attempt)
            && before.is_none_or(|b| b.join(mode) != b)
        {
            let split = match wanted {
                Wanted::Row(t, key) if t.has_splits() => Some((t.storage.id, key.into())),
                _ => None,
            };
            self.locks.since.push(Since {
                name,
                before,
                split,
            });
        }
        match attempt {
            Attempt::Granted => Ok(true),
            Attempt::Wait(w) => {
                self.note_lock_wait(name, wanted);
                self.queues_for(name);
                self.locks.wait = Some(w);
                Err(Stop::Blocked)
            }
            Attempt::Deadlock if wait == WaitPolicy::SkipLocked => Ok(false),
            Attempt::Deadlock if wait == WaitPolicy::NoWait => Ok(self.not_available(wanted)?),
            Attempt::Deadlock => {
                self.shared.stats.abort(Cause::Deadlock);
                Err(self.deadlock(wanted, name, mode).into())
            }
        }
    }

    /// Locks the row of this key, which the statement has read. False: skipped by SKIP LOCKED.
    pub fn lock_row(
        &mut self,
        table: &TableHandle,
        key: &[u8],
        mode: LockMode,
        wait: WaitPolicy,
    ) -> Result<bool> {
        self.check_outdated()?;
        if !self.lock(table.row_lock(key), mode, wait, Wanted::Row(table, key))? {
            return Ok(false);
        }
        let saw = self.check_newest(table, key)?;
        if self.standing.elsewhere {
            let storage = table.storage.id;
            self.reads.locked.push((storage, key.into(), saw));
        }
        Ok(true)
    }

    /// The wait of a statement that ended with [`Stop::Blocked`]. Before the statement is given up instead, call [`Txn::stop_waiting`].
    pub fn take_wait(&mut self) -> Option<LockWait> {
        let wait = self.locks.wait.take()?;
        self.locks.waited = true;
        Some(wait)
    }

    /// The session of this transaction holds advisory locks under this name; whether that is news.
    pub fn borne_by(&mut self, bearer: TxnId) -> bool {
        let news = self.locks.bearer.replace(bearer) != Some(bearer);
        if news && let Some(name) = self.locks.queued {
            self.shared.locks.pair(self.id, bearer, name);
        }
        news
    }

    /// Whether the caller looks for deadlocks, after a while ([`Txn::check_deadlock`]); else each wait looks when it begins.
    pub fn set_patient(&mut self, on: bool) {
        self.locks.patient = on;
    }

    /// 40P01 when the wait is part of a cycle.
    pub fn check_deadlock(&self) -> base::Result<()> {
        if !self.shared.locks.is_deadlocked(self.id) {
            return Ok(());
        }
        self.shared.stats.abort(Cause::Deadlock);
        Err(Error::new(SqlState::DEADLOCK_DETECTED, "deadlock detected")
            .detail("The transaction is part of a cycle of waiting transactions."))
    }

    /// Leaves the queues that the transaction waits in (a timeout, a cancel).
    pub fn stop_waiting(&mut self) {
        self.locks.wait = None;
        if let Some(name) = self.locks.queued.take() {
            self.shared.locks.stop_waiting(self.id, name);
        }
        self.has_passed();
    }

    /// It waits for this one now, and for no other.
    pub(crate) fn queues_for(&mut self, name: LockName) {
        let before = self.locks.queued.replace(name);
        if let Some(before) = before.filter(|b| *b != name) {
            self.shared.locks.cancel(self.id, before);
        }
    }
}
