//! The snapshots that a node keeps for transactions of other nodes, by number. What they are for is told in `hold`.
//!
//! Left out on purpose: who asked for one, which the connection remembers.

use base::Position;
use parking_lot::Mutex;
use std::collections::HashMap;
use store::Snapshot;

/// A snapshot that another node keeps; dropped, it is let go there.
pub trait RemoteSnapshot: Send + Sync {
    /// What it is called there; never 0.
    fn number(&self) -> u64;
    /// Where it stands.
    fn position(&self) -> Position;
}

/// The snapshots that are kept for others, by their numbers.
#[derive(Default)]
pub(crate) struct KeptSnapshots(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    last: u64,
    all: HashMap<u64, Snapshot>,
}

impl KeptSnapshots {
    /// Keeps it under a new number.
    pub(crate) fn keep(&self, snapshot: Snapshot) -> u64 {
        let mut kept = self.0.lock();
        kept.last += 1;
        let number = kept.last;
        kept.all.insert(number, snapshot);
        number
    }

    pub(crate) fn let_go(&self, number: u64) {
        let gone = self.0.lock().all.remove(&number);
        drop(gone);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().all.len()
    }

    /// Takes one out, if it stands there and has not gone over its age limit.
    pub(crate) fn take(&self, number: u64, at: Position) -> Option<Snapshot> {
        let mut kept = self.0.lock();
        kept.all.get(&number).filter(|s| s.position() == at)?;
        kept.all.remove(&number).filter(|s| !s.is_expired())
    }
}
