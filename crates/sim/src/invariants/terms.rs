//! No two terms acknowledge by the policy over the same time. A forced promotion rests on a premise, that the old primary is down; when it is
//! not, two may, under a policy that needs no replica or with replicas that still follow the old one. Such a run says so in its report.

use crate::world::World;

impl World {
    /// Node `i` acknowledges in this term.
    pub(super) fn check_terms(&mut self, i: usize, term: u64) {
        let newer = self.first_acknowledged.keys().filter(|t| **t > term).max();
        if let Some(newer) = newer {
            assert!(
                !self.report.false_premises.is_empty(),
                "node {i} acknowledges in term {term}, but term {newer} has acknowledged before"
            );
        }
        let now = self.now;
        self.first_acknowledged.entry(term).or_insert(now);
    }
}
