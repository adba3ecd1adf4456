//! An archive as a disk that is only read, so that what reads directories (`canon verify`) reads archives in any place.
//!
//! Names below the root are names of objects. Nothing else is there. Writes are refused; a reader that needs some puts an `env::Overlay` above.

use crate::archive::Objects;
use env::{DirLock, Disk, DiskFile, OpenMode};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// See the head of the file.
pub struct ArchiveDisk {
    objects: Arc<dyn Objects>,
    root: PathBuf,
}

struct Object {
    objects: Arc<dyn Objects>,
    name: String,
    len: u64,
}

fn read_only<T>() -> io::Result<T> {
    Err(ErrorKind::ReadOnlyFilesystem.into())
}

impl ArchiveDisk {
    /// The objects appear below `root`, which is part of every path.
    pub fn new(objects: Arc<dyn Objects>, root: &Path) -> ArchiveDisk {
        let root = root.to_owned();
        ArchiveDisk { objects, root }
    }

    fn name(&self, path: &Path) -> io::Result<String> {
        let below = path.strip_prefix(&self.root);
        let below = below.map_err(|_| io::Error::from(ErrorKind::NotFound))?;
        let name = below.to_str().ok_or(ErrorKind::InvalidInput)?;
        Ok(name.to_owned())
    }
}

impl Disk for ArchiveDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        if mode != OpenMode::Read {
            return read_only();
        }
        let (objects, name) = (self.objects.clone(), self.name(path)?);
        let len = objects.len(&name)?;
        Ok(Arc::new(Object { objects, name, len }))
    }

    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        read_only()
    }

    fn remove(&self, _: &Path) -> io::Result<()> {
        read_only()
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let folder = self.name(dir)?;
        let mut names = self.objects.list(&folder)?;
        names.extend(self.objects.folders(&folder)?);
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    fn create_dir_all(&self, _: &Path) -> io::Result<()> {
        read_only()
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn lock_dir(&self, _: &Path) -> io::Result<DirLock> {
        Ok(DirLock::new(()))
    }
}

impl DiskFile for Object {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.objects.read(&self.name, buf, offset)
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<usize> {
        read_only()
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.len)
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        read_only()
    }
}
