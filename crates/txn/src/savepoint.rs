//! Savepoints: where the writes of a transaction stood, by name. A later one of the same name hides an earlier one.
//!
//! A row that was locked at a site since then need not be as it was locked any more: in PostgreSQL the lock would be gone.
//!
//! Left out on purpose: reads. What was read since a savepoint stays read, and locks stay taken at this node.

use base::{Error, Result, SqlState};

use crate::state::{PutOff, Savepoint};
use crate::txn::Txn;

/// Where the writes of the running statement stood.
#[must_use]
pub struct Trial {
    writes: usize,
    probes: usize,
}

impl Txn {
    /// Begins to write on trial: for a statement that has to know what a write comes to while it still reads what was there before.
    pub fn begin_trial(&self) -> Trial {
        Trial {
            writes: self.writes.mark(),
            probes: self.references.probes.len(),
        }
    }

    /// Undoes what was written on trial. The same writes come to the same again: their locks and what they read stay.
    pub fn end_trial(&mut self, t: Trial) {
        self.writes.rollback(t.writes);
        self.references.probes.truncate(t.probes);
        self.references.cascades.clear();
        self.charge();
    }

    pub fn savepoint(&mut self, name: &str) {
        self.savepoints.push(Savepoint {
            name: name.into(),
            writes: self.writes.mark(),
            locked: self.reads.locked.len(),
            put_off: PutOff::First(self.references.put_off.len()),
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
        self.references.deferred = self.savepoints[i].deferred.clone();
        self.rollback_schema(self.savepoints[i].writes);
        self.writes.rollback(self.savepoints[i].writes);
        self.reads.locked.truncate(self.savepoints[i].locked);
        self.charge();
        Ok(())
    }

    pub fn release_savepoint(&mut self, name: &str) -> Result<()> {
        let i = self.find_savepoint(name)?;
        self.savepoints.truncate(i);
        Ok(())
    }
}
