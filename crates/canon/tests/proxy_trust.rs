//! What a proxy believes: which addresses are nodes, by the word of a node or by the cluster's secret; and clients that it does not hear of again.
//!
//! Left out on purpose: TLS on both sides of a proxy (`tls/nodes.rs`).

mod common;
#[path = "replication/helpers.rs"]
#[allow(dead_code)]
mod helpers;

use base::Position;
use common::peer::{Proof, RawPeer};
use common::{PATIENCE, Server, connect_to};
use futures::SinkExt;
use helpers::{one, replica, rows, skip, until};
use proxy::{Options, Running};
use replica::ship::{Message, VERSION};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio_postgres::Config;

fn options(nodes: Vec<String>, secret: Option<&Path>) -> Options {
    let any = || "127.0.0.1:0".to_owned();
    Options {
        nodes,
        listen: any(),
        listen_primary: Some(any()),
        listen_standby: Some(any()),
        http: None,
        user: "canon".into(),
        cluster_secret_file: secret.map(Path::to_owned),
        max_connections: 100,
        max_lag: PATIENCE,
        check_interval: Duration::from_millis(50),
        patience: PATIENCE,
        shutdown_timeout: Duration::from_secs(5),
        allow_passwordless_network: false,
        allow_plain_network: true,
        tls_certificate: None,
        tls_key: None,
        tls_cluster_ca: None,
        log_level: "warn".into(),
    }
}

fn address(s: &Server) -> String {
    format!("{}:{}", s.host, s.port)
}

/// Where clients get the primary.
fn primary(proxy: &Running) -> Config {
    door(proxy, 1)
}

fn door(proxy: &Running, door: usize) -> Config {
    let mut c = Config::new();
    c.host("127.0.0.1")
        .port(proxy.listening[door].port())
        .user("canon")
        .dbname("canon")
        .connect_timeout(PATIENCE);
    c
}

/// What says that it is a node, and the primary of a term that no other has reached. It lets everything in.
struct Impostor {
    at: SocketAddr,
    /// Connections, and questions on them.
    came: Arc<AtomicUsize>,
    asked: Arc<AtomicUsize>,
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let len = (body.len() as u32 + 4).to_be_bytes();
    [&[kind][..], &len, body].concat()
}

fn read(s: &mut TcpStream, typed: bool) -> Option<Vec<u8>> {
    let mut head = vec![0; 4 + usize::from(typed)];
    s.read_exact(&mut head).ok()?;
    let len = u32::from_be_bytes(*head.last_chunk()?) as usize;
    let mut body = vec![0; len.checked_sub(4)?];
    s.read_exact(&mut body).ok()?;
    Some(body)
}

impl Impostor {
    fn start() -> Impostor {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = listener.local_addr().expect("an address");
        let (came, asked) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let counters = (came.clone(), asked.clone());
        std::thread::spawn(move || {
            for s in listener.incoming() {
                let (came, asked) = counters.clone();
                came.fetch_add(1, Ordering::SeqCst);
                std::thread::spawn(move || Impostor::serve(s.expect("a socket"), &asked));
            }
        });
        Impostor { at, came, asked }
    }

    fn serve(mut s: TcpStream, asked: &AtomicUsize) -> Option<()> {
        let first = read(&mut s, false)?;
        if first.len() == 4 {
            s.write_all(b"N").ok()?;
            read(&mut s, false)?;
        }
        let term = (1u64 << 60).to_string();
        let term = [b"canon.term\0", term.as_bytes(), b"\0"].concat();
        let all = [
            message(b'R', &[0; 4]),
            message(b'S', &term),
            message(b'K', &[0; 8]),
            message(b'Z', b"I"),
        ];
        s.write_all(&all.concat()).ok()?;
        loop {
            read(&mut s, true)?;
            asked.fetch_add(1, Ordering::SeqCst);
            let row = [&[0, 1, 0, 0, 0, 1][..], b"f"].concat();
            let all = [message(b'D', &row), message(b'Z', b"I")];
            s.write_all(&all.concat()).ok()?;
        }
    }
}

async fn eventually(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done().await {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A role that may replicate reads the log. What calls itself an address there is not taken for a node at it.
#[tokio::test(flavor = "multi_thread")]
async fn what_only_reads_the_log_is_no_node() {
    if skip() {
        return;
    }
    let p = Server::start().await;
    let c = p.connect().await;
    rows(&c, "CREATE ROLE follower LOGIN REPLICATION").await;
    rows(&c, "SELECT count(*) FROM pg_class").await;
    let token = one(&c, "SHOW canon.commit_token").await;
    let (cluster, rest) = token.split_once(':').expect("three parts");
    let (term, at) = rest.split_once(':').expect("three parts");
    let (high, low) = at.split_once('/').expect("a position");
    let word = |w| u64::from_str_radix(w, 16).expect("hexadecimal");
    let cluster = u128::from_str_radix(cluster, 16).expect("a cluster");
    let last = Position::from_u64(word(high) << 32 | word(low));
    assert_eq!(term, "1");
    let impostor = Impostor::start();
    let name = impostor.at.to_string();
    tokio::task::block_in_place(|| {
        let peer = RawPeer::connect(&p, "follower", "canon", cluster, &Proof::None);
        let mut peer = peer.expect("it is let in");
        peer.turn("START_REPLICATION").expect("turned over");
        peer.say(&Message::Hello {
            version: u16::from(VERSION),
            cluster,
            node: name.clone(),
            terms: vec![(1, Position::ZERO)],
            last,
            ring: 0,
        });
        // It goes on like a replica, up to the end of the server.
        std::thread::spawn(move || {
            while let Some(m) = peer.hear() {
                let Some(step) = m.step() else { continue };
                peer.say(&Message::Ack {
                    term: step.term,
                    received: step.upto,
                    persisted: step.upto,
                    applied: step.upto,
                    visible: step.upto,
                    echo_micros: 0,
                });
            }
        });
    });
    let sql = "SELECT canon_member FROM pg_stat_replication WHERE application_name = '";
    until(&c, &format!("{sql}{name}'"), "f").await;
    let proxy = Running::start(options(vec![address(&p)], None)).await;
    let proxy = proxy.expect("a proxy");
    // One question tells of both.
    let r = replica(&p, "reports").await;
    until(&c, &format!("{sql}reports'"), "t").await;
    let known = || {
        let router = proxy.proxy.router.lock();
        let all = router.nodes.iter().map(|n| n.address.clone());
        all.collect::<Vec<_>>()
    };
    eventually("the replica is not found", async || {
        known().contains(&address(&r))
    })
    .await;
    until(&c, &format!("{sql}{name}'"), "f").await;
    assert!(!known().contains(&name), "{:?}", known());
    assert_eq!(impostor.came.load(Ordering::SeqCst), 0);
    proxy.stop().await;
}

/// With the cluster's secret even an address that the operator has named is asked for a proof.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_proves_that_it_has_the_secret() {
    if skip() {
        return;
    }
    let p = Server::start().await;
    let secret = common::cluster_secret(p.scratch());
    let impostor = Impostor::start();
    let nodes = vec![impostor.at.to_string(), address(&p)];
    let proxy = Running::start(options(nodes, Some(&secret))).await;
    let proxy = proxy.expect("a proxy");
    let c = connect_to(&primary(&proxy)).await.expect("a session");
    rows(&c, "CREATE TABLE t (a int)").await;
    eventually("the impostor is not asked twice", async || {
        impostor.came.load(Ordering::SeqCst) > 1
    })
    .await;
    assert_eq!(impostor.asked.load(Ordering::SeqCst), 0);
    assert!(proxy.proxy.router.lock().nodes[0].seen.is_none());
    // So is one that is found, and so is the node to which a session moves.
    let r = replica(&p, "reports").await;
    let mut standby = door(&proxy, 0);
    standby.options("-c target_session_attrs=prefer-standby");
    let deadline = Instant::now() + PATIENCE;
    let c = loop {
        let c = connect_to(&standby).await.expect("a session");
        if one(&c, "SELECT pg_is_in_recovery()").await == "t" {
            break c;
        }
        assert!(Instant::now() < deadline, "no session at the replica");
    };
    drop(r);
    assert_eq!(one(&c, "SELECT pg_is_in_recovery()").await, "f");
    proxy.stop().await;
}

/// A proxy with the secret of another cluster takes no server for its node.
#[tokio::test(flavor = "multi_thread")]
async fn another_secret_opens_no_node() {
    if skip() {
        return;
    }
    let p = Server::start().await;
    let scratch = tempfile::tempdir().expect("a directory");
    let file = common::cluster_secret(scratch.path());
    std::fs::write(&file, "7".repeat(64)).expect("written");
    let mut o = options(vec![address(&p)], Some(&file));
    o.patience = Duration::from_millis(300);
    let proxy = Running::start(o).await.expect("a proxy");
    let e = connect_to(&primary(&proxy)).await.map(drop);
    let e = e.expect_err("it has no node");
    assert_eq!(common::sqlstate(&e), "57P03", "{e:?}");
    assert!(p.log_tail().contains("secret"), "{}", p.log_tail());
    proxy.stop().await;
    // Nor one that others can read.
    use std::os::unix::fs::PermissionsExt;
    let open = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(&file, open).expect("ours");
    let o = options(vec![address(&p)], Some(&file));
    let Err(e) = Running::start(o).await.map(drop) else {
        panic!("others can read it");
    };
    assert!(e.fields().message.contains("read by others"), "{e}");
}

/// Connections that say nothing are closed when there are as many as there may be clients, and take no place from those that speak.
#[tokio::test(flavor = "multi_thread")]
async fn silence_takes_no_more_places_than_there_are() {
    if skip() {
        return;
    }
    let p = Server::start().await;
    let mut o = options(vec![address(&p)], None);
    o.max_connections = 3;
    let proxy = Running::start(o).await.expect("a proxy");
    let door = ("127.0.0.1", proxy.listening[1].port());
    let silent: Vec<_> = (0..3)
        .map(|_| TcpStream::connect(door).expect("it listens"))
        .collect();
    eventually("they are not seen", async || {
        proxy.proxy.greeting.load(Ordering::SeqCst) == 3
    })
    .await;
    tokio::task::block_in_place(|| {
        let mut more = TcpStream::connect(door).expect("it listens");
        more.set_read_timeout(Some(PATIENCE)).expect("a limit");
        let end = more.read(&mut [0; 1]);
        let closed = |e: &std::io::Error| e.kind() == std::io::ErrorKind::ConnectionReset;
        assert!(
            matches!(&end, Ok(0)) || matches!(&end, Err(e) if closed(e)),
            "{end:?}"
        );
    });
    drop(silent);
    eventually("no place is free", async || {
        connect_to(&primary(&proxy)).await.is_ok()
    })
    .await;
    proxy.stop().await;
}

/// What is longer than the proxy takes at once passes in pieces, in both directions, and what follows stands behind it.
#[tokio::test(flavor = "multi_thread")]
async fn long_messages_pass() {
    if skip() {
        return;
    }
    let p = Server::start().await;
    let proxy = Running::start(options(vec![address(&p)], None)).await;
    let proxy = proxy.expect("a proxy");
    let c = connect_to(&primary(&proxy)).await.expect("a session");
    const LONG: usize = 9_000_001;
    let text = "x".repeat(LONG);
    // A text, a parameter, a value, data of COPY.
    let sql = format!("SELECT length('{text}')");
    assert_eq!(one(&c, &sql).await, LONG.to_string());
    assert_eq!(one(&c, "SELECT 1").await, "1");
    let back = c.query_one("SELECT $1::text || 'y'", &[&text]).await;
    let back: String = back.expect("it runs").get(0);
    assert!(back.len() == LONG + 1 && back.ends_with("xy"));
    rows(&c, "CREATE TABLE t (v text)").await;
    let copy = c.copy_in("COPY t FROM STDIN").await.expect("it begins");
    let mut copy = Box::pin(copy);
    let line = bytes::Bytes::from(format!("{text}\n"));
    copy.send(line).await.expect("taken");
    assert_eq!(copy.as_mut().finish().await.expect("ended"), 1);
    assert_eq!(one(&c, "SELECT length(v) FROM t").await, LONG.to_string());
    proxy.stop().await;
}

/// The kernel asks a client that is silent whether it is there.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_silent_is_asked_for() {
    if skip() {
        return;
    }
    let p = Server::start().await;
    let proxy = Running::start(options(vec![address(&p)], None)).await;
    let proxy = proxy.expect("a proxy");
    let door = proxy.listening[1];
    let client = TcpStream::connect(door).expect("it listens");
    let from = client.local_addr().expect("an address").port();
    // The proxy's end: its own port, the client's, established, and the timer that is on (2: keepalive).
    let (here, there) = (format!(":{:04X}", door.port()), format!(":{from:04X}"));
    eventually("no timer is on", async || {
        let all = std::fs::read_to_string("/proc/net/tcp").expect("a table");
        all.lines().any(|line| {
            let word: Vec<&str> = line.split_whitespace().collect();
            let ends = word.len() > 5 && word[1].ends_with(&here) && word[2].ends_with(&there);
            ends && word[3] == "01" && word[5].starts_with("02:")
        })
    })
    .await;
    proxy.stop().await;
}
