//! What transactions do for one another once races are lost.
//!
//! An optimistic transaction learns at its commit that what it read has changed, and by then it has done all its work. Where
//! that happens seldom, nothing is better. Where it happens often ([`TxnOptions::contended`], set by a session whose last
//! SERIALIZABLE transactions lost), two courtesies make fewer transactions lose. Neither decides anything: validation at commit
//! does, as ever, so each may be late, wrong or cut short, and is.
//!
//! - **Moves.** At the start of each statement the snapshot moves forward while everything read is unchanged (`Txn::refresh`), so
//!   that a row is read as it is now, and its time until commit is short. When something has changed, the first write says so at once.
//! - **Giving way.** Each shows what it has read, of ranges with the columns. A commit that would change some of it waits until the reader has ended,
//!   but not for long and never in a circle: readers end as the older of the two, instead of in vain.
//!
//! Readers are names in the table of locks, so that queues, wakers and the search for circles are those of rows.
//! The rule is that of a multi-version lock manager whose writers wait at commit only, with validation in place of its guarantees.

use base::{KeyRange, Position, Result};
use parking_lot::Mutex;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::commit::same_columns;
use crate::locks::{Attempt, LockMode, LockName, LockWait, TxnId};
use crate::txn::Txn;
use crate::writes::{Pending, TableWrites};
use store::{Expired, Guard, pin};

/// Space of the locks that stand for a running transaction; its number is the hash.
const READER_SPACE: u32 = u32::MAX;

/// Reads that a transaction shows at most.
const SHOWN: usize = 1024;

/// What a transaction has read, for others to look at.
pub(crate) struct Footprint {
    id: TxnId,
    reads: Mutex<Vec<(u32, Read)>>,
}

impl Footprint {
    fn show(&self, storage: u32, read: Read) {
        let mut reads = self.reads.lock();
        if reads.len() < SHOWN {
            reads.push((storage, read));
        }
    }
}

/// A read of a storage by primary key.
enum Read {
    Key(Box<[u8]>),
    /// With the columns that were looked at.
    Range(KeyRange, u64),
}

impl Read {
    fn covers(&self, key: &[u8]) -> bool {
        match self {
            Read::Key(k) => **k == *key,
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

    /// Whether this change of a row is one of what was looked at.
    fn is_hit(&self, t: &TableWrites, key: &[u8], change: &Pending, guard: &Guard) -> bool {
        let Read::Range(_, columns) = self else {
            return true;
        };
        let Some(new) = &change.row else { return true };
        let record = t.table.storage.primary.get(key, guard);
        let old = record.and_then(|r| r.row_at(change.saw, guard));
        old.is_none_or(|old| !same_columns(&t.table, *columns, old, new))
    }
}

/// The footprints of the contended transactions that run.
#[derive(Default)]
pub(crate) struct Readers {
    all: Mutex<Vec<Arc<Footprint>>>,
    count: AtomicUsize,
}

impl Readers {
    fn add(&self, f: Arc<Footprint>) {
        self.all.lock().push(f);
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn remove(&self, id: TxnId) {
        self.all.lock().retain(|f| f.id != id);
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Txn {
    /// Before a statement of a contended transaction: what it reads should be what is there now, and the time until commit short.
    /// Looking at everything again at each statement would be quadratic: it is done while it stays a small part of the reading.
    pub(crate) fn refresh(&mut self) -> Result<()> {
        if self.outdated || self.has_writes() {
            return Ok(());
        }
        let scanned: usize = self.ranges.iter().map(|r| r.rows).sum();
        let reads = self.view()?.kept() + self.absent.len() + scanned;
        if self.looked_again > 2 * reads + 256 {
            return Ok(());
        }
        self.looked_again += reads;
        let old = self.view()?.position();
        if self.shared.marks.installed.get() == old {
            return Ok(());
        }
        let before = self.catalog.clone();
        let to = self.take_snapshot();
        let guard = pin();
        let same = self.others_unchanged(old, to.position(), &guard);
        let view = self.view.as_mut().expect("checked above");
        if same
            && view
                .advance(to, &guard)
                .map_err(|Expired| Txn::snapshot_too_old())?
        {
            self.moves += 1;
            self.shared.stats.moved();
        } else {
            self.catalog = before;
            self.catalog_from = Position::MAX;
            self.outdated = true;
        }
        Ok(())
    }

    /// Before a write: 40001 when something read is known to have changed.
    pub(crate) fn check_outdated(&self) -> Result<()> {
        if !self.outdated {
            return Ok(());
        }
        let now = self.shared.marks.installed.get();
        self.validate_reads(self.view()?.position(), now.next(), &pin())
    }

    /// At the first statement of a contended transaction: what it reads is shown from now on.
    pub(crate) fn show_up(&mut self) {
        let me = LockName {
            space: READER_SPACE,
            hash: self.id,
        };
        self.shared
            .locks
            .acquire(self.id, me, LockMode::Update, false);
        self.locks.push(me);
        let footprint = Arc::new(Footprint {
            id: self.id,
            reads: Mutex::default(),
        });
        self.shared.readers.add(footprint.clone());
        self.footprint = Some(footprint);
    }

    pub(crate) fn shows_reads(&self) -> bool {
        self.footprint.is_some()
    }

    pub(crate) fn show_key(&self, storage: u32, key: &[u8]) {
        if let Some(f) = &self.footprint {
            f.show(storage, Read::Key(key.into()));
        }
    }

    pub(crate) fn show_range(&self, storage: u32, range: &KeyRange, columns: u64) {
        if let Some(f) = &self.footprint {
            f.show(storage, Read::Range(range.clone(), columns));
        }
    }

    /// Transactions that have read what this one is about to change, and run still.
    pub fn readers_in_the_way(&self) -> Vec<TxnId> {
        let readers = &self.shared.readers;
        let others = readers.count.load(Ordering::Relaxed) > usize::from(self.footprint.is_some());
        if !others || self.writes.is_empty() || !self.tracks_reads() {
            return vec![];
        }
        let all = readers.all.lock().clone();
        let guard = pin();
        let reads = |f: &&Arc<Footprint>| {
            f.id != self.id
                && f.reads.lock().iter().any(|(storage, read)| {
                    let own = self.writes.of(*storage);
                    let hit = |w: &TableWrites| {
                        let mut rows = w.rows.iter();
                        rows.any(|(k, p)| read.covers(k) && read.is_hit(w, k, p, &guard))
                    };
                    own.is_some_and(hit)
                })
        };
        all.iter().filter(reads).map(|f| f.id).collect()
    }

    /// A wait for the end of a running transaction; none when it has ended, or waits for this one.
    pub fn wait_for_end(&mut self, of: TxnId) -> Option<LockWait> {
        let name = LockName {
            space: READER_SPACE,
            hash: of,
        };
        match self
            .shared
            .locks
            .acquire(self.id, name, LockMode::KeyShare, true)
        {
            (Attempt::Wait(w), _) => {
                self.locks.push(name);
                Some(w)
            }
            (Attempt::Granted, new) => {
                if new {
                    self.shared.locks.release(self.id, name);
                }
                None
            }
            (Attempt::Deadlock, _) => None,
        }
    }
}
