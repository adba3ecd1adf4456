//! What is shown, kept and told when nodes start again, fail over and come back: each server a process of its own.

mod common;
#[path = "replication/helpers.rs"]
#[allow(dead_code)]
mod helpers;

use common::{PATIENCE, Server, connect_to, free_port, sqlstate};
use helpers::*;
use std::time::{Duration, Instant};
use tokio_postgres::Client;

/// A session that is let in before the server serves.
async fn maintenance(s: &Server, user: &str) -> Result<Client, tokio_postgres::Error> {
    let mut config = s.config();
    config.user(user).options("-c canon.maintenance=on");
    connect_to(&config).await
}

/// A commit that no replica has: it is in the primary's log, and nobody is told.
async fn leave_unconfirmed(p: &Server, sum: i32) {
    let c = p.connect().await;
    let before = one(&c, "SELECT pg_current_wal_flush_lsn()").await;
    let w = p.connect().await;
    tokio::spawn(async move {
        let sql = format!("INSERT INTO moves (sum) VALUES ({sum})");
        _ = w.batch_execute(&sql).await;
    });
    let deadline = Instant::now() + PATIENCE;
    while one(&c, "SELECT pg_current_wal_flush_lsn()").await == before {
        assert!(Instant::now() < deadline, "nothing is flushed");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(one(&c, &count(sum)).await, "0", "not published");
}

fn count(sum: i32) -> String {
    format!("SELECT count(*) FROM moves WHERE sum = {sum}")
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_start_nothing_is_shown_before_the_replicas_have_it() {
    if skip() {
        return;
    }
    let http = free_port();
    let address = format!("127.0.0.1:{http}");
    let mut p = Server::start_with(&[
        ("CANON_SYNCHRONOUS_REPLICAS", "1"),
        ("CANON_HTTP", &address),
    ])
    .await;
    let mut r = replica(&p, "only").await;
    let c = p.connect().await;
    bank(&c).await;
    c.batch_execute("CREATE ROLE plain LOGIN")
        .await
        .expect("a role");
    r.kill();
    leave_unconfirmed(&p, 777).await;
    p.kill();

    p.launch();
    let told = p.not_serving().await;
    assert!(told.contains("1 replicas"), "{told}");
    assert_eq!(get(http, "/healthz").0, 200);
    let (status, why) = get(http, "/readyz");
    assert!(status == 503 && why.contains("1 replicas"), "{why}");
    // Only a superuser is let in, and sees what is in the log; he writes nothing.
    let inside = maintenance(&p, "canon").await.expect("let in");
    assert_eq!(one(&inside, &count(777)).await, "1");
    let refused = refused(&inside, "INSERT INTO moves (sum) VALUES (1)").await;
    assert_eq!(refused.0, "57P03");
    let refused = maintenance(&p, "plain").await.err().expect("refused");
    assert_eq!(sqlstate(&refused), "42501");

    // Its replica comes back and has it: it serves, and both show it.
    r.launch();
    p.ready().await;
    let c = p.connect().await;
    assert_eq!(one(&c, &count(777)).await, "1");
    assert_eq!(get(http, "/readyz").0, 200);
    r.ready().await;
    assert_equal(&c, &r).await;

    // Another one that nobody has; the replica is promoted meanwhile, so the old primary must never have shown it.
    r.kill();
    leave_unconfirmed(&p, 888).await;
    p.kill();
    r.launch();
    r.ready().await;
    promote(&r, &["--force", "--old-primary-is-down"]);
    p.launch();
    p.not_serving().await;
    p.kill();
    let of = format!("{}:{}", r.host, r.port);
    p.set_env(&[("CANON_REPLICA_OF", &of), ("CANON_NODE_NAME", "old")]);
    p.launch();
    p.ready().await;
    let w = r.connect().await;
    assert_eq!(one(&w, &count(888)).await, "0");
    assert_equal(&w, &p).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_shows_its_own_log_only_where_one_replica_is_enough() {
    if skip() {
        return;
    }
    let two = [("CANON_SYNCHRONOUS_REPLICAS", "2")];
    let mut p = Server::start_with(&two).await;
    let mut a = replica_with(&p, "a", &two).await;
    let mut b = replica_with(&p, "b", &two).await;
    let c = p.connect().await;
    bank(&c).await;
    p.kill();
    a.kill();
    // Nobody can say whether the other has what it has.
    a.launch();
    let told = a.not_serving().await;
    assert!(told.contains("waits for its primary"), "{told}");
    // It can be promoted there, and then waits for others to follow it.
    let report = promote(&a, &["--force", "--old-primary-is-down"]);
    assert!(report.contains("Promoted"), "{report}");
    a.not_serving().await;
    let of = format!("{}:{}", a.host, a.port);
    for (node, name) in [(&mut b, "b"), (&mut p, "p")] {
        node.kill();
        node.set_env(&[("CANON_REPLICA_OF", &of), ("CANON_NODE_NAME", name), two[0]]);
        node.launch();
    }
    a.ready().await;
    let w = a.connect().await;
    assert_eq!(
        one(&w, "SELECT sum(balance) FROM accounts").await,
        TOTAL.to_string()
    );
    for node in [&mut b, &mut p] {
        node.ready().await;
    }
    assert_equal(&w, &b).await;
    assert_equal(&w, &p).await;
}
