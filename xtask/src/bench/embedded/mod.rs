//! `cargo xtask bench embedded`: the library in one process, YCSB and TPC-C, per core; a page in `docs/results/`.
//!
//! `bench`'s example `library_bench` measures and prints a line per figure, once in each round; the page has medians.
//! Two of its loads run again under `perf` (`profile`). What stands between the figures and what is aimed at is worked out of both
//! (`aims`), so the page says nothing that this run has not measured.
//!
//! Left out on purpose: the disk (`--directory` on one says what a commit waits there), and the SQL engine, which is not even compiled in.

mod aims;
mod figures;
mod profile;

use super::page;
use crate::{Result, command};
use figures::Figures;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

const USAGE: &str = "cargo xtask bench embedded [--split] [--rounds 3] [--seconds 3] [--directory /dev/shm] [--no-results]";

struct Options {
    /// Split values beside plain ones, and nothing else.
    split: bool,
    rounds: usize,
    seconds: u32,
    directory: PathBuf,
    write: bool,
}

fn options(args: &[String]) -> Result<Options> {
    let mut options = Options {
        split: false,
        rounds: 3,
        seconds: 3,
        directory: "/dev/shm".into(),
        write: true,
    };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} needs a value\n{USAGE}"));
        match arg.as_str() {
            "--rounds" => options.rounds = super::number(value()?)?,
            "--seconds" => options.seconds = super::number(value()?)?,
            "--directory" => options.directory = value()?.into(),
            "--split" => options.split = true,
            "--no-results" => options.write = false,
            other => return Err(format!("`{other}`?\n{USAGE}")),
        }
    }
    Ok(options)
}

/// The loads that are profiled.
const PROFILED: [&str; 2] = ["ycsb uniform, pipelined, ahead", "tpcc, pipelined, ahead"];

pub fn main(args: &[String]) -> Result<()> {
    let options = options(args)?;
    println!("building, release");
    let example = ["--package", "bench", "--example", "library_bench"];
    let mut build = vec!["build", "--release"];
    build.extend(example);
    command::output(&mut command::cargo(&build))?;
    if options.split {
        return split(&options, args);
    }
    let head = page::head(
        "The library in one process: YCSB and TPC-C per core",
        "cargo xtask bench embedded",
        args,
    );
    let mut figures = Figures::default();
    for round in 1..=options.rounds {
        println!("== round {round} of {}", options.rounds);
        measure(&options, &mut figures)?;
    }
    let mut profiles = Vec::new();
    for load in PROFILED {
        println!("== perf, {load}");
        profiles.push((
            load,
            profile::of(&binary(), &options.directory, options.seconds, load),
        ));
    }
    let mut text = head;
    let _ = writeln!(text, "- load average after: {}\n", load_average());
    about(&mut text, &options);
    figures.tables(&mut text);
    let _ = writeln!(
        text,
        "\n## Where the time goes\n\nOne thread, samples of the CPU clock on the thread that runs the transactions, under `perf`. What the compiler has put into its caller counts there."
    );
    for (load, profile) in &profiles {
        let _ = writeln!(text, "\n### {load}\n");
        match profile {
            Ok(p) => p.table(&mut text, figures.median_own(load)),
            Err(why) => text.push_str(&format!("No profile: {why}\n")),
        }
    }
    text.push_str("\n## Against the aims, and what stands in the way\n");
    for aim in aims::AIMS {
        let profile = profiles.iter().find(|p| p.0 == aim.load);
        let profile = profile.and_then(|p| p.1.as_ref().ok());
        aims::judge(&mut text, aim, &figures, profile);
    }
    println!("\n{text}");
    match options.write {
        true => page::store("embedded", &text, &[]),
        false => Ok(()),
    }
}

/// The page of split values.
fn split(options: &Options, args: &[String]) -> Result<()> {
    let mut text = page::head(
        "Split values in the library",
        "cargo xtask bench embedded",
        args,
    );
    let mut figures = Figures::default();
    for round in 1..=options.rounds {
        println!("== round {round} of {}", options.rounds);
        measure(options, &mut figures)?;
    }
    let _ = writeln!(
        text,
        "- load average after: {}\n\n\
         The library without SQL and server, log on, commits pipelined; {} rounds of {} s, medians (smallest..largest).\n\n\
         *tpcc*: half NewOrder, half Payment, all threads at one warehouse, at REPEATABLE READ; `w_ytd` and `d_ytd` plain, and split. The thesis has \
         0.82 to 3.02 of the plain columns' transactions (its Table 8: PostgreSQL, REPEATABLE READ, 24 cores, up to 512 clients). Two things \
         make ours smaller. Two cores run no more than two transactions at once. And our value stays in the row of its district, whose next order \
         number each NewOrder writes, where the thesis moves it to a table of its own.\n\n\
         *read*: one value by its key, one thread, with so many records.\n",
        load_average(),
        options.rounds,
        options.seconds
    );
    figures.runs(&mut text);
    println!("\n{text}");
    match options.write {
        true => page::store("embedded-split", &text, &[]),
        false => Ok(()),
    }
}

fn binary() -> PathBuf {
    command::target_dir().join("release/examples/library_bench")
}

fn load_average() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

/// Runs the program once and reads its lines, which it also shows.
fn measure(options: &Options, figures: &mut Figures) -> Result<()> {
    use std::io::{BufRead, BufReader};
    let mut run = Command::new(binary());
    run.arg("--tabs");
    run.args(options.split.then_some("--split"));
    run.arg(&options.directory);
    run.arg(options.seconds.to_string()).stdout(Stdio::piped());
    let shown = command::show(&run);
    let mut child = run.spawn().map_err(|e| format!("{shown}: {e}"))?;
    let out = child.stdout.take().expect("piped");
    for line in BufReader::new(out).lines() {
        let line = line.map_err(|e| e.to_string())?;
        println!("   {}", line.replace('\t', "  "));
        figures
            .take(&line)
            .ok_or(format!("{shown} printed `{line}`"))?;
    }
    let status = child.wait().map_err(|e| e.to_string())?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("{shown}: {status}")),
    }
}

/// What the columns mean.
fn about(text: &mut String, options: &Options) {
    let place = match options.directory.starts_with("/dev/shm") {
        true => "tmpfs (the disk is not what is measured)",
        false => "a disk",
    };
    let _ = writeln!(
        text,
        "Serializable, log on, data on {place}; {} rounds of {} s, medians (smallest..largest). The library without SQL and server, with the \
         default options of a database.\n\n\
         YCSB: 1 million rows of 10 x 10 bytes, 8 reads and 2 read-writes. TPC-C: NewOrder and Payment, half and half, a warehouse per thread. \
         *per core*: transactions per second of CPU of the whole process, flusher and reclaimer included; *us*: that CPU per transaction; \
         *own*: of it, the threads that run the transactions; *beside*: the other threads. *pipelined*: the next transaction runs while the \
         log flushes, and a transaction counts, and its latency ends, when it is durable; *waiting*: each waits for its flush. *ahead*: a \
         transaction names the rows that it will read when it begins, and their memory is fetched at once (`Table::prefetch`). Aborts are \
         runs that lost and were run again, per transaction.\n",
        options.rounds, options.seconds
    );
}
