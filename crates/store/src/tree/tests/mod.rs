//! Tests of the tree: against a model, under threads, and (feature `shuttle`) under a scheduler that explores
//! interleavings.
//!
//! ```text
//! cargo test -p store tree
//! cargo test -p store --features shuttle tree              nodes of 4 slots, so trees are deep
//!
//! RUSTFLAGS="-Zsanitizer=thread --cfg crossbeam_sanitize_thread --cfg crossbeam_sanitize" cargo +nightly test
//!     -Zbuild-std --target x86_64-unknown-linux-gnu -p store --lib tree::tests::threads
//! RUSTFLAGS="-Zsanitizer=address --cfg crossbeam_sanitize" cargo +nightly test
//!     --target x86_64-unknown-linux-gnu -p store --lib tree
//! ```
//!
//! `-Zbuild-std` wants the nightly's `rust-src`; the first build takes minutes, the tests seconds. That the sanitizers see
//! what they should was tried by hand: with the item's pointer stored `Relaxed` instead of `Release`, ThreadSanitizer
//! reports races on the entries' keys; with an entry freed at once instead of through the epoch, AddressSanitizer reports
//! uses after free.

#[cfg(feature = "shuttle")]
mod interleavings;
mod model;
#[cfg(not(feature = "shuttle"))]
mod threads;

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::node::{Inner, Leaf, NodePtr};
use super::{Entry, Tree};

/// An entry that counts itself in and out.
pub(super) struct Item {
    key: Box<[u8]>,
    pub value: u64,
    live: Arc<AtomicUsize>,
}

impl Item {
    pub fn make(key: &[u8], value: u64, live: &Arc<AtomicUsize>) -> NonNull<Item> {
        live.fetch_add(1, Ordering::Relaxed);
        NonNull::from(Box::leak(Box::new(Item {
            key: key.into(),
            value,
            live: live.clone(),
        })))
    }
}

// SAFETY: the key is in its own box and not changed; `free` takes back what `make` leaked.
unsafe impl Entry for Item {
    fn key(&self) -> &[u8] {
        &self.key
    }

    unsafe fn free(item: NonNull<Self>) {
        // SAFETY: made by `make`, and the last pointer.
        let item = unsafe { Box::from_raw(item.as_ptr()) };
        assert!(item.live.fetch_sub(1, Ordering::Relaxed) > 0, "freed twice");
    }
}

/// What a look over a tree that nobody else uses found.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Shape {
    pub entries: usize,
    pub leaves: usize,
    pub empty_leaves: usize,
    pub height: u32,
    pub bytes: usize,
}

/// Checks every node: keys ascend, lie between the separators above, levels fall by one, and the counts agree.
pub(super) fn assert_sound<E: Entry>(tree: &Tree<E>) -> Shape {
    let mut shape = Shape {
        bytes: size_of::<Tree<E>>(),
        ..Shape::default()
    };
    let root = NonNull::new(tree.root.load(Ordering::Relaxed)).expect("root");
    // SAFETY: nobody changes the tree during the call.
    shape.height = unsafe { root.as_ref() }.level + 1;
    walk::<E>(root, None, None, &mut shape);
    assert_eq!(shape.entries, tree.len());
    assert_eq!(shape.bytes, tree.bytes());
    shape
}

fn walk<E: Entry>(at: NodePtr, low: Option<&[u8]>, high: Option<&[u8]>, shape: &mut Shape) {
    let inside =
        |key: &[u8]| low.is_none_or(|low| low <= key) && high.is_none_or(|high| key < high);
    // SAFETY: nobody changes the tree during the call, so all that is linked is alive; levels tell types.
    unsafe {
        let level = at.as_ref().level;
        at.as_ref()
            .latch
            .read()
            .expect("a linked node is not obsolete");
        shape.bytes += super::node::size_of_node::<E>(level);
        if level == 0 {
            let leaf = Leaf::<E>::at(at);
            leaf.slots.assert_sound();
            let count = leaf.slots.count();
            assert!((0..count).all(|i| inside(leaf.slots.item(i).expect("used").key())));
            shape.entries += count;
            shape.leaves += 1;
            shape.empty_leaves += (count == 0) as usize;
            return;
        }
        let inner = Inner::at(at);
        inner.slots.assert_sound();
        let count = inner.slots.count();
        let separator = |i: usize| inner.slots.item(i).expect("used");
        for i in 0..=count {
            let left = if i == 0 {
                low
            } else {
                Some(separator(i - 1).key())
            };
            let right = if i == count {
                high
            } else {
                Some(separator(i).key())
            };
            let child = inner.child(i).expect("used");
            assert_eq!(child.as_ref().level + 1, level);
            walk::<E>(child, left, right, shape);
        }
        for i in 0..count {
            assert!(inside(separator(i).key()));
            shape.bytes += separator(i).size();
        }
    }
}

/// What `prefetch` hands out in a tree that nobody changes: the entry of each key that is there.
#[cfg(not(feature = "shuttle"))]
#[test]
fn looking_ahead_finds_the_entries_that_get_finds() {
    let live = Arc::new(AtomicUsize::new(0));
    let tree = Tree::<Item>::new();
    let key = |n: u64| (n * 3).to_be_bytes();
    let guard = crossbeam_epoch::pin();
    tree.prefetch(&[&key(1)], &guard, |_| panic!("nothing is there"));
    for n in 0..10_000 {
        tree.get_or_insert(&key(n), || Item::make(&key(n), n, &live), &guard);
    }
    let mut random = workload::rng::Rng::new(7);
    for count in [1, 16, 17, 40] {
        let keys: Vec<_> = (0..count)
            .map(|_| key(random.next_u64() % 10_000))
            .collect();
        let named: Vec<&[u8]> = keys.iter().map(|k| &k[..]).collect();
        let mut found = vec![];
        tree.prefetch(&named, &guard, |e: &Item| found.push(e.key.clone()));
        assert_eq!(found.len(), count);
        assert!(found.iter().zip(&keys).all(|(f, k)| **f == k[..]));
    }
}

/// Runs the epoch on until everything that was retired is freed.
pub(super) fn drain(live: &AtomicUsize, expected: usize) {
    if cfg!(feature = "shuttle") {
        return; // Nothing is freed there: see `hold_the_epoch`.
    }
    for round in 0..100_000 {
        if live.load(Ordering::Relaxed) == expected {
            return;
        }
        crossbeam_epoch::pin().flush();
        // Another test's thread may be pinned and not be given a core for long.
        match round {
            0..1000 => std::thread::yield_now(),
            _ => std::thread::sleep(std::time::Duration::from_millis(1)),
        }
    }
    panic!(
        "{} entries alive, not {expected}",
        live.load(Ordering::Relaxed)
    );
}
