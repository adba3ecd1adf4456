//! The log's single writer: one positioned write per group, one sync when the caller asks.
//!
//! Owned by one thread (the flusher), which calls `append_group`, `sync`, `append_group`, `sync` …; there is no lock inside. A group
//! is copied once, into a buffer that is kept, so that one system call writes it.
//!
//! After `DiskFull` nothing of the group counts: the next call writes at the same offset, over what was left there. After any
//! other error the writer refuses everything: a failed sync may have dropped the pages (the kernel reports it once), so
//! only a new start, reading what is on disk, knows what is there.
//!
//! Several groups may be appended before one sync; each states how far the segment was synced when it was written, so a
//! crash that keeps the second and loses the first is still told from damage (`reader`).
//!
//! Left out on purpose: the flusher's thread and its policy (`node`), and direct I/O: measured, see docs/design/log-format.md.

use crate::anchor::Reach;
use crate::bytes::pad8;
use crate::error::{Error, Result};
use crate::group::{GROUP_HEADER, Group, GroupHeader, MAX_GROUP};
use crate::segment::{LogDir, SEGMENT_HEADER, SegmentHeader, SegmentName};
use base::Position;
use env::{DiskFile, OpenMode, fault};
use std::path::PathBuf;
use std::sync::Arc;

/// A buffer above this is given back after a group that needed it.
const KEEP_BUFFER: usize = 16 << 20;

/// Bytes of a page of the operating system's cache; nothing but speed hangs on it.
const PAGE: u64 = 4096;

/// Segments from this size on (a server's are larger) are written in whole pages. In smaller ones, of tests, leftovers of a recycled
/// file stand right behind a group.
const IN_PAGES: u64 = 1 << 20;

/// One commit as the log takes it: its position and two opaque parts (`base::record::CommitBuilder::finish`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commit {
    /// Above every position written before.
    pub position: Position,
    /// Record heads.
    pub heads: Vec<u8>,
    /// Keys and rows.
    pub data: Vec<u8>,
}

/// Anything that holds a commit's parts; lets the flusher pass its own queue entries.
pub trait LogCommit {
    /// Above every position written before.
    fn position(&self) -> Position;
    /// Record heads.
    fn heads(&self) -> &[u8];
    /// Keys and rows.
    fn data(&self) -> &[u8];
}

impl LogCommit for Commit {
    fn position(&self) -> Position {
        self.position
    }
    fn heads(&self) -> &[u8] {
        &self.heads
    }
    fn data(&self) -> &[u8] {
        &self.data
    }
}

impl<T: LogCommit> LogCommit for &T {
    fn position(&self) -> Position {
        (**self).position()
    }
    fn heads(&self) -> &[u8] {
        (**self).heads()
    }
    fn data(&self) -> &[u8] {
        (**self).data()
    }
}

/// A place in the log. Ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogPoint {
    /// Segment number.
    pub segment: u64,
    /// Offset in it.
    pub offset: u64,
}

/// Where a log ends, as recovery found it: what a writer needs to go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEnd {
    /// Last segment, with the offset after its last group and the checksum that the next group chains to.
    pub segment: Option<(SegmentName, u64, u32)>,
    /// Whether bytes after the end are to be cleared.
    pub dirty: bool,
    /// Last position in the log (or in the checkpoint, when it is later).
    pub last: Position,
    /// Last position in the log.
    pub written: Position,
    /// Greatest term met.
    pub term: u64,
}

impl LogEnd {
    /// The end of a log that has no segment yet; its first position will be above `last`.
    pub fn empty(last: Position) -> LogEnd {
        LogEnd {
            segment: None,
            dirty: false,
            last,
            written: last,
            term: 0,
        }
    }
}

/// What was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Where the group begins.
    pub at: LogPoint,
    /// Bytes of the group.
    pub bytes: u64,
}

/// The writer. See the module.
pub struct LogWriter {
    dir: Arc<LogDir>,
    term: u64,
    current: Option<Current>,
    next_number: u64,
    last: Position,
    /// The same of what stands in the segments: a checkpoint may be newer. The next one says that the one before ends here.
    written: Position,
    synced: Position,
    buffer: Vec<u8>,
    failed: bool,
    copies: bool,
    copied: Option<Group>,
}

struct Current {
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    number: u64,
    size: u64,
    offset: u64,
    synced: u64,
    chain: u32,
}

impl LogWriter {
    /// Goes on where recovery found the end. Clears what recovery cut, and makes everything before the end durable: it was
    /// read from the page cache, perhaps, and is about to be promised to readers.
    pub fn resume(dir: Arc<LogDir>, end: &LogEnd, term: u64) -> Result<LogWriter> {
        assert!(
            term >= end.term,
            "terms only grow: {term} after {}",
            end.term
        );
        let mut writer = LogWriter {
            next_number: end.segment.map_or(1, |(name, ..)| name.number + 1),
            dir,
            term,
            current: None,
            last: end.last,
            written: end.written,
            synced: end.last,
            buffer: Vec::new(),
            failed: false,
            copies: false,
            copied: None,
        };
        if let Some((name, offset, chain)) = end.segment {
            if offset <= SEGMENT_HEADER {
                // No group survived in it; the next first position may be below the one in its name.
                writer.dir.discard(name)?;
                writer.next_number = name.number;
            } else {
                let path = writer.dir.path(name);
                let file = writer.dir.disk().open(&path, OpenMode::Write);
                let file = file.map_err(|e| Error::io("opening", &path, e))?;
                let size = file.len().map_err(|e| Error::io("measuring", &path, e))?;
                if end.dirty {
                    file.zero_fill(offset, size)
                        .map_err(|e| Error::io("clearing", &path, e))?;
                }
                file.sync_data().map_err(|e| Error::sync(&path, e))?;
                fault::point("wal.resume.after_sync");
                writer.current = Some(Current {
                    file,
                    path,
                    number: name.number,
                    size,
                    offset,
                    synced: offset,
                    chain,
                });
                writer.tell_reach();
            }
        }
        Ok(writer)
    }

    /// Whether a commit of these parts can be logged at all; ask before giving it a position.
    pub fn check_size(heads: usize, data: usize) -> Result<()> {
        let bytes = GROUP_HEADER + pad8(heads as u64 + data as u64);
        if bytes > MAX_GROUP {
            Err(Error::TooLarge {
                bytes,
                limit: MAX_GROUP,
            })
        } else {
            Ok(())
        }
    }

    /// Writes one group, not yet durable. Positions must ascend and be above [`LogWriter::last`]. The caller keeps groups
    /// well below [`MAX_GROUP`]; one commit may fill it. `DiskFull`: nothing was appended, call again when there is room.
    pub fn append_group<C: LogCommit>(
        &mut self,
        commits: &[C],
        published: Position,
    ) -> Result<Appended> {
        let (Some(first), Some(end)) = (commits.first(), commits.last()) else {
            panic!("a group holds at least one commit");
        };
        let heads_len: u64 = commits.iter().map(|c| c.heads().len() as u64).sum();
        let data_len: u64 = commits.iter().map(|c| c.data().len() as u64).sum();
        let bytes = GROUP_HEADER + pad8(heads_len + data_len);
        if bytes > MAX_GROUP {
            return Err(Error::TooLarge {
                bytes,
                limit: MAX_GROUP,
            });
        }
        let mut before = self.last;
        for commit in commits {
            assert!(
                commit.position() > before,
                "position {} after {before}",
                commit.position()
            );
            before = commit.position();
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        buffer.reserve(bytes as usize);
        buffer.resize(GROUP_HEADER as usize, 0);
        for commit in commits {
            buffer.extend_from_slice(commit.heads());
        }
        let data_start = buffer.len();
        for commit in commits {
            buffer.extend_from_slice(commit.data());
        }
        buffer.resize(bytes as usize, 0);
        let header = GroupHeader {
            count: u32::try_from(commits.len()).expect("positions of an epoch fit in 24 bits"),
            stream: self.dir.stream(),
            term: self.term,
            segment: 0,
            offset: 0,
            synced: 0,
            first: first.position(),
            last: end.position(),
            published,
            heads_len,
            data_len,
            heads_crc: crc32c::crc32c(&buffer[GROUP_HEADER as usize..data_start]),
            data_crc: crc32c::crc32c(&buffer[data_start..]),
            chain: 0,
        };
        let appended = self.append(header, &mut buffer);
        if buffer.capacity() <= KEEP_BUFFER {
            self.buffer = buffer;
        }
        appended
    }

    /// Writes a group that another node's log holds: the same commits under the same term and *published*, at this log's
    /// next place. The first group of a log that begins behind a checkpoint may hold commits that are in the checkpoint, too.
    pub fn append_shipped(&mut self, group: &Group) -> Result<Appended> {
        let header = *group.header();
        let begins = self.current.is_none() && self.next_number == 1 && header.last > self.last;
        assert!(
            header.first > self.last || begins,
            "position {} after {}",
            header.first,
            self.last
        );
        assert!(
            header.stream == self.dir.stream(),
            "a group of another history"
        );
        assert!(
            header.term >= self.term,
            "terms only grow: {} after {}",
            header.term,
            self.term
        );
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        buffer.extend_from_slice(group.as_bytes());
        let appended = self.append(header, &mut buffer);
        if appended.is_ok() {
            self.term = header.term;
        }
        if buffer.capacity() <= KEEP_BUFFER {
            self.buffer = buffer;
        }
        appended
    }

    /// Puts the header, its place filled in, over the front of `buffer` and writes that.
    ///
    /// Zeros are written behind it up to the page's end: a page that is written whole need not be read first.
    fn append(&mut self, mut header: GroupHeader, buffer: &mut Vec<u8>) -> Result<Appended> {
        assert!(
            !self.failed,
            "the log has failed; only a new start may go on"
        );
        let bytes = buffer.len() as u64;
        if self
            .current
            .as_ref()
            .is_none_or(|c| c.offset + bytes > c.size)
        {
            self.roll(header.first, bytes)?;
        }
        let current = self.current.as_mut().expect("a segment was just begun");
        header.segment = current.number;
        header.offset = current.offset;
        header.synced = current.synced;
        header.chain = current.chain;
        let chain = header.encode(buffer);
        let end = current.offset + bytes;
        if current.size >= IN_PAGES {
            let page_end = end.next_multiple_of(PAGE).min(current.size.max(end));
            buffer.resize((page_end - current.offset) as usize, 0);
        }
        let written = fault::fallible("wal.before_write")
            .and_then(|()| current.file.write_all_at(buffer, current.offset))
            .and_then(|()| fault::fallible("wal.after_write"));
        buffer.truncate(bytes as usize);
        if let Err(error) = written {
            let error = Error::io("writing", &current.path, error);
            self.failed = !error.is_retryable();
            return Err(error);
        }
        let at = LogPoint {
            segment: current.number,
            offset: current.offset,
        };
        current.offset += bytes;
        current.chain = chain;
        self.last = header.last;
        self.written = header.last;
        self.copied = self.copies.then(|| Group::written(header, buffer.to_vec()));
        Ok(Appended { at, bytes })
    }

    /// Finishes the current segment and begins the next, whose first group begins at position `first` and has `need` bytes.
    fn roll(&mut self, first: Position, need: u64) -> Result<()> {
        self.sync()?;
        fault::point("wal.roll.before_create");
        let header = SegmentHeader {
            stream: self.dir.stream(),
            number: self.next_number,
            first,
            // A log that begins behind a checkpoint may begin with a group that is in it, too.
            after: self.written.min(first.prev()),
            recycled: false,
        };
        let new = self
            .dir
            .create(header, need)
            .inspect_err(|e| self.failed = !e.is_retryable())?;
        self.next_number += 1;
        self.current = Some(Current {
            file: new.file,
            path: new.path,
            number: header.number,
            size: new.size,
            offset: SEGMENT_HEADER,
            synced: SEGMENT_HEADER,
            chain: new.chain,
        });
        Ok(())
    }

    /// Makes every appended group durable. Any error is final.
    pub fn sync(&mut self) -> Result<()> {
        assert!(
            !self.failed,
            "the log has failed; only a new start may go on"
        );
        if let Some(current) = self.current.as_mut().filter(|c| c.synced < c.offset) {
            let synced = fault::fallible("wal.before_sync").and_then(|()| current.file.sync_data());
            if let Err(error) = synced {
                self.failed = true;
                return Err(Error::sync(&current.path, error));
            }
            current.synced = current.offset;
            fault::point("wal.after_sync");
            self.synced = self.last;
            self.tell_reach();
        }
        self.synced = self.last;
        Ok(())
    }

    /// What is durable, for the anchor. Once for each sync; nobody else holds the lock but the thread that writes the anchor, for a moment.
    fn tell_reach(&self) {
        *self.dir.reach.lock() = self.synced_point().map(|point| Reach {
            term: self.term,
            position: self.synced,
            point,
        });
    }

    /// Whether appended groups are to be copied for somebody else ([`LogWriter::take_copy`]).
    pub fn set_copies(&mut self, on: bool) {
        self.copies = on;
    }

    /// The group that was appended last, when copies are made.
    pub fn take_copy(&mut self) -> Option<Group> {
        self.copied.take()
    }

    /// Position of the last appended commit.
    pub fn last(&self) -> Position {
        self.last
    }

    /// Position up to which everything appended is durable.
    pub fn synced(&self) -> Position {
        self.synced
    }

    /// Up to where a reader beside this writer may read durable groups; `None` before the first segment.
    pub fn synced_point(&self) -> Option<LogPoint> {
        self.current.as_ref().map(|c| LogPoint {
            segment: c.number,
            offset: c.synced,
        })
    }

    /// The term that groups are written under.
    pub fn term(&self) -> u64 {
        self.term
    }

    /// Raises the term for the groups to come.
    pub fn set_term(&mut self, term: u64) {
        assert!(
            term >= self.term,
            "terms only grow: {term} after {}",
            self.term
        );
        self.term = term;
    }
}
