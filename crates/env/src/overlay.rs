//! A disk whose changes stay in memory: what lies below is read and never changed.
//!
//! For who wants to know what a start would find, and may not start: the same code runs over an overlay, removes what it would remove and
//! writes what it would write, and afterwards nothing has happened.
//!
//! ```text
//! read:    changed or made here? memory.   Renamed here? the file below that it was.   Else the file below of that name
//! write:   the file is copied into memory first
//! ```
//! A directory is locked only if its lock file is there, and not at all where this user may not write: a copy on a read-only disk is read, too.
//!
//! Left out on purpose: changes below meanwhile. They show where nothing hides them.

use crate::disk::{DirLock, Disk, DiskFile, OpenMode};
use crate::os_disk::LOCK_FILE;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// See the head of the file. Clones share the changes.
#[derive(Clone)]
pub struct Overlay {
    below: Arc<dyn Disk>,
    changes: Arc<Mutex<Changes>>,
}

#[derive(Default)]
struct Changes {
    /// What a name leads to now; none: to nothing.
    names: BTreeMap<PathBuf, Option<Content>>,
    dirs: BTreeSet<PathBuf>,
}

#[derive(Clone)]
enum Content {
    Memory(Arc<MemoryFile>),
    /// A file below, of another name.
    Below(PathBuf),
}

#[derive(Default)]
struct MemoryFile(Mutex<Vec<u8>>);

fn missing() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl Overlay {
    pub fn new(below: Arc<dyn Disk>) -> Overlay {
        Overlay {
            below,
            changes: Arc::default(),
        }
    }

    /// Makes a file below appear under another name, too.
    pub fn link(&self, from: &Path, to: &Path) {
        let content = Some(Content::Below(from.to_owned()));
        self.changes.lock().names.insert(to.to_owned(), content);
    }

    /// What a name leads to.
    fn find(&self, path: &Path) -> io::Result<Content> {
        let changed = self.changes.lock().names.get(path).cloned();
        match changed {
            Some(found) => found.ok_or_else(missing),
            None => {
                self.below.open(path, OpenMode::Read)?;
                Ok(Content::Below(path.to_owned()))
            }
        }
    }

    fn set(&self, path: &Path, content: Option<Content>) {
        self.changes.lock().names.insert(path.to_owned(), content);
    }
}

impl Disk for Overlay {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let found = self.find(path);
        let file = match (mode, found) {
            (OpenMode::Read, found) => match found? {
                Content::Memory(file) => return Ok(file),
                Content::Below(path) => return self.below.open(&path, OpenMode::Read),
            },
            (OpenMode::Write, found) => match found? {
                Content::Memory(file) => return Ok(file),
                Content::Below(path) => MemoryFile(Mutex::new(self.below.read(&path)?)),
            },
            (OpenMode::CreateNew, Ok(_)) => return Err(io::ErrorKind::AlreadyExists.into()),
            (OpenMode::CreateNew | OpenMode::Truncate, _) => MemoryFile::default(),
        };
        let file = Arc::new(file);
        self.set(path, Some(Content::Memory(file.clone())));
        Ok(file)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let content = self.find(from)?;
        self.set(to, Some(content));
        self.set(from, None);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.find(path)?;
        self.set(path, None);
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let changes = self.changes.lock();
        let mut names: BTreeSet<String> = match self.below.list(dir) {
            Ok(names) => names.into_iter().collect(),
            // Only what is not there below is empty.
            Err(e) if e.kind() == io::ErrorKind::NotFound && changes.dirs.contains(dir) => {
                BTreeSet::new()
            }
            Err(e) => return Err(e),
        };
        for (path, content) in &changes.names {
            if path.parent() == Some(dir)
                && let Some(name) = path.file_name()
            {
                let name = name.to_string_lossy().into_owned();
                match content {
                    Some(_) => names.insert(name),
                    None => names.remove(&name),
                };
            }
        }
        Ok(names.into_iter().collect())
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        let mut changes = self.changes.lock();
        changes.dirs.extend(dir.ancestors().map(Path::to_owned));
        Ok(())
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn lock_dir(&self, dir: &Path) -> io::Result<DirLock> {
        let file = dir.join(LOCK_FILE);
        match self.below.open(&file, OpenMode::Read) {
            Ok(_) => match self.below.lock_dir(dir) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => Err(e),
                Err(_) => Ok(DirLock::new(())),
                held => held,
            },
            Err(_) => Ok(DirLock::new(())),
        }
    }
}

impl DiskFile for MemoryFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let bytes = self.0.lock();
        let from = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(bytes.len());
        let n = buf.len().min(bytes.len() - from);
        buf[..n].copy_from_slice(&bytes[from..from + n]);
        Ok(n)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        let mut bytes = self.0.lock();
        let from = usize::try_from(offset).map_err(io::Error::other)?;
        let end = from + buf.len();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[from..end].copy_from_slice(buf);
        Ok(buf.len())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let len = usize::try_from(len).map_err(io::Error::other)?;
        self.0.lock().resize(len, 0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemDisk;

    #[test]
    fn changes_show_above_and_never_below() {
        let below = MemDisk::new();
        let dir = Path::new("/d");
        below.create_dir_all(dir).unwrap();
        for name in ["a", "b", "c"] {
            let file = below.open(&dir.join(name), OpenMode::CreateNew).unwrap();
            file.write_all_at(name.as_bytes(), 0).unwrap();
        }
        let over = Overlay::new(Arc::new(below.clone()));
        let read = |name: &str| over.read(&dir.join(name)).ok();
        over.remove(&dir.join("a")).unwrap();
        assert!(over.remove(&dir.join("a")).is_err());
        over.rename(&dir.join("b"), &dir.join("e")).unwrap();
        let c = over.open(&dir.join("c"), OpenMode::Write).unwrap();
        c.write_all_at(b"xx", 1).unwrap();
        assert!(over.open(&dir.join("c"), OpenMode::CreateNew).is_err());
        over.open(&dir.join("f"), OpenMode::Truncate).unwrap();
        over.link(&dir.join("a"), &dir.join("g"));
        assert_eq!(over.list(dir).unwrap(), ["c", "e", "f", "g"]);
        assert_eq!((read("a"), read("b")), (None, None));
        assert_eq!(read("c").unwrap(), b"cxx");
        assert_eq!(read("e").unwrap(), b"b");
        assert_eq!(read("g").unwrap(), b"a");
        let made = dir.join("made");
        assert!(over.list(&made).is_err());
        over.create_dir_all(&made).unwrap();
        assert!(over.list(&made).unwrap().is_empty());
        assert_eq!(below.list(dir).unwrap(), ["a", "b", "c"]);
        assert_eq!(below.read(&dir.join("c")).unwrap(), b"c");
    }
}
