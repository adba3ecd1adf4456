//! The disk fails, or the machine does: at every operation, in several ways. Nothing acknowledged is lost, and what is there
//! is a prefix of what was written.

mod common;

use base::Position;
use common::*;
use env::{Action, Disk, Fault, FaultyDisk, MemDisk, Op, PowerCut};
use std::io::ErrorKind;
use std::sync::Arc;
use wal::{Error, LogWriter};

/// A life of a node: logs commits of several sizes, takes checkpoints, prunes, until an error stops it. Returns the last
/// position that was acknowledged (appended and synced), and the last one tried.
fn live(disk: Arc<dyn Disk>) -> (u32, u32) {
    let (mut acknowledged, mut tried) = (0, 0);
    let life = || -> wal::Result<()> {
        let (dir, _, recovered) = recover(disk)?;
        tried = recovered.last.order();
        let mut log = writer(&dir, &recovered)?;
        // From here on readers see what was recovered.
        acknowledged = tried;
        dir.prune(Position::MAX)?;
        for step in 1..=14u32 {
            let first = tried + 1;
            let sizes = [100, 1500, 30, 5000, 700];
            let group: Vec<_> = (0..1 + step % 3)
                .map(|i| commit(first + i, sizes[(step + i) as usize % 5]))
                .collect();
            tried += group.len() as u32;
            log.append_group(&group, at(acknowledged))?;
            if step % 4 != 0 {
                log.sync()?;
                acknowledged = tried;
            }
            if step == 5 || step == 11 {
                let mut checkpoint = dir.begin_checkpoint(at(acknowledged))?;
                checkpoint.section(1, b"schema")?;
                for n in 1..=acknowledged {
                    checkpoint.put(7, at(n), &n.to_be_bytes(), Some(b"row"))?;
                }
                checkpoint.finish(at(acknowledged))?;
                dir.prune(Position::MAX)?;
            }
            if step == 8 {
                dir.log().prepare_spare(&|| ())?;
            }
        }
        log.sync()?;
        acknowledged = tried;
        Ok(())
    };
    // A full disk or a dead one: either way this life is over.
    let _ = life();
    (acknowledged, tried)
}

/// What is there after the crash: the checkpoint's rows and the log's groups, joined to a prefix 1..=n.
fn check(disk: Arc<dyn Disk>, acknowledged: u32, tried: u32, what: &str) -> u32 {
    let (dir, memory, recovered) = recover(disk).unwrap_or_else(|e| panic!("{what}: {e}"));
    let mut have: Vec<u32> = memory
        .rows
        .lock()
        .values()
        .map(|(p, _)| p.order())
        .collect();
    let start = recovered.checkpoint.map_or(0, |m| m.start.order());
    assert_eq!(
        have,
        (1..=start).collect::<Vec<_>>(),
        "{what}: rows of the checkpoint"
    );
    for group in memory.groups.lock().iter() {
        let header = group.header();
        let positions = (header.first.order()..=header.last.order()).filter(|p| *p > start);
        have.extend(positions);
        let expected: Vec<u8> = (header.first.order()..=header.last.order())
            .flat_map(|n| commit(n, 0).heads)
            .collect();
        assert_eq!(group.heads(), expected, "{what}");
    }
    let last = recovered.last.order();
    assert_eq!(
        have,
        (1..=last).collect::<Vec<_>>(),
        "{what}: a prefix without holes"
    );
    assert!(
        last >= acknowledged,
        "{what}: {acknowledged} was acknowledged, {last} is there"
    );
    assert!(
        last <= tried,
        "{what}: {last} is there, only {tried} was tried"
    );
    drop(dir);
    last
}

const CUTS: [PowerCut; 5] = [
    PowerCut::LoseAll,
    PowerCut::KeepAll,
    PowerCut::Random(1),
    PowerCut::Random(2),
    PowerCut::Random(3),
];

#[test]
fn a_crash_at_every_operation_loses_nothing_acknowledged() {
    let mem = MemDisk::new();
    let whole = faulty(&mem);
    let (acknowledged, tried) = live(Arc::new(whole.clone()));
    assert_eq!(acknowledged, tried);
    let operations = whole.changes();
    assert!(operations > 80, "the life is eventful enough: {operations}");
    let mut cut_short = 0;
    for nth in 1..=operations {
        let mem = MemDisk::new();
        let disk = faulty(&mem);
        disk.crash_at(nth);
        let (acknowledged, tried) = live(Arc::new(disk.clone()));
        assert!(disk.crashed());
        for cut in CUTS {
            let what = format!("crash at operation {nth}, then {cut:?}");
            let fork = mem.fork();
            fork.power_cut(cut);
            let found = check(Arc::new(fork.clone()), acknowledged, tried, &what);
            cut_short += u32::from(found < tried);
            // The next life begins where this one ended, and ends well.
            let (acknowledged, tried) = live(Arc::new(fork.clone()));
            assert_eq!(acknowledged, tried, "{what}");
            fork.power_cut(PowerCut::LoseAll);
            let last = check(Arc::new(fork), acknowledged, tried, &what);
            assert_eq!(last, tried, "{what}");
        }
    }
    assert!(cut_short > 20, "crashes took something away: {cut_short}");
}

/// The process dies anywhere and is started again: what the second one then reads from the page cache, and shows, and builds
/// on, must survive the power cut that ends it.
#[test]
fn what_a_second_life_was_built_on_survives_too() {
    let whole = faulty(&MemDisk::new());
    live(Arc::new(whole.clone()));
    for first in 1..=whole.changes() {
        let mem = MemDisk::new();
        let disk = faulty(&mem);
        disk.crash_at(first);
        let (acknowledged, tried) = live(Arc::new(disk));
        mem.power_cut(PowerCut::KeepAll);
        for nth in 1..=14 {
            let fork = mem.fork();
            let disk = faulty(&fork);
            disk.crash_at(nth);
            let (second, tried_second) = live(Arc::new(disk));
            for cut in [PowerCut::LoseAll, PowerCut::Random(first ^ nth << 8)] {
                let fork = fork.fork();
                fork.power_cut(cut);
                let what = format!("crash at {first}, second crash at {nth}, {cut:?}");
                check(
                    Arc::new(fork),
                    acknowledged.max(second),
                    tried.max(tried_second),
                    &what,
                );
            }
        }
    }
}

/// A writer on a fresh directory over a disk that can fail.
fn start() -> (MemDisk, FaultyDisk, wal::DataDir, LogWriter) {
    let mem = MemDisk::new();
    let disk = faulty(&mem);
    let (dir, _, recovered) = recover(Arc::new(disk.clone())).unwrap();
    let log = writer(&dir, &recovered).unwrap();
    (mem, disk, dir, log)
}

#[test]
fn a_full_disk_keeps_the_group_for_later() {
    let (mem, disk, dir, mut log) = start();
    log.append_group(&[commit(1, 100)], at(0)).unwrap();
    log.sync().unwrap();
    // Full inside a segment (a file system that copies on write), at every length of the part that fits.
    for room in [0, 1, 64, 127, 128, 200, 500] {
        disk.set_room(Some(room));
        let error = log.append_group(&[commit(2, 900)], at(0)).unwrap_err();
        assert!(
            error.is_retryable() && matches!(error, Error::DiskFull { .. }),
            "{error}"
        );
        assert_eq!((log.last(), log.synced()), (at(1), at(1)));
        assert_eq!(base::Error::from(error).code().code(), "53100");
        // What a crash now would leave.
        disk.set_room(None);
        let fork = mem.fork();
        fork.power_cut(PowerCut::KeepAll);
        assert_eq!(recover(Arc::new(fork)).unwrap().2.last, at(1));
    }
    // Another group than the one that failed, shorter: no trace of the failed one.
    log.append_group(&[commit(2, 50)], at(0)).unwrap();
    log.sync().unwrap();
    // Full when a segment begins.
    disk.set_room(Some(2000));
    let changes = disk.changes();
    let error = log.append_group(&[commit(3, 3800)], at(0)).unwrap_err();
    assert!(error.is_retryable(), "{error}");
    let error = dir.log().prepare_spare(&|| ()).unwrap_err();
    assert!(error.is_retryable(), "{error}");
    assert_eq!(disk.changes(), changes, "what is left is left alone");
    disk.set_room(None);
    // And where the disk says so only half-way.
    disk.inject(Fault {
        op: Op::Write,
        path: ".tmp".into(),
        nth: 1,
        action: Action::ShortThenError(2000, ErrorKind::StorageFull),
    });
    let error = log.append_group(&[commit(3, 3800)], at(0)).unwrap_err();
    assert!(error.is_retryable(), "{error}");
    assert_eq!(disk.planned(), 0);
    log.append_group(&[commit(3, 900)], at(0)).unwrap();
    log.sync().unwrap();
    log.append_group(&[commit(4, 3800)], at(0)).unwrap();
    log.sync().unwrap();
    assert_eq!(dir.log().list().unwrap().len(), 2);
    drop((log, dir));
    mem.power_cut(PowerCut::LoseAll);
    let (_, memory, recovered) = recover(Arc::new(mem)).unwrap();
    assert_eq!(lasts(&memory.groups.into_inner()), [1, 2, 3, 4]);
    assert_eq!(recovered.cut, None);
}

/// A connection may take the last descriptor just when a segment begins.
#[test]
fn too_many_open_files_keep_the_group_and_the_spare_for_later() {
    const EMFILE: i32 = 24;
    let (mem, disk, dir, mut log) = start();
    log.append_group(&[commit(1, 3800)], at(0)).unwrap();
    log.sync().unwrap();
    assert!(dir.log().prepare_spare(&|| ()).unwrap());
    for op in [Op::Open, Op::SyncDir] {
        disk.inject(Fault {
            op,
            path: String::new(),
            nth: 1,
            action: Action::Os(EMFILE),
        });
        let error = log.append_group(&[commit(2, 3800)], at(0)).unwrap_err();
        assert!(error.is_retryable(), "{op:?}: {error}");
        assert_eq!(disk.planned(), 0);
        // Under its name or as a spare: no file is lost.
        let spares = if op == Op::Open { 1 } else { 0 };
        assert_eq!(dir.log().spares(), spares, "{op:?}");
    }
    for n in 2..=3 {
        log.append_group(&[commit(n, 3800)], at(0)).unwrap();
        log.sync().unwrap();
    }
    assert_eq!(dir.log().list().unwrap().len(), 3);
    drop((log, dir));
    mem.power_cut(PowerCut::LoseAll);
    let (_, memory, recovered) = recover(Arc::new(mem)).unwrap();
    assert_eq!(lasts(&memory.groups.into_inner()), [1, 2, 3]);
    assert_eq!(recovered.cut, None);
}

#[test]
fn a_full_disk_ends_a_checkpoint_and_not_the_log() {
    let (_, disk, dir, mut log) = start();
    log.append_group(&[commit(1, 100)], at(0)).unwrap();
    log.sync().unwrap();
    disk.set_room(Some(300));
    let mut checkpoint = dir.begin_checkpoint(at(1)).unwrap();
    checkpoint.put(1, at(1), b"key", Some(&[1; 5000])).unwrap();
    let error = checkpoint.finish(at(1)).unwrap_err();
    assert!(error.is_retryable(), "{error}");
    disk.set_room(None);
    assert!(dir.latest_checkpoint().unwrap().is_none());
    dir.begin_checkpoint(at(1)).unwrap().finish(at(1)).unwrap();
    log.append_group(&[commit(2, 100)], at(0)).unwrap();
    log.sync().unwrap();
}

#[test]
fn short_writes_are_finished() {
    let (mem, disk, dir, mut log) = start();
    log.append_group(&[commit(1, 100)], at(0)).unwrap();
    for n in [1, 100, 3] {
        disk.inject(Fault {
            op: Op::Write,
            path: "wal/".into(),
            nth: 1,
            action: Action::Short(n),
        });
    }
    log.append_group(&[commit(2, 700)], at(0)).unwrap();
    log.sync().unwrap();
    assert_eq!(disk.planned(), 0);
    drop((log, dir));
    mem.power_cut(PowerCut::LoseAll);
    assert_eq!(recover(Arc::new(mem)).unwrap().2.last, at(2));
}

#[test]
fn a_failed_sync_or_write_is_final() {
    for (op, action) in [
        (Op::SyncData, Action::Error(ErrorKind::Other)),
        // A full disk that shows only at the sync: the pages may be gone.
        (Op::SyncData, Action::Error(ErrorKind::StorageFull)),
        (Op::Write, Action::ShortThenError(77, ErrorKind::Other)),
    ] {
        let (mem, disk, dir, mut log) = start();
        log.append_group(&[commit(1, 100)], at(0)).unwrap();
        log.sync().unwrap();
        disk.inject(Fault {
            op,
            path: String::new(),
            nth: 1,
            action,
        });
        let outcome = log
            .append_group(&[commit(2, 300)], at(0))
            .map(|_| ())
            .and_then(|()| log.sync());
        let error = outcome.unwrap_err();
        assert!(
            matches!(error, Error::Io { .. }) && !error.is_retryable(),
            "{op:?}: {error}"
        );
        let again = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| log.sync()));
        assert!(
            again.is_err(),
            "a second sync would succeed and prove nothing"
        );
        drop((log, dir));
        mem.power_cut(PowerCut::LoseAll);
        assert_eq!(recover(Arc::new(mem)).unwrap().2.last, at(1));
    }
}
