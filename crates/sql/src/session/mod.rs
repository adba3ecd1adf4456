//! A client's session: statements in, replies out.
//!
//! ```text
//!            simple.rs    a text of statements, run one after another
//! Client  -> extended.rs  parse, bind, describe, execute, sync
//!            cursor.rs    DECLARE, FETCH            copy/  COPY
//! library -> embedded.rs  one statement inside a transaction of its own
//!                 |
//!            run.rs       the statement loop: run, wait for a lock, run again, retry, commit
//!            block.rs     BEGIN … COMMIT, savepoints, implicit blocks, what a reply waits for
//!                 |
//!            Engine       transactions (crate `txn`), positions
//! ```
//!
//! A session is one task's: all calls take it by `&mut`. It waits (for a lock, for *published*, for the client to read) only
//! in `async` functions; between waits everything is synchronous. It names no runtime: what it needs of one is in [`Client`].
//! What sessions of one server share is [`Shared`].
//!
//! Left out on purpose: two-phase commit; 0A000.

mod advisory;
mod block;
mod class;
mod client;
mod constraints;
mod copy;
mod cursor;
mod embedded;
mod escapes;
mod exit;
mod extended;
mod forward;
mod fresh;
mod handle;
mod level;
mod literals;
mod notify;
mod numbers;
mod parse;
mod planner_api;
mod plans;
mod prepared;
mod refused;
mod roles;
mod row;
mod run;
mod settings;
mod signal;
mod simple;
mod state;
mod temp;
mod token;
mod told;
mod turns;
mod utility;
mod variables;
mod wait_for;

pub use crate::catalog::{ClientCertificate, Protection};
pub use client::{Client, Column, CopyInput, Format, Severity, TxnStatus};
pub use embedded::{Answer, Embedded};
pub use exit::Exit;
pub use extended::Next;
pub use forward::Known;
pub use handle::{Activity, ClientSide, Handle, Reason, Sessions, Waits};
pub use plans::Plans;
pub use row::Formats;
pub use run::interruption;
pub use settings::SERVER_VERSION;
pub use token::Token;

use crate::engine::Engine;
use crate::types::OutputSettings;
use base::schema::Schema;
use base::stored_settings::For;
use base::{Error, Oid, Result, SqlState, Work};
use block::Block;
use extended::Portal;
use prepared::Statement;
use state::State;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Time and chance, which this crate takes from outside.
pub trait Host: Send + Sync {
    /// Microseconds since 1970.
    fn unix_micros(&self) -> i64;
    /// Milliseconds since some moment; never falls, never 0.
    fn monotonic_millis(&self) -> u64;
    /// Bytes that cannot be guessed.
    fn random(&self, out: &mut [u8]);
    /// Blocks the thread.
    fn sleep(&self, time: Duration);
    /// The thread is about to block for long: others that it serves go on elsewhere.
    fn aside(&self) {}
    /// To be kept for auditors.
    fn audit(&self, _deed: &Deed<'_>) {}
}

/// A change of schema, roles or rights.
pub struct Deed<'a> {
    /// Names of the role that did it and of the one that the session is of.
    pub role: &'a str,
    pub session_user: &'a str,
    pub pid: i32,
    /// The command's tag; empty when it was refused.
    pub tag: &'a str,
    /// The text as the client sent it.
    pub statement: &'a str,
    /// Why it was not done.
    pub refused: Option<&'a Error>,
}

/// A counter that every statement raises: spread over cache lines by thread.
#[derive(Default)]
pub struct Counter([Line; 8]);

#[repr(align(64))]
#[derive(Default)]
struct Line(AtomicU64);

impl Counter {
    #[inline]
    fn add(&self) {
        thread_local! {
            static MINE: usize = {
                static NEXT: AtomicUsize = AtomicUsize::new(0);
                NEXT.fetch_add(1, Ordering::Relaxed) % 8
            };
        }
        MINE.with(|m| self.0[*m].0.fetch_add(1, Ordering::Relaxed));
    }

    pub fn get(&self) -> u64 {
        self.0.iter().map(|l| l.0.load(Ordering::Relaxed)).sum()
    }
}

/// Counted since the start.
#[derive(Default)]
pub struct Counters {
    pub statements: Counter,
    pub commits: Counter,
    pub rollbacks: AtomicU64,
    /// Errors 40001 given to clients.
    pub serialization_failures: AtomicU64,
    /// Errors 40P01 given to clients.
    pub deadlocks: AtomicU64,
    /// Statements that waited for a row lock, and how long in all.
    pub lock_waits: AtomicU64,
    pub lock_wait_micros: AtomicU64,
    /// Runs of a statement on a newer snapshot inside its transaction.
    pub restarts: AtomicU64,
    /// Whole transactions of one statement that the server ran again.
    pub retries: AtomicU64,
    /// Replies that waited for *published*, and how long in all.
    pub commit_waits: AtomicU64,
    pub commit_wait_micros: AtomicU64,
    /// Messages of sessions that went on to the primary.
    pub forwarded: AtomicU64,
    /// Transaction blocks that began at a replica and went on at its primary.
    pub forwarded_blocks: AtomicU64,
    pub plans_made: AtomicU64,
    pub plans_found: AtomicU64,
}

/// What the sessions of a server share.
pub struct Shared<E: Engine> {
    pub engine: Arc<E>,
    pub host: Arc<dyn Host>,
    pub sessions: Sessions,
    pub plans: Plans,
    pub counters: Counters,
    /// One delivers notifications at a time, and begins to listen while nobody does.
    delivery: parking_lot::Mutex<()>,
    /// For transactions that are tried again.
    turns: Arc<turns::Turns>,
    /// The database's name: there is one.
    pub database: String,
    /// When the server started, microseconds since 2000.
    pub started: i64,
    pub max_connections: u32,
    /// Settings of the server that are not the defaults: (name, value).
    pub defaults: Vec<(String, String)>,
    /// Settings that show what the server was started with, and that no session sets: (name, value).
    pub facts: Vec<(&'static str, String)>,
}

impl<E: Engine> Shared<E> {
    /// What a server with this engine shares. `database` names the one database.
    pub fn new(engine: Arc<E>, host: Arc<dyn Host>, database: &str) -> Shared<E> {
        Shared {
            started: host.unix_micros() - state::EPOCH,
            engine,
            host,
            sessions: Sessions::default(),
            plans: Plans::new(4096),
            counters: Counters::default(),
            delivery: parking_lot::Mutex::default(),
            turns: turns::Turns::new(turns::places()),
            database: database.to_owned(),
            max_connections: 100,
            defaults: Vec::new(),
            facts: Vec::new(),
        }
    }

    /// The time, as a `timestamptz` has it.
    pub fn now(&self) -> i64 {
        self.host.unix_micros() - state::EPOCH
    }
}

/// Checks defaults of settings (name, value), as a server may give them to its sessions.
pub fn check_settings(defaults: &[(String, String)]) -> Result<()> {
    let mut s = settings::Settings::default();
    for (name, value) in defaults {
        s.set_at_start(name, value, true)?;
    }
    Ok(())
}

/// One client's session.
pub struct Session<E: Engine> {
    shared: Arc<Shared<E>>,
    handle: Arc<Handle>,
    state: State<E>,
    block: Block,
    /// The session's temporary tables, while no transaction has them.
    temp: txn::TempSpace,
    /// Where its transactions note the tables that they use, once one has.
    uses: Option<Arc<txn::Uses>>,
    statements: HashMap<Box<str>, Arc<Statement>, foldhash::fast::RandomState>,
    unnamed: Option<Arc<Statement>>,
    /// Texts of `literals` that do not plan.
    not_normal: HashSet<String>,
    portals: HashMap<Box<str>, Portal>,
    unnamed_portal: Option<Portal>,
    forward: forward::Forward,
    /// Settings as the running statement sees them: a copy, so that it may change them.
    output: OutputSettings,
    /// What plans depend on beside text and schema, for the key of the cache.
    env: Arc<str>,
    path: Arc<[String]>,
    /// The settings or the role changed: `output`, `env` and `path` are to be made anew.
    stale: bool,
    scratch: String,
    /// Bytes that a statement may take.
    memory: u64,
    reading: fresh::Reading,
    /// Transaction blocks that are still to take turns, since one was told to try again.
    lost: u8,
    turn: Option<turns::Turn>,
    /// What has come from the client is being read or planned: it can be cancelled already.
    begun: bool,
}

/// Who is there, as the server knows.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    pub address: Option<String>,
    pub port: Option<i32>,
    /// None: the connection is plain.
    pub protection: Option<Protection>,
}

/// The settings that a role's session begins with, below what its client asks for.
fn begin_with(
    s: &mut settings::Settings,
    configured: &[(String, String)],
    schema: &Schema,
    role: Oid,
) -> Result<()> {
    // The statement that stored a value has checked it. An older build may have: a value that means nothing any more is passed over.
    let stored = |s: &mut settings::Settings, of: For| {
        for (name, value) in schema.stored(of) {
            let _ = s.set_at_start(name, value, true);
        }
    };
    stored(s, For::Made);
    for (name, value) in configured {
        s.set_at_start(name, value, true)?;
    }
    for of in [For::Database, For::Role(role), For::RoleInDatabase(role)] {
        stored(s, of);
    }
    Ok(())
}

impl<E: Engine> Session<E> {
    /// A session of this user, who has been let in. `parameters` are those of the start-up message: settings, and
    /// `options` with `-c name=value`.
    pub fn start(
        shared: &Arc<Shared<E>>,
        user: &str,
        handle: Arc<Handle>,
        peer: Peer,
        parameters: &[(String, String)],
    ) -> Result<Session<E>> {
        let catalog = shared.engine.catalog();
        let role = catalog
            .schema
            .role_named(user)
            .ok_or_else(|| {
                Error::new(
                    SqlState::INVALID_AUTHORIZATION,
                    format!("role \"{user}\" does not exist"),
                )
            })?
            .clone();
        let state = State::new(shared.clone(), handle.clone(), role.id);
        state.roles.borrow_mut().mean(user, role.id);
        let mut roles = Vec::new();
        {
            let mut s = state.settings.borrow_mut();
            s.max_connections = shared.max_connections;
            s.set_place(shared.engine.follows(), shared.engine.runs(Work::Rows));
            begin_with(&mut s, &shared.defaults, &catalog.schema, role.id)?;
            for (name, value) in &shared.facts {
                s.initialise(name, value);
            }
            s.initialise("session_authorization", user);
            s.initialise("is_superuser", if role.superuser { "on" } else { "off" });
            let mut set = |name: &str, value: &str| match roles::is_of_role(name) {
                true => {
                    roles.push((name.to_owned(), value.to_owned()));
                    Ok(())
                }
                false => s.set_at_start(name, value, role.superuser),
            };
            for (name, value) in parameters {
                match name.as_str() {
                    "user" | "database" | "replication" => {}
                    _ if name.starts_with("_pq_.") => {}
                    "options" => {
                        for (n, v) in variables::options(value)? {
                            set(&n, &v)?;
                        }
                    }
                    n => set(n, value)?,
                }
            }
        }
        let token = state.settings.borrow().show("canon.min_token");
        state.check_setting("canon.min_token", token.as_deref())?;
        let now = state.now();
        {
            let mut a = handle.activity.lock();
            a.user = role.id;
            a.client_addr = peer.address;
            a.client_port = peer.port;
            a.protection = peer.protection.map(Arc::new);
            a.backend_start = now;
            a.state_change = Some(now);
            a.state = "idle";
            a.application_name = state
                .settings
                .borrow()
                .show("application_name")
                .unwrap_or_default();
        }
        let mut session = Session {
            shared: shared.clone(),
            handle,
            state,
            block: Block::default(),
            temp: txn::TempSpace::default(),
            uses: None,
            statements: HashMap::default(),
            unnamed: None,
            not_normal: HashSet::new(),
            portals: HashMap::new(),
            unnamed_portal: None,
            forward: forward::Forward::default(),
            output: OutputSettings::default(),
            env: "".into(),
            path: Arc::new([]),
            stale: true,
            scratch: String::new(),
            memory: u64::MAX,
            reading: fresh::Reading::default(),
            lost: 0,
            turn: None,
            begun: false,
        };
        session.begin_as(&roles)?;
        session.refresh();
        Ok(session)
    }

    /// What others see of this session.
    pub fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    /// What ReadyForQuery says.
    pub fn status(&self) -> TxnStatus {
        self.block.status()
    }

    /// The settings that a client is told of at the start.
    pub fn reported(&mut self) -> Vec<(&'static str, String)> {
        self.state.settings.get_mut().reported()
    }

    /// How long the client may be silent now, and with what error it is disconnected then.
    pub fn idle_limit(&mut self) -> Option<(Duration, Error)> {
        let hot = &self.state.settings.get_mut().hot;
        if self.block.status() == TxnStatus::Idle {
            let e = || {
                Error::new(
                    SqlState(*b"57P05"),
                    "terminating connection due to idle-session timeout",
                )
            };
            return hot.idle_session.map(|d| (d, e()));
        }
        let e = || {
            Error::new(
                SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
                "terminating connection due to idle-in-transaction timeout",
            )
        };
        hot.idle_in_transaction.map(|d| (d, e()))
    }

    /// Tells the client of settings that changed.
    fn report<C: Client>(&mut self, c: &mut C) {
        self.tell_warnings(c);
        let engine = &self.shared.engine;
        let (standby, writes) = (engine.follows(), engine.runs(Work::Rows));
        self.state.settings.get_mut().set_place(standby, writes);
        if self.state.settings.get_mut().hot.report_token {
            let seen = self.state.seen.get();
            if self.state.told.replace(seen) != seen {
                c.parameter_status("canon.commit_token", &self.state.token());
            }
        }
        for (name, value) in self.state.settings.get_mut().take_changes() {
            c.parameter_status(&name, &value);
        }
    }

    /// Makes the copies of settings anew that statements and plans are run with.
    fn refresh(&mut self) {
        self.stale = false;
        let path: Vec<String> = self.state.search_path();
        let s = self.state.settings.get_mut();
        let (now, catalog) = (self.output.now, self.output.catalog.take());
        self.output = s.output.clone();
        self.output.now = now;
        self.output.catalog = catalog;
        let show = |n: &str| s.show(n).unwrap_or_default();
        self.env = format!(
            "{}\0{}\0{}\0{}\0{}\0{}\0{}\0{}",
            path.join("\0"),
            // Names may mean temporary tables of this session, in this state of theirs.
            self.temp.generation(),
            // Which schemas of the path are searched depends on the role.
            self.state.current_role.get(),
            show("TimeZone"),
            show("DateStyle"),
            show("IntervalStyle"),
            show("extra_float_digits"),
            show("bytea_output"),
        )
        .into();
        self.path = path.into();
        let superuser = self.state.is_superuser();
        let hot = &self.state.settings.get_mut().hot;
        self.memory = match superuser {
            true => hot.statement_memory,
            false => hot.statement_memory.min(hot.statement_memory_ceiling),
        };
        self.state.statement_memory.set(self.memory);
        self.handle.account.set_privileged(superuser);
    }
}

impl<E: Engine> Drop for Session<E> {
    fn drop(&mut self) {
        // A connection that breaks in the middle of a transaction rolls it back.
        if let Some(txn) = self.block.txn.take() {
            self.shared.engine.rollback(txn);
        }
        self.shared.sessions.remove(self.handle.pid);
    }
}
