//! A member, of which a server cannot start again in the process that it ended in.

use super::*;

/// Something holds the node of the old primary after a hand-over, so its directory stays locked. The process begins anew under its number, and follows.
#[cfg(feature = "faults")]
#[tokio::test(flavor = "multi_thread")]
async fn a_member_whose_node_is_held_begins_anew_as_a_process_and_follows() {
    if skip() {
        return;
    }
    let a = node("a", None, &[("CANON_PLANTED", "server.held_at_end")]).await;
    let b = node("b", Some(&a.server), &[]).await;
    let c = node("c", Some(&b.server), &[]).await;
    for n in [&a, &b, &c] {
        can_fail_over(n).await;
    }
    let mut nodes = [a, b, c];
    prepare(&nodes).await;
    let writers = Writers::start(&nodes, 2);
    writers.more(20, &nodes).await;
    hand_over(&nodes[1]).await;
    let deadline = Instant::now() + HANG;
    let log = loop {
        let log = nodes[0].server.log_tail();
        if log.contains("it begins anew") {
            break log;
        }
        assert!(Instant::now() < deadline, "{log}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    let held = |l: &str| l.contains("held_by") && l.contains("work for the members");
    assert!(log.lines().any(held), "{log}");
    follows(&nodes[0]).await;
    can_fail_over(&nodes[0]).await;
    writers.more(20, &nodes).await;
    let acknowledged = writers.end().await;
    has_all(&nodes[0], &acknowledged).await;
    // It is the process that was started: its end is seen.
    nodes[0].server.kill();
}
