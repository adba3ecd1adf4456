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

/// `--replica-of` stays what it was, and the start says what takes its place.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_with_replica_of_says_that_join_takes_its_place() {
    if skip() {
        return;
    }
    let a = node("a", None, &[]).await;
    let of = at(&a);
    let b = node("b", None, &[("CANON_REPLICA_OF", &of)]).await;
    let site = [("CANON_REPLICA_OF", of.as_str()), ("CANON_SITE", "true")];
    let c = node("c", None, &site).await;
    for (n, says) in [
        (
            &b,
            "this server follows by hand (--replica-of): --join in its place makes it a member",
        ),
        (
            &c,
            "this site follows by hand (--replica-of): with --join in its place it follows",
        ),
    ] {
        follows(n).await;
        let said = n.server.log_tail();
        assert!(said.contains(says), "{said}");
    }
    assert!(!a.server.log_tail().contains("by hand"));
}

/// The majority is there, and has not missed its leader yet. A node that is promoted by force would lack what only the other replica has.
#[tokio::test(flavor = "multi_thread")]
async fn a_promotion_by_force_at_the_moment_of_the_loss_is_refused() {
    if skip() {
        return;
    }
    let mut nodes = of_three(&[]).await;
    prepare(&nodes).await;
    let writers = Writers::start(&nodes, 3);
    writers.more(30, &nodes).await;
    // The founder is the leader of the members, too.
    nodes[0].server.kill();
    let (done, said) = promote_at(&nodes[1], true);
    assert!(!done, "{said}");
    writers.more(30, &nodes).await;
    nodes[0].server.launch();
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
    let leads = primary(&nodes).await;
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
    let asked = doubt
        .as_db_error()
        .and_then(|e| e.hint().map(str::to_owned));
    let asked = asked.expect("how the outcome can be asked for");
    let (_, ask) = asked.split_once("ask: ").expect("a statement");
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
    let status = client.query_one(ask, &[]).await.expect("an answer");
    assert_eq!(status.get::<_, String>(0), "committed", "{ask}");
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

/// Starts a server that joins the cluster of a primary, and promotes it by hand when the primary is lost. `of_a`, `of_b`: faults that end the joining halfway. `there`:
/// files that stand in its `control` by then; `absent`: files that do not. It serves after a restart without the fault, with the settings that it had.
#[cfg(feature = "faults")]
async fn promoted_while_it_joins(
    of_a: &str,
    of_b: &str,
    there: &[&str],
    absent: &[&str],
) -> [Node; 2] {
    let a = node("a", None, &[("CANON_PLANTED", of_a)]).await;
    let c = a.server.connect().await;
    let sql = "CREATE TABLE kept (n bigint PRIMARY KEY); INSERT INTO kept VALUES (1)";
    c.batch_execute(sql).await.expect("written");
    let b = node("b", Some(&a.server), &[("CANON_PLANTED", of_b)]).await;
    let mut nodes = [a, b];
    follows(&nodes[1]).await;
    has_all(&nodes[1], &[1].into()).await;
    let control = nodes[1].server.data_dir().join("control");
    let deadline = Instant::now() + HANG;
    let not_yet = |log: &str| absent.is_empty() || log.contains("not joined yet");
    while !there.iter().all(|name| control.join(name).exists())
        || !not_yet(&nodes[1].server.log_tail())
    {
        assert!(Instant::now() < deadline, "{}", nodes[1].server.log_tail());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for name in absent {
        assert!(!control.join(name).exists(), "{name}");
    }
    nodes[0].server.kill();
    let (done, said) = promote_at(&nodes[1], true);
    assert!(done, "{said}");
    let sql = "INSERT INTO kept VALUES (2)";
    let c = nodes[1].server.connect().await;
    c.batch_execute(sql).await.expect("it leads");

    nodes[1].server.kill();
    let (http, join) = (format!("127.0.0.1:{}", nodes[1].http), at(&nodes[0]));
    nodes[1].server.set_env(&[
        ("CANON_NODE_NAME", "b"),
        ("CANON_HTTP", &http),
        ("CANON_CLUSTER_JOIN", &join),
    ]);
    nodes[1].server.launch();
    nodes[1].server.ready().await;
    let sql = "INSERT INTO kept VALUES (3)";
    let c = nodes[1].server.connect().await;
    c.batch_execute(sql).await.expect("it leads as before");
    has_all(&nodes[1], &[1, 2, 3].into()).await;
    nodes
}

/// It had no number when it was promoted.
#[cfg(feature = "faults")]
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_promoted_before_it_could_ask_to_join_serves_after_a_restart() {
    if skip() {
        return;
    }
    promoted_while_it_joins("", "join.not_asked", &[], &["MEMBER"]).await;
}

/// It had asked, and no cluster took it in. None takes part with it until it is made to found one.
#[cfg(feature = "faults")]
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_promoted_before_it_was_taken_in_serves_after_a_restart() {
    if skip() {
        return;
    }
    let [_, mut b] = promoted_while_it_joins("join.later", "", &["MEMBER"], &["JOINED"]).await;
    let join = at(&b);
    let mut c = Server::canon(&[("CANON_NODE_NAME", "c"), ("CANON_CLUSTER_JOIN", &join)]);
    c.launch();
    let ended = c.exited(HANG).await;
    let said = c.log_tail();
    assert!(ended.is_some_and(|s| !s.success()), "{said}");
    assert!(said.contains("was promoted by hand before"), "{said}");
    // As it says.
    b.server.kill();
    let control = b.server.data_dir().join("control");
    std::fs::remove_dir_all(control).expect("it has one");
    let http = format!("127.0.0.1:{}", b.http);
    b.server
        .set_env(&[("CANON_NODE_NAME", "b"), ("CANON_HTTP", &http)]);
    b.server.launch();
    b.server.ready().await;
    let c = node("c", Some(&b.server), &[]).await;
    says(&b, "c is a member", |m| m.contains("member=\"c\"")).await;
    has_all(&c, &[1, 2, 3].into()).await;
}

/// The members had taken it in, and had not told it what they agree on. They hear of the promotion when they are back.
#[cfg(feature = "faults")]
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_promoted_when_it_was_just_taken_in_serves_and_is_followed() {
    if skip() {
        return;
    }
    let [mut a, b] = promoted_while_it_joins("", "join.unheard", &["JOINED"], &[]).await;
    a.server.launch();
    a.server.ready().await;
    follows(&a).await;
    has_all(&a, &[1, 2, 3].into()).await;
    assert_eq!(leader(&[a, b]), Some(1));
}
