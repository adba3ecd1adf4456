//! Balance: which parts of a value move from which record to which, in the mode `rows` (thesis §4.3.4).
//!
//! A stock is sold in units and filled up in thousands, so most records come to hold nothing and one holds all. Deltas then walk, and meet at that one.
//!
//! | policy | moves at each look |
//! |---|---|
//! | `minmax` | half of the difference, from the record that has most to the one that has least |
//! | `random` | the same between two records that chance takes |
//! | `all` | what makes all records alike, in one commit |
//! | `none` | nothing |
//!
//! What a record *has* is what a subtraction may take of it: its share above the least that it may hold.
//!
//! The decision is a pure function of what the records hold. The step takes what is free and gives up where a record is locked
//! ([`txn::Txn::balance_value`]), so it makes no user's transaction wait for long.
//!
//! Left out on purpose: the other mode, whose bounds belong to the sum. Where a unit lies refuses nothing there.

use std::str::FromStr;
use txn::{Move, Share};

/// How the records of a value are balanced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    #[default]
    Minmax,
    Random,
    All,
    None,
}

impl FromStr for Balance {
    type Err = ();

    fn from_str(name: &str) -> Result<Balance, ()> {
        match name {
            "minmax" => Ok(Balance::Minmax),
            "random" => Ok(Balance::Random),
            "all" => Ok(Balance::All),
            "none" => Ok(Balance::None),
            _ => Err(()),
        }
    }
}

/// What a subtraction may take of the record.
fn has(s: &Share) -> i128 {
    s.share - s.limits.low
}

/// Makes two records alike, as far as the limit of the one that gets it allows.
fn level(shares: &[Share], (a, b): (usize, usize)) -> Option<Move> {
    let (from, to) = match has(&shares[a]) >= has(&shares[b]) {
        true => (a, b),
        false => (b, a),
    };
    let half = (has(&shares[from]) - has(&shares[to])) / 2;
    let room = shares[to].limits.high - shares[to].share;
    let amount = half.min(room);
    (amount > 0).then_some(Move {
        from: from as u16,
        to: to as u16,
        amount,
    })
}

/// What makes all records alike, but for one unit.
fn level_all(shares: &[Share]) -> Vec<Move> {
    let n = shares.len() as i128;
    let sum: i128 = shares.iter().map(has).sum();
    let (each, more) = (sum.div_euclid(n), sum.rem_euclid(n));
    let wanted = |i: usize| each + i128::from((i as i128) < more);
    // What each record has too much of, or, below 0, can and shall get.
    let over = shares.iter().enumerate().map(|(i, s)| {
        let room = (s.limits.high - s.share).max(0);
        (has(s) - wanted(i)).max(-room)
    });
    let mut over: Vec<i128> = over.collect();
    let mut moves = vec![];
    for from in 0..over.len() {
        for to in 0..over.len() {
            let amount = over[from].min(-over[to]);
            if amount > 0 {
                over[from] -= amount;
                over[to] += amount;
                moves.push(Move {
                    from: from as u16,
                    to: to as u16,
                    amount,
                });
            }
        }
    }
    moves
}

impl Balance {
    /// The moves of one step for a value with these records; `chance` is any number.
    pub fn moves(self, shares: &[Share], chance: u64) -> Vec<Move> {
        let n = shares.len();
        if n < 2 {
            return vec![];
        }
        let pair = match self {
            Balance::None => return vec![],
            Balance::All => return level_all(shares),
            Balance::Minmax => {
                let place = |i: &usize| has(&shares[*i]);
                let most = (0..n).max_by_key(place).expect("two at least");
                let least = (0..n).min_by_key(place).expect("two at least");
                (most, least)
            }
            Balance::Random => {
                let a = (chance % n as u64) as usize;
                let step = 1 + (chance / n as u64 % (n as u64 - 1)) as usize;
                (a, (a + step) % n)
            }
        };
        level(shares, pair).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use txn::Limits;
    use workload::rng::Rng;

    fn shares(all: &[i128]) -> Vec<Share> {
        let share = |(i, s): (usize, &i128)| Share {
            share: *s,
            limits: Limits {
                low: if i == 0 { 5 } else { 0 },
                high: 1_000,
            },
        };
        all.iter().enumerate().map(share).collect()
    }

    fn apply(all: &mut [Share], moves: &[Move]) {
        for m in moves {
            all[usize::from(m.from)].share -= m.amount;
            all[usize::from(m.to)].share += m.amount;
        }
    }

    #[test]
    fn each_policy_moves_what_it_says() {
        let all = shares(&[105, 0, 40, 10]);
        let one = |from, to, amount| vec![Move { from, to, amount }];
        assert_eq!(Balance::Minmax.moves(&all, 7), one(0, 1, 50));
        // Two by chance, the fuller one gives.
        assert_eq!(Balance::Random.moves(&all, 2), one(2, 3, 15));
        assert_eq!(Balance::None.moves(&all, 7), vec![]);
        let mut level = all.clone();
        apply(&mut level, &Balance::All.moves(&all, 7));
        let level: Vec<i128> = level.iter().map(has).collect();
        assert_eq!(level, [38, 38, 37, 37]);
        // Nothing to do, and nothing to do it with.
        assert_eq!(Balance::Minmax.moves(&shares(&[6, 0]), 7), vec![]);
        assert_eq!(Balance::All.moves(&shares(&[105]), 7), vec![]);
        // The room of the record that gets it counts.
        let mut full = all;
        full[1].limits.high = 3;
        assert_eq!(Balance::Minmax.moves(&full, 7), one(0, 1, 3));
    }

    /// No policy changes a sum or breaks a limit, whatever chance says, and each comes to rest with records that are alike.
    #[test]
    fn records_come_to_be_alike_and_their_sum_stays() {
        for seed in 0..600 {
            let mut rng = Rng::new(seed);
            let n = rng.between(2, 20) as usize;
            let amounts: Vec<i128> = (0..n).map(|_| 5 + i128::from(rng.below(400))).collect();
            let mut all = shares(&amounts);
            let sum: i128 = amounts.iter().sum();
            let policy = [Balance::Minmax, Balance::Random, Balance::All][(seed % 3) as usize];
            for _ in 0..4_000 {
                let moves = policy.moves(&all, rng.next_u64());
                apply(&mut all, &moves);
                let fits = |s: &Share| s.limits.allow(s.share);
                assert!(all.iter().all(fits), "{policy:?}, seed {seed}: {all:?}");
                assert_eq!(all.iter().map(|s| s.share).sum::<i128>(), sum);
            }
            let (most, least) = (all.iter().map(has).max(), all.iter().map(has).min());
            let apart = most.zip(least).map(|(a, b)| a - b);
            assert!(apart <= Some(2), "{policy:?}, seed {seed}: {all:?}");
        }
    }
}
