//! Words of a file that several processes map: the memory that a primary and its replicas on one host share (`base::region`, the log's ring).
//!
//! Both sides map the same pages, writable, and touch them as `AtomicU64` only; a store of one is a load of the other, ordered
//! as between threads, since atomics are a property of memory and not of processes.
//!
//! Left out on purpose: growing. The file has its length when it is mapped and keeps it.

use base::region::{WORDS, Words};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::fs::File;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// Bytes of a region's file.
pub const BYTES: usize = WORDS * size_of::<AtomicU64>();

/// See the head of the file.
pub struct MappedWords {
    first: NonNull<AtomicU64>,
    /// Words.
    count: usize,
}

// SAFETY: it owns its mapping and gives out shared references to atomics only.
unsafe impl Send for MappedWords {}
// SAFETY: as above.
unsafe impl Sync for MappedWords {}

impl MappedWords {
    /// Maps a region's file ([`BYTES`] long), which is open for reading and writing.
    pub fn new(file: &File) -> io::Result<MappedWords> {
        MappedWords::of(file, WORDS)
    }

    /// Maps a file of exactly so many words, at least one, which is open for reading and writing.
    pub fn of(file: &File, count: usize) -> io::Result<MappedWords> {
        let bytes = count * size_of::<AtomicU64>();
        if file.metadata()?.len() != bytes as u64 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the file has not the length that was said",
            ));
        }
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: the kernel chooses where, so no mapping that is there is replaced. The file is as long as the mapping; who could
        // make it shorter (its name lies where only this user writes) would end the process by a signal, not by wrong memory.
        let first = unsafe { mmap(std::ptr::null_mut(), bytes, access, flags, file, 0) }?;
        let first = NonNull::new(first.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(MappedWords { first, count })
    }
}

impl Words for MappedWords {
    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is `count` words long, begins at a page, so it is aligned, and lives until the drop, which no borrow survives. Any bits
        // are a u64. All accesses in all processes are atomic, of the same size, at the same alignment.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }
}

impl Drop for MappedWords {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length, and no borrow is left.
        _ = unsafe {
            munmap(
                self.first.as_ptr().cast(),
                self.count * size_of::<AtomicU64>(),
            )
        };
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn two_mappings_of_a_file_are_one_memory() {
        let path = std::env::temp_dir().join(format!("canon-mapped-{}", std::process::id()));
        let mut open = File::options();
        let open = open.read(true).write(true).create(true).truncate(false);
        let file = open.open(&path).expect("a file");
        assert!(MappedWords::new(&file).is_err(), "it is empty");
        assert!(MappedWords::of(&file, 0).is_err(), "nothing to map");
        file.set_len(16).expect("a length");
        assert!(MappedWords::of(&file, 3).is_err(), "it is shorter");
        assert_eq!(MappedWords::of(&file, 2).expect("mapped").words().len(), 2);
        file.set_len(BYTES as u64).expect("a length");
        let (a, b) = (MappedWords::new(&file), MappedWords::new(&file));
        let (a, b) = (a.expect("mapped"), b.expect("mapped"));
        std::fs::remove_file(&path).expect("removed");
        for word in [0, WORDS - 1] {
            a.words()[word].store(7, Ordering::SeqCst);
            assert_eq!(b.words()[word].load(Ordering::SeqCst), 7);
        }
        drop(a);
        assert_eq!(b.words()[0].load(Ordering::SeqCst), 7);
    }
}
