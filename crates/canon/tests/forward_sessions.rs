//! Many clients of a replica have one connection to the primary one after another: whose work it does, and what comes back of it.

mod common;
#[path = "replication/helpers.rs"]
#[allow(dead_code)]
mod helpers;
#[allow(dead_code)]
#[path = "wire_abuse/raw.rs"]
mod raw;

use common::peer::{Proof, RawPeer};
use common::{PATIENCE, Server, connect_to, sqlstate};
use helpers::{one, refused, replica_with, rows, skip, until};
use raw::{Raw, field, message, query};
use std::time::Instant;
use tokio_postgres::Client;

/// A primary, and a replica with one connection to it for all its clients, which is the superuser's now; and a role that may read.
struct Narrow {
    _dir: tempfile::TempDir,
    p: Server,
    r: Server,
    /// At the replica.
    superuser: Client,
}

impl Narrow {
    async fn start(config: &str) -> Narrow {
        let p = Server::start().await;
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("canon.toml");
        std::fs::write(&file, format!("{config}[forward]\nconnections = 1\n")).expect("written");
        let file = file.to_str().expect("a path");
        let r = replica_with(&p, "narrow", &[("CANON_CONFIG", file)]).await;
        let superuser = r.connect().await;
        rows(
            &superuser,
            "CREATE TABLE t (id int PRIMARY KEY, v int NOT NULL);
             INSERT INTO t VALUES (1, 0);
             CREATE ROLE worker LOGIN",
        )
        .await;
        assert_eq!(one(&superuser, "SELECT v FROM t").await, "0");
        Narrow {
            _dir: dir,
            p,
            r,
            superuser,
        }
    }

    /// A session of the role at the replica.
    async fn worker(&self) -> Client {
        let mut config = self.r.config();
        connect_to(config.user("worker")).await.expect("worker")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_cannot_move_leaves_nobody_elses_session() {
    if skip() {
        return;
    }
    let n = Narrow::start("snapshot_max_age = \"300ms\"\n").await;
    rows(&n.superuser, "GRANT SELECT ON t TO worker").await;
    assert_eq!(one(&n.superuser, "SELECT 1 FROM t").await, "1");
    let (w, later) = (n.worker().await, n.worker().await);
    rows(&w, "BEGIN; SELECT v FROM t").await;
    // The snapshot of one that began later is too old: so is the first one's.
    rows(&later, "BEGIN; SELECT v FROM t").await;
    let deadline = Instant::now() + PATIENCE;
    loop {
        match later.simple_query("SELECT v FROM t").await {
            Ok(_) => assert!(Instant::now() < deadline, "the snapshot stays"),
            Err(e) => break assert_eq!(sqlstate(&e), "72000"),
        }
    }
    let insert = "INSERT INTO t VALUES (2, 0)";
    assert_eq!(refused(&w, insert).await.0, "72000");
    rows(&w, "ROLLBACK").await;
    // It has no right to, whoever had the connection before.
    assert_eq!(refused(&w, insert).await.0, "42501");
    let prepared = w.execute("INSERT INTO t VALUES (3, $1)", &[&0i32]).await;
    assert_eq!(sqlstate(&prepared.expect_err("no right to")), "42501");
    assert_eq!(one(&n.superuser, "SELECT count(*) FROM t").await, "1");
}

/// CONNECTION LIMIT holds at each node. The primary does not count a replica's session, also while the session's transaction runs at the primary.
#[tokio::test(flavor = "multi_thread")]
async fn a_forwarded_session_counts_where_its_client_is() {
    if skip() {
        return;
    }
    let n = Narrow::start("").await;
    rows(
        &n.superuser,
        "GRANT SELECT, UPDATE ON t TO worker; ALTER ROLE worker CONNECTION LIMIT 1",
    )
    .await;
    let limit = "SELECT rolconnlimit FROM pg_roles WHERE rolname = 'worker'";
    until(&n.superuser, limit, "1").await;
    let w = n.worker().await;
    rows(&w, "BEGIN; UPDATE t SET v = 7 WHERE id = 1").await;
    let mut config = n.p.config();
    config.user("worker");
    let at_primary = connect_to(&config).await.expect("its first one there");
    let second = connect_to(&config)
        .await
        .map(|_| ())
        .expect_err("one too many");
    assert_eq!(sqlstate(&second), "53300");
    rows(&w, "COMMIT").await;
    assert_eq!(one(&at_primary, "SELECT v FROM t").await, "7");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_whose_role_is_gone_runs_as_nobody() {
    if skip() {
        return;
    }
    let n = Narrow::start("").await;
    let w = n.worker().await;
    rows(&n.superuser, "DROP ROLE worker").await;
    let insert = "INSERT INTO t VALUES (2, 0)";
    for _ in 0..3 {
        assert_eq!(refused(&w, insert).await.0, "28000");
        let prepared = w.execute("INSERT INTO t VALUES ($1, 0)", &[&3i32]).await;
        assert_eq!(sqlstate(&prepared.expect_err("nobody")), "28000");
    }
    // In a block, which has failed then.
    rows(&w, "BEGIN").await;
    assert_eq!(refused(&w, insert).await.0, "28000");
    assert_eq!(refused(&w, "SELECT 1").await.0, "25P02");
    rows(&w, "ROLLBACK").await;
    // Others go on.
    rows(&n.superuser, "UPDATE t SET v = 7").await;
    let c = n.p.connect().await;
    assert_eq!(one(&c, "SELECT sum(v) FROM t").await, "7");
}

/// What a client sets inside of a moved transaction is its own: it comes back with it, and nobody else finds it.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_set_in_a_moved_block_is_the_sessions() {
    if skip() {
        return;
    }
    let n = Narrow::start("").await;
    let (w, other) = (&n.superuser, n.r.connect().await);
    let token = one(w, "SHOW canon.commit_token").await;
    let set = format!("SET canon.min_token = '{token}'; SET canon.forward = off");
    rows(
        w,
        &format!("BEGIN; INSERT INTO t VALUES (2, 0); {set}; COMMIT"),
    )
    .await;
    let there = one(w, "SHOW canon.commit_token").await;
    assert_ne!(there, token);
    rows(&other, "BEGIN; UPDATE t SET v = 1 WHERE id = 1").await;
    assert_eq!(one(&other, "SHOW canon.min_token").await, "");
    assert_ne!(one(&other, "SHOW canon.commit_token").await, there);
    rows(&other, "COMMIT").await;
    assert_eq!(one(w, "SHOW canon.min_token").await, token);
    assert_eq!(one(w, "SHOW canon.forward").await, "off");
    assert_eq!(refused(w, "UPDATE t SET v = 2").await.0, "25006");
    rows(w, "RESET canon.forward; RESET canon.min_token").await;
    rows(w, "BEGIN; UPDATE t SET v = 2").await;
    assert_eq!(one(w, "SHOW canon.min_token").await, "");
    rows(w, "COMMIT").await;
    assert_eq!(one(w, "SELECT sum(v) FROM t").await, "4");
}

/// A cancel request may come late, so its connection is not for others.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_connection_is_not_used_again() {
    if skip() {
        return;
    }
    let n = Narrow::start("").await;
    let (c, w) = (n.p.connect().await, &n.superuser);
    let at = async || {
        rows(w, "BEGIN; UPDATE t SET v = 1").await;
        let pid = one(w, "SELECT pg_backend_pid()").await;
        rows(w, "COMMIT").await;
        pid
    };
    let first = at().await;
    assert_eq!(at().await, first, "it is its own");
    rows(&c, "BEGIN; UPDATE t SET v = 2").await;
    let cancel = w.cancel_token();
    let (done, ()) = tokio::join!(w.simple_query("UPDATE t SET v = 3"), async {
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        until(&c, waits, "1").await;
        let asked = cancel.cancel_query(tokio_postgres::NoTls).await;
        asked.expect("asked");
    });
    assert_eq!(sqlstate(&done.expect_err("cancelled")), "57014");
    rows(&c, "ROLLBACK").await;
    assert_ne!(at().await, first);
}

/// What runs at the primary in a later pipeline of a transaction is seen here.
#[tokio::test(flavor = "multi_thread")]
async fn prepared_statements_of_a_moved_block_are_seen_here() {
    if skip() {
        return;
    }
    let n = Narrow::start("").await;
    let (c, other) = (n.p.connect().await, n.r.connect().await);
    let w = &n.superuser;
    let update = w.prepare("UPDATE t SET v = v + $1 WHERE id = 1").await;
    let update = update.expect("prepared");
    rows(w, "BEGIN; INSERT INTO t VALUES (2, 0)").await;
    rows(&c, "BEGIN; UPDATE t SET v = 2").await;
    let (done, ()) = tokio::join!(w.execute(&update, &[&1i32]), async {
        let active = "SELECT count(*) FROM pg_stat_activity
            WHERE state = 'active' AND query LIKE 'UPDATE t SET v = v + %'";
        until(&other, active, "1").await;
        rows(&c, "ROLLBACK").await;
    });
    assert_eq!(done.expect("it was its turn"), 1);
    rows(w, "COMMIT").await;
    // Told of here, too, before and after it is used.
    rows(
        w,
        "BEGIN; INSERT INTO t VALUES (3, 0); PREPARE two AS SELECT 2; ROLLBACK",
    )
    .await;
    let told = "SELECT statement FROM pg_prepared_statements WHERE name = 'two'";
    for _ in 0..2 {
        let all = rows(w, told).await;
        assert_eq!(all, [[Some("SELECT 2".to_owned())]]);
        assert_eq!(one(w, "EXECUTE two").await, "2");
    }
    rows(w, "DEALLOCATE two").await;
    assert_eq!(
        one(w, &format!("SELECT count(*) FROM ({told}) x")).await,
        "0"
    );
}

/// Nothing runs on a connection between nodes as nobody, or as another session than the one that is there.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_not_there_is_refused() {
    if skip() {
        return;
    }
    let p = Server::start().await;
    let connect = || {
        let proof = Proof::member("by hand", 0);
        let peer = RawPeer::connect(&p, &p.user, "forward", 0, &proof);
        Raw(peer.expect("it is let in").stream)
    };
    let mut raw = connect();
    raw.send(&query(b"SELECT 1"));
    assert_eq!(raw.error(), "08P01");
    // Anew, but not as whom; again, and in the same transaction, as a session that is not there.
    for how in [0, 1, 2] {
        let number = 7u64.to_le_bytes();
        let mut adoption = [&1u64.to_le_bytes()[..], &[how], &number].concat();
        if how != 2 {
            adoption.extend([0; 11]);
        }
        let mut raw = connect();
        raw.send(&[message(b'a', &adoption), query(b"SELECT 1")].concat());
        let seen = raw.until(b'E').expect("it is told");
        assert_eq!(field(&seen.last().expect("it").1, b'C'), "08P01");
        assert!(raw.message().is_none(), "it ends");
    }
}

/// What may not go to the primary may not run here, whenever that was said.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_locked_where_nothing_is_forwarded() {
    if skip() {
        return;
    }
    let p = Server::start().await;
    let r = replica_with(&p, "taker", &[]).await;
    let w = r.connect().await;
    let t = "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 0)";
    rows(&w, t).await;
    rows(&w, "CREATE SEQUENCE s").await;
    rows(&w, "BEGIN; SELECT v FROM t; SET canon.forward = off").await;
    rows(&w, "SAVEPOINT a").await;
    for sql in [
        "SELECT * FROM t FOR UPDATE",
        "SELECT * FROM t WHERE id = 1 FOR SHARE",
        "UPDATE t SET v = 1",
        "SELECT nextval('s')",
        "CREATE TABLE x (id int)",
    ] {
        assert_eq!(refused(&w, sql).await.0, "25006", "{sql}");
        rows(&w, "ROLLBACK TO a").await;
        let e = w.query(sql, &[]).await.expect_err(sql);
        assert_eq!(sqlstate(&e), "25006", "{sql}");
        rows(&w, "ROLLBACK TO a").await;
    }
    assert_eq!(one(&w, "SHOW transaction_read_only").await, "on");
    rows(&w, "SET canon.forward = on").await;
    assert_eq!(one(&w, "SHOW transaction_read_only").await, "off");
    rows(&w, "UPDATE t SET v = 2; COMMIT").await;
    assert_eq!(one(&w, "SELECT v FROM t").await, "2");
}
