//! One endpoint: a replica takes every statement, and sends to the primary what it may not run itself.
//!
//! ```text
//! client ──▶ session at the replica: may this run here?      yes: it does
//!               │ no (sql::session::forward)
//!               ▼
//!            relay.rs ── a connection of the pool ──▶ the primary's connections: a session that adopts this one's state
//!               ▲                                          │
//!               └── replies, as they are ◀─────────────────┘
//! ```
//! **Who acts.** The pool logs in as the role that this node replicates with (`replication=forward` in the start-up message, only for
//! superusers and roles with REPLICATION), and says for each piece of work which role it acts for. The replica has checked who its
//! client is; the primary checks what that role may do.
//!
//! **Connections** belong to a client while its transaction is open at the primary, and are everybody's between transactions. The one
//! that served a client last is given to it again if it is free: then the primary knows its settings and statements, and
//! only changes travel. Others get one whose client has gone, or has left it alone for a while (`LEFT_ALONE`), before a new one is made; one
//! that nobody wants any more is closed (`UNUSED`). So a replica holds as many as its clients use at a time, not as many as there were.
//!
//! **What is lost when the primary is.** Before anything was sent: 57P03, and the client's session goes on. In the middle of a
//! transaction: 08006, and it was rolled back. When what was sent may have committed: 40003 with a token to ask with
//! (`canon_txn_status`).
//!
//! A primary that says nothing may be at work for long, or may be cut off. It is taken for lost when for `forward.silence` nothing was heard
//! of it, not over the log's connection either, where ticks flow every 10 ms, and then a new connection does not come about.
//!
//! Left out on purpose: relaying through a replica that follows another.

mod copy;
mod limits;
pub mod relay;
mod upstream;

pub use limits::Limits;

use crate::connections::cores::Core;
use crate::replication::Primary;
use base::{Error, Result, SqlState};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use upstream::Upstream;

/// How a connection for sessions is asked for.
const LOGIN: [(&str, &str); 1] = [("replication", "forward")];

/// Looks in a row that have found nothing new, before a primary counts as silent: a node that was stopped itself does not take
/// the time of that for the other's silence.
const LOOKS: u32 = 8;

/// A free connection is another client's when its own has not come back to it for this long.
const LEFT_ALONE: Duration = Duration::from_secs(1);
/// A free connection is closed when nobody has wanted it for this long.
const UNUSED: Duration = Duration::from_secs(30);
/// The owner of what belongs to no client.
const NOBODY: u64 = 0;

/// Anything that is another one whenever the primary has been heard.
pub type Pulse = Box<dyn Fn() -> Option<i64> + Send + Sync>;

/// A connection that counts, also before it is made.
struct Slot(Arc<Pool>);

impl Slot {
    fn new(pool: &Arc<Pool>) -> Slot {
        pool.open.fetch_add(1, Ordering::Relaxed);
        Slot(pool.clone())
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The connections to the primary.
pub struct Pool {
    primary: Primary,
    limits: Limits,
    pulse: Pulse,
    /// Free ones and since when, the one that was used last at the end.
    idle: Mutex<Vec<(Instant, Upstream)>>,
    /// One for each client that has a connection or is about to.
    places: Arc<Semaphore>,
    /// Connections that there are, and those that are being made.
    open: AtomicUsize,
    owners: AtomicU64,
}

impl Pool {
    pub fn new(primary: Primary, limits: Limits, pulse: Pulse) -> Arc<Pool> {
        Arc::new(Pool {
            primary,
            pulse,
            idle: Mutex::default(),
            places: Arc::new(Semaphore::new(limits.connections)),
            limits,
            open: AtomicUsize::new(0),
            owners: AtomicU64::new(NOBODY + 1),
        })
    }

    /// A number for a client.
    fn owner(&self) -> u64 {
        self.owners.fetch_add(1, Ordering::Relaxed)
    }

    /// Connections there are.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// A connection for this client: the one that it had, a new one, or another's. Waits while all are in use, 53300 when that takes too
    /// long. 57P03 when the primary does not answer.
    async fn take(self: &Arc<Pool>, owner: u64, core: &Arc<Core>) -> Result<Upstream> {
        let place = match self.places.clone().try_acquire_owned() {
            Ok(place) => place,
            Err(_) => {
                let place = self.places.clone().acquire_owned();
                let place = tokio::time::timeout(self.limits.wait, place).await;
                place
                    .map_err(|_| self.exhausted())?
                    .expect("the pool is never closed")
            }
        };
        loop {
            let found = {
                let mut idle = self.idle.lock();
                let full = self.open() >= self.limits.connections;
                // Who has a place finds one of the two.
                match fitting(&idle, owner, full) {
                    Some(at) => Ok(idle.remove(at).1),
                    None => Err(Slot::new(self)),
                }
            };
            let made = match found {
                Ok(u) => Ok(u),
                Err(slot) => connect(slot, core).await,
            };
            let mut u = match made {
                // The primary has no room for one more: one of those that are there, then.
                Err(e) if e.code() == SqlState::TOO_MANY_CONNECTIONS => {
                    let mut idle = self.idle.lock();
                    if idle.is_empty() {
                        return Err(e);
                    }
                    idle.remove(0).1
                }
                made => made?,
            };
            if u.is_alive() {
                u.serve(owner, place);
                return Ok(u);
            }
        }
    }

    /// Takes a connection back that has nothing open.
    fn give(&self, mut u: Upstream) {
        if u.cancelled || !u.is_sent() {
            return;
        }
        let mut idle = self.idle.lock();
        u.rest();
        idle.push((Instant::now(), u));
    }

    /// This client has gone.
    fn left(&self, owner: u64) {
        let mut idle = self.idle.lock();
        let theirs = idle.iter_mut().filter(|(_, u)| u.owner == owner);
        theirs.for_each(|(_, u)| u.owner = NOBODY);
    }

    /// Closes free connections that nobody has wanted for long. For a clock.
    pub fn prune(&self) {
        let mut idle = self.idle.lock();
        let used = idle.iter().position(|(since, _)| since.elapsed() < UNUSED);
        let unused = used.unwrap_or(idle.len());
        let gone: Vec<_> = idle.drain(..unused).collect();
        drop(idle);
        drop(gone);
    }

    fn exhausted(&self) -> Error {
        let (n, wait) = (self.limits.connections, self.limits.wait);
        Error::new(
            SqlState::TOO_MANY_CONNECTIONS,
            format!("all {n} connections of this replica to the primary are in use"),
        )
        .detail(format!("The statement has waited {wait:?} for one. Nothing was done."))
        .hint("Transactions that write hold one until they end. Raise forward.connections, or connect to the primary.")
    }

    /// Ready when the primary is not heard any more; why.
    async fn silence(&self) -> Error {
        loop {
            let (mut last, mut quiet) = ((self.pulse)(), 0);
            while quiet < LOOKS {
                tokio::time::sleep(self.limits.silence / LOOKS).await;
                let now = (self.pulse)();
                quiet = if now == last { quiet + 1 } else { 0 };
                last = now;
            }
            // The log may have stopped for reasons of its own.
            let mut primary = self.primary.clone();
            primary.connect_timeout = primary.connect_timeout.min(self.limits.silence);
            let asked = tokio::spawn(async move { primary.connect(&LOGIN).await.err() });
            match asked.await {
                // It is there, whatever it says.
                Ok(Some(e)) if e.code() != SqlState::CONNECTION_FAILURE => {}
                Ok(None) => {}
                _ => break,
            }
        }
        self.clear();
        Error::new(
            SqlState::CONNECTION_FAILURE,
            format!(
                "the primary has not been heard for {:?}",
                self.limits.silence
            ),
        )
    }

    /// Closes the free ones.
    pub fn clear(&self) {
        let all = std::mem::take(&mut *self.idle.lock());
        drop(all);
    }
}

/// Which of the free connections a client is to have. `full`: any rather than none.
fn fitting(idle: &[(Instant, Upstream)], owner: u64, full: bool) -> Option<usize> {
    let owned = |by: u64| idle.iter().rposition(|(_, u)| u.owner == by);
    let left_alone = || idle.first().is_some_and(|(t, _)| t.elapsed() >= LEFT_ALONE);
    let oldest = || (!idle.is_empty() && (full || left_alone())).then_some(0);
    owned(owner).or_else(|| owned(NOBODY)).or_else(oldest)
}

async fn connect(slot: Slot, core: &Arc<Core>) -> Result<Upstream> {
    let made = Upstream::connect(slot, core).await;
    made.map_err(|e| match e.code() {
        SqlState::CONNECTION_FAILURE => unreachable(&e),
        _ => e,
    })
}

fn unreachable(e: &Error) -> Error {
    Error::new(
        SqlState::CANNOT_CONNECT_NOW,
        "the primary cannot be reached, and this node is a replica",
    )
    .detail(e.fields().message.to_string())
    .hint("Nothing was done. Reads go on here.")
}
