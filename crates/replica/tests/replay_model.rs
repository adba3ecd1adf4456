//! Replay against a model, all policies: what a snapshot at *visible* sees, in tables and indexes, is what the primary's history has
//! at that position. Stepped under a seed, and in threads beside readers and the reclaimer.
// Shuttle's locks work inside its scheduler only.
#![cfg(not(feature = "shuttle"))]

mod histories;
#[path = "histories/stepped.rs"]
mod stepped;

use base::Position;
use env::Env;
use histories::{Change, Ddl, Dice, History, World, Writer, key};
use replica::{Policy, Replay, ReplayOptions, SchemaSink, Step, Stepper};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const SEEDS: u64 = 60;

fn all_seeds(policy: Policy) {
    for seed in 0..SEEDS {
        if let Err(e) = stepped::run(policy, seed) {
            panic!("{policy}: {e}");
        }
    }
}

#[test]
fn serial_shows_what_the_primary_had() {
    all_seeds(Policy::Serial);
}

#[test]
fn by_table_shows_what_the_primary_had() {
    all_seeds(Policy::Table);
}

#[test]
fn by_transaction_shows_what_the_primary_had() {
    all_seeds(Policy::Transaction);
}

#[test]
fn by_page_shows_what_the_primary_had() {
    all_seeds(Policy::Page);
}

#[test]
fn a_worker_per_transaction_shows_what_the_primary_had() {
    all_seeds(Policy::TransactionWorker);
}

#[test]
fn by_row_shows_what_the_primary_had() {
    all_seeds(Policy::Row);
}

/// Threads, with readers that check whatever they are shown and a reclaimer that never rests.
fn in_threads(policy: Policy, seed: u64) {
    let history = Arc::new(History::random(seed));
    let world = Arc::new(World::new(Position::ZERO));
    let mut dice = Dice::new(seed);
    let options = ReplayOptions {
        workers: 3,
        ..stepped::options(policy, &mut dice)
    };
    let replay = started(&world, options);
    let over = Arc::new(AtomicBool::new(false));
    let reader = |check: bool| {
        let (world, history, over) = (world.clone(), history.clone(), over.clone());
        std::thread::spawn(move || {
            while !over.load(Ordering::SeqCst) {
                if !check {
                    world.store.reclaim(world.marks.visible.get());
                    std::thread::yield_now();
                    continue;
                }
                let snapshot = world.store.snapshots.take(|| world.marks.visible.get());
                if let Err(e) = world.check(&history, snapshot.position()) {
                    panic!("{e}");
                }
            }
        })
    };
    let beside = [reader(true), reader(true), reader(false)];
    for (group, upto) in &history.groups {
        replay.feed(group.clone(), *upto).unwrap();
        replay.tick(*upto, group.header().published);
    }
    replay.tick(history.last, history.last);
    replay.finish().unwrap();
    over.store(true, Ordering::SeqCst);
    for b in beside {
        b.join().unwrap_or_else(|_| panic!("{policy}, seed {seed}"));
    }
    assert_eq!(world.marks.visible.get(), history.last);
    world.check(&history, history.last).unwrap();
    world.check_nothing_left_over(&history).unwrap();
}

#[test]
fn in_threads_all_policies_show_what_the_primary_had() {
    for policy in Policy::ALL {
        for seed in 1000..1012 {
            in_threads(policy, seed);
        }
    }
}

/// Replay with threads of its own.
fn started(world: &World, options: ReplayOptions) -> Replay {
    let sink: Arc<dyn SchemaSink> = world.sink.clone();
    let (store, marks) = (world.store.clone(), world.marks.clone());
    Replay::start(&Env::os(), store, marks, sink, Position::ZERO, options).unwrap()
}

fn p(n: u32) -> Position {
    Position::new(1, n)
}

fn put(table: u32, k: i32, value: i32) -> (u32, i32, Option<(i32, String)>) {
    (table, k, Some((value, String::new())))
}

fn table_10() -> Change {
    Change {
        ddl: Some(Ddl::Table(10)),
        ..Change::default()
    }
}

fn stepper(world: &World, from: Position, options: ReplayOptions) -> Stepper {
    let sink: Arc<dyn SchemaSink> = world.sink.clone();
    Stepper::new(
        world.store.clone(),
        world.marks.clone(),
        sink,
        from,
        options,
    )
}

#[test]
fn a_transaction_longer_than_all_windows() {
    let mut w = Writer::default();
    w.commit(p(1), &table_10());
    for n in 2..5 {
        let writes = (0..3000).map(|k| put(10, k, n as i32)).collect();
        let change = Change {
            writes,
            ..Change::default()
        };
        w.commit(p(n), &change);
    }
    let mut dice = Dice::new(5);
    let history = w.finish(&mut dice);
    for policy in Policy::ALL {
        let options = ReplayOptions {
            policy,
            workers: 3,
            segment_rows: 16,
            max_rows: 64,
            slice: 8,
            last_writes: 30,
            ..ReplayOptions::default()
        };
        stepped::steps(&history, &options, &mut dice).unwrap_or_else(|e| panic!("{policy}: {e}"));
    }
}

#[test]
fn an_idle_worker_does_not_hold_what_is_visible() {
    for policy in Policy::ALL {
        let mut w = Writer::default();
        w.commit(p(1), &table_10());
        for n in 2..40 {
            let change = Change {
                writes: vec![put(10, n as i32 % 3, n as i32)],
                ..Change::default()
            };
            w.commit(p(n), &change);
            w.end_group();
        }
        let history = w.finish(&mut Dice::new(3));
        let world = World::new(Position::ZERO);
        let options = ReplayOptions {
            policy,
            workers: 4,
            ..ReplayOptions::default()
        };
        let mut replay = stepper(&world, Position::ZERO, options);
        for (group, upto) in &history.groups {
            replay.feed(group.clone(), *upto);
            replay.tick(*upto, *upto);
            // Only the first worker ever runs.
            for now in 0..1000 {
                let idle = replay.step(0).unwrap() == Step::Idle;
                replay.snapshot(now);
                if idle && replay.is_drained() {
                    break;
                }
            }
            assert_eq!(world.marks.visible.get(), *upto, "{policy}");
        }
        // A tick moves it without a commit and without a worker.
        let far = Position::new(9, 0);
        replay.tick(far, far);
        replay.snapshot(1 << 40);
        assert_eq!(world.marks.visible.get(), far, "{policy}");
    }
}

#[test]
fn replay_goes_on_from_a_checkpoint() {
    for policy in Policy::ALL {
        for seed in 200..220 {
            let history = History::random(seed);
            let mut dice = Dice::new(seed);
            // A checkpoint somewhere: the rows as of there, each at the position of its last write or any later one. Tombstones
            // are gone, and groups before it and across it come again.
            let middle = history.states.len() / 2;
            let from = history.states[middle].0;
            let world = World::new(from);
            for t in &history.states[middle].1.tables {
                world.store.add(Arc::new(store::Storage::new(*t)));
            }
            let schema_sink: &dyn SchemaSink = &*world.sink;
            for &(table, id) in &history.states[middle].1.indexes {
                schema_sink
                    .schema(from, &[1, table as u8, id as u8])
                    .unwrap();
            }
            let guard = store::pin();
            for ((table, key), row) in &history.states[middle].1.rows {
                let storage = world.store.storage(*table).unwrap();
                let record = storage.find_or_create(key, &world.store.memory, &guard);
                record.try_lock().unwrap();
                for index in storage.indexes() {
                    let mut entry = Vec::new();
                    index.spec.key_of(row, key, &mut entry);
                    index.link(&entry, record, &world.store.memory, &guard);
                }
                record.push(store::NewVersion::new(Some(row)), from, 0);
                record.unlock();
                storage.count(1);
            }
            drop(guard);
            let mut replay = stepper(&world, from, stepped::options(policy, &mut dice));
            let mut groups = history.groups.iter();
            let mut seen = from;
            for turn in 0u64.. {
                assert!(turn < 1_000_000, "{policy}, seed {seed}: no end");
                if dice.one_in(8)
                    && let Some((group, upto)) = groups.next()
                {
                    replay.feed(group.clone(), *upto);
                    replay.tick(*upto, *upto);
                }
                replay
                    .step(dice.below(replay.workers() as u64) as usize)
                    .unwrap();
                replay.snapshot(turn * 1_000_000);
                replay.build().unwrap();
                let visible = world.marks.visible.get();
                if visible > seen {
                    seen = visible;
                    let checked = world.check(&history, visible);
                    checked.unwrap_or_else(|e| panic!("{policy}, seed {seed}: {e}"));
                }
                if seen == history.last && replay.is_drained() {
                    break;
                }
            }
            world.check_nothing_left_over(&history).unwrap();
        }
    }
}

#[test]
fn an_index_appears_when_it_is_built() {
    let mut w = Writer::default();
    w.commit(p(1), &table_10());
    for n in 2..200 {
        let mut change = Change {
            writes: vec![put(10, n as i32 % 50, n as i32 % 7)],
            ..Change::default()
        };
        if n == 100 {
            change.ddl = Some(Ddl::Index { table: 10, id: 20 });
        }
        w.commit(p(n), &change);
    }
    let history = w.finish(&mut Dice::new(3));
    let world = World::new(Position::ZERO);
    let mut replay = stepper(&world, Position::ZERO, ReplayOptions::default());
    for (group, upto) in &history.groups {
        replay.feed(group.clone(), *upto);
    }
    replay.tick(history.last, history.last);
    for _ in 0..1000 {
        replay.step(0).unwrap();
        replay.step(1).unwrap();
        replay.snapshot(0);
    }
    // Replay went on to the end; what is shown stops before the index, which is not built yet.
    assert_eq!(world.marks.applied.get(), history.last);
    assert_eq!(world.marks.visible.get(), p(99));
    assert!(!replay.is_drained());
    world.check(&history, p(99)).unwrap();
    assert!(replay.build().unwrap());
    replay.snapshot(0);
    assert_eq!(world.marks.visible.get(), history.last);
    world.check(&history, history.last).unwrap();
}

#[test]
fn what_is_not_a_commit_stops_replay() {
    let mut w = Writer::default();
    w.commit(p(1), &table_10());
    let mut change = Change {
        writes: vec![put(10, 1, 1)],
        ..Change::default()
    };
    w.commit(p(2), &change);
    w.end_group();
    // A row of a table that nobody created.
    change.writes = vec![put(99, 1, 1)];
    w.commit(p(3), &change);
    let history = w.finish(&mut Dice::new(3));
    let world = World::new(Position::ZERO);
    let replay = started(&world, ReplayOptions::default());
    for (group, upto) in &history.groups {
        // The failure may be known already when the last one is fed.
        let _ = replay.feed(group.clone(), *upto);
    }
    let failed = replay.finish().unwrap_err();
    assert_eq!(failed.code(), base::SqlState::DATA_CORRUPTED, "{failed}");
    let storage = world.store.storage(10).unwrap();
    let guard = store::pin();
    assert!(
        storage
            .primary
            .get(&key(1), &guard)
            .is_none_or(|r| { r.newest(&guard).is_none_or(|v| v.position() == p(2)) })
    );
}

#[test]
fn feeding_waits_for_room_and_goes_on() {
    let history = History::random(77);
    let world = World::new(Position::ZERO);
    let options = ReplayOptions {
        max_bytes: 1,
        ..ReplayOptions::default()
    };
    let replay = started(&world, options);
    for (group, upto) in &history.groups {
        replay.feed(group.clone(), *upto).unwrap();
        assert!(replay.bytes_in_flight() <= group.as_bytes().len() as u64);
    }
    replay.tick(history.last, history.last);
    replay.finish().unwrap();
    world.check(&history, history.last).unwrap();
}

/// Whoever stops it waits for its threads, also for one that has only begun. (A thread that looked at the bell too late slept on in one of
/// 7,000 rounds.)
#[test]
fn it_can_be_stopped_at_once() {
    const ROUNDS: usize = 20_000;
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for round in 0..ROUNDS {
            let world = World::new(Position::ZERO);
            let options = ReplayOptions {
                workers: 1 + round % 2,
                ..ReplayOptions::default()
            };
            let replay = started(&world, options);
            (0..round % 500).for_each(|_| std::hint::spin_loop());
            replay.stop();
            tell.send(()).unwrap();
        }
    });
    for round in 0..ROUNDS {
        told.recv_timeout(std::time::Duration::from_secs(60))
            .unwrap_or_else(|_| panic!("round {round}: a thread sleeps through the end"));
    }
}
