//! A replica's work: batches from the ring go into its own log and to replay; what moved is acknowledged.
//!
//! ```text
//! receiver ──▶ ring ──▶ consumer: append to the own log ──▶ replay ──▶ visible (the sink)
//!                                  └──▶ fdatasync: persisted
//! ```
//! One thread, *follower*. It appends first and feeds replay before it syncs, so replay does not wait for this node's disk: the
//! primary sends only what is durable there. A group that the ring lost (overwritten before it was read) is asked for again, from the last
//! position that was taken; so is everything after a reconnect. Groups at or below that position are skipped.

use base::{Error, Position, Result, SqlState};
use env::Env;
use parking_lot::{Mutex, RwLock};
use replica::ReplicaMarks;
use replica::replay::Replay;
use replica::ship::{Message, Read, Ring, RingReader, RingWriter};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use wal::{Group, LogWriter};

use crate::notice::Notice;

/// Bytes of the ring.
const RING_BYTES: usize = 64 << 20;

/// How often a write to a full disk is tried again.
const RETRY: Duration = Duration::from_millis(50);

/// Bytes taken before a sync.
const SYNC_BYTES: u64 = 4 << 20;

/// What a replica has done.
#[derive(Debug, Default)]
pub struct FollowStats {
    pub groups: AtomicU64,
    pub bytes: AtomicU64,
    /// Times that the ring was overrun.
    pub overruns: AtomicU64,
    /// Primary's clock in the newest batch or tick, microseconds since 1970; 0 before the first.
    pub heard_micros: AtomicU64,
    /// This node's clock then.
    pub heard_at_micros: AtomicU64,
}

/// See the head of the file.
pub struct Following {
    pub marks: Arc<ReplicaMarks>,
    pub stats: FollowStats,
    /// Marks moved, or the ring was overrun.
    pub moved: Arc<Notice>,
    pub(crate) replay: RwLock<Option<Replay>>,
    /// The receiver's side of the ring, while no receiver has it.
    ring: Mutex<Option<RingWriter>>,
    overrun: AtomicBool,
    stop: AtomicBool,
    /// The consumer ends when the ring is empty.
    finish: AtomicBool,
    failure: Mutex<Option<Error>>,
    term: AtomicU64,
}

impl Following {
    pub(crate) fn new(
        marks: Arc<ReplicaMarks>,
        replay: Replay,
        moved: Arc<Notice>,
        term: u64,
    ) -> (Following, RingReader) {
        let (writer, reader) = Ring::pair(RING_BYTES);
        let following = Following {
            marks,
            ring: Mutex::new(Some(writer)),
            stats: FollowStats::default(),
            moved,
            replay: RwLock::new(Some(replay)),
            overrun: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            finish: AtomicBool::new(false),
            failure: Mutex::default(),
            term: AtomicU64::new(term),
        };
        (following, reader)
    }

    /// The receiver's side of the ring; give it back when the connection ends.
    pub fn take_ring(&self) -> Option<RingWriter> {
        self.ring.lock().take()
    }

    /// See [`Following::take_ring`].
    pub fn return_ring(&self, ring: RingWriter) {
        *self.ring.lock() = Some(ring);
    }

    /// The highest term in this node's log.
    pub fn term(&self) -> u64 {
        self.term.load(Ordering::SeqCst)
    }

    /// Everything up to `upto` has been taken, and this is published at the primary.
    pub(crate) fn tick(&self, upto: Position, published: Position) {
        if let Some(r) = &*self.replay.read() {
            r.tick(upto, published);
        }
    }

    /// *Published* at the primary, heard without anything new to take.
    pub fn published(&self, to: Position) {
        self.tick(self.marks.received.get(), to);
    }

    /// Whether the ring lost something since the last question: then the receiver asks for what comes after *received*.
    pub fn take_overrun(&self) -> bool {
        self.overrun.swap(false, Ordering::SeqCst)
    }

    /// Why this replica does not go on.
    pub fn failure(&self) -> Option<Error> {
        let own = self.failure.lock().clone();
        own.or_else(|| self.replay.read().as_ref().and_then(Replay::failure))
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }

    /// The consumer ends when it has taken what is in the ring.
    pub(crate) fn finish(&self) {
        self.finish.store(true, Ordering::SeqCst);
    }

    fn fail(&self, e: Error) {
        eprintln!(
            "canon: this replica stops following: {}",
            e.fields().message
        );
        self.failure.lock().get_or_insert(e);
        self.moved.moved();
    }

    /// The consumer's thread. Gives the log back at the end.
    pub(crate) fn run(&self, mut ring: RingReader, mut log: LogWriter, env: &Env) -> LogWriter {
        let (mut unsynced, mut frame) = (0, Vec::new());
        while !self.stop.load(Ordering::SeqCst) {
            match ring.read(&mut frame) {
                Read::Empty => {
                    if unsynced > 0 || self.marks.persisted.get() < self.marks.received.get() {
                        self.sync(&mut log);
                        unsynced = 0;
                    } else if self.finish.load(Ordering::SeqCst) {
                        break;
                    } else {
                        ring.wait(Duration::from_millis(20));
                    }
                }
                Read::Overrun => self.lost(),
                Read::Frame => match self.accept(&frame, &mut log, env) {
                    Ok(n) => {
                        unsynced += n;
                        if unsynced >= SYNC_BYTES {
                            self.sync(&mut log);
                            unsynced = 0;
                        }
                    }
                    Err(e) => {
                        self.fail(e);
                        break;
                    }
                },
            }
        }
        if unsynced > 0 {
            self.sync(&mut log);
        }
        log
    }

    /// Something is missing: whoever receives asks for what follows *received*.
    fn lost(&self) {
        self.stats.overruns.fetch_add(1, Ordering::Relaxed);
        self.overrun.store(true, Ordering::SeqCst);
        self.moved.moved();
    }

    fn sync(&self, log: &mut LogWriter) {
        if let Err(e) = log.sync() {
            crate::pipeline::die(&e);
        }
        // Positions without a commit need no place in the log.
        self.marks.persisted.raise(self.marks.received.get());
        self.moved.moved();
    }

    /// Takes one batch or tick. Bytes appended.
    fn accept(&self, frame: &[u8], log: &mut LogWriter, env: &Env) -> Result<u64> {
        let damaged = |what: String| Error::new(SqlState::DATA_CORRUPTED, what);
        let message = Message::decode(frame).map_err(|e| damaged(e.to_owned()))?;
        let Some(step) = message.step() else {
            return Err(damaged(format!("{message:?} in the ring")));
        };
        let taken = self.marks.received.get();
        if step.after > taken {
            self.lost();
            return Ok(0);
        }
        self.heard(step.sent_micros, env);
        self.term.fetch_max(step.term, Ordering::SeqCst);
        let mut appended = 0;
        if let Message::Batch { group, .. } = message
            && step.upto > taken
        {
            let group = Group::from_bytes(group).map_err(|e| damaged(e.to_owned()))?;
            let (first, last) = (group.header().first, group.header().last);
            // A group that is here already comes again after a reconnect; one that begins before *received* and ends behind does not.
            if last > log.last() {
                if first <= log.last() {
                    let end = log.last();
                    return Err(damaged(format!(
                        "commits {first} to {last} came after {end}"
                    )));
                }
                appended = self.append(log, &group, env)?;
                self.stats.groups.fetch_add(1, Ordering::Relaxed);
                self.stats.bytes.fetch_add(appended, Ordering::Relaxed);
                self.marks.received.raise(step.upto);
                if let Some(r) = &*self.replay.read() {
                    r.feed(group, step.upto)?;
                }
            }
        }
        self.marks.received.raise(step.upto);
        self.tick(step.upto, step.published);
        Ok(appended)
    }

    fn heard(&self, sent_micros: i64, env: &Env) {
        let s = &self.stats;
        s.heard_micros
            .fetch_max(sent_micros.max(0) as u64, Ordering::Relaxed);
        let now = env.clock.unix_micros().max(0) as u64;
        s.heard_at_micros.store(now, Ordering::Relaxed);
    }

    fn append(&self, log: &mut LogWriter, group: &Group, env: &Env) -> Result<u64> {
        loop {
            match log.append_shipped(group) {
                Ok(a) => return Ok(a.bytes),
                Err(e) if e.is_retryable() => {
                    eprintln!("canon: {e}; following goes on when there is room");
                    env.clock.sleep(RETRY);
                    if self.stop.load(Ordering::SeqCst) {
                        return Err(Error::new(SqlState::DISK_FULL, e.to_string()));
                    }
                }
                Err(e) => crate::pipeline::die(&e),
            }
        }
    }
}
