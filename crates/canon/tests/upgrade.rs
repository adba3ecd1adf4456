//! Directories that older builds wrote open, and keep their data.
//!
//! `upgrade/DATE.tar.gz` holds the directories of a primary and of its replica, as a build of that day left them at a `kill -9`; `DATE.sql` says which
//! statements had run. The primary's holds a checkpoint and a log behind it, so rows, schema, roles, sequences and split values are read from both.
//! The replica starts over its own directory and goes on with the log of the new build.
//!
//! Left out on purpose: older builds themselves, which no machine of a check has.

mod common;
#[path = "replication/helpers.rs"]
#[allow(dead_code)]
mod helpers;

use common::Server;
use helpers::{caught_up, one, refused, rows, skip};
use std::process::Command;

/// A directory of that day's archive, as the data of a server that has not started.
fn opened(date: &str, node: &str, env: &[(&str, &str)]) -> Server {
    let mut server = Server::canon(env);
    let archive = format!("{}/tests/upgrade/{date}.tar.gz", env!("CARGO_MANIFEST_DIR"));
    let status = Command::new("tar")
        .args(["-xzf", &archive, "-C"])
        .arg(server.scratch())
        .status();
    assert!(status.expect("tar runs").success());
    let scratch = server.scratch();
    std::fs::rename(scratch.join(node), server.data_dir()).expect("the archive has it");
    let secret = server.data_dir().join("CANON_SECRET").display().to_string();
    let mut all = env.to_vec();
    all.push(("CANON_CLUSTER_SECRET_FILE", &secret));
    server.set_env(&all);
    server
}

/// Questions and what the build that wrote the directory answered.
const ANSWERS: &[(&str, &str)] = &[
    (
        "SELECT count(*) || ' ' || sum(level) || ' ' || min(name) FROM app.customers",
        "490 1666 customer 1",
    ),
    (
        "SELECT tags[1] || ' ' || (extra ->> 'n') || ' ' || mail FROM app.customers WHERE id = 77",
        "a77 77 c77@example.org",
    ),
    (
        "SELECT count(*) || ' ' || sum(total) FROM app.orders",
        "1960 2439025.00",
    ),
    (
        "SELECT id FROM app.orders ORDER BY placed DESC LIMIT 1",
        "2000",
    ),
    (
        "SELECT spent FROM app.spending WHERE name = 'customer 3'",
        "3760.00",
    ),
    ("SELECT count(*) || ' ' || sum(qty) FROM stock", "51 12732"),
    ("SELECT qty FROM stock WHERE id = 7", "71"),
    (
        "SELECT count(*) || ' ' || count(b) || ' ' || sum(a) FROM plain",
        "22 1 391",
    ),
    (
        "SELECT c::text || ' ' || d || ' ' || e || ' ' || f FROM plain WHERE a = 1",
        r"\x00ff 1.5 1 day 02:00:00 true",
    ),
    (
        "SELECT obj_description('app.orders'::regclass)",
        "what was bought",
    ),
    (
        "SELECT attoptions FROM pg_attribute WHERE attrelid = 'stock'::regclass AND attname = 'qty'",
        "{split=on,split_max=64}",
    ),
    (
        "SELECT has_table_privilege('reader', 'app.customers', 'SELECT')",
        "t",
    ),
    (
        "SELECT has_table_privilege('reader', 'app.orders', 'SELECT')",
        "f",
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_of_an_older_build_keeps_its_data() {
    if skip() {
        return;
    }
    let mut primary = opened("2026-11-28", "primary", &[]);
    primary.launch();
    primary.ready().await;
    let at = format!("{}:{}", primary.host, primary.port);
    let mut replica = opened(
        "2026-11-28",
        "replica",
        &[("CANON_REPLICA_OF", at.as_str())],
    );
    replica.launch();
    replica.ready().await;

    let p = primary.connect().await;
    for (sql, wanted) in ANSWERS {
        assert_eq!(one(&p, sql).await, *wanted, "{sql}");
    }
    // It goes on: constraints hold, sequences go forward, and the replica gets it.
    assert_eq!(
        refused(&p, "UPDATE stock SET qty = -1 WHERE id = 1")
            .await
            .0,
        "23514"
    );
    assert_eq!(
        refused(
            &p,
            "INSERT INTO app.orders (customer, placed, total) VALUES (500, now(), 1)"
        )
        .await
        .0,
        "23503"
    );
    let drawn: i64 = one(&p, "SELECT nextval('numbers')").await.parse().unwrap();
    assert!(drawn > 105, "{drawn} was drawn before");
    rows(
        &p,
        "UPDATE stock SET qty = qty - 1 WHERE id = 7 AND qty >= 1",
    )
    .await;
    rows(
        &p,
        "CREATE TABLE later (id int PRIMARY KEY); INSERT INTO later VALUES (1)",
    )
    .await;

    let r = caught_up(&p, &replica).await;
    assert_eq!(one(&r, "SELECT pg_is_in_recovery()").await, "t");
    for (sql, wanted) in ANSWERS {
        match *sql {
            "SELECT qty FROM stock WHERE id = 7" => assert_eq!(one(&r, sql).await, "70"),
            "SELECT count(*) || ' ' || sum(qty) FROM stock" => {
                assert_eq!(one(&r, sql).await, "51 12731")
            }
            _ => assert_eq!(one(&r, sql).await, *wanted, "{sql} at the replica"),
        }
    }
    assert_eq!(one(&r, "SELECT count(*) FROM later").await, "1");

    // And once more from what the new build wrote.
    primary.kill();
    primary.launch();
    primary.ready().await;
    let p = primary.connect().await;
    assert_eq!(one(&p, "SELECT qty FROM stock WHERE id = 7").await, "70");
    assert_eq!(one(&p, "SELECT count(*) FROM later").await, "1");
}

/// The level of clients is what the database was made with: serializable by an older build, read committed by this one.
#[tokio::test(flavor = "multi_thread")]
async fn an_older_database_keeps_its_level() {
    if skip() {
        return;
    }
    let none = ("CANON_SETTINGS", "");
    let level = "SHOW default_transaction_isolation";
    let mut old = opened("2026-11-28", "primary", &[none]);
    old.launch();
    old.ready().await;
    assert_eq!(one(&old.connect().await, level).await, "serializable");
    let mut new = Server::start_with(&[none]).await;
    assert_eq!(one(&new.connect().await, level).await, "read committed");
    let change = "ALTER DATABASE canon SET default_transaction_isolation = 'repeatable read'";
    new.connect()
        .await
        .batch_execute(change)
        .await
        .expect(change);
    assert_eq!(one(&new.connect().await, level).await, "repeatable read");
    new.kill();
    new.launch();
    new.ready().await;
    assert_eq!(one(&new.connect().await, level).await, "repeatable read");
}
