//! Replay: the primary's log, executed by several workers at once, shown in prefixes (C5 §4, §7.2).
//!
//! ```text
//! feed ─▶ groups ─▶ scheduler ─▶ segments ─▶ workers ─▶ store          each worker: bound c_i, everything it had below is done
//!                   stamps prev, cuts        install or defer  └──▶ snapshotter: n = min c_i;  visible = min(n, published)
//! ```
//! A write is installed when its predecessor is: no lock, no validation, no order between different rows. So replay is never more
//! constrained than the primary was (C5 Theorem 2). Readers stand at `visible`, below everything that is under way.
//!
//! **Who runs what.** There is no thread of the scheduler's or of the snapshotter's: a worker that finds few segments left does the
//! scheduler's work, and after each slice of work the snapshotter's, one worker at a time (`try_lock`). So all CPUs work on what is
//! short, and an idle replica sleeps. All state is in [`core::Core`], whose functions are steps without a thread or a clock: [`Replay`]
//! runs them in threads, [`Stepper`] one after the other as a simulation says.
//!
//! **Memory** is bounded: bytes of groups fed and not yet installed (`max_bytes`, and the group that crosses it), records handed out
//! and not yet installed (`max_rows`), a table of last writes of fixed size. Nothing is allocated per record besides the version.
//!
//! Read in this order: `segment`, `last_writes`, `scheduler`, `install`, `worker`, `snapshotter`, `core`, `threads`.
//!
//! Left out on purpose: batching writes to one row into one version (snapshots between them would be lost), and any knowledge of
//! what a schema change means ([`SchemaSink`]).

mod bell;
mod core;
mod install;
#[cfg(all(test, feature = "shuttle"))]
mod interleavings;
mod last_writes;
mod progress;
mod scheduler;
mod segment;
mod snapshotter;
mod stepper;
mod threads;
mod worker;

use base::{Error, Oid, Position, Result, SqlState};
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

pub use scheduler::schedule_only;
pub use stepper::Stepper;
pub use threads::Replay;
pub use worker::Step;

/// How much of the log's order replay keeps, from most to least; the comparison of these is C5's proof.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// All writes in the order of the log, by one worker.
    Serial,
    /// Writes of one table in order.
    Table,
    /// Transactions with a common row one after the other (KuaFu).
    Transaction,
    /// Writes of one page (64 adjacent keys) in order.
    Page,
    /// Writes of one row in order, but one worker per transaction, and snapshots by holding back (C5-MyRocks, §5).
    TransactionWorker,
    /// Writes of one row in order (C5).
    #[default]
    Row,
}

impl Policy {
    pub const ALL: [Policy; 6] = [
        Policy::Serial,
        Policy::Table,
        Policy::Transaction,
        Policy::Page,
        Policy::TransactionWorker,
        Policy::Row,
    ];

    /// The name in the settings.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Serial => "serial",
            Policy::Table => "table",
            Policy::Transaction => "transaction",
            Policy::Page => "page",
            Policy::TransactionWorker => "transaction-worker",
            Policy::Row => "row",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Policy {
    type Err = Error;

    fn from_str(name: &str) -> Result<Policy> {
        let found = Policy::ALL.into_iter().find(|p| p.name() == name);
        found.ok_or_else(|| {
            let names: Vec<_> = Policy::ALL.iter().map(|p| p.name()).collect();
            let what = format!("unknown replay policy \"{name}\"");
            Error::new(SqlState::INVALID_PARAMETER_VALUE, what)
                .hint(format!("Policies are {}.", names.join(", ")))
        })
    }
}

/// How to replay.
#[derive(Clone, Debug)]
pub struct ReplayOptions {
    pub policy: Policy,
    pub workers: usize,
    /// A wait before each row write, as of storage that is slow: for measurements only.
    pub row_cost: Option<Duration>,
    /// Policy transaction-worker: the time between snapshots that it aims at.
    pub snapshot_interval: Duration,
    /// Records of a segment, at most (a transaction of the policies that keep them whole may be longer).
    pub segment_rows: u64,
    /// Records that a worker executes between two looks at what others have done.
    pub slice: usize,
    /// Records handed out and not installed, near enough.
    pub max_rows: u64,
    /// Bytes of groups fed and not installed; one group more may be there.
    pub max_bytes: u64,
    /// Last writes that the scheduler remembers; 64 bytes per three.
    pub last_writes: usize,
    /// Granules of the policies table and page, each 16 bytes; a power of two.
    pub granules: usize,
}

impl Default for ReplayOptions {
    fn default() -> ReplayOptions {
        ReplayOptions {
            policy: Policy::default(),
            workers: 2,
            row_cost: None,
            snapshot_interval: Duration::from_millis(10),
            segment_rows: 512,
            slice: 128,
            max_rows: 1 << 16,
            max_bytes: 64 << 20,
            last_writes: 3 << 14,
            granules: 1 << 16,
        }
    }
}

/// A part of a schema change that goes on beside replay (an index over the rows that are there).
pub type Build = Box<dyn FnOnce() -> Result<()> + Send>;

/// What replay asks of the node. All but `visible` are called in log order, by one thread at a time.
pub trait SchemaSink: Send + Sync {
    /// Changes the schema. When it returns, new storages and indexes are in the store: writes handed out from then on go there.
    /// The builds run once every write handed out before is installed, beside the writes that follow; until they have ended nothing
    /// at or above `at` is shown.
    fn schema(&self, at: Position, changes: &[u8]) -> Result<Vec<Build>>;

    /// Whether the change needs every earlier write installed first (a rewrite of rows).
    fn needs_barrier(&self, changes: &[u8]) -> Result<bool>;

    /// A sequence's record; like `schema`, it comes before the rows around it are installed.
    fn sequence(&self, at: Position, id: Oid, state: &[u8]) -> Result<()>;

    /// A notification of the commit at `at`, which is to be given to listeners once that is shown.
    fn notification(&self, _at: Position, _notification: &[u8]) -> Result<()> {
        Ok(())
    }

    /// Readers may stand at `to` now. Called before [`crate::ReplicaMarks::visible`] is raised, from whichever thread found out.
    fn visible(&self, to: Position);
}

/// What replay has done since it began.
#[derive(Debug, Default)]
pub struct ReplayStats {
    /// Row writes installed.
    pub rows: AtomicU64,
    /// Writes (with the policy transaction: transactions) that had to wait for a predecessor.
    pub deferred: AtomicU64,
    /// Commits handed out.
    pub transactions: AtomicU64,
    /// Times that feeding waited for room.
    pub stalls: AtomicU64,
    /// Records stamped.
    pub stamped: AtomicU64,
    /// Snapshots shown.
    pub snapshots: AtomicU64,
}
