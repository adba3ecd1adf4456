//! What a server does at its limits, over the wire: memory, the age of snapshots, a full disk; at its start and when it is told to stop;
//! and what it tells of itself meanwhile.

mod common;
#[allow(dead_code)]
#[path = "replication/helpers.rs"]
mod helpers;
#[allow(dead_code)]
#[path = "wire_abuse/raw.rs"]
mod raw;

use common::{PATIENCE, Server, connect_to, free_port, on_postgres, sqlstate};
use helpers::{get, one, rows, signal};
use std::time::{Duration, Instant};
use tokio_postgres::Client;

/// Runs the statement until it gives this SQLSTATE (empty: until it succeeds). Others than `also` fail the test.
async fn until(client: &Client, sql: &str, code: &str, also: &[&str]) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let got = match client.batch_execute(sql).await {
            Ok(()) => String::new(),
            Err(e) => sqlstate(&e),
        };
        if got == code {
            return;
        }
        assert!(also.contains(&&*got), "{sql}: {got}");
        assert!(Instant::now() < deadline, "{sql}: never {code:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn count(client: &Client) -> i64 {
    let row = client.query_one("SELECT count(*) FROM t", &[]).await;
    row.expect("a count").get(0)
}

/// Writes that need more than `max_memory` are refused, reads and deletes are not, and deleting makes room.
#[tokio::test(flavor = "multi_thread")]
async fn memory() {
    if on_postgres() {
        return;
    }
    let server = Server::start_with(&[("CANON_MAX_MEMORY", "16MB")]).await;
    let client = server.connect().await;
    let table = "CREATE TABLE t (id bigserial PRIMARY KEY, v text)";
    client.batch_execute(table).await.unwrap();
    let insert = "INSERT INTO t (v) SELECT repeat('x', 1000) FROM generate_series(1, 200)";
    until(&client, insert, "53200", &[""]).await;
    until(&client, &insert.replace("200", "1"), "53200", &[""]).await;
    assert!(count(&client).await > 1000);
    let update = "UPDATE t SET v = v || 'y' WHERE id = 1";
    let refused = client.batch_execute(update).await.unwrap_err();
    assert_eq!(sqlstate(&refused), "53200");
    client.batch_execute("DELETE FROM t").await.unwrap();
    assert_eq!(count(&client).await, 0);
    // The rows' memory comes back when nobody can see them any more.
    until(&client, insert, "", &["53200"]).await;
    assert_eq!(count(&client).await, 200);
}

/// A snapshot that stands longer than `snapshot_max_age` ends, so that it cannot hold old versions for ever.
#[tokio::test(flavor = "multi_thread")]
async fn age_of_snapshots() {
    if on_postgres() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("canon.toml");
    std::fs::write(&config, "snapshot_max_age = \"300ms\"\n").unwrap();
    let server = Server::start_with(&[("CANON_CONFIG", config.to_str().unwrap())]).await;
    let (old, other) = (server.connect().await, server.connect().await);
    let table = "CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 1)";
    other.batch_execute(table).await.unwrap();
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let begin = format!("BEGIN ISOLATION LEVEL {level}; SELECT * FROM t");
        old.batch_execute(&begin).await.unwrap();
        // Its rows are changed, so that it needs old versions.
        let update = "UPDATE t SET n = n + 1";
        other.batch_execute(update).await.unwrap();
        until(&old, "SELECT * FROM t", "72000", &[""]).await;
        let failed = old.batch_execute("SELECT 1").await.unwrap_err();
        assert_eq!(sqlstate(&failed), "25P02");
        old.batch_execute("ROLLBACK").await.unwrap();
    }
    // Each statement of READ COMMITTED has a snapshot of its own: it goes on.
    let begin = "BEGIN ISOLATION LEVEL READ COMMITTED; SELECT * FROM t";
    old.batch_execute(begin).await.unwrap();
    tokio::time::sleep(Duration::from_millis(900)).await;
    old.batch_execute("UPDATE t SET n = 0; COMMIT")
        .await
        .unwrap();
}

/// On a full disk commits wait and new writes are refused; when there is room the server goes on, and has lost nothing. Nor can it say so.
#[cfg(feature = "faults")]
#[tokio::test(flavor = "multi_thread")]
async fn full_disk() {
    if on_postgres() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let full = dir.path().join("full");
    let fault = format!("wal.before_write:while={}", full.display());
    let mut server = Server::start_with(&[("CANON_FAULT", &fault), (common::MUTE, "")]).await;
    let (first, second) = (server.connect().await, server.connect().await);
    let table = "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)";
    first.batch_execute(table).await.unwrap();
    std::fs::write(&full, "").unwrap();
    let waiting = tokio::spawn(async move {
        let done = first.batch_execute("INSERT INTO t VALUES (2)").await;
        (first, done)
    });
    // So that it comes before the others, which are refused.
    tokio::time::sleep(Duration::from_millis(500)).await;
    // Not acknowledged, and everybody who comes after it learns why. (One that comes before the server has noticed waits, too:
    // so each try has a connection of its own, and a time after which it is left waiting.)
    let deadline = Instant::now() + PATIENCE;
    let mut left_waiting = Vec::new();
    for id in 100.. {
        assert!(Instant::now() < deadline, "53100 never came");
        let client = server.connect().await;
        let mut insert = tokio::spawn(async move {
            let sql = format!("INSERT INTO t VALUES ({id})");
            client.batch_execute(&sql).await
        });
        match tokio::time::timeout(Duration::from_millis(300), &mut insert).await {
            Ok(done) => {
                let refused = done.unwrap().expect_err("the disk is full");
                assert_eq!(sqlstate(&refused), "53100");
                break;
            }
            Err(_) => left_waiting.push(insert),
        }
    }
    assert!(!waiting.is_finished(), "answered on a full disk");
    assert_eq!(count(&second).await, 1, "what is acknowledged can be read");
    for level in ["READ COMMITTED", "SERIALIZABLE"] {
        let begin = format!("BEGIN ISOLATION LEVEL {level}");
        second.batch_execute(&begin).await.unwrap();
        for _ in 0..2 {
            assert_eq!(count(&second).await, 1, "{level}");
        }
        let end = second.batch_execute("COMMIT");
        let ended = tokio::time::timeout(PATIENCE, end).await;
        ended.expect("it waits for room").unwrap();
    }
    std::fs::remove_file(&full).unwrap();
    let (first, done) = waiting.await.unwrap();
    done.expect("there is room again");
    for insert in left_waiting {
        insert.await.unwrap().expect("there is room again");
    }
    until(&first, "INSERT INTO t VALUES (3)", "", &["53100"]).await;
    let rows = count(&first).await;
    assert!(rows >= 3);
    server.kill();
    server.launch();
    server.ready().await;
    assert_eq!(count(&server.connect().await).await, rows);
}

/// A session that is ended while its commit waits for a full disk is not told that the commit is there; and the server, told to stop, does
/// not wait for room.
#[cfg(feature = "faults")]
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_no_disk_has_is_not_said_to_stand() {
    if on_postgres() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let full = dir.path().join("full");
    let fault = format!("wal.before_write:while={}", full.display());
    let env = [
        ("CANON_FAULT", fault.as_str()),
        ("CANON_SHUTDOWN_TIMEOUT", "200ms"),
    ];
    let mut server = Server::start_with(&env).await;
    let other = server.connect().await;
    let table = "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (2)";
    other.batch_execute(table).await.unwrap();
    let before = helpers::one(&other, "SELECT pg_current_wal_insert_lsn()").await;
    std::fs::write(&full, "").unwrap();
    let mut session = raw::Raw::session(&server);
    let insert = "INSERT INTO t VALUES (1)";
    session.send(&raw::query(insert.as_bytes()));
    let there = format!(
        "SELECT count(*) FROM (SELECT 1) x
            WHERE pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '{before}') > 0"
    );
    until_is(&other, &there, 1).await;
    let whose = format!("SELECT pid FROM pg_stat_activity WHERE query = '{insert}'");
    let pid = helpers::one(&other, &whose).await;
    helpers::one(&other, &format!("SELECT pg_terminate_backend({pid})")).await;
    let said = session.until(b'E').expect("why it ends");
    let error = &said.last().expect("it is the last").1;
    assert_eq!(raw::field(error, b'C'), "57P01");
    let told = String::from_utf8_lossy(error);
    assert!(!told.contains("committed locally"), "{told}");

    signal(&server, "-TERM");
    let status = server.exited(PATIENCE).await.expect("it ends");
    assert!(!status.success(), "{status}: a commit is given up");
    std::fs::remove_file(&full).unwrap();
    server.launch();
    server.ready().await;
    let there = one(&server.connect().await, "SELECT id FROM t").await;
    assert_eq!(there, "2", "what was acknowledged, and nothing else");
}

/// What one statement holds beside the tables has a limit, which a session may set.
#[tokio::test(flavor = "multi_thread")]
async fn statement_memory() {
    if on_postgres() {
        return;
    }
    let server = Server::start().await;
    let client = server.connect().await;
    let sort = "SELECT count(*) FROM (SELECT DISTINCT g FROM generate_series(1, 20000) g) x";
    client.batch_execute(sort).await.unwrap();
    let set = "SET canon.statement_memory = '64kB'";
    client.batch_execute(set).await.unwrap();
    let refused = client.batch_execute(sort).await.unwrap_err();
    assert_eq!(sqlstate(&refused), "53200");
    client
        .batch_execute("RESET canon.statement_memory")
        .await
        .unwrap();
    client.batch_execute(sort).await.unwrap();
    for bad in ["'nonsense'", "'1kB'"] {
        let sql = format!("SET canon.statement_memory = {bad}");
        let refused = client.batch_execute(&sql).await.unwrap_err();
        assert_eq!(sqlstate(&refused), "22023", "{bad}");
    }
}

/// A connection that goes to another thread after every message takes with it what its session has: prepared statements, settings, an
/// open block with its locks and savepoints, a wait in the middle of a statement, and the key by which it is cancelled.
#[cfg(feature = "faults")]
#[tokio::test(flavor = "multi_thread")]
async fn connections_that_move() {
    if on_postgres() {
        return;
    }
    let http = format!("127.0.0.1:{}", common::free_port());
    let env = [
        ("CANON_PLANTED", "gate.restless"),
        ("CANON_HTTP", http.as_str()),
    ];
    let server = Server::start_with(&env).await;
    let (one, other) = (server.connect().await, server.connect().await);
    let setup = "CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 0), (2, 0); SET application_name = 'wanderer'";
    one.batch_execute(setup).await.unwrap();
    let read = one.prepare("SELECT n FROM t WHERE id = $1").await.unwrap();
    let add = one.prepare("UPDATE t SET n = n + 1 WHERE id = $1").await;
    let add = add.unwrap();
    let n = async |id: i32| -> i32 { one.query_one(&read, &[&id]).await.unwrap().get(0) };
    for i in 0..50 {
        assert_eq!(n(1).await, i);
        let block = [
            "BEGIN",
            "UPDATE t SET n = n + 1 WHERE id = 1",
            "SAVEPOINT s",
            "UPDATE t SET n = 100 WHERE id = 2",
            "ROLLBACK TO s",
            "COMMIT",
        ];
        for sql in block {
            one.batch_execute(sql).await.unwrap();
        }
        assert_eq!(n(2).await, i);
        // Both wait for their answers at one time.
        let (a, b) = tokio::join!(one.execute(&add, &[&2]), other.batch_execute("SELECT 1"));
        assert_eq!(a.unwrap(), 1);
        b.unwrap();
    }
    let name = one.query_one("SHOW application_name", &[]).await.unwrap();
    assert_eq!(name.get::<_, &str>(0), "wanderer");

    // A wait for a lock that another moving connection holds: granted, then cancelled.
    other
        .batch_execute("BEGIN; UPDATE t SET n = 7 WHERE id = 1")
        .await
        .unwrap();
    let waiting = async |id: i32| one.execute(&add, &[&id]).await;
    let release = async {
        until_waits(&server).await;
        other.batch_execute("COMMIT").await.unwrap();
    };
    let (granted, ()) = tokio::join!(waiting(1), release);
    assert_eq!(granted.unwrap(), 1);
    assert_eq!(n(1).await, 8);
    other
        .batch_execute("BEGIN; UPDATE t SET n = 7 WHERE id = 1")
        .await
        .unwrap();
    let cancel = async {
        until_waits(&server).await;
        let token = one.cancel_token();
        token.cancel_query(tokio_postgres::NoTls).await.unwrap();
    };
    let (cancelled, ()) = tokio::join!(waiting(1), cancel);
    assert_eq!(sqlstate(&cancelled.unwrap_err()), "57014");
    other.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(n(1).await, 8);
    // Each of the fifty rounds waits for the client several times.
    let moved = helpers::connections_moved(&http);
    assert!(moved >= 50, "{moved}");
}

/// Waits until this gives the number.
async fn until_is(client: &Client, sql: &str, wanted: i64) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found: i64 = client.query_one(sql, &[]).await.unwrap().get(0);
        if found == wanted {
            return;
        }
        assert!(Instant::now() < deadline, "{sql}: {found}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A COPY whose client says nothing is ended by a cancel and by its time limit (PostgreSQL waits for the client), and the session goes on;
/// and by a shutdown.
#[tokio::test(flavor = "multi_thread")]
async fn a_silent_copy() {
    if on_postgres() {
        return;
    }
    let mut server = Server::start_with(&[("CANON_SHUTDOWN_TIMEOUT", "200ms")]).await;
    let other = server.connect().await;
    let table = "CREATE TABLE t (id int PRIMARY KEY)";
    other.batch_execute(table).await.unwrap();
    // The client says nothing from here on, and hears why.
    let silent = || {
        let mut c = raw::Raw::connect(&server);
        c.send(&raw::startup(&server));
        let said = c.until(b'Z').expect("a session");
        let key = said.into_iter().find(|m| m.0 == b'K').expect("a key").1;
        (c, key)
    };
    for timeout in ["0", "100ms"] {
        let (mut c, key) = silent();
        let set = format!("SET statement_timeout = '{timeout}'");
        c.send(&raw::query(set.as_bytes()));
        c.until(b'Z').expect("it is set");
        c.send(&raw::query(b"COPY t FROM STDIN"));
        c.until(b'G').expect("it waits for data");
        if timeout == "0" {
            let request = [&80_877_102u32.to_be_bytes(), &key[..]].concat();
            raw::Raw::connect(&server).send(&raw::framed(&request));
        }
        assert_eq!(c.error(), "57014", "{timeout}");
        // What it sends now is left of the COPY.
        c.send(&raw::message(b'd', b"1\n"));
        c.send(&raw::message(b'c', b""));
        c.send(&raw::query(b"SELECT 1"));
        c.until(b'D').expect("it goes on");
        assert_eq!(count(&other).await, 0);
    }
    let (mut silent, _) = silent();
    silent.send(&raw::query(b"COPY t FROM STDIN"));
    silent.until(b'G').expect("it waits for data");
    helpers::signal(&server, "-TERM");
    let said = silent.until(b'E').expect("why it ends");
    assert_eq!(raw::field(&said[0].1, b'C'), "57P01");
    assert_eq!(silent.message(), None);
    let exit = server.exited(PATIENCE).await;
    assert!(exit.is_some_and(|e| e.success()));
}

/// A commit that too few replicas have is not acknowledged when the server is shut down, its client is told why, and it is not lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_waits_for_replicas_is_ended() {
    if on_postgres() {
        return;
    }
    let env = [
        ("CANON_SYNCHRONOUS_REPLICAS", "1"),
        ("CANON_SHUTDOWN_TIMEOUT", "200ms"),
    ];
    let mut server = Server::start_with(&env).await;
    let other = server.connect().await;
    let setup = "SET synchronous_commit = local; CREATE TABLE t (id int PRIMARY KEY)";
    other.batch_execute(setup).await.unwrap();
    let extended = |sql: &str| {
        let parse = [b"\0", sql.as_bytes(), b"\0\0\0"].concat();
        [
            raw::message(b'P', &parse),
            raw::message(b'B', &[0; 8]),
            raw::message(b'E', &[0; 5]),
            raw::message(b'S', b""),
        ]
        .concat()
    };
    let insert = |n: u32| format!("INSERT INTO t VALUES ({n})");
    let block = format!("BEGIN; {}; COMMIT", insert(1));
    // The transaction of several statements before a Sync ends at the Sync.
    let several = extended(&insert(3));
    let several = [&several[..several.len() - 5], &extended(&insert(4))].concat();
    let all = [
        raw::query(block.as_bytes()),
        extended(&insert(2)),
        several,
        raw::query(insert(5).as_bytes()),
    ];
    let mut waiting = Vec::new();
    for messages in &all {
        let flushed = "SELECT pg_current_wal_flush_lsn()";
        let before = helpers::one(&other, flushed).await;
        let mut session = raw::Raw::session(&server);
        session.send(messages);
        // It is on the disk here, and waits for what does not come.
        let there = format!(
            "SELECT count(*) FROM (SELECT 1) x
                WHERE pg_wal_lsn_diff(pg_current_wal_flush_lsn(), '{before}') > 0"
        );
        until_is(&other, &there, 1).await;
        waiting.push(session);
    }
    helpers::signal(&server, "-TERM");
    for (i, session) in waiting.iter_mut().enumerate() {
        let said = session.until(b'E').expect("why it ends");
        let error = &said.last().expect("it is the last").1;
        assert_eq!(raw::field(error, b'C'), "57P01", "{i}");
        assert_eq!(raw::field(error, b'V'), "FATAL", "{i}");
        let why = "canceling the wait for synchronous replication";
        assert!(raw::field(error, b'M').starts_with(why), "{i}");
        assert_eq!(session.message(), None, "{i}");
    }
    let exit = server.exited(PATIENCE).await;
    assert!(exit.is_some_and(|e| e.success()));
    // Whoever asks for no replicas finds them.
    server.set_env(&[]);
    server.launch();
    server.ready().await;
    assert_eq!(count(&server.connect().await).await, 5);
}

/// A commit that too few replicas have when the primary hands over is neither acknowledged nor waited for: nobody here will learn more.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_waits_for_replicas_at_a_hand_over_is_unknown() {
    if on_postgres() {
        return;
    }
    let server = Server::start_with(&[("CANON_SYNCHRONOUS_REPLICAS", "2")]).await;
    let other = server.connect().await;
    let setup = "SET synchronous_commit = local; CREATE TABLE t (id int PRIMARY KEY)";
    other.batch_execute(setup).await.unwrap();
    let heir = helpers::replica(&server, "heir").await;
    let before = helpers::one(&other, "SELECT pg_current_wal_flush_lsn()").await;
    let client = server.connect().await;
    let insert = tokio::spawn(async move {
        let done = client.batch_execute("INSERT INTO t VALUES (1)").await;
        (client, done)
    });
    let there = format!(
        "SELECT count(*) FROM pg_stat_replication
            WHERE pg_wal_lsn_diff(flush_lsn, '{before}') > 0"
    );
    until_is(&other, &there, 1).await;
    assert!(!insert.is_finished(), "acknowledged with one of two");
    // Another one meets it, and may not tell of it.
    let undone = "SELECT xact_rollback FROM pg_stat_database WHERE datname = current_database()";
    let before = other.query_one(undone, &[]).await.unwrap().get::<_, i64>(0);
    let again = server.connect().await;
    let again = tokio::spawn(async move {
        let done = again.batch_execute("INSERT INTO t VALUES (1)").await;
        (again, done)
    });
    until_is(&other, undone, before + 1).await;
    assert!(!again.is_finished(), "told of what is not decided");
    helpers::promote(&heir, &[]);
    let (client, done) = insert.await.unwrap();
    assert_eq!(sqlstate(&done.unwrap_err()), "40003");
    let (again, done) = again.await.unwrap();
    assert_eq!(sqlstate(&done.unwrap_err()), "57P03");
    again.batch_execute("SELECT 1").await.expect("it goes on");
    client.batch_execute("SELECT 1").await.expect("it goes on");
    assert_eq!(count(&heir.connect().await).await, 1);
}

/// Waits until a session waits for a lock.
#[cfg(feature = "faults")]
async fn until_waits(server: &Server) {
    let client = server.connect().await;
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    let deadline = Instant::now() + PATIENCE;
    while client.query_one(sql, &[]).await.unwrap().get::<_, i64>(0) == 0 {
        assert!(Instant::now() < deadline, "nobody waits");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Starts it, which must be refused with these words before anything is made.
async fn refuses_to_start(server: &mut Server, why: &str) {
    let made = server.data_dir().exists();
    server.launch();
    let status = server.exited(PATIENCE).await.expect("it ends by itself");
    assert!(!status.success(), "{status}");
    let said = server.log_tail();
    assert!(said.contains(why), "{said}");
    assert_eq!(server.data_dir().exists(), made, "a directory was made");
}

/// An address that other machines can reach, and no user with a password: refused, with a new directory and with one that is there,
/// unless it is asked for in so many words. What is wrong with the configuration is found before the disk is touched, too.
#[tokio::test(flavor = "multi_thread")]
async fn an_open_door_is_refused_and_nothing_is_made() {
    if on_postgres() {
        return;
    }
    let passwordless = "refused while no user has a password";
    let plain = ("CANON_ALLOW_PLAIN_NETWORK", "true");
    let mut server = Server::canon(&[]);
    for (variable, value) in [
        ("CANON_MAX_MEMORY", "much"),
        ("CANON_LOG_LEVEL", "canon=loud"),
        ("CANON_REPLAY_POLICY", "column"),
        ("CANON_CONFIG", "/nowhere/canon.toml"),
    ] {
        server.set_env(&[(variable, value)]);
        refuses_to_start(&mut server, value).await;
    }
    let taken = std::net::TcpListener::bind((server.host.as_str(), server.port)).unwrap();
    server.set_env(&[]);
    refuses_to_start(&mut server, "could not listen on").await;
    drop(taken);
    server.host = "0.0.0.0".into();
    refuses_to_start(&mut server, "is refused without TLS").await;
    server.set_env(&[plain]);
    refuses_to_start(&mut server, passwordless).await;

    server.host = "127.0.0.1".into();
    server.set_env(&[]);
    server.launch();
    server.ready().await;
    server.kill();
    server.host = "0.0.0.0".into();
    refuses_to_start(&mut server, "is refused without TLS").await;
    server.set_env(&[plain]);
    refuses_to_start(&mut server, passwordless).await;
    server.set_env(&[plain, ("CANON_ALLOW_PASSWORDLESS_NETWORK", "true")]);
    server.launch();
    server.ready().await;
    let set = "ALTER USER canon PASSWORD 'secret'";
    server.connect().await.batch_execute(set).await.unwrap();
    server.kill();
    server.set_env(&[plain]);
    server.launch();
    let mut config = server.config();
    config.password("secret");
    let deadline = Instant::now() + PATIENCE;
    while connect_to(&config).await.is_err() {
        assert!(server.alive(), "{}", server.log_tail());
        assert!(Instant::now() < deadline, "{}", server.log_tail());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    config.password("guess");
    let refused = connect_to(&config).await.map(|_| ()).unwrap_err();
    assert_eq!(sqlstate(&refused), "28P01");
}

/// Roles whose passwords have a time, and roles that may have so many sessions.
#[tokio::test(flavor = "multi_thread")]
async fn a_role_has_its_time_and_its_number_of_sessions() {
    if on_postgres() {
        return;
    }
    let server = Server::start().await;
    let admin = server.connect().await;
    let run = async |sql: &str| admin.batch_execute(sql).await.unwrap();
    run("CREATE ROLE timed LOGIN PASSWORD 'p' VALID UNTIL '2001-01-01'; CREATE ROLE few LOGIN CONNECTION LIMIT 2").await;
    let log_in = async |role: &str| {
        let mut config = server.config();
        config.user(role).password("p");
        connect_to(&config).await.map_err(|e| sqlstate(&e))
    };
    assert_eq!(log_in("timed").await.err().as_deref(), Some("28P01"));
    run("ALTER ROLE timed VALID UNTIL 'infinity'").await;
    log_in("timed").await.expect("let in");
    run("ALTER ROLE timed VALID UNTIL '-infinity'").await;
    assert_eq!(log_in("timed").await.err().as_deref(), Some("28P01"));
    let both = [log_in("few").await, log_in("few").await];
    assert!(both.iter().all(Result::is_ok));
    assert_eq!(log_in("few").await.err().as_deref(), Some("53300"));
    run("ALTER ROLE few CONNECTION LIMIT 3").await;
    let third = log_in("few").await;
    assert!(third.is_ok());
    // A refused session is none: the number stands until one ends.
    assert_eq!(log_in("few").await.err().as_deref(), Some("53300"));
    drop(third);
    let deadline = Instant::now() + PATIENCE;
    while log_in("few").await.is_err() {
        assert!(
            Instant::now() < deadline,
            "a session that has ended counts still"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    run("ALTER ROLE few SUPERUSER CONNECTION LIMIT 0").await;
    log_in("few").await.expect("superusers are not counted");
}

/// Waits until nobody new gets in: the server has heard that it is to stop.
async fn until_closed(server: &Server) {
    let deadline = Instant::now() + PATIENCE;
    while connect_to(&server.config()).await.is_ok() {
        assert!(Instant::now() < deadline, "it takes connections still");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// SIGTERM: a transaction that is open may go on and commit; one that outlives the limit is rolled back, and the server ends in order.
#[tokio::test(flavor = "multi_thread")]
async fn told_to_stop_it_lets_transactions_end_within_the_limit() {
    if on_postgres() {
        return;
    }
    let mut server = Server::start_with(&[("CANON_SHUTDOWN_TIMEOUT", "5min")]).await;
    let (open, idle) = (server.connect().await, server.connect().await);
    let begin = "CREATE TABLE t (id int PRIMARY KEY); BEGIN; INSERT INTO t VALUES (1)";
    open.batch_execute(begin).await.unwrap();
    signal(&server, "-TERM");
    until_closed(&server).await;
    assert!(server.alive(), "it waits for the transaction");
    open.batch_execute("INSERT INTO t VALUES (2)")
        .await
        .unwrap();
    open.batch_execute("COMMIT").await.unwrap();
    let status = server.exited(PATIENCE).await.expect("it ends");
    assert!(status.success(), "{status}\n{}", server.log_tail());
    assert!(idle.batch_execute("SELECT 1").await.is_err());

    server.set_env(&[("CANON_SHUTDOWN_TIMEOUT", "200ms")]);
    server.launch();
    server.ready().await;
    let open = server.connect().await;
    assert_eq!(count(&open).await, 2, "what was committed meanwhile");
    let begin = "BEGIN; INSERT INTO t VALUES (3)";
    open.batch_execute(begin).await.unwrap();
    signal(&server, "-TERM");
    let status = server.exited(PATIENCE).await.expect("it ends");
    assert!(status.success(), "{status}\n{}", server.log_tail());
    let gone = open.batch_execute("COMMIT").await.unwrap_err();
    let code = sqlstate(&gone);
    assert!(["57P01", "connection"].contains(&&*code), "{code}");
    server.launch();
    server.ready().await;
    assert_eq!(count(&server.connect().await).await, 2, "rolled back");
}

/// The sum of a metric over its labels; panics if there is none of this name.
fn metric(page: &str, name: &str) -> f64 {
    let of = |l: &&str| {
        l.strip_prefix(name)
            .is_some_and(|rest| rest.starts_with([' ', '{']))
    };
    let lines: Vec<&str> = page.lines().filter(of).collect();
    assert!(!lines.is_empty(), "no {name} in\n{page}");
    let value = |l: &&str| l.rsplit(' ').next().and_then(|v| v.parse::<f64>().ok());
    lines.iter().map(|l| value(l).expect("a number")).sum()
}

/// `/metrics` counts flushes, waits, aborts by cause, versions and memory as they happen; with `log_format = json` every line of the log is an object.
#[tokio::test(flavor = "multi_thread")]
async fn metrics_and_logs_tell_what_happens() {
    if on_postgres() {
        return;
    }
    let http = free_port();
    let address = format!("127.0.0.1:{http}");
    let env = [
        ("CANON_HTTP", address.as_str()),
        ("CANON_LOG_FORMAT", "json"),
    ];
    let server = Server::start_with(&env).await;
    let (a, b) = (server.connect().await, server.connect().await);
    rows(&a, "CREATE TABLE t (id int PRIMARY KEY, n int)").await;
    let page = || {
        let (status, page) = get(http, "/metrics");
        assert_eq!(status, 200);
        page
    };
    let before = page();
    let grows = [
        "canon_flush_seconds_count",
        "canon_flush_seconds_sum",
        "canon_commit_wait_seconds_count",
        "canon_log_bytes_total",
        "canon_lock_wait_seconds_count",
        "canon_aborts_total",
        "canon_memory_bytes",
        "canon_commits_total",
    ];
    rows(
        &a,
        "INSERT INTO t SELECT g, 0 FROM generate_series(1, 100) g",
    )
    .await;
    // A snapshot that a change overtakes, so that its own change is refused; and a wait for a lock.
    rows(&a, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT * FROM t").await;
    rows(&b, "UPDATE t SET n = 1 WHERE id = 1").await;
    let lost = a.batch_execute("UPDATE t SET n = 2 WHERE id = 1").await;
    assert_eq!(sqlstate(&lost.unwrap_err()), "40001");
    // The old version cannot go while the snapshot is there.
    let held = page();
    assert!(metric(&held, "canon_snapshots") >= 1.0);
    rows(&a, "ROLLBACK; BEGIN; UPDATE t SET n = 3 WHERE id = 2").await;
    let waits = async {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        helpers::until(&server.connect().await, sql, "1").await;
        rows(&a, "COMMIT").await;
    };
    tokio::join!(rows(&b, "UPDATE t SET n = 4 WHERE id = 2"), waits);
    let after = page();
    for name in grows {
        let (was, is) = (metric(&before, name), metric(&after, name));
        assert!(is > was, "{name}: {was}, then {is}");
    }
    // By cause, every cause from the beginning on.
    let causes = |p: &str| p.matches("canon_aborts_total{reason=").count();
    assert!(causes(&before) > 1 && causes(&before) == causes(&after));
    for name in [
        "canon_versions_reclaimed_total",
        "canon_versions_waiting_records",
    ] {
        metric(&after, name);
    }
    let deadline = Instant::now() + PATIENCE;
    while metric(&page(), "canon_versions_reclaimed_total") == 0.0 {
        assert!(Instant::now() < deadline, "old versions stay");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(one(&b, "SELECT n FROM t WHERE id = 2").await, "4");

    let log = std::fs::read_to_string(server.scratch().join("log")).unwrap();
    let mut ready = 0;
    for line in log.lines() {
        let object: serde_json::Value = serde_json::from_str(line).expect(line);
        for key in ["timestamp", "level", "fields"] {
            assert!(!object[key].is_null(), "{key}: {line}");
        }
        ready += usize::from(object["fields"]["message"] == "ready");
    }
    assert_eq!(ready, 1, "{log}");
}
