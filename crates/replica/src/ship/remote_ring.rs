//! The log's ring in memory of the replica that the primary writes (PolarDB-SCC §4.3): what a network card does there with one-sided
//! writes, the primary's processor does here in memory that both map.
//!
//! ```text
//! word   0       8        16         24         32 ..
//!        name    taken    claimed    written    the ring: a power of two of words
//!                the      the writer's
//!                reader's
//!
//!             taken                    bell           written   claimed
//!  ─────────────┼────────────────────────┼───────────────┼─────────┼──────▶  words since the ring was made
//!     may be    │  whole frames, told of │  not told yet │ being   │
//!     written   │                        │               │ written │
//!
//! frame:  bytes of the head u32, of the body u32 | head, padded to words | body, padded         at word (place % size)
//! ```
//! **Writing** ([`RemoteRing`]) is through [`WritableMemory`]: *claimed*, the frame, *written*, in that order. It never waits: a frame that is larger than
//! half the ring, or has no room before what the reader has not taken, is refused, and goes as a message. How far the reader has taken is
//! read from the same memory when it is not known that there is room.
//!
//! **Reading** ([`Ringside`]). The memory can be written by another process at any time, by one that is not what it should be, too. So
//! everything is **copied before it is looked at**, each count is checked against what was taken and told of, and after the copy *claimed*
//! must not have gone more than one ring beyond the frame: else what was copied may have been written over (a seqlock's second look).
//! Anything else than that is an error, said once: the reader forgets the ring then. What was copied is a message as if it had come
//! over the connection, and is checked as one: term, stream and chain by the receiver, the group by its checksum.
//!
//! **Fencing.** A ring is made for one connection and forgotten with it. A primary that goes on writing, because it has not heard that it is one no
//! more, writes into memory that nobody reads.
//!
//! **Orderings.** The writer's writes are seen in order (`RemoteMemory`). The reader loads *written*, acquire fence, copies, acquire fence, loads
//! *claimed*; it stores *taken* behind a release fence, so its copies come before what is then written there.
//!
//! Left out on purpose: waiting, on either side, and going on after an error.

use super::message::Malformed;
use crate::read::{Reading, SharedWords, WritableMemory};
use env::sync::atomic::{Ordering, fence};
use std::task::{Context, Poll, Waker};

/// A number that no other ring has: whoever maps words that others told him of sees whether they are theirs.
pub const NAME_WORD: usize = 0;
const TAKEN: usize = 8;
const CLAIMED: usize = 16;
const WRITTEN: usize = 24;
const FIRST: usize = 32;

/// Words of a ring and its head: 4 MiB, which the caches of two cores may hold.
pub const RING_WORDS: usize = FIRST + (1 << 19);

/// The primary's side.
pub struct RemoteRing<M> {
    memory: M,
    size: u64,
    written: u64,
    /// What is known of the reader.
    taken: u64,
    asked: Option<Reading>,
    broken: bool,
}

/// The replica's side.
pub struct Ringside<W> {
    words: W,
    size: u64,
    taken: u64,
    /// The newest bell's.
    told: u64,
    /// Tests only: without the second look.
    #[cfg(test)]
    careless: bool,
}

/// Words of the ring proper, of so many in all.
fn size(words: usize) -> u64 {
    let size = words.saturating_sub(FIRST) as u64;
    assert!(size.is_power_of_two(), "a ring is a power of two of words");
    size
}

fn words_of(bytes: usize) -> u64 {
    bytes.div_ceil(8) as u64
}

impl<M: WritableMemory> RemoteRing<M> {
    /// Over a new ring of so many words, its head included.
    pub fn new(memory: M, words: usize) -> RemoteRing<M> {
        RemoteRing {
            memory,
            size: size(words),
            written: 0,
            taken: 0,
            asked: None,
            broken: false,
        }
    }

    /// Writes a frame of these two parts. The word at which it ends, for the bell; none: it does not go in now.
    pub fn put(&mut self, head: &[u8], body: &[u8]) -> Option<u64> {
        let words = 1 + words_of(head.len()) + words_of(body.len());
        if words > self.size / 2 || !self.has_room(words) {
            return None;
        }
        let lengths = (body.len() as u64) << 32 | head.len() as u64;
        let end = self.written + words;
        self.memory.write(CLAIMED, &end.to_le_bytes());
        let mut at = self.lay(self.written, &lengths.to_le_bytes());
        at = self.lay(at, head);
        at = self.lay(at, body);
        debug_assert_eq!(at, end);
        self.memory.write(WRITTEN, &end.to_le_bytes());
        self.written = end;
        Some(end)
    }

    /// Puts bytes at a place, round the end if need be; where they end.
    fn lay(&self, at: u64, bytes: &[u8]) -> u64 {
        let place = at & (self.size - 1);
        let fits = ((self.size - place) as usize * 8).min(bytes.len());
        let (here, from_the_start) = bytes.split_at(fits);
        self.memory.write(FIRST + place as usize, here);
        if !from_the_start.is_empty() {
            self.memory.write(FIRST, from_the_start);
        }
        at + words_of(bytes.len())
    }

    fn has_room(&mut self, words: u64) -> bool {
        if self.broken {
            return false;
        }
        let fits = |taken: u64, written: u64| written + words - taken <= self.size;
        if fits(self.taken, self.written) {
            return true;
        }
        let memory = &self.memory;
        let asked = self
            .asked
            .get_or_insert_with(|| memory.read(vec![TAKEN as u32]));
        let mut context = Context::from_waker(Waker::noop());
        // Not there yet: for one of the next frames it will be.
        let Poll::Ready(answer) = asked.as_mut().poll(&mut context) else {
            return false;
        };
        self.asked = None;
        match answer.as_deref() {
            Ok(&[taken]) if (self.taken..=self.written).contains(&taken) => self.taken = taken,
            // Nobody who took frames counts so.
            _ => self.broken = true,
        }
        !self.broken && fits(self.taken, self.written)
    }
}

impl<W: SharedWords> Ringside<W> {
    /// Over new words, which are all 0 but for the name.
    pub fn new(words: W) -> Ringside<W> {
        Ringside {
            size: size(words.words().len()),
            words,
            taken: 0,
            told: 0,
            #[cfg(test)]
            careless: false,
        }
    }

    /// The bell: frames up to this word are there.
    pub fn told(&mut self, end: u64) -> Result<(), Malformed> {
        if end < self.told || end - self.taken > self.size {
            return Err("a bell for frames that cannot be there");
        }
        self.told = end;
        Ok(())
    }

    /// Copies the next frame that was told of into `out`, which is cleared first; whether there is one.
    pub fn next(&mut self, out: &mut Vec<u8>) -> Result<bool, Malformed> {
        out.clear();
        if self.taken == self.told {
            return Ok(false);
        }
        if self.words.words()[WRITTEN].load(Ordering::Relaxed) < self.told {
            return Err("the bell rang for frames that are not written");
        }
        fence(Ordering::Acquire);
        let lengths = self.word(self.taken);
        let (head, body) = (lengths as u32 as usize, (lengths >> 32) as usize);
        let end = self.taken + 1 + words_of(head) + words_of(body);
        if end > self.told {
            return Err("a frame reaches beyond what was written");
        }
        let at = self.copy(self.taken + 1, head, out);
        self.copy(at, body, out);
        fence(Ordering::Acquire);
        let claimed = self.words.words()[CLAIMED].load(Ordering::Relaxed);
        let intact = claimed >= end && claimed - self.taken <= self.size;
        if !intact && !self.is_careless() {
            out.clear();
            return Err("a frame was written over before it was taken");
        }
        self.taken = end;
        fence(Ordering::Release);
        self.words.words()[TAKEN].store(end, Ordering::Relaxed);
        Ok(true)
    }

    fn word(&self, at: u64) -> u64 {
        let place = (at & (self.size - 1)) as usize;
        self.words.words()[FIRST + place].load(Ordering::Relaxed)
    }

    /// Appends so many bytes from a place on; where their words end.
    fn copy(&self, at: u64, bytes: usize, out: &mut Vec<u8>) -> u64 {
        let (begin, words) = (out.len(), words_of(bytes) as usize);
        out.resize(begin + words * 8, 0);
        let ring = &self.words.words()[FIRST..];
        let (before, from) = ring.split_at((at & (self.size - 1)) as usize);
        let (to, _) = out[begin..].as_chunks_mut::<8>();
        for (to, word) in to.iter_mut().zip(from.iter().chain(before)) {
            *to = word.load(Ordering::Relaxed).to_le_bytes();
        }
        out.truncate(begin + bytes);
        at + words as u64
    }

    #[cfg(test)]
    fn is_careless(&self) -> bool {
        self.careless
    }

    #[cfg(not(test))]
    fn is_careless(&self) -> bool {
        false
    }
}

#[cfg(test)]
#[path = "tests/remote_ring.rs"]
mod tests;
