//! Connections whose statements may wait: a thread reads the messages of each, and the tester looks what has come.
//!
//! ```text
//! send(sql) ─▶ busy, until ReadyForQuery or the end of the connection ─▶ take(): what came, in order
//! ```
//! Notices are counted as they come, since a step of another session may wait for them.
//!
//! Left out on purpose: the extended protocol, COPY, passwords.

use super::table::Table;
use crate::{Result, server, wire};
use std::io::{BufReader, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// Something that the server said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    Table(Table),
    Error {
        severity: String,
        code: String,
        message: String,
    },
    Notice(String),
    Notification {
        pid: u32,
        channel: String,
        payload: String,
    },
    Key(u32),
    /// A statement without rows has ended.
    Done,
    Ready,
    Lost,
}

pub struct Session {
    pub name: String,
    pub pid: u32,
    stream: TcpStream,
    incoming: Receiver<Said>,
    came: Vec<Said>,
    busy: bool,
    /// Notices since the start.
    pub notices: u64,
}

impl Session {
    pub fn open(port: u16, name: &str, application: &str) -> Result<Session> {
        let stream = TcpStream::connect(("127.0.0.1", port)).map_err(|e| e.to_string())?;
        stream.set_nodelay(true).map_err(|e| e.to_string())?;
        let user = server::USER;
        let parameters = [
            ("user", user),
            ("database", user),
            ("application_name", application),
            ("TimeZone", "PST8PDT"),
            ("DateStyle", "Postgres, MDY"),
            ("IntervalStyle", "postgres_verbose"),
        ];
        let mut body = 196_608u32.to_be_bytes().to_vec();
        for (key, value) in parameters {
            body.extend(format!("{key}\0{value}\0").bytes());
        }
        body.push(0);
        let mut message = (body.len() as u32 + 4).to_be_bytes().to_vec();
        message.extend(body);
        let reader = stream.try_clone().map_err(|e| e.to_string())?;
        let (send, incoming) = channel();
        std::thread::spawn(move || listen(BufReader::new(reader), |said| send.send(said).is_ok()));
        let mut session = Session {
            name: name.to_owned(),
            pid: 0,
            stream,
            incoming,
            came: Vec::new(),
            busy: true,
            notices: 0,
        };
        let sent = session.stream.write_all(&message);
        sent.map_err(|e| e.to_string())?;
        for said in session.finish(Duration::from_secs(60))? {
            match said {
                Said::Key(pid) => session.pid = pid,
                Said::Error { message, .. } => return Err(message),
                _ => {}
            }
        }
        Ok(session)
    }

    pub fn send(&mut self, sql: &str) {
        let mut out = Vec::new();
        wire::put(&mut out, b'Q', &[sql.as_bytes(), b"\0"].concat());
        self.busy = true;
        // A lost connection shows itself to the reader.
        let _ = self.stream.write_all(&out);
    }

    /// Whether the statement is still running, after up to so long a wait for news.
    pub fn is_busy(&mut self, wait: Duration) -> bool {
        let mut wait = wait;
        while self.busy {
            match self.incoming.recv_timeout(wait) {
                Ok(said) => {
                    self.busy = !matches!(said, Said::Ready | Said::Lost);
                    self.notices += u64::from(matches!(said, Said::Notice(_)));
                    self.came.push(said);
                }
                Err(RecvTimeoutError::Disconnected) => {
                    self.came.push(Said::Lost);
                    self.busy = false;
                }
                Err(RecvTimeoutError::Timeout) => break,
            }
            wait = wait.min(Duration::from_millis(1));
        }
        self.busy
    }

    /// What came since the last call, with what came unasked.
    pub fn take(&mut self) -> Vec<Said> {
        let notices = |said: &Said| u64::from(matches!(said, Said::Notice(_)));
        let late: Vec<Said> = self.incoming.try_iter().collect();
        self.notices += late.iter().map(notices).sum::<u64>();
        self.came.extend(late);
        std::mem::take(&mut self.came)
    }

    /// Notices that came so far, taken out.
    pub fn take_notices(&mut self) -> Vec<String> {
        let mut notices = Vec::new();
        self.came.retain(|said| match said {
            Said::Notice(text) => {
                notices.push(text.clone());
                false
            }
            _ => true,
        });
        notices
    }

    /// Waits for the end of the statement.
    pub fn finish(&mut self, limit: Duration) -> Result<Vec<Said>> {
        match self.is_busy_until(limit) {
            true => Err(format!("{}: no answer after {limit:?}", self.name)),
            false => Ok(self.take()),
        }
    }

    fn is_busy_until(&mut self, limit: Duration) -> bool {
        let begun = std::time::Instant::now();
        while self.is_busy(Duration::from_millis(50)) {
            if begun.elapsed() > limit {
                return true;
            }
        }
        false
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

/// Reads messages until the connection ends or `give` has no taker.
fn listen(mut stream: BufReader<TcpStream>, give: impl Fn(Said) -> bool) {
    let mut table: Option<Table> = None;
    while let Ok((tag, body)) = wire::message(&mut stream) {
        let said = match tag {
            b'T' => {
                table = Some(Table {
                    names: names(&body),
                    rows: Vec::new(),
                });
                continue;
            }
            b'D' => {
                if let Some(table) = &mut table {
                    table.rows.push(wire::row(&body));
                }
                continue;
            }
            b'C' => match table.take() {
                Some(table) => Said::Table(table),
                None => Said::Done,
            },
            b'E' => {
                table = None;
                Said::Error {
                    severity: wire::field(&body, b'S'),
                    code: wire::field(&body, b'C'),
                    message: wire::field(&body, b'M'),
                }
            }
            b'N' => Said::Notice(notice(&body)),
            b'A' => {
                let mut texts = body[4..].split(|b| *b == 0);
                let mut text =
                    || String::from_utf8_lossy(texts.next().unwrap_or_default()).into_owned();
                Said::Notification {
                    pid: number(&body),
                    channel: text(),
                    payload: text(),
                }
            }
            b'K' => Said::Key(number(&body)),
            b'Z' => Said::Ready,
            _ => continue,
        };
        if !give(said) {
            return;
        }
    }
}

fn number(body: &[u8]) -> u32 {
    u32::from_be_bytes([body[0], body[1], body[2], body[3]])
}

/// The names of a RowDescription.
fn names(body: &[u8]) -> Vec<String> {
    let mut rest = &body[2..];
    let mut names = Vec::new();
    for _ in 0..wire::short(body, 0) {
        let end = rest.iter().position(|b| *b == 0).unwrap_or(rest.len());
        names.push(String::from_utf8_lossy(&rest[..end]).into_owned());
        // Behind the name: table, column, type, size, modifier, format.
        rest = rest.get(end + 19..).unwrap_or_default();
    }
    names
}

/// A notice as a client prints it.
fn notice(body: &[u8]) -> String {
    let (severity, message) = (wire::field(body, b'S'), wire::field(body, b'M'));
    let mut text = format!("{severity}:  {message}\n");
    for (letter, name) in [(b'D', "DETAIL"), (b'H', "HINT")] {
        let field = wire::field(body, letter);
        if !field.is_empty() {
            text += &format!("{name}:  {field}\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_over_what_stands_behind_them() {
        let mut body = vec![0, 2];
        for name in ["id", "balance"] {
            body.extend(name.bytes());
            body.extend([0; 19]);
        }
        assert_eq!(names(&body), ["id", "balance"]);
    }

    #[test]
    fn a_notice_has_its_detail() {
        let body = b"SNOTICE\0C00000\0Mso\0Dit is\0\0";
        assert_eq!(notice(body), "NOTICE:  so\nDETAIL:  it is\n");
    }
}
