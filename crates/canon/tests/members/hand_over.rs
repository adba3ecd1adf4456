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
        let (done, said) = canon(&["promote", "--server", &at(&nodes[i])]);
        assert!(done && said.contains("nothing is lost"), "{said}");
        says(&nodes[i], "it leads", |m| {
            m.contains("canon_role{role=\"primary\"} 1")
        })
        .await;
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
