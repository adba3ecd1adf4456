//! The page: a table per section, with the machine, the versions and the commands that made it.

use super::loads::{OURS, PEER};
use super::memory::{Memory, PAYLOAD};
use super::programs::Printed;
use super::recovery::Recovered;
use super::sample::Spread;
use super::{Contestant, Options, Row, Sample, Section, constant};
use crate::{Result, clients::Clients, command};
use std::fmt::Write;
use std::process::Command;

pub struct Report {
    page: String,
    others: Vec<Sample>,
}

impl Report {
    pub fn new(options: &Options, clients: &Clients) -> Report {
        let said = |program: &str, args: &[&str]| {
            let out = command::output(
                Command::new(program)
                    .args(args)
                    .current_dir(command::root()),
            );
            out.unwrap_or_default().trim().to_string()
        };
        let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpu
            .lines()
            .find_map(|l| l.strip_prefix("model name")?.split_once(": "));
        let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kilobytes: f64 = memory
            .split_whitespace()
            .nth(1)
            .and_then(|n| n.parse().ok())
            .unwrap_or(0.0);
        let postgres = clients.postgres_bin.join("postgres");
        let mut page = format!("# Bench: {}{}\n\n", options.what, tmpfs(options));
        let _ = writeln!(
            page,
            "- date: {}",
            said("date", &["-u", "+%Y-%m-%d %H:%M UTC"])
        );
        let _ = writeln!(
            page,
            "- machine: {} cores, {}, {:.0} GB, Linux {}",
            said("nproc", &[]),
            model.map_or("unknown", |(_, m)| m),
            kilobytes / 1e6,
            said("uname", &["-r"]),
        );
        let _ = writeln!(
            page,
            "- {}; canon at {}",
            said(&postgres.to_string_lossy(), &["--version"]),
            said("git", &["describe", "--always", "--dirty"]),
        );
        let place = if options.tmpfs {
            "tmpfs (no disk)"
        } else {
            "one disk"
        };
        let _ = writeln!(
            page,
            "- data of both on {place}; {} alternating rounds of {} s; medians (smallest..largest)",
            options.rounds, options.seconds
        );
        let _ = writeln!(page, "- command: `{}`", shown(options));
        Report {
            page,
            others: Vec::new(),
        }
    }

    pub fn memory(&mut self, memory: Memory) {
        let page = &mut self.page;
        let _ = writeln!(page, "\n## Memory per row of pgbench_accounts\n");
        let _ = writeln!(
            page,
            "{:.0} rows of {PAYLOAD:.0} bytes of payload.\n",
            memory.rows
        );
        let _ = writeln!(
            page,
            "| server | bytes per row | over payload | what was measured |\n|---|---|---|---|"
        );
        let measured = [
            (PEER, memory.peer, "pg_total_relation_size"),
            (OURS, memory.ours, "growth of resident memory"),
        ];
        for (name, bytes, how) in measured {
            if let Some(bytes) = bytes {
                let _ = writeln!(
                    page,
                    "| {name} | {bytes:.0} | {:.0} | {how} |",
                    bytes - PAYLOAD
                );
            }
        }
    }

    /// A part that could not be measured is said, and the others go on.
    pub fn missing(&mut self, what: &str, why: &str) {
        println!("{what}: {why}");
        let why = why.trim();
        let _ = writeln!(
            self.page,
            "\n**{what} could not be measured here:**\n\n```\n{why}\n```"
        );
    }

    pub fn recovery(&mut self, all: &[Recovered]) {
        let page = &mut self.page;
        let _ = writeln!(page, "\n## Recovery after `kill -9`\n");
        let _ = writeln!(
            page,
            "| server | rows | seconds until it answers | rows per second | its CPU seconds |"
        );
        let _ = writeln!(page, "|---|---|---|---|---|");
        for one in all {
            let _ = writeln!(
                page,
                "| {} | {:.0} | {:.2} | {:.0} | {:.2} |",
                one.name,
                one.rows,
                one.seconds,
                one.rows / one.seconds,
                one.cpu_seconds
            );
        }
        let _ = writeln!(
            page,
            "\ncanon brings every row back into memory; PostgreSQL replays what its last checkpoint does not hold."
        );
    }

    pub fn printed(&mut self, programs: &[Printed]) {
        let page = &mut self.page;
        let _ = writeln!(page, "\n## Without client and peer");
        for program in programs {
            let _ = writeln!(
                page,
                "\n`{}`\n\n```\n{}\n```",
                program.command,
                program.output.trim_end()
            );
        }
    }

    pub fn section(&mut self, section: &Section) {
        let page = &mut self.page;
        let _ = writeln!(page, "\n## {}\n\nTransactions per second:\n", section.title);
        let labels: Vec<&str> = section.contestants.iter().map(|c| c.label).collect();
        let peer = position(&section.contestants, PEER);
        let ceiling = position(&section.contestants, constant::NAME);
        let ours: Vec<usize> = (0..labels.len())
            .filter(|i| peer.is_some() && labels[*i].starts_with(OURS))
            .collect();
        let mut head = format!("| load | {} |", labels.join(" | "));
        for i in &ours {
            let _ = write!(head, " {} / PostgreSQL |", labels[*i]);
        }
        let bars = section.rows.iter().any(|r| r.load.bar.is_some()) && !ours.is_empty();
        if bars {
            head.push_str(" bar | met |");
        }
        let rule = "|---".repeat(head.matches('|').count() - 1);
        let _ = writeln!(page, "{head}\n{rule}|");
        for row in &section.rows {
            let medians: Vec<f64> = row.samples.iter().map(|s| median(s, |x| x.tps)).collect();
            let mut line = format!("| {} |", row.load.label);
            for samples in &row.samples {
                let _ = write!(line, " {} |", spread(samples, |s| s.tps));
            }
            for i in &ours {
                let _ = write!(line, " {:.2} |", medians[*i] / medians[peer.unwrap_or(*i)]);
            }
            if let (true, Some(bar), Some(peer)) = (bars, row.load.bar, peer) {
                let ceiling = ceiling.map(|c| medians[c]);
                let met: Vec<&str> = ours
                    .iter()
                    .map(|i| verdict(medians[*i], medians[peer], bar, ceiling))
                    .collect();
                let _ = write!(line, " {bar} | {} |", met.join(", "));
            } else if bars {
                line.push_str(" - | - |");
            }
            let _ = writeln!(page, "{line}");
        }
        details(page, section, &labels, peer, ceiling, &ours);
        for (name, why) in &section.unprepared {
            self.missing(name, why);
        }
        let page = &mut self.page;
        let _ = writeln!(page, "\nCommands (N clients):\n");
        let mut commands: Vec<String> = section.rows.iter().map(command_of).collect();
        commands.dedup();
        for command in commands {
            let _ = writeln!(page, "- `{command}`");
        }
        self.others.extend(
            section
                .rows
                .iter()
                .flat_map(|r| r.samples.iter().flatten().cloned()),
        );
    }

    pub fn finish(mut self) -> String {
        if let Some(others) = Spread::of(&self.others, |s| Some(s.others * 100.0)) {
            let _ = writeln!(
                self.page,
                "\nOther processes and the kernel on nobody's behalf used {:.0} % of the machine in the median run \
                 ({:.0}..{:.0} %).",
                others.median, others.least, others.most
            );
        }
        self.page
    }
}

/// CPU, latency and errors, and what clients complained of.
fn details(
    page: &mut String,
    section: &Section,
    labels: &[&str],
    peer: Option<usize>,
    ceiling: Option<usize>,
    ours: &[usize],
) {
    let _ = writeln!(
        page,
        "\nServer CPU per transaction (us), mean latency (ms), retries and failures per transaction:\n"
    );
    let _ = writeln!(
        page,
        "| load | server | CPU us | of PostgreSQL's | at most | met | latency | retries | failures |"
    );
    let _ = writeln!(page, "|---|---|---|---|---|---|---|---|---|");
    let mut complaints = String::new();
    for row in &section.rows {
        let of_peer = peer.map(|p| median(&row.samples[p], |s| s.cpu_us));
        for (i, (label, samples)) in labels.iter().zip(&row.samples).enumerate() {
            let mine = ours.contains(&i);
            let share = of_peer.filter(|_| mine).map_or("-".into(), |p| {
                format!("{:.2}", median(samples, |s| s.cpu_us) / p)
            });
            let bar = row.load.cpu_bar.filter(|_| mine);
            // What a second of the server's CPU is good for.
            let rate = |n: usize| 1.0 / median(&row.samples[n], |s| s.cpu_us);
            let met = bar.zip(peer).map_or("-", |(bar, peer)| {
                verdict(rate(i), rate(peer), 1.0 / bar, ceiling.map(rate))
            });
            let _ = writeln!(
                page,
                "| {} | {label} | {} | {share} | {} | {met} | {:.2} | {:.4} | {:.4} |",
                row.load.label,
                spread(samples, |s| s.cpu_us),
                bar.map_or("-".into(), |b| format!("{b:.2}")),
                median(samples, |s| s.latency_ms),
                median(samples, |s| s.retries),
                median(samples, |s| s.failed),
            );
            let said: Vec<&String> = samples
                .iter()
                .filter_map(|s| s.complaint.as_ref())
                .collect();
            if let Some(first) = said.first() {
                let (n, all) = (said.len(), samples.len());
                let _ = writeln!(
                    complaints,
                    "- {}, {label}: {n} of {all} runs failed: `{first}`",
                    row.load.label
                );
            }
        }
    }
    if !complaints.is_empty() {
        let _ = write!(page, "\nClients that ended with an error:\n\n{complaints}");
    }
}

/// The command line with the number of clients, and the directory of a script, left out.
fn command_of(row: &Row) -> String {
    let shown = row.load.shown();
    let general = shown.split(' ').map(|word| match word.split_once('=') {
        Some((name @ ("--client" | "--threads"), _)) => format!("{name}=N"),
        Some(("--jobs", _)) => "--jobs=min(N,2)".into(),
        Some(("--file", path)) => format!("--file={}", path.rsplit('/').next().unwrap_or(path)),
        _ => word.to_string(),
    });
    let mut line = general.collect::<Vec<_>>().join(" ");
    if let Some(level) = row.load.isolation {
        let _ = write!(line, "  # default_transaction_isolation={level}");
    }
    line
}

fn position(contestants: &[Contestant], name: &str) -> Option<usize> {
    contestants.iter().position(|c| c.label.starts_with(name))
}

fn median(samples: &[Sample], figure: impl Fn(&Sample) -> f64) -> f64 {
    Spread::of(samples, |s| Some(figure(s))).map_or(0.0, |s| s.median)
}

fn spread(samples: &[Sample], figure: impl Fn(&Sample) -> f64) -> String {
    match Spread::of(samples, |s| Some(figure(s))) {
        Some(s) if s.median >= 100.0 => format!("{:.0} ({:.0}..{:.0})", s.median, s.least, s.most),
        Some(s) => format!("{:.1} ({:.1}..{:.1})", s.median, s.least, s.most),
        None => "-".into(),
    }
}

/// A bar above 0.9 of what the client can do at all counts as met at 0.9 of it.
fn verdict(ours: f64, peer: f64, bar: f64, ceiling: Option<f64>) -> &'static str {
    let asked = bar * peer;
    match ceiling.map(|c| 0.9 * c) {
        _ if ours >= asked && peer > 0.0 => "yes",
        Some(reachable) if asked > reachable && ours >= reachable => "yes (0.9 of the ceiling)",
        _ => "no",
    }
}

fn tmpfs(options: &Options) -> &'static str {
    if options.tmpfs { "-tmpfs" } else { "" }
}

fn shown(options: &Options) -> String {
    let mut line = format!(
        "cargo xtask bench {} --rounds {} --seconds {}",
        options.what, options.rounds, options.seconds
    );
    if options.tmpfs {
        line.push_str(" --tmpfs");
    }
    if let Some(binary) = &options.binary {
        let name = binary.file_name().unwrap_or_default();
        let _ = write!(line, " --binary {}", name.to_string_lossy());
    }
    if let Some(only) = &options.only {
        let _ = write!(line, " --only {only}");
    }
    line
}

/// Writes the page below `docs/results` and says where.
pub fn write(options: &Options, page: &str) -> Result<String> {
    let date = command::output(Command::new("date").args(["-u", "+%Y-%m-%d"]))?;
    let only = options
        .only
        .as_ref()
        .map_or(String::new(), |o| format!("-{o}"));
    let name = format!(
        "{}-{}{}{only}.md",
        date.trim(),
        options.what,
        tmpfs(options)
    );
    let path = command::root().join("docs").join("results").join(&name);
    std::fs::write(&path, page).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(format!("docs/results/{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_beyond_the_client_counts_at_nine_tenths() {
        assert_eq!(verdict(200.0, 100.0, 2.0, None), "yes");
        assert_eq!(verdict(190.0, 100.0, 2.0, Some(300.0)), "no");
        assert_eq!(
            verdict(190.0, 100.0, 2.0, Some(210.0)),
            "yes (0.9 of the ceiling)"
        );
        assert_eq!(verdict(180.0, 100.0, 2.0, Some(210.0)), "no");
        assert_eq!(verdict(0.0, 0.0, 2.0, None), "no");
    }
}
