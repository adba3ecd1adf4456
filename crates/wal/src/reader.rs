//! Reading groups in order: whole, at a start; and beside the writer, to ship them.
//!
//! **Where a log ends.** Groups are followed from the first as long as each one is in its place (number, offset, chain,
//! ascending positions) and its checksums hold. At the first that is not, at offset X:
//!
//! ```text
//! a segment follows, and says that this one ends at the position just read      go on there
//! a segment follows and says otherwise                                          Corrupt
//! a later group here was written when more than X bytes were durable            Corrupt: X was durable once
//! else                                                                          the end; if anything was written: a torn tail
//! ```
//! The third line is evidence, not a guess: a group's header says how far the segment was synced when it was written. Without
//! it, two groups written before one sync, of which a crash kept the second, would look like damage. What it cannot see is
//! damage to the very last synced group: nothing was written after it that could testify. (A checkpoint can: recovery
//! refuses a log that ends before the checkpoint's *end*.)
//!
//! A reader beside the writer is given a limit, the writer's synced point; up to there everything must be whole, and
//! past it nothing is looked at.
//!
//! Left out on purpose: read-ahead by another thread; the kernel does that.

use crate::bytes::u64_at;
use crate::error::{Error, Result};
use crate::group::{GROUP_HEADER, GROUP_MAGIC, Group, GroupHeader};
use crate::segment::{SEGMENT_HEADER, SegmentHeader, SegmentName};
use crate::source::{SegmentBytes, SegmentSource};
use crate::writer::{LogEnd, LogPoint};
use base::Position;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes read at once.
const WINDOW: usize = 1 << 20;

/// What was cut off the end of the log: bytes of a group whose commits were never acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CutTail {
    /// The last segment.
    pub file: PathBuf,
    /// Where the log now ends in it.
    pub offset: u64,
    /// How many bytes after that were not zero, to the last of them.
    pub bytes: u64,
    /// Why the group there does not count.
    pub reason: &'static str,
}

impl fmt::Display for CutTail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CutTail {
            file,
            offset,
            bytes,
            reason,
        } = self;
        write!(
            f,
            "cut {bytes} bytes of an unfinished write at offset {offset} of {}: {reason}",
            file.display()
        )
    }
}

/// Reads the groups of a log after a position. See the module.
pub struct LogReader {
    source: Arc<dyn SegmentSource>,
    stream: u128,
    from: Position,
    /// `None`: to the end, wherever that is.
    limit: Option<LogPoint>,
    names: Vec<SegmentName>,
    current: Option<OpenSegment>,
    last: Position,
    term: u64,
    ended: bool,
    dirty: bool,
    cut: Option<CutTail>,
}

struct OpenSegment {
    name: SegmentName,
    bytes: Box<dyn SegmentBytes>,
    path: PathBuf,
    len: u64,
    recycled: bool,
    offset: u64,
    chain: u32,
    window: Vec<u8>,
    window_at: u64,
}

impl LogReader {
    /// Reads to the end, for recovery: every group with commits after `from`. `Missing` when the log begins later.
    pub fn open(source: Arc<dyn SegmentSource>, stream: u128, from: Position) -> Result<LogReader> {
        LogReader::start(source, stream, from, None)
    }

    /// Reads beside a writer, up to `limit` ([`LogReader::raise_limit`] moves it).
    pub fn follow(
        source: Arc<dyn SegmentSource>,
        stream: u128,
        from: Position,
        limit: LogPoint,
    ) -> Result<LogReader> {
        LogReader::start(source, stream, from, Some(limit))
    }

    fn start(
        source: Arc<dyn SegmentSource>,
        stream: u128,
        from: Position,
        limit: Option<LogPoint>,
    ) -> Result<LogReader> {
        let mut reader = LogReader {
            source,
            stream,
            from,
            limit,
            names: Vec::new(),
            current: None,
            last: from,
            term: 0,
            ended: false,
            dirty: false,
            cut: None,
        };
        reader.refresh()?;
        // All positions of a segment are below the first of the next, so the last that begins at or below is enough.
        let mut index = reader
            .names
            .iter()
            .rposition(|n| n.first <= from.next())
            .unwrap_or(0);
        if let Some(name) = reader.names.get(index) {
            // A last segment shorter than its header tells nothing of what was before it: that is in the one before.
            let len = reader
                .source
                .open(*name)?
                .len()
                .map_err(|e| Error::io("measuring", &reader.path(*name), e))?;
            if len < SEGMENT_HEADER && index > 0 {
                index -= 1;
            }
            let name = reader.names[index];
            if let Some((open, header)) = reader.open_segment(name)? {
                if header.after > from {
                    return Err(Error::Missing {
                        wanted: from,
                        oldest: header.after,
                    });
                }
                reader.last = header.after;
                reader.current = Some(open);
            }
        } else {
            reader.ended = limit.is_none();
        }
        Ok(reader)
    }

    /// Lists the segments anew; they must be consecutive.
    fn refresh(&mut self) -> Result<()> {
        self.names = self.source.segments()?;
        for pair in self.names.windows(2) {
            if pair[1].number != pair[0].number + 1 {
                let missing = format!(
                    "segment {} that should come before it is missing",
                    pair[0].number + 1
                );
                return Err(Error::corrupt(&self.path(pair[1]), 0, missing));
            }
        }
        Ok(())
    }

    fn path(&self, name: SegmentName) -> PathBuf {
        self.source.describe(name)
    }

    /// Opens a segment; `None` (and the log ends) when it is the last and shorter than its header.
    fn open_segment(&mut self, name: SegmentName) -> Result<Option<(OpenSegment, SegmentHeader)>> {
        let path = self.path(name);
        let bytes = self.source.open(name)?;
        let len = bytes.len().map_err(|e| Error::io("measuring", &path, e))?;
        let mut open = OpenSegment {
            name,
            bytes,
            path,
            len,
            recycled: false,
            offset: 0,
            chain: 0,
            window: Vec::new(),
            window_at: 0,
        };
        if len < SEGMENT_HEADER && self.limit.is_none() && self.names.last() == Some(&name) {
            self.cut = Some(CutTail {
                file: open.path.clone(),
                offset: 0,
                bytes: len,
                reason: "the segment's header is cut short",
            });
            self.ended = true;
            self.current = Some(open);
            return Ok(None);
        }
        let (header, chain) =
            SegmentHeader::decode(open.look(SEGMENT_HEADER as usize, SEGMENT_HEADER)?)
                .map_err(|reason| Error::corrupt(&open.path, 0, reason))?;
        if header.stream != self.stream {
            return Err(Error::corrupt(
                &open.path,
                0,
                "the segment belongs to another cluster",
            ));
        }
        if header.number != name.number || header.first != name.first {
            return Err(Error::corrupt(
                &open.path,
                0,
                "the file's name is not the one in its header",
            ));
        }
        open.recycled = header.recycled;
        open.offset = SEGMENT_HEADER;
        open.chain = chain;
        Ok(Some((open, header)))
    }

    /// Whether it reads beside a writer, up to a limit.
    pub fn is_following(&self) -> bool {
        self.limit.is_some()
    }

    /// Moves the limit of a reader that follows a writer.
    pub fn raise_limit(&mut self, limit: LogPoint) {
        let old = self.limit.expect("only a following reader has a limit");
        assert!(limit >= old, "the limit only grows");
        self.limit = Some(limit);
    }

    /// The next group with a commit after the start position (its first commits may be at or below). `None` at the end; a
    /// following reader can be asked again after its limit was raised.
    pub fn next_group(&mut self) -> Result<Option<Group>> {
        loop {
            if self.ended {
                return Ok(None);
            }
            if self.current.is_none() {
                // Followed from before the first segment.
                self.refresh()?;
                let Some(name) = self.names.first().copied() else {
                    return Ok(None);
                };
                if let Some((open, header)) = self.open_segment(name)? {
                    if header.after > self.from {
                        return Err(Error::Missing {
                            wanted: self.from,
                            oldest: header.after,
                        });
                    }
                    self.last = header.after;
                    self.current = Some(open);
                }
                continue;
            }
            let (last, term, stream, limit) = (self.last, self.term, self.stream, self.limit);
            let open = self.current.as_mut().expect("a segment is open");
            let here = LogPoint {
                segment: open.name.number,
                offset: open.offset,
            };
            if limit.is_some_and(|limit| here >= limit) {
                return Ok(None);
            }
            let readable = match limit {
                Some(limit) if limit.segment == here.segment => limit.offset.min(open.len),
                _ => open.len,
            };
            match open.read_group(readable, stream, last, term)? {
                Ok((group, chain)) => {
                    open.offset += group.header().len();
                    open.chain = chain;
                    self.last = group.header().last;
                    self.term = group.header().term;
                    if self.last > self.from {
                        return Ok(Some(group));
                    }
                }
                Err(reason) => self.no_group(reason)?,
            }
        }
    }

    /// There is no good group at the current offset: go on in the next segment, end, or complain.
    fn no_group(&mut self, reason: &'static str) -> Result<()> {
        let open = self.current.as_mut().expect("a segment is open");
        let (name, path, offset) = (open.name, open.path.clone(), open.offset);
        if self.limit.is_some() {
            self.refresh()?;
            if !self.names.contains(&name) {
                // Pruned under our feet, and perhaps written over since. Whoever had read all of it goes on in the next.
                let next = self
                    .names
                    .iter()
                    .copied()
                    .find(|n| n.number == name.number + 1);
                if let Some(next) = next
                    && let Some((open, header)) = self.open_segment(next)?
                    && header.after == self.last
                {
                    self.current = Some(open);
                    return Ok(());
                }
                let oldest = self.names.first().map_or(Position::MAX, |n| n.first);
                return Err(Error::Missing {
                    wanted: self.last,
                    oldest,
                });
            }
        }
        let next = self
            .names
            .iter()
            .copied()
            .find(|n| n.number == name.number + 1);
        if let Some(next) = next {
            match self.open_segment(next)? {
                Some((_, header)) if header.after != self.last => {
                    let lost = format!(
                        "{reason}, and the next segment begins after position {}, not {}",
                        header.after, self.last
                    );
                    return Err(Error::corrupt(&path, offset, lost));
                }
                Some((open, _)) => self.current = Some(open),
                None => {}
            }
            return Ok(());
        }
        if self.limit.is_some() {
            return Err(Error::corrupt(&path, offset, reason));
        }
        let open = self.current.as_mut().expect("a segment is open");
        let tail = open.examine_tail(self.stream)?;
        if let Some(witness) = tail.witness {
            let reason = format!(
                "{reason}, but the group at offset {witness} was written when this one was durable"
            );
            return Err(Error::corrupt(&path, offset, reason));
        }
        if tail.written {
            let bytes = tail.nonzero_end.saturating_sub(offset);
            self.cut = Some(CutTail {
                file: path,
                offset,
                bytes,
                reason,
            });
            self.dirty = true;
        }
        self.ended = true;
        Ok(())
    }

    /// Where the log ends, after [`LogReader::next_group`] returned `None`: for [`crate::LogWriter::resume`].
    pub fn end(&self) -> LogEnd {
        let last = self.last.max(self.from);
        LogEnd {
            segment: self.current.as_ref().map(|c| (c.name, c.offset, c.chain)),
            dirty: self.dirty,
            last,
            written: if self.has_no_group() { last } else { self.last },
            term: self.term,
        }
    }

    /// Whether a crash came between the first segment and its first group: then the log has not begun. (Behind a checkpoint that header may name a
    /// position below it: the group that was to come has commits that are in the checkpoint, too.)
    fn has_no_group(&self) -> bool {
        let first = self.names.first();
        let current = self.current.as_ref();
        current.is_some_and(|c| c.offset <= SEGMENT_HEADER && first == Some(&c.name))
    }

    /// What had to be cut, if anything.
    pub fn cut(&self) -> Option<&CutTail> {
        self.cut.as_ref()
    }

    /// Position of the last group read.
    pub fn last(&self) -> Position {
        self.last
    }

    /// Bytes from the start of the open segment to here, and number of that segment: for progress lines.
    pub fn at(&self) -> LogPoint {
        self.current.as_ref().map_or(
            LogPoint {
                segment: 0,
                offset: 0,
            },
            |c| LogPoint {
                segment: c.name.number,
                offset: c.offset,
            },
        )
    }
}

struct Tail {
    /// Offset of a later group that was written when more than this offset was durable.
    witness: Option<u64>,
    /// End of the last byte that is not zero.
    nonzero_end: u64,
    /// Whether something of this segment was written at the offset.
    written: bool,
}

impl OpenSegment {
    /// At most `want` bytes at the current offset, not beyond `readable`.
    fn look(&mut self, want: usize, readable: u64) -> Result<&[u8]> {
        let available = usize::try_from(readable.saturating_sub(self.offset)).unwrap_or(usize::MAX);
        let want = want.min(available);
        let inside = self.offset >= self.window_at
            && self.offset + want as u64 <= self.window_at + self.window.len() as u64;
        if !inside {
            // Nothing beyond `readable` is kept: a writer may still be filling it.
            let size = want.max(WINDOW).min(available);
            let mut window = std::mem::take(&mut self.window);
            window.resize(size, 0);
            let filled = self.fill(&mut window, self.offset)?;
            window.truncate(filled);
            self.window = window;
            self.window_at = self.offset;
        }
        let from = (self.offset - self.window_at) as usize;
        Ok(&self.window[from..self.window.len().min(from + want)])
    }

    /// Reads until `buffer` is full or the file ends; returns how much.
    fn fill(&self, buffer: &mut [u8], at: u64) -> Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self
                .bytes
                .read_at(&mut buffer[filled..], at + filled as u64)
            {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(Error::io("reading", &self.path, e)),
            }
        }
        Ok(filled)
    }

    /// The group at the current offset and its header's checksum, or why there is none.
    fn read_group(
        &mut self,
        readable: u64,
        stream: u128,
        last: Position,
        term: u64,
    ) -> Result<std::result::Result<(Group, u32), &'static str>> {
        let (number, offset, chain) = (self.name.number, self.offset, self.chain);
        let head = self.look(GROUP_HEADER as usize, readable)?;
        let (header, crc) = match GroupHeader::decode(head) {
            Ok(decoded) => decoded,
            Err(reason) => return Ok(Err(reason)),
        };
        let in_place =
            header.stream == stream && header.segment == number && header.offset == offset;
        if !in_place || header.chain != chain {
            return Ok(Err(
                "the group does not belong here: left over from an earlier use of the file",
            ));
        }
        if header.first <= last || header.term < term {
            return Ok(Err("positions or terms fall"));
        }
        // The length is bounded by the file before anything of that size is reserved.
        if header.len() > readable.saturating_sub(offset) {
            return Ok(Err("the group is cut short"));
        }
        let bytes = self.look(header.len() as usize, readable)?.to_vec();
        Ok(Group::from_bytes(bytes).map(|group| (group, crc)))
    }

    /// Looks at everything from the current offset to the end of the file.
    fn examine_tail(&mut self, stream: u128) -> Result<Tail> {
        let bad = self.offset;
        let header = self.look(GROUP_HEADER as usize, self.len)?;
        let begun = header.len() >= 48
            && header[..8] == GROUP_MAGIC
            && u64_at(header, 40) == self.name.number;
        let mut tail = Tail {
            witness: None,
            nonzero_end: 0,
            written: false,
        };
        let mut at = bad;
        let (mut buffer, zeros) = (vec![0; WINDOW], vec![0; WINDOW]);
        while at < self.len {
            let n = self.fill(&mut buffer, at)?;
            if n == 0 {
                break;
            }
            // Most of a file is room that was never written. As a whole window it costs one comparison, and no look at each byte.
            if buffer[..n] == zeros[..n] {
                at += n as u64;
                continue;
            }
            if let Some(nonzero) = buffer[..n].iter().rposition(|b| *b != 0) {
                tail.nonzero_end = at + nonzero as u64 + 1;
            }
            // Groups begin at multiples of 8, and so does every window.
            let mut i = 0;
            while i + 8 <= n {
                if buffer[i..i + 8] == GROUP_MAGIC && self.testifies(at + i as u64, bad, stream)? {
                    tail.witness = Some(at + i as u64);
                    return Ok(tail);
                }
                i += 8;
            }
            at += n as u64;
        }
        tail.written = if self.recycled {
            begun
        } else {
            tail.nonzero_end > bad
        };
        Ok(tail)
    }

    /// Whether a group of this segment stands at `at` that was written when more than `bad` bytes were durable.
    fn testifies(&self, at: u64, bad: u64, stream: u128) -> Result<bool> {
        let mut header = [0; GROUP_HEADER as usize];
        let n = self.fill(&mut header, at)?;
        Ok(GroupHeader::decode(&header[..n]).is_ok_and(|(h, _)| {
            h.stream == stream && h.segment == self.name.number && h.offset == at && h.synced > bad
        }))
    }
}

impl fmt::Debug for LogReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LogReader at {:?}, last {}", self.at(), self.last)
    }
}
