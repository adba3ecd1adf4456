//! Unique keys that are DEFERRABLE: looked at when the statement ends, or the transaction.
//!
//! Entries of an index end with the row's key, so an index can hold a key twice. A write notes the key that a row gets, and the check asks whether
//! another row has it then, in the newest state under the transaction's own writes. It takes the locks of a check at once (`dml`): of two
//! transactions that write one key, the second to check waits for the first to end, and what was found holds until the commit. A transaction
//! without locks, and the candidate of a site, are asked again at their position: certification compares every new key.
//!
//! A PRIMARY KEY that is DEFERRABLE is such an index, too. Its rows are kept under hidden numbers, as those of a table without a primary key.
//!
//! Left out on purpose: moving the snapshot to the row in the way, as a check at once does. The error counts as a read of the key.

use base::cancel::work;
use base::{Error, KeyRange, Result, SqlState, Value};
use std::sync::Arc;

use crate::errors::Wanted;
use crate::handle::TableHandle;
use crate::locks::{LockMode, WaitPolicy};
use crate::probe::NewKey;
use crate::range::RangeRead;
use crate::stop;
use crate::txn::Txn;

/// 55000.
pub(crate) fn no_arbiter(txn: &Txn, handle: &TableHandle, place: usize) -> Error {
    let what = "ON CONFLICT does not support deferrable unique constraints/exclusion constraints as arbiters";
    Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, what)
        .table(&txn.namespace_of(handle), handle.name())
        .constraint(&handle.table.def.indexes[place].name)
}

impl Txn {
    /// A row is given this key of a deferrable index. `row_key`: bytes of the key that the row is kept under.
    pub(crate) fn note_key(
        &mut self,
        handle: &TableHandle,
        place: usize,
        row: &[Value],
        row_key: usize,
    ) -> Result<()> {
        let def = &handle.table.def;
        let Some(columns) = handle.unique_key(place, row) else {
            return Ok(());
        };
        handle.check_key(columns.len() + row_key, &def.indexes[place].name)?;
        self.references.keys.push(NewKey {
            table: def.id,
            index: def.indexes[place].id,
            columns: columns.into(),
        });
        Ok(())
    }

    /// The keys that a row is given which another node has written (`old`: what it replaced).
    pub(crate) fn note_keys(
        &mut self,
        handle: &TableHandle,
        (old, new): (Option<&[Value]>, &[Value]),
        row_key: usize,
    ) -> Result<()> {
        for place in 0..handle.indexes.len() {
            let def = &handle.table.def.indexes[place];
            if !def.unique || def.deferral.is_never() {
                continue;
            }
            let had = old.and_then(|o| handle.unique_key(place, o));
            if had.is_none() || had != handle.unique_key(place, new) {
                self.note_key(handle, place, new, row_key)?;
            }
        }
        Ok(())
    }

    /// The checks at the end of a statement.
    pub(crate) fn check_new_keys(&mut self) -> stop::Result<()> {
        if self.references.keys.is_empty() {
            return Ok(());
        }
        let keys = self.references.keys.take();
        let (later, now): (Vec<NewKey>, Vec<NewKey>) =
            keys.into_iter().partition(|k| self.is_put_off(k));
        self.require_unique(&now)?;
        self.references.keys_put_off.extend(later);
        Ok(())
    }

    /// Those of the checks that were put off which are due now.
    pub(crate) fn check_late_keys(&mut self, all: bool) -> stop::Result<()> {
        let put_off = self.references.keys_put_off.take();
        let (due, rest): (Vec<NewKey>, Vec<NewKey>) = put_off
            .into_iter()
            .partition(|k| all || !self.is_put_off(k));
        let checked = self.require_unique(&due);
        self.references.keys_put_off.replace(rest);
        if checked.is_err() {
            self.references.keys_put_off.extend(due);
        }
        checked
    }

    /// False also where the transaction has dropped the table or the index since.
    fn is_put_off(&self, k: &NewKey) -> bool {
        let table = self.schema.catalog.table(k.table);
        let mut indexes = table.iter().flat_map(|t| &t.table.def.indexes);
        let index = indexes.find(|i| i.id == k.index);
        index.is_some_and(|i| self.references.deferred.is(i.constraint_oid, i.deferral))
    }

    fn require_unique(&mut self, keys: &[NewKey]) -> stop::Result<()> {
        for k in keys {
            work(64)?;
            self.require_one_row(k)?;
        }
        Ok(())
    }

    /// The index of a key, and the transaction's row that has the key; none where the row has gone again, or has got another key.
    fn owner_of(&self, k: &NewKey) -> Result<Option<(Arc<TableHandle>, usize, Box<[u8]>)>> {
        let Some(table) = self.schema.catalog.table(k.table) else {
            return Ok(None);
        };
        let mut indexes = table.table.def.indexes.iter();
        let Some(place) = indexes.position(|i| i.id == k.index) else {
            return Ok(None);
        };
        let range = KeyRange::prefix(&k.columns);
        let own = self.own_writes(table)?;
        let own = own.and_then(|w| w.by_index[place].range::<[u8], _>(range.bounds()).next());
        Ok(own.map(|(_, row_key)| (table.clone(), place, row_key.clone())))
    }

    /// Whether two rows have the key now, committed or written here.
    pub(crate) fn is_doubled(&self, k: &NewKey) -> bool {
        let owner = self.owner_of(k).ok().flatten();
        owner.is_some_and(|(table, place, mine)| {
            self.conflict_in(&table, place, &k.columns, &mine).is_some()
        })
    }

    /// 23505 where two rows have the key.
    fn require_one_row(&mut self, k: &NewKey) -> stop::Result<()> {
        let Some((table, place, mine)) = self.owner_of(k)? else {
            return Ok(());
        };
        let range = KeyRange::prefix(&k.columns);
        let index = table.indexes[place].clone();
        if let Some(index) = index.as_deref().filter(|_| self.options.locking) {
            let name = TableHandle::unique_lock(index, &k.columns);
            let wanted = Wanted::Key(&table);
            self.lock(name, LockMode::Update, WaitPolicy::Wait, wanted)?;
        }
        let Some(mut other) = self.conflict_in(&table, place, &k.columns, &mine) else {
            return Ok(());
        };
        let is_own = |txn: &Txn, key: &[u8]| txn.writes.get(table.storage.id, key).is_some();
        if self.options.locking && !is_own(self, &other) {
            // Another transaction may be taking it away.
            let (name, wanted) = (table.row_lock(&other), Wanted::Row(&table, &other));
            self.lock(name, LockMode::KeyShare, WaitPolicy::Wait, wanted)?;
            match self.conflict_in(&table, place, &k.columns, &mine) {
                Some(still) => other = still,
                None => return Ok(()),
            }
        }
        if !is_own(self, &other) {
            self.tells_of_newest();
            if self.tracks_reads() {
                let read = RangeRead::whole(table.clone(), index, range);
                self.reads.ranges.push(read);
            }
        }
        let row = self.writes.get(table.storage.id, &mine);
        let row = row.and_then(|p| p.row.as_deref()).expect("it has the key");
        let values = table.table.layout.row(row).values();
        Err(self.unique_error(&table, place, &values).into())
    }
}
