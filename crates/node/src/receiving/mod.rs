//! A replica's end of the connection to its primary: it does what `replica::ship::Receiver` says, and says what the connection is to do.
//!
//! ```text
//! messages of the primary ──┐                                 ┌──▶ messages to the primary
//! marks moved ──────────────┼──▶ Receiving (ship::Receiver) ──┼──▶ jobs: terms and marks to the disk, a look into the log
//! time, a wish to promote ──┘            │                    ├──▶ connect, promote, start again
//!                                        └──▶ the node's ring └──▶ the primary's first word
//! ```
//! It lives as long as the node is a replica, over all its connections. Two requests to take over are served. **Planned**: the primary is asked to
//! seal itself, and hands over what is missing. **Forced**: nobody is asked. What cannot be done with an open database is asked of the
//! owner of the node ([`Restart`]).
//!
//! **Jobs** may wait for the disk. What the receiver says after one is done when the job has given back what it found: no log of a term is taken
//! before that term is written.
//!
//! Left out on purpose: sockets, threads, and waiting. The owner calls, with what happened.

mod seen;
mod take_over;

use base::{Error, Position, Result, SqlState};
use env::fault::planted;
use parking_lot::Mutex;
use replica::lease::{self, Ask, Holder};
use replica::ship::receiver::{Command, Event as Happened};
use replica::ship::{Acked, Identity, Message, Receiver, RingWriter};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use wal::Around;

use crate::errors::failed;
use crate::following::Following;
use crate::node::Node;
use crate::promote::Promoted;
use crate::restart::{Patience, Restart, Word};
pub use seen::Seen;
pub use take_over::unconnected;

/// The pause after the first try to connect that failed, and the longest.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(5));

/// What a job gives back.
pub struct Done(Result<Answer>);

enum Answer {
    /// These terms are in the directory.
    Terms(Vec<(u64, Position)>),
    /// That there is this term is in the directory.
    Heard(u64),
    Around(Box<Around>),
    /// That this node follows is in the directory, or not.
    Follows(Option<Error>),
    /// Whether the node shows its own log, and what was heard of the primary.
    Shows(bool, Word),
    /// The report of a promotion; and why the seal is not removed.
    Leads(String, Option<Error>),
}

/// Work that may wait for the disk.
pub type Job = Box<dyn FnOnce() -> Done + Send>;

/// What happens to a replica's connection.
pub enum Event {
    Connected,
    /// No connection could be made.
    Unreachable,
    /// The connection ended, not by this end.
    Lost,
    Message(Message),
    Done(Done),
    /// [`Following::moved`].
    Moved,
    /// About 20 ms have passed: the primary hears how far this node is.
    Tell,
    /// About 100 ms have passed. Without a connection, too.
    Time,
    /// This node is asked to become the primary.
    TakeOver {
        force: bool,
        /// The term that the cluster's members have agreed on ([`Node::promote_as`]).
        named: Option<u64>,
    },
    /// The connection is to a primary of an older term than this node has heard of by now, or its address is not the primary's any more: it ends,
    /// and the next is made with what is known by now. Answered by [`Do::Connect`].
    Anew,
    /// It is not asked any more.
    Cancel,
    /// What came of [`Do::Promote`].
    Promoted(Result<Promoted>),
}

/// What the owner is to do, in order.
pub enum Do {
    Send(Message),
    /// At once, and then [`Event::Done`].
    Run(Job),
    /// The connection ends, if there is one. The next is tried after this: [`Event::Connected`] or [`Event::Unreachable`].
    Connect {
        after: Duration,
    },
    /// This term has begun.
    Hears(u64),
    /// What the primary says first; an error: it will never do. Said once.
    First(Result<Word>),
    /// The connection ends, and the node is promoted ([`Node::promote_as`]): [`Event::Promoted`].
    Promote {
        named: Option<u64>,
    },
    /// For all that have asked for a promotion.
    Answer(Result<String>),
    /// The node leads, and nothing is followed any more.
    Leads,
    /// The node has to start again. Nothing is followed until then.
    StartAgain(Restart),
    /// Nothing is followed any more, for this reason.
    Stop(Error),
    Note(Note),
}

/// Something worth a line.
#[derive(Debug)]
pub enum Note {
    /// The log flows.
    Follows,
    /// A history with these terms is followed from now on.
    Terms(Vec<(u64, Position)>),
    /// More came than replay could take. From there on the log is read again; so often by now.
    TooSlow {
        from: Position,
        overruns: u64,
    },
    /// A copy is needed, and the last one did not come: the node goes on with what is here for so long.
    PutOff {
        why: Restart,
        pause: Duration,
    },
    /// The node shows what is in its own log, for this reason.
    ShowsOwnLog(Word),
    HandedOver(Position),
    Promoted(String),
    NotPromoted(Error),
    /// Requests to take over were refused, since the connection is gone.
    NotHandedOver,
    /// The connection ends, for this reason.
    Ends(String),
    /// Something could not be written or read.
    Failed {
        what: &'static str,
        why: Error,
    },
}

/// What a replica is called, whom it follows, and how patient it is.
pub struct Options {
    pub name: String,
    /// As people are told of it.
    pub primary: String,
    /// Copies in a row that did not come before the node started.
    pub failed: u32,
    pub patience: Patience,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Life {
    Unconnected,
    Connected,
    TakingOver,
    Ended,
}

/// See the head of the file.
pub struct Receiving {
    node: Arc<Node>,
    following: Arc<Following>,
    options: Options,
    receiver: Receiver,
    /// The node's ring; given back at the end.
    ring: Option<RingWriter>,
    life: Life,
    /// What the receiver has said and is not done: a job is under way.
    commands: VecDeque<Command>,
    jobs: usize,
    seen: Arc<Mutex<Seen>>,
    /// The first word is said, or about to be.
    first: bool,
    /// Nanoseconds: when this began, and when a copy may be begun.
    began: u64,
    copy_from: u64,
    /// Tries to connect that failed, in a row.
    failures: u32,
    /// A promotion is asked for.
    asked: bool,
    /// What its report will say of what may be lost.
    words: String,
    /// The primary's clock in the newest message of this connection.
    echo: i64,
    /// Its requests for a read lease.
    holder: Holder,
}

impl Drop for Receiving {
    fn drop(&mut self) {
        self.let_go();
        if let Some(ring) = self.ring.take() {
            self.following.return_ring(ring);
        }
    }
}

impl Receiving {
    /// For a node that follows, and that nothing else receives for.
    pub fn new(node: Arc<Node>, options: Options) -> Option<Receiving> {
        let following = node.following()?;
        let ring = following.take_ring()?;
        let now = node.clock().monotonic_nanos();
        let pause = options.patience.before_copy(options.failed);
        let mut seen = Seen::default();
        seen.is_away("connecting");
        Some(Receiving {
            receiver: receiver(&node, &following, &ring, &options),
            ring: Some(ring),
            life: Life::Unconnected,
            commands: VecDeque::new(),
            jobs: 0,
            seen: Arc::new(Mutex::new(seen)),
            first: false,
            began: now,
            copy_from: now + pause.as_nanos() as u64,
            failures: 0,
            asked: false,
            words: String::new(),
            echo: 0,
            holder: Holder::new(life(&node)),
            options,
            following,
            node,
        })
    }

    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    pub fn seen(&self) -> &Arc<Mutex<Seen>> {
        &self.seen
    }

    /// Whether the log flows.
    pub fn is_streaming(&self) -> bool {
        self.receiver.is_streaming()
    }

    /// Whether nothing is followed any more.
    pub fn has_ended(&self) -> bool {
        self.life == Life::Ended
    }

    /// The first connection.
    pub fn begin(&mut self, out: &mut Vec<Do>) {
        let after = Duration::ZERO;
        out.push(Do::Connect { after });
    }

    /// What happens, and what is then to be done.
    pub fn handle(&mut self, event: Event, out: &mut Vec<Do>) {
        if self.life == Life::Ended {
            return;
        }
        match event {
            Event::Connected => {
                (self.life, self.failures, self.echo) = (Life::Connected, 0, 0);
                self.let_go();
                self.overrun(out);
                self.feed(Happened::Connected);
            }
            Event::Unreachable => {
                let (least, most) = BACKOFF;
                let after = (least * (1 << self.failures.min(8))).min(most);
                self.failures += 1;
                out.push(Do::Connect { after });
            }
            Event::Lost => self.leave(),
            Event::Message(Message::Lease(word)) => self.lease_word(word, out),
            Event::Message(m) => {
                if let Message::Acks { .. } = m {
                    // What has moved until now is told as it was to be told until now.
                    self.moved(out);
                }
                self.hears(&m);
                self.feed(Happened::Message(m));
            }
            Event::Done(Done(answer)) => {
                self.jobs -= 1;
                self.answered(answer, out);
            }
            Event::Moved => self.moved(out),
            Event::Tell => {
                if !self.hurries() {
                    self.moved(out);
                }
                self.seen.lock().shows(self.following.marks.visible.get());
                self.tell(out);
                let due = self.holder.due(self.node.clock().boot_nanos());
                out.extend(due.map(asks));
            }
            Event::Time => {
                let now = self.node.clock().monotonic_nanos();
                let silent = now.saturating_sub(self.began);
                if silent >= self.options.patience.first_word.as_nanos() as u64 {
                    self.say_first(Ok(Word::Silent), out);
                }
                self.feed(Happened::Time);
            }
            Event::TakeOver { force, named } => self.asked(force, named, out),
            Event::Anew => self.begin_anew(out),
            Event::Cancel => {
                self.asked = false;
                self.feed(Happened::Cancel);
            }
            Event::Promoted(done) => self.promoted(done, out),
        }
        self.obey(out);
        self.following.own_log.be_at_leisure(!self.hurries());
    }

    /// Whether [`Event::Moved`] is to be handed in when it happens. Else [`Event::Tell`] will do.
    pub fn hurries(&self) -> bool {
        self.receiver.hurries()
    }

    fn begin_anew(&mut self, out: &mut Vec<Do>) {
        self.failures = 0;
        self.connect(Duration::ZERO, out);
        self.look_again();
    }

    /// The receiver counts with what the directory holds by now. What is in the ring stays: replay may be taking it at this moment.
    fn look_again(&mut self) {
        self.feed(Happened::Anew {
            cluster: self.node.cluster(),
            terms: self.node.terms(),
            heard: self.node.heard_term(),
        });
    }

    /// What the receiver has said and is not done will not be done.
    fn give_up_commands(&mut self) {
        let mut untaken = None;
        for c in std::mem::take(&mut self.commands) {
            if let Command::Write { from, restart, .. } = c {
                let (_, again) = untaken.get_or_insert((from, false));
                *again |= restart;
            }
        }
        if let Some((from, restart)) = untaken {
            self.feed(Happened::Untaken { from, restart });
        }
    }

    fn feed(&mut self, event: Happened) {
        let mut commands = Vec::new();
        self.receiver.handle(event, &mut commands);
        self.commands.extend(commands);
    }

    fn hears(&mut self, m: &Message) {
        let clock = self.node.clock();
        let (now, awake) = (clock.unix_micros(), (clock.boot_nanos() / 1000) as i64);
        let step = m.step();
        self.echo = self.echo.max(step.map_or(0, |s| s.sent_micros));
        let following = &self.following;
        let mut seen = self.seen.lock();
        seen.hears(step, now, awake, || following.commits());
    }

    /// The ring was written over before it was read: what is missing is asked for again.
    fn overrun(&mut self, out: &mut Vec<Do>) {
        if self.following.take_overrun() {
            let from = self.following.marks.received.get();
            let overruns = self.following.stats.overruns.load(Ordering::Relaxed);
            out.push(Do::Note(Note::TooSlow { from, overruns }));
            self.feed(Happened::Overrun { from });
        }
    }

    fn moved(&mut self, out: &mut Vec<Do>) {
        self.overrun(out);
        self.feed(Happened::Moved(self.marks()));
        if let Some(e) = self.following.failure() {
            self.end("stopped");
            out.push(Do::Stop(e));
        }
    }

    /// Read from the last to the first, so that growth meanwhile leaves them in order.
    fn marks(&self) -> Acked {
        let m = &self.following.marks;
        let visible = m.visible.get();
        let applied = m.applied.get();
        let persisted = m.persisted.get();
        let received = m.received.get();
        Acked {
            received,
            persisted: match planted("receiving.received_is_persisted") {
                true => received,
                false => persisted,
            },
            applied,
            visible,
        }
    }

    fn tell(&self, out: &mut Vec<Do>) {
        if self.receiver.is_streaming() {
            let m = self.marks();
            out.push(Do::Send(Message::Ack {
                term: self.receiver.term(),
                received: m.received,
                persisted: m.persisted,
                applied: m.applied,
                visible: m.visible,
                echo_micros: self.echo,
            }));
        }
    }

    /// The primary offers a read lease, or has granted one.
    fn lease_word(&mut self, word: lease::Word, out: &mut Vec<Do>) {
        let now = self.node.clock().boot_nanos();
        let follows = self.life == Life::Connected && self.receiver.is_streaming();
        match word {
            // Without a tracker a lease would be of no use.
            lease::Word::Offer if follows && self.following.tracker.is_some() => {
                let ask = self.holder.offered(now);
                out.push(asks(ask));
            }
            lease::Word::Granted {
                term,
                number,
                first,
            } if follows && term == self.receiver.term() => {
                if let Some(until) = self.holder.granted(number, now) {
                    self.following.lease.hold(term, first, until);
                }
            }
            // Whatever becomes of the stream: what was granted over it is held no more.
            lease::Word::Wanted if self.life == Life::Connected => {
                let given = self.holder.gives_back(&self.following.lease);
                let told = given.map(|ask| Message::Lease(lease::Word::GivenBack(ask)));
                out.extend(told.map(Do::Send));
            }
            lease::Word::Offer
            | lease::Word::Granted { .. }
            | lease::Word::Wanted
            | lease::Word::Ask(_)
            | lease::Word::GivenBack(_) => {}
        }
    }

    /// The connection ends: its lease is held no more.
    fn let_go(&mut self) {
        self.following.lease.let_go();
        self.holder.let_go();
    }

    /// The connection is given up, or gone; the receiver says when the next is tried.
    fn leave(&mut self) {
        self.let_go();
        self.life = Life::Unconnected;
        self.give_up_commands();
        self.feed(Happened::Disconnected);
    }

    /// The connection ends, and the next is tried after this.
    fn connect(&mut self, after: Duration, out: &mut Vec<Do>) {
        self.let_go();
        self.give_up_commands();
        self.life = Life::Unconnected;
        self.seen.lock().is_away("connecting");
        // The requests are made again: the next primary may be another.
        if std::mem::take(&mut self.asked) {
            out.push(Do::Note(Note::NotHandedOver));
            out.push(Do::Answer(Err(Error::new(
                SqlState::CONNECTION_FAILURE,
                "the connection to the primary ended before it had handed over",
            )
            .hint("Ask again when it is connected."))));
        }
        out.push(Do::Connect { after });
    }

    fn end(&mut self, status: &'static str) {
        self.let_go();
        self.commands.clear();
        self.life = Life::Ended;
        self.seen.lock().is_away(status);
    }

    /// Does what the receiver says, as far as no job is in the way.
    fn obey(&mut self, out: &mut Vec<Do>) {
        while self.jobs == 0
            && let Some(c) = self.commands.pop_front()
        {
            self.obey_one(c, out);
        }
        let streams = self.life == Life::Connected && self.receiver.is_streaming();
        if streams && self.jobs == 0 && !self.seen.lock().connected {
            self.streams(out);
        }
    }

    fn obey_one(&mut self, c: Command, out: &mut Vec<Do>) {
        match c {
            Command::Send(m) => out.push(Do::Send(m)),
            Command::Write {
                message, restart, ..
            } => {
                let ring = self.ring.as_mut().expect("it is ours until the end");
                if restart {
                    ring.restart();
                }
                let env = &self.node.shared().options.env;
                self.following.take(ring, &message.to_bytes(), env);
            }
            Command::Published(p) => self.following.published(self.receiver.term(), p),
            Command::SetTerms(terms) => {
                let node = self.node.clone();
                self.run(out, move || {
                    if !planted("receiving.terms_unwritten") {
                        node.dir().set_terms(&terms).map_err(failed)?;
                    }
                    Ok(Answer::Terms(terms))
                });
            }
            Command::BeginBootstrap { terms, .. } => {
                let term = terms.last().map_or(0, |t| t.0);
                let node = self.node.clone();
                self.run(out, move || {
                    node.dir().hear(term).map_err(failed)?;
                    Ok(Answer::Heard(term))
                });
            }
            Command::Diverged { at, term } => {
                let failed = self.options.failed;
                self.in_time(Restart::Diverged { at, term, failed }, out);
            }
            Command::ReadAround(at) => {
                let node = self.node.clone();
                self.run(out, move || {
                    let around = node.dir().around(at).map_err(failed)?;
                    Ok(Answer::Around(Box::new(around)))
                });
            }
            Command::Refuse(why) => {
                let e = Error::new(
                    SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                    format!("{} cannot be followed: {why}", self.options.primary),
                );
                self.say_first(Err(e.clone()), out);
                self.end("stopped");
                out.push(Do::Stop(e));
            }
            Command::HandedOver { last, .. } => self.handed_over(last, out),
            Command::Close(why) => out.push(Do::Note(Note::Ends(why))),
            Command::Reconnect { after_millis } => {
                self.connect(Duration::from_millis(after_millis), out);
            }
            // They come behind BeginBootstrap, which ends the connection.
            Command::Store { .. } | Command::FinishBootstrap => {}
        }
    }

    fn run(&mut self, out: &mut Vec<Do>, job: impl FnOnce() -> Result<Answer> + Send + 'static) {
        self.jobs += 1;
        out.push(Do::Run(Box::new(move || Done(job()))));
    }

    fn answered(&mut self, answer: Result<Answer>, out: &mut Vec<Do>) {
        let note = |out: &mut Vec<Do>, what, why| out.push(Do::Note(Note::Failed { what, why }));
        match answer {
            Ok(Answer::Terms(terms)) => {
                // Strong reads ask this primary from now on, and no older one.
                let term = terms.last().map_or(0, |t| t.0);
                out.push(Do::Note(Note::Terms(terms)));
                out.push(Do::Hears(term));
                self.following.published(term, Position::ZERO);
            }
            Ok(Answer::Heard(term)) => {
                out.push(Do::Hears(term));
                self.following.heard_of(term);
                let failed = self.options.failed;
                self.in_time(Restart::Bootstrap { failed }, out);
            }
            Ok(Answer::Around(around)) => self.feed(Happened::AroundRead(around)),
            Ok(Answer::Follows(unwritten)) => {
                if let Some(e) = unwritten {
                    note(out, "that this node follows could not be written", e);
                }
            }
            Ok(Answer::Shows(shows, word)) => {
                if shows {
                    out.push(Do::Note(Note::ShowsOwnLog(word)));
                }
                out.push(Do::First(Ok(word)));
            }
            Ok(Answer::Leads(report, sealed)) => {
                if let Some(e) = sealed {
                    note(out, "the seal could not be removed", e);
                }
                self.end("promoted");
                out.push(Do::Note(Note::Promoted(report.clone())));
                out.push(Do::Answer(Ok(report)));
                out.push(Do::Leads);
            }
            Err(e) => {
                note(out, "the directory could not be read or written", e);
                if self.life == Life::Connected {
                    self.leave();
                }
                // Terms that were not written are written before the next connection's log is taken.
                self.look_again();
            }
        }
    }

    /// The log flows on this connection.
    fn streams(&mut self, out: &mut Vec<Do>) {
        let from = self.following.marks.received.get();
        self.seen.lock().streams(from);
        // It leads no more, if it ever did.
        let node = self.node.clone();
        self.run(out, move || {
            let unwritten = node.dir().follow().err();
            Ok(Answer::Follows(unwritten.map(failed)))
        });
        out.push(Do::Note(Note::Follows));
        self.say_first(Ok(Word::Agreed), out);
    }

    fn say_first(&mut self, word: Result<Word>, out: &mut Vec<Do>) {
        if std::mem::replace(&mut self.first, true) {
            return;
        }
        match word {
            // Nothing else will show it.
            Ok(word @ (Word::PutOff | Word::Silent)) => {
                let node = self.node.clone();
                self.run(out, move || Ok(Answer::Shows(node.show_own_log(), word)));
            }
            word => out.push(Do::First(word)),
        }
    }

    /// A copy is needed. Not soon after one that did not come: until then the node goes on with what it has, but for one that holds what the
    /// cluster does not have, which has to know that first.
    fn in_time(&mut self, why: Restart, out: &mut Vec<Do>) {
        let now = self.node.clock().monotonic_nanos();
        let pause = Duration::from_nanos(self.copy_from.saturating_sub(now));
        let knows = matches!(why, Restart::Bootstrap { .. }) || self.node.diverged().is_some();
        if pause.is_zero() || !knows {
            return self.start_again(why, out);
        }
        out.push(Do::Note(Note::PutOff { why, pause }));
        self.say_first(Ok(Word::PutOff), out);
        self.connect(pause, out);
        self.look_again();
    }

    fn start_again(&mut self, why: Restart, out: &mut Vec<Do>) {
        self.say_first(Ok(Word::StartAgain(why)), out);
        self.end("stopped");
        out.push(Do::StartAgain(why));
    }
}

/// What tells a replica that begins to follow from all others, where that matters.
fn life(node: &Node) -> u64 {
    match node.asks_for_leases() {
        true => node.shared().options.env.random.next_u64(),
        false => 0,
    }
}

fn asks(ask: Ask) -> Do {
    Do::Send(Message::Lease(lease::Word::Ask(ask)))
}

/// One that is not connected yet, of what is here.
fn receiver(node: &Node, following: &Following, ring: &RingWriter, options: &Options) -> Receiver {
    Receiver::new(Identity {
        cluster: node.cluster(),
        node: options.name.clone(),
        terms: node.terms(),
        heard: node.heard_term(),
        last: following.marks.received.get(),
        ring: ring.ring().size(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeOptions;
    use replica::ship::Start;

    fn replica(path: &std::path::Path) -> Receiving {
        drop(Node::open(path, NodeOptions::default()).expect("a new database"));
        let options = NodeOptions {
            replica: true,
            threads: false,
            ..NodeOptions::default()
        };
        let node = Arc::new(Node::open(path, options).expect("a replica"));
        let options = Options {
            name: "a".into(),
            primary: "b".into(),
            failed: 0,
            patience: Patience::default(),
        };
        Receiving::new(node, options).expect("it follows")
    }

    /// The greeting of a primary of term 7, and a tick of it that says that nothing came since.
    fn of_term_7(r: &Receiving) -> [Message; 2] {
        let last = r.following.marks.received.get();
        let cluster = r.node.cluster();
        let mut terms = r.node.terms();
        terms.push((7, last));
        let tick = Message::Tick {
            stream: cluster,
            term: 7,
            after: last,
            upto: last.next(),
            published: last,
            sent_micros: 1,
        };
        [
            Message::Welcome {
                cluster,
                term: 7,
                terms,
                start: Start::Resume(last),
            },
            tick,
        ]
    }

    #[test]
    fn nothing_of_a_term_is_taken_before_that_term_is_written() {
        let scratch = tempfile::tempdir().expect("a directory");
        let mut r = replica(scratch.path());
        let mut out = Vec::new();
        r.handle(Event::Connected, &mut out);
        assert!(matches!(&out[..], [Do::Send(Message::Hello { .. })]));
        out.clear();
        for m in of_term_7(&r) {
            r.handle(Event::Message(m), &mut out);
        }
        let before = r.following.backlog();
        let Some(Do::Run(job)) = out.pop() else {
            panic!("the terms are to be written");
        };
        assert!(out.is_empty() && r.node.dir().terms().len() == 1);
        r.handle(Event::Done(job()), &mut out);
        assert_eq!(r.node.dir().terms().last().map(|t| t.0), Some(7));
        assert!(r.following.backlog() > before, "the tick is in the ring");
        let says = |d: &Do| matches!(d, Do::First(Ok(Word::Agreed)));
        assert!(matches!(out[1], Do::Hears(7)) && out.iter().any(says));
    }

    /// What the jobs among these have found.
    fn work(r: &mut Receiving, out: &mut Vec<Do>) {
        while let Some(at) = out.iter().position(|d| matches!(d, Do::Run(_))) {
            if let Do::Run(job) = out.remove(at) {
                r.handle(Event::Done(job()), out);
            }
        }
    }

    #[test]
    fn a_term_that_could_not_be_written_is_written_before_its_log_is_taken() {
        let scratch = tempfile::tempdir().expect("a directory");
        let (mut r, mut out) = (replica(scratch.path()), Vec::new());
        r.handle(Event::Connected, &mut out);
        for m in of_term_7(&r) {
            r.handle(Event::Message(m), &mut out);
        }
        let before = r.following.backlog();
        // The disk is full, say.
        let full = Error::new(SqlState::DISK_FULL, "no room");
        out.clear();
        r.handle(Event::Done(Done(Err(full))), &mut out);
        assert!(matches!(
            out[..],
            [Do::Note(Note::Failed { .. }), Do::Connect { .. }]
        ));
        assert_eq!(r.following.backlog(), before, "nothing of it was taken");
        out.clear();
        r.handle(Event::Connected, &mut out);
        let Some(Do::Send(Message::Hello { terms, last, .. })) = out.pop() else {
            panic!("a greeting");
        };
        assert_eq!((terms.len(), last), (1, r.following.marks.received.get()));
        for m in of_term_7(&r) {
            r.handle(Event::Message(m), &mut out);
        }
        assert_eq!(
            r.following.backlog(),
            before,
            "not before the term is written"
        );
        work(&mut r, &mut out);
        assert_eq!(r.node.dir().terms().last().map(|t| t.0), Some(7));
        assert!(r.following.backlog() > before, "the tick is in the ring");
    }

    #[test]
    fn what_was_not_written_into_the_ring_is_asked_for_again() {
        for lost in [Event::Lost, Event::Anew] {
            let scratch = tempfile::tempdir().expect("a directory");
            let (mut r, mut out) = (replica(scratch.path()), Vec::new());
            let begun = r.following.marks.received.get();
            r.handle(Event::Connected, &mut out);
            for m in of_term_7(&r) {
                r.handle(Event::Message(m), &mut out);
            }
            // The job has not ended: the tick waits behind it, and goes with the connection.
            r.handle(lost, &mut out);
            work(&mut r, &mut out);
            out.clear();
            r.handle(Event::Connected, &mut out);
            let says =
                |d: &Do| matches!(d, Do::Send(Message::Hello { last, .. }) if *last == begun);
            assert!(out.iter().any(says));
        }
    }

    #[test]
    fn a_look_at_the_directory_counts_what_the_ring_holds() {
        let scratch = tempfile::tempdir().expect("a directory");
        let (mut r, mut out) = (replica(scratch.path()), Vec::new());
        r.handle(Event::Connected, &mut out);
        let [welcome, tick] = of_term_7(&r);
        let upto = tick.step().expect("a tick").upto;
        r.handle(Event::Message(welcome), &mut out);
        work(&mut r, &mut out);
        r.handle(Event::Message(tick), &mut out);
        r.handle(Event::Anew, &mut out);
        out.clear();
        r.handle(Event::Connected, &mut out);
        assert!(matches!(&out[..], [Do::Send(Message::Hello { last, .. })] if *last == upto));
    }

    #[test]
    fn a_request_to_take_over_is_refused_without_a_connection_and_answered_when_one_ends() {
        let scratch = tempfile::tempdir().expect("a directory");
        let (mut r, mut out) = (replica(scratch.path()), Vec::new());
        let (force, named) = (false, None);
        let ask = Event::TakeOver { force, named };
        r.handle(ask, &mut out);
        assert!(matches!(out.pop(), Some(Do::Answer(Err(_)))));
        r.handle(Event::Connected, &mut out);
        for m in of_term_7(&r) {
            r.handle(Event::Message(m), &mut out);
        }
        while let Some(at) = out.iter().position(|d| matches!(d, Do::Run(_))) {
            if let Do::Run(job) = out.remove(at) {
                r.handle(Event::Done(job()), &mut out);
            }
        }
        out.clear();
        r.handle(Event::TakeOver { force, named }, &mut out);
        assert!(matches!(out.pop(), Some(Do::Send(Message::Seal))));
        r.handle(Event::Lost, &mut out);
        let connects = out.pop().expect("and goes on");
        assert!(matches!(connects, Do::Connect { .. }));
        assert!(matches!(out.pop(), Some(Do::Answer(Err(_)))));
    }
}
