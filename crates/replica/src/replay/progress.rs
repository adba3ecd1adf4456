//! What has been installed, counted as the policies need it, and the test "is this write safe".
//!
//! *Tickets* (table, page): per granule how many writes are installed; only the holder of the next ticket moves the count.
//! *Transactions* (KuaFu): a ring of marks, the number of the last finished transaction of those that share a place. The scheduler hands
//! out fewer transactions than the ring has places, so a mark is overwritten only by a number that proves the old one finished.

use env::sync::atomic::{AtomicU64, Ordering};

use super::Policy;
use super::scheduler::AND_BEFORE;

pub(crate) struct Progress {
    marks: Box<[AtomicU64]>,
    /// Transactions up to this number are finished, as far as anybody has looked.
    low: AtomicU64,
}

impl Progress {
    /// `slots`: granules, or more than the transactions in flight; a power of two.
    pub fn new(policy: Policy, slots: usize) -> Progress {
        let wanted = match policy {
            Policy::Table | Policy::Page | Policy::Transaction => slots,
            Policy::Serial | Policy::TransactionWorker | Policy::Row => 0,
        };
        Progress {
            marks: (0..wanted).map(|_| AtomicU64::new(0)).collect(),
            low: AtomicU64::new(0),
        }
    }

    /// Whether the write with this ticket of the granule is the next.
    pub fn is_due(&self, granule: usize, ticket: u64) -> bool {
        self.marks[granule].load(Ordering::Acquire) == ticket
    }

    /// The write with this ticket is installed.
    pub fn passed(&self, granule: usize, ticket: u64) {
        self.marks[granule].store(ticket + 1, Ordering::Release);
    }

    fn place(&self, number: u64) -> &AtomicU64 {
        &self.marks[number as usize & (self.marks.len() - 1)]
    }

    /// The transaction of this number has finished.
    pub fn finished(&self, number: u64) {
        self.place(number).store(number, Ordering::Release);
    }

    /// Whether the predecessor that a record is stamped with has finished.
    pub fn has_finished(&self, prev: u64) -> bool {
        let number = prev & !AND_BEFORE;
        if prev & AND_BEFORE == 0 {
            return self.place(number).load(Ordering::Acquire) >= number;
        }
        let mut low = self.low.load(Ordering::Acquire);
        while low < number && self.place(low + 1).load(Ordering::Acquire) > low {
            low += 1;
        }
        self.low.fetch_max(low, Ordering::AcqRel);
        low >= number
    }
}
