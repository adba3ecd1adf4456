//! A discrete-event model of primary and replayers for machines with more cores than this one.
//!
//! ```text
//! primary    each core: n inserts beside the others' ─▶ the hot row, held from its update to the commit (C5 §3.1: two-phase locking)
//! replayer   one core stamps, in order; the others execute writes under their policy's constraint, and never idle by choice
//! ```
//! Costs are CPU times measured on this machine with one client, one worker and the scheduler alone. Caches, memory bandwidth and the wires between
//! cores are not in it: it shows what the *constraints* allow, which is what the policies differ in. Rows are inserted by each client
//! in ascending order, so a page (64 rows) belongs to one client.

use base::Result;
use replica::{Policy, ReplayOptions};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::fmt;
use std::time::Duration;
use workload::rng::Rng;

use super::follow;
use super::loads::{self, Load};
use super::options::Options;

/// Transactions simulated.
const TRANSACTIONS: usize = 4000;

/// Seconds.
pub struct Costs {
    /// The primary, per write and per transaction.
    write: f64,
    transaction: f64,
    /// A worker, per write.
    replay: f64,
    /// The scheduler, per write.
    stamp: f64,
}

impl fmt::Display for Costs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = |s: f64| s * 1e9;
        write!(
            f,
            "primary {:.0} ns per write and {:.0} ns per transaction; replay {:.0} ns per write; scheduler {:.0} ns per write",
            ns(self.write),
            ns(self.transaction),
            ns(self.replay),
            ns(self.stamp)
        )
    }
}

/// Measures the costs: one client with short and with long transactions, one worker, the scheduler.
pub fn calibrate(o: &Options) -> Result<Costs> {
    let one = Options {
        directory: o.directory.clone(),
        duration: o.duration.min(Duration::from_secs(1)),
        rounds: 1,
        threads: 1,
        row_cost: None,
        only: String::new(),
        policies: vec![],
        quick: o.quick,
        extras: false,
    };
    let short = loads::record(&Load::Adversarial { inserts: 1 }, &one)?;
    let long = loads::record(&Load::Insert { index: false }, &one)?;
    // CPU time, so that neighbours on this machine do not count.
    let each = |r: &loads::Rate| r.workers.as_secs_f64() / r.transactions as f64;
    let (per_short, per_long) = (each(&short.primary), each(&long.primary));
    // Two writes in the short one, sixteen in the long one.
    let write = ((per_long - per_short) / 14.0).max(per_long / 32.0);
    let options = ReplayOptions {
        workers: 1,
        ..ReplayOptions::default()
    };
    let stamp = 1.0 / follow::scheduler_alone(&long, &options)?;
    let replay = follow::replay(&long, options, &one)?;
    Ok(Costs {
        write,
        transaction: (per_short - 2.0 * write).max(0.1 * per_short),
        replay: (1.0 / replay.rows_per_worker_second() - stamp).max(stamp),
        stamp,
    })
}

/// A point of a curve.
pub struct Figure {
    pub load: String,
    pub cores: usize,
    pub policy: Policy,
    /// Replayer's throughput over the primary's.
    pub ratio: f64,
    /// Transactions per second of the primary.
    pub primary: f64,
}

/// Loads of the model: so many inserts, then one of so many hot rows (none: no hot row).
fn model_loads(quick: bool) -> Vec<(String, usize, usize)> {
    let mut all = vec![("insert-only".to_string(), 16, 0)];
    let n: &[usize] = if quick {
        &[1, 16, 128]
    } else {
        &[1, 2, 4, 8, 16, 32, 64, 128]
    };
    all.extend(n.iter().map(|&n| (format!("adversarial {n}"), n, 1)));
    all.push(("12 writes and one of 10 hot rows".into(), 12, 10));
    all
}

/// All curves.
pub fn figures(costs: &Costs, quick: bool) -> Vec<Figure> {
    let mut out = Vec::new();
    for (load, inserts, hot) in model_loads(quick) {
        for cores in [4, 8, 16, 32, 64] {
            let log = primary(costs, cores, inserts, hot);
            for policy in Policy::ALL {
                let end = replay(costs, cores, policy, inserts, &log.transactions);
                out.push(Figure {
                    load: load.clone(),
                    cores,
                    policy,
                    ratio: log.end / end,
                    primary: TRANSACTIONS as f64 / log.end,
                });
            }
        }
    }
    out
}

/// A transaction in commit order: its client, its hot row, and the number of its first insert at that client.
struct Transaction {
    client: usize,
    hot: Option<usize>,
    first: usize,
}

struct Log {
    transactions: Vec<Transaction>,
    end: f64,
}

/// Times as ordered keys: picoseconds.
fn key(t: f64) -> u64 {
    (t * 1e12) as u64
}

fn time(k: u64) -> f64 {
    k as f64 * 1e-12
}

/// Clients one per core, closed loop.
fn primary(costs: &Costs, cores: usize, inserts: usize, hot: usize) -> Log {
    let mut rng = Rng::new(7);
    let mut free = vec![0.0f64; hot];
    let alone = inserts as f64 * costs.write;
    // When each client comes to its hot row.
    let mut arrive: BinaryHeap<Reverse<(u64, usize)>> =
        (0..cores).map(|c| Reverse((key(alone), c))).collect();
    let mut done = vec![0usize; cores];
    let mut transactions = Vec::new();
    let mut end = 0.0f64;
    while transactions.len() < TRANSACTIONS {
        let Reverse((at, client)) = arrive.pop().expect("clients never leave");
        let row = (hot > 0).then(|| rng.below(hot.max(1) as u64) as usize);
        let section = costs.transaction + if row.is_some() { costs.write } else { 0.0 };
        let start = row.map_or(time(at), |r| time(at).max(free[r]));
        let ended = start + section;
        if let Some(r) = row {
            free[r] = ended;
        }
        end = end.max(ended);
        transactions.push(Transaction {
            client,
            hot: row,
            first: done[client],
        });
        done[client] += inserts;
        arrive.push(Reverse((key(ended + alone), client)));
    }
    Log { transactions, end }
}

/// When the last write is installed. A worker that meets a write which is not safe goes on with others, except where it may not
/// (transaction-worker, serial).
fn replay(costs: &Costs, cores: usize, policy: Policy, inserts: usize, log: &[Transaction]) -> f64 {
    let workers = match policy {
        Policy::Serial => 1,
        _ => cores - 1,
    };
    let mut free: BinaryHeap<Reverse<u64>> = (0..workers).map(|_| Reverse(0)).collect();
    // When the last write of a granule ended: hot rows, pages, tables.
    let mut last: HashMap<(usize, usize), f64> = HashMap::new();
    let (mut stamped, mut end) = (0.0f64, 0.0f64);
    let granule = |t: &Transaction, write: usize| match policy {
        Policy::Table => Some((0, 0)),
        Policy::Page if write < inserts => Some((1 + t.client, (t.first + write) / 64)),
        _ if write < inserts => None,
        _ => t.hot.map(|h| (0, h)),
    };
    for t in log {
        let writes = inserts + usize::from(t.hot.is_some());
        match policy {
            Policy::Transaction => {
                stamped += writes as f64 * costs.stamp;
                let Reverse(at) = free.pop().expect("a worker");
                let before = t
                    .hot
                    .and_then(|h| last.get(&(0, h)).copied())
                    .unwrap_or(0.0);
                let busy = writes as f64 * costs.replay;
                let ended = time(at).max(stamped).max(before) + busy;
                free.push(Reverse(key(time(at).max(stamped) + busy)));
                if let Some(h) = t.hot {
                    last.insert((0, h), ended);
                }
                end = end.max(ended);
            }
            Policy::TransactionWorker | Policy::Serial => {
                let Reverse(at) = free.pop().expect("a worker");
                let mut now = time(at);
                for write in 0..writes {
                    stamped += costs.stamp;
                    let g = granule(t, write);
                    let before = g.and_then(|g| last.get(&g).copied()).unwrap_or(0.0);
                    now = now.max(stamped).max(before) + costs.replay;
                    if let Some(g) = g {
                        last.insert(g, now);
                    }
                }
                free.push(Reverse(key(now)));
                end = end.max(now);
            }
            Policy::Row | Policy::Page | Policy::Table => {
                for write in 0..writes {
                    stamped += costs.stamp;
                    let Reverse(at) = free.pop().expect("a worker");
                    let g = granule(t, write);
                    let before = g.and_then(|g| last.get(&g).copied()).unwrap_or(0.0);
                    let ended = time(at).max(stamped).max(before) + costs.replay;
                    free.push(Reverse(key(time(at).max(stamped) + costs.replay)));
                    if let Some(g) = g {
                        last.insert(g, ended);
                    }
                    end = end.max(ended);
                }
            }
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constraints_show_where_the_paper_proves_them() {
        let costs = Costs {
            write: 1e-6,
            transaction: 1e-6,
            replay: 0.5e-6,
            stamp: 0.02e-6,
        };
        let ratio = |inserts, hot, policy| {
            let log = primary(&costs, 16, inserts, hot);
            log.end / replay(&costs, 16, policy, inserts, &log.transactions)
        };
        // Without conflicts transactions and rows keep up alike; a table and one worker do not.
        assert!(ratio(16, 0, Policy::Row) >= 1.0);
        assert!(ratio(16, 0, Policy::Transaction) >= 1.0);
        assert!(ratio(16, 0, Policy::Table) < 0.5);
        assert!(ratio(16, 0, Policy::Serial) < 0.5);
        // With one hot row the rows keep up whatever the length; transactions fall behind, the more the longer (C5 Fig. 8, 12).
        for inserts in [1, 4, 16, 64] {
            assert!(ratio(inserts, 1, Policy::Row) >= 1.0, "{inserts}");
        }
        let by_transaction = [4, 16, 64].map(|n| ratio(n, 1, Policy::Transaction));
        assert!(by_transaction[2] < 0.5, "{by_transaction:?}");
        assert!(
            by_transaction.is_sorted_by(|a, b| a >= b),
            "{by_transaction:?}"
        );
    }
}
