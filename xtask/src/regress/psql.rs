//! A psql that is fed one unit after the other, and gives for each what it printed.
//!
//! ```text
//! unit + `\echo MARK n SQLSTATE` ─▶ psql ─▶ lines up to the mark = the answer
//! ```
//! psql is the suite's own client: backslash commands, variables and the form of results come from it. Standard output and standard
//! error are one pipe, as in the suite's expected results, so the lines are in their order. psql ends when its server ends the
//! connection; a new one is started for the next unit, with a new session.
//!
//! Left out on purpose: `-a`, which repeats the statements in the output.

use crate::{Result, server};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

const MARK: &str = "canon-regress-mark";

/// The server ends a statement after this time. No statement of the suite needs it at PostgreSQL.
const SLOW: &str = "10s";

/// A unit that has not been answered by then never will be.
const PATIENCE: Duration = Duration::from_secs(40);

/// What a unit was answered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    pub lines: Vec<String>,
    /// SQLSTATE, if an error was among the lines.
    pub state: Option<String>,
    pub end: End,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum End {
    #[default]
    Answered,
    /// The server ended the connection.
    Lost,
    /// The script ended psql.
    Left,
    Silent,
}

/// Where psql connects to, and where the suite finds its files.
pub struct Place {
    pub programs: PathBuf,
    pub port: u16,
    /// `src/test/regress` of the source.
    pub suite: PathBuf,
    /// A directory for the files that the suite writes.
    pub scratch: PathBuf,
}

pub struct Psql {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    asked: u64,
}

impl Psql {
    pub fn start(place: &Place) -> Result<Psql> {
        let (reader, writer) = std::io::pipe().map_err(|e| e.to_string())?;
        let mut command = Command::new(place.programs.join("psql"));
        command.args(["-X", "-q", "-v", "HIDE_TABLEAM=on"]);
        command.args(["-v", "HIDE_TOAST_COMPRESSION=on", "-P", "pager=off"]);
        command
            .env("PGHOST", "127.0.0.1")
            .env("PGPORT", place.port.to_string())
            .env("PGUSER", server::USER)
            .env("PGDATABASE", server::USER)
            .env("PGTZ", "PST8PDT")
            .env("PGDATESTYLE", "Postgres, MDY")
            .env("PGOPTIONS", options())
            .env("PG_ABS_SRCDIR", &place.suite)
            .env("PG_ABS_BUILDDIR", &place.scratch)
            .env("PG_LIBDIR", &place.suite)
            .env("PG_DLSUFFIX", ".so")
            .env("LC_ALL", "C")
            .current_dir(&place.scratch);
        let copy = writer.try_clone().map_err(|e| e.to_string())?;
        command.stdin(Stdio::piped()).stdout(writer).stderr(copy);
        let mut child = command.spawn().map_err(|e| format!("psql: {e}"))?;
        // The command holds the writing end, and the reader is to see its end.
        drop(command);
        let (send, lines) = channel();
        std::thread::spawn(move || {
            let mut reader = BufReader::new(reader);
            let mut bytes = Vec::new();
            while reader.read_until(b'\n', &mut bytes).is_ok_and(|n| n > 0) {
                let line = String::from_utf8_lossy(&bytes);
                if send.send(line.trim_end_matches('\n').to_owned()).is_err() {
                    break;
                }
                bytes.clear();
            }
        });
        Ok(Psql {
            input: child.stdin.take().expect("made with a pipe"),
            child,
            lines,
            asked: 0,
        })
    }

    /// Sends one unit and waits for its answer.
    pub fn ask(&mut self, unit: &str) -> Answer {
        self.asked += 1;
        let mark = format!("{MARK} {}", self.asked);
        let sent = format!("{unit}\n\\echo {mark} :LAST_ERROR_SQLSTATE\n\\r\n");
        // A psql that has ended answers by the end of its output.
        let _ = self.input.write_all(sent.as_bytes());
        let _ = self.input.flush();
        let begun = Instant::now();
        let mut lines = Vec::new();
        loop {
            let left = PATIENCE.saturating_sub(begun.elapsed());
            match self.lines.recv_timeout(left) {
                Ok(line) => match line.find(&mark) {
                    Some(0) => return answer(lines, line[mark.len()..].trim()),
                    // What `\set ECHO all` repeats, or an output without an end of line.
                    Some(at) if !line.starts_with('\\') => {
                        lines.push(line[..at].to_owned());
                        let state = line[at + mark.len()..].trim().to_owned();
                        return answer(lines, &state);
                    }
                    Some(_) => {}
                    None => lines.push(line),
                },
                Err(RecvTimeoutError::Timeout) => return ended(lines, End::Silent),
                Err(RecvTimeoutError::Disconnected) => {
                    let quits = unit.contains("\\q");
                    let end = if quits { End::Left } else { End::Lost };
                    return ended(lines, end);
                }
            }
        }
    }
}

impl Drop for Psql {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The names of the suite's settings, as its own runner sets them.
fn options() -> String {
    format!("-c intervalstyle=postgres_verbose -c statement_timeout={SLOW}")
}

fn answer(lines: Vec<String>, state: &str) -> Answer {
    let failed = lines.iter().any(|l| is_error(l));
    Answer {
        state: failed.then(|| state.to_owned()),
        lines,
        end: End::Answered,
    }
}

fn ended(lines: Vec<String>, end: End) -> Answer {
    Answer {
        state: None,
        lines,
        end,
    }
}

pub fn is_error(line: &str) -> bool {
    ["ERROR:  ", "FATAL:  ", "PANIC:  "]
        .iter()
        .any(|s| line.starts_with(s))
}

/// A path that both psql and a server that runs as another user can write to.
pub fn open_directory(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path.join("results")).map_err(|e| e.to_string())?;
    let mut chmod = Command::new("chmod");
    crate::command::output(chmod.arg("-R").arg("777").arg(path)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_its_state_and_success_has_none() {
        let lines = |l: &str| vec![l.to_owned()];
        assert_eq!(answer(lines("ERROR:  no"), "42P01").state.unwrap(), "42P01");
        assert_eq!(answer(lines(" ERROR:  no"), "42P01").state, None);
    }
}
