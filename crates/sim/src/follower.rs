//! What the threads of a replica do, one step at a time: the receiver, the consumer of the ring, the replica's own log, the workers
//! of replay.

use base::{Oid, Position, Result};
use replica::ReplicaMarks;
use replica::read::{AsOf, Timestamps};
use replica::replay::{Build, Policy, ReplayOptions, SchemaSink, Stepper};
use replica::ship::receiver::{Command, Event};
use replica::ship::{Acked, Identity, Message, Read, Receiver, Ring, RingReader, RingWriter};
use std::sync::Arc;
use txn::TxnManager;
use wal::{DataDir, Group, LogWriter, Recovered};

use crate::machine::{Engine, recover};
use crate::model::Terms;
use crate::world::{What, World};

/// What replay asks of a node.
struct Sink(Arc<TxnManager>);

impl SchemaSink for Sink {
    fn schema(&self, at: Position, _: &[u8]) -> Result<Vec<Build>> {
        panic!("the schema changes at {at}: the simulation makes no DDL")
    }

    fn needs_barrier(&self, _: &[u8]) -> Result<bool> {
        Ok(false)
    }

    fn sequence(&self, _: Position, _: Oid, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn visible(&self, to: Position) {
        self.0.marks.show(to);
    }
}

/// A history that is followed.
pub struct Following {
    pub engine: Engine,
    pub marks: Arc<ReplicaMarks>,
    pub stepper: Stepper,
    pub log: LogWriter,
    /// Readers wait until this is visible: recovery keeps no older versions.
    pub floor: Position,
    /// The newest term of its history when it began, and the newest that it has heard of.
    known: u64,
    heard: u64,
    /// Shown without a primary's word: one replica is enough for a commit, and this one has it.
    pub own: Position,
}

impl Following {
    /// The term whose primary's words count.
    pub fn followed(&self) -> u64 {
        self.marks.followed(self.known, self.heard)
    }
}

/// A checkpoint that is arriving.
struct Copy {
    number: u64,
    terms: Terms,
    bytes: Vec<u8>,
}

pub struct Follower {
    pub dir: Option<Arc<DataDir>>,
    pub target: usize,
    pub receiver: Receiver,
    ring: (RingWriter, RingReader),
    pub following: Option<Following>,
    copy: Option<Copy>,
    /// Nothing is followed, because a copy is to come; the history on the disk, which stays until then, goes up to here.
    pub held: Option<Position>,
    pub connection: Option<usize>,
    /// What it knows of the primary's region.
    pub timestamps: Timestamps,
    /// As of when what it shows is the newest there was.
    pub as_of: AsOf,
    /// The ring was overrun and has not been restarted.
    lost: bool,
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

const RING: usize = 4 << 10;

impl Follower {
    /// A batch or a tick goes into the ring.
    fn write(&mut self, message: &Message, restart: bool) {
        if restart {
            self.ring.0.restart();
            self.lost = false;
        }
        self.ring.0.write(&message.to_bytes());
    }

    /// Over a directory, if there is one, with what was recovered from it.
    pub fn new(
        node: usize,
        target: usize,
        policy: Policy,
        dir: Option<Arc<DataDir>>,
        found: Option<(Engine, Recovered)>,
    ) -> Follower {
        let last = found.as_ref().map_or(Position::ZERO, |f| f.1.last);
        if let Some(dir) = &dir {
            dir.unseal()
                .unwrap_or_else(|e| panic!("the seal is not removed: {e}"));
        }
        let identity = identity(node, dir.as_deref(), last);
        let mut follower = Follower {
            receiver: Receiver::new(identity),
            dir,
            target,
            ring: Ring::pair(RING),
            following: None,
            copy: None,
            held: None,
            connection: None,
            timestamps: Timestamps::new(0),
            as_of: AsOf::default(),
            lost: false,
            copy_from: 0,
            agreed: false,
            parted: false,
        };
        if let Some((engine, recovered)) = found {
            follower.follow(engine, &recovered, policy);
        }
        follower
    }

    fn follow(&mut self, engine: Engine, recovered: &Recovered, policy: Policy) {
        let dir = self.dir.as_ref().expect("what was recovered lies in it");
        let last = recovered.last;
        let log = LogWriter::resume(dir.log().clone(), &recovered.end, recovered.end.term);
        let log = log.unwrap_or_else(|e| panic!("the log does not open: {e}"));
        let begun = node::reach::begin(dir, recovered, recovered.end.term, true);
        begun.unwrap_or_else(|e| panic!("the anchor is not written: {e}"));
        // What is here may not be published: nothing is shown until the primary says so.
        let marks = Arc::new(ReplicaMarks::new(Position::ZERO));
        marks.received.raise(last);
        marks.persisted.raise(last);
        let options = ReplayOptions {
            policy,
            workers: 3,
            segment_rows: 3,
            slice: 2,
            max_rows: 40,
            max_bytes: 16 << 10,
            last_writes: 6,
            granules: 8,
            ..ReplayOptions::default()
        };
        let sink = Arc::new(Sink(engine.manager.clone()));
        let store = engine.store().clone();
        let stepper = Stepper::new(store, marks.clone(), sink, last, options);
        self.timestamps = Timestamps::new(dir.cluster());
        self.as_of = AsOf::default();
        self.following = Some(Following {
            engine,
            marks,
            stepper,
            log,
            floor: last,
            known: dir.terms().last().expect("never empty").0,
            heard: heard(dir),
            own: Position::ZERO,
        });
    }

    /// Whether everything that has arrived was taken.
    pub fn is_ring_empty(&self) -> bool {
        self.lost || self.ring.0.ring().backlog() == 0
    }

    /// Where readers stand; none while nothing may be shown.
    pub fn shown(&self) -> Option<Position> {
        let f = self.following.as_ref()?;
        let visible = f.marks.visible.get();
        (visible >= f.floor).then_some(visible)
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
            let dir = f.dir.as_ref().expect("who follows has one");
            dir.follow()
                .unwrap_or_else(|e| panic!("that it follows is not written: {e}"));
        }
    }

    /// A node that starts has waited for its primary's word: it shows what it has, where one replica is enough for a commit and it had all
    /// of a primary.
    pub fn show_own_log(&mut self, i: usize, f: &mut Follower) {
        let dir = f.dir.as_ref();
        let parted = dir.is_some_and(|d| d.diverged().is_ok_and(|d| d.is_some()));
        let led = dir.is_some_and(|d| d.has_led().is_ok_and(|led| led));
        if f.agreed || parted || self.config.needed > usize::from(!led) {
            return;
        }
        if let Some(following) = &mut f.following {
            let floor = following.floor;
            self.say(|| format!("node {i} shows what it has, up to {floor}"));
            following.own = floor;
            let scheduled = following.marks.scheduled.get();
            following.stepper.tick(scheduled, floor);
        }
    }

    /// A copy is needed, and the last one did not come: the node goes on with what it has.
    fn put_off(&mut self, i: usize, f: &mut Follower) -> bool {
        let Some(following) = f.following.as_ref().filter(|_| self.now < f.copy_from) else {
            return false;
        };
        let received = following.marks.received.get();
        f.receiver = Receiver::new(identity(i, f.dir.as_deref(), received));
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
            Command::Write { message, restart } => f.write(&message, restart),
            Command::Published(to) => {
                if let Some(following) = &f.following {
                    following.marks.hear(f.receiver.term(), to);
                }
            }
            Command::SetTerms(terms) => {
                let dir = f.dir.as_ref().expect("a history has a directory");
                dir.set_terms(&terms)
                    .unwrap_or_else(|e| panic!("the terms are not written: {e}"));
                self.say(|| format!("node {i} follows terms {terms:?}"));
                f.parted = false;
                if let Some(following) = &f.following {
                    following.marks.hear(f.receiver.term(), Position::ZERO);
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
                if let (Some(dir), Some(following)) = (&f.dir, &mut f.following) {
                    dir.hear(term)
                        .unwrap_or_else(|e| panic!("the term is not written: {e}"));
                    following.heard = following.heard.max(term);
                }
                if self.put_off(i, f) {
                    return;
                }
                self.say(|| format!("node {i} begins anew from checkpoint {number} at {start}"));
                if let Some(old) = f.following.take() {
                    f.held = Some(old.marks.received.get());
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
                let dir = f.dir.clone().expect("a copy has a directory");
                let receive = || -> wal::Result<()> {
                    let len = copy.bytes.len() as u64;
                    let mut receiver = dir.receive_checkpoint(copy.number, len)?;
                    receiver.write(0, &copy.bytes)?;
                    receiver.finish(&copy.terms).map(drop)
                };
                receive().unwrap_or_else(|e| panic!("the copy is not whole: {e}"));
                (f.held, f.parted) = (None, false);
                let (engine, recovered) = recover(&dir);
                let start = recovered.last;
                (f.ring, f.lost) = (Ring::pair(RING), false);
                f.follow(engine, &recovered, self.config.policy);
                self.machines[i].watched.renew(dir.terms());
                self.say(|| format!("node {i} has its copy, up to {start}"));
                self.receive(i, f, Event::Bootstrapped { start });
            }
            Command::Diverged { at, term } => {
                let dir = f.dir.clone().expect("who diverged has a history");
                let knows = dir.diverged().is_ok_and(|d| d.is_some());
                if knows && self.put_off(i, f) {
                    return;
                }
                assert!(
                    dir.terms().iter().all(|t| t.0 != term) && self.began.contains_key(&term),
                    "node {i} sets aside what no other term has cut off: above {at}, for term {term}"
                );
                let had = f.following.take().map(|f| f.marks.received.get());
                f.connection = None;
                dir.hear(term)
                    .unwrap_or_else(|e| panic!("the term is not written: {e}"));
                dir.diverge(term, at)
                    .unwrap_or_else(|e| panic!("the mark is not written: {e}"));
                let aside = dir
                    .set_aside(term, at, |_, _| ())
                    .unwrap_or_else(|e| panic!("nothing is set aside: {e}"));
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
                        self.take_up(i, f);
                    }
                    // Whole it comes, as for one that has nothing.
                    false => {
                        f.held = had;
                        f.receiver = Receiver::new(identity(i, Some(&dir), Position::ZERO));
                    }
                }
                (f.ring, f.lost) = (Ring::pair(RING), false);
                self.later(50_000, What::Connect(i, self.machines[i].life));
                // The moment when its copies count most.
                if self.dice.percent(40) {
                    let soon = 48_000 + self.dice.below(12_000);
                    self.later(soon, What::Lose(f.target));
                }
            }
            Command::ReadAround(at) => self.show_around(i, f, at),
            Command::Refuse(why) => panic!("node {i} refuses its primary: {why}"),
            Command::HandedOver { last, .. } => {
                self.say(|| format!("node {i} has everything up to {last}: handed over"));
                self.later(0, What::Promote(i, self.machines[i].life));
            }
            Command::Close(why) => {
                self.say(|| format!("node {i} ends its connection: {why}"));
                f.connection
                    .take()
                    .into_iter()
                    .for_each(|c| self.hang_up(c, true));
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
        let dir = f.dir.as_ref().expect("a history has a directory");
        let around = dir.around(at);
        let around = around.unwrap_or_else(|e| panic!("the log is not readable: {e}"));
        self.receive(i, f, Event::AroundRead(Box::new(around)));
    }

    /// The node starts on the history on its disk, which no copy has replaced.
    pub fn take_up(&mut self, i: usize, f: &mut Follower) {
        let dir = f.dir.clone().expect("a history has a directory");
        (f.copy, f.held, f.following) = (None, None, None);
        let (engine, recovered) = recover(&dir);
        self.say(|| {
            format!(
                "node {i} goes on with what it has, up to {}",
                recovered.last
            )
        });
        (f.ring, f.lost) = (Ring::pair(RING), false);
        f.receiver = Receiver::new(identity(i, Some(&dir), recovered.last));
        f.follow(engine, &recovered, self.config.policy);
        f.agreed = false;
        self.machines[i].watched.renew(dir.terms());
        let life = self.machines[i].life;
        self.later(FIRST_WORD, What::ShowOwnLog(i, life));
    }

    /// The consumer takes a frame from the ring.
    pub fn consume(&mut self, i: usize, f: &mut Follower) {
        let Some(following) = &mut f.following else {
            return;
        };
        if !following.stepper.has_room() {
            return;
        }
        let mut frame = Vec::new();
        match f.ring.1.read(&mut frame) {
            Read::Empty => {}
            Read::Overrun => {
                let from = following.marks.received.get();
                self.say(|| format!("node {i}: the ring was overrun behind {from}"));
                self.report.overruns += 1;
                f.lost = true;
                self.receive(i, f, Event::Overrun { from });
            }
            Read::Frame => {
                let message = Message::decode(&frame).expect("what was received was read before");
                let step = message.step().expect("a batch or a tick");
                let received = following.marks.received.get();
                // What followed a damaged group, until the stream begins anew.
                if f.lost && step.after > received {
                    return;
                }
                assert!(
                    step.after <= received && step.upto > received,
                    "the ring is a chain: {} to {} after {received}",
                    step.after,
                    step.upto
                );
                following.marks.hear(step.term, step.published);
                if let Message::Batch { group, .. } = message {
                    let Ok(group) = Group::from_bytes(group) else {
                        self.say(|| format!("node {i}: a damaged group, after {received}"));
                        self.report.damaged += 1;
                        f.lost = true;
                        return self.receive(i, f, Event::Overrun { from: received });
                    };
                    let appended = following.log.append_shipped(&group);
                    appended.unwrap_or_else(|e| panic!("append failed: {e}"));
                    following.marks.received.raise(step.upto);
                    following.stepper.feed(group, step.upto);
                }
                following.marks.received.raise(step.upto);
                following.marks.hear(step.term, step.published);
                following.stepper.tick(step.upto, Position::ZERO);
                self.say(|| format!("node {i} takes {} to {}", step.after, step.upto));
            }
        }
        self.moved(i, f);
    }

    /// The replica's own log is synced.
    pub fn persist(&mut self, i: usize, f: &mut Follower) {
        let Some(following) = &mut f.following else {
            return;
        };
        let synced = following.log.sync();
        synced.unwrap_or_else(|e| panic!("sync failed: {e}"));
        let received = following.marks.received.get();
        following.marks.persisted.raise(received);
        self.moved(i, f);
    }

    /// A worker or the snapshotter makes a step.
    pub fn replay(&mut self, i: usize, f: &mut Follower) {
        let Some(following) = &mut f.following else {
            return;
        };
        let stepper = &mut following.stepper;
        match self.dice.below(8) {
            0..=1 => stepper.snapshot(self.now * 1_000),
            2 => {
                stepper
                    .build()
                    .unwrap_or_else(|e| panic!("a build failed: {e}"));
            }
            _ => {
                let worker = self.dice.below(stepper.workers() as u64) as usize;
                let stepped = stepper.step(worker);
                stepped.unwrap_or_else(|e| panic!("node {i}: replay failed: {e}"));
            }
        }
        self.moved(i, f);
    }

    fn moved(&mut self, i: usize, f: &mut Follower) {
        if let Some(following) = &f.following {
            let m = &following.marks;
            let acked = Acked {
                received: m.received.get(),
                persisted: m.persisted.get(),
                applied: m.applied.get(),
                visible: m.visible.get(),
            };
            self.receive(i, f, Event::Moved(acked));
        }
    }
}
