//! A blocking client of a page: start-up without a password, texts of statements, prepared statements.
//!
//! The demonstration and benches go over a real socket, as users' programs do: one thread per client.
//!
//! Left out on purpose: passwords.

use crate::message::{Rows, field, put_cstr, row};
use crate::startup;
use std::io::{self, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// A connection.
pub struct Client {
    stream: BufReader<TcpStream>,
    out: Vec<u8>,
}

/// What the server said against it: SQLSTATE and message.
#[derive(Debug)]
pub struct Refused {
    pub code: String,
    pub message: String,
}

fn bad(m: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, m.into())
}

fn message(out: &mut Vec<u8>, kind: u8, body: impl FnOnce(&mut Vec<u8>)) {
    out.push(kind);
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    body(out);
    let len = (out.len() - at) as u32;
    out[at..at + 4].copy_from_slice(&len.to_be_bytes());
}

impl Client {
    /// Connects as `canon` to the database `canon`.
    pub fn connect(address: SocketAddr) -> io::Result<Client> {
        Client::connect_as(address, "canon")
    }

    /// Connects as a role without a password to the database `canon`.
    pub fn connect_as(address: SocketAddr, user: &str) -> io::Result<Client> {
        Client::connect_with(address, &[("user", user)])
    }

    /// Connects with these parameters of the start-up message beside the database.
    pub fn connect_with(address: SocketAddr, parameters: &[(&str, &str)]) -> io::Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let mut c = Client {
            stream: BufReader::with_capacity(16 << 10, stream),
            out: Vec::new(),
        };
        let own = [("database", "canon"), ("application_name", "canon demo")];
        c.out = startup::message(0, parameters.iter().chain(&own).copied());
        c.answer()?.map_err(|r| bad(r.message))?;
        Ok(c)
    }

    /// Runs a text of statements; the rows of all.
    pub fn query(&mut self, sql: &str) -> io::Result<Result<Rows, Refused>> {
        message(&mut self.out, b'Q', |b| put_cstr(b, sql));
        self.answer()
    }

    /// Prepares a statement.
    pub fn prepare(&mut self, name: &str, sql: &str) -> io::Result<Result<Rows, Refused>> {
        message(&mut self.out, b'P', |b| {
            put_cstr(b, name);
            put_cstr(b, sql);
            b.extend_from_slice(&[0, 0]);
        });
        message(&mut self.out, b'S', |_| {});
        self.answer()
    }

    /// Runs a prepared statement with integers.
    pub fn run(&mut self, name: &str, params: &[i64]) -> io::Result<Result<Rows, Refused>> {
        message(&mut self.out, b'B', |b| {
            put_cstr(b, "");
            put_cstr(b, name);
            b.extend_from_slice(&[0, 0]);
            b.extend_from_slice(&(params.len() as u16).to_be_bytes());
            for p in params {
                let text = p.to_string();
                b.extend_from_slice(&(text.len() as u32).to_be_bytes());
                b.extend_from_slice(text.as_bytes());
            }
            b.extend_from_slice(&[0, 0]);
        });
        message(&mut self.out, b'E', |b| {
            put_cstr(b, "");
            b.extend_from_slice(&[0; 4]);
        });
        message(&mut self.out, b'S', |_| {});
        self.answer()
    }

    /// Adds a message to those that go with the next [`Client::send`] or [`Client::answer`].
    pub fn put(&mut self, kind: u8, body: impl FnOnce(&mut Vec<u8>)) {
        message(&mut self.out, kind, body);
    }

    /// Sends what was put, and reads nothing.
    pub fn send(&mut self) -> io::Result<()> {
        self.stream.get_mut().write_all(&self.out)?;
        self.out.clear();
        Ok(())
    }

    /// The socket, for what a usual client does not do.
    pub fn socket(&self) -> &TcpStream {
        self.stream.get_ref()
    }

    /// Sends what is to be sent and reads up to ReadyForQuery.
    pub fn answer(&mut self) -> io::Result<Result<Rows, Refused>> {
        self.stream.get_mut().write_all(&self.out)?;
        self.out.clear();
        let mut rows = Vec::new();
        let mut refused = None;
        loop {
            let mut head = [0; 5];
            self.stream.read_exact(&mut head)?;
            let len = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
            let mut body = vec![
                0;
                len.checked_sub(4)
                    .ok_or_else(|| bad("a message of no length"))?
            ];
            self.stream.read_exact(&mut body)?;
            match head[0] {
                b'D' => rows.push(row(&body).ok_or_else(|| bad("a malformed row"))?),
                b'E' => refused = Some(error(&body)),
                b'Z' => return Ok(refused.map_or(Ok(rows), Err)),
                // CopyInResponse: the data comes with what is sent next.
                b'G' => return Ok(Ok(rows)),
                b'R' if body[..] != [0; 4] => return Err(bad("the server wants a password")),
                _ => {}
            }
        }
    }
}

fn error(body: &[u8]) -> Refused {
    let field = |kind: u8| field(body, kind).unwrap_or_default();
    Refused {
        code: field(b'C'),
        message: field(b'M'),
    }
}
