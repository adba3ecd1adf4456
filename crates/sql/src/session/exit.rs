//! How a message of a client ends that gives no result here.
//!
//! ```text
//! Exit::Elsewhere     the node is not fresh in time: to be run at another; nothing of it has run here
//! Exit::Forward(e)    it may not run here: to be run at the primary, or the client is told `e`
//! Exit::Error(e)      the client is told
//! ```
//! The server takes the first two to the primary where there is a way; where there is none, [`Exit::here`] says what the client is told.
//! An error becomes an exit by `?`; the other direction has to be written, so that no statement ends as an error that should have gone
//! elsewhere.
//!
//! Left out on purpose: waits for locks and runs on a newer snapshot (`txn::Stop`), which the statement loop keeps for itself.

use base::{Error, SqlState};
use std::fmt;

/// How a message ends that gives no result here. See the module.
///
/// ```compile_fail
/// fn told(exit: sql::session::Exit) -> base::Error {
///     exit.into()
/// }
/// ```
#[derive(Clone, Debug)]
pub enum Exit {
    Elsewhere,
    Forward(Error),
    Error(Error),
}

impl Exit {
    /// Whether it is to run at another node.
    pub fn is_for_others(&self) -> bool {
        match self {
            Exit::Elsewhere | Exit::Forward(_) => true,
            Exit::Error(_) => false,
        }
    }

    /// What the client is told, where it runs nowhere else.
    pub fn here(self) -> Error {
        match self {
            Exit::Elsewhere => too_stale(),
            Exit::Forward(e) | Exit::Error(e) => e,
        }
    }

    /// Of what is here and nowhere else: 57014 where it is not fresh in time.
    pub fn never_elsewhere(self) -> Exit {
        match self {
            Exit::Elsewhere => too_stale().into(),
            other => other,
        }
    }
}

impl From<Error> for Exit {
    #[inline]
    fn from(e: Error) -> Exit {
        Exit::Error(e)
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.clone().here().fmt(f)
    }
}

/// 25006 for what may run at the primary only.
pub(super) fn at_primary_only(what: &str) -> Error {
    Error::new(
        SqlState::READ_ONLY_SQL_TRANSACTION,
        format!("cannot execute {what} in a read-only transaction"),
    )
    .hint("Run the statement alone, or at the primary.")
}

/// 57014: what the node shows is not as fresh as the read should be, and did not become so in time.
pub(super) fn too_stale() -> Error {
    Error::new(
        SqlState::QUERY_CANCELED,
        "canceling statement due to canon.read_timeout",
    )
    .detail("What this replica shows is not as new as canon.read_consistency asks for.")
}
