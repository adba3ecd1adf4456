//! A replica: the node, its end of the connection to its primary, and the copy that comes when there is no history to follow with.
//!
//! The node decides (`node::receiving`, `node::copying`); here its steps are made one at a time, and what it says is done.

use base::{Error, Position, SqlState};
use node::Node;
use node::copying::{self, Copying};
use node::receiving::{self, Receiving};
use node::restart::{Patience, Restart, Word};
use replica::read::{Shown, Timestamps};
use replica::ship::Message;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use wal::DataDir;

use crate::holding::HoldEnd;
use crate::machine::place;
use crate::world::{What, World};

/// Its end of the connection.
enum End {
    /// There is a node, which follows.
    Receiving(Box<Receiving>),
    /// There is a directory only, or not even that.
    Copying(Box<Copying>),
    /// There is nothing, in the middle of a change.
    Nothing,
}

pub struct Follower {
    /// None while there is no history to follow with.
    pub node: Option<Arc<Node>>,
    pub target: usize,
    end: End,
    /// A copy is to come; the history on the disk, which stays until then, goes up to here.
    pub held: Option<Position>,
    pub connection: Option<usize>,
    /// A connection is to be made; later calls for one make this one void.
    tries: u64,
    /// What it knows of the primary's region.
    pub timestamps: Timestamps,
    /// As of when what it shows is the newest there was.
    pub ages: Shown,
    /// Shown without a primary's word: one replica is enough for a commit, and this one has it.
    pub own: Position,
    /// The ring was overrun, and nothing has come since.
    lost: bool,
    /// Groups that came damaged.
    damaged: u64,
    /// It holds what the cluster does not have.
    pub parted: bool,
    /// Its node is to be promoted.
    pub promotes: bool,
    /// Snapshots that the primary keeps for transactions here.
    pub holds: HoldEnd,
}

/// How long a node that starts waits for its primary's word: microseconds.
pub const FIRST_WORD: u64 = 150_000;

/// Bytes of a replica's ring.
pub const RING: usize = 4 << 10;

fn patience() -> Patience {
    Patience {
        first_word: Duration::from_micros(FIRST_WORD),
        copy: Duration::from_millis(150),
        tries: 0,
        between: Duration::from_millis(20),
    }
}

impl Follower {
    /// Whether the log flows.
    pub fn is_streaming(&self) -> bool {
        matches!(&self.end, End::Receiving(r) if r.is_streaming())
    }

    /// The primary's time as of which everything up to here is the newest there was: microseconds since 1970.
    ///
    /// None: the log does not flow.
    pub fn is_as_of(&self, visible: Position) -> Option<i64> {
        let End::Receiving(r) = &self.end else {
            return None;
        };
        let mut seen = r.seen().lock();
        seen.shows(visible);
        seen.as_of().filter(|_| seen.connected)
    }

    /// The node's directory, or the one without a node.
    pub fn dir(&self) -> Option<&DataDir> {
        match &self.end {
            End::Receiving(r) => Some(r.node().dir()),
            End::Copying(c) => c.dir(),
            End::Nothing => None,
        }
    }

    /// The last position that is here, unless nothing is followed.
    pub fn received(&self) -> Option<Position> {
        self.node.as_ref().map(|n| n.log_end())
    }

    /// Whether everything that has arrived was taken.
    pub fn is_ring_empty(&self) -> bool {
        let following = self.node.as_ref().and_then(|n| n.following());
        self.lost || following.is_none_or(|f| f.backlog() == 0)
    }

    /// Where readers stand; none while nothing may be shown.
    pub fn shown(&self) -> Option<Position> {
        let node = self.node.as_ref()?;
        node.is_open().then(|| node.marks().published.get())
    }
}

/// The newest term that a node has heard of.
pub fn heard(dir: &DataDir) -> u64 {
    dir.heard_term()
        .unwrap_or_else(|e| panic!("the term is not readable: {e}"))
}

impl World {
    /// A replica of this node starts: with this node; or without, over the directory.
    pub fn start_follower(&mut self, i: usize, target: usize, node: Option<Arc<Node>>) -> Follower {
        let mut f = Follower {
            node: None,
            target,
            end: End::Nothing,
            held: None,
            connection: None,
            tries: 0,
            timestamps: Timestamps::new(0),
            ages: Shown::default(),
            own: Position::ZERO,
            lost: false,
            damaged: 0,
            parted: false,
            promotes: false,
            holds: HoldEnd::new(0),
        };
        match node {
            Some(node) => self.follow(i, &mut f, node, 0),
            None => self.prepare(i, &mut f, None),
        }
        f
    }

    /// The node follows.
    fn follow(&mut self, i: usize, f: &mut Follower, node: Arc<Node>, failed: u32) {
        let options = receiving::Options {
            name: format!("node{i}"),
            primary: format!("node {}", f.target),
            failed,
            patience: patience(),
        };
        let receiving = Receiving::new(node.clone(), options);
        let mut receiving = receiving.expect("it was started to follow");
        f.timestamps = Timestamps::new(node.cluster());
        f.ages = Shown::default();
        f.holds = HoldEnd::new(node.cluster());
        (f.lost, f.damaged, f.own, f.held) = (false, 0, Position::ZERO, None);
        f.node = Some(node);
        let mut out = Vec::new();
        receiving.begin(&mut out);
        f.end = End::Receiving(Box::new(receiving));
        self.obey_node(i, f, out);
    }

    /// There is no node: the directory is made one that a node can follow with.
    fn prepare(&mut self, i: usize, f: &mut Follower, restart: Option<Restart>) {
        let copying = Copying::new(
            place(&self.machines[i].env),
            format!("node{i}"),
            patience(),
            restart,
        );
        let mut copying = copying.unwrap_or_else(|e| panic!("the directory is not readable: {e}"));
        let mut out = Vec::new();
        copying.begin(&mut out);
        f.end = End::Copying(Box::new(copying));
        self.obey_copy(i, f, out);
    }

    /// The node ends, since something has to be done over its directory alone.
    fn starts_again(&mut self, i: usize, f: &mut Follower, why: Restart) {
        self.say(|| format!("node {i}: {why}"));
        f.held = f.received();
        (f.node, f.end) = (None, End::Nothing);
        self.hang_up_replica(f);
        self.machines[i].watched.forget();
        self.sessions_end(i);
        if let Restart::Diverged { at, term, .. } = why {
            let terms = self.machines[i].open(None).terms();
            assert!(
                terms.iter().all(|t| t.0 != term) && self.began.contains_key(&term),
                "node {i} sets aside what no other term has cut off: above {at}, for term {term}"
            );
        }
        self.prepare(i, f, Some(why));
    }

    /// The node starts over its directory, which nothing has open.
    fn starts(&mut self, i: usize, f: &mut Follower, failed: u32) {
        f.end = End::Nothing;
        self.hang_up_replica(f);
        let node = self.machines[i].start(true, &self.config);
        let node = node.unwrap_or_else(|why| panic!("node {i} does not start: {why}"));
        self.machines[i].watched.renew(node.terms());
        self.follow(i, f, node, failed);
        let last = f.received().expect("it follows");
        self.say(|| format!("node {i} follows with what it has, up to {last}"));
    }

    /// It waits for a copy that is not sent any more: the node starts on the history on its disk.
    pub fn take_up(&mut self, i: usize, f: &mut Follower) {
        if f.held.is_some() {
            self.starts(i, f, 0);
        }
    }

    fn hang_up_replica(&mut self, f: &mut Follower) {
        if let Some(c) = f.connection.take() {
            self.hang_up(c, true);
        }
    }

    /// A connection is tried after so long.
    fn connect_later(&mut self, i: usize, f: &mut Follower, after: Duration) {
        self.hang_up_replica(f);
        f.tries += 1;
        let life = self.machines[i].life;
        let pause = after.as_micros() as u64 + 500;
        self.later(pause, What::Connect(i, life, f.tries));
    }

    /// A connection is tried, unless another was called for since.
    pub fn connect(&mut self, i: usize, f: &mut Follower, tries: u64) {
        if f.connection.is_some() || f.tries != tries {
            return;
        }
        let to = f.target;
        if self.machines[to].primary().is_some() && self.net.reaches(i, to) {
            f.connection = Some(self.net.open(i, to));
            let c = self.net.connections.len() - 1;
            self.say(|| format!("node {i} connects to node {to}: connection {c}"));
            self.replica(i, f, Happens::Connected);
        } else {
            self.replica(i, f, Happens::Unreachable);
        }
    }

    /// Something happens to a replica's end, and everything that follows from it.
    pub fn replica(&mut self, i: usize, f: &mut Follower, what: Happens) {
        match &mut f.end {
            End::Receiving(r) => {
                let mut out = Vec::new();
                r.handle(what.for_receiving(), &mut out);
                self.obey_node(i, f, out);
            }
            End::Copying(c) => {
                let mut out = Vec::new();
                if let Some(event) = what.for_copying() {
                    c.handle(event, &mut out);
                }
                self.obey_copy(i, f, out);
            }
            End::Nothing => {}
        }
    }

    fn obey_node(&mut self, i: usize, f: &mut Follower, all: Vec<receiving::Do>) {
        use receiving::{Do, Event};
        for d in all {
            match d {
                Do::Send(m) => {
                    if let Some(c) = f.connection {
                        self.send(c, true, m.to_bytes());
                    }
                }
                Do::Run(job) => {
                    if let End::Receiving(r) = &mut f.end {
                        let mut out = Vec::new();
                        r.handle(Event::Done(job()), &mut out);
                        self.obey_node(i, f, out);
                    }
                }
                Do::Connect { after } => self.connect_later(i, f, after),
                Do::Hears(_) | Do::Answer(_) | Do::Leads => {}
                Do::First(word) => {
                    word.unwrap_or_else(|e| panic!("node {i} refuses its primary: {e}"));
                }
                // The operator's part (`operator::promote`), which does so at once when it asked.
                Do::Promote { .. } => {
                    self.hang_up_replica(f);
                    f.promotes = true;
                    let life = self.machines[i].life;
                    self.later(0, What::Promote(i, life));
                }
                Do::StartAgain(why) => self.starts_again(i, f, why),
                Do::Stop(e) => panic!("node {i} stops following: {e}"),
                Do::Note(note) => self.receiving_notes(i, f, note),
            }
        }
    }

    fn receiving_notes(&mut self, i: usize, f: &mut Follower, note: receiving::Note) {
        use receiving::Note;
        self.say(|| format!("node {i}: {note:?}"));
        match note {
            Note::Terms(terms) => {
                f.parted = false;
                self.machines[i].watched.renew(terms);
            }
            Note::TooSlow { .. } => {
                self.report.overruns += 1;
                f.lost = true;
            }
            Note::PutOff { .. } => self.report.put_off += 1,
            Note::ShowsOwnLog(Word::PutOff | Word::Silent) => {
                f.own = f.node.as_ref().map_or(f.own, |n| n.recovered_end());
            }
            Note::Failed { what, why } => panic!("node {i}: {what}: {why}"),
            _ => {}
        }
    }

    fn obey_copy(&mut self, i: usize, f: &mut Follower, all: Vec<copying::Do>) {
        use copying::{Do, Event};
        for d in all {
            match d {
                Do::Send(m) => {
                    if let Some(c) = f.connection {
                        self.send(c, true, m.to_bytes());
                    }
                }
                Do::Run { job, .. } => {
                    if let End::Copying(c) = &mut f.end {
                        let mut out = Vec::new();
                        c.handle(Event::Done(job()), &mut out);
                        self.obey_copy(i, f, out);
                    }
                }
                Do::Connect { after } => self.connect_later(i, f, after),
                Do::Ready { failed } => {
                    if failed == 0 {
                        f.parted = false;
                    }
                    self.starts(i, f, failed);
                }
                Do::Fail(e) => panic!("node {i} has no copy: {e}"),
                Do::Note(note) => self.copying_notes(i, f, note),
            }
        }
    }

    fn copying_notes(&mut self, i: usize, f: &mut Follower, note: copying::Note) {
        use copying::Note;
        self.say(|| format!("node {i}: {note:?}"));
        match note {
            Note::SetAside { copy, .. } => {
                self.report.set_aside += 1;
                self.report.cut_back += u64::from(!copy);
                f.parted = copy;
                // The moment when its copies count most.
                if self.dice.percent(40) {
                    let soon = 48_000 + self.dice.below(12_000);
                    self.later(soon, What::Lose(f.target));
                }
            }
            Note::Copying { .. } => self.report.bootstraps += 1,
            _ => {}
        }
    }

    /// The node's follower takes what comes next.
    pub fn consume(&mut self, i: usize, f: &mut Follower) {
        if let Some(node) = &f.node {
            node.take_step();
        }
        self.moved(i, f);
    }

    /// The replica's own log is written, and mostly synced.
    pub fn persist(&mut self, i: usize, f: &mut Follower) {
        let sync = self.dice.percent(80);
        if let Some(node) = &f.node {
            node.persist_step(sync);
        }
        self.moved(i, f);
    }

    /// A worker or the snapshotter makes a step.
    pub fn replay(&mut self, i: usize, f: &mut Follower) {
        let Some(node) = &f.node else { return };
        match self.dice.below(8) {
            0..=1 => node.snapshot_step(),
            2 => node.build_step(),
            _ => node.replay_step(self.dice.below(64) as usize),
        }
        self.moved(i, f);
    }

    /// Marks have moved, or the ring was overrun.
    fn moved(&mut self, i: usize, f: &mut Follower) {
        let Some(following) = f.node.as_ref().and_then(|n| n.following()) else {
            return;
        };
        let damaged = following.stats.damaged.load(Ordering::Relaxed);
        self.report.damaged += damaged - std::mem::replace(&mut f.damaged, damaged);
        self.replica(i, f, Happens::Moved);
    }
}

/// What happens to a replica's end, whichever it is.
pub enum Happens {
    Connected,
    Unreachable,
    /// The connection broke.
    Lost,
    /// The primary is another one, or its answers did not do: the directory is looked at again.
    Anew,
    Message(Message),
    Moved,
    Tell,
    Time,
    TakeOver {
        force: bool,
    },
    Cancel,
    Promoted(base::Result<node::Promoted>),
}

impl Happens {
    fn for_receiving(self) -> receiving::Event {
        use receiving::Event;
        match self {
            Happens::Connected => Event::Connected,
            Happens::Unreachable => Event::Unreachable,
            Happens::Lost => Event::Lost,
            Happens::Anew => Event::Anew,
            Happens::Message(m) => Event::Message(m),
            Happens::Moved => Event::Moved,
            Happens::Tell => Event::Tell,
            Happens::Time => Event::Time,
            Happens::TakeOver { force } => Event::TakeOver { force, named: None },
            Happens::Cancel => Event::Cancel,
            Happens::Promoted(done) => Event::Promoted(done),
        }
    }

    fn for_copying(self) -> Option<copying::Event> {
        use copying::Event;
        let gone = |what| Event::Lost(Error::new(SqlState::CONNECTION_FAILURE, what));
        match self {
            Happens::Connected => Some(Event::Connected),
            Happens::Unreachable => Some(gone("the primary does not answer")),
            Happens::Lost | Happens::Anew => Some(gone("the connection broke")),
            Happens::Message(m) => Some(Event::Message(m)),
            Happens::Time => Some(Event::Time),
            _ => None,
        }
    }
}
