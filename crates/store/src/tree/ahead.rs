//! Looking ahead: asking for the memory that a few keys will be found in, before the first of them is looked up.
//!
//! ```text
//! one after the other:   k1 leaf ─ entry ─ version   k2 leaf ─ entry ─ version   ...       3 n waits
//! looking ahead:         all leaves, then all entries, then all versions                   3 waits, near enough
//! ```
//! In a table that caches do not hold a look-up is three waits for memory, one after the other, because each tells the address of the
//! next. The waits of different keys do not depend on each other. Who knows his keys beforehand can have them at once.
//!
//! It is a hint: versions of nodes are not checked, so a writer beside it makes it ask for the wrong lines, and nothing else.

use crossbeam_epoch::Guard;

use super::latch::Attempt;
use super::node::{Inner, Leaf, NodePtr};
use super::slots::Probe;
use super::{Entry, Tree};

/// Keys looked up side by side; a core has about this many cache misses under way.
const SIDE_BY_SIDE: usize = 16;

impl<E: Entry> Tree<E> {
    /// Asks for the lines of what `get` of these keys reads, and calls `each` with the entries (likely those of the keys), whose own
    /// lines are on their way.
    pub fn prefetch<'g>(&'g self, keys: &[&[u8]], guard: &'g Guard, mut each: impl FnMut(&'g E)) {
        self.check_guard(guard);
        for keys in keys.chunks(SIDE_BY_SIDE) {
            let mut leaves = [None; SIDE_BY_SIDE];
            for (leaf, key) in leaves.iter_mut().zip(keys) {
                *leaf = self.leaf_ahead(&Probe::new(key), guard).ok();
            }
            let mut entries = [None; SIDE_BY_SIDE];
            for ((entry, leaf), key) in entries.iter_mut().zip(leaves).zip(keys) {
                let Some(leaf) = leaf else { continue };
                // SAFETY: `leaf_ahead` returns a leaf of this tree, alive while `guard` is.
                let leaf: &'g Leaf<E> = unsafe { Leaf::at(leaf) };
                *entry = leaf.slots.guess(&Probe::new(key));
                if let Some(e) = entry {
                    super::prefetch(*e);
                }
            }
            entries.into_iter().flatten().for_each(&mut each);
        }
    }

    /// The leaf whose range has the key, or one beside it; its lines have been asked for and not been looked at.
    fn leaf_ahead(&self, probe: &Probe, guard: &Guard) -> Attempt<NodePtr> {
        let (mut at, _, mut level) = self.enter(guard)?;
        while level > 0 {
            // SAFETY: a node reached under `guard` from the root or from a parent, with the level that says inner.
            let inner = unsafe { Inner::at(at) };
            let place = inner.slots.seek(probe)?;
            at = inner.child(place.slot + place.found.is_some() as usize)?;
            level -= 1;
        }
        // SAFETY: children of level 1, and a root of level 0, are leaves, alive under the caller's guard.
        let leaf: &Leaf<E> = unsafe { Leaf::at(at) };
        super::prefetch(&leaf.node);
        leaf.slots.prefetch();
        leaf.slots.prefetch_items();
        Ok(at)
    }
}
