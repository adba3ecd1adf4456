//! What the library does per core: YCSB and TPC-C in this process, beside the bare index and the bare log.
//!
//! `cargo run --release -p bench --example library_bench -- [--tabs] [--split] [DIRECTORY [SECONDS [ONLY]]]`: DIRECTORY for temporary data
//! (default `/dev/shm`, so that the disk is not what is measured), SECONDS per run (default 5), ONLY a part of a run's name. With `--tabs`
//! a line for each figure, for `cargo xtask bench embedded`. `--split` runs split values beside plain ones in the place of the rest.

use bench::{BenchOptions, run};
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let mut flag = |name: &str| {
        let there = args.first().is_some_and(|a| a == name);
        args.drain(..usize::from(there));
        there
    };
    let (tabs, split) = (flag("--tabs"), flag("--split"));
    let mut args = args.into_iter();
    let mut options = BenchOptions {
        directory: args.next().unwrap_or_else(|| "/dev/shm".into()).into(),
        tabs,
        split,
        ..BenchOptions::default()
    };
    if let Some(s) = args.next() {
        options.duration = Duration::from_secs_f64(s.parse()?);
    }
    options.only = args.next().unwrap_or_default();
    run(&options, &mut std::io::stdout())?;
    Ok(())
}
