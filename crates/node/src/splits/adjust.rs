//! Adjust: how many further records a split value has (thesis §4.3.3, Algorithms 7 to 9).
//!
//! | | |
//! |---|---|
//! | many commits wait (more than `goal`) | more records, up to the column's `split_max` |
//! | few do (less than `least`), or there are no deltas | fewer, down to `split_min` |
//! | a value with deltas has fewer than `split_min` | it gets them |
//!
//! In the mode `rows` a value also gets no more records than it has units to fill each with [`Policy::floor`] of them.
//!
//! The thesis's worker removes `max(-(1 + n * rate), max - n)`, which is never below zero; here the minimum takes the place of the maximum.
//!
//! Left out on purpose: the floor for the other mode. Its bounds belong to the sum, so a record that holds nothing refuses nothing.

use std::str::FromStr;
use txn::SplitValue;

/// How many records are added or removed at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Adjust {
    /// One.
    Binary,
    /// As many as there are, times the share of commits that waited.
    #[default]
    Linear,
    /// The same squared.
    Quadratic,
}

impl FromStr for Adjust {
    type Err = ();

    fn from_str(name: &str) -> Result<Adjust, ()> {
        match name {
            "binary" => Ok(Adjust::Binary),
            "linear" => Ok(Adjust::Linear),
            "quadratic" => Ok(Adjust::Quadratic),
            _ => Err(()),
        }
    }
}

/// What the number of records follows.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    pub adjust: Adjust,
    /// The share of commits that may wait.
    pub goal: f64,
    /// Below this share, records are removed.
    pub least: f64,
    /// In the mode `rows`, the least average of what the records of a value have, in units.
    pub floor: i128,
}

impl Default for Policy {
    fn default() -> Self {
        Policy {
            adjust: Adjust::Linear,
            goal: 0.05,
            least: 0.01,
            floor: 4,
        }
    }
}

impl Policy {
    /// The number of records for a value that has `now` of them, when the share `rate` of its commits waited: from `min` to `max`.
    pub fn records(&self, rate: f64, now: u16, (min, max): (u16, u16)) -> u16 {
        // A value without further records has one.
        let n = f64::from(now.max(1));
        let step = match self.adjust {
            Adjust::Binary => 1.0,
            Adjust::Linear => 1.0 + n * rate,
            Adjust::Quadratic => 1.0 + (n * rate) * (n * rate),
        };
        // Few commits wait when records go, so the share says little: an eighth.
        let fewer = match self.adjust {
            Adjust::Binary => 1,
            _ => 1 + now / 8,
        };
        let to = if rate > self.goal {
            now.saturating_add(step.min(f64::from(u16::MAX)) as u16)
        } else if rate < self.least {
            now.saturating_sub(fewer)
        } else {
            now
        };
        to.clamp(min.min(max), max)
    }

    /// How many further records a value may have of which each shall have [`Policy::floor`] on average; `max` in the mode that needs no floor.
    pub(super) fn most(&self, v: &SplitValue) -> u16 {
        let Some(shares) = &v.shares else {
            return v.most;
        };
        // A counter without a lower bound has enough for all.
        let have: i128 = shares.iter().map(|s| s.share - s.limits.low).sum();
        let records = (have / self.floor).clamp(1, i128::from(u16::MAX)) as u16;
        v.most.min((records - 1).max(v.least))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(adjust: Adjust) -> Policy {
        Policy {
            adjust,
            ..Policy::default()
        }
    }

    #[test]
    fn records_follow_the_share_of_commits_that_wait() {
        let p = policy(Adjust::Linear);
        assert_eq!(p.records(0.5, 0, (0, 64)), 1);
        assert_eq!(p.records(0.5, 8, (0, 64)), 13);
        assert_eq!(p.records(1.0, 60, (0, 64)), 64);
        assert_eq!(p.records(0.03, 8, (0, 64)), 8);
        assert_eq!(p.records(0.0, 64, (0, 64)), 55);
        assert_eq!(p.records(0.0, 1, (0, 64)), 0);
        assert_eq!(p.records(0.0, 0, (4, 64)), 4);
        assert_eq!(p.records(0.0, 5, (4, 64)), 4);
        assert_eq!(p.records(0.0, 2, (9, 3)), 3);
        assert_eq!(policy(Adjust::Binary).records(1.0, 8, (0, 64)), 9);
        assert_eq!(policy(Adjust::Binary).records(0.0, 8, (0, 64)), 7);
        assert_eq!(policy(Adjust::Quadratic).records(0.5, 8, (0, 64)), 25);
    }

    /// The thesis's simulation, roughly: the share that waits falls as records are added, and the number settles between the two bounds.
    #[test]
    fn the_number_settles() {
        for adjust in [Adjust::Binary, Adjust::Linear, Adjust::Quadratic] {
            let p = policy(adjust);
            let rate = |n: u16| 0.8 / f64::from(n.max(1));
            let mut n = 0;
            for _ in 0..60 {
                n = p.records(rate(n), n, (0, 64));
            }
            assert!(rate(n) <= p.goal && rate(n) >= p.least, "{adjust:?}: {n}");
            assert_eq!(p.records(rate(n), n, (0, 64)), n);
            // The load goes: so do the records.
            for _ in 0..64 {
                n = p.records(0.0, n, (0, 64));
            }
            assert_eq!(n, 0);
        }
    }
}
