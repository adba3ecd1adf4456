//! Reads in real time: at replicas over slow links no strong read is old, no bounded one older than it may be, and eventual ones are, which the
//! checker sees.

use canon::bench::reads::{Outcome, ReadsOptions, measure};
use canon::{Cluster, Options};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

fn start(replicas: usize) -> Cluster {
    start_with(replicas, 0)
}

fn start_with(replicas: usize, synchronous: u32) -> Cluster {
    start_as(replicas, synchronous, Options::default())
}

fn start_as(replicas: usize, synchronous: u32, options: Options) -> Cluster {
    let quiet = Options {
        log_level: Some("error".into()),
        settings: vec!["default_transaction_isolation=serializable".into()],
        synchronous_replicas: Some(synchronous),
        ..options
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

/// Replicas hold read leases, whatever their links cost, and no memory is shared.
fn lend(replicas: usize) -> (Cluster, ReadsOptions) {
    let leases = Options {
        lease_reads: true,
        lease_max_commit_wait: Some("10s".into()),
        shared_memory: Some(false),
        ..Options::default()
    };
    let cluster = start_as(replicas, 0, leases);
    let mut options = options(&cluster, "strong");
    options
        .read_init
        .push("SET canon.read_policy = lease".into());
    (cluster, options)
}

#[test]
fn no_read_by_a_lease_is_stale() {
    let _one = alone();
    let (_cluster, options) = lend(2);
    let outcome = run(&options);
    let total = outcome.total();
    assert_eq!(total.stale, 0, "{total:?}");
    let nodes: BTreeSet<usize> = outcome.reads.keys().map(|k| k.0).collect();
    assert_eq!(nodes.len(), 3, "reads at every node");
}

/// A primary that did not wait for those that hold leases would be found. So they hold some.
#[cfg(feature = "faults")]
#[test]
fn planted_lease_unreceived_ack() {
    let _one = alone();
    let (_cluster, options) = lend(1);
    env::fault::plant("lease.unreceived_ack", true);
    let found = (0..10).any(|_| run(&options).total().stale > 0);
    env::fault::disarm();
    assert!(found, "reads by leases are stale");
}

/// Up to where a replica has the log. Of fixed length, so that it compares as positions do.
fn received(url: &str) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(async {
        let (c, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls)
            .await
            .expect("a session");
        tokio::spawn(connection);
        let row = c.query_one("SELECT pg_last_wal_receive_lsn()", &[]).await;
        row.expect("a position").get(0)
    })
}

#[test]
fn no_strong_read_is_stale_while_primaries_change() {
    // Every commit waits for a replica, so a promotion by force loses none that was acknowledged if it is of the one that has most.
    let mut cluster = start_with(2, 1);
    let mut options = options(&cluster, "strong");
    // Every node takes writes; who fails goes to the next.
    options.write = options.read.clone();
    (options.reads, options.seconds) = (0, 600.0);
    let beside = options.beside.clone();
    let run = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build();
        runtime.expect("a runtime").block_on(measure(&options))
    });
    let some = |n: u64| {
        let to = beside.reads.load(Ordering::Relaxed) + n;
        let deadline = Instant::now() + Duration::from_secs(120);
        while beside.reads.load(Ordering::Relaxed) < to && !run.is_finished() {
            assert!(Instant::now() < deadline, "nobody reads");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    for force in [false, true, false] {
        some(300);
        let old = cluster.primary();
        let one = cluster.replicas()[0];
        if !force {
            cluster.switch_over(one).expect("a switch-over");
            continue;
        }
        cluster.stop_member(old).expect("it stops");
        let has = |member: &usize| received(&cluster.url(*member));
        let most = cluster.replicas().into_iter().max_by_key(has);
        cluster
            .fail_over(most.expect("a replica"))
            .expect("a promotion by force");
        cluster.start_member(old).expect("it comes back");
    }
    some(300);
    beside.stop.store(true, Ordering::Relaxed);
    let outcome = run.join().expect("no panic").expect("a run");
    let total = outcome.total();
    let stale = outcome.reads.iter().filter(|(_, l)| l.tally.stale > 0);
    let stale: Vec<_> = stale
        .map(|(at, l)| (at, l.tally, l.age.quantile(0.0), l.age.quantile(1.0)))
        .collect();
    let why = &outcome.last_error;
    assert_eq!((total.stale, total.wrong), (0, 0), "{stale:?} {why:?}");
    assert!(total.reads >= 1_200 && outcome.writes > 0);
    // Nodes went away under it.
    assert!(outcome.read_errors > 0, "{total:?}");
    let nodes: BTreeSet<usize> = outcome.reads.keys().map(|k| k.0).collect();
    assert_eq!(nodes.len(), 3, "reads at every node");
}

/// A primary and a replica whose link takes its time, and a session at each; that at the replica may see what is 100 ms old.
struct Slow {
    runtime: tokio::runtime::Runtime,
    cluster: Cluster,
    primary: tokio_postgres::Client,
    replica: tokio_postgres::Client,
}

/// What a read may be old, and a little more.
const BOUND: Duration = Duration::from_millis(100);
const LITTLE: Duration = Duration::from_millis(20);
/// One way.
const WAY: Duration = Duration::from_millis(400);

impl Slow {
    fn start(shared_memory: bool) -> Slow {
        let quiet = Options {
            log_level: Some("error".into()),
            settings: vec!["default_transaction_isolation=serializable".into()],
            shared_memory: Some(shared_memory),
            ..Options::default()
        };
        let cluster = Cluster::start(quiet, 1).expect("a cluster");
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let session = |i: usize| {
            runtime.block_on(async {
                let none = tokio_postgres::NoTls;
                let found = tokio_postgres::connect(&cluster.url(i), none).await;
                let (client, connection) = found.expect("a session");
                tokio::spawn(connection);
                client
            })
        };
        let (primary, replica) = (session(0), session(1));
        let slow = Slow {
            runtime,
            primary,
            replica,
            cluster,
        };
        slow.write(
            "CREATE TABLE t (id int PRIMARY KEY, v int NOT NULL); INSERT INTO t VALUES (1, 0)",
        );
        slow.cluster.catch_up().expect("caught up");
        slow.set("SET canon.read_consistency = bounded; SET canon.max_staleness = '100ms'");
        assert_eq!(slow.read(), Ok(0));
        slow.cluster.delay(1, WAY);
        slow
    }

    fn write(&self, sql: &str) {
        self.runtime
            .block_on(self.primary.batch_execute(sql))
            .expect(sql);
    }

    fn set(&self, sql: &str) {
        self.runtime
            .block_on(self.replica.batch_execute(sql))
            .expect(sql);
    }

    fn read(&self) -> Result<i32, String> {
        let sql = "SELECT v FROM t WHERE id = 1";
        let row = self.runtime.block_on(self.replica.query_one(sql, &[]));
        let code = |e: tokio_postgres::Error| e.code().map_or(String::new(), |c| c.code().into());
        row.map(|r| r.get(0)).map_err(code)
    }

    /// What is read when this was acknowledged longer ago than a read may be old.
    fn after(&self, v: i32) -> Result<i32, String> {
        self.write(&format!("UPDATE t SET v = {v}"));
        std::thread::sleep(BOUND + LITTLE);
        self.read()
    }
}

/// Another test plants a fault.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ONE.lock().unwrap_or_else(|e| e.into_inner())
}

#[test]
fn no_bounded_read_is_older_than_it_may_be() {
    let _one = alone();
    for shared_memory in [false, true] {
        let s = Slow::start(shared_memory);
        for v in 1..=3 {
            assert_eq!(s.after(v), Ok(v), "shared memory: {shared_memory}");
        }
        // While the primary is away: what was seen is served for as long as it may be, and not longer.
        s.cluster.cut(1);
        s.set("SET canon.read_timeout = '50ms'; SET canon.max_staleness = '1 hour'");
        assert_eq!(s.read(), Ok(3), "shared memory: {shared_memory}");
        s.set("SET canon.max_staleness = '100ms'");
        assert_eq!(s.after(4), Err("57014".into()));
        s.set("SET canon.max_staleness = '1 hour'");
        assert_eq!(s.read(), Ok(3), "shared memory: {shared_memory}");
        s.cluster.heal(1);
        s.set("SET canon.read_timeout = 0; SET canon.max_staleness = '100ms'");
        assert_eq!(s.read(), Ok(4), "shared memory: {shared_memory}");
    }
}

/// Who took the time at which a message came for the time of what is in it would show what is older.
#[cfg(feature = "faults")]
#[test]
fn planted_bounded_by_arrival() {
    let _one = alone();
    let s = Slow::start(false);
    env::fault::plant("bounded.by_arrival", true);
    let found = (1..=20).any(|v| s.after(v) == Ok(v - 1));
    env::fault::disarm();
    assert!(found, "what is too old is shown");
}
