//! Checkpoints: what is put comes back, half-made ones are ignored, damaged ones refused, chunks load side by side.

mod common;

use base::Position;
use common::*;
use env::{Disk, OpenMode};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::PathBuf;
use wal::{Error, Progress};

fn path_of(number: u64) -> PathBuf {
    root()
        .join("checkpoint")
        .join(format!("{number:016x}.ckpt"))
}

#[test]
fn sections_and_rows_come_back() {
    let (_, disk) = mem();
    let dir = open(disk.clone()).unwrap();
    assert!(dir.latest_checkpoint().unwrap().is_none());
    let mut checkpoint = dir.begin_checkpoint(at(3)).unwrap();
    checkpoint.section(1, b"schema").unwrap();
    checkpoint.put(16384, at(2), b"a", Some(b"row a")).unwrap();
    checkpoint.put(16384, at(4), b"b", None).unwrap();
    checkpoint.put(16385, at(1), b"", Some(b"")).unwrap();
    checkpoint.section(2, b"").unwrap();
    assert!(
        dir.latest_checkpoint().unwrap().is_none(),
        "not before it is finished"
    );
    let manifest = checkpoint.finish(at(5)).unwrap();
    assert_eq!(
        (manifest.number, manifest.start, manifest.end, manifest.rows),
        (1, at(3), at(5), 3)
    );

    let reader = dir.latest_checkpoint().unwrap().unwrap();
    assert_eq!(*reader.manifest(), manifest);
    let chunks: Vec<_> = reader
        .chunks()
        .iter()
        .map(|c| reader.read_chunk(c).unwrap())
        .collect();
    let entries: Vec<_> = chunks
        .iter()
        .flat_map(|c| c.iter().map(|e| (c.table(), e.position, e.key, e.row)))
        .collect();
    assert_eq!(
        entries,
        [
            (16384, at(2), &b"a"[..], Some(&b"row a"[..])),
            (16384, at(4), b"b", None),
            (16385, at(1), b"", Some(b"")),
        ]
    );
    let sections: Vec<_> = reader
        .sections()
        .iter()
        .map(|s| (s.tag, reader.read_section(s).unwrap()))
        .collect();
    assert_eq!(sections, [(1, b"schema".to_vec()), (2, Vec::new())]);
}

#[test]
fn recovery_joins_checkpoint_and_log_on_several_threads() {
    let (_, disk) = mem();
    let (dir, _, recovered) = recover(disk.clone()).unwrap();
    let mut log = writer(&dir, &recovered).unwrap();
    for n in 1..=9 {
        log.append_group(&[commit(n, 50)], at(n - 1)).unwrap();
    }
    log.sync().unwrap();
    let mut checkpoint = dir.begin_checkpoint(at(4)).unwrap();
    let row = vec![7; 1000];
    for n in 0..5000u32 {
        checkpoint
            .put(n / 3000, at(n % 7), &n.to_be_bytes(), Some(&row))
            .unwrap();
    }
    checkpoint.finish(at(9)).unwrap();
    let chunks = dir.latest_checkpoint().unwrap().unwrap().chunks().len();
    assert!(chunks >= 5, "{chunks} chunks of bounded size");
    for workers in [1, 4] {
        let memory = Memory::default();
        let progress = Progress::default();
        let recovered = wal::recover(&dir, &memory, workers, &progress).unwrap();
        assert_eq!(memory.rows.lock().len(), 5000);
        assert_eq!(memory.manifest.lock().unwrap().rows, 5000);
        assert_eq!(lasts(&memory.groups.lock()), [5, 6, 7, 8, 9]);
        assert_eq!((recovered.last, recovered.groups), (at(9), 5));
        assert_eq!((progress.rows(), progress.commits()), (5000, 5));
        assert!(progress.total_bytes() > 5_000_000);
        assert_eq!(progress.total_bytes(), progress.done_bytes());
    }
}

#[test]
fn a_refusal_of_the_receiver_ends_the_recovery() {
    struct Refuses;
    impl wal::RecoverySink for Refuses {
        fn begin(&self, _: &wal::Manifest) -> wal::Result<()> {
            Ok(())
        }
        fn section(&self, _: u32, _: &[u8]) -> wal::Result<()> {
            Ok(())
        }
        fn rows(&self, _: &wal::RowChunk) -> wal::Result<()> {
            Err(Error::Apply(base::Error::internal("no")))
        }
        fn group(&self, _: wal::Group, _: Position) -> wal::Result<()> {
            panic!("no group after a refused chunk")
        }
    }
    let (_, disk) = mem();
    let dir = open(disk).unwrap();
    let mut checkpoint = dir.begin_checkpoint(at(0)).unwrap();
    checkpoint.put(1, at(0), b"k", None).unwrap();
    checkpoint.finish(at(0)).unwrap();
    let error = wal::recover(&dir, &Refuses, 3, &Progress::default()).unwrap_err();
    assert!(matches!(error, Error::Apply(_)));
}

#[test]
fn a_half_made_checkpoint_is_ignored_and_removed() {
    let (mem, disk) = mem();
    let dir = open(disk.clone()).unwrap();
    dir.begin_checkpoint(at(1)).unwrap().finish(at(1)).unwrap();
    let mut half = dir.begin_checkpoint(at(2)).unwrap();
    half.section(1, b"x").unwrap();
    assert_eq!(mem.list(&root().join("checkpoint")).unwrap().len(), 2);
    // The process dies: no destructor runs.
    std::mem::forget(half);
    drop(dir);
    let dir = open(disk.clone()).unwrap();
    assert_eq!(
        mem.list(&root().join("checkpoint")).unwrap(),
        ["0000000000000001.ckpt"]
    );
    assert_eq!(
        dir.latest_checkpoint().unwrap().unwrap().manifest().number,
        1
    );
    // Given up by a living process: removed at once.
    drop(dir.begin_checkpoint(at(3)).unwrap());
    assert_eq!(mem.list(&root().join("checkpoint")).unwrap().len(), 1);
    // The next one replaces it.
    dir.begin_checkpoint(at(2)).unwrap().finish(at(2)).unwrap();
    dir.prune(Position::MAX).unwrap();
    assert_eq!(
        mem.list(&root().join("checkpoint")).unwrap(),
        ["0000000000000002.ckpt"]
    );
}

#[test]
fn any_flipped_bit_or_truncation_of_a_finished_checkpoint_is_found() {
    let (mem, disk) = mem();
    let dir = open(disk).unwrap();
    let mut checkpoint = dir.begin_checkpoint(at(1)).unwrap();
    checkpoint.section(1, b"schema").unwrap();
    checkpoint
        .put(5, at(1), b"key", Some(b"row row row"))
        .unwrap();
    checkpoint.finish(at(1)).unwrap();
    let content = mem.read(&path_of(1)).unwrap();
    // Paddings (and the header of each block, which repeats what the index says) are not read.
    let mut unread = 0;
    let check = |bytes: &[u8]| -> Result<(), Error> {
        put_file(&mem, &path_of(1), bytes);
        let reader = dir.latest_checkpoint()?.expect("the file is there");
        for section in reader.sections() {
            assert_eq!(reader.read_section(section)?, b"schema");
        }
        for chunk in reader.chunks() {
            let rows = reader.read_chunk(chunk)?;
            assert_eq!(rows.iter().next().unwrap().key, b"key");
        }
        Ok(())
    };
    check(&content).unwrap();
    for i in 0..content.len() {
        let mut damaged = content.clone();
        damaged[i] ^= 1 << (i % 8);
        match check(&damaged) {
            Err(Error::Corrupt { file, .. }) => assert_eq!(file, path_of(1)),
            Err(other) => panic!("byte {i}: {other}"),
            Ok(()) => unread += 1,
        }
        assert!(
            matches!(check(&content[..i]), Err(Error::Corrupt { .. })),
            "cut to {i}"
        );
    }
    let paddings = 2 + 2;
    assert_eq!(
        unread,
        2 * 32 + paddings,
        "two block headers and the paddings"
    );
}

#[test]
#[should_panic(expected = "is above the end")]
fn a_version_above_the_end_is_a_bug() {
    let (_, disk) = mem();
    let dir = open(disk).unwrap();
    let mut checkpoint = dir.begin_checkpoint(at(1)).unwrap();
    checkpoint.put(1, at(9), b"k", None).unwrap();
    let _ = checkpoint.finish(at(8));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn any_rows_come_back(rows in prop::collection::vec(
        (0u32..3, 0u32..100, prop::collection::vec(any::<u8>(), 0..20),
         prop::option::of(prop::collection::vec(any::<u8>(), 0..2000))), 0..200)
    ) {
        let (_, disk) = mem();
        let dir = open(disk.clone()).unwrap();
        let mut checkpoint = dir.begin_checkpoint(at(0)).unwrap();
        let mut expected = BTreeMap::new();
        for (table, position, key, row) in &rows {
            checkpoint.put(*table, at(*position), key, row.as_deref()).unwrap();
            let new = (at(*position), row.clone());
            let kept = expected.entry((*table, key.clone())).or_insert(new.clone());
            if new.0 > kept.0 {
                *kept = new;
            }
        }
        checkpoint.finish(at(100)).unwrap();
        let memory = Memory::default();
        let reader = dir.latest_checkpoint().unwrap().unwrap();
        prop_assert_eq!(reader.manifest().rows as usize, rows.len());
        for chunk in reader.chunks() {
            wal::RecoverySink::rows(&memory, &reader.read_chunk(chunk).unwrap()).unwrap();
        }
        prop_assert_eq!(memory.rows.into_inner(), expected);
    }
}

#[test]
fn a_checkpoint_file_that_is_not_one_is_refused() {
    let (_, disk) = mem();
    let dir = open(disk.clone()).unwrap();
    disk.open(&path_of(4), OpenMode::CreateNew).unwrap();
    assert!(matches!(
        dir.latest_checkpoint(),
        Err(Error::Corrupt { .. })
    ));
}
