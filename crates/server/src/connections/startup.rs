//! From a new socket to a session: negotiation, cancel requests, who it is.
//!
//! ```text
//! SSLRequest -> 'S', handshake, again; where there is no TLS, and for GSSENCRequest, 'N', again
//! CancelRequest -> interrupts, closed without a word
//! a primary's question how far this node is (`replication::ask`) -> answered, closed
//! StartupMessage -> (SCRAM, bound to TLS) -> AuthenticationOk, ParameterStatus ..., BackendKeyData, ReadyForQuery
//! ```
//! From other machines a connection has to be inside of TLS, unless the server was told otherwise in so many words (`allow_plain_network`).
//! Rules say which role may come from where, and how it proves itself (`access`). Without rules
//! a role without a password gets in from the same machine only, unless the server was told otherwise in so many words; one with
//! a password must prove it from anywhere.
//!
//! A server that does not serve yet (`Engine::opening`) lets replicas in, and superusers who ask for it (`canon.maintenance`); others wait
//! a moment for it and are told 57P03.
//!
//! A replica looks at the primary's newest schema first (`look`).
//!
//! Until it has proven who it is a connection stands in a room of limited size (`service::room`), and has no seat of `max_connections` (`seats`).
//!
//! `replication=canon` asks for a connection of a replica (`replication::send`), `replication=forward` for one that does the work of
//! another node's sessions (`forward`): the role must be a superuser or have REPLICATION.
//!
//! `canon.session_user=NAME` gives the session to another role than the one that logs in, for good: a proxy that has carried NAME's own
//! proof to one node opens NAME's sessions at others so. Only superusers may, the rules must let NAME in, and nothing in the session leads back
//! to them.
//!
//! `canon.relayed` comes of a proxy that passes a client's login on. It proves the cluster's secret, and says to which certificate the client's end is bound:
//! SCRAM is bound to that one then. `canon.node` without `replication` asks this end to prove that it is a node.
//!
//! `replication=control` is a member's of the control plane. `canon.meant` says which member it means: a server that is another one refuses it.
//!
//! Left out on purpose: PostgreSQL's own replication protocol.

use super::Connections;
use super::look::Look;
use super::seats::Standing;
use super::visitor::{Origin, Visitor};
use super::wire::{Stream, Wire, gone};
use crate::entrance::access::{self, Method, Wants};
use crate::entrance::roles::{is_valid, may_log_in, verifier};
use crate::replication::Membership;
use crate::replication::ask::{ASK, SHOW, answer, shown};
use crate::replication::members::{Members, is_meant};
use crate::replication::membership::{MECHANISM, NODE, REPLICATION, denied, purpose};
use base::schema::Schema;
use base::{Error, Result, SqlState};
use protocol::frontend::{self, Reader, violation};
use protocol::line::Protection;
use protocol::scram;
use protocol::startup::{
    ACKS, CANCEL_REQUEST, GSS_REQUEST, LEASES, LISTEN, MAX_STARTUP, MEANT, MEMBER, RELAYED,
    REPORT_SETTINGS, SESSION_USER, SSL_REQUEST, Startup,
};
use protocol::tls::Acceptor;
use replica::proof::{Claim, Purpose};
use sql::engine::Engine;
use sql::session::{Activity, Handle, Peer, SERVER_VERSION, Session, TxnStatus};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How long a connection waits for a server that does not serve yet.
const OPENING: Duration = Duration::from_secs(5);

/// What a client said first.
struct Hello {
    user: String,
    database: String,
    /// Another node's: what it is for, and whether the node will prove that it is one.
    purpose: Option<Purpose>,
    proves: bool,
    /// A proxy passes a client's login on, and says so.
    relayed: Option<String>,
    parameters: Vec<(String, String)>,
}

impl Hello {
    /// The number of the member that it means to reach.
    fn meant(&self) -> Option<&str> {
        let said = self.parameters.iter().find(|p| p.0 == MEANT);
        said.map(|p| p.1.as_str())
    }

    /// Whether it asks to be let in before the server serves; who may is decided with the setting.
    fn is_maintenance(&self) -> bool {
        let on = |v: &str| matches!(v, "on" | "true" | "1" | "yes");
        let asks = |(k, v): &(String, String)| match k.as_str() {
            "canon.maintenance" => on(v),
            "options" => v
                .split_once("canon.maintenance=")
                .is_some_and(|(_, v)| on(v.split_whitespace().next().unwrap_or(""))),
            _ => false,
        };
        self.parameters.iter().any(asks)
    }
}

/// Waits for a while until the server serves; 57P03.
async fn opened<E: Engine>(connections: &Connections<E>) -> Result<()> {
    let Some(opening) = connections.shared.engine.opening() else {
        return Ok(());
    };
    match tokio::time::timeout(OPENING, opening.ready).await {
        Ok(opened) => opened,
        // What it waits for may be another thing by now.
        Err(_) => Err(Error::new(
            SqlState::CANNOT_CONNECT_NOW,
            format!(
                "the database system is not serving yet: {}",
                connections
                    .shared
                    .engine
                    .opening()
                    .map_or(opening.why, |o| o.why)
            ),
        )
        .hint("A superuser may connect with options='-c canon.maintenance=on' to promote it.")),
    }
}

/// What a connection is for.
pub enum Started<E: Engine> {
    Session(Box<Session<E>>),
    /// A replica, or a stranger that reads the log.
    Replica(Visitor),
    /// Two nodes have told each other the newest term that they know of. That is all.
    Terms,
    /// A node that has proven itself, for the control plane.
    Control,
}

/// Brings a connection to its session. `None`: it was a cancel request, or the client went away.
pub async fn start<S: Stream, E: Engine>(
    wire: &mut Wire<S>,
    connections: &Connections<E>,
    origin: &Origin,
    standing: &mut Standing,
) -> Result<Option<Started<E>>> {
    let Some(hello) = hello(wire, connections, origin).await? else {
        return Ok(None);
    };
    let user = hello.user.clone();
    let started = enter(wire, connections, origin, hello, standing).await;
    if let Err(e) = &started
        && is_refusal(e)
    {
        crate::audit::refused_login(&user, origin.address, e);
    }
    started
}

/// 28000.
fn plain_refused() -> Error {
    Error::new(
        SqlState::INVALID_AUTHORIZATION,
        "a connection from another machine must use TLS",
    )
    .hint("Connect with sslmode=require or better. The server takes plain connections where allow_plain_network = true.")
}

/// Whether an error is that of a login that was refused, and not of a client or a server that went away.
fn is_refusal(e: &Error) -> bool {
    matches!(
        e.code(),
        SqlState::INVALID_AUTHORIZATION
            | SqlState::INVALID_PASSWORD
            | SqlState::INSUFFICIENT_PRIVILEGE
            | SqlState::INVALID_CATALOG_NAME
            | SqlState::PROTOCOL_VIOLATION
    )
}

/// From a client's first words to what its connection is for.
async fn enter<S: Stream, E: Engine>(
    wire: &mut Wire<S>,
    connections: &Connections<E>,
    origin: &Origin,
    hello: Hello,
    standing: &mut Standing,
) -> Result<Option<Started<E>>> {
    if !origin.local && !wire.stream.is_secured() && !connections.entrance.allow_plain_network {
        return Err(plain_refused());
    }
    if hello.purpose == Some(Purpose::Terms) {
        // The proof is the login: such a connection reads and writes nothing.
        prove(wire, connections, Purpose::Terms).await?;
        standing.proven();
        wire.out.authentication_ok();
        wire.out.ready(TxnStatus::Idle);
        return Ok(Some(Started::Terms));
    }
    if hello.purpose == Some(Purpose::Control) {
        prove(wire, connections, Purpose::Control).await?;
        let senders = &connections.senders;
        let own = senders.membership.name();
        is_meant(senders.control.get(), hello.meant(), own)?;
        standing.proven();
        wire.out.authentication_ok();
        wire.out.ready(TxnStatus::Idle);
        return Ok(Some(Started::Control));
    }
    authenticate(wire, connections, origin, &hello).await?;
    // Nodes pass where no seat is free: commits of the sessions that have all of them may wait for these.
    if hello.purpose != Some(Purpose::Replica) || !hello.proves {
        standing.proven();
        standing.has_to_sit()?;
    }
    if hello.purpose.is_none() && hello.proves {
        prove(wire, connections, Purpose::Proxy).await?;
    }
    let hello = on_behalf(wire.stream.is_secured(), connections, origin, hello).await?;
    let mut member = None;
    if let Some(purpose) = hello.purpose {
        let catalog = connections.shared.engine.catalog();
        let role = catalog.schema.role_named(&hello.user);
        let role = role.filter(|r| r.superuser || r.replication);
        let user = role.map(|r| r.id).ok_or_else(|| {
            Error::new(
                SqlState::INSUFFICIENT_PRIVILEGE,
                "must be superuser or replication role to start walsender",
            )
        })?;
        if hello.proves {
            member = Some(prove(wire, connections, purpose).await?);
        }
        standing.proven();
        if purpose == Purpose::Sessions && member.is_none() {
            return Err(Error::new(
                SqlState::INVALID_AUTHORIZATION,
                "only a node that proves that it has the cluster's secret runs statements for sessions of its own",
            ));
        }
        if purpose == Purpose::Replica {
            wire.out.authentication_ok();
            wire.out.ready(TxnStatus::Idle);
            let said = |name: &str| hello.parameters.iter().find(|p| p.0 == name);
            let visitor = Visitor {
                user,
                listen: said(LISTEN).and_then(|p| p.1.parse().ok()),
                member,
                number: said(MEMBER).and_then(|p| p.1.parse().ok()),
                leases: said(LEASES).is_some_and(|p| p.1 == "on"),
                acks: said(ACKS).is_some_and(|p| p.1 == "on"),
                full: !standing.sits(),
            };
            return Ok(Some(Started::Replica(visitor)));
        }
    }
    if hello.database != connections.shared.database {
        return Err(Error::new(
            SqlState::INVALID_CATALOG_NAME,
            format!("database \"{}\" does not exist", hello.database),
        ));
    }
    if !hello.is_maintenance() {
        opened(connections).await?;
    }
    let mut secret = [0; 4];
    connections.shared.host.random(&mut secret);
    let handle = connections
        .shared
        .sessions
        .register(i32::from_be_bytes(secret));
    let pid = handle.pid;
    let began = begin(wire, connections, origin, &hello, handle);
    if began.is_err() {
        connections.shared.sessions.remove(pid);
    }
    began.map(|s| Some(Started::Session(Box::new(s))))
}

/// Has the other end prove that it is a node of this cluster, and proves it to it; the node's name. What it claims is heard.
async fn prove<S: Stream, E: Engine>(
    wire: &mut Wire<S>,
    connections: &Connections<E>,
    purpose: Purpose,
) -> Result<String> {
    let claim = prove_to(wire, &connections.senders.membership, purpose).await?;
    connections.senders.told(&claim);
    Ok(claim.node)
}

/// Where there is no database yet: whether a member of the cluster has proven itself, for the control plane. Others are not let in.
pub async fn knock<S: Stream>(
    wire: &mut Wire<S>,
    membership: &Membership,
    members: &Arc<dyn Members>,
    tls: Option<&Acceptor>,
    local: bool,
) -> Result<bool> {
    for _ in 0..3 {
        let Some(message) = first_message(wire).await? else {
            break;
        };
        match u32::from_be_bytes(message[4..8].try_into().expect("at least eight bytes")) {
            code @ (SSL_REQUEST | GSS_REQUEST) => {
                encrypt(wire, tls.filter(|_| code == SSL_REQUEST)).await?;
            }
            CANCEL_REQUEST | ASK | SHOW => break,
            _ => {
                let hello = startup(wire, &message)?;
                if hello.purpose != Some(Purpose::Control) {
                    return Ok(false);
                }
                if !local && !wire.stream.is_secured() && !membership.allows_plain_network() {
                    return Err(plain_refused());
                }
                let claim = prove_to(wire, membership, Purpose::Control).await?;
                is_meant(Some(members), hello.meant(), membership.name())?;
                // Only a member of its own cluster knows the number.
                if hello.meant().is_some() {
                    membership.meets(claim.cluster)?;
                }
                wire.out.authentication_ok();
                wire.out.ready(TxnStatus::Idle);
                wire.send().await.map_err(|e| gone(&e))?;
                return Ok(true);
            }
        }
    }
    Err(gone(&std::io::ErrorKind::UnexpectedEof.into()))
}

/// Has the other end prove that it has the cluster's secret, and proves it to it; what it claims.
async fn prove_to<S: Stream>(
    wire: &mut Wire<S>,
    membership: &Membership,
    purpose: Purpose,
) -> Result<Claim> {
    wire.out.sasl(&[MECHANISM]);
    let first = password_message(wire).await?;
    let first = chosen(&first, MECHANISM)?;
    let (answerer, second) = membership.answerer(purpose, first).map_err(denied)?;
    wire.out.sasl_continue(second);
    let proof = password_message(wire).await?;
    let (claim, answer) = answerer.proven(&proof).map_err(denied)?;
    wire.out.sasl_final(answer);
    Ok(claim)
}

/// The mechanism that a client has chosen, and what came with the choice.
fn choice(message: &[u8]) -> Result<(&str, &[u8])> {
    let mut r = Reader(message);
    let mechanism = r.string()?;
    let len = r.i32()?;
    let len = usize::try_from(len).map_err(|_| violation("missing SASL message"))?;
    Ok((mechanism, r.take(len)?))
}

/// What came with the choice of this mechanism.
fn chosen<'a>(message: &'a [u8], mechanism: &str) -> Result<&'a [u8]> {
    match choice(message)? {
        (m, data) if m == mechanism => Ok(data),
        _ => Err(scram::not_offered()),
    }
}

/// Gives the session to the role that `canon.session_user` names.
async fn on_behalf<E: Engine>(
    tls: bool,
    connections: &Connections<E>,
    origin: &Origin,
    mut hello: Hello,
) -> Result<Hello> {
    let asked = |(name, _): &(String, String)| name == SESSION_USER;
    let Some(at) = hello.parameters.iter().position(asked) else {
        return Ok(hello);
    };
    let (_, name) = hello.parameters.remove(at);
    let schema = connections.shared.engine.catalog().schema.clone();
    let own = schema.role_named(&hello.user);
    if hello.purpose == Some(Purpose::Replica) || !own.is_some_and(|r| r.superuser) {
        return Err(Error::new(
            SqlState::INSUFFICIENT_PRIVILEGE,
            format!("must be superuser to set {SESSION_USER}"),
        ));
    }
    hello.user = name;
    let may = |schema: &Schema| {
        may_log_in(schema, &hello.user)?;
        match method(tls, connections, origin, &hello, schema)? {
            Some(Method::Cert) => Err(no_certificate()),
            _ => Ok(()),
        }
    };
    if may(&schema).is_err() {
        Look::at(&*connections.shared.engine, &connections.looks)
            .end()
            .await;
        may(&connections.shared.engine.catalog().schema)?;
    }
    Ok(hello)
}

/// 28000: a rule wants a certificate, and what the connection shows is that of a proxy.
fn no_certificate() -> Error {
    Error::new(
        SqlState::INVALID_AUTHORIZATION,
        "a client's certificate does not come through a proxy",
    )
    .hint("Connect to the node.")
}

/// What a client's proof is bound to: this connection, or that between the client and the proxy that passes the login on. 28000 for a proxy that does not
/// have the cluster's secret.
fn binding<S: Stream, E: Engine>(
    wire: &Wire<S>,
    connections: &Connections<E>,
    hello: &Hello,
) -> Result<Option<Vec<u8>>> {
    let own = wire.stream.end_point();
    let Some(said) = &hello.relayed else {
        return Ok(own.map(<[u8]>::to_vec));
    };
    let secret = connections.senders.membership.secret();
    secret.relayed(own, said).map_err(|_| {
        Error::new(
            SqlState::INVALID_AUTHORIZATION,
            "the proxy that passes this login on does not prove that it has the cluster's secret",
        )
        .hint("Start it with --cluster-secret-file. If it has that: another end stands between the proxy and this node.")
    })
}

fn begin<S: Stream, E: Engine>(
    wire: &mut Wire<S>,
    connections: &Connections<E>,
    origin: &Origin,
    hello: &Hello,
    handle: Arc<Handle>,
) -> Result<Session<E>> {
    let (pid, secret) = (handle.pid, handle.secret);
    let peer = Peer {
        address: origin.address.map(|a| a.ip().to_string()),
        port: origin.address.map(|a| i32::from(a.port())),
        protection: wire.stream.protection().map(shown_protection),
    };
    handle.activity.lock().between_nodes = hello.purpose.is_some();
    let mut session = Session::start(
        &connections.shared,
        &hello.user,
        handle,
        peer,
        &hello.parameters,
    )?;
    match hello.purpose {
        Some(Purpose::Sessions) => session.accept_adoptions(),
        Some(_) => {}
        None => check_limit(connections, &hello.user)?,
    }
    let out = &mut wire.out;
    out.authentication_ok();
    for (name, value) in session.reported() {
        out.parameter_status(name, &value);
    }
    out.parameter_status("canon_version", env!("CARGO_PKG_VERSION"));
    if hello.parameters.iter().any(|p| p.0 == REPORT_SETTINGS) {
        let term = connections.shared.engine.cluster_status().term;
        out.parameter_status("canon.term", &term.to_string());
    }
    debug_assert!(SERVER_VERSION.starts_with("15."));
    out.backend_key(pid, secret);
    out.ready(session.status());
    Ok(session)
}

/// As `pg_stat_ssl` has it.
fn shown_protection(p: Protection) -> sql::session::Protection {
    sql::session::Protection {
        version: p.version,
        cipher: p.cipher,
        bits: p.bits,
        client: p.client.map(|c| sql::session::ClientCertificate {
            subject: c.subject,
            serial: c.serial,
            issuer: c.issuer,
        }),
    }
}

/// Answers a request to encrypt what follows: by TLS where there is an acceptor, else with no.
async fn encrypt<S: Stream>(wire: &mut Wire<S>, tls: Option<&Acceptor>) -> Result<()> {
    // Bytes that came with the request could be a forgery to be read as if they were inside of TLS.
    if !wire.input.bytes().is_empty() {
        return Err(violation("received unencrypted data after SSL request"));
    }
    let made = match tls.filter(|_| !wire.stream.is_secured()) {
        Some(tls) => tls.accept(&mut wire.stream).await,
        None => {
            wire.out.buf.push(b'N');
            wire.send().await
        }
    };
    made.map_err(|e| gone(&e))
}

async fn hello<S: Stream, E: Engine>(
    wire: &mut Wire<S>,
    connections: &Connections<E>,
    origin: &Origin,
) -> Result<Option<Hello>> {
    // A client asks at most once each for TLS and GSS.
    for _ in 0..3 {
        let Some(message) = first_message(wire).await? else {
            return Ok(None);
        };
        let code = u32::from_be_bytes(message[4..8].try_into().expect("at least eight bytes"));
        match code {
            SSL_REQUEST => {
                // A Unix socket needs none, as with PostgreSQL.
                let tls = connections.entrance.tls.as_deref();
                let tls = tls.filter(|_| origin.address.is_some());
                let encrypted = encrypt(wire, tls).await;
                if tls.is_some()
                    && let Err(e) = &encrypted
                {
                    crate::audit::refused_handshake(origin.address, e);
                }
                encrypted?;
            }
            GSS_REQUEST => encrypt(wire, None).await?,
            CANCEL_REQUEST => {
                if let [.., a, b, c, d, e, f, g, h] = message[8..]
                    && message.len() == 16
                {
                    let pid = i32::from_be_bytes([a, b, c, d]);
                    let secret = i32::from_be_bytes([e, f, g, h]);
                    connections.shared.sessions.cancel(pid, secret);
                }
                return Ok(None);
            }
            ASK => {
                let name = &connections.shared.database;
                let s = &connections.senders;
                if let Some(a) = answer(s.node(), &s.membership, name, &message[8..]) {
                    wire.out.buf.extend_from_slice(&a);
                    wire.send().await.map_err(|e| gone(&e))?;
                }
                return Ok(None);
            }
            SHOW => {
                let senders = connections.senders.clone();
                let read = move || shown(senders.node(), &senders.membership, &message[8..]);
                let read = tokio::task::spawn_blocking(read).await;
                if let Ok(Some(a)) = read {
                    wire.out.buf.extend_from_slice(&a);
                    wire.send().await.map_err(|e| gone(&e))?;
                }
                return Ok(None);
            }
            _ => return startup(wire, &message).map(Some),
        }
    }
    Err(violation("too many negotiation requests"))
}

/// Waits for a whole first message: its length, itself included, and its body.
async fn first_message<S: Stream>(wire: &mut Wire<S>) -> Result<Option<Vec<u8>>> {
    loop {
        let have = wire.input.bytes();
        if let Some(head) = have.first_chunk::<4>() {
            let len = u32::from_be_bytes(*head) as usize;
            if !(8..=MAX_STARTUP).contains(&len) {
                return Err(violation("invalid length of startup packet"));
            }
            if have.len() >= len {
                let message = have[..len].to_vec();
                wire.input.take(len);
                return Ok(Some(message));
            }
        }
        match wire.input.fill(&mut wire.stream).await {
            Ok(0) | Err(_) => return Ok(None),
            Ok(_) => {}
        }
    }
}

fn startup<S: Stream>(wire: &mut Wire<S>, message: &[u8]) -> Result<Hello> {
    let s = Startup::read(&message[4..])?;
    let names = s.parameters.iter().map(|(name, _)| name);
    let unknown: Vec<_> = names.filter(|n| n.starts_with("_pq_.")).cloned().collect();
    if s.minor > 0 || !unknown.is_empty() {
        wire.out.negotiate(unknown);
    }
    // Of a name that comes twice the last value counts.
    let parameters: BTreeMap<String, String> = s.parameters.into_iter().collect();
    let user = parameters.get("user").filter(|u| !u.is_empty());
    let user = user
        .ok_or_else(|| {
            Error::new(
                SqlState::INVALID_AUTHORIZATION,
                "no PostgreSQL user name specified in startup packet",
            )
        })?
        .clone();
    let purpose = match parameters.get(REPLICATION).map(String::as_str) {
        None | Some("false" | "off" | "no" | "0") => None,
        Some(p) if purpose(p).is_some() => purpose(p),
        Some(_) => {
            return Err(
                Error::unsupported("PostgreSQL's replication protocol").hint(
                    "Replicas of Canon ask for replication=canon; `canon start --replica-of` does.",
                ),
            );
        }
    };
    let database = parameters.get("database").filter(|d| !d.is_empty());
    Ok(Hello {
        database: database.unwrap_or(&user).clone(),
        purpose,
        proves: parameters.contains_key(NODE),
        relayed: parameters.get(RELAYED).cloned(),
        user,
        parameters: parameters
            .into_iter()
            .filter(|p| p.0 != NODE && p.0 != RELAYED)
            .collect(),
    })
}

async fn authenticate<S: Stream, E: Engine>(
    wire: &mut Wire<S>,
    connections: &Connections<E>,
    origin: &Origin,
    hello: &Hello,
) -> Result<()> {
    let user = hello.user.as_str();
    let engine = &*connections.shared.engine;
    let end_point = binding(wire, connections, hello)?;
    let tls = wire.stream.is_secured();
    let mut look = Look::at(engine, &connections.looks);
    look.soon().await;
    let mut schema = engine.catalog().schema.clone();
    let mut method = match method(tls, connections, origin, hello, &schema) {
        Ok(method) => method,
        // The role may have become a member of another one a moment ago.
        Err(_) => {
            look.end().await;
            schema = engine.catalog().schema.clone();
            self::method(tls, connections, origin, hello, &schema)?
        }
    };
    let trusted = method.is_none_or(|m| matches!(m, Method::Trust | Method::Cert))
        && (method.is_some() || origin.local || connections.entrance.allow_passwordless_network);
    if trusted && may_log_in(&schema, user).is_err() {
        look.end().await;
        schema = engine.catalog().schema.clone();
        method = self::method(tls, connections, origin, hello, &schema)?;
    }
    match method {
        Some(Method::Trust) => return may_log_in(&schema, user),
        Some(Method::Cert) => {
            certified(wire, hello)?;
            return may_log_in(&schema, user);
        }
        None if trusted && verifier(&schema, user).is_none() => return may_log_in(&schema, user),
        _ => {}
    }
    wire.out.sasl(scram::offered(end_point.as_deref()));
    let first = look.beside(password_message(wire)).await?;
    let mut nonce = [0; 18];
    connections.shared.host.random(&mut nonce);
    let schema = engine.catalog().schema.clone();
    let now = connections.shared.now();
    let valid = verifier(&schema, user).filter(|_| is_valid(&schema, user, now));
    let x = scram::Exchange::new(user, valid, &connections.secret, &nonce);
    let mut x = x.over(end_point.as_deref());
    let (mechanism, data) = choice(&first)?;
    let reply = x.first(mechanism, text(data)?)?;
    wire.out.sasl_continue(reply);
    let last = password_message(wire).await?;
    let reply = match x.last(text(&last)?) {
        Ok(reply) => reply,
        Err(e) => {
            look.end().await;
            return Err(e);
        }
    };
    wire.out.sasl_final(reply);
    if may_log_in(&schema, user).is_err() {
        look.end().await;
    }
    let schema = engine.catalog().schema.clone();
    if self::method(tls, connections, origin, hello, &schema)? != method {
        let what = format!("the access rules ask user \"{user}\" for another proof by now");
        return Err(Error::new(SqlState::INVALID_AUTHORIZATION, what));
    }
    may_log_in(&schema, user)
}

/// How the rules want this role to prove itself over a connection inside of TLS or not; none: there are no rules. 28000 where they do not let
/// it in.
fn method<E: Engine>(
    tls: bool,
    connections: &Connections<E>,
    origin: &Origin,
    hello: &Hello,
    schema: &Schema,
) -> Result<Option<Method>> {
    let rules = &connections.entrance.access;
    if rules.is_empty() {
        return Ok(None);
    }
    let wants = Wants {
        address: origin.address.map(|a| a.ip()),
        tls,
        role: &hello.user,
        database: &hello.database,
        replication: hello.purpose.is_some(),
    };
    let is_member = |of: &str| match (schema.role_named(&hello.user), schema.role_named(of)) {
        (Some(role), Some(of)) => role.id == of.id || schema.is_plain_member_of(role.id, of.id),
        _ => false,
    };
    access::decide(rules, &wants, is_member).map(Some)
}

/// 28000 unless the client has shown a certificate for this role.
fn certified<S: Stream>(wire: &Wire<S>, hello: &Hello) -> Result<()> {
    if hello.relayed.is_some() {
        return Err(no_certificate());
    }
    let user = &hello.user;
    let shown = wire.stream.protection().and_then(|p| p.client);
    let what = match shown.map(|c| c.common_name) {
        Some(Some(name)) if name == *user => return Ok(()),
        Some(_) => format!("certificate authentication failed for user \"{user}\""),
        None => "connection requires a valid client certificate".to_owned(),
    };
    Err(Error::new(SqlState::INVALID_AUTHORIZATION, what))
}

/// 53300 when the role of a session that has begun has more of them at this node than it may. One that is forwarded is counted where its client is.
fn check_limit<E: Engine>(connections: &Connections<E>, user: &str) -> Result<()> {
    let catalog = connections.shared.engine.catalog();
    let role = catalog.schema.role_named(user).filter(|r| !r.superuser);
    let Some((role, limit)) = role.and_then(|r| Some((r, r.connection_limit?))) else {
        return Ok(());
    };
    let all = connections.shared.sessions.list();
    let is_own = |a: &Activity| a.user == role.id && !a.between_nodes;
    let own = all.iter().filter(|h| is_own(&h.activity.lock()));
    if own.count() <= usize::try_from(limit).unwrap_or(0) {
        return Ok(());
    }
    Err(Error::new(
        SqlState::TOO_MANY_CONNECTIONS,
        format!("too many connections for role \"{user}\""),
    ))
}

fn text(b: &[u8]) -> Result<&str> {
    std::str::from_utf8(b).map_err(|_| violation("malformed SCRAM message"))
}

/// Sends what is to be sent and waits for a message of type 'p'.
async fn password_message<S: Stream>(wire: &mut Wire<S>) -> Result<Vec<u8>> {
    wire.send().await.map_err(|e| gone(&e))?;
    loop {
        // By its first byte. Other messages may be long, and no role has logged in yet whose memory they would be.
        if let Some(kind) = wire.input.bytes().first().filter(|k| **k != b'p') {
            return Err(violation(format!(
                "expected SASL response, got message type {kind}"
            )));
        }
        if let Some((_, len)) = frontend::frame(wire.input.bytes())? {
            let body = wire.input.bytes()[5..len].to_vec();
            wire.input.take(len);
            return Ok(body);
        }
        match wire.input.fill(&mut wire.stream).await {
            Ok(0) => {
                let e = std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
                return Err(gone(&e));
            }
            Ok(_) => {}
            Err(e) => return Err(gone(&e)),
        }
    }
}
