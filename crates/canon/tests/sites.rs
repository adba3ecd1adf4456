//! Sites: replicas that run changes of rows themselves and have the primary certify them, over real processes.

mod common;
#[path = "sites/features.rs"]
mod features;
#[path = "replication/helpers.rs"]
#[allow(dead_code)]
mod helpers;
#[path = "history/mod.rs"]
#[allow(dead_code)]
mod history;
#[path = "sites/kills.rs"]
mod kills;
#[path = "sites/numbers.rs"]
mod numbers;
#[path = "clients/programs.rs"]
mod programs;
#[path = "sites/promotions.rs"]
mod promotions;
#[path = "sites/rights.rs"]
mod rights;
#[path = "sites/three.rs"]
mod three;

use common::Server;
use helpers::{one, refused, replica_with, rows, skip, until};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_postgres::{Client, NoTls};
use workload::list_append::{Level, Report};

/// A site of this primary.
async fn site(primary: &Server, name: &str) -> Server {
    replica_with(primary, name, &[("CANON_SITE", "true")]).await
}

/// A session that runs everything where it is, or gets 25006.
async fn stays(server: &Server) -> Client {
    let c = server.connect().await;
    rows(&c, "SET canon.forward = off").await;
    c
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_run_at_a_site_and_are_seen_everywhere() {
    if skip() {
        return;
    }
    let primary = Server::start().await;
    let p = primary.connect().await;
    rows(
        &p,
        "CREATE TABLE t (k int PRIMARY KEY, v int NOT NULL); CREATE TABLE log (what text)",
    )
    .await;
    let here = site(&primary, "sydney").await;
    let c = stays(&here).await;
    until(
        &c,
        "SELECT count(*) FROM pg_class WHERE relname = 'log'",
        "1",
    )
    .await;
    rows(&c, "INSERT INTO t VALUES (1, 10), (2, 20)").await;
    assert_eq!(
        one(&c, "SELECT sum(v) FROM t").await,
        "30",
        "its own, at once"
    );
    assert_eq!(one(&p, "SELECT sum(v) FROM t").await, "30");
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        rows(&c, &format!("BEGIN ISOLATION LEVEL {level}")).await;
        assert_eq!(one(&c, "SELECT v FROM t WHERE k = 1").await, "10");
        rows(&c, "UPDATE t SET v = v + 5 WHERE k = 2").await;
        rows(&c, "INSERT INTO log VALUES ('a'), ('b')").await;
        rows(&c, "DELETE FROM t WHERE k = 1").await;
        rows(&c, "INSERT INTO t VALUES (1, 10)").await;
        // What is not committed is here alone.
        assert_eq!(one(&p, "SELECT count(*) FROM log").await, "0");
        rows(&c, "COMMIT").await;
        assert_eq!(one(&p, "SELECT count(*) FROM log").await, "2");
        rows(&p, "DELETE FROM log").await;
    }
    assert_eq!(one(&p, "SELECT v FROM t WHERE k = 2").await, "30");
    let (code, _) = refused(&c, "INSERT INTO t VALUES (1, 1)").await;
    assert_eq!(code, "23505");
}

async fn ready(primary: &Client, sites: &[&Server]) {
    let at = one(primary, "SELECT pg_current_wal_lsn()").await;
    for s in sites {
        let c = s.connect().await;
        rows(&c, "SET statement_timeout = '60s'").await;
        assert_eq!(one(&c, &format!("WAIT FOR LSN '{at}'")).await, "success");
    }
}

/// Runs it until it is not lost to another transaction.
async fn insist(c: &Client, sql: &str) {
    for _ in 0..200 {
        match c.simple_query(sql).await {
            Ok(_) => return,
            Err(e) if common::sqlstate(&e) == "40001" => {
                _ = c.simple_query("ROLLBACK").await;
            }
            Err(e) => panic!("{sql}: {e:?}"),
        }
    }
    panic!("{sql} is lost again and again");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_that_change_a_row_at_two_sites_one_is_told_which() {
    if skip() {
        return;
    }
    let primary = Server::start().await;
    let p = primary.connect().await;
    rows(
        &p,
        "CREATE TABLE t (k int PRIMARY KEY, v int NOT NULL); INSERT INTO t VALUES (7, 0)",
    )
    .await;
    let (a, b) = (site(&primary, "a").await, site(&primary, "b").await);
    ready(&p, &[&a, &b]).await;
    let (a, b) = (stays(&a).await, stays(&b).await);
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        for c in [&a, &b] {
            rows(c, &format!("BEGIN ISOLATION LEVEL {level}")).await;
            rows(c, "UPDATE t SET v = v + 1 WHERE k = 7").await;
        }
        rows(&a, "COMMIT").await;
        let e = b.simple_query("COMMIT").await.expect_err("it came second");
        let e = e.as_db_error().expect("the server's");
        assert_eq!(e.code().code(), "40001");
        assert_eq!(e.table(), Some("t"));
        let detail = e.detail().unwrap_or_default();
        assert!(detail.contains("(k)=(7)"), "{detail}");
        // The refusal comes when what won is here: the same again succeeds.
        rows(&b, &format!("BEGIN ISOLATION LEVEL {level}")).await;
        rows(&b, "UPDATE t SET v = v + 1 WHERE k = 7").await;
        rows(&b, "COMMIT").await;
        ready(&p, &[]).await;
        insist(&a, "UPDATE t SET v = v WHERE k = 7").await;
    }
    assert_eq!(one(&p, "SELECT v FROM t").await, "4");
    // A statement alone is run again by the server.
    let all = (0..25).map(|_| async {
        rows(&a, "UPDATE t SET v = v + 1 WHERE k = 7").await;
        rows(&b, "UPDATE t SET v = v + 1 WHERE k = 7").await;
    });
    futures::future::join_all(all).await;
    assert_eq!(one(&p, "SELECT v FROM t").await, "54");
}

#[tokio::test(flavor = "multi_thread")]
async fn constraints_hold_across_sites() {
    if skip() {
        return;
    }
    let primary = Server::start().await;
    let p = primary.connect().await;
    rows(
        &p,
        "CREATE TABLE parent (k int PRIMARY KEY, u int UNIQUE);
         CREATE TABLE child (k int PRIMARY KEY, p int REFERENCES parent);
         CREATE TABLE gone (k int PRIMARY KEY, p int REFERENCES parent ON DELETE CASCADE);
         INSERT INTO parent VALUES (1, 1), (2, 2), (3, 3)",
    )
    .await;
    let (a, b) = (site(&primary, "a").await, site(&primary, "b").await);
    ready(&p, &[&a, &b]).await;
    let (a, b) = (stays(&a).await, stays(&b).await);
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let begin = format!("BEGIN ISOLATION LEVEL {level}");
        // The same unique key, of two rows.
        for (c, k) in [(&a, 10), (&b, 11)] {
            rows(c, &begin).await;
            rows(c, &format!("INSERT INTO parent VALUES ({k}, 10)")).await;
        }
        rows(&a, "COMMIT").await;
        assert_eq!(refused(&b, "COMMIT").await.0, "40001");
        let again = refused(&b, "INSERT INTO parent VALUES (11, 10)").await;
        assert_eq!(again.0, "23505", "it is here by now");
        rows(
            &b,
            "INSERT INTO parent VALUES (12, 10) ON CONFLICT (u) DO UPDATE SET u = NULL",
        )
        .await;
        rows(&a, "DELETE FROM parent WHERE k = 10").await;
        // A child of a parent that goes.
        rows(&a, &begin).await;
        rows(&a, "DELETE FROM parent WHERE k = 3").await;
        rows(&b, &begin).await;
        rows(&b, "INSERT INTO child VALUES (1, 3)").await;
        rows(&a, "COMMIT").await;
        assert_eq!(refused(&b, "COMMIT").await.0, "40001");
        assert_eq!(
            refused(&b, "INSERT INTO child VALUES (1, 3)").await.0,
            "23503"
        );
        // A parent that goes, of which there is a child by then.
        for (table, parent) in [("child", 2), ("gone", 1)] {
            rows(&b, &begin).await;
            rows(&b, &format!("DELETE FROM parent WHERE k = {parent}")).await;
            rows(&a, &format!("INSERT INTO {table} VALUES (5, {parent})")).await;
            assert_eq!(refused(&b, "COMMIT").await.0, "40001", "{table}");
            rows(&p, &format!("DELETE FROM {table}")).await;
        }
        rows(&p, "INSERT INTO parent VALUES (3, 3)").await;
        let at = one(&p, "SHOW canon.commit_token").await;
        for c in [&a, &b] {
            rows(c, &format!("SET canon.min_token = '{at}'")).await;
        }
    }
    assert_eq!(one(&p, "SELECT count(*) FROM parent").await, "3");
}

/// Keys that are looked at when the transaction ends: at its site, and at its position among the commits of all.
#[tokio::test(flavor = "multi_thread")]
async fn deferred_keys_hold_across_sites() {
    if skip() {
        return;
    }
    let primary = Server::start().await;
    let p = primary.connect().await;
    rows(
        &p,
        "CREATE TABLE late (k int PRIMARY KEY DEFERRABLE, u int UNIQUE DEFERRABLE INITIALLY DEFERRED);
         INSERT INTO late VALUES (1, 1), (2, 2)",
    )
    .await;
    let (a, b) = (site(&primary, "a").await, site(&primary, "b").await);
    ready(&p, &[&a, &b]).await;
    let (a, b) = (stays(&a).await, stays(&b).await);
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let begin = format!("BEGIN ISOLATION LEVEL {level}");
        // Keys change places, by two statements and by one.
        rows(&a, &begin).await;
        rows(&a, "UPDATE late SET u = 3 - u WHERE k = 1").await;
        rows(&a, "UPDATE late SET u = 3 - u WHERE k = 2").await;
        rows(&a, "UPDATE late SET k = 3 - k").await;
        rows(&a, "COMMIT").await;
        assert_eq!(one(&a, "SELECT sum(k * u) FROM late").await, "5");
        // One key of two rows: of one transaction, and of two at two sites.
        rows(&a, &begin).await;
        rows(&a, "INSERT INTO late VALUES (3, 1)").await;
        assert_eq!(refused(&a, "COMMIT").await.0, "23505");
        assert_eq!(refused(&a, "UPDATE late SET k = 7").await.0, "23505");
        for (c, k) in [(&a, 10), (&b, 11)] {
            rows(c, &begin).await;
            rows(c, &format!("INSERT INTO late VALUES ({k}, 10)")).await;
        }
        rows(&a, "COMMIT").await;
        // The other row may have come by now.
        let lost = refused(&b, "COMMIT").await.0;
        assert!(["40001", "23505"].contains(&&*lost), "{lost}");
        for (c, u) in [(&a, 12), (&b, 13)] {
            rows(c, &begin).await;
            rows(c, &format!("INSERT INTO late VALUES (12, {u})")).await;
        }
        rows(&b, "COMMIT").await;
        let lost = refused(&a, "COMMIT").await.0;
        assert!(["40001", "23505"].contains(&&*lost), "{lost}");
        rows(&p, "DELETE FROM late WHERE k > 2").await;
        let at = one(&p, "SHOW canon.commit_token").await;
        for c in [&a, &b] {
            rows(c, &format!("SET canon.min_token = '{at}'")).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_site_does_not_run_goes_to_the_primary() {
    if skip() {
        return;
    }
    let primary = Server::start().await;
    let p = primary.connect().await;
    let here = site(&primary, "here").await;
    let c = here.connect().await;
    rows(&c, "CREATE TABLE t (k serial PRIMARY KEY, v int)").await;
    rows(&c, "INSERT INTO t (v) VALUES (1), (2)").await;
    rows(&c, "BEGIN ISOLATION LEVEL READ COMMITTED").await;
    rows(&c, "UPDATE t SET v = 10 WHERE v = 1").await;
    rows(&c, "SELECT * FROM t WHERE v = 2 FOR UPDATE").await;
    rows(&c, "COMMIT").await;
    rows(
        &c,
        "BEGIN; SELECT pg_advisory_xact_lock(1); UPDATE t SET v = 20 WHERE v = 2; COMMIT",
    )
    .await;
    rows(&c, "SELECT setval('t_k_seq', 100)").await;
    assert_eq!(
        one(&c, "INSERT INTO t (v) VALUES (3) RETURNING k").await,
        "101"
    );
    assert_eq!(one(&p, "SELECT sum(v) FROM t").await, "33");
    // What was changed here before goes along.
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        rows(&c, &format!("BEGIN ISOLATION LEVEL {level}")).await;
        rows(
            &c,
            "UPDATE t SET v = v + 1 WHERE v = 3; DELETE FROM t WHERE v = 20",
        )
        .await;
        rows(&c, "SELECT pg_advisory_xact_lock(1)").await;
        assert_eq!(
            one(&c, "INSERT INTO t (v) VALUES (20) RETURNING v").await,
            "20"
        );
        assert_eq!(
            one(&c, "SELECT count(*) FROM t").await,
            "3",
            "its own changes, too"
        );
        rows(&c, "UPDATE t SET v = v - 1 WHERE v = 4").await;
        rows(&c, "COMMIT").await;
    }
    rows(&p, "SET statement_timeout = '60s'").await;
    rows(&c, "BEGIN ISOLATION LEVEL SERIALIZABLE").await;
    rows(&c, "UPDATE t SET v = 4 WHERE v = 3").await;
    rows(&p, "UPDATE t SET v = 5 WHERE v = 3").await;
    let lost = refused(&c, "CREATE TABLE u ()").await;
    assert_eq!(lost.0, "40001", "it is another row by now");
    rows(&c, "ROLLBACK").await;
    rows(&p, "UPDATE t SET v = 3 WHERE v = 5").await;
    // A block on an older state loses, as it should.
    ready(&p, &[&here]).await;
    rows(&c, "BEGIN ISOLATION LEVEL SERIALIZABLE").await;
    rows(&c, "SAVEPOINT s; UPDATE t SET v = v").await;
    assert_eq!(refused(&c, "CREATE TABLE u ()").await.0, "0A000");
    rows(&c, "ROLLBACK").await;
    let s = stays(&here).await;
    for sql in [
        "CREATE TABLE u ()",
        "SELECT setval('t_k_seq', 200)",
        "NOTIFY x",
        "BEGIN ISOLATION LEVEL READ COMMITTED; UPDATE t SET v = 1; COMMIT",
        "SELECT * FROM t FOR UPDATE",
    ] {
        let (code, why) = refused(&s, sql).await;
        assert_eq!(code, "25006", "{sql}: {why}");
        rows(&s, "ROLLBACK").await;
    }
    // READ COMMITTED blocks run here where that is wanted.
    rows(&s, "SET canon.site_read_committed = local").await;
    rows(
        &s,
        "BEGIN ISOLATION LEVEL READ COMMITTED; UPDATE t SET v = v + 1; COMMIT",
    )
    .await;
    assert_eq!(one(&p, "SELECT sum(v) FROM t").await, "36");
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_are_locked_at_a_site_are_unchanged_at_the_commit() {
    if skip() {
        return;
    }
    let primary = Server::start().await;
    let p = primary.connect().await;
    rows(
        &p,
        "CREATE TABLE doctors (k int PRIMARY KEY, on_call bool); INSERT INTO doctors VALUES (1, true), (2, true)",
    )
    .await;
    let (a, b) = (site(&primary, "a").await, site(&primary, "b").await);
    ready(&p, &[&a, &b]).await;
    let (a, b) = (stays(&a).await, stays(&b).await);
    // Write skew, which REPEATABLE READ allows, but not where what was read is locked.
    for (c, k) in [(&a, 1), (&b, 2)] {
        rows(c, "BEGIN ISOLATION LEVEL REPEATABLE READ").await;
        rows(c, "SELECT * FROM doctors WHERE on_call FOR SHARE").await;
        rows(
            c,
            &format!("UPDATE doctors SET on_call = false WHERE k = {k}"),
        )
        .await;
    }
    rows(&a, "COMMIT").await;
    assert_eq!(refused(&b, "COMMIT").await.0, "40001");
    assert_eq!(
        one(&p, "SELECT count(*) FROM doctors WHERE on_call").await,
        "1"
    );
}

/// A client that stops waiting is told how to ask what has become of its transaction.
#[tokio::test(flavor = "multi_thread")]
async fn an_outcome_that_is_not_known_can_be_asked_for() {
    if skip() {
        return;
    }
    let mut primary = Server::start().await;
    let p = primary.connect().await;
    rows(&p, "CREATE TABLE t (k int PRIMARY KEY)").await;
    let here = site(&primary, "here").await;
    ready(&p, &[&here]).await;
    let c = stays(&here).await;
    rows(&c, "SET statement_timeout = '2s'").await;
    primary.kill();
    let e = c.simple_query("INSERT INTO t VALUES (1)").await;
    let e = e.expect_err("nothing decides it");
    let e = e.as_db_error().expect("the server's");
    assert_eq!(e.code().code(), "40003");
    let token = e
        .detail()
        .and_then(|d| d.strip_prefix("Transaction token: "));
    let ask = format!("SELECT canon_txn_status('{}')", token.expect("a token"));
    primary.launch();
    primary.ready().await;
    let p = primary.connect().await;
    let became = one(&p, &ask).await;
    let there = one(&p, "SELECT count(*) FROM t").await;
    let wanted = if there == "1" { "committed" } else { "aborted" };
    assert_eq!(became, wanted);
    assert_eq!(one(&p, &ask).await, wanted, "and it stays so");
}

/// Inserts a row at a server without an answer; how to go away meanwhile.
async fn insert_and_wait(server: &Server, key: i32, settings: &str) -> tokio::task::AbortHandle {
    let config = server.config();
    let (client, connection) = config.connect(NoTls).await.expect("a connection");
    let connection = tokio::spawn(connection).abort_handle();
    rows(&client, &format!("SET canon.forward = off; {settings}")).await;
    let insert = format!("INSERT INTO t VALUES ({key})");
    tokio::spawn(async move { client.simple_query(&insert).await.is_ok() });
    connection
}

/// The client goes away while its COMMIT waits for the primary: its session ends where `client_connection_check_interval` is above 0.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_away_while_commit_waits_leaves_no_session() {
    if skip() {
        return;
    }
    let mut primary = Server::start().await;
    let p = primary.connect().await;
    rows(&p, "CREATE TABLE t (k int PRIMARY KEY)").await;
    let here = site(&primary, "here").await;
    ready(&p, &[&here]).await;
    let watcher = here.connect().await;
    primary.kill();
    let asks = insert_and_wait(&here, 1, "SET client_connection_check_interval = '1s'").await;
    let stays = insert_and_wait(&here, 2, "").await;
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'CommitVerdict'";
    until(&watcher, waiting, "2").await;
    asks.abort();
    stays.abort();
    until(&watcher, waiting, "1").await;
    let left = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'INSERT%(1)'";
    assert_eq!(one(&watcher, left).await, "0", "it was the one that asked");
}

/// READ COMMITTED takes a snapshot for each statement. What was seen under a lock is not overwritten by what came since.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_was_locked_is_replaced_as_it_was_seen() {
    if skip() {
        return;
    }
    let primary = Server::start().await;
    let p = primary.connect().await;
    rows(
        &p,
        "CREATE TABLE t (k int PRIMARY KEY, v int NOT NULL); INSERT INTO t VALUES (1, 10)",
    )
    .await;
    let here = site(&primary, "here").await;
    ready(&p, &[&here]).await;
    let (c, other) = (stays(&here).await, stays(&here).await);
    rows(&c, "SET canon.site_read_committed = local").await;
    let look = "SELECT v FROM t WHERE k = 1";
    rows(&c, "BEGIN ISOLATION LEVEL READ COMMITTED").await;
    assert_eq!(one(&c, &format!("{look} FOR UPDATE")).await, "10");
    rows(&p, "UPDATE t SET v = 11 WHERE k = 1").await;
    until(&other, look, "11").await;
    rows(&c, "UPDATE t SET v = 10 + 1 WHERE k = 1").await;
    assert_eq!(
        refused(&c, "COMMIT").await.0,
        "40001",
        "an addition is lost"
    );
    rows(
        &c,
        "BEGIN ISOLATION LEVEL READ COMMITTED; SELECT v FROM t WHERE k = 1 FOR UPDATE;
         UPDATE t SET v = v + 1 WHERE k = 1; UPDATE t SET v = v + 1 WHERE k = 1; COMMIT",
    )
    .await;
    assert_eq!(one(&p, look).await, "13");
}

/// As at the primary, a statement alone waits for a row that another transaction has locked.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_loses_at_a_site_waits_at_the_primary() {
    if skip() {
        return;
    }
    let primary = Server::start().await;
    let p = primary.connect().await;
    rows(
        &p,
        "CREATE TABLE t (k int PRIMARY KEY, v int NOT NULL); INSERT INTO t VALUES (7, 0)",
    )
    .await;
    let here = site(&primary, "here").await;
    ready(&p, &[&here]).await;
    let holder = primary.connect().await;
    rows(&holder, "BEGIN; UPDATE t SET v = 1 WHERE k = 7").await;
    let c = here.connect().await;
    let loses = tokio::spawn(async move { rows(&c, "UPDATE t SET v = v + 1 WHERE k = 7").await });
    until(
        &p,
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'",
        "1",
    )
    .await;
    rows(&holder, "COMMIT").await;
    loses.await.expect("it ends");
    assert_eq!(one(&p, "SELECT v FROM t").await, "2");
}

/// A line to this server, over which so many bytes a second go to it. It answers as fast as it likes.
async fn slow_line(server: &Server, bytes: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let at = listener.local_addr().expect("an address").to_string();
    let to = format!("{}:{}", server.host, server.port);
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let Ok(far) = TcpStream::connect(&to).await else {
                continue;
            };
            tokio::spawn(relay(near, far, bytes));
        }
    });
    at
}

async fn relay(near: TcpStream, far: TcpStream, bytes: usize) {
    const STEP: Duration = Duration::from_millis(50);
    let (mut asks, mut hears) = near.into_split();
    let (mut answers, mut reads) = far.into_split();
    let back = tokio::spawn(async move { tokio::io::copy(&mut answers, &mut hears).await });
    let mut piece = vec![0; bytes / 20];
    while let Ok(n) = asks.read(&mut piece).await {
        if n == 0 || reads.write_all(&piece[..n]).await.is_err() {
            break;
        }
        tokio::time::sleep(STEP.mul_f64(n as f64 / piece.len() as f64)).await;
    }
    back.abort();
}

/// A large candidate is long on its way over a slow line, which is not lost for that.
#[tokio::test(flavor = "multi_thread")]
async fn a_candidate_that_is_long_on_its_way_arrives() {
    if skip() {
        return;
    }
    let primary = Server::start().await;
    let p = primary.connect().await;
    rows(&p, "CREATE TABLE t (k int PRIMARY KEY, what text)").await;
    // A megabyte takes longer than a site bears silence.
    let line = slow_line(&primary, 200_000).await;
    let env = [
        ("CANON_SITE", "true"),
        ("CANON_REPLICA_OF", line.as_str()),
        // Through memory nothing would take its time.
        ("CANON_SHARED_MEMORY", "false"),
    ];
    let here = replica_with(&primary, "here", &env).await;
    ready(&p, &[&here]).await;
    let c = stays(&here).await;
    rows(&c, "SET statement_timeout = '60s'").await;
    rows(
        &c,
        "INSERT INTO t SELECT n, repeat('x', 1000) FROM generate_series(1, 1000) n",
    )
    .await;
    assert_eq!(one(&p, "SELECT count(*) FROM t").await, "1000");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_right_that_is_taken_away_is_gone_at_the_commit() {
    if skip() {
        return;
    }
    let primary = Server::start().await;
    let p = primary.connect().await;
    rows(
        &p,
        "CREATE TABLE t (k int PRIMARY KEY); CREATE ROLE clerk; GRANT INSERT ON t TO clerk",
    )
    .await;
    let here = site(&primary, "here").await;
    ready(&p, &[&here]).await;
    let c = stays(&here).await;
    rows(&c, "SET ROLE clerk").await;
    rows(
        &c,
        "BEGIN ISOLATION LEVEL REPEATABLE READ; INSERT INTO t VALUES (1)",
    )
    .await;
    rows(&p, "REVOKE INSERT ON t FROM clerk").await;
    assert_eq!(refused(&c, "COMMIT").await.0, "40001");
    assert_eq!(refused(&c, "INSERT INTO t VALUES (1)").await.0, "42501");
    assert_eq!(one(&p, "SELECT count(*) FROM t").await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_site_is_a_replica_again_when_the_flag_is_taken_away() {
    if skip() {
        return;
    }
    let primary = Server::start().await;
    let p = primary.connect().await;
    rows(&p, "CREATE TABLE t (k int PRIMARY KEY)").await;
    let of = format!("{}:{}", primary.host, primary.port);
    let common = [
        ("CANON_REPLICA_OF", of.as_str()),
        ("CANON_NODE_NAME", "here"),
    ];
    let mut here = replica_with(&primary, "here", &[("CANON_SITE", "true")]).await;
    ready(&p, &[&here]).await;
    rows(&stays(&here).await, "INSERT INTO t VALUES (1)").await;
    assert_eq!(
        one(&here.connect().await, "SHOW canon.read_consistency").await,
        "session"
    );
    here.kill();
    here.set_env(&common);
    here.launch();
    here.ready().await;
    let c = stays(&here).await;
    assert_eq!(refused(&c, "INSERT INTO t VALUES (2)").await.0, "25006");
    assert_eq!(one(&c, "SHOW canon.read_consistency").await, "strong");
    rows(&here.connect().await, "INSERT INTO t VALUES (2)").await;
    here.kill();
    here.set_env(&[&common[..], &[("CANON_SITE", "true")]].concat());
    here.launch();
    here.ready().await;
    rows(&stays(&here).await, "INSERT INTO t VALUES (3)").await;
    assert_eq!(one(&p, "SELECT count(*) FROM t").await, "3");
}

/// A run of random transactions at the primary and at two sites.
async fn history(level: &'static str, seed: u64, env: &[(&str, &str)]) -> (Report, usize) {
    let primary = Server::start_with(env).await;
    let all = [&[("CANON_SITE", "true")], env].concat();
    let one = replica_with(&primary, "one", &all).await;
    let two = replica_with(&primary, "two", &all).await;
    let servers = [primary, one, two].map(Arc::new);
    match level {
        // What a node orders is what ran there.
        "REPEATABLE READ" => history::run_at_sites(&servers, level, seed).await,
        _ => history::run_on(&servers, level, seed).await,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn serializable_histories_across_sites_are_strictly_so() {
    if !skip() {
        let found = history("SERIALIZABLE", 1, &[]).await;
        history::assert_keeps("SERIALIZABLE", Level::Serializable, found);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn repeatable_read_across_sites_is_snapshot_isolation() {
    if !skip() {
        let found = history("REPEATABLE READ", 1, &[]).await;
        history::assert_keeps("REPEATABLE READ", Level::Snapshot, found);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn read_committed_across_sites() {
    if !skip() {
        let found = history("READ COMMITTED", 1, &[]).await;
        history::assert_keeps("READ COMMITTED", Level::ReadCommitted, found);
    }
}

/// A primary that certifies without looking at what a candidate replaces is found out, at the weakest level that forbids it.
#[cfg(feature = "faults")]
#[tokio::test(flavor = "multi_thread")]
async fn planted_no_versions() {
    if skip() {
        return;
    }
    let planted = [("CANON_PLANTED", "candidate.no_versions")];
    for seed in 1..=history::ROUNDS {
        let (report, _) = history("REPEATABLE READ", seed, &planted).await;
        if let Some(found) = report.violations(Level::ParallelSnapshot).first() {
            println!("round {seed}: {found}");
            return;
        }
    }
    panic!("nothing found in {} rounds", history::ROUNDS);
}

/// Takes from a stock one by one, as long as ten are there. How many it has taken.
async fn take_all(c: Client) -> u64 {
    let take = "UPDATE stock SET qty = qty - 1 WHERE id = 1 AND qty >= 10";
    let mut taken = 0;
    loop {
        match c.execute(take, &[]).await {
            Ok(0) => return taken,
            Ok(n) => taken += n,
            Err(e) if common::sqlstate(&e) == "40001" => {}
            Err(e) => panic!("{take}: {e:?}"),
        }
    }
}

/// Clients at two sites take from one split value. How many they have taken of forty, and what is left.
async fn taken_at_two_sites(env: &[(&str, &str)]) -> (u64, String) {
    let primary = Server::start_with(env).await;
    let p = primary.connect().await;
    let stock = "CREATE TABLE stock (id int PRIMARY KEY, qty int NOT NULL CHECK (qty >= 0)) WITH (split = 'qty')";
    rows(&p, stock).await;
    rows(&p, "INSERT INTO stock VALUES (1, 40)").await;
    let (one_site, other) = (site(&primary, "one").await, site(&primary, "two").await);
    ready(&p, &[&one_site, &other]).await;
    let mut clients = Vec::new();
    for here in [&one_site, &other] {
        for _ in 0..4 {
            clients.push(tokio::spawn(take_all(stays(here).await)));
        }
    }
    let mut taken = 0;
    for c in clients {
        taken += c.await.expect("no error but 40001");
    }
    (taken, one(&p, "SELECT qty FROM stock").await)
}

/// The guard of a delta holds where the delta commits, whatever other sites have taken meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn guards_of_split_values_hold_across_sites() {
    if !skip() {
        assert_eq!(taken_at_two_sites(&[]).await, (31, "9".into()));
    }
}

/// Each of two sites takes one where ten are there, before the other one's is known. Whether each commits, and what is left.
async fn two_take_the_tenth(env: &[(&str, &str)]) -> (bool, bool, String) {
    let primary = Server::start_with(env).await;
    let p = primary.connect().await;
    let stock = "CREATE TABLE stock (id int PRIMARY KEY, qty int NOT NULL CHECK (qty >= 0)) WITH (split = 'qty')";
    rows(&p, stock).await;
    rows(&p, "INSERT INTO stock VALUES (1, 10)").await;
    let (one_site, other) = (site(&primary, "one").await, site(&primary, "two").await);
    ready(&p, &[&one_site, &other]).await;
    let (a, b) = (stays(&one_site).await, stays(&other).await);
    for c in [&a, &b] {
        rows(c, "BEGIN ISOLATION LEVEL REPEATABLE READ").await;
        let take = "UPDATE stock SET qty = qty - 1 WHERE id = 1 AND qty >= 10";
        assert_eq!(c.execute(take, &[]).await.expect("ten are there"), 1);
    }
    let mut committed = Vec::new();
    for c in [&a, &b] {
        committed.push(match c.simple_query("COMMIT").await {
            Ok(_) => true,
            Err(e) if common::sqlstate(&e) == "40001" => false,
            Err(e) => panic!("COMMIT: {e:?}"),
        });
    }
    let left = one(&p, "SELECT qty FROM stock").await;
    (committed[0], committed[1], left)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_holds_at_the_position_of_its_commit() {
    if !skip() {
        let found = two_take_the_tenth(&[]).await;
        assert_eq!(found, (true, false, "9".into()));
    }
}

/// A list has no guard, so no history of lists can find a primary that leaves guards to the site.
#[cfg(feature = "faults")]
#[tokio::test(flavor = "multi_thread")]
async fn planted_no_guards() {
    if !skip() {
        let planted = [("CANON_PLANTED", "candidate.no_guards")];
        let found = two_take_the_tenth(&planted).await;
        assert_eq!(found, (true, true, "8".into()), "the fault is not seen");
    }
}
