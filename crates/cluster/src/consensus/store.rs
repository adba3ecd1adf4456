//! openraft's two storage traits over [`LogFile`]: the log with its vote, and the catalogue as the state machine.
//!
//! The catalogue lives in memory. A start takes it from the snapshot and applies the entries behind it anew. Writes are a few a minute and
//! block their task for one sync.
//!
//! Left out on purpose: snapshots in pieces of their own files. A catalogue is some kilobytes.

use openraft::storage::{LogFlushed, LogState, RaftLogStorage, RaftStateMachine, Snapshot};
use openraft::{
    EmptyNode, EntryPayload, LogId, OptionalSend, RaftLogReader, RaftSnapshotBuilder, SnapshotMeta,
    StorageError, StorageIOError, StoredMembership, Vote,
};
use parking_lot::Mutex;
use std::fmt::Debug;
use std::io::{self, Cursor};
use std::ops::RangeBounds;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::watch;

use super::file::{Kept, LogFile};
use super::types::{Entry, Types};
use crate::catalogue::{Catalogue, NodeId, Refused};

type Result<T> = std::result::Result<T, StorageError<NodeId>>;

/// The log. Clones share it.
#[derive(Clone)]
pub struct Store {
    file: Arc<Mutex<LogFile>>,
}

impl Store {
    /// The file, for a look at it.
    pub fn file(&self) -> Arc<Mutex<LogFile>> {
        self.file.clone()
    }
}

/// The catalogue and how far it has come.
pub struct Machine {
    store: Store,
    applied: Option<LogId<NodeId>>,
    membership: StoredMembership<NodeId, EmptyNode>,
    catalogue: watch::Sender<Catalogue>,
    /// The index of `applied`, changed with the catalogue under its lock.
    index: Arc<AtomicU64>,
}

/// The catalogue as far as it is applied, for those who read it.
#[derive(Clone)]
pub struct Applied {
    pub catalogue: watch::Receiver<Catalogue>,
    index: Arc<AtomicU64>,
}

impl Applied {
    /// The catalogue, and the index of the last entry in it.
    pub fn at_index(&self) -> (u64, Catalogue) {
        let catalogue = self.catalogue.borrow();
        (self.index.load(Ordering::SeqCst), catalogue.clone())
    }
}

/// Both halves over one file.
pub fn open(file: LogFile) -> (Store, Machine, Applied) {
    let kept = file.content().snapshot.clone();
    let (applied, membership, catalogue) = match kept {
        Some(kept) => (
            kept.meta.last_log_id,
            kept.meta.last_membership,
            kept.catalogue,
        ),
        None => Default::default(),
    };
    let store = Store {
        file: Arc::new(Mutex::new(file)),
    };
    let (sender, receiver) = watch::channel(catalogue);
    let index = Arc::new(AtomicU64::new(applied.map_or(0, |l| l.index)));
    let machine = Machine {
        store: store.clone(),
        applied,
        membership,
        catalogue: sender,
        index: index.clone(),
    };
    let applied = Applied {
        catalogue: receiver,
        index,
    };
    (store, machine, applied)
}

fn writing(e: io::Error) -> StorageError<NodeId> {
    StorageIOError::write(&e).into()
}

fn reading(e: io::Error) -> StorageError<NodeId> {
    StorageIOError::read(&e).into()
}

impl RaftLogReader<Types> for Store {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<Entry>> {
        let file = self.file.lock();
        let entries = file.content().entries.range(range);
        Ok(entries.map(|(_, e)| e.clone()).collect())
    }
}

impl RaftLogStorage<Types> for Store {
    type LogReader = Store;

    async fn get_log_state(&mut self) -> Result<LogState<Types>> {
        let file = self.file.lock();
        let content = file.content();
        let last = content.entries.values().next_back().map(|e| e.log_id);
        Ok(LogState {
            last_purged_log_id: content.purged,
            last_log_id: last.or(content.purged),
        })
    }

    async fn get_log_reader(&mut self) -> Store {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote<NodeId>) -> Result<()> {
        self.file.lock().vote(*vote).map_err(writing)
    }

    async fn read_vote(&mut self) -> Result<Option<Vote<NodeId>>> {
        Ok(self.file.lock().content().vote)
    }

    async fn save_committed(&mut self, committed: Option<LogId<NodeId>>) -> Result<()> {
        self.file.lock().committed(committed).map_err(writing)
    }

    async fn read_committed(&mut self) -> Result<Option<LogId<NodeId>>> {
        Ok(self.file.lock().content().committed)
    }

    async fn append<I>(&mut self, entries: I, callback: LogFlushed<Types>) -> Result<()>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let done = self.file.lock().append(entries.into_iter().collect());
        let failed = done.as_ref().err().map(ToString::to_string);
        callback.log_io_completed(done);
        match failed {
            None => Ok(()),
            Some(e) => Err(writing(io::Error::other(e))),
        }
    }

    async fn truncate(&mut self, log_id: LogId<NodeId>) -> Result<()> {
        let mut file = self.file.lock();
        file.truncate(log_id.index).map_err(writing)
    }

    async fn purge(&mut self, log_id: LogId<NodeId>) -> Result<()> {
        self.file.lock().purge(log_id).map_err(writing)
    }
}

impl Machine {
    fn kept(&self) -> Kept {
        let last = self.applied.map(|l| format!("{}-{}", l.leader_id, l.index));
        Kept {
            meta: SnapshotMeta {
                last_log_id: self.applied,
                last_membership: self.membership.clone(),
                snapshot_id: last.unwrap_or_default(),
            },
            catalogue: self.catalogue.borrow().clone(),
        }
    }
}

fn bytes_of(kept: &Kept) -> io::Result<Snapshot<Types>> {
    let bytes = serde_json::to_vec(&kept.catalogue).map_err(io::Error::other)?;
    Ok(Snapshot {
        meta: kept.meta.clone(),
        snapshot: Box::new(Cursor::new(bytes)),
    })
}

/// Writes down the catalogue as it was when the builder was made.
pub struct Builder {
    store: Store,
    kept: Kept,
}

impl RaftSnapshotBuilder<Types> for Builder {
    async fn build_snapshot(&mut self) -> Result<Snapshot<Types>> {
        let mut file = self.store.file.lock();
        file.snapshot(self.kept.clone()).map_err(writing)?;
        bytes_of(&self.kept).map_err(reading)
    }
}

impl RaftStateMachine<Types> for Machine {
    type SnapshotBuilder = Builder;

    async fn applied_state(
        &mut self,
    ) -> Result<(Option<LogId<NodeId>>, StoredMembership<NodeId, EmptyNode>)> {
        Ok((self.applied, self.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<std::result::Result<(), Refused>>>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut answers = vec![];
        for entry in entries {
            self.applied = Some(entry.log_id);
            let mut answer = Ok(());
            self.catalogue.send_if_modified(|catalogue| {
                self.index.store(entry.log_id.index, Ordering::SeqCst);
                if let EntryPayload::Normal(command) = &entry.payload {
                    answer = catalogue.apply(command);
                }
                matches!(entry.payload, EntryPayload::Normal(_))
            });
            if let EntryPayload::Membership(m) = entry.payload {
                self.membership = StoredMembership::new(Some(entry.log_id), m);
            }
            answers.push(answer);
        }
        Ok(answers)
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        Builder {
            store: self.store.clone(),
            kept: self.kept(),
        }
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<Cursor<Vec<u8>>>> {
        Ok(Box::default())
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta<NodeId, EmptyNode>,
        snapshot: Box<Cursor<Vec<u8>>>,
    ) -> Result<()> {
        let catalogue: Catalogue = serde_json::from_slice(snapshot.get_ref())
            .map_err(|e| StorageIOError::read_snapshot(Some(meta.signature()), &e))?;
        let kept = Kept {
            meta: meta.clone(),
            catalogue: catalogue.clone(),
        };
        self.store.file.lock().snapshot(kept).map_err(writing)?;
        self.applied = meta.last_log_id;
        self.membership = meta.last_membership.clone();
        self.catalogue.send_modify(|now| {
            self.index
                .store(meta.last_log_id.map_or(0, |l| l.index), Ordering::SeqCst);
            *now = catalogue;
        });
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<Types>>> {
        let file = self.store.file.lock();
        let snapshot = file.content().snapshot.as_ref().map(bytes_of);
        snapshot.transpose().map_err(reading)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::MemDisk;
    use openraft::testing::{StoreBuilder, Suite};
    use std::path::Path;

    struct OnMemory;

    impl StoreBuilder<Types, Store, Machine> for OnMemory {
        async fn build(&self) -> Result<((), Store, Machine)> {
            let file = LogFile::open(Arc::new(MemDisk::new()), Path::new("d")).map_err(writing)?;
            let (store, machine, _) = open(file);
            Ok(((), store, machine))
        }
    }

    #[test]
    fn openrafts_own_suite_passes() {
        Suite::test_all(OnMemory).expect("the suite");
    }
}
