//! A node's copy made anew from another's checkpoint, and what it sets aside before.
//!
//! ```text
//! DIR/CANON_BOOTSTRAP                    this copy is being made; whatever log and checkpoints are here are void
//! DIR/checkpoint/….tmp                   the checkpoint that is arriving
//! DIR/set-aside/TERM-EPOCH.ORDER.log     groups above that position that the cluster's history does not have, one after the other
//! DIR/set-aside/TERM-EPOCH.ORDER.txt     what they were, for a person
//! DIR/set-aside/TERM-EPOCH.ORDER.ckpt    only when the log no longer reached back to the position
//! ```
//! **Making a copy**: the mark is made durable, then log and checkpoints go, then the checkpoint arrives under another name; when
//! every byte is there and every checksum holds it gets its name, and the mark goes. A crash anywhere in between leaves the mark,
//! and the next start clears the rest and begins again. So a copy is whole or not there, and nobody serves from half of one.
//!
//! **Setting aside** comes before that: the files are durable before the first byte of the log goes. Twice is no harm.
//!
//! Terms are kept when a copy is cleared: a node does not forget how new a primary it has heard of.
//!
//! Left out on purpose: giving the commits that were set aside back to the cluster. A person decides that.

use crate::checkpoint::{CheckpointReader, Manifest, file_name};
use crate::data_dir::DataDir;
use crate::error::{Error, Result};
use crate::group::Group;
use crate::reader::LogReader;
use crate::terms;
use base::Position;
use base::record::{self, RecordKind};
use env::{DiskFile, OpenMode};
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub(crate) const MARK: &str = "CANON_BOOTSTRAP";

/// Bytes of an arriving checkpoint between syncs.
const SYNC_EVERY: u64 = 8 << 20;

/// What was set aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetAside {
    /// The groups; none when there were none.
    pub file: Option<PathBuf>,
    /// What a person reads.
    pub report: PathBuf,
    /// The checkpoint, when the log no longer reached back far enough.
    pub checkpoint: Option<PathBuf>,
    pub groups: u64,
    /// Commits that wrote something, and the rows that they put or deleted.
    pub commits: u64,
    pub rows: u64,
    pub bytes: u64,
    /// Last position that was here.
    pub last: Position,
}

impl DataDir {
    /// Whether a copy was begun here and is not finished.
    pub fn is_bootstrapping(&self) -> bool {
        self.bootstrapping.load(Ordering::SeqCst)
    }

    /// Makes the directory empty of history, so that a checkpoint can be received. Nobody may use the log meanwhile.
    pub fn begin_bootstrap(&self) -> Result<()> {
        terms::replace(
            &*self.disk,
            self.path(),
            MARK,
            b"a copy is being made here\n",
        )?;
        self.bootstrapping.store(true, Ordering::SeqCst);
        self.clear()
    }

    /// Removes log and checkpoints. Only under the mark.
    pub(crate) fn clear(&self) -> Result<()> {
        let dir = self.checkpoints();
        let names = self.disk.list(&dir);
        for name in names.map_err(|e| Error::io("listing", &dir, e))? {
            let path = dir.join(name);
            self.disk
                .remove(&path)
                .map_err(|e| Error::io("removal", &path, e))?;
        }
        self.disk.sync_dir(&dir).map_err(|e| Error::sync(&dir, e))?;
        self.log().clear()
    }

    /// Begins to receive a checkpoint of this number and size. One at a time, and only while [`DataDir::is_bootstrapping`].
    pub fn receive_checkpoint(&self, number: u64, bytes: u64) -> Result<CheckpointReceiver<'_>> {
        assert!(
            self.is_bootstrapping(),
            "a checkpoint is received into an empty directory"
        );
        let temporary = self
            .checkpoints()
            .join(file_name(number))
            .with_extension("tmp");
        let file = self
            .disk
            .open(&temporary, OpenMode::Truncate)
            .map_err(|e| Error::io("creation", &temporary, e))?;
        Ok(CheckpointReceiver {
            dir: self,
            temporary,
            file,
            number,
            bytes,
            received: 0,
            unsynced: 0,
        })
    }

    /// Copies every group with commits above `after` into a file of its own and writes what they were beside it, durably; `term`
    /// is the one that began at `after`. `describe` may add a line on each group to the report. Nothing is removed yet:
    /// [`DataDir::begin_bootstrap`] comes next. Nobody may write the log meanwhile.
    pub fn set_aside(
        &self,
        term: u64,
        after: Position,
        mut describe: impl FnMut(&Group, &mut String),
    ) -> Result<SetAside> {
        let dir = self.path().join("set-aside");
        self.disk
            .create_dir_all(&dir)
            .map_err(|e| Error::io("creation", &dir, e))?;
        let name = format!("{term}-{after}");
        let open = |from| LogReader::open(self.log().clone(), self.cluster(), from);
        let (mut reader, keep_checkpoint) = match open(after) {
            Err(Error::Missing { oldest, .. }) => (open(oldest)?, true),
            other => (other?, self.log().list()?.is_empty()),
        };
        let path = dir.join(format!("{name}.log"));
        let temporary = dir.join(format!("{name}.log.tmp"));
        let file = self
            .disk
            .open(&temporary, OpenMode::Truncate)
            .map_err(|e| Error::io("creation", &temporary, e))?;
        let mut report = format!(
            "These commits were made here after position {after}, where term {term} began elsewhere, and are not part of\n\
             the cluster's history. They were set aside on the way back into the cluster; nothing else was done with them.\n\n"
        );
        let mut done = SetAside {
            file: None,
            report: dir.join(format!("{name}.txt")),
            checkpoint: None,
            groups: 0,
            commits: 0,
            rows: 0,
            bytes: 0,
            last: after,
        };
        while let Some(group) = reader.next_group()? {
            let h = *group.header();
            file.write_all_at(group.as_bytes(), done.bytes)
                .map_err(|e| Error::io("writing", &temporary, e))?;
            done.bytes += h.len();
            done.groups += 1;
            let (commits, rows) = count(&group, after);
            done.commits += commits;
            done.rows += rows;
            done.last = done.last.max(h.last);
            let _ = writeln!(
                report,
                "{} to {}: {commits} commits of {rows} rows, of term {}, {} bytes",
                h.first,
                h.last,
                h.term,
                h.len()
            );
            describe(&group, &mut report);
        }
        if done.groups > 0 {
            file.sync_data().map_err(|e| Error::sync(&temporary, e))?;
            self.disk
                .rename(&temporary, &path)
                .map_err(|e| Error::io("renaming", &temporary, e))?;
            done.file = Some(path);
        } else {
            self.disk
                .remove(&temporary)
                .map_err(|e| Error::io("removal", &temporary, e))?;
        }
        if keep_checkpoint
            && let Some(checkpoint) = self.latest_checkpoint()?
            && checkpoint.manifest().end > after
        {
            let kept = dir.join(format!("{name}.ckpt"));
            self.copy_checkpoint(&checkpoint, &kept)?;
            done.last = done.last.max(checkpoint.manifest().end);
            let _ = writeln!(
                report,
                "The log did not reach back to {after} any more. The whole state up to {} is in {}.",
                checkpoint.manifest().end,
                kept.display()
            );
            done.checkpoint = Some(kept);
        }
        let _ = writeln!(
            report,
            "\n{} commits of {} rows in {} groups, {} bytes; the last position here was {}.",
            done.commits, done.rows, done.groups, done.bytes, done.last
        );
        terms::replace(&*self.disk, &dir, &format!("{name}.txt"), report.as_bytes())?;
        self.disk
            .sync_dir(self.path())
            .map_err(|e| Error::sync(self.path(), e))?;
        Ok(done)
    }

    /// Commits and rows that were ever set aside here, as the reports say.
    pub fn set_aside_before(&self) -> Result<(u64, u64)> {
        let dir = self.path().join("set-aside");
        let names = match self.disk.list(&dir) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok((0, 0)),
            names => names.map_err(|e| Error::io("listing", &dir, e))?,
        };
        let mut sum = (0, 0);
        for name in names.iter().filter(|n| n.ends_with(".txt")) {
            let path = dir.join(name);
            let text = self.disk.read(&path);
            let text = text.map_err(|e| Error::io("reading", &path, e))?;
            let text = String::from_utf8_lossy(&text);
            let last = text.lines().last().unwrap_or("");
            let mut numbers = last.split(' ').filter_map(|w| w.parse::<u64>().ok());
            sum.0 += numbers.next().unwrap_or(0);
            sum.1 += numbers.next().unwrap_or(0);
        }
        Ok(sum)
    }

    fn copy_checkpoint(&self, from: &CheckpointReader, to: &std::path::Path) -> Result<()> {
        let file = self
            .disk
            .open(to, OpenMode::Truncate)
            .map_err(|e| Error::io("creation", to, e))?;
        let mut at = 0;
        while at < from.len() {
            let part = from.read_at(at, 1 << 20)?;
            file.write_all_at(&part, at)
                .map_err(|e| Error::io("writing", to, e))?;
            at += part.len() as u64;
        }
        file.sync_data().map_err(|e| Error::sync(to, e))
    }
}

/// Commits of a group above `after` that wrote something, and their rows. One that is not readable as records counts as a commit.
fn count(group: &Group, after: Position) -> (u64, u64) {
    let (mut heads, mut data) = (group.heads(), group.data());
    let (mut commits, mut rows) = (0, 0);
    for n in 0..group.header().count {
        let Ok(commit) = record::Commit::take(&mut heads, &mut data) else {
            return (commits + u64::from(group.header().count - n), rows);
        };
        if commit.position <= after {
            continue;
        }
        let (mut any, mut written) = (false, 0);
        for r in commit.iter() {
            any = true;
            let kind = r.map(|r| r.kind);
            written += u64::from(matches!(kind, Ok(RecordKind::Put | RecordKind::Delete)));
        }
        commits += u64::from(any);
        rows += written;
    }
    (commits, rows)
}

/// A checkpoint on its way in. Dropped unfinished, its bytes go at the next start.
pub struct CheckpointReceiver<'d> {
    dir: &'d DataDir,
    temporary: PathBuf,
    file: Arc<dyn DiskFile>,
    number: u64,
    bytes: u64,
    received: u64,
    unsynced: u64,
}

impl CheckpointReceiver<'_> {
    /// Bytes received and bytes in all.
    pub fn progress(&self) -> (u64, u64) {
        (self.received, self.bytes)
    }

    /// Writes the next bytes: they begin where the last ended.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        assert!(
            offset == self.received && offset + bytes.len() as u64 <= self.bytes,
            "bytes of a checkpoint come in order and end where it does"
        );
        self.file
            .write_all_at(bytes, offset)
            .map_err(|e| Error::io("writing", &self.temporary, e))?;
        self.received += bytes.len() as u64;
        self.unsynced += bytes.len() as u64;
        if self.unsynced >= SYNC_EVERY {
            self.unsynced = 0;
            self.file
                .sync_data()
                .map_err(|e| Error::io("sync", &self.temporary, e))?;
        }
        Ok(())
    }

    /// Reads everything back and checks it, gives the file its name and ends the bootstrap. `Corrupt`: it did not arrive as it
    /// was sent, or was damaged there; receive it again.
    pub fn finish(self) -> Result<Manifest> {
        let disk = &*self.dir.disk;
        let damaged = |reason: &str| Error::corrupt(&self.temporary, self.received, reason);
        if self.received != self.bytes {
            return Err(damaged("the checkpoint has not arrived whole"));
        }
        self.file
            .sync_data()
            .map_err(|e| Error::io("sync", &self.temporary, e))?;
        let reader = CheckpointReader::open(disk, &self.temporary)?;
        let manifest = *reader.manifest();
        if manifest.cluster != self.dir.cluster() || manifest.number != self.number {
            return Err(damaged(
                "the checkpoint is another one than was announced, or of another cluster",
            ));
        }
        for section in reader.sections() {
            reader.read_section(section)?;
        }
        for chunk in reader.chunks() {
            reader.read_chunk(chunk)?;
        }
        drop(reader);
        let checkpoints = self.dir.checkpoints();
        disk.rename(&self.temporary, &checkpoints.join(file_name(self.number)))
            .map_err(|e| Error::io("renaming", &self.temporary, e))?;
        disk.sync_dir(&checkpoints)
            .map_err(|e| Error::sync(&checkpoints, e))?;
        let mark = self.dir.path().join(MARK);
        disk.remove(&mark)
            .map_err(|e| Error::io("removal", &mark, e))?;
        disk.sync_dir(self.dir.path())
            .map_err(|e| Error::sync(self.dir.path(), e))?;
        self.dir.bootstrapping.store(false, Ordering::SeqCst);
        Ok(manifest)
    }
}
