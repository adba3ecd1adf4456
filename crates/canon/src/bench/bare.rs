//! What a transaction cannot be faster than: the index alone and the log alone.

use base::record::{CommitBuilder, RecordKind};
use base::{Error, Position, Result, SqlState};
use env::Env;
use std::io::Write;
use std::time::{Duration, Instant};
use store::{Memory, NewVersion, Storage, pin};
use wal::{Commit, DataDir, DirOptions, LogEnd, LogWriter};
use workload::rng::Rng;
use workload::ycsb;

use super::BenchOptions;
use super::figures::{line, thread_cpu};
use crate::database::Database;

/// Bytes of a YCSB row as it is stored: header, nulls, key, ends, ten fields of ten bytes.
const ROW: usize = 4 + 2 + 8 + 20 + 100;

fn key(n: u64) -> [u8; 8] {
    (n ^ (1 << 63)).to_be_bytes()
}

/// Ten rows found and read per transaction, then also two of them given a new version, by the calling thread.
pub fn index(db: &Database, options: &BenchOptions, out: &mut dyn Write) -> Result<()> {
    let storage = {
        let catalog = db.manager().catalog();
        let table = catalog
            .tables
            .values()
            .find(|t| t.name() == ycsb::TABLES[0].name);
        table.expect("the YCSB table").storage.clone()
    };
    let mut rng = Rng::new(300);
    let duration = options.duration.min(Duration::from_secs(3));
    let (mut n, mut bytes) = (0u64, 0);
    let (began, cpu_before) = (Instant::now(), thread_cpu());
    while began.elapsed() < duration {
        for _ in 0..100 {
            for _ in 0..10 {
                let guard = pin();
                let record = storage.primary.get(&key(rng.below(options.rows)), &guard);
                let row = record.and_then(|r| r.newest(&guard)?.row());
                bytes += row.map_or(0, <[u8]>::len);
            }
            n += 1;
        }
    }
    report(out, "bare index, 10 reads", n, began, cpu_before)?;
    n = 0;
    let (began, cpu_before) = (Instant::now(), thread_cpu());
    while began.elapsed() < duration {
        for _ in 0..100 {
            let guard = pin();
            let keys: [[u8; 8]; 10] = std::array::from_fn(|_| key(rng.below(options.rows)));
            let named: [&[u8]; 10] = std::array::from_fn(|i| &keys[i][..]);
            storage.prefetch(&named, &guard);
            for key in keys {
                let record = storage.primary.get(&key, &guard);
                let row = record.and_then(|r| r.newest(&guard)?.row());
                bytes += row.map_or(0, <[u8]>::len);
            }
            n += 1;
        }
    }
    std::hint::black_box(bytes);
    report(out, "bare index, 10 reads, ahead", n, began, cpu_before)?;

    let (own, memory) = (Storage::new(1), Memory::default());
    let mut position = Position::new(1, 0);
    let row = vec![b'x'; ROW];
    let write = |k: u64, position: Position| {
        let guard = pin();
        let record = own.find_or_create(&key(k), &memory, &guard);
        record.try_lock().expect("one thread");
        record.set_ordering();
        record.set_holder(position);
        record.push(NewVersion::new(Some(&row)), position, 0);
        record.unlock();
    };
    for k in 0..options.rows {
        position = position.next();
        write(k, position);
    }
    let (mut n, mut bytes) = (0u64, 0);
    let (began, cpu_before) = (Instant::now(), thread_cpu());
    // Old versions are not reclaimed here: a short run.
    while began.elapsed() < duration && n < 1_000_000 {
        for _ in 0..100 {
            for i in 0..10 {
                let k = rng.below(options.rows);
                {
                    let guard = pin();
                    let record = own.primary.get(&key(k), &guard);
                    bytes += record
                        .and_then(|r| r.newest(&guard)?.row())
                        .map_or(0, <[u8]>::len);
                }
                if i >= 8 {
                    position = position.next();
                    write(k, position);
                }
            }
            n += 1;
        }
    }
    std::hint::black_box(bytes);
    report(out, "bare index, 10 reads 2 writes", n, began, cpu_before)
}

/// Commits of two rows each, built, appended in groups and synced.
pub fn log(options: &BenchOptions, out: &mut dyn Write) -> Result<()> {
    let failed = |e: wal::Error| Error::new(SqlState::IO_ERROR, e.to_string());
    let env = Env::os();
    let dir = options
        .directory
        .join(format!("canon-log-{:016x}", env.random.next_u64()));
    let row = vec![b'x'; ROW];
    let duration = options.duration.min(Duration::from_secs(3));
    {
        let data = DataDir::open(&env, &dir, DirOptions::default()).map_err(failed)?;
        let end = LogEnd::empty(Position::ZERO);
        let mut log = LogWriter::resume(data.log().clone(), &end, 1).map_err(failed)?;
        for size in [1usize, 64, 1024] {
            let (mut n, mut position) = (0u64, log.last().max(Position::new(1, 0)));
            let (began, cpu_before) = (Instant::now(), thread_cpu());
            while began.elapsed() < duration {
                let group: Vec<Commit> = (0..size)
                    .map(|i| {
                        position = position.next();
                        let mut b = CommitBuilder::new();
                        b.push(RecordKind::Put, 1, &key(i as u64), &row);
                        b.push(RecordKind::Put, 1, &key(i as u64 + 1), &row);
                        let (heads, data) = b.finish(position, 0);
                        Commit {
                            position,
                            heads,
                            data,
                        }
                    })
                    .collect();
                log.append_group(&group, Position::ZERO).map_err(failed)?;
                log.sync().map_err(failed)?;
                n += size as u64;
            }
            let name = format!("bare log, groups of {size}");
            report(out, &name, n, began, cpu_before)?;
        }
    }
    let _ = std::fs::remove_dir_all(&dir);
    Ok(())
}

fn report(
    out: &mut dyn Write,
    name: &str,
    n: u64,
    began: Instant,
    cpu_before: Duration,
) -> Result<()> {
    let (wall, cpu) = (began.elapsed(), thread_cpu() - cpu_before);
    line(
        out,
        &format!(
            "{name:<46}{:>11.0}{:>12.0}{:>12.2}",
            n as f64 / wall.as_secs_f64(),
            n as f64 / cpu.as_secs_f64(),
            cpu.as_secs_f64() * 1e6 / n as f64
        ),
    )
}
