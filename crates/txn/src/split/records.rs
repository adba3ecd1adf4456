//! Further records of a split value: rows of a hidden table, each with a share; the value is the sum of all shares.
//!
//! ```text
//! read      the row at the snapshot; its count says whether there are further records; their shares there are added
//! delta     the commit adds it to one further record, chosen when the commit begins ([`Txn::redirected`])
//! write     the row takes the whole value and the further records are deleted, or the row keeps its share and they stay
//! ```
//! All are ordinary rows: the log, replay, checkpoints and the reclaimer know nothing of it, and each snapshot shows one sum.
//!
//! **What may change several records of a value at once** (an exact write, a worker that takes records away) holds the row's lock in a mode
//! that excludes deltas. So a reservation, under the lock in mode Delta, may add up the newest shares one after the other. A worker that
//! adds records needs no such lock: they hold 0, and a sum that finds one missing is taken again.
//!
//! **Bounds belong to the sum**, which escrow keeps. A single share has no bound but that of its type; a share may be below 0.
//!
//! What was read is compared by sums (`same_total`), so a worker that moves shares aborts no reader.
//!
//! Left out on purpose: shares with bounds of their own, which a value over several nodes needs.

use base::split::Units;
use base::{KeyRange, Position, RelId, RowRef, Value};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use store::{Expired, Guard, pin};

use super::shares::{damaged, same_total, takes_at, value_of};
use super::walk::mix;
use crate::handle::{Spread, TableHandle};
use crate::locks::LockMode;
use crate::range::{RangeRead, RowFilter};
use crate::settle::settle;
use crate::stats::Cause;
use crate::stop::Result;
use crate::txn::Txn;
use crate::writes::{Moved, Pending, TableWrites};

impl Txn {
    /// The row with sums in the place of shares; none: it has no further records, and is shown as it is.
    pub(crate) fn shown(
        &self,
        table: &TableHandle,
        key: &[u8],
        row: RowRef<'_>,
    ) -> base::Result<Option<Box<[u8]>>> {
        // The planted bug: what says that there are further records is not looked at.
        if !table.is_spread(row) || env::fault::planted("split.bit_ignored") {
            return Ok(None);
        }
        let guard = pin();
        let at = self.view()?.position();
        let mut set = Vec::new();
        for s in table.spreads.iter().filter(|s| s.count(row) > 0) {
            let sum = s.sum(key, s.count(row), &guard, |r| r.at(at, &guard));
            // After the look: what it saw was whole if the snapshot is live still.
            self.view()?
                .check()
                .map_err(|Expired| Txn::snapshot_too_old())?;
            let share = value_of(&s.units, row, s.column).ok_or_else(damaged)?;
            let total = share + sum.ok_or_else(damaged)?.total;
            let limits = Units::of(table.table.def.columns[s.column].ty());
            if !limits.is_some_and(|l| l.allows(total)) {
                return Err(damaged());
            }
            set.push((s.column, s.units.value(total)));
        }
        table.with_columns(row, set).map(Some)
    }

    /// The split values of the row count as read, if the columns that were looked at are among them: what a filter says of them, if it is known.
    pub(crate) fn note_shown(
        &mut self,
        table: &TableHandle,
        key: &[u8],
        columns: u64,
        filter: Option<&Arc<dyn RowFilter>>,
    ) {
        for s in &table.spreads {
            if s.column < 63 && columns & 1 << s.column == 0 {
                continue;
            }
            let range = KeyRange::prefix(key);
            let last = self.reads.ranges.last();
            let again = last.is_some_and(|r| {
                // One that takes all changes for changes covers the others.
                let covers = match (&r.filter, filter) {
                    (None, _) => true,
                    (Some(a), Some(b)) => Arc::ptr_eq(a, b),
                    (Some(_), None) => false,
                };
                covers && r.table.storage.id == s.table.storage.id && r.range.lo == range.lo
            });
            if !again {
                let mut read = RangeRead::whole(s.table.clone(), None, range);
                read.filter = filter.cloned();
                self.reads.ranges.push(read);
            }
        }
    }

    /// Whether the value whose further records were read in this range is the same at two positions; none: it is no such range.
    pub(crate) fn same_value(
        &self,
        r: &RangeRead,
        between: (Position, Position),
        guard: &Guard,
    ) -> Option<bool> {
        let (owner, column) = r.table.records_of?;
        let key = match &r.range.lo {
            Bound::Included(key) => key,
            _ => return Some(false),
        };
        let Some(owner) = self.schema.catalog.table(owner) else {
            return Some(false);
        };
        let spread = owner.spread(usize::from(column));
        // Another storage is one that this transaction has made since: each record is compared by itself.
        let spread = spread.filter(|s| s.table.storage.id == r.table.storage.id)?;
        if same_total(owner, spread, key, between, guard) {
            return Some(true);
        }
        // Another value, but maybe the same answer.
        let Some(filter) = r.filter.as_ref().filter(|_| self.schema.own.is_none()) else {
            return Some(false);
        };
        let takes = |at| {
            let record = owner.storage.primary.get(key, guard)?;
            takes_at(owner, &|row| filter.takes(row), record, at, guard)
        };
        Some(takes(between.0) == Some(false) && takes(between.1) == Some(false))
    }

    /// How many further records the row has for the writer: by its own version of the row, else by the snapshot's. With the bytes that say so.
    fn counted(
        &self,
        handle: &TableHandle,
        key: &[u8],
        guard: &Guard,
    ) -> base::Result<Option<Box<[u8]>>> {
        let own = self.writes.get(handle.storage.id, key);
        let row = match own.filter(|p| p.moved.is_none()) {
            Some(p) => p.row.clone(),
            None => {
                let at = self.view()?.position();
                let record = handle.storage.primary.get(key, guard);
                let row = record.and_then(|r| r.row_at(at, guard));
                row.map(Box::from)
            }
        };
        Ok(row.filter(|row| handle.table.layout.knows(row)))
    }

    /// Before an exact write of a row: its further records are deleted and the row takes the values whole. Where a value stays what
    /// it is and the row's lock keeps deltas off, the row keeps its share and the records stay. `old`: the row as it is shown. `new`: as it shall be; none: it is deleted, or
    /// gets another key, and takes its values along.
    pub(crate) fn carry_records(
        &mut self,
        handle: &TableHandle,
        key: &[u8],
        old: Option<&[Value]>,
        mut new: Option<&mut Vec<Value>>,
    ) -> Result<()> {
        if handle.spreads.is_empty() {
            return Ok(());
        }
        let guard = pin();
        let counted = self.counted(handle, key, &guard)?;
        let moves = self.writes.get(handle.storage.id, key);
        let moves = moves.is_some_and(|p| p.moved.is_some());
        let mut locked = self.options.locking;
        for s in &handle.spreads {
            if let Some(new) = new.as_deref_mut() {
                new[s.count] = Value::Null;
            }
            let row = counted.as_deref().map(|r| handle.table.layout.row(r));
            let Some((row, count)) = row.map(|r| (r, s.count(r))).filter(|r| r.1 > 0) else {
                continue;
            };
            if let (Some(old), Some(new)) = (old, new.as_deref_mut())
                && !moves
                && self.options.locking
                && crate::key_values::same(&old[s.column], &new[s.column])
            {
                new[s.count] = Value::Int2(count as i16);
                // The planted bug: the sum becomes the share.
                if !env::fault::planted("split.keep_writes_sum") {
                    new[s.column] = row.get(s.column);
                }
                continue;
            }
            if !locked {
                self.lock_at_once(handle, key, LockMode::NoKeyUpdate)?;
                locked = true;
            }
            self.delete_records(s, key, 1..=count, &guard)?;
        }
        Ok(())
    }

    /// These further records of a value will be gone.
    fn delete_records(
        &mut self,
        s: &Spread,
        owner: &[u8],
        records: std::ops::RangeInclusive<u16>,
        guard: &Guard,
    ) -> Result<()> {
        let at = self.view()?.position();
        for n in records {
            let key = s.key(owner, n);
            if self.writes.get(s.table.storage.id, &key).is_some() {
                continue;
            }
            let record = s.table.storage.primary.get(&key, guard);
            let version = record.and_then(|r| r.at(at, guard));
            let version = version.ok_or_else(damaged)?;
            self.put(&s.table, &key, None, version.position(), true);
        }
        Ok(())
    }

    /// Takes the row's lock if it is free for this mode; 40001 where it is not.
    pub(super) fn lock_at_once(
        &mut self,
        handle: &TableHandle,
        key: &[u8],
        mode: LockMode,
    ) -> Result<()> {
        let name = handle.row_lock(key);
        let locks = &self.shared.locks;
        let (attempt, new) = locks.acquire(self.id, name, mode, false);
        if new {
            self.locks.held.push(name);
        }
        if !matches!(attempt, crate::locks::Attempt::Granted) {
            let holder = self.shared.locks.holder(self.id, name, mode);
            self.shared.stats.abort(Cause::RowLocked);
            return Err(self.row_is_locked(handle, "(row)", holder).into());
        }
        Ok(())
    }

    /// Whether a further record of the row has a version above the snapshot: its position. The row's lock excludes deltas, so the
    /// answer stays.
    pub(crate) fn newer_record(
        &self,
        handle: &TableHandle,
        key: &[u8],
        row: &[u8],
        guard: &Guard,
    ) -> base::Result<Option<Position>> {
        let row = handle.table.layout.row(row);
        if !handle.is_spread(row) {
            return Ok(None);
        }
        let at = self.view()?.position();
        for s in &handle.spreads {
            let sum = s.sum(key, s.count(row), guard, |r| {
                settle(r);
                r.newest(guard)
            });
            let newest = sum.map_or(Position::MAX, |s| s.newest);
            if newest > at && newest != Position::MAX {
                return Ok(Some(newest));
            }
        }
        Ok(None)
    }

    /// The write set as the commit takes it: deltas of values with further records go to one of these. None: there are none such.
    /// `attempt` makes another choice of records.
    pub(crate) fn redirected(&self, attempt: u64, guard: &Guard) -> Option<Vec<TableWrites>> {
        let tables = &self.writes.tables;
        let removed = env::fault::planted("split.removed_record");
        let spread = |t: &TableWrites| {
            let has_any = attempt > 0 || removed || t.table.counts_further_records();
            t.rows.iter().any(|(key, p)| {
                let Some(moved) = p.moved.as_ref().filter(|m| !m.net.is_empty()) else {
                    return false;
                };
                let taken = || moved.places.iter().any(|p| p.record > 0);
                let is_spread = || {
                    let row = self.counting_row(&t.table, key, guard);
                    row.is_some_and(|r| t.table.is_spread(t.table.table.layout.row(r)))
                };
                taken() || has_any && is_spread()
            })
        };
        if !self.writes.has_moved() || !tables.iter().any(spread) {
            return None;
        }
        let mut further = Further::new();
        let mut all = Vec::with_capacity(tables.len() + 1);
        for t in tables {
            let mut rows = BTreeMap::new();
            for (key, change) in &t.rows {
                match &change.moved {
                    None => drop(rows.insert(key.clone(), change.clone())),
                    Some(moved) => {
                        let here = self.part(t, key, moved, (attempt, guard), &mut further);
                        if !here.net.is_empty() || !here.counts.is_empty() {
                            let change = Pending {
                                moved: Some(Box::new(here)),
                                ..change.clone()
                            };
                            rows.insert(key.clone(), change);
                        }
                    }
                }
            }
            all.push(TableWrites {
                table: t.table.clone(),
                rows,
                by_index: vec![],
            });
        }
        for (storage, (table, rows)) in further {
            match all.iter_mut().find(|t| t.table.storage.id == storage) {
                Some(t) => t.rows.extend(rows),
                None => all.push(TableWrites {
                    table,
                    rows,
                    by_index: vec![],
                }),
            }
        }
        all.retain(|t| !t.rows.is_empty());
        all.sort_by_key(|t| t.table.storage.id);
        Some(all)
    }

    /// The row whose counts say where a delta goes: the newest.
    fn counting_row<'g>(
        &self,
        table: &'g TableHandle,
        key: &[u8],
        guard: &'g Guard,
    ) -> Option<&'g [u8]> {
        let record = table.storage.primary.get(key, guard)?;
        // The planted bug: a record is chosen that may be gone by now.
        if env::fault::planted("split.removed_record") {
            return record.row_at(self.view().ok()?.position(), guard);
        }
        record.newest(guard)?.row()
    }

    /// Puts the deltas that belong to further records there; what is left for the row itself.
    fn part(
        &self,
        t: &TableWrites,
        key: &[u8],
        moved: &Moved,
        (attempt, guard): (u64, &Guard),
        further: &mut Further,
    ) -> Moved {
        let row = self.counting_row(&t.table, key, guard);
        let row = row.map(|r| t.table.table.layout.row(r));
        let (mut here, mut n) = (vec![], attempt);
        for &(column, net) in &moved.net {
            let spread = t.table.spread(usize::from(column));
            if let Some((s, row)) = spread.filter(|s| s.rows.is_some()).zip(row) {
                here.extend(places_apart(t, key, (s, row), moved, further));
                continue;
            }
            let count = spread.zip(row).map_or(0, |(s, row)| s.count(row));
            let Some(s) = spread.filter(|_| count > 0) else {
                here.push((column, net));
                continue;
            };
            n += 1;
            let number = 1 + (mix(self.id, n) % u64::from(count)) as u16;
            let (_, rows) = further
                .entry(s.table.storage.id)
                .or_insert_with(|| (s.table.clone(), BTreeMap::new()));
            let delta = Moved {
                net: [(s.share() as u16, net)].into(),
                places: [].into(),
                needs: [].into(),
                counts: [].into(),
                found_by: [].into(),
                at: moved.at,
            };
            let change = Pending {
                row: None,
                saw: Position::ZERO,
                existed: true,
                kept: None,
                moved: Some(Box::new(delta)),
            };
            rows.insert(s.key(key, number), change);
        }
        Moved {
            net: here.into(),
            places: [].into(),
            needs: moved.needs.clone(),
            counts: moved.counts.clone(),
            found_by: [].into(),
            at: moved.at,
        }
    }

    /// A worker's step: the value gets further records until there are `to`, all of them 0. False where the row is locked by what is
    /// no delta, or there is nothing to do.
    pub fn spread_value(
        &mut self,
        table: &TableHandle,
        key: &[u8],
        column: usize,
        to: u16,
    ) -> Result<bool> {
        let handle = self.for_write(table)?;
        let Some(s) = handle.spread(column) else {
            return Ok(false);
        };
        if key.len() + 8 > base::key::MAX_KEY_BYTES
            || self.writes.get(handle.storage.id, key).is_some()
            || self.lock_at_once(&handle, key, LockMode::Delta).is_err()
        {
            return Ok(false);
        }
        let guard = pin();
        let record = handle.storage.primary.get(key, &guard);
        let newest = record.and_then(|r| {
            settle(r);
            r.newest(&guard)
        });
        let Some((row, at)) = newest.and_then(|v| Some((v.row()?, v.position()))) else {
            return Ok(false);
        };
        let row = handle.table.layout.row(row);
        let count = s.count(row);
        let to = to.min(s.max);
        if count >= to {
            return Ok(false);
        }
        for n in count + 1..=to {
            let bytes = s.record(&handle, row, (n, 0))?;
            let key = s.key(key, n);
            let saw = self.shared.newest_position(&s.table, &key);
            self.put(&s.table, &key, Some(bytes), saw, false);
        }
        let moved = Moved {
            net: [].into(),
            places: [].into(),
            needs: [].into(),
            counts: [(s.count as u16, to)].into(),
            found_by: [].into(),
            at: self.view()?.position(),
        };
        let bytes = row.bytes().into();
        self.put_moved(&handle, key, bytes, at, moved);
        Ok(true)
    }

    /// A worker's step: the value keeps `to` further records; what the others hold goes to the first of these, or to the row. False
    /// where the row is in use or there is nothing to do.
    pub fn gather_value(
        &mut self,
        table: &TableHandle,
        key: &[u8],
        column: usize,
        to: u16,
    ) -> Result<bool> {
        let handle = self.for_write(table)?;
        let Some(s) = handle.spread(column) else {
            return Ok(false);
        };
        if self.writes.get(handle.storage.id, key).is_some()
            || self
                .lock_at_once(&handle, key, LockMode::NoKeyUpdate)
                .is_err()
        {
            return Ok(false);
        }
        let guard = pin();
        let record = handle.storage.primary.get(key, &guard);
        let newest = record.and_then(|r| {
            settle(r);
            r.newest(&guard)
        });
        let Some((bytes, at)) = newest.and_then(|v| Some((v.row()?, v.position()))) else {
            return Ok(false);
        };
        let row = handle.table.layout.row(bytes);
        let count = s.count(row);
        if count <= to {
            return Ok(false);
        }
        let (layout, units) = (&s.table.table.layout, *s.share_units());
        let (mut taken, mut first) = (0, None);
        for n in 1..=count {
            let key = s.key(key, n);
            let record = s.table.storage.primary.get(&key, &guard);
            let version = record.and_then(|r| {
                settle(r);
                r.newest(&guard)
            });
            let share = version.and_then(|v| value_of(&units, layout.row(v.row()?), s.share()));
            let (Some(version), Some(share)) = (version, share) else {
                return Ok(false);
            };
            match (n, n > to) {
                (_, true) => {
                    taken += share;
                    self.put(&s.table, &key, None, version.position(), true);
                }
                // In the mode `rows` that could be more than the limit of the record. The row is looked at by each delta.
                (1, false) if s.rows.is_none() => first = Some((share, version.position())),
                _ => {}
            }
        }
        let share = value_of(&s.units, row, s.column).ok_or_else(damaged)?;
        let mut set = vec![(s.count, Value::Int2(to as i16))];
        match first {
            None => set.push((s.column, s.units.value(share + taken))),
            // The shares that are taken away may come to more than one can hold.
            Some((share, _)) if !units.allows(share + taken) => return Ok(false),
            Some((share, saw)) => {
                let bytes = s.record(&handle, row, (1, share + taken))?;
                self.put(&s.table, &s.key(key, 1), Some(bytes), saw, true);
            }
        }
        let bytes = handle.with_columns(row, set)?;
        self.put(&handle, key, Some(bytes), at, true);
        Ok(true)
    }

    /// Takes the further records of the whole table back into the rows: before a change of the schema under which they would be in the way. Nobody
    /// else changes the table.
    pub(crate) fn gather_all(&mut self, handle: &Arc<TableHandle>) -> base::Result<()> {
        let guard = pin();
        let mut found = vec![];
        handle.storage.try_for_each(&guard, |r| {
            self.check_told()?;
            let row = r.newest(&guard).and_then(|v| v.row());
            if row.is_some_and(|row| handle.is_spread(handle.table.layout.row(row))) {
                found.push(r);
            }
            base::Result::Ok(())
        })?;
        for r in found {
            let own = self.writes.get(handle.storage.id, r.key());
            if own.is_some_and(|p| {
                !p.row
                    .as_ref()
                    .is_some_and(|b| handle.is_spread(handle.table.layout.row(b)))
            }) {
                continue;
            }
            let version = r.newest(&guard).ok_or_else(damaged)?;
            let bytes: Box<[u8]> = match own.and_then(|p| p.row.clone()) {
                Some(own) => own,
                None => version.row().ok_or_else(damaged)?.into(),
            };
            let row = handle.table.layout.row(&bytes);
            let bytes = self.gathered(handle, r.key(), row, &guard)?;
            let bytes = bytes.ok_or_else(damaged)?;
            for s in &handle.spreads {
                for n in 1..=s.count(row) {
                    let key = s.key(r.key(), n);
                    let saw = self.shared.newest_position(&s.table, &key);
                    self.put(&s.table, &key, None, saw, true);
                }
            }
            let saw = version.position();
            self.put(handle, r.key(), Some(bytes), saw, true);
        }
        Ok(())
    }

    /// A row with the sums of its newest further records, without a word of them; none: it has none. No other transaction changes the table.
    pub(crate) fn gathered(
        &self,
        table: &TableHandle,
        key: &[u8],
        row: RowRef<'_>,
        guard: &Guard,
    ) -> base::Result<Option<Box<[u8]>>> {
        if !table.is_spread(row) {
            return Ok(None);
        }
        let mut set = vec![];
        for s in &table.spreads {
            let sum = s.sum(key, s.count(row), guard, |r| r.newest(guard));
            let share = value_of(&s.units, row, s.column).ok_or_else(damaged)?;
            let total = share + sum.ok_or_else(damaged)?.total;
            set.push((s.column, s.units.value(total)));
            set.push((s.count, Value::Int2(0)));
        }
        table.with_columns(row, set).map(Some)
    }
}

/// Deltas that go to further records, by the hidden table.
type Further = BTreeMap<RelId, (Arc<TableHandle>, BTreeMap<Box<[u8]>, Pending>)>;

/// Puts what deltas in the mode `rows` take from further records there, as rows that are written; what is left for the row itself.
fn places_apart(
    t: &TableWrites,
    key: &[u8],
    (s, row): (&Spread, RowRef<'_>),
    moved: &Moved,
    further: &mut Further,
) -> Option<(u16, i128)> {
    let mut here = None;
    let places = moved.places.iter();
    for p in places.filter(|p| usize::from(p.column) == s.column && p.amount != 0) {
        if p.record == 0 {
            here = Some((p.column, p.amount));
            continue;
        }
        let bytes = s.record(&t.table, row, (p.record, p.share + p.amount));
        let bytes = bytes.expect("a share of the column's type");
        let (_, rows) = further
            .entry(s.table.storage.id)
            .or_insert_with(|| (s.table.clone(), BTreeMap::new()));
        let change = Pending {
            row: Some(bytes),
            saw: p.saw,
            existed: true,
            kept: None,
            moved: None,
        };
        rows.insert(s.key(key, p.record), change);
    }
    here
}
