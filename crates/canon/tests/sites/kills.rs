//! What a client of a site was told holds: sites and the primary are killed under transfers, and links between them are cut.

use super::common::{self, Server};
use super::helpers::{rows, skip};
use super::{ready, site};
use canon::{Cluster, Options};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio_postgres::Client;

/// What a client was told of a transfer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    Committed,
    RolledBack,
    Unknown,
}

const ACCOUNTS: u32 = 10;
const EACH: i64 = 100;

/// One transfer, which leaves its number in the table of moves. Nothing tells what has become of it when the connection breaks.
async fn transfer(c: &Client, level: &str, number: u64) -> Told {
    let (from, to) = (number as u32 % ACCOUNTS, (number as u32 / 7 + 1) % ACCOUNTS);
    let amount = number % 5 + 1;
    let sql = format!(
        "BEGIN ISOLATION LEVEL {level};
         SELECT v FROM accounts WHERE k IN ({from}, {to});
         UPDATE accounts SET v = v - {amount} WHERE k = {from};
         UPDATE accounts SET v = v + {amount} WHERE k = {to};
         INSERT INTO moves VALUES ({number}, {from}, {to}, {amount});
         COMMIT"
    );
    let Err(e) = c.batch_execute(&sql).await else {
        return Told::Committed;
    };
    match common::sqlstate(&e).as_str() {
        // 25006: its primary has become a replica meanwhile.
        "40001" | "40P01" | "25006" => {
            // Where this fails the next one will, too.
            _ = c.batch_execute("ROLLBACK").await;
            Told::RolledBack
        }
        "connection" | "40003" | "57P01" | "57P02" | "57P03" => Told::Unknown,
        code => panic!("{code}: {e:?}"),
    }
}

/// Transfers at this server until `stop`, over a new connection whenever one breaks.
pub(crate) async fn transfers(
    config: tokio_postgres::Config,
    level: &'static str,
    numbers: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
) -> Vec<(u64, Told)> {
    let mut told = Vec::new();
    let mut client: Option<Client> = None;
    while !stop.load(Ordering::SeqCst) {
        let Some(c) = &client else {
            client = common::connect_to(&config).await.ok();
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        let number = numbers.fetch_add(1, Ordering::SeqCst);
        let became = transfer(c, level, number).await;
        told.push((number, became));
        if became == Told::Unknown {
            client = None;
        }
    }
    told
}

/// Waits until so many more transfers have begun.
pub(crate) async fn begin(numbers: &AtomicU64, more: u64) {
    let until = numbers.load(Ordering::SeqCst) + more;
    let deadline = Instant::now() + common::PATIENCE;
    while numbers.load(Ordering::SeqCst) < until {
        assert!(Instant::now() < deadline, "the transfers stand still");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// What was told as committed is there, what was told as rolled back is not, and the accounts hold what the moves say.
pub(crate) async fn assert_told(c: &Client, told: &[(u64, Told)]) {
    let found = rows(c, "SELECT n FROM moves").await;
    let number = |r: &Vec<Option<String>>| r[0].as_ref()?.parse::<u64>().ok();
    let found: HashSet<u64> = found.iter().filter_map(number).collect();
    for (number, became) in told {
        match became {
            Told::Committed => assert!(found.contains(number), "{number} is lost"),
            Told::RolledBack => assert!(!found.contains(number), "{number} was told to be undone"),
            Told::Unknown => {}
        }
    }
    let wrong = format!(
        "SELECT k, v FROM accounts WHERE v <> {EACH}
            - (SELECT coalesce(sum(amount), 0) FROM moves WHERE from_k = k)
            + (SELECT coalesce(sum(amount), 0) FROM moves WHERE to_k = k)"
    );
    let wrong = rows(c, &wrong).await;
    assert!(wrong.is_empty(), "a move counts twice, or not: {wrong:?}");
    let committed = told.iter().filter(|t| t.1 == Told::Committed).count();
    println!("{} transfers, {committed} committed", told.len());
}

pub(crate) async fn accounts(c: &Client) {
    let sql = format!(
        "CREATE TABLE accounts (k int PRIMARY KEY, v bigint NOT NULL);
         INSERT INTO accounts SELECT n, {EACH} FROM generate_series(0, {ACCOUNTS} - 1) n;
         CREATE TABLE moves (n bigint PRIMARY KEY, from_k int NOT NULL, to_k int NOT NULL, amount bigint NOT NULL)"
    );
    rows(c, &sql).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_told_holds_when_sites_and_the_primary_are_killed() {
    if skip() {
        return;
    }
    let mut primary = Server::start().await;
    let p = primary.connect().await;
    accounts(&p).await;
    let mut a = site(&primary, "a").await;
    let b = site(&primary, "b").await;
    ready(&p, &[&a, &b]).await;
    let (numbers, stop) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
    let clients = [
        (&a, "SERIALIZABLE"),
        (&a, "REPEATABLE READ"),
        (&b, "SERIALIZABLE"),
        (&b, "REPEATABLE READ"),
        (&primary, "SERIALIZABLE"),
    ];
    let clients = clients.map(|(server, level)| {
        let (config, numbers, stop) = (server.config(), numbers.clone(), stop.clone());
        tokio::spawn(transfers(config, level, numbers, stop))
    });
    begin(&numbers, 100).await;
    a.kill();
    begin(&numbers, 50).await;
    a.launch();
    a.ready().await;
    begin(&numbers, 100).await;
    primary.kill();
    primary.launch();
    primary.ready().await;
    begin(&numbers, 100).await;
    stop.store(true, Ordering::SeqCst);
    let mut told = Vec::new();
    for c in clients {
        told.extend(c.await.expect("a client ends"));
    }
    let p = primary.connect().await;
    ready(&p, &[&a, &b]).await;
    for s in [&primary, &a, &b] {
        assert_told(&s.connect().await, &told).await;
    }
}

/// A primary and two sites. The links between them can be cut.
fn quiet() -> Options {
    Options {
        site: true,
        log_level: Some("error".into()),
        // Through memory nothing could be cut.
        shared_memory: Some(false),
        ..Options::default()
    }
}

async fn member(cluster: &Cluster, member: usize) -> Client {
    let config = cluster.url(member).parse().expect("a connection string");
    common::connect_to(&config).await.expect("it serves")
}

/// Transfers at two sites while the links break again and again.
async fn over_bad_links() -> (Arc<Cluster>, Vec<(u64, Told)>) {
    let cluster = tokio::task::spawn_blocking(|| Cluster::start(quiet(), 2));
    let cluster = Arc::new(cluster.await.expect("no panic").expect("a cluster"));
    accounts(&member(&cluster, 0).await).await;
    let c = cluster.clone();
    let caught_up = tokio::task::spawn_blocking(move || c.catch_up());
    caught_up.await.expect("no panic").expect("replicas");
    let (numbers, stop) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
    let clients = [1, 1, 2, 2].map(|m| {
        let config = cluster.url(m).parse().expect("a connection string");
        let (numbers, stop) = (numbers.clone(), stop.clone());
        tokio::spawn(transfers(config, "SERIALIZABLE", numbers, stop))
    });
    for m in [1, 2] {
        cluster.delay(m, Duration::from_millis(10));
    }
    for round in 0..12 {
        begin(&numbers, 10).await;
        let m = round % 2 + 1;
        cluster.cut(m);
        tokio::time::sleep(Duration::from_millis(30)).await;
        cluster.delay(m, Duration::from_millis(10));
    }
    begin(&numbers, 10).await;
    stop.store(true, Ordering::SeqCst);
    let mut told = Vec::new();
    for c in clients {
        told.extend(c.await.expect("a client ends"));
    }
    (cluster, told)
}

async fn end(cluster: Arc<Cluster>) {
    let ended = tokio::task::spawn_blocking(move || drop(cluster));
    ended.await.expect("it ends");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_verdict_that_is_lost_with_its_link_is_asked_for() {
    if skip() {
        return;
    }
    let (cluster, told) = over_bad_links().await;
    assert_told(&member(&cluster, 0).await, &told).await;
    // No client's connection broke, so each of them was told.
    assert!(told.iter().all(|t| t.1 != Told::Unknown));
    end(cluster).await;
}
