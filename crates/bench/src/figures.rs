//! What a run prints: rates, CPU time, latencies, aborts by cause. For people in columns, or for `cargo xtask bench embedded` a line of words
//! with tabs between for each figure.

use base::{Error, Result, SqlState};
use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::time::Duration;
use txn::{Cause, Stats};

/// Latencies in buckets of a sixteenth of a power of two: 6 % wide.
#[derive(Clone)]
pub struct Histogram(Vec<u64>);

impl Default for Histogram {
    fn default() -> Self {
        Histogram(vec![0; 64 * 16])
    }
}

impl Histogram {
    pub fn add(&mut self, nanos: u64) {
        let n = nanos.max(16);
        let top = n.ilog2();
        self.0[((top << 4) | ((n >> (top - 4)) & 15) as u32) as usize] += 1;
    }

    pub fn merge(&mut self, other: &Histogram) {
        for (a, b) in self.0.iter_mut().zip(&other.0) {
            *a += b;
        }
    }

    pub fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The upper end of the bucket of this quantile.
    pub fn quantile(&self, q: f64) -> Duration {
        let wanted = (self.count() as f64 * q).ceil() as u64;
        let mut seen = 0;
        for (i, n) in self.0.iter().enumerate() {
            seen += n;
            if seen >= wanted && *n > 0 {
                let (top, part) = (i as u32 >> 4, i as u64 & 15);
                return Duration::from_nanos((16 + part + 1) << top >> 4);
            }
        }
        Duration::ZERO
    }
}

/// CPU time of this process so far, all its threads.
pub fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after = stat.rsplit(") ").next().unwrap_or_default();
    let ticks: u64 = after
        .split(' ')
        .skip(11)
        .take(2)
        .filter_map(|t| t.parse::<u64>().ok())
        .sum();
    Duration::from_millis(ticks * 10)
}

/// CPU time of the calling thread so far (nanoseconds, where the kernel keeps it).
pub fn thread_cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = stat.split(' ').next().and_then(|n| n.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

/// CPU time so far of each living thread of this process, by name; those of one name together.
pub fn cpu_by_thread() -> BTreeMap<String, Duration> {
    let mut all = BTreeMap::new();
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    for task in tasks.flatten().map(|t| t.path()) {
        let text = |name| std::fs::read_to_string(task.join(name)).unwrap_or_default();
        let schedstat = text("schedstat");
        let nanos = schedstat.split(' ').next().and_then(|n| n.parse().ok());
        *all.entry(text("comm").trim().to_owned()).or_default() +=
            Duration::from_nanos(nanos.unwrap_or(0));
    }
    all
}

/// Counts of aborts and moves at one moment.
#[derive(Clone, Copy)]
pub struct Counts {
    aborts: [u64; Cause::ALL.len()],
    moves: u64,
}

impl Counts {
    pub fn now(stats: &Stats) -> Counts {
        Counts {
            aborts: Cause::ALL.map(|c| stats.aborts(c)),
            moves: stats.moves(),
        }
    }
}

/// What one run did.
pub struct Figures {
    pub name: String,
    pub threads: usize,
    pub wall: Duration,
    /// Of the whole process.
    pub cpu: Duration,
    /// Of the threads that ran transactions.
    pub worker_cpu: Duration,
    /// Of the other threads that took some, by name.
    pub beside: Vec<(String, Duration)>,
    pub latency: Histogram,
    pub before: Counts,
    pub after: Counts,
}

pub fn line(out: &mut dyn Write, text: &str) -> Result<()> {
    writeln!(out, "{text}").map_err(|e| Error::new(SqlState::IO_ERROR, e.to_string()))
}

/// Where figures go.
pub struct Lines<'a> {
    pub out: &'a mut dyn Write,
    /// A line with tabs for each figure.
    pub tabs: bool,
}

impl Lines<'_> {
    pub fn header(&mut self) -> Result<()> {
        if self.tabs {
            return Ok(());
        }
        line(
            self.out,
            &format!(
                "{:<42}{:>4}{:>11}{:>12}{:>12}{:>10}{:>9}{:>9}{:>9}  aborts",
                "",
                "thr",
                "tx/s",
                "tx/s/core*",
                "us CPU/tx",
                "own us",
                "p50 us",
                "p95 us",
                "p99 us"
            ),
        )
    }

    /// A remark.
    pub fn note(&mut self, text: &str) -> Result<()> {
        match self.tabs {
            true => line(self.out, &format!("note\t{text}")),
            false => line(self.out, text),
        }
    }

    pub fn run(&mut self, f: &Figures) -> Result<()> {
        match self.tabs {
            true => line(self.out, &f.tabs()),
            false => line(self.out, &f.to_string()),
        }
    }

    /// `n` transactions without the library.
    pub fn bare(&mut self, name: &str, n: u64, wall: Duration, cpu: Duration) -> Result<()> {
        let n = n as f64;
        let (rate, core) = (n / wall.as_secs_f64(), n / cpu.as_secs_f64());
        let text = match self.tabs {
            true => format!("bare\t{name}\t{rate:.0}\t{core:.0}\t{:.3}", 1e6 / core),
            false => format!("{name:<46}{rate:>11.0}{core:>12.0}{:>12.2}", 1e6 / core),
        };
        line(self.out, &text)
    }
}

impl Figures {
    /// Microseconds per transaction.
    fn per(&self, d: Duration) -> f64 {
        d.as_secs_f64() * 1e6 / self.latency.count() as f64
    }

    /// Runs that lost, by cause, in per cent of the transactions.
    fn aborts(&self) -> impl Iterator<Item = (&'static str, f64)> {
        Cause::ALL.into_iter().filter_map(|c| {
            let n = self.after.aborts[c as usize] - self.before.aborts[c as usize];
            let share = n as f64 * 100.0 / self.latency.count() as f64;
            (n > 0).then(|| (c.name(), share))
        })
    }

    fn beside(&self) -> String {
        let all = self.beside.iter().map(|(name, d)| (name, self.per(*d)));
        let all = all.filter(|b| b.1 >= 0.01);
        let all: Vec<String> = all.map(|(name, us)| format!("{name} {us:.2}")).collect();
        all.join(", ")
    }

    fn tabs(&self) -> String {
        let n = self.latency.count() as f64;
        let us = |q| self.latency.quantile(q).as_secs_f64() * 1e6;
        let causes: Vec<String> = self
            .aborts()
            .map(|(c, s)| format!("{c} {s:.4} %"))
            .collect();
        format!(
            "run\t{}\t{}\t{:.0}\t{:.0}\t{:.3}\t{:.3}\t{:.0}\t{:.0}\t{:.0}\t{:.4}\t{}\t{}",
            self.name,
            self.threads,
            n / self.wall.as_secs_f64(),
            n / self.cpu.as_secs_f64(),
            self.per(self.cpu),
            self.per(self.worker_cpu),
            us(0.5),
            us(0.95),
            us(0.99),
            self.aborts().map(|a| a.1).sum::<f64>(),
            causes.join(", "),
            self.beside()
        )
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.latency.count() as f64;
        let us = |q| self.latency.quantile(q).as_secs_f64() * 1e6;
        write!(
            f,
            "{:<42}{:>4}{:>11.0}{:>12.0}{:>12.2}{:>10.2}{:>9.0}{:>9.0}{:>9.0}  ",
            self.name,
            self.threads,
            n / self.wall.as_secs_f64(),
            n / self.cpu.as_secs_f64(),
            self.per(self.cpu),
            self.per(self.worker_cpu),
            us(0.5),
            us(0.95),
            us(0.99)
        )?;
        let mut none = true;
        for (cause, share) in self.aborts() {
            none = false;
            write!(f, "{cause} {share:.4}% ")?;
        }
        let moves = self.after.moves - self.before.moves;
        if moves > 0 {
            write!(f, "(moves {moves}) ")?;
        }
        if none {
            write!(f, "none")?;
        }
        match self.beside() {
            none if none.is_empty() => Ok(()),
            beside => write!(f, "\n  beside, us: {beside}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_bucket() {
        let mut h = Histogram::default();
        for i in 1..=1000u64 {
            h.add(i * 1000);
        }
        for (q, want) in [(0.5, 500.0), (0.99, 990.0)] {
            let got = h.quantile(q).as_secs_f64() * 1e6;
            assert!((want..want * 1.08).contains(&got), "{q}: {got}");
        }
    }
}
