//! Hot stock: 64 clients sell one row's stock, which is a split column with `CHECK (qty >= 0)`, while the primary is killed, started again, killed
//! once more and replaced by its replica.
//!
//! A sale takes one to three units and writes a line into a ledger, in one transaction. So at each snapshot of each node the stock and the
//! ledger come to what there was at the start, which readers ask all the time. At the end:
//!
//! ```text
//! everything is sold                the last refusals were right: nothing is left
//! acknowledged   ⊆ ledger           no sale is lost
//! ledger         ⊆ acknowledged + in doubt
//! in doubt       a client of the replica has a token: `canon_txn_status` says what the ledger says
//! ```
//! `HOT_STOCK=1000000 cargo test -p canon --release --test split_values hot` sells a million.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio_postgres::{Client, Config, Error, SimpleQueryMessage};
use workload::rng::Rng;

use super::common::{PATIENCE, Server, connect_to, sqlstate};
use super::helpers::{one, promote, replica_with, rows, skip};

const CLIENTS: u64 = 64;
const RECORDS: u16 = 8;
/// Of each wait. On a busy machine the old primary takes a minute to set aside what it had alone, and no sale is acknowledged before it follows.
const LIMIT: Duration = PATIENCE.saturating_mul(6);
const LEVELS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];
const SUM: &str = "SELECT (SELECT qty FROM stock WHERE id = 1) + (SELECT coalesce(sum(units), 0)::bigint FROM ledger), \
                   (SELECT qty FROM stock WHERE id = 1)";

fn stock() -> i64 {
    let asked = std::env::var("HOT_STOCK").ok();
    asked.map_or(2_000, |n| n.parse().expect("a number"))
}

/// What all clients share.
struct Shop {
    /// Units that were acknowledged.
    sold: AtomicI64,
    over: AtomicBool,
}

/// What one client knows of its sales, by number.
#[derive(Default)]
struct Known {
    acknowledged: BTreeSet<i64>,
    /// The connection broke before the answer, and there is no token.
    unknown: BTreeSet<i64>,
    /// Said so by `canon_txn_status`.
    found: BTreeSet<i64>,
    not_found: BTreeSet<i64>,
}

/// How a sale ended.
enum Sale {
    Done,
    /// Too few are left.
    Refused,
    /// It is certainly not done.
    Failed(Error),
    /// COMMIT was sent, and no answer came.
    InDoubt(Error),
}

/// What the last statement says to have changed.
pub fn changed(messages: &[SimpleQueryMessage]) -> u64 {
    let count = |m: &SimpleQueryMessage| match m {
        SimpleQueryMessage::CommandComplete(n) => Some(*n),
        _ => None,
    };
    messages.iter().filter_map(count).last().expect("a tag")
}

async fn sell(c: &Client, (client, number, units): (u64, i64, i64)) -> Sale {
    let take = format!("UPDATE stock SET qty = qty - {units} WHERE id = 1 AND qty >= {units}");
    let note = format!("INSERT INTO ledger VALUES ({client}, {number}, {units})");
    let before = async {
        c.batch_execute("BEGIN").await?;
        // A statement that is prepared and dropped would have its Close told that a node is lost.
        match changed(&c.simple_query(&take).await?) {
            0 => Ok(false),
            _ => c.batch_execute(&note).await.map(|()| true),
        }
    };
    match before.await {
        Err(e) => Sale::Failed(e),
        Ok(false) => match c.batch_execute("COMMIT").await {
            Ok(()) => Sale::Refused,
            Err(e) => Sale::Failed(e),
        },
        Ok(true) => match c.batch_execute("COMMIT").await {
            Ok(()) => Sale::Done,
            Err(e) if ["40001", "40P01"].contains(&&*sqlstate(&e)) => Sale::Failed(e),
            Err(e) => Sale::InDoubt(e),
        },
    }
}

/// What a client may be told while nodes go down and change: a lost race, a lost node, or none that takes writes.
fn is_expected(e: &Error) -> bool {
    let code = sqlstate(e);
    let classes = ["08", "57", "40", "53"];
    code == "connection" || code == "25006" || classes.iter().any(|c| code.starts_with(c))
}

/// A session at a node that may be down for a while.
async fn session(config: &Config, level: &str) -> Client {
    let deadline = Instant::now() + LIMIT;
    let set = format!("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL {level}");
    loop {
        if let Ok(c) = connect_to(config).await
            && c.batch_execute(&set).await.is_ok()
        {
            return c;
        }
        assert!(Instant::now() < deadline, "no session for a client");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What became of a commit, by its token.
async fn asked(config: &Config, token: &str) -> bool {
    let sql = format!("SELECT canon_txn_status('{token}')");
    let deadline = Instant::now() + LIMIT;
    loop {
        let c = session(config, LEVELS[0]).await;
        if let Ok(row) = c.query_one(&sql, &[]).await {
            match row.get(0) {
                "committed" => return true,
                "aborted" => return false,
                "in progress" => {}
                word => panic!("{token} is {word}"),
            }
        }
        assert!(Instant::now() < deadline, "no answer about {token}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Sells until nothing is left.
async fn client(shop: Arc<Shop>, config: Config, me: u64) -> Known {
    let level = LEVELS[me as usize % 3];
    let mut rng = Rng::new(me);
    let mut known = Known::default();
    let mut c = session(&config, level).await;
    let mut most = 3;
    for number in 0.. {
        let units = rng.between(1, most);
        let ended = sell(&c, (me, number, units)).await;
        match ended {
            Sale::Done => {
                known.acknowledged.insert(number);
                shop.sold.fetch_add(units, Ordering::SeqCst);
            }
            Sale::Refused if units == 1 => break,
            Sale::Refused => most = units - 1,
            Sale::Failed(e) => {
                assert!(is_expected(&e), "client {me}: {e:?}");
                if c.batch_execute("ROLLBACK").await.is_err() {
                    c = session(&config, level).await;
                }
            }
            Sale::InDoubt(e) => {
                assert!(is_expected(&e), "client {me}, at COMMIT: {e:?}");
                let detail = e.as_db_error().and_then(|d| d.detail());
                match detail.and_then(|d| d.strip_prefix("Transaction token: ")) {
                    None => _ = known.unknown.insert(number),
                    Some(token) if asked(&config, token).await => {
                        known.found.insert(number);
                    }
                    Some(_) => _ = known.not_found.insert(number),
                }
                c = session(&config, level).await;
            }
        }
    }
    known
}

/// Asks a node all the time whether stock and ledger come to the same. How often it had an answer.
async fn reader(shop: Arc<Shop>, config: Config, level: &'static str, answers: Arc<AtomicU64>) {
    while !shop.over.load(Ordering::SeqCst) {
        let c = session(&config, level).await;
        while !shop.over.load(Ordering::SeqCst) {
            match c.query_one(SUM, &[]).await {
                Ok(row) => {
                    let (all, left): (i64, i64) = (row.get(0), row.get(1));
                    assert_eq!(all, stock(), "{level}: {left} are left");
                    assert!(left >= 0, "{level}: {left} are left");
                    answers.fetch_add(1, Ordering::SeqCst);
                }
                Err(e) => {
                    assert!(is_expected(&e), "a reader: {e:?}");
                    break;
                }
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Waits until so many are sold. Only a load that has stopped takes its time.
async fn sold(shop: &Shop, wanted: i64) {
    let mut last = (shop.sold.load(Ordering::SeqCst), Instant::now());
    while last.0 < wanted {
        tokio::time::sleep(Duration::from_millis(5)).await;
        let now = shop.sold.load(Ordering::SeqCst);
        if now > last.0 {
            last = (now, Instant::now());
        }
        assert!(last.1.elapsed() < LIMIT, "nothing is sold any more");
    }
}

/// Ledger and stock at a node, at the end.
async fn check_end(c: &Client, known: &[Known]) {
    assert_eq!(one(c, "SELECT qty FROM stock WHERE id = 1").await, "0");
    let sum = one(c, "SELECT sum(units) FROM ledger").await;
    assert_eq!(sum, stock().to_string());
    for (me, k) in known.iter().enumerate() {
        let sql = format!("SELECT number FROM ledger WHERE client = {me}");
        let all = rows(c, &sql).await.into_iter();
        let ledger: BTreeSet<i64> = all
            .map(|r| r[0].as_ref().expect("a number").parse().expect("a number"))
            .collect();
        let lost: Vec<_> = k.acknowledged.difference(&ledger).collect();
        assert!(lost.is_empty(), "client {me}: {lost:?} are lost");
        let may_be =
            |n: &&i64| k.acknowledged.contains(n) || k.unknown.contains(n) || k.found.contains(n);
        let more: Vec<_> = ledger.iter().filter(|n| !may_be(n)).collect();
        assert!(more.is_empty(), "client {me}: {more:?} are sold, unasked");
        let missing: Vec<_> = k.found.difference(&ledger).collect();
        assert!(
            missing.is_empty(),
            "client {me}: {missing:?} are said to be committed"
        );
        let there: Vec<_> = k.not_found.intersection(&ledger).collect();
        assert!(
            there.is_empty(),
            "client {me}: {there:?} are said to be aborted"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_sold_is_what_was_acknowledged_through_crashes_and_a_promotion() {
    sold_through_crashes(0, "escrow").await;
}

/// The same with further records, which the worker gives and takes meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn further_records_are_sold_through_crashes_and_a_promotion() {
    sold_through_crashes(RECORDS, "escrow").await;
}

/// The same in the mode `rows`: a worker balances the records.
#[tokio::test(flavor = "multi_thread")]
async fn rows_are_sold_through_crashes_and_a_promotion() {
    sold_through_crashes(RECORDS, "rows").await;
}

/// `records`: how many further records the stock has at the start, and is given again by the worker.
async fn sold_through_crashes(records: u16, mode: &str) {
    if skip() {
        return;
    }
    let needs = [("CANON_SYNCHRONOUS_REPLICAS", "1")];
    let mut p = Server::start_with(&needs).await;
    let r = replica_with(&p, "r", &needs).await;
    let c = p.connect().await;
    let setup = format!(
        "CREATE TABLE stock (id int PRIMARY KEY, qty bigint NOT NULL CHECK (qty >= 0)) WITH (split = 'qty');
         ALTER TABLE stock ALTER COLUMN qty SET (split_mode = {mode});
         CREATE TABLE ledger (client int, number bigint, units bigint NOT NULL, PRIMARY KEY (client, number));
         INSERT INTO stock VALUES (1, {})",
        stock()
    );
    c.batch_execute(&setup).await.expect("a shop");
    if records > 0 {
        super::spread(&c, records).await;
    }
    drop(c);
    let shop = Arc::new(Shop {
        sold: AtomicI64::new(0),
        over: AtomicBool::new(false),
    });
    // Three of four at the replica, which passes their writes on.
    let clients: Vec<_> = (0..CLIENTS)
        .map(|me| {
            let node = if me % 4 == 0 { &p } else { &r };
            tokio::spawn(client(shop.clone(), node.config(), me))
        })
        .collect();
    let answers: Vec<_> = (0..6).map(|_| Arc::new(AtomicU64::new(0))).collect();
    let readers: Vec<_> = (answers.iter().zip([&p, &r, &p, &r, &p, &r]).enumerate())
        .map(|(n, (count, node))| {
            let level = LEVELS[n % 3];
            tokio::spawn(reader(shop.clone(), node.config(), level, count.clone()))
        })
        .collect();

    sold(&shop, stock() / 4).await;
    p.kill();
    p.launch();
    sold(&shop, stock() / 2).await;
    p.kill();
    promote(&r, &["--force", "--old-primary-is-down"]);
    let of = format!("{}:{}", r.host, r.port);
    p.set_env(&[("CANON_REPLICA_OF", &of), ("CANON_NODE_NAME", "p")]);
    p.launch();

    let mut known = Vec::new();
    for c in clients {
        known.push(c.await.expect("a client ends in order"));
    }
    shop.over.store(true, Ordering::SeqCst);
    for r in readers {
        r.await.expect("a reader ends in order");
    }
    p.ready().await;
    for node in [&r, &p] {
        check_end(&node.connect().await, &known).await;
    }
    let of = |f: fn(&Known) -> usize| known.iter().map(f).sum::<usize>();
    println!(
        "{} sales acknowledged, {} found by their token, {} not, {} without one; {} sums read",
        of(|k| k.acknowledged.len()),
        of(|k| k.found.len()),
        of(|k| k.not_found.len()),
        of(|k| k.unknown.len()),
        answers
            .iter()
            .map(|a| a.load(Ordering::SeqCst))
            .sum::<u64>()
    );
    for a in &answers {
        assert!(a.load(Ordering::SeqCst) > 0, "a reader had no answer");
    }
}
