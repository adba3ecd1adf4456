//! Savepoints: where the writes of a transaction stood, by name. A later one of the same name hides an earlier one.
//!
//! Left out on purpose: reads. What was read since a savepoint stays read, and locks stay taken.

use base::{Error, Result, SqlState};

use crate::state::{PutOff, Savepoint};
use crate::txn::Txn;

impl Txn {
    pub fn savepoint(&mut self, name: &str) {
        self.savepoints.push(Savepoint {
            name: name.into(),
            writes: self.writes.mark(),
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
        self.charge();
        Ok(())
    }

    pub fn release_savepoint(&mut self, name: &str) -> Result<()> {
        let i = self.find_savepoint(name)?;
        self.savepoints.truncate(i);
        Ok(())
    }
}
