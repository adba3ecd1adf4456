//! Three members in network namespaces, whose links are cut one by one, each direction for itself, under clients. The history of the clients is checked.
//!
//! ```text
//! node 0 ──┐               a rule of the switch drops what goes from one address to another:
//! node 1 ──┼── switch ──┬── clients 3      the sender hears nothing of that
//! node 2 ──┘            └── clients 4
//! ```
//! The clients run list-append transactions at any node that answers, and `workload::list_append` judges what they saw. It finds an acknowledged append that
//! is lost, one that two primaries took, and a read that is older than an acknowledgement before it.
//!
//! Namespaces need root. Where `ip netns add` is refused the test says so and ends.
//!
//! Left out on purpose: delays, and packets that are lost now and then.

use super::*;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::os::fd::AsFd;
use std::sync::atomic::AtomicUsize;
use tokio_postgres::{Client, Config, Error, SimpleQueryMessage};
use workload::list_append::{Generator, Level, Op, Outcome, Plan, Shape, Txn, check};

/// Two lots of clients, each behind a link of its own.
const CLIENTS: [usize; 2] = [3, 4];
/// A client that waits longer for an answer leaves.
const SILENCE: Duration = Duration::from_secs(4);

fn ip(arguments: &[&str]) -> bool {
    let done = Command::new("ip").args(arguments).output();
    done.is_ok_and(|d| d.status.success())
}

/// A switch, and a namespace behind each of its ports.
struct Net {
    switch: String,
    ports: Vec<String>,
    cuts: Mutex<Vec<(usize, usize)>>,
}

impl Net {
    /// None: this user may not.
    fn new(ports: usize) -> Option<Net> {
        static NETS: AtomicUsize = AtomicUsize::new(0);
        let (process, number) = (std::process::id(), NETS.fetch_add(1, Ordering::SeqCst));
        let tag = format!("{process}{}", ["", "b", "c"][number]);
        let net = Net {
            switch: format!("canon-{tag}-s"),
            ports: (0..ports).map(|i| format!("canon-{tag}-{i}")).collect(),
            cuts: Mutex::default(),
        };
        let switch = net.switch.as_str();
        if !ip(&["netns", "add", switch]) {
            return None;
        }
        let forward = "echo 1 > /proc/sys/net/ipv4/ip_forward";
        let mut made = ip(&["netns", "exec", switch, "sh", "-c", forward]);
        for (i, port) in net.ports.iter().enumerate() {
            let (link, gate) = (format!("port{i}"), format!("10.77.{i}.1"));
            let (near, far) = (format!("{gate}/30"), format!("{}/30", address(i)));
            let all: [&[&str]; 7] = [
                &["netns", "add", port],
                &[
                    "link", "add", &link, "netns", switch, "type", "veth", "peer", "name", "eth0",
                    "netns", port,
                ],
                &["-n", switch, "addr", "add", &near, "dev", &link],
                &["-n", switch, "link", "set", &link, "up"],
                &["-n", port, "addr", "add", &far, "dev", "eth0"],
                &["-n", port, "link", "set", "eth0", "up"],
                &["-n", port, "link", "set", "lo", "up"],
            ];
            made &= all.iter().all(|command| ip(command));
            made &= ip(&["-n", port, "route", "add", "default", "via", &gate]);
        }
        made.then_some(net)
    }

    fn rule(&self, what: &str, from: usize, to: usize) {
        let (from, to) = (address(from), address(to));
        let done = ip(&[
            "-n",
            &self.switch,
            "rule",
            what,
            "from",
            &from,
            "to",
            &to,
            "blackhole",
        ]);
        assert!(done, "ip rule {what} from {from} to {to}");
    }

    /// What goes this way is lost from now on.
    fn cut(&self, ways: &[(usize, usize)]) {
        for (from, to) in ways {
            self.rule("add", *from, *to);
            self.cuts.lock().expect("whole").push((*from, *to));
        }
    }

    fn heal(&self) {
        for (from, to) in std::mem::take(&mut *self.cuts.lock().expect("whole")) {
            self.rule("del", from, to);
        }
    }

    /// Has the calling thread open its sockets behind this port.
    fn enter(&self, port: usize) {
        let name = format!("/run/netns/{}", self.ports[port]);
        let file = std::fs::File::open(name).expect("a namespace");
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
            .expect("root may enter it");
    }

    /// What a node's metrics say; empty: no answer.
    fn metrics(&self, port: usize, http: u16) -> String {
        let ask = || {
            self.enter(port);
            get(http, "/metrics").1
        };
        std::thread::scope(|s| s.spawn(ask).join().expect("it asks"))
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for name in self.ports.iter().chain([&self.switch]) {
            ip(&["netns", "del", name]);
        }
    }
}

fn address(port: usize) -> String {
    format!("10.77.{port}.2")
}

fn member_in(net: &Net, i: usize, join: Option<&Server>) -> Node {
    let join = join.map(|s| format!("{}:{}", s.host, s.port));
    let more = join.as_deref().map(|j| ("CANON_CLUSTER_JOIN", j));
    server_in(net, i, more)
}

fn server_in(net: &Net, i: usize, more: Option<(&str, &str)>) -> Node {
    let http = free_port();
    let at = format!("127.0.0.1:{http}");
    let name = ["a", "b", "c"][i];
    let mut env = vec![
        ("CANON_NODE_NAME", name),
        ("CANON_HTTP", at.as_str()),
        (common::NETNS, net.ports[i].as_str()),
        ("CANON_ALLOW_PLAIN_NETWORK", "true"),
        ("CANON_ALLOW_PASSWORDLESS_NETWORK", "true"),
        // All that passes between them goes over the links.
        ("CANON_SHARED_MEMORY", "false"),
    ];
    env.extend(more);
    let mut server = Server::canon(&env);
    server.host = address(i);
    server.launch();
    Node { server, http }
}

/// Waits until this holds for what all nodes say.
fn until(net: &Net, nodes: &[Node], what: &str, holds: impl Fn(&[String]) -> bool) {
    let deadline = Instant::now() + HANG;
    loop {
        let all = nodes.iter().enumerate();
        let said: Vec<String> = all.map(|(i, n)| net.metrics(i, n.http)).collect();
        if holds(&said) {
            return;
        }
        if Instant::now() > deadline {
            for (node, said) in nodes.iter().zip(&said) {
                let lines = said.lines().filter(|l| l.starts_with("canon_fail"));
                eprintln!(
                    "{:?}\n{}",
                    lines.collect::<Vec<_>>(),
                    node.server.log_tail()
                );
            }
            panic!("for too long it is not so that {what}");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn leads(said: &str) -> bool {
    said.contains("canon_role{role=\"primary\"} 1")
}

/// One leads, the others follow it, and the loss of any is survived.
fn is_whole(said: &[String]) -> bool {
    let fails_over = |s: &String| s.contains("canon_failover{obstacle=\"\"} 1");
    let follows = |s: &&String| s.contains("canon_primary_connected 1");
    said.iter().all(fails_over)
        && said.iter().filter(|s| leads(s)).count() == 1
        && said.iter().filter(|s| !leads(s)).all(|s| follows(&s))
}

/// The clients, and what they have seen.
struct Clients {
    stop: Arc<AtomicBool>,
    committed: Arc<AtomicUsize>,
    threads: Vec<std::thread::JoinHandle<Vec<Txn>>>,
}

async fn connect(config: &Config) -> Option<Client> {
    let connected = tokio::time::timeout(SILENCE / 2, connect_to(config));
    connected.await.ok()?.ok()
}

/// The first two columns of all rows.
async fn ask(c: &Client, sql: &str) -> Result<Vec<(u64, String)>, Error> {
    let found = c.simple_query(sql).await?;
    let row = |m: &SimpleQueryMessage| match m {
        SimpleQueryMessage::Row(r) => {
            let key = r.get(0).expect("a key").parse().expect("a number");
            Some((key, r.get(1).expect("a list").to_owned()))
        }
        _ => None,
    };
    Ok(found.iter().filter_map(row).collect())
}

fn list(rows: &[(u64, String)], key: u64) -> Vec<u64> {
    let found = rows.iter().find(|r| r.0 == key);
    let numbers = found.map(|r| r.1.split(',').map(|n| n.parse().expect("a number")));
    numbers.map_or(vec![], Iterator::collect)
}

/// Executes the operations, and adds to `ops` what was done and seen.
async fn execute(c: &Client, plans: &[Plan], ops: &mut Vec<Op>) -> Result<(), Error> {
    for plan in plans {
        match *plan {
            Plan::Append(key, value) => {
                // Noted first: whether it happened may stay unknown.
                ops.push(Op::Append(key, value));
                let sql = format!(
                    "INSERT INTO lists VALUES ({key}, '{value}') \
                     ON CONFLICT (k) DO UPDATE SET v = lists.v || ',' || excluded.v"
                );
                c.batch_execute(&sql).await?;
            }
            Plan::Read(key) => {
                let rows = ask(c, &format!("SELECT k, v FROM lists WHERE k = {key}")).await?;
                ops.push(Op::Read(key, list(&rows, key)));
            }
            Plan::ReadRange(low, high) => {
                let sql = format!("SELECT k, v FROM lists WHERE k BETWEEN {low} AND {high}");
                let rows = ask(c, &sql).await?;
                ops.extend((low..=high).map(|key| Op::Read(key, list(&rows, key))));
            }
        }
    }
    Ok(())
}

/// Runs one transaction: how it ended, and whether the session may go on.
async fn transaction(c: &Client, plans: &[Plan], ops: &mut Vec<Op>) -> (Outcome, bool) {
    let in_time = async |sql: &str| tokio::time::timeout(SILENCE, c.batch_execute(sql)).await;
    let ended = |done| match done {
        Ok(Ok(())) => (Outcome::Ok, true),
        Ok(Err(e)) if ["40001", "40P01"].contains(&common::sqlstate(&e).as_str()) => {
            (Outcome::Fail, true)
        }
        Ok(Err(_)) | Err(_) => (Outcome::Unknown, false),
    };
    if plans.len() == 1 {
        return ended(tokio::time::timeout(SILENCE, execute(c, plans, ops)).await);
    }
    if !matches!(in_time("BEGIN").await, Ok(Ok(()))) {
        return (Outcome::Fail, false);
    }
    // COMMIT was not sent, so it cannot have committed.
    match tokio::time::timeout(SILENCE, execute(c, plans, ops)).await {
        Ok(Ok(())) => {}
        Ok(Err(_)) => {
            let goes_on = matches!(in_time("ROLLBACK").await, Ok(Ok(())));
            return (Outcome::Fail, goes_on);
        }
        Err(_) => return (Outcome::Fail, false),
    }
    ended(in_time("COMMIT").await)
}

impl Clients {
    fn start(net: &Arc<Net>, nodes: &[Node], generator: &Arc<Mutex<Generator>>) -> Clients {
        let (stop, committed) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let begin = Instant::now();
        let configs: Vec<Config> = nodes.iter().map(|n| n.server.config()).collect();
        let one = |i: usize| {
            let (net, generator, configs) = (net.clone(), generator.clone(), configs.clone());
            let (stop, committed): (_, Arc<AtomicUsize>) = (stop.clone(), Arc::clone(&committed));
            std::thread::spawn(move || {
                net.enter(CLIENTS[i % 2]);
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build();
                runtime.expect("a runtime").block_on(async {
                    let mut history = Vec::new();
                    let now = || begin.elapsed().as_nanos() as u64;
                    let mut at = i;
                    while !stop.load(Ordering::SeqCst) {
                        at += 1;
                        let Some(c) = connect(&configs[at % configs.len()]).await else {
                            tokio::time::sleep(Duration::from_millis(50)).await;
                            continue;
                        };
                        let mut goes_on = true;
                        while goes_on && !stop.load(Ordering::SeqCst) {
                            let plans = generator.lock().expect("whole").next_txn();
                            let mut ops = Vec::new();
                            let invoke = now();
                            let (outcome, on) = transaction(&c, &plans, &mut ops).await;
                            goes_on = on;
                            let writes = ops.iter().any(|o| matches!(o, Op::Append(..)));
                            let done = outcome == Outcome::Ok && writes;
                            committed.fetch_add(usize::from(done), Ordering::SeqCst);
                            let complete = now();
                            history.push(Txn {
                                site: at % configs.len(),
                                invoke,
                                complete,
                                outcome,
                                ops,
                            });
                            // What is checked is long enough.
                            tokio::time::sleep(Duration::from_millis(10)).await;
                        }
                    }
                    history
                })
            })
        };
        let threads = (0..4).map(one).collect();
        Clients {
            stop,
            committed,
            threads,
        }
    }

    /// Waits until so many more have committed.
    fn more(&self, n: usize, nodes: &[Node], when: &str, stuck: impl Fn()) {
        let wanted = self.committed.load(Ordering::SeqCst) + n;
        let deadline = Instant::now() + HANG;
        while self.committed.load(Ordering::SeqCst) < wanted {
            if Instant::now() > deadline {
                stuck();
                for n in nodes {
                    eprintln!("{}", n.server.log_tail());
                }
                panic!("nothing is committed any more while {when}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn end(self) -> Vec<Txn> {
        self.stop.store(true, Ordering::SeqCst);
        let all = self.threads.into_iter();
        all.flat_map(|t| t.join().expect("a client ends")).collect()
    }
}

/// The shapes: their names, what is cut between the primary `p`, the replicas `x` and `y` and the clients, and whether some client still commits.
fn shapes(p: usize, x: usize, y: usize) -> Vec<(&'static str, Vec<(usize, usize)>, bool)> {
    let both = |a, b| vec![(a, b), (b, a)];
    let c = CLIENTS[0];
    let with_client = [both(p, x), both(p, y), both(c, x), both(c, y)].concat();
    vec![
        (
            "the primary is cut off",
            [both(p, x), both(p, y)].concat(),
            true,
        ),
        ("the primary lacks one replica", both(p, x), true),
        ("what the primary sends is lost", vec![(p, x), (p, y)], true),
        (
            "what goes to the primary is lost",
            vec![(x, p), (y, p)],
            true,
        ),
        (
            "a replica is cut off",
            [both(x, p), both(x, y)].concat(),
            true,
        ),
        ("the replicas lack each other", both(x, y), true),
        (
            "no two reach each other",
            [both(p, x), both(p, y), both(x, y)].concat(),
            false,
        ),
        (
            "the ring is cut, each link in one direction",
            vec![(p, x), (x, y), (y, p)],
            false,
        ),
        (
            "the primary is cut off with some of the clients",
            with_client,
            true,
        ),
    ]
}

/// Each shape in turn. Nothing acknowledged is lost, no two primaries commit, no strong read is old, and each time the cluster is whole again by itself.
#[test]
fn partitions_of_every_shape_lose_nothing_and_split_nothing() {
    if skip() {
        return;
    }
    let Some(net) = Net::new(5).map(Arc::new) else {
        eprintln!("skipped: this user may make no network namespaces (ip netns add)");
        return;
    };
    let mut nodes: Vec<Node> = Vec::new();
    for i in 0..3 {
        let node = member_in(&net, i, nodes.last().map(|n| &n.server));
        nodes.push(node);
        // One that joins asks until it is let in.
        until(&net, &nodes, "it serves", |said| {
            said.iter()
                .all(|s| leads(s) || s.contains("canon_primary_connected 1"))
        });
    }
    until(&net, &nodes, "a fail-over is possible", is_whole);
    let table = "CREATE TABLE IF NOT EXISTS lists (k int PRIMARY KEY, v text NOT NULL)";
    let configs: Vec<Config> = nodes.iter().map(|n| n.server.config()).collect();
    let ask_at = |i: usize, sql: &str| {
        let run = || {
            net.enter(CLIENTS[0]);
            let runtime = tokio::runtime::Runtime::new().expect("a runtime");
            runtime.block_on(async { ask(&connect_to(&configs[i]).await?, sql).await })
        };
        std::thread::scope(|s| s.spawn(run).join().expect("it asks"))
    };
    // A node serves no client while it starts again, and answers no strong read without its lease.
    let at_node = |i: usize, sql: &str| {
        let deadline = Instant::now() + HANG;
        loop {
            match ask_at(i, sql) {
                Ok(rows) => return rows,
                Err(e) => assert!(Instant::now() < deadline, "{sql}: {e:?}"),
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    at_node(0, table);
    let generator = Arc::new(Mutex::new(Generator::new(7, Shape::default())));
    let clients = Clients::start(&net, &nodes, &generator);
    // What keeps clients from committing.
    let stuck = || {
        for (i, n) in nodes.iter().enumerate() {
            let said = net.metrics(i, n.http);
            let told = [
                "canon_role",
                "canon_term",
                "canon_lease",
                "canon_replica",
                "canon_failover",
                "canon_member",
            ];
            let lines = said
                .lines()
                .filter(|l| told.iter().any(|t| l.starts_with(t)));
            eprintln!("{}: {:#?}", ["a", "b", "c"][i], lines.collect::<Vec<_>>());
            if leads(&said) {
                let sessions = "SELECT pid, application_name, client_addr, state, wait_event_type, wait_event, query FROM pg_stat_activity";
                eprintln!("{:#?}", ask_at(i, sessions));
                eprintln!(
                    "{:#?}",
                    ask_at(i, "SELECT pid, locktype, mode, granted FROM pg_locks")
                );
            }
        }
    };
    for n in 0..shapes(0, 1, 2).len() {
        let leads_now = |i: &usize| leads(&net.metrics(*i, nodes[*i].http));
        let deadline = Instant::now() + HANG;
        let p = loop {
            if let Some(p) = (0..3).find(leads_now) {
                break p;
            }
            assert!(Instant::now() < deadline, "none leads");
        };
        let (x, y) = ((p + 1) % 3, (p + 2) % 3);
        let (what, ways, commits) = shapes(p, x, y).swap_remove(n);
        clients.more(20, &nodes, "all is whole", stuck);
        let begun = Instant::now();
        net.cut(&ways);
        match commits {
            true => clients.more(40, &nodes, what, stuck),
            // Longer than a lease.
            false => std::thread::sleep(Duration::from_secs(4)),
        }
        println!("{what}: {:?}", begun.elapsed());
        net.heal();
        until(&net, &nodes, "all is whole again", is_whole);
    }
    clients.more(20, &nodes, "all is whole", stuck);
    let mut history = clients.end();
    until(&net, &nodes, "all is whole at the end", is_whole);
    let all: Vec<_> = (0..3)
        .map(|i| at_node(i, "SELECT k, v FROM lists ORDER BY k"))
        .collect();
    assert!(all.iter().all(|rows| *rows == all[0]), "copies differ");
    // So that no append stays unseen.
    let last = history.iter().map(|t| t.complete).max().unwrap_or(0);
    let keys = 0..generator.lock().expect("whole").keys();
    history.push(Txn {
        site: 0,
        invoke: last + 1,
        complete: last + 2,
        outcome: Outcome::Ok,
        ops: keys.map(|k| Op::Read(k, list(&all[0], k))).collect(),
    });
    let report = check(&history);
    let violations = report.violations(Level::StrictSerializable);
    println!("{} transactions", history.len());
    assert!(
        violations.is_empty(),
        "{} violations: {}",
        violations.len(),
        violations[0]
    );
}

/// A transaction at a replica has locked a row at the primary, and the replica is cut off. The row is free again when the primary has noticed that, long before
/// the kernel gives up what is under way (`net.ipv4.tcp_retries2`).
#[test]
fn what_a_client_of_a_replica_that_is_cut_off_has_locked_is_let_go() {
    if skip() {
        return;
    }
    let Some(net) = Net::new(2) else {
        eprintln!("skipped: this user may make no network namespaces (ip netns add)");
        return;
    };
    let a = server_in(&net, 0, None);
    let at_a = format!("{}:{}", a.server.host, a.server.port);
    let serves = |said: &[String]| said.iter().all(|s| leads(s));
    until(&net, std::slice::from_ref(&a), "it serves", serves);
    let b = server_in(&net, 1, Some(("CANON_REPLICA_OF", &at_a)));
    let nodes = [a, b];
    until(&net, &nodes, "it follows", |said| {
        said[1].contains("canon_primary_connected 1")
    });
    let (locked, is_locked) = std::sync::mpsc::channel();
    let (over, is_over) = std::sync::mpsc::channel::<()>();
    let runtime = || tokio::runtime::Runtime::new().expect("a runtime");
    let [of_a, of_b] = [0, 1].map(|i: usize| nodes[i].server.config());
    std::thread::scope(|s| {
        let net = &net;
        s.spawn(move || {
            net.enter(1);
            runtime().block_on(async {
                let c = connect_to(&of_b).await.expect("it answers");
                let made =
                    "CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 0)";
                c.batch_execute(made).await.expect("forwarded");
                let lock = "BEGIN; UPDATE t SET n = n + 1 WHERE id = 1";
                c.batch_execute(lock).await.expect("forwarded");
                locked.send(()).expect("waited for");
                _ = is_over.recv();
            });
        });
        s.spawn(move || {
            net.enter(0);
            is_locked.recv().expect("it is locked");
            net.cut(&[(0, 1), (1, 0)]);
            let updated = runtime().block_on(async {
                let c = connect_to(&of_a).await.expect("it answers");
                let update = c.batch_execute("UPDATE t SET n = n + 10 WHERE id = 1");
                let updated = tokio::time::timeout(HANG, update).await;
                let n = ask(&c, "SELECT n, '' FROM t").await;
                updated.map(|u| u.is_ok() && n.is_ok_and(|n| n[0].0 == 10))
            });
            drop(over);
            assert_eq!(updated, Ok(true), "the row stays locked");
        });
    });
}
