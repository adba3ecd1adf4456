//! The scheduler: stamps every write with what it follows, and cuts groups into segments. Pure: no store, no lock, no clock.
//!
//! C5 §7.2: the per-row queues are embedded in the log. Going through the heads in log order, the scheduler writes into each record's
//! reserved field the position of the row's last write (`prev`), taken from a table of fixed size (`last_writes`). A `prev` may be
//! too large (entries are forgotten), never too small. Two records of one commit that count as one row follow the position before.
//!
//! What the field holds differs by policy, and so does what a worker compares it with (`progress`):
//!
//! | policy | field | safe when |
//! |---|---|---|
//! | row, transaction-worker | `prev`, a position | the row's newest version carries it, or everything up to it is installed |
//! | transaction | the number of the transaction before, of those with this row | that transaction has finished (bit 63: and all before it) |
//! | table, page | a ticket: how many writes of the same granule came before | as many have been installed |
//! | serial | nothing | always: one worker |
//!
//! *Cutting.* A segment ends after `rows` records, at a commit's end for the policies that hand out whole transactions, and before a
//! record that changes the schema, which the caller applies before it asks for more ([`Piece::Schema`]).

use base::record::{self, RecordHead, RecordKind};
use base::{Oid, Position, RelId, Result};
use std::ops::Range;
use std::sync::Arc;
use wal::Group;

use super::last_writes::{Last, LastWrites};
use super::segment::{Cursor, Segment, Shipped};
use super::{Policy, ReplayOptions};

/// Set in a transaction's number that stands for it and all before it.
pub(crate) const AND_BEFORE: u64 = 1 << 63;

/// How far ahead of itself the stamping asks for memory, in records.
const AHEAD: usize = 12;

/// Adjacent keys that count as one page: the last byte of the key without its low six bits. For an integer that ends the key these are
/// 64 neighbours, as many as rows of a hundred bytes in 8 KB; a key that ends in text is a page of its own.
const PAGE_MASK: u8 = !63;

/// The granule of a write, as a slot of a table with `slots` entries (a power of two).
#[inline]
pub(crate) fn granule(policy: Policy, storage: RelId, key: &[u8], slots: usize) -> usize {
    let hash = match policy {
        Policy::Table => u64::from(storage),
        _ => {
            let (last, front) = key.split_last().unwrap_or((&0, &[]));
            base::key::hash(storage, front) ^ u64::from(last & PAGE_MASK)
        }
    };
    (hash.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize & (slots - 1)
}

/// See the head of the file.
pub(crate) struct Scheduler {
    policy: Policy,
    lasts: LastWrites,
    /// Tickets given per granule (table, page).
    given: Vec<u64>,
    /// The last commit that was stamped: what is at or below it is skipped.
    last: Position,
    /// Its number, from 1.
    number: u64,
}

/// A stamped group that is being cut.
pub(crate) struct Plan {
    pub group: Arc<Shipped>,
    cursor: Cursor,
    /// Records in it.
    pub rows: u64,
    /// All up to here is known when it is cut to its end.
    pub upto: Position,
}

/// What comes next of a plan.
pub(crate) enum Piece {
    Segment(Segment),
    /// The change of the schema whose bytes stand there in the data: [`Plan::pass`] steps over it.
    Schema {
        at: Position,
        changes: Range<usize>,
    },
    End,
}

impl Scheduler {
    /// Goes on after `from`. `rows`: how many last writes are remembered; `slots`: granules, a power of two.
    pub fn new(policy: Policy, from: Position, rows: usize, slots: usize) -> Scheduler {
        let granules = matches!(policy, Policy::Table | Policy::Page);
        Scheduler {
            policy,
            lasts: LastWrites::new(rows),
            given: vec![0; if granules { slots } else { 0 }],
            last: from,
            number: 0,
        }
    }

    /// Stamps a whole group. Commits that were fed before are skipped; a group that is not well formed is an error.
    pub fn stamp(&mut self, mut group: Shipped, upto: Position) -> Result<Plan> {
        let end = group.heads().len();
        let mut at = Cursor {
            number: self.number,
            ..Cursor::default()
        };
        let mut start = None;
        let mut rows = 0;
        while at.heads < end {
            let before = at;
            let head = at.open(group.heads())?;
            let data_end = before.data + head.data;
            if data_end > group.data().len() {
                return Err(record::damaged());
            }
            if head.position <= self.last {
                if start.is_some() {
                    return Err(record::damaged());
                }
                at.heads = before.heads + head.heads;
                (at.data, at.number, at.left) = (data_end, before.number, 0);
                continue;
            }
            start.get_or_insert(before);
            self.commit(&mut group, &mut at)?;
            if at.data != data_end {
                return Err(record::damaged());
            }
            rows += u64::from(head.records);
            (self.last, self.number) = (head.position, at.number);
        }
        let cursor = start.unwrap_or(at);
        Ok(Plan {
            group: Arc::new(group),
            cursor,
            rows,
            upto,
        })
    }

    /// Stamps the records of the commit that `at` has opened.
    fn commit(&mut self, group: &mut Shipped, at: &mut Cursor) -> Result<()> {
        let keys = matches!(self.policy, Policy::Page | Policy::Table);
        while at.left > 0 {
            let here = *at;
            let head = at.step(group.heads())?;
            if !matches!(head.kind, RecordKind::Put | RecordKind::Delete) {
                continue;
            }
            let prev = if keys {
                let key = group.data().get(here.data..here.data + head.key_len);
                let key = key.ok_or_else(record::damaged)?;
                let slot = granule(self.policy, head.storage, key, self.given.len());
                self.given[slot] += 1;
                self.given[slot] - 1
            } else {
                self.look_ahead(group, at);
                self.follows(head.key_hash, at)
            };
            RecordHead::stamp(&mut group.heads_mut()[here.heads..], prev);
        }
        Ok(())
    }

    #[inline]
    fn look_ahead(&self, group: &Group, at: &Cursor) {
        // Heads of commits stand between those of records, so this may read a hash from the wrong place: a hint all the same.
        let far = at.heads + AHEAD * record::RECORD_HEAD;
        if let Some(hash) = group.heads().get(far + 8..far + 16) {
            let hash = hash.try_into().expect("8 bytes");
            self.lasts.ahead(u64::from_le_bytes(hash));
        }
    }

    #[inline]
    fn follows(&mut self, hash: u64, at: &Cursor) -> u64 {
        match self.policy {
            Policy::Serial => 0,
            Policy::Transaction => match self.lasts.replace(hash, at.number) {
                Last::Exactly(own) if own == at.number => 0,
                Last::AtMost(n) => n.min(at.number - 1) | AND_BEFORE,
                Last::Exactly(n) => n,
            },
            _ => {
                let (Last::Exactly(p) | Last::AtMost(p)) = self.lasts.replace(hash, at.at.as_u64());
                p.min(at.at.prev().as_u64())
            }
        }
    }
}

impl Plan {
    /// The next piece. A segment has about `rows` records; with `whole` it holds whole commits, and with `rows` 1 besides one each.
    /// Calls `other` with the records of sequences and notifications that it passes, in log order.
    pub fn next(
        &mut self,
        rows: u64,
        whole: bool,
        generation: u64,
        other: &mut dyn FnMut(RecordKind, Position, Oid, &[u8]) -> Result<()>,
    ) -> Result<Piece> {
        let (heads, data) = (self.group.heads(), self.group.data());
        let start = self.cursor;
        let mut at = start;
        let (mut end, mut records, mut commits) = (start.heads, 0, 0);
        let mut span: Option<(Position, Position)> = None;
        loop {
            if at.left == 0 {
                if at.heads >= heads.len() || records >= rows {
                    break;
                }
                at.open(heads)?;
                continue;
            }
            if records >= rows && !whole {
                break;
            }
            let mut after = at;
            let head = after.step(heads)?;
            let row = at.data + head.key_len..after.data;
            match head.kind {
                RecordKind::Schema if span.is_some() => break,
                RecordKind::Schema => {
                    self.cursor = at;
                    return Ok(Piece::Schema {
                        at: at.at,
                        changes: row,
                    });
                }
                RecordKind::Sequence | RecordKind::Notify => {
                    other(head.kind, at.at, head.storage, &data[row])?
                }
                RecordKind::Put | RecordKind::Delete => {}
            }
            at = after;
            end = at.heads;
            records += 1;
            commits += u64::from(at.left == 0);
            span = Some((span.map_or(at.at, |s| s.0), at.at));
        }
        self.cursor = at;
        let Some((first, last)) = span else {
            return Ok(Piece::End);
        };
        Ok(Piece::Segment(Segment {
            group: self.group.clone(),
            start,
            end,
            first,
            last,
            records,
            commits,
            generation,
        }))
    }

    /// Where it stands: the commit that comes next or is under way, and whether it is under way.
    pub fn place(&self) -> (Position, bool) {
        (self.cursor.at, self.cursor.left > 0)
    }

    /// Steps over the change of the schema that came last. The number of its commit if nothing else is in it.
    pub fn pass(&mut self) -> Result<Option<u64>> {
        self.cursor.step(self.group.heads())?;
        Ok((self.cursor.left == 0).then_some(self.cursor.number))
    }
}

/// The scheduler alone, for measurements: stamps and cuts groups and lets the segments go. How many records.
pub fn schedule_only(groups: Vec<Group>, from: Position, options: &ReplayOptions) -> Result<u64> {
    let flow = Arc::default();
    let slots = options.granules.next_power_of_two();
    let mut scheduler = Scheduler::new(options.policy, from, options.last_writes, slots);
    let mut records = 0;
    for group in groups {
        let upto = group.header().last;
        let mut plan = scheduler.stamp(Shipped::new(group, &flow), upto)?;
        loop {
            match plan.next(options.segment_rows, false, 0, &mut |_, _, _, _| Ok(()))? {
                Piece::Segment(s) => records += s.records,
                Piece::Schema { .. } => drop(plan.pass()?),
                Piece::End => break,
            }
        }
    }
    Ok(records)
}
