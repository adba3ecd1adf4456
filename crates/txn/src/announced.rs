//! What running transactions show each other of their reads and of the changes that they are about to make (`contention` says why).
//!
//! Left out on purpose: reads by secondary index, and all beyond the first [`SHOWN`].

use base::{KeyRange, Position};
use parking_lot::Mutex;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use store::Guard;

use crate::locks::TxnId;
use crate::range::changed_columns;
use crate::writes::{Pending, TableWrites};

/// Reads that a transaction shows at most, and changes.
pub(crate) const SHOWN: usize = 1024;

/// What a transaction has read and is about to change, for others to look at.
pub(crate) struct Announced {
    pub(crate) id: TxnId,
    pub(crate) reads: Mutex<Vec<(u32, Read)>>,
    pub(crate) intents: Mutex<Vec<Intent>>,
    /// Where it committed; 0: it has not.
    pub(crate) committed: AtomicU64,
    /// It is at its commit, and may wait there for others to end.
    pub(crate) complete: AtomicBool,
    /// Who is at its commit, changes what this one has read, and does not wait for it; 0: nobody.
    pub(crate) overtaken: AtomicU64,
}

impl Announced {
    pub(crate) fn show(&self, storage: u32, read: Read) {
        let mut reads = self.reads.lock();
        if reads.len() < SHOWN {
            reads.push((storage, read));
        }
    }

    pub(crate) fn shown(&self) -> usize {
        self.reads.lock().len()
    }

    pub(crate) fn truncate(&self, shown: usize) {
        self.reads.lock().truncate(shown);
    }

    /// Whether one of the two loses in any case: each has read what the other changes.
    pub(crate) fn is_crossed_by(&self, other: &Announced, changes: &[Intent]) -> bool {
        if !meet(&other.reads.lock(), changes) {
            return false;
        }
        let theirs = other.intents.lock();
        !theirs.is_empty() && meet(&self.reads.lock(), &theirs)
    }

    pub(crate) fn committed_at(&self, p: Position) {
        self.committed.store(p.as_u64(), Ordering::Release);
    }
}

/// A change of a row that is not committed.
#[derive(Clone)]
pub(crate) struct Intent {
    pub(crate) storage: u32,
    pub(crate) key: Box<[u8]>,
    /// What changes of the row; none: it comes or goes.
    pub(crate) columns: Option<u64>,
}

/// A read of a storage by primary key.
pub(crate) enum Read {
    /// With the columns that were looked at.
    Key(Box<[u8]>, u64),
    Range(KeyRange, u64),
}

impl Read {
    pub(crate) fn covers(&self, key: &[u8]) -> bool {
        match self {
            Read::Key(k, _) => **k == *key,
            Read::Range(r, _) => {
                let (lo, hi) = r.bounds();
                let above = match lo {
                    Bound::Included(l) => key >= l,
                    Bound::Excluded(l) => key > l,
                    Bound::Unbounded => true,
                };
                let below = match hi {
                    Bound::Included(h) => key <= h,
                    Bound::Excluded(h) => key < h,
                    Bound::Unbounded => true,
                };
                above && below
            }
        }
    }

    /// Whether the change is one of what was looked at.
    pub(crate) fn meets(&self, i: &Intent) -> bool {
        let (Read::Key(_, looked) | Read::Range(_, looked)) = self;
        let looked_at = i.columns.is_none_or(|changed| looked & changed != 0);
        looked_at && self.covers(&i.key)
    }
}

/// Whether some of these reads meet some of these changes.
pub(crate) fn meet(reads: &[(u32, Read)], intents: &[Intent]) -> bool {
    let hit = |s: u32, r: &Read| intents.iter().any(|i| i.storage == s && r.meets(i));
    reads.iter().any(|(s, r)| hit(*s, r))
}

impl Intent {
    pub(crate) fn of(t: &TableWrites, key: &[u8], change: &Pending, guard: &Guard) -> Intent {
        let storage = &t.table.storage;
        let record = storage.primary.get(key, guard);
        let old = record.and_then(|r| r.row_at(change.saw, guard));
        let both = old.zip(change.row.as_deref());
        Intent {
            storage: storage.id,
            key: key.into(),
            columns: both.map(|(old, new)| changed_columns(&t.table, old, new)),
        }
    }
}

/// The footprints of the contended transactions that run.
#[derive(Default)]
pub(crate) struct Readers {
    pub(crate) all: Mutex<Vec<Arc<Announced>>>,
    pub(crate) count: AtomicUsize,
}

impl Readers {
    pub(crate) fn add(&self, f: Arc<Announced>) {
        self.all.lock().push(f);
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn has(&self, id: TxnId) -> bool {
        self.all.lock().iter().any(|f| f.id == id)
    }

    pub(crate) fn remove(&self, id: TxnId) {
        self.all.lock().retain(|f| f.id != id);
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}
