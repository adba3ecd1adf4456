//! Replay as a node has it: in threads, or a step at a time.
//!
//! Left out on purpose: the steps themselves, which are the same (`replica::replay`).

use base::{Error, Position, Result};
use env::Env;
use parking_lot::Mutex;
use replica::replay::{Replay, Stepper};
use std::sync::atomic::Ordering;
use wal::Group;

/// See the head of the file.
pub(crate) enum Replaying {
    Threads(Replay),
    Steps(Box<Mutex<Stepper>>),
}

use Replaying::{Steps, Threads};

impl Replaying {
    pub fn is_stepped(&self) -> bool {
        matches!(self, Steps(_))
    }

    /// Takes a group; in threads, waits while too much is in flight. All commits up to `upto` are in it or came before.
    pub fn feed(&self, group: Group, upto: Position) -> Result<()> {
        match self {
            Threads(r) => r.feed(group, upto)?,
            Steps(s) => s.lock().feed(group, upto),
        }
        Ok(())
    }

    /// Whether [`Replaying::feed`] would not wait.
    pub fn has_room(&self) -> bool {
        match self {
            Threads(r) => r.has_room(),
            Steps(s) => s.lock().has_room(),
        }
    }

    /// Nothing more comes up to `upto`; the primary's published.
    pub fn tick(&self, upto: Position, published: Position) {
        match self {
            Threads(r) => r.tick(upto, published),
            Steps(s) => s.lock().tick(upto, published),
        }
    }

    /// Commits that were handed out.
    pub fn commits(&self) -> u64 {
        let count = |s: &replica::replay::ReplayStats| s.transactions.load(Ordering::Relaxed);
        match self {
            Threads(r) => count(r.stats()),
            Steps(s) => count(s.lock().stats()),
        }
    }

    /// Why replay cannot go on, if so.
    pub fn failure(&self) -> Option<Error> {
        match self {
            Threads(r) => r.failure(),
            // The step says so.
            Steps(_) => None,
        }
    }

    /// Every worker makes a step, and the snapshotter looks.
    pub fn work(&self, env: &Env) {
        if let Steps(s) = self {
            let mut s = s.lock();
            for worker in 0..s.workers() {
                step(&mut s, worker);
            }
            while s.build().unwrap_or_else(|e| failed(&e)) {}
            s.snapshot(env.clock.monotonic_nanos());
        }
    }

    /// One worker makes a step. Workers are numbered; the number is taken modulo how many there are.
    pub fn step(&self, worker: usize) {
        if let Steps(s) = self {
            let mut s = s.lock();
            let worker = worker % s.workers();
            step(&mut s, worker);
        }
    }

    /// The snapshotter looks, or a build that is due runs.
    pub fn snapshot(&self, env: &Env) {
        if let Steps(s) = self {
            s.lock().snapshot(env.clock.monotonic_nanos());
        }
    }

    pub fn build(&self) {
        if let Steps(s) = self {
            s.lock().build().unwrap_or_else(|e| failed(&e));
        }
    }

    /// Waits until everything fed is installed and built, and ends.
    pub fn finish(self, env: &Env) -> Result<()> {
        if let Threads(r) = self {
            return r.finish();
        }
        loop {
            self.work(env);
            if let Steps(s) = &self
                && s.lock().is_drained()
            {
                return Ok(());
            }
        }
    }

    /// Ends now.
    pub fn stop(self) {
        if let Threads(r) = self {
            r.stop();
        }
    }
}

fn step(s: &mut Stepper, worker: usize) {
    if let Err(e) = s.step(worker) {
        failed(&e);
    }
}

/// The caller makes the steps, and has no use for a replica that does not go on.
fn failed(e: &Error) -> ! {
    panic!("replay failed: {e}")
}
