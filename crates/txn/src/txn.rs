//! The transaction.

use crate::{Access, Catalog, LockMode, LockWait, Scan, TableHandle, WaitPolicy};
use base::schema::Change;
use base::{Oid, Position, Result, RowRef, Value};
use std::sync::Arc;
use std::sync::atomic::AtomicU8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    ReadCommitted,
    RepeatableRead,
    Serializable,
}

/// What an acknowledgement of COMMIT promises (`synchronous_commit`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    Off,
    On,
}

/// Set by another task to end a running statement: 0 nothing, 1 cancel (57014), 2 statement timeout (57014), 3 terminate (57P01).
#[derive(Debug, Default)]
pub struct Interrupt(pub AtomicU8);

#[derive(Clone, Debug)]
pub struct TxnOptions {
    pub isolation: Isolation,
    pub read_only: bool,
    pub deferrable: bool,
    pub durability: Durability,
    pub interrupt: Arc<Interrupt>,
}

pub enum InsertOutcome {
    Inserted,
    /// A row with the same key of one of the arbiter indexes is there; its primary-index key.
    Conflict {
        key: Box<[u8]>,
    },
}

/// One transaction. Use by the session:
///
/// ```text
/// begin_statement -> run -> end_statement (deferred checks of the statement)        Ok: next statement
///                       \-> Err(e): rollback_statement, then by e.code():
///                            BLOCKED  take_wait().await, begin_statement, run again
///                            RESTART  begin_statement (it has moved the snapshot), run again
///                            other    the transaction is failed (or rolled back to a savepoint)
/// ```
pub struct Txn {}

#[allow(unused_variables, clippy::unused_self)]
impl Txn {
    pub fn isolation(&self) -> Isolation {
        unimplemented!()
    }
    pub fn is_read_only(&self) -> bool {
        unimplemented!()
    }
    pub fn set_read_only(&mut self, on: bool) {
        unimplemented!()
    }
    /// Allowed only before the first statement (25001 is the caller's to give).
    pub fn set_isolation(&mut self, level: Isolation) {
        unimplemented!()
    }
    pub fn set_durability(&mut self, d: Durability) {
        unimplemented!()
    }
    /// The snapshot that reads stand at; none before the first statement.
    pub fn snapshot(&self) -> Option<Position> {
        unimplemented!()
    }
    /// Whether a statement has run.
    pub fn has_snapshot(&self) -> bool {
        self.snapshot().is_some()
    }
    /// Number of the transaction, for `txid_current()`.
    pub fn id(&self) -> u64 {
        unimplemented!()
    }
    /// The schema that this transaction sees, own DDL included.
    pub fn catalog(&self) -> Arc<Catalog> {
        unimplemented!()
    }
    /// 57014 and such when somebody asked the statement to end. Scans call it; other long loops should.
    pub fn check_interrupt(&self) -> Result<()> {
        unimplemented!()
    }

    /// Begins a statement or its next run. READ COMMITTED takes a new snapshot.
    pub fn begin_statement(&mut self) -> Result<()> {
        unimplemented!()
    }
    /// Runs the checks that stand at the end of a statement (foreign keys). May ask to block or restart.
    pub fn end_statement(&mut self) -> Result<()> {
        unimplemented!()
    }
    /// Undoes the statement's writes; its locks stay.
    pub fn rollback_statement(&mut self) {
        unimplemented!()
    }
    /// The wait of a statement that failed with BLOCKED.
    pub fn take_wait(&mut self) -> Option<LockWait> {
        unimplemented!()
    }
    /// A portal that reads at this snapshot is open (+1) or closed (-1): the snapshot must not move meanwhile.
    pub fn portal_opened(&mut self, delta: i32) {
        unimplemented!()
    }

    /// The visible row of this primary-index key.
    pub fn get<R>(
        &mut self,
        table: &TableHandle,
        key: &[u8],
        f: impl FnOnce(RowRef<'_>) -> R,
    ) -> Result<Option<R>> {
        unimplemented!()
    }
    /// Up to `max` rows of the scan in order: `f(primary-index key, row)`. False when the scan is at its end.
    pub fn scan(
        &mut self,
        table: &TableHandle,
        scan: &mut Scan,
        max: usize,
        f: &mut dyn FnMut(&[u8], RowRef<'_>) -> Result<()>,
    ) -> Result<bool> {
        unimplemented!()
    }
    /// Locks the row of this key, which the statement has read. False: skipped by SKIP LOCKED.
    pub fn lock_row(
        &mut self,
        table: &TableHandle,
        key: &[u8],
        mode: LockMode,
        wait: WaitPolicy,
    ) -> Result<bool> {
        unimplemented!()
    }

    /// Inserts a row of all columns (dropped ones NULL), types and typmods already applied, defaults filled in. Checks NOT NULL, CHECK,
    /// PRIMARY KEY, UNIQUE at once and foreign keys at the statement's end.
    pub fn insert(&mut self, table: &TableHandle, row: &[Value]) -> Result<()> {
        unimplemented!()
    }
    /// The same for ON CONFLICT: a conflict in one of the `arbiters` (places in `TableDef::indexes`; empty: any unique index)
    /// inserts nothing and names the row in the way, which is locked for update.
    pub fn insert_unless_conflict(
        &mut self,
        table: &TableHandle,
        row: &[Value],
        arbiters: &[usize],
    ) -> Result<InsertOutcome> {
        unimplemented!()
    }
    /// Puts `row` in the place of the row of this key, which the statement has read; locks it and checks constraints. The primary
    /// key may change. Referencing rows follow by ON UPDATE.
    pub fn update(&mut self, table: &TableHandle, key: &[u8], row: &[Value]) -> Result<()> {
        unimplemented!()
    }
    /// Deletes the row of this key, which the statement has read. Referencing rows follow by ON DELETE.
    /// False when this statement (or a cascade of it) has deleted it already.
    pub fn delete(&mut self, table: &TableHandle, key: &[u8]) -> Result<bool> {
        unimplemented!()
    }

    pub fn savepoint(&mut self, name: &str) {
        unimplemented!()
    }
    /// 3B001 when there is none of this name.
    pub fn rollback_to_savepoint(&mut self, name: &str) -> Result<()> {
        unimplemented!()
    }
    pub fn release_savepoint(&mut self, name: &str) -> Result<()> {
        unimplemented!()
    }

    /// Takes the lock that serialises schema changes (may fail with BLOCKED) and moves to the newest schema. Call first in a DDL statement.
    pub fn lock_schema(&mut self) -> Result<()> {
        unimplemented!()
    }
    /// Numbers for new objects.
    pub fn new_oid(&mut self) -> Oid {
        unimplemented!()
    }
    /// Applies changes to the transaction's schema. New tables and storages are usable at once; new indexes are built, and constraints over
    /// existing rows are checked, here.
    pub fn change_schema(&mut self, changes: Vec<Change>) -> Result<()> {
        unimplemented!()
    }
    /// Estimated number of rows, for plans and `reltuples`.
    pub fn estimated_rows(&self, table: &TableHandle) -> u64 {
        unimplemented!()
    }
    #[allow(dead_code)]
    fn _uses(_: Access) {}
}
