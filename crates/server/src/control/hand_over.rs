//! A planned change of the primary: the old one makes way for a replica that has all of its log, and the members agree on that replica in one step.
//!
//! ```text
//! heir     asked to be promoted ──▶ Question::HandOver
//! primary  the heir keeps up? ──▶ sealed: no commit begins ──▶ the heir has all ──▶ promises the next term, durably ──▶ Command::HandOver
//! heir     applied ──▶ leads the next term;   old primary: starts again as its replica
//! ```
//! **Nothing is lost.** The old primary acknowledges nothing more, which stands on its disk before the members hear of it, and the heir has all by then.
//!
//! **No lease is waited out.** A sealed primary serves no strong read, so the lease that it may hold protects nothing.
//!
//! If the heir or the majority is lost on the way, the old primary proposes that the members choose, and answers them itself. It stands as far as any, so it leads on.
//!
//! | the old primary ends | what comes of it |
//! |---|---|
//! | sealed, and has promised nothing | its lease is over: a fail-over, as without a hand-over. Started before that, it leads on in its term |
//! | has promised the next term | the same. Started again it leads nothing, and proposes that the members choose |
//! | the members have agreed | the heir leads |
//!
//! Left out on purpose: clusters without a majority, where pairs hand over as they do without a control plane.

use super::Seat;
use super::data::make_way;
use super::words::system;
use crate::replication::members::Members;
use ::cluster::question::Question;
use ::cluster::{Command, NodeId, Phase, Refused};
use base::{Error, Position, Result, SqlState};
use node::Role;
use sql::engine::CheckCancelled;
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// How long the heir may take to have what the primary has on its disk, before the primary is sealed and after it.
const CATCH_UP: Duration = Duration::from_secs(2);
/// How often that is looked at.
const LOOK: Duration = Duration::from_millis(1);
/// How often a replica looks whether it leads by now.
const AGAIN: Duration = Duration::from_millis(5);
/// How soon it is known here what the members have agreed on, where the primary says that it was given up.
const SOON: Duration = Duration::from_millis(500);
/// How long the members may take to agree.
const AGREE: Duration = Duration::from_secs(3);

fn not_now(what: String) -> Error {
    Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, what)
}

/// Whether this came to hold in time.
fn in_time(limit: Duration, done: impl Fn() -> bool) -> bool {
    let until = Instant::now() + limit;
    while !done() {
        if Instant::now() > until {
            return false;
        }
        std::thread::sleep(LOOK);
    }
    true
}

impl Seat {
    /// At the primary: makes way for this member. The term that ends, and its last position; none: the heir was lost after the primary was sealed.
    fn make_way_for(&self, to: NodeId) -> Result<(u64, Option<Position>)> {
        let _one = self.changing.lock();
        let place = self.place().ok_or_else(|| system("the server starts"))?;
        let catalogue = self.catalogue().unwrap_or_default();
        let node = &place.node;
        let term = match catalogue.phase() {
            Some(Phase::Leading { node, term }) if Some(node) == self.me() => term,
            _ => return Err(not_now("this node is not the primary".into())),
        };
        if node.role() != Role::Primary || node.term() != term {
            return Err(not_now("this node does not lead yet".into()));
        }
        let heir = catalogue.members().get(&to);
        let heir = heir.filter(|m| m.has_copy());
        let heir = heir.ok_or_else(|| not_now("no such member may lead".into()))?;
        if !catalogue.counts(heir) {
            let what = format!("{} is a site, and sites may not lead", heir.name);
            return Err(
                not_now(what).hint("canon cluster set failover.sites_may_lead=on lets them.")
            );
        }
        let has = |at: Position| {
            let all = node.shipping().followers().into_iter();
            let mut all = all.filter(|f| f.member && f.number == Some(to));
            all.any(|f| f.acked.persisted >= at)
        };
        let now = node.marks().flushed.get();
        if !in_time(CATCH_UP, || has(now)) {
            return Err(not_now(format!(
                "{} does not keep up: it has not all that was on the primary's disk {} s ago",
                heir.name,
                CATCH_UP.as_secs()
            )));
        }
        node.begin_seal()?;
        let whole = in_time(CATCH_UP, || node.sealed_at().is_some_and(&has));
        let last = node.sealed_at().filter(|_| whole);
        env::fault::point("members.hand_over.sealed");
        // From here on this term is over, whatever comes of it.
        make_way(&place, term + 1).map_err(system)?;
        env::fault::point("members.hand_over.promised");
        if let Some(member) = self.member.get() {
            member.step_down(term + 1);
        }
        if last.is_none() {
            warn!(to = %heir.name, "the replica was lost while it was handed over to: the members choose a primary");
        }
        Ok((term, last))
    }

    /// The same, and has the members agree.
    pub(super) async fn hand_over(self: &Arc<Seat>, to: NodeId) -> Result<()> {
        let seat = self.clone();
        let made = tokio::task::spawn_blocking(move || seat.make_way_for(to));
        let (term, last) = made.await.map_err(system)??;
        let member = self.member.get().ok_or_else(|| system("no member"))?;
        let over = || {
            let phase = self.catalogue().and_then(|c| c.phase());
            phase.is_some_and(|p| p.term() > term)
        };
        let agreed = || self.catalogue().is_some_and(|c| c.leads_term(to, term + 1));
        if let Some(last) = last {
            info!(term, %last, "this node hands over");
            let until = Instant::now() + AGREE;
            let mut asks = true;
            while !agreed() && asks && Instant::now() < until {
                match member.propose(Command::HandOver { term, to }).await {
                    Some(Ok(())) => {
                        env::fault::point("members.hand_over.agreed");
                        if env::fault::planted("hand_over.done_is_refused") {
                            return Err(not_now("the answer is another one".into()));
                        }
                        return Ok(());
                    }
                    // The term is over: the answer to an earlier proposal was lost, or the members choose. Which one is known here soon.
                    Some(Err(Refused::Late)) => asks = !over(),
                    Some(Err(_)) => asks = false,
                    None => {}
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            if agreed() {
                return Ok(());
            }
        }
        // This node leads no more, and no other one was agreed on: they are to choose, which this node may have to wait for. Refused as late where they
        // do already.
        let seat = self.clone();
        self.runtime.spawn(async move {
            let Some(member) = seat.member.get() else {
                return;
            };
            let (after, above) = (term, 0);
            while member
                .propose(Command::Begin { after, above })
                .await
                .is_none()
            {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
        let what = "the hand-over was given up on the way: the members choose a primary";
        Err(not_now(what.into()))
    }

    /// At a replica: has the primary hand over to this node. None: the members do not decide that, as it is no member or there is no majority.
    pub(super) fn become_primary(
        &self,
        wait: Duration,
        check_cancelled: CheckCancelled<'_>,
    ) -> Option<Result<Option<String>>> {
        let (me, catalogue) = (self.me()?, self.catalogue()?);
        if self.may_promote(check_cancelled).is_ok() {
            return None;
        }
        let Some(Phase::Leading { node, term }) = catalogue.phase() else {
            let what = "the members are about to agree on a primary";
            return Some(Err(not_now(what.into())));
        };
        let address = catalogue.members().get(&node).map(|m| m.address.clone())?;
        Some(self.be_handed(me, (node, &address), term, wait, check_cancelled))
    }

    /// Whether another member than this one leads a term above this one.
    fn another_leads(&self, me: NodeId, above: u64) -> bool {
        match self.catalogue().and_then(|c| c.phase()) {
            Some(Phase::Leading { node, term }) => node != me && term > above,
            _ => false,
        }
    }

    /// Whether the leader of this term leads still, by what is known here.
    fn goes_on_in(&self, term: u64) -> bool {
        let phase = self.catalogue().and_then(|c| c.phase());
        matches!(phase, Some(Phase::Leading { term: now, .. }) if now == term)
    }

    fn be_handed(
        &self,
        to: NodeId,
        (leads, address): (NodeId, &str),
        term: u64,
        wait: Duration,
        check_cancelled: CheckCancelled<'_>,
    ) -> Result<Option<String>> {
        let seat = self.shared().ok_or_else(|| system("the server stops"))?;
        let place = self.place().ok_or_else(|| system("the server starts"))?;
        let primary = self.node_at(address)?;
        let question = Question::HandOver { to }.encode();
        let (told, heard) = std::sync::mpsc::channel();
        self.runtime.spawn(async move {
            _ = told.send(seat.roads.ask_once(&primary, leads, &question).await);
        });
        let until = Instant::now() + wait;
        let mut refused: Option<(Error, Instant)> = None;
        tokio::task::block_in_place(|| {
            loop {
                let node = &place.node;
                if node.role() == Role::Primary && node.term() > term {
                    if env::fault::planted("hand_over.answer_lost") {
                        return Err(system("no answer"));
                    }
                    return Ok(Some(format!(
                        "Promoted: term {}. The old primary handed over; nothing is lost.",
                        node.term()
                    )));
                }
                if Instant::now() > until {
                    return Ok(None);
                }
                if self.another_leads(to, term) {
                    return Err(not_now("the members have named another node".into()));
                }
                check_cancelled().map_err(|e| e.detail("The promotion goes on."))?;
                // The members may name this node all the same, where the primary has made way already.
                if let Some((e, at)) = &refused
                    && at.elapsed() > SOON
                    && self.goes_on_in(term)
                {
                    return Err(e.clone());
                }
                match heard.recv_timeout(AGAIN) {
                    Ok(Err(e)) => refused = Some((e, Instant::now())),
                    // The old primary starts again at once, and its answer may be lost with it.
                    Ok(Ok(_)) | Err(RecvTimeoutError::Timeout) => {}
                    // The answer was here before.
                    Err(RecvTimeoutError::Disconnected) => std::thread::sleep(AGAIN),
                }
            }
        })
    }
}
