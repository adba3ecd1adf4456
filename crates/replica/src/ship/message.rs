//! What primary and replica say to each other, as bytes.
//!
//! ```text
//! every message:  kind u8 | version u8 | fields, little-endian | the rest: group, chunk or text
//!
//! to the replica: Welcome 1, Refused 2, Checkpoint 3, Batch 4, Tick 5, Sealed 6, Show 9, Acks 13
//! to the primary: Hello 16, Ack 17, Resume 18, Fetch 19, Seal 20, Shown 22
//! 7, 8, 21: words about the memory that both share (`medium`); 10, 11, 23: words of read leases (`crate::lease::Word`)
//! ```
//! Whoever carries them says where a message ends (over TCP: the CopyData frame), so none repeats its own length. A decoder takes
//! exactly one message: bytes missing, bytes left over, unknown kinds, other versions and impossible counts are refused, and
//! nothing is reserved for a count that the bytes at hand cannot hold. So is a term above [`MAX_TERM`]: no node has begun it.
//!
//! **The chain.** Each batch and tick says `after`: where the message before it ended. A receiver takes it only if that is at or
//! below what it has, so a lost, repeated or overtaking message is seen as such and never leaves a hole (`receiver`).
//! `upto` may lie above a group's last commit: positions of aborted commits are holes, and the primary says that they are.
//!
//! Left out on purpose: compression, and checksums of our own. A group carries its own, and a checkpoint its.

use crate::lease::Word;
use base::{MAX_TERM, Position};
use wal::Around;

/// Version of the messages. A peer of another version is refused with words, at `Hello`.
pub const VERSION: u8 = 3;

/// Longest name of a node.
pub const MAX_NAME: usize = 255;

/// Greatest part of a checkpoint in one message.
pub const MAX_CHUNK: usize = 1 << 20;

/// One message. See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A replica introduces itself.
    Hello {
        /// Version of the messages that it speaks.
        version: u16,
        /// Its cluster; 0: it is empty and wants to be made.
        cluster: u128,
        /// What status views call it.
        node: String,
        /// Terms of its history: (term, position after which it began), ascending.
        terms: Vec<(u64, Position)>,
        /// Its last position.
        last: Position,
        /// Bytes of its ring, which pace a catch-up.
        ring: u64,
    },
    /// The primary accepts: with this history, from there.
    Welcome {
        cluster: u128,
        term: u64,
        terms: Vec<(u64, Position)>,
        start: Start,
    },
    /// The primary does not accept.
    Refused { term: u64, reason: Refusal },
    /// Bytes of the checkpoint file at `offset`; `last`: they reach its end.
    Checkpoint {
        offset: u64,
        last: bool,
        bytes: Vec<u8>,
    },
    /// A flush group. With it, everything up to `upto` has been sent.
    Batch {
        term: u64,
        stream: u128,
        after: Position,
        upto: Position,
        /// *Published* at the primary.
        published: Position,
        /// The primary's civil time in microseconds.
        sent_micros: i64,
        /// The bytes of a `wal::Group`.
        group: Vec<u8>,
    },
    /// No commits between `after` and `upto`. Flows when idle, too.
    Tick {
        term: u64,
        stream: u128,
        after: Position,
        upto: Position,
        published: Position,
        sent_micros: i64,
    },
    /// The replica says that it is ahead: let it show what its log holds around this position.
    Show { after: Position },
    /// The primary takes no more commits; its last is `last`.
    Sealed { term: u64, last: Position },
    /// How far the replica is (`ReplicaMarks`), and the `sent_micros` of the newest message behind it.
    Ack {
        term: u64,
        received: Position,
        persisted: Position,
        applied: Position,
        visible: Position,
        echo_micros: i64,
    },
    /// Send again what follows this position.
    Resume { from: Position },
    /// Send this part of the checkpoint.
    Fetch { offset: u64, bytes: u32 },
    /// Take no more commits and hand over.
    Seal,
    /// What the replica's log holds around the position that was asked for.
    Shown(Box<Around>),
    /// How the replica is to acknowledge from here on: whenever one of its marks moves, or now and then. Only for a replica that has said that it
    /// knows of this message.
    Acks { at_once: bool },
    /// Of read leases, in either direction.
    Lease(Word),
}

/// Where a replica goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Behind its own last position.
    Resume(Position),
    /// From this checkpoint: its number, its bytes, and the position from which the log follows.
    Bootstrap {
        number: u64,
        bytes: u64,
        start: Position,
    },
}

/// Why a replica is not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It holds commits above `at` that the cluster's history does not.
    Diverged { at: Position },
    /// It holds `theirs` of the primary's own history, and the primary has lost what is above `ours`.
    Ahead { ours: Position, theirs: Position },
    /// It says that it holds more of the primary's own history, which ends at `ours`, and has not shown it: why not.
    Unproven { ours: Position, why: String },
    /// It belongs to another cluster.
    OtherCluster,
    /// The one who answers is of an older term than the one who asks.
    OlderTerm,
    /// The one who answers has handed over and ships no more.
    Sealed,
    /// Words for a person.
    Other(String),
}

/// Why bytes are no message.
pub type Malformed = &'static str;

const WELCOME: u8 = 1;
const REFUSED: u8 = 2;
const CHECKPOINT: u8 = 3;
const BATCH: u8 = 4;
const TICK: u8 = 5;
const SEALED: u8 = 6;
const SHOW: u8 = 9;
const ACKS: u8 = 13;
const HELLO: u8 = 16;
const ACK: u8 = 17;
const RESUME: u8 = 18;
const FETCH: u8 = 19;
const SEAL: u8 = 20;
const SHOWN: u8 = 22;

/// The fields that batches and ticks share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    pub term: u64,
    pub stream: u128,
    pub after: Position,
    pub upto: Position,
    pub published: Position,
    /// The primary's clock; 0: it does not say how new this is.
    pub sent_micros: i64,
}

impl Step {
    /// Who shows everything up to here is as new as `sent_micros`. Not `upto` alone: what goes out in a catch-up is old log, and commits
    /// acknowledged with `synchronous_commit = off` are published before they are in any.
    pub fn current(&self) -> Position {
        match env::fault::planted("freshness.upto_alone") {
            true => self.upto,
            false => self.upto.max(self.published),
        }
    }

    /// Appends the bytes of a batch with this group, which need not be copied into a [`Message`] first.
    pub fn encode_batch(&self, group: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(&[BATCH, VERSION]);
        self.encode(out);
        out.extend_from_slice(group);
    }

    /// Appends the bytes of a tick.
    pub fn encode_tick(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[TICK, VERSION]);
        self.encode(out);
    }

    /// The tick that says this.
    pub(super) fn tick(self) -> Message {
        let Step {
            term,
            stream,
            after,
            upto,
            published,
            sent_micros,
        } = self;
        Message::Tick {
            term,
            stream,
            after,
            upto,
            published,
            sent_micros,
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_u64(out, self.term);
        out.extend_from_slice(&self.stream.to_le_bytes());
        put_position(out, self.after);
        put_position(out, self.upto);
        put_position(out, self.published);
        out.extend_from_slice(&self.sent_micros.to_le_bytes());
    }
}

impl Message {
    /// What a batch or a tick says of the stream; none for other messages.
    pub fn step(&self) -> Option<Step> {
        match *self {
            Message::Batch {
                term,
                stream,
                after,
                upto,
                published,
                sent_micros,
                ..
            }
            | Message::Tick {
                term,
                stream,
                after,
                upto,
                published,
                sent_micros,
            } => Some(Step {
                term,
                stream,
                after,
                upto,
                published,
                sent_micros,
            }),
            _ => None,
        }
    }

    /// What a batch or a tick says.
    fn as_step(&self) -> Step {
        self.step().expect("a batch or a tick is a step")
    }

    /// Appends the message's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut head = |kind: u8| out.extend_from_slice(&[kind, VERSION]);
        match self {
            Message::Hello {
                version,
                cluster,
                node,
                terms,
                last,
                ring,
            } => {
                assert!(node.len() <= MAX_NAME, "a node's name is too long");
                head(HELLO);
                out.extend_from_slice(&version.to_le_bytes());
                out.extend_from_slice(&cluster.to_le_bytes());
                put_position(out, *last);
                put_u64(out, *ring);
                put_terms(out, terms);
                out.extend_from_slice(node.as_bytes());
            }
            Message::Welcome {
                cluster,
                term,
                terms,
                start,
            } => {
                head(WELCOME);
                out.extend_from_slice(&cluster.to_le_bytes());
                put_u64(out, *term);
                put_terms(out, terms);
                match *start {
                    Start::Resume(at) => {
                        out.push(0);
                        put_position(out, at);
                    }
                    Start::Bootstrap {
                        number,
                        bytes,
                        start,
                    } => {
                        out.push(1);
                        put_u64(out, number);
                        put_u64(out, bytes);
                        put_position(out, start);
                    }
                }
            }
            Message::Refused { term, reason } => {
                head(REFUSED);
                put_u64(out, *term);
                put_refusal(out, reason);
            }
            Message::Checkpoint {
                offset,
                last,
                bytes,
            } => {
                head(CHECKPOINT);
                put_u64(out, *offset);
                out.push(u8::from(*last));
                out.extend_from_slice(bytes);
            }
            Message::Batch { group, .. } => self.as_step().encode_batch(group, out),
            Message::Tick { .. } => self.as_step().encode_tick(out),
            Message::Sealed { term, last } => {
                head(SEALED);
                put_u64(out, *term);
                put_position(out, *last);
            }
            Message::Ack {
                term,
                received,
                persisted,
                applied,
                visible,
                echo_micros,
            } => {
                head(ACK);
                put_u64(out, *term);
                for p in [received, persisted, applied, visible] {
                    put_position(out, *p);
                }
                out.extend_from_slice(&echo_micros.to_le_bytes());
            }
            Message::Resume { from } => {
                head(RESUME);
                put_position(out, *from);
            }
            Message::Fetch { offset, bytes } => {
                head(FETCH);
                put_u64(out, *offset);
                out.extend_from_slice(&bytes.to_le_bytes());
            }
            Message::Seal => head(SEAL),
            Message::Show { after } => {
                head(SHOW);
                put_position(out, *after);
            }
            Message::Shown(around) => {
                head(SHOWN);
                put_around(out, around);
            }
            Message::Acks { at_once } => out.extend([ACKS, VERSION, u8::from(*at_once)]),
            Message::Lease(word) => word.encode(VERSION, out),
        }
    }

    /// The message's bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(&mut out);
        out
    }

    /// Reads one whole message; `Err` says what is wrong with the bytes. A batch's group is not looked into.
    pub fn decode(bytes: &[u8]) -> Result<Message, Malformed> {
        let mut r = Reader(bytes);
        let kind = r.u8()?;
        if r.u8()? != VERSION {
            return Err("the message is in a version that this program does not know");
        }
        let message = match kind {
            HELLO => {
                let (version, cluster) = (r.u16()?, r.u128()?);
                let (last, ring, terms) = (r.position()?, r.u64()?, r.terms()?);
                let node = r.text()?;
                if node.len() > MAX_NAME {
                    return Err("a node's name is too long");
                }
                Message::Hello {
                    version,
                    cluster,
                    node,
                    terms,
                    last,
                    ring,
                }
            }
            WELCOME => {
                let (cluster, term, terms) = (r.u128()?, r.term()?, r.terms()?);
                let start = match r.u8()? {
                    0 => Start::Resume(r.position()?),
                    1 => Start::Bootstrap {
                        number: r.u64()?,
                        bytes: r.u64()?,
                        start: r.position()?,
                    },
                    _ => return Err("a welcome starts nowhere"),
                };
                Message::Welcome {
                    cluster,
                    term,
                    terms,
                    start,
                }
            }
            REFUSED => {
                let term = r.term()?;
                let reason = r.refusal()?;
                Message::Refused { term, reason }
            }
            CHECKPOINT => {
                let offset = r.u64()?;
                let last = r.flag()?;
                if r.0.len() > MAX_CHUNK {
                    return Err("a part of a checkpoint is too long");
                }
                Message::Checkpoint {
                    offset,
                    last,
                    bytes: r.rest(),
                }
            }
            BATCH => {
                let Step {
                    term,
                    stream,
                    after,
                    upto,
                    published,
                    sent_micros,
                } = r.step()?;
                Message::Batch {
                    term,
                    stream,
                    after,
                    upto,
                    published,
                    sent_micros,
                    group: r.rest(),
                }
            }
            TICK => r.step()?.tick(),
            SEALED => Message::Sealed {
                term: r.term()?,
                last: r.position()?,
            },
            ACK => Message::Ack {
                term: r.term()?,
                received: r.position()?,
                persisted: r.position()?,
                applied: r.position()?,
                visible: r.position()?,
                echo_micros: r.i64()?,
            },
            RESUME => Message::Resume {
                from: r.position()?,
            },
            FETCH => Message::Fetch {
                offset: r.u64()?,
                bytes: r.u32()?,
            },
            SEAL => Message::Seal,
            SHOW => Message::Show {
                after: r.position()?,
            },
            SHOWN => Message::Shown(Box::new(Around {
                at: r.header()?,
                segment: r.header()?,
                next: r.header()?,
                checkpoint: r.header()?,
            })),
            ACKS => Message::Acks { at_once: r.flag()? },
            kind => Message::Lease(Word::decode(kind, &r.rest())?),
        };
        if !r.0.is_empty() {
            return Err("bytes follow the message");
        }
        Ok(message)
    }
}

fn put_u64(out: &mut Vec<u8>, n: u64) {
    out.extend_from_slice(&n.to_le_bytes());
}

fn put_position(out: &mut Vec<u8>, p: Position) {
    put_u64(out, p.as_u64());
}

fn put_refusal(out: &mut Vec<u8>, reason: &Refusal) {
    match reason {
        Refusal::Diverged { at } => {
            out.push(0);
            put_position(out, *at);
        }
        Refusal::Ahead { ours, theirs } => {
            out.push(5);
            put_position(out, *ours);
            put_position(out, *theirs);
        }
        Refusal::Unproven { ours, why } => {
            out.push(6);
            put_position(out, *ours);
            out.extend_from_slice(why.as_bytes());
        }
        Refusal::OtherCluster => out.push(1),
        Refusal::OlderTerm => out.push(2),
        Refusal::Sealed => out.push(3),
        Refusal::Other(why) => {
            out.push(4);
            out.extend_from_slice(why.as_bytes());
        }
    }
}

fn put_around(out: &mut Vec<u8>, around: &Around) {
    let Around {
        at,
        segment,
        next,
        checkpoint,
    } = around;
    for header in [at, segment, next, checkpoint] {
        out.push(u8::from(header.is_some()));
        out.extend_from_slice(header.as_ref().map_or(&[], |h| &h[..]));
    }
}

fn put_terms(out: &mut Vec<u8>, terms: &[(u64, Position)]) {
    let count = u32::try_from(terms.len()).expect("fewer than 2^32 terms");
    out.extend_from_slice(&count.to_le_bytes());
    for (term, start) in terms {
        put_u64(out, *term);
        put_position(out, *start);
    }
}

/// What is left of a message.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, rest) = self
            .0
            .split_first_chunk::<N>()
            .ok_or("the message is cut short")?;
        self.0 = rest;
        Ok(*head)
    }

    fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.take::<1>()?[0])
    }

    fn u16(&mut self) -> Result<u16, Malformed> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        self.take().map(u64::from_le_bytes)
    }

    fn term(&mut self) -> Result<u64, Malformed> {
        match self.u64()? {
            term if term <= MAX_TERM => Ok(term),
            _ => Err("a term is greater than any can be"),
        }
    }

    fn u128(&mut self) -> Result<u128, Malformed> {
        self.take().map(u128::from_le_bytes)
    }

    fn i64(&mut self) -> Result<i64, Malformed> {
        self.take().map(i64::from_le_bytes)
    }

    fn position(&mut self) -> Result<Position, Malformed> {
        self.u64().map(Position::from_u64)
    }

    fn step(&mut self) -> Result<Step, Malformed> {
        let step = Step {
            term: self.term()?,
            stream: self.u128()?,
            after: self.position()?,
            upto: self.position()?,
            published: self.position()?,
            sent_micros: self.i64()?,
        };
        if step.after > step.upto {
            return Err("a step of the stream goes backwards");
        }
        Ok(step)
    }

    fn terms(&mut self) -> Result<Vec<(u64, Position)>, Malformed> {
        let count = self.u32()? as usize;
        if count > self.0.len() / 16 {
            return Err("a history of terms is cut short");
        }
        let mut terms: Vec<(u64, Position)> = Vec::with_capacity(count);
        for _ in 0..count {
            let (term, start) = (self.term()?, self.position()?);
            if terms.last().is_some_and(|l| l.0 >= term || l.1 > start) {
                return Err("a history of terms does not ascend");
            }
            terms.push((term, start));
        }
        Ok(terms)
    }

    fn refusal(&mut self) -> Result<Refusal, Malformed> {
        Ok(match self.u8()? {
            0 => Refusal::Diverged {
                at: self.position()?,
            },
            1 => Refusal::OtherCluster,
            2 => Refusal::OlderTerm,
            3 => Refusal::Sealed,
            4 => Refusal::Other(self.text()?),
            5 => Refusal::Ahead {
                ours: self.position()?,
                theirs: self.position()?,
            },
            6 => Refusal::Unproven {
                ours: self.position()?,
                why: self.text()?,
            },
            _ => return Err("a refusal has no known reason"),
        })
    }

    fn flag(&mut self) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err("a flag is neither 0 nor 1"),
        }
    }

    fn header(&mut self) -> Result<Option<wal::around::Header>, Malformed> {
        let there = self.flag()?;
        there.then(|| self.take()).transpose()
    }

    fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0).to_vec()
    }

    fn text(&mut self) -> Result<String, Malformed> {
        String::from_utf8(self.rest()).map_err(|_| "a text is not UTF-8")
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
#[path = "tests/message.rs"]
mod tests;
