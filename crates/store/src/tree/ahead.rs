//! Looking ahead: asking for the memory that a few keys will be found in, before the first of them is looked up.
//!
//! ```text
//! one after the other:   k1 leaf ─ entry ─ version   k2 leaf ─ entry ─ version   ...       3 n waits
//! looking ahead:         all leaves, then all entries, then all versions                   4 waits, near enough
//! ```
//! In a table that caches do not hold a look-up is three waits for memory, one after the other, because each tells the address of the
//! next. The waits of different keys do not depend on each other. Who knows his keys beforehand can have them at once. A leaf takes two:
//! its header and samples, then the heads and items of one group. That is four lines of it, where a look-up alone asks for all
//! eighteen so as to wait but once; sixteen keys side by side would wait for the bandwidth.
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
            let mut probes = [Probe::new(&[]); SIDE_BY_SIDE];
            for (probe, key) in probes.iter_mut().zip(keys) {
                *probe = Probe::new(key);
            }
            let probes = &probes[..keys.len()];
            let mut leaves = [None; SIDE_BY_SIDE];
            self.leaves_ahead(probes, &mut leaves, guard);
            for (leaf, probe) in leaves.iter().zip(probes) {
                if let Some(leaf) = leaf {
                    // SAFETY: `leaves_ahead` gives leaves of this tree, alive while `guard` is.
                    let leaf: &Leaf<E> = unsafe { Leaf::at(*leaf) };
                    leaf.slots.prefetch_group(probe);
                }
            }
            let mut entries = [None; SIDE_BY_SIDE];
            for ((entry, leaf), probe) in entries.iter_mut().zip(leaves).zip(probes) {
                let Some(leaf) = leaf else { continue };
                // SAFETY: as above.
                let leaf: &'g Leaf<E> = unsafe { Leaf::at(leaf) };
                *entry = leaf.slots.guess(probe);
                if let Some(e) = entry {
                    super::prefetch(*e);
                }
            }
            entries.into_iter().flatten().for_each(&mut each);
        }
    }

    /// For each key the leaf whose range has it, or one beside it; header and samples have been asked for and not been looked at. A level
    /// at a time, so that the waits of one level overlap, too.
    fn leaves_ahead(&self, probes: &[Probe], out: &mut [Option<NodePtr>], guard: &Guard) {
        let Ok((root, _, mut level)) = self.enter(guard) else {
            return;
        };
        let out = &mut out[..probes.len()];
        out.fill(Some(root));
        while level > 0 {
            level -= 1;
            for (at, probe) in out.iter_mut().zip(probes) {
                *at = at.and_then(|at| self.child_ahead(at, level == 0, probe).ok());
            }
        }
    }

    /// The child of an inner node, a leaf or not, with its first lines asked for.
    #[inline]
    fn child_ahead(&self, at: NodePtr, to_leaf: bool, probe: &Probe) -> Attempt<NodePtr> {
        // SAFETY: a node reached under the caller's guard from the root or from a parent, with the level that says inner.
        let inner = unsafe { Inner::at(at) };
        let place = inner.slots.seek(probe)?;
        let child = inner.child(place.slot + place.found.is_some() as usize)?;
        if to_leaf {
            // SAFETY: children of level 1 are leaves, alive under the caller's guard.
            let leaf: &Leaf<E> = unsafe { Leaf::at(child) };
            leaf.slots.prefetch_samples();
        } else {
            // SAFETY: children of higher levels are inner nodes, alive under the caller's guard.
            unsafe { Inner::at(child) }.slots.prefetch_samples();
        }
        Ok(child)
    }
}
