//! Members that leave by themselves, are taken out, and are replaced.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn members_leave_by_themselves_or_are_taken_out_and_join_again() {
    if skip() {
        return;
    }
    let mut nodes = of_three(&[]).await;
    prepare(&nodes).await;
    let writers = Writers::start(&nodes, 2);
    writers.more(20, &nodes).await;
    let (done, said) = canon(&["leave", "--server", &at(&nodes[0])]);
    assert!(!done && said.contains("is the primary"), "{said}");
    let (done, said) = canon(&["leave", "--server", &at(&nodes[0]), "--member", "x"]);
    assert!(!done && said.contains("does not exist"), "{said}");

    // One that runs stops by itself, and is started only as a new member.
    let ended = leaves(&mut nodes[2]).await;
    assert!(ended.success(), "{}", nodes[2].server.log_tail());
    says(&nodes[0], "c is gone", |m| !m.contains("member=\"c\"")).await;
    writers.more(20, &nodes[..2]).await;
    let join = at(&nodes[1]);
    let http = format!("127.0.0.1:{}", nodes[2].http);
    let own = [("CANON_NODE_NAME", "c"), ("CANON_HTTP", http.as_str())];
    nodes[2].server.set_env(&own);
    nodes[2].server.launch();
    let refused = nodes[2].server.exited(HANG).await;
    assert!(refused.is_some_and(|s| !s.success()));
    nodes[2].server.launch_with(&["--join", &join]);
    nodes[2].server.ready().await;
    can_fail_over(&nodes[0]).await;

    // One that is down is taken out by another, and replaced under its name.
    nodes[2].server.kill();
    take_out(&nodes[1], "c").await;
    let new = node("c", Some(&nodes[0].server), &[]).await;
    can_fail_over(&new).await;
    can_fail_over(&nodes[0]).await;
    // It hears that it was taken out.
    nodes[2].server.launch();
    let ended = nodes[2].server.exited(HANG).await;
    assert!(ended.is_some(), "{}", nodes[2].server.log_tail());

    // The two that are left and the new one are three members as before.
    nodes[0].server.kill();
    writers.more(20, &nodes).await;
    let acknowledged = writers.end().await;
    let [_, b, _] = nodes;
    let left = [b, new];
    has_all(&left[primary(&left).await], &acknowledged).await;
}

/// The consensus leader is taken out by another one's word. It hands its part over, hears that it is no member any more, and stops.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_led_the_consensus_and_was_taken_out_stops() {
    if skip() {
        return;
    }
    let mut nodes = of_three(&[]).await;
    prepare(&nodes).await;
    let writers = Writers::start(&nodes, 2);
    writers.more(20, &nodes).await;
    let decides = |nodes: &[Node]| {
        let (_, metrics) = get(nodes[0].http, "/metrics");
        let of = |name| format!("canon_member_decides{{member=\"{name}\"}} 1");
        ["a", "b", "c"]
            .iter()
            .position(|name| metrics.contains(&of(name)))
    };
    // A primary cannot leave: another one leads the data, and the consensus leader stays where it is.
    let deadline = Instant::now() + HANG;
    let taken = loop {
        assert!(
            Instant::now() < deadline,
            "the consensus leader is the primary"
        );
        for n in &nodes {
            can_fail_over(n).await;
        }
        match (decides(&nodes), leader(&nodes)) {
            (Some(at), Some(primary)) if at != primary => break at,
            (Some(at), Some(_)) => {
                let heir = &nodes[(at + 1) % 3];
                hand_over(heir).await;
            }
            _ => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    };
    let name = ["a", "b", "c"][taken];
    take_out(&nodes[(taken + 1) % 3], name).await;
    let ended = nodes[taken].server.exited(HANG).await;
    let log = nodes[taken].server.log_tail();
    assert!(ended.is_some_and(|s| s.success()), "{log}");
    writers.more(20, &nodes).await;
    let acknowledged = writers.end().await;
    let leads = primary(&nodes).await;
    has_all(&nodes[leads], &acknowledged).await;
}

/// One that ends between the members' word and its own mark hears at its next start that it has left.
#[cfg(feature = "faults")]
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_ends_before_it_has_noted_that_it_left_hears_it_again() {
    if skip() {
        return;
    }
    let a = node("a", None, &[]).await;
    let b = node("b", Some(&a.server), &[]).await;
    let fault = [("CANON_FAULT", "members.left.before_mark")];
    let mut c = node("c", Some(&b.server), &fault).await;
    for n in [&a, &b, &c] {
        can_fail_over(n).await;
    }
    // The answer may be lost with the server.
    let ended = leaves(&mut c).await;
    assert!(!ended.success(), "{}", c.server.log_tail());
    says(&a, "c is gone", |m| !m.contains("member=\"c\"")).await;

    let http = format!("127.0.0.1:{}", c.http);
    let own = [("CANON_NODE_NAME", "c"), ("CANON_HTTP", http.as_str())];
    c.server.set_env(&own);
    c.server.launch();
    let ended = c.server.exited(HANG).await;
    let log = c.server.log_tail();
    assert!(ended.is_some_and(|s| s.success()), "{log}");
    // From now on the directory itself says so.
    c.server.launch();
    let refused = c.server.exited(HANG).await;
    let log = c.server.log_tail();
    assert!(refused.is_some_and(|s| !s.success()), "{log}");
    assert!(log.contains("has left its cluster"), "{log}");
}

/// A copy that commits wait for is not taken out: they would wait for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_is_waited_for_leaves_when_fewer_are_wanted() {
    if skip() {
        return;
    }
    let mut nodes = of_three(&[]).await;
    prepare(&nodes).await;
    let set = |n: usize| {
        let setting = format!("synchronous_replicas={n}");
        let (done, said) = canon(&["cluster", "set", &setting, "--server", &at(&nodes[0])]);
        assert!(done, "{said}");
    };
    set(2);
    let (done, said) = canon(&["leave", "--server", &at(&nodes[2])]);
    assert!(
        !done && said.contains("commits would wait for ever"),
        "{said}"
    );
    set(1);
    let ended = leaves(&mut nodes[2]).await;
    assert!(ended.success(), "{}", nodes[2].server.log_tail());
    let writers = Writers::start(&nodes[..2], 2);
    writers.more(20, &nodes[..2]).await;
    writers.end().await;
}
