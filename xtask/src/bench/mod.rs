//! `cargo xtask bench`: canon beside PostgreSQL 15 on this machine; results go to `docs/results/`.
//!
//! A *load* (what a client does) is one row of a table, a *contestant* (a server and an isolation level) one column. For
//! each load every contestant takes its turn, and again, `--rounds` times, so that whatever else the machine does hits all
//! of them. Every figure is the median over the rounds, with the smallest and the largest. PostgreSQL's default is READ
//! COMMITTED and so is ours; a third column has ours at SERIALIZABLE.
//! A fourth is a server that answers constants: what the client itself can do here (`constant`).
//!
//! `replay` is another program and page: replay's policies against the primary (`replay`). `reads` is another one too: strong reads at
//! replicas (`reads`), and `lag` how far a replica is behind, ours alone or beside peers' (`lag`). So are `embedded`, the
//! library in one process, `builds`, two builds of canon side by side, `split`, a hot row in a split column, `split-workers`, the worker of
//! such columns in counted time, `sites`, clients far from the primary, `failover`, how long a cluster that runs itself is without
//! commits when its primary is lost, and `applications`, benchmarks that others have written.
//!
//! Left out on purpose: charts (but for `replay`), and numbers from a machine that we have not seen.

mod applications;
mod builds;
pub mod constant;
mod delay;
mod embedded;
mod failover;
mod http;
mod lag;
mod loads;
mod memory;
mod options;
pub mod page;
mod peers;
mod programs;
mod reads;
mod recovery;
mod replay;
mod report;
mod sample;
mod sites;
mod split;
mod split_workers;
mod svg;

use crate::{Result, clients::Clients, command, guard::Guard, server, server::Server};
use loads::Load;
pub(crate) use options::{AUTOGROUP, Isolation, number};
use sample::{Sample, measure};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const USAGE: &str = "cargo xtask bench [pgbench|sysbench|hotrow|ceiling|memory|recovery|programs|all] [--rounds 5] [--seconds 5] \
                     [--tmpfs] [--only canon|postgres] [--directory DIR] [--binary CANON] [--no-results]\n\
                     cargo xtask bench [replay|reads|lag|embedded|builds|split|split-workers|sites|failover|applications] --help";

struct Options {
    what: String,
    rounds: usize,
    seconds: u32,
    tmpfs: bool,
    only: Option<String>,
    directory: PathBuf,
    /// Measured instead of a release build of this checkout.
    binary: Option<PathBuf>,
    write: bool,
}

/// One column: who runs the load, and at which isolation level.
struct Contestant {
    server: usize,
    label: &'static str,
    isolation: Isolation,
}

/// A load with the samples of every contestant, in the contestants' order.
struct Row {
    load: Load,
    samples: Vec<Vec<Sample>>,
}

/// One table of the report.
struct Section {
    title: &'static str,
    contestants: Vec<Contestant>,
    rows: Vec<Row>,
    /// Servers that could not be prepared, and why.
    unprepared: Vec<(&'static str, String)>,
}

pub fn main(args: &[String]) -> Result<()> {
    if args.first().is_some_and(|what| what == "replay") {
        return replay::main(&args[1..]);
    }
    if args.first().is_some_and(|what| what == "lag") {
        return lag::main(&args[1..]);
    }
    if args.first().is_some_and(|what| what == "reads") {
        return reads::main(&args[1..]);
    }
    if args.first().is_some_and(|what| what == "builds") {
        return builds::main(&args[1..]);
    }
    if args.first().is_some_and(|what| what == "failover") {
        return failover::main(&args[1..]);
    }
    if args.first().is_some_and(|what| what == "split") {
        return split::main(&args[1..]);
    }
    if args.first().is_some_and(|what| what == "split-workers") {
        return split_workers::main(&args[1..]);
    }
    if args.first().is_some_and(|what| what == "sites") {
        return sites::main(&args[1..]);
    }
    if args.first().is_some_and(|what| what == "applications") {
        return applications::main(&args[1..]);
    }
    if args.first().is_some_and(|what| what == "embedded") {
        return embedded::main(&args[1..]);
    }
    let options = options(args)?;
    let clients = Clients::find().map_err(|e| format!("{e}\ntry `cargo xtask clients`"))?;
    let ours = options.only.as_deref() != Some("postgres");
    if ours && options.binary.is_none() {
        println!("building canon, release");
        command::output(&mut command::cargo(&[
            "build",
            "--release",
            "--package",
            "canon",
        ]))?;
    }
    // The guard outlives the servers: they stop in peace, and it finds nothing left to kill.
    let mut guard = Guard::new()?;
    if !guard.setting(AUTOGROUP, "0")? {
        println!(
            "autogroup scheduling cannot be turned off here: the comparison favours many processes"
        );
    }
    let directory = server::new_directory(&options.directory, &mut guard)?;
    let mut run = Run {
        options,
        clients,
        guard,
        directory,
        servers: Vec::new(),
    };
    run.everything()
}

fn options(args: &[String]) -> Result<Options> {
    let mut options = Options {
        what: "all".into(),
        rounds: 5,
        seconds: 5,
        tmpfs: false,
        only: None,
        directory: std::env::temp_dir(),
        binary: None,
        write: true,
    };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} needs a value\n{USAGE}"));
        match arg.as_str() {
            "--rounds" => options.rounds = number(value()?)?,
            "--seconds" => options.seconds = number(value()?)?,
            "--tmpfs" => (options.tmpfs, options.directory) = (true, "/dev/shm".into()),
            "--directory" => options.directory = value()?.into(),
            "--binary" => options.binary = Some(value()?.into()),
            "--no-results" => options.write = false,
            "--only" => match value()?.as_str() {
                one @ ("canon" | "postgres") => options.only = Some(one.into()),
                other => return Err(format!("--only {other}?\n{USAGE}")),
            },
            "pgbench" | "sysbench" | "hotrow" | "ceiling" | "memory" | "recovery" | "programs"
            | "all" => {
                options.what = arg.clone();
            }
            other => return Err(format!("`{other}`?\n{USAGE}")),
        }
    }
    Ok(options)
}

/// The bench at work.
struct Run {
    options: Options,
    clients: Clients,
    guard: Guard,
    directory: PathBuf,
    servers: Vec<Server>,
}

impl Run {
    fn everything(&mut self) -> Result<()> {
        let wants = |run: &Run, one: &str| run.options.what == one || run.options.what == "all";
        let mut report = report::Report::new(&self.options, &self.clients);
        if wants(self, "memory") {
            match memory::run(self) {
                Ok(memory) => report.memory(memory),
                Err(why) => report.missing("memory", &why),
            }
        }
        if wants(self, "recovery") {
            match recovery::run(self) {
                Ok(recovered) => report.recovery(&recovered),
                Err(why) => report.missing("recovery", &why),
            }
        }
        if ["pgbench", "sysbench", "hotrow", "ceiling", "all"].contains(&self.options.what.as_str())
        {
            self.start_servers()?;
        }
        for (name, section) in loads::SECTIONS {
            if wants(self, name) {
                let section = self.section(section(&self.directory)?)?;
                report.section(&section);
            }
        }
        if wants(self, "programs") {
            self.servers.clear();
            report.printed(&programs::run(self)?);
        }
        let page = report.finish();
        println!("\n{page}");
        if self.options.write {
            println!("written to {}", report::write(&self.options, &page)?);
        }
        Ok(())
    }

    fn binary(&self) -> PathBuf {
        let built = || command::target_dir().join("release").join("canon");
        self.options.binary.clone().unwrap_or_else(built)
    }

    fn start_servers(&mut self) -> Result<()> {
        println!("starting servers in {}", self.directory.display());
        let only = self.options.only.clone();
        if only.as_deref() != Some("canon") {
            let one = server::postgres(
                &self.clients.postgres_bin,
                &self.directory,
                &mut self.guard,
                false,
            )?;
            self.servers.push(one);
        }
        if only.as_deref() != Some("postgres") {
            let one = server::canon(&self.binary(), &self.directory, &mut self.guard)?;
            self.servers.push(one);
        }
        let me = std::env::current_exe().map_err(|e| e.to_string())?;
        let port = server::free_port()?;
        let mut constant = Command::new(me);
        constant.args([constant::SUBCOMMAND, &port.to_string()]);
        let log = self.directory.join("constant.log");
        let guard = &mut self.guard;
        let mut one = server::start(constant::NAME, constant, port, "-KILL", &log, guard)?;
        one.ready()?;
        self.servers.push(one);
        Ok(())
    }

    /// Prepares and measures one section.
    fn section(&mut self, plan: loads::Plan) -> Result<Section> {
        println!("== {}", plan.title);
        let mut unprepared = Vec::new();
        for server in self.servers.iter().filter(|s| s.name != constant::NAME) {
            println!("   preparing {}", server.name);
            if let Err(why) = (plan.prepare)(&self.clients, server) {
                unprepared.push((server.name, why));
            }
        }
        let mut contestants = Vec::new();
        for (label, name, isolation) in plan.contestants {
            let ready = !unprepared.iter().any(|(u, _)| u == name);
            let server = self.servers.iter().position(|s| s.name == *name);
            if let Some(server) = server.filter(|_| ready) {
                contestants.push(Contestant {
                    server,
                    label,
                    isolation: *isolation,
                });
            }
        }
        let mut rows = Vec::new();
        for load in plan.loads {
            let mut samples: Vec<Vec<Sample>> = contestants.iter().map(|_| Vec::new()).collect();
            for _ in 0..self.options.rounds {
                for (contestant, samples) in contestants.iter().zip(&mut samples) {
                    let server = &mut self.servers[contestant.server];
                    if let Some(ended) = server.ended() {
                        samples.push(Sample::failed(ended));
                        continue;
                    }
                    let isolation = load.isolation.or(contestant.isolation);
                    let command =
                        load.command(&self.clients, server.port, isolation, self.options.seconds);
                    let limit = Duration::from_secs(u64::from(self.options.seconds) * 3 + 60);
                    samples.push(measure(server.pid(), load.tool, command, limit));
                }
            }
            let medians = contestants.iter().zip(&samples).map(|(c, s)| {
                let tps = sample::Spread::of(s, |x| Some(x.tps)).map_or(0.0, |s| s.median);
                format!("{}: {tps:.0}", c.label)
            });
            println!(
                "   {}: {}",
                load.label,
                medians.collect::<Vec<_>>().join(", ")
            );
            rows.push(Row { load, samples });
        }
        Ok(Section {
            title: plan.title,
            contestants,
            rows,
            unprepared,
        })
    }
}
