//! A session's advisory locks: the wait for one, and their end.
//!
//! ```text
//! pg_advisory_lock -> Bearer::take     taken, or a wait on this thread: cancel, lock_timeout, deadlock_timeout, the end of the session
//! COMMIT, ROLLBACK, ROLLBACK TO        what the transaction took since
//! DISCARD ALL, the end of the session  all
//! ```
//! They are locks of the primary. At a replica a call goes there with its transaction; while a session holds what outlives the
//! transaction, all that it runs goes there, over the connection that holds the locks (`forward`). Should it be lost, or the node that has them
//! become a replica, the session is ended (57P01): it never goes on without its locks. With `canon.forward = off` a replica's
//! locks are its own, as those of a standby are in PostgreSQL.
//!
//! Left out on purpose: locks that survive a change of the primary.

use super::Session;
use super::handle::Waits;
use super::state::State;
use crate::catalog::{LockRow, LockedThing};
use crate::engine::Engine;
use base::{Error, Result, SqlState, Work};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Wake};
use std::thread::Thread;
use txn::{AdvisoryKey, AdvisoryLock, Bearer, LockWait, Taking};

/// Wakes a thread that waits by parking.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits on this thread.
pub(super) fn wait_here<F: Future>(future: F) -> F::Output {
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(out) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return out;
        }
        std::thread::park();
    }
}

/// The session's locks are lost.
pub(super) fn lost_locks() -> Error {
    Error::new(
        SqlState::ADMIN_SHUTDOWN,
        "terminating connection because what it held at the primary is lost",
    )
    .detail("Advisory locks, cursors WITH HOLD and temporary tables end with the connection that they were made on.")
}

/// The locks of a session.
pub(super) struct Locks {
    bearer: Bearer,
    /// They were taken at a primary.
    at_primary: bool,
}

impl<E: Engine> State<E> {
    /// Whether something is held that outlives the transaction.
    pub(super) fn holds_advisory(&self) -> bool {
        let locks = self.locks.borrow();
        locks.as_ref().is_some_and(|l| l.bearer.holds_of_session())
    }

    /// 57P01 where the session's locks are those of a primary that this node is no more.
    pub(super) fn check_locks(&mut self) -> Result<()> {
        let Some(locks) = self.locks.get_mut() else {
            return Ok(());
        };
        let gone = locks.at_primary && !self.shared.engine.runs(Work::Lock);
        match gone && locks.bearer.holds_of_session() {
            true => Err(lost_locks()),
            false => Ok(()),
        }
    }

    /// A statement begins.
    pub(super) fn begin_locks(&mut self) {
        if let Some(l) = self.locks.get_mut() {
            l.bearer.begin_statement();
        }
    }

    /// The statement is undone to run again.
    pub(super) fn undo_locks(&mut self) {
        if let Some(l) = self.locks.get_mut() {
            l.bearer.undo_statement();
        }
    }

    pub(super) fn locks_mark(&mut self) -> usize {
        self.locks.get_mut().as_ref().map_or(0, |l| l.bearer.mark())
    }

    /// Gives back what the transaction took since; 0: all.
    pub(super) fn rollback_locks(&mut self, mark: usize) {
        if let Some(l) = self.locks.get_mut() {
            l.bearer.rollback_to(mark);
        }
    }

    /// Gives back all of the session.
    pub(super) fn drop_locks(&mut self) {
        *self.locks.get_mut() = None;
        self.handle.bearer.store(0, Ordering::Relaxed);
    }

    /// The name of the session among those that hold advisory locks.
    pub(super) fn bearer(&mut self) -> Option<u64> {
        self.locks.get_mut().as_ref().map(|l| l.bearer.id())
    }

    /// As [`crate::functions::SessionContext::advisory_lock`].
    pub(super) fn take_advisory(&self, lock: AdvisoryLock, wait: bool) -> Result<bool> {
        if self.forwards.get() {
            return Err(self.at_primary("pg_advisory_lock()"));
        }
        let at_primary = self.shared.engine.runs(Work::Lock);
        let patience = self.settings.borrow().hot.deadlock_timeout;
        let txn = self.txn_id.get();
        let taking = {
            let mut locks = self.locks.borrow_mut();
            let l = locks.get_or_insert_with(|| {
                let bearer = self.shared.engine.bearer();
                self.handle.bearer.store(bearer.id(), Ordering::Relaxed);
                Locks { bearer, at_primary }
            });
            l.at_primary |= at_primary;
            l.bearer.take(lock, txn, wait, patience.is_some())?
        };
        match taking {
            Taking::Taken => Ok(true),
            Taking::Busy => Ok(false),
            Taking::Wait(w) => self.wait_advisory(w, lock).map(|()| true),
        }
    }

    fn wait_advisory(&self, wait: LockWait, lock: AdvisoryLock) -> Result<()> {
        let (limit, patience) = {
            let s = self.settings.borrow();
            (s.hot.lock_timeout, s.hot.deadlock_timeout)
        };
        self.shared.host.aside();
        let now = || self.shared.host.monotonic_millis();
        let at = |t: std::time::Duration| now() + (t.as_millis() as u64).max(1);
        let (limit, look) = (limit.map(at), patience.map(at));
        let mut wait = pin!(wait);
        let mut looked = look.is_none();
        let before = self.shared.host.unix_micros();
        let ended = loop {
            let next = [limit, look.filter(|_| !looked)]
                .into_iter()
                .flatten()
                .min();
            self.handle.begin_wait(next.unwrap_or(0), Waits::Advisory);
            let granted = {
                let interrupted = pin!(self.handle.interruption());
                let either = futures::future::select(wait.as_mut(), interrupted);
                matches!(wait_here(either), futures::future::Either::Left(_))
            };
            self.handle.end_wait();
            if granted {
                break Ok(());
            }
            if let Some(why) = self.handle.interrupted() {
                break Err(super::run::interruption(why));
            }
            if limit.is_some_and(|l| now() >= l) {
                break Err(super::run::lock_timeout());
            }
            if look.is_some_and(|l| now() >= l) && !looked {
                looked = true;
                let locks = self.locks.borrow();
                let l = locks.as_ref().expect("it waits for a lock");
                if let Err(e) = l.bearer.check_deadlock(lock) {
                    break Err(e);
                }
            }
        };
        let n = &self.shared.counters;
        n.lock_waits.fetch_add(1, Ordering::Relaxed);
        let took = self.shared.host.unix_micros().saturating_sub(before).max(0);
        n.lock_wait_micros.fetch_add(took as u64, Ordering::Relaxed);
        let mut locks = self.locks.borrow_mut();
        let bearer = &mut locks.as_mut().expect("it waited for a lock").bearer;
        let txn = self.txn_id.get();
        match &ended {
            Ok(()) => bearer.granted(lock, txn),
            Err(_) => bearer.give_up(lock, txn),
        }
        ended
    }

    /// As [`crate::functions::SessionContext::advisory_unlock`].
    pub(super) fn give_advisory(&self, key: AdvisoryKey, shared: bool) -> Result<bool> {
        if self.forwards.get() {
            return Err(self.at_primary("pg_advisory_unlock()"));
        }
        let held = match self.locks.borrow_mut().as_mut() {
            Some(l) => l.bearer.unlock(key, shared),
            None => false,
        };
        if !held {
            let kind = if shared { "ShareLock" } else { "ExclusiveLock" };
            self.warn(format!("you don't own a lock of type {kind}"));
        }
        Ok(held)
    }

    /// As [`crate::functions::SessionContext::advisory_unlock_all`].
    pub(super) fn give_all_advisory(&self) {
        if let Some(l) = self.locks.borrow_mut().as_mut() {
            l.bearer.unlock_all();
        }
    }

    /// As [`crate::functions::SessionContext::blocking_pids`].
    pub(super) fn pids_before(&self, pid: i32) -> Vec<i32> {
        let Some(h) = self.shared.sessions.get(pid) else {
            return vec![];
        };
        let engine = &self.shared.engine;
        let ids = [&h.txn, &h.bearer].map(|id| id.load(Ordering::Relaxed));
        let blockers: Vec<u64> = ids
            .iter()
            .flat_map(|id| engine.lock_blockers(*id))
            .collect();
        if blockers.is_empty() {
            return vec![];
        }
        let all = self.shared.sessions.list();
        let holds = |h: &&Arc<super::Handle>| {
            let is = |id: u64| id != 0 && blockers.contains(&id);
            is(h.txn.load(Ordering::Relaxed)) || is(h.bearer.load(Ordering::Relaxed))
        };
        let pids = all.iter().filter(holds).map(|h| h.pid);
        pids.filter(|p| *p != pid).collect()
    }

    /// The rows of `pg_locks`.
    pub(super) fn lock_rows(&self) -> Vec<LockRow> {
        let all = self.shared.sessions.list();
        let held = self.shared.engine.advisory_locks();
        let row = |l: &txn::AdvisoryHeld| {
            let of = |h: &&Arc<super::Handle>| h.bearer.load(Ordering::Relaxed) == l.bearer;
            Some(LockRow {
                pid: all.iter().find(of)?.pid,
                on: LockedThing::Advisory(l.key),
                mode: match l.shared {
                    true => "ShareLock",
                    false => "ExclusiveLock",
                },
                granted: l.granted,
                fast: false,
            })
        };
        let mut rows: Vec<LockRow> = held.iter().filter_map(row).collect();
        for l in self.shared.engine.table_locks() {
            let of = |h: &&Arc<super::Handle>| h.txn.load(Ordering::Relaxed) == l.txn;
            let Some(h) = all.iter().find(of) else {
                continue;
            };
            rows.extend(l.modes.names().map(|mode| LockRow {
                pid: h.pid,
                on: LockedThing::Table(l.table),
                mode,
                granted: l.granted,
                fast: l.noted,
            }));
        }
        rows
    }
}

impl<E: Engine> Session<E> {
    /// The transaction that runs is of a session that may hold advisory locks; whether that is news.
    pub(super) fn bear_locks(&mut self) -> bool {
        let patient = self.state.settings.get_mut().hot.deadlock_timeout.is_some();
        let bearer = self.state.bearer();
        let txn = self.block.txn.as_mut().expect("just begun");
        txn.set_patient(patient);
        bearer.is_some_and(|b| txn.borne_by(b))
    }
}
