//! Fuzz targets: decoders fed with bytes that nobody wrote.
//!
//! A target takes any bytes, must not panic, and says whether the decoder accepted them. What it accepts it reads to the end,
//! and checks that writing it again gives the same. `cargo xtask fuzz TARGET` runs one under libFuzzer, guided by coverage;
//! [`mutate`] drives all of them a little in the ordinary tests, from seeds that are accepted, so that they cannot rot.
//!
//! | target | decoder |
//! |---|---|
//! | `row` | `base::row`: a row of a layout that the first bytes choose |
//! | `log` | `wal::Group` and `base::record`: a flush group, its commits and their records |
//! | `schema` | `base::schema`: changes of the schema as the log holds them |
//! | `ship` | `replica::ship::Message`: what primary and replica say to each other |
//! | `peers` | `replica::ship::{Sender, Receiver}` in every state of their terms: what a hostile end may bring about |
//! | `proof` | `replica::proof`: what two nodes prove to each other |
//! | `region` | `replica::read`: words of the primary that a replica asks for, and what comes back |
//! | `wire` | `protocol::frontend`: a client's messages |
//! | `login` | `protocol::scram`: what a client says to prove its password |
//! | `certificate` | `protocol::certificate`: what a certificate says |
//! | `consensus` | `cluster::consensus`: the file of its log, and what its members say to each other |
//! | `words` | `cluster::question`: what nodes ask each other that may be no members |
//! | `questions` | `cluster::{word, Answer}`, and the deciders behind them: leases, proposals, what a fail-over asks and is answered |
//! | `certify` | `node::site_words`: what a site and its primary say to each other, and `base::Candidate` |
//!
//! Checksums would turn every mutation away, so `log` and `consensus` put right ones on a part of their inputs.
//! Left out on purpose: files (the tests of `wal` damage those) and SQL text.

mod certify;
mod cluster;
mod log;
mod login;
mod peers;
mod proof;
mod region;
mod row;
mod schema;
mod ship;
mod wire;

/// A decoder under test: `run` is true if it accepted the bytes.
pub struct Target {
    pub name: &'static str,
    pub run: fn(&[u8]) -> bool,
    /// Inputs that are accepted, to start from.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

pub const TARGETS: &[Target] = &[
    Target {
        name: "row",
        run: row::run,
        seeds: row::seeds,
    },
    Target {
        name: "log",
        run: log::run,
        seeds: log::seeds,
    },
    Target {
        name: "schema",
        run: schema::run,
        seeds: schema::seeds,
    },
    Target {
        name: "ship",
        run: ship::run,
        seeds: ship::seeds,
    },
    Target {
        name: "peers",
        run: peers::run,
        seeds: peers::seeds,
    },
    Target {
        name: "proof",
        run: proof::run,
        seeds: proof::seeds,
    },
    Target {
        name: "region",
        run: region::run,
        seeds: region::seeds,
    },
    Target {
        name: "wire",
        run: wire::run,
        seeds: wire::seeds,
    },
    Target {
        name: "login",
        run: login::login,
        seeds: login::logins,
    },
    Target {
        name: "certificate",
        run: login::certificate,
        seeds: login::certificates,
    },
    Target {
        name: "consensus",
        run: cluster::consensus,
        seeds: cluster::consensus_seeds,
    },
    Target {
        name: "words",
        run: cluster::words,
        seeds: cluster::words_seeds,
    },
    Target {
        name: "questions",
        run: cluster::questions,
        seeds: cluster::questions_seeds,
    },
    Target {
        name: "certify",
        run: certify::run,
        seeds: certify::seeds,
    },
];

/// The target of this name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|t| t.name == name)
}

/// Small numbers without a generator to depend on (xorshift64).
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n.max(1) as u64) as usize
    }
}

/// Changes a few places: bits, bytes, numbers at the edge, cuts, doublings.
pub fn mutate(bytes: &mut Vec<u8>, dice: &mut Dice) {
    for _ in 0..=dice.below(3) {
        let at = dice.below(bytes.len());
        match dice.below(6) {
            0 if !bytes.is_empty() => bytes[at] ^= 1 << dice.below(8),
            1 if !bytes.is_empty() => bytes[at] = dice.below(256) as u8,
            2 => {
                let edges = [0u64, 1, 127, 128, 255, 65_535, 1 << 31, u64::MAX];
                let width = [1, 2, 4, 8][dice.below(4)];
                let edge = edges[dice.below(edges.len())].to_le_bytes();
                for (to, from) in bytes[at..].iter_mut().zip(&edge[..width]) {
                    *to = *from;
                }
            }
            3 => bytes.truncate(at),
            4 => {
                let end = at + dice.below(bytes.len() - at);
                bytes.extend_from_within(at..end);
            }
            _ => bytes.insert(at, dice.below(256) as u8),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_accepted() {
        for target in TARGETS {
            let seeds = (target.seeds)();
            assert!(!seeds.is_empty(), "{}", target.name);
            for (i, seed) in seeds.iter().enumerate() {
                assert!((target.run)(seed), "{}: seed {i}", target.name);
            }
        }
    }

    #[test]
    fn mutations_reach_both_ends_of_every_target() {
        for target in TARGETS {
            let (mut dice, mut accepted) = (Dice(7), 0);
            const TRIES: usize = 20_000;
            for seed in (target.seeds)().iter().cycle().take(TRIES) {
                let mut bytes = seed.clone();
                mutate(&mut bytes, &mut dice);
                accepted += usize::from((target.run)(&bytes));
            }
            let name = target.name;
            assert!(
                accepted > 0 && accepted < TRIES,
                "{name}: {accepted} accepted"
            );
        }
    }
}
