//! The terms of a history: who decided what, as text that a person can read.
//!
//! ```text
//! DIR/CANON_TERMS      a line "TERM EPOCH.ORDER" per term, ascending: the term, and the last position before it
//! ```
//! A term begins when a node is promoted: commits above its start are its primary's alone. Two histories that share a term share
//! everything up to where the earlier of the two left it; what one of them holds beyond is its own, and so a node that comes back
//! knows from two short lists what it has to set aside (`replica::ship`).
//!
//! The file is written whole, under another name first, and is durable before a group of a new term is. A directory without one
//! has term 1 from the beginning.
//!
//! `DIR/CANON_SEALED` holds the name of the node to which a primary has handed over: it is durable before that node is told, so
//! that a primary that is started again does not take commits beside its successor. `DIR/CANON_LEASES` says that a primary here has granted read
//! leases: it is durable before the first one is granted, so that a start waits out what it has forgotten.

use crate::data_dir::DataDir;
use crate::error::{Error, Result};
use base::{MAX_TERM, Position};
use env::{Disk, OpenMode};
use parking_lot::Mutex;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) const TERMS_FILE: &str = "CANON_TERMS";

/// Term and start, ascending in both; never empty.
type List = Vec<(u64, Position)>;

pub(crate) struct Terms {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    known: Mutex<List>,
    /// Held by who writes: whether the file may say something else, because writing it has failed.
    unsure: Mutex<bool>,
}

impl Terms {
    pub(crate) fn load(disk: Arc<dyn Disk>, dir: &Path) -> Result<Terms> {
        let path = dir.join(TERMS_FILE);
        let known = match disk.read(&path) {
            Ok(bytes) => parse(&bytes).ok_or_else(|| {
                let wanted = "the file should hold lines 'TERM EPOCH.ORDER' that ascend";
                Error::corrupt(&path, 0, wanted)
            })?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => vec![(1, Position::ZERO)],
            Err(e) => return Err(Error::io("reading", &path, e)),
        };
        Ok(Terms {
            disk,
            dir: dir.to_owned(),
            known: Mutex::new(known),
            unsure: Mutex::default(),
        })
    }

    pub(crate) fn get(&self) -> List {
        self.known.lock().clone()
    }

    /// After an error the file may hold these terms all the same: what was known before is known still, and setting it again writes it.
    pub(crate) fn set(&self, terms: &[(u64, Position)]) -> Result<()> {
        assert!(is_history(terms), "{terms:?} is no history of terms");
        let mut unsure = self.unsure.lock();
        if !*unsure && *self.known.lock() == terms {
            return Ok(());
        }
        // Sessions ask what is known, and do not wait for the disk.
        prepare(&*self.disk, &self.dir, TERMS_FILE, text(terms).as_bytes())?;
        *unsure = true;
        put_in_place(&*self.disk, &self.dir, TERMS_FILE)?;
        *unsure = false;
        *self.known.lock() = terms.to_vec();
        Ok(())
    }
}

const SEALED_FILE: &str = "CANON_SEALED";
const LEASES_FILE: &str = "CANON_LEASES";

impl DataDir {
    /// To whom this primary has handed over; it takes no commits any more.
    pub fn sealed_for(&self) -> Result<Option<String>> {
        let path = self.path().join(SEALED_FILE);
        match self.disk.read(&path) {
            Ok(name) => Ok(Some(String::from_utf8_lossy(&name).into_owned())),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::io("reading", &path, e)),
        }
    }

    /// This primary hands over to this node; durable when it returns. Come before the node is told.
    pub fn seal_for(&self, node: &str) -> Result<()> {
        replace(&*self.disk, self.path(), SEALED_FILE, node.as_bytes())
    }

    /// Whether a primary here has granted read leases.
    pub fn has_lent(&self) -> Result<bool> {
        let path = self.path().join(LEASES_FILE);
        match self.disk.read(&path) {
            Ok(_) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(Error::io("reading", &path, e)),
        }
    }

    /// The primary here grants read leases from now on; durable when it returns.
    pub fn lends(&self) -> Result<()> {
        replace(&*self.disk, self.path(), LEASES_FILE, b"")
    }

    /// It does no more, and those that it has granted are over.
    pub fn lends_no_more(&self) -> Result<()> {
        self.remove(LEASES_FILE)
    }

    /// The node leads no more, or leads again: it follows, or begins a term.
    pub fn unseal(&self) -> Result<()> {
        self.remove(SEALED_FILE)
    }

    fn remove(&self, file: &str) -> Result<()> {
        let path = self.path().join(file);
        match self.disk.remove(&path) {
            Ok(()) => self
                .disk
                .sync_dir(self.path())
                .map_err(|e| Error::sync(self.path(), e)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(e) => Err(Error::io("removal", &path, e)),
        }
    }
}

fn is_history(terms: &[(u64, Position)]) -> bool {
    !terms.is_empty()
        && terms
            .windows(2)
            .all(|w| w[0].0 < w[1].0 && w[0].1 <= w[1].1)
        && terms.last().is_some_and(|t| t.0 <= MAX_TERM)
}

/// A line a term.
pub(crate) fn text(terms: &[(u64, Position)]) -> String {
    terms.iter().map(|(t, p)| format!("{t} {p}\n")).collect()
}

pub(crate) fn parse(bytes: &[u8]) -> Option<List> {
    let line = |line: &str| {
        let (term, start) = line.split_once(' ')?;
        Some((term.parse().ok()?, parse_position(start)?))
    };
    let text = std::str::from_utf8(bytes).ok()?;
    let terms: Option<List> = text.lines().map(line).collect();
    terms.filter(|t| is_history(t))
}

/// Reads `EPOCH.ORDER`.
pub(crate) fn parse_position(text: &str) -> Option<Position> {
    text.parse().ok()
}

/// Writes a small file whole or not at all, durably.
pub(crate) fn replace(disk: &dyn Disk, dir: &Path, name: &str, content: &[u8]) -> Result<()> {
    prepare(disk, dir, name, content)?;
    put_in_place(disk, dir, name)
}

fn temporary(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.tmp"))
}

fn prepare(disk: &dyn Disk, dir: &Path, name: &str, content: &[u8]) -> Result<()> {
    let temporary = temporary(dir, name);
    let file = disk
        .open(&temporary, OpenMode::Truncate)
        .map_err(|e| Error::io("creation", &temporary, e))?;
    file.write_all_at(content, 0)
        .and_then(|()| file.sync_data())
        .map_err(|e| Error::io("writing", &temporary, e))
}

/// After an error the new content may be there or not.
fn put_in_place(disk: &dyn Disk, dir: &Path, name: &str) -> Result<()> {
    let temporary = temporary(dir, name);
    disk.rename(&temporary, &dir.join(name))
        .map_err(|e| Error::io("renaming", &temporary, e))?;
    disk.sync_dir(dir).map_err(|e| Error::sync(dir, e))
}
