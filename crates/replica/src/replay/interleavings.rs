//! Two workers, a feeder, a reader and the reclaimer under shuttle: thousands of interleavings of handing out, installing, deferring and
//! publishing. Every transaction writes its number into the same two rows and inserts one of its own, and its three records do
//! not fit in one segment, so that a snapshot which is not at a transaction's end, or not a prefix, shows.
//!
//! Planted by hand, each found by these tests: bounds read before the queue's lock is taken; a bound that is set after the segment was
//! taken and the lock given back.

use base::record::{CommitBuilder, RecordKind};
use base::{Oid, Position, Result};
use env::sync::atomic::{AtomicBool, Ordering};
use env::sync::thread;
use env::{Env, MemDisk};
use std::path::Path;
use std::sync::Arc;
use store::{Storage, Store, pin};
use wal::{Commit, DataDir, DirOptions, Group, LogEnd, LogOptions, LogReader, LogWriter};

use super::core::Core;
use super::worker::Step;
use super::{Build, Policy, ReplayOptions, SchemaSink};
use crate::ReplicaMarks;

const TABLE: u32 = 1;
const COMMITS: u64 = 5;

fn p(n: u64) -> Position {
    Position::from_u64(1000 + n)
}

struct NoSchema;

impl SchemaSink for NoSchema {
    fn schema(&self, _: Position, _: &[u8]) -> Result<Vec<Build>> {
        unreachable!("no schema change in these histories")
    }

    fn needs_barrier(&self, _: &[u8]) -> Result<bool> {
        Ok(false)
    }

    fn sequence(&self, _: Position, _: Oid, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn visible(&self, _: Position) {}
}

/// Two groups.
fn history() -> Vec<Group> {
    let env = Env::os().with_disk(Arc::new(MemDisk::new()));
    let options = DirOptions {
        log: LogOptions {
            segment_size: 1 << 16,
            spares: 0,
        },
        cluster: Some(7),
    };
    let dir = DataDir::open(&env, Path::new("/h"), options).unwrap();
    let mut log = LogWriter::resume(dir.log().clone(), &LogEnd::empty(Position::ZERO), 1).unwrap();
    let commit = |n: u64| {
        let mut b = CommitBuilder::new();
        let value = n.to_le_bytes();
        b.push(RecordKind::Put, TABLE, b"a", &value);
        b.push(
            RecordKind::Put,
            TABLE,
            format!("own {n}").as_bytes(),
            &value,
        );
        b.push(RecordKind::Put, TABLE, b"b", &value);
        let (heads, data) = b.finish(p(n), 0);
        Commit {
            position: p(n),
            heads,
            data,
        }
    };
    for numbers in [1..3, 3..COMMITS + 1].map(|r| r.collect::<Vec<_>>()) {
        let commits: Vec<Commit> = numbers.into_iter().map(commit).collect();
        log.append_group(&commits, Position::ZERO).unwrap();
    }
    log.sync().unwrap();
    let mut reader = LogReader::open(dir.log().clone(), 7, Position::ZERO).unwrap();
    std::iter::from_fn(|| reader.next_group().unwrap()).collect()
}

fn row(storage: &Storage, key: &[u8], at: Position) -> u64 {
    let guard = pin();
    let record = storage.primary.get(key, &guard);
    let row = record.and_then(|r| r.row_at(at, &guard));
    row.map_or(0, |r| u64::from_le_bytes(r.try_into().expect("8 bytes")))
}

fn scenario(policy: Policy, groups: &[Group]) {
    let store = Arc::new(Store::default());
    let storage = Arc::new(Storage::new(TABLE));
    store.add(storage.clone());
    let from = p(0);
    let marks = Arc::new(ReplicaMarks::new(from));
    let options = ReplayOptions {
        policy,
        workers: 2,
        segment_rows: 2,
        slice: 1,
        max_rows: 6,
        last_writes: 1,
        granules: 2,
        ..ReplayOptions::default()
    };
    let core = Core::new(
        store.clone(),
        marks.clone(),
        Arc::new(NoSchema),
        from,
        options,
        None,
    );
    let core = Arc::new(core);
    let over = Arc::new(AtomicBool::new(false));
    let workers: Vec<_> = (0..2)
        .map(|id| {
            let (core, over) = (core.clone(), over.clone());
            thread::spawn(move || {
                let mut worker = core.worker(id);
                while !over.load(Ordering::SeqCst) {
                    let step = worker.step(&core).unwrap();
                    core.snapshot(0);
                    if step != Step::Worked {
                        thread::yield_now();
                    }
                }
            })
        })
        .collect();
    let reader = {
        let (store, storage, marks) = (store.clone(), storage.clone(), marks.clone());
        thread::spawn(move || {
            for _ in 0..4 {
                let snapshot = store.snapshots.take(|| {
                    let at = marks.visible.get();
                    thread::yield_now();
                    at
                });
                let at = snapshot.position();
                let shown = at.as_u64().saturating_sub(1000).min(COMMITS);
                assert_eq!(
                    (row(&storage, b"a", at), row(&storage, b"b", at)),
                    (shown, shown),
                    "at {at}"
                );
                for n in 1..=COMMITS {
                    let own = row(&storage, format!("own {n}").as_bytes(), at);
                    assert_eq!(own, if n <= shown { n } else { 0 }, "at {at}");
                }
                thread::yield_now();
            }
        })
    };
    for group in groups {
        let last = group.header().last;
        core.feed(group.clone(), last);
        core.tick(last, last);
        store.reclaim(marks.visible.get());
    }
    core.tick(p(COMMITS + 3), p(COMMITS + 3));
    while marks.visible.get() < p(COMMITS + 3) {
        core.snapshot(0);
        thread::yield_now();
    }
    assert!(core.is_drained());
    over.store(true, Ordering::SeqCst);
    workers.into_iter().for_each(|w| w.join().unwrap());
    reader.join().unwrap();
    assert_eq!(row(&storage, b"b", marks.visible.get()), COMMITS);
}

#[test]
fn rows_in_order_and_whole_transactions_shown() {
    store::hold_the_epoch();
    let groups = history();
    let mine = groups.clone();
    shuttle::check_random(move || scenario(Policy::Row, &mine), 1500);
    shuttle::check_pct(move || scenario(Policy::Row, &groups), 1500, 3);
}

#[test]
fn other_policies_too() {
    store::hold_the_epoch();
    let groups = history();
    for policy in [Policy::Page, Policy::Transaction, Policy::TransactionWorker] {
        let mine = groups.clone();
        shuttle::check_random(move || scenario(policy, &mine), 400);
    }
}
