//! The walk over the records of a value in the mode `rows`: which records a delta looks at, and what it takes of each (thesis §4.3.2,
//! Algorithms 4 and 5).
//!
//! ```text
//! add        the first record, from a random one on, that has room for the amount
//! subtract   from a random record on, what each has, until the amount is collected, once around at most
//! guard      likewise without taking anything, until what was seen is enough
//! ```
//! Each record has limits of its own ([`Limits`]), chosen so that whatever the records hold, their sum lies between the bounds of the column. So a
//! walk need not know the records that it does not look at.
//!
//! The walk decides and knows neither locks nor rows: it asks for the share of a record and is told.
//!
//! Left out on purpose: upper bounds other than that of the type, which the thesis does not have.

use base::split::{Split, Units};

/// Between what the share of a record stays, in units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub low: i128,
    pub high: i128,
}

impl Limits {
    /// Whether a share lies between them.
    pub fn allow(&self, share: i128) -> bool {
        (self.low..=self.high).contains(&share)
    }
}

/// The limits of the records of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    /// Of record 0, the row.
    row: Limits,
    /// Of each further record.
    further: Limits,
}

impl Parts {
    /// `units`: those of the column, with its bounds. Without a lower bound, and above, half of the type's range is the row's and the other half that of
    /// all further records together.
    pub(crate) fn of(units: &Units, split: &Split) -> Parts {
        let most = i128::from(split.max.max(1));
        let half = |bound: i128| (bound / 2, bound / 2 / most);
        let low = match split.lower {
            Some(_) => (units.lower, 0),
            None => half(units.lower),
        };
        let high = half(units.upper);
        Parts {
            row: Limits {
                low: low.0,
                high: high.0,
            },
            further: Limits {
                low: low.1,
                high: high.1,
            },
        }
    }

    /// The limits of this record.
    pub(crate) fn limits(&self, record: u16) -> Limits {
        match record {
            0 => self.row,
            _ => self.further,
        }
    }
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The share of this record is wanted ([`Walk::saw`]).
    Look(u16),
    /// The amount is collected ([`Walk::taken`]) and the guard holds.
    Done,
    /// All records were seen and the guard does not hold.
    Refused,
    /// All records were seen, and the amount finds no room in them.
    NoRoom,
}

/// One delta on its way over the records.
#[derive(Clone, Debug)]
pub(crate) struct Walk {
    parts: Parts,
    /// How many records there are, the row among them.
    records: u16,
    start: u16,
    seen: u16,
    /// What is to be added or subtracted still.
    left: i128,
    need: Option<i128>,
    /// The sum of the shares that were seen, before anything was taken.
    total: i128,
    taken: Vec<(u16, i128)>,
}

impl Walk {
    /// Over the row and `further` records, beginning at `start`, for a delta of `amount` that needs a value of at least `need` before.
    pub(crate) fn new(
        parts: Parts,
        (further, start): (u16, u16),
        amount: i128,
        need: Option<i128>,
    ) -> Walk {
        let records = further + 1;
        Walk {
            parts,
            records,
            start: start % records,
            seen: 0,
            left: amount,
            need,
            total: 0,
            taken: vec![],
        }
    }

    /// The number of the record that is looked at after `seen` others.
    fn record(&self) -> u16 {
        (u32::from(self.start) + u32::from(self.seen)).rem_euclid(u32::from(self.records)) as u16
    }

    /// The least that the records which were not seen can hold.
    fn unseen(&self) -> i128 {
        let unseen = (self.seen..self.records).map(|seen| {
            let at = (u32::from(self.start) + u32::from(seen)) % u32::from(self.records);
            self.parts.limits(at as u16).low
        });
        unseen.sum()
    }

    pub(crate) fn step(&self) -> Step {
        let holds = |least: i128| self.need.is_none_or(|n| least >= n);
        if self.left == 0 && (self.need.is_none() || holds(self.total + self.unseen())) {
            return Step::Done;
        }
        if self.seen < self.records {
            return Step::Look(self.record());
        }
        match holds(self.total) {
            true => Step::NoRoom,
            false => Step::Refused,
        }
    }

    /// The record that was asked for holds this, what the transaction has taken before left out.
    pub(crate) fn saw(&mut self, share: i128) {
        let record = self.record();
        let limits = self.parts.limits(record);
        let room = match self.left {
            0 => 0,
            // An addition goes to one record.
            add @ 1.. if share + add <= limits.high => add,
            1.. => 0,
            sub => sub.max((limits.low - share).min(0)),
        };
        if room != 0 {
            self.taken.push((record, room));
            self.left -= room;
        }
        self.total += share;
        self.seen += 1;
    }

    /// What is added to each record, after [`Step::Done`].
    pub(crate) fn taken(&self) -> &[(u16, i128)] {
        &self.taken
    }
}

/// Chance: a number out of the transaction's and another one.
pub(super) fn mix(id: u64, n: u64) -> u64 {
    let x = id.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ n.wrapping_mul(0xd1b5_4a32_d192_ed03);
    (x ^ x >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{ColumnType, Type};
    use workload::rng::Rng;

    fn parts(lower: Option<i64>) -> (Parts, Units) {
        let split = Split {
            max: 8,
            lower,
            ..Split::default()
        };
        let ty = ColumnType {
            ty: Type::Int2,
            typmod: -1,
        };
        let units = Units::of(ty).unwrap().within(&split);
        (Parts::of(&units, &split), units)
    }

    /// Walks over these shares to the end.
    fn walk(
        shares: &[i128],
        lower: Option<i64>,
        start: u16,
        amount: i128,
        need: Option<i128>,
    ) -> (Step, Walk) {
        let further = shares.len() as u16 - 1;
        let mut w = Walk::new(parts(lower).0, (further, start), amount, need);
        loop {
            match w.step() {
                Step::Look(n) => w.saw(shares[usize::from(n)]),
                end => return (end, w),
            }
        }
    }

    #[test]
    fn a_subtraction_collects_from_one_record_after_the_other() {
        let (end, w) = walk(&[5, 0, 2, 4], Some(0), 2, -3, Some(3));
        assert_eq!((end, w.taken()), (Step::Done, &[(2, -2), (3, -1)][..]));
        // Around the ring, and not a record further than needed.
        let (end, w) = walk(&[5, 0, 2, 4], Some(0), 3, -6, None);
        assert_eq!((end, w.taken()), (Step::Done, &[(3, -4), (0, -2)][..]));
        assert_eq!(walk(&[5, 0, 2, 4], Some(0), 1, -12, None).0, Step::NoRoom);
        assert_eq!(
            walk(&[5, 0, 2, 4], Some(0), 1, -1, Some(12)).0,
            Step::Refused
        );
        let (end, w) = walk(&[5, 0, 2, 4], Some(0), 1, -1, Some(11));
        assert_eq!((end, w.taken()), (Step::Done, &[(2, -1)][..]));
    }

    #[test]
    fn an_addition_goes_to_the_first_record_with_room() {
        let (p, units) = parts(Some(0));
        let full = p.limits(1).high;
        let (end, w) = walk(&[0, full, 3], Some(0), 1, 1, None);
        assert_eq!((end, w.taken()), (Step::Done, &[(2, 1)][..]));
        assert_eq!(walk(&[0, 0], Some(0), 0, units.upper, None).0, Step::NoRoom);
    }

    /// Whatever the limits allow, the sum lies between the bounds; deltas keep the limits, and a verdict is the one that the sum has.
    #[test]
    fn random_walks_keep_the_bounds() {
        let (mut done, mut refused) = (0, 0);
        for seed in 0..2_000 {
            let mut rng = Rng::new(seed);
            let lower = [Some(0), Some(-7), Some(3), None][rng.below(4) as usize];
            let (p, units) = parts(lower);
            let further = rng.below(9) as u16;
            let start_of = |n| p.limits(n).low.max(0);
            let mut shares: Vec<i128> = (0..=further).map(start_of).collect();
            for _ in 0..40 {
                let start = rng.below(16) as u16;
                let wide = if rng.below(3) == 0 { 9_000 } else { 9 };
                let amount = i128::from(rng.between(-wide, wide));
                let sum: i128 = shares.iter().sum();
                let need = (rng.below(2) == 0).then(|| sum + i128::from(rng.between(-9, 9)));
                let (end, w) = walk(&shares, lower, start, amount, need);
                match end {
                    Step::Done => {
                        done += 1;
                        assert!(need.is_none_or(|n| sum >= n), "seed {seed}");
                        let net: i128 = w.taken().iter().map(|t| t.1).sum();
                        assert_eq!(net, amount, "seed {seed}");
                        for (n, m) in w.taken() {
                            shares[usize::from(*n)] += m;
                        }
                    }
                    Step::Refused => {
                        refused += 1;
                        assert!(need.is_some_and(|n| sum < n), "seed {seed}");
                    }
                    // A subtraction is collected wherever it can be.
                    Step::NoRoom => assert!(
                        amount > 0 || lower.is_none() || sum + amount < units.lower,
                        "seed {seed}: {shares:?} {amount}"
                    ),
                    Step::Look(_) => unreachable!("the walk has ended"),
                }
                let all = shares.iter().enumerate();
                assert!(
                    all.clone().all(|(n, s)| p.limits(n as u16).allow(*s)),
                    "seed {seed}: {shares:?}"
                );
                assert!(units.allows(shares.iter().sum()), "seed {seed}: {shares:?}");
            }
        }
        assert!(done > 20_000 && refused > 2_000, "{done} {refused}");
    }
}
