//! Two servers, alone and with a witness.

use super::*;

/// A member without data, which answers no query.
pub fn witness(name: &str, join: &Server) -> Node {
    let http = free_port();
    let at = format!("127.0.0.1:{http}");
    let join = format!("{}:{}", join.host, join.port);
    let mut server = Server::canon(&[
        ("CANON_NODE_NAME", name),
        ("CANON_HTTP", &at),
        ("CANON_CLUSTER_JOIN", &join),
    ]);
    server.launch_as("witness", &[]);
    Node { server, http }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_servers_and_a_witness_fail_over_by_themselves() {
    if skip() {
        return;
    }
    let a = node("a", None, &[]).await;
    let b = node("b", Some(&a.server), &[]).await;
    let mut w = witness("w", &b.server);
    for n in [&a, &b, &w] {
        can_fail_over(n).await;
    }
    let mut nodes = [a, b];
    prepare(&nodes).await;
    let writers = Writers::start(&nodes, 3);
    writers.more(50, &nodes).await;
    nodes[0].server.kill();
    // Of two copies one is lost: the members agree to go on without it.
    writers.more(30, &nodes).await;
    assert_eq!(leader(&nodes), Some(1));
    nodes[0].server.launch();
    nodes[0].server.ready().await;
    follows(&nodes[0]).await;
    for n in [&nodes[0], &nodes[1], &w] {
        can_fail_over(n).await;
    }
    writers.more(50, &nodes).await;

    // The witness is missed by no commit, and comes back.
    w.server.kill();
    writers.more(50, &nodes).await;
    w.server.launch_as("witness", &[]);
    can_fail_over(&w).await;
    let told = connect_to(&w.server.config()).await;
    let told = told.expect_err("a witness takes no clients");
    assert_eq!(common::sqlstate(&told), "57P03");
    let mut acknowledged = writers.end().await;
    for n in &nodes {
        has_all(n, &acknowledged).await;
    }

    // Without power everywhere, and then without the primary once more.
    w.server.kill();
    for n in &mut nodes {
        n.server.kill();
    }
    w.server.launch_as("witness", &[]);
    for n in &mut nodes {
        n.server.launch();
    }
    for n in &mut nodes {
        n.server.ready().await;
    }
    for n in [&nodes[0], &nodes[1], &w] {
        can_fail_over(n).await;
    }
    let leads = primary(&nodes).await;
    nodes[leads].server.kill();
    let writers = Writers::start(&nodes, 3);
    writers.more(20, &nodes).await;
    acknowledged.extend(writers.end().await);
    has_all(&nodes[1 - leads], &acknowledged).await;
}

/// Keeps so many connections open that say nothing: one that is closed is opened again.
fn keep_silent(port: u16, count: usize, stop: Arc<AtomicBool>) -> std::thread::JoinHandle<usize> {
    use std::io::Read;
    use std::net::TcpStream;
    let open = move || {
        let stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
        stream.set_nonblocking(true).ok()?;
        Some(stream)
    };
    std::thread::spawn(move || {
        let mut all: Vec<Option<TcpStream>> = (0..count).map(|_| open()).collect();
        let mut closed = 0;
        while !stop.load(Ordering::SeqCst) {
            for stream in &mut all {
                let read = stream.as_mut().map(|s| s.read(&mut [0]));
                let waits = |e: &std::io::Error| e.kind() == std::io::ErrorKind::WouldBlock;
                if !matches!(&read, Some(Err(e)) if waits(e)) {
                    closed += 1;
                    *stream = open();
                }
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        closed
    })
}

/// Strangers hold all places of the witness for those that have not proven themselves. Members come in all the same.
#[tokio::test(flavor = "multi_thread")]
async fn silent_strangers_do_not_keep_members_out_of_a_witness() {
    if skip() {
        return;
    }
    let a = node("a", None, &[]).await;
    let b = node("b", Some(&a.server), &[]).await;
    let w = witness("w", &b.server);
    for n in [&a, &b, &w] {
        can_fail_over(n).await;
    }
    let mut nodes = [a, b];
    prepare(&nodes).await;
    // Its connections to the witness go with it.
    nodes[1].server.kill();
    let stop = Arc::new(AtomicBool::new(false));
    let strangers = keep_silent(w.server.port, 300, stop.clone());
    tokio::time::sleep(Duration::from_millis(500)).await;
    nodes[1].server.launch();
    nodes[1].server.ready().await;
    follows(&nodes[1]).await;
    can_fail_over(&nodes[1]).await;
    nodes[0].server.kill();
    let writers = Writers::start(&nodes[1..], 1);
    writers.more(10, &nodes).await;
    stop.store(true, Ordering::SeqCst);
    let closed = strangers.join().expect("they end");
    assert!(closed >= 44, "{closed} of 300 strangers had to go");
    let acknowledged = writers.end().await;
    has_all(&nodes[1], &acknowledged).await;
}

/// Without a witness the loss of one stops the other one's commits only until the members have agreed to go on.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_servers_the_one_that_votes_goes_on_alone() {
    if skip() {
        return;
    }
    let a = node("a", None, &[]).await;
    let b = node("b", Some(&a.server), &[]).await;
    let mut nodes = [a, b];
    prepare(&nodes).await;
    says(&nodes[0], "commits are held by the other one", |m| {
        m.contains("canon_cluster_promised 1")
    })
    .await;
    nodes[1].server.kill();
    let writers = Writers::start(&nodes[..1], 2);
    writers.more(30, &nodes).await;
    nodes[1].server.launch();
    nodes[1].server.ready().await;
    says(&nodes[0], "commits are held by the other one again", |m| {
        m.contains("canon_cluster_promised 1")
    })
    .await;
    let acknowledged = writers.end().await;
    for n in &nodes {
        has_all(n, &acknowledged).await;
    }
}

/// The replica of a primary that is never idle never has all that is acknowledged. It counts again all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_counts_again_while_commits_go_on() {
    if skip() {
        return;
    }
    let a = node("a", None, &[]).await;
    let b = node("b", Some(&a.server), &[]).await;
    let mut nodes = [a, b];
    prepare(&nodes).await;
    let promised = |m: &str| m.contains("canon_cluster_promised 1");
    says(&nodes[0], "commits are held by the other one", promised).await;
    nodes[1].server.kill();
    // These are acknowledged before they are on any disk.
    let stop = Arc::new(AtomicBool::new(false));
    let mut busy = Vec::new();
    for first in [-1, -2] {
        let (c, stop) = (nodes[0].server.connect().await, stop.clone());
        busy.push(tokio::spawn(async move {
            rows(&c, "SET synchronous_commit = off").await;
            for n in 0.. {
                if stop.load(Ordering::SeqCst) {
                    break;
                }
                let sql = format!("INSERT INTO kept VALUES ({})", first - 2 * n);
                rows(&c, &sql).await;
            }
        }));
    }
    says(&nodes[0], "the members go on without it", |m| {
        m.contains("canon_cluster_degraded 1")
    })
    .await;
    nodes[1].server.launch();
    nodes[1].server.ready().await;
    says(&nodes[0], "commits are held by it again", promised).await;
    stop.store(true, Ordering::SeqCst);
    for task in busy {
        task.await.expect("a writer");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_is_a_servers_or_a_witness() {
    if skip() {
        return;
    }
    let a = node("a", None, &[]).await;
    let mut alone = Server::canon(&[("CANON_NODE_NAME", "w")]);
    alone.launch_as("witness", &[]);
    let ended = alone.exited(HANG).await;
    assert!(ended.is_some_and(|s| !s.success()));
    let said = alone.log_tail();
    assert!(said.contains("belongs to no cluster yet"), "{said}");
    let mut w = witness("w", &a.server);
    says(&a, "it votes", |m| {
        m.contains("canon_member_copy{member=\"w\"} 0")
    })
    .await;
    w.server.kill();
    w.server.launch();
    let ended = w.server.exited(HANG).await;
    assert!(ended.is_some_and(|s| !s.success()));
    let said = w.server.log_tail();
    assert!(said.contains("start it with canon witness"), "{said}");
}

/// `canon proxy`, which ends with the test.
pub struct Proxy(std::process::Child);

impl Proxy {
    pub fn start(arguments: &[&str]) -> Proxy {
        let started = Command::new(env!("CARGO_BIN_EXE_canon"))
            .arg("proxy")
            .args(arguments)
            .spawn();
        Proxy(started.expect("canon runs"))
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// The third vote comes from the machine of the proxy, and goes with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_has_a_witness_in_its_process() {
    if skip() {
        return;
    }
    let a = node("a", None, &[]).await;
    let b = node("b", Some(&a.server), &[]).await;
    let scratch = tempfile::tempdir().expect("a directory");
    let directory = scratch.path().join("witness");
    let directory = directory.to_str().expect("a name");
    let secret = common::cluster_secret(scratch.path());
    let secret = secret.to_str().expect("a name");
    let (door, votes) = (free_port(), free_port());
    let listen = format!("127.0.0.1:{door}");
    let votes = format!("127.0.0.1:{votes}");
    let all = format!("{},{}", at(&a), at(&b));
    let nodes_and = ["--nodes", &all, "--listen", &listen];
    let mut arguments = nodes_and.to_vec();
    arguments.extend(["--cluster-secret-file", secret, "--witness", directory]);
    let (said, why) = canon(&[&["proxy"], &arguments[..]].concat());
    assert!(!said && why.contains("--witness-listen"), "{why}");
    arguments.extend(["--witness-listen", &votes]);
    let proxy = Proxy::start(&arguments);
    for n in [&a, &b] {
        can_fail_over(n).await;
    }
    let mut nodes = [a, b];
    prepare(&nodes).await;
    let mut config = tokio_postgres::Config::new();
    config.host("127.0.0.1").port(door);
    config.user("canon").dbname("canon");
    let writers = Writers::start_at(vec![config], 2, 1);
    writers.more(30, &nodes).await;
    nodes[0].server.kill();
    writers.more(30, &nodes).await;
    nodes[0].server.launch();
    nodes[0].server.ready().await;
    can_fail_over(&nodes[0]).await;
    // It comes back with what it has voted.
    drop(proxy);
    says(&nodes[0], "a vote is missing", |m| {
        m.contains("canon_failover{obstacle=\"of 2 votes")
    })
    .await;
    let _proxy = Proxy::start(&arguments);
    can_fail_over(&nodes[0]).await;
    writers.more(30, &nodes).await;
    let acknowledged = writers.end().await;
    for n in &nodes {
        has_all(n, &acknowledged).await;
    }
}
