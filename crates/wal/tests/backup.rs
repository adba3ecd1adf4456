//! Backups into an archive, and directories that are made from it: all that was durable, up to the end, a position or a time.

mod common;
#[path = "backup/errors.rs"]
mod errors;
#[path = "backup/retention.rs"]
mod retention;

use base::Position;
use base::record::{CommitBuilder, RecordKind};
use common::*;
use env::{Disk, MemDisk};
use std::path::Path;
use std::sync::Arc;
use wal::archive::Files;
use wal::backup::{BackedUp, back_up, check};
use wal::restore::{Restored, Target, clusters, restore};
use wal::retention::Keep;
use wal::{Archive, Commit, DataDir, Error, LogWriter, Objects, Progress, Recovered, Result};

const TERM: u64 = 1;

/// A commit that puts its number under one of four keys.
fn put(n: u32) -> Commit {
    let mut b = CommitBuilder::new();
    b.push(
        RecordKind::Put,
        7,
        &[n as u8 % 4],
        &n.to_be_bytes().repeat(100),
    );
    let (heads, data) = b.finish(at(n), 0);
    Commit {
        position: at(n),
        heads,
        data,
    }
}

struct World {
    mem: MemDisk,
    disk: Arc<dyn Disk>,
    dir: DataDir,
    log: LogWriter,
    place: Arc<dyn Objects>,
}

impl World {
    fn new() -> World {
        let (mem, disk) = mem();
        let (dir, _, recovered) = recover(disk.clone()).unwrap();
        let log = writer(&dir, &recovered).unwrap();
        let place = Arc::new(Files::new(disk.clone(), Path::new("/place")));
        World {
            mem,
            disk,
            dir,
            log,
            place,
        }
    }

    /// Groups of three commits each, from one number to another.
    fn write(&mut self, from: u32, to: u32) {
        let all: Vec<Commit> = (from..=to).map(put).collect();
        for group in all.chunks(3) {
            self.log.append_group(group, Position::ZERO).unwrap();
            self.log.sync().unwrap();
        }
    }

    /// A checkpoint that holds what is there up to a commit.
    fn checkpoint(&self, n: u32) {
        let mut c = self.dir.begin_checkpoint(at(n)).unwrap();
        for key in 0..4u8 {
            let last = (0..=n).rev().find(|m| *m as u8 % 4 == key).unwrap();
            let row = last.to_be_bytes().repeat(100);
            c.put(7, at(last), &[key], Some(&row)).unwrap();
        }
        c.finish(at(n)).unwrap();
    }

    fn copy(&self, time: u64) -> Result<BackedUp> {
        back_up(&self.disk, &root(), &self.place, &|| time, &|_| {})
    }

    /// Copies, and reads what was copied.
    fn back_up(&self, time: u64) -> Result<BackedUp> {
        let done = self.copy(time)?;
        let archive = Archive::new(self.place.clone(), self.dir.cluster());
        check(&archive, &done, false, &|| time, &|_| {})?;
        Ok(done)
    }

    fn restore(&self, to: &str, target: Target) -> Result<Restored> {
        let env = env_on(self.disk.clone());
        let cluster = clusters(&*self.place)?[0];
        restore(
            &env,
            &self.place,
            cluster,
            Path::new(to),
            target,
            small().log,
            &|_| {},
        )
    }

    /// The last commit in a directory, and the rows that recovery finds there.
    fn found(&self, dir: &str) -> (Position, Vec<u32>) {
        let dir = DataDir::open(&env_on(self.disk.clone()), Path::new(dir), any()).unwrap();
        assert_ne!(dir.cluster(), self.dir.cluster());
        let (sink, recovered) = recover_dir(&dir).unwrap();
        let rows = rows_of(&sink);
        (recovered.end.last, rows)
    }
}

/// Small segments, of any cluster.
fn any() -> wal::DirOptions {
    wal::DirOptions {
        cluster: None,
        ..small()
    }
}

fn recover_dir(dir: &DataDir) -> Result<(Memory, Recovered)> {
    let memory = Memory::default();
    let recovered = wal::recover(dir, &memory, 1, &Progress::default())?;
    Ok((memory, recovered))
}

/// The numbers under the four keys, from a checkpoint and the log behind it.
fn rows_of(sink: &Memory) -> Vec<u32> {
    let mut newest = std::collections::BTreeMap::new();
    let number = |row: &[u8]| u32::from_be_bytes(row[..4].try_into().unwrap());
    for ((_, key), (position, row)) in &*sink.rows.lock() {
        newest.insert(key.clone(), (*position, number(row.as_ref().unwrap())));
    }
    for group in &*sink.groups.lock() {
        let (mut heads, mut data) = (group.heads(), group.data());
        for _ in 0..group.header().count {
            let c = base::record::Commit::take(&mut heads, &mut data).unwrap();
            for r in c.iter().map(|r| r.unwrap()) {
                let e = newest.entry(r.key.to_vec()).or_insert((Position::ZERO, 0));
                if e.0 < c.position {
                    *e = (c.position, number(r.row));
                }
            }
        }
    }
    newest.into_values().map(|v| v.1).collect()
}

fn wanted(n: u32) -> (Position, Vec<u32>) {
    let newest = |key: u32| (1..=n).rev().find(|m| m % 4 == key).unwrap();
    (at(n), (0..4).map(newest).collect())
}

#[test]
fn a_backup_has_all_that_was_durable_and_the_next_copies_what_is_new() {
    let mut w = World::new();
    w.write(1, 40);
    let first = w.back_up(1000).unwrap();
    assert_eq!(
        (first.term, first.last, first.checkpoint),
        (TERM, at(40), 0)
    );
    w.restore("/one", Target::End).unwrap();
    assert_eq!(w.found("/one"), wanted(40));

    w.checkpoint(40);
    w.write(41, 61);
    let second = w.back_up(2000).unwrap();
    assert_eq!((second.last, second.checkpoint), (at(61), 1));
    assert!(
        second.segments < first.segments,
        "{second:?} after {first:?}"
    );
    let made = w.restore("/two", Target::End).unwrap();
    assert_eq!((made.checkpoint, made.last), (1, at(61)));
    assert_eq!(w.found("/two"), wanted(61));
    // The log in the archive ends before what is wanted, or has it.
    for (n, reached) in [(50, true), (61, true), (62, false)] {
        let to = format!("/position-{n}");
        let made = w.restore(&to, Target::Position(at(n))).unwrap();
        assert_eq!(made.reached, reached, "{n}");
    }

    // Nothing new: the unfinished segment is written again, and no other.
    let third = w.back_up(3000).unwrap();
    assert_eq!((third.segments, third.last), (1, at(61)));
}

#[test]
fn a_restore_ends_at_the_position_or_the_time_that_is_asked_for() {
    let mut w = World::new();
    w.write(1, 20);
    w.back_up(1000).unwrap();
    w.write(21, 44);
    w.back_up(2000).unwrap();
    w.checkpoint(44);
    w.write(45, 60);
    w.back_up(3000).unwrap();
    // In the middle of a group, before a checkpoint, at its end, behind it, behind the end.
    for n in [4, 5, 31, 43, 44, 45, 53, 60, 99] {
        let to = format!("/at-{n}");
        let made = w.restore(&to, Target::Position(at(n))).unwrap();
        assert_eq!(made.checkpoint, u64::from(n >= 44), "{n}");
        assert_eq!(w.found(&to), wanted(n.min(60)), "{n}");
    }
    for (time, n) in [(1000, 20), (1999, 20), (2000, 44), (9999, 60)] {
        let to = format!("/time-{time}");
        w.restore(&to, Target::Time(time)).unwrap();
        assert_eq!(w.found(&to), wanted(n), "{time}");
    }
    let why = w.restore("/never", Target::Time(999)).unwrap_err();
    assert!(matches!(why, Error::NotOurs { .. }), "{why}");
    assert!(w.disk.list(Path::new("/never")).is_err());
}

#[test]
fn what_no_kept_checkpoint_needs_goes() {
    let mut w = World::new();
    for n in 0..4 {
        w.write(n * 20 + 1, n * 20 + 20);
        w.back_up(u64::from(n)).unwrap();
        w.checkpoint(n * 20 + 20);
    }
    w.write(81, 90);
    w.back_up(9).unwrap();
    let archive = Archive::new(w.place.clone(), w.dir.cluster());
    let before = archive.segments(TERM).unwrap().len();
    assert!(archive.prune(9, Keep::Bases(2)).unwrap() > 0);
    assert_eq!(archive.checkpoints(TERM).unwrap().len(), 2);
    let after = archive.segments(TERM).unwrap().len();
    assert!(1 < after && after < before, "{after} of {before}");
    w.restore("/new", Target::End).unwrap();
    assert_eq!(w.found("/new"), wanted(90));
    w.restore("/old", Target::Position(at(70))).unwrap();
    assert_eq!(w.found("/old"), wanted(70));
    let why = w.restore("/gone", Target::Position(at(30))).unwrap_err();
    assert!(why.to_string().contains("holds no state before"), "{why}");
    // And it goes on.
    w.write(91, 95);
    w.back_up(10).unwrap();
    w.restore("/more", Target::End).unwrap();
    assert_eq!(w.found("/more"), wanted(95));
}

/// A primary archives its checkpoints at once, and the segment that is being written when it is finished.
#[test]
fn a_checkpoint_whose_log_is_not_there_yet_is_passed_over() {
    let mut w = World::new();
    let archive = Archive::new(w.place.clone(), w.dir.cluster());
    let step = |w: &World| {
        for (name, _) in archive.missing(TERM, w.dir.log()).unwrap() {
            assert!(archive.copy_segment(TERM, w.dir.log(), name).unwrap());
        }
        let newest = w.dir.latest_checkpoint().unwrap().unwrap();
        archive.copy_checkpoint(TERM, &newest).unwrap();
    };
    w.write(1, 20);
    w.checkpoint(12);
    step(&w);
    w.write(21, 40);
    // It ends where the log ends, which is in no finished segment.
    let c = w.dir.begin_checkpoint(at(30)).unwrap();
    c.finish(at(40)).unwrap();
    step(&w);
    let made = w.restore("/end", Target::End).unwrap();
    assert_eq!(made.checkpoint, 1);
    assert!(made.last > at(20) && made.last < at(40), "{made:?}");
    assert_eq!(w.found("/end"), wanted(made.last.order()));
}

/// Backups of several terms: the checkpoints of the older one stay until the newer one has as many.
#[test]
fn older_terms_stay_until_the_newer_has_enough() {
    let mut w = World::new();
    w.write(1, 20);
    w.checkpoint(20);
    w.write(21, 24);
    w.back_up(1).unwrap();
    w.dir.add_term(2, at(24)).unwrap();
    w.log.set_term(2);
    w.write(25, 40);
    w.checkpoint(40);
    w.write(41, 44);
    assert_eq!(w.back_up(2).unwrap().term, 2);
    let archive = Archive::new(w.place.clone(), w.dir.cluster());
    archive.prune(2, Keep::Bases(2)).unwrap();
    w.restore("/old", Target::Position(at(22))).unwrap();
    assert_eq!(w.found("/old"), wanted(22));
    archive.prune(2, Keep::Bases(1)).unwrap();
    assert!(w.restore("/gone", Target::Position(at(22))).is_err());
    w.restore("/new", Target::End).unwrap();
    assert_eq!(w.found("/new"), wanted(44));
}

/// A moment of the newer term that nothing is kept of is not taken for the end of the older one.
#[test]
fn an_older_term_stands_for_no_moment_of_a_newer_one() {
    let mut w = World::new();
    w.write(1, 20);
    w.checkpoint(20);
    w.write(21, 24);
    w.back_up(1000).unwrap();
    w.dir.add_term(2, at(24)).unwrap();
    w.log.set_term(2);
    w.write(25, 40);
    w.checkpoint(40);
    w.back_up(2000).unwrap();
    w.write(41, 60);
    w.checkpoint(60);
    w.write(61, 62);
    w.back_up(3000).unwrap();
    w.restore("/kept", Target::Time(2500)).unwrap();
    assert_eq!(w.found("/kept"), wanted(40));
    // As a primary does that archives.
    let archive = Archive::new(w.place.clone(), w.dir.cluster());
    archive.retain_checkpoints(2, 1).unwrap();
    for (to, target) in [
        ("/no-time", Target::Time(2500)),
        ("/no-position", Target::Position(at(50))),
    ] {
        let why = w.restore(to, target).unwrap_err();
        assert!(matches!(why, Error::NotOurs { .. }), "{target:?}: {why}");
    }
    for (to, target, n) in [
        ("/old-time", Target::Time(1999), 24),
        ("/old-position", Target::Position(at(22)), 22),
        ("/new-time", Target::Time(3000), 62),
    ] {
        w.restore(to, target).unwrap();
        assert_eq!(w.found(to), wanted(n), "{target:?}");
    }
}

/// What an older term's log has above the beginning of the next one was lost in a fail-over.
#[test]
fn what_a_failover_lost_is_not_restored() {
    let mut w = World::new();
    w.write(1, 24);
    w.back_up(1000).unwrap();
    // The next term was begun by a replica that had less.
    w.dir.add_term(2, at(20)).unwrap();
    w.log.set_term(2);
    w.write(25, 40);
    w.checkpoint(40);
    w.back_up(2000).unwrap();
    let archive = Archive::new(w.place.clone(), w.dir.cluster());
    assert_eq!(archive.begins(2).unwrap(), Some(at(20)));
    archive.retain_checkpoints(2, 1).unwrap();
    // The new primary's directory did not reach back, say: its log is not there, and its only checkpoint is above.
    let folder = format!("{:032x}/{:020}/wal", w.dir.cluster(), 2);
    for name in w.place.list(&folder).unwrap() {
        w.place.remove(&format!("{folder}/{name}")).unwrap();
    }
    let why = w.restore("/lost", Target::Position(at(22))).unwrap_err();
    assert!(matches!(why, Error::NotOurs { .. }), "{why}");
    w.restore("/kept", Target::Position(at(20))).unwrap();
    assert_eq!(w.found("/kept"), wanted(20));
    // At that time the old primary showed more. It is not part of the history.
    w.restore("/time", Target::Time(1500)).unwrap();
    assert_eq!(w.found("/time"), wanted(20));
}

/// Between two backups the directory lets go what the second would have gone on from.
#[test]
fn a_hole_between_two_backups_leaves_both_sides() {
    let mut w = World::new();
    w.write(1, 20);
    w.checkpoint(20);
    w.back_up(1).unwrap();
    w.write(21, 70);
    w.checkpoint(70);
    w.dir.prune(at(70)).unwrap();
    w.write(71, 72);
    let second = w.back_up(2).unwrap();
    assert_eq!((second.last, second.checkpoint), (at(72), 2));
    w.restore("/new", Target::End).unwrap();
    assert_eq!(w.found("/new"), wanted(72));
    w.restore("/old", Target::Position(at(20))).unwrap();
    assert_eq!(w.found("/old"), wanted(20));
    let archive = Archive::new(w.place.clone(), w.dir.cluster());
    archive.prune(2, Keep::Bases(1)).unwrap();
    w.restore("/kept", Target::End).unwrap();
    assert_eq!(w.found("/kept"), wanted(72));
}

#[test]
fn a_backup_of_another_nodes_log_is_refused_before_anything_is_copied() {
    let mut w = World::new();
    w.write(1, 40);
    w.back_up(1).unwrap();
    // The same history in other segments.
    let other = MemDisk::new();
    let disk: Arc<dyn Disk> = Arc::new(other.clone());
    let (dir, _, recovered) = recover(disk.clone()).unwrap();
    let mut log = writer(&dir, &recovered).unwrap();
    for n in 1..=40 {
        log.append_group(&[put(n)], Position::ZERO).unwrap();
        log.sync().unwrap();
    }
    let before = w.mem.list(Path::new("/place")).unwrap();
    let why = back_up(&disk, &root(), &w.place, &|| 2, &|_| {}).unwrap_err();
    assert!(why.to_string().contains("another node"), "{why}");
    assert_eq!(w.mem.list(Path::new("/place")).unwrap(), before);
    w.restore("/still", Target::End).unwrap();
    assert_eq!(w.found("/still"), wanted(40));
}

#[test]
fn a_restore_that_breaks_off_is_no_data_directory() {
    let mut w = World::new();
    w.write(1, 40);
    w.checkpoint(40);
    w.write(41, 50);
    w.back_up(1).unwrap();
    let cluster = w.dir.cluster();
    let mut whole = false;
    for n in 0..10_000 {
        let disk = w.mem.fork();
        let faulty = faulty(&disk);
        faulty.crash_at(n);
        let made = restore(
            &env_on(Arc::new(faulty)),
            &w.place,
            cluster,
            Path::new("/to"),
            Target::End,
            small().log,
            &|_| {},
        );
        let there = disk.read(Path::new("/to/CANON_VERSION")).is_ok();
        if made.is_ok() {
            whole = true;
            break;
        }
        let over: Arc<dyn Disk> = Arc::new(disk.clone());
        let opened = DataDir::open(&env_on(over), Path::new("/to"), any());
        // Either nothing can be started there, or all of it is there.
        if there && let Ok(dir) = opened {
            let (sink, recovered) = recover_dir(&dir).unwrap();
            assert_eq!(
                (recovered.end.last, rows_of(&sink)),
                wanted(50),
                "fault {n}"
            );
        }
    }
    assert!(whole, "it never came to its end");
}
