//! Settings of the cluster that are changed while it works, and maintenance.

use super::*;

pub fn set(node: &Node, setting: &str) -> (bool, String) {
    canon(&["cluster", "set", setting, "--server", &at(node)])
}

pub fn is_set(node: &Node, setting: &str) -> String {
    let (done, said) = set(node, setting);
    assert!(done, "{setting}: {said}\n{}", node.server.log_tail());
    said
}

pub fn status(node: &Node) -> String {
    canon(&["status", "--http", &format!("127.0.0.1:{}", node.http)]).1
}

/// Up and down under load: what was acknowledged while fewer copies had to have it is there after a fail-over, too.
#[tokio::test(flavor = "multi_thread")]
async fn synchronous_replicas_are_changed_while_the_cluster_works() {
    if skip() {
        return;
    }
    let mut nodes = of_three(&[]).await;
    prepare(&nodes).await;
    let writers = Writers::start(&nodes, 3);
    writers.more(20, &nodes).await;
    // Any member takes it.
    let said = is_set(&nodes[1], "synchronous_replicas=2");
    assert!(said.contains("Commits wait for 2 replicas"), "{said}");
    says(&nodes[0], "both others hold each commit", |m| {
        m.contains("canon_cluster_wanted 2") && m.contains("canon_cluster_promised 2")
    })
    .await;
    let shown = status(&nodes[2]);
    let all = "set for the cluster: synchronous_replicas=2";
    assert!(shown.contains(all), "{shown}");
    writers.more(20, &nodes).await;

    // Commits wait for the one that is lost, until it is said that one is enough.
    nodes[2].server.kill();
    let waits = nodes[0].server.connect().await;
    let waits =
        tokio::spawn(async move { waits.batch_execute("INSERT INTO kept VALUES (-9)").await });
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(!waits.is_finished(), "one replica was enough");
    is_set(&nodes[0], "synchronous_replicas=1");
    waits
        .await
        .expect("a writer")
        .expect("one is enough by now");
    writers.more(20, &nodes).await;
    nodes[2].server.launch();
    nodes[2].server.ready().await;
    follows(&nodes[2]).await;
    can_fail_over(&nodes[2]).await;
    nodes[0].server.kill();
    writers.more(20, &nodes).await;
    nodes[0].server.launch();
    nodes[0].server.ready().await;
    follows(&nodes[0]).await;
    is_set(&nodes[0], "synchronous_replicas=default");
    says(&nodes[0], "nothing is set", |m| {
        !m.contains("canon_cluster_setting{") && m.contains("canon_cluster_wanted 1")
    })
    .await;
    let mut acknowledged = writers.end().await;
    acknowledged.insert(-9);
    for n in &nodes {
        has_all(n, &acknowledged).await;
    }
}

/// The primary is lost, and nothing happens. All that was set is there after a loss of power, and a hand-over goes.
#[tokio::test(flavor = "multi_thread")]
async fn in_maintenance_no_primary_is_named_by_itself() {
    if skip() {
        return;
    }
    let mut nodes = of_three(&[]).await;
    prepare(&nodes).await;
    let writers = Writers::start(&nodes, 2);
    writers.more(20, &nodes).await;
    is_set(&nodes[2], "maintenance=on");
    for n in &nodes {
        says(n, "why there is no fail-over", |m| {
            m.contains("canon_failover{obstacle=\"maintenance is on")
        })
        .await;
    }
    let shown = status(&nodes[1]);
    let why =
        "none is named by itself: maintenance is on: canon cluster set maintenance=off ends it";
    assert!(shown.contains(why), "{shown}");
    writers.more(20, &nodes).await;

    // Much longer than a fail-over takes.
    nodes[0].server.kill();
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert_eq!(leader(&nodes[1..]), None);
    // The new consensus leader knows it from its disk.
    for n in &mut nodes[1..] {
        n.server.kill();
    }
    for n in &mut nodes {
        n.server.launch();
    }
    for n in &mut nodes {
        n.server.ready().await;
    }
    writers.more(20, &nodes).await;
    assert_eq!(primary(&nodes).await, 0, "it leads on");

    hand_over(&nodes[1]).await;
    writers.more(20, &nodes).await;
    assert_eq!(primary(&nodes[1..]).await, 0);
    follows(&nodes[0]).await;

    // The primary is lost; then the maintenance ends.
    nodes[1].server.kill();
    tokio::time::sleep(Duration::from_secs(3)).await;
    is_set(&nodes[2], "maintenance=off");
    writers.more(20, &nodes).await;
    nodes[1].server.launch();
    nodes[1].server.ready().await;
    follows(&nodes[1]).await;
    let acknowledged = writers.end().await;
    for n in &nodes {
        has_all(n, &acknowledged).await;
    }
}

/// A member of an earlier build would go on as it does, in maintenance, too. So nothing is set beside one, and neither while it is down: it comes back later. What
/// counts is the build that it was started with last.
#[cfg(feature = "faults")]
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_set_beside_a_member_of_an_earlier_build() {
    if skip() {
        return;
    }
    let (variable, value) = of_previous_build();
    let is_refused = |n: &Node, why: &str| {
        let (done, said) = set(n, "maintenance=on");
        assert!(
            !done && said.contains("the build of old does not"),
            "{why}: {said}"
        );
        assert!(said.contains("Start all members with this build"), "{said}");
    };
    let a = node("a", None, &[]).await;
    let b = node("b", Some(&a.server), &[]).await;
    let mut old = node("old", Some(&a.server), &[(variable, &value)]).await;
    for n in [&a, &b] {
        can_fail_over(n).await;
        is_refused(n, "it answers");
    }
    old.server.kill();
    for n in [&a, &b] {
        is_refused(n, "it is down");
    }

    // It says another level when it comes back, and that is remembered.
    let (join, http) = (at(&a), format!("127.0.0.1:{}", old.http));
    let env = [
        ("CANON_NODE_NAME", "old"),
        ("CANON_HTTP", http.as_str()),
        ("CANON_CLUSTER_JOIN", join.as_str()),
    ];
    old.server.set_env(&env);
    old.server.launch();
    old.server.ready().await;
    let leader = is_noted(&[&a, &b], 3).await;
    old.server.kill();
    is_set(leader, "maintenance=on");

    // One that does not know maintenance may not come to it.
    let env_of_other = [
        ("CANON_NODE_NAME", "other"),
        ("CANON_CLUSTER_JOIN", join.as_str()),
    ];
    let mut other = Server::canon(&[&env_of_other[..], &[(variable, value.as_str())]].concat());
    other.launch();
    let ended = other.exited(HANG).await;
    let said = other.log_tail();
    assert!(ended.is_some_and(|s| !s.success()), "{said}");
    assert!(said.contains("maintenance is on, and the build"), "{said}");

    // It goes back to the earlier build.
    is_set(&b, "maintenance=off");
    old.server
        .set_env(&[&env[..], &[(variable, value.as_str())]].concat());
    old.server.launch();
    old.server.ready().await;
    let leader = is_noted(&[&a, &b], 0).await;
    old.server.kill();
    is_refused(leader, "it is down");
}

/// Waits until one of them, the consensus leader, says that `old` has become a member of this level. That one.
#[cfg(feature = "faults")]
async fn is_noted<'a>(all: &[&'a Node], level: u32) -> &'a Node {
    let line = format!("a member runs another build than before name=old level={level}");
    let deadline = Instant::now() + HANG;
    loop {
        let says = |n: &&&Node| n.server.log_tail().contains(&line);
        if let Some(leader) = all.iter().find(says) {
            return leader;
        }
        assert!(Instant::now() < deadline, "{}", all[0].server.log_tail());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// How long commits wait for a lost replica, and what a fail-over may lose.
#[tokio::test(flavor = "multi_thread")]
async fn what_may_be_lost_is_set_while_the_cluster_works() {
    if skip() {
        return;
    }
    let a = node("a", None, &[("CANON_SYNCHRONOUS_REPLICAS", "1")]).await;
    let b = node("b", Some(&a.server), &[]).await;
    let w = witness::witness("w", &b.server);
    for n in [&a, &b, &w] {
        can_fail_over(n).await;
    }
    let mut nodes = [a, b];
    prepare(&nodes).await;
    nodes[1].server.kill();
    let c = nodes[0].server.connect().await;
    let waits = tokio::spawn(async move { c.batch_execute("INSERT INTO kept VALUES (-9)").await });
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(
        !waits.is_finished(),
        "it was set that a replica has to have it"
    );
    let said = is_set(&nodes[0], "failover.degrade_after=1s");
    assert!(said.contains("failover.degrade_after=1s"), "{said}");
    waits
        .await
        .expect("a writer")
        .expect("the members go on without it");
    says(&nodes[0], "that is told", |m| {
        m.contains("canon_cluster_degraded 1")
    })
    .await;
    nodes[1].server.launch();
    nodes[1].server.ready().await;
    can_fail_over(&nodes[1]).await;

    is_set(&nodes[0], "synchronous_replicas=0");
    says(&nodes[1], "why not", |m| {
        m.contains("commits wait for no replica (synchronous_replicas = 0)")
    })
    .await;
    is_set(&nodes[0], "failover.max_loss=60s");
    can_fail_over(&nodes[1]).await;
    let writers = Writers::start(&nodes, 2);
    writers.more(50, &nodes).await;
    nodes[0].server.kill();
    writers.more(20, &nodes).await;
    assert_eq!(primary(&nodes).await, 1);
    writers.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_make_no_sense_are_refused() {
    if skip() {
        return;
    }
    let a = node("a", None, &[]).await;
    let (done, said) = set(&a, "maintenance=on");
    assert!(!done && said.contains("is no member"), "{said}");
    let b = node("b", Some(&a.server), &[]).await;
    follows(&b).await;
    says(&a, "b is a member", |m| m.contains("member=\"b\"")).await;
    for (setting, why) in [
        ("maintenance", "not NAME=VALUE"),
        ("maintenance=maybe", "on or off"),
        ("synchronous_replicas=2", "every commit would wait"),
        ("failover.lease=600ms", "from the founding"),
        ("failover.max_loss=1s", "at least 3s"),
        ("nonsense=1", "unrecognized cluster setting"),
    ] {
        for n in [&a, &b] {
            let (done, said) = set(n, setting);
            assert!(!done && said.contains(why), "{setting}: {said}");
        }
    }
    let c = a.server.connect().await;
    rows(&c, "CREATE ROLE weak LOGIN").await;
    rows(&c, "SET ROLE weak").await;
    for call in [
        "canon_cluster_set('maintenance', 'on')",
        "canon_leave()",
        "canon_leave('b')",
        "canon_adopt()",
        "canon_promote()",
        "canon_promote(true)",
        "pg_promote()",
    ] {
        let sql = format!("SELECT {call}");
        let e = c.simple_query(&sql).await.expect_err("a superuser's");
        assert_eq!(common::sqlstate(&e), "42501", "{call}");
    }
    says(&a, "nothing is set", |m| {
        !m.contains("canon_cluster_setting{")
    })
    .await;

    // Several at the same time, at both: none is lost.
    let all = [
        "failover.max_loss=5s",
        "failover.degrade_after=3s",
        "maintenance=on",
    ];
    std::thread::scope(|s| {
        for (setting, n) in all.into_iter().zip([&a, &b, &a]) {
            s.spawn(move || is_set(n, setting));
        }
    });
    for setting in all {
        let shown = format!("canon_cluster_setting{{setting=\"{setting}\"}} 1");
        says(&b, "each is set", |m| m.contains(&shown)).await;
    }
}
