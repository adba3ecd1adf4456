//! Split values beside plain ones: one hot row that 64 clients change in blocks of five statements, and reads of one value.
//!
//! ```text
//! cargo xtask bench split [--quick] [--with rows,records] [--only TEXT] [--rounds 3] [--seconds 4] [--clients 64] [--binary CANON]
//!                         [--tmpfs] [--directory DIR] [--no-results]
//! ```
//! | contestant | rows | column |
//! |---|---|---|
//! | ceiling | one for each client | plain: no design can pass it, because no client meets another |
//! | split | one for all | split |
//! | plain | one for all | plain |
//! | PostgreSQL | one for all | plain, in PostgreSQL 15 |
//! | 1, 8, 64 records (`--with records`) | one for all | split, with so many records all the time: the row and 0, 7 or 63 others |
//! | rows 8, rows 64 (`--with rows`) | one for all | split in the mode `rows`, the thesis's way, with so many records |
//!
//! The loads are the block without thinking, the block with 10 ms after each of its first four statements, and one statement alone. In a last
//! one each client has its row, and a split column has to cost what a plain one does. Reads of one value have a plain column and values of
//! 1, 8 and 64 records side by side. `--only` takes the loads with this text in their names. Contestants take turns within a round, and the one that
//! begins changes from round to round. A transaction that is told to try again is tried again by pgbench.
//!
//! The default takes some ten minutes, each `--with` some four or six more.
//!
//! Left out on purpose: the thesis's implementation in SQL over PostgreSQL.

use super::options::program;
use super::sample::{Sample, Spread, Tool, measure};
use super::svg::Chart;
use super::{AUTOGROUP, loads, number, page};
use crate::server::{self, Server, USER};
use crate::{Result, clients::Clients, guard::Guard};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const USAGE: &str = "cargo xtask bench split [--quick] [--with rows,records] [--only TEXT] [--rounds 3] [--seconds 4] [--clients 64] \
                     [--binary CANON] [--tmpfs] [--directory DIR] [--no-results]";

static LEVELS: [(&str, &str); 3] = [
    ("RC", "read committed"),
    ("RR", "repeatable read"),
    ("SER", "serializable"),
];

struct Options {
    /// Contestants beside those that always run: the mode `rows`, and fixed numbers of records.
    rows: bool,
    records: bool,
    /// Of the loads, those with this text in their names.
    only: String,
    rounds: usize,
    seconds: u32,
    clients: u32,
    binary: Option<PathBuf>,
    directory: PathBuf,
    write: bool,
}

fn options(args: &[String]) -> Result<Options> {
    let mut options = Options {
        rows: false,
        records: false,
        only: String::new(),
        rounds: 3,
        seconds: 4,
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
            "--with" => {
                for one in value()?.split(',') {
                    match one {
                        "rows" => options.rows = true,
                        "records" => options.records = true,
                        _ => return Err(USAGE.into()),
                    }
                }
            }
            "--only" => options.only = value()?.into(),
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
    /// One read.
    Read,
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

const RECORDS: [Contestant; 3] = [
    contestant("1 record", 1, "records_1", Row::Hot),
    contestant("8 records", 1, "records_8", Row::Hot),
    contestant("64 records", 1, "records_64", Row::Hot),
];

const ROWS: [Contestant; 2] = [
    contestant("rows 8", 1, "rows_8", Row::Hot),
    contestant("rows 64", 1, "rows_64", Row::Hot),
];

/// One value is read, with so many records.
const READ: [Contestant; 4] = [
    contestant("plain", 1, "plain_stock", Row::Hot),
    RECORDS[0],
    RECORDS[1],
    RECORDS[2],
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

const fn bar(of: &'static str, over: &'static str, least: f64) -> Bar {
    Bar { of, over, least }
}

struct Load {
    name: &'static str,
    shape: Shape,
    contestants: &'static [Contestant],
    bars: &'static [Bar],
}

/// A read of a value with more records may take so much more time.
const READ_BARS: [Bar; 3] = [
    bar("1 record", "plain", 1.0),
    bar("8 records", "plain", 1.0 / 1.15),
    bar("64 records", "plain", 1.0 / 1.6),
];

const LOADS: [Load; 5] = [
    Load {
        name: "block of five",
        shape: Shape::Block,
        contestants: &HOT,
        bars: &[bar("split", "ceiling", 0.85)],
    },
    Load {
        name: "block of five, 10 ms between",
        shape: Shape::Thinking,
        contestants: &HOT,
        bars: &[
            bar("split", "plain", 30.0),
            bar("split", "PostgreSQL", 30.0),
        ],
    },
    Load {
        name: "one statement",
        shape: Shape::One,
        contestants: &HOT,
        bars: &[bar("split", "plain", 0.95)],
    },
    Load {
        name: "one statement, a row for each client",
        shape: Shape::One,
        contestants: &APART,
        bars: &[bar("split", "plain", 0.97)],
    },
    Load {
        name: "one read",
        shape: Shape::Read,
        contestants: &READ,
        bars: &READ_BARS,
    },
];

impl Load {
    /// Those that run, with the ones that were asked for.
    fn contestants(&self, options: &Options) -> Vec<Contestant> {
        let mut all = self.contestants.to_vec();
        if all.iter().any(|c| c.name == "ceiling") {
            all.extend(RECORDS.iter().filter(|_| options.records));
            all.extend(ROWS.iter().filter(|_| options.rows));
        }
        all
    }

    /// At which levels it runs: a read by itself is the same at all.
    fn levels(&self) -> &'static [(&'static str, &'static str)] {
        match self.shape {
            Shape::Read => &LEVELS[..1],
            _ => &LEVELS,
        }
    }
}

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
        Shape::Read => format!("SELECT qty FROM {} WHERE id = {id};\n", c.table),
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

/// A table whose hot row has this many records, which the worker gives to a value with deltas.
fn prepare_records(server: &Server, table: &str, records: u32, mode: &str) -> Result<()> {
    let further = records - 1;
    server.sql(&format!(
        "CREATE TABLE {table} (id int PRIMARY KEY, qty bigint NOT NULL CHECK (qty >= 0)) WITH (split = 'qty');
         ALTER TABLE {table} ALTER COLUMN qty SET (split_max = {further}, split_min = {further}, split_mode = {mode});
         INSERT INTO {table} VALUES (0, 1000000000000)"
    ))?;
    let begun = Instant::now();
    let there = format!(
        "SELECT count(*) FROM canon_split_values WHERE table_name = '{table}' AND records = {records}"
    );
    if records == 1 {
        return Ok(());
    }
    loop {
        server.sql(&format!("UPDATE {table} SET qty = qty - 1 WHERE id = 0"))?;
        let found = server.sql(&there)?;
        if found.rows.first().and_then(|r| r.first()) == Some(&Some("1".into())) {
            return Ok(());
        }
        if begun.elapsed() > Duration::from_secs(60) {
            return Err(format!("{table} does not get {records} records"));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
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
    fn measure(
        &mut self,
        load: &Load,
        all: &[Contestant],
        level: &str,
    ) -> Result<Vec<Vec<Sample>>> {
        let mut samples = vec![Vec::new(); all.len()];
        for round in 0..self.options.rounds {
            for turn in 0..samples.len() {
                let at = (round + turn) % samples.len();
                let c = &all[at];
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
fn tps(all: &[Contestant], samples: &[Vec<Sample>], name: &str) -> Option<f64> {
    let at = all.iter().position(|c| c.name == name)?;
    Some(median(&samples[at], |s| s.tps))
}

/// The lines of one load at one level in the table.
fn lines(load: &Load, all: &[Contestant], level: &str, samples: &[Vec<Sample>]) -> String {
    let mut out = String::new();
    for (c, s) in all.iter().zip(samples) {
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

/// The ratios of one load at one level: those with a bar, and the split column over all others.
fn ratios(load: &Load, all: &[Contestant], level: &str, samples: &[Vec<Sample>]) -> String {
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
    let mut out = String::new();
    let figure = |name| tps(all, samples, name).unwrap_or(0.0);
    for (of, over, least) in pairs {
        let ratio = figure(of) / figure(over);
        let verdict = match least {
            Some(least) if ratio >= least => format!("at least {least:.2}: holds"),
            Some(least) => format!("at least {least:.2}: **missed**"),
            None => "-".into(),
        };
        let _ = writeln!(
            out,
            "| {} | {level} | {of} over {over} | {ratio:.2} | {verdict} |",
            load.name
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
    let chosen: Vec<&Load> = LOADS
        .iter()
        .filter(|l| l.name.contains(&options.only))
        .collect();
    let tables = RECORDS.map(|c| (c, "escrow")).into_iter();
    for (c, mode) in tables.chain(ROWS.map(|c| (c, "rows"))) {
        let runs = |l: &&Load| l.contestants(&options).iter().any(|o| o.table == c.table);
        if chosen.iter().any(runs) {
            let (_, records) = c.table.split_once('_').expect("it ends with the number");
            let records = records.parse().expect("a number");
            prepare_records(&servers[c.server], c.table, records, mode)?;
        }
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
    for load in chosen {
        println!("== {}", load.name);
        let all = load.contestants(&run.options);
        for &(short, level) in load.levels() {
            let samples = run.measure(load, &all, level)?;
            let text = lines(load, &all, short, &samples);
            print!("{text}");
            table += &text;
            verdicts += &ratios(load, &all, short, &samples);
            if let Some(ceiling) = tps(&all, &samples, "ceiling") {
                places.push(match load.shape {
                    Shape::Block => short.to_owned(),
                    Shape::Thinking => format!("{short} 10 ms"),
                    Shape::One | Shape::Read => format!("{short} one"),
                });
                for (name, values) in &mut series {
                    values.push(tps(&all, &samples, name).map(|t| t / ceiling));
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
        let text = ratios(&LOADS[0], &HOT, "RC", &samples);
        assert!(
            text.contains("split over ceiling | 0.84 | at least 0.85: **missed** |"),
            "{text}"
        );
        assert!(text.contains("split over plain | 4.20 | - |"), "{text}");
    }
}
