//! A data directory made from an archive: the state at its end, at a position, or at a time, under a new identity.
//!
//! ```text
//! the newest checkpoint whose end is not above the target  ── its first bytes name the new cluster ──▶ checkpoint/
//! the log above that checkpoint's start, group by group    ── up to the target ──────────────────────▶ wal/
//! ```
//! The new directory is a cluster of its own. Its id is new, so nodes of the old cluster and of this one refuse each other. Tokens, secrets and
//! addresses of the old one are not in it. A commit is restored whole or not at all, because a target lies between two commits.
//!
//! A **time** is turned into a position by the marks of the archive: the newest mark that is not after it. So the state has nothing that was committed
//! after the time, and lacks at most what was committed between that mark and the time. Where the log in the archive ends before the mark, the state ends there
//! ([`Restored::upto`]).
//!
//! **An older term** has the state of a target that lies in it, and of no other: its log ends where the next term began, or with commits that are not part of the history. So a time
//! of a newer term is refused where nothing is kept of it any more, and so is a position above the older log or above the beginning of the newer term.
//!
//! `CANON_VERSION` is written last. Without it there is no data directory, so no server starts on one that broke off.
//!
//! Left out on purpose: going on from one term's log to the next one's. The target lies in the newest term that has a checkpoint below it, or a log
//! from the beginning.

use crate::archive::{Archive, Objects};
use crate::checkpoint::{self, CheckpointReader, Manifest};
use crate::data_dir;
use crate::error::{Error, Result};
use crate::group::Group;
use crate::reader::LogReader;
use crate::segment::{LogDir, LogOptions};
use crate::source::SegmentBytes;
use crate::terms;
use crate::writer::{Commit, LogEnd, LogWriter};
use base::{Position, record};
use env::{Disk, Env, OpenMode};
use std::path::Path;
use std::sync::Arc;

/// Bytes copied at once.
const PART: usize = 1 << 20;

/// How far to restore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Target {
    /// All that is there.
    #[default]
    End,
    /// Commits up to this position.
    Position(Position),
    /// Microseconds since 1970-01-01 UTC.
    Time(u64),
}

/// What was restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restored {
    /// Ids of the old cluster and of the new one.
    pub from: u128,
    pub cluster: u128,
    /// The term whose folder it was made from.
    pub term: u64,
    /// The checkpoint; 0: none was needed.
    pub checkpoint: u64,
    pub commits: u64,
    /// The last commit that is in the directory.
    pub last: Position,
    /// What was wanted: up to here. The log in the archive may end before.
    pub upto: Position,
    /// The archive's log goes on behind `upto`, or ends there: the directory lacks nothing of what was wanted.
    pub reached: bool,
}

/// The clusters that have a folder in this place.
pub fn clusters(place: &dyn Objects) -> Result<Vec<u128>> {
    let names = place.folders("");
    let names = names.map_err(|e| Error::io("listing", Path::new("archive"), e))?;
    Ok(names
        .iter()
        .filter_map(|n| crate::archive::parse_cluster(n))
        .collect())
}

/// Makes the directory `to`, which is absent or empty, from what a place has of a cluster. `log` says how large its segments are; `progress` is told
/// of bytes.
pub fn restore(
    env: &Env,
    place: &Arc<dyn Objects>,
    cluster: u128,
    to: &Path,
    target: Target,
    log: LogOptions,
    progress: &dyn Fn(u64),
) -> Result<Restored> {
    let exists = env.disk.list(to).is_ok_and(|names| !names.is_empty());
    if exists {
        return Err(Error::NotOurs {
            path: to.to_owned(),
            reason: "is not empty: a restored directory needs a folder of its own".into(),
        });
    }
    let archive = Archive::new(place.clone(), cluster);
    let plan = plan(&archive, cluster, target)?;
    let new = New {
        disk: &env.disk,
        path: to,
        cluster: env.random.next_u128(),
        log,
    };
    let made = make(&new, &archive, cluster, &plan, progress)?;
    env.disk.sync_dir(to).map_err(|e| Error::sync(to, e))?;
    data_dir::write_version(&*env.disk, to, new.cluster)?;
    env.disk.sync_dir(to).map_err(|e| Error::sync(to, e))?;
    Ok(made)
}

/// The directory that is being made.
struct New<'a> {
    disk: &'a Arc<dyn Disk>,
    path: &'a Path,
    cluster: u128,
    log: LogOptions,
}

/// From what a directory is made.
struct Plan {
    term: u64,
    checkpoint: Option<Manifest>,
    upto: Position,
    /// The log has to reach that far: a newer term has what follows.
    reaches: bool,
}

/// The newest term that has the target, and its newest checkpoint that is not above it.
fn plan(archive: &Archive, cluster: u128, target: Target) -> Result<Plan> {
    let terms = archive.terms()?;
    let mut oldest = None;
    // What the history has of the term that is looked at: all up to the beginning of the next.
    let mut ends = Position::MAX;
    for (newer, term) in terms.into_iter().rev().enumerate() {
        let reaches = newer > 0 && matches!(target, Target::Position(_));
        let upto = match target {
            Target::End => Position::MAX,
            Target::Position(p) if p > ends => break,
            Target::Position(p) => p,
            Target::Time(time) => {
                let marks = archive.marks(term)?;
                match marks.iter().rfind(|m| m.time <= time) {
                    Some(mark) => mark.position,
                    // It lies in this term. What was kept of that moment is gone.
                    None if archive.since(term)?.is_some_and(|t| t <= time) => {
                        if let Some(first) = archive.checkpoints(term)?.first() {
                            oldest = Some(archive.manifest(term, *first)?.end);
                        }
                        break;
                    }
                    None => {
                        ends = archive.begins(term)?.map_or(ends, |b| ends.min(b));
                        continue;
                    }
                }
            }
        };
        let upto = upto.min(ends);
        ends = archive.begins(term)?.map_or(ends, |b| ends.min(b));
        for number in archive.checkpoints(term)?.into_iter().rev() {
            let manifest = archive.manifest(term, number)?;
            if manifest.end <= upto && has_log(archive, cluster, term, &manifest)? {
                return Ok(Plan {
                    term,
                    checkpoint: Some(manifest),
                    upto,
                    reaches,
                });
            }
            oldest = Some(manifest.end);
        }
        let begins = archive
            .segments(term)?
            .first()
            .is_none_or(|n| n.number == 1);
        let log = archive.log_above(term, Position::ZERO)?.segments()?;
        if begins && log.first().is_some_and(|n| n.number == 1) {
            return Ok(Plan {
                term,
                checkpoint: None,
                upto,
                reaches,
            });
        }
        if matches!(target, Target::Time(_)) {
            // The moment lies in this term: an older one ends before.
            break;
        }
    }
    let reason = match (oldest, target) {
        (Some(end), _) => {
            format!("holds no state before position {end}, which its oldest checkpoint needs")
        }
        (None, Target::Time(_)) => "holds no moment that is not after this time".into(),
        (None, _) => "holds no log from the beginning and no checkpoint of this cluster".into(),
    };
    Err(Error::NotOurs {
        path: "the archive".into(),
        reason,
    })
}

/// Whether the archive has the log up to the end of a checkpoint. A primary archives a checkpoint at once, and the segment that is being written only when
/// it is finished.
fn has_log(archive: &Archive, cluster: u128, term: u64, m: &Manifest) -> Result<bool> {
    if m.start == m.end {
        return Ok(true);
    }
    let log = archive.log_above(term, m.start)?;
    let names = log.segments()?;
    let Some(last) = names.last() else {
        return Ok(false);
    };
    if last.first > m.end {
        return Ok(true);
    }
    let mut reader = LogReader::open(log, cluster, m.start)?;
    while let Some(group) = reader.next_group()? {
        if group.header().last >= m.end {
            return Ok(true);
        }
    }
    Ok(false)
}

fn make(
    new: &New<'_>,
    archive: &Archive,
    from: u128,
    plan: &Plan,
    progress: &dyn Fn(u64),
) -> Result<Restored> {
    let checkpoints = new.path.join("checkpoint");
    new.disk
        .create_dir_all(&checkpoints)
        .map_err(|e| Error::io("creation", &checkpoints, e))?;
    let start = plan.checkpoint.map_or(Position::ZERO, |m| m.start);
    let end = plan.checkpoint.map_or(Position::ZERO, |m| m.end);
    if let Some(m) = &plan.checkpoint {
        let bytes = archive.checkpoint(plan.term, m.number)?;
        copy_checkpoint(new, &checkpoints, &*bytes, m, progress)?;
    }
    let wal = new.path.join("wal");
    let dir = LogDir::open(new.disk.clone(), &wal, new.cluster, new.log.clone())?;
    let mut reader = LogReader::open(archive.log_above(plan.term, start)?, from, start)?;
    let mut log = Log {
        dir,
        writer: None,
        last: start,
        terms: Vec::new(),
        commits: 0,
    };
    let mut beyond = false;
    while let Some(group) = reader.next_group()? {
        progress(group.header().len());
        beyond = group.header().last > plan.upto;
        log.append(&group, start, plan.upto)?;
        if beyond {
            break;
        }
    }
    if plan.reaches && !beyond && log.last < plan.upto {
        return Err(Error::NotOurs {
            path: "the archive".into(),
            reason: format!(
                "has no state at {} any more: term {} ends at {}, and what is kept of the next one begins above that position",
                plan.upto, plan.term, log.last
            ),
        });
    }
    if log.last < end {
        return Err(Error::NotOurs {
            path: "the archive".into(),
            reason: format!(
                "its log ends at {}, before the end of its checkpoint, {end}",
                log.last
            ),
        });
    }
    let terms = log.finish(plan.term)?;
    terms::replace(
        &**new.disk,
        new.path,
        terms::TERMS_FILE,
        terms::text(&terms).as_bytes(),
    )?;
    let (commits, last) = (log.commits, log.last);
    Ok(Restored {
        from,
        cluster: new.cluster,
        term: plan.term,
        checkpoint: plan.checkpoint.map_or(0, |m| m.number),
        commits,
        last,
        upto: plan.upto,
        reached: beyond || last >= plan.upto,
    })
}

/// The checkpoint's bytes, its header in the name of the new cluster; then its checksums are looked at.
fn copy_checkpoint(
    new: &New<'_>,
    checkpoints: &Path,
    bytes: &dyn SegmentBytes,
    m: &Manifest,
    progress: &dyn Fn(u64),
) -> Result<()> {
    let path = checkpoints.join(checkpoint::file_name(m.number));
    let failed = |e| Error::io("writing", &path, e);
    let file = new.disk.open(&path, OpenMode::CreateNew).map_err(failed)?;
    let (mut at, mut part) = (0, vec![0; PART]);
    loop {
        let n = bytes
            .read_at(&mut part, at)
            .map_err(|e| Error::io("reading", &path, e))?;
        if n == 0 {
            break;
        }
        file.write_all_at(&part[..n], at).map_err(failed)?;
        at += n as u64;
        progress(n as u64);
    }
    file.write_all_at(&checkpoint::header_for(new.cluster, m), 0)
        .map_err(failed)?;
    file.sync_data().map_err(|e| Error::sync(&path, e))?;
    new.disk
        .sync_dir(checkpoints)
        .map_err(|e| Error::sync(checkpoints, e))?;
    let whole = CheckpointReader::open(&**new.disk, &path)?;
    for section in whole.sections() {
        whole.read_section(section)?;
    }
    for chunk in whole.chunks() {
        whole.read_chunk(chunk)?;
    }
    Ok(())
}

/// The new directory's log, as it grows.
struct Log {
    dir: Arc<LogDir>,
    writer: Option<LogWriter>,
    last: Position,
    /// Terms of its history, each with the position before its first group.
    terms: Vec<(u64, Position)>,
    commits: u64,
}

impl Log {
    /// Appends a group's commits above `start` and up to `upto`.
    fn append(&mut self, group: &Group, start: Position, upto: Position) -> Result<()> {
        let commits = commits(group, start, upto)?;
        let (Some(last), term) = (commits.last(), group.header().term) else {
            return Ok(());
        };
        if self.terms.last().is_none_or(|t| t.0 < term) {
            // What came before the log that is here, the first of its terms stands for.
            let before = match self.terms.is_empty() {
                true => Position::ZERO,
                false => self.last,
            };
            self.terms.push((term, before));
        }
        let writer = match &mut self.writer {
            Some(w) => w,
            None => {
                let end = LogEnd::empty(start);
                let w = LogWriter::resume(self.dir.clone(), &end, term)?;
                self.writer.insert(w)
            }
        };
        writer.set_term(term);
        writer.append_group(&commits, group.header().published.min(last.position))?;
        (self.last, self.commits) = (last.position, self.commits + commits.len() as u64);
        Ok(())
    }

    /// Makes it durable; the terms of its history.
    fn finish(&mut self, term: u64) -> Result<Vec<(u64, Position)>> {
        if let Some(w) = &mut self.writer {
            w.sync()?;
        }
        if self.terms.is_empty() {
            self.terms.push((term, Position::ZERO));
        }
        Ok(self.terms.clone())
    }
}

/// The commits of a group that lie above `start` and up to `upto`.
fn commits(group: &Group, start: Position, upto: Position) -> Result<Vec<Commit>> {
    let (mut heads, mut data) = (group.heads(), group.data());
    let mut out = Vec::new();
    for _ in 0..group.header().count {
        let (h, d) = (heads, data);
        let commit = record::Commit::take(&mut heads, &mut data).map_err(Error::Apply)?;
        if commit.position > start && commit.position <= upto {
            out.push(Commit {
                position: commit.position,
                heads: h[..h.len() - heads.len()].to_vec(),
                data: d[..d.len() - data.len()].to_vec(),
            });
        }
    }
    Ok(out)
}
