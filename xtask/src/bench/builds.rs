//! Two builds of canon side by side: whether a change costs something.
//!
//! ```text
//! cargo xtask bench builds --before BINARY [--after BINARY] [--only LOADS] [--rounds 15] [--seconds 5] [--tmpfs] [--directory DIR]
//!     [--no-results]
//! ```
//! LOADS is `pgbench`, `sysbench`, `hotrow`, or one of these; without it all of them run.
//!
//! | name | what runs |
//! |---|---|
//! | `library` | YCSB and TPC-C in a process (`canon bench`), two threads, in memory: each run is a new process with data of its own |
//! | `replay` | the program `replay_figures`, which has to lie in `examples/` beside each binary: how fast policy `row` replays a recorded log |
//! | `reads` | strong point reads at a replica while 300 updates per second run at its primary; the CPU time is that of both nodes |
//!
//! Both servers run at once, on data of their own. For each load the builds take turns, and the one that begins changes with each round, so that
//! whatever else the machine does hits both. Before each round both servers start again: where chance puts a process in memory made one process
//! of the same build up to 15 % slower than another here, for as long as it lived. A round gives a pair of figures and their ratio. The page shows the median of the ratios and the
//! interval that holds the true median with 95 % or more: order statistics of the ratios, which need no assumption about their distribution.
//!
//! Left out on purpose: a verdict. The interval says how much the rounds can tell.

use super::options::program;
use super::reads::cluster::{self, Cluster, Media};
use super::sample::{Sample, measure};
use super::{AUTOGROUP, loads, number, page};
use crate::{Result, clients::Clients, command, guard::Guard, server};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

const USAGE: &str = "cargo xtask bench builds --before BINARY [--after BINARY] [--only pgbench|sysbench|hotrow|library|replay|reads] \
                     [--rounds 15] [--seconds 5] [--tmpfs] [--directory DIR] [--no-results]";

const LIBRARY_NAME: &str = "library";
const REPLAY_NAME: &str = "replay";
const READS_NAME: &str = "reads";

/// How the nodes of `reads` are connected.
const READS: [Media; 2] = [Media::Ring, Media::Tcp];

/// What is replayed: names of the loads of `bench::replay`.
const REPLAY: [&str; 3] = [
    "insert-only, secondary index",
    "adversarial 16",
    "half and half, hot writes deferred, districts 10",
];

/// What the library runs: part of the names of `canon bench`.
const LIBRARY: [&str; 3] = [
    "ycsb uniform, pipelined, ahead",
    "ycsb zipf 0.99, pipelined, ahead",
    "tpcc, pipelined, ahead",
];

struct Options {
    before: PathBuf,
    /// None: a release build of this checkout.
    after: Option<PathBuf>,
    only: Option<String>,
    rounds: usize,
    seconds: u32,
    directory: PathBuf,
    write: bool,
}

fn options(args: &[String]) -> Result<Options> {
    let mut before = None;
    let mut options = Options {
        before: PathBuf::new(),
        after: None,
        only: None,
        rounds: 15,
        seconds: 5,
        directory: std::env::temp_dir(),
        write: true,
    };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} needs a value\n{USAGE}"));
        match arg.as_str() {
            "--before" => before = Some(value()?.into()),
            "--after" => options.after = Some(value()?.into()),
            "--only" => options.only = Some(value()?.clone()),
            "--rounds" => options.rounds = number(value()?)?,
            "--seconds" => options.seconds = number(value()?)?,
            "--tmpfs" => options.directory = "/dev/shm".into(),
            "--directory" => options.directory = value()?.into(),
            "--no-results" => options.write = false,
            _ => return Err(USAGE.into()),
        }
    }
    options.before = before.ok_or(USAGE)?;
    let sections = loads::SECTIONS.iter().map(|s| s.0);
    let mut known =
        sections
            .filter(|s| *s != "ceiling")
            .chain([LIBRARY_NAME, REPLAY_NAME, READS_NAME]);
    if let Some(only) = &options.only
        && !known.any(|name| name == only)
    {
        return Err(USAGE.into());
    }
    Ok(options)
}

/// A median of ratios with its interval.
#[derive(Debug, PartialEq)]
struct Ratio {
    median: f64,
    interval: Option<(f64, f64)>,
}

/// The ratios' median, and the order statistics between which the true one lies with 95 %: the binomial distribution with p = 1/2 says how
/// many of `n` lie below it. Fewer than six rounds cannot say so.
fn ratio(mut all: Vec<f64>) -> Option<Ratio> {
    all.retain(|r| r.is_finite());
    all.sort_by(f64::total_cmp);
    let n = all.len();
    if n == 0 {
        return None;
    }
    let median = (all[(n - 1) / 2] + all[n / 2]) / 2.0;
    let (mut tail, mut choose, mut cut) = (0.0, 1.0, None);
    for k in 0..n / 2 {
        tail += choose / 2f64.powi(n as i32);
        choose *= (n - k) as f64 / (k + 1) as f64;
        if tail > 0.025 {
            break;
        }
        cut = Some(k);
    }
    let interval = cut.map(|k| (all[k], all[n - 1 - k]));
    Some(Ratio { median, interval })
}

fn shown(ratio: Option<Ratio>) -> String {
    match ratio {
        None => "-".into(),
        Some(Ratio {
            median,
            interval: None,
        }) => format!("{median:.3}"),
        Some(Ratio {
            median,
            interval: Some((low, high)),
        }) => format!("{median:.3} ({low:.3} .. {high:.3})"),
    }
}

pub fn main(args: &[String]) -> Result<()> {
    let options = options(args)?;
    let clients = Clients::find().map_err(|e| format!("{e}\ntry `cargo xtask clients`"))?;
    let after = program(&options.after)?;
    let mut guard = Guard::new()?;
    guard.setting(AUTOGROUP, "0")?;
    let directory = server::new_directory(&options.directory, &mut guard)?;
    let mut out = page::head("Two builds of canon", "cargo xtask bench builds", args);
    let version = |binary: &PathBuf| {
        let said = command::output(std::process::Command::new(binary).arg("--version"));
        said.map_or("unknown".into(), |s| s.trim().to_owned())
    };
    let _ = writeln!(
        out,
        "- before: {}; after: {}\n- rounds: {} of {} s, the builds in turns; ratios are after over before, with their 95 % interval\n",
        version(&options.before),
        version(&after),
        options.rounds,
        options.seconds
    );
    out += "| load | before, tx/s | after, tx/s | throughput, ratio | before, CPU µs/tx | after, CPU µs/tx | CPU, ratio |\n|---|---|---|---|---|---|---|\n";
    let wanted = |name: &str| options.only.as_ref().is_none_or(|only| only == name);
    let sections = loads::SECTIONS.iter().filter(|s| s.0 != "ceiling");
    let sections: Vec<_> = sections.filter(|s| wanted(s.0)).collect();
    if !sections.is_empty() {
        let mut servers = Vec::new();
        for (name, binary) in [("before", &options.before), ("after", &after)] {
            let home = directory.join(name);
            std::fs::create_dir_all(&home).map_err(|e| format!("{}: {e}", home.display()))?;
            servers.push(server::canon(binary, &home, &mut guard)?);
        }
        for (_, plan) in sections {
            let plan = plan(&directory)?;
            println!("== {}", plan.title);
            for s in &servers {
                (plan.prepare)(&clients, s)?;
            }
            for load in plan.loads.iter().filter(|l| l.is_typical()) {
                let samples = served(&options, load, &clients, &mut servers, &mut guard)?;
                let line = row(&load.label, &samples);
                print!("{line}");
                out += &line;
            }
        }
    }
    if wanted(LIBRARY_NAME) {
        for name in LIBRARY {
            let samples = embedded(&options, name, [&options.before, &after])?;
            let line = row(&format!("library, {name}"), &samples);
            print!("{line}");
            out += &line;
        }
    }
    if wanted(REPLAY_NAME) {
        for name in REPLAY {
            for (load, samples) in replayed(&options, name, [&options.before, &after])? {
                let line = row(&format!("replay, {load}"), &samples);
                print!("{line}");
                out += &line;
            }
        }
    }
    if wanted(READS_NAME) {
        for media in READS {
            let binaries = [&options.before, &after];
            let samples = reads(&options, media, &clients, binaries, &directory, &mut guard)?;
            let label = format!("strong reads at a replica, {}", media.name());
            let line = row(&label, &samples);
            print!("{line}");
            out += &line;
        }
    }
    println!("\n{out}");
    match options.write {
        true => page::store("builds", &out, &[]),
        false => Ok(()),
    }
}

/// The rounds of one load against both servers, which start again before each round.
fn served(
    options: &Options,
    load: &loads::Load,
    clients: &Clients,
    servers: &mut [server::Server],
    guard: &mut Guard,
) -> Result<[Vec<Sample>; 2]> {
    let mut samples: [Vec<Sample>; 2] = Default::default();
    for round in 0..options.rounds {
        for server in &mut *servers {
            server.restart(guard)?;
        }
        for turn in 0..2 {
            let at = (round + turn) % 2;
            let server = &mut servers[at];
            if let Some(ended) = server.ended() {
                return Err(ended);
            }
            let level = load.isolation.or(loads::SERIALIZABLE);
            let command = load.command(clients, server.port, level, options.seconds);
            let limit = Duration::from_secs(u64::from(options.seconds) * 3 + 60);
            let sample = measure(server.pid(), load.tool, command, limit);
            if let Some(why) = &sample.complaint {
                return Err(format!("{}: {why}", load.label));
            }
            samples[at].push(sample);
        }
    }
    Ok(samples)
}

/// The rounds of one load of the library.
fn embedded(options: &Options, name: &str, binaries: [&PathBuf; 2]) -> Result<[Vec<Sample>; 2]> {
    let mut samples: [Vec<Sample>; 2] = Default::default();
    for round in 0..options.rounds {
        for turn in 0..2 {
            let at = (round + turn) % 2;
            let mut bench = std::process::Command::new(binaries[at]);
            bench.args(["bench", "--threads", "2", "--directory", "/dev/shm"]);
            bench.args(["--only", name, "--seconds", &options.seconds.to_string()]);
            let said = command::output(&mut bench)?;
            let found = said.lines().find_map(|line| library_line(name, line));
            samples[at].push(found.ok_or(format!("{name}: no figure in what was said\n{said}"))?);
        }
    }
    Ok(samples)
}

/// The rounds of the replay of one load, by the load's whole name.
fn replayed(
    options: &Options,
    name: &str,
    binaries: [&PathBuf; 2],
) -> Result<BTreeMap<String, [Vec<Sample>; 2]>> {
    let mut samples: BTreeMap<String, [Vec<Sample>; 2]> = BTreeMap::new();
    for round in 0..options.rounds {
        for turn in 0..2 {
            let at = (round + turn) % 2;
            let program = binaries[at]
                .with_file_name("examples")
                .join("replay_figures");
            let mut replay = std::process::Command::new(&program);
            replay.args(["--directory", "/dev/shm", "--only", name, "--rounds", "1"]);
            replay.args(["--policies", "row", "--no-extras"]);
            replay.args(["--seconds", &options.seconds.to_string()]);
            let said = command::output(&mut replay)?;
            let found: Vec<_> = said.lines().filter_map(replay_line).collect();
            if found.is_empty() {
                return Err(format!("{name}: no figure in what was said\n{said}"));
            }
            for (load, sample) in found {
                samples.entry(load).or_default()[at].push(sample);
            }
        }
    }
    Ok(samples)
}

/// `replay  load  round  policy  transactions/s  ratio  rows/s  deferred  CPU us/transaction`, parted by tabs.
fn replay_line(line: &str) -> Option<(String, Sample)> {
    let mut columns = line.strip_prefix("replay\t")?.split('\t');
    let load = columns.next()?.to_owned();
    let tps = columns.nth(2)?.parse().ok()?;
    let cpu_us = columns.nth(3)?.parse().ok()?;
    let sample = Sample {
        tps,
        cpu_us,
        ..Sample::default()
    };
    Some((load, sample))
}

/// The rounds of strong point reads at a replica of each build.
fn reads(
    options: &Options,
    media: Media,
    clients: &Clients,
    binaries: [&PathBuf; 2],
    directory: &Path,
    guard: &mut Guard,
) -> Result<[Vec<Sample>; 2]> {
    let mut clusters = Vec::new();
    for (name, binary) in ["before", "after"].into_iter().zip(binaries) {
        let home = directory.join(format!("reads-{}-{name}", media.name()));
        std::fs::create_dir_all(&home).map_err(|e| format!("{}: {e}", home.display()))?;
        let cluster = Cluster::start(binary, &home, 1, media, &[], guard)?;
        cluster.make_tables(clients)?;
        clusters.push(cluster);
    }
    let read = cluster::Load {
        test: "oltp_point_select",
        threads: 8,
        rate: 0.0,
        seconds: f64::from(options.seconds),
        hot: false,
        settings: "-c canon.read_policy=lamport+tracker".into(),
    };
    let write = cluster::Load {
        test: "oltp_update_non_index",
        threads: 4,
        rate: 300.0,
        settings: String::new(),
        ..read.clone()
    };
    let mut samples: [Vec<Sample>; 2] = Default::default();
    for round in 0..options.rounds {
        for turn in 0..2 {
            let at = (round + turn) % 2;
            let done = cluster::measure(clients, &clusters[at], &read, Some(&write))?;
            samples[at].push(Sample {
                tps: done.transactions,
                cpu_us: done.replica_us + done.primary_us,
                ..Sample::default()
            });
        }
    }
    Ok(samples)
}

/// The figures behind a run's name: threads, transactions per second, the same per core, CPU time for each.
fn library_line(name: &str, line: &str) -> Option<Sample> {
    let mut figures = line.strip_prefix(name)?.split_whitespace();
    let tps = figures.nth(1)?.parse().ok()?;
    let cpu_us = figures.nth(1)?.parse().ok()?;
    Some(Sample {
        tps,
        cpu_us,
        ..Sample::default()
    })
}

fn row(label: &str, samples: &[Vec<Sample>; 2]) -> String {
    let median = |at: usize, figure: fn(&Sample) -> f64| {
        let all = samples[at].iter().map(figure).collect();
        ratio(all).map_or(0.0, |r| r.median)
    };
    let ratios = |figure: fn(&Sample) -> f64| {
        let pairs = samples[0].iter().zip(&samples[1]);
        ratio(pairs.map(|(b, a)| figure(a) / figure(b)).collect())
    };
    let (tps, cpu): (fn(&Sample) -> f64, fn(&Sample) -> f64) = (|s| s.tps, |s| s.cpu_us);
    format!(
        "| {label} | {:.0} | {:.0} | {} | {:.1} | {:.1} | {} |\n",
        median(0, tps),
        median(1, tps),
        shown(ratios(tps)),
        median(0, cpu),
        median(1, cpu),
        shown(ratios(cpu)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fifteen_rounds_leave_three_out_at_each_end() {
        let all: Vec<f64> = (1..=15).map(f64::from).collect();
        let found = ratio(all).unwrap();
        assert_eq!(found.median, 8.0);
        assert_eq!(found.interval, Some((4.0, 12.0)));
    }

    #[test]
    fn the_figures_of_a_run_of_the_library_are_found_by_their_columns() {
        let line = "tpcc, pipelined, ahead                       2      30512       15301       65.35     60.01      120      300      410  ";
        let found = library_line("tpcc, pipelined, ahead", line).unwrap();
        assert_eq!((found.tps, found.cpu_us), (30512.0, 65.35));
        assert!(library_line("ycsb", line).is_none());
        assert!(library_line("tpcc", "tpcc").is_none());
    }

    #[test]
    fn the_figures_of_a_replay_are_found_by_their_columns() {
        let line = "replay\tadversarial 16\t0\trow\t123456\t1.234\t246912\t7\t8.25";
        let (load, found) = replay_line(line).unwrap();
        assert_eq!(
            (load.as_str(), found.tps, found.cpu_us),
            ("adversarial 16", 123456.0, 8.25)
        );
        assert!(replay_line("primary\tycsb\t0\t1\t2\t3").is_none());
    }

    #[test]
    fn five_rounds_say_nothing_of_an_interval() {
        let found = ratio(vec![1.0, 3.0, 2.0, f64::NAN, 5.0, 4.0]).unwrap();
        assert_eq!((found.median, found.interval), (3.0, None));
        assert_eq!(ratio(vec![]), None);
    }
}
