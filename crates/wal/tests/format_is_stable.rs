//! The bytes on disk, guarded: what this program writes equals the golden files, and the golden files can be read.
//!
//! When one of these fails, old directories can no longer be read, or not by old programs: raise the format's version
//! (`LOG_FORMAT`, `CHECKPOINT_FORMAT`, `DIR_FORMAT`), keep a reader for the old one, and draw the change in
//! docs/design/log-format.md. Only then replace the golden file with the text that the failure prints.

mod common;

use common::*;
use env::Disk;
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;
use wal::{Anchor, Commit, LogPoint};

const LOG: &str = include_str!("golden/log.hex");
const CHECKPOINT: &str = include_str!("golden/checkpoint.hex");
const ANCHOR: &str = include_str!("golden/anchor.hex");

/// Offset, sixteen bytes in hex, as text.
fn hex(bytes: &[u8]) -> String {
    let mut out = String::new();
    for (i, line) in bytes.chunks(16).enumerate() {
        write!(out, "{:04x} ", i * 16).unwrap();
        for byte in line {
            write!(out, " {byte:02x}").unwrap();
        }
        out.push('\n');
    }
    out
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = text
        .lines()
        .flat_map(|line| line.split_whitespace().skip(1));
    digits
        .map(|d| u8::from_str_radix(d, 16).expect("hex"))
        .collect()
}

fn log_path() -> PathBuf {
    root().join("wal/0000000000000001-0000000001000001.wal")
}

fn checkpoint_path() -> PathBuf {
    root().join("checkpoint/0000000000000001.ckpt")
}

/// A log of two groups and a checkpoint, the same every time.
fn written() -> Arc<dyn Disk> {
    let (_, disk) = mem();
    let (dir, _, recovered) = recover(disk.clone()).unwrap();
    let mut log = writer(&dir, &recovered).unwrap();
    log.set_term(5);
    let part = |n: u32, heads: &[u8], data: &[u8]| Commit {
        position: at(n),
        heads: heads.to_vec(),
        data: data.to_vec(),
    };
    log.append_group(
        &[part(1, b"HEAD1", b"data one"), part(2, b"HEAD22", b"")],
        at(0),
    )
    .unwrap();
    log.sync().unwrap();
    log.append_group(&[part(7, b"H", b"seven")], at(2)).unwrap();
    log.sync().unwrap();
    let mut checkpoint = dir.begin_checkpoint(at(2)).unwrap();
    checkpoint.section(1, b"schema").unwrap();
    checkpoint.put(16384, at(1), b"key", Some(b"row")).unwrap();
    checkpoint.put(16384, at(7), b"gone", None).unwrap();
    checkpoint.finish(at(7)).unwrap();
    disk
}

#[test]
fn an_anchor_is_the_golden_one() {
    let (_, disk) = mem();
    let dir = open(disk.clone()).unwrap();
    let anchor = Anchor {
        term: 5,
        position: at(7),
        point: Some(LogPoint {
            segment: 1,
            offset: 424,
        }),
        checkpoint: 2,
    };
    dir.set_anchor(anchor).unwrap();
    let written = disk.read(&root().join("CANON_ANCHOR")).unwrap();
    assert_eq!(written.len(), 8192);
    assert_eq!(hex(&written[..512]), ANCHOR);
    drop(dir);
    put_file(&*disk, &root().join("CANON_ANCHOR"), &unhex(ANCHOR));
    assert_eq!(open(disk.clone()).unwrap().anchor(), Some(anchor));
    // An older build has the second slot behind the first.
    let older = [vec![0; 512], unhex(ANCHOR)].concat();
    put_file(&*disk, &root().join("CANON_ANCHOR"), &older);
    let dir = open(disk.clone()).unwrap();
    assert_eq!(dir.anchor(), Some(anchor));
    let newer = Anchor {
        position: at(9),
        ..anchor
    };
    dir.set_anchor(newer).unwrap();
    drop(dir);
    assert_eq!(open(disk).unwrap().anchor(), Some(newer));
}

#[test]
fn the_bytes_written_are_the_golden_ones() {
    let disk = written();
    let mut log = disk.read(&log_path()).unwrap();
    log.truncate(unhex(LOG).len());
    let log = hex(&log);
    assert!(log == LOG, "the log's bytes changed; now they are\n{log}");
    let checkpoint = hex(&disk.read(&checkpoint_path()).unwrap());
    assert!(
        checkpoint == CHECKPOINT,
        "the checkpoint's bytes changed; now they are\n{checkpoint}"
    );
}

#[test]
fn the_golden_bytes_are_read() {
    let (_, disk) = mem();
    drop(open(disk.clone()).unwrap());
    put_file(&*disk, &log_path(), &unhex(LOG));
    put_file(&*disk, &checkpoint_path(), &unhex(CHECKPOINT));
    let (_, memory, recovered) = recover(disk).unwrap();
    assert_eq!(
        (recovered.last, recovered.end.term, recovered.cut),
        (at(7), 5, None)
    );
    let groups = memory.groups.into_inner();
    assert_eq!(lasts(&groups), [7], "the checkpoint holds the first group");
    assert_eq!(
        (groups[0].heads(), groups[0].data()),
        (&b"H"[..], &b"seven"[..])
    );
    assert_eq!(memory.sections.into_inner(), [(1, b"schema".to_vec())]);
    let rows: Vec<_> = memory.rows.into_inner().into_iter().collect();
    assert_eq!(
        rows,
        [
            ((16384, b"gone".to_vec()), (at(7), None)),
            ((16384, b"key".to_vec()), (at(1), Some(b"row".to_vec()))),
        ]
    );
}
