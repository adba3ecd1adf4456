//! `canon bench`: what a core does, with the library in this process: YCSB and TPC-C, serializable, log on.
//!
//! ```text
//! thread: draw ─▶ transaction_nowait ─▶ outstanding (position, when it began) ─▶ published reached it: acknowledged
//! ```
//! *pipelined*: the next transaction runs while the log flushes the last ones; it counts, and its latency ends, when it is
//! acknowledged. *waiting*: each transaction waits for its own flush. Beside them what the distance is to (`bare`): the same workloads
//! over the index and the rows alone, with a log and without, and the log alone.
//!
//! *ahead*: a transaction that knows its keys at its beginning (all of YCSB's, the items and stock of a NewOrder) names them, and their
//! memory is fetched at once (`Table::prefetch`).
//!
//! CPU time is that of the process (its threads, the flusher and the reclaimer too), from `/proc`, because on a shared machine wall
//! time says more about the neighbours.
//!
//! `--split` runs split values beside plain ones in the place of all that (`split`).
//!
//! Left out on purpose: think times, open-loop arrival, and comparing with other systems (`cargo xtask bench` does).

mod adapter;
#[cfg(feature = "server")]
pub mod attack;
mod bare;
mod bare_tables;
mod figures;
#[cfg(feature = "server")]
pub mod lag;
mod options;
#[cfg(feature = "server")]
pub mod reads;
pub mod replay;
mod run;
mod split;
pub mod split_workers;

use base::{Isolation, Result};
use std::io::Write;

pub use options::BenchOptions;
use options::open;

/// Runs everything and writes a report.
pub fn run(options: &BenchOptions, out: &mut dyn Write) -> Result<()> {
    let wanted = |load: &str| options.modes(load).next().is_some();
    let bare = |name: &str| format!("bare {name}, ahead").contains(&options.only);
    let ycsb = [("ycsb uniform", 0.0), ("ycsb zipf 0.99", 0.99)];
    let out = &mut figures::Lines {
        out,
        tabs: options.tabs,
    };
    out.header()?;
    if options.split {
        return split::run(options, out);
    }
    if ycsb.iter().any(|y| wanted(y.0)) || bare("index") {
        let db = open(options)?;
        let load = run::load_ycsb(&db, options.rows)?;
        out.note(&format!("loaded {} rows: {load}", options.rows))?;
        for (name, theta) in ycsb {
            if wanted(name) {
                for &threads in &options.threads {
                    for mode in options.modes(name) {
                        let ycsb = workload::ycsb::Ycsb::new(options.rows, 8, 2, theta);
                        run::ycsb(&db, &ycsb, name, threads, mode, options, out)?;
                    }
                }
            }
        }
        if bare("index") {
            bare::index(&db, options, out)?;
        }
    }
    let most = options.threads.iter().copied().max().unwrap_or(1);
    let tpcc = workload::tpcc::Tpcc::new(most as i64);
    if wanted("tpcc") {
        let db = open(options)?;
        let load = run::load_tpcc(&db, &tpcc)?;
        out.note(&format!("loaded {most} warehouses: {load}"))?;
        for &threads in &options.threads {
            for mode in options.modes("tpcc") {
                run::tpcc(
                    &db,
                    &tpcc,
                    "tpcc",
                    threads,
                    (mode, Isolation::Serializable),
                    options,
                    out,
                )?;
            }
        }
        run::check_tpcc(&db, &tpcc)?;
        out.note("TPC-C's consistency conditions 1 to 3 hold")?;
    }
    if bare("ycsb uniform") {
        bare::ycsb(options, out)?;
    }
    if bare("tpcc") {
        bare::tpcc(&tpcc, options, out)?;
    }
    if bare("log") {
        bare::log(options, out)?;
    }
    Ok(())
}
