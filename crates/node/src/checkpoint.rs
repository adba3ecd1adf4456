//! Checkpoints: a snapshot of all rows in a file, so that a start needs only the log after it.
//!
//! A checkpoint is read like any long read-only transaction: at a registered snapshot at *decided*. So it stops nobody, holds no
//! version that a crash could take back, and start and end are one position. (What a start found is on this disk, also while the policy
//! asks for replicas that have it; so it may be written at once.) Rows are written with the positions of
//! their versions; a key that the snapshot does not show needs no tombstone, since the log before the start is never read again.

use base::schema::encode_changes;
use base::{Error, Position, Result, SqlState};
use store::{Store, pin};
use txn::TxnManager;
use wal::DataDir;

use crate::recovery::{SECTION_SCHEMA, SECTION_SEQUENCES};
use crate::sequences::Sequences;

/// Records read under one guard.
const BATCH: usize = 512;

/// Writes a checkpoint and removes the log that it makes superfluous; log above `keep` stays for others. `durable` waits until this node's
/// log has everything up to a position; `check_cancelled` is asked before each batch of rows. An error of either ends it, and nothing is left of it.
/// Its position and rows.
pub fn write(
    dir: &DataDir,
    manager: &TxnManager,
    sequences: &Sequences,
    keep: Position,
    durable: impl Fn(Position) -> Result<()>,
    check_cancelled: impl Fn() -> Result<()>,
) -> Result<(Position, u64)> {
    let store: &Store = &manager.store;
    let snapshot = store
        .snapshots
        .take(|| manager.marks.decided.get().max(manager.marks.floor));
    let at = snapshot.position();
    let catalog = manager.catalog_at(at);
    let failed = |e: wal::Error| {
        let code = if e.is_retryable() {
            SqlState::DISK_FULL
        } else {
            SqlState::IO_ERROR
        };
        Error::new(code, format!("could not write a checkpoint: {e}"))
    };
    let mut out = dir.begin_checkpoint(at).map_err(failed)?;
    out.section(SECTION_SCHEMA, &encode_changes(&catalog.schema.dump()))
        .map_err(failed)?;
    sequences.prune(&manager.catalog().schema);
    let mut states = Vec::new();
    for (id, logged) in sequences.dump() {
        states.extend_from_slice(&id.to_le_bytes());
        states.extend_from_slice(&logged.encode());
    }
    out.section(SECTION_SEQUENCES, &states).map_err(failed)?;
    let mut tables: Vec<_> = catalog.tables.values().collect();
    tables.sort_by_key(|t| t.storage.id);
    let mut rows = 0;
    for t in tables {
        let mut from: std::ops::Bound<Vec<u8>> = std::ops::Bound::Unbounded;
        loop {
            check_cancelled()?;
            let guard = pin();
            let mut batch = Vec::with_capacity(BATCH);
            let lo = from.as_ref().map(|k| &k[..]);
            let forward = store::tree::Direction::Forward;
            let more = t.storage.primary.scan(
                lo,
                std::ops::Bound::Unbounded,
                forward,
                BATCH,
                &mut batch,
                &guard,
            );
            for r in &batch {
                if let Some(v) = r.at(at, &guard)
                    && let Some(row) = v.row()
                {
                    out.put(t.storage.id, v.position(), r.key(), Some(row))
                        .map_err(failed)?;
                    rows += 1;
                }
            }
            if snapshot.is_expired() {
                return Err(Error::new(
                    SqlState::SNAPSHOT_TOO_OLD,
                    "the checkpoint took longer than snapshot_max_age",
                ));
            }
            match (more, batch.last()) {
                (true, Some(last)) => from = std::ops::Bound::Excluded(last.key().to_vec()),
                _ => break,
            }
        }
    }
    durable(at)?;
    out.finish(at).map_err(failed)?;
    dir.prune(at.min(keep)).map_err(failed)?;
    Ok((at, rows))
}
