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
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use store::Budget;

use crate::housekeeping::{Anchors, Checkpoints, Spares, Sweep};
use crate::node::Shared;
use crate::splits::Splits;

/// Longest that a thread sleeps.
const MOST: Duration = Duration::from_millis(500);

/// When a chore is due that panicked.
const NEVER: u64 = u64::MAX;

/// A kind of housework, for one node.
pub(crate) trait Chore: Send {
    /// A visit. `tick` is called now and then in a long one. How long until the next.
    fn visit(&mut self, node: &Shared, tick: &dyn Fn()) -> Duration;

    /// Whether the node asked for a visit before its time.
    fn is_asked(&self, _: &Shared) -> bool {
        false
    }
}

/// Makes the state of a kind of housework for a node.
type Kind = fn(&Shared) -> Box<dyn Chore>;

/// The threads.
const KINDS: [(&str, Kind); 5] = [
    ("housekeeper", |_| Box::new(Sweep)),
    ("checkpointer", |_| Box::new(Checkpoints::default())),
    ("spares", |_| Box::new(Spares)),
    ("anchor", |_| Box::new(Anchors::default())),
    ("splits", |node| Box::new(Splits::of(node))),
];

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
    members: Vec<Member>,
    last: u64,
    /// The node that each thread visits now.
    visits: [Option<u64>; KINDS.len()],
    stopping: bool,
}

#[derive(Clone)]
struct Member {
    id: u64,
    node: Arc<Shared>,
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
        for (index, (name, kind)) in KINDS.into_iter().enumerate() {
            let inner = inner.clone();
            let thread = env
                .spawn
                .spawn(name, Box::new(move || inner.keep(index, kind)));
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
        self.inner.state.lock().members.len()
    }

    /// How many threads it has, whatever the number of nodes.
    pub fn threads(&self) -> usize {
        self.threads.lock().len()
    }

    /// Bytes that the rows of all nodes take together; none: the limit is not shared.
    pub fn memory(&self) -> Option<&Arc<Budget>> {
        self.memory.as_ref()
    }

    /// Keeps house for a node from now on. Its number here.
    pub(crate) fn join(&self, node: Arc<Shared>) -> u64 {
        let mut s = self.inner.state.lock();
        s.last += 1;
        let id = s.last;
        s.members.push(Member { id, node });
        self.inner.changed.notify_all();
        id
    }

    /// Nothing is done for this node any more when this returns. The node was told to stop before, so a visit is short.
    pub(crate) fn leave(&self, id: u64) {
        let mut s = self.inner.state.lock();
        s.members.retain(|m| m.id != id);
        while s.visits.contains(&Some(id)) {
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
    /// The thread of this kind.
    fn keep(&self, index: usize, kind: Kind) {
        self.env.spawn.give_way();
        let clock = &self.env.clock;
        let mut chores: HashMap<u64, (Box<dyn Chore>, u64)> = HashMap::new();
        let mut s = self.state.lock();
        while !s.stopping {
            let now = clock.monotonic_nanos();
            chores.retain(|id, _| s.members.iter().any(|m| m.id == *id));
            let mut next: Option<(u64, Member)> = None;
            for m in &s.members {
                let (chore, due) = chores.entry(m.id).or_insert_with(|| (kind(&m.node), now));
                let due = match *due != NEVER && chore.is_asked(&m.node) {
                    true => now.min(*due),
                    false => *due,
                };
                if next.as_ref().is_none_or(|n| due < n.0) {
                    next = Some((due, m.clone()));
                }
            }
            let wait = next.as_ref().map_or(MOST, |n| {
                Duration::from_nanos(n.0.saturating_sub(now)).min(MOST)
            });
            let Some((_, member)) = next.filter(|_| wait.is_zero()) else {
                self.changed.wait_for(&mut s, wait);
                continue;
            };
            s.visits[index] = Some(member.id);
            let (chore, due) = chores.get_mut(&member.id).expect("entered above");
            let pause = MutexGuard::unlocked(&mut s, || {
                let node = member.node;
                let visit = || chore.visit(&node, &|| self.tick());
                catch_unwind(AssertUnwindSafe(visit))
            });
            *due = match pause {
                Ok(pause) => clock.monotonic_nanos() + pause.as_nanos() as u64,
                Err(_) => {
                    env::alarm!("canon: a thread that keeps house panicked; going on without it");
                    NEVER
                }
            };
            s.visits[index] = None;
            self.visited.notify_all();
        }
    }

    /// Epochs end, at all nodes.
    fn tick(&self) {
        for m in &self.state.lock().members {
            m.node.tick();
        }
    }
}
