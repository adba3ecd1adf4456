//! What all transactions of a node share: the store, the locks, the watermarks, the versions of the schema, counters.
//!
//! Schema versions are kept by position: a transaction uses the newest at or below its snapshot. A version goes when no live
//! snapshot is below the next.

use base::schema::{CANON_SPLIT, Schema};
use base::{Error, Oid, Position, Result, SqlState, Watermarks};
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use store::{SecondaryIndex, Storage, Store, pin};

use crate::announced::Readers;
use crate::backoff::Backoff;
use crate::handle::{Catalog, RuleCompiler, TableHandle};
use crate::holds::KeptSnapshots;
use crate::locks::LockTable;
use crate::notifications::Notifications;
use crate::races::Races;
use crate::split::escrow::Escrow;
use crate::stats::{Padded, Stats};
use crate::used::Redefinitions;
use crate::uses::Board;

/// Why new writes are not taken: several of these, or none.
const DISK_FULL: u8 = 1;
const SHUTDOWN: u8 = 2;
const STANDBY: u8 = 4;

/// Row ids that a site makes up lie above those of any table.
const SITE_ROW_IDS: u64 = 1 << 63;

/// See the head of the file.
pub struct TxnManager {
    pub store: Arc<Store>,
    pub locks: LockTable,
    /// Which tables the transactions of sessions use.
    pub(crate) board: Arc<Board>,
    pub(crate) readers: Readers,
    pub(crate) holds: KeptSnapshots,
    pub notifications: Notifications,
    pub(crate) escrow: Escrow,
    pub marks: Arc<Watermarks>,
    pub stats: Stats,
    pub races: Races,
    /// (valid from, version), ascending; never empty.
    catalogs: RwLock<Vec<(Position, Arc<Catalog>)>>,
    /// Taken after `catalogs`.
    redefined: RwLock<Redefinitions>,
    /// Version of the newest schema.
    version: AtomicU64,
    next_id: Padded,
    next_oid: AtomicU64,
    compiler: OnceLock<Arc<dyn RuleCompiler>>,
    gate: AtomicU8,
    /// What is written while this node follows goes to its primary.
    site: AtomicBool,
    /// Commits above this position are of this node's transactions; those up to it may be of another's.
    own_from: AtomicU64,
}

impl TxnManager {
    /// Over a store that holds the tables of this catalog (`replay_changes`), at the position of the watermarks.
    pub fn new(store: Arc<Store>, marks: Arc<Watermarks>, catalog: Catalog) -> Arc<TxnManager> {
        let next_oid = u64::from(catalog.schema.next_oid);
        let from = Position::ZERO;
        let version = AtomicU64::new(catalog.schema.version);
        Arc::new(TxnManager {
            store,
            locks: LockTable::default(),
            board: Arc::default(),
            readers: Readers::default(),
            holds: KeptSnapshots::default(),
            notifications: Notifications::default(),
            escrow: Escrow::default(),
            marks,
            stats: Stats::default(),
            races: Races::default(),
            catalogs: RwLock::new(vec![(from, Arc::new(catalog))]),
            redefined: RwLock::default(),
            version,
            next_id: Padded(AtomicU64::new(1)),
            next_oid: AtomicU64::new(next_oid),
            compiler: OnceLock::new(),
            gate: AtomicU8::new(0),
            site: AtomicBool::new(false),
            own_from: AtomicU64::new(0),
        })
    }

    /// Sets who compiles CHECK constraints and defaults; the first call counts.
    pub fn set_compiler(&self, c: Arc<dyn RuleCompiler>) {
        let _ = self.compiler.set(c);
    }

    pub(crate) fn compiler(&self) -> Option<&dyn RuleCompiler> {
        self.compiler.get().map(|c| &**c)
    }

    /// A name among those that hold locks.
    pub(crate) fn new_id(&self) -> u64 {
        self.next_id.0.fetch_add(1, Ordering::Relaxed)
    }

    /// The newest schema.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.catalogs.read().last().expect("never empty").1.clone()
    }

    /// The newest schema and the position from which it holds.
    pub fn newest_catalog(&self) -> (Position, Arc<Catalog>) {
        self.catalogs.read().last().expect("never empty").clone()
    }

    /// The newest change of what was used, or of anything where that is not known.
    pub(crate) fn last_redefined(&self, used: Option<&[Oid]>) -> Position {
        match used {
            Some(used) => self.redefined.read().newest(used),
            None => self.newest_catalog().0,
        }
    }

    /// Version of the newest schema.
    pub fn schema_version(&self) -> u64 {
        self.version.load(Ordering::SeqCst)
    }

    /// The schema that a snapshot sees.
    pub fn catalog_at(&self, at: Position) -> Arc<Catalog> {
        let all = self.catalogs.read();
        all.iter()
            .rev()
            .find(|(from, _)| *from <= at)
            .unwrap_or(&all[0])
            .1
            .clone()
    }

    /// A schema version takes effect.
    pub(crate) fn install_catalog(&self, from: Position, catalog: Arc<Catalog>) {
        let mut all = self.catalogs.write();
        assert!(
            all.last().is_some_and(|(p, _)| *p < from),
            "schema versions are installed in order"
        );
        if let Some((_, before)) = all.last() {
            let mut redefined = self.redefined.write();
            redefined.note(&before.schema, &catalog.schema, from);
        }
        self.version.store(catalog.schema.version, Ordering::SeqCst);
        all.push((from, catalog));
    }

    /// Forgets schema versions, and storages and indexes that are gone, that no snapshot at or above `oldest` sees.
    pub fn forget_before(&self, oldest: Position) {
        let mut all = self.catalogs.write();
        let keep = all
            .iter()
            .rposition(|(from, _)| *from <= oldest)
            .unwrap_or(0);
        if keep == 0 {
            return;
        }
        let mut gone: Vec<_> = all.drain(..keep).map(|(_, c)| c).collect();
        let live: Vec<_> = all.iter().map(|(_, c)| c.clone()).collect();
        drop(all);
        gone.push(live[0].clone());
        // Only what is not the same in the next version can be gone with this one.
        for versions in gone.windows(2) {
            versions[0]
                .tables
                .each_change(&versions[1].tables, &mut |id, old, new| {
                    let Some(t) = old else { return };
                    if new.is_some_and(|n| Arc::ptr_eq(n, t)) {
                        return;
                    }
                    debug_assert_eq!(*id, t.table.def.id);
                    self.forget_table(t, &live);
                });
        }
    }

    /// What only versions of the schema had that are forgotten: the storage of `t`, or indexes of it.
    fn forget_table(&self, t: &TableHandle, live: &[Arc<Catalog>]) {
        let id = t.table.def.id;
        let still = || {
            let all = live.iter().filter_map(|c| c.tables.get(&id));
            all.filter(|l| l.storage.id == t.storage.id)
        };
        if still().next().is_none() {
            self.store.remove(t.storage.id);
            return;
        }
        let used = |index: u32| {
            let mut all = still().flat_map(|l| l.indexes.iter().flatten());
            all.any(|i| i.spec.id == index)
        };
        let mut old = t.indexes.iter().flatten();
        if old.any(|i| !used(i.spec.id)) {
            let was = |id| t.indexes.iter().flatten().any(|i| i.spec.id == id);
            t.storage.detach(|id| was(id) && !used(id));
        }
    }

    /// A number for a new object, never given twice.
    pub fn new_oid(&self) -> u32 {
        u32::try_from(self.next_oid.fetch_add(1, Ordering::Relaxed))
            .expect("fewer than 2^32 objects are ever made")
    }

    /// Waits (shortly: a commit is on its way) until *installed* has reached a position that was seen in a record.
    pub(crate) fn wait_installed(&self, at: Position) {
        let mut wait = Backoff::default();
        while self.marks.installed.get() < at {
            wait.pause();
        }
    }

    pub(crate) fn newest_position(&self, table: &TableHandle, key: &[u8]) -> Position {
        let guard = pin();
        let Some(r) = table.storage.primary.get(key, &guard) else {
            return Position::ZERO;
        };
        crate::settle::settle(r);
        r.newest(&guard).map_or(Position::ZERO, |v| v.position())
    }

    fn refuse(&self, why: u8, on: bool) {
        match on {
            true => self.gate.fetch_or(why, Ordering::SeqCst),
            false => self.gate.fetch_and(!why, Ordering::SeqCst),
        };
    }

    /// No room on the disk: new writes get 53100 until there is.
    pub fn set_disk_full(&self, full: bool) {
        self.refuse(DISK_FULL, full);
    }

    /// Whether new writes are refused because commits wait for room on the disk.
    pub fn is_disk_full(&self) -> bool {
        self.gate.load(Ordering::Relaxed) & DISK_FULL != 0
    }

    /// Whether this node shows another one's history: then writes get 25006.
    pub fn set_standby(&self, on: bool) {
        let own_from = match on {
            true => u64::MAX,
            false => self.marks.installed.get().as_u64(),
        };
        self.own_from.store(own_from, Ordering::SeqCst);
        self.refuse(STANDBY, on);
    }

    /// Whether a node that shows another one's history takes writes all the same, because the other one certifies them (a site).
    pub fn set_site(&self, on: bool) {
        self.site.store(on, Ordering::SeqCst);
    }

    /// Whether transactions that begin now are committed by another node.
    pub(crate) fn is_site(&self) -> bool {
        self.is_standby() && self.site.load(Ordering::SeqCst)
    }

    /// The next row id of a site, for a table without a primary key. The primary gives the row another one when it certifies.
    pub(crate) fn site_row_id(&self) -> u64 {
        SITE_ROW_IDS | self.new_id()
    }

    /// Whether every commit above this position says where it writes (`Storage::written_at`).
    pub(crate) fn all_own_from(&self, at: Position) -> bool {
        self.own_from.load(Ordering::SeqCst) <= at.as_u64()
    }

    /// Whether writes are refused because this node is a replica.
    pub fn is_standby(&self) -> bool {
        self.gate.load(Ordering::Relaxed) & STANDBY != 0
    }

    /// Numbers for new objects are above those of the schema: for a node that has followed and now writes itself.
    pub fn raise_oids(&self) {
        let next = u64::from(self.catalog().schema.next_oid);
        self.next_oid.fetch_max(next, Ordering::Relaxed);
    }

    /// New writes get 57P01 from now on.
    pub fn shut_down(&self) {
        self.refuse(SHUTDOWN, true);
    }

    /// 53100, 57P01 or 25006 when writes are not taken.
    pub fn check_accepts_writes(&self) -> Result<()> {
        let why = self.gate.load(Ordering::Relaxed);
        if why == 0 || why == STANDBY && self.is_site() {
            Ok(())
        } else if why & SHUTDOWN != 0 {
            Err(Error::new(
                SqlState::ADMIN_SHUTDOWN,
                "the database system is shutting down",
            ))
        } else if why & STANDBY != 0 {
            Err(Error::new(
                SqlState::READ_ONLY_SQL_TRANSACTION,
                "cannot write: this node is a replica",
            )
            .hint("Connect to the primary to write."))
        } else {
            Err(Error::new(
                SqlState::DISK_FULL,
                "could not write to the log: no space left on device",
            )
            .hint("Writes go on by themselves when there is room."))
        }
    }
}

/// The handles of a schema: those of unchanged tables are shared, changed ones are made anew over the storage they name (one of
/// `private`, the store's, or a new one).
pub(crate) fn build_catalog(
    store: &Store,
    old: &Catalog,
    schema: Arc<Schema>,
    private: &HashMap<u32, Arc<Storage>>,
) -> Catalog {
    let mut tables = old.tables.clone();
    let mut changed = vec![];
    old.schema.each_changed_table(&schema, &mut |id, _, now| {
        match now {
            Some(t) => changed.push((id, t.clone())),
            None => drop(tables.remove(&id)),
        };
    });
    // A table's handle knows those of its hidden tables.
    changed.sort_by_key(|(_, t)| t.def.namespace != CANON_SPLIT);
    for (id, t) in changed {
        let before = old.tables.get(&id);
        let storage = private
            .get(&t.def.storage)
            .cloned()
            .or_else(|| store.storage(t.def.storage));
        let storage = storage
            .or_else(|| {
                before
                    .filter(|h| h.storage.id == t.def.storage)
                    .map(|h| h.storage.clone())
            })
            .unwrap_or_else(|| Arc::new(Storage::new(t.def.storage)));
        let mut existing: Vec<Arc<SecondaryIndex>> = storage.indexes();
        if let Some(h) = before.filter(|h| h.storage.id == storage.id) {
            existing.extend(h.indexes.iter().flatten().cloned());
        }
        let index = |place: usize| {
            let spec = TableHandle::index_spec(&t, place);
            let found = existing.iter().find(|i| i.spec.id == spec.id);
            Arc::new(found.map_or_else(
                || SecondaryIndex::new(spec.clone()),
                |i| i.with_spec(spec.clone()),
            ))
        };
        let indexes =
            (0..t.def.indexes.len()).map(|p| (!t.def.indexes[p].primary).then(|| index(p)));
        let hidden = |table| tables.get(&table).cloned();
        let (indexes, version) = (indexes.collect(), schema.version);
        let handle = TableHandle::new(t.clone(), storage, indexes, version, &hidden);
        tables.insert(id, Arc::new(handle));
    }
    Catalog { schema, tables }
}

/// Makes a table's storage and indexes the ones that commits and the reclaimer use. Indexes of older versions stay attached until
/// [`TxnManager::forget_before`].
pub(crate) fn publish_table(store: &Store, handle: &TableHandle) {
    store.add(handle.storage.clone());
    handle
        .storage
        .attach(handle.indexes.iter().flatten().cloned());
    handle.storage.set_shape(handle.shape);
}
