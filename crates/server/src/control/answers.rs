//! Questions that a node asks another one, and this node's answers.

use super::Seat;
use super::leaving::CHANGE;
use super::outsider::takes_no_part;
use super::settings::written;
use super::words::{Identity, NO_CLUSTER, NO_LEASES, NO_MAINTENANCE, NO_SITES, system, wait_for};
use crate::replication::Place;
use crate::replication::members::{MemberSeen, Members, Together};
use ::cluster::catalogue::MOST_VOTERS;
use ::cluster::failover::stands_in_the_way;
use ::cluster::question::{Asked, Joined, Joining, LEASES, Question, SETTINGS, SITES, level};
use ::cluster::{Catalogue, Command, Kind, Member, NodeId, Obstacle, Phase, Policies, Refused};
use base::{Error, Result, SqlState};
use futures::future::BoxFuture;
use node::Role;
use sql::engine::{CheckCancelled, MembershipChange};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tracing::info;

/// How long the members have to say that they are a majority: longer than any question to one of them takes.
const MAJORITY: Duration = Duration::from_secs(20);

/// Members that the consensus leader does not reach, for people.
fn unreached(catalogue: &Catalogue, reached: &BTreeSet<NodeId>) -> String {
    let away = catalogue
        .members()
        .iter()
        .filter(|(id, _)| !reached.contains(id));
    let names: Vec<&str> = away.map(|(_, m)| &*m.name).collect();
    match names.is_empty() {
        true => "set synchronous_replicas higher, so that fewer have to".to_owned(),
        false => format!("{} cannot be reached", names.join(", ")),
    }
}

/// What lets sites lead.
const SITES_MAY: &str = "canon cluster set failover.sites_may_lead=on lets them";

/// Whether a member is a site.
fn has_sites(catalogue: &Catalogue) -> bool {
    let mut all = catalogue.members().values();
    all.any(|m| m.kind == Kind::Site)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Members for Seat {
    fn number(&self) -> Option<u64> {
        Some(self.number)
    }

    fn answer(self: Arc<Self>, question: Vec<u8>) -> BoxFuture<'static, Result<Vec<u8>>> {
        // The member lives in the runtime; a connection lives on a core that may be busy with statements.
        let answered = self.runtime.clone().spawn(self.reply(question));
        Box::pin(async move { answered.await.map_err(system)? })
    }

    fn together(&self) -> Option<Together> {
        let (catalogue, member) = (self.catalogue()?, self.member.get()?);
        let phase = catalogue.phase()?;
        let (voters, decides) = (member.consensus().voters(), member.consensus().leader());
        let seen = |(id, m): (&NodeId, &Member)| MemberSeen {
            name: m.name.clone(),
            address: m.address.clone(),
            has_copy: m.has_copy(),
            site: m.kind == Kind::Site,
            votes: voters.contains(id),
            leads: matches!(phase, Phase::Leading { node, .. } if node == *id),
            decides: decides == Some(*id),
        };
        let reached = member.reached();
        let obstacle = match phase {
            Phase::Leading { .. } => stands_in_the_way(&catalogue, &voters, &reached),
            // The consensus leader knows.
            Phase::Choosing { .. } => member.obstacle(),
        };
        let obstacle = match obstacle {
            _ if self.incomplete.load(Ordering::SeqCst) => Some(
                "the copy here was taken anew, and has not yet all that the primary had".to_owned(),
            ),
            _ if decides.is_none() => Some("the members reach no majority".to_owned()),
            Some(Obstacle::Maintenance) => {
                Some("maintenance is on: canon cluster set maintenance=off ends it".to_owned())
            }
            Some(Obstacle::NoReplica) if has_sites(&catalogue) => Some(format!(
                "the only other copies are sites, which may not lead: {SITES_MAY}"
            )),
            Some(Obstacle::NoReplica) => Some("there is no other copy".to_owned()),
            Some(Obstacle::Site(node)) => {
                let site = catalogue.members().get(&node);
                let name = site.map_or("a site", |m| &m.name);
                Some(format!(
                    "no copy that answers may lead but {name}, a site: {SITES_MAY}"
                ))
            }
            Some(Obstacle::Votes { .. }) if voters.len() < MOST_VOTERS => Some(
                "only one member votes: a third server, or a witness, would make it three"
                    .to_owned(),
            ),
            Some(Obstacle::Votes { needed, have }) => Some(format!(
                "of {needed} votes that are needed the others have {have}: {}",
                unreached(&catalogue, &reached)
            )),
            Some(Obstacle::Answers { needed, have }) => Some(format!(
                "of {needed} other copies that have to answer {have} can: {}",
                unreached(&catalogue, &reached)
            )),
            Some(Obstacle::NothingPromised) if catalogue.meant() == 0 => Some(
                "commits wait for no replica (synchronous_replicas = 0), and failover.max_loss is not set"
                    .to_owned(),
            ),
            Some(Obstacle::Loss { within }) => {
                let lack = within.map_or("it is not known which".to_owned(), |ms| {
                    format!("those of the last {:.1} s", ms as f64 / 1e3)
                });
                Some(format!(
                    "the copies that answer may lack more commits than failover.max_loss allows, {lack}: the old primary has them"
                ))
            }
            Some(_) => {
                Some("no replica has said yet that it has all that was acknowledged".to_owned())
            }
            None => None,
        };
        Some(Together {
            members: catalogue.members().iter().map(seen).collect(),
            wanted: catalogue.wanted(),
            promised: catalogue.promised(),
            degraded: catalogue.degraded(),
            settings: written(catalogue.policies()),
            lost: catalogue
                .lost()
                .map(|l| (l.term, Duration::from_millis(l.within))),
            lease: member.lease_left(),
            obstacle,
        })
    }

    fn may_promote(&self, check_cancelled: CheckCancelled<'_>) -> Result<()> {
        let Some(seat) = self.shared() else {
            return Err(system("the server stops"));
        };
        if seat.member.get().is_none() {
            let outsider = self.outsider.lock().clone();
            outsider.map_or(Ok(()), |o| o.may_promote(check_cancelled))?;
            return seat.is_promoted_before_it_joins(check_cancelled);
        }
        let (told, heard) = std::sync::mpsc::channel();
        self.runtime.spawn(async move {
            let member = seat.member.get().expect("looked at above");
            _ = told.send(member.has_majority().await);
        });
        // A leader that does not answer is told apart from one that is slow by the time that its connection may take.
        let majority = tokio::task::block_in_place(|| wait_for(&heard, MAJORITY, check_cancelled))?;
        let code = SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE;
        match majority {
            Some(false) => Ok(()),
            Some(true) => {
                let what =
                    "the members of this cluster agree among themselves which node is the primary";
                Err(Error::new(code, what).hint(
                    "canon status says which, and what stands in the way of a fail-over. A promotion by hand is for a cluster without a majority.",
                ))
            }
            None => {
                let what =
                    "it is not known yet whether the members of this cluster have a majority";
                Err(Error::new(code, what).hint("Ask again."))
            }
        }
    }

    fn take_over(
        &self,
        wait: Duration,
        check_cancelled: CheckCancelled<'_>,
    ) -> Option<Result<Option<String>>> {
        self.become_primary(wait, check_cancelled)
    }

    fn change(
        &self,
        change: MembershipChange,
        check_cancelled: CheckCancelled<'_>,
    ) -> Result<String> {
        self.change_membership(change, check_cancelled)
    }

    #[inline]
    fn may_serve(&self) -> bool {
        match self.guarded.load(Ordering::Relaxed) {
            0 => true,
            _ if env::fault::planted("lease.unasked") => true,
            term => self.member.get().is_none_or(|m| m.may_acknowledge(term)),
        }
    }
}

impl Seat {
    /// A server that is to join, and is not so far, is about to be promoted by hand.
    fn is_promoted_before_it_joins(
        self: &Arc<Self>,
        check_cancelled: CheckCancelled<'_>,
    ) -> Result<()> {
        let Some(first) = self.asked_to_join() else {
            return Ok(());
        };
        let (told, heard) = std::sync::mpsc::channel();
        let seat = self.clone();
        self.runtime.spawn(async move {
            _ = told.send(seat.begin_to_join(first).await);
        });
        let noted = tokio::task::block_in_place(|| wait_for(&heard, MAJORITY, check_cancelled))?;
        noted.unwrap_or_else(|| Err(system("that this server joins could not be noted")))
    }

    /// Whether no other node can be named before this time, if this one leads; see [`Members::may_serve`].
    pub(super) fn leads_until(&self, time: u64) -> bool {
        match self.guarded.load(Ordering::SeqCst) {
            0 => true,
            term => (self.member.get()).is_none_or(|m| m.leads_until(term, time)),
        }
    }

    async fn reply(self: Arc<Self>, question: Vec<u8>) -> Result<Vec<u8>> {
        match Asked::decode(&question).map_err(system)? {
            Asked::OfMember(_) if env::fault::planted("join.unheard") => Err(takes_no_part()),
            Asked::OfMember(message) => {
                let member = self.member.get();
                let member = member.ok_or_else(|| system("this node is no member"))?;
                member.ear().hear(message).await.map_err(system)
            }
            Asked::Question(question) => match question {
                // As a build without it says.
                Question::Adopt { .. } if env::fault::planted("adopt.unknown") => {
                    Err(takes_no_part())
                }
                Question::Adopt { now } => {
                    let why_not = self.be_adopted(now).await?;
                    serde_json::to_vec(&why_not).map_err(system)
                }
                Question::Level if env::fault::planted("join.no_level") => Err(takes_no_part()),
                Question::Level => serde_json::to_vec(&level()).map_err(system),
                Question::AsMember => {
                    let member = self.as_member()?;
                    serde_json::to_vec(&(self.number, member)).map_err(system)
                }
                Question::RunsItself => {
                    let founded = self.catalogue().is_some_and(|c| c.phase().is_some());
                    serde_json::to_vec(&founded).map_err(system)
                }
                _ if self.follows_by_hand() => Err(takes_no_part()),
                Question::Primary { you } => {
                    let at = self.primary(&you)?;
                    serde_json::to_vec(&at).map_err(system)
                }
                Question::Guide { you } => {
                    let guidance = self.guide(&you)?;
                    serde_json::to_vec(&guidance).map_err(system)
                }
                Question::IsMember { node, level } => {
                    let is = self.is_member(node, level).await?;
                    serde_json::to_vec(&is).map_err(system)
                }
                Question::HandOver { to } => {
                    self.hand_over(to).await?;
                    Ok(Vec::new())
                }
                Question::Join(joining) => {
                    let joined = self.let_join(joining).await?;
                    serde_json::to_vec(&joined).map_err(system)
                }
            },
        }
    }

    /// Where the primary is, as far as it is known here.
    pub(super) fn primary(&self, you: &str) -> Result<Option<String>> {
        if let Some(catalogue) = self.catalogue().filter(|c| c.phase().is_some()) {
            return Ok(match catalogue.phase() {
                Some(Phase::Leading { node, .. }) => {
                    catalogue.members().get(&node).map(|m| m.address.clone())
                }
                _ => None,
            });
        }
        let place = self.place().ok_or_else(|| system("the server starts"))?;
        Ok((place.node.role() == Role::Primary).then(|| you.to_owned()))
    }

    async fn let_join(self: &Arc<Self>, joining: Joining) -> Result<Joined> {
        let is_site = joining.member.kind == Kind::Site;
        if self.catalogue().is_none_or(|c| c.phase().is_none()) {
            if is_site {
                return Ok(Joined::Never(NO_CLUSTER.to_owned()));
            }
            let place = self.place().ok_or_else(|| system("the server starts"))?;
            if place.node.role() != Role::Primary || !place.node.is_open() {
                return Ok(Joined::Later);
            }
            // The members that were to take it in may have done so, and not have told it.
            if self.identity.get().is_some_and(|i| i.joined.is_some()) {
                return Ok(Joined::Never(format!(
                    "the primary there was promoted by hand before a cluster took it in. For one of its own start it without --join, after {} was removed",
                    self.dir.display()
                )));
            }
            // A member that is not reached would have a vote and could not give it.
            if let Some(why) = self.misplaced(joining.node, &joining.member).await? {
                return Ok(Joined::Never(why));
            }
            self.found(&place, &joining.you).await?;
        }
        let member = self.member.get().ok_or_else(|| system("it is founded"))?;
        let consensus = member.consensus();
        if let Some(other) = self.elsewhere() {
            return Ok(other);
        }
        if env::fault::planted("join.later") {
            return Ok(Joined::Later);
        }
        self.say_policies().await?;
        if let Some(why) = self.lacks_level(joining.level) {
            return Ok(Joined::Never(why.to_owned()));
        }
        let catalogue = self.catalogue().unwrap_or_default();
        if is_site && joining.level < SITES {
            return Ok(Joined::Never(NO_SITES.to_owned()));
        }
        if is_site && let Err(e) = self.all_know(&catalogue, SITES).await {
            return Ok(Joined::Never(e.fields().message.to_string()));
        }
        let (node, level) = (joining.node, joining.level);
        let member = Member {
            level,
            ..joining.member
        };
        if let Some(why) = self.misplaced(node, &member).await? {
            // A member that has moved goes on, and is known where it was: the address may be free one day.
            return match catalogue.members().contains_key(&node) {
                true => Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, why)),
                false => Ok(Joined::Never(why)),
            };
        }
        let _one = self.noting.lock().await;
        // What was looked at above waited for other nodes. Another member may have joined meanwhile, or another build may have been noted.
        if self.catalogue().unwrap_or_default().members() != catalogue.members() {
            return Ok(Joined::Later);
        }
        if let Some(why) = self.lacks_level(level) {
            return Ok(Joined::Never(why.to_owned()));
        }
        let name = member.name.clone();
        // A proposal may be forgotten, where a snapshot has taken the place of its entry. Others wait for the lock.
        let join = consensus.propose(Command::Join { node, member });
        let proposed = tokio::time::timeout(CHANGE, join).await;
        let proposed = proposed.map_err(|_| system("the members have not agreed on it in time"))?;
        match proposed.map_err(system)? {
            Ok(()) => {
                info!(%name, node, "a member has joined");
                Ok(Joined::Yes)
            }
            Err(Refused::Taken) => Ok(Joined::Never(format!(
                "another member is called \"{name}\", or this one has another kind"
            ))),
            Err(_) => Ok(Joined::Later),
        }
    }

    /// Makes a cluster of one of this primary.
    async fn found(self: &Arc<Self>, place: &Arc<Place>, you: &str) -> Result<()> {
        let _one = self.founding.lock().await;
        if self.catalogue().is_some_and(|c| c.phase().is_some()) {
            return Ok(());
        }
        let me = Member {
            name: self.config.node_name.clone(),
            address: self
                .config
                .cluster_address
                .clone()
                .unwrap_or_else(|| you.to_owned()),
            kind: Kind::Server,
            level: level(),
        };
        if self.identity.get().is_none() {
            let identity = Identity {
                node: self.number,
                joined: None,
                witness: false,
                site: false,
                adopted: self.config.replica_of.is_some(),
                heard: 0,
            };
            self.become_member(identity).await?;
        }
        tokio::task::block_in_place(|| self.note_address());
        info!(name = %me.name, address = %me.address, "this server founds a cluster");
        let member = self.member.get().ok_or_else(|| system("it is founded"))?;
        let consensus = member.consensus();
        let founded = consensus.found(me, place.node.term()).await;
        founded.map_err(system)?;
        // One that is taken out at once asks whether it is a member only if it ever was.
        self.has_joined()
    }

    /// What this server was started with holds for the cluster, from before there is another member. Said again where this was not reached.
    async fn say_policies(&self) -> Result<()> {
        let (Some(catalogue), Some(member)) = (self.catalogue(), self.member.get()) else {
            return Ok(());
        };
        let policies = self.own_policies();
        let said = *catalogue.policies() != Policies::default();
        if said || policies == Policies::default() || catalogue.members().len() > 1 {
            return Ok(());
        }
        // Another one that says it first, or changes it, is heard.
        let before = Some(catalogue.policies().clone());
        let set = Command::Set { policies, before };
        let set = member.consensus().propose(set).await;
        set.map(drop).map_err(system)
    }

    /// Whether leases are of another length than usual: as the members have agreed, or, before there are any, as is set here.
    pub(super) fn has_own_lease(&self) -> bool {
        let agreed = self.catalogue().filter(|c| c.phase().is_some());
        let policies = agreed.map_or_else(|| self.own_policies(), |c| c.policies().clone());
        policies.lease.is_some()
    }

    /// Why a server of this level cannot be a member now: it would take what is agreed on in another way.
    pub(super) fn lacks_level(&self, level: u32) -> Option<&'static str> {
        let in_maintenance = self.catalogue().is_some_and(|c| c.policies().maintenance);
        match level {
            _ if level < LEASES && self.has_own_lease() => Some(NO_LEASES),
            _ if level < SETTINGS && in_maintenance => Some(NO_MAINTENANCE),
            _ if level < SITES && self.catalogue().is_some_and(|c| has_sites(&c)) => Some(NO_SITES),
            _ => None,
        }
    }

    /// What this server was started with of what the members agree on.
    pub(super) fn own_policies(&self) -> Policies {
        let most = self.config.failover_max_loss;
        Policies {
            synchronous_replicas: self.config.synchronous_said.map(|n| n as usize),
            max_loss: most.map(millis),
            lease: self.config.failover_lease.map(millis),
            ..Policies::default()
        }
    }

    /// The member that this server is to be.
    pub(super) fn as_member(&self) -> Result<Member> {
        let address = self.own_address().ok_or_else(|| {
            let what = "other members cannot reach this server at the address that it listens on";
            Error::new(SqlState::INVALID_PARAMETER_VALUE, what)
                .hint("Say where they can: --cluster-address HOST:PORT.")
        })?;
        Ok(Member {
            name: self.config.node_name.clone(),
            address,
            kind: self.kind,
            level: level(),
        })
    }
}
