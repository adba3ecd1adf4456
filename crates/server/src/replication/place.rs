//! What a node tells of its place in the cluster: to SQL, to metrics, to probes.
//!
//! A replica that is not connected has no lag: it has no row and no number, and its own metric says that it is not there.

use super::strong_reads::placed_here;
use super::{Follow, Senders, Site, StrongReads};
use base::{Error, Position, Result, SqlState};
use embedded::engine::{ClusterView, no_member};
use node::{Node, Role};
use sql::cluster_status::{ClusterStatus, Receiver, Sender, lsn};
use sql::engine::{CheckCancelled, MembershipChange};
use sql::reading::{Consistency, Kept, ReadPoint, ReadWant, Reads, Touch, Waiting};
use std::sync::Arc;
use std::time::Duration;

/// Microseconds from 1970 to 2000, where SQL's times begin.
const EPOCH: i64 = 946_684_800_000_000;

/// A node with what connects it to others.
pub struct Place {
    pub node: Arc<Node>,
    pub senders: Arc<Senders>,
    /// Absent: it was started as a primary.
    pub follow: Option<Arc<Follow>>,
    /// Commits and rows that were set aside here.
    pub set_aside: (u64, u64),
    /// The same.
    pub strong_reads: Option<Arc<StrongReads>>,
    /// Of a replica that is a site.
    pub site: Option<Arc<Site>>,
}

/// How far a replica is behind.
#[derive(Clone, Debug)]
pub struct ReplicaLag {
    pub name: String,
    pub state: &'static str,
    /// Positions, and epochs, between what the primary has published and what the replica shows.
    pub positions: u64,
    pub epochs: u64,
    /// How old what it shows is; `None`: nothing was heard yet.
    pub seconds: Option<f64>,
}

/// The distance between two positions.
fn behind(ahead: Position, at: Position) -> (u64, u64) {
    let positions = ahead.as_u64().saturating_sub(at.as_u64());
    (positions, ahead.epoch().saturating_sub(at.epoch()))
}

impl Place {
    /// How far each connected replica of this primary is behind.
    pub fn replicas(&self) -> Vec<ReplicaLag> {
        let published = self.node.marks().published.get();
        let lag = |s: super::send::Seen| {
            let (positions, epochs) = behind(published, s.follower.acked.visible);
            ReplicaLag {
                name: s.follower.name,
                state: s.follower.state,
                positions,
                epochs,
                seconds: s.visible_age.map(|m| m as f64 / 1e6),
            }
        };
        let seen = self.senders.seen().into_iter();
        seen.filter(|s| s.follower.member).map(lag).collect()
    }

    /// How far this replica is behind its primary; `None` at a primary.
    pub fn own(&self) -> Option<ReplicaLag> {
        let (follow, following) = (self.follow.as_ref()?, self.node.following()?);
        let marks = &following.marks;
        let ahead = follow.claimed().max(marks.received.get());
        let (positions, epochs) = behind(ahead, marks.visible.get());
        Some(ReplicaLag {
            name: follow.primary().to_string(),
            state: follow.status(),
            positions,
            epochs,
            seconds: follow.age().map(|m| m as f64 / 1e6),
        })
    }

    /// Whether reads here are at most this old; else why not. A primary's always are.
    pub fn is_fresh(&self, max_lag: Duration) -> std::result::Result<(), String> {
        if self.node.role() == Role::Primary {
            return Ok(());
        }
        let Some(own) = self.own() else {
            return Err("this node has handed over".into());
        };
        let follow = self.follow.as_ref().expect("it follows");
        match own.seconds {
            _ if !follow.is_connected() => Err(format!("not connected to {}", own.name)),
            None => Err("nothing was heard from the primary yet".into()),
            Some(s) if s > max_lag.as_secs_f64() => Err(format!(
                "{:.0} ms behind the primary, more than {} ms",
                s * 1e3,
                max_lag.as_millis()
            )),
            Some(_) => Ok(()),
        }
    }

    fn receiver(&self) -> Option<Receiver> {
        let (follow, following) = (self.follow.as_ref()?, self.node.following()?);
        if !follow.is_connected() {
            return None;
        }
        let marks = &following.marks;
        let primary = follow.primary();
        let (host, port) = primary.address();
        Some(Receiver {
            pid: 1,
            status: follow.status(),
            start: follow.began(),
            term: self.node.term(),
            received: marks.received.get(),
            persisted: marks.persisted.get(),
            last_message: follow.heard().map(|m| m - EPOCH),
            host,
            port,
            conninfo: primary.conninfo(),
        })
    }
}

fn not_a_replica() -> Error {
    Error::new(
        SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
        "recovery is not in progress",
    )
    .hint("Recovery control functions can only be executed during recovery.")
}

impl ClusterView for Place {
    fn waits_for(&self) -> String {
        let end = lsn(self.node.recovered_end());
        if self.node.role() == Role::Replica
            && let Some((term, at)) = self.node.diverged()
        {
            let at = lsn(at);
            return format!(
                "it has commits above {at} that the cluster's history, of term {term}, does not have; they are set aside, and a copy of the primary is to come"
            );
        }
        match (&self.follow, self.node.role()) {
            (Some(f), Role::Replica) => {
                let heard = match f.is_connected() {
                    true => "connected",
                    false => "not connected",
                };
                let primary = f.primary();
                format!(
                    "it waits for its primary {primary} ({heard}) to say that all that is here, up to {end}, is published"
                )
            }
            _ if self.node.is_held() => match self.senders.has_lost() {
                Some(why) => why.fields().message.clone(),
                None => "it asks its replicas whether any of them has more than it has".into(),
            },
            _ => {
                let n = self.node.shipping().replicas();
                let there = self.node.shipping().replicas_here();
                format!(
                    "it waits for {n} replicas (synchronous_replicas) to say that they have all that is here, up to {end}; {there} are connected"
                )
            }
        }
    }

    fn cluster_status(&self) -> ClusterStatus {
        let marks = self.node.marks();
        let mut s = ClusterStatus {
            term: self.node.term(),
            current: marks.installed.get(),
            flushed: marks.flushed.get(),
            receiver: self.receiver(),
            ..ClusterStatus::default()
        };
        if let Some(f) = self.node.following() {
            s.received = f.marks.received.get();
            s.replayed = f.marks.visible.get();
            s.replayed_at = self
                .follow
                .as_ref()
                .and_then(|f| f.as_of())
                .map(|m| m - EPOCH);
        }
        let synchronous = self.node.shipping().replicas() > 0;
        for seen in self.senders.seen() {
            let f = seen.follower;
            s.senders.push(Sender {
                pid: f.id as i32,
                user: seen.user,
                name: f.name,
                client_addr: seen.address.map(|a| a.ip().to_string()),
                client_port: seen.address.map(|a| i32::from(a.port())),
                listen: seen.listen.map(|a| a.to_string()),
                member: f.member,
                since: f.connected_micros - EPOCH,
                state: f.state,
                sent: f.sent,
                received: f.acked.received,
                persisted: f.acked.persisted,
                visible: f.acked.visible,
                received_lag: seen.received_age,
                persisted_lag: seen.persisted_age,
                visible_lag: seen.visible_age,
                synchronous: synchronous && f.member,
                replied: Some(f.heard_micros - EPOCH),
            });
        }
        s
    }

    fn unseal(&self, forget: bool, check_cancelled: CheckCancelled<'_>) -> Result<String> {
        self.senders.may_promote(check_cancelled)?;
        self.senders.lead_again(forget, check_cancelled)
    }

    fn change_membership(
        &self,
        change: MembershipChange,
        check_cancelled: CheckCancelled<'_>,
    ) -> Result<String> {
        let control = self.senders.control.get();
        control
            .ok_or_else(no_member)?
            .change(change, check_cancelled)
    }

    fn newer_term_hinted(&self) {
        self.senders.herald.hint();
    }

    fn promote(
        &self,
        force: bool,
        wait: Duration,
        check_cancelled: CheckCancelled<'_>,
    ) -> Result<Option<String>> {
        let follow = self
            .follow
            .as_ref()
            .filter(|_| self.node.following().is_some());
        let follow = follow.ok_or_else(not_a_replica)?;
        let control = self.senders.control.get().filter(|_| !force);
        if let Some(done) = control.and_then(|m| m.take_over(wait, check_cancelled)) {
            return done;
        }
        self.senders.may_promote(check_cancelled)?;
        follow.promote(force, wait, check_cancelled)
    }

    fn read_point(&self, want: &ReadWant, reads: &Reads<'_>) -> ReadPoint {
        if env::fault::planted("bounded.by_arrival")
            && let Consistency::Bounded(most) = want.consistency
            && self.node.role() == Role::Replica
        {
            let age = self.follow.as_ref().and_then(|f| f.age());
            if age.is_some_and(|a| a as u128 <= most.as_micros()) {
                return ReadPoint::Newest;
            }
        }
        match &self.strong_reads {
            Some(f) => f.read_point(want, reads),
            None => placed_here(&self.node, want),
        }
    }

    fn hold(&self, want: &ReadWant) -> Option<Waiting<Kept>> {
        let strong_reads = self.strong_reads.as_ref()?;
        let strong = want.consistency == Consistency::Strong && want.since().is_some();
        strong.then(|| Box::pin(strong_reads.clone().keep()) as Waiting<Kept>)
    }

    fn readable(&self, at: Position, touches: &[Touch], want: &ReadWant) -> Option<Waiting<()>> {
        self.strong_reads.as_ref()?.readable(at, touches, want)
    }

    fn may_serve(&self) -> bool {
        self.senders.may_serve()
    }

    fn arrival(&self) -> u64 {
        self.strong_reads.as_ref().map_or(0, |f| f.now())
    }
}
