//! The black-box history checker over the wire: random list-append transactions of eight clients,
//! at each level, judged from outside by `workload::list_append`.
//!
//! A list is a text column; an append is `v || ',' || n` in an INSERT … ON CONFLICT DO UPDATE;
//! ranges are read through a secondary index. Transactions of one operation run without BEGIN, so
//! that the server's own retry is under test too; some appends are rolled back to a savepoint and
//! must never be seen. The run is bounded by a number
//! of transactions, never by time.
//!
//! The tests are tested: a run at READ COMMITTED must show what SERIALIZABLE forbids, and, with the
//! feature `faults`, a server with a planted bug must be found out.

mod common;
#[allow(dead_code)]
#[path = "replication/helpers.rs"]
mod helpers;
#[path = "history/mod.rs"]
mod history;

use common::{Server, on_postgres};
use history::{BY_CONDITION, BY_INDEX, ROUNDS, assert_keeps, run_on, run_with};
use std::sync::Arc;
use workload::list_append::{Level, Report};

/// One run on a server of its own.
async fn run(level: &'static str, seed: u64, env: &[(&str, &str)]) -> (Report, usize) {
    let server = Arc::new(Server::start_with(env).await);
    run_on(&[server], level, seed).await
}

async fn keeps(name: &'static str, level: Level) {
    assert_keeps(name, level, run(name, 1, &[]).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn read_committed() {
    keeps("READ COMMITTED", Level::ReadCommitted).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn repeatable_read() {
    keeps("REPEATABLE READ", Level::Snapshot).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn serializable() {
    // PostgreSQL promises no real-time order.
    let level = if on_postgres() {
        Level::Serializable
    } else {
        Level::StrictSerializable
    };
    keeps("SERIALIZABLE", level).await;
}

/// Ranges that no index gives: whole tables are scanned, and validation has to know the condition (docs/decisions/0020).
#[tokio::test(flavor = "multi_thread")]
async fn serializable_by_conditions() {
    if on_postgres() {
        return;
    }
    let http = format!("127.0.0.1:{}", common::free_port());
    let server = Arc::new(Server::start_with(&[("CANON_HTTP", http.as_str())]).await);
    let servers = std::slice::from_ref(&server);
    let run = run_with(servers, "SERIALIZABLE", 1, BY_CONDITION).await;
    assert_keeps(
        "SERIALIZABLE, by conditions",
        Level::StrictSerializable,
        run,
    );
    let spared = helpers::counted(&http, "canon_aborts_spared_total{by=\"predicate\"}");
    println!("{spared} spared");
    assert!(spared > 0, "no scan met a change that did not matter");
}

/// Repeats runs until one shows what `level` forbids.
async fn must_find(name: &'static str, level: Level, env: &[(&str, &str)]) {
    must_find_by(BY_INDEX, name, level, env).await;
}

async fn must_find_by(range: &'static str, name: &'static str, level: Level, env: &[(&str, &str)]) {
    for seed in 1..=ROUNDS {
        let server = Arc::new(Server::start_with(env).await);
        let (report, _) = run_with(&[server], name, seed, range).await;
        if let Some(found) = report.violations(level).first() {
            println!("{name} {env:?}, round {seed}: {found}");
            return;
        }
    }
    panic!("{name} {env:?}: nothing found in {ROUNDS} rounds");
}

/// The workload is sharp enough: weaker levels show what stronger ones forbid.
#[tokio::test(flavor = "multi_thread")]
async fn weaker_levels_show_anomalies() {
    must_find("READ COMMITTED", Level::Snapshot, &[]).await;
    must_find("REPEATABLE READ", Level::Serializable, &[]).await;
}

/// A server that commits without looking at its reads is found out.
#[cfg(feature = "faults")]
#[tokio::test(flavor = "multi_thread")]
async fn planted_skip_read_validation() {
    if !on_postgres() {
        let env = [("CANON_PLANTED", "skip_read_validation")];
        must_find("SERIALIZABLE", Level::Serializable, &env).await;
    }
}

/// A server that overlooks rows that come to pass a condition is found out.
#[cfg(feature = "faults")]
#[tokio::test(flavor = "multi_thread")]
async fn planted_filter_old_only() {
    if !on_postgres() {
        let env = [("CANON_PLANTED", "validation.filter_old_only")];
        must_find_by(BY_CONDITION, "SERIALIZABLE", Level::Serializable, &env).await;
    }
}

/// A server that takes every change of a row for one of other columns is found out.
#[cfg(feature = "faults")]
#[tokio::test(flavor = "multi_thread")]
async fn planted_no_columns() {
    if !on_postgres() {
        let env = [("CANON_PLANTED", "validation.no_columns")];
        must_find("SERIALIZABLE", Level::Serializable, &env).await;
    }
}

/// A server that moves a snapshot forward over reads that have changed is found out.
#[cfg(feature = "faults")]
#[tokio::test(flavor = "multi_thread")]
async fn planted_move_without_recheck() {
    if !on_postgres() {
        let env = [("CANON_PLANTED", "move_without_recheck")];
        must_find("REPEATABLE READ", Level::Snapshot, &env).await;
    }
}

/// Sessions that go to another thread of the server after every message keep what they promise.
#[cfg(feature = "faults")]
#[tokio::test(flavor = "multi_thread")]
async fn connections_that_move() {
    if !on_postgres() {
        let http = format!("127.0.0.1:{}", common::free_port());
        let env = [
            ("CANON_PLANTED", "gate.restless"),
            ("CANON_HTTP", http.as_str()),
        ];
        let server = Arc::new(Server::start_with(&env).await);
        let run = run_on(std::slice::from_ref(&server), "SERIALIZABLE", 1).await;
        // Each of its many transactions waits for its client.
        let moved = helpers::connections_moved(&http);
        assert!(moved >= 1000, "{moved}");
        assert_keeps("SERIALIZABLE, restless", Level::StrictSerializable, run);
    }
}
