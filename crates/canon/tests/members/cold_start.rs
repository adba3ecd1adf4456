//! The whole cluster without power: servers come back in any order, one of them perhaps late, and one with less log than it had.
//!
//! ```text
//! holder    has each acknowledged commit on its disk, and loses what it had received behind them and not synced
//! laggard   was stopped before the last acknowledged commits
//! primary   has all. It may be the last to come back
//! ```
//! Two of three start, in this order or the other, and serve before the third one comes. No person says which of them was newest.
//!
//! A lost tail is made in the files of a server that is down: the last bytes of its log are zeros, and its anchor is of before. Commits in it were not promised to
//! survive where that tail was all that was left: at `off` nothing is, and at `remote_write` the primary's own disk counts.

use super::*;

/// What the tail of the holder holds: each row is of about 3 kB.
const ROWS: i64 = 30;
/// How much of it is lost: less than the rows take.
const TAIL: usize = 40_000;

/// Rows that only a server's unsynced log may hold, acknowledged at this level. The holder has received them.
async fn unsynced(primary: &Node, holder: &Node, level: &str, first: i64) {
    let c = primary.server.connect().await;
    rows(&c, &format!("SET synchronous_commit = {level}")).await;
    for n in first..first + ROWS {
        let sql = format!("INSERT INTO bulk VALUES ({n}, repeat('x', 3000))");
        rows(&c, &sql).await;
    }
    let r = holder.server.connect().await;
    until(&r, &in_bulk(first), &ROWS.to_string()).await;
}

fn in_bulk(first: i64) -> String {
    let last = first + ROWS - 1;
    format!("SELECT count(*) FROM bulk WHERE n BETWEEN {first} AND {last}")
}

fn without_power(nodes: &mut [Node]) {
    for n in &*nodes {
        n.server.kill_now();
    }
    for n in nodes {
        n.server.kill();
    }
}

/// Starts this server, and waits until its process answers; it may not serve.
async fn comes_back(node: &mut Node) {
    node.server.launch();
    says(node, "it is there", |_| true).await;
}

/// The primary, the holder and the laggard by their places in `nodes`.
struct Parts {
    primary: usize,
    holder: usize,
    laggard: usize,
}

/// One loss of power. `order`: which of primary, holder and laggard (0, 1, 2) come back first, second and last.
async fn power_is_lost(
    nodes: &mut [Node],
    order: [usize; 3],
    round: i64,
    acknowledged: &mut BTreeSet<i64>,
) {
    let primary = primary(nodes).await;
    let others: Vec<usize> = (0..3).filter(|i| *i != primary).collect();
    let at = usize::from(round % 2 == 0);
    let p = Parts {
        primary,
        holder: others[at],
        laggard: others[1 - at],
    };
    let writers = Writers::start(nodes, 2);
    writers.more(20, nodes).await;
    let anchor = nodes[p.holder].server.data_dir().join("CANON_ANCHOR");
    let old = std::fs::read(&anchor).expect("an anchor");
    signal(&nodes[p.laggard], "-STOP");
    writers.more(20, nodes).await;
    acknowledged.extend(writers.end().await);
    let early = order[..2].contains(&0);
    let level = if early { "remote_write" } else { "off" };
    let first = round * 1000;
    unsynced(&nodes[p.primary], &nodes[p.holder], level, first).await;
    without_power(nodes);
    zero_tail(&nodes[p.holder].server.data_dir(), TAIL);
    std::fs::write(&anchor, old).expect("written");

    let order = order.map(|i| [p.primary, p.holder, p.laggard][i]);
    for i in &order[..2] {
        comes_back(&mut nodes[*i]).await;
    }
    for i in &order[..2] {
        nodes[*i].server.ready().await;
    }
    // It was alone with the other one when it was named.
    let writers = Writers::start(nodes, 1);
    writers.more(5, nodes).await;
    let later = writers.end().await;
    for i in &order[..2] {
        has_all(&nodes[*i], acknowledged).await;
        has_all(&nodes[*i], &later).await;
    }
    acknowledged.extend(later);
    let late = order[2];
    comes_back(&mut nodes[late]).await;
    nodes[late].server.ready().await;
    follows(&nodes[late]).await;
    for n in &*nodes {
        can_fail_over(n).await;
        has_all(n, acknowledged).await;
        if early {
            let c = n.server.connect().await;
            assert_eq!(one(&c, &in_bulk(first)).await, ROWS.to_string());
        }
    }
}

async fn with_bulk(nodes: &[Node]) {
    prepare(nodes).await;
    let c = nodes[0].server.connect().await;
    rows(&c, "CREATE TABLE bulk (n bigint PRIMARY KEY, v text)").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_loss_of_power_any_two_of_three_go_on_with_all_that_was_acknowledged() {
    if skip() {
        return;
    }
    let mut nodes = of_three(&[]).await;
    with_bulk(&nodes).await;
    let mut acknowledged = BTreeSet::new();
    // Primary 0, holder 1, laggard 2.
    let orders = [[1, 2, 0], [2, 1, 0], [0, 2, 1], [1, 0, 2], [2, 0, 1]];
    for (round, order) in (1..).zip(orders) {
        power_is_lost(&mut nodes, order, round, &mut acknowledged).await;
    }
}

/// The primary of two servers with a witness is late, and the other one has lost what it had not synced.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_loss_of_power_a_server_and_a_witness_go_on_with_all_that_was_acknowledged() {
    if skip() {
        return;
    }
    let a = node("a", None, &[]).await;
    let b = node("b", Some(&a.server), &[]).await;
    let mut w = witness::witness("w", &b.server);
    let mut nodes = [a, b];
    with_bulk(&nodes).await;
    let mut acknowledged = BTreeSet::new();
    for round in 1..=2 {
        for n in nodes.iter().chain([&w]) {
            can_fail_over(n).await;
        }
        let leads = primary(&nodes).await;
        let other = 1 - leads;
        let writers = Writers::start(&nodes, 2);
        writers.more(20, &nodes).await;
        let anchor = nodes[other].server.data_dir().join("CANON_ANCHOR");
        let old = std::fs::read(&anchor).expect("an anchor");
        acknowledged.extend(writers.end().await);
        unsynced(&nodes[leads], &nodes[other], "off", round * 1000).await;
        w.server.kill_now();
        without_power(&mut nodes);
        w.server.kill();
        zero_tail(&nodes[other].server.data_dir(), TAIL);
        std::fs::write(&anchor, old).expect("written");
        if round == 1 {
            w.server.launch_as("witness", &[]);
            comes_back(&mut nodes[other]).await;
        } else {
            comes_back(&mut nodes[other]).await;
            w.server.launch_as("witness", &[]);
        }
        nodes[other].server.ready().await;
        let writers = Writers::start(&nodes, 1);
        writers.more(5, &nodes).await;
        acknowledged.extend(writers.end().await);
        has_all(&nodes[other], &acknowledged).await;
        comes_back(&mut nodes[leads]).await;
        nodes[leads].server.ready().await;
        follows(&nodes[leads]).await;
        has_all(&nodes[leads], &acknowledged).await;
    }
}
