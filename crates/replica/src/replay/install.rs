//! Installing one write: find the record, lock it, link its index entries, push the version.
//!
//! As at the primary (`txn::commit`), entries are linked before the version is pushed, rows are counted, and a record with something
//! to reclaim is queued. The lock is short and there for the reclaimer and for index builds: writers of one row never meet, as the
//! policies keep them in order.
//!
//! A chain that grows long is trimmed here, but once per row and step of `visible` only: what lies above it cannot go, and is not to be
//! walked again and again.

use base::record::{self, RecordKind};
use base::{Position, RelId, Result};
use env::fault;
use std::sync::Arc;
use store::{Guard, NewVersion, Record, SecondaryIndex, Storage, Store};

use super::segment::{Cursor, Write};
use crate::ReplicaMarks;
use wal::Group;

/// Storages kept at hand by a worker; a table of places by number.
const KEPT: usize = 64;

/// A chain this long is trimmed by who makes it longer, as at the primary.
const LONG_CHAIN: usize = 16;

/// Rows whose last trim is remembered.
const TRIMMED: usize = 64;

/// A storage with its indexes as of one schema.
pub(crate) struct Kept {
    pub storage: Arc<Storage>,
    indexes: Vec<Arc<SecondaryIndex>>,
    /// Rows that came, less those that went, not yet counted in the storage.
    live: i64,
}

/// A worker's hands: storages looked up, counts to be handed in, room for keys.
pub(crate) struct Installer {
    store: Arc<Store>,
    marks: Arc<ReplicaMarks>,
    kept: Vec<Option<Kept>>,
    generation: u64,
    /// Bytes taken and not yet counted.
    bytes: isize,
    key: Vec<u8>,
    /// Writes looked at ahead: storage, where the key stands in the data, and its length.
    rest: Vec<(RelId, usize, usize)>,
    trimmed: [Position; TRIMMED],
    pub installed: u64,
}

impl Installer {
    pub fn new(store: Arc<Store>, marks: Arc<ReplicaMarks>) -> Installer {
        Installer {
            store,
            marks,
            kept: (0..KEPT).map(|_| None).collect(),
            generation: 0,
            bytes: 0,
            key: Vec::new(),
            rest: Vec::new(),
            trimmed: [Position::ZERO; TRIMMED],
            installed: 0,
        }
    }

    /// What was looked up under another schema is forgotten.
    pub fn enter(&mut self, generation: u64) {
        if self.generation != generation {
            self.generation = generation;
            for place in 0..KEPT {
                self.forget(place);
            }
        }
    }

    fn forget(&mut self, place: usize) {
        if let Some(k) = self.kept[place].take() {
            k.storage.count(k.live);
        }
    }

    /// Hands in what was counted.
    pub fn flush(&mut self) {
        for k in self.kept.iter_mut().flatten() {
            k.storage.count(std::mem::take(&mut k.live));
        }
        self.store.memory.add(std::mem::take(&mut self.bytes));
    }

    /// The storage of this number.
    #[inline]
    pub fn storage(&mut self, id: RelId) -> Result<&mut Kept> {
        let place = id as usize % KEPT;
        if self.kept[place].as_ref().is_none_or(|k| k.storage.id != id) {
            self.look_up(id, place)?;
        }
        Ok(self.kept[place].as_mut().expect("looked up above"))
    }

    #[cold]
    fn look_up(&mut self, id: RelId, place: usize) -> Result<()> {
        self.forget(place);
        let storage = self.store.storage(id).ok_or_else(|| {
            record::damaged().detail(format!(
                "A row belongs to storage {id}, which is not there."
            ))
        })?;
        self.kept[place] = Some(Kept {
            indexes: storage.indexes(),
            storage,
            live: 0,
        });
        Ok(())
    }

    /// Asks for the memory of the rows that the next writes replace, at most so many (`store::tree::ahead`). New rows are left out:
    /// where they go is where others went just before, mostly.
    pub fn ahead(
        &mut self,
        mut at: Cursor,
        group: &Group,
        end: usize,
        most: usize,
        guard: &Guard,
    ) -> Result<()> {
        let mut rest = std::mem::take(&mut self.rest);
        rest.clear();
        for _ in 0..most {
            let Some(w) = at.next(group, end)? else { break };
            if w.is_row() && w.prev != 0 {
                rest.push((w.storage, at.data - w.key.len() - w.row.len(), w.key.len()));
            }
        }
        while let Some(&(id, ..)) = rest.first() {
            let mut keys: [&[u8]; 16] = [&[]; 16];
            let mut n = 0;
            rest.retain(|&(storage, from, len)| {
                let take = storage == id && n < keys.len();
                if take {
                    keys[n] = &group.data()[from..from + len];
                    n += 1;
                }
                !take
            });
            self.storage(id)?.storage.prefetch(&keys[..n], guard);
        }
        self.rest = rest;
        Ok(())
    }

    /// Whether the row's newest version is the one that the write follows.
    #[inline]
    pub fn follows_newest(&mut self, w: &Write<'_>, guard: &Guard) -> Result<bool> {
        let storage = &self.storage(w.storage)?.storage;
        let newest = storage
            .primary
            .get(w.key, guard)
            .and_then(|r| r.newest(guard));
        Ok(newest.is_some_and(|v| v.position().as_u64() == w.prev))
    }

    /// Installs a write that is safe.
    pub fn install(&mut self, w: &Write<'_>, guard: &Guard) -> Result<()> {
        self.storage(w.storage)?;
        let kept = self.kept[w.storage as usize % KEPT]
            .as_mut()
            .expect("looked up above");
        let storage = &*kept.storage;
        let memory = &self.store.memory;
        let record = lock(storage, w.key, &self.store, guard);
        let newest = record.newest(guard);
        if newest.is_some_and(|v| v.position() >= w.at) {
            record.unlock();
            if fault::planted("replay.thomas") {
                return Ok(());
            }
            return Err(record::damaged().detail(format!(
                "The row already has a version at or above position {}.",
                w.at
            )));
        }
        let was = newest.is_some_and(|v| v.row().is_some());
        let is = w.kind == RecordKind::Put;
        let version = NewVersion::new(is.then_some(w.row));
        self.bytes += version.rounded();
        if is {
            let before = newest.and_then(|v| v.row());
            for index in &kept.indexes {
                // The newest version has this entry already, or whoever builds the index will link it for both.
                if before.is_some_and(|b| index.spec.same_columns(b, w.row)) {
                    continue;
                }
                index.spec.key_of(w.row, w.key, &mut self.key);
                index.link(&self.key, record, memory, guard);
            }
        }
        kept.live += i64::from(is) - i64::from(was);
        let replaces = newest.is_some();
        record.push(version, w.at, 0);
        if replaces || !is {
            let visible = self.marks.visible.get();
            let trimmed = &mut self.trimmed[w.hash as usize % TRIMMED];
            if *trimmed < visible {
                *trimmed = visible;
                self.store
                    .trim_long(storage, record, LONG_CHAIN, || visible, guard);
            }
            storage.mark_stale(record, w.at);
        }
        record.unlock();
        self.installed += 1;
        Ok(())
    }
}

/// The row's record, locked. Who has the lock meanwhile, the reclaimer or an index build, is short.
fn lock<'g>(storage: &'g Storage, key: &[u8], store: &Store, guard: &'g Guard) -> &'g Record {
    let mut spins = 0u32;
    loop {
        let record = storage.find_or_create(key, &store.memory, guard);
        if record.try_lock().is_ok() {
            return record;
        }
        spins += 1;
        if spins < 64 {
            env::sync::hint::spin_loop();
        } else {
            env::sync::thread::yield_now();
        }
    }
}
