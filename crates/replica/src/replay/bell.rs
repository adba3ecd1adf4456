//! A bell: threads that found nothing to do sleep until something happened since they looked.
//!
//! Who waits reads [`Bell::seen`] *before* it looks for work; who makes work rings *after*. So a ring between the look and the sleep is
//! not lost: the count has moved. A ring costs two atomic operations while nobody sleeps.

use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

#[derive(Default)]
pub(crate) struct Bell {
    rings: AtomicU64,
    sleepers: AtomicUsize,
    lock: Mutex<()>,
    wake: Condvar,
}

impl Bell {
    /// What to give to [`Bell::wait`].
    pub fn seen(&self) -> u64 {
        self.rings.load(Ordering::SeqCst)
    }

    pub fn ring(&self) {
        self.rings.fetch_add(1, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            let _held = self.lock.lock();
            self.wake.notify_all();
        }
    }

    /// The same for one of the threads that sleep, which wakes the others if it finds more than it can do itself.
    pub fn ring_one(&self) {
        self.rings.fetch_add(1, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            let _held = self.lock.lock();
            self.wake.notify_one();
        }
    }

    /// Sleeps until it has rung since `seen`.
    pub fn wait(&self, seen: u64) {
        let mut held = self.lock.lock();
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        while self.rings.load(Ordering::SeqCst) == seen {
            self.wake.wait(&mut held);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}
