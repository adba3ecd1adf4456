//! The primary's side of one replica: events in, commands out; no socket, no disk, no clock.
//!
//! ```text
//!            greet                    copied: Resume               sent = head
//!   new ───────────────▶ copying ──────────────────▶ catching up ─────────────▶ live
//!    │  └──────────────────── resumes ───────────────────▲  ▲                    │
//!    ├▶ proving: it says that it is ahead, and shows it  └───── overrun, behind ─┘
//!    └▶ refused: closed
//! ```
//! - **Greeting** decides from the two histories: go on behind the replica's last position; begin anew from a checkpoint, if it is
//!   empty or the log no longer reaches back; or refuse, when it is of another cluster, of a newer term (then *we* are the old
//!   one, and say so), or holds commits that this history does not; or holds more of our own history than we do: then *we* have lost log
//!   (`standing`), and stop serving when it has shown it (`evidence`).
//! - **Copying** answers the replica, which asks for the parts of the checkpoint in its own time.
//! - **Catching up** reads the log from where the replica is and keeps at most half of the replica's ring unacknowledged, so it
//!   cannot overrun it. It ends when everything that was appended has been sent.
//! - **Live** sends each group as it is appended and never waits. A replica that was overrun asks to resume; one that we could
//!   not follow (groups went by unseen) is caught up likewise.
//!
//! Every batch and tick says where the one before ended, so lost or doubled messages do no harm; a tick goes out whenever there
//! was nothing else, and shows the replica what it misses. Acknowledgements are reported as they come, whatever the state.
//!
//! **How it is to acknowledge.** A replica acknowledges each step at once while something waits for that ([`Sender::awaits`]), or while it is caught up: its
//! window is paced by acknowledgements. Else it is told to do so now and then, which costs both ends much less (`Acks`). The word that something waits
//! goes before the commits that are waited for. The word that nothing does any more goes when time has passed.
//!
//! **Who is believed.** A [`Peer::Member`] has proven that it is a node of the cluster (`crate::proof`). A stranger, which has only logged in as
//! a role with REPLICATION, is sent the log and nothing else comes of it:
//!
//! | it says | of a member | of a stranger |
//! |---|---|---|
//! | `Ack` | reported, and log is kept for it | paces its own catch-up |
//! | `Ack` of more than was sent, or that contradicts itself | closed | closed |
//! | `Seal` | the primary hands over | closed |
//! | more of this history than there is, and shows it | the primary has lost log, and stops serving | refused |
//! | the same, and does not show it within two seconds | refused, with an alarm; the primary serves on | refused |
//! | a newer term, in `Hello` or `Ack` | the primary is deposed | a hint; closed |
//!
//! Left out on purpose: who counts acknowledgements (`commit`'s quorum) and which log is kept for whom ([`Sender::retain`] says
//! what this replica needs).

use super::evidence::{NOT_SHOWN, proven};
use super::message::{MAX_CHUNK, Message, Refusal, Start, Step, VERSION};
use super::standing::{Ours, Stands, stands};
use base::Position;
use std::collections::VecDeque;
use std::sync::Arc;
use wal::{Around, Group, Life};

/// What the primary is, when a replica introduces itself.
#[derive(Clone, Debug)]
pub struct Facts {
    pub cluster: u128,
    pub term: u64,
    /// Its history; the last is `term`.
    pub terms: Vec<(u64, Position)>,
    /// Where primaries went on here after a start.
    pub lives: Vec<Life>,
    /// Everything up to it is durable here.
    pub last: Position,
    /// The log begins after it.
    pub reaches_back_to: Position,
    /// It has heard of a newer term.
    pub deposed: bool,
}

impl Facts {
    fn ours(&self) -> Ours<'_> {
        Ours {
            terms: &self.terms,
            lives: &self.lives,
            last: self.last,
        }
    }
}

/// What the other end has proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// It is a node of this cluster.
    Member,
    /// Nothing, but that it may log in for replication.
    Stranger,
}

/// How far the replica says it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acked {
    pub received: Position,
    pub persisted: Position,
    pub applied: Position,
    pub visible: Position,
}

/// What happens to a sender.
#[derive(Clone, Debug)]
pub enum Event {
    /// From the replica, after its `Hello`.
    Message(Message),
    /// A group is durable here; or only holes, if there is none. Everything in (`after`, `upto`] is in it. Some may be left out: the
    /// sender notices at the next, which may be empty (`after` = `upto`: the log's end).
    Shipped {
        after: Position,
        upto: Position,
        group: Option<Arc<Group>>,
    },
    /// *Published* has moved.
    Published(Position),
    /// Answer to `ReadLog` with this `from`: groups in order; everything in (`from`, `upto`] is in them.
    LogRead {
        from: Position,
        groups: Vec<Arc<Group>>,
        upto: Position,
    },
    /// Answer to `ReadLog`: it is not there any more.
    LogMissing,
    /// Answer to `OpenCheckpoint`.
    CheckpointOpened {
        number: u64,
        bytes: u64,
        start: Position,
    },
    /// Answer to `ReadCheckpoint`.
    CheckpointRead { offset: u64, bytes: Vec<u8> },
    /// The primary takes no more commits and hands over to this replica and to no other; its last is this.
    Sealed(Position),
    /// Answer to `ReadAround`: what the log here holds around that position.
    AroundRead(Box<Around>),
    /// Some time has passed (about a tenth of a second).
    Time,
}

/// What is to be done for a sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    Send(Message),
    /// Send a batch; [`Step::encode_batch`] needs no copy of the group.
    SendBatch {
        step: Step,
        group: Arc<Group>,
    },
    /// Read groups after `from`, about so many bytes (one group at least), from memory or segments.
    ReadLog {
        from: Position,
        bytes: u64,
    },
    /// Open the newest checkpoint, writing one if there is none.
    OpenCheckpoint,
    ReadCheckpoint {
        offset: u64,
        bytes: u32,
    },
    /// The replica has come this far; `echo_micros` is our clock when we sent what it last took.
    Report {
        acked: Acked,
        echo_micros: i64,
    },
    /// It has caught up: from now on it counts as connected.
    Joined,
    /// The replica wants to take over: take no more commits, and hand over to the first that asks ([`Sender::node`]) alone, also
    /// after a start (`wal::DataDir::seal_for`).
    Seal,
    /// There is a newer term: this primary is an old one.
    HeardOfTerm(u64),
    /// Read what the log here holds around this position (`DataDir::around`).
    ReadAround(Position),
    /// The replica says that it is ahead and has not shown it: worth an alarm, and nothing else is done.
    Unproven {
        ours: Position,
        theirs: Position,
        why: String,
    },
    /// The replica holds `theirs` of this primary's own history, of which nothing is here above `ours`: this primary has lost log and must not
    /// serve.
    Lost {
        ours: Position,
        theirs: Position,
    },
    /// A stranger says so: worth a question to the nodes that are known.
    HintOfTerm(u64),
    /// End the connection.
    Close(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    New,
    /// Says that it is ahead.
    Proving,
    /// Waits for the checkpoint to be opened.
    Opening,
    Copying {
        bytes: u64,
    },
    CatchingUp,
    Live,
    Closed,
}

/// A replica that says it is ahead.
struct Claim {
    ours: Position,
    theirs: Position,
    /// What is here around `ours`, and what is there.
    here: Option<Box<Around>>,
    there: Option<Box<Around>>,
    lives: Vec<Life>,
    /// When its patience ends; by our clock.
    until: Option<i64>,
}

/// How long a replica has to show that it is ahead, in microseconds.
const TO_SHOW: i64 = 2_000_000;
/// Most of the log that is read and sent ahead of acknowledgements in a catch-up, in bytes, whatever the replica says of its ring.
const MOST_AHEAD: u64 = 64 << 20;

/// See the module.
pub struct Sender {
    state: State,
    peer: Peer,
    node: String,
    cluster: u128,
    term: u64,
    terms: Vec<(u64, Position)>,
    /// Half of the replica's ring, up to [`MOST_AHEAD`].
    window: u64,
    /// Everything up to it has been sent.
    sent: Position,
    /// Everything up to it is known to be in the log.
    head: Position,
    published: Position,
    published_sent: Position,
    leads: bool,
    acked: Acked,
    /// Read from the log and not yet sent, and where it ends.
    queue: VecDeque<Arc<Group>>,
    queue_upto: Position,
    /// Where the log is being read from.
    reading: Option<Position>,
    /// Sent and not yet acknowledged as received: end and bytes.
    unacknowledged: VecDeque<(Position, u64)>,
    unacknowledged_bytes: u64,
    joined: bool,
    sealed: Option<Position>,
    sealed_said: bool,
    /// Nothing was sent since the last `Time`.
    idle: bool,
    /// The log had nothing although there should be more: asked again at the next `Time`.
    stalled: bool,
    /// The greatest `sent` so far: a late acknowledgement may lie above `sent` after a resume.
    ever_sent: Position,
    claim: Option<Claim>,
    /// Something waits for what the replica acknowledges.
    awaited: bool,
    /// How it was told last to acknowledge: at once or not. None: it does not know that message, and does so at once.
    acks_at_once: Option<bool>,
}

impl Sender {
    /// For a connection that has just been accepted.
    pub fn new(peer: Peer) -> Sender {
        Sender {
            state: State::New,
            peer,
            node: String::new(),
            cluster: 0,
            term: 0,
            terms: Vec::new(),
            window: 0,
            sent: Position::ZERO,
            head: Position::ZERO,
            published: Position::ZERO,
            published_sent: Position::ZERO,
            leads: true,
            acked: Acked::default(),
            queue: VecDeque::new(),
            queue_upto: Position::ZERO,
            reading: None,
            unacknowledged: VecDeque::new(),
            unacknowledged_bytes: 0,
            joined: false,
            sealed: None,
            sealed_said: false,
            idle: true,
            stalled: false,
            ever_sent: Position::ZERO,
            claim: None,
            awaited: true,
            acks_at_once: None,
        }
    }

    /// The replica can be told how to acknowledge ([`Message::Acks`]).
    pub fn knows_acks(&mut self) {
        self.acks_at_once = Some(true);
    }

    /// What the replica calls itself; empty before its `Hello`.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// How far the replica is.
    pub fn acked(&self) -> Acked {
        self.acked
    }

    /// Everything up to it has been sent.
    pub fn sent(&self) -> Position {
        self.sent
    }

    /// Whether it sends what comes without being asked: a replica that misses something cannot use that, and asks to resume.
    pub fn is_live(&self) -> bool {
        self.state == State::Live
    }

    /// Whether the replica says that it is ahead, and is asked to show it.
    pub fn is_proving(&self) -> bool {
        self.state == State::Proving
    }

    /// What `pg_stat_replication` calls the state.
    pub fn state_name(&self) -> &'static str {
        match self.state {
            State::New | State::Proving | State::Opening => "startup",
            State::Copying { .. } => "backup",
            State::CatchingUp => "catchup",
            State::Live => "streaming",
            State::Closed => "stopping",
        }
    }

    /// The log is needed for commits above this: what it has persisted, as far as we know (nothing, before its first
    /// acknowledgement). None before it was accepted, and for a stranger.
    pub fn retain(&self) -> Option<Position> {
        match self.state {
            State::New | State::Proving | State::Opening | State::Closed => None,
            _ if self.peer == Peer::Stranger => None,
            _ => Some(self.acked.persisted),
        }
    }

    /// The first message, which must be a `Hello`, and what the primary is at this moment.
    pub fn greet(&mut self, hello: Message, facts: Facts, out: &mut Vec<Command>) {
        assert!(
            facts.terms.last().is_some_and(|t| t.0 == facts.term),
            "the last term of the history is the primary's"
        );
        let Message::Hello {
            version,
            cluster,
            node,
            terms,
            last,
            ring,
        } = hello
        else {
            return self.close("the first message is no Hello", out);
        };
        if self.state != State::New {
            return self.close("a second Hello", out);
        }
        let theirs = terms.last().map_or(0, |t| t.0);
        let refused = if version != u16::from(VERSION) {
            Some(Refusal::Other(format!(
                "this node speaks version {VERSION} of the replication protocol, the replica {version}"
            )))
        } else if cluster != 0 && cluster != facts.cluster {
            Some(Refusal::OtherCluster)
        } else if theirs > facts.term {
            out.push(self.hears(theirs));
            Some(Refusal::OlderTerm)
        } else if facts.deposed {
            Some(Refusal::Sealed)
        } else {
            let found = stands(facts.ours(), &terms, last);
            match found {
                _ if cluster == 0 => None,
                Stands::Behind => None,
                _ if env::fault::planted("ship.diverged_kept") => None,
                Stands::Ahead { ours, theirs } if env::fault::planted("ship.ahead_set_aside") => {
                    _ = theirs;
                    Some(Refusal::Diverged { at: ours })
                }
                // Anything can say that it is ahead. A node of the cluster is asked to show it.
                Stands::Ahead { ours, theirs } if self.peer == Peer::Member => {
                    self.claim = Some(Claim {
                        ours,
                        theirs,
                        here: None,
                        there: None,
                        lives: facts.lives,
                        until: None,
                    });
                    None
                }
                Stands::Ahead { ours, theirs } => {
                    if env::fault::planted("ship.unproven_ahead") {
                        out.push(Command::Lost { ours, theirs });
                    }
                    Some(Refusal::Ahead { ours, theirs })
                }
                Stands::Parted { at } => Some(Refusal::Diverged { at }),
            }
        };
        (self.node, self.cluster, self.term) = (node, facts.cluster, facts.term);
        self.terms = facts.terms;
        self.window = (ring / 2).clamp(1, MOST_AHEAD);
        (self.sent, self.head, self.ever_sent) = (last, facts.last, last);
        if let Some(reason) = refused {
            return self.refuse(reason, out);
        }
        if let Some(ours) = self.claim.as_ref().map(|c| c.ours) {
            if env::fault::planted("ship.bare_word") {
                return self.believe(out);
            }
            self.state = State::Proving;
            out.push(Command::Send(Message::Show { after: ours }));
            out.push(Command::ReadAround(ours));
        } else if cluster == 0 || last == Position::ZERO || last < facts.reaches_back_to {
            self.state = State::Opening;
            out.push(Command::OpenCheckpoint);
        } else {
            out.push(Command::Send(self.welcome(Start::Resume(last))));
            self.state = State::CatchingUp;
        }
    }

    /// The replica is ahead: this primary has lost log.
    fn believe(&mut self, out: &mut Vec<Command>) {
        let Some(Claim { ours, theirs, .. }) = self.claim else {
            return;
        };
        out.push(Command::Lost { ours, theirs });
        self.refuse(Refusal::Ahead { ours, theirs }, out);
    }

    fn doubt(&mut self, why: &str, out: &mut Vec<Command>) {
        let Some(Claim { ours, theirs, .. }) = self.claim else {
            return;
        };
        let why = why.to_owned();
        out.push(Command::Unproven {
            ours,
            theirs,
            why: why.clone(),
        });
        self.refuse(Refusal::Unproven { ours, why }, out);
    }

    fn refuse(&mut self, reason: Refusal, out: &mut Vec<Command>) {
        let words = format!("replica refused: {reason:?}");
        out.push(Command::Send(Message::Refused {
            term: self.term,
            reason,
        }));
        self.close(&words, out);
    }

    /// Looks at the claim when both ends have said what they hold.
    fn judge(&mut self, out: &mut Vec<Command>) {
        let Some(claim) = &self.claim else { return };
        let (Some(here), Some(there)) = (&claim.here, &claim.there) else {
            return;
        };
        let ours = Ours {
            terms: &self.terms,
            lives: &claim.lives,
            last: claim.ours,
        };
        match proven(ours, self.cluster, claim.ours, here, there) {
            Ok(()) => self.believe(out),
            Err(why) => self.doubt(why, out),
        }
    }

    /// A newer term is claimed.
    fn hears(&self, term: u64) -> Command {
        match self.peer {
            Peer::Stranger if !env::fault::planted("ship.unproven_term") => {
                Command::HintOfTerm(term)
            }
            _ => Command::HeardOfTerm(term),
        }
    }

    fn welcome(&self, start: Start) -> Message {
        Message::Welcome {
            cluster: self.cluster,
            term: self.term,
            terms: self.terms.clone(),
            start,
        }
    }

    fn close(&mut self, why: &str, out: &mut Vec<Command>) {
        self.state = State::Closed;
        out.push(Command::Close(why.to_owned()));
    }

    /// *Published* as it was at the time of the next event, or later: the next message says so. (`Event::Published` makes one.)
    pub fn publishes(&mut self, upto: Position) {
        self.published = self.published.max(upto);
    }

    /// Whether this node is known to lead. One that does not know yet what it had published before it started says of no message how new it is.
    pub fn leads(&mut self, leads: bool) {
        self.leads = leads;
    }

    /// Whether something waits for what the replica acknowledges, or may with the next event.
    pub fn awaits(&mut self, whether: bool) {
        self.awaited = whether;
    }

    fn say_acks(&mut self, time: bool, out: &mut Vec<Command>) {
        let at_once = self.awaited || self.state != State::Live;
        // From one commit that waits to the next it is not told otherwise.
        if self.acks_at_once == Some(!at_once) && (at_once || time) {
            self.acks_at_once = Some(at_once);
            out.push(Command::Send(Message::Acks { at_once }));
        }
    }

    /// Everything after the greeting. `now_micros`: our civil time, which acknowledgements bring back. After a greeting that was
    /// accepted the driver hands in a `Time` at once.
    pub fn handle(&mut self, event: Event, now_micros: i64, out: &mut Vec<Command>) {
        if self.state == State::Closed {
            return;
        }
        self.say_acks(matches!(event, Event::Time), out);
        match event {
            Event::Message(message) => self.message(message, out),
            Event::Shipped { after, upto, group } => {
                self.head = self.head.max(upto);
                if self.state == State::Live && upto > self.sent {
                    match (after <= self.sent, group) {
                        (true, Some(group)) => self.batch(group, upto, now_micros, out),
                        (true, None) => self.tick(upto, now_micros, out),
                        // Some went by unseen.
                        (false, _) => self.state = State::CatchingUp,
                    }
                }
            }
            Event::Published(to) => {
                self.publishes(to);
                if self.state == State::Live && self.published > self.published_sent {
                    self.tick(self.sent, now_micros, out);
                }
            }
            Event::LogRead { from, groups, upto } => {
                if self.reading == Some(from) {
                    self.reading = None;
                    self.stalled = groups.is_empty() && upto <= from;
                    self.queue.extend(groups);
                    self.queue_upto = upto;
                }
            }
            Event::LogMissing => {
                self.close("the log does not reach back to the replica any more", out)
            }
            Event::CheckpointOpened {
                number,
                bytes,
                start,
            } => {
                if self.state == State::Opening {
                    self.state = State::Copying { bytes };
                    self.sent = start;
                    self.ever_sent = start;
                    self.acked = Acked {
                        received: start,
                        persisted: start,
                        applied: start,
                        visible: start,
                    };
                    let start = Start::Bootstrap {
                        number,
                        bytes,
                        start,
                    };
                    out.push(Command::Send(self.welcome(start)));
                }
            }
            Event::CheckpointRead {
                offset,
                bytes: part,
            } => {
                if let State::Copying { bytes } = self.state {
                    out.push(Command::Send(Message::Checkpoint {
                        offset,
                        last: offset + part.len() as u64 == bytes,
                        bytes: part,
                    }));
                }
            }
            Event::Sealed(last) => self.sealed = Some(last),
            Event::AroundRead(here) => {
                if let Some(claim) = &mut self.claim {
                    claim.here = Some(here);
                    return self.judge(out);
                }
            }
            Event::Time => {
                // Its time begins when this node has read its own log.
                if let Some(claim) = &mut self.claim
                    && claim.here.is_some()
                    && now_micros >= *claim.until.get_or_insert(now_micros + TO_SHOW)
                {
                    return self.doubt(NOT_SHOWN, out);
                }
                if self.idle && matches!(self.state, State::CatchingUp | State::Live) {
                    self.tick(self.sent, now_micros, out);
                }
                self.idle = true;
                self.stalled = false;
                // Said again each time: it may be lost.
                self.sealed_said = false;
            }
        }
        self.pump(now_micros, out);
        self.say_sealed(out);
    }

    fn say_sealed(&mut self, out: &mut Vec<Command>) {
        if let Some(last) = self.sealed
            && self.state == State::Live
            && self.sent >= last
            && !self.sealed_said
        {
            self.sealed_said = true;
            out.push(Command::Send(Message::Sealed {
                term: self.term,
                last,
            }));
        }
    }

    fn message(&mut self, message: Message, out: &mut Vec<Command>) {
        match (message, self.state) {
            (Message::Shown(there), State::Proving) => {
                if let Some(claim) = &mut self.claim {
                    claim.there = Some(there);
                }
                self.judge(out);
            }
            (_, State::Proving) => self.doubt("it has said something else", out),
            (_, State::New | State::Opening | State::Closed) => {
                self.close("a message before the greeting is done", out)
            }
            (
                Message::Ack {
                    term,
                    received,
                    persisted,
                    applied,
                    visible,
                    echo_micros,
                },
                _,
            ) => {
                if term > self.term {
                    out.push(self.hears(term));
                    return self.close("the replica follows a newer term", out);
                }
                if term < self.term {
                    return;
                }
                if received > self.ever_sent {
                    return self.close("the replica acknowledges what was not sent", out);
                }
                if persisted.max(applied) > received || visible > applied {
                    return self.close("the replica acknowledges what it has not received", out);
                }
                let a = &mut self.acked;
                a.received = a.received.max(received);
                a.persisted = a.persisted.max(persisted);
                a.applied = a.applied.max(applied);
                a.visible = a.visible.max(visible);
                let received = a.received;
                while let Some((end, bytes)) = self.unacknowledged.front().copied()
                    && end <= received
                {
                    self.unacknowledged.pop_front();
                    self.unacknowledged_bytes -= bytes;
                }
                if self.peer == Peer::Member || env::fault::planted("ship.unproven_ack") {
                    out.push(Command::Report {
                        acked: self.acked,
                        echo_micros,
                    });
                }
            }
            (Message::Resume { from }, State::Copying { .. }) if from != self.sent => {
                self.close("a copy goes on elsewhere than where it ends", out)
            }
            (Message::Resume { from }, _) => {
                // Above `sent` it may be: a late Resume from before has taken us back.
                if from > self.ever_sent {
                    return self.close("the replica resumes behind what was sent", out);
                }
                self.sent = from;
                self.queue.clear();
                self.queue_upto = from;
                self.reading = None;
                self.unacknowledged.clear();
                self.unacknowledged_bytes = 0;
                self.state = State::CatchingUp;
            }
            (Message::Fetch { offset, bytes }, State::Copying { bytes: all }) => {
                let most = (all.saturating_sub(offset)).min(MAX_CHUNK as u64) as u32;
                if most == 0 || bytes == 0 {
                    return self.close("the replica asks beyond the checkpoint's end", out);
                }
                out.push(Command::ReadCheckpoint {
                    offset,
                    bytes: bytes.min(most),
                });
            }
            // Overtaken by the Resume that ended the copy.
            (Message::Fetch { .. }, _) => {}
            (Message::Seal, _) if self.peer == Peer::Stranger => self.close(
                "the replica asks to take over and has not proven that it is a node",
                out,
            ),
            (Message::Seal, _) => out.push(Command::Seal),
            (_, _) => self.close("a message that a replica does not send", out),
        }
    }

    /// In a catch-up: sends what may be sent, reads what is to be read, or goes live.
    fn pump(&mut self, now_micros: i64, out: &mut Vec<Command>) {
        if self.state != State::CatchingUp {
            return;
        }
        while let Some(group) = self.queue.front() {
            let bytes = group.as_bytes().len() as u64;
            if self.unacknowledged_bytes > 0 && self.unacknowledged_bytes + bytes > self.window {
                return;
            }
            let group = self.queue.pop_front().expect("just seen");
            let last = group.header().last;
            let upto = match self.queue.is_empty() {
                true => last.max(self.queue_upto),
                false => last,
            };
            self.batch(group, upto, now_micros, out);
            self.unacknowledged.push_back((upto, bytes));
            self.unacknowledged_bytes += bytes;
        }
        if self.queue_upto > self.sent {
            self.tick(self.queue_upto, now_micros, out);
        }
        if self.reading.is_some() {
            return;
        }
        if self.sent >= self.head {
            self.state = State::Live;
            if !self.joined {
                self.joined = true;
                out.push(Command::Joined);
            }
        } else if !self.stalled {
            self.reading = Some(self.sent);
            out.push(Command::ReadLog {
                from: self.sent,
                bytes: self.window,
            });
        }
    }

    fn step(&mut self, upto: Position, now_micros: i64) -> Step {
        let step = Step {
            term: self.term,
            stream: self.cluster,
            after: self.sent,
            upto,
            published: self.published,
            sent_micros: if self.leads { now_micros } else { 0 },
        };
        self.sent = upto;
        self.ever_sent = self.ever_sent.max(upto);
        self.published_sent = self.published;
        self.idle = false;
        step
    }

    fn batch(&mut self, group: Arc<Group>, upto: Position, now: i64, out: &mut Vec<Command>) {
        let step = self.step(upto, now);
        out.push(Command::SendBatch { step, group });
    }

    fn tick(&mut self, upto: Position, now: i64, out: &mut Vec<Command>) {
        let tick = self.step(upto, now).tick();
        out.push(Command::Send(tick));
    }
}
