//! Settings of a session: `SET`, `SET LOCAL`, `RESET`, `SHOW`, with PostgreSQL's names and transactional behaviour.
//!
//! ```text
//! base value   the default, or what the connection asked for         RESET goes back here
//! session      what SET has set                                       kept by COMMIT, undone by ROLLBACK
//! current      what is in force: session, or a SET LOCAL above it     SET LOCAL ends with the transaction
//! ```
//! Values are kept as the text that SHOW prints. What the machine asks for at every statement ([`Hot`]) is computed when a
//! value changes, not when it is read. Every change inside a transaction block leaves an undo record; savepoints are
//! lengths of that list.

mod carry;
mod kind;
mod own;
mod table;
mod value;
pub use value::{bare, bool_of, milliseconds_of};

pub use carry::{Carried, Change};
pub use kind::{Kind, Scope, Setting, Unit};
pub use table::{SETTINGS, find};

use crate::reading::{Consistency, ReadPolicy};
use crate::types::zone::Zone;
use crate::types::{DateOrder, DateStyle, IntervalStyle, OutputSettings, settings::ByteaOutput};
use base::{Error, Result, SqlState};
use compact_str::CompactString;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use txn::Durability;

use super::client::Severity;
use super::level::Level;
use super::token::Token;

/// What `server_version` says: a PostgreSQL version that clients can parse, then our own.
pub const SERVER_VERSION: &str = concat!("15.0 (Canon ", env!("CARGO_PKG_VERSION"), ")");

/// What is done with a read that waits for longer than it may (`canon.stale_action`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StaleAction {
    Wait,
    Forward,
    Error,
}

/// A size in bytes; 0: it is none.
fn bytes(v: &str) -> u64 {
    value::bytes(v).unwrap_or_default()
}

/// Settings as the machine reads them.
#[derive(Clone)]
pub struct Hot {
    pub isolation: Level,
    pub read_only: bool,
    pub deferrable: bool,
    pub durability: Durability,
    /// What must be visible in anything that is read.
    pub min_token: Option<Token>,
    pub report_token: bool,
    pub consistency: Consistency,
    max_staleness: Duration,
    pub read_policy: ReadPolicy,
    pub read_timeout: Option<Duration>,
    pub stale_action: StaleAction,
    /// All changes are told, not only those that PostgreSQL tells.
    pub report_all: bool,
    /// A replica sends what it may not do to the primary.
    pub forward: bool,
    /// A site runs READ COMMITTED blocks itself.
    pub read_committed_here: bool,
    pub statement_timeout: Option<Duration>,
    /// What runs ends when the client has gone.
    pub needs_client: bool,
    pub lock_timeout: Option<Duration>,
    /// None: a wait looks for deadlocks when it begins.
    pub deadlock_timeout: Option<Duration>,
    pub idle_in_transaction: Option<Duration>,
    pub idle_session: Option<Duration>,
    pub client_min_messages: Severity,
    /// Bytes of a statement, and the most that it may be set to by roles that are not superusers.
    pub statement_memory: u64,
    pub statement_memory_ceiling: u64,
    pub search_path: Arc<[String]>,
}

impl Hot {
    /// What a COMMIT waits for: `synchronous_commit`, raised by the policy that has commits wait for readers.
    pub fn durability(&self) -> Durability {
        match (self.read_policy, self.durability) {
            (ReadPolicy::CommitWait, Durability::On) => Durability::RemoteApply,
            (_, d) => d,
        }
    }
}

/// The settings of one session.
pub struct Settings {
    current: Vec<CompactString>,
    /// Session values of settings that a SET LOCAL covers.
    covered: HashMap<usize, CompactString>,
    base: Vec<CompactString>,
    /// Settings with a dot in their name that are not ours: any name, any value.
    custom: Vec<CompactString>,
    undo: Vec<Undo>,
    /// Settings to tell the client of.
    changed: Vec<usize>,
    pub hot: Hot,
    pub output: OutputSettings,
    pub max_connections: u32,
    /// The server follows another.
    standby: bool,
    /// Writes run at this server.
    writes_here: bool,
}

struct Undo {
    at: usize,
    current: CompactString,
    covered: Option<CompactString>,
}

impl Default for Settings {
    fn default() -> Self {
        let base: Vec<CompactString> = SETTINGS.iter().map(|s| s.default.into()).collect();
        let mut s = Settings {
            current: base.clone(),
            covered: HashMap::new(),
            base,
            custom: Vec::new(),
            undo: Vec::new(),
            changed: Vec::new(),
            hot: Hot {
                isolation: Level::Serializable,
                read_only: false,
                deferrable: false,
                durability: Durability::On,
                min_token: None,
                report_token: false,
                consistency: Consistency::Strong,
                max_staleness: Duration::ZERO,
                read_policy: ReadPolicy::Lease,
                read_timeout: None,
                stale_action: StaleAction::Error,
                report_all: false,
                forward: true,
                read_committed_here: false,
                statement_timeout: None,
                needs_client: false,
                lock_timeout: None,
                deadlock_timeout: None,
                idle_in_transaction: None,
                idle_session: None,
                client_min_messages: Severity::Notice,
                statement_memory: 0,
                statement_memory_ceiling: 0,
                search_path: Arc::from(["$user".to_string(), "public".to_string()]),
            },
            output: OutputSettings::default(),
            max_connections: 0,
            standby: false,
            writes_here: true,
        };
        for i in 0..SETTINGS.len() {
            s.apply(i).expect("defaults are valid");
        }
        s
    }
}

/// Whether a setting survives the transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    Session,
    Local,
}

impl Settings {
    /// The place of a setting; 42704 when there is none.
    pub fn place(&self, name: &str) -> Result<usize> {
        self.known(name).ok_or_else(|| {
            Error::new(
                SqlState::UNDEFINED_OBJECT,
                format!("unrecognized configuration parameter \"{name}\""),
            )
        })
    }

    fn known(&self, name: &str) -> Option<usize> {
        find(name).or_else(|| {
            let i = self
                .custom
                .iter()
                .position(|c| c.eq_ignore_ascii_case(name))?;
            Some(SETTINGS.len() + i)
        })
    }

    fn place_or_custom(&mut self, name: &str) -> Result<usize> {
        match self.known(name) {
            Some(i) => Ok(i),
            None if name.contains('.') && !name.to_ascii_lowercase().starts_with("canon.") => {
                self.custom.push(name.into());
                self.current.push(CompactString::default());
                self.base.push(CompactString::default());
                Ok(self.current.len() - 1)
            }
            None => self.place(name),
        }
    }

    /// The name of the setting at this place.
    pub fn name(&self, at: usize) -> &str {
        match SETTINGS.get(at) {
            Some(s) => s.name,
            None => &self.custom[at - SETTINGS.len()],
        }
    }

    /// What SHOW prints.
    pub fn show(&self, name: &str) -> Option<String> {
        self.known(name).map(|i| self.shown(i))
    }

    fn shown(&self, at: usize) -> String {
        if self.max_connections > 0 && self.name(at) == "max_connections" {
            return self.max_connections.to_string();
        }
        if !self.takes_writes() && self.name(at) == "default_transaction_read_only" {
            return "on".to_owned();
        }
        self.current[at].to_string()
    }

    /// Name, value and description of every setting, in order of name.
    pub fn all(&self) -> impl Iterator<Item = (&str, String, &str)> {
        let described = |i: usize| SETTINGS.get(i).map_or("", |s| s.description);
        (0..self.current.len()).map(move |i| (self.name(i), self.shown(i), described(i)))
    }

    /// The value that RESET goes back to.
    pub fn reset_value(&self, at: usize) -> &str {
        &self.base[at]
    }

    /// `SET name TO value`. `value` `None` means DEFAULT. `in_block`: a change that ROLLBACK undoes.
    pub fn set(
        &mut self,
        name: &str,
        value: Option<&str>,
        span: Span,
        superuser: bool,
    ) -> Result<usize> {
        let at = self.place_or_custom(name)?;
        if let Some(s) = SETTINGS.get(at) {
            allow(s, superuser)?;
        }
        let new = match value {
            None => self.base[at].clone(),
            Some(v) => self.canonical(at, v)?,
        };
        if !superuser && self.name(at) == "canon.statement_memory" {
            let ceiling = self.hot.statement_memory_ceiling;
            if value.is_some() && value::bytes(&new).is_some_and(|b| b > ceiling) {
                let shown = self.show("canon.statement_memory_ceiling");
                return Err(Error::new(
                    SqlState::INSUFFICIENT_PRIVILEGE,
                    "permission denied to set parameter \"canon.statement_memory\" above its ceiling",
                )
                .detail(format!(
                    "canon.statement_memory_ceiling is {}; only superusers may set more.",
                    shown.unwrap_or_default()
                )));
            }
        }
        self.put(at, new, span)?;
        Ok(at)
    }

    /// Sets what is not the user's to set (role, transaction state). Undone by ROLLBACK like the rest.
    pub fn force(&mut self, name: &str, value: &str, span: Span) {
        let at = find(name).expect("a setting of ours");
        self.put(at, value.into(), span)
            .expect("our own values are valid");
    }

    /// What the connection asked for when it began: the value that RESET goes back to.
    pub fn set_at_start(&mut self, name: &str, value: &str, superuser: bool) -> Result<()> {
        if super::roles::is_of_role(name) {
            // Who may is asked elsewhere (`roles`).
            return Err(Error::new(
                SqlState::CANT_CHANGE_RUNTIME_PARAM,
                format!("parameter \"{name}\" cannot be changed"),
            ));
        }
        let at = self.set(name, Some(value), Span::Session, superuser)?;
        self.base[at] = self.current[at].clone();
        self.undo.clear();
        Ok(())
    }

    /// Sets a value of the server for this session, with no question of who may.
    pub fn initialise(&mut self, name: &str, value: &str) {
        let at = find(name).expect("a setting of ours");
        self.put(at, value.into(), Span::Session)
            .expect("our own values are valid");
        self.base[at] = self.current[at].clone();
        self.undo.clear();
    }

    /// Shows another value for a setting that follows the session's state, and tells the client.
    pub fn initialise_shown(&mut self, name: &str, value: &str) {
        let at = find(name).expect("a setting of ours");
        self.current[at] = value.into();
        self.report(at);
    }

    /// Whether the session takes writes: they run here, or at the primary.
    fn takes_writes(&self) -> bool {
        self.writes_here || self.hot.forward
    }

    /// `standby`: the server follows another. `writes_here`: it runs writes. Clients are told of changes.
    pub fn set_place(&mut self, standby: bool, writes_here: bool) {
        if (self.standby, self.writes_here) == (standby, writes_here) {
            return;
        }
        (self.standby, self.writes_here) = (standby, writes_here);
        self.initialise_shown("in_hot_standby", if standby { "on" } else { "off" });
        self.report(find("default_transaction_read_only").expect("a setting of ours"));
    }

    fn canonical(&self, at: usize, v: &str) -> Result<CompactString> {
        match SETTINGS.get(at) {
            Some(s) => value::canonical(s, v, &self.current[at]),
            None => Ok(v.into()),
        }
    }

    fn put(&mut self, at: usize, new: CompactString, span: Span) -> Result<()> {
        let old = std::mem::replace(&mut self.current[at], new);
        if at < SETTINGS.len()
            && let Err(e) = self.apply(at)
        {
            self.current[at] = old;
            return Err(e);
        }
        if self.current[at] != old {
            self.report(at);
        }
        let covered = self.covered.get(&at).cloned();
        match span {
            Span::Local => {
                self.covered.entry(at).or_insert_with(|| old.clone());
            }
            Span::Session => {
                self.covered.remove(&at);
            }
        }
        self.undo.push(Undo {
            at,
            current: old,
            covered,
        });
        Ok(())
    }

    fn report(&mut self, at: usize) {
        let told = match SETTINGS.get(at) {
            Some(s) => s.report || (self.hot.report_all && s.is_of_the_session()),
            None => self.hot.report_all,
        };
        if told && !self.changed.contains(&at) {
            self.changed.push(at);
        }
    }

    /// `RESET ALL` and the settings part of `DISCARD ALL`.
    pub fn reset_all(&mut self) {
        for at in 0..self.current.len() {
            let keep = SETTINGS.get(at).is_some_and(|s| {
                !s.is_of_the_session() || matches!(s.name, "role" | "session_authorization")
            });
            if !keep && self.current[at] != self.base[at] {
                let base = self.base[at].clone();
                self.put(at, base, Span::Session).expect("it was valid");
            }
        }
    }

    /// Where a savepoint stands among the changes.
    pub fn savepoint(&self) -> usize {
        self.undo.len()
    }

    /// Undoes the changes since the savepoint.
    pub fn rollback_to(&mut self, savepoint: usize) {
        while self.undo.len() > savepoint {
            let u = self.undo.pop().expect("longer than the savepoint");
            self.current[u.at] = u.current;
            match u.covered {
                Some(c) => self.covered.insert(u.at, c),
                None => self.covered.remove(&u.at),
            };
            if u.at < SETTINGS.len() {
                self.apply(u.at).expect("it was valid before");
            }
            self.report(u.at);
        }
    }

    /// The transaction committed: SET LOCAL ends, SET stays. Whether there was a SET LOCAL.
    pub fn commit(&mut self) -> bool {
        if self.undo.is_empty() {
            return false;
        }
        self.undo.clear();
        let local = !self.covered.is_empty();
        for (at, v) in std::mem::take(&mut self.covered) {
            if self.current[at] != v {
                self.current[at] = v;
                if at < SETTINGS.len() {
                    self.apply(at).expect("it was valid before");
                }
                self.report(at);
            }
        }
        local
    }

    /// The transaction was rolled back: everything set in it ends.
    pub fn rollback(&mut self) {
        self.rollback_to(0);
    }

    /// (name, value) of settings that clients are told of and that changed since the last call.
    pub fn take_changes(&mut self) -> Vec<(String, String)> {
        if self.changed.is_empty() {
            return Vec::new();
        }
        std::mem::take(&mut self.changed)
            .into_iter()
            .map(|i| (self.name(i).to_owned(), self.shown(i)))
            .collect()
    }

    /// (name, value) of every setting that clients are told of.
    pub fn reported(&mut self) -> Vec<(&'static str, String)> {
        self.changed.clear();
        // A replica that takes writes leaves one out: clients that look for a server to write to then ask for
        // transaction_read_only, and those that look for a standby ask pg_is_in_recovery(). Both get the answer they want.
        let both = self.standby && self.takes_writes();
        let all = SETTINGS.iter().enumerate();
        let all = all.filter(|(_, s)| s.report && !(both && s.name == "in_hot_standby"));
        all.map(|(i, s)| (s.name, self.shown(i))).collect()
    }

    /// Computes what the machine reads from the value at this place.
    fn apply(&mut self, at: usize) -> Result<()> {
        let v = self.current[at].as_str();
        let on = v == "on";
        let time = || value::milliseconds(v).filter(|d| !d.is_zero());
        match SETTINGS[at].name {
            "default_transaction_isolation" => self.hot.isolation = Level::of_setting(v),
            "default_transaction_read_only" => self.hot.read_only = on,
            "default_transaction_deferrable" => self.hot.deferrable = on,
            "synchronous_commit" => {
                self.hot.durability = match v {
                    "off" => Durability::Off,
                    "local" => Durability::Local,
                    "remote_write" => Durability::RemoteWrite,
                    "remote_apply" => Durability::RemoteApply,
                    _ => Durability::On,
                }
            }
            "canon.min_token" => self.hot.min_token = Token::parse(v),
            "canon.report_token" => self.hot.report_token = on,
            "canon.max_staleness" => {
                self.hot.max_staleness = value::milliseconds(v).unwrap_or_default();
                if let Consistency::Bounded(d) = &mut self.hot.consistency {
                    *d = self.hot.max_staleness;
                }
            }
            "canon.read_consistency" => {
                self.hot.consistency = match v {
                    "session" => Consistency::Session,
                    "bounded" => Consistency::Bounded(self.hot.max_staleness),
                    "eventual" => Consistency::Eventual,
                    _ => Consistency::Strong,
                }
            }
            "canon.read_policy" => self.hot.read_policy = read_policy(v),
            "canon.read_timeout" => self.hot.read_timeout = time(),
            "canon.stale_action" => {
                self.hot.stale_action = match v {
                    "wait" => StaleAction::Wait,
                    "forward" => StaleAction::Forward,
                    _ => StaleAction::Error,
                }
            }
            "canon.report_settings" => self.hot.report_all = on,
            "canon.forward" => self.hot.forward = on,
            "canon.site_read_committed" => self.hot.read_committed_here = v == "local",
            "statement_timeout" => self.hot.statement_timeout = time(),
            "client_connection_check_interval" => self.hot.needs_client = time().is_some(),
            "canon.statement_memory" => self.hot.statement_memory = bytes(v),
            "canon.statement_memory_ceiling" => self.hot.statement_memory_ceiling = bytes(v),
            "lock_timeout" => self.hot.lock_timeout = time(),
            "deadlock_timeout" => self.hot.deadlock_timeout = time(),
            "idle_in_transaction_session_timeout" => self.hot.idle_in_transaction = time(),
            "idle_session_timeout" => self.hot.idle_session = time(),
            "client_min_messages" => {
                self.hot.client_min_messages = match v {
                    "error" => Severity::Error,
                    "warning" => Severity::Warning,
                    "info" => Severity::Info,
                    "notice" => Severity::Notice,
                    "log" => Severity::Log,
                    _ => Severity::Debug,
                }
            }
            "search_path" => self.hot.search_path = value::name_list(v)?.into(),
            "TimeZone" => self.output.timezone = Zone::setting(v)?,
            "DateStyle" => {
                let (style, order) = v.split_once(", ").unwrap_or((v, "MDY"));
                self.output.datestyle = match style {
                    "SQL" => DateStyle::Sql,
                    "Postgres" => DateStyle::Postgres,
                    "German" => DateStyle::German,
                    _ => DateStyle::Iso,
                };
                self.output.date_order = match order {
                    "DMY" => DateOrder::Dmy,
                    "YMD" => DateOrder::Ymd,
                    _ => DateOrder::Mdy,
                };
            }
            "IntervalStyle" => {
                self.output.intervalstyle = match v {
                    "postgres_verbose" => IntervalStyle::PostgresVerbose,
                    "sql_standard" => IntervalStyle::SqlStandard,
                    "iso_8601" => IntervalStyle::Iso8601,
                    _ => IntervalStyle::Postgres,
                }
            }
            "extra_float_digits" => {
                self.output.extra_float_digits = v.parse().expect("canonical");
            }
            "bytea_output" => {
                self.output.bytea_output = match v {
                    "escape" => ByteaOutput::Escape,
                    _ => ByteaOutput::Hex,
                }
            }
            _ => {}
        }
        Ok(())
    }
}

fn allow(s: &Setting, superuser: bool) -> Result<()> {
    let cannot = |why: &str| {
        Err(Error::new(
            SqlState::CANT_CHANGE_RUNTIME_PARAM,
            format!("parameter \"{}\" cannot be changed{why}", s.name),
        ))
    };
    match s.scope {
        Scope::Internal => cannot(""),
        Scope::Postmaster => cannot(" without restarting the server"),
        Scope::Superuser if !superuser => Err(Error::new(
            SqlState::INSUFFICIENT_PRIVILEGE,
            format!("permission denied to set parameter \"{}\"", s.name),
        )),
        _ => Ok(()),
    }
}

/// The policy of this name.
fn read_policy(name: &str) -> ReadPolicy {
    match name {
        "lamport+tracker" => ReadPolicy::Tracker,
        "lamport" => ReadPolicy::Lamport,
        "read-wait" => ReadPolicy::ReadWait,
        "stale" => ReadPolicy::Stale,
        "commit-wait" => ReadPolicy::CommitWait,
        _ => ReadPolicy::Lease,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(s: &mut Settings, name: &str, v: &str, span: Span) {
        s.set(name, Some(v), span, false).unwrap();
    }

    #[test]
    fn values_are_canonical() {
        let mut s = Settings::default();
        for (name, given, shown) in [
            ("statement_timeout", "5000", "5s"),
            ("statement_timeout", "90 s", "90s"),
            ("statement_timeout", "2min", "2min"),
            ("work_mem", "2048", "2MB"),
            ("datestyle", "german", "German, DMY"),
            ("datestyle", "ISO, DMY", "ISO, DMY"),
            ("DateStyle", "ymd", "ISO, YMD"),
            ("client_encoding", "sql_ascii", "SQL_ASCII"),
            ("client_encoding", "utf-8", "UTF8"),
            ("jit", "tru", "on"),
            (
                "default_transaction_isolation",
                "READ COMMITTED",
                "read committed",
            ),
            ("my.own", "x", "x"),
        ] {
            set(&mut s, name, given, Span::Session);
            assert_eq!(s.show(name).as_deref(), Some(shown), "{name} {given}");
        }
        assert_eq!(s.hot.statement_timeout, Some(Duration::from_secs(120)));
        set(&mut s, "canon.max_staleness", "250", Span::Session);
        set(&mut s, "canon.read_consistency", "Bounded", Span::Session);
        let bounded = |ms| Consistency::Bounded(Duration::from_millis(ms));
        assert_eq!(s.hot.consistency, bounded(250));
        for (given, shown, ms) in [
            ("3s", "3s", 3000),
            ("00:01:30", "90s", 90_000),
            ("1 minute 2 seconds", "62s", 62_000),
            ("0", "0", 0),
        ] {
            set(&mut s, "canon.max_staleness", given, Span::Session);
            assert_eq!(s.show("canon.max_staleness").as_deref(), Some(shown));
            assert_eq!(s.hot.consistency, bounded(ms));
        }
        assert_eq!(s.hot.isolation, Level::ReadCommitted);
    }

    #[test]
    fn bad_values_change_nothing() {
        let mut s = Settings::default();
        for (name, v, code) in [
            ("client_encoding", "LATIN1", "22023"),
            ("standard_conforming_strings", "off", "22023"),
            ("statement_timeout", "-2", "22023"),
            ("statement_timeout", "soon", "22023"),
            ("jit", "maybe", "22023"),
            ("TimeZone", "Nowhere/Land", "22023"),
            ("nonesuch", "1", "42704"),
            ("canon.nonesuch", "1", "42704"),
            ("canon.max_staleness", "soon", "22023"),
            ("canon.max_staleness", "-1 s", "22023"),
            ("canon.max_staleness", "1 century", "22023"),
            ("canon.min_token", "00000001/2C000007", "22023"),
            ("canon.read_consistency", "fresh", "22023"),
            ("canon.read_policy", "hope", "22023"),
            ("canon.stale_action", "panic", "22023"),
            ("canon.commit_token", "x", "55P02"),
            ("server_version", "1", "55P02"),
            ("log_statement", "all", "42501"),
        ] {
            let before = s.show(name);
            let e = s.set(name, Some(v), Span::Session, false).unwrap_err();
            assert_eq!(e.code().code(), code, "{name}");
            assert_eq!(s.show(name), before);
        }
    }

    #[test]
    fn who_asks_is_told_of_every_setting_of_the_session() {
        let mut s = Settings::default();
        set(&mut s, "lock_timeout", "7", Span::Session);
        assert_eq!(s.take_changes(), []);
        set(&mut s, "canon.report_settings", "on", Span::Session);
        set(&mut s, "lock_timeout", "8", Span::Session);
        set(&mut s, "my.own", "x", Span::Session);
        set(&mut s, "transaction_isolation", "serializable", Span::Local);
        s.commit();
        let told = s.take_changes();
        assert!(
            told.contains(&("lock_timeout".into(), "8ms".into())),
            "{told:?}"
        );
        assert!(told.contains(&("my.own".into(), "x".into())));
        assert!(!told.iter().any(|t| t.0.starts_with("transaction_")));
        set(&mut s, "lock_timeout", "9", Span::Session);
        s.rollback();
        assert_eq!(s.take_changes(), [("lock_timeout".into(), "8ms".into())]);
    }

    #[test]
    fn transactions_undo_and_locals_end() {
        let mut s = Settings::default();
        set(&mut s, "application_name", "a", Span::Session);
        s.commit();
        set(&mut s, "application_name", "b", Span::Session);
        let sp = s.savepoint();
        set(&mut s, "application_name", "c", Span::Local);
        set(&mut s, "lock_timeout", "7", Span::Local);
        s.rollback_to(sp);
        assert_eq!(s.show("application_name").unwrap(), "b");
        set(&mut s, "application_name", "d", Span::Local);
        assert_eq!(s.show("application_name").unwrap(), "d");
        s.commit();
        assert_eq!(s.show("application_name").unwrap(), "b");
        assert_eq!(s.hot.lock_timeout, None);
        set(&mut s, "application_name", "e", Span::Session);
        s.rollback();
        assert_eq!(s.show("application_name").unwrap(), "b");
        assert!(
            s.take_changes()
                .contains(&("application_name".into(), "b".into()))
        );
        s.reset_all();
        assert_eq!(s.show("application_name").unwrap(), "");
    }
}
