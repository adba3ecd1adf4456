//! Insertion with splits, removal with the unlinking of empty leaves.
//!
//! An insert goes down like a reader and locks its leaf alone. If the leaf is full it goes down once more, and this time
//! splits every full inner node that it meets, so that the parent of the leaf has room when the leaf is split; each split
//! locks a parent and a child and begins again afterwards.
//!
//! A split leaves the left half in place (its version moves on) and makes a new node of the right one, which is linked
//! before any lock is dropped: who comes by the parent sees both or is sent back. A node's range only ever shrinks
//! by a split, and grows when an empty neighbour is unlinked. The latter does not move its version: a read that took the node
//! for smaller than it is holds nothing wrong, as it has no key in the part that came to it.

use std::mem;
use std::ptr::NonNull;

use crossbeam_epoch::Guard;
use env::sync::atomic::Ordering;

use super::latch::{Attempt, Backoff, Restart, WriteGuard};
use super::node::{self, Inner, Leaf, NodePtr, Separator};
use super::slots::{CAPACITY, Probe};
use super::{Entry, Tree, Versioned};

/// An attempt to insert that went through.
enum Inserted<'g, E> {
    New(&'g E),
    Found(&'g E),
    /// The leaf is full, or something above it was and has been split: go down splitting.
    Full,
}

/// A tree is not deeper: with two children a node it would have more leaves than memory has bytes.
const MAX_DEPTH: usize = 48;

impl<E: Entry> Tree<E> {
    /// The entry with this key; if there is none, the one that `make` returns, which is called only then and whose key
    /// must be `key`. True if it was inserted. `make` runs with the leaf locked: it must not use the tree.
    #[inline]
    pub fn get_or_insert<'g>(
        &self,
        key: &[u8],
        make: impl FnOnce() -> NonNull<E>,
        guard: &'g Guard,
    ) -> (&'g E, bool) {
        self.check_guard(guard);
        let probe = Probe::new(key);
        let mut make = Some(make);
        let mut make = || make.take().expect("an entry is made once")();
        let mut backoff = Backoff::default();
        let mut full = false;
        loop {
            let attempt = if full {
                self.try_insert_splitting(&probe, &mut make, guard)
            } else {
                self.try_insert(&probe, &mut make, guard)
            };
            match attempt {
                Ok(Inserted::Found(entry)) => return (entry, false),
                Ok(Inserted::New(entry)) => {
                    self.len.add(1);
                    return (entry, true);
                }
                Ok(Inserted::Full) => full = true,
                Err(Restart) => backoff.wait(),
            }
        }
    }

    #[inline]
    fn try_insert<'g>(
        &self,
        probe: &Probe,
        make: &mut impl FnMut() -> NonNull<E>,
        guard: &'g Guard,
    ) -> Attempt<Inserted<'g, E>> {
        let (leaf, version) = self.descend(probe, guard)?;
        // SAFETY: `descend` returns a leaf of this tree, alive while `guard` is.
        let leaf: &'g Leaf<E> = unsafe { Leaf::at(leaf) };
        let place = leaf.slots.seek(probe)?;
        if let Some(found) = place.found {
            leaf.node.latch.check(version)?;
            return Ok(Inserted::Found(found));
        }
        if leaf.slots.count() == CAPACITY {
            return Ok(Inserted::Full);
        }
        let _locked = leaf.node.latch.upgrade(version)?;
        Ok(Inserted::New(Self::insert_at(
            leaf, place.slot, probe, make,
        )))
    }

    /// Locked, with room.
    #[inline]
    fn insert_at<'g>(
        leaf: &Leaf<E>,
        slot: usize,
        probe: &Probe,
        make: &mut impl FnMut() -> NonNull<E>,
    ) -> &'g E {
        let entry = Self::made(probe, make);
        leaf.slots.insert(slot, entry);
        // SAFETY: alive and now the tree's; retired through the epoch, and the caller is pinned for 'g.
        unsafe { entry.as_ref() }
    }

    #[inline]
    fn made(probe: &Probe, make: &mut impl FnMut() -> NonNull<E>) -> NonNull<E> {
        let entry = make();
        // SAFETY: `make` hands over a live entry.
        let made = unsafe { entry.as_ref() };
        assert!(made.key() == probe.key, "an entry is made with another key");
        entry
    }

    #[cold]
    #[inline(never)]
    fn try_insert_splitting<'g>(
        &self,
        probe: &Probe,
        make: &mut impl FnMut() -> NonNull<E>,
        guard: &'g Guard,
    ) -> Attempt<Inserted<'g, E>> {
        let (mut at, mut version, mut level) = self.enter(guard)?;
        let mut parent: Option<Versioned> = None;
        while level > 0 {
            // SAFETY: a node reached under `guard`, with the level that says inner.
            let inner = unsafe { Inner::at(at) };
            let place = inner.slots.seek(probe)?;
            let index = place.slot + place.found.is_some() as usize;
            if inner.slots.count() == CAPACITY {
                self.split_inner(parent, (at, version), index, probe)?;
                return Ok(Inserted::Full);
            }
            let child = inner.child(index)?;
            let child_version = self.step(child, level == 1, &inner.node, version)?;
            parent = Some((at, version));
            (at, version) = (child, child_version);
            level -= 1;
        }
        // SAFETY: a leaf reached under `guard`.
        let leaf: &'g Leaf<E> = unsafe { Leaf::at(at) };
        let place = leaf.slots.seek(probe)?;
        if let Some(found) = place.found {
            leaf.node.latch.check(version)?;
            return Ok(Inserted::Found(found));
        }
        let above = self.lock_parent(parent, at)?;
        let locked = leaf.node.latch.upgrade(version)?;
        if leaf.slots.count() < CAPACITY {
            drop(above);
            return Ok(Inserted::New(Self::insert_at(
                leaf, place.slot, probe, make,
            )));
        }
        let entry = Self::made(probe, make);
        let new = Leaf::<E>::alloc();
        // SAFETY: just made.
        let right: &Leaf<E> = unsafe { Leaf::at(new) };
        let cut = leaf.slots.cut(place.slot);
        if place.slot < cut {
            leaf.slots.move_tail(cut - 1, &right.slots);
            leaf.slots.insert(place.slot, entry);
        } else {
            leaf.slots.move_tail(cut, &right.slots);
            right.slots.insert(place.slot - cut, entry);
        }
        leaf.slots.tighten();
        right.slots.tighten();
        right.slots.tighten_like(&leaf.slots);
        let last = leaf.slots.item(cut - 1).expect("a used slot is not null");
        let first = right.slots.item(0).expect("a used slot is not null");
        let separator = Separator::between(last.key(), first.key());
        self.link(above, at, separator, new, probe);
        drop(locked);
        // SAFETY: alive and now the tree's; retired through the epoch, and the caller is pinned for 'g.
        Ok(Inserted::New(unsafe { entry.as_ref() }))
    }

    /// The lock that lets `child` be split: its parent's, or for the root the lock of `child` itself, which comes next.
    fn lock_parent<'g>(
        &self,
        parent: Option<Versioned>,
        child: NodePtr,
    ) -> Attempt<Option<(&'g Inner, WriteGuard<'g>)>> {
        match parent {
            Some((parent, version)) => {
                // SAFETY: an inner node reached under the guard of the operation.
                let parent = unsafe { Inner::at(parent) };
                Ok(Some((parent, parent.node.latch.upgrade(version)?)))
            }
            // The root pointer moves only under the lock of the node that it points to, and `enter` found it there under
            // the version that is upgraded next: if that works, `child` is still the root.
            None if self.root.load(Ordering::Acquire) == child.as_ptr() => Ok(None),
            None => Err(Restart),
        }
    }

    /// Links the new right half of `left`, which is locked, under `above`, which is locked and has room, or a new root.
    fn link(
        &self,
        above: Option<(&Inner, WriteGuard)>,
        left: NodePtr,
        separator: NonNull<Separator>,
        right: NodePtr,
        probe: &Probe,
    ) {
        // SAFETY: both are the caller's, locked or new; the separator is not yet published.
        let (level, separator_size) = unsafe { (right.as_ref().level, separator.as_ref().size()) };
        let mut bytes = node::size_of_node::<E>(level) + separator_size;
        match above {
            Some((parent, locked)) => {
                // The parent was searched under the version that its lock proved: this is where the child stands.
                let place = parent.slots.seek(probe).expect("a locked node is whole");
                parent.insert(
                    place.slot + place.found.is_some() as usize,
                    separator,
                    right,
                );
                drop(locked);
            }
            None => {
                let root = Inner::alloc(level + 1);
                // SAFETY: just made.
                let inner = unsafe { Inner::at(root) };
                inner.set_child(0, left);
                inner.insert(0, separator, right);
                bytes += node::size_of_node::<E>(level + 1);
                self.root.store(root.as_ptr(), Ordering::Release);
            }
        }
        self.node_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Splits a full inner node; the descent that met it would have gone on at child `index`.
    fn split_inner(
        &self,
        parent: Option<Versioned>,
        (at, version): Versioned,
        index: usize,
        probe: &Probe,
    ) -> Attempt<()> {
        // SAFETY: an inner node reached under the guard of the operation.
        let left = unsafe { Inner::at(at) };
        let above = self.lock_parent(parent, at)?;
        let locked = left.node.latch.upgrade(version)?;
        let new = Inner::alloc(left.node.level);
        // SAFETY: just made.
        let right = unsafe { Inner::at(new) };
        let middle = left.slots.cut(index).min(CAPACITY - 1);
        let separator = left.split(middle, right);
        // `left.split` counted a removal, not a new key: only `link` below adds the separator's bytes, and they are
        // counted already.
        // SAFETY: taken out of a locked node, not yet published again.
        let moved = unsafe { separator.as_ref() }.size();
        left.slots.tighten();
        right.slots.tighten();
        self.link(above, at, separator, new, probe);
        self.node_bytes.fetch_sub(moved, Ordering::Relaxed);
        drop(locked);
        Ok(())
    }

    /// Removes the entry with this key if `condition` holds, and frees it when nobody can see it any more. `condition` is
    /// evaluated with the leaf locked, when nobody can insert or remove there: it must not use the tree.
    pub fn remove_if(&self, key: &[u8], condition: impl FnOnce(&E) -> bool, guard: &Guard) -> bool {
        self.check_guard(guard);
        let probe = Probe::new(key);
        let mut backoff = Backoff::default();
        let mut condition = Some(condition);
        let emptied = loop {
            match self.try_remove(&probe, &mut condition, guard) {
                Ok(None) => return false,
                Ok(Some(emptied)) => break emptied,
                Err(Restart) => backoff.wait(),
            }
        };
        self.len.add(usize::MAX);
        if emptied {
            while self.try_unlink(&probe, guard).is_err() {
                backoff.wait();
            }
        }
        true
    }

    /// Some if the entry was removed, true if its leaf is empty now.
    fn try_remove(
        &self,
        probe: &Probe,
        condition: &mut Option<impl FnOnce(&E) -> bool>,
        guard: &Guard,
    ) -> Attempt<Option<bool>> {
        let (leaf, version) = self.descend(probe, guard)?;
        // SAFETY: `descend` returns a leaf of this tree, alive while `guard` is.
        let leaf: &Leaf<E> = unsafe { Leaf::at(leaf) };
        let place = leaf.slots.seek(probe)?;
        let Some(found) = place.found else {
            leaf.node.latch.check(version)?;
            return Ok(None);
        };
        let locked = leaf.node.latch.upgrade(version)?;
        let condition = condition
            .take()
            .expect("only a locked leaf asks, and that ends the operation");
        if !condition(found) {
            locked.release_unchanged();
            return Ok(None);
        }
        let entry = leaf.slots.remove(place.slot);
        let emptied = leaf.slots.count() == 0;
        drop(locked);
        // SAFETY: out of its only slot, so nobody who pins from now on can reach it; nobody else removed it.
        unsafe { guard.defer_unchecked(move || E::free(entry)) };
        Ok(Some(emptied))
    }

    /// Unlinks the leaf of a key if it is empty, together with the parents that would have no child without it.
    fn try_unlink(&self, probe: &Probe, guard: &Guard) -> Attempt<()> {
        let (mut at, mut version, mut level) = self.enter(guard)?;
        // The path from the lowest node that has another child, with the index taken there.
        let mut path: Vec<Versioned> = Vec::with_capacity(MAX_DEPTH);
        let mut top_index = 0;
        while level > 0 {
            // SAFETY: a node reached under `guard`, with the level that says inner.
            let inner = unsafe { Inner::at(at) };
            let place = inner.slots.seek(probe)?;
            let index = place.slot + place.found.is_some() as usize;
            if inner.slots.count() > 0 {
                path.clear();
                top_index = index;
            }
            path.push((at, version));
            let child = inner.child(index)?;
            (at, version) = (child, self.step(child, level == 1, &inner.node, version)?);
            level -= 1;
        }
        // SAFETY: a leaf reached under `guard`.
        let leaf: &Leaf<E> = unsafe { Leaf::at(at) };
        // The first on the path has no other child only if no node above has: then the whole tree is this leaf.
        let Some(&(top, top_version)) = path.first() else {
            return Ok(());
        };
        // SAFETY: an inner node reached under `guard`.
        let top = unsafe { Inner::at(top) };
        if leaf.slots.count() > 0 || top.slots.count() == 0 {
            return leaf.node.latch.check(version);
        }
        let top_locked = top.node.latch.upgrade(top_version)?;
        path.push((at, version));
        let mut locked = Vec::with_capacity(path.len());
        for &(node, version) in &path[1..] {
            // SAFETY: reached under `guard`.
            match unsafe { node.as_ref() }.latch.upgrade(version) {
                Ok(guard) => locked.push(guard),
                Err(restart) => {
                    locked.into_iter().for_each(WriteGuard::release_unchanged);
                    top_locked.release_unchanged();
                    return Err(restart);
                }
            }
        }
        let separator = top.remove(top_index);
        locked.into_iter().for_each(WriteGuard::retire);
        drop(top_locked);
        // SAFETY: taken out of its only slot.
        let mut bytes = unsafe { separator.as_ref() }.size();
        // SAFETY: as above; who pins from now on cannot reach it.
        unsafe { guard.defer_unchecked(move || Separator::free(separator)) };
        for (node, _) in mem::take(&mut path).into_iter().skip(1) {
            // SAFETY: under our lock until just now, obsolete and out of the tree since; nothing is in it any more but
            // children that are retired here too.
            unsafe {
                bytes += node::size_of_node::<E>(node.as_ref().level);
                guard.defer_unchecked(move || node::free::<E>(node));
            }
        }
        self.node_bytes.fetch_sub(bytes, Ordering::Relaxed);
        Ok(())
    }
}
