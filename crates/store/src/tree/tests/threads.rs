//! Threads against each other on one tree, with checks that hold whatever the interleaving.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crossbeam_epoch::pin;

use super::super::{Direction, Tree};
use super::{Item, assert_sound, drain};
use workload::rng::Rng;

fn key_of(n: u64) -> [u8; 12] {
    let mut key = [0; 12];
    key[..4].copy_from_slice(&((n % 7) as u32).to_be_bytes());
    key[4..].copy_from_slice(&(n / 7).to_be_bytes());
    key
}

fn steps(n: usize) -> usize {
    // Slow under instrumentation; the races are the same.
    if cfg!(debug_assertions) { n / 4 } else { n }
}

/// Every thread owns the numbers of its residue and knows which are in; even numbers are never removed, and no scan may
/// miss one or show keys out of order.
#[test]
fn owners_see_their_own_and_scans_miss_nothing() {
    const THREADS: u64 = 4;
    const SPAN: u64 = 4_000;
    let live = Arc::new(AtomicUsize::new(0));
    let tree = Arc::new(Tree::<Item>::new());
    for n in (0..SPAN).step_by(16) {
        tree.get_or_insert(&key_of(n), || Item::make(&key_of(n), n, &live), &pin());
    }
    let stay: BTreeSet<[u8; 12]> = (0..SPAN).step_by(16).map(key_of).collect();
    let total = std::thread::scope(|scope| {
        let owners: Vec<_> = (0..THREADS)
            .map(|t| {
                let (tree, live, stay) = (tree.clone(), live.clone(), &stay);
                scope.spawn(move || {
                    let mut random = Rng::new(t);
                    let mut mine = BTreeSet::new();
                    for _ in 0..steps(120_000) {
                        let n = (random.next_u64() % (SPAN / THREADS)) * THREADS + t;
                        let key = key_of(n);
                        let guard = pin();
                        if stay.contains(&key) {
                            assert!(tree.get(&key, &guard).is_some());
                        } else if mine.contains(&n) {
                            assert_eq!(tree.get(&key, &guard).expect("mine").value, n);
                            assert!(tree.remove_if(&key, |item| item.value == n, &guard));
                            mine.remove(&n);
                        } else {
                            assert!(tree.get(&key, &guard).is_none());
                            assert!(
                                tree.get_or_insert(&key, || Item::make(&key, n, &live), &guard)
                                    .1
                            );
                            mine.insert(n);
                        }
                        if random.index(512) == 0 {
                            scan_has_all(&tree, stay, &mut random);
                        }
                    }
                    mine.len()
                })
            })
            .collect();
        owners
            .into_iter()
            .map(|owner| owner.join().expect("owner"))
            .sum::<usize>()
    });
    let shape = assert_sound(&tree);
    assert_eq!(shape.entries, total + stay.len());
    drain(&live, shape.entries);
    drop(tree);
    drain(&live, 0);
}

fn scan_has_all(tree: &Tree<Item>, stay: &BTreeSet<[u8; 12]>, random: &mut Rng) {
    let direction = [Direction::Forward, Direction::Backward][random.index(2)];
    let low = key_of(random.next_u64() % 4_000);
    let guard = pin();
    let mut cursor = tree.cursor(Bound::Included(&low), Bound::Unbounded, direction, &guard);
    let mut found = Vec::new();
    while cursor.next_batch(1 + random.index(200), &mut found) {}
    let mut keys: Vec<&[u8]> = found.iter().map(|item| &*item.key).collect();
    if direction == Direction::Backward {
        keys.reverse();
    }
    assert!(keys.is_sorted_by(|a, b| a < b), "out of order or twice");
    assert!(keys.iter().all(|key| *key >= low.as_slice()));
    let missed = stay
        .range(low..)
        .find(|key| keys.binary_search(&key.as_slice()).is_err());
    assert_eq!(
        missed, None,
        "a scan missed a key that was there all the time"
    );
}

/// One key per number: exactly one of the threads that race for it inserts it.
#[test]
fn one_inserter_wins() {
    let live = Arc::new(AtomicUsize::new(0));
    let tree = Arc::new(Tree::<Item>::new());
    let won = AtomicU64::new(0);
    let n = steps(80_000) as u64;
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for i in 0..n {
                    let key = i.to_be_bytes();
                    let guard = pin();
                    let (item, new) =
                        tree.get_or_insert(&key, || Item::make(&key, i, &live), &guard);
                    assert_eq!(item.value, i);
                    won.fetch_add(new as u64, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(won.into_inner(), n);
    assert_eq!(assert_sound(&tree).entries as u64, n);
    drop(tree);
    drain(&live, 0);
}

/// A queue: appended at one end, taken at the other, so that leaves are made and unlinked all the time; readers follow.
#[test]
fn a_queue_under_readers() {
    let live = Arc::new(AtomicUsize::new(0));
    let tree = Arc::new(Tree::<Item>::new());
    let (head, tail, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let n = steps(200_000) as u64;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for i in 0..n {
                while i > tail.load(Ordering::Acquire) + 1_000 {
                    std::thread::yield_now();
                }
                let key = key_of(i * 7);
                assert!(
                    tree.get_or_insert(&key, || Item::make(&key, i, &live), &pin())
                        .1
                );
                head.store(i + 1, Ordering::Release);
            }
        });
        scope.spawn(|| {
            for i in 0..n {
                while i >= head.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
                assert!(tree.remove_if(&key_of(i * 7), |item| item.value == i, &pin()));
                tail.store(i + 1, Ordering::Release);
            }
            stop.store(true, Ordering::Release);
        });
        for direction in [Direction::Forward, Direction::Backward] {
            let (tree, head, tail, stop) = (&tree, &head, &tail, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Acquire) {
                    // All that was in before and is in after must show.
                    let guard = pin();
                    let appended = head.load(Ordering::Acquire);
                    let mut found = Vec::new();
                    tree.scan(
                        Bound::Unbounded,
                        Bound::Unbounded,
                        direction,
                        usize::MAX,
                        &mut found,
                        &guard,
                    );
                    let taken = tail.load(Ordering::Acquire) + 1;
                    let mut values: Vec<u64> = found.iter().map(|item| item.value).collect();
                    if direction == Direction::Backward {
                        values.reverse();
                    }
                    assert!(values.is_sorted_by(|a, b| a < b));
                    for must in taken..appended {
                        assert!(
                            values.binary_search(&must).is_ok(),
                            "{must} of {taken}..{appended} missed"
                        );
                    }
                }
            });
        }
    });
    let shape = assert_sound(&tree);
    assert_eq!((shape.entries, shape.leaves), (0, 1));
    drop(tree);
    drain(&live, 0);
}
