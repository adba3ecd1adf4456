//! `canon verify`: reads a stopped data directory, a copy of one, or an archive whole, and says what is wrong and where.
//!
//! `node::verify` does the work; here are its words. Facts and problems go to the standard output, a line each; what is being read goes to the
//! standard error once a second. 0: nothing is wrong, 1: something is, or it could not be read.
//!
//! Left out on purpose: a way to look at a directory in which a server works. `canon copy` makes a copy of it.

use base::{Error, Result, SqlState};
use env::Env;
use node::verify::{Options, Report, repair, verify_archive, verify_dir};
use server::replication::archive::objects_at;
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use wal::ArchiveDisk;

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
    /// An archive: its folder, or its URL, such as s3://bucket/canon
    #[arg(long, value_name = "DIR|URL")]
    archive: Option<String>,
    /// Take away what nothing is lost with: damaged files that others have made superfluous, half-made ones
    #[arg(long, requires = "data")]
    repair: bool,
}

/// With the SQLSTATE that PostgreSQL has for what files refuse.
pub fn failed(e: wal::Error) -> Error {
    use std::io::ErrorKind;
    let kind = match &e {
        wal::Error::Io { source, .. } => source.kind(),
        wal::Error::DiskFull { .. } => ErrorKind::StorageFull,
        _ => ErrorKind::Other,
    };
    let state = match kind {
        ErrorKind::PermissionDenied => SqlState::INSUFFICIENT_PRIVILEGE,
        ErrorKind::StorageFull => SqlState::DISK_FULL,
        _ => SqlState::IO_ERROR,
    };
    Error::new(state, e.to_string())
}

/// Reads an archive whole. A bucket is looked at as a disk below its URL.
fn archive(place: &str, options: &Options<'_>) -> Result<Report> {
    let folder = place.strip_prefix("file://").unwrap_or(place);
    if !folder.contains("://") {
        return verify_archive(Path::new(folder), options).map_err(failed);
    }
    let root = Path::new(place);
    let disk = Arc::new(ArchiveDisk::new(objects_at(place)?, root));
    let options = Options {
        env: Env {
            disk,
            ..options.env.clone()
        },
        ..*options
    };
    verify_archive(root, &options).map_err(failed)
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
            (Some(dir), _) => verify_dir(dir, options).map_err(failed),
            (None, Some(place)) => archive(place, options),
            (None, None) => return Err(Error::internal("neither a directory nor an archive")),
        };
        let mut report = report?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn what_a_place_refuses_has_postgresqls_states() {
        for (kind, state) in [
            (io::ErrorKind::PermissionDenied, "42501"),
            (io::ErrorKind::StorageFull, "53100"),
            (io::ErrorKind::NotADirectory, "58030"),
            (io::ErrorKind::TimedOut, "58030"),
        ] {
            let error = wal::Error::Io {
                op: "reading",
                path: "s3://bucket".into(),
                source: kind.into(),
            };
            assert_eq!(failed(error).code().to_string(), state);
        }
    }
}
