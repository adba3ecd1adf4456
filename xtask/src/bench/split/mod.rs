//! Split values beside plain ones: one hot row that 64 clients change in blocks of five statements, and reads of one value.
//!
//! ```text
//! cargo xtask bench split [--quick] [--with rows,records,sql,micro,vacation] [--only TEXT] [--rounds 3] [--seconds 4]
//!                         [--clients 1,8,64] [--binary CANON] [--tmpfs] [--directory DIR] [--no-results]
//! ```
//! | contestant | rows | column |
//! |---|---|---|
//! | ceiling | one for each client | plain: no design can pass it, because no client meets another |
//! | split | one for all | split |
//! | plain | one for all | plain |
//! | PostgreSQL | one for all | plain, in PostgreSQL 15 |
//! | 1, 8, 64 records (`--with records`) | one for all | split, with so many records all the time: the row and 0, 7 or 63 others |
//! | rows 8, rows 64 (`--with rows`) | one for all | split in the mode `rows`, the thesis's way, with so many records |
//! | SQL 1, 8, 64 (`--with sql`) | one for all | the thesis's implementation in SQL, in PostgreSQL 15, with so many records (`tables`) |
//!
//! The loads are the block without thinking, the block with 10 ms after each of its first four statements, and one statement alone. In a last
//! one each client has its row, and a split column has to cost what a plain one does. Reads of one value have a plain column and values of
//! 1, 8 and 64 records side by side. `--with micro` adds the thesis's microbenchmark: one to three units more or less of one of 1, 8 or 128
//! products, one statement each. A product has a trillion units, not its 8,192, so that no run sells one out. `--with vacation` adds STAMP's
//! Vacation (`vacation`): split, plain, the mode `rows` with 8 records, and PostgreSQL. `--only` takes the loads with this text in their names.
//! Contestants take turns within a round, and the one that begins changes from round to round. A transaction that is told to try again is
//! tried again.
//!
//! The default is 64 clients, and takes some ten minutes; each `--with` takes some four to ten more, and each further number of clients as much again.
//!
//! Left out on purpose: TPC-C, which the library runs (`cargo xtask bench embedded`).

mod loads;
mod tables;
mod vacation;

use super::options::program;
use super::sample::{Sample, Spread, Tool, measure};
use super::svg::Chart;
use super::{AUTOGROUP, number, page};
use crate::server::{self, Server, USER};
use crate::{Result, clients::Clients, guard::Guard};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use loads::{Contestant, LOADS, Load, RECORDS, ROWS, SQL, Shape, With, script};

const USAGE: &str = "cargo xtask bench split [--quick] [--with rows,records,sql,micro,vacation] [--only TEXT] [--rounds 3] [--seconds 4] \
                     [--clients 1,8,64] [--binary CANON] [--tmpfs] [--directory DIR] [--no-results]";

struct Options {
    with: With,
    /// Of the loads, those with this text in their names.
    only: String,
    rounds: usize,
    seconds: u32,
    clients: Vec<u32>,
    binary: Option<PathBuf>,
    directory: PathBuf,
    write: bool,
}

fn options(args: &[String]) -> Result<Options> {
    let mut options = Options {
        with: With::default(),
        only: String::new(),
        rounds: 3,
        seconds: 4,
        clients: vec![64],
        binary: None,
        directory: std::env::temp_dir(),
        write: true,
    };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} needs a value\n{USAGE}"));
        match arg.as_str() {
            "--quick" => (options.rounds, options.seconds) = (1, 2),
            "--with" => {
                for one in value()?.split(',') {
                    options.with.add(one).ok_or(USAGE)?;
                }
            }
            "--only" => options.only = value()?.into(),
            "--rounds" => options.rounds = number(value()?)?,
            "--seconds" => options.seconds = number(value()?)?,
            "--clients" => {
                options.clients = value()?.split(',').map(number).collect::<Result<_>>()?
            }
            "--binary" => options.binary = Some(value()?.into()),
            "--tmpfs" => options.directory = "/dev/shm".into(),
            "--directory" => options.directory = value()?.into(),
            "--no-results" => options.write = false,
            _ => return Err(USAGE.into()),
        }
    }
    Ok(options)
}

/// The bench at work.
struct Run {
    options: Options,
    clients: Clients,
    servers: Vec<Server>,
    directory: PathBuf,
}

impl Run {
    fn command(&self, file: &Path, port: u16, level: &str, clients: u32) -> Command {
        let mut pgbench = Command::new(self.clients.postgres_bin.join("pgbench"));
        pgbench.args(["--no-vacuum", "--protocol=prepared", "--max-tries=0"]);
        pgbench.arg(format!("--client={clients}"));
        pgbench.arg(format!("--jobs={}", clients.min(2)));
        pgbench.arg(format!("--file={}", file.display()));
        pgbench.arg(format!("--time={}", self.options.seconds));
        pgbench.args(super::loads::connection(port)).arg(USER);
        let level = level.replace(' ', "\\ ");
        pgbench.env(
            "PGOPTIONS",
            format!("-c default_transaction_isolation={level}"),
        );
        pgbench
    }

    /// One load at one level with so many clients: a list of samples for each contestant.
    fn measure(
        &mut self,
        load: &Load,
        all: &[Contestant],
        level: &str,
        clients: u32,
    ) -> Result<Vec<Vec<Sample>>> {
        let mut samples = vec![Vec::new(); all.len()];
        for round in 0..self.options.rounds {
            for turn in 0..samples.len() {
                let at = (round + turn) % samples.len();
                let c = &all[at];
                if let Some(ended) = self.servers[c.server].ended() {
                    return Err(ended);
                }
                let server = &self.servers[c.server];
                let seconds = self.options.seconds;
                let sample = match load.shape {
                    Shape::Vacation(items) => {
                        vacation::measure(server, c, items, level, (clients, seconds))?
                    }
                    shape => {
                        let file = self.directory.join("client.sql");
                        std::fs::write(&file, script(shape, c)).map_err(|e| e.to_string())?;
                        let command = self.command(&file, server.port, level, clients);
                        let limit = Duration::from_secs(u64::from(seconds) * 3 + 60);
                        measure(server.pid(), Tool::Pgbench, command, limit)
                    }
                };
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
fn tps(all: &[Contestant], samples: &[Vec<Sample>], name: &str) -> Option<f64> {
    let at = all.iter().position(|c| c.name == name)?;
    Some(median(&samples[at], |s| s.tps))
}

/// The lines of one load at one level in the table.
fn lines(
    load: &Load,
    all: &[Contestant],
    level: &str,
    clients: u32,
    samples: &[Vec<Sample>],
) -> String {
    let mut out = String::new();
    for (c, s) in all.iter().zip(samples) {
        let spread = Spread::of(s, |s| Some(s.tps));
        let (least, most) = spread.map_or((0.0, 0.0), |s| (s.least, s.most));
        let _ = writeln!(
            out,
            "| {} | {level} | {clients} | {} | {:.0} ({least:.0} .. {most:.0}) | {:.1} | {:.2} |",
            load.name,
            c.name,
            median(s, |s| s.tps),
            median(s, |s| s.cpu_us),
            median(s, |s| s.retries),
        );
    }
    out
}

/// The ratios of one load at one level: those with a bar, and the split column over all others.
fn ratios(
    load: &Load,
    all: &[Contestant],
    level: &str,
    clients: u32,
    samples: &[Vec<Sample>],
) -> String {
    let mut pairs: Vec<(&str, &str, Option<f64>)> = load
        .bars
        .iter()
        .map(|b| (b.of, b.over, Some(b.least)))
        .collect();
    if all.iter().any(|c| c.name == "split") {
        for c in all.iter().filter(|c| c.name != "split") {
            if !pairs.iter().any(|p| (p.0, p.1) == ("split", c.name)) {
                pairs.push(("split", c.name, None));
            }
        }
    }
    for c in all.iter().filter(|c| c.name.starts_with("SQL")) {
        pairs.push((c.name, "PostgreSQL", None));
    }
    let mut out = String::new();
    let figure = |name| tps(all, samples, name).unwrap_or(0.0);
    for (of, over, least) in pairs {
        let ratio = figure(of) / figure(over);
        let verdict = match least {
            // The bars are of 64 clients.
            Some(_) if clients != 64 => "-".into(),
            Some(least) if ratio >= least => format!("at least {least:.2}: holds"),
            Some(least) => format!("at least {least:.2}: **missed**"),
            None => "-".into(),
        };
        let _ = writeln!(
            out,
            "| {} | {level} | {clients} | {of} over {over} | {ratio:.2} | {verdict} | {} |",
            load.name,
            load.paper(level, of, over).unwrap_or("-")
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
        tables::prepare(s, most_clients(&options))?;
    }
    let chosen: Vec<&Load> = LOADS
        .iter()
        .filter(|l| l.is_wanted(&options.with, &options.only))
        .collect();
    prepare_chosen(&servers, &chosen, &options)?;
    let head = about(&options, args);
    let write = options.write;
    let name = page_name(&options);
    let mut run = Run {
        options,
        clients,
        servers,
        directory,
    };
    let done = run.everything(&chosen)?;
    let out = format!("{head}\n{}\n{}", done.verdicts, done.table);
    println!("\n{out}");
    // The chart shows shares of the ceiling, which not all loads have.
    let charts = match done.places.is_empty() {
        true => Vec::new(),
        false => vec![("", done.chart())],
    };
    match write {
        true => page::store(&name, &out, &charts),
        false => Ok(()),
    }
}

/// A part of the loads or another number of clients has a page of its own, beside the one that has all with 64 clients.
fn page_name(options: &Options) -> String {
    let mut name = "split".to_owned();
    let words = options.only.split(|c: char| !c.is_ascii_alphanumeric());
    for word in words.filter(|w| !w.is_empty()) {
        name += "-";
        name += &word.to_ascii_lowercase();
    }
    if options.clients != [64] {
        let clients: Vec<String> = options.clients.iter().map(u32::to_string).collect();
        name += &format!("-{}-clients", clients.join("-"));
    }
    name
}

fn most_clients(options: &Options) -> u32 {
    options.clients.iter().copied().max().unwrap_or(1)
}

/// The tables with a fixed number of records that a chosen load needs. Their names end with the number.
fn prepare_chosen(servers: &[Server], chosen: &[&Load], options: &Options) -> Result<()> {
    let runs = |c: &Contestant| {
        let has = |l: &&&Load| {
            l.contestants(&options.with)
                .iter()
                .any(|o| o.table == c.table)
        };
        chosen.iter().find(has).is_some()
    };
    for c in RECORDS.iter().chain(&ROWS).chain(&SQL).filter(|c| runs(c)) {
        let (kind, records) = c.table.split_once('_').expect("it ends with the number");
        let records = records.parse().expect("a number");
        let server = &servers[c.server];
        match kind {
            "sql" => tables::prepare_sql(server, c.table, records, most_clients(options))?,
            "rows" => tables::prepare_records(server, c.table, records, "rows")?,
            _ => tables::prepare_records(server, c.table, records, "escrow")?,
        }
    }
    Ok(())
}

/// The page's head.
fn about(options: &Options, args: &[String]) -> String {
    let mut out = page::head("Split values", "cargo xtask bench split", args);
    let clients: Vec<String> = options.clients.iter().map(u32::to_string).collect();
    let _ = writeln!(
        out,
        "- {} clients, pgbench, prepared; {} rounds of {} s, in turns; medians, with the least and the most\n\
         - ceiling: the same with one row for each client. A block is five `UPDATE … SET qty = qty - 1`. Bars are for 64 clients",
        clients.join(", "),
        options.rounds,
        options.seconds
    );
    out + "- thesis: what its split value has over the plain column of PostgreSQL 12, from the least to the most of all its numbers of clients (up to \
           2,048), products and records, on 24 cores. With two cores our ratios are smaller: no more than two transactions run at once, and our plain \
           row queues for microseconds where theirs waits for a commit or aborts.\n"
}

/// What was measured, as text and as series.
struct Done {
    table: String,
    verdicts: String,
    places: Vec<String>,
    series: Vec<(String, Vec<Option<f64>>)>,
}

impl Done {
    fn chart(&self) -> String {
        let chart = Chart {
            title: "One hot row: share of the ceiling",
            x: "level and load",
            y: "transactions, over those with a row for each client",
            places: self.places.clone(),
            series: self.series.clone(),
            line_at: Some(1.0),
        };
        chart.svg()
    }
}

impl Run {
    /// All loads. The chart is of the greatest number of clients.
    fn everything(&mut self, chosen: &[&Load]) -> Result<Done> {
        let names = ["split", "plain", "PostgreSQL"];
        let mut done = Done {
            table: "| load | level | clients | | tx/s | server CPU, µs/tx | retries per tx |\n|---|---|---|---|---|---|---|\n".into(),
            verdicts: "| load | level | clients | ratio | | bar | thesis |\n|---|---|---|---|---|---|---|\n".into(),
            places: Vec::new(),
            series: names.map(|n| (n.to_owned(), Vec::new())).into(),
        };
        let most = most_clients(&self.options);
        for load in chosen {
            println!("== {}", load.name);
            let all = load.contestants(&self.options.with);
            for clients in self.options.clients.clone() {
                for &(short, level) in load.levels() {
                    let samples = self.measure(load, &all, level, clients)?;
                    let text = lines(load, &all, short, clients, &samples);
                    print!("{text}");
                    done.table += &text;
                    done.verdicts += &ratios(load, &all, short, clients, &samples);
                    let ceiling = tps(&all, &samples, "ceiling").filter(|_| clients == most);
                    let Some(ceiling) = ceiling else {
                        continue;
                    };
                    done.places.push(match load.shape {
                        Shape::Block => short.to_owned(),
                        Shape::Thinking => format!("{short} 10 ms"),
                        _ => format!("{short} one"),
                    });
                    for (name, values) in &mut done.series {
                        values.push(tps(&all, &samples, name).map(|t| t / ceiling));
                    }
                }
            }
        }
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::loads::HOT;
    use super::*;

    #[test]
    fn a_part_has_a_page_of_its_own() {
        let name = |args: &[&str]| {
            let args: Vec<String> = args.iter().map(|&a| a.into()).collect();
            page_name(&options(&args).unwrap())
        };
        assert_eq!(name(&["--rounds", "9"]), "split");
        assert_eq!(name(&["--only", "a row for each"]), "split-a-row-for-each");
        assert_eq!(name(&["--clients", "1,8"]), "split-1-8-clients");
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
        let text = ratios(&LOADS[0], &HOT, "RC", 64, &samples);
        assert!(
            text.contains("split over ceiling | 0.84 | at least 0.85: **missed** | - |"),
            "{text}"
        );
        assert!(text.contains("split over plain | 4.20 | - | - |"), "{text}");
    }
}
