//! The newest rows of a table, for a change of the schema that writes them anew.
//!
//! ```text
//! close the table (no commit changes it any more) -> read its newest rows in batches -> write them to new storage
//! ```
//! The order matters. A row that another transaction commits between the look and the close would be in the old storage alone, and lost.
//! The transaction's snapshot shows an older state at every level, so it is not asked: PostgreSQL's ALTER TABLE copies the newest rows, too.
//! Nothing is noted as read: the table is closed until the transaction ends, so what was seen stays true.
//!
//! Left out on purpose: reading beside writers, with a second pass for what they changed.

use base::{KeyRange, RowRef};
use std::iter::Peekable;
use std::ops::Bound;
use std::sync::Arc;
use store::tree::Direction;
use store::{Record, pin};

use crate::handle::TableHandle;
use crate::stop;
use crate::txn::Txn;

/// How far a read of the newest rows has come; holds no reference into the store.
pub struct NewestRows {
    rest: KeyRange,
}

impl Default for NewestRows {
    /// Before the first row.
    fn default() -> NewestRows {
        NewestRows {
            rest: KeyRange::all(),
        }
    }
}

impl Txn {
    /// No commit of another transaction changes the table from here until this one ends. May ask to block: writers are waited for. 55006
    /// when this transaction has changed split columns of the table. [`Txn::lock_schema`] comes first.
    pub fn close_table(&mut self, table: &Arc<TableHandle>) -> stop::Result<()> {
        if table.temporary {
            return Ok(());
        }
        self.check_no_deltas(table)?;
        self.quiesce(table)?;
        for s in &table.spreads {
            self.quiesce(&s.table)?;
        }
        Ok(())
    }

    /// Up to `max` more of the newest rows of a closed table, this transaction's own changes included, in the order of their keys.
    /// True if there may be more.
    pub fn newest_rows(
        &self,
        table: &TableHandle,
        at: &mut NewestRows,
        max: usize,
        f: &mut dyn FnMut(RowRef<'_>),
    ) -> base::Result<bool> {
        assert!(
            table.temporary || self.owns_shape(table),
            "the newest rows of a table that is not closed"
        );
        self.check_interrupt()?;
        let guard = pin();
        let (low, high) = at.rest.bounds();
        let mut records: Vec<&Record> = vec![];
        let rows = &table.storage.primary;
        let more = rows.scan(low, high, Direction::Forward, max, &mut records, &guard);
        let mut stored = records.iter().peekable();
        let own = self.writes.of(table.storage.id);
        let mut mine = own
            .into_iter()
            .flat_map(|w| w.rows.range::<[u8], _>((low, high)))
            .peekable();
        let layout = &table.table.layout;
        let mut last: Option<Box<[u8]>> = None;
        for _ in 0..max {
            let (key, row) = match (mine.peek(), stored.peek()) {
                (None, None) => break,
                // The store has more before it.
                (Some(_), None) if more => break,
                (Some((key, _)), r) if r.is_none_or(|r| key[..] <= *r.key()) => {
                    let (key, change) = mine.next().expect("looked at");
                    pass(&mut stored, key);
                    (&key[..], change.row.as_deref())
                }
                _ => {
                    let r = stored.next().expect("looked at");
                    (r.key(), r.newest(&guard).and_then(|v| v.row()))
                }
            };
            last = Some(key.into());
            let Some(row) = row else { continue };
            let row = layout.row(row);
            match self.gathered(table, key, row, &guard)? {
                Some(whole) => f(layout.row(&whole)),
                None => f(row),
            }
        }
        let more = more || stored.peek().is_some() || mine.peek().is_some();
        if let Some(last) = last {
            at.rest.lo = Bound::Excluded(last);
        }
        Ok(more)
    }

    /// How many rows [`Txn::newest_rows`] gives.
    pub fn count_newest_rows(&self, table: &TableHandle) -> base::Result<u64> {
        let (mut at, mut count) = (NewestRows::default(), 0);
        while self.newest_rows(table, &mut at, 1024, &mut |_| count += 1)? {}
        Ok(count)
    }
}

/// The stored row of this key is an older state of the transaction's own.
fn pass<'a, 'g: 'a>(stored: &mut Peekable<impl Iterator<Item = &'a &'g Record>>, key: &[u8]) {
    stored.next_if(|r| r.key() == key);
}
