//! A cluster that runs itself, each server a process of its own: it grows, its primary is killed or stopped under writers that keep count, and no
//! person decides anything.

mod common;
#[path = "replication/helpers.rs"]
#[allow(dead_code)]
mod helpers;

#[path = "members/addresses.rs"]
mod addresses;
#[path = "members/adopting.rs"]
mod adopting;
#[path = "members/by_hand.rs"]
mod by_hand;
#[path = "tls/certificates.rs"]
mod certificates;
#[path = "members/cold_start.rs"]
mod cold_start;
#[path = "members/following.rs"]
mod following;
#[path = "members/hand_over.rs"]
mod hand_over;
#[path = "members/inside_tls.rs"]
mod inside_tls;
#[path = "members/joining.rs"]
mod joining;
#[path = "members/leaving.rs"]
mod leaving;
#[path = "members/losses.rs"]
mod losses;
#[path = "members/meant.rs"]
mod meant;
#[path = "members/operations.rs"]
mod operations;
#[path = "members/partitions.rs"]
mod partitions;
#[path = "clients/programs.rs"]
mod programs;
#[path = "members/restarting.rs"]
mod restarting;
#[path = "members/settings.rs"]
mod settings;
#[path = "members/sites.rs"]
mod sites;
#[path = "members/without_lease.rs"]
mod without_lease;
#[path = "members/witness.rs"]
mod witness;

use common::{Server, connect_to, free_port};
use helpers::*;
use std::collections::BTreeSet;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Only a hang reaches it.
const HANG: Duration = Duration::from_secs(180);

/// One member and its HTTP port.
struct Node {
    server: Server,
    http: u16,
}

async fn node(name: &str, join: Option<&Server>, more: &[(&str, &str)]) -> Node {
    let http = free_port();
    let at = format!("127.0.0.1:{http}");
    let join = join.map(|s| format!("{}:{}", s.host, s.port));
    let mut env = vec![("CANON_NODE_NAME", name), ("CANON_HTTP", at.as_str())];
    env.extend(join.as_deref().map(|j| ("CANON_CLUSTER_JOIN", j)));
    env.extend(more);
    let mut server = Server::canon(&env);
    server.launch();
    server.ready().await;
    Node { server, http }
}

/// Waits for what a node's metrics say.
async fn says(node: &Node, what: &str, fits: impl Fn(&str) -> bool) {
    let deadline = Instant::now() + HANG;
    loop {
        let (status, metrics) = get(node.http, "/metrics");
        if status == 200 && fits(&metrics) {
            return;
        }
        let seen: Vec<_> = metrics
            .lines()
            .filter(|l| l.starts_with("canon_member") || l.starts_with("canon_fail"))
            .collect();
        let log = node.server.log_tail();
        assert!(Instant::now() < deadline, "{what}: {seen:?}\n{log}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn of_three(more: &[(&str, &str)]) -> [Node; 3] {
    let a = node("a", None, more).await;
    let b = node("b", Some(&a.server), more).await;
    let c = node("c", Some(&b.server), more).await;
    for n in [&a, &b, &c] {
        can_fail_over(n).await;
    }
    [a, b, c]
}

/// Waits until this node says that the loss of the primary is followed by another one.
async fn can_fail_over(node: &Node) {
    says(node, "a fail-over is possible", |m| {
        m.contains("canon_failover{obstacle=\"\"} 1")
    })
    .await;
}

/// Waits until this node follows the primary.
async fn follows(node: &Node) {
    says(node, "it follows", |m| {
        m.contains("canon_role{role=\"replica\"} 1") && m.contains("canon_primary_connected 1")
    })
    .await;
}

/// Makes a server one of a build before levels: of the program that `CANON_PREVIOUS_BUILD` names, else one that says as little as that.
#[cfg(feature = "faults")]
fn of_previous_build() -> (&'static str, String) {
    match std::env::var("CANON_PREVIOUS_BUILD") {
        Ok(program) => (common::PROGRAM, program),
        Err(_) => ("CANON_PLANTED", "join.no_level".into()),
    }
}

/// `canon` with these arguments: whether it did, and what it said.
fn canon(arguments: &[&str]) -> (bool, String) {
    let done = Command::new(env!("CARGO_BIN_EXE_canon"))
        .args(arguments)
        .output()
        .expect("canon runs");
    let said = [done.stdout, done.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    (done.status.success(), said)
}

fn at(node: &Node) -> String {
    format!("{}:{}", node.server.host, node.server.port)
}

/// Writers that go to whichever node takes writes, and count what was acknowledged.
struct Writers {
    stop: Arc<AtomicBool>,
    acknowledged: Arc<Mutex<BTreeSet<i64>>>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Writers {
    /// Each start has numbers of its own: a duplicate key costs a writer its connection.
    fn start(nodes: &[Node], count: usize) -> Writers {
        static STARTS: AtomicI64 = AtomicI64::new(0);
        let configs = nodes.iter().map(|n| n.server.config()).collect();
        let from = 1 + 1_000_000 * STARTS.fetch_add(1, Ordering::SeqCst);
        Writers::start_at(configs, count, from)
    }

    /// The numbers begin with this one.
    fn start_at(configs: Vec<tokio_postgres::Config>, count: usize, from: i64) -> Writers {
        let stop = Arc::new(AtomicBool::new(false));
        let acknowledged: Arc<Mutex<BTreeSet<i64>>> = Arc::default();
        let next = Arc::new(AtomicI64::new(from));
        let tasks = (0..count).map(|i| {
            let (stop, acknowledged, next) = (stop.clone(), acknowledged.clone(), next.clone());
            let configs = configs.clone();
            tokio::spawn(async move {
                let mut at = i;
                while !stop.load(Ordering::SeqCst) {
                    at += 1;
                    let mut config = configs[at % configs.len()].clone();
                    config.connect_timeout(Duration::from_secs(1));
                    let connected =
                        tokio::time::timeout(Duration::from_secs(3), connect_to(&config));
                    let Ok(Ok(client)) = connected.await else {
                        tokio::time::sleep(Duration::from_millis(50)).await;
                        continue;
                    };
                    while !stop.load(Ordering::SeqCst) {
                        let n = next.fetch_add(1, Ordering::SeqCst);
                        let sql = format!("INSERT INTO kept VALUES ({n})");
                        // A server that is stopped answers nothing.
                        let done = client.batch_execute(&sql);
                        match tokio::time::timeout(Duration::from_secs(5), done).await {
                            Ok(Ok(())) => _ = acknowledged.lock().expect("whole").insert(n),
                            _ => break,
                        }
                    }
                }
            })
        });
        Writers {
            tasks: tasks.collect(),
            stop,
            acknowledged,
        }
    }

    fn count(&self) -> usize {
        self.acknowledged.lock().expect("whole").len()
    }

    /// Waits until so many more were acknowledged.
    async fn more(&self, n: usize, nodes: &[Node]) {
        let wanted = self.count() + n;
        let deadline = Instant::now() + HANG;
        while self.count() < wanted {
            if Instant::now() > deadline {
                for n in nodes {
                    eprintln!("{}", n.server.log_tail());
                }
                panic!("nothing is acknowledged any more");
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn end(self) -> BTreeSet<i64> {
        self.stop.store(true, Ordering::SeqCst);
        for t in self.tasks {
            t.await.expect("a writer");
        }
        let all = self.acknowledged.lock().expect("whole");
        all.clone()
    }
}

/// The node that leads, by its own word; it answers.
fn leader(nodes: &[Node]) -> Option<usize> {
    nodes.iter().position(|n| {
        let (status, metrics) = get(n.http, "/metrics");
        status == 200 && metrics.contains("canon_role{role=\"primary\"} 1")
    })
}

/// The same; waits until one does. On a busy machine another one may be about to lead.
async fn primary(nodes: &[Node]) -> usize {
    let deadline = Instant::now() + HANG;
    loop {
        if let Some(leads) = leader(nodes) {
            return leads;
        }
        let log = || {
            nodes
                .iter()
                .map(|n| n.server.log_tail())
                .collect::<String>()
        };
        assert!(Instant::now() < deadline, "none leads\n{}", log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Makes this node the primary; what was said last. It refuses while the members are about to agree on something, and the answer may be lost.
async fn hand_over(heir: &Node) -> String {
    let deadline = Instant::now() + HANG;
    loop {
        let (done, said) = canon(&["promote", "--server", &at(heir)]);
        if done || leader(std::slice::from_ref(heir)).is_some() {
            return said;
        }
        assert!(Instant::now() < deadline, "{said}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Takes a member out by the word of another one, which refuses while the members are about to agree on something.
async fn take_out(asked: &Node, name: &str) {
    let deadline = Instant::now() + HANG;
    loop {
        let server = at(asked);
        let (done, said) = canon(&["leave", "--server", &server, "--member", name]);
        // The answer before may have been lost.
        if done || said.contains("does not exist") {
            return;
        }
        assert!(Instant::now() < deadline, "{said}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The member leaves by its own word, and stops.
async fn leaves(node: &mut Node) -> std::process::ExitStatus {
    let deadline = Instant::now() + HANG;
    loop {
        let (done, said) = canon(&["leave", "--server", &at(node)]);
        let limit = match done {
            true => HANG,
            false => Duration::from_millis(50),
        };
        if let Some(status) = node.server.exited(limit).await {
            return status;
        }
        let log = || node.server.log_tail();
        assert!(!done && Instant::now() < deadline, "{said}\n{}", log());
    }
}

/// Runs this at whichever of them leads, until it is done. It must not matter whether it was done before.
async fn insist(nodes: &[Node], sql: &str) {
    let deadline = Instant::now() + HANG;
    loop {
        let c = connect_to(&nodes[primary(nodes).await].server.config()).await;
        if let Ok(c) = c
            && c.batch_execute(sql).await.is_ok()
        {
            return;
        }
        let log = || {
            nodes
                .iter()
                .map(|n| n.server.log_tail())
                .collect::<String>()
        };
        assert!(Instant::now() < deadline, "{sql} is not done\n{}", log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn signal(node: &Node, name: &str) {
    let pid = node.server.pid().to_string();
    let sent = Command::new("kill").args([name, &pid]).status();
    assert!(sent.expect("kill runs").success());
}

/// What a strong read finds there. None: the node does not serve just now, as one that starts again.
async fn kept(node: &Node) -> Option<BTreeSet<i64>> {
    let c = connect_to(&node.server.config()).await.ok()?;
    let found = c.query("SELECT n FROM kept", &[]).await.ok()?;
    Some(found.iter().map(|r| r.get(0)).collect())
}

/// A primary that another one has replaced starts again as a replica: its first answer counts.
async fn has_all(node: &Node, acknowledged: &BTreeSet<i64>) {
    let deadline = Instant::now() + HANG;
    let found = loop {
        if let Some(found) = kept(node).await {
            break found;
        }
        let log = || node.server.log_tail();
        assert!(Instant::now() < deadline, "it does not serve\n{}", log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let lost: Vec<_> = acknowledged.difference(&found).collect();
    assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
}

async fn prepare(nodes: &[Node]) {
    let c = nodes[0].server.connect().await;
    c.batch_execute("CREATE TABLE kept (n bigint PRIMARY KEY)")
        .await
        .expect("a table");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_is_killed_is_followed_by_another_and_comes_back_as_a_replica() {
    if skip() {
        return;
    }
    let mut nodes = of_three(&[]).await;
    prepare(&nodes).await;
    let writers = Writers::start(&nodes, 3);
    writers.more(50, &nodes).await;
    nodes[0].server.kill();
    // More than what was under way.
    writers.more(50, &nodes).await;
    let now = primary(&nodes[1..]).await + 1;

    nodes[0].server.launch();
    nodes[0].server.ready().await;
    follows(&nodes[0]).await;
    writers.more(50, &nodes).await;
    let acknowledged = writers.end().await;
    has_all(&nodes[now], &acknowledged).await;
    has_all(&nodes[0], &acknowledged).await;

    // The whole cluster without power: it comes back by itself.
    for n in &mut nodes {
        n.server.kill();
    }
    for n in &mut nodes {
        n.server.launch();
    }
    for n in &mut nodes {
        n.server.ready().await;
    }
    let writers = Writers::start(&nodes, 1);
    writers.more(10, &nodes).await;
    let later = writers.end().await;
    for n in &nodes {
        has_all(n, &later).await;
        has_all(n, &acknowledged).await;
    }
}

/// Stops the primary of three, has another one take over and write, and lets the old one go on with reads that came to it meanwhile. How many of these
/// have shown the state from before.
async fn old_states_shown_after_a_stop(more: &[(&str, &str)]) -> usize {
    let nodes = of_three(more).await;
    prepare(&nodes).await;
    let writers = Writers::start(&nodes, 3);
    writers.more(50, &nodes).await;
    let mut readers = Vec::new();
    for _ in 0..8 {
        readers.push(nodes[0].server.connect().await);
    }
    signal(&nodes[0], "-STOP");
    writers.more(50, &nodes).await;
    let insert = "INSERT INTO kept VALUES (-1) ON CONFLICT DO NOTHING";
    insist(&nodes[1..], insert).await;
    let reads: Vec<_> = readers
        .into_iter()
        .map(|c| tokio::spawn(async move { rows_or_error(&c).await }))
        .collect();
    // What they send lies in the kernel until the server goes on.
    tokio::time::sleep(Duration::from_millis(100)).await;
    signal(&nodes[0], "-CONT");
    let mut old = 0;
    for read in reads {
        // A session ends, or it is told that the node may lead no more.
        old += usize::from(read.await.expect("a reader") == Some(0));
    }
    follows(&nodes[0]).await;
    let acknowledged = writers.end().await;
    for n in &nodes {
        has_all(n, &acknowledged).await;
    }
    old
}

/// How many rows the node shows of the one that was written elsewhere; none: an error.
async fn rows_or_error(c: &tokio_postgres::Client) -> Option<usize> {
    let found = c.simple_query("SELECT n FROM kept WHERE n = -1").await;
    let row = |m: &tokio_postgres::SimpleQueryMessage| {
        matches!(m, tokio_postgres::SimpleQueryMessage::Row(_))
    };
    Some(found.ok()?.iter().filter(|m| row(m)).count())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_is_stopped_acknowledges_nothing_and_shows_nothing_old_when_it_goes_on() {
    if skip() {
        return;
    }
    assert_eq!(old_states_shown_after_a_stop(&[]).await, 0);
}

/// Stops two of three voters, so that the primary loses its lease. Whether a strong read at a fourth copy, which hears the primary, is answered. `policy`: how that
/// copy comes to its timestamps.
async fn is_answered_without_a_lease(more: &[(&str, &str)], policy: &str) -> bool {
    let nodes = of_three(more).await;
    prepare(&nodes).await;
    let d = node("d", Some(&nodes[0].server), more).await;
    follows(&d).await;
    says(&d, "it does not vote", |m| {
        m.contains("canon_member_votes{member=\"d\"} 0")
    })
    .await;
    let c = d.server.connect().await;
    rows(&c, "SET canon.read_timeout = '1s'").await;
    rows(&c, &format!("SET canon.read_policy = '{policy}'")).await;
    if policy == "lease" {
        says(&d, "it holds a read lease", |m| {
            m.contains("canon_read_lease_held 1")
        })
        .await;
    }
    rows(&c, "SELECT n FROM kept").await;
    for n in &nodes[1..] {
        signal(n, "-STOP");
    }
    says(&nodes[0], "its lease is over", |m| {
        m.contains("canon_lease_seconds 0\n")
    })
    .await;
    let read = c.simple_query("SELECT n FROM kept").await;
    for n in &nodes[1..] {
        signal(n, "-CONT");
    }
    if let Err(e) = &read {
        assert_eq!(common::sqlstate(e), "57014");
    }
    let deadline = Instant::now() + HANG;
    while c.simple_query("SELECT n FROM kept").await.is_err() {
        assert!(Instant::now() < deadline, "{}", d.server.log_tail());
    }
    read.is_ok()
}

/// Where commits wait for more than one replica, another primary may be named without one that is cut off together with the old primary.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_of_a_primary_without_its_lease_answers_no_strong_read() {
    if skip() {
        return;
    }
    for shared in ["true", "false"] {
        let shared = [("CANON_SHARED_MEMORY", shared)];
        let answered = is_answered_without_a_lease(&shared, "lamport+tracker").await;
        assert!(!answered, "{shared:?}");
    }
}

/// However slow the machine is, read leases are granted.
const LEASES: [(&str, &str); 3] = [
    ("CANON_LEASE_READS", "true"),
    ("CANON_LEASE_MAX_COMMIT_WAIT", "10s"),
    ("CANON_SHARED_MEMORY", "false"),
];

/// A read lease ends with the lease of the primary that has granted it, since another primary may be named without a word to its holder.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_with_a_read_lease_of_a_primary_without_its_lease_answers_no_strong_read() {
    if skip() {
        return;
    }
    assert!(!is_answered_without_a_lease(&LEASES, "lease").await);
}

/// The same where primaries grant read leases that reach beyond their own.
#[cfg(feature = "faults")]
#[tokio::test(flavor = "multi_thread")]
async fn a_read_lease_beyond_that_of_its_primary_is_found() {
    if skip() {
        return;
    }
    let planted = ("CANON_PLANTED", "lease.beyond_its_own");
    let planted = [&LEASES[..], &[planted]].concat();
    assert!(is_answered_without_a_lease(&planted, "lease").await);
}

#[cfg(feature = "faults")]
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_of_a_primary_that_does_not_look_at_its_lease_is_found() {
    if skip() {
        return;
    }
    let planted = [
        ("CANON_PLANTED", "lease.unasked"),
        ("CANON_SHARED_MEMORY", "false"),
    ];
    assert!(is_answered_without_a_lease(&planted, "lamport+tracker").await);
}

/// The same with a primary that never looks at its lease: the check above can fail. The members may tell it first that it leads no more.
#[cfg(feature = "faults")]
#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_does_not_look_at_its_lease_is_found() {
    if skip() {
        return;
    }
    let planted = [("CANON_PLANTED", "lease.unasked")];
    for _ in 0..6 {
        if old_states_shown_after_a_stop(&planted).await > 0 {
            return;
        }
    }
    panic!("no read has shown an old state");
}
