//! Clients far from the primary: at a site, at a replica that forwards, and at the primary and PostgreSQL 15 behind the same delay.
//!
//! ```text
//! cargo xtask bench sites [--quick] [--rounds 3] [--seconds 10] [--clients 1] [--level 'repeatable read'] [--binary CANON]
//!                         [--directory DIR] [--no-results]
//!
//! client ── site ────────── delay ────────── primary      COMMIT crosses
//! client ── replica ─────── delay ────────── primary      each statement crosses from the first change on
//! client ────────────────── delay ────────── primary      each statement crosses
//! client ────────────────── delay ────────── PostgreSQL   each statement crosses
//! ```
//! The transaction is an order: BEGIN, a look at the customer, five items each read and changed, a line in a table of orders, COMMIT; 14
//! statements, each sent when the answer to the one before has come. Clients of one place meet no others: items are dealt out by place and
//! client, as the warehouses of TPC-C are by site. The places have round trips of 1, 34, 66, 96, 115, 118 and 185 ms (`--quick`: 34 and
//! 185). The ways take turns, and the way that begins changes with each round. A round that kept the machine more than 70 % busy says
//! something of the processors and not of the distance: it is void.
//!
//! A second table has one counter that clients at three sites of 40 ms add to, plain and split.
//!
//! Left out on purpose: TPC-C itself, and orders that contend.

use super::delay::link;
use super::options::{number, program};
use super::page;
use super::svg::Chart;
use crate::server::{self, Server, USER};
use crate::wire::Connection;
use crate::{Result, clients::Clients, guard::Guard, process};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const USAGE: &str = "cargo xtask bench sites [--quick] [--rounds 3] [--seconds 10] [--clients 1] [--level 'repeatable read'] \
                     [--binary CANON] [--directory DIR] [--no-results]";

/// Round trips in milliseconds.
const PLACES: [u64; 7] = [1, 34, 66, 96, 115, 118, 185];
const QUICK: [u64; 2] = [34, 185];

/// The places of the counter, and the clients at each.
const COUNTERS: [u64; 3] = [40; 3];
const COUNTER_CLIENTS: usize = 8;

/// Items of one client.
const ITEMS: usize = 100;

/// Share of the machine above which a round is void.
const BUSY: f64 = 0.7;

struct Options {
    places: Vec<u64>,
    rounds: usize,
    seconds: u64,
    clients: usize,
    level: String,
    binary: Option<PathBuf>,
    directory: PathBuf,
    write: bool,
}

fn options(args: &[String]) -> Result<Options> {
    let mut options = Options {
        places: PLACES.into(),
        rounds: 3,
        seconds: 10,
        clients: 1,
        level: "repeatable read".into(),
        binary: None,
        directory: std::env::temp_dir(),
        write: true,
    };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} needs a value\n{USAGE}"));
        match arg.as_str() {
            "--quick" => {
                (options.places, options.rounds, options.seconds) = (QUICK.into(), 1, 5);
            }
            "--rounds" => options.rounds = number(value()?)?,
            "--seconds" => options.seconds = number(value()?)?,
            "--clients" => options.clients = number::<u32>(value()?)? as usize,
            "--level" => options.level = value()?.clone(),
            "--binary" => options.binary = Some(value()?.into()),
            "--directory" => options.directory = value()?.into(),
            "--no-results" => options.write = false,
            _ => return Err(USAGE.into()),
        }
    }
    Ok(options)
}

/// Where a client connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Site,
    Replica,
    Primary,
    Peer,
}

const WAYS: [Way; 4] = [Way::Site, Way::Replica, Way::Primary, Way::Peer];

impl Way {
    fn name(self) -> &'static str {
        match self {
            Way::Site => "site",
            Way::Replica => "replica that forwards",
            Way::Primary => "primary behind the delay",
            Way::Peer => "PostgreSQL behind the delay",
        }
    }

    /// The least that a site is to be over this way: in the mean of the places, and at the farthest.
    fn bar(self) -> Option<(f64, f64)> {
        matches!(self, Way::Primary | Way::Peer).then_some((7.6, 12.0))
    }
}

/// The statements of one order: `base` is the first of the client's items, `n` the number of the order.
fn order(level: &str, base: usize, n: usize) -> Vec<String> {
    let mut all = vec![
        format!("BEGIN ISOLATION LEVEL {level}"),
        format!("SELECT name FROM customer WHERE id = {}", base + n % ITEMS),
    ];
    for i in 0..5 {
        // Apart from one another, so that an order has five items.
        let item = base + (n * 7 + i * (ITEMS / 5)) % ITEMS;
        all.push(format!("SELECT qty FROM stock WHERE id = {item}"));
        all.push(format!("UPDATE stock SET qty = qty - 1 WHERE id = {item}"));
    }
    all.push(format!("INSERT INTO orders VALUES ({base}, {n}, 5)"));
    all.push("COMMIT".into());
    all
}

/// What clients did in one round.
#[derive(Clone, Copy, Default)]
struct Done {
    transactions: usize,
    /// Transactions that were told to try again.
    lost: usize,
    /// Summed over the clients.
    seconds: f64,
}

impl Done {
    /// Transactions per second and client.
    fn rate(&self) -> f64 {
        self.transactions as f64 / self.seconds.max(1e-9)
    }
}

/// Transactions one after the other until the time is over; `make` gives the statements of the n-th.
fn client(port: u16, seconds: u64, make: impl Fn(usize) -> Vec<String>) -> Result<Done> {
    let failed = |e| format!("port {port}: {e}");
    let mut c = Connection::open(port, USER).map_err(failed)?;
    let mut done = Done::default();
    let began = Instant::now();
    for n in 1.. {
        if began.elapsed() >= Duration::from_secs(seconds) {
            break;
        }
        let statements = make(n);
        let ran = statements.iter().try_for_each(|s| c.query(s).map(drop));
        match ran {
            Ok(()) => done.transactions += 1,
            Err(e) if e.code == "40001" => {
                done.lost += 1;
                if statements.len() > 1 {
                    c.query("ROLLBACK").map_err(failed)?;
                }
            }
            Err(e) => return Err(failed(e)),
        }
    }
    done.seconds = began.elapsed().as_secs_f64();
    Ok(done)
}

/// Runs `clients` at each port at once; what those of each port did, and the share of the machine that was busy.
fn at_all<M: Fn(usize) -> Vec<String> + Send + 'static>(
    ports: &[u16],
    clients: usize,
    seconds: u64,
    make: impl Fn(usize) -> M,
) -> Result<(Vec<Done>, f64)> {
    let before = process::machine_seconds();
    let mut running = Vec::new();
    for (place, port) in ports.iter().enumerate() {
        for c in 0..clients {
            let (port, make) = (*port, make(place * clients + c));
            running.push(std::thread::spawn(move || client(port, seconds, make)));
        }
    }
    let mut all = Vec::new();
    for r in running {
        all.push(r.join().map_err(|_| "a client panicked")??);
    }
    let after = process::machine_seconds();
    let busy = (after.0 - before.0) / (after.1 - before.1).max(0.01);
    let sum = |some: &[Done]| Done {
        transactions: some.iter().map(|d| d.transactions).sum(),
        lost: some.iter().map(|d| d.lost).sum(),
        seconds: some.iter().map(|d| d.seconds).sum(),
    };
    Ok((all.chunks(clients).map(sum).collect(), busy))
}

/// What a way's rounds gave: for each round that counts, what each place did.
#[derive(Default)]
struct Rounds {
    counted: Vec<Vec<Done>>,
    void: usize,
}

impl Rounds {
    fn take(&mut self, (done, busy): (Vec<Done>, f64)) {
        match busy <= BUSY {
            true => self.counted.push(done),
            false => self.void += 1,
        }
    }

    /// Median, least and most of the rate at a place; `None` where no round counts.
    fn rate(&self, place: usize) -> Option<(f64, f64, f64)> {
        let mut all: Vec<f64> = self.counted.iter().map(|r| r[place].rate()).collect();
        all.sort_by(f64::total_cmp);
        let n = all.len();
        let median = (all.get(n.checked_sub(1)? / 2)? + all[n / 2]) / 2.0;
        Some((median, all[0], all[n - 1]))
    }

    fn lost(&self, place: usize) -> usize {
        self.counted.iter().map(|r| r[place].lost).sum()
    }
}

/// The bench at work.
struct Run {
    options: Options,
    binary: PathBuf,
    directory: PathBuf,
    guard: Guard,
    primary: Server,
    peer: Server,
    /// Replicas and sites, which live as long as the run.
    nodes: Vec<Server>,
}

impl Run {
    fn prepare(&self) -> Result<()> {
        let most = self.options.places.len() * self.options.clients * ITEMS;
        let tables = format!(
            "CREATE TABLE customer (id int PRIMARY KEY, name text NOT NULL);
             CREATE TABLE stock (id int PRIMARY KEY, qty int NOT NULL);
             CREATE TABLE orders (c int, n int, items int NOT NULL, PRIMARY KEY (c, n));
             INSERT INTO customer SELECT n, 'customer ' || n FROM generate_series(0, {most}) n;
             INSERT INTO stock SELECT n, 1000000 FROM generate_series(0, {most}) n"
        );
        for server in [&self.primary, &self.peer] {
            server.sql(&tables)?;
        }
        self.primary.sql(
            "CREATE TABLE plain (id int PRIMARY KEY, n bigint NOT NULL);
             CREATE TABLE split (id int PRIMARY KEY, n bigint NOT NULL) WITH (split = 'n');
             INSERT INTO plain VALUES (1, 0); INSERT INTO split VALUES (1, 0)",
        )?;
        Ok(())
    }

    /// Where the clients of each place connect, after what follows the primary has caught up.
    fn ports(&mut self, way: Way, places: &[u64]) -> Result<Vec<u16>> {
        let mut ports = Vec::new();
        let first = self.nodes.len();
        for rtt in places {
            let to = match way {
                Way::Peer => self.peer.port,
                _ => self.primary.port,
            };
            let port = link(to, Duration::from_micros(rtt * 500))?;
            if matches!(way, Way::Primary | Way::Peer) {
                ports.push(port);
                continue;
            }
            let home = self.directory.join(format!("node-{}", self.nodes.len()));
            let node = follower(&self.binary, &home, port, way, &mut self.guard)?;
            ports.push(node.port);
            self.nodes.push(node);
        }
        for node in &mut self.nodes[first..] {
            node.ready()?;
        }
        self.catch_up(first)?;
        Ok(ports)
    }

    /// Until the nodes from this one on show what the primary has.
    fn catch_up(&self, first: usize) -> Result<()> {
        let at = self.primary.sql("SELECT pg_current_wal_lsn()")?;
        let at = at.rows[0][0].clone().unwrap_or_default();
        for node in &self.nodes[first..] {
            node.sql(&format!("WAIT FOR LSN '{at}'"))?;
        }
        Ok(())
    }

    /// The orders of all ways, in turns.
    fn orders(&mut self) -> Result<[Rounds; 4]> {
        let places = self.options.places.clone();
        let mut ports = Vec::new();
        for way in WAYS {
            ports.push(self.ports(way, &places)?);
        }
        let mut all: [Rounds; 4] = Default::default();
        let clients = self.options.clients;
        for round in 0..self.options.rounds {
            for turn in 0..WAYS.len() {
                let at = (round + turn) % WAYS.len();
                // No number is given twice, and none is above the column's limit.
                let first = (round * WAYS.len() + at) * 1_000_000;
                let level = &self.options.level;
                let done = at_all(&ports[at], clients, self.options.seconds, |c| {
                    let level = level.clone();
                    move |n| order(&level, c * ITEMS, first + n)
                })?;
                println!(
                    "round {round}, {}: {:.0} % busy",
                    WAYS[at].name(),
                    done.1 * 100.0
                );
                all[at].take(done);
                self.catch_up(0)?;
            }
        }
        Ok(all)
    }

    /// The counter at three sites, plain and split, in turns.
    fn counters(&mut self) -> Result<[Rounds; 2]> {
        let ports = self.ports(Way::Site, &COUNTERS)?;
        let mut all: [Rounds; 2] = Default::default();
        for round in 0..self.options.rounds {
            for turn in 0..2 {
                let at = (round + turn) % 2;
                let add = format!("UPDATE {} SET n = n + 1 WHERE id = 1", TABLES[at]);
                let done = at_all(&ports, COUNTER_CLIENTS, self.options.seconds, |_| {
                    let add = add.clone();
                    move |_| vec![add.clone()]
                })?;
                println!(
                    "round {round}, {} counter: {:.0} % busy",
                    TABLES[at],
                    done.1 * 100.0
                );
                all[at].take(done);
                self.catch_up(0)?;
            }
        }
        Ok(all)
    }
}

const TABLES: [&str; 2] = ["plain", "split"];

/// Starts a replica, or a site, that follows the primary over this port.
fn follower(program: &Path, home: &Path, of: u16, way: Way, guard: &mut Guard) -> Result<Server> {
    let port = server::free_port()?;
    std::fs::create_dir_all(home).map_err(|e| format!("{}: {e}", home.display()))?;
    let secret = home.parent().unwrap_or(home).join("canon/CANON_SECRET");
    let mut node = Command::new(program);
    node.arg("start").arg("--data").arg(home.join("data"));
    node.args(["--listen", &format!("127.0.0.1:{port}")]);
    node.args(["--replica-of", &format!("127.0.0.1:{of}")]);
    node.arg("--cluster-secret-file").arg(secret);
    // Through memory nothing would take its time.
    node.env("CANON_SHARED_MEMORY", "false");
    if way == Way::Site {
        node.arg("--site");
    }
    server::start(way.name(), node, port, "-TERM", &home.join("log"), guard)
}

fn shown(rate: Option<(f64, f64, f64)>) -> String {
    rate.map_or("void".into(), |(median, least, most)| {
        format!("{median:.2} ({least:.2} .. {most:.2})")
    })
}

fn verdict(ratio: f64, bar: Option<f64>) -> String {
    match bar {
        None => "-".into(),
        Some(bar) if ratio >= bar => format!("at least {bar}: holds"),
        Some(bar) => format!("at least {bar}: **missed**"),
    }
}

/// The table of the orders, and the ratios of sites to each other way. `None` for a ratio that void rounds leave open.
fn orders_table(places: &[u64], all: &[Rounds; 4]) -> String {
    let mut out = "| round trip, ms |".to_owned();
    for way in WAYS {
        out += &format!(" {} |", way.name());
    }
    out += " 40001 at the site |\n|---|---|---|---|---|---|\n";
    for (place, rtt) in places.iter().enumerate() {
        let _ = write!(out, "| {rtt} |");
        for rounds in all {
            let _ = write!(out, " {} |", shown(rounds.rate(place)));
        }
        let _ = writeln!(out, " {} |", all[0].lost(place));
    }
    let void: Vec<String> = all.iter().map(|r| r.void.to_string()).collect();
    let _ = writeln!(
        out,
        "\nTransactions per second and client: median, least and most of the rounds. Void rounds: {}.\n",
        void.join(", ")
    );
    out += "| a client at a site over one at the | mean of the places | | at the farthest | |\n|---|---|---|---|---|\n";
    for (way, rounds) in WAYS.iter().zip(all).skip(1) {
        let ratio = |place| Some(all[0].rate(place)?.0 / rounds.rate(place)?.0.max(1e-9));
        let ratios: Vec<f64> = (0..places.len()).filter_map(ratio).collect();
        let Some(farthest) = ratios.last().filter(|_| ratios.len() == places.len()) else {
            let _ = writeln!(out, "| {} | void | | void | |", way.name());
            continue;
        };
        let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
        let (bars, name) = (way.bar(), way.name());
        let bars = (
            verdict(mean, bars.map(|b| b.0)),
            verdict(*farthest, bars.map(|b| b.1)),
        );
        let _ = writeln!(
            out,
            "| {name} | {mean:.1} | {} | {farthest:.1} | {} |",
            bars.0, bars.1
        );
    }
    out
}

fn counters_table(all: &[Rounds; 2]) -> String {
    let mut out = format!(
        "\nOne counter, {COUNTER_CLIENTS} clients at each of {} sites of 40 ms, `UPDATE … SET n = n + 1`:\n\n\
         | column | additions/s, all clients | 40001 |\n|---|---|---|\n",
        COUNTERS.len()
    );
    let sum = |rounds: &Rounds| {
        let places = 0..COUNTERS.len();
        let rates: Option<Vec<f64>> = places.map(|p| Some(rounds.rate(p)?.0)).collect();
        rates.map(|r| r.iter().sum::<f64>() * COUNTER_CLIENTS as f64)
    };
    for (rounds, name) in all.iter().zip(TABLES) {
        let lost: usize = (0..COUNTERS.len()).map(|p| rounds.lost(p)).sum();
        let rate = sum(rounds).map_or("void".into(), |r| format!("{r:.1}"));
        let _ = writeln!(out, "| {name} | {rate} | {lost} |");
    }
    if let (Some(plain), Some(split)) = (sum(&all[0]), sum(&all[1])) {
        let ratio = split / plain.max(1e-9);
        let _ = writeln!(
            out,
            "\nSplit over plain: {ratio:.1}, {}.",
            verdict(ratio, Some(20.0))
        );
    }
    out
}

pub fn main(args: &[String]) -> Result<()> {
    let options = options(args)?;
    let clients = Clients::find().map_err(|e| format!("{e}\ntry `cargo xtask clients`"))?;
    let binary = program(&options.binary)?;
    let mut guard = Guard::new()?;
    let directory = server::new_directory(&options.directory, &mut guard)?;
    let peer = server::postgres(&clients.postgres_bin, &directory, &mut guard, false)?;
    let primary = server::canon(&binary, &directory, &mut guard)?;
    let mut out = page::head("Sites", "cargo xtask bench sites", args);
    let _ = writeln!(
        out,
        "- {} clients at each place, {} rounds of {} s, in turns, {}; the order of `xtask/src/bench/sites.rs`, 14 statements\n\
         - all on one machine: the delays are those of links, and processors are shared\n",
        options.clients, options.rounds, options.seconds, options.level
    );
    let (write, places) = (options.write, options.places.clone());
    let mut run = Run {
        options,
        binary,
        directory,
        guard,
        primary,
        peer,
        nodes: Vec::new(),
    };
    run.prepare()?;
    let orders = run.orders()?;
    out += &orders_table(&places, &orders);
    let counters = run.counters()?;
    out += &counters_table(&counters);
    println!("\n{out}");
    let series = WAYS.iter().zip(&orders).map(|(way, rounds)| {
        let rates = (0..places.len()).map(|p| rounds.rate(p).map(|r| r.0));
        (way.name().to_owned(), rates.collect())
    });
    let chart = Chart {
        title: "Orders of one client, by its distance to the primary",
        x: "round trip, ms",
        y: "transactions per second",
        places: places.iter().map(u64::to_string).collect(),
        series: series.collect(),
        line_at: None,
    };
    match write {
        true => page::store("sites", &out, &[("", chart.svg())]),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_has_five_items_of_its_client() {
        let all = order("serializable", 300, 4);
        assert_eq!(all.len(), 14);
        let items = all.iter().filter(|s| s.starts_with("UPDATE"));
        let items: std::collections::HashSet<_> = items.collect();
        assert_eq!(items.len(), 5);
        assert!(items.iter().all(|s| s.contains("id = 3")));
    }

    fn rounds(transactions: [usize; 2], busy: f64) -> Rounds {
        let mut rounds = Rounds::default();
        let done = transactions.map(|transactions| Done {
            transactions,
            lost: 0,
            seconds: 10.0,
        });
        rounds.take((done.into(), busy));
        rounds
    }

    #[test]
    fn the_farthest_place_is_the_last() {
        let all = [[100, 60], [50, 6], [100, 5], [40, 4]].map(|t| rounds(t, 0.5));
        let text = orders_table(&[1, 185], &all);
        assert!(
            text.contains("| 185 | 6.00 (6.00 .. 6.00) | 0.60"),
            "{text}"
        );
        let primary = "| primary behind the delay | 6.5 | at least 7.6: **missed** | 12.0 | at least 12: holds |";
        assert!(text.contains(primary), "{text}");
    }

    #[test]
    fn a_round_on_a_busy_machine_is_void() {
        let mut all = [[100, 60], [50, 6], [100, 5], [40, 4]].map(|t| rounds(t, 0.5));
        all[2] = rounds([100, 5], 0.8);
        let text = orders_table(&[1, 185], &all);
        assert!(
            text.contains("| primary behind the delay | void | | void | |"),
            "{text}"
        );
        assert!(text.contains("Void rounds: 0, 0, 1, 0."), "{text}");
    }
}
