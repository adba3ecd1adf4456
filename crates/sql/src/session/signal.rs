//! What a session does to others: `pg_cancel_backend`, `pg_terminate_backend`; and the warnings that functions give.
//!
//! The number of a session is the one that `pg_backend_pid` and `pg_stat_activity` give; sessions of other nodes have none here. A role
//! may signal sessions of roles whose rights it has, members of `pg_signal_backend` those of all roles but superusers, a superuser all. What is signalled notices at its next look ([`super::Handle`]): between rows, while it
//! waits for a lock, for the log, or for its client.
//!
//! Left out on purpose: sessions of other nodes.

use super::Session;
use super::client::{Client, Severity};
use super::handle::Reason;
use super::run::interruption;
use super::state::State;
use crate::ddl::privileges::is_superuser;
use crate::engine::Engine;
use base::membership::SIGNAL_BACKEND;
use base::{Error, Result, SqlState};
use std::sync::Arc;
use std::time::Duration;

/// How often it is looked whether a session has ended.
const STEP: Duration = Duration::from_millis(5);
/// Warnings that wait to be told; more are dropped.
const MOST: usize = 1000;

impl<E: Engine> State<E> {
    /// As [`crate::functions::SessionContext::signal`].
    pub(super) fn signal_session(&self, pid: i32, end: bool, wait: Duration) -> Result<bool> {
        let sessions = &self.shared.sessions;
        let Some(target) = sessions.get(pid) else {
            self.warn(format!("PID {pid} is not a PostgreSQL backend process"));
            return Ok(false);
        };
        self.may_signal(target.activity.lock().user, end)?;
        let reason = match end {
            true => Reason::Terminate,
            false => Reason::Cancel,
        };
        target.interrupt(reason);
        if Arc::ptr_eq(&target, &self.handle) {
            return Err(interruption(reason));
        }
        if !end || wait.is_zero() {
            return Ok(true);
        }
        self.shared.host.aside();
        let now = || self.shared.host.monotonic_millis();
        let until = now().saturating_add(wait.as_millis() as u64);
        let there = || sessions.get(pid).is_some_and(|h| Arc::ptr_eq(&h, &target));
        while there() {
            if let Some(why) = self.handle.interrupted() {
                return Err(interruption(why));
            }
            if now() >= until {
                let ms = wait.as_millis();
                self.warn(format!(
                    "backend with PID {pid} did not terminate within {ms} milliseconds"
                ));
                return Ok(false);
            }
            self.shared.host.sleep(STEP);
        }
        Ok(true)
    }

    /// 42501 unless the current role may signal sessions of `owner`.
    fn may_signal(&self, owner: base::Oid, end: bool) -> Result<()> {
        let schema = self.catalog.borrow().schema.clone();
        let me = self.current_role.get();
        if is_superuser(&schema, me) {
            return Ok(());
        }
        let why = match (is_superuser(&schema, owner), end) {
            (true, false) => "must be a superuser to cancel superuser query",
            (true, true) => "must be a superuser to terminate superuser process",
            (false, _)
                if schema.has_rights_of(me, owner) || schema.has_rights_of(me, SIGNAL_BACKEND) =>
            {
                return Ok(());
            }
            (false, false) => {
                "must be a member of the role whose query is being canceled or member of pg_signal_backend"
            }
            (false, true) => {
                "must be a member of the role whose process is being terminated or member of pg_signal_backend"
            }
        };
        Err(Error::new(SqlState::INSUFFICIENT_PRIVILEGE, why))
    }

    pub(super) fn warn(&self, message: String) {
        let mut all = self.warnings.borrow_mut();
        if all.len() < MOST {
            all.push(Error::new(SqlState(*b"01000"), message));
        }
    }
}

impl<E: Engine> Session<E> {
    /// Tells the client what functions warned of.
    pub(super) fn tell_warnings<C: Client>(&mut self, c: &mut C) {
        if self.state.warnings.get_mut().is_empty() {
            return;
        }
        for w in self.state.warnings.take() {
            self.notice(c, Severity::Warning, &w);
        }
    }
}
