//! What was set aside, read back: which files there are, their groups, and what the commits in them wrote over.
//!
//! ```text
//! DIR/set-aside/TERM-EPOCH.ORDER.log     groups, one after the other, as they stood in the log
//! DIR/set-aside/TERM-EPOCH.ORDER.base    in the format of a checkpoint: the schema at EPOCH.ORDER, and of each row that the groups write
//!                                        the version that stood there then; a row without an entry was not there
//! DIR/set-aside/TERM-EPOCH.ORDER.ckpt    a whole checkpoint, where the log no longer reached back to EPOCH.ORDER
//! ```
//! Up to EPOCH.ORDER the cluster's history and the lost one are the same. So the versions in the base are those that the first lost write
//! of each row followed, and who compares a row of the cluster with its base knows whether it has changed since.
//! The base can be made only before the log is cut: later nobody knows any more how the rows stood.
//!
//! These files are read without the directory's lock: they are written once, under another name first, and never changed.
//!
//! Left out on purpose: what the bytes mean (`node::aside`), and what to do with them (`canon set-aside`).

use crate::checkpoint::{CheckpointReader, CheckpointWriter};
use crate::data_dir::DataDir;
use crate::error::{Error, Result};
use crate::group::{GROUP_HEADER, Group, GroupHeader};
use crate::terms::parse_position;
use base::Position;
use env::{Disk, DiskFile, OpenMode};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Which history left the other one, and where. Ordered by term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AsideName {
    /// Term that began elsewhere.
    pub term: u64,
    /// Last position that both histories have.
    pub after: Position,
}

impl AsideName {
    /// Reads `TERM-EPOCH.ORDER`.
    pub fn parse(text: &str) -> Option<AsideName> {
        let (term, after) = text.split_once('-')?;
        Some(AsideName {
            term: term.parse().ok()?,
            after: parse_position(after)?,
        })
    }
}

impl fmt::Display for AsideName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.term, self.after)
    }
}

/// The files of one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AsideFiles {
    pub name: AsideName,
    pub log: Option<PathBuf>,
    pub base: Option<PathBuf>,
    pub checkpoint: Option<PathBuf>,
}

/// All that was set aside in a data directory.
pub fn list(disk: &dyn Disk, data: &Path) -> Result<Vec<AsideFiles>> {
    let dir = data.join("set-aside");
    let names = match disk.list(&dir) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        names => names.map_err(|e| Error::io("listing", &dir, e))?,
    };
    let mut all: Vec<AsideFiles> = Vec::new();
    for file in &names {
        let Some((stem, kind)) = file.rsplit_once('.') else {
            continue;
        };
        let Some(name) = AsideName::parse(stem) else {
            continue;
        };
        let at = all.iter().position(|a| a.name == name);
        let at = at.unwrap_or_else(|| {
            all.push(AsideFiles {
                name,
                log: None,
                base: None,
                checkpoint: None,
            });
            all.len() - 1
        });
        let path = Some(dir.join(file));
        match kind {
            "log" => all[at].log = path,
            "base" => all[at].base = path,
            "ckpt" => all[at].checkpoint = path,
            _ => {}
        }
    }
    all.sort_by_key(|a| a.name);
    Ok(all)
}

/// Reads the groups of a file that was set aside, in their order.
pub struct AsideGroups {
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    at: u64,
    len: u64,
}

impl AsideGroups {
    /// From the first.
    pub fn open(disk: &dyn Disk, path: &Path) -> Result<AsideGroups> {
        let failed = |e| Error::io("opening", path, e);
        let file = disk.open(path, OpenMode::Read).map_err(failed)?;
        let len = file.len().map_err(failed)?;
        Ok(AsideGroups {
            file,
            path: path.to_owned(),
            at: 0,
            len,
        })
    }

    /// The next one; none at the end. `Corrupt` says where the file is damaged.
    pub fn next_group(&mut self) -> Result<Option<Group>> {
        if self.at == self.len {
            return Ok(None);
        }
        let corrupt = |reason: &str| Error::corrupt(&self.path, self.at, reason);
        let cut_short = "the group is cut short";
        let left = self.len - self.at;
        if left < GROUP_HEADER {
            return Err(corrupt(cut_short));
        }
        let mut head = [0; GROUP_HEADER as usize];
        let read = |buf: &mut [u8]| {
            let read = self.file.read_exact_at(buf, self.at);
            read.map_err(|e| Error::io("reading", &self.path, e))
        };
        read(&mut head)?;
        let (header, _) = GroupHeader::decode(&head).map_err(corrupt)?;
        if header.len() > left {
            return Err(corrupt(cut_short));
        }
        let mut bytes = vec![0; header.len() as usize];
        read(&mut bytes)?;
        let group = Group::from_bytes(bytes).map_err(corrupt)?;
        self.at += header.len();
        Ok(Some(group))
    }
}

impl DataDir {
    /// Begins the base of what is set aside under this name; finished, it is durable. It ends at the position where the histories part.
    pub fn begin_base(&self, name: AsideName) -> Result<CheckpointWriter> {
        let path = self.path().join("set-aside").join(format!("{name}.base"));
        let cluster = self.cluster();
        CheckpointWriter::create_as(self.disk.clone(), path, cluster, 0, name.after)
    }

    /// The files of what was set aside here under this name.
    pub fn aside_files(&self, name: AsideName) -> Result<Option<AsideFiles>> {
        let all = list(&*self.disk, self.path())?;
        Ok(all.into_iter().find(|a| a.name == name))
    }

    /// Groups of a file that was set aside here.
    pub fn aside_groups(&self, path: &Path) -> Result<AsideGroups> {
        AsideGroups::open(&*self.disk, path)
    }

    /// A file in the format of a checkpoint that was set aside here.
    pub fn aside_checkpoint(&self, path: &Path) -> Result<CheckpointReader> {
        CheckpointReader::open(&*self.disk, path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        let name = AsideName {
            term: 6,
            after: Position::new(1, 17),
        };
        assert_eq!(name.to_string(), "6-1.17");
        assert_eq!(AsideName::parse("6-1.17"), Some(name));
        for other in ["6", "x-1.17", "6-1", "6-1.x", "6-1.99999999999", ""] {
            assert_eq!(AsideName::parse(other), None, "{other}");
        }
    }
}
