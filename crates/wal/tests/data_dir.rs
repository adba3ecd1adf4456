//! Whose directory it is, and who may work on it.

mod common;

use common::*;
use env::{Disk, Env, OsDisk};
use std::sync::Arc;
use wal::{DataDir, DirOptions, Error, Known, Life};

#[test]
fn a_second_process_is_refused() {
    let path = std::env::temp_dir().join(format!("wal-data-dir-{}", std::process::id()));
    let env = Env::os();
    let first = DataDir::open(&env, &path, DirOptions::default()).unwrap();
    let error = DataDir::open(&env, &path, DirOptions::default())
        .err()
        .unwrap();
    assert!(matches!(error, Error::Locked { .. }), "{error}");
    assert!(error.to_string().contains("another process"));
    let cluster = first.cluster();
    assert!(first.created() && cluster != 0);
    drop(first);
    let again = DataDir::open(&env, &path, DirOptions::default()).unwrap();
    assert!(!again.created());
    assert_eq!(again.cluster(), cluster);
    drop(again);
    std::fs::remove_dir_all(&path).unwrap();
}

#[test]
fn a_directory_of_somebody_else_is_left_alone() {
    let (_, disk) = mem();
    disk.create_dir_all(&root()).unwrap();
    put_file(&*disk, &root().join("holiday.jpg"), b"...");
    let error = open(disk.clone()).err().unwrap();
    assert!(
        matches!(error, Error::NotOurs { .. }) && error.to_string().contains("holiday.jpg"),
        "{error}"
    );
    assert!(
        !disk
            .list(&root())
            .unwrap()
            .contains(&"CANON_VERSION".to_owned())
    );

    // Ours, but its version file is gone: not to be taken for a new one.
    let (_, disk) = mem();
    let (dir, _, recovered) = recover(disk.clone()).unwrap();
    writer(&dir, &recovered)
        .unwrap()
        .append_group(&[commit(1, 1)], at(0))
        .unwrap();
    drop(dir);
    disk.remove(&root().join("CANON_VERSION")).unwrap();
    assert!(matches!(open(disk), Err(Error::NotOurs { .. })));
}

/// What this build writes there may be more than an older build would see.
#[test]
fn a_directory_of_an_older_format_becomes_one_of_this() {
    let (_, disk) = mem();
    let version = root().join("CANON_VERSION");
    drop(open(disk.clone()).unwrap());
    let text = String::from_utf8(disk.read(&version).unwrap()).unwrap();
    put_file(
        &*disk,
        &version,
        text.replace("canon 3", "canon 1").as_bytes(),
    );
    drop(open(disk.clone()).unwrap());
    assert_eq!(disk.read(&version).unwrap(), text.as_bytes());
}

#[test]
fn newer_formats_other_clusters_and_nonsense_are_refused() {
    let (_, disk) = mem();
    let version = root().join("CANON_VERSION");
    drop(open(disk.clone()).unwrap());
    let text = String::from_utf8(disk.read(&version).unwrap()).unwrap();
    assert_eq!(text, "canon 3\ncluster 00000000000000000000000000c0ffee\n");

    let other = DirOptions {
        cluster: Some(1),
        ..small()
    };
    let error = DataDir::open(&env_on(disk.clone()), &root(), other)
        .err()
        .unwrap();
    assert!(matches!(error, Error::NotOurs { .. }), "{error}");

    put_file(
        &*disk,
        &version,
        text.replace("canon 3", "canon 4").as_bytes(),
    );
    let error = open(disk.clone()).err().unwrap();
    assert!(
        matches!(
            error,
            Error::NewerFormat {
                found: 4,
                known: 3,
                ..
            }
        ),
        "{error}"
    );

    for nonsense in [
        "",
        "canon",
        "canon x\n",
        "canon 1\n",
        "canon 1\ncluster 12\n",
        "postgres 15",
    ] {
        put_file(&*disk, &version, nonsense.as_bytes());
        let error = open(disk.clone()).err().unwrap();
        assert!(
            matches!(error, Error::Corrupt { .. }),
            "{nonsense:?}: {error}"
        );
    }
}

#[test]
fn the_lock_file_has_the_documented_name() {
    let path = std::env::temp_dir().join(format!("wal-lock-{}", std::process::id()));
    let disk: Arc<dyn Disk> = Arc::new(OsDisk);
    let dir = DataDir::open(
        &Env::os().with_disk(disk.clone()),
        &path,
        DirOptions::default(),
    )
    .unwrap();
    assert_eq!(
        disk.list(&path).unwrap(),
        ["CANON_VERSION", "canon.lock", "checkpoint", "wal"]
    );
    drop(dir);
    std::fs::remove_dir_all(&path).unwrap();
}

#[test]
fn the_anchor_follows_the_log_and_goes_back_before_it() {
    let (_, disk) = mem();
    let (dir, _, recovered) = recover(disk.clone()).unwrap();
    let mut log = writer(&dir, &recovered).unwrap();
    assert_eq!(dir.anchor(), None);
    assert!(!dir.note_reach().unwrap());
    for n in 1..=12 {
        log.append_group(&[commit(n, 900)], at(0)).unwrap();
        log.sync().unwrap();
    }
    // Appended, and not synced: not known to be there.
    log.append_group(&[commit(13, 10)], at(0)).unwrap();
    assert!(dir.note_reach().unwrap());
    assert!(!dir.note_reach().unwrap());
    let high = dir.anchor().unwrap();
    assert_eq!((high.position, high.checkpoint), (at(12), 0));
    assert!(high.point.unwrap().segment > 1);
    let checkpoint = dir.begin_checkpoint(at(6)).unwrap();
    checkpoint.finish(at(6)).unwrap();
    dir.prune(at(0)).unwrap();
    assert_eq!(dir.anchor().unwrap().checkpoint, 1);
    drop(log);
    assert!(dir.cut_back(at(9)).unwrap());
    let low = dir.anchor().unwrap();
    assert_eq!((low.position, low.checkpoint), (at(9), 1));
    assert!(low.point < high.point);
    // The writer before the cut tells nothing any more.
    assert!(!dir.note_reach().unwrap());
    drop(dir);
    let (dir, _, recovered) = recover(disk).unwrap();
    assert_eq!(recovered.last, at(9));
    assert_eq!(dir.anchor(), Some(low));
}

/// A segment that is cut at its first group goes at the next start, and a start after that must not miss it.
#[test]
fn the_anchor_asks_for_no_segment_without_a_group() {
    let (_, disk) = mem();
    let (dir, _, recovered) = recover(disk.clone()).unwrap();
    let mut log = writer(&dir, &recovered).unwrap();
    for n in 1..=12 {
        log.append_group(&[commit(n, 900)], at(0)).unwrap();
        log.sync().unwrap();
    }
    assert!(dir.note_reach().unwrap());
    drop(log);
    let last = *dir.log().list().unwrap().last().unwrap();
    let end = last.first.prev();
    assert!(dir.cut_back(end).unwrap());
    let low = dir.anchor().unwrap();
    assert_eq!((low.position, low.point), (end, None));
    drop(dir);
    let (dir, _, recovered) = recover(disk).unwrap();
    assert_eq!(recovered.last, end);
    drop(writer(&dir, &recovered).unwrap());
    assert!(dir.log().list().unwrap().last().unwrap().number < last.number);
}

#[test]
fn what_a_primary_must_not_forget_is_there_again() {
    let (_, disk) = mem();
    let dir = open(disk.clone()).unwrap();
    assert!(dir.lives().unwrap().is_empty() && dir.known_replicas().unwrap().is_empty());
    let life = |n: u32| Life {
        term: 3,
        end: at(n),
        first: at(n + 100),
    };
    for n in [1, 2, 2] {
        dir.begin_life(life(n)).unwrap();
    }
    let known = |name: &str, address: Option<&str>| Known {
        name: name.into(),
        address: address.map(str::to_owned),
    };
    for (name, address) in [
        ("one of two", Some("10.0.0.2:5432")),
        ("b", None),
        ("one of two", Some("10.0.0.3:5432")),
    ] {
        dir.know_replica(&known(name, address)).unwrap();
    }
    dir.accept(at(7), 5).unwrap();
    drop(dir);
    let dir = open(disk).unwrap();
    assert_eq!(dir.lives().unwrap(), [life(1), life(2)]);
    // A replica is sent what a primary of its own skipped and wrote nothing behind.
    dir.follow_from(at(102)).unwrap();
    assert_eq!(dir.lives().unwrap(), [life(1), life(2)]);
    dir.follow_from(at(101)).unwrap();
    assert_eq!(dir.lives().unwrap(), [life(1)]);
    let all = [known("b", None), known("one of two", Some("10.0.0.3:5432"))];
    assert_eq!(dir.known_replicas().unwrap(), all);
    assert_eq!(dir.accepted().unwrap(), [(at(7), base::Position::ZERO)]);
}

#[test]
fn a_position_is_read_as_it_is_printed() {
    for p in [at(0), at(7), base::Position::ZERO, base::Position::MAX] {
        assert_eq!(p.to_string().parse(), Ok(p));
    }
    for bad in [
        "",
        "1",
        "1.",
        ".1",
        "1.x",
        "1.2.3",
        "-1.2",
        "1.16777216",
        "1099511627776.0",
    ] {
        assert!(bad.parse::<base::Position>().is_err(), "{bad}");
    }
}

/// Connections of several nodes hear of terms at the same time.
#[test]
fn of_terms_that_are_heard_of_at_once_the_greatest_stays() {
    const THREADS: u64 = 4;
    const TERMS: u64 = 60;
    let path = std::env::temp_dir().join(format!("wal-hear-{}", std::process::id()));
    let env = Env::os();
    let dir = DataDir::open(&env, &path, DirOptions::default()).unwrap();
    std::thread::scope(|s| {
        for t in 0..THREADS {
            let dir = &dir;
            s.spawn(move || {
                for n in 0..TERMS {
                    let term = 2 + n * THREADS + t;
                    dir.hear(term).expect("no other call is in the way");
                    assert!(dir.heard_term().unwrap() >= term, "it was forgotten");
                }
            });
        }
    });
    assert_eq!(dir.heard_term().unwrap(), 1 + TERMS * THREADS);
    drop(dir);
    std::fs::remove_dir_all(&path).unwrap();
}
