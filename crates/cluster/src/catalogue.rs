//! What the cluster agrees on: its members, the leader of the data and its term, and how many replicas hold a commit.
//!
//! ```text
//! Leading { node, term } --Begin--> Choosing { later } --Name--> Leading { node, later }
//!                        --HandOver-----------------------------> Leading { other, term + 1 }
//! ```
//! A catalogue is a value. The consensus log holds [`Command`]s, and each node applies them in the log's order with [`Catalogue::apply`]. A command
//! that came too late is refused by what it names: its term, or the leader that it speaks for.
//!
//! **Two numbers for one setting.** `wanted` is how many replicas the primary waits for. `promised` is how many replicas hold each commit that was ever
//! acknowledged, and only this number counts at a fail-over. It follows from the order of the steps:
//!
//! | change | first | then |
//! |---|---|---|
//! | more replicas | the primary waits for `wanted` | it reports [`Command::Covered`], and `promised` rises |
//! | fewer replicas | `promised` falls here | the primary, which has applied that, waits for fewer |
//! | a copy leaves | `promised` falls by one, as that copy may have been among those that held a commit | the primary reports again |
//!
//! **What is set by hand** ([`Policies`]) can be changed at any time, but `synchronous_replicas` not while a leader is chosen. The one that chooses may count
//! by the number from before, and the primary that goes may acknowledge by the one after it.
//!
//! **Sites** have a copy and stand far away. Their copies count only where [`Policies::sites_may_lead`] says so:
//!
//! | `sites_may_lead` | a site |
//! |---|---|
//! | off | follows, and is asked for its position; no commit waits for it, no answer of it is needed, it does not vote and is not named |
//! | on | is one more copy, as a server's |
//!
//! When it is turned off, `promised` falls by the number of sites, as each may be among those that held a commit. While a site leads it cannot be turned off.
//!
//! Left out on purpose: several shards, the bucket map and generations. They come with partitions.

use base::MAX_TERM;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A member's number. It is drawn once and never given again.
pub type NodeId = u64;

/// The highest term of the data that a command or a copy may bring in. A fail-over takes the next one, and a promotion by hand one far above, so no cluster comes
/// there. One that is higher was made up or damaged. The terms after this one are counted one by one, and none comes to [`MAX_TERM`].
pub const HIGHEST_TERM: u64 = MAX_TERM >> 1;

/// The most voters there are.
pub const MOST_VOTERS: usize = 3;

/// How long commits wait for the other one of two copies, in milliseconds.
const DEGRADE_AFTER: u64 = 2000;

/// What a member is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// It has a copy of the data.
    Server,
    /// It has a copy and is far away. See the head of the file.
    Site,
    /// It votes and has no data.
    Witness,
}

/// One member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    pub name: String,
    /// `HOST:PORT` under which the other members reach it.
    pub address: String,
    pub kind: Kind,
    /// The level of its build ([`crate::question::LEVEL`]) as it said it last; 0: it never said one.
    #[serde(default)]
    pub level: u32,
}

impl Member {
    /// Whether it has a copy of the data.
    pub fn has_copy(&self) -> bool {
        self.kind != Kind::Witness
    }
}

/// What was set by hand.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policies {
    /// `synchronous_replicas`, where it was set.
    pub synchronous_replicas: Option<usize>,
    /// `failover.max_loss`, in milliseconds: a fail-over with `promised` = 0 is allowed if a replica has all that the primary had published so long before the
    /// replica was asked.
    pub max_loss: Option<u64>,
    /// `failover.degrade_after`, in milliseconds: how long commits wait for a replica before the cluster goes on without. `None`: see
    /// [`Catalogue::degrade_after`].
    pub degrade_after: Option<u64>,
    /// `failover.sites_may_lead`: copies of sites count, and a site may be named.
    pub sites_may_lead: bool,
    /// `failover.lease`, in milliseconds: how long the primary's lease is, where it is shorter than usual. Set before there is a second member, and never changed.
    #[serde(default)]
    pub lease: Option<u64>,
    /// No leader is chosen by itself, and the primary does not go on with fewer replicas by itself. What is chosen already goes on.
    #[serde(default)]
    pub maintenance: bool,
}

/// How far the data has a leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// The node leads, or is to lead as soon as it has begun this term.
    Leading { node: NodeId, term: u64 },
    /// Replicas are asked under this term. The node led the term before.
    Choosing { term: u64, before: NodeId },
}

impl Phase {
    /// The term of the leader, or the one under which it is chosen.
    pub fn term(self) -> u64 {
        match self {
            Phase::Leading { term, .. } | Phase::Choosing { term, .. } => term,
        }
    }
}

/// An entry of the consensus log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// The first entry: a cluster of one, whose data stands in this term.
    Found {
        node: NodeId,
        member: Member,
        term: u64,
    },
    /// A member joins, or changes its address. Its kind does not change.
    Join { node: NodeId, member: Member },
    /// A member leaves. The leader of the data cannot.
    Leave { node: NodeId },
    /// What is set by hand. `before`: it changes these, and comes too late for others.
    Set {
        policies: Policies,
        #[serde(default)]
        before: Option<Policies>,
    },
    /// The leader of this term wants to acknowledge commits with fewer replicas, and does so only after this entry.
    Degrade { term: u64, wanted: usize },
    /// The degraded cluster waits again for what is set.
    Restore,
    /// The leader of this term says: each commit that it has acknowledged is held by that many replicas, and all later ones will be.
    /// `change` is [`Catalogue::change`] as the leader had applied it when it looked.
    Covered { term: u64, by: usize, change: u64 },
    /// A leader is looked for, because the one of the term `after` is gone. The next term is above `above`, too: a copy has heard of that one, which
    /// was drawn by hand.
    Begin {
        after: u64,
        #[serde(default)]
        above: u64,
    },
    /// The leader of this term acknowledges nothing more in it, which stands on its disk, and the node has all that it acknowledged: the node leads the
    /// next term.
    HandOver { term: u64, to: NodeId },
    /// The node leads the term under which it was asked. `lost`: it may lack commits of the last so many milliseconds.
    Name {
        node: NodeId,
        term: u64,
        #[serde(default)]
        lost: Option<u64>,
    },
    /// A leader of higher term is there, promoted by hand.
    Took { node: NodeId, term: u64 },
}

impl Command {
    /// All terms of the data that it names.
    pub(crate) fn terms(&self) -> Vec<u64> {
        match *self {
            Command::Found { term, .. }
            | Command::Degrade { term, .. }
            | Command::Covered { term, .. }
            | Command::HandOver { term, .. }
            | Command::Name { term, .. }
            | Command::Took { term, .. } => vec![term],
            Command::Begin { after, above } => vec![after, above],
            Command::Join { .. }
            | Command::Leave { .. }
            | Command::Set { .. }
            | Command::Restore => vec![],
        }
    }

    /// Whether the term that it brings in, if any, can be: see [`HIGHEST_TERM`]. Asked before it enters the log. [`Catalogue::apply`] takes what is in the
    /// log as builds before took it, as each member has to come to the same.
    pub fn is_possible(&self) -> bool {
        let brings = match self {
            Command::Found { term, .. } | Command::Took { term, .. } => *term,
            Command::Begin { above, .. } => *above,
            _ => 0,
        };
        brings <= HIGHEST_TERM
    }
}

/// Why a command changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refused {
    /// There is a cluster already.
    Founded,
    /// There is none yet.
    NotFounded,
    /// No member has this number, or it has no copy.
    NoSuchNode,
    /// The name or the kind belongs to another member.
    Taken,
    /// The leader of the data cannot leave.
    Leads,
    /// The command speaks of a term or of a change that is over.
    Late,
    /// The command names a term that no cluster comes to.
    NoSuchTerm,
}

/// The state that all members agree on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Catalogue {
    members: BTreeMap<NodeId, Member>,
    phase: Option<Phase>,
    policies: Policies,
    wanted: usize,
    promised: usize,
    degraded: bool,
    /// Counts what takes from `promised`, so that a report from before is known.
    change: u64,
    /// The term of the last leader; none: there was no choice since a build that did not note it.
    #[serde(default)]
    led: Option<u64>,
    #[serde(default)]
    lost: Option<Lost>,
}

/// A fail-over that may have lost commits that were acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// The term that began with it.
    pub term: u64,
    /// Commits that were acknowledged earlier than this before the fail-over are there, in milliseconds.
    pub within: u64,
}

impl Catalogue {
    /// All members by number.
    pub fn members(&self) -> &BTreeMap<NodeId, Member> {
        &self.members
    }

    /// The leader of the data; `None` before the cluster is founded.
    pub fn phase(&self) -> Option<Phase> {
        self.phase
    }

    pub fn policies(&self) -> &Policies {
        &self.policies
    }

    /// How many replicas the primary waits for.
    pub fn wanted(&self) -> usize {
        self.wanted
    }

    /// How many replicas hold each commit that was acknowledged.
    pub fn promised(&self) -> usize {
        self.promised
    }

    /// Whether `wanted` was lowered for the time being.
    pub fn degraded(&self) -> bool {
        self.degraded
    }

    /// The number that [`Command::Covered`] names.
    pub fn change(&self) -> u64 {
        self.change
    }

    /// While a leader is chosen: the term of the one before.
    pub fn led(&self) -> Option<u64> {
        self.led
    }

    /// The last fail-over that may have lost commits.
    pub fn lost(&self) -> Option<Lost> {
        self.lost
    }

    /// The leader of the data; while one is chosen, the one before.
    pub fn leader(&self) -> Option<NodeId> {
        match self.phase? {
            Phase::Leading { node, .. } => Some(node),
            Phase::Choosing { before, .. } => Some(before),
        }
    }

    /// Whether the copy of this member counts: commits may wait for it, its answer is needed at a fail-over, and it may be named.
    pub fn counts(&self, member: &Member) -> bool {
        match member.kind {
            Kind::Server => true,
            Kind::Site => self.policies.sites_may_lead,
            Kind::Witness => false,
        }
    }

    /// The copies that count beside that of this node.
    pub fn replicas_of(&self, primary: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        let copies = self.members.iter().filter(|(_, m)| self.counts(m));
        copies.map(|(id, _)| *id).filter(move |id| *id != primary)
    }

    /// How many copies count beside that of the leader.
    pub fn replicas(&self) -> usize {
        self.leader()
            .map_or(0, |node| self.replicas_of(node).count())
    }

    /// Whether this member may vote: a site only where it may lead, or leads.
    pub fn may_vote(&self, node: NodeId) -> bool {
        let far = |m: &Member| m.kind == Kind::Site && !self.policies.sites_may_lead;
        let member = self.members.get(&node);
        member.is_some_and(|m| !far(m) || self.leader() == Some(node))
    }

    /// Whether all members but this one are sites that do not count: nothing can be named behind its back.
    pub fn is_alone(&self, node: NodeId) -> bool {
        let mut others = self.members.keys().filter(|id| **id != node);
        others.all(|id| !self.may_vote(*id))
    }

    /// The voters: one member, or three; never two, as two cannot lose one. Present voters stay, then witnesses, then servers by number, then sites.
    pub fn voters(&self, now: &BTreeSet<NodeId>) -> BTreeSet<NodeId> {
        let rank = |id: NodeId, kind: Kind| {
            let kind = match kind {
                Kind::Witness => 0,
                Kind::Server => 1,
                Kind::Site => 2,
            };
            (!now.contains(&id), kind, id)
        };
        let may = self.members.iter().filter(|(id, _)| self.may_vote(**id));
        let mut all: Vec<_> = may.map(|(id, m)| rank(*id, m.kind)).collect();
        all.sort_unstable();
        let several = all.len() >= MOST_VOTERS;
        if !several {
            // A witness alone would be a cluster without data. The data's leader needs nothing but itself for its lease.
            let leader = match self.phase {
                Some(Phase::Leading { node, .. }) => Some(node),
                _ => None,
            };
            let key = |v: &(bool, i32, NodeId)| (v.1 == 0, Some(v.2) != leader, v.0, v.2);
            all.sort_unstable_by_key(key);
        }
        all.truncate(if several { MOST_VOTERS } else { 1 });
        all.into_iter().map(|(_, _, id)| id).collect()
    }

    /// Takes the next entry of the log.
    pub fn apply(&mut self, command: &Command) -> Result<(), Refused> {
        match command {
            Command::Found { node, member, term } => return self.found(*node, member, *term),
            _ if self.phase.is_none() => return Err(Refused::NotFounded),
            Command::Join { node, member } => self.join(*node, member)?,
            Command::Leave { node } => self.leave(*node)?,
            Command::Set { policies, before } => self.set(policies, before.as_ref())?,
            Command::Degrade { term, wanted } => {
                if *wanted >= self.wanted || !self.leads(*term) || self.holds_on() {
                    return Err(Refused::Late);
                }
                self.degraded = true;
                self.wanted = *wanted;
                self.lower(*wanted);
            }
            Command::Restore => self.degraded = false,
            Command::Covered { term, by, change } => self.covered(*term, *by, *change)?,
            Command::Begin { after, above } => self.begin(*after, *above)?,
            Command::HandOver { term, to } => self.hand_over(*term, *to)?,
            Command::Name { node, term, lost } => self.name(*node, *term, *lost)?,
            Command::Took { node, term } => self.took(*node, *term)?,
        }
        self.want();
        Ok(())
    }

    /// Whether this node leads this term, or is to.
    pub fn leads_term(&self, node: NodeId, term: u64) -> bool {
        self.phase == Some(Phase::Leading { node, term })
    }

    fn leads(&self, term: u64) -> bool {
        matches!(self.phase, Some(Phase::Leading { term: now, .. }) if now == term)
    }

    fn found(&mut self, node: NodeId, member: &Member, term: u64) -> Result<(), Refused> {
        if self.phase.is_some() {
            return Err(Refused::Founded);
        }
        self.members.insert(node, member.clone());
        self.phase = Some(Phase::Leading { node, term });
        self.want();
        Ok(())
    }

    fn join(&mut self, node: NodeId, member: &Member) -> Result<(), Refused> {
        let other = |(id, m): (&NodeId, &Member)| *id != node && m.name == member.name;
        let changed = self.members.get(&node).map(|m| m.kind) != Some(member.kind);
        if self.members.iter().any(other) || (self.members.contains_key(&node) && changed) {
            return Err(Refused::Taken);
        }
        self.members.insert(node, member.clone());
        Ok(())
    }

    fn leave(&mut self, node: NodeId) -> Result<(), Refused> {
        let Some(member) = self.members.get(&node) else {
            return Err(Refused::NoSuchNode);
        };
        let counts = self.counts(member);
        // Until a leader is named, each copy may be the one that is needed.
        let chosen = matches!(self.phase, Some(Phase::Choosing { .. }));
        if self.leader() == Some(node) || (chosen && counts) {
            return Err(Refused::Leads);
        }
        if counts && !env::fault::planted("leave.stays_promised") {
            self.lower(self.promised.saturating_sub(1));
        }
        self.members.remove(&node);
        Ok(())
    }

    fn set(&mut self, policies: &Policies, before: Option<&Policies>) -> Result<(), Refused> {
        let counts = policies.synchronous_replicas != self.policies.synchronous_replicas;
        let chosen = matches!(self.phase, Some(Phase::Choosing { .. }));
        // Members that did not agree on a lease before hold longer ones.
        let lease = policies.lease != self.policies.lease && self.members.len() > 1;
        let late = |before: &Policies| *before != self.policies || lease;
        let sites = policies.sites_may_lead != self.policies.sites_may_lead;
        // Where nothing is promised, one more copy that answers takes nothing from what is.
        let sites_late = sites && chosen && (self.promised > 0 || !policies.sites_may_lead);
        if before.is_some_and(late) || (counts && chosen) || sites_late {
            return Err(Refused::Late);
        }
        let is_site = |node: NodeId| self.members.get(&node).map(|m| m.kind) == Some(Kind::Site);
        if sites && !policies.sites_may_lead {
            if self.leader().is_some_and(is_site) {
                return Err(Refused::Leads);
            }
            let all = self.members.keys().filter(|id| is_site(**id)).count();
            if !env::fault::planted("sites.stay_promised") {
                self.lower(self.promised.saturating_sub(all));
            }
        }
        self.policies = policies.clone();
        // The rest says nothing of whether the replicas are there.
        self.degraded &= !(counts || sites);
        Ok(())
    }

    fn covered(&mut self, term: u64, by: usize, change: u64) -> Result<(), Refused> {
        if !self.leads(term) || change != self.change || by > self.wanted {
            return Err(Refused::Late);
        }
        self.promised = self.promised.max(by);
        Ok(())
    }

    fn begin(&mut self, after: u64, above: u64) -> Result<(), Refused> {
        let (before, term) = match self.phase {
            Some(Phase::Leading { node, term }) => (node, term),
            Some(Phase::Choosing { term, before }) => (before, term),
            None => return Err(Refused::NotFounded),
        };
        if term != after {
            return Err(Refused::Late);
        }
        let next = term.max(above).checked_add(1).ok_or(Refused::NoSuchTerm)?;
        if matches!(self.phase, Some(Phase::Leading { .. })) {
            self.led = Some(term);
        }
        self.phase = Some(Phase::Choosing { term: next, before });
        Ok(())
    }

    fn hand_over(&mut self, term: u64, to: NodeId) -> Result<(), Refused> {
        if !self.members.get(&to).is_some_and(|m| self.counts(m)) {
            return Err(Refused::NoSuchNode);
        }
        match self.phase {
            Some(Phase::Leading { node, term: now }) if now == term && node != to => {
                let term = term.checked_add(1).ok_or(Refused::NoSuchTerm)?;
                self.succeed(node, to, term);
                Ok(())
            }
            _ => Err(Refused::Late),
        }
    }

    /// As many copies hold what was acknowledged as before: the old leader now counts in place of the new one. A site that led by hand does not.
    fn succeed(&mut self, before: NodeId, node: NodeId, term: u64) {
        self.phase = Some(Phase::Leading { node, term });
        let old = self.members.get(&before);
        if node != before && !old.is_some_and(|m| self.counts(m)) {
            self.lower(self.promised.saturating_sub(1));
        }
    }

    fn name(&mut self, node: NodeId, term: u64, lost: Option<u64>) -> Result<(), Refused> {
        if !self.members.get(&node).is_some_and(Member::has_copy) {
            return Err(Refused::NoSuchNode);
        }
        match self.phase {
            Some(Phase::Choosing { term: now, before }) if now == term => {
                self.succeed(before, node, term);
                self.lost = lost.map(|within| Lost { term, within }).or(self.lost);
                Ok(())
            }
            _ => Err(Refused::Late),
        }
    }

    fn took(&mut self, node: NodeId, term: u64) -> Result<(), Refused> {
        if !self.members.get(&node).is_some_and(Member::has_copy) {
            return Err(Refused::NoSuchNode);
        }
        if self.phase.is_none_or(|p| p.term() >= term) {
            return Err(Refused::Late);
        }
        self.phase = Some(Phase::Leading { node, term });
        // A promotion by hand asked no quorum.
        self.lower(0);
        Ok(())
    }

    /// From here on only that much is promised, and reports that are under way do not count.
    fn lower(&mut self, promised: usize) {
        self.promised = self.promised.min(promised);
        self.change = self.change.saturating_add(1);
    }

    /// `synchronous_replicas` as it is meant: what is set, or 1 as soon as there is a second copy.
    pub fn meant(&self) -> usize {
        let set = self.policies.synchronous_replicas;
        set.unwrap_or(usize::from(self.replicas() >= 1))
    }

    /// How long commits wait for replicas before the cluster goes on without, in milliseconds; none: as long as it takes. Of two copies the loss of one must
    /// not stop the other one, unless it is set how many replicas must have a commit.
    pub fn degrade_after(&self) -> Option<u64> {
        if self.policies.maintenance {
            return None;
        }
        let unset = self.policies.synchronous_replicas.is_none() && self.replicas() == 1;
        let after = self.policies.degrade_after;
        after.or(unset.then_some(DEGRADE_AFTER))
    }

    /// It was set by hand, maybe while a [`Command::Degrade`] was under way, that commits wait as long as it takes.
    fn holds_on(&self) -> bool {
        let set = &self.policies;
        let for_good = set.synchronous_replicas.is_some() && set.degrade_after.is_none();
        set.maintenance || for_good
    }

    /// Takes over what is meant, unless the cluster is degraded.
    fn want(&mut self) {
        if self.degraded {
            return;
        }
        self.wanted = self.meant();
        if self.wanted < self.promised {
            self.lower(self.wanted);
        }
    }
}
