//! Replicas that leave are forgotten: they have no vote in the quorum, nobody waits for them, and no log is kept for them. Peers that are
//! gone without a word are asked whether they are there.

mod common;
#[allow(dead_code)]
#[path = "replication/helpers.rs"]
mod helpers;

use canon::{Cluster, Options};
use common::{PATIENCE, Server};
use helpers::{one, replica, rows, signal, skip, until};
use std::time::Duration;
use tokio_postgres::Client;

const FOLLOWERS: &str =
    "SELECT string_agg(application_name, ',' ORDER BY application_name) FROM pg_stat_replication";

/// A commit on its own, in a task.
fn insert(c: Client, sql: &'static str) -> tokio::task::JoinHandle<Client> {
    tokio::spawn(async move {
        rows(&c, sql).await;
        c
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_left_has_no_vote_and_who_comes_has_one() {
    if skip() {
        return;
    }
    let p = Server::start_with(&[("CANON_SYNCHRONOUS_REPLICAS", "2")]).await;
    let c = p.connect().await;
    rows(&c, "SET synchronous_commit = local; CREATE TABLE t (a int)").await;
    let _a = replica(&p, "a").await;
    let mut b = replica(&p, "b").await;
    until(&c, FOLLOWERS, "a,b").await;
    let w = p.connect().await;
    rows(&w, "INSERT INTO t VALUES (1)").await;

    // By its own will: the commits wait for a second one, until another one is there.
    signal(&b, "-TERM");
    assert!(b.exited(PATIENCE).await.expect("it ends").success());
    until(&c, FOLLOWERS, "a").await;
    let waiting = insert(w, "INSERT INTO t VALUES (2)");
    rows(&c, "INSERT INTO t VALUES (3)").await;
    assert!(!waiting.is_finished(), "one replica is not two");
    let mut d = replica(&p, "d").await;
    let w = waiting.await.expect("the new one votes");
    until(&c, FOLLOWERS, "a,d").await;

    // Killed.
    d.kill();
    until(&c, FOLLOWERS, "a").await;
    let waiting = insert(w, "INSERT INTO t VALUES (4)");
    rows(&c, "INSERT INTO t VALUES (5)").await;
    assert!(!waiting.is_finished(), "the dead do not vote");
    d.launch();
    d.ready().await;
    waiting.await.expect("it votes again");
    assert_eq!(one(&c, "SELECT count(*) FROM t").await, "5");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_stops_keeps_its_replicas_until_the_last_commit() {
    if skip() {
        return;
    }
    let options = Options {
        log_level: Some("error".into()),
        settings: vec!["default_transaction_isolation=serializable".into()],
        synchronous_replicas: Some(1),
        ..Options::default()
    };
    let cluster = tokio::task::block_in_place(|| Cluster::start(options, 1)).expect("a cluster");
    let connect = async || {
        let connected = tokio_postgres::connect(&cluster.url(0), tokio_postgres::NoTls).await;
        let (c, connection) = connected.expect("a session");
        tokio::spawn(connection);
        c
    };
    let (c, w) = (connect().await, connect().await);
    rows(&c, "CREATE TABLE t (a int)").await;
    // A commit takes so long now, and is under way when the primary is told to stop.
    cluster.delay(1, Duration::from_millis(500));
    let insert = insert(w, "INSERT INTO t VALUES (1)");
    let sql =
        "SELECT count(*) > 0 FROM pg_stat_activity WHERE query LIKE 'INSERT%' AND state = 'active'";
    until(&c, sql, "t").await;
    let mut cluster = cluster;
    let stopped = tokio::task::block_in_place(|| cluster.stop_member(0));
    stopped.expect("it stops");
    insert.await.expect("the commit has been acknowledged");
    tokio::task::block_in_place(|| drop(cluster));
}

/// Segments of log.
fn segments(p: &Server) -> usize {
    let all = std::fs::read_dir(p.data_dir().join("wal")).expect("a log");
    let names = all.map(|f| f.expect("a file").file_name());
    let log = names.filter(|n| !n.to_string_lossy().starts_with("spare"));
    log.count()
}

#[tokio::test(flavor = "multi_thread")]
async fn for_who_has_left_nobody_waits_and_no_log_is_kept() {
    if skip() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("canon.toml");
    std::fs::write(&file, "segment_bytes = \"1MB\"\nwal_keep_bytes = \"1MB\"\n").expect("written");
    let p = Server::start_with(&[("CANON_CONFIG", file.to_str().expect("a path"))]).await;
    let c = p.connect().await;
    rows(&c, "CREATE TABLE t (a int PRIMARY KEY, v text)").await;
    let mut away = replica(&p, "away").await;
    until(&c, FOLLOWERS, "away").await;
    let w = p.connect().await;
    rows(&w, "SET synchronous_commit = remote_apply").await;
    rows(&w, "INSERT INTO t VALUES (0)").await;
    // Who has only connected is not waited for before it has said how far it is.
    let shown = "SELECT pg_wal_lsn_diff(replay_lsn, '0/0') > 0 FROM pg_stat_replication";
    until(&c, shown, "t").await;

    // It is there and does nothing: it is waited for, and what it has not got is kept.
    signal(&away, "-STOP");
    let waiting = insert(w, "INSERT INTO t VALUES (1)");
    for round in 0..10 {
        let sql = format!(
            "INSERT INTO t SELECT i, repeat('x', 1000) FROM generate_series({}, {}) i",
            round * 1000 + 2,
            round * 1000 + 1001
        );
        rows(&c, &sql).await;
    }
    rows(&c, "CHECKPOINT").await;
    let (kept, waits) = (segments(&p), !waiting.is_finished());
    if one(&c, FOLLOWERS).await == "away" {
        assert!(kept >= 9 && waits, "{kept} {waits}");
    }

    // Gone: at once.
    away.kill();
    until(&c, "SELECT count(*) FROM pg_stat_replication", "0").await;
    waiting.await.expect("nobody is waited for");
    rows(&c, "CHECKPOINT").await;
    let left = segments(&p);
    assert!(left <= 4, "{left} segments of {kept}");

    // It comes again, too late for the log, and is filled anew.
    away.launch();
    away.ready().await;
    let r = away.connect().await;
    assert_eq!(one(&r, "SELECT count(*) FROM t").await, "10002");
}

/// What the kernel has set a timer for, of the established connections of a server: 2 is the one that asks the peer.
#[cfg(target_os = "linux")]
fn timers(port: u16) -> Vec<String> {
    let all = std::fs::read_to_string("/proc/net/tcp").expect("the kernel's table");
    let line = |l: &str| {
        let f: Vec<&str> = l.split_whitespace().collect();
        let ours = f.get(1)?.ends_with(&format!(":{port:04X}")) && *f.get(3)? == "01";
        ours.then(|| f[5][..2].to_owned())
    };
    all.lines().filter_map(line).collect()
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn silent_peers_are_asked_whether_they_are_there() {
    if skip() {
        return;
    }
    let p = Server::start().await;
    let r = replica(&p, "r").await;
    let (_idle, w) = (p.connect().await, r.connect().await);
    rows(&w, "CREATE TABLE t (a int)").await;
    rows(&w, "SELECT count(*) FROM t").await;
    // A client's connection, one that sessions are forwarded over, the one for timestamps, the log's. What has bytes on their way has another
    // timer (1), for so long.
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        let all = timers(p.port);
        // (One that has not been taken yet has none.)
        let asks = all.iter().filter(|t| *t == "02").count() >= 3 && all.iter().all(|t| t != "00");
        if all.len() >= 4 && asks {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "nobody asks: {all:?}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}
