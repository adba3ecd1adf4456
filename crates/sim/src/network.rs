//! The network: connections between a replica and the node that it follows, and what happens to a message on its way.
//!
//! A connection carries whole messages, each of which may be late (and so overtaken), lost or doubled; a connection breaks, and
//! both ends hear of it, or not. TCP is kinder than this.

use workload::Rng;

/// How bad it is.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// Of a hundred messages: lost, doubled, much delayed.
    pub lost: u64,
    pub doubled: u64,
    pub late: u64,
}

impl Weather {
    pub const CALM: Weather = Weather {
        lost: 0,
        doubled: 0,
        late: 0,
    };
}

/// One connection.
#[derive(Clone, Debug)]
pub struct Connection {
    pub replica: usize,
    pub primary: usize,
    pub alive: bool,
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
        });
        self.connections.len() - 1
    }

    /// Delays in microseconds at which a message sent now arrives: none, once, or twice.
    pub fn delays(&self, dice: &mut Rng) -> Vec<u64> {
        let once = |dice: &mut Rng| match dice.percent(self.weather.late) {
            true => dice.below(60_000),
            false => 100 + dice.below(900),
        };
        let roll = dice.below(100);
        if roll < self.weather.lost {
            vec![]
        } else if roll < self.weather.lost + self.weather.doubled {
            vec![once(dice), once(dice)]
        } else {
            vec![once(dice)]
        }
    }
}
