//! Preparing: the records of the write set are locked and found, the index entries of the new rows are linked, the record for the log is
//! made, and the row locks of others are looked at. Nothing is visible yet, and all of it can be undone.
//!
//! A record's lock is spun on by others, so what holds prepared records may not wait for a disk or a network.
//!
//! Left out on purpose: marks that may be held over a round trip, which partitions need.

use base::record::{CommitBuilder, RecordKind};
use base::{Position, Result};
use std::borrow::Cow;
use store::{Guard, NewVersion, Record, SecondaryIndex, pin};

use super::{MAX_COMMIT_BYTES, too_big};
use crate::backoff::Backoff;
use crate::handle::TableHandle;
use crate::locks::LockMode;
use crate::split::Now;
use crate::stats::Cause;
use crate::txn::Txn;
use crate::writes::{Pending, TableWrites};

/// A write set whose records are locked. It ends in [`Prepared::install`] or in [`Prepared::undo`].
pub(super) struct Prepared<'t> {
    pub(super) txn: &'t Txn,
    /// The write set as it is committed.
    pub(super) tables: &'t [TableWrites],
    pub(super) guard: &'t Guard,
    pub(super) locked: Vec<Locked<'t>>,
    /// One for each of `locked`.
    pub(super) versions: Vec<NewVersion>,
    pub(super) log: CommitBuilder,
    /// A delta belongs to another record than the one that was chosen: to be undone and prepared anew.
    pub(super) stale: bool,
}

/// A locked record and what becomes of it.
pub(super) struct Locked<'g> {
    pub(super) record: &'g Record,
    pub(super) change: Cow<'g, Pending>,
    pub(super) table: &'g TableWrites,
    pub(super) entries: Vec<Entry<'g>>,
}

/// An index entry of the new row.
pub(super) struct Entry<'g> {
    pub(super) index: &'g SecondaryIndex,
    key: Vec<u8>,
    /// This commit linked it, and unlinks it if it fails.
    linked: bool,
    /// A key of a unique index that the row did not have: nobody else may. The entry may have been there all the same, for the
    /// sake of an older version of this row.
    claims: bool,
}

impl Locked<'_> {
    /// The unique keys that the row comes to have, each with its columns' part of the entry's key.
    pub(super) fn claims(&self) -> impl Iterator<Item = (&SecondaryIndex, &[u8])> {
        let claims = self.entries.iter().filter(|e| e.claims);
        claims.map(|e| (e.index, &e.key[..e.key.len() - self.record.key().len()]))
    }

    /// The row's key as errors show it.
    pub(super) fn describe(&self) -> String {
        match self.change.row.as_deref() {
            Some(row) => self.table.table.describe_row(row),
            None => self.table.table.describe_record(self.record, &pin()),
        }
    }
}

impl Txn {
    /// Locks and links the whole write set. An error leaves nothing behind.
    pub(super) fn prepare<'t>(
        &'t self,
        tables: &'t [TableWrites],
        guard: &'t Guard,
    ) -> Result<Prepared<'t>> {
        let memory = &self.shared.store.memory;
        let (changes, bytes) = self.writes.size();
        let mut prepared = Prepared {
            txn: self,
            tables,
            guard,
            stale: false,
            locked: Vec::with_capacity(changes),
            versions: Vec::with_capacity(changes),
            log: CommitBuilder::with_capacity(changes, bytes),
        };
        if let Some(s) = &self.schema.own {
            let changes = base::schema::encode_changes(s.changes());
            prepared.log.push(RecordKind::Schema, 0, &[], &changes);
        }
        let view = self.view()?;
        for t in tables {
            let storage = &t.table.storage;
            for (key, change) in &t.rows {
                let kept = change.kept.map(|n| view.record(n, storage, key, guard));
                let kept = kept.and_then(|found| found.unwrap_or_default());
                let (record, waited) = lock_record(self, t, key, kept, guard);
                if let Some(moved) = change.moved.as_ref().filter(|_| waited) {
                    for (column, _) in &moved.net {
                        self.shared.note_wait(&t.table, key, *column);
                    }
                }
                let change = match &change.moved {
                    None => Cow::Borrowed(change),
                    // Without a row to add to, the version that it saw is not there, which certification tells.
                    Some(_) => match self.moved_now(&t.table, record, change, guard) {
                        Now::Row(now) => Cow::Owned(now),
                        Now::Gone => Cow::Borrowed(change),
                        Now::Elsewhere => {
                            prepared.stale = true;
                            Cow::Borrowed(change)
                        }
                    },
                };
                let entries = link_entries(self, t, record, &change, guard);
                match &change.row {
                    Some(row) => prepared.log.push(RecordKind::Put, storage.id, key, row),
                    None => prepared.log.push(RecordKind::Delete, storage.id, key, &[]),
                }
                let version = NewVersion::new(change.row.as_deref());
                memory.add(version.rounded());
                prepared.versions.push(version);
                prepared.locked.push(Locked {
                    record,
                    change,
                    table: t,
                    entries,
                });
            }
        }
        for n in &self.notifications {
            let log = &mut prepared.log;
            log.push(RecordKind::Notify, 0, &[], &n.encode());
        }
        if prepared.stale {
            return Ok(prepared);
        }
        match prepared.check() {
            Ok(()) => Ok(prepared),
            Err(e) => {
                prepared.undo();
                Err(e)
            }
        }
    }
}

impl Prepared<'_> {
    /// What can be refused before there is a position. Afterwards the records say that a position is about to be asked for.
    fn check(&self) -> Result<()> {
        if self.log.bytes() > MAX_COMMIT_BYTES {
            return Err(too_big());
        }
        self.check_locks()?;
        self.locked.iter().for_each(|l| l.record.set_ordering());
        match self.txn.options.locking {
            true => Ok(()),
            false => self.txn.check_parents(),
        }
    }

    /// After the records are locked, so that a locking transaction either sees them or is seen: the row and key locks of others.
    fn check_locks(&self) -> Result<()> {
        let txn = self.txn;
        if txn.options.locking {
            return Ok(());
        }
        let locks = &txn.shared.locks;
        for l in &self.locked {
            let table = &l.table.table;
            if l.change.moved.is_some() {
                // It holds the row's lock in mode Delta.
                continue;
            }
            let new_unique_key = l.claims().next().is_some();
            let in_place = l.change.row.is_some() && l.change.existed && !new_unique_key;
            let mode = if in_place {
                LockMode::NoKeyUpdate
            } else {
                LockMode::Update
            };
            let mut holder = locks.holder(txn.id, table.row_lock(l.record.key()), mode);
            for (index, columns) in l.claims() {
                let name = TableHandle::unique_lock(index, columns);
                holder = holder.or_else(|| locks.holder(txn.id, name, LockMode::Update));
            }
            if holder.is_some() {
                txn.shared.stats.abort(Cause::RowLocked);
                return Err(txn.row_is_locked(table, &l.describe(), holder));
            }
        }
        Ok(())
    }

    /// Takes everything back: entries unlinked, records unlocked, memory no longer counted.
    pub(super) fn undo(self) {
        let memory = &self.txn.shared.store.memory;
        self.versions.iter().for_each(|v| memory.add(-v.rounded()));
        for l in &self.locked {
            for e in l.entries.iter().filter(|e| e.linked) {
                e.index.unlink(&e.key, memory, self.guard);
            }
            if l.record.newest(self.guard).is_none() {
                l.table.table.storage.mark_stale(l.record, Position::ZERO);
            }
            l.record.unlock();
        }
    }
}

/// Locks the record of a key for this commit, making it if there is none; whether it had to wait. The holder now, a commit or the reclaimer, is short.
fn lock_record<'g>(
    txn: &Txn,
    t: &'g TableWrites,
    key: &[u8],
    kept: Option<&'g Record>,
    guard: &'g Guard,
) -> (&'g Record, bool) {
    let storage = &t.table.storage;
    let mut waited = false;
    let mut wait = Backoff::default();
    let mut known = kept;
    loop {
        let find = || storage.find_or_create(key, &txn.shared.store.memory, guard);
        let record = known.take().unwrap_or_else(find);
        match record.try_lock() {
            Ok(()) => return (record, waited),
            Err(_) => {
                waited = true;
                wait.pause();
            }
        }
    }
}

/// Links the entries that the new row needs; those that the commit has to check or to take back. The record is locked.
fn link_entries<'g>(
    txn: &Txn,
    t: &'g TableWrites,
    record: &Record,
    change: &Pending,
    guard: &Guard,
) -> Vec<Entry<'g>> {
    let Some(row) = &change.row else {
        return vec![];
    };
    let mut entries = Vec::new();
    let (mut key, mut had) = (Vec::new(), Vec::new());
    for index in t.table.indexes.iter().flatten() {
        index.spec.key_of(row, record.key(), &mut key);
        let linked = index.link(&key, record, &txn.shared.store.memory, guard);
        let claims = index.spec.unique
            && (linked || {
                let old = record.newest(guard).and_then(|v| v.row());
                had.clear();
                old.is_none_or(|old| {
                    index.spec.columns_of(old, &mut had);
                    had[..] != key[..key.len() - record.key().len()]
                })
            });
        if linked || claims {
            entries.push(Entry {
                index,
                key: key.clone(),
                linked,
                claims,
            });
        }
    }
    entries
}
