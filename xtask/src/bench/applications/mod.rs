//! `cargo xtask bench applications`: benchmarks of others, as their authors wrote them, at canon and at PostgreSQL 15.
//!
//! ```text
//! cargo xtask bench applications [--benchbase DIR] [--sysbench-tpcc DIR] [--only tpcc,…] [--rounds 3] [--seconds 15] [--terminals 8]
//!     [--binary CANON] [--directory DIR] [--no-results]
//! ```
//! ```text
//! checkout: BenchBase (`benchbase`)       ─┐             for each benchmark: both servers new and empty, each fills its tables,
//!           sysbench-tpcc (`percona`)     ─┴─ a `Driver` ──▶ then for each isolation level the rounds, servers in turns ──▶ `table`
//! ```
//! No registry has these programs: `DIR` is a checkout of <https://github.com/cmu-db/benchbase> or of
//! <https://github.com/Percona-Lab/sysbench-tpcc>, whose commit the page names. A benchmark whose checkout is not given is named as not run. BenchBase is
//! built with Maven where it is not yet. Its configurations are the samples of the checkout with other values in some elements. `JAVA_HOME` names the Java for
//! both, which may not be older than the pom demands.
//!
//! Both servers run during all rounds of a benchmark, and the one that begins changes with each round. Each benchmark runs at READ COMMITTED, the
//! default of both servers, and at the level that the sample itself names. PostgreSQL is vacuumed, analyzed and checkpointed after the load.
//!
//! Left out on purpose: think times and rates (each terminal goes as fast as it can); scales that do not fit small machines; a verdict on
//! the reason where canon is behind.

mod benchbase;
mod driver;
mod percona;
mod table;

use super::options::{number, program};
use super::{AUTOGROUP, page};
use crate::clients::Clients;
use crate::guard::Guard;
use crate::server::{self, Server};
use crate::{Result, command, process};
use driver::{Driver, Figures, Place};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;
use table::{Row, Table};

const USAGE: &str = "cargo xtask bench applications [--benchbase DIR] [--sysbench-tpcc DIR] [--only NAME,…] [--rounds 3] [--seconds 15] \
                     [--terminals 8] [--binary CANON] [--directory DIR] [--no-results]";

struct Options {
    benchbase: Option<PathBuf>,
    sysbench_tpcc: Option<PathBuf>,
    only: Vec<String>,
    rounds: usize,
    seconds: u32,
    terminals: u32,
    binary: Option<PathBuf>,
    directory: PathBuf,
    write: bool,
}

pub fn main(args: &[String]) -> Result<()> {
    let options = options(args)?;
    let clients = Clients::find().map_err(|e| format!("{e}\ntry `cargo xtask clients`"))?;
    let mut guard = Guard::new()?;
    let (drivers, notes) = drivers(&options, &clients, &mut guard)?;
    let canon = program(&options.binary)?;
    guard.setting(AUTOGROUP, "0")?;
    let directory = server::new_directory(&options.directory, &mut guard)?;
    let head = page::head(
        "Benchmarks of others beside PostgreSQL 15",
        "cargo xtask bench applications",
        args,
    );
    let mut bench = Bench {
        options,
        clients,
        guard,
        directory,
        canon,
        begun: Instant::now(),
    };
    let mut notes = notes;
    notes.push(format!(
        "{} terminals without pauses, {} rounds of {} s for each server and level, the servers in turns",
        bench.options.terminals, bench.options.rounds, bench.options.seconds
    ));
    let mut table = Table::new(notes);
    for driver in &drivers {
        bench.benchmark(driver.as_ref(), &mut table);
    }
    let postgres = Command::new(bench.clients.postgres_bin.join("postgres"))
        .arg("--version")
        .output();
    let postgres = postgres.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned());
    let minutes = bench.begun.elapsed().as_secs_f64() / 60.0;
    let text = table.page(&head, &postgres.unwrap_or_default(), minutes);
    println!("\n{text}");
    if bench.options.write {
        page::store("applications", &text, &[])?;
    }
    table.verdict()
}

fn options(args: &[String]) -> Result<Options> {
    let mut o = Options {
        benchbase: None,
        sysbench_tpcc: None,
        only: Vec::new(),
        rounds: 3,
        seconds: 15,
        terminals: 8,
        binary: None,
        directory: std::env::temp_dir(),
        write: true,
    };
    let path = |value: &String| std::path::absolute(value).map_err(|e| e.to_string());
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} needs a value\n{USAGE}"));
        match arg.as_str() {
            "--benchbase" => o.benchbase = Some(path(value()?)?),
            "--sysbench-tpcc" => o.sysbench_tpcc = Some(path(value()?)?),
            "--only" => o.only = value()?.split(',').map(String::from).collect(),
            "--rounds" => o.rounds = number(value()?)?,
            "--seconds" => o.seconds = number(value()?)?,
            "--terminals" => o.terminals = number(value()?)?,
            "--binary" => o.binary = Some(path(value()?)?),
            "--directory" => o.directory = path(value()?)?,
            "--no-results" => o.write = false,
            _ => return Err(USAGE.into()),
        }
    }
    let known = |n: &String| n == percona::NAME || benchbase::NAMES.iter().any(|b| b.0 == n);
    if let Some(other) = o.only.iter().find(|n| !known(n)) {
        return Err(format!("no benchmark `{other}`\n{USAGE}"));
    }
    Ok(o)
}

/// The benchmarks to run, and what the page says of checkouts and of what is not run.
fn drivers(
    o: &Options,
    clients: &Clients,
    guard: &mut Guard,
) -> Result<(Vec<Box<dyn Driver>>, Vec<String>)> {
    let wanted = |name: &str| o.only.is_empty() || o.only.iter().any(|w| w == name);
    let mut drivers: Vec<Box<dyn Driver>> = Vec::new();
    let mut notes = Vec::new();
    let not_run = |names: &[&str], flag: &str| {
        let said = format!("NOT RUN: {} ({flag} was not given)", names.join(", "));
        println!("{said}");
        said
    };
    let names: Vec<&str> = benchbase::NAMES.iter().map(|n| n.0).collect();
    let names: Vec<&str> = names.into_iter().filter(|n| wanted(n)).collect();
    match &o.benchbase {
        _ if names.is_empty() => {}
        None => notes.push(not_run(&names, "--benchbase")),
        Some(checkout) => {
            notes.push(format!("BenchBase {}", commit(checkout)?));
            let built = benchbase::built(checkout, guard)?;
            for name in names {
                drivers.push(Box::new(built.benchmark(name)?));
            }
        }
    }
    match &o.sysbench_tpcc {
        _ if !wanted(percona::NAME) => {}
        None => notes.push(not_run(&[percona::NAME], "--sysbench-tpcc")),
        Some(checkout) => {
            notes.push(format!("sysbench-tpcc {}", commit(checkout)?));
            drivers.push(Box::new(percona::Tpcc::new(checkout, &clients.sysbench)?));
        }
    }
    match drivers.is_empty() {
        true => Err(format!("nothing to run\n{USAGE}")),
        false => Ok((drivers, notes)),
    }
}

/// The commit of a checkout, and the files that are not as it has them.
fn commit(checkout: &Path) -> Result<String> {
    let commit = command::git(checkout, &["rev-parse", "HEAD"])?;
    let changed = command::git(checkout, &["diff", "--name-status", "HEAD"])?;
    println!("{} is at {}", checkout.display(), commit.trim());
    Ok(said_of_checkout(commit.trim(), &changed))
}

/// `changed` has a line for each file: its status, a tab and its path.
fn said_of_checkout(commit: &str, changed: &str) -> String {
    let of = |absent: bool| -> Vec<&str> {
        let lines = changed.lines().filter_map(|l| l.split_once('\t'));
        let lines = lines.filter(|(status, _)| (*status == "D") == absent);
        lines.map(|(_, file)| file).collect()
    };
    let mut said = format!("at {commit}");
    for (files, what) in [(of(false), "changed"), (of(true), "absent here")] {
        if !files.is_empty() {
            said += &format!("; {what}: {}", files.join(", "));
        }
    }
    said
}

/// The bench at work.
struct Bench {
    options: Options,
    clients: Clients,
    guard: Guard,
    directory: PathBuf,
    canon: PathBuf,
    begun: Instant,
}

impl Bench {
    /// All rounds of one benchmark. What cannot be run is said in the table.
    fn benchmark(&mut self, driver: &dyn Driver, table: &mut Table) {
        let name = driver.name();
        let home = self.directory.join(&name);
        println!(
            "== {name}, {} ({:.0} s since the start)",
            driver.scale(),
            self.begun.elapsed().as_secs_f64()
        );
        if let Err(why) = self.rounds(driver, &home, table) {
            println!("   {name}: FAILED: {why}");
            table.failed(&name, &why);
        }
        let _ = std::fs::remove_dir_all(&home);
    }

    fn rounds(&mut self, driver: &dyn Driver, home: &Path, table: &mut Table) -> Result<()> {
        std::fs::create_dir_all(home).map_err(|e| format!("{}: {e}", home.display()))?;
        let programs = &self.clients.postgres_bin;
        let mut servers = [
            server::postgres(programs, home, &mut self.guard, false)?,
            server::canon(&self.canon, home, &mut self.guard)?,
        ];
        for server in &servers {
            let begun = Instant::now();
            let place = self.place(server, home);
            let loaded = driver.load(&place, &mut self.guard);
            loaded.map_err(|e| format!("{}, load: {e}", server.name))?;
            settle(server)?;
            println!(
                "   {}: filled in {:.0} s",
                server.name,
                begun.elapsed().as_secs_f64()
            );
        }
        for level in driver.levels() {
            let mut samples: [Vec<Figures>; 2] = Default::default();
            for round in 0..self.options.rounds {
                for turn in 0..2 {
                    let at = (round + turn) % 2;
                    let figures = self.one(driver, &mut servers[at], home, &level)?;
                    println!(
                        "   {level}, round {}: {} {:.0} tx/s, p99 {:.1} ms",
                        round + 1,
                        servers[at].name,
                        figures.tps,
                        figures.p99_ms
                    );
                    samples[at].push(figures);
                }
            }
            table.add(Row::new(&driver.name(), &driver.scale(), &level, samples));
        }
        Ok(())
    }

    fn place<'a>(&self, server: &Server, directory: &'a Path) -> Place<'a> {
        Place {
            port: server.port,
            directory,
            terminals: self.options.terminals,
            seconds: self.options.seconds,
        }
    }

    fn one(
        &mut self,
        driver: &dyn Driver,
        server: &mut Server,
        home: &Path,
        level: &str,
    ) -> Result<Figures> {
        let before = process::cpu_seconds(server.pid());
        let ran = driver.execute(&self.place(server, home), level, &mut self.guard);
        let cpu = process::cpu_seconds(server.pid()) - before;
        if let Some(ended) = server.ended() {
            return Err(ended);
        }
        let mut figures = ran.map_err(|e| format!("{}, {level}: {e}", server.name))?;
        figures.cpu_us = cpu * 1e6 / figures.committed;
        Ok(figures)
    }
}

/// Statistics are there and what is dirty is written before the first round, not during it.
fn settle(server: &Server) -> Result<()> {
    if server.name == super::loads::PEER {
        server.sql("VACUUM ANALYZE")?;
        server.sql("CHECKPOINT")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_as_the_commit_has_it_is_said() {
        assert_eq!(said_of_checkout("abc", ""), "at abc");
        let changed = "D\tdata/large.txt\nM\tsrc/A.java\n";
        assert_eq!(
            said_of_checkout("abc", changed),
            "at abc; changed: src/A.java; absent here: data/large.txt"
        );
    }

    #[test]
    fn a_benchmark_that_nobody_knows_is_refused() {
        let args = ["--only", "tpcc,tpch"].map(String::from);
        assert!(options(&args).err().unwrap().contains("tpch"));
        let args = ["--only", "tpcc,sysbench-tpcc", "--rounds", "1"].map(String::from);
        assert_eq!(options(&args).unwrap().only.len(), 2);
    }
}
