//! A primary and its replicas, clients that load them, and what both cost.

use crate::bench::http;
use crate::clients::Clients;
use crate::guard::Guard;
use crate::server::{self, Server, USER};
use crate::{Result, command, process};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A node that has not told its metrics by then will not.
const ANSWER: Duration = Duration::from_secs(5);

/// A node with its HTTP port.
pub struct Node {
    pub server: Server,
    http: u16,
}

/// What goes where, between nodes on one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Media {
    /// Everything over connections, as between hosts.
    Tcp,
    /// The same, and replicas hold read leases.
    Leases,
    /// Timestamps and slots are read in shared memory; the log comes as messages.
    Shared,
    /// The log goes through shared memory, too: the default.
    Ring,
}

impl Media {
    pub fn name(self) -> &'static str {
        match self {
            Media::Tcp => "tcp",
            Media::Leases => "leases",
            Media::Shared => "shared",
            Media::Ring => "ring",
        }
    }
}

/// The primary first, as long as it is one.
pub struct Cluster {
    pub nodes: Vec<Node>,
    /// Which of them is the primary.
    pub leader: usize,
}

impl Cluster {
    pub fn start(
        program: &Path,
        directory: &Path,
        replicas: usize,
        media: Media,
        settings: &[(&str, &str)],
        guard: &mut Guard,
    ) -> Result<Cluster> {
        let mut nodes: Vec<Node> = Vec::new();
        for i in 0..=replicas {
            let (port, http) = (server::free_port()?, server::free_port()?);
            let home = directory.join(format!("node-{replicas}-{i}"));
            let mut start = Command::new(program);
            start.arg("start").arg("--data").arg(&home);
            let shared = matches!(media, Media::Shared | Media::Ring);
            start.env("CANON_SHARED_MEMORY", shared.to_string());
            if media == Media::Leases {
                start.env("CANON_LEASE_READS", "true");
            }
            let ring = if media == Media::Ring {
                "auto"
            } else {
                "message"
            };
            start.env("CANON_REPLICATION_RING", ring);
            start.envs(settings.iter().copied());
            start.args(["--listen", &format!("127.0.0.1:{port}")]);
            start.args(["--http", &format!("127.0.0.1:{http}")]);
            start.args(["--max-connections", "300", "--log-level", "warn"]);
            start.args(["--node-name", &format!("node-{i}")]);
            let secret = directory.join(format!("node-{replicas}-0/CANON_SECRET"));
            if let Some(primary) = nodes.first() {
                start.env("CANON_CLUSTER_SECRET_FILE", secret);
                let of = format!("127.0.0.1:{}", primary.server.port);
                start.env("CANON_REPLICA_OF", of);
            }
            let log = directory.join(format!("node-{replicas}-{i}.log"));
            let mut server = server::start("canon", start, port, "-TERM", &log, guard)?;
            server.ready()?;
            nodes.push(Node { server, http });
        }
        Ok(Cluster { nodes, leader: 0 })
    }

    /// sysbench's tables, at every node.
    pub fn make_tables(&self, clients: &Clients) -> Result<()> {
        let mut prepare = Command::new(&clients.sysbench);
        prepare.args([
            "oltp_read_only",
            "--db-driver=pgsql",
            "--pgsql-host=127.0.0.1",
        ]);
        prepare.arg(format!("--pgsql-port={}", self.primary().server.port));
        prepare.args([format!("--pgsql-user={USER}"), format!("--pgsql-db={USER}")]);
        prepare.args(["--tables=10", "--table-size=10000", "prepare"]);
        command::output(&mut prepare)?;
        self.settle()
    }

    pub fn primary(&self) -> &Node {
        &self.nodes[self.leader]
    }

    pub fn replicas(&self) -> &[Node] {
        &self.nodes[1..]
    }

    /// Until every replica shows what the primary has.
    pub fn settle(&self) -> Result<()> {
        let count = |n: &Node| n.server.sql("SELECT count(*) FROM sbtest1");
        for r in self.replicas() {
            let begun = std::time::Instant::now();
            while count(r).map_err(|_| ()) != count(self.primary()).map_err(|_| ()) {
                if begun.elapsed().as_secs() > 60 {
                    return Err("a replica does not catch up".into());
                }
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
        }
        Ok(())
    }
}

impl Node {
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.server.port)
    }

    /// The one value that this gives.
    pub fn one(&self, sql: &str) -> Result<String> {
        let rows = self.server.sql(sql)?;
        let value = rows.rows.first().and_then(|r| r.first()?.clone());
        value.ok_or_else(|| format!("{sql}: no value"))
    }

    /// A metric without labels.
    pub fn metric(&self, name: &str) -> Option<f64> {
        http::value(&http::metrics(self.http, ANSWER), name)
    }
}

/// One sysbench at a node.
#[derive(Clone)]
pub struct Load {
    pub test: &'static str,
    pub threads: u32,
    /// Transactions per second; 0: as fast as it goes.
    pub rate: f64,
    pub seconds: f64,
    /// All of it at one row.
    pub hot: bool,
    /// Settings of its sessions, for PGOPTIONS.
    pub settings: String,
}

impl Load {
    pub fn start(&self, clients: &Clients, node: &Node) -> Result<Child> {
        let mut c = Command::new(&clients.sysbench);
        c.args([self.test, "--db-driver=pgsql", "--pgsql-host=127.0.0.1"]);
        c.arg(format!("--pgsql-port={}", node.server.port));
        c.args([format!("--pgsql-user={USER}"), format!("--pgsql-db={USER}")]);
        let (tables, rows) = if self.hot { (1, 1) } else { (10, 10_000) };
        c.args([format!("--tables={tables}"), format!("--table-size={rows}")]);
        c.arg(format!("--threads={}", self.threads));
        c.args([
            format!("--time={:.0}", self.seconds.max(1.0)),
            format!("--rate={:.0}", self.rate),
        ]);
        c.args(["--histogram=on", "--report-interval=0"]);
        c.arg("run").env("PGOPTIONS", &self.settings);
        c.stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        c.spawn().map_err(|e| format!("sysbench: {e}"))
    }
}

/// What a load did.
#[derive(Clone, Debug, Default)]
pub struct Done {
    /// Per second.
    pub transactions: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    /// CPU of all replicas and of the primary, microseconds per transaction of the load.
    pub replica_us: f64,
    pub primary_us: f64,
    /// Share of the machine that was busy.
    pub busy: f64,
    /// Fetches of the replicas per thousand transactions.
    pub fetches: f64,
    /// How old what the first replica shows is, by its own word: the median of a few looks a second.
    pub lag_ms: f64,
}

/// Runs `f` and asks the first replica meanwhile how far it is behind, in seconds.
fn watched<T>(cluster: &Cluster, f: impl FnOnce() -> T) -> (T, Vec<f64>) {
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        let look = || {
            let mut lags = Vec::new();
            while !done.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(250));
                let first = cluster.replicas().first();
                lags.extend(first.and_then(|r| r.metric("canon_replica_lag_seconds")));
            }
            lags
        };
        let looking = s.spawn(look);
        let out = f();
        done.store(true, Ordering::Relaxed);
        (out, looking.join().unwrap_or_default())
    })
}

/// Runs `load` at every replica at once, while `writes` runs at the primary.
pub fn measure(
    clients: &Clients,
    cluster: &Cluster,
    load: &Load,
    writes: Option<&Load>,
) -> Result<Done> {
    measure_at(cluster.replicas(), clients, cluster, load, writes)
}

/// Runs `load` at each of these nodes of `cluster` at once, while `writes` runs at the primary.
pub fn measure_at(
    nodes: &[Node],
    clients: &Clients,
    cluster: &Cluster,
    load: &Load,
    writes: Option<&Load>,
) -> Result<Done> {
    let mut writer = match writes {
        Some(w) => {
            let longer = Load {
                seconds: load.seconds + 30.0,
                ..w.clone()
            };
            let child = longer.start(clients, cluster.primary())?;
            std::thread::sleep(std::time::Duration::from_millis(500));
            Some(child)
        }
        None => None,
    };
    let fetched = || -> f64 {
        let all = cluster.replicas().iter();
        all.filter_map(|r| r.metric("canon_read_fetches_total"))
            .sum()
    };
    let cpu = |nodes: &[Node]| -> f64 {
        nodes
            .iter()
            .map(|n| process::cpu_seconds(n.server.pid()))
            .sum()
    };
    let before = (fetched(), cpu(cluster.replicas()), cpu(&cluster.nodes[..1]));
    let machine = process::machine_seconds();
    let readers: Result<Vec<Child>> = nodes.iter().map(|n| load.start(clients, n)).collect();
    let mut done = Done::default();
    let mut histogram: Vec<(f64, f64)> = Vec::new();
    let mut seconds: f64 = 0.0;
    let mut count = 0.0;
    let readers = readers?;
    let (outs, mut lags) = watched(cluster, || -> Vec<_> {
        let outs = readers.into_iter().map(Child::wait_with_output);
        outs.collect()
    });
    lags.sort_by(f64::total_cmp);
    done.lag_ms = lags.get(lags.len() / 2).map_or(f64::NAN, |s| s * 1e3);
    for out in outs {
        let out = out.map_err(|e| e.to_string())?;
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        if !out.status.success() {
            let why = String::from_utf8_lossy(&out.stderr).into_owned();
            stop(&mut writer);
            return Err(format!("sysbench {}: {why}{text}", load.test));
        }
        histogram.extend(buckets(&text));
        let n = after(&text, "transactions:").unwrap_or(0.0);
        let s = after(&text, "total time:").unwrap_or(load.seconds);
        count += n;
        seconds = seconds.max(s);
    }
    stop(&mut writer);
    let (busy, all) = process::machine_seconds();
    done.busy = (busy - machine.0) / (all - machine.1).max(0.01);
    let n = f64::max(count, 1.0);
    done.transactions = count / seconds.max(0.001);
    done.fetches = (fetched() - before.0) * 1e3 / n;
    done.replica_us = (cpu(cluster.replicas()) - before.1) * 1e6 / n;
    done.primary_us = (cpu(&cluster.nodes[..1]) - before.2) * 1e6 / n;
    done.p50_ms = quantile(&mut histogram, 0.5);
    done.p99_ms = quantile(&mut histogram, 0.99);
    Ok(done)
}

fn stop(writer: &mut Option<Child>) {
    if let Some(mut w) = writer.take() {
        process::kill_tree(w.id());
        let _ = w.wait();
    }
}

/// The number after `label`.
pub fn after(text: &str, label: &str) -> Option<f64> {
    let rest = text.lines().find_map(|l| l.trim().strip_prefix(label))?;
    let rest = rest.trim();
    let end = rest
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(rest.len());
    rest[..end].parse().ok()
}

/// (milliseconds, count) of sysbench's histogram.
fn buckets(text: &str) -> Vec<(f64, f64)> {
    let line = |l: &str| {
        let (value, rest) = l.split_once('|')?;
        let count = rest.rsplit(' ').next()?;
        Some((value.trim().parse().ok()?, count.trim().parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

/// Between the buckets by their logarithms: they are 1.8 % wide.
fn quantile(buckets: &mut [(f64, f64)], q: f64) -> f64 {
    buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    let all: f64 = buckets.iter().map(|b| b.1).sum();
    let (mut seen, mut last) = (0.0, None::<f64>);
    for &(value, count) in buckets.iter() {
        if seen + count >= q * all {
            let part = (q * all - seen) / count.max(1.0);
            let from = last.unwrap_or(value).max(value / 1.02);
            return from * (value / from).powf(part);
        }
        seen += count;
        last = Some(value);
    }
    last.unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_of_sysbench_is_read() {
        let text = "Latency histogram (values are in milliseconds)\n       value  ------------- distribution ------------- count\n       0.100 |****                                     100\n       0.102 |****************************************  800\n       1.500 |**                                       100\n\nSQL statistics:\n    transactions:                        1000   (499.9 per sec.)\n    total time:                          2.0003s\n";
        let mut b = buckets(text);
        assert_eq!(b.len(), 3);
        let p50 = quantile(&mut b, 0.5);
        assert!((0.1..=0.102).contains(&p50), "{p50}");
        let p99 = quantile(&mut b, 0.99);
        assert!((1.4..=1.5).contains(&p99), "{p99}");
        assert_eq!(after(text, "transactions:"), Some(1000.0));
        assert_eq!(after(text, "total time:"), Some(2.0003));
    }
}
