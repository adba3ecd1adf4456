//! Something moved: a counter, and the tasks that wait for it. Threads raise it, tasks await it.

use parking_lot::Mutex;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, Waker};

/// See the head of the file.
#[derive(Default)]
pub struct Notice {
    version: AtomicU64,
    wakers: Mutex<Vec<Waker>>,
}

impl Notice {
    /// How often something moved so far.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::SeqCst)
    }

    /// Something moved.
    pub fn moved(&self) {
        self.version.fetch_add(1, Ordering::SeqCst);
        let wakers = std::mem::take(&mut *self.wakers.lock());
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Ready when something has moved since the count `seen`; the count now.
    pub async fn since(&self, seen: u64) -> u64 {
        poll_fn(|cx| {
            if self.version() != seen {
                return Poll::Ready(self.version());
            }
            let mut wakers = self.wakers.lock();
            wakers.retain(|w| !w.will_wake(cx.waker()));
            wakers.push(cx.waker().clone());
            drop(wakers);
            // Moved between the first look and the entry: nobody would wake us.
            match self.version() {
                v if v != seen => Poll::Ready(v),
                _ => Poll::Pending,
            }
        })
        .await
    }
}
