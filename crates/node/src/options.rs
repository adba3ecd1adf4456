//! How a node is opened, and what a start found.

use base::Position;
use base::region::Region;
use env::Env;
use replica::replay::ReplayOptions;
use std::sync::Arc;
use std::time::Duration;
use store::Memory;
use wal::{DirOptions, LogOptions};

use crate::house::House;
use crate::splits::adjust::Adjust;
use crate::splits::balance::Balance;
use crate::turns::Certification;

/// Read leases (`crate::lending`). All nodes of a cluster have them, or none.
#[derive(Clone, Copy, Debug)]
pub struct Leases {
    /// A replica that takes longer to acknowledge gets none.
    pub max_commit_wait: Duration,
    /// Whether this node asks for one while it follows.
    pub asks: bool,
}

/// How a node is opened.
#[derive(Clone)]
pub struct NodeOptions {
    pub env: Env,
    /// The superuser of a new database.
    pub owner: String,
    /// Bytes that rows may take (53200 above). In a house the limit of the house counts.
    pub max_memory: u64,
    /// What keeps house for this node and others of the process; absent: threads of its own.
    pub house: Option<Arc<House>>,
    /// Threads that read a checkpoint back at the start, which are gone when it is open; 0: one for each processor.
    pub recovery_workers: usize,
    /// Age at which snapshots end (72000).
    pub snapshot_max_age: Duration,
    /// Log written since the last checkpoint that calls for the next.
    pub checkpoint_bytes: u64,
    /// Length of an epoch while there is work.
    pub epoch_max_duration: Duration,
    /// Bytes of a log segment.
    pub segment_bytes: u64,
    /// Opened to follow a primary; the directory holds a database already (`wal::DataDir`, bootstrap).
    pub replica: bool,
    /// How a replica replays.
    pub replay: ReplayOptions,
    /// Replicas that must hold a commit before it is decided.
    pub synchronous_replicas: usize,
    /// Bytes of log kept for replicas that are away.
    pub wal_keep_bytes: u64,
    /// A log that ends before its anchor is taken if it ends here: once.
    pub accept_log_end: Option<Position>,
    /// What replicas read of this node; absent: in this process's memory.
    pub region: Option<Arc<Region>>,
    /// Threads do the work. Without them nothing happens but the steps that the caller asks for (`steps`), in the order of its calls.
    pub threads: bool,
    /// Bytes of the ring between a replica's receiver and its follower.
    pub ring_bytes: usize,
    /// Bytes of groups that a primary keeps in memory for its replicas.
    pub recent_bytes: usize,
    /// A replica that says nothing for so long is gone.
    pub silence: Duration,
    /// Read leases: a primary grants them, a replica asks for them; absent: neither.
    pub leases: Option<Leases>,
    /// How the worker of split values gives and takes records, and what it moves between them.
    pub split_adjust: Adjust,
    pub split_balance: Balance,
    /// Which candidates of sites take turns.
    pub site_certification: Certification,
    /// Called about twice a second during recovery: (bytes done, bytes in all, rows, commits).
    pub on_recovery: Option<fn(u64, u64, u64, u64)>,
}

impl Default for NodeOptions {
    fn default() -> Self {
        NodeOptions {
            env: Env::os(),
            owner: "canon".into(),
            max_memory: u64::MAX,
            house: None,
            recovery_workers: 0,
            snapshot_max_age: Duration::from_secs(3600),
            checkpoint_bytes: 1 << 30,
            epoch_max_duration: Duration::from_millis(10),
            segment_bytes: 64 << 20,
            replica: false,
            replay: ReplayOptions::default(),
            synchronous_replicas: 0,
            wal_keep_bytes: 4 << 30,
            accept_log_end: None,
            region: None,
            threads: true,
            ring_bytes: 64 << 20,
            recent_bytes: 64 << 20,
            silence: Duration::from_secs(30),
            leases: None,
            split_adjust: Adjust::default(),
            split_balance: Balance::default(),
            site_certification: Certification::default(),
            on_recovery: None,
        }
    }
}

impl NodeOptions {
    /// How the data directory is opened.
    pub(crate) fn directory(&self) -> DirOptions {
        let log = LogOptions {
            segment_size: self.segment_bytes,
            ..LogOptions::default()
        };
        DirOptions { log, cluster: None }
    }

    /// Threads of a recovery.
    pub(crate) fn crew(&self) -> usize {
        match self.recovery_workers {
            0 => self.env.spawn.parallelism().max(1),
            n => n,
        }
    }

    /// Sets the limit of the rows' memory, which a house has for all its nodes.
    pub(crate) fn limit(&self, memory: &Memory) {
        match self.house.as_ref().and_then(|h| h.memory()) {
            Some(budget) => memory.share(budget.clone()),
            None => memory.set_limit(self.max_memory),
        }
    }
}

/// What a start found.
#[derive(Clone, Debug, Default)]
pub struct RecoveryReport {
    /// A new database was made.
    pub created: bool,
    pub checkpoint_rows: u64,
    pub commits: u64,
    pub last: Position,
    pub duration: Duration,
    /// What was cut off the log.
    pub cut: Option<String>,
    /// What is missing, where an operator has accepted the log without it.
    pub accepted: Option<String>,
}
