//! How others end what a session does, and what its statements leave when they run again.

mod common;
#[allow(dead_code)]
#[path = "replication/helpers.rs"]
mod helpers;
#[allow(dead_code)]
#[path = "wire_abuse/raw.rs"]
mod raw;

use common::{PATIENCE, Server, connect_to, free_port, on_postgres, sqlstate};
use helpers::{get, one, refused, rows, until};
use raw::{Message, Raw, execute, field, message, parse, query, sync};
use std::time::{Duration, Instant};
use tokio_postgres::Client;

async fn pid(c: &Client) -> i32 {
    let row = c.query_one("SELECT pg_backend_pid()", &[]).await;
    row.expect("a number").get(0)
}

fn raw_pid(c: &mut Raw) -> i32 {
    c.send(&query(b"SELECT pg_backend_pid()"));
    let said = c.until(b'Z').expect("an answer");
    let row = &said.iter().find(|m| m.0 == b'D').expect("a row").1;
    String::from_utf8(row[6..].to_vec())
        .unwrap()
        .parse()
        .unwrap()
}

/// Waits until the session waits for a lock.
async fn until_blocked(by: &Client, pid: i32) {
    let sql = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE pid = {pid} AND wait_event_type = 'Lock'"
    );
    until(by, &sql, "1").await;
}

async fn until_gone(by: &Client, pid: i32) {
    let sql = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}");
    until(by, &sql, "0").await;
}

async fn table(c: &Client) {
    let sql = "CREATE TABLE t (id int PRIMARY KEY, n int, s int); INSERT INTO t VALUES (1, 0, 0), (2, 0, 0), (8, 0, 0), (9, 0, 0); \
               CREATE SEQUENCE s";
    c.batch_execute(sql).await.unwrap();
}

/// A statement that waits for a lock is cancelled (57014), or its session is ended (57P01); so is one that computes, and one whose
/// client is silent, in a transaction or in a COPY. What the ended session held is free.
#[tokio::test(flavor = "multi_thread")]
async fn backends_are_cancelled_and_ended() {
    let server = Server::start().await;
    let (master, holder) = (server.connect().await, server.connect().await);
    table(&master).await;
    holder
        .batch_execute("BEGIN; UPDATE t SET n = 1 WHERE id = 1")
        .await
        .unwrap();

    // Waiting for a lock.
    let waiter = server.connect().await;
    let p = pid(&waiter).await;
    let cancel = async {
        until_blocked(&master, p).await;
        one(&master, &format!("SELECT pg_cancel_backend({p})")).await
    };
    let update = "UPDATE t SET n = 2 WHERE id = 1";
    let (waited, said) = tokio::join!(waiter.batch_execute(update), cancel);
    assert_eq!(
        (sqlstate(&waited.unwrap_err()), &*said),
        ("57014".into(), "t")
    );
    assert_eq!(one(&waiter, "SELECT 1").await, "1", "the session goes on");
    waiter
        .batch_execute("BEGIN; UPDATE t SET n = 3 WHERE id = 2")
        .await
        .unwrap();
    let end = async {
        until_blocked(&master, p).await;
        one(&master, &format!("SELECT pg_terminate_backend({p}, 60000)")).await
    };
    let (waited, said) = tokio::join!(waiter.batch_execute(update), end);
    assert_eq!(
        (sqlstate(&waited.unwrap_err()), &*said),
        ("57P01".into(), "t")
    );
    until_gone(&master, p).await;
    // Row 2 is nobody's.
    master
        .batch_execute("SET lock_timeout = '60s'; UPDATE t SET n = 4 WHERE id = 2")
        .await
        .unwrap();

    // Computing.
    for (what, code) in [("cancel", "57014"), ("terminate", "57P01")] {
        let c = server.connect().await;
        let p = pid(&c).await;
        let stop = async {
            let busy = format!(
                "SELECT count(*) FROM pg_stat_activity WHERE pid = {p} AND state = 'active' AND query LIKE '%series%'"
            );
            until(&master, &busy, "1").await;
            one(&master, &format!("SELECT pg_{what}_backend({p})")).await
        };
        let long = "SELECT count(*) FROM generate_series(1, 100000000000)";
        let (ended, said) = tokio::join!(c.batch_execute(long), stop);
        assert_eq!((sqlstate(&ended.unwrap_err()), &*said), (code.into(), "t"));
    }

    // Its client is silent: in a transaction, ...
    let mut silent = Raw::session(&server);
    let p = raw_pid(&mut silent);
    silent.send(&query(b"BEGIN; UPDATE t SET n = 5 WHERE id = 2"));
    silent.until(b'Z').expect("it has the row");
    // A cancel is for statements.
    let say = format!("SELECT pg_cancel_backend({p})");
    assert_eq!(one(&master, &say).await, "t");
    silent.send(&query(b"SELECT 1"));
    silent.until(b'Z').expect("it goes on");
    let say = format!("SELECT pg_terminate_backend({p})");
    assert_eq!(one(&master, &say).await, "t");
    let said = silent.until(b'E').expect("why it ends");
    assert_eq!(field(&said.last().unwrap().1, b'C'), "57P01");
    assert_eq!(field(&said.last().unwrap().1, b'S'), "FATAL");
    assert_eq!(silent.message(), None);
    master
        .batch_execute("UPDATE t SET n = n + 10 WHERE id = 2")
        .await
        .unwrap();
    assert_eq!(one(&master, "SELECT n FROM t WHERE id = 2").await, "14");

    // ... and in a COPY.
    let mut silent = Raw::session(&server);
    let p = raw_pid(&mut silent);
    silent.send(&query(b"COPY t FROM STDIN"));
    silent.until(b'G').expect("it waits for data");
    silent.send(&message(b'd', b"50\t1\t1\n"));
    let say = format!("SELECT pg_terminate_backend({p})");
    assert_eq!(one(&master, &say).await, "t");
    let said = silent.until(b'E').expect("why it ends");
    assert_eq!(field(&said.last().unwrap().1, b'C'), "57P01");
    assert_eq!(
        one(&master, "SELECT count(*) FROM t WHERE id = 50").await,
        "0"
    );
    holder.batch_execute("ROLLBACK").await.unwrap();
}

/// A session whose client does not read what it asked for waits in the middle of a row, and is ended all the same; so is one that has
/// its next question there before the last one is answered.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_or_never_stops_asking_is_ended() {
    let server = Server::start().await;
    let master = server.connect().await;
    let mut deaf = Raw::session(&server);
    let p = raw_pid(&mut deaf);
    deaf.send(&query(
        b"SELECT repeat('x', 100000) FROM generate_series(1, 1000000)",
    ));
    // It is stuck when no more comes.
    let deadline = Instant::now() + PATIENCE;
    let mut had = (vec![0; 32 << 20], 0, 0);
    while had.2 < 50 {
        assert!(Instant::now() < deadline, "more and more comes");
        let n = deaf.0.peek(&mut had.0).expect("some of it has come");
        had.2 = if n == had.1 { had.2 + 1 } else { 0 };
        had.1 = n;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let end = format!("SELECT pg_terminate_backend({p}, 60000)");
    assert_eq!(one(&master, &end).await, "t");
    until_gone(&master, p).await;

    let mut eager = Raw::session(&server);
    let p = raw_pid(&mut eager);
    let mut asking = Raw(eager.0.try_clone().unwrap());
    let ended = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let until = ended.clone();
    let asker = std::thread::spawn(move || {
        while !until.load(std::sync::atomic::Ordering::Relaxed) {
            asking.send(&query(b"SELECT 1").repeat(1000));
        }
    });
    let reader = std::thread::spawn(move || {
        let mut last = None;
        while let Some(m) = eager.message() {
            last = Some(m);
        }
        last
    });
    assert_eq!(one(&master, &end_of(p)).await, "t");
    let last = reader.join().unwrap().expect("it was told something");
    ended.store(true, std::sync::atomic::Ordering::Relaxed);
    asker.join().unwrap();
    assert_eq!((last.0, field(&last.1, b'C')), (b'E', "57P01".into()));
}

fn end_of(pid: i32) -> String {
    format!("SELECT pg_terminate_backend({pid}, 60000)")
}

/// Own sessions may be signalled, a superuser may signal all; there is a warning for a number that is none's.
#[tokio::test(flavor = "multi_thread")]
async fn who_may_signal_whom() {
    if on_postgres() {
        return;
    }
    let server = Server::start().await;
    let master = server.connect().await;
    master
        .batch_execute("CREATE ROLE ann LOGIN; CREATE ROLE bob LOGIN")
        .await
        .unwrap();
    let log_in = async |user: &str| {
        let mut config = server.config();
        connect_to(config.user(user)).await.expect("a session")
    };
    let (ann, also_ann, bob) = (
        log_in("ann").await,
        log_in("ann").await,
        log_in("bob").await,
    );
    for (whose, what) in [
        (
            &bob,
            "must be a member of the role whose process is being terminated or member of pg_signal_backend",
        ),
        (
            &master,
            "must be a superuser to terminate superuser process",
        ),
    ] {
        let p = pid(whose).await;
        let end = format!("SELECT pg_terminate_backend({p})");
        assert_eq!(refused(&ann, &end).await, ("42501".into(), what.into()));
        let cancel = format!("SELECT pg_cancel_backend({p})");
        assert_eq!(refused(&ann, &cancel).await.0, "42501");
        assert_eq!(one(whose, "SELECT 1").await, "1");
    }
    assert_eq!(one(&ann, &end_of(pid(&also_ann).await)).await, "t");
    assert_eq!(one(&master, &end_of(pid(&bob).await)).await, "t");
    assert!(also_ann.simple_query("SELECT 1").await.is_err());
    assert!(bob.simple_query("SELECT 1").await.is_err());
}

/// An ordinary role sees that others are there, and of its own sessions all.
#[tokio::test(flavor = "multi_thread")]
async fn activity_of_other_roles_is_hidden() {
    let server = Server::start().await;
    let master = server.connect().await;
    let role = format!("activity_{}", std::process::id());
    let made = format!("CREATE ROLE {role} LOGIN");
    master.batch_execute(&made).await.expect("a role");
    let ann = connect_to(server.config().user(&role)).await.expect("ann");
    let of = |p: i32| {
        format!(
            "SELECT concat_ws('|', usename, query LIKE 'SELECT pg_backend_pid%', query, state IS NULL, backend_start IS NULL, wait_event IS NULL)
             FROM pg_stat_activity WHERE pid = {p}"
        )
    };
    let user = one(&master, "SELECT current_user").await;
    let hidden = format!("{user}|f|<insufficient privilege>|t|t|t");
    assert_eq!(one(&ann, &of(pid(&master).await)).await, hidden);
    for (asks, whose) in [(&ann, &ann), (&master, &ann)] {
        let seen = one(asks, &of(pid(whose).await)).await;
        assert!(seen.ends_with("|f|f|t"), "{seen}");
    }
    drop(ann);
    if on_postgres() {
        // The server stays, and so would the role.
        let gone = format!("DROP ROLE {role}");
        master.batch_execute(&gone).await.expect("gone");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_of_no_session_and_of_ones_own() {
    let server = Server::start().await;
    let mut c = Raw::session(&server);
    c.send(&query(
        b"SELECT pg_cancel_backend(2147483647), pg_terminate_backend(NULL)",
    ));
    let said = c.until(b'Z').expect("an answer");
    let warnings: Vec<_> = said.iter().filter(|m| m.0 == b'N').collect();
    let [warning] = warnings[..] else {
        panic!("{said:?}")
    };
    assert_eq!(field(&warning.1, b'C'), "01000");
    assert_eq!(
        field(&warning.1, b'M'),
        "PID 2147483647 is not a PostgreSQL backend process"
    );
    let row = said.iter().find(|m| m.0 == b'D').expect("a row");
    assert_eq!(row.1, b"\0\x02\0\0\0\x01f\xff\xff\xff\xff");
    c.send(&query(b"SELECT pg_terminate_backend(1, -1)"));
    assert_eq!(c.error(), "22003");
    c.send(&query(b"SELECT pg_cancel_backend(pg_backend_pid())"));
    assert_eq!(c.error(), "57014");
    c.send(&query(b"SELECT 1"));
    c.until(b'D').expect("the session goes on");
    c.until(b'Z').unwrap();
    c.send(&query(b"SELECT pg_terminate_backend(pg_backend_pid())"));
    let said = c.until(b'E').expect("why it ends");
    assert_eq!(field(&said.last().unwrap().1, b'C'), "57P01");
    assert_eq!(c.message(), None);
}

/// The session's last transaction was lost: the next ones look out for writers, and show what they write.
async fn lose(loser: &mut impl FnMut(&str) -> String, by: &Client) {
    loser("BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT n FROM t WHERE id = 9");
    by.batch_execute("UPDATE t SET n = n + 1 WHERE id = 9")
        .await
        .unwrap();
    loser("UPDATE t SET n = n + 1 WHERE id = 8");
    assert_eq!(loser("COMMIT"), "40001");
}

/// Sends a text; the replies up to ReadyForQuery.
fn ask(c: &mut Raw, sql: &str) -> Vec<Message> {
    c.send(&query(sql.as_bytes()));
    c.until(b'Z').expect("an answer")
}

/// The SQLSTATE of its error, or nothing.
fn outcome(said: &[Message]) -> String {
    let error = said.iter().find(|m| m.0 == b'E');
    error.map(|e| field(&e.1, b'C')).unwrap_or_default()
}

/// Its rows of text.
fn table_of(said: &[Message]) -> Vec<String> {
    said.iter().filter(|m| m.0 == b'D').map(row).collect()
}

fn row(m: &Message) -> String {
    let mut rest = &m.1[2..];
    let mut cells = Vec::new();
    while let Some((len, tail)) = rest.split_first_chunk() {
        let len = usize::try_from(i32::from_be_bytes(*len)).expect("no NULL");
        cells.push(String::from_utf8(tail[..len].to_vec()).unwrap());
        rest = &tail[len..];
    }
    cells.join("|")
}

fn count(said: &[Message], kind: u8) -> usize {
    said.iter().filter(|m| m.0 == kind).count()
}

/// A figure of `/metrics`. A server takes clients a moment before its page is whole.
fn metric(http: u16, name: &str) -> u64 {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let page = get(http, "/metrics").1;
        if let Some(n) = page.lines().find_map(|l| l.strip_prefix(name)) {
            return n.parse().expect("a number");
        }
        assert!(Instant::now() < deadline, "no {name}in {page}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A read that meets what a writer is about to change is undone, waits a little for the writer's end, and runs again. Its client sees one
/// run: one description, its rows once, its warnings once, one tag; and so do the settings that its functions change.
#[tokio::test(flavor = "multi_thread")]
async fn a_read_that_is_undone_and_runs_again_leaves_one_answer() {
    if on_postgres() {
        return;
    }
    let http = free_port();
    let address = format!("127.0.0.1:{http}");
    let server = Server::start_with(&[("CANON_HTTP", &address)]).await;
    let master = server.connect().await;
    table(&master).await;
    let (mut reader, mut writer) = (Raw::session(&server), Raw::session(&server));
    for c in [&mut reader, &mut writer] {
        lose(&mut |sql: &str| outcome(&ask(c, sql)), &master).await;
    }
    ask(&mut reader, "SET my.n = 0");
    let reruns = || metric(http, "canon_restarts_total ");
    const BUMP: &str = "set_config('my.n', (current_setting('my.n')::int + 1)::text, false)";
    // A statement per case, with BUMP in place of $; its rows; and whether another is about to change what it reads.
    let cases = [
        ("SELECT $, n FROM t WHERE id = 1", "1|0", true),
        (
            "SELECT $, id, n FROM t WHERE id BETWEEN 1 AND 2 AND n < 5 ORDER BY n, id LIMIT 1",
            "1|1|0",
            true,
        ),
        ("SELECT id, n FROM t WHERE id <= 2", "1|0 2|0", true),
        ("SELECT count(*), sum(n) FROM t WHERE id <= 2", "2|0", true),
        (
            "COPY (SELECT $, n FROM t WHERE id = 1) TO STDOUT",
            "1\t0\n",
            true,
        ),
        (
            "PREPARE p AS SELECT $, n FROM t WHERE id = 1; EXECUTE p",
            "1|0",
            true,
        ),
        (
            "SELECT pg_cancel_backend(2147483647), $, n FROM t WHERE id = 1",
            "f|1|0",
            true,
        ),
        // Nobody is about to change these: other rows, or columns that are not looked at.
        ("SELECT $ FROM t WHERE id = 1", "1", false),
        ("SELECT $, n FROM t WHERE id = 2", "1|0", false),
        ("SELECT $, n FROM t WHERE id = 8", "1|0", false),
    ];
    for (sql, wanted, meets) in cases {
        let sql = &sql.replace('$', BUMP);
        ask(&mut writer, "BEGIN ISOLATION LEVEL SERIALIZABLE");
        let change = ask(&mut writer, "UPDATE t SET n = 5 WHERE id = 1");
        assert_eq!(outcome(&change), "");
        ask(
            &mut reader,
            "BEGIN ISOLATION LEVEL SERIALIZABLE; SAVEPOINT a",
        );
        let before = reruns();
        let said = ask(&mut reader, sql);
        assert_eq!(outcome(&said), "", "{sql}");
        assert_eq!(reruns() - before, u64::from(meets), "{sql}");
        let got = match count(&said, b'H') {
            0 => table_of(&said).join(" "),
            n => {
                assert_eq!((n, count(&said, b'c')), (1, 1), "{sql}");
                let data = said.iter().filter(|m| m.0 == b'd');
                String::from_utf8(data.flat_map(|m| m.1.clone()).collect()).unwrap()
            }
        };
        assert_eq!(got, wanted, "{sql}");
        let (copy, two) = (sql.starts_with("COPY"), sql.starts_with("PREPARE"));
        assert_eq!(count(&said, b'T'), usize::from(!copy), "{sql}");
        assert_eq!(count(&said, b'C'), 1 + usize::from(two), "{sql}");
        let warns = sql.contains("cancel");
        assert_eq!(count(&said, b'N'), usize::from(warns), "{sql}");
        // What stood before it stands: the savepoint, and the setting at it.
        assert_eq!(outcome(&ask(&mut reader, "ROLLBACK TO a")), "");
        let again = format!("SELECT n, {BUMP} FROM t WHERE id = 1");
        assert_eq!(table_of(&ask(&mut reader, &again)), ["0|1"], "{sql}");
        assert_eq!(outcome(&ask(&mut reader, "ROLLBACK")), "");
        ask(&mut reader, "DEALLOCATE ALL");
        ask(&mut writer, "ROLLBACK");
    }

    // The writer commits while the reader waits, or after it: one of the two states, whole, and once.
    let mut seen = [0, 0];
    for round in 0..100 {
        ask(&mut writer, "BEGIN ISOLATION LEVEL SERIALIZABLE");
        let change = format!("UPDATE t SET n = {round}, s = {round} WHERE id <= 2");
        ask(&mut writer, &change);
        ask(&mut reader, "BEGIN ISOLATION LEVEL SERIALIZABLE");
        reader.send(&query(b"SELECT id, n, s FROM t WHERE id <= 2 ORDER BY id"));
        writer.send(&query(b"COMMIT"));
        let read = table_of(&reader.until(b'Z').unwrap());
        let both = |n: i32| vec![format!("1|{n}|{n}"), format!("2|{n}|{n}")];
        let old = if round == 0 { 0 } else { round - 1 };
        let new = usize::from(read == both(round) && round > 0);
        assert!(read == both(round) || read == both(old), "{read:?}");
        seen[new] += 1;
        assert_eq!(outcome(&writer.until(b'Z').unwrap()), "");
        assert_eq!(outcome(&ask(&mut reader, "COMMIT")), "");
    }
    println!("old state {}, new state {}", seen[0], seen[1]);
}

/// Portals and cursors give each row once, also where a writer is in the way.
#[tokio::test(flavor = "multi_thread")]
async fn portals_go_on_where_they_stood() {
    if on_postgres() {
        return;
    }
    let server = Server::start().await;
    let master = server.connect().await;
    table(&master).await;
    let (mut reader, mut writer) = (Raw::session(&server), Raw::session(&server));
    for c in [&mut reader, &mut writer] {
        lose(&mut |sql: &str| outcome(&ask(c, sql)), &master).await;
    }
    let all = ["1|0", "2|0", "8|0", "9|2"];
    let select = "SELECT id, n FROM t ORDER BY id";
    ask(&mut writer, "BEGIN ISOLATION LEVEL SERIALIZABLE");
    assert_eq!(
        outcome(&ask(&mut writer, "UPDATE t SET n = 7 WHERE id = 9")),
        ""
    );
    // In parts, whole at the end; twice over with one portal resting beside the other.
    ask(&mut reader, "BEGIN ISOLATION LEVEL SERIALIZABLE");
    reader.send(
        &[
            raw::parse("", select.as_bytes(), &[]),
            raw::bind("", "", &[]),
            raw::execute("", 3),
            raw::execute("", 3),
            raw::execute("", 3),
            raw::sync(),
        ]
        .concat(),
    );
    let said = reader.until(b'Z').unwrap();
    assert_eq!(table_of(&said), all);
    assert_eq!((count(&said, b's'), count(&said, b'C')), (1, 2));
    for (sql, wanted) in [
        (
            "DECLARE c CURSOR FOR SELECT id, n FROM t ORDER BY id",
            &[][..],
        ),
        ("FETCH 1 FROM c", &all[..1]),
        ("SAVEPOINT a; DECLARE d CURSOR FOR TABLE t", &[]),
        ("FETCH ALL FROM c", &all[1..]),
        ("FETCH ALL FROM c", &[]),
        (select, &all),
        ("ROLLBACK TO a; MOVE BACKWARD ALL FROM c", &[]),
    ] {
        let said = ask(&mut reader, sql);
        if !sql.contains("BACKWARD") {
            assert_eq!(outcome(&said), "", "{sql}");
            assert_eq!(table_of(&said), wanted, "{sql}");
        }
    }
    ask(&mut reader, "ROLLBACK");
    ask(&mut writer, "ROLLBACK");
}

/// A statement that writes and has to wait for a row is undone too: what it changes it changes once, and RETURNING gives what stands there.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_waits_and_runs_again_changes_once() {
    let server = Server::start().await;
    let (master, holder) = (server.connect().await, server.connect().await);
    table(&master).await;
    master
        .batch_execute("CREATE TABLE log (id serial PRIMARY KEY, n int)")
        .await
        .unwrap();
    let mut c = Raw::session(&server);
    let p = raw_pid(&mut c);
    for (level, sql) in [
        (
            "READ COMMITTED",
            "UPDATE t SET n = n + 10, s = nextval('s') WHERE id IN (1, 2) RETURNING id, n, s",
        ),
        (
            "SERIALIZABLE",
            "UPDATE t SET n = n + 10, s = nextval('s') WHERE id IN (1, 2) RETURNING id, n, s",
        ),
        (
            "READ COMMITTED",
            "INSERT INTO t VALUES (1, 0, nextval('s')), (2, 0, nextval('s')) ON CONFLICT (id) DO UPDATE SET n = t.n + 10, s = excluded.s \
             RETURNING id, n, s",
        ),
    ] {
        holder
            .batch_execute("BEGIN; UPDATE t SET n = n + 100 WHERE id = 2")
            .await
            .unwrap();
        ask(
            &mut c,
            &format!("BEGIN ISOLATION LEVEL {level}; INSERT INTO log (n) VALUES (1); SAVEPOINT a"),
        );
        c.send(&query(sql.as_bytes()));
        until_blocked(&master, p).await;
        let before = rows(&master, "SELECT n FROM t WHERE id <= 2 ORDER BY id").await;
        holder.batch_execute("COMMIT").await.unwrap();
        let said = c.until(b'Z').unwrap();
        assert_eq!(outcome(&said), "", "{sql}");
        let number = |i: usize| -> i64 { before[i][0].as_ref().unwrap().parse().unwrap() };
        let given = table_of(&said);
        assert_eq!(given.len(), 2, "{given:?}");
        assert_eq!((count(&said, b'T'), count(&said, b'C')), (1, 1));
        let new = [
            format!("1|{}|", number(0) + 10),
            format!("2|{}|", number(1) + 110),
        ];
        assert!(
            given.iter().zip(&new).all(|(g, n)| g.starts_with(n)),
            "{given:?}"
        );
        assert_eq!(outcome(&ask(&mut c, "RELEASE a; COMMIT")), "");
        let stored = ask(&mut c, "SELECT id, n, s FROM t WHERE id <= 2 ORDER BY id");
        assert_eq!(table_of(&stored), given, "{sql}");
    }
    assert_eq!(one(&master, "SELECT count(*) FROM log").await, "3");
}

/// A deleted row's key is free, also when what was left of the row is reclaimed between somebody's insert of the key and his commit.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_stays_free_while_its_deleted_row_is_reclaimed() {
    if on_postgres() {
        return;
    }
    let http = free_port();
    let address = format!("127.0.0.1:{http}");
    let server = Server::start_with(&[("CANON_HTTP", &address)]).await;
    let (old, writer) = (server.connect().await, server.connect().await);
    table(&writer).await;
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        let reclaimed = async |wanted: bool| {
            let deadline = Instant::now() + PATIENCE;
            while (metric(http, "canon_versions_waiting_records ") == 0) != wanted {
                assert!(Instant::now() < deadline, "{level}: {wanted} never came");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        reclaimed(true).await;
        // Somebody's snapshot keeps the row, so that the inserter finds what is left of it.
        old.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; TABLE t")
            .await
            .unwrap();
        let insert = format!(
            "DELETE FROM t WHERE id = 2; BEGIN ISOLATION LEVEL {level}; INSERT INTO t VALUES (2, 7, 7)"
        );
        for sql in insert.split(';') {
            writer.batch_execute(sql).await.unwrap();
        }
        reclaimed(false).await;
        old.batch_execute("COMMIT").await.unwrap();
        reclaimed(true).await;
        writer
            .batch_execute("COMMIT")
            .await
            .unwrap_or_else(|e| panic!("{level}: {:?}", e.as_db_error()));
        assert_eq!(one(&writer, "SELECT n FROM t WHERE id = 2").await, "7");
    }
}

/// What waits on its thread for something that others do is cancelled, ended and timed out as anything else.
#[cfg(feature = "faults")]
#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_is_waited_for_no_longer_than_wanted() {
    if on_postgres() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let held = dir.path().join("held");
    let fault = format!("node.before_checkpoint:while={}", held.display());
    let server = Server::start_with(&[("CANON_FAULT", &fault)]).await;
    let master = server.connect().await;
    std::fs::write(&held, "").unwrap();
    for (how, code) in [("cancel", "57014"), ("terminate", "57P01")] {
        let c = server.connect().await;
        let p = pid(&c).await;
        let waits = tokio::spawn(async move { c.batch_execute("CHECKPOINT").await });
        let runs = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE pid = {p} AND query = 'CHECKPOINT' AND state = 'active'"
        );
        until(&master, &runs, "1").await;
        one(&master, &format!("SELECT pg_{how}_backend({p})")).await;
        let ended = tokio::time::timeout(PATIENCE, waits).await;
        let e = ended.expect("it hears").unwrap().unwrap_err();
        assert_eq!(sqlstate(&e), code);
    }
    let c = server.connect().await;
    c.batch_execute("SET statement_timeout = 50").await.unwrap();
    let ended = tokio::time::timeout(PATIENCE, c.batch_execute("CHECKPOINT")).await;
    let e = ended.expect("it hears").unwrap_err();
    assert_eq!(sqlstate(&e), "57014");
    std::fs::remove_file(&held).unwrap();
    c.batch_execute("RESET statement_timeout").await.unwrap();
    c.batch_execute("CHECKPOINT").await.unwrap();
}

/// What a transaction has changed counts in `max_memory` before it commits, and no longer when it is undone.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_committed_takes_memory() {
    if on_postgres() {
        return;
    }
    let server = Server::start_with(&[("CANON_MAX_MEMORY", "16MB")]).await;
    let (one, other) = (server.connect().await, server.connect().await);
    let table = "CREATE TABLE t (id bigserial PRIMARY KEY, v text)";
    one.batch_execute(table).await.unwrap();
    let insert =
        |n| format!("INSERT INTO t (v) SELECT repeat('x', 1000) FROM generate_series(1, {n})");
    let refused = one.batch_execute(&insert(40_000)).await.unwrap_err();
    assert_eq!(sqlstate(&refused), "53200");
    // Nor in pieces, and nobody else gets what one holds.
    let mut pieces = Ok(());
    one.batch_execute("BEGIN; SAVEPOINT a").await.unwrap();
    for _ in 0..400 {
        pieces = one.batch_execute(&insert(100)).await;
        if pieces.is_err() {
            break;
        }
    }
    assert_eq!(sqlstate(&pieces.expect_err("there is no room")), "53200");
    let mut last = Ok(());
    for _ in 0..200 {
        last = last.and(other.batch_execute(&insert(1)).await);
    }
    assert_eq!(sqlstate(&last.expect_err("there is no room")), "53200");
    one.batch_execute("ROLLBACK TO a").await.unwrap();
    other.batch_execute(&insert(1)).await.unwrap();
    one.batch_execute(&insert(100)).await.unwrap();
    one.batch_execute("COMMIT").await.unwrap();
}

/// asyncpg moves its cursors so: they are portals, bound with binary results.
#[tokio::test(flavor = "multi_thread")]
async fn a_portal_that_a_statement_moved_keeps_its_formats() {
    let server = Server::start().await;
    let mut raw = Raw::session(&server);
    raw.send(&query(b"BEGIN"));
    raw.until(b'Z').expect("begun");
    let select = parse("s", b"SELECT generate_series(1, 100)", &[]);
    let binary = message(b'B', b"p\0s\0\0\0\0\0\0\x01\0\x01");
    raw.send(&[select, binary, sync()].concat());
    raw.until(b'Z').expect("bound");
    raw.send(&query(b"MOVE 41 FROM p"));
    raw.until(b'Z').expect("moved");
    raw.send(&[execute("p", 1), sync()].concat());
    let seen = raw.until(b'Z').expect("the connection stays");
    let row = seen.iter().find(|m| m.0 == b'D').expect("a row");
    // One value, of four bytes: 42.
    assert_eq!(row.1, [0, 1, 0, 0, 0, 4, 0, 0, 0, 42]);
}
