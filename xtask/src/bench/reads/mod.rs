//! `cargo xtask bench reads`: strong reads at replicas: that none is stale, and what they cost. A page and charts in `docs/results/`.
//!
//! Sections: *stale* (`canon bench-reads`, the real-time checker, with 1 and 4 replicas, under full write load, while replicas or
//! the primary are killed and primaries change; peers beside it when `--peers` names the directory of their scripts, or those alone with `--only peers`), *price* (sysbench at the replica under each
//! `canon.read_policy` while the primary writes, paced so that the machine is not full, then as fast as it goes), *fetches* (as the load
//! grows), *leases* (as *price*, by read leases), *commits* (what a commit pays for them), *stall* (writers while a replica with a lease stands still), *breakdown* (one mechanism after the other, with 1, 2, 4 and 8 replicas), *forward* (writing transactions at a replica). Rounds are interleaved; a ratio is the median of the rounds' ratios, and its
//! interval (95 %, by order statistics) is from the second to the last but one of nine rounds.
//!
//! Left out on purpose: RDMA, which no machine of ours has; throughput with more replicas than cores.

mod breakdown;
pub(super) mod cluster;
mod failures;
mod forward;
mod peers;
mod stall;

use super::page;
use super::peers::Peers;
use super::svg::Chart;
use crate::clients::Clients;
use crate::guard::Guard;
use crate::{Result, command, server};
use cluster::{Cluster, Done, Load, Media, after, measure, measure_at};
use failures::Failures;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

const USAGE: &str = "cargo xtask bench reads [--quick] [--rounds 9] [--seconds 4] [--only stale|peers|price|leases|commits|stall|fetches|breakdown|forward] [--peers DIR] \
                     [--binary CANON] [--directory DIR] [--no-results]";

/// By these names `canon.read_policy` knows them; the first is what the others are compared with.
const POLICIES: [&str; 5] = [
    "stale",
    "lamport+tracker",
    "lamport",
    "read-wait",
    "commit-wait",
];

struct Options {
    quick: bool,
    rounds: usize,
    seconds: f64,
    only: Option<String>,
    peers: Option<PathBuf>,
    binary: Option<PathBuf>,
    directory: PathBuf,
    write: bool,
}

struct Bench {
    options: Options,
    clients: Clients,
    guard: Guard,
    directory: PathBuf,
    /// Whose stale reads are counted beside ours, until they are.
    peers: Option<Peers>,
    page: String,
    charts: Vec<(&'static str, String)>,
    /// Rows of a table that stands after the one which is being written.
    second: Vec<String>,
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
    // What is missing is to be said before anything is measured.
    let scripts = options.peers.as_deref();
    let peers = scripts.map(|s| Peers::find(s, &clients, &directory));
    let page = page::head("Strong reads at replicas", "cargo xtask bench reads", args);
    let mut bench = Bench {
        options,
        clients,
        guard,
        directory,
        peers: peers.transpose()?,
        page: page + "\nClients, primary and replicas share the machine's cores over loopback.\n",
        charts: Vec::new(),
        second: Vec::new(),
    };
    bench.run()?;
    println!("\n{}", bench.page);
    if bench.options.write {
        bench.store()?;
    }
    Ok(())
}

fn options(args: &[String]) -> Result<Options> {
    let mut o = Options {
        quick: args.iter().any(|a| a == "--quick"),
        rounds: 9,
        seconds: 4.0,
        only: None,
        peers: None,
        binary: None,
        directory: std::env::temp_dir(),
        write: true,
    };
    if o.quick {
        (o.rounds, o.seconds) = (3, 2.0);
    }
    let mut it = args.iter();
    while let Some(arg) = it.next() {
        let mut value = || it.next().ok_or(format!("{arg} needs a value\n{USAGE}"));
        match arg.as_str() {
            "--quick" => {}
            "--rounds" => o.rounds = super::number(value()?)?,
            "--seconds" => o.seconds = super::number(value()?)?,
            "--only" => o.only = Some(value()?.clone()),
            "--peers" => o.peers = Some(value()?.into()),
            "--binary" => o.binary = Some(value()?.into()),
            "--directory" => o.directory = value()?.into(),
            "--no-results" => o.write = false,
            other => return Err(format!("`{other}`?\n{USAGE}")),
        }
    }
    Ok(o)
}

/// Median and 95 % interval of the rounds, by order statistics (exact for nine, wider than needed for fewer).
fn interval(mut all: Vec<f64>) -> (f64, f64, f64) {
    all.sort_by(f64::total_cmp);
    let n = all.len();
    if n == 0 {
        return (f64::NAN, f64::NAN, f64::NAN);
    }
    let cut = usize::from(n >= 9) + n.saturating_sub(9) / 4;
    (all[n / 2], all[cut], all[n - 1 - cut])
}

fn median(all: &[Done], of: fn(&Done) -> f64) -> f64 {
    interval(all.iter().map(of).collect()).0
}

impl Bench {
    fn line(&mut self, text: &str) {
        println!("{text}");
        self.page.push_str(text);
        self.page.push('\n');
    }

    fn binary(&self) -> PathBuf {
        let built = || command::target_dir().join("release").join("canon");
        self.options.binary.clone().unwrap_or_else(built)
    }

    fn wants(&self, section: &str) -> bool {
        self.options.only.as_deref().is_none_or(|o| o == section)
    }

    fn run(&mut self) -> Result<()> {
        if self.wants("stale") {
            self.stale()?;
        }
        if self.options.only.as_deref() == Some("peers") {
            self.peers(if self.options.quick { 20_000 } else { 50_000 })?;
        }
        if self.wants("forward") {
            self.forwarded()?;
        }
        if self.wants("price") || self.wants("fetches") {
            let cluster = self.cluster(1, Media::Ring, &[])?;
            let tcp = self.cluster(1, Media::Tcp, &[])?;
            if self.wants("price") {
                self.price(&cluster, &tcp)?;
            }
            if self.wants("fetches") {
                self.fetches(&cluster, &tcp)?;
            }
        }
        if self.wants("leases") {
            self.leases()?;
        }
        if self.wants("commits") {
            self.commits()?;
        }
        if self.wants("stall") {
            self.stall()?;
        }
        if self.wants("breakdown") {
            self.breakdown()?;
        }
        Ok(())
    }

    /// With sysbench's tables.
    fn cluster(
        &mut self,
        replicas: usize,
        media: Media,
        settings: &[(&str, &str)],
    ) -> Result<Cluster> {
        let program = self.binary();
        let home = self.directory.join(media.name());
        // What an earlier section left.
        let _ = std::fs::remove_dir_all(&home);
        std::fs::create_dir_all(&home).map_err(|e| e.to_string())?;
        let guard = &mut self.guard;
        let cluster = Cluster::start(&program, &home, replicas, media, settings, guard)?;
        cluster.make_tables(&self.clients)?;
        Ok(cluster)
    }

    fn stale_head(&mut self) {
        self.line("\n## Stale reads\n\nReads that began after a write was acknowledged and did not show it, as `canon bench-reads` counts them: writers as fast as they go, readers of points, ranges, tables and snapshots at every node (at the replicas only, where reads may be old), a probe that reads what it has just written.\n");
        self.stale_columns();
    }

    fn stale_columns(&mut self) {
        self.line("| server | replicas | reads are | failures | reads | stale | share | probes stale | reads/s | writes/s |\n|---|---|---|---|---|---|---|---|---|---|");
    }

    fn stale(&mut self) -> Result<()> {
        let reads = if self.options.quick {
            20_000
        } else {
            1_000_000
        };
        self.stale_head();
        for replicas in [1, 4] {
            for (consistency, failures) in [
                ("strong", Failures::None),
                ("strong", Failures::Replicas),
                ("strong", Failures::Primary),
                ("strong", Failures::Promotions),
                ("eventual", Failures::None),
            ] {
                let n = if consistency == "strong" {
                    reads
                } else {
                    reads / 10
                };
                let program = self.binary();
                let home = self
                    .directory
                    .join(format!("{consistency}-{replicas}-{}", failures as u8));
                std::fs::create_dir_all(&home).map_err(|e| e.to_string())?;
                let mut c = Cluster::start(
                    &program,
                    &home,
                    replicas,
                    Media::Ring,
                    failures.settings(),
                    &mut self.guard,
                )?;
                let all: Vec<String> = c.nodes.iter().map(|n| n.address()).collect();
                let init = format!("SET canon.read_consistency = {consistency}");
                // Eventual reads at the replicas only, as at the peers.
                let strong = consistency == "strong";
                let read = if strong { &all[..] } else { &all[1..] };
                // Where the primary changes, every node is written at; who fails goes to the next.
                let changes = failures == Failures::Promotions;
                let write = if changes { &all[..] } else { &all[..1] };
                let mut struck = 0;
                let out = self.probe(write, read, &init, n, |guard| {
                    failures.strike(struck, &mut c, guard)?;
                    struck += 1;
                    Ok(())
                })?;
                let failed = match struck {
                    _ if failures == Failures::None => failures.name().into(),
                    n => format!("{} ({n} times)", failures.name()),
                };
                let row = row("canon", replicas, consistency, &failed, &out);
                self.line(&row);
                drop(c);
                let _ = std::fs::remove_dir_all(&home);
            }
        }
        self.peers(reads / 10)
    }

    /// Runs `canon bench-reads`, and `beside` again and again until it ends.
    fn probe(
        &mut self,
        write: &[String],
        read: &[String],
        init: &str,
        reads: usize,
        mut beside: impl FnMut(&mut Guard) -> Result<()>,
    ) -> Result<String> {
        let mut c = Command::new(self.binary());
        c.arg("bench-reads").args(["--reads", &reads.to_string()]);
        c.args(["--seconds", if self.options.quick { "8" } else { "600" }]);
        c.args(["--readers", "4", "--writers", "4", "--probes", "2"]);
        for (flag, servers) in [("--write", write), ("--read", read)] {
            for server in servers {
                c.args([flag, server]);
            }
        }
        if !init.is_empty() {
            c.args(["--read-init", init]);
        }
        c.stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = c.spawn().map_err(|e| format!("bench-reads: {e}"))?;
        self.guard.process(child.id())?;
        while matches!(child.try_wait(), Ok(None)) {
            beside(&mut self.guard)?;
            std::thread::sleep(Duration::from_millis(100));
        }
        let out = child.wait_with_output().map_err(|e| e.to_string())?;
        if !out.status.success() {
            let why = String::from_utf8_lossy(&out.stderr);
            return Err(format!(
                "bench-reads: {why}{}",
                String::from_utf8_lossy(&out.stdout)
            ));
        }
        Ok(String::from_utf8_lossy(&out.stdout).into_owned())
    }

    /// Transactions per second that leave the machine about half busy, and at most 70 %, under each of these policies, writes included.
    fn pace(&self, c: &Cluster, load: &dyn Fn(&str, f64) -> Load, writes: &Load) -> Result<f64> {
        let full = measure(
            &self.clients,
            c,
            &load("lamport+tracker", 0.0),
            Some(writes),
        )?;
        let mut rate = full.transactions * 0.6;
        for policy in ["read-wait", "lamport+tracker", "stale"] {
            for _ in 0..4 {
                let done = measure(&self.clients, c, &load(policy, rate), Some(writes))?;
                if done.busy <= 0.55 {
                    break;
                }
                // Where something else keeps the machine busy, no pace is low enough; the page says how busy it was.
                rate = (rate * 0.5 / done.busy).max(0.05 * full.transactions);
            }
        }
        Ok(rate)
    }

    fn price(&mut self, shared: &Cluster, tcp: &Cluster) -> Result<()> {
        self.line("\n## Price\n\nsysbench at one replica while the primary takes updates (`oltp_update_non_index`); *hot* reads and writes one row. Under commit-wait the writers wait for the replica (`synchronous_commit = remote_apply`) and reads for nothing. Nodes of one machine read the primary's positions from shared memory; *over TCP* is a second pair without it, as nodes on machines of their own have it, with a pace and a *stale* of its own. The pace leaves the machine about half busy, at most 70 %, under every policy: the fuller it is, the more latencies tell of queues and not of reads. Odd rounds go through the policies backwards.");
        let loads: &[(&str, &'static str, bool)] = match self.options.quick {
            true => &[
                ("point selects", "oltp_point_select", false),
                ("hot row", "oltp_point_select", true),
            ],
            false => &[
                ("point selects", "oltp_point_select", false),
                ("oltp_read_only", "oltp_read_only", false),
                ("hot row", "oltp_point_select", true),
            ],
        };
        for (name, test, hot) in loads {
            self.price_of(name, test, *hot, shared, &POLICIES)?;
            if !(self.options.quick && *hot) {
                let name = format!("{name}, over TCP");
                self.price_of(&name, test, *hot, tcp, &POLICIES[..4])?;
            }
        }
        self.line("\nThe primary's CPU is that of its updates too; what strong reads add to it is the difference to *stale*.");
        Ok(())
    }

    /// Reads by leases beside stale ones, where primary and replica share no memory.
    fn leases(&mut self) -> Result<()> {
        self.line("\n## Leases\n\nAs *Price over TCP*, with a pair whose replica holds a read lease where its acknowledgements are quick enough. *Fetches* counts reads that had to ask all the same.");
        let cluster = self.cluster(1, Media::Leases, &[])?;
        for hot in [false, true] {
            let name = ["point selects by leases", "hot row by leases"][usize::from(hot)];
            self.price_of(
                name,
                "oltp_point_select",
                hot,
                &cluster,
                &["stale", "lease"],
            )?;
        }
        Ok(())
    }

    /// What a commit pays for the lease of a replica: a pair with it beside a pair without it.
    fn commits(&mut self) -> Result<()> {
        self.line(&format!("\n## Commits\n\nsysbench's `oltp_update_non_index` at the primary of two pairs over TCP, one of which has a replica with a read lease. `synchronous_replicas = 1` in both. Ratios of the pair with the lease to the other in the same round, median (95 % interval) of {} rounds; odd rounds begin with the other pair.\n", self.options.rounds));
        self.line("| `synchronous_commit` | clients | commits/s without | with | ratio | p50 ms without | with | ratio | p99 ratio |\n|---|---|---|---|---|---|---|---|---|");
        let one_copy = [("CANON_SYNCHRONOUS_REPLICAS", "1")];
        let pairs = [
            self.cluster(1, Media::Tcp, &one_copy)?,
            self.cluster(1, Media::Leases, &one_copy)?,
        ];
        for level in ["off", "local", "remote_write", "on"] {
            for threads in [1, 8] {
                let load = Load {
                    test: "oltp_update_non_index",
                    threads,
                    rate: 0.0,
                    seconds: self.options.seconds,
                    hot: false,
                    settings: format!("-c synchronous_commit={level}"),
                };
                let mut done = [Vec::new(), Vec::new()];
                for round in 0..self.options.rounds {
                    for i in [round % 2, 1 - round % 2] {
                        let pair = &pairs[i];
                        let at = &pair.nodes[..1];
                        done[i].push(measure_at(at, &self.clients, pair, &load, None)?);
                    }
                }
                let ratio = |of: fn(&Done) -> f64| {
                    let rounds = done[1].iter().zip(&done[0]);
                    let (m, low, high) = interval(rounds.map(|(a, b)| of(a) / of(b)).collect());
                    format!("{m:.3} ({low:.3}..{high:.3})")
                };
                let row = format!(
                    "| {level} | {threads} | {:.0} | {:.0} | {} | {:.3} | {:.3} | {} | {} |",
                    median(&done[0], |d| d.transactions),
                    median(&done[1], |d| d.transactions),
                    ratio(|d| d.transactions),
                    median(&done[0], |d| d.p50_ms),
                    median(&done[1], |d| d.p50_ms),
                    ratio(|d| d.p50_ms),
                    ratio(|d| d.p99_ms),
                );
                self.line(&row);
            }
        }
        Ok(())
    }

    /// Writers while a replica that holds a read lease stands still.
    fn stall(&mut self) -> Result<()> {
        let cluster = self.cluster(1, Media::Leases, &[])?;
        let mut stops = stall::stop_holder(&cluster, self.options.rounds)?;
        stops.sort_by(|a, b| a.longest_ms.total_cmp(&b.longest_ms));
        let most = stops.iter().map(|s| s.stalls).max().unwrap_or(0);
        let at = |i: usize| stops.get(i).map_or(f64::NAN, |s| s.longest_ms);
        self.line("\n## A holder that stands still\n\nOne writer at the primary, and SIGSTOP of the replica for 2 s while it holds a read lease. A stall is a time between two acknowledgements of more than 20 ms.\n");
        self.line("| times stopped | stalls each, at most | longest stall, median | most |\n|---|---|---|---|");
        let row = format!(
            "| {} | {most} | {:.0} ms | {:.0} ms |",
            stops.len(),
            at(stops.len() / 2),
            at(stops.len().saturating_sub(1)),
        );
        self.line(&row);
        Ok(())
    }

    fn price_of(
        &mut self,
        name: &str,
        test: &'static str,
        hot: bool,
        cluster: &Cluster,
        policies: &[&'static str],
    ) -> Result<()> {
        let seconds = self.options.seconds;
        let reads = |policy: &str, rate: f64| Load {
            test,
            threads: 8,
            rate,
            seconds,
            hot,
            settings: format!("-c canon.read_policy={policy}"),
        };
        let writes = |policy: &str| Load {
            test: "oltp_update_non_index",
            threads: 4,
            rate: 300.0,
            seconds,
            hot,
            settings: match policy {
                "commit-wait" => "-c synchronous_commit=remote_apply".into(),
                _ => String::new(),
            },
        };
        let rate = self.pace(cluster, &reads, &writes("stale"))?;
        let mut paced: BTreeMap<&str, Vec<Done>> = BTreeMap::new();
        let mut full: BTreeMap<&str, Vec<Done>> = BTreeMap::new();
        for round in 0..self.options.rounds {
            let mut order = policies.to_vec();
            if round % 2 == 1 {
                order.reverse();
            }
            for p in order {
                let w = writes(p);
                let one = measure(&self.clients, cluster, &reads(p, rate), Some(&w))?;
                paced.entry(p).or_default().push(one);
                let one = measure(&self.clients, cluster, &reads(p, 0.0), Some(&w))?;
                full.entry(p).or_default().push(one);
            }
        }
        self.line(&format!("\n**{name}**, paced at {rate:.0}/s with 300 updates/s; ratios to *stale* of the same round, median (95 % interval) of {} rounds\n", self.options.rounds));
        self.line("| policy | p50 ms | p50 ratio | p99 ms | p99 ratio | throughput, unpaced | ratio | replica CPU us/read | primary CPU ms per 1000 reads | fetches per 1000 | the same, unpaced | busy |\n|---|---|---|---|---|---|---|---|---|---|---|---|");
        for p in policies {
            let ratio = |all: &BTreeMap<&str, Vec<Done>>, of: fn(&Done) -> f64| {
                let pairs = all[p].iter().zip(&all["stale"]);
                let (m, low, high) = interval(pairs.map(|(a, b)| of(a) / of(b)).collect());
                format!("{m:.3} ({low:.3}..{high:.3})")
            };
            let own = &paced[p];
            let row = format!(
                "| {p} | {:.3} | {} | {:.3} | {} | {:.0}/s | {} | {:.1} | {:.2} | {:.0} | {:.0} | {:.0} % |",
                median(own, |d| d.p50_ms),
                ratio(&paced, |d| d.p50_ms),
                median(own, |d| d.p99_ms),
                ratio(&paced, |d| d.p99_ms),
                median(&full[p], |d| d.transactions),
                ratio(&full, |d| d.transactions),
                median(own, |d| d.replica_us),
                median(own, |d| d.primary_us),
                median(own, |d| d.fetches),
                median(&full[p], |d| d.fetches),
                100.0 * median(own, |d| d.busy),
            );
            self.line(&row);
        }
        if name == "point selects" {
            let bar = |of: fn(&Done) -> f64| POLICIES.map(|p| Some(median(&full[p], of))).to_vec();
            let chart = Chart {
                title: "Point selects at a replica while the primary writes",
                x: "canon.read_policy",
                y: "reads per second",
                places: POLICIES.map(String::from).to_vec(),
                series: vec![("unpaced".into(), bar(|d| d.transactions))],
                line_at: None,
            };
            self.charts.push(("price", chart.svg()));
        }
        Ok(())
    }

    fn fetches(&mut self, shared: &Cluster, tcp: &Cluster) -> Result<()> {
        self.line("\n## Fetches as the load grows\n\nPoint selects as fast as they go, with 300 updates/s at the primary.\n");
        self.line("| threads | reads/s | fetches per 1000 reads | reads/s over TCP | fetches per 1000 reads |\n|---|---|---|---|---|");
        let threads: &[u32] = if self.options.quick {
            &[1, 8, 32]
        } else {
            &[1, 2, 4, 8, 16, 32, 64]
        };
        let (mut looks, mut points) = (Vec::new(), Vec::new());
        for &n in threads {
            let load = |test, threads, rate| Load {
                test,
                threads,
                rate,
                seconds: self.options.seconds,
                hot: false,
                settings: String::new(),
            };
            let (reads, writes) = (
                load("oltp_point_select", n, 0.0),
                load("oltp_update_non_index", 4, 300.0),
            );
            let here = measure(&self.clients, shared, &reads, Some(&writes))?;
            let over = measure(&self.clients, tcp, &reads, Some(&writes))?;
            self.line(&format!(
                "| {n} | {:.0} | {:.0} | {:.0} | {:.0} |",
                here.transactions, here.fetches, over.transactions, over.fetches
            ));
            looks.push(Some(here.fetches));
            points.push(Some(over.fetches));
        }
        let chart = Chart {
            title: "One fetch serves many reads",
            x: "threads that read",
            y: "fetches per 1000 reads",
            places: threads.iter().map(u32::to_string).collect(),
            series: vec![("over TCP".into(), points), ("shared memory".into(), looks)],
            line_at: None,
        };
        self.charts.push(("fetches", chart.svg()));
        Ok(())
    }

    fn store(&self) -> Result<()> {
        let mut name = "reads".to_owned();
        if self.options.quick {
            name += "-quick";
        }
        if let Some(only) = &self.options.only {
            let _ = write!(name, "-{only}");
        }
        page::store(&name, &self.page, &self.charts)
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// A row of the table, of what `bench-reads` printed.
fn row(server: &str, replicas: usize, reads: &str, failures: &str, out: &str) -> String {
    let probes = out.lines().filter(|l| l.contains("| probe |"));
    // The primary's own are never stale, and would hide the others.
    let probes: (f64, f64) = probes.fold((0.0, 0.0), |sum, l| {
        let cells: Vec<&str> = l.split('|').map(str::trim).collect();
        let n = |i: usize| {
            cells
                .get(i)
                .and_then(|c| c.parse::<f64>().ok())
                .unwrap_or(0.0)
        };
        (sum.0 + n(3), sum.1 + n(4))
    });
    let last = out
        .lines()
        .find(|l| l.starts_with("reads "))
        .unwrap_or_default();
    let word = |label: &str| {
        let mut words = last.split(' ').skip_while(|w| *w != label);
        words
            .nth(1)
            .and_then(|w| w.parse::<f64>().ok())
            .unwrap_or(f64::NAN)
    };
    let (all, stale) = (word("reads"), word("stale"));
    let writes = after(out, "writes").unwrap_or(f64::NAN);
    format!(
        "| {server} | {replicas} | {reads} | {failures} | {all:.0} | {stale:.0} | {:.3} % | {:.1} % | {:.0} | {:.0} |",
        100.0 * stale / all.max(1.0),
        100.0 * probes.1 / probes.0.max(1.0),
        all / word("seconds").max(0.001),
        writes / word("seconds").max(0.001),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_bench_reads_prints_becomes_a_row() {
        let out = "| reads at | kind | reads | stale |\n|---|---|---|---|\n| 127.0.0.1:1 | probe | 50 | 40 | 80 % |\n| 127.0.0.1:1 | point | 150 | 10 | 6 % |\n\nwrites 600 (300/s) p50 1 ms\nreads 200 (100/s) stale 50 wrong 0 seconds 2.0\n";
        let row = row("x", 1, "eventual", "none", out);
        assert_eq!(
            row,
            "| x | 1 | eventual | none | 200 | 50 | 25.000 % | 80.0 % | 100 | 300 |"
        );
    }

    #[test]
    fn an_interval_leaves_the_outermost_of_nine_out() {
        let nine: Vec<f64> = (1..=9).map(f64::from).collect();
        assert_eq!(interval(nine), (5.0, 2.0, 8.0));
        assert_eq!(interval(vec![3.0, 1.0, 2.0]), (2.0, 1.0, 3.0));
    }
}
