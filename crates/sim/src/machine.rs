//! A machine: a disk, what runs on it, and what a power cut or a killed process leaves.

use base::{Oid, Position};
use env::{Env, JoinHandle, ManualClock, MemDisk, OpenMode, SeededRandom, Spawn};
use node::copying::Place;
use node::{Leases, Node, NodeOptions};
use replica::replay::ReplayOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use txn::TableHandle;
use wal::{DataDir, LogReader};

use crate::follower::{Follower, RING};
use crate::invariants::Watched;
use crate::primary::Primary;
use crate::world::Config;

/// Nothing runs by itself.
struct NoThreads;

impl Spawn for NoThreads {
    fn spawn(&self, name: &str, _: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle> {
        panic!("a thread, {name}, in a simulation")
    }

    fn parallelism(&self) -> usize {
        1
    }
}

const SEGMENT: u64 = 16 << 10;

/// Acknowledgements that take longer hold no lease. Steps of a node come every millisecond or two, and it takes some.
const LEASES: Leases = Leases {
    max_commit_wait: Duration::from_millis(60),
    asks: true,
};

/// What runs on a machine.
pub enum Running {
    Primary(Box<Primary>),
    Follower(Box<Follower>),
}

pub struct Machine {
    pub disk: MemDisk,
    pub env: Env,
    pub up: Option<Running>,
    /// Counts starts, so that what was meant for an earlier life is not taken for this one's.
    pub life: u64,
    /// Whom it follows when it starts; none: it starts as the primary.
    pub follows: Option<usize>,
    /// The term that it led when it went down.
    pub led: Option<u64>,
    /// Positions that it has had in its memory only, and lost with it: above the one, up to the other.
    pub forgot: Vec<(Position, Position)>,
    /// Where its anchor stood when it went down, and what it had: its terms and last position.
    pub anchored: Position,
    pub had: Option<(Vec<(u64, Position)>, Position)>,
    /// Its disk has forgotten something that was synced.
    pub lied: bool,
    pub watched: Watched,
}

/// A table of the simulation.
pub fn table(node: &Node, id: Oid) -> Arc<TableHandle> {
    node.catalog().tables[&id].clone()
}

pub fn path() -> PathBuf {
    PathBuf::from("/data")
}

/// Where the directory of a machine is.
pub fn place(env: &Env) -> Place {
    Place {
        env: env.clone(),
        path: path(),
        segment_bytes: SEGMENT,
    }
}

impl Machine {
    pub fn new(seed: u64, clock: Arc<ManualClock>, follows: Option<usize>) -> Machine {
        let disk = MemDisk::new();
        Machine {
            env: Env {
                clock,
                random: Arc::new(SeededRandom::new(seed)),
                disk: Arc::new(disk.clone()),
                spawn: Arc::new(NoThreads),
            },
            disk,
            up: None,
            life: 0,
            follows,
            led: None,
            forgot: Vec::new(),
            anchored: Position::ZERO,
            had: None,
            lied: false,
            watched: Watched::default(),
        }
    }

    /// Whether a data directory was begun here.
    pub fn has_directory(&self) -> bool {
        let version = Path::new("/data/CANON_VERSION");
        self.env.disk.read(version).is_ok()
    }

    /// Opens the data directory.
    pub fn open(&self, cluster: Option<u128>) -> Arc<DataDir> {
        let opened = place(&self.env).open(cluster);
        opened.expect("the data directory opens")
    }

    /// Starts the node over its directory; or why it does not start.
    pub fn start(&self, replica: bool, config: &Config) -> Result<Arc<Node>, String> {
        let options = NodeOptions {
            env: self.env.clone(),
            replica,
            threads: false,
            segment_bytes: SEGMENT,
            ring_bytes: RING,
            recent_bytes: 2 << 10,
            silence: Duration::from_millis(1200),
            synchronous_replicas: config.needed,
            wal_keep_bytes: 0,
            leases: config.leases.then_some(LEASES),
            replay: ReplayOptions {
                policy: config.policy,
                workers: 3,
                segment_rows: 3,
                slice: 2,
                max_rows: 40,
                max_bytes: 16 << 10,
                last_writes: 6,
                granules: 8,
                ..ReplayOptions::default()
            },
            ..NodeOptions::default()
        };
        let node = Node::open(&path(), options);
        node.map(Arc::new).map_err(|e| e.to_string())
    }

    /// Whether there is, or was, a history in its directory.
    pub fn has_history(&self) -> bool {
        if !self.has_directory() {
            return false;
        }
        let dir = self.open(None);
        let empty = dir.is_empty();
        let empty = empty.unwrap_or_else(|e| panic!("not readable: {e}"));
        !empty || dir.anchor().is_some_and(|a| a.position > Position::ZERO)
    }

    /// The disk forgets the log above this position, though all of it was synced: zeros, or no file at all. Whether there was any.
    pub fn forget_above(&mut self, keep: Position) -> bool {
        let dir = self.open(None);
        let log = dir.log().clone();
        let from = log.reaches_back_to().ok().flatten();
        let reader = LogReader::open(log.clone(), dir.cluster(), from.unwrap_or_default());
        let mut reader = reader.unwrap_or_else(|e| panic!("the log is not readable: {e}"));
        let first = loop {
            match reader.next_group() {
                Ok(Some(g)) if g.header().last <= keep => {}
                Ok(Some(g)) => break *g.header(),
                Ok(None) => return false,
                Err(e) => panic!("the log is not readable: {e}"),
            }
        };
        let disk = &self.env.disk;
        for name in log.list().expect("a list") {
            let path = log.path(name);
            if name.number > first.segment || (name.number == first.segment && first.offset <= 128)
            {
                disk.remove(&path).expect("removed");
            } else if name.number == first.segment {
                let file = disk.open(&path, OpenMode::Write).expect("opened");
                let len = file.len().expect("a length");
                file.zero_fill(first.offset, len).expect("zeroed");
                file.sync_data().expect("synced");
            }
        }
        disk.sync_dir(&path().join("wal")).expect("synced");
        self.lied = true;
        true
    }

    /// A new disk.
    pub fn empty_disk(&mut self) {
        self.disk = MemDisk::new();
        self.env.disk = Arc::new(self.disk.clone());
        (self.anchored, self.had) = (Position::ZERO, None);
        self.watched.forget();
    }

    /// Ends of the groups that are in its log.
    pub fn group_ends(&self) -> Vec<Position> {
        let dir = self.open(None);
        let log = dir.log().clone();
        let from = log.reaches_back_to().ok().flatten().unwrap_or_default();
        let mut ends = Vec::new();
        if let Ok(mut reader) = LogReader::open(log, dir.cluster(), from) {
            while let Ok(Some(g)) = reader.next_group() {
                ends.push(g.header().last);
            }
        }
        ends
    }

    /// What it holds: terms and last position; while it is down, at most.
    pub fn holds(&self) -> Option<(Vec<(u64, Position)>, Position)> {
        match &self.up {
            None => self.had.clone(),
            Some(Running::Primary(p)) => Some((p.terms.clone(), p.flushed())),
            Some(Running::Follower(f)) => Some((f.dir()?.terms(), f.received().or(f.held)?)),
        }
    }

    /// What its log holds around a position; none while it is down or empty.
    pub fn around(&self, at: base::Position) -> Option<wal::Around> {
        let dir = match self.up.as_ref()? {
            Running::Primary(p) => p.node.dir(),
            Running::Follower(f) => f.dir()?,
        };
        let around = dir.around(at);
        Some(around.unwrap_or_else(|e| panic!("the log is not readable: {e}")))
    }

    /// Terms on the disk of a machine that is down, read without opening the directory.
    pub fn open_terms(&self) -> Vec<(u64, base::Position)> {
        self.watched.terms()
    }

    pub fn primary(&self) -> Option<&Primary> {
        match &self.up {
            Some(Running::Primary(p)) => Some(p),
            _ => None,
        }
    }

    pub fn follower(&self) -> Option<&Follower> {
        match &self.up {
            Some(Running::Follower(f)) => Some(f),
            _ => None,
        }
    }
}
