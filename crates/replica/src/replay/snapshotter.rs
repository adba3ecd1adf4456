//! The snapshotter: what is installed without a gap (`n`), and what readers may see of it (`visible`).
//!
//! ```text
//! n       = min(bound of each worker with something in hand, the position before what was not handed out)
//! visible = min(n, published at the primary, the position before a schema change whose builds have not ended)
//! ```
//! The bounds are read while nothing can be handed out, so a segment is either not handed out or in its worker's bound. A bound that
//! is read late is too small, never too large. Both watermarks stand at positions, and a position holds a whole transaction.
//!
//! *Holding back* (transaction-worker, C5 §5.2): storage without versions can only show all that is committed, so workers do not finish
//! transactions beyond a number, the *gate*, until those up to it have finished and the snapshot is taken. The gate moves by as many
//! as are expected in the next interval. (Here the store could show any position; the policy does without, for comparison.)

use base::{Position, Result};
use env::fault;
use env::sync::atomic::{AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

use super::Build;
use super::core::Core;

/// State of the snapshotter; one thread at a time has it.
#[derive(Default)]
pub(crate) struct Snapshotter {
    /// Schema changes with builds that have not ended.
    holds: BTreeMap<Position, usize>,
    /// Builds that wait for what was handed out before them.
    builds: Vec<(Position, Build)>,
    /// Transaction-worker: when the last snapshot was taken, and how many transactions had finished.
    last: (u64, u64),
}

/// Numbers of transactions (policy transaction-worker).
#[derive(Default)]
pub(crate) struct Gate {
    /// Transactions up to this number may finish.
    pub open: AtomicU64,
    pub finished: AtomicU64,
    pub handed: AtomicU64,
}

impl Snapshotter {
    /// Nothing at or above `at` is shown until these have ended.
    pub fn hold(&mut self, at: Position, builds: Vec<Build>) {
        if !builds.is_empty() {
            *self.holds.entry(at).or_default() += builds.len();
            self.builds.extend(builds.into_iter().map(|b| (at, b)));
        }
    }

    /// A build that may begin, now that all up to `n` is installed.
    pub fn ready_build(&mut self, n: Position) -> Option<(Position, Build)> {
        let first = self.builds.iter().position(|(at, _)| at.prev() <= n)?;
        Some(self.builds.remove(first))
    }

    /// A build of the change at `at` has ended.
    pub fn built(&mut self, at: Position) {
        let left = self.holds.get_mut(&at).expect("a build that was held");
        *left -= 1;
        if *left == 0 {
            self.holds.remove(&at);
        }
    }

    /// Whether builds have not ended.
    pub fn is_building(&self) -> bool {
        !self.holds.is_empty()
    }

    /// One look; `now` in nanoseconds of any clock.
    pub fn look(&mut self, core: &Core, now: u64) {
        let marks = &*core.marks;
        let holding_back = core.holds_back().then(|| self.gate_is_reached(core));
        let n = core.installed();
        if marks.applied.raise(n) < n {
            core.done.ring();
            // A build may be ready, and this thread may be no worker.
            if core.builds.load(Ordering::SeqCst) > 0 {
                core.work.ring();
            }
        }
        marks.check();
        if holding_back == Some(false) {
            return;
        }
        let mut visible = n;
        if !fault::planted("replay.beyond_published") {
            visible = visible.min(marks.published.get());
        }
        if let Some((at, _)) = self.holds.first_key_value() {
            visible = visible.min(at.prev());
        }
        if visible > marks.visible.get() {
            core.sink.visible(visible);
            marks.visible.raise(visible);
            core.stats.snapshots.fetch_add(1, Relaxed);
            marks.check();
        }
        if holding_back.is_some() {
            self.move_gate(core, now);
        }
    }

    /// Whether all transactions up to the gate, or all there are, have finished.
    fn gate_is_reached(&self, core: &Core) -> bool {
        let finished = core.gate.finished.load(Ordering::SeqCst);
        let handed = core.gate.handed.load(Ordering::SeqCst);
        finished >= core.gate.open.load(Ordering::SeqCst) || finished == handed && core.is_cut()
    }

    fn move_gate(&mut self, core: &Core, now: u64) {
        let finished = core.gate.finished.load(Ordering::SeqCst);
        let (then, before) = self.last;
        let elapsed = now.saturating_sub(then).max(1);
        let interval = core.options.snapshot_interval.as_nanos() as u64;
        let expected = u128::from(finished - before) * u128::from(interval) / u128::from(elapsed);
        let more = (expected as u64).max(core.options.workers as u64);
        self.last = (now, finished);
        if core.gate.open.fetch_max(finished + more, Ordering::SeqCst) < finished + more {
            core.done.ring();
        }
    }
}

impl Core {
    /// The snapshotter's work, by whoever comes; who finds it being done leaves word, and it is done once more.
    pub fn snapshot(&self, now: u64) {
        self.look_again.store(true, Ordering::SeqCst);
        while self.look_again.load(Ordering::SeqCst) {
            let Some(mut s) = self.snapshotter.try_lock() else {
                return;
            };
            self.look_again.store(false, Ordering::SeqCst);
            s.look(self, now);
        }
    }

    /// A build that may run now.
    pub fn take_build(&self) -> Option<(Position, Build)> {
        if self.builds.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let build = self
            .snapshotter
            .lock()
            .ready_build(self.marks.applied.get())?;
        self.builds.fetch_sub(1, Ordering::SeqCst);
        Some(build)
    }

    /// Runs a build.
    pub fn run_build(&self, (at, build): (Position, Build)) -> Result<()> {
        build()?;
        self.snapshotter.lock().built(at);
        Ok(())
    }
}
