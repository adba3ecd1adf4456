//! The consensus log on disk: one file of checksummed frames.
//!
//! ```text
//! "CANONRF1" | frame | frame | …          frame: length u32, CRC-32C u32, JSON of one Record
//! ```
//! Each change is one frame, written and synced before the call returns. So a power cut tears at most the last frame, which nothing was promised of: a
//! start cuts it off. A bad frame with a good one behind is damage, and refused: a vote or an entry that others count on may be missing.
//!
//! A frame whose sync has failed may be read at the next start, and still not be on the disk. So a start writes again what it has read, and syncs that.
//!
//! The file is made anew at each snapshot, beside the old one, synced, and renamed over it. It holds a few hundred entries.
//!
//! Left out on purpose: a frame at the very end that was synced and that the disk lost all the same. That cannot be told from a torn one here.

use env::{Disk, DiskFile, OpenMode};
use openraft::{EntryPayload, LogId, SnapshotMeta, Vote};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::types::Entry;
use crate::catalogue::{Catalogue, NodeId};

pub const NAME: &str = "consensus.log";
const NEW: &str = "consensus.new";
const MAGIC: &[u8; 8] = b"CANONRF1";
/// Length and checksum.
const HEAD: usize = 8;

/// A snapshot: the catalogue after the entries that it stands for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Kept {
    pub meta: SnapshotMeta<NodeId, openraft::EmptyNode>,
    pub catalogue: Catalogue,
}

/// One frame.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Record {
    Vote(Vote<NodeId>),
    Committed(Option<LogId<NodeId>>),
    Append(Vec<Entry>),
    /// Entries from this index on are gone.
    Truncate(u64),
    /// Entries up to this one are gone.
    Purge(LogId<NodeId>),
    Snapshot(Box<Kept>),
}

/// The content of the file.
#[derive(Clone, Debug, Default)]
pub struct Content {
    pub vote: Option<Vote<NodeId>>,
    pub committed: Option<LogId<NodeId>>,
    pub entries: BTreeMap<u64, Entry>,
    pub purged: Option<LogId<NodeId>>,
    pub snapshot: Option<Kept>,
}

impl Content {
    fn take(&mut self, record: Record) {
        match record {
            Record::Vote(vote) => self.vote = Some(vote),
            Record::Committed(committed) => self.committed = committed,
            Record::Append(entries) => {
                let by_index = entries.into_iter().map(|e| (e.log_id.index, e));
                self.entries.extend(by_index);
            }
            Record::Truncate(from) => {
                self.entries.split_off(&from);
            }
            Record::Purge(to) => {
                self.entries.retain(|index, _| *index > to.index);
                self.purged = Some(to);
            }
            Record::Snapshot(kept) => self.snapshot = Some(*kept),
        }
    }

    /// Reads the bytes of a file: the content, and how many bytes are good. What follows is the end that a power cut has torn. An error: the file is damaged, or of another
    /// version.
    pub fn decode(bytes: &[u8]) -> io::Result<(Content, usize)> {
        let damaged = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
        let Some(mut rest) = bytes.strip_prefix(MAGIC) else {
            return Err(damaged(format!("{NAME} is not a consensus log")));
        };
        let mut content = Content::default();
        while let Some(body) = body(rest) {
            let record = serde_json::from_slice(body)
                .map_err(|e| damaged(format!("{NAME} has a frame of another version: {e}")))?;
            content.take(record);
            rest = &rest[HEAD + body.len()..];
        }
        let end = bytes.len() - rest.len();
        if (1..rest.len()).any(|at| body(&rest[at..]).is_some()) {
            return Err(damaged(format!(
                "{NAME} is damaged at byte {end}, before its end"
            )));
        }
        Ok((content, end))
    }

    /// The bytes of a file with this content.
    pub fn encode(&self) -> io::Result<Vec<u8>> {
        let mut bytes = MAGIC.to_vec();
        for record in self.records() {
            bytes.extend(frame(&record)?);
        }
        Ok(bytes)
    }

    /// The catalogue as it is if all entries here were agreed on. Some may not have been.
    pub fn expected(&self) -> Catalogue {
        let kept = self.snapshot.as_ref();
        let within = kept.and_then(|k| k.meta.last_log_id).map(|l| l.index);
        let mut catalogue = kept.map(|k| k.catalogue.clone()).unwrap_or_default();
        let behind = self
            .entries
            .values()
            .filter(|e| Some(e.log_id.index) > within);
        for entry in behind {
            if let EntryPayload::Normal(command) = &entry.payload {
                // One that changed nothing changes nothing here.
                _ = catalogue.apply(command);
            }
        }
        catalogue
    }

    /// The frames that say the same.
    fn records(&self) -> Vec<Record> {
        let mut records = vec![];
        records.extend(self.vote.map(Record::Vote));
        records.extend(self.snapshot.clone().map(Box::new).map(Record::Snapshot));
        records.extend(self.purged.map(Record::Purge));
        records.push(Record::Append(self.entries.values().cloned().collect()));
        records.push(Record::Committed(self.committed));
        records
    }
}

/// The file and what it holds.
pub struct LogFile {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    file: Arc<dyn DiskFile>,
    /// Where the next frame goes, in bytes.
    end: u64,
    content: Content,
    /// A write failed, so the file's end is unknown. Nothing is written any more.
    broken: bool,
}

impl LogFile {
    /// Reads the file in this directory, or makes an empty one.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path) -> io::Result<LogFile> {
        disk.create_dir_all(dir)?;
        if let Some(above) = dir.parent().filter(|p| !p.as_os_str().is_empty()) {
            disk.sync_dir(above)?;
        }
        let path = dir.join(NAME);
        let names = disk.list(dir)?;
        let mut content = Content::default();
        let file = if names.iter().any(|n| n == NAME) {
            let bytes = disk.read(&path)?;
            let good;
            (content, good) = Content::decode(&bytes)?;
            let file = disk.open(&path, OpenMode::Write)?;
            // What was read need not be on the disk: a sync of it, or of the name, may have failed before. From now on others count on it.
            file.write_all_at(&bytes[..good], 0)?;
            file.set_len(good as u64)?;
            file.sync_data()?;
            disk.sync_dir(dir)?;
            file
        } else {
            write_new(&*disk, dir, &content)?
        };
        Ok(LogFile {
            end: file.len()?,
            disk,
            dir: dir.to_owned(),
            file,
            content,
            broken: false,
        })
    }

    /// What the file holds.
    pub fn content(&self) -> &Content {
        &self.content
    }

    pub fn vote(&mut self, vote: Vote<NodeId>) -> io::Result<()> {
        self.put(Record::Vote(vote))
    }

    pub fn committed(&mut self, committed: Option<LogId<NodeId>>) -> io::Result<()> {
        self.put(Record::Committed(committed))
    }

    pub fn append(&mut self, entries: Vec<Entry>) -> io::Result<()> {
        self.put(Record::Append(entries))
    }

    /// Takes entries from this index on away.
    pub fn truncate(&mut self, from: u64) -> io::Result<()> {
        self.put(Record::Truncate(from))
    }

    /// Takes entries up to this one away.
    pub fn purge(&mut self, to: LogId<NodeId>) -> io::Result<()> {
        self.put(Record::Purge(to))
    }

    /// Keeps a snapshot, in a file made anew. One that is older than the kept one changes nothing: a member may build a snapshot while it takes the
    /// leader's newer one, after which entries between the two are gone.
    pub fn snapshot(&mut self, kept: Kept) -> io::Result<()> {
        let had = self.content.snapshot.as_ref();
        if had.is_some_and(|had| had.meta.last_log_id > kept.meta.last_log_id) {
            return Ok(());
        }
        self.changes()?;
        let mut content = self.content.clone();
        content.take(Record::Snapshot(Box::new(kept)));
        self.file = write_new(&*self.disk, &self.dir, &content)?;
        self.end = self.file.len()?;
        self.content = content;
        self.broken = false;
        Ok(())
    }

    fn changes(&mut self) -> io::Result<()> {
        match std::mem::replace(&mut self.broken, true) {
            false => Ok(()),
            true => Err(io::Error::other(
                "the consensus log could not be written before; its end is not known",
            )),
        }
    }

    fn put(&mut self, record: Record) -> io::Result<()> {
        self.changes()?;
        let frame = frame(&record)?;
        self.file.write_all_at(&frame, self.end)?;
        self.file.sync_data()?;
        self.end += frame.len() as u64;
        self.content.take(record);
        self.broken = false;
        Ok(())
    }
}

fn frame(record: &Record) -> io::Result<Vec<u8>> {
    let body = serde_json::to_vec(record).map_err(io::Error::other)?;
    let len = u32::try_from(body.len()).map_err(io::Error::other)?;
    let mut frame = Vec::with_capacity(HEAD + body.len());
    frame.extend(len.to_le_bytes());
    frame.extend(checksum(len, &body).to_le_bytes());
    frame.extend(body);
    Ok(frame)
}

/// Over the length, too: a frame of zeros is none.
fn checksum(len: u32, body: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&len.to_le_bytes()), body)
}

/// The body of the frame that begins here.
fn body(bytes: &[u8]) -> Option<&[u8]> {
    let (head, rest) = bytes.split_first_chunk::<HEAD>()?;
    let (len, sum) = head.split_at(4);
    let len = u32::from_le_bytes(len.try_into().expect("four bytes"));
    let sum = u32::from_le_bytes(sum.try_into().expect("four bytes"));
    let body = rest.get(..usize::try_from(len).ok()?)?;
    (len > 0 && checksum(len, body) == sum).then_some(body)
}

/// Writes the whole content beside the file and puts it in its place.
fn write_new(disk: &dyn Disk, dir: &Path, content: &Content) -> io::Result<Arc<dyn DiskFile>> {
    let bytes = content.encode()?;
    let file = disk.open(&dir.join(NEW), OpenMode::Truncate)?;
    file.write_all_at(&bytes, 0)?;
    file.sync_data()?;
    disk.rename(&dir.join(NEW), &dir.join(NAME))?;
    disk.sync_dir(dir)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::{Action, Fault, FaultyDisk, MemDisk, Op, PowerCut};
    use openraft::{CommittedLeaderId, EntryPayload};

    fn entry(index: u64) -> Entry {
        Entry {
            log_id: LogId::new(CommittedLeaderId::new(1, 0), index),
            payload: EntryPayload::Blank,
        }
    }

    fn open(disk: &MemDisk) -> io::Result<LogFile> {
        LogFile::open(Arc::new(disk.clone()), Path::new("d"))
    }

    /// What must be there, in a form that compares.
    fn shown(content: &Content) -> String {
        format!("{content:?}")
    }

    #[test]
    fn a_power_cut_at_any_write_keeps_what_was_returned() {
        for seed in 0..300 {
            let disk = MemDisk::new();
            let mut log = open(&disk).expect("a new one");
            let mut held = shown(log.content());
            for step in 1..=12 {
                match (seed + step) % 5 {
                    0 => log.vote(Vote::new(step, 0)),
                    1 => log.truncate(step.saturating_sub(2)),
                    2 => log.purge(entry(step / 2).log_id),
                    _ => log.append(vec![entry(step)]),
                }
                .expect("the disk works");
                held = shown(log.content());
            }
            // One more that is written and not synced.
            let half = frame(&Record::Append(vec![entry(13), entry(14)])).expect("a frame");
            log.file.write_all_at(&half, log.end).expect("written");
            let whole = {
                let mut content = log.content().clone();
                content.take(Record::Append(vec![entry(13), entry(14)]));
                shown(&content)
            };
            disk.power_cut(PowerCut::Random(seed));
            let mut again = open(&disk).expect("a torn end is no damage");
            let now = shown(again.content());
            assert!(now == held || now == whole, "seed {seed}: {now}");
            again.vote(Vote::new(99, 0)).expect("it goes on");
            disk.power_cut(PowerCut::LoseAll);
            let last = open(&disk).expect("a whole file");
            assert_eq!(last.content().vote, Some(Vote::new(99, 0)));
        }
    }

    /// The log between the two is gone when the older one is there.
    #[test]
    fn an_older_snapshot_takes_no_newer_ones_place() {
        let disk = MemDisk::new();
        let mut log = open(&disk).expect("a new one");
        let kept = |index| Kept {
            meta: SnapshotMeta {
                last_log_id: Some(entry(index).log_id),
                ..SnapshotMeta::default()
            },
            catalogue: Catalogue::default(),
        };
        for index in [9, 5] {
            log.snapshot(kept(index)).expect("the disk works");
        }
        let last = |log: &LogFile| {
            let snapshot = log.content().snapshot.as_ref();
            snapshot.and_then(|s| s.meta.last_log_id).map(|id| id.index)
        };
        assert_eq!(last(&log), Some(9));
        assert_eq!(last(&open(&disk).expect("a whole file")), Some(9));
    }

    /// A vote whose sync has failed was not given, and is read at the next start all the same. From then on it is one, also after a power cut.
    #[test]
    fn what_a_start_reads_is_on_the_disk() {
        for (op, nth) in [(Op::SyncData, 1), (Op::SyncDir, 1)] {
            let inner = MemDisk::new();
            let disk = FaultyDisk::new(Arc::new(inner.clone()));
            let open = || LogFile::open(Arc::new(disk.clone()), Path::new("d"));
            let mut log = open().expect("a new one");
            log.vote(Vote::new(1, 7)).expect("written");
            disk.inject(Fault {
                op,
                path: "d".into(),
                nth,
                action: Action::Error(io::ErrorKind::Other),
            });
            let kept = Kept {
                meta: SnapshotMeta::default(),
                catalogue: Catalogue::default(),
            };
            let failed = match op {
                Op::SyncData => log.vote(Vote::new(2, 8)),
                _ => log.snapshot(kept),
            };
            assert!(failed.is_err() && disk.planned() == 0, "{op:?}");
            drop(log);
            let held = shown(open().expect("it is read").content());
            inner.power_cut(PowerCut::LoseAll);
            assert_eq!(shown(open().expect("whole").content()), held, "{op:?}");
        }
    }

    #[test]
    fn damage_before_the_end_is_refused() {
        let disk = MemDisk::new();
        let mut log = open(&disk).expect("a new one");
        let first = log.end;
        log.append(vec![entry(1)]).expect("written");
        log.vote(Vote::new(2, 1)).expect("written");
        log.file.write_all_at(b"!", first + 20).expect("written");
        let e = open(&disk).err().expect("damage");
        assert_eq!(e.kind(), io::ErrorKind::InvalidData);
    }

    /// An index at the edge has no successor. All entries are below it.
    #[test]
    fn the_greatest_index_is_one_as_well() {
        let mut log = open(&MemDisk::new()).expect("a new one");
        log.append(vec![entry(1)]).expect("written");
        let last = entry(u64::MAX).log_id;
        let meta = SnapshotMeta {
            last_log_id: Some(last),
            ..SnapshotMeta::default()
        };
        let catalogue = Catalogue::default();
        log.snapshot(Kept { meta, catalogue }).expect("written");
        assert_eq!(log.content().expected(), Catalogue::default());
        log.purge(last).expect("written");
        assert!(log.content().entries.is_empty());
    }

    #[test]
    fn a_snapshot_makes_the_file_anew() {
        let disk = MemDisk::new();
        let mut log = open(&disk).expect("a new one");
        for i in 1..100 {
            log.append(vec![entry(i)]).expect("written");
        }
        log.purge(entry(98).log_id).expect("written");
        let long = log.end;
        let meta = SnapshotMeta::default();
        let catalogue = Catalogue::default();
        log.snapshot(Kept { meta, catalogue }).expect("written");
        assert!(log.end < long / 4);
        let held = shown(log.content());
        disk.power_cut(PowerCut::LoseAll);
        assert_eq!(shown(open(&disk).expect("whole").content()), held);
    }
}
