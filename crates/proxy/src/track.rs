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
//! | waiting for a commit, or for a write on its own | 40003: the outcome is not known; between transactions |
//! | in an open transaction | 40001, once; the transaction has failed, as the client will see until it rolls back |
//!
//! What was refused on its own, a write with 25006 (its node is not the primary any more) or anything with 57P03 (its node cannot serve
//! now), is sent to another node, the write to the primary. So is the first statement of a block, with its BEGIN: nothing of that block has
//! been shown. In any other open transaction the refusal becomes 40001. A session whose client knows of a refusal leaves that node as soon
//! as nothing is under way, and nothing new is begun there.
//!
//! Carried: settings (the node tells of every change), prepared statements of the protocol and of SQL. What PREPARE makes by way of the
//! extended protocol cannot be carried: such a session ends with its node.
//!
//! Of a long message only the head is seen (`end`). A text of which that is all may do anything: it counts as a write, and ties the session.
//! Statements are kept up to [`PREPARED`] bytes. One that is not kept ties the session, too.
//!
//! Left out on purpose: `currval` and `lastval`, and replies longer than what is kept to run again. A session that has drawn numbers is not
//! moved without need.

mod cycle;
mod loss;
pub use loss::rollback;

use cycle::{Ack, Cycle, opens};
use protocol::message::{cstr, error, parameter, ready, status, text};
use sql::effect::{self, Effect};
use sql::session::Token;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Bytes of a cycle that are kept to run it again.
const KEPT: usize = 1 << 20;

/// Bytes of prepared statements that are kept for a session.
const PREPARED: usize = 16 << 20;

/// Nodes that are tried, one after the other, when each says that it cannot serve now.
const REFUSALS: u32 = 100;

/// The same of nodes that take no writes: while a primary hands over, those that pass writes on to it refuse them, too, and it may be found
/// to lead once more by a word that was under way.
const NO_WRITES: u32 = 10;

/// Nodes that may be lost one after the other while they run the same: it may be what ends them.
const LOSSES: u32 = 3;

/// Statements that open a block and are kept to open it elsewhere.
const OPENING: usize = 16;

/// What is to be done with a client's message.
#[derive(Debug, PartialEq, Eq)]
pub enum Said {
    Forward,
    Nothing,
    /// The node does not see it; the client gets this.
    Reply(Vec<u8>),
    /// The client gets this, and the node sees it.
    Both(Vec<u8>),
    /// The client gets this, and the node rolls back.
    Ends(Vec<u8>),
    Terminate,
}

/// What is to be done with a node's message.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard {
    Forward,
    /// Kept back, or not for the client.
    Nothing,
    /// The node has ended the session, for what the client did or did not do: it gets this, and is gone.
    Last,
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
        /// What must be run before them: what has opened the block.
        opening: Vec<String>,
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

/// See the head of the file.
pub struct Track {
    /// What the last ReadyForQuery said: `I`, `T` or `E`.
    status: u8,
    pending: VecDeque<Cycle>,
    /// The block that is open has shown nothing: these have made it what it is.
    opening: Option<Vec<String>>,
    /// The block that is open was asked to read only.
    reads_only: bool,
    /// The node has refused, and the client knows: the session should leave it; whether only the primary will do.
    leave: Option<bool>,
    /// What the session has seen is not in the node's history any more, and the client knows: it is to begin there anew.
    forgets: bool,
    /// Cycles that are done, and how many were when it was last asked whether it waits.
    done: u64,
    asked: Option<u64>,
    /// What the node's ReadyForQuery behind a refusal said.
    refused_in: u8,
    statements: BTreeMap<Vec<u8>, (Vec<u8>, Effect)>,
    /// Effects of portals as the client has named them, before they are acknowledged.
    portals: HashMap<Vec<u8>, (Effect, Option<String>)>,
    texts: BTreeMap<String, String>,
    settings: BTreeMap<String, String>,
    /// What those were before the transaction that has changed them; none: they were not set.
    before: BTreeMap<String, Option<String>>,
    /// The statement that is done was COMMIT.
    committed: bool,
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
    /// Bytes of statements that are kept, or a few more.
    prepared: usize,
    tie: Tie,
    input: Input,
}

/// What ties a session to its node. A session that is tied ends with the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tie {
    None,
    /// It holds something there that cannot be carried, until DISCARD ALL.
    Holds,
    /// It is not known how many ReadyForQuery are due.
    Astray,
}

/// What becomes of the client's next message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Input {
    /// It goes to the node.
    Passes,
    /// The transaction went with a node, and the client has not heard: the first message that runs something gets the error.
    Doomed,
    /// After an error of ours inside of the extended protocol: it is skipped, up to Sync.
    Skipped(AtSync),
}

/// What the Sync behind skipped messages asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AtSync {
    Ready,
    /// What is skipped began with COMMIT, which ends the transaction if it was to be run.
    Commit {
        runs: bool,
    },
}

/// What a text may do of which only the head is seen.
const UNREAD: Effect = Effect {
    writes: true,
    begins: false,
    commits: true,
    rolls_back: false,
    draws: true,
    block: None,
    reads_only: false,
    ties: true,
};

/// The text of a Parse message.
fn parsed_text(message: &[u8]) -> String {
    let body = message.get(5..).unwrap_or_default();
    text(cstr(cstr(body).1).0)
}

const LOST: &str = "the node was lost and the transaction with it: run the transaction again";
const UNKNOWN: &str =
    "the node was lost before it answered: it is not known whether this has committed";
const GONE: &str = "the node is gone, and with it what this session cannot take to another one";

/// Whether the first commit token stands for more than the second.
fn is_beyond(token: &str, asked: &str) -> bool {
    let (Some(t), Some(a)) = (Token::parse(token), Token::parse(asked)) else {
        return false;
    };
    t.cluster == a.cluster && (t.term, t.position) > (a.term, a.position)
}

impl Track {
    /// `endpoint`: the client sees a server that takes writes, whatever node it is at.
    pub fn new(endpoint: bool) -> Track {
        Track {
            status: b'I',
            pending: VecDeque::new(),
            opening: None,
            reads_only: false,
            leave: None,
            forgets: false,
            done: 0,
            asked: None,
            refused_in: b'I',
            statements: BTreeMap::new(),
            portals: HashMap::new(),
            texts: BTreeMap::new(),
            settings: BTreeMap::new(),
            before: BTreeMap::new(),
            committed: false,
            told: BTreeMap::new(),
            standby: false,
            endpoint,
            started: false,
            token: None,
            draws: false,
            prepared: 0,
            tie: Tie::None,
            input: Input::Passes,
        }
    }

    /// Nothing is under way, and the session may change its node unseen.
    pub fn is_between(&self) -> bool {
        self.is_idle() && self.may_leave()
    }

    /// Nothing ties it to its node, and it is not in the middle of what is skipped.
    fn may_leave(&self) -> bool {
        self.tie == Tie::None && !matches!(self.input, Input::Skipped(_))
    }

    /// Nothing is under way, whatever ties the session to its node.
    pub fn is_idle(&self) -> bool {
        self.status == b'I' && self.pending.is_empty()
    }

    /// The session should go to another node when nothing is under way, as this one has refused; whether only the primary will do.
    pub fn leaves(&self) -> Option<bool> {
        self.leave
    }

    /// It stays where it is: there is no other node.
    pub fn stays(&mut self) {
        self.leave = None;
    }

    /// The same, of a connection to this node that does not ask for what is lost; once.
    pub fn forgets(&mut self) -> bool {
        std::mem::take(&mut self.forgets)
    }

    /// Nothing is to be begun at this node: the session leaves it when what is under way is done.
    pub fn drains(&self) -> bool {
        let open = self.status != b'I' || self.pending.iter().any(|c| !c.closed);
        self.leave.is_some() && self.may_leave() && !open
    }

    /// Whether a move may be noticed after all, by a client that asks for the number it has drawn.
    pub fn draws(&self) -> bool {
        self.draws
    }

    /// What another node must be given.
    pub fn carry(&self) -> Carry {
        let mut settings = self.settings.clone();
        if let Some(token) = &self.token {
            // Reads do not go back in time. What the client has asked for itself stays, unless the session is beyond it.
            let asked = settings.entry("canon.min_token".into()).or_default();
            if asked.is_empty() || is_beyond(token, asked) {
                asked.clone_from(token);
            }
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
        self.leave = None;
        self.token = token.or(self.token.take());
        out
    }

    /// The session's first ReadyForQuery has come.
    pub fn start(&mut self) {
        self.started = true;
    }

    /// A whole message of the client.
    pub fn client(&mut self, kind: u8, whole: &[u8]) -> Said {
        self.said(kind, whole, true)
    }

    /// The head of a long message of the client. What is said goes for all of it.
    pub fn begun(&mut self, kind: u8, head: &[u8]) -> Said {
        self.said(kind, head, false)
    }

    fn said(&mut self, kind: u8, whole: &[u8], complete: bool) -> Said {
        let body = &whole[5.min(whole.len())..];
        if kind == b'X' {
            return Said::Terminate;
        }
        if let Input::Skipped(at_sync) = self.input {
            return self.skip(kind, at_sync);
        }
        let effect = match kind {
            b'Q' | b'P' if !complete => UNREAD,
            b'Q' => effect::effect(&text(cstr(body).0)),
            b'P' => effect::effect(&text(cstr(cstr(body).1).0)),
            _ => Effect::default(),
        };
        let copying = matches!(kind, b'd' | b'c' | b'f');
        if copying && self.pending.is_empty() {
            // What is left of a COPY that failed.
            return Said::Nothing;
        }
        if self.input == Input::Doomed
            && let Some(said) = self.tell_loss(kind, body, effect)
        {
            return said;
        }
        self.draws |= effect.draws;
        if effect.ties && self.tie == Tie::None {
            self.tie = Tie::Holds;
        }
        if kind == b'H'
            && let Some(front) = self.pending.front_mut()
            && !front.closed
            && !front.held.is_empty()
        {
            // The client waits for what is held. Behind a refusal nothing comes of the node.
            front.flushed = true;
            let refused = front.refused;
            let held = self.held();
            return if refused {
                Said::Reply(held)
            } else {
                Said::Both(held)
            };
        }
        let behind = self.pending.back().is_some_and(|c| !c.closed);
        if kind == b'H' && !behind {
            // Behind Sync there is nothing to wait for.
            return Said::Nothing;
        }
        if !copying && !behind {
            self.pending.push_back(Cycle {
                whole: true,
                ..Cycle::default()
            });
        }
        self.record(kind, whole, complete, effect, behind);
        Said::Forward
    }

    /// Whether so many bytes more of statements are kept. If not, the session is tied.
    fn keeps(&mut self, more: usize) -> bool {
        self.prepared += more;
        if self.prepared > PREPARED {
            // Some may have gone.
            let parsed = |a: &Ack| match a {
                Ack::Parse { message, .. } => message.len(),
                Ack::Close { .. } => 0,
            };
            let under_way = self.pending.iter().flat_map(|c| c.acks.iter().map(parsed));
            let parses = self.statements.values().map(|s| s.0.len());
            let texts = self.texts.values().map(String::len);
            self.prepared = more + under_way.chain(parses).chain(texts).sum::<usize>();
        }
        let keeps = self.prepared <= PREPARED;
        if !keeps && self.tie == Tie::None {
            self.tie = Tie::Holds;
        }
        keeps
    }

    /// A message between an error of ours and the Sync behind it.
    fn skip(&mut self, kind: u8, at_sync: AtSync) -> Said {
        if kind != b'S' {
            if let (b'E', AtSync::Commit { .. }) = (kind, at_sync) {
                self.input = Input::Skipped(AtSync::Commit { runs: true });
            }
            return Said::Nothing;
        }
        self.input = Input::Passes;
        match at_sync {
            AtSync::Commit { runs: true } => self.ends(vec![]),
            _ => Said::Reply(ready(self.status)),
        }
    }

    /// A message of a client that has not heard that its transaction is lost; none: it goes on to the failed transaction that stands in
    /// the place of that one.
    fn tell_loss(&mut self, kind: u8, body: &[u8], effect: Effect) -> Option<Said> {
        match kind {
            // These run nothing: the word is kept for what does.
            b'S' => return Some(Said::Reply(ready(self.status))),
            b'H' => return Some(Said::Nothing),
            _ => {}
        }
        (self.input, self.status) = (Input::Passes, b'E');
        let answer = error("ERROR", "40001", LOST);
        let effect = match kind {
            b'B' => self.statement(cstr(cstr(body).1).0).unwrap_or_default(),
            _ => effect,
        };
        // COMMIT that fails ends the transaction, too.
        let over = effect.commits && !effect.writes && effect.block == Some(false);
        match kind {
            b'Q' | b'P' | b'B' if effect.rolls_back => None,
            b'Q' if over => Some(self.ends(answer)),
            b'Q' | b'F' => Some(Said::Reply([answer, ready(b'E')].concat())),
            _ => {
                self.input = Input::Skipped(match over {
                    true => AtSync::Commit { runs: false },
                    false => AtSync::Ready,
                });
                Some(Said::Reply(answer))
            }
        }
    }

    /// Notes what a message that goes to the node makes of the cycle that it belongs to. `complete`: it is all there; `behind`: the cycle has
    /// others before it.
    fn record(&mut self, kind: u8, whole: &[u8], complete: bool, effect: Effect, behind: bool) {
        let body = &whole[5.min(whole.len())..];
        let kept = kind == b'P' && complete && self.keeps(whole.len());
        let copying = matches!(kind, b'd' | b'c' | b'f');
        let unknown = Effect {
            writes: true,
            ..Effect::default()
        };
        let cycle = self.pending.back_mut().expect("one is there");
        cycle.asks |= !matches!(kind, b'S' | b'H');
        if copying || !complete || cycle.bytes.len() + whole.len() > KEPT {
            cycle.whole = false;
            cycle.bytes = Vec::new();
        } else if cycle.whole {
            cycle.bytes.extend_from_slice(whole);
        }
        match kind {
            // The node skips it.
            b'P' | b'B' | b'C' if cycle.skipped() => {}
            b'Q' => {
                cycle.mixed = behind;
                let sql = match complete {
                    true => text(cstr(body).0),
                    false => String::new(),
                };
                cycle.run(effect, opens(&sql).then(|| sql.clone()));
                cycle.text = Some(sql);
                cycle.closed = true;
            }
            b'F' => {
                cycle.effect.writes = true;
                cycle.closed = true;
            }
            b'P' => {
                cycle.expect(Ack::Parse {
                    name: cstr(body).0.to_vec(),
                    message: if kept { whole.to_vec() } else { Vec::new() },
                    effect,
                });
            }
            b'B' => {
                let (portal, rest) = cstr(body);
                cycle.binds += 1;
                let name = cstr(rest).0;
                let of = self.statement(name).unwrap_or(unknown);
                let of = (of, self.opener(name));
                self.portals.insert(portal.to_vec(), of);
            }
            b'E' => {
                let of = self.portals.get(cstr(body).0);
                let (effect, opener) = of.map_or((unknown, None), |p| (p.0, p.1.clone()));
                cycle.run(effect, opener);
            }
            b'C' => {
                let statement = body.first() == Some(&b'S');
                let name = cstr(body.get(1..).unwrap_or_default()).0.to_vec();
                if !statement {
                    self.portals.remove(&name);
                }
                cycle.expect(Ack::Close {
                    name: statement.then_some(name),
                });
            }
            b'H' => cycle.flushed = true,
            b'S' => cycle.closed = true,
            _ => {}
        }
    }

    /// What the statement of this name may do.
    fn statement(&self, name: &[u8]) -> Option<Effect> {
        let parsed = |a: &Ack| match a {
            Ack::Parse {
                name: n, effect, ..
            } if n == name => Some(*effect),
            _ => None,
        };
        let before = self.pending.len().saturating_sub(1);
        // If that fails, so does all that follows in the cycle.
        let cycle = self.pending.back();
        if let Some(e) = cycle.and_then(|c| c.acks.iter().rev().find_map(parsed)) {
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

    /// The text of the statement of this name, if it opens a block.
    fn opener(&self, name: &[u8]) -> Option<String> {
        let parsed = |a: &Ack| match a {
            Ack::Parse {
                name: n, message, ..
            } if n == name && !message.is_empty() => Some(parsed_text(message)),
            _ => None,
        };
        let under_way = self.pending.iter().rev();
        let under_way = under_way.flat_map(|c| c.acks.iter().rev()).find_map(parsed);
        let sql = under_way.or_else(|| Some(parsed_text(&self.statements.get(name)?.0)))?;
        opens(&sql).then_some(sql)
    }

    /// Nothing has been shown since the session was between transactions.
    fn is_fresh(&self) -> bool {
        self.status == b'I' || (self.status == b'T' && self.opening.is_some())
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
                let told = parameter(body).and_then(|(name, v)| {
                    let before = self.settings.get(&name);
                    (self.before.entry(name.clone())).or_insert_with(|| before.cloned());
                    self.parameter(&name, &v)
                });
                out.extend_from_slice(&told.unwrap_or_default());
                return Heard::Nothing;
            }
            b'N' | b'A' => return Heard::Forward,
            b'E' => return self.error(body, whole, out),
            b'Z' => return self.ready(body.first().copied().unwrap_or(b'I'), out),
            b'C' if self.pending.front().is_some_and(|c| c.ours) => return Heard::Nothing,
            b'C' => self.complete(&text(cstr(body).0)),
            b'1' | b'3' => self.acknowledged(),
            b'G' => self.copies(),
            _ => {}
        }
        let fresh = self.is_fresh();
        let Some(front) = self.pending.front_mut() else {
            return Heard::Forward;
        };
        let opened = || matches!(cstr(body).0, b"BEGIN" | b"START TRANSACTION" | b"SAVEPOINT");
        let acknowledges =
            matches!(kind, b'1' | b'2' | b'3' | b'n' | b't' | b'T') || (kind == b'C' && opened());
        let may_hold = front.whole && front.held.len() + whole.len() <= KEPT;
        let unseen = !front.answered && !front.flushed;
        if acknowledges && may_hold && unseen && fresh {
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
        match front.acknowledge() {
            // Another one has taken its place, or its own parse has failed.
            Some(Ack::Parse { name, message, .. }) if message.is_empty() => {
                self.statements.remove(&name);
            }
            Some(Ack::Parse {
                name,
                message,
                effect,
            }) => {
                self.statements.insert(name, (message, effect));
            }
            Some(Ack::Close { name: Some(name) }) => {
                self.statements.remove(&name);
                self.texts.remove(&text(&name));
            }
            _ => {}
        }
    }

    /// COPY begins to take data. In the extended protocol a Sync that came with Execute counts for nothing at the node: the one behind the
    /// data ends the cycle, and may have been sent already.
    fn copies(&mut self) {
        let Some(front) = self.pending.front_mut() else {
            return;
        };
        if !front.closed || front.text.is_some() {
            return;
        }
        front.closed = false;
        if let Some(next) = self.pending.remove(1) {
            self.pending[0].join(next);
        }
    }

    fn complete(&mut self, tag: &str) {
        let Some(front) = self.pending.front_mut() else {
            return;
        };
        let at = front.completed;
        front.completed += 1;
        // (With AND CHAIN a block goes on.)
        self.committed = tag == "COMMIT";
        if !matches!(
            tag,
            "PREPARE" | "DEALLOCATE" | "DISCARD ALL" | "DEALLOCATE ALL"
        ) {
            return;
        }
        let all = front.text.as_deref().map(effect::statements);
        let found = all.as_ref().and_then(|all| all.get(at));
        let name = found.and_then(|s| s.words.last().map(|n| n.to_lowercase()));
        match (tag, found, name) {
            ("PREPARE", Some(s), _) => {
                // A name in quotes is nobody's but its own.
                let name = s.words.get(1).filter(|n| *n != "\"\"");
                let name = name.map_or_else(|| s.text.to_owned(), |n| n.to_lowercase());
                let text = s.text.to_owned();
                if self.keeps(text.len()) {
                    self.texts.insert(name, text);
                }
            }
            ("PREPARE", None, _) if self.tie == Tie::None => self.tie = Tie::Holds,
            ("PREPARE", None, _) => {}
            ("DEALLOCATE", _, Some(name)) => {
                self.texts.remove(&name);
                self.statements.remove(name.as_bytes());
            }
            ("DEALLOCATE", ..) => {}
            _ => {
                self.statements.clear();
                self.texts.clear();
                if self.tie == Tie::Holds {
                    self.tie = Tie::None;
                }
            }
        }
    }

    fn ready(&mut self, status: u8, out: &mut Vec<u8>) -> Heard {
        if let Some(front) = self.pending.front_mut() {
            let alone = front.refused && !front.answered && front.closed && front.whole;
            let (primary, tries) = (front.for_primary, front.refusals);
            // What the client has sent meanwhile is at the node already, and stays there.
            if alone && status != b'T' && self.pending.len() == 1 {
                let bytes = self.again();
                self.refused_in = status;
                return Heard::Elsewhere {
                    bytes,
                    primary,
                    tries,
                    opening: self.opening.clone().unwrap_or_default(),
                };
            }
            let held = self.held();
            out.extend_from_slice(&held);
            if let Some(done) = self.pending.pop_front() {
                self.opened(&done, status);
                self.done += 1;
            }
        }
        if std::mem::take(&mut self.committed) || status == b'I' {
            self.before.clear();
        }
        self.status = status;
        // A cycle that is on its way may have named portals.
        if status == b'I' && self.pending.is_empty() {
            self.portals.clear();
        }
        Heard::Forward
    }
}

#[cfg(test)]
mod tests;
