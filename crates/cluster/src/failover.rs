//! Which replica leads next: the decider of the consensus leader.
//!
//! ```text
//! the primary's lease is over --> Propose(Begin) --> applied: Ask each copy under the new term --> enough answers --> Propose(Name)
//! ```
//! **Enough.** The leader's commits are held by `promised` = N of its R replicas. Of any `R - N + 1` replicas one has each commit that was acknowledged, so the most
//! advanced of them has all.
//!
//! **With N = 0** no copy has to have anything, and a fail-over may lose commits. It happens only within `failover.max_loss`, a time. A copy testifies how long ago it had
//! all that its primary had published. So it lacks at most what was acknowledged since, of a primary that acknowledges nothing after its lease. The copy must know the
//! beginning of the last term: else it speaks of an earlier primary. All copies are waited for, up to [`LOSSY`], as one of them may have more, and the old leader has all.
//!
//! **The old leader answers too**, when it comes back in time. It has all that it acknowledged, so its answer alone is enough.
//!
//! **The lease is looked at twice.** [`Command::Begin`] may come into the log late, after the leader has come back and got a lease anew. So a name is proposed only when
//! no lease is left, or when the leader that goes has answered.
//!
//! **Named is not yet led.** The named replica may die before it leads. Its lease is never asked for, so it is over one lease after the naming, and the choice
//! begins again under the next term. Until then what it has stands in its own copy and in those that it was chosen from.
//!
//! **A copy that cannot lead** says so where it testifies: it was named, and could not begin its term. Another copy is named then, one that stands as far. If none
//! does, what it says is left aside, and enough *other* copies have to answer. Of any `R - N + 1` copies beside one that led, one has each commit, whichever of
//! all copies that one is. So nothing that was acknowledged is lost. All are waited for, up to [`UNABLE`]; then the copy that could not lead is named again, as its disk may
//! have room by now.
//!
//! **Sites** are asked as all copies are. Where `sites_may_lead` is off no answer of theirs is needed, and what they say decides nothing. A site may stand further than any
//! server then. What it has beyond them was not acknowledged where a replica has to have each commit, and the site sets it aside as any replica does. One of a later
//! term than the members know was promoted by hand, and counts all the same.
//!
//! **A later term is known.** A promotion by hand draws a term far above those of the members, and a copy that has heard of it promises no lower one. The copy says
//! which term it knows, and the choice begins again above that one. Each copy is waited for then, up to [`BY_HAND`]: the one that leads the later term by hand
//! stands furthest.
//!
//! **Maintenance.** Nothing begins by itself. What was begun ends, and a primary that gave a hand-over up on the way still asks for a choice.
//!
//! A new consensus leader begins anew: it draws another term and asks again. Answers to an earlier question count no more.
//!
//! **A new consensus leader gives the primary its chance.** It may know from the votes that no lease is left, as nothing was granted while it was elected. A primary
//! that is there comes with its request then. It has the time of a lease for that. It has less if it was the consensus leader itself: a majority has missed it for
//! most of a second already.
//!
//! Left out on purpose: sockets and timers. The caller hands in the time, sends what is asked and proposes what is proposed; both may be lost, and
//! [`Failover::tick`] says them again.

use std::collections::{BTreeMap, BTreeSet};

use crate::catalogue::{Catalogue, Command, HIGHEST_TERM, Kind, NodeId, Phase};
use crate::leases::{Before, Grantor, Request, Terms};
use crate::standing::{Answer, Testimony};

/// How long a copy is waited for that may have been promoted by hand, in nanoseconds.
const BY_HAND: u64 = 3_000_000_000;
/// How long all copies are waited for where commits may be lost, in nanoseconds.
const LOSSY: u64 = 300_000_000;
/// How long others are waited for where the copy that would be named could not lead before, in nanoseconds.
const UNABLE: u64 = 1_000_000_000;
/// How long a primary that a majority has missed may take to ask a new consensus leader for its lease, in nanoseconds.
const CHANCE: u64 = 400_000_000;

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Propose this to the consensus.
    Propose(Command),
    /// Ask this copy to promise the term and to say where its log ends.
    Ask { node: NodeId, term: u64 },
}

/// What stands in the way of a fail-over, for `canon status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// There is no other copy.
    NoReplica,
    /// Commits are acknowledged without a replica, and `failover.max_loss` is not set.
    NothingPromised,
    /// Fewer copies answer than are needed.
    Answers { needed: usize, have: usize },
    /// Without the primary fewer votes are there than are needed.
    Votes { needed: usize, have: usize },
    /// Nothing is promised, and this site has what the copies lack that may lead. Sites may not.
    Site(NodeId),
    /// The copies that answer may lack more than `failover.max_loss` allows: commits of so many milliseconds; none: it is not known how many.
    Loss { within: Option<u64> },
    /// `Policies::maintenance`.
    Maintenance,
}

/// The consensus leader's decider. One is made at each election.
#[derive(Clone, Debug)]
pub struct Failover {
    terms: Terms,
    grantor: Grantor,
    elected: u64,
    /// The consensus leader before this one.
    replaced: Option<NodeId>,
    /// The phase as of the last tick.
    seen: Option<Phase>,
    /// Whether the term under which is asked was drawn by this leader.
    own: Option<u64>,
    /// When that term was drawn.
    since: u64,
    answers: BTreeMap<NodeId, Testimony>,
    /// The latest term that a copy has named instead of an answer.
    above: u64,
}

impl Failover {
    /// This node was elected now.
    pub fn elected(terms: Terms, now: u64, before: Before) -> Failover {
        Failover {
            terms,
            grantor: Grantor::elected(terms, before.granted.min(now)),
            elected: now,
            replaced: before.replaced,
            seen: None,
            own: None,
            since: 0,
            answers: BTreeMap::new(),
            above: 0,
        }
    }

    /// The primary asks for its lease. Whether it may be granted, once a majority has confirmed this leader and
    /// [`Failover::still_leads`] holds after that.
    pub fn requested(&mut self, catalogue: &Catalogue, request: Request, now: u64) -> bool {
        let agreed = self.terms.agreed(catalogue.policies().lease);
        let may = Failover::still_leads(catalogue, request) && agreed.fit(request);
        if may {
            self.look(catalogue, now);
            self.grantor.received(now);
        }
        may
    }

    /// Whether the one that asks leads the data. To be looked at again after a majority has confirmed this leader, with all applied that was agreed on before: a leader
    /// that was just elected may have an old catalogue.
    pub fn still_leads(catalogue: &Catalogue, request: Request) -> bool {
        catalogue.phase()
            == Some(Phase::Leading {
                node: request.holder,
                term: request.term,
            })
    }

    /// What a copy says that was asked under this term.
    pub fn answered(&mut self, term: u64, node: NodeId, answer: Answer) {
        match answer {
            Answer::Promised(testimony) if self.own == Some(term) => {
                self.answers.insert(node, testimony);
            }
            Answer::Promised(_) => {}
            // A copy that leads in this term by now, or knows it, was asked twice. No person has promoted it.
            Answer::Later(known) if known <= term => {}
            // One that cannot be says nothing: no term comes after it. The others are asked as before.
            Answer::Later(known) if known > HIGHEST_TERM => {}
            Answer::Later(known) => self.above = self.above.max(known),
        }
    }

    /// What is to be done now. Called after each event, and every [`Terms::every`].
    pub fn tick(&mut self, catalogue: &Catalogue, now: u64) -> Vec<Action> {
        self.look(catalogue, now);
        match catalogue.phase() {
            None => vec![],
            Some(Phase::Leading { node, term }) => {
                let possible = may_begin(catalogue, node).is_ok();
                if possible && self.grantor.over(now) && self.had_its_chance(node, now) {
                    vec![self.begin(term)]
                } else {
                    vec![]
                }
            }
            Some(Phase::Choosing { term, .. }) if self.own != Some(term) || self.above > term => {
                vec![self.begin(term)]
            }
            Some(Phase::Choosing { term, before }) => match self.choose(catalogue, before) {
                Ok((node, _)) if self.waits_for_all(catalogue, before, node, now) => {
                    self.ask(catalogue, term)
                }
                Ok((node, lost)) if self.is_given_up(before) || self.grantor.over(now) => {
                    vec![Action::Propose(Command::Name { node, term, lost })]
                }
                Ok(_) => vec![],
                Err(_) => self.ask(catalogue, term),
            },
        }
    }

    /// The primary has had the time to find this consensus leader.
    fn had_its_chance(&self, primary: NodeId, now: u64) -> bool {
        let missed = self.replaced == Some(primary);
        let chance = match missed {
            true => CHANCE,
            false => self.terms.granted_nanos(),
        };
        now.saturating_sub(self.elected) >= chance
    }

    /// A member that was promoted by hand may have commits that no other copy has, and so may any where nothing is promised. They are waited for, though enough
    /// others have answered. So are others than the one that would be named (`best`), if that could not lead before.
    fn waits_for_all(&self, catalogue: &Catalogue, before: NodeId, best: NodeId, now: u64) -> bool {
        let term = self.own.unwrap_or(0);
        let overtakes = self.above > 0 && self.above.checked_add(1) == Some(term);
        let limit = match (overtakes, catalogue.promised()) {
            (true, _) => BY_HAND,
            _ if self.failed(best) > 0 => UNABLE,
            // The old leader has all.
            (false, 0) if !self.is_given_up(before) => LOSSY,
            (false, _) => 0,
        };
        let long = now.saturating_sub(self.since) >= limit;
        let decides = |id: NodeId| {
            let member = catalogue.members().get(&id);
            overtakes || id == before || member.is_some_and(|m| catalogue.counts(m))
        };
        !long && self.unanswered(catalogue).any(decides)
    }

    fn begin(&self, after: u64) -> Action {
        let above = self.above;
        Action::Propose(Command::Begin { after, above })
    }

    /// The leader that goes has answered, and so holds no lease of its term any more.
    fn is_given_up(&self, before: NodeId) -> bool {
        self.answers.contains_key(&before)
    }

    /// What stands in the way of naming another leader, if the present one were gone.
    pub fn obstacle(&self, catalogue: &Catalogue) -> Option<Obstacle> {
        match catalogue.phase()? {
            Phase::Leading { node, .. } => may_begin(catalogue, node).err(),
            Phase::Choosing { before, .. } => self.choose(catalogue, before).err(),
        }
    }

    /// Takes note of a phase that has changed.
    fn look(&mut self, catalogue: &Catalogue, now: u64) {
        let phase = catalogue.phase();
        if phase == self.seen {
            return;
        }
        let before = std::mem::replace(&mut self.seen, phase);
        match (before, phase) {
            // Begun under this leader's eyes. Should an earlier one have drawn it, its answers went there, and these are asked for anew.
            (
                Some(Phase::Leading { .. } | Phase::Choosing { .. }),
                Some(Phase::Choosing { term, .. }),
            ) => {
                self.own = Some(term);
                self.since = now;
                self.answers.clear();
            }
            // The one that is named gets the time of a lease to ask for its first.
            (Some(_), Some(Phase::Leading { .. })) => {
                self.grantor.received(now);
                self.own = None;
            }
            _ => {}
        }
    }

    fn unanswered<'a>(&'a self, catalogue: &'a Catalogue) -> impl Iterator<Item = NodeId> + 'a {
        let copies = catalogue.members().iter().filter(|(_, m)| m.has_copy());
        let copies = copies.map(|(id, _)| *id);
        copies.filter(|id| !self.answers.contains_key(id))
    }

    fn ask(&self, catalogue: &Catalogue, term: u64) -> Vec<Action> {
        let copies = self.unanswered(catalogue);
        copies.map(|node| Action::Ask { node, term }).collect()
    }

    /// How many tries of this copy to begin a term have failed.
    fn failed(&self, node: NodeId) -> u32 {
        self.answers.get(&node).map_or(0, |said| said.failed)
    }

    /// The copy that leads next, and of how many milliseconds it may lack commits.
    fn choose(
        &self,
        catalogue: &Catalogue,
        before: NodeId,
    ) -> Result<(NodeId, Option<u64>), Obstacle> {
        let by_all = self.choose_by(catalogue, before, |_| true);
        let Ok((best, _)) = by_all else { return by_all };
        // One that has failed less often, if enough of those that have not failed more often say that it has all.
        let all = self.answers.values().map(|said| said.failed);
        let fewer: BTreeSet<u32> = all.filter(|n| *n < self.failed(best)).collect();
        let mut others = fewer
            .into_iter()
            .map(|most| self.choose_by(catalogue, before, |id| self.failed(id) <= most));
        others.find(Result::is_ok).unwrap_or(by_all)
    }

    /// The same by what these copies say.
    fn choose_by(
        &self,
        catalogue: &Catalogue,
        before: NodeId,
        counts: impl Fn(NodeId) -> bool,
    ) -> Result<(NodeId, Option<u64>), Obstacle> {
        let (counts, members) = (&counts, catalogue.members());
        let is_copy = |id: &NodeId| members.get(id).is_some_and(|m| catalogue.counts(m));
        let unasked = env::fault::planted("failover.site_unasked");
        let decides = move |id: &NodeId, said: &Testimony| {
            let by_hand = catalogue.led().is_some_and(|led| said.end.term > led);
            let too = unasked || by_hand || *id == before;
            is_copy(id) || (too && members.get(id).is_some_and(|m| m.has_copy()))
        };
        let answers = || {
            let all = self.answers.iter();
            all.filter(move |(id, said)| decides(id, said) && counts(**id))
        };
        let needed = match env::fault::planted("failover.any_replica") {
            true => 1,
            false => answers_needed(catalogue, before),
        };
        let have = match env::fault::planted("failover.unable_counts") {
            true => self.answers.keys().filter(|id| **id != before).count(),
            false => {
                let others = answers().filter(|(id, _)| **id != before);
                others.filter(|(id, _)| is_copy(id)).count()
            }
        };
        let whole = answers().any(|(id, _)| *id == before);
        if have < needed && !whole {
            let site = self.site_within(catalogue);
            return Err(site.unwrap_or(Obstacle::Answers { needed, have }));
        }
        let furthest = answers().map(|(_, said)| said.end).max();
        let Some(furthest) = furthest else {
            return Err(Obstacle::Answers { needed, have: 0 });
        };
        let equals = || {
            answers()
                .filter(|(_, said)| said.end == furthest)
                .map(|(id, _)| *id)
        };
        // The old leader goes on, if it stands as far as any: its clients need not move. One that could not lead is the last, and a server comes before a site.
        let rank = |id: &NodeId| {
            let far = members[id].kind == Kind::Site;
            (self.failed(*id), *id != before, far)
        };
        let best = equals().min_by_key(rank).expect("one stands furthest");
        if catalogue.promised() > 0 || whole {
            return Ok((best, None));
        }
        // What any copy has, the one that stands furthest has too.
        let of_last = answers().filter(|(_, said)| Some(said.end.term) == catalogue.led());
        let within = of_last.filter_map(|(_, said)| said.age).min();
        match (within, catalogue.policies().max_loss) {
            (Some(lost), Some(most)) if lost <= most => Ok((best, Some(lost))),
            _ if env::fault::planted("failover.any_loss") => Ok((best, None)),
            _ => Err(self
                .site_within(catalogue)
                .unwrap_or(Obstacle::Loss { within })),
        }
    }

    /// A site that could be named if sites might lead: nothing is promised, and it lacks no more than is allowed.
    fn site_within(&self, catalogue: &Catalogue) -> Option<Obstacle> {
        let most = catalogue.policies().max_loss?;
        let far = |id: &NodeId| {
            let member = catalogue.members().get(id);
            member.is_some_and(|m| m.kind == Kind::Site && !catalogue.counts(m))
        };
        let within = |said: &Testimony| {
            Some(said.end.term) == catalogue.led() && said.age.is_some_and(|age| age <= most)
        };
        let mut all = self.answers.iter();
        let site = all.find(|(id, said)| far(id) && within(said));
        site.filter(|_| catalogue.promised() == 0)
            .map(|(id, _)| Obstacle::Site(*id))
    }

    /// How long leases are.
    pub fn terms(&self) -> Terms {
        self.terms
    }
}

/// What would stand in the way if the primary were lost now. `reached`: members that the consensus leader reaches.
pub fn stands_in_the_way(
    catalogue: &Catalogue,
    voters: &BTreeSet<NodeId>,
    reached: &BTreeSet<NodeId>,
) -> Option<Obstacle> {
    let Phase::Leading { node, .. } = catalogue.phase()? else {
        return None;
    };
    if let Err(obstacle) = may_begin(catalogue, node) {
        return Some(obstacle);
    }
    let left = voters.iter().filter(|v| **v != node && reached.contains(v));
    let (needed, have) = (voters.len() / 2 + 1, left.count());
    if have < needed {
        return Some(Obstacle::Votes { needed, have });
    }
    let needed = answers_needed(catalogue, node);
    let have = catalogue.replicas_of(node).filter(|c| reached.contains(c));
    let have = have.count();
    (have < needed).then_some(Obstacle::Answers { needed, have })
}

/// How many replicas of this leader must answer, so that one of them has all that was acknowledged. With nothing promised one answer is enough.
fn answers_needed(catalogue: &Catalogue, leader: NodeId) -> usize {
    let replicas = catalogue.replicas_of(leader).count();
    match catalogue.promised() {
        0 => 1,
        n => (replicas + 1).saturating_sub(n).max(1),
    }
}

/// Whether a leader may be looked for at all. A choice that cannot end would only take the leader away.
fn may_begin(catalogue: &Catalogue, leader: NodeId) -> Result<(), Obstacle> {
    if catalogue.policies().maintenance {
        return Err(Obstacle::Maintenance);
    }
    if catalogue.replicas_of(leader).next().is_none() {
        return Err(Obstacle::NoReplica);
    }
    if catalogue.promised() == 0 && catalogue.policies().max_loss.is_none() {
        return Err(Obstacle::NothingPromised);
    }
    Ok(())
}
