//! Before a replica has a database: the primary's newest checkpoint into its directory.
//!
//! The directory is marked while it is being filled (`wal::transfer`), so a copy that breaks off is begun again at the next start and
//! nobody serves from half of one. A directory whose history went another way is set aside first: what it had more stands in files
//! under `set-aside`, and in words beside them.

use super::copy_both::CopyBoth;
use super::link::Link;
use super::send::COMMAND;
use super::{Primary, Restart};
use crate::config::Config;
use base::{Error, Position, Result, SqlState};
use env::Env;
use replica::ship::receiver::{Command, Event};
use replica::ship::{Identity, Receiver};
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::task::block_in_place;
use tracing::{info, warn};
use wal::{CheckpointReceiver, DataDir, DirOptions, LogOptions};

/// Between tries.
const PAUSE: Duration = Duration::from_millis(500);
/// How often the receiver is told that time has passed.
const TIME: Duration = Duration::from_millis(100);
/// What a replica that has no ring yet calls its size: a copy needs none.
const RING: u64 = 1 << 20;

fn disk(e: wal::Error) -> Error {
    Error::new(SqlState::IO_ERROR, e.to_string())
}

fn open(config: &Config, cluster: Option<u128>) -> Result<DataDir> {
    let log = LogOptions {
        segment_size: config.segment_bytes,
        ..LogOptions::default()
    };
    DataDir::open(&Env::os(), &config.data, DirOptions { log, cluster }).map_err(disk)
}

/// Whether there is no database here, or half of one.
fn is_wanting(path: &Path) -> bool {
    let empty = |name: &str| {
        let entries = std::fs::read_dir(path.join(name));
        entries.map_or(true, |mut e| e.next().is_none())
    };
    !path.join("CANON_VERSION").exists()
        || path.join("CANON_BOOTSTRAP").exists()
        || (empty("wal") && empty("checkpoint"))
}

/// Makes the directory one that this replica can follow with: does what the last life asked for, then copies the primary's database
/// if there is none. Tries until the primary answers.
pub async fn prepare(config: &Config, primary: &Primary, restart: Option<Restart>) -> Result<()> {
    if let Some(why) = restart {
        block_in_place(|| clear(config, why))?;
    }
    if !is_wanting(&config.data) {
        return Ok(());
    }
    let mut said = false;
    loop {
        match copy(config, primary).await {
            Ok(()) => return Ok(()),
            Err(e) if is_passing(&e) => {
                if !std::mem::replace(&mut said, true) {
                    warn!("no copy of {primary} yet: {}", e.fields().message);
                }
                tokio::time::sleep(PAUSE).await;
            }
            Err(e) => return Err(e),
        }
    }
}

/// Whether trying again may help.
fn is_passing(e: &Error) -> bool {
    let code = e.code().0;
    matches!(&code[..2], b"08" | b"57" | b"53" | b"55")
}

/// Sets aside what must be, and begins anew.
fn clear(config: &Config, why: Restart) -> Result<()> {
    let dir = open(config, None)?;
    if let Restart::Diverged { at, term } = why {
        let s = dir.set_aside(term, at, |_, _| {}).map_err(disk)?;
        warn!(
            commits = s.commits,
            rows = s.rows,
            bytes = s.bytes,
            last = %s.last,
            report = %s.report.display(),
            "set aside what the cluster's history does not have"
        );
    }
    dir.begin_bootstrap().map_err(disk)
}

async fn copy(config: &Config, primary: &Primary) -> Result<()> {
    let dir: OnceLock<DataDir> = OnceLock::new();
    let mut me = Identity {
        cluster: 0,
        node: config.node_name.clone(),
        terms: Vec::new(),
        last: Position::ZERO,
        ring: RING,
    };
    if config.data.join("CANON_VERSION").exists() {
        let d = block_in_place(|| open(config, None))?;
        (me.cluster, me.terms) = (d.cluster(), d.terms());
        _ = dir.set(d);
    }
    let parameters = [("replication", "canon"), ("application_name", &*me.node)];
    let link = Link::connect(primary, &parameters).await?;
    let mut link: CopyBoth<TcpStream> = link.copy_both(COMMAND).await?;
    let mut receiver = Receiver::new(me);
    let mut commands = Vec::new();
    let mut file: Option<CheckpointReceiver<'_>> = None;
    let mut time = tokio::time::interval(TIME);
    time.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let began = Instant::now();
    let mut shown = Instant::now();
    receiver.handle(Event::Connected, &mut commands);
    loop {
        for c in std::mem::take(&mut commands) {
            match c {
                Command::Send(m) => link.send(&m),
                Command::BeginBootstrap {
                    cluster,
                    number,
                    bytes,
                    start,
                } => {
                    info!(%primary, bytes, from = %start, "copying the primary's database");
                    block_in_place(|| {
                        if dir.get().is_none() {
                            _ = dir.set(open(config, Some(cluster))?);
                        }
                        let d = dir.get().expect("just opened");
                        d.begin_bootstrap().map_err(disk)?;
                        file = Some(d.receive_checkpoint(number, bytes).map_err(disk)?);
                        Ok::<(), Error>(())
                    })?;
                }
                Command::SetTerms(terms) => {
                    if let Some(d) = dir.get() {
                        block_in_place(|| d.set_terms(&terms)).map_err(disk)?;
                    }
                }
                Command::Store { offset, bytes } => {
                    let f = file.as_mut().expect("it was begun");
                    block_in_place(|| f.write(offset, &bytes)).map_err(disk)?;
                    let (done, all) = f.progress();
                    if shown.elapsed() >= Duration::from_secs(1) {
                        shown = Instant::now();
                        let percent = done * 100 / all.max(1);
                        info!(done_bytes = done, all_bytes = all, percent, "copying");
                    }
                }
                Command::FinishBootstrap => {
                    let f = file.take().expect("it was begun");
                    let m = block_in_place(|| f.finish()).map_err(|e| {
                        let what = format!("the copy did not arrive whole: {e}");
                        Error::new(SqlState::CONNECTION_FAILURE, what)
                    })?;
                    let milliseconds = began.elapsed().as_millis() as u64;
                    info!(rows = m.rows, milliseconds, "copied");
                    return Ok(());
                }
                Command::Refuse(why) => {
                    return Err(Error::new(
                        SqlState::INVALID_PARAMETER_VALUE,
                        format!("{primary} cannot be followed: {why}"),
                    ));
                }
                Command::Close(why) => {
                    return Err(Error::new(SqlState::CONNECTION_FAILURE, why));
                }
                Command::Reconnect { .. } => {
                    let what = "the connection ended";
                    return Err(Error::new(SqlState::CONNECTION_FAILURE, what));
                }
                Command::Write { .. }
                | Command::Published(_)
                | Command::Diverged { .. }
                | Command::HandedOver { .. } => {}
            }
        }
        tokio::select! {
            m = link.next() => receiver.handle(Event::Message(m?), &mut commands),
            _ = time.tick() => receiver.handle(Event::Time, &mut commands),
        }
    }
}
