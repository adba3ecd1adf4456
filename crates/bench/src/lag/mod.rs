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
//! What is printed is the body of a page: how it is measured, a line per number of readers, whether the aim is met, and what changes of
//! the schema do. `cargo xtask bench lag` puts a head before it.
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
    /// Seconds of load per line of the table; half of it with readers that saturate, and for the changes of the schema
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
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
    /// How the log goes to the replica: auto (a ring in shared memory), message
    #[arg(long, default_value = "auto")]
    pub ring: String,
    /// Where temporary data directories are made
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// At last change the schema of a third table with so many rows during the load, and say what lag each change makes; 0: no changes
    #[arg(long, default_value_t = 500_000)]
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

/// One run, and so one line of the table.
#[derive(Clone, Copy)]
struct Run {
    readers: u32,
    /// After the warming up.
    seconds: u64,
    /// Of the table whose schema changes.
    ddl_rows: u64,
}

/// What a run came to.
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
    /// `CAUGHT_UP` for the last time, in seconds. None: nothing was written then.
    fn lag(&self, lags: &[(f64, f64)]) -> Option<(f64, f64)> {
        let near = |l: &&(f64, f64)| (self.from..self.to + AFTER).contains(&l.0);
        let near: Vec<_> = lags.iter().filter(near).collect();
        let highest = near.iter().fold((0.0, 0.0), |(most, late): (f64, f64), l| {
            let still = if l.1 > CAUGHT_UP {
                l.0 + l.1 / 1e3 - self.to
            } else {
                0.0
            };
            (most.max(l.1), late.max(still))
        });
        (!near.is_empty()).then_some(highest)
    }
}

fn failed(what: impl std::fmt::Display) -> Error {
    Error::new(SqlState::SYSTEM_ERROR, what.to_string())
}

/// What the page says of a replica that keeps up: milliseconds at p99, and milliseconds of lag per second.
const AIM: (f64, f64) = (20.0, 1.0);

/// Runs everything and writes the body of a page.
pub fn run(options: &LagOptions, out: &mut dyn Write) -> Result<()> {
    let parent = options.directory.clone().unwrap_or_else(std::env::temp_dir);
    let directory = parent.join(format!("canon-lag-{}", std::process::id()));
    let measure = |run: Run| {
        let measured = measure(options, run, &directory);
        _ = std::fs::remove_dir_all(&directory);
        measured
    };
    let half = options.seconds.div_ceil(2);
    let saturating = options.readers.contains(&SATURATING);
    line(out, &method(options, saturating.then_some(half)))?;
    let mut all = Vec::new();
    for &readers in &options.readers {
        let m = measure(Run {
            readers,
            seconds: if readers == SATURATING {
                half
            } else {
                options.seconds
            },
            ddl_rows: 0,
        })?;
        line(out, &row(&m))?;
        all.push(m);
    }
    line(out, &verdict(&all))?;
    for m in all.iter().filter(|_| options.threads) {
        shares(m, out)?;
    }
    if options.ddl_rows > 0 {
        let m = measure(Run {
            readers: 0,
            seconds: half,
            ddl_rows: options.ddl_rows,
        })?;
        changes(&m, options, half, out)?;
    }
    if let Some(file) = &options.plot {
        let name = |m: &Measured| format!("{} reads/s", rate_name(m.readers));
        let lines: Vec<_> = all.iter().map(|m| (name(m), &m.lags[..])).collect();
        std::fs::write(file, plot::svg(&lines)).map_err(failed)?;
    }
    Ok(())
}

/// How it is measured, and the table's head. `saturating`: seconds of that run, if there is one.
fn method(options: &LagOptions, saturating: Option<u64>) -> String {
    let max = saturating.map_or(String::new(), |s| {
        format!(
            " `max` is one thread that reads as fast as it can on\nthe CPU that replays, for {s} s."
        )
    });
    format!(
        "From *published* at the primary to *visible* at the replica, one clock, a sample every millisecond, after {} s of load that do not count. \
         The\nprimary and its load (inside its process, as fast as one CPU goes: three updates, one of them of an indexed column, an insert and a \
         delete per\ntransaction) have one CPU, the replica and its readers the other. Both logs are on the same disk. The replica replays by the \
         policy `{}`. One run of\n{} s for each line.{max}\n\n\
         | reads/s at the replica | transactions/s | rows/s | lag p50 | p99 | max | slope | replica's CPU | reads done/s | read p99 |\n\
         |---|---|---|---|---|---|---|---|---|---|",
        options.warm_up, options.policy, options.seconds
    )
}

/// Whether the aim is met, in words; readers that saturate are not of it.
fn verdict(all: &[Measured]) -> String {
    let paced: Vec<_> = all.iter().filter(|m| m.readers != SATURATING).collect();
    let missed: Vec<String> = paced
        .iter()
        .filter(|m| !(m.quantile(0.99) <= AIM.0 && slope(&m.lags) < AIM.1))
        .map(|m| rate_name(m.readers))
        .collect();
    let met = match (paced.is_empty(), missed.is_empty()) {
        (true, _) => return String::new(),
        (_, true) => "met on every line".to_owned(),
        _ => format!("**missed** with {} reads/s", missed.join(", ")),
    };
    format!(
        "\nThe aim with paced readers, p99 at most {} ms and a slope under {} ms per second, is {met}.",
        AIM.0, AIM.1
    )
}

/// What changes of the schema did.
fn changes(m: &Measured, options: &LagOptions, seconds: u64, out: &mut dyn Write) -> Result<()> {
    let first = m.changes.first().map_or(0.0, |c| c.from);
    let mut before: Vec<f64> = m.lags.iter().filter(|l| l.0 < first).map(|l| l.1).collect();
    before.sort_by(f64::total_cmp);
    line(
        out,
        &format!(
            "\n## Changes of the schema\n\n\
             The same load for {seconds} s without readers, and beside it changes of a third table of {} rows and of the one that is updated, \
             through SQL at the\nprimary. Over all of it {:.0} transactions/s, lag p50 {:.2} ms, p99 {:.2} ms; before the first change p99 {:.2} ms. \
             *Greatest lag*: from the change's\nbeginning until {AFTER} s after its end.\n\n\
             | change | took at the primary | greatest lag | above {CAUGHT_UP} ms until, after its end |\n|---|---|---|---|",
            options.ddl_rows,
            m.primary.operations as f64 / m.primary.seconds,
            m.quantile(0.5),
            m.quantile(0.99),
            quantile(&before, 0.99),
        ),
    )?;
    for c in &m.changes {
        let lag = match c.lag(&m.lags) {
            Some((most, late)) => format!("{most:.2} ms | {late:.2} s"),
            None => "the load was over |".into(),
        };
        let took = (c.to - c.from) * 1e3;
        line(out, &format!("| `{}` | {took:.0} ms | {lag} |", c.what))?;
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

impl Measured {
    /// Of the lag, in milliseconds.
    fn quantile(&self, q: f64) -> f64 {
        let mut sorted: Vec<f64> = self.lags.iter().map(|l| l.1).collect();
        sorted.sort_by(f64::total_cmp);
        quantile(&sorted, q)
    }
}

fn quantile(sorted: &[f64], q: f64) -> f64 {
    let i = (sorted.len() as f64 * q) as usize;
    let value = sorted.get(i.min(sorted.len().saturating_sub(1)));
    value.copied().unwrap_or(f64::NAN)
}

fn row(m: &Measured) -> String {
    let (p, r) = (&m.primary, &m.replica);
    format!(
        "| {} | {:.0} | {:.0} | {:.2} ms | {:.2} ms | {:.2} ms | {:+.3} ms/s | {:.0} % | {:.0} | {:.0} us |",
        rate_name(m.readers),
        p.operations as f64 / p.seconds,
        p.rows as f64 / p.seconds,
        m.quantile(0.5),
        m.quantile(0.99),
        m.quantile(1.0),
        slope(&m.lags),
        100.0 * r.cpu_seconds / r.seconds,
        r.operations as f64 / r.seconds,
        r.p99_micros,
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

fn measure(options: &LagOptions, run: Run, directory: &Path) -> Result<Measured> {
    let address = server::cluster::free_address()?;
    let mut primary = Role::start(options, "primary", 0, address, run, directory)?;
    let mut replica = Role::start(options, "replica", 1, address, run, directory)?;
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
        readers: run.readers,
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
        run: Run,
        directory: &Path,
    ) -> Result<Role> {
        let program = std::env::current_exe().map_err(failed)?;
        let mut command = Command::new("taskset");
        command.args(["--cpu-list", &cpu.to_string()]).arg(program);
        command.args(["bench-lag-node", role, "--address", &address.to_string()]);
        command.arg("--directory").arg(directory);
        let (warm_up, seconds) = (options.warm_up.to_string(), run.seconds.to_string());
        command.args(["--warm-up", &warm_up, "--seconds", &seconds]);
        command.args(["--ddl-rows", &run.ddl_rows.to_string()]);
        command.args(["--readers", &run.readers.to_string()]);
        command.args(["--policy", &options.policy, "--ring", &options.ring]);
        if options.threads {
            command.args(["--threads", &cpu.to_string()]);
        }
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
        assert!(change.lag(&lags[..1]).is_none());
        let (most, late) = change.lag(&lags).expect("some near it");
        assert!(
            (most - 300.0).abs() < 1e-9 && (late - 0.54).abs() < 1e-9,
            "{most} {late}"
        );
    }

    #[test]
    fn the_page_says_which_line_misses_the_aim() {
        let measured = |readers, lag| Measured {
            readers,
            lags: (0..10).map(|i| (f64::from(i), lag)).collect(),
            changes: vec![],
            primary: node::Report::default(),
            replica: node::Report::default(),
            threads: vec![],
        };
        let says = |all: &[Measured], words: &str| {
            let said = verdict(all);
            assert!(said.contains(words), "{said}");
        };
        says(
            &[measured(0, 19.0), measured(SATURATING, 90.0)],
            "met on every line",
        );
        says(
            &[measured(0, 19.0), measured(100, 21.0)],
            "**missed** with 100 reads/s",
        );
        let mut grows = measured(7, 0.0);
        grows.lags = vec![(0.0, 1.0), (1.0, 2.5)];
        says(&[grows], "**missed** with 7 reads/s");
        assert_eq!(verdict(&[measured(SATURATING, 1.0)]), "");
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
