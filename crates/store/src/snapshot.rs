//! Live snapshots: who reads at which position, so that nothing they need is reclaimed.
//!
//! Each live snapshot has a slot that holds its position. Taking one writes a slot and nothing else; the reclaimer reads
//! all slots. The race between them is settled by `reclaiming`, the highest position that the reclaimer has begun to
//! treat as "only live snapshots and this one on": the reclaimer raises it *before* it reads the slots, a taker reads it *after* writing
//! its slot. So either the reclaimer sees the slot, or the taker sees a higher `reclaiming` and takes a newer position.
//! Both sides are sequentially consistent.
//!
//! A snapshot past its age limit is *expired*: the reclaimer overwrites its slot, and the owner finds out at its next read.

use base::Position;
use env::sync::atomic::{AtomicU64, Ordering};
use env::sync::{Mutex, RwLock};
use std::cell::Cell;
use std::sync::Arc;

const EMPTY: u64 = u64::MAX;
const EXPIRED: u64 = u64::MAX - 1;

/// The time in a slot whose owner has not said when it was taken.
const NEVER: u64 = u64::MAX;

#[cfg(not(feature = "shuttle"))]
const CHUNK: usize = 256;
#[cfg(feature = "shuttle")]
const CHUNK: usize = 2;

/// A slot alone on its cache line, with the time it was taken (milliseconds of the reclaimer's clock).
#[repr(align(64))]
struct Slot {
    position: AtomicU64,
    taken_at: AtomicU64,
}

type Chunk = Arc<[Slot]>;

/// All slots.
pub struct Snapshots {
    chunks: RwLock<Vec<Chunk>>,
    reclaiming: AtomicU64,
    /// The reclaimer's clock, in milliseconds: written by it, read when a snapshot is taken.
    now: AtomicU64,
    grow: Mutex<()>,
}

thread_local! {
    /// Where this thread found a free slot last time.
    static HINT: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// A registered snapshot; gives its slot back when dropped.
pub struct Snapshot {
    chunk: Chunk,
    index: usize,
    position: Position,
}

impl Default for Snapshots {
    fn default() -> Self {
        Snapshots {
            chunks: RwLock::new(vec![chunk()]),
            reclaiming: AtomicU64::new(0),
            now: AtomicU64::new(0),
            grow: Mutex::new(()),
        }
    }
}

fn chunk() -> Chunk {
    (0..CHUNK)
        .map(|_| Slot {
            position: AtomicU64::new(EMPTY),
            taken_at: AtomicU64::new(NEVER),
        })
        .collect()
}

impl Snapshots {
    /// Registers a snapshot at what `newest` says, which is asked again if the reclaimer was faster.
    pub fn take(&self, newest: impl Fn() -> Position) -> Snapshot {
        let mut at = newest();
        let (chunk, index) = self.claim(at);
        let slot = &chunk[index];
        slot.taken_at
            .store(self.now.load(Ordering::Relaxed), Ordering::Relaxed);
        while self.reclaiming.load(Ordering::SeqCst) > at.as_u64() {
            at = newest();
            slot.position.store(at.as_u64(), Ordering::SeqCst);
        }
        Snapshot {
            chunk,
            index,
            position: at,
        }
    }

    fn claim(&self, at: Position) -> (Chunk, usize) {
        let start = HINT.get();
        loop {
            let chunks = self.chunks.read();
            let total = chunks.len() * CHUNK;
            let start = if start < total {
                start
            } else {
                thread_number() % total
            };
            for i in 0..total {
                let n = (start + i) % total;
                let slot = &chunks[n / CHUNK][n % CHUNK];
                if slot.position.load(Ordering::Relaxed) == EMPTY
                    && slot
                        .position
                        .compare_exchange(EMPTY, at.as_u64(), Ordering::SeqCst, Ordering::Relaxed)
                        .is_ok()
                {
                    HINT.set(n);
                    return (chunks[n / CHUNK].clone(), n % CHUNK);
                }
            }
            drop(chunks);
            let _one = self.grow.lock();
            if self.chunks.read().len() * CHUNK == total {
                self.chunks.write().push(chunk());
            }
        }
    }

    /// The positions that live snapshots stand at, ascending, each once, and `newest` as the last: every snapshot taken from now on
    /// stands there or above.
    pub fn live(&self, newest: Position) -> Vec<Position> {
        self.reclaiming.fetch_max(newest.as_u64(), Ordering::SeqCst);
        let chunks = self.chunks.read();
        let slots = chunks.iter().flat_map(|c| c.iter());
        let mut all: Vec<Position> = slots
            .map(|s| s.position.load(Ordering::SeqCst))
            .filter(|&p| p < EXPIRED && p < newest.as_u64())
            .map(Position::from_u64)
            .collect();
        all.push(newest);
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Sets the clock and expires snapshots older than `limit` milliseconds. How many were.
    pub fn tick(&self, now: u64, limit: u64) -> usize {
        self.now.store(now, Ordering::Relaxed);
        let chunks = self.chunks.read();
        let mut expired = 0;
        for slot in chunks.iter().flat_map(|c| c.iter()) {
            let p = slot.position.load(Ordering::Relaxed);
            let age = now.saturating_sub(slot.taken_at.load(Ordering::Relaxed));
            if p < EXPIRED && age > limit {
                let won =
                    slot.position
                        .compare_exchange(p, EXPIRED, Ordering::SeqCst, Ordering::Relaxed);
                expired += usize::from(won.is_ok());
            }
        }
        expired
    }
}

fn thread_number() -> usize {
    static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    thread_local! {
        static MINE: usize = NEXT.fetch_add(16, std::sync::atomic::Ordering::Relaxed);
    }
    MINE.with(|m| *m)
}

impl Snapshot {
    /// Where it stands.
    pub fn position(&self) -> Position {
        self.position
    }

    /// Whether it went over the age limit: what it needs may be gone.
    #[inline]
    pub fn is_expired(&self) -> bool {
        self.slot().position.load(Ordering::SeqCst) == EXPIRED
    }

    fn slot(&self) -> &Slot {
        &self.chunk[self.index]
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.slot().taken_at.store(NEVER, Ordering::Relaxed);
        self.slot().position.store(EMPTY, Ordering::SeqCst);
    }
}

#[cfg(all(test, not(feature = "shuttle")))] // shuttle's primitives work inside its scheduler only
mod tests {
    use super::*;

    fn p(n: u32) -> Position {
        Position::new(1, n)
    }

    #[test]
    fn live_snapshots_are_listed_and_forgotten() {
        let s = Snapshots::default();
        let a = s.take(|| p(3));
        let b = s.take(|| p(5));
        assert_eq!(s.live(p(9)), [p(3), p(5), p(9)]);
        drop(a);
        assert_eq!(s.live(p(9)), [p(5), p(9)]);
        assert_eq!(b.position(), p(5));
    }

    #[test]
    fn who_comes_after_the_reclaimer_takes_a_newer_position() {
        let s = Snapshots::default();
        s.live(p(7));
        let calls = Cell::new(0);
        let a = s.take(|| {
            calls.set(calls.get() + 1);
            if calls.get() == 1 { p(6) } else { p(8) }
        });
        assert_eq!(a.position(), p(8));
    }

    #[test]
    fn old_snapshots_expire() {
        let s = Snapshots::default();
        let a = s.take(|| p(3));
        assert_eq!(s.tick(100, 50), 1);
        assert!(a.is_expired());
        assert_eq!(s.live(p(9)), [p(9)]);
        drop(a);
        let b = s.take(|| p(9));
        assert_eq!(s.tick(140, 50), 0);
        assert!(!b.is_expired());
    }

    #[test]
    fn more_snapshots_than_slots() {
        let s = Snapshots::default();
        let all: Vec<_> = (0..3 * CHUNK as u32).map(|n| s.take(|| p(n))).collect();
        assert_eq!(s.live(p(1 << 20)).len(), all.len() + 1);
    }
}
