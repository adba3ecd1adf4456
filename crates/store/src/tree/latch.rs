//! The version lock of a node.
//!
//! One word: bit 0 *locked*, bit 1 *obsolete*, the rest a counter that every change moves on.
//!
//! ```text
//!  reader                              writer
//!  v = read()      wait while locked   w = upgrade(v)   CAS v -> v|LOCKED, only if nothing changed since v
//!  ... relaxed loads ...               fence(Release)
//!  check(v)        fence(Acquire),     ... relaxed and release stores ...
//!                  word still v?       drop(w)          word = v + STEP (Release)
//! ```
//!
//! A reader never writes the word, so readers of one node share its cache line. Why `check` is enough: if one of the
//! reader's loads saw a value that a writer stored, then the writer's release fence happened before the reader's acquire
//! fence, so the reader's last load sees the word locked or later, never `v`. And if `v` was read with acquire after the
//! previous writer's release, all that this writer stored is seen.
//!
//! Locks are only ever taken by `upgrade`, which never waits. Thus the order in which they are taken cannot deadlock: who
//! fails drops everything and starts again. A dropped `WriteGuard` unlocks, so a panic in a caller's closure leaves no lock.

use env::sync::atomic::{AtomicU64, Ordering, fence};
use env::sync::{hint, thread};

const LOCKED: u64 = 1;
const OBSOLETE: u64 = 2;
const STEP: u64 = 4;

/// What the word was when a read began; neither locked nor obsolete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Version(u64);

/// The node changed underneath: whatever was read from it is void, begin again.
#[derive(Debug)]
pub(super) struct Restart;

pub(super) type Attempt<T> = Result<T, Restart>;

pub(super) struct Latch(AtomicU64);

impl Latch {
    pub fn new() -> Self {
        Latch(AtomicU64::new(0))
    }

    /// Begins an optimistic read. Waits while a writer is inside; fails if the node has left the tree.
    #[inline]
    pub fn read(&self) -> Attempt<Version> {
        let word = self.0.load(Ordering::Acquire);
        if word & (LOCKED | OBSOLETE) == 0 {
            Ok(Version(word))
        } else {
            self.read_slow()
        }
    }

    #[cold]
    fn read_slow(&self) -> Attempt<Version> {
        let mut backoff = Backoff::default();
        loop {
            let word = self.0.load(Ordering::Acquire);
            if word & OBSOLETE != 0 {
                return Err(Restart);
            }
            if word & LOCKED == 0 {
                return Ok(Version(word));
            }
            backoff.wait();
        }
    }

    /// Ends an optimistic read: everything loaded since `version` was read belongs together.
    #[inline]
    pub fn check(&self, version: Version) -> Attempt<()> {
        fence(Ordering::Acquire);
        if self.0.load(Ordering::Relaxed) == version.0 {
            Ok(())
        } else {
            Err(Restart)
        }
    }

    /// Turns an optimistic read into a lock, if nothing has changed since. Never waits.
    #[inline]
    pub fn upgrade(&self, version: Version) -> Attempt<WriteGuard<'_>> {
        match self.0.compare_exchange(
            version.0,
            version.0 | LOCKED,
            Ordering::Acquire,
            Ordering::Relaxed,
        ) {
            Ok(_) => {
                fence(Ordering::Release);
                Ok(WriteGuard {
                    latch: self,
                    on_drop: version.0 + STEP,
                })
            }
            Err(_) => Err(Restart),
        }
    }
}

/// The lock of one node; unlocks, and voids concurrent reads, when dropped.
pub(super) struct WriteGuard<'a> {
    latch: &'a Latch,
    on_drop: u64,
}

impl WriteGuard<'_> {
    /// Unlocks a node that was not changed: concurrent reads stay good.
    #[inline]
    pub fn release_unchanged(mut self) {
        self.on_drop -= STEP;
    }

    /// Unlocks and takes the node out of use for ever.
    pub fn retire(mut self) {
        self.on_drop |= OBSOLETE;
    }
}

impl Drop for WriteGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.latch.0.store(self.on_drop, Ordering::Release);
    }
}

/// How a loop that begins again waits: a few spins, then it lets others run, for the holder may be off the CPU.
#[derive(Default)]
pub(super) struct Backoff(u32);

impl Backoff {
    pub fn wait(&mut self) {
        self.0 += 1;
        if self.0 < 6 && !cfg!(feature = "shuttle") {
            for _ in 0..1u32 << self.0 {
                hint::spin_loop();
            }
        } else {
            thread::yield_now();
        }
    }
}
