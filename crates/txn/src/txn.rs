//! The transaction: its snapshot, its statements, its savepoints.
//!
//! ```text
//! begin_statement -> run -> end_statement (deferred checks of the statement)        Ok: next statement
//!                       \-> Err(e): rollback_statement, then by the Stop:
//!                            Blocked  take_wait().await, begin_statement, run again
//!                            Restart  begin_statement (it moves the snapshot), run again
//!                            Error    the transaction is failed (or rolled back to a savepoint)
//! ```
//!
//! **Snapshots move forward.** A statement that waited for a row, or met a version newer than its snapshot, does not end the
//! transaction. It is undone and run again on a newer snapshot. READ COMMITTED may always do that. At the higher levels
//! everything that earlier statements read (rows, absences, ranges) must be the same at the newer snapshot, and no portal
//! may be open; then the transaction could as well have begun there (the idea behind LT-OCC's extension of rts, COCO §5.2). Otherwise
//! 40001. Locks that the statement took stay, so a hot row is waited for once, in a queue.

pub use base::Isolation;
pub use base::cancel::Interrupt;
use base::{Error, Position, Result, RowRef, SqlState, Value};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use store::{Expired, View, pin};

use crate::handle::{Catalog, TableHandle};
use crate::locks::TxnId;
use crate::manager::TxnManager;
use crate::range::ALL_COLUMNS;
use crate::state::{
    Conflict, Courtesy, Escrowed, Mark, OwnLocks, OwnView, Reads, References, Savepoint, Standing,
    Statement,
};
use crate::stop::{self, Stop};
use crate::writes::Writes;

/// What an acknowledgement of COMMIT promises (`synchronous_commit`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Nothing: the commit is installed.
    Off,
    /// It is in this node's own log, flushed.
    Local,
    /// ... and in the memory of as many replicas as the cluster asks for.
    RemoteWrite,
    /// Durable by the cluster's policy.
    On,
    /// ... and shown by the replicas (commit-wait).
    RemoteApply,
}

#[derive(Clone, Debug)]
pub struct TxnOptions {
    pub isolation: Isolation,
    pub read_only: bool,
    pub deferrable: bool,
    pub durability: Durability,
    pub interrupt: Arc<Interrupt>,
    /// Rows are locked when a statement writes them (SQL). Without, nothing is locked before commit (the library).
    pub locking: bool,
    /// The session's last transactions lost races: see `contention`.
    pub contended: bool,
}

impl Default for TxnOptions {
    fn default() -> Self {
        TxnOptions {
            isolation: Isolation::Serializable,
            read_only: false,
            deferrable: false,
            durability: Durability::On,
            interrupt: Arc::default(),
            locking: true,
            contended: false,
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub enum InsertOutcome {
    Inserted,
    /// A row with the same key of one of the arbiter indexes is there; its primary-index key.
    Conflict {
        key: Box<[u8]>,
    },
}

/// READ COMMITTED waits where the higher levels may lose: what it changes, it locks (docs/decisions/0012). The switch is for the
/// test of what would come of it otherwise.
fn must_lock(level: Isolation) -> bool {
    level == Isolation::ReadCommitted && !env::fault::planted("optimistic_read_committed")
}

/// One transaction. See the head of the file for its use.
pub struct Txn {
    pub(crate) shared: Arc<TxnManager>,
    pub(crate) id: TxnId,
    pub(crate) options: TxnOptions,
    pub(crate) schema: OwnView,
    pub(crate) reads: Reads,
    pub(crate) standing: Standing,
    pub(crate) writes: Writes,
    /// Of the bytes of its writes, those that count in the store's memory.
    charged: usize,
    pub(crate) references: References,
    pub(crate) locks: OwnLocks,
    pub(crate) statement: Statement,
    pub(crate) savepoints: Vec<Savepoint>,
    pub(crate) courtesy: Courtesy,
    pub(crate) escrowed: Escrowed,
    /// For rows that are being encoded.
    pub(crate) scratch: Vec<u8>,
    /// What it says to listeners when it commits.
    pub(crate) notifications: Vec<base::Notification>,
}

impl TxnManager {
    /// Begins a transaction. `at_published`: its snapshot stands at *published* (read-only work), not at *installed*.
    pub fn begin(self: &Arc<Self>, options: TxnOptions, at_published: bool) -> Txn {
        let id = self.new_id();
        Txn::new(self.clone(), id, options, at_published)
    }
}

impl Txn {
    pub(crate) fn new(
        shared: Arc<TxnManager>,
        id: TxnId,
        mut options: TxnOptions,
        at_published: bool,
    ) -> Txn {
        let (from, catalog) = shared.newest_catalog();
        options.locking |= must_lock(options.isolation);
        let standing = Standing {
            at_published,
            elsewhere: shared.is_site(),
            ..Standing::default()
        };
        Txn {
            shared,
            id,
            options,
            schema: OwnView {
                catalog,
                from,
                own: None,
                temp: None,
            },
            reads: Reads::default(),
            standing,
            writes: Writes::default(),
            charged: 0,
            references: References::default(),
            locks: OwnLocks::default(),
            statement: Statement::default(),
            savepoints: Vec::new(),
            courtesy: Courtesy::default(),
            escrowed: Escrowed::default(),
            scratch: Vec::new(),
            notifications: Vec::new(),
        }
    }

    pub fn isolation(&self) -> Isolation {
        self.options.isolation
    }

    pub fn is_read_only(&self) -> bool {
        self.options.read_only
    }

    pub fn set_read_only(&mut self, on: bool) {
        self.options.read_only = on;
    }

    /// Allowed only before the first statement (25001 is the caller's to give).
    pub fn set_isolation(&mut self, level: Isolation) {
        assert!(
            self.reads.view.is_none(),
            "the isolation level is fixed by the first statement"
        );
        self.options.isolation = level;
        self.options.locking |= must_lock(level);
    }

    pub fn set_durability(&mut self, d: Durability) {
        self.options.durability = d;
    }

    pub fn durability(&self) -> Durability {
        self.options.durability
    }

    /// The snapshot that reads stand at; none before the first statement.
    pub fn snapshot(&self) -> Option<Position> {
        self.reads.view.as_ref().map(View::position)
    }

    /// Whether an error of its statements, or a delta that found enough, told of what stands above the snapshot, so that its replies wait for all
    /// commits so far.
    pub fn leaked_newer_state(&self) -> bool {
        self.statement.leaked_newer_state.load(Ordering::Relaxed)
    }

    pub(crate) fn tells_of_newest(&self) {
        self.statement
            .leaked_newer_state
            .store(true, Ordering::Relaxed);
    }

    /// Whether a statement has run.
    pub fn has_snapshot(&self) -> bool {
        self.reads.view.is_some()
    }

    /// Number of the transaction, for `txid_current()`.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// How often the snapshot moved forward.
    pub fn moves(&self) -> u32 {
        self.standing.moves
    }

    /// Whether the transaction has anything to commit.
    pub fn has_writes(&self) -> bool {
        !self.writes.is_empty() || self.schema.own.is_some() || !self.notifications.is_empty()
    }

    /// Whether this is the schema that the transaction sees.
    pub fn sees(&self, catalog: &Arc<Catalog>) -> bool {
        Arc::ptr_eq(&self.schema.catalog, catalog)
    }

    /// Version of the schema that this transaction sees.
    pub fn schema_version(&self) -> u64 {
        self.schema.catalog.schema.version
    }

    /// Says this to listeners when it commits, which it does next. A statement has run.
    pub fn notify(&mut self, all: Vec<base::Notification>) {
        self.notifications = all;
    }

    /// The schema that this transaction sees, own DDL included.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.schema.catalog.clone()
    }

    /// Whether reads must be remembered: by their validation at commit, or by a move of the snapshot.
    #[inline]
    pub fn tracks_reads(&self) -> bool {
        self.options.isolation != Isolation::ReadCommitted && !self.options.read_only
    }

    pub(crate) fn view(&self) -> Result<&View> {
        self.reads
            .view
            .as_ref()
            .ok_or_else(|| Error::internal("a statement runs before begin_statement"))
    }

    pub(crate) fn handle_of(&self, table: &TableHandle) -> Option<Arc<TableHandle>> {
        self.schema.catalog.table(table.table.def.id).cloned()
    }

    pub(crate) fn snapshot_too_old() -> Error {
        Error::new(SqlState::SNAPSHOT_TOO_OLD, "snapshot too old")
            .detail("The transaction's snapshot went over the age limit (snapshot_max_age).")
    }

    /// 57014 and such when somebody asked the statement to end, 53200 when it has too much memory. Scans call it; other long loops should.
    pub fn check_interrupt(&self) -> Result<()> {
        base::memory::check()?;
        self.check_told()
    }

    /// The same for what takes memory for the database and not for the statement: commits, indexes.
    pub(crate) fn check_told(&self) -> Result<()> {
        self.options.interrupt.check()
    }

    pub(crate) fn take_snapshot(&mut self) -> store::Snapshot {
        if let Some(s) = self.standing.next.take() {
            return s;
        }
        let marks = &self.shared.marks;
        let snapshots = &self.shared.store.snapshots;
        let snapshot = match self.standing.at_published {
            true => snapshots.take(|| marks.published.get().max(marks.floor)),
            false => snapshots.take(|| marks.installed.get().max(marks.floor)),
        };
        self.look_from(snapshot)
    }

    /// The same on a full disk. What is above *published* waits for room, and so would the reply to who has seen it.
    fn take_published_snapshot(&mut self) -> store::Snapshot {
        let marks = &self.shared.marks;
        let before = self.reads.view.as_ref().map_or(marks.floor, View::position);
        let newest = || marks.published.get().max(before);
        let snapshot = self.shared.store.snapshots.take(newest);
        self.look_from(snapshot)
    }

    /// Takes the schema at this snapshot.
    fn look_from(&mut self, snapshot: store::Snapshot) -> store::Snapshot {
        // The newest schema still, and valid at the snapshot: nothing to look up.
        let newest = self.schema.catalog.schema.version == self.shared.schema_version()
            && self.schema.from <= snapshot.position();
        if self.schema.own.is_none() && !newest {
            self.schema.see(self.shared.catalog_at(snapshot.position()));
        }
        snapshot
    }

    /// What has to be installed before the next statement, or run of one, takes its snapshot. A node that follows waits for it here; where
    /// commits are this node's own it is there in a moment.
    pub fn awaits(&self) -> Position {
        let winner = self.statement.conflict.as_ref().map(|c| c.winner);
        self.escrowed.lives_off.max(winner.unwrap_or_default())
    }

    /// Begins a statement or its next run. READ COMMITTED takes a new snapshot.
    pub fn begin_statement(&mut self) -> Result<()> {
        let conflict = self.statement.conflict.take();
        if let Some(c) = &conflict {
            self.shared.wait_installed(c.winner);
        }
        if self.escrowed.lives_off != Position::ZERO {
            self.shared.wait_installed(self.escrowed.lives_off);
        }
        let fresh = self.reads.view.is_none() || self.options.isolation == Isolation::ReadCommitted;
        // The planted bug: at a replica the transaction's snapshot follows what is shown.
        let fresh = fresh || self.shared.is_standby() && env::fault::planted("read.snapshot_moves");
        let contended = self.options.contended
            && self.options.isolation == Isolation::Serializable
            && self.tracks_reads();
        if contended && self.courtesy.shown.is_none() {
            self.show_up();
        }
        if let Some(parked) = self.standing.resumed.take() {
            self.reads.view = Some(parked.view);
            if self.schema.own.is_none() {
                self.schema.see(parked.catalog);
            }
        } else if fresh {
            // One that writes, or is here again because its snapshot was too old, wants the newest.
            let reads = conflict.is_none() && self.locks.held.is_empty() && !self.has_writes();
            let snapshot = match self.standing.next.is_none() && reads && self.shared.is_disk_full()
            {
                true => self.take_published_snapshot(),
                false => self.take_snapshot(),
            };
            match &mut self.reads.view {
                Some(v) => v.renew(snapshot),
                None => self.reads.view = Some(View::new(snapshot)),
            }
        } else if let Some(c) = conflict {
            self.move_snapshot(&c)?;
        } else if self.locks.waited && self.standing.portals == 0 && self.tracks_reads() {
            self.follow()?;
        } else if contended && self.standing.portals == 0 {
            self.refresh()?;
        }
        let at = self.view()?.position();
        self.standing.since.get_or_insert(at);
        self.locks.waited = false;
        self.references.cascades.clear();
        self.statement.mark = Mark {
            writes: self.writes.mark(),
            kept: self.view()?.kept(),
            absent: self.reads.absent.len(),
            ranges: self.reads.ranges.len(),
            locked: self.reads.locked.len(),
            probes: self.references.probes.len(),
            shown: self.courtesy.shown.as_ref().map_or(0, |f| f.shown()),
        };
        self.check_overtaken()
    }

    /// Carries out the actions of foreign keys and their checks, which stand at the end of a statement. May ask to block or restart.
    pub fn end_statement(&mut self) -> stop::Result<()> {
        self.follow_waiting()?;
        self.locks.for_deltas.clear();
        self.statement.has_told = true;
        self.check_new_keys()?;
        self.check_foreign_keys()?;
        // A run after the wait may not have asked for the key again.
        self.has_passed();
        self.charge();
        Ok(self.show_intents()?)
    }

    /// Undoes the writes of a statement whose error is told. What it read stays read, since the error says something of it.
    pub fn fail_statement(&mut self) {
        self.statement.has_told = true;
        self.locks.for_deltas.clear();
        self.rollback_schema(self.statement.mark.writes);
        self.writes.rollback(self.statement.mark.writes);
        // What its writes asked for is not there to be asked.
        self.references.probes.truncate(self.statement.mark.probes);
        self.references.keys.truncate(0);
        self.has_passed();
        self.charge();
    }

    /// What is not committed takes memory, too, which is counted with that of rows.
    pub(crate) fn charge(&mut self) {
        let bytes = self.writes.bytes() + self.escrowed.bytes() + self.references.bytes();
        let more = bytes as isize - self.charged as isize;
        if more != 0 {
            self.shared.store.memory.add_uncommitted(more);
            self.charged = bytes;
        }
    }

    /// Undoes the statement's writes and changes of the schema, and forgets what it read, of which nobody was told; its locks stay.
    pub fn rollback_statement(&mut self) {
        self.rollback_schema(self.statement.mark.writes);
        self.writes.rollback(self.statement.mark.writes);
        self.reads.absent.truncate(self.statement.mark.absent);
        let ranges = self.statement.mark.ranges;
        self.reads.ranges.truncate(ranges);
        self.reads.bounds.retain(|_, b| b.1 < ranges);
        self.reads.locked.truncate(self.statement.mark.locked);
        self.references.probes.truncate(self.statement.mark.probes);
        self.references.keys.truncate(0);
        if let Some(v) = &mut self.reads.view {
            v.truncate(self.statement.mark.kept);
        }
        if let Some(f) = &self.courtesy.shown {
            f.truncate(self.statement.mark.shown);
        }
    }

    /// A portal that reads at this snapshot is open (+1) or closed (-1): the snapshot must not move meanwhile.
    pub fn portal_opened(&mut self, delta: i32) {
        self.standing.portals += delta;
        assert!(
            self.standing.portals >= 0,
            "more portals closed than opened"
        );
    }

    /// Asks for the memory that the rows of these primary-index keys are in, all at once. A hint: nothing counts as read, and that the
    /// snapshot is too old shows when they are.
    pub fn prefetch(&mut self, table: &TableHandle, keys: &[&[u8]]) {
        if let Some(view) = &mut self.reads.view {
            let _ = view.prefetch(&table.storage, keys, &pin());
        }
    }

    /// The visible row of this primary-index key.
    pub fn get<R>(
        &mut self,
        table: &TableHandle,
        key: &[u8],
        f: impl FnOnce(RowRef<'_>) -> R,
    ) -> Result<Option<R>> {
        self.get_columns(table, key, ALL_COLUMNS, f)
    }

    /// The same for somebody who looks at these columns only ([`column_set`](crate::column_set)): others of the row may change.
    pub fn get_columns<R>(
        &mut self,
        table: &TableHandle,
        key: &[u8],
        columns: u64,
        f: impl FnOnce(RowRef<'_>) -> R,
    ) -> Result<Option<R>> {
        let keep = self.tracks_reads();
        self.refresh_moved(table.storage.id, key)?;
        if let Some(p) = self.writes.get(table.storage.id, key) {
            if p.moved.is_some() && keep {
                // Under its deltas is a version that is read.
                let guard = pin();
                let view = self.reads.view.as_mut().expect("a statement has run");
                let found = view.get(&table.storage, key, Some(columns), &guard);
                found.map_err(|Expired| Txn::snapshot_too_old())?;
            }
            let own = self.writes.get(table.storage.id, key);
            let row = own.and_then(|p| p.row.as_deref());
            let layout = &table.table.layout;
            let shown = match row.filter(|_| !table.spreads.is_empty()) {
                Some(row) => self.shown(table, key, layout.row(row))?,
                None => None,
            };
            let moved = own.is_some_and(|p| p.moved.is_some());
            let row = shown.as_deref().or(row).map(|r| f(layout.row(r)));
            // The row in the write set has the sums already.
            if keep && (moved || shown.is_some()) {
                self.note_shown(table, key, columns, None);
            }
            return Ok(row);
        }
        if self.shows_reads() {
            self.show_key(table.storage.id, key, columns);
        }
        let guard = pin();
        let view = self
            .reads
            .view
            .as_mut()
            .ok_or_else(|| Error::internal("a read before begin_statement"))?;
        let found = view
            .get(&table.storage, key, keep.then_some(columns), &guard)
            .map_err(|Expired| Txn::snapshot_too_old())?;
        if let Some(found) = found {
            let layout = &table.table.layout;
            if table.spreads.is_empty() {
                return Ok(Some(f(layout.row(found.row))));
            }
            let shown = self.shown(table, key, layout.row(found.row))?;
            if keep && shown.is_some() {
                self.note_shown(table, key, columns, None);
            }
            let row = shown.as_deref().unwrap_or(found.row);
            return Ok(Some(f(layout.row(row))));
        }
        if keep && let Some(handle) = self.handle_of(table) {
            self.reads.absent.push((handle, key.into()));
        }
        Ok(None)
    }

    /// A row that SKIP LOCKED passed over does not count as read by `reader` ([`Scan::read_by`](crate::Scan::read_by)) in this
    /// statement: whoever holds it will most likely change it, and a queue's worker does not mind. What other parts of the
    /// statement, or other statements, read of the row counts; so does what an earlier FETCH of a cursor passed over.
    pub fn pass_over(&mut self, table: &TableHandle, key: &[u8], reader: u32) {
        let mut ranges = self.reads.ranges[self.statement.mark.ranges..]
            .iter_mut()
            .filter(|r| r.reader == reader)
            .peekable();
        if ranges.peek().is_some() {
            for r in ranges {
                r.passed_over.insert(key.into());
            }
        } else if let Some(v) = &mut self.reads.view {
            // Read by key.
            v.forget_one(self.statement.mark.kept, &table.storage, key, &pin());
        }
    }

    /// After a row was locked: [`Stop::Restart`] when it has a version above the snapshot. The position of its version, ZERO for none.
    pub(crate) fn check_newest(
        &mut self,
        table: &TableHandle,
        key: &[u8],
    ) -> stop::Result<Position> {
        if let Some(p) = self.writes.get(table.storage.id, key)
            && p.moved.is_none()
        {
            return Ok(p.saw);
        }
        let guard = pin();
        let Some(record) = table.storage.primary.get(key, &guard) else {
            return Ok(Position::ZERO);
        };
        crate::settle::settle(record);
        let Some(newest) = record.newest(&guard) else {
            return Ok(Position::ZERO);
        };
        if newest.position() > self.view()?.position() {
            let row = newest.row().or_else(|| newest.older(&guard)?.row());
            let key = row.map_or_else(|| "(row)".into(), |r| table.describe_row(r));
            self.restart(table, key, newest.position())?;
        }
        if !table.spreads.is_empty()
            && let Some(row) = newest.row()
            && let Some(winner) = self.newer_record(table, key, row, &guard)?
        {
            let key = table.describe_row(row);
            self.restart(table, key, winner)?;
        }
        Ok(newest.position())
    }

    pub(crate) fn restart(
        &mut self,
        table: &TableHandle,
        key: String,
        winner: Position,
    ) -> stop::Result<()> {
        self.statement.conflict = Some(Conflict {
            schema: self.namespace_of(table),
            table: table.name().into(),
            key,
            winner,
        });
        Err(Stop::Restart)
    }

    /// Estimated number of rows, for plans and `reltuples`.
    pub fn estimated_rows(&self, table: &TableHandle) -> u64 {
        if table.temporary {
            let own = self.writes.of(table.storage.id);
            return own.map_or(0, |t| t.rows.len() as u64);
        }
        table.storage.live_rows()
    }

    /// The default of a column, where the table has rules for it.
    pub fn default_of(&self, table: &TableHandle, column: usize) -> Result<Value> {
        match table.rules(&self.schema.catalog.schema, self.shared.compiler())? {
            Some(r) => r.default(column),
            None => Ok(Value::Null),
        }
    }
}

impl Drop for Txn {
    fn drop(&mut self) {
        if self.courtesy.shown.is_some() {
            self.shared.readers.remove(self.id);
        }
        if self.charged != 0 {
            let memory = &self.shared.store.memory;
            memory.add_uncommitted(-(self.charged as isize));
        }
        self.stop_waiting();
        if !self.escrowed.is_empty() {
            for (name, held) in self.escrowed.take() {
                self.shared.escrow.give_back(&name, held);
            }
        }
        for name in self.locks.held.drain(..) {
            self.shared.locks.release(self.id, name);
        }
        self.end_uses();
        self.abandon_schema();
        let parted = self.part_temp();
        self.return_temp(parted, false);
    }
}
