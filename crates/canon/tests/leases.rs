//! Read leases over real sockets, in processes of their own: reads by a lease see every commit at once, and a holder that stands still lets writers go on
//! when its lease is over.

mod common;
#[path = "replication/helpers.rs"]
#[allow(dead_code)]
mod helpers;

use common::{PATIENCE, Server, free_port};
use helpers::*;
use std::time::{Duration, Instant};

/// A server and the port of its metrics.
struct Node {
    server: Server,
    http: u16,
}

const HELD: &str = "canon_read_lease_held";
const BY_LEASE: &str = "canon_read_timestamps_total{how=\"lease\"}";
const FETCHES: &str = "canon_read_fetches_total";
const GRANTED: &str = "canon_replica_lease{replica=\"r\"}";

impl Node {
    /// None where the page does not have it.
    fn metric(&self, name: &str) -> Option<u64> {
        let (status, page) = get(self.http, "/metrics");
        assert_eq!(status, 200);
        let found = page.lines().find_map(|l| l.strip_prefix(name));
        found.map(|n| n.trim().parse().expect("a number"))
    }

    /// Waits until this stands there.
    async fn shows(&self, name: &str, value: u64) {
        let deadline = Instant::now() + PATIENCE;
        while self.metric(name) != Some(value) {
            assert!(Instant::now() < deadline, "{name} is not {value}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// A primary and a replica with these settings of leases, over TCP alone.
async fn pair(primary: &[(&str, &str)], replica: &[(&str, &str)]) -> (Node, Node) {
    let ports = [free_port(), free_port()];
    let [at, other] = ports.map(|port| format!("127.0.0.1:{port}"));
    let tcp = ("CANON_SHARED_MEMORY", "false");
    let env = [&[("CANON_HTTP", at.as_str()), tcp], primary].concat();
    let p = Node {
        server: Server::start_with(&env).await,
        http: ports[0],
    };
    let env = [&[("CANON_HTTP", other.as_str()), tcp], replica].concat();
    let r = Node {
        server: replica_with(&p.server, "r", &env).await,
        http: ports[1],
    };
    (p, r)
}

/// However slow the machine is, leases are granted.
const LEASES: [(&str, &str); 2] = [
    ("CANON_LEASE_READS", "true"),
    ("CANON_LEASE_MAX_COMMIT_WAIT", "10s"),
];

#[tokio::test(flavor = "multi_thread")]
async fn reads_by_a_lease_see_every_commit_and_ask_nobody() {
    if skip() {
        return;
    }
    let (p, r) = pair(&LEASES, &LEASES).await;
    let (w, c) = (p.server.connect().await, r.server.connect().await);
    rows(&w, "CREATE TABLE t (id int PRIMARY KEY, v int)").await;
    rows(&w, "INSERT INTO t VALUES (1, 0), (2, 0)").await;
    rows(&c, "SET canon.read_policy = lease").await;
    r.shows(HELD, 1).await;
    p.shows(GRANTED, 1).await;
    // Each of the levels at which a commit is acknowledged.
    for level in ["off", "local", "remote_write", "on", "remote_apply"] {
        rows(&w, &format!("SET synchronous_commit = {level}")).await;
        for v in 1..=40 {
            rows(&w, &format!("UPDATE t SET v = {v} WHERE id = 1")).await;
            let sum = one(&c, "SELECT sum(v) FROM t").await;
            let row = one(&c, "SELECT v FROM t WHERE id = 1").await;
            assert_eq!((sum, row), (v.to_string(), v.to_string()), "{level}");
            assert_eq!(one(&c, "SELECT v FROM t WHERE id = 2").await, "0");
        }
    }
    let by_lease = r.metric(BY_LEASE).expect("counted");
    assert!(by_lease > 0, "no read was by a lease");
    // A token of what was read stands for something that was published.
    let token = one(&c, "SHOW canon.commit_token").await;
    rows(&w, &format!("SET canon.min_token = '{token}'")).await;
    assert_eq!(one(&w, "SELECT v FROM t WHERE id = 1").await, "40");
}

/// The state of a process, as its kernel tells it.
fn state(pid: u32) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it is there");
    let after = stat.rsplit_once(')').expect("a name in brackets").1;
    after.trim().chars().next().expect("a state")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_stands_still_holds_writers_up_for_its_lease_and_is_never_stale() {
    if skip() {
        return;
    }
    let (p, r) = pair(&LEASES, &LEASES).await;
    let (w, c) = (p.server.connect().await, r.server.connect().await);
    rows(&w, "CREATE TABLE t (id int PRIMARY KEY, v int)").await;
    rows(&w, "INSERT INTO t VALUES (1, 0)").await;
    rows(&c, "SET canon.read_policy = lease").await;
    for v in 1..=5 {
        p.shows(GRANTED, 1).await;
        stop(&r.server).await;
        // It cannot have received this. So its lease is over when a client hears of it, whatever the client asks for.
        let level = ["off", "local", "on"][v % 3];
        rows(&w, &format!("SET synchronous_commit = {level}")).await;
        rows(&w, &format!("UPDATE t SET v = {v}")).await;
        assert_eq!(p.metric(GRANTED), Some(0), "{level}");
        // Nothing holds up what comes then.
        for _ in 0..20 {
            rows(&w, &format!("UPDATE t SET v = {v}")).await;
        }
        signal(&r.server, "-CONT");
        assert_eq!(one(&c, "SELECT v FROM t").await, v.to_string());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn where_one_side_knows_no_leases_reads_ask_as_before() {
    if skip() {
        return;
    }
    for (at_primary, at_replica) in [(&LEASES[..], &[][..]), (&[][..], &LEASES[..])] {
        let (p, r) = pair(at_primary, at_replica).await;
        let (w, c) = (p.server.connect().await, r.server.connect().await);
        rows(&w, "CREATE TABLE t (id int PRIMARY KEY, v int)").await;
        rows(&w, "INSERT INTO t VALUES (1, 0)").await;
        rows(&c, "SET canon.read_policy = lease").await;
        for v in 1..=20 {
            rows(&w, &format!("UPDATE t SET v = {v}")).await;
            assert_eq!(one(&c, "SELECT v FROM t").await, v.to_string());
        }
        assert_eq!((r.metric(HELD), r.metric(BY_LEASE)), (Some(0), Some(0)));
        assert!(r.metric(FETCHES) > Some(0));
        assert_eq!(p.metric(GRANTED), Some(0));
    }
}

/// Stops the process, and waits until its kernel says so.
async fn stop(s: &Server) {
    signal(s, "-STOP");
    let deadline = Instant::now() + PATIENCE;
    while state(s.pid()) != 'T' {
        assert!(Instant::now() < deadline, "it does not stop");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// A primary that has lent is killed and starts again, and writes. Its holder is stopped meanwhile: one that runs lets its lease go with the connection. How many reads
/// of the holder, once it goes on, show what was there before.
async fn old_reads_after_a_start(planted: &[&str], rounds: i32) -> usize {
    let planted = planted.join(",");
    let env = [&LEASES[..], &[("CANON_PLANTED", planted.as_str())]].concat();
    let (mut p, r) = pair(&env, &env).await;
    let w = p.server.connect().await;
    rows(&w, "CREATE TABLE t (id int PRIMARY KEY, v int)").await;
    rows(&w, "INSERT INTO t VALUES (1, 0)").await;
    let mut readers = Vec::new();
    for _ in 0..4 {
        let c = r.server.connect().await;
        rows(&c, "SET canon.read_policy = lease").await;
        readers.push(std::sync::Arc::new(c));
    }
    let mut old = 0;
    for v in 1..=rounds {
        p.shows(GRANTED, 1).await;
        r.shows(HELD, 1).await;
        assert!(p.server.data_dir().join("CANON_LEASES").exists());
        stop(&r.server).await;
        p.server.kill();
        p.server.launch();
        p.server.ready().await;
        let w = p.server.connect().await;
        rows(&w, &format!("UPDATE t SET v = {v}")).await;
        let reads = readers.iter().cloned();
        let reads: Vec<_> = reads
            .map(|c| tokio::spawn(async move { one(&c, "SELECT v FROM t").await }))
            .collect();
        // What they send lies in the kernel until the holder goes on.
        tokio::time::sleep(Duration::from_millis(50)).await;
        signal(&r.server, "-CONT");
        for read in reads {
            old += usize::from(read.await.expect("a reader") != v.to_string());
        }
    }
    old
}

/// A primary that has lent and starts again waits until those leases are over before it shows anything.
#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_starts_again_does_not_forget_what_it_has_lent() {
    if skip() {
        return;
    }
    assert_eq!(old_reads_after_a_start(&[], 3).await, 0);
}

/// The same with leases that are still held when the next life of the primary serves, however slow the machine is.
#[cfg(feature = "faults")]
#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_starts_again_waits_for_leases_that_are_held() {
    if skip() {
        return;
    }
    let planted = ["lease.stretched"];
    assert_eq!(old_reads_after_a_start(&planted, 2).await, 0);
}

#[cfg(feature = "faults")]
#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_starts_again_and_does_not_wait_is_found() {
    if skip() {
        return;
    }
    let planted = ["lease.stretched", "lease.not_waited_out"];
    assert!(old_reads_after_a_start(&planted, 3).await > 0);
}
