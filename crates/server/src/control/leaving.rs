//! A member that leaves.
//!
//! ```text
//! DIR/control/JOINED  the members have taken this node in
//! DIR/control/LEFT    it is no member any more; a start goes on only with --join, as a new member
//! ```
//! The members agree that the member is gone. It counts for nothing from then on: neither its vote nor its copy. If it runs, it stops. If it was down, it is told
//! when it comes back, and stops. The primary cannot leave: it hands over first.
//!
//! Left out on purpose: taking the data directory away.

use super::Seat;
use super::seat::{LEFT, keep};
use super::words::system;
use ::cluster::catalogue::MOST_VOTERS;
use ::cluster::question::{Joined, Question, level};
use ::cluster::{Command, Member, NodeId, Phase, Refused};
use base::{Error, Result, SqlState};
use sql::engine::{CheckCancelled, MembershipChange};
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// How long the others may take to take the vote of a member that leaves.
const VOTE: Duration = Duration::from_secs(5);
/// How often a member asks whether it is one still.
const ASK: Duration = Duration::from_secs(5);
/// How long a change may take.
pub(super) const CHANGE: Duration = Duration::from_secs(15);
/// How long it may take to take replicas in: each may take long to answer, twice, and to join.
const ADOPT: Duration = Duration::from_secs(60);
/// Most nodes that are asked in a row, as each may name another one.
const MOST: usize = 8;

fn not_now(what: &str) -> Error {
    Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, what)
}

impl Seat {
    /// Does this on a thread that may wait. What happened, in words.
    pub(super) fn change_membership(
        &self,
        change: MembershipChange,
        check_cancelled: CheckCancelled<'_>,
    ) -> Result<String> {
        let seat = self.shared().ok_or_else(|| system("the server stops"))?;
        let (told, heard) = std::sync::mpsc::channel();
        let limit = match change {
            MembershipChange::Leave(_) | MembershipChange::Set(..) => CHANGE,
            MembershipChange::Adopt => ADOPT,
        };
        self.runtime.spawn(async move {
            _ = told.send(match change {
                MembershipChange::Leave(name) => seat.leave(name.as_deref()).await,
                MembershipChange::Adopt => seat.adopt().await,
                MembershipChange::Set(name, value) => seat.set(&name, &value).await,
            });
        });
        let until = Instant::now() + limit;
        tokio::task::block_in_place(|| {
            loop {
                match heard.recv_timeout(Duration::from_millis(10)) {
                    Ok(done) => return done,
                    Err(RecvTimeoutError::Timeout) if Instant::now() < until => check_cancelled()?,
                    Err(_) => return Err(not_now("the members do not answer")),
                }
            }
        })
    }

    async fn leave(self: Arc<Seat>, name: Option<&str>) -> Result<String> {
        let (Some(me), Some(member)) = (self.me(), self.member.get()) else {
            let what = "this server is no member of a cluster that runs itself";
            return Err(not_now(what));
        };
        let catalogue = self.catalogue().unwrap_or_default();
        let node = match name {
            None => Some(me),
            Some(name) => {
                let mut all = catalogue.members().iter();
                all.find(|(_, m)| m.name == name).map(|(id, _)| *id)
            }
        };
        let found = node.and_then(|id| Some((id, catalogue.members().get(&id)?)));
        let Some((node, leaving)) = found else {
            let what = match name {
                Some(name) => format!("member \"{name}\" does not exist"),
                None => "this server is no member any more".to_owned(),
            };
            return Err(Error::new(SqlState::UNDEFINED_OBJECT, what));
        };
        let name = &leaving.name;
        // With two left that may vote the primary alone votes.
        let may_vote = |id: &NodeId| catalogue.may_vote(*id);
        let may = catalogue.members().keys().filter(|id| may_vote(id)).count();
        if may_vote(&node) && may == MOST_VOTERS && !self.reaches_primary().await {
            let what = "the primary, which alone would vote from then on, cannot be reached";
            return Err(
                not_now(what).hint("canon status says what stands in the way of another primary.")
            );
        }
        let copies = catalogue
            .members()
            .iter()
            .filter(|(_, m)| catalogue.counts(m));
        let left = copies.filter(|(id, _)| **id != node).count();
        let others = left.saturating_sub(1);
        let wanted = catalogue.policies().synchronous_replicas;
        if catalogue.counts(leaving) && wanted.is_some_and(|n| n > others) {
            let what = format!(
                "commits would wait for ever: {others} other copies would be left, fewer than synchronous_replicas asks for"
            );
            let first = format!("Before: canon cluster set synchronous_replicas={others}");
            return Err(not_now(&what).hint(first));
        }
        match member.propose(Command::Leave { node }).await {
            None => {
                let what = "it is not known whether the members have agreed on that";
                return Err(not_now(what).hint("canon status lists the members. Ask again."));
            }
            Some(Err(Refused::Leads)) => {
                let what = format!("\"{name}\" is the primary, or may be the next one");
                return Err(not_now(&what)
                    .hint("Make another server the primary first: canon promote --server OTHER."));
            }
            // Another one took it out just now.
            Some(Ok(()) | Err(_)) => {}
        }
        info!(%name, node, "a member has left");
        if node == me {
            let seat = self.clone();
            self.runtime
                .spawn(async move { seat.give_vote_back().await });
        }
        Ok(format!("{name} has left the cluster."))
    }

    /// Whether the members reach the primary, or another one soon.
    async fn reaches_primary(&self) -> bool {
        let Some(member) = self.member.get() else {
            return false;
        };
        let reaches = || {
            let phase = self.catalogue().and_then(|c| c.phase());
            let reached = member.reached();
            matches!(phase, Some(Phase::Leading { node, .. }) if reached.contains(&node))
        };
        let until = Instant::now() + VOTE;
        while !reaches() {
            if Instant::now() > until {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        true
    }

    /// Stops when the others do not need this vote any more.
    async fn give_vote_back(&self) {
        let (Some(me), Some(member)) = (self.me(), self.member.get()) else {
            return;
        };
        let until = Instant::now() + VOTE;
        // One that leads the others knows whether its vote is needed. The only voter would take the cluster's vote with it for good.
        let needed = || {
            let consensus = member.consensus();
            let leads = consensus.leader() == Some(me);
            consensus.voters().contains(&me) && (leads || Instant::now() < until)
        };
        while needed() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.has_left();
    }

    /// This node is no member any more, durably; it is to stop.
    fn has_left(&self) {
        env::fault::point("members.left.before_mark");
        if let Err(e) = tokio::task::block_in_place(|| keep(&self.dir, LEFT, b"")) {
            warn!("that this node has left its cluster could not be written: {e}");
        }
        self.left.send_replace(true);
    }

    /// Ready when this node is no member any more.
    pub async fn left(&self) {
        let mut left = self.left.subscribe();
        // The sender's end is here.
        _ = left.wait_for(|l| *l).await;
    }

    /// Takes note that this node was taken in, and asks now and then whether it is a member still, as long as the process lives.
    pub(super) async fn watch_membership(self: Arc<Seat>) {
        loop {
            let catalogue = self.catalogue().unwrap_or_default();
            let is_member = self
                .me()
                .is_some_and(|me| catalogue.members().contains_key(&me));
            if is_member && let Err(e) = self.has_joined() {
                warn!("{}", e.fields().message);
            }
            if self.is_taken_out().await {
                warn!("this node was taken out of its cluster");
                return self.give_vote_back().await;
            }
            tokio::time::sleep(ASK).await;
        }
    }

    /// Whether the leader of the members says that this node is none of them.
    async fn is_taken_out(self: &Arc<Seat>) -> bool {
        let (Some(me), Some(member)) = (self.me(), self.member.get()) else {
            return false;
        };
        // One that has not joined yet is none, of course.
        if !self.was_joined() {
            return false;
        }
        if member.consensus().leader() == Some(me) {
            // One that was just elected may have an old catalogue, with an old address of its own.
            if member.consensus().confirm().await.is_ok() {
                self.note_level(me, level()).await;
            }
            return false;
        }
        let mut at = self.doors();
        for _ in 0..MOST {
            let Some(address) = at.pop() else {
                return false;
            };
            let asked = self
                .question(
                    &address,
                    &Question::IsMember {
                        node: me,
                        level: level(),
                    },
                )
                .await;
            match asked {
                Ok(Joined::Yes) => return false,
                Ok(Joined::Never(_)) => return true,
                Ok(Joined::Elsewhere(there)) => at.push(there),
                Ok(Joined::Later) | Err(_) => {}
            }
        }
        false
    }

    /// Whether the node of this number, whose build has this level, is a member: the consensus leader knows.
    pub(super) async fn is_member(&self, node: NodeId, level: u32) -> Result<Joined> {
        let member = self.member.get().ok_or_else(|| system("no member"))?;
        if let Some(other) = self.elsewhere() {
            return Ok(other);
        }
        if member.consensus().confirm().await.is_err() {
            return Ok(Joined::Later);
        }
        let catalogue = self.catalogue().unwrap_or_default();
        if !catalogue.members().contains_key(&node) {
            return Ok(Joined::Never("it is no member".to_owned()));
        }
        self.note_level(node, level).await;
        Ok(Joined::Yes)
    }

    /// At the consensus leader: a member has said of which level its build is. A start of another build makes it another one, a lower one too.
    async fn note_level(&self, node: NodeId, level: u32) {
        let another = || {
            let known = self.catalogue()?.members().get(&node)?.clone();
            (known.level != level).then_some(Member { level, ..known })
        };
        if another().is_none() {
            return;
        }
        // A member that joins again meanwhile says another address.
        let Ok(_one) = tokio::time::timeout(CHANGE, self.noting.lock()).await else {
            return;
        };
        let (Some(running), Some(member)) = (self.member.get(), another()) else {
            return;
        };
        let name = member.name.clone();
        let noted = running.consensus().propose(Command::Join { node, member });
        // An error is a leader that changes just now. The member says its level again soon.
        if let Ok(Ok(Ok(()))) = tokio::time::timeout(CHANGE, noted).await {
            info!(%name, level, "a member runs another build than before");
        }
    }
}
