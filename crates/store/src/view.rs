//! A transaction's view: its snapshot, and the records it has read by key, kept between looks without a guard.
//!
//! A record that shows a live row to a snapshot cannot be ended while that snapshot is registered: its tombstone, if it ever
//! gets one, lies above the snapshot, and the reclaimer ends a record only when every live snapshot sees the tombstone. So a
//! pointer taken then may be followed again while the snapshot is registered and not expired, under a guard taken *before*
//! that is checked (what is retired after the check outlives the guard). The view keeps the storages alive, too.

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
    rows: Vec<NonNull<Record>>,
    storages: Vec<Arc<Storage>>,
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

    /// The row of this key at the snapshot; with `keep`, a live row's record is kept as read.
    #[inline]
    pub fn get<'g>(
        &mut self,
        storage: &'g Arc<Storage>,
        key: &[u8],
        keep: bool,
        guard: &'g Guard,
    ) -> Result<Option<Found<'g>>, Expired> {
        let found = storage.primary.get(key, guard).and_then(|record| {
            let v = record.at(self.position(), guard)?;
            Some(Found {
                record,
                position: v.position(),
                row: v.row()?,
            })
        });
        // After the look: what it saw was whole if the snapshot is live still.
        self.check()?;
        if let (Some(f), true) = (&found, keep) {
            if !self.storages.iter().any(|s| Arc::ptr_eq(s, storage)) {
                self.storages.push(storage.clone());
            }
            self.rows.push(NonNull::from(f.record));
        }
        Ok(found)
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
        if let Some(i) = looks.rev().position(|r| *r == NonNull::from(record)) {
            self.rows.remove(self.rows.len() - 1 - i);
        }
    }

    /// Whether a schema change has touched the rows of a storage that was read by key.
    pub fn is_schema_changed(&self) -> bool {
        self.storages.iter().any(|s| s.is_changing())
    }

    /// Whether `holds` is true of each kept record.
    pub fn all(
        &self,
        _guard: &Guard,
        mut holds: impl FnMut(&Record) -> bool,
    ) -> Result<bool, Expired> {
        self.check()?;
        // SAFETY: kept while it showed a live row at a snapshot that this view has held ever since, or at an older one from
        // which `advance` moved on; the snapshot is not expired, as was checked under `guard`.
        Ok(self.rows.iter().all(|r| holds(unsafe { r.as_ref() })))
    }

    /// The storage that a record comes from, among those that were read by key.
    pub fn storage_of(&self, record: &Record, guard: &Guard) -> Option<&Arc<Storage>> {
        let same = |found: &Record| std::ptr::eq(found, record);
        self.storages
            .iter()
            .find(|s| s.primary.get(record.key(), guard).is_some_and(same))
    }

    /// Moves to a newer snapshot if every kept record shows the same version there, else leaves all as it is.
    pub fn advance(&mut self, to: Snapshot, guard: &Guard) -> Result<bool, Expired> {
        assert!(
            to.position() >= self.position(),
            "a snapshot moves forward only"
        );
        let (old, new) = (self.position(), to.position());
        if !self.all(guard, |r| {
            r.at(new, guard).is_some_and(|v| v.position() <= old)
        })? {
            return Ok(false);
        }
        self.snapshot = to;
        Ok(true)
    }

    /// Takes a new snapshot with nothing read.
    pub fn renew(&mut self, to: Snapshot) {
        self.rows.clear();
        self.snapshot = to;
    }
}
