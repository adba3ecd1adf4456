//! The lag of a replica under the same writes, ours beside PostgreSQL 15 and MariaDB.
//!
//! The writes are the adversarial load (C5 §4): transactions of `n` inserts of new rows and one update of a row that all of them update, from
//! eight clients as fast as they go, through each server's own protocol: pgbench at Canon and PostgreSQL, sysbench at MariaDB. The
//! lag is that of a heartbeat row, a hundred times a second: the age of the oldest heartbeat that the replica does not show yet (`lag.py`). All
//! of them start from nothing and run at once, but only one has a load; they take turns in every round, every other round backwards.
//!
//! `--peers` names the directory with the scripts that start the other servers, and with the loads ([`Peers`]). A server that cannot be
//! started is said to be missing.
//!
//! Left out on purpose: machines apart; replicas that a commit waits for.

use super::super::page;
use super::super::peers::{MARIA, POSTGRES, Peers, output};
use super::super::reads::cluster::{Cluster, Media};
use super::super::svg::Chart;
use super::USAGE;
use crate::clients::Clients;
use crate::guard::Guard;
use crate::server::USER;
use crate::{Result, command, server};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Longest wait for a replica after the load, in seconds.
const MAX_WAIT: u32 = 120;

/// Heartbeats in a second.
const BEATS: u32 = 100;

struct Options {
    peers: PathBuf,
    rounds: usize,
    seconds: u32,
    clients: u32,
    inserts: Vec<u32>,
    only: Option<String>,
    binary: Option<PathBuf>,
    directory: PathBuf,
    write: bool,
}

/// Who is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Canon,
    Postgres,
    /// With this mode of its parallel replication.
    Maria(&'static str),
}

const CONTESTANTS: [(&str, Kind); 4] = [
    ("canon", Kind::Canon),
    ("postgres-15-async", Kind::Postgres),
    ("mariadb-optimistic", Kind::Maria("optimistic")),
    ("mariadb-conservative", Kind::Maria("conservative")),
];

/// One run.
#[derive(Clone, Copy, Debug)]
struct Lag {
    tps: f64,
    p50: f64,
    most: f64,
    /// Seconds from the end of the load until the replica showed all; none: not in time.
    catch_up: Option<f64>,
}

struct Bench {
    options: Options,
    clients: Clients,
    peers: Peers,
    directory: PathBuf,
    canon: Option<Cluster>,
    /// MariaDB's mode now.
    mode: &'static str,
    /// Runs so far: keys of one are not used again.
    run: u32,
}

pub fn main(args: &[String]) -> Result<()> {
    let options = options(args)?;
    let clients = Clients::find().map_err(|e| format!("{e}\ntry `cargo xtask clients`"))?;
    let mut guard = Guard::new()?;
    let directory = server::new_directory(&options.directory, &mut guard)?;
    let peers = Peers::find(&options.peers, &clients, &directory)?;
    let program = options.binary.clone().map_or_else(super::build, Ok)?;
    guard.setting(super::AUTOGROUP, "0")?;
    let mut bench = Bench {
        options,
        clients,
        peers,
        directory,
        canon: None,
        mode: "",
        run: std::process::id() % 10_000 * 10,
    };
    let head = page::head(
        "The lag of a replica beside PostgreSQL and MariaDB",
        "cargo xtask bench lag",
        args,
    );
    let measured = bench.everything(head, &program, &mut guard);
    let mut stopped = Ok(());
    for peer in ["postgres", "mariadb"] {
        stopped = stopped.and(bench.peers.down(peer, &mut guard));
    }
    let (text, chart) = measured?;
    println!("\n{text}");
    if bench.options.write {
        page::store("lag-peers", &text, &[("", chart)])?;
    }
    stopped
}

fn options(args: &[String]) -> Result<Options> {
    let mut o = Options {
        peers: PathBuf::new(),
        rounds: 5,
        seconds: 3,
        clients: 8,
        inserts: vec![1, 4, 16, 64],
        only: None,
        binary: None,
        directory: std::env::temp_dir(),
        write: true,
    };
    let mut it = args.iter();
    while let Some(arg) = it.next() {
        let mut value = || it.next().ok_or(format!("{arg} needs a value\n{USAGE}"));
        match arg.as_str() {
            "--peers" => o.peers = value()?.into(),
            "--rounds" => o.rounds = super::super::number(value()?)?,
            "--seconds" => o.seconds = super::super::number(value()?)?,
            "--clients" => o.clients = super::super::number(value()?)?,
            "--inserts" => {
                let all = value()?.split(',').map(super::super::number);
                o.inserts = all.collect::<Result<_>>()?;
            }
            "--only" => o.only = Some(value()?.clone()),
            "--binary" => o.binary = Some(value()?.into()),
            "--directory" => o.directory = value()?.into(),
            "--no-results" => o.write = false,
            other => return Err(format!("`{other}`?\n{USAGE}")),
        }
    }
    Ok(o)
}

impl Bench {
    /// The page and the chart.
    fn everything(
        &mut self,
        head: String,
        program: &Path,
        guard: &mut Guard,
    ) -> Result<(String, String)> {
        let mut page = head + &self.method();
        let mut there: Vec<(&str, Kind)> = Vec::new();
        let mut started: Vec<(Kind, Result<()>)> = Vec::new();
        for (name, kind) in CONTESTANTS {
            if self
                .options
                .only
                .as_deref()
                .is_some_and(|o| !name.contains(o))
            {
                continue;
            }
            // The two modes are one server's.
            let server = match kind {
                Kind::Maria(_) => Kind::Maria(""),
                k => k,
            };
            if !started.iter().any(|s| s.0 == server) {
                let done = self.start(server, program, guard);
                started.push((server, done));
            }
            let start = started.iter().find(|s| s.0 == server);
            match &start.expect("just pushed").1 {
                Ok(()) => there.push((name, kind)),
                Err(e) => {
                    println!("{name} is missing: {e}");
                    let why = e.lines().next().unwrap_or_default();
                    let _ = writeln!(page, "\n**{name} is missing:** {why}");
                }
            }
        }
        let mut all: BTreeMap<(u32, &str), Vec<Lag>> = BTreeMap::new();
        for &n in &self.options.inserts.clone() {
            for round in 0..self.options.rounds {
                let mut order = there.clone();
                if round % 2 == 1 {
                    order.reverse();
                }
                for (name, kind) in order {
                    let run = format!("{n} inserts, round {}, {name}", round + 1);
                    match self.measure(kind, n, guard) {
                        Ok(lag) => {
                            println!("   {run}: {lag:?}");
                            all.entry((n, name)).or_default().push(lag);
                        }
                        // The others go on, and the page says it.
                        Err(e) => {
                            println!("   {run} failed: {e}");
                            let why = e.lines().next().unwrap_or_default();
                            let _ = writeln!(page, "\n**A run failed:** {run}: {why}");
                        }
                    }
                }
            }
        }
        Ok(self.page(page, &there, &all))
    }

    fn start(&mut self, kind: Kind, program: &Path, guard: &mut Guard) -> Result<()> {
        match kind {
            Kind::Canon => {
                println!("starting canon");
                let cluster = Cluster::start(program, &self.directory, 1, Media::Ring, &[], guard)?;
                self.canon = Some(cluster);
                Ok(())
            }
            Kind::Postgres => self.peers.up("postgres", &["async"], guard),
            Kind::Maria(_) => self.peers.up("mariadb", &["conservative"], guard),
        }
    }

    /// One load at one of them.
    fn measure(&mut self, kind: Kind, n: u32, guard: &mut Guard) -> Result<Lag> {
        self.run += 1;
        let python = &self.peers.python;
        let mut setup = Command::new(python);
        let ddl = command::output(setup.arg(self.peers.load("gen_adv.py")).arg("--setup"))?;
        let mut lag = Command::new(python);
        lag.arg(self.peers.load("lag.py"));
        lag.args(["--max-wait", &MAX_WAIT.to_string()]);
        lag.args(["--hz", &BEATS.to_string()]);
        let (seconds, clients) = (
            self.options.seconds.to_string(),
            self.options.clients.to_string(),
        );
        match kind {
            Kind::Canon | Kind::Postgres => {
                let (primary, replica, user, database) = match &self.canon {
                    Some(c) if kind == Kind::Canon => {
                        let port = |i: usize| c.nodes[i].server.port;
                        (port(0), port(1), USER, USER)
                    }
                    _ => (POSTGRES.0, POSTGRES.1, "postgres", "bench"),
                };
                let bin = &self.clients.postgres_bin;
                let at = |c: &mut Command, port: u16| {
                    c.args(["-h", "127.0.0.1", "-p", &port.to_string(), "-U", user]);
                };
                let mut psql = Command::new(bin.join("psql"));
                at(&mut psql, primary);
                fed(psql.args(["-q", "-v", "ON_ERROR_STOP=1", database]), &ddl)?;
                let url = |port: u16, more: &str| {
                    format!("pg:host=127.0.0.1 port={port} user={user} dbname={database}{more}")
                };
                // What the replica shows by itself, as the others do.
                let eventual = match kind {
                    Kind::Canon => " options='-c canon.read_consistency=eventual'",
                    _ => "",
                };
                lag.args([
                    "--write",
                    &url(primary, ""),
                    "--read",
                    &url(replica, eventual),
                ]);
                let mut generate = Command::new(python);
                generate.arg(self.peers.load("gen_adv.py"));
                generate.arg(n.to_string());
                let script = self.directory.join(format!("adv-{n}.sql"));
                let text = command::output(&mut generate)?;
                std::fs::write(&script, text).map_err(|e| e.to_string())?;
                lag.arg("--").arg(bin.join("pgbench"));
                at(&mut lag, primary);
                lag.args(["-n", "-M", "prepared", "--max-tries=0", "-j", "1"]);
                lag.args(["-c", &clients, "-T", &seconds]);
                lag.args(["-D", "seq=0", "-D", &format!("run={}", self.run), "-f"]);
                lag.arg(&script).arg(database);
                // The hot row is updated by all; the same level for both.
                lag.env(
                    "PGOPTIONS",
                    "-c default_transaction_isolation=read\\ committed",
                );
            }
            Kind::Maria(mode) => {
                if self.mode != mode {
                    self.peers.mode("mariadb", mode, guard)?;
                    self.mode = mode;
                }
                let maria = |port: u16| {
                    let mut c = Command::new("mariadb");
                    c.args(["-h", "127.0.0.1", "-P", &port.to_string(), "-upeer", "-N"]);
                    c
                };
                fed(maria(MARIA.0).arg("bench"), &ddl)?;
                let url = |port: u16| format!("my:127.0.0.1:{port}:peer:bench");
                lag.args(["--write", &url(MARIA.0), "--read", &url(MARIA.1)]);
                lag.arg("--")
                    .arg(&self.clients.sysbench)
                    .arg(self.peers.load("adv.lua"));
                lag.args(["--db-driver=mysql", "--mysql-host=127.0.0.1"]);
                lag.arg(format!("--mysql-port={}", MARIA.0));
                lag.args([
                    "--mysql-user=peer",
                    "--mysql-db=bench",
                    "--mysql-ignore-errors=all",
                ]);
                lag.arg(format!("--threads={clients}"));
                lag.args([format!("--time={seconds}"), format!("--n={n}")]);
                lag.args([format!("--base={}", self.run), "run".into()]);
            }
        }
        let limit = self.options.seconds + MAX_WAIT + 60;
        let said = output(&lag, limit, guard)?;
        parsed(&said).ok_or_else(|| format!("lag.py said {said}"))
    }

    fn method(&self) -> String {
        let o = &self.options;
        format!(
            "\nTransactions of *n* inserts of new rows and one update of a row that all of them update, from {} clients as fast as they go: \
             pgbench (prepared, READ\nCOMMITTED) at Canon and PostgreSQL 15 (asynchronous), sysbench at MariaDB (REPEATABLE READ, its default), whose \
             replica applies in parallel with 4\nthreads. {} rounds of {} s for each, medians; the servers take turns in every round, every other round backwards. One machine\nfor clients, \
             primaries and replicas, over loopback; every server starts from nothing, and its primary flushes each commit.\n\n\
             The lag is that of a heartbeat row, written {BEATS} times a second at the primary and looked for as often at the replica: the age of the \
             oldest heartbeat that\nthe replica does not show. A lag of less than {} ms is often seen as 0. *most* is the greatest of a run; *caught up*: \
             the time from the end of the load until the\nreplica shows the last heartbeat.\n",
            o.clients,
            o.rounds,
            o.seconds,
            1000 / BEATS,
        )
    }

    fn page(
        &self,
        mut page: String,
        there: &[(&str, Kind)],
        all: &BTreeMap<(u32, &str), Vec<Lag>>,
    ) -> (String, String) {
        page += "\n| n | server | transactions/s | lag p50 | lag most | most, worst round | caught up after |\n|---|---|---|---|---|---|---|\n";
        let of = |n: u32, name: &str, f: fn(&Lag) -> f64| -> Vec<f64> {
            let runs = all.iter().filter(|(k, _)| **k == (n, name));
            let mut values: Vec<f64> = runs.flat_map(|(_, v)| v.iter().map(f)).collect();
            values.sort_by(f64::total_cmp);
            values
        };
        let median = |v: &[f64]| v.get(v.len() / 2).copied();
        let mut series: Vec<(String, Vec<Option<f64>>)> = Vec::new();
        for (name, _) in there {
            let most = |n: &u32| median(&of(*n, name, |l| l.most * 1e3));
            series.push((
                (*name).into(),
                self.options.inserts.iter().map(most).collect(),
            ));
        }
        for &n in &self.options.inserts {
            for (name, _) in there {
                let m = |f: fn(&Lag) -> f64| median(&of(n, name, f)).unwrap_or(f64::NAN);
                let worst = of(n, name, |l| l.most).last().copied().unwrap_or(f64::NAN);
                let late = match m(|l| l.catch_up.unwrap_or(f64::INFINITY)) {
                    s if s.is_finite() => format!("{:.0} ms", s * 1e3),
                    _ => format!("not in {MAX_WAIT} s"),
                };
                let ms = |seconds: f64| format!("{:.0} ms", seconds * 1e3);
                let (p50, most, worst) = (ms(m(|l| l.p50)), ms(m(|l| l.most)), ms(worst));
                let tps = m(|l| l.tps);
                let _ = writeln!(
                    page,
                    "| {n} | {name} | {tps:.0} | {p50} | {most} | {worst} | {late} |"
                );
            }
        }
        let chart = Chart {
            title: "Greatest lag of a run, median of the rounds",
            x: "inserts before the update of the hot row",
            y: "milliseconds",
            places: self.options.inserts.iter().map(u32::to_string).collect(),
            series,
            line_at: None,
        };
        (page, chart.svg())
    }
}

/// What lag.py prints.
fn parsed(said: &str) -> Option<Lag> {
    let json = said.lines().rev().find(|l| l.starts_with('{'))?;
    let value: serde_json::Value = serde_json::from_str(json).ok()?;
    let number = |key: &str| value.get(key)?.as_f64();
    Some(Lag {
        tps: number("tps")?,
        p50: number("lag_p50_s")?,
        most: number("lag_max_s")?,
        catch_up: number("catch_up_s"),
    })
}

/// Runs a program with this text on its standard input.
fn fed(c: &mut Command, text: &str) -> Result<()> {
    c.stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = c
        .spawn()
        .map_err(|e| format!("{}: {e}", command::show(c)))?;
    let mut pipe = child.stdin.take().expect("piped");
    let written = pipe.write_all(text.as_bytes());
    drop(pipe);
    let out = child.wait_with_output().map_err(|e| e.to_string())?;
    match out.status.success() && written.is_ok() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&out.stderr).into_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_heartbeat_says_is_read() {
        let said = "noise\n{\"label\": \"\", \"tps\": 812.5, \"lag_p50_s\": 0.003, \"lag_max_s\": 0.2, \"catch_up_s\": null}\n";
        let lag = parsed(said).expect("a line of JSON");
        assert_eq!(
            (lag.tps, lag.p50, lag.most, lag.catch_up),
            (812.5, 0.003, 0.2, None)
        );
        assert!(parsed("{\"tps\": null}").is_none());
    }
}
