//! `canon backup` and `canon restore`: a data directory into an archive, and an archive into a data directory.
//!
//! `wal::backup` and `wal::restore` do the work; here are its words. A backup works beside a running server, primary or replica. It copies what is
//! new since the last one. A restored directory is a cluster of its own. Both end with a look at what they made: 0: it is whole, 1: it is not.
//! Progress goes to the standard error once a second.
//!
//! `list` and `prune` look at an archive alone. `wal::retention` says what goes.
//!
//! Left out on purpose: a schedule. A server has one (`backup.every`), and so has the host (cron, a systemd timer, a CronJob), which runs the command.

use crate::verify::failed;
use base::{Error, Position, Result, SqlState};
use env::Env;
use server::replication::archive::objects_at;
use std::cell::Cell;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use wal::restore::{Target, clusters};
use wal::retention::{Keep, Term, reaches_back_to};
use wal::{Archive, LogOptions, Objects};

/// From where to where.
#[derive(clap::Args)]
pub struct BackupOptions {
    /// The data directory; a server may be at work there
    #[arg(long, value_name = "DIR", env = "CANON_DATA", required = true)]
    data: Option<PathBuf>,
    /// The archive, such as file:///backup/canon or s3://bucket/canon
    #[arg(long, value_name = "URL", required = true)]
    to: Option<String>,
    /// Then remove all but so many backups, such as 3, or all but what restores each moment of a time, such as 7d
    #[arg(long, value_name = "N|TIME", value_parser = str::parse::<Keep>)]
    keep: Option<Keep>,
    /// Do not read the log in the archive afterwards
    #[arg(long)]
    no_verify: bool,
}

/// What is done with an archive alone.
#[derive(clap::Subcommand)]
pub enum OfArchive {
    /// Show the backups that an archive holds, and how far back a restore goes
    List {
        /// The archive, such as file:///backup/canon or s3://bucket/canon
        #[arg(long, value_name = "URL")]
        from: String,
        /// Which cluster, if the archive holds several: 32 hexadecimal digits
        #[arg(long, value_name = "ID")]
        cluster: Option<String>,
    },
    /// Remove what need not be kept: the newest backup that was read whole always stays
    Prune {
        /// The archive, such as file:///backup/canon or s3://bucket/canon
        #[arg(long, value_name = "URL")]
        from: String,
        /// So many backups, such as 3, or what restores each moment of a time, such as 7d
        #[arg(long, value_name = "N|TIME", value_parser = str::parse::<Keep>)]
        keep: Keep,
        /// Which cluster, if the archive holds several: 32 hexadecimal digits
        #[arg(long, value_name = "ID")]
        cluster: Option<String>,
    },
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

fn now() -> u64 {
    Env::os().clock.unix_micros().max(0) as u64
}

/// Makes a backup. Whether the log in the archive reaches its end.
pub fn back_up(o: &BackupOptions) -> Result<bool> {
    let (Some(data), Some(to)) = (&o.data, &o.to) else {
        return Err(Error::internal("no directory or no archive"));
    };
    let (env, place) = (Env::os(), objects_at(to)?);
    let said = progress("copying");
    let done = wal::backup::back_up(&env.disk, data, &place, &now, &said).map_err(failed)?;
    println!(
        "{} segments and {} bytes are new; the archive holds cluster {:032x} up to position {}",
        done.segments, done.bytes, done.cluster, done.last
    );
    let archive = Archive::new(place, done.cluster);
    if !o.no_verify {
        let said = progress("reading");
        wal::backup::check(&archive, &done, false, &now, &said).map_err(failed)?;
        println!("nothing is wrong");
    }
    if let Some(keep) = o.keep {
        remove(&archive, keep)?;
    }
    Ok(true)
}

fn remove(archive: &Archive, keep: Keep) -> Result<()> {
    let gone = archive.prune(now(), keep).map_err(failed)?;
    println!("{gone} objects were removed that nothing needs that is kept");
    Ok(())
}

/// Lists an archive, or removes what is old.
pub fn of_archive(command: &OfArchive) -> Result<bool> {
    let (OfArchive::List {
        from,
        cluster: asked,
    }
    | OfArchive::Prune {
        from,
        cluster: asked,
        ..
    }) = command;
    let place = objects_at(from)?;
    let cluster = cluster(&*place, asked.as_deref())?;
    let archive = Archive::new(place, cluster);
    match command {
        OfArchive::Prune { keep, .. } => remove(&archive, *keep)?,
        OfArchive::List { .. } => {
            let listing = archive.listing().map_err(failed)?;
            print!("cluster {cluster:032x}\n{}", words(&listing));
        }
    }
    Ok(true)
}

/// A time as `--to-time` takes it.
fn time(micros: u64) -> String {
    let time = i64::try_from(micros).ok();
    let time = time.and_then(|t| jiff::Timestamp::from_microsecond(t).ok());
    time.map_or_else(|| "unknown".into(), |t| t.to_string())
}

/// A line for each backup, oldest first, and how far back a restore goes.
fn words(listing: &[Term]) -> String {
    let mut out = String::new();
    for t in listing {
        for b in &t.bases {
            let whole = match b.whole {
                Some(at) => format!("read whole at {}", time(at)),
                None => "never read whole: canon backup reads it".into(),
            };
            out += &format!(
                "term {}  checkpoint {}  up to position {}  {whole}\n",
                t.term, b.number, b.end
            );
        }
        let unreadable = t.checkpoint.len() - t.bases.len();
        if unreadable > 0 {
            out += &format!(
                "term {}  {unreadable} checkpoints cannot be opened: canon verify --archive says why\n",
                t.term
            );
        }
    }
    match reaches_back_to(listing) {
        Some((_, mark)) => out + &format!("a restore goes back to {}\n", time(mark.time)),
        None => out + "no backup here was read whole\n",
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
