//! Clients that follow a fail-over by themselves: libpq with several hosts, and sessions of a proxy.

use super::programs::pg_program;
use super::witness::Proxy;
use super::*;
use tokio_postgres::Client;

/// One psql with all hosts, as an application would name them; what it printed, if it did what it was told.
async fn psql(nodes: &[Node], attributes: &str, sql: &str) -> Option<String> {
    let hosts: Vec<&str> = nodes.iter().map(|n| n.server.host.as_str()).collect();
    let ports: Vec<String> = nodes.iter().map(|n| n.server.port.to_string()).collect();
    let at = format!(
        "host={} port={} user=canon dbname=canon connect_timeout=2 target_session_attrs={attributes}",
        hosts.join(","),
        ports.join(",")
    );
    // A server that is stopped while the statement runs says nothing: only the client's own end is left then.
    let mut run = Command::new("timeout");
    run.arg("10").arg(pg_program("psql"));
    run.args(["-X", "-q", "-At", "-v", "ON_ERROR_STOP=1", &at, "-c", sql]);
    let done = tokio::task::spawn_blocking(move || run.output()).await;
    let done = done.expect("it ends").expect("psql runs");
    let said = String::from_utf8(done.stdout).expect("text");
    done.status.success().then_some(said)
}

/// The same until it does. Whether it was done by one before does not matter.
async fn insist_by_psql(nodes: &[Node], attributes: &str, sql: &str) -> String {
    let deadline = Instant::now() + HANG;
    loop {
        if let Some(said) = psql(nodes, attributes, sql).await {
            return said;
        }
        assert!(Instant::now() < deadline, "{attributes}: {sql}");
    }
}

/// `read-write` takes any server, as each one takes writes. `primary` and `standby` choose.
#[tokio::test(flavor = "multi_thread")]
async fn libpq_with_all_hosts_follows_a_fail_over() {
    if skip() {
        return;
    }
    let mut nodes = of_three(&[]).await;
    prepare(&nodes).await;
    let mut acknowledged = BTreeSet::new();
    // The first host of the list is lost: without an answer, and with connections that are refused.
    for (round, how) in (0..).zip(["-STOP", "-KILL"]) {
        let before = primary(&nodes).await;
        nodes.swap(0, before);
        for n in [1, 2] {
            let n = 10 * round + n;
            let sql = format!("INSERT INTO kept VALUES ({n})");
            assert!(psql(&nodes, "read-write", &sql).await.is_some());
            acknowledged.insert(n);
        }
        signal(&nodes[0], how);
        for (n, attributes) in [(3, "read-write"), (4, "primary"), (5, "read-write")] {
            let n = 10 * round + n;
            let sql = format!("INSERT INTO kept VALUES ({n}) ON CONFLICT DO NOTHING");
            insist_by_psql(&nodes, attributes, &sql).await;
            acknowledged.insert(n);
        }
        let role = "SELECT pg_is_in_recovery()";
        assert_eq!(insist_by_psql(&nodes, "primary", role).await.trim(), "f");
        assert_eq!(insist_by_psql(&nodes, "standby", role).await.trim(), "t");
        match how {
            "-STOP" => signal(&nodes[0], "-CONT"),
            _ => {
                nodes[0].server.kill();
                nodes[0].server.launch();
            }
        }
        nodes[0].server.ready().await;
        follows(&nodes[0]).await;
        // The first host answers again, and is passed by.
        let port = psql(&nodes, "primary", "\\echo :PORT").await;
        let port = port.expect("it runs");
        let leads = primary(&nodes).await;
        assert_eq!(port.trim(), nodes[leads].server.port.to_string());
        for n in &nodes {
            can_fail_over(n).await;
            has_all(n, &acknowledged).await;
        }
    }
}

/// A session through this door of a proxy. Waits until the door is open.
async fn through(door: u16) -> Client {
    let mut config = tokio_postgres::Config::new();
    config.host("127.0.0.1").port(door);
    config.user("canon").dbname("canon");
    let deadline = Instant::now() + HANG;
    loop {
        match connect_to(&config).await {
            Ok(c) => return c,
            Err(e) => assert!(Instant::now() < deadline, "{e}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn fails(c: &Client, sql: &str) -> String {
    let e = c.batch_execute(sql).await.expect_err(sql);
    common::sqlstate(&e)
}

/// The members name another primary while sessions of a proxy are at the old one and at replicas.
#[tokio::test(flavor = "multi_thread")]
async fn sessions_of_a_proxy_go_on_over_a_fail_over_and_open_transactions_get_one_error() {
    if skip() {
        return;
    }
    let mut nodes = of_three(&[]).await;
    prepare(&nodes).await;
    let scratch = tempfile::tempdir().expect("a directory");
    let secret = common::cluster_secret(scratch.path());
    let (to_primary, to_replica) = (free_port(), free_port());
    let all = nodes.iter().map(at).collect::<Vec<_>>().join(",");
    let listen = format!("127.0.0.1:{}", free_port());
    let doors = [to_primary, to_replica].map(|port| format!("127.0.0.1:{port}"));
    let _proxy = Proxy::start(&[
        "--nodes",
        &all,
        "--listen",
        &listen,
        "--listen-primary",
        &doors[0],
        "--listen-standby",
        &doors[1],
        "--patience",
        "120s",
        "--cluster-secret-file",
        secret.to_str().expect("a name"),
    ]);
    // Between transactions, with what a session has set and prepared.
    let mut idle = Vec::new();
    for door in [to_primary, to_primary, to_replica, to_replica] {
        let c = through(door).await;
        rows(&c, "SET lock_timeout = '7s'").await;
        let insert = c.prepare("INSERT INTO kept VALUES ($1)").await;
        idle.push((c, insert.expect("prepared")));
    }
    let open = through(to_primary).await;
    let begun = open.batch_execute("BEGIN; INSERT INTO kept VALUES (-1)");
    begun.await.expect("a transaction");
    let passed_on = through(to_replica).await;
    let begun = passed_on.batch_execute("BEGIN; INSERT INTO kept VALUES (-2)");
    begun.await.expect("a transaction");

    nodes[0].server.kill();
    let mut acknowledged = BTreeSet::new();
    for (n, (c, insert)) in (1..).zip(&idle) {
        let done = c.execute(insert, &[&n]).await;
        done.unwrap_or_else(|e| panic!("idle session {n} has got {e:?}"));
        acknowledged.insert(n);
        assert_eq!(one(c, "SHOW lock_timeout").await, "7s");
    }
    assert_eq!(fails(&open, "INSERT INTO kept VALUES (-3)").await, "40001");
    assert_eq!(
        fails(&passed_on, "INSERT INTO kept VALUES (-4)").await,
        "08006"
    );
    for (c, n) in [(&open, 11), (&passed_on, 12)] {
        // One error, and then the transaction has failed as any other one.
        assert_eq!(fails(c, "SELECT 1").await, "25P02");
        rows(c, "ROLLBACK").await;
        rows(c, &format!("INSERT INTO kept VALUES ({n})")).await;
        acknowledged.insert(n);
    }
    nodes[0].server.launch();
    nodes[0].server.ready().await;
    follows(&nodes[0]).await;
    for n in &nodes {
        has_all(n, &acknowledged).await;
        let there = kept(n).await.expect("it serves");
        assert!(there.iter().all(|n| *n > 0), "{there:?}");
    }
}
