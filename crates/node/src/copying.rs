//! Before a replica has a database to follow with: the primary's newest checkpoint comes into its directory, and what the cluster's history
//! does not have is set aside.
//!
//! ```text
//! Restart::Diverged ──▶ set aside, cut back ── needs a copy ──▶ connect ──▶ copy ──▶ whole ──▶ Ready
//! nothing here, or Restart::Bootstrap ───────────────────────────▶│  ▲        └── broken: again after a while
//!                                        a database is here, and no copy comes: Ready with what is here
//! ```
//! What is in the directory stays until the copy is whole (`wal::transfer`), so one that breaks off has changed nothing, and nothing is served
//! from half of one. Where the history here went another way, what it had more is set aside first, in files and in a report, and the log is
//! cut back to where they parted: then what is missing comes as log, without a copy, if it can.
//!
//! A copy that does not come is given up after some tries where there is a database that it would replace: the node serves that, so that it can
//! be promoted should the primary be lost, and asks again later ([`Patience`]). A directory without a database is tried for ever.
//!
//! **Jobs** are the only part that touches the disk. What the receiver says after one waits for it.
//!
//! Left out on purpose: sockets, threads, and waiting. The directory stays locked until this is dropped.

use base::{Error, Position, Result, SqlState};
use env::Env;
use replica::ship::receiver::{Command, Event as Happened};
use replica::ship::{Identity, Message, Receiver};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use wal::aside::AsideName;
use wal::{CheckpointReceiver, DataDir, DirOptions, LogOptions, SetAside};

use crate::restart::{Patience, Restart};

/// What a replica that has no ring yet calls its size: a copy needs none.
const RING: u64 = 1 << 20;

/// Where a replica's directory is.
#[derive(Clone)]
pub struct Place {
    pub env: Env,
    pub path: PathBuf,
    pub segment_bytes: u64,
}

impl Place {
    /// Opens the directory; a new one joins this cluster. (Opening finishes what a crash has left.)
    pub fn open(&self, cluster: Option<u128>) -> Result<Arc<DataDir>> {
        let log = LogOptions {
            segment_size: self.segment_bytes,
            ..LogOptions::default()
        };
        let dir = DataDir::open(&self.env, &self.path, DirOptions { log, cluster });
        Ok(Arc::new(dir.map_err(disk)?))
    }

    fn is_begun(&self) -> bool {
        let version = self.path.join("CANON_VERSION");
        self.env.disk.read(&version).is_ok()
    }

    /// Whether there is no database here. One whose log is gone is not one that never had any: the start says what is missing.
    pub fn is_wanting(&self) -> Result<bool> {
        match self.is_begun() {
            true => is_wanting(&*self.open(None)?),
            false => Ok(true),
        }
    }

    /// The last term of the history here, if this node has led it by what its directory says, and has heard of no later one.
    pub fn led_term(&self) -> Result<Option<u64>> {
        if !self.is_begun() {
            return Ok(None);
        }
        let dir = self.open(None)?;
        let own = dir.terms().last().expect("never empty").0;
        let heard = dir.heard_term().map_err(disk)?;
        Ok((dir.has_led().map_err(disk)? && heard == own).then_some(own))
    }
}

/// Which cluster's history is in this directory; none: it is no data directory yet.
pub fn cluster_in(env: &Env, path: &Path) -> Result<Option<u128>> {
    wal::data_dir::cluster_in(&*env.disk, path).map_err(disk)
}

fn is_wanting(dir: &DataDir) -> Result<bool> {
    let anchor = dir.anchor().unwrap_or_default();
    let has_had = anchor.position > Position::ZERO || anchor.checkpoint > 0;
    Ok(dir.is_empty().map_err(disk)? && !has_had)
}

/// 53100 for a full disk, which is worth another try; else 58030.
pub fn disk(e: wal::Error) -> Error {
    let code = match e.is_retryable() {
        true => SqlState::DISK_FULL,
        false => SqlState::IO_ERROR,
    };
    Error::new(code, e.to_string())
}

/// Whether trying again may help.
fn is_passing(e: &Error) -> bool {
    let code = e.code().0;
    matches!(&code[..2], b"08" | b"57" | b"53" | b"55")
}

/// Whether a copy that begins here would take away what its primary has lost: only another term cuts anything off.
fn would_lose(dir: &DataDir, terms: &[(u64, Position)], start: Position) -> bool {
    let anchor = dir.anchor().unwrap_or_default();
    dir.terms().last() == terms.last() && start < anchor.position
}

/// What a job gives back.
pub struct Done(Result<Answer>);

enum Answer {
    /// What was set aside, and whether a copy is needed all the same.
    WentBack(Box<SetAside>, bool),
    Begun(Arc<DataDir>, CheckpointReceiver),
    Stored(CheckpointReceiver),
    Whole {
        rows: u64,
    },
}

/// Work that waits for the disk.
pub type Job = Box<dyn FnOnce() -> Done + Send>;

/// What happens to the copy.
pub enum Event {
    Connected,
    /// No connection could be made, or it ended; for this reason.
    Lost(Error),
    Message(Message),
    Done(Done),
    /// About 100 ms have passed on a connection.
    Time,
}

/// What the owner is to do, in order.
pub enum Do {
    Send(Message),
    /// After this, and then [`Event::Done`].
    Run {
        after: Duration,
        job: Job,
    },
    /// The connection ends, if there is one. The next is tried after this: [`Event::Connected`] or [`Event::Lost`].
    Connect {
        after: Duration,
    },
    Note(Note),
    /// The directory has what there is to follow with. `failed`: copies in a row that did not come. Drop this, and open it.
    Ready {
        failed: u32,
    },
    /// It cannot be done.
    Fail(Error),
}

/// Something worth a line.
#[derive(Debug)]
pub enum Note {
    /// What the cluster's history does not have is set aside. `copy`: what is left comes as a whole.
    SetAside {
        what: Box<SetAside>,
        copy: bool,
    },
    /// A copy begins: so many bytes, of this position.
    Copying {
        bytes: u64,
        start: Position,
    },
    Progress {
        done: u64,
        all: u64,
    },
    Copied {
        rows: u64,
    },
    /// No copy came yet. Said once.
    NotYet(String),
    /// None came, and the node goes on with what is here.
    GivenUp(String),
}

/// See the head of the file.
pub struct Copying {
    place: Place,
    name: String,
    patience: Patience,
    dir: Option<Arc<DataDir>>,
    /// There is no database here.
    wanting: bool,
    /// What is above this position is to be set aside for this term.
    parted: Option<(Position, u64)>,
    failed: u32,
    tries: u32,
    receiver: Receiver,
    connected: bool,
    commands: VecDeque<Command>,
    busy: bool,
    /// The terms of the history that is copied, and the file while no job has it.
    history: Vec<(u64, Position)>,
    file: Option<CheckpointReceiver>,
    ended: bool,
}

impl Copying {
    /// `restart`: what the node asked for in its last life.
    pub fn new(
        place: Place,
        name: String,
        patience: Patience,
        restart: Option<Restart>,
    ) -> Result<Copying> {
        let dir = match place.is_begun() {
            true => Some(place.open(None)?),
            false => None,
        };
        let wanting = dir.as_deref().map_or(Ok(true), is_wanting)?;
        let (parted, failed) = match restart {
            Some(Restart::Diverged { at, term, failed }) => (Some((at, term)), failed),
            Some(Restart::Bootstrap { failed }) => (None, failed),
            Some(Restart::Stranded) | None => (None, 0),
        };
        let asked = matches!(
            restart,
            Some(Restart::Diverged { .. } | Restart::Bootstrap { .. })
        );
        Ok(Copying {
            receiver: Receiver::new(identity(&name, None, 0)),
            place,
            name,
            patience,
            dir,
            wanting,
            parted,
            failed,
            tries: 0,
            connected: false,
            commands: VecDeque::new(),
            busy: false,
            history: Vec::new(),
            file: None,
            ended: !wanting && !asked,
        })
    }

    /// What is here, if a directory was begun.
    pub fn dir(&self) -> Option<&DataDir> {
        self.dir.as_deref()
    }

    /// Whether a database is here, which a copy would replace.
    pub fn has_database(&self) -> bool {
        !self.wanting
    }

    /// The first step.
    pub fn begin(&mut self, out: &mut Vec<Do>) {
        match self.ended {
            true => out.push(Do::Ready { failed: 0 }),
            false => self.again(Duration::ZERO, out),
        }
    }

    /// What happens, and what is then to be done.
    pub fn handle(&mut self, event: Event, out: &mut Vec<Do>) {
        if self.ended {
            return;
        }
        match event {
            Event::Connected => match self.greet() {
                Ok(()) => self.feed(Happened::Connected),
                Err(e) => self.lost(e, out),
            },
            Event::Lost(e) => self.lost(e, out),
            Event::Message(m) if self.connected => self.feed(Happened::Message(m)),
            Event::Time if self.connected => self.feed(Happened::Time),
            Event::Message(_) | Event::Time => {}
            Event::Done(Done(answer)) => {
                self.busy = false;
                match answer {
                    Ok(answer) => self.answered(answer, out),
                    Err(e) => self.lost(e, out),
                }
            }
        }
        while !self.busy
            && let Some(c) = self.commands.pop_front()
        {
            self.obey(c, out);
        }
    }

    fn feed(&mut self, event: Happened) {
        let mut commands = Vec::new();
        self.receiver.handle(event, &mut commands);
        self.commands.extend(commands);
    }

    fn greet(&mut self) -> Result<()> {
        let heard = match &self.dir {
            Some(dir) => dir.heard_term().map_err(disk)?,
            None => 0,
        };
        self.receiver = Receiver::new(identity(&self.name, self.dir(), heard));
        self.connected = true;
        Ok(())
    }

    /// The next try: first to go back, if that is still to be done.
    fn again(&mut self, after: Duration, out: &mut Vec<Do>) {
        match (self.parted, &self.dir) {
            (Some((at, term)), Some(dir)) => {
                let dir = dir.clone();
                self.run(after, out, move || {
                    let (what, copy) = go_back(&dir, at, term)?;
                    Ok(Answer::WentBack(Box::new(what), copy))
                });
            }
            _ => out.push(Do::Connect { after }),
        }
    }

    /// A try has failed.
    fn lost(&mut self, e: Error, out: &mut Vec<Do>) {
        self.commands.clear();
        (self.connected, self.file) = (false, None);
        let why = e.fields().message.clone();
        if !is_passing(&e) {
            self.ended = true;
            out.push(Do::Fail(e));
        } else if !self.wanting && self.tries == self.patience.tries {
            self.ended = true;
            out.push(Do::Note(Note::GivenUp(why)));
            let failed = self.failed + 1;
            out.push(Do::Ready { failed });
        } else {
            self.tries += 1;
            if self.tries == 1 {
                out.push(Do::Note(Note::NotYet(why)));
            }
            let pause = between(&self.patience, &e, self.wanting, self.tries);
            self.again(pause, out);
        }
    }

    fn run(
        &mut self,
        after: Duration,
        out: &mut Vec<Do>,
        job: impl FnOnce() -> Result<Answer> + Send + 'static,
    ) {
        self.busy = true;
        let job = Box::new(move || Done(job()));
        out.push(Do::Run { after, job });
    }

    fn obey(&mut self, c: Command, out: &mut Vec<Do>) {
        match c {
            Command::Send(m) => out.push(Do::Send(m)),
            Command::BeginBootstrap {
                cluster,
                terms,
                number,
                bytes,
                start,
            } => {
                out.push(Do::Note(Note::Copying { bytes, start }));
                self.history.clone_from(&terms);
                let (place, dir) = (self.place.clone(), self.dir.clone());
                self.run(Duration::ZERO, out, move || {
                    let dir = match dir {
                        Some(dir) => dir,
                        None => place.open(Some(cluster))?,
                    };
                    let file = begin_copy(&dir, &terms, number, bytes, start)?;
                    Ok(Answer::Begun(dir, file))
                });
            }
            Command::Store { offset, bytes } => {
                let mut file = self.file.take().expect("it was begun");
                self.run(Duration::ZERO, out, move || {
                    file.write(offset, &bytes).map_err(disk)?;
                    Ok(Answer::Stored(file))
                });
            }
            Command::FinishBootstrap => {
                let file = self.file.take().expect("it was begun");
                let history = std::mem::take(&mut self.history);
                self.run(Duration::ZERO, out, move || {
                    let manifest = file.finish(&history).map_err(|e| {
                        let what = format!("the copy did not arrive whole: {e}");
                        Error::new(SqlState::CONNECTION_FAILURE, what)
                    })?;
                    let rows = manifest.rows;
                    Ok(Answer::Whole { rows })
                });
            }
            Command::Refuse(why) => {
                let what = format!("the primary cannot be followed: {why}");
                self.lost(Error::new(SqlState::INVALID_PARAMETER_VALUE, what), out);
            }
            Command::Close(why) => {
                self.lost(Error::new(SqlState::CONNECTION_FAILURE, why), out);
            }
            Command::Reconnect { .. } => {
                let what = "the connection ended";
                self.lost(Error::new(SqlState::CONNECTION_FAILURE, what), out);
            }
            // Nothing here is shown, and nothing is taken but a copy.
            Command::Write { .. }
            | Command::Published(_)
            | Command::SetTerms(_)
            | Command::Diverged { .. }
            | Command::ReadAround(_)
            | Command::HandedOver { .. } => {}
        }
    }

    fn answered(&mut self, answer: Answer, out: &mut Vec<Do>) {
        match answer {
            Answer::WentBack(what, copy) => {
                out.push(Do::Note(Note::SetAside { what, copy }));
                self.parted = None;
                match copy {
                    true => self.again(Duration::ZERO, out),
                    false => self.ready(out),
                }
            }
            Answer::Begun(dir, file) => (self.dir, self.file) = (Some(dir), Some(file)),
            Answer::Stored(file) => {
                let (done, all) = file.progress();
                out.push(Do::Note(Note::Progress { done, all }));
                self.file = Some(file);
            }
            Answer::Whole { rows } => {
                out.push(Do::Note(Note::Copied { rows }));
                self.ready(out);
            }
        }
        if !self.connected {
            // The connection went while the job ran, and the next copy begins its own file.
            self.file = None;
        }
    }

    fn ready(&mut self, out: &mut Vec<Do>) {
        self.commands.clear();
        self.ended = true;
        out.push(Do::Ready { failed: 0 });
    }
}

fn identity(name: &str, dir: Option<&DataDir>, heard: u64) -> Identity {
    Identity {
        cluster: dir.map_or(0, DataDir::cluster),
        node: name.to_owned(),
        terms: dir.map_or(Vec::new(), DataDir::terms),
        heard,
        last: Position::ZERO,
        ring: RING,
    }
}

fn begin_copy(
    dir: &Arc<DataDir>,
    terms: &[(u64, Position)],
    number: u64,
    bytes: u64,
    start: Position,
) -> Result<CheckpointReceiver> {
    if would_lose(dir, terms, start) {
        let what = format!(
            "the primary's copy ends at {start}, before what is here in its own term: it has lost log, and nothing here is replaced"
        );
        let code = SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE;
        return Err(Error::new(code, what));
    }
    dir.begin_copy(terms).map_err(disk)?;
    dir.receive_checkpoint(number, bytes).map_err(disk)
}

/// Sets aside what the history of `term` does not have above `at`, and goes back to there. Whether that cannot be done without a copy.
fn go_back(dir: &DataDir, at: Position, term: u64) -> Result<(SetAside, bool)> {
    dir.hear(term).map_err(disk)?;
    // From here on nothing of it is shown, whatever becomes of this.
    dir.diverge(term, at).map_err(disk)?;
    let what = dir.set_aside(term, at, |_, _| {}).map_err(disk)?;
    // While the log still tells how the rows stood that were written.
    crate::aside::keep_base(dir, AsideName { term, after: at }).map_err(disk)?;
    let cut = dir.cut_back(at).map_err(disk)?;
    if cut {
        dir.agree().map_err(disk)?;
    }
    Ok((what, !cut))
}

/// Before the next try. A node that has nothing tries ever less often when there is no room, as each try sends all over again.
fn between(patience: &Patience, e: &Error, wanting: bool, tries: u32) -> Duration {
    match wanting && e.code() == SqlState::DISK_FULL {
        true => patience.between * (1 << tries.min(7)),
        false => patience.between,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(scratch: &tempfile::TempDir) -> Place {
        Place {
            env: Env::os(),
            path: scratch.path().join("data"),
            segment_bytes: LogOptions::default().segment_size,
        }
    }

    #[test]
    fn a_full_disk_is_waited_for_and_a_broken_one_is_not() {
        let path = PathBuf::from("/x");
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
        let patience = Patience::default();
        let seconds =
            |e: &Error, wanting| [1, 5, 100].map(|n| between(&patience, e, wanting, n).as_secs());
        assert_eq!(seconds(&full, true), [1, 16, 64]);
        assert_eq!(
            (seconds(&full, false), seconds(&gone, true)),
            ([0; 3], [0; 3])
        );
    }

    #[test]
    fn who_goes_back_does_not_forget_the_term_that_it_heard_of() {
        let scratch = tempfile::tempdir().expect("a directory");
        let place = place(&scratch);
        let dir = place.open(Some(1)).expect("a new directory");
        assert!(go_back(&dir, Position::ZERO, 7).is_ok());
        assert_eq!(dir.heard_term().expect("readable"), 7);
        assert_eq!(dir.diverged().expect("readable"), None);
    }

    #[test]
    fn a_primary_that_lost_log_replaces_nothing_of_its_own_term() {
        let scratch = tempfile::tempdir().expect("a directory");
        let place = place(&scratch);
        assert!(place.is_wanting().expect("it can be looked at"));
        let dir = place.open(Some(1)).expect("a new directory");
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
        assert!(!place.is_wanting().expect("it can be looked at"));
    }

    fn copying(place: Place, restart: Option<Restart>) -> Copying {
        let patience = Patience {
            tries: 2,
            ..Patience::default()
        };
        Copying::new(place, "a".into(), patience, restart).expect("it is readable")
    }

    fn gone() -> Error {
        Error::new(SqlState::CONNECTION_FAILURE, "gone")
    }

    #[test]
    fn an_empty_directory_is_tried_for_ever() {
        let scratch = tempfile::tempdir().expect("a directory");
        let (mut c, mut out) = (copying(place(&scratch), None), Vec::new());
        c.begin(&mut out);
        for _ in 0..20 {
            assert!(matches!(out.pop(), Some(Do::Connect { .. })));
            c.handle(Event::Lost(gone()), &mut out);
        }
        assert!(!c.has_database());
    }

    #[test]
    fn a_node_with_a_database_goes_on_with_it_when_no_copy_comes() {
        let scratch = tempfile::tempdir().expect("a directory");
        let place = place(&scratch);
        drop(crate::Node::open(&place.path, crate::NodeOptions::default()).expect("a database"));
        let restart = Some(Restart::Bootstrap { failed: 4 });
        let (mut c, mut out) = (copying(place.clone(), restart), Vec::new());
        c.begin(&mut out);
        for _ in 0..3 {
            assert!(matches!(out.pop(), Some(Do::Connect { .. })));
            c.handle(Event::Lost(gone()), &mut out);
        }
        assert!(matches!(out.pop(), Some(Do::Ready { failed: 5 })));
        // Nothing was asked for: there is nothing to wait for.
        drop(c);
        copying(place, None).begin(&mut out);
        assert!(matches!(out.pop(), Some(Do::Ready { failed: 0 })));
    }
}
