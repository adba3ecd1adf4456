//! The archive: finished segments and checkpoints of a primary, copied to another place, and read from there when the primary's own
//! directory does not reach back far enough.
//!
//! ```text
//! CLUSTER/TERM/wal/NUMBER-FIRST.wal         a finished segment, byte for byte
//! CLUSTER/TERM/checkpoint/….ckpt            the newest two checkpoints of that term's primary
//! ```
//! Each node cuts its log into segments in its own way, and a term has one primary; so the segments under a term are one node's, and
//! follow each other as they do in its directory. A segment is finished when the next one was begun: then it is never written again.
//!
//! The bytes are those of the log, with the log's checksums and chain; [`LogReader`](crate::LogReader) reads them as it reads a
//! directory, and finds in the same way what is damaged or cut short.
//!
//! Left out on purpose: removing segments from the archive (its owner does, oldest first), and going on from one term's
//! segments to another's.

use crate::checkpoint::{CheckpointReader, file_name, parse_name};
use crate::error::{Error, Result};
use crate::segment::{LogDir, SEGMENT_HEADER, SegmentHeader, SegmentName};
use crate::source::{SegmentBytes, SegmentSource};
use base::Position;
use env::{Disk, OpenMode};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where objects lie: names with slashes, contents that are written once and whole.
pub trait Objects: Send + Sync {
    /// Writes an object, whole and durable, or not at all; one of that name is replaced.
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()>;

    /// Reads at most `buf.len()` bytes at `offset`; fewer near the end, 0 at it.
    fn read(&self, name: &str, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Length of an object.
    fn len(&self, name: &str) -> io::Result<u64>;

    /// Names of the objects right below `folder`, without it; none when there is no such folder.
    fn list(&self, folder: &str) -> io::Result<Vec<String>>;

    /// Removes an object.
    fn remove(&self, name: &str) -> io::Result<()>;
}

/// Objects as files below a directory.
pub struct Files {
    disk: Arc<dyn Disk>,
    root: PathBuf,
}

impl Files {
    pub fn new(disk: Arc<dyn Disk>, root: &Path) -> Files {
        let root = root.to_owned();
        Files { disk, root }
    }
}

impl Objects for Files {
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let path = self.root.join(name);
        let dir = path.parent().expect("below the root");
        self.disk.create_dir_all(dir)?;
        let temporary = path.with_extension("tmp");
        let file = self.disk.open(&temporary, OpenMode::Truncate)?;
        file.write_all_at(bytes, 0)?;
        file.sync_data()?;
        self.disk.rename(&temporary, &path)?;
        self.disk.sync_dir(dir)
    }

    fn read(&self, name: &str, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let file = self.disk.open(&self.root.join(name), OpenMode::Read)?;
        file.read_at(buf, offset)
    }

    fn len(&self, name: &str) -> io::Result<u64> {
        self.disk.open(&self.root.join(name), OpenMode::Read)?.len()
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        match self.disk.list(&self.root.join(folder)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            names => names,
        }
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(&self.root.join(name))
    }
}

/// See the head of the file.
#[derive(Clone)]
pub struct Archive {
    objects: Arc<dyn Objects>,
    cluster: u128,
}

impl Archive {
    /// Of this cluster.
    pub fn new(objects: Arc<dyn Objects>, cluster: u128) -> Archive {
        Archive { objects, cluster }
    }

    fn folder(&self, term: u64, what: &str) -> String {
        format!("{:032x}/{term:020}/{what}", self.cluster)
    }

    /// The segments of a term that follow each other without a hole up to the newest.
    pub fn segments(&self, term: u64) -> Result<Vec<SegmentName>> {
        let folder = self.folder(term, "wal");
        let names = self.objects.list(&folder);
        let names = names.map_err(|e| Error::io("listing", Path::new(&folder), e))?;
        let mut names: Vec<_> = names.iter().filter_map(|n| SegmentName::parse(n)).collect();
        names.sort_unstable();
        let hole = names
            .windows(2)
            .rposition(|p| p[1].number != p[0].number + 1);
        names.drain(..hole.map_or(0, |i| i + 1));
        Ok(names)
    }

    /// The finished segments of this directory that are not in the archive, oldest first, and their bytes.
    pub fn missing(&self, term: u64, log: &LogDir) -> Result<Vec<(SegmentName, u64)>> {
        let there = self.segments(term)?;
        let mut own = log.list()?;
        // The last one is being written.
        own.pop();
        let missing = own.into_iter().filter(|n| there.binary_search(n).is_err());
        let mut out = Vec::new();
        for name in missing {
            let path = log.path(name);
            let len = log.disk().open(&path, OpenMode::Read).and_then(|f| f.len());
            out.push((name, len.map_err(|e| Error::io("opening", &path, e))?));
        }
        Ok(out)
    }

    /// Copies a finished segment. `false`: it went from the directory meanwhile, so nobody knows what was read.
    pub fn copy_segment(&self, term: u64, log: &LogDir, name: SegmentName) -> Result<bool> {
        let path = log.path(name);
        let bytes = match log.disk().read(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            read => read.map_err(|e| Error::io("reading", &path, e))?,
        };
        if !log.list()?.contains(&name) {
            return Ok(false);
        }
        let object = format!("{}/{}", self.folder(term, "wal"), name.file_name());
        self.objects
            .put(&object, &bytes)
            .map_err(|e| Error::io("copying", Path::new(&object), e))?;
        Ok(true)
    }

    /// Copies a checkpoint, unless it is there, and removes all but the newest two. Whether it was copied.
    pub fn copy_checkpoint(&self, term: u64, checkpoint: &CheckpointReader) -> Result<bool> {
        let folder = self.folder(term, "checkpoint");
        let failed = |e| Error::io("copying", Path::new(&folder), e);
        let mut there = self.objects.list(&folder).map_err(failed)?;
        let name = file_name(checkpoint.manifest().number);
        if there.contains(&name) {
            return Ok(false);
        }
        let mut bytes = Vec::with_capacity(checkpoint.len() as usize);
        while (bytes.len() as u64) < checkpoint.len() {
            let part = checkpoint.read_at(bytes.len() as u64, 8 << 20)?;
            bytes.extend_from_slice(&part);
        }
        let object = format!("{folder}/{name}");
        self.objects.put(&object, &bytes).map_err(failed)?;
        there.push(name);
        there.retain(|n| parse_name(n).is_some());
        there.sort_unstable_by_key(|n| parse_name(n));
        for old in &there[..there.len().saturating_sub(2)] {
            self.objects
                .remove(&format!("{folder}/{old}"))
                .map_err(failed)?;
        }
        Ok(true)
    }

    /// The segments of a term, to be read.
    pub fn log(&self, term: u64) -> Arc<dyn SegmentSource> {
        Arc::new(ArchivedLog {
            folder: self.folder(term, "wal"),
            archive: self.clone(),
            term,
        })
    }

    /// Position after which the archived log begins, when it goes on without a hole into the segment with this number. Later ones
    /// are the directory's.
    pub fn reaches_back_to(&self, term: u64, own_first: u64) -> Result<Option<Position>> {
        let segments = self.segments(term)?;
        let (Some(first), Some(last)) = (segments.first(), segments.last()) else {
            return Ok(None);
        };
        if last.number + 1 < own_first {
            return Ok(None);
        }
        let log = self.log(term);
        let path = log.describe(*first);
        let mut header = [0; SEGMENT_HEADER as usize];
        let read = log.open(*first)?.read_at(&mut header, 0);
        let n = read.map_err(|e| Error::io("reading", &path, e))?;
        let header = SegmentHeader::decode(&header[..n]);
        let (header, _) = header.map_err(|r| Error::corrupt(&path, 0, r))?;
        Ok(Some(header.after))
    }
}

struct ArchivedLog {
    archive: Archive,
    term: u64,
    folder: String,
}

impl ArchivedLog {
    fn object(&self, name: SegmentName) -> String {
        format!("{}/{}", self.folder, name.file_name())
    }
}

impl SegmentSource for ArchivedLog {
    fn segments(&self) -> Result<Vec<SegmentName>> {
        self.archive.segments(self.term)
    }

    fn open(&self, name: SegmentName) -> Result<Box<dyn SegmentBytes>> {
        let object = self.object(name);
        let objects = self.archive.objects.clone();
        let len = objects.len(&object);
        let len = len.map_err(|e| Error::io("opening", Path::new(&object), e))?;
        Ok(Box::new(ArchivedSegment {
            objects,
            object,
            len,
        }))
    }

    fn describe(&self, name: SegmentName) -> PathBuf {
        PathBuf::from("archive").join(self.object(name))
    }
}

struct ArchivedSegment {
    objects: Arc<dyn Objects>,
    object: String,
    len: u64,
}

impl SegmentBytes for ArchivedSegment {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.objects.read(&self.object, buf, offset)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.len)
    }
}
