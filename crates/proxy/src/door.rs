//! From a client's first bytes to its session at a first node: negotiation, cancel requests, the messages of its login passed through.

use super::end::{End, MAX_MESSAGE, MAX_WORD, gone};
use super::hello::Hello;
use super::route::{Attrs, Event, NodeId, SessionId};
use super::shared::{Client, Counters, LINGER, PAUSE, Proxy, STARTUP_LIMIT, TELL};
use super::track::Track;
use base::{Error, Result, SqlState};
use bytes::BytesMut;
use protocol::dial::dial;
use protocol::message::{self, server_error};
use protocol::scram::MECHANISM_PLUS;
use protocol::startup::{CANCEL_REQUEST, GSS_REQUEST, MAX_STARTUP, RELAYED, SSL_REQUEST};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

/// A node that says nothing for so long after it was reached is taken for gone.
const FIRST_WORD: Duration = Duration::from_secs(10);

/// Tells a client why it cannot stay, and lets it read that.
pub async fn farewell(mut front: End, e: &Error) {
    let mut m = message::fatal(e);
    if e.code() == SqlState::ADMIN_SHUTDOWN {
        // Behind another proxy, what was sent since may run elsewhere.
        m = message::nothing_run();
    }
    front.put(&m);
    let last = async {
        front.flush().await?;
        front.writer.shutdown().await?;
        let mut rest = [0; 4096];
        while front.reader.read(&mut rest).await? > 0 {}
        io::Result::Ok(())
    };
    _ = tokio::time::timeout(LINGER, last).await;
}

/// Waits for the start-up message. `None`: it was a cancel request, or the client is gone.
pub async fn hello(proxy: &Arc<Proxy>, front: &mut End) -> Result<Option<Hello>> {
    for _ in 0..3 {
        let len = loop {
            if let Some(head) = front.input.first_chunk::<4>() {
                let len = u32::from_be_bytes(*head) as usize;
                if !(8..=MAX_STARTUP).contains(&len) {
                    let what = "invalid length of startup packet";
                    return Err(Error::new(SqlState::PROTOCOL_VIOLATION, what));
                }
                if front.input.len() >= len {
                    break len;
                }
            }
            if front.fill().await.is_err() {
                return Ok(None);
            }
        };
        let message = front.input.split_to(len);
        let number = |at: usize| {
            let bytes = message.get(at..at + 4)?;
            Some(u32::from_be_bytes(bytes.try_into().ok()?))
        };
        match number(4) {
            Some(code @ (SSL_REQUEST | GSS_REQUEST)) => {
                if !front.input.is_empty() {
                    let what = "received unencrypted data after SSL request";
                    return Err(Error::new(SqlState::PROTOCOL_VIOLATION, what));
                }
                let tls = proxy.tls.as_ref().filter(|_| code == SSL_REQUEST);
                let answered = match tls.filter(|_| !front.is_secured()) {
                    Some(tls) => front.secure(tls).await,
                    None => {
                        front.put(b"N");
                        front.flush().await
                    }
                };
                answered.map_err(|e| gone(&e))?;
            }
            Some(CANCEL_REQUEST) => {
                if let (16, Some(pid), Some(secret)) = (len, number(8), number(12)) {
                    cancel(proxy, pid as i32, secret as i32).await;
                }
                return Ok(None);
            }
            _ => return Hello::read(&message[4..]).map(Some),
        }
    }
    Err(Error::new(
        SqlState::PROTOCOL_VIOLATION,
        "too many negotiation requests",
    ))
}

/// Passes a cancel request on to where the client's statements run.
async fn cancel(proxy: &Proxy, id: SessionId, secret: i32) {
    let client = proxy.clients.lock().get(&id).cloned();
    let at = client
        .filter(|c| c.secret == secret)
        .and_then(|c| *c.at.lock());
    let Some((node, key)) = at else { return };
    Counters::add(&proxy.counters.cancels);
    protocol::link::cancel(&proxy.node(node), key).await;
}

/// 28000 for a client of another machine that is not inside of TLS, unless that is allowed.
pub fn may_be_plain(proxy: &Proxy, front: &End, address: &SocketAddr) -> Result<()> {
    let allowed = proxy.options.allow_plain_network || is_own_machine(address);
    match allowed || front.is_secured() {
        true => Ok(()),
        false => Err(Error::new(
            SqlState::INVALID_AUTHORIZATION,
            "a connection from another machine must use TLS",
        )),
    }
}

/// Finds a first node and lets it ask the client who it is. `None`: the node has refused, and the client knows.
#[allow(clippy::too_many_arguments)]
pub async fn begin(
    proxy: &Arc<Proxy>,
    id: SessionId,
    own: &Client,
    hello: &Hello,
    attrs: Attrs,
    address: SocketAddr,
    front: &mut End,
    track: &mut Track,
) -> Result<Option<(End, NodeId)>> {
    let until = Instant::now() + proxy.options.patience;
    let mut avoid = None;
    loop {
        let node = proxy.pick(attrs, avoid, until).await?;
        let opened = open(proxy, node, hello, front.end_point.clone()).await;
        let mut end = match opened {
            Ok(end) => end,
            Err(e) if Instant::now() < until => {
                proxy.failed(node, &e);
                avoid = Some(node);
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            Err(e) => return Err(none(&e)),
        };
        // A node that is on its way out says so before anything else. One that was stopped accepts connections and says nothing.
        let limit = until.min(Instant::now() + FIRST_WORD);
        let first = tokio::time::timeout_at(limit, end.next()).await;
        let first = first.unwrap_or_else(|_| Err(silent()));
        let (kind, message) = match first {
            Ok((b'E', m))
                if refusal(&m).is_some_and(|e| elsewhere(&e)) && Instant::now() < until =>
            {
                avoid = Some(node);
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            Ok(m) => m,
            Err(_) if Instant::now() < until => {
                proxy.event(Event::Down(node));
                avoid = Some(node);
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            Err(e) => return Err(none(&e)),
        };
        let trusted = is_own_machine(&address) || proxy.options.allow_passwordless_network;
        let bound = proxy.secret.is_some();
        let log_in = log_in(front, &mut end, (kind, message), (trusted, bound), track);
        let key = match tokio::time::timeout(STARTUP_LIMIT, log_in).await {
            Ok(key) => key?,
            Err(_) => return Ok(None),
        };
        let Some(key) = key else {
            return Ok(None);
        };
        end.most = MAX_MESSAGE;
        *own.at.lock() = Some((node, key));
        let mut k = vec![b'K', 0, 0, 0, 12];
        k.extend_from_slice(&id.to_be_bytes());
        k.extend_from_slice(&own.secret.to_be_bytes());
        front.put(&k);
        front.put(&[b'Z', 0, 0, 0, 5, b'I']);
        front.flush().await.map_err(|e| gone(&e))?;
        track.start();
        proxy.event(Event::Opened {
            session: id,
            node,
            attrs,
        });
        return Ok(Some((end, node)));
    }
}

/// 28000: the node's end is inside of TLS, where a proof counts only if the node knows what it is bound to.
fn unbound() -> Error {
    Error::new(
        SqlState::INVALID_AUTHORIZATION,
        "the proxy cannot pass a password's proof on to a node with TLS: it does not have the cluster's secret",
    )
    .hint("Start the proxy with --cluster-secret-file.")
}

fn silent() -> Error {
    Error::new(
        SqlState::CONNECTION_FAILURE,
        "the node accepts connections and says nothing",
    )
}

/// 57P03: the proxy's patience has ended, with this for its last reason.
pub fn none(why: &Error) -> Error {
    let what = format!("no node can be reached: {}", why.fields().message);
    Error::new(SqlState::CANNOT_CONNECT_NOW, what)
}

/// Whether a client is on this machine, also where IPv4 comes through an IPv6 socket.
fn is_own_machine(address: &SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

fn refusal(message: &[u8]) -> Option<Error> {
    (message.first() == Some(&b'E')).then(|| server_error(&message[5..]))
}

/// Whether another node may take what this one refuses.
pub fn elsewhere(e: &Error) -> bool {
    matches!(
        &e.code().to_string()[..],
        "57P01" | "57P03" | "53300" | "08006"
    )
}

/// Connects to a node for a client's login, and says to it that this is one, and what the client's end is bound to.
async fn open(proxy: &Proxy, node: NodeId, hello: &Hello, bound: Option<Vec<u8>>) -> Result<End> {
    let mut at = proxy.node(node);
    // The proxy's certificate proves nothing of the client.
    (at.tls.certificate, at.tls.key) = (None, None);
    let mut end = End::new(dial(&at).await?, &[]);
    end.most = MAX_WORD;
    let there = end.end_point.as_deref();
    let relayed = proxy.secret.as_ref();
    let relayed = relayed.map(|s| s.relay(there, bound.as_deref()));
    let relayed = relayed.as_ref().map(|said| (RELAYED, said.as_str()));
    let told: Vec<_> = TELL.into_iter().chain(relayed).collect();
    end.put(&hello.message(&told));
    end.flush().await.map_err(|e| gone(&e))?;
    Ok(end)
}

/// A node asks for nothing else than SCRAM: a password in clear or MD5 would be worth something to what only says that it is a node.
fn is_fit_to_pass(code: Option<u32>) -> bool {
    matches!(code, Some(0 | 10 | 11 | 12))
}

/// Passes the messages of authentication through, up to the node's first ReadyForQuery, which is not passed on. The key of a cancel
/// request at the node; `None`: the node has refused, or the client is gone.
///
/// `trusted`: the client may get in without a proof. `bound`: the node knows what the client's end is bound to.
async fn log_in(
    front: &mut End,
    back: &mut End,
    first: (u8, BytesMut),
    (trusted, bound): (bool, bool),
    track: &mut Track,
) -> Result<Option<[u8; 8]>> {
    let (mut proved, mut key, mut next) = (false, [0; 8], Some(first));
    let mut told = Vec::new();
    loop {
        let (kind, m) = match next.take() {
            Some(m) => m,
            None => back.next().await?,
        };
        match kind {
            b'R' => {
                let code = m
                    .get(5..9)
                    .map(|c| u32::from_be_bytes(c.try_into().expect("four")));
                if !is_fit_to_pass(code) {
                    return Err(Error::new(
                        SqlState::INVALID_AUTHORIZATION,
                        "the node asks for a password in a way that nodes do not ask",
                    ));
                }
                let plus = || {
                    m[9..]
                        .split(|b| *b == 0)
                        .any(|n| n == MECHANISM_PLUS.as_bytes())
                };
                if code == Some(10) && !bound && plus() {
                    return Err(unbound());
                }
                proved |= code == Some(12);
                if code == Some(0) && !proved && !trusted {
                    return Err(Error::new(
                        SqlState::INVALID_AUTHORIZATION,
                        "roles without a password get in from the proxy's own machine only",
                    ));
                }
                front.put(&m);
                // What asks for a word of the client.
                if matches!(code, Some(10 | 11)) {
                    front.flush().await.map_err(|e| gone(&e))?;
                    let (kind, answer) = front.next().await?;
                    if kind != b'p' {
                        let what = "expected a password message";
                        return Err(Error::new(SqlState::PROTOCOL_VIOLATION, what));
                    }
                    back.put(&answer);
                    back.flush().await.map_err(|e| gone(&e))?;
                }
            }
            b'K' => key = m[5..].try_into().unwrap_or_default(),
            b'S' => told.extend(message::parameter(&m[5..])),
            b'Z' => {
                front.put(&track.connected(&told));
                return Ok(Some(key));
            }
            b'E' => {
                front.put(&m);
                _ = front.flush().await;
                return Ok(None);
            }
            _ => front.put(&m),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::Line;
    use tokio::net::TcpStream;

    /// Two ends of one connection.
    async fn pair() -> (End, TcpStream) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let there = TcpStream::connect(listener.local_addr().unwrap());
        let (there, here) = tokio::join!(there, listener.accept());
        let here = Line::Plain(here.unwrap().0);
        (End::new(here, &[]), there.unwrap())
    }

    /// What comes of a login at a node that says this.
    async fn login(node: &[u8], trusted: bool) -> Result<Option<[u8; 8]>> {
        let ((mut front, _client), (mut back, mut far)) = (pair().await, pair().await);
        front.most = MAX_WORD;
        far.write_all(node).await.unwrap();
        let first = back.next().await.unwrap();
        let mut track = Track::new(true);
        log_in(&mut front, &mut back, first, (trusted, false), &mut track).await
    }

    fn r(code: u8) -> [u8; 9] {
        [b'R', 0, 0, 0, 8, 0, 0, 0, code]
    }

    #[tokio::test]
    async fn who_has_proved_nothing_is_let_in_only_where_he_is_trusted() {
        let rest = [&b"K\0\0\0\x0c12345678"[..], b"Z\0\0\0\x05I"].concat();
        let open = [&r(0)[..], &rest].concat();
        assert_eq!(login(&open, true).await.unwrap(), Some(*b"12345678"));
        let e = login(&open, false).await.unwrap_err();
        assert_eq!(e.code(), SqlState::INVALID_AUTHORIZATION);
        let proved = [&r(12)[..], &r(0), &rest].concat();
        assert_eq!(login(&proved, false).await.unwrap(), Some(*b"12345678"));
    }

    /// What only says that it is a node gets nothing that it could use elsewhere.
    #[tokio::test]
    async fn a_password_is_proven_and_not_sent() {
        let ((mut front, mut client), (mut back, mut far)) = (pair().await, pair().await);
        for code in [2, 3, 5, 6, 7, 9] {
            far.write_all(&r(code)).await.unwrap();
            client.write_all(b"p\0\0\0\x0bsecret\0").await.unwrap();
            let first = back.next().await.unwrap();
            let mut track = Track::new(true);
            let e = log_in(&mut front, &mut back, first, (true, true), &mut track).await;
            assert_eq!(e.unwrap_err().code(), SqlState::INVALID_AUTHORIZATION);
            assert!(back.output.is_empty() && front.output.is_empty(), "{code}");
        }
    }

    /// The better mechanism is offered, and the node does not know what the client's end is bound to.
    #[tokio::test]
    async fn a_proof_for_a_node_with_tls_needs_the_secret() {
        let names = b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0";
        let len = 8 + names.len() as u8;
        let offer = [&[b'R', 0, 0, 0, len, 0, 0, 0, 10], &names[..]].concat();
        let e = login(&offer, true).await.unwrap_err();
        assert!(e.fields().hint.contains("--cluster-secret-file"), "{e}");
    }

    #[tokio::test]
    async fn who_has_proved_nothing_does_not_send_much() {
        let ((mut front, mut client), (mut back, mut far)) = (pair().await, pair().await);
        front.most = MAX_WORD;
        far.write_all(&r(10)).await.unwrap();
        // A password that is far longer than what there is of it.
        client.write_all(b"p\x10\0\0\0").await.unwrap();
        drop(client);
        let first = back.next().await.unwrap();
        let mut track = Track::new(true);
        let e = log_in(&mut front, &mut back, first, (true, false), &mut track).await;
        assert_eq!(e.unwrap_err().code(), SqlState::PROTOCOL_VIOLATION);
    }

    #[test]
    fn the_own_machine_is_the_loopback() {
        for (address, own) in [
            ("127.0.0.1:1", true),
            ("127.1.2.3:1", true),
            ("[::1]:1", true),
            ("[::ffff:127.0.0.1]:1", true),
            ("192.0.2.7:1", false),
            ("[::ffff:192.0.2.7]:1", false),
            ("[2001:db8::1]:1", false),
        ] {
            assert_eq!(is_own_machine(&address.parse().unwrap()), own, "{address}");
        }
    }
}
