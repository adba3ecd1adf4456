//! `cargo xtask bench replay`: replay against the primary, by policy: a page with tables and charts in `docs/results/`.
//!
//! The measuring is done by `bench`'s example `replay_figures` (see `bench::replay`), one process on all CPUs of this machine; it
//! prints a line per figure, which this gathers into medians. Three runs: as it is; with rows that cost a sleeping wait and many
//! workers (`--row-cost`); and, printed by the first, the discrete-event model.
//!
//! Left out on purpose: pinning. Restrict the CPUs from outside (`taskset`); primary and replica then get the same ones.

use super::svg::Chart;
use crate::{Result, command};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::Command;

const USAGE: &str = "cargo xtask bench replay [--quick] [--rounds 5] [--seconds 2] [--threads 2] [--row-cost 50us] [--row-threads 32] \
                     [--directory DIR] [--only LOAD] [--no-results]";

const POLICIES: [&str; 6] = [
    "serial",
    "table",
    "transaction",
    "page",
    "transaction-worker",
    "row",
];

/// What a run printed.
#[derive(Default)]
struct Figures {
    loads: Vec<String>,
    /// load -> (transactions/s, rows/s, CPU us per transaction) per round
    primary: BTreeMap<String, Vec<(f64, f64, f64)>>,
    /// (load, policy) -> (ratio, CPU us per transaction) per round
    replay: BTreeMap<(String, String), Vec<(f64, f64)>>,
    alone: Vec<(String, f64)>,
    costs: String,
    /// (load, policy) -> (cores, ratio)
    model: BTreeMap<(String, String), Vec<(u32, f64)>>,
    model_loads: Vec<String>,
}

pub fn main(args: &[String]) -> Result<()> {
    let (mut passed, mut write, mut quick) = (Vec::new(), true, false);
    let (mut cost, mut row_threads, mut only) = ("50us".to_string(), "32".to_string(), None);
    let mut it = args.iter();
    while let Some(arg) = it.next() {
        let mut value = || it.next().ok_or(format!("{arg} needs a value\n{USAGE}"));
        match arg.as_str() {
            "--no-results" => write = false,
            "--row-cost" => cost = value()?.clone(),
            "--row-threads" => row_threads = value()?.clone(),
            "--quick" => {
                quick = true;
                passed.push(arg.clone());
            }
            "--only" => {
                let load = value()?;
                only = Some(load.clone());
                passed.extend([arg.clone(), load.clone()]);
            }
            "--rounds" | "--seconds" | "--threads" | "--directory" => {
                passed.extend([arg.clone(), value()?.clone()]);
            }
            other => return Err(format!("`{other}`?\n{USAGE}")),
        }
    }
    println!("building, release");
    let example = ["--package", "bench", "--example", "replay_figures"];
    let mut build = vec!["build", "--release"];
    build.extend(example);
    command::output(&mut command::cargo(&build))?;
    let load_before = loadavg();
    let plain = figures(&passed)?;
    let mut waiting = passed.clone();
    for option in ["--threads", "--seconds"] {
        if let Some(at) = waiting.iter().position(|a| a == option) {
            waiting.drain(at..at + 2);
        }
    }
    // One at a time would take as many times longer as there are clients.
    let policies = "transaction,page,transaction-worker,row";
    let seconds = if quick { "0.2" } else { "0.4" };
    waiting.extend(["--threads", &row_threads, "--row-cost", &cost].map(String::from));
    waiting.extend(["--seconds", seconds, "--policies", policies, "--no-extras"].map(String::from));
    let waiting = figures(&waiting)?;
    let shown = format!("cargo xtask bench replay {}", args.join(" "));
    let about = About {
        command: shown.trim().to_string(),
        load: format!("{load_before} before, {} after", loadavg()),
        wait: format!("{cost} per row write, {row_threads} clients and {row_threads} workers"),
    };
    let mut name = "replay".to_string();
    if quick {
        name += "-quick";
    }
    if let Some(load) = only {
        name += &format!("-{load}");
    }
    let date = said("date", &["-u", "+%Y-%m-%d"]);
    let name = format!("{date}-{name}");
    let (page, charts) = page(&plain, &waiting, &about, &name);
    println!("\n{page}");
    if write {
        let directory = command::root().join("docs").join("results");
        let put = |file: String, text: &str| {
            let path = directory.join(file);
            std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))
        };
        put(format!("{name}.md"), &page)?;
        for (chart, svg) in &charts {
            put(format!("{name}-{chart}.svg"), svg)?;
        }
        println!("written to docs/results/{name}.md");
    }
    Ok(())
}

struct About {
    command: String,
    load: String,
    wait: String,
}

fn said(program: &str, args: &[&str]) -> String {
    let out = command::output(
        Command::new(program)
            .args(args)
            .current_dir(command::root()),
    );
    out.unwrap_or_default().trim().to_string()
}

fn loadavg() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or("?").to_string()
}

/// Runs the program and reads its lines, which it also shows.
fn figures(args: &[String]) -> Result<Figures> {
    use std::io::{BufRead, BufReader};
    let binary = command::target_dir().join("release/examples/replay_figures");
    let mut run = Command::new(&binary);
    run.args(args).stdout(std::process::Stdio::piped());
    let shown = command::show(&run);
    let mut child = run.spawn().map_err(|e| format!("{shown}: {e}"))?;
    let mut f = Figures::default();
    let out = child.stdout.take().expect("piped");
    for line in BufReader::new(out).lines() {
        let line = line.map_err(|e| e.to_string())?;
        println!("   {line}");
        f.take(&line).ok_or(format!("{shown} printed `{line}`"))?;
    }
    let status = child.wait().map_err(|e| e.to_string())?;
    match status.success() {
        true => Ok(f),
        false => Err(format!("{shown}: {status}")),
    }
}

impl Figures {
    fn take(&mut self, line: &str) -> Option<()> {
        let words: Vec<&str> = line.split('\t').collect();
        let number = |i: usize| words.get(i)?.parse::<f64>().ok();
        let name = words.get(1)?.to_string();
        match *words.first()? {
            "primary" => {
                if !self.loads.contains(&name) {
                    self.loads.push(name.clone());
                }
                let figures = (number(3)?, number(4)?, number(5)?);
                self.primary.entry(name).or_default().push(figures);
            }
            "replay" => {
                let key = (name, words.get(3)?.to_string());
                let figures = (number(5)?, number(8)?);
                self.replay.entry(key).or_default().push(figures);
            }
            "alone" => self.alone.push((name, number(2)?)),
            "costs" => self.costs = name,
            "model" => {
                if !self.model_loads.contains(&name) {
                    self.model_loads.push(name.clone());
                }
                let key = (name, words.get(3)?.to_string());
                let figures = (number(2)? as u32, number(4)?);
                self.model.entry(key).or_default().push(figures);
            }
            _ => return None,
        }
        Some(())
    }

    /// Median, smallest, largest ratio.
    fn ratio(&self, load: &str, policy: &str) -> Option<(f64, f64, f64)> {
        let rounds = self.replay.get(&(load.into(), policy.into()))?;
        median(rounds.iter().map(|r| r.0).collect())
    }
}

fn median(mut all: Vec<f64>) -> Option<(f64, f64, f64)> {
    all.sort_by(f64::total_cmp);
    let middle = all.get(all.len() / 2)?;
    Some((*middle, all[0], all[all.len() - 1]))
}

fn ratios(page: &mut String, f: &Figures) {
    let _ = writeln!(
        page,
        "| load | primary, transactions/s | rows/s | CPU us per transaction: primary, row | {} |\n|---|---|---|---|{}",
        POLICIES.join(" | "),
        "---|".repeat(POLICIES.len())
    );
    for load in &f.loads {
        let of = |figure: fn(&(f64, f64, f64)) -> f64| {
            let all = f.primary[load].iter().map(figure).collect();
            median(all).map_or(0.0, |m| m.0)
        };
        let rounds = f.replay.get(&(load.clone(), "row".into()));
        let row = rounds.and_then(|r| median(r.iter().map(|r| r.1).collect()));
        let _ = write!(
            page,
            "| {load} | {:.0} | {:.0} | {:.1}, {:.1} |",
            of(|p| p.0),
            of(|p| p.1),
            of(|p| p.2),
            row.map_or(f64::NAN, |r| r.0)
        );
        for policy in POLICIES {
            let _ = match f.ratio(load, policy) {
                Some((m, least, most)) => write!(page, " {m:.2} ({least:.2}..{most:.2}) |"),
                None => write!(page, " - |"),
            };
        }
        page.push('\n');
    }
}

/// A chart of ratios over loads whose names begin alike.
fn chart_of(f: &Figures, prefix: &str, title: &str, x: &str) -> Option<String> {
    let loads: Vec<&String> = f.loads.iter().filter(|l| l.starts_with(prefix)).collect();
    if loads.len() < 2 {
        return None;
    }
    let series = POLICIES.map(|p| {
        let values = loads.iter().map(|l| f.ratio(l, p).map(|r| r.0)).collect();
        (p.to_string(), values)
    });
    let chart = Chart {
        title,
        x,
        y: "throughput over the primary's",
        places: loads
            .iter()
            .map(|l| l[prefix.len()..].trim().into())
            .collect(),
        series: series.into(),
        line_at: Some(1.0),
    };
    Some(chart.svg())
}

fn model_chart(f: &Figures, load: &str) -> Option<String> {
    let of = |p: &str| f.model.get(&(load.to_string(), p.to_string()));
    let places = of("row")?.iter().map(|c| c.0.to_string()).collect();
    let series = POLICIES.map(|p| {
        let values = of(p).into_iter().flatten().map(|c| Some(c.1)).collect();
        (p.to_string(), values)
    });
    let chart = Chart {
        title: &format!("Model, {load}"),
        x: "cores of the primary, and of the replica",
        y: "throughput over the primary's",
        places,
        series: series.into(),
        line_at: Some(1.0),
    };
    Some(chart.svg())
}

fn page(
    f: &Figures,
    waiting: &Figures,
    about: &About,
    name: &str,
) -> (String, Vec<(String, String)>) {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu
        .lines()
        .find_map(|l| l.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown", |(_, m)| m);
    let mut page = format!(
        "# Replay against the primary\n\n\
         - date: {}\n- machine: {} cores, {model}, Linux {}; load average {}\n- canon at {}\n- command: `{}`\n\n\
         The primary (the library in one process, SERIALIZABLE, pipelined commits) runs a load; its log is kept; each policy replays that \
         log into a fresh store on the same CPUs, with as many workers as the primary had client threads, indexes on, its own log \
         written and synced. Figures are the replayer's throughput over the primary's of the same round: median (smallest..largest) of the \
         rounds. Above 1 the replica keeps up.\n\n",
        said("date", &["-u", "+%Y-%m-%d %H:%M UTC"]),
        said("nproc", &[]),
        said("uname", &["-r"]),
        about.load,
        said("git", &["describe", "--always", "--dirty"]),
        about.command
    );
    let mut charts = Vec::new();
    ratios(&mut page, f);
    let rows: Vec<_> = f
        .loads
        .iter()
        .filter_map(|l| Some((l, f.ratio(l, "row")?)))
        .collect();
    let below = |bar: f64, of: fn(&(f64, f64, f64)) -> f64| {
        let below: Vec<_> = rows
            .iter()
            .filter(|r| of(&r.1) < bar)
            .map(|r| r.0.as_str())
            .collect();
        if below.is_empty() {
            "none".into()
        } else {
            below.join("; ")
        }
    };
    let _ = writeln!(
        page,
        "\nBar for `row` (C5): median at least 1.0 on every line, no round under 0.9. Medians under 1.0: {}. Rounds under 0.9: {}.\n",
        below(1.0, |r| r.0),
        below(0.9, |r| r.1)
    );
    let mut add = |page: &mut String, chart: &str, svg: Option<String>| {
        if let Some(svg) = svg {
            let _ = writeln!(page, "![{chart}]({name}-{chart}.svg)\n");
            charts.push((chart.to_string(), svg));
        }
    };
    add(
        &mut page,
        "adversarial",
        chart_of(
            f,
            "adversarial",
            "n unique inserts, then one hot update",
            "inserts per transaction",
        ),
    );
    add(
        &mut page,
        "districts",
        chart_of(
            f,
            "half and half, hot writes deferred, districts",
            "TPC-C, half NewOrder and half Payment, hot writes deferred",
            "districts",
        ),
    );
    if !f.alone.is_empty() {
        let _ = writeln!(page, "## Parts alone\n\n| what | rows/s |\n|---|---|");
        for (what, rate) in &f.alone {
            let _ = writeln!(page, "| {what} | {rate:.0} |");
        }
        page.push('\n');
    }
    let _ = writeln!(
        page,
        "## Rows that cost a sleeping wait\n\nTwo cores cap what parallelism can show. Here each row write waits besides, at the primary \
         and at the replica alike: {}. So the number of things under way counts, not the cores. The primary locks rows here (two-phase), and the wait comes under the lock.\n",
        about.wait
    );
    ratios(&mut page, waiting);
    page.push('\n');
    add(
        &mut page,
        "waiting",
        chart_of(
            waiting,
            "adversarial",
            "Rows that cost a wait: n inserts, then one hot update",
            "inserts per transaction",
        ),
    );
    if !f.model_loads.is_empty() {
        let _ = writeln!(
            page,
            "## A discrete-event model for more cores\n\nA model, not a measurement (`bench::replay::model`), with costs measured \
             here: {}. It knows the constraints and the costs, not caches or memory bandwidth.\n\n| load | policy | 4 cores | 8 | 16 | 32 | 64 |\n|---|---|{}",
            f.costs,
            "---|".repeat(5)
        );
        for load in &f.model_loads {
            for policy in POLICIES {
                let points = f.model.get(&(load.clone(), policy.to_string()));
                let cells: Vec<_> = points
                    .into_iter()
                    .flatten()
                    .map(|p| format!("{:.2}", p.1))
                    .collect();
                let _ = writeln!(page, "| {load} | {policy} | {} |", cells.join(" | "));
            }
        }
        page.push('\n');
        for load in &f.model_loads {
            if ["adversarial 16", "adversarial 128"].contains(&load.as_str()) {
                let chart = format!("model-{}", load.replace(' ', "-"));
                add(&mut page, &chart, model_chart(f, load));
            }
        }
    }
    (page.trim_end().to_string() + "\n", charts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_medians_and_charts() {
        let mut f = Figures::default();
        for line in [
            "primary\tadversarial 1\t0\t100\t200\t9",
            "replay\tadversarial 1\t0\trow\t150\t1.500\t300\t3\t4",
            "replay\tadversarial 1\t1\trow\t110\t1.100\t300\t3\t4",
            "replay\tadversarial 1\t2\trow\t85\t0.850\t300\t3\t4",
            "primary\tadversarial 2\t0\t100\t300\t9",
            "replay\tadversarial 2\t0\trow\t150\t1.500\t300\t3\t4",
            "alone\tscheduler\t1000000",
            "costs\tprimary 1 ns",
            "model\tadversarial 16\t4\trow\t1.200\t1000",
        ] {
            f.take(line).unwrap();
        }
        assert_eq!(f.ratio("adversarial 1", "row"), Some((1.1, 0.85, 1.5)));
        assert!(f.take("nonsense").is_none());
        let about = About {
            command: "c".into(),
            load: "l".into(),
            wait: "w".into(),
        };
        let (page, charts) = page(&f, &Figures::default(), &about, "x");
        assert!(page.contains("Medians under 1.0: none. Rounds under 0.9: adversarial 1."));
        assert!(charts.iter().any(|c| c.0 == "adversarial"));
        assert!(charts.iter().any(|c| c.0 == "model-adversarial-16"));
    }
}
