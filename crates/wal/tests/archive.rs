//! What was archived is read back as it was; what is cut short, damaged or missing there is found.

mod common;

use base::Position;
use common::*;
use env::Disk;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wal::archive::{Files, Objects};
use wal::{Archive, DataDir, Error, LogReader, SegmentName};

const TERM: u64 = 1;

struct World {
    disk: Arc<dyn Disk>,
    dir: DataDir,
    archive: Archive,
}

/// A log of several small segments, the finished ones archived.
fn archived(commits: u32) -> World {
    let (_, disk) = mem();
    let (dir, _, recovered) = recover(disk.clone()).unwrap();
    let mut log = writer(&dir, &recovered).unwrap();
    for n in 1..=commits {
        log.append_group(&[commit(n, 600)], Position::ZERO).unwrap();
        log.sync().unwrap();
    }
    let files = Files::new(disk.clone(), Path::new("/archive"));
    let archive = Archive::new(Arc::new(files), dir.cluster());
    for (name, _) in archive.missing(TERM, dir.log()).unwrap() {
        assert!(archive.copy_segment(TERM, dir.log(), name).unwrap());
    }
    World { disk, dir, archive }
}

impl World {
    fn names(&self) -> Vec<SegmentName> {
        self.archive.segments(TERM).unwrap()
    }

    fn path(&self, name: SegmentName) -> PathBuf {
        let cluster = format!("{:032x}", self.dir.cluster());
        let below = format!("{TERM:020}/wal/{}", name.file_name());
        Path::new("/archive").join(cluster).join(below)
    }

    /// All positions after `from` that the archive gives, and how it ended.
    fn read(&self, from: Position) -> (Vec<u32>, Option<Error>) {
        let log = self.archive.log(TERM);
        let mut reader = match LogReader::open(log, self.dir.cluster(), from) {
            Ok(r) => r,
            Err(e) => return (vec![], Some(e)),
        };
        let mut groups = Vec::new();
        loop {
            match reader.next_group() {
                Ok(Some(g)) => groups.push(g),
                Ok(None) => return (lasts(&groups), None),
                Err(e) => return (lasts(&groups), Some(e)),
            }
        }
    }
}

#[test]
fn what_was_archived_is_read_back_and_joins_the_directory() {
    let w = archived(40);
    let own = w.dir.log().list().unwrap();
    assert!(own.len() > 4, "{own:?}");
    assert_eq!(w.names(), own[..own.len() - 1]);
    assert!(w.archive.missing(TERM, w.dir.log()).unwrap().is_empty());
    let (read, ended) = w.read(Position::ZERO);
    assert!(ended.is_none(), "{ended:?}");
    let last = own[own.len() - 1].first.order();
    assert_eq!(read, (1..last).collect::<Vec<_>>());
    assert_eq!(w.read(at(7)).0, (8..last).collect::<Vec<_>>());
    // The directory loses its oldest segments; the archive goes on into what is left.
    let mut out = w.dir.begin_checkpoint(at(40)).unwrap();
    out.section(1, b"schema").unwrap();
    out.finish(at(40)).unwrap();
    assert!(w.dir.prune(at(20)).unwrap() > 1);
    let first = w.dir.log().list().unwrap()[0].number;
    let back = w.archive.reaches_back_to(TERM, first).unwrap();
    assert_eq!(back, Some(Position::ZERO));
    let none = w.archive.reaches_back_to(TERM, 1000).unwrap();
    assert_eq!(none, None, "a hole between archive and directory");
    assert_eq!(w.archive.reaches_back_to(TERM + 1, first).unwrap(), None);
    // A segment that is gone cannot be copied any more.
    assert!(!w.archive.copy_segment(TERM, w.dir.log(), own[0]).unwrap());
    // Of checkpoints as many stay as are wanted.
    for n in 0..3 {
        let newest = w.dir.latest_checkpoint().unwrap().unwrap();
        assert!(w.archive.copy_checkpoint(TERM, &newest).unwrap());
        assert!(!w.archive.copy_checkpoint(TERM, &newest).unwrap());
        w.dir
            .begin_checkpoint(at(41 + n))
            .unwrap()
            .finish(at(41 + n))
            .unwrap();
    }
    assert_eq!(w.archive.checkpoints(TERM).unwrap(), [1, 2, 3]);
    assert_eq!(w.archive.retain_checkpoints(TERM, 2).unwrap(), 1);
    assert_eq!(w.archive.checkpoints(TERM).unwrap(), [2, 3]);
}

#[test]
fn a_damaged_or_short_object_is_found() {
    for cut in [0, 10, 700, 2000] {
        let w = archived(40);
        let second = w.path(w.names()[1]);
        let bytes = w.disk.read(&second).unwrap();
        let file = w.disk.open(&second, env::OpenMode::Truncate).unwrap();
        file.write_all_at(&bytes[..cut], 0).unwrap();
        let (read, ended) = w.read(Position::ZERO);
        assert!(
            matches!(ended, Some(Error::Corrupt { .. })),
            "{cut}: {ended:?}"
        );
        assert!(read.len() < 12, "{cut}: {read:?}");
    }
    let w = archived(40);
    let second = w.path(w.names()[1]);
    let mut bytes = w.disk.read(&second).unwrap();
    bytes[1000] ^= 1;
    let file = w.disk.open(&second, env::OpenMode::Truncate).unwrap();
    file.write_all_at(&bytes, 0).unwrap();
    let (_, ended) = w.read(Position::ZERO);
    assert!(matches!(ended, Some(Error::Corrupt { .. })), "{ended:?}");
    let told = ended.unwrap().to_string();
    assert!(told.contains("archive"), "{told}");
}

#[test]
fn a_hole_ends_what_counts() {
    let w = archived(40);
    let names = w.names();
    w.disk.remove(&w.path(names[1])).unwrap();
    assert_eq!(w.names(), names[2..]);
    let (_, ended) = w.read(Position::ZERO);
    assert!(matches!(ended, Some(Error::Missing { .. })), "{ended:?}");
    // It is copied again while it is there.
    let missing = w.archive.missing(TERM, w.dir.log()).unwrap();
    assert_eq!(missing.len(), 2, "the one before the hole counts no more");
}

/// A server copies a finished segment while a backup copies the same one as far as it was written.
#[test]
fn two_writers_of_one_segment_do_not_share_a_file() {
    let (_, disk) = mem();
    let files = &Files::new(disk, Path::new("/archive"));
    let whole = vec![7; 64 << 10];
    std::thread::scope(|s| {
        let backup = s.spawn(|| {
            for _ in 0..2000 {
                files.put("c/1/wal/2-9.part", &[1; 100]).expect("room");
            }
        });
        while !backup.is_finished() {
            files.put("c/1/wal/2-9.wal", &whole).expect("room");
            assert_eq!(files.len("c/1/wal/2-9.wal").expect("it is there"), 64 << 10);
        }
    });
    let mut names = files.list("c/1/wal").expect("a folder");
    names.sort();
    assert_eq!(names, ["2-9.part", "2-9.wal"]);
}
