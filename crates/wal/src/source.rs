//! Where a reader gets segments from: this node's directory, or the archive.

use crate::error::{Error, Result};
use crate::segment::{LogDir, SegmentName};
use env::{DiskFile, OpenMode};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// A place that holds segments of one log.
pub trait SegmentSource: Send + Sync {
    /// The segments that are there, oldest first.
    fn segments(&self) -> Result<Vec<SegmentName>>;

    /// Opens one to read.
    fn open(&self, name: SegmentName) -> Result<Box<dyn SegmentBytes>>;

    /// How messages call a segment.
    fn describe(&self, name: SegmentName) -> PathBuf;
}

/// The bytes of one segment.
pub trait SegmentBytes: Send + Sync {
    /// Reads at most `buf.len()` bytes at `offset`; fewer near the end, 0 at it.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Length of the file.
    fn len(&self) -> io::Result<u64>;

    /// Whether the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
}

impl SegmentSource for LogDir {
    fn segments(&self) -> Result<Vec<SegmentName>> {
        self.list()
    }

    fn open(&self, name: SegmentName) -> Result<Box<dyn SegmentBytes>> {
        let path = self.path(name);
        let file = self
            .disk()
            .open(&path, OpenMode::Read)
            .map_err(|e| Error::io("opening", &path, e))?;
        Ok(Box::new(LocalSegment(file)))
    }

    fn describe(&self, name: SegmentName) -> PathBuf {
        self.path(name)
    }
}

struct LocalSegment(Arc<dyn DiskFile>);

impl SegmentBytes for LocalSegment {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buf, offset)
    }

    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
}
