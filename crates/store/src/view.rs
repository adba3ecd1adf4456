//! A transaction's view: its snapshot, and the records it has read by key, kept between looks without a guard.
//!
//! A record that shows a live row to a snapshot cannot be ended while that snapshot is registered: its tombstone, if it ever
//! gets one, lies above the snapshot, and the reclaimer ends a record only when every live snapshot sees the tombstone. So a
//! pointer taken then may be followed again while the snapshot is registered and not expired, under a guard taken *before*
//! that is checked (what is retired after the check outlives the guard). The view keeps the storages alive, too.
//!
//! The same holds for records that were only looked at beforehand ([`View::prefetch`]): until the snapshot moves, [`View::get`] takes them
//! from there instead of going down the tree. So does it with the row that was read last, which is the one that is written most often;
//! and a commit finds the records that it writes where they were read ([`View::record`]).

use base::Position;
use crossbeam_epoch::Guard;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::record::Record;
use crate::snapshot::Snapshot;
use crate::storage::Storage;

/// The snapshot went over its age limit (72000).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expired;

/// See the head of this file.
pub struct View {
    snapshot: Snapshot,
    rows: Vec<Row>,
    storages: Vec<Arc<Storage>>,
    /// Looked up ahead: rows that are live at the snapshot, with the ends of their keys.
    ahead: Vec<(u64, Row)>,
    /// How many of them have been asked for, from the first on: most often they come in the order in which they were named.
    used: usize,
}

/// A record that showed a live row.
#[derive(Clone, Copy)]
struct Row {
    record: NonNull<Record>,
    /// Place in `storages`.
    storage: usize,
    /// What was looked at, as the caller has it.
    columns: u64,
}

impl Row {
    /// # Safety
    /// The row has been live at the view's snapshot ever since, and under the guard that `'g` is of the snapshot was found not to be
    /// expired.
    #[inline]
    unsafe fn record<'g>(&self) -> &'g Record {
        // SAFETY: by the caller's promise and the head of this file it is not ended before the guard goes.
        unsafe { self.record.as_ref() }
    }
}

/// Rows that are remembered from looking ahead.
const MOST_AHEAD: usize = 64;

/// Rows that most transactions read at most.
const FEW: usize = 16;

/// The last 8 bytes of a key, and its length: tells keys apart without a look at the record.
#[inline]
fn tail(key: &[u8]) -> u64 {
    let bytes = key.last_chunk().map_or(0, |b| u64::from_le_bytes(*b));
    bytes ^ (key.len() as u64) << 56
}

// SAFETY: the pointers are to shared objects and are followed only under the rules at the head of this file.
unsafe impl Send for View {}
// SAFETY: as above.
unsafe impl Sync for View {}

/// A row found by key.
#[derive(Clone, Copy)]
pub struct Found<'g> {
    pub record: &'g Record,
    pub position: Position,
    pub row: &'g [u8],
}

impl View {
    /// A view at this snapshot, with nothing read.
    pub fn new(snapshot: Snapshot) -> View {
        View {
            snapshot,
            rows: Vec::new(),
            storages: Vec::new(),
            ahead: Vec::new(),
            used: 0,
        }
    }

    /// Where the snapshot stands.
    #[inline]
    pub fn position(&self) -> Position {
        self.snapshot.position()
    }

    /// Fails when the snapshot has expired. Check under a guard, before following what was found without it.
    #[inline]
    pub fn check(&self) -> Result<(), Expired> {
        if self.snapshot.is_expired() {
            Err(Expired)
        } else {
            Ok(())
        }
    }

    /// The row of this key at the snapshot; with `keep`, a live row's record is kept as read, together with that: what of it is looked at.
    #[inline]
    pub fn get<'g>(
        &mut self,
        storage: &'g Arc<Storage>,
        key: &[u8],
        keep: Option<u64>,
        guard: &'g Guard,
    ) -> Result<Option<Found<'g>>, Expired> {
        let found = self.find(storage, key, guard)?.and_then(|record| {
            let v = record.at(self.position(), guard)?;
            Some(Found {
                record,
                position: v.position(),
                row: v.row()?,
            })
        });
        // After the look: what it saw was whole if the snapshot is live still.
        self.check()?;
        if let (Some(f), Some(columns)) = (&found, keep) {
            if self.rows.is_empty() {
                self.rows.reserve(FEW);
            }
            let record = NonNull::from(f.record);
            let storage = self.place_of(storage);
            self.rows.push(Row {
                record,
                storage,
                columns,
            });
        }
        Ok(found)
    }

    /// The record of this key, whatever it shows.
    #[inline]
    pub fn find<'g>(
        &mut self,
        storage: &'g Arc<Storage>,
        key: &[u8],
        guard: &'g Guard,
    ) -> Result<Option<&'g Record>, Expired> {
        Ok(match self.known(storage, key, guard)? {
            Some(record) => Some(record),
            None => storage.primary.get(key, guard),
        })
    }

    /// The record of this key among those at hand: the one kept last, and those looked up ahead.
    #[inline]
    fn known<'g>(
        &mut self,
        storage: &Arc<Storage>,
        key: &[u8],
        guard: &'g Guard,
    ) -> Result<Option<&'g Record>, Expired> {
        if let Some(last) = self.rows.len().checked_sub(1)
            && let Some(record) = self.record(last, storage, key, guard)?
        {
            return Ok(Some(record));
        }
        if self.ahead.is_empty() {
            return Ok(None);
        }
        // Under the guard and before any of them is followed.
        self.check()?;
        let tail = tail(key);
        let all = self.ahead.len();
        for i in (self.used..all).chain(0..self.used) {
            let (its, row) = &self.ahead[i];
            if *its != tail || !Arc::ptr_eq(&self.storages[row.storage], storage) {
                continue;
            }
            // SAFETY: it showed a live row at this very snapshot, for what was looked up ahead goes when the snapshot does; checked above.
            let record: &'g Record = unsafe { row.record() };
            if record.key() == key {
                self.used = i + 1;
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    /// The place of a storage among those that the view keeps alive.
    #[inline]
    fn place_of(&mut self, storage: &Arc<Storage>) -> usize {
        let same = |s: &Arc<Storage>| Arc::ptr_eq(s, storage);
        self.storages.iter().position(same).unwrap_or_else(|| {
            self.storages.push(storage.clone());
            self.storages.len() - 1
        })
    }

    /// Asks for the memory of the rows of these keys, all at once (see `tree::ahead`), and remembers where they are. No row counts as
    /// read, only the table does ([`View::is_schema_changed`]).
    pub fn prefetch(
        &mut self,
        storage: &Arc<Storage>,
        keys: &[&[u8]],
        guard: &Guard,
    ) -> Result<(), Expired> {
        let mut found: [Option<&Record>; FEW] = [None; FEW];
        for keys in keys.chunks(FEW) {
            let n = storage.look_ahead(keys, &mut found, guard);
            let room = MOST_AHEAD.saturating_sub(self.ahead.len());
            let place = self.place_of(storage);
            let position = self.position();
            for r in found[..n].iter().flatten().take(room) {
                if r.row_at(position, guard).is_some() {
                    let record = NonNull::from(*r);
                    let storage = place;
                    let columns = 0;
                    self.ahead.push((
                        tail(r.key()),
                        Row {
                            record,
                            storage,
                            columns,
                        },
                    ));
                }
            }
        }
        // After the look, as in `get`: else they may not have been live at all.
        self.check().inspect_err(|_| self.ahead.clear())
    }

    /// The record that was kept as the `n`th, if that is the one of this key.
    #[inline]
    pub fn record<'g>(
        &self,
        n: usize,
        storage: &Arc<Storage>,
        key: &[u8],
        _guard: &'g Guard,
    ) -> Result<Option<&'g Record>, Expired> {
        let Some(row) = self.rows.get(n) else {
            return Ok(None);
        };
        if !Arc::ptr_eq(&self.storages[row.storage], storage) {
            return Ok(None);
        }
        self.check()?;
        // SAFETY: kept while it showed a live row at a snapshot that this view has held ever since, or at an older one from
        // which `advance` moved on; checked above, under the guard.
        let record: &'g Record = unsafe { row.record() };
        Ok((record.key() == key).then_some(record))
    }

    /// How many records are kept.
    pub fn kept(&self) -> usize {
        self.rows.len()
    }

    /// Forgets the records kept after the first `n`.
    pub fn truncate(&mut self, n: usize) {
        self.rows.truncate(n);
    }

    /// Forgets one look at this row among those kept after the first `n`.
    pub fn forget_one(&mut self, n: usize, storage: &Storage, key: &[u8], guard: &Guard) {
        let Some(record) = storage.primary.get(key, guard) else {
            return;
        };
        let looks = self.rows.iter().skip(n);
        if let Some(i) = looks.rev().position(|r| r.record == NonNull::from(record)) {
            self.rows.remove(self.rows.len() - 1 - i);
        }
    }

    /// Whether a schema change has touched the rows of a storage that was read by key, and that is not one of its `own`.
    pub fn is_schema_changed(&self, own: impl Fn(&Storage) -> bool) -> bool {
        self.storages.iter().any(|s| s.is_changing() && !own(s))
    }

    /// Whether `holds` is true of each kept record, with its storage and what of it was looked at.
    pub fn all(
        &self,
        _guard: &Guard,
        mut holds: impl FnMut(&Record, &Arc<Storage>, u64) -> bool,
    ) -> Result<bool, Expired> {
        self.check()?;
        // Kept while it showed a live row at a snapshot that this view has held ever since, or at an older one from which `advance`
        // moved on; the snapshot is not expired, as was checked under `guard`.
        let mut holds = |r: &Row| {
            // SAFETY: as said above.
            let record = unsafe { r.record() };
            holds(record, &self.storages[r.storage], r.columns)
        };
        Ok(self.rows.iter().all(&mut holds))
    }

    /// Moves to a newer snapshot if every kept record shows the same version there, or a row of which `same` says so (record, storage,
    /// what of it was looked at); else leaves all as it is.
    pub fn advance(
        &mut self,
        to: Snapshot,
        guard: &Guard,
        mut same: impl FnMut(&Record, &Arc<Storage>, u64) -> bool,
    ) -> Result<bool, Expired> {
        assert!(
            to.position() >= self.position(),
            "a snapshot moves forward only"
        );
        let (old, new) = (self.position(), to.position());
        let live = |r: &Record, s: &Arc<Storage>, columns| match r.at(new, guard) {
            Some(v) => v.position() <= old || v.row().is_some() && same(r, s, columns),
            None => false,
        };
        if !self.all(guard, live)? {
            return Ok(false);
        }
        self.ahead.clear();
        self.snapshot = to;
        Ok(true)
    }

    /// Takes a new snapshot with nothing read.
    pub fn renew(&mut self, to: Snapshot) {
        self.rows.clear();
        self.ahead.clear();
        self.snapshot = to;
    }
}
