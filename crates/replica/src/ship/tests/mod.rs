//! Sender and receiver: each transition alone, then a pair of them over a bad network.

mod evidence;
mod hostile;
mod pair;
mod receiving;
mod sending;

use super::sender::{Acked, Facts, Peer};
use base::Position;
use env::{Disk, Env, MemDisk, OsClock, OsSpawn, SeededRandom};
use std::path::Path;
use std::sync::Arc;
use wal::{Commit, DataDir, DirOptions, Group, LogEnd, LogReader, LogWriter};

const CLUSTER: u128 = 0xc0ffee;

fn p(n: u32) -> Position {
    Position::new(1, n)
}

/// Groups of two commits: 1 and 2, 3 and 4, …; every third position is a hole after them.
fn groups(n: u32) -> Vec<Arc<Group>> {
    let dir = log(CLUSTER, &vec![5; n as usize], 64 << 20, 0);
    let mut reader = LogReader::open(dir.log().clone(), CLUSTER, Position::ZERO).unwrap();
    let mut all = Vec::new();
    while let Some(group) = reader.next_group().unwrap() {
        all.push(Arc::new(group));
    }
    all
}

/// A log of such groups, one of each of these terms. `salt` is in the rows from the third group on, so another one makes another history.
fn log(cluster: u128, terms: &[u64], segment: u64, salt: u8) -> DataDir {
    let env = Env {
        clock: Arc::new(OsClock::new()),
        random: Arc::new(SeededRandom::new(1)),
        disk: Arc::new(MemDisk::new()) as Arc<dyn Disk>,
        spawn: Arc::new(OsSpawn),
    };
    let options = DirOptions {
        cluster: Some(cluster),
        log: wal::LogOptions {
            segment_size: segment,
            ..wal::LogOptions::default()
        },
    };
    let dir = DataDir::open(&env, Path::new("/p"), options).unwrap();
    let end = LogEnd::empty(Position::ZERO);
    let mut log = LogWriter::resume(dir.log().clone(), &end, 1).unwrap();
    for (g, term) in (0..).zip(terms) {
        log.set_term(*term);
        let salt = if g < 2 { 0 } else { salt };
        let commits: Vec<Commit> = (1..3)
            .map(|i| Commit {
                position: p(g * 3 + i),
                heads: vec![g as u8; 16],
                data: vec![i as u8 + salt; 100],
            })
            .collect();
        log.append_group(&commits, Position::ZERO).unwrap();
    }
    log.sync().unwrap();
    dir
}

/// Where group `g` ends, its hole included.
fn upto(g: u32) -> Position {
    p(g * 3 + 3)
}

fn facts() -> Facts {
    Facts {
        cluster: CLUSTER,
        term: 5,
        terms: vec![(1, Position::ZERO), (5, p(0))],
        last: upto(9),
        reaches_back_to: Position::ZERO,
        lives: Vec::new(),
        deposed: false,
    }
}

fn all_at(at: Position) -> Acked {
    Acked {
        received: at,
        persisted: at,
        applied: at,
        visible: at,
    }
}
