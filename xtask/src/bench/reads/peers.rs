//! Stale reads at PostgreSQL and Galera, and at Canon beside them, from the scripts that `--peers` names.
//!
//! Two measurements. The checker of `canon bench-reads` speaks PostgreSQL's protocol and is its own load. The scripts' probe (`load/stale`)
//! speaks both protocols and does what the checker's own probes do: one client writes a row, and as soon as that is acknowledged a
//! second one reads it elsewhere; one process, so one clock. It runs alone and beside sysbench, which writes at the primary as fast as it goes.
//!
//! Left out on purpose: pgpool, whose staleness is that of what stands behind it; how long a read stays stale.

use super::super::peers::{GALERA, POSTGRES, Peers, output};
use super::cluster::{Cluster, Media};
use super::{Bench, first_line, row};
use crate::{Result, process};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// What the probe prints.
#[derive(Debug, PartialEq)]
struct Probe {
    tries: f64,
    stale: f64,
    commit_us: f64,
    read_us: (f64, f64),
}

fn parsed(said: &str) -> Option<Probe> {
    let json = said.lines().rev().find(|l| l.starts_with('{'))?;
    let value: serde_json::Value = serde_json::from_str(json).ok()?;
    let number = |key: &str| value.get(key)?.as_f64();
    Some(Probe {
        tries: number("tries")? - number("err")?,
        stale: number("stale")?,
        commit_us: number("commit_p50_us")?,
        read_us: (number("read_p50_us")?, number("read_p99_us")?),
    })
}

/// A server and its replica, as the probe and sysbench are told of them.
struct Pair {
    urls: [String; 2],
    /// Without `--mysql-` or `--pgsql-`.
    sysbench: (&'static str, String),
}

impl Pair {
    fn postgres(ports: (u16, u16), name: &str) -> Pair {
        let url = |port| format!("pg:{}", conninfo(port, name));
        Pair {
            urls: [url(ports.0), url(ports.1)],
            sysbench: ("pgsql", sysbench("pgsql", ports.0, name, name)),
        }
    }

    fn galera() -> Pair {
        let url = |port| format!("my:127.0.0.1:{port}:peer:bench");
        Pair {
            urls: [url(GALERA.0), url(GALERA.1)],
            sysbench: ("mysql", sysbench("mysql", GALERA.0, "peer", "bench")),
        }
    }
}

fn conninfo(port: u16, name: &str) -> String {
    format!("host=127.0.0.1 port={port} user={name} dbname={name}")
}

fn sysbench(driver: &str, port: u16, user: &str, database: &str) -> String {
    let one = |key: &str, value: &str| format!("--{driver}-{key}={value}");
    let port = port.to_string();
    let all = [
        ("host", "127.0.0.1"),
        ("port", &port),
        ("user", user),
        ("db", database),
    ];
    all.map(|(key, value)| one(key, value)).join(" ")
}

impl Bench {
    fn writes(&self, pair: &Pair, what: &str) -> Command {
        let mut c = Command::new(&self.clients.sysbench);
        c.arg("oltp_update_non_index");
        c.arg(format!("--db-driver={}", pair.sysbench.0));
        c.args(pair.sysbench.1.split(' '));
        c.args(["--tables=4", "--table-size=10000", "--threads=4"]);
        c.args(["--time=600", "--report-interval=0", what]);
        c
    }

    /// The rows of one server in the second table: per kind of reads (its name, what is said first), without and with writes beside.
    fn probed(&mut self, probe: &Path, pair: &Pair, kinds: &[(String, Option<String>)]) {
        let writes = self.writes(pair, "prepare");
        if let Err(e) = output(&writes, 120, &mut self.guard) {
            let names: Vec<&str> = kinds.iter().map(|k| k.0.as_str()).collect();
            let row = format!("| {} | failed: {} |", names.join(", "), first_line(&e));
            return self.second.push(row);
        }
        for beside in ["none", "full"] {
            for (name, init) in kinds {
                let writer = match beside {
                    "full" => self.writer(pair).map(Some),
                    _ => Ok(None),
                };
                let probed = writer.and_then(|w| {
                    let probed = self.one(probe, pair, init.as_deref());
                    // One that ended by itself wrote nothing beside the probe.
                    match w.map(stopped) {
                        Some(false) => Err("sysbench ended early".to_owned()),
                        _ => probed,
                    }
                });
                self.second.push(match probed {
                    Ok(p) => format!(
                        "| {name} | {beside} | {:.0} | {:.0} | {:.1} % | {:.3} | {:.3} | {:.3} |",
                        p.tries,
                        p.stale,
                        100.0 * p.stale / p.tries.max(1.0),
                        p.commit_us / 1e3,
                        p.read_us.0 / 1e3,
                        p.read_us.1 / 1e3,
                    ),
                    Err(e) => format!("| {name} | {beside} | failed: {} |", first_line(&e)),
                });
                println!("{}", self.second.last().expect("just pushed"));
            }
        }
    }

    fn writer(&mut self, pair: &Pair) -> Result<Child> {
        let mut c = self.writes(pair, "run");
        c.stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = c.spawn().map_err(|e| format!("sysbench: {e}"))?;
        self.guard.process(child.id())?;
        std::thread::sleep(std::time::Duration::from_secs(1));
        Ok(child)
    }

    fn one(&mut self, probe: &Path, pair: &Pair, init: Option<&str>) -> Result<Probe> {
        let mut c = Command::new(probe);
        c.args(["--setup", "--write", &pair.urls[0]]);
        c.args(["--read", &pair.urls[1]]);
        c.args(["--tries", if self.options.quick { "500" } else { "5000" }]);
        c.args(init.map(|i| ["--init-read", i]).iter().flatten());
        let said = output(&c, 180, &mut self.guard)?;
        parsed(&said).ok_or(format!("the probe said {said}"))
    }

    /// The rows of one server in the first table.
    fn checked(&mut self, name: &str, kind: &str, at: [String; 2], init: &str, reads: usize) {
        let out = self.probe(&at[..1], &at[1..], init, reads, |_| Ok(()));
        let row = match out {
            Ok(out) => row(name, 1, kind, "none", &out),
            Err(e) => format!("| {name} | 1 | {kind} | failed: {} |", first_line(&e)),
        };
        self.line(&row);
    }

    /// Both tables.
    pub(super) fn peers(&mut self, reads: usize) -> Result<()> {
        let Some(peers) = self.peers.take() else {
            self.line("\nPeers were not measured: `--peers` names the directory of their scripts.");
            return Ok(());
        };
        self.line("\n## Stale reads beside PostgreSQL and Galera\n\nThe same checker; reads at the replica only. Canon over TCP, as the others are, without shared memory.\n");
        self.stale_columns();
        let probe = peers.build_probe()?;
        self.beside_canon(&probe, reads)?;
        let postgres = self.beside_postgres(&peers, &probe, reads);
        let stopped = peers.down("postgres", &mut self.guard);
        let galera = self.beside_galera(&peers, &probe);
        let stopped = stopped.and(peers.down("galera", &mut self.guard));
        for (name, done) in [("PostgreSQL", postgres), ("Galera", galera)] {
            if let Err(e) = done {
                println!("{name}: {e}");
                self.second
                    .push(format!("| {name} | failed: {} |", first_line(&e)));
            }
        }
        self.line("\nOne client writes a row; as soon as that is acknowledged a second one reads it at the other node: the checker's probe, by a program that speaks both protocols. *Writes beside*: none, or sysbench's `oltp_update_non_index` at the primary, 4 threads as fast as they go. *session* promises a session what it has itself written or heard of by a token; here another one writes, so stale reads are to be expected.\n");
        self.line("| server, reads are | writes beside | reads | stale | share | commit p50 ms | read p50 ms | read p99 ms |\n|---|---|---|---|---|---|---|---|");
        for row in std::mem::take(&mut self.second) {
            self.line(&row);
        }
        stopped
    }

    fn beside_canon(&mut self, probe: &Path, reads: usize) -> Result<()> {
        let home = self.directory.join("beside-peers");
        std::fs::create_dir_all(&home).map_err(|e| e.to_string())?;
        let program = self.binary();
        let c = Cluster::start(&program, &home, 1, Media::Tcp, &[], &mut self.guard)?;
        let ports = (c.nodes[0].server.port, c.nodes[1].server.port);
        let init = |kind: &str| format!("SET canon.read_consistency = {kind}");
        for kind in ["strong", "eventual"] {
            let at = [c.nodes[0].address(), c.nodes[1].address()];
            self.checked("canon", kind, at, &init(kind), reads);
        }
        let kinds = ["strong", "session", "eventual"];
        let kinds = kinds.map(|kind| (format!("canon, {kind}"), Some(init(kind))));
        self.probed(probe, &Pair::postgres(ports, "canon"), &kinds);
        drop(c);
        let _ = std::fs::remove_dir_all(&home);
        Ok(())
    }

    fn beside_postgres(&mut self, peers: &Peers, probe: &Path, reads: usize) -> Result<()> {
        peers.up("postgres", &["async"], &mut self.guard)?;
        for (mode, state) in [("async", "async"), ("remote_apply", "sync")] {
            let said = peers.mode("postgres", mode, &mut self.guard)?;
            if !said.trim_end().ends_with(&format!("sync_state={state}")) {
                return Err(format!("PostgreSQL is not in mode {mode}: {said}"));
            }
            let at = [POSTGRES.0, POSTGRES.1].map(|port| conninfo(port, "postgres"));
            self.checked("PostgreSQL", mode, at, "", reads);
            let kinds = [(format!("PostgreSQL, {mode}"), None)];
            self.probed(probe, &Pair::postgres(POSTGRES, "postgres"), &kinds);
        }
        Ok(())
    }

    fn beside_galera(&mut self, peers: &Peers, probe: &Path) -> Result<()> {
        peers.up("galera", &[], &mut self.guard)?;
        let kinds = [0, 1].map(|wait| {
            let name = format!("Galera, wsrep_sync_wait={wait}");
            (name, Some(format!("SET SESSION wsrep_sync_wait={wait}")))
        });
        self.probed(probe, &Pair::galera(), &kinds);
        Ok(())
    }
}

/// Ends a load; whether it still ran.
fn stopped(mut child: Child) -> bool {
    let ran = matches!(child.try_wait(), Ok(None));
    process::kill_tree(child.id());
    let _ = child.wait();
    ran
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_probe_prints_is_read() {
        let said = "{\"label\":\"\",\"dt_us\":0,\"tries\":1000,\"stale\":790,\"err\":2,\"stale_frac\":0.7900,\"mean_behind\":1.01,\"commit_p50_us\":350,\"commit_p99_us\":900,\"read_p50_us\":80,\"read_p99_us\":200}\n";
        let found = Probe {
            tries: 998.0,
            stale: 790.0,
            commit_us: 350.0,
            read_us: (80.0, 200.0),
        };
        assert_eq!(parsed(said), Some(found));
        assert_eq!(parsed("stale: no such thing"), None);
    }

    #[test]
    fn a_server_is_named_for_each_client() {
        let pair = Pair::postgres((1, 2), "x");
        assert_eq!(pair.urls[1], "pg:host=127.0.0.1 port=2 user=x dbname=x");
        let galera = Pair::galera().sysbench;
        assert_eq!(galera.0, "mysql");
        let wanted = "--mysql-host=127.0.0.1 --mysql-port=14306 --mysql-user=peer --mysql-db=bench";
        assert_eq!(galera.1, wanted);
    }
}
