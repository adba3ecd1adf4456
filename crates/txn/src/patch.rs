//! Setting some columns of a row, in the bytes of the row where that is possible.
//!
//! Most updates touch columns that no constraint speaks of, and leave the length of the row as it is. Then nothing has to be
//! decoded: the old bytes are copied and the new values written over them. Everything else takes the long way (`Txn::update`).

use base::{Error, Value};
use store::{Expired, pin};

use crate::handle::TableHandle;
use crate::locks::{LockMode, WaitPolicy};
use crate::range::ALL_COLUMNS;
use crate::stop::Result;
use crate::txn::Txn;

impl Txn {
    /// Sets columns (place, value of the column's type) of the row of this key, locks it and checks constraints; false when there is no
    /// such row. Counts as a read of the row, too.
    pub fn update_columns(
        &mut self,
        table: &TableHandle,
        key: &[u8],
        set: &[(usize, Value)],
    ) -> Result<bool> {
        base::memory::apart(|| self.update_checked_columns(table, key, set))
    }

    fn update_checked_columns(
        &mut self,
        table: &TableHandle,
        key: &[u8],
        set: &[(usize, Value)],
    ) -> Result<bool> {
        let def = &table.table.def;
        let free =
            |(c, v): &(usize, Value)| table.free[*c] && !(v.is_null() && def.columns[*c].not_null);
        if set.iter().all(free)
            && let Some(done) = self.patch(table, key, set)?
        {
            return Ok(done);
        }
        let Some(mut row) = self.get(table, key, |row| row.values())? else {
            return Ok(false);
        };
        for (c, v) in set {
            row[*c] = v.clone();
        }
        self.update(table, key, &row)?;
        Ok(true)
    }

    /// The same in the bytes of the row; none when that cannot be.
    fn patch(
        &mut self,
        table: &TableHandle,
        key: &[u8],
        set: &[(usize, Value)],
    ) -> Result<Option<bool>> {
        let handle = self.for_write(table)?;
        self.shared.store.memory.check()?;
        if self.options.locking {
            self.lock_row(&handle, key, LockMode::NoKeyUpdate, WaitPolicy::Wait)?;
        }
        let (layout, version) = (&handle.table.layout, handle.table.def.row_version);
        self.refresh_moved(handle.storage.id, key)?;
        self.scratch.clear();
        if let Some(p) = self.writes.get(handle.storage.id, key) {
            let Some(row) = &p.row else {
                return Ok(Some(false));
            };
            let carries = p.moved.is_some() || handle.is_spread(layout.row(row));
            if !handle.spreads.is_empty() && carries {
                return Ok(None);
            }
            let (saw, existed) = (p.saw, p.existed);
            if !layout.patch(version, layout.row(row), set, &mut self.scratch) {
                return Ok(None);
            }
            let row = Some(self.scratch[..].into());
            self.put(&handle, key, row, saw, existed);
            return Ok(Some(true));
        }
        let keep = self.tracks_reads();
        let guard = pin();
        let view = self
            .reads
            .view
            .as_mut()
            .ok_or_else(|| Error::internal("a statement runs before begin_statement"))?;
        let found = view
            .get(&handle.storage, key, keep.then_some(ALL_COLUMNS), &guard)
            .map_err(|Expired| Txn::snapshot_too_old())?;
        let Some(found) = found else {
            if keep && let Some(h) = self.handle_of(&handle) {
                self.reads.absent.push((h, key.into()));
            }
            return Ok(Some(false));
        };
        if handle.is_spread(layout.row(found.row))
            || !layout.patch(version, layout.row(found.row), set, &mut self.scratch)
        {
            return Ok(None);
        }
        let row = Some(self.scratch[..].into());
        self.put(&handle, key, row, found.position, true);
        Ok(Some(true))
    }
}
