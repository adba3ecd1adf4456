//! What a session is in the middle of, from the messages that pass: what must be carried to another node, and what to do when one is lost.
//!
//! ```text
//! client ──▶ a cycle: Query, or messages up to Sync ──▶ node                  pending: cycles without their ReadyForQuery
//! client ◀── acknowledgements are held until the cycle says more ◀── node     answered: the client has seen something of it
//! ```
//! A node is lost:
//!
//! | the session was | then |
//! |---|---|
//! | between transactions | it goes on elsewhere; nothing is noticed |
//! | waiting for the answer of a read on its own, or the node said that it ran nothing | the same is sent elsewhere |
//! | waiting for a commit, or for a write on its own | 40003: nobody knows; between transactions |
//! | in an open transaction | 40001, once; the transaction has failed, as the client will see until it rolls back |
//!
//! What was refused on its own, a write with 25006 (its node is not the primary any more) or anything with 57P03 (its node cannot serve
//! now), is sent to another node, the write to the primary. In an open transaction 57P03 becomes 40001.
//!
//! Carried: settings (the node tells of every change), prepared statements of the protocol and of SQL. What PREPARE makes by way of the
//! extended protocol cannot be carried: such a session ends with its node.
//!
//! Left out on purpose: `currval` and `lastval` (a session that has drawn numbers is not moved without need), and replies longer than what
//! is kept to run again.

use super::message::{cstr, error, field, parameter, ready, status, text, with_code};
use super::words::{self, Effect};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Bytes of a cycle that are kept to run it again.
const KEPT: usize = 1 << 20;

/// Nodes that are tried, one after the other, when each says that it cannot serve now.
const REFUSALS: u32 = 100;

/// The same of nodes that take no writes: while a primary hands over, those that pass writes on to it refuse them, too, and it may be found
/// to lead once more by a word that was under way.
const NO_WRITES: u32 = 10;

/// What is to be done with a client's message.
#[derive(Debug, PartialEq, Eq)]
pub enum Said {
    Forward,
    Nothing,
    /// The node does not see it; the client gets this.
    Reply(Vec<u8>),
    Terminate,
}

/// What is to be done with a node's message.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard {
    Forward,
    /// Kept back, or not for the client.
    Nothing,
    /// The node ends the connection. `nothing_run`: none of what is pending has run.
    Ending {
        nothing_run: bool,
    },
    /// The node has refused, without having run anything: these bytes are for another one.
    Elsewhere {
        bytes: Vec<u8>,
        primary: bool,
        /// How many nodes have refused it.
        tries: u32,
    },
}

/// What becomes of a session whose node is gone.
#[derive(Debug, PartialEq, Eq)]
pub enum Loss {
    /// Send these bytes to another node; the client notices nothing.
    Silent(Vec<u8>),
    /// Tell the client, and go on at another node, there inside of a transaction that has failed, or in none.
    Told { reply: Vec<u8>, failed_block: bool },
    /// It cannot go on.
    End(Vec<u8>),
}

/// What a session has that another node must be given.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Carry {
    pub settings: Vec<(String, String)>,
    /// Whole Parse messages.
    pub parses: Vec<Vec<u8>>,
    /// PREPARE statements.
    pub texts: Vec<String>,
}

/// An acknowledgement that is due.
enum Ack {
    Parse {
        name: Vec<u8>,
        message: Vec<u8>,
        effect: Effect,
    },
    Close {
        name: Option<Vec<u8>>,
    },
}

/// Messages with one ReadyForQuery at their end.
#[derive(Default)]
struct Cycle {
    bytes: Vec<u8>,
    /// All of it is in `bytes`.
    whole: bool,
    /// Its Query or Sync has been sent.
    closed: bool,
    /// The client waits for acknowledgements: it has sent Flush.
    flushed: bool,
    effect: Effect,
    /// Of a simple query.
    text: Option<String>,
    acks: Vec<Ack>,
    acknowledged: usize,
    /// Statements of the text that are done.
    completed: usize,
    /// Acknowledgements that the client has not been given yet, and the 25006 that may follow them.
    held: Vec<u8>,
    refused: bool,
    /// How often another node was tried because of that, and whether only the primary will do.
    refusals: u32,
    for_primary: bool,
    answered: bool,
}

/// See the head of the file.
pub struct Track {
    /// What the last ReadyForQuery said: `I`, `T` or `E`.
    status: u8,
    pending: VecDeque<Cycle>,
    statements: BTreeMap<Vec<u8>, (Vec<u8>, Effect)>,
    /// Effects of portals as the client has named them, before they are acknowledged.
    portals: HashMap<Vec<u8>, Effect>,
    texts: BTreeMap<String, String>,
    settings: BTreeMap<String, String>,
    /// What the client was told of settings.
    told: BTreeMap<String, String>,
    /// The node that is connected follows another one.
    standby: bool,
    /// The client sees an endpoint that takes writes, whatever the node is.
    endpoint: bool,
    started: bool,
    /// What it has written and read.
    token: Option<String>,
    draws: bool,
    pinned: bool,
    /// Its transaction went with a node, and the client has not heard.
    doomed: bool,
    /// After an error of ours inside of the extended protocol, up to Sync.
    skipping: bool,
}

const LOST: &str = "the node was lost and the transaction with it: run the transaction again";
const UNKNOWN: &str =
    "the node was lost before it answered: it is not known whether this has committed";
const GONE: &str = "the node is gone, and with it what this session cannot take to another one";

impl Track {
    /// `endpoint`: the client sees a server that takes writes, whatever node it is at.
    pub fn new(endpoint: bool) -> Track {
        Track {
            status: b'I',
            pending: VecDeque::new(),
            statements: BTreeMap::new(),
            portals: HashMap::new(),
            texts: BTreeMap::new(),
            settings: BTreeMap::new(),
            told: BTreeMap::new(),
            standby: false,
            endpoint,
            started: false,
            token: None,
            draws: false,
            pinned: false,
            doomed: false,
            skipping: false,
        }
    }

    /// Nothing is under way, and the session may change its node unseen.
    pub fn is_between(&self) -> bool {
        self.status == b'I' && self.pending.is_empty() && !self.pinned && !self.skipping
    }

    /// Nothing is under way, whatever ties the session to its node.
    pub fn is_idle(&self) -> bool {
        self.status == b'I' && self.pending.is_empty()
    }

    /// Whether a move may be noticed after all, by a client that asks for the number it has drawn.
    pub fn draws(&self) -> bool {
        self.draws
    }

    /// What another node must be given.
    pub fn carry(&self) -> Carry {
        let mut settings = self.settings.clone();
        if let Some(token) = &self.token {
            // Reads do not go back in time; what the client has asked for itself stays.
            settings
                .entry("canon.min_token".into())
                .or_insert_with(|| token.clone());
        }
        let settings = settings.into_iter().collect();
        Carry {
            settings,
            parses: self.statements.values().map(|s| s.0.clone()).collect(),
            texts: self.texts.values().cloned().collect(),
        }
    }

    /// A ParameterStatus of a node; what the client is told of it.
    fn parameter(&mut self, name: &str, value: &str) -> Option<Vec<u8>> {
        match name {
            "in_hot_standby" => self.standby = value == "on",
            "canon.commit_token" => self.token = Some(value.to_owned()),
            _ => {}
        }
        let shown = match name {
            "in_hot_standby" if self.endpoint => "off",
            "default_transaction_read_only" if self.endpoint && self.standby => "off",
            _ => value,
        };
        let own = !matches!(
            name,
            "in_hot_standby" | "is_superuser" | "canon.term" | "canon.commit_token"
        );
        if self.started && own && !(name == "default_transaction_read_only" && self.standby) {
            self.settings.insert(name.to_owned(), value.to_owned());
        }
        let known = self.told.get(name).is_some_and(|v| v == shown);
        let forward = if self.started {
            name == "canon.commit_token" || (self.told.contains_key(name) && !known)
        } else {
            !name.starts_with("canon.")
        };
        forward.then(|| {
            self.told.insert(name.to_owned(), shown.to_owned());
            status(name, shown)
        })
    }

    /// The ParameterStatus messages of a node that has just been connected; those that the client is told.
    pub fn connected(&mut self, parameters: &[(String, String)]) -> Vec<u8> {
        let carried = self.settings.clone();
        let token = self.token.clone();
        let standby = parameters.iter().find(|p| p.0 == "in_hot_standby");
        self.standby = standby.is_some_and(|p| p.1 == "on");
        let mut out = Vec::new();
        for (name, value) in parameters {
            // What is carried there is set again, and is what the client knows.
            let value = carried.get(name).unwrap_or(value);
            out.extend(self.parameter(name, value).unwrap_or_default());
        }
        self.settings = carried;
        self.token = token.or(self.token.take());
        out
    }

    /// The session's first ReadyForQuery has come.
    pub fn start(&mut self) {
        self.started = true;
    }

    /// A whole message of the client.
    pub fn client(&mut self, kind: u8, whole: &[u8]) -> Said {
        let body = &whole[5.min(whole.len())..];
        if kind == b'X' {
            return Said::Terminate;
        }
        if self.skipping {
            if kind != b'S' {
                return Said::Nothing;
            }
            self.skipping = false;
            return Said::Reply(ready(self.status));
        }
        let effect = match kind {
            b'Q' => words::effect(&text(cstr(body).0)),
            b'P' => words::effect(&text(cstr(cstr(body).1).0)),
            _ => Effect::default(),
        };
        let copying = matches!(kind, b'd' | b'c' | b'f');
        if copying && self.pending.is_empty() {
            // What is left of a COPY that failed.
            return Said::Nothing;
        }
        if self.doomed {
            match kind {
                // These run nothing: the word is kept for what does.
                b'S' => return Said::Reply(ready(self.status)),
                b'H' => return Said::Nothing,
                _ => {}
            }
            (self.doomed, self.status) = (false, b'E');
            let answer = error("ERROR", "40001", LOST);
            match kind {
                // The failed transaction that stands in its place takes this.
                b'Q' | b'P' if effect.rolls_back => {}
                b'Q' | b'F' => return Said::Reply([answer, ready(b'E')].concat()),
                _ => {
                    self.skipping = true;
                    return Said::Reply(answer);
                }
            }
        }
        self.draws |= effect.draws;
        if kind == b'H'
            && let Some(front) = self.pending.front_mut()
            && front.refused
            && !front.closed
        {
            // The client waits for the refusal, which is held.
            front.flushed = true;
            return Said::Reply(self.held());
        }
        if !copying && self.pending.back().is_none_or(|c| c.closed) {
            self.pending.push_back(Cycle {
                whole: true,
                ..Cycle::default()
            });
        }
        let cycle = self.pending.back_mut().expect("one is there");
        if copying || cycle.bytes.len() + whole.len() > KEPT {
            cycle.whole = false;
            cycle.bytes = Vec::new();
        } else if cycle.whole {
            cycle.bytes.extend_from_slice(whole);
        }
        let unknown = Effect {
            writes: true,
            ..Effect::default()
        };
        match kind {
            b'Q' => {
                cycle.effect |= effect;
                cycle.text = Some(text(cstr(body).0));
                cycle.closed = true;
            }
            b'F' => {
                cycle.effect.writes = true;
                cycle.closed = true;
            }
            b'P' => {
                cycle.acks.push(Ack::Parse {
                    name: cstr(body).0.to_vec(),
                    message: whole.to_vec(),
                    effect,
                });
            }
            b'B' => {
                let (portal, rest) = cstr(body);
                let of = self.statement(cstr(rest).0).unwrap_or(unknown);
                self.portals.insert(portal.to_vec(), of);
            }
            b'E' => cycle.effect |= *self.portals.get(cstr(body).0).unwrap_or(&unknown),
            b'C' => {
                let statement = body.first() == Some(&b'S');
                let name = cstr(body.get(1..).unwrap_or_default()).0.to_vec();
                if !statement {
                    self.portals.remove(&name);
                }
                cycle.acks.push(Ack::Close {
                    name: statement.then_some(name),
                });
            }
            b'H' => cycle.flushed = true,
            b'S' => cycle.closed = true,
            _ => {}
        }
        Said::Forward
    }

    /// What the statement of this name may do.
    fn statement(&self, name: &[u8]) -> Option<Effect> {
        let parsed = |a: &Ack| match a {
            Ack::Parse {
                name: n, effect, ..
            } if n == name => Some(*effect),
            _ => None,
        };
        let (cycle, before) = (self.pending.back()?, self.pending.len() - 1);
        // If that fails, so does all that follows in the cycle.
        if let Some(e) = cycle.acks.iter().rev().find_map(parsed) {
            return Some(e);
        }
        // What an earlier cycle parses may fail: then the name is still the other statement's.
        let under_way = self.pending.iter().take(before);
        let under_way = under_way.flat_map(|c| c.acks.iter().filter_map(parsed));
        let acknowledged = self.statements.get(name).map(|s| s.1);
        under_way.chain(acknowledged).reduce(|mut a, b| {
            a |= b;
            a
        })
    }

    /// Hands out what was held of the cycle that is being answered.
    fn held(&mut self) -> Vec<u8> {
        match self.pending.front_mut() {
            Some(c) => {
                c.answered = true;
                std::mem::take(&mut c.held)
            }
            None => Vec::new(),
        }
    }

    /// A whole message of the node. What the client gets, beside the message itself when it is forwarded, is put into `out` before it.
    pub fn node(&mut self, kind: u8, whole: &[u8], out: &mut Vec<u8>) -> Heard {
        let body = &whole[5.min(whole.len())..];
        match kind {
            b'S' => {
                let told = parameter(body).and_then(|(name, v)| self.parameter(&name, &v));
                out.extend_from_slice(&told.unwrap_or_default());
                return Heard::Nothing;
            }
            b'N' | b'A' => return Heard::Forward,
            b'E' => return self.error(body, whole, out),
            b'Z' => return self.ready(body.first().copied().unwrap_or(b'I'), out),
            b'C' => self.complete(&text(cstr(body).0)),
            b'1' | b'3' => self.acknowledged(),
            _ => {}
        }
        let Some(front) = self.pending.front_mut() else {
            return Heard::Forward;
        };
        let acknowledges = matches!(kind, b'1' | b'2' | b'3' | b'n' | b't' | b'T');
        if acknowledges && !front.answered && !front.flushed && self.status == b'I' {
            front.held.extend_from_slice(whole);
            return Heard::Nothing;
        }
        let held = self.held();
        out.extend_from_slice(&held);
        Heard::Forward
    }

    fn acknowledged(&mut self) {
        let Some(front) = self.pending.front_mut() else {
            return;
        };
        let at = front.acknowledged;
        front.acknowledged += 1;
        match front.acks.get(at) {
            Some(Ack::Parse {
                name,
                message,
                effect,
            }) => {
                self.statements
                    .insert(name.clone(), (message.clone(), *effect));
            }
            Some(Ack::Close { name: Some(name) }) => {
                self.statements.remove(name);
                self.texts.remove(&text(name));
            }
            _ => {}
        }
    }

    fn complete(&mut self, tag: &str) {
        let Some(front) = self.pending.front_mut() else {
            return;
        };
        let at = front.completed;
        front.completed += 1;
        if !matches!(
            tag,
            "PREPARE" | "DEALLOCATE" | "DISCARD ALL" | "DEALLOCATE ALL"
        ) {
            return;
        }
        let all = front.text.as_deref().map(words::statements);
        let found = all.as_ref().and_then(|all| all.get(at));
        let name = found.and_then(|s| s.words.last().map(|n| n.to_lowercase()));
        match (tag, found, name) {
            ("PREPARE", Some(s), _) => {
                // A name in quotes is nobody's but its own.
                let name = s.words.get(1).filter(|n| *n != "\"\"");
                let name = name.map_or_else(|| s.text.to_owned(), |n| n.to_lowercase());
                self.texts.insert(name, s.text.to_owned());
            }
            ("PREPARE", None, _) => self.pinned = true,
            ("DEALLOCATE", _, Some(name)) => {
                self.texts.remove(&name);
                self.statements.remove(name.as_bytes());
            }
            ("DEALLOCATE", ..) => {}
            _ => {
                self.statements.clear();
                self.texts.clear();
                self.pinned = false;
            }
        }
    }

    fn error(&mut self, body: &[u8], whole: &[u8], out: &mut Vec<u8>) -> Heard {
        let code = field(body, b'C').unwrap_or_default();
        let fatal = matches!(field(body, b'V').as_deref(), Some("FATAL" | "PANIC"));
        if fatal && matches!(code.as_str(), "57P01" | "57P02" | "57P03") {
            let nothing_run =
                field(body, b'D').as_deref() == Some(crate::gate::connection::NOTHING_RUN);
            return Heard::Ending { nothing_run };
        }
        let read_only = self.settings.get("default_transaction_read_only");
        let writable = self.endpoint && read_only.is_none_or(|v| v == "off");
        let most = match code.as_str() {
            "25006" if writable => NO_WRITES,
            "57P03" => REFUSALS,
            _ => 0,
        };
        let may_wait = self.status == b'I' && self.pending.len() == 1;
        if let Some(front) = self.pending.front_mut() {
            // What follows in the cycle is skipped, and not acknowledged.
            front.acks.truncate(front.acknowledged);
            let alone = !front.answered && !front.flushed && front.whole && !front.effect.begins;
            if may_wait && alone && front.refusals < most {
                front.held.extend_from_slice(whole);
                front.refused = true;
                front.refusals += 1;
                front.for_primary = code == "25006";
                return Heard::Nothing;
            }
        }
        let held = self.held();
        out.extend_from_slice(&held);
        if self.status == b'T' && code == "57P03" {
            // Its node cannot go on with the transaction: for the client it is lost as it is with its node.
            out.extend_from_slice(&with_code(whole, &code, "40001"));
            return Heard::Nothing;
        }
        Heard::Forward
    }

    fn ready(&mut self, status: u8, out: &mut Vec<u8>) -> Heard {
        if let Some(front) = self.pending.front_mut() {
            let alone = front.refused && !front.answered && front.closed;
            let (primary, tries) = (front.for_primary, front.refusals);
            // What the client has sent meanwhile is at the node already, and stays there.
            if alone && status == b'I' && self.pending.len() == 1 {
                let bytes = self.again();
                return Heard::Elsewhere {
                    bytes,
                    primary,
                    tries,
                };
            }
            let held = self.held();
            out.extend_from_slice(&held);
            self.pending.pop_front();
        }
        self.status = status;
        // (A cycle that is on its way may have named some.)
        if status == b'I' && self.pending.is_empty() {
            self.portals.clear();
        }
        Heard::Forward
    }

    /// What is pending, to be sent once more.
    fn again(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for c in &mut self.pending {
            bytes.extend_from_slice(&c.bytes);
            for a in c.acks.iter().take(c.acknowledged) {
                if let Ack::Parse { name, .. } = a {
                    self.statements.remove(name);
                }
            }
            (c.acknowledged, c.completed) = (0, 0);
            c.held.clear();
            if c.refused {
                c.acks = parses(&c.bytes);
            }
            c.refused = false;
        }
        bytes
    }

    /// Nobody takes what is pending: an answer to each of it.
    pub fn give_up(&mut self, code: &str, what: &str) -> Vec<u8> {
        let mut reply = Vec::new();
        for c in self.pending.drain(..) {
            reply.extend(error("ERROR", code, what));
            if c.closed {
                reply.extend(ready(self.status));
            } else {
                self.skipping = true;
            }
        }
        reply
    }

    /// Whether any of what is pending may have committed, and whether all of it leaves a block open. A block that a cycle without an answer
    /// begins may not have come about, so it protects what is in the same cycle and nothing after it. In one cycle the order is not
    /// known: a rollback may stand before a write.
    fn may_have_committed(&self, in_block: bool) -> (bool, bool) {
        let (mut may_have, mut sure, mut block) = (false, in_block, in_block);
        for e in self.pending.iter().map(|c| c.effect) {
            let ends = e.commits || e.rolls_back;
            may_have |= e.commits || (e.writes && (e.rolls_back || !(sure || e.begins)));
            sure &= !ends;
            block = (block || e.begins) && !ends;
        }
        (may_have, block)
    }

    /// The node is gone.
    pub fn lost(&mut self, nothing_run: bool) -> Loss {
        if self.pinned {
            return Loss::End(error("FATAL", "57P01", GONE));
        }
        let in_block = self.status != b'I';
        if self.pending.is_empty() {
            if !in_block {
                return Loss::Silent(vec![]);
            }
            // A transaction that has failed already fails on.
            self.doomed = self.status == b'T';
            return Loss::Told {
                reply: vec![],
                failed_block: true,
            };
        }
        let unanswered = self.pending.front().is_some_and(|c| !c.answered);
        let again = |c: &Cycle| c.whole && (nothing_run || c.refused || c.effect.may_run_again());
        if !in_block && unanswered && self.pending.iter().all(again) {
            return Loss::Silent(self.again());
        }
        let (may_have, failed_block) = self.may_have_committed(in_block);
        let (code, what) = match may_have && !nothing_run {
            true => ("40003", UNKNOWN),
            false => ("40001", LOST),
        };
        self.status = if failed_block { b'E' } else { b'I' };
        Loss::Told {
            reply: self.give_up(code, what),
            failed_block,
        }
    }
}

/// The acknowledgements that these messages ask for.
fn parses(mut bytes: &[u8]) -> Vec<Ack> {
    let mut acks = Vec::new();
    while let Some(head) = bytes.first_chunk::<5>() {
        let len = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize + 1;
        let (whole, rest) = bytes.split_at(len.min(bytes.len()));
        let body = &whole[5.min(whole.len())..];
        match head[0] {
            b'P' => acks.push(Ack::Parse {
                name: cstr(body).0.to_vec(),
                message: whole.to_vec(),
                effect: words::effect(&text(cstr(cstr(body).1).0)),
            }),
            b'C' => acks.push(Ack::Close {
                name: (body.first() == Some(&b'S'))
                    .then(|| cstr(body.get(1..).unwrap_or_default()).0.to_vec()),
            }),
            _ => {}
        }
        bytes = rest;
    }
    acks
}

#[cfg(test)]
mod tests;
