//! Random operations on the tree and on a `BTreeMap`, side by side.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use crossbeam_epoch::pin;

use super::super::{Direction, Tree};
use super::{Item, Shape, assert_sound, drain};
use workload::rng::Rng;

type Key = Vec<u8>;

/// How a test draws its keys.
type Draw = fn(&mut Rng) -> Key;

fn eight_bytes(random: &mut Rng) -> Key {
    ((random.next_u64() % 2000) * 0x0123_4567_89ab)
        .to_be_bytes()
        .to_vec()
}

/// Few different bytes and all lengths from 0 to 11: heads that are equal by their zeros, keys that begin others.
fn dense_bytes(random: &mut Rng) -> Key {
    let len = random.index(12);
    (0..len).map(|_| [0, 0, 1, 0xff][random.index(4)]).collect()
}

/// A tag and three columns of 4 bytes, few different: equal heads, prefixes of every length.
fn composite(random: &mut Rng) -> Key {
    let mut key = vec![7];
    for range in [2, 3, 300] {
        key.extend((random.index(range) as u32).to_be_bytes());
    }
    key
}

/// Keys that share 40 bytes, more than a node's prefix can hold.
fn long_prefix(random: &mut Rng) -> Key {
    let mut key = vec![b'x'; 40];
    key.extend_from_slice(&(random.index(900) as u16).to_be_bytes());
    key.truncate(40 + random.index(3));
    key
}

/// Up to 70,000 bytes.
fn long(random: &mut Rng) -> Key {
    let len = [3, 100, 5_000, 70_000][random.index(4)];
    let mut key = vec![b'k'; len];
    let at = random.index(len);
    key[at] = random.index(256) as u8;
    key
}

fn compare(seed: u64, draw: Draw, steps: usize, remove_of_10: usize) -> Shape {
    let mut random = Rng::new(seed);
    let live = Arc::new(AtomicUsize::new(0));
    let tree = Tree::<Item>::new();
    let mut model = BTreeMap::<Key, u64>::new();
    for step in 0..steps {
        let key = draw(&mut random);
        let guard = pin();
        match random.index(10) {
            n if n < remove_of_10 => {
                let wanted = random.index(4) > 0;
                let removed = tree.remove_if(&key, |item| *item.key == *key && wanted, &guard);
                assert_eq!(removed, wanted && model.remove(&key).is_some());
            }
            n if n < 8 => {
                let value = step as u64;
                let (item, new) =
                    tree.get_or_insert(&key, || Item::make(&key, value, &live), &guard);
                assert_eq!(new, !model.contains_key(&key));
                assert_eq!(item.value, *model.entry(key).or_insert(value));
            }
            8 => assert_eq!(
                tree.get(&key, &guard).map(|item| item.value),
                model.get(&key).copied()
            ),
            _ => compare_scan(&tree, &model, &mut random, draw),
        }
        if step % 1024 == 0 {
            assert_sound(&tree);
        }
    }
    let shape = assert_sound(&tree);
    assert_eq!(shape.entries, model.len());
    drain(&live, model.len());
    drop(tree);
    drain(&live, 0);
    shape
}

fn compare_scan(tree: &Tree<Item>, model: &BTreeMap<Key, u64>, random: &mut Rng, draw: Draw) {
    let [low, high] = [draw(random), draw(random)];
    let bound = |random: &mut Rng, key| match random.index(4) {
        0 => Bound::Unbounded,
        1 => Bound::Excluded(key),
        _ => Bound::Included(key),
    };
    let [low, high] = [bound(random, &low[..]), bound(random, &high[..])];
    let direction = [Direction::Forward, Direction::Backward][random.index(2)];
    let above = |key: &[u8]| match low {
        Bound::Unbounded => true,
        Bound::Included(low) => low <= key,
        Bound::Excluded(low) => low < key,
    };
    let below = |key: &[u8]| match high {
        Bound::Unbounded => true,
        Bound::Included(high) => key <= high,
        Bound::Excluded(high) => key < high,
    };
    let mut expected: Vec<u64> = model
        .iter()
        .filter(|(k, _)| above(k) && below(k))
        .map(|(_, v)| *v)
        .collect();
    if direction == Direction::Backward {
        expected.reverse();
    }
    let guard = pin();
    let limit = 1 + random.index(150);
    let mut found = Vec::new();
    let more = tree.scan(low, high, direction, limit, &mut found, &guard);
    let values = |found: &[&Item]| found.iter().map(|item| item.value).collect::<Vec<_>>();
    assert_eq!(values(&found), expected[..limit.min(expected.len())]);
    assert!(more || found.len() == expected.len());
    assert!(!more || found.len() == limit);

    let mut cursor = tree.cursor(low, high, direction, &guard);
    found.clear();
    while cursor.next_batch(1 + random.index(100), &mut found) {}
    assert_eq!(values(&found), expected);
}

fn all(seed: u64, steps: usize) {
    compare(seed, eight_bytes, steps, 3);
    compare(seed, dense_bytes, steps, 3);
    compare(seed, composite, steps, 3);
    compare(seed, long_prefix, steps, 3);
    compare(seed, long, steps / 10, 3);
    // More removed than inserted: leaves come and go.
    compare(seed, eight_bytes, steps, 6);
    compare(seed, composite, steps, 6);
}

#[cfg(not(feature = "shuttle"))]
#[test]
fn random_operations() {
    (1..4).for_each(|seed| all(seed, 12_000));
}

#[cfg(feature = "shuttle")]
#[test]
fn random_operations_in_deep_trees() {
    for seed in 1..4 {
        crate::hold_the_epoch();
        let mut config = shuttle::Config::new();
        config.max_steps = shuttle::MaxSteps::None;
        let scheduler = shuttle::scheduler::RandomScheduler::new_from_seed(seed, 1);
        shuttle::Runner::new(scheduler, config).run(move || all(seed, 3_000));
    }
}

#[cfg(not(feature = "shuttle"))]
mod shapes {
    use super::*;

    fn inserted(keys: impl Iterator<Item = Key>) -> (Tree<Item>, Arc<AtomicUsize>) {
        let live = Arc::new(AtomicUsize::new(0));
        let tree = Tree::<Item>::new();
        for key in keys {
            assert!(
                tree.get_or_insert(&key, || Item::make(&key, 0, &live), &pin())
                    .1
            );
        }
        (tree, live)
    }

    /// How many entries a leaf holds on average.
    fn fill(keys: impl Iterator<Item = Key>) -> f64 {
        let shape = assert_sound(&inserted(keys).0);
        shape.entries as f64 / shape.leaves as f64
    }

    #[test]
    fn runs_leave_full_leaves() {
        assert!(fill((0..20_000u64).map(|n| n.to_be_bytes().to_vec())) > 61.0);
        assert!(fill((0..20_000u64).rev().map(|n| n.to_be_bytes().to_vec())) > 61.0);
        // Slightly out of order, as by several sessions.
        assert!(fill((0..20_000u64).map(|n| (n ^ 1).to_be_bytes().to_vec())) > 58.0);
        // Ten runs side by side.
        let district = |n: u64| [(n % 10).to_be_bytes(), (n / 10).to_be_bytes()].concat();
        assert!(fill((0..20_000).map(district)) > 55.0);
        let mut random = Rng::new(1);
        assert!(fill((0..20_000).map(|_| random.next_u64().to_be_bytes().to_vec())) > 40.0);
    }

    #[test]
    fn a_queue_leaves_nothing_behind() {
        let key = |n: u64| [b"queue".as_slice(), &n.to_be_bytes()].concat();
        let (tree, live) = inserted((0..300).map(key));
        let before = tree.bytes();
        for n in 0..100_000 {
            let guard = pin();
            assert!(tree.remove_if(&key(n), |_| true, &guard));
            assert!(
                tree.get_or_insert(
                    &key(n + 300),
                    || Item::make(&key(n + 300), 0, &live),
                    &guard
                )
                .1
            );
        }
        assert!(tree.bytes() < 2 * before, "{} -> {}", before, tree.bytes());
        for n in 100_000..100_300 {
            assert!(tree.remove_if(&key(n), |_| true, &pin()));
        }
        let shape = assert_sound(&tree);
        assert_eq!((shape.entries, shape.leaves, shape.empty_leaves), (0, 1, 1));
        drop(tree);
        drain(&live, 0);
    }

    #[test]
    fn a_panic_in_a_closure_leaves_the_tree_usable() {
        let (tree, live) = inserted((0..64u64).map(|n| n.to_be_bytes().to_vec()));
        let tree = std::panic::AssertUnwindSafe(tree);
        let key = 64u64.to_be_bytes();
        assert!(
            std::panic::catch_unwind(|| tree.get_or_insert(&key, || panic!("no memory"), &pin()).1)
                .is_err()
        );
        assert!(
            std::panic::catch_unwind(|| tree.remove_if(&[0; 8], |_| panic!("no"), &pin())).is_err()
        );
        assert_eq!(assert_sound(&tree).entries, 64);
        assert!(
            tree.get_or_insert(&key, || Item::make(&key, 0, &live), &pin())
                .1
        );
        assert!(tree.remove_if(&[0; 8], |_| true, &pin()));
    }
}
