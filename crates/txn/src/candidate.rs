//! A transaction as a candidate, and a candidate as a transaction.
//!
//! ```text
//! the node that ran it    Txn::candidate         what it read (SERIALIZABLE) and wrote, with the versions seen
//! the certifier           TxnManager::adopt      an optimistic transaction with the same reads and writes, ready for `Txn::commit`
//! ```
//! Adopting checks what can be checked early: rows read are the versions that were read, rows to be replaced are the versions that were seen.
//! It refuses a candidate after a change of the schema above its first statement's snapshot that concerns what it used: roles, grants, views,
//! the rules for rows (`used`). So a REVOKE that was acknowledged before the candidate came is obeyed. The snapshot of the last statement would not
//! do, since a row that an earlier one wrote was checked by the rules of then. `Txn::commit` checks all of it again below its position, which is
//! what decides. So certification on another node is the commit that exists, and it is as parallel as commits are: record locks keep
//! apart what conflicts (PSP §3.3.2 needs classes and executors for that).
//!
//! | level | what is certified |
//! |---|---|
//! | READ COMMITTED, REPEATABLE READ | the versions replaced, unique keys, foreign keys, rows that were locked, rows that were read and moved |
//! | SERIALIZABLE | and all that was read, whole rows and ranges without their conditions |
//!
//! A key that was absent has to be absent still, and a tombstone that is left of it to be at or below the snapshot. A row that came and went and
//! left no trace counts as unchanged, as with reads that travel (`moved`): the state is the one that was read.
//!
//! Left out on purpose: schema changes; columns and conditions of reads.

use base::footprint::{FoundBy, MoveEntry, RangeEntry, ReadEntry, WriteEntry};
use base::{Candidate, Error, Footprint, KeyRange, Oid, Position, Result, SqlState};
use std::sync::Arc;
use store::pin;

use crate::handle::TableHandle;
use crate::key_values::same;
use crate::manager::TxnManager;
use crate::moved::{AsRead, changed, range_entry};
use crate::range::{ALL_COLUMNS, RangeRead, column_set};
use crate::split::shares::newest_total;
use crate::split::{Delta, Outcome};
use crate::stats::Cause;
use crate::stop::{self, Stop};
use crate::txn::{Isolation, Txn, TxnOptions};
use crate::writes::Moved;

fn damaged() -> Error {
    let what = "a candidate names a row that its table cannot have";
    Error::new(SqlState::DATA_CORRUPTED, what)
}

/// The deltas of a row, with what their guards come to.
fn entries(moved: &Moved) -> Vec<MoveEntry> {
    let need = |column| moved.needs.iter().find(|n| n.0 == column).map(|n| n.1);
    let entry = |&(column, amount): &(u16, i128)| MoveEntry {
        column,
        amount,
        need: need(column),
    };
    moved.net.iter().map(entry).collect()
}

/// 40001: it cannot be told whether the transaction might do still what it did.
fn rights_moved() -> Error {
    let what = "could not serialize access: rights or definitions were changed concurrently";
    Error::new(SqlState::SERIALIZATION_FAILURE, what)
        .detail("The schema has changed since the transaction took its snapshot at another node.")
        .hint("The transaction might succeed if retried.")
}

impl Txn {
    /// The transaction as a value for a certifier. `number` names the request. 40001 where it is not known any more what was read; 0A000
    /// when it changed the schema; 54000 when its changes are too big.
    pub fn candidate(&self, number: u64) -> Result<Candidate> {
        if self.schema.own.is_some() || !self.notifications.is_empty() {
            let what =
                "a transaction that changes the schema or notifies is not certified elsewhere";
            return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, what));
        }
        // Before anything is copied: the copies are counted nowhere.
        Candidate::check_size(self.writes.size().1)?;
        let mut level = self.options.isolation;
        let mut footprint = match level {
            Isolation::Serializable => self.reads()?.unwrap_or_default(),
            _ => self.exact_reads()?,
        };
        if !footprint.reads.is_empty() || !footprint.ranges.is_empty() {
            level = Isolation::Serializable;
        }
        footprint.snapshot = self.view()?.position();
        footprint.hold = 0;
        for t in self.writes.tables.iter().filter(|t| !t.table.temporary) {
            let changes = t.rows.iter().filter(|(_, p)| p.row.is_some() || p.existed);
            footprint.writes.extend(changes.map(|(key, p)| {
                WriteEntry {
                    storage: t.table.storage.id,
                    key: key.clone(),
                    overwrites: p.saw,
                    existed: p.existed,
                    row: p.row.clone().filter(|_| p.moved.is_none()),
                    moved: p.moved.as_deref().map_or_else(Vec::new, entries),
                    found_by: p
                        .moved
                        .as_deref()
                        .map_or_else(Vec::new, |m| m.found_by.to_vec()),
                }
            }));
        }
        Ok(Candidate {
            number,
            level,
            since: self.standing.since.unwrap_or(footprint.snapshot),
            used: self
                .standing
                .used
                .with(self.writes.tables.iter().map(|t| t.table.table.def.id)),
            footprint,
        })
    }

    /// Whether another node certifies what it does.
    pub fn is_certified_elsewhere(&self) -> bool {
        self.standing.elsewhere
    }

    /// A statement that runs now uses these relations and roles. One that is certified elsewhere and says nothing uses all of the schema.
    pub fn uses(&mut self, objects: impl IntoIterator<Item = Oid>) {
        self.standing.used.add(objects);
    }

    /// A statement that runs now looks at the schema itself.
    pub fn uses_all(&mut self) {
        self.standing.used.add_all();
    }

    /// Below SERIALIZABLE: what has to be unchanged at the commit's position all the same. Rows that were locked are, since the locks hold
    /// here only; and so are rows that were read and then changed by deltas, of which an update could be lost. Of a split value with
    /// further records these count, too, also where the row is written and its share stays.
    fn exact_reads(&self) -> Result<Footprint> {
        let mut found = Footprint::default();
        let rc = self.options.isolation == Isolation::ReadCommitted;
        for (storage, key, saw) in &self.reads.locked {
            if *saw == Position::ZERO || env::fault::planted("candidate.no_locks") {
                continue;
            }
            let table = self.schema.catalog.of_storage(*storage);
            if let Some(table) = table {
                self.read_records(table, key, ALL_COLUMNS, &mut found.ranges)?;
            }
            let written = self.writes.get(*storage, key);
            let written = written.filter(|p| p.moved.is_none());
            // READ COMMITTED may replace a later version than the one that it locked: replay heeds no locks. Its client has seen the locked one,
            // so the read of that fails at the commit.
            if written.is_some_and(|p| !rc || p.saw == *saw) {
                continue;
            }
            found.reads.push(ReadEntry {
                storage: *storage,
                key: key.clone(),
                saw: *saw,
                live: true,
            });
        }
        let guard = pin();
        for t in self.writes.tables.iter().filter(|t| !t.table.temporary) {
            for (key, p) in &t.rows {
                let Some(record) = t.table.storage.primary.get(key, &guard) else {
                    continue;
                };
                let Some(moved) = &p.moved else {
                    for s in t.table.spreads.iter().filter(|_| p.existed) {
                        let column = column_set(&[s.column as u16]);
                        // At READ COMMITTED it is not known what was looked at.
                        if rc || self.has_read(&t.table, record, column, &guard)? {
                            self.read_records(&t.table, key, column, &mut found.ranges)?;
                        }
                    }
                    continue;
                };
                let columns: Vec<u16> = moved.net.iter().map(|m| m.0).collect();
                let columns = column_set(&columns);
                let at = record.at(self.view()?.position(), &guard);
                if let Some(at) = at.filter(|_| !rc)
                    && self.has_read(&t.table, record, columns, &guard)?
                {
                    found.reads.push(ReadEntry {
                        storage: t.table.storage.id,
                        key: key.clone(),
                        saw: at.position(),
                        live: at.row().is_some(),
                    });
                    self.read_records(&t.table, key, columns, &mut found.ranges)?;
                }
            }
        }
        Ok(found)
    }

    /// The further records of these split columns of a row count as read. READ COMMITTED has read them at several snapshots: 40001 where they
    /// have changed between.
    fn read_records(
        &self,
        table: &TableHandle,
        key: &[u8],
        columns: u64,
        ranges: &mut Vec<RangeEntry>,
    ) -> Result<()> {
        if table.spreads.is_empty() || env::fault::planted("candidate.no_records") {
            return Ok(());
        }
        let guard = pin();
        let at = self.view()?.position();
        let oldest = match self.options.isolation {
            Isolation::ReadCommitted => self.standing.since,
            _ => None,
        };
        let record = table.storage.primary.get(key, &guard);
        let row = record.and_then(|r| r.row_at(at, &guard));
        let row = row.map(|r| table.table.layout.row(r));
        for s in &table.spreads {
            let looked = s.column >= 63 || columns & 1 << s.column != 0;
            if looked && row.is_some_and(|r| s.count(r) > 0) {
                let read = RangeRead::whole(s.table.clone(), None, KeyRange::prefix(key));
                let entry = range_entry(&read, at, oldest, &guard).ok_or_else(changed)?;
                if !ranges.contains(&entry) {
                    ranges.push(entry);
                }
            }
        }
        self.view()?
            .check()
            .map_err(|store::Expired| Txn::snapshot_too_old())
    }

    /// What the deltas of a row were found by, with one more statement's columns. Only a site has to know.
    pub(crate) fn found_by(
        &self,
        table: &TableHandle,
        key: &[u8],
        had: Option<&Moved>,
        columns: u64,
    ) -> Result<Box<[FoundBy]>> {
        let before = had.map_or(&[][..], |m| &m.found_by);
        if columns == 0 || !self.standing.elsewhere {
            return Ok(before.into());
        }
        let guard = pin();
        let record = table.storage.primary.get(key, &guard);
        let row = record.and_then(|r| r.row_at(self.view().ok()?.position(), &guard));
        let row = row.ok_or_else(Txn::snapshot_too_old)?;
        let shown = self.shown(table, key, table.table.layout.row(row))?;
        self.view()?
            .check()
            .map_err(|store::Expired| Txn::snapshot_too_old())?;
        let row = shown.unwrap_or_else(|| row.into());
        let mut all = before.to_vec();
        match all.iter_mut().find(|f| f.row == row) {
            Some(same) => same.columns |= columns,
            None => all.push(FoundBy { columns, row }),
        }
        Ok(all.into())
    }

    /// Whether the newest version of a row, which is locked in mode Delta, is what the statements of its deltas had found.
    fn is_as_found(&self, handle: &TableHandle, w: &WriteEntry) -> Result<bool> {
        let layout = &handle.table.layout;
        let guard = pin();
        let record = handle.storage.primary.get(&w.key, &guard);
        let Some(record) = record else {
            return Ok(false);
        };
        let Some(now) = record.newest(&guard).and_then(|v| v.row()) else {
            return Ok(false);
        };
        for f in &w.found_by {
            if !layout.check(&f.row) {
                return Err(damaged());
            }
            let (then, now) = (layout.row(&f.row), layout.row(now));
            for column in (0..layout.len()).filter(|c| *c >= 63 || f.columns & 1 << c != 0) {
                let same = match handle.split(column).filter(|_| handle.is_spread(now)) {
                    None => same(&then.get(column), &now.get(column)),
                    Some(units) => {
                        let total = newest_total(handle, (record, &w.key), column, units, &guard);
                        total.map(|t| t.0) == units.units(&then.get(column))
                    }
                };
                if !same {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// The deltas of a candidate are reserved and merged here: the bound is decided at the position that they get.
    fn adopt_deltas(&mut self, handle: &TableHandle, w: &WriteEntry) -> Result<()> {
        let mut deltas = Vec::with_capacity(w.moved.len());
        for m in &w.moved {
            let column = usize::from(m.column);
            let units = handle.splits.get(column).and_then(Option::as_ref);
            let units = units.ok_or_else(damaged)?;
            let width = units.upper - units.lower;
            // A greater net fits no value, and sums with it would overflow.
            if !(-width..=width).contains(&m.amount) {
                return Err(damaged());
            }
            // No value is above `upper`, so a guard beyond it holds for none.
            let need = m.need.map(|n| n.clamp(units.lower, units.upper + 1));
            deltas.push(Delta {
                column,
                amount: m.amount,
                need: need.filter(|_| !env::fault::planted("candidate.no_guards")),
            });
        }
        let added = self.add_to(handle, &w.key, &deltas, 0);
        match self.decided(added)? {
            Outcome::Done if env::fault::planted("candidate.found_by_nothing") => Ok(()),
            // From here on the row's lock keeps it so.
            Outcome::Done if self.is_as_found(handle, w)? => Ok(()),
            Outcome::Done => {
                self.shared.stats.abort(Cause::WriteConflict);
                let guard = pin();
                let record = handle.storage.primary.get(&w.key, &guard);
                let key = record
                    .map_or_else(|| "(row)".to_owned(), |r| handle.describe_record(r, &guard));
                let newest = record.and_then(|r| r.newest(&guard));
                let winner = newest.map_or(Position::ZERO, |v| v.position());
                let what = "could not serialize access due to concurrent update";
                Err(self.lost_to(what, handle, &key, winner))
            }
            Outcome::Refused | Outcome::Exact => {
                self.shared.stats.abort(Cause::WriteConflict);
                Err(changed())
            }
        }
    }

    /// Its statements are over: what would wait, or run again, is 40001.
    fn decided<T>(&self, r: stop::Result<T>) -> Result<T> {
        r.map_err(|s| match s {
            Stop::Error(e) => e,
            Stop::Blocked | Stop::Restart => {
                self.shared.stats.abort(Cause::WriteConflict);
                changed()
            }
        })
    }

    /// The tombstone of an absent key, if the candidate's snapshot has it. Nodes reclaim on their own: the origin may have had it no more, or
    /// an older one.
    fn tombstone_of(
        &self,
        handle: &TableHandle,
        key: &[u8],
        snapshot: Position,
    ) -> Option<Position> {
        let guard = pin();
        let record = handle.storage.primary.get(key, &guard)?;
        crate::settle::settle(record);
        let newest = record.newest(&guard)?;
        // The planted bug: any tombstone counts as the one that was seen.
        let seen = newest.position() <= snapshot || env::fault::planted("candidate.any_tombstone");
        let known = newest.row().is_none() && seen;
        known.then(|| newest.position())
    }

    /// Takes the writes of a candidate as its own, which stood at this snapshot.
    fn adopt_writes(&mut self, f: &Footprint) -> Result<()> {
        let mut last = None;
        for w in &f.writes {
            self.adopt_write(w, f.snapshot, &mut last)?;
        }
        Ok(())
    }

    /// `last`: the table of the write before.
    fn adopt_write(
        &mut self,
        w: &WriteEntry,
        snapshot: Position,
        last: &mut Option<Arc<TableHandle>>,
    ) -> Result<()> {
        let found = match last.take() {
            Some(t) if t.storage.id == w.storage => Some(t),
            _ => self.schema.catalog.of_storage(w.storage).cloned(),
        };
        let Some(table) = found else {
            self.shared.stats.abort(Cause::SchemaChanged);
            return Err(self.schema_moved(None));
        };
        let handle = self.for_write(&table);
        *last = Some(table.clone());
        let handle = self.decided(handle)?;
        if !w.moved.is_empty() {
            return self.adopt_deltas(&handle, w);
        }
        // A row id that a site made up is not one of this table's.
        let mut key = Vec::new();
        let key = match handle.primary {
            None if !w.existed => {
                handle.new_key(&[], &mut key)?;
                &key[..]
            }
            _ => &w.key[..],
        };
        let layout = &handle.table.layout;
        let new = match w.row.as_deref() {
            Some(row) if layout.check(row) => Some(layout.row(row).values()),
            Some(_) => return Err(damaged()),
            None => None,
        };
        if let (Some(_), Some(row)) = (handle.primary, &new) {
            let mut key = Vec::new();
            handle.primary_key(row, &mut key)?;
            if key[..] != w.key[..] {
                return Err(damaged());
            }
        }
        let mut old = None;
        if w.existed {
            let guard = pin();
            let view = self.reads.view.as_mut().expect("a statement has begun");
            let seen = view.get(&handle.storage, &w.key, None, &guard);
            match seen.map_err(|_| Txn::snapshot_too_old())? {
                Some(seen)
                    if seen.position == w.overwrites
                        || env::fault::planted("candidate.no_versions") =>
                {
                    old = Some(layout.row(seen.row).values());
                }
                _ => {
                    let record = handle.storage.primary.get(&w.key, &guard);
                    let key = record
                        .map_or_else(|| "(row)".to_owned(), |r| handle.describe_record(r, &guard));
                    let newest = record.and_then(|r| r.newest(&guard));
                    let winner = newest.map_or(Position::ZERO, |v| v.position());
                    self.shared.stats.abort(Cause::WriteConflict);
                    let what = "could not serialize access due to concurrent update";
                    return Err(self.lost_to(what, &handle, &key, winner));
                }
            }
        }
        let mut saw = w.overwrites;
        if !w.existed {
            // The key was absent, so a row that is there now is a conflict, whatever position the candidate names.
            let tombstone = self.tombstone_of(&handle, key, snapshot);
            saw = tombstone.unwrap_or(Position::ZERO);
        }
        if env::fault::planted("candidate.no_versions") {
            // The planted bug: what is newest now is taken for what was seen.
            saw = self.shared.newest_position(&handle, key);
        }
        self.put(&handle, key, w.row.clone(), saw, w.existed);
        if let Some(new) = &new {
            self.note_parents(&handle, key, old.as_deref(), new);
            self.note_keys(&handle, (old.as_deref(), new), key.len())?;
        }
        if let Some(old) = &old {
            self.note_children(&handle, old, new.as_deref());
        }
        Ok(())
    }
}

impl Txn {
    /// Whether its changes can go to the primary before it ends, where it goes on: without locks of its own there. No: rows that it has locked may
    /// change then.
    pub fn may_move_changes(&self) -> Result<bool> {
        let level = self.options.isolation;
        let locks = match level {
            Isolation::ReadCommitted => true,
            Isolation::RepeatableRead => {
                let exact = self.exact_reads()?;
                !exact.reads.is_empty() || !exact.ranges.is_empty()
            }
            Isolation::Serializable => false,
        };
        Ok(!locks)
    }

    /// Goes on at the primary with what it has changed at a site, after [`Txn::adopt_reads`]. It locks nothing from here on, and its
    /// commit certifies. What the site has put off is asked before the commit, as there ([`Txn::check_deferred`]). An error (40001) means that it
    /// cannot.
    pub fn adopt_changes(&mut self, c: &Candidate) -> Result<()> {
        self.options.locking = false;
        self.references.asked_late = true;
        self.begin_statement()?;
        let f = &c.footprint;
        self.same_rules(c)?;
        self.adopt_writes(f)?;
        let ended = self.end_statement();
        self.decided(ended)
    }

    /// 40001 after a change of what the candidate used: roles, grants, views and definitions may be others. What was changed below the floor
    /// is not known.
    fn same_rules(&self, c: &Candidate) -> Result<()> {
        let redefined = self.shared.last_redefined(c.used.as_deref());
        if redefined.max(self.shared.marks.floor) > c.since
            && !env::fault::planted("site.old_rights")
        {
            self.shared.stats.abort(Cause::SchemaChanged);
            return Err(rights_moved());
        }
        Ok(())
    }
}

impl TxnManager {
    /// A transaction that stands where the candidate's stood, with what it read and wrote. Its commit certifies. An error is the verdict.
    pub fn adopt(self: &Arc<Self>, c: &Candidate) -> Result<Txn> {
        let isolation = match c.level {
            // Its statements are over: what it replaces has to be what it saw.
            Isolation::ReadCommitted => Isolation::RepeatableRead,
            level => level,
        };
        let options = TxnOptions {
            isolation,
            locking: false,
            ..TxnOptions::default()
        };
        let mut txn = self.begin(options, false);
        // LOCK TABLE waits for its end, as for a session's.
        txn.uses_by(&mut None);
        txn.begin_statement()?;
        let f = &c.footprint;
        txn.same_rules(c)?;
        // A snapshot above what is installed here is of another history.
        let known = txn.view()?.position() >= f.snapshot;
        let reads = isolation == Isolation::Serializable;
        if !known || reads && !txn.take_over(f, AsRead::Exactly)? {
            self.stats.abort(Cause::ReadChanged);
            return Err(changed());
        }
        txn.adopt_writes(f)?;
        let ended = txn.end_statement();
        txn.decided(ended)?;
        Ok(txn)
    }
}
