//! The rows of one table and the secondary indexes over them.
//!
//! The primary tree maps primary keys (or hidden row ids) to records. A secondary index maps *index columns + primary key* to the same
//! records; its entries have no versions of their own. An entry says "some version of this row has, or had, this index key": who
//! finds a row through it checks that the version he sees has that key. Entries are linked before the commit that needs them
//! takes its position, and unlinked by the reclaimer when no version that anybody can see has the key. So a validating
//! transaction that scans an index range after it has its position sees every commit with a smaller one.

use base::key::KeyColumn;
use base::{Position, RelId, RowLayout};
use crossbeam_epoch::{Guard, pin};
use env::sync::atomic::{AtomicU64, Ordering};
use env::sync::{Mutex, RwLock};
use std::convert::Infallible;
use std::ops::{Bound, Deref};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::memory::{Debt, Memory, rounded};
use crate::record::{IndexEntry, Record};
use crate::tree::{Direction, Entry, Tree};

/// How index keys are made of rows.
#[derive(Clone, Debug)]
pub struct IndexSpec {
    pub id: RelId,
    pub unique: bool,
    pub nulls_not_distinct: bool,
    pub layout: RowLayout,
    /// (place of the column in the row, how it is encoded)
    pub columns: Vec<(usize, KeyColumn)>,
}

impl IndexSpec {
    /// Appends the bytes of the index columns of a row to `out`. Whether one of them is NULL.
    pub fn columns_of(&self, row: &[u8], out: &mut Vec<u8>) -> bool {
        let row = self.layout.row(row);
        let mut null = false;
        for (i, c) in &self.columns {
            let v = row.get(*i);
            null |= v.is_null();
            c.encode(&v, out);
        }
        null
    }

    /// Whether two rows surely have the same index columns; told from their bytes, so `false` says nothing.
    pub fn same_columns(&self, a: &[u8], b: &[u8]) -> bool {
        let (a, b) = (self.layout.row(a), self.layout.row(b));
        self.columns.iter().all(|(i, _)| {
            let i = *i;
            if a.is_missing(i) || b.is_missing(i) || a.is_null(i) || b.is_null(i) {
                return false;
            }
            a.raw(i) == b.raw(i)
        })
    }

    /// The whole key of the row's entry: columns, then primary key.
    pub fn key_of(&self, row: &[u8], primary: &[u8], out: &mut Vec<u8>) {
        out.clear();
        self.columns_of(row, out);
        out.extend_from_slice(primary);
    }
}

/// A secondary index. A change of the table's columns makes a new one over the same tree.
pub struct SecondaryIndex {
    pub spec: IndexSpec,
    pub tree: Arc<IndexTree>,
}

/// The entries of an index, whatever its spec.
#[derive(Default)]
pub struct IndexTree {
    tree: Tree<IndexEntry>,
    /// Behind the tree: see its end.
    debt: Debt,
}

impl Deref for IndexTree {
    type Target = Tree<IndexEntry>;

    #[inline]
    fn deref(&self) -> &Tree<IndexEntry> {
        &self.tree
    }
}

impl IndexTree {
    fn pay_back(&self) {
        self.debt.pay(|| {
            let mut bytes = 0;
            let each = |e: &IndexEntry| bytes += rounded(IndexEntry::bytes(e.key().len()));
            each_of(&self.tree, &pin(), each);
            (bytes, self.tree.bytes())
        });
    }
}

impl Drop for IndexTree {
    fn drop(&mut self) {
        self.pay_back();
    }
}

impl SecondaryIndex {
    /// An empty index.
    pub fn new(spec: IndexSpec) -> SecondaryIndex {
        SecondaryIndex {
            spec,
            tree: Arc::default(),
        }
    }

    /// The same entries under a spec with a longer layout.
    pub fn with_spec(&self, spec: IndexSpec) -> SecondaryIndex {
        SecondaryIndex {
            spec,
            tree: self.tree.clone(),
        }
    }

    /// Links an entry for `record`; whether there was none. The caller holds the record's lock.
    pub fn link(&self, key: &[u8], record: &Record, memory: &Memory, guard: &Guard) -> bool {
        let (_, new) = self
            .tree
            .get_or_insert(key, || IndexEntry::alloc(key, record), guard);
        if new {
            self.tree.debt.to(memory);
            memory.add(rounded(IndexEntry::bytes(key.len())));
        }
        new
    }

    /// Unlinks the entry of this key. The caller holds the lock of the record.
    pub fn unlink(&self, key: &[u8], memory: &Memory, guard: &Guard) {
        if self.tree.remove_if(key, |_| true, guard) {
            memory.add(-rounded(IndexEntry::bytes(key.len())));
        }
    }

    /// Whether `row` (the version of this entry's record that a reader sees) has the entry's key.
    pub fn matches(&self, entry: &IndexEntry, row: &[u8], scratch: &mut Vec<u8>) -> bool {
        scratch.clear();
        self.spec.columns_of(row, scratch);
        scratch[..] == *entry.columns()
    }
}

/// A record to look at again when nobody can see `position`'s predecessor any more.
pub(crate) struct Stale {
    pub position: Position,
    pub record: NonNull<Record>,
}

// SAFETY: a queued record stays allocated: only the reclaimer ends records, and it takes them from this queue first.
unsafe impl Send for Stale {}

/// The shape of a storage whose table is being changed: no commit may write to it.
pub const CHANGING: u64 = u64::MAX;

/// The shape of a storage that its table does not use any more.
pub const RETIRED: u64 = u64::MAX - 1;

/// The rows of a table.
pub struct Storage {
    pub id: RelId,
    pub primary: Tree<Record>,
    /// Every index that somebody may read: those of all schema versions that a snapshot has, and those that are being built. The
    /// reclaimer unlinks from all of them, so that no entry outlives its record.
    indexes: RwLock<Vec<Arc<SecondaryIndex>>>,
    indexes_version: AtomicU64,
    /// Schema version of the last change to this table; odd marks are the commit's business. A commit made under another is refused.
    shape: AtomicU64,
    next_row_id: AtomicU64,
    live: AtomicU64,
    /// See [`Storage::written_at`].
    newest: AtomicU64,
    pub(crate) stale: Mutex<Vec<Stale>>,
    /// Behind the tree: see its end.
    debt: Debt,
}

impl Storage {
    /// No rows, no secondary indexes.
    pub fn new(id: RelId) -> Storage {
        Storage {
            id,
            primary: Tree::new(),
            indexes: RwLock::default(),
            indexes_version: AtomicU64::new(0),
            shape: AtomicU64::new(0),
            next_row_id: AtomicU64::new(1),
            live: AtomicU64::new(0),
            newest: AtomicU64::new(0),
            stale: Mutex::default(),
            debt: Debt::default(),
        }
    }

    /// The record of this key, made if there is none.
    pub fn find_or_create<'g>(
        &'g self,
        key: &[u8],
        memory: &Memory,
        guard: &'g Guard,
    ) -> &'g Record {
        let (r, new) = self
            .primary
            .get_or_insert(key, || Record::alloc(key), guard);
        if new {
            self.debt.to(memory);
            memory.add(rounded(r.bytes()));
        }
        r
    }

    /// Its rows and entries count no more: for a storage that nobody may read any more. Who has it keeps them in memory all the same.
    pub fn pay_back(&self) {
        self.indexes().iter().for_each(|i| i.tree.pay_back());
        self.pay_back_rows();
    }

    fn pay_back_rows(&self) {
        self.debt.pay(|| {
            let guard = pin();
            let mut bytes = 0;
            self.for_each(&guard, |r| {
                bytes += rounded(r.bytes());
                let mut v = r.newest(&guard);
                while let Some(x) = v {
                    bytes += rounded(x.bytes());
                    v = x.older(&guard);
                }
            });
            (bytes, self.primary.bytes())
        });
    }

    /// A commit at this position writes here. Said before the commit counts as installed.
    pub fn written_at(&self, at: Position) {
        let at = at.as_u64();
        if self.newest.load(Ordering::SeqCst) < at {
            self.newest.fetch_max(at, Ordering::SeqCst);
        }
    }

    /// The newest position given to [`Storage::written_at`].
    pub fn last_written(&self) -> Position {
        Position::from_u64(self.newest.load(Ordering::SeqCst))
    }

    /// Asks for the memory of the newest rows of these keys, all at once: see `tree::ahead`.
    pub fn prefetch(&self, keys: &[&[u8]], guard: &Guard) {
        let mut records = [None; 16];
        for keys in keys.chunks(records.len()) {
            self.look_ahead(keys, &mut records, guard);
        }
    }

    /// The same, and gives the records that were met on the way, likely those of the keys, as far as `out` has room. How many.
    pub fn look_ahead<'g>(
        &'g self,
        keys: &[&[u8]],
        out: &mut [Option<&'g Record>],
        guard: &'g Guard,
    ) -> usize {
        let mut n = 0;
        self.primary.prefetch(keys, guard, |r| {
            if let Some(to) = out.get_mut(n) {
                *to = Some(r);
                n += 1;
            }
        });
        let records = out[..n].iter().flatten();
        records.for_each(|r| r.prefetch_newest(guard));
        n
    }

    /// The secondary indexes now.
    pub fn indexes(&self) -> Vec<Arc<SecondaryIndex>> {
        self.indexes.read().clone()
    }

    /// Counts the changes of [`Storage::indexes`]. Who holds a record's lock and finds the count unchanged knows every index that an
    /// entry of the record may stand in.
    pub fn indexes_version(&self) -> u64 {
        self.indexes_version.load(Ordering::SeqCst)
    }

    fn change_indexes(&self, f: impl FnOnce(&mut Vec<Arc<SecondaryIndex>>)) {
        let mut all = self.indexes.write();
        f(&mut all);
        self.indexes_version.fetch_add(1, Ordering::SeqCst);
    }

    /// Sets the secondary indexes: for a storage that nobody else uses.
    pub fn set_indexes(&self, indexes: Vec<Arc<SecondaryIndex>>) {
        self.change_indexes(|all| *all = indexes);
    }

    /// Adds indexes; one with the same id gives way. Attach before the first entry is linked.
    pub fn attach(&self, indexes: impl IntoIterator<Item = Arc<SecondaryIndex>>) {
        self.change_indexes(|all| {
            for i in indexes {
                all.retain(|o| o.spec.id != i.spec.id);
                all.push(i);
            }
        });
    }

    /// Takes indexes away that nobody can read any more. Their entries count no more.
    pub fn detach(&self, gone: impl Fn(RelId) -> bool) {
        let mut taken = Vec::new();
        self.change_indexes(|all| taken.extend(all.extract_if(.., |i| gone(i.spec.id))));
        taken.iter().for_each(|i| i.tree.pay_back());
    }

    /// Links an entry for each version of each record: a new index over rows that are there. Attach it before, so that the
    /// reclaimer and writers know it. Each record is locked meanwhile, so no version goes between a look at it and its entry.
    /// `check_cancelled` is asked from time to time; an error of it ends the work.
    pub fn fill<E>(
        &self,
        index: &SecondaryIndex,
        memory: &Memory,
        check_cancelled: impl Fn() -> Result<(), E>,
    ) -> Result<(), E> {
        let mut from: Bound<Vec<u8>> = Bound::Unbounded;
        let mut key = Vec::new();
        loop {
            check_cancelled()?;
            let guard = pin();
            let mut batch = Vec::new();
            let lo = from.as_ref().map(|k| &k[..]);
            let more = self.primary.scan(
                lo,
                Bound::Unbounded,
                Direction::Forward,
                256,
                &mut batch,
                &guard,
            );
            for r in &batch {
                if r.lock_unless_dead() {
                    let mut v = r.newest(&guard);
                    while let Some(x) = v {
                        if let Some(row) = x.row() {
                            index.spec.key_of(row, r.key(), &mut key);
                            index.link(&key, r, memory, &guard);
                        }
                        v = x.older(&guard);
                    }
                    r.unlock();
                }
            }
            match (more, batch.last()) {
                (true, Some(last)) => from = Bound::Excluded(last.key().to_vec()),
                _ => return Ok(()),
            }
        }
    }

    /// Under which schema version rows are written.
    #[inline]
    pub fn shape(&self) -> u64 {
        self.shape.load(Ordering::SeqCst)
    }

    /// Whether a schema change has these rows in its hands, or has put others in their place (TRUNCATE, DROP, a rewrite): what was
    /// read here may not be so any more.
    #[inline]
    pub fn is_changing(&self) -> bool {
        self.shape() >= RETIRED
    }

    /// See [`Storage::shape`].
    pub fn set_shape(&self, version: u64) {
        self.shape.store(version, Ordering::SeqCst);
    }

    /// A number for a row without a primary key; never given twice while the process lives.
    pub fn new_row_id(&self) -> u64 {
        self.next_row_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Row ids up to this one are taken (recovery, replay).
    pub fn raise_row_id(&self, taken: u64) {
        self.next_row_id.fetch_max(taken + 1, Ordering::Relaxed);
    }

    /// Rows in the newest state, near enough.
    pub fn live_rows(&self) -> u64 {
        let n = self.live.load(Ordering::Relaxed);
        if n > i64::MAX as u64 { 0 } else { n }
    }

    /// Counts rows that came (positive) or went.
    #[inline]
    pub fn count(&self, delta: i64) {
        if delta != 0 {
            self.live.fetch_add(delta as u64, Ordering::Relaxed);
        }
    }

    /// Hands a record with an unneeded version to the reclaimer. The caller holds the record's lock.
    pub fn mark_stale(&self, record: &Record, position: Position) {
        if record.enqueue() {
            self.stale.lock().push(Stale {
                position,
                record: NonNull::from(record),
            });
        }
    }

    /// Bytes of the trees' nodes.
    pub fn node_bytes(&self) -> usize {
        self.primary.bytes()
            + self
                .indexes
                .read()
                .iter()
                .map(|i| i.tree.bytes())
                .sum::<usize>()
    }

    /// Calls `f` with each record, in key order.
    pub fn for_each<'g>(&'g self, guard: &'g Guard, f: impl FnMut(&'g Record)) {
        each_of(&self.primary, guard, f);
    }

    /// The same until `f` fails.
    pub fn try_for_each<'g, E>(
        &'g self,
        guard: &'g Guard,
        mut f: impl FnMut(&'g Record) -> Result<(), E>,
    ) -> Result<(), E> {
        try_each_of(&self.primary, guard, &mut f)
    }

    /// Takes back every commit above `above`: versions, index entries and the count of rows are again what they were at `above`.
    /// Later users: an epoch that aborts (COCO §3.1), and a site's rows above the cut of its history when a new term starts.
    ///
    /// Two promises of the caller. No other thread uses the storage meanwhile. What was visible at `above` is still here: a snapshot has
    /// stood there since, or no pass of the reclaimer went beyond it. [`Storage::last_written`] stays above, and so must new commits.
    pub fn rollback_above(&self, above: Position, memory: &Memory, guard: &Guard) {
        let indexes = self.indexes();
        let (mut key, mut kept) = (Vec::new(), Vec::new());
        self.for_each(guard, |r| {
            if r.newest(guard).is_none_or(|v| v.position() <= above) {
                return;
            }
            r.try_lock()
                .expect("no other thread has the storage while commits are taken back");
            let was_live = r.newest(guard).is_some_and(|v| v.row().is_some());
            let mut gone = Vec::new();
            r.rollback(above, guard, |v| {
                memory.add(-rounded(v.bytes()));
                gone.extend(v.row().map(<[u8]>::to_vec));
            });
            for index in &indexes {
                for row in &gone {
                    index.spec.key_of(row, r.key(), &mut key);
                    if !chain_has_key(index, r, &key, &mut kept, guard) {
                        index.unlink(&key, memory, guard);
                    }
                }
            }
            let newest = r.newest(guard);
            let live = newest.is_some_and(|v| v.row().is_some());
            self.count(i64::from(live) - i64::from(was_live));
            if newest.is_none() {
                // The commit that made the record replaced nothing, so it told the reclaimer nothing.
                self.mark_stale(r, above);
            }
            r.unlock();
        });
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        self.pay_back_rows();
    }
}

fn try_each_of<'g, T: Entry, E>(
    tree: &'g Tree<T>,
    guard: &'g Guard,
    f: &mut impl FnMut(&'g T) -> Result<(), E>,
) -> Result<(), E> {
    let all = Bound::Unbounded;
    let mut cursor = tree.cursor(all, all, Direction::Forward, guard);
    let mut batch = Vec::new();
    loop {
        batch.clear();
        let more = cursor.next_batch(256, &mut batch);
        batch.iter().try_for_each(|e| f(e))?;
        if !more {
            return Ok(());
        }
    }
}

fn each_of<'g, T: Entry>(tree: &'g Tree<T>, guard: &'g Guard, mut f: impl FnMut(&'g T)) {
    let all = try_each_of(tree, guard, &mut |e| {
        f(e);
        Ok::<(), Infallible>(())
    });
    let Ok(()) = all;
}

/// Whether a version of the record has this index key.
pub(crate) fn chain_has_key(
    index: &SecondaryIndex,
    record: &Record,
    key: &[u8],
    scratch: &mut Vec<u8>,
    guard: &Guard,
) -> bool {
    let mut v = record.newest(guard);
    while let Some(x) = v {
        if let Some(row) = x.row() {
            index.spec.key_of(row, record.key(), scratch);
            if scratch[..] == *key {
                return true;
            }
        }
        v = x.older(guard);
    }
    false
}

/// The key of an index entry, whole.
pub fn entry_key(e: &IndexEntry) -> &[u8] {
    e.key()
}
