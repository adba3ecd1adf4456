//! What a transaction read and wrote, as a value: it can be validated, shipped and kept.
//!
//! A snapshot is a prefix of the log, so everything read at snapshot `s` is unchanged exactly when no record read, and
//! no record inside a range read, has a version above `s`. The position that each read saw is kept all the same:
//! certification elsewhere (PSP, RSSI) needs it.

use crate::id::RelId;
use crate::position::Position;
use std::ops::Bound;

/// A range of keys of one index (or of the primary index, whose id is the storage's).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    pub lo: Bound<Box<[u8]>>,
    pub hi: Bound<Box<[u8]>>,
}

impl KeyRange {
    /// Every key.
    pub fn all() -> KeyRange {
        KeyRange {
            lo: Bound::Unbounded,
            hi: Bound::Unbounded,
        }
    }

    /// Exactly the keys that begin with `prefix`.
    pub fn prefix(prefix: &[u8]) -> KeyRange {
        let mut end = prefix.to_vec();
        let hi = if crate::key::prefix_end(&mut end) {
            Bound::Excluded(end.into())
        } else {
            Bound::Unbounded
        };
        KeyRange {
            lo: Bound::Included(prefix.into()),
            hi,
        }
    }

    /// Whether `key` lies inside.
    pub fn contains(&self, key: &[u8]) -> bool {
        (match &self.lo {
            Bound::Included(l) => key >= &l[..],
            Bound::Excluded(l) => key > &l[..],
            Bound::Unbounded => true,
        }) && match &self.hi {
            Bound::Included(h) => key <= &h[..],
            Bound::Excluded(h) => key < &h[..],
            Bound::Unbounded => true,
        }
    }

    /// The bounds as slices.
    pub fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (
            self.lo.as_ref().map(|b| &b[..]),
            self.hi.as_ref().map(|b| &b[..]),
        )
    }
}

/// A row, or its absence (`saw` = the delete's position, or ZERO), that was read by key.
#[derive(Clone, Debug)]
pub struct ReadEntry {
    pub storage: RelId,
    pub key: Box<[u8]>,
    pub saw: Position,
}

/// A range that was scanned.
#[derive(Clone, Debug)]
pub struct RangeEntry {
    pub storage: RelId,
    /// The index scanned; the storage's own id for the primary index.
    pub index: RelId,
    pub range: KeyRange,
}

/// A row that was written and the position of the version it overwrites (ZERO for none).
#[derive(Clone, Debug)]
pub struct WriteTouch {
    pub storage: RelId,
    pub key: Box<[u8]>,
    pub overwrites: Position,
    /// Whether the transaction read the row first.
    pub blind: bool,
}

/// Everything that decides whether a transaction may commit.
#[derive(Clone, Debug, Default)]
pub struct Footprint {
    pub snapshot: Position,
    pub reads: Vec<ReadEntry>,
    pub ranges: Vec<RangeEntry>,
    pub writes: Vec<WriteTouch>,
}
