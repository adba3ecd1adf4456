//! The lines that `library_bench --tabs` prints, gathered over rounds, and their tables.

use std::collections::BTreeMap;
use std::fmt::Write;

/// One run of a load.
pub struct Run {
    pub tps: f64,
    pub core: f64,
    /// CPU of the process per transaction, and of it the threads that ran them, in microseconds.
    pub us: f64,
    pub own: f64,
    pub p50: f64,
    pub p99: f64,
    /// Runs that lost, in per cent of the transactions.
    pub aborts: f64,
    causes: BTreeMap<String, f64>,
    /// CPU of other threads per transaction by name, in microseconds.
    pub beside: BTreeMap<String, f64>,
}

/// A load at a number of threads, or one without the library, with its rounds.
type Rounds<K, V> = Vec<(K, Vec<V>)>;

#[derive(Default)]
pub struct Figures {
    pub runs: Rounds<(String, u32), Run>,
    /// (transactions per second of CPU, microseconds of CPU)
    pub bare: Rounds<String, (f64, f64)>,
    notes: Vec<String>,
}

fn put<K: PartialEq, V>(all: &mut Rounds<K, V>, key: K, value: V) {
    match all.iter_mut().find(|e| e.0 == key) {
        Some(e) => e.1.push(value),
        None => all.push((key, vec![value])),
    }
}

/// `name 1.5, other 2` with whatever stands behind the numbers.
fn list(text: &str) -> BTreeMap<String, f64> {
    let one = |part: &str| {
        let mut words = part.split(' ').filter(|w| !w.is_empty() && *w != "%");
        let number = words.next_back()?.parse().ok()?;
        Some((words.collect::<Vec<_>>().join(" "), number))
    };
    text.split(',').filter_map(one).collect()
}

/// Median, smallest, largest.
pub fn spread(all: impl Iterator<Item = f64>) -> (f64, f64, f64) {
    let mut all: Vec<f64> = all.collect();
    all.sort_by(f64::total_cmp);
    match all.as_slice() {
        [] => (f64::NAN, f64::NAN, f64::NAN),
        s => (s[s.len() / 2], s[0], s[s.len() - 1]),
    }
}

pub fn median<T>(all: &[T], figure: impl Fn(&T) -> f64) -> f64 {
    spread(all.iter().map(figure)).0
}

/// The median of each name that occurs; nothing where it is missing.
pub fn medians<T>(
    all: &[T],
    figures: impl Fn(&T) -> &BTreeMap<String, f64>,
) -> BTreeMap<String, f64> {
    let names = all.iter().flat_map(|r| figures(r).keys());
    let of = |name: &String| median(all, |r| figures(r).get(name).copied().unwrap_or(0.0));
    names.map(|name| (name.clone(), of(name))).collect()
}

/// With a comma between thousands.
pub fn grouped(x: f64) -> String {
    let digits = format!("{x:.0}");
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) && out != "-" {
            out.push(',');
        }
        out.push(c);
    }
    out
}

impl Figures {
    pub fn take(&mut self, line: &str) -> Option<()> {
        let words: Vec<&str> = line.split('\t').collect();
        let number = |i: usize| words.get(i)?.parse::<f64>().ok();
        let name = words.get(1)?.to_string();
        match *words.first()? {
            "note" => self.notes.push(name),
            "bare" => put(&mut self.bare, name, (number(3)?, number(4)?)),
            "run" => {
                let run = Run {
                    tps: number(3)?,
                    core: number(4)?,
                    us: number(5)?,
                    own: number(6)?,
                    p50: number(7)?,
                    p99: number(9)?,
                    aborts: number(10)?,
                    causes: list(words.get(11)?),
                    beside: list(words.get(12)?),
                };
                put(&mut self.runs, (name, number(2)? as u32), run);
            }
            _ => return None,
        }
        Some(())
    }

    pub fn of(&self, load: &str, threads: u32) -> &[Run] {
        let found = self.runs.iter().find(|r| r.0.0 == load && r.0.1 == threads);
        found.map_or(&[], |r| &r.1)
    }

    /// Microseconds of CPU of what is named so, without the library.
    pub fn bare(&self, name: &str) -> Option<f64> {
        let found = self.bare.iter().find(|b| b.0 == name)?;
        Some(median(&found.1, |b| b.1))
    }

    /// Microseconds of the one thread that ran this load.
    pub fn median_own(&self, load: &str) -> f64 {
        median(self.of(load, 1), |r| r.own)
    }

    pub fn tables(&self, text: &mut String) {
        self.runs(text);
        self.distance(text);
    }

    /// The library's own figures.
    pub fn runs(&self, text: &mut String) {
        text.push_str("| load | threads | tx/s (wall) | per core | us | own us | beside, us | p50 us | p99 us | aborts |\n");
        text.push_str("|---|---|---|---|---|---|---|---|---|---|\n");
        for ((load, threads), rounds) in &self.runs {
            let of = |figure: fn(&Run) -> f64| {
                let (m, least, most) = spread(rounds.iter().map(figure));
                format!("{} ({}..{})", grouped(m), grouped(least), grouped(most))
            };
            let us = |figure: fn(&Run) -> f64| format!("{:.1}", median(rounds, figure));
            let beside: Vec<String> = medians(rounds, |r| &r.beside)
                .into_iter()
                .filter(|b| b.1 >= 0.05)
                .map(|(name, us)| format!("{name} {us:.1}"))
                .collect();
            let mut causes: Vec<_> = medians(rounds, |r| &r.causes).into_iter().collect();
            causes.sort_by(|a, b| b.1.total_cmp(&a.1));
            causes.truncate(2);
            let causes: Vec<String> = causes
                .iter()
                .map(|(name, share)| format!("{name} {share:.3} %"))
                .collect();
            let aborts = match median(rounds, |r| r.aborts) {
                0.0 => "none".to_owned(),
                share => format!("{share:.3} % ({})", causes.join(", ")),
            };
            let _ = writeln!(
                text,
                "| {load} | {threads} | {} | {} | {} | {} | {} | {:.0} | {:.0} | {aborts} |",
                of(|r| r.tps),
                of(|r| r.core),
                us(|r| r.us),
                us(|r| r.own),
                beside.join(", "),
                median(rounds, |r| r.p50),
                median(rounds, |r| r.p99),
            );
        }
    }

    fn distance(&self, text: &mut String) {
        text.push_str(
            "\nWhat a transaction cannot be faster than: the same workloads with the same keys and rows over the index and the rows alone (no \
             transactions, one thread; *log*: and what they wrote appended and synced in groups of 64), and parts of it. *Of the library*: what \
             this is of the same load's CPU in the table above, one thread, pipelined.\n\n\
             | without the library | us CPU | per core | of the library |\n|---|---|---|---|\n",
        );
        for (name, rounds) in &self.bare {
            let us = median(rounds, |b| b.1);
            let of = self.counterpart(name).map_or("-".to_owned(), |library| {
                format!("{:.0} %", us * 100.0 / library)
            });
            let core = grouped(median(rounds, |b| b.0));
            let _ = writeln!(text, "| {name} | {us:.2} | {core} | {of} |");
        }
        let mut notes = self.notes.clone();
        notes.dedup();
        let last = |about: &str| notes.iter().rfind(|n| n.contains(about));
        for about in [" rows: ", " warehouses: ", "consistency"] {
            if let Some(note) = last(about) {
                let _ = writeln!(text, "\n{}: {note}.", label(about));
            }
        }
    }

    /// CPU of the library for a load that was also run without it.
    fn counterpart(&self, bare: &str) -> Option<f64> {
        let load = bare.strip_prefix("bare ")?.trim_end_matches(", log");
        let name = match load.strip_suffix(", ahead") {
            Some(load) => format!("{load}, pipelined, ahead"),
            None => format!("{load}, pipelined"),
        };
        let runs = self.of(&name, 1);
        (!runs.is_empty()).then(|| median(runs, |r| r.us))
    }
}

fn label(about: &str) -> &'static str {
    match about {
        " rows: " => "Load of YCSB, last round",
        " warehouses: " => "Load of TPC-C, last round",
        _ => "After the runs of each round",
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub const LINES: [&str; 8] = [
        "note\tloaded 1000000 rows: 2 s",
        "run\tycsb uniform, pipelined, ahead\t1\t100000\t120000\t8.333\t7.000\t12\t20\t30\t0.0000\t\tflusher 1.00, housekeeper 0.30",
        "run\tycsb uniform, pipelined, ahead\t1\t90000\t110000\t9.091\t7.100\t12\t20\t30\t0.0000\t\tflusher 1.10",
        "run\tycsb uniform, pipelined, ahead\t1\t110000\t130000\t7.692\t6.900\t12\t20\t30\t0.0000\t\tflusher 0.90",
        "run\tycsb uniform, pipelined, ahead\t2\t150000\t100000\t10.000\t8.000\t12\t20\t30\t0.5000\tread_changed 0.4000 %, write_conflict 0.1000 %\t",
        "bare\tbare ycsb uniform, ahead\t300000\t310000\t3.200",
        "bare\tbare ycsb uniform, ahead, log\t250000\t250000\t4.000",
        "bare\tbare log, groups of 64\t2000000\t2000000\t0.500",
    ];

    pub fn sample() -> Figures {
        let mut f = Figures::default();
        LINES.iter().for_each(|l| f.take(l).unwrap());
        f
    }

    #[test]
    fn lines_become_medians_and_shares() {
        let f = sample();
        assert!(Figures::default().take("nonsense").is_none());
        assert!(Figures::default().take("bare\tx\t1").is_none());
        let mut text = String::new();
        f.tables(&mut text);
        let row = "| ycsb uniform, pipelined, ahead | 1 | 100,000 (90,000..110,000) | 120,000 (110,000..130,000) | 8.3 | 7.0 | flusher 1.0 | 12 | 30 | none |";
        assert!(text.contains(row), "{text}");
        assert!(
            text.contains("| 0.500 % (read_changed 0.400 %, write_conflict 0.100 %) |"),
            "{text}"
        );
        assert!(
            text.contains("| bare ycsb uniform, ahead, log | 4.00 | 250,000 | 48 % |"),
            "{text}"
        );
        assert!(
            text.contains("| bare log, groups of 64 | 0.50 | 2,000,000 | - |"),
            "{text}"
        );
        assert_eq!(grouped(1234567.0), "1,234,567");
        assert_eq!(grouped(-999.0), "-999");
    }
}
