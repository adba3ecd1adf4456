//! One step of a longer run: a command whose output goes to a log, and what its tests came to.
//!
//! Nothing of a step that succeeds is shown but a line per test binary; of one that fails the end of its output is, and
//! where the rest lies. A step has a time limit, because a hanging test must not hang the run.
//!
//! A test that failed beside others runs again by itself, `AGAIN` times. If it passes each time, it counts as passed and is
//! listed as *unsteady*: its cause is the load of the machine or a rare order of events, and the list says where to look.
//! A step with more than `UNSTEADY` failed tests gets no second run. A build that fails, a test binary that dies and
//! an ignored test get no second run.

use crate::{Result, command, process};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// A step that runs longer is stopped and has failed. Only a hang reaches it: a cold build on a loaded machine, or the
/// tests on a disk that takes a third of a second for a flush, stay below.
const LIMIT: Duration = Duration::from_secs(45 * 60);

/// Lines of a failed step's output that are shown; all of it lies in the target directory.
const SHOWN: usize = 250;

/// Runs of a failed test by itself; it has to pass all of them.
const AGAIN: usize = 3;

/// Unsteady tests that one run of a step may have.
const UNSTEADY: usize = 3;

/// Tests, or steps.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    pub passed: u64,
    pub failed: u64,
}

impl Counts {
    pub fn add(&mut self, other: Counts) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

/// Runs a command that succeeds or fails as a whole.
pub fn whole(step: &str, command: Command) -> Result<()> {
    whole_with_output(step, command).map(drop)
}

/// The same, with what it said.
pub fn whole_with_output(step: &str, command: Command) -> Result<Vec<String>> {
    let ran = logged(step, command, |_| {})?;
    if ran.status.success() {
        return Ok(ran.lines);
    }
    Err(ran.tail())
}

/// What came of a `cargo test`.
struct Tested {
    counts: Counts,
    /// Names of the tests that failed, as libtest filters them.
    failed: Vec<String>,
    ran: Ran,
}

/// Runs a `cargo test` once and counts; a build that fails or a test binary that dies without a word is one failure.
pub fn tests(step: &str, cargo: Command) -> Result<Counts> {
    let tested = run_tests(step, cargo, true)?;
    if tested.counts.failed > 0 {
        println!("{}", tested.ran.tail());
    }
    Ok(tested.counts)
}

/// The same, and tests that failed run again by themselves. `cargo` makes the command anew for each run.
pub fn steady_tests(step: &str, cargo: impl Fn() -> Command) -> Result<Counts> {
    let mut first = run_tests(step, cargo(), true)?;
    if first.counts.failed == 0 {
        return Ok(first.counts);
    }
    println!("{}", first.ran.tail());
    let named = first.failed.len() as u64 == first.counts.failed;
    if !named || first.failed.len() > UNSTEADY {
        return Ok(first.counts);
    }
    let alone = |name: &str| -> Result<bool> {
        for _ in 0..AGAIN {
            let mut command = cargo();
            command.args(["--", "--exact", name]);
            let again = run_tests(&format!("{step}-again"), command, false)?;
            if again.counts.failed > 0 || again.counts.passed == 0 {
                println!("{}", again.ran.tail());
                return Ok(false);
            }
        }
        Ok(true)
    };
    for name in std::mem::take(&mut first.failed) {
        if alone(&name)? {
            println!("   unsteady: {name} failed once, and passed {AGAIN} times by itself");
            first.counts.failed -= 1;
            first.counts.passed += 1;
        }
    }
    Ok(first.counts)
}

fn run_tests(step: &str, command: Command, show: bool) -> Result<Tested> {
    let (mut counts, mut failed) = (Counts::default(), Vec::new());
    let mut running = String::new();
    let ran = logged(step, command, |line| {
        let said = line.trim_start();
        if said.starts_with("Running ") || said.starts_with("Doc-tests ") {
            running = said.to_string();
        } else if let Some(name) = failed_test(line) {
            failed.push(name.to_string());
        } else if let Some(one) = result_line(line) {
            counts.add(one);
            if show && one != Counts::default() {
                println!("   {running}: {} passed, {} failed", one.passed, one.failed);
            }
        }
    })?;
    if !ran.status.success() && counts.failed == 0 {
        counts.failed = 1;
    }
    Ok(Tested {
        counts,
        failed,
        ran,
    })
}

/// The name in `test NAME ... FAILED`.
fn failed_test(line: &str) -> Option<&str> {
    line.strip_prefix("test ")?.strip_suffix(" ... FAILED")
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
        assert_eq!(failed_test("test a::b ... FAILED"), Some("a::b"));
        assert_eq!(failed_test("test a::b ... ok"), None);
    }

    /// A `cargo test` of one test: its runs among others say `FAILED` or `ok` by `beside`, its runs by itself by `alone`.
    fn counted(beside: &str, alone: &str) -> Counts {
        let said = |word: &str| {
            let (end, counts) = match word {
                "ok" => (0, "1 passed; 0 failed"),
                _ => (1, "0 passed; 1 failed"),
            };
            format!(
                "echo 'test a ... {word}'; echo 'test result: {word}. {counts}; 0 ignored;'; exit {end}"
            )
        };
        let script = format!(
            "if [ \"$2\" = --exact ]; then {}; else {}; fi",
            said(alone),
            said(beside)
        );
        let cargo = || {
            let mut sh = Command::new("sh");
            sh.args(["-c", &script, "cargo"]);
            sh
        };
        steady_tests(&format!("selftest-{beside}-{alone}"), cargo).unwrap()
    }

    #[test]
    fn a_failed_test_has_to_pass_by_itself() {
        let counts = |passed, failed| Counts { passed, failed };
        assert_eq!(counted("ok", "FAILED"), counts(1, 0));
        assert_eq!(counted("FAILED", "ok"), counts(1, 0));
        assert_eq!(counted("FAILED", "FAILED"), counts(0, 1));
    }

    #[test]
    fn a_build_that_fails_is_no_unsteady_test() {
        let cargo = || {
            let mut sh = Command::new("sh");
            sh.args(["-c", "[ $# = 0 ] && exit 101; exit 0", "cargo"]);
            sh
        };
        assert_eq!(steady_tests("selftest-build", cargo).unwrap().failed, 1);
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
