//! The ring between the network and the replay, as in PolarDB-SCC §4.3: one writer that never waits, one reader that notices when
//! it has been overrun.
//!
//! ```text
//!        start        applied               written    claimed
//!  ────────┼─────────────┼─────────────────────┼──────────┼────────▶  words since the ring was made
//!   void   │    read     │   whole frames      │ being    │
//!          │             │   to be read        │ written  │
//!
//! frame:  length in bytes u64 | bytes, padded to words           at word (place % size)
//! ```
//! The paper's writer is a network card that writes into the replica's memory (one-sided RDMA); ours is the thread at the socket. It
//! moves *claimed*, writes the words, then moves *written*: a half-written frame is never seen. It looks at nothing of the reader's.
//! Words from `claimed - size` on are intact, so the reader, before it copies a frame and again after, checks that *claimed* has
//! not gone more than one size beyond the frame: what it copied in between is then what was written. If it has, the frame is lost
//! and the reader says so once ([`Read::Overrun`]). Whoever hears it has the stream sent again from where the reader is
//! (`Resume`), and the writer raises *start* to where that begins ([`RingWriter::restart`]); the reader goes on there. So
//! overwritten bytes are detected and never applied.
//!
//! **Frames larger than half the ring** stand beside it, in a slot for one; the ring holds their number. A second one that comes before
//! the first was taken overruns it like any frame. So memory is bounded by the ring and one greatest group.
//!
//! **Orderings** (a seqlock's). The writer stores *claimed*, then a release fence, then the words; the reader loads the words, then an
//! acquire fence, then *claimed*. If any word that it loaded was of a later frame, the fences make the later *claimed* visible to
//! the second check. *Written* is released and acquired, so whole frames are seen whole. *Start* moves before the frames behind it.
//!
//! Left out on purpose: waiting for room, and any notion of what a frame is.

use env::sync::Mutex;
use env::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::Arc;
use std::time::Duration;

/// Marks a length as the number of a frame that stands beside the ring.
const BESIDE: u64 = 1 << 63;

/// Shared by writer and reader; anybody may look at how full it is.
pub struct Ring {
    words: Box<[AtomicU64]>,
    /// All four count words since the ring was made; only `applied` is the reader's.
    start: AtomicU64,
    claimed: AtomicU64,
    written: AtomicU64,
    applied: AtomicU64,
    /// The newest frame that is too large for the ring, under its number.
    beside: Mutex<Option<(u64, Vec<u8>)>>,
    sleeping: AtomicBool,
    wake: (parking_lot::Mutex<()>, parking_lot::Condvar),
}

/// The side that receives. One at a time.
pub struct RingWriter {
    ring: Arc<Ring>,
    beside: u64,
}

/// The side that consumes.
pub struct RingReader {
    ring: Arc<Ring>,
    at: u64,
    /// Overrun, and not yet restarted.
    lost: bool,
    /// Tests only: without the second look.
    #[cfg(test)]
    careless: bool,
}

/// Where a reader stood when it found nothing.
pub struct Place {
    ring: Arc<Ring>,
    at: u64,
    lost: bool,
}

/// What the reader found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// Nothing new.
    Empty,
    /// A whole frame.
    Frame,
    /// The next frame was overwritten. Said once; then nothing until the writer restarts.
    Overrun,
}

impl Ring {
    /// A ring of about this many bytes (a power of two of words, at least 8), with its two sides.
    pub fn pair(bytes: usize) -> (RingWriter, RingReader) {
        let words = (bytes / 8).max(8).next_power_of_two();
        let ring = Arc::new(Ring {
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
            start: AtomicU64::new(0),
            claimed: AtomicU64::new(0),
            written: AtomicU64::new(0),
            applied: AtomicU64::new(0),
            beside: Mutex::new(None),
            sleeping: AtomicBool::new(false),
            wake: Default::default(),
        });
        let reader = RingReader {
            ring: ring.clone(),
            at: 0,
            lost: false,
            #[cfg(test)]
            careless: false,
        };
        (RingWriter { ring, beside: 0 }, reader)
    }

    /// Bytes that it holds.
    pub fn size(&self) -> u64 {
        self.words.len() as u64 * 8
    }

    /// Bytes written and not yet read; more than [`Ring::size`] says that the reader is overrun.
    pub fn backlog(&self) -> u64 {
        let applied = self.applied.load(Ordering::Acquire);
        let from = applied.max(self.start.load(Ordering::Acquire));
        self.written.load(Ordering::Acquire).saturating_sub(from) * 8
    }

    /// Wakes a reader that waits.
    pub fn wake(&self) {
        if self.sleeping.load(Ordering::SeqCst) {
            let _held = self.wake.0.lock();
            self.wake.1.notify_one();
        }
    }

    fn word(&self, place: u64) -> &AtomicU64 {
        &self.words[place as usize & (self.words.len() - 1)]
    }
}

impl RingWriter {
    /// The ring.
    pub fn ring(&self) -> &Arc<Ring> {
        &self.ring
    }

    /// Writes one frame, over whatever is oldest, and wakes the reader.
    pub fn write(&mut self, frame: &[u8]) {
        self.put(frame);
        self.ring.wake();
    }

    /// Writes one frame and wakes nobody: for a writer that sees to it that somebody reads.
    pub fn put(&mut self, frame: &[u8]) {
        let ring = &*self.ring;
        let at = ring.written.load(Ordering::Relaxed);
        let words = frame.len().div_ceil(8) as u64;
        let beside = words + 1 > ring.words.len() as u64 / 2;
        let end = at + 1 + if beside { 0 } else { words };
        if beside {
            self.beside += 1;
            *ring.beside.lock() = Some((self.beside, frame.to_vec()));
        }
        ring.claimed.store(end, Ordering::Relaxed);
        fence(Ordering::Release);
        if beside {
            ring.word(at).store(BESIDE | self.beside, Ordering::Relaxed);
        } else {
            ring.word(at).store(frame.len() as u64, Ordering::Relaxed);
            let (whole, rest) = frame.as_chunks::<8>();
            for (i, word) in whole.iter().enumerate() {
                let place = ring.word(at + 1 + i as u64);
                place.store(u64::from_le_bytes(*word), Ordering::Relaxed);
            }
            if !rest.is_empty() {
                let mut word = [0; 8];
                word[..rest.len()].copy_from_slice(rest);
                ring.word(end - 1)
                    .store(u64::from_le_bytes(word), Ordering::Relaxed);
            }
        }
        // SeqCst with `sleeping`: either the reader sees the frame before it sleeps, or it is woken.
        ring.written.store(end, Ordering::SeqCst);
    }

    /// What was written so far is void: the frames to come follow what the reader has read.
    pub fn restart(&mut self) {
        let written = self.ring.written.load(Ordering::Relaxed);
        self.ring.start.store(written, Ordering::Release);
    }
}

impl RingReader {
    /// The ring.
    pub fn ring(&self) -> &Arc<Ring> {
        &self.ring
    }

    /// Copies the next frame into `out`, which is cleared first.
    pub fn read(&mut self, out: &mut Vec<u8>) -> Read {
        out.clear();
        let ring = &*self.ring;
        let start = ring.start.load(Ordering::Acquire);
        if start > self.at {
            self.at = start;
            self.lost = false;
            ring.applied.store(start, Ordering::Release);
        }
        if self.lost || self.at >= ring.written.load(Ordering::Acquire) {
            return Read::Empty;
        }
        if self.is_overrun() {
            return self.lose();
        }
        let head = ring.word(self.at).load(Ordering::Relaxed);
        // A length that was overwritten may be anything; so it is looked at again before it is believed.
        if self.is_overrun() {
            return self.lose();
        }
        let mut end = self.at + 1;
        if head & BESIDE != 0 {
            let mut slot = ring.beside.lock();
            match slot.take() {
                Some((number, frame)) if BESIDE | number == head => *out = frame,
                other => {
                    *slot = other;
                    drop(slot);
                    return self.lose();
                }
            }
        } else {
            let words = head.div_ceil(8);
            end += words;
            out.reserve(words as usize * 8);
            for i in 0..words {
                let word = ring.word(self.at + 1 + i).load(Ordering::Relaxed);
                out.extend_from_slice(&word.to_le_bytes());
            }
            out.truncate(head as usize);
            if self.is_overrun() && !self.is_careless() {
                out.clear();
                return self.lose();
            }
        }
        self.at = end;
        ring.applied.store(end, Ordering::Release);
        Read::Frame
    }

    /// Whether the writer has begun to write over the frame at `at`.
    fn is_overrun(&self) -> bool {
        fence(Ordering::Acquire);
        let claimed = self.ring.claimed.load(Ordering::Relaxed);
        claimed - self.at > self.ring.words.len() as u64
    }

    #[cfg(test)]
    fn is_careless(&self) -> bool {
        self.careless
    }

    #[cfg(not(test))]
    fn is_careless(&self) -> bool {
        false
    }

    fn lose(&mut self) -> Read {
        self.lost = true;
        Read::Overrun
    }

    /// Waits until there is something to read, [`Ring::wake`] is called, or this long.
    pub fn wait(&self, at_most: Duration) {
        self.place().wait(at_most);
    }

    /// Where it stands: to wait for more without holding on to the reader.
    pub fn place(&self) -> Place {
        Place {
            ring: self.ring.clone(),
            at: self.at,
            lost: self.lost,
        }
    }
}

impl Place {
    /// As [`RingReader::wait`]; returns at once when the reader has gone on since and may have missed something.
    pub fn wait(&self, at_most: Duration) {
        let ring = &*self.ring;
        let mut held = ring.wake.0.lock();
        ring.sleeping.store(true, Ordering::SeqCst);
        let nothing = self.lost || self.at >= ring.written.load(Ordering::SeqCst);
        if nothing && self.at >= ring.start.load(Ordering::SeqCst) {
            ring.wake.1.wait_for(&mut held, at_most);
        }
        ring.sleeping.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frame `n`, which shows whether it is whole.
    fn frame(n: u64, words: usize) -> Vec<u8> {
        let mut bytes = n.to_le_bytes().repeat(words);
        bytes.push(n as u8);
        bytes
    }

    fn number(frame: &[u8]) -> u64 {
        let n = u64::from_le_bytes(frame[..8].try_into().expect("eight bytes"));
        let words = frame.len() / 8;
        assert_eq!(frame, self::frame(n, words), "a frame is torn");
        n
    }

    #[cfg(not(feature = "shuttle"))]
    mod alone {
        use super::*;

        #[test]
        fn frames_come_out_in_order_round_and_round() {
            let (mut w, mut r) = Ring::pair(256);
            let mut out = Vec::new();
            assert_eq!(r.read(&mut out), Read::Empty);
            for n in 0..1000 {
                w.write(&frame(n, 1 + n as usize % 4));
                assert!(w.ring().backlog() > 0);
                assert_eq!(r.read(&mut out), Read::Frame);
                assert_eq!(number(&out), n);
            }
            w.write(&[]);
            assert_eq!((r.read(&mut out), out.len()), (Read::Frame, 0));
            assert_eq!(w.ring().backlog(), 0);
        }

        #[test]
        fn an_overrun_is_said_once_and_ends_with_a_restart() {
            let (mut w, mut r) = Ring::pair(128);
            let mut out = Vec::new();
            for n in 0..20 {
                w.write(&frame(n, 2));
            }
            assert!(w.ring().backlog() > w.ring().size());
            assert_eq!(r.read(&mut out), Read::Overrun);
            assert_eq!(r.read(&mut out), Read::Empty);
            w.write(&frame(20, 2));
            assert_eq!(r.read(&mut out), Read::Empty, "nothing of the lost run");
            w.restart();
            assert_eq!(r.read(&mut out), Read::Empty);
            w.write(&frame(0, 2));
            assert_eq!(r.read(&mut out), Read::Frame);
            assert_eq!(number(&out), 0);
        }

        #[test]
        fn exactly_a_ring_full_is_not_overrun() {
            let (mut w, mut r) = Ring::pair(128);
            let mut out = Vec::new();
            for n in 0..4 {
                w.write(&frame(n, 2));
            }
            for n in 0..4 {
                assert_eq!(r.read(&mut out), Read::Frame);
                assert_eq!(number(&out), n);
            }
        }

        #[test]
        fn frames_larger_than_the_ring_stand_beside_it() {
            let (mut w, mut r) = Ring::pair(128);
            let mut out = Vec::new();
            w.write(&frame(1, 1));
            w.write(&frame(2, 1000));
            w.write(&frame(3, 1));
            for n in 1..4 {
                assert_eq!(r.read(&mut out), Read::Frame);
                assert_eq!(number(&out), n);
            }
            w.write(&frame(4, 1000));
            w.write(&frame(5, 1000));
            assert_eq!(r.read(&mut out), Read::Overrun, "4 was replaced by 5");
            w.restart();
            w.write(&frame(4, 1000));
            assert_eq!(r.read(&mut out), Read::Frame);
            assert_eq!(number(&out), 4);
        }

        #[test]
        fn a_reader_that_waits_is_woken() {
            let (mut w, mut r) = Ring::pair(1 << 14);
            let reader = std::thread::spawn(move || {
                let (mut out, mut seen) = (Vec::new(), 0);
                while seen < 200 {
                    match r.read(&mut out) {
                        Read::Frame => {
                            assert_eq!(number(&out), seen);
                            seen += 1;
                        }
                        Read::Empty => r.wait(Duration::from_secs(60)),
                        Read::Overrun => panic!("200 small frames fit"),
                    }
                }
            });
            for n in 0..200 {
                w.write(&frame(n, 1));
            }
            reader.join().expect("the reader saw all of them");
        }
    }

    #[cfg(feature = "shuttle")]
    mod interleavings {
        //! A writer that never waits against a slow reader, over thousands of schedules. A reader without its second look
        //! takes torn frames: found.
        use super::*;
        use env::sync::thread;

        const FRAMES: u64 = 7;
        const NOTHING: u64 = u64::MAX;

        fn scenario(careless: bool, large: usize) {
            let (mut w, mut r) = Ring::pair(64);
            r.careless = careless;
            let resume = Arc::new(AtomicU64::new(NOTHING));
            let asked = resume.clone();
            let words = move |n: u64| if n == 3 { large } else { 1 + n as usize % 2 };
            let writer = thread::spawn(move || {
                for n in 0..FRAMES {
                    w.write(&frame(n, words(n)));
                }
                // Then what is asked for again, paced by the reader as in a catch-up.
                loop {
                    let from = asked.swap(NOTHING, Ordering::SeqCst);
                    if from == FRAMES {
                        return;
                    }
                    if from != NOTHING {
                        w.restart();
                        for n in from..FRAMES {
                            w.write(&frame(n, words(n)));
                            while w.ring().backlog() > 0 {
                                thread::yield_now();
                            }
                        }
                    }
                    thread::yield_now();
                }
            });
            let (mut next, mut out) = (0, Vec::new());
            while next < FRAMES {
                match r.read(&mut out) {
                    Read::Frame => {
                        assert_eq!(number(&out), next, "frames are read in order");
                        next += 1;
                    }
                    Read::Overrun => resume.store(next, Ordering::SeqCst),
                    Read::Empty => thread::yield_now(),
                }
            }
            resume.store(FRAMES, Ordering::SeqCst);
            writer.join().unwrap();
        }

        #[test]
        fn no_torn_frame_is_read_and_none_is_lost() {
            shuttle::check_pct(|| scenario(false, 2), 6_000, 4);
            shuttle::check_random(|| scenario(false, 2), 3_000);
        }

        #[test]
        fn a_large_frame_beside_the_ring_is_whole_too() {
            shuttle::check_random(|| scenario(false, 9), 3_000);
        }

        #[test]
        #[should_panic(expected = "torn")]
        fn without_the_second_look_a_torn_frame_is_found() {
            shuttle::check_pct(|| scenario(true, 2), 60_000, 4);
        }
    }
}
