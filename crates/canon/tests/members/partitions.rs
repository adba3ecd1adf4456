//! Members in network namespaces. Their links are cut one by one, each direction for itself, under clients. Two checkers judge what the clients saw.
//!
//! ```text
//! member 0 ──┐            ┌── clients 3     the shapes: partitions/shapes.rs
//! member 1 ──┼── switch ──┤
//! member 2 ──┘            └── clients 4     no shape cuts these off
//! ```
//! Transactions over lists are judged as strictly serializable (`lists`). Beside them every server is read from all the time, and no read may be older than what
//! was acknowledged before it began (`registers`). So two primaries at once are found, a commit that is lost, and a read that is old.
//!
//! | test | members |
//! |---|---|
//! | `partitions_of_every_shape…` | three servers |
//! | `…under_read_leases` | three servers whose replicas hold read leases; all readers and half of the lists' clients read by them |
//! | `…of_two_servers_and_a_witness` | the third member has no data |
//! | `a_planted_…` | three servers with a fault, in the one shape that it needs |
//!
//! The shapes in which most can go wrong run each time, and a few others, drawn by a seed. These are more: with 100 each cut between three servers comes once, with
//! 192 each cut beside a witness.
//!
//! ```text
//! CANON_PARTITIONS=100 CANON_PARTITIONS_SEED=7 cargo test -p canon --test members partitions -- --nocapture --test-threads 1
//! ```
//! Left out on purpose: kills and stops (`operations`), and links that are slow.

use super::*;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::os::fd::AsFd;
use std::sync::atomic::AtomicUsize;
use tokio_postgres::{Client, Config, Error, SimpleQueryMessage};
use workload::list_append::{Level, Txn, check};

#[path = "partitions/lists.rs"]
mod lists;
#[path = "partitions/net.rs"]
mod net;
#[path = "partitions/registers.rs"]
mod registers;
#[path = "partitions/shapes.rs"]
mod shapes;

use lists::Lists;
use net::{Net, Ways, address};
use registers::Registers;
use shapes::{Links, Members, Shape};

/// Two lots of clients, each behind a link of its own.
const CLIENTS: [usize; 2] = [3, 4];
const NAMES: [&str; 3] = ["a", "b", "c"];
/// A client that waits longer for an answer leaves.
const SILENCE: Duration = Duration::from_secs(4);
/// Before a client tries another server.
const PAUSE: Duration = Duration::from_millis(50);
/// For so long links are cut at least. A member that is lost is noticed and replaced in this time.
const APART: Duration = Duration::from_secs(3);

const BY_LEASE: &str = "SET canon.read_policy = lease";

fn runtime() -> tokio::runtime::Runtime {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime")
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
            Some((key, r.get(1).expect("a value").to_owned()))
        }
        _ => None,
    };
    Ok(found.iter().filter_map(row).collect())
}

fn leads(said: &str) -> bool {
    said.contains("canon_role{role=\"primary\"} 1")
}

/// A server behind this port. It runs when it is launched.
fn server_in(net: &Net, i: usize, more: &[(&str, &str)]) -> Node {
    let http = free_port();
    let at = format!("127.0.0.1:{http}");
    let mut env = vec![
        ("CANON_NODE_NAME", NAMES[i]),
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
                eprintln!("{:#?}\n{}", told(said), node.server.log_tail());
            }
            panic!("for too long it is not so that {what}");
        }
        std::thread::sleep(PAUSE);
    }
}

/// What the metrics say of the members.
fn told(said: &str) -> Vec<&str> {
    let about = [
        "canon_role",
        "canon_term",
        "canon_lease",
        "canon_read_lease",
        "canon_replica",
        "canon_failover",
        "canon_member",
        "canon_cluster",
        "canon_primary_connected",
    ];
    let wanted = |l: &&str| about.iter().any(|a| l.starts_with(a));
    said.lines().filter(wanted).collect()
}

/// The members, behind the first ports.
struct Cluster {
    nodes: Vec<Node>,
    net: Arc<Net>,
    members: Members,
    /// Replicas are to hold read leases.
    lends: bool,
}

impl Cluster {
    /// None: this machine has no namespaces, which the test has said.
    fn start(members: Members, lends: bool, more: &[(&str, &str)]) -> Option<Cluster> {
        let net = Arc::new(Net::new(5)?);
        let mut cluster = Cluster {
            net,
            nodes: vec![],
            members,
            lends,
        };
        for i in 0..3 {
            let join = cluster
                .nodes
                .last()
                .map(|n| format!("{}:{}", n.server.host, n.server.port));
            let mut env = more.to_vec();
            env.extend(join.as_deref().map(|j| ("CANON_CLUSTER_JOIN", j)));
            if lends {
                env.extend(LEASES);
            }
            let mut node = server_in(&cluster.net, i, &env);
            match i < cluster.servers() {
                true => node.server.launch(),
                false => node.server.launch_as("witness", &[]),
            }
            cluster.nodes.push(node);
            // One that joins asks until it is let in.
            cluster.until("it serves", |said| {
                let follows = |s: &String| s.contains("canon_primary_connected 1");
                let serves = |s: &String| leads(s) || follows(s);
                said.iter().take(cluster.servers()).all(serves)
            });
        }
        cluster.until_whole();
        Some(cluster)
    }

    fn servers(&self) -> usize {
        match self.members {
            Members::Servers => 3,
            Members::Witness => 2,
        }
    }

    fn until(&self, what: &str, holds: impl Fn(&[String]) -> bool) {
        until(&self.net, &self.nodes, what, holds);
    }

    /// Waits until one leads, the others follow it, and the loss of any is survived.
    fn until_whole(&self) {
        self.until("all is whole", |said| {
            let fails_over = |s: &String| s.contains("canon_failover{obstacle=\"\"} 1");
            let holds = |s: &str| !self.lends || s.contains("canon_read_lease_held 1");
            let follows = |s: &&String| s.contains("canon_primary_connected 1") && holds(s);
            let servers = &said[..self.servers()];
            said.iter().all(fails_over)
                && servers.iter().filter(|s| leads(s)).count() == 1
                && servers.iter().filter(|s| !leads(s)).all(|s| follows(&s))
        });
    }

    fn configs(&self) -> Vec<Config> {
        let servers = &self.nodes[..self.servers()];
        servers.iter().map(|n| n.server.config()).collect()
    }

    fn metrics(&self, i: usize) -> String {
        self.net.metrics(i, self.nodes[i].http)
    }

    fn primary(&self) -> Option<usize> {
        (0..self.servers()).find(|i| leads(&self.metrics(*i)))
    }

    /// The same. Waits until one leads.
    fn leader(&self) -> usize {
        self.until("one leads", |said| said.iter().any(|s| leads(s)));
        self.primary().unwrap_or_else(|| self.leader())
    }

    /// The consensus leader, by what this node says.
    fn decides(&self, by: usize) -> Option<usize> {
        let said = self.metrics(by);
        let is = |i: &usize| {
            said.contains(&format!(
                "canon_member_decides{{member=\"{}\"}} 1",
                NAMES[*i]
            ))
        };
        (0..NAMES.len()).find(is)
    }

    /// One statement, by a client of its own.
    fn ask_at(&self, i: usize, sql: &str) -> Result<Vec<(u64, String)>, Error> {
        let config = &self.configs()[i];
        let run = || {
            self.net.enter(CLIENTS[1]);
            runtime().block_on(async { ask(&connect_to(config).await?, sql).await })
        };
        std::thread::scope(|s| s.spawn(run).join().expect("it asks"))
    }

    /// The same until it is answered. A node serves no client while it starts again, and answers no strong read without its lease.
    fn insist_at(&self, i: usize, sql: &str) -> Vec<(u64, String)> {
        let deadline = Instant::now() + HANG;
        loop {
            match self.ask_at(i, sql) {
                Ok(rows) => return rows,
                Err(e) => assert!(Instant::now() < deadline, "{sql}: {e:?}"),
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Has the consensus leader stand at this place of a shape: the node at each place.
    fn arrange(&self, decides: usize) -> [usize; 3] {
        let deadline = Instant::now() + HANG;
        loop {
            self.until_whole();
            let leader = |p| self.decides(p).map(|d| (p, d));
            if let Some((p, d)) = self.primary().and_then(leader) {
                let nodes = match self.members {
                    Members::Witness => [p, 1 - p, 2],
                    Members::Servers if d == p => [p, (p + 1) % 3, (p + 2) % 3],
                    Members::Servers => [p, d, 3 - p - d],
                };
                if nodes[decides] == d {
                    return nodes;
                }
                match self.members {
                    Members::Witness if d == 2 || decides == 2 => self.elect_without(d),
                    // It may be refused, or its answer may be lost: the next look tells.
                    _ => _ = self.ask_at(nodes[1], "SELECT 0, coalesce(canon_promote()::text, '')"),
                }
            }
            assert!(
                Instant::now() < deadline,
                "the consensus leader cannot be brought to place {decides}"
            );
        }
    }

    /// Has another member lead the consensus.
    fn elect_without(&self, leader: usize) {
        let others = || (0..3).filter(|i| *i != leader);
        let ways = others().flat_map(|i| [(i, leader), (leader, i)]);
        self.net.cut(&ways.collect());
        self.until("another one leads the consensus", |_| {
            others().any(|i| self.decides(i).is_some_and(|d| d != leader))
        });
        self.net.heal();
    }
}

/// The clients of both checkers.
struct Load<'a> {
    cluster: &'a Cluster,
    lists: Lists,
    registers: Registers,
}

impl<'a> Load<'a> {
    fn start(cluster: &'a Cluster) -> Load<'a> {
        let leads = cluster.leader();
        cluster.insist_at(leads, lists::TABLE);
        for sql in registers::setup() {
            cluster.insist_at(leads, &sql);
        }
        let init = ["", BY_LEASE][usize::from(cluster.lends)];
        let configs = cluster.configs();
        Load {
            lists: Lists::start(&cluster.net, &configs, init),
            registers: Registers::start(&cluster.net, &configs, init),
            cluster,
        }
    }

    /// Waits until so many more transactions have committed.
    fn more(&self, n: usize, when: &str) {
        let wanted = self.lists.committed() + n;
        let deadline = Instant::now() + HANG;
        while self.lists.committed() < wanted {
            if Instant::now() > deadline {
                self.say_what_waits();
                panic!("nothing is committed any more while {when}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A line of what goes on. Several clusters may run at the same time.
    fn say(&self, what: String) {
        let cluster = match (self.cluster.members, self.cluster.lends) {
            (Members::Witness, _) => "witness",
            (Members::Servers, false) => "servers",
            (Members::Servers, true) => "leases",
        };
        println!("{cluster}: {what}");
    }

    fn say_what_waits(&self) {
        for (i, node) in self.cluster.nodes.iter().enumerate() {
            let said = self.cluster.metrics(i);
            eprintln!("{}: {:#?}", NAMES[i], told(&said));
            if leads(&said) {
                let sessions = "SELECT pid, concat_ws(' ', client_addr, state, wait_event_type, wait_event, query) FROM pg_stat_activity";
                let locks = "SELECT pid, concat_ws(' ', locktype, mode, granted) FROM pg_locks";
                for sql in [sessions, locks] {
                    eprintln!("{:#?}", self.cluster.ask_at(i, sql));
                }
            }
            eprintln!("{}", node.server.log_tail());
        }
    }

    /// Lets time pass while these links are cut. Where a majority is left, commits go on.
    fn apart(&self, links: Links, when: &str) {
        let (begun, before) = (Instant::now(), self.lists.committed());
        if links.leave_a_majority() {
            self.more(40, when);
            self.say(format!("  commits go on after {:.1?}", begun.elapsed()));
        }
        std::thread::sleep(APART.saturating_sub(begun.elapsed()));
        let commits = self.lists.committed() - before;
        self.say(format!("  {commits} commits while it is so"));
    }

    /// The shapes in turn. Each time the cluster is whole again by itself.
    fn pass(&self, shapes: &[Shape]) {
        let net = &self.cluster.net;
        for (n, shape) in shapes.iter().enumerate() {
            let nodes = self.cluster.arrange(shape.decides);
            let primary = NAMES[nodes[0]];
            let (n, all) = (n + 1, shapes.len());
            self.say(format!("{n} of {all}: {primary} leads, {shape}"));
            self.more(20, "all is whole");
            for links in std::iter::once(shape.links).chain(shape.then) {
                net.cut(&shape.ways(links, nodes, CLIENTS[0]));
                self.apart(links, &format!("{shape}"));
            }
            net.heal();
            let healed = Instant::now();
            self.cluster.until_whole();
            self.say(format!("  whole after {:.1?}", healed.elapsed()));
            let wrong = self.registers.wrong();
            assert!(wrong.is_empty(), "{}: {}", wrong.len(), wrong[0]);
        }
        self.more(20, "all is whole");
    }

    /// Ends them. All copies have the same, and that is what was acknowledged.
    fn judge(mut self) {
        let mut history = self.lists.end();
        let (tallies, least) = self.registers.end();
        let wrong = self.registers.wrong();
        assert!(wrong.is_empty(), "{}: {}", wrong.len(), wrong[0]);
        self.cluster.until_whole();
        let at_all = |sql: &str| {
            let all = 0..self.cluster.servers();
            let all: Vec<_> = all.map(|i| self.cluster.insist_at(i, sql)).collect();
            assert!(all.iter().all(|rows| *rows == all[0]), "copies differ");
            all.into_iter().next().expect("one copy")
        };
        let registers = at_all("SELECT id, v FROM registers_0 ORDER BY id");
        let values = registers.iter().map(|r| r.1.parse::<u64>().expect("one"));
        let kept = values.zip(&least).all(|(v, least)| v >= *least);
        assert!(kept, "acknowledged {least:?}, there are {registers:?}");
        history.push(self.lists.last(&history, &at_all(lists::ALL)));
        let violations = violations(&history);
        println!("{} transactions, reads {tallies:?}", history.len());
        assert!(violations.is_empty(), "{}", violations[0]);
        let every = tallies.iter().all(|t| t.reads > 100);
        assert!(every, "reads at every server: {tallies:?}");
    }
}

fn violations(history: &[Txn]) -> Vec<String> {
    let report = check(history);
    let all = report.violations(Level::StrictSerializable);
    all.iter().map(|v| v.to_string()).collect()
}

/// The shapes above all, and so many others as are wanted, or as few as this. Nothing acknowledged is lost, no two primaries commit, no strong read is old, and
/// each time the cluster is whole again by itself.
fn partitions(members: Members, lends: bool, seed: u64, few: u64) {
    if skip() {
        return;
    }
    let Some(cluster) = Cluster::start(members, lends, &[]) else {
        return;
    };
    let count = operations::number("CANON_PARTITIONS", few);
    let seed = operations::number("CANON_PARTITIONS_SEED", seed);
    println!("CANON_PARTITIONS={count} CANON_PARTITIONS_SEED={seed}");
    let mut shapes = Shape::above_all(members);
    let count = usize::try_from(count).expect("a number");
    shapes.extend(Shape::all(members, seed).into_iter().take(count));
    let load = Load::start(&cluster);
    load.pass(&shapes);
    load.judge();
    let by_lease = |i| {
        let said = cluster.metrics(i);
        let counted = "canon_read_timestamps_total{how=\"lease\"} ";
        let count = said.lines().find_map(|l| l.strip_prefix(counted));
        count.is_some_and(|n| n != "0")
    };
    let some = (0..cluster.servers()).any(by_lease);
    assert_eq!(some, lends, "whether reads were by leases");
}

#[test]
fn partitions_of_every_shape_lose_nothing_and_split_nothing() {
    partitions(Members::Servers, false, 5, 3);
}

#[test]
fn partitions_under_read_leases_lose_nothing_and_show_nothing_old() {
    partitions(Members::Servers, true, 2, 2);
}

#[test]
fn partitions_of_two_servers_and_a_witness_lose_nothing_and_split_nothing() {
    partitions(Members::Witness, false, 3, 2);
}

/// Whether reads that are old come while links are cut in this shape at servers with this fault. What the lists' clients saw.
#[cfg(feature = "faults")]
fn shows_what_is_old(fault: &str, lends: bool, shape: Shape) -> Option<Vec<Txn>> {
    let cluster = Cluster::start(shape.members, lends, &[("CANON_PLANTED", fault)])?;
    let mut load = Load::start(&cluster);
    for _ in 0..5 {
        let nodes = cluster.arrange(shape.decides);
        load.more(20, "all is whole");
        cluster.net.cut(&shape.ways(shape.links, nodes, CLIENTS[0]));
        let begun = Instant::now();
        while begun.elapsed() < 3 * APART {
            if let Some(what) = load.registers.wrong().first() {
                println!("{fault}: {what}");
                // So that lists have been read, too.
                std::thread::sleep(APART);
                cluster.net.heal();
                let leads = cluster.leader();
                let rows = cluster.insist_at(leads, lists::ALL);
                let mut history = load.lists.end();
                history.push(load.lists.last(&history, &rows));
                return Some(history);
            }
            std::thread::sleep(PAUSE);
        }
        cluster.net.heal();
    }
    panic!("{fault}: no read is old");
}

/// The consensus leader lacks what the primary and the other replica acknowledge until the lease is over, and names itself.
#[cfg(feature = "faults")]
#[test]
fn a_planted_choice_of_any_replica_is_found_by_both_checkers() {
    let shape = Shape::of(Members::Servers, 1, &[(0, 1)]);
    let history = shows_what_is_old("failover.any_replica", false, shape);
    if let Some(history) = history {
        assert!(!violations(&history).is_empty(), "lists are whole");
    }
}

/// The primary is cut off from the members and not from its clients, and goes on to answer.
#[cfg(feature = "faults")]
#[test]
fn a_planted_primary_that_does_not_look_at_its_lease_is_found_under_a_partition() {
    let shape = Shape::of(Members::Servers, 0, &[(0, 1), (0, 2)]);
    shows_what_is_old("lease.unasked", false, shape);
}

/// A replica that is cut off answers by its lease, while the primary goes on with the other one at once.
#[cfg(feature = "faults")]
#[test]
fn a_planted_commit_that_no_holder_of_a_lease_has_received_is_found_under_a_partition() {
    let shape = Shape::of(Members::Servers, 0, &[(0, 1)]);
    shows_what_is_old("lease.unreceived_ack", true, shape);
}

/// A transaction at a replica has locked a row at the primary, and the replica is cut off. The row is free again when the primary has noticed that, long before
/// the kernel gives up what is under way (`net.ipv4.tcp_retries2`).
#[test]
fn what_a_client_of_a_replica_that_is_cut_off_has_locked_is_let_go() {
    if skip() {
        return;
    }
    let Some(net) = Net::new(2) else { return };
    let mut a = server_in(&net, 0, &[]);
    a.server.launch();
    let at_a = format!("{}:{}", a.server.host, a.server.port);
    let serves = |said: &[String]| said.iter().all(|s| leads(s));
    until(&net, std::slice::from_ref(&a), "it serves", serves);
    let mut b = server_in(&net, 1, &[("CANON_REPLICA_OF", &at_a)]);
    b.server.launch();
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
            net.cut(&Ways::from([(0, 1), (1, 0)]));
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
