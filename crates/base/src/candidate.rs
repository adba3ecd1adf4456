//! A transaction that asks to commit, as a value: it can be certified on the node that ran it or on another one.
//!
//! It carries what certification needs and nothing else: the snapshot, what was read where that counts, and each write with the position of
//! the version that it overwrites (PSP §3.3: "the keys with the versions seen"). The certifier looks all of it up again below the position
//! that it gives; the rows themselves are those that become the newest.
//!
//! ```text
//! number u64 | level u8 | since u64 | used: 0 u8, or 1 u8 and n u32, n x u32 | n u32, reads (Footprint::encode_reads) | one versions u64 for each range
//! | n u32 | n x write: storage u32, overwrites u64, flags u8, key, row if there is one, deltas if there are any
//! key, row: length u32, bytes      deltas: n u32, n x (column u16, amount i128, guarded u8, need i128 if guarded), n u32, n x (columns u64, row)
//! ```
//!
//! Left out on purpose: schema changes, which commit where they run; which rights were needed, since the certifier refuses a candidate after
//! any change of what gave them.

use crate::footprint::{FoundBy, MoveEntry, WriteEntry, byte_of, key_of, put_key, u32_of, u64_of};
use crate::{Error, Footprint, Oid, Position, Result, SqlState};

/// The isolation levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    ReadCommitted,
    RepeatableRead,
    Serializable,
}

/// See the head of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Names the request: one that is repeated has the same number and is answered again, never run again. It cannot be guessed.
    pub number: u64,
    pub level: Isolation,
    /// Its first statement's snapshot: rights, views and the rules for rows were looked at from there on. `footprint.snapshot` may be later.
    pub since: Position,
    /// Relations and roles that it used, whose definitions and grants have to be those at `since`. `None`: all of the schema.
    pub used: Option<Vec<Oid>>,
    /// What it read (at SERIALIZABLE) and wrote.
    pub footprint: Footprint,
}

const EXISTED: u8 = 1;
const HAS_ROW: u8 = 2;
const MOVED: u8 = 4;

impl Candidate {
    /// Most bytes of one.
    pub const MOST_BYTES: usize = 256 << 20;

    /// 54000 for one of so many bytes, if that is too much.
    pub fn check_size(bytes: usize) -> Result<()> {
        if bytes <= Candidate::MOST_BYTES {
            return Ok(());
        }
        let what = format!("the transaction's changes are too big for a site: {bytes} bytes");
        Err(Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, what)
            .detail(format!("The limit is {} bytes.", Candidate::MOST_BYTES))
            .hint("Run it at the primary."))
    }

    /// As bytes for another node.
    pub fn encode(&self) -> Vec<u8> {
        let f = &self.footprint;
        let mut b = self.number.to_le_bytes().to_vec();
        b.push(match self.level {
            Isolation::ReadCommitted => 0,
            Isolation::RepeatableRead => 1,
            Isolation::Serializable => 2,
        });
        b.extend_from_slice(&self.since.as_u64().to_le_bytes());
        b.push(u8::from(self.used.is_some()));
        if let Some(used) = &self.used {
            b.extend_from_slice(&(used.len() as u32).to_le_bytes());
            used.iter()
                .for_each(|o| b.extend_from_slice(&o.to_le_bytes()));
        }
        put_key(&mut b, &f.encode_reads());
        for r in &f.ranges {
            b.extend_from_slice(&r.versions.to_le_bytes());
        }
        b.extend_from_slice(&(f.writes.len() as u32).to_le_bytes());
        for w in &f.writes {
            b.extend_from_slice(&w.storage.to_le_bytes());
            b.extend_from_slice(&w.overwrites.as_u64().to_le_bytes());
            let row = w.row.as_ref();
            let moved = u8::from(!w.moved.is_empty()) * MOVED;
            b.push((u8::from(w.existed) * EXISTED) | (u8::from(row.is_some()) * HAS_ROW) | moved);
            put_key(&mut b, &w.key);
            if let Some(row) = row {
                put_key(&mut b, row);
            }
            if moved != 0 {
                b.extend_from_slice(&(w.moved.len() as u32).to_le_bytes());
                for m in &w.moved {
                    b.extend_from_slice(&m.column.to_le_bytes());
                    b.extend_from_slice(&m.amount.to_le_bytes());
                    b.push(u8::from(m.need.is_some()));
                    if let Some(need) = m.need {
                        b.extend_from_slice(&need.to_le_bytes());
                    }
                }
                b.extend_from_slice(&(w.found_by.len() as u32).to_le_bytes());
                for f in &w.found_by {
                    b.extend_from_slice(&f.columns.to_le_bytes());
                    put_key(&mut b, &f.row);
                }
            }
        }
        b
    }

    /// The opposite; `None`: malformed. The rows are checked against their tables by the node that adopts the candidate.
    pub fn decode(mut b: &[u8]) -> Option<Candidate> {
        let b = &mut b;
        let number = u64_of(b)?;
        let level = match byte_of(b)? {
            0 => Isolation::ReadCommitted,
            1 => Isolation::RepeatableRead,
            2 => Isolation::Serializable,
            _ => return None,
        };
        let since = Position::from_u64(u64_of(b)?);
        let used = match byte_of(b)? {
            0 => None,
            1 => Some((0..u32_of(b)?).map(|_| u32_of(b)).collect::<Option<_>>()?),
            _ => return None,
        };
        let mut footprint = Footprint::decode_reads(&key_of(b)?)?;
        for r in &mut footprint.ranges {
            r.versions = u64_of(b)?;
        }
        for _ in 0..u32_of(b)? {
            let (storage, overwrites) = (u32_of(b)?, Position::from_u64(u64_of(b)?));
            let flags = byte_of(b)?;
            if flags & !(EXISTED | HAS_ROW | MOVED) != 0 {
                return None;
            }
            let key = key_of(b)?;
            let row = match flags & HAS_ROW {
                0 => None,
                _ => Some(key_of(b)?),
            };
            let (mut moved, mut found_by) = (Vec::new(), Vec::new());
            if flags & MOVED != 0 {
                for _ in 0..u32_of(b)? {
                    moved.push(move_of(b)?);
                }
                for _ in 0..u32_of(b)? {
                    let (columns, row) = (u64_of(b)?, key_of(b)?);
                    found_by.push(FoundBy { columns, row });
                }
            }
            footprint.writes.push(WriteEntry {
                storage,
                key,
                overwrites,
                existed: flags & EXISTED != 0,
                row,
                moved,
                found_by,
            });
        }
        b.is_empty().then_some(Candidate {
            number,
            level,
            since,
            used,
            footprint,
        })
    }
}

fn move_of(b: &mut &[u8]) -> Option<MoveEntry> {
    let (column, rest) = b.split_first_chunk()?;
    let (amount, rest) = rest.split_first_chunk()?;
    *b = rest;
    let need = match byte_of(b)? {
        0 => None,
        1 => {
            let (need, rest) = b.split_first_chunk()?;
            *b = rest;
            Some(i128::from_le_bytes(*need))
        }
        _ => return None,
    };
    Some(MoveEntry {
        column: u16::from_le_bytes(*column),
        amount: i128::from_le_bytes(*amount),
        need,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KeyRange;
    use crate::footprint::{RangeEntry, ReadEntry, RowSet};

    #[test]
    fn a_candidate_has_a_limit() {
        assert!(Candidate::check_size(Candidate::MOST_BYTES).is_ok());
        let e = Candidate::check_size(Candidate::MOST_BYTES + 1).expect_err("it is too big");
        assert_eq!(e.code(), SqlState::PROGRAM_LIMIT_EXCEEDED);
    }

    #[test]
    fn a_candidate_travels_and_every_prefix_of_it_is_refused() {
        let delta = |need| MoveEntry {
            column: 3,
            amount: -7,
            need,
        };
        let found = FoundBy {
            columns: 6,
            row: (*b"seen").into(),
        };
        let write = |row: Option<&[u8]>| WriteEntry {
            storage: 7,
            key: (*b"k").into(),
            overwrites: Position::new(1, 1),
            existed: row.is_none(),
            row: row.map(Into::into),
            moved: row.map_or(vec![delta(None), delta(Some(7))], |_| vec![]),
            found_by: row.map_or(vec![found.clone()], |_| vec![]),
        };
        let c = Candidate {
            number: 99,
            level: Isolation::Serializable,
            since: Position::new(3, 2),
            used: Some(vec![17, 16_400]),
            footprint: Footprint {
                snapshot: Position::new(3, 4),
                hold: 0,
                reads: vec![ReadEntry {
                    storage: 7,
                    key: (*b"key").into(),
                    saw: Position::ZERO,
                    live: false,
                }],
                ranges: vec![RangeEntry {
                    storage: 7,
                    index: 7,
                    range: KeyRange::all(),
                    rows: RowSet::default(),
                    versions: 12,
                }],
                writes: vec![write(Some(b"row")), write(None)],
            },
        };
        let any = Candidate {
            used: None,
            ..c.clone()
        };
        assert_eq!(Candidate::decode(&any.encode()), Some(any));
        let b = c.encode();
        assert_eq!(Candidate::decode(&b), Some(c));
        for n in 0..b.len() {
            assert_eq!(Candidate::decode(&b[..n]), None, "{n}");
        }
    }
}
