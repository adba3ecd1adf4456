//! Memory has one bound, which no statement passes: its own limit, the ceiling of ordinary roles, `memory.total` over all.
//!
//! Each attack is a statement that would take far more than it may. It gets 53200, its session goes on, and so do the others; what it had
//! is given back, to the account and to the system.

mod common;
#[allow(dead_code)]
#[path = "replication/helpers.rs"]
mod helpers;
#[allow(dead_code)]
#[path = "wire_abuse/raw.rs"]
mod raw;

use common::{PATIENCE, Server, connect_to, free_port, on_postgres, sqlstate};
use helpers::{counted, one};
use raw::{Raw, bind, execute, parse, query, sync};
use std::time::Instant;
use tokio_postgres::Client;

/// Bytes of a session that keeps nothing: its buffers.
const IDLE: i64 = 64 << 10;

/// As an ordinary role.
async fn user(server: &Server) -> Client {
    let mut config = server.config();
    connect_to(config.user("u")).await.expect("a session")
}

async fn with_user(env: &[(&str, &str)]) -> (Server, Client) {
    let server = Server::start_with(env).await;
    let admin = server.connect().await;
    admin
        .batch_execute(
            "CREATE ROLE u LOGIN; CREATE TABLE t (id int PRIMARY KEY, v text);
             GRANT ALL ON t TO u; INSERT INTO t VALUES (1, 'one')",
        )
        .await
        .unwrap();
    (server, admin)
}

/// What others see of the session's memory once it is idle.
async fn account(admin: &Client, pid: &str) -> i64 {
    let sql = format!("SELECT canon_memory FROM pg_stat_activity WHERE pid = {pid}");
    one(admin, &sql).await.parse().unwrap()
}

/// `WITH c0 …, c1 AS (a join of c0 with c0), …`
fn doubling(levels: usize, how: &str) -> String {
    let mut sql = format!("WITH c0 AS {how} (SELECT 1 AS x)");
    for i in 1..=levels {
        let p = i - 1;
        sql += &format!(", c{i} AS {how} (SELECT a.x FROM c{p} a JOIN c{p} b ON a.x = b.x)");
    }
    sql + &format!(" SELECT count(*) FROM c{levels}")
}

#[tokio::test(flavor = "multi_thread")]
async fn no_statement_passes_its_limit() {
    if on_postgres() {
        return;
    }
    let (server, admin) = with_user(&[]).await;
    let client = user(&server).await;
    client
        .batch_execute("SET canon.statement_memory = '16MB'")
        .await
        .unwrap();
    let pid = one(&client, "SELECT pg_backend_pid()").await;
    let large = "repeat('x', 100) || i FROM generate_series(1, 10000000) i";
    for sql in [
        &format!("SELECT array_length(array_agg(x), 1) FROM (SELECT {large}) s(x)"),
        &format!("SELECT length(string_agg(x, ',')) FROM (SELECT {large}) s(x)"),
        &format!("SELECT length(string_agg(x, ',' ORDER BY x)) FROM (SELECT {large}) s(x)"),
        &format!("SELECT count(DISTINCT x) FROM (SELECT {large}) s(x)"),
        &format!("SELECT length(jsonb_agg(x)::text) FROM (SELECT {large}) s(x)"),
        &format!("SELECT length(jsonb_object_agg(x, 1)::text) FROM (SELECT {large}) s(x)"),
        &format!("SELECT x FROM (SELECT {large}) s(x) ORDER BY 1 DESC LIMIT 1 OFFSET 5000000"),
        &format!("SELECT x, count(*) FROM (SELECT {large}) s(x) GROUP BY x"),
        &format!("SELECT {large} UNION SELECT 'y'"),
        &format!("WITH c AS MATERIALIZED (SELECT {large}) SELECT count(*) FROM c"),
        "WITH RECURSIVE r(n, x) AS (SELECT 1, repeat('x', 1000) UNION ALL SELECT n + 1, x || 'y' FROM r WHERE n < 1000000) SELECT count(*) FROM r a JOIN r b ON a.n = b.n",
        "SELECT length(repeat('x', 60000000))",
        "SELECT length(lpad('x', 60000000))",
        "SELECT length(format('%60000000s', 'x'))",
        "SELECT length(repeat('x', 9000000) || repeat('y', 9000000))",
        "SELECT array_length(array_fill(repeat('x', 1000), ARRAY[100000]), 1)",
        "SELECT replace(repeat('x', 100000), 'x', repeat('y', 1000))",
        "INSERT INTO t SELECT i, repeat('x', 100) FROM generate_series(2, 10000000) i",
    ] {
        let refused = client.batch_execute(sql).await;
        let code = refused.map_err(|e| sqlstate(&e)).err().unwrap_or_default();
        // A text of more than 64 MB is refused whatever the limit.
        assert!(code == "53200" || code == "54000", "{sql}: {code:?}");
        assert_eq!(one(&client, "SELECT v FROM t WHERE id = 1").await, "one");
        let kept = account(&admin, &pid).await;
        assert!(kept < IDLE, "{sql}: {kept}");
    }
    // The same by messages: a parameter, a text, a row of a COPY.
    let mut raw = Raw::session(&server);
    raw.send(&query(b"SET canon.statement_memory = '4MB'"));
    raw.until(b'Z').unwrap();
    let long = vec![b'x'; 20 << 20];
    raw.send(&parse("", b"SELECT length($1::text)", &[]));
    raw.send(&bind("", "", &[&long]));
    raw.send(&execute("", 0));
    raw.send(&sync());
    assert_eq!(raw.error(), "53200");
    let text = format!("SELECT '{}'", "x".repeat(20 << 20));
    raw.send(&query(text.as_bytes()));
    assert_eq!(raw.error(), "53200");
    raw.send(&query(b"COPY t FROM STDIN"));
    raw.until(b'G').unwrap();
    raw.send(&raw::message(b'd', &long));
    raw.send(&raw::message(b'c', b""));
    assert_eq!(raw.error(), "53200");
    raw.send(&query(b"SELECT 1"));
    raw.until(b'Z').expect("the connection stays");
}

#[tokio::test(flavor = "multi_thread")]
async fn plans_that_multiply() {
    if on_postgres() {
        return;
    }
    let (server, _admin) = with_user(&[]).await;
    let client = user(&server).await;
    // Each level is named twice: computed once, or, asked for in so many words, inlined as long as that is small.
    for how in ["", "MATERIALIZED", "NOT MATERIALIZED"] {
        assert_eq!(one(&client, &doubling(24, how)).await, "1", "{how}");
    }
    // What BETWEEN compares several times is bound once.
    for bounds in ["SYMMETRIC v AND v + 1", "v - v AND v + 1"] {
        let level = |inner: String, _| format!("({inner} BETWEEN {bounds})::int");
        let nested = (0..40).fold("v".to_owned(), level);
        let sql = format!("SELECT sum({nested}) FROM generate_series(1, 3) v");
        assert_eq!(one(&client, &sql).await.len(), 1, "{bounds}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ceiling_of_roles() {
    if on_postgres() {
        return;
    }
    let settings = "canon.statement_memory_ceiling=32MB";
    let (server, admin) = with_user(&[("CANON_SETTINGS", settings)]).await;
    let client = user(&server).await;
    for bad in [
        "SET canon.statement_memory = '33MB'",
        "SET LOCAL canon.statement_memory = '64GB'",
        "SELECT set_config('canon.statement_memory', '64GB', false)",
        "SET canon.statement_memory_ceiling = '64GB'",
    ] {
        let refused = client.batch_execute(bad).await.unwrap_err();
        assert_eq!(sqlstate(&refused), "42501", "{bad}");
    }
    // The default of 256 MB is above the ceiling, too, and does not count.
    let much = "SELECT count(*) FROM (SELECT DISTINCT repeat('x', 1000) || i FROM generate_series(1, 50000) i) s";
    let refused = client.batch_execute(much).await.unwrap_err();
    assert_eq!(sqlstate(&refused), "53200");
    client
        .batch_execute("SET canon.statement_memory = '31MB'")
        .await
        .unwrap();
    admin
        .batch_execute("SET canon.statement_memory = '64GB'")
        .await
        .unwrap();
    admin.batch_execute(much).await.unwrap();
}

/// What stays of a session when no statement runs is what it has prepared.
#[tokio::test(flavor = "multi_thread")]
async fn prepared_statements_are_kept() {
    if on_postgres() {
        return;
    }
    let (server, admin) = with_user(&[]).await;
    let client = user(&server).await;
    client
        .batch_execute("SET canon.statement_memory = '8MB'")
        .await
        .unwrap();
    let pid = one(&client, "SELECT pg_backend_pid()").await;
    let columns: Vec<String> = (0..300).map(|c| format!("id + {c}")).collect();
    let mut prepared = 0;
    let code = loop {
        let list = columns.join(", ");
        let sql = format!("PREPARE p{prepared} AS SELECT {list}, {prepared} FROM t");
        match client.batch_execute(&sql).await {
            Ok(()) => prepared += 1,
            Err(e) => break sqlstate(&e),
        }
        assert!(prepared < 10_000, "they are not bounded");
    };
    assert_eq!(code, "53200");
    assert!(prepared > 2, "{prepared}");
    assert!(account(&admin, &pid).await > 1 << 20);
    client.batch_execute("DEALLOCATE ALL").await.unwrap();
    let kept = account(&admin, &pid).await;
    assert!(kept < IDLE, "{kept}");
    client.batch_execute("PREPARE p AS SELECT 1").await.unwrap();
}

/// The tokens and the syntax tree of a long text would take hundreds of times the text. The statement is refused on the way.
/// The most that the server has taken. kB.
fn peak(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let peak = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    peak.unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap()
}

/// A value that each row of a partition repeats counts as often as it is repeated, when it is.
#[tokio::test(flavor = "multi_thread")]
async fn windows_that_repeat_a_value() {
    if on_postgres() {
        return;
    }
    let (server, _admin) = with_user(&[]).await;
    let client = user(&server).await;
    let limit = "SET canon.statement_memory = '64MB'";
    client.batch_execute(limit).await.unwrap();
    for call in [
        "first_value(t) OVER ()",
        "lag(t, g - 1) OVER (ORDER BY g)",
        "max(t) OVER ()",
    ] {
        let rows = "SELECT g, CASE WHEN g = 1 THEN repeat('x', 8000000) END t FROM generate_series(1, 300) g";
        let sql = format!("SELECT count(v) FROM (SELECT {call} v FROM ({rows}) a) b");
        let refused = client.batch_execute(&sql).await.unwrap_err();
        assert_eq!(sqlstate(&refused), "53200", "{call}");
        let peak = peak(&server);
        assert!(peak < 700 << 10, "{call}: {peak} kB");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_of_many_tokens_is_refused() {
    if on_postgres() {
        return;
    }
    let (server, _admin) = with_user(&[]).await;
    let client = user(&server).await;
    let sql = format!("VALUES {}(1)", "(1),".repeat(10 << 20));
    let refused = client.batch_execute(&sql).await.unwrap_err();
    assert_eq!(sqlstate(&refused), "53200");
    let peak = peak(&server);
    assert!(peak < 700 << 10, "{peak} kB");
    // A literal of the same length, with quotes and blanks in it, is one token.
    let text = "it''s a word ".repeat(2 << 20);
    let sql = format!("SELECT length('{text}')");
    assert_eq!(one(&client, &sql).await, (12 * (2 << 20)).to_string());
    let rows = format!(
        "SELECT count(*) FROM (VALUES {}(1)) v",
        "(1),".repeat(100_000)
    );
    assert_eq!(one(&client, &rows).await, "100001");
}

/// The trees of many short statements take far more than their texts and tokens, which the limit allows here.
#[tokio::test(flavor = "multi_thread")]
async fn a_text_of_many_statements_is_refused() {
    if on_postgres() {
        return;
    }
    let (server, _admin) = with_user(&[]).await;
    let client = user(&server).await;
    let limit = "SET canon.statement_memory = '128MB'";
    client.batch_execute(limit).await.unwrap();
    let all = client.batch_execute(&"SELECT 1;".repeat(1000)).await;
    all.expect("a thousand");
    let before = peak(&server);
    let refused = client.batch_execute(&"SELECT 1;".repeat(60_000)).await;
    assert_eq!(sqlstate(&refused.unwrap_err()), "53200");
    let more = peak(&server) - before;
    assert!(more < 400 << 10, "{more} kB");
    assert_eq!(one(&client, "SELECT 2").await, "2");
}

/// Plans that sessions have left behind are a cache with a bound, in bytes.
#[tokio::test(flavor = "multi_thread")]
async fn plans_of_sessions_that_have_gone_take_little() {
    if on_postgres() {
        return;
    }
    let http = format!("127.0.0.1:{}", free_port());
    let (server, admin) = with_user(&[("CANON_HTTP", &http)]).await;
    let used = || counted(&http, "canon_memory_total_bytes");
    let before = used();
    let mut most = 0;
    for i in 0..5 {
        let client = user(&server).await;
        for n in 0..120 {
            let columns: Vec<String> = (0..80).map(|c| format!("{c} + id * {n} + {i}")).collect();
            let sql = format!("SELECT {} FROM t", columns.join(", "));
            client.prepare(&sql).await.unwrap();
        }
        most = most.max(used());
    }
    // More than the bound was made, or this shows nothing.
    assert!(most > before + (16 << 20), "{most} after {before}");
    let kept = counted(&http, "canon_plans_bytes");
    assert!(0 < kept && kept <= 32 << 20, "{kept}");
    let until = Instant::now() + PATIENCE;
    while used() > before + (64 << 20) {
        assert!(Instant::now() < until, "{} after {before}", used());
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    // A small statement is found again.
    let found = counted(&http, "canon_plans_found_total");
    one(&admin, "SELECT v FROM t WHERE id = 1").await;
    one(&admin, "SELECT v FROM t WHERE id = 1").await;
    assert!(counted(&http, "canon_plans_found_total") > found);
}

/// All together have a bound: above it the largest gets 53200 and the others go on, and the memory comes back.
#[tokio::test(flavor = "multi_thread")]
async fn the_total_bounds_all() {
    if on_postgres() {
        return;
    }
    let http = format!("127.0.0.1:{}", free_port());
    let env = [("CANON_MEMORY_TOTAL", "96MB"), ("CANON_HTTP", &http)];
    let (server, admin) = with_user(&env).await;
    let used = || counted(&http, "canon_memory_total_bytes");
    let resident = || counted(&http, "canon_resident_bytes");
    assert_eq!(counted(&http, "canon_memory_total_limit_bytes"), 96 << 20);
    let other = user(&server).await;
    let before = used();
    assert!(before < 48 << 20, "{before}");
    let mut attackers = Vec::new();
    for _ in 0..6 {
        let client = user(&server).await;
        let much = "SELECT count(*) FROM (SELECT DISTINCT repeat('x', 1000) || i FROM generate_series(1, 10000000) i) s";
        attackers.push(tokio::spawn(async move {
            sqlstate(&client.batch_execute(much).await.unwrap_err())
        }));
    }
    let mut most = 0;
    while !attackers.iter().all(|a| a.is_finished()) {
        assert_eq!(one(&other, "SELECT v FROM t WHERE id = 1").await, "one");
        most = most.max(used());
    }
    for a in attackers {
        assert_eq!(a.await.unwrap(), "53200");
    }
    assert!(most < 160 << 20, "{most}");
    assert!(counted(&http, "canon_memory_refused_total") >= 6);
    // A superuser's share, and the rest.
    assert_eq!(one(&admin, "SELECT 1").await, "1");
    let until = Instant::now() + PATIENCE;
    while used() > before + (8 << 20) || resident() > before + (160 << 20) {
        assert!(Instant::now() < until, "{} {}", used(), resident());
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

/// The rows of a truncated table stay in memory while a plan has it, and are nobody's.
#[tokio::test(flavor = "multi_thread")]
async fn a_truncated_table_that_a_plan_keeps_refuses_nobody() {
    if on_postgres() {
        return;
    }
    let (server, admin) = with_user(&[("CANON_MEMORY_TOTAL", "96MB")]).await;
    for i in 0..12 {
        let rows = format!(
            "INSERT INTO t SELECT i + {i} * 5000, repeat('x', 2000) FROM generate_series(2, 5001) i"
        );
        admin.batch_execute(&rows).await.unwrap();
    }
    let keeper = user(&server).await;
    let plan = "PREPARE p AS SELECT count(*) FROM t; EXECUTE p";
    keeper.batch_execute(plan).await.unwrap();
    admin.batch_execute("TRUNCATE t").await.unwrap();
    let client = user(&server).await;
    let some = "SELECT length(string_agg(repeat('y', 500), '')) FROM generate_series(1, 2000)";
    for _ in 0..20 {
        assert_eq!(one(&client, some).await, "1000000");
    }
    assert_eq!(one(&keeper, "EXECUTE p").await, "0");
}

/// A client that takes nothing stops its own statement, whatever the size of its rows.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_holds_little() {
    if on_postgres() {
        return;
    }
    let (server, admin) = with_user(&[]).await;
    let mut raw = Raw::session(&server);
    raw.send(&query(b"SELECT pg_backend_pid()"));
    let row = raw.until(b'Z').unwrap();
    let row = row.iter().find(|m| m.0 == b'D').expect("a row");
    let pid = String::from_utf8(row.1[6..].to_vec()).unwrap();
    raw.send(&query(
        b"SELECT repeat('x', 1000000) FROM generate_series(1, 1000)",
    ));
    // It waits for its client once that has not taken anything for a while: what it holds does not grow.
    let (mut last, mut same) = (0, 0);
    let until = Instant::now() + PATIENCE;
    while same < 20 {
        assert!(Instant::now() < until);
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        let now = account(&admin, &pid).await;
        same = match now > 0 && now == last {
            true => same + 1,
            false => 0,
        };
        last = now;
    }
    assert!(last < 8 << 20, "{last}");
}
