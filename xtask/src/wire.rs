//! The PostgreSQL wire protocol, as little of it as a script needs: simple queries, prepared statements, text results, errors.
//!
//! Used to prepare the bench and to run sqllogictest files, so that xtask needs no driver. A message is a tag byte, a
//! length that counts itself, and a body; the first message of a client has no tag.
//!
//! Left out on purpose: TLS, passwords (trust or loopback only), COPY, portals.

use std::collections::HashMap;
use std::fmt;
use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// An error of the server, or (with an empty `code`) of the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// SQLSTATE.
    pub code: String,
    pub message: String,
    /// The table that it names; empty: none.
    pub table: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.code, self.message)
    }
}

/// Rows of one statement; `None` is NULL.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Rows {
    pub columns: usize,
    pub rows: Vec<Vec<Option<String>>>,
    /// How many rows the last statement gave or changed.
    pub changed: u64,
}

pub struct Connection {
    stream: BufReader<TcpStream>,
    /// Numbers of prepared statements, by their text.
    prepared: HashMap<String, u32>,
    /// The last number.
    numbers: u32,
}

impl Connection {
    /// Connects as `user` to the database of the same name.
    pub fn open(port: u16, user: &str) -> Result<Connection, Error> {
        Connection::open_within(port, user, None)
    }

    /// The same to a server that may never answer: each wait of the connection ends after this time.
    pub fn open_within(
        port: u16,
        user: &str,
        limit: Option<Duration>,
    ) -> Result<Connection, Error> {
        let stream = TcpStream::connect(("127.0.0.1", port)).map_err(lost)?;
        stream.set_nodelay(true).map_err(lost)?;
        stream.set_read_timeout(limit).map_err(lost)?;
        let mut connection = Connection {
            stream: BufReader::new(stream),
            prepared: HashMap::new(),
            numbers: 0,
        };
        let mut body = 196_608u32.to_be_bytes().to_vec();
        body.extend(format!("user\0{user}\0database\0{user}\0\0").bytes());
        let mut message = (body.len() as u32 + 4).to_be_bytes().to_vec();
        message.extend(body);
        connection.send(&message)?;
        connection.answer()?;
        Ok(connection)
    }

    /// Runs the statements of `sql` and gives the rows of the last one that has any.
    pub fn query(&mut self, sql: &str) -> Result<Rows, Error> {
        let mut out = Vec::new();
        put(&mut out, b'Q', &[sql.as_bytes(), b"\0"].concat());
        self.send(&out)?;
        self.answer()
    }

    /// Runs a statement with values for `$1` and so on; none: NULL. It is prepared with its first run. One round trip either way.
    pub fn run(&mut self, sql: &str, values: &[Option<String>]) -> Result<Rows, Error> {
        let mut out = Vec::new();
        let known = self.prepared.get(sql).copied();
        let number = known.unwrap_or_else(|| {
            self.numbers += 1;
            self.numbers
        });
        if known.is_none() {
            let parse = format!("s{number}\0{sql}\0\0\0");
            put(&mut out, b'P', parse.as_bytes());
        }
        let mut bind = format!("\0s{number}\0\0\0").into_bytes();
        bind.extend((values.len() as u16).to_be_bytes());
        for value in values {
            let length = value.as_ref().map_or(-1, |v| v.len() as i32);
            bind.extend(length.to_be_bytes());
            bind.extend(value.iter().flat_map(|v| v.bytes()));
        }
        bind.extend([0; 2]);
        put(&mut out, b'B', &bind);
        put(&mut out, b'E', &[0; 5]);
        put(&mut out, b'S', &[]);
        self.send(&out)?;
        let rows = self.answer()?;
        if known.is_none() {
            self.prepared.insert(sql.to_owned(), number);
        }
        Ok(rows)
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.stream.get_mut().write_all(bytes).map_err(lost)
    }

    /// Reads to the end of the answer (`ReadyForQuery`).
    fn answer(&mut self) -> Result<Rows, Error> {
        let mut rows = Rows::default();
        let mut failed = None;
        loop {
            let (tag, body) = self.message()?;
            match tag {
                b'Z' => return failed.map_or(Ok(rows), Err),
                b'E' => {
                    let error = error(&body);
                    if error.code.starts_with("57P") || error.code.starts_with("28") {
                        return Err(error); // The server closes the connection; nothing more comes.
                    }
                    failed = Some(error);
                }
                b'T' => {
                    rows = Rows {
                        columns: usize::from(short(&body, 0)),
                        rows: Vec::new(),
                        changed: 0,
                    }
                }
                b'D' => rows.rows.push(row(&body)),
                b'C' => rows.changed = changed(&body),
                b'R' if body[..4] != [0; 4] => {
                    return Err(Error {
                        code: "28000".into(),
                        message: "the server asks for a password".into(),
                        table: String::new(),
                    });
                }
                b'G' | b'H' | b'W' => return Err(lost("COPY is not for this connection")),
                _ => {}
            }
        }
    }

    fn message(&mut self) -> Result<(u8, Vec<u8>), Error> {
        message(&mut self.stream)
    }
}

/// Reads one message: tag and body.
pub fn message(stream: &mut impl Read) -> Result<(u8, Vec<u8>), Error> {
    let mut head = [0; 5];
    stream.read_exact(&mut head).map_err(lost)?;
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
    let mut body = vec![0; length.saturating_sub(4)];
    stream.read_exact(&mut body).map_err(lost)?;
    Ok((head[0], body))
}

/// Appends one message.
pub fn put(out: &mut Vec<u8>, tag: u8, body: &[u8]) {
    out.push(tag);
    out.extend((body.len() as u32 + 4).to_be_bytes());
    out.extend(body);
}

fn lost(e: impl fmt::Display) -> Error {
    Error {
        code: String::new(),
        message: e.to_string(),
        table: String::new(),
    }
}

pub fn short(body: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([body[at], body[at + 1]])
}

/// The values of a DataRow.
pub fn row(body: &[u8]) -> Vec<Option<String>> {
    let mut at = 2;
    let mut values = Vec::new();
    for _ in 0..short(body, 0) {
        let length = i32::from_be_bytes([body[at], body[at + 1], body[at + 2], body[at + 3]]);
        at += 4;
        values.push(usize::try_from(length).ok().map(|n| {
            at += n;
            String::from_utf8_lossy(&body[at - n..at]).into_owned()
        }));
    }
    values
}

/// The number at the end of a command's tag (`UPDATE 3`); 0 where it has none.
fn changed(body: &[u8]) -> u64 {
    let tag = String::from_utf8_lossy(body);
    let tag = tag.trim_end_matches('\0');
    let last = tag.rsplit(' ').next();
    last.and_then(|n| n.parse().ok()).unwrap_or(0)
}

fn error(body: &[u8]) -> Error {
    Error {
        code: field(body, b'C'),
        message: field(body, b'M'),
        table: field(body, b't'),
    }
}

/// A field of an error or a notice: a letter, and a text that a zero ends. Empty: it is not there.
pub fn field(body: &[u8], letter: u8) -> String {
    let found = body.split(|b| *b == 0).find(|f| f.first() == Some(&letter));
    String::from_utf8_lossy(found.map_or(&[][..], |f| &f[1..])).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_keeps_null_apart_from_empty() {
        let body = [0, 3, 0, 0, 0, 1, b'7', 255, 255, 255, 255, 0, 0, 0, 0];
        assert_eq!(row(&body), [Some("7".into()), None, Some(String::new())]);
    }

    #[test]
    fn a_tag_says_how_many_rows() {
        assert_eq!(changed(b"UPDATE 12\0"), 12);
        assert_eq!(changed(b"INSERT 0 3\0"), 3);
        assert_eq!(changed(b"BEGIN\0"), 0);
    }

    #[test]
    fn an_error_has_its_code() {
        let e = error(b"SERROR\0C22012\0Mdivision by zero\0\0");
        assert_eq!(
            (e.code.as_str(), e.message.as_str()),
            ("22012", "division by zero")
        );
    }
}
