//! The anchor: how far the log is known to be durable, written outside of the log.
//!
//! A log alone cannot tell its own end from a loss: a directory without its last segments, or whose last kilobytes are zeros because a disk
//! lied about a sync, is read as a shorter log. The anchor is the witness beside it.
//!
//! ```text
//! DIR/CANON_ANCHOR    two slots of 512 bytes, at 0 and at 4096; the one with the greater sequence counts
//!
//!   0  magic "CANONANC"   8 | 40  term               8 | 72  newest checkpoint that must exist  8
//!   8  format version     2 | 48  position           8 | 80  zero                             428
//!  10  zero               6 | 56  segment            8 |508  crc32c of bytes 0..508             4
//!  16  cluster id        16 | 64  offset behind its  8 |
//!  32  sequence           8 |     last durable group   |
//! ```
//! Every field is a lower bound, each for itself: the log holds *position*, its bytes reach *segment* and *offset*, and there is a checkpoint of
//! that number or a later one. A slot is written over and synced, the other one stays: a torn write leaves the value before. Each has a
//! page of its own, because a page that is torn may be lost whole. An older build had the second slot at 512: a slot is read wherever it is. What the log has
//! reached is told by its writer after each sync, in memory ([`LogDir::reach`]); a thread aside writes it down, so that no commit waits
//! for it. It falls only before the log is cut or replaced on purpose (`transfer`), and where a shorter log is accepted.
//!
//! Left out on purpose: what a start makes of it (`node::start_check`).

use crate::bytes::{put, u16_at, u64_at, u128_at};
use crate::data_dir::DataDir;
use crate::error::{Error, Result};
use crate::segment::{LogDir, SEGMENT_HEADER};
use crate::terms;
use crate::writer::LogPoint;
use base::Position;
use env::{Disk, OpenMode, fault};
use parking_lot::Mutex;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Name of the file.
pub const ANCHOR_FILE: &str = "CANON_ANCHOR";

const MAGIC: [u8; 8] = *b"CANONANC";
const FORMAT: u16 = 1;
/// Bytes of a slot: what a disk writes whole or not at all.
const SLOT: usize = 512;
/// Bytes from one slot to the other: what the system writes at once.
const PAGE: usize = 4096;

/// What the log is known to hold, as a lower bound. See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Anchor {
    /// Term of the log's writer then.
    pub term: u64,
    pub position: Position,
    /// None: no segment is needed.
    pub point: Option<LogPoint>,
    /// 0: none is needed.
    pub checkpoint: u64,
}

impl Anchor {
    /// What both ask for.
    fn or(self, other: Anchor) -> Anchor {
        Anchor {
            term: self.term.max(other.term),
            position: self.position.max(other.position),
            point: self.point.max(other.point),
            checkpoint: self.checkpoint.max(other.checkpoint),
        }
    }

    /// A slot's bytes.
    pub fn encode(&self, cluster: u128, sequence: u64) -> [u8; SLOT] {
        let mut out = [0; SLOT];
        put(&mut out, 0, &MAGIC);
        put(&mut out, 8, &FORMAT.to_le_bytes());
        put(&mut out, 16, &cluster.to_le_bytes());
        let (segment, offset) = self.point.map_or((0, 0), |p| (p.segment, p.offset));
        let fields = [
            sequence,
            self.term,
            self.position.as_u64(),
            segment,
            offset,
            self.checkpoint,
        ];
        for (i, field) in fields.iter().enumerate() {
            put(&mut out, 32 + 8 * i, &field.to_le_bytes());
        }
        let crc = crc32c::crc32c(&out[..SLOT - 4]);
        put(&mut out, SLOT - 4, &crc.to_le_bytes());
        out
    }

    /// The reverse: cluster, sequence and anchor; none for other bytes.
    pub fn decode(b: &[u8]) -> Option<(u128, u64, Anchor)> {
        let sealed = b.len() == SLOT
            && crc32c::crc32c(&b[..SLOT - 4]).to_le_bytes() == b[SLOT - 4..]
            && b[..8] == MAGIC
            && u16_at(b, 8) == FORMAT;
        if !sealed {
            return None;
        }
        let (segment, offset) = (u64_at(b, 56), u64_at(b, 64));
        let anchor = Anchor {
            term: u64_at(b, 40),
            position: Position::from_u64(u64_at(b, 48)),
            point: (segment > 0).then_some(LogPoint { segment, offset }),
            checkpoint: u64_at(b, 72),
        };
        Some((u128_at(b, 16), u64_at(b, 32), anchor))
    }
}

/// The file, and what it says.
pub(crate) struct AnchorFile {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    cluster: u128,
    /// Sequence and anchor of the slot that counts. Held while the file is written.
    state: Mutex<Option<(u64, Anchor)>>,
}

impl AnchorFile {
    pub(crate) fn load(disk: Arc<dyn Disk>, dir: &Path, cluster: u128) -> Result<AnchorFile> {
        let path = dir.join(ANCHOR_FILE);
        let state = match disk.read(&path) {
            Ok(bytes) => {
                let newest = bytes.chunks(SLOT).filter_map(Anchor::decode);
                let newest = newest.max_by_key(|(_, sequence, _)| *sequence);
                let bad = "neither slot is whole: what the log should hold is not known";
                let (of, sequence, anchor) = newest.ok_or_else(|| Error::corrupt(&path, 0, bad))?;
                if of != cluster {
                    let reason = "the anchor belongs to another cluster".into();
                    return Err(Error::NotOurs { path, reason });
                }
                Some((sequence, anchor))
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(Error::io("reading", &path, e)),
        };
        Ok(AnchorFile {
            disk,
            dir: dir.to_owned(),
            cluster,
            state: Mutex::new(state),
        })
    }

    fn get(&self) -> Option<Anchor> {
        self.state.lock().map(|s| s.1)
    }

    /// Makes this the anchor, durably, from what it was; whether that changed anything.
    fn change(&self, to: impl FnOnce(Option<Anchor>) -> Anchor) -> Result<bool> {
        let mut state = self.state.lock();
        let anchor = to(state.map(|s| s.1));
        // A segment without a group goes at the next start; the position says as much.
        let anchor = Anchor {
            point: anchor.point.filter(|p| p.offset > SEGMENT_HEADER),
            ..anchor
        };
        if state.is_some_and(|s| s.1 == anchor) {
            return Ok(false);
        }
        let sequence = state.map_or(0, |s| s.0 + 1);
        let slot = anchor.encode(self.cluster, sequence);
        if state.is_none() {
            let mut both = vec![0; 2 * PAGE];
            put(&mut both, 0, &slot);
            terms::replace(&*self.disk, &self.dir, ANCHOR_FILE, &both)?;
        } else {
            let path = self.dir.join(ANCHOR_FILE);
            let file = self.disk.open(&path, OpenMode::Write);
            let file = file.map_err(|e| Error::io("opening", &path, e))?;
            fault::fallible("wal.anchor.before_write")
                .and_then(|()| file.write_all_at(&slot, (sequence % 2) * PAGE as u64))
                .map_err(|e| Error::io("writing", &path, e))?;
            fault::point("wal.anchor.before_sync");
            // The other slot has what was known before.
            file.sync_data().map_err(|e| Error::io("sync", &path, e))?;
        }
        *state = Some((sequence, anchor));
        Ok(true)
    }
}

/// How far the log's writer has synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    pub term: u64,
    pub position: Position,
    pub point: LogPoint,
}

impl LogDir {
    /// How far the present writer has synced; none before its first sync.
    pub fn reach(&self) -> Option<Reach> {
        *self.reach.lock()
    }
}

impl DataDir {
    /// What the log here must hold; none in a directory that no start has served yet.
    pub fn anchor(&self) -> Option<Anchor> {
        self.anchor.get()
    }

    /// The log is known to hold at least this, too; durable when it returns.
    pub fn raise_anchor(&self, to: Anchor) -> Result<()> {
        self.anchor
            .change(|old| old.map_or(to, |old| old.or(to)))
            .map(drop)
    }

    /// The log holds this and may hold no more: before it is cut or replaced, or when a shorter one is accepted. Durable when it returns.
    pub fn set_anchor(&self, to: Anchor) -> Result<()> {
        self.anchor.change(|_| to).map(drop)
    }

    /// Writes down what the writer has synced since; whether there was anything.
    pub fn note_reach(&self) -> Result<bool> {
        let Some(reach) = self.log().reach() else {
            return Ok(false);
        };
        let to = Anchor {
            term: reach.term,
            position: reach.position,
            // What was known of the segment before it stays.
            point: (reach.point.offset > SEGMENT_HEADER).then_some(reach.point),
            checkpoint: 0,
        };
        self.anchor.change(|old| old.map_or(to, |old| old.or(to)))
    }

    /// The log ends here from now on, as far as the anchor knows: comes before it is cut.
    pub(crate) fn lower_anchor(&self, position: Position, point: LogPoint) -> Result<()> {
        let Some(old) = self.anchor.get() else {
            return Ok(());
        };
        self.set_anchor(Anchor {
            position: old.position.min(position),
            // A segment that has no group yet goes at the next start.
            point: (old.point.min(Some(point))).filter(|p| p.offset > SEGMENT_HEADER),
            ..old
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn anchor(n: u64) -> Anchor {
        Anchor {
            term: 3,
            position: Position::from_u64(n),
            point: Some(LogPoint {
                segment: 7,
                offset: 128 + n,
            }),
            checkpoint: 2,
        }
    }

    #[test]
    fn a_slot_is_whole_or_nothing() {
        let slot = anchor(9).encode(5, 11);
        assert_eq!(Anchor::decode(&slot), Some((5, 11, anchor(9))));
        let none = Anchor {
            point: None,
            ..anchor(9)
        };
        assert_eq!(Anchor::decode(&none.encode(5, 11)), Some((5, 11, none)));
        for at in 0..SLOT {
            let mut damaged = slot;
            damaged[at] ^= 4;
            assert_eq!(Anchor::decode(&damaged), None, "byte {at}");
        }
        assert_eq!(Anchor::decode(&slot[..SLOT - 1]), None);
    }

    #[test]
    fn a_torn_write_leaves_the_value_before() {
        let disk = env::MemDisk::new();
        let dir = PathBuf::from("/d");
        disk.create_dir_all(&dir).unwrap();
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let file = AnchorFile::load(shared.clone(), &dir, 5).unwrap();
        assert_eq!(file.get(), None);
        for n in 1..6 {
            assert!(file.change(|_| anchor(n)).unwrap());
            assert!(!file.change(|_| anchor(n)).unwrap());
            let again = AnchorFile::load(shared.clone(), &dir, 5).unwrap();
            assert_eq!(again.get(), Some(anchor(n)));
            assert!(AnchorFile::load(shared.clone(), &dir, 6).is_err());
        }
        // The newest was the fifth, in slot 0: half of it is lost.
        let path = dir.join(ANCHOR_FILE);
        let raw = shared.open(&path, OpenMode::Write).unwrap();
        raw.write_all_at(&[0; 100], 20).unwrap();
        let before = AnchorFile::load(shared.clone(), &dir, 5).unwrap();
        assert_eq!(before.get(), Some(anchor(4)));
        raw.write_all_at(&[0; 100], PAGE as u64 + 20).unwrap();
        let error = AnchorFile::load(shared, &dir, 5).err().unwrap();
        assert!(matches!(error, Error::Corrupt { .. }), "{error}");
    }
}
