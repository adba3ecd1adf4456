//! A client's messages on their way to the primary, and the replies on theirs back.
//!
//! ```text
//! simple     a text goes as a whole, with the transaction that it belongs to
//! extended   from the first Bind of a statement that may not run here to Sync, and then every message of the transaction
//! COPY       CopyInResponse turns the direction round: data goes up to CopyDone or CopyFail
//! ```
//! Messages gather and go at Sync or Flush. The order of replies is that of the messages: before one is answered by the session here
//! (a portal that was opened before the transaction moved), everything that is on its way is answered first.

use super::Pool;
use super::upstream::Upstream;
use crate::gate::cores::{Core, afterwards};
use crate::gate::frontend::{self, Frontend};
use crate::gate::wire::{Stream, Wire, gone};
use base::{Error, Result, SqlState};
use sql::engine::Engine;
use sql::session::{Client, Reason, Session, Severity, TxnStatus, may_commit};
use std::collections::{HashSet, VecDeque};
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
    /// What is on its way may commit something.
    may_commit: bool,
    /// Names of statements that were prepared there and may commit.
    committing: HashSet<String>,
}

/// How relaying ended.
enum Ended {
    /// ReadyForQuery has been passed on.
    Ready,
    /// Every message has its answer.
    Answered,
}

/// Why it did not.
enum Broken {
    /// The connection to the primary.
    Primary(Error),
    /// The client's, or the session is to end.
    Client(Error),
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        // A transaction in it ends with its connection.
        self.up = None;
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
            may_commit: false,
            committing: HashSet::new(),
        }
    }

    /// Takes the message at the front of the input, if it is not the session's here. `skipping` is the connection's.
    pub async fn take<S: Stream, E: Engine>(
        &mut self,
        wire: &mut Wire<S>,
        session: &mut Session<E>,
        (kind, len): (u8, usize),
        skipping: &mut bool,
    ) -> Result<bool> {
        if !self.relaying && !session.has_moved() {
            if kind != b'B' || !session.forwards() {
                return Ok(false);
            }
            let body = &wire.input.bytes()[5..len];
            let Ok(Frontend::Bind(b)) = frontend::decode(kind, body) else {
                return Ok(false);
            };
            if !session.belongs_to_primary(b.statement) {
                return Ok(false);
            }
            let text = session.text_of(b.statement);
            session.begin_forwarded(&text);
            if let Err(e) = self.begin(session).await {
                wire.input.take(len);
                self.tell(wire, session, &e, false, skipping).await?;
                return Ok(true);
            }
            self.relaying = true;
        }
        match kind {
            b'Q' => {
                let body = &wire.input.bytes()[5..len];
                let Ok(Frontend::Query(q)) = frontend::decode(kind, body) else {
                    return Ok(false);
                };
                if session.is_about_local_cursor(q) {
                    return Ok(false);
                }
                let sql = q.to_owned();
                wire.input.take(len);
                self.query(wire, session, &sql, skipping).await?;
                Ok(true)
            }
            b'P' | b'B' | b'D' | b'E' | b'C' | b'H' | b'S' => {
                self.extended(wire, session, (kind, len), skipping).await
            }
            _ => Ok(false),
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
        self.query(wire, session, sql, skipping).await
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
        Ok(())
    }

    /// Gets a connection and tells it who the session is and where its transaction stands.
    async fn begin<E: Engine>(&mut self, session: &mut Session<E>) -> Result<()> {
        let mut up = match self.up.take() {
            Some(u) => u,
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
        self.may_commit = session.status() == TxnStatus::Idle;
        // After an error the connection goes: it is of no use to doubt what the other end knows.
        let b = session.set_out(&mut up.known, self.token)?;
        up.put(b'a', &b);
        self.up = Some(up);
        Ok(())
    }

    /// Before a message of a transaction that runs there: whether the connection still does, and whether it needs a token.
    fn go_on<E: Engine>(&mut self, session: &Session<E>) -> bool {
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
        sql: &str,
        skipping: &mut bool,
    ) -> Result<()> {
        session.begin_forwarded(sql);
        let fresh = self.up.as_ref().is_some_and(|u| !u.sent);
        if !fresh && !self.go_on(session) {
            return self.lost(wire, session, None, true, skipping).await;
        }
        self.may_commit |= may_commit(sql);
        let up = self.up.as_mut().expect("it goes on");
        up.put(b'Q', &[sql.as_bytes(), &[0]].concat());
        self.pending.push_back(b'Q');
        match self.pump(wire, session, true).await {
            Ok(_) => Ok(()),
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
        let body = &wire.input.bytes()[5..len];
        let Ok(message) = frontend::decode(kind, body) else {
            return Ok(false);
        };
        let mut here = false;
        match message {
            Frontend::Parse { name, query, .. } => {
                if may_commit(query) {
                    self.committing.insert(name.to_owned());
                } else {
                    self.committing.remove(name);
                }
            }
            Frontend::Bind(b) => {
                if b.portal.is_empty() {
                    session.close(true, "");
                }
                self.may_commit |=
                    self.committing.contains(b.statement) || session.may_commit(b.statement);
            }
            Frontend::Describe { portal: true, name } | Frontend::Close { portal: true, name } => {
                here = session.has_portal(name);
            }
            Frontend::Execute { portal, .. } => here = session.has_portal(portal),
            _ => {}
        }
        if here {
            let drained = match self.up {
                Some(_) if !self.pending.is_empty() => {
                    self.up.as_mut().expect("there").put(b'H', &[]);
                    self.pump(wire, session, false).await.map(|_| ())
                }
                _ => Ok(()),
            };
            return match drained {
                Ok(()) => Ok(false),
                Err(Broken::Client(e)) => Err(e),
                Err(Broken::Primary(e)) => {
                    wire.input.take(len);
                    self.lost(wire, session, Some(e), false, skipping).await?;
                    Ok(true)
                }
            };
        }
        let begins = self.up.as_ref().is_some_and(|u| !u.sent);
        if !begins && !self.go_on(session) {
            if kind == b'S' {
                wire.input.take(len);
                self.lost(wire, session, None, true, skipping).await?;
            } else {
                wire.input.take(len);
                self.lost(wire, session, None, false, skipping).await?;
            }
            return Ok(true);
        }
        self.relaying = true;
        let up = self.up.as_mut().expect("it goes on");
        up.pass(&wire.input.bytes()[..len]);
        wire.input.take(len);
        if kind != b'H' {
            self.pending.push_back(kind);
        }
        let ended = match kind {
            b'S' => self.pump(wire, session, true).await,
            b'H' => self.pump(wire, session, false).await,
            _ if up.is_full() => up
                .send()
                .await
                .map(|()| Ended::Answered)
                .map_err(Broken::Primary),
            _ => Ok(Ended::Answered),
        };
        match ended {
            Ok(_) => {}
            Err(Broken::Client(e)) => return Err(e),
            Err(Broken::Primary(e)) => {
                self.lost(wire, session, Some(e), kind == b'S', skipping)
                    .await?;
            }
        }
        Ok(true)
    }

    /// Sends what has gathered and passes replies on: up to ReadyForQuery, or until every message is answered.
    async fn pump<S: Stream, E: Engine>(
        &mut self,
        wire: &mut Wire<S>,
        session: &mut Session<E>,
        ready: bool,
    ) -> std::result::Result<Ended, Broken> {
        let handle = session.handle().clone();
        let mut up = self.up.take().expect("somebody is there");
        up.send().await.map_err(Broken::Primary)?;
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
                            .map(|()| Ended::Ready)
                            .map_err(Broken::Client);
                    }
                    b'a' => state = message[5..].to_vec(),
                    b'E' if is_fatal(&message[5..]) => {
                        return Err(Broken::Primary(crate::replication::server_error(
                            &message[5..],
                        )));
                    }
                    b'G' => {
                        wire.out.buf.extend_from_slice(message);
                        up.input.take(len);
                        wire.flush().await.map_err(Broken::Client)?;
                        copy_in(wire, &mut up).await?;
                        if self.pending.front() == Some(&b'Q') {
                            continue;
                        }
                        // A Sync that was sent ahead of the data counts for nothing; what is said of the COPY comes with the next.
                        if self.pending.back() == Some(&b'S') {
                            self.pending.pop_back();
                        }
                        self.up = Some(up);
                        return Ok(Ended::Answered);
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
            if !ready && self.pending.is_empty() {
                self.up = Some(up);
                wire.flush().await.map_err(Broken::Client)?;
                return Ok(Ended::Answered);
            }
            tokio::select! {
                biased;
                r = up.fill() => r.map_err(Broken::Primary)?,
                () = handle.interruption() => match handle.interrupted() {
                    Some(Reason::Terminate) => {
                        return Err(Broken::Client(Error::new(
                            SqlState::ADMIN_SHUTDOWN,
                            "terminating connection due to administrator command",
                        )));
                    }
                    Some(Reason::StatementTimeout) => {
                        let why = "the primary did not answer within the statement's time limit";
                        return Err(Broken::Primary(Error::new(SqlState::CONNECTION_FAILURE, why)));
                    }
                    Some(Reason::Cancel) => {
                        up.cancel();
                        handle.forget_cancel();
                    }
                    None => handle.end_wait(),
                },
            }
        }
    }

    /// A reply of this kind answers the oldest message that waits for one.
    fn answered(&mut self, reply: u8) {
        let answers = match (self.pending.front(), reply) {
            // After an error the rest up to Sync is skipped.
            (_, b'E') => {
                self.pending.retain(|k| matches!(k, b'S' | b'Q'));
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
        self.pending.clear();
        self.relaying = false;
        self.may_commit = false;
        let (token, rest) = state.split_at(state.len().min(8));
        self.token = token.try_into().map_or(0, u64::from_le_bytes);
        if state.is_empty() {
            // The session is nobody's there, and nothing has run: it could not become this one.
            drop(up);
            session.lost(false);
        } else if status == TxnStatus::Idle {
            session.stands(status);
            session.come_back(&mut up.known, rest)?;
            self.pool.give(up);
        } else {
            session.stands(status);
            session.goes_on(rest)?;
            self.up = Some(up);
        }
        session.idle();
        wire.out.ready(session.status());
        afterwards().await;
        wire.flush().await
    }

    /// The session here failed in the middle of a transaction that runs there: it ends there too.
    pub fn fail<E: Engine>(&mut self, session: &mut Session<E>) {
        self.up = None;
        self.pending.clear();
        self.relaying = false;
        session.lost(false);
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
        let sent = why.is_some();
        let unknown = sent && self.may_commit;
        self.up = None;
        self.pending.clear();
        self.relaying = false;
        self.committing.clear();
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
        self.may_commit = false;
        self.token = 0;
        session.lost(unknown);
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
        session.failed(wire, e).await;
        wire.out.error(Severity::Error, e);
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

/// Passes COPY data on, to its end.
async fn copy_in<S: Stream>(
    wire: &mut Wire<S>,
    up: &mut Upstream,
) -> std::result::Result<(), Broken> {
    loop {
        let frame = frontend::frame(wire.input.bytes()).map_err(Broken::Client)?;
        let Some((kind, len)) = frame else {
            up.send().await.map_err(Broken::Primary)?;
            match wire.input.fill(&mut wire.stream).await {
                Ok(0) => {
                    let e = std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
                    return Err(Broken::Client(gone(&e)));
                }
                Ok(_) => continue,
                Err(e) => return Err(Broken::Client(gone(&e))),
            }
        };
        match kind {
            b'd' | b'c' | b'f' => up.pass(&wire.input.bytes()[..len]),
            b'H' | b'S' => {}
            b'X' => {
                let e = Error::new(
                    SqlState::CONNECTION_FAILURE,
                    "connection closed during COPY",
                );
                return Err(Broken::Client(e));
            }
            t => {
                let e = format!("unexpected message type 0x{t:02X} during COPY from stdin");
                return Err(Broken::Client(frontend::violation(e)));
            }
        }
        wire.input.take(len);
        let done = kind == b'c' || kind == b'f';
        if done || up.is_full() {
            up.send().await.map_err(Broken::Primary)?;
        }
        if done {
            return Ok(());
        }
    }
}

/// Whether the error ends the connection that it came over.
fn is_fatal(body: &[u8]) -> bool {
    let severity = |f: &&[u8]| matches!(f.first(), Some(b'V' | b'S'));
    let mut fields = body.split(|&b| b == 0).filter(severity);
    fields.any(|f| matches!(&f[1..], b"FATAL" | b"PANIC"))
}
