//! Writing a checkpoint: sections and rows in any order, then the end.
//!
//! The file is synced every few megabytes, so that the log's own syncs never queue behind a gigabyte of dirty pages.

use super::{
    BLOCK, CHUNK_SIZE, ENTRY_HEAD, INDEX_ENTRY, KIND_INDEX, KIND_ROWS, KIND_SECTION, MAX_BLOCK,
    Manifest, TOMBSTONE, Trailer, encode_block, encode_header, file_name,
};
use crate::bytes::pad8;
use crate::error::{Error, Result};
use base::{Position, RelId};
use env::{Disk, DiskFile, OpenMode, fault};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes written between syncs.
const SYNC_EVERY: u64 = 8 << 20;

/// Writes one checkpoint. Dropped before [`CheckpointWriter::finish`], it removes what it wrote.
pub struct CheckpointWriter {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    temporary: PathBuf,
    file: Arc<dyn DiskFile>,
    manifest: Manifest,
    offset: u64,
    unsynced: u64,
    index: Vec<u8>,
    /// The open chunk: table, entries, payload.
    table: RelId,
    entries: u32,
    chunk: Vec<u8>,
    finished: bool,
}

impl CheckpointWriter {
    /// Begins the checkpoint with this number. Every commit at or below `start` will be in it; the log keeps what is above.
    /// `DiskFull` here and in all calls below: give up this checkpoint (drop it) and try again later.
    pub(crate) fn create(
        disk: Arc<dyn Disk>,
        dir: &Path,
        cluster: u128,
        number: u64,
        start: Position,
    ) -> Result<CheckpointWriter> {
        let path = dir.join(file_name(number));
        CheckpointWriter::create_as(disk, path, cluster, number, start)
    }

    /// The same under another name: for what is no checkpoint of a directory, but looks like one.
    pub(crate) fn create_as(
        disk: Arc<dyn Disk>,
        path: PathBuf,
        cluster: u128,
        number: u64,
        start: Position,
    ) -> Result<CheckpointWriter> {
        let temporary = path.with_extension("tmp");
        let file = disk
            .open(&temporary, OpenMode::Truncate)
            .map_err(|e| Error::io("creation", &temporary, e))?;
        let mut writer = CheckpointWriter {
            disk,
            path,
            temporary,
            file,
            manifest: Manifest {
                cluster,
                number,
                start,
                end: start,
                rows: 0,
            },
            offset: 0,
            unsynced: 0,
            index: Vec::new(),
            table: 0,
            entries: 0,
            chunk: Vec::with_capacity(CHUNK_SIZE + CHUNK_SIZE / 8),
            finished: false,
        };
        writer.write(&encode_header(cluster, number, start))?;
        Ok(writer)
    }

    /// Where the log must be kept from.
    pub fn start(&self) -> Position {
        self.manifest.start
    }

    /// Bytes written so far.
    pub fn bytes(&self) -> u64 {
        self.offset + self.chunk.len() as u64
    }

    /// Adds bytes of the caller's under a tag. Recovery delivers sections before rows, in the order written.
    pub fn section(&mut self, tag: u32, bytes: &[u8]) -> Result<()> {
        self.block(KIND_SECTION, tag, 0, bytes)
    }

    /// Adds one version of one key: its row, or `None` for a tombstone. Tables may come in any order; a run of one table
    /// makes full chunks.
    pub fn put(
        &mut self,
        table: RelId,
        position: Position,
        key: &[u8],
        row: Option<&[u8]>,
    ) -> Result<()> {
        let size = ENTRY_HEAD + key.len() + row.map_or(0, <[u8]>::len);
        if size as u64 > MAX_BLOCK {
            return Err(Error::TooLarge {
                bytes: size as u64,
                limit: MAX_BLOCK,
            });
        }
        if self.entries > 0 && (self.table != table || self.chunk.len() + size > CHUNK_SIZE) {
            self.close_chunk()?;
        }
        self.table = table;
        self.entries += 1;
        self.manifest.end = self.manifest.end.max(position);
        self.manifest.rows += 1;
        let chunk = &mut self.chunk;
        chunk.extend_from_slice(&position.as_u64().to_le_bytes());
        chunk.extend_from_slice(&(key.len() as u32).to_le_bytes());
        chunk.extend_from_slice(&row.map_or(TOMBSTONE, |r| r.len() as u32).to_le_bytes());
        chunk.extend_from_slice(key);
        chunk.extend_from_slice(row.unwrap_or_default());
        Ok(())
    }

    fn close_chunk(&mut self) -> Result<()> {
        if self.entries == 0 {
            return Ok(());
        }
        let chunk = std::mem::take(&mut self.chunk);
        self.block(KIND_ROWS, self.table, self.entries, &chunk)?;
        self.chunk = chunk;
        self.chunk.clear();
        self.entries = 0;
        Ok(())
    }

    fn block(&mut self, kind: u16, tag: u32, entries: u32, payload: &[u8]) -> Result<()> {
        if payload.len() as u64 > MAX_BLOCK {
            return Err(Error::TooLarge {
                bytes: payload.len() as u64,
                limit: MAX_BLOCK,
            });
        }
        let at = self.offset;
        let head = encode_block(kind, tag, entries, payload);
        self.write(&head)?;
        self.write(payload)?;
        let padding = (pad8(payload.len() as u64) - payload.len() as u64) as usize;
        self.write(&[0; 8][..padding])?;
        self.index.extend_from_slice(&kind.to_le_bytes());
        self.index.extend_from_slice(&[0; 2]);
        self.index.extend_from_slice(&tag.to_le_bytes());
        self.index.extend_from_slice(&entries.to_le_bytes());
        self.index.extend_from_slice(&head[24..28]);
        self.index
            .extend_from_slice(&(at + BLOCK as u64).to_le_bytes());
        self.index
            .extend_from_slice(&(payload.len() as u64).to_le_bytes());
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        fault::fallible("checkpoint.write")
            .and_then(|()| self.file.write_all_at(bytes, self.offset))
            .map_err(|e| Error::io("writing", &self.temporary, e))?;
        self.offset += bytes.len() as u64;
        self.unsynced += bytes.len() as u64;
        if self.unsynced >= SYNC_EVERY {
            self.sync()?;
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        // Unlike the log's, a checkpoint's failed sync is not the end: nobody was promised anything of this file yet.
        self.file
            .sync_data()
            .map_err(|e| Error::io("sync", &self.temporary, e))?;
        self.unsynced = 0;
        Ok(())
    }

    /// Ends the checkpoint and makes it durable. `end` is *decided* now: at or above every position put.
    pub fn finish(mut self, end: Position) -> Result<Manifest> {
        assert!(
            end >= self.manifest.end,
            "a version at {} is above the end {end}",
            self.manifest.end
        );
        self.manifest.end = end;
        self.close_chunk()?;
        let index = std::mem::take(&mut self.index);
        let (index_offset, blocks) = (self.offset, (index.len() / INDEX_ENTRY) as u32);
        self.block(KIND_INDEX, 0, blocks, &index)?;
        let trailer = Trailer {
            number: self.manifest.number,
            end,
            rows: self.manifest.rows,
            index_offset,
            index_len: index.len() as u64,
        };
        self.write(&trailer.encode())?;
        fault::point("checkpoint.before_sync");
        self.sync()?;
        fault::point("checkpoint.before_rename");
        let path = &self.path;
        self.disk
            .rename(&self.temporary, path)
            .map_err(|e| Error::io("renaming", path, e))?;
        self.finished = true;
        fault::point("checkpoint.after_rename");
        let dir = path.parent().expect("a file lies in a directory");
        self.disk.sync_dir(dir).map_err(|e| Error::sync(dir, e))?;
        fault::point("checkpoint.after_sync");
        Ok(self.manifest)
    }
}

impl Drop for CheckpointWriter {
    fn drop(&mut self) {
        if !self.finished {
            // Best effort: the next start removes it too.
            let _ = self.disk.remove(&self.temporary);
        }
    }
}
