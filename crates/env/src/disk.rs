//! The disk as the log needs it: positioned reads and writes, data and directory syncs, rename, and a directory lock.
//!
//! Durability is what it is under POSIX, no more: a write is durable after [`DiskFile::sync_data`], a name after
//! [`Disk::sync_dir`] of its directory, and neither before. [`crate::MemDisk`] takes this literally at a power cut.
//!
//! Left out on purpose: memory maps, direct I/O and asynchronous I/O. The log writes one buffer per group and waits for it.

use std::io;
use std::path::Path;
use std::sync::Arc;

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// An existing file, to read.
    Read,
    /// An existing file, to read and write.
    Write,
    /// A new file, to read and write; an existing one is an error.
    CreateNew,
    /// To read and write; created, and emptied if it was there.
    Truncate,
}

/// A file system, as far as we need one. Paths are given whole.
pub trait Disk: Send + Sync {
    /// Opens a file. One that is made is for the owner only.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>>;

    /// Renames a file, replacing what bore the new name. Durable after [`Disk::sync_dir`].
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file. Durable after [`Disk::sync_dir`].
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Names (not paths) of what lies in the directory, sorted.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Takes from everybody but the owner what rights they have on the directory and on what lies in it, at any depth. How many files and
    /// directories were open to others; what belongs to another user is left as it is, but for the directory itself, which is an error.
    fn make_private(&self, _dir: &Path) -> io::Result<usize> {
        Ok(0)
    }

    /// Creates the directory and those above it, for the owner only; nothing happens when it is there.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;

    /// Makes the names in `dir` durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Bytes that can still be written to the file system of this directory, as far as it says.
    fn room(&self, _dir: &Path) -> io::Result<u64> {
        Ok(u64::MAX)
    }

    /// Takes the advisory lock of a directory, held until the result is dropped or the process ends. Fails at once, with
    /// [`io::ErrorKind::WouldBlock`], while anyone else holds it.
    fn lock_dir(&self, dir: &Path) -> io::Result<DirLock>;

    /// Whole content of a file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let file = self.open(path, OpenMode::Read)?;
        let len = usize::try_from(file.len()?).map_err(io::Error::other)?;
        let mut content = vec![0; len];
        file.read_exact_at(&mut content, 0)?;
        Ok(content)
    }
}

/// Whether the process, or the machine, has too many files open: nothing was done, and it may be tried again.
pub fn is_out_of_files(e: &io::Error) -> bool {
    use rustix::io::Errno;
    let out = [Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error);
    e.raw_os_error().is_some_and(|n| out.contains(&n))
}

/// Raises the limit of open files as far as this process may; how many that are, where there is a limit.
pub fn raise_open_files() -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => maximum,
        Err(_) => current,
    }
}

/// A held directory lock.
pub struct DirLock {
    _held: Box<dyn Send + Sync>,
}

impl DirLock {
    /// A lock that is released when `held` is dropped.
    pub fn new(held: impl Send + Sync + 'static) -> DirLock {
        DirLock {
            _held: Box::new(held),
        }
    }
}

/// An open file. All positions are bytes from its start.
pub trait DiskFile: Send + Sync {
    /// Reads at most `buf.len()` bytes; fewer near the end, 0 at it.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes at most `buf.len()` bytes and says how many; may be fewer.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize>;

    /// Makes written data durable, and the length if it changed (`fdatasync`). After an error the state of the file on
    /// disk is unknown and a second call proves nothing.
    fn sync_data(&self) -> io::Result<()>;

    /// Length in bytes.
    fn len(&self) -> io::Result<u64>;

    /// Whether the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Sets the length; new bytes read as zero.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Reads exactly `buf.len()` bytes or fails with [`io::ErrorKind::UnexpectedEof`].
    fn read_exact_at(&self, mut buf: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buf.is_empty() {
            match self.read_at(buf, offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => {
                    buf = &mut buf[n..];
                    offset += n as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Writes all of `buf`, however many writes that takes.
    fn write_all_at(&self, mut buf: &[u8], mut offset: u64) -> io::Result<()> {
        while !buf.is_empty() {
            match self.write_at(buf, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    buf = &buf[n..];
                    offset += n as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Writes zeros over `[from, to)`, so that blocks are allocated and later writes there change no metadata. Nobody else writes
    /// through this handle meanwhile.
    fn zero_fill(&self, from: u64, to: u64) -> io::Result<()> {
        const CHUNK: usize = 1 << 20;
        let zeros = vec![0; CHUNK.min(usize::try_from(to.saturating_sub(from)).unwrap_or(CHUNK))];
        let mut at = from;
        while at < to {
            let n = zeros.len().min(usize::try_from(to - at).unwrap_or(CHUNK));
            self.write_all_at(&zeros[..n], at)?;
            at += n as u64;
        }
        Ok(())
    }
}
