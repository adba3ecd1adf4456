//! What sessions coordinate by: advisory locks, at a primary and at a replica.

mod common;
#[allow(dead_code)]
#[path = "replication/helpers.rs"]
mod helpers;

use common::{PATIENCE, Server, on_postgres, sqlstate};
use helpers::{one, refused, replica, rows, signal, skip, until};
use std::time::Duration;
use tokio_postgres::Client;

async fn pid(c: &Client) -> i32 {
    one(c, "SELECT pg_backend_pid()").await.parse().unwrap()
}

/// Waits until so many sessions wait for advisory locks.
async fn until_waiting(by: &Client, n: u32) {
    let sql = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
    until(by, sql, &n.to_string()).await;
}

/// Where the sessions of a test are: both at a primary, at a primary and a replica of it, both at the replica.
struct Places {
    primary: Server,
    replica: Option<Server>,
}

impl Places {
    async fn start() -> Places {
        let primary = Server::start().await;
        let replica = match skip() {
            true => None,
            false => Some(replica(&primary, "r").await),
        };
        Places { primary, replica }
    }

    async fn pairs(&self) -> Vec<(Client, Client)> {
        let p = &self.primary;
        let mut all = vec![(p.connect().await, p.connect().await)];
        if let Some(r) = &self.replica {
            all.push((p.connect().await, r.connect().await));
            all.push((r.connect().await, p.connect().await));
            all.push((r.connect().await, r.connect().await));
        }
        all
    }
}

/// Both keys, both modes; what was taken twice is given back twice; session and transaction are counted apart.
#[tokio::test(flavor = "multi_thread")]
async fn advisory_locks_are_counted_as_in_postgresql() {
    let places = Places::start().await;
    for (a, b) in places.pairs().await {
        let said = |c, sql| one(c, sql);
        said(&a, "SELECT pg_advisory_lock(1), pg_advisory_lock(1)").await;
        assert_eq!(said(&b, "SELECT pg_try_advisory_lock(1)").await, "f");
        assert_eq!(said(&b, "SELECT pg_try_advisory_lock_shared(1)").await, "f");
        // Two numbers are another lock than one.
        assert_eq!(said(&b, "SELECT pg_try_advisory_lock(0, 1)").await, "t");
        assert_eq!(said(&a, "SELECT pg_try_advisory_lock(0, 1)").await, "f");
        assert_eq!(said(&a, "SELECT pg_advisory_unlock(1)").await, "t");
        assert_eq!(said(&b, "SELECT pg_try_advisory_xact_lock(1)").await, "f");
        assert_eq!(said(&a, "SELECT pg_advisory_unlock(1)").await, "t");
        assert_eq!(said(&a, "SELECT pg_advisory_unlock(1)").await, "f");
        assert_eq!(said(&b, "SELECT pg_try_advisory_xact_lock(1)").await, "t");
        // That was its own transaction's.
        assert_eq!(said(&a, "SELECT pg_try_advisory_lock_shared(1)").await, "t");
        assert_eq!(said(&b, "SELECT pg_try_advisory_lock_shared(1)").await, "t");
        assert_eq!(said(&b, "SELECT pg_try_advisory_lock(1)").await, "f");
        assert_eq!(said(&a, "SELECT pg_advisory_unlock_shared(1)").await, "t");
        // Alone, the stronger mode besides; giving it back leaves the weaker one.
        assert_eq!(said(&b, "SELECT pg_try_advisory_lock(1)").await, "t");
        assert_eq!(said(&a, "SELECT pg_try_advisory_lock_shared(1)").await, "f");
        assert_eq!(said(&b, "SELECT pg_advisory_unlock(1)").await, "t");
        assert_eq!(said(&a, "SELECT pg_try_advisory_lock_shared(1)").await, "t");
        assert_eq!(said(&a, "SELECT pg_try_advisory_lock(1)").await, "f");
        rows(&a, "SELECT pg_advisory_unlock_all()").await;
        rows(&b, "SELECT pg_advisory_unlock_all()").await;
        // The transaction's own are not given back by hand, and end with it.
        rows(&a, "BEGIN").await;
        rows(&a, "SELECT pg_advisory_xact_lock(2), pg_advisory_lock(3)").await;
        assert_eq!(said(&a, "SELECT pg_advisory_unlock(2)").await, "f");
        rows(&a, "SAVEPOINT s").await;
        rows(&a, "SELECT pg_advisory_xact_lock(4), pg_advisory_lock(5)").await;
        rows(&a, "ROLLBACK TO s").await;
        let try_all = "SELECT pg_try_advisory_xact_lock(2), pg_try_advisory_xact_lock(3), pg_try_advisory_xact_lock(4), pg_try_advisory_xact_lock(5)";
        let flags = |r: Vec<Vec<Option<String>>>| {
            r[0].iter().map(|v| v.clone().unwrap()).collect::<String>()
        };
        assert_eq!(flags(rows(&b, try_all).await), "fftf");
        rows(&a, "ROLLBACK").await;
        assert_eq!(flags(rows(&b, try_all).await), "tftf");
        // What the session took survives an error, and ends with DISCARD ALL.
        refused(&a, "SELECT pg_advisory_lock(6), 1/0").await;
        assert_eq!(said(&b, "SELECT pg_try_advisory_lock(6)").await, "f");
        rows(&a, "DISCARD ALL").await;
        assert_eq!(said(&b, "SELECT pg_try_advisory_lock(6)").await, "t");
        assert_eq!(flags(rows(&b, try_all).await), "tttt");
        // And with the session.
        drop(b);
        until(&a, "SELECT pg_try_advisory_xact_lock(6)", "t").await;
    }
}

/// A wait ends when the lock is given, is cancelled, and runs out of time; `pg_locks` shows it, and the isolation tester's function.
#[tokio::test(flavor = "multi_thread")]
async fn waits_for_advisory_locks_end() {
    let places = Places::start().await;
    let watch = places.primary.connect().await;
    for (a, b) in places.pairs().await {
        rows(&a, "SELECT pg_advisory_lock(-7)").await;
        let shown = "SELECT classid, objid, objsubid, mode, granted FROM pg_locks WHERE locktype = 'advisory'";
        let row =
            ["4294967295", "4294967289", "1", "ExclusiveLock", "t"].map(|v| Some(v.to_owned()));
        assert_eq!(rows(&watch, shown).await, [row.to_vec()]);
        let wait = async { rows(&b, "SELECT pg_advisory_lock(-7)").await };
        let give = async {
            until_waiting(&watch, 1).await;
            let blocked = "SELECT pg_isolation_test_session_is_blocked(w.pid, ARRAY[h.pid]), pg_blocking_pids(w.pid) = ARRAY[h.pid], \
                           pg_isolation_test_session_is_blocked(w.pid, ARRAY[0]) \
                           FROM pg_locks w, pg_locks h WHERE NOT w.granted AND h.granted AND w.locktype = 'advisory' AND h.locktype = 'advisory'";
            let row = ["t", "t", "f"].map(|v| Some(v.to_owned()));
            assert_eq!(rows(&watch, blocked).await, [row.to_vec()]);
            one(&a, "SELECT pg_advisory_unlock(-7)").await
        };
        tokio::join!(wait, give);
        // Now the other has it.
        rows(&a, "SET lock_timeout = '50ms'").await;
        let (code, what) = refused(&a, "SELECT pg_advisory_xact_lock(-7)").await;
        assert_eq!(code, "55P03", "{what}");
        rows(&a, "SET lock_timeout = 0; SET statement_timeout = '50ms'").await;
        assert_eq!(refused(&a, "SELECT pg_advisory_lock(-7)").await.0, "57014");
        rows(&a, "SET statement_timeout = 0").await;
        let cancel = a.cancel_token();
        let stop = async {
            until_waiting(&watch, 1).await;
            cancel.cancel_query(tokio_postgres::NoTls).await.unwrap();
        };
        let (waited, ()) = tokio::join!(a.simple_query("SELECT pg_advisory_lock(-7)"), stop);
        assert_eq!(sqlstate(&waited.unwrap_err()), "57014");
        assert_eq!(one(&a, "SELECT 1").await, "1");
        // Nobody waits any more, so nothing is given to a waiter that has gone.
        assert_eq!(one(&b, "SELECT pg_advisory_unlock(-7)").await, "t");
        assert_eq!(
            one(&watch, "SELECT pg_try_advisory_xact_lock(-7)").await,
            "t"
        );
    }
}

/// One waits for a row and the other for an advisory lock, which closes a cycle; in both orders, and when the one that would find it is
/// told to look later.
#[tokio::test(flavor = "multi_thread")]
async fn deadlocks_of_advisory_locks_and_rows_are_found() {
    let places = Places::start().await;
    let watch = places.primary.connect().await;
    rows(
        &watch,
        "CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 0)",
    )
    .await;
    for (a, b) in places.pairs().await {
        for of_session in [true, false] {
            let lock = match of_session {
                true => "SELECT pg_advisory_lock(5)",
                false => "SELECT pg_advisory_xact_lock(5)",
            };
            for row_first in [true, false] {
                let begin = "BEGIN ISOLATION LEVEL READ COMMITTED";
                rows(&a, begin).await;
                rows(&b, begin).await;
                rows(&a, "UPDATE t SET n = n + 1").await;
                rows(&b, lock).await;
                let update = "UPDATE t SET n = n + 10";
                let waits_for_lock = "SELECT count(*) FROM pg_locks WHERE NOT granted";
                let waits_for_row = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'tuple' OR wait_event = 'transactionid'";
                let (first, second, (x, y), seen) = match row_first {
                    true => (&b, &a, (update, lock), waits_for_row),
                    false => (&a, &b, (lock, update), waits_for_lock),
                };
                let loser = async {
                    until(&watch, seen, "1").await;
                    let e = refused(second, y).await;
                    rows(second, "ROLLBACK").await;
                    if of_session {
                        rows(second, "SELECT pg_advisory_unlock_all()").await;
                    }
                    e
                };
                let (_, e) = tokio::join!(rows(first, x), loser);
                assert_eq!(e.0, "40P01", "{}", e.1);
                rows(first, "ROLLBACK").await;
                rows(first, "SELECT pg_advisory_unlock_all()").await;
            }
        }
    }
    if on_postgres() {
        return;
    }
    // With a longer deadlock_timeout it is the other that finds it.
    let (a, b) = (watch, places.primary.connect().await);
    rows(&a, "SET deadlock_timeout = '100s'").await;
    rows(&b, "SET deadlock_timeout = '10ms'").await;
    rows(&a, "SELECT pg_advisory_lock(1)").await;
    rows(&b, "SELECT pg_advisory_lock(2)").await;
    let late = async {
        let sql = "SELECT count(*) FROM pg_locks WHERE NOT granted";
        let by = places.primary.connect().await;
        until(&by, sql, "1").await;
        let e = refused(&b, "SELECT pg_advisory_lock(1)").await;
        rows(&b, "SELECT pg_advisory_unlock(2)").await;
        e
    };
    let (_, e) = tokio::join!(rows(&a, "SELECT pg_advisory_lock(2)"), late);
    assert_eq!(e.0, "40P01", "{}", e.1);
}

/// Runs a statement that writes all rows of `t`, which another session changes meanwhile, so that it runs again.
async fn run_again(a: &Client, b: &Client, sql: &str) {
    let change = "BEGIN ISOLATION LEVEL READ COMMITTED; UPDATE t SET n = n + 10";
    rows(a, change).await;
    let p = pid(b).await;
    let wait = async {
        let blocked =
            format!("SELECT pg_isolation_test_session_is_blocked({p}, ARRAY[pg_backend_pid()])");
        until(a, &blocked, "t").await;
        rows(a, "COMMIT").await
    };
    tokio::join!(rows(b, sql), wait);
}

/// A statement that runs again, because a row was changed meanwhile, takes its locks once, and gives back those that it had before.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_runs_again_takes_its_locks_once() {
    let server = Server::start().await;
    let (a, b) = (server.connect().await, server.connect().await);
    rows(
        &a,
        "CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 0)",
    )
    .await;
    rows(&b, "SET default_transaction_isolation = 'read committed'").await;
    let take = "UPDATE t SET n = n + 1 WHERE pg_try_advisory_lock(id)";
    run_again(&a, &b, take).await;
    assert_eq!(one(&a, "SELECT pg_try_advisory_xact_lock(1)").await, "f");
    assert_eq!(one(&b, "SELECT pg_advisory_unlock(1)").await, "t");
    assert_eq!(one(&b, "SELECT pg_advisory_unlock(1)").await, "f");
    assert_eq!(one(&a, "SELECT pg_try_advisory_xact_lock(1)").await, "t");
    assert_eq!(one(&a, "SELECT n FROM t").await, "11");

    rows(&b, "SELECT pg_advisory_lock(1)").await;
    let both = "UPDATE t SET n = n + 1 WHERE CASE WHEN pg_advisory_unlock(id) THEN pg_try_advisory_lock(id) END";
    run_again(&a, &b, both).await;
    assert_eq!(one(&a, "SELECT n FROM t").await, "22");
    assert_eq!(one(&a, "SELECT pg_try_advisory_xact_lock(1)").await, "f");
    let give = "UPDATE t SET n = n + 1 WHERE pg_advisory_unlock(id)";
    run_again(&a, &b, give).await;
    assert_eq!(one(&a, "SELECT n FROM t").await, "33");
    assert_eq!(one(&a, "SELECT pg_try_advisory_xact_lock(1)").await, "t");
    assert_eq!(one(&b, "SELECT pg_advisory_unlock(1)").await, "f");
}

/// The lock of a transaction is given back when its commit is shown: the next holder sees what was committed.
#[tokio::test(flavor = "multi_thread")]
async fn a_transactions_lock_is_given_back_when_its_commit_is_shown() {
    if skip() {
        return;
    }
    let p = Server::start_with(&[("CANON_SYNCHRONOUS_REPLICAS", "1")]).await;
    let r = replica(&p, "r").await;
    let (a, b) = (p.connect().await, p.connect().await);
    rows(&a, "CREATE TABLE t (id int PRIMARY KEY)").await;
    signal(&r, "-STOP");
    rows(
        &a,
        "BEGIN; SELECT pg_advisory_xact_lock(1); INSERT INTO t VALUES (1)",
    )
    .await;
    let commit = tokio::spawn(async move { rows(&a, "COMMIT").await });
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    until(&b, waits, "1").await;
    assert_eq!(one(&b, "SELECT pg_try_advisory_xact_lock(1)").await, "f");
    assert_eq!(one(&b, "SELECT count(*) FROM t").await, "0");
    signal(&r, "-CONT");
    commit.await.expect("it commits");
    assert_eq!(one(&b, "SELECT pg_try_advisory_xact_lock(1)").await, "t");
    assert_eq!(one(&b, "SELECT count(*) FROM t").await, "1");
}

/// A replica's session with locks runs at the primary, and is ended with it; others go on.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_whose_locks_are_lost_is_ended() {
    if skip() {
        return;
    }
    let mut p = Server::start().await;
    let r = replica(&p, "r").await;
    let (holder, other) = (r.connect().await, r.connect().await);
    rows(&holder, "SELECT pg_advisory_lock(1)").await;
    assert_eq!(one(&holder, "SELECT pg_is_in_recovery()").await, "f");
    assert_eq!(one(&other, "SELECT pg_is_in_recovery()").await, "t");
    let gave = r.connect().await;
    rows(&gave, "SELECT pg_advisory_lock(2), pg_advisory_unlock(2)").await;
    assert_eq!(one(&gave, "SELECT pg_is_in_recovery()").await, "t");
    p.kill();
    let (code, what) = refused(&holder, "SELECT 1").await;
    assert_eq!(code, "57P01", "{what}");
    tokio::time::timeout(Duration::from_secs(10), async {
        while !holder.is_closed() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .expect("the session is ended");
    rows(&other, "SET canon.read_consistency = 'eventual'").await;
    assert_eq!(one(&other, "SELECT 1").await, "1");
}

/// A client and what it hears.
struct Ear {
    client: Client,
    heard: tokio::sync::mpsc::UnboundedReceiver<tokio_postgres::Notification>,
}

impl Ear {
    async fn at(server: &Server) -> Ear {
        let (client, mut connection) = server
            .config()
            .connect(tokio_postgres::NoTls)
            .await
            .expect("connects");
        let (said, heard) = tokio::sync::mpsc::unbounded_channel();
        tokio::spawn(async move {
            let next = |cx: &mut std::task::Context<'_>| connection.poll_message(cx);
            let mut messages = futures::stream::poll_fn(next);
            while let Some(Ok(m)) = futures::StreamExt::next(&mut messages).await {
                if let tokio_postgres::AsyncMessage::Notification(n) = m {
                    _ = said.send(n);
                }
            }
        });
        Ear { client, heard }
    }

    /// The next that it hears, as `channel:payload`.
    async fn next(&mut self) -> String {
        let heard = tokio::time::timeout(PATIENCE, self.heard.recv()).await;
        let n = heard.expect("a notification").expect("the connection");
        format!("{}:{}", n.channel(), n.payload())
    }

    /// All that it hears up to one on `channel`, which is sent now.
    async fn until(&mut self, by: &Client, channel: &str) -> Vec<String> {
        rows(by, &format!("NOTIFY {channel}")).await;
        let mut all = vec![];
        loop {
            match self.next().await {
                n if n == format!("{channel}:") => return all,
                n => all.push(n),
            }
        }
    }
}

/// What is said reaches those that listen, at every node, once, in the order of the commits, and not before the commit.
#[tokio::test(flavor = "multi_thread")]
async fn notifications_are_transactional() {
    let places = Places::start().await;
    let mut servers = vec![&places.primary];
    servers.extend(&places.replica);
    for at in &servers {
        let mut ear = Ear::at(at).await;
        let speaker = at.connect().await;
        rows(&ear.client, "LISTEN a").await;
        rows(&ear.client, "LISTEN \"B c\"; LISTEN ende").await;
        let channels = "SELECT string_agg(c, ',' ORDER BY c) FROM pg_listening_channels() c";
        assert_eq!(one(&ear.client, channels).await, "B c,a,ende");
        // Of a transaction that is rolled back, in whole or in part, nothing is heard; twice the same is heard once.
        rows(&speaker, "BEGIN").await;
        rows(&speaker, "NOTIFY a, 'lost'").await;
        rows(&speaker, "ROLLBACK").await;
        rows(&speaker, "BEGIN").await;
        rows(&speaker, "NOTIFY a, '1'").await;
        rows(&speaker, "SAVEPOINT s").await;
        rows(&speaker, "SELECT pg_notify('a', 'lost')").await;
        rows(&speaker, "ROLLBACK TO s").await;
        rows(
            &speaker,
            "SELECT pg_notify('B c', '2'), pg_notify('a', '1'), pg_notify('deaf', '')",
        )
        .await;
        rows(&speaker, "NOTIFY a, '3'").await;
        rows(&speaker, "COMMIT").await;
        rows(
            &speaker,
            "SELECT pg_notify('a', n::text) FROM generate_series(4, 5) n",
        )
        .await;
        refused(&speaker, "SELECT pg_notify('a', 'lost'), 1/0").await;
        assert_eq!(
            ear.until(&speaker, "ende").await,
            ["a:1", "B c:2", "a:3", "a:4", "a:5"]
        );
        // Inside of a transaction nothing is told.
        rows(&ear.client, "BEGIN").await;
        rows(&speaker, "NOTIFY a, 'x'").await;
        one(&ear.client, "SELECT 1").await;
        assert!(ear.heard.try_recv().is_err());
        rows(&ear.client, "COMMIT").await;
        assert_eq!(ear.next().await, "a:x");
        // One hears oneself; and LISTEN and UNLISTEN count when their transaction commits.
        rows(&ear.client, "NOTIFY a, 'own'").await;
        assert_eq!(ear.next().await, "a:own");
        rows(&ear.client, "BEGIN; UNLISTEN a; LISTEN d; ROLLBACK").await;
        assert_eq!(one(&ear.client, channels).await, "B c,a,ende");
        rows(&ear.client, "BEGIN").await;
        rows(&ear.client, "CREATE TABLE IF NOT EXISTS made (id int)").await;
        rows(&ear.client, "UNLISTEN a").await;
        rows(&ear.client, "LISTEN d").await;
        rows(&ear.client, "COMMIT").await;
        assert_eq!(one(&ear.client, channels).await, "B c,d,ende");
        rows(&speaker, "NOTIFY a, 'lost'").await;
        rows(&speaker, "NOTIFY d, 'new'").await;
        assert_eq!(ear.until(&speaker, "ende").await, ["d:new"]);
        // LISTEN and NOTIFY of one transaction. The session learns of its end after the node has shown it.
        let text = "BEGIN; LISTEN e; NOTIFY e, 'own'; COMMIT; SELECT pg_sleep(0.5)";
        rows(&ear.client, text).await;
        assert_eq!(ear.until(&speaker, "ende").await, ["e:own"]);
        rows(
            &ear.client,
            "BEGIN; LISTEN f; NOTIFY f; NOTIFY d, 'lost'; ROLLBACK",
        )
        .await;
        rows(&speaker, "NOTIFY f, 'lost'").await;
        assert_eq!(ear.until(&speaker, "ende").await, [""; 0]);
        rows(&ear.client, "UNLISTEN *").await;
        assert_eq!(one(&ear.client, channels).await, "NULL");
        rows(&ear.client, "LISTEN a").await;
        rows(&ear.client, "DISCARD ALL").await;
        assert_eq!(one(&ear.client, channels).await, "NULL");
        for (sql, code) in [
            ("SELECT pg_notify('', 'x')", "22023"),
            ("SELECT pg_notify(repeat('c', 64), 'x')", "22023"),
            ("SELECT pg_notify('a', repeat('x', 8000))", "22023"),
        ] {
            assert_eq!(refused(&speaker, sql).await.0, code, "{sql}");
        }
        rows(&speaker, "SELECT pg_notify('a', repeat('x', 7999))").await;
        until(&speaker, "SELECT pg_notification_queue_usage()", "0").await;
    }
}

/// A row that a notification tells of is there, wherever it is heard; what was said before LISTEN, or before the start, is not heard.
#[tokio::test(flavor = "multi_thread")]
async fn a_notification_comes_when_its_commit_is_shown() {
    if skip() {
        return;
    }
    let mut p = Server::start().await;
    let r = replica(&p, "r").await;
    let speaker = p.connect().await;
    rows(&speaker, "CREATE TABLE t (id int PRIMARY KEY)").await;
    rows(&speaker, "NOTIFY n, 'before'").await;
    let mut ears = [Ear::at(&p).await, Ear::at(&r).await];
    for ear in &ears {
        rows(&ear.client, "SELECT count(*) FROM t").await;
        rows(&ear.client, "LISTEN n").await;
        // As old as what is shown here: nothing is waited for.
        rows(&ear.client, "SET canon.read_consistency = 'eventual'").await;
    }
    for i in 0..200 {
        let sql = format!("BEGIN; INSERT INTO t VALUES ({i}); NOTIFY n, '{i}'; COMMIT");
        rows(&speaker, &sql).await;
    }
    for ear in &mut ears {
        for i in 0..200 {
            assert_eq!(ear.next().await, format!("n:{i}"));
            let there = format!("SELECT count(*) FROM t WHERE id = {i}");
            assert_eq!(one(&ear.client, &there).await, "1");
        }
    }
    // Both start again, over a log that is full of them.
    drop(speaker);
    p.kill();
    p.launch();
    p.ready().await;
    let (mut here, speaker) = (Ear::at(&p).await, p.connect().await);
    rows(&here.client, "LISTEN n").await;
    assert_eq!(here.until(&speaker, "n").await, [""; 0]);
    let mut there = ears.into_iter().nth(1).expect("the replica's");
    assert_eq!(there.next().await, "n:");
    rows(&speaker, "NOTIFY n, 'after'").await;
    assert_eq!(there.next().await, "n:after");
    assert_eq!(here.next().await, "n:after");
    let fresh = replica(&p, "fresh").await;
    let mut late = Ear::at(&fresh).await;
    rows(&late.client, "LISTEN n").await;
    assert_eq!(late.until(&speaker, "n").await, [""; 0]);
}

/// A client that does not take what it hears is disconnected when the limit is reached; the speaker and other listeners go on.
#[tokio::test(flavor = "multi_thread")]
async fn a_listener_that_does_not_listen_holds_up_nobody() {
    if skip() {
        return;
    }
    let server = Server::start().await;
    let (speaker, deaf) = (server.connect().await, server.connect().await);
    let mut ear = Ear::at(&server).await;
    let p = pid(&deaf).await;
    rows(&deaf, "LISTEN n").await;
    // A transaction that is open: nothing is told to it, so that all waits.
    rows(&deaf, "BEGIN").await;
    rows(&ear.client, "LISTEN n; LISTEN ende").await;
    let much = "SELECT pg_notify('n', n || repeat('x', 7900)) FROM generate_series(1, 1000) n";
    for _ in 0..4 {
        rows(&speaker, much).await;
        assert_eq!(ear.until(&speaker, "ende").await.len(), 1000);
    }
    rows(&deaf, "SELECT 1").await;
    let (code, what) = refused(&deaf, "COMMIT").await;
    assert_eq!(code, "53400", "{what}");
    let gone = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {p}");
    until(&speaker, &gone, "0").await;
}
