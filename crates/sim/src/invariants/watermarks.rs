//! `decided <= flushed <= installed < next`, `decided <= published <= installed` at a primary; `visible <= min(applied, published)`,
//! `applied <= scheduled <= received`, `persisted <= received` at a replica (docs/design/watermarks.md); and across nodes: no replica shows
//! what no primary of its history has published, but for one that starts where its own copy decides; and one that knows that it holds what
//! the cluster does not have shows nothing.

use base::Position;

use crate::machine::Running;
use crate::world::World;

impl World {
    pub(super) fn check_watermarks(&mut self, i: usize) {
        match &self.machines[i].up {
            None => {}
            Some(Running::Primary(p)) => {
                let marks = p.engine.marks();
                marks.check();
                let next = p.ordered.order.next_position();
                let installed = marks.installed.get();
                assert!(
                    installed < next,
                    "node {i}: installed {installed} < next position {next} does not hold"
                );
                let published = marks.published.get();
                let known = self.published.entry(p.term).or_default();
                *known = (*known).max(published);
            }
            Some(Running::Follower(f)) => {
                let Some(following) = &f.following else {
                    return;
                };
                following.marks.check();
                assert!(
                    !f.parted || f.shown().is_none(),
                    "node {i} shows {:?}, of which the cluster does not have all",
                    f.shown()
                );
                let visible = following.marks.visible.get();
                let terms = f.dir.as_ref().expect("who follows has one").terms();
                let most = terms.iter().filter_map(|(t, _)| self.published.get(t));
                let most = most.max().copied().unwrap_or(Position::ZERO);
                assert!(
                    visible <= most.max(following.own),
                    "node {i} shows {visible}, but its primaries have published {most} at most"
                );
            }
        }
    }
}
