//! Planned changes of the primary under writers that keep count.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_planned_hand_over_loses_nothing_and_the_old_primary_follows() {
    if skip() {
        return;
    }
    let nodes = of_three(&[]).await;
    prepare(&nodes).await;
    let writers = Writers::start(&nodes, 3);
    // Each node in turn, and the first one again.
    for i in [1, 2, 0] {
        writers.more(30, &nodes).await;
        hand_over(&nodes[i]).await;
        for other in (0..3).filter(|other| *other != i) {
            follows(&nodes[other]).await;
        }
    }
    let acknowledged = writers.end().await;
    for n in &nodes {
        has_all(n, &acknowledged).await;
    }
    let (done, said) = canon(&["promote", "--server", &at(&nodes[0])]);
    assert!(
        !done && said.contains("recovery is not in progress"),
        "{said}"
    );
}

/// A replica that does not answer is no heir, and the primary goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_hand_over_to_a_replica_that_is_lost_leaves_a_primary() {
    if skip() {
        return;
    }
    let mut nodes = of_three(&[]).await;
    prepare(&nodes).await;
    let writers = Writers::start(&nodes, 3);
    writers.more(30, &nodes).await;
    let server = at(&nodes[1]);
    let asked = std::thread::spawn(move || canon(&["promote", "--server", &server]));
    nodes[1].server.kill();
    writers.more(30, &nodes).await;
    _ = asked.join().expect("it ends");
    nodes[1].server.launch();
    nodes[1].server.ready().await;
    writers.more(30, &nodes).await;
    let acknowledged = writers.end().await;
    for n in &nodes {
        has_all(n, &acknowledged).await;
    }
}

/// The primary ends at each step of a hand-over in turn. Nothing that was acknowledged is lost, and the cluster has a primary each time.
#[cfg(feature = "faults")]
#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_ends_on_the_way_of_a_hand_over_loses_nothing() {
    if skip() {
        return;
    }
    let point = |step: &str| ("CANON_FAULT", format!("members.hand_over.{step}"));
    let points = ["sealed", "promised", "agreed"].map(point);
    let fault = |i: usize| [(points[i].0, points[i].1.as_str())];
    let a = node("a", None, &fault(0)).await;
    let b = node("b", Some(&a.server), &fault(1)).await;
    let c = node("c", Some(&a.server), &fault(2)).await;
    let mut nodes = [a, b, c];
    for n in &nodes {
        can_fail_over(n).await;
    }
    prepare(&nodes).await;
    let writers = Writers::start(&nodes, 3);
    // Each node ends once, at its point, when it is the primary that hands over.
    let mut left: BTreeSet<usize> = [0, 1, 2].into();
    while !left.is_empty() {
        writers.more(20, &nodes).await;
        for n in &nodes {
            can_fail_over(n).await;
        }
        let leads = primary(&nodes).await;
        // One that led before starts again as a replica.
        for other in (0..3).filter(|other| *other != leads) {
            follows(&nodes[other]).await;
        }
        let heir = left.iter().find(|n| **n != leads).copied();
        let heir = heir.unwrap_or((leads + 1) % 3);
        if !left.remove(&leads) {
            hand_over(&nodes[heir]).await;
            continue;
        }
        // It may refuse before it comes to its point.
        let deadline = Instant::now() + HANG;
        while nodes[leads].server.alive() {
            let (_, said) = canon(&["promote", "--server", &at(&nodes[heir])]);
            let log = || nodes[leads].server.log_tail();
            assert!(Instant::now() < deadline, "{said}\n{}", log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        // Another one leads by now, or will.
        writers.more(20, &nodes).await;
        let http = format!("127.0.0.1:{}", nodes[leads].http);
        let name = ["a", "b", "c"][leads];
        let own = [("CANON_NODE_NAME", name), ("CANON_HTTP", http.as_str())];
        nodes[leads].server.set_env(&own);
        nodes[leads].server.launch();
        nodes[leads].server.ready().await;
    }
    writers.more(20, &nodes).await;
    for n in &nodes {
        can_fail_over(n).await;
    }
    let acknowledged = writers.end().await;
    for n in &nodes {
        has_all(n, &acknowledged).await;
    }
}

/// The hand-over is done, and its answer is an error: the old primary says that it gave it up, or the new one has no lease yet when it is to answer.
#[cfg(feature = "faults")]
#[tokio::test(flavor = "multi_thread")]
async fn a_hand_over_that_is_done_is_no_error() {
    if skip() {
        return;
    }
    let a = node("a", None, &[("CANON_PLANTED", "hand_over.done_is_refused")]).await;
    let b = node("b", Some(&a.server), &[]).await;
    let lost = [("CANON_PLANTED", "hand_over.answer_lost")];
    let c = node("c", Some(&a.server), &lost).await;
    let nodes = [a, b, c];
    prepare(&nodes).await;
    for (i, says_so) in [
        (1, "nothing is lost"),
        (2, "the answer to the hand-over was lost"),
    ] {
        for n in &nodes {
            can_fail_over(n).await;
        }
        let (done, said) = canon(&["promote", "--server", &at(&nodes[i])]);
        let said = said.to_lowercase();
        assert!(done && said.contains(says_so), "{said}");
        says(&nodes[i], "it leads", |m| {
            m.contains("canon_role{role=\"primary\"} 1")
        })
        .await;
    }
}
