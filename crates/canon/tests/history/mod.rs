//! One run of random list-append transactions over the wire, on one server or several.

use super::common::{Server, sqlstate};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, SimpleQueryMessage, Statement};
use workload::list_append::{
    Generator, Level, Op, Outcome, Plan, Report, Shape, Txn, Value, check,
};

const CLIENTS: usize = 8;
const TRANSACTIONS: usize = 1500;
/// How often an anomaly that must be found is looked for.
pub const ROUNDS: u64 = 8;

/// A range as an index gives it, ...
pub const BY_INDEX: &str = "k2 BETWEEN $1 AND $2";
/// ... and as a condition that each row of the table is asked.
#[allow(dead_code)]
pub const BY_CONDITION: &str = "k2 + 0 BETWEEN $1 AND $2";

struct Session {
    client: Client,
    append: Statement,
    read: Statement,
    range: Statement,
}

impl Session {
    /// `there`: what has to be shown before the statements are prepared, where the session runs all of them at its node.
    async fn open(server: &Server, level: &str, range: &str, there: Option<&str>) -> Session {
        let client = server.connect().await;
        if let Some(at) = there {
            let wait = format!("WAIT FOR LSN '{at}'");
            client.simple_query(&wait).await.expect("it comes");
            client
                .batch_execute("SET canon.forward = off")
                .await
                .expect("the setting");
        }
        client
            .batch_execute(&format!(
                "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL {level}"
            ))
            .await
            .expect("the level can be set");
        let prepare = async |sql: &str| client.prepare(sql).await.expect("a statement");
        let append = prepare(
            "INSERT INTO lists (k, k2, v) VALUES ($1, $1, $2) \
             ON CONFLICT (k) DO UPDATE SET v = lists.v || ',' || excluded.v",
        )
        .await;
        let read = prepare("SELECT v FROM lists WHERE k = $1").await;
        let range = format!("SELECT k, v FROM lists WHERE {range} ORDER BY k2");
        let range = prepare(&range).await;
        Session {
            client,
            append,
            read,
            range,
        }
    }

    /// Executes the operations, appending to `ops` what was done and seen, and to `undone` what
    /// was rolled back to a savepoint.
    async fn execute(
        &self,
        plans: &[Plan],
        ops: &mut Vec<Op>,
        undone: &mut Vec<Op>,
    ) -> Result<(), Error> {
        for plan in plans {
            match *plan {
                Plan::Append(key, value) if value % 11 == 0 && plans.len() > 1 => {
                    undone.push(Op::Append(key, value));
                    self.client.batch_execute("SAVEPOINT s").await?;
                    let values: [&(dyn ToSql + Sync); 2] = [&(key as i32), &value.to_string()];
                    self.client.execute(&self.append, &values).await?;
                    self.client.batch_execute("ROLLBACK TO s").await?;
                }
                Plan::Append(key, value) => {
                    // Noted first: whether it happened may stay unknown.
                    ops.push(Op::Append(key, value));
                    self.client
                        .execute(&self.append, &[&(key as i32), &value.to_string()])
                        .await?;
                }
                Plan::Read(key) => {
                    let row = self.client.query_opt(&self.read, &[&(key as i32)]).await?;
                    ops.push(Op::Read(key, row.map_or(vec![], |row| list(row.get(0)))));
                }
                Plan::ReadRange(low, high) => {
                    let rows = self
                        .client
                        .query(&self.range, &[&(low as i32), &(high as i32)])
                        .await?;
                    for key in low..=high {
                        let row = rows.iter().find(|row| row.get::<_, i32>(0) as u64 == key);
                        ops.push(Op::Read(key, row.map_or(vec![], |row| list(row.get(1)))));
                    }
                }
            }
        }
        Ok(())
    }
}

fn list(text: &str) -> Vec<Value> {
    text.split(',')
        .map(|n| n.parse().expect("a list of numbers"))
        .collect()
}

/// Runs one transaction and says how it ended; panics on an error that no client should see.
async fn transaction(
    session: &Session,
    plans: &[Plan],
    ops: &mut Vec<Op>,
    undone: &mut Vec<Op>,
) -> Outcome {
    let alone = plans.len() == 1 && !matches!(plans[0], Plan::ReadRange(..));
    let result = if alone {
        session.execute(plans, ops, undone).await
    } else {
        match session.client.batch_execute("BEGIN").await {
            Err(error) => Err(error),
            Ok(()) => match session.execute(plans, ops, undone).await {
                Err(error) => {
                    let _ = session.client.batch_execute("ROLLBACK").await;
                    Err(error)
                }
                Ok(()) => session.client.batch_execute("COMMIT").await,
            },
        }
    };
    match result {
        Ok(()) => Outcome::Ok,
        Err(error) => match sqlstate(&error).as_str() {
            "40001" | "40P01" => Outcome::Fail,
            "connection" => Outcome::Unknown,
            code => panic!("{code}: {error:?} in {plans:?}"),
        },
    }
}

/// One run, whose clients are shared out among the servers, of which the first is no replica; returns the report and the number of
/// transactions that failed.
pub async fn run_on(servers: &[Arc<Server>], level: &'static str, seed: u64) -> (Report, usize) {
    run_with(servers, level, seed, BY_INDEX).await
}

/// The same with ranges read by this condition.
pub async fn run_with(
    servers: &[Arc<Server>],
    level: &'static str,
    seed: u64,
    range: &'static str,
) -> (Report, usize) {
    run_as(servers, level, seed, range, false).await
}

/// The same at a primary and its sites, where each node runs what its clients ask for.
#[allow(dead_code)]
pub async fn run_at_sites(
    servers: &[Arc<Server>],
    level: &'static str,
    seed: u64,
) -> (Report, usize) {
    run_as(servers, level, seed, BY_INDEX, true).await
}

/// Where the log of this server ends.
async fn newest(c: &Client) -> String {
    let said = c.simple_query("SELECT pg_current_wal_lsn()").await;
    let said = said.expect("a position");
    let row = said.iter().find_map(|m| match m {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    row.expect("one row").to_owned()
}

async fn run_as(
    servers: &[Arc<Server>],
    level: &'static str,
    seed: u64,
    range: &'static str,
    stays: bool,
) -> (Report, usize) {
    let admin = servers[0].connect().await;
    admin
        .batch_execute(
            "CREATE TABLE lists (k int PRIMARY KEY, k2 int NOT NULL, v text NOT NULL); \
             CREATE INDEX lists_k2 ON lists (k2)",
        )
        .await
        .expect("a table");
    let there = match stays {
        true => Some(newest(&admin).await),
        false => None,
    };
    let generator = Arc::new(Mutex::new(Generator::new(seed, Shape::default())));
    let begin = Instant::now();
    let now = move || begin.elapsed().as_nanos() as u64;
    let mut tasks = Vec::new();
    for n in 0..CLIENTS {
        let (server, generator) = (servers[n % servers.len()].clone(), generator.clone());
        let site = n % servers.len();
        // The first one is the primary, which shows what it has made.
        let there = there.clone().filter(|_| site > 0);
        tasks.push(tokio::spawn(async move {
            let session = Session::open(&server, level, range, there.as_deref()).await;
            let mut history = Vec::new();
            for _ in 0..TRANSACTIONS / CLIENTS {
                let plans = generator.lock().unwrap().next_txn();
                let (mut ops, mut undone) = (Vec::new(), Vec::new());
                let invoke = now();
                let outcome = transaction(&session, &plans, &mut ops, &mut undone).await;
                // What was undone never happened, whatever became of the rest.
                if !undone.is_empty() {
                    let outcome = Outcome::Fail;
                    history.push(Txn {
                        site,
                        invoke,
                        complete: now(),
                        outcome,
                        ops: undone,
                    });
                }
                history.push(Txn {
                    site,
                    invoke,
                    complete: now(),
                    outcome,
                    ops,
                });
            }
            history
        }));
    }
    let mut history = Vec::new();
    for task in tasks {
        history.extend(task.await.expect("a client ends"));
    }
    // At the end everything is read, so that no append stays unseen.
    let session = Session::open(&servers[0], "SERIALIZABLE", range, None).await;
    let keys = generator.lock().unwrap().keys();
    let mut ops = Vec::new();
    let invoke = now();
    let plans: Vec<Plan> = (0..keys).map(Plan::Read).collect();
    let outcome = transaction(&session, &plans, &mut ops, &mut Vec::new()).await;
    assert_eq!(outcome, Outcome::Ok, "nobody else is there");
    history.push(Txn {
        site: 0,
        invoke,
        complete: now(),
        outcome,
        ops,
    });

    let failed = history
        .iter()
        .filter(|t| t.outcome == Outcome::Fail)
        .count();
    let unknown = history
        .iter()
        .filter(|t| t.outcome == Outcome::Unknown)
        .count();
    assert_eq!(unknown, 0, "a connection broke");
    assert!(
        history.len() - failed > TRANSACTIONS / 4,
        "{failed} of {} failed",
        history.len()
    );
    (check(&history), failed)
}

/// Fails when the report has what the level forbids.
pub fn assert_keeps(name: &str, level: Level, (report, failed): (Report, usize)) {
    println!(
        "{name}: {} transactions, {failed} failed",
        report.transactions
    );
    let violations = report.violations(level);
    assert!(
        violations.is_empty(),
        "{} violations, the first:\n{}",
        violations.len(),
        violations[0]
    );
}
