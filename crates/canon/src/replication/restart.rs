//! What a replica hears first of its primary, and why its server may have to start again.

use base::Position;
use std::fmt;

/// Why the server has to start again. `failed`: so many copies in a row did not come.
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
    pub(super) fn reason(&self) -> &'static str {
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
    /// This server has to start again now.
    StartAgain(Restart),
    /// It has to, and not yet: the last copy did not come.
    PutOff,
}
