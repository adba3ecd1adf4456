//! Clients that exist, unchanged, against a replica: psql, pgbench (its own schema, TPC-B in all three query modes) and psycopg. And what
//! they go by: the parameters that a server reports at the start and when its role changes.

mod common;
#[path = "replication/helpers.rs"]
#[allow(dead_code)]
mod helpers;
#[path = "clients/programs.rs"]
mod programs;
#[path = "wire_abuse/raw.rs"]
#[allow(dead_code)]
mod raw;

use common::Server;
use helpers::{one, promote, replica, skip};
use programs::{pg_program, python, run};
use raw::{Message, Raw, framed, query};
use std::collections::BTreeMap;
use std::process::Command;

#[tokio::test(flavor = "multi_thread")]
async fn pgbench_runs_at_a_replica_in_every_query_mode() {
    if skip() {
        return;
    }
    let p = Server::start().await;
    let r = replica(&p, "bench").await;
    let mut init = Command::new(pg_program("pgbench"));
    init.args(["-i", "-s", "1", "-q", &r.url()]);
    run(init).await;
    for mode in ["simple", "extended", "prepared"] {
        let mut bench = Command::new(pg_program("pgbench"));
        bench.args(["-n", "-c", "4", "-j", "1", "-t", "50", "-M", mode]);
        bench.args(["--max-tries", "100", &r.url()]);
        let said = run(bench).await;
        assert!(said.contains("200/200"), "{mode}: {said}");
    }
    let (c, w) = (p.connect().await, r.connect().await);
    assert_eq!(one(&c, "SELECT count(*) FROM pgbench_history").await, "600");
    let sums = "SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM pgbench_history)
                   AND (SELECT sum(tbalance) FROM pgbench_tellers) = (SELECT sum(bbalance) FROM pgbench_branches)";
    assert_eq!(one(&w, sums).await, "t");
}

#[tokio::test(flavor = "multi_thread")]
async fn psql_writes_at_a_replica_that_says_it_can_be_written_to() {
    if skip() {
        return;
    }
    let p = Server::start().await;
    let r = replica(&p, "shell").await;
    for (wanted, attributes) in [("yes", "read-write"), ("yes", "standby"), ("no", "primary")] {
        let mut psql = Command::new(pg_program("psql"));
        let url = format!("{}?target_session_attrs={attributes}", r.url());
        psql.args(["-X", "-q", "-At", &url, "-c", "SELECT pg_is_in_recovery()"]);
        let done = psql.output().expect("psql runs");
        assert_eq!(
            done.status.success(),
            wanted == "yes",
            "{attributes}: {done:?}"
        );
    }
    let mut psql = Command::new(pg_program("psql"));
    psql.args(["-X", "-q", "-At", "-v", "ON_ERROR_STOP=1", &r.url()]);
    for line in [
        "CREATE TABLE t (id serial PRIMARY KEY, note text)",
        "INSERT INTO t (note) VALUES ('a'), ('b') RETURNING id",
        "BEGIN; SELECT count(*) FROM t; UPDATE t SET note = 'c' WHERE id = 1; COMMIT; SELECT note FROM t ORDER BY id",
        "\\d t",
    ] {
        psql.args(["-c", line]);
    }
    let said = run(psql).await;
    assert!(said.starts_with("1\n2\n2\nc\nb\n"), "{said}");
    assert!(said.contains("nextval("), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn psycopg_works_at_a_replica() {
    if skip() {
        return;
    }
    let p = Server::start().await;
    let r = replica(&p, "python").await;
    let mut script = Command::new(python());
    script.arg(common::tests_dir().join("psycopg_script.py"));
    script.arg(r.url());
    run(script).await;
}

/// A session that begins with these options, and what it was told until it was ready.
fn told(server: &Server, options: &str) -> (Raw, BTreeMap<String, String>) {
    let mut raw = Raw::connect(server);
    let mut body = 196_608i32.to_be_bytes().to_vec();
    for text in [
        "user",
        "canon",
        "application_name",
        "teller",
        "options",
        options,
        "",
    ] {
        body.extend(text.as_bytes());
        body.push(0);
    }
    raw.send(&framed(&body));
    let seen = raw.until(b'Z').expect("a session");
    (raw, parameters(&seen))
}

fn parameters(seen: &[Message]) -> BTreeMap<String, String> {
    let status = |(kind, body): &Message| {
        let text = String::from_utf8_lossy(body).into_owned();
        let (name, value) = text.trim_end_matches('\0').split_once('\0')?;
        (*kind == b'S').then(|| (name.to_owned(), value.to_owned()))
    };
    seen.iter().filter_map(status).collect()
}

/// PostgreSQL 15's, and our own version. (`scram_iterations` came with 16, `search_path` with 18; we say that we are 15.)
const REPORTED: [&str; 14] = [
    "DateStyle",
    "IntervalStyle",
    "TimeZone",
    "application_name",
    "canon_version",
    "client_encoding",
    "default_transaction_read_only",
    "in_hot_standby",
    "integer_datetimes",
    "is_superuser",
    "server_encoding",
    "server_version",
    "session_authorization",
    "standard_conforming_strings",
];

#[tokio::test(flavor = "multi_thread")]
async fn servers_report_what_they_are_and_say_when_it_changes() {
    if skip() {
        return;
    }
    let p = Server::start().await;
    let (mut session, at_start) = told(&p, "-c timezone=UTC -c datestyle=German");
    let names: Vec<&str> = at_start.keys().map(String::as_str).collect();
    assert_eq!(names, REPORTED);
    for (name, value) in [
        ("application_name", "teller"),
        ("DateStyle", "German, DMY"),
        ("default_transaction_read_only", "off"),
        ("in_hot_standby", "off"),
        ("integer_datetimes", "on"),
        ("is_superuser", "on"),
        ("server_encoding", "UTF8"),
        ("session_authorization", "canon"),
        ("standard_conforming_strings", "on"),
        ("TimeZone", "UTC"),
    ] {
        assert_eq!(at_start[name], value, "{name}");
    }
    assert!(at_start["server_version"].starts_with("15"));
    // Each change, and nothing else; what a ROLLBACK takes back, too.
    session.send(&query(b"SET TimeZone = 'Europe/Paris'; SET lock_timeout = 5; BEGIN; SET IntervalStyle = 'iso_8601'"));
    let changed = parameters(&session.until(b'Z').expect("an answer"));
    let both = [("IntervalStyle", "iso_8601"), ("TimeZone", "Europe/Paris")];
    assert_eq!(changed, both.map(|(n, v)| (n.into(), v.into())).into());
    session.send(&query(b"ROLLBACK"));
    let changed = parameters(&session.until(b'Z').expect("an answer"));
    assert_eq!(changed["IntervalStyle"], "postgres");

    // A replica that takes writes leaves it to the client to ask; one that does not says what it is. Both say when they are no replica any more.
    let r = replica(&p, "heir").await;
    let (mut writes, at_start) = told(&r, "-c canon.forward=on");
    assert!(!at_start.contains_key("in_hot_standby"), "{at_start:?}");
    let (mut reads, at_start) = told(&r, "-c canon.forward=off");
    assert_eq!(at_start["in_hot_standby"], "on");
    assert_eq!(at_start["default_transaction_read_only"], "on");
    tokio::task::block_in_place(|| promote(&r, &[]));
    for session in [&mut writes, &mut reads] {
        session.send(&query(b"SELECT 1"));
        let changed = parameters(&session.until(b'Z').expect("an answer"));
        for name in ["in_hot_standby", "default_transaction_read_only"] {
            assert_eq!(changed.get(name).map(String::as_str), Some("off"), "{name}");
        }
        session.send(&query(b"SELECT 1"));
        assert_eq!(
            parameters(&session.until(b'Z').expect("an answer")).len(),
            0
        );
    }
}
