//! Coming back from the disk: the checkpoint's rows, then the log's groups, several threads at once; newest position per key wins.
//!
//! Rows of the log are gathered into batches and shared out by key, so that each key's writes stay in order on one thread; a
//! schema change is a barrier. A delete is a tombstone until the end, because an older write of the key may come later from
//! another place; then the reclaimer takes the tombstones, and secondary indexes are built, a table per thread.

use base::record::{self, RecordKind};
use base::schema::{Schema, decode_changes};
use base::{Position, RelId, SqlState};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use store::{NewVersion, Storage, Store, pin};
use txn::{Catalog, fill_indexes, replay_changes};
use wal::{Group, Manifest, RecoverySink, RowChunk};

use crate::outcomes::Outcomes;
use crate::sequences::{Logged, Sequences};

/// Sections of a checkpoint.
pub const SECTION_SCHEMA: u32 = 1;
pub const SECTION_SEQUENCES: u32 = 2;

/// Bytes of log gathered before the workers are called.
const BATCH: usize = 8 << 20;
/// Fewer records than this are applied by one thread: to start more takes longer.
const FEW: u64 = 64;

/// Receives what was on disk.
pub struct Recovery {
    store: Arc<Store>,
    sequences: Arc<Sequences>,
    workers: usize,
    state: Mutex<State>,
    /// Numbers of commits that are found.
    pub outcomes: Arc<Outcomes>,
}

struct State {
    catalog: Arc<Catalog>,
    batch: Vec<Group>,
    bytes: usize,
    last_schema: Position,
    /// Start of the checkpoint: commits at or below are in it.
    after: Position,
    /// There were groups after it.
    groups: bool,
}

impl Recovery {
    /// Into an empty store.
    pub fn new(store: Arc<Store>, sequences: Arc<Sequences>, workers: usize) -> Recovery {
        let state = State {
            catalog: Arc::default(),
            batch: vec![],
            bytes: 0,
            last_schema: Position::ZERO,
            after: Position::ZERO,
            groups: false,
        };
        Recovery {
            store,
            sequences,
            workers,
            state: Mutex::new(state),
            outcomes: Arc::default(),
        }
    }

    /// What is gathered is applied, and tombstones go. The schema with its tables, whose indexes are empty.
    pub fn rows_alone(&self, last: Position) -> base::Result<Arc<Catalog>> {
        let mut s = self.state.lock();
        // What was committed before the checkpoint is in it without its numbers.
        let missed = if s.groups { s.after } else { last };
        self.outcomes.missed(missed);
        apply_batch(
            &self.store,
            &mut s,
            self.workers,
            (&self.sequences, &self.outcomes),
        )?;
        loop {
            let done = self.store.reclaim(last);
            if done.waiting == 0 && done.records == 0 {
                break;
            }
        }
        Ok(std::mem::take(&mut s.catalog))
    }

    /// The end: what is gathered is applied, tombstones go, indexes are built. The schema with its tables.
    pub fn finish(self, last: Position) -> base::Result<Catalog> {
        let catalog = self.rows_alone(last)?;
        let tables: Vec<_> = catalog.tables.values().cloned().collect();
        let next = AtomicUsize::new(0);
        let failed = Mutex::new(None);
        env::spawn::crew(self.workers, |_| {
            while let Some(t) = tables.get(next.fetch_add(1, Ordering::Relaxed)) {
                let rows = std::cell::Cell::new(0);
                let guard = pin();
                let mut last_key = None;
                t.storage.for_each(&guard, |r| {
                    rows.set(
                        rows.get() + i64::from(r.newest(&guard).is_some_and(|v| v.row().is_some())),
                    );
                    last_key = Some(r.key());
                });
                let before = t.storage.live_rows() as i64;
                t.storage.count(rows.get() - before);
                if t.table.primary().is_none()
                    && let Some(id) = last_key.and_then(|k| <[u8; 8]>::try_from(k).ok())
                {
                    t.storage.raise_row_id(u64::from_be_bytes(id));
                }
                if let Err(e) = fill_indexes(t, &self.store) {
                    failed.lock().get_or_insert(e);
                }
            }
        });
        if let Some(e) = failed.into_inner() {
            return Err(e);
        }
        Ok(Arc::try_unwrap(catalog).unwrap_or_else(|c| Catalog {
            schema: c.schema.clone(),
            tables: c.tables.clone(),
        }))
    }
}

fn damaged(what: &str) -> wal::Error {
    wal::Error::Apply(base::Error::new(SqlState::DATA_CORRUPTED, what))
}

impl RecoverySink for Recovery {
    fn begin(&self, _: &Manifest) -> wal::Result<()> {
        Ok(())
    }

    fn section(&self, tag: u32, bytes: &[u8]) -> wal::Result<()> {
        match tag {
            SECTION_SCHEMA => {
                let changes = decode_changes(bytes)
                    .ok_or_else(|| damaged("the checkpoint's schema is not readable"))?;
                let mut s = self.state.lock();
                let none = Catalog {
                    schema: Arc::new(Schema::default()),
                    ..Catalog::default()
                };
                s.catalog = Arc::new(
                    replay_changes(&self.store, &none, &changes).map_err(wal::Error::Apply)?,
                );
                Ok(())
            }
            SECTION_SEQUENCES => {
                for entry in bytes.chunks_exact(21) {
                    let id = u32::from_le_bytes(entry[..4].try_into().expect("4 bytes"));
                    let state = Logged::decode(&entry[4..])
                        .ok_or_else(|| damaged("a sequence is not readable"))?;
                    self.sequences.restore(id, state);
                }
                Ok(())
            }
            _ => Err(damaged(
                "the checkpoint has a section that this version does not know",
            )),
        }
    }

    fn rows(&self, chunk: &RowChunk) -> wal::Result<()> {
        let Some(storage) = self.store.storage(chunk.table()) else {
            return Err(damaged(
                "the checkpoint has rows of a table that its schema does not have",
            ));
        };
        for e in chunk.iter() {
            put(&self.store, &storage, e.key, e.row, e.position);
        }
        Ok(())
    }

    fn group(&self, group: Group, after: Position) -> wal::Result<()> {
        let mut s = self.state.lock();
        s.after = after;
        s.groups = true;
        s.bytes += group.as_bytes().len();
        s.batch.push(group);
        if s.bytes >= BATCH {
            let found = (&*self.sequences, &*self.outcomes);
            apply_batch(&self.store, &mut s, self.workers, found).map_err(wal::Error::Apply)?;
        }
        Ok(())
    }
}

/// A piece of a batch between two schema changes, or one of them.
fn apply_batch(
    store: &Store,
    s: &mut State,
    workers: usize,
    (sequences, outcomes): (&Sequences, &Outcomes),
) -> base::Result<()> {
    let groups = std::mem::take(&mut s.batch);
    s.bytes = 0;
    let mut pending: Vec<record::Commit<'_>> = Vec::new();
    for g in &groups {
        let (mut heads, mut data) = (g.heads(), g.data());
        for _ in 0..g.header().count {
            let c = record::Commit::take(&mut heads, &mut data)?;
            if c.position <= s.after {
                continue;
            }
            if c.stamp != 0 {
                outcomes.committed(c.stamp, c.position);
            }
            let first = c.iter().next().transpose()?;
            match first.map(|r| (r.kind, r)) {
                Some((RecordKind::Schema, r)) => {
                    apply_rows(store, &pending, workers)?;
                    pending.clear();
                    if c.position > s.last_schema {
                        let changes = decode_changes(r.row).ok_or_else(|| {
                            base::Error::new(
                                SqlState::DATA_CORRUPTED,
                                "a schema change in the log is not readable",
                            )
                        })?;
                        s.catalog = Arc::new(replay_changes(store, &s.catalog, &changes)?);
                        s.last_schema = c.position;
                    }
                    pending.push(c);
                }
                Some((RecordKind::Sequence, r)) => {
                    let state = Logged::decode(r.row).ok_or_else(|| {
                        base::Error::new(
                            SqlState::DATA_CORRUPTED,
                            "a sequence's record is not readable",
                        )
                    })?;
                    sequences.restore(r.storage, state);
                }
                _ => pending.push(c),
            }
        }
    }
    apply_rows(store, &pending, workers)
}

/// How many threads apply these commits. Their records count: one commit may be a whole table that was loaded.
fn crew_for(commits: &[record::Commit<'_>], workers: usize) -> usize {
    let records: u64 = commits.iter().map(|c| u64::from(c.records)).sum();
    if records < FEW { 1 } else { workers }
}

/// Rows of these commits, shared out by key hash.
fn apply_rows(store: &Store, commits: &[record::Commit<'_>], workers: usize) -> base::Result<()> {
    if commits.is_empty() {
        return Ok(());
    }
    let workers = crew_for(commits, workers);
    let failed = Mutex::new(None);
    env::spawn::crew(workers, |me| {
        let mut known: Option<(RelId, Option<Arc<Storage>>)> = None;
        for c in commits {
            for r in c.iter() {
                let r = match r {
                    Ok(r) => r,
                    Err(e) => {
                        failed.lock().get_or_insert(e);
                        return;
                    }
                };
                if !matches!(r.kind, RecordKind::Put | RecordKind::Delete)
                    || r.key_hash as usize % workers != me
                {
                    continue;
                }
                if known.as_ref().is_none_or(|k| k.0 != r.storage) {
                    known = Some((r.storage, store.storage(r.storage)));
                }
                // A table that was dropped since has no storage any more.
                let Some((_, Some(storage))) = &known else {
                    continue;
                };
                put(
                    store,
                    storage,
                    r.key,
                    (r.kind == RecordKind::Put).then_some(r.row),
                    c.position,
                );
            }
        }
    });
    failed.into_inner().map_or(Ok(()), Err)
}

/// Installs a version if it is newer than what is there.
fn put(store: &Store, storage: &Storage, key: &[u8], row: Option<&[u8]>, position: Position) {
    let guard = pin();
    let record = storage.find_or_create(key, &store.memory, &guard);
    let mut spins = 0u32;
    while record.try_lock().is_err() {
        spins += 1;
        assert!(
            spins < 1 << 30,
            "recovery shares no record between threads for long"
        );
        std::hint::spin_loop();
    }
    if record
        .newest(&guard)
        .is_none_or(|v| v.position() < position)
    {
        let replaces = record.newest(&guard).is_some();
        let version = NewVersion::new(row);
        store.memory.add(version.rounded());
        record.push(version, position, 0);
        if replaces || row.is_none() {
            storage.mark_stale(record, position);
        }
        store.trim_long(storage, record, 1, || position, &guard);
    }
    record.unlock();
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::record::{Commit, CommitBuilder};

    fn commit(position: u32, records: u32) -> (Vec<u8>, Vec<u8>) {
        let mut b = CommitBuilder::new();
        for i in 0..records {
            b.push(RecordKind::Put, 1, &i.to_be_bytes(), b"row");
        }
        b.finish(Position::new(1, position), 0)
    }

    #[test]
    fn one_big_commit_is_shared_out_as_many_small_ones_are() {
        let crew = |commits: &[(Vec<u8>, Vec<u8>)]| {
            let read: Vec<Commit<'_>> = commits
                .iter()
                .map(|(h, d)| Commit::take(&mut &h[..], &mut &d[..]).unwrap())
                .collect();
            crew_for(&read, 4)
        };
        assert_eq!(crew(&[commit(1, 1000)]), 4);
        assert_eq!(crew(&[commit(1, FEW as u32 - 1)]), 1);
        let small: Vec<_> = (1..=FEW as u32).map(|i| commit(i, 1)).collect();
        assert_eq!(crew(&small), 4);
        assert_eq!(crew(&small[1..]), 1);
    }
}
