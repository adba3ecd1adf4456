//! The operating system's files.
//!
//! Files and directories are made for the owner only (0600, 0700), whatever the umask: rows, passwords' verifiers and the log of both are
//! nobody else's to read.
//!
//! Long runs of zeros go around the page cache where the file system can do that: they are not read again, and copying them into the
//! cache was a tenth of a processor at the pace of a busy log.

use crate::disk::{DirLock, Disk, DiskFile, OpenMode};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

/// Name of the lock file inside a locked directory.
pub const LOCK_FILE: &str = "canon.lock";

/// The file system of the machine.
pub struct OsDisk;

/// Rights on files and directories that are made.
const FILE_MODE: u32 = 0o600;
const DIR_MODE: u32 = 0o700;
/// The rights of all but the owner.
const OTHERS: u32 = 0o077;

/// Takes the rights of others on a file or directory; how many had some.
fn tighten(path: &Path, metadata: &Metadata) -> io::Result<usize> {
    let mode = metadata.mode();
    if mode & OTHERS == 0 || !(metadata.is_dir() || metadata.is_file()) {
        return Ok(0);
    }
    fs::set_permissions(path, Permissions::from_mode(mode & 0o7777 & !OTHERS))?;
    Ok(1)
}

impl Disk for OsDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true).mode(FILE_MODE);
        match mode {
            OpenMode::Read => &mut options,
            OpenMode::Write => options.write(true),
            OpenMode::CreateNew => options.write(true).create_new(true),
            OpenMode::Truncate => options.write(true).create(true).truncate(true),
        };
        Ok(Arc::new(OsFile(options.open(path)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(DIR_MODE).create(dir)
    }

    fn make_private(&self, dir: &Path) -> io::Result<usize> {
        let metadata = fs::metadata(dir)?;
        let mut changed = tighten(dir, &metadata)?;
        let owner = metadata.uid();
        let mut todo = vec![dir.to_owned()];
        // Links may lead back.
        let mut seen = vec![(metadata.dev(), metadata.ino())];
        while let Some(dir) = todo.pop() {
            for entry in fs::read_dir(dir)? {
                let path = entry?.path();
                // What a link leads to is looked at, so that a log on another disk is private, too.
                let metadata = match fs::metadata(&path) {
                    Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                    m => m?,
                };
                if metadata.uid() != owner {
                    continue;
                }
                changed += tighten(&path, &metadata)?;
                let name = (metadata.dev(), metadata.ino());
                if metadata.is_dir() && !seen.contains(&name) {
                    seen.push(name);
                    todo.push(path);
                }
            }
        }
        Ok(changed)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn room(&self, dir: &Path) -> io::Result<u64> {
        let all = rustix::fs::statvfs(dir)?;
        // One that does not count its blocks says nothing.
        Ok(match all.f_blocks {
            0 => u64::MAX,
            _ => all.f_bavail.saturating_mul(all.f_frsize),
        })
    }

    fn lock_dir(&self, dir: &Path) -> io::Result<DirLock> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(FILE_MODE)
            .open(dir.join(LOCK_FILE))?;
        match file.try_lock() {
            Ok(()) => Ok(DirLock::new(file)),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(e)) => Err(e),
        }
    }
}

struct OsFile(File);

/// Bytes written around the page cache begin and end at multiples of this.
const BLOCK: u64 = 4096;

#[repr(align(4096))]
struct Zeros([u8; 256 << 10]);

static ZEROS: Zeros = Zeros([0; 256 << 10]);

impl OsFile {
    /// Whether writes go around the page cache from now on; never, where the file system cannot do that.
    fn go_around(&self, on: bool) -> bool {
        let Ok(flags) = fcntl_getfl(&self.0) else {
            return false;
        };
        let mut wanted = flags;
        wanted.set(OFlags::DIRECT, on);
        fcntl_setfl(&self.0, wanted).is_ok()
    }

    fn write_zeros(&self, from: u64, to: u64) -> io::Result<()> {
        for at in (from..to).step_by(ZEROS.0.len()) {
            let n = ZEROS.0.len().min((to - at) as usize);
            self.write_all_at(&ZEROS.0[..n], at)?;
        }
        Ok(())
    }
}

impl DiskFile for OsFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        self.0.write_at(buf, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn zero_fill(&self, from: u64, to: u64) -> io::Result<()> {
        let whole = from.is_multiple_of(BLOCK) && to.is_multiple_of(BLOCK);
        if whole && self.go_around(true) {
            let written = self.write_zeros(from, to);
            self.go_around(false);
            // Some file systems find out only now that they cannot.
            if !matches!(&written, Err(e) if e.kind() == io::ErrorKind::InvalidInput) {
                return written;
            }
        }
        self.write_zeros(from, to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_go_around_the_page_cache_and_what_follows_does_not() {
        let path = std::env::temp_dir().join(format!("env-os-around-{}", std::process::id()));
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(true);
        let file = OsFile(options.open(&path).unwrap());
        let around = || fcntl_getfl(&file.0).unwrap().contains(OFlags::DIRECT);
        assert!(!around());
        let can = file.go_around(true);
        assert_eq!(around(), can, "where the file system can do that");
        file.go_around(false);
        assert!(!around());
        file.zero_fill(0, 64 * BLOCK).unwrap();
        assert!(!around());
        file.write_all_at(b"hello", 10).unwrap();
        assert_eq!(file.len().unwrap(), 64 * BLOCK);
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn what_is_made_is_private_and_what_was_open_is_closed() {
        let root = std::env::temp_dir().join(format!("env-os-private-{}", std::process::id()));
        let mode = |p: &Path| fs::metadata(p).unwrap().mode() & 0o777;
        let (disk, dir) = (OsDisk, root.join("a/b"));
        disk.create_dir_all(&dir).unwrap();
        let file = dir.join("file");
        disk.open(&file, OpenMode::CreateNew).unwrap();
        disk.open(&dir.join("other"), OpenMode::Truncate).unwrap();
        drop(disk.lock_dir(&dir).unwrap());
        for d in [&root, &root.join("a"), &dir] {
            assert_eq!(mode(d), DIR_MODE, "{}", d.display());
        }
        for name in ["file", "other", LOCK_FILE] {
            assert_eq!(mode(&dir.join(name)), FILE_MODE, "{name}");
        }
        assert_eq!(disk.make_private(&root).unwrap(), 0);
        // As an older build left them, the log on another disk.
        let far = root.with_extension("far");
        fs::create_dir_all(far.join("wal")).unwrap();
        std::os::unix::fs::symlink(&far, root.join("link")).unwrap();
        std::os::unix::fs::symlink(&root, root.join("loop")).unwrap();
        std::os::unix::fs::symlink("nowhere", root.join("gone")).unwrap();
        for p in [&dir, &file, &far, &far.join("wal")] {
            fs::set_permissions(p, Permissions::from_mode(0o755)).unwrap();
        }
        assert_eq!(disk.make_private(&root).unwrap(), 4);
        for p in [&dir, &file, &far, &far.join("wal")] {
            assert_eq!(mode(p), 0o700, "{}", p.display());
        }
        assert_eq!(disk.make_private(&root).unwrap(), 0);
        fs::remove_dir_all(&root).unwrap();
        fs::remove_dir_all(&far).unwrap();
    }

    #[test]
    fn files_names_and_the_lock() {
        let dir = std::env::temp_dir().join(format!("env-os-disk-{}", std::process::id()));
        let disk = OsDisk;
        disk.create_dir_all(&dir).unwrap();
        let (a, b) = (dir.join("a"), dir.join("b"));
        let file = disk.open(&a, OpenMode::CreateNew).unwrap();
        assert!(disk.open(&a, OpenMode::CreateNew).is_err());
        file.write_all_at(&[7; 9000], 0).unwrap();
        file.zero_fill(0, 2_867_200).unwrap();
        file.zero_fill(2_867_200, 3_000_000).unwrap();
        file.write_all_at(b"hello", 10).unwrap();
        file.sync_data().unwrap();
        disk.rename(&a, &b).unwrap();
        disk.sync_dir(&dir).unwrap();
        let content = disk.read(&b).unwrap();
        assert_eq!(
            (content.len(), &content[8..16]),
            (3_000_000, &b"\0\0hello\0"[..])
        );
        assert!(content[16..].iter().all(|b| *b == 0));

        let held = disk.lock_dir(&dir).unwrap();
        assert_eq!(
            disk.lock_dir(&dir).err().unwrap().kind(),
            io::ErrorKind::WouldBlock
        );
        drop(held);
        drop(disk.lock_dir(&dir).unwrap());

        assert!(disk.room(&dir).unwrap() > 0);
        disk.remove(&b).unwrap();
        assert_eq!(disk.list(&dir).unwrap(), [LOCK_FILE]);
        fs::remove_dir_all(&dir).unwrap();
    }
}
