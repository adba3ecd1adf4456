//! One endpoint: a replica takes every statement, and sends to the primary what it may not run itself.
//!
//! ```text
//! client ──▶ session at the replica: may this run here?      yes: it does
//!               │ no (sql::session::forward)
//!               ▼
//!            relay.rs ── a connection of the pool ──▶ the primary's gate: a session that adopts this one's state
//!               ▲                                          │
//!               └── replies, as they are ◀─────────────────┘
//! ```
//! **Who acts.** The pool logs in as the role that this node replicates with (`replication=forward` in the start-up message, only for
//! superusers and roles with REPLICATION), and says for each piece of work which role it acts for. The replica has checked who its
//! client is; the primary checks what that role may do.
//!
//! **Connections** belong to a client while its transaction is open at the primary, and are everybody's between transactions. The one
//! that served a client last is given to it again if it is free: then the primary knows its settings and statements, and
//! only changes travel.
//!
//! **What is lost when the primary is.** Before anything was sent: 57P03, and the client's session goes on. In the middle of a
//! transaction: 08006, and it was rolled back. When what was sent may have committed: 40003 with a token to ask with
//! (`canon_txn_status`).
//!
//! Left out on purpose: relaying through a replica that follows another; TLS between nodes.

pub mod relay;
mod upstream;

use crate::gate::cores::Core;
use crate::replication::Primary;
use base::{Error, Result, SqlState};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use upstream::Upstream;

/// Connections to the primary at most: clients that are in the middle of something there at the same time.
const MOST: usize = 64;

/// The connections to the primary.
pub struct Pool {
    primary: Primary,
    /// Free ones, the one that was used last at the end.
    idle: Mutex<Vec<Upstream>>,
    places: Arc<Semaphore>,
    open: AtomicUsize,
    owners: AtomicU64,
}

impl Pool {
    pub fn new(primary: Primary) -> Arc<Pool> {
        Arc::new(Pool {
            primary,
            idle: Mutex::default(),
            places: Arc::new(Semaphore::new(MOST)),
            open: AtomicUsize::new(0),
            owners: AtomicU64::new(1),
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

    /// A connection for this client: the one that it had, a new one, or another's. Waits while all are in use. 57P03 when the primary
    /// does not answer.
    async fn take(self: &Arc<Pool>, owner: u64, core: &Arc<Core>) -> Result<Upstream> {
        let place = self.places.clone().acquire_owned().await;
        let place = place.expect("the pool is never closed");
        loop {
            let found = {
                let mut idle = self.idle.lock();
                let mine = idle.iter().position(|u| u.owner == owner);
                let full = self.open() >= MOST;
                mine.or_else(|| (full && !idle.is_empty()).then_some(0))
                    .map(|at| idle.remove(at))
            };
            match found {
                Some(mut u) => {
                    if u.is_alive() {
                        u.serve(owner, place);
                        return Ok(u);
                    }
                }
                None => return self.connect(owner, core, place).await,
            }
        }
    }

    async fn connect(
        self: &Arc<Pool>,
        owner: u64,
        core: &Arc<Core>,
        place: OwnedSemaphorePermit,
    ) -> Result<Upstream> {
        match Upstream::connect(self.clone(), core).await {
            Ok(mut u) => {
                u.serve(owner, place);
                Ok(u)
            }
            Err(e) if e.code() == SqlState::CONNECTION_FAILURE => Err(unreachable(&e)),
            Err(e) => Err(e),
        }
    }

    /// Takes a connection back that has nothing open.
    fn give(&self, mut u: Upstream) {
        u.rest();
        self.idle.lock().push(u);
    }

    /// Closes the free ones.
    pub fn clear(&self) {
        let all = std::mem::take(&mut *self.idle.lock());
        drop(all);
    }
}

fn unreachable(e: &Error) -> Error {
    Error::new(
        SqlState::CANNOT_CONNECT_NOW,
        "the primary cannot be reached, and this node is a replica",
    )
    .detail(e.fields().message.to_string())
    .hint("Nothing was done. Reads go on here.")
}
