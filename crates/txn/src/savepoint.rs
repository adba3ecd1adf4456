//! Savepoints: where the writes of a transaction stood, by name. A later one of the same name hides an earlier one.
//!
//! ROLLBACK TO gives back the locks on rows and keys that were taken since, and one that was made stronger is as strong as before. A transaction that waits
//! for one goes on. A row that was locked at a site need not be as it was locked any more.
//!
//! Left out on purpose: reads, and what guards of split columns have said, which stay so; locks on tables; locks for deltas of split columns, with
//! what they have reserved.

use base::{Error, Result, SqlState};
use std::collections::HashSet;

use crate::locks::LockMode;
use crate::state::{PutOff, Savepoint};
use crate::txn::Txn;

/// Where the writes of the running statement stood.
#[must_use]
pub struct Trial {
    writes: usize,
    probes: usize,
    keys: usize,
}

impl Txn {
    /// Begins to write on trial: for a statement that has to know what a write comes to while it still reads what was there before.
    pub fn begin_trial(&self) -> Trial {
        Trial {
            writes: self.writes.mark(),
            probes: self.references.probes.len(),
            keys: self.references.keys.len(),
        }
    }

    /// Undoes what was written on trial. The same writes come to the same again: their locks and what they read stay.
    pub fn end_trial(&mut self, t: Trial) {
        self.writes.rollback(t.writes);
        self.references.probes.truncate(t.probes);
        self.references.keys.truncate(t.keys);
        self.references.cascades.clear();
        self.charge();
    }

    pub fn savepoint(&mut self, name: &str) {
        self.savepoints.push(Savepoint {
            name: name.into(),
            writes: self.writes.mark(),
            locked: self.reads.locked.len(),
            since: self.locks.since.len(),
            probes: self.references.probes.len(),
            put_off: PutOff::First(self.references.put_off.len()),
            keys_put_off: PutOff::First(self.references.keys_put_off.len()),
            deferred: self.references.deferred.clone(),
        });
    }

    fn find_savepoint(&self, name: &str) -> Result<usize> {
        self.savepoints
            .iter()
            .rposition(|s| s.name == name)
            .ok_or_else(|| {
                Error::new(
                    SqlState::INVALID_SAVEPOINT,
                    format!("savepoint \"{name}\" does not exist"),
                )
            })
    }

    /// Undoes what was written since; the savepoint stays. 3B001 when there is none of this name.
    pub fn rollback_to_savepoint(&mut self, name: &str) -> Result<()> {
        let i = self.find_savepoint(name)?;
        self.savepoints.truncate(i + 1);
        self.savepoints[i]
            .put_off
            .restore(&mut self.references.put_off);
        self.savepoints[i]
            .keys_put_off
            .restore(&mut self.references.keys_put_off);
        self.references.deferred = self.savepoints[i].deferred.clone();
        self.references.probes.truncate(self.savepoints[i].probes);
        self.keep_guards(self.savepoints[i].writes);
        self.rollback_schema(self.savepoints[i].writes);
        self.writes.rollback(self.savepoints[i].writes);
        self.reads.locked.truncate(self.savepoints[i].locked);
        self.unlock_since(self.savepoints[i].since);
        self.charge();
        Ok(())
    }

    /// Gives back what was taken after the first `kept` of the locks since the first savepoint.
    fn unlock_since(&mut self, kept: usize) {
        let since = self.locks.since.split_off(kept);
        let mut gone = HashSet::new();
        for lock in since.into_iter().rev() {
            let (name, split) = (lock.name, lock.split);
            // Reservations of split values outlive their deltas, under the lock for deltas.
            let reserves = split.is_some_and(|(storage, key)| self.reserves_in(storage, &key));
            let kept = reserves.then_some(LockMode::Delta);
            match lock.before.into_iter().chain(kept).reduce(LockMode::join) {
                Some(mode) => self.shared.locks.weaken(self.id, name, mode),
                None => {
                    self.shared.locks.release(self.id, name);
                    gone.insert(name);
                }
            }
        }
        if !gone.is_empty() {
            self.locks.held.retain(|h| !gone.contains(h));
        }
    }

    pub fn release_savepoint(&mut self, name: &str) -> Result<()> {
        let i = self.find_savepoint(name)?;
        self.savepoints.truncate(i);
        if self.savepoints.is_empty() {
            self.locks.since.clear();
        }
        Ok(())
    }
}
