//! An asynchronous connection to a server: start-up, a way to log in, simple queries, CopyBoth.
//!
//! Small on purpose: what a replica, `canon promote`, a bench and a proxy's own logins need of the protocol and nothing else.
//!
//! ```text
//! (TLS: [`dial`]) ──▶ start-up ──▶ AuthenticationOk, SCRAM-SHA-256 (bound to TLS), or the caller's own [`Mechanism`] ──▶ ReadyForQuery
//! ```
//! Left out on purpose: the extended protocol.

use crate::dial::{dial, no_answer};
use crate::message::{self, Rows, put_cstr, row, server_error};
use crate::{Conninfo, Line, startup};
use base::{Error, Result, SqlState};
use postgres_protocol::authentication::sasl::{
    ChannelBinding, SCRAM_SHA_256, SCRAM_SHA_256_PLUS, ScramSha256,
};
use std::io;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Longest message of the start-up and of replies to queries.
const MAX_MESSAGE: usize = 16 << 20;

/// A way to log in in which both ends prove themselves, as messages of SASL carry it: introduction, challenge, proof, the other end's proof.
pub trait Mechanism: Send {
    /// Its name on the wire.
    fn name(&self) -> &'static str;
    fn introduction(&mut self) -> Vec<u8>;
    /// The proof that answers this challenge.
    fn challenged(&mut self, challenge: &[u8]) -> Result<Vec<u8>>;
    /// The other end has proven itself so.
    fn answered(&mut self, proof: &[u8]) -> Result<()>;
    /// The other end lets this one in. An error: it had to prove itself first, and has not.
    fn admitted(&self) -> Result<()>;
}

/// A connection that is logged in.
pub struct Link {
    stream: Line<TcpStream>,
    input: Vec<u8>,
    /// What the server told of its settings at the start.
    pub parameters: Vec<(String, String)>,
    /// Process number and secret, as a request to cancel must say them.
    key: [u8; 8],
    server: Conninfo,
}

impl Link {
    /// Connects and logs in. `parameters` go beside user and database into the start-up message.
    pub async fn connect(server: &Conninfo, parameters: &[(&str, &str)]) -> Result<Link> {
        Link::connect_with(server, parameters, None).await
    }

    /// Connects and logs in, by this mechanism if the server offers it.
    pub async fn connect_with(
        server: &Conninfo,
        parameters: &[(&str, &str)],
        mechanism: Option<&mut dyn Mechanism>,
    ) -> Result<Link> {
        let mut link = Link {
            stream: dial(server).await?,
            input: Vec::new(),
            parameters: Vec::new(),
            key: [0; 8],
            server: server.clone(),
        };
        let start = link.start(parameters, mechanism);
        tokio::time::timeout(server.connect_timeout, start)
            .await
            .map_err(|_| no_answer(server, "it took too long"))??;
        Ok(link)
    }

    async fn start(
        &mut self,
        parameters: &[(&str, &str)],
        mut own: Option<&mut dyn Mechanism>,
    ) -> Result<()> {
        let server = self.server.clone();
        let login = [
            ("user", server.user.as_str()),
            ("database", server.database.as_str()),
        ];
        let all = login.iter().chain(parameters).copied();
        self.write(&startup::message(0, all)).await?;
        let mut scram: Option<ScramSha256> = None;
        // The mechanism of the caller is at work.
        let mut proving = false;
        // The server has shown that it knows what the password proves.
        let mut known = false;
        loop {
            let (kind, body) = self.message().await?;
            match (kind, body.split_first_chunk::<4>()) {
                (b'R', Some((code, rest))) => match (u32::from_be_bytes(*code), &mut own) {
                    (0, own) => {
                        if let Some(own) = own {
                            own.admitted()?;
                        }
                        if server.proves && !known {
                            return Err(unproven(&server));
                        }
                    }
                    (10, Some(own)) if offers(rest, own.name()) => {
                        self.sasl(own.name(), &own.introduction()).await?;
                        (proving, scram) = (true, None);
                    }
                    (11, Some(own)) if proving => {
                        let proof = own.challenged(rest)?;
                        self.send(b'p', &proof).await?;
                    }
                    (12, Some(own)) if proving => {
                        own.answered(rest)?;
                        proving = false;
                    }
                    (10, _) => {
                        let (mechanism, x) = scram_of(&server, rest, self.stream.end_point())?;
                        self.sasl(mechanism, x.message()).await?;
                        scram = Some(x);
                    }
                    (11, _) => {
                        let x = scram.as_mut().ok_or_else(|| broken("SCRAM out of turn"))?;
                        x.update(rest).map_err(|e| lost(&e))?;
                        let out = x.message().to_vec();
                        self.send(b'p', &out).await?;
                    }
                    (12, _) => {
                        let x = scram.as_mut().ok_or_else(|| broken("SCRAM out of turn"))?;
                        x.finish(rest).map_err(|e| lost(&e))?;
                        known = true;
                    }
                    (n, _) => return Err(broken(&format!("authentication of kind {n}"))),
                },
                (b'K', _) => {
                    let key = body.first_chunk().ok_or_else(|| broken("a short key"))?;
                    self.key = *key;
                }
                (b'S', _) => self.parameters.extend(message::parameter(&body)),
                (b'Z', _) => return Ok(()),
                (b'E', _) => return Err(server_error(&body)),
                _ => {}
            }
        }
    }

    async fn sasl(&mut self, mechanism: &str, data: &[u8]) -> Result<()> {
        let mut out = Vec::new();
        put_cstr(&mut out, mechanism);
        out.extend_from_slice(&(data.len() as u32).to_be_bytes());
        out.extend_from_slice(data);
        self.send(b'p', &out).await
    }

    /// What a request to cancel for this connection must say.
    pub fn key(&self) -> [u8; 8] {
        self.key
    }

    /// Sends messages of which the last is answered with ReadyForQuery, and takes the answers; an error among them.
    pub async fn exchange(&mut self, messages: &[u8]) -> Result<()> {
        self.write(messages).await?;
        let mut failed = None;
        loop {
            let (kind, body) = self.message().await?;
            match kind {
                b'E' => failed = Some(server_error(&body)),
                b'Z' => return failed.map_or(Ok(()), Err),
                _ => {}
            }
        }
    }

    /// The connection, and what has come over it that is not read.
    pub fn into_parts(self) -> (Line<TcpStream>, Vec<u8>) {
        (self.stream, self.input)
    }

    /// Runs a text of statements; the rows of all.
    pub async fn query(&mut self, sql: &str) -> Result<Rows> {
        let mut body = Vec::new();
        put_cstr(&mut body, sql);
        self.send(b'Q', &body).await?;
        let (mut rows, mut failed) = (Vec::new(), None);
        loop {
            let (kind, body) = self.message().await?;
            match kind {
                b'D' => rows.push(row(&body).ok_or_else(|| broken("a malformed row"))?),
                b'E' => failed = Some(server_error(&body)),
                b'Z' => return failed.map_or(Ok(rows), Err),
                _ => {}
            }
        }
    }

    /// Sends the command that begins CopyBoth, and waits for the answer within the time of a connect; the connection, and what has come
    /// over it that is not read. A server that is alive answers at once.
    pub async fn copy_both(self, command: &str) -> Result<(Line<TcpStream>, Vec<u8>)> {
        let server = self.server.clone();
        tokio::time::timeout(server.connect_timeout, self.turn(command))
            .await
            .map_err(|_| no_answer(&server, "it took too long"))?
    }

    async fn turn(mut self, command: &str) -> Result<(Line<TcpStream>, Vec<u8>)> {
        let mut body = Vec::new();
        put_cstr(&mut body, command);
        self.send(b'Q', &body).await?;
        loop {
            let (kind, body) = self.message().await?;
            match kind {
                b'W' => return Ok(self.into_parts()),
                b'E' => return Err(server_error(&body)),
                b'N' | b'S' => {}
                t => return Err(broken(&format!("0x{t:02x} instead of CopyBothResponse"))),
            }
        }
    }

    async fn send(&mut self, kind: u8, body: &[u8]) -> Result<()> {
        let mut out = vec![kind];
        out.extend_from_slice(&((body.len() + 4) as u32).to_be_bytes());
        out.extend_from_slice(body);
        self.write(&out).await
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).await.map_err(|e| lost(&e))?;
        self.stream.flush().await.map_err(|e| lost(&e))
    }

    /// The next message: type and body.
    async fn message(&mut self) -> Result<(u8, Vec<u8>)> {
        loop {
            if let Some(head) = self.input.first_chunk::<5>() {
                let kind = head[0];
                let len = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
                if !(4..=MAX_MESSAGE).contains(&len) {
                    return Err(broken("a message of an impossible length"));
                }
                if self.input.len() > len {
                    let body = self.input[5..=len].to_vec();
                    self.input.drain(..=len);
                    return Ok((kind, body));
                }
            }
            match self.stream.read_buf(&mut self.input).await {
                Ok(0) => return Err(lost(&io::ErrorKind::UnexpectedEof.into())),
                Ok(_) => {}
                Err(e) => return Err(lost(&e)),
            }
        }
    }
}

/// Asks the server to cancel what the connection with this key runs, and waits until the server has done so, for as long as a connect may
/// take.
pub async fn cancel(server: &Conninfo, key: [u8; 8]) {
    let send = async {
        let mut s = dial(server).await.ok()?;
        s.write_all(&startup::cancel(&key)).await.ok()?;
        s.flush().await.ok()?;
        // It closes when it has done so.
        s.read(&mut [0; 1]).await.ok()
    };
    _ = tokio::time::timeout(server.connect_timeout, send).await;
}

/// What ended a connection.
pub fn lost(e: &io::Error) -> Error {
    Error::new(
        SqlState::CONNECTION_FAILURE,
        format!("connection lost: {e}"),
    )
}

/// 08P01.
fn broken(what: &str) -> Error {
    Error::new(SqlState::PROTOCOL_VIOLATION, format!("server: {what}"))
}

/// 28000: the server lets a role in that has proven nothing, and may be anything.
fn unproven(server: &Conninfo) -> Error {
    let user = &server.user;
    Error::new(
        SqlState::INVALID_AUTHORIZATION,
        format!(
            "{server} does not ask for the password of \"{user}\", so it proves nothing itself"
        ),
    )
}

/// Whether this is among the mechanisms that a server offers.
fn offers(list: &[u8], mechanism: &str) -> bool {
    list.split(|&b| b == 0).any(|m| m == mechanism.as_bytes())
}

/// The client's side of SCRAM-SHA-256, if it is among these mechanisms; with the binding where both ends can name it.
fn scram_of(
    server: &Conninfo,
    offered: &[u8],
    end_point: Option<&[u8]>,
) -> Result<(&'static str, ScramSha256)> {
    let plus = end_point.filter(|_| offers(offered, SCRAM_SHA_256_PLUS));
    if plus.is_none() && !offers(offered, SCRAM_SHA_256) {
        return Err(broken("no way to log in that both know"));
    }
    let password = server.password().ok_or_else(|| {
        Error::new(
            SqlState::INVALID_AUTHORIZATION,
            format!("{server} wants a password for \"{}\"", server.user),
        )
        .hint("Put it into replica_of or PGPASSWORD.")
    })?;
    let (mechanism, binding) = match (plus, end_point) {
        (Some(e), _) => (
            SCRAM_SHA_256_PLUS,
            ChannelBinding::tls_server_end_point(e.to_vec()),
        ),
        // It stands in the proof. A server that has the better mechanism refuses it then: another end has taken that out of the offer.
        (None, Some(_)) => (SCRAM_SHA_256, ChannelBinding::unrequested()),
        (None, None) => (SCRAM_SHA_256, ChannelBinding::unsupported()),
    };
    Ok((mechanism, ScramSha256::new(password.as_bytes(), binding)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that takes the start-up message, says this and is silent.
    async fn saying(said: &'static [u8]) -> (Conninfo, tokio::task::JoinHandle<()>) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let silent = tokio::spawn(async move {
            let (mut s, _) = listener.accept().await.expect("a connection");
            let mut start = [0; 4];
            s.read_exact(&mut start).await.expect("a length");
            let mut rest = vec![0; u32::from_be_bytes(start) as usize - 4];
            s.read_exact(&mut rest).await.expect("a start-up message");
            s.write_all(said).await.expect("written");
            std::future::pending::<()>().await;
        });
        let server =
            format!("host=127.0.0.1 port={port} connect_timeout=1 sslmode=disable password=secret");
        (Conninfo::parse(&server).expect("an address"), silent)
    }

    const READY: &[u8] = b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I";

    #[tokio::test]
    async fn a_server_that_has_to_prove_itself_cannot_do_without_the_password() {
        let (mut server, silent) = saying(READY).await;
        server.proves = true;
        let Err(e) = Link::connect(&server, &[]).await else {
            panic!("it has proven nothing");
        };
        assert_eq!(e.code(), SqlState::INVALID_AUTHORIZATION);
        silent.abort();
    }

    /// It has lost its power behind the login.
    #[tokio::test]
    async fn a_server_that_is_gone_after_the_login_is_not_waited_for() {
        let (server, silent) = saying(READY).await;
        let link = Link::connect(&server, &[]).await.expect("logged in");
        let Err(e) = link.copy_both("START_REPLICATION").await else {
            panic!("it said nothing");
        };
        assert_eq!(e.code(), SqlState::CONNECTION_FAILURE);
        silent.abort();
    }
}
