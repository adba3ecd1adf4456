//! Fail-overs where commits wait for no replica.

use super::*;

/// The primary is killed. Another server is named, and it is said how much may be lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_fail_over_that_may_lose_commits_happens_where_it_is_allowed_and_is_told() {
    if skip() {
        return;
    }
    let unsafe_but_quick = [
        ("CANON_SYNCHRONOUS_REPLICAS", "0"),
        ("CANON_FAILOVER_MAX_LOSS", "60s"),
    ];
    let mut nodes = of_three(&unsafe_but_quick).await;
    prepare(&nodes).await;
    for n in &nodes[1..] {
        follows(n).await;
    }
    let writers = Writers::start(&nodes, 2);
    writers.more(50, &nodes).await;
    nodes[0].server.kill();
    writers.more(50, &nodes).await;
    writers.end().await;
    let now = primary(&nodes[1..]).await + 1;
    says(&nodes[now], "it says what may be lost", |m| {
        m.contains("canon_failover_lost_seconds{term=")
    })
    .await;
    let (_, said) = canon(&[
        "status",
        "--http",
        &format!("127.0.0.1:{}", nodes[now].http),
    ]);
    assert!(
        said.contains("began without synchronous replicas"),
        "{said}"
    );
    let log = nodes[now].server.log_tail();
    assert!(log.contains("may be lost"), "{log}");
}

/// Without the setting no other server is named, and the status says why.
#[tokio::test(flavor = "multi_thread")]
async fn without_synchronous_replicas_nobody_is_named_by_itself() {
    if skip() {
        return;
    }
    let a = node("a", None, &[("CANON_SYNCHRONOUS_REPLICAS", "0")]).await;
    let b = node("b", Some(&a.server), &[]).await;
    let _c = node("c", Some(&a.server), &[]).await;
    says(&b, "why not", |m| {
        m.contains("commits wait for no replica (synchronous_replicas = 0)")
    })
    .await;
}
