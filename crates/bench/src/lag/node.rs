//! One of the two processes: a whole server on a real socket, its work inside the process, a sample every millisecond.

use super::{Sample, failed};
use base::{Error, Position, Result};
use embedded::{Committed, Database, TableBuilder, TransactionOptions};
use protocol::{Conninfo, Link};
use server::Server;
use server::config::{Config, Overrides};
use server::replication::membership::FILE as SECRET;
use service::runtime;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};
use workload::rng::Rng;

use crate::figures::{Histogram, cpu};

/// Rows that are updated.
const ROWS: u64 = 100_000;

/// Rows of the second table, inserted at one end and deleted at the other.
const QUEUE: i64 = 50_000;

/// Commits that may wait for their flush.
const OUTSTANDING: usize = 512;

#[derive(Clone, Debug, clap::Args)]
pub struct NodeArgs {
    /// primary or replica
    role: String,
    #[arg(long)]
    address: SocketAddr,
    #[arg(long)]
    directory: PathBuf,
    #[arg(long)]
    warm_up: u64,
    /// After the warming up.
    #[arg(long)]
    seconds: u64,
    #[arg(long, value_parser = super::rate)]
    readers: u32,
    #[arg(long)]
    policy: String,
    #[arg(long)]
    ring: String,
    #[arg(long)]
    ddl_rows: u64,
    /// Watch the threads, and what the host takes from this CPU.
    #[arg(long, value_name = "CPU")]
    threads: Option<usize>,
}

impl NodeArgs {
    /// Seconds of load, with the warming up.
    fn all(&self) -> u64 {
        self.warm_up + self.seconds
    }
}

/// What a process did between `go` and the end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Transactions, or reads.
    pub operations: u64,
    pub rows: u64,
    pub seconds: f64,
    pub cpu_seconds: f64,
    /// Of reads.
    pub p99_micros: f64,
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} {} {} {} {}",
            self.operations, self.rows, self.seconds, self.cpu_seconds, self.p99_micros
        )
    }
}

impl FromStr for Report {
    type Err = Error;

    fn from_str(s: &str) -> Result<Report> {
        let fields: Vec<f64> = s.split(' ').filter_map(|f| f.parse().ok()).collect();
        let [operations, rows, seconds, cpu_seconds, p99_micros] = fields[..] else {
            return Err(failed(format!("not a report: {s:?}")));
        };
        Ok(Report {
            operations: operations as u64,
            rows: rows as u64,
            seconds,
            cpu_seconds,
            p99_micros,
        })
    }
}

/// Microseconds since 1970.
pub fn now() -> u64 {
    env::Env::os().clock.unix_micros().max(0) as u64
}

/// The process.
pub fn run(args: &NodeArgs) -> Result<()> {
    let primary = args.role == "primary";
    let flags = Overrides {
        data: Some(args.directory.join(&args.role)),
        listen: Some(if primary {
            args.address.to_string()
        } else {
            "127.0.0.1:0".into()
        }),
        replica_of: (!primary).then(|| args.address.to_string()),
        cluster_secret_file: (!primary).then(|| args.directory.join("primary").join(SECRET)),
        replay_policy: Some(args.policy.clone()),
        replication_ring: Some(args.ring.clone()),
        ..Overrides::default()
    };
    let config = Config::load(&flags)?;
    let runtime = runtime()?;
    let server = runtime.block_on(Server::start(&config))?;
    let db = Database::over(server.node.clone(), TransactionOptions::default());
    if primary {
        load(&db)?;
        if args.ddl_rows > 0 {
            load_third(&db, args.ddl_rows)?;
        }
        db.checkpoint()?;
    }
    println!("ready");
    wait_for_line()?;
    let done = AtomicBool::new(false);
    let (report, samples) = std::thread::scope(|s| {
        let sampler = spawn(s, "sampler", || sample(&db, &done));
        let threads = args.directory.join(format!("{}.threads", args.role));
        let done = &done;
        let watcher = args.threads.map(|cpu| {
            spawn(s, "watcher", move || {
                super::threads::watch(cpu, done, &threads)
            })
        });
        let changer = (primary && args.ddl_rows > 0).then(|| s.spawn(|| change(&runtime, args)));
        let work = match primary {
            true => spawn(s, "load", || write(&db, args.all())),
            false => spawn(s, "readers", || read(&db, args.readers, args.all())),
        };
        let report = work.join();
        let report = report.unwrap_or_else(|_| Err(failed("the load panicked")));
        if !primary {
            // What the primary published last has time to arrive.
            std::thread::sleep(Duration::from_secs(3));
        }
        done.store(true, Ordering::SeqCst);
        let watched = watcher.map_or(Ok(Ok(())), |w| w.join());
        let watched = watched.unwrap_or_else(|_| Err(failed("the watcher panicked")));
        let report = report.and_then(|r| watched.map(|()| r));
        let changed = changer.map_or(Ok(Ok(())), |c| c.join());
        let changed = changed.unwrap_or_else(|_| Err(failed("the changer panicked")));
        (report.and_then(|r| changed.map(|()| r)), sampler.join())
    });
    let samples = samples.map_err(|_| failed("the sampler panicked"))?;
    write_samples(
        &args.directory.join(format!("{}.samples", args.role)),
        &samples,
    )?;
    if let Some(e) = db.node().following().and_then(|f| f.failure()) {
        return Err(e);
    }
    println!("done {}", report?);
    _ = wait_for_line();
    drop(db);
    runtime.block_on(server.stop());
    Ok(())
}

/// A thread that [`super::threads`] can tell from others.
fn spawn<'s, T: Send + 's>(
    scope: &'s Scope<'s, '_>,
    name: &str,
    body: impl FnOnce() -> T + Send + 's,
) -> ScopedJoinHandle<'s, T> {
    let named = Builder::new().name(name.to_owned());
    let thread = named.spawn_scoped(scope, body);
    thread.expect("a thread for the benchmark")
}

fn wait_for_line() -> Result<()> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).map_err(failed)?;
    Ok(())
}

fn load(db: &Database) -> Result<()> {
    let table = |name| {
        TableBuilder::new(name)
            .column("id", base::Type::Int8)
            .column("a", base::Type::Int8)
            .column("filler", base::Type::Text)
            .primary_key(["id"])
            .index(format!("{name}_a"), ["a"])
    };
    db.create_table(table("rows"))?;
    db.create_table(table("queue"))?;
    let filler = "f".repeat(80);
    for from in (0..ROWS as i64).step_by(1000) {
        db.transaction(|tx| {
            let t = tx.table("rows")?;
            (from..from + 1000).try_for_each(|id| t.insert((id, id, filler.as_str())))
        })?;
    }
    Ok(())
}

/// The table whose schema changes during the load.
fn load_third(db: &Database, rows: u64) -> Result<()> {
    let table = TableBuilder::new("big")
        .column("id", base::Type::Int8)
        .column("a", base::Type::Int8)
        .column("filler", base::Type::Text)
        .primary_key(["id"]);
    db.create_table(table)?;
    let filler = "f".repeat(80);
    for from in (0..rows as i64).step_by(1000) {
        db.transaction(|tx| {
            let t = tx.table("big")?;
            let to = (from + 1000).min(rows as i64);
            (from..to).try_for_each(|id| t.insert((id, id * 7919 % 100_003, filler.as_str())))
        })?;
    }
    Ok(())
}

/// Changes the schema while the load runs, spread over its time after the warming up, through SQL; when, goes into a file.
fn change(runtime: &tokio::runtime::Runtime, args: &NodeArgs) -> Result<()> {
    const CHANGES: [&str; 4] = [
        "CREATE INDEX big_a ON big (a)",
        "CREATE INDEX rows_filler ON rows (filler)",
        "ALTER TABLE big ADD COLUMN extra int NOT NULL DEFAULT 7",
        "TRUNCATE big",
    ];
    let primary = Conninfo::parse(&args.address.to_string()).map_err(failed)?;
    let mut link = runtime.block_on(Link::connect(&primary, &[]))?;
    let pause = Duration::from_secs(args.seconds) / (CHANGES.len() as u32 + 1);
    let began = Instant::now();
    let mut log = String::new();
    for (i, sql) in CHANGES.iter().enumerate() {
        let due = Duration::from_secs(args.warm_up) + pause * (i as u32 + 1);
        std::thread::sleep(due.saturating_sub(began.elapsed()));
        let from = now();
        runtime.block_on(link.query(sql))?;
        log += &format!("{from} {} {sql}\n", now());
    }
    std::fs::write(args.directory.join("changes"), log).map_err(failed)
}

/// What was changed, and from when to when; nothing when there is no such file.
pub fn read_changes(path: &Path) -> Result<Vec<(String, u64, u64)>> {
    let text = match std::fs::read_to_string(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(vec![]),
        text => text.map_err(failed)?,
    };
    let change = |l: &str| {
        let mut parts = l.splitn(3, ' ');
        let (from, to) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some((parts.next()?.to_owned(), from, to))
    };
    Ok(text.lines().filter_map(change).collect())
}

/// Three updates of random rows, one of them of an indexed column, an insert, and a delete of an old row.
fn write(db: &Database, seconds: u64) -> Result<Report> {
    let (began, cpu_began) = (Instant::now(), cpu());
    let mut rng = Rng::new(7);
    let mut outstanding: VecDeque<Committed<'_, ()>> = VecDeque::new();
    let (mut n, mut rows) = (0i64, 0);
    let filler = "g".repeat(80);
    while began.elapsed() < Duration::from_secs(seconds) {
        let ids = [(); 3].map(|()| rng.below(ROWS) as i64);
        let committed = db.transaction_nowait(|tx| {
            let t = tx.table("rows")?;
            for (i, id) in ids.iter().enumerate() {
                let a = if i == 0 { n } else { *id };
                t.put((*id, a, filler.as_str()))?;
            }
            let q = tx.table("queue")?;
            q.insert((n, n, filler.as_str()))?;
            if n >= QUEUE {
                q.delete(n - QUEUE)?;
            }
            Ok(())
        })?;
        rows += if n >= QUEUE { 5 } else { 4 };
        n += 1;
        outstanding.push_back(committed);
        if outstanding.len() > OUTSTANDING
            && let Some(c) = outstanding.pop_front()
        {
            c.wait();
        }
    }
    outstanding.into_iter().for_each(|c| c.wait());
    Ok(Report {
        operations: n as u64,
        rows,
        seconds: began.elapsed().as_secs_f64(),
        cpu_seconds: (cpu() - cpu_began).as_secs_f64(),
        p99_micros: 0.0,
    })
}

/// Reads by key at a pace; 0 reads none.
fn read(db: &Database, rate: u32, seconds: u64) -> Result<Report> {
    let (began, cpu_began) = (Instant::now(), cpu());
    let limit = Duration::from_secs(seconds);
    let mut latencies = Histogram::default();
    let mut rng = Rng::new(11);
    let mut n = 0u64;
    while rate > 0 && began.elapsed() < limit {
        let due = match rate {
            super::SATURATING => Duration::ZERO,
            _ => Duration::from_secs_f64(n as f64 / f64::from(rate)),
        };
        if let Some(early) = due.checked_sub(began.elapsed()) {
            std::thread::sleep(early);
        }
        let id = rng.below(ROWS) as i64;
        let at = Instant::now();
        let row: Option<(i64, i64, String)> = db.read(|tx| tx.table("rows")?.get(id))?;
        latencies.add(at.elapsed().as_nanos() as u64);
        if row.is_none() {
            return Err(failed(format!("row {id} is not there")));
        }
        n += 1;
    }
    std::thread::sleep(limit.saturating_sub(began.elapsed()));
    Ok(Report {
        operations: n,
        rows: n,
        seconds: began.elapsed().as_secs_f64(),
        cpu_seconds: (cpu() - cpu_began).as_secs_f64(),
        p99_micros: latencies.quantile(0.99).as_secs_f64() * 1e6,
    })
}

/// *Published* (at a replica: *visible*) whenever it has moved, looked at every millisecond.
fn sample(db: &Database, done: &AtomicBool) -> Vec<Sample> {
    let mut samples = Vec::new();
    let mut last = Position::ZERO;
    while !done.load(Ordering::SeqCst) {
        let position = db.node().marks().published.get();
        if position > last {
            samples.push((now(), position.as_u64()));
            last = position;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    samples
}

fn write_samples(path: &Path, samples: &[Sample]) -> Result<()> {
    let text: String = samples
        .iter()
        .map(|s| format!("{} {}\n", s.0, s.1))
        .collect();
    std::fs::write(path, text).map_err(failed)
}

/// What a process has sampled.
pub fn read_samples(path: &Path) -> Result<Vec<Sample>> {
    let text = std::fs::read_to_string(path).map_err(failed)?;
    let sample = |l: &str| {
        let (time, position) = l.split_once(' ')?;
        Some((time.parse().ok()?, position.parse().ok()?))
    };
    Ok(text.lines().filter_map(sample).collect())
}
