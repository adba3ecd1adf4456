//! The history checker with clients at a primary and at replicas: transactions begin where their client is and go on at the primary,
//! with what they have read. (`history.rs` says what a history is.)

mod common;
#[path = "replication/helpers.rs"]
#[allow(dead_code)]
mod helpers;
#[path = "history/mod.rs"]
#[allow(dead_code)]
mod history;

use common::Server;
use helpers::{replica_with, skip};
use history::{assert_keeps, run_on};
use std::sync::Arc;
use workload::list_append::{Level, Report};

/// One run on a primary and two replicas, which get these variables.
async fn run(level: &'static str, seed: u64, env: &[(&str, &str)]) -> (Report, usize) {
    let primary = Server::start().await;
    let one = replica_with(&primary, "one", env).await;
    let two = replica_with(&primary, "two", env).await;
    let servers = [primary, one, two].map(Arc::new);
    run_on(&servers, level, seed).await
}

#[tokio::test(flavor = "multi_thread")]
async fn serializable_histories_across_nodes_are_strictly_so() {
    if !skip() {
        let found = run("SERIALIZABLE", 1, &[]).await;
        assert_keeps("SERIALIZABLE", Level::StrictSerializable, found);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn repeatable_read_keeps_its_snapshot_across_nodes() {
    if !skip() {
        let found = run("REPEATABLE READ", 1, &[]).await;
        assert_keeps("REPEATABLE READ", Level::Snapshot, found);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn read_committed_across_nodes() {
    if !skip() {
        let found = run("READ COMMITTED", 1, &[]).await;
        assert_keeps("READ COMMITTED", Level::ReadCommitted, found);
    }
}

/// A replica that does not say what its transactions have read is found out.
#[cfg(feature = "faults")]
#[tokio::test(flavor = "multi_thread")]
async fn planted_no_footprint() {
    if skip() {
        return;
    }
    let env = [("CANON_PLANTED", "forward.no_footprint")];
    for seed in 1..=history::ROUNDS {
        let (report, _) = run("SERIALIZABLE", seed, &env).await;
        if let Some(found) = report.violations(Level::Serializable).first() {
            println!("round {seed}: {found}");
            return;
        }
    }
    panic!("nothing found in {} rounds", history::ROUNDS);
}
