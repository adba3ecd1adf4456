//! What can go wrong with bytes on disk, one kind per reaction of the caller.
//!
//! | kind | reaction |
//! |---|---|
//! | `DiskFull` | keep the commits, refuse new writes (53100), try the same call again when there is room |
//! | `OutOfFiles` | the same: sockets took the last descriptor |
//! | `Corrupt` | refuse to start; the message says where and what to do |
//! | `Locked`, `NotOurs`, `NewerFormat` | refuse to start; another directory or another program is meant |
//! | `Missing` | the log no longer reaches back that far: bootstrap from a checkpoint |
//! | `TooLarge` | refuse the one commit (54000) |
//! | `Apply` | the receiver of recovered bytes refused them: refuse to start |
//! | `Io` | stop the process: after a failed write or sync nobody knows what is on disk |

use base::{Position, SqlState};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// `Result` with [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// An error of log, checkpoint or data directory.
#[derive(Debug)]
pub enum Error {
    /// No space left. Nothing of the failed call counts; the same call may be made again.
    DiskFull { path: PathBuf },
    /// Too many files are open. Nothing of the failed call counts; the same call may be made again.
    OutOfFiles { path: PathBuf },
    /// Bytes that were durable are not what was written.
    Corrupt {
        file: PathBuf,
        offset: u64,
        reason: String,
    },
    /// Another process works on this directory.
    Locked { path: PathBuf },
    /// Not a data directory of Canon, or of another cluster than was asked for.
    NotOurs { path: PathBuf, reason: String },
    /// Written by a newer program.
    NewerFormat {
        path: PathBuf,
        found: u64,
        known: u64,
    },
    /// The log begins after the wanted position.
    Missing { wanted: Position, oldest: Position },
    /// A commit above a limit of the format.
    TooLarge { bytes: u64, limit: u64 },
    /// The receiver of recovered data refused it.
    Apply(base::Error),
    /// Any other failure of the disk.
    Io {
        op: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}

impl Error {
    /// The kind that fits a failed operation on `path`.
    pub(crate) fn io(op: &'static str, path: &Path, source: io::Error) -> Error {
        match source.kind() {
            _ if env::disk::is_out_of_files(&source) => Error::OutOfFiles {
                path: path.to_owned(),
            },
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::DiskFull {
                path: path.to_owned(),
            },
            _ => Error::Io {
                op,
                path: path.to_owned(),
                source,
            },
        }
    }

    /// A failed sync: always fatal, a full disk included, since earlier writes may be gone from the page cache. (Where a directory could not
    /// even be opened nothing was synced, and nothing is gone.)
    pub(crate) fn sync(path: &Path, source: io::Error) -> Error {
        if env::disk::is_out_of_files(&source) {
            return Error::io("sync", path, source);
        }
        Error::Io {
            op: "sync",
            path: path.to_owned(),
            source,
        }
    }

    pub(crate) fn corrupt(file: &Path, offset: u64, reason: impl Into<String>) -> Error {
        Error::Corrupt {
            file: file.to_owned(),
            offset,
            reason: reason.into(),
        }
    }

    /// Whether the same call can succeed later in this process.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Error::DiskFull { .. } | Error::OutOfFiles { .. })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::DiskFull { path } => {
                write!(f, "no space left on the disk of {}", path.display())
            }
            Error::OutOfFiles { path } => {
                write!(f, "too many files are open to open {}", path.display())
            }
            Error::Corrupt {
                file,
                offset,
                reason,
            } => write!(
                f,
                "{} is damaged at offset {offset}: {reason}. These bytes were once durable, so the start stops here and \
                 nothing was changed. Copy the whole data directory aside first; then restore it from a backup or let this \
                 node copy itself from a replica. Check the disk before using it again",
                file.display()
            ),
            Error::Locked { path } => write!(
                f,
                "another process is using the data directory {}; stop it, or start with another directory",
                path.display()
            ),
            Error::NotOurs { path, reason } => write!(f, "{}: {reason}", path.display()),
            Error::NewerFormat { path, found, known } => write!(
                f,
                "{} was written in format {found}, this program knows formats up to {known}; start a newer program",
                path.display()
            ),
            Error::Missing { wanted, oldest } => {
                write!(
                    f,
                    "the log begins after {oldest}, commits after {wanted} are wanted"
                )
            }
            Error::TooLarge { bytes, limit } => {
                write!(f, "a commit of {bytes} bytes exceeds the limit of {limit}")
            }
            Error::Apply(e) => write!(f, "recovered data was refused: {e}"),
            Error::Io { op, path, source } => {
                write!(f, "{op} of {} failed: {source}", path.display())
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl From<Error> for base::Error {
    fn from(error: Error) -> base::Error {
        let code = match &error {
            Error::DiskFull { .. } => SqlState::DISK_FULL,
            Error::OutOfFiles { .. } => SqlState::SYSTEM_ERROR,
            Error::Corrupt { .. } => SqlState::DATA_CORRUPTED,
            Error::Locked { .. } => SqlState::OBJECT_IN_USE,
            Error::TooLarge { .. } => SqlState::PROGRAM_LIMIT_EXCEEDED,
            Error::NotOurs { .. } | Error::NewerFormat { .. } | Error::Missing { .. } => {
                SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE
            }
            Error::Io { .. } => SqlState::IO_ERROR,
            Error::Apply(inner) => return inner.clone(),
        };
        base::Error::new(code, error.to_string())
    }
}
