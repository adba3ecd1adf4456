//! Checks that are put off: which constraints' are (SET CONSTRAINTS), and the checks at the end of the transaction.
//!
//! ```text
//! a statement writes      notes what has to be asked
//! its end                 asks, or puts the question off where the constraint is deferred
//! SET CONSTRAINTS, COMMIT ask what was put off: it may wait for a lock, and is asked again then
//! ```
//! Left out on purpose: the asking, which is `fk`'s and `unique`'s.

use base::Oid;

use crate::probe::Side;
use crate::stop;
use crate::txn::Txn;

impl Txn {
    /// SET CONSTRAINTS.
    pub fn set_deferred(&mut self, constraints: Option<&[Oid]>, deferred: bool) {
        self.references.deferred.set(constraints, deferred);
    }

    /// Whether checks were put off.
    pub fn has_deferred(&self) -> bool {
        !self.references.put_off.is_empty() || !self.references.keys_put_off.is_empty()
    }

    /// The tables of whose rows something is still to be asked. A key counts while another row has it: PostgreSQL puts off no other.
    pub fn awaited_tables(&self) -> Vec<Oid> {
        let references = self.references.put_off.iter().map(|p| match p.kind {
            Side::Parent => p.child.table.def.id,
            Side::Children => p.fk().ref_table,
        });
        let doubled = self.references.keys_put_off.iter();
        let doubled = doubled.filter(|k| self.is_doubled(k)).map(|k| k.table);
        references.chain(doubled).collect()
    }

    /// The checks that were put off, all of them at the end of the transaction, else those of constraints that are not deferred any more. May ask
    /// to block: then it is to be called again after the wait.
    pub fn check_deferred(&mut self, all: bool) -> stop::Result<()> {
        for savepoint in &mut self.savepoints {
            savepoint.put_off.copy(&self.references.put_off);
            savepoint.keys_put_off.copy(&self.references.keys_put_off);
        }
        self.check_late_keys(all)?;
        self.check_late_references(all)
    }
}
