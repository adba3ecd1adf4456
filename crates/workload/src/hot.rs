//! Hot: many clients decrement one row while there is stock; nothing is sold twice or lost.
//!
//! A decrement has three outcomes: acknowledged, refused (nothing left), or unknown (the
//! connection broke before the answer). At the end the stock must be the initial one less all
//! acknowledged decrements and less some number between none and all of the unknown ones.
//!
//! Left out on purpose: speed. The same row, split over many records, is a later workload.

/// What the clients of one run learned, added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Decrements that the database acknowledged.
    pub sold: i64,
    /// Decrements that the database answered with "no row".
    pub refused: i64,
    /// Decrements without an answer.
    pub unknown: i64,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.sold += other.sold;
        self.refused += other.refused;
        self.unknown += other.unknown;
    }
}

/// Checks the stock at the end against what was acknowledged.
pub fn check(initial: i64, end: i64, tally: Tally) -> Result<(), String> {
    if end < 0 {
        return Err(format!("oversold: {end} left"));
    }
    let (most, least) = (initial - tally.sold, initial - tally.sold - tally.unknown);
    if end > most {
        return Err(format!(
            "lost: {end} left, at most {most} expected after {tally:?}"
        ));
    }
    if end < least {
        return Err(format!(
            "sold twice: {end} left, at least {least} expected after {tally:?}"
        ));
    }
    if tally.refused > 0 && end > 0 {
        return Err(format!("refused {} with {end} left", tally.refused));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_outcomes_stay_unknown() {
        let tally = Tally {
            sold: 5,
            refused: 0,
            unknown: 2,
        };
        for end in 3..=5 {
            check(10, end, tally).unwrap();
        }
        assert!(check(10, 6, tally).unwrap_err().starts_with("lost"));
        assert!(check(10, 2, tally).unwrap_err().starts_with("sold twice"));
    }

    #[test]
    fn no_oversell_and_no_refusal_with_stock() {
        assert!(
            check(
                3,
                -1,
                Tally {
                    sold: 4,
                    refused: 0,
                    unknown: 0
                }
            )
            .is_err()
        );
        assert!(
            check(
                3,
                1,
                Tally {
                    sold: 2,
                    refused: 1,
                    unknown: 0
                }
            )
            .is_err()
        );
        check(
            3,
            0,
            Tally {
                sold: 3,
                refused: 9,
                unknown: 0,
            },
        )
        .unwrap();
    }
}
