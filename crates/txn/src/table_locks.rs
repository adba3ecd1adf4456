//! Locks on tables: PostgreSQL's eight modes (LOCK TABLE).
//!
//! Every statement *uses* its tables in a weak mode: ACCESS SHARE where it reads, ROW SHARE where it locks rows, ROW EXCLUSIVE where it writes. Weak
//! modes keep off none of one another. So while no transaction holds or wants a stronger one, a use is only noted in a place of its session
//! ([`crate::Uses`]), which no other transaction looks at, and nothing enters the table of locks.
//!
//! ```text
//! use     lock own place ── is `strong` 0? ── yes: note it there
//!                                          └─ no:  take the lock in the table of locks, like a row's
//! LOCK    strong += 1 ── each place: move what is noted of this table into the table of locks ── take the lock there
//! ```
//! Either the use finds `strong` set, or LOCK finds the use. From then on queues, wakers and the search for circles are those of rows.
//!
//! A SELECT that is a transaction of its own notes nothing, since it ends by itself and has its snapshot already: it only waits where a
//! strong lock is held when it begins.
//!
//! Left out on purpose: rows that a foreign key looks at, which is no use of their table here; giving back at ROLLBACK TO what was taken
//! since; transactions of the library that had begun when the lock was asked for, and what other nodes read. A READ ONLY transaction above
//! READ COMMITTED keeps the snapshot that its first statement took, also where that is the LOCK TABLE.

use base::Oid;
use std::sync::Arc;

use crate::errors::Wanted;
use crate::handle::{TABLE_SPACE, TableHandle};
use crate::locks::{LockMode, TxnId, WaitPolicy};
use crate::manager::TxnManager;
use crate::stop::Result;
use crate::table_modes::TableModes;
use crate::txn::Txn;
use crate::uses::Uses;

impl Txn {
    /// The place of its session, which stays empty until the first transaction asks for it.
    pub fn uses_by(&mut self, place: &mut Option<Arc<Uses>>) {
        self.locks.uses.take(place, &self.shared.board);
    }

    /// Whether a strong lock on some table is held or wanted.
    pub fn tables_are_locked(&self) -> bool {
        self.shared.board.is_locked()
    }

    /// A statement uses a table in these weak modes. May end with [`Stop::Blocked`](crate::Stop).
    pub fn use_table(&mut self, table: &TableHandle, modes: TableModes) -> Result<()> {
        let oid = table.table.def.id;
        if table.temporary || self.locks.uses.has(oid, modes) {
            return Ok(());
        }
        let board = &self.shared.board;
        if !self.locks.uses.note(self.id, oid, modes, board) {
            let name = table.table_lock();
            let wanted = Wanted::Table(table);
            // Locks are given back before the commit of their holder is published, and what it did is to be seen after a wait for it.
            self.standing.at_published = false;
            self.lock(name, LockMode::Table(modes), WaitPolicy::Wait, wanted)?;
        }
        self.locks.uses.add(oid, modes);
        Ok(())
    }

    /// LOCK TABLE; false: skipped. 40001 where a change of the table's schema has taken effect since the snapshot, if what has been read counts at
    /// commit; others go on with the schema of their snapshot.
    pub fn lock_table(
        &mut self,
        table: &TableHandle,
        modes: TableModes,
        wait: WaitPolicy,
    ) -> Result<bool> {
        // No other session sees it.
        if table.temporary {
            return Ok(true);
        }
        let name = table.table_lock();
        if modes.is_strong() {
            let shared = &self.shared;
            self.locks.uses.count(&shared.board);
            let oid = table.table.def.id;
            shared.board.gather(oid, name, &shared.locks);
        }
        let wanted = Wanted::Table(table);
        if !self.lock(name, LockMode::Table(modes), wait, wanted)? {
            return Ok(false);
        }
        // What committed since the snapshot, before the lock was there, is seen by the next statement.
        self.locks.waited = true;
        let moved = table.shape != table.storage.shape() && !self.owns_shape(table);
        if moved && !self.options.read_only {
            return Err(self.schema_moved(Some(table)).into());
        }
        Ok(true)
    }

    /// Gives its uses back, and counts no longer among those with strong locks. Its locks are given back already.
    pub(crate) fn end_uses(&mut self) {
        for name in self.locks.uses.end(&self.shared.board) {
            self.shared.locks.release(self.id, name);
        }
    }
}

/// A lock on a table, as `pg_locks` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableLock {
    pub table: Oid,
    pub txn: TxnId,
    pub modes: TableModes,
    pub granted: bool,
    /// It is noted at its session only.
    pub noted: bool,
}

impl TxnManager {
    /// Every lock on a table, held or waited for.
    pub fn table_locks(&self) -> Vec<TableLock> {
        let lock = |table, txn, modes, granted, noted| TableLock {
            table,
            txn,
            modes,
            granted,
            noted,
        };
        let mut all = vec![];
        for (hash, txn, mode, granted) in self.locks.list(TABLE_SPACE) {
            if let (LockMode::Table(modes), Ok(table)) = (mode, Oid::try_from(hash)) {
                all.push(lock(table, txn, modes, granted, false));
            }
        }
        let noted = self.board.noted().into_iter();
        all.extend(noted.map(|(table, txn, modes)| lock(table, txn, modes, true, true)));
        all
    }
}
