//! Snapshots against the reclaimer, versions against readers, under shuttle: thousands of interleavings of a writer, a reader and
//! passes of the reclaimer over one row. The schedules are PCT's, which hold one thread back for long: random ones almost never let a
//! whole pass happen between two steps of the reader.
//!
//! The row's version at position `n` holds `n`, so a reader at position `p` must see `p`, twice. Faults planted by hand, each found by
//! these tests: `Snapshots::take` without its second look at `reclaiming`; a reclaimer that reads the slots before it raises
//! `reclaiming`; a trim that ignores versions above the newest live position.

use base::{Position, Watermark};
use env::sync::thread;
use std::sync::Arc;

use crate::record::NewVersion;
use crate::{Storage, Store, pin};

fn p(n: u64) -> Position {
    Position::from_u64(100 + n)
}

fn commit(store: &Store, storage: &Storage, installed: &Watermark, n: u64, row: Option<&[u8]>) {
    let guard = pin();
    let record = loop {
        let r = storage.find_or_create(b"k", &store.memory, &guard);
        if r.try_lock().is_ok() {
            break r;
        }
        thread::yield_now();
    };
    record.push(NewVersion::new(row), p(n), 0);
    storage.mark_stale(record, p(n));
    record.unlock();
    installed.raise(p(n));
}

fn scenario(deletes: bool) {
    let store = Arc::new(Store::default());
    let storage = Arc::new(Storage::new(1));
    store.add(storage.clone());
    let installed = Arc::new(Watermark::default());
    commit(&store, &storage, &installed, 1, Some(&[1]));
    let writer = {
        let (store, storage, installed) = (store.clone(), storage.clone(), installed.clone());
        thread::spawn(move || {
            for n in 2..5 {
                let row = [n as u8];
                let gone = deletes && n == 3;
                commit(&store, &storage, &installed, n, (!gone).then_some(&row[..]));
            }
        })
    };
    let reader = {
        let (store, storage, installed) = (store.clone(), storage.clone(), installed.clone());
        thread::spawn(move || {
            // Watermarks are plain atomics: this is where the scheduler may step in after one is read.
            let snapshot = store.snapshots.take(|| {
                let at = installed.get();
                thread::yield_now();
                at
            });
            for _ in 0..2 {
                let guard = pin();
                let found = storage.primary.get(b"k", &guard);
                let row = found.and_then(|r| r.row_at(snapshot.position(), &guard));
                let n = snapshot.position().as_u64() - 100;
                let want = (!(deletes && n == 3)).then_some(n as u8);
                assert_eq!(
                    row.map(|r| r[0]),
                    want,
                    "a snapshot at {n} sees another version"
                );
                thread::yield_now();
            }
        })
    };
    // *Decided* runs behind *installed*, so that versions stand above the newest position that the reclaimer is told.
    for behind in [1, 0] {
        let decided = Position::from_u64(installed.get().as_u64() - behind);
        store.reclaim(decided);
        thread::yield_now();
    }
    writer.join().unwrap();
    reader.join().unwrap();
    while store.reclaim(installed.get()).waiting > 0 {}
    let guard = pin();
    let record = storage
        .primary
        .get(b"k", &guard)
        .expect("the row is there at the end");
    assert_eq!(record.row_at(installed.get(), &guard), Some(&[4][..]));
    assert!(
        record
            .newest(&guard)
            .is_some_and(|v| v.older(&guard).is_none()),
        "nobody needs the old versions"
    );
}

#[test]
fn snapshots_keep_what_they_see() {
    crate::hold_the_epoch();
    shuttle::check_pct(|| scenario(false), 12_000, 4);
}

#[test]
fn a_deleted_row_comes_back() {
    crate::hold_the_epoch();
    shuttle::check_pct(|| scenario(true), 12_000, 4);
}
