//! A disk in memory that knows what a power cut takes away.
//!
//! ```text
//! names:   live (what open and list see)      durable (what sync_dir has made sure of)
//! bytes:   live                               durable + the writes since, in order, each of which
//!                                             a power cut keeps, loses or tears
//! ```
//! [`MemDisk::power_cut`] forgets what was not made sure of, by the stated [`PowerCut`]; handles opened before it stay
//! usable but write to files that no name leads to any more, as a killed process's would.
//!
//! Left out on purpose: directories as objects (a directory, once made, stays) and permissions.

use crate::disk::{DirLock, Disk, DiskFile, OpenMode};
use crate::random::{Random, SeededRandom};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a power cut does to writes and names that were not synced.
#[derive(Clone, Copy, Debug)]
pub enum PowerCut {
    /// All of them are lost.
    LoseAll,
    /// None is lost: the process died, the machine did not. What was not synced is still not durable: a cut later on can
    /// take it.
    KeepAll,
    /// Each unsynced write is kept, lost, or torn at a 512-byte sector; of the unsynced name changes of each directory a
    /// prefix is kept. Decided by the seed.
    Random(u64),
}

/// Smallest unit that a torn write keeps or loses.
const SECTOR: u64 = 512;

/// Files in memory. Clones share them.
#[derive(Clone, Default)]
pub struct MemDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    live: BTreeMap<PathBuf, Arc<Node>>,
    durable: BTreeMap<PathBuf, Arc<Node>>,
    /// Name changes since the last sync of their directory, in order.
    changes: Vec<Change>,
    dirs: BTreeSet<PathBuf>,
    locked: BTreeSet<PathBuf>,
    /// Counts power cuts, so that a lock taken before one is not released after it.
    generation: u64,
}

#[derive(Clone)]
struct Change {
    /// The name and what it leads to from now on.
    steps: Vec<(PathBuf, Option<Arc<Node>>)>,
}

#[derive(Default)]
struct Node {
    bytes: Mutex<Bytes>,
}

#[derive(Default)]
struct Bytes {
    live: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Pending>,
}

#[derive(Clone)]
enum Pending {
    Write { at: u64, data: Vec<u8> },
    Length(u64),
}

impl Change {
    fn dir(&self) -> Option<&Path> {
        self.steps[0].0.parent()
    }

    fn apply(&self, names: &mut BTreeMap<PathBuf, Arc<Node>>) {
        for (name, node) in &self.steps {
            match node {
                Some(node) => names.insert(name.clone(), node.clone()),
                None => names.remove(name),
            };
        }
    }
}

impl Pending {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Pending::Length(len) => bytes.resize(to_usize(*len), 0),
            Pending::Write { at, data } => {
                let at = to_usize(*at);
                if bytes.len() < at + data.len() {
                    bytes.resize(at + data.len(), 0);
                }
                bytes[at..at + data.len()].copy_from_slice(data);
            }
        }
    }
}

fn to_usize(n: u64) -> usize {
    usize::try_from(n).expect("a file in memory fits in memory")
}

impl MemDisk {
    /// An empty disk.
    pub fn new() -> MemDisk {
        MemDisk::default()
    }

    /// Takes away what was not made durable, frees every lock, and leaves the disk as the next start finds it.
    pub fn power_cut(&self, cut: PowerCut) {
        let mut state = self.state.lock();
        state.locked.clear();
        state.generation += 1;
        let (random, seed) = match cut {
            PowerCut::KeepAll => return,
            PowerCut::LoseAll => (false, 0),
            PowerCut::Random(seed) => (true, seed),
        };
        let dice = SeededRandom::new(seed);
        let changes = std::mem::take(&mut state.changes);
        let mut kept = BTreeMap::new();
        for change in &changes {
            // The first change that is lost takes the later ones of its directory with it.
            let keep = random
                && *kept.get(&change.dir()).unwrap_or(&true)
                && !dice.next_u64().is_multiple_of(4);
            kept.insert(change.dir(), keep);
            if keep {
                change.apply(&mut state.durable);
            }
        }
        // Each node once, though several names may lead to it.
        let mut survivors: Vec<(*const Node, Arc<Node>)> = Vec::new();
        let mut names = BTreeMap::new();
        for (name, node) in &state.durable {
            let known = survivors
                .iter()
                .find(|(old, _)| *old == Arc::as_ptr(node))
                .map(|(_, new)| new.clone());
            let new = known.unwrap_or_else(|| {
                let new = Arc::new(node.after_cut(random.then_some(&dice)));
                survivors.push((Arc::as_ptr(node), new.clone()));
                new
            });
            names.insert(name.clone(), new);
        }
        state.durable = names.clone();
        state.live = names;
    }

    /// A copy that shares nothing with this one, as it stands (live and durable alike): for trying several endings.
    pub fn fork(&self) -> MemDisk {
        let state = self.state.lock();
        let mut nodes: BTreeMap<usize, Arc<Node>> = BTreeMap::new();
        let mut copy = |node: &Arc<Node>| {
            nodes
                .entry(Arc::as_ptr(node) as usize)
                .or_insert_with(|| {
                    let bytes = node.bytes.lock();
                    Arc::new(Node {
                        bytes: Mutex::new(Bytes {
                            live: bytes.live.clone(),
                            durable: bytes.durable.clone(),
                            pending: bytes.pending.clone(),
                        }),
                    })
                })
                .clone()
        };
        let fork = State {
            live: state
                .live
                .iter()
                .map(|(k, v)| (k.clone(), copy(v)))
                .collect(),
            durable: state
                .durable
                .iter()
                .map(|(k, v)| (k.clone(), copy(v)))
                .collect(),
            changes: state
                .changes
                .iter()
                .map(|c| Change {
                    steps: c
                        .steps
                        .iter()
                        .map(|(k, v)| (k.clone(), v.as_ref().map(&mut copy)))
                        .collect(),
                })
                .collect(),
            dirs: state.dirs.clone(),
            locked: BTreeSet::new(),
            generation: 0,
        };
        MemDisk {
            state: Arc::new(Mutex::new(fork)),
        }
    }

    fn changed(state: &mut State, change: Change) {
        change.apply(&mut state.live);
        state.changes.push(change);
    }
}

impl Node {
    /// What is left: the durable bytes and, if there are dice, what they keep of the rest.
    fn after_cut(&self, dice: Option<&SeededRandom>) -> Node {
        let bytes = self.bytes.lock();
        let mut durable = bytes.durable.clone();
        for (pending, dice) in bytes.pending.iter().filter_map(|p| Some((p, dice?))) {
            match (dice.next_u64() % 3, pending) {
                (0, _) => {}
                (1, Pending::Write { at, data }) => torn(*at, data, dice, &mut durable),
                _ => pending.apply(&mut durable),
            }
        }
        Node {
            bytes: Mutex::new(Bytes {
                live: durable.clone(),
                durable,
                pending: Vec::new(),
            }),
        }
    }
}

/// Applies some sectors of a write and not others.
fn torn(at: u64, data: &[u8], dice: &SeededRandom, durable: &mut Vec<u8>) {
    let end = at + data.len() as u64;
    let mut from = at;
    while from < end {
        let to = ((from / SECTOR + 1) * SECTOR).min(end);
        if dice.next_u64().is_multiple_of(2) {
            let part = data[to_usize(from - at)..to_usize(to - at)].to_vec();
            Pending::Write {
                at: from,
                data: part,
            }
            .apply(durable);
        }
        from = to;
    }
}

impl Disk for MemDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.state.lock();
        if path.parent().is_some_and(|dir| !state.dirs.contains(dir)) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let node = match (state.live.get(path).cloned(), mode) {
            (Some(_), OpenMode::CreateNew) => return Err(io::ErrorKind::AlreadyExists.into()),
            (None, OpenMode::Read | OpenMode::Write) => return Err(io::ErrorKind::NotFound.into()),
            (Some(node), _) => node,
            (None, _) => {
                let node = Arc::new(Node::default());
                Self::changed(
                    &mut state,
                    Change {
                        steps: vec![(path.to_owned(), Some(node.clone()))],
                    },
                );
                node
            }
        };
        let file = MemFile {
            node,
            writable: mode != OpenMode::Read,
        };
        if mode == OpenMode::Truncate {
            file.set_len(0)?;
        }
        Ok(Arc::new(file))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        let node = state
            .live
            .get(from)
            .cloned()
            .ok_or(io::ErrorKind::NotFound)?;
        let steps = vec![(from.to_owned(), None), (to.to_owned(), Some(node))];
        Self::changed(&mut state, Change { steps });
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        if !state.live.contains_key(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Self::changed(
            &mut state,
            Change {
                steps: vec![(path.to_owned(), None)],
            },
        );
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let state = self.state.lock();
        if !state.dirs.contains(dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let inside = |path: &&PathBuf| path.parent() == Some(dir);
        let name = |path: &PathBuf| path.file_name().map(|n| n.to_string_lossy().into_owned());
        let mut names: Vec<String> = state
            .live
            .keys()
            .filter(inside)
            .chain(state.dirs.iter().filter(inside))
            .filter_map(name)
            .collect();
        names.sort();
        Ok(names)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.dirs.extend(dir.ancestors().map(Path::to_owned));
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        let (now, later): (Vec<Change>, Vec<Change>) = std::mem::take(&mut state.changes)
            .into_iter()
            .partition(|c| c.dir() == Some(dir));
        for change in now {
            change.apply(&mut state.durable);
        }
        state.changes = later;
        Ok(())
    }

    fn lock_dir(&self, dir: &Path) -> io::Result<DirLock> {
        let mut state = self.state.lock();
        if !state.dirs.contains(dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        if !state.locked.insert(dir.to_owned()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(DirLock::new(MemLock {
            disk: self.clone(),
            dir: dir.to_owned(),
            generation: state.generation,
        }))
    }
}

struct MemLock {
    disk: MemDisk,
    dir: PathBuf,
    generation: u64,
}

impl Drop for MemLock {
    fn drop(&mut self) {
        let mut state = self.disk.state.lock();
        if state.generation == self.generation {
            state.locked.remove(&self.dir);
        }
    }
}

struct MemFile {
    node: Arc<Node>,
    writable: bool,
}

impl MemFile {
    fn change(&self, pending: Pending) -> io::Result<()> {
        if !self.writable {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let mut bytes = self.node.bytes.lock();
        pending.apply(&mut bytes.live);
        bytes.pending.push(pending);
        Ok(())
    }
}

impl DiskFile for MemFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let bytes = self.node.bytes.lock();
        let rest = bytes.live.get(to_usize(offset)..).unwrap_or(&[]);
        let n = rest.len().min(buf.len());
        buf[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        self.change(Pending::Write {
            at: offset,
            data: buf.to_vec(),
        })?;
        Ok(buf.len())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut guard = self.node.bytes.lock();
        let bytes = &mut *guard;
        for pending in bytes.pending.drain(..) {
            pending.apply(&mut bytes.durable);
        }
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.node.bytes.lock().live.len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change(Pending::Length(len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk() -> (MemDisk, PathBuf) {
        let disk = MemDisk::new();
        let dir = PathBuf::from("/d");
        disk.create_dir_all(&dir).unwrap();
        (disk, dir)
    }

    #[test]
    fn only_what_was_synced_survives_a_power_cut() {
        let (disk, dir) = disk();
        let a = disk.open(&dir.join("a"), OpenMode::CreateNew).unwrap();
        a.write_all_at(b"first", 0).unwrap();
        a.sync_data().unwrap();
        disk.sync_dir(&dir).unwrap();
        a.write_all_at(b"second", 5).unwrap();
        disk.open(&dir.join("b"), OpenMode::CreateNew)
            .unwrap()
            .sync_data()
            .unwrap();
        disk.rename(&dir.join("a"), &dir.join("c")).unwrap();

        let lost = disk.fork();
        lost.power_cut(PowerCut::LoseAll);
        assert_eq!(lost.list(&dir).unwrap(), ["a"]);
        assert_eq!(lost.read(&dir.join("a")).unwrap(), b"first");

        // The process dies, then the power goes.
        disk.power_cut(PowerCut::KeepAll);
        assert_eq!(disk.list(&dir).unwrap(), ["b", "c"]);
        assert_eq!(disk.read(&dir.join("c")).unwrap(), b"firstsecond");
        disk.power_cut(PowerCut::LoseAll);
        assert_eq!(disk.list(&dir).unwrap(), ["a"]);
    }

    #[test]
    fn a_random_cut_keeps_synced_bytes_and_can_tear() {
        let (disk, dir) = disk();
        let path = dir.join("a");
        let a = disk.open(&path, OpenMode::CreateNew).unwrap();
        a.write_all_at(&[1; 4096], 0).unwrap();
        a.sync_data().unwrap();
        disk.sync_dir(&dir).unwrap();
        a.write_all_at(&[2; 4096], 4096).unwrap();
        let mut torn = 0;
        for seed in 0..64 {
            let cut = disk.fork();
            cut.power_cut(PowerCut::Random(seed));
            let content = cut.read(&path).unwrap();
            assert_eq!(content[..4096], [1; 4096]);
            let kept = content[4096..].iter().filter(|b| **b == 2).count();
            assert_eq!(kept % 512, 0);
            torn += usize::from(kept > 0 && kept < 4096);
        }
        assert!(torn > 0, "no seed of 64 tore the write");
    }

    #[test]
    fn a_lock_is_exclusive_and_ends_with_the_machine() {
        let (disk, dir) = disk();
        let held = disk.lock_dir(&dir).unwrap();
        assert_eq!(
            disk.lock_dir(&dir).err().unwrap().kind(),
            io::ErrorKind::WouldBlock
        );
        disk.power_cut(PowerCut::LoseAll);
        let next = disk.lock_dir(&dir).unwrap();
        drop(held);
        assert!(
            disk.lock_dir(&dir).is_err(),
            "an old holder does not free the new one's lock"
        );
        drop(next);
        disk.lock_dir(&dir).map(drop).unwrap();
    }
}
