//! Advisory locks: names that an application gives a meaning, held by a session or by its transaction.
//!
//! The locks of one session belong to one [`Bearer`], an owner in the [`LockTable`](crate::LockTable) beside the session's transactions, so that
//! deadlocks with row locks are found. The bearer counts: a lock that was taken twice is given back twice, and what the session took and what
//! its transaction took are counted apart, as in PostgreSQL. In the table it stands once, in the strongest mode that is counted.
//!
//! Keys of one and of two numbers are two spaces. A key is spread by a multiplication that can be undone, so that neighbours do not
//! share a shard, and no two keys share a lock.
//!
//! Limits: [`MOST_OF_SESSION`] and [`MOST`] locks, then 53200.
//!
//! Left out on purpose: the wait itself, which is the caller's, and what a lock means to the log: nothing.

use base::{Error, Result, SqlState};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::locks::{Attempt, LockMode, LockName, LockWait, TxnId, Waiter};
use crate::manager::TxnManager;
use crate::stats::Cause;

/// Different locks that one session may hold.
pub const MOST_OF_SESSION: usize = 100_000;
/// And all sessions of a node.
pub const MOST: usize = 1_000_000;

const SPACE_ONE: u32 = u32::MAX - 1;
const SPACE_TWO: u32 = u32::MAX - 2;
/// Odd, so that multiplying by it loses nothing.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
const GATHER: u64 = inverse(SPREAD);

/// The number that undoes a multiplication by this odd one, by Newton's method: each step doubles the right bits.
const fn inverse(n: u64) -> u64 {
    let mut x = n;
    let mut step = 0;
    while step < 6 {
        x = x.wrapping_mul(2u64.wrapping_sub(n.wrapping_mul(x)));
        step += 1;
    }
    x
}

/// What a lock is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AdvisoryKey {
    One(i64),
    Two(i32, i32),
}

impl AdvisoryKey {
    fn name(self) -> LockName {
        let (space, key) = match self {
            AdvisoryKey::One(n) => (SPACE_ONE, n as u64),
            AdvisoryKey::Two(a, b) => (SPACE_TWO, u64::from(a as u32) << 32 | u64::from(b as u32)),
        };
        LockName {
            space,
            hash: key.wrapping_mul(SPREAD),
        }
    }

    fn of(space: u32, hash: u64) -> AdvisoryKey {
        let key = hash.wrapping_mul(GATHER);
        match space {
            SPACE_ONE => AdvisoryKey::One(key as i64),
            _ => AdvisoryKey::Two((key >> 32) as i32, key as i32),
        }
    }
}

/// One lock and how it is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AdvisoryLock {
    pub key: AdvisoryKey,
    pub shared: bool,
    /// It ends with the transaction.
    pub of_transaction: bool,
}

impl AdvisoryLock {
    fn mode(self) -> LockMode {
        match self.shared {
            true => LockMode::Share,
            false => LockMode::Update,
        }
    }
}

/// How often a lock was taken, exclusive and shared, by the session and by its transaction.
#[derive(Clone, Copy, Debug, Default)]
struct Counts([[u32; 2]; 2]);

impl Counts {
    fn of(&mut self, lock: AdvisoryLock) -> &mut u32 {
        &mut self.0[usize::from(lock.shared)][usize::from(lock.of_transaction)]
    }

    /// The strongest mode that is counted.
    fn mode(&self) -> Option<LockMode> {
        let taken = |shared: usize| self.0[shared] != [0, 0];
        match (taken(0), taken(1)) {
            (true, _) => Some(LockMode::Update),
            (false, true) => Some(LockMode::Share),
            (false, false) => None,
        }
    }

    fn of_session(&self) -> bool {
        self.0.iter().any(|mode| mode[0] > 0)
    }
}

/// How an attempt to take a lock ended.
pub enum Taking {
    Taken,
    /// Another session has it, and the caller did not want to wait.
    Busy,
    /// To be followed by [`Bearer::granted`] or [`Bearer::give_up`].
    Wait(LockWait),
}

/// One row of what is held and wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdvisoryHeld {
    pub key: AdvisoryKey,
    pub shared: bool,
    pub bearer: TxnId,
    pub granted: bool,
}

/// The advisory locks of a session.
pub struct Bearer {
    shared: Arc<TxnManager>,
    id: TxnId,
    held: HashMap<AdvisoryKey, Counts, foldhash::fast::FixedState>,
    /// Locks of the transaction, in the order in which they were taken.
    taken: Vec<AdvisoryLock>,
    /// Locks that the running statement took.
    statement: Vec<AdvisoryLock>,
    /// Locks of the session that the running statement gave back.
    given: Vec<AdvisoryLock>,
}

impl TxnManager {
    /// For a session that takes its first advisory lock.
    pub fn bearer(self: &Arc<Self>) -> Bearer {
        Bearer {
            shared: self.clone(),
            id: self.new_id(),
            held: HashMap::default(),
            taken: Vec::new(),
            statement: Vec::new(),
            given: Vec::new(),
        }
    }

    /// Every advisory lock that is held or waited for.
    pub fn advisory_locks(&self) -> Vec<AdvisoryHeld> {
        let of = |space| {
            let all = self.locks.list(space).into_iter();
            all.map(move |(hash, bearer, mode, granted)| AdvisoryHeld {
                key: AdvisoryKey::of(space, hash),
                shared: mode == LockMode::Share,
                bearer,
                granted,
            })
        };
        of(SPACE_ONE).chain(of(SPACE_TWO)).collect()
    }
}

impl Bearer {
    /// Its name among those that hold locks.
    pub fn id(&self) -> TxnId {
        self.id
    }

    /// Whether something is held that outlives the transaction.
    pub fn holds_of_session(&self) -> bool {
        self.held.values().any(Counts::of_session)
    }

    /// Tries to take a lock for the session whose running transaction is `txn`. 40P01 where the wait would close a cycle, unless the caller is
    /// `patient` and looks for one later; 53200 over the limits.
    pub fn take(
        &mut self,
        lock: AdvisoryLock,
        txn: Option<TxnId>,
        wait: bool,
        patient: bool,
    ) -> Result<Taking> {
        let known = self.held.contains_key(&lock.key);
        let locks = &self.shared.locks;
        if !known {
            let all = locks.advisory.fetch_add(1, Ordering::Relaxed);
            if all >= MOST || self.held.len() >= MOST_OF_SESSION {
                locks.advisory.fetch_sub(1, Ordering::Relaxed);
                return Err(exhausted(self.held.len() >= MOST_OF_SESSION));
            }
        }
        let how = Waiter { twin: txn, patient };
        let name = lock.key.name();
        let (attempt, _) = locks.acquire_as(self.id, name, lock.mode(), wait, how);
        let taking = match attempt {
            Attempt::Granted => {
                self.count(lock);
                return Ok(Taking::Taken);
            }
            Attempt::Wait(w) => return Ok(Taking::Wait(w)),
            Attempt::Deadlock if wait => {
                self.shared.stats.abort(Cause::Deadlock);
                Err(deadlock(lock.key))
            }
            Attempt::Deadlock => Ok(Taking::Busy),
        };
        if !known {
            locks.advisory.fetch_sub(1, Ordering::Relaxed);
        }
        taking
    }

    /// The wait for it has ended: it is held.
    pub fn granted(&mut self, lock: AdvisoryLock, txn: Option<TxnId>) {
        self.no_twin(txn);
        self.count(lock);
    }

    /// The wait for it is given up.
    pub fn give_up(&mut self, lock: AdvisoryLock, txn: Option<TxnId>) {
        self.no_twin(txn);
        let (locks, name) = (&self.shared.locks, lock.key.name());
        locks.stop_waiting(self.id, name);
        // It may have been given all the same.
        match self.held.get(&lock.key).and_then(Counts::mode) {
            Some(mode) => locks.weaken(self.id, name, mode),
            None => {
                locks.release(self.id, name);
                locks.advisory.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    fn no_twin(&self, txn: Option<TxnId>) {
        if let Some(t) = txn {
            self.shared.locks.forget_twin(t);
        }
    }

    /// 40P01 when the wait for it is part of a cycle.
    pub fn check_deadlock(&self, lock: AdvisoryLock) -> Result<()> {
        match self.shared.locks.is_deadlocked(self.id) {
            true => {
                self.shared.stats.abort(Cause::Deadlock);
                Err(deadlock(lock.key))
            }
            false => Ok(()),
        }
    }

    fn count(&mut self, lock: AdvisoryLock) {
        *self.held.entry(lock.key).or_default().of(lock) += 1;
        if lock.of_transaction {
            self.taken.push(lock);
        }
        self.statement.push(lock);
    }

    /// Gives a lock back once; whether it was held so.
    fn give_back(&mut self, lock: AdvisoryLock) -> bool {
        let Some(counts) = self.held.get_mut(&lock.key) else {
            return false;
        };
        let before = counts.mode();
        let n = counts.of(lock);
        if *n == 0 {
            return false;
        }
        *n -= 1;
        let (locks, name) = (&self.shared.locks, lock.key.name());
        match counts.mode() {
            None => {
                self.held.remove(&lock.key);
                locks.release(self.id, name);
                locks.advisory.fetch_sub(1, Ordering::Relaxed);
            }
            Some(mode) if Some(mode) != before => locks.weaken(self.id, name, mode),
            Some(_) => {}
        }
        true
    }

    /// Gives back once what the session took; whether it held it.
    pub fn unlock(&mut self, key: AdvisoryKey, shared: bool) -> bool {
        let lock = AdvisoryLock {
            key,
            shared,
            of_transaction: false,
        };
        let held = self.give_back(lock);
        if held {
            self.given.push(lock);
        }
        held
    }

    /// Gives back all that the session took; what its transaction took stays.
    pub fn unlock_all(&mut self) {
        let keys: Vec<_> = self.held.keys().copied().collect();
        for key in keys {
            for shared in [false, true] {
                while self.unlock(key, shared) {}
            }
        }
    }

    /// A statement begins.
    pub fn begin_statement(&mut self) {
        self.statement.clear();
        self.given.clear();
    }

    /// The statement is undone and runs again: it takes its locks then. The session has again what the statement gave back, unless another
    /// session has taken that meanwhile.
    pub fn undo_statement(&mut self) {
        let mut given: HashMap<AdvisoryLock, usize> = HashMap::new();
        for lock in std::mem::take(&mut self.given) {
            *given.entry(lock).or_default() += 1;
        }
        for lock in std::mem::take(&mut self.statement).into_iter().rev() {
            if lock.of_transaction && self.taken.last() == Some(&lock) {
                self.taken.pop();
            }
            match given.get_mut(&lock) {
                // The statement took it and gave it back: nothing of it is left.
                Some(n) if *n > 0 => *n -= 1,
                _ => _ = self.give_back(lock),
            }
        }
        for (lock, n) in given {
            for _ in 0..n {
                _ = self.take(lock, None, false, true);
            }
        }
        self.statement.clear();
    }

    /// Where the transaction's locks stand, for a savepoint.
    pub fn mark(&self) -> usize {
        self.taken.len()
    }

    /// Gives back what the transaction took since; its end is the end of all: 0.
    pub fn rollback_to(&mut self, mark: usize) {
        for lock in self.taken.split_off(mark.min(self.taken.len())) {
            self.give_back(lock);
        }
    }
}

impl Drop for Bearer {
    fn drop(&mut self) {
        let locks = &self.shared.locks;
        for key in self.held.keys() {
            locks.release(self.id, key.name());
        }
        locks.advisory.fetch_sub(self.held.len(), Ordering::Relaxed);
        locks.forget_twin(self.id);
    }
}

fn deadlock(key: AdvisoryKey) -> Error {
    let what = match key {
        AdvisoryKey::One(n) => format!("{n}"),
        AdvisoryKey::Two(a, b) => format!("({a},{b})"),
    };
    Error::new(SqlState::DEADLOCK_DETECTED, "deadlock detected").detail(format!(
        "Waiting for advisory lock {what} would close a cycle of waiting transactions."
    ))
}

fn exhausted(of_session: bool) -> Error {
    let detail = match of_session {
        true => format!("A session may hold {MOST_OF_SESSION} advisory locks."),
        false => format!("The sessions of a server may hold {MOST} advisory locks."),
    };
    Error::new(SqlState::OUT_OF_MEMORY, "out of shared memory").detail(detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_comes_back_from_its_name() {
        for key in [
            AdvisoryKey::One(0),
            AdvisoryKey::One(-1),
            AdvisoryKey::One(i64::MIN),
            AdvisoryKey::Two(1, 2),
            AdvisoryKey::Two(-1, i32::MAX),
        ] {
            let n = key.name();
            assert_eq!(AdvisoryKey::of(n.space, n.hash), key);
        }
        assert_ne!(AdvisoryKey::One(1).name(), AdvisoryKey::Two(0, 1).name());
    }
}
