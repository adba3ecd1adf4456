//! The replica's side of its connection to a primary: events in, commands out; no socket, no disk, no clock.
//!
//! ```text
//!               Welcome: resume                              broken, quiet, another term
//!   greeting ───────────────────────▶ streaming ──────────────────────────────▶ away ── after a while ──▶ greeting
//!      │  Welcome: bootstrap             ▲
//!      ├──────────▶ copying ── whole ──▶ recovering
//!      └──────────▶ refused: stopped (diverged, another cluster), or away (it is the older one; later)
//! ```
//! **Streaming.** Batches and ticks go into the ring in the order of the chain: one is taken if it begins at or below what was taken
//! before and ends above it. One that ends no higher is a double and says nothing but *published*. One that begins higher shows
//! that something is missing: `Resume` is asked for, once, and again when time passes without progress. The consumer of the ring
//! that was overrun says from where it must have the stream again; what was in the ring is then void.
//!
//! **Terms.** A primary of an older term than any that this node has heard of is left at the greeting; a message of another term or
//! stream than the greeting's ends the connection. The terms of the history that is followed are made durable before anything
//! of it is taken (`SetTerms`).
//!
//! **Copying** asks for the parts of the checkpoint, a few ahead, and takes them in order; then the driver verifies and recovers it. What the
//! node had before stays until then, so a copy that does not arrive leaves it as it was, and the driver looks at the directory again (`Anew`).
//!
//! **Ahead.** A primary that finds more of its own history here asks to be shown it (`Show`), and is told when it is on this node's disk. Then it knows that it has lost
//! log, or does not believe it. Either way it refuses, and nothing is set aside here, whatever it says: that is done only for a term that
//! began elsewhere.
//!
//! **Acknowledging.** Each mark that moves is acknowledged at once, until the primary says that nothing waits for it (`Acks`). The owner then tells
//! the primary now and then how far this node is. A node that is to take over acknowledges at once whatever the primary said.
//!
//! **Asking again** is what makes up for anything lost. It comes ever later while nothing comes of it, and asks for one part: over a link that
//! carries a part in a second, who asked each half second would fill it with doubles.
//!
//! Left out on purpose: choosing among several primaries, and setting aside (`wal::transfer`), which a `Diverged` calls for.

use super::message::{MAX_CHUNK, Message, Refusal, Start, VERSION};
use super::sender::Acked;
use base::Position;
use env::fault::planted;
use wal::Around;

/// Parts of a checkpoint asked for ahead.
const AHEAD: u64 = 4;

/// `Time`s without a word after which a connection counts as dead.
const PATIENCE: u32 = 50;

/// `Time`s without progress after which what is missing is asked for again: at first, and at most. (Below [`PATIENCE`]: one that asks is
/// not silent.)
const AGAIN: (u32, u32) = (5, 40);

/// Shortest and longest wait before the next try, in milliseconds.
const BACKOFF: (u64, u64) = (100, 5_000);

/// Who the replica is.
#[derive(Clone, Debug)]
pub struct Identity {
    /// 0: an empty directory, which any cluster may fill.
    pub cluster: u128,
    pub node: String,
    /// Terms of the history here.
    pub terms: Vec<(u64, Position)>,
    /// The newest term that it has heard of; it may be none of these.
    pub heard: u64,
    /// Last position here.
    pub last: Position,
    /// Bytes of the ring.
    pub ring: u64,
}

/// What happens to a receiver.
#[derive(Clone, Debug)]
pub enum Event {
    Connected,
    Message(Message),
    /// The connection is gone.
    Disconnected,
    /// The connection is given up, and the directory is looked at again: it may know of other terms by now, or may lack some that were to be
    /// written. What is in the ring stays.
    Anew {
        cluster: u128,
        terms: Vec<(u64, Position)>,
        heard: u64,
    },
    /// These writes, of which this was the first, were given up: the ring holds what it held before them.
    Untaken {
        from: Position,
        restart: bool,
    },
    /// The consumer of the ring was overrun; it has everything up to `from`.
    Overrun {
        from: Position,
    },
    /// The replica's watermarks have moved.
    Moved(Acked),
    /// The checkpoint was whole and is recovered; the log follows from here.
    Bootstrapped {
        start: Position,
    },
    /// It was not; or the disk failed.
    BootstrapFailed,
    /// Answer to `ReadAround`.
    AroundRead(Box<Around>),
    /// This replica is asked to take over, with the primary's help. Holds while the connection does.
    Seal,
    /// It is not asked any more.
    Cancel,
    /// Some time has passed (about a tenth of a second).
    Time,
}

/// What is to be done for a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    Send(Message),
    /// Write this batch or tick into the ring, which holds everything up to `from`; `restart`: what is in there is void.
    Write {
        message: Message,
        from: Position,
        restart: bool,
    },
    /// *Published* at the primary.
    Published(Position),
    /// Make these the terms of the directory, durably, before the next command.
    SetTerms(Vec<(u64, Position)>),
    /// A checkpoint will come, of this cluster and a history with these terms. What is here stays until it is whole.
    BeginBootstrap {
        cluster: u128,
        terms: Vec<(u64, Position)>,
        number: u64,
        bytes: u64,
        start: Position,
    },
    /// The next bytes of it.
    Store {
        offset: u64,
        bytes: Vec<u8>,
    },
    /// That was all: verify it, make it what is here, with its terms, and recover it; then say `Bootstrapped` or `BootstrapFailed`.
    FinishBootstrap,
    /// This node holds commits above `at` that the history of `term` does not: serve nobody, and say so.
    Diverged {
        at: Position,
        term: u64,
    },
    /// Read what the log here holds around this position (`DataDir::around`).
    ReadAround(Position),
    /// This primary will never do: words for a person.
    Refuse(String),
    /// The primary was sealed and all that it had is durable here: take over.
    HandedOver {
        term: u64,
        last: Position,
    },
    /// End the connection, with the reason.
    Close(String),
    /// Connect again after so many milliseconds.
    Reconnect {
        after_millis: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Away,
    Greeting,
    Copying {
        bytes: u64,
        start: Position,
        stored: u64,
        asked: u64,
    },
    Recovering,
    Streaming,
    /// For good.
    Stopped,
}

/// See the module.
pub struct Receiver {
    me: Identity,
    state: State,
    /// Everything up to it is in the ring, or was.
    expected: Position,
    /// The next frame begins a new run of the ring.
    restart: bool,
    /// Both as they were before a copy was begun.
    before_copy: Option<(Position, bool)>,
    /// Where a resume was asked from.
    asked: Option<Position>,
    /// `Time`s since a message, and since progress.
    quiet: u32,
    stuck: u32,
    /// What is missing is asked for again when it is stuck for so long.
    again: u32,
    tries: u32,
    marks: Acked,
    echo_micros: i64,
    seal: bool,
    sealed: Option<Position>,
    /// What the primary wants to be shown, when it is on the disk here.
    show: Option<Position>,
    /// The primary waits for acknowledgements, as far as it has said.
    acks_at_once: bool,
}

impl Receiver {
    /// A receiver that is not connected yet.
    pub fn new(me: Identity) -> Receiver {
        let at = me.last;
        Receiver {
            expected: at,
            me,
            state: State::Away,
            restart: true,
            before_copy: None,
            asked: None,
            quiet: 0,
            stuck: 0,
            again: AGAIN.0,
            tries: 0,
            marks: Acked {
                received: at,
                persisted: at,
                applied: at,
                visible: at,
            },
            echo_micros: 0,
            seal: false,
            sealed: None,
            show: None,
            acks_at_once: true,
        }
    }

    /// Whether a mark that moves is to be handed in at once.
    pub fn hurries(&self) -> bool {
        self.acks_at_once || self.seal || self.show.is_some()
    }

    /// Whether the stream flows.
    pub fn is_streaming(&self) -> bool {
        self.state == State::Streaming
    }

    /// Whether it has given up for good.
    pub fn is_stopped(&self) -> bool {
        self.state == State::Stopped
    }

    /// Bytes of the checkpoint that are here, and in all; none when none is being copied.
    pub fn progress(&self) -> Option<(u64, u64)> {
        match self.state {
            State::Copying { bytes, stored, .. } => Some((stored, bytes)),
            _ => None,
        }
    }

    /// The term of the primary that it follows, or followed last.
    pub fn term(&self) -> u64 {
        self.me.terms.last().map_or(0, |t| t.0)
    }

    /// What happens, and what is then to be done, in order.
    pub fn handle(&mut self, event: Event, out: &mut Vec<Command>) {
        if self.state == State::Stopped
            && !matches!(event, Event::Anew { .. } | Event::Untaken { .. })
        {
            return;
        }
        match event {
            Event::Connected => {
                self.state = State::Greeting;
                (self.quiet, self.stuck) = (0, 0);
                self.asked = None;
                (self.sealed, self.show, self.acks_at_once) = (None, None, true);
                out.push(Command::Send(Message::Hello {
                    version: u16::from(VERSION),
                    cluster: self.me.cluster,
                    node: self.me.node.clone(),
                    terms: self.me.terms.clone(),
                    last: match planted("ship.says_ahead") {
                        true => Position::from_u64(self.expected.as_u64() | 1 << 60),
                        false => self.expected,
                    },
                    ring: self.me.ring,
                }));
            }
            Event::Message(message) => {
                self.quiet = 0;
                self.message(message, out);
            }
            Event::Disconnected => self.away(out),
            Event::Anew {
                cluster,
                terms,
                heard,
            } => {
                (self.me.cluster, self.me.terms, self.me.heard) = (cluster, terms, heard);
                if let Some((expected, restart)) = self.before_copy.take() {
                    (self.expected, self.restart) = (expected, restart);
                }
                (self.state, self.tries) = (State::Away, 0);
                (self.seal, self.sealed) = (false, None);
            }
            Event::Untaken { from, restart } => {
                assert!(from <= self.expected, "what was to be written counts");
                self.expected = from;
                self.restart |= restart;
            }
            Event::Overrun { from } => {
                assert!(from <= self.expected, "the ring held nothing beyond");
                self.expected = from;
                self.restart = true;
                if self.state == State::Streaming {
                    self.resume(out);
                }
            }
            Event::Moved(marks) => {
                if marks != self.marks {
                    self.marks = marks;
                    if self.hurries() {
                        self.ack(out);
                    }
                }
                self.show(out);
                self.hand_over(out);
            }
            Event::AroundRead(around) => {
                if self.state == State::Greeting {
                    out.push(Command::Send(Message::Shown(around)));
                }
            }
            Event::Bootstrapped { start } => {
                if self.state == State::Recovering {
                    self.before_copy = None;
                    self.begin(start);
                    self.marks = Acked {
                        received: start,
                        persisted: start,
                        applied: start,
                        visible: start,
                    };
                    self.state = State::Streaming;
                    self.quiet = 0;
                    self.resume(out);
                }
            }
            Event::BootstrapFailed => {
                if matches!(self.state, State::Copying { .. } | State::Recovering) {
                    self.leave("the checkpoint did not arrive whole", out);
                }
            }
            Event::Seal => {
                if self.state == State::Streaming {
                    // An answer to an earlier wish counts no more: the primary may have gone since.
                    (self.seal, self.sealed) = (true, None);
                    out.push(Command::Send(Message::Seal));
                }
            }
            Event::Cancel => (self.seal, self.sealed) = (false, None),
            Event::Time => self.time(out),
        }
    }

    fn begin(&mut self, at: Position) {
        self.expected = at;
        self.restart = true;
        self.asked = None;
    }

    /// The connection is given up by us.
    fn leave(&mut self, why: &str, out: &mut Vec<Command>) {
        out.push(Command::Close(why.to_owned()));
        self.away(out);
    }

    fn away(&mut self, out: &mut Vec<Command>) {
        if self.state == State::Away {
            return;
        }
        // Half a copy is none.
        self.state = State::Away;
        // Whoever wanted the hand-over asks again: the next primary may be another.
        (self.seal, self.sealed) = (false, None);
        let (least, most) = BACKOFF;
        let after_millis = (least << self.tries.min(16)).min(most);
        self.tries += 1;
        out.push(Command::Reconnect { after_millis });
    }

    fn stop(&mut self, command: Command, out: &mut Vec<Command>) {
        self.state = State::Stopped;
        out.push(command);
        out.push(Command::Close("refused".into()));
    }

    fn resume(&mut self, out: &mut Vec<Command>) {
        if self.asked != Some(self.expected) {
            self.asked = Some(self.expected);
            (self.stuck, self.again) = (0, AGAIN.0);
            out.push(Command::Send(Message::Resume {
                from: self.expected,
            }));
        }
    }

    fn ack(&self, out: &mut Vec<Command>) {
        if self.state == State::Streaming {
            let m = self.marks;
            out.push(Command::Send(Message::Ack {
                term: self.term(),
                received: m.received,
                persisted: m.persisted,
                applied: m.applied,
                visible: m.visible,
                echo_micros: self.echo_micros,
            }));
        }
    }

    /// Shows what the primary has asked for, as soon as something of it is on the disk, or nothing more will come there.
    fn show(&mut self, out: &mut Vec<Command>) {
        let persisted = self.marks.persisted;
        let there = self
            .show
            .filter(|after| persisted > *after || persisted >= self.expected);
        if let Some(after) = there
            && self.state == State::Greeting
        {
            self.show = None;
            out.push(Command::ReadAround(after));
        }
    }

    fn hand_over(&mut self, out: &mut Vec<Command>) {
        if let Some(last) = self.sealed.filter(|last| self.marks.persisted >= *last)
            && self.seal
            && self.state == State::Streaming
        {
            (self.seal, self.sealed) = (false, None);
            out.push(Command::HandedOver {
                term: self.term(),
                last,
            });
        }
    }

    /// Whether what is missing is to be asked for again now.
    fn asks_again(&mut self) -> bool {
        let due = self.stuck >= self.again;
        if due {
            self.again = self.stuck + self.stuck.min(AGAIN.1);
        }
        due
    }

    fn time(&mut self, out: &mut Vec<Command>) {
        if self.state == State::Away {
            return;
        }
        self.quiet += 1;
        self.stuck += 1;
        // Recovery takes as long as it takes, and nobody speaks meanwhile. A primary that speaks but does not welcome has missed us.
        let dead = match self.state {
            State::Recovering => false,
            State::Greeting => self.stuck > PATIENCE,
            _ => self.quiet > PATIENCE,
        };
        if dead {
            return self.leave("no word from the primary", out);
        }
        let state = self.state;
        match state {
            State::Streaming => {
                if self.asked.is_some() && self.asks_again() {
                    let from = self.expected;
                    out.push(Command::Send(Message::Resume { from }));
                }
                if self.seal && self.sealed.is_none() {
                    out.push(Command::Send(Message::Seal));
                }
                self.ack(out);
            }
            State::Copying { bytes, stored, .. } if self.asks_again() => {
                let n = (MAX_CHUNK as u64).min(bytes - stored);
                if let State::Copying { asked, .. } = &mut self.state {
                    *asked = (*asked).max(stored + n);
                }
                out.push(Command::Send(Message::Fetch {
                    offset: stored,
                    bytes: n as u32,
                }));
            }
            _ => {}
        }
    }

    fn message(&mut self, message: Message, out: &mut Vec<Command>) {
        match (message, self.state) {
            (
                Message::Welcome {
                    cluster,
                    term,
                    terms,
                    start,
                },
                State::Greeting,
            ) => self.welcome(cluster, term, terms, start, out),
            (Message::Refused { term, reason }, State::Greeting) => match reason {
                // Only a term that began elsewhere has cut anything off.
                Refusal::Diverged { at }
                    if term >= self.me.heard
                        && (term > self.term() || planted("ship.ahead_set_aside")) =>
                {
                    self.stop(Command::Diverged { at, term }, out);
                }
                Refusal::Diverged { at } if term == self.term() => self.ahead(at, out),
                Refusal::Ahead { ours, .. } => self.ahead(ours, out),
                Refusal::Unproven { ours, why } => self.doubted(ours, &why, out),
                Refusal::OtherCluster => {
                    let why = "the primary belongs to another cluster";
                    self.stop(Command::Refuse(why.into()), out);
                }
                Refusal::Other(why) => {
                    let why = format!("the primary refused: {why}");
                    self.leave(&why, out);
                }
                other => {
                    let why = format!("the primary refused: {other:?}, in term {term}");
                    self.leave(&why, out);
                }
            },
            (Message::Show { after }, State::Greeting) => {
                self.show = Some(after);
                self.show(out);
            }
            (
                Message::Checkpoint {
                    offset,
                    last,
                    bytes,
                },
                State::Copying { .. },
            ) => self.part(offset, last, bytes, out),
            (message @ (Message::Batch { .. } | Message::Tick { .. }), State::Streaming) => {
                self.step(message, out);
            }
            (Message::Sealed { term, last }, State::Streaming) => {
                if term != self.term() {
                    return self.leave("a message of another term", out);
                }
                self.sealed = Some(last);
                if self.expected < last {
                    self.resume(out);
                }
                self.hand_over(out);
            }
            (Message::Acks { at_once }, State::Streaming) => {
                // What has moved since the last word is told with the first that waits.
                if at_once && !self.acks_at_once {
                    self.ack(out);
                }
                self.acks_at_once = at_once;
            }
            // Late ones of what went before on this connection.
            (
                Message::Welcome { .. }
                | Message::Refused { .. }
                | Message::Show { .. }
                | Message::Checkpoint { .. }
                | Message::Batch { .. }
                | Message::Tick { .. }
                | Message::Sealed { .. }
                | Message::Acks { .. },
                _,
            ) => {}
            _ => self.leave("a message that a primary does not send", out),
        }
    }

    /// The primary has lost log that is here, of its own term: nothing of it gives way.
    fn ahead(&mut self, at: Position, out: &mut Vec<Command>) {
        let why = format!(
            "the primary's log ends at {at} and this replica's at {}, in one history: the primary has lost log, and this replica keeps what \
             it has. What loses nothing is to make this replica the primary: canon promote --force --old-primary-is-down",
            self.expected
        );
        self.leave(&why, out);
    }

    /// The primary does not find that what is here continues its log. One of the two has another history, and only a person can say which.
    fn doubted(&mut self, at: Position, why: &str, out: &mut Vec<Command>) {
        let why = format!(
            "the primary's log ends at {at} and this replica's at {}, and the primary is not convinced: {why}. Either the primary \
             has lost log, or this log is of another history. This node keeps what it has and tries again. Compare the two directories \
             (canon verify) before either is emptied",
            self.expected
        );
        self.leave(&why, out);
    }

    fn welcome(
        &mut self,
        cluster: u128,
        term: u64,
        terms: Vec<(u64, Position)>,
        start: Start,
        out: &mut Vec<Command>,
    ) {
        if self.me.cluster != 0 && cluster != self.me.cluster {
            let why = "the primary belongs to another cluster";
            return self.stop(Command::Refuse(why.into()), out);
        }
        if term < self.term().max(self.me.heard) {
            return self.leave("the primary is of an older term", out);
        }
        self.me.heard = term;
        if terms.last().is_none_or(|t| t.0 != term) {
            return self.leave("the primary does not know its own term", out);
        }
        match start {
            Start::Resume(at) if at == self.expected && self.me.cluster != 0 => {
                // What the ring holds stays good; the chain goes on behind it.
                self.asked = None;
                self.state = State::Streaming;
                self.terms(terms, out);
            }
            Start::Resume(_) => self.leave("the primary resumes elsewhere than was asked", out),
            Start::Bootstrap {
                number,
                bytes,
                start,
            } => {
                self.me.cluster = cluster;
                self.me.terms.clone_from(&terms);
                out.push(Command::BeginBootstrap {
                    cluster,
                    terms,
                    number,
                    bytes,
                    start,
                });
                // Until the copy is whole there is nothing of it here.
                self.before_copy = Some((self.expected, self.restart));
                self.begin(Position::ZERO);
                (self.stuck, self.again) = (0, AGAIN.0);
                self.state = State::Copying {
                    bytes,
                    start,
                    stored: 0,
                    asked: 0,
                };
                self.fetch(out);
            }
        }
    }

    fn terms(&mut self, terms: Vec<(u64, Position)>, out: &mut Vec<Command>) {
        if self.me.terms != terms {
            self.me.terms.clone_from(&terms);
            out.push(Command::SetTerms(terms));
        }
    }

    fn fetch(&mut self, out: &mut Vec<Command>) {
        if let State::Copying {
            bytes,
            stored,
            asked,
            ..
        } = &mut self.state
        {
            let part = MAX_CHUNK as u64;
            while *asked < *bytes && *asked < *stored + AHEAD * part {
                let n = part.min(*bytes - *asked);
                out.push(Command::Send(Message::Fetch {
                    offset: *asked,
                    bytes: n as u32,
                }));
                *asked += n;
            }
        }
    }

    fn part(&mut self, offset: u64, last: bool, part: Vec<u8>, out: &mut Vec<Command>) {
        let State::Copying {
            bytes,
            stored,
            asked,
            ..
        } = &mut self.state
        else {
            return;
        };
        if offset != *stored || part.is_empty() {
            if offset > *stored {
                // One before it was lost: asked for again when time passes, and then this one, too.
                *asked = (*asked).min(offset);
            } else {
                // A double: what was asked for behind it is still to come.
                self.stuck = 0;
            }
            return;
        }
        *stored += part.len() as u64;
        // A part may be shorter than asked for: what was asked for behind it then begins elsewhere.
        *asked = (*asked).max(*stored);
        if *stored > *bytes || (last != (*stored == *bytes)) {
            return self.leave("the checkpoint has another length than was said", out);
        }
        // As long as this one took, the next may take, too.
        self.again = (2 * self.stuck).clamp(AGAIN.0, AGAIN.1);
        self.stuck = 0;
        out.push(Command::Store {
            offset,
            bytes: part,
        });
        if last {
            self.state = State::Recovering;
            out.push(Command::FinishBootstrap);
        } else {
            self.fetch(out);
        }
    }

    fn step(&mut self, message: Message, out: &mut Vec<Command>) {
        let step = message.step().expect("a batch or a tick");
        if step.term != self.term() || step.stream != self.me.cluster {
            return self.leave("a message of another term or stream", out);
        }
        out.push(Command::Published(step.published));
        self.echo_micros = self.echo_micros.max(step.sent_micros);
        self.tries = 0;
        if step.upto <= self.expected {
            return;
        }
        if step.after > self.expected {
            return self.resume(out);
        }
        let from = std::mem::replace(&mut self.expected, step.upto);
        self.asked = None;
        self.stuck = 0;
        let restart = std::mem::take(&mut self.restart);
        out.push(Command::Write {
            message,
            from,
            restart,
        });
    }
}
