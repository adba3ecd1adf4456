//! A replica's work: batches from the ring go into its own log and to replay; what moved is acknowledged.
//!
//! ```text
//! receiver ──▶ ring ──▶ taken ──▶ replay ──▶ visible (the sink)
//!                         └──▶ own log: append, fdatasync ──▶ persisted
//! ```
//! *Own log* is a thread: replay does not wait for this node's disk, as the primary sends only what is durable there.
//!
//! **Who takes.** Who brought a frame takes it out again at once ([`Following::take`]), as long as that needs no waiting: a thread less on
//! the way to visible, which on a busy machine is some milliseconds less. When there is no room, the ring fills and the *follower*
//! takes what is there, waiting where it has to. The ring's reader is behind a lock, which is tried by the one and taken by the other.
//!
//! A group that the ring lost (overwritten before it was read), or that came damaged, is asked for again, from the last position that was taken; so is
//! everything after a reconnect. Groups at or below that position are skipped.

use base::record::CommitHead;
use base::region::Region;
use base::{Error, Position, Result, SqlState};
use env::Env;
use parking_lot::{Mutex, RwLock};
use replica::ReplicaMarks;
use replica::lease::Held;
use replica::read::{Check, Touch, decide};
use replica::ship::{Message, Read, Ring, RingReader, RingWriter};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use wal::Group;

use crate::node::Node;
use crate::notice::Notice;
use crate::outcomes::Outcomes;
use crate::own_log::OwnLog;
use crate::replaying::Replaying;

/// Groups that may come damaged one after the other before the replica gives up.
const MOST_DAMAGED: u64 = 16;

/// What a replica has done.
#[derive(Debug, Default)]
pub struct FollowStats {
    pub groups: AtomicU64,
    pub bytes: AtomicU64,
    /// Times that the ring was overrun.
    pub overruns: AtomicU64,
    /// Groups that were damaged on their way.
    pub damaged: AtomicU64,
    /// Primary's clock in the newest batch or tick, microseconds since 1970; 0 before the first.
    pub heard_micros: AtomicU64,
    /// This node's clock then.
    pub heard_at_micros: AtomicU64,
}

/// How taking ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Taken {
    /// There is nothing more.
    All,
    NoRoom,
    /// Nothing is taken any more.
    Ended,
}

/// What was modified by what has come, for reads that stand where it ends (SCC §4.2, at the replica).
pub(crate) struct Tracker {
    region: Arc<Region>,
    /// With the planted fault: the heads of the group before.
    late: Mutex<Vec<u8>>,
}

impl Tracker {
    /// Over the node's own region, whose slots no other node reads while it follows.
    pub fn new(region: Arc<Region>) -> Tracker {
        Tracker {
            region,
            late: Mutex::default(),
        }
    }

    /// This comes next. Call it before it counts as received. A read that finds it received then finds its slots raised.
    fn comes(&self, group: &Group) -> Result<()> {
        let late;
        let mut heads = group.heads();
        if env::fault::planted("lease.tracker_late") {
            late = std::mem::replace(&mut *self.late.lock(), heads.to_vec());
            heads = &late;
        }
        while !heads.is_empty() {
            let (one, rest) = heads.split_at(CommitHead::read(heads)?.heads);
            self.region.came(one)?;
            heads = rest;
        }
        Ok(())
    }
}

/// See the head of the file.
pub struct Following {
    pub marks: Arc<ReplicaMarks>,
    pub stats: FollowStats,
    /// Marks moved, or the ring was overrun.
    pub moved: Arc<Notice>,
    pub(crate) replay: RwLock<Option<Replaying>>,
    /// The receiver's side of the ring, while no receiver has it.
    ring: Mutex<Option<RingWriter>>,
    /// The other side, with room for a frame; none when nothing is taken any more.
    reader: Mutex<Option<(RingReader, Vec<u8>)>>,
    /// What was here at the start ends here.
    began: Position,
    overrun: AtomicBool,
    stop: AtomicBool,
    /// Nothing is taken for now.
    held: AtomicBool,
    /// The old primary has handed over: it serves no client, and no lease of it is in force.
    handed_over: AtomicBool,
    /// The consumer ends when the ring is empty.
    finish: AtomicBool,
    failure: Mutex<Option<Error>>,
    damaged_in_a_row: AtomicU64,
    /// The newest term of this node's history when it began, and the newest that it has heard of.
    known: u64,
    heard: AtomicU64,
    term: AtomicU64,
    /// Numbers of commits that come.
    outcomes: Arc<Outcomes>,
    /// Where this node may hold read leases: what was modified by all that it has received.
    pub(crate) tracker: Option<Tracker>,
    /// The lease that it holds.
    pub(crate) lease: Held,
    pub(crate) own_log: OwnLog,
}

impl Following {
    pub(crate) fn new(
        marks: Arc<ReplicaMarks>,
        replay: Replaying,
        ring_bytes: usize,
        moved: Arc<Notice>,
        outcomes: Arc<Outcomes>,
        known: u64,
        heard: u64,
        term: u64,
    ) -> Following {
        let (writer, reader) = Ring::pair(ring_bytes);
        Following {
            began: marks.received.get(),
            marks,
            ring: Mutex::new(Some(writer)),
            reader: Mutex::new(Some((reader, Vec::new()))),
            stats: FollowStats::default(),
            moved,
            overrun: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            // Without threads the caller's steps take frames.
            held: AtomicBool::new(replay.is_stepped()),
            handed_over: AtomicBool::new(false),
            finish: AtomicBool::new(false),
            failure: Mutex::default(),
            damaged_in_a_row: AtomicU64::new(0),
            known,
            heard: AtomicU64::new(heard),
            term: AtomicU64::new(term),
            outcomes,
            tracker: None,
            lease: Held::default(),
            own_log: OwnLog::default(),
            replay: RwLock::new(Some(replay)),
        }
    }

    /// The receiver's side of the ring; give it back when the connection ends.
    pub fn take_ring(&self) -> Option<RingWriter> {
        self.ring.lock().take()
    }

    /// See [`Following::take_ring`].
    pub fn return_ring(&self, ring: RingWriter) {
        *self.ring.lock() = Some(ring);
    }

    /// Where a strong read may stand that has arrived: at all that has come, while a lease says that this is all that was acknowledged. None: it has to ask.
    pub fn leased(&self, clock: &dyn env::Clock) -> Option<Position> {
        // The lease is looked at after the position, and both after the read came.
        let received = self.marks.received.get();
        let holds = self
            .lease
            .may_answer(self.followed(), received, || clock.boot_nanos());
        holds.then_some(received)
    }

    /// The check of what a read at `at` touches by what has come here, where all up to `at` has. None: the primary's slots have to say.
    pub fn check_received(
        &self,
        at: Position,
        visible: Position,
        touches: &[Touch],
    ) -> Option<Check> {
        let tracker = self.tracker.as_ref()?;
        if self.marks.received.get() < at {
            return None;
        }
        let shown = match env::fault::planted("lease.reads_unpublished") {
            true => visible.max(self.marks.applied.get()),
            false => visible,
        };
        decide(at, shown, touches, |slot| Some(tracker.region.slot(slot))).ok()
    }

    /// The highest term in this node's log.
    pub fn term(&self) -> u64 {
        self.term.load(Ordering::SeqCst)
    }

    /// The newest term that is known here, also when its primary has only said that it is there: what one of an older term answers counts no
    /// more. 0: a newer one was heard of, which this node does not follow.
    pub fn followed(&self) -> u64 {
        let known = self.known.max(self.term());
        self.marks
            .followed(known, self.heard.load(Ordering::SeqCst))
    }

    /// There is a primary of this term, and it is not known whether its history is the one that is here.
    pub fn heard_of(&self, term: u64) {
        self.heard.fetch_max(term, Ordering::SeqCst);
    }

    /// Everything up to `upto` has been given to replay.
    pub(crate) fn tick(&self, upto: Position) {
        if let Some(r) = &*self.replay.read() {
            r.tick(upto, Position::ZERO);
        }
    }

    /// *Published* at the primary of this term, heard without anything new to take. What is received may not have reached replay yet, which
    /// the follower alone knows; so this claims no more than has been scheduled.
    pub fn published(&self, term: u64, to: Position) {
        self.marks.hear(term, to);
        self.tick(self.marks.scheduled.get());
    }

    /// All that was here at the start is published, up to there.
    pub(crate) fn show(&self, end: Position) {
        if let Some(r) = &*self.replay.read() {
            r.tick(self.marks.scheduled.get(), end);
        }
    }

    /// Commits that have been handed to replay since the start.
    pub fn commits(&self) -> u64 {
        let replay = self.replay.read();
        replay.as_ref().map_or(0, Replaying::commits)
    }

    /// Whether the ring lost something since the last question: then the receiver asks for what comes after *received*.
    pub fn take_overrun(&self) -> bool {
        self.overrun.swap(false, Ordering::SeqCst)
    }

    /// Why this replica does not go on.
    pub fn failure(&self) -> Option<Error> {
        let own = self.failure.lock().clone();
        own.or_else(|| self.replay.read().as_ref().and_then(Replaying::failure))
    }

    /// For tests: what comes is left where it is, or is taken again. Reads here go on at what is shown.
    pub fn hold(&self, on: bool) {
        self.held.store(on, Ordering::SeqCst);
    }

    /// Whether the old primary has handed over to this node, which is about to be promoted.
    pub(crate) fn handed_over(&self, whether: bool) {
        self.handed_over.store(whether, Ordering::SeqCst);
    }

    /// See [`Following::handed_over`].
    pub(crate) fn was_handed_over(&self) -> bool {
        self.handed_over.load(Ordering::SeqCst)
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.own_log.stop();
    }

    /// Nothing is taken any more, whatever comes: it failed, or a promotion has begun.
    pub fn has_ended(&self) -> bool {
        // Whoever takes has it.
        self.reader.try_lock().is_some_and(|r| r.is_none())
    }

    /// The consumer ends when it has taken what is in the ring.
    pub(crate) fn finish(&self) {
        self.finish.store(true, Ordering::SeqCst);
    }

    fn fail(&self, e: Error) {
        let f = e.fields();
        env::alarm!(
            "canon: this replica stops following: {}. {}",
            f.message,
            f.detail
        );
        self.failure.lock().get_or_insert(e);
        self.moved.moved();
    }

    /// The follower's thread.
    pub(crate) fn run(&self, env: &Env) {
        while !self.stop.load(Ordering::SeqCst) {
            if self.held.load(Ordering::SeqCst) {
                env.clock.sleep(Duration::from_millis(1));
                continue;
            }
            let place = {
                let mut reader = self.reader.lock();
                match self.take_all(&mut reader, env, || true) {
                    Taken::Ended => break,
                    Taken::NoRoom => continue,
                    Taken::All if self.finish.load(Ordering::SeqCst) => break,
                    Taken::All => reader.as_ref().map(|r| r.0.place()),
                }
            };
            if let Some(place) = place {
                place.wait(Duration::from_millis(20));
            }
        }
        *self.reader.lock() = None;
        self.own_log.close();
    }

    /// Writes a frame into the ring and takes what is there, if nobody is at it already and nothing has to be waited for.
    pub fn take(&self, ring: &mut RingWriter, frame: &[u8], env: &Env) {
        ring.put(frame);
        let has_room = || {
            let replay = self.replay.read();
            self.own_log.has_room() && replay.as_ref().is_none_or(Replaying::has_room)
        };
        let taken = match self.reader.try_lock() {
            Some(mut reader) if !self.held.load(Ordering::SeqCst) => {
                self.take_all(&mut reader, env, has_room)
            }
            _ => Taken::NoRoom,
        };
        if taken != Taken::All {
            ring.ring().wake();
        }
    }

    /// Takes frames while there is room.
    fn take_all(
        &self,
        reader: &mut Option<(RingReader, Vec<u8>)>,
        env: &Env,
        has_room: impl Fn() -> bool,
    ) -> Taken {
        loop {
            if self.stop.load(Ordering::SeqCst) {
                return Taken::Ended;
            }
            if !has_room() {
                return Taken::NoRoom;
            }
            if let Some(end) = self.take_one(reader, env) {
                return end;
            }
        }
    }

    /// Takes what comes next; `Some`: there is no more.
    fn take_one(&self, reader: &mut Option<(RingReader, Vec<u8>)>, env: &Env) -> Option<Taken> {
        let Some((ring, frame)) = reader else {
            return Some(Taken::Ended);
        };
        match ring.read(frame) {
            Read::Empty => return Some(Taken::All),
            Read::Overrun => self.lost(),
            Read::Frame => {
                if let Err(e) = self.accept(frame, env) {
                    self.fail(e);
                    *reader = None;
                    return Some(Taken::Ended);
                }
            }
        }
        None
    }

    /// A step without a thread: takes what comes next, if there is room.
    pub(crate) fn take_step(&self, env: &Env) {
        if self.replay.read().as_ref().is_none_or(Replaying::has_room) {
            self.take_one(&mut self.reader.lock(), env);
        }
    }

    /// Without threads: takes all that has come, and nothing afterwards.
    pub(crate) fn drain(&self, env: &Env) {
        let mut reader = self.reader.lock();
        let has_room = || self.replay.read().as_ref().is_none_or(Replaying::has_room);
        while self.take_all(&mut reader, env, has_room) == Taken::NoRoom {
            if let Some(r) = &*self.replay.read() {
                r.work(env);
            }
        }
        *reader = None;
        self.own_log.close();
    }

    /// Bytes that have come and were not taken.
    pub fn backlog(&self) -> u64 {
        let reader = self.reader.lock();
        reader.as_ref().map_or(0, |r| r.0.ring().backlog())
    }

    /// Something is missing: whoever receives asks for what follows *received*.
    fn lost(&self) {
        self.stats.overruns.fetch_add(1, Ordering::Relaxed);
        self.overrun.store(true, Ordering::SeqCst);
        self.moved.moved();
    }

    /// Takes one batch or tick.
    fn accept(&self, frame: &[u8], env: &Env) -> Result<()> {
        let damaged = |what: String| Error::new(SqlState::DATA_CORRUPTED, what);
        let message = Message::decode(frame).map_err(|e| damaged(e.to_owned()))?;
        let Some(step) = message.step() else {
            return Err(damaged(format!("{message:?} in the ring")));
        };
        let taken = self.marks.received.get();
        // What is here has no gaps: the greatest position that has come says nothing.
        if step.after > taken && !env::fault::planted("site.gap_is_max") {
            self.lost();
            return Ok(());
        }
        self.heard(step.sent_micros, env);
        self.marks.hear(step.term, step.published);
        self.term.fetch_max(step.term, Ordering::SeqCst);
        if step.upto > taken {
            let group = match message {
                Message::Batch { group, .. } => match self.group(group, taken)? {
                    None => {
                        self.lost();
                        return Ok(());
                    }
                    whole => whole,
                },
                _ => None,
            };
            if let (Some(tracker), Some(group)) = (&self.tracker, &group) {
                tracker.comes(group)?;
            }
            self.marks.received.raise(step.upto);
            if self.tracker.is_some() {
                // Commits may wait for the acknowledgement.
                self.moved.moved();
            }
            self.own_log.push(group.clone(), step.upto);
            if let (Some(group), Some(r)) = (group, &*self.replay.read()) {
                r.feed(group, step.upto)?;
            }
        }
        self.marks.hear(step.term, step.published);
        self.tick(step.upto);
        Ok(())
    }

    /// A group that goes on behind `taken`; none when it was damaged on its way, and is asked for again. One that comes damaged again and
    /// again was damaged before it was sent.
    fn group(&self, bytes: Vec<u8>, taken: Position) -> Result<Option<Group>> {
        let damaged = |what: String| Error::new(SqlState::DATA_CORRUPTED, what);
        let size = bytes.len() as u64;
        let group = match Group::from_bytes(bytes) {
            Ok(group) => group,
            Err(why) => {
                self.stats.damaged.fetch_add(1, Ordering::Relaxed);
                let times = self.damaged_in_a_row.fetch_add(1, Ordering::Relaxed) + 1;
                env::alarm!("canon: a group came damaged after {taken} ({why}); asked for again");
                return match times < MOST_DAMAGED {
                    true => Ok(None),
                    false => Err(damaged(why.to_owned())),
                };
            }
        };
        self.damaged_in_a_row.store(0, Ordering::Relaxed);
        let (first, last) = (group.header().first, group.header().last);
        // A checkpoint may end inside of a group: what is read back from there on has the whole of it.
        let straddles = taken == self.began && last > taken;
        if first <= taken && !straddles {
            return Err(damaged(format!(
                "commits {first} to {last} came after {taken}"
            )));
        }
        let mut heads = group.heads();
        while !heads.is_empty() {
            let head = CommitHead::read(heads)?;
            if head.stamp != 0 {
                self.outcomes.committed(head.stamp, head.position);
            }
            heads = &heads[head.heads..];
        }
        self.stats.groups.fetch_add(1, Ordering::Relaxed);
        self.stats.bytes.fetch_add(size, Ordering::Relaxed);
        Ok(Some(group))
    }

    fn heard(&self, sent_micros: i64, env: &Env) {
        let s = &self.stats;
        s.heard_micros
            .fetch_max(sent_micros.max(0) as u64, Ordering::Relaxed);
        let now = env.clock.unix_micros().max(0) as u64;
        s.heard_at_micros.store(now, Ordering::Relaxed);
    }
}

impl Node {
    /// A replica shows what it has in its log, though its primary cannot be asked, if all of that is decided by the policy; whether it is.
    pub fn show_own_log(&self) -> bool {
        let shows = self.has_decided_log();
        if shows && let Some(f) = self.following() {
            f.show(self.recovered_end());
        }
        shows
    }

    /// Where one replica must have a commit, this one has it, and had it of a primary, which ships only what it has itself. But what a node
    /// wrote when it led may be nowhere else: that is decided only where no replica is asked for. And one that holds what the
    /// cluster's history does not have shows nothing.
    fn has_decided_log(&self) -> bool {
        let came = || self.dir().has_led().is_ok_and(|led| !led);
        let decided = match self.shared().options.synchronous_replicas {
            0 => true,
            1 => came(),
            _ => false,
        };
        decided && self.diverged().is_none()
    }
}
