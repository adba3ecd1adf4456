//! The price of one endpoint: the same transactions at the primary and at a replica, which sends them on.
//!
//! pgbench's TPC-B-like script: BEGIN runs at the replica, the first UPDATE takes the transaction to the primary, COMMIT brings the session
//! back. So each transaction sends what a session is once, and each of its messages goes through one process more.
//!
//! Left out on purpose: transactions that read at the replica first, whose footprint travels too; more replicas than one.

use super::cluster::{Cluster, Media, after};
use super::{Bench, interval};
use crate::{Result, command, process};
use std::process::Command;

/// One run.
struct Run {
    /// Per second.
    transactions: f64,
    /// Mean, milliseconds.
    latency: f64,
    /// Microseconds of CPU of primary and replica per transaction.
    cpu: [f64; 2],
}

impl Bench {
    fn pgbench(&self, cluster: &Cluster, at: usize, clients: u32) -> Result<Run> {
        let mut c = Command::new(self.clients.postgres_bin.join("pgbench"));
        let port = cluster.nodes[at].server.port;
        c.args(["--no-vacuum", "--protocol=prepared", "--max-tries=1000"]);
        c.args([
            format!("--client={clients}"),
            format!("--jobs={}", clients.min(2)),
            format!("--time={:.0}", self.options.seconds.max(1.0)),
            "--host=127.0.0.1".into(),
            format!("--port={port}"),
            "--username=canon".into(),
            "canon".into(),
        ]);
        let used = || -> Vec<f64> {
            let nodes = cluster.nodes.iter();
            nodes
                .map(|n| process::cpu_seconds(n.server.pid()))
                .collect()
        };
        let before = used();
        let said = command::output(&mut c)?;
        let now = used();
        let number = |label: &str| after(&said, label).ok_or(format!("pgbench said {said}"));
        let n = number("number of transactions actually processed:")?.max(1.0);
        let cpu = |i: usize| (now[i] - before[i]) * 1e6 / n;
        Ok(Run {
            transactions: number("tps =")?,
            latency: number("latency average =")?,
            cpu: [cpu(0), cpu(1)],
        })
    }

    pub(super) fn forwarded(&mut self) -> Result<()> {
        let cluster = self.cluster(1, Media::Ring, &[])?;
        let mut init = Command::new(self.clients.postgres_bin.join("pgbench"));
        init.args(["--initialize", "--quiet", "--scale=10", "--host=127.0.0.1"]);
        init.arg(format!("--port={}", cluster.primary().server.port));
        init.args(["--username=canon", "canon"]);
        command::output(&mut init)?;
        self.line("\n## One endpoint\n\npgbench's TPC-B-like transactions (scale 10, prepared, READ COMMITTED, the default) at the primary, and at a replica, which sends them on to it. As fast as they go, everything on this machine's cores; rounds interleaved, ratios as everywhere.\n");
        self.line("| clients | at | tps | ratio | latency ms | ratio | primary CPU us/txn | replica CPU us/txn, replay included |\n|---|---|---|---|---|---|---|---|");
        for clients in [1, 8] {
            let mut runs: [Vec<Run>; 2] = [Vec::new(), Vec::new()];
            for _ in 0..self.options.rounds {
                for (at, all) in runs.iter_mut().enumerate() {
                    all.push(self.pgbench(&cluster, at, clients)?);
                }
            }
            for (at, name) in ["primary", "replica"].into_iter().enumerate() {
                let mid = |of: &dyn Fn(&Run) -> f64| interval(runs[at].iter().map(of).collect()).0;
                let ratio = |of: &dyn Fn(&Run) -> f64| {
                    let pairs = runs[at].iter().zip(&runs[0]);
                    let (m, low, high) = interval(pairs.map(|(a, b)| of(a) / of(b)).collect());
                    format!("{m:.3} ({low:.3}..{high:.3})")
                };
                let (tps, latency) = (|r: &Run| r.transactions, |r: &Run| r.latency);
                let row = format!(
                    "| {clients} | {name} | {:.0} | {} | {:.3} | {} | {:.0} | {:.0} |",
                    mid(&tps),
                    ratio(&tps),
                    mid(&latency),
                    ratio(&latency),
                    mid(&|r| r.cpu[0]),
                    mid(&|r| r.cpu[1]),
                );
                self.line(&row);
            }
        }
        Ok(())
    }
}
