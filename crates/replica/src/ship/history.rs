//! Where two histories part, from their terms alone.
//!
//! ```text
//! terms here    (1, 0) (6, 40)                     term 6 began after position 40
//! terms there   (1, 0)                   last 55   went on in term 1: what it has above 40 is not in the history here
//! ```
//! Positions are given by the primary of a term only, and a primary ships nothing that it can lose. So while two nodes share a term
//! (its number and its start) they share its commits, up to where the first of them left it.

use base::Position;

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

/// A number for the term after `current`: higher, and not the one that another node promoted at the same time would draw. The
/// upper 48 bits count generations, the lower 16 are dice.
pub fn next_term(current: u64, dice: u64) -> u64 {
    ((current >> 16) + 1) << 16 | (dice & 0xffff)
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
    fn terms_grow_and_differ() {
        let first = next_term(1, 7);
        assert!(first > 1);
        assert!(next_term(first, 0) > first);
        assert_ne!(next_term(first, 3), next_term(first, 4));
    }
}
