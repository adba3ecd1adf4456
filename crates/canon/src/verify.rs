//! `canon verify`: reads a stopped data directory, a copy of one, or an archive whole, and says what is wrong and where.
//!
//! `node::verify` does the work; here are its words. Facts and problems go to the standard output, a line each; what is being read goes to the
//! standard error once a second. 0: nothing is wrong, 1: something is, or it could not be read.
//!
//! Left out on purpose: a way to look at a directory in which a server works. `canon copy` makes a copy of it.

use base::{Error, Result, SqlState};
use env::Env;
use node::verify::{Options, Report, repair, verify_archive, verify_dir};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What is looked at.
#[derive(clap::Args)]
pub struct VerifyOptions {
    /// A data directory in which no server works, or a copy of one
    #[arg(
        long,
        value_name = "DIR",
        required_unless_present = "archive",
        conflicts_with = "archive"
    )]
    data: Option<PathBuf>,
    /// An archive: the folder that archive = "file:///…" names
    #[arg(long, value_name = "DIR")]
    archive: Option<PathBuf>,
    /// Take away what nothing is lost with: damaged files that others have made superfluous, half-made ones
    #[arg(long, requires = "data")]
    repair: bool,
}

pub fn failed(e: wal::Error) -> Error {
    Error::new(SqlState::IO_ERROR, e.to_string())
}

/// Reads a directory whole and prints what is found. Whether nothing is wrong.
pub fn look(dir: &Path) -> Result<bool> {
    with_progress(|options| {
        let report = verify_dir(dir, options).map_err(failed)?;
        print!("{}", words(&report));
        Ok(report.is_whole())
    })
}

/// Runs it. Whether nothing is wrong (any more).
pub fn run(v: &VerifyOptions) -> Result<bool> {
    with_progress(|options| {
        let report = match (&v.data, &v.archive) {
            (Some(dir), _) => verify_dir(dir, options),
            (None, Some(dir)) => verify_archive(dir, options),
            (None, None) => return Err(Error::internal("neither a directory nor an archive")),
        };
        let mut report = report.map_err(failed)?;
        if v.repair
            && let Some(dir) = &v.data
        {
            let (done, after) = repair(dir, &report, options).map_err(failed)?;
            if !report.is_whole() && done.is_empty() {
                println!("nothing was repaired: what is damaged is the only copy of something");
            }
            for line in done {
                println!("{line}");
            }
            report = after;
        }
        print!("{}", words(&report));
        Ok(report.is_whole())
    })
}

fn with_progress(work: impl FnOnce(&Options<'_>) -> Result<bool>) -> Result<bool> {
    let shown = Cell::new(Instant::now());
    let read = Cell::new(0u64);
    let last = Cell::new(String::new());
    let progress = |what: &str, n: u64| {
        if last.take() != what {
            read.set(0);
        }
        last.set(what.to_owned());
        read.set(read.get() + n);
        if shown.get().elapsed() >= Duration::from_secs(1) {
            shown.set(Instant::now());
            match what {
                "rows" => eprintln!("reading {what}: {}", read.get()),
                _ => eprintln!("reading {what}: {} MB", read.get() >> 20),
            }
        }
    };
    work(&Options {
        env: Env::os(),
        compiler: Some(&sql::rules::Compiler),
        progress: &progress,
    })
}

fn words(r: &Report) -> String {
    let mut out = String::new();
    for f in &r.facts {
        out += &format!("{f}\n");
    }
    for f in &r.damage {
        out += &format!(
            "damaged: {} at offset {}: {}\n",
            f.file.display(),
            f.offset,
            f.what
        );
    }
    for f in &r.faults {
        out += &format!("wrong: table {}, row {}: {}\n", f.table, f.row, f.what);
    }
    let more = r.more_faults;
    if more > 0 {
        out += &format!("and {more} rows more that are wrong\n");
    }
    match r.damage.len() as u64 + r.faults.len() as u64 + more {
        0 => out + "nothing is wrong\n",
        1 => out + "1 problem\n",
        n => out + &format!("{n} problems\n"),
    }
}
