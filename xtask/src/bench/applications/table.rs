//! The page: speed and aborts of both servers for each benchmark and isolation level.
//!
//! A figure is the median of the rounds. A ratio is canon's over PostgreSQL's in the same round, and the table has the median of these with the
//! smallest and the largest. Shares are of committed transactions.
//!
//! Left out on purpose: intervals, for which a page like this has too few rounds.

use super::driver::Figures;
use crate::Result;
use crate::bench::loads::{OURS, PEER};
use crate::bench::sample::Spread;
use std::fmt::Write;

/// The rounds of a benchmark at one level: PostgreSQL's, then ours.
pub struct Row {
    label: String,
    level: String,
    samples: [Vec<Figures>; 2],
}

#[derive(Default)]
pub struct Table {
    /// What was run how.
    head: Vec<String>,
    rows: Vec<Row>,
    /// Benchmarks that did not come to their end, and why.
    failed: Vec<(String, String)>,
}

impl Row {
    pub fn new(name: &str, scale: &str, level: &str, samples: [Vec<Figures>; 2]) -> Row {
        Row {
            label: format!("{name} ({scale})"),
            level: level.into(),
            samples,
        }
    }

    fn median(&self, server: usize, figure: fn(&Figures) -> f64) -> f64 {
        let all = self.samples[server].iter().map(figure).collect();
        Spread::over(all).map_or(f64::NAN, |s| s.median)
    }

    /// Ours over PostgreSQL's transactions per second, round by round.
    fn ratio(&self) -> Option<Spread> {
        let pairs = self.samples[0].iter().zip(&self.samples[1]);
        Spread::over(pairs.map(|(peer, ours)| ours.tps / peer.tps).collect())
    }

    fn speed(&self) -> String {
        let ratio = self.ratio().map_or("-".into(), |r| {
            format!("{:.2} ({:.2} .. {:.2})", r.median, r.least, r.most)
        });
        let of = |figure| (self.median(0, figure), self.median(1, figure));
        let (tps, p99, cpu) = (of(|f| f.tps), of(|f| f.p99_ms), of(|f| f.cpu_us));
        format!(
            "| {} | {} | {:.0} | {:.0} | {ratio} | {:.1} | {:.1} | {:.0} | {:.0} |\n",
            self.label, self.level, tps.0, tps.1, p99.0, p99.1, cpu.0, cpu.1
        )
    }

    fn aborts(&self) -> String {
        let mut line = format!("| {} | {} |", self.label, self.level);
        for server in 0..2 {
            let told = self.samples[server].iter().all(|f| f.rolled_back.is_some());
            let rolled_back = match told {
                true => percent(self.median(server, |f| f.rolled_back.unwrap_or(0.0))),
                false => "in the next".into(),
            };
            let retried = percent(self.median(server, |f| f.retried));
            let _ = write!(
                line,
                " {rolled_back} | {retried} | {} |",
                self.errors(server)
            );
        }
        line + "\n"
    }

    /// The share of errors, with how often each SQLSTATE was one in all rounds.
    fn errors(&self, server: usize) -> String {
        let mut states = std::collections::BTreeMap::new();
        for (state, times) in self.samples[server].iter().flat_map(|f| &f.states) {
            *states.entry(state).or_insert(0) += times;
        }
        let states: Vec<String> = states.iter().map(|(s, n)| format!("{s} × {n}")).collect();
        let share = percent(self.median(server, |f| f.errors));
        match states.is_empty() {
            true => share,
            false => format!("{share} ({})", states.join(", ")),
        }
    }
}

fn percent(share: f64) -> String {
    match share {
        0.0 => "0".into(),
        _ => format!("{:.2} %", share * 100.0),
    }
}

impl Table {
    /// `head`: which checkouts were run and how, and what was not.
    pub fn new(head: Vec<String>) -> Table {
        Table {
            head,
            ..Table::default()
        }
    }

    pub fn add(&mut self, row: Row) {
        self.rows.push(row);
    }

    pub fn failed(&mut self, name: &str, why: &str) {
        self.failed.push((name.into(), why.into()));
    }

    pub fn page(&self, head: &str, postgres: &str, minutes: f64) -> String {
        let mut page = head.to_owned();
        let _ = writeln!(page, "- {postgres}");
        for line in &self.head {
            let _ = writeln!(page, "- {line}");
        }
        let _ = writeln!(page, "- the whole command took {minutes:.0} minutes\n");
        page += "## Speed\n\nMedians of the rounds. The ratio is that of a round, median (smallest .. largest). CPU is the server's, per committed transaction.\n\n";
        let _ = writeln!(
            page,
            "| benchmark | isolation | {PEER}, tx/s | {OURS}, tx/s | ratio | {PEER}, p99 ms | {OURS}, p99 ms | {PEER}, CPU µs/tx | {OURS}, CPU µs/tx |\n|---|---|---|---|---|---|---|---|---|"
        );
        for row in &self.rows {
            page += &row.speed();
        }
        page += "\n## Aborts\n\nPer committed transaction: rolled back as the benchmark wants it, tried again after 40001, and errors that the benchmark does not expect, with their SQLSTATE in all rounds.\n\n";
        let _ = writeln!(
            page,
            "| benchmark | isolation | {PEER}: rolled back | tried again | errors | {OURS}: rolled back | tried again | errors |\n|---|---|---|---|---|---|---|---|"
        );
        for row in &self.rows {
            page += &row.aborts();
        }
        let _ = writeln!(page, "\n## Behind {PEER}\n\n{}", self.behind());
        for (name, why) in &self.failed {
            let _ = writeln!(
                page,
                "\n**{name} did not come to its end:**\n\n```\n{}\n```",
                why.trim()
            );
        }
        page
    }

    /// Where the median of the ratios is below 1.
    fn behind(&self) -> String {
        let is = |row: &&Row| row.ratio().is_none_or(|r| r.median < 1.0);
        let rows = self.rows.iter().filter(is);
        let rows: Vec<String> = rows
            .map(|r| format!("- {}, {}", r.label, r.level))
            .collect();
        match (rows.is_empty(), self.rows.is_empty()) {
            (_, true) => "No benchmark came to its end.".into(),
            (true, _) => "No benchmark that is in the table.".into(),
            _ => rows.join("\n"),
        }
    }

    pub fn verdict(&self) -> Result<()> {
        if self.failed.is_empty() {
            return Ok(());
        }
        let names: Vec<&str> = self.failed.iter().map(|f| f.0.as_str()).collect();
        Err(format!("did not come to their end: {}", names.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(tps: f64, errors: f64) -> Figures {
        Figures {
            committed: tps * 10.0,
            tps,
            p99_ms: 3.0,
            cpu_us: 50.0,
            rolled_back: Some(0.01),
            retried: 0.0,
            errors,
            states: [("40P01".to_owned(), 1)].into_iter().collect(),
        }
    }

    fn table() -> Table {
        let rounds = |all: [f64; 3]| all.map(|tps| figures(tps, 0.02)).to_vec();
        let mut table = Table::default();
        let samples = [rounds([100.0, 100.0, 100.0]), rounds([150.0, 90.0, 200.0])];
        table.add(Row::new("tpcc", "2", "read committed", samples));
        let samples = [rounds([100.0, 100.0, 100.0]), rounds([80.0, 99.0, 200.0])];
        table.add(Row::new("voter", "1", "serializable", samples));
        table
    }

    #[test]
    fn a_ratio_is_that_of_one_round() {
        let page = table().page("# A\n", "PostgreSQL 15", 2.4);
        let row =
            "| tpcc (2) | read committed | 100 | 150 | 1.50 (0.90 .. 2.00) | 3.0 | 3.0 | 50 | 50 |";
        assert!(page.contains(row), "{page}");
        assert!(page.contains("1.00 % | 0 | 2.00 % (40P01 × 3) |"), "{page}");
        let (_, behind) = page.split_once("## Behind PostgreSQL").unwrap();
        assert_eq!(behind.trim(), "- voter (1), serializable");
    }

    #[test]
    fn what_failed_is_neither_passed_nor_left_out() {
        let mut table = table();
        assert!(table.verdict().is_ok());
        table.failed("seats", "canon, load: 0A000");
        assert!(table.verdict().unwrap_err().contains("seats"));
        let page = table.page("# A\n", "", 1.0);
        assert!(page.contains("canon, load: 0A000"));
    }
}
