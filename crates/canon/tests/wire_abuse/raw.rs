//! A client that speaks the protocol by hand, and the messages it sends.

use super::common::{PATIENCE, Server};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

/// A client that speaks the protocol by hand.
pub struct Raw(pub TcpStream);

/// One message of the server: its type and its body.
pub type Message = (u8, Vec<u8>);

impl Raw {
    pub fn connect(server: &Server) -> Raw {
        let stream = TcpStream::connect((server.host.as_str(), server.port)).expect("a socket");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Raw(stream)
    }

    /// Connected, with the first ReadyForQuery behind it.
    pub fn session(server: &Server) -> Raw {
        let mut raw = Raw::connect(server);
        raw.send(&startup(server));
        raw.until(b'Z').expect("a session");
        raw
    }

    /// A server that has had enough may close before everything is sent.
    pub fn send(&mut self, bytes: &[u8]) {
        let _ = self.0.write_all(bytes);
    }

    /// The next message, or none at the end of the connection.
    pub fn message(&mut self) -> Option<Message> {
        let mut head = [0u8; 5];
        self.read(&mut head)?;
        let len = i32::from_be_bytes(head[1..].try_into().unwrap());
        assert!(
            (4..=1 << 30).contains(&len),
            "the server sends a length of {len}"
        );
        let mut body = vec![0; len as usize - 4];
        self.read(&mut body)?;
        Some((head[0], body))
    }

    pub fn read(&mut self, into: &mut [u8]) -> Option<()> {
        match self.0.read_exact(into) {
            Ok(()) => Some(()),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                panic!("the server neither answers nor closes")
            }
            Err(_) => None,
        }
    }

    /// Messages up to one of this type, which is the last; none if the connection ends before.
    pub fn until(&mut self, kind: u8) -> Option<Vec<Message>> {
        let mut seen = Vec::new();
        loop {
            let message = self.message()?;
            let last = message.0 == kind;
            seen.push(message);
            if last {
                return Some(seen);
            }
        }
    }

    /// The SQLSTATE of the first error before the next ReadyForQuery; the connection stays.
    pub fn error(&mut self) -> String {
        let seen = self.until(b'Z').expect("the connection stays");
        let error = seen.iter().find(|m| m.0 == b'E').expect("an error");
        field(&error.1, b'C')
    }

    /// Before a session: one error at most, then the end.
    pub fn closes(&mut self) {
        let _ = self.0.shutdown(Shutdown::Write);
        let mut said: Vec<u8> = Vec::new();
        let mut chunk = [0; 4096];
        loop {
            match self.0.read(&mut chunk) {
                Ok(0) => break,
                Ok(n) => said.extend(&chunk[..n]),
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                    panic!("the server neither answers nor closes")
                }
                Err(_) => break,
            }
        }
        let ready = said.windows(6).any(|w| w == b"Z\0\0\0\x05I");
        assert!(!ready, "the server goes on with {said:?}");
    }

    /// In a session: no result, then the end.
    pub fn ends(&mut self) {
        let _ = self.0.shutdown(Shutdown::Write);
        while let Some((kind, _)) = self.message() {
            assert!(
                kind != b'D' && kind != b'C',
                "a result of nonsense: {:?}",
                kind as char
            );
        }
    }
}

pub fn field(body: &[u8], wanted: u8) -> String {
    body.split(|b| *b == 0)
        .find(|f| f.first() == Some(&wanted))
        .map(|f| String::from_utf8_lossy(&f[1..]).into_owned())
        .expect("the field")
}

pub fn startup(server: &Server) -> Vec<u8> {
    let mut body = 196_608i32.to_be_bytes().to_vec();
    for text in [
        "user",
        &server.user,
        "database",
        &server.database,
        "client_encoding",
        "UTF8",
    ] {
        body.extend(text.as_bytes());
        body.push(0);
    }
    body.push(0);
    framed(&body)
}

/// Length and body, without a type: what a client begins with.
pub fn framed(body: &[u8]) -> Vec<u8> {
    let mut out = (body.len() as i32 + 4).to_be_bytes().to_vec();
    out.extend(body);
    out
}

pub fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut out = vec![kind];
    out.extend(framed(body));
    out
}

pub fn query(sql: &[u8]) -> Vec<u8> {
    let mut body = sql.to_vec();
    body.push(0);
    message(b'Q', &body)
}

pub fn parse(name: &str, sql: &[u8], types: &[i32]) -> Vec<u8> {
    let mut body = name.as_bytes().to_vec();
    body.push(0);
    body.extend(sql);
    body.push(0);
    body.extend((types.len() as u16).to_be_bytes());
    for oid in types {
        body.extend(oid.to_be_bytes());
    }
    message(b'P', &body)
}

/// Bind with text parameters.
pub fn bind(portal: &str, statement: &str, parameters: &[&[u8]]) -> Vec<u8> {
    let mut body = [portal.as_bytes(), &[0], statement.as_bytes(), &[0, 0, 0]].concat();
    body.extend((parameters.len() as u16).to_be_bytes());
    for value in parameters {
        body.extend((value.len() as i32).to_be_bytes());
        body.extend(*value);
    }
    body.extend([0, 0]);
    message(b'B', &body)
}

pub fn execute(portal: &str, limit: i32) -> Vec<u8> {
    message(
        b'E',
        &[portal.as_bytes(), &[0], &limit.to_be_bytes()].concat(),
    )
}

pub fn sync() -> Vec<u8> {
    message(b'S', &[])
}
