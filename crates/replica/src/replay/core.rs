//! What the workers share, and the steps on it that belong to no worker: handing out, and the bounds.
//!
//! ```text
//! incoming: groups fed ─▶ scheduling: one group stamped and being cut ─▶ queue: segments ─▶ bounds[worker]
//! ```
//! Locks, each short but `scheduling`, in the order in which they nest: `scheduling`, `snapshotter`, `incoming`, `queue`. Nobody waits
//! for `scheduling`: who does not get it finds the segments that its holder makes.

use base::record::RecordKind;
use base::{Error, Position, Result};
use env::fault;
use env::sync::Mutex;
use env::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use store::{Guard, Store};
use wal::Group;

use super::bell::Bell;
use super::install::Installer;
use super::progress::Progress;
use super::scheduler::{Piece, Plan, Scheduler};
use super::segment::{Flow, Segment, Shipped};
use super::snapshotter::{Gate, Snapshotter};
use super::worker::Worker;
use super::{Policy, ReplayOptions, ReplayStats, SchemaSink};
use crate::ReplicaMarks;

/// A worker's bound when it has nothing in hand.
const NOTHING: u64 = u64::MAX;

/// A bound alone on its cache line.
#[repr(align(64))]
struct Bound(AtomicU64);

#[derive(Default)]
struct Incoming {
    groups: VecDeque<(Shipped, Position)>,
    /// Groups fed and not cut to their ends.
    uncut: usize,
    /// Nothing more comes up to here.
    upto: Position,
}

struct Scheduling {
    scheduler: Scheduler,
    plan: Option<Plan>,
    generation: u64,
}

struct Queue {
    segments: VecDeque<Segment>,
    /// All up to here was put in the queue.
    scheduled: Position,
}

/// Waits that cost a row something: for measurements.
pub(crate) type Pay = Box<dyn Fn() + Send + Sync>;

/// See the head of the file.
pub(crate) struct Core {
    pub store: Arc<Store>,
    pub marks: Arc<ReplicaMarks>,
    pub sink: Arc<dyn SchemaSink>,
    pub options: ReplayOptions,
    pub stats: Arc<ReplayStats>,
    pub progress: Progress,
    pub gate: Gate,
    pub flow: Arc<Flow>,
    /// Rings when there may be something to take.
    pub work: Bell,
    /// Rings when something was executed, too: for who waits for others.
    pub done: Bell,
    pay: Option<Pay>,
    incoming: Mutex<Incoming>,
    scheduling: Mutex<Scheduling>,
    schedule_again: AtomicBool,
    queue: Mutex<Queue>,
    /// Segments in the queue, near enough.
    queued: AtomicUsize,
    bounds: Box<[Bound]>,
    /// Records that were handed out and are not executed.
    in_flight: AtomicU64,
    pub snapshotter: Mutex<Snapshotter>,
    pub look_again: AtomicBool,
    /// Builds that have not begun.
    pub builds: AtomicUsize,
    failed: AtomicBool,
    failure: Mutex<Option<Error>>,
}

impl Core {
    /// Everything up to `from` is in the store.
    pub fn new(
        store: Arc<Store>,
        marks: Arc<ReplicaMarks>,
        sink: Arc<dyn SchemaSink>,
        from: Position,
        mut options: ReplayOptions,
        pay: Option<Pay>,
    ) -> Core {
        options.workers = match options.policy {
            Policy::Serial => 1,
            _ => options.workers.max(1),
        };
        options.granules = options.granules.next_power_of_two();
        options.slice = options.slice.max(1);
        options.segment_rows = options.segment_rows.max(1);
        for mark in [&marks.received, &marks.scheduled, &marks.applied] {
            mark.raise(from);
        }
        let slots = match options.policy {
            Policy::Transaction => {
                (2 * (options.max_rows + options.segment_rows) as usize).next_power_of_two()
            }
            _ => options.granules,
        };
        let policy = options.policy;
        let scheduling = Scheduling {
            scheduler: Scheduler::new(policy, from, options.last_writes, options.granules),
            plan: None,
            generation: 0,
        };
        let queue = Queue {
            segments: VecDeque::new(),
            scheduled: from,
        };
        let gate = Gate::default();
        gate.open.store(options.workers as u64, Ordering::SeqCst);
        Core {
            store,
            marks,
            sink,
            stats: Arc::default(),
            progress: Progress::new(policy, slots),
            gate,
            flow: Arc::default(),
            work: Bell::default(),
            done: Bell::default(),
            pay,
            incoming: Mutex::default(),
            scheduling: Mutex::new(scheduling),
            queue: Mutex::new(queue),
            queued: AtomicUsize::new(0),
            bounds: (0..options.workers)
                .map(|_| Bound(AtomicU64::new(NOTHING)))
                .collect(),
            in_flight: AtomicU64::new(0),
            snapshotter: Mutex::default(),
            look_again: AtomicBool::new(false),
            schedule_again: AtomicBool::new(false),
            builds: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            failure: Mutex::new(None),
            options,
        }
    }

    /// The worker with this number, below `options.workers`; one of each.
    pub fn worker(&self, id: usize) -> Worker {
        Worker::new(id, Installer::new(self.store.clone(), self.marks.clone()))
    }

    /// Takes a group. `upto`: all commits up to there are in it or came before.
    pub fn feed(&self, group: Group, upto: Position) {
        let header = group.header();
        let upto = upto.max(header.last);
        self.marks.received.raise(upto);
        // What its primary had published beyond it may not have come into this history.
        self.marks
            .published
            .raise(header.published.min(header.last));
        let group = Shipped::new(group, &self.flow);
        let mut incoming = self.incoming.lock();
        incoming.groups.push_back((group, upto));
        incoming.uncut += 1;
        incoming.upto = incoming.upto.max(upto);
        drop(incoming);
        // It hands out what the group holds, and wakes the others if that is more than one segment.
        self.work.ring_one();
        self.done.ring();
    }

    /// Nothing more comes up to `upto`. Of `published` counts what has been received (see [`ReplicaMarks::hear`]).
    pub fn tick(&self, upto: Position, published: Position) {
        self.marks.received.raise(upto);
        let received = self.marks.received.get();
        self.marks.published.raise(published.min(received));
        let mut incoming = self.incoming.lock();
        incoming.upto = incoming.upto.max(upto);
        if incoming.uncut == 0 {
            self.raise_scheduled(incoming.upto);
        }
    }

    /// For everybody.
    pub fn ring(&self) {
        self.work.ring();
        self.done.ring();
    }

    fn raise_scheduled(&self, to: Position) {
        let mut queue = self.queue.lock();
        if to > queue.scheduled {
            queue.scheduled = to;
            self.marks.scheduled.raise(to);
        }
    }

    /// The next segment for worker `id`, whose first deferred write stands at `held`.
    pub fn take(&self, id: usize, held: Option<Position>) -> Option<Segment> {
        if self.queued.load(Ordering::SeqCst) < self.options.workers {
            self.schedule();
        }
        let mut queue = self.queue.lock();
        let segment = queue.segments.pop_front()?;
        self.queued.fetch_sub(1, Ordering::SeqCst);
        self.set_bound(id, held.or(Some(segment.first)));
        Some(segment)
    }

    /// Worker `id` has executed all it had before `first`; with `None` it has nothing in hand.
    pub fn set_bound(&self, id: usize, first: Option<Position>) {
        let bound = match first {
            None => NOTHING,
            Some(p) if fault::planted("replay.snapshot_inside_transaction") => p.as_u64(),
            Some(p) => p.prev().as_u64(),
        };
        self.bounds[id].0.store(bound, Ordering::SeqCst);
    }

    /// `n`: everything up to it is installed.
    pub fn installed(&self) -> Position {
        let queue = self.queue.lock();
        let first = queue.segments.front().map(|s| s.first.prev());
        let n = first.unwrap_or(queue.scheduled).as_u64();
        let bounds = self.bounds.iter().map(|b| b.0.load(Ordering::SeqCst));
        Position::from_u64(bounds.fold(n, u64::min))
    }

    /// A worker has executed this many records, installed `rows` of them, and deferred `deferred` units; with `tell` those who
    /// wait hear of it.
    pub fn settled(&self, records: u64, rows: u64, deferred: u64, tell: bool) {
        if deferred > 0 {
            self.stats.deferred.fetch_add(deferred, Relaxed);
        }
        if records > 0 {
            self.in_flight.fetch_sub(records, Ordering::SeqCst);
            self.stats.rows.fetch_add(rows, Relaxed);
        }
        if tell && records > 0 {
            self.done.ring();
        }
    }

    /// The scheduler's work: stamps and cuts until enough is handed out. A thread that finds another one at it leaves word, and that one looks once more:
    /// what it waited for may have come.
    fn schedule(&self) {
        self.schedule_again.store(true, Ordering::SeqCst);
        while self.schedule_again.load(Ordering::SeqCst) {
            let Some(mut s) = self.scheduling.try_lock() else {
                return;
            };
            self.schedule_again.store(false, Ordering::SeqCst);
            self.hand_out_enough(&mut s);
        }
    }

    fn hand_out_enough(&self, s: &mut Scheduling) {
        let enough = 4 * self.options.workers;
        while !self.has_failed()
            && self.queued.load(Ordering::SeqCst) < enough
            && self.in_flight.load(Ordering::SeqCst) < self.options.max_rows
        {
            match self.hand_out(s) {
                Ok(true) => {}
                Ok(false) => return,
                Err(e) => return self.fail(e),
            }
        }
    }

    /// One step of the scheduler; whether there was one to make.
    fn hand_out(&self, s: &mut Scheduling) -> Result<bool> {
        let whole = matches!(
            self.options.policy,
            Policy::Transaction | Policy::TransactionWorker
        );
        let Some(plan) = &mut s.plan else {
            let Some((group, upto)) = self.incoming.lock().groups.pop_front() else {
                return Ok(false);
            };
            let plan = s.scheduler.stamp(group, upto)?;
            self.stats.stamped.fetch_add(plan.rows, Relaxed);
            s.plan = Some(plan);
            return Ok(true);
        };
        let rows = match self.options.policy {
            Policy::TransactionWorker => 1,
            // A small group is shared out, too.
            _ => (plan.rows / (2 * self.options.workers as u64))
                .clamp(self.options.segment_rows.min(32), self.options.segment_rows),
        };
        let mut other = |kind, at: Position, id, bytes: &[u8]| match kind {
            RecordKind::Notify => self.sink.notification(at, bytes),
            _ => self.sink.sequence(at, id, bytes),
        };
        match plan.next(rows, whole, s.generation, &mut other)? {
            Piece::Segment(segment) => {
                let (at, inside) = plan.place();
                let scheduled = if inside { at.prev() } else { segment.last };
                self.in_flight.fetch_add(segment.records, Ordering::SeqCst);
                self.gate
                    .handed
                    .fetch_add(segment.commits, Ordering::SeqCst);
                self.stats.transactions.fetch_add(segment.commits, Relaxed);
                let mut queue = self.queue.lock();
                queue.segments.push_back(segment);
                queue.scheduled = queue.scheduled.max(scheduled);
                self.marks.scheduled.raise(scheduled);
                let others = self.queued.fetch_add(1, Ordering::SeqCst) > 0;
                drop(queue);
                // The first is for this thread itself.
                if others {
                    self.work.ring();
                }
                self.done.ring();
            }
            Piece::Schema { at, changes } => {
                self.raise_scheduled(at.prev());
                let changes = &plan.group.data()[changes];
                if self.sink.needs_barrier(changes)? && self.installed() < at.prev() {
                    return Ok(false);
                }
                let builds = self.sink.schema(at, changes)?;
                let count = builds.len();
                self.snapshotter.lock().hold(at, builds);
                self.builds.fetch_add(count, Ordering::SeqCst);
                s.generation += 1;
                if let Some(number) = plan.pass()? {
                    self.gate.handed.fetch_add(1, Ordering::SeqCst);
                    self.finish_transaction(number, true);
                }
            }
            Piece::End => {
                let upto = plan.upto;
                s.plan = None;
                let mut incoming = self.incoming.lock();
                incoming.uncut -= 1;
                let known = if incoming.uncut == 0 {
                    incoming.upto
                } else {
                    upto
                };
                self.raise_scheduled(known);
                drop(incoming);
                self.done.ring();
            }
        }
        Ok(true)
    }

    /// Whether snapshots hold workers back.
    pub fn holds_back(&self) -> bool {
        self.options.policy == Policy::TransactionWorker
    }

    /// Whether the transaction of this number may finish before the next snapshot.
    pub fn may_finish(&self, number: u64) -> bool {
        number <= self.gate.open.load(Ordering::SeqCst)
    }

    /// The transaction of this number has finished; `whole` unless a part of it is elsewhere.
    pub fn finish_transaction(&self, number: u64, whole: bool) {
        if whole {
            if self.options.policy == Policy::Transaction {
                self.progress.finished(number);
            }
            self.gate.finished.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// What a row write costs besides.
    pub fn pay(&self, guard: &mut Guard) {
        if let Some(pay) = &self.pay {
            guard.repin_after(pay);
        }
    }

    /// Whether all that was fed has been handed out.
    pub fn is_cut(&self) -> bool {
        self.incoming.lock().uncut == 0
    }

    /// Whether everything fed is installed, and built.
    pub fn is_drained(&self) -> bool {
        let upto = {
            let incoming = self.incoming.lock();
            if incoming.uncut > 0 {
                return false;
            }
            incoming.upto
        };
        self.marks.applied.get() >= upto && !self.snapshotter.lock().is_building()
    }

    /// Replay cannot go on: the first error counts.
    pub fn fail(&self, error: Error) {
        self.failure.lock().get_or_insert(error);
        self.failed.store(true, Ordering::SeqCst);
        self.ring();
        self.flow.room.ring();
    }

    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::SeqCst)
    }

    pub fn failure(&self) -> Option<Error> {
        self.failure.lock().clone()
    }
}
