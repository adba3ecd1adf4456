//! Range scans, forward and backward, in batches.
//!
//! A cursor reads a leaf optimistically: the wanted slots into the caller's vector, then the check of the version; if it
//! fails, that leaf's part is thrown away and read again. Where a leaf ends, the separator that bounds it in the parents
//! (its *fence*, met on the way down) is where the next descent begins. Between batches the cursor keeps leaf, version and
//! slot: while the leaf has not changed it goes on there, else it goes down again to behind the last entry returned.
//!
//! So the entries come in strict order of keys, none twice; every leaf's part is what the leaf held at one moment, and those
//! moments come in order. An entry that is in the range from the first batch to the last is returned. A fence that is
//! outdated (leaves were split or unlinked since) is still a key below which everything was read, and that is all that is
//! asked of it.

use std::ops::Bound;
use std::ptr::NonNull;

use crossbeam_epoch::Guard;

use super::latch::{Attempt, Backoff, Restart, Version};
use super::node::{Inner, Leaf, Separator};
use super::slots::{Probe, Slots};
use super::{Entry, Tree};

/// Which end of the range comes first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    Forward,
    Backward,
}

use Direction::{Backward, Forward};

/// A scan under way. It holds its guard's epoch back: end long scans now and then, and begin again behind the last key.
///
/// It borrows tree and guard for `'g`, its bounds for `'k`.
pub struct Cursor<'k, 'g: 'k, E: Entry> {
    tree: &'g Tree<E>,
    guard: &'g Guard,
    direction: Direction,
    /// Where the next descent goes.
    near: Near<'k, 'g, E>,
    far: Bound<&'k [u8]>,
    leaf: Option<At<'g, E>>,
    done: bool,
}

/// The keys that are still to come begin here.
enum Near<'k, 'g, E> {
    Bound(Bound<&'k [u8]>),
    Behind(&'g E),
}

/// A place in a leaf. What is still to be read there are the slots `next..end` forward, `end..next` backward.
struct At<'g, E> {
    leaf: &'g Leaf<E>,
    version: Version,
    next: usize,
    end: usize,
    /// The far bound lies in this leaf: nothing in the range is beyond.
    last: bool,
    /// Parts this leaf from the next one, unless there is none.
    fence: Option<NonNull<Separator>>,
}

impl<E: Entry> Tree<E> {
    /// A scan of the keys between two bounds.
    pub fn cursor<'k, 'g: 'k>(
        &'g self,
        low: Bound<&'k [u8]>,
        high: Bound<&'k [u8]>,
        direction: Direction,
        guard: &'g Guard,
    ) -> Cursor<'k, 'g, E> {
        self.check_guard(guard);
        let (near, far) = match direction {
            Forward => (low, high),
            Backward => (high, low),
        };
        Cursor {
            tree: self,
            guard,
            direction,
            near: Near::Bound(near),
            far,
            leaf: None,
            done: false,
        }
    }

    /// Appends up to `limit` entries of a range to `out`, in the order of `direction`. True if there may be more.
    pub fn scan<'g>(
        &'g self,
        low: Bound<&[u8]>,
        high: Bound<&[u8]>,
        direction: Direction,
        limit: usize,
        out: &mut Vec<&'g E>,
        guard: &'g Guard,
    ) -> bool {
        self.cursor(low, high, direction, guard)
            .next_batch(limit, out)
    }
}

impl<'k, 'g: 'k, E: Entry> Cursor<'k, 'g, E> {
    /// Appends up to `limit` more entries to `out`. False if these were the last, true if there may be more.
    pub fn next_batch(&mut self, limit: usize, out: &mut Vec<&'g E>) -> bool {
        let wanted = out.len().saturating_add(limit);
        let mut backoff = Backoff::default();
        while !self.done && out.len() < wanted {
            let before = out.len();
            if let Err(Restart) = self.read_leaf(wanted - before, out) {
                out.truncate(before);
                self.leaf = None;
                backoff.wait();
            }
        }
        !self.done
    }

    /// Reads from one leaf, all that is left there or `room` entries.
    fn read_leaf(&mut self, room: usize, out: &mut Vec<&'g E>) -> Attempt<()> {
        let mut at = match self.leaf.take() {
            Some(at) => at,
            None => self.seek()?,
        };
        let slots = &at.leaf.slots;
        let before = out.len();
        match self.direction {
            Forward => {
                let until = at.end.min(at.next.saturating_add(room));
                for slot in at.next..until {
                    push(slots, slot, out)?;
                }
                at.next = at.next.max(until);
            }
            Backward => {
                let until = at.end.max(at.next.saturating_sub(room));
                for slot in (until..at.next).rev() {
                    push(slots, slot, out)?;
                }
                at.next = at.next.min(until);
            }
        }
        at.leaf.node.latch.check(at.version)?;
        if let Some(&last) = out[before..].last() {
            self.near = Near::Behind(last);
        }
        let left_over = match self.direction {
            Forward => at.next < at.end,
            Backward => at.next > at.end,
        };
        match at.fence {
            _ if left_over => self.leaf = Some(at),
            Some(fence) if !at.last => {
                // SAFETY: met in a separator's slot under the guard, so alive for as long.
                let fence: &'g [u8] = unsafe { fence.as_ref() }.key();
                self.near = Near::Bound(match self.direction {
                    Forward => Bound::Included(fence),
                    Backward => Bound::Excluded(fence),
                });
                self.done = match (self.direction, self.far) {
                    (_, Bound::Unbounded) => false,
                    (Forward, Bound::Included(high)) => fence > high,
                    (Forward, Bound::Excluded(high)) => fence >= high,
                    (Backward, Bound::Included(low) | Bound::Excluded(low)) => fence <= low,
                };
            }
            _ => self.done = true,
        }
        Ok(())
    }

    /// Goes down to the leaf where `near` lies.
    fn seek(&self) -> Attempt<At<'g, E>> {
        let near = match self.near {
            Near::Bound(bound) => bound,
            Near::Behind(entry) => Bound::Excluded(entry.key()),
        };
        let edge = Edge::near(near, self.direction);
        let (mut at, mut version, mut level) = self.tree.enter(self.guard)?;
        let mut fence = None;
        while level > 0 {
            // SAFETY: a node reached under the guard, with the level that says inner.
            let inner: &'g Inner = unsafe { Inner::at(at) };
            // Children begin at their separator: a separator that equals the key counts as below it, except for who
            // wants what is before the key.
            let index = match edge {
                Edge::Before(probe) if self.direction == Backward => inner.slots.seek(&probe)?.slot,
                Edge::Before(probe) | Edge::Behind(probe) => index_behind(&inner.slots, &probe)?,
                Edge::First => 0,
                Edge::Last => inner.slots.count(),
            };
            match self.direction {
                Forward if index < inner.slots.count() => fence = Some(inner.slots.pointer(index)?),
                Backward if index > 0 => fence = Some(inner.slots.pointer(index - 1)?),
                _ => {}
            }
            let child = inner.child(index)?;
            (at, version) = (
                child,
                self.tree.step(child, level == 1, &inner.node, version)?,
            );
            level -= 1;
        }
        // SAFETY: a leaf reached under the guard.
        let leaf: &'g Leaf<E> = unsafe { Leaf::at(at) };
        let next = edge.slot(&leaf.slots)?;
        let end = Edge::far(self.far, self.direction).slot(&leaf.slots)?;
        let last = match self.direction {
            Forward => end < leaf.slots.count(),
            Backward => end > 0,
        };
        Ok(At {
            leaf,
            version,
            next,
            end,
            last,
            fence,
        })
    }
}

/// A place between keys.
#[derive(Clone, Copy)]
enum Edge<'k> {
    First,
    Before(Probe<'k>),
    Behind(Probe<'k>),
    Last,
}

impl<'k> Edge<'k> {
    fn near(bound: Bound<&'k [u8]>, direction: Direction) -> Self {
        match (bound, direction) {
            (Bound::Unbounded, Forward) => Edge::First,
            (Bound::Unbounded, Backward) => Edge::Last,
            (Bound::Included(key), Forward) | (Bound::Excluded(key), Backward) => {
                Edge::Before(Probe::new(key))
            }
            (Bound::Excluded(key), Forward) | (Bound::Included(key), Backward) => {
                Edge::Behind(Probe::new(key))
            }
        }
    }

    /// The far end of a scan is the near end of one the other way.
    fn far(bound: Bound<&'k [u8]>, direction: Direction) -> Self {
        Self::near(
            bound,
            if direction == Forward {
                Backward
            } else {
                Forward
            },
        )
    }

    /// How many keys of a node lie before.
    fn slot<T: Entry>(&self, slots: &Slots<T>) -> Attempt<usize> {
        match self {
            Edge::First => Ok(0),
            Edge::Before(probe) => Ok(slots.seek(probe)?.slot),
            Edge::Behind(probe) => index_behind(slots, probe),
            Edge::Last => Ok(slots.count()),
        }
    }
}

fn index_behind<T: Entry>(slots: &Slots<T>, probe: &Probe) -> Attempt<usize> {
    let place = slots.seek(probe)?;
    Ok(place.slot + place.found.is_some() as usize)
}

#[inline]
fn push<'a, E: Entry>(slots: &'a Slots<E>, slot: usize, out: &mut Vec<&'a E>) -> Attempt<()> {
    let entry = slots.item(slot)?;
    super::prefetch(entry);
    out.push(entry);
    Ok(())
}
