//! Two builds of canon side by side: whether a change costs something.
//!
//! ```text
//! cargo xtask bench builds --before BINARY [--after BINARY] [--rounds 15] [--seconds 5] [--tmpfs] [--directory DIR] [--no-results]
//! ```
//! Both servers run at once, on data of their own. For each load the builds take turns, and the one that begins changes with each round, so that
//! whatever else the machine does hits both. Before each round both servers start again: where chance puts a process in memory made one process
//! of the same build up to 15 % slower than another here, for as long as it lived. A round gives a pair of figures and their ratio. The page shows the median of the ratios and the
//! interval that holds the true median with 95 % or more: order statistics of the ratios, which need no assumption about their distribution.
//!
//! Left out on purpose: a verdict. The interval says how much the rounds can tell.

use super::options::program;
use super::sample::{Sample, measure};
use super::{AUTOGROUP, loads, number, page};
use crate::{Result, clients::Clients, command, guard::Guard, server};
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

const USAGE: &str = "cargo xtask bench builds --before BINARY [--after BINARY] [--rounds 15] [--seconds 5] [--tmpfs] \
                     [--directory DIR] [--no-results]";

struct Options {
    before: PathBuf,
    /// None: a release build of this checkout.
    after: Option<PathBuf>,
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
            "--rounds" => options.rounds = number(value()?)?,
            "--seconds" => options.seconds = number(value()?)?,
            "--tmpfs" => options.directory = "/dev/shm".into(),
            "--directory" => options.directory = value()?.into(),
            "--no-results" => options.write = false,
            _ => return Err(USAGE.into()),
        }
    }
    options.before = before.ok_or(USAGE)?;
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
    let mut servers = Vec::new();
    for (name, binary) in [("before", &options.before), ("after", &after)] {
        let home = directory.join(name);
        std::fs::create_dir_all(&home).map_err(|e| format!("{}: {e}", home.display()))?;
        servers.push(server::canon(binary, &home, &mut guard)?);
    }
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
    for (_, plan) in loads::SECTIONS
        .iter()
        .filter(|(name, _)| *name != "ceiling")
    {
        let plan = plan(&directory)?;
        println!("== {}", plan.title);
        for s in &servers {
            (plan.prepare)(&clients, s)?;
        }
        for load in plan.loads.iter().filter(|l| l.is_typical()) {
            let mut samples: [Vec<Sample>; 2] = Default::default();
            for round in 0..options.rounds {
                for server in &mut servers {
                    server.restart(&mut guard)?;
                }
                for turn in 0..2 {
                    let at = (round + turn) % 2;
                    let server = &mut servers[at];
                    if let Some(ended) = server.ended() {
                        return Err(ended);
                    }
                    let level = load.isolation.or(loads::SERIALIZABLE);
                    let command = load.command(&clients, server.port, level, options.seconds);
                    let limit = Duration::from_secs(u64::from(options.seconds) * 3 + 60);
                    let sample = measure(server.pid(), load.tool, command, limit);
                    if let Some(why) = &sample.complaint {
                        return Err(format!("{}: {why}", load.label));
                    }
                    samples[at].push(sample);
                }
            }
            let line = row(&load.label, &samples);
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
    fn five_rounds_say_nothing_of_an_interval() {
        let found = ratio(vec![1.0, 3.0, 2.0, f64::NAN, 5.0, 4.0]).unwrap();
        assert_eq!((found.median, found.interval), (3.0, None));
        assert_eq!(ratio(vec![]), None);
    }
}
