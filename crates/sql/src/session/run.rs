//! The statement loop.
//!
//! ```text
//! begin_statement -> run -> end_statement            ok: next statement, or commit
//!        ^              \-> error: undo the statement, take the rows back, then
//!        |                    Blocked   wait for the lock (lock_timeout, statement_timeout, cancel)   --+
//!        +--------------------Restart   the snapshot has moved   ---------------------------------------+
//!                             40001, 40P01 in a transaction of its own: roll back, a short pause, from the beginning
//!                             other     the block fails
//! ```
//! A statement runs again only while none of its rows has left. Rows are held back by statements that write or lock; plain
//! SELECTs stream, since they meet neither.

use super::client::{Client, Column, Severity};
use super::copy::CopyOut;
use super::exit::{Exit, at_primary_only};
use super::handle::{Reason, Waits};
use super::planner_api;
use super::plans::Plan;
use super::prepared::{Ddl, Statement};
use super::row::{Formats, put_row};
use super::{Deed, Session, block};
use crate::engine::Engine;
use crate::exec::{ExecContext, Execution, Go};
use crate::plan::{Prepared, StatementKind};
use crate::reading::Waiting;
use base::{Error, Result, SqlState, Value};
use compact_str::CompactString;
use futures::future::{Either, select};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use txn::{LockWait, Stop, Txn};

/// How often the server runs a transaction of one statement before the client gets the error.
const ATTEMPTS: u32 = 20;
/// The same at a site. Then it goes to the primary, where it waits for the row that it loses to.
const AT_SITE: u32 = 4;
/// Milliseconds that a commit waits at most for one that has read what it overwrites.
const READERS_LIMIT: u64 = 10;
/// Rows between looks at how much is waiting to be sent.
const CHUNK: usize = 256;
/// Bytes of replies that wait at most while a SELECT streams.
const HIGH_WATER: usize = 64 << 10;

/// One run of a planned statement, from its start to its last row; a portal is one that may rest between.
pub struct Run {
    pub statement: Arc<Statement>,
    pub plan: Arc<Plan>,
    pub formats: Formats,
    params: Vec<Value>,
    exec: Option<Execution>,
    pub finished: bool,
    /// Nobody was told of its columns before it runs: they may become others until then.
    untold: bool,
    /// It is a cursor's, whose DECLARE has asked for the rights.
    allowed: bool,
    /// The snapshot of its own that it rests at (READ COMMITTED).
    parked: Option<txn::Parked>,
}

impl Run {
    pub fn new(
        statement: Arc<Statement>,
        plan: Arc<Plan>,
        params: Vec<Value>,
        formats: Formats,
    ) -> Run {
        Run {
            statement,
            plan,
            formats,
            params,
            exec: None,
            finished: false,
            untold: false,
            allowed: false,
            parked: None,
        }
    }

    /// The same, of a statement whose columns are told with its rows.
    pub fn untold(mut self) -> Run {
        self.untold = true;
        self
    }

    /// The same, where its rights have been asked for.
    pub fn allowed(mut self) -> Run {
        self.allowed = true;
        self
    }

    /// Rests here: what it reads stays as it is now, whatever snapshots the transaction's statements take meanwhile.
    pub fn park(&mut self, txn: &mut Txn) {
        self.parked = txn.park();
    }

    pub fn params(&self) -> &[Value] {
        &self.params
    }

    /// It gives no more rows.
    pub fn end(&mut self) {
        self.again();
        (self.finished, self.parked) = (true, None);
    }

    /// Whether it rests between rows, reading at its transaction's snapshot.
    pub fn resting(&self) -> bool {
        self.exec.is_some() && !self.finished
    }

    /// Back to the start, with the same parameters.
    fn again(&mut self) {
        if let Some(e) = self.exec.take() {
            self.params = e.into_params();
        }
        self.finished = false;
    }

    /// Rows inserted, updated or deleted; of a query, the rows given so far.
    pub fn affected(&self) -> u64 {
        self.exec.as_ref().map_or(0, Execution::rows_affected)
    }

    /// The command tag.
    pub fn tag(&self, rows: u64) -> CompactString {
        let n = self.affected();
        let (what, n) = match self.plan.prepared.kind {
            StatementKind::Select => ("SELECT ", rows),
            StatementKind::Insert => ("INSERT 0 ", n),
            StatementKind::Update => ("UPDATE ", n),
            StatementKind::Delete => ("DELETE ", n),
            StatementKind::Merge => ("MERGE ", n),
            StatementKind::Explain => return CompactString::const_new("EXPLAIN"),
        };
        let mut tag = CompactString::const_new(what);
        tag.push_str(itoa::Buffer::new().format(n));
        tag
    }
}

/// Where rows go.
pub enum Sink<'a> {
    Client,
    Nowhere,
    Keep(&'a mut Vec<Vec<Value>>),
    Copy(&'a mut CopyOut),
}

/// What the loop runs.
pub enum Work<'a> {
    Rows {
        run: &'a mut Run,
        /// 0: all.
        max_rows: usize,
        /// Send the description of the columns first.
        describe: bool,
        sink: Sink<'a>,
    },
    Ddl(&'a Ddl),
}

/// Why a run is undone and made again.
pub(super) enum Again {
    /// It waits for a lock.
    Blocked,
    /// The snapshot has to move.
    Restart,
    /// It waits for numbers of a sequence.
    Numbers(Waiting<()>),
}

/// How one run ends that gives no result.
pub(super) enum Unfinished {
    Again(Again),
    Exit(Exit),
}

impl From<Stop> for Unfinished {
    fn from(s: Stop) -> Unfinished {
        match s {
            Stop::Blocked => Unfinished::Again(Again::Blocked),
            Stop::Restart => Unfinished::Again(Again::Restart),
            Stop::Error(e) => Unfinished::Exit(e.into()),
        }
    }
}

impl From<Exit> for Unfinished {
    fn from(e: Exit) -> Unfinished {
        Unfinished::Exit(e)
    }
}

impl From<Error> for Unfinished {
    fn from(e: Error) -> Unfinished {
        Unfinished::Exit(e.into())
    }
}

impl Unfinished {
    /// The same for a transaction of the library, whose statements run where it is.
    pub(super) fn here(self) -> Stop {
        match self {
            Unfinished::Again(Again::Blocked) => Stop::Blocked,
            Unfinished::Again(Again::Restart | Again::Numbers(_)) => Stop::Restart,
            Unfinished::Exit(e) => Stop::Error(e.here()),
        }
    }
}

/// 40001 of a statement whose rows have left.
fn rows_were_sent() -> Error {
    Error::new(
        SqlState::SERIALIZATION_FAILURE,
        "could not serialize access due to concurrent update",
    )
    .detail("Rows of the statement had been sent when it met the update.")
}

/// How a run ended.
pub struct Ended {
    pub tag: CompactString,
    /// Rows given in this run.
    pub rows: u64,
    /// There are more rows.
    pub suspended: bool,
}

/// 55P03 by `lock_timeout`.
pub(super) fn lock_timeout() -> Error {
    Error::new(
        SqlState::LOCK_NOT_AVAILABLE,
        "canceling statement due to lock timeout",
    )
}

/// The error of an interrupted statement.
pub fn interruption(why: Reason) -> Error {
    base::cancel::error_of(why as u8)
}

impl<E: Engine> Session<E> {
    /// Begins a statement: its clock, its time limit, what others see of it.
    pub(super) fn begin_activity(&mut self, text: &Arc<str>) {
        let now = self.state.now();
        self.state.statement_start.set(now);
        self.begin_clock();
        self.shared.counters.statements.add();
        let mut a = self.handle.activity.lock();
        a.state = "active";
        a.query_start = Some(now);
        a.state_change = Some(now);
        if !Arc::ptr_eq(&a.query, text) {
            a.query = text.clone();
        }
        if self.block.txn.is_none() {
            a.xact_start = Some(now);
        }
    }

    /// Begins what may wait and can be cancelled: its time limits.
    pub(super) fn begin_clock(&mut self) {
        if self.stale {
            self.refresh();
        }
        self.handle.account.begin(self.memory);
        self.begin_limit();
        self.begun = false;
        self.reading.begin();
    }

    /// What comes now can be cancelled, and has the statement's time limit: reading a text, planning, taking parameters.
    pub(super) fn begin_limit(&mut self) {
        let hot = &self.state.settings.get_mut().hot;
        let deadline = hot.statement_timeout.map_or(0, |t| {
            self.shared.host.monotonic_millis() + t.as_millis() as u64
        });
        self.handle.need_peer(hot.needs_client);
        // A cancel that came since the text was begun to be read is meant for what it says.
        match std::mem::replace(&mut self.begun, true) {
            true => self.handle.limit(deadline),
            false => self.handle.begin(deadline),
        }
    }

    /// A message comes that is to be taken as a whole: what it takes is bounded as a statement is.
    pub fn begin_message(&mut self) {
        self.handle.account.begin(self.memory);
    }

    /// The session waits for its client.
    pub fn idle(&mut self) {
        self.handle.end();
        self.handle.need_peer(false);
        self.begun = false;
        let mut a = self.handle.activity.lock();
        a.state = match self.block.kind {
            block::Kind::Failed => "idle in transaction (aborted)",
            block::Kind::Explicit => "idle in transaction",
            _ => "idle",
        };
        if a.state == "idle" {
            a.xact_start = None;
            self.handle.account.rest();
        }
    }

    /// Runs a statement to its end, or to `max_rows`; in a transaction of its own it is committed too.
    pub(super) async fn execute_work<C: Client>(
        &mut self,
        c: &mut C,
        mut work: Work<'_>,
    ) -> Result<Ended, Exit> {
        self.not_failed()?;
        if self.stale {
            self.refresh();
        }
        self.state.check_locks()?;
        self.check_temp()?;
        self.state.begin_locks();
        self.state.pending.get_mut().begin_statement();
        match &self.block.txn {
            None => self.reach_floor().await?,
            Some(_) => self.stands_at_its_token()?,
        }
        let auto = self.autocommit();
        let mark = c.mark();
        let mut attempt = 0;
        loop {
            attempt += 1;
            let ended = self.attempt(c, &mut work, auto, mark).await;
            let ended = match ended {
                Ok(e) if auto => self
                    .commit()
                    .await
                    .map(|()| e)
                    .map_err(Exit::from)
                    .inspect_err(|_| {
                        // No row of what may never be published leaves, where that can be helped.
                        c.rewind(mark);
                    }),
                e => e,
            };
            let e = match ended {
                Ok(e) => return Ok(e),
                // The server takes it to the primary.
                Err(e) if e.is_for_others() && self.forwards() => return Err(e),
                Err(e) => e.here(),
            };
            if !(auto && e.code().is_retryable() && attempt < ATTEMPTS && c.rewind(mark)) {
                return Err(e.into());
            }
            self.state.undo_locks();
            self.rollback().await?;
            if let Some(why) = self.handle.interrupted() {
                return Err(interruption(why).into());
            }
            if attempt == AT_SITE && self.at_site() && self.forwards() {
                return Err(Exit::Forward(e));
            }
            self.shared.counters.retries.fetch_add(1, Ordering::Relaxed);
            if let Work::Rows { run, .. } = &mut work {
                run.again();
            }
            c.pause(backoff(attempt, self.handle.pid)).await;
        }
    }

    /// Before a run takes its snapshot. At a node that follows, the run gets its place. At a primary a read waits until what was acknowledged before its term
    /// is shown. The role is looked at again afterwards, since a promotion or a hand-over in between brings the other rule.
    async fn find_place(&mut self, work: &mut Work<'_>, read: bool) -> Result<(), Exit> {
        loop {
            let follows = self.follows();
            if follows {
                if let Work::Rows { run, .. } = work
                    && run.parked.is_none()
                {
                    self.place_for(&run.plan.prepared, &run.params).await?;
                }
                self.await_winner().await?;
            } else if read {
                self.settle().await?;
            }
            if self.follows() == follows {
                return Ok(());
            }
        }
    }

    /// One transaction's worth: runs the statement until it neither waits nor restarts.
    async fn attempt<C: Client>(
        &mut self,
        c: &mut C,
        work: &mut Work<'_>,
        auto: bool,
        mark: u64,
    ) -> Result<Ended, Exit> {
        let read = match work {
            Work::Rows { run, .. } => run.plan.prepared.read_only && !run.plan.prepared.locks_rows,
            Work::Ddl(_) => false,
        };
        self.await_turn(c).await;
        self.ensure_txn(auto && read);
        self.bear_locks();
        let settings = self.state.settings.get_mut().savepoint();
        loop {
            self.find_place(work, read).await?;
            self.state.goes_on.set(false);
            let whole = matches!(&*work, Work::Rows { run, .. } if run.parked.is_none());
            self.state.numbers.may_run_again.set(whole);
            let r = self.once(c, work).await;
            self.state.numbers.may_run_again.set(false);
            let e = match r {
                Ok(ended) if read && !ended.suspended => {
                    let txn = self.block.txn.as_mut().expect("a statement runs in one");
                    let Some(end) = txn.writer_in_the_way() else {
                        return Ok(ended);
                    };
                    if !c.rewind(mark) {
                        txn.stop_waiting();
                        return Ok(ended);
                    }
                    self.undo_statement(settings, false);
                    if let Work::Rows { run, .. } = work {
                        run.again();
                    }
                    let again = &self.shared.counters.restarts;
                    again.fetch_add(1, Ordering::Relaxed);
                    if !self.wait_politely(end).await {
                        let txn = self.block.txn.as_mut().expect("it waited");
                        txn.no_more_courtesy();
                    }
                    continue;
                }
                Ok(ended) => return Ok(ended),
                Err(e) => e,
            };
            let again = match e {
                Unfinished::Again(again) => again,
                Unfinished::Exit(e) => match self.state.numbers.awaited.take() {
                    Some(numbers) => Again::Numbers(numbers),
                    None => {
                        let e = self.follow_function(e);
                        let told = !e.is_for_others();
                        self.undo_statement(settings, told);
                        return Err(e);
                    }
                },
            };
            // Rows that have been sent cannot be taken back.
            let sent = !c.rewind(mark);
            self.undo_statement(settings, sent);
            // The schema may be another one then, and the plan with it.
            if let Work::Rows { run, .. } = work {
                run.again();
            }
            if sent {
                let txn = self.block.txn.as_mut();
                let met = txn.and_then(|t| t.take_conflict());
                return Err(met.unwrap_or_else(rows_were_sent).into());
            }
            match again {
                Again::Blocked => self.wait_for_lock().await?,
                Again::Numbers(numbers) => self.wait_for_numbers(numbers).await?,
                Again::Restart => {
                    let restarts = &self.shared.counters.restarts;
                    restarts.fetch_add(1, Ordering::Relaxed);
                    if let Some(why) = self.handle.interrupted() {
                        return Err(interruption(why).into());
                    }
                }
            }
        }
    }

    /// What a function refused because it may run at the primary only goes there.
    pub(super) fn follow_function(&self, e: Exit) -> Exit {
        match (e, self.state.goes_on.take()) {
            (Exit::Error(e), true) => Exit::Forward(e),
            (e, _) => e,
        }
    }

    /// Takes back what the statement did that ran last: its writes, and settings that its functions changed since there were `settings`
    /// changes. `told`: the client has seen, or will see, something of what it read.
    fn undo_statement(&mut self, settings: usize, told: bool) {
        let txn = self.block.txn.as_mut().expect("a statement runs in one");
        self.state.pending.get_mut().undo_statement();
        match told {
            true => txn.fail_statement(),
            false => {
                txn.rollback_statement();
                self.state.undo_locks();
            }
        }
        let s = self.state.settings.get_mut();
        if s.savepoint() > settings {
            s.rollback_to(settings);
            self.stale = true;
        }
    }

    async fn once<C: Client>(
        &mut self,
        c: &mut C,
        work: &mut Work<'_>,
    ) -> Result<Ended, Unfinished> {
        let txn = self.block.txn.as_mut().expect("begun");
        if let Work::Rows { run, .. } = work
            && let Some(parked) = run.parked.take()
        {
            txn.resume(parked);
        }
        txn.begin_statement()?;
        self.look_at_schema();
        let settings = self.state.settings.get_mut().savepoint();
        // A run that got its place before a promotion waits as it would have at the replica.
        if self.follows() || self.is_placed() {
            self.placed();
            if let Work::Rows { run, .. } = work
                && run.exec.is_none()
            {
                self.current_plan(run)?;
                self.may_read(&run.plan.prepared, &run.params).await?;
            }
        }
        let ended = match work {
            Work::Rows {
                run,
                max_rows,
                describe,
                sink,
            } => self.rows(c, run, *max_rows, *describe, sink).await?,
            // The server takes it to the primary.
            Work::Ddl(_) if self.at_site() => {
                return Err(Exit::Forward(at_primary_only("the statement")).into());
            }
            Work::Ddl(s) => {
                let done = planner_api::execute_ddl(self, s);
                if s.changes() {
                    match &done {
                        Ok(o) => self.audit(Ok(o)),
                        Err(Stop::Error(e)) => self.audit(Err(e)),
                        Err(Stop::Blocked | Stop::Restart) => {}
                    }
                }
                let outcome = done?;
                self.block.ddl = true;
                for (severity, e) in &outcome.notices {
                    self.notice(c, *severity, e);
                }
                Ended {
                    tag: outcome.tag.into(),
                    rows: 0,
                    suspended: false,
                }
            }
        };
        let txn = self.block.txn.as_mut().expect("begun");
        // Cascades write, and what they write is the database's.
        if let Err(e) = base::memory::apart(|| txn.end_statement()) {
            // The plan had come to its end: what runs next, after a wait say, is all of it again.
            if let Work::Rows { run, .. } = work {
                run.again();
            }
            return Err(e.into());
        }
        if let Work::Rows { run, .. } = work
            && ended.suspended
        {
            run.park(txn);
        }
        if self.state.settings.get_mut().savepoint() > settings {
            // `set_config` does what SET does.
            self.follow_settings();
            self.restore_roles();
        }
        Ok(ended)
    }

    /// Takes the schema that the transaction sees for functions and catalogs.
    pub(super) fn look_at_schema(&mut self) {
        let txn = self.block.txn.as_ref().expect("begun");
        let goes_on = self.state.txn_id.get() == Some(txn.id());
        let assigned = goes_on && self.state.txn_assigned.get();
        self.state.txn_assigned.set(assigned || txn.has_writes());
        self.state.txn_id.set(Some(txn.id()));
        let level = self.level();
        self.state.isolation.set(level);
        let deferrable = self.block.modes().deferrable;
        let default = self.state.settings.get_mut().hot.deferrable;
        self.state.deferrable.set(deferrable.unwrap_or(default));
        let forwards = self.forwards();
        self.state.forwards.set(forwards);
        let forward = forwards && !self.declared_read_only();
        self.state.forward.set(forward);
        let txn = self.block.txn.as_ref().expect("begun");
        // One that could go to the primary when it began may stay here by now.
        let stays = self.follows() && !forward && !self.forward.moved;
        self.state.read_only.set(txn.is_read_only() || stays);
        let draws = !txn.is_read_only() && self.draws_here();
        self.state.numbers.here.set(draws);
        let old = self.state.catalog.get_mut();
        if !txn.sees(old) {
            *old = txn.catalog();
            self.output.catalog = None;
        }
        self.find_roles();
        if self.output.catalog.is_none() {
            let role = self.state.current_role.get();
            let catalog = self.state.catalog.get_mut();
            self.output.catalog = Some(planner_api::lookup(catalog, &self.path, role));
        }
    }

    pub(super) async fn rows<C: Client>(
        &mut self,
        c: &mut C,
        run: &mut Run,
        max_rows: usize,
        describe: bool,
        sink: &mut Sink<'_>,
    ) -> Result<Ended, Unfinished> {
        if run.exec.is_none() {
            self.ready(run)?;
        }
        match sink {
            Sink::Keep(rows) => rows.clear(),
            Sink::Copy(out) => out.begin(c, &run.plan.columns),
            Sink::Client | Sink::Nowhere => {}
        }
        let Run {
            plan,
            formats,
            exec,
            ..
        } = &mut *run;
        let (plan, formats) = (&*plan, &*formats);
        let prepared = &plan.prepared;
        let columns = &plan.columns;
        let gives_rows = plan.gives_rows();
        if describe && gives_rows {
            c.row_description(columns, &formats.list(columns.len()));
        }
        let exec = exec.as_mut().expect("just started");
        let streams = prepared.read_only && !prepared.locks_rows;
        let mut given = 0usize;
        let suspended = loop {
            let left = if max_rows == 0 {
                usize::MAX
            } else {
                max_rows - given
            };
            let chunk = if streams {
                left.min(CHUNK)
            } else if max_rows == 0 {
                0
            } else {
                left
            };
            let more = {
                let Session {
                    block,
                    state,
                    output,
                    scratch,
                    ..
                } = self;
                let txn = block.txn.as_mut().expect("begun");
                let cx = ExecContext {
                    settings: output,
                    session: state,
                    facts: state,
                };
                let mut some = |c: &mut C| {
                    exec.for_each_row(txn, &cx, chunk, &mut |row| {
                        given += 1;
                        let put: Result<()> = match sink {
                            Sink::Client if !gives_rows => Ok(()),
                            Sink::Client => c.row(columns.len(), |out| {
                                put_row(&row, columns, formats, cx.settings, scratch, out);
                                Ok(())
                            }),
                            Sink::Nowhere => Ok(()),
                            Sink::Keep(rows) => {
                                rows.push((0..row.width()).map(|i| row.get(i)).collect());
                                Ok(())
                            }
                            Sink::Copy(out) => {
                                out.row(c, &row, plan, cx.settings);
                                Ok(())
                            }
                        };
                        put?;
                        base::memory::check()?;
                        match streams && c.pending() > HIGH_WATER {
                            true => Ok(Go::Pause),
                            false => Ok(Go::On),
                        }
                    })
                };
                some(c)
            };
            // What runs again takes its warnings back with its rows.
            self.tell_warnings(c);
            if !more? {
                break false;
            }
            if max_rows != 0 && given >= max_rows {
                break true;
            }
            if streams && c.pending() > HIGH_WATER {
                c.flush().await?;
            }
        };
        if let Sink::Copy(out) = sink {
            out.end(c);
        }
        run.finished = !suspended;
        Ok(Ended {
            tag: run.tag(given as u64),
            rows: given as u64,
            suspended,
        })
    }

    /// Starts a run.
    fn ready(&mut self, run: &mut Run) -> Result<(), Unfinished> {
        self.current_plan(run)?;
        self.use_tables(&run.plan.prepared)?;
        run.exec = Some(run.plan.prepared.start(std::mem::take(&mut run.params)));
        Ok(())
    }

    /// Takes the locks on tables that the statement takes by itself. A SELECT that is a transaction of its own takes them only where a
    /// LOCK TABLE may be in its way.
    pub(super) fn use_tables(&mut self, p: &Prepared) -> txn::Result<()> {
        let alone = self.block.kind == block::Kind::None && p.read_only && !p.locks_rows;
        let txn = self.block.txn.as_mut().expect("begun");
        if alone && !txn.tables_are_locked() {
            return Ok(());
        }
        let catalog = self.state.catalog.get_mut();
        for (table, modes) in p.uses() {
            if let Some(table) = catalog.table(*table) {
                txn.use_table(table, *modes)?;
            }
        }
        Ok(())
    }

    /// Tells auditors of a change of schema, roles or rights, or of why it was refused.
    fn audit(&self, done: std::result::Result<&planner_api::Outcome, &Error>) {
        let state = &self.state;
        let text = self.handle.activity.lock().query.clone();
        self.shared.host.audit(&Deed {
            role: &state.role_name(state.current_role.get()),
            session_user: &state.role_name(state.session_user.get()),
            pid: self.handle.pid,
            tag: done.map_or("", |o| &o.tag),
            statement: &text,
            refused: done.err(),
        });
    }

    /// Sees to it that the plan is one of the schema that the transaction sees, and that the user may run it.
    fn current_plan(&mut self, run: &mut Run) -> Result<(), Exit> {
        let version = self.state.catalog.get_mut().schema.version;
        if run.plan.prepared.schema_version != version {
            let plan = self.plan(&run.statement)?;
            if !Column::same_row(&plan.columns, &run.plan.columns) && !run.untold {
                return Err(super::prepared::result_type_changed().into());
            }
            // What DECLARE asked for are the rights of its own plan. A name may mean another relation by now.
            run.allowed &= plan.prepared.privileges == run.plan.prepared.privileges;
            run.plan = plan;
        }
        let gated = self.state.forward.get() || self.state.read_only.get();
        if gated
            && let Some(what) = writing(&run.plan.prepared)
            && !self.changes_here(&run.plan.prepared)
            && (self.state.forward.get() || !run.plan.prepared.writes_temporary())
        {
            return Err(match self.state.forward.get() {
                true => Exit::Forward(at_primary_only(what)),
                false => super::state::read_only(what).into(),
            });
        }
        if !run.allowed {
            let role = self.state.current_role.get();
            let schema = &self.state.catalog.get_mut().schema;
            planner_api::check_privileges(schema, role, &run.plan.prepared)?;
        }
        self.note_used(&run.plan.prepared);
        Ok(())
    }

    pub(super) async fn wait_for_lock(&mut self) -> Result<()> {
        let txn = self.block.txn.as_mut().expect("begun");
        let Some(mut wait) = txn.take_wait() else {
            return Err(Error::internal("a blocked statement waits for nothing"));
        };
        let hot = &self.state.settings.get_mut().hot;
        let host = self.shared.host.clone();
        let at = |t: Duration| host.monotonic_millis() + (t.as_millis() as u64).max(1);
        let (limit, look) = (hot.lock_timeout.map(at), hot.deadlock_timeout.map(at));
        let before = self.shared.host.unix_micros();
        let mut looked = look.is_none();
        // The statement may have taken the session's first advisory lock.
        let mut deadlock = match self.bear_locks() && looked {
            true => self
                .block
                .txn
                .as_ref()
                .expect("begun")
                .check_deadlock()
                .err(),
            false => None,
        };
        let granted = loop {
            if deadlock.is_some() {
                break false;
            }
            let next = [limit, look.filter(|_| !looked)];
            let next = next.into_iter().flatten().min().unwrap_or(0);
            self.handle.begin_wait(next, Waits::Lock);
            let granted = {
                let interrupted = pin!(self.handle.interruption());
                matches!(select(&mut wait, interrupted).await, Either::Left(_))
            };
            self.handle.end_wait();
            let now = host.monotonic_millis();
            let due = look.is_some_and(|l| now >= l) && limit.is_none_or(|l| now < l);
            if granted || looked || !due || self.handle.interrupted().is_some() {
                break granted;
            }
            looked = true;
            let txn = self.block.txn.as_ref().expect("it waits");
            deadlock = txn.check_deadlock().err();
        };
        let n = &self.shared.counters;
        n.lock_waits.fetch_add(1, Ordering::Relaxed);
        let took = self.shared.host.unix_micros().saturating_sub(before).max(0);
        n.lock_wait_micros.fetch_add(took as u64, Ordering::Relaxed);
        if granted {
            return Ok(());
        }
        // The statement gives up: others must not queue behind a wait that nobody is in.
        self.block.txn.as_mut().expect("begun").stop_waiting();
        match self.handle.interrupted() {
            Some(why) => Err(interruption(why)),
            None if deadlock.is_some() => Err(deadlock.expect("looked at")),
            None => Err(lock_timeout()),
        }
    }

    /// Waits for numbers of a sequence, between two runs of a statement.
    pub(super) async fn wait_for_numbers(&mut self, numbers: Waiting<()>) -> Result<()> {
        self.handle.begin_wait(0, Waits::Numbers);
        let came = {
            let interrupted = pin!(self.handle.interruption());
            match select(numbers, interrupted).await {
                Either::Left((came, _)) => Some(came),
                Either::Right(_) => None,
            }
        };
        self.handle.end_wait();
        match (came, self.handle.interrupted()) {
            (Some(came), _) => came,
            (None, Some(why)) => Err(interruption(why)),
            (None, None) => Ok(()),
        }
    }

    /// Before a commit: lets transactions end that have read what it overwrites (`txn::contention`), if they do so soon.
    pub(super) async fn wait_for_readers(&mut self) {
        let Some(txn) = &self.block.txn else { return };
        for reader in txn.readers_in_the_way() {
            let txn = self.block.txn.as_mut().expect("looked at above");
            let Some(end) = txn.wait_for_end(reader) else {
                continue;
            };
            if !self.wait_politely(end).await {
                return;
            }
        }
    }

    /// Waits for the end of another transaction, but not for long; whether it has ended.
    async fn wait_politely(&mut self, end: LockWait) -> bool {
        let limit = self.shared.host.monotonic_millis() + READERS_LIMIT;
        self.handle.begin_wait(limit, Waits::Lock);
        let ended = {
            let interrupted = pin!(self.handle.interruption());
            matches!(select(end, interrupted).await, Either::Left(_))
        };
        self.handle.end_wait();
        if !ended {
            let txn = self.block.txn.as_mut().expect("it waits");
            txn.stop_waiting();
        }
        ended
    }

    /// Counts an error that a client gets.
    pub(super) fn count(&mut self, e: &Error) {
        if e.code().is_retryable() {
            self.lost = super::turns::STICKY;
        }
        let c = &self.shared.counters;
        match e.code() {
            SqlState::SERIALIZATION_FAILURE => {
                c.serialization_failures.fetch_add(1, Ordering::Relaxed)
            }
            SqlState::DEADLOCK_DETECTED => c.deadlocks.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
    }

    /// Notices of `planner_api`, as a severity and an error each.
    pub(super) fn warn<C: Client>(&mut self, c: &mut C, code: SqlState, message: &str) {
        self.notice(c, Severity::Warning, &Error::new(code, message));
    }
}

/// What the statement does that a read-only transaction may not.
fn writing(p: &crate::plan::Prepared) -> Option<&'static str> {
    match p.kind {
        StatementKind::Insert => Some("INSERT"),
        StatementKind::Update => Some("UPDATE"),
        StatementKind::Delete => Some("DELETE"),
        StatementKind::Merge => Some("MERGE"),
        _ if p.locks_rows => Some("SELECT FOR UPDATE"),
        StatementKind::Select if p.writes_in_with() => Some("SELECT"),
        StatementKind::Select | StatementKind::Explain => None,
    }
}

/// Pauses grow with the attempts; sessions differ so that they do not meet again.
fn backoff(attempt: u32, pid: i32) -> Duration {
    let step = 50u64 << attempt.min(8);
    Duration::from_micros(step / 2 + (pid as u64).wrapping_mul(0x9e37_79b9) % step)
}
