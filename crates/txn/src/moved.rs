//! A transaction that began at a replica and goes on at the primary: what it read travels as a footprint, and is looked at here.
//!
//! ```text
//! replica   reads at s, remembers records, absences and ranges       Txn::reads
//! primary   takes a snapshot t >= s, looks each of them up           Txn::adopt_reads
//!             unchanged from s to t: kept as if read here at t, so the commit validates them from t on
//!             changed: 40001
//! ```
//! A row is unchanged when its version at t has a position at or below s. That says nothing of rows that are gone: their versions may
//! be reclaimed here, where nobody held s. So a range carries a digest of the keys that stood in it, and a key says whether a row was
//! there; both are compared with what is there at t. A row that came and went between s and t is found in neither, and need not be:
//! the two states are the same. Which columns were looked at, and what rows
//! a scan took, is not compared: any change of a row counts as one.
//!
//! REPEATABLE READ stands at s still: the primary has kept a snapshot there for it (`hold`). Where that is lost (the primary is another
//! one by now, the connection that kept it broke, it went over its age limit) or was never asked for (reads that may be old), it stands
//! at s if the versions at s are here for certain, since no pass of the reclaimer has begun to treat s as past; if not it goes forward
//! like SERIALIZABLE, under the same condition, which its promise allows: it may have begun later. READ COMMITTED brings nothing.
//!
//! Left out on purpose: keeping what SERIALIZABLE has read; what changed since would be told to it by its commit anyway.

use base::footprint::{RangeEntry, ReadEntry, RowSet, add_version};
use base::{Error, Footprint, KeyRange, Position, RelId, Result, SqlState};
use store::{View, pin};

use crate::handle::TableHandle;
use crate::range::{ALL_COLUMNS, RangeRead};
use crate::stats::Cause;
use crate::txn::{Isolation, Txn};

/// What "it is as it was" means for a footprint that is looked up again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum AsRead {
    /// It is, because this is the very snapshot.
    Held,
    /// Every version lies at or below the footprint's snapshot, which is a prefix.
    UpTo,
    /// Every version is the one that was read: the snapshot may have held versions above its prefix.
    Exactly,
}

impl AsRead {
    /// Whether a row that was found at this position is the one that was read.
    fn is(self, read: &ReadEntry, found: Position, snapshot: Position) -> bool {
        match self {
            AsRead::Held => true,
            AsRead::UpTo => read.live && found <= snapshot,
            AsRead::Exactly => read.live && found == read.saw,
        }
    }
}

impl Txn {
    /// All rows of these tables count as read: what stays here when the transaction moves (a cursor) may read them yet, at its snapshot.
    /// 40001 where one of them is not of the schema there: then it cannot be said what is read.
    pub fn will_read(&mut self, storages: &[RelId]) -> Result<()> {
        if !self.tracks_reads() || self.reads.view.is_none() {
            return Ok(());
        }
        for &storage in storages {
            let table = self.schema.catalog.of_storage(storage);
            let table = table.ok_or_else(changed)?;
            self.reads.ranges.push(RangeRead {
                table: table.clone(),
                index: None,
                range: KeyRange::all(),
                reader: 0,
                passed_over: Default::default(),
                rows: 0,
                columns: ALL_COLUMNS,
                filter: None,
            });
        }
        Ok(())
    }

    /// What the transaction has read so far, for another node; `None` where there is nothing that must stay the same. 40001 where that is
    /// not known, because the transaction was one that only reads, and has.
    pub fn reads(&self) -> Result<Option<Footprint>> {
        if self.reads.view.is_none() || self.options.isolation == Isolation::ReadCommitted {
            return Ok(None);
        }
        if !self.tracks_reads() {
            return match self.statement.has_told || self.standing.portals > 0 {
                true => Err(changed()),
                false => Ok(None),
            };
        }
        let guard = pin();
        let view = self.view()?;
        let mut f = Footprint {
            snapshot: view.position(),
            hold: self.held_at(view.position()),
            ..Footprint::default()
        };
        if env::fault::planted("forward.no_footprint") {
            return Ok(Some(f));
        }
        let mut whole = true;
        view.all(&guard, |r, storage, _| {
            let at = r.at(f.snapshot, &guard).map(|v| v.position());
            match at {
                Some(saw) => f.reads.push(ReadEntry {
                    storage: storage.id,
                    key: r.key().into(),
                    saw,
                    live: true,
                }),
                _ => whole = false,
            }
            whole
        })
        .map_err(|_| Txn::snapshot_too_old())?;
        if !whole {
            return Err(changed());
        }
        for (table, key) in &self.reads.absent {
            f.reads.push(ReadEntry {
                storage: table.storage.id,
                key: key.clone(),
                saw: Position::ZERO,
                live: false,
            });
        }
        for r in &self.reads.ranges {
            let entry = range_entry(r, f.snapshot, None, &guard);
            f.ranges.push(entry.expect("no limit is given"));
        }
        view.check().map_err(|_| Txn::snapshot_too_old())?;
        Ok(Some(f))
    }

    /// Goes on where a transaction of another node stopped that had read this, before any statement of its own. An error (40001)
    /// means that it cannot.
    pub fn adopt_reads(&mut self, f: &Footprint) -> Result<()> {
        assert!(
            self.reads.view.is_none(),
            "a footprint comes before statements"
        );
        let mut held = false;
        let kept = match self.options.isolation {
            Isolation::ReadCommitted => return Ok(()),
            Isolation::RepeatableRead => {
                let found = self.shared.take_held(f.hold, f.snapshot);
                held = found.is_some();
                // A start keeps no older versions: what is below its end cannot be read here.
                let there = f.snapshot >= self.shared.marks.floor;
                found.or_else(|| {
                    let snapshots = &self.shared.store.snapshots;
                    there.then(|| snapshots.take_at(f.snapshot)).flatten()
                })
            }
            Isolation::Serializable => None,
        };
        let snapshot = match kept {
            Some(s) => {
                self.schema.see(self.shared.catalog_at(s.position()));
                s
            }
            None => self.take_snapshot(),
        };
        // What a replica shows is published here; else it followed another history.
        let known = snapshot.position() >= f.snapshot;
        self.reads.view = Some(View::new(snapshot));
        let as_read = if held { AsRead::Held } else { AsRead::UpTo };
        if known && self.take_over(f, as_read)? {
            return Ok(());
        }
        self.shared.stats.abort(Cause::ReadChanged);
        Err(changed())
    }

    /// Looks everything up and keeps it as read; whether it is as it was. (What is read at a held snapshot counts all the same: it says
    /// whether the snapshot may move.)
    pub(crate) fn take_over(&mut self, f: &Footprint, as_read: AsRead) -> Result<bool> {
        let guard = pin();
        let catalog = self.schema.catalog.clone();
        let table = |storage| catalog.of_storage(storage);
        let at = self.view()?.position();
        for r in &f.reads {
            let Some(t) = table(r.storage) else {
                return Ok(false);
            };
            let view = self.reads.view.as_mut().expect("just taken");
            let found = view.get(&t.storage, &r.key, Some(ALL_COLUMNS), &guard);
            match found.map_err(|_| Txn::snapshot_too_old())? {
                Some(found) if as_read.is(r, found.position, f.snapshot) => {}
                None if as_read == AsRead::Held || !r.live => {
                    self.reads.absent.push((t.clone(), r.key.clone()));
                }
                _ if as_read == AsRead::Exactly => return Err(self.lost_read(t, &r.key)),
                _ => return Ok(false),
            }
        }
        for r in &f.ranges {
            let Some(t) = table(r.storage) else {
                return Ok(false);
            };
            let mut indexes = t.indexes.iter().flatten();
            let index = indexes.find(|i| i.spec.id == r.index).cloned();
            if index.is_none() && r.index != r.storage {
                return Ok(false);
            }
            let read = RangeRead {
                table: t.clone(),
                index,
                range: r.range.clone(),
                reader: 0,
                passed_over: Default::default(),
                rows: r.rows.count as usize,
                columns: ALL_COLUMNS,
                filter: None,
            };
            let same = match as_read {
                AsRead::Held => true,
                AsRead::UpTo => {
                    let now = standing_in(&read, at, Some(f.snapshot), &guard);
                    now.is_some_and(|(rows, _)| rows == r.rows)
                }
                AsRead::Exactly => {
                    standing_in(&read, at, None, &guard) == Some((r.rows, r.versions))
                }
            };
            if !same {
                return Ok(false);
            }
            self.reads.ranges.push(read);
        }
        Ok(true)
    }
}

impl Txn {
    /// 40001: this row is not the version that was read at another node.
    fn lost_read(&self, table: &TableHandle, key: &[u8]) -> Error {
        self.shared.stats.abort(Cause::ReadChanged);
        let guard = pin();
        let record = table.storage.primary.get(key, &guard);
        let shown = record.map_or_else(|| "(row)".to_owned(), |r| table.describe_record(r, &guard));
        let newest = record.and_then(|r| r.newest(&guard));
        let winner = newest.map_or(Position::ZERO, |v| v.position());
        let what = "could not serialize access due to read/write dependencies among transactions";
        self.lost_to(what, table, &shown, winner)
    }
}

/// A range as it travels, with what stood in it at a position; `None` when a row of it is younger than `oldest`.
pub(crate) fn range_entry(
    r: &RangeRead,
    at: Position,
    oldest: Option<Position>,
    guard: &store::Guard,
) -> Option<RangeEntry> {
    let (rows, versions) = standing_in(r, at, oldest, guard)?;
    Some(RangeEntry {
        storage: r.table.storage.id,
        index: r.index.as_ref().map_or(r.table.storage.id, |i| i.spec.id),
        range: r.range.clone(),
        rows,
        versions,
    })
}

/// The rows in a range at a position, and the digest of their versions; `None` when one of them is younger than `oldest`.
fn standing_in(
    r: &RangeRead,
    at: Position,
    oldest: Option<Position>,
    guard: &store::Guard,
) -> Option<(RowSet, u64)> {
    let (mut set, mut versions, mut scratch) = (RowSet::default(), 0, Vec::new());
    let old = r.all(guard, &mut |record, entry| {
        let Some(v) = record.at(at, guard) else {
            return true;
        };
        let Some(row) = v.row() else { return true };
        if let (Some(e), Some(i)) = (entry, &r.index)
            && !i.matches(e, row, &mut scratch)
        {
            return true;
        }
        set.add(r.table.storage.id, record.key());
        versions = add_version(versions, v.position());
        oldest.is_none_or(|o| v.position() <= o)
    });
    old.then_some((set, versions))
}

pub(crate) fn changed() -> Error {
    Error::new(
        SqlState::SERIALIZATION_FAILURE,
        "could not serialize access due to read/write dependencies among transactions",
    )
    .detail("What the transaction read at another node has changed at the primary since.")
    .hint("The transaction might succeed if retried.")
}
