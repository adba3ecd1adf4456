//! `decided <= flushed <= installed < next`, `decided <= published <= installed` at a primary; `visible <= min(applied, published)`,
//! `applied <= scheduled <= received`, `persisted <= received` at a replica (docs/design/watermarks.md); and across nodes: no replica shows
//! what no primary of its history has published, but for one that starts where its own copy decides; and one that knows that it holds what
//! the cluster does not have shows nothing.

use base::Position;
use replica::ship::fork;

use crate::machine::Running;
use crate::model::Terms;
use crate::world::World;

impl World {
    /// The primary of this term, whose history has these terms, has published up to here.
    pub fn has_published(&mut self, term: u64, terms: &Terms, at: Position) {
        let known = self.published.entry(term).or_default();
        if at > known.0 || known.1.is_empty() {
            *known = (at, terms.clone());
        }
    }

    pub(super) fn check_watermarks(&mut self, i: usize) {
        match &self.machines[i].up {
            None => {}
            Some(Running::Primary(p)) => {
                let marks = p.node.marks();
                marks.check();
                let next = p.node.next_position();
                let installed = marks.installed.get();
                assert!(
                    installed < next,
                    "node {i}: installed {installed} < next position {next} does not hold"
                );
                let (term, terms) = (p.term, p.terms.clone());
                let published = marks.published.get();
                self.has_published(term, &terms, published);
            }
            Some(Running::Follower(f)) => {
                let Some(following) = f.node.as_ref().and_then(|n| n.following()) else {
                    return;
                };
                following.marks.check();
                assert!(
                    !f.parted || f.shown().is_none(),
                    "node {i} shows {:?}, of which the cluster does not have all",
                    f.shown()
                );
                let visible = following.marks.visible.get();
                let terms = f.dir().expect("what follows has one").terms();
                // What two histories share either of their primaries may have published.
                let all = self.published.values();
                let all = all.map(|(at, of)| fork(&terms, of).min(*at));
                let most = all.max().unwrap_or(Position::ZERO);
                assert!(
                    visible <= most.max(f.own),
                    "node {i} shows {visible}, but its primaries have published {most} at most"
                );
            }
        }
    }
}
