//! Any disk, made to fail on demand: short writes, sync errors, a full disk, and an end of the world at a chosen operation.
//!
//! Every operation that changes something is counted. [`FaultyDisk::crash_at`] makes the nth one (and everything after it)
//! fail as if the process had died in the middle of it: a test that runs once to learn how many there are, then once per
//! operation, has crashed at every point. What a power cut then keeps is [`crate::MemDisk`]'s business.
//!
//! Left out on purpose: bit rot. A test that wants it flips bits in the bytes itself.

use crate::disk::{DirLock, Disk, DiskFile, OpenMode};
use parking_lot::Mutex;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The operations that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Open,
    Read,
    Write,
    SyncData,
    SetLen,
    Rename,
    Remove,
    SyncDir,
}

/// What happens instead of the operation.
#[derive(Clone, Copy, Debug)]
pub enum Action {
    /// It fails and does nothing.
    Error(io::ErrorKind),
    /// The same with an error number of the operating system.
    Os(i32),
    /// A write takes this many bytes and says so.
    Short(usize),
    /// A write takes this many bytes and then fails.
    ShortThenError(usize, io::ErrorKind),
}

/// One planned fault: the `nth` (from 1) operation `op` on a path containing `path`; it happens once.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Which operation.
    pub op: Op,
    /// Part of the path; empty matches all.
    pub path: String,
    /// Which occurrence, from 1.
    pub nth: u64,
    /// What happens.
    pub action: Action,
}

/// A disk around another. Clones share the plan.
#[derive(Clone)]
pub struct FaultyDisk {
    inner: Arc<dyn Disk>,
    plan: Arc<Mutex<Plan>>,
}

type Refused = Arc<dyn Fn(Op, &Path) -> bool + Send + Sync>;

#[derive(Default)]
struct Plan {
    faults: Vec<Fault>,
    /// Bytes that may still be written before the disk is full.
    room: Option<u64>,
    /// For what there is none.
    refused: Option<Refused>,
    /// Changing operations so far.
    changes: u64,
    crash_at: Option<u64>,
    crashed: bool,
}

impl FaultyDisk {
    /// No faults yet.
    pub fn new(inner: Arc<dyn Disk>) -> FaultyDisk {
        FaultyDisk {
            inner,
            plan: Arc::default(),
        }
    }

    /// Plans a fault.
    pub fn inject(&self, fault: Fault) {
        assert!(fault.nth > 0, "occurrences are counted from 1");
        self.plan.lock().faults.push(fault);
    }

    /// Forgets planned faults that have not happened.
    pub fn clear(&self) {
        self.plan.lock().faults.clear();
    }

    /// How many planned faults have not happened yet.
    pub fn planned(&self) -> usize {
        self.plan.lock().faults.len()
    }

    /// After `room` more written bytes, writes fail with [`io::ErrorKind::StorageFull`]; `None` gives room again.
    pub fn set_room(&self, room: Option<u64>) {
        self.plan.lock().room = room;
    }

    /// Operations of which this is true fail with [`io::ErrorKind::StorageFull`], until another call. The path is the one that the file was opened
    /// with. Asked before each, it may also wait for something.
    pub fn refuse(&self, these: impl Fn(Op, &Path) -> bool + Send + Sync + 'static) {
        self.plan.lock().refused = Some(Arc::new(these));
    }

    /// Changing operations (all but opening to read, reading and listing) so far.
    pub fn changes(&self) -> u64 {
        self.plan.lock().changes
    }

    /// The `nth` changing operation from the start, counted from 1, is the last: it happens by half (a write) or not at
    /// all, and it and everything after it fails.
    pub fn crash_at(&self, nth: u64) {
        self.plan.lock().crash_at = Some(nth);
    }

    /// Whether the planned crash has happened.
    pub fn crashed(&self) -> bool {
        self.plan.lock().crashed
    }

    /// Passes one operation. `Ok(None)` does it whole; `Ok(Some(n))` writes n bytes only; `Err((n, e))` writes n and fails.
    fn pass(&self, op: Op, path: &Path, len: usize) -> Result<Option<usize>, (usize, io::Error)> {
        let refused = self.plan.lock().refused.clone();
        if refused.is_some_and(|these| these(op, path)) {
            return Err((0, io::ErrorKind::StorageFull.into()));
        }
        let mut plan = self.plan.lock();
        if plan.crashed {
            return Err((0, crash()));
        }
        if op != Op::Read {
            plan.changes += 1;
            if plan.crash_at == Some(plan.changes) {
                plan.crashed = true;
                return Err((len / 2, crash()));
            }
        }
        let text = path.to_string_lossy();
        let hit = plan.faults.iter_mut().position(|f| {
            let applies = f.op == op && text.contains(&f.path);
            f.nth -= u64::from(applies);
            applies && f.nth == 0
        });
        if let Some(hit) = hit {
            return match plan.faults.remove(hit).action {
                Action::Error(kind) => Err((0, kind.into())),
                Action::Os(number) => Err((0, io::Error::from_raw_os_error(number))),
                Action::Short(n) => Ok(Some(n.min(len))),
                Action::ShortThenError(n, kind) => Err((n.min(len), kind.into())),
            };
        }
        if op == Op::Write
            && let Some(room) = plan.room
        {
            let n = usize::try_from(room).unwrap_or(usize::MAX).min(len);
            plan.room = Some(room - n as u64);
            return match n {
                0 if len > 0 => Err((0, io::ErrorKind::StorageFull.into())),
                n if n < len => Ok(Some(n)),
                _ => Ok(None),
            };
        }
        Ok(None)
    }

    /// Passes an operation that happens whole or not at all.
    fn pass_whole(&self, op: Op, path: &Path) -> io::Result<()> {
        self.pass(op, path, 0).map(|_| ()).map_err(|(_, e)| e)
    }

    fn alive(&self) -> io::Result<()> {
        if self.plan.lock().crashed {
            Err(crash())
        } else {
            Ok(())
        }
    }
}

fn crash() -> io::Error {
    io::Error::other("crashed here by a test")
}

impl Disk for FaultyDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        if mode == OpenMode::Read {
            self.alive()?;
        } else {
            self.pass_whole(Op::Open, path)?;
        }
        let inner = self.inner.open(path, mode)?;
        Ok(Arc::new(FaultyFile {
            inner,
            disk: self.clone(),
            path: path.to_owned(),
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.pass_whole(Op::Rename, from)?;
        self.inner.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.pass_whole(Op::Remove, path)?;
        self.inner.remove(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.alive()?;
        self.inner.list(dir)
    }

    fn make_private(&self, dir: &Path) -> io::Result<usize> {
        self.inner.make_private(dir)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.alive()?;
        self.inner.create_dir_all(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.pass_whole(Op::SyncDir, dir)?;
        self.inner.sync_dir(dir)
    }

    fn room(&self, dir: &Path) -> io::Result<u64> {
        self.alive()?;
        let room = self.plan.lock().room;
        room.map_or_else(|| self.inner.room(dir), Ok)
    }

    fn lock_dir(&self, dir: &Path) -> io::Result<DirLock> {
        self.alive()?;
        self.inner.lock_dir(dir)
    }
}

struct FaultyFile {
    inner: Arc<dyn DiskFile>,
    disk: FaultyDisk,
    path: PathBuf,
}

impl DiskFile for FaultyFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.disk.pass_whole(Op::Read, &self.path)?;
        self.inner.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        match self.disk.pass(Op::Write, &self.path, buf.len()) {
            Ok(None) => self.inner.write_at(buf, offset),
            Ok(Some(n)) => self.inner.write_at(&buf[..n], offset),
            Err((n, error)) => {
                if n > 0 {
                    self.inner.write_all_at(&buf[..n], offset)?;
                }
                Err(error)
            }
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        self.disk.pass_whole(Op::SyncData, &self.path)?;
        self.inner.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        self.disk.alive()?;
        self.inner.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.disk.pass_whole(Op::SetLen, &self.path)?;
        self.inner.set_len(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem_disk::MemDisk;

    fn disk() -> (FaultyDisk, PathBuf) {
        let mem = MemDisk::new();
        mem.create_dir_all(Path::new("/d")).unwrap();
        (FaultyDisk::new(Arc::new(mem)), PathBuf::from("/d/a"))
    }

    #[test]
    fn a_full_disk_takes_what_fits_and_goes_on_when_there_is_room() {
        let (disk, path) = disk();
        let file = disk.open(&path, OpenMode::CreateNew).unwrap();
        disk.set_room(Some(3));
        assert_eq!(
            file.write_all_at(b"hello", 0).unwrap_err().kind(),
            io::ErrorKind::StorageFull
        );
        assert_eq!(disk.read(&path).unwrap(), b"hel");
        disk.set_room(None);
        file.write_all_at(b"hello", 0).unwrap();
        assert_eq!(disk.read(&path).unwrap(), b"hello");
    }

    #[test]
    fn the_named_operation_fails_once() {
        let (disk, path) = disk();
        let file = disk.open(&path, OpenMode::CreateNew).unwrap();
        let fault = |op, nth, action| {
            disk.inject(Fault {
                op,
                path: "a".into(),
                nth,
                action,
            })
        };
        fault(Op::SyncData, 2, Action::Error(io::ErrorKind::Other));
        fault(Op::Write, 1, Action::Short(1));
        file.sync_data().unwrap();
        file.sync_data().unwrap_err();
        file.sync_data().unwrap();
        assert_eq!(file.write_at(b"xyz", 0).unwrap(), 1);
        assert_eq!(disk.planned(), 0);
    }

    #[test]
    fn nothing_works_after_the_crash() {
        let (disk, path) = disk();
        let file = disk.open(&path, OpenMode::CreateNew).unwrap();
        disk.crash_at(2);
        file.write_all_at(b"four", 0).unwrap_err();
        assert!(disk.crashed());
        file.sync_data().unwrap_err();
        disk.list(Path::new("/d")).unwrap_err();
        assert_eq!(disk.inner.read(&path).unwrap(), b"fo");
    }
}
