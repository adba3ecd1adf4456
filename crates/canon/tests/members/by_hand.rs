//! What people do by hand beside the members, and what stands in the way of a fail-over.

use super::*;

const FORCED: [&str; 2] = ["--force", "--old-primary-is-down"];

fn promote_at(node: &Node, forced: bool) -> (bool, String) {
    let at = at(node);
    let mut arguments = vec!["promote", "--server", at.as_str()];
    arguments.extend(FORCED.into_iter().filter(|_| forced));
    canon(&arguments)
}

/// The term of this node's log, by its own word.
fn term(node: &Node) -> Option<u64> {
    let (_, metrics) = get(node.http, "/metrics");
    let line = metrics.lines().find_map(|l| l.strip_prefix("canon_term "));
    line?.trim().parse().ok()
}

/// A mistake: a server that is no member is promoted while the members choose for themselves.
#[tokio::test(flavor = "multi_thread")]
async fn a_promotion_at_a_server_that_is_no_member_does_not_end_the_cluster() {
    if skip() {
        return;
    }
    let mut nodes = of_three(&[]).await;
    prepare(&nodes).await;
    let of = at(&nodes[0]);
    let d = node("d", None, &[("CANON_REPLICA_OF", &of)]).await;
    follows(&d).await;
    for forced in [false, true] {
        let (done, said) = promote_at(&d, forced);
        assert!(!done && said.contains("no member"), "{said}");
    }
    let writers = Writers::start(&nodes, 3);
    writers.more(30, &nodes).await;
    nodes[0].server.kill();
    // Its primary does not answer, so the server believes what it is told.
    let (done, said) = promote_at(&d, true);
    assert!(done, "{said}");
    writers.more(30, &nodes).await;
    // The old primary hears of the term that was drawn by hand, and the others hear of it from that one.
    nodes[0].server.launch();
    let by_hand = term(&d).expect("it leads");
    let deadline = Instant::now() + HANG;
    while leader(&nodes).is_none_or(|l| term(&nodes[l]) <= Some(by_hand)) {
        assert!(
            Instant::now() < deadline,
            "the members stay below that term"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    writers.more(30, &nodes).await;
    let acknowledged = writers.end().await;
    for n in &nodes {
        can_fail_over(n).await;
        has_all(n, &acknowledged).await;
    }
}

/// As the pages say: the majority is lost, the rest goes on by hand, and restarts before the others are back.
#[tokio::test(flavor = "multi_thread")]
async fn a_promotion_without_a_majority_serves_and_is_kept_when_the_others_come_back() {
    if skip() {
        return;
    }
    let mut nodes = of_three(&[]).await;
    prepare(&nodes).await;
    let writers = Writers::start(&nodes, 2);
    writers.more(30, &nodes).await;
    let (done, said) = promote_at(&nodes[1], true);
    assert!(!done && said.contains("agree among themselves"), "{said}");
    let mut acknowledged = writers.end().await;
    // What one replica has is acknowledged. This is the one that stays.
    has_all(&nodes[1], &acknowledged).await;
    nodes[0].server.kill();
    nodes[2].server.kill();
    let (done, said) = promote_at(&nodes[1], true);
    assert!(done, "{said}");
    let alone = &nodes[1..2];
    let writers = Writers::start(alone, 1);
    writers.more(10, alone).await;
    acknowledged.extend(writers.end().await);
    nodes[1].server.kill();
    nodes[1].server.launch();
    nodes[1].server.ready().await;
    let c = nodes[1].server.connect().await;
    let written = c.batch_execute("INSERT INTO kept VALUES (-7)").await;
    written.expect("it leads as before");
    acknowledged.insert(-7);

    for i in [0, 2] {
        nodes[i].server.launch();
    }
    for i in [0, 2] {
        nodes[i].server.ready().await;
        follows(&nodes[i]).await;
    }
    for n in &nodes {
        can_fail_over(n).await;
        has_all(n, &acknowledged).await;
    }
    assert_eq!(leader(&nodes), Some(1));
    nodes[1].server.kill();
    let writers = Writers::start(&nodes, 2);
    writers.more(10, &nodes).await;
    drop(writers.end().await);
    let leads = leader(&nodes).expect("one leads");
    has_all(&nodes[leads], &acknowledged).await;
}

/// No replica has to have a commit: then only the lease says that no other node leads.
#[tokio::test(flavor = "multi_thread")]
async fn a_primary_without_its_lease_acknowledges_no_commit_that_it_alone_has() {
    if skip() {
        return;
    }
    let founder = [("CANON_SYNCHRONOUS_REPLICAS", "0")];
    let a = node("a", None, &founder).await;
    let b = node("b", Some(&a.server), &[]).await;
    let c = node("c", Some(&b.server), &[]).await;
    let nodes = [a, b, c];
    for name in ["a", "b", "c"] {
        let votes = format!("canon_member_votes{{member=\"{name}\"}} 1");
        says(&nodes[0], "all vote", |m| m.contains(&votes)).await;
    }
    prepare(&nodes).await;
    let client = nodes[0].server.connect().await;
    let begun = client.batch_execute("BEGIN; INSERT INTO kept VALUES (1)");
    begun.await.expect("a transaction");
    for n in &nodes[1..] {
        signal(n, "-STOP");
    }
    says(&nodes[0], "its lease is over", |m| {
        m.contains("canon_lease_seconds 0\n")
    })
    .await;
    let doubt = client.batch_execute("COMMIT").await;
    let doubt = doubt.expect_err("nothing says that it stays");
    assert_eq!(common::sqlstate(&doubt), "40003", "{doubt}");
    let doubt = client.batch_execute("INSERT INTO kept VALUES (2)").await;
    let doubt = doubt.expect_err("nothing says that it stays");
    assert_eq!(common::sqlstate(&doubt), "40003", "{doubt}");
    let off = "SET synchronous_commit = off";
    client.batch_execute(off).await.expect("a setting");
    let doubt = client.batch_execute("INSERT INTO kept VALUES (3)").await;
    let doubt = doubt.expect_err("nothing says that it stays");
    assert_eq!(common::sqlstate(&doubt), "40003", "{doubt}");
    let refused = client.batch_execute("SELECT n FROM kept").await;
    let refused = refused.expect_err("another node may have newer rows");
    assert_eq!(common::sqlstate(&refused), "57P03", "{refused}");
    for n in &nodes[1..] {
        signal(n, "-CONT");
    }
    // No other one was named: it goes on.
    let deadline = Instant::now() + HANG;
    let mut n = 4;
    while client
        .batch_execute(&format!("INSERT INTO kept VALUES ({n})"))
        .await
        .is_err()
    {
        n += 1;
        assert!(Instant::now() < deadline, "{}", nodes[0].server.log_tail());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_says_which_member_is_missed_for_a_fail_over() {
    if skip() {
        return;
    }
    let mut nodes = of_three(&[]).await;
    nodes[2].server.kill();
    for n in &nodes[..2] {
        says(n, "one is missed", |m| {
            m.contains("votes that are needed the others have 1: c cannot be reached")
        })
        .await;
    }
    nodes[2].server.launch();
    nodes[2].server.ready().await;
    for n in &nodes {
        can_fail_over(n).await;
    }
    // A name that is taken: the server ends, and its directory belongs to no cluster.
    let join = at(&nodes[0]);
    let mut other = Server::canon(&[("CANON_NODE_NAME", "b"), ("CANON_CLUSTER_JOIN", &join)]);
    other.launch();
    let ended = other.exited(HANG).await;
    assert!(ended.is_some_and(|s| !s.success()), "{}", other.log_tail());
    assert!(!other.data_dir().join("control").exists());
}
