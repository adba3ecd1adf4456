//! A flush group: the commits that one write and one sync make durable, and the unit that replicas receive.
//!
//! ```text
//!   0  magic "CANONGRP"          8 | 64  first position            8
//!   8  format version            2 | 72  last position             8
//!  10  flags, 0                  2 | 80  published                 8
//!  12  count of commits          4 | 88  length of heads           8
//!  16  stream id                16 | 96  length of data            8
//!  32  term                      8 | 104 crc32c of heads           4
//!  40  segment number            8 | 108 crc32c of data, padding   4
//!  48  offset in the segment     8 | 112 chain                     4
//!  56  synced                    8 | 116 zero                      8
//!                                  | 124 crc32c of bytes 0..124    4
//! 128  heads of all commits | data of all commits | zeros up to a multiple of 8
//! ```
//! Heads stand together so that a replica's scheduler reads only those (C5 §7.1); they have a checksum of their own.
//!
//! Three fields make old bytes recognisable. *Segment number and offset* say where the group belongs: a group left over from an
//! earlier life of a recycled file, or stored by a user as data, does not claim the place it is found at. *Chain* is the header
//! checksum of the group before (of the segment header, for the first): a group that once followed another one does not
//! continue this one. *Synced* is how many bytes of this segment were durable when the group was written: so a later group
//! testifies whether a damaged earlier one had ever been durable (see `reader`).
//!
//! Left out on purpose: compression, and any knowledge of what heads and data mean (`base::record`).

use crate::bytes::{pad8, put, u16_at, u32_at, u64_at, u128_at};
use base::Position;

/// Bytes of a group's header.
pub const GROUP_HEADER: u64 = 128;

/// Greatest group, header included. A commit must fit in one group.
pub const MAX_GROUP: u64 = 1 << 30;

/// Version of the format of groups and segments.
pub const LOG_FORMAT: u16 = 1;

pub(crate) const GROUP_MAGIC: [u8; 8] = *b"CANONGRP";

/// The fields of a group's header; see the module's drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupHeader {
    /// Commits in the group.
    pub count: u32,
    /// Id of the history that the group belongs to.
    pub stream: u128,
    /// Term of the primary that wrote it.
    pub term: u64,
    /// Number of the segment that it stands in.
    pub segment: u64,
    /// Its offset there, in bytes.
    pub offset: u64,
    /// Bytes of the segment that were durable before it was written.
    pub synced: u64,
    /// Position of its first commit.
    pub first: Position,
    /// Position of its last commit.
    pub last: Position,
    /// *Published* when it was written.
    pub published: Position,
    /// Bytes of all heads.
    pub heads_len: u64,
    /// Bytes of all data, without padding.
    pub data_len: u64,
    /// Checksum of the heads.
    pub heads_crc: u32,
    /// Checksum of data and padding.
    pub data_crc: u32,
    /// Header checksum of what stands before it in the segment.
    pub chain: u32,
}

impl GroupHeader {
    /// Bytes of the whole group.
    pub fn len(&self) -> u64 {
        GROUP_HEADER + pad8(self.heads_len + self.data_len)
    }

    /// Never: a group has a header.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Writes the header over the first bytes of `out`; returns its checksum, the next group's chain.
    pub(crate) fn encode(&self, out: &mut [u8]) -> u32 {
        let out = &mut out[..GROUP_HEADER as usize];
        put(out, 0, &GROUP_MAGIC);
        put(out, 8, &LOG_FORMAT.to_le_bytes());
        put(out, 10, &[0, 0]);
        put(out, 12, &self.count.to_le_bytes());
        put(out, 16, &self.stream.to_le_bytes());
        put(out, 32, &self.term.to_le_bytes());
        put(out, 40, &self.segment.to_le_bytes());
        put(out, 48, &self.offset.to_le_bytes());
        put(out, 56, &self.synced.to_le_bytes());
        put(out, 64, &self.first.as_u64().to_le_bytes());
        put(out, 72, &self.last.as_u64().to_le_bytes());
        put(out, 80, &self.published.as_u64().to_le_bytes());
        put(out, 88, &self.heads_len.to_le_bytes());
        put(out, 96, &self.data_len.to_le_bytes());
        put(out, 104, &self.heads_crc.to_le_bytes());
        put(out, 108, &self.data_crc.to_le_bytes());
        put(out, 112, &self.chain.to_le_bytes());
        put(out, 116, &[0; 8]);
        let crc = crc32c::crc32c(&out[..124]);
        put(out, 124, &crc.to_le_bytes());
        crc
    }

    /// Reads a header; `Err` says what is wrong with it. A header that decodes has lengths within [`MAX_GROUP`].
    pub fn decode(b: &[u8]) -> Result<(GroupHeader, u32), &'static str> {
        if b.len() < GROUP_HEADER as usize {
            return Err("the group's header is cut short");
        }
        if b[..8] != GROUP_MAGIC {
            return Err("there is no group where one is expected");
        }
        let crc = u32_at(b, 124);
        if crc32c::crc32c(&b[..124]) != crc {
            return Err("the checksum of the group's header is wrong");
        }
        if u16_at(b, 8) != LOG_FORMAT {
            return Err("the group is in a format that this program does not know");
        }
        let header = GroupHeader {
            count: u32_at(b, 12),
            stream: u128_at(b, 16),
            term: u64_at(b, 32),
            segment: u64_at(b, 40),
            offset: u64_at(b, 48),
            synced: u64_at(b, 56),
            first: Position::from_u64(u64_at(b, 64)),
            last: Position::from_u64(u64_at(b, 72)),
            published: Position::from_u64(u64_at(b, 80)),
            heads_len: u64_at(b, 88),
            data_len: u64_at(b, 96),
            heads_crc: u32_at(b, 104),
            data_crc: u32_at(b, 108),
            chain: u32_at(b, 112),
        };
        let lengths_fit = header.heads_len <= MAX_GROUP
            && header.data_len <= MAX_GROUP
            && header.len() <= MAX_GROUP;
        if !lengths_fit || header.count == 0 || header.first > header.last || u64_at(b, 116) != 0 {
            return Err("the fields of the group's header contradict each other");
        }
        Ok((header, crc))
    }
}

/// A whole group, checked against its checksums.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    header: GroupHeader,
    bytes: Vec<u8>,
}

impl Group {
    /// A group just written, its checksums made here.
    pub(crate) fn written(header: GroupHeader, bytes: Vec<u8>) -> Group {
        debug_assert_eq!(bytes.len() as u64, header.len());
        Group { header, bytes }
    }

    /// Takes the bytes of one whole group, header included, as shipped or read; `Err` says what is wrong.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Group, &'static str> {
        let (header, _) = GroupHeader::decode(&bytes)?;
        if bytes.len() as u64 != header.len() {
            return Err("the group is cut short");
        }
        let group = Group { header, bytes };
        if crc32c::crc32c(group.heads()) != header.heads_crc {
            return Err("the checksum of the group's heads is wrong");
        }
        if crc32c::crc32c(&group.bytes[group.data_start()..]) != header.data_crc {
            return Err("the checksum of the group's data is wrong");
        }
        Ok(group)
    }

    fn data_start(&self) -> usize {
        (GROUP_HEADER + self.header.heads_len) as usize
    }

    /// The header.
    pub fn header(&self) -> &GroupHeader {
        &self.header
    }

    /// Heads of all commits, one after the other (`base::record::Commit::take` reads them off).
    pub fn heads(&self) -> &[u8] {
        &self.bytes[GROUP_HEADER as usize..self.data_start()]
    }

    /// The heads, for the replica's scheduler, which fills in the field that the log reserves for it. The header's checksum of the
    /// heads holds no more then.
    pub fn heads_mut(&mut self) -> &mut [u8] {
        let end = self.data_start();
        &mut self.bytes[GROUP_HEADER as usize..end]
    }

    /// Data of all commits, one after the other.
    pub fn data(&self) -> &[u8] {
        &self.bytes[self.data_start()..self.data_start() + self.header.data_len as usize]
    }

    /// The group as it stands on disk.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}
