//! The network: connections between a replica and the node that it follows, and what happens to a message on its way.
//!
//! A connection carries whole messages, each of which may be late (and so overtaken), lost, doubled or damaged; a connection breaks, and
//! both ends hear of it, or not. TCP is kinder than this.

use replica::ship::Message;
use workload::rng::Rng;

/// Damages a message as wires do, in a way that somebody can find out: a group, which has checksums, has a wrong bit; anything else ends
/// too early. What has no checksum trusts TCP's, and a checkpoint is whole or thrown away when all of it has come.
pub fn damage(bytes: &mut Vec<u8>, dice: &mut Rng) {
    match Message::decode(bytes) {
        Ok(Message::Batch { group, .. }) if !group.is_empty() => {
            let at = bytes.len() - 1 - dice.below(group.len() as u64) as usize;
            bytes[at] ^= 1 << dice.below(8);
        }
        Ok(Message::Checkpoint { .. } | Message::Refused { .. }) | Err(_) => {}
        Ok(_) => bytes.truncate(dice.below(bytes.len() as u64) as usize),
    }
}

/// How bad it is.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// Of a hundred messages: lost, doubled, much delayed.
    pub lost: u64,
    pub doubled: u64,
    pub late: u64,
    /// Of a thousand.
    pub damaged: u64,
}

impl Weather {
    pub const CALM: Weather = Weather {
        lost: 0,
        doubled: 0,
        late: 0,
        damaged: 0,
    };
}

/// One connection.
#[derive(Clone, Debug)]
pub struct Connection {
    pub replica: usize,
    pub primary: usize,
    /// Neither end has ended it. What was sent before one did still arrives.
    pub alive: bool,
    /// An end went down: nothing arrives.
    pub reset: bool,
    /// When the last message in order arrives, to the replica and to the primary.
    last: [u64; 2],
}

pub struct Network {
    pub weather: Weather,
    pub connections: Vec<Connection>,
    /// Nodes on one side of the cut; empty: no cut.
    pub cut: Vec<usize>,
}

impl Network {
    pub fn new(weather: Weather) -> Network {
        Network {
            weather,
            connections: Vec::new(),
            cut: Vec::new(),
        }
    }

    /// Whether two nodes hear each other.
    pub fn reaches(&self, a: usize, b: usize) -> bool {
        self.cut.contains(&a) == self.cut.contains(&b)
    }

    /// A new connection's number.
    pub fn open(&mut self, replica: usize, primary: usize) -> usize {
        self.connections.push(Connection {
            replica,
            primary,
            alive: true,
            reset: false,
            last: [0; 2],
        });
        self.connections.len() - 1
    }

    /// When a message sent now arrives: never, once, or twice; in order, unless it is late.
    pub fn arrivals(&mut self, c: usize, to_primary: bool, now: u64, dice: &mut Rng) -> Vec<u64> {
        let roll = dice.below(100);
        let times = match roll {
            _ if roll < self.weather.lost => 0,
            _ if roll < self.weather.lost + self.weather.doubled => 2,
            _ => 1,
        };
        let mut arrivals = Vec::new();
        for _ in 0..times {
            let delay = 100 + dice.below(900);
            if dice.percent(self.weather.late) {
                arrivals.push(now + delay + dice.below(60_000));
                continue;
            }
            let last = &mut self.connections[c].last[usize::from(to_primary)];
            *last = (*last).max(now + delay);
            arrivals.push(*last);
        }
        arrivals
    }

    /// When an end hears that the other has ended the connection: after what was sent before.
    pub fn end_arrives(&mut self, c: usize, at_primary: bool, now: u64) -> u64 {
        self.connections[c].last[usize::from(at_primary)].max(now) + 500
    }
}
