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
use super::wire::{Stream, Wire, gone};
use crate::forward::relay::{Forwarder, Whose};
use base::{Error, Result, SqlState};
use protocol::NOTHING_RUN;
use protocol::backend::Replies;
use protocol::frontend::{self, Frontend};
use sql::engine::Engine;
use sql::session::{Client, Exit, Format, Handle, Next, Reason, Session, TxnStatus, interruption};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Poll, ready};

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
        began: false,
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

/// What the message at the front of the input comes to without waiting.
enum Step {
    /// It is done.
    Done,
    /// The client has said that it goes.
    Gone,
    /// Its replies are there, and leave when the core's other connections have run.
    Ready,
    /// A portal runs.
    Execute(Execute),
    /// It has failed, and nothing of it has been told.
    Failed(Failed),
    /// The rest waits for something.
    Later(Later),
}

/// A message that has failed. It is taken.
struct Failed {
    why: Error,
    /// It was a simple query, which no Sync follows.
    simple: bool,
    /// What it belongs to at the primary fails, too.
    there: bool,
}

/// What waits. The message is still at the front of the input.
enum Later {
    /// It may be the primary's; the text of the statement with which work there begins.
    Forward {
        begins: Option<String>,
    },
    /// Parse, or a simple query.
    Text,
    /// A named portal was bound, and takes its snapshot now.
    Stand,
    Flush,
    /// An implicit transaction ends.
    Sync,
}

impl Step {
    fn of(done: Result<()>) -> Step {
        match done {
            Ok(()) => Step::Done,
            Err(e) => Step::Failed(Failed::message(e)),
        }
    }
}

impl Failed {
    /// A message of the extended protocol.
    fn message(why: Error) -> Failed {
        Failed {
            why,
            simple: false,
            there: true,
        }
    }
}

/// A client's messages, one after the other, and what they leave for the next one.
///
/// Most messages need no waiting, and are done by plain functions: a future that is made for each message costs as much as what Bind does. So
/// `front`, `take_up` and `message` decide, and the loop awaits what they name.
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
    /// A part of a message has come.
    began: bool,
}

impl<S: Stream, E: Engine> Messages<'_, S, E> {
    async fn run(mut self) -> Result<()> {
        loop {
            // A client need not say Sync to learn of an error.
            if self.skipping && frontend::frame(self.wire.input.bytes())?.is_none() {
                self.wire.flush().await?;
            }
            let Some((kind, len)) = self.front()? else {
                self.read().await?;
                continue;
            };
            let mut step = self.take_up(kind, len)?;
            loop {
                step = match step {
                    Step::Done => break,
                    Step::Gone => return Ok(()),
                    Step::Execute(x) => match self.execute(&x).await? {
                        Ok(()) => break,
                        Err(e) => Step::Failed(Failed::message(e.here())),
                    },
                    Step::Ready => {
                        self.leave().await?;
                        break;
                    }
                    Step::Failed(f) => {
                        self.failed(f).await?;
                        break;
                    }
                    Step::Later(later) => self.later(later).await?,
                };
            }
            if self.wire.out.buf.len() > HIGH_WATER {
                self.wire.flush().await?;
            }
        }
    }

    /// Whether a session that is asked to leave may do so: nothing is under way.
    fn may_leave(&self) -> bool {
        self.between && self.session.status() == TxnStatus::Idle
    }

    /// The message at the front of the input: its type, and its length or why it may not be so long. None: more has to be read.
    #[inline]
    fn front(&mut self) -> Result<Option<(u8, Result<usize>)>> {
        if self.session.handle().is_leaving() && self.may_leave() {
            return Err(leaves());
        }
        // A client that always has more to ask is ended, too.
        if self.session.handle().terminated() {
            return Err(interruption(Reason::Terminate));
        }
        if let Some((kind, len)) = frontend::frame(self.wire.input.bytes())? {
            self.began = false;
            return Ok(Some((kind, Ok(len))));
        }
        let Some(&kind) = self.wire.input.bytes().first() else {
            return Ok(None);
        };
        if !self.began {
            self.began = true;
            self.session.begin_message();
        }
        match self.wire.input.admit() {
            Ok(()) => Ok(None),
            Err(e) => {
                self.began = false;
                Ok(Some((kind, Err(e))))
            }
        }
    }

    /// Reads more, after the client was told what it may be told where nothing is under way.
    async fn read(&mut self) -> Result<()> {
        let may_leave = self.may_leave();
        if may_leave && self.session.handle().has_notifications() {
            tell::notifications(self.wire, self.session)?;
            self.wire.flush().await?;
        }
        fill(self.wire, self.session, may_leave).await
    }

    /// Begins with the message at the front of the input.
    #[inline]
    fn take_up(&mut self, kind: u8, len: Result<usize>) -> Result<Step> {
        self.session.arrived(self.wire.input.arrived);
        self.between = false;
        let len = match len {
            Ok(len) => len,
            Err(_) if self.skipping => return Ok(Step::Done),
            // It was too long, and is not here any more.
            Err(why) => {
                return Ok(Step::Failed(Failed {
                    why,
                    simple: kind == b'Q',
                    there: true,
                }));
            }
        };
        if self.skipping {
            if !matches!(kind, b'S' | b'X') {
                self.wire.input.take(len);
                return Ok(Step::Done);
            }
        } else if let Some(f) = &mut self.forward {
            let body = &self.wire.input.bytes()[5..len];
            if let Whose::There { begins } = f.whose(self.session, kind, body) {
                return Ok(Step::Later(Later::Forward { begins }));
            }
        }
        self.message(kind, len)
    }

    /// A message that is this node's to answer.
    #[inline]
    fn message(&mut self, kind: u8, len: usize) -> Result<Step> {
        if matches!(kind, b'P' | b'Q') {
            return Ok(Step::Later(Later::Text));
        }
        let message = match frontend::decode(kind, &self.wire.input.bytes()[5..len]) {
            Ok(message) => message,
            Err(e) => return self.undecoded(e, kind, len),
        };
        if let Some(why) = unadopted(self.session, &message) {
            return Ok(self.refused(why, kind, len));
        }
        let done = match message {
            Frontend::Bind(b) => {
                let bound = bind(self.session, &b);
                if bound.is_ok() && self.session.portal_stands(b.portal) {
                    return Ok(Step::Later(Later::Stand));
                }
                self.keep_bound(len);
                self.complete(b'2', bound)
            }
            Frontend::Describe {
                portal: false,
                name,
            } => {
                let found = self.session.describe_statement(name);
                self.wire.input.take(len);
                found.map(|(types, columns)| {
                    self.wire.out.parameter_description(&types);
                    tell::columns(&mut self.wire.out, columns.as_deref(), |_| Format::Text);
                })
            }
            Frontend::Describe { portal: true, name } => {
                let out = &mut self.wire.out;
                let described = self.session.describe_portal(name, |found| {
                    let format = |i| found.map_or(Format::Text, |(_, f)| f.of(i));
                    tell::columns(out, found.map(|(columns, _)| columns), format);
                });
                self.wire.input.take(len);
                described
            }
            Frontend::Execute { portal, max_rows } => {
                let portal = portal.into();
                self.wire.input.take(len);
                return Ok(Step::Execute(Execute { portal, max_rows }));
            }
            Frontend::Close { portal, name } => {
                self.session.close(portal, name);
                self.wire.input.take(len);
                self.complete(b'3', Ok(()))
            }
            Frontend::Sync => {
                self.skipping = false;
                self.wire.skip_copy = false;
                if self.session.sync_commits() {
                    return Ok(Step::Later(Later::Sync));
                }
                self.wire.input.take(len);
                tell::ready(self.wire, self.session)?;
                return Ok(Step::Ready);
            }
            Frontend::Flush => return Ok(Step::Later(Later::Flush)),
            Frontend::Terminate => return Ok(Step::Gone),
            Frontend::Adopt(state) => {
                let adopted = self.session.adopt(state);
                self.wire.input.take(len);
                adopted?;
                Ok(())
            }
            // What is left of a COPY that failed.
            Frontend::CopyData(_) | Frontend::CopyDone | Frontend::CopyFail(_) => {
                self.wire.input.take(len);
                Ok(())
            }
            Frontend::Password => {
                return Err(frontend::violation("unexpected password message"));
            }
            Frontend::Parse { .. } | Frontend::Query(_) => unreachable!("taken above"),
        };
        Ok(Step::of(done))
    }

    /// The rest of the message at the front of the input, which has begun.
    async fn later(&mut self, later: Later) -> Result<Step> {
        let (kind, len) =
            frontend::frame(self.wire.input.bytes())?.expect("a whole message is there");
        match later {
            Later::Forward { begins } => {
                let f = self.forward.as_mut().expect("it has said so");
                let skipping = &mut self.skipping;
                let message = (kind, len);
                if f.take(self.wire, self.session, message, begins, skipping)
                    .await?
                {
                    self.between = !f.is_busy() && !self.skipping;
                    return Ok(Step::Done);
                }
                self.message(kind, len)
            }
            Later::Text => self.text(kind, len).await,
            Later::Stand => {
                let stood = match frontend::decode(kind, &self.wire.input.bytes()[5..len])? {
                    Frontend::Bind(b) => self.session.stand_portal(b.portal).await,
                    _ => unreachable!("a Bind was read there"),
                };
                self.keep_bound(len);
                Ok(Step::of(self.complete(b'2', stood)))
            }
            Later::Flush => {
                self.wire.input.take(len);
                self.wire.flush().await?;
                Ok(Step::Done)
            }
            Later::Sync => {
                self.wire.input.take(len);
                if let Err(e) = self.session.sync(self.wire).await {
                    if e.code() == SqlState::ADMIN_SHUTDOWN {
                        return Err(e);
                    }
                    tell::error(self.wire, self.session, &e).await?;
                }
                tell::ready(self.wire, self.session)?;
                Ok(Step::Ready)
            }
        }
    }

    /// Parse, or a simple query.
    async fn text(&mut self, kind: u8, len: usize) -> Result<Step> {
        let message = match frontend::decode(kind, &self.wire.input.bytes()[5..len]) {
            Ok(message) => message,
            Err(e) => return self.undecoded(e, kind, len),
        };
        if let Some(why) = unadopted(self.session, &message) {
            return Ok(self.refused(why, kind, len));
        }
        match message {
            Frontend::Parse { name, query, types } => {
                let parsed = self.session.parse(name, query, &types).await;
                self.wire.input.take(len);
                Ok(Step::of(self.complete(b'1', parsed.map_err(Exit::here))))
            }
            Frontend::Query(sql) => {
                let sql = sql.to_owned();
                self.wire.input.take(len);
                self.query(&sql).await
            }
            _ => unreachable!("these two are texts"),
        }
    }

    /// A text that is not UTF-8 fails its message. Any other fault of a message ends the session.
    #[cold]
    fn undecoded(&mut self, why: Error, kind: u8, len: usize) -> Result<Step> {
        match why.code() == SqlState::CHARACTER_NOT_IN_REPERTOIRE {
            true => Ok(self.refused(why, kind, len)),
            false => Err(why),
        }
    }

    /// Takes the message at the front of the input, of which nothing is done here.
    #[cold]
    fn refused(&mut self, why: Error, kind: u8, len: usize) -> Step {
        self.wire.input.take(len);
        Step::Failed(Failed {
            why,
            simple: kind == b'Q',
            there: false,
        })
    }

    /// A message of this kind, which has nothing else to say, answers one that was done.
    fn complete(&mut self, reply: u8, done: Result<()>) -> Result<()> {
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
        let follows = loop {
            match self.wire.input.bytes().first() {
                Some(kind) => break *kind,
                None => fill(self.wire, self.session, false).await?,
            }
        };
        let next = match follows {
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

    async fn query(&mut self, sql: &str) -> Result<Step> {
        let (idle, mark) = (self.session.status() == TxnStatus::Idle, self.wire.mark());
        let ran = self.session.simple(self.wire, sql).await;
        let rest = self.session.rest_of_text();
        match (ran, &mut self.forward) {
            (Ok(()), _) => {
                tell::ready(self.wire, self.session)?;
                Ok(Step::Ready)
            }
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
                self.between = true;
                Ok(Step::Done)
            }
            (Err(e), _) => Ok(Step::Failed(Failed {
                why: e.here(),
                simple: true,
                there: true,
            })),
        }
    }

    /// The replies leave, when the core's other connections have run.
    async fn leave(&mut self) -> Result<()> {
        env::turns::afterwards().await;
        self.wire.flush().await?;
        self.between = true;
        Ok(())
    }

    /// Tells an error. One that ends the connection is given back.
    async fn failed(&mut self, f: Failed) -> Result<()> {
        let code = f.why.code();
        if matches!(
            code,
            SqlState::CONNECTION_FAILURE | SqlState::ADMIN_SHUTDOWN | SqlState::PROTOCOL_VIOLATION
        ) && (code != SqlState::PROTOCOL_VIOLATION || self.wire.skip_copy)
        {
            return Err(f.why);
        }
        tell::error(self.wire, self.session, &f.why).await?;
        if f.simple {
            tell::ready(self.wire, self.session)?;
            self.leave().await?;
        } else {
            self.skipping = true;
        }
        if f.there {
            self.fail_there();
        }
        Ok(())
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

/// Why a session that serves another node's client cannot take this message: it has not become that client's.
#[inline]
fn unadopted<E: Engine>(session: &mut Session<E>, message: &Frontend) -> Option<Error> {
    let always = matches!(
        message,
        Frontend::Adopt(_) | Frontend::Sync | Frontend::Terminate
    );
    if always {
        return None;
    }
    session.adoption_error()
}

fn leaves() -> Error {
    interruption(Reason::Terminate).detail(NOTHING_RUN)
}

/// What the session was told while its client was waited for: an error ends it. None: nothing that ends the wait.
fn told(handle: &Handle, may_leave: bool) -> Option<Result<()>> {
    loop {
        let called = match may_leave {
            true => handle.is_called(),
            false => handle.is_interrupted(),
        };
        if !called {
            return None;
        }
        if may_leave && handle.is_leaving() {
            return Some(Err(leaves()));
        }
        if handle.starved() {
            let what = "terminating connection because it keeps the most memory of all";
            return Some(Err(Error::new(SqlState::OUT_OF_MEMORY, what)
                .detail("All statements and sessions have reached memory.total.")));
        }
        if handle.terminated() {
            return Some(Err(interruption(Reason::Terminate)));
        }
        if may_leave && handle.has_notifications() {
            return Some(Ok(()));
        }
        // A cancel for a session that runs nothing, or the limit of a wait that nobody is in.
        handle.begin(0);
        handle.end_wait();
    }
}

/// Reads more, for as long as an idle client may take, unless the session is ended from outside.
async fn fill<S: Stream, E: Engine>(
    wire: &mut Wire<S>,
    session: &mut Session<E>,
    may_leave: bool,
) -> Result<()> {
    let limit = session.idle_limit();
    let mut sleep = pin!(limit.as_ref().map(|l| tokio::time::sleep(l.0)));
    let Wire { stream, input, .. } = wire;
    input.pause().await;
    let handle = session.handle();
    let read = poll_fn(|cx| {
        if let Poll::Ready(n) = input.poll_fill(stream, cx) {
            return Poll::Ready(n.map(Some).map_err(|e| gone(&e)));
        }
        handle.wake_by(cx);
        if let Some(told) = told(handle, may_leave) {
            return Poll::Ready(told.map(|()| None));
        }
        if let Some(s) = sleep.as_mut().as_pin_mut() {
            ready!(s.poll(cx));
            let over = limit.as_ref().expect("it was slept").1.clone();
            return Poll::Ready(Err(over));
        }
        Poll::Pending
    });
    match read.await? {
        None => Ok(()),
        Some(0) => {
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
        Some(_) => {
            input.arrived = Some(session.arrival());
            Ok(())
        }
    }
}
