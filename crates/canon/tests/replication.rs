//! Replicas over real sockets, in processes of their own: copied while the primary writes, killed and started again, promoted; what
//! their sessions may see, and what the views say.
//!
//! Equality is asked of the servers as a client would: the replica waits for the primary's position (`WAIT FOR LSN`), and both
//! give all rows of all tables, through every index too.

mod common;
#[path = "replication/helpers.rs"]
#[allow(dead_code)]
mod helpers;

use common::{PATIENCE, Server, connect_to, free_port};
use helpers::*;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_is_made_while_the_primary_writes_and_kills_on_either_side_lose_nothing() {
    if skip() {
        return;
    }
    let mut p = Server::start().await;
    let c = p.connect().await;
    bank(&c).await;
    let movers = Movers::start(&p, 3).await;
    movers.some(50).await;
    let mut r = replica(&p, "a").await;
    movers.some(50).await;

    // The replica dies in the middle of it, and goes on where it was.
    on_disk(&c, "a").await;
    r.kill();
    movers.some(50).await;
    r.launch();
    r.ready().await;
    movers.some(50).await;
    let reader = r.connect().await;
    let total = one(&reader, "SELECT sum(balance) FROM accounts").await;
    assert_eq!(total, TOTAL.to_string());
    drop(reader);
    let log = std::fs::read_to_string(r.scratch().join("log")).expect("a log");
    assert_eq!(
        log.matches("copying the primary's database").count(),
        1,
        "{log}"
    );

    // The primary dies with commits under way; the replica finds it again.
    p.kill_now();
    movers.stop().await;
    p.kill();
    p.launch();
    p.ready().await;
    let c = p.connect().await;
    let movers = Movers::start(&p, 2).await;
    movers.some(50).await;
    movers.stop().await;
    assert_equal(&c, &r).await;
    assert_eq!(
        one(&c, "SELECT sum(balance) FROM accounts").await,
        TOTAL.to_string()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_at_a_replica_see_prefixes_and_may_not_write() {
    if skip() {
        return;
    }
    let p = Server::start().await;
    let c = p.connect().await;
    bank(&c).await;
    let r = replica(&p, "reader").await;
    drop(caught_up(&c, &r).await);
    let movers = Movers::start(&p, 3).await;
    let mut readers = Vec::new();
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        let reader = r.connect().await;
        let stop = movers.stop.clone();
        readers.push(tokio::spawn(async move {
            let (mut looks, mut moves) = (0, 0i64);
            while !stop.load(Ordering::SeqCst) {
                rows(&reader, &format!("BEGIN ISOLATION LEVEL {level}")).await;
                let sum = one(&reader, "SELECT sum(balance) FROM accounts").await;
                assert_eq!(sum, TOTAL.to_string(), "{level}");
                let n: i64 = one(&reader, "SELECT count(*) FROM moves")
                    .await
                    .parse()
                    .unwrap();
                assert!(n >= moves, "{n} moves after {moves}: back in time");
                moves = n;
                if level != "READ COMMITTED" {
                    let again = one(&reader, "SELECT count(*) FROM moves").await;
                    assert_eq!(again, n.to_string(), "{level}");
                }
                rows(&reader, "COMMIT").await;
                looks += 1;
            }
            assert!(looks > 3 && moves > 0, "{looks} looks, {moves} moves");
        }));
    }
    movers.some(300).await;

    // Without the way to the primary.
    let w = r.connect().await;
    rows(&w, "SET canon.forward = off").await;
    for (sql, what) in [
        ("INSERT INTO accounts VALUES (99, 1, 1)", "INSERT"),
        ("UPDATE accounts SET balance = 0", "UPDATE"),
        ("DELETE FROM accounts", "DELETE"),
        ("CREATE TABLE t (a int)", "CREATE TABLE"),
        ("SELECT * FROM accounts FOR UPDATE", "SELECT FOR UPDATE"),
        ("SELECT nextval('moves_id_seq')", "nextval()"),
        ("COPY accounts FROM STDIN", "COPY FROM"),
    ] {
        let (code, message) = refused(&w, sql).await;
        assert_eq!(code, "25006", "{sql}");
        assert_eq!(
            message,
            format!("cannot execute {what} in a read-only transaction")
        );
    }
    assert_eq!(refused(&w, "BEGIN READ WRITE").await.0, "0A000");
    rows(&w, "ROLLBACK").await;
    for (name, wanted) in [
        ("in_hot_standby", "on"),
        ("transaction_read_only", "on"),
        ("default_transaction_read_only", "on"),
    ] {
        assert_eq!(one(&w, &format!("SHOW {name}")).await, wanted, "{name}");
    }
    movers.stop().await;
    for t in readers {
        t.await.expect("a reader");
    }
    assert_equal(&c, &r).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn views_functions_and_probes_tell_where_everybody_is() {
    if skip() {
        return;
    }
    let http = free_port();
    let address = format!("127.0.0.1:{http}");
    let p = Server::start_with(&[("CANON_HTTP", &address)]).await;
    let c = p.connect().await;
    bank(&c).await;
    let own = free_port();
    let own_address = format!("127.0.0.1:{own}");
    let mut r = replica_with(&p, "told", &[("CANON_HTTP", &own_address)]).await;
    let w = caught_up(&c, &r).await;

    assert_eq!(one(&c, "SELECT pg_is_in_recovery()").await, "f");
    assert_eq!(one(&w, "SELECT pg_is_in_recovery()").await, "t");
    assert_eq!(
        one(&c, "SELECT pg_last_wal_replay_lsn() IS NULL").await,
        "t"
    );
    assert_eq!(refused(&w, "SELECT pg_current_wal_lsn()").await.0, "55000");
    let replication = rows(
        &c,
        "SELECT application_name, state, sync_state, usename, reply_time IS NOT NULL FROM pg_stat_replication",
    )
    .await;
    let told: Vec<_> = replication[0]
        .iter()
        .map(|v| v.as_deref().unwrap_or("NULL"))
        .collect();
    assert_eq!(told, ["told", "streaming", "async", "canon", "t"]);
    let receiver = "SELECT status, sender_port FROM pg_stat_wal_receiver";
    assert_eq!(
        rows(&w, receiver).await,
        [[Some("streaming".to_owned()), Some(p.port.to_string())]]
    );
    rows(&c, "INSERT INTO moves (sum) VALUES (1)").await;
    let at = one(&c, "SELECT pg_current_wal_lsn()").await;
    until(
        &w,
        &format!("SELECT pg_wal_lsn_diff(pg_last_wal_replay_lsn(), '{at}') >= 0"),
        "t",
    )
    .await;
    assert_eq!(
        one(
            &w,
            "SELECT pg_wal_lsn_diff(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()) >= 0"
        )
        .await,
        "t"
    );
    until(
        &w,
        "SELECT pg_last_xact_replay_timestamp() <= clock_timestamp()",
        "t",
    )
    .await;
    // Lag is heard of also when nothing happens.
    until(
        &c,
        "SELECT replay_lag IS NOT NULL FROM pg_stat_replication",
        "t",
    )
    .await;

    let deadline = Instant::now() + PATIENCE;
    while get(own, "/readyz?max_lag=2s").0 != 200 {
        assert!(
            Instant::now() < deadline,
            "{:?}",
            get(own, "/readyz?max_lag=2s")
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(get(own, "/readyz?max_lag=0ms").0, 503);
    assert_eq!(
        get(http, "/readyz?max_lag=1ms").0,
        200,
        "a primary is as new as it gets"
    );
    let metrics = get(http, "/metrics").1;
    assert!(
        metrics.contains("canon_replica_connected{replica=\"told\"} 1"),
        "{metrics}"
    );
    assert!(metrics.contains("canon_replication_lag_epochs{replica=\"told\"}"));
    let metrics = get(own, "/metrics").1;
    assert!(
        metrics.contains("canon_role{role=\"replica\"} 1"),
        "{metrics}"
    );
    assert!(metrics.contains("canon_primary_connected 1"));

    // Who is away has no lag, and is said to be away.
    on_disk(&c, "told").await;
    r.kill();
    until(&c, "SELECT count(*) FROM pg_stat_replication", "0").await;
    let metrics = get(http, "/metrics").1;
    assert!(
        metrics.contains("canon_replica_connected{replica=\"told\"} 0"),
        "{metrics}"
    );
    assert!(
        !metrics.contains("canon_replication_lag_seconds{"),
        "{metrics}"
    );
    drop(w);

    // A replica without its primary serves and says that it is not fresh.
    r.launch();
    r.ready().await;
    let mut p = p;
    p.kill();
    let deadline = Instant::now() + PATIENCE;
    while get(own, "/readyz?max_lag=1h").0 != 503 {
        assert!(Instant::now() < deadline, "still fresh");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(get(own, "/readyz").0, 200);
    let w = r.connect().await;
    assert_eq!(
        one(&w, "SELECT count(*) FROM pg_stat_wal_receiver").await,
        "0"
    );
    rows(&w, "SET canon.read_timeout = '50ms'").await;
    let strong = refused(&w, "SELECT sum(balance) FROM accounts").await;
    assert_eq!(strong.0, "57014", "nobody can say what is newest");
    rows(&w, "SET canon.read_consistency = eventual").await;
    assert_eq!(
        one(&w, "SELECT sum(balance) FROM accounts").await,
        TOTAL.to_string()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn schema_changes_follow_beside_the_load() {
    if skip() {
        return;
    }
    let p = Server::start().await;
    let c = p.connect().await;
    bank(&c).await;
    let r = replica(&p, "ddl").await;
    let movers = Movers::start(&p, 2).await;
    for sql in [
        "CREATE TABLE t (a int PRIMARY KEY, b text, c int)",
        "INSERT INTO t SELECT n, 'b' || n, n % 10 FROM generate_series(1, 500) n",
        "CREATE INDEX t_c ON t (c)",
        "ALTER TABLE t ADD COLUMN d int DEFAULT 7",
        "UPDATE t SET d = a WHERE a % 3 = 0",
        "CREATE INDEX accounts_balance ON accounts (balance)",
        "ALTER TABLE t DROP COLUMN b",
        "CREATE TABLE gone AS SELECT * FROM t",
        "TRUNCATE t",
        "INSERT INTO t SELECT n, n % 5, n FROM generate_series(1, 100) n",
        "DROP TABLE gone",
        "DROP INDEX accounts_branch",
        "CREATE TABLE late (id serial PRIMARY KEY, x int)",
        "INSERT INTO late (x) SELECT n FROM generate_series(1, 40) n",
        "CREATE VIEW v AS SELECT count(*) AS n FROM late",
        "CREATE ROLE reader LOGIN",
        "GRANT SELECT ON late TO reader",
    ] {
        rows(&c, sql).await;
        movers.some(5).await;
    }
    assert_eq!(one(&caught_up(&c, &r).await, "SELECT n FROM v").await, "40");
    movers.stop().await;
    assert_equal(&c, &r).await;
    let w = caught_up(&c, &r).await;
    assert_eq!(refused(&w, "SELECT * FROM gone").await.0, "42P01");
    let roles = one(&w, "SELECT has_table_privilege('reader', 'late', 'SELECT')").await;
    assert_eq!(roles, "t");
}

/// A snapshot at a replica keeps what it began with while tables change their columns, lose their indexes and rows, and go.
#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_at_a_replica_outlives_schema_changes() {
    if skip() {
        return;
    }
    let p = Server::start().await;
    let c = p.connect().await;
    c.batch_execute(
        "CREATE TABLE t (a int PRIMARY KEY, b text, c int); CREATE INDEX t_c ON t (c);
         INSERT INTO t SELECT n, 'b' || n, n % 10 FROM generate_series(1, 100) n;
         CREATE TABLE empties AS SELECT * FROM t; CREATE TABLE goes AS SELECT * FROM t",
    )
    .await
    .expect("tables");
    let r = replica(&p, "old").await;
    let w = caught_up(&c, &r).await;
    let questions = [
        "SELECT count(*) || ' ' || min(b) || ' ' || sum(c) FROM t",
        "SELECT count(*) FROM t WHERE c = 3",
        "SELECT b FROM t WHERE a = 7",
        "SELECT count(*) FROM empties",
        "SELECT count(*) FROM goes WHERE c = 3",
    ];
    rows(&w, "BEGIN ISOLATION LEVEL REPEATABLE READ").await;
    let mut before = Vec::new();
    for q in questions {
        before.push(one(&w, q).await);
    }
    assert_eq!(before, ["100 b1 450", "10", "b7", "100", "10"]);
    for sql in [
        "ALTER TABLE t ADD COLUMN d int DEFAULT 7",
        "UPDATE t SET c = c + 100, d = a",
        "ALTER TABLE t DROP COLUMN b",
        "ALTER TABLE t RENAME COLUMN c TO e",
        "DROP INDEX t_c",
        "DELETE FROM t WHERE a > 50",
        "TRUNCATE empties",
        "DROP TABLE goes",
        "CREATE TABLE goes (x text)",
    ] {
        rows(&c, sql).await;
        let new = caught_up(&c, &r).await;
        for (q, was) in questions.iter().zip(&before) {
            assert_eq!(&one(&w, q).await, was, "{q} after {sql}");
        }
        drop(new);
    }
    rows(&w, "COMMIT").await;
    assert_eq!(refused(&w, questions[2]).await.0, "42703");
    assert_eq!(one(&w, "SELECT count(*) FROM goes").await, "0");
    let now = "SELECT count(*) || ' ' || sum(d) FROM t WHERE e > 100";
    assert_eq!(one(&w, now).await, one(&c, now).await);
    assert_equal(&c, &r).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_switch_over_answers_commits_that_wait_for_more_than_the_heir() {
    if skip() {
        return;
    }
    let two = [("CANON_SYNCHRONOUS_REPLICAS", "2")];
    let mut p = Server::start_with(&two).await;
    let mut heir = replica_with(&p, "heir", &two).await;
    let mut other = replica_with(&p, "other", &two).await;
    let c = p.connect().await;
    bank(&c).await;
    let movers = Movers::start(&p, 8).await;
    movers.some(50).await;
    // Some wait for this one when the primary is asked, and go on waiting.
    signal(&other, "-STOP");
    std::thread::scope(|s| {
        let promoting = s.spawn(|| promote(&heir, &[]));
        let deadline = Instant::now() + PATIENCE;
        while !p.log_tail().contains("handed over") && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_millis(300));
        signal(&other, "-CONT");
        promoting.join().expect("it is promoted");
    });
    let stopped = tokio::time::timeout(PATIENCE, movers.stop()).await;
    assert!(stopped.is_ok(), "commits hang\n{}", p.log_tail());
    let of = format!("{}:{}", heir.host, heir.port);
    for (node, name) in [(&mut p, "p"), (&mut other, "other")] {
        node.kill();
        node.set_env(&[("CANON_REPLICA_OF", &of), ("CANON_NODE_NAME", name), two[0]]);
        node.launch();
    }
    heir.ready().await;
    p.ready().await;
    other.ready().await;
    let w = heir.connect().await;
    rows(&w, "INSERT INTO moves (sum) VALUES (1)").await;
    assert_equal(&w, &other).await;
    assert_equal(&w, &p).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_planned_switch_over_loses_nothing_and_the_old_primary_follows() {
    if skip() {
        return;
    }
    let mut p = Server::start().await;
    let c = p.connect().await;
    bank(&c).await;
    let r = replica(&p, "heir").await;
    let w = r.connect().await;
    assert_eq!(one(&w, "SHOW in_hot_standby").await, "on");
    let movers = Movers::start(&p, 3).await;
    movers.some(100).await;
    // In the middle of the load: what was acknowledged is there, what comes later is refused.
    let report = promote(&r, &[]);
    assert!(report.contains("nothing is lost"), "{report}");
    let done = movers.done.clone();
    movers.stop().await;
    let acknowledged = done.load(Ordering::SeqCst);

    assert_eq!(one(&w, "SELECT pg_is_in_recovery()").await, "f");
    assert_eq!(one(&w, "SHOW in_hot_standby").await, "off");
    assert_eq!(
        one(&w, "SELECT sum(balance) FROM accounts").await,
        TOTAL.to_string()
    );
    let n: u64 = one(&w, "SELECT count(*) FROM moves").await.parse().unwrap();
    assert!(n >= acknowledged, "{n} of {acknowledged} acknowledged");
    let (code, _) = refused(&p.connect().await, "INSERT INTO moves (sum) VALUES (1)").await;
    assert_eq!(code, "25006");

    // Numbers go on; none is given twice.
    let max: i64 = one(&w, "SELECT max(id) FROM moves").await.parse().unwrap();
    for _ in 0..40 {
        rows(&w, "INSERT INTO moves (sum) VALUES (1)").await;
    }
    let least = format!("SELECT min(id) FROM moves WHERE sum = 1 AND id > {max}");
    assert!(one(&w, &least).await.parse::<i64>().unwrap() > max);
    rows(&w, "CREATE TABLE after_it (a int PRIMARY KEY)").await;

    // The old primary has not forgotten it after a start, and follows the new one from where it was.
    p.kill();
    p.launch();
    p.ready().await;
    let again = p.connect().await;
    let insert = "INSERT INTO moves (sum) VALUES (1)";
    assert_eq!(refused(&again, insert).await.0, "25006");
    drop(again);
    p.kill();
    let of = format!("{}:{}", r.host, r.port);
    p.set_env(&[("CANON_REPLICA_OF", &of), ("CANON_NODE_NAME", "old")]);
    p.launch();
    p.ready().await;
    assert_equal(&w, &p).await;
    assert!(!p.data_dir().join("set-aside").exists());
    let movers = Movers::start(&r, 2).await;
    movers.some(30).await;
    movers.stop().await;
    assert_equal(&w, &p).await;
    assert_eq!(refused(&w, "SELECT pg_promote()").await.0, "55000");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_synchronous_replica_acknowledged_survives_the_loss_of_the_primary() {
    if skip() {
        return;
    }
    let mut p = Server::start_with(&[("CANON_SYNCHRONOUS_REPLICAS", "1")]).await;
    // Nobody follows yet: what the cluster asks for cannot be had, so one asks for less.
    let c = p.connect().await;
    rows(&c, "SET synchronous_commit = local").await;
    bank(&c).await;
    let r = replica_with(&p, "sync", &[("CANON_SYNCHRONOUS_REPLICAS", "0")]).await;
    until(
        &c,
        "SELECT sync_state FROM pg_stat_replication WHERE state = 'streaming'",
        "quorum",
    )
    .await;
    rows(&c, "SET synchronous_commit = on").await;
    let movers = Movers::start(&p, 4).await;
    movers.some(100).await;
    for level in ["remote_write", "remote_apply", "on"] {
        rows(&c, &format!("SET synchronous_commit = {level}")).await;
        rows(&c, "INSERT INTO moves (sum) VALUES (9)").await;
    }
    p.kill_now();
    let done = movers.done.clone();
    movers.stop().await;
    p.kill();
    let acknowledged = done.load(Ordering::SeqCst) + 3;

    let report = promote(&r, &["--force", "--old-primary-is-down"]);
    assert!(report.contains("term"), "{report}");
    let w = r.connect().await;
    let n: u64 = one(&w, "SELECT count(*) FROM moves").await.parse().unwrap();
    assert!(n >= acknowledged, "{n} of {acknowledged} acknowledged");
    assert_eq!(
        one(&w, "SELECT sum(balance) FROM accounts").await,
        TOTAL.to_string()
    );
    rows(&w, "INSERT INTO moves (sum) VALUES (2)").await;

    // The old primary comes back alone: it does not serve. Told that no replica is needed it does, and commits what no other has.
    // (The new one cannot tell it of its term meanwhile.)
    signal(&r, "-STOP");
    p.launch();
    let told = p.not_serving().await;
    assert!(told.contains("1 replicas"), "{told}");
    p.kill();
    p.set_env(&[("CANON_SYNCHRONOUS_REPLICAS", "0")]);
    p.launch();
    p.ready().await;
    let c = p.connect().await;
    rows(&c, "INSERT INTO moves (sum) VALUES (666)").await;
    drop(c);
    p.kill();
    signal(&r, "-CONT");
    // Then it joins the others, and sets that aside.
    let of = format!("{}:{}", r.host, r.port);
    p.set_env(&[("CANON_REPLICA_OF", &of), ("CANON_NODE_NAME", "old")]);
    p.launch();
    p.ready().await;
    assert_equal(&w, &p).await;
    let aside = p.data_dir().join("set-aside");
    let names: Vec<_> = std::fs::read_dir(&aside).expect("set aside").collect();
    assert!(names.len() >= 2, "a log and a report: {names:?}");
    let back = p.connect().await;
    assert_eq!(
        one(&back, "SELECT count(*) FROM moves WHERE sum = 666").await,
        "0"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_with_its_position_never_goes_back_in_time() {
    if skip() {
        return;
    }
    let p = Server::start().await;
    let c = p.connect().await;
    bank(&c).await;
    let r = replica(&p, "floor").await;
    for i in 0..30 {
        rows(
            &c,
            &format!("UPDATE accounts SET branch = {i} WHERE id = 1"),
        )
        .await;
        let at = one(&c, "SHOW canon.commit_token").await;
        // As a start-up option: a new session on another server begins there.
        let mut config = r.config();
        config.options(format!("-c canon.min_token={at}"));
        let s = connect_to(&config).await.expect("the replica");
        assert_eq!(
            one(&s, "SELECT branch FROM accounts WHERE id = 1").await,
            i.to_string()
        );
    }
    let s = r.connect().await;
    rows(&s, "SET canon.read_consistency = 'session'").await;
    let token = one(&c, "SHOW canon.commit_token").await;
    let (whose, at) = token.rsplit_once(':').expect("cluster, term, position");
    let (cluster, _) = whose.rsplit_once(':').expect("cluster and term");
    let future = format!("{whose}:7FFFFFFF/00000000");
    let read = "SELECT branch FROM accounts WHERE id = 1";
    // A replica asks its primary whether it has given that, whatever the level.
    rows(&s, &format!("SET canon.min_token = '{future}'")).await;
    assert_eq!(refused(&s, read).await.0, "55000");
    rows(&s, "SET canon.read_consistency = 'strong'").await;
    assert_eq!(refused(&s, read).await.0, "55000");
    rows(&s, "RESET canon.min_token").await;
    rows(&s, read).await;
    for (node, name) in [(&s, "replica"), (&c, "primary")] {
        for (bad, code) in [
            ("soon".to_owned(), "22023"),
            (at.to_owned(), "22023"),
            (format!("{}:1:{at}", "0".repeat(32)), "22023"),
        ] {
            let set = format!("SET canon.min_token = '{bad}'");
            assert_eq!(refused(node, &set).await.0, code, "{name}: {bad}");
            let call = format!("SELECT set_config('canon.min_token', '{bad}', false)");
            assert_eq!(refused(node, &call).await.0, code, "{name}: {bad}");
        }
        assert_eq!(one(node, "SHOW canon.min_token").await, "", "{name}");
    }
    // A term that there is not: the primary knows at once, a replica asks it when something is read.
    for later in [
        format!("{cluster}:99:{at}"),
        format!("{cluster}:99:7FFFFFFF/00000000"),
    ] {
        let set = format!("SET canon.min_token = '{later}'");
        assert_eq!(refused(&c, &set).await.0, "55000");
        rows(&s, &set).await;
        assert_eq!(refused(&s, read).await.0, "55000");
    }
    rows(&s, "RESET canon.min_token").await;
    rows(&s, read).await;
    let set = format!("SET canon.min_token = '{future}'");
    assert_eq!(
        refused(&c, &set).await.0,
        "55000",
        "the primary knows at once"
    );
    let mut config = r.config();
    let other = "0".repeat(32);
    config.options(format!("-c canon.min_token={other}:1:{at}"));
    assert!(connect_to(&config).await.is_err(), "no session with it");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_follow() {
    if skip() {
        return;
    }
    let p = Server::start().await;
    let c = p.connect().await;
    c.batch_execute(
        "CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1);
         CREATE ROLE plain LOGIN PASSWORD 'secret'; CREATE ROLE follower LOGIN REPLICATION PASSWORD 'secret'",
    )
    .await
    .expect("roles");
    let follow = |user: &str, password: &str| {
        let of = format!(
            "host={} port={} user={user} password={password}",
            p.host, p.port
        );
        let mut s = Server::canon(&[("CANON_REPLICA_OF", of.as_str())]);
        s.launch();
        s
    };
    for (user, password) in [("plain", "secret"), ("follower", "wrong")] {
        let mut s = follow(user, password);
        let ended = s.exited(PATIENCE).await;
        assert!(
            ended.is_some_and(|e| !e.success()),
            "{user}: {}",
            s.log_tail()
        );
    }
    let mut s = follow("follower", "secret");
    s.ready().await;
    let r = caught_up(&c, &s).await;
    assert_eq!(one(&r, "SELECT a FROM t").await, "1");
    let who = one(&c, "SELECT usename FROM pg_stat_replication").await;
    assert_eq!(who, "follower");
    // PostgreSQL's own protocol is refused, and so is following a replica.
    for (server, mode, code) in [
        (&p, "true", "0A000"),
        (&p, "database", "0A000"),
        (&s, "canon", "55000"),
    ] {
        let answer = raw(server, mode);
        let told = format!("C{code}\0");
        assert!(
            answer.windows(told.len()).any(|w| w == told.as_bytes()),
            "{mode}: {}",
            String::from_utf8_lossy(&answer)
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_comes_before_the_first_copy_is_told_so() {
    if skip() {
        return;
    }
    let mut p = Server::start().await;
    p.kill();
    let primary = format!("{}:{}", p.host, p.port);
    let mut r = Server::canon(&[("CANON_REPLICA_OF", &primary)]);
    r.launch();
    let told = r.not_serving().await;
    assert!(told.contains("is to come"), "{told}");
    // And let in when it has come.
    p.launch();
    p.ready().await;
    r.ready().await;
    assert_eq!(
        one(&r.connect().await, "SELECT pg_is_in_recovery()").await,
        "t"
    );
}
