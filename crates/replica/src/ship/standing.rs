//! How another node stands to a primary, from two histories: behind it, ahead of it in a term that both share, or parted from it.
//!
//! ```text
//! here    (1, 0) (6, 40)   ends at 50     lives: went on at 900 after 50
//! there   (1, 0) (6, 40)   last 45        Behind: it is sent what it misses
//! there   (1, 0) (6, 40)   last 55        Ahead: it holds what was lost here, also when this log has grown to 920 since
//! there   (1, 0)           last 55        Parted: term 6 began after 40, and cut off what is above
//! ```
//! A primary ships nothing that it can lose. So a replica that holds more of the primary's own term than the primary is the proof that the
//! primary has lost log, and what it lost may have been acknowledged: the primary must not serve, and the replica must not give way. Only
//! a term that began elsewhere cuts anything off: a forced promotion, or a shorter log that an operator has accepted.
//!
//! Left out on purpose: who asks, and whether the answer is to be believed.

use super::history::{Terms, fork, term_at};
use base::Position;
use wal::Life;

/// A primary's history and where its log ends.
#[derive(Clone, Copy, Debug)]
pub struct Ours<'a> {
    pub terms: &'a Terms,
    /// Where it went on after each start.
    pub lives: &'a [Life],
    pub last: Position,
}

/// How another node stands to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stands {
    /// All that it has of this history is here.
    Behind,
    /// It holds `theirs` of a history that both share, and here nothing is left of it above `ours`.
    Ahead { ours: Position, theirs: Position },
    /// What it holds above `at` is not of this history.
    Parted { at: Position },
}

/// How a node with these terms and this last position stands to the primary.
pub fn stands(ours: Ours<'_>, terms: &Terms, last: Position) -> Stands {
    let fork = fork(ours.terms, terms);
    let shared = fork.min(last);
    if shared > ours.last {
        return Stands::Ahead {
            ours: ours.last,
            theirs: shared,
        };
    }
    // What this primary skipped when it came back belongs to the life before, if no other term began there.
    let lost = ours.lives.iter().find(|l| {
        l.end < shared && shared < l.first && term_at(ours.terms, l.end.next()) == l.term
    });
    match lost {
        Some(life) => Stands::Ahead {
            ours: life.end,
            theirs: shared,
        },
        None if last > fork => Stands::Parted { at: fork },
        None => Stands::Behind,
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    fn p(n: u32) -> Position {
        Position::new(1, n)
    }

    const LATE: Position = Position::from_u64(900 << 24);

    fn life(term: u64) -> Life {
        Life {
            term,
            end: p(50),
            first: LATE,
        }
    }

    #[test]
    fn who_holds_more_of_the_same_term_is_ahead() {
        let terms = [(1, Position::ZERO), (6, p(40))];
        let ours = Ours {
            terms: &terms,
            lives: &[],
            last: p(50),
        };
        assert_eq!(stands(ours, &terms, p(50)), Stands::Behind);
        assert_eq!(stands(ours, &terms, p(7)), Stands::Behind);
        let ahead = |ours, theirs| Stands::Ahead { ours, theirs };
        assert_eq!(stands(ours, &terms, p(55)), ahead(p(50), p(55)));
        // It follows a newer term; what it has of ours is what we lack.
        let newer = [(1, Position::ZERO), (6, p(40)), (7, p(53))];
        assert_eq!(stands(ours, &newer, p(70)), ahead(p(50), p(53)));
    }

    #[test]
    fn what_a_term_has_cut_off_is_parted_and_no_more() {
        let terms = [(1, Position::ZERO), (6, p(40))];
        let ours = |last| Ours {
            terms: &terms,
            lives: &[],
            last,
        };
        let old = [(1, Position::ZERO)];
        let parted = Stands::Parted { at: p(40) };
        assert_eq!(stands(ours(p(50)), &old, p(55)), parted);
        assert_eq!(stands(ours(p(50)), &old, p(40)), Stands::Behind);
        // The primary has lost what came before its term began: that is not cut off.
        let lost = Stands::Ahead {
            ours: p(35),
            theirs: p(40),
        };
        assert_eq!(stands(ours(p(35)), &old, p(55)), lost);
    }

    #[test]
    fn a_primary_that_has_written_again_has_not_passed_who_was_ahead() {
        let terms = [(1, Position::ZERO)];
        let later = LATE.next();
        let lives = [life(1)];
        let ours = Ours {
            terms: &terms,
            lives: &lives,
            last: later,
        };
        let ahead = Stands::Ahead {
            ours: p(50),
            theirs: p(55),
        };
        assert_eq!(stands(ours, &terms, p(55)), ahead);
        for fine in [p(50), LATE, later, p(1)] {
            assert_eq!(stands(ours, &terms, fine), Stands::Behind);
        }
        // Another term began there: its primary gave other positions.
        let accepted = [(1, Position::ZERO), (9, p(50))];
        let ours = Ours {
            terms: &accepted,
            ..ours
        };
        assert_eq!(stands(ours, &terms, p(55)), Stands::Parted { at: p(50) });
        assert_eq!(stands(ours, &accepted, p(55)), Stands::Behind);
    }
}
