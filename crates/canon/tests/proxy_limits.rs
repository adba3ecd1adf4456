//! `canon proxy` at its limits: too many clients, no node that can take them, clients that it may not trust; and libpq, which chooses
//! among its doors by what they report.

mod common;
#[allow(dead_code)]
#[path = "replication/helpers.rs"]
mod helpers;
#[path = "clients/programs.rs"]
mod programs;
#[allow(dead_code)]
#[path = "wire_abuse/raw.rs"]
mod raw;

use common::{PATIENCE, Server, connect_to, sqlstate};
use helpers::{one, promote, refused, rows, skip, until};
use proxy::{Options, Running};
use std::net::{IpAddr, UdpSocket};
use std::time::{Duration, Instant};
use tokio_postgres::{Client, Config, Error};

const ANY: usize = 0;
const PRIMARY: usize = 1;
const STANDBY: usize = 2;

fn options(nodes: &[&Server]) -> Options {
    let any = || "127.0.0.1:0".to_owned();
    let at = |n: &&Server| format!("{}:{}", n.host, n.port);
    Options {
        nodes: nodes.iter().map(at).collect(),
        listen: any(),
        listen_primary: Some(any()),
        listen_standby: Some(any()),
        http: None,
        user: "canon".into(),
        cluster_secret_file: None,
        max_connections: 100,
        max_lag: Duration::from_secs(5),
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

fn config(proxy: &Running, door: usize) -> Config {
    let mut c = Config::new();
    c.host("127.0.0.1")
        .port(proxy.listening[door].port())
        .user("canon")
        .dbname("canon")
        .connect_timeout(PATIENCE);
    c
}

async fn connect(proxy: &Running, door: usize) -> Result<Client, Error> {
    connect_to(&config(proxy, door)).await
}

/// A replica that is called by its address, so that the proxy finds it.
async fn replica(primary: &Server) -> Server {
    let s = Server::canon(&[]);
    let name = format!("{}:{}", s.host, s.port);
    named(s, primary, &name).await
}

async fn named(mut s: Server, primary: &Server, name: &str) -> Server {
    let of = format!("{}:{}", primary.host, primary.port);
    s.set_env(&[("CANON_REPLICA_OF", &of), ("CANON_NODE_NAME", name)]);
    s.launch();
    s.ready().await;
    s
}

#[tokio::test(flavor = "multi_thread")]
async fn more_clients_than_it_takes_are_refused_and_places_come_free() {
    if skip() {
        return;
    }
    let p = Server::start().await;
    let mut o = options(&[&p]);
    o.max_connections = 2;
    let proxy = Running::start(o).await.expect("a proxy");
    let first = connect(&proxy, ANY).await.expect("the first");
    let second = connect(&proxy, PRIMARY).await.expect("the second");
    let e = connect(&proxy, ANY).await.expect_err("there are two");
    assert_eq!(sqlstate(&e), "53300", "{e:?}");
    // Those that are in notice nothing, and one that goes makes room.
    assert_eq!(one(&first, "SELECT 1").await, "1");
    drop(second);
    let deadline = Instant::now() + PATIENCE;
    let third = loop {
        match connect(&proxy, ANY).await {
            Ok(c) => break c,
            Err(e) => assert_eq!(sqlstate(&e), "53300", "{e:?}"),
        }
        assert!(Instant::now() < deadline, "its place is not free");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(one(&third, "SELECT 1").await, "1");
    proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_wait_for_a_node_as_long_as_the_proxys_patience_lasts() {
    if skip() {
        return;
    }
    // Little patience: who wants a replica where there is none, and anything where there is no node.
    let mut p = Server::start().await;
    let mut o = options(&[&p]);
    o.patience = Duration::from_millis(400);
    let hasty = Running::start(o).await.expect("a proxy");
    let patient = Running::start(options(&[&p])).await.expect("a proxy");
    // (Once it has found the primary: under load that may take it longer.)
    let deadline = Instant::now() + PATIENCE;
    while let Err(e) = connect(&hasty, PRIMARY).await {
        assert_eq!(sqlstate(&e), "57P03", "{e:?}");
        assert!(Instant::now() < deadline, "no primary");
    }
    let e = connect(&hasty, STANDBY).await.expect_err("no replica");
    let said = e.as_db_error().expect("the proxy says so");
    assert_eq!(
        (said.code().code(), said.message()),
        ("57P03", "no replica can be reached")
    );
    // Who would rather have one takes the primary.
    let mut prefers = config(&patient, ANY);
    prefers.options("-c target_session_attrs=prefer-standby");
    let c = connect_to(&prefers).await.expect("the primary");
    assert_eq!(one(&c, "SELECT pg_is_in_recovery()").await, "f");
    prefers.options("-c target_session_attrs=any");
    connect_to(&prefers).await.expect("any node");
    drop(c);

    p.kill();
    for door in [ANY, PRIMARY] {
        let e = connect(&hasty, door).await.expect_err("no node");
        assert_eq!(sqlstate(&e), "57P03", "{e:?}");
    }
    // Patience: the connection waits, and is served when there is a node; so is one that wants a replica.
    let wants = |door: usize| {
        let config = config(&patient, door);
        tokio::spawn(async move { connect_to(&config).await })
    };
    let (any, standby) = (wants(ANY), wants(STANDBY));
    p.launch();
    p.ready().await;
    let any = any.await.expect("a task").expect("a node");
    assert_eq!(one(&any, "SELECT pg_is_in_recovery()").await, "f");
    assert!(!standby.is_finished(), "there is no replica");
    let _r = replica(&p).await;
    let standby = standby.await.expect("a task").expect("a replica");
    assert_eq!(one(&standby, "SELECT pg_is_in_recovery()").await, "t");
    for proxy in [hasty, patient] {
        proxy.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_wants_a_replica_stays_with_those_when_one_refuses() {
    if skip() {
        return;
    }
    let mut p = Server::start().await;
    rows(&p.connect().await, "CREATE TABLE t (a int PRIMARY KEY)").await;
    let r = replica(&p).await;
    let mut o = options(&[&p, &r]);
    o.patience = Duration::from_secs(2);
    let proxy = Running::start(o).await.expect("a proxy");
    let deadline = Instant::now() + PATIENCE;
    let c = loop {
        match connect(&proxy, STANDBY).await {
            Ok(c) => break c,
            Err(e) => assert_eq!(sqlstate(&e), "57P03", "{e:?}"),
        }
        assert!(Instant::now() < deadline, "no replica");
    };
    rows(&c, "SET canon.read_consistency = 'eventual'").await;
    // The replica takes it while it can pass it on.
    rows(&c, "INSERT INTO t VALUES (1)").await;
    p.kill();
    // Then nobody does, and it is not the primary that is waited for. (The replica may not have heard yet that its connection is gone.)
    let e = loop {
        let e = c.batch_execute("INSERT INTO t VALUES (2)").await;
        let e = e.expect_err("nobody takes it");
        if sqlstate(&e) != "40003" {
            break e;
        }
        assert!(Instant::now() < deadline, "{e:?}");
    };
    let said = e.as_db_error().expect("the proxy says so");
    assert_eq!(said.code().code(), "57P03", "{said:?}");
    assert!(!said.message().contains("no primary"), "{said:?}");
    assert_eq!(one(&c, "SELECT pg_is_in_recovery()").await, "t");
    proxy.stop().await;
}

/// An address of this machine by which it is not its own loopback; none: it has none.
fn network_address() -> Option<IpAddr> {
    let s = UdpSocket::bind("0.0.0.0:0").ok()?;
    // Nothing is sent.
    s.connect("192.0.2.1:9").ok()?;
    let at = s.local_addr().ok()?.ip();
    (!at.is_loopback() && !at.is_unspecified()).then_some(at)
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_without_a_password_get_in_from_the_proxys_own_machine_only() {
    if skip() {
        return;
    }
    let p = Server::start().await;
    let c = p.connect().await;
    rows(&c, "CREATE ROLE alice LOGIN PASSWORD 'secret'").await;
    // A machine without a network has nobody to refuse; the rule itself is tested in `proxy::door`.
    let Some(network) = network_address() else {
        return;
    };
    for allow in [false, true] {
        let mut o = options(&[&p]);
        o.listen = "0.0.0.0:0".into();
        o.allow_passwordless_network = allow;
        let proxy = Running::start(o).await.expect("a proxy");
        connect(&proxy, ANY).await.expect("from here");
        let mut far = Config::new();
        far.host(network.to_string())
            .port(proxy.listening[ANY].port())
            .user("canon")
            .dbname("canon")
            .connect_timeout(PATIENCE);
        match (connect_to(&far).await, allow) {
            (Ok(_), true) => {}
            (Err(e), false) => assert_eq!(sqlstate(&e), "28000", "{e:?}"),
            (r, _) => panic!("{allow}: {:?}", r.map(|_| ())),
        }
        // Who proves who it is gets in.
        far.user("alice").password("secret");
        let alice = connect_to(&far).await.expect("alice");
        assert_eq!(one(&alice, "SELECT session_user").await, "alice");
        far.password("wrong");
        let e = connect_to(&far).await.expect_err("it is wrong");
        assert_eq!(sqlstate(&e), "28P01");
        proxy.stop().await;
    }
}

/// libpq's own `target_session_attrs`: it never reaches a server, so each door must report what is behind it.
#[tokio::test(flavor = "multi_thread")]
async fn libpq_finds_the_door_that_it_looks_for() {
    if skip() {
        return;
    }
    let p = Server::start().await;
    let _r = replica(&p).await;
    let proxy = Running::start(options(&[&p])).await.expect("a proxy");
    let psql = async |doors: &[usize], attributes: &str| -> Option<String> {
        let ports: Vec<String> = (doors.iter())
            .map(|d| proxy.listening[*d].port().to_string())
            .collect();
        let hosts = vec!["127.0.0.1"; doors.len()].join(",");
        let connection = format!(
            "host={hosts} port={} user=canon dbname=canon target_session_attrs={attributes}",
            ports.join(",")
        );
        let mut psql = std::process::Command::new(programs::pg_program("psql"));
        let ask = "SELECT pg_is_in_recovery()";
        psql.args(["-X", "-q", "-At", "-d", &connection, "-c", ask]);
        let done = tokio::task::block_in_place(|| psql.output().expect("psql runs"));
        let said = String::from_utf8_lossy(&done.stdout).trim().to_owned();
        done.status.success().then_some(said)
    };
    // The replica has been found.
    let deadline = Instant::now() + PATIENCE;
    while psql(&[STANDBY], "any").await.as_deref() != Some("t") {
        assert!(Instant::now() < deadline, "no session at the replica");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for (doors, attributes, wanted) in [
        (&[PRIMARY][..], "read-write", Some("f")),
        (&[PRIMARY], "primary", Some("f")),
        (&[PRIMARY], "standby", None),
        (&[STANDBY], "standby", Some("t")),
        (&[STANDBY], "primary", None),
        // It takes writes, and passes them on.
        (&[STANDBY], "read-only", None),
        // libpq goes through them in this order.
        (&[STANDBY, PRIMARY], "primary", Some("f")),
        (&[PRIMARY, STANDBY], "standby", Some("t")),
        (&[PRIMARY, STANDBY], "prefer-standby", Some("t")),
        (&[PRIMARY], "prefer-standby", Some("f")),
    ] {
        let found = psql(doors, attributes).await;
        assert_eq!(found.as_deref(), wanted, "{doors:?} {attributes}");
    }
    // The endpoint takes writes, wherever the session is.
    assert!(psql(&[ANY], "read-write").await.is_some());
    assert_eq!(psql(&[ANY], "read-only").await, None);
}

/// A replica that nobody points to the new primary goes on following the old one, and its reads wait for what that one cannot say.
#[tokio::test(flavor = "multi_thread")]
async fn who_reads_at_a_replica_that_a_promotion_has_left_behind_goes_on_elsewhere() {
    if skip() {
        return;
    }
    let p = Server::start().await;
    rows(&p.connect().await, "CREATE TABLE t (a int PRIMARY KEY)").await;
    let (heir, mut left) = (replica(&p).await, replica(&p).await);
    let proxy = Running::start(options(&[&p, &heir, &left])).await;
    let proxy = proxy.expect("a proxy");
    let there = left.connect().await;
    let mut sessions: Vec<(String, Client)> = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    // Two there: one that reads, one in a transaction. (They move as long as not all nodes have their share.)
    let at = async |sessions: &[(String, Client)]| -> Vec<usize> {
        let sql = "SELECT coalesce(string_agg(application_name, ' '), '') FROM pg_stat_activity WHERE application_name LIKE 'mine%'";
        let names = one(&there, sql).await;
        let is = |i: &usize| names.split(' ').any(|n| n == sessions[*i].0);
        (0..sessions.len()).filter(is).collect()
    };
    while at(&sessions).await.len() < 2 {
        assert!(Instant::now() < deadline, "no sessions at the replica");
        assert!(sessions.len() < 40, "none of these is at the replica");
        let name = format!("mine{}", sessions.len());
        let mut config = config(&proxy, ANY);
        config.application_name(&name);
        let c = connect_to(&config).await.expect("a session");
        rows(&c, "SELECT count(*) FROM t").await;
        sessions.push((name, c));
    }
    // In transactions, they stay.
    for (_, c) in &sessions {
        let begin = "BEGIN ISOLATION LEVEL READ COMMITTED; SELECT count(*) FROM t";
        rows(c, begin).await;
    }
    let found = at(&sessions).await;
    assert!(found.len() >= 2, "{found:?}");
    let (reads, block) = (&sessions[found[0]].1, &sessions[found[1]].1);
    rows(&there, "SET canon.read_consistency = 'eventual'").await;
    promote(&heir, &[]);
    // An open transaction notices one error.
    let told = tokio::time::timeout(PATIENCE, refused(block, "SELECT count(*) FROM t")).await;
    assert_eq!(told.expect("it does not wait for ever").0, "40001");
    rows(block, "ROLLBACK").await;
    assert_eq!(one(block, "SELECT count(*) FROM t").await, "0");
    // A transaction that ends meanwhile notices nothing, nor does the read that follows it.
    rows(reads, "COMMIT").await;
    for _ in 0..20 {
        let n = tokio::time::timeout(PATIENCE, one(reads, "SELECT count(*) FROM t")).await;
        assert_eq!(n.expect("it does not wait for ever"), "0");
    }
    rows(reads, "INSERT INTO t VALUES (1)").await;
    assert_eq!(one(block, "SELECT count(*) FROM t").await, "1");
    drop(sessions);

    // Pointed to the new primary it is as good as any, in the new term.
    left.kill();
    let (of, name) = (
        format!("{}:{}", heir.host, heir.port),
        format!("{}:{}", left.host, left.port),
    );
    left.set_env(&[("CANON_REPLICA_OF", &of), ("CANON_NODE_NAME", &name)]);
    left.launch();
    left.ready().await;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let c = connect(&proxy, ANY).await.expect("a session");
        if one(&c, "SELECT pg_is_in_recovery()").await == "t" {
            break;
        }
        assert!(Instant::now() < deadline, "no session at the replica");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    proxy.stop().await;
}

/// A session that has begun to go to a replica which, as it turns out, goes on following the old primary: it is not kept waiting there.
#[tokio::test(flavor = "multi_thread")]
async fn who_is_on_his_way_to_a_replica_that_is_left_behind_goes_elsewhere() {
    if skip() {
        return;
    }
    let p = Server::start().await;
    rows(&p.connect().await, "CREATE TABLE t (a int PRIMARY KEY)").await;
    // The proxy does not reach the heir at first, by the name that it has.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = closed.local_addr().expect("it is bound");
    drop(closed);
    let heir = named(Server::canon(&[]), &p, &at.to_string()).await;
    let left = replica(&p).await;
    let mut o = options(&[&p, &left]);
    o.nodes.push(at.to_string());
    o.patience = Duration::from_secs(3600);
    let proxy = Running::start(o).await.expect("a proxy");
    let mut mine = config(&proxy, ANY);
    mine.application_name("mine");
    let mut elsewhere = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    let c = loop {
        let c = connect_to(&mine).await.expect("a session");
        if one(&c, "SELECT pg_is_in_recovery()").await == "f" {
            break c;
        }
        assert!(Instant::now() < deadline, "no session at the primary");
        elsewhere.push(c);
    };
    drop(elsewhere);
    c.execute("INSERT INTO t VALUES (1)", &[])
        .await
        .expect("written");
    let count = c.prepare("SELECT count(*) FROM t").await.expect("prepared");
    let there = left.connect().await;
    rows(&there, "SET canon.read_consistency = 'eventual'").await;
    let coming = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'mine'";
    until(&there, coming, "0").await;
    promote(&heir, &[]);
    until(&there, coming, "1").await;
    let read = tokio::spawn(async move { c.query_one(&count, &[]).await });
    // Now it is there.
    let listener = tokio::net::TcpListener::bind(at).await.expect("the port");
    let leads = (heir.host.clone(), heir.port);
    tokio::spawn(async move {
        loop {
            let (mut client, _) = listener.accept().await.expect("a connection");
            let mut node = tokio::net::TcpStream::connect(leads.clone()).await;
            tokio::spawn(async move {
                let node = node.as_mut().expect("it listens");
                _ = tokio::io::copy_bidirectional(&mut client, node).await;
            });
        }
    });
    let row = tokio::time::timeout(PATIENCE, read).await;
    let row = row.expect("it does not wait for ever").expect("a task");
    assert_eq!(row.expect("a row").get::<_, i64>(0), 1);
    // Nor is anything left there that waits.
    until(&there, coming, "0").await;
    proxy.stop().await;
}

/// A session that its node ends for what the client does ends for the client, too, and its node is not taken for lost.
#[tokio::test(flavor = "multi_thread")]
async fn who_is_idle_for_too_long_is_gone() {
    if skip() {
        return;
    }
    let p = Server::start().await;
    let proxy = Running::start(options(&[&p])).await.expect("a proxy");
    for (limit, begin, code) in [
        ("idle_session_timeout", "", "57P05"),
        ("idle_in_transaction_session_timeout", "BEGIN", "25P03"),
    ] {
        let address = ("127.0.0.1", proxy.listening[ANY].port());
        let mut c = raw::Raw(std::net::TcpStream::connect(address).expect("the proxy listens"));
        let limited = c.0.set_read_timeout(Some(PATIENCE));
        limited.expect("a limit");
        c.send(&raw::startup(&p));
        c.until(b'Z').expect("a session");
        let set = format!("SET {limit} = '50ms'; {begin}\0");
        c.send(&raw::message(b'Q', set.as_bytes()));
        c.until(b'Z').expect("it is set");
        let said = c.message().expect("an error");
        assert_eq!((said.0, raw::field(&said.1, b'C').as_str()), (b'E', code));
        assert!(c.message().is_none(), "the connection ends");
    }
    proxy.stop().await;
}

/// The replica says where it listens, whatever it is called.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_is_found_by_any_name() {
    if skip() {
        return;
    }
    let p = Server::start().await;
    let r = named(Server::canon(&[]), &p, "reports").await;
    let there = p.connect().await;
    let sql = "SELECT canon_listen FROM pg_stat_replication WHERE application_name = 'reports'";
    assert_eq!(one(&there, sql).await, format!("{}:{}", r.host, r.port));
    let proxy = Running::start(options(&[&p])).await.expect("a proxy");
    let c = connect(&proxy, STANDBY).await.expect("a session");
    assert_eq!(one(&c, "SELECT pg_is_in_recovery()").await, "t");
    proxy.stop().await;
}
