//! The archive: finished segments and checkpoints of a primary, copied to another place, and read from there when the primary's own
//! directory does not reach back far enough.
//!
//! ```text
//! CLUSTER/TERM/wal/NUMBER-FIRST.wal         a finished segment, byte for byte
//! CLUSTER/TERM/wal/NUMBER-FIRST.part        the segment behind them, as far as it was written when a backup was made
//! CLUSTER/TERM/checkpoint/….ckpt            the newest checkpoints of that term's primary
//! CLUSTER/TERM/times/MICROSECONDS-POSITION  no content: everything up to this position had been committed at this time; other notes (`names`)
//! ```
//! Each node cuts its log into segments in its own way, and a term has one primary; so the segments under a term are one node's, and
//! follow each other as they do in its directory. A segment is finished when the next one was begun: then it is never written again.
//!
//! The bytes are those of the log, with the log's checksums and chain; [`LogReader`](crate::LogReader) reads them as it reads a
//! directory, and finds in the same way what is damaged or cut short.
//!
//! [`Archive::prune`] removes what nothing that is kept needs, as `retention` decides. `backup` brings an archive up to the end of a log, `restore`
//! makes a directory of one.
//!
//! Left out on purpose: going on from one term's segments to another's. A primary's log holds the terms before its own as far as its directory
//! reached back, so each term's folder stands by itself.

use crate::checkpoint::{self, CheckpointReader, Manifest, file_name, parse_name};
use crate::error::{Error, Result};
use crate::names::{self, Times, part_name, removed_below};
use crate::retention::{self, Base, Keep, Term};
use crate::segment::{LogDir, SEGMENT_HEADER, SegmentHeader, SegmentName};
use crate::source::{SegmentBytes, SegmentSource};
use base::Position;
use env::{Disk, DiskFile, OpenMode};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use crate::names::{Mark, parse_part};

/// Bytes of a checkpoint that are read at once.
const PIECE: u64 = 8 << 20;

/// Where objects lie: names with slashes, contents that are written once and whole.
pub trait Objects: Send + Sync {
    /// Writes an object, whole and durable, or not at all; one of that name is replaced.
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()>;

    /// The same for an object that is not held in memory: of `len` bytes, of which `piece` gives at most so many at an offset, 1 or more.
    fn put_pieces(
        &self,
        name: &str,
        len: u64,
        piece: &mut dyn FnMut(u64, u64) -> io::Result<Vec<u8>>,
    ) -> io::Result<()>;

    /// Reads at most `buf.len()` bytes at `offset`; fewer near the end, 0 at it.
    fn read(&self, name: &str, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Length of an object.
    fn len(&self, name: &str) -> io::Result<u64>;

    /// Names of the objects right below `folder`, without it; none when there is no such folder.
    fn list(&self, folder: &str) -> io::Result<Vec<String>>;

    /// Names of the folders right below `folder`, without it.
    fn folders(&self, folder: &str) -> io::Result<Vec<String>>;

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

    /// A new file for what is to be the object `name`. No other writer has it: a server and a backup may write the same object at the same time, or
    /// two whose names differ in their endings alone.
    fn temporary(&self, name: &str) -> io::Result<(PathBuf, Arc<dyn DiskFile>)> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let own = format!("{name}.{}-{number}.tmp", std::process::id());
            let path = self.root.join(own);
            match self.disk.open(&path, OpenMode::CreateNew) {
                // Left behind by a process of this number, or another machine's.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                opened => return Ok((path, opened?)),
            }
        }
    }
}

fn write(
    file: &dyn DiskFile,
    len: u64,
    piece: &mut dyn FnMut(u64, u64) -> io::Result<Vec<u8>>,
) -> io::Result<()> {
    let mut at = 0;
    while at < len {
        let bytes = piece(at, PIECE.min(len - at))?;
        file.write_all_at(&bytes, at)?;
        at += bytes.len() as u64;
    }
    file.sync_data()
}

impl Objects for Files {
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let part = |at: u64, n: u64| {
            let at = at as usize;
            Ok(bytes[at..(at + n as usize).min(bytes.len())].to_vec())
        };
        self.put_pieces(name, bytes.len() as u64, &mut { part })
    }

    fn put_pieces(
        &self,
        name: &str,
        len: u64,
        piece: &mut dyn FnMut(u64, u64) -> io::Result<Vec<u8>>,
    ) -> io::Result<()> {
        let path = self.root.join(name);
        let dir = path.parent().expect("below the root");
        self.disk.create_dir_all(dir)?;
        let (temporary, file) = self.temporary(name)?;
        let written = write(&*file, len, piece);
        let placed = written.and_then(|()| self.disk.rename(&temporary, &path));
        if placed.is_err() {
            _ = self.disk.remove(&temporary);
        }
        placed?;
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

    fn folders(&self, folder: &str) -> io::Result<Vec<String>> {
        self.list(folder)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(&self.root.join(name))
    }
}

/// The cluster whose folder has this name; `None` for other names.
pub fn parse_cluster(name: &str) -> Option<u128> {
    let digits = name.len() == 32 && name.bytes().all(|b| b.is_ascii_hexdigit());
    digits.then(|| u128::from_str_radix(name, 16).ok())?
}

/// Fills `out`; `false` if there are fewer bytes.
fn read_exact(bytes: &dyn SegmentBytes, out: &mut [u8], at: u64) -> io::Result<bool> {
    let mut done = 0;
    while done < out.len() {
        match bytes.read_at(&mut out[done..], at + done as u64)? {
            0 => return Ok(false),
            n => done += n,
        }
    }
    Ok(true)
}

/// Whether an object is not there.
fn is_gone(e: &Error) -> bool {
    matches!(e, Error::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
}

/// The finished segments among these objects that follow each other without a hole up to the newest.
fn without_hole(names: &[String]) -> Vec<SegmentName> {
    let mut names: Vec<_> = names.iter().filter_map(|n| SegmentName::parse(n)).collect();
    names.sort_unstable();
    let hole = names
        .windows(2)
        .rposition(|p| p[1].number != p[0].number + 1);
    names.drain(..hole.map_or(0, |i| i + 1));
    names
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
        Ok(without_hole(&self.names(term, "wal")?))
    }

    /// The finished segments of this directory that are not in the archive, oldest first, and their bytes.
    pub fn missing(&self, term: u64, log: &LogDir) -> Result<Vec<(SegmentName, u64)>> {
        let names = self.names(term, "wal")?;
        let there = without_hole(&names);
        let mut own = log.list()?;
        // The last one is being written.
        own.pop();
        // What was removed because nothing needs it is not brought again.
        let from = removed_below(&names);
        let missing = own
            .into_iter()
            .filter(|n| n.number >= from && there.binary_search(n).is_err());
        let mut out = Vec::new();
        for name in missing {
            let path = log.path(name);
            let len = log.disk().open(&path, OpenMode::Read).and_then(|f| f.len());
            out.push((name, len.map_err(|e| Error::io("opening", &path, e))?));
        }
        Ok(out)
    }

    /// Copies a finished segment. `false`: the segment left the directory meanwhile, so the bytes that were read may be another's.
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

    /// Writes the beginning of the segment that is not finished. Beginnings of segments that have been finished meanwhile go.
    pub fn put_part(&self, term: u64, name: SegmentName, bytes: &[u8]) -> Result<()> {
        let object = format!("{}/{}", self.folder(term, "wal"), part_name(name));
        let put = self.objects.put(&object, bytes);
        put.map_err(|e| Error::io("copying", Path::new(&object), e))?;
        let names = self.names(term, "wal")?;
        let parts = names.iter().filter_map(|n| parse_part(n));
        for finished in parts.filter(|p| names.contains(&p.file_name())) {
            self.remove(term, "wal", &part_name(finished))?;
        }
        Ok(())
    }

    /// All segments of a term, finished or not, with the names of their objects: runs without a hole, each oldest first.
    fn runs(&self, term: u64) -> Result<Vec<Vec<(SegmentName, String)>>> {
        let mut all = std::collections::BTreeMap::new();
        for object in self.names(term, "wal")? {
            if let Some(name) = SegmentName::parse(&object) {
                all.insert(name, object);
            } else if let Some(name) = parse_part(&object) {
                all.entry(name).or_insert(object);
            }
        }
        let mut runs: Vec<Vec<(SegmentName, String)>> = Vec::new();
        for one in all {
            let goes_on = |r: &Vec<(SegmentName, String)>| {
                r.last().is_some_and(|l| l.0.number + 1 == one.0.number)
            };
            match runs.last_mut().filter(|r| goes_on(r)) {
                Some(run) => run.push(one),
                None => runs.push(vec![one]),
            }
        }
        Ok(runs)
    }

    /// The newest run that reaches back to `start`, from the segment on that is needed.
    fn run_above(&self, term: u64, start: Position) -> Result<Vec<(SegmentName, String)>> {
        for mut run in self.runs(term)?.into_iter().rev() {
            if self.begins_after(term, &run[0].1)? <= start {
                let needed = run.iter().rposition(|s| s.0.first <= start.next());
                run.drain(..needed.unwrap_or(0));
                return Ok(run);
            }
        }
        Ok(Vec::new())
    }

    /// The last position before a segment.
    fn begins_after(&self, term: u64, object: &str) -> Result<Position> {
        let object = format!("{}/{object}", self.folder(term, "wal"));
        let path = PathBuf::from(&object);
        let mut header = [0; SEGMENT_HEADER as usize];
        let read = self.open(object)?.read_at(&mut header, 0);
        let n = read.map_err(|e| Error::io("reading", &path, e))?;
        let header = SegmentHeader::decode(&header[..n]);
        Ok(header.map_err(|r| Error::corrupt(&path, 0, r))?.0.after)
    }

    fn names(&self, term: u64, what: &str) -> Result<Vec<String>> {
        let folder = self.folder(term, what);
        let names = self.objects.list(&folder);
        names.map_err(|e| Error::io("listing", Path::new(&folder), e))
    }

    /// The terms that have a folder here, ascending.
    pub fn terms(&self) -> Result<Vec<u64>> {
        let folder = format!("{:032x}", self.cluster);
        let names = self.objects.folders(&folder);
        let names = names.map_err(|e| Error::io("listing", Path::new(&folder), e))?;
        let mut terms: Vec<u64> = names.iter().filter_map(|n| n.parse().ok()).collect();
        terms.sort_unstable();
        Ok(terms)
    }

    /// Numbers of a term's checkpoints, ascending.
    pub fn checkpoints(&self, term: u64) -> Result<Vec<u64>> {
        let names = self.names(term, "checkpoint")?;
        let mut numbers: Vec<u64> = names.iter().filter_map(|n| parse_name(n)).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// The bytes of a checkpoint, to be read.
    pub fn checkpoint(&self, term: u64, number: u64) -> Result<Box<dyn SegmentBytes>> {
        let folder = self.folder(term, "checkpoint");
        self.open(format!("{folder}/{}", file_name(number)))
    }

    fn open(&self, object: String) -> Result<Box<dyn SegmentBytes>> {
        let objects = self.objects.clone();
        let len = objects.len(&object);
        let len = len.map_err(|e| Error::io("opening", Path::new(&object), e))?;
        Ok(Box::new(ArchivedSegment {
            objects,
            object,
            len,
        }))
    }

    /// What a term's folder knows of times.
    fn times(&self, term: u64) -> Result<Times> {
        Ok(Times::of(&self.names(term, "times")?))
    }

    fn note(&self, term: u64, name: &str) -> Result<()> {
        self.note_in(term, "times", name)
    }

    fn note_in(&self, term: u64, what: &str, name: &str) -> Result<()> {
        let object = format!("{}/{name}", self.folder(term, what));
        let put = self.objects.put(&object, &[]);
        put.map_err(|e| Error::io("copying", Path::new(&object), e))
    }

    /// Notes that everything up to a position had been committed at this time.
    pub fn put_mark(&self, term: u64, mark: Mark) -> Result<()> {
        self.note(term, &mark.name())
    }

    /// The moments that a term's folder knows, ascending.
    pub fn marks(&self, term: u64) -> Result<Vec<Mark>> {
        Ok(self.times(term)?.marks)
    }

    /// The first moment that a term's folder has known, if moments were removed from it.
    pub fn since(&self, term: u64) -> Result<Option<u64>> {
        Ok(self.times(term)?.since)
    }

    /// The last position that the history has of terms older than this one; what an older term's log has above it was lost in a fail-over.
    pub fn begins(&self, term: u64) -> Result<Option<Position>> {
        Ok(self.times(term)?.begins)
    }

    /// Notes where a term begins by this history, unless it is noted: the first of those above the newest older term that has a folder here. Terms between the
    /// two that archived nothing may have begun below what that folder holds.
    pub fn note_begin(&self, term: u64, history: &[(u64, Position)]) -> Result<()> {
        if self.begins(term)?.is_some() {
            return Ok(());
        }
        let older = self.terms()?.into_iter().rfind(|t| *t < term);
        let above = older.map_or(term, |t| t + 1);
        let first = history.iter().find(|t| (above..=term).contains(&t.0));
        let Some((_, begins)) = first.filter(|t| t.1 > Position::ZERO) else {
            return Ok(());
        };
        self.note(term, &names::begins(*begins))
    }

    /// Copies a checkpoint, unless it is there. Whether it was copied.
    pub fn copy_checkpoint(&self, term: u64, checkpoint: &CheckpointReader) -> Result<bool> {
        let number = checkpoint.manifest().number;
        if self.checkpoints(term)?.contains(&number) {
            return Ok(false);
        }
        let object = format!("{}/{}", self.folder(term, "checkpoint"), file_name(number));
        let mut failed = None;
        let put = self
            .objects
            .put_pieces(&object, checkpoint.len(), &mut |at, n| match checkpoint
                .read_at(at, n as usize)
            {
                Ok(bytes) if bytes.is_empty() => Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => Ok(bytes),
                Err(e) => Err(io::Error::other(failed.insert(e).to_string())),
            });
        // What the checkpoint itself says is no error of the place.
        match (put, failed) {
            (Err(_), Some(e)) => return Err(e),
            (put, _) => put.map_err(|e| Error::io("copying", Path::new(&object), e))?,
        }
        Ok(true)
    }

    /// Removes a term's checkpoints but for the newest `keep`, and the moments before the oldest of them. Returns how many objects went.
    pub fn retain_checkpoints(&self, term: u64, keep: usize) -> Result<usize> {
        let numbers = self.checkpoints(term)?;
        let (gone, kept) = numbers.split_at(numbers.len().saturating_sub(keep.max(1)));
        for number in gone {
            self.remove(term, "checkpoint", &file_name(*number))?;
        }
        let Some(oldest) = kept.first() else {
            return Ok(0);
        };
        let end = self.manifest(term, *oldest)?.end;
        let Times {
            mut marks, since, ..
        } = self.times(term)?;
        marks.retain(|m| m.position < end);
        if let (Some(first), None) = (marks.first(), since) {
            self.note(term, &names::since(first.time))?;
        }
        for mark in &marks {
            self.remove(term, "times", &mark.name())?;
        }
        Ok(gone.len() + marks.len())
    }

    /// All that retention asks of an archive, terms ascending.
    pub fn listing(&self) -> Result<Vec<Term>> {
        let mut all = Vec::new();
        for term in self.terms()? {
            let (wal, checkpoint) = (self.names(term, "wal")?, self.names(term, "checkpoint")?);
            let times = self.names(term, "times")?;
            let whole = Times::of(&times).whole;
            let mut numbers: Vec<u64> = checkpoint.iter().filter_map(|n| parse_name(n)).collect();
            numbers.sort_unstable();
            let mut bases = Vec::new();
            for number in numbers {
                let m = match self.manifest(term, number) {
                    // Nothing can be restored from it, or another process has removed it.
                    Err(Error::Corrupt { .. }) => continue,
                    Err(e) if is_gone(&e) => continue,
                    m => m?,
                };
                let whole = whole.iter().filter(|w| w.0 == number).map(|w| w.1).max();
                let (start, end) = (m.start, m.end);
                bases.push(Base {
                    number,
                    start,
                    end,
                    whole,
                });
            }
            all.push(Term {
                term,
                wal,
                checkpoint,
                times,
                bases,
            });
        }
        Ok(all)
    }

    /// Removes what nothing needs that is kept ([`retention::removal`]). Returns how many objects went.
    pub fn prune(&self, now: u64, keep: Keep) -> Result<usize> {
        let removal = retention::removal(&self.listing()?, now, keep);
        for (term, folder, note) in &removal.notes {
            self.note_in(*term, folder, note)?;
        }
        for (term, folder, name) in &removal.objects {
            match self.remove(*term, folder, name) {
                // Another process has removed it.
                Err(e) if is_gone(&e) => {}
                removed => removed?,
            }
        }
        Ok(removal.objects.len())
    }

    /// Whether a checkpoint was read whole here.
    pub fn was_whole(&self, term: u64, number: u64) -> Result<bool> {
        Ok(self.times(term)?.whole.iter().any(|w| w.0 == number))
    }

    /// Notes that a checkpoint and the log above its start were read whole here.
    pub fn note_whole(&self, term: u64, number: u64, time: u64) -> Result<()> {
        self.note(term, &names::whole(number, time))
    }

    /// The place, and the name of a checkpoint's object there.
    pub(crate) fn checkpoint_object(&self, term: u64, number: u64) -> (Arc<dyn Objects>, String) {
        let folder = self.folder(term, "checkpoint");
        (
            self.objects.clone(),
            format!("{folder}/{}", file_name(number)),
        )
    }

    /// What a checkpoint says of itself.
    pub fn manifest(&self, term: u64, number: u64) -> Result<Manifest> {
        let path = PathBuf::from(self.folder(term, "checkpoint")).join(file_name(number));
        let failed = |e| Error::io("reading", &path, e);
        let bytes = self.checkpoint(term, number)?;
        let (mut head, mut tail) = ([0; checkpoint::HEADER], [0; checkpoint::TRAILER]);
        let len = bytes.len().map_err(failed)?;
        let tail_at = len.saturating_sub(tail.len() as u64);
        let whole = read_exact(&*bytes, &mut head, 0).map_err(failed)?
            && read_exact(&*bytes, &mut tail, tail_at).map_err(failed)?;
        if !whole {
            return Err(Error::corrupt(&path, 0, "the checkpoint is cut short"));
        }
        checkpoint::manifest(&head, &tail).map_err(|reason| Error::corrupt(&path, 0, reason))
    }

    fn remove(&self, term: u64, what: &str, name: &str) -> Result<()> {
        let object = format!("{}/{name}", self.folder(term, what));
        let removed = self.objects.remove(&object);
        removed.map_err(|e| Error::io("removal", Path::new(&object), e))
    }

    /// The segments of a term, to be read.
    pub fn log(&self, term: u64) -> Arc<dyn SegmentSource> {
        Arc::new(ArchivedLog {
            folder: self.folder(term, "wal"),
            archive: self.clone(),
            term,
        })
    }

    /// The log above a position as far as it is here without a hole, the unfinished segment at its end, too.
    pub fn log_above(&self, term: u64, start: Position) -> Result<Arc<dyn SegmentSource>> {
        Ok(Arc::new(Run {
            archive: self.clone(),
            folder: self.folder(term, "wal"),
            segments: self.run_above(term, start)?,
        }))
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
        Ok(Some(self.begins_after(term, &first.file_name())?))
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
        self.archive.open(self.object(name))
    }

    fn describe(&self, name: SegmentName) -> PathBuf {
        PathBuf::from("archive").join(self.object(name))
    }
}

/// Segments that follow each other, as they were listed.
struct Run {
    archive: Archive,
    folder: String,
    segments: Vec<(SegmentName, String)>,
}

impl Run {
    fn object(&self, name: SegmentName) -> String {
        let found = self.segments.iter().find(|s| s.0 == name);
        let object = found.map_or_else(|| name.file_name(), |s| s.1.clone());
        format!("{}/{object}", self.folder)
    }
}

impl SegmentSource for Run {
    fn segments(&self) -> Result<Vec<SegmentName>> {
        Ok(self.segments.iter().map(|s| s.0).collect())
    }

    fn open(&self, name: SegmentName) -> Result<Box<dyn SegmentBytes>> {
        self.archive.open(self.object(name))
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
