//! Messages of a client that end with one ReadyForQuery, and what is known of them while that has not come.

use protocol::message::{cstr, text};
use sql::effect::{self, Effect};

/// An acknowledgement that is due.
pub enum Ack {
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
pub struct Cycle {
    pub bytes: Vec<u8>,
    /// All of it is in `bytes`.
    pub whole: bool,
    /// Its Query or Sync has been sent.
    pub closed: bool,
    /// The client waits for acknowledgements: it has sent Flush.
    pub flushed: bool,
    pub effect: Effect,
    /// Statements that it runs, as far as they are known: no more than the first is kept.
    pub runs: usize,
    pub first: Option<String>,
    /// There is more in it than Sync.
    pub asks: bool,
    /// Portals that it makes.
    pub binds: usize,
    /// Of a simple query.
    pub text: Option<String>,
    pub acks: Vec<Ack>,
    pub acknowledged: usize,
    /// Statements of the text that are done.
    pub completed: usize,
    /// Acknowledgements that the client has not been given yet, and the refusal that may follow them.
    pub held: Vec<u8>,
    pub refused: bool,
    /// How often another node was tried because of that, and whether only the primary will do.
    pub refusals: u32,
    pub for_primary: bool,
    pub answered: bool,
    /// After an error that the client has: the node skips what comes up to Sync.
    pub failed: bool,
    /// Nodes that were lost while it ran.
    pub losses: u32,
    /// It is not the client's, but the client gets its ReadyForQuery.
    pub ours: bool,
    /// A simple query stands behind messages that no Sync has ended.
    pub mixed: bool,
}

impl Cycle {
    /// It shows nothing of the data: it parses and describes.
    pub fn shows_nothing(&self) -> bool {
        self.runs + self.binds == 0
    }

    /// Runs one more.
    pub fn run(&mut self, effect: Effect, text: Option<String>) {
        self.effect |= effect;
        self.runs += 1;
        if self.runs == 1 {
            self.first = text;
        }
    }

    /// All that it does is to begin a block or to set a mark in one: it shows nothing, and may be done again elsewhere.
    pub fn opening(&self) -> Option<&str> {
        let first = self.first.as_deref().filter(|_| self.runs == 1)?;
        let alone = opens(first) && effect::statements(first).len() == 1;
        alone.then_some(first)
    }

    /// The node skips what comes up to Sync, and it does not run anywhere else.
    pub fn skipped(&self) -> bool {
        self.failed || self.refused && !self.whole
    }

    /// A Parse or a Close is on its way. The unnamed statement is whichever was parsed last: of those before it nothing is kept.
    pub fn expect(&mut self, ack: Ack) {
        if self.failed || self.refused {
            return;
        }
        if let Ack::Parse { name, .. } = &ack
            && name.is_empty()
        {
            for a in &mut self.acks {
                match a {
                    Ack::Parse { name, message, .. } if name.is_empty() => *message = Vec::new(),
                    _ => {}
                }
            }
        }
        self.acks.push(ack);
    }

    /// The one that is acknowledged now. One that cannot run again leaves nothing behind.
    pub fn acknowledge(&mut self) -> Option<Ack> {
        if !self.whole {
            self.acks.drain(..self.acknowledged);
            self.acknowledged = 0;
        }
        let ack = self.acks.get_mut(self.acknowledged)?;
        self.acknowledged += 1;
        Some(match ack {
            Ack::Parse {
                name,
                message,
                effect,
            } => Ack::Parse {
                name: name.clone(),
                message: std::mem::take(message),
                effect: *effect,
            },
            Ack::Close { name } => Ack::Close { name: name.clone() },
        })
    }

    /// What follows at the node counts as a part of this one.
    pub fn join(&mut self, next: Cycle) {
        self.closed = next.closed;
        self.whole = false;
        self.bytes = Vec::new();
        self.flushed |= next.flushed;
        self.effect |= next.effect;
        self.runs += next.runs;
        self.binds += next.binds;
        self.asks |= next.asks;
        self.acks.extend(next.acks);
    }
}

/// Whether a text begins with a statement that opens a block or sets a mark in one.
pub fn opens(sql: &str) -> bool {
    let word = sql.trim_start();
    ["BEGIN", "START", "SAVEPOINT"].iter().any(|w| {
        let first = word.get(..w.len());
        first.is_some_and(|f| f.eq_ignore_ascii_case(w))
    })
}

/// The acknowledgements that these messages ask for.
pub fn parses(mut bytes: &[u8]) -> Vec<Ack> {
    let mut acks = Vec::new();
    while let Some(head) = bytes.first_chunk::<5>() {
        let len = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize + 1;
        let (whole, rest) = bytes.split_at(len.min(bytes.len()));
        let body = &whole[5.min(whole.len())..];
        match head[0] {
            b'P' => acks.push(Ack::Parse {
                name: cstr(body).0.to_vec(),
                message: whole.to_vec(),
                effect: effect::effect(&text(cstr(cstr(body).1).0)),
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
