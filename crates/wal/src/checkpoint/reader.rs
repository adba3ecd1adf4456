//! Reading a checkpoint: the trailer and index once, then chunks by any number of threads.

use super::{
    BLOCK, ENTRY_HEAD, HEADER, INDEX_ENTRY, KIND_ROWS, KIND_SECTION, MAX_BLOCK, Manifest,
    TOMBSTONE, TRAILER, Trailer, decode_header, sealed,
};
use crate::bytes::{u16_at, u32_at, u64_at};
use crate::error::{Error, Result};
use base::{Position, RelId};
use env::{Disk, DiskFile, OpenMode};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A complete checkpoint, open to read. Shared by reference between threads.
pub struct CheckpointReader {
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    manifest: Manifest,
    sections: Vec<ChunkRef>,
    chunks: Vec<ChunkRef>,
    len: u64,
}

/// Where a block's payload stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkRef {
    /// Table of a chunk, tag of a section.
    pub tag: u32,
    /// Entries in it.
    pub entries: u32,
    /// Bytes of payload.
    pub len: u64,
    offset: u64,
    crc: u32,
}

impl ChunkRef {
    /// Where its payload begins in the file.
    pub fn offset(&self) -> u64 {
        self.offset
    }
}

impl CheckpointReader {
    /// Opens a finished checkpoint file and reads its index. `Corrupt` when it is not whole.
    pub fn open(disk: &dyn Disk, path: &Path) -> Result<CheckpointReader> {
        let file = disk
            .open(path, OpenMode::Read)
            .map_err(|e| Error::io("opening", path, e))?;
        let len = file.len().map_err(|e| Error::io("measuring", path, e))?;
        let corrupt = |offset: u64, reason: &str| Error::corrupt(path, offset, reason);
        if len < (HEADER + BLOCK + TRAILER) as u64 {
            return Err(corrupt(0, "the checkpoint is cut short"));
        }
        let mut head = [0; HEADER];
        read(&*file, path, &mut head, 0)?;
        let (cluster, number, start) = decode_header(&head).map_err(|r| corrupt(0, r))?;
        let mut tail = [0; TRAILER];
        let tail_at = len - TRAILER as u64;
        read(&*file, path, &mut tail, tail_at)?;
        let trailer = Trailer::decode(&tail).map_err(|r| corrupt(tail_at, r))?;
        // The index stands right before the trailer; its length is bounded by the file before it is reserved.
        let index_fits = trailer
            .index_offset
            .checked_add(BLOCK as u64)
            .and_then(|at| at.checked_add(trailer.index_len))
            .is_some_and(|end| {
                end == tail_at && trailer.index_len.is_multiple_of(INDEX_ENTRY as u64)
            });
        if !index_fits || trailer.number != number || trailer.end < start {
            return Err(corrupt(
                tail_at,
                "the checkpoint's trailer contradicts its header",
            ));
        }
        let mut block = [0; BLOCK];
        read(&*file, path, &mut block, trailer.index_offset)?;
        let mut index = vec![0; trailer.index_len as usize];
        read(
            &*file,
            path,
            &mut index,
            trailer.index_offset + BLOCK as u64,
        )?;
        if !sealed(&block) || crc32c::crc32c(&index) != u32_at(&block, 24) {
            return Err(corrupt(
                trailer.index_offset,
                "the checkpoint's index is wrong",
            ));
        }
        let mut reader = CheckpointReader {
            file,
            path: path.to_owned(),
            manifest: Manifest {
                cluster,
                number,
                start,
                end: trailer.end,
                rows: trailer.rows,
            },
            sections: Vec::new(),
            chunks: Vec::new(),
            len,
        };
        let mut rows = 0;
        for entry in index.chunks_exact(INDEX_ENTRY) {
            let chunk = ChunkRef {
                tag: u32_at(entry, 4),
                entries: u32_at(entry, 8),
                crc: u32_at(entry, 12),
                offset: u64_at(entry, 16),
                len: u64_at(entry, 24),
            };
            let end = chunk.offset.checked_add(chunk.len);
            if end.is_none_or(|end| end > trailer.index_offset) || chunk.len > MAX_BLOCK {
                return Err(corrupt(
                    trailer.index_offset,
                    "the checkpoint's index points outside",
                ));
            }
            match u16_at(entry, 0) {
                KIND_SECTION => reader.sections.push(chunk),
                KIND_ROWS => {
                    rows += u64::from(chunk.entries);
                    reader.chunks.push(chunk);
                }
                _ => {
                    return Err(corrupt(
                        trailer.index_offset,
                        "the checkpoint's index holds an unknown kind",
                    ));
                }
            }
        }
        if rows != trailer.rows {
            return Err(corrupt(
                trailer.index_offset,
                "the checkpoint's index does not hold every row",
            ));
        }
        Ok(reader)
    }

    /// What the checkpoint says of itself.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of the file.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Never: it has a header.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// At most `most` bytes of the file from `offset` on, as they are, to send it to another node; empty at the end. The file may be
    /// superseded and removed meanwhile: this handle keeps it.
    pub fn read_at(&self, offset: u64, most: usize) -> Result<Vec<u8>> {
        let left = usize::try_from(self.len.saturating_sub(offset)).unwrap_or(usize::MAX);
        let mut bytes = vec![0; left.min(most)];
        read(&*self.file, &self.path, &mut bytes, offset)?;
        Ok(bytes)
    }

    /// The sections, in the order written.
    pub fn sections(&self) -> &[ChunkRef] {
        &self.sections
    }

    /// The chunks of rows.
    pub fn chunks(&self) -> &[ChunkRef] {
        &self.chunks
    }

    /// Whether the head of a block is whole. Who reads a checkpoint finds its blocks by the index, and does not look at it.
    pub fn has_whole_head(&self, block: &ChunkRef) -> Result<bool> {
        let head = self.read_at(block.offset.saturating_sub(BLOCK as u64), BLOCK)?;
        let of = |at: usize| u32_at(&head, at);
        Ok(head.len() == BLOCK
            && head[..4] == *b"CBLK"
            && sealed(&head)
            && of(8) == block.tag
            && of(12) == block.entries)
    }

    /// Reads and checks the bytes of a section.
    pub fn read_section(&self, section: &ChunkRef) -> Result<Vec<u8>> {
        let mut bytes = vec![0; section.len as usize];
        read(&*self.file, &self.path, &mut bytes, section.offset)?;
        if crc32c::crc32c(&bytes) != section.crc {
            return Err(Error::corrupt(
                &self.path,
                section.offset,
                "the checksum of the block is wrong",
            ));
        }
        Ok(bytes)
    }

    /// Reads and checks a chunk of rows.
    pub fn read_chunk(&self, chunk: &ChunkRef) -> Result<RowChunk> {
        let bytes = self.read_section(chunk)?;
        let whole = RowChunk::new(chunk.tag, bytes);
        match whole {
            Some(whole) if whole.entries == chunk.entries => Ok(whole),
            _ => Err(Error::corrupt(
                &self.path,
                chunk.offset,
                "the entries of the chunk do not add up",
            )),
        }
    }
}

fn read(file: &dyn DiskFile, path: &Path, out: &mut [u8], offset: u64) -> Result<()> {
    file.read_exact_at(out, offset).map_err(|e| match e.kind() {
        io::ErrorKind::UnexpectedEof => Error::corrupt(path, offset, "the checkpoint is cut short"),
        _ => Error::io("reading", path, e),
    })
}

/// A decoded chunk: versions of keys of one table.
#[derive(Clone, Debug)]
pub struct RowChunk {
    table: RelId,
    entries: u32,
    bytes: Vec<u8>,
}

/// One version of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Commit that wrote it.
    pub position: Position,
    /// Memory-comparable key.
    pub key: &'a [u8],
    /// The row, or `None` for a tombstone.
    pub row: Option<&'a [u8]>,
}

impl RowChunk {
    /// Takes a payload; `None` when its lengths do not add up.
    fn new(table: RelId, bytes: Vec<u8>) -> Option<RowChunk> {
        let mut entries = 0;
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            (_, rest) = split_entry(rest)?;
            entries += 1;
        }
        Some(RowChunk {
            table,
            entries,
            bytes,
        })
    }

    /// The table.
    pub fn table(&self) -> RelId {
        self.table
    }

    /// How many entries.
    pub fn len(&self) -> usize {
        self.entries as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// The entries, in the order written.
    pub fn iter(&self) -> Entries<'_> {
        Entries { rest: &self.bytes }
    }
}

impl<'a> IntoIterator for &'a RowChunk {
    type Item = Entry<'a>;
    type IntoIter = Entries<'a>;
    fn into_iter(self) -> Entries<'a> {
        self.iter()
    }
}

/// Iterator over a chunk.
pub struct Entries<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Entries<'a> {
    type Item = Entry<'a>;
    fn next(&mut self) -> Option<Entry<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        let (entry, rest) = split_entry(self.rest).expect("the chunk was checked when it was read");
        self.rest = rest;
        Some(entry)
    }
}

fn split_entry(b: &[u8]) -> Option<(Entry<'_>, &[u8])> {
    if b.len() < ENTRY_HEAD {
        return None;
    }
    let position = Position::from_u64(u64_at(b, 0));
    let key_len = u32_at(b, 8) as usize;
    let row_len = u32_at(b, 12);
    let (key, rest) = b[ENTRY_HEAD..].split_at_checked(key_len)?;
    if row_len == TOMBSTONE {
        return Some((
            Entry {
                position,
                key,
                row: None,
            },
            rest,
        ));
    }
    let (row, rest) = rest.split_at_checked(row_len as usize)?;
    Some((
        Entry {
            position,
            key,
            row: Some(row),
        },
        rest,
    ))
}
