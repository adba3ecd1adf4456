//! Transaction blocks.
//!
//! ```text
//! None      no block: each statement is a transaction of its own
//! Implicit  several statements of one text, or of one pipeline up to Sync: committed at its end
//! Explicit  BEGIN was said
//! Failed    an error inside Explicit: only ROLLBACK, ROLLBACK TO, COMMIT (which rolls back) pass (25P02)
//! ```
//! The transaction itself is begun by the first statement that needs it, so that SET TRANSACTION can still choose. A failed
//! block keeps it only while there is a savepoint to go back to.

use super::Session;
use super::client::{Client, Severity, TxnStatus};
use super::exit::Exit;
use super::handle::{Handle, Reason};
use super::level::Level;
use super::run::interruption;
use super::settings::{self, Span};
use super::token::{Token, to_be_asked};
use super::turns::PATIENCE;
use super::utility::Modes;
use crate::engine::Engine;
use base::{CommitWait, Committing, Error, Position, Result, SqlState, Work};
use futures::future::{Either, select};
use std::future::poll_fn;
use std::sync::atomic::Ordering;
use std::task::Poll;
use txn::{Txn, TxnOptions};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    #[default]
    None,
    Implicit,
    Explicit,
    Failed,
}

/// A savepoint: its name, and where the settings and cursors stood.
struct Savepoint {
    name: String,
    settings: usize,
    depth: u32,
    /// Where the transaction's advisory locks and notifications stood.
    locks: usize,
    said: (usize, usize),
    /// What SET TRANSACTION had said of reading only, and what the transaction was.
    read_only: (Option<bool>, bool),
}

/// The state of the transaction block.
#[derive(Default)]
pub struct Block {
    pub kind: Kind,
    pub txn: Option<Box<Txn>>,
    /// What this block's transaction is to be; nothing: the session's defaults.
    modes: Modes,
    savepoints: Vec<Savepoint>,
    /// Whether the schema was changed in this transaction: its plans are not for the cache.
    pub ddl: bool,
    /// Counts savepoints ever made in the block, to tell which cursors are younger than one.
    pub depth: u32,
    /// Savepoints that were made at another node; and, since that node was told, the first of them that was gone back to, counted from 1.
    pub brought: u32,
    pub gone_back: Option<u32>,
}

impl Block {
    pub fn modes(&self) -> Modes {
        self.modes
    }

    /// Whether BEGIN or SET TRANSACTION said so.
    pub fn declared_read_only(&self) -> Option<bool> {
        self.modes.read_only
    }

    /// Names of the savepoints, and where the settings stood at each.
    pub fn savepoint_list(&self) -> Vec<(String, usize)> {
        let all = self.savepoints.iter();
        all.map(|s| (s.name.clone(), s.settings)).collect()
    }

    /// A block that was begun at another node.
    pub fn begin(&mut self, explicit: bool, modes: Modes) {
        self.kind = if explicit {
            Kind::Explicit
        } else {
            Kind::Implicit
        };
        self.modes = modes;
    }

    pub fn status(&self) -> TxnStatus {
        match self.kind {
            Kind::None | Kind::Implicit => TxnStatus::Idle,
            Kind::Explicit => TxnStatus::InTransaction,
            Kind::Failed => TxnStatus::Failed,
        }
    }
}

/// 25P02.
fn failed() -> Error {
    Error::new(
        SqlState::IN_FAILED_SQL_TRANSACTION,
        "current transaction is aborted, commands ignored until end of transaction block",
    )
}

fn outside(what: &str) -> Error {
    Error::new(
        SqlState::NO_ACTIVE_SQL_TRANSACTION,
        format!("{what} can only be used in transaction blocks"),
    )
}

/// A commit that its session waits for no longer.
enum Left {
    /// It is on this disk.
    Here,
    /// The disk is full, and the commit is in memory only.
    Unknown,
}

/// What is known of a commit whose wait was cancelled, in PostgreSQL's words where it says the same.
fn left(why: Reason, left: Left) -> Error {
    let by = match why {
        Reason::StatementTimeout => "statement timeout",
        _ => "user request",
    };
    match left {
        Left::Here => Error::new(
            SqlState(*b"01000"),
            format!("canceling wait for synchronous replication due to {by}"),
        )
        .detail("The transaction has already committed locally, but might not have been replicated to the standby."),
        Left::Unknown => Error::new(
            SqlState::STATEMENT_COMPLETION_UNKNOWN,
            format!("canceling wait for a full disk due to {by}"),
        )
        .detail("The transaction's commit is not on this server's disk yet. It takes effect when the disk has room; a server that stops before has not committed it."),
    }
}

/// 40003: the transaction stands here, and this node may be the primary no more.
fn in_doubt(why: &Error) -> Error {
    Error::new(
        SqlState::STATEMENT_COMPLETION_UNKNOWN,
        "the transaction stands on this node; whether it stays is not known",
    )
    .detail(why.fields().message.to_string())
}

/// A session is ended that waits for this. What a commit's client is told is what PostgreSQL says, where the commit is on this disk.
fn left_waiting(held: CommitWait, flushed: Position) -> Error {
    if let CommitWait::Published(_) = held {
        return interruption(Reason::Terminate);
    }
    if flushed < held.position() {
        return interruption(Reason::Terminate).detail(
            "The transaction's commit was not yet on this server's disk; whether it will be is not known.",
        );
    }
    Error::new(
        SqlState::ADMIN_SHUTDOWN,
        "canceling the wait for synchronous replication and terminating connection due to administrator command",
    )
    .detail("The transaction has already committed locally, but might not have been replicated to the standby.")
}

impl<E: Engine> Session<E> {
    /// Refuses anything in a failed block.
    pub(super) fn not_failed(&self) -> Result<()> {
        if self.block.kind == Kind::Failed {
            return Err(failed());
        }
        Ok(())
    }

    /// Whether a statement now would be a transaction of its own.
    pub(super) fn autocommit(&self) -> bool {
        self.block.kind == Kind::None
    }

    /// Several statements until the next sync share a transaction.
    pub(super) fn begin_implicit(&mut self) {
        if self.block.kind == Kind::None {
            self.block.kind = Kind::Implicit;
        }
    }

    /// `read`: it is for a SELECT on its own.
    fn options(&mut self, read: bool) -> TxnOptions {
        // A statement of its own that may run at a replica writes nothing; a block may go on at the primary, and remembers its reads.
        let blocks = self.forwards() && self.block.kind != Kind::None;
        let reads = read && self.follows();
        let elsewhere = !blocks && (reads || !self.shared.engine.runs(Work::Rows));
        let hot = &self.state.settings.get_mut().hot;
        let m = self.block.modes;
        TxnOptions {
            isolation: m.isolation.unwrap_or(hot.isolation).isolation(),
            read_only: elsewhere || m.read_only.unwrap_or(hot.read_only),
            deferrable: m.deferrable.unwrap_or(hot.deferrable),
            durability: hot.durability(),
            interrupt: self.handle.interrupt.clone(),
            locking: true,
            contended: self.lost > 0
                && self.block.kind == Kind::Explicit
                && self.shared.engine.runs(Work::Write),
        }
    }

    /// The transaction that runs, begun if there is none. `read`: this is a SELECT on its own.
    pub(super) fn ensure_txn(&mut self, read: bool) {
        if self.block.txn.is_none() {
            let options = self.options(read);
            let now = self.state.now();
            self.output.now = now;
            self.state.statement_start.set(now);
            let mut txn = self.shared.engine.begin(options, read);
            if !self.temp.is_empty() {
                txn.lend(&self.temp);
            }
            // One SELECT alone holds no LOCK up.
            if !read {
                txn.uses_by(&mut self.uses);
            }
            self.handle.txn.store(txn.id(), Ordering::Relaxed);
            self.block.txn = Some(txn);
        }
    }

    /// Before a transaction block begins its work: one that is tried again waits for its turn (`turns.rs`).
    pub(super) async fn await_turn<C: Client>(&mut self, c: &mut C) {
        if self.lost == 0 || self.block.txn.is_some() || self.block.kind != Kind::Explicit {
            return;
        }
        let turn = self.shared.turns.wait();
        let patience = std::pin::pin!(c.pause(PATIENCE));
        if let Either::Left((turn, _)) = select(turn, patience).await {
            self.turn = Some(turn);
        }
    }

    /// BEGIN.
    pub(super) fn begin_block<C: Client>(&mut self, c: &mut C, modes: Modes) -> Result<()> {
        match self.block.kind {
            Kind::Failed => return Err(failed()),
            Kind::Explicit => {
                let e = Error::new(
                    SqlState::ACTIVE_SQL_TRANSACTION,
                    "there is already a transaction in progress",
                );
                self.notice(c, Severity::Warning, &e);
                if modes == Modes::default() {
                    return Ok(());
                }
            }
            Kind::None | Kind::Implicit => {
                if self.block.kind == Kind::None {
                    self.output.now = self.state.now();
                }
                self.block.kind = Kind::Explicit;
                // The level stands from here on: what the settings say later is for later transactions.
                let level = self.level();
                self.block.modes.isolation = Some(level);
            }
        }
        self.set_modes(modes)
    }

    /// SET TRANSACTION, and what follows BEGIN.
    pub(super) fn set_modes(&mut self, m: Modes) -> Result<()> {
        let started = self.block.txn.as_ref().is_some_and(|t| t.has_snapshot());
        let mut now = self.options(false);
        if let Some(l) = m.isolation {
            if started && l != self.level() {
                return Err(Error::new(
                    SqlState::ACTIVE_SQL_TRANSACTION,
                    "SET TRANSACTION ISOLATION LEVEL must be called before any query",
                ));
            }
            now.isolation = l.isolation();
        }
        if let Some(ro) = m.read_only {
            if !ro && !self.shared.engine.runs(Work::Rows) && !self.forwards() {
                return Err(Error::new(
                    SqlState::FEATURE_NOT_SUPPORTED,
                    "cannot set transaction read-write mode during recovery",
                ));
            }
            if now.read_only && !ro && !self.block.savepoints.is_empty() {
                return Err(Error::new(
                    SqlState::ACTIVE_SQL_TRANSACTION,
                    "cannot set transaction read-write mode inside a read-only transaction",
                ));
            }
            if started && now.read_only && !ro {
                return Err(Error::new(
                    SqlState::ACTIVE_SQL_TRANSACTION,
                    "transaction read-write mode must be set before any query",
                ));
            }
            now.read_only = ro;
        }
        if let Some(d) = m.deferrable {
            if started && d {
                return Err(Error::new(
                    SqlState::ACTIVE_SQL_TRANSACTION,
                    "SET TRANSACTION [NOT] DEFERRABLE must be called before any query",
                ));
            }
            now.deferrable = d;
        }
        self.block.modes.isolation = m.isolation.or(self.block.modes.isolation);
        self.block.modes.read_only = m.read_only.or(self.block.modes.read_only);
        self.block.modes.deferrable = m.deferrable.or(self.block.modes.deferrable);
        if let Some(t) = &mut self.block.txn {
            if !started {
                t.set_isolation(now.isolation);
            }
            t.set_read_only(now.read_only);
        }
        Ok(())
    }

    /// The isolation level of the running or next transaction.
    pub(super) fn level(&mut self) -> Level {
        let named = self.state.settings.get_mut().hot.isolation;
        let named = self.block.modes.isolation.unwrap_or(named);
        let txn = self.block.txn.as_ref();
        txn.map_or(named, |t| named.of(t.isolation()))
    }

    /// What the running or next transaction is, for SHOW.
    pub(super) fn transaction_mode(&mut self, name: &str) -> Option<String> {
        let on = |b: bool| if b { "on" } else { "off" }.to_owned();
        let o = self.options(false);
        match name {
            "transaction_isolation" => Some(self.level().name().to_owned()),
            "transaction_read_only" => {
                let forwards = self.forwards();
                Some(on(match forwards {
                    true => self.declared_read_only(),
                    false => o.read_only,
                }))
            }
            "transaction_deferrable" => Some(on(o.deferrable)),
            "canon.commit_token" => Some(self.state.token()),
            _ => None,
        }
    }

    /// COMMIT or ROLLBACK; the tag is what happened.
    pub(super) async fn end_block<C: Client>(
        &mut self,
        c: &mut C,
        commit: bool,
        chain: bool,
    ) -> Result<&'static str> {
        let kind = self.block.kind;
        if matches!(kind, Kind::None | Kind::Implicit) {
            if chain {
                return Err(outside(if commit {
                    "COMMIT AND CHAIN"
                } else {
                    "ROLLBACK AND CHAIN"
                }));
            }
            let e = Error::new(
                SqlState::NO_ACTIVE_SQL_TRANSACTION,
                "there is no transaction in progress",
            );
            self.notice(c, Severity::Warning, &e);
        }
        let modes = self.block.modes;
        let commit = commit && kind != Kind::Failed;
        if commit {
            if let Err(e) = self.hold_cursors(c).await {
                self.rollback().await?;
                return Err(e.here());
            }
            self.commit().await?;
        } else {
            self.rollback().await?;
        }
        match kind {
            // The rest of the text goes on in a transaction of its own.
            Kind::Implicit => self.block.kind = Kind::Implicit,
            Kind::Explicit | Kind::Failed if chain => {
                self.block.kind = Kind::Explicit;
                self.block.modes = modes;
            }
            _ => {}
        }
        Ok(if commit { "COMMIT" } else { "ROLLBACK" })
    }

    /// Commits the transaction, if there is one, and waits until its reply may leave. An error means that it was rolled back.
    pub(super) async fn commit(&mut self) -> Result<()> {
        self.drop_portals_at_commit();
        if let Err(e) = self.check_deferred(true).await {
            let seen = self.undo();
            if let Some(seen) = seen {
                self.published(seen).await?;
            }
            return Err(e);
        }
        self.wait_for_readers().await;
        let turn = self.turn.take();
        let txn = self.leave();
        let Some(mut txn) = txn else {
            self.keep_settings();
            self.listen_now(None);
            return Ok(());
        };
        let says = self.say_with(&mut txn);
        self.note_drawn(&mut txn);
        let writes = txn.has_writes();
        if writes {
            self.handle.commit_waits(Handle::ROOM);
        }
        let (number, token) = match writes && self.at_site() {
            false => (self.transaction_token(), String::new()),
            true => {
                let number = self.token();
                // Made before it can commit: it is looked for from here on.
                (number, self.token_text(number))
            }
        };
        self.before_listening();
        let committed = match self.shared.engine.commit(txn, number) {
            Committing::Done(outcome) => outcome,
            Committing::Later(decided) => self.decided_elsewhere(decided, &token).await,
        };
        self.temp_returned();
        // One without writes leaves no mark in the log: the number is for what comes after it.
        if committed.is_ok() && writes {
            self.token_is_used();
        }
        self.handle.commit_waits(0);
        drop(turn);
        match committed {
            Ok(held) => {
                let held = self.state.with_drawn(held);
                let committed = held.position();
                self.keep_settings();
                self.shared.counters.commits.add();
                self.state.saw(held.position());
                self.lost = self.lost.saturating_sub(1);
                let at = held.position();
                self.listen_now(Some(if writes { at.prev() } else { at }));
                let waited = self.published(held).await;
                // Its advisory locks end here and not before: their next holder reads what is published, and is to see this commit.
                self.state.rollback_locks(0);
                if says {
                    self.shared.deliver();
                }
                // With synchronous_commit = off its reply waits for what a read waits for.
                waited.map_err(|e| {
                    let history = self.shared.engine.history();
                    let token = Token::of(&history, committed).to_string();
                    match writes && e.code() == SqlState::CANNOT_CONNECT_NOW {
                        true => to_be_asked(in_doubt(&e), &token),
                        false => to_be_asked(e, &token),
                    }
                })
            }
            Err(e) => {
                self.state.rollback_locks(0);
                self.drop_portals();
                self.unsay();
                self.listens_to_nothing_new();
                self.undo_settings();
                self.shared
                    .counters
                    .rollbacks
                    .fetch_add(1, Ordering::Relaxed);
                Err(e)
            }
        }
    }

    /// Rolls the transaction back, if there is one, and waits until the reply may leave.
    pub(super) async fn rollback(&mut self) -> Result<()> {
        match self.undo() {
            Some(seen) => self.published(seen).await,
            None => Ok(()),
        }
    }

    /// Rolls the transaction back, if there is one; what its reply has to wait for.
    fn undo(&mut self) -> Option<CommitWait> {
        self.drop_portals();
        let txn = self.leave();
        self.undo_settings();
        let seen = txn.map(|t| self.shared.engine.rollback(t));
        self.temp_returned();
        self.state.numbers.used.get_mut().clear();
        self.unsay();
        self.state.rollback_locks(0);
        let seen = seen?;
        let seen = self.state.with_drawn(seen);
        self.shared
            .counters
            .rollbacks
            .fetch_add(1, Ordering::Relaxed);
        if !self.follows() {
            self.state.saw(seen.position());
        }
        Some(seen)
    }

    /// The transaction has committed: its cursors WITH HOLD stay, and a role of SET LOCAL ends with it.
    fn keep_settings(&mut self) {
        self.held_cursors();
        if self.state.settings.get_mut().commit() {
            self.restore_roles();
        }
    }

    pub(super) fn undo_settings(&mut self) {
        self.state.settings.get_mut().rollback();
        self.restore_roles();
        self.stale = true;
    }

    /// Ends the block, whose transaction has ended.
    pub(super) fn leave_block(&mut self) {
        debug_assert!(self.block.txn.is_none());
        self.leave();
    }

    /// Ends the block and gives its transaction.
    fn leave(&mut self) -> Option<Box<Txn>> {
        self.turn = None;
        let b = &mut self.block;
        b.kind = Kind::None;
        b.modes = Modes::default();
        b.savepoints.clear();
        b.ddl = false;
        (b.depth, b.brought, b.gone_back) = (0, 0, None);
        self.state.txn_id.set(None);
        b.txn.take()
    }

    /// A statement failed. Leaves the block as PostgreSQL does, and waits until the error may be told: what is not yet published may have
    /// been read, and the error may tell of it. Where waiting fails, the error of that is to be told instead. That the disk is full may
    /// be told at once, since it says nothing of what was read, and what was read waits for the disk.
    pub(super) async fn fail(&mut self, e: &Error) -> Result<()> {
        let modes = self.block.modes;
        let (fails, ends) = match self.block.kind {
            Kind::Explicit => (true, self.block.savepoints.is_empty()),
            Kind::None | Kind::Implicit => (false, true),
            Kind::Failed => (false, false),
        };
        let mut waited = Ok(());
        if ends {
            let seen = self.undo();
            if let Some(seen) = seen.filter(|_| e.code() != SqlState::DISK_FULL) {
                waited = self.published(seen).await;
            }
        }
        if fails {
            self.block.kind = Kind::Failed;
            self.block.modes = modes;
        }
        waited
    }

    /// SAVEPOINT.
    pub(super) fn savepoint(&mut self, name: &str) -> Result<()> {
        match self.block.kind {
            Kind::Failed => return Err(failed()),
            Kind::Explicit => {}
            Kind::None | Kind::Implicit => return Err(outside("SAVEPOINT")),
        }
        self.ensure_txn(false);
        let settings = self.state.settings.get_mut().savepoint();
        let locks = self.state.locks_mark();
        let said = self.state.pending.get_mut().mark();
        let b = &mut self.block;
        let txn = b.txn.as_mut().expect("just begun");
        txn.savepoint(name);
        let read_only = (b.modes.read_only, txn.is_read_only());
        b.depth += 1;
        b.savepoints.push(Savepoint {
            name: name.to_owned(),
            settings,
            depth: b.depth,
            locks,
            said,
            read_only,
        });
        Ok(())
    }

    fn find_savepoint(&self, name: &str) -> Result<usize> {
        let at = self.block.savepoints.iter().rposition(|s| s.name == name);
        at.ok_or_else(|| {
            Error::new(
                SqlState::INVALID_SAVEPOINT,
                format!("savepoint \"{name}\" does not exist"),
            )
        })
    }

    /// RELEASE.
    pub(super) fn release(&mut self, name: &str) -> Result<()> {
        match self.block.kind {
            Kind::Failed => return Err(failed()),
            Kind::Explicit => {}
            Kind::None | Kind::Implicit => return Err(outside("RELEASE SAVEPOINT")),
        }
        let at = self.find_savepoint(name)?;
        let txn = self.block.txn.as_mut().expect("a savepoint needs one");
        txn.release_savepoint(name)?;
        // As in PostgreSQL READ ONLY that was said since ends with the savepoint, too.
        let (said, was) = self.block.savepoints[at].read_only;
        txn.set_read_only(was);
        self.block.modes.read_only = said;
        self.block.savepoints.truncate(at);
        Ok(())
    }

    /// ROLLBACK TO.
    pub(super) fn rollback_to(&mut self, name: &str) -> Result<()> {
        if matches!(self.block.kind, Kind::None | Kind::Implicit) {
            return Err(outside("ROLLBACK TO SAVEPOINT"));
        }
        let at = self.find_savepoint(name)?;
        let depth = self.block.savepoints[at].depth;
        self.drop_portals_since(depth);
        let txn = self.block.txn.as_mut().expect("a savepoint needs one");
        txn.rollback_to_savepoint(name)?;
        let (said, was) = self.block.savepoints[at].read_only;
        self.block.modes.read_only = said;
        txn.set_read_only(was);
        self.state.rollback_locks(self.block.savepoints[at].locks);
        let said = self.block.savepoints[at].said;
        self.state.pending.get_mut().rollback_to(said);
        let settings = self.block.savepoints[at].settings;
        self.state.settings.get_mut().rollback_to(settings);
        self.restore_roles();
        self.stale = true;
        let b = &mut self.block;
        b.savepoints.truncate(at + 1);
        b.kind = Kind::Explicit;
        if depth <= b.brought {
            b.gone_back = Some(b.gone_back.map_or(depth, |d| d.min(depth)));
        }
        Ok(())
    }

    /// The transaction runs elsewhere and has gone back there to this savepoint, counted from 1, of those that were made here: cursors
    /// that are younger end.
    pub(super) fn gone_back(&mut self, savepoint: u32) {
        let found = self.block.savepoints.get(savepoint as usize - 1);
        if let Some(depth) = found.map(|s| s.depth) {
            self.drop_portals_since(depth);
        }
    }

    /// Waits until replies that depend on this position may leave. 57P01 when the session is ended first; then a commit stands in the log
    /// here, or will if the disk takes it, and whether it stays is for others to say.
    ///
    /// A cancel or a timeout ends the wait, too. What shows something that was read is not shown (57014). A commit cannot be taken back:
    /// once it is on this disk it is acknowledged, with a warning; where the disk is full its outcome is not known (40003, and the same as
    /// a warning). Where the disk has room the log reaches it in some milliseconds, which are waited for.
    pub(super) async fn published(&mut self, held: CommitWait) -> Result<()> {
        let engine = &self.shared.engine;
        if engine.is_published(held) {
            return Ok(());
        }
        // A replica has read at what the primary has published, and need not show it as a whole.
        if matches!(held, CommitWait::Published(p) if p <= self.reading.known) {
            return Ok(());
        }
        let mut ready = engine.published(held);
        let before = self.shared.host.unix_micros();
        self.handle.commit_waits(held.position().as_u64());
        let r = poll_fn(|cx| {
            if let Poll::Ready(r) = ready.as_mut().poll(cx) {
                return Poll::Ready(r.map_err(Err));
            }
            self.handle.wake_by(cx);
            let why = match self.handle.interrupted() {
                None => return Poll::Pending,
                Some(why) => why,
            };
            let flushed = engine.cluster_status().flushed;
            let gone = match (why, held) {
                (Reason::Terminate, _) => Err(left_waiting(held, flushed)),
                (_, CommitWait::Published(_)) => Err(interruption(why)),
                // Its memory is wanted, which no client has asked for: what it was promised of its commit stands.
                (Reason::Memory, _) => {
                    self.handle.forget(why);
                    return Poll::Pending;
                }
                _ if flushed >= held.position() => Ok(left(why, Left::Here)),
                _ if engine.is_disk_full() => Ok(left(why, Left::Unknown)),
                _ => return Poll::Pending,
            };
            Poll::Ready(Err(gone))
        })
        .await;
        self.handle.commit_waits(0);
        let r = match r {
            Ok(()) => Ok(()),
            Err(Err(e)) => Err(e),
            Err(Ok(left)) => {
                let known = left.code() == SqlState(*b"01000");
                self.state.warnings.borrow_mut().push(left.clone());
                // What was asked has been done: it does not end what comes next, too.
                self.handle.begin(0);
                if known { Ok(()) } else { Err(left) }
            }
        };
        let c = &self.shared.counters;
        let took = self.shared.host.unix_micros().saturating_sub(before).max(0);
        c.commit_waits.fetch_add(1, Ordering::Relaxed);
        c.commit_wait_micros
            .fetch_add(took as u64, Ordering::Relaxed);
        r
    }

    /// At a primary: waits until what the session's token stands for is published. 57014 when it is cancelled or runs out of time; 55000
    /// where it cannot come: a primary has what it has.
    pub(super) async fn reach_floor(&mut self) -> Result<()> {
        let token = self.state.settings.get_mut().hot.min_token;
        let Some(token) = token.filter(|_| !self.follows()) else {
            return Ok(());
        };
        let engine = &self.shared.engine;
        let history = engine.history();
        if token.is_of_a_later_term(&history) {
            engine.newer_term_hinted();
        }
        token.check(&history)?;
        if token.position <= engine.published_position() {
            return Ok(());
        }
        if token.position > engine.cluster_status().current {
            return Err(token.from_the_future());
        }
        let ready = engine.published(CommitWait::Published(token.position));
        self.wait_fresh(ready).await.map_err(Exit::here)
    }

    /// Sends a notice that the client wants to see.
    pub(super) fn notice<C: Client>(&mut self, c: &mut C, severity: Severity, e: &Error) {
        let wanted = self.state.settings.get_mut().hot.client_min_messages;
        if severity >= wanted || severity == Severity::Info {
            c.notice(severity, e);
        }
    }

    /// Sets transaction settings by their names (`SET transaction_isolation = …`).
    pub(super) fn set_mode_by_name(&mut self, name: &str, value: Option<&str>) -> Result<bool> {
        let mut m = Modes::default();
        let bad = |v: &str| {
            Error::new(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("invalid value for parameter \"{name}\": \"{v}\""),
            )
        };
        let on = |v: Option<&str>, d: bool| match v {
            None => Ok(d),
            Some(v) => settings::bool_of(v).ok_or_else(|| bad(v)),
        };
        let hot = self.state.settings.get_mut().hot.clone();
        match name.to_ascii_lowercase().as_str() {
            "transaction_isolation" => {
                m.isolation = Some(match value {
                    None => hot.isolation,
                    Some(v) => Level::named(v).ok_or_else(|| bad(v))?,
                });
            }
            "transaction_read_only" => m.read_only = Some(on(value, hot.read_only)?),
            "transaction_deferrable" => m.deferrable = Some(on(value, hot.deferrable)?),
            _ => return Ok(false),
        }
        if self.block.kind != Kind::None {
            self.set_modes(m)?;
        }
        Ok(true)
    }

    /// SET SESSION CHARACTERISTICS.
    pub(super) fn set_characteristics(&mut self, m: Modes) {
        let s = self.state.settings.get_mut();
        let on = |b| if b { "on" } else { "off" };
        if let Some(l) = m.isolation {
            s.force("default_transaction_isolation", l.name(), Span::Session);
        }
        if let Some(b) = m.read_only {
            s.force("default_transaction_read_only", on(b), Span::Session);
        }
        if let Some(b) = m.deferrable {
            s.force("default_transaction_deferrable", on(b), Span::Session);
        }
        if self.block.kind == Kind::None {
            s.commit();
        }
    }
}
