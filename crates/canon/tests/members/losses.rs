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

/// Backups go on after a fail-over: the new primary makes the base that its term lacks, and no other member makes any.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_primary_goes_on_with_the_backups() {
    if skip() {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let url = format!("file://{}", dir.path().join("archive").display());
    let every_hour = [
        ("CANON_ARCHIVE", url.as_str()),
        ("CANON_BACKUP_EVERY", "1h"),
        ("CANON_BACKUP_KEEP", "7d"),
    ];
    let mut nodes = of_three(&every_hour).await;
    prepare(&nodes).await;
    for n in &nodes[1..] {
        follows(n).await;
    }
    let bases = || {
        let said = canon(&["backup", "list", "--from", &url]).1;
        said.matches("read whole at").count()
    };
    let made = async |wanted: usize, by: &Node| {
        let deadline = Instant::now() + HANG;
        while bases() < wanted {
            assert!(Instant::now() < deadline, "{}", by.server.log_tail());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    made(1, &nodes[0]).await;
    let writers = Writers::start(&nodes, 2);
    writers.more(50, &nodes).await;
    nodes[0].server.kill();
    writers.more(50, &nodes).await;
    writers.end().await;
    let now = primary(&nodes[1..]).await + 1;
    made(2, &nodes[now]).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(
        bases(),
        2,
        "{}",
        canon(&["backup", "list", "--from", &url]).1
    );
    let to = dir.path().join("restored");
    let to = to.to_str().expect("a path in UTF-8");
    let (fine, said) = canon(&["restore", "--from", &url, "--to", to]);
    assert!(fine && said.contains("nothing is wrong"), "{said}");
}
