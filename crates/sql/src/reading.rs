//! How fresh a read is to be, in the words that sessions and the engine share.
//!
//! ```text
//! message arrives ──▶ Engine::arrival                  a stamp: fetches that begin later are of use to it
//! statement needs a snapshot ──▶ Engine::read_point    Newest: stand where this node stands (a primary; reads that may be stale)
//!                                                      At(t): a state that this node may not show yet
//! Txn::set_read_position(t) ──▶ Engine::readable(t, touches)    nothing of it changed in (visible, t]: read at t; else wait
//! ```
//! What a statement touches is named before it is read (`plan::touches`): the schema first, since plans are made with it, then tables, or
//! rows by their primary keys. See docs/design/fresh-reads.md for the rule and its proof.
//!
//! Left out on purpose: when to give up. That is the session's (`canon.read_timeout`), which drops the future.

pub use base::{Consistency, ReadPolicy, ReadWant};
use base::{Position, RelId, Result};
use std::future::Future;
use std::pin::Pin;
use txn::RemoteSnapshot;

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
pub type Kept = Option<Box<dyn RemoteSnapshot>>;

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
