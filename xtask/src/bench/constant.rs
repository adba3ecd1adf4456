//! A server that answers constants: what the client and the kernel can do when the server does next to nothing.
//!
//! It speaks both query protocols well enough for pgbench and sysbench. Every `SELECT` has one row of one column, every
//! other statement succeeds; nothing is stored. A thread per connection reads what has come, appends all answers to one buffer
//! and writes it when the client waits (at Sync, or at the end of a simple query).
//!
//! Left out on purpose: types, errors (but for queries of the catalog, which pgbench forgives), transaction state.

use crate::{Result, wire::put};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

/// The subcommand that serves, with the port as its argument.
pub const SUBCOMMAND: &str = "answer-constants";
pub const NAME: &str = "constants";

pub fn main(args: &[String]) -> Result<()> {
    let port: u16 = args.first().and_then(|p| p.parse().ok()).ok_or("a port?")?;
    let listener = TcpListener::bind(("127.0.0.1", port)).map_err(|e| e.to_string())?;
    for stream in listener.incoming().flatten() {
        // A client that goes away in the middle is no news.
        std::thread::spawn(move || serve(stream));
    }
    Ok(())
}

fn serve(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut session = Session::default();
    let (mut input, mut output) = (Vec::new(), Vec::new());
    let mut chunk = vec![0; 16 * 1024];
    loop {
        let n = stream.read(&mut chunk)?;
        if n == 0 {
            return Ok(());
        }
        input.extend(&chunk[..n]);
        let Some(used) = session.take(&input, &mut output) else {
            return Ok(());
        };
        input.drain(..used);
        if !output.is_empty() {
            stream.write_all(&output)?;
            output.clear();
        }
    }
}

/// What a statement answers.
#[derive(Clone)]
struct Statement {
    parameters: u16,
    rows: bool,
    /// `SELECT 1`, `UPDATE 1`, …
    tag: Vec<u8>,
}

#[derive(Default)]
struct Session {
    started: bool,
    statements: HashMap<Vec<u8>, Statement>,
    bound: Option<Statement>,
}

impl Session {
    /// Answers all whole messages of `input` and says how many bytes they were; `None` ends the connection.
    fn take(&mut self, input: &[u8], out: &mut Vec<u8>) -> Option<usize> {
        let mut at = 0;
        loop {
            let head = if self.started { 5 } else { 4 };
            let Some(prefix) = input.get(at..at + head) else {
                return Some(at);
            };
            let length = u32::from_be_bytes(prefix[head - 4..].try_into().ok()?) as usize;
            let end = at + head - 4 + length;
            let Some(body) = input.get(at + head..end) else {
                return Some(at);
            };
            if self.started {
                self.message(prefix[0], body, out)?;
            } else if body.get(..4)? == 80_877_103u32.to_be_bytes() {
                out.push(b'N'); // No TLS.
            } else {
                self.started = true;
                put(out, b'R', &[0; 4]);
                put(out, b'S', b"server_version\x0015.0\0");
                put(out, b'K', &[0; 8]);
                put(out, b'Z', b"I");
            }
            at = end;
        }
    }

    fn message(&mut self, tag: u8, body: &[u8], out: &mut Vec<u8>) -> Option<()> {
        let mut texts = body.split(|b| *b == 0);
        match tag {
            b'P' => {
                let (name, sql) = (texts.next()?, texts.next()?);
                self.statements.insert(name.to_vec(), statement(sql));
                put(out, b'1', b"");
            }
            b'B' => {
                let (_, name) = (texts.next()?, texts.next()?);
                self.bound = self.statements.get(name).cloned();
                put(out, b'2', b"");
            }
            b'D' => {
                let named = self.statements.get(&body[1..body.len() - 1]);
                let prepared = body[0] == b'S';
                let described = if prepared { named } else { self.bound.as_ref() }?;
                if prepared {
                    let mut types = described.parameters.to_be_bytes().to_vec();
                    types.extend((0..described.parameters).flat_map(|_| 23u32.to_be_bytes()));
                    put(out, b't', &types);
                }
                description(described, out);
            }
            b'E' => answer(self.bound.as_ref()?, out),
            b'S' => put(out, b'Z', b"I"),
            b'C' => put(out, b'3', b""),
            b'Q' => {
                let sql = texts.next()?;
                if sql.windows(10).any(|w| w == b"pg_catalog") {
                    put(out, b'E', b"SERROR\0VERROR\0C42P01\0Mno catalog here\0\0");
                } else {
                    let statement = statement(sql);
                    if statement.rows {
                        description(&statement, out);
                    }
                    answer(&statement, out);
                }
                put(out, b'Z', b"I");
            }
            b'X' => return None,
            _ => {}
        }
        Some(())
    }
}

fn statement(sql: &[u8]) -> Statement {
    let word = sql.trim_ascii_start().split(|b| !b.is_ascii_alphabetic());
    let word = word
        .into_iter()
        .next()
        .unwrap_or_default()
        .to_ascii_uppercase();
    let parameters = (1..100u16).take_while(|n| {
        let mark = format!("${n}");
        sql.windows(mark.len()).any(|w| w == mark.as_bytes())
    });
    let count: &[u8] = match word.as_slice() {
        b"SELECT" | b"UPDATE" | b"DELETE" => b" 1",
        b"INSERT" => b" 0 1",
        _ => b"",
    };
    Statement {
        parameters: parameters.count() as u16,
        rows: word == b"SELECT",
        tag: [&word, count, b"\0"].concat(),
    }
}

fn description(statement: &Statement, out: &mut Vec<u8>) {
    if !statement.rows {
        return put(out, b'n', b"");
    }
    let mut body = vec![0, 1];
    body.extend(b"abalance\0");
    body.extend([0, 0, 0, 0, 0, 0]); // no table, no column number
    body.extend([0, 0, 0, 23, 0, 4, 255, 255, 255, 255, 0, 0]); // int4, text format
    put(out, b'T', &body);
}

fn answer(statement: &Statement, out: &mut Vec<u8>) {
    if statement.rows {
        put(out, b'D', &[0, 1, 0, 0, 0, 2, b'1', b'0']);
    }
    put(out, b'C', &statement.tag);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire;

    fn started() -> Session {
        Session {
            started: true,
            ..Session::default()
        }
    }

    #[test]
    fn a_whole_conversation() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || serve(listener.accept().unwrap().0));
        let mut client = wire::Connection::open(port, "canon").unwrap();
        let rows = client.query("select abalance from x").unwrap();
        assert_eq!(rows.rows, [[Some("10".to_string())]]);
        assert_eq!(client.query("pg_catalog").unwrap_err().code, "42P01");
        assert!(client.query("UPDATE x").unwrap().rows.is_empty());
        drop(client);
        server.join().unwrap().unwrap();
    }

    #[test]
    fn half_a_message_waits_for_the_rest() {
        let (mut input, mut out) = (Vec::new(), Vec::new());
        put(&mut input, b'P', b"s\0SELECT $1, $2\0\0\0");
        put(&mut input, b'D', b"Ss\0");
        put(&mut input, b'S', b"");
        let mut session = started();
        let cut = input.len() - 3;
        let used = session.take(&input[..cut], &mut out).unwrap();
        assert_eq!(used, input.len() - 5);
        assert_eq!(
            &out[out.len() - 2..],
            [0, 0],
            "ends with the row description"
        );
        let mut rest = Vec::new();
        session.take(&input[used..], &mut rest).unwrap();
        assert_eq!(rest, [b'Z', 0, 0, 0, 5, b'I']);
        let types = [b't', 0, 0, 0, 14, 0, 2, 0, 0, 0, 23, 0, 0, 0, 23];
        assert!(out.windows(types.len()).any(|w| w == types));
    }

    #[test]
    fn tags_are_those_of_postgres() {
        let tag = |sql: &str| String::from_utf8(statement(sql.as_bytes()).tag).unwrap();
        assert_eq!(tag(" insert into t"), "INSERT 0 1\0");
        assert_eq!(tag("BEGIN;"), "BEGIN\0");
        assert_eq!(tag("SELECT 1"), "SELECT 1\0");
    }
}
