//! Clients far from the primary: at a site, at a replica that forwards, and at the primary and PostgreSQL 15 behind the same delay.
//!
//! ```text
//! cargo xtask bench sites [--only tpcc,orders,counter,one-site,shares,model,copy,pgpool] [--quick] [--rounds 3] [--seconds 12] [--clients 1,4]
//!                         [--level 'repeatable read'] [--binary CANON] [--directory DIR] [--no-results]
//! ```
//! | part | runs | bars |
//! |---|---|---|
//! | `tpcc` | NewOrder and Payment at seven places, warehouses dealt out by place | a site over the primary and PostgreSQL behind the delay: 7.6 in the mean, 12 at the farthest |
//! | `orders` | a transaction of 14 statements that meets no other, at the same places | the same |
//! | `counter` | one counter that clients at three sites of 40 ms add to | split over plain: 20 |
//! | `one-site` | TPC-C at one site without delay, beside a plain node | 0.7 |
//! | `shares` | the same with more clients: the thesis's Figures 8 to 10 | - |
//! | `model` | what 1, 2, 4 and 8 sites make, from the processor time of a transaction here | - |
//! | `copy` | TPC-C at the seven places, with and without a copy that commits wait for | 0.97 |
//! | `pgpool` | `orders` at sites, at PostgreSQL behind the delay, and at a pgpool with a standby at each place | - |
//!
//! The places have round trips of 1, 34, 66, 96, 115, 118 and 185 ms (`--quick`: 34 and 185). `--clients` are those of each place, one run
//! after the other; the last three parts have numbers of their own. Ways take turns, and the one that begins changes with each round.
//! A round that kept the machine more than 70 % busy says something of the processors and not of the distance: it is void. The clients and the
//! delayed links are threads of the bench, and what they took of the machine stands beside.
//!
//! With the default, all parts take about half an hour: `shares` seven minutes, `one-site` five, `tpcc` and `orders` some four for each number of
//! clients, the others two or three. The page says how long each took. It is named after its part, where it has one only.
//!
//! Left out on purpose: more of TPC-C than NewOrder and Payment.

mod copy;
mod counter;
mod measure;
mod nodes;
mod one;
mod orders;
mod pgpool;
mod places;
mod tpcc;
mod wire_kv;

use super::options::{number, program};
use super::page;
use crate::Result;
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Instant;

use nodes::{Nodes, Way};
use orders::{ITEMS, Orders};
use tpcc::Terminal;

const USAGE: &str = "cargo xtask bench sites [--only tpcc,orders,counter,one-site,shares,model,copy,pgpool] [--quick] [--rounds 3] [--seconds 12] \
                     [--clients 1,4] [--level 'repeatable read'] [--binary CANON] [--directory DIR] [--no-results]";

/// Round trips in milliseconds.
const PLACES: [u64; 7] = [1, 34, 66, 96, 115, 118, 185];
const QUICK: [u64; 2] = [34, 185];

const PARTS: [&str; 8] = [
    "tpcc", "orders", "counter", "one-site", "shares", "model", "copy", "pgpool",
];

struct Options {
    only: Vec<String>,
    places: Vec<u64>,
    rounds: usize,
    seconds: u64,
    clients: Vec<usize>,
    level: String,
    binary: Option<PathBuf>,
    directory: PathBuf,
    write: bool,
}

fn options(args: &[String]) -> Result<Options> {
    let mut options = Options {
        only: PARTS.map(String::from).into(),
        places: PLACES.into(),
        rounds: 3,
        seconds: 12,
        clients: vec![1],
        level: "repeatable read".into(),
        binary: None,
        directory: std::env::temp_dir(),
        write: true,
    };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} needs a value\n{USAGE}"));
        match arg.as_str() {
            "--only" => options.only = value()?.split(',').map(String::from).collect(),
            "--quick" => {
                (options.places, options.rounds, options.seconds) = (QUICK.into(), 1, 5);
            }
            "--rounds" => options.rounds = number(value()?)?,
            "--seconds" => options.seconds = number(value()?)?,
            "--clients" => {
                let all = value()?.split(',').map(number::<u32>);
                options.clients = all.map(|n| n.map(|n| n as usize)).collect::<Result<_>>()?;
            }
            "--level" => options.level = value()?.clone(),
            "--binary" => options.binary = Some(value()?.into()),
            "--directory" => options.directory = value()?.into(),
            "--no-results" => options.write = false,
            _ => return Err(USAGE.into()),
        }
    }
    match options.only.iter().all(|o| PARTS.contains(&o.as_str())) {
        true => Ok(options),
        false => Err(USAGE.into()),
    }
}

/// A part of the page, and its charts.
type Part = (String, Vec<(&'static str, String)>);

/// The bench at work.
struct Run {
    options: Options,
    nodes: Nodes,
}

impl Run {
    fn part(&mut self, name: &str) -> Result<Part> {
        let pace = (self.options.rounds, self.options.seconds);
        let level = self.options.level.clone();
        match name {
            "tpcc" => self.tpcc(),
            "orders" => self.orders(&self.nodes.ways()),
            "pgpool" => self.pgpool(),
            "counter" => Ok((counter::run(&mut self.nodes, pace)?, Vec::new())),
            "one-site" => {
                let (text, _) = one::sweep(&mut self.nodes, &one::CLIENTS, pace, &level)?;
                Ok((text, Vec::new()))
            }
            "shares" => one::sweep(&mut self.nodes, &one::MORE_CLIENTS, pace, &level),
            "model" => Ok((one::model(&mut self.nodes, pace, &level)?, Vec::new())),
            _ => self.copy(),
        }
    }

    fn most_clients(&self) -> usize {
        self.options.clients.iter().copied().max().unwrap_or(1)
    }

    /// The primary's TPC-C tables, and PostgreSQL's; how many warehouses a place has.
    fn fill(&self, with_peer: bool) -> Result<(workload::tpcc::Tpcc, usize)> {
        let each = self.most_clients();
        let tpcc = tpcc::sizes(self.options.places.len() * each);
        let mut servers = vec![&self.nodes.primary];
        servers.extend(self.nodes.peer.as_ref().ok().filter(|_| with_peer));
        tpcc::prepare(&servers, &tpcc)?;
        Ok((tpcc, each))
    }

    fn tpcc(&mut self) -> Result<Part> {
        let (tpcc, each) = self.fill(true)?;
        let ways = self.nodes.ways();
        let (places, level) = (self.options.places.clone(), self.options.level.clone());
        let pace = (self.options.rounds, self.options.seconds);
        let mut out = String::new();
        let mut charts = Vec::new();
        for clients in self.options.clients.clone() {
            let make =
                |round, _, place, c| Terminal::new(&tpcc, place * each + c + 1, round, &level);
            let all = self.nodes.turns(&ways, &places, clients, pace, make)?;
            let _ = writeln!(
                out,
                "TPC-C, NewOrder and Payment by turns, some 48 and 10 statements; {clients} clients at each place, each with a warehouse of its own:\n"
            );
            out += &places::table(&places, &all);
            if charts.is_empty() {
                let title = "TPC-C, by the distance to the primary";
                charts.push(("tpcc", places::chart(title, &places, &all)));
            }
        }
        tpcc::check_at(&self.nodes.primary, &tpcc)?;
        out += "TPC-C's consistency conditions 1 to 3 hold at the primary.\n\n";
        Ok((out, charts))
    }

    fn orders(&mut self, ways: &[Way]) -> Result<Part> {
        let (places, level) = (self.options.places.clone(), self.options.level.clone());
        let pace = (self.options.rounds, self.options.seconds);
        let mut servers = vec![&self.nodes.primary];
        servers.extend(self.nodes.peer.as_ref().ok());
        orders::prepare(&servers, places.len() * self.most_clients())?;
        let mut out = String::new();
        let mut charts = Vec::new();
        for (nth, clients) in self.options.clients.clone().into_iter().enumerate() {
            let all = self
                .nodes
                .turns(ways, &places, clients, pace, |round, way, place, c| {
                    Orders {
                        level: level.clone(),
                        base: (place * clients + c) * ITEMS,
                        number: ((nth * pace.0 + round) * 4 + way) * 1_000_000,
                    }
                })?;
            let _ = writeln!(
                out,
                "Orders of 14 statements, {clients} clients at each place:\n"
            );
            out += &places::table(&places, &all);
            if charts.is_empty() && !ways.contains(&Way::Pgpool) {
                let title = "Orders, by the distance to the primary";
                charts.push(("orders", places::chart(title, &places, &all)));
            }
        }
        Ok((out, charts))
    }

    /// Where there is no pgpool, the other parts are not lost by that.
    fn pgpool(&mut self) -> Result<Part> {
        let peer = self.nodes.peer.as_ref().map(drop).map_err(String::clone);
        match peer.and_then(|()| pgpool::find()) {
            Ok(()) => self.orders(&[Way::Site, Way::Peer, Way::Pgpool]),
            Err(why) => {
                let why = why.lines().next().unwrap_or_default();
                Ok((format!("Pgpool was not run: {why}\n\n"), Vec::new()))
            }
        }
    }

    fn copy(&mut self) -> Result<Part> {
        let (tpcc, each) = self.fill(false)?;
        let (places, level) = (self.options.places.clone(), self.options.level.clone());
        let pace = (self.options.rounds, self.options.seconds);
        let clients = self.options.clients[0];
        let text = copy::run(
            &mut self.nodes,
            &places,
            clients,
            pace,
            |round, place, c| Terminal::new(&tpcc, place * each + c + 1, round, &level),
        )?;
        tpcc::check_at(&self.nodes.primary, &tpcc)?;
        Ok((text, Vec::new()))
    }
}

pub fn main(args: &[String]) -> Result<()> {
    let options = options(args)?;
    let binary = program(&options.binary)?;
    let nodes = Nodes::start(binary, &options.directory)?;
    let mut out = page::head("Sites", "cargo xtask bench sites", args);
    let _ = writeln!(
        out,
        "- {} rounds of {} s, in turns, {}\n- all on one machine: the delays are those of links, and processors are shared",
        options.rounds, options.seconds, options.level
    );
    if let Err(why) = &nodes.peer {
        let _ = writeln!(
            out,
            "- without PostgreSQL: {}",
            why.lines().next().unwrap_or_default()
        );
    }
    let (write, only) = (options.write, options.only.clone());
    let mut run = Run { options, nodes };
    let (mut parts, mut charts, mut took) = (String::new(), Vec::new(), Vec::new());
    let began = Instant::now();
    for name in &only {
        println!("== {name}");
        let began = Instant::now();
        let (text, drawn) = run.part(name)?;
        println!("\n{text}");
        parts += &text;
        charts.extend(drawn);
        took.push(format!("{name} {} s", began.elapsed().as_secs()));
    }
    let took = format!(
        "- took {} s: {}\n\n",
        began.elapsed().as_secs(),
        took.join(", ")
    );
    print!("{took}");
    out += &(took + &parts);
    let name = match &*only {
        [one] => format!("sites-{one}"),
        _ => "sites".into(),
    };
    match write {
        true => page::store(&name, &out, &charts),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_parts_that_there_are_run() {
        let args = |text: &str| text.split(' ').map(String::from).collect::<Vec<_>>();
        let some = options(&args("--only tpcc,one-site --clients 1,4")).expect("both are parts");
        assert_eq!((some.only.len(), some.clients), (2, vec![1, 4]));
        assert!(options(&args("--only tpc")).is_err());
        assert_eq!(options(&[]).expect("all").only.len(), PARTS.len());
    }
}
