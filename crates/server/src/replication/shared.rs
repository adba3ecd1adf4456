//! A region in memory that nodes on one host share: its words are read without a message.
//!
//! ```text
//! primary   /dev/shm/canon-region-NAME, mapped, locked (flock) while its process lives
//! replica   is told the path and the name on its connection, maps the same file, finds the name in it ──▶ loads
//! ```
//! Chosen by itself when the replica can open the file and finds in it the name that it was told; another host's file of that
//! path has another. The connection stays: when it ends, the mapping goes.
//!
//! **A dead primary answers nothing.** Its words stay in memory when its process is gone, and its successor may have acknowledged more.
//! So one of the words is a mark that the kernel strikes out with the process (`store::Alive`), and after each look the reader looks at it. One
//! that has handed over says so in its words. The lock is for whoever removes files that a killed process left.
//!
//! The file of a log ring (`log_ring`) is made the same way, by a replica.
//!
//! Left out on purpose: sharing between users (a file is its owner's alone).

use base::region::{ALIVE_WORD, NAME_WORD, Region, WORDS, Words};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use store::{Alive, MAPPED_BYTES, MappedWords, is_marked};

const DIRECTORY: &str = "/dev/shm";
const PREFIX: &str = "canon-region-";
const RING_PREFIX: &str = "canon-ring-";

pub(super) fn open(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).open(path)
}

/// A node's region where others on its host can map it; the file goes when this is dropped.
pub struct Exposed {
    pub name: u64,
    file: Made,
    _alive: Alive,
}

/// A file of ours, locked, that goes with this. (A mapping keeps the lock, too, until it is gone.)
pub(super) struct Made {
    path: PathBuf,
    pub(super) file: File,
}

/// Where the ring of this name is, on the host on which it was made.
pub(super) fn ring_path(name: u64) -> PathBuf {
    Path::new(DIRECTORY).join(format!("{RING_PREFIX}{name:016x}"))
}

impl Made {
    /// So many zeroes.
    pub(super) fn new(path: PathBuf, bytes: usize) -> io::Result<Made> {
        use std::os::unix::fs::OpenOptionsExt;
        let mut options = File::options();
        options.read(true).write(true).create_new(true).mode(0o600);
        let file = options.open(&path)?;
        let mut made = Made { path, file };
        made.file.lock()?;
        // Written, not only made so long: a full file system is found here, not by a signal later.
        made.file.write_all(&vec![0; bytes])?;
        Ok(made)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        _ = std::fs::remove_file(&self.path);
        _ = self.file.unlock();
    }
}

impl Exposed {
    /// Makes one; the region in it. `random`: a name for it.
    pub fn new(random: u64) -> io::Result<(Exposed, Arc<Region>)> {
        remove_left();
        let path = Path::new(DIRECTORY).join(format!("{PREFIX}{random:016x}"));
        let file = Made::new(path, MAPPED_BYTES)?;
        let words = MappedWords::new(&file.file)?;
        words.words()[NAME_WORD as usize].store(random, Ordering::SeqCst);
        let exposed = Exposed {
            name: random,
            _alive: Alive::mark(MappedWords::new(&file.file)?, ALIVE_WORD)?,
            file,
        };
        Ok((exposed, Arc::new(Region::over(Box::new(words)))))
    }

    pub fn path(&self) -> &Path {
        &self.file.path
    }
}

/// Files of processes that were killed: nobody holds their locks.
pub(super) fn remove_left() {
    let Ok(all) = std::fs::read_dir(DIRECTORY) else {
        return;
    };
    for entry in all.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let ours = [PREFIX, RING_PREFIX].iter().any(|p| name.starts_with(p));
        // It is locked before anything is written to it: one that is empty may be about to be.
        let begun = entry.metadata().is_ok_and(|m| m.len() > 0);
        if ours && begun && open(&entry.path()).is_ok_and(|f| f.try_lock().is_ok()) {
            _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Another node's region, mapped.
pub struct Mapped(MappedWords);

impl Mapped {
    /// Maps the file at this path, if it is the region of this name and its process lives.
    pub fn find(name: u64, path: &str) -> Option<Mapped> {
        let file = open(Path::new(path)).ok().filter(|_| !path.is_empty())?;
        let mapped = Mapped(MappedWords::new(&file).ok()?);
        let found = mapped.words()[NAME_WORD as usize].load(Ordering::SeqCst);
        (found == name && mapped.is_alive()).then_some(mapped)
    }

    /// The words. What was read of them counts if [`Mapped::is_alive`] afterwards.
    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        debug_assert_eq!(self.0.words().len(), WORDS);
        self.0.words()
    }

    /// Whether the process whose region it is lives.
    #[inline]
    pub fn is_alive(&self) -> bool {
        is_marked(&self.words()[ALIVE_WORD as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Position;
    use base::region::{PUBLISHED_WORD, TERM_WORD};

    #[test]
    fn a_file_that_is_not_finished_goes() {
        let path = std::env::temp_dir().join(format!("canon-made-{}", std::process::id()));
        let made = Made::new(path.clone(), 16).expect("made");
        assert!(path.exists());
        // As when it cannot be mapped.
        drop(made);
        assert!(!path.exists());
    }

    #[test]
    fn what_a_killed_process_left_goes_whole_or_not() {
        if !Path::new(DIRECTORY).is_dir() {
            return;
        }
        let path = |n: u64| ring_path(u64::from(std::process::id()) << 32 | 0x2000 | n);
        let held = Made::new(path(0), 100).expect("made");
        std::fs::write(path(1), [0; 100]).expect("written");
        std::fs::write(path(2), []).expect("written");
        // Somebody else may be at it just now.
        let limit = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while path(1).exists() && std::time::Instant::now() < limit {
            remove_left();
        }
        let there = [0, 1, 2].map(|n| path(n).exists());
        drop(held);
        _ = std::fs::remove_file(path(2));
        assert_eq!(there, [true, false, true]);
    }

    #[test]
    fn what_a_primary_publishes_is_read_until_it_is_gone() {
        let name = u64::from(std::process::id()) << 32 | 7;
        if !Path::new(DIRECTORY).is_dir() {
            // Then nothing is shared, which the server says.
            assert!(Exposed::new(name).is_err());
            return;
        }
        let (exposed, region) = Exposed::new(name).expect("made");
        let path = exposed.path().to_str().expect("a path").to_owned();
        assert!(Mapped::find(name + 1, &path).is_none(), "another region");
        assert!(Mapped::find(name, "").is_none());
        let at = Position::new(3, 1);
        region.lead(1, 9, at, || at);
        let mapped = Mapped::find(name, &path).expect("the region");
        let values = || {
            let word = |w: u32| mapped.words()[w as usize].load(Ordering::SeqCst);
            let values = vec![word(TERM_WORD), word(PUBLISHED_WORD)];
            mapped.is_alive().then_some(values)
        };
        assert_eq!(values(), Some(vec![9, at.as_u64()]));
        region.publish(at.next());
        assert_eq!(values(), Some(vec![9, at.next().as_u64()]));
        // The files of others who live are let alone.
        remove_left();
        assert!(exposed.path().exists());
        drop(exposed);
        assert_eq!(values(), None);
        assert!(!Path::new(&path).exists());
    }
}
