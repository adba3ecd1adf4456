//! What the engine does per core without SQL and wire: YCSB and TPC-C's NewOrder and Payment, serializable, with the log on.
//!
//! `cargo run --release -p node --example embedded_bench [DIRECTORY [SECONDS [ycsb|tpcc]]]`: DIRECTORY on the disk to measure (default
//! `target`), SECONDS per line (default 5), one workload (default both). Transactions are optimistic: nothing is locked before commit.
//!
//! A thread does not sit out the flush of each transaction. It goes on with the next and counts a transaction when its
//! position is published, with at most `WINDOW` outstanding, as a server with many clients would. Every transaction that
//! is counted is durable. What the table says beside transactions per second:
//!
//! - *aborts*: tries that failed, per transaction, with their causes below the table;
//! - *CPU us*: of all threads of the process (flusher and housekeeper too) per transaction;
//! - *begin, body, commit*: where the thread's time goes, sampled; *bare*: the ten index lookups of a YCSB transaction, alone.
//!
//! Left out on purpose: the other three TPC-C transactions, and think times.

mod kv;

use base::{Error, Held, Position};
use kv::Kv;
use node::{Node, NodeOptions};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use txn::{Cause, Isolation, TableHandle, TxnOptions};
use workload::kv::End;
use workload::rng::Rng;
use workload::tpcc::{self, Tpcc};
use workload::ycsb::{self, Ycsb};

type Result<T> = std::result::Result<T, Error>;

/// The server's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Transactions of one thread that wait for the log.
const WINDOW: usize = 4096;

/// One in so many transactions is timed.
const SAMPLED: u64 = 32;

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let base = PathBuf::from(args.next().unwrap_or_else(|| "target".into()));
    let seconds: u64 = args.next().map_or(Ok(5), |s| s.parse())?;
    let only = args.next();
    let wanted = |name: &str| only.as_deref().is_none_or(|o| o == name);
    let base = base.join(format!("embedded_bench-{}", std::process::id()));
    println!("disk: {}; {seconds} s a line\n", base.display());
    println!(
        "workload              threads      tps   aborts   CPU us   begin us  body us  commit us   p50 ms   p99 ms"
    );
    for threads in [1, 2].into_iter().filter(|_| wanted("ycsb")) {
        ycsb(&base.join(format!("ycsb{threads}")), threads, seconds)?;
    }
    for threads in [1, 2].into_iter().filter(|_| wanted("tpcc")) {
        tpcc(&base.join(format!("tpcc{threads}")), threads, seconds)?;
    }
    std::fs::remove_dir_all(&base)?;
    Ok(())
}

fn ycsb(path: &std::path::Path, threads: usize, seconds: u64) -> Result<()> {
    let node = Node::open(path, NodeOptions::default())?;
    let tables = kv::create(&node, ycsb::TABLES)?;
    let load = Ycsb::default();
    let mut rng = Rng::new(7);
    for from in (0..load.rows).step_by(2000) {
        let to = (from + 2000).min(load.rows);
        once(&node, &tables, |kv| load.load(kv, &mut rng, from, to))?;
    }
    node.checkpoint()?;
    let report = run(&node, &tables, threads, seconds, |thread| {
        let (load, mut rng) = (load.clone(), Rng::new(100 + thread as u64));
        let mut params = ycsb::Params::default();
        move |kv: &mut Kv, again: bool| {
            if !again {
                load.draw(&mut rng, &mut params);
            }
            Ok(load.run(kv, &params)?.0)
        }
    })?;
    report.print("YCSB 8 r + 2 rw", threads, &node);
    if threads == 1 {
        println!(
            "  bare: {:.2} us for 10 lookups in the primary index",
            bare_lookups(&tables[0], &load)
        );
    }
    Ok(())
}

fn tpcc(path: &std::path::Path, threads: usize, seconds: u64) -> Result<()> {
    let node = Node::open(path, NodeOptions::default())?;
    let tables = kv::create(&node, tpcc::TABLES)?;
    let load = Tpcc::new(threads as i64);
    let mut rng = Rng::new(7);
    for step in load.load_steps() {
        once(&node, &tables, |kv| load.load(kv, &mut rng, 0, step))?;
    }
    node.checkpoint()?;
    let report = run(&node, &tables, threads, seconds, |thread| {
        let (mut rng, warehouse) = (Rng::new(100 + thread as u64), thread as i64 + 1);
        let (mut params, mut new_order, mut now) = (tpcc::Params::default(), false, 0);
        move |kv: &mut Kv, again: bool| {
            if !again {
                now += 1;
                new_order = rng.percent(50);
                match new_order {
                    true => load.draw_new_order(&mut rng, warehouse, now, &mut params),
                    false => load.draw_payment(&mut rng, warehouse, now, &mut params),
                }
            }
            match new_order {
                true => load.new_order(kv, &mut params),
                false => load.payment(kv, &mut params),
            }
        }
    })?;
    report.print("TPC-C NewOrder+Payment", threads, &node);
    let mut kv = Kv::begin(&node, &tables, options())?;
    let checked = tpcc::check(&mut kv, &load)?;
    checked.unwrap_or_else(|what| panic!("TPC-C's consistency conditions: {what}"));
    Ok(())
}

fn options() -> TxnOptions {
    TxnOptions {
        isolation: Isolation::Serializable,
        locking: false,
        ..TxnOptions::default()
    }
}

/// One transaction that has to succeed at once.
fn once(
    node: &Node,
    tables: &[Arc<TableHandle>],
    body: impl FnOnce(&mut Kv) -> Result<()>,
) -> Result<()> {
    let mut kv = Kv::begin(node, tables, options())?;
    body(&mut kv)?;
    node.commit(kv.finish()?)?;
    Ok(())
}

/// What one thread, or all, did.
#[derive(Default)]
struct Report {
    done: u64,
    failed: u64,
    /// Nanoseconds of the sampled transactions: begin, body, commit.
    phases: [u64; 3],
    sampled: u64,
    /// Nanoseconds from begin to published, of the sampled transactions.
    latencies: Vec<u64>,
    seconds: f64,
    cpu_seconds: f64,
}

/// Runs `threads` copies of a workload; `make(thread)` gives a body, which is told whether it runs the last transaction again.
fn run<B: FnMut(&mut Kv, bool) -> Result<End> + Send>(
    node: &Node,
    tables: &[Arc<TableHandle>],
    threads: usize,
    seconds: u64,
    make: impl Fn(usize) -> B,
) -> Result<Report> {
    let stop = AtomicBool::new(false);
    let (begun, cpu) = (Instant::now(), cpu_seconds());
    let parts = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let (body, stop) = (make(thread), &stop);
                scope.spawn(move || worker(node, tables, body, stop))
            })
            .collect();
        std::thread::sleep(Duration::from_secs(seconds));
        stop.store(true, Ordering::Relaxed);
        let joined = workers
            .into_iter()
            .map(|w| w.join().expect("a worker panicked"));
        joined.collect::<Result<Vec<Report>>>()
    })?;
    let mut all = Report {
        seconds: begun.elapsed().as_secs_f64(),
        cpu_seconds: cpu_seconds() - cpu,
        ..Report::default()
    };
    for part in parts {
        all.done += part.done;
        all.failed += part.failed;
        all.sampled += part.sampled;
        for (sum, add) in all.phases.iter_mut().zip(part.phases) {
            *sum += add;
        }
        all.latencies.extend(part.latencies);
    }
    all.latencies.sort_unstable();
    Ok(all)
}

fn worker(
    node: &Node,
    tables: &[Arc<TableHandle>],
    mut body: impl FnMut(&mut Kv, bool) -> Result<End>,
    stop: &AtomicBool,
) -> Result<Report> {
    let mut report = Report::default();
    let mut outstanding: VecDeque<(Held, Option<Instant>)> = VecDeque::new();
    let (mut count, mut last) = (0u64, Position::ZERO);
    while !stop.load(Ordering::Relaxed) {
        count += 1;
        let sample = count.is_multiple_of(SAMPLED);
        let begun = Instant::now();
        let mut again = false;
        let position = loop {
            let started = Instant::now();
            // A thread sees its own commits, though another's position below may not be installed yet.
            while node.marks().installed.get() < last {
                std::thread::yield_now();
            }
            let mut kv = Kv::begin(node, tables, options())?;
            let ready = Instant::now();
            let tried = body(&mut kv, again).and_then(|end| {
                let worked = Instant::now();
                let txn = kv.finish()?;
                let position = match end {
                    End::Commit => node.commit(txn)?,
                    End::Rollback => node.rollback(txn),
                };
                if sample {
                    let phases = [ready - started, worked - ready, worked.elapsed()];
                    for (sum, phase) in report.phases.iter_mut().zip(phases) {
                        *sum += phase.as_nanos() as u64;
                    }
                    report.sampled += 1;
                }
                Ok(position)
            });
            match tried {
                Ok(position) => break position,
                Err(e) if e.code().is_retryable() || e.code().is_internal() => report.failed += 1,
                Err(e) => return Err(e),
            }
            again = true;
        };
        last = position.position();
        outstanding.push_back((position, sample.then_some(begun)));
        if outstanding.len() > WINDOW {
            futures::executor::block_on(node.published(outstanding[0].0));
        }
        while outstanding
            .front()
            .is_some_and(|(p, _)| node.is_published(*p))
        {
            acknowledged(&mut outstanding, &mut report);
        }
    }
    while let Some((position, _)) = outstanding.front() {
        futures::executor::block_on(node.published(*position));
        acknowledged(&mut outstanding, &mut report);
    }
    Ok(report)
}

fn acknowledged(outstanding: &mut VecDeque<(Held, Option<Instant>)>, report: &mut Report) {
    if let Some((_, begun)) = outstanding.pop_front() {
        report.done += 1;
        report
            .latencies
            .extend(begun.map(|b| b.elapsed().as_nanos() as u64));
    }
}

impl Report {
    fn print(&self, name: &str, threads: usize, node: &Node) {
        let us = |nanos: u64| nanos as f64 / self.sampled.max(1) as f64 / 1e3;
        let percentile = |p: usize| {
            let at = (self.latencies.len() * p / 100).min(self.latencies.len().saturating_sub(1));
            self.latencies.get(at).map_or(0.0, |n| *n as f64 / 1e6)
        };
        println!(
            "{name:<22} {threads:>6} {:>8.0} {:>8.4} {:>8.2} {:>10.2} {:>8.2} {:>10.2} {:>8.2} {:>8.2}",
            self.done as f64 / self.seconds,
            self.failed as f64 / self.done.max(1) as f64,
            self.cpu_seconds * 1e6 / self.done.max(1) as f64,
            us(self.phases[0]),
            us(self.phases[1]),
            us(self.phases[2]),
            percentile(50),
            percentile(99),
        );
        let stats = &node.manager().stats;
        let causes: Vec<String> = Cause::ALL
            .into_iter()
            .filter(|c| stats.aborts(*c) > 0)
            .map(|c| format!("{} {}", c.name(), stats.aborts(c)))
            .collect();
        if !causes.is_empty() {
            println!("  aborts by cause: {}", causes.join(", "));
        }
    }
}

/// Microseconds for the lookups of one YCSB transaction in the bare primary index, reading a byte of each row.
fn bare_lookups(table: &TableHandle, load: &Ycsb) -> f64 {
    const TRANSACTIONS: u32 = 100_000;
    let mut rng = Rng::new(3);
    let mut key = Vec::new();
    let mut sum = 0u64;
    let begun = Instant::now();
    for _ in 0..TRANSACTIONS {
        let guard = store::pin();
        for _ in 0..load.reads + load.read_writes {
            key.clear();
            let id = base::Value::Int8(rng.below(load.rows) as i64);
            base::key::encode_value(&id, &mut key);
            let record = table
                .storage
                .primary
                .get(&key, &guard)
                .expect("every key was loaded");
            let row = record
                .newest(&guard)
                .and_then(|v| v.row())
                .expect("no row was deleted");
            sum += u64::from(row[row.len() - 1]);
        }
    }
    let elapsed = begun.elapsed();
    assert!(sum > 0, "the rows hold text");
    elapsed.as_secs_f64() * 1e6 / f64::from(TRANSACTIONS)
}

/// CPU time of this process so far, all threads (`/proc/self/stat`, ticks of 1/100 s).
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields: Vec<f64> = after_name
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|f| f.parse().ok())
        .collect();
    fields.iter().sum::<f64>() / 100.0
}
