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

/// The disk of the primary takes a flush and never answers. Another server is named, and the old primary follows it when its disk is back.
#[cfg(feature = "faults")]
#[tokio::test(flavor = "multi_thread")]
async fn a_primary_whose_disk_hangs_makes_way() {
    if skip() {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let hangs = dir.path().join("hangs");
    let fault = format!("wal.before_sync:hangs={}", hangs.display());
    let a = node("a", None, &[("CANON_FAULT", &fault)]).await;
    let b = node("b", Some(&a.server), &[]).await;
    let c = node("c", Some(&a.server), &[]).await;
    let nodes = [a, b, c];
    for n in &nodes {
        can_fail_over(n).await;
    }
    prepare(&nodes).await;
    let writers = Writers::start(&nodes, 3);
    writers.more(20, &nodes).await;
    std::fs::write(&hangs, "").expect("a file");
    // More than may have been under way.
    writers.more(20, &nodes).await;
    assert_ne!(primary(&nodes).await, 0, "{}", nodes[0].server.log_tail());
    std::fs::remove_file(&hangs).expect("a file");
    follows(&nodes[0]).await;
    let acknowledged = writers.end().await;
    for n in &nodes {
        has_all(n, &acknowledged).await;
    }
}
