//! One step of a longer run: a command whose output goes to a log, and what its tests came to.
//!
//! Nothing of a step that succeeds is shown but a line per test binary; of one that fails the end of its output is, and
//! where the rest lies. A step has a time limit, because a hanging test must not hang the run.

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

/// Runs a `cargo test` and counts; a build that fails or a test binary that dies without a word is one failure.
pub fn tests(step: &str, command: Command) -> Result<Counts> {
    let mut counts = Counts::default();
    let mut running = String::new();
    let ran = logged(step, command, |line| {
        let said = line.trim_start();
        if said.starts_with("Running ") || said.starts_with("Doc-tests ") {
            running = said.to_string();
        } else if let Some(one) = result_line(line) {
            counts.add(one);
            if one != Counts::default() {
                println!("   {running}: {} passed, {} failed", one.passed, one.failed);
            }
        }
    })?;
    if !ran.status.success() && counts.failed == 0 {
        counts.failed = 1;
    }
    if counts.failed > 0 {
        println!("{}", ran.tail());
    }
    Ok(counts)
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
    fn a_failing_command_shows_its_output() {
        let mut sh = Command::new("sh");
        sh.args(["-c", "echo out; echo err >&2; exit 3"]);
        let ran = logged("selftest", sh, |_| {}).unwrap();
        assert!(!ran.status.success());
        assert!(ran.tail().contains("out\nerr"), "{}", ran.tail());
    }
}
