//! A data directory in which a server may be at work, read from outside: what `copy` and `backup` have in common.
//!
//! The files change while they are read. A checkpoint or a segment may go, and a segment may be recycled: its bytes are then another segment's. Each
//! reader therefore reads in the order that `copy` explains, looks at the listing again after it has read, and begins anew when something has changed
//! ([`Broken::Changed`]).
//!
//! Left out on purpose: the lock of the directory, which the server holds, and any write.

use crate::checkpoint::{CheckpointReader, file_name, parse_name};
use crate::error::{Error, Result};
use crate::reader::LogReader;
use crate::segment::{LogDir, LogOptions, SegmentName};
use crate::source::{SegmentBytes, SegmentSource};
use base::Position;
use env::{Disk, Overlay};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Times that a reader begins anew.
const TRIES: u32 = 20;

/// Why a try ended.
pub(crate) enum Broken {
    /// The directory has changed under the reader.
    Changed,
    Failed(Error),
}

impl From<Error> for Broken {
    fn from(e: Error) -> Broken {
        Broken::Failed(e)
    }
}

/// The directory, and a function that is told of bytes that were read.
#[derive(Clone, Copy)]
pub(crate) struct InUse<'a> {
    pub disk: &'a Arc<dyn Disk>,
    pub dir: &'a Path,
    pub progress: &'a dyn Fn(u64),
}

/// The log above a position, as far as it was written.
pub(crate) struct LogInUse {
    pub dir: Arc<LogDir>,
    /// Oldest first.
    pub names: Vec<SegmentName>,
    /// Offset behind the last whole group of the last segment.
    end: u64,
    /// The last position; that of the checkpoint if the log has nothing above it.
    pub last: Position,
}

impl LogInUse {
    /// How many bytes of a segment are the log's.
    pub fn upto(&self, name: SegmentName) -> u64 {
        match self.names.last() == Some(&name) {
            true => self.end,
            false => u64::MAX,
        }
    }

    /// Whether these segments are still there.
    pub fn has(&self, names: &[SegmentName]) -> Result<bool> {
        let now = self.dir.list()?;
        Ok(names.iter().all(|n| now.contains(n)))
    }
}

impl InUse<'_> {
    /// Runs until a try gives something; `run` is told how often it began anew.
    pub fn until_unchanged<T>(&self, mut run: impl FnMut(u32) -> Result<Option<T>>) -> Result<T> {
        for tries in 0..TRIES {
            if let Some(done) = run(tries)? {
                return Ok(done);
            }
        }
        Err(Error::NotOurs {
            path: self.dir.to_owned(),
            reason: format!(
                "has changed under the copy {TRIES} times; try again when less is done there"
            ),
        })
    }

    /// The newest checkpoint. Its handle stays good if the file goes.
    pub fn newest_checkpoint(&self) -> std::result::Result<Option<CheckpointReader>, Broken> {
        let dir = self.dir.join("checkpoint");
        let names = match self.disk.list(&dir) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            names => names.map_err(|e| Error::io("listing", &dir, e))?,
        };
        let Some(number) = names.iter().filter_map(|n| parse_name(n)).max() else {
            return Ok(None);
        };
        match CheckpointReader::open(&**self.disk, &dir.join(file_name(number))) {
            Ok(c) => Ok(Some(c)),
            Err(e) if is_gone(&e) => Err(Broken::Changed),
            Err(e) => Err(e.into()),
        }
    }

    /// The segments that are needed above `start`, those from number `from` on too if they are there, and where they end now.
    pub fn log(
        &self,
        cluster: u128,
        start: Position,
        from: u64,
    ) -> std::result::Result<LogInUse, Broken> {
        // Opened so it changes nothing there.
        let over: Arc<dyn Disk> = Arc::new(Overlay::new(self.disk.clone()));
        let dir = LogDir::open(over, &self.dir.join("wal"), cluster, LogOptions::default());
        // A spare file that was listed may have become a segment.
        let dir = dir.map_err(|e| match is_gone(&e) {
            true => Broken::Changed,
            false => e.into(),
        })?;
        let names = dir.list()?;
        let needed = names.iter().rposition(|n| n.first <= start.next());
        let wanted = names.iter().position(|n| n.number >= from);
        let first = needed.unwrap_or(0).min(wanted.unwrap_or(usize::MAX));
        let names = names[first..].to_vec();
        let mut log = LogInUse {
            dir: dir.clone(),
            names,
            end: 0,
            last: start,
        };
        if log.names.is_empty() {
            return Ok(log);
        }
        let needed = Needed {
            names: log.names.clone(),
            log: dir,
        };
        match self.end(&needed, cluster, start) {
            Ok((end, position)) => (log.end, log.last) = (end, position),
            Err(e) if is_gone(&e) || !log.has(&log.names)? => return Err(Broken::Changed),
            Err(e) => return Err(e.into()),
        }
        Ok(log)
    }

    /// Reads the log to where it ends now: the offset in the last segment, and the position.
    fn end(&self, needed: &Needed, cluster: u128, start: Position) -> Result<(u64, Position)> {
        let last = needed.names.last().expect("there are some");
        let path = needed.log.path(*last);
        let mut damaged = None;
        let reader = loop {
            let mut reader = LogReader::open(Arc::new(needed.clone()), cluster, start)?;
            match self.read_to_end(&mut reader) {
                Ok(()) => break reader,
                // Half-read while it was written, or damaged: what is damaged is so again.
                Err(Error::Corrupt { file, offset, .. })
                    if file == path && damaged != Some(offset) =>
                {
                    damaged = Some(offset);
                }
                Err(e) => return Err(e),
            }
        };
        let at = reader.at();
        let offset = match at.segment == last.number {
            true => at.offset,
            // Its header was not there yet.
            false => 0,
        };
        Ok((offset, reader.last().max(start)))
    }

    fn read_to_end(&self, reader: &mut LogReader) -> Result<()> {
        while let Some(g) = reader.next_group()? {
            (self.progress)(g.header().len());
        }
        Ok(())
    }
}

/// Whether a file went while it was looked for, or what was read is not of the file any more.
pub(crate) fn is_gone(e: &Error) -> bool {
    match e {
        Error::Io { source, .. } => source.kind() == io::ErrorKind::NotFound,
        Error::Missing { .. } => true,
        _ => false,
    }
}

/// Some segments of a log, as they were listed.
#[derive(Clone)]
struct Needed {
    names: Vec<SegmentName>,
    log: Arc<LogDir>,
}

impl SegmentSource for Needed {
    fn segments(&self) -> Result<Vec<SegmentName>> {
        Ok(self.names.clone())
    }

    fn open(&self, name: SegmentName) -> Result<Box<dyn SegmentBytes>> {
        SegmentSource::open(&*self.log, name)
    }

    fn describe(&self, name: SegmentName) -> PathBuf {
        self.log.path(name)
    }
}
