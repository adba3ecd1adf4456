//! How new the state is that a read sees, in the words that sessions, nodes and the simulation share.
//!
//! Left out on purpose: how a read comes to such a state (`replica::read`, `node::reading`).

use std::time::Duration;

/// What the reads of a session promise (`canon.read_consistency`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Consistency {
    /// Every transaction, of any session at any node, that was acknowledged before the read arrived is seen.
    #[default]
    Strong,
    /// What the session itself has written and read, and its token, are seen.
    Session,
    /// As session, and what is shown is at most this old.
    Bounded(Duration),
    /// Whatever this node shows.
    Eventual,
}

/// How strong reads come about (`canon.read_policy`): the ways that PolarDB-SCC compares, and leases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadPolicy {
    /// Fetched timestamps are shared (SCC §4.1), and a read waits only for what it reads (§4.2).
    #[default]
    Tracker,
    /// The timestamp is what has come to this replica, where it holds a read lease: nothing is fetched. Else as the tracker.
    Lease,
    /// Fetched timestamps are shared; a read waits for the whole log up to its timestamp.
    Lamport,
    /// Each read fetches its own timestamp and waits for the whole log.
    ReadWait,
    /// Nothing is fetched: reads are not strong.
    Stale,
    /// The same, but commits wait until replicas show them (`synchronous_commit = remote_apply`).
    CommitWait,
}

/// What a read asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadWant {
    pub consistency: Consistency,
    pub policy: ReadPolicy,
    /// When its message was taken off the wire: nanoseconds of the clock that fetches are stamped with.
    pub arrived: u64,
}

impl ReadWant {
    /// The time before which everything acknowledged is to be seen; none: nothing is asked of the primary for such a read.
    pub fn since(&self) -> Option<u64> {
        match (self.consistency, self.policy) {
            (_, ReadPolicy::Stale | ReadPolicy::CommitWait) => None,
            (Consistency::Session | Consistency::Eventual, _) => None,
            (Consistency::Strong, _) => Some(self.arrived),
            // What was published when a fetch began that late is at most this old.
            (Consistency::Bounded(age), _) => {
                Some(self.arrived.saturating_sub(age.as_nanos() as u64))
            }
        }
    }

    /// Whether the session asked for a state that no other node is ahead of by more than it allows.
    pub fn is_bound(&self) -> bool {
        !matches!(
            self.consistency,
            Consistency::Session | Consistency::Eventual
        )
    }

    /// Whether the read waits only for what it reads.
    pub fn is_tracked(&self) -> bool {
        self.is_bound() && matches!(self.policy, ReadPolicy::Tracker | ReadPolicy::Lease)
    }
}
