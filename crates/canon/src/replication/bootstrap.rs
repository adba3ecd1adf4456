//! Before a replica has a database: the primary's newest checkpoint into its directory.
//!
//! What is in the directory stays until the copy is whole (`wal::transfer`), so one that breaks off has changed nothing, and nobody serves
//! from half of one. Where the history here went another way, what it had more is set aside first, in files under `set-aside` and in
//! words beside them, and the log is cut back to where they parted: then what is missing comes as log, without a copy, if it can.
//!
//! Where there is a history that the copy would replace, a copy that does not come is given up after some tries, and the node serves what it has.
//! The next is begun only after a while ([`pause`]): each ends the sessions here.

use super::copy_both::CopyBoth;
use super::send::COMMAND;
use super::{Primary, Restart};
use crate::config::Config;
use base::{Error, Position, Result, SqlState};
use env::Env;
use replica::ship::receiver::{Command, Event};
use replica::ship::{Identity, Receiver};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::task::block_in_place;
use tracing::{info, warn};
use wal::aside::AsideName;
use wal::{CheckpointReceiver, DataDir, DirOptions, LogOptions};

/// Between tries.
const PAUSE: Duration = Duration::from_millis(500);
/// Tries before a node goes on with what it has.
const TRIES: u32 = 10;
/// How often the receiver is told that time has passed.
const TIME: Duration = Duration::from_millis(100);
/// What a replica that has no ring yet calls its size: a copy needs none.
const RING: u64 = 1 << 20;

/// Before another copy is begun when so many in a row did not come.
pub(super) fn pause(failed: u32) -> Duration {
    match failed.checked_sub(1) {
        None => Duration::ZERO,
        Some(n) => Duration::from_secs(60) * (1 << n.min(4)),
    }
}

pub(super) fn disk(e: wal::Error) -> Error {
    let code = match e.is_retryable() {
        true => SqlState::DISK_FULL,
        false => SqlState::IO_ERROR,
    };
    Error::new(code, e.to_string())
}

fn open(config: &Config, cluster: Option<u128>) -> Result<DataDir> {
    let log = LogOptions {
        segment_size: config.segment_bytes,
        ..LogOptions::default()
    };
    DataDir::open(&Env::os(), &config.data, DirOptions { log, cluster }).map_err(disk)
}

/// Whether there is no database here. (Opening finishes what a crash has left.)
pub fn is_wanting(config: &Config) -> Result<bool> {
    if !config.data.join("CANON_VERSION").exists() {
        return Ok(true);
    }
    let dir = open(config, None)?;
    // One whose log is gone is not one that never had any: the start says what is missing.
    Ok(dir.is_empty().map_err(disk)? && !has_had(&dir))
}

/// Whether the anchor knows of a history here.
fn has_had(dir: &DataDir) -> bool {
    let anchor = dir.anchor().unwrap_or_default();
    anchor.position > Position::ZERO || anchor.checkpoint > 0
}

/// Whether a copy that begins here would take away what its primary has lost: only another term cuts anything off.
fn would_lose(dir: &DataDir, terms: &[(u64, Position)], start: Position) -> bool {
    let anchor = dir.anchor().unwrap_or_default();
    dir.terms().last() == terms.last() && start < anchor.position
}

/// Makes the directory one that this replica can follow with: does what the last life asked for, then copies the primary's database
/// if there is none. Tries until the primary answers; but where there is a database that the copy would replace, not for long: the
/// node goes on with that, so that it can be promoted should the primary be lost, and asks again. How many copies in a row did not come.
pub async fn prepare(config: &Config, primary: &Primary, restart: Option<Restart>) -> Result<u32> {
    let wanting = block_in_place(|| is_wanting(config))?;
    let (mut parted, failed) = match restart {
        Some(Restart::Diverged { at, term, failed }) => (Some((at, term)), failed),
        Some(Restart::Bootstrap { failed }) => (None, failed),
        Some(Restart::Stranded) | None if !wanting => return Ok(0),
        Some(Restart::Stranded) | None => (None, 0),
    };
    let mut tries = 0;
    loop {
        let came = match parted {
            None => copy(config, primary).await.map(|()| true),
            Some((at, term)) => block_in_place(|| go_back(config, at, term)).map(|copy| !copy),
        };
        match came {
            Ok(true) => return Ok(0),
            // It went as far back as it could, and needs a copy.
            Ok(false) => parted = None,
            Err(e) if is_passing(&e) && !wanting && tries == TRIES => {
                let why = &e.fields().message;
                warn!("no copy of {primary} came ({why}): going on with what is here");
                return Ok(failed + 1);
            }
            Err(e) if is_passing(&e) => {
                tries += 1;
                if tries == 1 {
                    warn!("no copy of {primary} yet: {}", e.fields().message);
                }
                tokio::time::sleep(between(&e, wanting, tries)).await;
            }
            Err(e) => return Err(e),
        }
    }
}

/// Before the next try. A node that has nothing tries for ever: ever less often when there is no room, as each try sends all over again.
fn between(e: &Error, wanting: bool, tries: u32) -> Duration {
    match wanting && e.code() == SqlState::DISK_FULL {
        true => PAUSE * (1 << tries.min(7)),
        false => PAUSE,
    }
}

/// Whether trying again may help.
fn is_passing(e: &Error) -> bool {
    let code = e.code().0;
    matches!(&code[..2], b"08" | b"57" | b"53" | b"55")
}

/// Sets aside what the history of `term` does not have above `at`, and goes back to there. Whether that cannot be done without a copy.
fn go_back(config: &Config, at: Position, term: u64) -> Result<bool> {
    let dir = open(config, None)?;
    dir.hear(term).map_err(disk)?;
    // From here on nothing of it is shown, whatever becomes of this.
    dir.diverge(term, at).map_err(disk)?;
    let s = dir.set_aside(term, at, |_, _| {}).map_err(disk)?;
    // While the log still tells how the rows stood that were written.
    node::aside::keep_base(&dir, AsideName { term, after: at }).map_err(disk)?;
    let cut = dir.cut_back(at).map_err(disk)?;
    if cut {
        dir.agree().map_err(disk)?;
    }
    warn!(
        commits = s.commits,
        rows = s.rows,
        bytes = s.bytes,
        last = %s.last,
        report = %s.report.display(),
        copy = !cut,
        "set aside what the cluster's history does not have"
    );
    Ok(!cut)
}

async fn copy(config: &Config, primary: &Primary) -> Result<()> {
    let dir: OnceLock<DataDir> = OnceLock::new();
    let mut me = Identity {
        cluster: 0,
        node: config.node_name.clone(),
        terms: Vec::new(),
        heard: 0,
        last: Position::ZERO,
        ring: RING,
    };
    if config.data.join("CANON_VERSION").exists() {
        let d = block_in_place(|| open(config, None))?;
        (me.cluster, me.terms) = (d.cluster(), d.terms());
        me.heard = d.heard_term().map_err(disk)?;
        _ = dir.set(d);
    }
    let parameters = [("replication", "canon"), ("application_name", &*me.node)];
    let link = primary.connect(&parameters).await?;
    let mut link: CopyBoth<TcpStream> = CopyBoth::begin(link, COMMAND).await?;
    let mut receiver = Receiver::new(me);
    let mut commands = Vec::new();
    let mut file: Option<CheckpointReceiver<'_>> = None;
    let mut history = Vec::new();
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
                    terms,
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
                        if would_lose(d, &terms, start) {
                            let what = format!(
                                "the primary's copy ends at {start}, before what is here in its own term: it has lost log, and nothing here is replaced"
                            );
                            let code = SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE;
                            return Err(Error::new(code, what));
                        }
                        d.begin_copy(&terms).map_err(disk)?;
                        file = Some(d.receive_checkpoint(number, bytes).map_err(disk)?);
                        Ok::<(), Error>(())
                    })?;
                    history = terms;
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
                    let m = block_in_place(|| f.finish(&history)).map_err(|e| {
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
                Command::Reconnect { .. } => return Err(ended()),
                Command::Write { .. }
                | Command::Published(_)
                | Command::SetTerms(_)
                | Command::Diverged { .. }
                // There is nothing here to show.
                | Command::ReadAround(_)
                | Command::HandedOver { .. } => {}
            }
        }
        tokio::select! {
            m = link.next() => receiver.handle(Event::Message(m?), &mut commands),
            _ = time.tick() => receiver.handle(Event::Time, &mut commands),
        }
    }
}

fn ended() -> Error {
    Error::new(SqlState::CONNECTION_FAILURE, "the connection ended")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_waited_for_and_a_broken_one_is_not() {
        let path = std::path::PathBuf::from("/x");
        let full = wal::Error::DiskFull { path: path.clone() };
        assert!(is_passing(&disk(full)));
        let broken = wal::Error::Io {
            op: "writing",
            path,
            source: std::io::Error::other("broken"),
        };
        assert!(!is_passing(&disk(broken)));
        let full = Error::new(SqlState::DISK_FULL, "full");
        let gone = Error::new(SqlState::CONNECTION_FAILURE, "gone");
        let seconds = |e, wanting| [1, 5, 100].map(|n| between(e, wanting, n).as_secs());
        assert_eq!(seconds(&full, true), [1, 16, 64]);
        assert_eq!(
            (seconds(&full, false), seconds(&gone, true)),
            ([0; 3], [0; 3])
        );
    }

    #[test]
    fn who_goes_back_does_not_forget_the_term_that_it_heard_of() {
        let scratch = tempfile::tempdir().expect("a directory");
        let flags = crate::config::Overrides {
            data: Some(scratch.path().join("data")),
            ..Default::default()
        };
        let config = Config::load(&flags).expect("defaults");
        drop(open(&config, Some(1)).expect("a new directory"));
        assert!(go_back(&config, Position::ZERO, 7).is_ok());
        let dir = open(&config, None).expect("it is there");
        assert_eq!(dir.heard_term().expect("readable"), 7);
        assert_eq!(dir.diverged().expect("readable"), None);
    }

    #[test]
    fn a_primary_that_lost_log_replaces_nothing_of_its_own_term() {
        let scratch = tempfile::tempdir().expect("a directory");
        let flags = crate::config::Overrides {
            data: Some(scratch.path().join("data")),
            ..Default::default()
        };
        let config = Config::load(&flags).expect("defaults");
        assert!(is_wanting(&config).expect("it can be looked at"));
        let dir = open(&config, Some(1)).expect("a new directory");
        let had = Position::new(1, 9);
        let anchor = wal::Anchor {
            position: had,
            ..Default::default()
        };
        dir.set_anchor(anchor).expect("written");
        let own = dir.terms();
        assert!(would_lose(&dir, &own, had.prev()));
        assert!(!would_lose(&dir, &own, had));
        // Another term has cut off what is here.
        let newer = [own[0], (7, Position::new(1, 2))];
        assert!(!would_lose(&dir, &newer, Position::new(1, 2)));
        drop(dir);
        // It has no log, and is not one that never had any: nothing is copied over what its start has to tell.
        assert!(!is_wanting(&config).expect("it can be looked at"));
    }

    #[test]
    fn copies_that_do_not_come_are_begun_ever_later() {
        let all = [0, 1, 2, 3, 4, 5, 6, u32::MAX].map(|n| pause(n).as_secs());
        assert_eq!(all, [0, 60, 120, 240, 480, 960, 960, 960]);
    }
}
