//! A real process, killed at every fault point of this crate on a real disk, and started again.
//!
//! The parent runs this test binary again as a child with `CANON_FAULT` set; the child lives a short life in a directory and
//! prints each position once it is acknowledged; it ends where the fault says. The parent then starts on the directory.
//! Needs the feature `faults`; without it the points are compiled to nothing.
#![cfg(feature = "faults")]

mod common;

use base::Position;
use common::*;
use env::Env;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use wal::{DataDir, FAULT_POINTS, LogPoint, Progress, Result};

const DIR: &str = "CANON_TEST_KILL_DIR";

fn life(path: &Path) -> Result<()> {
    let dir = DataDir::open(&Env::os(), path, small())?;
    let memory = Memory::default();
    let recovered = wal::recover(&dir, &memory, 1, &Progress::default())?;
    let mut log = writer(&dir, &recovered)?;
    for n in recovered.last.order() + 1..recovered.last.order() + 13 {
        log.append_group(&[commit(n, 900)], recovered.last)?;
        log.sync()?;
        println!("acknowledged {n}");
        std::io::stdout().flush().expect("the parent listens");
        if n % 3 == 0 {
            dir.note_reach()?;
        }
        if n % 4 == 0 {
            let mut checkpoint = dir.begin_checkpoint(at(n))?;
            for row in 1..=n {
                checkpoint.put(1, at(row), &row.to_be_bytes(), Some(b"row"))?;
            }
            checkpoint.finish(at(n))?;
            dir.prune(Position::MAX)?;
        }
        if n % 5 == 0 {
            dir.log().prepare_spare(&|| ())?;
        }
    }
    Ok(())
}

/// Not a test of its own: what the parent runs.
#[test]
fn child() {
    if let Some(path) = std::env::var_os(DIR) {
        life(Path::new(&path)).expect("the child's life");
    }
}

/// Runs a child with this fault; whether it ended well, and the last position that it acknowledged.
fn run(path: &Path, fault: &str) -> (bool, u32) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture", "--test-threads=1"])
        .env(DIR, path)
        .env("CANON_FAULT", fault)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let acknowledged = text
        .lines()
        .filter_map(|l| l.rsplit_once("acknowledged ")?.1.parse().ok())
        .max();
    (output.status.success(), acknowledged.unwrap_or(0))
}

#[test]
fn nothing_acknowledged_is_lost_at_any_fault_point() {
    let base = std::env::temp_dir().join(format!("wal-kill-{}", std::process::id()));
    let mut hit = BTreeSet::new();
    for point in FAULT_POINTS {
        let path = base.join(point);
        let mut acknowledged = 0;
        // The same directory lives on: later passages happen on what earlier crashes left.
        for nth in [1, 1, 2, 5] {
            let (ended_well, seen) = run(&path, &format!("{point}:{nth}"));
            acknowledged = seen.max(acknowledged);
            if !ended_well {
                hit.insert(*point);
            }
            let dir = DataDir::open(&Env::os(), &path, small()).unwrap();
            let memory = Memory::default();
            let recovered = wal::recover(&dir, &memory, 1, &Progress::default()).unwrap();
            let last = recovered.last.order();
            assert!(
                last >= acknowledged,
                "{point}:{nth}: {acknowledged} was acknowledged, {last} is there"
            );
            let anchor = dir.anchor().unwrap_or_default();
            assert!(
                recovered.last >= anchor.position,
                "{point}:{nth}: {anchor:?}"
            );
            let end = recovered.end.segment.map(|(name, offset, _)| LogPoint {
                segment: name.number,
                offset,
            });
            assert!(end >= anchor.point, "{point}:{nth}: {anchor:?}");
            let start = recovered.checkpoint.map_or(0, |m| m.start.order());
            let newest = recovered.checkpoint.map_or(0, |m| m.number);
            assert!(newest >= anchor.checkpoint, "{point}:{nth}: {anchor:?}");
            let mut have: Vec<u32> = memory
                .rows
                .lock()
                .values()
                .map(|(p, _)| p.order())
                .collect();
            have.extend(
                lasts(&memory.groups.lock())
                    .into_iter()
                    .filter(|n| *n > start),
            );
            assert_eq!(have, (1..=last).collect::<Vec<_>>(), "{point}:{nth}");
        }
    }
    assert_eq!(
        hit,
        FAULT_POINTS.iter().copied().collect(),
        "every point was reached and ended a process"
    );
    std::fs::remove_dir_all(&base).unwrap();
}
