//! What the nodes of a process share: the threads that keep house for all of them, and one limit for the memory of their rows.
//!
//! ```text
//! housekeeper    epochs, old versions, old schemas     ┐
//! checkpointer   checkpoints, one at a time            │  each a thread that goes from node to node,
//! spares         log segments for later                ├─ and sleeps until the next node is due
//! anchor         how far the logs have reached         │
//! splits         records of hot split values           ┘
//! ```
//! A node joins a house when it opens and leaves when it stops. Leaving waits for the thread that works for the node at this moment, and for
//! no other. A node without a house has one of its own, so there is one way to do this work.
//!
//! While a thread works for one node the others wait: a long checkpoint of one node puts off that of another. Epochs do not wait. They
//! tick for all nodes also while the versions of one are taken away.
//!
//! Left out on purpose: what a visit does (`housekeeping`, `reach`, `splits`).

use base::{Error, Result, SqlState};
use env::{Env, JoinHandle};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use store::Budget;

/// Longest that a thread sleeps.
const MOST: Duration = Duration::from_millis(500);

/// The threads: one for each kind of work.
pub(crate) const KINDS: [&str; 5] = ["housekeeper", "checkpointer", "spares", "anchor", "splits"];

/// A kind of work, for one node.
pub(crate) trait Chore: Send {
    /// A visit. `tick` is called now and then in a long one. How long until the next.
    fn visit(&mut self, tick: &dyn Fn()) -> Duration;

    /// Whether the node asked for a visit before its time.
    fn is_asked(&self) -> bool {
        false
    }
}

/// A node, for what cannot wait until its next visit.
pub(crate) trait Lodger: Send + Sync {
    /// An epoch ends, if it is time.
    fn tick(&self);
}

/// See the head of the file. Dropped, it ends; every node has left before.
pub struct House {
    inner: Arc<Inner>,
    threads: Mutex<Vec<JoinHandle>>,
    memory: Option<Arc<Budget>>,
}

struct Inner {
    env: Env,
    state: Mutex<State>,
    /// A node joined or asks for a visit, or the house ends.
    changed: Condvar,
    /// A visit has ended.
    visited: Condvar,
}

#[derive(Default)]
struct State {
    nodes: Vec<(u64, Arc<dyn Lodger>)>,
    last: u64,
    /// What each thread does.
    work: [Work; KINDS.len()],
    stopping: bool,
}

#[derive(Default)]
struct Work {
    /// But for the one that is done now.
    chores: Vec<Due>,
    /// The node that is visited.
    visits: Option<u64>,
}

struct Due {
    node: u64,
    at: u64,
    chore: Box<dyn Chore>,
}

impl Work {
    /// Takes out the chore that is due first, or tells how long until then.
    fn next(&mut self, now: u64) -> std::result::Result<Due, Duration> {
        let at = |d: &Due| {
            if d.chore.is_asked() {
                d.at.min(now)
            } else {
                d.at
            }
        };
        let first = self.chores.iter().enumerate().min_by_key(|(_, d)| at(d));
        let (i, at) = first.map(|(i, d)| (i, at(d))).ok_or(MOST)?;
        match at.saturating_sub(now) {
            0 => Ok(self.chores.swap_remove(i)),
            wait => Err(MOST.min(Duration::from_nanos(wait))),
        }
    }
}

impl House {
    /// A house whose nodes' rows may take `max_memory` bytes together. SYSTEM_ERROR: a thread could not be started.
    pub fn new(env: &Env, max_memory: u64) -> Result<Arc<House>> {
        House::start(env, Some(Arc::new(Budget::new(max_memory))))
    }

    /// The house of one node, which has a limit of its own.
    pub(crate) fn private(env: &Env) -> Result<Arc<House>> {
        House::start(env, None)
    }

    fn start(env: &Env, memory: Option<Arc<Budget>>) -> Result<Arc<House>> {
        let inner = Arc::new(Inner {
            env: env.clone(),
            state: Mutex::default(),
            changed: Condvar::new(),
            visited: Condvar::new(),
        });
        let house = House {
            inner: inner.clone(),
            threads: Mutex::default(),
            memory,
        };
        for (kind, name) in KINDS.into_iter().enumerate() {
            let inner = inner.clone();
            let thread = env.spawn.spawn(name, Box::new(move || inner.keep(kind)));
            let thread = thread.map_err(|e| {
                let what = format!("could not start the {name} thread: {e}");
                Error::new(SqlState::SYSTEM_ERROR, what)
            })?;
            house.threads.lock().push(thread);
        }
        Ok(Arc::new(house))
    }

    /// How many nodes live here.
    pub fn nodes(&self) -> usize {
        self.inner.state.lock().nodes.len()
    }

    /// How many threads it has, whatever the number of nodes.
    pub fn threads(&self) -> usize {
        self.threads.lock().len()
    }

    /// The limit for the rows of all nodes together; none: the node has its own.
    pub fn memory(&self) -> Option<&Arc<Budget>> {
        self.memory.as_ref()
    }

    /// Does these chores from now on. The node's number here.
    pub(crate) fn join(
        &self,
        lodger: Arc<dyn Lodger>,
        chores: [Box<dyn Chore>; KINDS.len()],
    ) -> u64 {
        let mut s = self.inner.state.lock();
        s.last += 1;
        let node = s.last;
        s.nodes.push((node, lodger));
        for (work, chore) in s.work.iter_mut().zip(chores) {
            work.chores.push(Due { node, at: 0, chore });
        }
        self.inner.changed.notify_all();
        node
    }

    /// Nothing is done for this node any more when this returns. The node was told to stop before, so a visit is short.
    pub(crate) fn leave(&self, node: u64) {
        let mut s = self.inner.state.lock();
        s.nodes.retain(|n| n.0 != node);
        s.work
            .iter_mut()
            .for_each(|w| w.chores.retain(|d| d.node != node));
        while s.work.iter().any(|w| w.visits == Some(node)) {
            self.inner.visited.wait(&mut s);
        }
    }

    /// A node asks for a visit.
    pub(crate) fn wake(&self) {
        let _seen = self.inner.state.lock();
        self.inner.changed.notify_all();
    }
}

impl Drop for House {
    fn drop(&mut self) {
        self.inner.state.lock().stopping = true;
        self.inner.changed.notify_all();
        for t in self.threads.lock().drain(..) {
            if t.join().is_err() {
                env::alarm!("canon: a thread that keeps house panicked");
            }
        }
    }
}

impl Inner {
    /// The thread of this kind of work.
    fn keep(&self, kind: usize) {
        self.env.spawn.give_way();
        let clock = &self.env.clock;
        let mut s = self.state.lock();
        while !s.stopping {
            let mut due = match s.work[kind].next(clock.monotonic_nanos()) {
                Ok(due) => due,
                Err(wait) => {
                    self.changed.wait_for(&mut s, wait);
                    continue;
                }
            };
            s.work[kind].visits = Some(due.node);
            let pause = MutexGuard::unlocked(&mut s, || {
                let visit = || due.chore.visit(&|| self.tick());
                catch_unwind(AssertUnwindSafe(visit))
            });
            let lives = s.nodes.iter().any(|n| n.0 == due.node);
            match pause {
                Ok(pause) if lives => {
                    due.at = clock.monotonic_nanos() + pause.as_nanos() as u64;
                    s.work[kind].chores.push(due);
                }
                Ok(_) => drop(due),
                Err(_) => {
                    env::alarm!("canon: a thread that keeps house panicked; going on without it");
                    drop(due);
                }
            }
            s.work[kind].visits = None;
            self.visited.notify_all();
        }
    }

    /// Epochs end, at all nodes.
    fn tick(&self) {
        // Under the lock: a node that leaves is not in here any more.
        self.state.lock().nodes.iter().for_each(|n| n.1.tick());
    }
}
