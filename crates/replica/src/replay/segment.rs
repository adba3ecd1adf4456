//! Segments: pieces of a shipped group that workers take, and the cursor that reads writes off them in place.
//!
//! ```text
//! heads  | commit | rec | rec | rec | commit | rec | commit | rec | rec | rec | rec |
//!        └──────── segment ─────────┴─────────── segment ────────┴─── segment ────────   (the last begins inside a commit)
//! ```
//! A segment owns no bytes: it holds the group (shared) and where it begins and ends. The group goes when the last write of it is
//! installed, so a deferred write keeps its bytes alive. How many bytes live is counted in [`Flow`], which the feeder waits on.

use base::record::{self, COMMIT_HEAD, CommitHead, RECORD_HEAD, RecordHead, RecordKind};
use base::{Position, RelId, Result};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use wal::Group;

use super::bell::Bell;

/// Bytes of groups from the moment they are fed until their last write is installed.
#[derive(Default)]
pub(crate) struct Flow {
    bytes: AtomicU64,
    /// Rings when bytes have gone.
    pub room: Bell,
}

impl Flow {
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }
}

/// A group on its way through replay, counted.
pub(crate) struct Shipped {
    group: Group,
    flow: Arc<Flow>,
}

impl Shipped {
    pub fn new(group: Group, flow: &Arc<Flow>) -> Shipped {
        flow.bytes
            .fetch_add(group.as_bytes().len() as u64, Ordering::AcqRel);
        Shipped {
            group,
            flow: flow.clone(),
        }
    }

    pub fn heads_mut(&mut self) -> &mut [u8] {
        self.group.heads_mut()
    }
}

impl Deref for Shipped {
    type Target = Group;

    fn deref(&self) -> &Group {
        &self.group
    }
}

impl Drop for Shipped {
    fn drop(&mut self) {
        let bytes = self.group.as_bytes().len() as u64;
        self.flow.bytes.fetch_sub(bytes, Ordering::AcqRel);
        self.flow.room.ring();
    }
}

/// One record where it stands.
#[derive(Clone, Copy)]
pub(crate) struct Write<'a> {
    pub at: Position,
    pub kind: RecordKind,
    pub storage: RelId,
    pub hash: u64,
    /// As stamped; what it counts is the policy's (`scheduler`).
    pub prev: u64,
    pub key: &'a [u8],
    pub row: &'a [u8],
}

impl Write<'_> {
    pub fn is_row(&self) -> bool {
        matches!(self.kind, RecordKind::Put | RecordKind::Delete)
    }
}

/// A place between two records of a group: offsets into heads and data, and the commit it stands in.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cursor {
    pub heads: usize,
    pub data: usize,
    /// The commit whose records come next, or came last.
    pub at: Position,
    /// Its number in the order of the log, from 1; commits without records have none.
    pub number: u64,
    /// Records of it that are left.
    pub left: u32,
}

impl Cursor {
    /// Steps over the next commit's head. The cursor stands at a commit's end, before `end`.
    #[inline]
    pub fn open(&mut self, heads: &[u8]) -> Result<CommitHead> {
        let head = CommitHead::read(&heads[self.heads..])?;
        self.heads += COMMIT_HEAD;
        self.at = head.position;
        self.number += u64::from(head.records > 0);
        self.left = head.records;
        Ok(head)
    }

    /// Steps over the next record of the open commit; its head.
    #[inline]
    pub fn step(&mut self, heads: &[u8]) -> Result<RecordHead> {
        let head = RecordHead::read(&heads[self.heads..])?;
        self.heads += RECORD_HEAD;
        self.data += head.key_len + head.row_len;
        self.left -= 1;
        Ok(head)
    }

    /// The next write before `end` (an offset into the heads), across commits.
    #[inline]
    pub fn next<'g>(&mut self, group: &'g Group, end: usize) -> Result<Option<Write<'g>>> {
        while self.left == 0 {
            if self.heads >= end {
                return Ok(None);
            }
            self.open(group.heads())?;
        }
        if self.heads >= end {
            return Ok(None);
        }
        self.record(group).map(Some)
    }

    /// Where the write stands that was read last.
    pub fn back_over(mut self, w: &Write<'_>) -> Cursor {
        self.heads -= RECORD_HEAD;
        self.data -= w.key.len() + w.row.len();
        self.left += 1;
        self
    }

    /// The next write of the open commit.
    #[inline]
    pub fn record<'g>(&mut self, group: &'g Group) -> Result<Write<'g>> {
        let from = self.data;
        let head = self.step(group.heads())?;
        let bytes = group
            .data()
            .get(from..self.data)
            .ok_or_else(record::damaged)?;
        let (key, row) = bytes.split_at(head.key_len);
        Ok(Write {
            at: self.at,
            kind: head.kind,
            storage: head.storage,
            hash: head.key_hash,
            prev: head.prev,
            key,
            row,
        })
    }
}

/// What a worker takes.
pub(crate) struct Segment {
    pub group: Arc<Shipped>,
    pub start: Cursor,
    /// Where it ends in the heads.
    pub end: usize,
    /// Position of its first record, and of its last.
    pub first: Position,
    pub last: Position,
    pub records: u64,
    /// Commits that end in it.
    pub commits: u64,
    /// Of the schema when it was handed out: who keeps storages looks them up again under another.
    pub generation: u64,
}
