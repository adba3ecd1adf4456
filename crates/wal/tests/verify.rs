//! Every byte of a log and of a checkpoint, one after the other: damage is found, where it is, and nothing else is.

mod common;

use base::Position;
use base::record::{CommitBuilder, RecordKind};
use common::*;
use env::{Disk, MemDisk};
use std::path::PathBuf;
use std::sync::Arc;
use wal::segment::{LogDir, LogOptions};
use wal::verify::{Finding, LogFacts, Wanted, verify_checkpoint, verify_log};
use wal::{Commit, SegmentSource};

const CLUSTER: u128 = 0xc0ffee;

/// A commit of two rows.
fn rows_at(n: u32) -> Commit {
    let mut b = CommitBuilder::new();
    b.push(RecordKind::Put, 7, &n.to_be_bytes(), &[n as u8; 90]);
    b.push(RecordKind::Delete, 8, b"key", b"");
    let (heads, data) = b.finish(at(n), 0);
    Commit {
        position: at(n),
        heads,
        data,
    }
}

/// A log of some segments: one group per commit, each durable before the next.
fn log() -> (MemDisk, Vec<PathBuf>) {
    let (mem, disk) = mem();
    let (dir, _, recovered) = recover(disk).unwrap();
    let mut log = writer(&dir, &recovered).unwrap();
    for n in 1..=30 {
        log.append_group(&[rows_at(n)], at(n - 1)).unwrap();
        log.sync().unwrap();
    }
    let names = dir.log().list().unwrap();
    assert!(names.len() >= 3, "{names:?}");
    let paths = names.iter().map(|n| dir.log().path(*n)).collect();
    (mem, paths)
}

fn look(disk: &MemDisk, wanted: &Wanted) -> (LogFacts, Vec<Finding>) {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let log = LogDir::open(disk, &root().join("wal"), CLUSTER, LogOptions::default()).unwrap();
    let log: Arc<dyn SegmentSource> = log;
    let mut found = Vec::new();
    let facts = verify_log(&log, wanted, &mut |_| (), &mut found);
    (facts, found)
}

fn wanted(finished: bool) -> Wanted {
    Wanted {
        stream: CLUSTER,
        terms: vec![(1, Position::ZERO)],
        finished,
    }
}

#[test]
fn every_flipped_byte_of_a_log_is_found_where_it_is() {
    let (disk, paths) = log();
    let (facts, found) = look(&disk, &wanted(false));
    assert_eq!(found, []);
    assert_eq!((facts.groups, facts.commits, facts.last), (30, 30, at(30)));
    assert_eq!(facts.terms, [(1, Position::ZERO)]);
    for (n, path) in paths.iter().enumerate() {
        let good = disk.read(path).unwrap();
        let used = good.iter().rposition(|b| *b != 0).unwrap() + 1;
        let is_last = n + 1 == paths.len();
        let heads = good.windows(8).enumerate();
        let starts: Vec<usize> = heads
            .filter(|(i, w)| i % 8 == 0 && *w == b"CANONGRP")
            .map(|(i, _)| i)
            .collect();
        let group = |at: usize| starts.iter().rfind(|s| **s <= at).map_or(0, |s| *s as u64);
        let last_group = group(used - 1);
        for at in 0..used {
            let mut bytes = good.clone();
            bytes[at] ^= 0x21;
            let fork = disk.fork();
            put_file(&fork, path, &bytes);
            let (facts, found) = look(&fork, &wanted(false));
            let place = group(at);
            if is_last && place == last_group {
                assert_eq!(found, [], "{}, byte {at}", path.display());
                assert_eq!(facts.cut.unwrap().offset, place);
                let (_, found) = look(&fork, &wanted(true));
                assert_eq!(found.len(), 1, "what is finished has no torn end");
                continue;
            }
            assert_eq!(found.len(), 1, "{}, byte {at}: {found:?}", path.display());
            assert_eq!(&found[0].file, path, "byte {at}");
            assert_eq!(found[0].offset, place, "byte {at}");
            // All segments behind are read all the same.
            let behind = if is_last {
                facts.last < at_end()
            } else {
                facts.last == at_end()
            };
            assert!(behind, "byte {at}: {}", facts.last);
        }
    }
}

fn at_end() -> Position {
    at(30)
}

#[test]
fn holes_and_terms_that_do_not_fit_are_found() {
    let (disk, paths) = log();
    let fork = disk.fork();
    fork.remove(&paths[1]).unwrap();
    let (facts, found) = look(&fork, &wanted(false));
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].file, paths[2]);
    assert!(
        found[0]
            .what
            .contains("segment 2, which should come before it, is missing")
    );
    assert_eq!(facts.last, at(30));
    for terms in [
        vec![(2, Position::ZERO)],
        vec![(1, Position::ZERO), (2, at(10))],
    ] {
        let wrong = Wanted {
            terms: terms.clone(),
            ..wanted(false)
        };
        let (_, found) = look(&disk, &wrong);
        let outside = if terms.len() == 1 { 30 } else { 20 };
        assert_eq!(found.len(), outside, "{terms:?}");
    }
    let other = Wanted {
        stream: 5,
        ..wanted(false)
    };
    assert!(!look(&disk, &other).1.is_empty());
}

#[test]
fn every_flipped_byte_of_a_checkpoint_is_found() {
    let (mem, disk) = mem();
    let dir = open(disk).unwrap();
    let mut c = dir.begin_checkpoint(at(9)).unwrap();
    c.section(1, b"a schema").unwrap();
    c.section(2, b"sequences").unwrap();
    for n in 1..=9u32 {
        let row = (n != 4).then_some(&b"a row"[..]);
        c.put(7 + n / 5, at(n), &n.to_be_bytes(), row).unwrap();
    }
    c.finish(at(9)).unwrap();
    let folder = root().join("checkpoint");
    let path = folder.join(mem.list(&folder).unwrap().pop().unwrap());
    let look = |disk: &MemDisk| {
        let mut found = Vec::new();
        let manifest = verify_checkpoint(disk, &path, CLUSTER, &mut |_| (), &mut found);
        (manifest, found)
    };
    let (manifest, found) = look(&mem);
    assert_eq!((manifest.unwrap().rows, found), (9, vec![]));
    let good = mem.read(&path).unwrap();
    let mut unseen = Vec::new();
    for at in 0..good.len() {
        let mut bytes = good.clone();
        bytes[at] ^= 0x21;
        let fork = mem.fork();
        put_file(&fork, &path, &bytes);
        let (_, found) = look(&fork);
        match found.is_empty() {
            true => unseen.push(at),
            false => assert!(found.iter().all(|f| f.file == path)),
        }
    }
    // Zeros between blocks are nothing's.
    assert!(unseen.iter().all(|at| good[*at] == 0), "{unseen:?}");
    assert!(unseen.len() < 6 * 8, "{unseen:?}");
    for len in [0, 100, 130, good.len() / 2, good.len() - 1] {
        let fork = mem.fork();
        put_file(&fork, &path, &good[..len]);
        assert!(!look(&fork).1.is_empty(), "cut to {len}");
    }
}
