//! Segment files: their names, their header, the spare ones, and the directory that holds them.
//!
//! ```text
//! wal/0000000000000007-0000000001000003.wal     number 7, no position in it is below 0x1000003
//! wal/spare-0000000000000002.wal                full size, allocated, waiting to become a segment
//! wal/*.tmp                                     being made; removed at the next start
//!
//!   0  magic "CANONSEG"   8 | 40  first position            8
//!   8  format version     2 | 48  after: the last position  8
//!  10  flags, 1=recycled  2 |     in the segments before
//!  12  zero               4 | 56  zero                     68
//!  16  stream id         16 |124  crc32c of bytes 0..124    4
//!  32  segment number     8 |128  groups, then zeros (or, if recycled, leftovers)
//! ```
//! A segment gets its name only when its header is durable and the segment before it is synced whole: so every segment but the
//! last is known to be complete, and its last group's position stands in the next one's *after*.
//!
//! A new file is filled with zeros so that syncing a group changes no metadata. That writes every byte twice, therefore old
//! segments are recycled: renamed to spares, leftovers and all (`group` says why those are harmless).
//!
//! Left out on purpose: who decides what may go (`DataDir::prune`).

use crate::anchor::Reach;
use crate::bytes::{put, u16_at, u32_at, u64_at, u128_at};
use crate::error::{Error, Result};
use crate::group::LOG_FORMAT;
use base::Position;
use env::{Disk, DiskFile, OpenMode, fault};
use parking_lot::Mutex;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of a segment's header.
pub const SEGMENT_HEADER: u64 = 128;

const SEGMENT_MAGIC: [u8; 8] = *b"CANONSEG";
const FLAG_RECYCLED: u16 = 1;

/// Bytes of a spare file written between syncs.
const GENTLE_STEP: u64 = 1 << 20;

/// Sizes of the log's files.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// Bytes of a segment file, header included. A group that does not fit gets a file of its own size.
    pub segment_size: u64,
    /// Spare files kept for recycling.
    pub spares: usize,
}

impl Default for LogOptions {
    fn default() -> LogOptions {
        LogOptions {
            segment_size: 64 << 20,
            spares: 2,
        }
    }
}

/// What a segment's file name says. Ordered by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SegmentName {
    /// Consecutive number.
    pub number: u64,
    /// No position in the segment is below this.
    pub first: Position,
}

impl SegmentName {
    /// The file's name.
    pub fn file_name(&self) -> String {
        format!("{:016x}-{:016x}.wal", self.number, self.first.as_u64())
    }

    /// The reverse; `None` for names of other files.
    pub fn parse(name: &str) -> Option<SegmentName> {
        let (number, first) = name.strip_suffix(".wal")?.split_once('-')?;
        if number.len() != 16 || first.len() != 16 {
            return None;
        }
        let hex = |s| u64::from_str_radix(s, 16).ok();
        Some(SegmentName {
            number: hex(number)?,
            first: Position::from_u64(hex(first)?),
        })
    }
}

/// The fields of a segment's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Id of the history.
    pub stream: u128,
    /// Consecutive number, as in the name.
    pub number: u64,
    /// Position of the first group's first commit.
    pub first: Position,
    /// Last position in the segments before.
    pub after: Position,
    /// Whether bytes of an earlier segment may follow the groups.
    pub recycled: bool,
}

impl SegmentHeader {
    /// The bytes and their checksum, the first group's chain.
    pub(crate) fn encode(&self) -> ([u8; SEGMENT_HEADER as usize], u32) {
        let mut out = [0; SEGMENT_HEADER as usize];
        put(&mut out, 0, &SEGMENT_MAGIC);
        put(&mut out, 8, &LOG_FORMAT.to_le_bytes());
        put(
            &mut out,
            10,
            &(if self.recycled { FLAG_RECYCLED } else { 0 }).to_le_bytes(),
        );
        put(&mut out, 16, &self.stream.to_le_bytes());
        put(&mut out, 32, &self.number.to_le_bytes());
        put(&mut out, 40, &self.first.as_u64().to_le_bytes());
        put(&mut out, 48, &self.after.as_u64().to_le_bytes());
        let crc = crc32c::crc32c(&out[..124]);
        put(&mut out, 124, &crc.to_le_bytes());
        (out, crc)
    }

    /// Reads a header; `Err` says what is wrong.
    pub fn decode(b: &[u8]) -> std::result::Result<(SegmentHeader, u32), &'static str> {
        if b.len() < SEGMENT_HEADER as usize {
            return Err("the segment's header is cut short");
        }
        let crc = u32_at(b, 124);
        if b[..8] != SEGMENT_MAGIC || crc32c::crc32c(&b[..124]) != crc {
            return Err("the segment's header is wrong");
        }
        if u16_at(b, 8) != LOG_FORMAT {
            return Err("the segment is in a format that this program does not know");
        }
        let header = SegmentHeader {
            stream: u128_at(b, 16),
            number: u64_at(b, 32),
            first: Position::from_u64(u64_at(b, 40)),
            after: Position::from_u64(u64_at(b, 48)),
            recycled: u16_at(b, 10) & FLAG_RECYCLED != 0,
        };
        Ok((header, crc))
    }
}

/// The directory of segments, shared by the writer, the readers and whoever prunes. Its lock is taken only when a segment
/// begins or goes, never for a group.
pub struct LogDir {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    stream: u128,
    options: LogOptions,
    spares: Mutex<Spares>,
    /// How far the present writer has synced.
    pub(crate) reach: Mutex<Option<Reach>>,
}

#[derive(Default)]
struct Spares {
    files: Vec<PathBuf>,
    next: u64,
}

/// A segment file ready for its first group.
pub(crate) struct NewSegment {
    pub file: Arc<dyn DiskFile>,
    pub path: PathBuf,
    pub size: u64,
    /// Checksum of its header.
    pub chain: u32,
}

impl LogDir {
    /// Opens the directory (made if absent), removes half-made files and finds the spares.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        stream: u128,
        options: LogOptions,
    ) -> Result<Arc<LogDir>> {
        assert!(
            options.segment_size >= 4096,
            "a segment has at least 4096 bytes"
        );
        disk.create_dir_all(dir)
            .map_err(|e| Error::io("creation", dir, e))?;
        let mut spares = Spares::default();
        for name in disk.list(dir).map_err(|e| Error::io("listing", dir, e))? {
            let path = dir.join(&name);
            if name.ends_with(".tmp") {
                disk.remove(&path)
                    .map_err(|e| Error::io("removal", &path, e))?;
            } else if let Some(number) = spare_number(&name) {
                spares.next = spares.next.max(number + 1);
                let len = disk.open(&path, OpenMode::Read).and_then(|f| f.len());
                if len.map_err(|e| Error::io("opening", &path, e))? == options.segment_size {
                    spares.files.push(path);
                } else {
                    disk.remove(&path)
                        .map_err(|e| Error::io("removal", &path, e))?;
                }
            }
        }
        Ok(Arc::new(LogDir {
            disk,
            dir: dir.to_owned(),
            stream,
            options,
            spares: Mutex::new(spares),
            reach: Mutex::default(),
        }))
    }

    /// Id of the history that this log holds.
    pub fn stream(&self) -> u128 {
        self.stream
    }

    /// The disk that the segments lie on.
    pub(crate) fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// Path of a segment.
    pub fn path(&self, name: SegmentName) -> PathBuf {
        self.dir.join(name.file_name())
    }

    /// The segments, oldest first.
    pub fn list(&self) -> Result<Vec<SegmentName>> {
        let names = self
            .disk
            .list(&self.dir)
            .map_err(|e| Error::io("listing", &self.dir, e))?;
        let mut segments: Vec<SegmentName> =
            names.iter().filter_map(|n| SegmentName::parse(n)).collect();
        segments.sort();
        Ok(segments)
    }

    /// How many spare files wait.
    pub fn spares(&self) -> usize {
        self.spares.lock().files.len()
    }

    /// Makes one spare file, if fewer wait than are kept; returns whether it did. For a background thread: it writes a
    /// whole segment of zeros, in steps of 1 MiB, and calls `pause` after each. `DiskFull` leaves nothing behind.
    pub fn prepare_spare(&self, pause: &dyn Fn()) -> Result<bool> {
        if self.spares() >= self.options.spares.max(1) {
            return Ok(false);
        }
        let path = {
            let mut spares = self.spares.lock();
            spares.next += 1;
            self.dir.join(format!("spare-{:016x}.wal", spares.next - 1))
        };
        self.fill(
            &path.with_extension("tmp"),
            self.options.segment_size,
            Some(pause),
        )?;
        self.disk
            .rename(&path.with_extension("tmp"), &path)
            .map_err(|e| Error::io("renaming", &path, e))?;
        self.spares.lock().files.push(path);
        Ok(true)
    }

    /// Gives the room of the spares back to the disk. How many there were. Where the log is accepted without its end, numbers of segments are
    /// given again, and a leftover in a spare must not pass for a group.
    pub fn give_up_spares(&self) -> usize {
        let spares = std::mem::take(&mut self.spares.lock().files);
        // One that stays is found at the next start.
        let gone = |p: &&PathBuf| self.disk.remove(p).is_ok();
        spares.iter().filter(gone).count()
    }

    /// A new file of this size, allocated and durable but for its name; removed again on failure. With `pause`: synced in small
    /// steps, so that the log's syncs never queue behind the whole of it.
    fn fill(&self, path: &Path, size: u64, pause: Option<&dyn Fn()>) -> Result<Arc<dyn DiskFile>> {
        let failed = |e| Error::io("allocation", path, e);
        // A try that fails half-way takes the last byte from everybody on this disk, and there are many tries.
        let room = self.disk.room(&self.dir).map_err(failed)?;
        if room < size {
            return Err(failed(io::ErrorKind::StorageFull.into()));
        }
        let file = self.disk.open(path, OpenMode::Truncate).map_err(failed)?;
        let allocate = || -> io::Result<()> {
            fault::fallible("wal.segment.fill")?;
            if size != self.options.segment_size {
                // Made for one huge group, which fills it at once.
                file.set_len(size)?;
            } else if let Some(pause) = pause {
                for from in (0..size).step_by(GENTLE_STEP as usize) {
                    file.zero_fill(from, (from + GENTLE_STEP).min(size))?;
                    file.sync_data()?;
                    pause();
                }
            } else {
                file.zero_fill(0, size)?;
            }
            // Nobody was promised anything of this file yet: a full disk here is just a full disk.
            file.sync_data()
        };
        if let Err(error) = allocate() {
            // The failure to report is the first one; a leftover is removed at the next start.
            let _ = self.disk.remove(path);
            return Err(failed(error));
        }
        Ok(file)
    }

    /// Makes the segment that `header` describes, big enough for a first group of `need` bytes, and gives it its name.
    /// `DiskFull` leaves nothing behind and can be tried again.
    pub(crate) fn create(&self, mut header: SegmentHeader, need: u64) -> Result<NewSegment> {
        let size = self
            .options
            .segment_size
            .max((SEGMENT_HEADER + need).next_multiple_of(4096));
        let spare = if size == self.options.segment_size {
            self.spares.lock().files.pop()
        } else {
            None
        };
        let name = SegmentName {
            number: header.number,
            first: header.first,
        };
        let path = self.path(name);
        let mut made = self.begin(&mut header, size, spare.as_deref(), &path);
        // One of its own size takes no spare, and what they lie on may be the room that it wants.
        let full = matches!(made, Err(Error::DiskFull { .. }));
        if full && size != self.options.segment_size && self.give_up_spares() > 0 {
            made = self.begin(&mut header, size, None, &path);
        }
        if made.is_err()
            && let Some(spare) = spare
        {
            // It has its old name still.
            self.spares.lock().files.push(spare);
        }
        let (file, chain) = made?;
        fault::point("wal.segment.after_rename");
        self.disk
            .sync_dir(&self.dir)
            .map_err(|e| Error::sync(&self.dir, e))?;
        Ok(NewSegment {
            file,
            path,
            size,
            chain,
        })
    }

    /// The file of [`LogDir::create`] under its name, which is not durable yet, and its header's checksum.
    fn begin(
        &self,
        header: &mut SegmentHeader,
        size: u64,
        spare: Option<&Path>,
        path: &Path,
    ) -> Result<(Arc<dyn DiskFile>, u32)> {
        let (made, file) = match spare {
            Some(spare) => {
                let file = self
                    .disk
                    .open(spare, OpenMode::Write)
                    .map_err(|e| Error::io("opening", spare, e))?;
                header.recycled = true;
                (spare.to_owned(), file)
            }
            None => {
                let made = path.with_extension("tmp");
                let file = self.fill(&made, size, None)?;
                (made, file)
            }
        };
        let (bytes, chain) = header.encode();
        file.write_all_at(&bytes, 0)
            .map_err(|e| Error::io("writing", &made, e))?;
        file.sync_data().map_err(|e| Error::sync(&made, e))?;
        fault::point("wal.segment.before_rename");
        self.disk
            .rename(&made, path)
            .map_err(|e| Error::io("renaming", path, e))?;
        Ok((file, chain))
    }

    /// Removes a segment whose groups, if it has any, are void.
    pub(crate) fn discard(&self, name: SegmentName) -> Result<()> {
        let path = self.path(name);
        self.disk
            .remove(&path)
            .map_err(|e| Error::io("removal", &path, e))?;
        self.disk
            .sync_dir(&self.dir)
            .map_err(|e| Error::sync(&self.dir, e))
    }

    /// Position after which the log here begins: what is at or below cannot be read any more. None without a segment.
    pub fn reaches_back_to(&self) -> Result<Option<Position>> {
        let Some(name) = self.list()?.first().copied() else {
            return Ok(None);
        };
        let path = self.path(name);
        let mut header = [0; SEGMENT_HEADER as usize];
        self.disk
            .open(&path, OpenMode::Read)
            .and_then(|f| f.read_exact_at(&mut header, 0))
            .map_err(|e| Error::io("reading", &path, e))?;
        let (header, _) =
            SegmentHeader::decode(&header).map_err(|r| Error::corrupt(&path, 0, r))?;
        Ok(Some(header.after))
    }

    /// The position to keep the log from (`DataDir::prune`) so that at most `bytes` of segments stay for who is away; the last one
    /// always does.
    pub fn position_within(&self, bytes: u64) -> Result<Position> {
        let (mut kept, mut from) = (0, Position::MAX);
        for name in self.list()?.iter().rev() {
            let path = self.path(*name);
            let len = self.disk.open(&path, OpenMode::Read).and_then(|f| f.len());
            kept += len.map_err(|e| Error::io("opening", &path, e))?;
            if from != Position::MAX && kept > bytes {
                break;
            }
            from = name.first.prev();
        }
        Ok(from)
    }

    /// Ends the log at this place: the segments behind go, the last first, and what follows in this one is zeroed; durable when it returns.
    /// May be done again.
    pub(crate) fn cut(&self, segment: u64, offset: u64) -> Result<()> {
        *self.reach.lock() = None;
        for name in self.list()?.into_iter().rev() {
            if name.number > segment {
                self.discard(name)?;
            } else if name.number == segment {
                let path = self.path(name);
                let file = self.disk.open(&path, OpenMode::Write);
                let file = file.map_err(|e| Error::io("opening", &path, e))?;
                file.len()
                    .and_then(|size| file.zero_fill(offset, size))
                    .map_err(|e| Error::io("clearing", &path, e))?;
                file.sync_data().map_err(|e| Error::sync(&path, e))?;
            }
        }
        Ok(())
    }

    /// Removes every segment and spare. Spares go too: numbers begin anew, and a leftover could pass for a group of this history.
    pub(crate) fn clear(&self) -> Result<()> {
        *self.reach.lock() = None;
        let mut spares = self.spares.lock();
        spares.files.clear();
        let names = self.disk.list(&self.dir);
        for name in names.map_err(|e| Error::io("listing", &self.dir, e))? {
            let path = self.dir.join(name);
            self.disk
                .remove(&path)
                .map_err(|e| Error::io("removal", &path, e))?;
        }
        self.disk
            .sync_dir(&self.dir)
            .map_err(|e| Error::sync(&self.dir, e))
    }

    /// Removes or recycles the segments of which every position is at or below `keep_from`, oldest first, never the last.
    /// Returns how many went.
    pub fn prune(&self, keep_from: Position) -> Result<usize> {
        let segments = self.list()?;
        let mut gone = 0;
        for pair in segments.windows(2) {
            // Every position of a segment is below the first of the next one.
            if pair[1].first > keep_from.next() {
                break;
            }
            let path = self.path(pair[0]);
            let len = self.disk.open(&path, OpenMode::Read).and_then(|f| f.len());
            let len = len.map_err(|e| Error::io("opening", &path, e))?;
            let mut spares = self.spares.lock();
            let mut recycled = None;
            if len == self.options.segment_size && spares.files.len() < self.options.spares {
                let spare = self.dir.join(format!("spare-{:016x}.wal", spares.next));
                spares.next += 1;
                self.disk
                    .rename(&path, &spare)
                    .map_err(|e| Error::io("renaming", &path, e))?;
                recycled = Some(spare);
            } else {
                self.disk
                    .remove(&path)
                    .map_err(|e| Error::io("removal", &path, e))?;
            }
            fault::point("wal.prune.before_sync");
            // One by one and oldest first: what a crash leaves is always a run without holes. Synced before the spare can be
            // written over: else a crash could bring the old name back with new bytes behind it.
            self.disk
                .sync_dir(&self.dir)
                .map_err(|e| Error::sync(&self.dir, e))?;
            spares.files.extend(recycled);
            gone += 1;
        }
        Ok(gone)
    }
}

fn spare_number(name: &str) -> Option<u64> {
    let number = name.strip_prefix("spare-")?.strip_suffix(".wal")?;
    u64::from_str_radix(number, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back_and_others_do_not() {
        let name = SegmentName {
            number: 7,
            first: Position::new(1, 3),
        };
        assert_eq!(name.file_name(), "0000000000000007-0000000001000003.wal");
        assert_eq!(SegmentName::parse(&name.file_name()), Some(name));
        for other in [
            "spare-0000000000000002.wal",
            "7-3.wal",
            "x.tmp",
            "canon.lock",
        ] {
            assert_eq!(SegmentName::parse(other), None, "{other}");
        }
    }
}
