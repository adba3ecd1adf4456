//! Writes: insert, update, delete, with the constraints that stand at once (NOT NULL, CHECK, PRIMARY KEY and UNIQUE that are not DEFERRABLE).
//!
//! Uniqueness is decided on the newest committed state. A locking transaction locks the unique key's name first, so two
//! inserters of one key meet there; a row in the way that another transaction may be taking away is waited for (its lock)
//! before the answer is 23505. An optimistic transaction looks at its snapshot and asks again at commit.

use base::memory::apart;
use base::schema::{Index, TableDef};
use base::{Error, Position, RowRef, SqlState, Value};
use store::{CHANGING, Expired, SecondaryIndex};

use crate::errors::Wanted;
use crate::handle::{Handle, TableHandle};
use crate::key_values::same;
use crate::locks::{LockMode, WaitPolicy};
use crate::range::column_set;
use crate::stats::Cause;
use crate::stop::{Result, Stop};
use crate::table_modes::TableModes;
use crate::txn::{InsertOutcome, Isolation, Txn};
use crate::unique::no_arbiter;
use crate::writes::{Moved, Pending};

/// Most bytes of changes in one transaction.
const MAX_WRITE_BYTES: usize = 4 << 30;

/// Whether an index is over an expression, or holds the rows that meet a condition.
fn is_computed(def: &TableDef, index: &Index) -> bool {
    let mut columns = index.columns.iter();
    columns.any(|c| def.columns[c.column as usize].is_hidden())
}

impl Txn {
    /// Inserts a row of all columns (dropped ones NULL), types and typmods already applied, defaults filled in. Checks NOT NULL,
    /// CHECK, PRIMARY KEY, UNIQUE at once and foreign keys at the statement's end.
    pub fn insert(&mut self, table: &TableHandle, row: &[Value]) -> Result<()> {
        match apart(|| self.insert_checked(table, row, None))? {
            InsertOutcome::Inserted => Ok(()),
            InsertOutcome::Conflict { .. } => {
                unreachable!("without arbiters a conflict is an error")
            }
        }
    }

    /// The same for ON CONFLICT: a conflict in one of the `arbiters` (places in `TableDef::indexes`; empty: any unique index)
    /// inserts nothing and names the row in the way, which is locked for update.
    pub fn insert_unless_conflict(
        &mut self,
        table: &TableHandle,
        row: &[Value],
        arbiters: &[usize],
    ) -> Result<InsertOutcome> {
        apart(|| self.insert_checked(table, row, Some(arbiters)))
    }

    fn insert_checked(
        &mut self,
        table: &TableHandle,
        row: &[Value],
        arbiters: Option<&[usize]>,
    ) -> Result<InsertOutcome> {
        let handle = self.for_write(table)?;
        self.shared.store.memory.check()?;
        let computed = self.computed(&handle, row)?;
        let row = computed.as_deref().unwrap_or(row);
        self.check_row(&handle, row)?;
        let mut key = Vec::new();
        match handle.primary {
            None if self.standing.elsewhere => {
                key.extend_from_slice(&self.shared.site_row_id().to_be_bytes());
            }
            _ => handle.new_key(row, &mut key)?,
        }
        // Optimistic, and nothing has ever been there or no trace of it is left: neither a conflict nor anything to have seen. The commit
        // asks again.
        let new = !self.options.locking
            && handle.primary.is_some()
            && self.writes.get(handle.storage.id, &key).is_none()
            && handle.storage.primary.get(&key, &store::pin()).is_none();
        // The arbiters are asked first: where one of them skips the row, nobody asks the others.
        let is_arbiter =
            |place: &usize| arbiters.is_some_and(|a| a.is_empty() || a.contains(place));
        let places = 0..handle.indexes.len();
        let others = places.clone().filter(|p| !is_arbiter(p));
        for place in places.filter(is_arbiter).chain(others) {
            let index = &handle.table.def.indexes[place];
            if !index.unique || index.primary && new {
                continue;
            }
            if !index.deferral.is_never() {
                if is_arbiter(&place) {
                    return Err(no_arbiter(self, &handle, place).into());
                }
                self.note_key(&handle, place, row, key.len())?;
                continue;
            }
            let Some(existing) = self.unique_conflict(&handle, place, row, &key, None)? else {
                continue;
            };
            if is_arbiter(&place) {
                if self.options.locking && self.writes.get(handle.storage.id, &existing).is_none() {
                    self.lock_row(&handle, &existing, LockMode::Update, WaitPolicy::Wait)?;
                }
                return Ok(InsertOutcome::Conflict { key: existing });
            }
            return Err(self.unique_error(&handle, place, row).into());
        }
        let saw = match self.writes.get(handle.storage.id, &key) {
            Some(p) => p.saw,
            None if handle.primary.is_none() || new => Position::ZERO,
            None => self.newest_position(&handle, &key)?,
        };
        let own = self.writes.get(handle.storage.id, &key);
        let existed = own.is_some_and(|p| p.existed);
        let row_bytes = Some(self.encode(&handle, row)?);
        self.put(&handle, &key, row_bytes, saw, existed);
        self.note_parents(&handle, &key, None, row);
        Ok(InsertOutcome::Inserted)
    }

    /// Puts `row` in the place of the row of this key, which the statement has read; locks it and checks constraints. The primary
    /// key may change. Referencing rows follow by ON UPDATE at the statement's end.
    pub fn update(&mut self, table: &TableHandle, key: &[u8], row: &[Value]) -> Result<()> {
        apart(|| self.update_checked(table, key, row))
    }

    fn update_checked(&mut self, table: &TableHandle, key: &[u8], row: &[Value]) -> Result<()> {
        let handle = self.for_write(table)?;
        self.shared.store.memory.check()?;
        let computed = self.computed(&handle, row)?;
        let row = computed.as_deref().unwrap_or(row);
        self.check_row(&handle, row)?;
        let mut new_key = Vec::new();
        match handle.primary {
            Some(_) => handle.primary_key(row, &mut new_key)?,
            None => new_key.extend_from_slice(key),
        }
        let (old, saw, existed) = self.current(&handle, key, |row| row.values())?;
        let referenced = self.is_referenced_key_changed(&handle, &old, Some(row));
        let moved = new_key != key;
        let changed = |index: &Index| {
            let mut columns = index.columns.iter();
            columns.any(|c| !same(&old[c.column as usize], &row[c.column as usize]))
        };
        if self.options.locking {
            // A transaction that wants a unique key which the row gives up waits for the row. Partial indexes and those over expressions are no keys of this
            // sort, as in PostgreSQL: an UPDATE that changes only theirs does not wait for rows that refer to this one. A transaction that wants a key
            // of theirs waits for any UPDATE of the row.
            let def = &handle.table.def;
            let is_key = |i: &Index| i.unique && !is_computed(def, i);
            let gives_up = def.indexes.iter().any(|i| is_key(i) && changed(i));
            let mode = if moved || referenced || gives_up {
                LockMode::Update
            } else {
                LockMode::NoKeyUpdate
            };
            self.lock_row(&handle, key, mode, WaitPolicy::Wait)?;
        }
        for place in 0..handle.indexes.len() {
            let index = &handle.table.def.indexes[place];
            if !index.unique || !changed(index) {
                continue;
            }
            if !index.deferral.is_never() {
                self.note_key(&handle, place, row, new_key.len())?;
            } else if self
                .unique_conflict(&handle, place, row, &new_key, Some(key))?
                .is_some()
            {
                return Err(self.unique_error(&handle, place, row).into());
            }
        }
        let bytes = match handle.spreads.is_empty() {
            true => self.encode(&handle, row)?,
            false => {
                let mut new = row.to_vec();
                let old = (!moved).then_some(&old[..]);
                self.carry_records(&handle, key, old, Some(&mut new))?;
                self.encode(&handle, &new)?
            }
        };
        if moved {
            self.put(&handle, key, None, saw, existed);
            let own = self.writes.get(handle.storage.id, &new_key);
            let (saw, existed) = match own.map(|p| (p.saw, p.existed)) {
                Some(o) => o,
                None => (self.newest_position(&handle, &new_key)?, false),
            };
            self.put(&handle, &new_key, Some(bytes), saw, existed);
        } else {
            self.put(&handle, key, Some(bytes), saw, existed);
        }
        self.note_parents(&handle, &new_key, Some(&old), row);
        if referenced {
            self.follow_children(&handle, &old, Some(row));
        }
        Ok(())
    }

    /// Deletes the row of this key, which the statement has read. Referencing rows follow by ON DELETE at the statement's
    /// end. False when this statement has deleted it already.
    pub fn delete(&mut self, table: &TableHandle, key: &[u8]) -> Result<bool> {
        apart(|| self.delete_checked(table, key))
    }

    fn delete_checked(&mut self, table: &TableHandle, key: &[u8]) -> Result<bool> {
        let handle = self.for_write(table)?;
        if self
            .writes
            .get(handle.storage.id, key)
            .is_some_and(|p| p.row.is_none())
        {
            return Ok(false);
        }
        let referenced = !handle.table.referenced_by.is_empty();
        let read = |row: RowRef<'_>| referenced.then(|| row.values());
        let (old, saw, existed) = self.current(&handle, key, read)?;
        if self.options.locking {
            self.lock_row(&handle, key, LockMode::Update, WaitPolicy::Wait)?;
        }
        self.carry_records(&handle, key, None, None)?;
        self.put(&handle, key, None, saw, existed);
        if let Some(old) = old {
            self.follow_children(&handle, &old, None);
        }
        Ok(true)
    }

    /// The handle that this transaction writes through, after the checks that stand before every write.
    pub(crate) fn for_write<'t>(&mut self, table: &'t TableHandle) -> Result<Handle<'t>> {
        if self.options.read_only && !table.temporary {
            return Err(Error::new(
                SqlState::READ_ONLY_SQL_TRANSACTION,
                "cannot execute a statement that writes in a read-only transaction",
            )
            .into());
        }
        self.shared.check_accepts_writes()?;
        self.check_outdated()?;
        let handle = match self.schema.catalog.table(table.table.def.id) {
            Some(h) if std::ptr::eq(&**h, table) => Handle::Same(table),
            Some(h) if h.has_columns_of(table) => Handle::Newer(h.clone()),
            Some(h) => return Err(self.schema_moved(Some(h)).into()),
            None => return Err(Error::internal("a table that the schema does not have").into()),
        };
        if handle.shape != handle.storage.shape() && !self.owns_shape(&handle) {
            if handle.storage.shape() == CHANGING && self.options.locking {
                self.lock(
                    handle.table_lock(),
                    LockMode::Table(TableModes::ROW_EXCLUSIVE),
                    WaitPolicy::Wait,
                    Wanted::Table(&handle),
                )?;
            }
            return Err(self.schema_moved(Some(&handle)).into());
        }
        if self.own_writes(&handle)?.is_none() {
            self.use_table(&handle, TableModes::ROW_EXCLUSIVE)?;
        }
        if self.writes.bytes() > MAX_WRITE_BYTES {
            let what =
                format!("transaction is too big: the limit is {MAX_WRITE_BYTES} bytes of changes");
            return Err(Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, what).into());
        }
        Ok(handle)
    }

    pub(crate) fn put(
        &mut self,
        handle: &TableHandle,
        key: &[u8],
        row: Option<Box<[u8]>>,
        saw: Position,
        existed: bool,
    ) {
        self.put_change(handle, key, (row, saw, existed), None);
    }

    /// The row changes by deltas alone, and looks like this at its snapshot.
    pub(crate) fn put_moved(
        &mut self,
        handle: &TableHandle,
        key: &[u8],
        row: Box<[u8]>,
        saw: Position,
        moved: Moved,
    ) {
        self.put_change(handle, key, (Some(row), saw, true), Some(moved.into()));
    }

    fn put_change(
        &mut self,
        handle: &TableHandle,
        key: &[u8],
        (row, saw, existed): (Option<Box<[u8]>>, Position, bool),
        moved: Option<Box<Moved>>,
    ) {
        let shared = || self.schema.catalog.tables[&handle.table.def.id].clone();
        // Most often the row that was read last.
        let kept = self.reads.view.as_ref().map_or(0, |v| v.kept());
        let change = Pending {
            row,
            saw,
            existed,
            kept: kept.checked_sub(1),
            moved,
        };
        self.writes.put(handle, shared, key, change);
        self.charge();
    }

    /// The row of this key as this transaction sees it: what `read` takes of it, position of the committed version, whether there is one.
    fn current<R>(
        &mut self,
        handle: &TableHandle,
        key: &[u8],
        read: impl FnOnce(RowRef<'_>) -> R,
    ) -> Result<(R, Position, bool)> {
        self.refresh_moved(handle.storage.id, key)?;
        if let Some(p) = self.writes.get(handle.storage.id, key) {
            let row = p
                .row
                .as_deref()
                .ok_or_else(|| Error::internal("a row that is gone is changed"))?;
            let layout = &handle.table.layout;
            let shown = match handle.spreads.is_empty() {
                true => None,
                false => self.shown(handle, key, layout.row(row))?,
            };
            let row = layout.row(shown.as_deref().unwrap_or(row));
            return Ok((read(row), p.saw, p.existed));
        }
        let guard = store::pin();
        let view = self
            .reads
            .view
            .as_mut()
            .ok_or_else(|| Error::internal("a change before begin_statement"))?;
        let found = view
            .get(&handle.storage, key, None, &guard)
            .map_err(|Expired| Txn::snapshot_too_old())?
            .ok_or_else(|| Error::internal("a row that was not read is changed"))?;
        let (layout, position) = (&handle.table.layout, found.position);
        let row = layout.row(found.row);
        let shown = match handle.spreads.is_empty() {
            true => None,
            false => self.shown(handle, key, row)?,
        };
        let row = shown.as_deref().map_or(row, |r| layout.row(r));
        Ok((read(row), position, true))
    }

    fn newest_position(&mut self, handle: &TableHandle, key: &[u8]) -> base::Result<Position> {
        // At a site the lock keeps away no replay, which may have brought a row since the key was looked for.
        if self.options.locking && !self.shared.is_site() {
            return Ok(self.shared.newest_position(handle, key));
        }
        // What the snapshot shows; a newer version fails the commit.
        let guard = store::pin();
        let at = self.view()?.position();
        let record = handle.storage.primary.get(key, &guard);
        Ok(record
            .and_then(|r| r.at(at, &guard))
            .map_or(Position::ZERO, |v| v.position()))
    }

    fn encode(&mut self, handle: &TableHandle, row: &[Value]) -> base::Result<Box<[u8]>> {
        self.scratch.clear();
        let version = handle.table.def.row_version;
        handle
            .table
            .layout
            .encode(version, row, &mut self.scratch)?;
        Ok(self.scratch[..].into())
    }

    /// Writes the generated columns of a row, as [`Txn::insert`] and [`Txn::update`] do by themselves: for callers that look at the row.
    pub fn generate(&mut self, table: &TableHandle, row: &mut [Value]) -> base::Result<()> {
        if !table.generates {
            return Ok(());
        }
        match table.rules(&self.schema.catalog.schema, self.shared.compiler())? {
            Some(r) => r.generate(row),
            None => Ok(()),
        }
    }

    /// The row with its generated columns; none for a table without any.
    fn computed(
        &mut self,
        handle: &TableHandle,
        row: &[Value],
    ) -> base::Result<Option<Vec<Value>>> {
        if !handle.generates {
            return Ok(None);
        }
        let mut row = row.to_vec();
        self.generate(handle, &mut row)?;
        Ok(Some(row))
    }

    pub(crate) fn check_row(&mut self, handle: &TableHandle, row: &[Value]) -> base::Result<()> {
        let def = &handle.table.def;
        for (c, v) in def.columns.iter().zip(row) {
            if v.is_null() && c.not_null && !c.dropped {
                let what = format!(
                    "null value in column \"{}\" of relation \"{}\" violates not-null constraint",
                    c.name, def.name
                );
                let live = row.iter().zip(&def.columns).filter(|(_, c)| !c.dropped);
                let values: Vec<String> = live.map(|(v, _)| crate::handle::plain(v)).collect();
                return Err(Error::new(SqlState::NOT_NULL_VIOLATION, what)
                    .detail(format!("Failing row contains ({}).", values.join(", ")))
                    .table(&self.namespace_of(handle), &def.name)
                    .column(&c.name));
            }
        }
        if !handle.checked {
            return Ok(());
        }
        match handle.rules(&self.schema.catalog.schema, self.shared.compiler())? {
            Some(r) => r.check(row),
            None => Ok(()),
        }
    }

    /// The row, other than `old_key`'s, that has this row's key in a unique index.
    fn unique_conflict(
        &mut self,
        handle: &TableHandle,
        place: usize,
        row: &[Value],
        row_key: &[u8],
        old_key: Option<&[u8]>,
    ) -> Result<Option<Box<[u8]>>> {
        let def = &handle.table.def.indexes[place];
        if def.primary {
            if self.options.locking {
                self.lock(
                    handle.row_lock(row_key),
                    LockMode::Update,
                    WaitPolicy::Wait,
                    Wanted::Row(handle, row_key),
                )?;
            }
            return self.wait_for_conflict(handle, place, row_key, old_key.unwrap_or(&[]));
        }
        let Some(columns) = handle.unique_key(place, row) else {
            return Ok(None);
        };
        handle.check_key(columns.len() + row_key.len(), &def.name)?;
        if self.options.locking {
            let index: &SecondaryIndex =
                handle.indexes[place].as_deref().expect("a secondary index");
            let name = TableHandle::unique_lock(index, &columns);
            self.lock(
                name,
                LockMode::Update,
                WaitPolicy::Wait,
                Wanted::Key(handle),
            )?;
        }
        self.wait_for_conflict(handle, place, &columns, old_key.unwrap_or(row_key))
    }

    /// Looks for the key in the newest state. A row in the way that another transaction holds is waited for.
    fn wait_for_conflict(
        &mut self,
        handle: &TableHandle,
        place: usize,
        key: &[u8],
        not: &[u8],
    ) -> Result<Option<Box<[u8]>>> {
        self.has_passed();
        let found = self.conflict_in(handle, place, key, not);
        let Some(other) = found.filter(|k| k[..] != *not) else {
            return Ok(None);
        };
        let own = self.writes.get(handle.storage.id, &other).is_some();
        if self.options.locking && !own {
            let (name, locks) = (handle.row_lock(&other), &self.shared.locks);
            let computed = is_computed(&handle.table.def, &handle.table.def.indexes[place]);
            let had = locks.mode_of(self.id, name);
            if computed && had.is_none_or(|m| m == LockMode::KeyShare) {
                self.locks.passing = Some(name);
            }
            let mode = match computed {
                true => LockMode::Share,
                false => LockMode::KeyShare,
            };
            self.lock(name, mode, WaitPolicy::Wait, Wanted::Row(handle, &other))?;
            self.has_passed();
            let found = self.conflict_in(handle, place, key, not);
            let found = found.filter(|k| k[..] != *not);
            if let Some(other) = &found {
                self.is_in_snapshot(handle, other)?;
                self.is_read(handle, place, other)?;
            }
            return Ok(found);
        }
        if !own {
            self.is_in_snapshot(handle, &other)?;
            self.is_read(handle, place, &other)?;
        }
        Ok(Some(other))
    }

    /// After a wait for an UPDATE of a row: later ones need not wait for this transaction.
    pub(crate) fn has_passed(&mut self) {
        if let Some(name) = self.locks.passing.take()
            && self.shared.locks.mode_of(self.id, name) == Some(LockMode::Share)
        {
            self.shared.locks.weaken(self.id, name, LockMode::KeyShare);
        }
    }

    /// That a row has the key is told, or acted on: it counts as read, in the columns of the key.
    fn is_read(&mut self, handle: &TableHandle, place: usize, key: &[u8]) -> Result<()> {
        if self.tracks_reads() {
            let columns = handle.table.def.indexes[place].columns.iter();
            let columns: Vec<_> = columns.map(|c| c.column).collect();
            self.get_columns(handle, key, column_set(&columns), |_| ())?;
        }
        Ok(())
    }

    /// A row in the way that came after the snapshot is no duplicate yet: it says that the transaction looked at an older state.
    /// The snapshot moves, and what is a duplicate then is one; an optimistic transaction runs again.
    fn is_in_snapshot(&mut self, handle: &TableHandle, key: &[u8]) -> Result<()> {
        // READ COMMITTED acts on the newest row, but a site may have received rows that it does not show yet.
        if self.options.isolation == Isolation::ReadCommitted && !self.standing.elsewhere {
            return Ok(());
        }
        match self.check_newest(handle, key) {
            Err(Stop::Restart) if !self.options.locking => {
                self.shared.stats.abort(Cause::WriteConflict);
                Err(self.take_conflict().map_or(Stop::Restart, Stop::Error))
            }
            checked => checked.map(drop),
        }
    }

    pub(crate) fn unique_error(&self, handle: &TableHandle, place: usize, row: &[Value]) -> Error {
        if self.options.isolation == Isolation::ReadCommitted {
            self.tells_of_newest();
        }
        let index = &handle.table.def.indexes[place];
        let columns: Vec<usize> = index.written().iter().map(|c| c.column as usize).collect();
        let what = format!(
            "duplicate key value violates unique constraint \"{}\"",
            index.name
        );
        Error::new(SqlState::UNIQUE_VIOLATION, what)
            .detail(format!(
                "Key {} already exists.",
                handle.describe(&columns, row)
            ))
            .table(&self.namespace_of(handle), handle.name())
            .constraint(&index.name)
    }
}
