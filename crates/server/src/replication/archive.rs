//! Keeps the archive (`wal::archive`): a task that copies what is finished, and the way back for replicas that ask for older log.
//!
//! ```text
//! primary's wal/, checkpoint/ ── every second, oldest first ──▶ archive ──▶ send.rs, when the directory does not reach back
//! ```
//! Commits never wait for it. What fails is tried again, later each time, and said once; segments stay in the directory until they are
//! in the archive, or until `wal_keep_bytes` of them wait. A primary writes below its term, so two that believe to be the primary do not
//! disturb each other.
//!
//! `file:///DIR` is a directory, a mounted file system say. `s3://BUCKET/PREFIX` is a bucket (`crate::bucket`; docs/decisions/0037, 0041).
//!
//! With the log go marks, `MARK_EVERY` and while commits come: which position had been published at which time. A restore to a time goes by them.
//!
//! Where there is a schedule, checkpoints are its affair (`backups`): this task copies log and marks then.
//!
//! Left out on purpose: removing old log from the archive (`backups`, `canon backup prune`), and making a data directory from it (`canon restore`).

use super::backups::{Backups, Schedule};
use crate::bucket::{Access, Bucket, Limits, Place};
use base::{Error, Position, Result, SqlState, Watermark};
use env::{Clock, Env};
use node::{Node, OlderLog, Role};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tracing::{error, info, warn};
use wal::archive::{Archive, Files, Mark, Objects};
use wal::{LogReader, SegmentName};

/// Between looks at what is finished.
const EVERY: Duration = Duration::from_secs(1);
/// Between marks.
const MARK_EVERY: Duration = Duration::from_secs(10);
/// Longest pause after failures.
const MOST_BACKOFF: Duration = Duration::from_secs(60);

fn bad(url: &str, why: impl std::fmt::Display) -> Error {
    let what = format!("archive = {url:?}: {why}");
    Error::new(SqlState::INVALID_PARAMETER_VALUE, what)
}

/// An archive as it is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    url: String,
    /// Checkpoints that stay there.
    checkpoints: u32,
}

impl Destination {
    /// The archive at a URL, none if that is empty; two checkpoints unless it is said otherwise.
    pub fn checked(url: String, checkpoints: Option<u32>) -> Result<Option<Destination>> {
        let checkpoints = checkpoints.unwrap_or(2);
        if checkpoints == 0 {
            let what = "archive_checkpoints = 0: 1 or more is meant";
            return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, what));
        }
        match url.split_once("://") {
            _ if url.is_empty() => Ok(None),
            Some(("file", path)) if path.starts_with('/') && path.len() > 1 => {
                Ok(Some(Destination { url, checkpoints }))
            }
            Some(("file", _)) => Err(bad(&url, "file:/// and an absolute path")),
            Some(("s3", rest)) => match Place::parse(rest) {
                Ok(_) => Ok(Some(Destination { url, checkpoints })),
                Err(why) => Err(bad(&url, why)),
            },
            Some((scheme, _)) => Err(bad(
                &url,
                format!("{scheme}:// is not a place that this program knows"),
            )),
            None => Err(bad(
                &url,
                "a URL such as file:///backup/canon or s3://bucket/canon",
            )),
        }
    }
}

/// The place that a URL names, for a command.
pub fn objects_at(url: &str) -> Result<Arc<dyn Objects>> {
    let place = Destination::checked(url.to_owned(), None)?;
    objects(
        &place
            .ok_or_else(|| {
                bad(
                    url,
                    "a URL such as file:///backup/canon or s3://bucket/canon",
                )
            })?
            .url,
    )
}

/// Of a URL that was checked. A bucket's variables are read here, so a server without them does not start; the bucket itself is not asked.
fn objects(url: &str) -> Result<Arc<dyn Objects>> {
    if let Some(rest) = url.strip_prefix("s3://") {
        let place = Place::parse(rest).map_err(|why| bad(url, why))?;
        let access = Access::of(&place, |name| std::env::var(name).ok())?;
        let clock = Env::os().clock;
        return Ok(Arc::new(Bucket::new(
            place,
            access,
            Limits::default(),
            clock,
        )));
    }
    let path = url.strip_prefix("file://");
    let path = path.ok_or_else(|| bad(url, "not a place that this program knows"))?;
    let (disk, path) = (Env::os().disk, Path::new(path));
    // What an older build archived was as open as the umask let it be. The directory around it is its owner's affair.
    let is_cluster = |n: &String| wal::archive::parse_cluster(n).is_some();
    let clusters = disk.list(path).unwrap_or_default().into_iter();
    for cluster in clusters.filter(is_cluster).map(|n| path.join(n)) {
        if let Err(e) = disk.make_private(&cluster) {
            warn!(path = %cluster.display(), error = %e, "the archive could not be closed to other users");
        }
    }
    Ok(Arc::new(Files::new(disk, path)))
}

/// See the head of the file.
pub struct Archiving {
    url: String,
    archive: Archive,
    node: Arc<Node>,
    clock: Arc<dyn Clock>,
    /// Those of a schedule, which copy the checkpoints then.
    pub backups: Option<Arc<Backups>>,
    /// Checkpoints that stay in the archive without one.
    keep: usize,
    /// The last mark, and when it was made (monotonic).
    mark: Mutex<(Position, Option<Duration>)>,
    /// Term and segments as they were when all that is finished of them was there.
    settled: Mutex<(u64, Vec<SegmentName>)>,
    /// The newest term whose beginning is in the archive.
    begun: AtomicU64,
    /// The newest checkpoint that is in the archive, by term and number.
    checkpoint: Mutex<(u64, u64)>,
    /// Finished segments that are not archived: their bytes.
    waiting: AtomicU64,
    /// Segments copied since the start, and failures.
    copied: AtomicU64,
    failures: AtomicU64,
    /// From positions at or below it the archive could not be read.
    unreadable: Watermark,
}

impl Archiving {
    /// Of a node that has an archive.
    pub fn of(
        place: &Option<Destination>,
        schedule: Option<Schedule>,
        env: &Env,
        node: &Arc<Node>,
    ) -> Result<Option<Arc<Archiving>>> {
        let place = place.as_ref();
        place
            .map(|p| Archiving::new(p, schedule, env, node.clone()).map(Arc::new))
            .transpose()
    }

    fn new(
        place: &Destination,
        schedule: Option<Schedule>,
        env: &Env,
        node: Arc<Node>,
    ) -> Result<Archiving> {
        let objects = objects(&place.url)?;
        let archive = Archive::new(objects.clone(), node.cluster());
        node.shipping().begin_archiving();
        let backups = schedule.map(|s| {
            let (node, env) = (node.clone(), env.clone());
            Arc::new(Backups::new(&place.url, objects, node, env, s))
        });
        Ok(Archiving {
            url: place.url.clone(),
            archive,
            node,
            clock: env.clock.clone(),
            backups,
            keep: place.checkpoints as usize,
            mark: Mutex::default(),
            settled: Mutex::default(),
            begun: AtomicU64::new(0),
            checkpoint: Mutex::default(),
            waiting: AtomicU64::new(0),
            copied: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            unreadable: Watermark::default(),
        })
    }

    /// Bytes of finished log that are not in the archive.
    pub fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Segments copied since the start.
    pub fn copied(&self) -> u64 {
        self.copied.load(Ordering::Relaxed)
    }

    /// Times that copying or reading failed.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Copies for as long as it lives.
    pub async fn run(self: Arc<Self>) {
        let (mut failed, mut pause) = (false, EVERY);
        loop {
            tokio::time::sleep(pause).await;
            if self.node.role() != Role::Primary {
                continue;
            }
            let me = self.clone();
            let done = tokio::task::spawn_blocking(move || me.step()).await;
            match done.unwrap_or_else(|e| Err(e.to_string())) {
                Ok(()) => {
                    if std::mem::take(&mut failed) {
                        info!(archive = self.url, "the archive takes log again");
                    }
                    pause = EVERY;
                }
                Err(why) => {
                    self.failures.fetch_add(1, Ordering::Relaxed);
                    pause = (pause * 2).min(MOST_BACKOFF);
                    if !std::mem::replace(&mut failed, true) {
                        let waiting = self.waiting();
                        warn!(
                            archive = self.url,
                            waiting_bytes = waiting,
                            "the archive does not take log: {why}; tried again until it does"
                        );
                    }
                }
            }
        }
    }

    /// Copies everything that is finished.
    fn step(&self) -> std::result::Result<(), String> {
        let (node, term) = (&self.node, self.node.term());
        let log = node.dir().log();
        let said = |e: wal::Error| e.to_string();
        // A place is not asked anew for as long as nothing has been finished here: each look at a bucket costs money.
        let own = (term, log.list().map_err(said)?);
        if *self.settled.lock() != own {
            self.copy_segments(term).map_err(said)?;
            *self.settled.lock() = own;
        }
        if self.begun.load(Ordering::Relaxed) != term {
            self.archive.note_begin(term, &node.terms()).map_err(said)?;
            self.begun.store(term, Ordering::Relaxed);
        }
        // Before a checkpoint, which may be refused for as long as the log is taken.
        self.mark(term).map_err(said)?;
        if self.backups.is_some() {
            return Ok(());
        }
        if let Some(newest) = node.dir().latest_checkpoint().map_err(said)? {
            let this = (term, newest.manifest().number);
            if *self.checkpoint.lock() != this {
                self.archive.copy_checkpoint(term, &newest).map_err(said)?;
                self.archive
                    .retain_checkpoints(term, self.keep)
                    .map_err(said)?;
                *self.checkpoint.lock() = this;
            }
        }
        Ok(())
    }

    /// Copies the segments that are finished and absent there.
    fn copy_segments(&self, term: u64) -> wal::Result<()> {
        let (node, log) = (&self.node, self.node.dir().log());
        let mut missing = self.archive.missing(term, log)?;
        let mut left: u64 = missing.iter().map(|m| m.1).sum();
        self.waiting.store(left, Ordering::Relaxed);
        for (name, bytes) in missing.drain(..) {
            if self.archive.copy_segment(term, log, name)? {
                self.copied.fetch_add(1, Ordering::Relaxed);
            }
            left -= bytes;
            self.waiting.store(left, Ordering::Relaxed);
        }
        let there = self.archive.segments(term)?;
        if let Some(last) = there.last() {
            let next = log.list()?;
            let next = next.iter().find(|n| n.number == last.number + 1);
            if let Some(SegmentName { first, .. }) = next {
                node.shipping().archived(first.prev());
            }
        }
        Ok(())
    }

    /// Notes what is published now, if it is more than at the last mark and that one is old enough.
    fn mark(&self, term: u64) -> wal::Result<()> {
        let now = Duration::from_nanos(self.clock.monotonic_nanos());
        let mut last = self.mark.lock();
        if last.1.is_some_and(|at| now < at + MARK_EVERY) {
            return Ok(());
        }
        // The position first: all up to it was committed before the time.
        let position = self.node.marks().published.get();
        let time = self.clock.unix_micros().max(0) as u64;
        if position > last.0 {
            self.archive.put_mark(term, Mark { time, position })?;
            *last = (position, Some(now));
        }
        Ok(())
    }
}

impl OlderLog for Archiving {
    fn reaches_back_to(&self) -> Option<Position> {
        let own = self.node.dir().log().list().ok()?.first()?.number;
        match self.archive.reaches_back_to(self.node.term(), own) {
            Ok(back) => back.map(|p| p.max(self.unreadable.get())),
            Err(e) => {
                self.failures.fetch_add(1, Ordering::Relaxed);
                warn!(archive = self.url, "the archive cannot be looked at: {e}");
                None
            }
        }
    }

    fn read(&self, from: Position) -> wal::Result<LogReader> {
        info!(%from, "reading log from the archive");
        LogReader::open(
            self.archive.log(self.node.term()),
            self.node.cluster(),
            from,
        )
    }

    fn cannot_read(&self, at: Position, why: &str) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        if self.unreadable.raise(at.next()) <= at {
            error!(
                archive = self.url,
                "the archive cannot be read after {at}: {why}; a replica that needs it is filled anew"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let checked = |url: &str| Destination::checked(url.into(), None);
        assert!(checked("file:///backup/canon").is_ok_and(|p| p.is_some()));
        assert!(checked("s3://backups/canon").is_ok_and(|p| p.is_some()));
        assert!(checked("").is_ok_and(|p| p.is_none()));
        for url in [
            "file://backup",
            "file:///",
            "/backup",
            "s4://b/p",
            "s3://",
            "s3://b/../x",
        ] {
            assert!(checked(url).is_err(), "{url}");
        }
        assert!(Destination::checked("file:///b".into(), Some(0)).is_err());
    }
}
