//! The sorted slots of a node: leaves hold entries in them, inner nodes separators.
//!
//! ```text
//!   count | prefix_len | longest | recent        prefix (32 bytes)
//!   samples [ h0, h8, h16, ... h56 ]                the first head of each group of eight
//!   heads   [ h0 <= h1 <= ... <= h(count-1), MAX, MAX, ... ]     8 bytes of each key behind the prefix, big-endian
//!   items   [ p0,   p1,  ...     p(count-1), null, null, ... ]   what carries the whole key
//! ```
//!
//! **Search** compares heads, which lie side by side, and goes to an item only where heads are equal. It counts instead of
//! branching: the first head of each group that is below the target gives the group, the heads of that group give the
//! slot. The loads of a step do not depend on each other, so the node's cache lines arrive together; a binary search would
//! wait for six in turn. Free slots hold `MAX`, so the count of slots is not needed for it. The first heads stand once more by themselves,
//! on one line, so that a search touches four lines (header, samples, a group of heads, its items): who looks up several keys side by side
//! asks for these (`tree::ahead`), and not for the whole node.
//!
//! **Prefix.** Keys of one node often share leading bytes (a type tag, the first columns), and a head spent on these tells
//! nothing. So a node may set aside a prefix that all its keys share. It is chosen when a node is split, and only if two
//! neighbours had equal heads: `min(shared bytes, longest key - 8, 32)`, so that keys of up to 8 bytes never have one.
//! A key that does not share it shortens it on insertion, which recomputes all heads.
//!
//! **Torn reads.** Everything is an atomic, so a reader that runs beside a writer sees a mixture, but no undefined
//! behaviour: indexes are clamped, a null item means `Restart`, and every pointer that stands in a slot is to an item that
//! is not freed before the reader's guard is dropped. For this a writer clears a slot before the item that it held can be
//! retired. Methods below that say "locked" need the node's lock; the others are safe beside a writer but their
//! answer is good only if the node's version is checked afterwards.
//!
//! Left out on purpose: a prefix longer than 32 bytes (such keys fall back to a binary search over whole keys), and
//! values in the slot.

use std::cmp::Ordering as Cmp;
use std::ptr::{self, NonNull};

use env::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use super::Entry;
use super::latch::{Attempt, Restart};

#[cfg(not(feature = "shuttle"))]
const GROUP: usize = 8;
#[cfg(not(feature = "shuttle"))]
const GROUPS: usize = 8;
#[cfg(feature = "shuttle")]
const GROUP: usize = 2;
#[cfg(feature = "shuttle")]
const GROUPS: usize = 2;

/// Slots of a node.
pub(super) const CAPACITY: usize = GROUP * GROUPS;
const PREFIX_WORDS: usize = 4;
/// How much climbing or falling a split takes for a run.
const RUN: u32 = if CAPACITY > 16 { 8 } else { 2 };
const RUN_MAX: u32 = 200;

/// A key that is looked for, with its first 8 bytes at hand.
#[derive(Clone, Copy)]
pub(super) struct Probe<'k> {
    pub key: &'k [u8],
    head: u64,
}

impl<'k> Probe<'k> {
    #[inline]
    pub fn new(key: &'k [u8]) -> Self {
        Probe {
            key,
            head: head_at(key, 0),
        }
    }
}

/// The 8 bytes from `offset` on, as a number whose order is the bytes' order; beyond the end stand zeros.
#[inline]
fn head_at(key: &[u8], offset: usize) -> u64 {
    match key.get(offset..offset + 8) {
        Some(bytes) => u64::from_be_bytes(bytes.try_into().expect("8 bytes")),
        None => head_at_end(key, offset),
    }
}

#[inline]
fn head_at_end(key: &[u8], offset: usize) -> u64 {
    let rest = key.get(offset..).unwrap_or(&[]);
    debug_assert!(rest.len() < 8);
    rest.iter()
        .enumerate()
        .fold(0, |head, (i, &byte)| head | (byte as u64) << (56 - 8 * i))
}

/// How many leading bytes two keys share.
pub(super) fn shared_len(a: &[u8], b: &[u8]) -> usize {
    let words = a
        .chunks_exact(8)
        .zip(b.chunks_exact(8))
        .take_while(|(x, y)| x == y)
        .count()
        * 8;
    words
        + a[words..]
            .iter()
            .zip(&b[words..])
            .take_while(|(x, y)| x == y)
            .count()
}

/// Where a key lies against a node's prefix.
enum Target {
    Below,
    Above,
    Head(u64),
}

/// A slot, and whether the item there has the key looked for. Not found: the slot where it would be inserted.
pub(super) struct Place<'g, T> {
    pub slot: usize,
    pub found: Option<&'g T>,
}

#[repr(C)]
pub(super) struct Slots<T> {
    count: AtomicU32,
    prefix_len: AtomicU32,
    /// No key in the node is longer.
    longest: AtomicU32,
    /// Where the last insert went, and whether inserts have been climbing or falling: see `Recent`.
    recent: AtomicU32,
    prefix: [AtomicU64; PREFIX_WORDS],
    samples: [AtomicU64; GROUPS],
    heads: [[AtomicU64; GROUP]; GROUPS],
    items: [AtomicPtr<T>; CAPACITY],
}

impl<T: Entry> Slots<T> {
    pub fn new() -> Self {
        Slots {
            count: AtomicU32::new(0),
            prefix_len: AtomicU32::new(0),
            longest: AtomicU32::new(0),
            recent: AtomicU32::new(0),
            prefix: std::array::from_fn(|_| AtomicU64::new(0)),
            samples: std::array::from_fn(|_| AtomicU64::new(u64::MAX)),
            heads: std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(u64::MAX))),
            items: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
        }
    }

    #[inline]
    pub fn count(&self) -> usize {
        (self.count.load(Ordering::Relaxed) as usize).min(CAPACITY)
    }

    #[inline]
    fn head(&self, slot: usize) -> &AtomicU64 {
        &self.heads[slot / GROUP][slot % GROUP]
    }

    /// The pointer in a slot; null only in a torn read.
    #[inline]
    pub fn pointer(&self, slot: usize) -> Attempt<NonNull<T>> {
        // Acquire, for the item's content was written before it was published here.
        NonNull::new(self.items[slot].load(Ordering::Acquire)).ok_or(Restart)
    }

    #[inline]
    pub fn item(&self, slot: usize) -> Attempt<&T> {
        // SAFETY: an item is published whole and retired through the epoch only after its slot was cleared, and who
        // holds the borrow of `self` is pinned for it (or has the tree to itself): what was in a slot is alive for as long.
        Ok(unsafe { self.pointer(slot)?.as_ref() })
    }

    /// Asks for the cache lines of the slots, which `seek` will read soon.
    #[inline]
    pub fn prefetch(&self) {
        super::prefetch(&self.samples);
        for group in &self.heads {
            super::prefetch(group);
        }
    }

    /// Asks for the line that says in which group of heads a key is. The header is on the one before.
    #[inline]
    pub fn prefetch_samples(&self) {
        super::prefetch(self);
        super::prefetch(&self.samples);
    }

    /// Asks for the heads among which the key is, and the items behind them.
    #[inline]
    pub fn prefetch_group(&self, probe: &Probe) {
        if let Target::Head(head) = self.target(probe) {
            let group = self.group(head);
            super::prefetch(&self.heads[group]);
            super::prefetch(&self.items[group * GROUP]);
        }
    }

    #[inline]
    pub fn prefetch_items(&self) {
        for slot in (0..CAPACITY).step_by(8) {
            super::prefetch(&self.items[slot]);
        }
    }

    /// The last group that begins below `head`, or the first.
    #[inline]
    fn group(&self, head: u64) -> usize {
        let mut group = 0;
        for sample in &self.samples[1..] {
            group += (sample.load(Ordering::Relaxed) < head) as usize;
        }
        group % GROUPS
    }

    /// Locked. The samples are the first heads again.
    fn resample(&self) {
        for (sample, group) in self.samples.iter().zip(&self.heads) {
            sample.store(group[0].load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// How many heads are below `head`. Heads that a torn read finds out of order give some number up to `CAPACITY`.
    #[inline]
    fn heads_below(&self, head: u64) -> usize {
        let group = self.group(head);
        let mut slot = group * GROUP;
        for h in &self.heads[group] {
            slot += (h.load(Ordering::Relaxed) < head) as usize;
        }
        slot
    }

    #[inline]
    fn target(&self, probe: &Probe) -> Target {
        match self.prefix_len.load(Ordering::Relaxed) as usize {
            0 => Target::Head(probe.head),
            len => self.target_behind(probe.key, len.min(8 * PREFIX_WORDS)),
        }
    }

    fn target_behind(&self, key: &[u8], len: usize) -> Target {
        for word in 0..len.div_ceil(8) {
            let used = (len - word * 8).min(8);
            let mask = u64::MAX << (64 - 8 * used);
            match (head_at(key, word * 8) & mask).cmp(&self.prefix[word].load(Ordering::Relaxed)) {
                Cmp::Less => return Target::Below,
                Cmp::Greater => return Target::Above,
                Cmp::Equal => {}
            }
        }
        // Equal only through the zeros behind its end: a part of the prefix, so below all keys that have the whole of it.
        if key.len() < len {
            Target::Below
        } else {
            Target::Head(head_at(key, len))
        }
    }

    /// The first slot whose key is not below the probe's.
    #[inline]
    pub fn seek<'g>(&'g self, probe: &Probe) -> Attempt<Place<'g, T>> {
        let head = match self.target(probe) {
            Target::Head(head) => head,
            Target::Below => {
                return Ok(Place {
                    slot: 0,
                    found: None,
                });
            }
            Target::Above => {
                return Ok(Place {
                    slot: self.count(),
                    found: None,
                });
            }
        };
        let slot = self.heads_below(head);
        if slot >= self.count() || self.head(slot).load(Ordering::Relaxed) != head {
            return Ok(Place { slot, found: None });
        }
        let item = self.item(slot)?;
        match item.key().cmp(probe.key) {
            Cmp::Equal => Ok(Place {
                slot,
                found: Some(item),
            }),
            Cmp::Greater => Ok(Place { slot, found: None }),
            Cmp::Less => self.seek_among_equals(probe, head, slot + 1),
        }
    }

    /// The item that likely has the key, by the heads alone: the item itself is not looked at.
    #[inline]
    pub fn guess(&self, probe: &Probe) -> Option<&T> {
        let Target::Head(head) = self.target(probe) else {
            return None;
        };
        let slot = self.heads_below(head);
        if slot >= self.count() {
            return None;
        }
        self.item(slot).ok()
    }

    /// The heads from `from` on may be equal to the target's: a binary search over whole keys.
    #[cold]
    fn seek_among_equals<'g>(
        &'g self,
        probe: &Probe,
        head: u64,
        from: usize,
    ) -> Attempt<Place<'g, T>> {
        let mut low = from;
        let mut high = match head.checked_add(1) {
            Some(next) => self.heads_below(next).min(self.count()),
            None => self.count(),
        };
        while low < high {
            let middle = low.midpoint(high);
            let item = self.item(middle)?;
            match item.key().cmp(probe.key) {
                Cmp::Equal => {
                    return Ok(Place {
                        slot: middle,
                        found: Some(item),
                    });
                }
                Cmp::Less => low = middle + 1,
                Cmp::Greater => high = middle,
            }
        }
        Ok(Place {
            slot: low,
            found: None,
        })
    }

    /// Locked. Puts an item in a slot that `seek` named. There must be room.
    pub fn insert(&self, slot: usize, item: NonNull<T>) {
        let count = self.count();
        assert!(
            slot <= count && count < CAPACITY,
            "insert into a full node or beyond its end"
        );
        // SAFETY: the caller hands over a live item, which nobody else frees while it is in a locked node.
        let key = unsafe { item.as_ref() }.key();
        self.fit_prefix(key);
        self.longest.fetch_max_locked(key.len());
        for i in (slot..count).rev() {
            self.head(i + 1)
                .store(self.head(i).load(Ordering::Relaxed), Ordering::Relaxed);
            self.items[i + 1].store(self.items[i].load(Ordering::Relaxed), Ordering::Release);
        }
        self.head(slot).store(
            head_at(key, self.prefix_len.load(Ordering::Relaxed) as usize),
            Ordering::Relaxed,
        );
        self.resample();
        self.items[slot].store(item.as_ptr(), Ordering::Release);
        self.count.store(count as u32 + 1, Ordering::Relaxed);
        self.recent
            .store(Recent::load(&self.recent).then(slot).0, Ordering::Relaxed);
    }

    /// Locked. Takes an item out; the caller retires it.
    pub fn remove(&self, slot: usize) -> NonNull<T> {
        let count = self.count();
        assert!(slot < count, "remove beyond the end of a node");
        let item = self.items[slot].load(Ordering::Relaxed);
        for i in slot + 1..count {
            self.head(i - 1)
                .store(self.head(i).load(Ordering::Relaxed), Ordering::Relaxed);
            self.items[i - 1].store(self.items[i].load(Ordering::Relaxed), Ordering::Release);
        }
        self.clear_from(count - 1, count);
        NonNull::new(item).expect("a used slot is not null")
    }

    /// Locked. Sets the count and clears the slots behind it, up to the old count.
    fn clear_from(&self, count: usize, old: usize) {
        self.count.store(count as u32, Ordering::Relaxed);
        for i in count..old {
            self.head(i).store(u64::MAX, Ordering::Relaxed);
            self.items[i].store(ptr::null_mut(), Ordering::Release);
        }
        self.resample();
    }

    /// Locked. Moves the items from `from` on to `right`, which is new and not yet in the tree.
    pub fn move_tail(&self, from: usize, right: &Slots<T>) {
        let count = self.count();
        assert!(
            right.count() == 0 && from <= count,
            "a split moves into an empty node"
        );
        for i in from..count {
            right
                .head(i - from)
                .store(self.head(i).load(Ordering::Relaxed), Ordering::Relaxed);
            right.items[i - from].store(self.items[i].load(Ordering::Relaxed), Ordering::Release);
        }
        right.resample();
        right.count.store((count - from) as u32, Ordering::Relaxed);
        right
            .prefix_len
            .store(self.prefix_len.load(Ordering::Relaxed), Ordering::Relaxed);
        right
            .longest
            .store(self.longest.load(Ordering::Relaxed), Ordering::Relaxed);
        for (to, from) in right.prefix.iter().zip(&self.prefix) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        right
            .recent
            .store(self.recent.load(Ordering::Relaxed), Ordering::Relaxed);
        self.clear_from(from, count);
    }

    /// Locked. Where to cut a full node that gets one more item at `slot`: how many of the `CAPACITY + 1` stay left.
    ///
    /// In the middle, unless inserts have been climbing or falling: then at the new item, so that what a run leaves
    /// behind is full and the run goes on in the emptier part. (At the end two more go along, for a key that comes
    /// slightly late would fall into the full part and split it for itself alone.) Runs in the middle of a node count too: the keys of one
    /// district, say, which grow at its end and are followed by those of the next.
    pub fn cut(&self, slot: usize) -> usize {
        let left = match Recent::load(&self.recent).then(slot).run() {
            Run::Climbing if slot + 3 >= CAPACITY => CAPACITY - CAPACITY / 32,
            Run::Climbing => slot + 1,
            Run::Falling => slot,
            Run::None => CAPACITY.div_ceil(2),
        };
        left.clamp(1, CAPACITY)
    }

    /// Locked. Shortens the prefix to what `key` shares.
    fn fit_prefix(&self, key: &[u8]) {
        let len = self.prefix_len.load(Ordering::Relaxed) as usize;
        if len > 0 {
            let mut bytes = [0; 8 * PREFIX_WORDS];
            for (to, from) in bytes.chunks_exact_mut(8).zip(&self.prefix) {
                to.copy_from_slice(&from.load(Ordering::Relaxed).to_be_bytes());
            }
            let shared = shared_len(&bytes[..len], key);
            if shared < len {
                self.set_prefix(shared, &bytes);
            }
        }
    }

    /// Locked. Sets the prefix to the first `len` bytes of `key`, which all keys here share, and recomputes the heads.
    fn set_prefix(&self, len: usize, key: &[u8]) {
        assert!(
            len <= 8 * PREFIX_WORDS && len <= key.len(),
            "prefix too long"
        );
        self.prefix_len.store(len as u32, Ordering::Relaxed);
        for (word, to) in self.prefix.iter().enumerate() {
            to.store(head_at(&key[..len], word * 8), Ordering::Relaxed);
        }
        for slot in 0..self.count() {
            let item = self.item(slot).expect("a used slot is not null");
            self.head(slot)
                .store(head_at(item.key(), len), Ordering::Relaxed);
        }
        self.resample();
    }

    /// Locked. After a split: a longer prefix, if the heads tell too little and the keys allow it.
    pub fn tighten(&self) {
        let len = self.prefix_len.load(Ordering::Relaxed) as usize;
        let longest = self.longest.load(Ordering::Relaxed) as usize;
        let count = self.count();
        if longest <= len + 8 || count < 2 {
            return;
        }
        let alike = (1..count).any(|i| {
            self.head(i - 1).load(Ordering::Relaxed) == self.head(i).load(Ordering::Relaxed)
        });
        if alike {
            let [first, last] =
                [0, count - 1].map(|i| self.item(i).expect("a used slot is not null").key());
            self.lengthen(shared_len(first, last), longest, first);
        }
    }

    /// Locked. A node that begins a run takes over the prefix of the full one behind it, as far as its only key shares it.
    pub fn tighten_like(&self, left: &Slots<T>) {
        let len = left.prefix_len.load(Ordering::Relaxed) as usize;
        if self.count() == 1
            && left.count() > 0
            && len > self.prefix_len.load(Ordering::Relaxed) as usize
        {
            let [mine, theirs] =
                [self, left].map(|s| s.item(0).expect("a used slot is not null").key());
            self.lengthen(
                shared_len(mine, theirs).min(len),
                self.longest.load(Ordering::Relaxed) as usize,
                mine,
            );
        }
    }

    fn lengthen(&self, shared: usize, longest: usize, key: &[u8]) {
        let len = shared.min(longest.saturating_sub(8)).min(8 * PREFIX_WORDS);
        if len > self.prefix_len.load(Ordering::Relaxed) as usize {
            self.set_prefix(len, key);
        }
    }

    /// Locked, or the tree is ours alone. The keys ascend, heads and prefix are theirs, free slots are clear.
    #[cfg(test)]
    pub fn assert_sound(&self) {
        let len = self.prefix_len.load(Ordering::Relaxed) as usize;
        for (sample, group) in self.samples.iter().zip(&self.heads) {
            assert_eq!(
                sample.load(Ordering::Relaxed),
                group[0].load(Ordering::Relaxed)
            );
        }
        for slot in 0..CAPACITY {
            let head = self.head(slot).load(Ordering::Relaxed);
            if slot >= self.count() {
                assert!(self.items[slot].load(Ordering::Relaxed).is_null() && head == u64::MAX);
                continue;
            }
            let key = self.item(slot).expect("used").key();
            assert_eq!(head, head_at(key, len));
            assert!(key.len() <= self.longest.load(Ordering::Relaxed) as usize);
            assert!(matches!(self.target_behind(key, len), Target::Head(h) if h == head));
            assert!(
                slot == 0 || self.item(slot - 1).expect("used").key() < key,
                "keys out of order"
            );
        }
    }
}

/// A maximum that needs no atomic read-modify-write, for the lock is held.
trait FetchMaxLocked {
    fn fetch_max_locked(&self, value: usize);
}

impl FetchMaxLocked for AtomicU32 {
    fn fetch_max_locked(&self, value: usize) {
        let value = u32::try_from(value).expect("a key is shorter than 4 GiB");
        if value > self.load(Ordering::Relaxed) {
            self.store(value, Ordering::Relaxed);
        }
    }
}

/// The last insert's slot (bits 0..8) and how much inserts have been climbing (8..16) or falling (16..24): two for a step,
/// less one for a step the other way, nothing after a jump. Sessions that draw ascending numbers insert them slightly out
/// of order, and are still climbing.
#[derive(Clone, Copy)]
struct Recent(u32);

enum Run {
    Climbing,
    Falling,
    None,
}

impl Recent {
    fn load(word: &AtomicU32) -> Self {
        Recent(word.load(Ordering::Relaxed))
    }

    fn then(self, slot: usize) -> Self {
        let [last, up, down, _] = self.0.to_le_bytes().map(u32::from);
        let (up, down) = match slot as i64 - last as i64 {
            1..=3 => ((up + 2).min(RUN_MAX), down.saturating_sub(1)),
            -1..=0 => (up.saturating_sub(1), (down + 2).min(RUN_MAX)),
            _ => (0, 0),
        };
        Recent(slot as u32 | up << 8 | down << 16)
    }

    fn run(self) -> Run {
        let [_, up, down, _] = self.0.to_le_bytes().map(u32::from);
        match () {
            () if up >= RUN && up >= down => Run::Climbing,
            () if down >= RUN => Run::Falling,
            () => Run::None,
        }
    }
}
