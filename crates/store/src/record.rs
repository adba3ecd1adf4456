//! Records and versions: what the indexes point to.
//!
//! ```text
//! tree slot -> Record  | lock | head | flags | key length | key bytes ... |
//!                                |
//!                                v  newest first, positions descending
//!                              Version | position | stamp | next | row length | flags | row bytes ... | -> Version -> ...
//! ```
//! A version holds the position of the commit that made it and a certifier stamp (opaque here: a second position for PSP, a
//! read validity for LT-OCC, COCO §5.2). A deleted row is a version without a row, a *tombstone*. Nothing uncommitted is ever linked: a
//! committing transaction locks the record, takes its position, validates, and only then pushes the version.
//!
//! **The lock word** of a record says who may push: `FREE`, `DEAD` (unlinked from the index: look the key up again), `LOCKED`
//! (by a commit that has not asked for a position, or by the reclaimer), `ORDERING` (its commit is getting one), or the position of
//! the commit that holds it. A reader at a snapshot never looks at it; a validating transaction does, to tell commits before its
//! own position from those after: one that is only `LOCKED` when he looks, his position in hand, will come after.
//!
//! **Who frees what.** Only the holder of the lock changes `head` or unlinks versions, and what it unlinks is freed through the epoch,
//! so that a reader under a guard may walk any chain it has found. A record is freed by the tree, after `DEAD`.

use base::Position;
use crossbeam_epoch::Guard;
use env::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::{self, NonNull};

use crate::tree::Entry;

const FREE: u64 = 0;
const DEAD: u64 = 1;
const LOCKED: u64 = 2;
const ORDERING: u64 = 3;

/// Set while the record waits in the reclaimer's queue, so that it stands there once.
const QUEUED: u32 = 1;

const TOMBSTONE: u32 = 1;

/// One state of a row.
#[repr(C)]
pub struct Version {
    position: u64,
    stamp: AtomicU64,
    next: AtomicPtr<Version>,
    len: u32,
    flags: u32,
    // `len` bytes of the row follow.
}

impl Version {
    fn layout(len: usize) -> Layout {
        let bytes = size_of::<Version>() + len;
        Layout::from_size_align(bytes, align_of::<Version>())
            .expect("a row is far smaller than the address space")
    }

    /// A version that is not linked yet; `None` is a tombstone.
    fn alloc(row: Option<&[u8]>) -> NonNull<Version> {
        let bytes = row.unwrap_or_default();
        let layout = Version::layout(bytes.len());
        // SAFETY: the layout is not of size zero. The header is written whole before anything reads it, and the bytes after
        // it are inside the allocation.
        unsafe {
            let Some(p) = NonNull::new(alloc(layout).cast::<Version>()) else {
                handle_alloc_error(layout)
            };
            p.write(Version {
                position: 0,
                stamp: AtomicU64::new(0),
                next: AtomicPtr::new(ptr::null_mut()),
                len: bytes.len() as u32,
                flags: if row.is_none() { TOMBSTONE } else { 0 },
            });
            ptr::copy_nonoverlapping(bytes.as_ptr(), p.add(1).cast::<u8>().as_ptr(), bytes.len());
            p
        }
    }

    /// The commit that made it.
    #[inline]
    pub fn position(&self) -> Position {
        Position::from_u64(self.position)
    }

    /// What the certifier that pushed the version wrote beside its position. Today every commit writes 0.
    /// Later users: a site, which marks the commits that it installed before its turn in the history came; epochs over partitions,
    /// which keep the logical time of the version and its read validity (COCO §5.2). A checkpoint does not keep it.
    pub fn stamp(&self) -> u64 {
        self.stamp.load(Ordering::Acquire)
    }

    /// The row, or `None` for a tombstone.
    #[inline]
    pub fn row(&self) -> Option<&[u8]> {
        if self.flags & TOMBSTONE != 0 {
            return None;
        }
        // SAFETY: `alloc` put `len` initialised bytes behind the header of every version, and they never change.
        Some(unsafe {
            std::slice::from_raw_parts(ptr::from_ref(self).add(1).cast::<u8>(), self.len as usize)
        })
    }

    /// Bytes of memory it takes.
    pub fn bytes(&self) -> usize {
        size_of::<Version>() + self.len as usize
    }

    /// The version that this one replaced.
    #[inline]
    pub fn older<'g>(&self, _guard: &'g Guard) -> Option<&'g Version> {
        // SAFETY: a version reached under the guard stays until the guard goes; so does what it points to, since both were
        // linked when the guard was taken or later, and unlinked versions are freed through the epoch.
        unsafe { self.next.load(Ordering::Acquire).as_ref() }
    }

    /// # Safety
    /// `v` is unlinked and no other thread has it.
    unsafe fn free(v: NonNull<Version>) {
        // SAFETY: by the caller; `alloc` made it with this layout.
        unsafe {
            let layout = Version::layout(v.as_ref().len as usize);
            dealloc(v.as_ptr().cast(), layout);
        }
    }
}

/// A version that is made but not linked; freed when dropped.
pub struct NewVersion(NonNull<Version>);

// SAFETY: a version that is not linked belongs to its holder alone; its bytes are plain data.
unsafe impl Send for NewVersion {}

impl NewVersion {
    /// Copies the row; `None` makes a tombstone.
    pub fn new(row: Option<&[u8]>) -> NewVersion {
        NewVersion(Version::alloc(row))
    }

    /// Bytes of memory it takes.
    pub fn bytes(&self) -> usize {
        // SAFETY: ours alone, and alive.
        unsafe { self.0.as_ref() }.bytes()
    }

    /// The same with the allocator's rounding, as `Memory` counts it.
    pub fn rounded(&self) -> isize {
        crate::memory::rounded(self.bytes())
    }
}

impl Drop for NewVersion {
    fn drop(&mut self) {
        // SAFETY: not linked, and no other thread has it.
        unsafe { Version::free(self.0) }
    }
}

/// A row through time, found by its key.
#[repr(C)]
pub struct Record {
    lock: AtomicU64,
    head: AtomicPtr<Version>,
    flags: AtomicU32,
    key_len: u32,
    // `key_len` bytes of the key follow.
}

// SAFETY: the key stands behind the header from `alloc` on and never changes.
unsafe impl Entry for Record {
    #[inline]
    fn key(&self) -> &[u8] {
        // SAFETY: `alloc` put `key_len` initialised bytes behind the header.
        unsafe {
            std::slice::from_raw_parts(
                ptr::from_ref(self).add(1).cast::<u8>(),
                self.key_len as usize,
            )
        }
    }

    unsafe fn free(record: NonNull<Record>) {
        // SAFETY: the caller has the last pointer; the chain is reachable through it alone, and `alloc` made it with this layout.
        unsafe {
            let r = record.as_ref();
            let mut at = r.head.load(Ordering::Acquire);
            while let Some(v) = NonNull::new(at) {
                at = v.as_ref().next.load(Ordering::Acquire);
                Version::free(v);
            }
            let layout = Record::layout(r.key_len as usize);
            dealloc(record.as_ptr().cast(), layout);
        }
    }
}

/// How a record looks to a transaction that validates at a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// No commit holds it.
    Nobody,
    /// A commit that has not asked for its position yet, or the reclaimer.
    Locked,
    /// A commit that is getting its position.
    Ordering,
    /// The commit with this position, maybe one's own.
    Commit(Position),
}

impl Record {
    fn layout(key: usize) -> Layout {
        let bytes = size_of::<Record>() + key;
        Layout::from_size_align(bytes, align_of::<Record>())
            .expect("a key is far smaller than the address space")
    }

    /// A record without versions, not yet in a tree.
    pub(crate) fn alloc(key: &[u8]) -> NonNull<Record> {
        let layout = Record::layout(key.len());
        // SAFETY: as in `Version::alloc`.
        unsafe {
            let Some(p) = NonNull::new(alloc(layout).cast::<Record>()) else {
                handle_alloc_error(layout)
            };
            p.write(Record {
                lock: AtomicU64::new(FREE),
                head: AtomicPtr::new(ptr::null_mut()),
                flags: AtomicU32::new(0),
                key_len: key.len() as u32,
            });
            ptr::copy_nonoverlapping(key.as_ptr(), p.add(1).cast::<u8>().as_ptr(), key.len());
            p
        }
    }

    /// The key in the primary index.
    #[inline]
    pub fn key(&self) -> &[u8] {
        Entry::key(self)
    }

    /// Bytes of memory that the record takes without its versions.
    pub fn bytes(&self) -> usize {
        size_of::<Record>() + self.key_len as usize
    }

    /// The newest version, also one above every snapshot.
    #[inline]
    pub fn newest<'g>(&self, _guard: &'g Guard) -> Option<&'g Version> {
        // SAFETY: see `Version::older`.
        unsafe { self.head.load(Ordering::Acquire).as_ref() }
    }

    /// Asks for the first lines of the newest version.
    #[inline]
    pub fn prefetch_newest(&self, _guard: &Guard) {
        let version = self.head.load(Ordering::Acquire).cast::<u8>();
        for line in 0..3 {
            crate::tree::prefetch(version.wrapping_add(64 * line));
        }
    }

    /// The newest version at or below `at`, a tombstone too.
    #[inline]
    pub fn at<'g>(&self, at: Position, guard: &'g Guard) -> Option<&'g Version> {
        let mut v = self.newest(guard);
        while let Some(x) = v {
            if x.position() <= at {
                return v;
            }
            v = x.older(guard);
        }
        None
    }

    /// The row that a snapshot at `at` shows.
    #[inline]
    pub fn row_at<'g>(&self, at: Position, guard: &'g Guard) -> Option<&'g [u8]> {
        self.at(at, guard)?.row()
    }

    /// Who is committing this record.
    #[inline]
    pub fn holder(&self) -> Holder {
        match self.lock.load(Ordering::SeqCst) {
            FREE | DEAD => Holder::Nobody,
            LOCKED => Holder::Locked,
            ORDERING => Holder::Ordering,
            p => Holder::Commit(Position::from_u64(p)),
        }
    }

    /// Takes the lock for a commit. `Err(true)`: the record is dead, find the key again; `Err(false)`: another commit has it.
    pub fn try_lock(&self) -> Result<(), bool> {
        match self
            .lock
            .compare_exchange(FREE, LOCKED, Ordering::SeqCst, Ordering::Relaxed)
        {
            Ok(_) => Ok(()),
            Err(held) => Err(held == DEAD),
        }
    }

    /// Waits for the lock, which commits and the reclaimer hold for a short time; `false`: the record is dead.
    pub fn lock_unless_dead(&self) -> bool {
        let mut spins = 0u32;
        loop {
            match self.try_lock() {
                Ok(()) => return true,
                Err(true) => return false,
                Err(false) => {
                    spins += 1;
                    if spins > 64 {
                        env::sync::thread::yield_now();
                    } else {
                        env::sync::hint::spin_loop();
                    }
                }
            }
        }
    }

    /// The commit that holds the lock is about to ask for its position.
    pub fn set_ordering(&self) {
        let was = self.lock.swap(ORDERING, Ordering::SeqCst);
        assert_eq!(
            was, LOCKED,
            "only the holder of the lock asks for its position"
        );
    }

    /// Says the position of the commit that holds the lock.
    pub fn set_holder(&self, position: Position) {
        assert!(
            position.as_u64() > LOCKED,
            "a commit's position lies above the marks of the lock word"
        );
        let was = self.lock.swap(position.as_u64(), Ordering::SeqCst);
        assert_eq!(
            was, ORDERING,
            "only the holder of the lock says its position"
        );
    }

    /// Gives the lock back.
    pub fn unlock(&self) {
        let was = self.lock.swap(FREE, Ordering::SeqCst);
        assert!(was >= LOCKED, "unlocked what was not locked");
    }

    /// Marks a locked record as unlinked, for ever.
    pub(crate) fn kill(&self) {
        let was = self.lock.swap(DEAD, Ordering::SeqCst);
        assert_eq!(was, LOCKED, "only the holder of the lock ends a record");
    }

    /// Links a version at the head. The caller holds the lock, and `position` lies above the present head's.
    pub fn push(&self, version: NewVersion, position: Position, stamp: u64) {
        let v = version.0;
        std::mem::forget(version);
        assert!(
            self.lock.load(Ordering::Relaxed) >= LOCKED,
            "a version is pushed under the record's lock"
        );
        let head = self.head.load(Ordering::Acquire);
        // SAFETY: `v` is ours alone until the store below; `head` is alive because only the lock's holder unlinks.
        unsafe {
            if let Some(h) = head.as_ref() {
                assert!(
                    h.position < position.as_u64(),
                    "versions of a record are pushed in the order of positions"
                );
            }
            let v = &mut *v.as_ptr();
            v.position = position.as_u64();
            v.stamp = AtomicU64::new(stamp);
            v.next = AtomicPtr::new(head);
        }
        self.head.store(v.as_ptr(), Ordering::Release);
    }

    /// Unlinks the versions for which `keep` is false, the newest never, and frees them once no guard can see them. `keep`
    /// gets (position, position of the next newer version). Calls `gone` with each before. The caller holds the lock.
    pub(crate) fn trim(
        &self,
        guard: &Guard,
        mut keep: impl FnMut(Position, Position) -> bool,
        mut gone: impl FnMut(&Version),
    ) -> usize {
        assert!(
            self.lock.load(Ordering::Relaxed) >= LOCKED,
            "versions are unlinked under the record's lock"
        );
        let Some(mut newer) = self.newest(guard) else {
            return 0;
        };
        let mut newer_position = newer.position();
        let mut freed = 0;
        while let Some(v) = newer.older(guard) {
            let at = v.position();
            if keep(at, newer_position) {
                newer = v;
            } else {
                gone(v);
                freed += v.bytes();
                newer
                    .next
                    .store(v.next.load(Ordering::Acquire), Ordering::Release);
                let p = SendPtr(NonNull::from(v));
                // SAFETY: unlinked, so only guards taken before now can reach it, and the free waits for those.
                unsafe { guard.defer_unchecked(move || Version::free(p.into_inner())) };
            }
            newer_position = at;
        }
        freed
    }

    /// Unlinks the newest versions above `above` (an epoch that aborts, a diverged tail). The caller holds the lock.
    pub(crate) fn rollback(&self, above: Position, guard: &Guard, mut gone: impl FnMut(&Version)) {
        assert!(
            self.lock.load(Ordering::Relaxed) >= LOCKED,
            "versions are unlinked under the record's lock"
        );
        while let Some(v) = self.newest(guard).filter(|v| v.position() > above) {
            gone(v);
            self.head
                .store(v.next.load(Ordering::Acquire), Ordering::Release);
            let p = SendPtr(NonNull::from(v));
            // SAFETY: as in `trim`.
            unsafe { guard.defer_unchecked(move || Version::free(p.into_inner())) };
        }
    }

    /// True for the first who asks: the record is to be put in the reclaimer's queue.
    pub(crate) fn enqueue(&self) -> bool {
        self.flags.fetch_or(QUEUED, Ordering::AcqRel) & QUEUED == 0
    }

    pub(crate) fn dequeued(&self) {
        self.flags.fetch_and(!QUEUED, Ordering::AcqRel);
    }
}

struct SendPtr(NonNull<Version>);

// SAFETY: the pointer is to a version that is unlinked; the closure that takes it is its only owner.
unsafe impl Send for SendPtr {}

impl SendPtr {
    fn into_inner(self) -> NonNull<Version> {
        self.0
    }
}

/// An entry of a secondary index: index key, then the row's primary key, and the record itself.
#[repr(C)]
pub struct IndexEntry {
    record: NonNull<Record>,
    len: u32,
    primary_at: u32,
    // `len` bytes follow: the index columns, and from `primary_at` the primary key.
}

// SAFETY: the record outlives its entries (the reclaimer removes a record's entries before the record, and both go through the
// epoch), and it is shared between threads like any other.
unsafe impl Send for IndexEntry {}
// SAFETY: as above; an entry is immutable.
unsafe impl Sync for IndexEntry {}

// SAFETY: the key stands behind the header from `alloc` on and never changes.
unsafe impl Entry for IndexEntry {
    #[inline]
    fn key(&self) -> &[u8] {
        // SAFETY: `alloc` put `len` initialised bytes behind the header.
        unsafe {
            std::slice::from_raw_parts(ptr::from_ref(self).add(1).cast::<u8>(), self.len as usize)
        }
    }

    unsafe fn free(entry: NonNull<IndexEntry>) {
        // SAFETY: the caller has the last pointer; `alloc` made it with this layout.
        unsafe {
            let layout = IndexEntry::layout(entry.as_ref().len as usize);
            dealloc(entry.as_ptr().cast(), layout);
        }
    }
}

impl IndexEntry {
    fn layout(key: usize) -> Layout {
        let bytes = size_of::<IndexEntry>() + key;
        Layout::from_size_align(bytes, align_of::<IndexEntry>())
            .expect("a key is far smaller than the address space")
    }

    /// An entry for `record` under `key`, whose last bytes are the record's key.
    pub(crate) fn alloc(key: &[u8], record: &Record) -> NonNull<IndexEntry> {
        assert!(
            key.ends_with(record.key()),
            "an index key ends with the primary key"
        );
        let layout = IndexEntry::layout(key.len());
        // SAFETY: as in `Version::alloc`.
        unsafe {
            let Some(p) = NonNull::new(alloc(layout).cast::<IndexEntry>()) else {
                handle_alloc_error(layout)
            };
            p.write(IndexEntry {
                record: NonNull::from(record),
                len: key.len() as u32,
                primary_at: (key.len() - record.key().len()) as u32,
            });
            ptr::copy_nonoverlapping(key.as_ptr(), p.add(1).cast::<u8>().as_ptr(), key.len());
            p
        }
    }

    /// Bytes of memory that an entry with this key takes.
    pub(crate) fn bytes(key: usize) -> usize {
        size_of::<IndexEntry>() + key
    }

    /// The record that had this key when the entry was made; its visible version may have another.
    #[inline]
    pub fn record<'g>(&self, _guard: &'g Guard) -> &'g Record {
        // SAFETY: an entry found under the guard was linked then; its record is unlinked after it and freed through the epoch.
        unsafe { self.record.as_ref() }
    }

    /// The bytes of the index columns.
    pub fn columns(&self) -> &[u8] {
        &Entry::key(self)[..self.primary_at as usize]
    }
}

#[cfg(all(test, not(feature = "shuttle")))] // shuttle's primitives work inside its scheduler only
mod tests {
    use super::*;
    use crossbeam_epoch::pin;

    fn p(n: u32) -> Position {
        Position::new(1, n)
    }

    fn with_record(f: impl FnOnce(&Record)) {
        let r = Record::alloc(b"key");
        // SAFETY: allocated above, freed below, in between used by this thread alone.
        unsafe {
            f(r.as_ref());
            Record::free(r);
        }
    }

    fn push(r: &Record, at: Position, row: Option<&[u8]>) {
        r.try_lock().unwrap();
        r.push(NewVersion::new(row), at, 0);
        r.unlock();
    }

    #[test]
    fn a_snapshot_sees_the_newest_version_at_or_below_it() {
        with_record(|r| {
            push(r, p(2), Some(b"two"));
            push(r, p(4), None);
            push(r, p(6), Some(b"six"));
            let g = pin();
            let see = |n| r.row_at(p(n), &g);
            assert_eq!(
                (see(1), see(2), see(3)),
                (None, Some(&b"two"[..]), Some(&b"two"[..]))
            );
            assert_eq!((see(4), see(5), see(6)), (None, None, Some(&b"six"[..])));
            assert!(
                r.at(p(5), &g)
                    .is_some_and(|v| v.row().is_none() && v.position() == p(4))
            );
        });
    }

    #[test]
    fn trimming_keeps_what_snapshots_need_and_rollback_cuts_the_top() {
        with_record(|r| {
            for n in 1..=6 {
                push(r, p(n), Some(&[n as u8]));
            }
            let g = pin();
            let live = [p(2), p(5)];
            r.try_lock().unwrap();
            let keep = |at: Position, newer: Position| live.iter().any(|&s| at <= s && s < newer);
            r.trim(&g, keep, |_| {});
            r.unlock();
            let mut left = vec![];
            let mut v = r.newest(&g);
            while let Some(x) = v {
                left.push(x.position());
                v = x.older(&g);
            }
            assert_eq!(left, [p(6), p(5), p(2)]);
            r.try_lock().unwrap();
            r.rollback(p(4), &g, |_| {});
            r.unlock();
            assert_eq!(r.newest(&g).map(Version::position), Some(p(2)));
        });
    }
}
