//! Where two histories part, from their terms alone.
//!
//! ```text
//! terms here    (1, 0) (6, 40)                     term 6 began after position 40
//! terms there   (1, 0)                   last 55   went on in term 1: what it has above 40 is not in the history here
//! ```
//! Positions are given by the primary of a term only, and a primary ships nothing that it can lose. So while two nodes share a term
//! (its number and its start) they share its commits, up to where the first of them left it.

use base::{MAX_TERM, Position};

/// Terms of a history: (term, last position before it), ascending.
pub type Terms = [(u64, Position)];

/// Everything at or below it that both histories hold is the same; `MAX` when neither has left the other.
pub fn fork(here: &Terms, there: &Terms) -> Position {
    let common = here.iter().zip(there).take_while(|(a, b)| a == b).count();
    if common == 0 {
        return Position::ZERO;
    }
    let end = |terms: &Terms| terms.get(common).map_or(Position::MAX, |t| t.1);
    end(here).min(end(there))
}

/// The term that a position of this history belongs to: the newest that began below it. Of two nodes the one whose last position
/// is of the newer term, or, in one term, has the higher position, holds the newest history. (Its list of terms alone says only of what it has heard.)
pub fn term_at(terms: &Terms, at: Position) -> u64 {
    let began = terms.iter().rev().find(|(_, start)| *start < at);
    began.or(terms.first()).map_or(0, |t| t.0)
}

/// A number for the term that begins now, after `current`: higher, and higher than those of terms that began elsewhere before, which
/// this node has perhaps not heard of; and not the one that another node draws at the same moment. So the upper 48 bits are
/// the civil time in milliseconds (or the next number, where clocks disagree), the lower 16 are dice. None: terms are used up ([`MAX_TERM`]).
pub fn next_term(current: u64, now_micros: i64, dice: u64) -> Option<u64> {
    let now = u64::try_from(now_micros).unwrap_or(0) / 1_000;
    // A clock that shows a year beyond all terms counts for nothing.
    let now = Some(now).filter(|n| *n <= MAX_TERM >> 16).unwrap_or(0);
    let generation = now.max((current >> 16) + 1);
    let fits = generation <= MAX_TERM >> 16;
    let term = fits.then_some((generation << 16) | (dice & 0xffff))?;
    (term > current && term <= MAX_TERM).then_some(term)
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    fn p(n: u32) -> Position {
        Position::new(1, n)
    }

    #[test]
    fn histories_part_where_the_first_left_the_common_term() {
        let one = [(1, Position::ZERO)];
        let six = [(1, Position::ZERO), (6, p(40))];
        let seven = [(1, Position::ZERO), (7, p(30))];
        let later = [(1, Position::ZERO), (6, p(40)), (8, p(60))];
        assert_eq!(fork(&one, &one), Position::MAX);
        assert_eq!(fork(&six, &one), p(40));
        assert_eq!(fork(&one, &six), p(40));
        assert_eq!(fork(&six, &seven), p(30));
        assert_eq!(fork(&six, &later), p(60));
        assert_eq!(fork(&seven, &later), p(30));
        assert_eq!(fork(&later, &later), Position::MAX);
        assert_eq!(fork(&one, &[(2, Position::ZERO)]), Position::ZERO);
        assert_eq!(fork(&[], &one), Position::ZERO);
    }

    #[test]
    fn the_same_number_with_another_start_is_another_term() {
        let a = [(1, Position::ZERO), (6, p(40))];
        let b = [(1, Position::ZERO), (6, p(20))];
        assert_eq!(fork(&a, &b), p(20));
    }

    #[test]
    fn a_position_is_of_the_newest_term_below_it() {
        let terms = [(1, Position::ZERO), (6, p(40)), (7, p(40)), (8, p(60))];
        let of = |n| term_at(&terms, p(n));
        assert_eq!((of(1), of(40), of(41), of(60), of(61)), (1, 1, 7, 7, 8));
        assert_eq!(term_at(&terms, Position::ZERO), 1);
        assert_eq!(term_at(&[], p(1)), 0);
    }

    #[test]
    fn terms_grow_and_differ() {
        let first = next_term(1, 5_000, 7).expect("a term");
        assert!(first > 1);
        assert!(
            next_term(first, 0, 0) > Some(first),
            "a clock that went back"
        );
        assert!(
            next_term(1, 6_000, 0) > Some(first),
            "one that knows of no other"
        );
        assert_ne!(next_term(1, 5_000, 3), next_term(1, 5_000, 4));
    }

    #[test]
    fn terms_end_and_do_not_wrap() {
        let last = MAX_TERM - (1 << 16);
        assert!(next_term(last, 0, 0).is_some_and(|t| t > last && t <= MAX_TERM));
        assert_eq!(next_term(MAX_TERM - 1, 0, 1), None);
        for current in [MAX_TERM, MAX_TERM + 1, u64::MAX - 1, u64::MAX] {
            for dice in [0, 1, u64::MAX] {
                assert_eq!(next_term(current, 0, dice), None, "{current}");
            }
        }
        assert_eq!(
            next_term(1, i64::MAX, 0),
            Some(1 << 16),
            "a clock of rubbish"
        );
    }
}
