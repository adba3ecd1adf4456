//! `cargo xtask bench split-workers`: how fast the worker of split values follows its load, a page with charts. The thesis's Figures 21 and 22.
//!
//! The figures come from `bench`'s example `split_workers` (see `bench::split_workers`), which feeds a model of the load to the deciders of
//! the product and counts time without waiting for it. So the page is the same on a busy machine, and the build does not matter.
//!
//! Left out on purpose: what a running server does (`split`).

use super::page;
use super::svg::Chart;
use crate::{Result, command};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::Command;

const USAGE: &str = "cargo xtask bench split-workers [--binary EXAMPLE] [--no-results]";

const POLICIES: [&str; 3] = ["binary", "linear", "quadratic"];
const BALANCES: [&str; 4] = ["minmax", "random", "all", "none"];

/// The loads of the run: name, first second, the second after the last.
const PHASES: [(&str, usize, usize); 3] = [
    ("1,000 tx/s", 0, 75),
    ("1,150 tx/s", 75, 150),
    ("100 tx/s", 150, 225),
];

/// What the program printed.
#[derive(Default)]
struct Figures {
    loads: Vec<String>,
    shares: Vec<String>,
    /// (transactions a second, share) -> records
    need: BTreeMap<(String, String), f64>,
    settled: BTreeMap<String, f64>,
    /// policy -> (share of aborts, records) of each second
    follow: BTreeMap<String, Vec<(f64, f64)>>,
    /// policy -> records looked at in each second
    walk: BTreeMap<String, Vec<f64>>,
}

impl Figures {
    fn take(&mut self, line: &str) -> Option<()> {
        let words: Vec<&str> = line.split('\t').collect();
        let number = |i: usize| words.get(i)?.parse::<f64>().ok();
        let name = (*words.get(1)?).to_owned();
        match words[0] {
            "need" => {
                let share = words.get(2)?.to_string();
                if !self.loads.contains(&name) {
                    self.loads.push(name.clone());
                }
                if !self.shares.contains(&share) {
                    self.shares.push(share.clone());
                }
                self.need.insert((name, share), number(3)?);
            }
            "settled" => drop(self.settled.insert(name, number(2)?)),
            "follow" => self
                .follow
                .entry(name)
                .or_default()
                .push((number(3)?, number(4)?)),
            "walk" => self.walk.entry(name).or_default().push(number(3)?),
            _ => return None,
        }
        Some(())
    }

    fn read(text: &str) -> Result<Figures> {
        let mut f = Figures::default();
        for line in text.lines() {
            f.take(line)
                .ok_or(format!("the program printed `{line}`"))?;
        }
        Ok(f)
    }
}

/// Names of seconds on an axis: each `step`th, so that they do not overlap.
fn seconds(n: usize, step: usize) -> Vec<String> {
    let name = |at: usize| match at % step {
        0 => at.to_string(),
        _ => String::new(),
    };
    (0..n).map(name).collect()
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let n = values.len().max(1) as f64;
    values.sum::<f64>() / n
}

fn needed(f: &Figures) -> (String, String) {
    let mut table = format!(
        "| tx/s | {} | `linear` after 150 s |\n|---|{}\n",
        f.shares
            .iter()
            .map(|s| format!("{s} %"))
            .collect::<Vec<_>>()
            .join(" | "),
        "---|".repeat(f.shares.len() + 1)
    );
    let need = |load: &String, share: &String| f.need.get(&(load.clone(), share.clone())).copied();
    for load in &f.loads {
        let cells: Vec<String> = f
            .shares
            .iter()
            .map(|s| need(load, s).map_or("-".into(), |n| n.to_string()))
            .collect();
        let settled = f.settled.get(load).copied().unwrap_or(0.0);
        let _ = writeln!(table, "| {load} | {} | {settled} |", cells.join(" | "));
    }
    let mut series: Vec<(String, Vec<Option<f64>>)> = f
        .shares
        .iter()
        .map(|s| {
            let values = f.loads.iter().map(|l| need(l, s)).collect();
            (format!("{s} %"), values)
        })
        .collect();
    let settled = f.loads.iter().map(|l| f.settled.get(l).copied());
    series.push(("linear, 150 s".into(), settled.collect()));
    let chart = Chart {
        title: "Records that keep the share of aborts (thesis, Figure 21)",
        x: "transactions per second on one value",
        y: "records",
        places: f.loads.clone(),
        series,
        line_at: None,
    };
    (table, chart.svg())
}

fn followed(f: &Figures) -> (String, [(&'static str, String); 2]) {
    let mut table = "| policy | load | seconds until at most 5 % abort | records then | records at the end | aborts, mean of the last 25 s |\n\
                     |---|---|---|---|---|---|\n"
        .to_owned();
    for policy in POLICIES {
        let Some(all) = f.follow.get(policy) else {
            continue;
        };
        for (load, from, to) in PHASES {
            let phase = &all[from..to];
            let reached = phase.iter().position(|s| s.0 <= 0.05);
            let rest = phase[phase.len() - 25..].iter().map(|s| s.0);
            let _ = writeln!(
                table,
                "| {policy} | {load} | {} | {} | {} | {:.1} % |",
                reached.map_or("never".into(), |r| r.to_string()),
                reached.map_or("-".into(), |r| phase[r].1.to_string()),
                phase[phase.len() - 1].1,
                mean(rest) * 100.0
            );
        }
    }
    let chart = |title, y, of: fn(&(f64, f64)) -> f64| {
        let values = |p: &str| f.follow.get(p).into_iter().flatten().map(of).map(Some);
        let chart = Chart {
            title,
            x: "seconds; 15 % more load from 75 on, a tenth from 150 on",
            y,
            places: seconds(PHASES[2].2, 25),
            series: POLICIES.map(|p| (p.to_owned(), values(p).collect())).into(),
            line_at: None,
        };
        chart.svg()
    };
    let rate = chart(
        "How fast the worker follows (thesis, Figure 22)",
        "aborts, %",
        |s| s.0 * 100.0,
    );
    let records = chart("The same: records", "records", |s| s.1);
    (table, [("aborts", rate), ("records", records)])
}

fn walked(f: &Figures) -> (String, String) {
    let mut table =
        "| `split_balance` | second 0 | 1 to 9 | 10 to 39 |\n|---|---|---|---|\n".to_owned();
    for policy in BALANCES {
        let Some(all) = f.walk.get(policy) else {
            continue;
        };
        let part = |from: usize, to: usize| mean(all[from..to].iter().copied());
        let _ = writeln!(
            table,
            "| {policy} | {:.2} | {:.2} | {:.2} |",
            all[0],
            part(1, 10),
            part(10, 40)
        );
    }
    let values = |p: &str| f.walk.get(p).into_iter().flatten().copied().map(Some);
    let chart = Chart {
        title: "How far a subtraction walks while records are balanced",
        x: "seconds; 4,000 units come to one record at 10, 20 and 30",
        y: "records that a subtraction looks at",
        places: seconds(40, 5),
        series: BALANCES.map(|p| (p.to_owned(), values(p).collect())).into(),
        line_at: None,
    };
    (table, chart.svg())
}

/// What the page says beside its tables.
const MODEL: &str = "\
Time is counted here, and not measured: the program runs the deciders of `node::splits` second by second, and chance has a seed. The page is the same on each machine.

**The load is the thesis's model** (§4.3.3). Each second has n transactions of 5 ms that change one value, and each begins at a random moment of the first 995 ms. It takes
a random record, and aborts if another one has committed to that record since it began. In Canon nothing aborts so, and a commit holds a record for microseconds. The
worker counts the commits that waited. So this shows how the decider follows a rate. It does not say how many records a value of Canon needs
(`cargo xtask bench split --with records`).

The goal is 5 %, and records go below 1 %, as in the thesis. A value may have 1,024 records here; Canon's default is 64.
";

pub fn main(args: &[String]) -> Result<()> {
    let (mut binary, mut write) = (None, true);
    let mut it = args.iter();
    while let Some(arg) = it.next() {
        match arg.as_str() {
            "--binary" => binary = Some(PathBuf::from(it.next().ok_or(USAGE)?)),
            "--no-results" => write = false,
            _ => return Err(USAGE.into()),
        }
    }
    let binary = match binary {
        Some(binary) => binary,
        None => {
            let build = ["build", "--package", "bench", "--example", "split_workers"];
            command::output(&mut command::cargo(&build))?;
            command::target_dir().join("debug/examples/split_workers")
        }
    };
    let f = Figures::read(&command::output(&mut Command::new(binary))?)?;
    let (need, need_chart) = needed(&f);
    let (follow, [rate, records]) = followed(&f);
    let (walk, walk_chart) = walked(&f);
    let head = page::head(
        "How the worker of split values follows its load",
        "cargo xtask bench split-workers",
        args,
    );
    let page = format!(
        "{head}\n{MODEL}\n## Figure 21: records that keep the share of aborts\n\nThe fewest records with which no more than this share aborts, on average over ten \
         seconds; and where `linear` stands, whose goal is 5 %. A second that chance puts above 5 % adds records, and \
         only one below 1 % takes some away, so it stands above the fewest.\n\n{need}\n\
         ## Figure 22: how fast `split_adjust` follows\n\nA look a second, from a value without further records. 1,000 transactions a second, 15 % more after \
         75 seconds. The thesis ends at 150; here the load then falls to a tenth, because the thesis's own formula takes no record away (its maximum should be a minimum).\n\n{follow}\n\
         ## How fast `split_balance` works (mode `rows`)\n\nNot in the thesis. Sixteen records, and all 8,000 units in the first. 200 subtractions of 1 to 3 units a second walk from a random \
         record on; four looks a second; 4,000 units come to one record every ten seconds. The table says how many records a subtraction looks at.\n\n{walk}"
    );
    println!("\n{page}");
    let charts = [("need", need_chart), rate, records, ("walk", walk_chart)];
    match write {
        true => page::store("split-workers", &page, &charts),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_tables_and_charts() {
        let mut text = "need\t100\t5\t9\nsettled\t100\t10\n".to_owned();
        for at in 0..225 {
            let rate = if at < 3 { 0.2 } else { 0.04 };
            text += &format!("follow\tlinear\t{at}\t{rate}\t{at}\n");
        }
        for at in 0..40 {
            text += &format!("walk\tall\t{at}\t1.5\n");
        }
        let f = Figures::read(&text).unwrap();
        assert!(needed(&f).0.contains("| 100 | 9 | 10 |"));
        let (table, charts) = followed(&f);
        assert!(
            table.contains("| linear | 1,000 tx/s | 3 | 3 | 74 | 4.0 % |"),
            "{table}"
        );
        assert_eq!(charts[0].1.matches("<circle").count(), 225);
        assert!(walked(&f).0.contains("| all | 1.50 | 1.50 | 1.50 |"));
        assert!(Figures::read("nonsense").is_err());
    }
}
