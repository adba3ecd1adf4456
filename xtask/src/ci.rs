//! `cargo xtask ci`: every check, in the order that fails cheapest first, ending with one line `N passed, N failed`.
//!
//! Everything is built once: one profile (`dev`, dependencies optimised), one target directory, and always the whole
//! workspace with the same features, because cargo builds a crate again for another set. Which tests run in which step is
//! decided by the name of the test target, from `cargo metadata`, so that a new file cannot be forgotten:
//!
//! | step | runs |
//! |---|---|
//! | `unit` | unit tests of every crate, and integration tests that no later step claims (golden scripts) |
//! | `e2e` | the other integration tests of `canon`: real sockets, real clients |
//! | `crash` | targets named `crash…` |
//! | `slt` | targets named `slt…` |
//! | `doc` | documentation tests |
//!
//! A step that is no test (format, clippy, tidy, clients) counts as one. Ignored tests count as failed, and so does
//! a run in which no test ran. `cargo xtask ci STEP…` runs some steps only.

use crate::metadata::{self, Package};
use crate::{Result, clients, command, process, tidy};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// A step that runs longer is stopped and has failed: a hanging test must not hang the run.
const LIMIT: Duration = Duration::from_secs(15 * 60);

/// Lines of a failed step's output that are shown; all of it lies in the target directory.
const SHOWN: usize = 250;

const STEPS: &[&str] = &[
    "fmt", "tidy", "clients", "clippy", "build", "unit", "e2e", "crash", "slt", "doc",
];

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Counts {
    passed: u64,
    failed: u64,
}

pub fn main(args: &[String]) -> Result<()> {
    if let Some(other) = args.iter().find(|a| !STEPS.contains(&a.as_str())) {
        return Err(format!("no step `{other}`; steps: {}", STEPS.join(" ")));
    }
    let wanted = |step: &str| args.is_empty() || args.iter().any(|a| a == step);
    let started = Instant::now();
    println!("target directory: {}", command::target_dir().display());
    let packages = metadata::read()?;
    let mut total = Counts::default();
    let mut tests = 0;
    for step in STEPS.iter().filter(|s| wanted(s)) {
        println!("== {step}");
        let begun = Instant::now();
        let (counts, is_test) = match run(step, &packages) {
            Ok(Some(counts)) => (counts, true),
            Ok(None) => (
                Counts {
                    passed: 1,
                    failed: 0,
                },
                false,
            ),
            Err(message) => {
                println!("{message}");
                (
                    Counts {
                        passed: 0,
                        failed: 1,
                    },
                    false,
                )
            }
        };
        let seconds = begun.elapsed().as_secs_f64();
        println!(
            "-- {step}: {} passed, {} failed, {seconds:.1} s",
            counts.passed, counts.failed
        );
        total.passed += counts.passed;
        total.failed += counts.failed;
        if is_test {
            tests += counts.passed + counts.failed;
        }
        let _ = std::io::stdout().flush();
    }
    println!("{:.0} s in all", started.elapsed().as_secs_f64());
    let no_tests = args.is_empty() && tests == 0;
    if no_tests {
        println!("no test ran");
    }
    println!("{} passed, {} failed", total.passed, total.failed);
    if total.failed > 0 || no_tests {
        std::process::exit(1);
    }
    Ok(())
}

/// `Some` for a step of tests, `None` for one that passed as a whole.
fn run(step: &str, packages: &[Package]) -> Result<Option<Counts>> {
    let features = features(packages);
    match step {
        "fmt" => whole(step, command::cargo(&["fmt", "--all", "--check"])),
        "clippy" => {
            let mut clippy = command::cargo(&["clippy", "--quiet", "--workspace", "--all-targets"]);
            clippy.args(&features).args(["--", "-D", "warnings"]);
            whole(step, clippy)
        }
        "tidy" => {
            let findings = tidy::run()?;
            for f in &findings {
                println!("{}:{}: {}", f.path, f.line, f.what);
            }
            match findings.len() {
                0 => Ok(None),
                n => Err(format!("{n} findings")),
            }
        }
        "clients" => clients::ensure().map(|_| None),
        "build" => {
            let mut build = command::cargo(&["test", "--workspace", "--no-run"]);
            build.args(&features).args(["--lib", "--bins", "--tests"]);
            whole(step, build)
        }
        "doc" => tests(step, &features, &["--doc".into()]),
        _ => {
            let mut targets: Vec<String> = names(packages)
                .filter(|(package, test)| step_of(package, test) == step)
                .flat_map(|(_, test)| ["--test".to_string(), test.to_string()])
                .collect();
            if step == "unit" {
                targets.extend(["--lib".into(), "--bins".into()]);
            }
            if targets.is_empty() {
                println!("   no test target belongs to this step");
                return Ok(Some(Counts::default()));
            }
            tests(step, &features, &targets)
        }
    }
}

fn names(packages: &[Package]) -> impl Iterator<Item = (&str, &str)> {
    packages
        .iter()
        .flat_map(|p| p.tests.iter().map(|t| (p.name.as_str(), t.as_str())))
}

/// The step that runs the integration test `test` of `package`.
fn step_of(package: &str, test: &str) -> &'static str {
    match package {
        _ if test.starts_with("crash") => "crash",
        _ if test.starts_with("slt") => "slt",
        "canon" => "e2e",
        _ => "unit",
    }
}

/// The planted faults are on in tests: one feature, named alike in every crate that has it.
fn features(packages: &[Package]) -> Vec<String> {
    packages
        .iter()
        .filter(|p| p.features.iter().any(|f| f == "faults"))
        .flat_map(|p| ["--features".to_string(), format!("{}/faults", p.name)])
        .collect()
}

fn whole(step: &str, command: Command) -> Result<Option<Counts>> {
    let ran = logged(step, command, |_| {})?;
    if ran.status.success() {
        return Ok(None);
    }
    Err(ran.tail())
}

fn tests(step: &str, features: &[String], targets: &[String]) -> Result<Option<Counts>> {
    let mut cargo = command::cargo(&["test", "--workspace", "--no-fail-fast"]);
    cargo.args(features).args(targets);
    if let Ok(found) = clients::Clients::find() {
        cargo.envs(found.environment());
    }
    let mut counts = Counts::default();
    let mut running = String::new();
    let ran = logged(step, cargo, |line| {
        let said = line.trim_start();
        if said.starts_with("Running ") || said.starts_with("Doc-tests ") {
            running = said.to_string();
        } else if let Some(one) = result_line(line) {
            counts.passed += one.passed;
            counts.failed += one.failed;
            if one.passed + one.failed > 0 {
                println!("   {running}: {} passed, {} failed", one.passed, one.failed);
            }
        }
    })?;
    if !ran.status.success() && counts.failed == 0 {
        // Did not compile, or a test binary died without a word.
        counts.failed = 1;
    }
    if counts.failed > 0 {
        println!("{}", ran.tail());
    }
    Ok(Some(counts))
}

/// `test result: ok. 3 passed; 0 failed; 0 ignored; …`; what was ignored counts as failed.
fn result_line(line: &str) -> Option<Counts> {
    let rest = line.trim_start().strip_prefix("test result: ")?;
    let number = |what: &str| {
        let before = &rest[..rest.find(what)?];
        before
            .trim_end()
            .rsplit([' ', '.', ';'])
            .next()?
            .parse()
            .ok()
    };
    let failed: u64 = number(" failed")?;
    let ignored: u64 = number(" ignored")?;
    Some(Counts {
        passed: number(" passed")?,
        failed: failed + ignored,
    })
}

/// What a step's command left behind.
struct Ran {
    status: ExitStatus,
    lines: Vec<String>,
    log: String,
}

impl Ran {
    fn tail(&self) -> String {
        let from = self.lines.len().saturating_sub(SHOWN);
        let shown = self.lines[from..].join("\n");
        format!("{shown}\n{} (all of it: {})", self.status, self.log)
    }
}

/// Runs `command` with both streams in one log; `see` gets each line as it comes.
fn logged(step: &str, mut command: Command, mut see: impl FnMut(&str)) -> Result<Ran> {
    let directory = command::target_dir().join("ci");
    std::fs::create_dir_all(&directory).map_err(|e| format!("{}: {e}", directory.display()))?;
    let path = directory.join(format!("{step}.log"));
    let fail = |e: std::io::Error| format!("{}: {e}", path.display());
    let mut log = std::fs::File::create(&path).map_err(fail)?;

    let (reader, writer) = std::io::pipe().map_err(fail)?;
    command.stdout(writer.try_clone().map_err(fail)?);
    command.stderr(writer).stdin(Stdio::null());
    let shown = command::show(&command);
    let mut child = command.spawn().map_err(|e| format!("{shown}: {e}"))?;
    drop(command); // It holds our copies of the pipe's write end; the reader would never see its end.

    let (send, lines_of) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(reader).split(b'\n').map_while(|l| l.ok()) {
            let line = String::from_utf8_lossy(&line).into_owned();
            if send.send(line).is_err() {
                break;
            }
        }
    });
    let begun = Instant::now();
    let (mut lines, mut ended, mut late) = (Vec::new(), None, false);
    let status = loop {
        match lines_of.recv_timeout(Duration::from_millis(500)) {
            Ok(line) => {
                writeln!(log, "{line}").map_err(fail)?;
                see(&line);
                lines.push(line);
            }
            // Ended and silent: a process that it left behind may hold the pipe, and nothing more will come of it.
            Err(_) if ended.is_some() => break ended.expect("just seen"),
            Err(mpsc::RecvTimeoutError::Disconnected) => break child.wait().map_err(fail)?,
            Err(mpsc::RecvTimeoutError::Timeout) => ended = child.try_wait().map_err(fail)?,
        }
        if begun.elapsed() > LIMIT && !late {
            late = true;
            process::kill_tree(child.id());
        }
    };
    if late {
        lines.push(format!("stopped after {} s", LIMIT.as_secs()));
    }
    Ok(Ran {
        status,
        lines,
        log: path.display().to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_line_counts_ignored_as_failed() {
        let line = "test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 3 filtered out; finished in 0.10s";
        let counts = |passed, failed| Some(Counts { passed, failed });
        assert_eq!(result_line(line), counts(12, 0));
        let line = "test result: FAILED. 1 passed; 2 failed; 4 ignored; 0 measured; 0 filtered out";
        assert_eq!(result_line(line), counts(1, 6));
        assert_eq!(result_line("test a ... ok"), None);
    }

    #[test]
    fn every_test_target_has_a_step() {
        for (package, test, step) in [
            ("canon", "psql", "e2e"),
            ("canon", "crash_loop", "crash"),
            ("wal", "crash_points", "crash"),
            ("canon", "slt", "slt"),
            ("txn", "golden", "unit"),
        ] {
            assert_eq!(step_of(package, test), step);
            assert!(STEPS.contains(&step));
        }
    }

    #[test]
    fn a_failing_command_shows_its_output() {
        let mut sh = Command::new("sh");
        sh.args(["-c", "echo out; echo err >&2; exit 3"]);
        let ran = logged("selftest", sh, |_| {}).unwrap();
        assert!(!ran.status.success());
        assert!(ran.tail().contains("out\nerr"), "{}", ran.tail());
    }
}
