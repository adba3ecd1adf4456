//! Everything that runs or waits can be ended: by a cancel, a time limit, the end of its session, the end of the server.
//!
//! A hang is the failure: no time is asserted. That a loop looks for a cancel often enough is counted in the unit tests of the functions.

mod common;
#[allow(dead_code)]
#[path = "replication/helpers.rs"]
mod helpers;
#[allow(dead_code)]
#[path = "wire_abuse/raw.rs"]
mod raw;

use common::{PATIENCE, Server, on_postgres, sqlstate};
use helpers::{one, signal, until};
use raw::{Raw, field, query};
use std::time::Duration;
use tokio_postgres::Client;

/// Statements that compute for minutes at least if nobody ends them.
fn endless() -> Vec<String> {
    let per_row = |e: &str| format!("SELECT count({e}) FROM generate_series(1, 100000000) g");
    let mut all = vec![
        per_row("translate(repeat('ab', 2000000) || g, repeat('xyz', 300), 'abc')"),
        per_row("replace(repeat('ab', 200000) || g, 'a', 'cc')"),
        per_row("btrim(repeat('ab', 200000) || g, 'abcdefghijklmnopqrstuvwxyz')"),
        per_row("upper(md5(repeat('x', 200000) || g))"),
        per_row("exp(100000 + g::numeric)"),
        per_row("power(1.5 + g::numeric / 1000, 20000.5)"),
        per_row("power(1.00001 + g::numeric / 1000, -100000)"),
        per_row("ln(10::numeric ^ 130000 + g)"),
        per_row("log(10::numeric ^ 100000 + g, 10::numeric ^ 130000)"),
        per_row("sqrt(10::numeric ^ 130000 + g)"),
        per_row("(10::numeric ^ 130000 + g) / 7"),
        per_row("factorial(30000 + g % 2)"),
        per_row("jsonb_build_array(repeat('x', 100000) || g)"),
        per_row("CASE WHEN g < 0 THEN 1 END"),
    ];
    let others = [
        "SELECT repeat('x', 3000000) ~ '(x+x+)+y(a?){3000}'",
        "SELECT regexp_count(repeat('a', 3000000), 'a.*[^a]|a')",
        "SELECT length(regexp_replace(repeat('a', 3000000), 'a.*[^a]|a', 'b', 'g'))",
        "SELECT repeat('a', 2000000) LIKE '%' || repeat('a', 1000000) || 'b%'",
        "SELECT repeat('a', 2000000) ILIKE '%' || repeat('A', 1000000) || 'b%'",
        "SELECT array_fill(1, ARRAY[2000000]) && array_fill(2, ARRAY[2000000])",
        "SELECT (SELECT jsonb_agg(g) FROM generate_series(1, 300000) g) @> (SELECT jsonb_agg(300000) FROM generate_series(1, 300000))",
        "SELECT count(*) FROM generate_series(1, 1000000) a, generate_series(1, 1000000) b",
        "SELECT count(*) FROM generate_series(1, 1000000) a LEFT JOIN generate_series(1, 1000000) b ON a + b < 0",
        "SELECT sum(x) FROM (SELECT generate_series(1, 100000000000) AS x) y",
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n % 10 + 1 FROM r) SELECT count(*) FROM r",
        "SELECT pg_sleep(100000)",
        "COPY (SELECT repeat('x', 1000) FROM generate_series(1, 100000000000)) TO STDOUT",
        "INSERT INTO sink SELECT -g FROM generate_series(1, 100000000000) g WHERE g < 0",
        "UPDATE sink SET n = n WHERE (SELECT count(*) FROM generate_series(1, 100000000000)) < 0",
    ];
    all.extend(others.map(String::from));
    all.push(wide());
    all
}

/// A thousand relations, and conditions between them: each step of the plan looks at all that are left.
fn wide() -> String {
    let from: Vec<String> = (0..1000)
        .map(|i| format!("generate_series(1, 1) a{i}"))
        .collect();
    let on: Vec<String> = (0..300)
        .map(|i| format!("a{i} + a{} > 0", 999 - i))
        .collect();
    format!(
        "SELECT count(*) FROM {} WHERE {}",
        from.join(", "),
        on.join(" AND ")
    )
}

async fn pid(c: &Client) -> i32 {
    c.query_one("SELECT pg_backend_pid()", &[])
        .await
        .unwrap()
        .get(0)
}

async fn until_active(by: &Client, pid: i32, sql: &str) {
    let start: String = sql.chars().take(20).collect();
    let start = start.replace('\'', "''").replace(['%', '_'], "_");
    let active = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE pid = {pid} AND state = 'active' AND query LIKE '{start}%'"
    );
    until(by, &active, "1").await;
}

async fn setup(server: &Server) -> Client {
    let by = server.connect().await;
    let table = "CREATE TABLE sink (n bigint PRIMARY KEY); INSERT INTO sink VALUES (1), (2)";
    by.batch_execute(table).await.unwrap();
    by
}

#[tokio::test(flavor = "multi_thread")]
async fn each_statement_is_cancelled_and_the_session_goes_on() {
    let server = Server::start().await;
    let by = setup(&server).await;
    let mut c = Raw::session(&server);
    c.send(&query(b"SELECT pg_backend_pid()"));
    let said = c.until(b'Z').expect("an answer");
    let row = &said.iter().find(|m| m.0 == b'D').expect("a row").1;
    let pid: i32 = String::from_utf8_lossy(&row[6..]).parse().unwrap();
    for sql in endless() {
        let (c_sql, start) = (sql.clone(), std::time::Instant::now());
        c.send(&query(c_sql.as_bytes()));
        until_active(&by, pid, &sql).await;
        one(&by, &format!("SELECT pg_cancel_backend({pid})")).await;
        let mut c2 = c;
        let (said, back) = tokio::task::spawn_blocking(move || (c2.until(b'Z'), c2))
            .await
            .unwrap();
        c = back;
        let said = said.unwrap_or_else(|| panic!("no end of {sql}"));
        let error = said.iter().find(|m| m.0 == b'E');
        let error = &error.unwrap_or_else(|| panic!("no error of {sql}")).1;
        assert_eq!(field(error, b'C'), "57014", "{sql}: {}", field(error, b'M'));
        println!("{:?}: {}", start.elapsed(), &sql[..sql.len().min(100)]);
        c.send(&query(b"SELECT 1"));
        let said = c.until(b'Z').expect("the session goes on");
        assert!(said.iter().any(|m| m.0 == b'D'), "after {sql}");
    }
}

/// By its time limit, also where the statement comes by the extended protocol and is only planned; and by the end of the session.
#[tokio::test(flavor = "multi_thread")]
async fn time_limits_and_terminations_end_them_too() {
    let server = Server::start().await;
    let by = setup(&server).await;
    let c = server.connect().await;
    c.batch_execute("SET statement_timeout = '100ms'")
        .await
        .unwrap();
    let exp = "SELECT count(exp(100000 + g::numeric)) FROM generate_series(1, 100000000) g";
    for sql in [exp, &wide()] {
        let ended = c.batch_execute(sql).await.unwrap_err();
        assert_eq!(sqlstate(&ended), "57014");
        let ended = c.query(sql, &[]).await.unwrap_err();
        assert_eq!(sqlstate(&ended), "57014");
    }
    c.batch_execute("SET statement_timeout = 0").await.unwrap();
    assert_eq!(one(&c, "SELECT 1").await, "1");
    for sql in [exp, &wide()] {
        let c = server.connect().await;
        let p = pid(&c).await;
        let end = async {
            until_active(&by, p, sql).await;
            one(&by, &format!("SELECT pg_terminate_backend({p})")).await
        };
        let (ended, _) = tokio::join!(c.batch_execute(sql), end);
        assert_eq!(sqlstate(&ended.unwrap_err()), "57P01");
    }
}

/// The server is told to stop while statements compute: it ends in order.
#[tokio::test(flavor = "multi_thread")]
async fn the_server_ends_while_they_run() {
    if on_postgres() {
        return;
    }
    let mut server = Server::start_with(&[("CANON_SHUTDOWN_TIMEOUT", "100ms")]).await;
    let by = setup(&server).await;
    let mut running = Vec::new();
    for sql in endless().into_iter().step_by(5) {
        let c = server.connect().await;
        let p = pid(&c).await;
        let text = sql.clone();
        running.push(tokio::spawn(async move { c.batch_execute(&text).await }));
        until_active(&by, p, &sql).await;
    }
    signal(&server, "-TERM");
    let status = server.exited(PATIENCE).await.expect("it ends");
    assert!(status.success(), "{status}\n{}", server.log_tail());
    for r in running {
        r.await.unwrap().expect_err("it was ended");
    }
}

/// A commit that waits for replicas: a cancel ends the wait, the commit stands here, and the client is told that replicas may not have it.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_for_replicas_is_ended_with_a_warning() {
    if on_postgres() {
        return;
    }
    let mut server = Server::start_with(&[("CANON_SYNCHRONOUS_REPLICAS", "1")]).await;
    let by = server.connect().await;
    let local = "SET synchronous_commit = local; CREATE TABLE t (id int PRIMARY KEY)";
    by.batch_execute(local).await.unwrap();
    for (n, limit) in [(1, false), (2, true)] {
        let mut c = Raw::session(&server);
        if limit {
            c.send(&query(b"SET statement_timeout = '300ms'"));
            c.until(b'Z').expect("set");
        }
        let insert = format!("INSERT INTO t VALUES ({n})");
        c.send(&query(insert.as_bytes()));
        if !limit {
            let waits = format!(
                "SELECT wait_event FROM pg_stat_activity WHERE query = '{insert}' AND wait_event IS NOT NULL"
            );
            until(
                &by,
                &format!("SELECT count(*) FROM ({waits} AND wait_event = 'SyncRep') x"),
                "1",
            )
            .await;
            let whose = format!("SELECT pid FROM pg_stat_activity WHERE query = '{insert}'");
            let pid = one(&by, &whose).await;
            one(&by, &format!("SELECT pg_cancel_backend({pid})")).await;
        }
        let said = c.until(b'Z').expect("the wait ends");
        let warning = &said.iter().find(|m| m.0 == b'N').expect("a warning").1;
        assert_eq!(field(warning, b'V'), "WARNING");
        let what = "canceling wait for synchronous replication due to ";
        assert!(field(warning, b'M').starts_with(what));
        assert!(field(warning, b'D').contains("committed locally"));
        assert!(said.iter().any(|m| m.0 == b'C'), "it is committed");
        // What comes next is not cancelled with it.
        c.send(&query(b"SHOW server_version"));
        let said = c.until(b'Z').expect("the session goes on");
        assert!(said.iter().all(|m| m.0 != b'E'));
    }
    // Nobody is shown what replicas may not have; who starts without them finds it.
    assert_eq!(one(&by, "SELECT count(*) FROM t").await, "0");
    server.kill();
    server.set_env(&[]);
    server.launch();
    server.ready().await;
    let found = one(&server.connect().await, "SELECT count(*) FROM t").await;
    assert_eq!(found, "2");
}

/// A commit that waits for a full disk: the wait shows, the server is not ready, and a cancel ends the wait with the truth: nobody knows.
#[cfg(feature = "faults")]
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_for_a_full_disk_is_ended_and_the_outcome_is_open() {
    if on_postgres() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let full = dir.path().join("full");
    let fault = format!("wal.before_write:while={}", full.display());
    let http = common::free_port();
    let address = format!("127.0.0.1:{http}");
    let env = [
        ("CANON_FAULT", fault.as_str()),
        ("CANON_HTTP", &address),
        (common::MUTE, ""),
    ];
    let server = Server::start_with(&env).await;
    let by = server.connect().await;
    let table = "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)";
    by.batch_execute(table).await.unwrap();
    assert_eq!(helpers::get(http, "/readyz").0, 200);
    std::fs::write(&full, "").unwrap();
    let mut c = Raw::session(&server);
    let insert = "INSERT INTO t VALUES (2)";
    c.send(&query(insert.as_bytes()));
    let waits = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE query = '{insert}' AND wait_event_type = 'IO' AND wait_event = 'DiskFull'"
    );
    until(&by, &waits, "1").await;
    let said = helpers::get(http, "/readyz");
    assert!(said.0 == 503 && said.1.contains("disk is full"), "{said:?}");
    let whose = format!("SELECT pid FROM pg_stat_activity WHERE query = '{insert}'");
    let pid = one(&by, &whose).await;
    one(&by, &format!("SELECT pg_cancel_backend({pid})")).await;
    let said = c.until(b'Z').expect("the wait ends");
    let error = &said.iter().find(|m| m.0 == b'E').expect("an error").1;
    assert_eq!(field(error, b'C'), "40003");
    assert!(field(error, b'D').contains("not on this server's disk"));
    let warning = said.iter().find(|m| m.0 == b'N').expect("a warning");
    assert_eq!(field(&warning.1, b'V'), "WARNING");
    std::fs::remove_file(&full).unwrap();
    until(&by, "SELECT count(*) FROM t", "2").await;
    let deadline = std::time::Instant::now() + PATIENCE;
    while helpers::get(http, "/readyz").0 != 200 {
        assert!(std::time::Instant::now() < deadline, "never ready again");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A cascade over a table that references itself, without an index for the key: it reads the table a fixed number of times, whatever its
/// shape, and a long chain is not followed by recursion. (Quadratic, this is 400 million rows; by recursion, a stack of 20,000 rows.)
#[tokio::test(flavor = "multi_thread")]
async fn a_cascade_from_the_root_of_a_long_chain_ends() {
    let server = Server::start().await;
    let c = server.connect().await;
    let n = 20_000;
    let fill = |parent: &str| {
        format!(
            "DROP TABLE IF EXISTS t; CREATE TABLE t (id int PRIMARY KEY, up int);
             INSERT INTO t SELECT g, {parent} FROM generate_series(1, {n}) g;
             ALTER TABLE t ADD FOREIGN KEY (up) REFERENCES t ON DELETE CASCADE ON UPDATE CASCADE"
        )
    };
    let (chain, tree, star) = (
        "nullif(g - 1, 0)",
        "nullif(g / 2, 0)",
        "CASE WHEN g > 1 THEN 1 END",
    );
    for parent in [chain, tree, star] {
        c.batch_execute(&fill(parent)).await.unwrap();
        c.batch_execute("DELETE FROM t WHERE id = 1").await.unwrap();
        assert_eq!(one(&c, "SELECT count(*) FROM t").await, "0", "{parent}");
    }
    c.batch_execute(&fill(star)).await.unwrap();
    c.batch_execute("UPDATE t SET id = 0 WHERE id = 1")
        .await
        .unwrap();
    let moved = format!("{}", n - 1);
    assert_eq!(one(&c, "SELECT count(*) FROM t WHERE up = 0").await, moved);
    // What is set to NULL or to a default has no children to follow.
    for action in ["SET NULL", "SET DEFAULT"] {
        c.batch_execute(&fill(star)).await.unwrap();
        let alter = format!(
            "ALTER TABLE t DROP CONSTRAINT t_up_fkey; ALTER TABLE t ALTER up SET DEFAULT 2;
             ALTER TABLE t ADD FOREIGN KEY (up) REFERENCES t ON DELETE {action}"
        );
        c.batch_execute(&alter).await.unwrap();
        c.batch_execute("DELETE FROM t WHERE id = 1").await.unwrap();
        let left = if action == "SET NULL" {
            "up IS NULL"
        } else {
            "up = 2"
        };
        let sql = format!("SELECT count(*) FROM t WHERE {left}");
        assert_eq!(one(&c, &sql).await, moved, "{action}");
    }
    // Other tables stand in the way of a cascade as before.
    let other = "DELETE FROM t; INSERT INTO t VALUES (1), (2), (3); UPDATE t SET up = 1 WHERE id = 3;
         ALTER TABLE t DROP CONSTRAINT t_up_fkey; ALTER TABLE t ADD FOREIGN KEY (up) REFERENCES t ON DELETE CASCADE;
         CREATE TABLE u (t int REFERENCES t); INSERT INTO u VALUES (3)";
    c.batch_execute(other).await.unwrap();
    let refused = c.batch_execute("DELETE FROM t WHERE id = 1").await;
    assert_eq!(sqlstate(&refused.unwrap_err()), "23503");
    c.batch_execute("DELETE FROM u; DELETE FROM t WHERE id = 1")
        .await
        .unwrap();
}

/// What a statement that failed had asked of its parents is not asked of the next one.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_statement_leaves_no_foreign_key_to_check() {
    let server = Server::start().await;
    let c = server.connect().await;
    let tables = "CREATE TABLE p (id int PRIMARY KEY); CREATE TABLE c (id int PRIMARY KEY, p int REFERENCES p)";
    c.batch_execute(tables).await.unwrap();
    c.batch_execute("BEGIN; SAVEPOINT s").await.unwrap();
    let twice = c
        .batch_execute("INSERT INTO c VALUES (1, 99), (1, 99)")
        .await;
    assert_eq!(sqlstate(&twice.unwrap_err()), "23505");
    c.batch_execute("ROLLBACK TO s; INSERT INTO c VALUES (2, NULL); COMMIT")
        .await
        .expect("nothing references a row that is not there");
}

/// The log takes as many bytes for a table when there are many as when there are few.
#[tokio::test(flavor = "multi_thread")]
async fn the_log_of_a_schema_change_does_not_grow_with_the_schema() {
    if on_postgres() {
        return;
    }
    let http = common::free_port();
    let address = format!("127.0.0.1:{http}");
    let mut server = Server::start_with(&[("CANON_HTTP", &address)]).await;
    let c = server.connect().await;
    let logged = || {
        let (_, page) = helpers::get(http, "/metrics");
        let line = page
            .lines()
            .find(|l| l.starts_with("canon_log_bytes_total "));
        let bytes = line.and_then(|l| l.split(' ').nth(1));
        bytes.expect("the metric").parse::<u64>().unwrap()
    };
    let create = |i: usize| {
        format!("CREATE TABLE t{i:05} (id int PRIMARY KEY, a text, b int UNIQUE CHECK (b > 0));")
    };
    let mut per_table = Vec::new();
    for round in 0..4 {
        let before = logged();
        let many: String = (0..200).map(|i| create(round * 400 + i)).collect();
        c.batch_execute(&many).await.unwrap();
        per_table.push((logged() - before) / 200);
        // In one transaction, too.
        let before = logged();
        let many: String = (200..400).map(|i| create(round * 400 + i)).collect();
        c.batch_execute(&format!("BEGIN; {many} COMMIT"))
            .await
            .unwrap();
        per_table.push((logged() - before) / 200);
    }
    let (least, most) = (
        per_table.iter().min().unwrap(),
        per_table.iter().max().unwrap(),
    );
    assert!(
        *most < 2 * least && *most < 4096,
        "{per_table:?} bytes each"
    );
    server.kill();
    server.launch();
    server.ready().await;
    let c = server.connect().await;
    let tables = "SELECT count(*) FROM pg_class WHERE relname LIKE 't0%' AND relkind = 'r'";
    assert_eq!(one(&c, tables).await, "1600");
}
