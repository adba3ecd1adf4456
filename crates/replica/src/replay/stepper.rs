//! Replay without threads: the caller says who makes the next step. For simulations and tests.

use base::{Position, Result};
use std::sync::Arc;
use store::Store;
use wal::Group;

use super::core::Core;
use super::worker::{Step, Worker};
use super::{ReplayOptions, ReplayStats, SchemaSink};
use crate::ReplicaMarks;

/// See the head of the file. What it does depends on the order of calls and on nothing else. `row_cost` does not apply.
pub struct Stepper {
    core: Core,
    workers: Vec<Worker>,
}

impl Stepper {
    /// As [`super::Replay::start`].
    pub fn new(
        store: Arc<Store>,
        marks: Arc<ReplicaMarks>,
        sink: Arc<dyn SchemaSink>,
        from: Position,
        options: ReplayOptions,
    ) -> Stepper {
        let core = Core::new(store, marks, sink, from, options, None);
        let workers = (0..core.options.workers).map(|i| core.worker(i)).collect();
        Stepper { core, workers }
    }

    /// Takes a group. Never waits: see [`Stepper::has_room`].
    pub fn feed(&mut self, group: Group, upto: Position) {
        self.core.feed(group, upto);
    }

    /// Whether [`super::Replay::feed`] would not wait.
    pub fn has_room(&self) -> bool {
        self.core.flow.bytes() < self.core.options.max_bytes
    }

    /// Nothing more comes up to `upto`; the primary's published.
    pub fn tick(&mut self, upto: Position, published: Position) {
        self.core.tick(upto, published);
    }

    /// Workers are numbered from 0 to below this.
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// Worker `id` does a slice of work. After an error replay cannot go on.
    pub fn step(&mut self, id: usize) -> Result<Step> {
        let step = self.workers[id].step(&self.core)?;
        self.core.failure().map_or(Ok(step), Err)
    }

    /// The snapshotter looks; `now` in nanoseconds counts for the policy transaction-worker only.
    pub fn snapshot(&mut self, now: u64) {
        self.core.snapshot(now);
    }

    /// Runs a build that is due; whether there was one.
    pub fn build(&mut self) -> Result<bool> {
        match self.core.take_build() {
            None => Ok(false),
            Some(build) => self.core.run_build(build).map(|()| true),
        }
    }

    /// Whether everything fed is installed and built. Snapshot first.
    pub fn is_drained(&self) -> bool {
        self.core.is_drained()
    }

    /// What was done.
    pub fn stats(&self) -> &ReplayStats {
        &self.core.stats
    }
}
