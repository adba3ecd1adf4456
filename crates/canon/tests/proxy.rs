//! `canon proxy` before real nodes: sessions spread, move, and outlive their nodes; replicas come and go under load.

mod common;
#[allow(dead_code)]
#[path = "replication/helpers.rs"]
mod helpers;
#[allow(dead_code)]
#[path = "wire_abuse/raw.rs"]
mod raw;

use common::{PATIENCE, Server, connect_to, sqlstate};
use helpers::{one, promote, refused, rows, skip, until};
use proxy::{Options, Running};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio_postgres::{Client, Config, Statement};

/// A replica that is called by its address, as it is by default where the host's name leads to it.
async fn replica(primary: &Server) -> Server {
    let mut s = Server::canon(&[]);
    let (of, name) = (
        format!("{}:{}", primary.host, primary.port),
        format!("{}:{}", s.host, s.port),
    );
    s.set_env(&[("CANON_REPLICA_OF", &of), ("CANON_NODE_NAME", &name)]);
    s.launch();
    s.ready().await;
    s
}

/// A proxy that is told of these nodes, with a door for each kind of session.
async fn proxy(nodes: &[&Server]) -> Running {
    asking(nodes, Duration::from_millis(50)).await
}

/// One that asks its nodes as often as this.
async fn asking(nodes: &[&Server], check_interval: Duration) -> Running {
    let any = || "127.0.0.1:0".to_owned();
    let options = Options {
        nodes: nodes
            .iter()
            .map(|n| format!("{}:{}", n.host, n.port))
            .collect(),
        listen: any(),
        listen_primary: Some(any()),
        listen_standby: Some(any()),
        http: None,
        user: "canon".into(),
        cluster_secret_file: None,
        max_connections: 100,
        max_lag: PATIENCE,
        check_interval,
        patience: PATIENCE,
        shutdown_timeout: Duration::from_secs(5),
        allow_passwordless_network: false,
        allow_plain_network: true,
        tls_certificate: None,
        tls_key: None,
        tls_cluster_ca: None,
        log_level: "warn".into(),
    };
    Running::start(options).await.expect("a proxy")
}

const ANY: usize = 0;
const PRIMARY: usize = 1;
const STANDBY: usize = 2;

fn config(proxy: &Running, door: usize) -> Config {
    let mut c = Config::new();
    c.host("127.0.0.1")
        .port(proxy.listening[door].port())
        .user("canon")
        .dbname("canon")
        .connect_timeout(PATIENCE);
    c
}

async fn connect(proxy: &Running, door: usize) -> Client {
    let c = connect_to(&config(proxy, door)).await;
    c.expect("the proxy takes connections")
}

/// Waits for something that is asked again and again.
async fn eventually(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done().await {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Whether a session is at a replica.
async fn at_replica(c: &Client) -> bool {
    one(c, "SELECT pg_is_in_recovery()").await == "t"
}

/// Waits until a new session through this door is at that node.
async fn reaches(proxy: &Running, door: usize, server: &Server) {
    let there = server.connect().await;
    let mine = format!("{}-{}", server.port, door);
    let sql = format!("SELECT count(*) FROM pg_stat_activity WHERE application_name = '{mine}'");
    eventually(&format!("a session at {}", server.port), async || {
        let mut config = config(proxy, door);
        config.application_name(&mine);
        let _open = connect_to(&config).await.expect("a session");
        one(&there, &sql).await != "0"
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_endpoint_gives_every_session_a_node_of_the_kind_it_wants() {
    if skip() {
        return;
    }
    let p = Server::start().await;
    let c = p.connect().await;
    c.batch_execute(
        "CREATE TABLE t (a int PRIMARY KEY); CREATE ROLE alice LOGIN PASSWORD 'secret';
         GRANT ALL ON t TO alice",
    )
    .await
    .expect("a table and a role");
    let r = replica(&p).await;
    // Told of the primary only: the replica is found.
    let proxy = proxy(&[&p]).await;
    reaches(&proxy, STANDBY, &r).await;
    reaches(&proxy, PRIMARY, &p).await;
    for (attrs, standby) in [
        ("primary", false),
        ("read-write", false),
        ("standby", true),
        ("read-only", true),
        ("prefer-standby", true),
    ] {
        let mut config = config(&proxy, ANY);
        config.options(format!(
            "-c lock_timeout=5s -c target_session_attrs={attrs}"
        ));
        let s = connect_to(&config).await.expect(attrs);
        assert_eq!(at_replica(&s).await, standby, "{attrs}");
        assert_eq!(one(&s, "SHOW lock_timeout").await, "5s");
    }
    let mut wrong = config(&proxy, ANY);
    wrong.options("-c target_session_attrs=nearest");
    let e = connect_to(&wrong).await.expect_err("refused");
    assert_eq!(sqlstate(&e), "22023");

    // Sessions spread, and whatever they write gets to the primary.
    let mut at = [0, 0];
    let mut sessions = Vec::new();
    for i in 0..8 {
        let s = connect(&proxy, ANY).await;
        at[usize::from(at_replica(&s).await)] += 1;
        sessions.push((i, s));
    }
    assert!(at[0] >= 2 && at[1] >= 2, "{at:?}");
    for (i, s) in &sessions {
        let written = s.execute("INSERT INTO t VALUES ($1)", &[i]).await;
        assert_eq!(written.expect("written"), 1);
    }
    assert_eq!(one(&c, "SELECT count(*) FROM t").await, "8");

    // The node asks for the password; the proxy has none of alice's, and nobody gets further than alice.
    let mut alice = config(&proxy, ANY);
    alice.user("alice").password("wrong");
    let e = connect_to(&alice).await.expect_err("refused");
    assert_eq!(sqlstate(&e), "28P01");
    alice.password("secret");
    for _ in 0..4 {
        let s = connect_to(&alice).await.expect("alice");
        assert_eq!(one(&s, "SELECT session_user").await, "alice");
        assert_eq!(
            refused(&s, "SET SESSION AUTHORIZATION canon").await.0,
            "42501"
        );
    }

    // A cancel request finds the statement, wherever it runs.
    let s = connect(&proxy, STANDBY).await;
    let token = s.cancel_token();
    let long = tokio::spawn(async move {
        let e = s.batch_execute("SELECT pg_sleep(600)").await;
        e.err().map(|e| sqlstate(&e))
    });
    eventually("cancelled", async || {
        token
            .cancel_query(tokio_postgres::NoTls)
            .await
            .expect("sent");
        long.is_finished()
    })
    .await;
    assert_eq!(long.await.expect("a task").as_deref(), Some("57014"));
    proxy.stop().await;
}

/// COPY by the extended protocol has two Syncs and one ReadyForQuery: what follows it is counted right.
#[tokio::test(flavor = "multi_thread")]
async fn what_follows_a_copy_runs_once_when_its_node_goes() {
    use futures::SinkExt;
    if skip() {
        return;
    }
    let p = Server::start().await;
    let there = p.connect().await;
    // Without a key, so that a second run would be one more row.
    rows(&there, "CREATE TABLE t (a int)").await;
    let mut r = replica(&p).await;
    let proxy = proxy(&[&p, &r]).await;
    reaches(&proxy, STANDBY, &r).await;
    let mut prefers = config(&proxy, ANY);
    prefers.options("-c target_session_attrs=prefer-standby");
    let c = connect_to(&prefers).await.expect("a session");
    assert!(at_replica(&c).await);
    for (n, rows) in [("1\n", 1), ("2\n3\n", 2)] {
        let sink = c.copy_in("COPY t FROM STDIN").await.expect("it wants data");
        let mut sink = std::pin::pin!(sink);
        sink.send(bytes::Bytes::from(n)).await.expect("sent");
        assert_eq!(sink.finish().await.expect("copied"), rows);
    }
    rows(&c, "INSERT INTO t VALUES (4)").await;
    assert_eq!(one(&c, "SELECT count(*) FROM t").await, "4");
    rows(&c, "INSERT INTO t VALUES (5)").await;
    // Asked to leave, and nothing is under way.
    terminate(&r);
    assert!(r.exited(PATIENCE).await.expect("it ends").success());
    assert!(!at_replica(&c).await);
    assert_eq!(one(&c, "SELECT count(*) FROM t").await, "5");
    assert_eq!(one(&there, "SELECT count(*) FROM t").await, "5");
    proxy.stop().await;
}

/// What a client does again and again.
#[derive(Clone, Copy, PartialEq)]
enum Does {
    Read,
    Write,
    /// A transaction that reads, writes and sees what it has written.
    Block,
    /// The same, with BEGIN and COMMIT as prepared statements.
    Prepared,
}

/// A client that must never see an error outside of a transaction, and what it did.
struct Steady {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    task: tokio::task::JoinHandle<Result<(u64, u64), String>>,
}

fn told(what: &str, e: &tokio_postgres::Error) -> String {
    format!("{what}: {} {e} {:?}", sqlstate(e), e.as_db_error())
}

/// What has become of the write without an answer that follows the `n` that have one: the row at the next primary says.
async fn settled(c: &Client, read: &Statement, id: i32, n: u64) -> Result<u64, String> {
    let deadline = Instant::now() + PATIENCE;
    while at_replica(c).await {
        assert!(Instant::now() < deadline, "no primary");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let row = c.query_one(read, &[&id]).await;
    let v = row.map_err(|e| told("settle", &e))?.get::<_, i64>(0) as u64;
    match v == n || v == n + 1 {
        true => Ok(v),
        false => Err(format!("{v} after {n}")),
    }
}

impl Steady {
    /// Adds one to its own row and reads it back, by prepared statements, until it is told to stop; gives how often, and how many errors its
    /// transactions got.
    async fn start(proxy: &Running, attrs: &'static str, does: Does, id: i32) -> Steady {
        Steady::start_with(proxy, attrs, does, id, false).await
    }

    /// `forced`: the primary may go without a word, so a write may have no answer, and a replica may lose the transaction that it has sent on.
    async fn start_with(
        proxy: &Running,
        attrs: &'static str,
        does: Does,
        id: i32,
        forced: bool,
    ) -> Steady {
        let mut config = config(proxy, ANY);
        config.options(format!("-c target_session_attrs={attrs}"));
        let c = connect_to(&config).await.expect("a client");
        let (stop, done) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let (s, d) = (stop.clone(), done.clone());
        let task = tokio::spawn(async move {
            c.batch_execute("SET application_name = 'steady'; SET my.own = 'mine'")
                .await
                .map_err(|e| told("set", &e))?;
            let add = "UPDATE n SET v = v + 1 WHERE id = $1";
            let add = c.prepare(add).await.map_err(|e| told("prepare", &e))?;
            let read = c
                .prepare("SELECT v, current_setting('my.own') FROM n WHERE id = $1")
                .await
                .map_err(|e| told("prepare", &e))?;
            let begin = c.prepare("BEGIN").await.map_err(|e| told("prepare", &e))?;
            let commit = c.prepare("COMMIT").await;
            let commit = commit.map_err(|e| told("prepare", &e))?;
            let (mut n, mut errors) = (0, 0);
            while !s.load(Ordering::SeqCst) {
                match does {
                    Does::Read => {}
                    Does::Write => match c.execute(&add, &[&id]).await {
                        Ok(1) => n += 1,
                        Ok(_) => return Err("no row".into()),
                        Err(e) if forced && sqlstate(&e) == "40003" => {
                            errors += 1;
                            n = settled(&c, &read, id, n).await?;
                        }
                        Err(e) => return Err(told("write", &e)),
                    },
                    Does::Block | Does::Prepared => {
                        let block = async {
                            match does {
                                Does::Prepared => drop(c.execute(&begin, &[]).await?),
                                _ => c.batch_execute("BEGIN").await?,
                            }
                            let before: i64 = c.query_one(&read, &[&id]).await?.get(0);
                            c.execute(&add, &[&id]).await?;
                            let after: i64 = c.query_one(&read, &[&id]).await?.get(0);
                            match does {
                                Does::Prepared => drop(c.execute(&commit, &[]).await?),
                                _ => c.batch_execute("COMMIT").await?,
                            }
                            Ok::<_, tokio_postgres::Error>((before, after))
                        };
                        match block.await {
                            Ok((before, after)) if before as u64 == n && after == before + 1 => {
                                n += 1;
                            }
                            Ok(seen) => return Err(format!("{seen:?} after {n}")),
                            // One, and the session is as good as before.
                            Err(e) => {
                                let code = sqlstate(&e);
                                let expected = match &*code {
                                    "25006" | "40001" => true,
                                    "08006" | "40003" => forced,
                                    _ => false,
                                };
                                if !expected {
                                    return Err(told("block", &e));
                                }
                                errors += 1;
                                let over = c.batch_execute("ROLLBACK").await;
                                over.map_err(|e| told("rollback", &e))?;
                                if code == "40003" {
                                    n = settled(&c, &read, id, n).await?;
                                }
                            }
                        }
                    }
                }
                if does == Does::Prepared {
                    // Nothing stands between its transactions.
                    d.fetch_add(1, Ordering::SeqCst);
                    continue;
                }
                let row = c.query_one(&read, &[&id]).await;
                let row = row.map_err(|e| told("read", &e))?;
                let (v, own): (i64, String) = (row.get(0), row.get(1));
                if own != "mine" || v as u64 != n {
                    return Err(format!("{v} {own} after {n}"));
                }
                d.fetch_add(1, Ordering::SeqCst);
            }
            Ok((n, errors))
        });
        Steady { stop, done, task }
    }

    /// Pipelines two statements with each Sync, and a Flush behind that as libpq of PostgreSQL 18 does, so many at a time.
    fn pipelines(proxy: &Running, door: usize, id: i32, at_a_time: usize) -> Steady {
        let address = ("127.0.0.1", proxy.listening[door].port());
        let mut raw = raw::Raw(std::net::TcpStream::connect(address).expect("the proxy listens"));
        let limited = raw.0.set_read_timeout(Some(PATIENCE));
        limited.expect("a limit");
        let mut hello = 196_608i32.to_be_bytes().to_vec();
        hello.extend(b"user\0canon\0database\0canon\0\0");
        raw.send(&raw::framed(&hello));
        let mut cycle = Vec::new();
        for sql in [
            "SELECT v FROM n WHERE id = ",
            "UPDATE n SET v = v + 1 WHERE id = ",
        ] {
            let parse = format!("\0{sql}{id}\0\0\0");
            cycle.extend(raw::message(b'P', parse.as_bytes()));
            cycle.extend(raw::message(b'B', &[0; 8]));
            cycle.extend(raw::message(b'E', &[0; 5]));
        }
        cycle.extend(raw::message(b'S', b""));
        cycle.extend(raw::message(b'H', b""));
        let (stop, done) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let (s, d) = (stop.clone(), done.clone());
        let task = tokio::task::spawn_blocking(move || {
            raw.until(b'Z').expect("a session");
            let (mut n, mut errors, mut due) = (0, 0, 0);
            loop {
                while due < at_a_time && !s.load(Ordering::SeqCst) {
                    raw.send(&cycle);
                    due += 1;
                }
                if due == 0 {
                    return Ok((n, errors));
                }
                let seen = raw.until(b'Z').expect("the connection stays");
                due -= 1;
                match seen.iter().find(|m| m.0 == b'E') {
                    None => n += 1,
                    Some(e) => {
                        let code = raw::field(&e.1, b'C');
                        if !["25006", "40001", "57P03"].contains(&code.as_str()) {
                            return Err(format!("{code} {}", raw::field(&e.1, b'M')));
                        }
                        errors += 1;
                    }
                }
                d.fetch_add(1, Ordering::SeqCst);
            }
        });
        Steady { stop, done, task }
    }

    /// Stops all; every write is there. How many errors each of them got in its transactions.
    async fn end(all: Vec<Steady>, c: &Client) -> Vec<u64> {
        let mut errors = Vec::new();
        for (i, s) in all.into_iter().enumerate() {
            let (n, got) = s.stop().await.unwrap_or_else(|e| panic!("client {i}: {e}"));
            let v = one(c, &format!("SELECT v FROM n WHERE id = {i}")).await;
            assert_eq!(v, n.to_string(), "client {i}");
            errors.push(got);
        }
        errors
    }

    async fn some(all: &[Steady], n: u64) {
        for s in all {
            let from = s.done.load(Ordering::SeqCst);
            let deadline = Instant::now() + PATIENCE;
            while s.done.load(Ordering::SeqCst) < from + n && !s.task.is_finished() {
                assert!(Instant::now() < deadline, "a client does not move");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }

    async fn stop(self) -> Result<(u64, u64), String> {
        self.stop.store(true, Ordering::SeqCst);
        self.task.await.expect("a client")
    }
}

async fn counters(c: &Client, n: i32) {
    let sql = format!(
        "CREATE TABLE n (id int PRIMARY KEY, v bigint NOT NULL);
         INSERT INTO n SELECT g, 0 FROM generate_series(0, {n}) g"
    );
    c.batch_execute(&sql).await.expect("counters");
}

fn terminate(s: &Server) {
    let pid = s.pid().to_string();
    let done = std::process::Command::new("kill").arg(&pid).status();
    assert!(done.expect("kill runs").success());
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_come_and_go_under_load_and_no_client_gets_an_error() {
    if skip() {
        return;
    }
    let p = Server::start().await;
    let c = p.connect().await;
    counters(&c, 8).await;
    let first = replica(&p).await;
    let proxy = proxy(&[&p]).await;
    reaches(&proxy, STANDBY, &first).await;
    let mut clients = Vec::new();
    let kinds = [
        ("any", Does::Write),
        ("prefer-standby", Does::Read),
        ("prefer-standby", Does::Write),
        ("prefer-standby", Does::Block),
        ("primary", Does::Write),
        ("any", Does::Block),
        ("prefer-standby", Does::Write),
        ("any", Does::Read),
    ];
    for (i, (attrs, does)) in kinds.into_iter().enumerate() {
        clients.push(Steady::start(&proxy, attrs, does, i as i32).await);
    }
    Steady::some(&clients, 20).await;
    // What the replica may not do itself it does at the primary.
    let there = first.connect().await;
    let forwards = "SELECT count(*) > 0 FROM pg_stat_activity WHERE application_name = 'steady' AND query LIKE 'UPDATE%'";
    until(&there, forwards, "t").await;
    drop(there);

    // One comes: it is found, and sessions move there by themselves.
    let mut second = replica(&p).await;
    reaches(&proxy, STANDBY, &second).await;
    let there = second.connect().await;
    let steady = "SELECT count(*) > 0 FROM pg_stat_activity WHERE application_name = 'steady'";
    until(&there, steady, "t").await;
    drop(there);
    Steady::some(&clients, 20).await;

    // Both go, one after the other.
    let mut first = first;
    for s in [&mut first, &mut second] {
        terminate(s);
        assert!(s.exited(PATIENCE).await.expect("it ends").success());
        Steady::some(&clients, 20).await;
    }
    // Forgotten by the primary, at once: nothing waits for them.
    until(&c, "SELECT count(*) FROM pg_stat_replication", "0").await;
    rows(&c, "UPDATE n SET v = v WHERE id = 8").await;
    // One comes again, to a cluster that has none.
    let third = replica(&p).await;
    reaches(&proxy, STANDBY, &third).await;
    Steady::some(&clients, 20).await;
    assert_eq!(Steady::end(clients, &c).await, [0; 8]);
    proxy.stop().await;
}

/// A primary whose commits wait for its replica, and clients of a proxy before both: writers and transactions, and a transaction that stays
/// open and has changed row 8.
async fn under_load(forced: bool) -> (Server, Server, Running, Vec<Steady>, Client) {
    let p = Server::start_with(&[("CANON_SYNCHRONOUS_REPLICAS", "1")]).await;
    let c = p.connect().await;
    rows(&c, "SET synchronous_commit = local").await;
    counters(&c, 8).await;
    let r = replica(&p).await;
    r.connect().await;
    let proxy = proxy(&[&p, &r]).await;
    reaches(&proxy, STANDBY, &r).await;
    let mut clients = Vec::new();
    for i in 0..8 {
        let does = [Does::Write, Does::Block][i as usize % 2];
        let attrs = ["primary", "any"][i as usize / 4];
        clients.push(Steady::start_with(&proxy, attrs, does, i, forced).await);
    }
    let open = connect(&proxy, PRIMARY).await;
    rows(&open, "SET lock_timeout = '7s'; PREPARE mine AS SELECT 7").await;
    rows(&open, "BEGIN; UPDATE n SET v = 100 WHERE id = 8").await;
    // Ends with the transaction, however that ends.
    rows(&open, "SET LOCAL lock_timeout = '9s'").await;
    Steady::some(&clients, 20).await;
    (p, r, proxy, clients, open)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_promotion_by_force_loses_nothing_that_was_acknowledged_and_sessions_go_on() {
    if skip() {
        return;
    }
    let (mut p, r, proxy, clients, open) = under_load(true).await;
    let idle = connect(&proxy, PRIMARY).await;
    rows(&idle, "SET my.own = 'kept'").await;
    p.kill();
    promote(&r, &["--force", "--old-primary-is-down"]);
    // One error, and a failed transaction up to its end.
    assert_eq!(
        refused(&open, "UPDATE n SET v = 101 WHERE id = 8").await.0,
        "40001"
    );
    assert_eq!(refused(&open, "SELECT 1").await.0, "25P02");
    rows(&open, "ROLLBACK").await;
    until(&open, "SELECT pg_is_in_recovery()", "f").await;
    assert_eq!(one(&open, "SHOW lock_timeout").await, "7s");
    assert_eq!(one(&open, "EXECUTE mine").await, "7");
    assert_eq!(one(&open, "SELECT v FROM n WHERE id = 8").await, "0");
    rows(&open, "UPDATE n SET v = 3 WHERE id = 8").await;
    assert_eq!(one(&idle, "SHOW my.own").await, "kept");
    Steady::some(&clients, 20).await;
    // Every write that was acknowledged is there, and none twice. Who was at the primary has had one error at most; a transaction that
    // begins at the replica while there is no primary has one of its own.
    let errors = Steady::end(clients, &open).await;
    assert!(errors[..4].iter().all(|n| *n <= 1), "{errors:?}");
    proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_promotion_is_noticed_by_open_transactions_only_and_once() {
    if skip() {
        return;
    }
    let (_p, r, proxy, clients, open) = under_load(false).await;
    let report = promote(&r, &[]);
    assert!(report.contains("nothing is lost"), "{report}");
    // One error; then the same session goes on at the new primary, with what it had.
    let code = match open
        .batch_execute("UPDATE n SET v = 101 WHERE id = 8; COMMIT")
        .await
    {
        Ok(()) => panic!("the transaction's primary has gone"),
        Err(e) => sqlstate(&e),
    };
    assert!(["25006", "40001"].contains(&code.as_str()), "{code}");
    rows(&open, "ROLLBACK").await;
    until(&open, "SELECT pg_is_in_recovery()", "f").await;
    assert_eq!(one(&open, "SHOW lock_timeout").await, "7s");
    assert_eq!(one(&open, "EXECUTE mine").await, "7");
    rows(
        &open,
        "SET synchronous_commit = local; UPDATE n SET v = 3 WHERE id = 8",
    )
    .await;
    // Who was between transactions has noticed nothing, and nothing is lost.
    Steady::some(&clients, 20).await;
    // Nor has anybody who was in the middle of a transaction noticed more than one error.
    let errors = Steady::end(clients, &open).await;
    assert!(errors.iter().all(|n| *n <= 1), "{errors:?}");

    // Without a warning: kill -9 of the node that a session is at, in and between transactions.
    let idle = connect(&proxy, ANY).await;
    rows(&idle, "SET my.own = 'kept'").await;
    rows(&open, "BEGIN; UPDATE n SET v = 4 WHERE id = 8").await;
    let mut r = r;
    r.kill();
    // It leads now, and follows nobody.
    r.set_env(&[]);
    r.launch();
    r.ready().await;
    assert_eq!(one(&idle, "SHOW my.own").await, "kept");
    assert_eq!(refused(&open, "SELECT 1").await.0, "40001");
    assert_eq!(refused(&open, "SELECT 1").await.0, "25P02");
    rows(&open, "ROLLBACK").await;
    assert_eq!(one(&open, "SELECT v FROM n WHERE id = 8").await, "3");
    proxy.stop().await;
}

/// The proxy asks its nodes so seldom that it is the refusals of the old primary that must lead everybody away from there.
#[tokio::test(flavor = "multi_thread")]
async fn who_begins_at_a_node_that_has_handed_over_goes_on_at_its_successor() {
    if skip() {
        return;
    }
    let p = Server::start().await;
    let c = p.connect().await;
    counters(&c, 8).await;
    let r = replica(&p).await;
    r.connect().await;
    let proxy = asking(&[&p, &r], Duration::from_secs(5)).await;
    reaches(&proxy, STANDBY, &r).await;
    let mut clients = Vec::new();
    for i in 0..4 {
        let does = [Does::Prepared, Does::Block][i as usize % 2];
        let attrs = ["primary", "any"][i as usize / 2];
        clients.push(Steady::start(&proxy, attrs, does, i).await);
    }
    for (i, at_a_time) in [(4, 1), (5, 1), (6, 2)] {
        clients.push(Steady::pipelines(&proxy, PRIMARY, i, at_a_time));
    }
    Steady::some(&clients, 20).await;
    promote(&r, &[]);
    Steady::some(&clients, 50).await;
    let there = r.connect().await;
    let errors = Steady::end(clients, &there).await;
    // One for the transaction that was open, one for each that was pipelined.
    assert!(errors[..6].iter().all(|n| *n <= 1), "{errors:?}");
    assert!(errors[6] <= 2, "{errors:?}");
    proxy.stop().await;
}
