//! A node without threads (`NodeOptions::threads`): each thread's work, one step at a time, in the order of the caller's calls.
//!
//! | step | the thread that does it otherwise |
//! |---|---|
//! | `append_step`, `sync_step` | the flusher |
//! | `take_step` | the follower |
//! | `persist_step` | the one of a replica's own log |
//! | `replay_step`, `snapshot_step`, `build_step` | replay's |
//! | `epoch_step`, `reclaim_step` | the housekeeper |
//! | `checkpoint_step`, `anchor_step` | the checkpointer, the anchor's |
//!
//! So a simulation runs the node itself, under a seed. Promotion makes the steps that it waits for. Dropped, such a node goes as in a crash.
//!
//! Left out on purpose: full disks, which threads wait for.

use base::{Position, Result};
use parking_lot::Mutex;
use txn::CommitOrder;
use wal::LogWriter;

use crate::following::Following;
use crate::node::Node;
use crate::own_log;
use crate::replaying::Replaying;

impl Node {
    /// Gives positions, and takes what was committed at them.
    pub fn order(&self) -> &dyn CommitOrder {
        &self.shared().pipeline
    }

    /// The next position that a commit may get.
    pub fn next_position(&self) -> Position {
        self.shared().pipeline.order.next_position()
    }

    /// What is installed goes to the log, not yet durable. Up to where.
    pub fn append_step(&self) -> Option<Position> {
        let s = self.shared();
        s.pipeline.append_step(&s.manager, &s.options.env)
    }

    /// What was written last is durable. Up to where.
    pub fn sync_step(&self) -> Option<Position> {
        let s = self.shared();
        s.pipeline.sync_step(&s.manager, &s.options.env)
    }

    /// An epoch ends.
    pub fn epoch_step(&self) {
        self.shared().pipeline.order.tick();
    }

    /// Versions that no reader needs are taken away.
    pub fn reclaim_step(&self) {
        let manager = self.manager();
        manager.store.reclaim(manager.marks.decided.get());
    }

    /// Writes a checkpoint. `keep_all`: log that replicas need stays.
    pub fn checkpoint_step(&self, keep_all: bool) -> Result<()> {
        self.shared().write_checkpoint(keep_all)
    }

    /// How far the log reaches is written down.
    pub fn anchor_step(&self) -> Result<()> {
        self.dir()
            .note_reach()
            .map(drop)
            .map_err(crate::errors::failed)
    }

    /// The follower takes what comes next out of the ring.
    pub fn take_step(&self) {
        if let Some(f) = self.following() {
            f.take_step(&self.shared().options.env);
        }
    }

    /// A replica writes what it has taken to its own log; `sync`: and makes it durable.
    pub fn persist_step(&self, sync: bool) {
        let follower = self.shared().follower.lock();
        if let (Some((_, log)), Some(f)) = (&*follower, self.following()) {
            self.persist(&f, log, sync);
        }
    }

    fn persist(&self, f: &Following, log: &Mutex<Option<LogWriter>>, sync: bool) {
        let mut log = log.lock();
        let Some(log) = log.as_mut() else { return };
        let env = &self.shared().options.env;
        f.own_log.append(log, env);
        if sync {
            own_log::sync(log, f.own_log.appended(), &f.marks, &f.moved);
        }
    }

    /// A worker of replay does a slice of work; its number is taken modulo how many there are.
    pub fn replay_step(&self, worker: usize) {
        self.replaying(|r| r.step(worker));
    }

    /// The snapshotter looks.
    pub fn snapshot_step(&self) {
        self.replaying(|r| r.snapshot(&self.shared().options.env));
    }

    /// An index that is due is built.
    pub fn build_step(&self) {
        self.replaying(Replaying::build);
    }

    fn replaying(&self, step: impl FnOnce(&Replaying)) {
        if let Some(f) = self.following()
            && let Some(r) = &*f.replay.read()
        {
            step(r);
        }
    }

    /// A follower without threads comes to its end: all that has come is taken and in the log.
    pub(crate) fn drain(&self, log: &Mutex<Option<LogWriter>>) {
        if let Some(f) = self.following() {
            f.drain(&self.shared().options.env);
            self.persist(&f, log, true);
        }
    }
}
