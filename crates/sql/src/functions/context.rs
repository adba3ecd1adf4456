//! What functions may know of the session that runs them, as one trait: clock, identity, settings, sequences, catalog.
//!
//! The session implements [`SessionContext`] behind interior mutability; evaluation borrows it. A function that
//! looks something up in the catalog (`pg_get_indexdef`, `has_table_privilege` …) reaches it by name through
//! [`SessionContext::catalog_function`]; their signatures stand in [`super::catalog`].

use crate::cluster_status::ClusterStatus;
use crate::engine::MembershipChange;
use crate::types::OutputSettings;
use base::{Error, Oid, Result, SqlState, Type, Value};
use std::time::Duration;

/// Bytes that one statement may hold in sorts, hash tables and buffers where no session says otherwise.
pub const DEFAULT_MEMORY: usize = 256 << 20;

/// Everything a running function sees beside its arguments.
pub struct EvalContext<'a> {
    pub settings: &'a OutputSettings,
    pub session: &'a dyn SessionContext,
}

impl EvalContext<'_> {
    /// Start of the transaction, microseconds since 2000-01-01 UTC.
    pub fn now(&self) -> i64 {
        self.settings.now
    }
}

/// The session, as functions see it. Times are microseconds since 2000-01-01 UTC.
pub trait SessionContext {
    fn statement_timestamp(&self) -> i64;
    fn clock_timestamp(&self) -> i64;
    fn current_user(&self) -> String;
    fn session_user(&self) -> String;
    fn database(&self) -> String;
    /// Schemas searched, `pg_catalog` and temporary ones included when `implicit`.
    fn schemas(&self, implicit: bool) -> Vec<String>;
    fn backend_pid(&self) -> i32;
    /// A setting's value as SHOW prints it; `None` when there is no such setting.
    fn setting(&self, name: &str) -> Option<String>;
    /// Sets and gives back the value in force.
    fn set_setting(&self, name: &str, value: &str, local: bool) -> Result<String>;
    /// Uniform in [0, 1).
    fn random(&self) -> f64;
    fn set_seed(&self, seed: f64);
    /// Bytes that cannot be guessed.
    fn random_bytes(&self, out: &mut [u8]);
    fn nextval(&self, sequence: Oid) -> Result<i64>;
    /// `nextval` of an IDENTITY column's sequence for a row of its table: the right to insert is enough.
    fn next_identity(&self, sequence: Oid) -> Result<i64> {
        self.nextval(sequence)
    }
    fn currval(&self, sequence: Oid) -> Result<i64>;
    fn lastval(&self) -> Result<i64>;
    fn setval(&self, sequence: Oid, value: i64, is_called: bool) -> Result<i64>;
    /// Waits; an error when the statement is cancelled meanwhile.
    fn sleep(&self, seconds: f64) -> Result<()>;
    /// The number of the running transaction; when `assign` is false and it has none yet, `None`.
    fn transaction_id(&self, assign: bool) -> Option<i64>;
    /// When the server started.
    fn server_start(&self) -> i64;
    /// Whether the server follows another.
    fn in_recovery(&self) -> bool {
        false
    }
    /// Cancels what the session of this number runs, or ends it and waits for its end up to `wait`. False, with a warning: there is
    /// none, or it did not end in time.
    fn signal(&self, _pid: i32, _end: bool, _wait: Duration) -> Result<bool> {
        Err(no_session())
    }
    /// Takes an advisory lock; false: another session has it, and the caller does not `wait`.
    fn advisory_lock(&self, _lock: txn::AdvisoryLock, _wait: bool) -> Result<bool> {
        Err(no_session())
    }
    /// Gives back once what the session took; false, with a warning: it does not hold it.
    fn advisory_unlock(&self, _key: txn::AdvisoryKey, _shared: bool) -> Result<bool> {
        Err(no_session())
    }
    /// Gives back all that the session took.
    fn advisory_unlock_all(&self) -> Result<()> {
        Err(no_session())
    }
    /// Says this to listeners when the transaction commits.
    fn notify(&self, _channel: &str, _payload: &str) -> Result<()> {
        Err(no_session())
    }
    /// The channels that the session listens to.
    fn listening_channels(&self) -> Vec<String> {
        vec![]
    }
    /// How full the queue of notifications is, from 0 to 1.
    fn notification_usage(&self) -> f64 {
        0.0
    }
    /// The sessions for which the one of this number waits.
    fn blocking_pids(&self, _pid: i32) -> Result<Vec<i32>> {
        Err(no_session())
    }
    /// Where the server stands in its cluster.
    fn cluster_status(&self) -> ClusterStatus {
        ClusterStatus::default()
    }
    /// The server has handed over and leads again: what happened, in words.
    fn unseal(&self, _forget: bool) -> Result<String> {
        Err(no_session())
    }
    /// The members of the cluster become others: what happened, in words.
    fn change_membership(&self, _change: MembershipChange) -> Result<String> {
        Err(no_session())
    }
    /// Makes the server the primary: what happened, in words; `None`: not in time.
    fn promote(&self, _force: bool, _wait: Duration) -> Result<Option<String>> {
        Err(no_session())
    }
    /// What became of the transaction of this token, in a word.
    fn transaction_status(&self, _token: &str) -> Result<&'static str> {
        Err(no_session())
    }
    /// A function of [`super::catalog`]'s list, by name. `arg_types` are the declared types, for overloads.
    fn catalog_function(
        &self,
        name: &'static str,
        arg_types: &[Type],
        args: &[Value],
    ) -> Result<Value>;
    /// Bytes that the statement may hold in sorts, hash tables and buffers.
    fn statement_memory(&self) -> usize {
        DEFAULT_MEMORY
    }
}

/// A session with a clock that stands still and no catalog: for constant folding at plan time and for tests.
pub struct NoSession;

impl SessionContext for NoSession {
    fn statement_timestamp(&self) -> i64 {
        0
    }
    fn clock_timestamp(&self) -> i64 {
        0
    }
    fn current_user(&self) -> String {
        "canon".into()
    }
    fn session_user(&self) -> String {
        "canon".into()
    }
    fn database(&self) -> String {
        "canon".into()
    }
    fn schemas(&self, implicit: bool) -> Vec<String> {
        let mut s = vec!["public".to_string()];
        if implicit {
            s.insert(0, "pg_catalog".into());
        }
        s
    }
    fn backend_pid(&self) -> i32 {
        1
    }
    fn setting(&self, _: &str) -> Option<String> {
        None
    }
    fn set_setting(&self, _: &str, value: &str, _: bool) -> Result<String> {
        Ok(value.into())
    }
    fn random(&self) -> f64 {
        0.5
    }
    fn set_seed(&self, _: f64) {}
    fn random_bytes(&self, out: &mut [u8]) {
        out.fill(7);
    }
    fn nextval(&self, _: Oid) -> Result<i64> {
        Err(no_session())
    }
    fn currval(&self, _: Oid) -> Result<i64> {
        Err(no_session())
    }
    fn lastval(&self) -> Result<i64> {
        Err(no_session())
    }
    fn setval(&self, _: Oid, _: i64, _: bool) -> Result<i64> {
        Err(no_session())
    }
    fn sleep(&self, _: f64) -> Result<()> {
        Ok(())
    }
    fn transaction_id(&self, _: bool) -> Option<i64> {
        None
    }
    fn server_start(&self) -> i64 {
        0
    }
    fn catalog_function(&self, _: &'static str, _: &[Type], _: &[Value]) -> Result<Value> {
        Err(no_session())
    }
}

fn no_session() -> Error {
    Error::new(
        SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
        "this needs a session",
    )
}
