//! A connection after its start: messages in order, one task.
//!
//! ```text
//! read -> take every whole message -> session -> replies gather -> Sync, Flush or many bytes: one write
//!                                                                 (Sync: when the core's other connections have run)
//! an error: ErrorResponse, and everything is skipped up to Sync
//! ```
//! What follows an Execute is looked at before it runs, since a statement alone before Sync is a transaction of its own; nobody
//! may expect a reply to an Execute before Sync or Flush, so waiting for that message costs nothing.

use super::wire::{Stream, Wire, describe, gone};
use crate::forward::relay::Forwarder;
use base::{Error, Result, SqlState};
use protocol::NOTHING_RUN;
use protocol::backend::Replies;
use protocol::frontend::{self, Frontend};
use sql::engine::Engine;
use sql::session::{
    Client, Exit, Format, Next, Reason, Session, Severity, TxnStatus, interruption,
};

/// Replies beyond this many bytes are sent before Sync.
const HIGH_WATER: usize = 64 << 10;

/// How a connection ended.
pub enum End {
    /// The client said so, or is gone.
    Client,
    /// With this FATAL error to tell it.
    Fatal(Error),
}

/// Serves a client until it goes.
pub async fn serve<S: Stream, E: Engine>(
    wire: &mut Wire<S>,
    session: &mut Session<E>,
    forward: Option<&mut Forwarder>,
) -> End {
    let handle = session.handle().clone();
    let _asks = base::cancel::within(handle.interrupt.clone(), &handle.account);
    match run(wire, session, forward).await {
        Ok(()) => End::Client,
        Err(e) if e.code() == SqlState::CONNECTION_FAILURE => End::Client,
        Err(e) => End::Fatal(e),
    }
}

/// The bytes of an Execute message's portal name and its row limit outlive the message.
struct Execute {
    portal: compact_str::CompactString,
    max_rows: i32,
}

async fn run<S: Stream, E: Engine>(
    wire: &mut Wire<S>,
    session: &mut Session<E>,
    mut forward: Option<&mut Forwarder>,
) -> Result<()> {
    // After an error of the extended protocol, up to Sync.
    let mut skipping = false;
    // The last Bind, where its portal may go to the primary.
    let mut bound = Vec::new();
    // Nothing has come since the last ReadyForQuery.
    let mut between = true;
    loop {
        // Nobody has to say Sync to learn of an error.
        if skipping && frontend::frame(wire.input.bytes())?.is_none() {
            wire.flush().await?;
        }
        let (kind, len) = next(wire, session, between).await?;
        session.arrived(wire.input.arrived);
        between = false;
        let len = match len {
            Ok(len) => len,
            Err(_) if skipping => continue,
            // It was too long, and is not here any more.
            Err(e) => {
                let simple = kind == b'Q';
                fail(wire, session, &e, simple, &mut skipping).await?;
                both_fail(session, &mut forward);
                between = simple;
                continue;
            }
        };
        if skipping && !matches!(kind, b'S' | b'X') {
            wire.input.take(len);
            continue;
        }
        if let Some(f) = &mut forward
            && !skipping
            && f.take(wire, session, (kind, len), &mut skipping).await?
        {
            between = !f.is_busy() && !skipping;
            continue;
        }
        let body = &wire.input.bytes()[5..len];
        // Each arm gives the outcome of the message and whether it was a simple query.
        let message = match frontend::decode(kind, body) {
            Ok(m) => m,
            Err(e) if e.code() == SqlState::CHARACTER_NOT_IN_REPERTOIRE => {
                wire.input.take(len);
                let simple = kind == b'Q';
                fail(wire, session, &e, simple, &mut skipping).await?;
                between = simple;
                continue;
            }
            Err(e) => return Err(e),
        };
        if let Frontend::Adopt(b) = message {
            let r = session.adopt(b);
            wire.input.take(len);
            r?;
            continue;
        }
        if !matches!(message, Frontend::Sync | Frontend::Terminate)
            && let Some(e) = session.adoption_error()
        {
            wire.input.take(len);
            fail(wire, session, &e, kind == b'Q', &mut skipping).await?;
            continue;
        }
        let outcome: Result<(), Exit> = match message {
            Frontend::Adopt(_) => unreachable!("taken above"),
            Frontend::Bind(b) => {
                let r = match bind(session, &b) {
                    Ok(()) => session.stand_portal(b.portal).await,
                    e => e,
                };
                bound.clear();
                if session.may_send_portals() {
                    bound.extend_from_slice(&wire.input.bytes()[..len]);
                }
                wire.input.take(len);
                if r.is_ok() {
                    wire.out.plain(b'2');
                }
                r.map_err(Exit::from)
            }
            Frontend::Execute { portal, max_rows } => {
                let x = Execute {
                    portal: portal.into(),
                    max_rows,
                };
                wire.input.take(len);
                let follows = peek(wire, session).await?;
                let next = if follows == b'S' {
                    Next::Sync
                } else {
                    Next::More
                };
                let (mark, last) = (wire.mark(), last_bound(&bound) == Some(&*x.portal));
                // A portal that is still here when the transaction has moved cannot follow it.
                let last = last && !session.has_moved();
                match (
                    session.execute(wire, &x.portal, x.max_rows, next).await,
                    &mut forward,
                ) {
                    (Err(e), Some(f)) if last && e.is_for_others() && wire.rewind(mark) => {
                        let mut execute = Replies::default();
                        execute.message(b'E', |b| {
                            b.extend_from_slice(x.portal.as_bytes());
                            b.push(0);
                            b.extend_from_slice(&x.max_rows.to_be_bytes());
                        });
                        let messages = (&bound[..], &execute.buf[..]);
                        f.portal(wire, session, messages, &mut skipping).await?;
                        Ok(())
                    }
                    (r, _) => {
                        // What has given rows is not begun anew.
                        bound.clear();
                        r
                    }
                }
            }
            Frontend::Sync => {
                wire.input.take(len);
                skipping = false;
                wire.skip_copy = false;
                if let Err(e) = session.sync(wire).await {
                    if e.code() == SqlState::ADMIN_SHUTDOWN {
                        return Err(e);
                    }
                    tell(wire, session, &e).await?;
                }
                ready(wire, session).await?;
                between = true;
                Ok(())
            }
            Frontend::Parse { name, query, types } => {
                let text: std::sync::Arc<str> = query.into();
                let r = session.parse(name, query, &types).await;
                drop(text);
                wire.input.take(len);
                if r.is_ok() {
                    wire.out.plain(b'1');
                }
                r
            }
            Frontend::Describe {
                portal: false,
                name,
            } => {
                let r = session.describe_statement(name);
                wire.input.take(len);
                r.map_err(Exit::from).map(|(types, columns)| {
                    wire.out.parameter_description(&types);
                    match columns {
                        Some(c) => describe(&mut wire.out, &c, |_| Format::Text),
                        None => wire.out.plain(b'n'),
                    }
                })
            }
            Frontend::Describe { portal: true, name } => {
                let r = session.describe_portal(name);
                wire.input.take(len);
                r.map_err(Exit::from).map(|columns| match columns {
                    Some((c, f)) => describe(&mut wire.out, &c, |i| f[i]),
                    None => wire.out.plain(b'n'),
                })
            }
            Frontend::Close { portal, name } => {
                session.close(portal, name);
                wire.input.take(len);
                wire.out.plain(b'3');
                Ok(())
            }
            Frontend::Flush => {
                wire.input.take(len);
                wire.flush().await?;
                Ok(())
            }
            Frontend::Query(q) => {
                let sql = q.to_owned();
                wire.input.take(len);
                let (idle, mark) = (session.status() == TxnStatus::Idle, wire.mark());
                let ran = session.simple(wire, &sql).await;
                let rest = session.rest_of_text();
                match (ran, &mut forward) {
                    (Ok(()), _) => ready(wire, session).await?,
                    // (About a cursor that is here when the transaction has moved: it cannot follow.)
                    (Err(e), Some(f))
                        if e.is_for_others()
                            && !session.has_moved()
                            && (rest.is_some() || wire.rewind(mark)) =>
                    {
                        let (sql, idle) = rest.map_or((sql, idle), |rest| (rest, false));
                        f.simple(wire, session, &sql, idle, &mut skipping).await?;
                    }
                    (Err(e), _) => {
                        fail(wire, session, &e.here(), true, &mut skipping).await?;
                        both_fail(session, &mut forward);
                    }
                }
                between = true;
                Ok(())
            }
            Frontend::Terminate => return Ok(()),
            // What is left of a COPY that failed.
            Frontend::CopyData(_) | Frontend::CopyDone | Frontend::CopyFail(_) => {
                wire.input.take(len);
                Ok(())
            }
            Frontend::Password => {
                return Err(frontend::violation("unexpected password message"));
            }
        };
        if let Err(e) = outcome {
            fail(wire, session, &e.here(), false, &mut skipping).await?;
            both_fail(session, &mut forward);
        }
        if wire.out.buf.len() > HIGH_WATER {
            wire.flush().await?;
        }
    }
}

/// The name of the portal that this Bind made.
fn last_bound(message: &[u8]) -> Option<&str> {
    let name = message.get(5..)?.split(|b| *b == 0).next()?;
    std::str::from_utf8(name).ok()
}

/// What fails here in a transaction that runs at the primary fails there.
fn both_fail<E: Engine>(session: &mut Session<E>, forward: &mut Option<&mut Forwarder>) {
    if let Some(f) = forward
        && session.has_moved()
    {
        f.fail(session);
    }
}

fn bind<E: Engine>(session: &mut Session<E>, b: &frontend::Bind<'_>) -> Result<()> {
    let mut a = [Format::Text; 4];
    let mut r = [Format::Text; 4];
    let (mut va, mut vr) = (Vec::new(), Vec::new());
    let params = formats(&b.param_formats, &mut a, &mut va)?;
    let results = formats(&b.result_formats, &mut r, &mut vr)?;
    session.bind(b.portal, b.statement, params, b.params.iter(), results)
}

/// The formats as a slice, on the stack when there are few.
fn formats<'a>(
    f: &frontend::Formats<'_>,
    few: &'a mut [Format; 4],
    many: &'a mut Vec<Format>,
) -> Result<&'a [Format]> {
    if f.len() > few.len() {
        *many = f.iter().collect::<Result<_>>()?;
        return Ok(many);
    }
    for (to, from) in few.iter_mut().zip(f.iter()) {
        *to = from?;
    }
    Ok(&few[..f.len()])
}

/// Ends what failed, and tells why: this error, or that nobody can say any more whether what it may tell of stays. One that ends the
/// connection is given back.
pub async fn tell<S: Stream, E: Engine>(
    wire: &mut Wire<S>,
    session: &mut Session<E>,
    e: &Error,
) -> Result<()> {
    match session.failed(wire, e).await {
        Ok(()) => wire.out.error(Severity::Error, e),
        Err(e) if e.code() == SqlState::ADMIN_SHUTDOWN => return Err(e),
        Err(e) => wire.out.error(Severity::Error, &e),
    }
    Ok(())
}

/// Tells an error. One that ends the connection is given back.
async fn fail<S: Stream, E: Engine>(
    wire: &mut Wire<S>,
    session: &mut Session<E>,
    e: &Error,
    simple: bool,
    skipping: &mut bool,
) -> Result<()> {
    if matches!(
        e.code(),
        SqlState::CONNECTION_FAILURE | SqlState::ADMIN_SHUTDOWN | SqlState::PROTOCOL_VIOLATION
    ) && (e.code() != SqlState::PROTOCOL_VIOLATION || wire.skip_copy)
    {
        return Err(e.clone());
    }
    tell(wire, session, e).await?;
    if simple {
        ready(wire, session).await
    } else {
        *skipping = true;
        Ok(())
    }
}

/// Tells the client what the session has heard, if it may be told now.
pub fn tell_notifications<S: Stream, E: Engine>(
    wire: &mut Wire<S>,
    session: &mut Session<E>,
) -> Result<()> {
    for n in session.notifications()? {
        wire.out.notification(&n);
    }
    Ok(())
}

async fn ready<S: Stream, E: Engine>(wire: &mut Wire<S>, session: &mut Session<E>) -> Result<()> {
    session.idle();
    tell_notifications(wire, session)?;
    if let Some(state) = session.returned() {
        wire.out.message(b'a', |b| b.extend_from_slice(&state));
    }
    wire.out.ready(session.status());
    env::turns::afterwards().await;
    wire.flush().await
}

fn leaves() -> Error {
    interruption(Reason::Terminate).detail(NOTHING_RUN)
}

/// Waits for a whole message at the front of the input: its type and its length, or why it may not be so long. A session that is asked to leave does so where nothing is under way.
async fn next<S: Stream, E: Engine>(
    wire: &mut Wire<S>,
    session: &mut Session<E>,
    between: bool,
) -> Result<(u8, Result<usize>)> {
    let may_leave = between && session.status() == TxnStatus::Idle;
    let mut began = false;
    loop {
        if may_leave && session.handle().is_leaving() {
            return Err(leaves());
        }
        // A client that always has more to ask is ended, too.
        if session.handle().terminated() {
            return Err(interruption(Reason::Terminate));
        }
        if let Some((kind, len)) = frontend::frame(wire.input.bytes())? {
            return Ok((kind, Ok(len)));
        }
        if let Some(&kind) = wire.input.bytes().first() {
            if !began {
                began = true;
                session.begin_message();
            }
            if let Err(e) = wire.input.admit() {
                return Ok((kind, Err(e)));
            }
        }
        if may_leave && session.handle().has_notifications() {
            tell_notifications(wire, session)?;
            wire.flush().await?;
        }
        fill(wire, session, may_leave).await?;
    }
}

/// The type of the message at the front of the input.
async fn peek<S: Stream, E: Engine>(wire: &mut Wire<S>, session: &mut Session<E>) -> Result<u8> {
    loop {
        if let Some(&kind) = wire.input.bytes().first() {
            return Ok(kind);
        }
        fill(wire, session, false).await?;
    }
}

/// Reads more, for as long as an idle client may take, unless the session is ended from outside.
async fn fill<S: Stream, E: Engine>(
    wire: &mut Wire<S>,
    session: &mut Session<E>,
    may_leave: bool,
) -> Result<()> {
    let handle = session.handle().clone();
    let limit = session.idle_limit();
    let Wire { stream, input, .. } = wire;
    let read = input.fill(stream);
    let terminated = async {
        loop {
            match may_leave {
                true => handle.called().await,
                false => handle.interruption().await,
            }
            if may_leave && handle.is_leaving() {
                return Some(leaves());
            }
            if handle.starved() {
                let what = "terminating connection because it keeps the most memory of all";
                return Some(
                    Error::new(SqlState::OUT_OF_MEMORY, what)
                        .detail("All statements and sessions have reached memory.total."),
                );
            }
            if handle.terminated() {
                return Some(interruption(Reason::Terminate));
            }
            if may_leave && handle.has_notifications() {
                return None;
            }
            // A cancel for a session that runs nothing, or the limit of a wait that nobody is in.
            handle.begin(0);
            handle.end_wait();
        }
    };
    let n = tokio::select! {
        biased;
        n = read => n.map_err(|e| gone(&e))?,
        why = terminated => return why.map_or(Ok(()), Err),
        () = sleep(limit.as_ref().map(|l| l.0)) => return Err(limit.expect("it was slept").1),
    };
    if n > 0 {
        wire.input.arrived = Some(session.arrival());
        return Ok(());
    }
    // The client closed its side. In the middle of a message, or between them: nobody is there to be told.
    debug_assert!(matches!(
        session.status(),
        TxnStatus::Idle | TxnStatus::InTransaction | TxnStatus::Failed
    ));
    Err(Error::new(
        SqlState::CONNECTION_FAILURE,
        "the client closed the connection",
    ))
}

async fn sleep(time: Option<std::time::Duration>) {
    match time {
        Some(t) => tokio::time::sleep(t).await,
        None => std::future::pending().await,
    }
}
