//! As of when what a replica shows is the newest there was, by its primary's clock (`node::receiving::Seen::as_of`): it shows every commit that this primary
//! had acknowledged by the policy before. A weaker acknowledgement comes before the commit is published. All machines here have one clock.
//!
//! Left out on purpose: commits of a newer primary than the one that said so.

use crate::world::World;

impl World {
    pub(super) fn check_ages(&mut self, i: usize) {
        let Some(f) = self.machines[i].follower() else {
            return;
        };
        let following = f.node.as_ref().and_then(|n| n.following());
        let (Some(following), Some(node)) = (following, &f.node) else {
            return;
        };
        let visible = following.marks.visible.get();
        let term = node.terms().last().map_or(0, |t| t.0);
        let as_of = f.is_as_of(visible);
        let now = self.machines[i].env.clock.unix_micros();
        let follows = &mut self.machines[i].watched.follows;
        let Some(as_of) = as_of else {
            *follows = None;
            return;
        };
        let (of, since) = *follows.get_or_insert((term, now));
        // A time from before is an older primary's word.
        if of != term || as_of <= since {
            return;
        }
        let newest = self.model.acknowledged_before(term, as_of);
        assert!(
            newest <= visible || !self.report.false_premises.is_empty(),
            "node {i} shows {visible} and says that this is as of {as_of}, when {newest} of term {term} was acknowledged"
        );
    }
}
