//! Changes of the schema that write rows anew, beside writers that keep count of what was acknowledged.
//!
//! Each writer has keys of its own and knows what its rows are: every commit that was acknowledged is there after the changes, and
//! nothing else. The indexes that the changes make find the same rows.

mod common;

use common::{PATIENCE, Server, sqlstate};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio_postgres::{Client, Error, SimpleQueryMessage};

const LEVELS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];
const WRITERS: i64 = 3;
/// How often each change is made and taken back.
const ROUNDS: u32 = 4;
/// Rows that stay as they are: a read of them all takes a while.
const STANDING: i64 = 2000;

/// A change that writes the rows anew, and what takes it back.
const CHANGES: [(&str, &str); 4] = [
    (
        "ALTER TABLE t ADD COLUMN s serial",
        "ALTER TABLE t DROP COLUMN s",
    ),
    (
        "ALTER TABLE t ALTER v TYPE numeric",
        "ALTER TABLE t ALTER v TYPE bigint",
    ),
    ("CREATE INDEX i ON t (id) WHERE v > 0", "DROP INDEX i"),
    (
        "CREATE UNIQUE INDEX i ON t ((id::text || 'k'))",
        "DROP INDEX i",
    ),
];

async fn at_level(server: &Server, level: &str) -> Client {
    let client = server.connect().await;
    let sql = format!("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL {level}");
    client.batch_execute(&sql).await.expect("the level is set");
    client
}

/// True if it was done, false if it lost a race; panics on any other error.
fn done(result: Result<(), Error>, what: &str) -> bool {
    let Err(error) = result else { return true };
    let code = sqlstate(&error);
    let lost = ["40001", "40P01"].contains(&code.as_str());
    assert!(lost, "{what}: {error:?}");
    false
}

/// One writer's rows, by key, until the changes are over.
async fn write(
    (server, level): (Arc<Server>, &'static str),
    me: i64,
    (over, acknowledged): (Arc<AtomicBool>, Arc<AtomicU64>),
) -> BTreeMap<i64, i64> {
    let client = at_level(&server, level).await;
    let mut rows = BTreeMap::new();
    let mut next = (me + 1) * 1_000_000;
    while !over.load(Ordering::Relaxed) {
        next += 1;
        let (first, last) = (rows.first_key_value(), rows.last_key_value());
        let (key, value, sql) = match (next % 4, first, last) {
            (1, Some((k, _)), _) => {
                let sql = format!("DELETE FROM t WHERE id = {k}");
                (*k, None, sql)
            }
            (2, _, Some((k, v))) => {
                let sql = format!("UPDATE t SET v = v + 5 WHERE id = {k}");
                (*k, Some(v + 5), sql)
            }
            _ => {
                let sql = format!("INSERT INTO t (id, v) VALUES ({next}, 1)");
                (next, Some(1), sql)
            }
        };
        if done(client.batch_execute(&sql).await, &sql) {
            acknowledged.fetch_add(1, Ordering::Relaxed);
            match value {
                Some(v) => rows.insert(key, v),
                None => rows.remove(&key),
            };
        }
    }
    rows
}

/// Makes the change again and again until it succeeds. Every other try is in a transaction whose snapshot is older than the change.
async fn change(client: &Client, sql: &str, in_block: bool) {
    let began = Instant::now();
    loop {
        let result = match in_block {
            false => client.batch_execute(sql).await,
            true => {
                let before = "BEGIN; SELECT count(*) FROM other";
                client.batch_execute(before).await.expect("a snapshot");
                tokio::time::sleep(Duration::from_millis(20)).await;
                let all = format!("{sql}; COMMIT");
                let result = client.batch_execute(&all).await;
                if result.is_err() {
                    client.batch_execute("ROLLBACK").await.expect("a rollback");
                }
                result
            }
        };
        if done(result, sql) {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{sql} does not come through");
    }
}

async fn rows(client: &Client, sql: &str) -> BTreeMap<i64, i64> {
    let all = client.simple_query(sql).await.expect(sql);
    let number = |text: Option<&str>| text.and_then(|t| t.parse().ok()).expect("a number");
    let rows = all.iter().filter_map(|m| match m {
        SimpleQueryMessage::Row(r) => Some((number(r.get(0)), number(r.get(1)))),
        _ => None,
    });
    rows.collect()
}

async fn no_commit_is_lost(level: &'static str) {
    let server = Arc::new(Server::start().await);
    let admin = at_level(&server, level).await;
    for (make, unmake) in CHANGES {
        let sql = format!(
            "DROP TABLE IF EXISTS t, other; CREATE TABLE other (id int); CREATE TABLE t (id bigint PRIMARY KEY, v bigint NOT NULL); \
             INSERT INTO t SELECT g, 1 FROM generate_series(1, {STANDING}) g"
        );
        admin.batch_execute(&sql).await.expect("the tables");
        let over = Arc::new(AtomicBool::new(false));
        let acknowledged = Arc::new(AtomicU64::new(0));
        let writers = (0..WRITERS).map(|me| {
            let shared = (over.clone(), acknowledged.clone());
            tokio::spawn(write((server.clone(), level), me, shared))
        });
        let writers: Vec<_> = writers.collect();
        for round in 0..ROUNDS {
            let seen = acknowledged.load(Ordering::Relaxed);
            let began = Instant::now();
            while acknowledged.load(Ordering::Relaxed) < seen + 10 {
                assert!(began.elapsed() < PATIENCE, "the writers stand still");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            if round > 0 {
                change(&admin, unmake, false).await;
            }
            change(&admin, make, round % 2 == 1).await;
        }
        over.store(true, Ordering::Relaxed);
        let mut expected: BTreeMap<i64, i64> = (1..=STANDING).map(|k| (k, 1)).collect();
        for w in writers {
            expected.extend(w.await.expect("a writer"));
        }
        let found = rows(&admin, "SELECT id, v FROM t").await;
        let lost: Vec<_> = expected
            .iter()
            .filter(|(k, v)| found.get(k) != Some(v))
            .collect();
        let extra: Vec<_> = found.keys().filter(|k| !expected.contains_key(k)).collect();
        assert!(
            lost.is_empty() && extra.is_empty(),
            "{level}, {make}: acknowledged and not there {lost:?}, there and not acknowledged {extra:?}"
        );
        for found_by in ["id > 0 AND v > 0", "id::text || 'k' = '1000003k'"] {
            let by_index = rows(&admin, &format!("SELECT id, v FROM t WHERE {found_by}")).await;
            let mut all = expected.clone();
            if found_by.contains("k'") {
                all.retain(|k, _| *k == 1_000_003);
            }
            assert_eq!(by_index, all, "{level}, {make}: WHERE {found_by}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_commit_is_lost_at_read_committed() {
    no_commit_is_lost(LEVELS[0]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_commit_is_lost_at_repeatable_read() {
    no_commit_is_lost(LEVELS[1]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_commit_is_lost_at_serializable() {
    no_commit_is_lost(LEVELS[2]).await;
}
