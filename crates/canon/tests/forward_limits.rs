//! Forwarding at its limits: more clients than connections to the primary, and a primary that is silent.

mod common;
#[allow(dead_code)]
#[path = "replication/helpers.rs"]
mod helpers;

use canon::{Cluster, Options};
use common::{PATIENCE, Server, sqlstate};
use helpers::{one, refused, replica_with, rows, skip, until};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

/// A configuration file with this section `[forward]`.
fn section(text: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("canon.toml");
    std::fs::write(&file, format!("[forward]\n{text}")).expect("written");
    (dir, file)
}

#[tokio::test(flavor = "multi_thread")]
async fn more_clients_than_connections_wait_and_are_told() {
    if skip() {
        return;
    }
    let p = Server::start().await;
    let (_dir, file) = section("connections = 2\nwait = \"300ms\"\n");
    let file = file.to_str().expect("a path");
    let hasty = replica_with(&p, "hasty", &[("CANON_CONFIG", file)]).await;
    let patient = replica_with(&p, "patient", &[("CANON_FORWARD_CONNECTIONS", "2")]).await;
    let c = p.connect().await;
    rows(&c, "CREATE TABLE t (a int PRIMARY KEY, v int NOT NULL)").await;
    rows(&c, "INSERT INTO t SELECT i, 0 FROM generate_series(1, 9) i").await;
    for (r, waits) in [(&hasty, false), (&patient, true)] {
        let (a, b, w) = (r.connect().await, r.connect().await, r.connect().await);
        for (s, id) in [(&a, 1), (&b, 2)] {
            rows(s, &format!("BEGIN; UPDATE t SET v = v + 1 WHERE a = {id}")).await;
        }
        // Who goes on has its own; who reads needs none.
        rows(&a, "UPDATE t SET v = v + 1 WHERE a = 3").await;
        assert_eq!(one(&w, "SELECT count(*) FROM t").await, "9");
        let add = "UPDATE t SET v = v + 1 WHERE a = 4";
        if waits {
            // The wait ends as others do, and else when there is one.
            rows(&w, "SET statement_timeout = '100ms'").await;
            assert_eq!(refused(&w, add).await.0, "57014");
            rows(&w, "RESET statement_timeout").await;
            let waiting = tokio::spawn(async move {
                rows(&w, add).await;
            });
            rows(&b, "ROLLBACK").await;
            waiting.await.expect("it was its turn");
        } else {
            let e = w.simple_query(add).await.expect_err("there are two");
            let e = e.as_db_error().expect("the replica says so");
            assert_eq!(e.code().code(), "53300");
            assert_eq!(
                e.message(),
                "all 2 connections of this replica to the primary are in use"
            );
            assert!(
                e.detail().is_some_and(|d| d.contains("Nothing was done")),
                "{e:?}"
            );
            assert!(
                e.hint().is_some_and(|h| h.contains("forward.connections")),
                "{e:?}"
            );
            // By the extended protocol, and inside of a block, which has failed then.
            let e = w.execute("UPDATE t SET v = $1 WHERE a = 4", &[&7i32]).await;
            assert_eq!(sqlstate(&e.expect_err("there are two")), "53300");
            rows(&w, "BEGIN; SELECT count(*) FROM t").await;
            assert_eq!(refused(&w, add).await.0, "53300");
            assert_eq!(refused(&w, "SELECT 1").await.0, "25P02");
            rows(&w, "ROLLBACK").await;
            rows(&b, "ROLLBACK").await;
            rows(&w, add).await;
        }
        rows(&a, "ROLLBACK").await;
    }
    assert_eq!(one(&c, "SELECT sum(v) FROM t").await, "2");
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_come_and_go_leave_no_connections_behind() {
    if skip() {
        return;
    }
    let p = Server::start_with(&[("CANON_MAX_CONNECTIONS", "12")]).await;
    let r = replica_with(&p, "replica", &[]).await;
    let c = p.connect().await;
    rows(&c, "CREATE TABLE t (a int PRIMARY KEY)").await;
    let watch = r.connect().await;
    let sessions = "SELECT count(*) FROM pg_stat_activity";
    let alone = one(&c, sessions).await;
    for i in 0..24 {
        let client = r.connect().await;
        rows(&client, &format!("INSERT INTO t VALUES ({i})")).await;
        drop(client);
        until(&watch, sessions, "1").await;
    }
    let left: usize = one(&c, sessions).await.parse().expect("a number");
    let alone: usize = alone.parse().expect("a number");
    assert!(left <= alone + 4, "{alone} sessions became {left}");
    // More than the primary has room for, all at a time, and none in the middle of something.
    let mut stay = Vec::new();
    for i in 24..48 {
        let client = r.connect().await;
        rows(&client, &format!("INSERT INTO t VALUES ({i})")).await;
        stay.push(client);
    }
    assert_eq!(one(&c, "SELECT count(*) FROM t").await, "48");
}

async fn connect(cluster: &Cluster, member: usize) -> Client {
    let (c, connection) = tokio_postgres::connect(&cluster.url(member), NoTls)
        .await
        .expect("a session");
    tokio::spawn(connection);
    c
}

/// What became of a transaction.
async fn outcome(c: &Client, token: &str) -> String {
    let sql = format!("SELECT canon_txn_status('{token}')");
    let deadline = Instant::now() + PATIENCE;
    loop {
        let word = match c.simple_query(&sql).await {
            Ok(all) => all
                .iter()
                .find_map(|m| match m {
                    SimpleQueryMessage::Row(r) => r.get(0).map(str::to_owned),
                    _ => None,
                })
                .expect("an answer"),
            Err(e) => sqlstate(&e),
        };
        if ["committed", "aborted"].contains(&word.as_str()) {
            return word;
        }
        assert!(Instant::now() < deadline, "{word}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_is_silent_is_given_up() {
    if skip() {
        return;
    }
    let (_dir, file) = section("silence = \"3s\"\n");
    let options = Options {
        log_level: Some("error".into()),
        settings: vec!["default_transaction_isolation=serializable".into()],
        config: Some(file),
        ..Options::default()
    };
    let cluster = tokio::task::block_in_place(|| Cluster::start(options, 1)).expect("a cluster");
    let (p, w) = (connect(&cluster, 0).await, connect(&cluster, 1).await);
    rows(&w, "CREATE TABLE t (a int PRIMARY KEY, v int NOT NULL)").await;
    rows(&w, "INSERT INTO t VALUES (1, 0), (2, 0)").await;
    // At work for longer than that, and waiting for a lock for longer: it is not silent, since the log says that it is there.
    rows(&w, "BEGIN; UPDATE t SET v = 1 WHERE a = 1").await;
    let other = connect(&cluster, 1).await;
    let blocked = tokio::spawn(async move {
        rows(&other, "UPDATE t SET v = v + 1 WHERE a = 1").await;
        other
    });
    rows(&w, "SELECT pg_sleep(8)").await;
    rows(&w, "COMMIT").await;
    let other = blocked.await.expect("it has waited");
    assert_eq!(one(&w, "SELECT v FROM t WHERE a = 1").await, "2");

    // Cut off in the middle of a transaction: it is rolled back, and the session goes on.
    rows(&w, "BEGIN; UPDATE t SET v = 5 WHERE a = 1").await;
    rows(&other, "BEGIN; UPDATE t SET v = 6 WHERE a = 2").await;
    cluster.stall(1);
    let (update, commit) = tokio::join!(
        w.simple_query("UPDATE t SET v = 7 WHERE a = 1"),
        other.simple_query("COMMIT")
    );
    let update = update.expect_err("nobody answers");
    assert_eq!(sqlstate(&update), "08006", "{update:?}");
    assert_eq!(refused(&w, "SELECT 1").await.0, "25P02");
    rows(&w, "ROLLBACK").await;
    assert_eq!(one(&w, "SELECT 1").await, "1");
    // What may have been committed can be asked for.
    let commit = commit.expect_err("nobody answers");
    assert_eq!(sqlstate(&commit), "40003", "{commit:?}");
    let detail = commit.as_db_error().and_then(|d| d.detail()).unwrap_or("");
    let token = detail.strip_prefix("Transaction token: ").expect("a token");
    // A statement on its own, while nobody answers, is the one or the other, too.
    let e = w.simple_query("UPDATE t SET v = 8 WHERE a = 1").await;
    let e = sqlstate(&e.expect_err("nobody answers"));
    assert!(["57P03", "40003"].contains(&&*e), "{e}");
    cluster.heal(1);
    let became = outcome(&other, token).await;
    let v = if became == "committed" { "6" } else { "0" };
    until(&p, "SELECT v FROM t WHERE a = 2", v).await;
    rows(&w, "UPDATE t SET v = 9 WHERE a = 1").await;
    assert_eq!(one(&w, "SELECT v FROM t WHERE a = 1").await, "9");
    tokio::task::block_in_place(|| drop(cluster));
}
