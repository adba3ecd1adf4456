//! Values with further records at a replica: what a strong read waits for, what a session and a token see.
//!
//! A delta of such a value writes a row of the hidden table and leaves the row of its owner alone. So a replica that asked after the owner's
//! table only would take its state for fresh. Replay is held, so each answer is certain: a read that is not fresh ends with 57014.

use canon::{Cluster, Options};
use std::time::{Duration, Instant};
use tokio_postgres::{Client, NoTls};

use super::common::PATIENCE;
use super::helpers::{one, refused, rows, skip};

async fn connect(cluster: &Cluster, member: usize) -> Client {
    let config: tokio_postgres::Config = cluster.url(member).parse().expect("a URL");
    let (client, connection) = config.connect(NoTls).await.expect("a session");
    tokio::spawn(connection);
    client
}

async fn started() -> Cluster {
    let options = Options {
        log_level: Some("error".into()),
        ..Options::default()
    };
    let start = move || Cluster::start(options, 1).expect("a cluster");
    let started = tokio::task::spawn_blocking(start).await;
    started.expect("it starts")
}

const SETUP: &str = "CREATE TABLE stock (id int PRIMARY KEY, qty int NOT NULL CHECK (qty >= 0)) WITH (split = 'qty');
    INSERT INTO stock VALUES (1, 100), (2, 100); CREATE TABLE other (id int PRIMARY KEY); INSERT INTO other VALUES (1)";

/// All ways to the value, each of which adds up its records.
const READS: [&str; 6] = [
    "SELECT qty FROM stock WHERE id = 1",
    "SELECT sum(qty) - 100 FROM stock",
    "SELECT qty FROM stock WHERE id BETWEEN 1 AND 1",
    "SELECT s.qty FROM other JOIN stock s USING (id)",
    "SELECT max(qty) FROM stock WHERE qty < 100",
    "SELECT (SELECT qty FROM stock WHERE id = 1) FROM other",
];

#[tokio::test(flavor = "multi_thread")]
async fn strong_reads_sessions_and_tokens_see_the_deltas_of_further_records() {
    if skip() {
        return;
    }
    let cluster = started().await;
    let replica = cluster.replicas()[0];
    let p = connect(&cluster, cluster.primary()).await;
    let (r, s) = (
        connect(&cluster, replica).await,
        connect(&cluster, replica).await,
    );
    rows(&p, SETUP).await;
    super::spread(&p, 3).await;
    rows(&p, "UPDATE stock SET qty = qty - 10 WHERE id = 1").await;
    for sql in READS {
        assert_eq!(one(&r, sql).await, "90", "{sql}");
    }

    // Replay stands still. The delta goes to a further record.
    cluster.hold_replay(replica, true).expect("a replica");
    rows(&p, "UPDATE stock SET qty = qty - 20 WHERE id = 1").await;
    rows(&p, "SELECT count(*) FROM stock").await;
    let token = one(&p, "SHOW canon.commit_token").await;
    rows(&r, "SET canon.read_timeout = '50ms'").await;
    assert_eq!(one(&r, "SELECT count(*) FROM other").await, "1");
    for sql in READS {
        assert_eq!(refused(&r, sql).await.0, "57014", "{sql}");
    }
    // A session sees its own state, which may be old, and with the token nothing older than the token.
    rows(
        &s,
        "SET canon.read_consistency = 'session'; SET canon.read_timeout = '50ms'",
    )
    .await;
    for sql in READS {
        assert_eq!(one(&s, sql).await, "90", "{sql}");
    }
    rows(&s, &format!("SET canon.min_token = '{token}'")).await;
    for sql in READS {
        assert_eq!(refused(&s, sql).await.0, "57014", "{sql}");
    }
    // The primary answers in the replica's place, also what the session has just written there.
    rows(&r, "SET canon.stale_action = 'forward'").await;
    for sql in READS {
        assert_eq!(one(&r, sql).await, "70", "{sql}");
    }

    cluster.hold_replay(replica, false).expect("a replica");
    rows(&s, "SET canon.read_timeout = '60s'").await;
    for sql in READS {
        assert_eq!(one(&s, sql).await, "70", "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_acknowledged_delta_is_read_at_the_replica_at_once() {
    if skip() {
        return;
    }
    let cluster = started().await;
    let replica = cluster.replicas()[0];
    let p = connect(&cluster, cluster.primary()).await;
    let (r, s) = (
        connect(&cluster, replica).await,
        connect(&cluster, replica).await,
    );
    rows(&p, SETUP).await;
    super::spread(&p, 4).await;
    rows(&s, "SET canon.read_consistency = 'session'").await;
    let mut left = 100;
    for round in 0..40 {
        // Exact writes gather the records, and the worker gives them again; the row's key changes, and its value goes along.
        let (sql, by) = match round % 10 {
            4 => (
                format!("UPDATE stock SET qty = {} WHERE id = 1", left - 2),
                2,
            ),
            7 => (
                "UPDATE stock SET id = -id WHERE id = 1; UPDATE stock SET id = -id WHERE id = -1"
                    .into(),
                0,
            ),
            9 => {
                super::spread(&p, 4).await;
                continue;
            }
            _ => (
                "UPDATE stock SET qty = qty - 1 WHERE id = 1 AND qty >= 1".into(),
                1,
            ),
        };
        left -= by;
        // By turns at the primary and at the replica, which passes it on and reads what it has written.
        let writer = if round % 2 == 0 { &p } else { &s };
        rows(writer, &sql).await;
        for c in [&r, writer] {
            for sql in [
                "SELECT qty FROM stock WHERE id = 1",
                "SELECT sum(qty) - 100 FROM stock",
            ] {
                assert_eq!(one(c, sql).await, left.to_string(), "round {round}: {sql}");
            }
        }
    }
    // The replica itself has what the primary has.
    let deadline = Instant::now() + PATIENCE;
    rows(&r, "SET canon.read_consistency = 'eventual'").await;
    while one(&r, READS[0]).await != left.to_string() {
        assert!(
            Instant::now() < deadline,
            "the replica does not come to {left}"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
