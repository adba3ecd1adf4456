//! A connection to another Canon as its client: start-up, SCRAM, a simple query, CopyBoth.
//!
//! Small on purpose: what a replica, `canon promote` and a proxy's own logins need of the protocol and nothing else.

use super::copy_both::{CopyBoth, broken, lost};
use super::membership::{self, MECHANISM, denied};
use super::primary::Primary;
use base::{Error, Result, SqlState};
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};
use replica::proof::Claim;
use std::io;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Longest message of the start-up and of replies to queries.
const MAX_MESSAGE: usize = 16 << 20;

/// Rows as texts, NULL as none.
pub type Rows = Vec<Vec<Option<String>>>;

/// A connection that is logged in.
pub struct Link {
    stream: TcpStream,
    input: Vec<u8>,
    /// What the server told of its settings at the start.
    pub parameters: Vec<(String, String)>,
    /// Process number and secret.
    key: (i32, i32),
    primary: Primary,
    /// What the other end has proven of itself.
    pub peer: Option<Claim>,
}

/// What an ErrorResponse says.
pub fn server_error(body: &[u8]) -> Error {
    let field = |kind: u8| {
        let found = body.split(|&b| b == 0).find(|f| f.first() == Some(&kind));
        found.map_or(String::new(), |f| {
            String::from_utf8_lossy(&f[1..]).into_owned()
        })
    };
    let code = field(b'C').into_bytes();
    let code = SqlState(code.try_into().unwrap_or(*b"XX000"));
    Error::new(code, field(b'M'))
        .detail(field(b'D'))
        .hint(field(b'H'))
}

impl Link {
    /// Connects and logs in. `parameters` go beside user and database into the start-up message.
    pub async fn connect(primary: &Primary, parameters: &[(&str, &str)]) -> Result<Link> {
        let address = (primary.host.as_str(), primary.port);
        let connected =
            tokio::time::timeout(primary.connect_timeout, TcpStream::connect(address)).await;
        let stream = connected
            .map_err(|_| no_answer(primary, "it took too long"))?
            .map_err(|e| no_answer(primary, &e.to_string()))?;
        _ = stream.set_nodelay(true);
        let mut link = Link {
            stream,
            input: Vec::new(),
            parameters: Vec::new(),
            key: (0, 0),
            primary: primary.clone(),
            peer: None,
        };
        let start = link.start(primary, parameters);
        tokio::time::timeout(primary.connect_timeout, start)
            .await
            .map_err(|_| no_answer(primary, "it took too long"))??;
        Ok(link)
    }

    async fn start(&mut self, primary: &Primary, parameters: &[(&str, &str)]) -> Result<()> {
        let mut body = 196_608u32.to_be_bytes().to_vec();
        let own = [
            ("user", primary.user.as_str()),
            ("database", primary.database.as_str()),
        ];
        // Between nodes both ends prove that they are of the cluster.
        let purpose = parameters.iter().find(|p| p.0 == membership::REPLICATION);
        let purpose = purpose.and_then(|p| membership::purpose(p.1));
        let member = primary.member.as_ref().filter(|_| purpose.is_some());
        let node = member.map(|m| (membership::NODE, m.name()));
        for (k, v) in own.iter().chain(parameters).chain(&node) {
            cstr(&mut body, k);
            cstr(&mut body, v);
        }
        body.push(0);
        let mut out = ((body.len() + 4) as u32).to_be_bytes().to_vec();
        out.extend_from_slice(&body);
        self.write(&out).await?;
        let mut scram: Option<ScramSha256> = None;
        let mut asker = None;
        loop {
            let (kind, body) = self.message().await?;
            match (kind, body.split_first_chunk::<4>()) {
                (b'R', Some((code, rest))) => match u32::from_be_bytes(*code) {
                    0 if member.is_some() && self.peer.is_none() => {
                        return Err(unproven(primary));
                    }
                    0 => {}
                    10 if offers(rest, MECHANISM) => {
                        let (Some(member), Some(purpose)) = (member, purpose) else {
                            return Err(broken(
                                "a node is asked to prove itself, and this is none",
                            ));
                        };
                        let a = member.asker(purpose);
                        self.sasl(MECHANISM, a.introduction()).await?;
                        (asker, scram) = (Some(a), None);
                    }
                    11 if asker.is_some() => {
                        let a = asker.as_mut().expect("just seen");
                        let proof = a.challenged(rest).map_err(denied)?;
                        self.send(b'p', &proof).await?;
                    }
                    12 if asker.is_some() => {
                        let a = asker.take().expect("just seen");
                        let claim = a.answered(rest);
                        self.peer = Some(claim.map_err(|_| unproven(primary))?);
                    }
                    10 => {
                        let offered = offers(rest, SCRAM_SHA_256);
                        let password = primary.password().ok_or_else(|| {
                            Error::new(
                                SqlState::INVALID_AUTHORIZATION,
                                format!("{primary} wants a password for \"{}\"", primary.user),
                            )
                            .hint("Put it into replica_of or PGPASSWORD.")
                        })?;
                        if !offered {
                            return Err(broken("no way to log in that both know"));
                        }
                        let x =
                            ScramSha256::new(password.as_bytes(), ChannelBinding::unsupported());
                        self.sasl(SCRAM_SHA_256, x.message()).await?;
                        scram = Some(x);
                    }
                    11 => {
                        let x = scram.as_mut().ok_or_else(|| broken("SCRAM out of turn"))?;
                        x.update(rest).map_err(|e| lost(&e))?;
                        let out = x.message().to_vec();
                        self.send(b'p', &out).await?;
                    }
                    12 => {
                        let x = scram.as_mut().ok_or_else(|| broken("SCRAM out of turn"))?;
                        x.finish(rest).map_err(|e| lost(&e))?;
                    }
                    n => return Err(broken(&format!("authentication of kind {n}"))),
                },
                (b'K', Some((pid, rest))) => {
                    let secret = rest.first_chunk().ok_or_else(|| broken("a short key"))?;
                    self.key = (i32::from_be_bytes(*pid), i32::from_be_bytes(*secret));
                }
                (b'S', _) => {
                    let mut words = body.split(|&b| b == 0);
                    let mut word = || {
                        let w = words.next().unwrap_or_default();
                        String::from_utf8_lossy(w).into_owned()
                    };
                    self.parameters.push((word(), word()));
                }
                (b'Z', _) => return Ok(()),
                (b'E', _) => return Err(server_error(&body)),
                _ => {}
            }
        }
    }

    async fn sasl(&mut self, mechanism: &str, data: &[u8]) -> Result<()> {
        let mut out = Vec::new();
        cstr(&mut out, mechanism);
        out.extend_from_slice(&(data.len() as u32).to_be_bytes());
        out.extend_from_slice(data);
        self.send(b'p', &out).await
    }

    /// What a cancel request for this connection must say.
    pub fn key(&self) -> (i32, i32) {
        self.key
    }

    /// The socket, of a connection on which nothing has been said since the start.
    pub fn into_std(self) -> io::Result<std::net::TcpStream> {
        self.stream.into_std()
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
    pub fn into_parts(self) -> (TcpStream, Vec<u8>) {
        (self.stream, self.input)
    }

    /// Runs a text of statements; the rows of all.
    pub async fn query(&mut self, sql: &str) -> Result<Rows> {
        let mut body = Vec::new();
        cstr(&mut body, sql);
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

    /// Sends the command and goes over to CopyBoth, which the server does at once, or it is gone.
    pub async fn copy_both(self, command: &str) -> Result<CopyBoth<TcpStream>> {
        let primary = self.primary.clone();
        tokio::time::timeout(primary.connect_timeout, self.turn(command))
            .await
            .map_err(|_| no_answer(&primary, "it took too long"))?
    }

    async fn turn(mut self, command: &str) -> Result<CopyBoth<TcpStream>> {
        let mut body = Vec::new();
        cstr(&mut body, command);
        self.send(b'Q', &body).await?;
        loop {
            let (kind, body) = self.message().await?;
            match kind {
                b'W' => return Ok(CopyBoth::new(self.stream, self.input)),
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
        self.stream.write_all(bytes).await.map_err(|e| lost(&e))
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

fn no_answer(primary: &Primary, why: &str) -> Error {
    Error::new(
        SqlState::CONNECTION_FAILURE,
        format!("no connection to {primary}: {why}"),
    )
}

/// Whether this is among the mechanisms that a server offers.
fn offers(list: &[u8], mechanism: &str) -> bool {
    list.split(|&b| b == 0).any(|m| m == mechanism.as_bytes())
}

/// 28000: the other end may be anything.
fn unproven(primary: &Primary) -> Error {
    Error::new(
        SqlState::INVALID_AUTHORIZATION,
        format!(
            "{primary} does not prove that it has this cluster's secret: it is of another cluster, or of a build that knows of none"
        ),
    )
    .hint(format!(
        "Copy {} from the data directory of {primary}, and name the copy with --cluster-secret-file.",
        membership::FILE
    ))
}

fn cstr(out: &mut Vec<u8>, s: &str) {
    out.extend_from_slice(s.as_bytes());
    out.push(0);
}

fn row(body: &[u8]) -> Option<Vec<Option<String>>> {
    let (count, mut rest) = body.split_at_checked(2)?;
    let n = u16::from_be_bytes([count[0], count[1]]);
    let mut fields = Vec::with_capacity(n.into());
    for _ in 0..n {
        let (len, tail) = rest.split_at_checked(4)?;
        let len = i32::from_be_bytes(len.try_into().ok()?);
        rest = tail;
        fields.push(match usize::try_from(len) {
            Err(_) => None,
            Ok(len) => {
                let (value, tail) = rest.split_at_checked(len)?;
                rest = tail;
                Some(String::from_utf8_lossy(value).into_owned())
            }
        });
    }
    Some(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It has lost its power behind the login.
    #[tokio::test]
    async fn a_server_that_is_gone_after_the_login_is_not_waited_for() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let silent = tokio::spawn(async move {
            let (mut s, _) = listener.accept().await.expect("a connection");
            let mut start = [0; 4];
            s.read_exact(&mut start).await.expect("a length");
            let mut rest = vec![0; u32::from_be_bytes(start) as usize - 4];
            s.read_exact(&mut rest).await.expect("a start-up message");
            let ready = b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I";
            s.write_all(ready).await.expect("written");
            std::future::pending::<()>().await;
        });
        let primary = format!("host=127.0.0.1 port={port} connect_timeout=1");
        let primary = Primary::parse(&primary).expect("an address");
        let link = Link::connect(&primary, &[]).await.expect("logged in");
        let Err(e) = link.copy_both("START_REPLICATION").await else {
            panic!("it said nothing");
        };
        assert_eq!(e.code(), SqlState::CONNECTION_FAILURE);
        silent.abort();
    }
}
