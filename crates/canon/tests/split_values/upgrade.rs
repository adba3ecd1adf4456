//! A running table is made split and plain again, while its writers keep count.
//!
//! Writers change rows by deltas and by exact writes, with guards and without, at each level; a few rows are hot. Meanwhile the column is set
//! split, its values are spread, and it is reset, again and again. Each writer knows what it was told of each row. At the end each row has what
//! it began with plus what was acknowledged. A reader asks all the time that no value is below 0.
//!
//! `SPLIT_ROWS=1000000 cargo test -p canon --release --test split_values upgrade` takes a table of a million rows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio_postgres::Client;
use workload::rng::Rng;

use super::common::{PATIENCE, Server, sqlstate};
use super::helpers::{one, replica_with, rows, skip};

const WRITERS: u64 = 8;
const HOT: i64 = 4;
const FIRST: i64 = 10;
const ROUNDS: usize = 3;

fn size() -> i64 {
    let asked = std::env::var("SPLIT_ROWS").ok();
    asked.map_or(2_000, |n| n.parse().expect("a number"))
}

/// Changes rows until it is told to stop. What it was told of each.
async fn writer(
    c: Client,
    me: u64,
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
) -> BTreeMap<i64, i64> {
    let level = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"][me as usize % 3];
    let mut rng = Rng::new(me);
    let mut told = BTreeMap::new();
    while !stop.load(Ordering::SeqCst) {
        let hot = rng.below(2) == 0;
        let id = rng.between(1, if hot { HOT } else { size() });
        let by = rng.between(-3, 4);
        let guard = if by < 0 {
            format!(" AND qty >= {}", -by)
        } else {
            String::new()
        };
        let change =
            format!("UPDATE stock SET qty = qty + {by} WHERE id = {id}{guard} RETURNING id");
        // With RETURNING it is an exact write.
        let change = match rng.below(2) {
            0 => change,
            _ => change.replace(" RETURNING id", ""),
        };
        let block = format!("BEGIN ISOLATION LEVEL {level}; {change}");
        let ended = async {
            let n = super::hot::changed(&c.simple_query(&block).await?);
            c.batch_execute("COMMIT").await.map(|()| n)
        };
        match ended.await {
            Ok(n) => {
                *told.entry(id).or_insert(0) += by * n as i64;
                done.fetch_add(1, Ordering::SeqCst);
            }
            Err(e) => {
                // A change of the schema ends those of before it.
                assert!(["40001", "40P01"].contains(&&*sqlstate(&e)), "{e:?}");
                c.batch_execute("ROLLBACK").await.expect("a rollback");
            }
        }
    }
    told
}

/// Waits until the writers have done so many more.
async fn more(done: &AtomicU64, wanted: u64) {
    let before = done.load(Ordering::SeqCst);
    let deadline = Instant::now() + PATIENCE * 2;
    while done.load(Ordering::SeqCst) < before + wanted {
        assert!(Instant::now() < deadline, "the writers stand still");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A change of the schema may lose against the writers' locks, as any transaction.
async fn alter(c: &Client, what: &str) {
    let sql = format!("ALTER TABLE stock ALTER COLUMN qty {what}");
    let deadline = Instant::now() + PATIENCE * 2;
    while let Err(e) = c.batch_execute(&sql).await {
        assert!(["40001", "40P01"].contains(&&*sqlstate(&e)), "{sql}: {e:?}");
        assert!(Instant::now() < deadline, "{sql} never comes through");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_table_is_made_split_and_plain_again() {
    if skip() {
        return;
    }
    let mut server = Server::start().await;
    let c = server.connect().await;
    let setup = format!(
        "CREATE TABLE stock (id int PRIMARY KEY, qty int NOT NULL CHECK (qty >= 0));
         INSERT INTO stock SELECT i, {FIRST} FROM generate_series(1, {}) i",
        size()
    );
    c.batch_execute(&setup).await.expect("a stock");
    let (stop, done) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let mut writers = vec![];
    for me in 0..WRITERS {
        let session = server.connect().await;
        writers.push(tokio::spawn(writer(
            session,
            me,
            stop.clone(),
            done.clone(),
        )));
    }
    let (reader, over) = (server.connect().await, stop.clone());
    let reader = tokio::spawn(async move {
        while !over.load(Ordering::SeqCst) {
            let least = one(&reader, "SELECT min(qty) >= 0 AND count(*) > 0 FROM stock").await;
            assert_eq!(least, "t");
        }
    });
    let spread = "SELECT count(*) FROM canon_split_values WHERE records > 1";
    for round in 0..ROUNDS {
        more(&done, 200).await;
        alter(&c, "SET (split = on, split_min = 3)").await;
        more(&done, 200).await;
        // The last time it is reset while it is spread.
        let deadline = Instant::now() + PATIENCE;
        while one(&c, spread).await == "0" {
            assert!(
                Instant::now() < deadline,
                "round {round}: nothing is spread"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        if round + 1 < ROUNDS {
            alter(&c, "SET (split_min = 0)").await;
            more(&done, 200).await;
        }
        alter(&c, "RESET (split)").await;
        assert_eq!(one(&c, spread).await, "0");
    }
    more(&done, 200).await;
    stop.store(true, Ordering::SeqCst);
    let mut wanted = BTreeMap::new();
    for w in writers {
        for (id, by) in w.await.expect("a writer ends in order") {
            *wanted.entry(id).or_insert(FIRST) += by;
        }
    }
    reader.await.expect("the reader ends in order");
    for restarted in [false, true] {
        if restarted {
            server.kill();
            server.launch();
            server.ready().await;
        }
        let c = server.connect().await;
        let mut seen = 0;
        for row in rows(&c, "SELECT id, qty FROM stock").await {
            let number = |i: usize| {
                row[i]
                    .as_ref()
                    .expect("a value")
                    .parse::<i64>()
                    .expect("a number")
            };
            let (id, qty) = (number(0), number(1));
            assert_eq!(qty, *wanted.get(&id).unwrap_or(&FIRST), "row {id}");
            seen += 1;
        }
        assert_eq!(seen, size());
    }
}

/// A column gets a wider type under which its rows stay as they stand, the split one or one of the key. What the further records hold comes along,
/// is there at a replica, and after a restart.
#[tokio::test(flavor = "multi_thread")]
async fn a_wider_type_takes_the_records_along() {
    if skip() {
        return;
    }
    let mut server = Server::start().await;
    let replica = replica_with(&server, "r", &[]).await;
    let c = server.connect().await;
    let setup = "CREATE TABLE stock (id int, part varchar(4), qty numeric(9,2) NOT NULL CHECK (qty >= 0), PRIMARY KEY (id, part))
            WITH (split = 'qty');
         ALTER TABLE stock ALTER COLUMN qty SET (split_min = 3);
         INSERT INTO stock VALUES (1, 'a', 10), (2, 'b', 10)";
    c.batch_execute(setup).await.expect("a stock");
    let spread = "SELECT count(*) FROM canon_split_values WHERE records = 4";
    let sell = "UPDATE stock SET qty = qty - 1 WHERE qty >= 1";
    let sum = "SELECT sum(qty) FROM stock";
    let mut left = 20;
    for wider in ["qty TYPE numeric(12,2)", "part TYPE text"] {
        let deadline = Instant::now() + PATIENCE;
        while one(&c, spread).await != "2" {
            c.batch_execute("UPDATE stock SET qty = qty + 0")
                .await
                .expect("a delta");
            assert!(Instant::now() < deadline, "nothing is spread");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        c.batch_execute(sell).await.expect("sold");
        c.batch_execute(&format!("ALTER TABLE stock ALTER COLUMN {wider}"))
            .await
            .expect(wider);
        c.batch_execute(sell).await.expect("sold");
        left -= 4;
        assert_eq!(one(&c, sum).await, format!("{left}.00"));
    }
    assert_eq!(one(&replica.connect().await, sum).await, "12.00");
    drop(c);
    server.kill();
    server.launch();
    server.ready().await;
    let c = server.connect().await;
    c.batch_execute(sell).await.expect("sold");
    assert_eq!(one(&c, sum).await, "10.00");
}
