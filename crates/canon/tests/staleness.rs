//! Reads in real time: at replicas over slow links no strong read is old, and eventual ones are, which the checker sees.

use canon::bench::reads::{Outcome, ReadsOptions, measure};
use canon::{Cluster, Options};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn start(replicas: usize) -> Cluster {
    start_with(replicas, 0)
}

fn start_with(replicas: usize, synchronous: u32) -> Cluster {
    let quiet = Options {
        log_level: Some("error".into()),
        synchronous_replicas: Some(synchronous),
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

fn run(options: &ReadsOptions) -> Outcome {
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
    let nodes: BTreeSet<usize> = outcome.reads.keys().map(|k| k.0).collect();
    assert_eq!(nodes.len(), 3, "reads at every node");
}

/// Rounds of the checker, one after the other, until it is told to stop. Each gives what it saw; one that could not begin, because no
/// node led just then, begins again.
fn rounds(options: ReadsOptions, stop: Arc<AtomicBool>) -> Vec<Outcome> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let mut all = Vec::new();
    let mut more = true;
    while more {
        // One more when it is over.
        more = !stop.load(Ordering::SeqCst);
        match runtime.block_on(measure(&options)) {
            Ok(o) => all.push(o),
            Err(_) => more = true,
        }
    }
    all
}

#[test]
fn no_strong_read_is_stale_while_primaries_change() {
    // Every commit waits for both replicas, so that a promotion by force loses none that was acknowledged.
    let mut cluster = start_with(2, 2);
    let mut options = options(&cluster, "strong");
    // Every node takes writes; who fails goes to the next.
    options.write = options.read.clone();
    options.reads = 1_500;
    let stop = Arc::new(AtomicBool::new(false));
    let watch = {
        let stop = stop.clone();
        std::thread::spawn(move || rounds(options, stop))
    };
    let url = cluster.url(0);
    for (to, force) in [(1, false), (2, true), (0, false)] {
        // In the middle of reads, whatever a round does just then.
        std::thread::sleep(Duration::from_millis(700));
        let old = cluster.primary();
        if force {
            cluster.fail_over(to).expect("a promotion by force");
            // The quorum is two.
            cluster.start_member(old).expect("it comes back");
        } else {
            cluster.switch_over(to).expect("a switch-over");
        }
    }
    assert_eq!((cluster.primary(), cluster.url(0)), (0, url));
    stop.store(true, Ordering::SeqCst);
    let all = watch.join().expect("rounds");
    let (mut reads, mut errors) = (0, 0);
    for o in &all {
        let total = o.total();
        assert_eq!(
            (total.stale, total.wrong),
            (0, 0),
            "{total:?} {:?}",
            o.last_error
        );
        reads += total.reads;
        errors += o.read_errors + o.write_errors;
    }
    // Nodes went away under it.
    assert!(
        reads >= 1_500 && errors > 0,
        "{reads} reads, {errors} errors"
    );
    let last = all.last().expect("a round");
    let nodes: BTreeSet<usize> = last.reads.keys().map(|k| k.0).collect();
    assert_eq!(nodes.len(), 3, "reads at every node");
}
