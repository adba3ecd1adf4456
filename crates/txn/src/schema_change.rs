//! Schema changes inside a transaction.
//!
//! One transaction at a time changes the schema (a lock). It sees its changes at once, through a catalog of its own; others
//! see them when it commits. A table that exists is *quiesced* first: its storage's shape is marked `CHANGING`, so that no
//! commit that takes its position from then on may write to it, and commits on their way are waited for. Then new
//! indexes are built, rows rewritten and constraints checked, once, over the newest rows; nobody changes them until the
//! change commits or is rolled back. Readers are not concerned: old snapshots use the old schema, its storages and indexes.
//!
//! A transaction that had written to the table commits before the mark or fails with 40001; one that comes to write waits
//! for the lock on the table.
//!
//! Left out on purpose: building an index beside running writers (writers to that table wait meanwhile).

use base::schema::{Change, Object, TableDef};
use base::split::Mode;
use base::{Error, Oid, Position, Result, SqlState};
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use store::{CHANGING, NewVersion, SecondaryIndex, Storage, Store, pin};

use crate::errors::Wanted;
use crate::handle::{Catalog, Spread, TableHandle};
use crate::locks::{LockMode, LockName, WaitPolicy};
use crate::manager::{TxnManager, build_catalog, publish_table};
use crate::own_schema::{OwnSchema, Step, each_new_handle};
use crate::stop;
use crate::txn::Txn;
use crate::writes::TableWrites;

/// The lock that serialises schema changes.
const SCHEMA_LOCK: LockName = LockName { space: 0, hash: 0 };

impl Txn {
    /// Takes the lock that serialises schema changes (may end with [`Stop::Blocked`](crate::Stop)) and moves to the newest schema. Call first in a
    /// DDL statement.
    pub fn lock_schema(&mut self) -> stop::Result<()> {
        if self.options.read_only {
            return Err(Error::new(
                SqlState::READ_ONLY_SQL_TRANSACTION,
                "cannot change the schema in a read-only transaction",
            )
            .into());
        }
        self.shared.check_accepts_writes()?;
        self.lock(
            SCHEMA_LOCK,
            LockMode::Update,
            WaitPolicy::Wait,
            Wanted::Schema,
        )?;
        if self.schema.own.is_none() {
            self.schema.see(self.shared.catalog());
            self.schema.own = Some(OwnSchema::default());
        }
        Ok(())
    }

    /// Numbers for new objects.
    pub fn new_oid(&mut self) -> Oid {
        self.shared.new_oid()
    }

    /// Whether the handle's storage is in this transaction's hands.
    pub(crate) fn owns_shape(&self, table: &TableHandle) -> bool {
        self.owns(&table.storage)
    }

    pub(crate) fn owns(&self, storage: &Storage) -> bool {
        self.schema.own.as_ref().is_some_and(|s| {
            s.private.contains_key(&storage.id)
                || s.quiesced.iter().any(|(q, ..)| q.id == storage.id)
        })
    }

    /// The table as it is now: who wrote its newest rows may know of a change of it that this transaction does not.
    pub(crate) fn newest_of(&self, table: &Arc<TableHandle>) -> Arc<TableHandle> {
        if table.storage.shape() == table.shape || self.owns_shape(table) {
            return table.clone();
        }
        let now = self.shared.catalog();
        now.table(table.table.def.id).unwrap_or(table).clone()
    }

    /// What this transaction has changed in the table. 40001 when that was under another shape of it: others have changed the table since,
    /// and a commit would be refused.
    pub(crate) fn own_writes(&self, table: &TableHandle) -> Result<Option<&TableWrites>> {
        match self.writes.of(table.storage.id) {
            Some(w) if w.table.shape != table.shape => Err(self.schema_moved(Some(table))),
            own => Ok(own),
        }
    }

    /// Applies changes to the transaction's schema. New tables and storages are usable at once; new indexes are built, and constraints
    /// over existing rows are checked, here. After an error the transaction must be rolled back, to a savepoint at least.
    pub fn change_schema(&mut self, changes: Vec<Change>) -> stop::Result<()> {
        assert!(self.schema.own.is_some(), "lock_schema comes first");
        let before = self.schema.catalog.clone();
        let mut step = Step {
            mark: self.writes.mark_schema(),
            changes: self.schema.own.as_ref().map_or(0, |s| s.changes.len()),
            attached: self.schema.own.as_ref().map_or(0, |s| s.attached.len()),
            catalog: before.clone(),
            private: Vec::new(),
        };
        for c in &changes {
            let id = match c {
                Change::Put(o) => o.id(),
                Change::Drop(id) => *id,
            };
            if let Some(h) = before.tables.get(&id).cloned() {
                self.close_table(&h)?;
            }
        }
        self.gather_before(&before, &changes)?;
        let schema = Arc::new(before.schema.apply(&changes));
        let own = self.schema.own.as_mut().expect("checked above");
        for c in &changes {
            if let Change::Put(Object::Table(t)) = c
                && before
                    .tables
                    .get(&t.id)
                    .is_none_or(|h| h.storage.id != t.storage)
            {
                own.made_for.insert(t.storage, t.id);
                own.private.entry(t.storage).or_insert_with(|| {
                    step.private.push(t.storage);
                    Arc::new(Storage::new(t.storage))
                });
            }
        }
        let catalog = build_catalog(&self.shared.store, &before, schema, &own.private);
        own.steps.push(step);
        own.changes.extend(changes.iter().cloned());
        self.schema.catalog = Arc::new(catalog);
        for c in &changes {
            let Change::Put(Object::Table(def)) = c else {
                continue;
            };
            let new = self.schema.catalog.tables[&def.id].clone();
            self.adopt(before.tables.get(&def.id), &new, def)?;
        }
        Ok(())
    }

    /// Rows take their further records back where the new definition has no place for them, or another one, or asks the rows.
    fn gather_before(&mut self, before: &Catalog, changes: &[Change]) -> Result<()> {
        for c in changes {
            let Change::Put(Object::Table(now)) = c else {
                continue;
            };
            let Some(h) = before
                .tables
                .get(&now.id)
                .filter(|h| h.has_further_records())
            else {
                continue;
            };
            let was = &h.table.def;
            // A hidden table goes, or begins anew without a row.
            let goes = |s: &Spread| {
                let hidden = &s.table;
                changes.iter().any(|c| match c {
                    Change::Put(Object::Table(t)) => {
                        t.id == hidden.table.def.id && t.storage != hidden.storage.id
                    }
                    Change::Drop(id) => *id == hidden.table.def.id,
                    Change::Put(_) => false,
                })
            };
            let asks = |t: &TableDef| {
                let checks = t.checks.iter().map(|c| c.id);
                let keys = t.foreign_keys.iter().map(|f| f.id);
                let all = checks.chain(keys).chain(t.indexes.iter().map(|i| i.id));
                all.collect::<Vec<_>>()
            };
            // What the limits of records are made of.
            let limits = |t: &TableDef| {
                let splits = t.columns.iter().filter_map(|c| c.split.clone());
                let splits = splits.map(|s| (s.mode, s.max, s.lower, s.upper));
                splits.collect::<Vec<_>>()
            };
            let in_rows = |t: &TableDef| {
                let mut splits = t.columns.iter().filter_map(|c| c.split.as_ref());
                splits.any(|s| s.mode == Mode::Rows)
            };
            let relimited = (in_rows(was) || in_rows(now)) && limits(was) != limits(now);
            let stays = was.storage == now.storage;
            if stays && (relimited || h.spreads.iter().any(goes) || asks(was) != asks(now)) {
                self.gather_all(h)?;
            }
        }
        Ok(())
    }

    /// Whether this transaction has changed rows of the table. (Rows that move to new storage are the committed ones.)
    pub fn has_pending(&self, table: &TableHandle) -> bool {
        let own = self.writes.of(table.storage.id);
        own.is_some_and(|w| !w.rows.is_empty())
    }

    /// No commit changes the table from here until this transaction ends.
    pub(crate) fn quiesce(&mut self, handle: &Arc<TableHandle>) -> stop::Result<()> {
        if self.owns_shape(handle) {
            return Ok(());
        }
        self.lock(
            handle.table_lock(),
            LockMode::Update,
            WaitPolicy::Wait,
            Wanted::Table(handle),
        )?;
        let shape = handle.storage.shape();
        let own = self.schema.own.as_mut().expect("in a schema change");
        let table = handle.table.def.id;
        own.quiesced.push((handle.storage.clone(), shape, table));
        handle.storage.set_shape(CHANGING);
        // Who validated against the old shape has a position below this wait's end, or locks its records before it asks for one;
        // both are over when the records are free.
        let guard = pin();
        let settled = handle.storage.try_for_each(&guard, |r| {
            self.check_told()?;
            crate::settle::settle(r);
            Ok(())
        });
        if settled.is_err() {
            // It is not in this transaction's hands, and another try of it starts anew.
            let own = self.schema.own.as_mut().expect("in a schema change");
            own.quiesced.pop();
            handle.storage.set_shape(shape);
        }
        settled
    }

    /// Brings a changed table's rows, indexes and pending writes under its new definition.
    fn adopt(
        &mut self,
        old: Option<&Arc<TableHandle>>,
        new: &Arc<TableHandle>,
        def: &TableDef,
    ) -> stop::Result<()> {
        let Some(old) = old else { return Ok(()) };
        if let Some(from) = def.rewrite_of {
            assert_eq!(
                from, old.storage.id,
                "rows are rewritten from the table's storage"
            );
            rewrite(old, new, &self.shared.store, &|| self.check_told())?;
            let bad = std::cell::RefCell::new(None);
            let rekey = |row: &[u8]| {
                let mut key = Vec::new();
                let values = new.table.layout.row(row).values();
                if let Err(e) = new.new_key(&values, &mut key) {
                    bad.borrow_mut().get_or_insert(e);
                }
                key
            };
            self.writes.replace_table(old.storage.id, new, Some(&rekey));
            if let Some(e) = bad.into_inner() {
                return Err(e.into());
            }
        } else if old.storage.id == new.storage.id {
            self.writes.replace_table(old.storage.id, new, None);
        }
        for (place, index) in new.indexes.iter().enumerate() {
            let Some(index) = index else { continue };
            let known = old.storage.id == new.storage.id
                && old.table.def.indexes.iter().any(|i| i.id == index.spec.id);
            if !known {
                new.storage.attach([index.clone()]);
                let own = self.schema.own.as_mut().expect("in a schema change");
                own.attached
                    .push((new.storage.clone(), index.spec.id, def.id));
                build_index(new, place, &self.shared.store, &|| self.check_told())?;
                self.check_own_unique(new, place)?;
            }
        }
        self.check_existing_rows(old, new)
    }

    /// Two pending rows with one unique key, or a pending row and a stored one.
    pub(crate) fn check_own_unique(&self, table: &Arc<TableHandle>, place: usize) -> Result<()> {
        if !table.table.def.indexes[place].unique {
            return Ok(());
        }
        let Some(w) = self.writes.of(table.storage.id) else {
            return Ok(());
        };
        for (key, p) in &w.rows {
            let Some(row) = &p.row else { continue };
            let values = table.table.layout.row(row).values();
            let index = table.indexes[place].as_deref().expect("a secondary index");
            let mut columns = Vec::new();
            let null = index.spec.columns_of(row, &mut columns);
            let distinct = null && !index.spec.nulls_not_distinct;
            if !distinct && self.conflict_in(table, place, &columns, key).is_some() {
                return Err(self.unique_error(table, place, &values));
            }
        }
        Ok(())
    }

    /// NOT NULL, CHECK and foreign keys that the new definition has, or holds to be valid, and the old did not.
    pub(crate) fn check_existing_rows(
        &mut self,
        old: &Arc<TableHandle>,
        new: &Arc<TableHandle>,
    ) -> stop::Result<()> {
        let (o, n) = (&old.table.def, &new.table.def);
        let not_null: Vec<usize> = (0..n.columns.len())
            .filter(|i| {
                let c = &n.columns[*i];
                c.not_null && !c.dropped && o.columns.get(*i).is_none_or(|b| !b.not_null)
            })
            .collect();
        let held = |id| o.checks.iter().any(|b| b.id == id && !b.not_valid);
        let new_checks = n.checks.iter().any(|c| !c.not_valid && !held(c.id))
            || n.columns.iter().enumerate().any(|(i, c)| {
                let same = o.columns.get(i).is_some_and(|b| b.same_rules(c));
                c.domain.is_some() && !c.dropped && !same
            });
        let held = |id| o.foreign_keys.iter().any(|b| b.id == id && !b.not_valid);
        let keys = n.foreign_keys.iter().enumerate();
        let new_keys: Vec<usize> = keys
            .filter(|(_, f)| !f.not_valid && !held(f.id))
            .map(|(place, _)| place)
            .collect();
        if not_null.is_empty() && !new_checks && new_keys.is_empty() {
            return Ok(());
        }
        let rules = if new_checks {
            new.rules(&self.schema.catalog.schema, self.shared.compiler())?
                .cloned()
        } else {
            None
        };
        for row in self.all_rows(new)? {
            self.check_told()?;
            let values = new.table.layout.row(&row).values();
            if let Some(i) = not_null.iter().find(|i| values[**i].is_null()) {
                let column = &n.columns[*i].name;
                let what = format!(
                    "column \"{column}\" of relation \"{}\" contains null values",
                    n.name
                );
                return Err(Error::new(SqlState::NOT_NULL_VIOLATION, what)
                    .table(&self.namespace_of(new), &n.name)
                    .column(column)
                    .into());
            }
            if let Some(r) = &rules {
                r.check_stored(&values)
                    .map_err(|e| existing_row_error(e, &n.name))?;
            }
            self.note_existing(new, &new_keys, &values);
        }
        if !new_keys.is_empty() {
            self.check_foreign_keys()?;
        }
        Ok(())
    }

    /// Every row of a quiesced table, pending ones included.
    fn all_rows(&self, table: &TableHandle) -> Result<Vec<Vec<u8>>> {
        let guard = pin();
        let own = self.writes.of(table.storage.id);
        let mut rows = Vec::new();
        table.storage.try_for_each(&guard, |r| {
            self.check_told()?;
            if own.is_none_or(|w| !w.rows.contains_key(r.key())) {
                rows.extend(r.newest(&guard).and_then(|v| v.row()).map(<[u8]>::to_vec));
            }
            Ok(())
        })?;
        let pending = own
            .into_iter()
            .flat_map(|w| w.rows.values())
            .filter_map(|p| p.row.as_deref());
        rows.extend(pending.map(<[u8]>::to_vec));
        Ok(rows)
    }

    /// Takes back schema changes made since the mark.
    pub(crate) fn rollback_schema(&mut self, mark: usize) {
        loop {
            let view = &mut self.schema;
            let last = |m: Option<usize>| m.filter(|m| *m >= mark);
            let own = view.own.as_ref().and_then(|s| s.steps.last());
            let temp = view.temp.as_ref().and_then(|t| t.steps.last());
            let (own, temp) = (last(own.map(|s| s.mark)), last(temp.map(|s| s.mark)));
            if own.is_none() && temp.is_none() {
                return;
            }
            // The later of the two first: each step knows what was before it.
            if temp > own {
                let temp = view.temp.as_mut().expect("it has a step");
                let step = temp.steps.pop().expect("looked at");
                step.tables.reshape();
                (temp.now, view.catalog) = (step.tables, step.catalog);
                continue;
            }
            let own = view.own.as_mut().expect("it has a step");
            let step = own.steps.pop().expect("looked at");
            own.changes.truncate(step.changes);
            own.detach_from(step.attached);
            own.forget_private(step.private);
            view.catalog = step.catalog;
        }
    }

    /// The transaction ends without its schema changes.
    pub(crate) fn abandon_schema(&mut self) {
        let Some(mut own) = self.schema.own.take() else {
            return;
        };
        own.detach_from(0);
        let private: Vec<u32> = own.private.keys().copied().collect();
        own.forget_private(private);
        for (storage, shape, _) in own.quiesced {
            storage.set_shape(shape);
        }
    }
}

fn existing_row_error(e: Error, table: &str) -> Error {
    let f = e.fields();
    if f.code != SqlState::CHECK_VIOLATION {
        return e;
    }
    let what = format!(
        "check constraint \"{}\" of relation \"{table}\" is violated by some row",
        f.constraint
    );
    Error::new(SqlState::CHECK_VIOLATION, what)
        .table(&f.schema, &f.table)
        .constraint(&f.constraint)
}

/// What nobody can cancel.
const ALWAYS: CheckCancelled<'static> = &|| Ok(());

/// Asked in long work whether it goes on: an error ends it.
type CheckCancelled<'a> = &'a dyn Fn() -> Result<()>;

/// Copies the newest rows of a quiesced table into storage keyed by the new primary key. Without one they are numbered in the
/// order of the old keys, so that recovery and replicas give the same rows the same numbers.
fn rewrite(
    old: &TableHandle,
    new: &TableHandle,
    store: &Store,
    check_cancelled: CheckCancelled<'_>,
) -> Result<()> {
    let guard = pin();
    let mut key = Vec::new();
    old.storage.try_for_each(&guard, |r| {
        check_cancelled()?;
        let Some(v) = r.newest(&guard) else {
            return Ok(());
        };
        let Some(row) = v.row() else { return Ok(()) };
        key.clear();
        // Read by the new definition: the key may have a column that the row was written without.
        let values = new.table.layout.row(row).values();
        let columns = &new.key_columns;
        if let Some(c) = columns.iter().find(|c| values[**c].is_null()) {
            let name = &new.table.def.columns[*c].name;
            let what = format!(
                "column \"{name}\" of relation \"{}\" contains null values",
                new.name()
            );
            return Err(Error::new(SqlState::NOT_NULL_VIOLATION, what).column(name));
        }
        new.new_key(&values, &mut key)?;
        let record = new.storage.find_or_create(&key, &store.memory, &guard);
        if record.newest(&guard).is_some() {
            let place = new.primary.expect("rewritten for a primary key");
            let name = &new.table.def.indexes[place].name;
            let what = format!("could not create unique index \"{name}\"");
            let detail = format!("Key {} is duplicated.", new.describe(columns, &values));
            return Err(Error::new(SqlState::UNIQUE_VIOLATION, what)
                .detail(detail)
                .constraint(name));
        }
        record.try_lock().expect("the storage is ours alone");
        let version = NewVersion::new(Some(row));
        store.memory.add(version.rounded());
        record.push(version, v.position(), v.stamp());
        record.unlock();
        new.storage.count(1);
        Ok(())
    })
}

/// Links an entry for every version of every row of a quiesced table, so that old snapshots find their rows too. Fails on a
/// duplicate among the newest rows of a unique index.
fn build_index(
    table: &TableHandle,
    place: usize,
    store: &Store,
    check_cancelled: CheckCancelled<'_>,
) -> Result<()> {
    let index = table.indexes[place].as_deref().expect("a secondary index");
    table.storage.fill(index, &store.memory, check_cancelled)?;
    if table.table.def.indexes[place].unique {
        check_unique(table, place, check_cancelled)
    } else {
        Ok(())
    }
}

fn check_unique(
    table: &TableHandle,
    place: usize,
    check_cancelled: CheckCancelled<'_>,
) -> Result<()> {
    let index = table.indexes[place].as_deref().expect("a secondary index");
    let guard = pin();
    let mut last: Option<Vec<u8>> = None;
    let (mut duplicate, mut stopped) = (None, Ok(()));
    let (mut scratch, mut columns) = (Vec::new(), Vec::new());
    crate::range::each_in_range(
        table,
        Some(index),
        &base::KeyRange::all(),
        &guard,
        &mut |r, entry| {
            stopped = check_cancelled();
            if stopped.is_err() {
                return false;
            }
            let (Some(row), Some(e)) = (r.newest(&guard).and_then(|v| v.row()), entry) else {
                return true;
            };
            if !index.matches(e, row, &mut scratch) {
                return true;
            }
            columns.clear();
            let null = index.spec.columns_of(row, &mut columns);
            if null && !index.spec.nulls_not_distinct {
                return true;
            }
            if last.as_deref() == Some(&columns[..]) {
                duplicate = Some(row.to_vec());
                return false;
            }
            last = Some(columns.clone());
            true
        },
    );
    stopped?;
    let Some(row) = duplicate else { return Ok(()) };
    let def = &table.table.def.indexes[place];
    let places: Vec<usize> = def.written().iter().map(|c| c.column as usize).collect();
    let detail = format!(
        "Key {} is duplicated.",
        table.describe(&places, &table.table.layout.row(&row).values())
    );
    let what = format!("could not create unique index \"{}\"", def.name);
    Err(Error::new(SqlState::UNIQUE_VIOLATION, what)
        .detail(detail)
        .constraint(&def.name))
}

/// For recovery: the schema after `changes`, its tables in the store, rows rewritten where a change says so. Indexes stay empty
/// (see [`fill_indexes`]).
pub fn replay_changes(store: &Store, before: &Catalog, changes: &[Change]) -> Result<Catalog> {
    let schema = Arc::new(before.schema.apply(changes));
    let after = build_catalog(store, before, schema, &HashMap::new());
    each_new_handle(before, &after, &mut |handle| {
        publish_table(store, handle);
        let now: Vec<_> = handle.indexes.iter().flatten().cloned().collect();
        handle.storage.set_indexes(now);
    });
    for c in changes {
        let Change::Put(Object::Table(def)) = c else {
            continue;
        };
        if def.rewrite_of.is_some()
            && let (Some(old), Some(new)) = (before.tables.get(&def.id), after.tables.get(&def.id))
        {
            rewrite(old, new, store, ALWAYS)?;
        }
    }
    before
        .tables
        .each_change(&after.tables, &mut |_, old, new| {
            if let Some(old) = old
                && new.is_none_or(|n| n.storage.id != old.storage.id)
            {
                store.remove(old.storage.id);
            }
        });
    Ok(after)
}

/// Whether replay has to be still while these changes are followed: rows are copied from one storage to another.
pub fn is_rewrite(changes: &[Change]) -> bool {
    changes
        .iter()
        .any(|c| matches!(c, Change::Put(Object::Table(def)) if def.rewrite_of.is_some()))
}

/// At a replica: the schema after `changes` is valid from `at`. When this returns, writers find the storages of new tables in the
/// store and link entries of new indexes. Storages and indexes that are gone stay until no snapshot sees them (`forget_before`).
/// Indexes over rows that are there are returned (table, place of the index): to be filled before the change may be shown.
pub fn follow_changes(
    shared: &TxnManager,
    at: Position,
    changes: &[Change],
) -> Result<Vec<(Arc<TableHandle>, usize)>> {
    let store = &shared.store;
    let before = shared.catalog();
    let schema = Arc::new(before.schema.apply(changes));
    let after = build_catalog(store, &before, schema, &HashMap::new());
    let mut unfilled = Vec::new();
    each_new_handle(&before, &after, &mut |handle| {
        let id = handle.table.def.id;
        let old = before.tables.get(&id);
        let same = old.filter(|o| o.storage.id == handle.storage.id);
        let has = |h: &TableHandle, i: &SecondaryIndex| {
            let mut all = h.indexes.iter().flatten();
            all.any(|o| o.spec.id == i.spec.id)
        };
        publish_table(store, handle);
        let Some(same) = same else { return };
        for (place, index) in handle.indexes.iter().enumerate() {
            if index.as_ref().is_some_and(|i| !has(same, i)) {
                unfilled.push((handle.clone(), place));
            }
        }
    });
    for c in changes {
        let Change::Put(Object::Table(def)) = c else {
            continue;
        };
        if def.rewrite_of.is_some()
            && let (Some(old), Some(new)) = (before.tables.get(&def.id), after.tables.get(&def.id))
        {
            rewrite(old, new, store, ALWAYS)?;
            fill_indexes(new, store)?;
        }
    }
    shared.install_catalog(at, Arc::new(after));
    Ok(unfilled)
}

/// Links an entry for every version of every row. A replica calls it once all writes older than the attached index are installed.
pub fn fill_index(table: &TableHandle, place: usize, store: &Store) {
    let index = table.indexes[place].as_deref().expect("a secondary index");
    let all = table
        .storage
        .fill(index, &store.memory, || Ok::<(), Infallible>(()));
    let Ok(()) = all;
}

/// Fills the secondary indexes of a table whose rows were recovered.
pub fn fill_indexes(table: &TableHandle, store: &Store) -> Result<()> {
    (0..table.indexes.len())
        .filter(|p| table.indexes[*p].is_some())
        .try_for_each(|p| build_index(table, p, store, ALWAYS))
}
