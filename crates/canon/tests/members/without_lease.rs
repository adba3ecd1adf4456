//! A primary that the other voters do not reach any more, where each commit has to be held by a replica.

use super::*;

/// What a client at the primary gets when two of three voters are stopped. A fourth copy, which does not vote, holds commits. Whether reads were answered.
async fn reads_are_answered(more: &[(&str, &str)]) -> bool {
    let nodes = of_three(more).await;
    prepare(&nodes).await;
    let d = node("d", Some(&nodes[0].server), more).await;
    follows(&d).await;
    says(&d, "it does not vote", |m| {
        m.contains("canon_member_votes{member=\"d\"} 0")
    })
    .await;
    let c = nodes[0].server.connect().await;
    rows(&c, "INSERT INTO kept VALUES (1)").await;
    let mut acknowledged = BTreeSet::from([1]);
    for n in &nodes[1..] {
        signal(n, "-STOP");
    }
    says(&nodes[0], "its lease is over", |m| {
        m.contains("canon_lease_seconds 0\n")
    })
    .await;
    // Another node that is named meanwhile would have to hear of it from the copy that holds it.
    for n in [2, 3] {
        rows(&c, &format!("INSERT INTO kept VALUES ({n})")).await;
        acknowledged.insert(n);
    }
    let mut answered = false;
    let session = nodes[0].server.connect().await;
    for read in [
        "SELECT n FROM kept",
        "SELECT count(*) FROM kept WHERE n > 1",
        "BEGIN; SELECT n FROM kept; COMMIT",
    ] {
        match session.batch_execute(read).await {
            Ok(()) => answered = true,
            Err(e) => assert_eq!(common::sqlstate(&e), "57P03", "{read}: {e}"),
        }
        _ = session.batch_execute("ROLLBACK").await;
    }

    // No replica holds the next one.
    signal(&d, "-STOP");
    let waits = tokio::spawn(async move {
        rows(&c, "INSERT INTO kept VALUES (4)").await;
    });
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(
        !waits.is_finished(),
        "a commit is acknowledged that no replica has"
    );
    signal(&d, "-CONT");
    waits.await.expect("acknowledged once the copy has it");
    acknowledged.insert(4);
    for n in &nodes[1..] {
        signal(n, "-CONT");
    }
    let writers = Writers::start(&nodes, 1);
    writers.more(5, &nodes).await;
    acknowledged.extend(writers.end().await);
    let now = primary(&nodes).await;
    for n in [&nodes[now], &d] {
        has_all(n, &acknowledged).await;
    }
    answered
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_without_its_lease_shows_nothing_and_acknowledges_what_a_replica_holds() {
    if skip() {
        return;
    }
    assert!(!reads_are_answered(&[]).await);
}

/// The same with a primary that never looks at its lease: the check above can fail.
#[cfg(feature = "faults")]
#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_answers_reads_without_its_lease_is_found() {
    if skip() {
        return;
    }
    assert!(reads_are_answered(&[("CANON_PLANTED", "lease.unasked")]).await);
}
