//! What goes on beside the work: epochs tick, old versions and schemas are forgotten, checkpoints are written when the log has grown.
//!
//! Left out on purpose: doing any of it faster than needed. A node may share its processors with its clients.

use base::{Error, Position, Result, SqlState};
use env::fault;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::following::Following;
use crate::node::{Shared, failed, stopping};
use crate::promote::Role;

/// Between two MiB of a segment that is prepared: 64 MiB in a second, faster than the log grows.
const SPARE_PAUSE: Duration = Duration::from_millis(12);

/// Between two looks whether a spare segment was used up.
const SPARE_LOOK: Duration = Duration::from_millis(50);

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

    pub(crate) fn keep_house(&self) {
        // After a checkpoint, whose snapshot held them, a great many versions go at once: sessions and replay come first.
        self.options.env.spawn.give_way();
        let clock = &self.options.env.clock;
        let age = self.options.snapshot_max_age.as_millis() as u64;
        let step = Duration::from_millis(5).min(self.options.epoch_max_duration);
        let mut last_epoch = clock.monotonic_nanos();
        let mut last_tick = 0;
        while !self.stopping.load(Ordering::SeqCst) {
            clock.sleep(step);
            let store = &self.manager.store;
            let mut tick = || {
                let now = clock.monotonic_nanos();
                if now - last_tick < step.as_nanos() as u64 {
                    return;
                }
                last_tick = now;
                let long = now - last_epoch >= self.options.epoch_max_duration.as_nanos() as u64;
                if long && self.role() == Role::Primary {
                    self.pipeline.order.tick();
                    last_epoch = now;
                }
                store.snapshots.tick(now / 1_000_000, age);
            };
            tick();
            // What a long snapshot held is gone before the checkpointer, who may be the one that held it, asks how much it was.
            store.memory.note_peak();
            let decided = self.manager.marks.decided.get();
            // A pass over millions of records takes longer than an epoch may.
            let done = store.reclaim_beside(decided, &mut tick);
            let (versions, waiting) = &self.reclaimed;
            versions.fetch_add(done.versions as u64, Ordering::Relaxed);
            waiting.store(done.waiting as u64, Ordering::Relaxed);
            let oldest = store.snapshots.live(decided)[0];
            self.manager.forget_before(oldest);
        }
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
        let go_on = || match self.stopping.load(Ordering::SeqCst) {
            true => Err(stopping()),
            false if full() => Err(no_room()),
            false => Ok(()),
        };
        let durable = |at| {
            while !is_durable(at) {
                go_on()?;
                self.options.env.clock.sleep(Duration::from_millis(1));
            }
            Ok(())
        };
        let (dir, manager) = (&self.dir, &self.manager);
        let keep = match keep_all {
            true => self.keep_from()?,
            false => Position::MAX,
        };
        crate::checkpoint::write(dir, manager, &self.sequences, keep, durable, go_on)
            .inspect_err(|e| env::alarm!("canon: {e}"))?;
        self.checkpoints.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn run_checkpoints(&self) {
        self.options.env.spawn.give_way();
        let clock = &self.options.env.clock;
        // None: what the last checkpoint left is not known, nor whether one now makes room.
        let mut at_bytes = None;
        // After a failure it is tried again, by and by less often.
        let (mut not_before, mut pause) = (0, AGAIN);
        loop {
            let wanted = {
                let mut s = self.checkpoint.0.lock();
                if s.wanted == s.done && !self.stopping.load(Ordering::SeqCst) {
                    self.checkpoint
                        .1
                        .wait_for(&mut s, Duration::from_millis(500));
                }
                s.wanted
            };
            if self.stopping.load(Ordering::SeqCst) {
                return;
            }
            // It may take long: no session waits for this thread but one that asks for a checkpoint.
            if self.manager.store.memory.has_shrunk() {
                store::give_pages_back();
            }
            let followed = self.following.lock().as_ref().map_or(0, |f| {
                let bytes = &f.stats.bytes;
                bytes.load(Ordering::Relaxed)
            });
            let bytes = self.pipeline.stats.bytes.load(Ordering::Relaxed) + followed;
            let full = self.is_disk_full();
            let asked = wanted > self.checkpoint.0.lock().done;
            // Log that was kept for somebody who does not need it any more goes by the checkpoint that is there; a new one may make room, too.
            let grown = match full {
                true => !self.has_pruned() && at_bytes != Some(bytes),
                false => bytes - at_bytes.unwrap_or(0) > self.options.checkpoint_bytes,
            };
            if asked || grown && clock.monotonic_nanos() >= not_before {
                while fault::fallible("node.before_checkpoint").is_err()
                    && !self.stopping.load(Ordering::SeqCst)
                {
                    clock.sleep(Duration::from_millis(1));
                }
                let done = self.write_checkpoint(true);
                match &done {
                    Ok(()) => (at_bytes, not_before, pause) = (Some(bytes), 0, AGAIN),
                    Err(_) => {
                        not_before = clock.monotonic_nanos() + pause.as_nanos() as u64;
                        pause = (2 * pause).min(16 * AGAIN);
                    }
                }
                let mut s = self.checkpoint.0.lock();
                s.done = s.done.max(wanted);
                s.last_error = done.err();
                self.checkpoint.1.notify_all();
            }
        }
    }

    /// Has spare segments ready, also while a checkpoint is written: else the log waits until one is made.
    pub(crate) fn keep_spares(&self) {
        self.options.env.spawn.give_way();
        let log = self.dir.log();
        let stops = || self.stopping.load(Ordering::SeqCst);
        // At full speed it would take a processor from replay or commits for a tenth of a second.
        let pause = || match (stops(), log.spares()) {
            (true, _) => {}
            (_, 0) => self.options.env.clock.sleep(SPARE_PAUSE / 4),
            _ => self.options.env.clock.sleep(SPARE_PAUSE),
        };
        while !stops() {
            // What becomes free then is for what waits for room, which may need more than a segment.
            let made = match self.is_disk_full() {
                true => Ok(false),
                false => log.prepare_spare(&pause),
            };
            let rest = match made {
                Ok(true) => continue,
                Ok(false) => SPARE_LOOK,
                Err(e) => {
                    if !e.is_retryable() {
                        env::say!("canon: could not prepare a log segment: {e}");
                    }
                    SPARE_LOOK * 10
                }
            };
            let mut s = self.checkpoint.0.lock();
            if !stops() {
                self.checkpoint.1.wait_for(&mut s, rest);
            }
        }
    }
}
