//! What the reclaimer unlinks is freed at the pace at which it comes, also where few guards come and go.
// Without a model checker: it is the collector that is looked at.
#![cfg(not(feature = "shuttle"))]

use base::Position;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use store::{NewVersion, Storage, Store, pin};

/// Bytes that are allocated now.
static LIVE: AtomicUsize = AtomicUsize::new(0);

struct Counted;

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promised; `alloc` above got it from there.
        unsafe { System.dealloc(p, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counted = Counted;

const ROWS: u32 = 1000;
const ROW: [u8; 100] = [7; 100];

/// Writes every row under one guard, as replay does, then makes a pass.
fn write_all_and_reclaim(store: &Store, storage: &Storage, round: u32) {
    let at = Position::new(1, round);
    let guard = pin();
    for n in 0..ROWS {
        let record = storage.find_or_create(&n.to_be_bytes(), &store.memory, &guard);
        record.try_lock().expect("nobody else writes");
        record.push(NewVersion::new(Some(&ROW)), at, 0);
        storage.mark_stale(record, at);
        record.unlock();
    }
    drop(guard);
    let done = store.reclaim(at);
    assert!(round == 1 || done.versions == ROWS as usize, "{done:?}");
}

#[test]
fn memory_does_not_grow_with_the_writes() {
    let store = Store::default();
    let storage = Arc::new(Storage::new(20_000));
    store.add(storage.clone());
    let mut after_some = 0;
    for round in 1..=220 {
        write_all_and_reclaim(&store, &storage, round);
        if round == 20 {
            after_some = LIVE.load(Ordering::Relaxed);
        }
    }
    // 200 rounds unlink 25 MB.
    let (now, limit) = (LIVE.load(Ordering::Relaxed), after_some + (3 << 20));
    assert!(now < limit, "{after_some} bytes, then {now}");

    // Without writes the passes find nothing to do, and free what is left.
    for _ in 0..100 {
        store.reclaim(Position::new(1, 220));
    }
    let one_of_each = ROWS as usize * (ROW.len() + 200);
    let idle = LIVE.load(Ordering::Relaxed);
    assert!(
        idle < one_of_each + (1 << 20),
        "{idle} bytes when nothing is written"
    );
}
