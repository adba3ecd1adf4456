//! A node changes its role: a replica becomes the primary of a new term, a primary hands over.
//!
//! **Promotion.** The replica takes in what it has received, ends replay, writes the new term with its start (the last position it has)
//! into its directory, and opens the order behind it. What an old primary has after that position is not part of the history any
//! more (`wal::DataDir::set_aside`).
//!
//! **Handing over.** The order closes: no commit gets a position any more. When everything that had one is flushed, the last
//! position is final, and a replica that has it may be promoted without losing anything. Should that one be lost before it has begun
//! its term, the old primary leads again, in a term of its own ([`Node::lead_again`]).

use base::{Error, Position, Result, SqlState};
use replica::ship::next_term;
use std::sync::atomic::Ordering;
use std::time::Duration;
use txn::CommitOrder;
use wal::LogWriter;

use crate::node::{LOOK, Node, Shared};

/// How long a term that does not begin is tried to be taken off the disk.
const TAKE_BACK: Duration = Duration::from_secs(10);

/// Where a node's history comes from. What may run at the node is its topology's to say (`topology`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Role {
    /// From its own order of commits.
    Primary,
    /// From a primary that it follows.
    Replica,
    /// From its own order, which is closed: it was the primary and has handed over.
    Sealed,
}

impl Role {
    pub(crate) fn of(raw: u8) -> Role {
        match raw {
            0 => Role::Primary,
            1 => Role::Replica,
            _ => Role::Sealed,
        }
    }

    /// As shown to users.
    pub fn name(self) -> &'static str {
        match self {
            Role::Primary => "primary",
            Role::Replica => "replica",
            Role::Sealed => "sealed",
        }
    }
}

/// What a promotion did.
#[derive(Clone, Copy, Debug)]
pub struct Promoted {
    pub term: u64,
    /// The new term begins after this position.
    pub start: Position,
}

/// Which replica takes over from a primary that hands over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heir {
    /// The one that asked.
    This,
    /// Another one, which was first.
    Other(String),
}

fn wrong_role(what: &str, role: Role) -> Error {
    let what = format!("{what}: this node is {}", role.name());
    Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, what)
}

impl Node {
    /// What this node is now.
    pub fn role(&self) -> Role {
        self.shared().role()
    }

    /// Makes this replica the primary of a new term. Stop the receiver first: what comes later is not taken.
    pub fn promote(&self) -> Result<Promoted> {
        self.promote_as(None)
    }

    /// The same in the term that the cluster's members have agreed on; none: in one that no other node draws.
    pub fn promote_as(&self, named: Option<u64>) -> Result<Promoted> {
        let shared = self.shared();
        let _one_at_a_time = shared.changing_role.lock();
        let Some(following) = shared.following() else {
            return Err(wrong_role("only a replica can be promoted", shared.role()));
        };
        if following.own_log.is_full() {
            return Err(Error::new(
                SqlState::DISK_FULL,
                "cannot promote this replica: what it has received waits for room on its disk",
            ));
        }
        self.may_begin(named, self.heard_term())?;
        following.finish();
        let log = self.join_follower()?;
        if let Some(e) = following.failure() {
            return Err(e);
        }
        let start = following.marks.received.get().max(log.last());
        following.tick(start);
        // Who reads looks at it, and does not wait until replay has ended.
        let replay = following.replay.write().take();
        if let Some(replay) = replay {
            replay.finish(&shared.options.env)?;
        }
        let applied = following.marks.applied.get();
        assert!(
            applied == start,
            "after replay has ended {applied} is installed, {start} was received"
        );
        // What is shown stays where it is until the policy holds for the rest, too.
        shared.manager.marks.installed.raise(start);
        shared.manager.marks.flushed.raise(start);
        let known = following.term().max(shared.term.load(Ordering::SeqCst));
        let known = known.max(self.heard_term());
        // Leases of a primary that is gone, or said to be gone, may be in force.
        let others = named.is_none() && !following.was_handed_over();
        let term = self.begin_term(Some(log), named, known, start, others)?;
        Ok(Promoted { term, start })
    }

    /// A primary that has handed over leads again, in a new term, because the one that it handed over to never took over. Nothing is
    /// lost by that: all that was ever acknowledged stands in this node's log, which has not grown since. Should the other
    /// have taken over all the same, there are two primaries of two terms, as after any forced promotion whose premise was false.
    ///
    /// It waits for what has a position to be on the disk. `check_cancelled` is asked every few milliseconds; an error of it leaves all as it was.
    /// `named`: as for [`Node::promote_as`].
    pub fn lead_again(
        &self,
        named: Option<u64>,
        check_cancelled: &dyn Fn() -> Result<()>,
    ) -> Result<Promoted> {
        let shared = self.shared();
        let _one_at_a_time = loop {
            check_cancelled()?;
            if let Some(held) = shared.changing_role.try_lock_for(LOOK) {
                break held;
            }
        };
        if shared.role() != Role::Sealed {
            let what = "only a primary that has handed over can lead again";
            return Err(wrong_role(what, shared.role()));
        }
        self.may_begin(named, self.heard_term())?;
        self.wait_until_flushed(check_cancelled)?;
        let start = shared.manager.marks.flushed.get();
        let known = shared.term.load(Ordering::SeqCst).max(self.heard_term());
        let term = self.begin_term(None, named, known, start, named.is_none())?;
        shared.dir.unseal().map_err(crate::errors::failed)?;
        shared.deposed.store(false, Ordering::SeqCst);
        Ok(Promoted { term, start })
    }

    /// Whether a term that was named may begin here.
    fn may_begin(&self, named: Option<u64>, known: u64) -> Result<()> {
        // The members are asked under the term that is named later: each has heard of it before it begins.
        let own = self.terms().last().expect("never empty").0;
        match named {
            Some(term) if term < known || term <= own => Err(Error::new(
                SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("term {term} cannot begin here: term {known} is known"),
            )),
            _ => Ok(()),
        }
    }

    /// Begins the term that is named, or one above `known`. `log`: none when there is a flusher, which has it. `others`: another primary may have granted read
    /// leases until now.
    fn begin_term(
        &self,
        log: Option<LogWriter>,
        named: Option<u64>,
        known: u64,
        start: Position,
        others: bool,
    ) -> Result<u64> {
        // Before anything of the term can be published.
        self.before_leading(others)?;
        let shared = self.shared();
        let env = &shared.options.env;
        let drawn = || next_term(known, env.clock.unix_micros(), env.random.next_u64());
        let term = named.or_else(drawn).ok_or_else(|| {
            Error::new(
                SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("no term is left above {known}, which this node has heard of"),
            )
        })?;
        let (terms, before) = (shared.dir.terms(), self.term());
        let said = shared.dir.lead();
        let begun = match said.and_then(|()| shared.dir.add_term(term, start)) {
            Ok(()) => self.lead(log, term, start),
            Err(e) => Err(crate::errors::failed(e)),
        };
        if begun.is_err() {
            shared.term.store(before, Ordering::SeqCst);
            self.take_back(term, &terms);
        }
        begun.map(|()| term)
    }

    /// The term does not begin after all. Whoever hears of one makes way for it, so none that nobody leads may stay on the disk.
    fn take_back(&self, term: u64, terms: &[(u64, Position)]) {
        let shared = self.shared();
        let clock = &shared.options.env.clock;
        let until = clock.monotonic_nanos() + TAKE_BACK.as_nanos() as u64;
        while let Err(e) = shared.dir.set_terms(terms) {
            if !e.is_retryable() || clock.monotonic_nanos() > until {
                env::alarm!(
                    "canon: the node is not promoted, but term {term} could not be taken off its disk: {e}"
                );
                env::alarm!(
                    "canon: stopping now. If it is started as a replica again, its primary takes no more writes: promote it then, or make it anew"
                );
                std::process::abort();
            }
            clock.sleep(LOOK);
        }
    }

    /// The term is on the disk. Nothing of it is in the log after an error.
    fn lead(&self, log: Option<LogWriter>, term: u64, start: Position) -> Result<()> {
        let shared = self.shared();
        shared.term.store(term, Ordering::SeqCst);
        let manager = &shared.manager;
        manager.raise_oids();
        for t in manager.catalog().tables.values() {
            if t.table.primary().is_none() {
                t.storage.raise_row_id(last_row_id(t));
            }
        }
        // Before anybody gets a position of it.
        if log.is_none() {
            shared.pipeline.set_term(term);
        }
        shared.pipeline.open_after(start.after_promotion(term));
        let region = &shared.pipeline.region;
        let published = || shared.manager.marks.published.get();
        region.lead(shared.dir.cluster(), term, start, published);
        // The term's first commit is empty: from here on this node's log says which term it is of. Nobody else has a position yet.
        let p = &shared.pipeline;
        let (position, ticket) = p.begin()?;
        if let Some(mut log) = log {
            log.set_term(term);
            self.start_flusher(log)?;
        }
        shared.role.store(Role::Primary as u8, Ordering::SeqCst);
        manager.set_standby(false);
        let (heads, data) = base::record::CommitBuilder::new().finish(position, 0);
        p.ready(ticket, heads, data);
        p.shipping.settle();
        Ok(())
    }

    /// Another node's term is known to this one. A primary of an older term takes no more commits from here on; what it has acknowledged
    /// alone (`synchronous_commit = local`) since the newer term began is not part of the history.
    pub fn heard_of_term(&self, term: u64) {
        if term > self.term() && self.role() == Role::Primary {
            self.stop_writing();
        }
    }

    /// A newer term exists somewhere: nothing may be acknowledged here any more, also after a start. Whether that was not known.
    pub fn depose(&self, term: u64) -> bool {
        let shared = self.shared();
        let new = !shared.deposed.swap(true, Ordering::SeqCst);
        self.heard_of_term(term);
        if let Err(e) = shared.dir.hear(term) {
            env::say!("canon: the newer term could not be written down: {e}");
        }
        // What waits for replicas that do not follow any more learns it.
        self.shipping().settle();
        new
    }

    /// See [`Node::depose`].
    pub fn is_deposed(&self) -> bool {
        self.shared().deposed.load(Ordering::SeqCst)
    }

    /// Hands over to the replica of this name, over the connection `id`, unless another was first. That is durable before any replica is told,
    /// so that a start does not forget it; the last position is known when [`Node::sealed_at`] says so.
    pub fn hand_over(&self, id: u64, name: &str) -> Result<Heir> {
        let shared = self.shared();
        let _one_at_a_time = shared.changing_role.lock();
        // The connection has ended: a new term may have begun here meanwhile.
        if !self.shipping().follows(id) {
            return Err(Error::new(
                SqlState::CONNECTION_FAILURE,
                "the replica that asked to be handed over to is gone",
            ));
        }
        match shared.dir.sealed_for().map_err(crate::errors::failed)? {
            Some(other) if other != name => return Ok(Heir::Other(other)),
            Some(_) => {}
            None => shared.dir.seal_for(name).map_err(crate::errors::failed)?,
        }
        self.begin_seal()?;
        // What waits for replicas that do not follow learns it.
        self.shipping().settle();
        Ok(Heir::This)
    }

    /// This primary has lost log that another node holds: it takes no more commits and serves nobody.
    pub fn lose(&self) {
        self.hold(true);
        if self.role() == Role::Primary {
            self.stop_writing();
        }
    }

    fn stop_writing(&self) {
        let shared = self.shared();
        // Before whoever comes after can acknowledge anything.
        shared.pipeline.region.resign();
        shared.pipeline.order.close();
        shared.manager.set_standby(true);
        shared.role.store(Role::Sealed as u8, Ordering::SeqCst);
    }

    /// The last position that this node's log holds, or is about to.
    pub fn log_end(&self) -> Position {
        let flushed = self.marks().flushed.get();
        self.following().map_or(flushed, |f| f.marks.received.get())
    }

    /// Hands over: nothing is committed here any more. The last position, flushed.
    pub fn seal(&self) -> Result<Position> {
        let shared: &Shared = self.shared();
        let _one_at_a_time = shared.changing_role.lock();
        self.begin_seal()?;
        self.wait_until_flushed(&|| Ok(()))?;
        while !self.leases_are_over() {
            shared.options.env.clock.sleep(Duration::from_millis(1));
        }
        Ok(shared.manager.marks.flushed.get())
    }

    /// No commit gets a position any more. What has one is flushed when [`Node::sealed_at`] says so.
    pub fn begin_seal(&self) -> Result<()> {
        match self.role() {
            Role::Replica => return Err(wrong_role("only a primary can hand over", Role::Replica)),
            Role::Sealed => {}
            Role::Primary => self.stop_writing(),
        }
        Ok(())
    }

    /// The last position of a primary that takes no more writes, once it is flushed and its read leases are over.
    pub fn sealed_at(&self) -> Option<Position> {
        let flushed = self.role() == Role::Sealed
            && (self.is_flushed() || env::fault::planted("promote.sealed_unflushed"));
        // Who comes after commits what a holder of a lease of this node does not have.
        let over = flushed && self.leases_are_over();
        over.then(|| self.marks().flushed.get())
    }

    fn is_flushed(&self) -> bool {
        let marks = self.marks();
        let idle = self.shared().pipeline.order.is_idle();
        idle && marks.flushed.get() >= marks.installed.get()
    }

    /// Everything that has a position is in the log. 57P01: the node stops, maybe on a full disk.
    fn wait_until_flushed(&self, check_cancelled: &dyn Fn() -> Result<()>) -> Result<()> {
        let shared = self.shared();
        while !self.is_flushed() {
            if shared.stopping.load(Ordering::SeqCst) {
                return Err(crate::errors::stopping());
            }
            check_cancelled()?;
            shared.options.env.clock.sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

/// The greatest hidden row id in a table without a primary key.
fn last_row_id(table: &txn::TableHandle) -> u64 {
    use std::ops::Bound::Unbounded;
    let guard = store::pin();
    let mut last = Vec::new();
    let backward = store::tree::Direction::Backward;
    let primary = &table.storage.primary;
    primary.scan(Unbounded, Unbounded, backward, 1, &mut last, &guard);
    let key = last.first().map(|r| r.key());
    key.and_then(|k| <[u8; 8]>::try_from(k).ok())
        .map_or(0, u64::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeOptions;

    #[test]
    fn a_hand_over_to_a_replica_that_has_gone_seals_nothing() {
        let scratch = tempfile::tempdir().expect("a directory");
        let node = Node::open(scratch.path(), NodeOptions::default()).expect("a node");
        assert!(node.hand_over(7, "heir").is_err());
        assert_eq!(node.role(), Role::Primary);
        assert_eq!(node.dir().sealed_for().expect("readable"), None);
        let join = |name: &str| node.shipping().join(name, true, "", Position::ZERO, 0);
        let (heir, late) = (join("heir"), join("late"));
        assert_eq!(node.hand_over(heir, "heir").expect("it asks"), Heir::This);
        assert_eq!(node.role(), Role::Sealed);
        let other = node.hand_over(late, "late").expect("it asks");
        assert_eq!(other, Heir::Other("heir".into()));
        let last = node.seal().expect("it is sealed");
        assert_eq!(last, node.marks().flushed.get());
        assert_eq!(node.sealed_at(), Some(node.marks().flushed.get()));
    }
}
