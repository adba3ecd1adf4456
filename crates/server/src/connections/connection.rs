//! A connection after its start: messages in order, one task.
//!
//! ```text
//! read -> take every whole message -> session -> replies gather -> Sync, Flush or many bytes: one write
//!                                                                 (Sync: when the core's other connections have run)
//! an error: ErrorResponse, and everything is skipped up to Sync
//! ```
//! What follows an Execute is looked at before it runs, since a statement alone before Sync is a transaction of its own; nobody
//! may expect a reply to an Execute before Sync or Flush, so waiting for that message costs nothing.

use super::tell;
use super::wire::{Stream, Wire, describe, gone};
use crate::forward::relay::Forwarder;
use base::{Error, Result, SqlState};
use protocol::NOTHING_RUN;
use protocol::backend::Replies;
use protocol::frontend::{self, Frontend};
use sql::engine::Engine;
use sql::session::{Client, Column, Exit, Format, Next, Reason, Session, TxnStatus, interruption};

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
    let messages = Messages {
        wire,
        session,
        forward,
        skipping: false,
        bound: Vec::new(),
        between: true,
    };
    match messages.run().await {
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

/// What a message leaves behind.
enum Then {
    /// The next message.
    Next,
    /// The client has said that it goes.
    Gone,
}

/// A client's messages, one after the other, and what they leave for the next one.
struct Messages<'a, S, E: Engine> {
    wire: &'a mut Wire<S>,
    session: &'a mut Session<E>,
    forward: Option<&'a mut Forwarder>,
    /// After an error of the extended protocol, up to Sync.
    skipping: bool,
    /// The last Bind, where its portal may go to the primary.
    bound: Vec<u8>,
    /// Nothing has come since the last ReadyForQuery.
    between: bool,
}

impl<S: Stream, E: Engine> Messages<'_, S, E> {
    async fn run(mut self) -> Result<()> {
        loop {
            // A client need not say Sync to learn of an error.
            if self.skipping && frontend::frame(self.wire.input.bytes())?.is_none() {
                self.wire.flush().await?;
            }
            let Some((kind, len)) = self.next().await? else {
                continue;
            };
            match self.message(kind, len).await? {
                Then::Next => {}
                Then::Gone => return Ok(()),
            }
            if self.wire.out.buf.len() > HIGH_WATER {
                self.wire.flush().await?;
            }
        }
    }

    /// The next message that is this node's to answer, at the front of the input. None: it was skipped, was too long or went to the
    /// primary.
    async fn next(&mut self) -> Result<Option<(u8, usize)>> {
        let (kind, len) = next(self.wire, self.session, self.between).await?;
        self.session.arrived(self.wire.input.arrived);
        self.between = false;
        let len = match len {
            Ok(len) => len,
            Err(_) if self.skipping => return Ok(None),
            // It was too long, and is not here any more.
            Err(e) => {
                self.fail(&e, kind == b'Q').await?;
                self.fail_there();
                return Ok(None);
            }
        };
        if self.skipping && !matches!(kind, b'S' | b'X') {
            self.wire.input.take(len);
            return Ok(None);
        }
        if let Some(f) = &mut self.forward
            && !self.skipping
            && f.take(self.wire, self.session, (kind, len), &mut self.skipping)
                .await?
        {
            self.between = !f.is_busy() && !self.skipping;
            return Ok(None);
        }
        Ok(Some((kind, len)))
    }

    async fn message(&mut self, kind: u8, len: usize) -> Result<Then> {
        let message = match frontend::decode(kind, &self.wire.input.bytes()[5..len]) {
            Ok(m) => m,
            Err(e) if e.code() == SqlState::CHARACTER_NOT_IN_REPERTOIRE => {
                self.wire.input.take(len);
                return self.fail(&e, kind == b'Q').await;
            }
            Err(e) => return Err(e),
        };
        if !matches!(
            message,
            Frontend::Adopt(_) | Frontend::Sync | Frontend::Terminate
        ) && let Some(e) = self.session.adoption_error()
        {
            self.wire.input.take(len);
            return self.fail(&e, kind == b'Q').await;
        }
        let outcome = match message {
            Frontend::Adopt(state) => {
                let adopted = self.session.adopt(state);
                self.wire.input.take(len);
                adopted?;
                Ok(())
            }
            Frontend::Parse { name, query, types } => {
                let parsed = self.session.parse(name, query, &types).await;
                self.wire.input.take(len);
                self.complete(b'1', parsed)
            }
            Frontend::Bind(b) => {
                let bound = match bind(self.session, &b) {
                    Ok(()) => self.session.stand_portal(b.portal).await,
                    e => e,
                };
                self.keep_bound(len);
                self.complete(b'2', bound.map_err(Exit::from))
            }
            Frontend::Describe {
                portal: false,
                name,
            } => {
                let found = self.session.describe_statement(name);
                self.wire.input.take(len);
                found.map_err(Exit::from).map(|(types, columns)| {
                    self.wire.out.parameter_description(&types);
                    self.describe(columns.as_deref(), |_| Format::Text);
                })
            }
            Frontend::Describe { portal: true, name } => {
                let found = self.session.describe_portal(name);
                self.wire.input.take(len);
                found.map_err(Exit::from).map(|found| match found {
                    Some((columns, formats)) => self.describe(Some(&columns), |i| formats[i]),
                    None => self.describe(None, |_| Format::Text),
                })
            }
            Frontend::Execute { portal, max_rows } => {
                let portal = portal.into();
                self.wire.input.take(len);
                self.execute(&Execute { portal, max_rows }).await?
            }
            Frontend::Close { portal, name } => {
                self.session.close(portal, name);
                self.wire.input.take(len);
                self.complete(b'3', Ok(()))
            }
            Frontend::Query(sql) => {
                let sql = sql.to_owned();
                self.wire.input.take(len);
                self.query(&sql).await?;
                Ok(())
            }
            Frontend::Sync => {
                self.wire.input.take(len);
                self.sync().await?;
                Ok(())
            }
            Frontend::Flush => {
                self.wire.input.take(len);
                self.wire.flush().await?;
                Ok(())
            }
            Frontend::Terminate => return Ok(Then::Gone),
            // What is left of a COPY that failed.
            Frontend::CopyData(_) | Frontend::CopyDone | Frontend::CopyFail(_) => {
                self.wire.input.take(len);
                Ok(())
            }
            Frontend::Password => {
                return Err(frontend::violation("unexpected password message"));
            }
        };
        if let Err(e) = outcome {
            self.fail(&e.here(), false).await?;
            self.fail_there();
        }
        Ok(Then::Next)
    }

    /// The columns of what gives rows.
    fn describe(&mut self, columns: Option<&[Column]>, format: impl Fn(usize) -> Format) {
        match columns {
            Some(columns) => describe(&mut self.wire.out, columns, format),
            None => self.wire.out.plain(b'n'),
        }
    }

    /// A message of this kind, which has nothing else to say, answers one that was done.
    fn complete(&mut self, reply: u8, done: Result<(), Exit>) -> Result<(), Exit> {
        if done.is_ok() {
            self.wire.out.plain(reply);
        }
        done
    }

    /// Takes the Bind at the front of the input, and keeps it where its portal may go to the primary.
    fn keep_bound(&mut self, len: usize) {
        self.bound.clear();
        if self.session.may_send_portals() {
            let message = &self.wire.input.bytes()[..len];
            self.bound.extend_from_slice(message);
        }
        self.wire.input.take(len);
    }

    async fn execute(&mut self, x: &Execute) -> Result<Result<(), Exit>> {
        let next = match peek(self.wire, self.session).await? {
            b'S' => Next::Sync,
            _ => Next::More,
        };
        let (mark, last) = (
            self.wire.mark(),
            last_bound(&self.bound) == Some(&*x.portal),
        );
        // A portal that is still here when the transaction has moved cannot follow it.
        let last = last && !self.session.has_moved();
        let ran = self.session.execute(self.wire, &x.portal, x.max_rows, next);
        match (ran.await, &mut self.forward) {
            (Err(e), Some(f)) if last && e.is_for_others() && self.wire.rewind(mark) => {
                let mut execute = Replies::default();
                execute.message(b'E', |b| {
                    b.extend_from_slice(x.portal.as_bytes());
                    b.push(0);
                    b.extend_from_slice(&x.max_rows.to_be_bytes());
                });
                let messages = (&self.bound[..], &execute.buf[..]);
                f.portal(self.wire, self.session, messages, &mut self.skipping)
                    .await?;
                Ok(Ok(()))
            }
            (ran, _) => {
                // What has given rows is not begun anew.
                self.bound.clear();
                Ok(ran)
            }
        }
    }

    async fn query(&mut self, sql: &str) -> Result<()> {
        let (idle, mark) = (self.session.status() == TxnStatus::Idle, self.wire.mark());
        let ran = self.session.simple(self.wire, sql).await;
        let rest = self.session.rest_of_text();
        match (ran, &mut self.forward) {
            (Ok(()), _) => tell::ready(self.wire, self.session).await?,
            // (About a cursor that is here when the transaction has moved: it cannot follow.)
            (Err(e), Some(f))
                if e.is_for_others()
                    && !self.session.has_moved()
                    && (rest.is_some() || self.wire.rewind(mark)) =>
            {
                let (sql, idle) = match &rest {
                    Some(rest) => (rest.as_str(), false),
                    None => (sql, idle),
                };
                f.simple(self.wire, self.session, sql, idle, &mut self.skipping)
                    .await?;
            }
            (Err(e), _) => {
                self.fail(&e.here(), true).await?;
                self.fail_there();
            }
        }
        self.between = true;
        Ok(())
    }

    async fn sync(&mut self) -> Result<()> {
        self.skipping = false;
        self.wire.skip_copy = false;
        if let Err(e) = self.session.sync(self.wire).await {
            if e.code() == SqlState::ADMIN_SHUTDOWN {
                return Err(e);
            }
            tell::error(self.wire, self.session, &e).await?;
        }
        tell::ready(self.wire, self.session).await?;
        self.between = true;
        Ok(())
    }

    /// Tells an error. One that ends the connection is given back. `simple`: of a simple query, which no Sync follows.
    async fn fail(&mut self, e: &Error, simple: bool) -> Result<Then> {
        if matches!(
            e.code(),
            SqlState::CONNECTION_FAILURE | SqlState::ADMIN_SHUTDOWN | SqlState::PROTOCOL_VIOLATION
        ) && (e.code() != SqlState::PROTOCOL_VIOLATION || self.wire.skip_copy)
        {
            return Err(e.clone());
        }
        tell::error(self.wire, self.session, e).await?;
        if simple {
            tell::ready(self.wire, self.session).await?;
            self.between = true;
        } else {
            self.skipping = true;
        }
        Ok(Then::Next)
    }

    /// What fails here in a transaction that runs at the primary fails there.
    fn fail_there(&mut self) {
        if let Some(f) = &mut self.forward
            && self.session.has_moved()
        {
            f.fail(self.session);
        }
    }
}

/// The name of the portal that this Bind made.
fn last_bound(message: &[u8]) -> Option<&str> {
    let name = message.get(5..)?.split(|b| *b == 0).next()?;
    std::str::from_utf8(name).ok()
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
            tell::notifications(wire, session)?;
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
