//! A backup: an archive brought up to the end of a directory's log, also while a server works there.
//!
//! ```text
//! 1  CANON_VERSION and CANON_TERMS are read          whose log it is, and below which term it is archived
//! 2  the newest checkpoint is opened                 its handle stays good if the file goes
//! 3  finished segments that the archive lacks        copied byte for byte: those that the checkpoint needs, and those that follow the archive's
//! 4  the last segment                                up to its last whole group, as `….part`
//! 5  the checkpoint, if the archive lacks it         so a checkpoint in the archive always has the log up to its end
//! 6  CANON_TERMS is looked at again                  if it has changed, all of it begins anew
//! 7  a mark: this moment, and the position           what `restore --to-time` goes by
//! ```
//! A second backup copies what is new: it is incremental by the log. Whatever was acknowledged before it began is in it.
//! A backup that breaks off leaves whole objects, which the next one goes on from.
//!
//! [`check`] then reads what is there as a restore would, and notes that it is whole: only such a base counts for [`Archive::prune`].
//!
//! Left out on purpose: backups over the network (a replica is one), and when one is made (`retention`).

use crate::archive::{Archive, Mark, Objects};
use crate::archive_disk::ArchiveDisk;
use crate::checkpoint::CheckpointReader;
use crate::error::{Error, Result};
use crate::in_use::{Broken, InUse, LogInUse, is_gone};
use crate::reader::LogReader;
use crate::segment::{SEGMENT_HEADER, SegmentName};
use crate::source::{SegmentBytes, SegmentSource};
use crate::{data_dir, terms};
use base::Position;
use env::Disk;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// What a backup has brought into the archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackedUp {
    /// Of which cluster and term.
    pub cluster: u128,
    pub term: u64,
    /// Segments and bytes of log that were copied.
    pub segments: usize,
    pub bytes: u64,
    /// The newest checkpoint in the archive; 0: none, the log tells all.
    pub checkpoint: u64,
    /// The last position in the archive.
    pub last: Position,
    /// How often it began anew.
    pub tries: u32,
}

/// Brings the archive at `place` up to the end of the log in `dir`. `now` gives microseconds since 1970-01-01 UTC; `progress` is told of bytes.
pub fn back_up(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    place: &Arc<dyn Objects>,
    now: &dyn Fn() -> u64,
    progress: &dyn Fn(u64),
) -> Result<BackedUp> {
    let source = InUse {
        disk,
        dir,
        progress,
    };
    source.until_unchanged(|tries| match run(&source, place, now) {
        Ok(done) => Ok(Some(BackedUp { tries, ..done })),
        Err(Broken::Changed) => Ok(None),
        Err(Broken::Failed(e)) if is_gone(&e) => Ok(None),
        Err(Broken::Failed(e)) => Err(e),
    })
}

/// Reads in the archive what a backup has brought: the checkpoint, and the log above its start up to the backup's end, with all checksums. Then it notes
/// that this base is whole. `again`: the checkpoint is read also where that was noted before.
pub fn check(
    archive: &Archive,
    done: &BackedUp,
    again: bool,
    now: &dyn Fn() -> u64,
    progress: &dyn Fn(u64),
) -> Result<()> {
    let (term, number) = (done.term, done.checkpoint);
    let from = match number {
        0 => Position::ZERO,
        n => archive.manifest(term, n)?.start,
    };
    let read = number > 0 && (again || !archive.was_whole(term, number)?);
    if read {
        read_checkpoint(archive, term, number, progress)?;
    }
    let mut reader = LogReader::open(archive.log_above(term, from)?, done.cluster, from)?;
    while let Some(group) = reader.next_group()? {
        progress(group.header().len());
    }
    // A primary may have archived more meanwhile.
    let last = reader.last().max(from);
    if last < done.last {
        return Err(Error::NotOurs {
            path: "the archive".into(),
            reason: format!(
                "its log ends at {last}, and the directory's at {}",
                done.last
            ),
        });
    }
    match read {
        true => archive.note_whole(term, number, now()),
        false => Ok(()),
    }
}

/// Reads a checkpoint in the archive with all its checksums.
fn read_checkpoint(
    archive: &Archive,
    term: u64,
    number: u64,
    progress: &dyn Fn(u64),
) -> Result<()> {
    let root = Path::new("archive");
    let (objects, name) = archive.checkpoint_object(term, number);
    let disk = ArchiveDisk::new(objects, root);
    let whole = CheckpointReader::open(&disk, &root.join(name))?;
    for section in whole.sections() {
        whole.read_section(section)?;
        progress(section.len);
    }
    for chunk in whole.chunks() {
        whole.read_chunk(chunk)?;
        progress(chunk.len);
    }
    Ok(())
}

fn run(
    source: &InUse<'_>,
    place: &Arc<dyn Objects>,
    now: &dyn Fn() -> u64,
) -> std::result::Result<BackedUp, Broken> {
    let version = source.dir.join(data_dir::VERSION_FILE);
    let bytes = source.disk.read(&version);
    let bytes = bytes.map_err(|e| Error::io("reading", &version, e))?;
    let cluster = data_dir::parse_version(&version, &bytes)?;
    let history = read_terms(source)?;
    let term = history.last().map_or(1, |t| t.0);
    let archive = Archive::new(place.clone(), cluster);
    let checkpoint = source.newest_checkpoint()?;
    let start = checkpoint
        .as_ref()
        .map_or(Position::ZERO, |c| c.manifest().start);
    // What follows the archive's own log comes along, so that the archive has no hole.
    let there = archive.segments(term)?;
    let from = there.last().map_or(u64::MAX, |n| n.number);
    let log = source.log(cluster, start, from)?;
    // After the log was read: all that is in it was committed before this time.
    let time = now();
    let mut done = BackedUp {
        cluster,
        term,
        segments: 0,
        bytes: 0,
        checkpoint: 0,
        last: log.last,
        tries: 0,
    };
    copy_log(source, &archive, &there, &log, &mut done)?;
    archive.note_begin(term, &history)?;
    if let Some(c) = &checkpoint {
        if log.last < c.manifest().end {
            return Err(Broken::Changed);
        }
        if archive.copy_checkpoint(term, c)? {
            done.bytes += c.len();
            (source.progress)(c.len());
        }
        done.checkpoint = c.manifest().number;
    }
    if read_terms(source)? != history {
        return Err(Broken::Changed);
    }
    let position = log.last;
    archive.put_mark(term, Mark { time, position })?;
    Ok(done)
}

fn copy_log(
    source: &InUse<'_>,
    archive: &Archive,
    there: &[SegmentName],
    log: &LogInUse,
    done: &mut BackedUp,
) -> std::result::Result<(), Broken> {
    let Some((last, finished)) = log.names.split_last() else {
        return Ok(());
    };
    of_one_node(archive, log, there, done.term)?;
    for name in finished.iter().filter(|n| !there.contains(n)) {
        if !archive.copy_segment(done.term, &log.dir, *name)? {
            return Err(Broken::Changed);
        }
        done.segments += 1;
        let path = log.dir.path(*name);
        let bytes = log.dir.open(*name)?.len();
        let bytes = bytes.map_err(|e| Error::io("measuring", &path, e))?;
        done.bytes += bytes;
        (source.progress)(bytes);
    }
    let bytes = read_all(&*SegmentSource::open(&*log.dir, *last)?, log.upto(*last))?;
    if !log.has(&[*last])? {
        return Err(Broken::Changed);
    }
    if bytes.len() as u64 > SEGMENT_HEADER {
        archive.put_part(done.term, *last, &bytes)?;
        done.segments += 1;
        done.bytes += bytes.len() as u64;
    }
    Ok(())
}

/// Each node cuts a term's log into segments in its own way, so the segments of two nodes do not follow each other: refused, before anything is
/// copied. The newest segment that both have must be the same to the byte.
fn of_one_node(
    archive: &Archive,
    log: &LogInUse,
    there: &[SegmentName],
    term: u64,
) -> std::result::Result<(), Broken> {
    let (Some(last), Some(first)) = (there.last(), log.names.first()) else {
        return Ok(());
    };
    let same = match log.names.iter().rfind(|n| there.contains(n)) {
        Some(common) => {
            let theirs = read_all(&*archive.log(term).open(*common)?, log.upto(*common))?;
            let own = read_all(
                &*SegmentSource::open(&*log.dir, *common)?,
                log.upto(*common),
            );
            match own {
                Ok(own) => own == theirs,
                Err(e) if is_gone(&e) => return Err(Broken::Changed),
                Err(e) => return Err(e.into()),
            }
        }
        None => last.number < first.number,
    };
    if same {
        return Ok(());
    }
    let reason = format!(
        "holds the log of term {term} as another node has cut it into segments: back this node up to a place of its own"
    );
    let path = "the archive".into();
    Err(Error::NotOurs { path, reason }.into())
}

/// The first bytes of a segment.
fn read_all(bytes: &dyn SegmentBytes, upto: u64) -> Result<Vec<u8>> {
    let path = Path::new("a segment");
    let len = bytes.len().map_err(|e| Error::io("measuring", path, e))?;
    let mut all = vec![0; upto.min(len) as usize];
    let mut done = 0;
    while done < all.len() {
        let read = bytes.read_at(&mut all[done..], done as u64);
        match read.map_err(|e| Error::io("reading", path, e))? {
            0 => return Err(Error::io("reading", path, io::ErrorKind::NotFound.into())),
            n => done += n,
        }
    }
    Ok(all)
}

fn read_terms(source: &InUse<'_>) -> Result<Vec<(u64, Position)>> {
    let path = source.dir.join(terms::TERMS_FILE);
    match source.disk.read(&path) {
        Ok(bytes) => terms::parse(&bytes)
            .ok_or_else(|| Error::corrupt(&path, 0, "the file does not hold terms that ascend")),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(vec![(1, Position::ZERO)]),
        Err(e) => Err(Error::io("reading", &path, e)),
    }
}
