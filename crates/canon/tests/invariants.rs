//! Invariants under concurrency: what must hold at every moment, at every level, while others write.
//!
//! * *bank*: transfers; every reader sees the whole total, in one statement or in a transaction;
//! * *tokens*: rows that keep changing their keys; every scan, through any index and in both
//!   directions, sees each of them exactly once, though entries move under it all the time;
//! * *hot*: many clients take from one row's stock, each at its own level; nothing is sold twice,
//!   refused wrongly or lost;
//! * *children*: parents come and go while children are added; no child is ever without a parent.

mod common;
#[allow(dead_code)]
#[path = "replication/helpers.rs"]
mod helpers;

use common::{Server, sqlstate};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio_postgres::{Client, Error};
use workload::bank::Bank;
use workload::hot::{self, Tally};
use workload::rng::Rng;

const LEVELS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

async fn at_level(server: &Server, level: &str) -> Client {
    let client = server.connect().await;
    let sql = format!("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL {level}");
    client
        .batch_execute(&sql)
        .await
        .expect("the level can be set");
    client
}

/// True if it was done, false if it lost a race; panics on any other error.
fn done(result: Result<(), Error>, what: &str) -> bool {
    match result {
        Ok(()) => true,
        Err(error) => {
            let code = sqlstate(&error);
            assert!(
                ["40001", "40P01"].contains(&code.as_str()),
                "{what}: {error:?}"
            );
            false
        }
    }
}

/// Runs the statements as one transaction.
async fn transaction(client: &Client, statements: &[String]) -> bool {
    let result = async {
        client.batch_execute("BEGIN").await?;
        for sql in statements {
            client.batch_execute(sql).await?;
        }
        client.batch_execute("COMMIT").await
    }
    .await;
    let done = done(result, &statements.join("; "));
    if !done {
        client.batch_execute("ROLLBACK").await.expect("a rollback");
    }
    done
}

async fn numbers(client: &Client, sql: &str) -> Result<Vec<i64>, Error> {
    Ok(client
        .query(sql, &[])
        .await?
        .iter()
        .map(|row| row.get(0))
        .collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn bank() {
    const BANK: Bank = Bank {
        accounts: 12,
        initial: 100,
    };
    for level in LEVELS {
        let server = Arc::new(Server::start().await);
        let admin = server.connect().await;
        admin
            .batch_execute(&format!(
                "CREATE TABLE account (id int PRIMARY KEY, balance bigint NOT NULL); \
                 CREATE INDEX by_balance ON account (balance); \
                 INSERT INTO account SELECT g, {} FROM generate_series(0, {}) g",
                BANK.initial,
                BANK.accounts - 1
            ))
            .await
            .expect("the accounts");
        let over = Arc::new(AtomicBool::new(false));
        let readers: Vec<_> = ["ORDER BY id", "WHERE balance >= 0 ORDER BY balance", ""]
            .into_iter()
            .map(|tail| {
                let (server, over) = (server.clone(), over.clone());
                tokio::spawn(async move {
                    let client = at_level(&server, level).await;
                    let sql = format!("SELECT balance FROM account {tail}");
                    let mut seen = 0;
                    while !over.load(Ordering::Relaxed) {
                        client.batch_execute("BEGIN").await.expect("begin");
                        // Two reads of one transaction; each must be whole.
                        for _ in 0..2 {
                            match numbers(&client, &sql).await {
                                Ok(all) => BANK.check(&all).expect(&sql),
                                Err(error) => {
                                    done(Err(error), &sql);
                                    break;
                                }
                            }
                        }
                        let end = client.batch_execute("COMMIT").await;
                        seen += u32::from(done(end, "a reader's commit"));
                    }
                    assert!(seen > 0, "{sql} was never read");
                })
            })
            .collect();
        let writers: Vec<_> = (0..4)
            .map(|me| {
                let server = server.clone();
                tokio::spawn(async move {
                    let client = at_level(&server, level).await;
                    let mut rng = Rng::new(me);
                    let mut moved = 0;
                    for _ in 0..100 {
                        let t = BANK.transfer(&mut rng);
                        // In one statement, so that it is right at READ COMMITTED too: the sum of
                        // the changes is zero or nothing changes.
                        let sql = [
                            format!(
                                "SELECT 1 FROM account WHERE id IN ({}, {}) ORDER BY id FOR UPDATE",
                                t.from, t.to
                            ),
                            format!(
                                "UPDATE account SET balance = balance + CASE WHEN id = {} THEN {} ELSE -{} END \
                                 WHERE id IN ({}, {}) AND (SELECT balance FROM account WHERE id = {}) >= {}",
                                t.to, t.amount, t.amount, t.from, t.to, t.from, t.amount
                            ),
                        ];
                        moved += u32::from(transaction(&client, &sql).await);
                    }
                    assert!(moved > 0, "no transfer came through");
                })
            })
            .collect();
        for writer in writers {
            writer.await.expect("a writer ends in order");
        }
        over.store(true, Ordering::Relaxed);
        for reader in readers {
            reader.await.expect("a reader ends in order");
        }
        let all = numbers(&admin, "SELECT balance FROM account")
            .await
            .expect("the end");
        BANK.check(&all).expect(level);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens() {
    const TOKENS: i64 = 40;
    for level in LEVELS {
        let server = Arc::new(Server::start().await);
        let admin = server.connect().await;
        admin
            .batch_execute(&format!(
                "CREATE TABLE token (pos int PRIMARY KEY, name bigint NOT NULL UNIQUE, color int NOT NULL); \
                 CREATE INDEX by_color ON token (color, pos); \
                 INSERT INTO token SELECT g * 10, g, g % 3 FROM generate_series(1, {TOKENS}) g"
            ))
            .await
            .expect("the tokens");
        let over = Arc::new(AtomicBool::new(false));
        let scans = [
            "SELECT name FROM token",
            "SELECT name FROM token ORDER BY pos",
            "SELECT name FROM token ORDER BY pos DESC",
            "SELECT name FROM token WHERE color >= 0 ORDER BY color, pos",
            "SELECT name FROM token WHERE color IN (0, 1, 2)",
            "SELECT name FROM token ORDER BY name",
            "SELECT t.name FROM token t JOIN token u ON u.name = t.name WHERE t.pos > 0",
        ];
        let readers: Vec<_> = (0..3)
            .map(|me| {
                let (server, over) = (server.clone(), over.clone());
                tokio::spawn(async move {
                    let client = at_level(&server, level).await;
                    let mut rounds = me;
                    while !over.load(Ordering::Relaxed) || rounds < scans.len() + me {
                        let sql = scans[rounds % scans.len()];
                        rounds += 1;
                        match numbers(&client, sql).await {
                            Ok(mut names) => {
                                names.sort();
                                let whole: Vec<i64> = (1..=TOKENS).collect();
                                assert_eq!(names, whole, "{level}: {sql}");
                            }
                            Err(error) => {
                                done(Err(error), sql);
                            }
                        }
                    }
                })
            })
            .collect();
        let writers: Vec<_> = (0..4u64)
            .map(|me| {
                let server = server.clone();
                tokio::spawn(async move {
                    let client = at_level(&server, level).await;
                    let mut rng = Rng::new(me);
                    let mut moved = 0;
                    for turn in 0..80 {
                        let name = 1 + rng.below(TOKENS as u64);
                        // Places nobody else goes to: the last digit is the writer's.
                        let pos = (1 + rng.below(60)) * 10 + 1 + me;
                        let color = rng.below(3);
                        let statements = match turn % 3 {
                            0 => vec![format!(
                                "UPDATE token SET pos = {pos}, color = {color} WHERE name = {name} \
                                 AND NOT EXISTS (SELECT 1 FROM token WHERE pos = {pos})"
                            )],
                            1 => vec![format!(
                                "UPDATE token SET color = {color} WHERE name = {name}"
                            )],
                            // Away and back under the same name, elsewhere.
                            _ => vec![
                                format!("DELETE FROM token WHERE name = {name} OR pos = {pos}"),
                                format!(
                                    "INSERT INTO token SELECT {pos} + 1000 * g, g, {color} \
                                     FROM generate_series(1, {TOKENS}) g \
                                     WHERE g NOT IN (SELECT name FROM token)"
                                ),
                            ],
                        };
                        let result = if statements.len() == 1 {
                            done(client.batch_execute(&statements[0]).await, &statements[0])
                        } else if level == "READ COMMITTED" {
                            // Between its statements others may insert what it deleted: skip.
                            true
                        } else {
                            match_unique(&client, &statements).await
                        };
                        moved += u32::from(result);
                    }
                    assert!(moved > 0, "nothing moved");
                })
            })
            .collect();
        for writer in writers {
            writer.await.expect("a writer ends in order");
        }
        over.store(true, Ordering::Relaxed);
        for reader in readers {
            reader.await.expect("a reader ends in order");
        }
    }
}

/// As [`transaction`], where two may want one free place: 23505 is a lost race too.
async fn match_unique(client: &Client, statements: &[String]) -> bool {
    let result = async {
        client.batch_execute("BEGIN").await?;
        for sql in statements {
            client.batch_execute(sql).await?;
        }
        client.batch_execute("COMMIT").await
    }
    .await;
    let Err(error) = result else { return true };
    client.batch_execute("ROLLBACK").await.expect("a rollback");
    sqlstate(&error) != "23505" && done(Err(error), &statements.join("; "))
}

#[tokio::test(flavor = "multi_thread")]
async fn hot_row() {
    const STOCK: i64 = 300;
    let server = Arc::new(Server::start().await);
    let admin = server.connect().await;
    admin
        .batch_execute(&format!(
            "CREATE TABLE stock (id int PRIMARY KEY, qty bigint NOT NULL CHECK (qty >= 0)); \
             INSERT INTO stock VALUES (1, {STOCK})"
        ))
        .await
        .expect("the stock");
    let sellers: Vec<_> = (0..12)
        .map(|me| {
            let server = server.clone();
            tokio::spawn(async move {
                let client = at_level(&server, LEVELS[me % 3]).await;
                let mut tally = Tally::default();
                let explicit = me % 2 == 0;
                while tally.refused == 0 {
                    let sell = "UPDATE stock SET qty = qty - 1 WHERE id = 1 AND qty > 0";
                    let result = async {
                        if explicit {
                            client.batch_execute("BEGIN").await?;
                        }
                        let changed = client.execute(sell, &[]).await?;
                        if explicit {
                            client.batch_execute("COMMIT").await?;
                        }
                        Ok(changed)
                    }
                    .await;
                    match result {
                        Ok(0) => tally.refused += 1,
                        Ok(_) => tally.sold += 1,
                        Err(error) => {
                            done(Err(error), sell);
                            if explicit {
                                client.batch_execute("ROLLBACK").await.expect("a rollback");
                            }
                        }
                    }
                }
                tally
            })
        })
        .collect();
    let mut tally = Tally::default();
    for seller in sellers {
        tally += seller.await.expect("a seller ends in order");
    }
    let left: i64 = admin
        .query_one("SELECT qty FROM stock", &[])
        .await
        .unwrap()
        .get(0);
    hot::check(STOCK, left, tally).unwrap();
    assert_eq!(tally.sold, STOCK, "sold out");
}

#[tokio::test(flavor = "multi_thread")]
async fn children() {
    for level in LEVELS {
        let server = Arc::new(Server::start().await);
        let admin = server.connect().await;
        admin
            .batch_execute(
                "CREATE TABLE parent (id int PRIMARY KEY); \
                 CREATE TABLE child (id serial PRIMARY KEY, parent_id int NOT NULL REFERENCES parent); \
                 CREATE INDEX by_parent ON child (parent_id)",
            )
            .await
            .expect("the tables");
        let clients: Vec<_> = (0..6u64)
            .map(|me| {
                let server = server.clone();
                tokio::spawn(async move {
                    let client = at_level(&server, level).await;
                    let mut rng = Rng::new(me);
                    let (mut added, mut refused) = (0, 0);
                    for _ in 0..150 {
                        let id = rng.below(4);
                        let sql = match rng.below(4) {
                            0 => format!("INSERT INTO parent VALUES ({id}) ON CONFLICT DO NOTHING"),
                            1 => format!("DELETE FROM parent WHERE id = {id}"),
                            2 => format!("DELETE FROM child WHERE parent_id = {id}"),
                            _ => format!("INSERT INTO child (parent_id) VALUES ({id})"),
                        };
                        match client.batch_execute(&sql).await {
                            Ok(()) => added += 1,
                            Err(error) if sqlstate(&error) == "23503" => refused += 1,
                            Err(error) => {
                                done(Err(error), &sql);
                            }
                        }
                    }
                    (added, refused)
                })
            })
            .collect();
        let (mut added, mut refused) = (0, 0);
        for client in clients {
            let (a, r) = client.await.expect("a client ends in order");
            (added, refused) = (added + a, refused + r);
        }
        assert!(added > 0 && refused > 0, "{added} done, {refused} refused");
        let orphans = "SELECT count(*) FROM child c LEFT JOIN parent p ON p.id = c.parent_id WHERE p.id IS NULL";
        assert_eq!(
            numbers(&admin, orphans).await.unwrap(),
            [0],
            "{level}: orphans"
        );
    }
}

/// A statement that is its own transaction and loses a race is run again by the server, which counts it; the client gets what is right then,
/// and no error.
#[tokio::test(flavor = "multi_thread")]
async fn statements_alone_are_run_again() {
    if common::on_postgres() {
        return;
    }
    let http = common::free_port();
    let address = format!("127.0.0.1:{http}");
    let server = Server::start_with(&[("CANON_HTTP", &address)]).await;
    let (one, other) = (server.connect().await, server.connect().await);
    for c in [&one, &other] {
        runs(c, "SET statement_timeout = '60s'").await;
    }
    let setup = "CREATE TABLE t (id int PRIMARY KEY, n int NOT NULL); INSERT INTO t SELECT g, 0 FROM generate_series(1, 3) g;
        CREATE TABLE u (n int NOT NULL); INSERT INTO u VALUES (1)";
    one.batch_execute(setup).await.unwrap();
    let count = |name: &str| -> u64 {
        let (_, page) = helpers::get(http, "/metrics");
        let n = page.lines().find_map(|l| l.strip_prefix(name));
        n.and_then(|n| n.trim().parse().ok()).expect("the count")
    };
    let all = "SELECT string_agg(n::text, ' ' ORDER BY id) FROM t";
    for (level, n) in [("REPEATABLE READ", 5), ("SERIALIZABLE", 6)] {
        // It has read `u` and waits for row 2 when `u` changes, so that its snapshot cannot move.
        let client = at_level(&server, level).await;
        runs(&client, "SET statement_timeout = '60s'").await;
        runs(
            &one,
            "UPDATE u SET n = 1; BEGIN; UPDATE t SET n = 100 WHERE id = 2",
        )
        .await;
        let statement = format!("UPDATE t SET n = {n} WHERE id <= (SELECT sum(n) + 1 FROM u)");
        let release = async {
            waiting(&server, 1).await;
            runs(&one, "UPDATE u SET n = 2; COMMIT").await;
        };
        let (rows, ()) = tokio::join!(client.execute(&statement, &[]), release);
        assert_eq!(rows.expect("it is run again"), 3, "{level}");
        assert_eq!(
            helpers::one(&client, all).await,
            format!("{n} {n} {n}"),
            "{level}"
        );
    }
    for level in LEVELS {
        // It holds row 1 and waits for row 2; when it goes on, it closes a circle at row 3.
        let client = at_level(&server, level).await;
        runs(&client, "SET statement_timeout = '60s'").await;
        let before = count("canon_retries_total");
        runs(&one, "UPDATE t SET n = 0").await;
        runs(&one, "BEGIN; UPDATE t SET n = 10 WHERE id = 2").await;
        runs(&other, "BEGIN; UPDATE t SET n = 20 WHERE id = 3").await;
        let release = async {
            waiting(&server, 1).await;
            let circle = async { runs(&other, "UPDATE t SET n = 30 WHERE id = 1; COMMIT").await };
            let go = async {
                waiting(&server, 2).await;
                runs(&one, "COMMIT").await;
            };
            tokio::join!(circle, go);
        };
        let statement = "UPDATE t SET n = n + 1";
        let (rows, ()) = tokio::join!(client.execute(statement, &[]), release);
        assert_eq!(rows.expect("it is run again"), 3, "{level}");
        assert_eq!(helpers::one(&client, all).await, "31 11 21", "{level}");
        assert!(count("canon_retries_total") > before, "{level}");
    }
}

async fn runs(client: &Client, sql: &str) {
    client.batch_execute(sql).await.expect(sql);
}

/// Waits until so many sessions wait for a lock.
async fn waiting(server: &Server, sessions: usize) {
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    helpers::until(&server.connect().await, sql, &sessions.to_string()).await;
}
