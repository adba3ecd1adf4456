//! The tree under shuttle, with nodes of 4 slots: a few threads, a few operations, thousands of schedules.
//!
//! That these tests can fail was tried by hand, each fault planted alone. They caught, within 2,000 schedules:
//! - `Latch::check` that always agrees (5 of 6 tests fail);
//! - `Tree::step` that does not check the parent after it has read the child's version (4 of 6);
//! - `Tree::enter` that does not look at the root pointer again (2 of 6);
//! - `Cursor::read_leaf` that does not check the leaf (2 of 6).
//!
//! Not caught, and rightly: `WriteGuard::retire` that only moves the version on. The parent's version moves with it, so
//! nobody can take an unlinked node's new version for good; the obsolete bit only ends a vain descent earlier, and lets
//! `assert_sound` see a retired node that is still linked.
//!
//! Nothing is freed meanwhile: see `hold_the_epoch`.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use crossbeam_epoch::pin;
use shuttle::thread;

use super::super::{Direction, Tree};
use super::{Item, assert_sound};

type Shared = (Arc<Tree<Item>>, Arc<AtomicUsize>);

fn explore(schedules: usize, test: impl Fn() + Send + Sync + 'static) {
    crate::hold_the_epoch();
    shuttle::check_random(test, schedules);
}

fn tree_of(keys: impl IntoIterator<Item = u64>) -> Shared {
    let shared: Shared = Default::default();
    keys.into_iter().for_each(|n| assert!(insert(&shared, n)));
    shared
}

fn insert((tree, live): &Shared, n: u64) -> bool {
    let key = n.to_be_bytes();
    tree.get_or_insert(&key, || Item::make(&key, n, live), &pin())
        .1
}

fn remove((tree, _): &Shared, n: u64) -> bool {
    tree.remove_if(&n.to_be_bytes(), |item| item.value == n, &pin())
}

fn has((tree, _): &Shared, n: u64) -> bool {
    tree.get(&n.to_be_bytes(), &pin())
        .is_some_and(|item| item.value == n)
}

fn scan((tree, _): &Shared, direction: Direction, batch: usize) -> Vec<u64> {
    let guard = pin();
    let mut cursor = tree.cursor(Bound::Unbounded, Bound::Unbounded, direction, &guard);
    let mut found = Vec::new();
    while cursor.next_batch(batch, &mut found) {}
    let mut values: Vec<u64> = found.iter().map(|item| item.value).collect();
    if direction == Direction::Backward {
        values.reverse();
    }
    assert!(
        values.is_sorted_by(|a, b| a < b),
        "out of order or twice: {values:?}"
    );
    values
}

#[test]
fn inserts_that_split() {
    explore(2_000, || {
        let shared = tree_of([10, 20, 30]);
        let threads = [[5, 25, 26], [25, 27, 35]].map(|keys| {
            let shared = shared.clone();
            thread::spawn(move || keys.map(|n| (n, insert(&shared, n), has(&shared, n))))
        });
        let results: Vec<_> = threads
            .into_iter()
            .flat_map(|t| t.join().expect("thread"))
            .collect();
        assert!(
            results.iter().all(|(_, _, there)| *there),
            "own insert not seen: {results:?}"
        );
        assert_eq!(
            results
                .iter()
                .filter(|(n, new, _)| *n == 25 && *new)
                .count(),
            1
        );
        assert_eq!(
            scan(&shared, Direction::Forward, 3),
            [5, 10, 20, 25, 26, 27, 30, 35]
        );
        assert_sound(&shared.0);
    });
}

#[test]
fn readers_beside_splits_and_removals() {
    explore(2_000, || {
        let shared = tree_of((0..8).map(|n| n * 10));
        let writer = {
            let shared = shared.clone();
            thread::spawn(move || {
                for n in [11, 12, 13, 14] {
                    assert!(insert(&shared, n));
                }
                for n in [40, 50, 11] {
                    assert!(remove(&shared, n));
                }
            })
        };
        for n in [10, 20, 0, 70] {
            assert!(has(&shared, n), "{n} is there all the time");
        }
        assert!(!has(&shared, 15));
        writer.join().expect("writer");
        assert_eq!(
            scan(&shared, Direction::Backward, 5),
            [0, 10, 12, 13, 14, 20, 30, 60, 70]
        );
        assert_sound(&shared.0);
    });
}

fn scan_beside_writers(direction: Direction) {
    explore(2_000, move || {
        let shared = tree_of((0..7).map(|n| n * 10));
        let writers = [([31, 32, 33], [20, 30]), ([1, 2, 45], [0, 40])].map(|(add, take)| {
            let shared = shared.clone();
            thread::spawn(move || {
                add.iter().for_each(|&n| assert!(insert(&shared, n)));
                take.iter().for_each(|&n| assert!(remove(&shared, n)));
            })
        });
        let found = scan(&shared, direction, 2);
        assert!(
            [10, 50, 60].iter().all(|n| found.contains(n)),
            "missed what was there all the time: {found:?}"
        );
        for writer in writers {
            writer.join().expect("writer");
        }
        assert_eq!(
            scan(&shared, direction, 3),
            [1, 2, 10, 31, 32, 33, 45, 50, 60]
        );
        assert_sound(&shared.0);
    });
}

#[test]
fn forward_scan_beside_writers() {
    scan_beside_writers(Direction::Forward);
}

#[test]
fn backward_scan_beside_writers() {
    scan_beside_writers(Direction::Backward);
}

/// A scan that starts after an insert has returned shows it: what phantom validation stands on.
#[test]
fn a_later_scan_shows_an_earlier_insert() {
    explore(2_000, || {
        let shared = tree_of([10, 20, 30, 40]);
        let others = [15, 25].map(|n| {
            let shared = shared.clone();
            thread::spawn(move || {
                assert!(insert(&shared, n));
                scan(&shared, Direction::Forward, 10)
            })
        });
        let [a, b] = others.map(|t| t.join().expect("thread"));
        assert!(a.contains(&15) && b.contains(&25));
        // Both inserted before they scanned: not both may have missed the other.
        assert!(a.contains(&25) || b.contains(&15), "{a:?} {b:?}");
    });
}

#[test]
fn leaves_are_emptied_while_others_insert_there() {
    explore(2_000, || {
        let shared = tree_of(0..12);
        let threads = [[4, 5, 6, 7], [8, 9, 10, 11]].map(|keys| {
            let shared = shared.clone();
            thread::spawn(move || keys.iter().for_each(|&n| assert!(remove(&shared, n))))
        });
        let back = {
            let shared = shared.clone();
            thread::spawn(move || [100, 101].iter().for_each(|&n| assert!(insert(&shared, n))))
        };
        for n in 0..4 {
            assert!(has(&shared, n));
        }
        threads
            .into_iter()
            .chain([back])
            .for_each(|t| t.join().expect("thread"));
        assert_eq!(scan(&shared, Direction::Forward, 4), [0, 1, 2, 3, 100, 101]);
        assert_sound(&shared.0);
    });
}

/// The heads of a leaf are computed anew when its prefix gets longer (a split) or shorter (a key that does not share it).
#[test]
fn prefixes_change_beside_readers() {
    fn key(tag: u8, n: u32) -> Vec<u8> {
        [&[tag, 7, 7, 7, 7, 7, 7, 7][..], &n.to_be_bytes()].concat()
    }
    explore(2_000, || {
        let (tree, live) = Shared::default();
        let insert = |key: Vec<u8>| {
            assert!(
                tree.get_or_insert(&key, || Item::make(&key, 0, &live), &pin())
                    .1
            );
        };
        (0..4).for_each(|n| insert(key(1, n * 10)));
        let writer = {
            let (tree, live) = (tree.clone(), live.clone());
            thread::spawn(move || {
                for key in [key(1, 5), key(2, 5), key(0, 1), vec![1], key(1, 6)] {
                    assert!(
                        tree.get_or_insert(&key, || Item::make(&key, 0, &live), &pin())
                            .1
                    );
                }
            })
        };
        for n in [30, 0, 10] {
            assert!(
                tree.get(&key(1, n), &pin()).is_some(),
                "{n} is there all the time"
            );
            assert!(tree.get(&key(1, n + 1), &pin()).is_none());
        }
        let guard = pin();
        let (low, high) = (key(1, 0), key(1, 99));
        let mut found = Vec::new();
        let (low, high) = (Bound::Included(&low[..]), Bound::Included(&high[..]));
        tree.scan(low, high, Direction::Backward, 99, &mut found, &guard);
        assert!((4..=6).contains(&found.len()), "{}", found.len());
        writer.join().expect("writer");
        assert_eq!(assert_sound(&tree).entries, 9);
    });
}
