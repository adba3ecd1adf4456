//! A cluster that was made by hand becomes one that runs itself, while it works (`canon cluster adopt`).
//!
//! ```text
//! primary   canon_adopt() ──▶ Question::Adopt { now: false } to each replica that follows ──▶ enough can? ──▶ the same with now: true
//! replica   says its number to the primary it follows ──▶ joins there, as with --join: the first one makes the primary the founder
//! ```
//! **Nothing restarts and nothing is copied.** A replica has the data and follows already. It leaves its connection for a moment and comes back with its number, as the
//! primary counts the acknowledgements of members by their numbers. Sessions go on at all servers.
//!
//! **No commit waits for ever.** As soon as there are two members only members count. So the primary asks first which replicas can be taken in, and changes nothing
//! where these are fewer than `synchronous_replicas`.
//!
//! **The next start.** The server's settings name its primary still. They are not taken any more: MEMBER says that this node was taken in, and the log that
//! `replica_of` can be left out. Of its words only the login is used, for whichever server is the primary.
//!
//! | a replica | is |
//! |---|---|
//! | of a build that knows no such question | left out: it follows as before, and no commit waits for it |
//! | that has not proven the secret, or says no address | left out |
//! | with the name of another one, a site | left out |
//! | whose `--cluster-address` leads to another server, or is not reached | left out |
//!
//! Left out on purpose: the witness, which joins by itself.

use super::joining::join;
use super::words::system;
use super::{Outsider, Seat};
use crate::replication::{Place, Primary};
use ::cluster::NodeId;
use ::cluster::question::Question;
use base::{Error, Result, SqlState};
use futures::future::join_all;
use node::Role;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::info;

/// How long replicas that were asked may take to be members.
const WAIT: Duration = Duration::from_secs(30);
/// How often that is looked at.
const LOOK: Duration = Duration::from_millis(20);

fn not_now(what: impl Into<String>) -> Error {
    Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, what)
}

/// A replica that follows this primary and is no member.
struct Candidate {
    name: String,
    /// Where it takes connections.
    at: String,
}

/// These names in a row.
fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

/// What came of it, for people.
fn report(taken: &[String], slow: &[String], left: &[(String, String)]) -> String {
    let names = |names: &[String]| listed(names.iter().map(String::as_str));
    let mut said = match taken {
        [] => "No replica has become a member yet.".to_owned(),
        _ => format!("Members of the cluster now: {}.", names(taken)),
    };
    if !slow.is_empty() {
        said += &format!("\nOn the way, as their logs say: {}.", names(slow));
    }
    for (name, why) in left {
        said += &format!("\nLeft out: {name}: {why}");
    }
    if !left.is_empty() {
        said += "\nWhat is left out follows as before, and no commit waits for it. Restart it with --join in place of --replica-of.";
    }
    said
}

impl Seat {
    /// The primary that this server's settings name, as long as it belongs to no cluster that runs itself.
    pub(super) fn by_hand(&self) -> Option<&Primary> {
        let alone = self.identity.get().is_none() && self.adopted.get().is_none();
        self.config.replica_of.as_ref().filter(|_| alone)
    }

    /// Whether it follows that one, or another one, and is no member.
    pub(super) fn follows_by_hand(&self) -> bool {
        let replica = |place: Arc<Place>| place.node.role() != Role::Primary;
        (self.is_guest() || self.by_hand().is_some()) && self.place().is_none_or(replica)
    }

    /// The server that runs now is guarded as one that is no member, if it follows and is none.
    pub(super) fn guard(&self, place: &Place) {
        let outside = self.is_guest() || self.by_hand().is_some();
        let outsider = outside.then(|| Outsider::of(place)).flatten();
        *self.outsider.lock() = outsider;
    }

    /// Whether its settings still say that it follows by hand.
    pub(super) fn is_adopted(&self) -> bool {
        self.config.replica_of.is_some() && self.by_hand().is_none()
    }

    /// The primary at this address. The login is that of the one that was named by hand, if one was.
    pub(super) fn primary_there(&self, at: &str) -> Result<Primary> {
        let there =
            Primary::parse(at).map_err(|why| Error::new(SqlState::INVALID_PARAMETER_VALUE, why))?;
        let Some(mut named) = self.config.replica_of.clone() else {
            return Ok(there);
        };
        (named.host, named.port) = there.address();
        Ok(named)
    }
}

impl Seat {
    /// At a replica: why it cannot be taken in; none: it can, or is a member. With `now` it is taken in.
    pub(super) async fn be_adopted(self: &Arc<Seat>, now: bool) -> Result<Option<String>> {
        if self.identity.get().is_some() || self.adopted.get().is_some() {
            return Ok(None);
        }
        let place = self.place().ok_or_else(|| system("the server starts"))?;
        if self.config.site {
            return Ok(Some(
                "it is a site, which joins by itself: --join in place of --replica-of.".into(),
            ));
        }
        if let Err(e) = self.as_member() {
            let fields = e.fields();
            return Ok(Some(format!("{}. {}", fields.message, fields.hint)));
        }
        let target = self.target.lock().clone();
        let replica = place.node.role() == Role::Replica;
        let follow = place.follow.clone();
        let follow = follow.filter(|f| replica && f.is_connected());
        let (Some(follow), Some(target)) = (follow, target) else {
            return Ok(Some("it does not hear its primary.".into()));
        };
        drop(place);
        if !now {
            return Ok(None);
        }
        let (host, port) = follow.primary().address();
        target.says_number(self.number);
        // Before it is a member: what it acknowledges without its number would not count.
        let left = tokio::task::spawn_blocking(move || follow.begin_anew());
        left.await.map_err(system)??;
        if self.adopted.set(format!("{host}:{port}")).is_err() {
            return Ok(None);
        }
        info!(primary = %format!("{host}:{port}"), "this replica is taken into the cluster of its primary");
        let seat = self.clone();
        self.runtime.spawn(async move { join(&seat).await });
        Ok(None)
    }

    /// At the primary: takes in the replicas that follow it by hand. What happened, in words.
    pub(super) async fn adopt(self: Arc<Seat>) -> Result<String> {
        let (candidates, mut left) = self.candidates()?;
        if candidates.is_empty() && left.is_empty() {
            let what = "no replica follows this server by hand";
            return Err(not_now(what).hint("A server joins by itself with --join."));
        }
        let asked = self.ask_all(&candidates, false).await;
        let (can, cannot): (Vec<_>, Vec<_>) = asked.into_iter().partition(|a| a.1.is_none());
        left.extend(cannot.into_iter().filter_map(|(c, why)| Some((c, why?))));
        let can: BTreeSet<String> = can.into_iter().map(|c| c.0).collect();
        self.are_enough(can.len(), &left)?;
        let can = candidates.into_iter().filter(|c| can.contains(&c.name));
        let asked = self.ask_all(&can.collect::<Vec<_>>(), true).await;
        let until = Instant::now() + WAIT;
        let (mut taken, mut slow) = (Vec::new(), Vec::new());
        for (name, why) in asked {
            match why {
                Some(why) => left.push((name, why)),
                None if self.becomes_member(&name, until).await => taken.push(name),
                None => slow.push(name),
            }
        }
        Ok(report(&taken, &slow, &left))
    }

    /// The replicas that follow by hand, and those that cannot be asked, with the reason.
    fn candidates(&self) -> Result<(Vec<Candidate>, Vec<(String, String)>)> {
        let place = self.place().ok_or_else(|| system("the server starts"))?;
        if place.node.role() != Role::Primary || !place.node.is_open() {
            let what = "this server is not the primary, or does not serve";
            return Err(
                not_now(what).hint("Ask the primary: canon cluster adopt --server PRIMARY.")
            );
        }
        let catalogue = self.catalogue().unwrap_or_default();
        let is_member = |number: Option<NodeId>| {
            number.is_some_and(|number| catalogue.members().contains_key(&number))
        };
        let members = catalogue.members().values().map(|m| m.name.clone());
        let mut names: BTreeSet<String> = members.collect();
        names.insert(self.config.node_name.clone());
        let (mut candidates, mut left) = (Vec::new(), Vec::new());
        for seen in place.senders.seen() {
            let (name, at) = (seen.follower.name, seen.listen.map(|a| a.to_string()));
            if is_member(seen.follower.number) {
                continue;
            }
            let why = if !seen.follower.member {
                "it has not proven the cluster's secret."
            } else if !names.insert(name.clone()) {
                "another server has its name."
            } else if let Some(at) = at {
                candidates.push(Candidate { name, at });
                continue;
            } else {
                "it says no address at which it is reached."
            };
            left.push((name, why.to_owned()));
        }
        Ok((candidates, left))
    }

    /// Asks each of them at the same time; why one cannot be taken in.
    async fn ask_all(&self, all: &[Candidate], now: bool) -> Vec<(String, Option<String>)> {
        let asked = all.iter().map(|c| async move {
            let said = self.question(&c.at, &Question::Adopt { now }).await;
            let said = said.unwrap_or_else(|e| Some(format!("{}.", e.fields().message)));
            let said = match said {
                None if !now => match self.build_lacks(&c.at).await {
                    None => self.is_misplaced(&c.at).await,
                    lacks => lacks,
                },
                said => said,
            };
            (c.name.clone(), said)
        });
        join_all(asked).await
    }

    /// Why the build of this replica does not do for what the members have agreed on, or are to.
    async fn build_lacks(&self, at: &str) -> Option<String> {
        // Any build does where the oldest one does.
        self.lacks_level(0)?;
        // A build that does not know the question gives an error.
        let level: u32 = self.question(at, &Question::Level).await.unwrap_or(0);
        self.lacks_level(level).map(|why| format!("{why}."))
    }

    /// Why this replica cannot be a member at the address that it would give.
    async fn is_misplaced(&self, at: &str) -> Option<String> {
        // A build that does not know the question is looked for when it joins.
        let (node, member) = self.question(at, &Question::AsMember).await.ok()?;
        let why = self.misplaced(node, &member).await;
        let why = why.unwrap_or_else(|e| Some(e.fields().message.to_string()));
        why.map(|why| format!("{why}."))
    }

    /// An error where commits would wait for more members than there are.
    fn are_enough(&self, can: usize, left: &[(String, String)]) -> Result<()> {
        let catalogue = self.catalogue().unwrap_or_default();
        let others = catalogue.replicas();
        let needed = match others {
            0 => self.config.synchronous_replicas as usize,
            _ => catalogue.meant(),
        };
        if can > 0 && others + can >= needed {
            return Ok(());
        }
        let what = match can {
            0 => "no replica that follows can be taken in".to_owned(),
            _ => format!(
                "commits wait for {needed} replicas (synchronous_replicas), and {} can be taken in",
                others + can
            ),
        };
        let why = left.iter().map(|(name, why)| format!("{name}: {why}"));
        let why: Vec<_> = why.collect();
        Err(not_now(what)
            .detail(why.join(" "))
            .hint("Nothing was changed. Restart the others with --join in place of --replica-of."))
    }

    /// Waits until the members have taken this one in, and it follows as a member.
    async fn becomes_member(&self, name: &str, until: Instant) -> bool {
        let is = || {
            let catalogue = self.catalogue()?;
            let mut members = catalogue.members().iter();
            let (id, _) = members.find(|(_, m)| m.name == name)?;
            let followers = self.place()?.node.shipping().followers();
            let follows = followers.iter().any(|f| f.number == Some(*id));
            follows.then_some(())
        };
        while is().is_none() {
            if Instant::now() > until {
                return false;
            }
            tokio::time::sleep(LOOK).await;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_says_what_is_left_out_and_what_to_do() {
        let name = |n: &str| n.to_owned();
        let whole = report(&[name("b"), name("c")], &[], &[]);
        assert_eq!(whole, "Members of the cluster now: b, c.");
        let left = [(name("d"), name("it is a site."))];
        let part = report(&[], &[name("c")], &left);
        assert!(part.contains("Left out: d: it is a site"), "{part}");
        assert!(part.contains("On the way, as their logs say: c."), "{part}");
        assert!(part.contains("--join in place of --replica-of"), "{part}");
    }
}
