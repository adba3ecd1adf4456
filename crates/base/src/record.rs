//! The bytes of a commit in the log: heads of its records, then their data, kept apart so that a replica's scheduler reads
//! heads only (C5 §7.1).
//!
//! ```text
//! heads:  commit head 32 bytes | record head 36 bytes x records
//! commit: position u64 | stamp u64 | records u32 | heads length u32 | data length u32 | flags u32
//! record: kind u8 | 3 zero bytes | storage u32 | key hash u64 | key length u32 | row length u32 | prev u64 | zero u32
//! data:   key, row of the first record; key, row of the second; ...
//! ```
//! `stamp` is the number that the transaction is asked for by, when its client may not hear what became of it; 0: it has none.
//! `prev` is reserved for the replica's scheduler (the position that this write follows). All integers little-endian.
//! Groups, checksums and segments around commits belong to `wal`.

use crate::error::{Error, Result, SqlState};
use crate::id::RelId;
use crate::key;
use crate::position::Position;

pub const COMMIT_HEAD: usize = 32;
pub const RECORD_HEAD: usize = 36;

/// What a record does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// Key and row: the row's new version.
    Put,
    /// Key only: the row is gone.
    Delete,
    /// A change of the schema: the row bytes are an encoded `schema::Change`, storage 0, no key.
    Schema,
    /// Values of the sequence `storage` up to the i64 in the row bytes are reserved.
    Sequence,
    /// What NOTIFY says: the row bytes are an encoded [`crate::Notification`], storage 0, no key. It changes nothing.
    Notify,
}

impl RecordKind {
    fn from_u8(b: u8) -> Option<RecordKind> {
        Some(match b {
            1 => RecordKind::Put,
            2 => RecordKind::Delete,
            3 => RecordKind::Schema,
            4 => RecordKind::Sequence,
            5 => RecordKind::Notify,
            _ => return None,
        })
    }

    fn as_u8(self) -> u8 {
        match self {
            RecordKind::Put => 1,
            RecordKind::Delete => 2,
            RecordKind::Schema => 3,
            RecordKind::Sequence => 4,
            RecordKind::Notify => 5,
        }
    }
}

/// Builds the two parts of one commit. The position is put in last.
#[derive(Debug, Default)]
pub struct CommitBuilder {
    heads: Vec<u8>,
    data: Vec<u8>,
    records: u32,
}

impl CommitBuilder {
    /// An empty commit.
    pub fn new() -> CommitBuilder {
        CommitBuilder::with_capacity(0, 0)
    }

    /// The same with room for as many records, and as many bytes of their keys and rows.
    pub fn with_capacity(records: usize, data: usize) -> CommitBuilder {
        let mut heads = Vec::with_capacity(COMMIT_HEAD + records * RECORD_HEAD);
        heads.resize(COMMIT_HEAD, 0);
        CommitBuilder {
            heads,
            data: Vec::with_capacity(data),
            records: 0,
        }
    }

    /// Adds a record.
    pub fn push(&mut self, kind: RecordKind, storage: RelId, key_bytes: &[u8], row: &[u8]) {
        let mut h = [0; RECORD_HEAD];
        h[0] = kind.as_u8();
        h[4..8].copy_from_slice(&storage.to_le_bytes());
        h[8..16].copy_from_slice(&key::hash(storage, key_bytes).to_le_bytes());
        h[16..20].copy_from_slice(&(key_bytes.len() as u32).to_le_bytes());
        h[20..24].copy_from_slice(&(row.len() as u32).to_le_bytes());
        self.heads.extend_from_slice(&h);
        self.data.extend_from_slice(key_bytes);
        self.data.extend_from_slice(row);
        self.records += 1;
    }

    /// How many records were added.
    pub fn records(&self) -> u32 {
        self.records
    }

    /// Bytes so far.
    pub fn bytes(&self) -> usize {
        self.heads.len() + self.data.len()
    }

    /// The finished heads and data.
    pub fn finish(mut self, position: Position, stamp: u64) -> (Vec<u8>, Vec<u8>) {
        let (heads, data) = (self.heads.len() as u32, self.data.len() as u32);
        let h = &mut self.heads;
        h[0..8].copy_from_slice(&position.as_u64().to_le_bytes());
        h[8..16].copy_from_slice(&stamp.to_le_bytes());
        h[16..20].copy_from_slice(&self.records.to_le_bytes());
        h[20..24].copy_from_slice(&heads.to_le_bytes());
        h[24..28].copy_from_slice(&data.to_le_bytes());
        (self.heads, self.data)
    }
}

/// The head of a commit, for who walks heads only.
#[derive(Clone, Copy, Debug)]
pub struct CommitHead {
    pub position: Position,
    pub stamp: u64,
    pub records: u32,
    /// Bytes of this head and those of its records.
    pub heads: usize,
    /// Bytes of the records' keys and rows.
    pub data: usize,
}

impl CommitHead {
    /// Writes the stamp of the commit that `heads` begin with.
    pub fn mark(heads: &mut [u8], stamp: u64) {
        heads[8..16].copy_from_slice(&stamp.to_le_bytes());
    }

    /// Reads it off the front of `heads`, which hold all of the commit's.
    pub fn read(heads: &[u8]) -> Result<CommitHead> {
        if heads.len() < COMMIT_HEAD {
            return Err(damaged());
        }
        let head = CommitHead {
            position: Position::from_u64(u64_at(heads, 0)),
            stamp: u64_at(heads, 8),
            records: u32_at(heads, 16),
            heads: u32_at(heads, 20) as usize,
            data: u32_at(heads, 24) as usize,
        };
        let of_records = head.records as usize * RECORD_HEAD;
        if head.heads > heads.len() || head.heads != COMMIT_HEAD + of_records {
            return Err(damaged());
        }
        Ok(head)
    }
}

/// The head of a record.
#[derive(Clone, Copy, Debug)]
pub struct RecordHead {
    pub kind: RecordKind,
    pub storage: RelId,
    pub key_hash: u64,
    pub key_len: usize,
    pub row_len: usize,
    /// What the replica's scheduler has stamped; zero in the log.
    pub prev: u64,
}

impl RecordHead {
    /// Reads the first [`RECORD_HEAD`] bytes.
    #[inline]
    pub fn read(b: &[u8]) -> Result<RecordHead> {
        let b: &[u8; RECORD_HEAD] = b.first_chunk().ok_or_else(damaged)?;
        Ok(RecordHead {
            kind: RecordKind::from_u8(b[0]).ok_or_else(damaged)?,
            storage: u32_at(b, 4),
            key_hash: u64_at(b, 8),
            key_len: u32_at(b, 16) as usize,
            row_len: u32_at(b, 20) as usize,
            prev: u64_at(b, 24),
        })
    }

    /// Writes the reserved field of the record head that `b` begins with.
    #[inline]
    pub fn stamp(b: &mut [u8], prev: u64) {
        b[24..32].copy_from_slice(&prev.to_le_bytes());
    }
}

/// One record of a commit, read in place.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    pub kind: RecordKind,
    pub storage: RelId,
    pub key_hash: u64,
    pub key: &'a [u8],
    pub row: &'a [u8],
}

/// A commit read in place from its heads and data.
#[derive(Clone, Copy, Debug)]
pub struct Commit<'a> {
    pub position: Position,
    pub stamp: u64,
    pub records: u32,
    heads: &'a [u8],
    data: &'a [u8],
}

/// What the log holds is not what a commit looks like.
pub fn damaged() -> Error {
    Error::new(
        SqlState::DATA_CORRUPTED,
        "a commit in the log is not well formed",
    )
}

impl<'a> Commit<'a> {
    /// Reads the next commit off the front of a group's heads and data.
    pub fn take(heads: &mut &'a [u8], data: &mut &'a [u8]) -> Result<Commit<'a>> {
        let head = CommitHead::read(heads)?;
        if head.data > data.len() {
            return Err(damaged());
        }
        let c = Commit {
            position: head.position,
            stamp: head.stamp,
            records: head.records,
            heads: &heads[COMMIT_HEAD..head.heads],
            data: &data[..head.data],
        };
        (*heads, *data) = (&heads[head.heads..], &data[head.data..]);
        Ok(c)
    }

    /// The records in the order they were written.
    pub fn iter(&self) -> impl Iterator<Item = Result<Record<'a>>> + use<'a> {
        let mut data = self.data;
        self.heads.chunks_exact(RECORD_HEAD).map(move |h| {
            let head = RecordHead::read(h)?;
            let end = head
                .key_len
                .checked_add(head.row_len)
                .filter(|&e| e <= data.len())
                .ok_or_else(damaged)?;
            let r = Record {
                kind: head.kind,
                storage: head.storage,
                key_hash: head.key_hash,
                key: &data[..head.key_len],
                row: &data[head.key_len..end],
            };
            data = &data[end..];
            Ok(r)
        })
    }
}

fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(b[at..at + 4].try_into().expect("4 bytes"))
}

fn u64_at(b: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(b[at..at + 8].try_into().expect("8 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_round_trip_side_by_side() {
        let (mut heads, mut data) = (Vec::new(), Vec::new());
        for i in 1..4u32 {
            let mut b = CommitBuilder::new();
            b.push(RecordKind::Put, 7, &[i as u8], b"row");
            b.push(RecordKind::Delete, 8, b"key", b"");
            let (h, d) = b.finish(Position::new(1, i), 9);
            heads.extend(h);
            data.extend(d);
        }
        let (mut h, mut d) = (&heads[..], &data[..]);
        for i in 1..4u32 {
            let c = Commit::take(&mut h, &mut d).unwrap();
            assert_eq!(
                (c.position, c.stamp, c.records),
                (Position::new(1, i), 9, 2)
            );
            let rs: Vec<_> = c.iter().map(Result::unwrap).collect();
            assert_eq!((rs[0].key, rs[0].row), (&[i as u8][..], &b"row"[..]));
            assert_eq!(
                (rs[1].kind, rs[1].storage, rs[1].key),
                (RecordKind::Delete, 8, &b"key"[..])
            );
        }
        assert!(h.is_empty() && d.is_empty());
        assert!(Commit::take(&mut &heads[..20], &mut &data[..]).is_err());
    }
}
