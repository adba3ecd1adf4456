//! Reads in real time: at replicas over slow links no strong read is old, and eventual ones are, which the checker sees.

use canon::bench::reads::{ReadsOptions, measure};
use canon::{Cluster, Options};
use std::time::Duration;

fn start(replicas: usize) -> Cluster {
    let quiet = Options {
        log_level: Some("error".into()),
        ..Options::default()
    };
    let cluster = Cluster::start(quiet, replicas).expect("a cluster");
    for i in cluster.replicas() {
        cluster.delay(i, Duration::from_millis(5));
    }
    cluster
}

/// Reads at every member; the first one is the primary.
fn options(cluster: &Cluster, consistency: &str) -> ReadsOptions {
    let primary = cluster.url(cluster.primary());
    let all = std::iter::once(primary.clone());
    let all: Vec<String> = all
        .chain(cluster.replicas().into_iter().map(|i| cluster.url(i)))
        .collect();
    ReadsOptions {
        readers: 2,
        writers: 2,
        seconds: 60.0,
        reads: 2_000,
        read_init: vec![format!("SET canon.read_consistency = {consistency}")],
        ..ReadsOptions::new(&[primary], &all)
    }
}

fn run(options: &ReadsOptions) -> canon::bench::reads::Outcome {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let outcome = runtime.expect("a runtime").block_on(measure(options));
    let outcome = outcome.expect("a run");
    assert_eq!(outcome.total().wrong, 0, "{:?}", outcome.last_error);
    assert_eq!(outcome.read_errors, 0, "{:?}", outcome.last_error);
    assert!(outcome.writes > 0 && outcome.total().reads >= 100);
    outcome
}

#[test]
fn eventual_reads_behind_a_slow_link_are_stale_and_the_checker_says_so() {
    let cluster = start(1);
    // On a slow disk there are few commits, so few reads come right after one.
    let mut stale = std::collections::BTreeMap::new();
    for _ in 0..30 {
        let outcome = run(&options(&cluster, "eventual"));
        for ((at, kind), line) in outcome.reads {
            match at {
                0 => assert_eq!(line.tally.stale, 0, "{kind} at the primary"),
                _ => *stale.entry(kind).or_insert(0) += line.tally.stale,
            }
        }
        if stale.values().all(|n| *n > 0) {
            return;
        }
    }
    panic!("never old: {stale:?}");
}

#[test]
fn no_strong_read_is_stale_at_any_node() {
    let cluster = start(2);
    let outcome = run(&options(&cluster, "strong"));
    let total = outcome.total();
    assert_eq!(total.stale, 0, "{total:?}");
    let nodes: std::collections::BTreeSet<usize> = outcome.reads.keys().map(|k| k.0).collect();
    assert_eq!(nodes.len(), 3, "reads at every node");
}
