//! How many replicas the primary waits for, and what it tells the consensus about that.
//!
//! ```text
//! commits wait longer than degrade_after --> Propose(Degrade) --> applied: wait for fewer
//! enough replicas keep up again          --> Propose(Restore) --> applied: wait for all that are wanted
//! enough hold what was acknowledged before commits waited for them --> Propose(Covered)
//! ```
//! Neither of the last two needs a moment without commits. A replica of a busy primary is always a little behind.
//!
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
    /// How many replicas hold all that was acknowledged by the rules before this one: without waiting for as many, or by leaders before.
    pub hold_all: usize,
    /// How many replicas hold all that had been acknowledged at the look before this one.
    pub keep_up: usize,
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
            let enough = seen.keep_up >= catalogue.meant().max(1);
            return enough.then_some(Command::Restore);
        }
        // What later commits do not wait for yet is not promised, nor what nodes hold that are no members.
        let by = seen.hold_all.min(seen.waited).min(catalogue.wanted());
        let by = by.min(catalogue.replicas());
        (by > catalogue.promised()).then(|| Command::Covered {
            term: self.term,
            by,
            change: catalogue.change(),
        })
    }

    fn is_over(&self, catalogue: &Catalogue, now: u64) -> bool {
        let after = catalogue.degrade_after();
        let after = after.map(|ms| ms.saturating_mul(1_000_000));
        match (self.since, after) {
            (Some(since), Some(after)) => now.saturating_sub(since) >= after,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::{Kind, Member, Policies};

    fn set(policies: Policies) -> Command {
        let before = None;
        Command::Set { policies, before }
    }

    fn pair() -> Catalogue {
        let mut catalogue = Catalogue::default();
        let member = |name: &str| Member {
            name: name.into(),
            address: format!("{name}:1"),
            kind: Kind::Server,
            level: 0,
        };
        let founded = Command::Found {
            node: 1,
            member: member("a"),
            term: 1,
        };
        let joined = Command::Join {
            node: 2,
            member: member("b"),
        };
        for command in [founded, joined] {
            catalogue.apply(&command).expect("two members");
        }
        catalogue
    }

    /// Beside a cluster of one others may follow. A member that joins later has nothing of what they hold.
    #[test]
    fn what_others_hold_is_not_promised() {
        let mut catalogue = pair();
        let policies = Policies {
            synchronous_replicas: Some(1),
            ..Policies::default()
        };
        for command in [Command::Leave { node: 2 }, set(policies)] {
            catalogue.apply(&command).expect("one member");
        }
        assert_eq!(catalogue.wanted(), 1);
        let seen = Seen {
            waits: false,
            hold_all: 1,
            keep_up: 1,
            waited: 1,
        };
        assert_eq!(Waiting::new(1).tick(&catalogue, seen, 0), None);
    }

    /// In maintenance commits wait for a lost replica as long as it takes.
    #[test]
    fn in_maintenance_a_lost_replica_is_waited_for() {
        let lost = Seen {
            waits: true,
            hold_all: 0,
            keep_up: 0,
            waited: 1,
        };
        let (mut catalogue, mut waiting) = (pair(), Waiting::new(1));
        let long = 100_000_000_000;
        for maintenance in [true, false] {
            let policies = Policies {
                maintenance,
                ..Policies::default()
            };
            catalogue.apply(&set(policies)).expect("set");
            assert_eq!(waiting.tick(&catalogue, lost, 0), None);
            let proposed = waiting.tick(&catalogue, lost, long);
            assert_eq!(proposed.is_some(), !maintenance, "{proposed:?}");
            waiting = Waiting::new(1);
        }
    }

    /// Any time that is set by hand is one, also one that is no number of nanoseconds.
    #[test]
    fn the_longest_wait_is_as_long_as_it_takes() {
        let lost = Seen {
            waits: true,
            hold_all: 0,
            keep_up: 0,
            waited: 1,
        };
        let (mut catalogue, mut waiting) = (pair(), Waiting::new(1));
        let policies = Policies {
            degrade_after: Some(u64::MAX),
            ..Policies::default()
        };
        catalogue.apply(&set(policies)).expect("set");
        assert_eq!(waiting.tick(&catalogue, lost, 0), None);
        assert_eq!(waiting.tick(&catalogue, lost, u64::MAX - 1), None);
    }

    /// The replica of a primary that is never idle has never all that is acknowledged at that moment.
    #[test]
    fn a_replica_that_keeps_up_counts_again_under_load() {
        let (mut catalogue, mut waiting) = (pair(), Waiting::new(1));
        let busy = |hold_all, keep_up, waited| Seen {
            waits: false,
            hold_all,
            keep_up,
            waited,
        };
        let degrade = Command::Degrade { term: 1, wanted: 0 };
        catalogue.apply(&degrade).expect("the replica is lost");
        let behind = waiting.tick(&catalogue, busy(0, 0, 0), 0);
        assert_eq!(behind, None);
        let back = waiting.tick(&catalogue, busy(0, 1, 0), 0);
        assert_eq!(back, Some(Command::Restore));
        catalogue.apply(&Command::Restore).expect("degraded");
        // It lacks some of what was acknowledged without it.
        assert_eq!(waiting.tick(&catalogue, busy(0, 1, 1), 0), None);
        // Commits do not wait for it yet.
        assert_eq!(waiting.tick(&catalogue, busy(1, 1, 0), 0), None);
        let covered = waiting.tick(&catalogue, busy(1, 1, 1), 0);
        assert!(matches!(covered, Some(Command::Covered { by: 1, .. })));
    }
}
