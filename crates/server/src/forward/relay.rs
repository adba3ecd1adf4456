//! A client's messages on their way to the primary, and the replies on theirs back.
//!
//! ```text
//! simple     a text goes as a whole, with the transaction that it belongs to
//! extended   from the first Bind of a statement that may not run here to Sync, and then every message of the transaction
//! COPY       CopyInResponse turns the direction round: data goes up to CopyDone or CopyFail
//! ```
//! Messages gather and go at Sync or Flush, or when there are many. Replies are passed on while they go, or both ends would wait for the
//! other to read. The order of replies is that of the messages: before one is answered by the session here (a portal that was opened
//! before the transaction moved), everything that is on its way is answered first, and after an error nothing is up to Sync.

use super::Pool;
use super::copy::{copy_in, interrupted};
use super::upstream::{Broken, Upstream};
use crate::connections::cores::Core;
use crate::connections::tell;
use crate::connections::wire::{Stream, Wire};
use base::{Error, Result, SqlState};
use env::turns::afterwards;
use protocol::frontend::{self, Frontend};
use protocol::message::server_error;
use sql::effect::{self, Course, Effect};
use sql::engine::Engine;
use sql::session::{Client, Reason, Session, Severity, TxnStatus};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Replies beyond this many bytes are sent before the end.
const HIGH_WATER: usize = 64 << 10;

/// In the place of a Bind that the client has had its answer to.
const SILENT: u8 = b'b';

/// One client's way to the primary.
pub struct Forwarder {
    pool: Arc<Pool>,
    core: Arc<Core>,
    owner: u64,
    up: Option<Upstream>,
    /// Messages since the last ReadyForQuery that have no answer yet.
    pending: VecDeque<u8>,
    /// Messages up to Sync go to the primary.
    relaying: bool,
    /// The number of the transaction there; 0: the next message needs one. And what the client may ask with.
    token: u64,
    token_text: String,
    /// After an error, up to Sync: the primary skips what comes.
    failed: bool,
    /// A statement has begun that is not executed yet; and how many were, since the last ReadyForQuery.
    begun: bool,
    executed: usize,
    /// What may become of all that was sent since the last ReadyForQuery.
    course: Course,
    /// Texts of statements that were prepared there in this transaction, and what its portals may do.
    prepared: HashMap<String, String>,
    portals: HashMap<String, Effect>,
}

/// Whose a client's message is.
pub enum Whose {
    /// The session's here.
    Here,
    /// Perhaps the primary's: [`Forwarder::take`] says. `begins`: the text of the statement with which work there begins.
    There { begins: Option<String> },
}

/// How long to relay.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    /// ReadyForQuery has been passed on.
    Ready,
    /// Every message has its answer.
    Answered,
    /// Every message has been sent.
    Sent,
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        // A transaction in it ends with its connection.
        self.up = None;
        self.pool.left(self.owner);
    }
}

impl Forwarder {
    pub fn new(pool: Arc<Pool>, core: Arc<Core>) -> Forwarder {
        let owner = pool.owner();
        Forwarder {
            pool,
            core,
            owner,
            up: None,
            pending: VecDeque::new(),
            relaying: false,
            token: 0,
            token_text: String::new(),
            failed: false,
            begun: false,
            executed: 0,
            course: Course::new(false),
            prepared: HashMap::new(),
            portals: HashMap::new(),
        }
    }

    /// Whose this message is, without waiting.
    #[inline]
    pub fn whose<E: Engine>(&self, session: &mut Session<E>, kind: u8, body: &[u8]) -> Whose {
        let goes_on = self.relaying || session.has_moved();
        let begins = match goes_on || self.failed {
            true => None,
            false => begins_there(session, kind, body),
        };
        match goes_on || self.failed || session.is_pinned() || begins.is_some() {
            true => Whose::There { begins },
            false => Whose::Here,
        }
    }

    /// Takes the message at the front of the input, if it is not the session's here. `begins`: as [`Forwarder::whose`] has said. `skipping` is the
    /// connection's.
    pub async fn take<S: Stream, E: Engine>(
        &mut self,
        wire: &mut Wire<S>,
        session: &mut Session<E>,
        (kind, len): (u8, usize),
        begins: Option<String>,
        skipping: &mut bool,
    ) -> Result<bool> {
        if session.is_pinned() && kind != b'X' && self.pending.is_empty() && !self.relaying {
            self.check_pin(session)?;
        }
        if self.failed && !matches!(kind, b'S' | b'X') {
            wire.input.take(len);
            if kind == b'H' {
                wire.flush().await?;
            }
            return Ok(true);
        }
        if !self.relaying && !session.has_moved() {
            let Some(text) = begins else {
                return Ok(false);
            };
            session.begin_forwarded(&text);
            if let Err(e) = self.begin(session).await {
                wire.input.take(len);
                self.tell(wire, session, &e, false, skipping).await?;
                return Ok(true);
            }
            (self.relaying, self.begun) = (true, true);
        }
        match kind {
            b'Q' => {
                let body = &wire.input.bytes()[5..len];
                match frontend::decode(kind, body) {
                    Ok(Frontend::Query(q)) if session.is_about_local_cursor(q) => return Ok(false),
                    Ok(_) => {}
                    Err(e) if is_refused_there(&e) => {}
                    Err(_) => return Ok(false),
                }
                let body = body.to_owned();
                wire.input.take(len);
                self.query(wire, session, &body, skipping).await?;
                Ok(true)
            }
            b'P' | b'B' | b'D' | b'E' | b'C' | b'H' | b'S' => {
                self.extended(wire, session, (kind, len), skipping).await
            }
            _ => Ok(false),
        }
    }

    /// 57P01 when the connection is lost that holds the session's locks, or the node at its end is this session's primary no more.
    fn check_pin<E: Engine>(&mut self, session: &mut Session<E>) -> Result<()> {
        let alive = self.up.as_mut().is_some_and(Upstream::is_alive);
        match alive && session.follows() {
            true => Ok(()),
            false => Err(session.lost_locks()),
        }
    }

    /// Whether messages are on their way that Sync has not ended yet.
    pub fn is_busy(&self) -> bool {
        self.relaying
    }

    /// A text whose statements may not run here. `idle`: it began outside of a transaction.
    pub async fn simple<S: Stream, E: Engine>(
        &mut self,
        wire: &mut Wire<S>,
        session: &mut Session<E>,
        sql: &str,
        idle: bool,
        skipping: &mut bool,
    ) -> Result<()> {
        if idle {
            session.abandon();
        }
        session.begin_forwarded(sql);
        if let Err(e) = self.begin(session).await {
            return self.tell(wire, session, &e, true, skipping).await;
        }
        let body = [sql.as_bytes(), &[0]].concat();
        self.query(wire, session, &body, skipping).await
    }

    /// A portal that was bound here and is not to run here, because it is not fresh in time or turned out to write: bound and run there.
    /// `bind` and `execute` are the messages; the first one has been answered.
    pub async fn portal<S: Stream, E: Engine>(
        &mut self,
        wire: &mut Wire<S>,
        session: &mut Session<E>,
        (bind, execute): (&[u8], &[u8]),
        skipping: &mut bool,
    ) -> Result<()> {
        session.begin_forwarded("<unnamed>");
        if let Err(e) = self.begin(session).await {
            return self.tell(wire, session, &e, false, skipping).await;
        }
        self.relaying = true;
        let up = self.up.as_mut().expect("it has begun");
        up.pass(bind);
        up.pass(execute);
        self.pending.extend([SILENT, b'E']);
        self.executed += 1;
        // Whatever it is.
        self.course.then(Effect {
            writes: true,
            ..Effect::default()
        });
        Ok(())
    }

    /// Gets a connection and tells it who the session is and where its transaction stands.
    async fn begin<E: Engine>(&mut self, session: &mut Session<E>) -> Result<()> {
        let mut up = match self.up.take() {
            Some(mut u) => {
                // It was kept, and begins anew.
                u.sent = false;
                u
            }
            None => {
                let handle = session.handle().clone();
                tokio::select! {
                    biased;
                    u = self.pool.take(self.owner, &self.core) => u?,
                    () = handle.interruption() => {
                        let why = handle.interrupted().unwrap_or(Reason::Cancel);
                        return Err(sql::session::interruption(why));
                    }
                }
            }
        };
        self.token = session.token();
        self.token_text = session.token_text(self.token);
        self.course = Course::new(session.status() != TxnStatus::Idle);
        // After an error the connection goes: it is of no use to doubt what the other end knows.
        let b = session.set_out(&mut up.known, self.token)?;
        up.put(b'a', &b);
        self.up = Some(up);
        Ok(())
    }

    /// Before a message of a transaction that runs there: whether the connection still does, and whether it needs a token.
    fn still_connected<E: Engine>(&mut self, session: &Session<E>) -> bool {
        let Some(up) = &mut self.up else { return false };
        if self.pending.is_empty() && !self.relaying && !up.is_alive() {
            return false;
        }
        if self.token == 0 {
            self.token = session.token();
            self.token_text = session.token_text(self.token);
            up.put(b'a', &session.set_token(&up.known, self.token));
        }
        true
    }

    async fn query<S: Stream, E: Engine>(
        &mut self,
        wire: &mut Wire<S>,
        session: &mut Session<E>,
        body: &[u8],
        skipping: &mut bool,
    ) -> Result<()> {
        let text = body.strip_suffix(&[0]).unwrap_or(body);
        let text = std::str::from_utf8(text).unwrap_or_default();
        let fresh = self.up.as_ref().is_some_and(|u| !u.sent);
        if !fresh {
            session.begin_forwarded(text);
            if !self.still_connected(session) {
                return self.lost(wire, session, None, true, skipping).await;
            }
        }
        session.may_listen(text);
        self.course.then(effect::effect(text));
        self.executed += 1 + text.matches(';').count();
        let up = self.up.as_mut().expect("it goes on");
        up.put(b'Q', body);
        self.pending.push_back(b'Q');
        match self.pump(wire, session, Until::Ready).await {
            Ok(()) => Ok(()),
            Err(Broken::Client(e)) => Err(e),
            Err(Broken::Primary(e)) => self.lost(wire, session, Some(e), true, skipping).await,
        }
    }

    async fn extended<S: Stream, E: Engine>(
        &mut self,
        wire: &mut Wire<S>,
        session: &mut Session<E>,
        (kind, len): (u8, usize),
        skipping: &mut bool,
    ) -> Result<bool> {
        match frontend::decode(kind, &wire.input.bytes()[5..len]) {
            Ok(message) if self.is_for_here(session, &message) => {
                return self.hand_back(wire, session, len, skipping).await;
            }
            Ok(_) => {}
            Err(e) if is_refused_there(&e) => {}
            Err(_) => return Ok(false),
        }
        let begins = self.up.as_ref().is_some_and(|u| !u.sent);
        if !begins && !self.still_connected(session) {
            wire.input.take(len);
            self.lost(wire, session, None, kind == b'S', skipping)
                .await?;
            return Ok(true);
        }
        self.relaying = true;
        let up = self.up.as_mut().expect("it goes on");
        up.pass(&wire.input.bytes()[..len]);
        wire.input.take(len);
        if kind != b'H' {
            self.pending.push_back(kind);
        }
        let until = match kind {
            b'S' => Until::Ready,
            b'H' => Until::Answered,
            _ if up.is_full() => Until::Sent,
            _ => return Ok(true),
        };
        match self.pump(wire, session, until).await {
            Ok(()) => {}
            Err(Broken::Client(e)) => return Err(e),
            Err(Broken::Primary(e)) => {
                self.lost(wire, session, Some(e), kind == b'S', skipping)
                    .await?;
            }
        }
        Ok(true)
    }

    /// Whether a message is about what is here: a portal, a cursor. One that is not is counted among what goes to the primary.
    fn is_for_here<E: Engine>(&mut self, session: &mut Session<E>, message: &Frontend<'_>) -> bool {
        match *message {
            Frontend::Parse { name, query, .. } => {
                self.prepared.insert(name.to_owned(), query.to_owned());
                session.may_listen(query);
                session.is_about_local_cursor(query)
            }
            Frontend::Bind(ref b) => self.binds(session, b),
            Frontend::Describe { portal: true, name } | Frontend::Close { portal: true, name } => {
                session.has_portal(name)
            }
            Frontend::Describe {
                portal: false,
                name,
            }
            | Frontend::Close {
                portal: false,
                name,
            } => {
                let known = session.text_of(name);
                let text = self.prepared.get(name).unwrap_or(&known);
                session.is_about_local_cursor(text)
            }
            Frontend::Execute { portal, .. } => {
                let here = session.has_portal(portal);
                if !here {
                    // It may have been bound long ago; a cursor of SQL never was.
                    let effect = self.portals.get(portal).copied();
                    self.course.then(effect.unwrap_or_default());
                    self.executed += 1;
                    if !std::mem::take(&mut self.begun) {
                        session.begin_forwarded("<portal>");
                    }
                }
                here
            }
            _ => false,
        }
    }

    /// A Bind: whether its portal is to be here.
    fn binds<E: Engine>(&mut self, session: &mut Session<E>, b: &frontend::Bind<'_>) -> bool {
        if b.portal.is_empty() {
            session.close(true, "");
        }
        let known = session.text_of(b.statement);
        let text = self.prepared.get(b.statement).unwrap_or(&known);
        session.may_listen(text);
        // The name may be taken by one that runs here, and what comes later would be meant for that.
        let here = session.has_portal(b.portal) || session.is_about_local_cursor(text);
        let mut effect = effect::effect(text);
        if *text != known {
            // A Parse without an answer may have failed.
            effect |= effect::effect(&known);
        }
        self.portals.insert(b.portal.to_owned(), effect);
        if !here && !std::mem::replace(&mut self.begun, true) {
            session.begin_forwarded(text);
        }
        here
    }

    /// The message at the front of the input is this node's, once all that went to the primary before has its answer. Whether it was taken:
    /// something before it has failed, and it is skipped.
    async fn hand_back<S: Stream, E: Engine>(
        &mut self,
        wire: &mut Wire<S>,
        session: &mut Session<E>,
        len: usize,
        skipping: &mut bool,
    ) -> Result<bool> {
        let answered = match &mut self.up {
            Some(up) if !self.pending.is_empty() => {
                up.put(b'H', &[]);
                self.pump(wire, session, Until::Answered).await
            }
            _ => Ok(()),
        };
        match answered {
            Ok(()) if self.failed => {
                wire.input.take(len);
                Ok(true)
            }
            Ok(()) => Ok(false),
            Err(Broken::Client(e)) => Err(e),
            Err(Broken::Primary(e)) => {
                wire.input.take(len);
                self.lost(wire, session, Some(e), false, skipping).await?;
                Ok(true)
            }
        }
    }

    /// Sends what has gathered and passes replies on.
    async fn pump<S: Stream, E: Engine>(
        &mut self,
        wire: &mut Wire<S>,
        session: &mut Session<E>,
        mut until: Until,
    ) -> std::result::Result<(), Broken> {
        let handle = session.handle().clone();
        session.limit_forwarded(self.executed.max(1));
        let mut up = self.up.take().expect("somebody is there");
        let mut state = Vec::new();
        loop {
            while let Some((kind, len)) = up.message() {
                let message = &up.input.bytes()[..len];
                match kind {
                    b'Z' => {
                        let status = match message.get(5) {
                            Some(b'T') => TxnStatus::InTransaction,
                            Some(b'E') => TxnStatus::Failed,
                            _ => TxnStatus::Idle,
                        };
                        up.input.take(len);
                        return self
                            .ready(wire, session, up, status, &state)
                            .await
                            .map_err(Broken::Client);
                    }
                    b'a' => state = message[5..].to_vec(),
                    b'E' if is_fatal(&message[5..]) => {
                        return Err(Broken::Primary(server_error(&message[5..])));
                    }
                    b'G' => {
                        wire.out.buf.extend_from_slice(message);
                        up.input.take(len);
                        wire.flush().await.map_err(Broken::Client)?;
                        copy_in(wire, &mut up, &handle).await?;
                        if self.pending.front() == Some(&b'Q') {
                            continue;
                        }
                        // A Sync that was sent ahead of the data counts for nothing; what is said of the COPY comes with the next,
                        // unless something is said already.
                        if self.pending.back() == Some(&b'S') {
                            self.pending.pop_back();
                        }
                        until = match up.message() {
                            Some(_) => Until::Answered,
                            None => Until::Sent,
                        };
                        continue;
                    }
                    b'2' if self.pending.front() == Some(&SILENT) => {
                        self.pending.pop_front();
                    }
                    _ => {
                        wire.out.buf.extend_from_slice(message);
                        self.answered(kind);
                    }
                }
                up.input.take(len);
                if wire.out.buf.len() > HIGH_WATER {
                    wire.flush().await.map_err(Broken::Client)?;
                }
            }
            let answered = until == Until::Sent || self.pending.is_empty();
            if until != Until::Ready && up.is_sent() && answered {
                handle.end();
                self.up = Some(up);
                if until == Until::Answered {
                    wire.flush().await.map_err(Broken::Client)?;
                }
                return Ok(());
            }
            tokio::select! {
                biased;
                () = handle.interruption() => interrupted(&handle, &mut up)?,
                r = up.step() => r.map_err(Broken::Primary)?,
            }
        }
    }

    /// A reply of this kind answers the oldest message that waits for one.
    fn answered(&mut self, reply: u8) {
        let answers = match (self.pending.front(), reply) {
            // After an error the rest up to Sync is skipped.
            (_, b'E') => {
                self.pending.retain(|k| matches!(k, b'S' | b'Q'));
                self.failed = true;
                false
            }
            (Some(b'P'), b'1') | (Some(b'B'), b'2') | (Some(b'C'), b'3') => true,
            (Some(b'D'), b'T' | b'n') | (Some(b'E'), b'C' | b'I' | b's') => true,
            _ => false,
        };
        if answers {
            self.pending.pop_front();
        }
    }

    async fn ready<S: Stream, E: Engine>(
        &mut self,
        wire: &mut Wire<S>,
        session: &mut Session<E>,
        mut up: Upstream,
        status: TxnStatus,
        state: &[u8],
    ) -> Result<()> {
        self.rest();
        self.course = Course::new(status != TxnStatus::Idle);
        let (token, rest) = state.split_at(state.len().min(8));
        self.token = token.try_into().map_or(0, u64::from_le_bytes);
        if state.is_empty() {
            // The session is nobody's there, and nothing has run: it could not become this one.
            drop(up);
            session.lost(session.status() != TxnStatus::Idle);
        } else if status == TxnStatus::Idle {
            session.stands(status);
            session.come_back(&mut up.known, rest)?;
            match session.is_pinned() {
                true => self.up = Some(up),
                false => self.pool.give(up),
            }
        } else {
            session.stands(status);
            session.goes_on(rest)?;
            self.up = Some(up);
        }
        if session.status() == TxnStatus::Idle {
            self.end();
        }
        session.idle();
        tell::notifications(wire, session)?;
        wire.out.ready(session.status());
        afterwards().await;
        wire.flush().await
    }

    /// The session here failed in the middle of a transaction that runs there: it ends there too.
    pub fn fail<E: Engine>(&mut self, session: &mut Session<E>) {
        // (A session with locks there ends at its next message.)
        self.up = None;
        self.rest();
        self.end();
        session.lost(session.status() != TxnStatus::Idle);
    }

    /// The transaction there is over.
    fn end(&mut self) {
        self.prepared.clear();
        self.portals.clear();
    }

    /// Nothing is on its way any more.
    fn rest(&mut self) {
        self.pending.clear();
        (self.relaying, self.failed, self.begun) = (false, false, false);
        self.executed = 0;
    }

    /// The connection to the primary is gone. `answer`: ReadyForQuery is due.
    async fn lost<S: Stream, E: Engine>(
        &mut self,
        wire: &mut Wire<S>,
        session: &mut Session<E>,
        why: Option<Error>,
        answer: bool,
        skipping: &mut bool,
    ) -> Result<()> {
        // Nothing was sent: nothing can have happened.
        let (unknown, failed) = match why {
            Some(_) => (self.course.may_have_committed, self.course.block),
            None => (false, session.status() != TxnStatus::Idle),
        };
        self.up = None;
        self.rest();
        self.end();
        let pinned = session.is_pinned();
        let e = match unknown {
            true => Error::new(
                SqlState::STATEMENT_COMPLETION_UNKNOWN,
                "the connection to the primary was lost; whether the transaction committed is not known",
            )
            .detail(format!("Transaction token: {}", self.token_text))
            .hint(format!(
                "When there is a primary, ask: SELECT canon_txn_status('{}')",
                self.token_text
            )),
            false => Error::new(
                SqlState::CONNECTION_FAILURE,
                "the connection to the primary was lost; the transaction was rolled back",
            )
            .detail(why.map_or(String::new(), |e| e.fields().message.to_string())),
        };
        self.token = 0;
        session.lost(failed);
        if pinned {
            // What became of the transaction first.
            wire.out.error(Severity::Error, &e);
            return Err(session.lost_locks());
        }
        wire.out.error(Severity::Error, &e);
        self.after(wire, session, answer, skipping).await
    }

    /// Tells an error of what could not begin.
    async fn tell<S: Stream, E: Engine>(
        &mut self,
        wire: &mut Wire<S>,
        session: &mut Session<E>,
        e: &Error,
        answer: bool,
        skipping: &mut bool,
    ) -> Result<()> {
        if e.code() == SqlState::ADMIN_SHUTDOWN {
            return Err(e.clone());
        }
        tell::error(wire, session, e).await?;
        self.after(wire, session, answer, skipping).await
    }

    async fn after<S: Stream, E: Engine>(
        &mut self,
        wire: &mut Wire<S>,
        session: &mut Session<E>,
        answer: bool,
        skipping: &mut bool,
    ) -> Result<()> {
        *skipping = !answer;
        if answer {
            session.idle();
            wire.out.ready(session.status());
        }
        wire.flush().await
    }
}

/// The text of the statement that a message is about, if the message goes to the primary and begins a transaction there.
fn begins_there<E: Engine>(session: &mut Session<E>, kind: u8, body: &[u8]) -> Option<String> {
    if !matches!(kind, b'B' | b'P' | b'D') || !session.forwards() {
        return None;
    }
    let (text, goes) = match frontend::decode(kind, body).ok()? {
        Frontend::Bind(b) => {
            let goes = session.belongs_to_primary(b.statement);
            (session.text_of(b.statement), goes)
        }
        Frontend::Parse { query, .. } => (query.to_owned(), session.names_are_there(query)),
        Frontend::Describe {
            portal: false,
            name,
        } => {
            let text = session.text_of(name);
            let goes = session.names_are_there(&text) || session.describes_there(name);
            (text, goes)
        }
        _ => return None,
    };
    goes.then_some(text)
}

/// Whether the primary refuses the message as this node would: then it does, in its place among the others.
fn is_refused_there(e: &Error) -> bool {
    e.code() == SqlState::CHARACTER_NOT_IN_REPERTOIRE
}

/// Whether the error ends the connection that it came over.
fn is_fatal(body: &[u8]) -> bool {
    let severity = |f: &&[u8]| matches!(f.first(), Some(b'V' | b'S'));
    let mut fields = body.split(|&b| b == 0).filter(severity);
    fields.any(|f| matches!(&f[1..], b"FATAL" | b"PANIC"))
}
