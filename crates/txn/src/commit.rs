//! Commit: lock, order, validate, install — on the committing thread.
//!
//! ```text
//! 1 lock the records of the write set (in key order) and link their index entries    anybody who scans sees them from here
//! 2 take the position                                                               the one global step
//! 3 say the position in the locks; validate                                         against commits below the position
//! 4 push the versions, unlock                                                       or: unlink, unlock, leave a hole
//! 5 hand the record to the log                                                      `installed` passes the position
//! ```
//! Position order is serialization order, because snapshots are prefixes of it. So validation comes *after* the position (not
//! before it, as in Silo): whatever a commit with a smaller position wrote is then locked or installed, and a commit that is met
//! with a larger position does not matter. A validator waits for smaller positions only, so no two wait for each other.
//!
//! SERIALIZABLE validates all it read; every level validates that the versions it replaces are the ones it saw, unique keys and
//! (without locks) foreign keys. What is unchanged from the snapshot to the position could as well have been read at the position.
//!
//! Left out on purpose: group validation; read validity intervals (LT-OCC) belong to `partitioned`.

use base::record::{CommitBuilder, RecordKind};
use base::{Error, KeyRange, Position, Result};
use store::{Guard, Holder, NewVersion, Record, SecondaryIndex, pin};

use crate::backoff::Backoff;
use crate::handle::TableHandle;
use crate::locks::LockMode;
use crate::manager::Cause;
use crate::range::{Look, Spared, each_in_range, same_row};
use crate::txn::{Isolation, Txn};
use crate::writes::{Pending, TableWrites};

/// Where a commit gets its position and leaves its record. `node` puts this over the order and the log.
pub trait CommitOrder {
    /// Waits while too much waits for the log; before a commit locks anything, because the log may wait for who waits for that. `go_on` is
    /// asked every few milliseconds: an error of it ends the wait.
    fn wait_for_room(&self, go_on: &dyn Fn() -> Result<()>) -> Result<()>;

    /// The next position, and a ticket for its place in the order. An error (a full disk, say) refuses the commit.
    fn begin(&self) -> Result<(Position, u64)>;

    /// The commit of this ticket is installed; its record may be logged.
    fn ready(&self, ticket: u64, heads: Vec<u8>, data: Vec<u8>);

    /// The position stays empty.
    fn abort(&self, ticket: u64);
}

/// Most bytes of one commit's record in the log.
pub const MAX_COMMIT_BYTES: usize = (1 << 30) - (1 << 20);

fn too_big() -> Error {
    let what =
        format!("transaction is too big: the limit is {MAX_COMMIT_BYTES} bytes of changed rows");
    Error::new(base::SqlState::PROGRAM_LIMIT_EXCEEDED, what)
}

/// A chain this long is trimmed by the committer himself.
const LONG_CHAIN: usize = 16;

struct Locked<'g> {
    record: &'g Record,
    change: &'g Pending,
    table: &'g TableWrites,
    entries: Vec<Entry<'g>>,
}

/// An index entry of the new row.
struct Entry<'g> {
    index: &'g SecondaryIndex,
    key: Vec<u8>,
    /// This commit linked it, and unlinks it if it fails.
    linked: bool,
    /// A key of a unique index that the row did not have: nobody else may. The entry may have been there all the same, for the
    /// sake of an older version of this row.
    claims: bool,
}

impl Locked<'_> {
    /// The unique keys that the row comes to have, each with its columns' part of the entry's key.
    fn claims(&self) -> impl Iterator<Item = (&SecondaryIndex, &[u8])> {
        let claims = self.entries.iter().filter(|e| e.claims);
        claims.map(|e| (e.index, &e.key[..e.key.len() - self.record.key().len()]))
    }
}

impl Txn {
    /// Validates and installs. The position that the reply has to wait for: the commit's, or the snapshot's when nothing was
    /// written. An error means that the transaction is rolled back.
    pub fn commit(mut self, order: &dyn CommitOrder) -> Result<Position> {
        let snapshot = self.snapshot().unwrap_or(Position::ZERO);
        if !self.has_writes() {
            return Ok(snapshot);
        }
        self.shared.check_accepts_writes()?;
        // Before the guard: what is unlinked meanwhile could not be freed.
        order.wait_for_room(&|| {
            self.shared.check_accepts_writes()?;
            self.check_interrupt()
        })?;
        self.writes.tables.sort_by_key(|t| t.table.storage.id);
        for t in &mut self.writes.tables {
            t.rows.retain(|_, p| p.row.is_some() || p.existed);
        }
        let guard = pin();
        if self.view()?.check().is_err() {
            return Err(Txn::snapshot_too_old());
        }
        let position = self.commit_writes(order, &guard)?;
        if let Some(f) = &self.footprint {
            f.committed_at(position);
        }
        if let Some(mut own) = self.schema.take() {
            own.forget_unused(&self.catalog);
        }
        Ok(position)
    }

    fn commit_writes(&self, order: &dyn CommitOrder, guard: &Guard) -> Result<Position> {
        // A panic would leave records locked, or a place in the order open: every commit after it would wait for ever, and nobody would see why.
        let _whole = env::say::Whole("a commit");
        let memory = &self.shared.store.memory;
        let (changes, bytes) = self.writes.size();
        let mut builder = CommitBuilder::with_capacity(changes, bytes);
        if let Some(s) = &self.schema {
            builder.push(
                RecordKind::Schema,
                0,
                &[],
                &base::schema::encode_changes(s.changes()),
            );
        }
        let view = self.view()?;
        let mut locked: Vec<Locked<'_>> = Vec::with_capacity(changes);
        let mut versions: Vec<NewVersion> = Vec::with_capacity(changes);
        for t in &self.writes.tables {
            let storage = &t.table.storage;
            for (key, change) in &t.rows {
                let kept = change.kept.map(|n| view.record(n, storage, key, guard));
                let kept = kept.and_then(|found| found.unwrap_or_default());
                let record = lock_record(self, t, key, kept, guard);
                let entries = link_entries(self, t, record, change, guard);
                match &change.row {
                    Some(row) => builder.push(RecordKind::Put, storage.id, key, row),
                    None => builder.push(RecordKind::Delete, storage.id, key, &[]),
                }
                let version = NewVersion::new(change.row.as_deref());
                memory.add(version.rounded());
                versions.push(version);
                locked.push(Locked {
                    record,
                    change,
                    table: t,
                    entries,
                });
            }
        }
        let mut ticket = None;
        let fits = match builder.bytes() {
            0..=MAX_COMMIT_BYTES => Ok(()),
            _ => Err(too_big()),
        };
        let ordered = fits
            .and_then(|()| self.check_locks(&locked))
            .and_then(|()| {
                locked.iter().for_each(|l| l.record.set_ordering());
                if !self.options.locking {
                    self.check_parents()?;
                }
                let (position, t) = order.begin()?;
                ticket = Some(t);
                locked.iter().for_each(|l| l.record.set_holder(position));
                let spared = self.validate(position, &locked, guard)?;
                Ok((position, spared))
            });
        let (position, spared) = match ordered {
            Ok(done) => done,
            Err(e) => {
                versions.iter().for_each(|v| memory.add(-v.rounded()));
                self.undo_locks(&locked, guard);
                if let Some(t) = ticket {
                    order.abort(t);
                }
                return Err(e);
            }
        };
        if let Some(s) = &self.schema {
            s.install(&self.shared, &self.catalog, position);
        }
        for t in &self.writes.tables {
            t.table.storage.written_at(position);
        }
        for (l, version) in locked.iter().zip(versions) {
            let storage = &l.table.table.storage;
            l.record.push(version, position, 0);
            let (is, was) = (l.change.row.is_some(), l.change.existed);
            storage.count(i64::from(is) - i64::from(was));
            if l.change.saw != Position::ZERO || !is {
                let decided = || self.shared.marks.decided.get();
                self.shared
                    .store
                    .trim_long(storage, l.record, LONG_CHAIN, decided, guard);
                storage.mark_stale(l.record, position);
            }
            l.record.unlock();
        }
        let (heads, data) = builder.finish(position, 0);
        order.ready(ticket.expect("a position came with a ticket"), heads, data);
        self.shared.stats.committed(spared);
        Ok(position)
    }

    /// After the records are locked, so that a locking transaction either sees them or is seen: the row and key locks of others.
    fn check_locks(&self, locked: &[Locked<'_>]) -> Result<()> {
        if self.options.locking {
            return Ok(());
        }
        let locks = &self.shared.locks;
        for l in locked {
            let table = &l.table.table;
            let new_unique_key = l.claims().next().is_some();
            let in_place = l.change.row.is_some() && l.change.existed && !new_unique_key;
            let mode = if in_place {
                LockMode::NoKeyUpdate
            } else {
                LockMode::Update
            };
            let mut holder = locks.holder(self.id, table.row_lock(l.record.key()), mode);
            for (index, columns) in l.claims() {
                let name = TableHandle::unique_lock(index, columns);
                holder = holder.or_else(|| locks.holder(self.id, name, LockMode::Update));
            }
            if holder.is_some() {
                self.shared.stats.abort(Cause::RowLocked);
                return Err(self.row_is_locked(table, &describe(l), holder));
            }
        }
        Ok(())
    }

    /// What kept it from being told to try again, if anything did.
    fn validate(
        &self,
        me: Position,
        locked: &[Locked<'_>],
        guard: &Guard,
    ) -> Result<Option<Spared>> {
        let snapshot = self.view()?.position();
        for l in locked {
            let table = &l.table.table;
            if table.storage.shape() != table.shape && !self.owns_shape(table) {
                self.shared.stats.abort(Cause::SchemaChanged);
                return Err(self.schema_moved(Some(table)));
            }
            let newest = l.record.newest(guard);
            let newest_position = newest.map_or(Position::ZERO, |v| v.position());
            // What was left of a deleted row may have been reclaimed since: the key is as free as it was.
            let as_free = newest.is_none() && !l.change.existed;
            if newest_position != l.change.saw && !as_free {
                let duplicate = !l.change.existed && newest.is_some_and(|v| v.row().is_some());
                self.shared.stats.abort(Cause::WriteConflict);
                if duplicate && let (Some(place), Some(row)) = (table.primary, &l.change.row) {
                    return Err(self.unique_error(
                        table,
                        place,
                        &table.table.layout.row(row).values(),
                    ));
                }
                let what = "could not serialize access due to concurrent update";
                return Err(self.lost_to(what, table, &describe(l), newest_position));
            }
            if !self.options.locking {
                self.validate_unique(me, l, locked, guard)?;
            }
        }
        if !self.options.locking {
            self.probes_hold(me, guard)?;
        }
        if self.options.isolation == Isolation::Serializable
            && !env::fault::planted("skip_read_validation")
        {
            return Ok(self.spared.max(self.validate_reads(snapshot, me, guard)?));
        }
        Ok(self.spared)
    }

    /// An optimistic commit's new unique keys, against the newest rows below `me` and against its own.
    fn validate_unique(
        &self,
        me: Position,
        l: &Locked<'_>,
        locked: &[Locked<'_>],
        guard: &Guard,
    ) -> Result<()> {
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
                let own = locked.iter().find(|o| std::ptr::eq(o.record, r));
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
                self.shared.stats.abort(Cause::WriteConflict);
                let place = table
                    .indexes
                    .iter()
                    .position(|i| i.as_deref().is_some_and(|i| i.spec.id == index.spec.id));
                let place = place
                    .ok_or_else(|| Error::internal("an index that the table does not have"))?;
                return Err(self.unique_error(table, place, &table.table.layout.row(row).values()));
            }
        }
        Ok(())
    }

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
        let tables = self.absent.iter().map(|a| &a.0);
        let mut tables = tables.chain(self.ranges.iter().map(|r| &r.table));
        let moved = tables.find(|t| t.storage.is_changing() && !self.owns_shape(t));
        if let Some(t) = moved {
            self.shared.stats.abort(Cause::SchemaChanged);
            return Err(self.schema_moved(Some(t)));
        }
        if let Some(r) = self.ranges.iter().find(|r| self.has_lost_index(r)) {
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
            lost = table.map(|t| (t, describe_record(t, r, guard), winner));
            false
        });
        if !whole.map_err(|_| Txn::snapshot_too_old())? {
            let Some((table, key, winner)) = lost else {
                self.shared.stats.abort(Cause::SchemaChanged);
                return Err(self.schema_moved(None));
            };
            return changed(table, key, winner, Cause::ReadChanged);
        }
        for (table, key) in &self.absent {
            if let Some(r) = table.storage.primary.get(key, guard) {
                let winner = newest_below(r, me, guard);
                if winner > snapshot {
                    return changed(
                        table,
                        describe_record(table, r, guard),
                        winner,
                        Cause::ReadChanged,
                    );
                }
            }
        }
        for range in &self.ranges {
            let mut lost = None;
            range.all(guard, &mut |r, entry| {
                let winner = newest_below(r, me, guard);
                if winner <= snapshot {
                    return true;
                }
                match range.look(r, entry, snapshot, me.prev(), guard) {
                    Look::Same => {}
                    Look::Spared(by) => spared = spared.max(Some(by)),
                    Look::Changed => {
                        lost = Some((describe_record(&range.table, r, guard), winner));
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

    fn undo_locks(&self, locked: &[Locked<'_>], guard: &Guard) {
        for l in locked {
            for e in l.entries.iter().filter(|e| e.linked) {
                e.index.unlink(&e.key, &self.shared.store.memory, guard);
            }
            if l.record.newest(guard).is_none() {
                l.table.table.storage.mark_stale(l.record, Position::ZERO);
            }
            l.record.unlock();
        }
    }
}

fn describe(l: &Locked<'_>) -> String {
    match l.change.row.as_deref() {
        Some(row) => l.table.table.describe_row(row),
        None => describe_record(&l.table.table, l.record, &pin()),
    }
}

/// The key of a record as errors show it, from its newest row.
pub(crate) fn describe_record(table: &TableHandle, record: &Record, guard: &Guard) -> String {
    let mut version = record.newest(guard);
    while let Some(v) = version.filter(|v| v.row().is_none()) {
        version = v.older(guard);
    }
    let row = version.and_then(|v| v.row());
    row.map_or_else(|| "(row)".into(), |r| table.describe_row(r))
}

/// Locks the record of a key for this commit, making it if there is none. The holder now, a commit or the reclaimer, is short.
fn lock_record<'g>(
    txn: &Txn,
    t: &'g TableWrites,
    key: &[u8],
    kept: Option<&'g Record>,
    guard: &'g Guard,
) -> &'g Record {
    let storage = &t.table.storage;
    let mut wait = Backoff::default();
    let mut known = kept;
    loop {
        let find = || storage.find_or_create(key, &txn.shared.store.memory, guard);
        let record = known.take().unwrap_or_else(find);
        match record.try_lock() {
            Ok(()) => return record,
            Err(_) => wait.pause(),
        }
    }
}

/// Links the entries that the new row needs; those that the commit has to check or to take back. The record is locked.
fn link_entries<'g>(
    txn: &Txn,
    t: &'g TableWrites,
    record: &Record,
    change: &Pending,
    guard: &Guard,
) -> Vec<Entry<'g>> {
    let Some(row) = &change.row else {
        return vec![];
    };
    let mut entries = Vec::new();
    let (mut key, mut had) = (Vec::new(), Vec::new());
    for index in t.table.indexes.iter().flatten() {
        index.spec.key_of(row, record.key(), &mut key);
        let linked = index.link(&key, record, &txn.shared.store.memory, guard);
        let claims = index.spec.unique
            && (linked || {
                let old = record.newest(guard).and_then(|v| v.row());
                had.clear();
                old.is_none_or(|old| {
                    index.spec.columns_of(old, &mut had);
                    had[..] != key[..key.len() - record.key().len()]
                })
            });
        if linked || claims {
            entries.push(Entry {
                index,
                key: key.clone(),
                linked,
                claims,
            });
        }
    }
    entries
}

/// Waits until nobody is committing the record.
pub(crate) fn settle(record: &Record) {
    let mut wait = Backoff::default();
    while record.holder() != Holder::Nobody {
        wait.pause();
    }
}

/// Waits until no commit below `me` holds the record. One that has not asked for a position yet will get a larger one if `me` is
/// given already; so nobody who waits here waits for somebody who waits for his locks. With [`Position::MAX`], which is no
/// commit's, nobody may hold it at all; who asks so holds no record himself.
pub(crate) fn settle_below(record: &Record, me: Position) {
    let mut wait = Backoff::default();
    loop {
        match record.holder() {
            Holder::Nobody => return,
            Holder::Locked if me != Position::MAX => return,
            Holder::Commit(p) if p >= me => return,
            Holder::Locked | Holder::Commit(_) | Holder::Ordering => wait.pause(),
        }
    }
}

/// The position of the newest version below `me`, once every commit below has settled.
fn newest_below(record: &Record, me: Position, guard: &Guard) -> Position {
    settle_below(record, me);
    record
        .at(me.prev(), guard)
        .map_or(Position::ZERO, |v| v.position())
}
