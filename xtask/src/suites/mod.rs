//! `cargo xtask clients suites`: drivers' own test suites against canon, beside the same against PostgreSQL 15.
//!
//! ```text
//! cargo xtask clients suites [--only NAME[,NAME…]] [--source DIR] [--binary CANON]
//!
//! suite     installs a suite and knows its command        outcome  what tests did, and the list of those that may fail
//!      └──────▶ here: servers, two runs, docs/results/DATE-suites.md ◀──────┘
//! ```
//! A test counts if PostgreSQL 15 passes it in the same run. A failing test stands on the suite's list (`xtask/clients/suites/NAME.list`) with
//! its reason. One that does not, and a line that no failing test needs any more, fail the command. `DIR` holds a checkout of each
//! suite that no registry has, by name; without it such a suite is named as not run.
//!
//! Left out on purpose: tests of a driver's pool, of its type hints, and those that its authors call slow or dependent on time.

mod outcome;
mod suite;

use crate::guard::Guard;
use crate::server::Server;
use crate::{Result, bench::page, clients, command, process, server};
use outcome::{Judged, Kind, List, Outcome, Outcomes};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use suite::Suite;

const USAGE: &str =
    "cargo xtask clients suites [--only NAME[,NAME…]] [--source DIR] [--binary CANON]";

/// A suite that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(1800);

#[derive(Default)]
struct Options {
    only: Vec<String>,
    source: Option<PathBuf>,
    binary: Option<PathBuf>,
}

fn options(args: &[String]) -> Result<Options> {
    let mut o = Options::default();
    let mut args = args.iter();
    let path = |value: &String| std::path::absolute(value).map_err(|e| e.to_string());
    while let Some(name) = args.next() {
        let value = args.next().ok_or(USAGE)?;
        match name.as_str() {
            "--only" => o.only = value.split(',').map(String::from).collect(),
            "--source" => o.source = Some(path(value)?),
            "--binary" => o.binary = Some(path(value)?),
            _ => return Err(USAGE.into()),
        }
    }
    if let Some(other) = o.only.iter().find(|n| !suite::NAMES.contains(&n.as_str())) {
        return Err(format!("no suite `{other}`\n{USAGE}"));
    }
    Ok(o)
}

struct Ran {
    what: String,
    name: &'static str,
    judged: Judged,
    skipped: usize,
    seconds: f64,
    ended: Option<String>,
}

pub fn main(args: &[String]) -> Result<()> {
    let o = options(args)?;
    let mut guard = Guard::new()?;
    let canon = match &o.binary {
        Some(binary) => binary.clone(),
        None => {
            let build = ["build", "--release", "--package", "canon", "--bin", "canon"];
            command::output(&mut command::cargo(&build))?;
            command::target_dir().join("release").join("canon")
        }
    };
    let parent = server::new_directory(&std::env::temp_dir(), &mut guard)?;
    let kept = command::target_dir().join("suites");
    std::fs::create_dir_all(&kept).map_err(|e| format!("{}: {e}", kept.display()))?;
    let wanted = |n: &str| o.only.is_empty() || o.only.iter().any(|w| w == n);
    let (mut all, mut absent) = (Vec::new(), Vec::new());
    for name in suite::NAMES.into_iter().filter(|n| wanted(n)) {
        let Some(suite) = suite::ready(name, o.source.as_deref())? else {
            println!(
                "  {name}: NOT RUN, no registry has its tests: --source DIR with a checkout DIR/{name}"
            );
            absent.push(name);
            continue;
        };
        let home = parent.join(name);
        let ran = both(&suite, &canon, &home, &kept, &mut guard)?;
        println!("{}", line(&ran));
        all.push(ran);
    }
    let head = page::head(
        "Drivers' own test suites",
        "cargo xtask clients suites",
        args,
    );
    let text = format!("{head}\n{}", report(&all, &absent));
    if o.only.is_empty() && absent.is_empty() {
        page::store("suites", &text, &[])?;
    } else {
        print!("{text}");
    }
    println!("each test with its message: {}", kept.display());
    complaints(&all)
}

/// Runs a suite at PostgreSQL and at canon.
fn both(suite: &Suite, canon: &Path, home: &Path, kept: &Path, guard: &mut Guard) -> Result<Ran> {
    let begun = Instant::now();
    let programs = clients::postgres_bin()?;
    let mut at = |what: &str| -> Result<(Outcomes, Option<String>)> {
        let home = home.join(what);
        let mut servers = Vec::new();
        for i in 0..suite.servers() {
            let home = home.join(i.to_string());
            std::fs::create_dir_all(&home).map_err(|e| e.to_string())?;
            servers.push(match what {
                "postgres" => server::postgres(&programs, &home, guard, true)?,
                _ => server::canon(canon, &home, guard)?,
            });
        }
        let outcomes = run(
            suite,
            &servers,
            &home,
            &kept.join(format!("{}-{what}.log", suite.name)),
        )?;
        Ok((outcomes, servers.iter_mut().find_map(Server::ended)))
    };
    let (postgres, _) = at("postgres")?;
    let (canon, ended) = at("canon")?;
    let file = command::root()
        .join("xtask/clients/suites")
        .join(format!("{}.list", suite.name));
    let list = List::parse(&std::fs::read_to_string(&file).unwrap_or_default())
        .map_err(|e| format!("{}: {e}", file.display()))?;
    let judged = outcome::judge(&postgres, &canon, &list);
    let text: String = judged.tests.iter().map(|t| format!("{t}\n")).collect();
    let file = kept.join(format!("{}.txt", suite.name));
    std::fs::write(&file, text).map_err(|e| format!("{}: {e}", file.display()))?;
    let skipped = canon.values().filter(|o| **o == Outcome::Skipped).count();
    Ok(Ran {
        what: suite.what.clone(),
        name: suite.name,
        judged,
        skipped,
        seconds: begun.elapsed().as_secs_f64(),
        ended,
    })
}

/// One run to its end. What it says is kept in `log`.
fn run(suite: &Suite, servers: &[Server], home: &Path, log: &Path) -> Result<Outcomes> {
    let programs = clients::postgres_bin()?;
    let prepare = suite.prepare()?;
    for server in servers.iter().filter(|_| !prepare.is_empty()) {
        // What a server does not have is refused, and is no reason to stop.
        let mut psql = Command::new(programs.join("psql"));
        psql.args([
            "-Xq",
            "-h",
            "127.0.0.1",
            "-U",
            server::USER,
            "-d",
            server::USER,
        ]);
        psql.args(["-p", &server.port.to_string(), "-c", "SELECT 1"]);
        for statement in prepare.split_inclusive(";\n") {
            psql.args(["-c", statement]);
        }
        _ = psql
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
    }
    let fail = |e: std::io::Error| format!("{}: {e}", log.display());
    let outcomes = home.join("outcomes");
    let ports: Vec<u16> = servers.iter().map(|s| s.port).collect();
    let mut command = suite.command(&ports, &outcomes, home)?;
    let out = std::fs::File::create(log).map_err(fail)?;
    let err = out.try_clone().map_err(fail)?;
    command.stdin(Stdio::null()).stdout(out).stderr(err);
    let shown = command::show(&command);
    let mut child = command.spawn().map_err(|e| format!("{shown}: {e}"))?;
    let begun = Instant::now();
    while child.try_wait().map_err(fail)?.is_none() {
        if begun.elapsed() > LIMIT {
            process::kill_tree(child.id());
            _ = child.wait();
            println!("  {}: not done after {LIMIT:?}", suite.name);
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let read = |path: &Path| std::fs::read(path).map(|b| String::from_utf8_lossy(&b).into_owned());
    let found = match suite.module() {
        Some(module) => outcome::reported_by_go(&read(log).map_err(fail)?, module),
        None => outcome::reported(&read(&outcomes).unwrap_or_default()),
    };
    match found.values().any(|o| *o == Outcome::Passed) {
        false => Err(format!("{shown}: no test passed; see {}", log.display())),
        true => Ok(found),
    }
}

fn line(ran: &Ran) -> String {
    let j = &ran.judged;
    format!(
        "  {:<11} {} of {} ({:.1} %; {:.1} % of all), {} failures not listed, {:.0} s",
        ran.name,
        j.passed,
        j.all - j.later(),
        j.share(),
        j.share_of_all(),
        j.unlisted.len(),
        ran.seconds
    )
}

fn report(all: &[Ran], absent: &[&str]) -> String {
    let mut text = String::from(
        "A test counts if PostgreSQL 15 passes it in the same run. *Later*: it needs an object that a later issue builds, by the suite's list. The share is that\n\
         of the others; beside it stands the share of all.\n\n\
         | suite | PostgreSQL passes | canon passes | later | share | of all | skipped |\n|---|---|---|---|---|---|---|\n",
    );
    for ran in all {
        let j = &ran.judged;
        _ = writeln!(
            text,
            "| {} | {} | {} | {} | {:.1} % | {:.1} % | {} |",
            ran.what,
            j.all,
            j.passed,
            j.later(),
            j.share(),
            j.share_of_all(),
            ran.skipped
        );
    }
    let sum = |f: &dyn Fn(&Judged) -> usize| all.iter().map(|r| f(&r.judged)).sum::<usize>();
    let (whole, passed, later) = (sum(&|j| j.all), sum(&|j| j.passed), sum(&|j| j.later()));
    let share = |of: usize| 100.0 * passed as f64 / of.max(1) as f64;
    _ = writeln!(
        text,
        "| together | {whole} | {passed} | {later} | {:.1} % | {:.1} % | |",
        share(whole - later),
        share(whole)
    );
    for name in absent {
        _ = writeln!(text, "\n{name} was not run: no registry has its tests.");
    }
    text.push_str("\n## Why tests fail\n\nEach test by its name, below its reason, stands in the suite's list: `xtask/clients/suites`.\n\n| suite | kind | reason | tests |\n|---|---|---|---|\n");
    for ran in all {
        for ((kind, reason), n) in &ran.judged.listed {
            let kind = match kind {
                Kind::Later => "later",
                Kind::Differs => "differs",
                Kind::Fails => "fails",
                Kind::Unsteady => "unsteady",
            };
            _ = writeln!(text, "| {} | {kind} | {reason} | {n} |", ran.name);
        }
        let n = ran.judged.unlisted.len();
        if n > 0 {
            _ = writeln!(text, "| {} | not listed | | {n} |", ran.name);
        }
    }
    text
}

/// What a run has to be changed for.
fn complaints(all: &[Ran]) -> Result<()> {
    let mut wrong = String::new();
    for ran in all {
        if let Some(ended) = &ran.ended {
            _ = writeln!(wrong, "{}: {ended}", ran.name);
        }
        for test in &ran.judged.stale {
            _ = writeln!(wrong, "{}: take it off the list: {test}", ran.name);
        }
        for (test, why) in ran.judged.unlisted.iter().take(20) {
            _ = writeln!(
                wrong,
                "{}: fails and is not listed: {test}: {why}",
                ran.name
            );
        }
        if ran.judged.unlisted.len() > 20 {
            let more = ran.judged.unlisted.len() - 20;
            _ = writeln!(wrong, "{}: and {more} more", ran.name);
        }
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(wrong),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read() {
        let o = options(&["--only", "pgx,django", "--source", "x"].map(String::from)).unwrap();
        assert!(o.only == ["pgx", "django"] && o.source.is_some() && o.binary.is_none());
        assert!(options(&["--only".into(), "nothing".into()]).is_err());
    }

    #[test]
    fn the_lists_of_the_checkout_are_read() {
        for name in suite::NAMES {
            let file = command::root()
                .join("xtask/clients/suites")
                .join(format!("{name}.list"));
            List::parse(&std::fs::read_to_string(&file).unwrap_or_default()).unwrap();
        }
    }
}
