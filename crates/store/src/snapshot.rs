//! Live snapshots: who reads at which position, so that nothing they need is reclaimed.
//!
//! Each live snapshot has a slot that holds its position. Taking one writes a slot and nothing else; the reclaimer reads
//! all slots. The race between them is settled by `reclaiming`, the highest position that the reclaimer has begun to
//! treat as "only live snapshots and this one on": the reclaimer raises it *before* it reads the slots, a taker reads it *after* writing
//! its slot. So either the reclaimer sees the slot, or the taker sees a higher `reclaiming` and takes a newer position.
//! Both sides are sequentially consistent.
//!
//! Slots stand in chunks of growing size that are made when they are needed and never moved, so that taking a snapshot writes nothing
//! that threads share: each slot is counted for itself, and a thread comes back to the slot that it had.
//!
//! A snapshot past its age limit is *expired*: the reclaimer overwrites its slot, and the owner finds out at its next read.

use base::Position;
use env::sync::atomic::{AtomicU64, Ordering};
use std::cell::Cell;
use std::sync::{Arc, OnceLock};

const EMPTY: u64 = u64::MAX;
const EXPIRED: u64 = u64::MAX - 1;

/// The time in a slot whose owner has not said when it was taken.
const NEVER: u64 = u64::MAX;

/// Slots of the first chunk; each has twice as many as the one before.
#[cfg(not(feature = "shuttle"))]
const FIRST: usize = 256;
#[cfg(feature = "shuttle")]
const FIRST: usize = 2;
const CHUNKS: usize = 20;

/// A slot alone on its cache line, with the time it was taken (milliseconds of the reclaimer's clock).
#[repr(align(64))]
struct Slot {
    position: AtomicU64,
    taken_at: AtomicU64,
}

type Chunk = Box<[Arc<Slot>]>;

/// All slots.
pub struct Snapshots {
    /// Made from the first on, without gaps.
    chunks: [OnceLock<Chunk>; CHUNKS],
    reclaiming: AtomicU64,
    /// The reclaimer's clock, in milliseconds: written by it, read when a snapshot is taken.
    now: AtomicU64,
}

thread_local! {
    /// Where this thread found a free slot last time.
    static HINT: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// A registered snapshot; gives its slot back when dropped.
pub struct Snapshot {
    slot: Arc<Slot>,
    position: Position,
}

impl Default for Snapshots {
    fn default() -> Self {
        Snapshots {
            chunks: Default::default(),
            reclaiming: AtomicU64::new(0),
            now: AtomicU64::new(0),
        }
    }
}

fn chunk(n: usize) -> Chunk {
    let slot = || Slot {
        position: AtomicU64::new(EMPTY),
        taken_at: AtomicU64::new(NEVER),
    };
    (0..n).map(|_| Arc::new(slot())).collect()
}

/// Chunk and place in it of slot `n`.
fn place(n: usize) -> (usize, usize) {
    let c = (n / FIRST + 1).ilog2() as usize;
    (c, n - FIRST * ((1 << c) - 1))
}

impl Snapshots {
    /// Registers a snapshot at what `newest` says, which is asked again if the reclaimer was faster.
    pub fn take(&self, newest: impl Fn() -> Position) -> Snapshot {
        let mut at = newest();
        let slot = self.claim(at);
        slot.taken_at
            .store(self.now.load(Ordering::Relaxed), Ordering::Relaxed);
        while self.reclaiming.load(Ordering::SeqCst) > at.as_u64() {
            at = newest();
            slot.position.store(at.as_u64(), Ordering::SeqCst);
        }
        Snapshot { slot, position: at }
    }

    /// Registers a snapshot at this position, if what it needs is here still: no pass of the reclaimer has begun to treat the position
    /// as past.
    pub fn take_at(&self, at: Position) -> Option<Snapshot> {
        let slot = self.claim(at);
        slot.taken_at
            .store(self.now.load(Ordering::Relaxed), Ordering::Relaxed);
        let snapshot = Snapshot { slot, position: at };
        (self.reclaiming.load(Ordering::SeqCst) <= at.as_u64()).then_some(snapshot)
    }

    fn claim(&self, at: Position) -> Arc<Slot> {
        let free = |slot: &Arc<Slot>| {
            slot.position.load(Ordering::Relaxed) == EMPTY
                && slot
                    .position
                    .compare_exchange(EMPTY, at.as_u64(), Ordering::SeqCst, Ordering::Relaxed)
                    .is_ok()
        };
        let hint = HINT.get();
        let hint = if hint == usize::MAX {
            thread_number() % FIRST
        } else {
            hint
        };
        let (c, i) = place(hint);
        // Another store's hint may point past what this one has.
        if let Some(slot) = self.chunks[c].get().map(|chunk| &chunk[i])
            && free(slot)
        {
            return slot.clone();
        }
        let mut first = 0;
        for (c, made) in self.chunks.iter().enumerate() {
            let chunk = made.get_or_init(|| chunk(FIRST << c));
            let start = hint.saturating_sub(first) % chunk.len();
            let found = (0..chunk.len())
                .map(|i| (start + i) % chunk.len())
                .find(|&i| free(&chunk[i]));
            if let Some(i) = found {
                HINT.set(first + i);
                return chunk[i].clone();
            }
            first += chunk.len();
        }
        panic!("{first} snapshots are taken")
    }

    fn slots(&self) -> impl Iterator<Item = &Arc<Slot>> {
        self.chunks.iter().map_while(OnceLock::get).flatten()
    }

    /// The positions that live snapshots stand at, ascending, each once, and `newest` as the last: every snapshot taken from now on
    /// stands there or above.
    pub fn live(&self, newest: Position) -> Vec<Position> {
        self.reclaiming.fetch_max(newest.as_u64(), Ordering::SeqCst);
        if env::fault::planted("site.own_reclaimed") {
            // The planted bug: what only an open transaction of this node sees is taken away.
            return vec![newest];
        }
        let mut all: Vec<Position> = self
            .slots()
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
        let mut expired = 0;
        for slot in self.slots() {
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
    #[inline]
    pub fn position(&self) -> Position {
        self.position
    }

    /// Whether it went over the age limit: what it needs may be gone.
    #[inline]
    pub fn is_expired(&self) -> bool {
        self.slot.position.load(Ordering::SeqCst) == EXPIRED
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.slot.taken_at.store(NEVER, Ordering::Relaxed);
        self.slot.position.store(EMPTY, Ordering::SeqCst);
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
    fn a_position_that_is_past_cannot_be_taken() {
        let s = Snapshots::default();
        s.live(p(7));
        assert!(s.take_at(p(6)).is_none());
        assert_eq!(s.take_at(p(7)).map(|x| x.position()), Some(p(7)));
        assert_eq!(s.live(p(7)), [p(7)], "none is left behind");
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
    fn slots_have_their_places() {
        let all: Vec<_> = (0..7 * FIRST).map(place).collect();
        let want = (0..3).flat_map(|c| (0..FIRST << c).map(move |i| (c, i)));
        assert_eq!(all, want.collect::<Vec<_>>());
    }

    #[test]
    fn more_snapshots_than_slots() {
        let s = Snapshots::default();
        let all: Vec<_> = (0..9 * FIRST as u32).map(|n| s.take(|| p(n))).collect();
        assert_eq!(s.live(p(1 << 20)).len(), all.len() + 1);
    }
}
