//! No two terms acknowledge by the policy over the same time. A forced promotion rests on a premise, that the old primary is down; when it is
//! not, two may, under a policy that needs no replica or with replicas that still follow the old one. Such a run says so in its report.

use base::Position;

use crate::world::World;

impl World {
    /// Node `i` acknowledges the commit at `at` in this term. What a primary still owes for commits that its successor took over is
    /// in both histories, and may come late.
    pub(super) fn check_terms(&mut self, i: usize, term: u64, at: Position) {
        let newer = self.acknowledging.range(term + 1..).next().copied();
        if let Some(newer) = newer
            && self.began.get(&newer).is_none_or(|start| at > *start)
        {
            assert!(
                !self.report.false_premises.is_empty(),
                "node {i} acknowledges in term {term}, but term {newer} has acknowledged before"
            );
        }
        self.acknowledging.insert(term);
    }
}
