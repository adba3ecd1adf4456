//! The data directory: whose it is, which format, who works on it; its log and its checkpoints.
//!
//! ```text
//! DIR/canon.lock         held (advisory) while a process works here
//! DIR/CANON_VERSION      two lines of text: "canon 3" (format of the directory), "cluster " and 32 hex digits
//! DIR/CANON_TERMS        terms of the history (`terms`)
//! DIR/CANON_ANCHOR       how far the log is known to reach (`anchor`)
//! DIR/CANON_SWITCH       there while the history here is replaced or cut (`transfer`)
//! DIR/CANON_HEARD        a newer term than those of the history, when one was heard of (`transfer`)
//! DIR/CANON_DIVERGED     what is here is not all of the cluster's history, and could not be cut back (`transfer`)
//! DIR/CANON_LEASES       a primary here has granted read leases (`terms`)
//! DIR/CANON_LED          what is here may be nowhere else, as this node has led (`transfer`)
//! DIR/CANON_LIVES        where the log ended when a primary went on (`marks`)
//! DIR/CANON_REPLICAS     replicas that have followed, and where they listen (`marks`)
//! DIR/CANON_ACCEPTED     shorter logs that were accepted (`marks`)
//! DIR/wal/               segments (`segment`)
//! DIR/checkpoint/        checkpoints (`checkpoint`)
//! ```
//! `CANON_VERSION` is written last when a directory is made, under another name first: a directory that has none and nothing of
//! somebody else's is new, however far an earlier attempt came.
//!
//! Left out on purpose: config files, sockets, secrets. This is the engine's directory, not the server's.

use crate::anchor::{Anchor, AnchorFile};
use crate::checkpoint::{CheckpointReader, CheckpointWriter, file_name, parse_name};
use crate::error::{Error, Result};
use crate::segment::{LogDir, LogOptions};
use crate::terms::Terms;
use crate::transfer::{MARK, Switch};
use base::Position;
use env::{DirLock, Disk, Env, OpenMode, fault};
use parking_lot::Mutex;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Format of the directory as a whole. A directory of a greater one is refused.
///
/// | format | since |
/// |---|---|
/// | 1 | the first build |
/// | 2 | the schema has what an older build would not see: generated columns |
/// | 3 | the schema has objects that an older build does not know: stored settings, types |
///
/// A directory of an older format becomes one of this format when it is opened, so that no older build opens it again.
pub const DIR_FORMAT: u64 = 3;

pub(crate) const VERSION_FILE: &str = "CANON_VERSION";
const VERSION_TEMPORARY: &str = "CANON_VERSION.tmp";

/// How a data directory is opened.
#[derive(Clone, Debug, Default)]
pub struct DirOptions {
    /// Sizes of the log.
    pub log: LogOptions,
    /// The cluster that the directory must belong to, or that a new one joins; `None` accepts any and makes up a new one.
    pub cluster: Option<u128>,
}

/// An open data directory; the lock goes when this does.
pub struct DataDir {
    pub(crate) disk: Arc<dyn Disk>,
    path: PathBuf,
    cluster: u128,
    created: bool,
    log: Arc<LogDir>,
    terms: Terms,
    pub(crate) anchor: AnchorFile,
    /// Held while `CANON_HEARD` is compared and replaced: several connections hear of terms at once.
    pub(crate) hearing: Mutex<()>,
    _lock: DirLock,
}

impl DataDir {
    /// Locks the directory, making it if it is absent or empty, removes half-made files, and finishes what was decided to be done here.
    pub fn open(env: &Env, path: &Path, options: DirOptions) -> Result<DataDir> {
        let disk = env.disk.clone();
        disk.create_dir_all(path)
            .map_err(|e| Error::io("creation", path, e))?;
        let lock = disk.lock_dir(path).map_err(|e| match e.kind() {
            io::ErrorKind::WouldBlock => Error::Locked {
                path: path.to_owned(),
            },
            _ => Error::io("locking", path, e),
        })?;
        let opened = disk
            .make_private(path)
            .map_err(|e| Error::io("making private (0700, files 0600)", path, e))?;
        if opened > 0 {
            env::say!(
                "canon: {}: {opened} files or directories were open to other users of this machine; closed",
                path.display()
            );
        }
        let version = path.join(VERSION_FILE);
        let (cluster, created) = match disk.read(&version) {
            Ok(bytes) => {
                let cluster = parse_version(&version, &bytes)?;
                if !bytes.starts_with(format!("canon {DIR_FORMAT}\n").as_bytes()) {
                    write_version(&*disk, path, cluster)?;
                }
                (cluster, false)
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let cluster = options.cluster.unwrap_or_else(|| env.random.next_u128());
                create(&*disk, path, cluster)?;
                (cluster, true)
            }
            Err(e) => return Err(Error::io("reading", &version, e)),
        };
        if options.cluster.is_some_and(|wanted| wanted != cluster) {
            let reason = format!("belongs to cluster {cluster:032x}, another one was asked for");
            return Err(Error::NotOurs {
                path: path.to_owned(),
                reason,
            });
        }
        let mark = path.join(MARK);
        let switch = match disk.read(&mark) {
            Ok(bytes) => {
                let wanted = "the file should say what the directory changes to";
                let switch = Switch::parse(&bytes);
                Some(switch.ok_or_else(|| Error::corrupt(&mark, 0, wanted))?)
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(Error::io("reading", &mark, e)),
        };
        let arrived = switch.as_ref().and_then(Switch::arrived);
        let checkpoints = path.join("checkpoint");
        disk.create_dir_all(&checkpoints)
            .map_err(|e| Error::io("creation", &checkpoints, e))?;
        for name in disk
            .list(&checkpoints)
            .map_err(|e| Error::io("listing", &checkpoints, e))?
        {
            if name.ends_with(".tmp") && Some(&name) != arrived.as_ref() {
                let half_made = checkpoints.join(name);
                disk.remove(&half_made)
                    .map_err(|e| Error::io("removal", &half_made, e))?;
            }
        }
        let wal = path.join("wal");
        let anchor = AnchorFile::load(disk.clone(), path, cluster)?;
        let log = LogDir::open(disk.clone(), &wal, cluster, options.log)?;
        let terms = Terms::load(disk.clone(), path)?;
        // Names that the last process left in the cache: a checkpoint that we start from, and prune for, must stay.
        for dir in [checkpoints.as_path(), path.join("wal").as_path(), path] {
            disk.sync_dir(dir).map_err(|e| Error::sync(dir, e))?;
        }
        let dir = DataDir {
            disk,
            path: path.to_owned(),
            cluster,
            created,
            log,
            terms,
            anchor,
            hearing: Mutex::new(()),
            _lock: lock,
        };
        if let Some(switch) = switch {
            dir.finish_switch(switch)?;
        }
        dir.heard_term()?;
        Ok(dir)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Id of the cluster, and of its history.
    pub fn cluster(&self) -> u128 {
        self.cluster
    }

    /// Whether this call of `open` made it.
    pub fn created(&self) -> bool {
        self.created
    }

    /// The log's segments.
    pub fn log(&self) -> &Arc<LogDir> {
        &self.log
    }

    /// The terms of the history here, oldest first: (term, last position before it). Never empty.
    pub fn terms(&self) -> Vec<(u64, Position)> {
        self.terms.get()
    }

    /// A new term begins after `start`, the last position here; durable when this returns. Comes before the first group of the term.
    /// Terms that were heard of and began above are not of this history: nothing of them arrived.
    pub fn add_term(&self, term: u64, start: Position) -> Result<()> {
        let mut terms = self.terms.get();
        terms.retain(|t| t.1 <= start);
        terms.push((term, start));
        fault::fallible("dir.add_term").map_err(|e| Error::io("writing", &self.path, e))?;
        self.terms.set(&terms)?;
        self.agree()
    }

    /// Takes over the terms of the history that is followed from now on; durable when this returns.
    pub fn set_terms(&self, terms: &[(u64, Position)]) -> Result<()> {
        self.terms.set(terms)?;
        self.agree()
    }

    pub(crate) fn checkpoints(&self) -> PathBuf {
        self.path.join("checkpoint")
    }

    /// The file of a checkpoint.
    pub fn checkpoint_path(&self, number: u64) -> PathBuf {
        self.checkpoints().join(file_name(number))
    }

    /// Numbers of the finished checkpoints, ascending.
    pub fn checkpoint_numbers(&self) -> Result<Vec<u64>> {
        let dir = self.checkpoints();
        let names = self
            .disk
            .list(&dir)
            .map_err(|e| Error::io("listing", &dir, e))?;
        let mut numbers: Vec<u64> = names.iter().filter_map(|n| parse_name(n)).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// The newest finished checkpoint. A damaged one is `Corrupt`: the log before it may be gone, so an older one is no help.
    pub fn latest_checkpoint(&self) -> Result<Option<CheckpointReader>> {
        let Some(number) = self.checkpoint_numbers()?.pop() else {
            return Ok(None);
        };
        let path = self.checkpoints().join(file_name(number));
        let reader = CheckpointReader::open(&*self.disk, &path)?;
        let manifest = reader.manifest();
        if manifest.cluster != self.cluster || manifest.number != number {
            return Err(Error::corrupt(
                &path,
                0,
                "the checkpoint belongs to another cluster or has another's name",
            ));
        }
        Ok(Some(reader))
    }

    /// Begins a checkpoint that holds every commit at or below `start`. One at a time.
    pub fn begin_checkpoint(&self, start: Position) -> Result<CheckpointWriter> {
        let number = self.checkpoint_numbers()?.last().map_or(1, |n| n + 1);
        CheckpointWriter::create(
            self.disk.clone(),
            &self.checkpoints(),
            self.cluster,
            number,
            start,
        )
    }

    /// Removes the whole log: what is needed of it is in the newest checkpoint, and it begins again behind that.
    pub fn begin_log_anew(&self) -> Result<()> {
        self.log.clear()
    }

    /// Removes what the newest finished checkpoint makes superfluous: older checkpoints, and log segments all of whose positions
    /// are at or below both its start and `keep_from` (what replicas and archives still need is above). Returns how many segments went.
    pub fn prune(&self, keep_from: Position) -> Result<usize> {
        let Some(latest) = self.latest_checkpoint()? else {
            return Ok(0);
        };
        // What the new one makes superfluous goes only where the anchor asks for it.
        self.raise_anchor(Anchor {
            checkpoint: latest.manifest().number,
            ..Anchor::default()
        })?;
        let dir = self.checkpoints();
        let mut removed = false;
        for number in self.checkpoint_numbers()? {
            if number < latest.manifest().number {
                let path = dir.join(file_name(number));
                self.disk
                    .remove(&path)
                    .map_err(|e| Error::io("removal", &path, e))?;
                removed = true;
            }
        }
        if removed {
            fault::point("checkpoint.prune.before_sync");
            self.disk.sync_dir(&dir).map_err(|e| Error::sync(&dir, e))?;
        }
        self.log.prune(keep_from.min(latest.manifest().start))
    }
}

/// Makes the directory ours.
fn create(disk: &dyn Disk, path: &Path, cluster: u128) -> Result<()> {
    let ours = [
        env::os_disk::LOCK_FILE,
        VERSION_TEMPORARY,
        "wal",
        "checkpoint",
    ];
    for name in disk.list(path).map_err(|e| Error::io("listing", path, e))? {
        let half_made = ours.contains(&name.as_str());
        let sub = path.join(&name);
        let holds_data = matches!(name.as_str(), "wal" | "checkpoint")
            && disk.list(&sub).is_ok_and(|l| !l.is_empty());
        if !half_made || holds_data {
            let reason = format!(
                "is not empty (it holds {name}) and has no {VERSION_FILE}: not a data directory of Canon"
            );
            return Err(Error::NotOurs {
                path: path.to_owned(),
                reason,
            });
        }
    }
    write_version(disk, path, cluster)
}

/// Writes `CANON_VERSION`, which makes it a data directory. The caller syncs the directory, with all that it makes in it.
pub(crate) fn write_version(disk: &dyn Disk, path: &Path, cluster: u128) -> Result<()> {
    let temporary = path.join(VERSION_TEMPORARY);
    let text = format!("canon {DIR_FORMAT}\ncluster {cluster:032x}\n");
    let file = disk
        .open(&temporary, OpenMode::Truncate)
        .map_err(|e| Error::io("creation", &temporary, e))?;
    file.write_all_at(text.as_bytes(), 0)
        .map_err(|e| Error::io("writing", &temporary, e))?;
    file.sync_data().map_err(|e| Error::sync(&temporary, e))?;
    fault::point("dir.create.before_rename");
    disk.rename(&temporary, &path.join(VERSION_FILE))
        .map_err(|e| Error::io("renaming", &temporary, e))?;
    fault::point("dir.create.after_rename");
    Ok(())
}

/// Which cluster's history is in this directory; none: it is no data directory yet.
pub fn cluster_in(disk: &dyn Disk, path: &Path) -> Result<Option<u128>> {
    let version = path.join(VERSION_FILE);
    match disk.read(&version) {
        Ok(bytes) => parse_version(&version, &bytes).map(Some),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::io("reading", &version, e)),
    }
}

/// Reads `CANON_VERSION`: the cluster id.
pub(crate) fn parse_version(path: &Path, bytes: &[u8]) -> Result<u128> {
    let corrupt = || {
        Error::corrupt(
            path,
            0,
            "the file should hold 'canon FORMAT' and 'cluster ID'",
        )
    };
    let text = std::str::from_utf8(bytes).map_err(|_| corrupt())?;
    let mut lines = text.lines();
    let format = lines
        .next()
        .and_then(|l| l.strip_prefix("canon "))
        .ok_or_else(corrupt)?;
    let found: u64 = format.parse().map_err(|_| corrupt())?;
    if found > DIR_FORMAT {
        return Err(Error::NewerFormat {
            path: path.to_owned(),
            found,
            known: DIR_FORMAT,
        });
    }
    let id = lines
        .next()
        .and_then(|l| l.strip_prefix("cluster "))
        .filter(|id| id.len() == 32);
    u128::from_str_radix(id.ok_or_else(corrupt)?, 16).map_err(|_| corrupt())
}
