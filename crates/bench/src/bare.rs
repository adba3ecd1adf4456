//! What a transaction cannot be faster than: the index alone, the workloads over the index and the rows alone ([`bare_tables`]), the log
//! alone, and both together.
//!
//! [`bare_tables`]: super::bare_tables

use base::record::{CommitBuilder, RecordKind};
use base::{Error, Position, Result, SqlState};
use env::Env;
use std::time::{Duration, Instant};
use store::pin;
use wal::{Commit, DataDir, DirOptions, LogEnd, LogWriter};
use workload::rng::Rng;
use workload::tpcc::{self, Tpcc};
use workload::ycsb::{self, Ycsb};

use super::bare_tables::{BareKv, BareTables, Buffers};
use super::figures::{Lines, thread_cpu};
use super::options::BenchOptions;
use embedded::Database;

/// Bytes of a YCSB row as it is stored: header, nulls, key, ends, ten fields of ten bytes.
const ROW: usize = 4 + 2 + 8 + 20 + 100;

/// Commits of a group, where the log is not alone.
const GROUP: usize = 64;

fn key(n: u64) -> [u8; 8] {
    (n ^ (1 << 63)).to_be_bytes()
}

fn duration(options: &BenchOptions) -> Duration {
    options.duration.min(Duration::from_secs(3))
}

/// Ten rows found and read per transaction, by the calling thread: one after the other, and all at once.
pub fn index(db: &Database, options: &BenchOptions, out: &mut Lines<'_>) -> Result<()> {
    let storage = {
        let catalog = db.manager().catalog();
        let table = catalog
            .tables
            .values()
            .find(|t| t.name() == ycsb::TABLES[0].name);
        table.expect("the YCSB table").storage.clone()
    };
    let mut rng = Rng::new(300);
    for ahead in [false, true] {
        let (mut n, mut bytes) = (0u64, 0);
        let (began, cpu_before) = (Instant::now(), thread_cpu());
        while began.elapsed() < duration(options) {
            for _ in 0..100 {
                let guard = pin();
                let keys: [[u8; 8]; 10] = std::array::from_fn(|_| key(rng.below(options.rows)));
                if ahead {
                    let named: [&[u8]; 10] = std::array::from_fn(|i| &keys[i][..]);
                    storage.prefetch(&named, &guard);
                }
                for key in keys {
                    let record = storage.primary.get(&key, &guard);
                    let row = record.and_then(|r| r.newest(&guard)?.row());
                    bytes += row.map_or(0, <[u8]>::len);
                }
                n += 1;
            }
        }
        std::hint::black_box(bytes);
        let name = format!("bare index, 10 reads{}", shown(ahead));
        out.bare(&name, n, began.elapsed(), thread_cpu() - cpu_before)?;
    }
    Ok(())
}

fn shown(ahead: bool) -> &'static str {
    if ahead { ", ahead" } else { "" }
}

/// YCSB, uniform, over the index and the rows alone, and with the log.
pub fn ycsb(options: &BenchOptions, out: &mut Lines<'_>) -> Result<()> {
    let ycsb = Ycsb::new(options.rows, 8, 2, 0.0);
    let (mut bare, mut rng) = (Bare::new(ycsb::TABLES), Rng::new(1));
    for from in (0..options.rows).step_by(1000) {
        let to = (from + 1000).min(options.rows);
        bare.load(|kv| ycsb.load(kv, &mut rng, from, to))?;
    }
    let mut params = ycsb::Params::default();
    let mut one = |kv: &mut BareKv<'_>| {
        ycsb.draw(&mut rng, &mut params);
        let (_, bytes) = ycsb.run(kv, &params)?;
        std::hint::black_box(bytes);
        Ok(())
    };
    bare.run("bare ycsb uniform", options, out, &mut one)
}

/// TPC-C, NewOrder and Payment at the first of the warehouses, in the same way.
pub fn tpcc(tpcc: &Tpcc, options: &BenchOptions, out: &mut Lines<'_>) -> Result<()> {
    let mut bare = Bare::new(tpcc::TABLES);
    for (i, step) in tpcc.load_steps().into_iter().enumerate() {
        bare.load(|kv| tpcc.load(kv, &mut Rng::new(i as u64), 0, step))?;
    }
    let (mut rng, mut params, mut now) = (Rng::new(200), tpcc::Params::default(), 0);
    let mut one = |kv: &mut BareKv<'_>| {
        now += 1;
        match rng.percent(50) {
            true => {
                tpcc.draw_payment(&mut rng, 1, now, &mut params);
                tpcc.payment(kv, &mut params)?
            }
            false => {
                tpcc.draw_new_order(&mut rng, 1, now, &mut params);
                tpcc.new_order(kv, &mut params)?
            }
        };
        Ok(())
    };
    bare.run("bare tpcc", options, out, &mut one)
}

struct Bare {
    all: BareTables,
    buffers: Buffers,
}

impl Bare {
    fn new(tables: &'static [workload::kv::Table]) -> Bare {
        Bare {
            all: BareTables::new(tables),
            buffers: Buffers::default(),
        }
    }

    fn load(&mut self, f: impl FnOnce(&mut BareKv<'_>) -> Result<()>) -> Result<()> {
        let guard = pin();
        let mut kv = BareKv::new(&self.all, &guard, &mut self.buffers, false, false);
        f(&mut kv)
    }

    /// Without and with look-ups ahead, without and with a log.
    fn run(
        &mut self,
        name: &str,
        options: &BenchOptions,
        out: &mut Lines<'_>,
        one: &mut dyn FnMut(&mut BareKv<'_>) -> Result<()>,
    ) -> Result<()> {
        for (ahead, logged) in [(false, false), (true, false), (false, true), (true, true)] {
            let name = format!(
                "{name}{}{}",
                shown(ahead),
                if logged { ", log" } else { "" }
            );
            if !name.contains(&options.only) {
                continue;
            }
            with_log(options, |log| {
                let (mut n, mut group) = (0u64, Vec::new());
                let (began, cpu_before) = (Instant::now(), thread_cpu());
                while began.elapsed() < duration(options) {
                    for _ in 0..GROUP {
                        let guard = pin();
                        let mut kv =
                            BareKv::new(&self.all, &guard, &mut self.buffers, ahead, logged);
                        one(&mut kv)?;
                        n += 1;
                        if let Some(record) = kv.record.take() {
                            let position = self.buffers.position;
                            let (heads, data) = record.finish(position, 0);
                            group.push(Commit {
                                position,
                                heads,
                                data,
                            });
                        }
                    }
                    if logged {
                        log.append_group(&group, Position::ZERO).map_err(failed)?;
                        log.sync().map_err(failed)?;
                        group.clear();
                    }
                }
                out.bare(&name, n, began.elapsed(), thread_cpu() - cpu_before)
            })?;
        }
        Ok(())
    }
}

fn failed(e: wal::Error) -> Error {
    Error::new(SqlState::IO_ERROR, e.to_string())
}

/// A log in a directory of its own, for as long as `f` runs.
fn with_log(options: &BenchOptions, f: impl FnOnce(&mut LogWriter) -> Result<()>) -> Result<()> {
    let env = Env::os();
    let name = format!("canon-log-{:016x}", env.random.next_u64());
    let dir = options.directory.join(name);
    let done = {
        let data = DataDir::open(&env, &dir, DirOptions::default()).map_err(failed)?;
        let end = LogEnd::empty(Position::ZERO);
        let mut log = LogWriter::resume(data.log().clone(), &end, 1).map_err(failed)?;
        f(&mut log)
    };
    let _ = std::fs::remove_dir_all(&dir);
    done
}

/// Commits of two rows each, built, appended in groups and synced.
pub fn log(options: &BenchOptions, out: &mut Lines<'_>) -> Result<()> {
    let row = vec![b'x'; ROW];
    with_log(options, |log| {
        for size in [1usize, 64, 1024] {
            let (mut n, mut position) = (0u64, log.last().max(Position::new(1, 0)));
            let (began, cpu_before) = (Instant::now(), thread_cpu());
            while began.elapsed() < duration(options) {
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
            out.bare(&name, n, began.elapsed(), thread_cpu() - cpu_before)?;
        }
        Ok(())
    })
}
