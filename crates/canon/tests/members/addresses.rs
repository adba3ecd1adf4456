//! Members that are started at other addresses than before.

use super::*;

async fn moves(node: &mut Node) {
    node.server.kill();
    node.server.port = free_port();
    node.server.launch();
    node.server.ready().await;
}

/// The founder votes alone, and leads the data and the consensus: only its own word can tell the other one where it is.
#[tokio::test(flavor = "multi_thread")]
async fn a_founder_that_moves_is_found_by_its_replica() {
    if skip() {
        return;
    }
    let mut a = node("a", None, &[]).await;
    let b = node("b", Some(&a.server), &[]).await;
    says(&a, "b is a member", |m| m.contains("member=\"b\"")).await;
    follows(&b).await;
    moves(&mut a).await;
    follows(&b).await;
    let c = a.server.connect().await;
    let sql = "CREATE TABLE kept (n bigint PRIMARY KEY); INSERT INTO kept VALUES (1)";
    c.batch_execute(sql).await.expect("written");
    // It goes to the primary from there.
    let c = b.server.connect().await;
    let sql = "INSERT INTO kept VALUES (2)";
    c.batch_execute(sql).await.expect("written");
    has_all(&b, &[1, 2].into()).await;
}

/// Each of three members moves in turn, the primary first. Then the loss of one is survived as before.
#[tokio::test(flavor = "multi_thread")]
async fn three_members_move_one_after_the_other() {
    if skip() {
        return;
    }
    let mut nodes = of_three(&[]).await;
    prepare(&nodes).await;
    for i in 0..3 {
        moves(&mut nodes[i]).await;
        for n in &nodes {
            can_fail_over(n).await;
        }
    }
    let writers = Writers::start(&nodes, 2);
    writers.more(20, &nodes).await;
    let first = primary(&nodes).await;
    nodes[first].server.kill();
    writers.more(20, &nodes).await;
    nodes[first].server.launch();
    nodes[first].server.ready().await;
    follows(&nodes[first]).await;
    let acknowledged = writers.end().await;
    has_all(&nodes[first], &acknowledged).await;
}
