//! One run of one client program, and what is said about several.
//!
//! A client that fails is a result, not the end of the bench: what it said is kept, and what it still reported counts.

use crate::process;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// The program whose output is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    Pgbench,
    Sysbench,
}

/// One run.
#[derive(Debug, Default, Clone)]
pub struct Sample {
    /// Transactions per second.
    pub tps: f64,
    pub latency_ms: f64,
    /// CPU time of the server per transaction, in microseconds.
    pub cpu_us: f64,
    /// Tries beyond the first, per committed transaction.
    pub retries: f64,
    /// Transactions given up, as a share of those committed.
    pub failed: f64,
    /// Share of the machine that neither server nor client used but somebody else did.
    pub others: f64,
    /// What went wrong, if so.
    pub complaint: Option<String>,
}

impl Sample {
    pub fn failed(why: String) -> Sample {
        Sample {
            complaint: Some(why),
            ..Sample::default()
        }
    }
}

/// Runs a client against the server whose first process is `pid`; one that still runs after `limit` is stopped.
pub fn measure(pid: u32, tool: Tool, command: Command, limit: Duration) -> Sample {
    let before = (
        process::cpu_seconds(pid),
        process::reaped_seconds(),
        process::machine_seconds(),
    );
    let out = match finish(command, limit) {
        Ok(out) => out,
        Err(e) => return Sample::failed(e.to_string()),
    };
    let server = process::cpu_seconds(pid) - before.0;
    let client = process::reaped_seconds() - before.1;
    let (busy, total) = process::machine_seconds();
    let (busy, total) = (busy - before.2.0, total - before.2.1);

    let stdout = String::from_utf8_lossy(&out.stdout);
    let stderr = String::from_utf8_lossy(&out.stderr);
    let (mut sample, transactions) = match tool {
        Tool::Pgbench => pgbench(&stdout),
        Tool::Sysbench => sysbench(&stdout),
    };
    if transactions > 0.0 {
        sample.cpu_us = server * 1e6 / transactions;
    }
    sample.others = ((busy - server - client) / total).max(0.0);
    if !out.status.success() {
        let said = stderr.lines().chain(stdout.lines());
        let said = said
            .filter(|l| l.contains("error") || l.contains("FATAL"))
            .find(|l| !l.contains("Run was aborted"));
        sample.complaint = Some(said.map_or(out.status.to_string(), |l| l.trim().to_string()));
    }
    sample
}

fn finish(mut command: Command, limit: Duration) -> std::io::Result<Output> {
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let child = command.stderr(Stdio::piped()).spawn()?;
    let client = child.id();
    let (done, wait) = mpsc::channel::<()>();
    let watch = std::thread::spawn(move || {
        if wait.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout) {
            process::kill_tree(client);
        }
    });
    let out = child.wait_with_output();
    drop(done);
    watch.join().expect("the watch does not panic");
    out
}

/// The number after `label` on its line.
pub fn after(text: &str, label: &str) -> Option<f64> {
    let rest = text.lines().find_map(|l| l.trim().strip_prefix(label))?;
    let number = rest.trim_start_matches([':', '=', ' ', '(']);
    let end = number.find(|c: char| !c.is_ascii_digit() && c != '.');
    number[..end.unwrap_or(number.len())].parse().ok()
}

fn per(n: Option<f64>, transactions: f64) -> f64 {
    n.filter(|_| transactions > 0.0).unwrap_or(0.0) / transactions.max(1.0)
}

/// The sample and the number of transactions.
fn pgbench(out: &str) -> (Sample, f64) {
    let transactions = after(out, "number of transactions actually processed").unwrap_or(0.0);
    let sample = Sample {
        tps: after(out, "tps").unwrap_or(0.0),
        latency_ms: after(out, "latency average").unwrap_or(0.0),
        retries: per(after(out, "total number of retries"), transactions),
        failed: per(after(out, "number of failed transactions"), transactions),
        ..Sample::default()
    };
    (sample, transactions)
}

fn sysbench(out: &str) -> (Sample, f64) {
    let transactions = after(out, "transactions").unwrap_or(0.0);
    let rate = out.lines().find_map(|l| {
        let rest = l.trim().strip_prefix("transactions:")?;
        let (_, inner) = rest.split_once('(')?;
        inner.split_whitespace().next()?.parse().ok()
    });
    let sample = Sample {
        tps: rate.unwrap_or(0.0),
        latency_ms: after(out, "avg").unwrap_or(0.0),
        failed: per(after(out, "ignored errors"), transactions),
        ..Sample::default()
    };
    (sample, transactions)
}

/// Median, smallest and largest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    pub median: f64,
    pub least: f64,
    pub most: f64,
}

impl Spread {
    /// `None` if no sample has the figure.
    pub fn of(samples: &[Sample], figure: impl Fn(&Sample) -> Option<f64>) -> Option<Spread> {
        Spread::over(samples.iter().filter_map(figure).collect())
    }

    pub fn over(mut all: Vec<f64>) -> Option<Spread> {
        all.sort_by(f64::total_cmp);
        let middle = all.len() / 2;
        let median = match all.len() {
            0 => return None,
            n if n % 2 == 1 => all[middle],
            _ => (all[middle - 1] + all[middle]) / 2.0,
        };
        Some(Spread {
            median,
            least: all[0],
            most: all[all.len() - 1],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_pgbench() {
        let (s, n) = pgbench(
            "number of transactions actually processed: 1000\n\
             number of failed transactions: 10 (0.990%)\n\
             number of transactions retried: 40 (3.960%)\n\
             total number of retries: 50\n\
             latency average = 1.250 ms\n\
             tps = 6400.500000 (without initial connection time)",
        );
        assert_eq!((n, s.tps, s.latency_ms), (1000.0, 6400.5, 1.25));
        assert_eq!((s.retries, s.failed), (0.05, 0.01));
    }

    #[test]
    fn reads_sysbench() {
        let (s, n) = sysbench(
            "    transactions:                        942    (188.20 per sec.)\n\
             \x20   ignored errors:                      471      (0.00 per sec.)\n\
             Latency (ms):\n         min:       1.0\n         avg:         8.49\n",
        );
        assert_eq!(
            (n, s.tps, s.latency_ms, s.failed),
            (942.0, 188.2, 8.49, 0.5)
        );
    }

    #[test]
    fn the_median_of_an_even_number_lies_between() {
        let samples: Vec<Sample> = [4.0, 1.0, 3.0, 2.0]
            .into_iter()
            .map(|tps| Sample {
                tps,
                ..Sample::default()
            })
            .collect();
        let spread = Spread::of(&samples, |s| Some(s.tps)).unwrap();
        assert_eq!((spread.median, spread.least, spread.most), (2.5, 1.0, 4.0));
        assert_eq!(Spread::of(&samples, |_| None), None);
    }

    #[test]
    fn a_client_that_fails_is_a_sample_with_a_complaint() {
        let mut sh = Command::new("sh");
        sh.args(["-c", "echo 'pgbench: error: client 0 aborted' >&2; exit 2"]);
        let limit = Duration::from_secs(60);
        let sample = measure(std::process::id(), Tool::Pgbench, sh, limit);
        assert_eq!(
            sample.complaint.as_deref(),
            Some("pgbench: error: client 0 aborted")
        );
        assert_eq!(sample.tps, 0.0);
    }

    #[test]
    fn a_client_that_hangs_is_stopped() {
        let mut sleep = Command::new("sleep");
        sleep.arg("600");
        let sample = measure(std::process::id(), Tool::Pgbench, sleep, Duration::ZERO);
        assert_eq!(sample.complaint.as_deref(), Some("signal: 9 (SIGKILL)"));
    }
}
