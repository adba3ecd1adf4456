//! A machine: a disk, what runs on it, and what a power cut or a killed process leaves.

use base::{Position, Watermarks};
use env::{Env, ManualClock, MemDisk, OsSpawn, SeededRandom};
use node::recovery::Recovery;
use node::sequences::Sequences;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::Store;
use txn::{TableHandle, TxnManager};
use wal::{DataDir, DirOptions, LogOptions, Progress, Recovered};

use crate::follower::Follower;
use crate::invariants::Watched;
use crate::primary::Primary;
use crate::schema::TABLE;

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
    pub watched: Watched,
}

/// The rows of a node and what transactions need.
pub struct Engine {
    pub manager: Arc<TxnManager>,
    pub sequences: Arc<Sequences>,
    pub table: Arc<TableHandle>,
}

impl Engine {
    pub fn store(&self) -> &Arc<Store> {
        &self.manager.store
    }

    pub fn marks(&self) -> &Arc<Watermarks> {
        &self.manager.marks
    }
}

pub fn path() -> PathBuf {
    PathBuf::from("/data")
}

impl Machine {
    pub fn new(seed: u64, clock: Arc<ManualClock>, follows: Option<usize>) -> Machine {
        let disk = MemDisk::new();
        Machine {
            env: Env {
                clock,
                random: Arc::new(SeededRandom::new(seed)),
                disk: Arc::new(disk.clone()),
                spawn: Arc::new(OsSpawn),
            },
            disk,
            up: None,
            life: 0,
            follows,
            led: None,
            forgot: Vec::new(),
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
        let options = DirOptions {
            log: LogOptions {
                segment_size: 16 << 10,
                spares: 1,
            },
            cluster,
        };
        let opened = DataDir::open(&self.env, &path(), options);
        Arc::new(opened.expect("the data directory opens"))
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

/// Reads everything back. Of the watermarks only *installed* and *flushed* are known; the rest depends on others.
pub fn recover(dir: &DataDir) -> (Engine, Recovered) {
    let (store, sequences) = (Arc::<Store>::default(), Arc::<Sequences>::default());
    let recovery = Recovery::new(store.clone(), sequences.clone(), 1);
    let recovered = wal::recover(dir, &recovery, 1, &Progress::default());
    let recovered = recovered.unwrap_or_else(|e| panic!("recovery failed: {e}"));
    let catalog = recovery.finish(recovered.last);
    let mut catalog = catalog.unwrap_or_else(|e| panic!("recovery failed: {e}"));
    if catalog.schema.version == 0 {
        catalog = txn::replay_changes(&store, &catalog, &crate::schema::changes())
            .unwrap_or_else(|e| panic!("the schema does not apply: {e}"));
    }
    let table = catalog.tables[&TABLE].clone();
    let marks = Arc::new(Watermarks::default());
    marks.installed.raise(recovered.last);
    marks.flushed.raise(recovered.last);
    let engine = Engine {
        manager: TxnManager::new(store, marks, catalog),
        sequences,
        table,
    };
    (engine, recovered)
}
