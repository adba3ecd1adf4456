//! REPEATABLE READ that begins at a replica and goes on at the primary keeps its snapshot, however long it takes and whatever has
//! changed.

mod common;
#[path = "replication/helpers.rs"]
#[allow(dead_code)]
mod helpers;

use common::{PATIENCE, Server, connect_to, free_port};
use helpers::{counted, one, refused, replica_with, rows, skip};
use std::time::{Duration, Instant};
use tokio_postgres::Client;

struct Pair {
    p: Server,
    r: Server,
    /// The primary's metrics.
    http: String,
    c: Client,
}

impl Pair {
    /// Of nodes that read each other's memory, or only speak over sockets.
    async fn start(shared: bool) -> Pair {
        let http = format!("127.0.0.1:{}", free_port());
        let shared = if shared { "true" } else { "false" };
        let p = Server::start_with(&[("CANON_HTTP", &http), ("CANON_SHARED_MEMORY", shared)]).await;
        let r = replica_with(&p, "taker", &[]).await;
        let c = p.connect().await;
        rows(
            &c,
            "CREATE TABLE t (id int PRIMARY KEY, v int NOT NULL);
             CREATE INDEX ON t (v);
             INSERT INTO t SELECT n, 0 FROM generate_series(1, 10) n",
        )
        .await;
        Pair { p, r, http, c }
    }

    /// Changes what others have read, for longer than the reclaimer takes to come by.
    async fn changes(&self) {
        for _ in 0..40 {
            rows(&self.c, "UPDATE t SET v = v + 1 WHERE id = 1").await;
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        rows(
            &self.c,
            "DELETE FROM t WHERE id = 2; INSERT INTO t VALUES (100, 0)",
        )
        .await;
    }

    async fn held(&self, wanted: u64) {
        let deadline = Instant::now() + PATIENCE;
        while counted(&self.http, "canon_snapshots_held") != wanted {
            assert!(
                Instant::now() < deadline,
                "{} are held",
                counted(&self.http, "canon_snapshots_held")
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ";
const READS: [&str; 3] = [
    "SELECT sum(v) FROM t WHERE id IN (1, 2, 100)",
    "SELECT count(*) FROM t",
    "SELECT count(*) FROM t WHERE v = 0",
];

async fn read(w: &Client) -> Vec<String> {
    let mut found = vec![];
    for sql in READS {
        found.push(one(w, sql).await);
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_goes_along_whatever_has_changed_since() {
    if skip() {
        return;
    }
    for shared in [true, false] {
        let pair = Pair::start(shared).await;
        let w = pair.r.connect().await;
        for round in 0..6 {
            rows(&w, BEGIN).await;
            let before = read(&w).await;
            if round % 2 == 1 {
                rows(&w, "DECLARE c CURSOR FOR SELECT v FROM t WHERE id = 1").await;
                rows(&w, "SAVEPOINT s").await;
            }
            pair.held(1).await;
            pair.changes().await;
            assert_eq!(read(&w).await, before, "at the replica");
            rows(&w, "UPDATE t SET v = v + 1000 WHERE id = 5").await;
            let (there, mine) = (read(&w).await, 1u64);
            assert_eq!(there[..2], before[..2], "at the primary");
            let zero = |f: &[String]| f[2].parse::<u64>().expect("a number");
            let gone = if round == 0 { mine } else { 0 };
            assert_eq!(zero(&there), zero(&before) - gone);
            rows(&w, "COMMIT").await;
            assert_ne!(read(&w).await, before, "the next transaction sees it");
            pair.held(0).await;
            rows(
                &pair.c,
                "DELETE FROM t WHERE id = 100; INSERT INTO t VALUES (2, 0)",
            )
            .await;
        }
        // What has changed since cannot be changed again: first committer wins.
        for sql in [
            "UPDATE t SET v = 0 WHERE id = 1",
            "DELETE FROM t WHERE id = 2",
        ] {
            rows(&w, BEGIN).await;
            read(&w).await;
            pair.changes().await;
            assert_eq!(refused(&w, sql).await.0, "40001", "{sql}");
            rows(&w, "ROLLBACK").await;
            rows(
                &pair.c,
                "DELETE FROM t WHERE id = 100; INSERT INTO t VALUES (2, 0)",
            )
            .await;
        }
        pair.held(0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_kept_for_a_transaction_ends_with_it() {
    if skip() {
        return;
    }
    let pair = Pair::start(true).await;
    let w = pair.r.connect().await;
    // None is asked for where none is needed.
    for begin in [
        "BEGIN",
        "BEGIN ISOLATION LEVEL READ COMMITTED",
        "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
        "SET canon.read_consistency = 'session'; BEGIN ISOLATION LEVEL REPEATABLE READ",
        "RESET canon.read_consistency; SET canon.forward = off; BEGIN ISOLATION LEVEL REPEATABLE READ",
    ] {
        rows(&w, begin).await;
        read(&w).await;
        assert_eq!(counted(&pair.http, "canon_snapshots_held"), 0, "{begin}");
        rows(&w, "ROLLBACK").await;
    }
    rows(&w, "RESET ALL").await;
    for end in ["COMMIT", "ROLLBACK", "SELECT 1/0; ROLLBACK"] {
        rows(&w, BEGIN).await;
        read(&w).await;
        pair.held(1).await;
        match end.strip_prefix("SELECT 1/0; ") {
            Some(end) => {
                assert_eq!(refused(&w, "SELECT 1/0").await.0, "22012");
                rows(&w, end).await;
            }
            None => drop(rows(&w, end).await),
        }
        pair.held(0).await;
    }
    // A client that goes, and a replica that is killed.
    rows(&w, BEGIN).await;
    read(&w).await;
    let others: Vec<Client> = {
        let mut all = vec![];
        for _ in 0..20 {
            let c = pair.r.connect().await;
            rows(&c, BEGIN).await;
            read(&c).await;
            all.push(c);
        }
        all
    };
    pair.held(21).await;
    drop(others);
    pair.held(1).await;
    let Pair { p, mut r, http, c } = pair;
    r.kill();
    let pair = Pair { p, r, http, c };
    pair.held(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_that_is_lost_must_be_found_unchanged() {
    if skip() {
        return;
    }
    let mut pair = Pair::start(true).await;
    let (w, v) = (pair.r.connect().await, pair.r.connect().await);
    for c in [&w, &v] {
        rows(c, BEGIN).await;
        one(c, "SELECT v FROM t WHERE id = 1").await;
    }
    pair.held(2).await;
    pair.p.kill();
    pair.p.launch();
    pair.p.ready().await;
    pair.c = pair.p.connect().await;
    rows(&pair.c, "UPDATE t SET v = v + 1 WHERE id = 2").await;
    let deadline = Instant::now() + PATIENCE;
    // The primary may not be found again at once, which costs the block.
    while w
        .batch_execute("UPDATE t SET v = v + 1 WHERE id = 3")
        .await
        .is_err()
    {
        assert!(Instant::now() < deadline, "it does not go on");
        rows(&w, "ROLLBACK").await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        rows(&w, BEGIN).await;
        one(&w, "SELECT v FROM t WHERE id = 1").await;
    }
    rows(&w, "COMMIT").await;
    rows(&pair.c, "UPDATE t SET v = v + 1 WHERE id = 1").await;
    assert_eq!(
        refused(&v, "UPDATE t SET v = v + 1 WHERE id = 3").await.0,
        "40001"
    );
    rows(&v, "ROLLBACK").await;
    // The next ones are kept again, soon.
    loop {
        rows(&v, BEGIN).await;
        one(&v, "SELECT v FROM t WHERE id = 1").await;
        if counted(&pair.http, "canon_snapshots_held") == 1 {
            break;
        }
        assert!(Instant::now() < deadline, "none is kept");
        rows(&v, "ROLLBACK").await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_do_not_wait_for_a_snapshot_that_cannot_be_kept() {
    if skip() {
        return;
    }
    // The primary has room for the replica's own connections and one client, and then for nobody.
    let mut p = Server::start_with(&[("CANON_MAX_CONNECTIONS", "40")]).await;
    let r = replica_with(&p, "taker", &[]).await;
    let c = p.connect().await;
    rows(
        &c,
        "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 0)",
    )
    .await;
    let w = r.connect().await;
    // One that waited would wait for ever.
    rows(&w, "SET statement_timeout = '60s'").await;
    assert_eq!(one(&w, "SELECT v FROM t").await, "0");
    let mut all = vec![];
    while let Ok(c) = connect_to(&p.config()).await {
        all.push(c);
    }
    rows(&w, BEGIN).await;
    assert_eq!(one(&w, "SELECT v FROM t").await, "0");
    rows(&w, "COMMIT").await;
    drop(all);
    // What may be old asks for nothing, and is there when the primary is away.
    rows(
        &w,
        "SET canon.read_consistency = bounded; SET canon.max_staleness = '1h'",
    )
    .await;
    assert_eq!(one(&w, "SELECT v FROM t").await, "0");
    p.kill();
    rows(&w, BEGIN).await;
    assert_eq!(one(&w, "SELECT v FROM t").await, "0");
    rows(&w, "COMMIT").await;
}

/// A cursor that was opened before the move is read and closed with messages of the extended protocol, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_stays_for_extended_messages_too() {
    if skip() {
        return;
    }
    let pair = Pair::start(true).await;
    let w = pair.r.connect().await;
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        let before = w.prepare("SELECT 7").await.expect("prepared");
        rows(&w, &format!("BEGIN ISOLATION LEVEL {level}")).await;
        rows(&w, "DECLARE c CURSOR FOR SELECT id FROM t ORDER BY id").await;
        let ids = async |sql: &str| -> Vec<i32> {
            let found = w.query(sql, &[]).await;
            let found = found.unwrap_or_else(|e| panic!("{sql}: {e:?}"));
            found.iter().map(|r| r.get(0)).collect()
        };
        assert_eq!(ids("FETCH 2 FROM c").await, [1, 2]);
        rows(&w, "UPDATE t SET v = v + 1 WHERE id = 5").await;
        assert_eq!(ids("FETCH 2 FROM c").await, [3, 4], "{level}");
        let fetch = w.prepare("FETCH 1 FROM c").await.expect("prepared here");
        // Between two of its runs something runs at the primary, in one pipeline.
        let (a, n, b) = tokio::join!(
            w.query_one(&fetch, &[]),
            w.execute("UPDATE t SET v = v + 1 WHERE id = $1", &[&6i32]),
            w.query_one(&fetch, &[]),
        );
        let (a, b): (i32, i32) = (a.expect("a row").get(0), b.expect("a row").get(0));
        assert_eq!((a, n.expect("changed"), b), (5, 1, 6), "{level}");
        assert_eq!(w.query_one(&before, &[]).await.unwrap().get::<_, i32>(0), 7);
        assert_eq!(w.execute("CLOSE c", &[]).await.expect("closed"), 0);
        let gone = w.query("FETCH 1 FROM c", &[]).await.expect_err("closed");
        assert_eq!(common::sqlstate(&gone), "34000");
        rows(&w, "ROLLBACK").await;
        drop(fetch);
        assert_eq!(ids("SELECT id FROM t WHERE id = 1").await, [1]);
    }
}
