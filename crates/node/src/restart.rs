//! Why a replica's node has to start again, what it hears first of its primary, and how long it has patience.
//!
//! A node follows over an open database. Two things cannot be done there: a copy of the primary's database, and setting aside what the cluster's
//! history does not have. For these the node ends, [`crate::copying`] does the work over the directory alone, and the node starts again.
//!
//! Left out on purpose: who stops the node and starts it.

use base::Position;
use std::fmt;
use std::time::Duration;

/// Why the node has to start again. `failed`: so many copies in a row did not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// The primary's log no longer reaches back to us.
    Bootstrap { failed: u32 },
    /// What is here above `at` is not part of the history of `term`.
    Diverged {
        at: Position,
        term: u64,
        failed: u32,
    },
    /// It was to be promoted, follows nothing any more, and does not lead.
    Stranded,
}

impl Restart {
    /// What is to be said when it is put off.
    pub fn reason(&self) -> &'static str {
        match self {
            Restart::Bootstrap { .. } => "the primary's log no longer reaches back to this replica",
            Restart::Diverged { .. } => "the primary's history does not have all that is here",
            Restart::Stranded => "this replica could not be promoted",
        }
    }
}

impl fmt::Display for Restart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Restart::Bootstrap { .. } => write!(
                f,
                "the primary's log no longer reaches back to this replica: it is copied anew"
            ),
            Restart::Stranded => write!(f, "this replica could not be promoted: it follows again"),
            Restart::Diverged { at, term, .. } => write!(
                f,
                "this node has commits above {at} that the history of term {term} does not have: they are set aside"
            ),
        }
    }
}

/// The first answer of the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// The histories agree, and the log flows.
    Agreed,
    /// This node has to start again now.
    StartAgain(Restart),
    /// It has to, and not yet: the last copy did not come.
    PutOff,
    /// There is none: the primary does not answer.
    Silent,
}

/// How long a replica waits for what.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// For the primary's first word, before the node shows what it has by itself.
    pub first_word: Duration,
    /// Before a copy is begun again after one that did not come. Each time it doubles, up to 16 times this.
    pub copy: Duration,
    /// Tries of one copy before a node that has a database goes on with that.
    pub tries: u32,
    /// Between these tries.
    pub between: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience {
            first_word: Duration::from_secs(10),
            copy: Duration::from_secs(60),
            tries: 10,
            between: Duration::from_millis(500),
        }
    }
}

impl Patience {
    /// Before another copy is begun when so many in a row did not come.
    pub(crate) fn before_copy(&self, failed: u32) -> Duration {
        match failed.checked_sub(1) {
            None => Duration::ZERO,
            Some(n) => self.copy * (1 << n.min(4)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_that_do_not_come_are_begun_ever_later() {
        let patience = Patience::default();
        let all = [0, 1, 2, 3, 4, 5, 6, u32::MAX].map(|n| patience.before_copy(n).as_secs());
        assert_eq!(all, [0, 60, 120, 240, 480, 960, 960, 960]);
    }
}
