//! The shares of a split value: where they are, their sum at a position, and whether a value is the same at two positions.
//!
//! Left out on purpose: transactions; what they write is in `records`.

use base::split::Units;
use base::{Error, Position, RelId, RowRef, Value};
use std::ops::Bound;
use store::tree::Direction;
use store::{Guard, Record, Version, pin};

use crate::backoff::Backoff;
use crate::handle::{Spread, TableHandle};
use crate::settle::settle_below;

pub(super) fn damaged() -> Error {
    Error::internal("a split column holds no number")
}

/// The value of a split column in units. NULL and what the bounds' type cannot hold are not there: the column is NOT NULL.
pub(super) fn value_of(units: &Units, row: RowRef<'_>, column: usize) -> Option<i128> {
    units.units(&row.get(column))
}

/// The shares of the further records of a value, added up.
pub(crate) struct Sum {
    pub total: i128,
    /// The largest, without its sign.
    pub largest: i128,
    /// The youngest version among them.
    pub newest: Position,
}

impl Spread {
    /// How many further records the value of this row has.
    #[inline]
    pub(crate) fn count(&self, row: RowRef<'_>) -> u16 {
        match row.get(self.count) {
            Value::Int2(n) => n.max(0) as u16,
            _ => 0,
        }
    }

    /// The place of the share in the hidden table.
    pub(crate) fn share(&self) -> usize {
        self.table.table.layout.len() - 1
    }

    /// The units of a share.
    pub(super) fn share_units(&self) -> &Units {
        let units = self.table.splits[self.share()].as_ref();
        units.expect("the share is split")
    }

    /// The key of a further record.
    pub(crate) fn key(&self, owner: &[u8], record: u16) -> Box<[u8]> {
        let place = self.table.primary.expect("a hidden table has a key");
        let last = self.table.table.keys[place].last().expect("and columns");
        let mut key = Vec::with_capacity(owner.len() + 2);
        key.extend_from_slice(owner);
        last.encode(&Value::Int2(record as i16), &mut key);
        key.into()
    }

    /// The row of a further record of this owner.
    pub(super) fn record(
        &self,
        owner: &TableHandle,
        row: RowRef<'_>,
        (record, share): (u16, i128),
    ) -> base::Result<Box<[u8]>> {
        let mut values: Vec<Value> = owner.key_columns.iter().map(|c| row.get(*c)).collect();
        values.push(Value::Int2(record as i16));
        values.push(self.share_units().value(share));
        let mut bytes = Vec::new();
        let version = self.table.table.def.row_version;
        self.table
            .table
            .layout
            .encode(version, &values, &mut bytes)?;
        Ok(bytes.into())
    }

    /// The shares of the `count` further records, in the versions that `look` takes; none where one of them is not there.
    pub(super) fn sum<'g>(
        &'g self,
        owner: &[u8],
        count: u16,
        guard: &'g Guard,
        look: impl Fn(&'g Record) -> Option<&'g Version>,
    ) -> Option<Sum> {
        let mut sum = Sum {
            total: 0,
            largest: 0,
            newest: Position::ZERO,
        };
        if count == 0 {
            return Some(sum);
        }
        // They stand side by side: one way down the tree finds all of them.
        let (first, last) = (self.key(owner, 1), self.key(owner, count));
        let range = (Bound::Included(&first[..]), Bound::Included(&last[..]));
        let count = usize::from(count);
        let mut records = Vec::with_capacity(count);
        let tree = &self.table.storage.primary;
        tree.scan(
            range.0,
            range.1,
            Direction::Forward,
            count,
            &mut records,
            guard,
        );
        if records.len() < count {
            return None;
        }
        let (layout, units) = (&self.table.table.layout, self.share_units());
        for record in records {
            let version = look(record)?;
            let share = value_of(units, layout.row(version.row()?), self.share())?;
            sum.total += share;
            sum.largest = sum.largest.max(share.abs());
            sum.newest = sum.newest.max(version.position());
        }
        Some(sum)
    }

    /// The value at a position below which all commits have settled here, or settle while this waits. None: there is no row.
    pub(super) fn total_at(
        &self,
        owner: &TableHandle,
        key: &[u8],
        at: Position,
        guard: &Guard,
    ) -> Option<i128> {
        let row_of = |record: &'_ Record| -> Option<(i128, u16)> {
            settle_below(record, at.next());
            let row = record.row_at(at, guard)?;
            let row = owner.table.layout.row(row);
            Some((value_of(&self.units, row, self.column)?, self.count(row)))
        };
        let record = owner.storage.primary.get(key, guard)?;
        let (share, count) = row_of(record)?;
        let sum = self.sum(key, count, guard, |r| {
            settle_below(r, at.next());
            r.at(at, guard)
        })?;
        Some(share + sum.total)
    }
}

/// The newest value of a row: what its newest version says, with its further records. The row's lock is held in mode Delta or above.
pub(crate) fn newest_total<'g>(
    owner: &'g TableHandle,
    (record, key): (&'g Record, &[u8]),
    column: usize,
    units: &Units,
    guard: &'g Guard,
) -> Option<(i128, Sum)> {
    let mut wait = Backoff::default();
    for _ in 0..1_000_000 {
        let version = record.newest(guard)?;
        let row = owner.table.layout.row(version.row()?);
        let share = value_of(units, row, column)?;
        let spread = owner.spread(column);
        let count = spread.map_or(0, |s| s.count(row));
        let none = Sum {
            total: 0,
            largest: 0,
            newest: version.position(),
        };
        let Some(spread) = spread.filter(|_| count > 0) else {
            return Some((share, none));
        };
        if let Some(mut sum) = spread.sum(key, count, guard, |r| r.newest(guard)) {
            sum.newest = sum.newest.max(version.position());
            return Some((share + sum.total, sum));
        }
        // A worker is adding records.
        wait.pause();
    }
    None
}

/// Whether a value is the same at two positions, however its shares lie.
pub(crate) fn same_total(
    owner: &TableHandle,
    spread: &Spread,
    key: &[u8],
    (old, new): (Position, Position),
    guard: &Guard,
) -> bool {
    let before = spread.total_at(owner, key, old, guard);
    before.is_some() && before == spread.total_at(owner, key, new, guard)
}

/// Whether a filter takes the row as it is shown at a position below which all commits have settled there; none: it is not known.
pub(crate) fn takes_at(
    owner: &TableHandle,
    takes: &dyn Fn(RowRef<'_>) -> bool,
    record: &Record,
    at: Position,
    guard: &Guard,
) -> Option<bool> {
    if owner.storage.shape() != owner.shape {
        return None;
    }
    let Some(row) = record.row_at(at, guard) else {
        return Some(false);
    };
    let row = owner.table.layout.row(row);
    let mut set = vec![];
    for s in owner.spreads.iter().filter(|s| s.count(row) > 0) {
        let total = s.total_at(owner, record.key(), at, guard)?;
        set.push((s.column, s.units.value(total)));
    }
    let shown = owner.with_columns(row, set).ok()?;
    Some(takes(owner.table.layout.row(&shown)))
}

impl TableHandle {
    /// Where the further records of a column are; none: it is not split, or its values have one record.
    pub(crate) fn spread(&self, column: usize) -> Option<&Spread> {
        self.spreads.iter().find(|s| s.column == column)
    }

    /// Whether a value of the row has further records.
    #[inline]
    pub(crate) fn is_spread(&self, row: RowRef<'_>) -> bool {
        self.spreads.iter().any(|s| s.count(row) > 0)
    }

    /// The storages that a read of the table's rows may look at.
    pub fn storages(&self) -> impl Iterator<Item = RelId> {
        let further = self.spreads.iter().map(|s| s.table.storage.id);
        std::iter::once(self.storage.id).chain(further)
    }

    /// Whether values of the table have further records in the newest state.
    pub fn has_further_records(&self) -> bool {
        let guard = pin();
        let live = |r: &Record| match r.newest(&guard).and_then(|v| v.row()) {
            Some(_) => Err(()),
            None => Ok(()),
        };
        let mut all = self.spreads.iter();
        all.any(|s| s.table.storage.try_for_each(&guard, live).is_err())
    }

    /// The same by a count that is near enough, for a commit that finds out when it is wrong.
    #[inline]
    pub(crate) fn counts_further_records(&self) -> bool {
        let mut all = self.spreads.iter();
        all.any(|s| s.table.storage.live_rows() > 0)
    }
}
