//! Clients that exist, unchanged, against a replica: psql, pgbench (its own schema, TPC-B in all three query modes) and psycopg.

mod common;
#[path = "replication/helpers.rs"]
#[allow(dead_code)]
mod helpers;
#[path = "clients/programs.rs"]
mod programs;

use common::Server;
use helpers::{one, replica, skip};
use programs::{pg_program, python, run};
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
