//! What 40001, 40P01 and 55P03 say: the table, the row's key, and the transaction that won.
//!
//! A winner that has committed is named by its position, one that runs by its number. Where neither is known (a lock was
//! given back in the same moment), the text does without.
//!
//! Left out on purpose: the key of a unique value that is waited for, which has no row yet; only its table is named.

use base::{Error, Position, Result, SqlState};
use store::pin;

use crate::handle::TableHandle;
use crate::locks::{LockMode, LockName, TxnId};
use crate::races::{RowLabel, Winner};
use crate::state::Conflict;
use crate::txn::Txn;

const RETRY: &str = "The transaction might succeed if retried.";

/// What a lock is for.
#[derive(Clone, Copy)]
pub(crate) enum Wanted<'a> {
    /// The row of this key (`base::key`).
    Row(&'a TableHandle, &'a [u8]),
    /// A unique key, that no row may have.
    Key(&'a TableHandle),
    Table(&'a TableHandle),
    Schema,
}

impl Conflict {
    fn error(&self) -> Error {
        failure("could not serialize access due to concurrent update")
            .detail(changed(&self.key, &self.table, self.winner))
            .table(&self.schema, &self.table)
    }
}

fn failure(what: &str) -> Error {
    Error::new(SqlState::SERIALIZATION_FAILURE, what).hint(RETRY)
}

fn changed(key: &str, table: &str, winner: Position) -> String {
    format!(
        "Row {key} of table \"{table}\" was changed by the transaction that committed at {winner}."
    )
}

impl Txn {
    fn about(&self, e: Error, table: &TableHandle) -> Error {
        e.table(&self.namespace_of(table), table.name())
    }

    /// 40001 with the words that tools look for, and who won: the transaction that committed there.
    pub(crate) fn lost_to(
        &self,
        what: &str,
        table: &TableHandle,
        key: &str,
        winner: Position,
    ) -> Error {
        self.has_lost(table, key, Winner::Committed(winner));
        let detail = changed(key, table.name(), winner);
        self.about(failure(what).detail(detail), table)
    }

    /// 40001: another transaction has locked the row.
    pub(crate) fn row_is_locked(
        &self,
        table: &TableHandle,
        key: &str,
        holder: Option<TxnId>,
    ) -> Error {
        let winner = holder.map_or(Winner::Unknown, Winner::Running);
        self.has_lost(table, key, winner);
        let by = holder.map_or_else(
            || "another transaction".into(),
            |h| format!("transaction {h}"),
        );
        let what = "could not serialize access due to a row lock of another transaction";
        let detail = format!("Row {key} of table \"{}\" is locked by {by}.", table.name());
        self.about(failure(what).detail(detail), table)
    }

    /// 40001: one that is at its commit has read the row, which this one changes.
    pub(crate) fn crossed(&self, storage: u32, key: &[u8], other: TxnId) -> Error {
        let e =
            failure("could not serialize access due to read/write dependencies among transactions");
        let Some(table) = self.schema.catalog.of_storage(storage) else {
            return e;
        };
        let row = describe_key(table, key);
        self.has_lost(table, &row, Winner::Running(other));
        let detail = format!(
            "Transaction {other}, which is committing, has read row {row} of table \"{}\", and changes what was read here.",
            table.name()
        );
        self.about(e.detail(detail), table)
    }

    /// 40001: a schema change of the table came between; `None`: of one that was read by key.
    pub(crate) fn schema_moved(&self, table: Option<&TableHandle>) -> Error {
        let name = table.map_or("(read by key)", |t| t.name());
        let e = failure(&format!(
            "could not serialize access: table \"{name}\" was altered concurrently"
        ));
        let Some(table) = table else { return e };
        let since = match self.view() {
            Ok(v) => format!(
                "that was not committed at {}, this one's snapshot",
                v.position()
            ),
            Err(_) => "that came between".into(),
        };
        let detail = format!("Table \"{name}\" was altered by a transaction {since}.");
        self.about(e.detail(detail), table)
    }

    /// 40P01 with PostgreSQL's words: what was wanted, and who has it.
    pub(crate) fn deadlock(&self, wanted: Wanted<'_>, name: LockName, mode: LockMode) -> Error {
        let holder = self.shared.locks.holder(self.id, name, mode);
        if let Wanted::Row(t, key) = wanted {
            let winner = holder.map_or(Winner::Unknown, Winner::Running);
            self.has_lost(t, &describe_key(t, key), winner);
        }
        let of = |t: &TableHandle| format!("of table \"{}\"", t.name());
        let what = match wanted {
            Wanted::Row(t, key) => format!("row {} {}", describe_key(t, key), of(t)),
            Wanted::Key(t) => format!("a unique key {}", of(t)),
            Wanted::Table(t) => format!("table \"{}\"", t.name()),
            Wanted::Schema => "the schema".into(),
        };
        let held = holder.map_or_else(String::new, |h| {
            format!(", which transaction {h} holds that waits for this one,")
        });
        let e = Error::new(SqlState::DEADLOCK_DETECTED, "deadlock detected").detail(format!(
            "Waiting for {what}{held} would close a cycle of waiting transactions."
        ));
        self.about_wanted(e, wanted)
    }

    /// 55P03 with PostgreSQL's words.
    pub(crate) fn not_available<T>(&self, wanted: Wanted<'_>) -> Result<T> {
        let relation = match wanted {
            Wanted::Row(t, _) | Wanted::Key(t) => format!("row in relation \"{}\"", t.name()),
            Wanted::Table(t) => format!("relation \"{}\"", t.name()),
            Wanted::Schema => "relation \"pg_class\"".into(),
        };
        let what = format!("could not obtain lock on {relation}");
        Err(self.about_wanted(Error::new(SqlState::LOCK_NOT_AVAILABLE, what), wanted))
    }

    fn about_wanted(&self, e: Error, wanted: Wanted<'_>) -> Error {
        match wanted {
            Wanted::Row(t, _) | Wanted::Key(t) | Wanted::Table(t) => self.about(e, t),
            Wanted::Schema => e,
        }
    }

    /// 40001 of the conflict that the statement has met, when it cannot run again.
    pub fn take_conflict(&mut self) -> Option<Error> {
        let conflict = self.statement.conflict.take()?;
        Some(self.conflict_error(&conflict))
    }

    /// 40001 of this conflict.
    pub(crate) fn conflict_error(&self, c: &Conflict) -> Error {
        let label = RowLabel {
            schema: c.schema.clone(),
            table: c.table.clone(),
            key: c.key.clone(),
        };
        let winner = Winner::Committed(c.winner);
        self.shared.races.lost(self.id, label, winner);
        c.error()
    }

    /// Notes a lost race, for people who look.
    fn has_lost(&self, table: &TableHandle, key: &str, winner: Winner) {
        let label = self.label(table, key.to_owned());
        self.shared.races.lost(self.id, label, winner);
    }

    /// Notes a wait for the lock of a row.
    pub(crate) fn note_lock_wait(&self, name: LockName, wanted: Wanted<'_>) {
        if let Wanted::Row(table, key) = wanted {
            let label = || self.label(table, describe_key(table, key));
            self.shared.races.waits(name, label);
        }
    }

    fn label(&self, table: &TableHandle, key: String) -> RowLabel {
        RowLabel {
            schema: self.namespace_of(table),
            table: table.name().to_owned(),
            key,
        }
    }
}

/// The row of an encoded key, as errors show it.
fn describe_key(table: &TableHandle, key: &[u8]) -> String {
    let guard = pin();
    match table.storage.primary.get(key, &guard) {
        Some(r) => table.describe_record(r, &guard),
        None => "(row)".into(),
    }
}
