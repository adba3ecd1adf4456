//! One address leads to one member, and a node to one cluster: what happens where that is not so.

use super::witness::witness;
use super::*;
use crate::common::peer::{Proof, RawPeer};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};

/// An address that leads to this port, as one of a translation of addresses does. It ends with the test's process.
fn door_to(port: u16) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("an address").to_string();
    std::thread::spawn(move || {
        for from in listener.incoming().flatten() {
            let Ok(to) = TcpStream::connect(("127.0.0.1", port)) else {
                continue;
            };
            for (from, to) in [(&from, &to), (&to, &from)] {
                let ends = from.try_clone().and_then(|f| Ok((f, to.try_clone()?)));
                let (from, to) = ends.expect("descriptors");
                std::thread::spawn(move || carry(from, to));
            }
        }
    });
    at
}

fn carry(mut from: TcpStream, mut to: TcpStream) {
    let mut bytes = [0; 8192];
    while let Ok(n @ 1..) = from.read(&mut bytes) {
        if to.write_all(&bytes[..n]).is_err() {
            break;
        }
    }
    _ = from.shutdown(Shutdown::Read);
    _ = to.shutdown(Shutdown::Write);
}

fn log(node: &Node) -> String {
    std::fs::read_to_string(node.server.scratch().join("log")).expect("a log")
}

/// Waits until the node's log has these words.
async fn logs(node: &Node, words: &str) {
    let deadline = Instant::now() + HANG;
    while !log(node).contains(words) {
        let log = || node.server.log_tail();
        assert!(Instant::now() < deadline, "{words}\n{}", log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A server that is to join, and says that it is there. It is launched, and not waited for.
fn joins(name: &str, join: &Node, address: &str) -> Node {
    let (http, join) = (free_port(), at(join));
    let http_at = format!("127.0.0.1:{http}");
    let mut server = Server::canon(&[
        ("CANON_NODE_NAME", name),
        ("CANON_HTTP", &http_at),
        ("CANON_CLUSTER_JOIN", &join),
        ("CANON_CLUSTER_ADDRESS", address),
    ]);
    server.launch();
    Node { server, http }
}

async fn is_refused(mut node: Node, words: [&str; 2]) {
    let ended = node.server.exited(HANG).await;
    let said = node.server.log_tail();
    assert!(ended.is_some_and(|s| !s.success()), "{said}");
    assert!(words.iter().all(|w| said.contains(w)), "{said}");
    assert!(!node.server.data_dir().join("control").exists());
}

/// With two members at one address, the process there would vote and testify for both.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_address_leads_to_another_member_may_not_join() {
    if skip() {
        return;
    }
    let a = node("a", None, &[]).await;
    let b = node("b", Some(&a.server), &[]).await;
    says(&a, "b is a member", |m| m.contains("member=\"b\"")).await;
    for (other, name) in [(&a, "a"), (&b, "b")] {
        let theirs = at(other);
        // Copied from its file.
        let is_theirs = format!("the address {theirs} is that of member \"{name}\"");
        is_refused(joins("c", &a, &theirs), [&is_theirs, "--cluster-address"]).await;
        // A name, or a balancer, that leads there.
        let door = door_to(other.server.port);
        let leads = format!("the address {door} does not lead to \"c\"");
        let meant = format!("another member is meant than \"{name}\"");
        is_refused(joins("c", &a, &door), [&leads, &meant]).await;
    }
    // Nothing is there, or not yet.
    let none = format!("127.0.0.1:{}", free_port());
    let c = joins("c", &a, &none);
    logs(&c, &format!("\"a\" does not reach \"c\" at {none}")).await;
    let (_, metrics) = get(a.http, "/metrics");
    assert!(!metrics.contains("member=\"c\""), "{metrics}");
    drop(c);
    // A translation of addresses that leads to the server itself.
    let mut server = Server::canon(&[]);
    let door = door_to(server.port);
    let (http, join) = (free_port(), at(&a));
    let http_at = format!("127.0.0.1:{http}");
    server.set_env(&[
        ("CANON_NODE_NAME", "c"),
        ("CANON_HTTP", &http_at),
        ("CANON_CLUSTER_JOIN", &join),
        ("CANON_CLUSTER_ADDRESS", &door),
    ]);
    server.launch();
    server.ready().await;
    let c = Node { server, http };
    for n in [&a, &b, &c] {
        can_fail_over(n).await;
    }
}

/// A member that is started with the address of another one goes on, and is known where it was.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_does_not_move_to_the_address_of_another_one() {
    if skip() {
        return;
    }
    let mut nodes = of_three(&[]).await;
    prepare(&nodes).await;
    // The founder, which decides itself, and one that has joined.
    for (i, other, name) in [(0, 1, "b"), (2, 1, "b")] {
        nodes[i].server.kill();
        let (http, theirs) = (format!("127.0.0.1:{}", nodes[i].http), at(&nodes[other]));
        let own = ["a", "b", "c"][i];
        let env = [("CANON_NODE_NAME", own), ("CANON_HTTP", http.as_str())];
        let more = [env[0], env[1], ("CANON_CLUSTER_ADDRESS", theirs.as_str())];
        nodes[i].server.set_env(&more);
        nodes[i].server.launch();
        nodes[i].server.ready().await;
        let is_theirs = format!("the address {theirs} is that of member \"{name}\"");
        logs(&nodes[i], &is_theirs).await;
        for n in &nodes {
            can_fail_over(n).await;
        }
        nodes[i].server.set_env(&env);
    }
    let writers = Writers::start(&nodes, 2);
    writers.more(20, &nodes).await;
    let acknowledged = writers.end().await;
    for n in &nodes {
        has_all(n, &acknowledged).await;
    }
}

/// Commits would wait for a member that cannot be taken in. So it is left out before anything is changed.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_whose_address_leads_to_another_server_is_not_adopted() {
    if skip() {
        return;
    }
    let a = node("a", None, &[]).await;
    let (of, theirs) = (at(&a), at(&a));
    let by_hand = async |name: &str, more: &[(&str, &str)]| {
        let http = free_port();
        let http_at = format!("127.0.0.1:{http}");
        let mut env = vec![
            ("CANON_NODE_NAME", name),
            ("CANON_HTTP", &http_at),
            ("CANON_REPLICA_OF", &of),
        ];
        env.extend(more);
        let mut server = Server::canon(&env);
        server.launch();
        server.ready().await;
        Node { server, http }
    };
    let b = by_hand("b", &[]).await;
    let c = by_hand("c", &[("CANON_CLUSTER_ADDRESS", &theirs)]).await;
    follows(&b).await;
    follows(&c).await;
    let (done, said) = canon(&["cluster", "adopt", "--server", &at(&a)]);
    assert!(done && said.contains("now: b."), "{said}");
    let left = format!("Left out: c: the address {theirs} does not lead to \"c\"");
    assert!(said.contains(&left), "{said}");
    assert!(!c.server.data_dir().join("control").exists());
}

/// The number of this member, by its file.
fn number(node: &Node) -> String {
    let file = node.server.data_dir().join("control/MEMBER");
    let text = std::fs::read_to_string(file).expect("it is a member");
    let (_, rest) = text.split_once("\"node\":").expect("it has a number");
    rest.chars().take_while(char::is_ascii_digit).collect()
}

/// The number of the cluster that this server belongs to.
fn cluster(node: &Node) -> u128 {
    let file = node.server.data_dir().join("CANON_VERSION");
    let text = std::fs::read_to_string(file).expect("it has a database");
    let (_, id) = text.split_once("cluster ").expect("it is of a cluster");
    u128::from_str_radix(id.trim(), 16).expect("digits")
}

async fn two_and_a_witness() -> [Node; 3] {
    let a = node("a", None, &[]).await;
    let b = node("b", Some(&a.server), &[]).await;
    let w = witness("w", &a.server);
    let all = [a, b, w];
    for n in &all {
        can_fail_over(n).await;
    }
    all
}

fn control(node: &Node, cluster: u128, more: &[&str]) -> Result<RawPeer, (String, String)> {
    let proof = Proof::member("x", 1);
    RawPeer::connect_saying(&node.server, ("canon", "control"), cluster, &proof, more)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_means_another_member_is_refused() {
    if skip() {
        return;
    }
    let [a, b, w] = two_and_a_witness().await;
    let of = cluster(&a);
    let nodes = [("a", &a), ("b", &b), ("w", &w)];
    for (name, here) in nodes {
        for (_, meant) in nodes {
            let (meant, own) = (number(meant), number(here));
            match control(here, of, &["canon.meant", &meant]) {
                Ok(_) => assert_eq!(meant, own),
                Err((code, said)) => {
                    assert_ne!(meant, own, "{said}");
                    let why = format!("another member is meant than \"{name}\"");
                    assert_eq!((code.as_str(), said), ("42704", why));
                }
            }
        }
        // A build before this one says nothing.
        assert!(control(here, of, &[]).is_ok());
        assert!(control(here, of, &["canon.meant", "x"]).is_err());
    }
    // By the same secret, of another cluster.
    for (_, here) in nodes {
        let meant = number(here);
        let refused = control(here, of ^ 1, &["canon.meant", &meant]).err();
        let (code, said) = refused.expect("of another cluster");
        assert_eq!((code.as_str(), said.as_str()), ("28000", OTHER_CLUSTER));
    }
}

const OTHER_CLUSTER: &str = "the node belongs to another cluster";

/// A restored cluster may have the secret of the first one, and an address that was used there. A member takes no other cluster's log while its database is opened, and a witness never.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_of_another_cluster_is_not_heard_during_a_start() {
    if skip() {
        return;
    }
    let [a, b, w] = two_and_a_witness().await;
    let c = a.server.connect().await;
    let sql = "CREATE TABLE t (n bigint PRIMARY KEY, s text);
        INSERT INTO t SELECT n, repeat('x', 200) FROM generate_series(1, 20000) AS g (n)";
    c.batch_execute(sql).await.expect("something to recover");
    drop(c);
    let of = cluster(&a);
    let (mut servers, mut w) = ([a, b], w);
    // No one tells them where they belong.
    for n in servers.iter_mut().chain([&mut w]) {
        n.server.kill();
    }
    w.server.launch_as("witness", &[]);
    is_never_heard(&w, of, 50).await;
    assert!(control(&w, of, &[]).is_ok());
    w.server.kill();
    for n in &mut servers {
        n.server.launch();
        is_never_heard(n, of, 50).await;
        n.server.kill();
    }
    w.server.launch_as("witness", &[]);
    for n in &mut servers {
        n.server.launch();
    }
    for n in servers.iter().chain([&w]) {
        can_fail_over(n).await;
    }
}

/// Asks as a member of another cluster as soon as the port is open, so many times.
async fn is_never_heard(node: &Node, of: u128, times: usize) {
    let deadline = Instant::now() + HANG;
    let mut refused = 0;
    while refused < times {
        match control(node, of ^ 1, &[]) {
            Ok(_) => panic!("it was heard, after {refused} times"),
            Err((code, said)) if code == "28000" => {
                assert_eq!(said, OTHER_CLUSTER);
                refused += 1;
            }
            // It is not there yet.
            Err((_, said)) => {
                let log = || node.server.log_tail();
                assert!(Instant::now() < deadline, "{said}\n{}", log());
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }
}
