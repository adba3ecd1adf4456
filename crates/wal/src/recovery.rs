//! The way back: the newest checkpoint, then every group of the log after its start, delivered to a [`RecoverySink`].
//!
//! ```text
//! begin ─ sections, in order ─ chunks of rows, from several threads at once ─ rows_done ─ groups, in log order
//! ```
//! The receiver keeps, per key, the entry with the newest position; so chunks may come in any order and groups may be handed on
//! to threads by key. Between the checkpoint's start and its end a row may come from both: the newest position wins there too.
//!
//! Refused here: a checkpoint that is not whole, a log that does not reach back to the checkpoint's start or ends before its end,
//! and damage inside the log (`reader`). A torn tail is cut and reported. Nothing on disk is changed: that is
//! [`crate::LogWriter::resume`]'s, when the caller has accepted the result.
//!
//! Left out on purpose: what bytes mean, and which thread applies a group.

use crate::checkpoint::{Manifest, RowChunk};
use crate::data_dir::DataDir;
use crate::error::{Error, Result};
use crate::group::Group;
use crate::reader::{CutTail, LogReader};
use crate::source::SegmentSource;
use crate::writer::LogEnd;
use base::Position;
use env::fault;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Receives what was on disk. An error ends the recovery and is passed on.
pub trait RecoverySink: Sync {
    /// There is a checkpoint; this is what it says of itself. Not called without one.
    fn begin(&self, manifest: &Manifest) -> Result<()>;

    /// A section of the checkpoint, in the order written, before any rows.
    fn section(&self, tag: u32, bytes: &[u8]) -> Result<()>;

    /// A chunk of rows. Called from several threads at once.
    fn rows(&self, chunk: &RowChunk) -> Result<()>;

    /// All rows of the checkpoint were delivered.
    fn rows_done(&self) -> Result<()> {
        Ok(())
    }

    /// A group of the log, in log order, from one thread. Its first commits may be at or below `after`: those are in the
    /// checkpoint or older than what is there.
    fn group(&self, group: Group, after: Position) -> Result<()>;
}

/// How far a recovery is; read by whoever prints the progress line.
#[derive(Debug, Default)]
pub struct Progress {
    total: AtomicU64,
    done: AtomicU64,
    rows: AtomicU64,
    commits: AtomicU64,
}

impl Progress {
    /// Bytes to read, as far as known (the unused end of the last segment counts until it is reached).
    pub fn total_bytes(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Bytes read.
    pub fn done_bytes(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Rows delivered from the checkpoint.
    pub fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// Commits delivered from the log.
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }
}

/// What a recovery found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The checkpoint used.
    pub checkpoint: Option<Manifest>,
    /// Position of the last commit; what follows must be above.
    pub last: Position,
    /// Greatest *published* in the log's groups (every commit recovered is durable and counts as decided from now on).
    pub published: Position,
    /// Groups read from the log.
    pub groups: u64,
    /// Commits in them.
    pub commits: u64,
    /// Where the writer goes on.
    pub end: LogEnd,
    /// What was cut off the log, for the report.
    pub cut: Option<CutTail>,
}

/// Reads everything back. `workers` threads read and deliver the checkpoint's chunks; with 1 all happens on this thread.
pub fn recover(
    dir: &DataDir,
    sink: &dyn RecoverySink,
    workers: usize,
    progress: &Progress,
) -> Result<Recovered> {
    let checkpoint = dir.latest_checkpoint()?;
    let log_bytes = log_bytes(dir)?;
    let checkpoint_bytes = checkpoint.as_ref().map_or(0, |c| c.len());
    progress
        .total
        .store(checkpoint_bytes + log_bytes, Ordering::Relaxed);
    if let Some(checkpoint) = &checkpoint {
        sink.begin(checkpoint.manifest())?;
        for section in checkpoint.sections() {
            sink.section(section.tag, &checkpoint.read_section(section)?)?;
        }
        let next = AtomicUsize::new(0);
        let failure: Mutex<Option<Error>> = Mutex::new(None);
        env::spawn::crew(workers, |_| {
            while failure.lock().is_none()
                && let Some(chunk) = checkpoint
                    .chunks()
                    .get(next.fetch_add(1, Ordering::Relaxed))
            {
                match checkpoint
                    .read_chunk(chunk)
                    .and_then(|rows| sink.rows(&rows))
                {
                    Ok(()) => {
                        progress.done.fetch_add(chunk.len, Ordering::Relaxed);
                        progress
                            .rows
                            .fetch_add(u64::from(chunk.entries), Ordering::Relaxed);
                    }
                    Err(error) => {
                        failure.lock().get_or_insert(error);
                    }
                }
            }
        });
        if let Some(error) = failure.into_inner() {
            return Err(error);
        }
        sink.rows_done()?;
    }
    progress.done.store(checkpoint_bytes, Ordering::Relaxed);
    fault::point("recovery.after_checkpoint");

    let manifest = checkpoint.as_ref().map(|c| *c.manifest());
    let start = manifest.map_or(Position::ZERO, |m| m.start);
    let mut reader = LogReader::open(dir.log().clone(), dir.cluster(), start).map_err(|e| match e {
        Error::Missing { wanted, oldest } => {
            let gap = format!("the log begins after position {oldest}, the checkpoint ends its part at {wanted}");
            Error::corrupt(&dir.path().join("wal"), 0, gap)
        }
        other => other,
    })?;
    let (mut groups, mut commits, mut published) = (0, 0, Position::ZERO);
    while let Some(group) = reader.next_group()? {
        groups += 1;
        commits += u64::from(group.header().count);
        published = published.max(group.header().published);
        progress
            .done
            .fetch_add(group.header().len(), Ordering::Relaxed);
        progress
            .commits
            .fetch_add(u64::from(group.header().count), Ordering::Relaxed);
        sink.group(group, start)?;
    }
    fault::point("recovery.after_log");
    let end = reader.end();
    if let Some(manifest) = manifest.filter(|m| m.end > end.last) {
        let lost = format!(
            "the log ends at position {}, but the checkpoint was finished when {} was durable; \
             put the missing segments back, or make the replica the primary that has them, or copy the directory of another node (canon copy)",
            end.last, manifest.end
        );
        let (file, offset) = match &end.segment {
            Some((name, offset, _)) => (dir.log().describe(*name), *offset),
            None => (dir.path().join("wal"), 0),
        };
        return Err(Error::corrupt(&file, offset, lost));
    }
    progress
        .done
        .store(progress.total_bytes(), Ordering::Relaxed);
    Ok(Recovered {
        checkpoint: manifest,
        last: end.last,
        published,
        groups,
        commits,
        end,
        cut: reader.cut().cloned(),
    })
}

/// Bytes of all segments.
fn log_bytes(dir: &DataDir) -> Result<u64> {
    let mut bytes = 0;
    for name in dir.log().list()? {
        bytes += dir
            .log()
            .open(name)?
            .len()
            .map_err(|e| Error::io("measuring", &dir.log().path(name), e))?;
    }
    Ok(bytes)
}
