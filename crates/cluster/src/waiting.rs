//! How many replicas the primary waits for, and what it tells the consensus about that.
//!
//! ```text
//! commits wait longer than degrade_after --> Propose(Degrade) --> applied: wait for fewer
//! enough replicas are back               --> Propose(Restore) --> applied: wait for all that are wanted
//! enough hold all that was acknowledged  --> Propose(Covered)
//! ```
//! The primary waits for what the catalogue says that it has applied. So a number that falls has fallen in the consensus first, and a fail-over that looks there knows that
//! replicas may lack commits.
//!
//! Left out on purpose: which positions the replicas hold. That is `commit::Quorum`'s.

use crate::catalogue::{Catalogue, Command};

/// The primary's decider for one term.
#[derive(Clone, Debug)]
pub struct Waiting {
    term: u64,
    /// Since when commits have waited, in nanoseconds of this node's clock.
    since: Option<u64>,
}

/// What the primary sees of its replicas.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// A commit waits for replicas.
    pub waits: bool,
    /// How many replicas hold all that was ever acknowledged, by this leader and by those before it.
    pub hold_all: usize,
    /// For how many replicas commits wait here now.
    pub waited: usize,
}

impl Waiting {
    /// A primary begins this term.
    pub fn new(term: u64) -> Waiting {
        Waiting { term, since: None }
    }

    /// How many replicas a commit waits for.
    pub fn wanted(&self, catalogue: &Catalogue, now: u64) -> usize {
        if env::fault::planted("degrade.before_raft") && self.is_over(catalogue, now) {
            return 0;
        }
        catalogue.wanted()
    }

    /// What to propose now. Called whenever replicas have acknowledged, and from time to time.
    pub fn tick(&mut self, catalogue: &Catalogue, seen: Seen, now: u64) -> Option<Command> {
        if !seen.waits {
            self.since = None;
        } else if self.since.is_none() {
            self.since = Some(now);
        }
        if self.is_over(catalogue, now) && catalogue.wanted() > 0 {
            return Some(Command::Degrade {
                term: self.term,
                wanted: 0,
            });
        }
        if catalogue.degraded() {
            let enough = seen.hold_all >= catalogue.meant().max(1);
            return enough.then_some(Command::Restore);
        }
        // What later commits do not wait for yet is not promised.
        let by = seen.hold_all.min(seen.waited).min(catalogue.wanted());
        (by > catalogue.promised()).then(|| Command::Covered {
            term: self.term,
            by,
            change: catalogue.change(),
        })
    }

    fn is_over(&self, catalogue: &Catalogue, now: u64) -> bool {
        let after = catalogue.degrade_after().map(|ms| ms * 1_000_000);
        match (self.since, after) {
            (Some(since), Some(after)) => now.saturating_sub(since) >= after,
            _ => false,
        }
    }
}
