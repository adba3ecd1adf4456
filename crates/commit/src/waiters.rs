//! Who waits for a position to be published.

use base::{CommitWait, Position, Watermarks};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Wakers by the position that they wait for.
#[derive(Default)]
pub struct Waiters {
    waiting: Mutex<(u64, BTreeMap<(Position, u64), Waker>)>,
}

impl Waiters {
    /// Wakes everybody who waits for `published` or less; who waits for *decided* and was woken too early waits again.
    pub fn wake(&self, published: Position) {
        let ready = {
            let mut w = self.waiting.lock();
            if w.1.first_key_value().is_none_or(|(k, _)| k.0 > published) {
                return;
            }
            let later = w.1.split_off(&(published.next(), 0));
            std::mem::replace(&mut w.1, later)
        };
        ready.into_values().for_each(Waker::wake);
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.lock().1.len()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Ready when a held reply may leave.
pub struct PublishedWait {
    held: CommitWait,
    marks: Arc<Watermarks>,
    waiters: Arc<Waiters>,
    key: Option<(Position, u64)>,
}

impl PublishedWait {
    pub fn new(held: CommitWait, marks: Arc<Watermarks>, waiters: Arc<Waiters>) -> PublishedWait {
        PublishedWait {
            held,
            marks,
            waiters,
            key: None,
        }
    }
}

impl Future for PublishedWait {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.held.is_released(&self.marks) {
            return Poll::Ready(());
        }
        {
            let mut w = self.waiters.waiting.lock();
            let key = self.key.unwrap_or((self.held.position(), w.0 + 1));
            w.0 = w.0.max(key.1);
            w.1.insert(key, cx.waker().clone());
            drop(w);
            self.key = Some(key);
        }
        // Published between the first look and the entry: nobody would wake us.
        if self.held.is_released(&self.marks) {
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

impl Drop for PublishedWait {
    fn drop(&mut self) {
        if let Some(k) = self.key {
            self.waiters.waiting.lock().1.remove(&k);
        }
    }
}
