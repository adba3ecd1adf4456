//! Range scans: the store's rows at the snapshot merged with the transaction's own writes, in index order, both ways, in
//! batches that can stop anywhere and go on later.
//!
//! What has been scanned goes into the footprint piece by piece: a scan that stops early (LIMIT) has read only up to its last row.

use base::key::KeyTest;
use base::{ColumnIdx, KeyRange, RowRef};
use std::ops::Bound;
use std::sync::Arc;
use store::tree::Cursor;
use store::{IndexEntry, Record, SecondaryIndex, entry_key, pin};

use crate::handle::TableHandle;
use crate::range::{ALL_COLUMNS, RangeRead, RowFilter, column_set};
use crate::stop::Result;
use crate::txn::Txn;
use crate::writes::TableWrites;

/// Which order a scan follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The rows themselves, in primary-key (or row-id) order.
    Primary,
    /// A secondary index, by its place in `TableDef::indexes`.
    Index(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Forward,
    Backward,
}

/// A resumable position in a range scan; holds no reference into the store.
#[derive(Clone)]
pub struct Scan {
    access: Access,
    /// What is left of the range; shrinks as the scan goes on.
    rest: KeyRange,
    direction: Direction,
    done: bool,
    /// Place in the transaction's footprint where this scan's range is.
    entry: Option<usize>,
    /// See [`Scan::read_by`].
    reader: u32,
    columns: u64,
    filter: Option<Arc<dyn RowFilter>>,
    /// See [`Scan::tested_by`].
    test: Option<Arc<KeyTest>>,
    /// Rows of the last call that were shown with sums of further records.
    shown: Vec<Box<[u8]>>,
}

const BATCH: usize = 32;

impl Scan {
    /// A scan of the keys of `range` (encoded keys of the index: `base::key`).
    pub fn new(access: Access, range: KeyRange, direction: Direction) -> Scan {
        Scan {
            access,
            rest: range,
            direction,
            done: false,
            entry: None,
            reader: 0,
            columns: ALL_COLUMNS,
            filter: None,
            test: None,
            shown: vec![],
        }
    }

    /// The part of the statement that reads here, for [`Txn::pass_over`]; 0: none that passes over rows.
    pub fn read_by(mut self, reader: u32) -> Scan {
        self.reader = reader;
        self
    }

    /// The same for somebody who looks at these columns only: others of the rows may change.
    pub fn of_columns(mut self, columns: &[ColumnIdx]) -> Scan {
        self.columns = column_set(columns);
        self
    }

    /// The same for somebody to whom only rows matter that this takes. When to stop must not depend on others either: a scan of a unique
    /// key that ends at its one row, taken or not, has not covered what may come in its place.
    pub fn filtered_by(mut self, filter: Arc<dyn RowFilter>) -> Scan {
        self.filter = Some(filter);
        self
    }

    /// The same without entries that the test refuses: their rows are not looked at, and do not count as read. Own rows are not tested.
    pub fn tested_by(mut self, test: Arc<KeyTest>) -> Scan {
        self.test = Some(test);
        self
    }

    /// Begins again with another range, keeping what is allocated.
    pub fn restart(&mut self, range: KeyRange) {
        *self = Scan {
            columns: self.columns,
            reader: self.reader,
            filter: self.filter.take(),
            test: self.test.take(),
            ..Scan::new(self.access, range, self.direction)
        };
    }

    fn shrink_past(&mut self, key: &[u8]) {
        let side = match self.direction {
            Direction::Forward => &mut self.rest.lo,
            Direction::Backward => &mut self.rest.hi,
        };
        *side = Bound::Excluded(key.into());
    }
}

enum Source<'k, 'g> {
    Primary(Cursor<'k, 'g, Record>),
    Index(&'g SecondaryIndex, Cursor<'k, 'g, IndexEntry>),
}

impl<'k, 'g: 'k> Source<'k, 'g> {
    fn new(
        table: &'g TableHandle,
        access: Access,
        range: &'k KeyRange,
        direction: Direction,
        guard: &'g store::Guard,
    ) -> Source<'k, 'g> {
        let (lo, hi) = range.bounds();
        let direction = match direction {
            Direction::Forward => store::tree::Direction::Forward,
            Direction::Backward => store::tree::Direction::Backward,
        };
        match access {
            Access::Primary => {
                Source::Primary(table.storage.primary.cursor(lo, hi, direction, guard))
            }
            Access::Index(i) => {
                let index = table.indexes[i].as_deref().expect("a secondary index");
                Source::Index(index, index.tree.cursor(lo, hi, direction, guard))
            }
        }
    }
}

/// A row from the store: its place in the index, its primary key, its bytes.
struct Stored<'g> {
    index_key: &'g [u8],
    key: &'g [u8],
    row: &'g [u8],
}

impl Txn {
    /// Up to `max` rows of the scan in order: `f(primary-index key, row)`. False when the scan is at its end.
    pub fn scan(
        &mut self,
        table: &TableHandle,
        scan: &mut Scan,
        max: usize,
        f: &mut dyn FnMut(&[u8], RowRef<'_>) -> Result<()>,
    ) -> Result<bool> {
        self.check_interrupt()?;
        if scan.done || max == 0 {
            return Ok(!scan.done);
        }
        let from = scan.rest.clone();
        let mut last: Option<Vec<u8>> = None;
        let mut given = 0;
        let outcome = self.scan_rest(table, &from, scan, max, &mut given, &mut last, f);
        match (&last, scan.done) {
            (_, true) => {}
            (Some(key), false) => scan.shrink_past(key),
            (None, false) => {}
        }
        if self.tracks_reads() && (scan.done || last.is_some()) {
            self.register(table, scan, from, given);
            let known = self.handle_of(table);
            let known = known.is_some_and(|h| Arc::ptr_eq(&h.table, &table.table));
            let filter = scan.filter.clone().filter(|_| known);
            for key in std::mem::take(&mut scan.shown) {
                self.note_shown(table, &key, scan.columns, filter.as_ref());
            }
        }
        outcome?;
        Ok(!scan.done)
    }

    fn scan_rest(
        &mut self,
        table: &TableHandle,
        from: &KeyRange,
        scan: &mut Scan,
        max: usize,
        given: &mut usize,
        last: &mut Option<Vec<u8>>,
        f: &mut dyn FnMut(&[u8], RowRef<'_>) -> Result<()>,
    ) -> Result<()> {
        let guard = pin();
        let at = self.view()?.position();
        let mut source = Source::new(table, scan.access, from, scan.direction, &guard);
        let own = self.own_writes(table)?;
        let mut mine = own
            .map(|w| own_rows(w, scan.access, from, scan.direction))
            .into_iter()
            .flatten()
            .peekable();
        let layout = &table.table.layout;
        let (mut stored, mut scratch) = (Vec::with_capacity(BATCH), Vec::new());
        let mut more = true;
        let note = |last: &mut Option<Vec<u8>>, key: &[u8]| {
            let l = last.get_or_insert_default();
            l.clear();
            l.extend_from_slice(key);
        };
        while more && *given < max {
            // A call that gives few rows may have looked at many entries.
            if scan.test.is_some() {
                self.check_interrupt()?;
            }
            stored.clear();
            more = fill(
                &mut source,
                at,
                scan.test.as_deref(),
                &mut stored,
                &mut scratch,
                (max - *given).min(BATCH),
                &guard,
            );
            // After the look: what it saw was whole if the snapshot is live still.
            self.view()?.check().map_err(|_| Txn::snapshot_too_old())?;
            for s in &stored {
                while let Some((index_key, key, row)) =
                    mine.next_if(|m| comes_first(m.0, s.index_key, scan.direction))
                {
                    if *given == max {
                        return Ok(());
                    }
                    note(last, index_key);
                    *given += 1;
                    let fresh = self.fresh(table, key, row, &mut scan.shown)?;
                    f(key, layout.row(fresh.as_deref().unwrap_or(row)))?;
                }
                if own.is_some_and(|w| w.rows.contains_key(s.key)) {
                    continue;
                }
                if *given == max {
                    return Ok(());
                }
                note(last, s.index_key);
                *given += 1;
                match table.spreads.is_empty() {
                    true => f(s.key, layout.row(s.row))?,
                    false => {
                        let shown = self.summed(table, s.key, s.row, &mut scan.shown)?;
                        f(s.key, layout.row(shown.as_deref().unwrap_or(s.row)))?;
                    }
                }
            }
        }
        if more {
            return Ok(());
        }
        for (index_key, key, row) in mine {
            if *given == max {
                return Ok(());
            }
            note(last, index_key);
            *given += 1;
            let fresh = self.fresh(table, key, row, &mut scan.shown)?;
            f(key, layout.row(fresh.as_deref().unwrap_or(row)))?;
        }
        scan.done = true;
        Ok(())
    }

    /// The rows of a whole range in order, if they are at most `max`: `f` gets them where they stand, and looks at these columns. None,
    /// and no call, when there are more.
    pub fn range<R>(
        &mut self,
        table: &TableHandle,
        (access, direction): (Access, Direction),
        range: KeyRange,
        columns: &[ColumnIdx],
        max: usize,
        f: impl FnOnce(&mut [RowRef<'_>]) -> Result<R>,
    ) -> Result<Option<R>> {
        self.check_interrupt()?;
        let given;
        let mut noted = vec![];
        let outcome = {
            let guard = pin();
            let at = self.view()?.position();
            let mut source = Source::new(table, access, &range, direction, &guard);
            let mut stored = Vec::with_capacity(128);
            let more = fill(
                &mut source,
                at,
                None,
                &mut stored,
                &mut Vec::new(),
                max + 1,
                &guard,
            );
            // After the look: what it saw was whole if the snapshot is live still.
            self.view()?.check().map_err(|_| Txn::snapshot_too_old())?;
            if more || stored.len() > max {
                return Ok(None);
            }
            let layout = &table.table.layout;
            let own = self.own_writes(table)?;
            let mut fresh = Vec::new();
            let made_anew = self.writes.has_moved() || !table.spreads.is_empty();
            if let Some(own) = own.filter(|_| made_anew) {
                for (_, key, row) in own_rows(own, access, &range, direction) {
                    fresh.push(self.fresh(table, key, row, &mut noted)?);
                }
            }
            let mut sums: Vec<Option<Box<[u8]>>> = vec![];
            if !table.spreads.is_empty() {
                for s in &stored {
                    let own = own.is_some_and(|w| w.rows.contains_key(s.key));
                    sums.push(match own {
                        true => None,
                        false => self.summed(table, s.key, s.row, &mut noted)?,
                    });
                }
            }
            let of_store = |place: usize, row| match sums.get(place) {
                Some(Some(sum)) => layout.row(sum),
                _ => layout.row(row),
            };
            let mut fresh = fresh.iter();
            let mut shown = |row| match fresh.next() {
                Some(Some(now)) => layout.row(now),
                _ => layout.row(row),
            };
            let mut rows: Vec<RowRef<'_>> = Vec::with_capacity(stored.len());
            match own {
                None => {
                    let all = stored.iter().enumerate();
                    rows.extend(all.map(|(place, s)| of_store(place, s.row)));
                }
                Some(own) => {
                    let mut mine = own_rows(own, access, &range, direction).peekable();
                    for (place, s) in stored.iter().enumerate() {
                        while let Some((_, _, row)) =
                            mine.next_if(|m| comes_first(m.0, s.index_key, direction))
                        {
                            rows.push(shown(row));
                        }
                        if !own.rows.contains_key(s.key) {
                            rows.push(of_store(place, s.row));
                        }
                    }
                    rows.extend(mine.map(|(_, _, row)| shown(row)));
                }
            }
            given = rows.len();
            f(&mut rows)
        };
        if self.tracks_reads() {
            let mut scan = Scan::new(access, KeyRange::all(), direction).of_columns(columns);
            scan.done = true;
            self.register(table, &mut scan, range, given);
            for key in noted {
                self.note_shown(table, &key, scan.columns, None);
            }
        }
        outcome.map(Some)
    }

    /// A row with the sums of its further records; none: it has none.
    fn summed(
        &self,
        table: &TableHandle,
        key: &[u8],
        row: &[u8],
        noted: &mut Vec<Box<[u8]>>,
    ) -> Result<Option<Box<[u8]>>> {
        let shown = self.shown(table, key, table.table.layout.row(row))?;
        if shown.is_some() {
            noted.push(key.into());
        }
        Ok(shown)
    }

    /// An own row as it is at the snapshot: made anew if it changes by deltas and was made at another one, with the sums of its further records.
    fn fresh(
        &self,
        table: &TableHandle,
        key: &[u8],
        row: &[u8],
        noted: &mut Vec<Box<[u8]>>,
    ) -> Result<Option<Box<[u8]>>> {
        if !table.spreads.is_empty() {
            let own = self.writes.get(table.storage.id, key);
            if own.is_some_and(|p| p.moved.is_some()) {
                // The row in the write set has the sums already.
                noted.push(key.into());
            }
        }
        let at = self.view()?.position();
        let stale = match self.writes.has_moved() {
            true => self.writes.stale(table.storage.id, key, at),
            false => None,
        };
        let Some((of, moved)) = stale else {
            return match table.spreads.is_empty() {
                true => Ok(None),
                false => self.summed(table, key, row, noted),
            };
        };
        let now = self.moved_at_snapshot(&of.table, key, &moved.net)?;
        Ok(Some(now.0))
    }

    /// Adds what a call of `scan` covered to the footprint, joined to what its earlier calls covered.
    fn register(&mut self, table: &TableHandle, scan: &mut Scan, from: KeyRange, rows: usize) {
        let mut covered = from;
        if !scan.done {
            let turn = |b: &Bound<Box<[u8]>>| match b {
                Bound::Excluded(k) => Bound::Included(k.clone()),
                other => other.clone(),
            };
            match scan.direction {
                Direction::Forward => covered.hi = turn(&scan.rest.lo),
                Direction::Backward => covered.lo = turn(&scan.rest.hi),
            }
        }
        if self.shows_reads() && scan.access == Access::Primary {
            self.show_range(table.storage.id, &covered, scan.columns);
        }
        if let Some(r) = scan.entry.and_then(|i| self.reads.ranges.get_mut(i)) {
            r.rows += rows;
            match scan.direction {
                Direction::Forward => r.range.hi = covered.hi,
                Direction::Backward => r.range.lo = covered.lo,
            }
            return;
        }
        let index = match scan.access {
            Access::Primary => None,
            Access::Index(i) => table.indexes[i].clone(),
        };
        let Some(handle) = self.handle_of(table) else {
            return;
        };
        // The filter knows the columns of the handle that it was made with.
        let known = Arc::ptr_eq(&handle.table, &table.table);
        scan.entry = Some(self.reads.ranges.len());
        self.reads.ranges.push(RangeRead {
            table: handle,
            index,
            range: covered,
            reader: scan.reader,
            passed_over: Default::default(),
            rows,
            columns: scan.columns,
            filter: scan.filter.clone().filter(|_| known),
        });
    }
}

/// Whether own row `a` stands before (or in the place of) stored row `b`.
fn comes_first(a: &[u8], b: &[u8], direction: Direction) -> bool {
    match direction {
        Direction::Forward => a <= b,
        Direction::Backward => a >= b,
    }
}

/// Fills `stored` with at most `limit` visible rows; false when the store has no more.
fn fill<'g>(
    source: &mut Source<'_, 'g>,
    at: base::Position,
    test: Option<&KeyTest>,
    stored: &mut Vec<Stored<'g>>,
    scratch: &mut Vec<u8>,
    limit: usize,
    guard: &'g store::Guard,
) -> bool {
    let refused = |key: &[u8]| test.is_some_and(|t| !t.may_hold(key));
    match source {
        Source::Primary(cursor) => {
            let mut batch: Vec<&Record> = Vec::with_capacity(limit);
            let more = cursor.next_batch(limit, &mut batch);
            for r in batch {
                if refused(r.key()) {
                    continue;
                }
                if let Some(row) = r.row_at(at, guard) {
                    stored.push(Stored {
                        index_key: r.key(),
                        key: r.key(),
                        row,
                    });
                }
            }
            more
        }
        Source::Index(index, cursor) => {
            let mut batch: Vec<&IndexEntry> = Vec::with_capacity(limit);
            let more = cursor.next_batch(limit, &mut batch);
            for e in batch {
                if refused(entry_key(e)) {
                    continue;
                }
                let record = e.record(guard);
                let Some(row) = record.row_at(at, guard) else {
                    continue;
                };
                if index.matches(e, row, scratch) {
                    stored.push(Stored {
                        index_key: entry_key(e),
                        key: record.key(),
                        row,
                    });
                }
            }
            more
        }
    }
}

type OwnRow<'w> = (&'w [u8], &'w [u8], &'w [u8]);

/// Own rows in the range, in order: (index key, primary key, row). Deleted rows are not among them.
fn own_rows<'w>(
    writes: &'w TableWrites,
    access: Access,
    range: &KeyRange,
    direction: Direction,
) -> Box<dyn Iterator<Item = OwnRow<'w>> + 'w> {
    let bounds = range.bounds();
    if is_empty(&bounds) {
        return Box::new(std::iter::empty());
    }
    match access {
        Access::Primary => {
            let rows = writes.rows.range::<[u8], _>(bounds);
            let rows = rows.filter_map(|(k, p)| p.row.as_deref().map(|r| (&k[..], &k[..], r)));
            if direction == Direction::Forward {
                Box::new(rows)
            } else {
                Box::new(rows.rev())
            }
        }
        Access::Index(i) => {
            let keys = writes.by_index[i].range::<[u8], _>(bounds);
            let rows = keys.map(|(ik, k)| {
                let row = writes.rows[k]
                    .row
                    .as_deref()
                    .expect("an indexed own row is there");
                (&ik[..], &k[..], row)
            });
            if direction == Direction::Forward {
                Box::new(rows)
            } else {
                Box::new(rows.rev())
            }
        }
    }
}

/// Whether no key can be inside (a `BTreeMap` refuses such bounds).
fn is_empty((lo, hi): &(Bound<&[u8]>, Bound<&[u8]>)) -> bool {
    match (lo, hi) {
        (Bound::Included(l), Bound::Included(h)) => l > h,
        (Bound::Included(l) | Bound::Excluded(l), Bound::Included(h) | Bound::Excluded(h)) => {
            l >= h
        }
        _ => false,
    }
}
