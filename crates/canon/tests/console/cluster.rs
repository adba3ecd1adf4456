//! The page of a primary with two more members, under a load that has all that the page can show: transfers that lose races, a hot row, a split
//! value, a slow report, a session that keeps its transaction open.
//!
//! With `CANON_CONSOLE_PICTURE=FILE.png` the load goes on for five minutes, and the page is kept as a picture, which README shows.

use super::browser::Browser;
use super::common::{PATIENCE, Server, free_port};
use super::{data, run};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio_postgres::Client;

/// How long the load lasts before a picture is taken.
const PICTURED: Duration = Duration::from_secs(300);

async fn member(name: &str, join: Option<&Server>) -> (Server, u16) {
    let port = free_port();
    let at = format!("127.0.0.1:{port}");
    let join = join.map(|s| format!("{}:{}", s.host, s.port));
    let mut variables = vec![("CANON_NODE_NAME", name), ("CANON_HTTP", &at)];
    variables.extend(join.as_deref().map(|j| ("CANON_CLUSTER_JOIN", j)));
    (Server::start_with(&variables).await, port)
}

async fn connect(server: &Server, application: &str) -> Client {
    let mut config = server.config();
    config.application_name(application);
    super::common::connect_to(&config)
        .await
        .expect("it connects")
}

/// Whether a load goes on: a server that has ended answers at once, and would be asked for ever.
fn goes_on(client: &Client, stop: &AtomicBool) -> bool {
    !stop.load(Ordering::SeqCst) && !client.is_closed()
}

/// Numbers that look like chance, from a seed.
fn next(seed: &mut u64) -> i32 {
    *seed = seed
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 40) as i32
}

/// Moves money between accounts, a few of which are in much demand.
async fn transfer(client: Client, mut seed: u64, stop: Arc<AtomicBool>) {
    while goes_on(&client, &stop) {
        let (from, to) = (1 + next(&mut seed) % 6, 1 + next(&mut seed) % 400);
        let level = ["SERIALIZABLE", "READ COMMITTED"][(next(&mut seed) % 2) as usize];
        let sql = format!(
            "BEGIN ISOLATION LEVEL {level}; SELECT balance FROM accounts WHERE id = {from}; \
             UPDATE accounts SET balance = balance - 1 WHERE id = {from}; \
             UPDATE accounts SET balance = balance + 1 WHERE id = {to}; COMMIT"
        );
        if client.batch_execute(&sql).await.is_err() {
            _ = client.batch_execute("ROLLBACK").await;
        }
    }
}

/// Counts clicks in a split column, and reads.
async fn click(client: Client, mut seed: u64, stop: Arc<AtomicBool>) {
    let add = "UPDATE campaign SET clicks = clicks + 1 WHERE id = $1";
    let add = client.prepare(add).await.expect("it is planned");
    let read = client
        .prepare("SELECT balance FROM accounts WHERE id = $1")
        .await
        .expect("it is planned");
    while goes_on(&client, &stop) {
        _ = client.execute(&add, &[&(1 + next(&mut seed) % 3)]).await;
        _ = client.query(&read, &[&(1 + next(&mut seed) % 400)]).await;
    }
}

async fn report(client: Client, stop: Arc<AtomicBool>) {
    let sql = "SELECT a.id, sum(b.balance) FROM accounts a JOIN accounts b ON b.id <= a.id JOIN generate_series(1, 3) g ON true \
               WHERE a.id % 7 = 1 GROUP BY a.id ORDER BY 2 DESC";
    while goes_on(&client, &stop) {
        _ = client.simple_query(sql).await;
        tokio::time::sleep(Duration::from_millis(700)).await;
    }
}

async fn load(primary: &Server, stop: &Arc<AtomicBool>) -> Vec<tokio::task::JoinHandle<()>> {
    let client = connect(primary, "psql").await;
    run(
        &client,
        "CREATE TABLE accounts (id int PRIMARY KEY, owner text NOT NULL, balance int8 NOT NULL);
         INSERT INTO accounts SELECT i, 'owner ' || i, 1000000 FROM generate_series(1, 400) i;
         CREATE TABLE campaign (id int PRIMARY KEY, clicks int8 NOT NULL CHECK (clicks >= 0)) WITH (split = 'clicks');
         INSERT INTO campaign VALUES (1, 0), (2, 0), (3, 0);
         CREATE ROLE shop LOGIN; CREATE ROLE report LOGIN;
         GRANT ALL ON accounts, campaign TO shop; GRANT SELECT ON accounts TO report",
    )
    .await;
    run(&client, "BEGIN; SELECT count(*) FROM accounts").await;
    let mut tasks = vec![];
    for seed in 0..4 {
        let shop = connect(primary, "checkout").await;
        run(&shop, "SET ROLE shop").await;
        tasks.push(tokio::spawn(transfer(shop, seed, stop.clone())));
        let clicks = connect(primary, "clicks").await;
        tasks.push(tokio::spawn(click(clicks, seed, stop.clone())));
    }
    let reports = connect(primary, "reports").await;
    tasks.push(tokio::spawn(report(reports, stop.clone())));
    tasks.push(tokio::spawn(async move {
        // The transaction that was opened above stays open.
        let _open = client;
        std::future::pending::<()>().await;
    }));
    tasks
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_at_work_is_drawn() {
    if super::on_postgres() {
        return;
    }
    let (a, http) = member("db-1", None).await;
    let (b, _) = member("db-2", Some(&a)).await;
    let (_c, _) = member("db-3", Some(&b)).await;
    let whole = |d: &serde_json::Value| {
        let members = d["cluster"]["members"].as_array().map_or(0, Vec::len);
        members == 3 && d["cluster"]["obstacle"].is_null()
    };
    data(http, whole).await;
    let stop = Arc::new(AtomicBool::new(false));
    let tasks = load(&a, &stop).await;
    let drawn =
        tokio::task::spawn_blocking(move || look(&format!("http://127.0.0.1:{http}/console")));
    drawn.await.expect("it is drawn");
    stop.store(true, Ordering::SeqCst);
    tasks.iter().for_each(|t| t.abort());
}

fn look(url: &str) {
    let mut b = Browser::start(1360, 900);
    b.open(url);
    for node in ["db-1", "db-2", "db-3"] {
        b.until(&format!(
            "document.querySelector('#nodes').textContent.includes('{node}')"
        ));
    }
    for fact in [
        "holds its lease for",
        "another one is named by itself",
        "A commit waits for 1 replica",
    ] {
        b.until(&format!(
            "document.querySelector('#facts').textContent.includes('{fact}')"
        ));
    }
    // The lag of both replicas, as lines.
    b.until("document.querySelectorAll('#charts figure:nth-child(3) path.line').length === 2");
    b.until("document.querySelectorAll('#aborts tr td.num').length > 0");
    b.until("document.querySelector('#rows').textContent.includes('accounts')");
    b.until("document.querySelector('#splits').textContent.includes('campaign.clicks')");
    b.until("document.querySelector('#statements').textContent.includes('in transaction')");
    if let Some(path) = std::env::var_os("CANON_CONSOLE_PICTURE") {
        let end = Instant::now() + PICTURED;
        while Instant::now() < end {
            // So that the page is not taken for hidden.
            b.until("true");
            std::thread::sleep(PATIENCE / 60);
        }
        std::fs::write(path, b.picture(1360, 1240)).expect("written");
    }
    assert!(b.complaints.is_empty(), "{:?}", b.complaints);
}
