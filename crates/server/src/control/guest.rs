//! A site that is to join (`--site --join`), as long as it is no member: it follows whichever node the members have made the primary.
//!
//! ```text
//! every second   Question::Guide to each member that is known ──▶ the answer of the latest term counts ──▶ the site follows that node
//! DIR/control/DOORS   where members were, for the next start
//! ```
//! **It serves before it is taken in.** That takes until all members know sites (`words::SITES`), and until there is a cluster: a site begins none, as servers that follow
//! the same primary by hand would not count in it. So far nothing of the site is agreed on: it only asks. What it follows is checked by the log itself: a node of
//! an older term than the site has heard of is not followed. A member hears of the primary as all members do, and this ends.
//!
//! **Any member is enough.** A site asks all that it knows, as one that is cut off from the others may name an old primary. It learns where all of them are from each
//! answer.
//!
//! Left out on purpose: a promotion of a site that is no member. It is promoted by hand, as one that follows by hand is, and is started without `--site` and `--join` then.

use super::Seat;
use super::seat::keep;
use super::words::system;
use crate::config::Config;
use crate::replication::{Place, Primary};
use ::cluster::Phase;
use ::cluster::question::{Guidance, Question};
use base::Result;
use futures::future::join_all;
use node::Role;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// How often the members are asked.
const EVERY: Duration = Duration::from_secs(1);
/// Between looks for the primary at a start.
const LOOK: Duration = Duration::from_millis(500);
/// How long one may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often it is said what the start waits for.
const REMIND: Duration = Duration::from_secs(30);
/// Where members were.
const DOORS: &str = "DOORS";

/// What counts of all answers.
fn latest(answers: impl Iterator<Item = Guidance>) -> Option<(u64, String, Vec<String>)> {
    let named = answers.filter_map(|g| Some((g.term, g.primary?, g.members)));
    named.max_by_key(|g| g.0)
}

impl Seat {
    /// Whether this is a site that is to join, and is no member.
    pub(super) fn is_guest(&self) -> bool {
        let joined = self.identity.get().is_some() && self.was_joined();
        self.config.site && self.config.join.is_some() && !joined
    }

    /// To a site: which node leads, and where all members are.
    pub(super) fn guide(&self, you: &str) -> Result<Guidance> {
        let primary = self.primary(you)?;
        let Some(catalogue) = self.catalogue().filter(|c| c.phase().is_some()) else {
            let place = self.place().ok_or_else(|| system("the server starts"))?;
            return Ok(Guidance {
                term: place.node.term(),
                members: primary.iter().cloned().collect(),
                primary,
            });
        };
        let members = catalogue.members().values().map(|m| m.address.clone());
        Ok(Guidance {
            term: catalogue.phase().map_or(0, Phase::term),
            members: members.collect(),
            primary,
        })
    }

    /// Where members may be: as it is said, and as it was known last.
    pub(super) fn guest_doors(&self) -> BTreeSet<String> {
        let known = std::fs::read(self.dir.join(DOORS)).unwrap_or_default();
        let known: Vec<String> = serde_json::from_slice(&known).unwrap_or_default();
        known.into_iter().chain(self.config.join.clone()).collect()
    }

    /// The answers of all that answer.
    async fn ask_doors(&self, doors: &BTreeSet<String>) -> Option<(u64, String, Vec<String>)> {
        let asked = doors.iter().map(|at| async move {
            let guide = Question::Guide { you: at.clone() };
            // One that is stopped keeps nobody from following another one.
            let said = tokio::time::timeout(PATIENCE, self.question(at, &guide)).await;
            said.ok()?.ok()
        });
        latest(join_all(asked).await.into_iter().flatten())
    }

    /// Where the primary is; none: no member says that now.
    pub(super) async fn primary_of_guest(&self) -> Option<String> {
        let doors = tokio::task::block_in_place(|| self.guest_doors());
        self.ask_doors(&doors).await.map(|(_, at, _)| at)
    }

    /// The configuration that a guest is to start with: it waits until a member says which node is the primary.
    pub(super) async fn arrange_guest(&self) -> Result<Config> {
        let mut said: Option<Instant> = None;
        loop {
            let doors = tokio::task::block_in_place(|| self.guest_doors());
            if let Some((term, at, _)) = self.ask_doors(&doors).await {
                let (primary, target) = self.primary_there(&at)?.movable();
                target.says_number(self.number);
                *self.target.lock() = Some(target);
                info!(primary = %at, term, "this site follows");
                return Ok(self.named(Some(primary)));
            }
            if said.is_none_or(|at| at.elapsed() >= REMIND) {
                said = Some(Instant::now());
                let asked = Vec::from_iter(doors).join(", ");
                warn!(
                    asked,
                    "this site does not serve yet: no server that was asked says which node is the primary"
                );
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Follows the members' word as long as this server runs.
    pub(super) async fn be_guided(self: Arc<Seat>, place: std::sync::Weak<Place>) {
        let mut doors = tokio::task::block_in_place(|| self.guest_doors());
        loop {
            tokio::time::sleep(EVERY).await;
            let guided = self.ask_doors(&doors).await;
            // The one that runs now has a task of its own.
            let Some(place) = place.upgrade() else { return };
            if !self.is_guest() {
                return;
            }
            let Some((term, at, members)) = guided else {
                continue;
            };
            let mut known: BTreeSet<String> = members.into_iter().collect();
            known.extend(self.config.join.clone());
            if known != doors {
                let written = Vec::from_iter(&known);
                let written = serde_json::to_vec(&written).map_err(std::io::Error::other);
                let kept = written
                    .and_then(|w| tokio::task::block_in_place(|| keep(&self.dir, DOORS, &w)));
                if let Err(e) = kept {
                    warn!("where the members are could not be noted: {e}");
                }
                doors = known;
            }
            if term < place.node.heard_term() || place.node.role() != Role::Replica {
                continue;
            }
            if let Err(e) = self.follow_word(&place, &at, term) {
                warn!("{}", e.fields().message);
            }
        }
    }

    /// Follows the node at this address, if another one is followed.
    fn follow_word(&self, place: &Place, at: &str, term: u64) -> Result<()> {
        let (host, port) = Primary::parse(at).map_err(system)?.address();
        let moved = self
            .target
            .lock()
            .as_ref()
            .is_some_and(|t| t.set(host, port));
        let follow = place.follow.as_ref().filter(|_| moved);
        let Some(follow) = follow else { return Ok(()) };
        info!(
            primary = at,
            term, "the members have another primary: this site follows"
        );
        tokio::task::block_in_place(|| follow.begin_anew())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_word_counts_and_one_that_names_nobody_does_not() {
        let said = |term, primary: Option<&str>| Guidance {
            term,
            primary: primary.map(str::to_owned),
            members: vec!["a:1".into()],
        };
        let all = [said(3, Some("b:1")), said(2, Some("a:1")), said(4, None)];
        let found = latest(all.into_iter()).map(|g| (g.0, g.1));
        assert_eq!(found, Some((3, "b:1".to_owned())));
        assert!(latest([said(4, None)].into_iter()).is_none());
    }
}
