//! Split values beside plain ones: one hot row that 64 clients change in blocks of five statements.
//!
//! ```text
//! cargo xtask bench split [--quick] [--rounds 5] [--seconds 5] [--clients 64] [--binary CANON] [--tmpfs] [--directory DIR] [--no-results]
//! ```
//! | contestant | rows | column |
//! |---|---|---|
//! | ceiling | one for each client | plain: no design can pass it, because no client meets another |
//! | split | one for all | split |
//! | plain | one for all | plain |
//! | PostgreSQL | one for all | plain, in PostgreSQL 15 |
//!
//! The loads are the block without thinking, the block with 10 ms after each of its first four statements, and one statement alone. In a last
//! one each client has its row, and a split column has to cost what a plain one does. Contestants take turns within a round, and the one that
//! begins changes from round to round. A transaction that is told to try again is tried again by pgbench.
//!
//! Left out on purpose: several records of one value, of which there is one so far, and the thesis's implementation in SQL.

use super::options::program;
use super::sample::{Sample, Spread, Tool, measure};
use super::svg::Chart;
use super::{AUTOGROUP, loads, number, page};
use crate::server::{self, Server, USER};
use crate::{Result, clients::Clients, guard::Guard};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const USAGE: &str = "cargo xtask bench split [--quick] [--rounds 5] [--seconds 5] [--clients 64] [--binary CANON] [--tmpfs] \
                     [--directory DIR] [--no-results]";

const LEVELS: [(&str, &str); 3] = [
    ("RC", "read committed"),
    ("RR", "repeatable read"),
    ("SER", "serializable"),
];

struct Options {
    rounds: usize,
    seconds: u32,
    clients: u32,
    binary: Option<PathBuf>,
    directory: PathBuf,
    write: bool,
}

fn options(args: &[String]) -> Result<Options> {
    let mut options = Options {
        rounds: 5,
        seconds: 5,
        clients: 64,
        binary: None,
        directory: std::env::temp_dir(),
        write: true,
    };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} needs a value\n{USAGE}"));
        match arg.as_str() {
            "--quick" => (options.rounds, options.seconds) = (1, 2),
            "--rounds" => options.rounds = number(value()?)?,
            "--seconds" => options.seconds = number(value()?)?,
            "--clients" => options.clients = number(value()?)?,
            "--binary" => options.binary = Some(value()?.into()),
            "--tmpfs" => options.directory = "/dev/shm".into(),
            "--directory" => options.directory = value()?.into(),
            "--no-results" => options.write = false,
            _ => return Err(USAGE.into()),
        }
    }
    Ok(options)
}

/// Which row a client changes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Row {
    Hot,
    Own,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Block,
    /// With 10 ms after each of the first four statements.
    Thinking,
    One,
}

/// A column of the page.
#[derive(Clone, Copy)]
struct Contestant {
    name: &'static str,
    /// The server's place: PostgreSQL, canon.
    server: usize,
    table: &'static str,
    row: Row,
}

const fn contestant(
    name: &'static str,
    server: usize,
    table: &'static str,
    row: Row,
) -> Contestant {
    Contestant {
        name,
        server,
        table,
        row,
    }
}

const HOT: [Contestant; 4] = [
    contestant("ceiling", 1, "plain_stock", Row::Own),
    contestant("split", 1, "split_stock", Row::Hot),
    contestant("plain", 1, "plain_stock", Row::Hot),
    contestant("PostgreSQL", 0, "plain_stock", Row::Hot),
];

/// No client meets another.
const APART: [Contestant; 2] = [
    contestant("split", 1, "split_stock", Row::Own),
    contestant("plain", 1, "plain_stock", Row::Own),
];

/// A ratio of two contestants, and the bar that it is held to.
struct Bar {
    of: &'static str,
    over: &'static str,
    least: f64,
}

struct Load {
    name: &'static str,
    shape: Shape,
    contestants: &'static [Contestant],
    bars: &'static [Bar],
}

const LOADS: [Load; 4] = [
    Load {
        name: "block of five",
        shape: Shape::Block,
        contestants: &HOT,
        bars: &[Bar {
            of: "split",
            over: "ceiling",
            least: 0.85,
        }],
    },
    Load {
        name: "block of five, 10 ms between",
        shape: Shape::Thinking,
        contestants: &HOT,
        bars: &[
            Bar {
                of: "split",
                over: "plain",
                least: 30.0,
            },
            Bar {
                of: "split",
                over: "PostgreSQL",
                least: 30.0,
            },
        ],
    },
    Load {
        name: "one statement",
        shape: Shape::One,
        contestants: &HOT,
        bars: &[Bar {
            of: "split",
            over: "plain",
            least: 0.95,
        }],
    },
    Load {
        name: "one statement, a row for each client",
        shape: Shape::One,
        contestants: &APART,
        bars: &[Bar {
            of: "split",
            over: "plain",
            least: 0.97,
        }],
    },
];

/// What a client runs.
fn script(shape: Shape, c: &Contestant) -> String {
    let id = match c.row {
        Row::Hot => "0".to_owned(),
        Row::Own => ":id".to_owned(),
    };
    let set = match c.row {
        Row::Hot => "",
        Row::Own => "\\set id :client_id + 1\n",
    };
    let update = format!("UPDATE {} SET qty = qty - 1 WHERE id = {id};\n", c.table);
    let five = |between: &str| format!("{set}BEGIN;\n{}END;\n", [&*update; 5].join(between));
    match shape {
        Shape::One => set.to_owned() + &update,
        Shape::Block => five(""),
        Shape::Thinking => five("\\sleep 10 ms\n"),
    }
}

/// The tables: row 0 is the hot one, and each client has one of its own.
fn prepare(server: &Server, clients: u32) -> Result<()> {
    let mut tables = vec![("plain_stock", "")];
    if server.name == loads::OURS {
        tables.push(("split_stock", " WITH (split = 'qty')"));
    }
    for (name, with) in tables {
        server.sql(&format!(
            "CREATE TABLE {name} (id int PRIMARY KEY, qty bigint NOT NULL CHECK (qty >= 0)){with}"
        ))?;
        server.sql(&format!(
            "INSERT INTO {name} SELECT g, 1000000000000 FROM generate_series(0, {clients}) g"
        ))?;
    }
    if server.name == loads::PEER {
        server.sql("CHECKPOINT")?;
    }
    Ok(())
}

/// The bench at work.
struct Run {
    options: Options,
    clients: Clients,
    servers: Vec<Server>,
    directory: PathBuf,
}

impl Run {
    fn command(&self, file: &Path, port: u16, level: &str) -> Command {
        let clients = self.options.clients;
        let mut pgbench = Command::new(self.clients.postgres_bin.join("pgbench"));
        pgbench.args(["--no-vacuum", "--protocol=prepared", "--max-tries=0"]);
        pgbench.arg(format!("--client={clients}"));
        pgbench.arg(format!("--jobs={}", clients.min(2)));
        pgbench.arg(format!("--file={}", file.display()));
        pgbench.arg(format!("--time={}", self.options.seconds));
        pgbench.args(loads::connection(port)).arg(USER);
        let level = level.replace(' ', "\\ ");
        pgbench.env(
            "PGOPTIONS",
            format!("-c default_transaction_isolation={level}"),
        );
        pgbench
    }

    /// One load at one level: a list of samples for each contestant.
    fn measure(&mut self, load: &Load, level: &str) -> Result<Vec<Vec<Sample>>> {
        let mut samples = vec![Vec::new(); load.contestants.len()];
        for round in 0..self.options.rounds {
            for turn in 0..samples.len() {
                let at = (round + turn) % samples.len();
                let c = &load.contestants[at];
                let file = self.directory.join("client.sql");
                std::fs::write(&file, script(load.shape, c)).map_err(|e| e.to_string())?;
                if let Some(ended) = self.servers[c.server].ended() {
                    return Err(ended);
                }
                let server = &self.servers[c.server];
                let command = self.command(&file, server.port, level);
                let limit = Duration::from_secs(u64::from(self.options.seconds) * 3 + 60);
                let sample = measure(server.pid(), Tool::Pgbench, command, limit);
                if let Some(why) = &sample.complaint {
                    return Err(format!("{}, {}, {level}: {why}", load.name, c.name));
                }
                samples[at].push(sample);
            }
        }
        Ok(samples)
    }
}

fn median(samples: &[Sample], figure: fn(&Sample) -> f64) -> f64 {
    Spread::of(samples, |s| Some(figure(s))).map_or(0.0, |s| s.median)
}

/// Transactions per second of a contestant, by name.
fn tps(load: &Load, samples: &[Vec<Sample>], name: &str) -> Option<f64> {
    let at = load.contestants.iter().position(|c| c.name == name)?;
    Some(median(&samples[at], |s| s.tps))
}

/// The lines of one load at one level in the table.
fn lines(load: &Load, level: &str, samples: &[Vec<Sample>]) -> String {
    let mut out = String::new();
    for (c, s) in load.contestants.iter().zip(samples) {
        let spread = Spread::of(s, |s| Some(s.tps));
        let (least, most) = spread.map_or((0.0, 0.0), |s| (s.least, s.most));
        let _ = writeln!(
            out,
            "| {} | {level} | {} | {:.0} ({least:.0} .. {most:.0}) | {:.1} | {:.2} |",
            load.name,
            c.name,
            median(s, |s| s.tps),
            median(s, |s| s.cpu_us),
            median(s, |s| s.retries),
        );
    }
    out
}

/// The ratios of one load at one level.
fn ratios(load: &Load, level: &str, samples: &[Vec<Sample>]) -> String {
    let mut out = String::new();
    let figure = |name| tps(load, samples, name).unwrap_or(0.0);
    for c in load.contestants.iter().filter(|c| c.name != "split") {
        let ratio = figure("split") / figure(c.name);
        let bar = load
            .bars
            .iter()
            .find(|b| b.of == "split" && b.over == c.name);
        let verdict = match bar {
            Some(b) if ratio >= b.least => format!("at least {}: holds", b.least),
            Some(b) => format!("at least {}: **missed**", b.least),
            None => "-".into(),
        };
        let _ = writeln!(
            out,
            "| {} | {level} | split over {} | {ratio:.2} | {verdict} |",
            load.name, c.name
        );
    }
    out
}

pub fn main(args: &[String]) -> Result<()> {
    let options = options(args)?;
    let clients = Clients::find().map_err(|e| format!("{e}\ntry `cargo xtask clients`"))?;
    let binary = program(&options.binary)?;
    let mut guard = Guard::new()?;
    guard.setting(AUTOGROUP, "0")?;
    let directory = server::new_directory(&options.directory, &mut guard)?;
    let servers = vec![
        server::postgres(&clients.postgres_bin, &directory, &mut guard, false)?,
        server::canon(&binary, &directory, &mut guard)?,
    ];
    for s in &servers {
        prepare(s, options.clients)?;
    }
    let mut out = page::head("Split values", "cargo xtask bench split", args);
    let _ = writeln!(
        out,
        "- {} clients, pgbench, prepared; {} rounds of {} s, in turns; medians, with the least and the most\n\
         - ceiling: the same with one row for each client. A block is five `UPDATE … SET qty = qty - 1`\n",
        options.clients, options.rounds, options.seconds
    );
    let write = options.write;
    let mut run = Run {
        options,
        clients,
        servers,
        directory,
    };
    let mut table = "| load | level | | tx/s | server CPU, µs/tx | retries per tx |\n|---|---|---|---|---|---|\n".to_owned();
    let mut verdicts = "| load | level | ratio | | bar |\n|---|---|---|---|---|\n".to_owned();
    let mut places = Vec::new();
    let names = ["split", "plain", "PostgreSQL"];
    let mut series: Vec<(String, Vec<Option<f64>>)> =
        names.map(|n| (n.to_owned(), Vec::new())).into();
    for load in &LOADS {
        println!("== {}", load.name);
        for (short, level) in LEVELS {
            let samples = run.measure(load, level)?;
            let all = lines(load, short, &samples);
            print!("{all}");
            table += &all;
            verdicts += &ratios(load, short, &samples);
            if let Some(ceiling) = tps(load, &samples, "ceiling") {
                places.push(match load.shape {
                    Shape::Block => short.to_owned(),
                    Shape::Thinking => format!("{short} 10 ms"),
                    Shape::One => format!("{short} one"),
                });
                for (name, values) in &mut series {
                    values.push(tps(load, &samples, name).map(|t| t / ceiling));
                }
            }
        }
    }
    out += &verdicts;
    out += "\n";
    out += &table;
    println!("\n{out}");
    let chart = Chart {
        title: "One hot row: share of the ceiling",
        x: "level and load",
        y: "transactions, over those with a row for each client",
        places,
        series,
        line_at: Some(1.0),
    };
    match write {
        true => page::store("split", &out, &[("", chart.svg())]),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_thinks_between_its_statements() {
        let text = script(Shape::Thinking, &HOT[0]);
        assert_eq!(text.matches("\\sleep 10 ms").count(), 4);
        assert_eq!(text.matches("UPDATE plain_stock").count(), 5);
        assert!(
            text.starts_with("\\set id :client_id + 1\nBEGIN;\n"),
            "{text}"
        );
        assert!(text.ends_with("WHERE id = :id;\nEND;\n"), "{text}");
    }

    #[test]
    fn a_ratio_that_misses_its_bar_is_said() {
        let sample = |tps| {
            vec![Sample {
                tps,
                ..Sample::default()
            }]
        };
        let samples = [sample(100.0), sample(84.0), sample(20.0), sample(10.0)];
        let text = ratios(&LOADS[0], "RC", &samples);
        assert!(
            text.contains("split over ceiling | 0.84 | at least 0.85: **missed** |"),
            "{text}"
        );
        assert!(text.contains("split over plain | 4.20 | - |"), "{text}");
    }
}
