//! What one copy has promised: under which term it was asked last, and so from which leaders it still takes records.
//!
//! A copy that testifies under a term stops to acknowledge records of every lower one, *before* it answers. With `R - N + 1` such answers at most `N - 1` copies are left
//! to acknowledge for the old leader, so no further commit of it can come to be acknowledged. That holds without clocks.
//!
//! The leader of a lower term that is asked stops to acknowledge to its clients, too, before it answers. So its answer covers all that it acknowledged.
//!
//! A promise is on the disk before it is answered, and so is the log up to the [`End`] that the answer names. A promise that was forgotten would let one copy
//! count on both sides.
//!
//! Left out on purpose: the disk. The caller writes what [`Standing::asked`] returns.

use serde::{Deserialize, Serialize};

/// Where a copy's log ends. Later terms come first, then positions: of two copies the greater one has all that was ever acknowledged, if either of them has.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct End {
    /// The last term whose beginning this copy has, with or without a record of that term. The term of the last record would not do: a leader of term 3 may
    /// have acknowledged records that an earlier term wrote, and a copy with those has to come before one with unacknowledged records of term 2.
    pub term: u64,
    /// The position of the last record.
    pub position: u64,
}

/// What a copy that has promised says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Testimony {
    /// Where its log ends.
    #[serde(flatten)]
    pub end: End,
    /// It has all that its primary had published so many milliseconds ago, by its own clock. None: that is not known, as in the first moments after a start.
    #[serde(default)]
    pub age: Option<u64>,
    /// It was named, and so many tries to begin its term have failed. None has succeeded since.
    #[serde(default)]
    pub failed: u32,
}

impl From<End> for Testimony {
    fn from(end: End) -> Testimony {
        Testimony {
            end,
            age: None,
            failed: 0,
        }
    }
}

/// What a copy says when it is asked under a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// It has promised the term.
    Promised(Testimony),
    /// It knows of this later term, which the members may not have agreed on: a promotion by hand draws one far above theirs.
    Later(u64),
}

/// The promise of one copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    promised: u64,
}

impl Standing {
    /// As it was written.
    pub fn new(promised: u64) -> Standing {
        Standing { promised }
    }

    /// The highest term under which this copy was asked, or that it followed.
    pub fn promised(self) -> u64 {
        self.promised
    }

    /// The copy is asked under a term: what to write before the answer leaves. `None`: the question is late, there is no answer.
    pub fn asked(self, term: u64) -> Option<Standing> {
        (term >= self.promised).then_some(Standing { promised: term })
    }

    /// Whether records of the leader of this term are taken and acknowledged.
    pub fn takes(self, term: u64) -> bool {
        term >= self.promised
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_only_grows() {
        let standing = Standing::new(4).asked(6).expect("a later term");
        assert_eq!(standing.promised(), 6);
        assert_eq!(standing.asked(5), None);
        assert_eq!(standing.asked(6), Some(standing), "asked again");
        assert!(!standing.takes(5) && standing.takes(6) && standing.takes(7));
    }

    #[test]
    fn a_later_term_comes_before_a_further_position() {
        let older = End {
            term: 2,
            position: 90,
        };
        let newer = End {
            term: 3,
            position: 4,
        };
        assert!(newer > older);
    }
}
