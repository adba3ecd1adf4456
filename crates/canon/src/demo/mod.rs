//! `canon demo`: a server with a small shop in it, a short mixed load over real sockets, and what came of it.
//!
//! ```text
//! accounts (id, owner, balance >= 0)   items (id, name, price, stock >= 0)   orders (id, account, item, quantity, placed)
//! of ten transactions: 6 look something up, 2 move money between accounts, 2 order an item (money, stock and the order)
//! ```
//! With `--replicas` the same shop stands in a cluster (`replicas`).
//!
//! Orders follow the taste of the day: half of them go to one item in twenty, so that rows get hot.

mod replicas;
mod shop;

use base::{Error, Result, SqlState};
use protocol::client::{Client, Refused};
use protocol::message::Rows;
use server::Server;
use server::config::{Config, Overrides};
use shop::{ACCOUNTS, ITEMS, Shop};
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use workload::rng::Rng;

#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Keep the data here, and go on with the shop of an earlier run; else a temporary directory that goes with the demonstration
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Address for PostgreSQL clients; a free port when this one is taken
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:5432")]
    pub listen: String,
    /// Clients of the load
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=90))]
    pub clients: u32,
    /// Seconds of the load
    #[arg(long, default_value_t = 10)]
    pub seconds: u64,
    /// Replicas that follow: shows their lag, one that is killed and catches up, and a switch-over
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=8))]
    pub replicas: u32,
    /// End after the load
    #[arg(long)]
    pub exit: bool,
}

const STATEMENTS: &[(&str, &str)] = &[
    (
        "balance",
        "SELECT owner, balance FROM accounts WHERE id = $1",
    ),
    ("item", "SELECT name, price, stock FROM items WHERE id = $1"),
    (
        "history",
        "SELECT o.id, i.name, o.quantity FROM orders o JOIN items i ON i.id = o.item WHERE o.account = $1 LIMIT 10",
    ),
    (
        "take",
        "UPDATE accounts SET balance = balance - $2 WHERE id = $1",
    ),
    (
        "give",
        "UPDATE accounts SET balance = balance + $2 WHERE id = $1",
    ),
    (
        "pay",
        "UPDATE accounts SET balance = balance - $3 * (SELECT price FROM items WHERE id = $2) WHERE id = $1",
    ),
    ("pick", "UPDATE items SET stock = stock - $2 WHERE id = $1"),
    (
        "order",
        "INSERT INTO orders (account, item, quantity) VALUES ($1, $2, $3)",
    ),
    ("begin", "BEGIN"),
    ("commit", "COMMIT"),
    ("rollback", "ROLLBACK"),
];

const KINDS: [&str; 3] = ["look something up", "move money", "order an item"];

fn broken(e: impl std::fmt::Display) -> Error {
    Error::new(
        SqlState::CONNECTION_FAILURE,
        format!("the demonstration's own client: {e}"),
    )
}

/// Runs the demonstration.
pub fn run(o: &Options) -> Result<()> {
    let temporary = o.data.is_none();
    let data = o
        .data
        .clone()
        .unwrap_or_else(|| std::env::temp_dir().join(format!("canon-demo-{}", std::process::id())));
    let flags = Overrides {
        data: Some(data.clone()),
        listen: Some(o.listen.clone()),
        log_level: Some("warn".into()),
        // The steps read and then write what they have read.
        settings: vec!["default_transaction_isolation=serializable".into()],
        ..Overrides::default()
    };
    let mut config = Config::load(&flags)?;
    server::start_logging(&config);
    // A PostgreSQL of the user's own may have the port.
    if config
        .listen
        .iter()
        .any(|a| std::net::TcpListener::bind(a).is_err())
    {
        config.listen.iter_mut().for_each(|a| a.set_port(0));
    }
    let runtime = service::runtime()?;
    let done = runtime.block_on(async {
        let server = Server::start(&config).await?;
        let address = server.listening[0];
        if o.replicas > 0 {
            return replicas::run(o, &config, server, &data).await;
        }
        let shown = tokio::task::block_in_place(|| show(o, &server, address));
        if shown.is_ok() && !o.exit {
            println!("\nThe shop is open; look around with\n\n    psql -h {} -p {} -U canon canon\n\nCtrl-C ends it.", address.ip(), address.port());
            service::stop_signal().await?;
            println!();
        }
        server.stop().await;
        shown
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    if temporary {
        _ = std::fs::remove_dir_all(&data);
    } else {
        println!("The data stay in {}.", data.display());
    }
    done
}

fn show(o: &Options, server: &Server, address: SocketAddr) -> Result<()> {
    println!("Canon {} on {address}", env!("CARGO_PKG_VERSION"));
    let began = Instant::now();
    let mut c = Client::connect(address).map_err(broken)?;
    match shop::open(&mut c)? {
        Shop::Made => println!(
            "Loaded a shop of {ACCOUNTS} accounts and {ITEMS} items in {:.1} s.",
            began.elapsed().as_secs_f64()
        ),
        Shop::Found { orders } => {
            println!("Found the shop of an earlier run, with {orders} orders in its books.");
        }
    }
    let stop = AtomicBool::new(false);
    let count = AtomicU64::new(0);
    let seconds = o.seconds.max(1);
    let began = Instant::now();
    let tallies: Vec<Result<Tally>> = std::thread::scope(|s| {
        let clients: Vec<_> = (0..o.clients)
            .map(|i| {
                let (stop, count) = (&stop, &count);
                s.spawn(move || {
                    let mut tally = Tally::default();
                    buy(address, u64::from(i) + 1, stop, count, &mut tally).map(|()| tally)
                })
            })
            .collect();
        progress(began, Duration::from_secs(seconds), &count);
        stop.store(true, Ordering::SeqCst);
        clients
            .into_iter()
            .map(|c| c.join().expect("a client thread"))
            .collect()
    });
    let took = began.elapsed().as_secs_f64();
    let mut all = Tally::default();
    for t in tallies {
        all.add(t?);
    }
    all.print(took, o.clients);
    let stats = &server.node.manager().stats;
    println!(
        "\nInside: {} snapshots moved forward instead of an abort; told to try again:",
        stats.moves()
    );
    let reasons = txn::Cause::ALL.map(|c| format!("{} {}", c.name(), stats.aborts(c)));
    println!("    {}", reasons.join(", "));
    check(&mut c)
}

/// The books: what was ordered is what left the stock.
fn check(c: &mut Client) -> Result<()> {
    let books = "SELECT (SELECT coalesce(sum(quantity), 0) FROM orders),
        (SELECT sum(100000 - stock) FROM items),
        (SELECT sum(1000 - balance) FROM accounts),
        (SELECT coalesce(sum(o.quantity * i.price), 0) FROM orders o JOIN items i ON i.id = o.item)";
    let rows = done(c.query(books))?;
    let v: Vec<&str> = rows[0].iter().map(|v| v.as_deref().unwrap_or("")).collect();
    let money = |s: &str| s.parse::<f64>().unwrap_or(f64::NAN);
    if v[0] != v[1] || money(v[2]) != money(v[3]) {
        return Err(Error::internal(format!("the books do not balance: {v:?}")));
    }
    println!(
        "The books balance: {} pieces sold for {}, stock and accounts agree.",
        v[0], v[3]
    );
    Ok(())
}

fn done(r: std::io::Result<std::result::Result<Rows, Refused>>) -> Result<Rows> {
    r.map_err(broken)?
        .map_err(|e| broken(format!("{} {}", e.code, e.message)))
}

fn progress(began: Instant, time: Duration, count: &AtomicU64) {
    let terminal = std::io::stdout().is_terminal();
    let mut last = (Instant::now(), 0);
    while began.elapsed() < time {
        std::thread::sleep(Duration::from_millis(500).min(time.saturating_sub(began.elapsed())));
        let (now, n) = (Instant::now(), count.load(Ordering::Relaxed));
        let rate = (n - last.1) as f64 / now.duration_since(last.0).as_secs_f64().max(1e-9);
        last = (now, n);
        let line = format!(
            "{:5.1} s  {n:>9} transactions  {rate:>8.0} per second",
            began.elapsed().as_secs_f64()
        );
        if terminal {
            print!("\r{line}");
            _ = std::io::stdout().flush();
        }
    }
    if terminal {
        println!();
    }
}

/// What one client did.
#[derive(Default)]
struct Tally {
    /// Microseconds, per kind.
    times: [Vec<u32>; 3],
    refused: BTreeMap<String, u64>,
    sold_out: u64,
}

impl Tally {
    fn add(&mut self, other: Tally) {
        for (mine, theirs) in self.times.iter_mut().zip(other.times) {
            mine.extend(theirs);
        }
        for (code, n) in other.refused {
            *self.refused.entry(code).or_default() += n;
        }
        self.sold_out += other.sold_out;
    }

    fn print(&mut self, took: f64, clients: u32) {
        let all: usize = self.times.iter().map(Vec::len).sum();
        println!(
            "\n{all} transactions in {took:.1} s from {clients} clients: {:.0} per second",
            all as f64 / took
        );
        println!(
            "{:<20}{:>10}{:>10}{:>10}{:>10}{:>10}",
            "", "count", "p50 ms", "p95 ms", "p99 ms", "max ms"
        );
        for (kind, times) in KINDS.iter().zip(&mut self.times) {
            times.sort_unstable();
            let at = |p: f64| {
                let i = ((times.len() as f64 * p) as usize).min(times.len().saturating_sub(1));
                times.get(i).map_or(0.0, |t| f64::from(*t) / 1000.0)
            };
            println!(
                "{kind:<20}{:>10}{:>10.2}{:>10.2}{:>10.2}{:>10.2}",
                times.len(),
                at(0.5),
                at(0.95),
                at(0.99),
                at(1.0)
            );
        }
        if self.refused.is_empty() {
            println!("No transaction was aborted.");
        }
        for (code, n) in &self.refused {
            let why = match code.as_str() {
                "40001" => "serialization failure, tried again by the client",
                "40P01" => "deadlock, tried again by the client",
                "23514" => "the balance or the stock was too small",
                _ => "",
            };
            println!("Aborted with {code}: {n} ({why})");
        }
    }
}

/// One client of the shop.
fn buy(
    address: SocketAddr,
    seed: u64,
    stop: &AtomicBool,
    count: &AtomicU64,
    tally: &mut Tally,
) -> Result<()> {
    let mut c = Client::connect(address).map_err(broken)?;
    for (name, sql) in STATEMENTS {
        done(c.prepare(name, sql))?;
    }
    let mut random = Rng::new(seed);
    let mut up_to = |n| random.between(1, n);
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        let account = up_to(ACCOUNTS);
        let item = if up_to(2) == 1 {
            up_to(ITEMS / 20)
        } else {
            up_to(ITEMS)
        };
        let (kind, steps): (usize, Vec<(&str, Vec<i64>)>) = match up_to(10) {
            1 | 2 => (0, vec![("balance", vec![account])]),
            3..=5 => (0, vec![("item", vec![item])]),
            6 => (0, vec![("history", vec![account])]),
            7 | 8 => {
                let (from, to, sum) = (account, up_to(ACCOUNTS), up_to(20));
                (1, vec![("take", vec![from, sum]), ("give", vec![to, sum])])
            }
            _ => {
                let n = up_to(3);
                let order = vec![
                    ("pay", vec![account, item, n]),
                    ("pick", vec![item, n]),
                    ("order", vec![account, item, n]),
                ];
                (2, order)
            }
        };
        loop {
            let Err(e) = transact(&mut c, &steps)? else {
                tally.times[kind].push(began.elapsed().as_micros().min(u32::MAX.into()) as u32);
                count.fetch_add(1, Ordering::Relaxed);
                break;
            };
            let again = matches!(e.code.as_str(), "40001" | "40P01");
            if !again && e.code != "23514" {
                return Err(broken(format!("{} {}", e.code, e.message)));
            }
            *tally.refused.entry(e.code).or_default() += 1;
            if !again || stop.load(Ordering::Relaxed) {
                break;
            }
        }
    }
    Ok(())
}

/// Runs the steps as one transaction; one step needs no BEGIN.
fn transact(
    c: &mut Client,
    steps: &[(&str, Vec<i64>)],
) -> Result<std::result::Result<(), Refused>> {
    if let [(name, params)] = steps {
        return Ok(c.run(name, params).map_err(broken)?.map(drop));
    }
    done(c.run("begin", &[]))?;
    for (name, params) in steps {
        if let Err(e) = c.run(name, params).map_err(broken)? {
            done(c.run("rollback", &[]))?;
            return Ok(Err(e));
        }
    }
    Ok(c.run("commit", &[]).map_err(broken)?.map(drop))
}
