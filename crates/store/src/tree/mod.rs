//! The ordered index: a concurrent B+-tree in memory over keys of any length, in the order of their bytes.
//!
//! ```text
//!              Inner (level 2)          heads | separators | children
//!             /       |       \
//!        Inner      Inner     Inner     a node: version latch, then slots made of atomics (`slots`)
//!       /  |  \
//!   Leaf Leaf Leaf                      heads | entries: thin pointers to objects that carry their key (`Entry`)
//! ```
//!
//! **Optimistic lock coupling** (Leis et al., *The ART of Practical Synchronization*, §4). A reader goes down without
//! writing to shared memory: it takes a node's version, finds the child, takes the child's version, and checks that the
//! parent's has not moved; if it has, it begins again at the root. A writer does the same and turns the leaf's version
//! into a lock; only a split or an unlinked leaf locks parents too. See `latch` for why that is enough, `slots` for how a
//! node is searched and why a torn read does no harm, `write` for splits, `scan` for ranges.
//!
//! **Linearization.** A point operation takes effect at its leaf: a read at the check of the leaf's version, a write at the
//! unlocking of the leaf. A scan is that, leaf by leaf. So after `get_or_insert` of a key has returned, every scan of a
//! range with that key that starts later returns it: who validates a range by scanning it again misses no phantom.
//!
//! **Reclamation.** Entries, separators and nodes that leave the tree are freed through `crossbeam-epoch`: nobody who was
//! pinned while they could be reached sees them freed, dropping the tree included. All guards must be of the default
//! collector; this is asserted.
//!
//! **Sizes.** 64 slots a node; a slot costs 16 bytes in a leaf. Leaves are half full after a split in the middle and
//! full after one at the end of a run (see `Slots::cut`), so 17 bytes an entry under ascending inserts and about 24
//! under random ones. A leaf that gets empty is unlinked, with parents that have no other child.
//!
//! Left out on purpose: leaves that are sparse but not empty are not merged (a churning table fills them again); the root
//! is never lowered; leaves have no sibling pointers (a scan finds the next leaf by its separator, one descent per leaf,
//! which makes splits and unlinking local).

mod ahead;
mod latch;
mod node;
mod scan;
mod slots;
mod write;

#[cfg(test)]
mod tests;

use std::marker::PhantomData;
use std::ptr::NonNull;

use crossbeam_epoch::{Collector, Guard};
use env::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use latch::{Attempt, Backoff, Restart, Version};
use node::{Inner, Leaf, NodePtr};
use slots::Probe;

pub use scan::{Cursor, Direction};

/// What the tree holds: an object on the heap that carries its key, and knows how it is freed.
///
/// # Safety
/// `key` returns the same bytes for as long as the object lives. `free` may be called from any thread.
pub unsafe trait Entry: Send + Sync + Sized + 'static {
    fn key(&self) -> &[u8];

    /// Frees the object.
    ///
    /// # Safety
    /// `entry` is the last pointer to it, and carries the provenance that the tree was given with it.
    unsafe fn free(entry: NonNull<Self>);
}

/// A map from keys to entries, shared by any number of threads.
pub struct Tree<E: Entry> {
    root: AtomicPtr<node::Node>,
    collector: Collector,
    node_bytes: AtomicUsize,
    len: Len,
    owns: PhantomData<E>,
}

/// A node and the version under which it was read.
type Versioned = (NodePtr, Version);

impl<E: Entry> Default for Tree<E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<E: Entry> Tree<E> {
    pub fn new() -> Self {
        Tree {
            root: AtomicPtr::new(Leaf::<E>::alloc().as_ptr()),
            collector: crossbeam_epoch::default_collector().clone(),
            node_bytes: AtomicUsize::new(node::size_of_node::<E>(0)),
            len: Len::default(),
            owns: PhantomData,
        }
    }

    /// The entry with this key.
    #[inline]
    pub fn get<'g>(&self, key: &[u8], guard: &'g Guard) -> Option<&'g E> {
        self.check_guard(guard);
        let probe = Probe::new(key);
        let mut backoff = Backoff::default();
        loop {
            match self.try_get(&probe, guard) {
                Ok(found) => return found,
                Err(Restart) => backoff.wait(),
            }
        }
    }

    #[inline]
    fn try_get<'g>(&self, probe: &Probe, guard: &'g Guard) -> Attempt<Option<&'g E>> {
        let (leaf, version) = self.descend(probe, guard)?;
        // SAFETY: `descend` returns a leaf of this tree, alive while `guard` is.
        let leaf: &'g Leaf<E> = unsafe { Leaf::at(leaf) };
        let place = leaf.slots.seek(probe)?;
        leaf.node.latch.check(version)?;
        Ok(place.found)
    }

    /// The leaf whose range has the key.
    #[inline]
    fn descend(&self, probe: &Probe, guard: &Guard) -> Attempt<Versioned> {
        let (mut at, mut version, mut level) = self.enter(guard)?;
        while level > 0 {
            // SAFETY: a node reached under `guard` from the root or from a parent, with the level that says inner.
            let inner = unsafe { Inner::at(at) };
            let place = inner.slots.seek(probe)?;
            let child = inner.child(place.slot + place.found.is_some() as usize)?;
            (at, version) = (child, self.step(child, level == 1, &inner.node, version)?);
            level -= 1;
        }
        Ok((at, version))
    }

    /// The root, its version and level.
    #[inline]
    fn enter(&self, _guard: &Guard) -> Attempt<(NodePtr, Version, u32)> {
        let root = NonNull::new(self.root.load(Ordering::Acquire)).expect("a tree has a root");
        // SAFETY: a root is retired only after another has taken its place, through the epoch, so this one is alive
        // while `guard` is.
        let node = unsafe { root.as_ref() };
        let version = node.latch.read()?;
        // A root that was split is the left half of the tree: the pointer moved on before the lock was dropped.
        if self.root.load(Ordering::Acquire) != root.as_ptr() {
            return Err(Restart);
        }
        Ok((root, version, node.level))
    }

    /// From a parent to a child: the child's version first, then the parent's must still stand.
    #[inline]
    fn step(
        &self,
        child: NodePtr,
        is_leaf: bool,
        parent: &node::Node,
        parent_version: Version,
    ) -> Attempt<Version> {
        if is_leaf {
            // SAFETY: children of level 1 are leaves, alive under the caller's guard.
            let leaf: &Leaf<E> = unsafe { Leaf::at(child) };
            leaf.slots.prefetch();
            leaf.slots.prefetch_items();
        } else {
            // SAFETY: children of higher levels are inner nodes, alive under the caller's guard.
            unsafe { Inner::at(child) }.prefetch();
        }
        // SAFETY: a pointer that stood in a child slot of a node reached under the caller's guard.
        let version = unsafe { child.as_ref() }.latch.read()?;
        parent.latch.check(parent_version)?;
        Ok(version)
    }

    /// How many entries there are; while others insert and remove, about.
    pub fn len(&self) -> usize {
        self.len.sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes in nodes and separators; the entries are the caller's to count.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.node_bytes.load(Ordering::Relaxed)
    }

    #[inline]
    fn check_guard(&self, guard: &Guard) {
        assert!(
            guard.collector() == Some(&self.collector),
            "a guard of another collector protects nothing here"
        );
    }
}

// SAFETY: the tree is shared memory under its own protocol (see above); entries are `Send + Sync` by their trait.
unsafe impl<E: Entry> Send for Tree<E> {}
// SAFETY: as above.
unsafe impl<E: Entry> Sync for Tree<E> {}

impl<E: Entry> Drop for Tree<E> {
    fn drop(&mut self) {
        let root = NonNull::new(self.root.load(Ordering::Relaxed)).expect("a tree has a root");
        // SAFETY: nobody can enter any more, and what was retired before is no longer linked, so all that can be reached
        // is freed once. Later, for references to entries live as long as the guard they were taken under.
        unsafe {
            // No account has them back: the thread that comes to it is any.
            let free = move || base::memory::apart(|| free_all::<E>(root));
            crossbeam_epoch::pin().defer_unchecked(free);
        }
    }
}

/// # Safety
/// Nobody else can reach `node`, and it is not used again.
unsafe fn free_all<E: Entry>(node: NodePtr) {
    // SAFETY: the level tells the type; children and items of a node are its own. The recursion is as deep as the tree.
    unsafe {
        if node.as_ref().level == 0 {
            let leaf = Leaf::<E>::at(node);
            (0..leaf.slots.count())
                .for_each(|i| E::free(leaf.slots.pointer(i).expect("a used slot is not null")));
        } else {
            let inner = Inner::at(node);
            let count = inner.slots.count();
            (0..=count)
                .for_each(|i| free_all::<E>(inner.child(i).expect("a used slot is not null")));
            (0..count).for_each(|i| {
                Entry::free(inner.slots.pointer(i).expect("a used slot is not null"))
            });
        }
        node::free::<E>(node);
    }
}

/// A count spread over cache lines, so that threads that insert do not meet there.
#[derive(Default)]
struct Len([Stripe; 8]);

#[derive(Default)]
#[repr(align(128))]
struct Stripe(AtomicUsize);

impl Len {
    /// Adds; `usize::MAX` takes one away.
    #[inline]
    fn add(&self, n: usize) {
        self.0[stripe() % 8].0.fetch_add(n, Ordering::Relaxed);
    }

    fn sum(&self) -> usize {
        let sum = self.0.iter().fold(0usize, |sum, s| {
            sum.wrapping_add(s.0.load(Ordering::Relaxed))
        });
        // A removal may be seen before the insertion that another thread counted.
        if sum > isize::MAX as usize { 0 } else { sum }
    }
}

/// A small number that differs between threads.
#[inline]
fn stripe() -> usize {
    use std::sync::atomic::AtomicUsize;
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static MINE: usize = NEXT.fetch_add(1, Ordering::Relaxed));
    MINE.with(|mine| *mine)
}

/// Asks for a cache line. A hint: any address will do.
#[inline]
pub fn prefetch<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch does not fault and changes nothing that a program can see.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
