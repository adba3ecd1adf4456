//! The reclaimer: unlinks what no snapshot can see.
//!
//! A commit that replaces a version or leaves a tombstone queues the record with its storage. A pass takes the list of live
//! snapshots, and for each queued record whose position every *new* snapshot would see, keeps a version exactly if some live
//! snapshot stands between it and the next newer one; so one idle snapshot keeps one version of a hot row, not all since.
//! A record whose newest version is a tombstone that everybody sees goes altogether: its entries first, then itself.
//!
//! What is unlinked is freed when no guard can see it, which somebody has to find out: the pass does, after every few records
//! (`Guard::flush`: what has become free of up to eight bags of 64 goes). Left to the guards that come and go (once in 128 of them),
//! a node that works in large slices, as replay does, unlinks five times what it frees, for ever.
//!
//! A pass blocks no transaction. It skips records that a commit holds and tries them again. Committers trim long chains themselves
//! ([`Store::trim_long`]), so a hot row does not depend on the pace of the passes.

use base::{Position, RelId};
use crossbeam_epoch::{Guard, pin};
use env::sync::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::Arc;

use crate::memory::{Memory, rounded};
use crate::record::Record;
use crate::snapshot::Snapshots;
use crate::storage::{SecondaryIndex, Stale, Storage, chain_has_key};
use crate::tree::prefetch;

/// All storages of a node, with what they share.
#[derive(Default)]
pub struct Store {
    /// Dropped first: the storages of a node that ends need not count what they give back.
    pub memory: Memory,
    storages: RwLock<HashMap<RelId, Arc<Storage>>>,
    pub snapshots: Snapshots,
}

/// Records that a pass goes through under one guard.
const CHUNK: usize = 32;

/// Asks for the memory that looking at these records takes, all records first, then all newest versions, then those below: three
/// waits instead of three for each (see `tree::ahead`).
fn ahead(chunk: &[Stale], guard: &Guard) {
    // SAFETY: as in `reclaim`: none of them has been ended yet.
    let records = || chunk.iter().map(|s| unsafe { s.record.as_ref() });
    records().for_each(|r| prefetch(r));
    records().for_each(|r| r.prefetch_newest(guard));
    let older = |r: &'_ Record| r.newest(guard).and_then(|v| v.older(guard));
    records().filter_map(older).for_each(|v| {
        let line = std::ptr::from_ref(v).cast::<u8>();
        (0..3).for_each(|i| prefetch(line.wrapping_add(64 * i)));
    });
}

/// Committers wait for the queue's lock with records in hand: under it the fewer of what came meanwhile and what is put back are moved.
fn put_back(queue: &Mutex<Vec<Stale>>, mut again: Vec<Stale>) {
    let mut queue = queue.lock();
    if queue.len() < again.len() {
        std::mem::swap(&mut *queue, &mut again);
    }
    queue.append(&mut again);
}

/// What a pass of the reclaimer did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reclaimed {
    pub versions: usize,
    pub records: usize,
    /// Records that are still queued.
    pub waiting: usize,
}

impl Store {
    /// The storage of this number.
    pub fn storage(&self, id: RelId) -> Option<Arc<Storage>> {
        self.storages.read().get(&id).cloned()
    }

    /// Adds a storage; the one that was there keeps its place.
    pub fn add(&self, storage: Arc<Storage>) {
        self.storages.write().entry(storage.id).or_insert(storage);
    }

    /// Forgets a storage; its rows count no more, and go when the last user of it does.
    pub fn remove(&self, id: RelId) {
        let gone = self.storages.write().remove(&id);
        if let Some(s) = gone {
            s.pay_back();
        }
    }

    /// Every storage.
    pub fn all(&self) -> Vec<Arc<Storage>> {
        self.storages.read().values().cloned().collect()
    }

    /// One pass over all queues. `installed`: where new snapshots stand at least.
    pub fn reclaim(&self, installed: Position) -> Reclaimed {
        self.reclaim_beside(installed, &mut || {})
    }

    /// The same for one who has something else to do meanwhile: `beside` is called after every few records.
    pub fn reclaim_beside(&self, installed: Position, beside: &mut dyn FnMut()) -> Reclaimed {
        let storages = self.all();
        let live = self.snapshots.live(installed);
        let mut done = Reclaimed::default();
        for s in storages {
            let queue = std::mem::take(&mut *s.stale.lock());
            if queue.is_empty() {
                continue;
            }
            let (mut seen, mut indexes) = (s.indexes_version(), s.indexes());
            let mut again = Vec::new();
            for chunk in queue.chunks(CHUNK) {
                let guard = pin();
                ahead(chunk, &guard);
                for stale in chunk {
                    // SAFETY: a queued record is ended by this pass alone, and after it was taken from the queue.
                    let record = unsafe { stale.record.as_ref() };
                    if stale.position > installed || record.try_lock().is_err() {
                        again.push((stale.position, stale.record));
                        continue;
                    }
                    record.dequeued();
                    if s.indexes_version() != seen {
                        (seen, indexes) = (s.indexes_version(), s.indexes());
                    }
                    self.reclaim_record(&s, &indexes, record, &live, &mut done, &guard);
                }
                guard.flush();
                drop(guard);
                beside();
            }
            done.waiting += again.len();
            let again = again
                .into_iter()
                .map(|(position, record)| Stale { position, record });
            put_back(&s.stale, again.collect());
        }
        // What others have unlinked, and the last of ours.
        pin().flush();
        done
    }

    /// Trims a locked record, and ends it when only a tombstone is left that everybody sees. Unlocks it.
    fn reclaim_record(
        &self,
        s: &Storage,
        indexes: &[Arc<SecondaryIndex>],
        record: &Record,
        live: &[Position],
        done: &mut Reclaimed,
        guard: &Guard,
    ) {
        done.versions += self.trim(indexes, record, live, guard);
        let newest = *live.last().expect("the newest position is always live");
        let dead = record
            .newest(guard)
            .is_none_or(|v| v.row().is_none() && v.position() <= live[0]);
        if dead
            && record
                .newest(guard)
                .is_none_or(|v| v.older(guard).is_none())
        {
            record.kill();
            let tombstone = record.newest(guard).map_or(0, |v| rounded(v.bytes()));
            let bytes = rounded(record.bytes()) + tombstone;
            let gone = s
                .primary
                .remove_if(record.key(), |r| std::ptr::eq(r, record), guard);
            assert!(gone, "a record in the queue is in the tree");
            self.memory.add(-bytes);
            done.records += 1;
            return;
        }
        let more = record
            .newest(guard)
            .is_some_and(|v| v.row().is_none() || v.older(guard).is_some());
        if more {
            done.waiting += 1;
            s.mark_stale(record, newest);
        }
        record.unlock();
    }

    /// Unlinks versions of a locked record that no live snapshot sees, and index entries that no version is left for.
    fn trim(
        &self,
        indexes: &[Arc<SecondaryIndex>],
        record: &Record,
        live: &[Position],
        guard: &Guard,
    ) -> usize {
        // New snapshots stand at the last live position or above: they may see any version above it.
        let newest = *live.last().expect("the newest position is always live");
        let needed = |at: Position, newer: Position| {
            let first = live.partition_point(|&s| s < at);
            at > newest || live.get(first).is_some_and(|&s| s < newer)
        };
        let (mut count, mut bytes) = (0, 0);
        // The newest version stays: what has its key is needed.
        let stays = record.newest(guard).and_then(|v| v.row());
        let mut keys: Vec<(&SecondaryIndex, Vec<u8>)> = Vec::new();
        record.trim(guard, needed, |v| {
            count += 1;
            bytes += rounded(v.bytes());
            let Some(row) = v.row() else { return };
            for index in indexes {
                if !stays.is_some_and(|s| index.spec.same_columns(row, s)) {
                    let mut key = Vec::with_capacity(16 + record.key().len());
                    index.spec.key_of(row, record.key(), &mut key);
                    keys.push((&**index, key));
                }
            }
        });
        let mut scratch = Vec::new();
        for (index, key) in &keys {
            if !chain_has_key(index, record, key, &mut scratch, guard) {
                index.unlink(key, &self.memory, guard);
            }
        }
        self.memory.add(-bytes);
        count
    }

    /// For a committer that holds the record: trims a chain longer than `longest`. `installed` as for `reclaim`.
    pub fn trim_long(
        &self,
        s: &Storage,
        record: &Record,
        longest: usize,
        installed: impl Fn() -> Position,
        guard: &Guard,
    ) {
        let mut v = record.newest(guard);
        for _ in 0..longest {
            match v.and_then(|v| v.older(guard)) {
                Some(x) => v = Some(x),
                None => return,
            }
        }
        let live = self.snapshots.live(installed());
        self.trim(&s.indexes(), record, &live, guard);
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use crate::record::NewVersion;
    use std::ptr::NonNull;

    #[test]
    fn the_fewer_are_moved_under_the_lock() {
        let some = |n: u64| {
            let mut all = Vec::with_capacity(2000);
            all.extend((0..n).map(|_| Stale {
                position: Position::ZERO,
                record: NonNull::dangling(),
            }));
            all
        };
        for (came, again) in [(2, 1000), (1000, 2), (0, 5), (5, 0)] {
            let (queue, back) = (Mutex::new(some(came)), some(again));
            let stays = match again > came {
                true => back.as_ptr(),
                false => queue.lock().as_ptr(),
            };
            put_back(&queue, back);
            let queue = queue.lock();
            assert_eq!((queue.len() as u64, queue.as_ptr()), (came + again, stays));
        }
    }

    #[test]
    fn a_long_pass_leaves_time_for_other_things() {
        let store = Store::default();
        let storage = Arc::new(Storage::new(20_000));
        store.add(storage.clone());
        let at = Position::new(1, 1);
        let guard = pin();
        for n in 0..10 * CHUNK as u32 {
            let record = storage.find_or_create(&n.to_be_bytes(), &store.memory, &guard);
            record.try_lock().expect("nobody else writes");
            record.push(NewVersion::new(Some(&[1])), at, 0);
            storage.mark_stale(record, at);
            record.unlock();
        }
        drop(guard);
        let mut times = 0;
        store.reclaim_beside(at, &mut || times += 1);
        assert_eq!(times, 10);
    }
}
