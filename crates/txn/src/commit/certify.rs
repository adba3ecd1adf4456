//! Certification: whether what a prepared commit read and replaced is still so at its position.
//!
//! Every level certifies that the versions it replaces are the ones it saw, and (without locks) unique keys and foreign keys.
//! SERIALIZABLE certifies all that it read. What is unchanged from the snapshot to the position could as well have been read at the
//! position, so the transaction is serial there.
//!
//! The order of the steps matters: the position is taken first, and every look at a record waits until the commits below the position have
//! settled there ([`settle_below`]).
//!
//! Left out on purpose: conditions of rows that were read by key (`range` says which conditions are known).

use base::{Error, KeyRange, Position, Result};
use store::{Guard, Record};

use super::prepare::{Locked, Prepared};
use crate::handle::TableHandle;
use crate::range::{Look, Spared, column_set, each_in_range, same_columns, same_row};
use crate::settle::settle_below;
use crate::split::shares::same_total;
use crate::stats::Cause;
use crate::txn::{Isolation, Txn};

impl Prepared<'_> {
    /// Decides at the position `me`, which the order has given to this commit. What kept the transaction from a retry, if anything did.
    pub(super) fn certify(&self, me: Position) -> Result<Option<Spared>> {
        let (txn, guard) = (self.txn, self.guard);
        let snapshot = txn.view()?.position();
        self.locked.iter().for_each(|l| l.record.set_holder(me));
        for l in &self.locked {
            let table = &l.table.table;
            if table.storage.shape() != table.shape && !txn.owns_shape(table) {
                txn.shared.stats.abort(Cause::SchemaChanged);
                return Err(txn.schema_moved(Some(table)));
            }
            let newest = l.record.newest(guard);
            let newest_position = newest.map_or(Position::ZERO, |v| v.position());
            // What was left of a deleted row may have been reclaimed since: the key is as free as it was.
            let as_free = newest.is_none() && !l.change.existed;
            if newest_position != l.change.saw && !as_free {
                let duplicate = !l.change.existed && newest.is_some_and(|v| v.row().is_some());
                txn.shared.stats.abort(Cause::WriteConflict);
                if duplicate && let (Some(place), Some(row)) = (table.primary, &l.change.row) {
                    return Err(txn.unique_error(
                        table,
                        place,
                        &table.table.layout.row(row).values(),
                    ));
                }
                let what = "could not serialize access due to concurrent update";
                return Err(txn.lost_to(what, table, &l.describe(), newest_position));
            }
            if txn.options.isolation == Isolation::RepeatableRead {
                self.certify_moved(l, snapshot)?;
            }
            if !txn.options.locking && !env::fault::planted("commit.no_unique") {
                self.validate_unique(me, l)?;
            }
        }
        if txn.options.isolation == Isolation::RepeatableRead {
            self.certify_spread(me, snapshot)?;
        }
        if !txn.options.locking {
            txn.probes_hold(me, guard)?;
        }
        if txn.options.isolation == Isolation::Serializable
            && !env::fault::planted("skip_read_validation")
        {
            if let Some(table) = txn.broken_guard(me.prev(), guard) {
                txn.shared.stats.abort(Cause::ReadChanged);
                let what =
                    "could not serialize access due to read/write dependencies among transactions";
                return Err(txn.lost_to(what, table, "(row)", me.prev()));
            }
            return Ok(txn
                .reads
                .spared
                .max(txn.validate_reads(snapshot, me, guard)?));
        }
        Ok(txn.reads.spared)
    }

    /// A split value that was read and is changed by a delta has to be what was read: the transaction's statements could see that it is not.
    fn certify_moved(&self, l: &Locked<'_>, snapshot: Position) -> Result<()> {
        let Some(moved) = &l.change.moved else {
            return Ok(());
        };
        let (txn, guard, table) = (self.txn, self.guard, &l.table.table);
        // Of further records `certify_spread` asks, by their sum.
        if table.records_of.is_some() || env::fault::planted("split.no_certify") {
            return Ok(());
        }
        let columns: Vec<u16> = moved.net.iter().map(|m| m.0).collect();
        let columns = column_set(&columns);
        let newest = l.record.newest(guard);
        let winner = newest.map_or(Position::ZERO, |v| v.position());
        if winner <= snapshot || !txn.has_read(table, l.record, columns, guard)? {
            return Ok(());
        }
        let now = newest.and_then(|v| v.row());
        let same = match (l.record.row_at(snapshot, guard), now) {
            (Some(a), Some(b)) => {
                let spread = |row| table.is_spread(table.table.layout.row(row));
                // Then `certify_spread` compares sums.
                spread(a) || spread(b) || same_columns(table, columns, a, b)
            }
            _ => false,
        };
        if same {
            return Ok(());
        }
        txn.shared.stats.abort(Cause::WriteConflict);
        let what = "could not serialize access due to concurrent update";
        Err(txn.lost_to(what, table, &l.describe(), winner))
    }

    /// The same for values whose deltas go to further records: what was read is compared by sums, below this commit.
    fn certify_spread(&self, me: Position, snapshot: Position) -> Result<()> {
        let (txn, guard) = (self.txn, self.guard);
        if !txn.writes.has_moved() || env::fault::planted("split.no_certify") {
            return Ok(());
        }
        for t in &txn.writes.tables {
            let table = &t.table;
            if table.spreads.is_empty() {
                continue;
            }
            for (key, change) in &t.rows {
                let Some(moved) = &change.moved else { continue };
                let Some(record) = table.storage.primary.get(key, guard) else {
                    continue;
                };
                let spread = |row| table.is_spread(table.table.layout.row(row));
                let newest = record.newest(guard).and_then(|v| v.row());
                if !newest.is_some_and(spread)
                    && !record.row_at(snapshot, guard).is_some_and(spread)
                {
                    continue;
                }
                for (column, _) in &moved.net {
                    let Some(spread) = table.spread(usize::from(*column)) else {
                        continue;
                    };
                    let columns = column_set(&[*column]);
                    if !txn.has_read(table, record, columns, guard)?
                        || same_total(table, spread, key, (snapshot, me.prev()), guard)
                    {
                        continue;
                    }
                    txn.shared.stats.abort(Cause::WriteConflict);
                    let what = "could not serialize access due to concurrent update";
                    let row = table.describe_record(record, guard);
                    return Err(txn.lost_to(what, table, &row, me.prev()));
                }
            }
        }
        Ok(())
    }

    /// An optimistic commit's new unique keys, against the newest rows below `me` and against its own.
    fn validate_unique(&self, me: Position, l: &Locked<'_>) -> Result<()> {
        let (txn, guard) = (self.txn, self.guard);
        let table = &l.table.table;
        for (index, columns) in l.claims() {
            let Some(row) = &l.change.row else { continue };
            let has_null = index.spec.columns_of(row, &mut Vec::new());
            if has_null && !index.spec.nulls_not_distinct {
                continue;
            }
            let range = KeyRange::prefix(columns);
            let mut clash = false;
            each_in_range(table, Some(index), &range, guard, &mut |r, entry| {
                if std::ptr::eq(r, l.record) {
                    return true;
                }
                settle_below(r, me);
                let own = self.locked.iter().find(|o| std::ptr::eq(o.record, r));
                let row = match own {
                    Some(o) => o.change.row.as_deref(),
                    None => r.row_at(me.prev(), guard),
                };
                clash = match (row, entry) {
                    (Some(row), Some(e)) => index.matches(e, row, &mut Vec::new()),
                    _ => false,
                };
                !clash
            });
            if clash {
                txn.shared.stats.abort(Cause::WriteConflict);
                let place = table
                    .indexes
                    .iter()
                    .position(|i| i.as_deref().is_some_and(|i| i.spec.id == index.spec.id));
                let place = place
                    .ok_or_else(|| Error::internal("an index that the table does not have"))?;
                return Err(txn.unique_error(table, place, &table.table.layout.row(row).values()));
            }
        }
        Ok(())
    }
}

impl Txn {
    pub(crate) fn validate_reads(
        &self,
        snapshot: Position,
        me: Position,
        guard: &Guard,
    ) -> Result<Option<Spared>> {
        let changed = |table: &TableHandle, key: String, winner: Position, cause| {
            self.shared.stats.abort(cause);
            let what =
                "could not serialize access due to read/write dependencies among transactions";
            Err(self.lost_to(what, table, &key, winner))
        };
        // A schema change marks the rows before it asks for its position, so one with a smaller position is seen here.
        let tables = self.reads.absent.iter().map(|a| &a.0);
        let mut tables = tables.chain(self.reads.ranges.iter().map(|r| &r.table));
        let moved = tables.find(|t| t.storage.is_changing() && !self.owns_shape(t));
        if let Some(t) = moved {
            self.shared.stats.abort(Cause::SchemaChanged);
            return Err(self.schema_moved(Some(t)));
        }
        if let Some(r) = self.reads.ranges.iter().find(|r| self.has_lost_index(r)) {
            self.shared.stats.abort(Cause::SchemaChanged);
            return Err(self.schema_moved(Some(&r.table)));
        }
        if self.view()?.is_schema_changed(|s| self.owns(s)) {
            self.shared.stats.abort(Cause::SchemaChanged);
            return Err(self.schema_moved(None));
        }
        let (mut lost, mut spared) = (None, None);
        let whole = self.view()?.all(guard, |r, storage, columns| {
            let winner = newest_below(r, me, guard);
            if winner <= snapshot {
                return true;
            }
            // Only now is it asked which table the row is of.
            let table = self.table_of(storage);
            if table.is_some_and(|t| same_row(t, columns, r, (snapshot, me.prev()), guard)) {
                spared = Some(Spared::Columns);
                return true;
            }
            lost = table.map(|t| (t, t.describe_record(r, guard), winner));
            false
        });
        if !whole.map_err(|_| Txn::snapshot_too_old())? {
            let Some((table, key, winner)) = lost else {
                self.shared.stats.abort(Cause::SchemaChanged);
                return Err(self.schema_moved(None));
            };
            return changed(table, key, winner, Cause::ReadChanged);
        }
        for (table, key) in &self.reads.absent {
            if let Some(r) = table.storage.primary.get(key, guard) {
                let winner = newest_below(r, me, guard);
                if winner > snapshot {
                    return changed(
                        table,
                        table.describe_record(r, guard),
                        winner,
                        Cause::ReadChanged,
                    );
                }
            }
        }
        for range in &self.reads.ranges {
            let mut lost = None;
            match self.same_value(range, (snapshot, me.prev()), guard) {
                Some(true) => continue,
                Some(false) => {
                    let key = "(row)".to_owned();
                    return changed(&range.table, key, me.prev(), Cause::ReadChanged);
                }
                None => {}
            }
            range.all(guard, &mut |r, entry| {
                let winner = newest_below(r, me, guard);
                if winner <= snapshot {
                    return true;
                }
                match range.look(r, entry, snapshot, me.prev(), guard) {
                    Look::Same => {}
                    Look::Spared(by) => spared = spared.max(Some(by)),
                    Look::Changed => {
                        lost = Some((range.table.describe_record(r, guard), winner));
                    }
                }
                lost.is_none()
            });
            if let Some((key, winner)) = lost {
                let cause = match range.range == KeyRange::all() {
                    true => Cause::TableChanged,
                    false => Cause::RangeChanged,
                };
                return changed(&range.table, key, winner, cause);
            }
        }
        // The rows at the snapshot were compared: they were there if it is live still.
        let live = self.view()?.check();
        live.map_err(|_| Txn::snapshot_too_old())?;
        Ok(spared)
    }
}

/// The position of the newest version below `me`, once every commit below has settled.
fn newest_below(record: &Record, me: Position, guard: &Guard) -> Position {
    settle_below(record, me);
    record
        .at(me.prev(), guard)
        .map_or(Position::ZERO, |v| v.position())
}
