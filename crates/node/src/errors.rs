//! Errors of the log and of a node that ends, with their SQLSTATE.
//!
//! Left out on purpose: errors of statements, which `txn` and `sql` make.

use base::{Error, SqlState};

/// An error of the log or the data directory, as clients see it.
pub(crate) fn failed(e: wal::Error) -> Error {
    let code = match &e {
        wal::Error::DiskFull { .. } => SqlState::DISK_FULL,
        wal::Error::Corrupt { .. } => SqlState::DATA_CORRUPTED,
        wal::Error::Apply(inner) => return inner.clone(),
        wal::Error::Locked { .. } => SqlState::OBJECT_IN_USE,
        _ => SqlState::IO_ERROR,
    };
    Error::new(code, e.to_string())
}

/// 57P01: the node ends.
pub(crate) fn stopping() -> Error {
    let what = "the database system is shutting down";
    Error::new(SqlState::ADMIN_SHUTDOWN, what)
}
