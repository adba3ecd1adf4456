//! `canon bench-lag`: how far a replica is behind, from *published* at the primary to *visible* at the replica, on one clock.
//!
//! ```text
//! CPU 0: primary, its load inside the process          CPU 1: replica, paced readers inside the process
//!        │ samples (time, published)                           │ samples (time, visible)
//!        └────────────────────────▶ this process joins them ◀──┘
//! ```
//! The load runs as fast as it can, so the primary has its whole CPU to get away with and the replica has one, with its readers, to
//! keep up. With SQL round trips in between no replica falls behind. Both processes sample every millisecond; the lag of a
//! sample of the primary is the time until the replica showed that position. A line is fitted through the lags: a replica that
//! keeps up has no slope.
//!
//! Left out on purpose: machines apart, whose clocks would have to be compared.

mod node;
mod plot;
mod threads;

use super::figures::line;
use base::{Error, Result, SqlState};
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use node::now;
pub use node::{NodeArgs, run as run_node};

/// What to measure.
#[derive(Clone, Debug, clap::Args)]
pub struct LagOptions {
    /// Seconds of load per line of the table
    #[arg(long, default_value_t = 60)]
    pub seconds: u64,
    /// Seconds of load before, which count for the rates and not for the lag
    #[arg(long, default_value_t = 5)]
    pub warm_up: u64,
    /// Reads per second at the replica, one line of the table each; `max`: as fast as it can
    #[arg(long, value_delimiter = ',', default_value = "0,100,1000,max", value_parser = rate)]
    pub readers: Vec<u32>,
    /// How the replica replays
    #[arg(long, default_value = "row")]
    pub policy: String,
    /// Where temporary data directories are made
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Change the schema of a third table with so many rows during the load, and say what lag each change makes; 0: no changes
    #[arg(long, default_value_t = 0)]
    pub ddl_rows: u64,
    /// Say which threads of both processes had the CPU or waited for it, all the time and while the lag was above 20 ms
    #[arg(long)]
    pub threads: bool,
    /// Draw the lag over time into this SVG file
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
}

/// A rate that is no rate: without pauses.
const SATURATING: u32 = u32::MAX;

fn rate(text: &str) -> std::result::Result<u32, String> {
    match text {
        "max" => Ok(SATURATING),
        n => n.parse().map_err(|_| "a number, or max".into()),
    }
}

fn rate_name(rate: u32) -> String {
    match rate {
        SATURATING => "max".into(),
        n => n.to_string(),
    }
}

/// (microseconds since 1970, position)
type Sample = (u64, u64);

/// One line of the table.
struct Measured {
    readers: u32,
    /// (seconds since the load began, lag in milliseconds)
    lags: Vec<(f64, f64)>,
    changes: Vec<Change>,
    primary: node::Report,
    replica: node::Report,
    /// By role.
    threads: Vec<(&'static str, Vec<threads::Share>)>,
}

/// A change of the schema during the load, in seconds since it began.
struct Change {
    what: String,
    from: f64,
    to: f64,
}

/// How long after a change its lag is looked for, in seconds.
const AFTER: f64 = 3.0;

/// What is called caught up, in milliseconds.
const CAUGHT_UP: f64 = 20.0;

impl Change {
    /// The greatest lag from its beginning to some time after its end, in milliseconds, and how long after its end the lag was above
    /// `CAUGHT_UP` for the last time, in seconds.
    fn lag(&self, lags: &[(f64, f64)]) -> (f64, f64) {
        let near = lags
            .iter()
            .filter(|l| (self.from..self.to + AFTER).contains(&l.0));
        near.fold((0.0, 0.0), |(most, late): (f64, f64), l| {
            let still = if l.1 > CAUGHT_UP {
                l.0 + l.1 / 1e3 - self.to
            } else {
                0.0
            };
            (most.max(l.1), late.max(still))
        })
    }
}

fn failed(what: impl std::fmt::Display) -> Error {
    Error::new(SqlState::SYSTEM_ERROR, what.to_string())
}

/// Runs everything and writes a table.
pub fn run(options: &LagOptions, out: &mut dyn Write) -> Result<()> {
    let parent = options.directory.clone().unwrap_or_else(std::env::temp_dir);
    line(
        out,
        "| reads/s at the replica | transactions/s | rows/s | lag p50 | p99 | max | slope | replica's CPU | reads done/s | read p99 |",
    )?;
    line(out, "|---|---|---|---|---|---|---|---|---|---|")?;
    let mut all = Vec::new();
    for &readers in &options.readers {
        let directory = parent.join(format!("canon-lag-{}", std::process::id()));
        let measured = measure(options, readers, &directory);
        _ = std::fs::remove_dir_all(&directory);
        let m = measured?;
        row(&m, out)?;
        all.push(m);
    }
    for m in all.iter().filter(|m| !m.changes.is_empty()) {
        changes(m, out)?;
    }
    for m in all.iter().filter(|_| options.threads) {
        shares(m, out)?;
    }
    if let Some(file) = &options.plot {
        let name = |m: &Measured| format!("{} reads/s", rate_name(m.readers));
        let lines: Vec<_> = all.iter().map(|m| (name(m), &m.lags[..])).collect();
        std::fs::write(file, plot::svg(&lines)).map_err(failed)?;
        line(out, &format!("\ndrawn: {}", file.display()))?;
    }
    Ok(())
}

/// The table of what changes of the schema did.
fn changes(m: &Measured, out: &mut dyn Write) -> Result<()> {
    let heads = "| schema change, with that load | took | lag p99 before | greatest lag | above 20 ms until, after its end |";
    line(
        out,
        &format!(
            "\n{} reads/s:\n\n{heads}\n|---|---|---|---|---|",
            rate_name(m.readers)
        ),
    )?;
    let first = m.changes.first().map_or(0.0, |c| c.from);
    let mut before: Vec<f64> = m.lags.iter().filter(|l| l.0 < first).map(|l| l.1).collect();
    before.sort_by(f64::total_cmp);
    let p99 = before
        .get(before.len() * 99 / 100)
        .copied()
        .unwrap_or(f64::NAN);
    for c in &m.changes {
        let (most, late) = c.lag(&m.lags);
        let took = (c.to - c.from) * 1e3;
        line(
            out,
            &format!(
                "| `{}` | {took:.0} ms | {p99:.2} ms | {most:.2} ms | {late:.2} s |",
                c.what
            ),
        )?;
    }
    Ok(())
}

/// The table of who had the CPU, and who waited for it.
fn shares(m: &Measured, out: &mut dyn Write) -> Result<()> {
    let late = m.lags.iter().filter(|l| l.1 > CAUGHT_UP).count();
    line(
        out,
        &format!(
            "\n{} reads/s; the lag was above {CAUGHT_UP} ms in {:.2} % of the samples:\n\n| thread | CPU | waited for it | CPU in those times | waited for it then |\n|---|---|---|---|---|",
            rate_name(m.readers),
            100.0 * late as f64 / m.lags.len().max(1) as f64,
        ),
    )?;
    for (role, shares) in &m.threads {
        for s in shares.iter().filter(|s| s.ran.max(s.waited) >= 0.1) {
            line(
                out,
                &format!(
                    "| {role}, {} | {:.1} % | {:.1} % | {:.1} % | {:.1} % |",
                    s.name, s.ran, s.waited, s.ran_late, s.waited_late
                ),
            )?;
        }
    }
    Ok(())
}

fn row(m: &Measured, out: &mut dyn Write) -> Result<()> {
    let mut sorted: Vec<f64> = m.lags.iter().map(|l| l.1).collect();
    sorted.sort_by(f64::total_cmp);
    let quantile = |q: f64| {
        let i = (sorted.len() as f64 * q) as usize;
        sorted
            .get(i.min(sorted.len().saturating_sub(1)))
            .copied()
            .unwrap_or(f64::NAN)
    };
    let (p, r) = (&m.primary, &m.replica);
    line(
        out,
        &format!(
            "| {} | {:.0} | {:.0} | {:.2} ms | {:.2} ms | {:.2} ms | {:+.3} ms/s | {:.0} % | {:.0} | {:.0} us |",
            rate_name(m.readers),
            p.operations as f64 / p.seconds,
            p.rows as f64 / p.seconds,
            quantile(0.5),
            quantile(0.99),
            quantile(1.0),
            slope(&m.lags),
            100.0 * r.cpu_seconds / r.seconds,
            r.operations as f64 / r.seconds,
            r.p99_micros,
        ),
    )
}

/// Least squares, milliseconds of lag per second.
fn slope(lags: &[(f64, f64)]) -> f64 {
    let n = lags.len() as f64;
    let (x, y) = lags.iter().fold((0.0, 0.0), |s, l| (s.0 + l.0, s.1 + l.1));
    let (x, y) = (x / n, y / n);
    let (above, below) = lags.iter().fold((0.0, 0.0), |s, l| {
        (s.0 + (l.0 - x) * (l.1 - y), s.1 + (l.0 - x) * (l.0 - x))
    });
    above / below
}

/// The time until the replica showed what each of the primary's samples had published. What it never showed counts up to the end.
fn join(primary: &[Sample], replica: &[Sample]) -> Vec<(f64, f64)> {
    let (Some(first), Some(last), Some(end)) = (primary.first(), primary.last(), replica.last())
    else {
        return vec![];
    };
    let mut at = 0;
    let mut lags = Vec::with_capacity(primary.len());
    for (time, position) in primary {
        while at < replica.len() && replica[at].1 < *position {
            at += 1;
        }
        let shown = replica.get(at).map_or(end.0.max(last.0), |r| r.0);
        let lag = shown.saturating_sub(*time) as f64 / 1e3;
        lags.push(((time - first.0) as f64 / 1e6, lag));
    }
    lags
}

fn measure(options: &LagOptions, readers: u32, directory: &Path) -> Result<Measured> {
    let address = crate::cluster::free_address()?;
    let mut primary = Role::start(options, "primary", 0, address, readers, directory)?;
    let mut replica = Role::start(options, "replica", 1, address, readers, directory)?;
    primary.say("go")?;
    replica.say("go")?;
    let reports = (primary.hear("done")?, replica.hear("done")?);
    let samples = (
        node::read_samples(&directory.join("primary.samples"))?,
        node::read_samples(&directory.join("replica.samples"))?,
    );
    let began = samples.0.first().map_or(0, |s| s.0);
    let since = |micros: u64| (micros as f64 - began as f64) / 1e6;
    let change = |(what, from, to): (String, u64, u64)| Change {
        what,
        from: since(from),
        to: since(to),
    };
    let changes = node::read_changes(&directory.join("changes"))?;
    let lags: Vec<_> = join(&samples.0, &samples.1)
        .into_iter()
        .filter(|l| l.0 >= options.warm_up as f64)
        .collect();
    let threads = ["primary", "replica"].map(|role| {
        let looks = threads::read(&directory.join(format!("{role}.threads")));
        (role, threads::shares(&looks, &lags, began))
    });
    Ok(Measured {
        readers,
        changes: changes.into_iter().map(change).collect(),
        lags,
        threads: threads.into(),
        primary: reports.0.parse()?,
        replica: reports.1.parse()?,
    })
}

/// A child process and its two pipes.
struct Role {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
}

impl Role {
    fn start(
        options: &LagOptions,
        role: &str,
        cpu: usize,
        address: SocketAddr,
        readers: u32,
        directory: &Path,
    ) -> Result<Role> {
        let program = std::env::current_exe().map_err(failed)?;
        let mut command = Command::new("taskset");
        command.args(["--cpu-list", &cpu.to_string()]).arg(program);
        command.args(["bench-lag-node", role, "--address", &address.to_string()]);
        command.arg("--directory").arg(directory);
        command.args([
            "--seconds",
            &(options.warm_up + options.seconds).to_string(),
        ]);
        command.args(["--ddl-rows", &options.ddl_rows.to_string()]);
        if options.threads {
            command.args(["--threads", &cpu.to_string()]);
        }
        command.args([
            "--readers",
            &readers.to_string(),
            "--policy",
            &options.policy,
        ]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|e| failed(format!("could not start taskset: {e}")))?;
        let out = child.stdout.take().expect("piped");
        let mut role = Role {
            child,
            out: BufReader::new(out),
        };
        role.hear("ready")?;
        Ok(role)
    }

    fn say(&mut self, word: &str) -> Result<()> {
        let pipe = self.child.stdin.as_mut().expect("piped");
        writeln!(pipe, "{word}").map_err(failed)
    }

    /// The rest of the line that begins with this word. The child keeps the time limit: it ends when its work is over.
    fn hear(&mut self, word: &str) -> Result<String> {
        let mut line = String::new();
        loop {
            line.clear();
            if self.out.read_line(&mut line).map_err(failed)? == 0 {
                return Err(failed(format!("a child ended before it said {word:?}")));
            }
            if let Some(rest) = line.strip_prefix(word) {
                return Ok(rest.trim().to_owned());
            }
        }
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        for _ in 0..100 {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lag_of_a_change_is_that_around_it() {
        let lags = [
            (1.0, 90.0),
            (2.0, 5.0),
            (2.5, 300.0),
            (3.5, 40.0),
            (4.0, 1.0),
            (9.0, 70.0),
        ];
        let change = Change {
            what: "c".into(),
            from: 2.0,
            to: 3.0,
        };
        let (most, late) = change.lag(&lags);
        assert!(
            (most - 300.0).abs() < 1e-9 && (late - 0.54).abs() < 1e-9,
            "{most} {late}"
        );
    }

    #[test]
    fn lags_are_joined_by_position() {
        let primary = [(1_000, 10), (2_000, 20), (3_000, 30)];
        let replica = [(500, 5), (1_500, 10), (2_600, 25), (9_000, 29)];
        let lags: Vec<f64> = join(&primary, &replica).iter().map(|l| l.1).collect();
        assert_eq!(lags, [0.5, 0.6, 6.0]);
        let line: Vec<(f64, f64)> = (0..50).map(|i| (i as f64, 3.0 + 2.0 * i as f64)).collect();
        assert!((slope(&line) - 2.0).abs() < 1e-9);
    }
}
