//! The pipeline: what is installed goes to the log in groups, back to back; what is durable is decided and published, and
//! whoever waited for it is let go.
//!
//! ```text
//! committing threads ──▶ order (ring) ──▶ flusher: append group, fdatasync ──▶ flushed, decided, published ──▶ waiters
//!                                                                          └──▶ shipping ──▶ replicas
//! ```
//! A thread of its own writes the log, the flusher. While it waits for the disk the next group gathers; so a lone client pays one
//! flush, and a hundred share one. A full disk stops nothing but new writes: the group is tried again until there is room, and those who
//! wait for it wait. Any other error of the log ends the process, because nobody knows any more what is on the disk.
//!
//! Where a flush takes no longer than waking the flusher does (`QUICK`: a tmpfs, a disk with a protected cache), the threads that
//! wait for their commits flush themselves ([`Pipeline::flush_here`]): whoever comes first takes all that is installed. So does a thread
//! that has nothing else to do. A full disk is for the flusher alone to wait for: the threads have others to serve, who may want to read.
//! Commits that nobody waits for gather for a moment (`GATHER`), unless somebody comes who does.

use base::record::CommitHead;
use base::region::{Region, is_row_slot};
use base::{CommitWait, Error, Position, Result, SqlState, Watermarks};
use commit::{Order, PublishedWait, Waiters};
use env::{Env, fault};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use txn::{Backoff, CommitOrder, TxnManager};
use wal::LogWriter;

use crate::options::NodeOptions;
use crate::outcomes::Outcomes;
use crate::shipping::Shipping;
use crate::turns::Turns;

/// Bytes of a group, near enough; one commit may be larger.
const GROUP_BYTES: usize = 4 << 20;

/// How often a write to a full disk is tried again.
const RETRY: Duration = Duration::from_millis(50);

/// How often it is, when the node stops, before what waits for room is given up: for a second.
const LAST_TRIES: u32 = 20;

/// How long commits gather for which nobody waits.
const GATHER: Duration = Duration::from_micros(250);

/// A flush that takes this long at most, in nanoseconds, is done by the one who needs it.
const QUICK: u64 = 25_000;

/// What flushing has done.
#[derive(Debug, Default)]
pub struct FlushStats {
    pub groups: AtomicU64,
    pub commits: AtomicU64,
    pub bytes: AtomicU64,
    /// Time in write and fdatasync.
    pub nanos: AtomicU64,
    /// Times that a group found the disk full.
    pub disk_full: AtomicU64,
    /// Commits that the node stopped without, because there was no room for them.
    pub given_up: AtomicU64,
}

/// The log, and what it had no room for.
struct Writing {
    log: LogWriter,
    /// The group that is being written, or found the disk full: it goes before any other.
    left: Vec<wal::Commit>,
    /// It found the disk full.
    was_full: bool,
    /// It is in the file, and not synced; and when its writing began.
    appended: bool,
    began: u64,
}

/// What became of a group.
#[derive(PartialEq)]
enum Flushed {
    Nothing,
    Group,
    /// The disk is full, and the group is left.
    Full,
}

/// See the head of the file.
pub struct Pipeline {
    pub order: Order,
    pub marks: Arc<Watermarks>,
    pub waiters: Arc<Waiters>,
    pub shipping: Shipping,
    /// What replicas read of this node (`base::region`): raised before a commit counts as installed.
    pub region: Arc<Region>,
    pub stats: FlushStats,
    /// Of candidates, before they commit.
    pub turns: Turns,
    /// The first position that this life of the node, or of its term, gives.
    first: AtomicU64,
    stop: AtomicBool,
    /// The log while there is a flusher; whoever has it drains and flushes.
    log: Mutex<Option<Writing>>,
    /// Nanoseconds of a flush, a mean over the last few.
    pace: AtomicU64,
    /// Since when the flush that is under way writes, by the monotonic clock; 0: none is.
    flushing: AtomicU64,
}

impl Pipeline {
    /// Gives positions from `next` on.
    pub fn new(next: Position, marks: Arc<Watermarks>, options: &NodeOptions) -> Pipeline {
        let region = options.region.clone().unwrap_or_default();
        let (replicas, recent) = (options.synchronous_replicas, options.recent_bytes);
        let waiters: Arc<Waiters> = Arc::default();
        marks.region.get_or_init(|| region.clone());
        Pipeline {
            order: Order::new(next, marks.clone()),
            first: AtomicU64::new(next.next_epoch().as_u64()),
            region,
            shipping: Shipping::new(marks.clone(), waiters.clone(), replicas, recent),
            marks,
            waiters,
            stats: FlushStats::default(),
            turns: Turns::new(options.site_certification),
            stop: AtomicBool::new(false),
            log: Mutex::default(),
            pace: AtomicU64::new(QUICK * 8),
            flushing: AtomicU64::new(0),
        }
    }

    /// Since when the flush that is under way writes, in nanoseconds of the monotonic clock. A disk that is full is none.
    pub fn flushing_since(&self) -> Option<u64> {
        Some(self.flushing.load(Ordering::Relaxed)).filter(|at| *at > 0)
    }

    /// Ready when the reply may leave.
    pub fn published(&self, held: impl Into<CommitWait>) -> PublishedWait {
        PublishedWait::new(held.into(), self.marks.clone(), self.waiters.clone())
    }

    /// An acknowledgement that does not wait for the disk (`synchronous_commit = off`) publishes what it acknowledges. False: a commit
    /// before it takes long to be installed, and whoever waits here keeps its processor from it; or a holder of a read lease has to receive it first.
    pub fn publish(&self, position: Position) -> bool {
        let mut wait = Backoff::default();
        while self.marks.installed.get() < position {
            if wait.is_long() {
                return false;
            }
            wait.pause();
        }
        self.marks.publish(position);
        if self.marks.published.get() < position {
            return false;
        }
        self.waiters.wake(position);
        true
    }

    /// Goes on behind `next`, in a new term.
    pub fn open_after(&self, next: Position) {
        self.order.open_after(next);
        let first = self.order.next_position().as_u64();
        self.first.store(first, Ordering::SeqCst);
    }

    /// Whether commits may be published before they are durable: when one of this life is. Else a crash could leave no trace of it,
    /// and its positions, at which readers may stand, would be given again (`Position::after_restart`).
    pub fn may_publish_early(&self) -> bool {
        self.marks.flushed.get().as_u64() >= self.first.load(Ordering::SeqCst)
    }

    /// The log goes on in this term.
    pub fn set_term(&self, term: u64) {
        if let Some(log) = self.log.lock().as_mut() {
            log.log.set_term(term);
        }
    }

    /// Lets the flusher end when everything is flushed.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }

    /// This is the log.
    pub fn open(&self, log: LogWriter) {
        self.shipping.set_limit(log.synced_point());
        *self.log.lock() = Some(Writing {
            log,
            left: Vec::new(),
            was_full: false,
            appended: false,
            began: 0,
        });
    }

    /// The flusher's thread. The log is open.
    pub fn run(&self, manager: &TxnManager, env: &Env) {
        loop {
            self.order.wait_for_work(Duration::from_millis(20));
            self.shipping.leases_lapse(|| env.clock.boot_nanos());
            let mut held = self.log.lock();
            let w = held.as_mut().expect("open until it is taken out below");
            // What those wait for who were in a hurry before is in this group.
            self.order.take_hurry();
            let mut done = self.flush_group(w, manager, env);
            let mut last_tries = 0;
            while done == Flushed::Full {
                if self.stop.load(Ordering::SeqCst) {
                    if last_tries == LAST_TRIES {
                        self.give_up(w);
                        *held = None;
                        return;
                    }
                    last_tries += 1;
                }
                env.clock.sleep(RETRY);
                self.shipping.leases_lapse(|| env.clock.boot_nanos());
                done = self.flush_group(w, manager, env);
            }
            let idle = done == Flushed::Nothing;
            if self.stop.load(Ordering::SeqCst) {
                if idle && self.order.is_idle() {
                    *held = None;
                    return;
                }
            } else if !idle {
                drop(held);
                self.order.gather(GATHER);
            }
        }
    }

    /// The node stops on a full disk. What waits for room was acknowledged to nobody but those who do not wait for the disk, and the next
    /// start does not find it.
    fn give_up(&self, w: &mut Writing) {
        // Nobody waits for room any more.
        self.order.close();
        let mut commits = w.left.len();
        loop {
            match self.next_group().len() {
                0 => break,
                n => commits += n,
            }
        }
        self.stats
            .given_up
            .fetch_add(commits as u64, Ordering::SeqCst);
        env::alarm!(
            "canon: stopping on a full disk: {commits} commits that waited for room are not in the log"
        );
    }

    /// For a thread whose commit is installed and that has to wait for the disk: flushes if that is quick, else wakes the flusher.
    /// When it returns somebody else may be flushing still; he looks again when he is done. A thread that is `alone` waits for the disk
    /// in any case: that is two switches less than to wait for the flusher.
    pub fn flush_here(&self, manager: &TxnManager, env: &Env, mut alone: bool) {
        while self.order.has_work() {
            let slow = self.pace.load(Ordering::Relaxed) > QUICK;
            if slow && !alone {
                return self.order.notify();
            }
            let Some(mut held) = self.log.try_lock() else {
                // The flusher may have looked already, and would gather.
                return self.order.notify();
            };
            let Some(w) = held.as_mut() else {
                return;
            };
            if w.was_full || self.flush_group(w, manager, env) == Flushed::Full {
                return self.order.notify();
            }
            // What came meanwhile is not this thread's.
            alone &= !slow;
        }
    }

    /// Makes a group of what is installed durable.
    fn flush_group(&self, w: &mut Writing, manager: &TxnManager, env: &Env) -> Flushed {
        // Its clients would be told by the next group, and the log would not have it.
        let _whole = env::say::Whole("writing the log");
        let done = match w.appended {
            true => Flushed::Group,
            false => self.append(w, manager, env),
        };
        if done == Flushed::Group {
            self.sync(w, manager, env);
        }
        done
    }

    /// A step without a thread: writes a group, if the one before is durable. Its last position.
    pub fn append_step(&self, manager: &TxnManager, env: &Env) -> Option<Position> {
        let mut held = self.log.lock();
        let w = held.as_mut().filter(|w| !w.appended)?;
        let done = self.append(w, manager, env);
        (done == Flushed::Group).then(|| w.left.last().expect("just written").position)
    }

    /// The next step: what was written is made durable. Up to where.
    pub fn sync_step(&self, manager: &TxnManager, env: &Env) -> Option<Position> {
        let mut held = self.log.lock();
        let w = held.as_mut().filter(|w| w.appended)?;
        let upto = w.left.last().map(|c| c.position);
        self.sync(w, manager, env);
        upto
    }

    /// Writes a group of what is installed, or the one that found the disk full. It is in `left` until it is durable.
    fn append(&self, w: &mut Writing, manager: &TxnManager, env: &Env) -> Flushed {
        if !w.was_full {
            w.left = self.next_group();
        }
        if w.left.is_empty() {
            return Flushed::Nothing;
        }
        w.log.set_copies(self.shipping.is_wanted());
        w.began = env.clock.monotonic_nanos();
        self.flushing.store(w.began.max(1), Ordering::Relaxed);
        match w.log.append_group(&w.left, self.marks.published.get()) {
            Ok(_) => {
                w.appended = true;
                Flushed::Group
            }
            Err(e) if e.is_retryable() => {
                self.flushing.store(0, Ordering::Relaxed);
                if !std::mem::replace(&mut w.was_full, true) {
                    self.stats.disk_full.fetch_add(1, Ordering::Relaxed);
                    manager.set_disk_full(true);
                    env::alarm!(
                        "canon: {e}; commits wait and new writes are refused until there is room"
                    );
                }
                Flushed::Full
            }
            Err(e) => die(&e),
        }
    }

    /// What was written is made durable, counts as that, and goes to replicas.
    fn sync(&self, w: &mut Writing, manager: &TxnManager, env: &Env) {
        if !fault::planted("pipeline.flushed_unsynced")
            && let Err(e) = w.log.sync()
        {
            die(&e);
        }
        w.appended = false;
        self.flushing.store(0, Ordering::Relaxed);
        let group = std::mem::take(&mut w.left);
        let last = group.last().expect("a group was written").position;
        if std::mem::take(&mut w.was_full) {
            manager.set_disk_full(false);
            env::say!("canon: there is room on the disk again; writes go on");
        }
        self.count(&group, env.clock.monotonic_nanos() - w.began);
        self.shipping
            .flushed(last, w.log.take_copy(), w.log.synced_point());
        fault::point("node.after_decided");
    }

    /// What is installed and not written yet, ready for the log; nothing when there is nothing.
    fn next_group(&self) -> Vec<wal::Commit> {
        let mut drained = Vec::new();
        let Some(last) = self.order.drain(GROUP_BYTES, &mut drained) else {
            return Vec::new();
        };
        let mut group: Vec<wal::Commit> = drained
            .into_iter()
            .map(|l| wal::Commit {
                position: l.position,
                heads: l.heads,
                data: l.data,
            })
            .collect();
        if group.last().is_none_or(|c| c.position < last) {
            group.push(empty_commit(last));
        }
        group
    }

    /// A group was written and synced in this many nanoseconds.
    fn count(&self, group: &[wal::Commit], took: u64) {
        let s = &self.stats;
        s.groups.fetch_add(1, Ordering::Relaxed);
        s.commits.fetch_add(group.len() as u64, Ordering::Relaxed);
        let bytes: usize = group.iter().map(|c| c.heads.len() + c.data.len()).sum();
        s.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        s.nanos.fetch_add(took, Ordering::Relaxed);
        let pace = self.pace.load(Ordering::Relaxed);
        // One slow flush is a moment, not the disk's pace.
        self.pace
            .store((7 * pace + took.min(8 * QUICK)) / 8, Ordering::Relaxed);
    }
}

/// A commit with these heads is installed, and does not count as such yet: what it changed goes into the region.
pub fn modified(region: &Region, heads: &[u8]) {
    region.modified(heads);
    if fault::planted("read.slot_lowered") {
        // As if another row of the slot, changed long ago, had written it.
        region.modified_by(heads, |word, slot, _| {
            if is_row_slot(word) {
                slot.store(1, Ordering::SeqCst);
            }
        });
    }
}

/// A position that was given up stays empty for ever, also after a crash, when it is the last of a group: replicas are told that there is
/// nothing up to it, so it must not be given out again. In the log that is a commit without records.
fn empty_commit(position: Position) -> wal::Commit {
    let (heads, data) = base::record::CommitBuilder::new().finish(position, 0);
    wal::Commit {
        position,
        heads,
        data,
    }
}

/// Nobody knows what is durable now, so nothing may be acknowledged: the process ends, and recovery will tell.
pub(crate) fn die(e: &wal::Error) -> ! {
    env::alarm!("canon: the log cannot be written: {e}");
    env::alarm!("canon: stopping now, so that nothing is acknowledged that may be lost");
    std::process::abort();
}

fn handed_over() -> Error {
    Error::new(
        SqlState::READ_ONLY_SQL_TRANSACTION,
        "cannot write: this node has handed over to another primary",
    )
}

/// The order for those who flush when they have committed ([`Pipeline::flush_here`]): nobody is woken for their commits.
pub struct Quiet<'a>(pub &'a Pipeline);

impl CommitOrder for Quiet<'_> {
    fn wait_for_room(&self, check_cancelled: &dyn Fn() -> Result<()>) -> Result<()> {
        CommitOrder::wait_for_room(self.0, check_cancelled)
    }

    fn begin(&self) -> Result<(Position, u64)> {
        self.0.begin()
    }

    fn ready(&self, ticket: u64, heads: Vec<u8>, data: Vec<u8>) {
        modified(&self.0.region, &heads);
        self.0.order.ready_quietly(ticket, heads, data);
    }

    fn abort(&self, ticket: u64) {
        self.0.abort(ticket);
    }
}

/// The order for a commit with a number: its outcome is kept.
pub struct Marked<'a> {
    pub order: &'a dyn CommitOrder,
    pub outcomes: &'a Outcomes,
    pub number: u64,
    /// A copy of the request may come: once it has failed none may commit, not for a moment.
    pub once: bool,
}

impl Marked<'_> {
    fn failed(&self) {
        match self.once {
            true => self.outcomes.refuse(self.number),
            false => self.outcomes.aborted(self.number),
        }
    }
}

impl CommitOrder for Marked<'_> {
    fn wait_for_room(&self, check_cancelled: &dyn Fn() -> Result<()>) -> Result<()> {
        self.order.wait_for_room(check_cancelled)
    }

    fn begin(&self) -> Result<(Position, u64)> {
        self.outcomes.begin(self.number)?;
        let begun = self.order.begin();
        if begun.is_err() {
            self.failed();
        }
        begun
    }

    fn ready(&self, ticket: u64, mut heads: Vec<u8>, data: Vec<u8>) {
        CommitHead::mark(&mut heads, self.number);
        let head = CommitHead::read(&heads).expect("our own record");
        self.outcomes.committed(self.number, head.position);
        self.order.ready(ticket, heads, data);
    }

    fn abort(&self, ticket: u64) {
        self.failed();
        self.order.abort(ticket);
    }
}

/// The order as transactions see it.
impl CommitOrder for Pipeline {
    fn wait_for_room(&self, check_cancelled: &dyn Fn() -> Result<()>) -> Result<()> {
        self.order.wait_for_room(check_cancelled)
    }

    fn begin(&self) -> Result<(Position, u64)> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Error::new(
                SqlState::ADMIN_SHUTDOWN,
                "the database system is shutting down",
            ));
        }
        self.order.begin().ok_or_else(handed_over)
    }

    fn ready(&self, ticket: u64, heads: Vec<u8>, data: Vec<u8>) {
        modified(&self.region, &heads);
        self.order.ready(ticket, heads, data);
    }

    fn abort(&self, ticket: u64) {
        self.order.abort(ticket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A copy of a request that has failed is refused from the moment on at which the commit is given up.
    #[test]
    fn what_is_to_run_once_is_refused_where_it_aborts() {
        let marks = Arc::default();
        let next = Position::new(4, 7).after_restart();
        let p = Pipeline::new(next, marks, &NodeOptions::default());
        let outcomes = Outcomes::default();
        let number = 7;
        for once in [false, true] {
            let order = Marked {
                order: &p,
                outcomes: &outcomes,
                number,
                once,
            };
            outcomes.claim(number, next).expect("it is new");
            let (_, ticket) = order.begin().expect("open");
            order.abort(ticket);
            let copy = outcomes.claim(number, next);
            assert_eq!(copy.is_err(), once);
            outcomes.aborted(number);
        }
    }

    #[test]
    fn an_early_acknowledgement_waits_for_no_long_commit() {
        let marks = Arc::default();
        let next = Position::new(4, 7).after_restart();
        let p = Pipeline::new(next, marks, &NodeOptions::default());
        let (_, long) = p.order.begin().expect("open");
        let (position, quick) = p.order.begin().expect("open");
        p.order.ready(quick, vec![1], vec![]);
        assert!(!p.publish(position));
        assert!(p.marks.published.get() < position);
        p.order.ready(long, vec![1], vec![]);
        assert!(p.publish(position));
        assert_eq!(p.marks.published.get(), position);
    }
}
