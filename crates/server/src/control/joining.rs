//! A server that joins: it finds the primary, follows it, and then asks to be a member.
//!
//! It asks only when it follows. So a new member is not waited for while its copy is on the way, and its vote is there from the first moment.

use super::Seat;
use super::leaving::CHANGE;
use super::seat::with_wanted;
use super::words::{Identity, NO_CLUSTER, system};
use crate::config::Config;
use crate::replication::members::Members;
use crate::replication::{Place, Primary, bootstrap};
use ::cluster::question::{Joined, Joining, Question, SITES, level};
use ::cluster::{Catalogue, Command, Kind, Member, NodeId};
use base::{Error, Result, SqlState};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// Between looks for the primary at a start.
const LOOK: Duration = Duration::from_millis(500);
/// How often it is said what the start waits for.
const REMIND: Duration = Duration::from_secs(30);
/// Between two tries.
const AGAIN: Duration = Duration::from_millis(300);
/// The same of a site, which serves meanwhile.
const SITE_AGAIN: Duration = Duration::from_secs(1);

/// Where the primary of the cluster is that this node is of; none: it is not known there now.
pub(super) async fn primary_at(seat: &Arc<Seat>, address: &str) -> Result<Option<String>> {
    let question = Question::Primary {
        you: address.to_owned(),
    };
    seat.question(address, &question).await
}

/// The leader of the data, or the one before, by this catalogue.
fn led_by(catalogue: &Option<Catalogue>) -> Option<NodeId> {
    catalogue.as_ref()?.leader()
}

impl Seat {
    /// The configuration that the server is to start with now. A server that joins waits here until it knows the primary.
    pub async fn arrange(self: &Arc<Seat>) -> Result<Config> {
        self.moved.send_replace(false);
        if let Some(term) = self.led_by_hand()? {
            warn!(
                term,
                "this node was promoted by hand, and the members do not know it yet: it starts as the primary"
            );
            *self.target.lock() = None;
            return Ok(self.named(None));
        }
        if let Some(primary) = self.by_hand() {
            let (primary, target) = primary.clone().movable();
            *self.target.lock() = Some(target);
            return Ok(self.named(Some(primary)));
        }
        if self.is_guest() {
            return self.arrange_guest().await;
        }
        let mut said: Option<Instant> = None;
        loop {
            let catalogue = self.newest_catalogue();
            match led_by(&catalogue) {
                Some(node) if Some(node) == self.me() => return Ok(self.as_primary(&catalogue)),
                // It may have been ended while it founded a cluster: the next server that joins has it done.
                None if self.asked_to_join().is_none() => return Ok(self.as_primary(&None)),
                _ => {}
            }
            let at = self.primary_of(&catalogue).await.unwrap_or_else(|e| {
                if said.is_none_or(|at| at.elapsed() >= REMIND) {
                    said = Some(Instant::now());
                    warn!(
                        "this server does not serve yet, as it is not said which node is the primary: {e}"
                    );
                }
                None
            });
            if let Some(at) = at {
                let (primary, target) = self.primary_there(&at)?.movable();
                target.says_number(self.number);
                *self.target.lock() = Some(target);
                info!(primary = %at, "this server follows");
                return Ok(with_wanted(self.named(Some(primary)), &catalogue));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Where the primary is by this catalogue; without one, as the server says that this one is to join.
    async fn primary_of(self: &Arc<Seat>, catalogue: &Option<Catalogue>) -> Result<Option<String>> {
        if self.is_guest() {
            return Ok(self.primary_of_guest().await);
        }
        match (led_by(catalogue), catalogue, self.asked_to_join()) {
            (Some(node), Some(c), _) => Ok(c.members().get(&node).map(|m| m.address.clone())),
            (_, _, Some(join)) => primary_at(self, &join).await,
            _ => Ok(None),
        }
    }

    /// Ready when the primary is another one than this, from which the database is to be copied.
    pub async fn has_another_primary(self: &Arc<Seat>, than: &Primary) {
        loop {
            tokio::time::sleep(LOOK).await;
            // One that does not answer, or does not know, says nothing against it.
            let Ok(Some(at)) = self.primary_of(&self.newest_catalogue()).await else {
                continue;
            };
            if Primary::parse(&at).is_ok_and(|p| p.address() != than.address()) {
                return info!(primary = %at, "the primary is another one now");
            }
        }
    }

    /// The term that this node leads though the members know of none so late.
    fn led_by_hand(&self) -> Result<Option<u64>> {
        let joining = |i: &Identity| i.joined.is_some().then_some(i.heard);
        let agreed = match self.newest_catalogue().and_then(|c| c.phase()) {
            Some(phase) => Some(phase.term()),
            // It was about to join, and the members have told it nothing yet.
            None => self.identity.get().and_then(joining),
        };
        let Some(agreed) = agreed else {
            return Ok(None);
        };
        let led = tokio::task::block_in_place(|| bootstrap::led_term(&self.config))?;
        Ok(led.filter(|own| *own > agreed))
    }

    /// The server runs, and is about to take clients.
    pub fn attach(self: &Arc<Seat>, place: &Arc<Place>) {
        *self.place.lock() = Arc::downgrade(place);
        self.guard(place);
        let members: Arc<dyn Members> = self.clone();
        _ = place.senders.control.set(members);
        // No read lease reaches beyond the lease of the primary that grants it.
        let guard = Arc::downgrade(self);
        let leads = move |until| guard.upgrade().is_some_and(|seat| seat.leads_until(until));
        place.node.shipping().lend_while(Box::new(leads));
        self.fit(place);
        self.warn_of_own_settings();
        if self.is_guest() {
            let place = Arc::downgrade(place);
            self.runtime.spawn(self.clone().be_guided(place));
            let seat = self.clone();
            // Ends with the process, if it is never taken in; a second server of the process has none of its own.
            if !seat.asks.swap(true, Ordering::SeqCst) {
                self.runtime.spawn(async move { join(&seat).await });
            }
        } else if self.identity.get().is_none_or(|i| i.joined.is_some())
            && self.asked_to_join().is_some()
        {
            let seat = self.clone();
            // Ends when this node is a member, in the first server of the process that can follow.
            self.runtime.spawn(async move { join(&seat).await });
        } else if self.identity.get().is_some_and(|i| i.joined.is_none()) {
            self.runtime.spawn(self.clone().tell_address());
        }
    }
}

impl Seat {
    /// What the members have agreed on counts, not what this server was started with.
    fn warn_of_own_settings(&self) {
        let Some(catalogue) = self.catalogue().filter(|c| c.phase().is_some()) else {
            return;
        };
        let own_loss = self.own_policies().max_loss;
        let agreed_loss = catalogue.policies().max_loss;
        if own_loss.is_some() && own_loss != agreed_loss {
            let agreed = agreed_loss.map_or("none".into(), |ms| format!("{ms}ms"));
            warn!(
                "failover.max_loss is not taken: the cluster has a setting of its own ({agreed}), which canon cluster set changes"
            );
        }
        let own_lease = self.own_policies().lease;
        let agreed_lease = catalogue.policies().lease;
        if own_lease != agreed_lease {
            let agreed = agreed_lease.unwrap_or(1500);
            warn!(
                "failover.lease is another one at this server than that of the cluster ({agreed}ms), which was made when it was founded"
            );
        }
        let agreed = catalogue.policies().synchronous_replicas;
        if let Some(own) = self.config.synchronous_said
            && agreed != Some(own as usize)
        {
            let agreed =
                agreed.map_or("that it follows from the members".into(), |n| n.to_string());
            warn!(
                "synchronous_replicas = {own} is not taken: the cluster has a setting of its own ({agreed}), which canon cluster set changes"
            );
        }
    }
}

/// Whether this node was a member, and is none as far as is known here.
fn is_gone(seat: &Seat) -> bool {
    let founded = seat.catalogue().filter(|c| c.phase().is_some());
    let is_member = |c: Catalogue| seat.me().is_some_and(|me| c.members().contains_key(&me));
    seat.was_joined() && founded.is_some_and(|c| !is_member(c))
}

/// Says once why.
fn not_yet(why: String, said: &mut String) {
    if why != *said {
        warn!("not joined yet: {why}");
        *said = why;
    }
}

/// Joins, and tries until it has.
pub(super) async fn join(seat: &Arc<Seat>) {
    let mut said = String::new();
    loop {
        let founded = seat.catalogue().is_some_and(|c| {
            let own = seat.own_address();
            let me = seat.me().and_then(|id| c.members().get(&id));
            me.is_some_and(|m| own.is_none_or(|own| own == m.address))
        });
        // One that was taken out asks no more: it is about to hear so.
        if founded || is_gone(seat) {
            return;
        }
        match try_join(seat).await {
            Ok(None) => {
                if let Err(e) = seat.has_joined() {
                    warn!("{}", e.fields().message);
                }
                return info!("this node is a member of the cluster");
            }
            // One that served its clients before it was taken in goes on.
            Ok(Some(why)) if !seat.is_adopted() && seat.kind != Kind::Site => {
                return seat.is_refused(&why);
            }
            Ok(Some(why)) => not_yet(why, &mut said),
            Err(e) => not_yet(e.fields().message.to_string(), &mut said),
        }
        tokio::time::sleep(match seat.is_guest() {
            true => SITE_AGAIN,
            false => AGAIN,
        })
        .await;
    }
}

impl Seat {
    /// An error where the node at this address does not take a site in. A build of a lower level would count its copy.
    async fn takes_sites(&self, address: &str) -> Result<()> {
        let level: u32 = self.question(address, &Question::Level).await?;
        if level < SITES {
            let what = format!("the build of {address} does not know sites as members");
            return Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, what));
        }
        match self.question(address, &Question::RunsItself).await? {
            true => Ok(()),
            false => Err(Error::new(
                SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                NO_CLUSTER,
            )),
        }
    }

    /// This node has a number from now on, if it had none, and is to join there. It is asked to, or is to be promoted by hand before it could ask: its next start
    /// has to know that what it leads is its own then.
    pub(super) async fn begin_to_join(self: &Arc<Seat>, first: String) -> Result<()> {
        let _one = self.founding.lock().await;
        if self.identity.get().is_some() {
            return Ok(());
        }
        let identity = Identity {
            node: self.number,
            joined: Some(first),
            witness: self.kind == Kind::Witness,
            site: self.kind == Kind::Site,
            adopted: self.config.replica_of.is_some(),
            heard: self.place().map_or(0, |place| place.node.heard_term()),
        };
        self.become_member(identity).await
    }

    /// The members do not take this node in, and never will: it ends. A node that is no member yet forgets its number, so that its next start may do
    /// something else.
    fn is_refused(&self, why: &str) {
        let known = self.catalogue().unwrap_or_default();
        let is_member = self
            .me()
            .is_some_and(|me| known.members().contains_key(&me));
        let forgotten = match is_member || self.was_joined() {
            true => Ok(()),
            false => tokio::task::block_in_place(|| self.forget()),
        };
        if let Err(e) = forgotten {
            warn!("that this node is no member could not be written down: {e}");
        }
        let what = format!("this server cannot join the cluster: {why}");
        let e = Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, what);
        self.end(e.hint("--node-name gives it another name, --cluster-address another address. Without --join it starts alone."));
    }
}

/// The consensus leader itself is at another address now. None: another member decides, or is asked.
async fn tell_own_consensus(seat: &Seat, member: &Member) -> Option<Result<Option<String>>> {
    let (me, running) = (seat.me()?, seat.member.get()?);
    let is_member = seat.catalogue()?.members().contains_key(&me);
    if !is_member || running.consensus().won().is_none() {
        return None;
    }
    match seat.misplaced(me, member).await {
        Ok(None) => {}
        Ok(Some(why)) => {
            let code = SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE;
            return Some(Err(Error::new(code, why)));
        }
        // A machine may not reach itself where others do.
        Err(e) => info!("{}", e.fields().message),
    }
    let (node, member) = (me, member.clone());
    let _one = seat.noting.lock().await;
    // As where another one joins.
    let join = running.propose(Command::Join { node, member });
    let said = tokio::time::timeout(CHANGE, join).await.ok().flatten();
    Some(match said {
        Some(Ok(())) => Ok(None),
        Some(Err(why)) => Ok(Some(format!("{why:?}"))),
        None => Err(system("the members are about to agree on a leader")),
    })
}

/// None: it has joined. Some: it never will, and why.
async fn try_join(seat: &Arc<Seat>) -> Result<Option<String>> {
    if seat.kind != Kind::Witness {
        let place = seat.place().ok_or_else(|| system("the server starts"))?;
        let follows = place.follow.as_ref().is_some_and(|f| f.is_connected());
        if !follows && !seat.leads_by_catalogue() {
            return Err(system("the primary is not followed yet"));
        }
    }
    if env::fault::planted("join.not_asked") {
        return Err(system("planted"));
    }
    let member = seat.as_member()?;
    if let Some(done) = tell_own_consensus(seat, &member).await {
        return done;
    }
    let mut at = seat.doors();
    let first = at.last().cloned();
    let first = first.ok_or_else(|| system("it is not said where"))?;
    let mut why = system("the members name each other as the leader");
    // Each node may name another one.
    for _ in 0..8 {
        let Some(address) = at.pop() else { break };
        if seat.is_guest()
            && let Err(e) = seat.takes_sites(&address).await
        {
            why = e;
            continue;
        }
        seat.begin_to_join(first.clone()).await?;
        let node = seat.me().ok_or_else(|| system("it has no number"))?;
        let question = Question::Join(Joining {
            you: address.clone(),
            node,
            member: member.clone(),
            level: level(),
        });
        match seat.question(&address, &question).await {
            Ok(Joined::Yes) => return Ok(None),
            Ok(Joined::Elsewhere(there)) => at.push(there),
            Ok(Joined::Later) => why = system("the members are about to agree on a leader"),
            Ok(Joined::Never(why)) => return Ok(Some(why)),
            // What a node has said counts more than that another one is not reached.
            Err(e) if why.code() != SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE => why = e,
            Err(_) => {}
        }
    }
    Err(why)
}
