//! How a running statement is ended: a flag that another task sets, and checks in everything that may take long.
//!
//! ```text
//! cancel, timeout, terminate ──▶ Interrupt (an atomic byte)
//!                                    │ the session's account knows it, and the thread has the account while it polls the session's task
//! loops: work(units)? ──▶ every STEP units ──▶ check_cancelled()? ──▶ 57014 or 57P01
//! ```
//! A function of values knows no session, so the flag is found through the thread. A loop says what it does in units, about a byte or a
//! comparison each; a piece of work that cannot be divided (a product of long numbers) calls [`check_cancelled`] before and after.
//!
//! What counts as running is for the session to say: it clears a late cancel before it begins. Where no statement runs (recovery,
//! the embedded library) the checks pass.
//!
//! Left out on purpose: ending a thread from outside; what does not check is not ended.

use crate::memory::{self, Account, Asks};
use crate::{Error, Result, SqlState};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// Units of work between two looks at the flag: well under a millisecond of the cheapest kind, some ten of the dearest.
pub const STEP: usize = 1 << 16;

/// Set by another task to end a running statement.
#[derive(Debug, Default)]
pub struct Interrupt(pub AtomicU8);

impl Interrupt {
    pub const NONE: u8 = 0;
    /// 57014, asked for by the user.
    pub const CANCEL: u8 = 1;
    /// 57014, by statement_timeout.
    pub const TIMEOUT: u8 = 2;
    /// 53200: of all statements it has the most memory, and all have too much.
    pub const MEMORY: u8 = 3;
    /// 57P01, the server ends the session.
    pub const TERMINATE: u8 = 4;

    /// The error of a statement that was asked to end.
    pub fn check(&self) -> Result<()> {
        match self.0.load(Ordering::Relaxed) {
            Interrupt::NONE => Ok(()),
            why => Err(error_of(why)),
        }
    }
}

/// The error that stands for this reason.
#[cold]
pub fn error_of(why: u8) -> Error {
    let (code, what) = match why {
        Interrupt::CANCEL => (
            SqlState::QUERY_CANCELED,
            "canceling statement due to user request",
        ),
        Interrupt::TIMEOUT => (
            SqlState::QUERY_CANCELED,
            "canceling statement due to statement timeout",
        ),
        Interrupt::MEMORY => return memory::total_error(),
        _ => (
            SqlState::ADMIN_SHUTDOWN,
            "terminating connection due to administrator command",
        ),
    };
    Error::new(code, what)
}

thread_local! {
    /// Of what runs here without an account, or beside it.
    static CURRENT: RefCell<Option<Arc<Interrupt>>> = const { RefCell::new(None) };
    /// Units since the last look.
    static DONE: Cell<usize> = const { Cell::new(0) };
    /// Looks so far, for tests.
    static LOOKS: Cell<u64> = const { Cell::new(0) };
}

/// An error when the statement that runs on this thread was asked to end.
pub fn check_cancelled() -> Result<()> {
    DONE.set(0);
    LOOKS.set(LOOKS.get() + 1);
    let own = CURRENT.with_borrow(|i| i.as_ref().map(|i| i.check()));
    own.unwrap_or_else(memory::check_ended)
}

/// To be called by loops with the work that they are about to do, or have just done.
#[inline]
pub fn work(units: usize) -> Result<()> {
    let done = DONE.get().saturating_add(units);
    DONE.set(done);
    if done < STEP {
        return Ok(());
    }
    check_cancelled()
}

/// How often this thread has looked at a flag: a test tells by it that a loop does.
pub fn looks() -> u64 {
    LOOKS.get()
}

/// The flag is this one while the guard lives.
pub struct Current(Option<Arc<Interrupt>>);

/// Makes `flag` the one that [`check_cancelled`] looks at on this thread.
pub fn enter(flag: Arc<Interrupt>) -> Current {
    Current(CURRENT.replace(Some(flag)))
}

impl Drop for Current {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

/// While this lives, [`check_cancelled`] looks at `flag` wherever this account runs. Nothing is done for it at the turns of a task.
pub fn within(flag: Arc<Interrupt>, account: &Account) -> Asks<'_> {
    account.ends_by(Box::new(move || flag.check()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_ends_at_the_next_look() {
        let flag = Arc::new(Interrupt::default());
        let _now = enter(flag.clone());
        assert!(work(STEP - 1).is_ok());
        flag.0.store(Interrupt::CANCEL, Ordering::Relaxed);
        let looked = looks();
        assert_eq!(work(1).unwrap_err().code(), SqlState::QUERY_CANCELED);
        assert_eq!(looks(), looked + 1);
        assert!(work(1).is_ok(), "the count begins anew");
        flag.0.store(Interrupt::TERMINATE, Ordering::Relaxed);
        let e = check_cancelled().unwrap_err();
        assert_eq!(e.code(), SqlState::ADMIN_SHUTDOWN);
    }

    #[test]
    fn an_account_brings_its_flag_and_takes_it_along() {
        let flag = Arc::new(Interrupt::default());
        flag.0.store(Interrupt::CANCEL, Ordering::Relaxed);
        let mut account = Some(Arc::new(memory::Total::default()).account());
        let asked = account.clone().expect("just made");
        {
            let _inside = memory::enter(&mut account);
            assert!(check_cancelled().is_ok(), "no statement may run yet");
        }
        let asks = within(flag, &asked);
        assert!(
            check_cancelled().is_ok(),
            "between turns no session is stopped"
        );
        {
            let _inside = memory::enter(&mut account);
            let e = check_cancelled().unwrap_err();
            assert_eq!(e.code(), SqlState::QUERY_CANCELED);
            drop(asks);
            assert!(check_cancelled().is_ok(), "the session is at its end");
        }
        assert!(account.is_some(), "it is given back");
    }
}
