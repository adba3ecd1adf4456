//! Crashes: kill -9 under load, again and again, and at every named fault point.
//!
//! The load keeps its books outside the server. Each client has a counter row and adds one entry to
//! a ledger in the same transaction, moves money between accounts, adds one to a split value, and drops its old entries. What
//! it was told is committed it writes down. After each crash and restart [`verify`] compares:
//!
//! * no acknowledged commit is lost, and at most the one in flight is there beyond them;
//! * no half transaction: counter, ledger, accounts and split values agree;
//! * indexes equal rows: the ledger through each index is the ledger;
//! * a value of a sequence that an acknowledged commit holds is never given out again.
//!
//! One client commits with `synchronous_commit = off`: its last commits may be lost, whole.
//!
//! The fault points are read from the sources, so a new one is under test at once. Each ends the
//! process (or fails the write, or finds the disk full) during load, checkpoint or start. Segments and
//! checkpoints are small there, and filler makes more log than they hold, so that every point is passed.

mod common;

use common::{Server, on_postgres, sqlstate};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio_postgres::{Client, Error};

const CLIENTS: usize = 4;
/// This client does not wait for its commits to be durable.
const ASYNC_CLIENT: usize = 3;
const ACCOUNTS: i32 = 10;
const KEPT: i64 = 40;
/// Values that all clients add to. Each is to have further records.
const HOT: i64 = 8;

/// What one client knows.
#[derive(Clone, Debug, Default)]
struct Books {
    /// The counter as of the last acknowledged commit.
    acknowledged: i64,
    /// A transaction without an answer may have added one more.
    in_flight: bool,
    /// Every sequence value of an acknowledged commit.
    ids: HashSet<i64>,
}

async fn setup(server: &Server) {
    let client = server.connect().await;
    client
        .batch_execute(
            "CREATE TABLE counter (client int PRIMARY KEY, n bigint NOT NULL);
             CREATE TABLE account (id int PRIMARY KEY, balance bigint NOT NULL CHECK (balance >= 0));
             CREATE TABLE ledger (id bigserial PRIMARY KEY, client int NOT NULL REFERENCES counter,
                                  n bigint NOT NULL, note text, UNIQUE (client, n));
             CREATE INDEX ledger_note ON ledger (note);
             CREATE TABLE filler (id int PRIMARY KEY, v text); INSERT INTO filler VALUES (0, ''), (1, '')",
        )
        .await
        .expect("the tables");
    let split = match on_postgres() {
        true => "",
        false => "WITH (split = 'n'); ALTER TABLE hot ALTER COLUMN n SET (split_min = 2)",
    };
    let hot = format!(
        "CREATE TABLE hot (id int PRIMARY KEY, n bigint NOT NULL CHECK (n >= 0)) {split};
         INSERT INTO hot SELECT i, 0 FROM generate_series(0, {}) i",
        HOT - 1
    );
    client.batch_execute(&hot).await.expect("split values");
    for client_no in 0..CLIENTS {
        let sql = format!("INSERT INTO counter VALUES ({client_no}, 0)");
        client.batch_execute(&sql).await.expect("a counter");
    }
    for account in 0..ACCOUNTS {
        let sql = format!("INSERT INTO account VALUES ({account}, 1000)");
        client.batch_execute(&sql).await.expect("an account");
    }
}

/// One transaction; returns the new counter and the ledger id once the commit is acknowledged.
/// `sent` is set before the COMMIT is sent: from then on the outcome may be unknown.
async fn transact(
    client: &Client,
    me: usize,
    turn: i64,
    sent: &mut bool,
) -> Result<(i64, i64), Error> {
    let (from, to) = (turn as i32 % ACCOUNTS, (turn as i32 * 7 + 3) % ACCOUNTS);
    client.batch_execute("BEGIN").await?;
    let sql = format!("UPDATE counter SET n = n + 1 WHERE client = {me} RETURNING n");
    let n: i64 = client.query_one(&sql, &[]).await?.get(0);
    let sql = format!(
        "INSERT INTO ledger (client, n, note) VALUES ({me}, {n}, 'note ' || {n} % 13) RETURNING id"
    );
    let id: i64 = client.query_one(&sql, &[]).await?.get(0);
    if from != to {
        client
            .batch_execute(&format!(
                "UPDATE account SET balance = balance - 1 WHERE id = {from} AND balance > 0"
            ))
            .await?;
        client
            .batch_execute(&format!(
                "UPDATE account SET balance = balance + 1 WHERE id = {to}"
            ))
            .await?;
    }
    client
        .batch_execute(&format!(
            "UPDATE hot SET n = n + 1 WHERE id = {}",
            turn % HOT
        ))
        .await?;
    client
        .batch_execute(&format!(
            "DELETE FROM ledger WHERE client = {me} AND n <= {}",
            n - KEPT
        ))
        .await?;
    *sent = true;
    client.batch_execute("COMMIT").await?;
    Ok((n, id))
}

/// One client, until `stop` or until the connection breaks. 53100 (disk full) is not the end.
async fn load(server: Arc<Server>, me: usize, mut books: Books, stop: Arc<AtomicBool>) -> Books {
    let Ok(client) = common::connect_to(&server.config()).await else {
        return books;
    };
    if me == ASYNC_CLIENT
        && client
            .batch_execute("SET synchronous_commit = off")
            .await
            .is_err()
    {
        return books;
    }
    let mut turn = me as i64 * 1000;
    while !stop.load(Ordering::Relaxed) {
        turn += 1;
        let mut sent = false;
        match transact(&client, me, turn, &mut sent).await {
            Ok((n, id)) => {
                assert!(
                    n > books.acknowledged,
                    "the counter went back to {n}: {books:?}"
                );
                assert!(
                    books.ids.insert(id),
                    "sequence value {id} was given out twice"
                );
                books.acknowledged = n;
            }
            Err(error) => {
                let code = sqlstate(&error);
                if code == "connection" || code.starts_with("57P") {
                    books.in_flight = sent;
                    return books;
                }
                let expected = ["40001", "40P01", "53100"].contains(&code.as_str());
                assert!(expected, "{code}: {error:?}");
                let _ = client.batch_execute("ROLLBACK").await;
                if code == "53100" {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        }
    }
    books
}

/// Compares the server with the books, and brings the books up to date.
async fn verify(server: &Server, books: &mut [Books]) {
    let client = server.connect().await;
    let one = async |sql: &str| -> i64 {
        client
            .query_one(sql, &[])
            .await
            .unwrap_or_else(|e| panic!("{sql}: {e:?}"))
            .get(0)
    };
    for (me, books) in books.iter_mut().enumerate() {
        let n = one(&format!("SELECT n FROM counter WHERE client = {me}")).await;
        let most = books.acknowledged + i64::from(books.in_flight);
        assert!(n <= most, "client {me}: {n} committed, of {books:?}");
        if me != ASYNC_CLIENT {
            assert!(
                n >= books.acknowledged,
                "client {me}: commits lost: {n}, of {books:?}"
            );
        }
        (books.acknowledged, books.in_flight) = (n, false);

        let rows = one(&format!("SELECT count(*) FROM ledger WHERE client = {me}")).await;
        assert_eq!(
            rows,
            n.min(KEPT),
            "client {me}: half a transaction: {rows} rows at {n}"
        );
        if rows > 0 {
            let sql = format!("SELECT min(n) FROM ledger WHERE client = {me}");
            assert_eq!(
                one(&sql).await,
                n - rows + 1,
                "client {me}: a gap in the ledger"
            );
            let sql = format!("SELECT max(n) FROM ledger WHERE client = {me}");
            assert_eq!(one(&sql).await, n, "client {me}: half a transaction");
        }
    }
    let total = one("SELECT sum(balance)::bigint FROM account").await;
    assert_eq!(total, i64::from(ACCOUNTS) * 1000, "half a transfer");
    let hot = one("SELECT sum(n)::bigint FROM hot").await;
    let counted = one("SELECT sum(n)::bigint FROM counter").await;
    assert_eq!(hot, counted, "half a delta, or half a step of the worker");

    // The ledger as the table has it, and through each index.
    let rows = async |sql: &str| -> Vec<(i64, i32, i64, String)> {
        let rows = client
            .query(sql, &[])
            .await
            .unwrap_or_else(|e| panic!("{sql}: {e:?}"));
        let mut rows: Vec<_> = rows
            .iter()
            .map(|r| (r.get(0), r.get(1), r.get(2), r.get(3)))
            .collect();
        rows.sort();
        rows
    };
    let table = rows("SELECT id, client, n, note FROM ledger").await;
    let (mut by_client, mut by_note) = (Vec::new(), Vec::new());
    for me in 0..CLIENTS {
        let sql = format!("SELECT id, client, n, note FROM ledger WHERE client = {me} ORDER BY n");
        by_client.extend(rows(&sql).await);
    }
    for k in 0..13 {
        let sql = format!("SELECT id, client, n, note FROM ledger WHERE note = 'note {k}'");
        by_note.extend(rows(&sql).await);
    }
    by_client.sort();
    by_note.sort();
    let mut by_key = Vec::new();
    for (id, ..) in &table {
        let sql = format!("SELECT id, client, n, note FROM ledger WHERE id = {id}");
        by_key.extend(rows(&sql).await);
    }
    assert_eq!(table, by_client, "the unique index and the rows differ");
    assert_eq!(table, by_note, "the index and the rows differ");
    assert_eq!(table, by_key, "the primary key and the rows differ");

    let next = one("SELECT nextval('ledger_id_seq')").await;
    // What was acknowledged without waiting for the disk may be gone, and its numbers with it.
    books[ASYNC_CLIENT].ids.retain(|&id| id < next);
    let given: Option<&i64> = books.iter().flat_map(|b| &b.ids).max();
    assert!(
        given.is_none_or(|&max| next > max),
        "sequence value {next} after {given:?}"
    );
}

/// Loads until `stop` is set or the server is gone.
async fn load_all(server: &Arc<Server>, books: &mut Vec<Books>, stop: &Arc<AtomicBool>) {
    let tasks: Vec<_> = books
        .drain(..)
        .enumerate()
        .map(|(me, b)| tokio::spawn(load(server.clone(), me, b, stop.clone())))
        .collect();
    for task in tasks {
        books.push(task.await.expect("a client ends in order"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_under_load_again_and_again() {
    const ROUNDS: u64 = 5;
    let mut server = Server::start().await;
    setup(&server).await;
    let mut books = vec![Books::default(); CLIENTS];
    for round in 0..ROUNDS {
        let shared = Arc::new(server);
        let stop = Arc::new(AtomicBool::new(false));
        let before: i64 = books.iter().map(|b| b.acknowledged).sum();
        let (killer, flag) = (shared.clone(), stop.clone());
        let checkpointing = tokio::spawn(async move {
            // Let the load do something, then, every other round, crash during a checkpoint.
            let admin = killer.connect().await;
            loop {
                let sql = "SELECT sum(n)::bigint FROM counter";
                let n: i64 = admin.query_one(sql, &[]).await.expect("a sum").get(0);
                if n > before + 200 {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            if round % 2 == 1 {
                tokio::spawn(async move {
                    let _ = admin.batch_execute("CHECKPOINT").await;
                });
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
            if on_postgres() {
                flag.store(true, Ordering::Relaxed);
            } else {
                killer.kill_now();
            }
        });
        load_all(&shared, &mut books, &stop).await;
        checkpointing.await.expect("the killer ends in order");
        server = Arc::into_inner(shared).expect("all clients are gone");
        if !on_postgres() {
            server.kill();
            server.launch();
            server.ready().await;
        }
        verify(&server, &mut books).await;
        let after: i64 = books.iter().map(|b| b.acknowledged).sum();
        assert!(after > before, "the round did something");
    }
}

/// Tables made before a crash are there after it, with what was acknowledged into them.
/// A number that nothing was written with: whoever was told of it has it in another system by now.
#[cfg(feature = "faults")]
#[tokio::test(flavor = "multi_thread")]
async fn a_number_that_was_told_is_not_given_again() {
    if on_postgres() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let full = dir.path().join("full");
    let fault = format!("wal.before_write:while={}", full.display());
    let mut server = Server::start_with(&[("CANON_FAULT", &fault)]).await;
    let client = server.connect().await;
    let made = "CREATE SEQUENCE a; CREATE SEQUENCE b";
    client.batch_execute(made).await.expect("sequences");
    // Nothing reaches the disk from here on.
    std::fs::write(&full, "").expect("written");
    let mut told = Vec::new();
    for sql in ["SELECT nextval('a')", "SELECT setval('b', 3000)"] {
        let client = server.connect().await;
        let asked = tokio::spawn(async move { client.query_one(sql, &[]).await });
        // Either it is not told, or it stands.
        let answer = tokio::time::timeout(Duration::from_millis(500), asked).await;
        let row = answer.ok().and_then(|a| a.expect("no panic").ok());
        told.push(row.map(|r| r.get::<_, i64>(0)));
    }
    server.kill();
    std::fs::remove_file(&full).expect("removed");
    server.launch();
    server.ready().await;
    let client = server.connect().await;
    for (sequence, told) in ["a", "b"].into_iter().zip(told) {
        let sql = format!("SELECT nextval('{sequence}')");
        let next: i64 = client.query_one(&sql, &[]).await.expect("a number").get(0);
        assert!(
            told.is_none_or(|t| t < next),
            "{sequence}: {told:?} was told, and then {next} given"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn schema_changes_survive() {
    let mut server = Server::start().await;
    for round in 0..4 {
        let client = server.connect().await;
        client
            .batch_execute(&format!(
                "CREATE TABLE t{round} (id int PRIMARY KEY, v text); \
                 CREATE INDEX i{round} ON t{round} (v); \
                 INSERT INTO t{round} VALUES (1, 'x'), (2, 'y'); \
                 ALTER TABLE t{round} ADD COLUMN extra int DEFAULT {round}; \
                 CREATE VIEW v{round} AS SELECT id, extra FROM t{round}"
            ))
            .await
            .expect("schema changes");
        if round > 0 {
            let sql = format!("DROP VIEW v{0}; DROP TABLE t{0}", round - 1);
            client.batch_execute(&sql).await.expect("a drop");
        }
        // Left open: must not be there afterwards.
        client
            .batch_execute("BEGIN; CREATE TABLE ghost (id int); INSERT INTO ghost VALUES (1)")
            .await
            .expect("an open transaction");
        drop(client);
        if !on_postgres() {
            server.kill();
            server.launch();
            server.ready().await;
        }
        let client = server.connect().await;
        let sql = format!(
            "SELECT sum(v.extra)::bigint FROM v{round} v JOIN t{round} t ON t.id = v.id \
             WHERE t.v IN ('x', 'y')"
        );
        let sum: i64 = client
            .query_one(&sql, &[])
            .await
            .expect("the view works")
            .get(0);
        assert_eq!(sum, 2 * round);
        let gone = client
            .batch_execute("SELECT * FROM ghost")
            .await
            .expect_err("no ghost");
        assert_eq!(sqlstate(&gone), "42P01");
        if round > 0 {
            let sql = format!("SELECT * FROM t{}", round - 1);
            let gone = client.batch_execute(&sql).await.expect_err("dropped");
            assert_eq!(sqlstate(&gone), "42P01");
        }
    }
}

#[cfg(feature = "faults")]
mod fault_points {
    use super::*;
    use futures::StreamExt;

    /// An error here leaves open what is on the disk: nothing may be acknowledged after it, so the process ends.
    const ENDS: [&str; 3] = ["wal.before_write", "wal.after_write", "wal.before_sync"];

    /// A fault point and whether it stands in I/O code that can fail.
    fn points() -> Vec<(String, bool)> {
        let mut found = Vec::new();
        let mut dirs = vec![common::tests_dir().join("../../../crates")];
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(&dir).expect("the sources") {
                let path = entry.expect("an entry").path();
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                if path.is_dir() && !["tests", "target", "env"].contains(&name.as_str()) {
                    dirs.push(path);
                } else if name.ends_with(".rs") && !name.contains("test") {
                    let text = std::fs::read_to_string(&path).expect("a source file");
                    for (call, fallible) in
                        [("fault::point(\"", false), ("fault::fallible(\"", true)]
                    {
                        for rest in text.split(call).skip(1) {
                            let point = rest.split('"').next().expect("a name").to_owned();
                            // One server passes none of these; `members` has the tests.
                            if !point.starts_with("members.") {
                                found.push((point, fallible));
                            }
                        }
                    }
                }
            }
        }
        found.sort();
        found.dedup();
        found
    }

    /// Has the workers of split values give records, take them back and balance them, until one of them has met the fault.
    async fn worker_steps(server: &Server) {
        let Ok(client) = common::connect_to(&server.config()).await else {
            return;
        };
        // Each UPDATE of it puts its amount in one record, which the worker that balances then divides.
        let rows = "CREATE TABLE stock (id int PRIMARY KEY, n bigint NOT NULL CHECK (n >= 0)) WITH (split = 'n');
            ALTER TABLE stock ALTER COLUMN n SET (split_min = 4, split_mode = rows);
            INSERT INTO stock VALUES (0, 0)";
        let _ = client.batch_execute(rows).await;
        let deadline = tokio::time::Instant::now() + common::PATIENCE * 2;
        for least in [2, 0].into_iter().cycle() {
            let set = format!("ALTER TABLE hot ALTER COLUMN n SET (split_min = {least})");
            // Where a client's locks are in the way, the next turn does it.
            let _ = client.batch_execute(&set).await;
            let one_record = "UPDATE stock SET n = n + 100 WHERE id = 0";
            let _ = client.batch_execute(one_record).await;
            tokio::time::sleep(Duration::from_millis(1200)).await;
            if client.is_closed() || tokio::time::Instant::now() > deadline {
                return;
            }
        }
    }

    /// Runs one point with one action. Returns whether the fault showed (the process died).
    async fn run(spec: &str) -> bool {
        let small = common::tests_dir().join("crash/small.toml");
        let small = ("CANON_CONFIG", small.to_str().expect("a path in UTF-8"));
        let mut server = Server::canon(&[small, ("CANON_FAULT", spec)]);
        server.launch();
        let mut died = server.try_ready().await.is_err();
        if died {
            // On the way to the first start: without the fault it must start.
            server.kill();
            server.set_env(&[small]);
            server.launch();
            server.ready().await;
        }
        let mut books = vec![Books::default(); CLIENTS];
        let ready = {
            // The set-up itself may meet the fault: then it starts again on a new directory.
            let attempt = std::panic::AssertUnwindSafe(setup(&server));
            futures::FutureExt::catch_unwind(attempt).await.is_ok()
        };
        if !ready {
            died = server.exited(common::PATIENCE).await.is_some();
            assert!(died, "{spec}: the set-up failed on a living server");
            server.set_env(&[small]);
            server.launch();
            server.ready().await;
            return died;
        }
        let shared = Arc::new(server);
        let stop = Arc::new(AtomicBool::new(false));
        let (admin, flag) = (shared.clone(), stop.clone());
        let steps = spec.starts_with("splits.");
        let pushing = tokio::spawn(async move {
            // Each turn fills a segment and checkpoints it, so that the points of both and those of pruning are passed.
            const FILL: &str = "UPDATE filler SET v = repeat('filler', 100000) WHERE id = 0;
                UPDATE filler SET v = repeat('filler', 100000) WHERE id = 1;";
            if let Ok(client) = common::connect_to(&admin.config()).await {
                for _ in 0..6 {
                    tokio::time::sleep(Duration::from_millis(60)).await;
                    // Two transactions, or none of it: a full disk is not the end.
                    for sql in FILL.split_inclusive(';').chain(["CHECKPOINT"]) {
                        if client.batch_execute(sql).await.is_err() && client.is_closed() {
                            break;
                        }
                    }
                }
            }
            if steps {
                worker_steps(&admin).await;
            }
            flag.store(true, Ordering::Relaxed);
        });
        load_all(&shared, &mut books, &stop).await;
        pushing.await.expect("the pusher ends in order");
        let mut server = Arc::into_inner(shared).expect("all clients are gone");
        died |= !server.alive();
        server.kill();
        // The variable is still set: a fault in the start shows now.
        server.launch();
        if server.try_ready().await.is_err() {
            died = true;
            server.kill();
        }
        server.kill();
        server.set_env(&[small]);
        server.launch();
        server.ready().await;
        verify(&server, &mut books).await;
        died
    }

    /// The same for a point that only a node passes which takes over another's history, or becomes the primary.
    async fn run_copy(spec: &str, promoted: bool) -> bool {
        let primary = Server::start().await;
        let sql =
            "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t SELECT generate_series(1, 1000)";
        let done = primary.connect().await.batch_execute(sql).await;
        done.expect("a table");
        let of = format!("{}:{}", primary.host, primary.port);
        let follow = [
            ("CANON_REPLICA_OF", of.as_str()),
            ("CANON_NODE_NAME", "copy"),
        ];
        let mut server = Server::canon(&[follow[0], follow[1], ("CANON_FAULT", spec)]);
        server.launch();
        if promoted {
            server.ready().await;
            let address = format!("{}:{}", server.host, server.port);
            let force = ["--force", "--old-primary-is-down"];
            let mut promote = std::process::Command::new(env!("CARGO_BIN_EXE_canon"));
            promote.args(["promote", "--server", &address]).args(force);
            assert!(!promote.status().expect("canon promote").success());
        }
        let died = server.exited(common::PATIENCE).await.is_some();
        server.kill();
        server.set_env(&follow);
        server.launch();
        server.ready().await;
        let rows = server.connect().await.query("SELECT id FROM t", &[]).await;
        assert_eq!(rows.expect("it serves").len(), 1000);
        died
    }

    /// `FAULT_POINTS=splits.` takes those with this text in their names.
    #[tokio::test(flavor = "multi_thread")]
    async fn every_fault_point() {
        if on_postgres() {
            return;
        }
        let points = points();
        assert!(points.len() > 10, "the sources name {points:?}");
        let only = std::env::var("FAULT_POINTS").unwrap_or_default();
        let named = |e: &str| points.iter().any(|p| p.0 == e && p.1);
        assert!(ENDS.iter().all(|e| named(e)), "{points:?}");
        let points: Vec<_> = points.into_iter().filter(|p| p.0.contains(&only)).collect();
        assert!(!points.is_empty(), "no point has {only:?} in its name");
        let one = async |(point, fallible): (String, bool)| {
            let promoted = point == "dir.add_term";
            if promoted || point.starts_with("wal.switch.") {
                return (!run_copy(&point, promoted).await).then_some(point);
            }
            let mut died = run(&point).await;
            // Not the first passage: the one in the middle of the load.
            died |= run(&format!("{point}:5")).await;
            if fallible {
                let ended = run(&format!("{point}:7:error")).await;
                run(&format!("{point}:7:full")).await;
                if ENDS.contains(&point.as_str()) && !ended {
                    return Some(format!("{point}, whose error did not end the server"));
                }
            }
            (!died).then_some(point)
        };
        // Most of it is waiting for the disk.
        let all = futures::stream::iter(points).map(one).buffer_unordered(4);
        let silent: Vec<String> = all.filter_map(std::future::ready).collect().await;
        assert!(
            silent.is_empty(),
            "never passed, or passed over: {silent:?}"
        );
    }
}
