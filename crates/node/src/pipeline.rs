//! The pipeline: what is installed goes to the log in groups, back to back; what is durable is decided and published, and
//! whoever waited for it is let go.
//!
//! ```text
//! committing threads ──▶ order (ring) ──▶ flusher: append group, fdatasync ──▶ flushed, decided, published ──▶ waiters
//!                                                                          └──▶ shipping ──▶ replicas
//! ```
//! One thread writes the log. While it waits for the disk the next group gathers; so a lone client pays one flush, and a
//! hundred share one. A full disk stops nothing but new writes: the group is tried again until there is room, and those who
//! wait for it wait. Any other error of the log ends the process, because nobody knows any more what is on the disk.

use base::{Error, Held, Position, Result, SqlState, Watermarks};
use commit::{Order, PublishedWait, Waiters};
use env::{Env, fault};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use txn::{CommitOrder, TxnManager};
use wal::LogWriter;

use crate::shipping::Shipping;

/// Bytes of a group, near enough; one commit may be larger.
const GROUP_BYTES: usize = 4 << 20;

/// How often a write to a full disk is tried again.
const RETRY: Duration = Duration::from_millis(50);

/// What the flusher has done.
#[derive(Debug, Default)]
pub struct FlushStats {
    pub groups: AtomicU64,
    pub commits: AtomicU64,
    pub bytes: AtomicU64,
    /// Time in write and fdatasync.
    pub nanos: AtomicU64,
    /// Times that a group found the disk full.
    pub disk_full: AtomicU64,
}

/// See the head of the file.
pub struct Pipeline {
    pub order: Order,
    pub marks: Arc<Watermarks>,
    pub waiters: Arc<Waiters>,
    pub shipping: Shipping,
    pub stats: FlushStats,
    stop: AtomicBool,
}

impl Pipeline {
    /// Goes on after `last`. `replicas`: how many must hold a commit before it is decided.
    pub fn new(last: Position, marks: Arc<Watermarks>, replicas: usize) -> Pipeline {
        let waiters: Arc<Waiters> = Arc::default();
        Pipeline {
            order: Order::new(last, marks.clone()),
            shipping: Shipping::new(marks.clone(), waiters.clone(), replicas),
            marks,
            waiters,
            stats: FlushStats::default(),
            stop: AtomicBool::new(false),
        }
    }

    /// Ready when the reply may leave.
    pub fn published(&self, held: impl Into<Held>) -> PublishedWait {
        PublishedWait::new(held.into(), self.marks.clone(), self.waiters.clone())
    }

    /// An acknowledgement that does not wait for the disk (`synchronous_commit = off`) publishes what it acknowledges.
    pub fn publish(&self, position: Position) {
        let mut spins = 0u32;
        while self.marks.installed.get() < position {
            spins += 1;
            if spins > 64 {
                std::thread::yield_now()
            } else {
                std::hint::spin_loop()
            }
        }
        self.marks.published.raise(position);
        self.waiters.wake(position);
    }

    /// Lets the flusher end when everything is flushed.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }

    /// The flusher's thread.
    pub fn run(&self, mut log: LogWriter, manager: &TxnManager, env: &Env) {
        self.shipping.set_limit(log.synced_point());
        let mut drained = Vec::new();
        loop {
            self.order.wait_for_work(Duration::from_millis(20));
            let Some(last) = self.order.drain(GROUP_BYTES, &mut drained) else {
                if self.stop.load(Ordering::SeqCst) && self.order.is_idle() {
                    return;
                }
                continue;
            };
            let group: Vec<wal::Commit> = drained
                .drain(..)
                .map(|l| wal::Commit {
                    position: l.position,
                    heads: l.heads,
                    data: l.data,
                })
                .collect();
            if group.is_empty() {
                self.shipping.flushed(last, None, None);
            } else {
                log.set_copies(self.shipping.is_wanted());
                self.flush(&mut log, &group, manager, env);
                self.shipping
                    .flushed(last, log.take_copy(), log.synced_point());
            }
            fault::point("node.after_decided");
        }
    }

    fn flush(&self, log: &mut LogWriter, group: &[wal::Commit], manager: &TxnManager, env: &Env) {
        let began = env.clock.monotonic_nanos();
        let mut full = false;
        loop {
            match log.append_group(group, self.marks.published.get()) {
                Ok(_) => break,
                Err(e) if e.is_retryable() => {
                    if !full {
                        full = true;
                        self.stats.disk_full.fetch_add(1, Ordering::Relaxed);
                        manager.set_disk_full(true);
                        eprintln!(
                            "canon: {e}; commits wait and new writes are refused until there is room"
                        );
                    }
                    env.clock.sleep(RETRY);
                }
                Err(e) => die(&e),
            }
        }
        if let Err(e) = log.sync() {
            die(&e);
        }
        if full {
            manager.set_disk_full(false);
            eprintln!("canon: there is room on the disk again; writes go on");
        }
        let s = &self.stats;
        s.groups.fetch_add(1, Ordering::Relaxed);
        s.commits.fetch_add(group.len() as u64, Ordering::Relaxed);
        let bytes: usize = group.iter().map(|c| c.heads.len() + c.data.len()).sum();
        s.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        s.nanos
            .fetch_add(env.clock.monotonic_nanos() - began, Ordering::Relaxed);
    }
}

/// Nobody knows what is durable now, so nothing may be acknowledged: the process ends, and recovery will tell.
pub(crate) fn die(e: &wal::Error) -> ! {
    eprintln!("canon: the log cannot be written: {e}");
    eprintln!("canon: stopping now, so that nothing is acknowledged that may be lost");
    std::process::abort();
}

fn handed_over() -> Error {
    Error::new(
        SqlState::READ_ONLY_SQL_TRANSACTION,
        "cannot write: this node has handed over to another primary",
    )
}

/// The order as transactions see it.
impl CommitOrder for Pipeline {
    fn begin(&self) -> Result<(Position, u64)> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Error::new(
                SqlState::ADMIN_SHUTDOWN,
                "the database system is shutting down",
            ));
        }
        self.order.begin().ok_or_else(handed_over)
    }

    fn ready(&self, ticket: u64, heads: Vec<u8>, data: Vec<u8>) {
        self.order.ready(ticket, heads, data);
    }

    fn abort(&self, ticket: u64) {
        self.order.abort(ticket);
    }
}
