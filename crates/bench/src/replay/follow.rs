//! A replica of a recorded log: replay, and beside it the replica's own log.

use base::schema::decode_changes;
use base::{Error, Oid, Position, Result, SqlState};
use env::Env;
use parking_lot::Mutex;
use replica::{Build, Replay, ReplayOptions, ReplicaMarks, SchemaSink};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use store::Store;
use txn::Catalog;
use wal::{DataDir, DirOptions, Group, LogEnd, LogWriter};

use super::loads::{Rate, Recorded, failed};
use super::options::Options;
use crate::figures::{cpu, thread_cpu};

/// Bytes of log between two syncs: what has arrived is synced together.
const SYNC_BYTES: usize = 4 << 20;

/// Changes the schema between all writes before it and all after.
struct Schemas {
    store: Arc<Store>,
    catalog: Mutex<Arc<Catalog>>,
}

impl SchemaSink for Schemas {
    fn schema(&self, _: Position, changes: &[u8]) -> Result<Vec<Build>> {
        let damaged = || Error::new(SqlState::DATA_CORRUPTED, "a schema change is not readable");
        let changes = decode_changes(changes).ok_or_else(damaged)?;
        let mut catalog = self.catalog.lock();
        *catalog = Arc::new(txn::replay_changes(&self.store, &catalog, &changes)?);
        Ok(vec![])
    }

    fn needs_barrier(&self, _: &[u8]) -> Result<bool> {
        Ok(true)
    }

    fn sequence(&self, _: Position, _: Oid, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn visible(&self, _: Position) {}
}

/// Replays the whole log; the rate is that of its measured part.
pub fn replay(recorded: &Recorded, options: ReplayOptions, o: &Options) -> Result<Rate> {
    let env = Env::os();
    let directory = o
        .directory
        .join(format!("canon-replay-replica-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    let dir = DirOptions {
        cluster: Some(recorded.stream),
        ..DirOptions::default()
    };
    let dir = DataDir::open(&env, &directory, dir).map_err(failed)?;
    let mut log =
        LogWriter::resume(dir.log().clone(), &LogEnd::empty(Position::ZERO), 1).map_err(failed)?;
    let store = Arc::new(Store::default());
    let marks = Arc::new(ReplicaMarks::new(Position::ZERO));
    let sink = Arc::new(Schemas {
        store: store.clone(),
        catalog: Mutex::default(),
    });
    let filled = recorded
        .before
        .last()
        .map_or(Position::ZERO, |g| g.header().last);
    // The tables are filled without what the measurement adds.
    let fill = ReplayOptions {
        row_cost: None,
        workers: o.threads,
        ..ReplayOptions::default()
    };
    let start = |from, options| {
        Replay::start(
            &env,
            store.clone(),
            marks.clone(),
            sink.clone(),
            from,
            options,
        )
    };
    let first = start(Position::ZERO, fill)?;
    feed(&first, &mut log, &recorded.before, filled)?;
    first.finish()?;
    while store.reclaim(filled).versions > 0 {}
    let policy = options.policy;
    let replay = start(filled, options)?;
    let (began, cpu, own) = (Instant::now(), cpu(), thread_cpu());
    feed(&replay, &mut log, &recorded.measured, recorded.last)?;
    while marks.applied.get() < recorded.last {
        if let Some(e) = replay.failure() {
            return Err(e);
        }
        std::thread::sleep(std::time::Duration::from_micros(100));
    }
    let (wall, cpu) = (began.elapsed(), crate::figures::cpu() - cpu);
    let own = thread_cpu() - own;
    let stats = replay.stats().clone();
    replay.finish()?;
    let (rows, deferred) = (
        stats.rows.load(Ordering::SeqCst),
        stats.deferred.load(Ordering::SeqCst),
    );
    drop(log);
    drop(dir);
    let _ = std::fs::remove_dir_all(&directory);
    if rows != recorded.primary.rows {
        let what = format!("{policy}: {rows} rows of {}", recorded.primary.rows);
        return Err(Error::internal(what));
    }
    Ok(Rate {
        transactions: recorded.primary.transactions,
        rows,
        wall,
        cpu,
        workers: cpu.saturating_sub(own),
        deferred,
    })
}

/// What the replica's consumer does: append, hand to replay, sync what has come together.
fn feed(replay: &Replay, log: &mut LogWriter, groups: &[Group], last: Position) -> Result<()> {
    let mut unsynced = 0;
    for group in groups {
        log.append_shipped(group).map_err(failed)?;
        unsynced += group.as_bytes().len();
        replay.feed(group.clone(), group.header().last)?;
        if unsynced >= SYNC_BYTES {
            log.sync().map_err(failed)?;
            unsynced = 0;
        }
    }
    replay.tick(last, last);
    log.sync().map_err(failed)
}

/// Rows per CPU second of the scheduler, with nobody who takes what it cuts.
pub fn scheduler_alone(recorded: &Recorded, options: &ReplayOptions) -> Result<f64> {
    let groups = recorded.measured.clone();
    let from = recorded
        .before
        .last()
        .map_or(Position::ZERO, |g| g.header().last);
    let began = thread_cpu();
    let rows = replica::replay::schedule_only(groups, from, options)?;
    Ok(rows as f64 / (thread_cpu() - began).as_secs_f64())
}
