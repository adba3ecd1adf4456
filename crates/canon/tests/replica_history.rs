//! The black-box history checker over a cluster: list-append transactions at the primary, read-only transactions at replicas behind slow
//! links, one clock for all. Reads are strong, so the whole history must be strictly serializable.
//!
//! The tests are tested: reads that may be old must break real time, and, with the feature `faults`, a snapshot that moves inside its
//! transaction must break the order.
//!
//! Left out on purpose: transactions that write at a replica, which `forward_history.rs` has; and failures, which the simulation has.

use canon::{Cluster, Options};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio_postgres::{Client, NoTls};
use workload::list_append::{
    Class, Generator, Level, Op, Outcome, Plan, Report, Shape, Txn, Value, check,
};

const WRITERS: usize = 3;
const READERS: usize = 4;
/// Of each client.
const TRANSACTIONS: usize = 120;
/// How often an anomaly that must be found is looked for.
const ROUNDS: u64 = 8;

/// A planted fault is everybody's in this process: one run at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect(url);
    tokio::spawn(connection);
    client
}

fn list(text: &str) -> Vec<Value> {
    text.split(',')
        .map(|n| n.parse().expect("a list of numbers"))
        .collect()
}

async fn execute(
    c: &Client,
    plans: &[Plan],
    ops: &mut Vec<Op>,
) -> Result<(), tokio_postgres::Error> {
    for plan in plans {
        match *plan {
            Plan::Append(key, value) => {
                // Noted first: whether it happened may stay unknown.
                ops.push(Op::Append(key, value));
                let append = "INSERT INTO lists (k, k2, v) VALUES ($1, $1, $2)
                    ON CONFLICT (k) DO UPDATE SET v = lists.v || ',' || excluded.v";
                c.execute(append, &[&(key as i32), &value.to_string()])
                    .await?;
            }
            Plan::Read(key) => {
                let read = "SELECT v FROM lists WHERE k = $1";
                let row = c.query_opt(read, &[&(key as i32)]).await?;
                ops.push(Op::Read(key, row.map_or(vec![], |row| list(row.get(0)))));
            }
            Plan::ReadRange(low, high) => {
                let range = "SELECT k, v FROM lists WHERE k2 BETWEEN $1 AND $2 ORDER BY k2";
                let rows = c.query(range, &[&(low as i32), &(high as i32)]).await?;
                for key in low..=high {
                    let row = rows.iter().find(|row| row.get::<_, i32>(0) as u64 == key);
                    ops.push(Op::Read(key, row.map_or(vec![], |row| list(row.get(1)))));
                }
            }
        }
    }
    Ok(())
}

/// One transaction; alone in its statement without BEGIN.
async fn transaction(c: &Client, plans: &[Plan], ops: &mut Vec<Op>) -> Outcome {
    let result = if plans.len() == 1 {
        execute(c, plans, ops).await
    } else {
        match c.batch_execute("BEGIN").await {
            Err(e) => Err(e),
            Ok(()) => match execute(c, plans, ops).await {
                Err(e) => {
                    _ = c.batch_execute("ROLLBACK").await;
                    Err(e)
                }
                Ok(()) => c.batch_execute("COMMIT").await,
            },
        }
    };
    match result.as_ref().map_err(|e| e.code().map(|c| c.code())) {
        Ok(()) => Outcome::Ok,
        Err(Some("40001" | "40P01")) => Outcome::Fail,
        Err(code) => panic!("{code:?}: {result:?} in {plans:?}"),
    }
}

/// One run, with these settings of the readers.
fn run(seed: u64, settings: &'static str) -> Report {
    let options = Options {
        log_level: Some("error".into()),
        settings: vec!["default_transaction_isolation=serializable".into()],
        ..Options::default()
    };
    let cluster = Cluster::start(options, 2).expect("a cluster");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let runtime = runtime.expect("a runtime");
    runtime.block_on(async {
        let c = connect(&cluster.url(0)).await;
        let table = "CREATE TABLE lists (k int PRIMARY KEY, k2 int NOT NULL, v text NOT NULL);
            CREATE INDEX lists_k2 ON lists (k2)";
        c.batch_execute(table).await.expect("a table");
    });
    cluster.catch_up().expect("caught up");
    for i in cluster.replicas() {
        cluster.delay(i, Duration::from_millis(2));
    }
    let generator = Arc::new(Mutex::new(Generator::new(seed, Shape::default())));
    let begin = Instant::now();
    let now = move || begin.elapsed().as_nanos() as u64;
    let mut history = runtime.block_on(async {
        let mut tasks = Vec::new();
        // The writers' transactions: a reader does not run ahead of them, whatever a commit takes.
        let written = tokio::sync::watch::Sender::new(0);
        for client in 0..WRITERS + READERS {
            let writes = client < WRITERS;
            let member = if writes { 0 } else { 1 + client % 2 };
            let (url, generator) = (cluster.url(member), generator.clone());
            let written = written.clone();
            tasks.push(tokio::spawn(async move {
                let c = connect(&url).await;
                if !writes {
                    c.batch_execute(settings).await.expect(settings);
                }
                let mut history = Vec::new();
                for turn in 0..TRANSACTIONS {
                    if !writes {
                        let due = |n: &usize| *n >= turn * WRITERS;
                        let mut progress = written.subscribe();
                        progress.wait_for(due).await.expect("it is here");
                    }
                    let mut plans = generator.lock().unwrap().next_txn();
                    if !writes {
                        for p in &mut plans {
                            if let Plan::Append(key, _) = *p {
                                *p = Plan::Read(key);
                            }
                        }
                    }
                    let mut ops = Vec::new();
                    let invoke = now();
                    let outcome = transaction(&c, &plans, &mut ops).await;
                    history.push(Txn {
                        site: member,
                        invoke,
                        complete: now(),
                        outcome,
                        ops,
                    });
                    written.send_modify(|n| *n += usize::from(writes));
                }
                history
            }));
        }
        let mut all = Vec::new();
        for t in tasks {
            all.extend(t.await.expect("a client ends"));
        }
        all
    });
    // At the end everything is read at a replica, so that no append stays unseen.
    let keys = generator.lock().unwrap().keys();
    let plans: Vec<Plan> = (0..keys).map(Plan::Read).collect();
    let (mut ops, invoke) = (Vec::new(), now());
    let outcome = runtime.block_on(async {
        let c = connect(&cluster.url(1)).await;
        transaction(&c, &plans, &mut ops).await
    });
    assert_eq!(outcome, Outcome::Ok, "nobody else is there");
    history.push(Txn {
        site: 1,
        invoke,
        complete: now(),
        outcome,
        ops,
    });
    check(&history)
}

#[test]
fn transactions_of_all_nodes_are_strictly_serializable() {
    let _one = alone();
    let report = run(1, "SET canon.read_consistency = strong");
    let violations = report.violations(Level::StrictSerializable);
    assert!(
        violations.is_empty(),
        "{} violations, the first:\n{}",
        violations.len(),
        violations[0]
    );
    assert!(report.transactions > (WRITERS + READERS) * TRANSACTIONS / 2);
}

/// Repeats runs until one shows what is looked for.
fn must_find(settings: &'static str, found: impl Fn(&Report) -> bool) {
    assert!(
        (1..=ROUNDS).any(|seed| found(&run(seed, settings))),
        "nothing found in {ROUNDS} rounds"
    );
}

/// The workload is sharp enough: eventual reads are old, and are prefixes all the same.
#[test]
fn eventual_reads_break_real_time_and_nothing_else() {
    let _one = alone();
    must_find("SET canon.read_consistency = eventual", |r| {
        let worse = r.violations(Level::Serializable);
        assert!(worse.is_empty(), "{}", worse[0]);
        r.has(Class::RealTime)
    });
}

/// A replica whose snapshots move inside their transactions is found out.
#[cfg(feature = "faults")]
#[test]
fn planted_snapshot_moves() {
    let _one = alone();
    env::fault::plant("read.snapshot_moves", true);
    let strong = "SET canon.read_consistency = strong";
    let outcome = std::panic::catch_unwind(|| {
        must_find(strong, |r| !r.violations(Level::Serializable).is_empty());
    });
    env::fault::disarm();
    outcome.expect("it is found");
}
