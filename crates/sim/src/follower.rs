//! A replica: the node, its end of the connection to its primary, and the copy that comes when there is no history to follow with.
//!
//! The node follows and replays; here its steps are made one at a time, and what its receiver says is done.

use base::Position;
use node::Node;
use replica::read::{AsOf, Timestamps};
use replica::ship::receiver::{Command, Event};
use replica::ship::{Acked, Identity, Receiver, RingWriter};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use wal::DataDir;
use wal::aside::AsideName;

use crate::model::Terms;
use crate::world::{What, World};

/// A checkpoint that is arriving.
struct Copy {
    number: u64,
    terms: Terms,
    bytes: Vec<u8>,
}

pub struct Follower {
    /// None while there is no history to follow with.
    pub node: Option<Arc<Node>>,
    /// The directory, while there is no node on it.
    dir: Option<Arc<DataDir>>,
    pub target: usize,
    pub receiver: Receiver,
    ring: Option<RingWriter>,
    copy: Option<Copy>,
    /// Nothing is followed, because a copy is to come; the history on the disk, which stays until then, goes up to here.
    pub held: Option<Position>,
    pub connection: Option<usize>,
    /// What it knows of the primary's region.
    pub timestamps: Timestamps,
    /// As of when what it shows is the newest there was.
    pub as_of: AsOf,
    /// Shown without a primary's word: one replica is enough for a commit, and this one has it.
    pub own: Position,
    /// The ring was overrun and has not been restarted.
    lost: bool,
    /// Groups that came damaged.
    damaged: u64,
    /// The last copy did not come: the next is begun then.
    copy_from: u64,
    /// The primary has said that the histories agree, since the node started.
    agreed: bool,
    /// It holds what the cluster does not have.
    pub parted: bool,
}

/// Microseconds until a copy is begun when the last did not come.
const PAUSE: u64 = 300_000;

/// How long a node that starts waits for its primary's word.
pub const FIRST_WORD: u64 = 150_000;

/// Bytes of a replica's ring.
pub const RING: usize = 4 << 10;

impl Follower {
    /// With this node; or over this directory, if there is one, without.
    pub fn new(
        i: usize,
        target: usize,
        node: Option<Arc<Node>>,
        dir: Option<Arc<DataDir>>,
    ) -> Follower {
        let mut f = Follower {
            receiver: Receiver::new(identity(i, None, Position::ZERO)),
            node: None,
            dir,
            target,
            ring: None,
            copy: None,
            held: None,
            connection: None,
            timestamps: Timestamps::new(0),
            as_of: AsOf::default(),
            own: Position::ZERO,
            lost: false,
            damaged: 0,
            copy_from: 0,
            agreed: false,
            parted: false,
        };
        if let Some(node) = node {
            f.follow(node);
        }
        f.greets_anew(i);
        f
    }

    fn follow(&mut self, node: Arc<Node>) {
        let following = node.following().expect("it was started to follow");
        self.ring = following.take_ring();
        self.timestamps = Timestamps::new(node.cluster());
        self.as_of = AsOf::default();
        (self.lost, self.damaged, self.own) = (false, 0, Position::ZERO);
        (self.node, self.dir) = (Some(node), None);
    }

    /// The next connection begins with what is here.
    fn greets_anew(&mut self, i: usize) {
        let last = self.received().unwrap_or_default();
        self.receiver = Receiver::new(identity(i, self.dir(), last));
    }

    /// The node's directory, or the one without a node.
    pub fn dir(&self) -> Option<&DataDir> {
        let node = self.node.as_ref().map(|n| n.dir());
        node.or(self.dir.as_deref())
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

fn identity(node: usize, dir: Option<&DataDir>, last: Position) -> Identity {
    Identity {
        cluster: dir.map_or(0, DataDir::cluster),
        node: format!("node{node}"),
        terms: dir.map_or(vec![(1, Position::ZERO)], DataDir::terms),
        heard: dir.map_or(0, heard),
        last,
        ring: RING as u64,
    }
}

impl World {
    /// An event for a replica's receiver, and everything that follows from it.
    pub fn receive(&mut self, i: usize, f: &mut Follower, event: Event) {
        let mut out = Vec::new();
        f.receiver.handle(event, &mut out);
        for command in out {
            self.do_receive(i, f, command);
        }
        if f.receiver.is_streaming() && !std::mem::replace(&mut f.agreed, true) {
            let dir = f.dir().expect("what follows has one");
            dir.follow()
                .unwrap_or_else(|e| panic!("that it follows is not written: {e}"));
        }
    }

    /// A node that starts has waited for its primary's word: it shows what it has, where one replica is enough for a commit and it had all
    /// of a primary.
    pub fn show_own_log(&mut self, i: usize, f: &mut Follower) {
        if f.agreed {
            return;
        }
        if let Some(node) = f.node.as_ref().filter(|n| n.show_own_log()) {
            f.own = node.recovered_end();
            let own = f.own;
            self.say(|| format!("node {i} shows what it has, up to {own}"));
        }
    }

    /// A copy is needed, and the last one did not come: the node goes on with what it has.
    fn put_off(&mut self, i: usize, f: &mut Follower) -> bool {
        if f.node.is_none() || self.now >= f.copy_from {
            return false;
        }
        f.greets_anew(i);
        if let Some(c) = f.connection.take() {
            self.hang_up(c, true);
        }
        self.say(|| format!("node {i} puts its copy off"));
        self.report.put_off += 1;
        self.show_own_log(i, f);
        let life = self.machines[i].life;
        self.later(f.copy_from - self.now, What::Connect(i, life));
        true
    }

    fn do_receive(&mut self, i: usize, f: &mut Follower, command: Command) {
        match command {
            Command::Send(m) => {
                if let Some(c) = f.connection {
                    self.send(c, true, m.to_bytes());
                }
            }
            Command::Write { message, restart } => {
                let (Some(node), Some(ring)) = (&f.node, &mut f.ring) else {
                    return;
                };
                if restart {
                    ring.restart();
                    f.lost = false;
                }
                if let Some(following) = node.following() {
                    following.take(ring, &message.to_bytes(), &self.machines[i].env);
                }
            }
            Command::Published(to) => {
                if let Some(following) = f.node.as_ref().and_then(|n| n.following()) {
                    following.published(f.receiver.term(), to);
                }
            }
            Command::SetTerms(terms) => {
                let dir = f.dir().expect("a history has a directory");
                dir.set_terms(&terms)
                    .unwrap_or_else(|e| panic!("the terms are not written: {e}"));
                self.say(|| format!("node {i} follows terms {terms:?}"));
                f.parted = false;
                if let Some(following) = f.node.as_ref().and_then(|n| n.following()) {
                    following.published(f.receiver.term(), Position::ZERO);
                }
                self.machines[i].watched.renew(terms);
            }
            Command::BeginBootstrap {
                cluster,
                terms,
                number,
                start,
                ..
            } => {
                let term = terms.last().map_or(0, |t| t.0);
                if let Some(node) = &f.node {
                    let heard = node.dir().hear(term);
                    heard.unwrap_or_else(|e| panic!("the term is not written: {e}"));
                    if let Some(following) = node.following() {
                        following.heard_of(term);
                    }
                }
                if self.put_off(i, f) {
                    return;
                }
                self.say(|| format!("node {i} begins anew from checkpoint {number} at {start}"));
                if f.node.is_some() {
                    f.held = f.received();
                    (f.node, f.ring) = (None, None);
                }
                let dir = match f.dir.take() {
                    Some(dir) => dir,
                    None => self.machines[i].open(Some(cluster)),
                };
                dir.begin_copy(&terms)
                    .unwrap_or_else(|e| panic!("no copy is begun: {e}"));
                f.dir = Some(dir);
                f.copy = Some(Copy {
                    number,
                    terms,
                    bytes: Vec::new(),
                });
                self.machines[i].watched.forget();
                self.sessions_end(i);
                self.report.bootstraps += 1;
            }
            Command::Store { offset, bytes } => {
                let copy = f.copy.as_mut().expect("a copy was begun");
                assert_eq!(copy.bytes.len() as u64, offset);
                copy.bytes.extend(bytes);
            }
            Command::FinishBootstrap => {
                let copy = f.copy.take().expect("a copy was begun");
                let dir = f.dir.take().expect("a copy has a directory");
                let receive = || -> wal::Result<()> {
                    let len = copy.bytes.len() as u64;
                    let mut receiver = dir.receive_checkpoint(copy.number, len)?;
                    receiver.write(0, &copy.bytes)?;
                    receiver.finish(&copy.terms).map(drop)
                };
                receive().unwrap_or_else(|e| panic!("the copy is not whole: {e}"));
                (f.held, f.parted) = (None, false);
                drop(dir);
                self.start_to_follow(i, f);
                let start = f.received().expect("it follows");
                self.say(|| format!("node {i} has its copy, up to {start}"));
                self.receive(i, f, Event::Bootstrapped { start });
            }
            Command::Diverged { at, term } => self.diverged(i, f, at, term),
            Command::ReadAround(at) => self.show_around(i, f, at),
            Command::Refuse(why) => panic!("node {i} refuses its primary: {why}"),
            Command::HandedOver { last, .. } => {
                self.say(|| format!("node {i} has everything up to {last}: handed over"));
                self.later(0, What::Promote(i, self.machines[i].life));
            }
            Command::Close(why) => {
                self.say(|| format!("node {i} ends its connection: {why}"));
                if let Some(c) = f.connection.take() {
                    self.hang_up(c, true);
                }
            }
            Command::Reconnect { after_millis } => {
                f.connection = None;
                if f.copy.is_some() && f.held.is_some() {
                    f.copy_from = self.now + PAUSE;
                    self.take_up(i, f);
                }
                let life = self.machines[i].life;
                self.later(after_millis * 1_000, What::Connect(i, life));
            }
        }
    }

    /// The primary wants to be shown what the log here holds around this position.
    fn show_around(&mut self, i: usize, f: &mut Follower, at: Position) {
        let dir = f.dir().expect("a history has a directory");
        let around = dir.around(at);
        let around = around.unwrap_or_else(|e| panic!("the log is not readable: {e}"));
        self.receive(i, f, Event::AroundRead(Box::new(around)));
    }

    /// What is here above `at` is not part of the history of `term`.
    fn diverged(&mut self, i: usize, f: &mut Follower, at: Position, term: u64) {
        let dir = f.dir().expect("who diverged has a history");
        let knows = dir.diverged().is_ok_and(|d| d.is_some());
        if knows && self.put_off(i, f) {
            return;
        }
        let had = f.received();
        (f.node, f.ring) = (None, None);
        let dir = f.dir.take().unwrap_or_else(|| self.machines[i].open(None));
        assert!(
            dir.terms().iter().all(|t| t.0 != term) && self.began.contains_key(&term),
            "node {i} sets aside what no other term has cut off: above {at}, for term {term}"
        );
        f.connection = None;
        dir.hear(term)
            .unwrap_or_else(|e| panic!("the term is not written: {e}"));
        dir.diverge(term, at)
            .unwrap_or_else(|e| panic!("the mark is not written: {e}"));
        let aside = dir
            .set_aside(term, at, |_, _| ())
            .unwrap_or_else(|e| panic!("nothing is set aside: {e}"));
        node::aside::keep_base(&dir, AsideName { term, after: at })
            .unwrap_or_else(|e| panic!("no base is kept: {e}"));
        let cut = dir
            .cut_back(at)
            .unwrap_or_else(|e| panic!("the log is not cut: {e}"));
        self.say(|| {
            format!(
                "node {i} diverged from term {term} after {at}: {} commits set aside, cut {cut}",
                aside.commits
            )
        });
        self.machines[i].watched.forget();
        self.sessions_end(i);
        self.report.set_aside += 1;
        self.report.cut_back += u64::from(cut);
        f.parted = !cut;
        match cut {
            true => {
                dir.agree()
                    .unwrap_or_else(|e| panic!("the mark is not removed: {e}"));
                drop(dir);
                self.take_up(i, f);
            }
            // Whole it comes, as for one that has nothing.
            false => {
                f.held = had;
                f.receiver = Receiver::new(identity(i, Some(&dir), Position::ZERO));
                f.dir = Some(dir);
            }
        }
        self.later(50_000, What::Connect(i, self.machines[i].life));
        // The moment when its copies count most.
        if self.dice.percent(40) {
            let soon = 48_000 + self.dice.below(12_000);
            self.later(soon, What::Lose(f.target));
        }
    }

    /// The node starts on the history on its disk, which no copy has replaced.
    pub fn take_up(&mut self, i: usize, f: &mut Follower) {
        (f.copy, f.held, f.node, f.dir) = (None, None, None, None);
        self.start_to_follow(i, f);
        f.greets_anew(i);
        let last = f.received().expect("it follows");
        self.say(|| format!("node {i} goes on with what it has, up to {last}"));
        f.agreed = false;
        let life = self.machines[i].life;
        self.later(FIRST_WORD, What::ShowOwnLog(i, life));
    }

    /// The node starts over its directory, which is not open.
    fn start_to_follow(&mut self, i: usize, f: &mut Follower) {
        let node = self.machines[i].start(true, &self.config);
        let node = node.unwrap_or_else(|why| panic!("node {i} does not start: {why}"));
        self.machines[i].watched.renew(node.terms());
        f.follow(node);
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

    fn moved(&mut self, i: usize, f: &mut Follower) {
        let Some(following) = f.node.as_ref().and_then(|n| n.following()) else {
            return;
        };
        if let Some(e) = following.failure() {
            panic!("node {i} stops following: {e}");
        }
        let damaged = following.stats.damaged.load(Ordering::Relaxed);
        self.report.damaged += damaged - std::mem::replace(&mut f.damaged, damaged);
        let m = &following.marks;
        if following.take_overrun() {
            let from = m.received.get();
            self.say(|| format!("node {i}: the stream has a gap behind {from}"));
            self.report.overruns += 1;
            f.lost = true;
            self.receive(i, f, Event::Overrun { from });
        }
        let acked = Acked {
            received: m.received.get(),
            persisted: m.persisted.get(),
            applied: m.applied.get(),
            visible: m.visible.get(),
        };
        self.receive(i, f, Event::Moved(acked));
    }
}
