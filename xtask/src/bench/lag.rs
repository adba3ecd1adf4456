//! `cargo xtask bench lag`: the lag of a replica under the same writes, ours beside PostgreSQL 15 and MariaDB. A page and a chart in
//! `docs/results/`.
//!
//! The writes are the adversarial load (C5 §4): transactions of `n` inserts of new rows and one update of a row that all of them update, from
//! eight clients as fast as they go, through each server's own protocol: pgbench at Canon and PostgreSQL, sysbench at MariaDB. The
//! lag is that of a heartbeat row, 20 times a second: the age of the oldest heartbeat that the replica does not show yet (`lag.py`). All of
//! them start from nothing and run at once, but only one has a load; they take turns in every round.
//!
//! `--peers` names the directory with the scripts that start the other servers, and with the loads; what they need is in its README. A
//! server that cannot be started is said to be missing. Our own lag with the load inside the process is `canon bench-lag`.
//!
//! Left out on purpose: machines apart; replicas that a commit waits for.

use super::reads::cluster::Cluster;
use super::svg::Chart;
use crate::clients::Clients;
use crate::guard::Guard;
use crate::server::USER;
use crate::{Result, command, server};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const USAGE: &str = "cargo xtask bench lag --peers DIR [--rounds 3] [--seconds 20] [--clients 8] [--inserts 1,4,16,64] [--only NAME] \
                     [--binary CANON] [--directory DIR] [--no-results]";

/// Longest wait for a replica after the load, in seconds.
const MAX_WAIT: u32 = 120;

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
    python: PathBuf,
    directory: PathBuf,
    canon: Option<Cluster>,
    /// Runs so far: keys of one are not used again.
    run: u32,
}

pub fn main(args: &[String]) -> Result<()> {
    let options = options(args)?;
    let clients = Clients::find().map_err(|e| format!("{e}\ntry `cargo xtask clients`"))?;
    if options.binary.is_none() {
        println!("building canon, release");
        let build = ["build", "--release", "--package", "canon"];
        command::output(&mut command::cargo(&build))?;
    }
    let mut guard = Guard::new()?;
    guard.setting(super::AUTOGROUP, "0")?;
    let directory = server::new_directory(&options.directory, &mut guard)?;
    let tmp = std::env::var("PEERS_TMP").unwrap_or_else(|_| "/tmp/peers".into());
    let own = Path::new(&tmp).join("venv/bin/python");
    let python = if own.exists() {
        own
    } else {
        clients.python.clone()
    };
    let mut bench = Bench {
        options,
        clients,
        python,
        directory,
        canon: None,
        run: std::process::id() % 10_000 * 10,
    };
    let measured = bench.everything(&mut guard);
    for peer in ["postgres/down.sh", "mariadb/down.sh"] {
        let _ = command::output(&mut bench.script(peer));
    }
    let (page, chart) = measured?;
    println!("\n{page}");
    if bench.options.write {
        store(&page, &chart)?;
    }
    Ok(())
}

fn options(args: &[String]) -> Result<Options> {
    let mut o = Options {
        peers: PathBuf::new(),
        rounds: 3,
        seconds: 20,
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
            "--rounds" => o.rounds = super::number(value()?)?,
            "--seconds" => o.seconds = super::number(value()?)?,
            "--clients" => o.clients = super::number(value()?)?,
            "--inserts" => {
                let all = value()?.split(',').map(super::number);
                o.inserts = all.collect::<Result<_>>()?;
            }
            "--only" => o.only = Some(value()?.clone()),
            "--binary" => o.binary = Some(value()?.into()),
            "--directory" => o.directory = value()?.into(),
            "--no-results" => o.write = false,
            other => return Err(format!("`{other}`?\n{USAGE}")),
        }
    }
    if !o.peers.join("load/lag.py").exists() {
        return Err(format!(
            "--peers names no directory with load/lag.py\n{USAGE}"
        ));
    }
    Ok(o)
}

impl Bench {
    fn script(&self, name: &str) -> Command {
        Command::new(self.options.peers.join(name))
    }

    /// The page and the chart.
    fn everything(&mut self, guard: &mut Guard) -> Result<(String, String)> {
        let mut page = self.head();
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
                println!("starting {name}");
                let done = self.start(server, guard);
                started.push((server, done));
            }
            let start = started.iter().find(|s| s.0 == server);
            match &start.expect("just pushed").1 {
                Ok(()) => there.push((name, kind)),
                Err(e) => {
                    let why = e.lines().last().unwrap_or_default();
                    let _ = writeln!(page, "- {name} is missing: {why}");
                }
            }
        }
        let mut all: BTreeMap<(u32, &str), Vec<Lag>> = BTreeMap::new();
        for &n in &self.options.inserts.clone() {
            for round in 0..self.options.rounds {
                for (name, kind) in &there {
                    let lag = self.measure(*kind, n).map_err(|e| format!("{name}: {e}"))?;
                    println!("   {n} inserts, round {}, {name}: {lag:?}", round + 1);
                    all.entry((n, name)).or_default().push(lag);
                }
            }
        }
        Ok(self.page(page, &there, &all))
    }

    fn start(&mut self, kind: Kind, guard: &mut Guard) -> Result<()> {
        match kind {
            Kind::Canon => {
                let built = || command::target_dir().join("release").join("canon");
                let program = self.options.binary.clone().unwrap_or_else(built);
                let cluster = Cluster::start(&program, &self.directory, 1, true, guard)?;
                self.canon = Some(cluster);
                Ok(())
            }
            Kind::Postgres => command::output(self.script("postgres/up.sh").arg("async")).map(drop),
            Kind::Maria(_) => {
                command::output(self.script("mariadb/up.sh").arg("conservative")).map(drop)
            }
        }
    }

    /// One load at one of them.
    fn measure(&mut self, kind: Kind, n: u32) -> Result<Lag> {
        self.run += 1;
        let load = self.options.peers.join("load");
        let mut setup = Command::new(&self.python);
        let ddl = command::output(setup.arg(load.join("gen_adv.py")).arg("--setup"))?;
        let mut lag = Command::new(&self.python);
        lag.arg(load.join("lag.py"));
        lag.args(["--max-wait", &MAX_WAIT.to_string()]);
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
                    _ => (15432, 15433, "postgres", "bench"),
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
                let mut generate = Command::new(&self.python);
                generate.arg(load.join("gen_adv.py")).arg(n.to_string());
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
                command::output(self.script("mariadb/mode.sh").arg(mode))?;
                let maria = |port: u16| {
                    let mut c = Command::new("mariadb");
                    c.args(["-h", "127.0.0.1", "-P", &port.to_string(), "-upeer", "-N"]);
                    c
                };
                fed(maria(13306).arg("bench"), &ddl)?;
                let url = |port: u16| format!("my:127.0.0.1:{port}:peer:bench");
                lag.args(["--write", &url(13306), "--read", &url(13307)]);
                lag.arg("--")
                    .arg(&self.clients.sysbench)
                    .arg(load.join("adv.lua"));
                lag.args([
                    "--db-driver=mysql",
                    "--mysql-host=127.0.0.1",
                    "--mysql-port=13306",
                ]);
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
        let said = command::output(&mut lag)?;
        parsed(&said).ok_or_else(|| format!("lag.py said {said}"))
    }

    fn head(&self) -> String {
        let said = |program: &str, args: &[&str]| {
            let out = command::output(Command::new(program).args(args));
            out.map_or("unknown".into(), |s| s.trim().to_owned())
        };
        let o = &self.options;
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        format!(
            "# The lag of a replica beside PostgreSQL and MariaDB\n\n- date: {}\n- machine: {} cores, Linux {}; load average before {}\n\
             - canon at {}\n- `cargo xtask bench lag`, {} rounds of {} s each, {} clients; medians\n\
             - one machine for clients, primaries and replicas, over loopback; every server starts from nothing with its own defaults for a \
             durable primary, READ COMMITTED\n",
            said("date", &["-u", "+%Y-%m-%d %H:%M UTC"]),
            said("nproc", &[]),
            said("uname", &["-r"]),
            load.split(' ').take(3).collect::<Vec<_>>().join(" "),
            said("git", &["describe", "--always", "--dirty"]),
            o.rounds,
            o.seconds,
            o.clients,
        )
    }

    fn page(
        &self,
        mut page: String,
        there: &[(&str, Kind)],
        all: &BTreeMap<(u32, &str), Vec<Lag>>,
    ) -> (String, String) {
        page += "\nTransactions of *n* inserts and one update of the hot row. The lag is of a heartbeat row, in seconds; *most* is the \
                 greatest of a run. *Caught up*: after the end of the load.\n\n\
                 | n | server | transactions/s | lag p50 | lag most | most, worst round | caught up after |\n|---|---|---|---|---|---|---|\n";
        let of = |n: u32, name: &str, f: fn(&Lag) -> f64| -> Vec<f64> {
            let runs = all.iter().filter(|(k, _)| **k == (n, name));
            let mut values: Vec<f64> = runs.flat_map(|(_, v)| v.iter().map(f)).collect();
            values.sort_by(f64::total_cmp);
            values
        };
        let median = |v: &[f64]| v.get(v.len() / 2).copied();
        let mut series: Vec<(String, Vec<Option<f64>>)> = Vec::new();
        for (name, _) in there {
            let most = |n: &u32| median(&of(*n, name, |l| l.most));
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
                    s if s.is_finite() => format!("{s:.2} s"),
                    _ => format!("not in {MAX_WAIT} s"),
                };
                let (tps, p50, most) = (m(|l| l.tps), m(|l| l.p50), m(|l| l.most));
                let _ = writeln!(
                    page,
                    "| {n} | {name} | {tps:.0} | {p50:.3} s | {most:.3} s | {worst:.3} s | {late} |"
                );
            }
        }
        let chart = Chart {
            title: "Greatest lag of a run, median of the rounds",
            x: "inserts before the update of the hot row",
            y: "seconds",
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

fn store(page: &str, chart: &str) -> Result<()> {
    let date = command::output(Command::new("date").args(["-u", "+%Y-%m-%d"]))?;
    let name = format!("{}-lag-peers", date.trim());
    let directory = command::root().join("docs").join("results");
    let put = |file: String, text: &str| {
        let path = directory.join(file);
        std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))
    };
    put(format!("{name}.svg"), chart)?;
    put(
        format!("{name}.md"),
        &format!("{page}\n![lag]({name}.svg)\n"),
    )?;
    println!("written to docs/results/{name}.md");
    Ok(())
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
