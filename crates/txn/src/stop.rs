//! How a statement ends that gives no result.
//!
//! ```text
//! Stop::Blocked    it waits for a lock: take_wait().await     ──▶ undo it, run it again
//! Stop::Restart    it met a version above its snapshot        ──▶ undo it, run it again on a newer snapshot
//! Stop::Error(e)   the client is told                         ──▶ undo it, the transaction has failed
//! ```
//! The first two are control flow and never leave the server. They are values of their own, not errors: nothing turns a `Stop` into
//! an [`Error`] silently, so the compiler finds each caller that handles errors only. An error becomes a stop by `?`.
//!
//! ```compile_fail
//! fn told(stop: txn::Stop) -> base::Error {
//!     stop.into()
//! }
//! ```
//!
//! Left out on purpose: `From<Stop> for Error`. Code that takes no locks and meets no other writer (a CHECK, a generated value)
//! says so with [`Stop::only_error`].

use base::Error;
use std::fmt;

/// How a statement ends that gives no result. See the module.
#[derive(Clone, Debug)]
pub enum Stop {
    /// It waits for a lock, which [`Txn::take_wait`](crate::Txn::take_wait) gives.
    Blocked,
    /// It met a version newer than its snapshot, which `begin_statement` moves.
    Restart,
    /// It has failed.
    Error(Error),
}

/// `Result` of what may stop a statement.
pub type Result<T, E = Stop> = std::result::Result<T, E>;

impl Stop {
    /// The error, of code that can meet neither of the other two; XX000 where it does.
    pub fn only_error(self) -> Error {
        match self {
            Stop::Error(e) => e,
            Stop::Blocked => Error::internal("a wait for a lock where none is taken"),
            Stop::Restart => Error::internal("a newer version where no row is changed"),
        }
    }

    /// The error, if it is one.
    pub fn error(&self) -> Option<&Error> {
        match self {
            Stop::Error(e) => Some(e),
            Stop::Blocked | Stop::Restart => None,
        }
    }

    /// The same stop, with an error changed.
    pub fn map_error(self, f: impl FnOnce(Error) -> Error) -> Stop {
        match self {
            Stop::Error(e) => Stop::Error(f(e)),
            again => again,
        }
    }
}

impl From<Error> for Stop {
    #[inline]
    fn from(e: Error) -> Stop {
        Stop::Error(e)
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stop::Blocked => f.write_str("waits for a lock"),
            Stop::Restart => f.write_str("the snapshot must move"),
            Stop::Error(e) => e.fmt(f),
        }
    }
}
