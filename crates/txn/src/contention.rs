//! What transactions do for one another once races are lost.
//!
//! An optimistic transaction learns at its commit that what it read has changed, and by then it has done all its work. Where
//! that happens seldom, nothing is better. Where it happens often ([`TxnOptions::contended`], set by a session whose last
//! SERIALIZABLE transactions lost), four courtesies make fewer transactions lose, or lose less. None decides anything: validation at commit
//! does, as ever, so each may be late, wrong or cut short, and is.
//!
//! - **Moves.** At the start of each statement the snapshot moves forward while everything read is unchanged (`Txn::refresh`), so
//!   that a row is read as it is now, and its time until commit is short. When something has changed, the first write says so at once.
//! - **Giving way.** Each shows what it has read, with the columns. A commit that would change some of it waits until the reader has ended,
//!   but not for long and never in a circle: readers end as the older of the two, instead of in vain.
//! - **Intents.** After each statement that wrote, it shows what it is about to change: rows, and the columns of them. A statement that has read some of
//!   that is undone, waits for the writer's end, and reads what he leaves: he has little left to do, the reader most of it. Otherwise
//!   the writer would wait for the reader, and while he waits more of them would come. Who has read something of the
//!   writer's before that goes on with the old state instead, since he has to be the first of the two; so does who has locks, which the
//!   writer could come to want.
//! - **Crossing.** Of two that have read what the other changes one loses. One at its commit has done all its work: it does not wait
//!   for the other, which is told 40001 at its next statement; or at once, when it changes what the one at its commit has read while that waits for it.
//!
//! ```text
//!    reader    reads x ········ gets to the end                reader              reads x, undone ···· reads x again
//!    writer        changes x, commits? ··· gives way, commits  writer    changes x ·········· commits
//! ```
//! Running transactions are names in the table of locks, so that queues, wakers and the search for circles are those of rows.
//! The rules are those of a multi-version lock manager in which a writer waits at commit only and a reader waits for writes that
//! are there already, with validation in place of its guarantees.
//!
//! Left out on purpose: reads by secondary index, which are not shown; an order among those who wait beyond that of their coming.

use base::{KeyRange, Position, Result};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::announced::{Announced, Intent, Read, SHOWN, meet};
use crate::locks::{Attempt, LockMode, LockName, LockWait, RUNNING_SPACE, TxnId};
use crate::stats::Cause;
use crate::txn::Txn;
use store::pin;

/// Rows that a statement may have read which is undone for a courtesy: more work than that is not thrown away.
const LIGHT: usize = 1000;

impl Txn {
    /// Before a statement of a contended transaction: what it reads should be what is there now, and the time until commit short.
    /// Looking at everything again at each statement would be quadratic: it is done while it stays a small part of the reading.
    pub(crate) fn refresh(&mut self) -> Result<()> {
        let behind = self.courtesy.behind.take();
        if let Some(writer) = &behind {
            let at = Position::from_u64(writer.committed.load(Ordering::Acquire));
            self.shared.wait_installed(at);
        }
        if self.courtesy.outdated || self.has_writes() {
            return Ok(());
        }
        let old = self.view()?.position();
        let scanned: usize = self.reads.ranges.iter().map(|r| r.rows).sum();
        let all = self.view()?.kept() + self.reads.absent.len() + scanned;
        let again = self
            .reads
            .ranges
            .iter()
            .filter(|r| !self.is_unwritten(r, old));
        let again: usize = again.map(|r| r.rows).sum();
        let reads = all - scanned + again;
        if behind.is_none() && self.courtesy.looked_again > 2 * all + 256 {
            return Ok(());
        }
        self.courtesy.looked_again += reads;
        if self.shared.marks.installed.get() == old {
            return Ok(());
        }
        let before = self.schema.catalog.clone();
        let to = self.take_snapshot();
        let guard = pin();
        let mut kept = self.kept();
        let same = self.others_unchanged(old, to.position(), &mut kept, &guard);
        if same && self.advance(to, &mut kept, &guard)? {
            self.has_moved(kept);
        } else {
            self.schema.see(before);
            self.courtesy.outdated = true;
        }
        Ok(())
    }

    /// Of one that has changed something: 40001 when it has been overtaken, and the other has committed. If that has failed, it is as if it
    /// had not been.
    pub(crate) fn check_overtaken(&self) -> Result<()> {
        let Some(f) = &self.courtesy.shown else {
            return Ok(());
        };
        let by = f.overtaken.load(Ordering::SeqCst);
        if by == 0 || !self.has_writes() {
            return Ok(());
        }
        let runs = self.shared.readers.has(by);
        let now = self.shared.marks.installed.get();
        _ = self.validate_reads(self.view()?.position(), now.next(), &pin())?;
        if !runs {
            // Unless another one has come meanwhile.
            let (set, order) = (Ordering::SeqCst, Ordering::SeqCst);
            _ = f.overtaken.compare_exchange(by, 0, set, order);
        }
        Ok(())
    }

    /// Before a write: 40001 when something read is known to have changed.
    pub(crate) fn check_outdated(&self) -> Result<()> {
        if !self.courtesy.outdated {
            return Ok(());
        }
        let now = self.shared.marks.installed.get();
        self.validate_reads(self.view()?.position(), now.next(), &pin())
            .map(|_| ())
    }

    /// At the first statement of a contended transaction: what it reads is shown from now on.
    pub(crate) fn show_up(&mut self) {
        let me = LockName {
            space: RUNNING_SPACE,
            hash: self.id,
        };
        self.shared
            .locks
            .acquire(self.id, me, LockMode::Update, false);
        self.locks.held.push(me);
        let footprint = Arc::new(Announced {
            id: self.id,
            reads: Mutex::default(),
            intents: Mutex::default(),
            committed: AtomicU64::new(0),
            complete: AtomicBool::new(false),
            overtaken: AtomicU64::new(0),
        });
        self.shared.readers.add(footprint.clone());
        self.courtesy.shown = Some(footprint);
    }

    pub(crate) fn shows_reads(&self) -> bool {
        self.courtesy.shown.is_some()
    }

    pub(crate) fn show_key(&self, storage: u32, key: &[u8], columns: u64) {
        if let Some(f) = &self.courtesy.shown {
            f.show(storage, Read::Key(key.into(), columns));
        }
    }

    pub(crate) fn show_range(&self, storage: u32, range: &KeyRange, columns: u64) {
        if let Some(f) = &self.courtesy.shown {
            f.show(storage, Read::Range(range.clone(), columns));
        }
    }

    /// At the commit: transactions that have read what this one is about to change, and run still. Not those that change, too, what this one
    /// has read: one of the two loses, and this one has done all its work.
    pub fn readers_in_the_way(&self) -> Vec<TxnId> {
        let readers = &self.shared.readers;
        let others =
            readers.count.load(Ordering::Relaxed) > usize::from(self.courtesy.shown.is_some());
        if !others || self.writes.is_empty() || !self.tracks_reads() {
            return vec![];
        }
        let mut read = HashSet::new();
        let all = readers.all.lock().clone();
        for f in all.iter().filter(|f| f.id != self.id) {
            read.extend(f.reads.lock().iter().map(|(storage, _)| *storage));
        }
        // A bulk load does not look at all its rows for the sake of a courtesy.
        let guard = pin();
        let tables = self.writes.tables.iter();
        let tables = tables.filter(|t| read.contains(&t.table.storage.id));
        let changes = tables.flat_map(|t| t.rows.iter().map(move |(k, p)| (t, k, p)));
        let intents: Vec<Intent> = changes
            .take(SHOWN)
            .map(|(t, k, p)| Intent::of(t, k, p, &guard))
            .collect();
        let all = readers.all.lock().clone();
        let others = all.iter().filter(|f| f.id != self.id);
        let Some(mine) = &self.courtesy.shown else {
            let reads = |f: &&Arc<Announced>| meet(&f.reads.lock(), &intents);
            return others.filter(reads).map(|f| f.id).collect();
        };
        mine.complete.store(true, Ordering::SeqCst);
        if mine.overtaken.load(Ordering::SeqCst) != 0 {
            return vec![];
        }
        let mut before = Vec::new();
        for f in others {
            if mine.is_crossed_by(f, &intents) {
                f.overtaken.store(self.id, Ordering::SeqCst);
            } else if meet(&f.reads.lock(), &intents) {
                before.push(f.id);
            }
        }
        before
    }

    /// After a statement of a contended transaction: what it has changed is shown. 40001 when one has read some of it that is at its commit
    /// and changes what this one has read: one of the two loses, and the other has done all its work.
    pub(crate) fn show_intents(&self) -> Result<()> {
        let Some(f) = &self.courtesy.shown else {
            return Ok(());
        };
        if self.writes.mark() == self.statement.mark.writes {
            return Ok(());
        }
        let guard = pin();
        let mut intents = f.intents.lock();
        let before = intents.len();
        let changes = self.writes.since(self.statement.mark.writes);
        intents.extend(
            changes
                .take(SHOWN.saturating_sub(before))
                .map(|(t, k, p)| Intent::of(t, k, p, &guard)),
        );
        let new = intents[before..].to_vec();
        drop(intents);
        let all = self.shared.readers.all.lock().clone();
        let complete = |o: &&Arc<Announced>| o.id != self.id && o.complete.load(Ordering::SeqCst);
        let mut all = all.iter().filter(complete);
        if let Some(other) = all.find(|o| f.is_crossed_by(o, &new)) {
            self.shared.stats.abort(Cause::Circle);
            let reads = other.reads.lock();
            let read = |i: &&Intent| meet(&reads, std::slice::from_ref(i));
            let change = new.iter().find(read).unwrap_or(&new[0]);
            return Err(self.crossed(change.storage, &change.key, other.id));
        }
        Ok(())
    }

    /// After a statement of a contended transaction that has only read so far: a wait for the end of one that is about to change some of what
    /// this statement has read. The statement is then to be undone and run again. None where reading the old state is what
    /// can come of it only: the other changes what was read before, too, or waits for this one; and where the statement was long.
    pub fn writer_in_the_way(&mut self) -> Option<LockWait> {
        let mine = self.courtesy.shown.clone()?;
        let me = self.id;
        let has_locks = || self.locks.held.iter().any(|l| l.space != RUNNING_SPACE);
        if self.courtesy.left == 0
            || self.courtesy.outdated
            || self.has_writes()
            || has_locks()
            || self.standing.portals > 0
            || self.read_by_statement() > LIGHT
        {
            return None;
        }
        let all = self.shared.readers.all.lock().clone();
        for other in all.into_iter().filter(|f| f.id != me) {
            let hit = {
                let intents = other.intents.lock();
                let reads = mine.reads.lock();
                let (before, now) = reads.split_at(self.statement.mark.shown.min(reads.len()));
                !intents.is_empty() && meet(now, &intents) && !meet(before, &intents)
            };
            if hit && let Some(end) = self.wait_for_end(other.id) {
                self.courtesy.left -= 1;
                self.courtesy.behind = Some(other);
                return Some(end);
            }
        }
        None
    }

    /// Rows that the statement has read so far.
    fn read_by_statement(&self) -> usize {
        let kept = self.reads.view.as_ref().map_or(0, |v| v.kept());
        let scanned = self.reads.ranges.iter().skip(self.statement.mark.ranges);
        kept.saturating_sub(self.statement.mark.kept) + scanned.map(|r| r.rows).sum::<usize>()
    }

    /// Waits for no writers any more.
    pub fn no_more_courtesy(&mut self) {
        self.courtesy.left = 0;
    }

    /// A wait for the end of a running transaction; none when it has ended, or waits for this one.
    pub fn wait_for_end(&mut self, of: TxnId) -> Option<LockWait> {
        let name = LockName {
            space: RUNNING_SPACE,
            hash: of,
        };
        match self
            .shared
            .locks
            .acquire(self.id, name, LockMode::KeyShare, true)
        {
            (Attempt::Wait(w), _) => {
                self.locks.held.push(name);
                self.queues_for(name);
                Some(w)
            }
            (Attempt::Granted, new) => {
                if new {
                    self.shared.locks.release(self.id, name);
                }
                None
            }
            (Attempt::Deadlock, _) => None,
        }
    }
}
