//! What running statements see of their session: identity, settings, clock, sequences, the schema.
//!
//! Functions get it by shared reference in the middle of a run ([`SessionContext`], [`SessionFacts`]), so what they may change
//! stands in cells. None of it is touched across a wait.

use super::Shared;
use super::handle::{Handle, Waits};
use super::level::Level;
use super::roles::Roles;
use super::settings::{Kind, SETTINGS, Scope, Settings, Span, Unit, bool_of};
use super::temp::OwnSequences;
use super::token::Token;
use crate::catalog::{
    ActivityRow, CursorRow, DatabaseStats, PreparedRow, SessionFacts, SettingRow,
};
use crate::cluster_status::ClusterStatus;
use crate::ddl::privileges;
use crate::engine::{CheckCancelled, Engine, MembershipChange, Outcome};
use crate::functions::SessionContext;
use base::schema::{Relation, Schema, SequenceDef, ViewDef, privilege};
use base::{CommitWait, Drawn, Error, Oid, Position, Result, SqlState, Type, Value};
use futures::future::{Either, select};
use sqlparser::tokenizer::Location;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use txn::Catalog;

/// Microseconds from 1970 to 2000.
pub const EPOCH: i64 = 946_684_800_000_000;

/// 25006.
pub(super) fn read_only(what: &str) -> Error {
    Error::new(
        SqlState::READ_ONLY_SQL_TRANSACTION,
        format!("cannot execute {what} in a read-only transaction"),
    )
}

pub(super) struct State<E: Engine> {
    pub shared: Arc<Shared<E>>,
    pub handle: Arc<Handle>,
    pub settings: RefCell<Settings>,
    /// Who logged in, and whose rights count now.
    pub authenticated: Oid,
    pub session_user: Cell<Oid>,
    pub current_role: Cell<Oid>,
    /// Whom their names mean.
    pub roles: RefCell<Roles>,
    /// Microseconds since 2000.
    pub statement_start: Cell<i64>,
    /// The schema as the running transaction sees it, for functions that look names up.
    pub catalog: RefCell<Arc<Catalog>>,
    pub txn_id: Cell<Option<u64>>,
    /// The running transaction has written, or its number was asked for.
    pub txn_assigned: Cell<bool>,
    /// The running transaction may not write.
    pub read_only: Cell<bool>,
    pub isolation: Cell<Level>,
    pub deferrable: Cell<bool>,
    /// What it may not do goes to the primary.
    pub forward: Cell<bool>,
    /// A function of the running statement may run at the primary only.
    pub goes_on: Cell<bool>,
    /// The newest position that this session has read or written, and the one that the client was told of.
    pub seen: Cell<Position>,
    pub told: Cell<Position>,
    /// What has to be published before numbers of sequences are told that the transaction was given.
    pub drawn: Cell<Position>,
    /// The session's numbers at a site (`numbers`).
    pub numbers: super::numbers::Drawing,
    pub prepared: RefCell<Vec<PreparedRow>>,
    pub cursors: RefCell<Vec<CursorRow>>,
    /// What functions have warned of and the client was not told yet.
    pub warnings: RefCell<Vec<Error>>,
    /// This session's advisory locks, once it has taken one.
    pub locks: RefCell<Option<super::advisory::Locks>>,
    /// What the running transaction says to listeners, and listens to.
    pub pending: RefCell<super::notify::Pending>,
    /// What may not run here goes to the primary, also in a transaction that was declared READ ONLY.
    pub forwards: Cell<bool>,
    /// Bytes that a statement may take.
    pub statement_memory: Cell<u64>,
    last_values: RefCell<HashMap<Oid, i64>>,
    last_sequence: Cell<Option<Oid>>,
    /// Where the session's temporary sequences stand.
    pub(super) own_sequences: OwnSequences,
    seed: Cell<u64>,
}

impl<E: Engine> State<E> {
    pub fn new(shared: Arc<Shared<E>>, handle: Arc<Handle>, user: Oid) -> State<E> {
        let mut seed = [0; 8];
        shared.host.random(&mut seed);
        State {
            settings: RefCell::default(),
            authenticated: user,
            session_user: Cell::new(user),
            current_role: Cell::new(user),
            roles: RefCell::default(),
            statement_start: Cell::new(0),
            catalog: RefCell::new(shared.engine.catalog()),
            txn_id: Cell::new(None),
            txn_assigned: Cell::new(false),
            read_only: Cell::new(false),
            isolation: Cell::new(Level::ReadCommitted),
            deferrable: Cell::new(false),
            forward: Cell::new(false),
            goes_on: Cell::new(false),
            seen: Cell::new(Position::ZERO),
            drawn: Cell::new(Position::ZERO),
            numbers: Default::default(),
            told: Cell::new(Position::ZERO),
            prepared: RefCell::default(),
            cursors: RefCell::default(),
            warnings: RefCell::default(),
            locks: RefCell::default(),
            pending: RefCell::default(),
            forwards: Cell::new(false),
            statement_memory: Cell::new(u64::MAX),
            last_values: RefCell::default(),
            last_sequence: Cell::new(None),
            own_sequences: OwnSequences::default(),
            seed: Cell::new(u64::from_le_bytes(seed)),
            shared,
            handle,
        }
    }

    /// Now, in microseconds since 2000.
    pub fn now(&self) -> i64 {
        self.shared.host.unix_micros() - EPOCH
    }

    /// The session depends on this position from now on.
    pub fn saw(&self, p: Position) {
        self.seen.set(self.seen.get().max(p));
    }

    /// A number of a sequence was given that is not lost once this is published.
    fn drew(&self, at: Position) {
        self.drawn.set(self.drawn.get().max(at));
    }

    /// What the end of the transaction has to wait for, with the numbers that it has drawn.
    pub fn with_drawn(&self, held: CommitWait) -> CommitWait {
        match (held, self.drawn.take()) {
            (CommitWait::Published(p), drawn) => CommitWait::Published(p.max(drawn)),
            (held, _) => held,
        }
    }

    /// The session is another's from now on, who has seen nothing.
    pub fn forget_seen(&self) {
        self.seen.set(Position::ZERO);
        self.told.set(Position::ZERO);
    }

    /// What the session has seen, for others.
    pub fn token(&self) -> String {
        Token::of(&self.shared.engine.history(), self.seen.get()).to_string()
    }

    /// Refuses values of settings that only this server can tell to be wrong: a token that is not of its history. A replica asks the
    /// primary about what it does not know itself (a position in the future, a later term) when something is read.
    pub fn check_setting(&self, name: &str, value: Option<&str>) -> Result<()> {
        if !name.eq_ignore_ascii_case("canon.min_token") {
            return Ok(());
        }
        let Some(token) = value.and_then(Token::parse) else {
            return Ok(());
        };
        let engine = &self.shared.engine;
        let history = engine.history();
        if engine.follows() && token.is_of_a_later_term(&history) {
            // It may not have heard of the promotion yet; who reads asks.
            return Ok(());
        }
        if token.is_of_a_later_term(&history) {
            engine.newer_term_hinted();
        }
        token.check(&history)?;
        if !engine.follows() && token.position > engine.cluster_status().current {
            return Err(token.from_the_future());
        }
        Ok(())
    }

    /// 25006. The statement that this error ends goes to the primary instead.
    pub(super) fn at_primary(&self, what: &str) -> Error {
        self.goes_on.set(true);
        super::exit::at_primary_only(what)
    }

    /// 25006 when the transaction may not write.
    fn may_write(&self, what: &str) -> Result<()> {
        if self.forward.get() {
            return Err(self.at_primary(what));
        }
        if !self.read_only.get() {
            return Ok(());
        }
        Err(read_only(what))
    }

    /// What the transaction is that runs, where that is not what new ones will be.
    fn transaction_mode(&self, name: &str) -> Option<String> {
        let on = |on: bool| Some(if on { "on" } else { "off" }.to_owned());
        match name {
            "transaction_isolation" => Some(self.isolation.get().name().to_owned()),
            "transaction_read_only" => on(self.read_only.get() && !self.forward.get()),
            "transaction_deferrable" => on(self.deferrable.get()),
            _ => None,
        }
    }

    /// `set_config` of what a transaction is: too late when it would change it, since the call is a query.
    fn keep_mode(&self, name: &str, value: &str) -> Result<String> {
        let now = match self.transaction_mode(name) {
            Some(m) => m,
            None => self.settings.borrow().show(name).unwrap_or_default(),
        };
        let same = match (bool_of(value), bool_of(&now)) {
            (Some(a), Some(b)) => a == b,
            _ => value.eq_ignore_ascii_case(&now),
        };
        if same {
            return Ok(now);
        }
        Err(Error::new(
            SqlState::ACTIVE_SQL_TRANSACTION,
            format!("\"{name}\" must be set before any query"),
        ))
    }

    pub fn schema(&self) -> Arc<Schema> {
        self.catalog.borrow().schema.clone()
    }

    pub fn role_name(&self, id: Oid) -> String {
        match self.schema().role(id) {
            Some(r) => r.name.clone(),
            None => format!("unknown (OID={id})"),
        }
    }

    pub fn is_superuser(&self) -> bool {
        crate::ddl::privileges::is_superuser(&self.schema(), self.current_role.get())
    }

    /// The schemas that names are searched in: the setting with `$user` replaced.
    pub fn search_path(&self) -> Vec<String> {
        let path = self.settings.borrow().hot.search_path.clone();
        path.iter()
            .map(|n| match n.as_str() {
                "$user" => self.role_name(self.current_role.get()),
                n => n.to_owned(),
            })
            .collect()
    }

    /// Forgets what `DISCARD SEQUENCES` forgets.
    pub fn discard_sequences(&self) {
        self.last_values.borrow_mut().clear();
        self.last_sequence.set(None);
    }

    /// What `currval` and `lastval` give, for another node.
    pub fn sequence_bytes(&self) -> Vec<u8> {
        let mut all: Vec<_> = self.last_values.borrow().clone().into_iter().collect();
        all.sort_unstable();
        let mut b = Vec::with_capacity(4 + 12 * all.len());
        b.extend_from_slice(&self.last_sequence.get().unwrap_or(0).to_le_bytes());
        for (id, v) in all {
            b.extend_from_slice(&id.to_le_bytes());
            b.extend_from_slice(&v.to_le_bytes());
        }
        b
    }

    /// The opposite. 08P01 when it is malformed.
    pub fn take_sequences(&self, b: &[u8]) -> Result<()> {
        let malformed = super::forward::malformed;
        let (last, rest) = b.split_first_chunk().ok_or_else(malformed)?;
        let (all, []) = rest.as_chunks::<12>() else {
            return Err(malformed());
        };
        let all = all.iter().map(|c| {
            let (id, v) = c.split_at(4);
            let id = u32::from_le_bytes(id.try_into().expect("four bytes"));
            (id, i64::from_le_bytes(v.try_into().expect("eight bytes")))
        });
        *self.last_values.borrow_mut() = all.collect();
        let last = u32::from_le_bytes(*last);
        self.last_sequence.set((last != 0).then_some(last));
        Ok(())
    }

    fn sequence(&self, id: Oid) -> Result<Arc<SequenceDef>> {
        match self.catalog.borrow().schema.relation(id) {
            Some(Relation::Sequence(s)) => Ok(s.clone()),
            _ => Err(Error::new(
                SqlState::UNDEFINED_TABLE,
                format!("sequence with OID {id} does not exist"),
            )),
        }
    }

    /// Whether it is a temporary sequence.
    fn is_own(&self, def: &SequenceDef) -> bool {
        self.schema().temporary() == Some(def.namespace)
    }

    /// Temporary sequences may be drawn from and set where the session may not write.
    fn may_move(&self, sequence: Oid, what: &str) -> Result<()> {
        let temporary = self.schema().temporary().is_some();
        let own = temporary && self.sequence(sequence).is_ok_and(|d| self.is_own(&d));
        match own {
            true => Ok(()),
            false => self.may_write(what),
        }
    }

    /// The same of numbers, which a site gives itself.
    fn may_draw(&self, sequence: Oid) -> Result<()> {
        match self.numbers.here.get() {
            true => Ok(()),
            false => self.may_move(sequence, "nextval()"),
        }
    }

    /// The next number of a sequence that is not temporary.
    fn draw(&self, def: &SequenceDef) -> Result<i64> {
        let drawing = &self.numbers;
        loop {
            let numbers = match self.shared.engine.nextval(def)? {
                Drawn::Number(n, at) => {
                    self.drew(at);
                    drawing.may_run_again.set(false);
                    if drawing.here.get() && !drawing.used.borrow().contains(&def.id) {
                        drawing.used.borrow_mut().push(def.id);
                    }
                    return Ok(n);
                }
                Drawn::Coming(numbers) => numbers,
            };
            if drawing.may_run_again.take() {
                *drawing.awaited.borrow_mut() = Some(numbers);
                return Err(Error::internal("a statement waits for numbers"));
            }
            self.shared.host.aside();
            self.handle.begin_wait(0, Waits::Numbers);
            let came = {
                let interrupted = pin!(self.handle.interruption());
                match super::advisory::wait_here(select(numbers, interrupted)) {
                    Either::Left((came, _)) => Some(came),
                    Either::Right(_) => None,
                }
            };
            self.handle.end_wait();
            match (came, self.handle.interrupted()) {
                (Some(came), _) => came?,
                (None, Some(why)) => return Err(super::run::interruption(why)),
                (None, None) => {}
            }
        }
    }

    /// 42501 unless the current role holds one of these on the sequence.
    fn may_use(&self, sequence: Oid, one_of: u32) -> Result<()> {
        let (schema, role) = (self.schema(), self.current_role.get());
        match schema.relation(sequence) {
            Some(r) if privileges::held(&schema, role, r) & one_of == 0 => {
                privileges::check_relation(&schema, role, r, one_of)
            }
            _ => Ok(()),
        }
    }

    fn next_random(&self) -> u64 {
        let s = self.seed.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.seed.set(s);
        let mut z = s;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

impl<E: Engine> State<E> {
    /// An error when the statement was told to end.
    fn check_cancelled(&self) -> Result<()> {
        let why = self.handle.interrupted();
        why.map_or(Ok(()), |why| Err(super::run::interruption(why)))
    }

    /// For what waits on this thread, which serves nobody else meanwhile; it can be cancelled.
    pub(super) fn blocking<T>(
        &self,
        wait: impl FnOnce(CheckCancelled<'_>) -> Result<T>,
    ) -> Result<T> {
        self.shared.host.aside();
        wait(&|| self.check_cancelled())
    }
}

impl<E: Engine> Shared<E> {
    /// What a session waits for; `seen`: as its activity tells it.
    pub fn waits_of(&self, session: &Handle, seen: Option<Waits>) -> Option<Waits> {
        seen.or_else(|| self.commit_waits(session.waiting_commit()?))
    }

    /// What a commit at this position waits for.
    fn commit_waits(&self, position: u64) -> Option<Waits> {
        let engine = &self.engine;
        if position != Handle::ROOM && engine.cluster_status().flushed.as_u64() >= position {
            return Some(Waits::Replicas);
        }
        match engine.is_disk_full() {
            true => Some(Waits::FullDisk),
            false => (position != Handle::ROOM).then_some(Waits::Log),
        }
    }
}

impl<E: Engine> SessionContext for State<E> {
    fn statement_memory(&self) -> usize {
        usize::try_from(self.statement_memory.get()).unwrap_or(usize::MAX)
    }

    fn statement_timestamp(&self) -> i64 {
        self.statement_start.get()
    }

    fn clock_timestamp(&self) -> i64 {
        self.now()
    }

    fn current_user(&self) -> String {
        self.role_name(self.current_role.get())
    }

    fn session_user(&self) -> String {
        self.role_name(self.session_user.get())
    }

    fn database(&self) -> String {
        self.shared.database.clone()
    }

    fn schemas(&self, implicit: bool) -> Vec<String> {
        let schema = self.schema();
        let role = self.current_role.get();
        let path = privileges::usable_path(&schema, role, &self.search_path());
        let name = |id| schema.namespace(id).map(|n| n.name.clone());
        if implicit {
            let all = crate::catalog::namespaces(&schema, &path);
            return all.filter_map(name).collect();
        }
        let named = path.iter().filter_map(|n| schema.namespace_named(n));
        named.map(|n| n.name.clone()).collect()
    }

    fn backend_pid(&self) -> i32 {
        self.handle.pid
    }

    fn setting(&self, name: &str) -> Option<String> {
        if name.eq_ignore_ascii_case("canon.commit_token") {
            return Some(self.token());
        }
        match self.transaction_mode(&name.to_ascii_lowercase()) {
            None => self.settings.borrow().show(name),
            mode => mode,
        }
    }

    fn set_setting(&self, name: &str, value: &str, local: bool) -> Result<String> {
        let span = if local { Span::Local } else { Span::Session };
        let superuser = self.is_superuser();
        self.check_setting(name, Some(value))?;
        let small = name.to_ascii_lowercase();
        match small.as_str() {
            "role" if value != "none" => self.may_act_as(value)?,
            "session_authorization" => self.may_be(value)?,
            "transaction_isolation" | "transaction_read_only" | "transaction_deferrable" => {
                return self.keep_mode(&small, value);
            }
            _ => {}
        }
        let mut s = self.settings.borrow_mut();
        if small == "session_authorization" {
            s.force("role", "none", span);
        }
        let at = s.set(name, Some(value), span, superuser)?;
        let name = s.name(at).to_owned();
        Ok(s.show(&name).unwrap_or_default())
    }

    fn random(&self) -> f64 {
        (self.next_random() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn set_seed(&self, seed: f64) {
        self.seed.set(seed.to_bits());
    }

    fn random_bytes(&self, out: &mut [u8]) {
        self.shared.host.random(out);
    }

    fn nextval(&self, sequence: Oid) -> Result<i64> {
        self.may_draw(sequence)?;
        self.may_use(sequence, privilege::USAGE | privilege::UPDATE)?;
        self.next_identity(sequence)
    }

    fn next_identity(&self, sequence: Oid) -> Result<i64> {
        self.may_draw(sequence)?;
        let def = self.sequence(sequence)?;
        let v = match self.is_own(&def) {
            true => self.own_sequences.next(&def)?,
            false => self.draw(&def)?,
        };
        self.last_values.borrow_mut().insert(sequence, v);
        self.last_sequence.set(Some(sequence));
        Ok(v)
    }

    fn currval(&self, sequence: Oid) -> Result<i64> {
        self.may_use(sequence, privilege::USAGE | privilege::SELECT)?;
        let known = self.last_values.borrow().get(&sequence).copied();
        known.ok_or_else(|| {
            let schema = self.schema();
            let name = schema.relation(sequence).map_or("?", |r| r.name());
            Error::new(
                SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("currval of sequence \"{name}\" is not yet defined in this session"),
            )
        })
    }

    fn lastval(&self) -> Result<i64> {
        match self.last_sequence.get() {
            Some(s) if self.schema().relation(s).is_some() => self.currval(s),
            _ => Err(Error::new(
                SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                "lastval is not yet defined in this session",
            )),
        }
    }

    fn setval(&self, sequence: Oid, value: i64, is_called: bool) -> Result<i64> {
        self.may_move(sequence, "setval()")?;
        let def = self.sequence(sequence)?;
        self.may_use(sequence, privilege::UPDATE)?;
        match self.is_own(&def) {
            true => self.own_sequences.set(&def, value, is_called)?,
            false => {
                let at = self.shared.engine.setval(&def, value, is_called)?;
                self.drew(at);
            }
        }
        if is_called {
            self.last_values.borrow_mut().insert(sequence, value);
            self.last_sequence.set(Some(sequence));
        }
        Ok(value)
    }

    fn sleep(&self, seconds: f64) -> Result<()> {
        const STEP: f64 = 0.01;
        // Another thread for the core costs a tenth of it.
        const LONG: f64 = 0.001;
        let mut left = seconds.clamp(0.0, 1e9);
        if left >= LONG {
            self.shared.host.aside();
        }
        while left > 0.0 {
            self.check_cancelled()?;
            self.shared
                .host
                .sleep(Duration::from_secs_f64(left.min(STEP)));
            left -= STEP;
        }
        Ok(())
    }

    fn transaction_id(&self, assign: bool) -> Option<i64> {
        if assign {
            self.txn_assigned.set(true);
        }
        let id = self.txn_id.get().map(|id| id as i64);
        id.filter(|_| self.txn_assigned.get())
    }

    fn server_start(&self) -> i64 {
        self.shared.started
    }

    fn in_recovery(&self) -> bool {
        self.shared.engine.follows()
    }

    fn cluster_status(&self) -> ClusterStatus {
        self.shared.engine.cluster_status()
    }

    fn signal(&self, pid: i32, end: bool, wait: Duration) -> Result<bool> {
        self.signal_session(pid, end, wait)
    }

    fn advisory_lock(&self, lock: txn::AdvisoryLock, wait: bool) -> Result<bool> {
        self.take_advisory(lock, wait)
    }

    fn advisory_unlock(&self, key: txn::AdvisoryKey, shared: bool) -> Result<bool> {
        self.give_advisory(key, shared)
    }

    fn advisory_unlock_all(&self) -> Result<()> {
        self.give_all_advisory();
        Ok(())
    }

    fn notify(&self, channel: &str, payload: &str) -> Result<()> {
        self.say(channel, payload)
    }

    fn listening_channels(&self) -> Vec<String> {
        self.listening()
    }

    fn notification_usage(&self) -> f64 {
        self.shared.engine.notifications().usage()
    }

    fn blocking_pids(&self, pid: i32) -> Result<Vec<i32>> {
        Ok(self.pids_before(pid))
    }

    fn unseal(&self, forget: bool) -> Result<String> {
        if !self.is_superuser() {
            return Err(Error::new(
                SqlState::INSUFFICIENT_PRIVILEGE,
                "permission denied for function canon_unseal",
            ));
        }
        self.blocking(|check_cancelled| self.shared.engine.unseal(forget, check_cancelled))
    }

    fn change_membership(&self, change: MembershipChange) -> Result<String> {
        if !self.is_superuser() {
            return Err(Error::new(
                SqlState::INSUFFICIENT_PRIVILEGE,
                "permission denied: only a superuser changes the members of the cluster",
            ));
        }
        let engine = &self.shared.engine;
        self.blocking(|check_cancelled| engine.change_membership(change.clone(), check_cancelled))
    }

    fn promote(&self, force: bool, wait: Duration) -> Result<Option<String>> {
        if !self.is_superuser() {
            return Err(Error::new(
                SqlState::INSUFFICIENT_PRIVILEGE,
                "permission denied for function pg_promote",
            ));
        }
        self.blocking(|check_cancelled| self.shared.engine.promote(force, wait, check_cancelled))
    }

    fn transaction_status(&self, token: &str) -> Result<&'static str> {
        self.may_write("canon_txn_status()")?;
        let engine = &self.shared.engine;
        if let Some(commit) = Token::parse(token) {
            let outcome = commit.outcome(&engine.history(), engine.published_position());
            return outcome.map(said);
        }
        let parts = token.split_once('-');
        let parts = parts.and_then(|(a, n)| Some((a.parse().ok()?, n.parse().ok()?)));
        let (after, number) = parts.filter(|p| p.1 != 0).ok_or_else(|| {
            Error::new(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("invalid transaction token: \"{token}\""),
            )
        })?;
        Ok(said(engine.outcome(number, Position::from_u64(after))))
    }

    fn catalog_function(
        &self,
        name: &'static str,
        types: &[Type],
        args: &[Value],
    ) -> Result<Value> {
        super::planner_api::catalog_function(self, name, types, args)
    }
}

/// What canon_txn_status says.
fn said(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Committed => "committed",
        Outcome::Aborted => "aborted",
        Outcome::Running => "in progress",
        Outcome::Unknown => "unknown",
    }
}

impl<E: Engine> SessionFacts for State<E> {
    fn counts_since(&self) -> i64 {
        self.shared.started
    }

    fn database(&self) -> String {
        self.shared.database.clone()
    }

    fn current_role(&self) -> Oid {
        self.current_role.get()
    }

    fn search_path(&self) -> Vec<String> {
        State::search_path(self)
    }

    fn unqualified_names(&self, schema: &Schema, view: &ViewDef) -> Vec<(Location, Oid)> {
        crate::rules::unqualified_names(schema, view)
    }

    fn writable_columns(&self, schema: &Schema, view: &ViewDef) -> Option<Vec<bool>> {
        crate::rules::writable_columns(schema, view)
    }

    fn settings(&self) -> Vec<SettingRow> {
        let s = self.settings.borrow();
        s.all()
            .enumerate()
            .map(|(i, (name, value, _))| {
                let value = self.transaction_mode(name).unwrap_or(value);
                setting_row(SETTINGS.get(i), name, value, s.reset_value(i))
            })
            .collect()
    }

    fn activity(&self) -> Vec<ActivityRow> {
        self.shared
            .sessions
            .list()
            .iter()
            .map(|h| {
                let a = h.activity.lock().clone();
                let waits = self.shared.waits_of(h, a.waits).map(Waits::event);
                ActivityRow {
                    pid: h.pid,
                    user: a.user,
                    application_name: a.application_name,
                    client_addr: a.client_addr,
                    client_port: a.client_port,
                    protection: a.protection,
                    backend_start: a.backend_start,
                    xact_start: a.xact_start,
                    query_start: a.query_start,
                    state_change: a.state_change,
                    wait_event_type: waits.map(|w| w.0.into()),
                    wait_event: waits.map(|w| w.1.into()),
                    state: a.state,
                    query: a.query.to_string(),
                    backend_type: "client backend",
                    memory: h.account.used() as i64,
                }
            })
            .collect()
    }

    fn cluster_status(&self) -> ClusterStatus {
        self.shared.engine.cluster_status()
    }

    fn prepared_statements(&self) -> Vec<PreparedRow> {
        self.prepared.borrow().clone()
    }

    fn relation_bytes(&self, relation: Oid) -> Option<u64> {
        (relation == 0).then(|| self.shared.engine.bytes())
    }

    fn locks(&self) -> Vec<crate::catalog::LockRow> {
        self.lock_rows()
    }

    fn split_values(&self) -> Vec<txn::SplitValue> {
        self.shared.engine.split_values()
    }

    fn hot_rows(&self) -> Vec<txn::ContendedRow> {
        let races = self.shared.engine.races();
        races.map_or_else(Vec::new, txn::Races::rows)
    }

    fn conflicts(&self) -> Vec<txn::Race> {
        let races = self.shared.engine.races();
        races.map_or_else(Vec::new, txn::Races::newest)
    }

    fn cursors(&self) -> Vec<CursorRow> {
        self.cursors.borrow().clone()
    }

    fn database_stats(&self) -> DatabaseStats {
        let c = &self.shared.counters;
        let n = |a: &std::sync::atomic::AtomicU64| a.load(Ordering::Relaxed) as i64;
        DatabaseStats {
            backends: self.shared.sessions.len() as i32,
            commits: c.commits.get() as i64,
            rollbacks: n(&c.rollbacks),
            conflicts: n(&c.serialization_failures),
            deadlocks: n(&c.deadlocks),
        }
    }

    fn sequence_state(&self, sequence: Oid) -> Option<(i64, bool)> {
        let def = self.sequence(sequence).ok()?;
        Some(match self.is_own(&def) {
            true => self.own_sequences.look(&def),
            false => self.shared.engine.sequence_state(&def),
        })
    }
}

fn setting_row(
    s: Option<&super::settings::Setting>,
    name: &str,
    value: String,
    reset: &str,
) -> SettingRow {
    let mut row = SettingRow {
        name: name.to_owned(),
        category: "Customized Options".into(),
        context: "user",
        vartype: "string",
        source: if value == reset { "default" } else { "session" },
        reset_val: Some(reset.to_owned()),
        setting: value,
        ..SettingRow::default()
    };
    let Some(s) = s else { return row };
    row.category = if s.name.starts_with("canon.") {
        "Canon"
    } else {
        "Client Connection Defaults"
    }
    .into();
    row.short_desc = s.description.into();
    row.boot_val = Some(s.default.into());
    row.context = match s.scope {
        Scope::User => "user",
        Scope::Superuser => "superuser",
        Scope::Internal => "internal",
        Scope::Postmaster => "postmaster",
    };
    match s.kind {
        Kind::Bool => row.vartype = "bool",
        Kind::Int(lo, hi, unit) => {
            row.vartype = "integer";
            (row.min_val, row.max_val) = (Some(lo.to_string()), Some(hi.to_string()));
            row.unit = match unit {
                Unit::Milliseconds => Some("ms".into()),
                Unit::Kilobytes => Some("kB".into()),
                Unit::None => None,
            };
            // pg_settings shows the bare number in the unit.
            row.setting = super::settings::bare(&row.setting, unit);
            row.reset_val = row.reset_val.map(|r| super::settings::bare(&r, unit));
        }
        Kind::Real(lo, hi) => {
            row.vartype = "real";
            (row.min_val, row.max_val) = (Some(lo.to_string()), Some(hi.to_string()));
        }
        Kind::RealMilliseconds(lo, hi) => {
            row.vartype = "real";
            (row.min_val, row.max_val) = (Some(lo.to_string()), Some(hi.to_string()));
            row.unit = Some("ms".into());
            row.setting = super::settings::bare(&row.setting, Unit::Milliseconds);
            row.reset_val = row
                .reset_val
                .map(|r| super::settings::bare(&r, Unit::Milliseconds));
        }
        Kind::Enum(names) => {
            row.vartype = "enum";
            row.enumvals = names.iter().map(|n| (*n).to_owned()).collect();
        }
        Kind::Text => {}
    }
    row
}
