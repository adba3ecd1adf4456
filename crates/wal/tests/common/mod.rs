//! What the tests of this crate share: a world in memory, commits that say who they are, and a sink that remembers.
#![allow(dead_code)]

use base::Position;
use env::{Disk, Env, FaultyDisk, MemDisk, OsClock, OsSpawn, SeededRandom};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wal::{
    Commit, DataDir, DirOptions, Group, LogOptions, LogReader, LogWriter, Manifest, Progress,
    Recovered, RecoverySink, Result, RowChunk,
};

/// Surroundings with this disk and fixed dice.
pub fn env_on(disk: Arc<dyn Disk>) -> Env {
    Env {
        clock: Arc::new(OsClock::new()),
        random: Arc::new(SeededRandom::new(42)),
        disk,
        spawn: Arc::new(OsSpawn),
    }
}

/// The directory that tests use on a disk in memory.
pub fn root() -> PathBuf {
    PathBuf::from("/data")
}

pub fn small() -> DirOptions {
    DirOptions {
        log: LogOptions {
            segment_size: 4096,
            spares: 1,
        },
        cluster: Some(0xc0ffee),
    }
}

/// Opens the directory on `disk` with small segments.
pub fn open(disk: Arc<dyn Disk>) -> Result<DataDir> {
    DataDir::open(&env_on(disk), &root(), small())
}

pub fn mem() -> (MemDisk, Arc<dyn Disk>) {
    let disk = MemDisk::new();
    (disk.clone(), Arc::new(disk))
}

pub fn faulty(mem: &MemDisk) -> FaultyDisk {
    FaultyDisk::new(Arc::new(mem.clone()))
}

/// Position n of epoch 1.
pub fn at(n: u32) -> Position {
    Position::new(1, n)
}

/// A commit whose parts tell its position and have about `size` bytes of data.
pub fn commit(n: u32, size: usize) -> Commit {
    let mut data = format!("data of {n} ").into_bytes();
    data.resize(size.max(data.len()), n as u8 | 1);
    Commit {
        position: at(n),
        heads: format!("head of {n};").into_bytes(),
        data,
    }
}

/// A writer at the end of a fresh or recovered log.
pub fn writer(dir: &DataDir, recovered: &Recovered) -> Result<LogWriter> {
    LogWriter::resume(dir.log().clone(), &recovered.end, recovered.end.term.max(1))
}

/// Every group after `from`, to the end.
pub fn read_all(dir: &DataDir, from: Position) -> Result<(Vec<Group>, LogReader)> {
    let mut reader = LogReader::open(dir.log().clone(), dir.cluster(), from)?;
    let mut groups = Vec::new();
    while let Some(group) = reader.next_group()? {
        groups.push(group);
    }
    Ok((groups, reader))
}

/// Last positions of groups.
pub fn lasts(groups: &[Group]) -> Vec<u32> {
    groups.iter().map(|g| g.header().last.order()).collect()
}

/// (table, key) -> (position, row).
pub type Rows = BTreeMap<(u32, Vec<u8>), (Position, Option<Vec<u8>>)>;

/// Remembers what recovery delivered.
#[derive(Default)]
pub struct Memory {
    pub manifest: Mutex<Option<Manifest>>,
    pub sections: Mutex<Vec<(u32, Vec<u8>)>>,
    /// The newest wins.
    pub rows: Mutex<Rows>,
    pub groups: Mutex<Vec<Group>>,
}

impl RecoverySink for Memory {
    fn begin(&self, manifest: &Manifest) -> Result<()> {
        assert!(
            self.manifest.lock().replace(*manifest).is_none(),
            "one checkpoint only"
        );
        Ok(())
    }

    fn section(&self, tag: u32, bytes: &[u8]) -> Result<()> {
        assert!(self.rows.lock().is_empty(), "sections come before rows");
        self.sections.lock().push((tag, bytes.to_vec()));
        Ok(())
    }

    fn rows(&self, chunk: &RowChunk) -> Result<()> {
        let mut rows = self.rows.lock();
        for entry in chunk {
            let new = (entry.position, entry.row.map(<[u8]>::to_vec));
            let kept = rows
                .entry((chunk.table(), entry.key.to_vec()))
                .or_insert(new.clone());
            if new.0 > kept.0 {
                *kept = new;
            }
        }
        Ok(())
    }

    fn group(&self, group: Group, after: Position) -> Result<()> {
        assert!(group.header().last > after);
        self.groups.lock().push(group);
        Ok(())
    }
}

/// Opens and recovers.
pub fn recover(disk: Arc<dyn Disk>) -> Result<(DataDir, Memory, Recovered)> {
    let dir = open(disk)?;
    let memory = Memory::default();
    let recovered = wal::recover(&dir, &memory, 1, &Progress::default())?;
    Ok((dir, memory, recovered))
}

/// Path of the segment with this index.
pub fn segment_path(dir: &DataDir, index: usize) -> PathBuf {
    let name = dir.log().list().unwrap()[index];
    dir.log().path(name)
}

/// Replaces a file's content.
pub fn put_file(disk: &dyn Disk, path: &Path, content: &[u8]) {
    let file = disk.open(path, env::OpenMode::Truncate).unwrap();
    file.write_all_at(content, 0).unwrap();
    file.sync_data().unwrap();
}
