//! How fresh a read is to be, in the words that sessions and the engine share.
//!
//! ```text
//! message arrives ──▶ Engine::arrival                  a stamp: fetches that begin later are of use to it
//! statement needs a snapshot ──▶ Engine::read_point    Newest: stand where this node stands (a primary; reads that may be stale)
//!                                                      At(t): a state that this node may not show yet
//! Txn::stand_at(t) ──▶ Engine::readable(t, touches)    nothing of it changed in (visible, t]: read at t; else wait
//! ```
//! What a statement touches is named before it is read (`plan::touches`): the schema first, since plans are made with it, then tables, or
//! rows by their primary keys. See docs/design/fresh-reads.md for the rule and its proof.
//!
//! Left out on purpose: when to give up. That is the session's (`canon.read_timeout`), which drops the future.

use base::{Position, RelId, Result};
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;
use txn::Hold;

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

/// How strong reads come about (`canon.read_policy`): the ways that PolarDB-SCC compares, for comparison. All but the first two are for
/// measurements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadPolicy {
    /// Fetched timestamps are shared (SCC §4.1), and a read waits only for what it reads (§4.2).
    #[default]
    Tracker,
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
    /// [`Engine::arrival`](crate::engine::Engine::arrival) when its message was taken off the wire.
    pub arrived: u64,
}

/// Where a read may stand.
pub enum ReadPoint {
    /// Where this node stands, without further questions.
    Newest,
    /// At this position, or a later one that this node shows; [`readable`](crate::engine::Engine::readable) is to be asked.
    At(Position),
    /// To be fetched first. An error: the primary cannot be asked, and the read cannot be what it wants.
    Wait(Waiting<ReadPoint>),
}

/// What the primary keeps for a transaction that may move to it; none: no more needs to be asked, this node has become the primary.
pub type Kept = Option<Box<dyn Hold>>;

/// A future that a session waits in; dropping it gives up.
pub type Waiting<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

/// What a statement will read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Touch {
    /// The schema, and catalog relations.
    Catalog,
    /// Any rows of this storage.
    Table(RelId),
    /// The row with this encoded primary key, there or not.
    Row(RelId, Box<[u8]>),
    /// What has no versions (the state of a sequence): the whole history has to be here.
    All,
}

/// Tells what a statement will read, on request.
pub type Reads<'a> = dyn Fn() -> Vec<Touch> + Sync + 'a;

/// The history that a node has: whose it is, and its terms.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub cluster: u128,
    /// (term, last position before it), oldest first.
    pub terms: Vec<(u64, Position)>,
}
