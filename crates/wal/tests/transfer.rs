//! Terms, a copy made from another node's checkpoint and log, what is kept for replicas, and what is set aside; with crashes at
//! every operation.

mod common;

use base::Position;
use common::*;
use env::faulty_disk::Op;
use env::{Disk, MemDisk, PowerCut};
use std::path::PathBuf;
use std::sync::Arc;
use wal::{DataDir, Error, Group, LogWriter, Result};

/// A node with commits 1 to `commits`, groups of three, a checkpoint at 10 (not the end of a group) and log from 1 on.
fn primary(disk: Arc<dyn Disk>, commits: u32) -> DataDir {
    let (dir, _, recovered) = recover(disk).unwrap();
    let mut log = LogWriter::resume(dir.log().clone(), &recovered.end, 4).unwrap();
    for first in (1..=commits).step_by(3) {
        let group: Vec<_> = (first..first + 3).map(|n| commit(n, 300)).collect();
        log.append_group(&group, at(first)).unwrap();
        log.sync().unwrap();
    }
    let mut checkpoint = dir.begin_checkpoint(at(10)).unwrap();
    checkpoint.section(1, b"schema").unwrap();
    for n in 1..=10 {
        checkpoint
            .put(7, at(n), &n.to_be_bytes(), Some(b"row"))
            .unwrap();
    }
    checkpoint.finish(at(10)).unwrap();
    dir
}

/// Receives the newest checkpoint of `from` into `to`, in parts of 100 bytes, spoiling the byte at `spoil`.
fn receive(from: &DataDir, to: &Arc<DataDir>, spoil: Option<u64>) -> Result<Position> {
    let checkpoint = from.latest_checkpoint()?.expect("the primary has one");
    let mut receiver = to.receive_checkpoint(checkpoint.manifest().number, checkpoint.len())?;
    let mut at = 0;
    loop {
        let mut part = checkpoint.read_at(at, 100)?;
        if part.is_empty() {
            break;
        }
        if let Some(i) = spoil.and_then(|s| s.checked_sub(at)) {
            part.get_mut(i as usize).into_iter().for_each(|b| *b ^= 4);
        }
        receiver.write(at, &part)?;
        at += part.len() as u64;
        assert_eq!(receiver.progress(), (at, checkpoint.len()));
    }
    Ok(receiver.finish(&terms())?.start)
}

/// The history of the copies.
fn terms() -> [(u64, Position); 2] {
    [(1, Position::ZERO), (6, at(6))]
}

/// Appends what `from` has after `after` to the log of `to`.
fn follow(from: &DataDir, to: &DataDir, after: Position) -> Result<()> {
    let memory = Memory::default();
    let recovered = wal::recover(to, &memory, 1, &wal::Progress::default())?;
    assert_eq!(recovered.last, after);
    let mut log = LogWriter::resume(to.log().clone(), &recovered.end, 1)?;
    for group in read_all(from, after)?.0 {
        log.append_shipped(&group)?;
        log.sync()?;
    }
    Ok(())
}

#[test]
fn terms_are_kept_and_only_grow() {
    let (mem, disk) = mem();
    let dir = open(disk.clone()).unwrap();
    assert_eq!(dir.terms(), [(1, Position::ZERO)]);
    dir.add_term(5, at(20)).unwrap();
    dir.add_term(9, at(20)).unwrap();
    drop(dir);
    mem.power_cut(PowerCut::LoseAll);
    let dir = open(disk.clone()).unwrap();
    assert_eq!(
        dir.terms(),
        [(1, Position::ZERO), (5, at(20)), (9, at(20))],
        "durable when add_term returns"
    );
    dir.set_terms(&[(1, Position::ZERO), (5, at(3)), (7, at(30))])
        .unwrap();
    // Led from 20 on: nothing of term 7 ever arrived.
    dir.add_term(8, at(20)).unwrap();
    assert_eq!(dir.terms(), [(1, Position::ZERO), (5, at(3)), (8, at(20))]);
    dir.set_terms(&[(1, Position::ZERO), (6, at(3))]).unwrap();
    drop(dir);
    let path = root().join("CANON_TERMS");
    assert_eq!(disk.read(&path).unwrap(), b"1 0.0\n6 1.3\n");
    for nonsense in [
        "",
        "1",
        "1 2",
        "1 0.0\n1 1.0",
        "2 1.0\n3 0.9",
        "1 0.16777216",
        "1 9999999999999.0",
        "x 1.1",
    ] {
        put_file(&*disk, &path, nonsense.as_bytes());
        let error = open(disk.clone()).err().unwrap();
        assert!(
            matches!(error, Error::Corrupt { .. }),
            "{nonsense:?}: {error}"
        );
    }
}

#[test]
fn a_seal_outlives_a_crash() {
    let (mem, disk) = mem();
    let dir = open(disk.clone()).unwrap();
    assert_eq!(dir.sealed_for().unwrap(), None);
    dir.unseal().unwrap();
    dir.seal_for("node2").unwrap();
    drop(dir);
    mem.power_cut(PowerCut::LoseAll);
    let dir = open(disk.clone()).unwrap();
    assert_eq!(dir.sealed_for().unwrap().as_deref(), Some("node2"));
    dir.unseal().unwrap();
    drop(dir);
    mem.power_cut(PowerCut::LoseAll);
    assert_eq!(open(disk).unwrap().sealed_for().unwrap(), None);
}

#[test]
fn a_history_that_parted_says_so_until_it_is_another_or_counts() {
    let (mem, disk) = mem();
    let dir = open(disk.clone()).unwrap();
    let at = Position::new(5, 1);
    let parted = |dir: &DataDir| dir.diverged().unwrap();
    assert_eq!(parted(&dir), None);
    dir.diverge(9, at).unwrap();
    drop(dir);
    mem.power_cut(PowerCut::LoseAll);
    let dir = open(disk).unwrap();
    assert_eq!(parted(&dir), Some((9, at)));
    // It was cut back, or agrees after all; a copy came; a term begins with it.
    dir.agree().unwrap();
    assert_eq!(parted(&dir), None);
    dir.diverge(9, at).unwrap();
    dir.set_terms(&dir.terms()).unwrap();
    assert_eq!(parted(&dir), None);
    dir.diverge(9, at).unwrap();
    dir.add_term(12, Position::new(90, 0)).unwrap();
    assert_eq!(parted(&dir), None);
}

#[test]
fn who_has_led_says_so_until_its_primary_has_all_that_is_here() {
    let (mem, disk) = mem();
    let dir = open(disk.clone()).unwrap();
    assert!(!dir.has_led().unwrap());
    for _ in 0..2 {
        dir.lead().unwrap();
    }
    // Whatever becomes of what was its own alone.
    dir.diverge(9, at(3)).unwrap();
    dir.agree().unwrap();
    dir.set_terms(&dir.terms()).unwrap();
    drop(dir);
    mem.power_cut(PowerCut::LoseAll);
    let dir = open(disk.clone()).unwrap();
    assert!(dir.has_led().unwrap());
    dir.follow().unwrap();
    dir.follow().unwrap();
    drop(dir);
    mem.power_cut(PowerCut::LoseAll);
    assert!(!open(disk).unwrap().has_led().unwrap());
}

#[test]
fn a_crash_leaves_the_old_terms_or_the_new() {
    for nth in 1.. {
        let (mem, disk) = mem();
        drop(open(disk).unwrap());
        let faulty = faulty(&mem);
        let dir = open(Arc::new(faulty.clone())).unwrap();
        faulty.crash_at(faulty.changes() + nth);
        let added = dir.add_term(2, at(8));
        let crashed = faulty.crashed();
        drop(dir);
        for cut in [PowerCut::LoseAll, PowerCut::KeepAll, PowerCut::Random(nth)] {
            let fork = mem.fork();
            fork.power_cut(cut);
            let terms = open(Arc::new(fork)).unwrap().terms();
            let (old, new) = (
                vec![(1, Position::ZERO)],
                vec![(1, Position::ZERO), (2, at(8))],
            );
            assert!(terms == new || (crashed && terms == old), "{terms:?}");
        }
        if !crashed {
            assert!(nth > 3);
            return added.unwrap();
        }
    }
}

/// The new terms are in their place, and the directory could not be synced: nobody knows which of them a start finds.
#[test]
fn terms_that_may_have_been_written_can_be_taken_back() {
    let (mem, disk) = mem();
    drop(open(disk).unwrap());
    let faulty = faulty(&mem);
    let dir = open(Arc::new(faulty.clone())).unwrap();
    let old = dir.terms();
    let root = dir.path().to_owned();
    faulty.refuse(move |op, path| op == Op::SyncDir && path == root);
    dir.add_term(2, at(8)).unwrap_err();
    assert_eq!(dir.terms(), old);
    let found = || open(Arc::new(mem.fork())).unwrap().terms();
    assert_eq!(found().len(), 2, "the fault comes too early");
    dir.set_terms(&old).unwrap_err();
    faulty.refuse(|_, _| false);
    dir.set_terms(&old).unwrap();
    assert_eq!((found(), dir.terms()), (old.clone(), old));
}

#[test]
fn a_checkpoint_and_the_log_behind_it_make_an_equal_copy() {
    let (_, disk) = mem();
    let from = primary(disk, 24);
    let (mem, disk) = mem();
    let to = Arc::new(open(disk.clone()).unwrap());
    to.begin_copy(&terms()).unwrap();
    assert_eq!((to.terms().len(), to.heard_term().unwrap()), (1, 6));
    assert!(to.is_empty().unwrap());
    let start = receive(&from, &to, None).unwrap();
    assert_eq!(start, at(10));
    assert!(!to.is_empty().unwrap());
    assert_eq!(to.terms(), terms());
    // The first group that follows is 10..12: it begins at a commit that is in the checkpoint.
    follow(&from, &to, start).unwrap();
    drop(to);
    mem.power_cut(PowerCut::LoseAll);
    let (to, memory, recovered) = recover(disk).unwrap();
    assert_eq!(recovered.last, at(24));
    assert_eq!(recovered.end.term, 4);
    assert_eq!(memory.rows.lock().len(), 10);
    assert_eq!(*memory.sections.lock(), [(1, b"schema".to_vec())]);
    let (sent, _) = read_all(&from, start).unwrap();
    let kept = memory.groups.lock();
    assert_eq!(kept.len(), sent.len());
    for (kept, sent) in kept.iter().zip(&sent) {
        assert_eq!(
            (kept.heads(), kept.data()),
            (sent.heads(), sent.data()),
            "the same commits"
        );
        let (k, s) = (kept.header(), sent.header());
        assert_eq!((k.published, k.term), (s.published, s.term));
    }
    assert_eq!(to.log().reaches_back_to().unwrap(), Some(at(9)));
}

#[test]
fn a_checkpoint_that_was_spoiled_on_the_way_is_refused() {
    let (_, disk) = mem();
    let from = primary(disk, 12);
    let len = from.latest_checkpoint().unwrap().unwrap().len();
    let (_, disk) = mem();
    let to = Arc::new(open(disk.clone()).unwrap());
    let mut refused = 0;
    for spoil in 0..len {
        match receive(&from, &to, Some(spoil)) {
            Err(Error::Corrupt { .. }) => refused += 1,
            Err(e) => panic!("{e}"),
            // Heads of blocks repeat what the index says, and padding is nobody's.
            Ok(_) => {}
        }
    }
    assert!(refused > len - 96, "{refused} of {len}");
    drop(to);
    let to = Arc::new(open(disk).unwrap());
    receive(&from, &to, None).unwrap();
}

/// A life that throws its own history away and takes another's.
fn start_anew(from: &DataDir, disk: Arc<dyn Disk>) -> Result<()> {
    let dir = Arc::new(open(disk)?);
    dir.set_aside(6, at(6), |_, _| ())?;
    dir.begin_copy(&terms())?;
    let start = receive(from, &dir, None)?;
    follow(from, &dir, start)
}

/// A history that goes: commits of its own behind 6.
fn old() -> MemDisk {
    let (mem, disk) = mem();
    let (dir, _, recovered) = recover(disk).unwrap();
    let mut log = writer(&dir, &recovered).unwrap();
    for n in [3, 6, 9, 12] {
        log.append_group(&[commit(n, 900)], at(n)).unwrap();
    }
    log.sync().unwrap();
    dir.log().prepare_spare(&|| ()).unwrap();
    drop(dir);
    mem.power_cut(PowerCut::KeepAll);
    mem
}

fn aside() -> PathBuf {
    root().join("set-aside")
}

/// The groups in a file of groups.
fn groups_of(mut bytes: &[u8]) -> Vec<Group> {
    let mut groups = Vec::new();
    while !bytes.is_empty() {
        let (header, _) = wal::GroupHeader::decode(bytes).unwrap();
        let (group, rest) = bytes.split_at(header.len() as usize);
        groups.push(Group::from_bytes(group.to_vec()).unwrap());
        bytes = rest;
    }
    groups
}

#[test]
fn a_crash_anywhere_leaves_the_old_history_or_the_new() {
    let (_, disk) = mem();
    let from = primary(disk, 24);
    let old = old();
    let operations = {
        let fork = old.fork();
        let disk = faulty(&fork);
        start_anew(&from, Arc::new(disk.clone())).unwrap();
        disk.changes()
    };
    let (mut olds, mut news) = (0, 0);
    for nth in 1..=operations {
        let life = old.fork();
        let disk = faulty(&life);
        disk.crash_at(nth);
        // The last operation may be one that nobody waits for.
        let _ = start_anew(&from, Arc::new(disk));
        for cut in [
            PowerCut::LoseAll,
            PowerCut::KeepAll,
            PowerCut::Random(nth),
            PowerCut::Random(nth + 7919),
        ] {
            let what = format!("crash at {nth} of {operations}, {cut:?}");
            let fork = life.fork();
            fork.power_cut(cut);
            let disk: Arc<dyn Disk> = Arc::new(fork.clone());
            let (dir, memory, recovered) =
                recover(disk.clone()).unwrap_or_else(|e| panic!("{what}: {e}"));
            let set_aside = disk.read(&aside().join("6-1.6.log")).unwrap_or_default();
            if recovered.checkpoint.is_some() {
                assert!(recovered.last >= at(10), "{what}");
                assert_eq!(dir.terms(), terms(), "{what}");
                news += 1;
            } else {
                assert_eq!(lasts(&memory.groups.lock()), [3, 6, 9, 12], "{what}");
                assert_eq!(dir.terms(), [(1, Position::ZERO)], "{what}");
                olds += 1;
            }
            if recovered.checkpoint.is_some() {
                assert_eq!(lasts(&groups_of(&set_aside)), [9, 12], "{what}");
                let report = disk.read(&aside().join("6-1.6.txt")).unwrap();
                assert!(String::from_utf8(report).unwrap().contains("2 commits"));
            }
            drop(dir);
            if recovered.checkpoint.is_none() {
                start_anew(&from, disk.clone()).unwrap_or_else(|e| panic!("{what}: {e}"));
                fork.power_cut(PowerCut::LoseAll);
                let (dir, _, recovered) = recover(disk).unwrap();
                assert_eq!(recovered.last, at(24), "{what}");
                assert_eq!(dir.terms().last(), Some(&(6, at(6))), "{what}");
            }
        }
    }
    assert!(olds > 5 && news > 5, "{olds} {news}: every ending was met");
}

/// What a node shares with the history that it left stays, and nothing comes back of what it had more.
#[test]
fn a_crash_anywhere_leaves_the_log_whole_or_cut() {
    let old = old();
    let back = |disk| -> Result<()> {
        let dir = open(disk)?;
        dir.set_aside(6, at(6), |_, _| ())?;
        assert!(dir.cut_back(at(7))?);
        Ok(())
    };
    let operations = {
        let disk = faulty(&old.fork());
        back(Arc::new(disk.clone())).unwrap();
        disk.changes()
    };
    let (mut olds, mut cuts) = (0, 0);
    for nth in 1..=operations {
        let life = old.fork();
        let disk = faulty(&life);
        disk.crash_at(nth);
        let _ = back(Arc::new(disk));
        for cut in [
            PowerCut::LoseAll,
            PowerCut::KeepAll,
            PowerCut::Random(nth),
            PowerCut::Random(nth + 7919),
        ] {
            let what = format!("crash at {nth} of {operations}, {cut:?}");
            let fork = life.fork();
            fork.power_cut(cut);
            let disk: Arc<dyn Disk> = Arc::new(fork.clone());
            let (dir, memory, recovered) =
                recover(disk.clone()).unwrap_or_else(|e| panic!("{what}: {e}"));
            let found = lasts(&memory.groups.lock());
            if found != [3, 6] {
                assert_eq!(found, [3, 6, 9, 12], "{what}");
                olds += 1;
                continue;
            }
            cuts += 1;
            let set_aside = disk.read(&aside().join("6-1.6.log")).unwrap();
            assert_eq!(lasts(&groups_of(&set_aside)), [9, 12], "{what}");
            let mut log = writer(&dir, &recovered).unwrap();
            log.append_group(&[commit(8, 900)], at(8)).unwrap();
            log.sync().unwrap();
            drop((log, dir));
            fork.power_cut(PowerCut::LoseAll);
            let (_, memory, _) = recover(disk).unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_eq!(lasts(&memory.groups.lock()), [3, 6, 8], "{what}");
        }
    }
    assert!(olds > 5 && cuts > 5, "{olds} {cuts}: both endings were met");
}

#[test]
fn a_log_is_not_cut_inside_a_group_or_below_the_checkpoint() {
    let (_, disk) = mem();
    // Groups of three, a checkpoint at 10.
    let dir = primary(disk.clone(), 24);
    assert!(!dir.cut_back(at(9)).unwrap(), "the checkpoint holds 10");
    assert!(!dir.cut_back(at(13)).unwrap(), "of one group with 14");
    assert!(dir.cut_back(at(30)).unwrap(), "it ends there already");
    assert_eq!(lasts(&read_all(&dir, at(10)).unwrap().0).last(), Some(&24));
    assert!(dir.cut_back(at(12)).unwrap());
    drop(dir);
    assert_eq!(recover(disk).unwrap().2.last, at(12));
}

/// A log with a group at each of these, three to a segment, and a checkpoint.
fn checkpointed(disk: Arc<dyn Disk>, groups: &[u32], checkpoint: u32) -> DataDir {
    let (dir, _, recovered) = recover(disk).unwrap();
    let mut log = writer(&dir, &recovered).unwrap();
    for n in groups {
        log.append_group(&[commit(*n, 1000)], at(*n)).unwrap();
    }
    log.sync().unwrap();
    let out = dir.begin_checkpoint(at(checkpoint)).unwrap();
    out.finish(at(checkpoint)).unwrap();
    dir
}

/// Lives that start on this disk, of which each appends; the log is one at each start.
fn goes_on(disk: Arc<dyn Disk>, mut expected: Vec<u32>) {
    for n in [1000, 2000, 3000, 4000, 5000] {
        let (dir, _, recovered) = recover(disk.clone()).unwrap();
        assert_eq!(
            lasts(&read_all(&dir, Position::ZERO).unwrap().0),
            expected,
            "before {n}"
        );
        let mut log = writer(&dir, &recovered).unwrap();
        log.append_group(&[commit(n, 1000)], at(n)).unwrap();
        log.sync().unwrap();
        expected.push(n);
    }
}

/// The checkpoint stands at the end of a group in the second of two segments: what the log has up to there in that segment stays, though
/// recovery does not read it.
#[test]
fn what_is_below_the_checkpoint_stays_when_the_log_is_cut() {
    let (_, disk) = mem();
    let dir = checkpointed(disk.clone(), &[3, 6, 9, 12, 15, 18], 12);
    assert_eq!(dir.log().list().unwrap().len(), 2);
    assert!(dir.cut_back(at(13)).unwrap());
    drop(dir);
    goes_on(disk, vec![3, 6, 9, 12]);
}

/// What goes begins with a segment, and the checkpoint stands above the last group before it.
#[test]
fn a_segment_that_is_cut_whole_leaves_no_gap() {
    let (_, disk) = mem();
    let dir = checkpointed(disk.clone(), &[3, 6, 9, 15, 18], 12);
    assert!(dir.cut_back(at(12)).unwrap());
    drop(dir);
    goes_on(disk, vec![3, 6, 9]);
}

/// So it is without a cut, when the next group begins a segment.
#[test]
fn a_segment_behind_a_checkpoint_that_is_newer_than_the_log_leaves_no_gap() {
    let (_, disk) = mem();
    drop(checkpointed(disk.clone(), &[3, 6, 9], 12));
    goes_on(disk, vec![3, 6, 9]);
}

#[test]
fn what_only_the_checkpoint_still_holds_is_set_aside_with_it() {
    let (_, disk) = mem();
    let dir = primary(disk.clone(), 24);
    dir.prune(Position::MAX).unwrap();
    assert!(dir.log().reaches_back_to().unwrap() > Some(at(2)));
    let mut described = 0u64;
    let done = dir
        .set_aside(7, at(2), |group, report| {
            described += 1;
            report.push_str(&format!("  first {}\n", group.header().first));
        })
        .unwrap();
    assert_eq!(described, done.groups);
    assert_eq!(done.last, at(24));
    let copy = disk.read(&done.checkpoint.unwrap()).unwrap();
    let original = dir.latest_checkpoint().unwrap().unwrap();
    assert_eq!(copy, original.read_at(0, usize::MAX).unwrap());
    let report = String::from_utf8(disk.read(&done.report).unwrap()).unwrap();
    assert!(report.contains("did not reach back") && report.contains("  first "));
    // Nothing to set aside: a report says so, no file of groups.
    let done = dir.set_aside(8, at(24), |_, _| ()).unwrap();
    assert_eq!((done.file, done.checkpoint, done.groups), (None, None, 0));
}

#[test]
fn log_is_kept_for_those_who_need_it_within_a_limit() {
    let (_, disk) = mem();
    let dir = primary(disk, 60);
    let segments = dir.log().list().unwrap();
    assert!(segments.len() > 4);
    assert_eq!(dir.log().reaches_back_to().unwrap(), Some(Position::ZERO));
    assert_eq!(dir.prune(Position::ZERO).unwrap(), 0, "a replica needs all");
    let within = dir.log().position_within(2 * 4096).unwrap();
    assert_eq!(within, segments[segments.len() - 2].first.prev());
    assert_eq!(
        dir.log().position_within(1).unwrap(),
        segments.last().unwrap().first.prev(),
        "the last one stays"
    );
    assert_eq!(
        dir.log().position_within(u64::MAX).unwrap(),
        segments[0].first.prev()
    );
    // The checkpoint is at 10: no further, whatever the limit says.
    dir.prune(within).unwrap();
    let oldest = dir.log().reaches_back_to().unwrap().unwrap();
    assert!(oldest > Position::ZERO && oldest <= at(10));
    let mut checkpoint = dir.begin_checkpoint(at(60)).unwrap();
    checkpoint.section(1, b"schema").unwrap();
    checkpoint.finish(at(60)).unwrap();
    dir.prune(within).unwrap();
    assert_eq!(dir.log().list().unwrap().len(), 2);
    assert!(read_all(&dir, within).is_ok());
    assert!(matches!(read_all(&dir, at(10)), Err(Error::Missing { .. })));
}

#[test]
fn spares_of_the_old_history_do_not_come_back() {
    let (_, other) = mem();
    let from = primary(other, 12);
    let (mem, disk): (MemDisk, Arc<dyn Disk>) = mem();
    let dir = Arc::new(primary(disk.clone(), 30));
    dir.prune(Position::MAX).unwrap();
    assert!(dir.log().spares() > 0);
    dir.begin_copy(&terms()).unwrap();
    assert!(
        dir.log().spares() > 0,
        "nothing goes before the copy is here"
    );
    receive(&from, &dir, None).unwrap();
    assert_eq!(dir.log().spares(), 0);
    assert!(disk.list(&root().join("wal")).unwrap().is_empty());
    drop(dir);
    mem.power_cut(PowerCut::LoseAll);
    assert_eq!(recover(disk).unwrap().2.last, at(10));
}
