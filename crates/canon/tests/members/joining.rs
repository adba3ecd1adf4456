//! Servers that join while other things happen.

use super::*;

/// A server that joins begins its copy at the primary, which is lost before any of it has come. Without a look where the primary is now it would dial the lost one
/// for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_joins_copies_from_the_next_primary_when_the_first_is_lost() {
    if skip() {
        return;
    }
    let mut nodes = of_three(&[]).await;
    prepare(&nodes).await;
    let writers = Writers::start(&nodes, 2);
    writers.more(20, &nodes).await;
    // Two of three are stopped: the third one can still say which node was the primary, and no other one is named.
    signal(&nodes[0], "-STOP");
    signal(&nodes[2], "-STOP");
    let (http, join) = (free_port(), at(&nodes[1]));
    let address = format!("127.0.0.1:{http}");
    let mut server = Server::canon(&[
        ("CANON_NODE_NAME", "d"),
        ("CANON_HTTP", &address),
        ("CANON_CLUSTER_JOIN", &join),
    ]);
    server.launch();
    let deadline = Instant::now() + HANG;
    let first = format!("primary={}", at(&nodes[0]));
    while !server.log_tail().contains(&first) {
        assert!(Instant::now() < deadline, "{}", server.log_tail());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    nodes[0].server.kill();
    signal(&nodes[2], "-CONT");
    server.ready().await;
    let d = Node { server, http };
    follows(&d).await;
    says(&d, "it is a member", |m| {
        m.contains("canon_member_copy{member=\"d\"} 1")
    })
    .await;
    writers.more(20, &nodes).await;
    let acknowledged = writers.end().await;
    let now = primary(&nodes[1..]).await + 1;
    has_all(&nodes[now], &acknowledged).await;
    nodes[0].server.launch();
    nodes[0].server.ready().await;
    can_fail_over(&d).await;
    has_all(&d, &acknowledged).await;
    has_all(&nodes[0], &acknowledged).await;
}

/// The first server that asks to join makes the primary a cluster of one, and may not join then. A replica that follows the primary by hand still counts for its commits.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_may_not_join_stops_no_commit() {
    if skip() {
        return;
    }
    let mut a = node("a", None, &[("CANON_SYNCHRONOUS_REPLICAS", "1")]).await;
    let _r = replica(&a.server, "r").await;
    let c = a.server.connect().await;
    rows(&c, "CREATE TABLE kept (n bigint PRIMARY KEY)").await;
    rows(&c, "INSERT INTO kept VALUES (1)").await;
    let join = at(&a);
    let mut same = Server::canon(&[("CANON_NODE_NAME", "a"), ("CANON_CLUSTER_JOIN", &join)]);
    same.launch();
    let ended = same.exited(HANG).await;
    assert!(ended.is_some_and(|s| !s.success()));
    let said = same.log_tail();
    assert!(said.contains("another member is called"), "{said}");
    let inserted = rows(&c, "INSERT INTO kept VALUES (2)");
    let inserted = tokio::time::timeout(HANG, inserted).await;
    assert!(inserted.is_ok(), "{}", a.server.log_tail());
    // The same after a start.
    a.server.kill();
    a.server.launch();
    a.server.ready().await;
    let c = a.server.connect().await;
    let inserted = rows(&c, "INSERT INTO kept VALUES (3)");
    let inserted = tokio::time::timeout(HANG, inserted).await;
    assert!(inserted.is_ok(), "{}", a.server.log_tail());
}

/// A build that does not know a shorter lease would take its own for longer than the members wait. It joins only where leases are as usual.
#[cfg(feature = "faults")]
#[tokio::test(flavor = "multi_thread")]
async fn a_build_that_does_not_know_shorter_leases_joins_only_where_there_are_none() {
    if skip() {
        return;
    }
    let (variable, value) = of_previous_build();
    let old = (variable, value.as_str());
    let short = ("CANON_FAILOVER_LEASE", "600ms");
    let is_refused = async |a: &Node| {
        let join = at(a);
        let env = [
            ("CANON_NODE_NAME", "old"),
            ("CANON_CLUSTER_JOIN", join.as_str()),
            old,
        ];
        let mut server = Server::canon(&env);
        server.launch();
        let ended = server.exited(HANG).await;
        let said = server.log_tail();
        assert!(ended.is_some_and(|s| !s.success()), "{said}");
        assert!(said.contains("has set failover.lease"), "{said}");
        assert!(!server.data_dir().join("control").exists());
    };
    let a = node("a", None, &[short]).await;
    // The first server that asks, which makes the primary the founder, and one that asks two members.
    is_refused(&a).await;
    let _b = node("b", Some(&a.server), &[short]).await;
    says(&a, "b is a member", |m| m.contains("member=\"b\"")).await;
    is_refused(&a).await;

    let a = node("a", None, &[]).await;
    let _b = node("b", Some(&a.server), &[old]).await;
    says(&a, "b is a member", |m| m.contains("member=\"b\"")).await;
}
