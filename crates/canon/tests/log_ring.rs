//! The log in memory that primary and replica share: that it goes there, and that nothing is lost, doubled or torn when either side is
//! killed, when another leads, and when one who leads no more goes on writing. Both ways are tested: the ring, and messages.

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

const RING: &str = "canon_replication_batches_total{how=\"ring\"}";
const MESSAGES: &str = "canon_replication_batches_total{how=\"message\"}";
const TAKEN: &str = "canon_replica_batches_in_ring_total";

impl Node {
    /// 0 also where the page does not have it yet: a server that has just started takes clients before.
    fn metric(&self, name: &str) -> u64 {
        let (status, page) = get(self.http, "/metrics");
        assert_eq!(status, 200);
        let found = page.lines().find_map(|l| l.strip_prefix(name));
        found.map_or(0, |n| n.trim().parse().expect("a number"))
    }

    /// Waits until more than this were counted.
    async fn counts(&self, name: &str, more_than: u64) {
        let deadline = Instant::now() + PATIENCE;
        while self.metric(name) <= more_than {
            assert!(Instant::now() < deadline, "{name}: not above {more_than}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn primary(ring: &str) -> Node {
    let http = free_port();
    let address = format!("127.0.0.1:{http}");
    let env = [
        ("CANON_HTTP", address.as_str()),
        ("CANON_REPLICATION_RING", ring),
    ];
    let server = Server::start_with(&env).await;
    Node { server, http }
}

async fn follower(of: &Node, name: &str, ring: &str) -> Node {
    let http = free_port();
    let address = format!("127.0.0.1:{http}");
    let env = [
        ("CANON_HTTP", address.as_str()),
        ("CANON_REPLICATION_RING", ring),
    ];
    let server = replica_with(&of.server, name, &env).await;
    Node { server, http }
}

/// A primary with accounts and a replica; the log goes through a ring.
async fn pair() -> (Node, Node) {
    let p = primary("auto").await;
    let c = p.server.connect().await;
    bank(&c).await;
    let r = follower(&p, "r", "auto").await;
    (p, r)
}

/// Starts a node again, as a replica of another.
async fn rejoin(node: &mut Node, of: &Node, name: &str) {
    node.server.kill();
    let primary = format!("{}:{}", of.server.host, of.server.port);
    let address = format!("127.0.0.1:{}", node.http);
    node.server.set_env(&[
        ("CANON_HTTP", &address),
        ("CANON_REPLICA_OF", &primary),
        ("CANON_NODE_NAME", name),
    ]);
    node.server.launch();
    node.server.ready().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_go_through_the_ring_where_both_want_it() {
    if skip() {
        return;
    }
    for (at_primary, at_replica) in [("auto", "auto"), ("auto", "message"), ("message", "auto")] {
        let p = primary(at_primary).await;
        let c = p.server.connect().await;
        bank(&c).await;
        let r = follower(&p, "r", at_replica).await;
        let movers = Movers::start(&p.server, 3).await;
        if (at_primary, at_replica) == ("auto", "auto") {
            p.counts(RING, 20).await;
            r.counts(TAKEN, 20).await;
        } else {
            p.counts(MESSAGES, 20).await;
            assert_eq!((p.metric(RING), r.metric(TAKEN)), (0, 0));
        }
        movers.stop().await;
        assert_equal(&c, &r.server).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_larger_than_the_ring_goes_as_a_message_and_the_order_holds() {
    if skip() {
        return;
    }
    let p = primary("auto").await;
    let c = p.server.connect().await;
    bank(&c).await;
    rows(
        &c,
        "CREATE TABLE bulk (id int PRIMARY KEY, v text NOT NULL)",
    )
    .await;
    let r = follower(&p, "r", "auto").await;
    let movers = Movers::start(&p.server, 2).await;
    p.counts(RING, 20).await;
    let messages = p.metric(MESSAGES);
    for round in 0..4 {
        // 6 MB in one commit, and some that together are more than the ring.
        let sql = format!(
            "INSERT INTO bulk SELECT {round} * 10000 + n, repeat('x', 3000) FROM generate_series(1, 2000) n"
        );
        rows(&c, &sql).await;
        for part in 0..8 {
            let from = round * 10_000 + 5000 + part * 300;
            let sql = format!(
                "INSERT INTO bulk SELECT {from} + n, repeat('y', 3000) FROM generate_series(1, 300) n"
            );
            rows(&c, &sql).await;
        }
    }
    // A commit does not wait for its batch to be sent.
    p.counts(MESSAGES, messages + 3).await;
    let (sent, taken) = (p.metric(RING), r.metric(TAKEN));
    movers.some(50).await;
    p.counts(RING, sent).await;
    r.counts(TAKEN, taken).await;
    movers.stop().await;
    assert_equal(&c, &r.server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_of_either_side_loses_nothing_and_the_next_connection_has_a_ring_of_its_own() {
    if skip() {
        return;
    }
    let (mut p, mut r) = pair().await;
    let movers = Movers::start(&p.server, 3).await;
    for _ in 0..3 {
        r.counts(TAKEN, 10).await;
        r.server.kill();
        movers.some(30).await;
        r.server.launch();
        r.server.ready().await;
    }
    r.counts(TAKEN, 10).await;
    p.server.kill_now();
    movers.stop().await;
    p.server.kill();
    p.server.launch();
    p.server.ready().await;
    let c = p.server.connect().await;
    let taken = r.metric(TAKEN);
    let movers = Movers::start(&p.server, 2).await;
    r.counts(TAKEN, taken + 10).await;
    movers.stop().await;
    assert_equal(&c, &r.server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_handed_over_to_writes_into_the_ring_of_its_predecessor() {
    if skip() {
        return;
    }
    let (mut p, r) = pair().await;
    let movers = Movers::start(&p.server, 3).await;
    r.counts(TAKEN, 20).await;
    promote(&r.server, &[]);
    movers.stop().await;
    rejoin(&mut p, &r, "p").await;
    let c = r.server.connect().await;
    let movers = Movers::start(&r.server, 3).await;
    p.counts(TAKEN, 20).await;
    movers.stop().await;
    assert_equal(&c, &p.server).await;
    let total = one(&c, "SELECT sum(balance) FROM accounts").await;
    assert_eq!(total, TOTAL.to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_primary_that_goes_on_writing_writes_for_nobody() {
    if skip() {
        return;
    }
    let (mut p, mut r) = pair().await;
    let movers = Movers::start(&p.server, 3).await;
    r.counts(TAKEN, 20).await;
    // It is not dead: it stands still in the middle of its work, and knows nothing of what comes.
    signal(&p.server, "-STOP");
    promote(&r.server, &["--force", "--old-primary-is-down"]);
    let w = r.server.connect().await;
    rows(&w, "INSERT INTO moves (id, sum) VALUES (-1, 77)").await;
    let there = one(&w, "SELECT count(*) FROM moves").await;
    // Nor can the new one tell it meanwhile.
    signal(&r.server, "-STOP");
    signal(&p.server, "-CONT");
    movers.some(100).await;
    movers.stop().await;
    signal(&r.server, "-CONT");
    assert_eq!(one(&w, "SELECT count(*) FROM moves").await, there);
    let total = one(&w, "SELECT sum(balance) FROM accounts").await;
    assert_eq!(total, TOTAL.to_string());
    // Nor does the log of the one who took over have any of it.
    r.server.kill();
    r.server
        .set_env(&[("CANON_HTTP", &format!("127.0.0.1:{}", r.http))]);
    r.server.launch();
    r.server.ready().await;
    let w = r.server.connect().await;
    assert_eq!(one(&w, "SELECT count(*) FROM moves").await, there);
    // The old one comes back, without what nobody took.
    rejoin(&mut p, &r, "p").await;
    assert_equal(&w, &p.server).await;
    let movers = Movers::start(&r.server, 2).await;
    p.counts(TAKEN, 10).await;
    movers.stop().await;
    assert_equal(&w, &p.server).await;
}
