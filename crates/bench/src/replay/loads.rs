//! The loads, and the primary that runs them while its log is kept.

use base::{Error, Position, Result};
use env::Env;
use std::collections::VecDeque;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use wal::{DataDir, DirOptions, Group, LogReader};
use workload::kv::{Cell, Column, End, KvTxn, RowView, Table};
use workload::rng::Rng;
use workload::tpcc::{self, Tpcc};

use super::options::Options;
use crate::adapter::{Kv, Tables};
use embedded::{Committed, Database, DatabaseOptions, TransactionOptions};

/// Transactions of one thread that may wait for their flush.
const OUTSTANDING: usize = 1024;

const PLAIN: &[Table] = &[Table {
    name: "rows",
    columns: &[("id", Column::Int), ("value", Column::Int)],
    key: &[0],
    indexes: &[],
}];

const INDEXED: &[Table] = &[Table {
    name: "rows",
    columns: &[("id", Column::Int), ("value", Column::Int)],
    key: &[0],
    indexes: &[&[1]],
}];

/// Which TPC-C transactions.
#[derive(Clone, Copy, PartialEq)]
pub enum Mix {
    NewOrder,
    Payment,
    Half,
}

/// What the primary does.
#[derive(Clone, Copy)]
pub enum Load {
    /// Sixteen inserts.
    Insert { index: bool },
    /// Unique inserts, then an update of a row that all transactions update.
    Adversarial { inserts: i64 },
    /// Four inserts, then an addition to the counter that all transactions add to: in a plain column, or split with so many further records.
    Counter { split: Option<u16> },
    Tpcc {
        mix: Mix,
        late: bool,
        districts: i64,
    },
}

impl Load {
    pub fn name(&self) -> String {
        match self {
            Load::Insert { index: false } => "insert-only".into(),
            Load::Insert { index: true } => "insert-only, secondary index".into(),
            Load::Adversarial { inserts } => format!("adversarial {inserts}"),
            Load::Counter { split: None } => "counter, plain".into(),
            Load::Counter { split: Some(0) } => "counter, split, the row alone".into(),
            Load::Counter { split: Some(n) } => format!("counter, split, {n} further records"),
            Load::Tpcc {
                mix,
                late,
                districts,
            } => {
                let mix = match mix {
                    Mix::NewOrder => "NewOrder",
                    Mix::Payment => "Payment",
                    Mix::Half => "half and half",
                };
                let when = if *late { "deferred" } else { "early" };
                format!("{mix}, hot writes {when}, districts {districts}")
            }
        }
    }

    pub fn all(quick: bool, waits: bool) -> Vec<Load> {
        let adversarial: &[i64] = match (quick, waits) {
            (true, false) => &[1, 16, 128],
            (true, true) => &[1, 16],
            (_, true) => &[1, 4, 16, 64],
            _ => &[1, 2, 4, 8, 16, 32, 64, 128],
        };
        let mut all = vec![Load::Insert { index: false }];
        if !waits {
            all.push(Load::Insert { index: true });
        }
        all.extend(
            adversarial
                .iter()
                .map(|&inserts| Load::Adversarial { inserts }),
        );
        let splits: &[Option<u16>] = match quick {
            true => &[None, Some(8)],
            false => &[None, Some(0), Some(8), Some(64)],
        };
        all.extend(splits.iter().map(|&split| Load::Counter { split }));
        if quick && waits {
            all.push(Load::Tpcc {
                mix: Mix::Payment,
                late: true,
                districts: 10,
            });
            return all;
        }
        let districts: &[i64] = if quick || waits {
            &[10]
        } else {
            &[1, 2, 4, 10]
        };
        for mix in [Mix::NewOrder, Mix::Payment, Mix::Half] {
            for late in [false, true] {
                for &districts in districts {
                    // Between one and ten only where the paper's Fig. 11 looks.
                    if mix == Mix::Half || matches!(districts, 1 | 10) {
                        all.push(Load::Tpcc {
                            mix,
                            late,
                            districts,
                        });
                    }
                }
            }
        }
        all
    }
}

/// A rate.
pub struct Rate {
    pub transactions: u64,
    pub rows: u64,
    pub wall: Duration,
    /// Of the whole process meanwhile.
    pub cpu: Duration,
    /// Of the client threads, or of the replay workers.
    pub workers: Duration,
    pub deferred: u64,
}

impl Rate {
    pub fn transactions_per_second(&self) -> f64 {
        self.transactions as f64 / self.wall.as_secs_f64()
    }

    /// CPU time per transaction, of all threads.
    pub fn micros_of_cpu(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.transactions as f64
    }

    /// Rows per second that a client or worker has the CPU.
    pub fn rows_per_worker_second(&self) -> f64 {
        self.rows as f64 / self.workers.as_secs_f64()
    }

    pub fn rows_per_second(&self) -> f64 {
        self.rows as f64 / self.wall.as_secs_f64()
    }
}

/// A primary's log in two parts, and how fast it was in the second.
pub struct Recorded {
    pub stream: u128,
    /// Making and filling the tables.
    pub before: Vec<Group>,
    pub measured: Vec<Group>,
    pub last: Position,
    pub primary: Rate,
}

/// A transaction whose writes cost a wait besides, which comes when the row is locked: such runs lock rows from the beginning, so that a
/// hot row's cost is paid by one at a time here as at the replica (C5 §3.1).
struct Paying<T> {
    inner: T,
    cost: Option<Duration>,
}

impl<T> Paying<T> {
    fn pay(&self) {
        if let Some(cost) = self.cost {
            std::thread::sleep(cost);
        }
    }
}

impl<T: KvTxn> KvTxn for Paying<T> {
    type Error = T::Error;

    fn get<R>(
        &mut self,
        table: usize,
        key: &[Cell<'_>],
        read: impl FnOnce(&dyn RowView) -> R,
    ) -> Result<Option<R>, T::Error> {
        self.inner.get(table, key, read)
    }

    fn expect(&mut self, table: usize, keys: &[&[Cell<'_>]]) {
        self.inner.expect(table, keys);
    }

    fn update(
        &mut self,
        table: usize,
        key: &[Cell<'_>],
        set: &[(usize, Cell<'_>)],
    ) -> Result<bool, T::Error> {
        let done = self.inner.update(table, key, set)?;
        self.pay();
        Ok(done)
    }

    fn add(
        &mut self,
        table: usize,
        key: &[Cell<'_>],
        column: usize,
        amount: i64,
    ) -> Result<bool, T::Error> {
        let done = self.inner.add(table, key, column, amount)?;
        self.pay();
        Ok(done)
    }

    fn put(&mut self, table: usize, row: &[Cell<'_>]) -> Result<(), T::Error> {
        self.inner.put(table, row)?;
        self.pay();
        Ok(())
    }

    fn insert(&mut self, table: usize, row: &[Cell<'_>]) -> Result<(), T::Error> {
        self.inner.insert(table, row)?;
        self.pay();
        Ok(())
    }

    fn delete(&mut self, table: usize, key: &[Cell<'_>]) -> Result<bool, T::Error> {
        let done = self.inner.delete(table, key)?;
        self.pay();
        Ok(done)
    }

    fn scan(
        &mut self,
        table: usize,
        index: usize,
        prefix: &[Cell<'_>],
        visit: impl FnMut(&dyn RowView) -> bool,
    ) -> Result<(), T::Error> {
        self.inner.scan(table, index, prefix, visit)
    }
}

/// A client thread's state: its numbers, and the transaction it runs.
struct Client {
    rng: Rng,
    next: i64,
    params: tpcc::Params,
    payment: bool,
    now: i64,
    /// Transactions that are acknowledged, not counting those that the load undid.
    done: u64,
}

impl Client {
    fn draw(&mut self, load: &Load, tpcc: &Tpcc) {
        match load {
            Load::Insert { .. } => self.next += 16,
            Load::Adversarial { inserts } => self.next += inserts,
            Load::Counter { .. } => self.next += 4,
            Load::Tpcc { mix, .. } => {
                self.now += 1;
                self.payment = match mix {
                    Mix::NewOrder => false,
                    Mix::Payment => true,
                    Mix::Half => self.rng.percent(50),
                };
                match self.payment {
                    true => tpcc.draw_payment(&mut self.rng, 1, self.now, &mut self.params),
                    false => tpcc.draw_new_order(&mut self.rng, 1, self.now, &mut self.params),
                }
            }
        }
    }

    fn run<T: KvTxn>(&mut self, load: &Load, tpcc: &Tpcc, kv: &mut T) -> Result<End, T::Error> {
        match load {
            Load::Insert { .. } => {
                for id in self.next - 16..self.next {
                    kv.insert(0, &[Cell::Int(id), Cell::Int(id.wrapping_mul(0x9E37_79B9))])?;
                }
                Ok(End::Commit)
            }
            Load::Adversarial { inserts } => {
                for id in self.next - inserts..self.next {
                    kv.insert(0, &[Cell::Int(id), Cell::Int(id)])?;
                }
                kv.update(0, &[Cell::Int(-1)], &[(1, Cell::Int(self.next))])?;
                Ok(End::Commit)
            }
            Load::Counter { .. } => {
                for id in self.next - 4..self.next {
                    kv.insert(0, &[Cell::Int(id), Cell::Int(id)])?;
                }
                kv.add(0, &[Cell::Int(-1)], 1, 1)?;
                Ok(End::Commit)
            }
            Load::Tpcc { late, .. } => match (self.payment, late) {
                (true, false) => tpcc.payment(kv, &mut self.params),
                (true, true) => tpcc.payment_late(kv, &mut self.params),
                (false, false) => tpcc.new_order(kv, &mut self.params),
                (false, true) => tpcc.new_order_late(kv, &mut self.params),
            },
        }
    }
}

/// How a transaction's body ended without a commit.
enum Ended {
    Rollback,
    Failed(Error),
}

impl From<Error> for Ended {
    fn from(e: Error) -> Self {
        Ended::Failed(e)
    }
}

/// Waits until the counter has its further records, which the worker gives to a value with additions.
pub fn spread(db: &Database, tables: &Tables, records: u16) -> Result<()> {
    let began = Instant::now();
    let id = tables.id(0);
    loop {
        db.transaction(|tx| Kv::new(tx, tables, false).add(0, &[Cell::Int(-1)], 1, 1))?;
        let values = db.manager().split_values(false);
        let found = values.iter().find(|v| v.table == id);
        if found.map_or(0, |v| v.records) >= records {
            return Ok(());
        }
        if began.elapsed() > Duration::from_secs(60) {
            return Err(Error::internal("the counter does not get its records"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn set_up(db: &Database, load: &Load, tpcc: &Tpcc) -> Result<Tables> {
    match load {
        Load::Tpcc { .. } => {
            crate::run::load_tpcc(db, tpcc)?;
            Tables::open(db, tpcc::TABLES)
        }
        _ => {
            let tables = match load {
                Load::Insert { index: true } => INDEXED,
                _ => PLAIN,
            };
            let tables = match load {
                Load::Counter { split: Some(n) } => {
                    Tables::create_split(db, tables, &[(0, 1)], (*n, *n))?
                }
                _ => Tables::create(db, tables)?,
            };
            db.transaction(|tx| {
                let mut kv = Kv::new(tx, &tables, false);
                kv.insert(0, &[Cell::Int(-1), Cell::Int(0)])
            })?;
            if let Load::Counter { split: Some(n) } = load {
                spread(db, &tables, *n)?;
            }
            Ok(tables)
        }
    }
}

/// Runs a load on a new primary and takes its log.
pub fn record(load: &Load, o: &Options) -> Result<Recorded> {
    let directory = o
        .directory
        .join(format!("canon-replay-primary-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    let mut options = DatabaseOptions::default();
    // The log is to be read to its beginning.
    options.node.checkpoint_bytes = u64::MAX;
    let db = Database::open(&directory, options)?;
    let tpcc = Tpcc {
        districts: match load {
            Load::Tpcc { districts, .. } => *districts,
            _ => 1,
        },
        ..Tpcc::new(1)
    };
    let tables = set_up(&db, load, &tpcc)?;
    let filled = db.node().marks().decided.get();
    let (transactions, wall, cpu, workers) = drive(&db, &tables, load, &tpcc, o)?;
    let stream = db.node().cluster();
    drop(db);
    let (mut before, mut measured) = (Vec::new(), Vec::new());
    let env = Env::os();
    let dir = DataDir::open(&env, &directory, DirOptions::default()).map_err(failed)?;
    let mut log = LogReader::open(dir.log().clone(), stream, Position::ZERO).map_err(failed)?;
    while let Some(group) = log.next_group().map_err(failed)? {
        match group.header().last <= filled {
            true => before.push(group),
            false => measured.push(group),
        }
    }
    let _ = std::fs::remove_dir_all(&directory);
    let last = measured.last().map_or(filled, |g| g.header().last);
    let rows = measured.iter().map(rows_of).sum();
    let logged: u64 = measured.iter().map(|g| u64::from(g.header().count)).sum();
    if logged < transactions {
        return Err(Error::internal("the log has fewer commits than were made"));
    }
    let primary = Rate {
        transactions,
        rows,
        wall,
        cpu,
        workers,
        deferred: 0,
    };
    Ok(Recorded {
        stream,
        before,
        measured,
        last,
        primary,
    })
}

/// Records in a group.
fn rows_of(group: &Group) -> u64 {
    let commits = u64::from(group.header().count) * base::record::COMMIT_HEAD as u64;
    (group.header().heads_len - commits) / base::record::RECORD_HEAD as u64
}

pub fn failed(e: wal::Error) -> Error {
    Error::internal(e.to_string())
}

/// Client threads, each running the next transaction while the log flushes the last ones. Commits, how long it took until
/// all were durable, CPU time of the process and of the clients.
fn drive(
    db: &Database,
    tables: &Tables,
    load: &Load,
    tpcc: &Tpcc,
    o: &Options,
) -> Result<(u64, Duration, Duration, Duration)> {
    let transaction = TransactionOptions {
        max_runs: u32::MAX,
        optimistic_runs: match o.row_cost {
            Some(_) => 0,
            None => TransactionOptions::default().optimistic_runs,
        },
        ..TransactionOptions::default()
    };
    let stop = AtomicBool::new(false);
    let barrier = Barrier::new(o.threads + 1);
    let work = |thread: usize| -> Result<(u64, Duration)> {
        let mut client = Client {
            rng: Rng::new(300 + thread as u64),
            next: (thread as i64 + 1) << 40,
            params: tpcc::Params::default(),
            payment: false,
            now: 0,
            done: 0,
        };
        let mut waiting: VecDeque<Committed<'_, ()>> = VecDeque::new();
        barrier.wait();
        let cpu = crate::figures::thread_cpu();
        while !stop.load(Ordering::Relaxed) {
            client.draw(load, tpcc);
            let run = db.transaction_nowait_with(&transaction, |tx| {
                let inner = Kv::new(tx, tables, true);
                let mut kv = Paying {
                    inner,
                    cost: o.row_cost,
                };
                match client.run(load, tpcc, &mut kv)? {
                    End::Commit => Ok(()),
                    End::Rollback => Err(Ended::Rollback),
                }
            });
            match run {
                Ok(committed) => {
                    client.done += 1;
                    waiting.push_back(committed);
                }
                Err(Ended::Rollback) => {}
                Err(Ended::Failed(e)) => return Err(e),
            }
            while waiting
                .front()
                .is_some_and(|w| waiting.len() > OUTSTANDING || w.is_durable())
            {
                waiting.pop_front().expect("looked at").wait();
            }
        }
        waiting.into_iter().for_each(Committed::wait);
        Ok((client.done, crate::figures::thread_cpu() - cpu))
    };
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..o.threads)
            .map(|i| {
                let work = &work;
                scope.spawn(move || work(i))
            })
            .collect();
        barrier.wait();
        let (began, cpu) = (Instant::now(), crate::figures::cpu());
        std::thread::sleep(o.duration);
        stop.store(true, Ordering::Relaxed);
        let (mut commits, mut of_clients) = (0, Duration::ZERO);
        for c in clients {
            let (done, busy) = c.join().expect("a client panicked")?;
            commits += done;
            of_clients += busy;
        }
        let cpu = crate::figures::cpu() - cpu;
        Ok((commits, began.elapsed(), cpu, of_clients))
    })
}
