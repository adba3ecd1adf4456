//! Loads and measured runs.

use base::{Error, Isolation, Result};
use std::collections::VecDeque;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use workload::kv::End;
use workload::rng::Rng;
use workload::tpcc::{self, Tpcc};
use workload::ycsb::{self, Ycsb};

use super::adapter::{Kv, Tables};
use super::figures::{Counts, Figures, Histogram, Lines, cpu, cpu_by_thread, thread_cpu};
use super::options::{BenchOptions, Mode};
use embedded::{Database, Transaction, TransactionOptions};

/// Transactions of one thread that may wait for their flush.
const OUTSTANDING: usize = 4096;

/// The name of the threads that run transactions.
const WORKER: &str = "worker";

/// How a transaction's body ended without a commit.
pub enum Ended {
    /// The workload wants it undone; that counts as done.
    Rollback,
    Failed(Error),
}

impl From<Error> for Ended {
    fn from(e: Error) -> Self {
        Ended::Failed(e)
    }
}

fn commit_or_rollback(end: End) -> Result<(), Ended> {
    match end {
        End::Commit => Ok(()),
        End::Rollback => Err(Ended::Rollback),
    }
}

/// Runs `one` in a loop on each thread. It runs its drawn transaction once, whatever that takes.
pub fn measure<S: Send>(
    db: &Database,
    name: &str,
    threads: usize,
    (mode, isolation): (Mode, Isolation),
    options: &BenchOptions,
    out: &mut Lines<'_>,
    state: impl Fn(usize) -> S,
    one: impl Fn(&mut S, &Transaction) -> Result<(), Ended> + Sync,
    draw: impl Fn(&mut S) + Sync,
) -> Result<()> {
    let transaction = TransactionOptions {
        max_runs: u32::MAX,
        isolation,
        ..TransactionOptions::default()
    };
    let stop = AtomicBool::new(false);
    let barrier = Barrier::new(threads + 1);
    let stats = &db.manager().stats;
    let work = |mut s: S| -> Result<(Histogram, Duration)> {
        let mut latency = Histogram::default();
        let mut waiting = VecDeque::new();
        barrier.wait();
        let cpu_before = thread_cpu();
        while !stop.load(Ordering::Relaxed) {
            draw(&mut s);
            let began = Instant::now();
            let run = |tx: &Transaction| one(&mut s, tx);
            let done = match mode.pipelined {
                true => db.transaction_nowait_with(&transaction, run).map(Some),
                false => db.transaction_with(&transaction, run).map(|()| None),
            };
            match done {
                Ok(Some(c)) => waiting.push_back((c, began)),
                Ok(None) | Err(Ended::Rollback) => {
                    latency.add(began.elapsed().as_nanos() as u64);
                }
                Err(Ended::Failed(e)) => return Err(e),
            }
            while waiting
                .front()
                .is_some_and(|w| waiting.len() > OUTSTANDING || w.0.is_durable())
            {
                let (c, began) = waiting.pop_front().expect("looked at");
                c.wait();
                latency.add(began.elapsed().as_nanos() as u64);
            }
        }
        for (c, began) in waiting {
            c.wait();
            latency.add(began.elapsed().as_nanos() as u64);
        }
        Ok((latency, thread_cpu() - cpu_before))
    };
    let figures = std::thread::scope(|scope| -> Result<Figures> {
        let workers: Vec<_> = (0..threads)
            .map(|i| {
                let (s, work) = (state(i), &work);
                std::thread::Builder::new()
                    .name(WORKER.into())
                    .spawn_scoped(scope, move || work(s))
                    .expect("a thread starts")
            })
            .collect();
        barrier.wait();
        let (began, cpu_before, before) = (Instant::now(), cpu(), Counts::now(stats));
        let beside_before = cpu_by_thread();
        std::thread::sleep(options.duration);
        let beside = cpu_by_thread()
            .into_iter()
            .filter(|(name, _)| name != WORKER)
            .map(|(name, d)| {
                let before = beside_before.get(&name).copied().unwrap_or_default();
                (name, d.saturating_sub(before))
            })
            .collect();
        stop.store(true, Ordering::Relaxed);
        let (mut latency, mut worker_cpu) = (Histogram::default(), Duration::ZERO);
        for w in workers {
            let (h, c) = w.join().expect("a worker panicked")?;
            latency.merge(&h);
            worker_cpu += c;
        }
        Ok(Figures {
            name: format!("{name}, {mode}"),
            threads,
            wall: began.elapsed(),
            cpu: cpu() - cpu_before,
            worker_cpu,
            beside,
            latency,
            before,
            after: Counts::now(stats),
        })
    })?;
    out.run(&figures)
}

fn rate(rows: u64, began: Instant, cpu_before: Duration) -> String {
    let (wall, cpu) = (began.elapsed(), cpu() - cpu_before);
    format!(
        "{:.2} s, {:.0} rows/s, {:.2} us CPU/row",
        wall.as_secs_f64(),
        rows as f64 / wall.as_secs_f64(),
        cpu.as_secs_f64() * 1e6 / rows as f64
    )
}

/// Makes the table and fills it, in transactions of a thousand rows.
pub fn load_ycsb(db: &Database, rows: u64) -> Result<String> {
    let tables = Tables::create(db, ycsb::TABLES)?;
    let ycsb = Ycsb::new(rows, 8, 2, 0.0);
    let mut rng = Rng::new(1);
    let (began, cpu_before) = (Instant::now(), cpu());
    let mut from = 0;
    while from < rows {
        let to = (from + 1000).min(rows);
        let _ = db.transaction_nowait(|tx| {
            let mut kv = Kv::new(tx, &tables, false);
            ycsb.load(&mut kv, &mut rng, from, to)
        })?;
        from = to;
    }
    db.transaction(|_| Ok(()))?;
    Ok(rate(rows, began, cpu_before))
}

pub fn ycsb(
    db: &Database,
    ycsb: &Ycsb,
    name: &str,
    threads: usize,
    mode: Mode,
    options: &BenchOptions,
    out: &mut Lines<'_>,
) -> Result<()> {
    let tables = Tables::open(db, ycsb::TABLES)?;
    let seed = |thread: usize| (Rng::new(100 + thread as u64), ycsb::Params::default());
    measure(
        db,
        name,
        threads,
        (mode, Isolation::Serializable),
        options,
        out,
        seed,
        |(_, params), tx| {
            let mut kv = Kv::new(tx, &tables, mode.ahead);
            let (end, bytes) = ycsb.run(&mut kv, params)?;
            std::hint::black_box(bytes);
            commit_or_rollback(end)
        },
        |(rng, params)| ycsb.draw(rng, params),
    )
}

/// Makes the nine tables and fills them.
pub fn load_tpcc(db: &Database, tpcc: &Tpcc) -> Result<String> {
    let tables = match tpcc.split {
        true => Tables::create_split(db, tpcc::TABLES, &tpcc::SPLIT, (0, 64))?,
        false => Tables::create(db, tpcc::TABLES)?,
    };
    let (began, cpu_before) = (Instant::now(), cpu());
    for (i, step) in tpcc.load_steps().into_iter().enumerate() {
        let _ = db.transaction_nowait(|tx| {
            let mut kv = Kv::new(tx, &tables, false);
            tpcc.load(&mut kv, &mut Rng::new(i as u64), 0, step)
        })?;
    }
    db.transaction(|_| Ok(()))?;
    let rows = (0..tpcc::TABLES.len()).map(|t| {
        let catalog = db.manager().catalog();
        catalog
            .table(tables.id(t))
            .map_or(0, |h| h.storage.live_rows())
    });
    Ok(rate(rows.sum(), began, cpu_before))
}

/// Half NewOrder, half Payment. With fewer warehouses than threads, some share one.
pub fn tpcc(
    db: &Database,
    tpcc: &Tpcc,
    name: &str,
    threads: usize,
    (mode, isolation): (Mode, Isolation),
    options: &BenchOptions,
    out: &mut Lines<'_>,
) -> Result<()> {
    let tables = Tables::open(db, tpcc::TABLES)?;
    struct State {
        rng: Rng,
        params: tpcc::Params,
        warehouse: i64,
        now: i64,
        payment: bool,
    }
    measure(
        db,
        name,
        threads,
        (mode, isolation),
        options,
        out,
        |thread| State {
            rng: Rng::new(200 + thread as u64),
            params: tpcc::Params::default(),
            warehouse: thread as i64 % tpcc.warehouses + 1,
            now: 0,
            payment: false,
        },
        |s, tx| {
            let mut kv = Kv::new(tx, &tables, mode.ahead);
            commit_or_rollback(match s.payment {
                true => tpcc.payment(&mut kv, &mut s.params)?,
                false => tpcc.new_order(&mut kv, &mut s.params)?,
            })
        },
        |s| {
            s.now += 1;
            s.payment = s.rng.percent(50);
            match s.payment {
                true => tpcc.draw_payment(&mut s.rng, s.warehouse, s.now, &mut s.params),
                false => tpcc.draw_new_order(&mut s.rng, s.warehouse, s.now, &mut s.params),
            }
        },
    )
}

/// The year-to-date sums and the density of order numbers.
pub fn check_tpcc(db: &Database, tpcc: &Tpcc) -> Result<()> {
    let tables = Tables::open(db, tpcc::TABLES)?;
    let held = db.read(|tx| {
        let mut kv = Kv::new(tx, &tables, false);
        tpcc::check(&mut kv, tpcc)
    })?;
    held.map_err(Error::internal)
}
