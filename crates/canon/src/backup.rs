//! `canon backup` and `canon restore`: a data directory into an archive, and an archive into a data directory.
//!
//! `wal::backup` and `wal::restore` do the work; here are its words. A backup works beside a running server, primary or replica. It copies what is
//! new since the last one. A restored directory is a cluster of its own. Both end with a look at what they made: 0: it is whole, 1: it is not.
//! Progress goes to the standard error once a second.
//!
//! Left out on purpose: a schedule. The host's own (cron, a systemd timer, a CronJob) runs the command.

use crate::verify::failed;
use base::{Error, Position, Result, SqlState};
use env::Env;
use server::replication::archive::objects_at;
use std::cell::Cell;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use wal::restore::{Target, clusters};
use wal::{Archive, LogOptions, LogReader, Objects};

/// From where to where.
#[derive(clap::Args)]
pub struct BackupOptions {
    /// The data directory; a server may be at work there
    #[arg(long, value_name = "DIR", env = "CANON_DATA")]
    data: PathBuf,
    /// The archive, such as file:///backup/canon or s3://bucket/canon
    #[arg(long, value_name = "URL")]
    to: String,
    /// Keep this many checkpoints, and remove what none of them needs: times before the oldest cannot be restored any more
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    keep: Option<u32>,
    /// Do not read the log in the archive afterwards
    #[arg(long)]
    no_verify: bool,
}

/// From where to where, and how far.
#[derive(clap::Args)]
pub struct RestoreOptions {
    /// The archive, such as file:///backup/canon or s3://bucket/canon
    #[arg(long, value_name = "URL")]
    from: String,
    /// The new data directory: absent, or an empty folder
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Which cluster, if the archive holds several: 32 hexadecimal digits
    #[arg(long, value_name = "ID")]
    cluster: Option<String>,
    /// Commits up to this position, such as 12.345
    #[arg(long, value_name = "POSITION", conflicts_with = "to_time")]
    to_position: Option<Position>,
    /// What had been committed at this time, such as 2026-11-28T12:00:00Z; the archive knows times to about ten seconds
    #[arg(long, value_name = "TIME")]
    to_time: Option<String>,
    /// Do not read the directory whole afterwards
    #[arg(long)]
    no_verify: bool,
}

fn invalid(what: String) -> Error {
    Error::new(SqlState::INVALID_PARAMETER_VALUE, what)
}

/// Says once a second how many bytes were copied.
fn progress(word: &str) -> impl Fn(u64) + '_ {
    let (done, shown) = (Cell::new(0u64), Cell::new(Instant::now()));
    move |n| {
        done.set(done.get() + n);
        if shown.get().elapsed() >= Duration::from_secs(1) {
            shown.set(Instant::now());
            eprintln!("{word}: {} MB", done.get() >> 20);
        }
    }
}

/// Makes a backup. Whether the log in the archive reaches its end.
pub fn back_up(o: &BackupOptions) -> Result<bool> {
    let (env, place) = (Env::os(), objects_at(&o.to)?);
    let now = || env.clock.unix_micros().max(0) as u64;
    let said = progress("copying");
    let done = wal::backup::back_up(&env.disk, &o.data, &place, &now, &said).map_err(failed)?;
    println!(
        "{} segments and {} bytes are new; the archive holds cluster {:032x} up to position {}",
        done.segments, done.bytes, done.cluster, done.last
    );
    let archive = Archive::new(place, done.cluster);
    if !o.no_verify {
        reads_to(&archive, &done)?;
        println!("nothing is wrong");
    }
    if let Some(keep) = o.keep {
        let gone = archive.retain(done.term, keep as usize).map_err(failed)?;
        println!("{gone} objects were removed that the newest {keep} checkpoints do not need");
    }
    Ok(true)
}

/// Reads what a restore would read of the log, with all its checksums.
fn reads_to(archive: &Archive, done: &wal::backup::BackedUp) -> Result<()> {
    let from = match done.checkpoint {
        0 => Position::ZERO,
        n => archive.manifest(done.term, n).map_err(failed)?.start,
    };
    let log = archive.log_above(done.term, from).map_err(failed)?;
    let said = progress("reading");
    let mut reader = LogReader::open(log, done.cluster, from).map_err(failed)?;
    while let Some(group) = reader.next_group().map_err(failed)? {
        said(group.header().len());
    }
    match reader.last().max(from) {
        last if last == done.last => Ok(()),
        last => {
            let what = format!(
                "the archive's log ends at {last}, and the directory's at {}",
                done.last
            );
            Err(Error::new(SqlState::IO_ERROR, what))
        }
    }
}

fn target(o: &RestoreOptions) -> Result<Target> {
    Ok(match (o.to_position, &o.to_time) {
        (Some(p), _) => Target::Position(p),
        (None, Some(text)) => {
            let time: std::result::Result<jiff::Timestamp, _> = text.parse();
            let time = time.map_err(|e| {
                invalid(format!(
                    "--to-time {text:?}: {e}; a time with its zone is meant, such as 2026-11-28T12:00:00Z"
                ))
            })?;
            let micros = u64::try_from(time.as_microsecond());
            Target::Time(micros.map_err(|_| invalid(format!("--to-time {text:?}: before 1970")))?)
        }
        (None, None) => Target::End,
    })
}

/// The one cluster in the place, or the one that was asked for.
fn cluster(place: &dyn Objects, asked: Option<&str>) -> Result<u128> {
    let all = clusters(place).map_err(failed)?;
    let names: Vec<String> = all.iter().map(|c| format!("{c:032x}")).collect();
    match (asked, &all[..]) {
        (Some(name), _) => {
            let found = names.iter().position(|n| n.eq_ignore_ascii_case(name));
            let found = found.map(|at| all[at]);
            found.ok_or_else(|| {
                invalid(format!(
                    "--cluster {name}: the archive does not hold it; it holds {}",
                    names.join(", ")
                ))
            })
        }
        (None, [one]) => Ok(*one),
        (None, []) => Err(invalid(
            "--from: there is no cluster's log here: not an archive of Canon".into(),
        )),
        (None, _) => Err(invalid(format!(
            "--from: the archive holds several clusters, so --cluster has to name one: {}",
            names.join(", ")
        ))),
    }
}

/// Makes a data directory. Whether it is whole.
pub fn restore(o: &RestoreOptions) -> Result<bool> {
    let (env, place) = (Env::os(), objects_at(&o.from)?);
    let target = target(o)?;
    let cluster = cluster(&*place, o.cluster.as_deref())?;
    let (log, said) = (LogOptions::default(), progress("restoring"));
    let made = wal::restore::restore(&env, &place, cluster, &o.to, target, log, &said);
    let made = made.map_err(failed)?;
    println!(
        "cluster {:032x} was made from {:032x}: {} commits above checkpoint {}, up to position {}",
        made.cluster, made.from, made.commits, made.checkpoint, made.last
    );
    let whole = matches!(target, Target::End) || made.reached;
    match target {
        Target::Time(_) if !whole => eprintln!(
            "the log in the archive ends at {}, and at that time all up to {} had been committed: what lies between the two is not in the directory",
            made.last, made.upto
        ),
        Target::Position(p) if !whole => eprintln!(
            "the log in the archive ends at {}, before {p}: what lies between the two is not in the directory",
            made.last
        ),
        _ => {}
    }
    if o.no_verify {
        return Ok(whole);
    }
    Ok(crate::verify::look(&o.to)? && whole)
}
