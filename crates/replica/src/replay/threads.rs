//! Replay in threads: workers that sleep when there is nothing to do, and a thread for each build.
//!
//! A worker that waits for others (it has deferred writes and nothing else to do) looks again a few times, giving way between, before
//! it sleeps; every slice of work that another one finishes wakes it.

use base::{Error, Position, Result};
use env::{Env, JoinHandle};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use store::Store;
use wal::Group;

use super::core::{Core, Pay};
use super::worker::Step;
use super::{ReplayOptions, ReplayStats, SchemaSink};
use crate::ReplicaMarks;

/// Looks of a waiting worker before it sleeps.
const LOOKS: u32 = 20;

/// See the head of the file.
pub struct Replay {
    running: Arc<Running>,
    threads: Vec<JoinHandle>,
}

struct Running {
    core: Core,
    env: Env,
    stop: AtomicBool,
    builds: Mutex<Vec<JoinHandle>>,
}

/// Says that replay cannot go on when its thread ends in a panic.
struct Watch<'r>(&'r Running);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let what = "a thread of replay ended in a panic";
            self.0.core.fail(Error::internal(what));
        }
    }
}

impl Replay {
    /// Goes on after `from`: everything up to it is in `store`.
    pub fn start(
        env: &Env,
        store: Arc<Store>,
        marks: Arc<ReplicaMarks>,
        sink: Arc<dyn SchemaSink>,
        from: Position,
        options: ReplayOptions,
    ) -> Result<Replay> {
        let clock = env.clock.clone();
        let pay = options
            .row_cost
            .map(|cost| Box::new(move || clock.sleep(cost)) as Pay);
        let running = Arc::new(Running {
            core: Core::new(store, marks, sink, from, options, pay),
            env: env.clone(),
            stop: AtomicBool::new(false),
            builds: Mutex::default(),
        });
        let mut replay = Replay {
            running: running.clone(),
            threads: Vec::new(),
        };
        for id in 0..running.core.options.workers {
            let mine = running.clone();
            let thread = env
                .spawn
                .spawn(&format!("replay-{id}"), Box::new(move || mine.work(id)));
            replay.threads.push(thread.map_err(cannot_start)?);
        }
        Ok(replay)
    }

    /// Takes a group; waits while too much is in flight. All commits up to `upto` are in it or came before. An error: replay has
    /// failed.
    pub fn feed(&self, group: Group, upto: Position) -> Result<()> {
        let core = &self.running.core;
        loop {
            let seen = core.flow.room.seen();
            if let Some(e) = core.failure() {
                return Err(e);
            }
            if core.flow.bytes() < core.options.max_bytes {
                break;
            }
            core.stats.stalls.fetch_add(1, Ordering::Relaxed);
            core.flow.room.wait(seen);
        }
        core.feed(group, upto);
        Ok(())
    }

    /// Whether [`Replay::feed`] would not wait.
    pub fn has_room(&self) -> bool {
        self.bytes_in_flight() < self.running.core.options.max_bytes
    }

    /// Nothing more comes up to `upto`; the primary's published.
    pub fn tick(&self, upto: Position, published: Position) {
        self.running.core.tick(upto, published);
        self.running.snapshot();
    }

    /// Waits until everything fed is installed and built, then ends the threads. `visible` may be behind: it does not pass `published`.
    pub fn finish(self) -> Result<()> {
        let core = &self.running.core;
        loop {
            let seen = core.done.seen();
            self.running.snapshot();
            if core.has_failed() || core.is_drained() {
                break;
            }
            core.done.wait(seen);
        }
        // The look above may have been left to another thread, which found the state taken by the question: nobody looks then.
        self.running.snapshot();
        let failure = core.failure();
        self.stop();
        failure.map_or(Ok(()), Err)
    }

    /// Ends the threads now.
    pub fn stop(self) {}

    /// What was done so far. A worker counts after it has said how far it is: all is counted when replay has finished.
    pub fn stats(&self) -> &Arc<ReplayStats> {
        &self.running.core.stats
    }

    /// Why replay cannot go on, if so.
    pub fn failure(&self) -> Option<Error> {
        self.running.core.failure()
    }

    /// Bytes of groups that are fed and not installed.
    pub fn bytes_in_flight(&self) -> u64 {
        self.running.core.flow.bytes()
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        self.running.stop.store(true, Ordering::SeqCst);
        self.running.core.ring();
        let builds = std::mem::take(&mut *self.running.builds.lock());
        for thread in self.threads.drain(..).chain(builds) {
            // A panic there was taken note of by its watch.
            let _ = thread.join();
        }
    }
}

fn cannot_start(e: std::io::Error) -> Error {
    Error::internal(format!("a thread of replay cannot be started: {e}"))
}

impl Running {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::SeqCst) || self.core.has_failed()
    }

    fn snapshot(&self) {
        let core = &self.core;
        let now = core.holds_back().then(|| self.env.clock.monotonic_nanos());
        core.snapshot(now.unwrap_or(0));
    }

    fn work(self: &Arc<Self>, id: usize) {
        let _watch = Watch(self);
        let mut worker = self.core.worker(id);
        let mut looks = 0;
        loop {
            // Before it is asked whether to go on: the ring that comes with the end is then not slept through.
            let (work, done) = (self.core.work.seen(), self.core.done.seen());
            if self.is_over() {
                return;
            }
            let step = match worker.step(&self.core) {
                Ok(step) => step,
                Err(e) => return self.core.fail(e),
            };
            self.snapshot();
            while let Some(build) = self.core.take_build() {
                self.start_build(build);
            }
            match step {
                Step::Worked => looks = 0,
                Step::Waiting if looks < LOOKS => {
                    looks += 1;
                    env::sync::thread::yield_now();
                }
                Step::Waiting => {
                    looks = 0;
                    self.core.done.wait(done);
                }
                Step::Idle => self.core.work.wait(work),
            }
        }
    }

    fn start_build(self: &Arc<Self>, build: (Position, super::Build)) {
        let mine = self.clone();
        let body = move || {
            let _watch = Watch(&mine);
            if let Err(e) = mine.core.run_build(build) {
                mine.core.fail(e);
            }
            mine.snapshot();
            mine.core.ring();
        };
        match self.env.spawn.spawn("replay-build", Box::new(body)) {
            Ok(thread) => self.builds.lock().push(thread),
            Err(e) => self.core.fail(cannot_start(e)),
        }
    }
}
