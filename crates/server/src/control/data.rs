//! What this node's copy of the data does when the members ask it (`cluster::member::Data`).

use super::Seat;
use super::words::system;
use crate::replication::Place;
use ::cluster::member::{Data, Leads};
use ::cluster::waiting::Seen;
use ::cluster::{Answer, Command, End, Kind, NodeId, Phase, Testimony};
use base::{Error, Position};
use node::Role;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// How long what has come may take to be on this node's disk.
const FLUSH: Duration = Duration::from_secs(10);
/// How long a promotion may take until it is asked for anew.
const PROMOTION: Duration = Duration::from_secs(60);
/// A flush that takes longer says that the disk may never answer.
const HUNG: Duration = Duration::from_secs(5);
/// How often it is looked for.
const LOOK: Duration = Duration::from_millis(2);

fn away() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "the server starts")
}

fn failed(e: Error) -> io::Error {
    io::Error::other(e)
}

/// The last term whose beginning this copy has.
fn begun(terms: &[(u64, Position)], end: Position) -> u64 {
    let mut begun = terms.iter().rev().filter(|t| t.1 <= end);
    begun.next().map_or(0, |t| t.0)
}

/// This node makes way for a term that the members agree on; durable when it returns.
pub(super) fn make_way(place: &Place, term: u64) -> io::Result<()> {
    place.node.dir().hear(term).map_err(io::Error::other)?;
    match place.node.following() {
        Some(following) => {
            place.senders.membership.hears(term);
            following.heard_of(term);
        }
        None => place.senders.depose(term),
    }
    Ok(())
}

impl Data for Seat {
    fn promise(&self, term: u64) -> io::Result<Answer> {
        // Before the place is looked at: what waits here for its turn must not hold the node of a server that stops.
        let _one = self.changing.lock();
        let place = self.place().ok_or_else(away)?;
        if self.incomplete.load(Ordering::SeqCst) || place.senders.has_lost().is_some() {
            return Err(io::Error::other("the copy here is not whole"));
        }
        // One of its replicas may show that log is missing here. A promise says that this copy has all that it acknowledged.
        if place.node.is_held() {
            let why = "the replicas are being asked how far they are";
            return Err(io::Error::other(why));
        }
        let node = &place.node;
        let heard = node.heard_term();
        if heard > term || (node.role() == Role::Primary && node.term() >= term) {
            return Ok(Answer::Later(heard.max(node.term())));
        }
        make_way(&place, term)?;
        let mut age = None;
        let end = match (node.following(), &place.follow) {
            (Some(following), Some(follow)) => {
                follow.begin_anew().map_err(failed)?;
                let marks = &following.marks;
                self.wait(&place, "what has come is not on the disk yet", || {
                    following.backlog() == 0 && marks.persisted.get() >= marks.received.get()
                })?;
                age = follow.lacks();
                marks.persisted.get()
            }
            _ => {
                self.wait(&place, "the log is not on the disk yet", || {
                    node.sealed_at().is_some()
                })?;
                node.sealed_at().ok_or_else(away)?
            }
        };
        info!(term, %end, "the members look for a primary: this copy is asked");
        let end = End {
            term: begun(&node.terms(), end),
            position: end.as_u64(),
        };
        // Rounded up: it says how much may be missing.
        let age = age.map(|a| a.as_millis() as u64 + 1);
        let failed = 0;
        Ok(Answer::Promised(Testimony { end, age, failed }))
    }

    fn lead(&self, term: u64) -> io::Result<bool> {
        let _one = self.changing.lock();
        let place = self.place().ok_or_else(away)?;
        let node = &place.node;
        if node.role() == Role::Primary && node.term() == term {
            self.leads_whole();
            return Ok(true);
        }
        if node.heard_term() > term {
            let heard = node.heard_term();
            warn!(
                term,
                heard,
                "the members named this node for a term, and a later one is known here: they are to choose again"
            );
            return Ok(false);
        }
        // A term that begins at a shorter end would hide that log is missing here, and its replicas would cut theirs off.
        if node.is_held() || place.senders.has_lost().is_some() {
            return Err(away());
        }
        // Before anything is acknowledged in this term.
        self.fit(&place);
        if node.role() == Role::Primary {
            make_way(&place, term)?;
        }
        match (node.role(), &place.follow) {
            (Role::Replica, Some(follow)) => {
                let goes_on = || self.goes_on(&place).map_err(|_| system("the server stops"));
                let done = follow.promote_as(term, PROMOTION, &goes_on);
                let done = done.map_err(failed)?;
                done.ok_or_else(|| io::Error::other("the promotion has not ended"))?;
            }
            _ => {
                let until = Instant::now() + FLUSH;
                let in_time = || match Instant::now() < until {
                    true => self.goes_on(&place).map_err(|_| system("the server stops")),
                    false => Err(Error::internal("replicas of the older term do not go")),
                };
                let led = place.senders.lead_again_as(Some(term), &in_time);
                let start = led.map_err(failed)?.start;
                info!(term, %start, "this node leads on, in a new term");
            }
        }
        self.fit(&place);
        self.leads_whole();
        self.warn_of_loss(term);
        Ok(true)
    }

    fn leads(&self, term: u64) -> Leads {
        let Some(place) = self.place() else {
            return Leads::Unknown;
        };
        let node = &place.node;
        match node.role() {
            // Another copy is better than a disk that may never answer. This one leads on where no other may be named.
            Role::Primary if node.flush_takes().is_some_and(|t| t > HUNG) => Leads::Unknown,
            Role::Primary if node.term() == term => Leads::Yes,
            // It is about to stop for good.
            Role::Sealed if place.senders.has_lost().is_some() => Leads::Unknown,
            // It hands over, or promises a later term: what becomes of this one is said then.
            Role::Sealed if self.changing.is_locked() => Leads::Unknown,
            Role::Sealed => Leads::No,
            // Promoted by hand, which the members are told; or about to start as another one's replica.
            Role::Primary | Role::Replica => Leads::Unknown,
        }
    }

    fn follow(&self, leader: NodeId, term: u64) -> io::Result<()> {
        if self.kind == Kind::Witness {
            return Ok(());
        }
        let _one = self.changing.lock();
        let place = self.place().ok_or_else(away)?;
        let node = &place.node;
        let catalogue = self.catalogue().unwrap_or_default();
        let member = catalogue.members().get(&leader);
        let member = member.ok_or_else(|| io::Error::other("the leader is no member any more"))?;
        match (node.role(), &place.follow, &*self.target.lock()) {
            (Role::Replica, Some(follow), Some(target)) => {
                let at = crate::replication::Primary::parse(&member.address);
                let (host, port) = at.map_err(io::Error::other)?.address();
                if target.set(host, port) || !follow.is_connected() {
                    info!(primary = %member.address, term, "this replica follows");
                    follow.begin_anew().map_err(failed)?;
                }
                let node = leader;
                *self.followed.lock() = Some(Phase::Leading { node, term });
            }
            // Promoted by hand, in a term of its own: that is told to the members, and they follow.
            (Role::Primary, ..) if node.term() > term => {}
            _ => {
                warn!(primary = %member.name, term, "another node leads: this one starts again as its replica");
                self.start_again();
            }
        }
        Ok(())
    }

    fn seen(&self) -> (Seen, u64) {
        let nothing = Seen {
            waits: false,
            hold_all: 0,
            keep_up: 0,
            waited: 0,
        };
        let Some(place) = self.place() else {
            return (nothing, 0);
        };
        self.fit(&place);
        self.look_at_copy(&place);
        let node = &place.node;
        let end = node.log_end().as_u64();
        if node.role() != Role::Primary {
            return (nothing, end);
        }
        let (marks, shipping) = (node.marks(), node.shipping());
        let (decided, published) = (marks.decided.get(), marks.published.get());
        let mut watched = self.watched.lock();
        let before = std::mem::replace(&mut watched.decided, decided);
        let published_before = watched.published.replace(published);
        drop(watched);
        // Later commits wait for replicas already. What earlier terms acknowledged stands below this term's start.
        let waited = shipping.replicas();
        let start = node.terms().last().map_or(Position::ZERO, |t| t.1);
        let waits = waited > 0 && before == decided && decided < marks.flushed.get();
        let seen = Seen {
            waits,
            hold_all: shipping.holding(shipping.ruled().max(start)),
            keep_up: published_before.map_or(0, |at| shipping.holding(at)),
            waited,
        };
        (seen, end)
    }

    fn holds_until(&self, term: u64, until: u64) {
        if let Some(place) = self.place()
            && self.guarded.load(Ordering::SeqCst) == term
        {
            place.node.region().lead_until(until);
        }
    }
}

impl Seat {
    /// An error when this server stops, or has stopped: what it waits for may never come, and what waits keeps another server from starting.
    fn goes_on(&self, place: &Arc<Place>) -> io::Result<()> {
        match std::ptr::eq(self.place.lock().as_ptr(), Arc::as_ptr(place)) {
            true => Ok(()),
            false => Err(away()),
        }
    }

    /// Waits until this holds, on a thread that may wait.
    fn wait(&self, place: &Arc<Place>, what: &str, done: impl Fn() -> bool) -> io::Result<()> {
        let until = Instant::now() + FLUSH;
        while !done() {
            self.goes_on(place)?;
            if Instant::now() > until {
                return Err(io::Error::new(io::ErrorKind::TimedOut, what.to_owned()));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Brings this node to what the members agree on: how many replicas it waits for, which of them count, and whether it needs a lease.
    pub(super) fn fit(&self, place: &Place) {
        // One at a time: an older catalogue must not come after a newer one. What was counted by it would be promised.
        let _one = self.fits.lock();
        let (Some(catalogue), Some(member)) = (self.catalogue(), self.member.get()) else {
            return;
        };
        let Some(phase) = catalogue.phase() else {
            return;
        };
        let node = &place.node;
        let name = |id: NodeId| (id, catalogue.members()[&id].name.clone());
        let replicas = catalogue.replicas_of(self.number).map(name).collect();
        let by_hand = node.role() == Role::Primary && node.term() > phase.term();
        let alone = catalogue.is_alone(self.number);
        let own = self.wanted_alone(&catalogue) as usize;
        let (guarded, wanted) = match by_hand {
            true => (0, self.config.synchronous_replicas as usize),
            // Nothing can be named behind its back.
            false if alone => (0, catalogue.wanted().max(own)),
            false => (phase.term().max(node.term()), member.wanted()),
        };
        self.look_for_primary(place, &catalogue);
        if let Some(before) = node.shipping().want_replicas(wanted)
            && node.role() == Role::Primary
        {
            let degraded = catalogue.degraded();
            info!(before, %wanted, degraded, "synchronous_replicas: commits wait for another number of replicas");
        }
        match alone {
            // Those that follow it are no members.
            true => node.shipping().count_all(),
            false => node.shipping().count_only(replicas),
        }
        self.guarded.store(guarded, Ordering::SeqCst);
        let region = node.region();
        match guarded {
            0 => region.lead_until(0),
            // Over, until there is one.
            _ if region.until() == 0 => region.lead_until(1),
            _ => {}
        }
        if by_hand {
            self.tell_promotion(node.term());
        }
    }

    /// A promotion by hand goes into the catalogue, as soon as there is a majority.
    fn tell_promotion(&self, term: u64) {
        let telling = self.watched.lock().telling.clone();
        let (Some(node), Some(leader)) = (self.me(), self.member.get()) else {
            return;
        };
        if leader.consensus().leader().is_none() || telling.swap(true, Ordering::SeqCst) {
            return;
        }
        let Some(seat) = self.shared() else { return };
        self.runtime.spawn(async move {
            if let Some(member) = seat.member.get() {
                _ = member.propose(Command::Took { node, term }).await;
            }
            telling.store(false, Ordering::SeqCst);
        });
    }

    /// This node leads a term that began without synchronous replicas.
    fn warn_of_loss(&self, term: u64) {
        let lost = self.catalogue().and_then(|c| c.lost());
        if let Some(lost) = lost.filter(|l| l.term == term) {
            warn!(
                term,
                milliseconds = lost.within,
                "no replica had to have a commit (synchronous_replicas = 0): acknowledged commits of this time before the fail-over may be lost; what another server has of them is set aside there"
            );
        }
    }

    /// The copy here leads by what the members agree on, so it lacks nothing. A replica may have been handed over to before it had noted that.
    fn leads_whole(&self) {
        if self.incomplete.load(Ordering::SeqCst) {
            self.end_copy();
        }
    }

    /// A copy that was taken anew counts again when it has what its primary had since it is followed.
    fn look_at_copy(&self, place: &Place) {
        if !self.incomplete.load(Ordering::SeqCst) {
            return;
        }
        let (Some(following), Some(follow)) = (place.node.following(), &place.follow) else {
            return;
        };
        // Until the primary has spoken over a stream, what it has claimed is no more than where the stream began.
        let told = follow.told();
        let claimed = follow.claimed();
        let same = told.filter(|_| follow.told() == told);
        let persisted = following.marks.persisted.get();
        if self.watched.lock().copied.look(same, claimed, persisted) {
            self.end_copy();
        }
    }

    /// Whether the phase that the members agree on is this node's leading.
    pub(super) fn leads_by_catalogue(&self) -> bool {
        let phase = self.catalogue().and_then(|c| c.phase());
        matches!(phase, Some(Phase::Leading { node, .. }) if Some(node) == self.me())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_that_was_heard_of_and_has_not_begun_here_is_not_the_last() {
        let p = |n| Position::new(1, n);
        let terms = [(1, Position::ZERO), (4, p(10)), (7, p(20))];
        assert_eq!(begun(&terms, p(9)), 1);
        assert_eq!(begun(&terms, p(10)), 4);
        assert_eq!(begun(&terms, p(19)), 4);
        assert_eq!(begun(&terms, p(30)), 7);
    }
}
