//! Backups by a schedule: a task of the primary that makes a base in the archive every so often, and removes what is older than wanted.
//!
//! ```text
//! the archive's listing ──▶ is_due ──▶ CHECKPOINT ──▶ back_up ──▶ check ──▶ prune
//!                                      unless one is new          reads it there
//! ```
//! `wal::retention` decides when a base is due and what may go, from what is in the archive. Nothing else is remembered: after a fail-over the new primary goes
//! on where the old one was, and a base that `canon backup` has made counts, too. Only the primary of the newest term in the archive makes any. The first base of
//! a term is due at once. It is the newest checkpoint as it is, so a restore soon has the whole term. Later ones are written anew where the newest is in
//! the archive already and commits have come since.
//!
//! Commits never wait for it. What fails is said once and tried again, later each time. Nothing is removed before the new base was read whole.
//!
//! Left out on purpose: a window of the day in which bases are made. A host's own schedule runs `canon backup` then.

use env::Env;
use node::{Node, Role};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tracing::{info, warn};
use wal::archive::{Archive, Objects};
use wal::backup::{back_up, check};
use wal::retention::{Keep, Term, is_due, reaches_back_to};

/// Between looks whether this node is the primary.
const EVERY: Duration = Duration::from_secs(1);
/// Longest pause: after failures, and between looks at the time.
const MOST_PAUSE: Duration = Duration::from_secs(60);

/// When bases are made, and what is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    pub every: Duration,
    pub keep: Keep,
}

/// What is known of the archive's bases, and of the work.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Bases that were read whole.
    pub bases: usize,
    /// When the newest was read whole, in microseconds since 1970-01-01 UTC.
    pub newest: Option<u64>,
    /// The first moment that can be restored.
    pub since: Option<u64>,
    /// Bytes that the backup under way has copied and read.
    pub under_way: Option<u64>,
    pub failures: u64,
    /// Why the last one failed; none: it did not.
    pub failed: Option<String>,
}

/// See the head of the file.
pub struct Backups {
    url: String,
    objects: Arc<dyn Objects>,
    archive: Archive,
    node: Arc<Node>,
    env: Env,
    schedule: Schedule,
    /// A backup was begun and not found whole: the next one does not go on from its checkpoint.
    doubted: AtomicBool,
    /// What need not be kept could not be removed.
    owed: AtomicBool,
    /// Of which term `seen` is.
    term: AtomicU64,
    seen: Mutex<Seen>,
}

impl Backups {
    pub fn new(
        url: &str,
        objects: Arc<dyn Objects>,
        node: Arc<Node>,
        env: Env,
        schedule: Schedule,
    ) -> Backups {
        Backups {
            url: url.to_owned(),
            archive: Archive::new(objects.clone(), node.cluster()),
            objects,
            node,
            env,
            schedule,
            doubted: AtomicBool::new(false),
            owed: AtomicBool::new(false),
            term: AtomicU64::new(0),
            seen: Mutex::default(),
        }
    }

    /// None at a replica: the primary makes the bases.
    pub fn seen(&self) -> Option<Seen> {
        let primary = self.node.role() == Role::Primary;
        primary.then(|| self.seen.lock().clone())
    }

    fn now(&self) -> u64 {
        self.env.clock.unix_micros().max(0) as u64
    }

    /// Makes bases for as long as it lives.
    pub async fn run(self: Arc<Self>) {
        let mut pause = EVERY;
        loop {
            tokio::time::sleep(pause).await;
            if self.node.role() != Role::Primary {
                pause = EVERY;
                continue;
            }
            let me = self.clone();
            let done = tokio::task::spawn_blocking(move || me.step()).await;
            let done = done.unwrap_or_else(|e| Err(e.to_string()));
            let mut seen = self.seen.lock();
            seen.under_way = None;
            match done {
                Ok(next) => {
                    if seen.failed.take().is_some() {
                        info!(archive = self.url, "backups go on");
                    }
                    pause = next.clamp(EVERY, MOST_PAUSE);
                }
                Err(why) => {
                    pause = (pause * 2).min(MOST_PAUSE);
                    seen.failures += 1;
                    if seen.failed.replace(why.clone()).is_none() {
                        warn!(
                            archive = self.url,
                            "the backup failed: {why}; tried again until it does not"
                        );
                    }
                }
            }
        }
    }

    /// Makes a base if one is due. How long until the next.
    fn step(&self) -> std::result::Result<Duration, String> {
        let said = |e: wal::Error| e.to_string();
        let (term, now) = (self.node.term(), self.now());
        let every = self.schedule.every;
        // A place is not asked for as long as the newest base that was seen there is new enough: each look at a bucket costs money.
        let newest = self.seen.lock().newest;
        let known = newest.filter(|_| self.term.load(Ordering::Relaxed) == term);
        if let Some(age) = known.map(|t| Duration::from_micros(now.abs_diff(t)))
            && age < every
            && !self.owed.load(Ordering::Relaxed)
        {
            return Ok(every - age);
        }
        let listing = self.archive.listing().map_err(said)?;
        self.note(&listing, term);
        if listing.last().is_some_and(|t| t.term > term) {
            return Ok(MOST_PAUSE);
        }
        if is_due(&listing, term, now, every.as_micros() as u64) {
            self.make(&listing, term)?;
        } else if self.owed.load(Ordering::Relaxed) {
            self.prune()?;
        }
        Ok(EVERY)
    }

    fn prune(&self) -> std::result::Result<usize, String> {
        self.owed.store(true, Ordering::Relaxed);
        let gone = self.archive.prune(self.now(), self.schedule.keep);
        let gone = gone.map_err(|e| e.to_string())?;
        self.owed.store(false, Ordering::Relaxed);
        Ok(gone)
    }

    fn make(&self, listing: &[Term], term: u64) -> std::result::Result<(), String> {
        let said = |e: wal::Error| e.to_string();
        self.seen.lock().under_way = Some(0);
        let there = listing.iter().find(|t| t.term == term);
        let there = there.map_or(0, Term::newest_checkpoint);
        let newest = self.node.dir().latest_checkpoint().map_err(said)?;
        let newest = newest.map(|c| *c.manifest());
        let published = self.node.marks().published.get();
        let doubted = self.doubted.swap(true, Ordering::Relaxed);
        // One that is not in the archive yet is taken as it is.
        if newest.is_none_or(|m| m.number <= there && (m.end < published || doubted)) {
            self.node.checkpoint().map_err(|e| e.to_string())?;
        }
        // A checkpoint takes its time. What the directory of a replica belongs to is the term of its primary.
        if self.node.role() != Role::Primary || self.node.term() != term {
            return Err("another node is the primary by now".into());
        }
        let progress = |n: u64| {
            if let Some(done) = &mut self.seen.lock().under_way {
                *done += n;
            }
        };
        let now = || self.now();
        let dir = self.node.dir();
        let done = back_up(&self.env.disk, dir.path(), &self.objects, &now, &progress);
        let done = done.map_err(said)?;
        check(&self.archive, &done, true, &now, &progress).map_err(said)?;
        self.doubted.store(false, Ordering::Relaxed);
        let gone = self.prune()?;
        info!(
            archive = self.url,
            term = done.term,
            checkpoint = done.checkpoint,
            bytes = done.bytes,
            removed = gone,
            "a backup was made and read whole, up to position {}",
            done.last
        );
        self.note(&self.archive.listing().map_err(said)?, term);
        Ok(())
    }

    fn note(&self, listing: &[Term], term: u64) {
        let whole = listing
            .iter()
            .flat_map(|t| t.bases.iter().map(|b| (t.term, b)));
        let whole = whole.filter_map(|(term, b)| Some((term, b.whole?)));
        let own = whole.clone().filter(|w| w.0 == term);
        let mut seen = self.seen.lock();
        seen.bases = whole.count();
        seen.newest = own.map(|w| w.1).max();
        seen.since = reaches_back_to(listing).map(|(_, mark)| mark.time);
        self.term.store(term, Ordering::Relaxed);
    }
}
