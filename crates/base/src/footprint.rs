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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadEntry {
    pub storage: RelId,
    pub key: Box<[u8]>,
    pub saw: Position,
    /// A row was there.
    pub live: bool,
}

/// A range that was scanned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeEntry {
    pub storage: RelId,
    /// The index scanned; the storage's own id for the primary index.
    pub index: RelId,
    pub range: KeyRange,
    /// What stood in it: the keys of its rows in order, as a digest. A node that validates it may not have the versions of
    /// deleted rows any more, so that a row went away is found by its absence here.
    pub rows: RowSet,
    /// A digest of the positions of those rows' versions in order. It travels in a [`Candidate`](crate::Candidate), whose snapshot may hold
    /// versions above the prefix, so that no single greatest position stands for the range.
    pub versions: u64,
}

/// How many rows there were, and a digest of their primary-index keys in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowSet {
    pub count: u64,
    pub digest: u64,
}

impl RowSet {
    /// Adds the next row.
    pub fn add(&mut self, storage: RelId, key: &[u8]) {
        self.count += 1;
        let mixed = self.digest.rotate_left(23) ^ crate::key::hash(storage, key);
        self.digest = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// `digest` of the positions before, with the next one.
pub fn add_version(digest: u64, position: Position) -> u64 {
    let mixed = digest.rotate_left(23) ^ position.as_u64();
    mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// A row that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteEntry {
    pub storage: RelId,
    pub key: Box<[u8]>,
    /// Position of the version that it follows, tombstones too; ZERO for none.
    pub overwrites: Position,
    /// Whether a committed row is replaced or deleted; false for an insert.
    pub existed: bool,
    /// The new row; none: deleted, or made of the newest version by `moved`.
    pub row: Option<Box<[u8]>>,
    /// Deltas of split columns: what the row changes by, whatever its newest version is. Without any it is `row` that counts.
    pub moved: Vec<MoveEntry>,
    /// What the statements of the deltas found the row by, guards aside.
    pub found_by: Vec<FoundBy>,
}

/// A row as a statement found it, with its split values whole, and the columns that it looked at (`txn::column_set`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundBy {
    pub columns: u64,
    pub row: Box<[u8]>,
}

/// What a transaction adds to a split value, in the column's units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoveEntry {
    pub column: u16,
    pub amount: i128,
    /// The committed value has to be at least this before: what the guards of the transaction's statements come to. None: no guard.
    pub need: Option<i128>,
}

/// Everything that decides whether a transaction may commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    pub snapshot: Position,
    /// The number of a snapshot that the primary keeps at this position for the transaction; 0: none.
    pub hold: u64,
    pub reads: Vec<ReadEntry>,
    pub ranges: Vec<RangeEntry>,
    pub writes: Vec<WriteEntry>,
}

impl Footprint {
    /// The snapshot and what was read, as bytes for another node. What was written does not travel with it: a transaction moves before its first
    /// write. ([`Candidate`](crate::Candidate) carries both.)
    ///
    /// ```text
    /// snapshot u64 | hold u64 | n u32 | n x read: storage u32, saw u64, live u8, key | n u32 | n x range:
    /// storage u32, index u32, lo, hi, count u64, digest u64        bound: kind u8, key      key: length u32, bytes
    /// ```
    pub fn encode_reads(&self) -> Vec<u8> {
        let mut b = self.snapshot.as_u64().to_le_bytes().to_vec();
        b.extend_from_slice(&self.hold.to_le_bytes());
        b.extend_from_slice(&(self.reads.len() as u32).to_le_bytes());
        for r in &self.reads {
            b.extend_from_slice(&r.storage.to_le_bytes());
            b.extend_from_slice(&r.saw.as_u64().to_le_bytes());
            b.push(u8::from(r.live));
            put_key(&mut b, &r.key);
        }
        b.extend_from_slice(&(self.ranges.len() as u32).to_le_bytes());
        for r in &self.ranges {
            b.extend_from_slice(&r.storage.to_le_bytes());
            b.extend_from_slice(&r.index.to_le_bytes());
            for bound in [&r.range.lo, &r.range.hi] {
                let (kind, key) = match bound {
                    Bound::Unbounded => (0, &[][..]),
                    Bound::Included(k) => (1, &k[..]),
                    Bound::Excluded(k) => (2, &k[..]),
                };
                b.push(kind);
                put_key(&mut b, key);
            }
            b.extend_from_slice(&r.rows.count.to_le_bytes());
            b.extend_from_slice(&r.rows.digest.to_le_bytes());
        }
        b
    }

    /// The opposite; `None`: malformed.
    pub fn decode_reads(mut b: &[u8]) -> Option<Footprint> {
        let b = &mut b;
        let mut f = Footprint {
            snapshot: Position::from_u64(u64_of(b)?),
            hold: u64_of(b)?,
            ..Footprint::default()
        };
        for _ in 0..u32_of(b)? {
            let (storage, saw) = (u32_of(b)?, Position::from_u64(u64_of(b)?));
            let live = byte_of(b)? == 1;
            let key = key_of(b)?;
            f.reads.push(ReadEntry {
                storage,
                key,
                saw,
                live,
            });
        }
        for _ in 0..u32_of(b)? {
            let (storage, index) = (u32_of(b)?, u32_of(b)?);
            let (lo, hi) = (bound_of(b)?, bound_of(b)?);
            let (count, digest) = (u64_of(b)?, u64_of(b)?);
            f.ranges.push(RangeEntry {
                storage,
                index,
                range: KeyRange { lo, hi },
                rows: RowSet { count, digest },
                versions: 0,
            });
        }
        b.is_empty().then_some(f)
    }
}

pub(crate) fn put_key(b: &mut Vec<u8>, key: &[u8]) {
    b.extend_from_slice(&(key.len() as u32).to_le_bytes());
    b.extend_from_slice(key);
}

pub(crate) fn byte_of(b: &mut &[u8]) -> Option<u8> {
    let (first, rest) = b.split_first()?;
    *b = rest;
    Some(*first)
}

pub(crate) fn u32_of(b: &mut &[u8]) -> Option<u32> {
    let (first, rest) = b.split_first_chunk()?;
    *b = rest;
    Some(u32::from_le_bytes(*first))
}

pub(crate) fn u64_of(b: &mut &[u8]) -> Option<u64> {
    let (first, rest) = b.split_first_chunk()?;
    *b = rest;
    Some(u64::from_le_bytes(*first))
}

pub(crate) fn key_of(b: &mut &[u8]) -> Option<Box<[u8]>> {
    let n = u32_of(b)? as usize;
    let (key, rest) = b.split_at_checked(n)?;
    *b = rest;
    Some(key.into())
}

fn bound_of(b: &mut &[u8]) -> Option<Bound<Box<[u8]>>> {
    let kind = byte_of(b)?;
    let key = key_of(b)?;
    match kind {
        0 => Some(Bound::Unbounded),
        1 => Some(Bound::Included(key)),
        2 => Some(Bound::Excluded(key)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_travel_and_every_prefix_of_them_is_refused() {
        let mut rows = RowSet::default();
        rows.add(7, b"a");
        rows.add(7, b"b");
        let f = Footprint {
            snapshot: Position::new(3, 4),
            hold: 9,
            reads: vec![ReadEntry {
                storage: 7,
                key: (*b"key").into(),
                saw: Position::new(1, 2),
                live: true,
            }],
            ranges: vec![RangeEntry {
                storage: 7,
                index: 9,
                range: KeyRange {
                    lo: Bound::Excluded((*b"a").into()),
                    hi: Bound::Unbounded,
                },
                rows,
                versions: 0,
            }],
            writes: Vec::new(),
        };
        let b = f.encode_reads();
        assert_eq!(Footprint::decode_reads(&b), Some(f));
        for n in 0..b.len() {
            assert_eq!(Footprint::decode_reads(&b[..n]), None, "{n}");
        }
    }

    #[test]
    fn sets_of_rows_differ_by_order_and_members() {
        let of = |keys: &[&[u8]]| {
            let mut s = RowSet::default();
            keys.iter().for_each(|k| s.add(1, k));
            s
        };
        assert_eq!(of(&[b"a", b"b"]), of(&[b"a", b"b"]));
        assert_ne!(of(&[b"a", b"b"]), of(&[b"b", b"a"]));
        assert_ne!(of(&[b"a"]), of(&[b"a", b"b"]));
    }
}
