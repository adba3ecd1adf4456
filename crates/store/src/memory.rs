//! What the rows take: a counter spread over cache lines, and the limit that refuses writes before the machine does.
//!
//! Counted are records, versions, index entries (with the allocator's rounding to 16 bytes), what running transactions have changed and
//! not committed, and, on demand, tree nodes. A row is refused when the sum stands above the limit.
//!
//! Rows and entries that go one by one are taken off one by one. Those of a table or an index that goes whole are taken off by the
//! tree that held them ([`Debt`]): when nobody may read it any more, and once more, for the difference, when it is dropped. Until the
//! tree is freed they are still in memory, for as long as a plan or a statement has it: [`Memory::going`] tells how much that is.

use base::{Error, Result, SqlState};
use env::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use parking_lot::RwLock;
use std::sync::atomic::{AtomicIsize, AtomicUsize};
use std::sync::{Arc, OnceLock, Weak};

const SHARDS: usize = 16;

/// Bytes that are not worth giving back.
const SMALL: u64 = 64 << 20;

#[repr(align(64))]
#[derive(Default)]
struct Shard(AtomicI64);

#[derive(Default)]
struct Shards {
    each: [Shard; SHARDS],
    /// What trees hold that counts no more.
    going: AtomicI64,
}

impl Shards {
    fn used(&self) -> u64 {
        let each = self.each.iter().map(|s| s.0.load(Ordering::Relaxed));
        each.sum::<i64>().max(0) as u64
    }
}

/// One limit for the rows of several stores of a process.
pub struct Budget {
    limit: u64,
    stores: RwLock<Vec<Weak<Shards>>>,
}

impl Budget {
    /// All stores together may take this many bytes.
    pub fn new(limit: u64) -> Budget {
        Budget {
            limit,
            stores: RwLock::default(),
        }
    }

    /// Bytes that the rows of all stores take.
    pub fn used(&self) -> u64 {
        let stores = self.stores.read();
        let there = stores.iter().filter_map(Weak::upgrade);
        there.map(|s| s.used()).sum()
    }
}

/// Bytes in use and their limit.
pub struct Memory {
    shards: Arc<Shards>,
    limit: AtomicU64,
    /// The limit is one for several stores.
    budget: OnceLock<Arc<Budget>>,
    /// The most that was in use since pages were given back.
    peak: AtomicU64,
}

impl Default for Memory {
    fn default() -> Self {
        Memory {
            shards: Arc::default(),
            limit: AtomicU64::new(u64::MAX),
            budget: OnceLock::new(),
            peak: AtomicU64::new(0),
        }
    }
}

fn shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: usize = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % SHARDS;
    }
    MINE.with(|m| *m)
}

#[inline]
fn add(shards: &Shards, bytes: isize) {
    base::memory::are_rows(bytes);
    count(shards, bytes);
}

#[inline]
fn count(shards: &Shards, bytes: isize) {
    shards.each[shard()]
        .0
        .fetch_add(bytes as i64, Ordering::Relaxed);
}

impl Memory {
    /// Counts bytes taken (positive) or given back (negative).
    #[inline]
    pub fn add(&self, bytes: isize) {
        add(&self.shards, bytes);
    }

    /// The same for changes that are not committed, which run apart from their statement's account.
    pub fn add_uncommitted(&self, bytes: isize) {
        count(&self.shards, bytes);
    }

    /// Bytes of tables and indexes that are gone and not freed yet. They count for no limit.
    pub fn going(&self) -> u64 {
        self.shards.going.load(Ordering::Relaxed).max(0) as u64
    }

    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.shards.used()
    }

    /// To be called every few milliseconds: [`Memory::has_shrunk`] knows of what was in use at these times.
    pub fn note_peak(&self) {
        self.peak.fetch_max(self.used(), Ordering::Relaxed);
    }

    /// Whether less than half is in use of what was since the last time that this was true; small change does not count.
    pub fn has_shrunk(&self) -> bool {
        let used = self.used();
        let peak = self.peak.fetch_max(used, Ordering::Relaxed);
        let shrunk = peak > SMALL && used < peak / 2;
        if shrunk {
            self.peak.store(used, Ordering::Relaxed);
        }
        shrunk
    }

    /// The limit in bytes; `u64::MAX` for none. Of several stores together, where they share one.
    pub fn limit(&self) -> u64 {
        match self.budget.get() {
            Some(b) => b.limit,
            None => self.limit.load(Ordering::Relaxed),
        }
    }

    /// From now on the limit is one for all stores of this budget. Once for each store.
    pub fn share(&self, budget: Arc<Budget>) {
        let mut stores = budget.stores.write();
        stores.retain(|s| s.strong_count() > 0);
        stores.push(Arc::downgrade(&self.shards));
        drop(stores);
        assert!(
            self.budget.set(budget).is_ok(),
            "a store has one budget for good"
        );
    }

    /// Sets the limit (`max_memory`).
    pub fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    /// 53200 when a write that needs more memory must be refused.
    #[inline]
    pub fn check(&self) -> Result<()> {
        let limit = self.limit();
        let used = match self.budget.get() {
            _ if limit == u64::MAX => 0,
            Some(b) => b.used(),
            None => self.used(),
        };
        if used <= limit {
            return Ok(());
        }
        Err(
            Error::new(SqlState::OUT_OF_MEMORY, "out of memory for rows")
                .detail(format!("Rows take {used} bytes; max_memory is {limit}."))
                .hint("Delete rows or raise max_memory."),
        )
    }
}

/// What a tree's entries take of the memory that they were counted in.
#[derive(Default)]
pub(crate) struct Debt {
    shards: OnceLock<Weak<Shards>>,
    paid: AtomicIsize,
    /// What of `Shards::going` is this tree's, its nodes included.
    going: AtomicIsize,
}

impl Debt {
    /// Entries come that are counted there.
    #[inline]
    pub fn to(&self, memory: &Memory) {
        if self.shards.get().is_none() {
            _ = self.shards.set(Arc::downgrade(&memory.shards));
        }
    }

    /// Takes off what the tree holds, but for what was taken off before. Entries that come or go beside it are counted as ever: the
    /// next call, by the last owner at the latest, makes up for them. Nothing is asked when the whole memory is gone. `holds`: bytes of
    /// entries, and of nodes.
    pub fn pay(&self, holds: impl FnOnce() -> (isize, usize)) {
        if let Some(shards) = self.shards.get().and_then(Weak::upgrade) {
            let (holds, nodes) = holds();
            // First here, so that at no time they seem to be in neither.
            let going = holds + nodes as isize;
            let more = going - self.going.swap(going, Ordering::Relaxed);
            shards.going.fetch_add(more as i64, Ordering::Relaxed);
            // Nothing is freed here, so no account has them back.
            count(&shards, self.paid.swap(holds, Ordering::Relaxed) - holds);
        }
    }
}

/// A debt stands behind its tree, which has put off the end of its nodes by now: this comes after that.
impl Drop for Debt {
    fn drop(&mut self) {
        let going = *self.going.get_mut() as i64;
        if let Some(shards) = self.shards.take().filter(|_| going != 0) {
            crossbeam_epoch::pin().defer(move || {
                if let Some(shards) = shards.upgrade() {
                    shards.going.fetch_sub(going, Ordering::Relaxed);
                }
            });
        }
    }
}

/// What the allocator really takes for this many bytes, near enough.
pub(crate) fn rounded(bytes: usize) -> isize {
    ((bytes + 8).next_multiple_of(16)) as isize
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn a_peak_that_was_noted_is_remembered() {
        let m = Memory::default();
        let most = 4 * SMALL as isize;
        m.add(most);
        m.note_peak();
        m.add(-most + 1);
        assert!(m.has_shrunk());
        assert!(!m.has_shrunk());
    }

    #[test]
    fn a_budget_is_one_limit_for_all_its_stores() {
        let budget = Arc::new(Budget::new(1000));
        let [a, b] = [0, 1].map(|_| Memory::default());
        for m in [&a, &b] {
            m.share(budget.clone());
        }
        a.add(600);
        assert!(a.check().is_ok() && b.check().is_ok());
        b.add(500);
        assert_eq!((budget.used(), a.used()), (1100, 600));
        for m in [&a, &b] {
            let refused = m.check().expect_err("both are refused");
            assert_eq!(refused.code(), SqlState::OUT_OF_MEMORY);
        }
        drop(a);
        assert!(b.check().is_ok(), "the memory of a store that is gone");
    }

    #[test]
    fn a_table_that_is_gone_is_known_until_it_is_freed() {
        let m = Memory::default();
        let table = crate::Storage::new(1);
        for i in 0..1000u32 {
            table.find_or_create(&i.to_be_bytes(), &m, &crossbeam_epoch::pin());
        }
        let rows = m.used();
        assert_eq!(m.going(), 0);
        let before = base::memory::mine();
        table.pay_back();
        assert_eq!(m.used(), 0);
        assert!(m.going() > rows, "its nodes are there, too");
        assert_eq!(base::memory::mine(), before, "nothing was taken or freed");
        drop(table);
        // Other tests of this process may be in the way for a moment.
        for _ in 0..10_000_000 {
            if m.going() == 0 {
                break;
            }
            crossbeam_epoch::pin().flush();
        }
        assert_eq!(m.going(), 0);
    }
}
