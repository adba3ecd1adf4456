//! Checkpoints: a copy of every row, made beside running writers, from which a start needs only the log after *start*.
//!
//! ```text
//! checkpoint/0000000000000003.ckpt      number 3; a *.tmp is half-made and is removed at the next start
//!
//! header 128   magic "CANONCKP" 8 | format 2 | zero 6 | cluster id 16 | number 8 | start 8 | zero 76 | crc of 0..124  4
//! block  32 +  magic "CBLK" 4 | kind 2 | zero 2 | tag 4 | entries 4 | length 8 | crc of payload 4 | crc of 0..28  4
//!              payload, zeros up to a multiple of 8                        (as many blocks as there are)
//! index        a block of kind 3: per block before it  kind 2, zero 2, tag 4, entries 4, crc 4, offset 8, length 8
//! trailer 64   magic "CANONEND" 8 | number 8 | end 8 | rows 8 | index offset 8 | index length 8 | zero 12 | crc of 0..60  4
//! ```
//! Kind 1 is a section: bytes of the caller's under a tag (schema, sequences, users). Kind 2 is a chunk of rows of the table `tag`:
//! ```text
//! position 8 | key length 4 | row length 4, or all ones for a tombstone | key | row         one after the other
//! ```
//! A chunk is bounded ([`CHUNK_SIZE`], or one row), carries its own checksum and can be read and decoded by any thread.
//!
//! *start*: every commit at or below it is in here or overwritten; the log is needed from there on. *end*: no version in here is
//! above it; it was *decided* when the file was finished, so a log that ends before it has lost something. Between the two, rows
//! are copied while writers go on: each comes with its position, and after replay the newest position of a key wins.
//!
//! The file is complete or absent: written under another name, synced, renamed, the directory synced.
//!
//! Left out on purpose: incremental checkpoints and compression.

mod reader;
mod writer;

pub use reader::{CheckpointReader, ChunkRef, Entries, Entry, RowChunk};
pub use writer::CheckpointWriter;

use crate::bytes::{put, u16_at, u32_at, u64_at, u128_at};
use base::Position;

/// Version of the checkpoint format.
pub const CHECKPOINT_FORMAT: u16 = 1;

/// A chunk of rows is closed when it has reached this size.
pub const CHUNK_SIZE: usize = 1 << 20;

/// Greatest payload of one block.
pub const MAX_BLOCK: u64 = 1 << 30;

pub(crate) const HEADER: usize = 128;
pub(crate) const BLOCK: usize = 32;
pub(crate) const TRAILER: usize = 64;
pub(crate) const INDEX_ENTRY: usize = 32;
pub(crate) const ENTRY_HEAD: usize = 16;
pub(crate) const TOMBSTONE: u32 = u32::MAX;

const KIND_SECTION: u16 = 1;
const KIND_ROWS: u16 = 2;
const KIND_INDEX: u16 = 3;

/// What a checkpoint says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Id of the cluster.
    pub cluster: u128,
    /// Consecutive number.
    pub number: u64,
    /// The log is needed for commits above this.
    pub start: Position,
    /// No version in it is above this.
    pub end: Position,
    /// Entries in all row chunks, tombstones included.
    pub rows: u64,
}

/// Name of the file of a checkpoint.
pub(crate) fn file_name(number: u64) -> String {
    format!("{number:016x}.ckpt")
}

/// The reverse.
pub(crate) fn parse_name(name: &str) -> Option<u64> {
    let number = name.strip_suffix(".ckpt")?;
    if number.len() != 16 {
        return None;
    }
    u64::from_str_radix(number, 16).ok()
}

fn encode_header(cluster: u128, number: u64, start: Position) -> [u8; HEADER] {
    let mut out = [0; HEADER];
    put(&mut out, 0, b"CANONCKP");
    put(&mut out, 8, &CHECKPOINT_FORMAT.to_le_bytes());
    put(&mut out, 16, &cluster.to_le_bytes());
    put(&mut out, 32, &number.to_le_bytes());
    put(&mut out, 40, &start.as_u64().to_le_bytes());
    seal(&mut out);
    out
}

/// Puts the checksum of everything before it in the last four bytes.
fn seal(out: &mut [u8]) {
    let end = out.len() - 4;
    let crc = crc32c::crc32c(&out[..end]);
    put(out, end, &crc.to_le_bytes());
}

fn sealed(b: &[u8]) -> bool {
    let end = b.len() - 4;
    crc32c::crc32c(&b[..end]) == u32_at(b, end)
}

/// Cluster, number and start; `Err` says what is wrong.
pub(crate) fn decode_header(b: &[u8; HEADER]) -> Result<(u128, u64, Position), &'static str> {
    if b[..8] != *b"CANONCKP" || !sealed(b) {
        return Err("the checkpoint's header is wrong");
    }
    if u16_at(b, 8) != CHECKPOINT_FORMAT {
        return Err("the checkpoint is in a format that this program does not know");
    }
    Ok((
        u128_at(b, 16),
        u64_at(b, 32),
        Position::from_u64(u64_at(b, 40)),
    ))
}

/// What a checkpoint says of itself, from its first and last bytes alone; `Err` says what is wrong.
pub(crate) fn manifest(
    head: &[u8; HEADER],
    tail: &[u8; TRAILER],
) -> Result<Manifest, &'static str> {
    let (cluster, number, start) = decode_header(head)?;
    let trailer = Trailer::decode(tail)?;
    if trailer.number != number || trailer.end < start {
        return Err("the checkpoint's trailer contradicts its header");
    }
    Ok(Manifest {
        cluster,
        number,
        start,
        end: trailer.end,
        rows: trailer.rows,
    })
}

/// The first bytes of the same checkpoint in another cluster's directory.
pub(crate) fn header_for(cluster: u128, m: &Manifest) -> [u8; HEADER] {
    encode_header(cluster, m.number, m.start)
}

fn encode_block(kind: u16, tag: u32, entries: u32, payload: &[u8]) -> [u8; BLOCK] {
    let mut out = [0; BLOCK];
    put(&mut out, 0, b"CBLK");
    put(&mut out, 4, &kind.to_le_bytes());
    put(&mut out, 8, &tag.to_le_bytes());
    put(&mut out, 12, &entries.to_le_bytes());
    put(&mut out, 16, &(payload.len() as u64).to_le_bytes());
    put(&mut out, 24, &crc32c::crc32c(payload).to_le_bytes());
    seal(&mut out);
    out
}

struct Trailer {
    number: u64,
    end: Position,
    rows: u64,
    index_offset: u64,
    index_len: u64,
}

impl Trailer {
    fn encode(&self) -> [u8; TRAILER] {
        let mut out = [0; TRAILER];
        put(&mut out, 0, b"CANONEND");
        put(&mut out, 8, &self.number.to_le_bytes());
        put(&mut out, 16, &self.end.as_u64().to_le_bytes());
        put(&mut out, 24, &self.rows.to_le_bytes());
        put(&mut out, 32, &self.index_offset.to_le_bytes());
        put(&mut out, 40, &self.index_len.to_le_bytes());
        seal(&mut out);
        out
    }

    fn decode(b: &[u8; TRAILER]) -> Result<Trailer, &'static str> {
        if b[..8] != *b"CANONEND" || !sealed(b) {
            return Err("the checkpoint's trailer is wrong");
        }
        Ok(Trailer {
            number: u64_at(b, 8),
            end: Position::from_u64(u64_at(b, 16)),
            rows: u64_at(b, 24),
            index_offset: u64_at(b, 32),
            index_len: u64_at(b, 40),
        })
    }
}
