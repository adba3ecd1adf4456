//! What the log costs: groups per second and MB per second by size of the group, with a sync after each, and what preparing the
//! file beforehand is worth.
//!
//! `cargo run --release -p wal --example log_bench [DIR [SECONDS]]`: DIR on the disk to measure (default: the current directory's
//! `target`), SECONDS per line (default 1). Nothing else should write to that disk meanwhile.

use base::Position;
use env::{Clock, Env, OpenMode, OsClock};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use wal::{Commit, DataDir, DirOptions, LogOptions, LogReader, LogWriter, Progress, RecoverySink};

struct Nowhere;

impl RecoverySink for Nowhere {
    fn begin(&self, _: &wal::Manifest) -> wal::Result<()> {
        Ok(())
    }
    fn section(&self, _: u32, _: &[u8]) -> wal::Result<()> {
        Ok(())
    }
    fn rows(&self, chunk: &wal::RowChunk) -> wal::Result<()> {
        assert!(chunk.iter().all(|e| !e.key.is_empty()));
        Ok(())
    }
    fn group(&self, _: wal::Group, _: Position) -> wal::Result<()> {
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let base = PathBuf::from(args.next().unwrap_or_else(|| "target".into())).join("log_bench");
    let seconds: f64 = args.next().map_or(Ok(1.0), |s| s.parse())?;
    let env = Env::os();
    println!("disk: {}", base.display());
    sync_costs(&env, &base, 7)?;
    groups(&env, &base, seconds)?;
    checkpoint(&env, &base)?;
    Ok(())
}

/// The same small write and sync into files prepared in four ways, in alternating rounds with a rest before each.
fn sync_costs(env: &Env, base: &Path, rounds: usize) -> Result<(), Box<dyn std::error::Error>> {
    const SIZE: u64 = 1 << 20;
    const WRITES: u64 = 25;
    env.disk.create_dir_all(base)?;
    let path = base.join("prepared");
    for write in [512u64, 8192] {
        println!(
            "\n{write} bytes written and synced, by how the file was prepared: median us of each round"
        );
        let buffer = vec![1; write as usize];
        let ways = [
            "appended to",
            "length set",
            "zeros written",
            "written before",
        ];
        let mut medians = vec![Vec::new(); ways.len()];
        for _ in 0..rounds {
            for (way, medians) in ways.iter().zip(&mut medians) {
                let file = env.disk.open(&path, OpenMode::Truncate)?;
                match *way {
                    "length set" => file.set_len(SIZE)?,
                    "zeros written" => file.zero_fill(0, SIZE)?,
                    "written before" => file.write_all_at(&vec![9; SIZE as usize], 0)?,
                    _ => {}
                }
                file.sync_data()?;
                env.clock.sleep(Duration::from_millis(500));
                let mut nanos = Vec::new();
                for i in 0..WRITES {
                    let start = env.clock.monotonic_nanos();
                    file.write_all_at(&buffer, i * write)?;
                    file.sync_data()?;
                    nanos.push(env.clock.monotonic_nanos() - start);
                }
                nanos.sort_unstable();
                medians.push(nanos[nanos.len() / 2] / 1000);
                env.disk.remove(&path)?;
            }
        }
        for (way, medians) in ways.iter().zip(&mut medians) {
            medians.sort_unstable();
            println!("{way:>14}: {medians:?}");
        }
    }
    Ok(())
}

fn groups(env: &Env, base: &Path, seconds: f64) -> Result<(), Box<dyn std::error::Error>> {
    println!(
        "\ncommits x bytes        groups/s   commits/s      MB/s   sync us: p50      p99   us of CPU per group, no sync"
    );
    for (commits, bytes) in [
        (1, 200),
        (8, 200),
        (32, 200),
        (128, 200),
        (1024, 200),
        (16, 16_384),
        (1, 1 << 20),
    ] {
        let dir = base.join(format!("g{commits}x{bytes}"));
        let log = LogOptions {
            segment_size: 16 << 20,
            spares: 2,
        };
        let data = DataDir::open(env, &dir, DirOptions { log, cluster: None })?;
        let mut log =
            LogWriter::resume(data.log().clone(), &wal::LogEnd::empty(Position::ZERO), 1)?;
        data.log().prepare_spare(&|| ())?;
        data.log().prepare_spare(&|| ())?;
        let mut next = Position::new(1, 0);
        let heads = 68;
        let mut group: Vec<Commit> = (0..commits)
            .map(|_| Commit {
                position: next,
                heads: vec![1; heads],
                data: vec![2; bytes - heads],
            })
            .collect();
        let mut advance = |group: &mut Vec<Commit>| {
            for commit in group {
                next = next.next();
                commit.position = next;
            }
        };
        let clock = OsClock::new();
        let (mut rounds, mut written, mut nanos) = (0u64, 0u64, Vec::new());
        while (clock.monotonic_nanos() as f64) < seconds * 1e9 {
            advance(&mut group);
            written += log.append_group(&group, Position::ZERO)?.bytes;
            let start = clock.monotonic_nanos();
            log.sync()?;
            nanos.push(clock.monotonic_nanos() - start);
            rounds += 1;
        }
        let elapsed = clock.monotonic_nanos() as f64 / 1e9;
        // Into the page cache alone: what the writer itself costs.
        let clock = OsClock::new();
        let unsynced = (20 << 20) / (commits * bytes);
        for _ in 0..unsynced {
            advance(&mut group);
            log.append_group(&group, Position::ZERO)?;
        }
        let cost = clock.monotonic_nanos() as f64 / 1e3 / unsynced as f64;
        log.sync()?;
        nanos.sort_unstable();
        let us = |q: f64| nanos[(nanos.len() as f64 * q) as usize] as f64 / 1e3;
        println!(
            "{commits:>7} x {bytes:<8} {:>12.0} {:>11.0} {:>9.1} {:>14.0} {:>8.0} {cost:>12.1}",
            rounds as f64 / elapsed,
            (rounds * commits as u64) as f64 / elapsed,
            written as f64 / elapsed / 1e6,
            us(0.5),
            us(0.99)
        );
        if (commits, bytes) == (1024, 200) {
            let clock = OsClock::new();
            let mut reader = LogReader::open(data.log().clone(), data.cluster(), Position::ZERO)?;
            let (mut read, mut count) = (0, 0u64);
            while let Some(group) = reader.next_group()? {
                read += group.header().len();
                count += u64::from(group.header().count);
            }
            let s = clock.monotonic_nanos() as f64 / 1e9;
            println!(
                "        read back, from the page cache: {:.0} MB/s, {:.0} commits/s",
                read as f64 / s / 1e6,
                count as f64 / s
            );
        }
        drop(data);
        std::fs::remove_dir_all(&dir)?;
    }
    Ok(())
}

fn checkpoint(env: &Env, base: &Path) -> Result<(), Box<dyn std::error::Error>> {
    const ROWS: u64 = 1_000_000;
    let dir = base.join("checkpoint");
    let data = DataDir::open(env, &dir, DirOptions::default())?;
    let clock: Arc<dyn Clock> = Arc::new(OsClock::new());
    let mut writer = data.begin_checkpoint(Position::new(1, 0))?;
    for n in 0..ROWS {
        writer.put(1, Position::new(1, 0), &n.to_be_bytes(), Some(&[3; 100]))?;
    }
    let bytes = writer.bytes();
    writer.finish(Position::new(1, 0))?;
    let s = clock.monotonic_nanos() as f64 / 1e9;
    println!(
        "\ncheckpoint of {ROWS} rows of 108 bytes: {:.0} MB/s, {:.0} rows/s, synced",
        bytes as f64 / s / 1e6,
        ROWS as f64 / s
    );
    for workers in [1, 2] {
        let start = clock.monotonic_nanos();
        wal::recover(&data, &Nowhere, workers, &Progress::default())?;
        let s = (clock.monotonic_nanos() - start) as f64 / 1e9;
        println!(
            "read back and walked by {workers}: {:.0} MB/s, {:.0} rows/s",
            bytes as f64 / s / 1e6,
            ROWS as f64 / s
        );
    }
    drop(data);
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}
