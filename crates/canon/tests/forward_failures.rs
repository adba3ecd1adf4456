//! The primary is gone, or its answer: what the client is told, and what it can ask.

mod common;
#[path = "replication/helpers.rs"]
#[allow(dead_code)]
mod helpers;
#[allow(dead_code)]
#[path = "wire_abuse/raw.rs"]
mod raw;

use common::{PATIENCE, Server, sqlstate};
use helpers::*;
use raw::{Raw, field, message, query};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_postgres::Client;

/// A client of a replica does not read the answer to what was forwarded. The primary ends the session that works for it, and gives back what it has locked: a client
/// that is there and one that is gone look alike from there. A client of the primary itself may take longer.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_a_replica_that_does_not_read_loses_its_session() {
    if skip() {
        return;
    }
    let p = Server::start().await;
    let r = replica(&p, "r").await;
    let c = p.connect().await;
    rows(&c, "CREATE TABLE t (id int PRIMARY KEY, n int, long text)").await;
    rows(
        &c,
        "INSERT INTO t SELECT g, 0, repeat('x', 100000) FROM generate_series(1, 500) g",
    )
    .await;
    let mut raw = Raw::session(&r);
    raw.send(&query(b"BEGIN"));
    raw.until(b'Z').expect("a block");
    // Far more than the sockets between the three hold.
    raw.send(&query(b"SELECT * FROM t FOR UPDATE"));
    raw.message().expect("it has begun");
    let update = c.batch_execute("UPDATE t SET n = 1 WHERE id = 500");
    let updated = tokio::time::timeout(3 * PATIENCE, update).await;
    assert!(updated.is_ok_and(|u| u.is_ok()), "{}", p.log_tail());
    // Its block has failed; the session or the connection says so when it is read.
    let seen = raw.until(b'Z');
    let failed = seen.is_none_or(|all| all.iter().any(|m| m.0 == b'E'));
    assert!(failed, "the block goes on without its locks");
}

/// What stands between a replica and its primary: connections for sessions (not those of the log) can lose what goes up or what
/// comes down, or break.
#[derive(Default)]
struct Between {
    lose_up: AtomicBool,
    lose_down: AtomicBool,
    broken: AtomicBool,
    /// What goes up, or what comes down, stays where it is while these are set.
    stopped_up: AtomicBool,
    stopped_down: AtomicBool,
    /// Connections for sessions wait while this is set; those that there were.
    hold: AtomicBool,
    logins: AtomicU64,
    /// Pieces that did not get to the primary, and those that did.
    lost_up: AtomicU64,
    passed_up: AtomicU64,
}

impl Between {
    async fn start(primary: &Server) -> (Arc<Between>, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let to = (primary.host.clone(), primary.port);
        let between = Arc::new(Between::default());
        let b = between.clone();
        tokio::spawn(async move {
            while let Ok((down, _)) = listener.accept().await {
                let (b, to) = (b.clone(), to.clone());
                tokio::spawn(async move {
                    if let Ok(up) = TcpStream::connect(to).await {
                        b.carry(down, up).await;
                    }
                });
            }
        });
        (between, address)
    }

    /// Nothing is lost any more.
    fn whole(&self) {
        for flag in [&self.lose_up, &self.lose_down, &self.broken] {
            flag.store(false, Ordering::SeqCst);
        }
    }

    async fn carry(&self, mut down: TcpStream, mut up: TcpStream) {
        let mut first = vec![0; 4096];
        let mut n = down.read(&mut first).await.unwrap_or(0);
        // A request for TLS, which the primary answers with one byte.
        if first[..n] == *b"\0\0\0\x08\x04\xd2\x16\x2f" {
            let mut answer = [0];
            let asked = async {
                up.write_all(&first[..n]).await?;
                up.read_exact(&mut answer).await?;
                down.write_all(&answer).await?;
                down.read(&mut first).await
            };
            n = asked.await.unwrap_or(0);
        }
        if n == 0 {
            return;
        }
        let sessions = first[..n].windows(7).any(|w| w == b"forward");
        if sessions {
            self.logins.fetch_add(1, Ordering::SeqCst);
        }
        while sessions && self.hold.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        if up.write_all(&first[..n]).await.is_err() {
            return;
        }
        let (mut a, mut b) = (vec![0; 4096], vec![0; 4096]);
        loop {
            let check = tokio::time::sleep(Duration::from_millis(5));
            let lost = |flag: &AtomicBool| sessions && flag.load(Ordering::SeqCst);
            let stopped = (lost(&self.stopped_up), lost(&self.stopped_down));
            tokio::select! {
                r = down.read(&mut a), if !stopped.0 => match r {
                    Ok(n) if n > 0 => if lost(&self.lose_up) {
                        self.lost_up.fetch_add(1, Ordering::SeqCst);
                    } else if up.write_all(&a[..n]).await.is_err() {
                        return;
                    } else if sessions {
                        self.passed_up.fetch_add(1, Ordering::SeqCst);
                    },
                    _ => return,
                },
                r = up.read(&mut b), if !stopped.1 => match r {
                    Ok(n) if n > 0 => if !lost(&self.lose_down) && down.write_all(&b[..n]).await.is_err() { return },
                    _ => return,
                },
                () = check => if lost(&self.broken) { return },
            }
        }
    }
}

/// A primary, and a replica behind something that can lose messages.
async fn apart() -> (Server, Server, Arc<Between>, Client) {
    apart_with(&[]).await
}

async fn apart_with(env: &[(&str, &str)]) -> (Server, Server, Arc<Between>, Client) {
    let p = Server::start().await;
    let (between, address) = Between::start(&p).await;
    let (host, port) = (address.ip(), address.port());
    let of = format!("host={host} port={port} connect_timeout=60");
    let own = [("CANON_REPLICA_OF", &*of), ("CANON_NODE_NAME", "apart")];
    let mut r = Server::canon(&[&own, env].concat());
    r.launch();
    r.ready().await;
    let w = r.connect().await;
    rows(&w, "CREATE TABLE t (id int PRIMARY KEY, v int NOT NULL)").await;
    rows(&w, "INSERT INTO t VALUES (1, 0)").await;
    (p, r, between, w)
}

/// The token of what is done over there, so that a statement gives a value, but whose answer is lost with the connection.
async fn unanswered<T: std::fmt::Debug>(
    between: &Between,
    c: &Client,
    (sql, value): (&str, &str),
    doing: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> String {
    between.lose_down.store(true, Ordering::SeqCst);
    let (done, ()) = tokio::join!(doing, async {
        until(c, sql, value).await;
        between.broken.store(true, Ordering::SeqCst);
    });
    token(&done.expect_err("no answer"))
}

/// The error of what does not get there before the connection is gone; then everything is as before.
async fn undelivered<T: std::fmt::Debug>(
    between: &Between,
    doing: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> tokio_postgres::Error {
    let before = between.lost_up.load(Ordering::SeqCst);
    between.lose_up.store(true, Ordering::SeqCst);
    let (done, ()) = tokio::join!(doing, async {
        let deadline = Instant::now() + PATIENCE;
        while between.lost_up.load(Ordering::SeqCst) == before {
            assert!(Instant::now() < deadline, "it is not sent");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        between.broken.store(true, Ordering::SeqCst);
    });
    between.whole();
    done.expect_err("no answer")
}

/// The token in what the client is told of a commit whose outcome is not known.
fn token(e: &tokio_postgres::Error) -> String {
    assert_eq!(sqlstate(e), "40003", "{e:?}");
    let detail = e.as_db_error().and_then(|d| d.detail());
    let token = detail.and_then(|d| d.strip_prefix("Transaction token: "));
    token.expect("a token").to_owned()
}

async fn answer(c: &Client, token: &str) -> String {
    let sql = format!("SELECT canon_txn_status('{token}')");
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Ok(all) = c.simple_query(&sql).await {
            let word = all.iter().find_map(|m| match m {
                tokio_postgres::SimpleQueryMessage::Row(r) => r.get(0).map(str::to_owned),
                _ => None,
            });
            let word = word.expect("an answer");
            if word != "in progress" {
                return word;
            }
        }
        assert!(Instant::now() < deadline, "no answer about {token}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_answer_is_lost_can_be_asked_for_also_after_a_fail_over() {
    if skip() {
        return;
    }
    let (mut p, r, between, w) = apart().await;
    let c = p.connect().await;
    // COMMIT arrives, its answer does not.
    rows(&w, "BEGIN; UPDATE t SET v = 1 WHERE id = 1").await;
    let there = ("SELECT v FROM t WHERE id = 1", "1");
    let committed = unanswered(&between, &c, there, w.simple_query("COMMIT")).await;
    // The session goes on.
    assert_eq!(one(&w, "SELECT 1").await, "1");
    between.whole();
    // A statement on its own, by the extended protocol.
    rows(&w, "INSERT INTO t VALUES (2, 0)").await;
    let insert = "INSERT INTO t VALUES ($1, $2)";
    let there = ("SELECT count(*) FROM t", "3");
    let alone = unanswered(&between, &c, there, w.execute(insert, &[&3i32, &3i32])).await;
    between.whole();
    // COMMIT does not arrive.
    rows(&w, "BEGIN; UPDATE t SET v = 2 WHERE id = 1").await;
    let lost = token(&undelivered(&between, w.simple_query("COMMIT")).await);

    // At the replica (which asks), at the primary, and at the next primary when there is no other.
    for s in [&w, &c] {
        assert_eq!(answer(s, &committed).await, "committed");
        assert_eq!(answer(s, &alone).await, "committed");
        assert_eq!(answer(s, &lost).await, "aborted");
    }
    let seen = one(&c, "SELECT pg_current_wal_lsn()").await;
    until(
        &w,
        &format!("SELECT pg_wal_lsn_diff(pg_last_wal_replay_lsn(), '{seen}') >= 0"),
        "t",
    )
    .await;
    p.kill();
    promote(&r, &["--force", "--old-primary-is-down"]);
    assert_eq!(answer(&w, &committed).await, "committed");
    assert_eq!(answer(&w, &alone).await, "committed");
    assert_eq!(answer(&w, &lost).await, "aborted");
    assert_eq!(one(&w, "SELECT v FROM t WHERE id = 1").await, "1");
    assert_eq!(refused(&w, "SELECT canon_txn_status('x')").await.0, "22023");
    drop(c);
}

/// A transaction that has only locked rows ends before the statement does that is lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_after_the_end_of_a_transaction_without_one_can_be_asked_for() {
    if skip() {
        return;
    }
    let (p, _r, between, w) = apart().await;
    let c = p.connect().await;
    for (id, end) in [(2, "COMMIT"), (3, "ROLLBACK"), (4, "ABORT")] {
        rows(&w, "BEGIN; SELECT * FROM t WHERE id = 1 FOR UPDATE").await;
        let text = format!("{end}; INSERT INTO t VALUES ({id}, 2)");
        let count = id.to_string();
        let there = ("SELECT count(*) FROM t", &*count);
        let inserted = unanswered(&between, &c, there, w.simple_query(&text)).await;
        assert_eq!(answer(&c, &inserted).await, "committed", "{end}");
        between.whole();
        assert_eq!(one(&w, "SELECT count(*) FROM t").await, count);
    }
}

/// What cannot have committed is 08006, and what comes behind it does not run on its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_block_that_is_lost_before_its_end_has_failed_whatever_its_words() {
    if skip() {
        return;
    }
    let (_p, _r, between, w) = apart().await;
    let case = "UPDATE t SET v = CASE WHEN true THEN 1 END";
    for (before, lost) in [
        ("BEGIN; UPDATE t SET v = 5", case),
        ("BEGIN", case),
        ("SELECT 1", "BEGIN; UPDATE t SET v = 1"),
        ("BEGIN; UPDATE t SET v = 5", "SELECT v AS commit FROM t"),
        ("BEGIN; UPDATE t SET v = 5", "ROLLBACK; BEGIN"),
    ] {
        // There is a connection.
        rows(&w, "UPDATE t SET v = 0").await;
        rows(&w, before).await;
        let e = undelivered(&between, w.simple_query(lost)).await;
        assert_eq!(sqlstate(&e), "08006", "{lost}: {e:?}");
        let next = refused(&w, "INSERT INTO t VALUES (9, 9)").await;
        assert_eq!(next.0, "25P02", "{lost}");
        rows(&w, "ROLLBACK").await;
        assert_eq!(one(&w, "SELECT sum(v) FROM t").await, "0");
    }
    // By the extended protocol. (A login is more than one message: there has to be a connection.)
    rows(&w, "UPDATE t SET v = 0").await;
    let prepared = w.prepare(case).await.expect("prepared");
    rows(&w, "BEGIN").await;
    let e = undelivered(&between, w.execute(&prepared, &[])).await;
    assert_eq!(sqlstate(&e), "08006", "{e:?}");
    assert_eq!(refused(&w, "SELECT 1").await.0, "25P02");
    rows(&w, "ROLLBACK").await;
    // A rollback that is lost is one all the same.
    rows(&w, "BEGIN; UPDATE t SET v = 5").await;
    let e = undelivered(&between, w.simple_query("ROLLBACK")).await;
    assert_eq!(sqlstate(&e), "08006", "{e:?}");
    assert_eq!(one(&w, "SELECT sum(v) FROM t").await, "0");
}

/// Data that is on its way when the primary says that the COPY has failed is of no account, and the connection is as good as before.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_fails_while_data_is_on_its_way_leaves_the_block() {
    if skip() {
        return;
    }
    const PIECES: u64 = 1000;
    let (_p, r, between, w) = apart().await;
    let mut raw = Raw::session(&r);
    let run = |raw: &mut Raw, sql: &str| {
        raw.send(&query(sql.as_bytes()));
        let seen = raw.until(b'Z').expect("the connection stays");
        let kinds: String = seen
            .iter()
            .map(|m| m.0 as char)
            .filter(|k| *k != 'S')
            .collect();
        (kinds, seen.last().expect("it").1[0])
    };
    for sql in ["BEGIN", "INSERT INTO t VALUES (5, 5)", "SAVEPOINT s"] {
        assert_eq!(run(&mut raw, sql), ("CZ".into(), b'T'), "{sql}");
    }
    raw.send(&query(b"COPY t FROM STDIN"));
    raw.until(b'G').expect("it wants data");
    // The primary has a bad row, and its word is late: meanwhile data gathers on the way.
    between.stopped_down.store(true, Ordering::SeqCst);
    let passed = || between.passed_up.load(Ordering::SeqCst);
    let before = passed();
    raw.send(&message(b'd', b"1\tone\n"));
    let deadline = Instant::now() + PATIENCE;
    while passed() == before {
        assert!(Instant::now() < deadline, "it is not sent");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    between.stopped_up.store(true, Ordering::SeqCst);
    let written = Arc::new(AtomicU64::new(0));
    let mut writer = Raw(raw.0.try_clone().expect("the same socket"));
    let count = written.clone();
    let writes = std::thread::spawn(move || {
        let piece = message(b'd', &b"6\t6\n".repeat(16 << 10));
        for _ in 0..PIECES {
            writer.send(&piece);
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    // Until nothing fits in any more.
    let mut last = 0;
    loop {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let now = written.load(Ordering::SeqCst);
        if now == last && now > 0 || now == PIECES {
            break;
        }
        assert!(Instant::now() < deadline, "it goes on");
        last = now;
    }
    between.stopped_down.store(false, Ordering::SeqCst);
    let seen = raw.until(b'Z').expect("the connection stays");
    let e = seen.iter().find(|m| m.0 == b'E').expect("an error");
    assert_eq!(field(&e.1, b'C'), "22P02");
    writes.join().expect("written");
    raw.send(&message(b'c', &[]));
    between.stopped_up.store(false, Ordering::SeqCst);
    assert_eq!(run(&mut raw, "ROLLBACK TO s"), ("CZ".into(), b'T'));
    assert_eq!(run(&mut raw, "COMMIT"), ("CZ".into(), b'I'));
    assert_eq!(one(&w, "SELECT count(*) FROM t WHERE id > 1").await, "1");
}

/// A portal of COMMIT that was bound in one pipeline and runs in the next.
#[tokio::test(flavor = "multi_thread")]
async fn a_portal_that_commits_can_be_asked_for() {
    if skip() {
        return;
    }
    let (p, _r, between, mut w) = apart().await;
    let c = p.connect().await;
    let t = w.transaction().await.expect("a transaction");
    t.execute("UPDATE t SET v = 5 WHERE id = 1", &[])
        .await
        .expect("it has moved");
    let commit = t.prepare("COMMIT").await.expect("prepared there");
    let portal = t.bind(&commit, &[]).await.expect("bound there");
    t.batch_execute("SELECT 1").await.expect("it goes on");
    let there = ("SELECT v FROM t WHERE id = 1", "5");
    let committed = unanswered(&between, &c, there, t.query_portal(&portal, 0)).await;
    assert_eq!(answer(&c, &committed).await, "committed");
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_being_made_count() {
    if skip() {
        return;
    }
    let (_p, r, between, w) = apart_with(&[("CANON_FORWARD_CONNECTIONS", "2")]).await;
    let (b, d) = (r.connect().await, r.connect().await);
    let logins = || between.logins.load(Ordering::SeqCst);
    assert_eq!(logins(), 1);
    between.hold.store(true, Ordering::SeqCst);
    let second = tokio::spawn(async move { rows(&b, "INSERT INTO t VALUES (2, 0)").await });
    let deadline = Instant::now() + PATIENCE;
    while logins() < 2 {
        assert!(Instant::now() < deadline, "it does not connect");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Two are there or on their way: the third client takes the one that is free.
    let third = rows(&d, "INSERT INTO t VALUES (3, 0)");
    tokio::time::timeout(PATIENCE, third)
        .await
        .expect("one is free");
    assert_eq!(logins(), 2);
    between.hold.store(false, Ordering::SeqCst);
    second.await.expect("inserted");
    rows(&w, "INSERT INTO t VALUES (4, 0)").await;
    assert_eq!(one(&w, "SELECT count(*) FROM t").await, "4");
    assert_eq!(logins(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_are_found_again_in_the_log_after_a_start() {
    if skip() {
        return;
    }
    let (mut p, _r, between, w) = apart().await;
    let c = p.connect().await;
    let there = ("SELECT v FROM t WHERE id = 1", "7");
    let committed = unanswered(&between, &c, there, w.simple_query("UPDATE t SET v = 7")).await;
    p.kill();
    p.launch();
    p.ready().await;
    let c = p.connect().await;
    assert_eq!(answer(&c, &committed).await, "committed");
    // Never heard of, and from before anything that is known.
    assert_eq!(answer(&c, "99999999999999-5").await, "aborted");
}
