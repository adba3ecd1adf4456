//! The primary's end of one replica's connection: it does what `replica::ship::Sender` says, and says what the connection is to do.
//!
//! ```text
//! messages of the replica ──┐                             ┌──▶ messages and batches to the replica
//! groups just made durable ─┼──▶ Sending (ship::Sender) ──┼──▶ jobs: reads of the log or the checkpoint, a seal
//! time, every 10 ms ────────┘            │                └──▶ the end of the connection
//!                                        └──▶ acknowledgements to the node's durability decider (`shipping`)
//! ```
//! Groups leave as they come. Those that nothing waits for gather for a moment first where the replica is far (`ship::gather`), and leave together.
//!
//! Nothing of the primary waits for it. It holds positions, not data: groups stand in the node's memory, and when a slow connection falls
//! behind that, the sender goes back to the log's segments.
//!
//! **Jobs** may wait for the disk. They are to be run in the order in which they came, and what they give back comes as an event.
//!
//! Left out on purpose: sockets, threads, and what a node that leads knows of all its replicas together.

use base::{Error, Position, Result, SqlState};
use parking_lot::Mutex;
use replica::lease::Word;
use replica::ship::gather::Gather;
use replica::ship::sender::{Command, Event as Happened};
use replica::ship::{Facts, Freshness, Message, Peer, Sender, Step};
use std::sync::Arc;
use std::time::Duration;
use wal::{CheckpointReader, Group, LogReader};

use crate::hand_over::HandOver;
use crate::lending::Lending;
use crate::log_reads::{OlderLog, Read, open_checkpoint, read_log};
use crate::node::Node;
use crate::pace::{HIGH_WATER, is_too_much};
use crate::promote::Heir;
use crate::shipping::Next;

/// What a job gives back.
pub struct Done(Result<Answer>);

enum Answer {
    Read(Read),
    Heir(Heir),
}

/// Work that may wait for the disk.
pub type Job = Box<dyn FnOnce() -> Done + Send>;

/// What happens to a connection.
pub enum Event {
    /// From the replica, after its `Hello`.
    Message(Message),
    Done(Done),
    /// The replica has taken some of what waited to be written to it.
    Taken,
    /// Something may be durable, or published.
    Moved,
    /// About 10 ms have passed.
    Time,
}

/// What the connection is to do, in order.
pub enum Do {
    Send(Message),
    /// [`Step::encode_batch`] needs no copy of the group.
    Batch {
        step: Step,
        group: Arc<Group>,
    },
    Run(Job),
    /// There is a primary of this newer term ([`Node::depose`]).
    Depose(u64),
    /// A stranger says so.
    Hint(u64),
    /// The replica holds `theirs` of this primary's own history, of which nothing is here above `ours`.
    Lost {
        ours: Position,
        theirs: Position,
    },
    /// It says that it is ahead and has not shown it: worth an alarm, and nothing else is done.
    Unproven {
        ours: Position,
        theirs: Position,
        why: String,
    },
    Note(Note),
    /// The connection ends, for this reason.
    End(String),
    /// It ends, because something failed.
    Fail(Error),
}

/// Something worth a line.
#[derive(Debug)]
pub enum Note {
    CaughtUp,
    AskedToHandOver,
    /// This node takes no more writes, and this is its last position.
    HandedOver(Position),
    /// It was handed over to this one.
    Taken(String),
    /// What stands between the two waits for an answer that does not come.
    Undecided {
        decided: Position,
        last: Position,
    },
}

/// How old what a replica has, has on its disk, and shows is, by this node's clock.
#[derive(Default)]
pub struct Lag {
    pub received: Freshness,
    pub persisted: Freshness,
    pub visible: Freshness,
}

/// See the head of the file.
pub struct Sending {
    node: Arc<Node>,
    older: Option<Arc<dyn OlderLog>>,
    sender: Sender,
    id: u64,
    commands: Vec<Command>,
    notes: Vec<Note>,
    failed: Option<Error>,
    /// Everything up to here has been shown to the sender.
    fed: Position,
    /// Jobs under way.
    jobs: usize,
    reader: Option<Box<LogReader>>,
    checkpoint: Option<Arc<CheckpointReader>>,
    hand_over: HandOver,
    /// This replica is the one that takes over, and the node is not known to be sealed.
    sealing: bool,
    lag: Arc<Mutex<Lag>>,
    /// When the replica last said something: nanoseconds.
    heard: u64,
    /// Read leases of a replica that knows of them; none: it gets none.
    lending: Option<Lending>,
    gather: Gather,
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.node.shipping().leave(self.id);
    }
}

impl Sending {
    /// A replica of this name stands at `last`. From now on groups are kept for it, and log.
    pub fn new(
        node: Arc<Node>,
        older: Option<Arc<dyn OlderLog>>,
        peer: Peer,
        name: &str,
        address: &str,
        last: Position,
    ) -> Sending {
        let clock = node.clock();
        let (now, member) = (clock.unix_micros(), peer == Peer::Member);
        let id = node.shipping().join(name, member, address, last, now);
        Sending {
            heard: clock.monotonic_nanos(),
            older,
            sender: Sender::new(peer),
            id,
            commands: Vec::new(),
            notes: Vec::new(),
            failed: None,
            fed: Position::ZERO,
            jobs: 0,
            reader: None,
            checkpoint: None,
            hand_over: HandOver::default(),
            sealing: false,
            lag: Arc::default(),
            lending: None,
            gather: Gather::default(),
            node,
        }
    }

    /// The replica knows of read leases. One that has not proven that it is a node gets none all the same.
    pub fn knows_leases(&mut self) {
        self.lending = Lending::new(&self.node);
    }

    /// The replica can be told how to acknowledge (`ship::Message::Acks`).
    pub fn knows_acks(&mut self) {
        self.sender.knows_acks();
    }

    /// The number of this replica in [`crate::Shipping`].
    pub fn id(&self) -> u64 {
        self.id
    }

    /// What the replica calls itself, once it has greeted.
    pub fn name(&self) -> &str {
        self.sender.node()
    }

    pub fn lag(&self) -> &Arc<Mutex<Lag>> {
        &self.lag
    }

    /// Whether more is sent while so many bytes wait to be written.
    pub fn has_room(pending: usize) -> bool {
        pending < HIGH_WATER
    }

    /// Whether the replica says that it is ahead, and is asked to show it.
    pub fn is_proving(&self) -> bool {
        self.sender.is_proving()
    }

    /// The replica's Hello, and what this primary is ([`Node::facts`]). Whether it is not refused.
    pub fn greet(&mut self, hello: Message, facts: Facts, out: &mut Vec<Do>) -> bool {
        self.fed = facts.last;
        self.sender.greet(hello, facts, &mut self.commands);
        let closed = |c: &Command| matches!(c, Command::Close(_));
        let accepted = !self.commands.iter().any(closed);
        self.event(Happened::Published(self.node.marks().published.get()));
        self.event(Happened::Time);
        self.obey(out);
        accepted
    }

    /// What happens, and what is then to be done. `pending`: bytes that wait to be written.
    pub fn handle(&mut self, event: Event, pending: usize, out: &mut Vec<Do>) {
        let now = self.node.clock().monotonic_nanos();
        match event {
            Event::Message(Message::Lease(word)) => {
                self.heard = now;
                self.lease_word(word);
            }
            Event::Message(m) => {
                self.heard = now;
                if !is_too_much(&m, self.sender.is_live(), pending, self.jobs) {
                    self.event(Happened::Message(m));
                }
            }
            Event::Done(Done(answer)) => {
                self.jobs -= 1;
                match answer {
                    Ok(answer) => self.answered(answer),
                    Err(e) => self.failed = Some(e),
                }
            }
            Event::Taken => self.heard = now,
            Event::Moved if self.gathers(now) => {}
            Event::Moved => self.feed(),
            Event::Time => {
                let silence = self.node.silence();
                if now.saturating_sub(self.heard) > silence.as_nanos() as u64 {
                    self.failed = Some(Error::new(
                        SqlState::CONNECTION_FAILURE,
                        format!("{} has said nothing for {silence:?}", self.sender.node()),
                    ));
                } else if Sending::has_room(pending) {
                    self.feed();
                    self.event(Happened::Time);
                    self.offer_lease();
                }
                self.want_lease();
                self.node.leases_lapse();
            }
        }
        self.tell_sealed(Duration::from_nanos(now));
        self.obey(out);
        let (sent, state) = (self.sender.sent(), self.sender.state_name());
        self.node.shipping().sent(self.id, sent, state);
    }

    fn event(&mut self, e: Happened) {
        let now = self.node.clock().unix_micros();
        // What leaves now is as of now. In this order it may say more than was published then, and not less.
        self.sender.publishes(self.node.marks().published.get());
        self.sender.leads(self.node.region().term() != 0);
        let awaits = self.awaits();
        self.sender.awaits(awaits);
        self.sender.handle(e, now, &mut self.commands);
    }

    /// A replica that sends what is not its to say is left: `ship::Sender` says so.
    fn lease_word(&mut self, word: Word) {
        let live = self.sender.is_live();
        match (word, &mut self.lending) {
            (Word::Ask(ask), Some(l)) if live => {
                let granted = l.asked(&self.node, self.id, ask);
                self.commands.extend(granted.map(sends));
            }
            // It was offered before the replica was caught up anew.
            (Word::Ask(_), Some(_)) => {}
            (Word::GivenBack(ask), Some(_)) => {
                let clock = self.node.clock();
                self.node.shipping().given_back(ask, || clock.boot_nanos());
            }
            (word, _) => self.event(Happened::Message(Message::Lease(word))),
        }
    }

    fn offer_lease(&mut self) {
        let live = self.sender.is_live();
        if let Some(l) = self.lending.as_mut().filter(|_| live)
            && l.offers(&self.node, self.id)
        {
            self.commands.push(sends(Word::Offer));
        }
    }

    fn want_lease(&mut self) {
        if let Some(l) = &mut self.lending
            && l.wants_back(&self.node, self.id)
        {
            self.commands.push(sends(Word::Wanted));
        }
    }

    fn answered(&mut self, answer: Answer) {
        match answer {
            Answer::Read(Read::Log(e, reader)) => {
                self.reader = reader;
                self.event(e);
            }
            Answer::Read(Read::Checkpoint(e, c)) => {
                self.checkpoint = Some(c);
                self.event(e);
            }
            Answer::Read(Read::Around(around)) => self.event(Happened::AroundRead(around)),
            Answer::Heir(Heir::This) => self.sealing = true,
            Answer::Heir(Heir::Other(name)) => self.notes.push(Note::Taken(name)),
        }
    }

    /// Tells the replica that is to take over, when it is time.
    fn tell_sealed(&mut self, now: Duration) {
        if self.sealing
            && let Some(last) = self.node.sealed_at()
        {
            self.sealing = false;
            self.notes.push(Note::HandedOver(last));
            self.feed();
            self.hand_over.sealed(last, now);
        }
        let (node, decided) = (&self.node, self.node.marks().decided.get());
        let undecided = |last| {
            let shipping = node.shipping();
            decided < last && shipping.replicas_here() >= shipping.replicas()
        };
        let Some(last) = self.hand_over.due(now, undecided) else {
            return;
        };
        if decided < last {
            self.notes.push(Note::Undecided { decided, last });
        }
        self.event(Happened::Sealed(last));
    }

    /// Whether what is there may wait for what comes next. [`Event::Moved`] is to come again at [`Sending::due`].
    fn gathers(&mut self, now: u64) -> bool {
        let awaited = !self.sender.is_live()
            || self.awaits()
            || (self.node.shipping()).is_waiting(self.id, self.sender.sent());
        !awaited && self.gather.comes(now as i64 / 1000).is_some()
    }

    /// When what has gathered is to leave: nanoseconds of the clock that only grows.
    pub fn due(&self) -> Option<u64> {
        self.gather.until().map(|at| at as u64 * 1000)
    }

    /// Whether something waits for what the replica acknowledges. Where a lease may be granted, how quick it is says whether that is done.
    fn awaits(&self) -> bool {
        self.lending.is_some() || self.node.shipping().awaits(self.id)
    }

    /// Shows the sender what became durable and what was published.
    fn feed(&mut self) {
        self.gather.left();
        let published = self.node.marks().published.get();
        loop {
            // Groups stand in memory before the mark says that they are durable: what it says now has been left there, if it was kept.
            let flushed = self.node.marks().flushed.get();
            match self.node.shipping().after(self.fed) {
                Next::Groups(some) => {
                    for g in some {
                        self.event(Happened::Shipped {
                            after: g.after,
                            upto: g.upto,
                            group: Some(g.group.clone()),
                        });
                        self.fed = g.upto;
                    }
                }
                // What stands before the log's end was not seen: the sender reads the log by itself. (A group may have one position only.)
                Next::Behind => {
                    let after = match env::fault::planted("sending.gap_is_hole") {
                        true => flushed.prev(),
                        false => flushed,
                    };
                    self.event(Happened::Shipped {
                        after,
                        upto: flushed,
                        group: None,
                    });
                    if self.fed >= flushed {
                        break;
                    }
                    self.fed = flushed;
                }
                // Positions without commits.
                Next::Nothing if flushed > self.fed => {
                    self.event(Happened::Shipped {
                        after: self.fed,
                        upto: flushed,
                        group: None,
                    });
                    self.fed = flushed;
                }
                Next::Nothing => break,
            }
        }
        self.event(Happened::Published(published));
    }

    /// Does what the sender says, as far as the node goes; the rest is the connection's.
    fn obey(&mut self, out: &mut Vec<Do>) {
        out.extend(self.notes.drain(..).map(Do::Note));
        for c in std::mem::take(&mut self.commands) {
            let next = match c {
                Command::Send(m) => {
                    if let Some(step) = m.step() {
                        self.left(&step);
                    }
                    Do::Send(m)
                }
                Command::SendBatch { step, group } => {
                    self.left(&step);
                    if let Some(l) = &mut self.lending {
                        l.sent(step.upto, self.node.clock().boot_nanos());
                    }
                    Do::Batch { step, group }
                }
                Command::ReadLog { from, bytes } => {
                    let (node, reader) = (self.node.clone(), self.reader.take());
                    let older = self.older.clone();
                    self.read(move || read_log(&node, older.as_deref(), reader, from, bytes))
                }
                Command::OpenCheckpoint => {
                    let node = self.node.clone();
                    self.read(move || open_checkpoint(&node))
                }
                Command::ReadCheckpoint { offset, bytes } => match self.checkpoint.clone() {
                    None => Do::End("no checkpoint is open".into()),
                    Some(c) => self.read(move || {
                        let bytes = c.read_at(offset, bytes as usize);
                        let bytes = bytes.map_err(crate::errors::failed)?;
                        let read = Happened::CheckpointRead { offset, bytes };
                        Ok(Read::Checkpoint(read, c))
                    }),
                },
                Command::Report { acked, echo_micros } => {
                    let mut lag = self.lag.lock();
                    lag.received.reached(acked.received, echo_micros);
                    lag.persisted.reached(acked.persisted, echo_micros);
                    lag.visible.reached(acked.visible, echo_micros);
                    drop(lag);
                    let acked = commit::Acked {
                        term: self.node.term(),
                        received: acked.received,
                        persisted: acked.persisted,
                        visible: acked.visible,
                    };
                    let clock = self.node.clock();
                    let (now, boot) = (clock.unix_micros(), clock.boot_nanos());
                    if let Some(l) = &mut self.lending {
                        l.acked(acked.received, boot);
                    }
                    self.gather.acked(echo_micros, now);
                    let shipping = self.node.shipping();
                    shipping.acked(self.id, acked, echo_micros, now, boot);
                    continue;
                }
                Command::Joined => Do::Note(Note::CaughtUp),
                Command::Seal if !self.hand_over.asked() => continue,
                Command::Seal => {
                    out.push(Do::Note(Note::AskedToHandOver));
                    let (node, name) = (self.node.clone(), self.sender.node().to_owned());
                    let id = self.id;
                    self.job(move || node.hand_over(id, &name).map(Answer::Heir))
                }
                Command::HeardOfTerm(term) => Do::Depose(term),
                Command::HintOfTerm(term) => Do::Hint(term),
                Command::ReadAround(at) => {
                    let node = self.node.clone();
                    self.read(move || {
                        let around = node.dir().around(at).map_err(crate::errors::failed)?;
                        Ok(Read::Around(Box::new(around)))
                    })
                }
                Command::Lost { ours, theirs } => Do::Lost { ours, theirs },
                Command::Unproven { ours, theirs, why } => Do::Unproven { ours, theirs, why },
                Command::Close(why) => Do::End(why),
            };
            out.push(next);
        }
        out.extend(self.failed.take().map(Do::Fail));
    }

    fn read(&mut self, read: impl FnOnce() -> Result<Read> + Send + 'static) -> Do {
        self.job(move || read().map(Answer::Read))
    }

    fn job(&mut self, work: impl FnOnce() -> Result<Answer> + Send + 'static) -> Do {
        self.jobs += 1;
        Do::Run(Box::new(move || Done(work())))
    }

    /// A message is on its way.
    fn left(&self, step: &Step) {
        let (at, mut lag) = (step.sent_micros, self.lag.lock());
        lag.received.heard(step, at);
        lag.persisted.heard(step, at);
        lag.visible.heard(step, at);
    }
}

fn sends(word: Word) -> Command {
    Command::Send(Message::Lease(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeOptions;
    use base::record::CommitBuilder;
    use replica::ship::VERSION;

    fn primary(path: &std::path::Path) -> Arc<Node> {
        let options = NodeOptions {
            threads: false,
            ..NodeOptions::default()
        };
        Arc::new(Node::open(path, options).expect("a node"))
    }

    fn commit(node: &Node) -> Position {
        let (position, ticket) = node.order().begin().expect("it leads");
        let (heads, data) = CommitBuilder::new().finish(position, 0);
        node.order().ready(ticket, heads, data);
        position
    }

    fn hello(node: &Node, last: Position) -> Message {
        Message::Hello {
            version: u16::from(VERSION),
            cluster: node.cluster(),
            node: "a".into(),
            terms: node.terms(),
            last,
            ring: 1 << 20,
        }
    }

    /// Ends of the batches among these; jobs are done.
    fn batches(s: &mut Sending, out: &mut Vec<Do>) -> Vec<Position> {
        let mut batches = Vec::new();
        while !out.is_empty() {
            for d in std::mem::take(out) {
                match d {
                    Do::Run(job) => s.handle(Event::Done(job()), 0, out),
                    Do::Batch { step, .. } => batches.push(step.upto),
                    _ => {}
                }
            }
        }
        batches
    }

    /// Its own commits, and what it lost to, are what a site waits for.
    #[test]
    fn what_nobody_waits_for_gathers_for_a_replica_that_is_far() {
        let scratch = tempfile::tempdir().expect("a directory");
        let node = primary(scratch.path());
        let begun = node.marks().flushed.get();
        let mut s = Sending::new(node.clone(), None, Peer::Member, "a", "", begun);
        let mut out = Vec::new();
        assert!(s.greet(
            hello(&node, begun),
            node.facts(None).expect("facts"),
            &mut out
        ));
        s.handle(Event::Time, 0, &mut out);
        batches(&mut s, &mut out);
        let flushed = || {
            let at = commit(&node);
            node.append_step();
            assert_eq!(node.sync_step(), Some(at));
            at
        };
        let near = flushed();
        s.handle(Event::Moved, 0, &mut out);
        assert_eq!(
            batches(&mut s, &mut out),
            [near],
            "its distance is not known"
        );
        let ack = Message::Ack {
            term: node.term(),
            received: near,
            persisted: near,
            applied: near,
            visible: near,
            echo_micros: node.clock().unix_micros() - 3_600_000_000,
        };
        s.handle(Event::Message(ack), 0, &mut out);
        let first = flushed();
        s.handle(Event::Moved, 0, &mut out);
        assert!(batches(&mut s, &mut out).is_empty() && s.due().is_some());
        let second = flushed();
        node.shipping().waits_for_log("another", second);
        assert!(!node.shipping().is_waiting(s.id(), near));
        node.shipping().waits_for_log("a", second);
        s.handle(Event::Moved, 0, &mut out);
        assert_eq!(batches(&mut s, &mut out), [first, second]);
        assert!(s.due().is_none());
        let third = flushed();
        s.handle(Event::Moved, 0, &mut out);
        assert!(batches(&mut s, &mut out).is_empty());
        // A commit that waits for replicas waits for none of them longer.
        node.shipping().want_replicas(1);
        s.handle(Event::Moved, 0, &mut out);
        assert_eq!(batches(&mut s, &mut out), [third]);
    }

    /// A group is in the file and not synced when the first replica comes: no memory keeps it, and the replica has all before it.
    #[test]
    fn a_group_that_was_written_before_a_replica_came_is_not_passed_over() {
        let scratch = tempfile::tempdir().expect("a directory");
        let node = primary(scratch.path());
        let commit = || commit(&node);
        commit();
        node.append_step();
        let before = node.sync_step().expect("written");
        let at = commit();
        assert_eq!((node.append_step(), at), (Some(at), before.next()));
        let hello = hello(&node, before);
        let mut s = Sending::new(node.clone(), None, Peer::Member, "a", "", before);
        let mut out = Vec::new();
        assert!(s.greet(hello, node.facts(None).expect("facts"), &mut out));
        assert_eq!(node.sync_step(), Some(at));
        s.handle(Event::Moved, 0, &mut out);
        let mut batches = Vec::new();
        while !out.is_empty() {
            for d in std::mem::take(&mut out) {
                match d {
                    Do::Run(job) => s.handle(Event::Done(job()), 0, &mut out),
                    Do::Batch { step, .. } => batches.push(step.upto),
                    Do::Send(m) => {
                        let upto = m.step().map_or(Position::ZERO, |t| t.upto);
                        assert!(upto < at || batches.contains(&at), "a hole up to {upto}");
                    }
                    _ => {}
                }
            }
        }
        assert_eq!(batches, [at]);
    }
}
