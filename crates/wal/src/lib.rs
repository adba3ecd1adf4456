//! Bytes on disk: the log in segments and groups, checkpoints beside it, and the way back from both at a start.
//!
//! ```text
//! commits ─ LogWriter::append_group, sync ─▶ wal/…-….wal ─┐
//! rows    ─ CheckpointWriter::put, finish ─▶ checkpoint/….ckpt ─┴─ recover ─▶ RecoverySink
//!                                            wal/…-….wal ─ LogReader::follow ─▶ replicas
//! ```
//! This crate knows positions and opaque commits of two parts, heads and data (`base::record` knows what is in them). It has no
//! thread and no lock on the way of a group: who flushes, when, and what is then published is `node`'s.
//! The bytes are drawn in docs/design/log-format.md and guarded by `tests/format_is_stable.rs`.
//!
//! Read in this order: [`group`] (the unit), [`segment`] (files), [`writer`], [`reader`] (where a log ends), [`checkpoint`],
//! [`data_dir`], [`anchor`], [`recovery`], [`transfer`] (a copy of another node's), [`aside`] (what was set aside, read back), [`archive`], [`archive_disk`],
//! [`around`] (what shows that a log goes on), [`verify`] (all of it read at once, to find what is wrong), [`copy`] (a copy of a directory in use), [`backup`] (the same into an archive), [`restore`] (a directory from an archive), [`retention`] (when a backup is due, and what goes), [`names`] (in an archive).

pub mod anchor;
pub mod archive;
pub mod archive_disk;
pub mod around;
pub mod aside;
pub mod backup;
mod bytes;
pub mod checkpoint;
pub mod copy;
pub mod data_dir;
pub mod error;
pub mod group;
mod in_use;
mod marks;
pub mod names;
pub mod reader;
pub mod recovery;
pub mod restore;
pub mod retention;
pub mod segment;
pub mod source;
mod terms;
pub mod transfer;
pub mod verify;
pub mod writer;

pub use anchor::{Anchor, Reach};
pub use archive::{Archive, Objects};
pub use archive_disk::ArchiveDisk;
pub use around::Around;
pub use checkpoint::{CheckpointReader, CheckpointWriter, Entry, Manifest, RowChunk};
pub use data_dir::{DataDir, DirOptions};
pub use error::{Error, Result};
pub use group::{Group, GroupHeader, MAX_GROUP};
pub use marks::{Known, Life};
pub use reader::{CutTail, LogReader};
pub use recovery::{Progress, Recovered, RecoverySink, recover};
pub use segment::{LogDir, LogOptions, SegmentName};
pub use source::{SegmentBytes, SegmentSource};
pub use transfer::{CheckpointReceiver, SetAside};
pub use writer::{Appended, Commit, LogCommit, LogEnd, LogPoint, LogWriter};

/// Every fault point of this crate, for crash tests (`env::fault`).
pub const FAULT_POINTS: &[&str] = &[
    "dir.create.before_rename",
    "dir.create.after_rename",
    "wal.segment.fill",
    "wal.segment.before_rename",
    "wal.segment.after_rename",
    "wal.roll.before_create",
    "wal.before_write",
    "wal.after_write",
    "wal.before_sync",
    "wal.after_sync",
    "wal.resume.after_sync",
    "wal.prune.before_sync",
    "checkpoint.write",
    "checkpoint.before_sync",
    "checkpoint.before_rename",
    "checkpoint.after_rename",
    "checkpoint.after_sync",
    "checkpoint.prune.before_sync",
    "recovery.after_checkpoint",
    "recovery.after_log",
    "wal.anchor.before_write",
    "wal.anchor.before_sync",
];
