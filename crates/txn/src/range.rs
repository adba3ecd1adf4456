//! A range that was scanned, and whether a newer version of a row in it matters to who scanned it.
//!
//! A range is a coarse footprint: `k BETWEEN 10 AND 20 AND v = 77` has looked at every row from 10 to 20, but its answer depends on those
//! that passed. So a range keeps two things beside its bounds: the columns that were looked at, and the rest of the condition as a
//! [`RowFilter`], the predicate that *precision locking* compares writes with (Jordan, Banerjee, Batman, SIGMOD 1981). A row is
//! compared at two positions, that of the snapshot and the one where the transaction wants to stand:
//!
//! ```text
//! in the range at neither, or the same in these columns at both     it does not matter
//! the filter takes it at neither (or it is not there)               it does not matter: spared
//! else                                                              it does
//! ```
//! What lies between the two does not matter, as ever: the transaction stands at one position. The filter is asked last, and only of
//! rows that have a newer version. It says no only of what it is certain of: an error, or a condition that it does not know, is a yes.
//! It is not asked where the schema of the table has changed since; and a row with columns that came later matters as it is. Of split values it
//! is asked with their sums.
//!
//! A row that was read by key is kept with its columns, too ([`same_row`]).
//!
//! Left out on purpose: filters of rows that were read by key; knowing which of the columns only the filter looked at, so
//! that a row that passes before and after may change in them.

use base::{ColumnIdx, KeyRange, Position, RowRef, Type};
use std::collections::HashSet;
use std::sync::Arc;
use store::tree::Direction;
use store::{Guard, IndexEntry, Record, SecondaryIndex};

use crate::handle::Spread;
use crate::handle::TableHandle;
use crate::split::shares::{same_total, takes_at};

/// What a scan's reader asks of a row beyond its being in the range. It gives the same answer for the same row at any time.
pub trait RowFilter: Send + Sync {
    /// False only when the row as it is here is certainly none that the reader took, and looking at it raised no error. The row has the
    /// layout of the table handle that the scan was made with.
    fn takes(&self, row: RowRef<'_>) -> bool;
}

/// What told that a change of a row in a range does not matter, the weaker first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Spared {
    /// It changed in columns that were not looked at.
    Columns,
    /// The rest of the condition takes it neither before nor after.
    Predicate,
}

impl Spared {
    pub const ALL: [Spared; 2] = [Spared::Columns, Spared::Predicate];

    /// The label in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Spared::Columns => "columns",
            Spared::Predicate => "predicate",
        }
    }
}

/// What a newer version of a row in a range means.
pub(crate) enum Look {
    /// In the range at neither position.
    Same,
    Spared(Spared),
    Changed,
}

/// A scanned range in a footprint.
pub(crate) struct RangeRead {
    pub table: Arc<TableHandle>,
    pub index: Option<Arc<SecondaryIndex>>,
    pub range: KeyRange,
    pub reader: u32,
    /// Rows (primary-index keys) that SKIP LOCKED passed over: they do not count as read.
    pub passed_over: HashSet<Box<[u8]>>,
    /// Rows that it gave.
    pub rows: usize,
    /// The columns that were looked at.
    pub columns: u64,
    /// Of the rows in the range those that counted; none: all.
    pub filter: Option<Arc<dyn RowFilter>>,
}

/// A set of columns with all of them in it; a bit for each of the first 63 otherwise.
pub const ALL_COLUMNS: u64 = u64::MAX;

/// These columns as a set: what a reader of a row looks at.
pub fn column_set(columns: &[ColumnIdx]) -> u64 {
    match columns.iter().max() {
        Some(63..) => ALL_COLUMNS,
        _ => columns.iter().fold(0, |set, c| set | 1 << c),
    }
}

/// Calls `f` with each record of a range of the primary index or of a secondary one, until it says false.
pub(crate) fn each_in_range<'g>(
    table: &'g TableHandle,
    index: Option<&'g SecondaryIndex>,
    range: &KeyRange,
    guard: &'g Guard,
    f: &mut dyn FnMut(&'g Record, Option<&'g IndexEntry>) -> bool,
) -> bool {
    let (lo, hi) = range.bounds();
    match index {
        None => {
            let mut cursor = table
                .storage
                .primary
                .cursor(lo, hi, Direction::Forward, guard);
            let mut batch = Vec::new();
            loop {
                batch.clear();
                let more = cursor.next_batch(64, &mut batch);
                if !batch.iter().all(|r| f(r, None)) {
                    return false;
                }
                if !more {
                    return true;
                }
            }
        }
        Some(index) => {
            let mut cursor = index.tree.cursor(lo, hi, Direction::Forward, guard);
            let mut batch = Vec::new();
            loop {
                batch.clear();
                let more = cursor.next_batch(64, &mut batch);
                if !batch.iter().all(|e| f(e.record(guard), Some(e))) {
                    return false;
                }
                if !more {
                    return true;
                }
            }
        }
    }
}

/// Whether two versions of a row are the same in these columns.
pub(crate) fn same_columns(table: &TableHandle, columns: u64, a: &[u8], b: &[u8]) -> bool {
    // The planted bug: that the row is there is all that matters.
    if env::fault::planted("validation.no_columns") {
        return true;
    }
    if columns == ALL_COLUMNS {
        return false;
    }
    let layout = &table.table.layout;
    let (a, b) = (layout.row(a), layout.row(b));
    let mut columns = (0..layout.len()).filter(|i| *i < 64 && columns & 1 << i != 0);
    columns.all(|i| same_column(a, b, i))
}

/// Whether two versions of a row show the same in these columns: split values by their sums at the two positions.
pub(crate) fn same_shown(
    table: &TableHandle,
    columns: u64,
    key: &[u8],
    (a, b): (&[u8], &[u8]),
    between: (Position, Position),
    guard: &Guard,
) -> bool {
    let layout = &table.table.layout;
    if table.spreads.is_empty()
        || !table.is_spread(layout.row(a)) && !table.is_spread(layout.row(b))
    {
        return same_columns(table, columns, a, b);
    }
    if layout.len() >= 63 || !layout.knows(b) {
        return false;
    }
    let all = (1u64 << layout.len()) - 1;
    let hidden = |set: u64, s: &Spread| set & !(1 << s.column) & !(1 << s.count);
    let others = table.spreads.iter().fold(columns & all, hidden);
    let mut split = table.spreads.iter();
    same_columns(table, others, a, b)
        && split.all(|s| columns & 1 << s.column == 0 || same_total(table, s, key, between, guard))
}

/// Whether a row that was read by key is there still and the same in these columns, at an older and a newer position.
pub(crate) fn same_row(
    table: &TableHandle,
    columns: u64,
    r: &Record,
    (old, new): (Position, Position),
    guard: &Guard,
) -> bool {
    let all = columns == ALL_COLUMNS && table.spreads.is_empty();
    if all || table.storage.shape() != table.shape {
        return false;
    }
    let Some(now) = r.row_at(new, guard) else {
        return false;
    };
    if is_in_key(table, columns) {
        // It was there when it was read, under this key.
        return true;
    }
    // The chain down to the snapshot is as long as there were commits since, on a hot row as many as there are clients.
    match r.row_at(old, guard) {
        Some(then) => same_shown(table, columns, r.key(), (then, now), (old, new), guard),
        None => false,
    }
}

/// Whether these columns are whole numbers of the primary key, which are the same in all rows of a record. Other types have values that
/// are equal and shown differently.
fn is_in_key(table: &TableHandle, columns: u64) -> bool {
    let whole = |c: &&usize| {
        let ty = table.table.def.columns[**c].ty().ty;
        **c < 63 && matches!(ty, Type::Int2 | Type::Int4 | Type::Int8)
    };
    let key = table.key_columns.iter().filter(whole);
    columns & !key.fold(0, |set, c| set | 1 << c) == 0
}

/// The columns in which two versions of a row differ, and always that which stands for no column but is among all of them.
pub(crate) fn changed_columns(table: &TableHandle, a: &[u8], b: &[u8]) -> u64 {
    let layout = &table.table.layout;
    let (a, b) = (layout.row(a), layout.row(b));
    let changed = (0..layout.len().min(63)).filter(|i| !same_column(a, b, *i));
    changed.fold(1 << 63, |set, i| set | 1 << i)
}

pub(crate) fn same_column(a: RowRef<'_>, b: RowRef<'_>, i: usize) -> bool {
    match (a.is_missing(i), b.is_missing(i)) {
        (true, true) => true,
        (false, false) if a.is_null(i) || b.is_null(i) => a.is_null(i) == b.is_null(i),
        (false, false) => a.raw(i) == b.raw(i),
        _ => false,
    }
}

impl RangeRead {
    /// Everything in a range.
    pub(crate) fn whole(
        table: Arc<TableHandle>,
        index: Option<Arc<SecondaryIndex>>,
        range: KeyRange,
    ) -> RangeRead {
        RangeRead {
            table,
            index,
            range,
            reader: 0,
            passed_over: HashSet::new(),
            rows: 0,
            columns: ALL_COLUMNS,
            filter: None,
        }
    }

    /// What was read of a row, its place in the range, the columns and whether it was taken, compared at two positions. The older one is
    /// that of a live snapshot.
    pub(crate) fn look(
        &self,
        r: &Record,
        entry: Option<&IndexEntry>,
        old: Position,
        new: Position,
        guard: &Guard,
    ) -> Look {
        let layout = &self.table.table.layout;
        let grown = |at| r.row_at(at, guard).is_some_and(|row| !layout.knows(row));
        // Where it stands among the others is not known.
        if grown(new) || grown(old) {
            return Look::Changed;
        }
        let mut scratch = Vec::new();
        let mut seen = |at| {
            let row = r.row_at(at, guard)?;
            let there = match (entry, &self.index) {
                (Some(e), Some(i)) => i.matches(e, row, &mut scratch),
                _ => true,
            };
            there.then_some(row)
        };
        let (before, after) = (seen(old), seen(new));
        match (before, after) {
            (None, None) => return Look::Same,
            (Some(a), Some(b))
                if same_shown(
                    &self.table,
                    self.columns,
                    r.key(),
                    (a, b),
                    (old, new),
                    guard,
                ) =>
            {
                return Look::Spared(Spared::Columns);
            }
            _ => {}
        }
        let Some(filter) = &self.filter else {
            return Look::Changed;
        };
        if self.table.storage.shape() != self.table.shape {
            return Look::Changed;
        }
        // The planted bug: who comes to pass is overlooked.
        let after = after.filter(|_| !env::fault::planted("validation.filter_old_only"));
        let spread = |row: Option<&[u8]>| row.is_some_and(|r| self.table.is_spread(layout.row(r)));
        let summed = !self.table.spreads.is_empty() && (spread(before) || spread(after));
        let taken = |row: Option<&[u8]>, at| match row {
            // The reader saw sums, and so has the filter to.
            Some(_) if summed => {
                takes_at(&self.table, &|row| filter.takes(row), r, at, guard) != Some(false)
            }
            row => row.is_some_and(|r| filter.takes(layout.row(r))),
        };
        match taken(before, old) || taken(after, new) {
            true => Look::Changed,
            false => Look::Spared(Spared::Predicate),
        }
    }

    /// Whether `f` holds for each record whose key stands in the range, those passed over left out.
    pub(crate) fn all(
        &self,
        guard: &Guard,
        f: &mut dyn FnMut(&Record, Option<&IndexEntry>) -> bool,
    ) -> bool {
        each_in_range(
            &self.table,
            self.index.as_deref(),
            &self.range,
            guard,
            &mut |r, e| {
                let passed = !self.passed_over.is_empty() && self.passed_over.contains(r.key());
                passed || f(r, e)
            },
        )
    }
}
