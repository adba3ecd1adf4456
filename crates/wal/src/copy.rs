//! A copy of a data directory in which a server may be at work: a backup.
//!
//! Copying the files in any order is not safe. A segment that is being written can be read so that an older part lacks what a newer one has.
//! The checkpoint can be newer than the log that was copied before it. A segment can be recycled between the listing and the reading. None of
//! that goes unnoticed (`verify`, and a start, refuse such a copy), but a backup should be good. What makes this one good is the order:
//!
//! ```text
//! 1  the small files, the anchor first          so the copy's log reaches what its anchor says
//! 2  the newest checkpoint is opened            its handle stays good if the file goes
//! 3  the segments are listed and copied         so the log reaches the checkpoint's end, which was durable before 2; all but the last are
//!                                               whole; of the last, what can be read group by group, and zeros behind it
//! 4  the checkpoint is copied
//! 5  the small files are looked at again        they name terms and states: if one has changed, all of it begins anew
//! 6  CANON_VERSION is written                   without it there is no data directory
//! ```
//! A segment that has gone from the listing after it was read may have been recycled under our eyes: then all of it begins anew, too, with the
//! newer checkpoint that made it superfluous. Whatever was durable when the copy began is in it; of what came meanwhile a prefix.
//!
//! Left out on purpose: log below the checkpoint, which only replicas that are away need, spares, what was set aside, and the addresses of other nodes
//! (`CANON_NODES`).

use crate::checkpoint::{CheckpointReader, file_name};
use crate::error::{Error, Result};
use crate::in_use::{Broken, InUse, is_gone};
use crate::segment::{LogDir, SEGMENT_HEADER, SegmentName};
use crate::source::SegmentSource;
use base::Position;
use env::{Disk, OpenMode};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes copied at once.
const PART: usize = 1 << 20;

const VERSION: &str = "CANON_VERSION";
/// Raised while a server runs; all other small files say what kind of history is here.
const ANCHOR: &str = "CANON_ANCHOR";
/// Whom a node tells of its term. A copy that is started for a look, and begins a term, must not depose those.
const NODES: &str = "CANON_NODES";

/// What was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    pub bytes: u64,
    pub segments: usize,
    /// The last position in the copy.
    pub last: Position,
    /// How often it began anew.
    pub tries: u32,
}

/// Copies the directory `from` to `to`, which is absent or empty. `progress` is told of bytes.
pub fn copy_dir(
    disk: &Arc<dyn Disk>,
    from: &Path,
    to: &Path,
    progress: &dyn Fn(u64),
) -> Result<Copied> {
    disk.create_dir_all(to)
        .map_err(|e| Error::io("creation", to, e))?;
    let there = disk.list(to).map_err(|e| Error::io("listing", to, e))?;
    if !there.is_empty() {
        return Err(Error::NotOurs {
            path: to.to_owned(),
            reason: "is not empty: a copy needs a folder of its own".into(),
        });
    }
    let source = InUse {
        disk,
        dir: from,
        progress,
    };
    let copy = Copy { source, to };
    source.until_unchanged(|tries| match copy.run() {
        Err(Broken::Changed) => copy.clear().map(|()| None),
        Err(Broken::Failed(e)) => Err(e),
        Ok(done) => Ok(Some(Copied { tries, ..done })),
    })
}

struct Copy<'a> {
    source: InUse<'a>,
    to: &'a Path,
}

type Small = Vec<(String, Vec<u8>)>;

impl Copy<'_> {
    fn run(&self) -> std::result::Result<Copied, Broken> {
        let small = self.small()?;
        let version = small.iter().find(|f| f.0 == VERSION);
        let Some((_, version)) = version else {
            let reason = "there is no CANON_VERSION here: not a data directory of Canon".into();
            let path = self.source.dir.to_owned();
            return Err(Error::NotOurs { path, reason }.into());
        };
        if small.iter().any(|f| f.0 == crate::transfer::MARK) {
            let reason =
                "its history is being replaced; start the server, and copy when it serves".into();
            let path = self.source.dir.to_owned();
            return Err(Error::NotOurs { path, reason }.into());
        }
        let cluster = crate::data_dir::parse_version(&self.source.dir.join(VERSION), version)?;
        let checkpoint = self.source.newest_checkpoint()?;
        let start = checkpoint
            .as_ref()
            .map_or(Position::ZERO, |c| c.manifest().start);
        let mut done = self.log(cluster, start)?;
        if let Some(c) = &checkpoint {
            if done.last < c.manifest().end {
                return Err(Broken::Changed);
            }
            done.bytes += self.checkpoint(c)?;
        }
        if self.small_but_anchor()? != without_anchor(&small) {
            return Err(Broken::Changed);
        }
        for (name, bytes) in small.iter().filter(|f| f.0 != VERSION) {
            self.write(name, bytes)?;
        }
        self.sync_dir(self.to)?;
        self.write(VERSION, version)?;
        self.sync_dir(self.to)?;
        Ok(done)
    }

    /// The small files, the anchor first.
    fn small(&self) -> Result<Small> {
        let read = |name: &str| {
            let path = self.source.dir.join(name);
            match self.source.disk.read(&path) {
                Ok(bytes) => Ok(Some((name.to_owned(), bytes))),
                Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(e) => Err(Error::io("reading", &path, e)),
            }
        };
        let mut small: Small = read(ANCHOR)?.into_iter().collect();
        small.extend(self.small_but_anchor()?);
        Ok(small)
    }

    fn small_but_anchor(&self) -> Result<Small> {
        let names = self.source.disk.list(self.source.dir);
        let names = names.map_err(|e| Error::io("listing", self.source.dir, e))?;
        let mut small = Small::new();
        for name in names {
            let is_small = name.starts_with("CANON_") && !name.ends_with(".tmp");
            if !is_small || name == ANCHOR || name == NODES {
                continue;
            }
            let path = self.source.dir.join(&name);
            match self.source.disk.read(&path) {
                Ok(bytes) => small.push((name, bytes)),
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(Error::io("reading", &path, e)),
            }
        }
        Ok(small)
    }

    /// Copies the segments that are needed above `start`.
    fn log(&self, cluster: u128, start: Position) -> std::result::Result<Copied, Broken> {
        let wal = self.to.join("wal");
        self.make_dir(&wal)?;
        let log = self.source.log(cluster, start, u64::MAX)?;
        let mut done = Copied {
            bytes: 0,
            segments: log.names.len(),
            last: log.last,
            tries: 0,
        };
        for name in &log.names {
            let upto = log.upto(*name);
            match self.segment(&log.dir, *name, &wal.join(name.file_name()), upto) {
                Ok(bytes) => done.bytes += bytes,
                Err(e) if is_gone(&e) => return Err(Broken::Changed),
                Err(e) => return Err(e.into()),
            }
            if !log.has(&[*name])? {
                return Err(Broken::Changed);
            }
        }
        self.sync_dir(&wal)?;
        Ok(done)
    }

    /// Copies a segment up to an offset; behind it are zeros.
    fn segment(&self, log: &LogDir, name: SegmentName, to: &Path, upto: u64) -> Result<u64> {
        let from = log.open(name)?;
        let path = log.path(name);
        let len = from.len().map_err(|e| Error::io("measuring", &path, e))?;
        if upto < SEGMENT_HEADER {
            return Ok(0);
        }
        let file = self.source.disk.open(to, OpenMode::CreateNew);
        let file = file.map_err(|e| Error::io("creation", to, e))?;
        let upto = upto.min(len);
        let (mut at, mut part) = (0, vec![0; PART]);
        while at < upto {
            let n = part.len().min(usize::try_from(upto - at).unwrap_or(PART));
            let read = from.read_at(&mut part[..n], at);
            let n = read.map_err(|e| Error::io("reading", &path, e))?;
            if n == 0 {
                return Err(Error::io("reading", &path, io::ErrorKind::NotFound.into()));
            }
            file.write_all_at(&part[..n], at)
                .map_err(|e| Error::io("writing", to, e))?;
            at += n as u64;
            (self.source.progress)(n as u64);
        }
        file.set_len(len).map_err(|e| Error::io("writing", to, e))?;
        file.sync_data().map_err(|e| Error::sync(to, e))?;
        Ok(at)
    }

    fn checkpoint(&self, from: &CheckpointReader) -> Result<u64> {
        let dir = self.to.join("checkpoint");
        self.make_dir(&dir)?;
        let to = dir.join(file_name(from.manifest().number));
        let file = self.source.disk.open(&to, OpenMode::CreateNew);
        let file = file.map_err(|e| Error::io("creation", &to, e))?;
        let mut at = 0;
        while at < from.len() {
            let part = from.read_at(at, PART)?;
            file.write_all_at(&part, at)
                .map_err(|e| Error::io("writing", &to, e))?;
            at += part.len() as u64;
            (self.source.progress)(part.len() as u64);
        }
        file.sync_data().map_err(|e| Error::sync(&to, e))?;
        self.sync_dir(&dir)?;
        Ok(at)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.to.join(name);
        let file = self.source.disk.open(&path, OpenMode::CreateNew);
        let file = file.map_err(|e| Error::io("creation", &path, e))?;
        file.write_all_at(bytes, 0)
            .map_err(|e| Error::io("writing", &path, e))?;
        file.sync_data().map_err(|e| Error::sync(&path, e))
    }

    fn make_dir(&self, dir: &Path) -> Result<()> {
        self.source
            .disk
            .create_dir_all(dir)
            .map_err(|e| Error::io("creation", dir, e))
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.source
            .disk
            .sync_dir(dir)
            .map_err(|e| Error::sync(dir, e))
    }

    /// Takes away what a try has left.
    fn clear(&self) -> Result<()> {
        for dir in [
            self.to.join("wal"),
            self.to.join("checkpoint"),
            self.to.to_owned(),
        ] {
            for name in self.source.disk.list(&dir).unwrap_or_default() {
                let path: PathBuf = dir.join(&name);
                if name != "wal" && name != "checkpoint" {
                    self.source
                        .disk
                        .remove(&path)
                        .map_err(|e| Error::io("removal", &path, e))?;
                }
            }
        }
        Ok(())
    }
}

fn without_anchor(small: &Small) -> Small {
    small.iter().filter(|f| f.0 != ANCHOR).cloned().collect()
}
