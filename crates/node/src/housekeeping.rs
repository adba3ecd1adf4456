//! What goes on beside the work: epochs tick, old versions and schemas are forgotten, checkpoints are written when the log has grown.
//!
//! `house` has the threads, and each kind of work is a visit to a node.
//!
//! Left out on purpose: doing any of it faster than needed. A node may share its processors with its clients.

use base::{Error, Position, Result, SqlState};
use env::fault;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::errors::{failed, stopping};
use crate::following::Following;
use crate::house::{Chore, KINDS, Lodger};
use crate::node::Shared;
use crate::promote::Role;
use crate::splits::Splits;

/// A replica that finds fewer old versions than this is visited less often, by this factor: each visit costs a wake-up.
const MANY: usize = 256;
const LEISURE: u32 = 4;

/// Between two MiB of a segment that is prepared: 64 MiB in a second, faster than the log grows.
const SPARE_PAUSE: Duration = Duration::from_millis(12);

/// Between two looks whether a spare segment was used up.
const SPARE_LOOK: Duration = Duration::from_millis(50);

/// Between two looks whether a checkpoint is due.
const CHECKPOINT_LOOK: Duration = Duration::from_millis(500);

/// How often the anchor is written while the log grows, in nanoseconds; and how often it is looked whether a segment was begun.
const ANCHOR_EVERY: u64 = 500_000_000;
const ANCHOR_LOOK: Duration = Duration::from_millis(50);

/// Before a checkpoint that could not be written is tried again, at first.
const AGAIN: Duration = Duration::from_secs(1);

fn no_room() -> Error {
    let what = "could not write a checkpoint: this replica's log waits for room on the disk";
    Error::new(SqlState::DISK_FULL, what)
}

impl Shared {
    /// Log above here is needed: by replicas that are connected; and, as far as `wal_keep_bytes` go, by those that are away and for the
    /// archive.
    fn keep_from(&self) -> Result<Position> {
        let shipping = &self.pipeline.shipping;
        let connected = shipping.floor().unwrap_or(Position::MAX);
        let archived = shipping.archived_to();
        if !shipping.ever_followed() && archived.is_none() {
            return Ok(connected);
        }
        let segments = self.dir.log().list().map_err(failed)?;
        let kept = self.options.wal_keep_bytes / self.options.segment_bytes;
        let oldest = segments.iter().rev().nth(kept as usize).map(|n| n.first);
        let oldest = oldest.unwrap_or(Position::ZERO);
        let mut keep = connected;
        if shipping.ever_followed() {
            keep = keep.min(oldest);
        }
        if let Some(archived) = archived {
            if archived < oldest && segments.first().is_some_and(|s| s.first < oldest) {
                env::say!(
                    "canon: log that is not in the archive is let go: more than wal_keep_bytes wait for it. \
                     What is archived from now on does not go on where the archive ends."
                );
            }
            keep = keep.min(archived.max(oldest));
        }
        Ok(keep)
    }

    /// What the threads of a house do for this node.
    pub(crate) fn chores(self: &Arc<Shared>) -> [Box<dyn Chore>; KINDS.len()] {
        let checkpoints = Checkpoints {
            node: self.clone(),
            at_bytes: None,
            not_before: 0,
            pause: AGAIN,
        };
        let anchors = Anchors {
            node: self.clone(),
            written: 0,
            segment: 0,
            failing: false,
        };
        [
            Box::new(Sweep(self.clone())),
            Box::new(checkpoints),
            Box::new(Spares(self.clone())),
            Box::new(anchors),
            Box::new(Splits::of(self.clone())),
        ]
    }

    /// Between two visits of the housekeeper.
    fn step(&self) -> Duration {
        Duration::from_millis(5).min(self.options.epoch_max_duration)
    }

    /// An epoch ends, if it is time.
    fn end_epoch(&self) {
        let now = self.options.env.clock.monotonic_nanos();
        let mut ticks = self.ticks.lock();
        if now.saturating_sub(ticks.last) < self.step().as_nanos() as u64 {
            return;
        }
        ticks.last = now;
        let long = now.saturating_sub(ticks.epoch);
        if long >= self.options.epoch_max_duration.as_nanos() as u64 && self.role() == Role::Primary
        {
            self.pipeline.order.tick();
            ticks.epoch = now;
        }
        drop(ticks);
        let age = self.options.snapshot_max_age.as_millis() as u64;
        self.manager.store.snapshots.tick(now / 1_000_000, age);
    }

    /// Whether what is to be logged waits for room on the disk.
    pub fn is_disk_full(&self) -> bool {
        let replica = self.following();
        self.manager.is_disk_full() || replica.is_some_and(|f| f.own_log.is_full())
    }

    /// Removes log that nobody needs. Whether there was any.
    fn has_pruned(&self) -> bool {
        let prune = |keep| self.dir.prune(keep).map_err(failed);
        let gone = self.keep_from().and_then(prune);
        gone.inspect_err(|e| env::alarm!("canon: {e}"))
            .is_ok_and(|gone| gone > 0)
    }

    /// `keep_all`: log that replicas need stays.
    pub(crate) fn write_checkpoint(&self, keep_all: bool) -> Result<()> {
        let following = self.following();
        let is_durable = |at: Position| {
            let behind = |f: &Arc<Following>| f.marks.persisted.get() < at;
            !following.as_ref().is_some_and(behind)
        };
        // Whoever stops the node does not wait until all rows are written; and what the log has no room for would be waited for here.
        let full = || following.as_ref().is_some_and(|f| f.own_log.is_full());
        let check_cancelled = || match self.stopping.load(Ordering::SeqCst) {
            true => Err(stopping()),
            false if full() => Err(no_room()),
            false => Ok(()),
        };
        let durable = |at| {
            while !is_durable(at) {
                check_cancelled()?;
                self.options.env.clock.sleep(Duration::from_millis(1));
            }
            Ok(())
        };
        let (dir, manager) = (&self.dir, &self.manager);
        let keep = match keep_all {
            true => self.keep_from()?,
            false => Position::MAX,
        };
        crate::checkpoint::write(
            dir,
            manager,
            &self.sequences,
            keep,
            durable,
            check_cancelled,
        )
        .inspect_err(|e| env::alarm!("canon: {e}"))?;
        self.checkpoints.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// The housekeeper's.
struct Sweep(Arc<Shared>);

impl Chore for Sweep {
    fn visit(&mut self, tick: &dyn Fn()) -> Duration {
        let node = &*self.0;
        let clock = &node.options.env.clock;
        let store = &node.manager.store;
        tick();
        // What a long snapshot held is gone before the checkpointer, who may be the one that held it, asks how much it was.
        store.memory.note_peak();
        let decided = node.manager.marks.decided.get();
        // A pass over millions of records takes longer than an epoch may.
        let step = node.step();
        let mut last = clock.monotonic_nanos();
        let done = store.reclaim_beside(decided, &mut || {
            let now = clock.monotonic_nanos();
            if now.saturating_sub(last) >= step.as_nanos() as u64 {
                last = now;
                tick();
            }
        });
        let (versions, waiting) = &node.reclaimed;
        versions.fetch_add(done.versions as u64, Ordering::Relaxed);
        waiting.store(done.waiting as u64, Ordering::Relaxed);
        let oldest = store.snapshots.live(decided)[0];
        node.manager.forget_before(oldest);
        match node.role() {
            // No epoch of its own ends at a replica.
            Role::Replica if done.versions < MANY => LEISURE * step,
            _ => step,
        }
    }
}

/// The checkpointer's.
struct Checkpoints {
    node: Arc<Shared>,
    /// Bytes of log when the last was written. None: what the last left is not known, nor whether one now makes room.
    at_bytes: Option<u64>,
    /// After a failure it is tried again, by and by less often.
    not_before: u64,
    pause: Duration,
}

impl Checkpoints {
    /// Whether one is to be written that nothing asked for.
    fn is_due(&self, bytes: u64) -> bool {
        let node = &self.node;
        // Log that was kept for a node that does not need it any more goes by the checkpoint that is there; a new one may make room, too.
        let grown = match node.is_disk_full() {
            true => !node.has_pruned() && self.at_bytes != Some(bytes),
            false => bytes - self.at_bytes.unwrap_or(0) > node.options.checkpoint_bytes,
        };
        grown && node.options.env.clock.monotonic_nanos() >= self.not_before
    }
}

impl Chore for Checkpoints {
    fn is_asked(&self) -> bool {
        let s = self.node.checkpoint.0.lock();
        s.wanted > s.done
    }

    fn visit(&mut self, _: &dyn Fn()) -> Duration {
        let shared = self.node.clone();
        let node = &*shared;
        let clock = &node.options.env.clock;
        let wanted = node.checkpoint.0.lock().wanted;
        // It may take long: no session waits for this thread but one that asks for a checkpoint.
        if node.manager.store.memory.has_shrunk() {
            store::give_pages_back();
        }
        let followed = node.following.lock().as_ref().map_or(0, |f| {
            let bytes = &f.stats.bytes;
            bytes.load(Ordering::Relaxed)
        });
        let bytes = node.pipeline.stats.bytes.load(Ordering::Relaxed) + followed;
        if !self.is_asked() && !self.is_due(bytes) {
            return CHECKPOINT_LOOK;
        }
        let stops = || node.stopping.load(Ordering::SeqCst);
        while fault::fallible("node.before_checkpoint").is_err() && !stops() {
            clock.sleep(Duration::from_millis(1));
        }
        let done = node.write_checkpoint(true);
        match &done {
            Ok(()) => (self.at_bytes, self.not_before, self.pause) = (Some(bytes), 0, AGAIN),
            Err(_) => {
                self.not_before = clock.monotonic_nanos() + self.pause.as_nanos() as u64;
                self.pause = (2 * self.pause).min(16 * AGAIN);
            }
        }
        let mut s = node.checkpoint.0.lock();
        s.done = s.done.max(wanted);
        s.last_error = done.err();
        node.checkpoint.1.notify_all();
        CHECKPOINT_LOOK
    }
}

/// Has spare segments ready, also while a checkpoint is written: else the log waits until one is made.
struct Spares(Arc<Shared>);

impl Chore for Spares {
    fn visit(&mut self, _: &dyn Fn()) -> Duration {
        let node = &*self.0;
        let log = node.dir.log();
        let stops = || node.stopping.load(Ordering::SeqCst);
        // At full speed it would take a processor from replay or commits for a tenth of a second.
        let pause = || match (stops(), log.spares()) {
            (true, _) => {}
            (_, 0) => node.options.env.clock.sleep(SPARE_PAUSE / 4),
            _ => node.options.env.clock.sleep(SPARE_PAUSE),
        };
        // What becomes free then is for what waits for room, which may need more than a segment.
        let made = match node.is_disk_full() {
            true => Ok(false),
            false => log.prepare_spare(&pause),
        };
        match made {
            Ok(true) => Duration::ZERO,
            Ok(false) => SPARE_LOOK,
            Err(e) => {
                if !e.is_retryable() {
                    env::say!("canon: could not prepare a log segment: {e}");
                }
                SPARE_LOOK * 10
            }
        }
    }
}

/// Writes the anchor while the log grows: half a second behind at most, or a segment.
struct Anchors {
    node: Arc<Shared>,
    written: u64,
    segment: u64,
    failing: bool,
}

impl Chore for Anchors {
    fn visit(&mut self, _: &dyn Fn()) -> Duration {
        let node = &*self.node;
        let reach = node.dir.log().reach();
        let now = node.options.env.clock.monotonic_nanos();
        let begun = reach.map_or(0, |r| r.point.segment);
        if begun != self.segment || now >= self.written + ANCHOR_EVERY {
            match node.dir.note_reach() {
                Ok(_) => self.failing = false,
                // Said once: what is known is only older.
                Err(e) if !std::mem::replace(&mut self.failing, true) => {
                    env::say!("canon: the anchor could not be written: {e}");
                }
                Err(_) => {}
            }
            (self.written, self.segment) = (now, begun);
        }
        ANCHOR_LOOK
    }
}

impl Lodger for Shared {
    fn tick(&self) {
        self.end_epoch();
    }
}
