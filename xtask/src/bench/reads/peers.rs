//! Stale reads at PostgreSQL and Galera, and at Canon beside them, from the scripts that `--peers` names.
//!
//! Two measurements: the checker of `canon bench-reads`, which speaks PostgreSQL's protocol and loads what it looks at; and the scripts' own
//! probe (`load/stale`, built here), which speaks both protocols: one client writes a row, and a second one reads it elsewhere as soon as
//! the write is acknowledged.
//!
//! Left out on purpose: writers beside the probe; pgpool, whose staleness is that of what stands behind it.

use super::cluster::Cluster;
use super::{Bench, first_line, row};
use crate::{Result, command};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the probe prints.
#[derive(Debug, PartialEq)]
struct Probe {
    tries: f64,
    stale: f64,
    commit_us: f64,
    read_us: f64,
}

fn parsed(said: &str) -> Option<Probe> {
    let json = said.lines().rev().find(|l| l.starts_with('{'))?;
    let value: serde_json::Value = serde_json::from_str(json).ok()?;
    let number = |key: &str| value.get(key)?.as_f64();
    Some(Probe {
        tries: number("tries")? - number("err")?,
        stale: number("stale")?,
        commit_us: number("commit_p50_us")?,
        read_us: number("read_p50_us")?,
    })
}

fn peer(port: u16) -> String {
    format!("host=127.0.0.1 port={port} user=postgres dbname=postgres")
}

impl Bench {
    /// Builds the scripts' probe; where it is.
    fn build_probe(&self, peers: &Path) -> Result<PathBuf> {
        let bin = self.directory.join("bin");
        std::fs::create_dir_all(&bin).map_err(|e| e.to_string())?;
        let mut make = Command::new("make");
        make.arg("-C").arg(peers.join("load"));
        make.arg(format!("BIN={}", bin.display()));
        command::output(&mut make)?;
        Ok(bin.join("stale"))
    }

    /// A row of the second table.
    fn probed(
        &self,
        probe: &Result<PathBuf>,
        name: &str,
        (write, read): (&str, &str),
        init: Option<&str>,
    ) -> String {
        let said = || -> Result<Probe> {
            let mut c = Command::new(probe.as_ref().map_err(|e| e.clone())?);
            c.args(["--setup", "--write", write, "--read", read]);
            c.args(["--tries", if self.options.quick { "1000" } else { "5000" }]);
            c.args(init.map(|i| ["--init-read", i]).iter().flatten());
            let said = command::output(&mut c)?;
            parsed(&said).ok_or(format!("the probe said {said}"))
        };
        match said() {
            Ok(p) => format!(
                "| {name} | {:.0} | {:.0} | {:.1} % | {:.3} | {:.3} |",
                p.tries,
                p.stale,
                100.0 * p.stale / p.tries.max(1.0),
                p.commit_us / 1e3,
                p.read_us / 1e3,
            ),
            Err(e) => format!("| {name} | failed: {} |", first_line(&e)),
        }
    }

    /// Both measurements. The first one's table has begun.
    pub(super) fn peers(&mut self, reads: usize) -> Result<()> {
        let Some(peers) = self.options.peers.clone() else {
            self.line("\nPeers were not measured: `--peers` names the directory of their scripts.");
            return Ok(());
        };
        let probe = self.build_probe(&peers);
        let mut second = Vec::new();
        let home = self.directory.join("beside-peers");
        std::fs::create_dir_all(&home).map_err(|e| e.to_string())?;
        let program = self.binary();
        // Over TCP, as the others are.
        let c = Cluster::start(&program, &home, 1, false, &mut self.guard)?;
        let url = |i: usize| {
            let port = c.nodes[i].server.port;
            format!("pg:host=127.0.0.1 port={port} user=canon dbname=canon")
        };
        for reads in ["strong", "session", "eventual"] {
            let name = format!("canon, {reads}");
            let init = format!("SET canon.read_consistency = {reads}");
            second.push(self.probed(&probe, &name, (&url(0), &url(1)), Some(&init)));
        }
        drop(c);
        for mode in ["async", "remote_apply"] {
            let up = command::output(Command::new(peers.join("postgres/up.sh")).arg(mode));
            let measured = match up {
                Ok(_) => self.probe(&[peer(15432)], &[peer(15433)], "", reads, |_| Ok(())),
                Err(e) => Err(e),
            };
            let name = format!("PostgreSQL, {mode}");
            let urls = [15432, 15433].map(|port| format!("pg:{}", peer(port)));
            second.push(self.probed(&probe, &name, (&urls[0], &urls[1]), None));
            let _ = command::output(&mut Command::new(peers.join("postgres/down.sh")));
            match measured {
                Ok(out) => {
                    let row = row("PostgreSQL", 1, mode, "none", &out);
                    self.line(&row);
                }
                Err(e) => self.line(&format!(
                    "| PostgreSQL, {mode} | failed: {} |",
                    first_line(&e)
                )),
            }
        }
        let up = command::output(&mut Command::new(peers.join("galera/up.sh")));
        for wait in [0, 1] {
            let name = format!("Galera, wsrep_sync_wait={wait}");
            let urls = [14306, 14307].map(|port: u16| format!("my:127.0.0.1:{port}:peer:bench"));
            let init = format!("SET SESSION wsrep_sync_wait={wait}");
            second.push(match &up {
                Ok(_) => self.probed(&probe, &name, (&urls[0], &urls[1]), Some(&init)),
                Err(e) => format!("| {name} | failed: {} |", first_line(e)),
            });
        }
        let _ = command::output(&mut Command::new(peers.join("galera/down.sh")));
        self.line("\nOne client writes a row; as soon as that is acknowledged a second one reads it at the other node (the scripts' own probe, which speaks both protocols; Canon over TCP, nothing else runs):\n");
        self.line("| server, reads are | reads | stale | share | commit p50 ms | read p50 ms |\n|---|---|---|---|---|---|");
        second.iter().for_each(|row| self.line(row));
        Ok(())
    }
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
            read_us: 80.0,
        };
        assert_eq!(parsed(said), Some(found));
        assert_eq!(parsed("stale: no such thing"), None);
    }
}
