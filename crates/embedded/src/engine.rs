//! The node as the SQL engine's machine: `sql::engine::Engine` over `node::Node`.

use base::schema::SequenceDef;
use base::{CommitWait, Committing, Drawn, Error, Position, Result, SqlState, Work};
use env::turns::{afterwards, alone};
use node::{Node, Role};
use sql::cluster_status::ClusterStatus;
use sql::engine::{CheckCancelled, Engine, MembershipChange, Opening, Outcome, Published};
use sql::reading::{History, Kept, ReadPoint, ReadWant, Reads, Touch, Waiting};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use txn::{Catalog, Txn, TxnOptions};

/// A primary that has handed over, and has lost replicas whose votes would decide what waits: they follow another one now, and only that
/// knows. (Who waits looks again whenever a replica acknowledges or goes.) What waits for this disk only is as good as there.
fn decides_no_more(node: &Node, held: CommitWait) -> bool {
    let shipping = node.shipping();
    node.role() == Role::Sealed
        && !matches!(held, CommitWait::Flushed(_))
        && shipping.replicas_here() < shipping.replicas()
}

/// What such a node says of a commit, and of a reply that shows what may never be decided.
fn undecided(held: CommitWait) -> Error {
    if let CommitWait::Published(_) = held {
        let what = "this node has handed over and cannot know whether what was read stays";
        return Error::new(SqlState::CANNOT_CONNECT_NOW, what).hint("Connect to the new primary.");
    }
    Error::new(
        SqlState::STATEMENT_COMPLETION_UNKNOWN,
        "this node has handed over before enough replicas had the transaction; whether it committed is not known",
    )
}

/// What knows of the nodes around this one.
pub trait ClusterView: Send + Sync {
    fn cluster_status(&self) -> ClusterStatus;
    /// What a node that is not open waits for.
    fn waits_for(&self) -> String;
    /// See `Engine::unseal`.
    fn unseal(&self, forget: bool, check_cancelled: CheckCancelled<'_>) -> Result<String>;
    /// See `Engine::change_membership`.
    fn change_membership(
        &self,
        change: MembershipChange,
        check_cancelled: CheckCancelled<'_>,
    ) -> Result<String>;
    /// See `Engine::newer_term_hinted`.
    fn newer_term_hinted(&self);
    /// See `Engine::promote`.
    fn promote(
        &self,
        force: bool,
        wait: Duration,
        check_cancelled: CheckCancelled<'_>,
    ) -> Result<Option<String>>;
    /// See `Engine::read_point`.
    fn read_point(&self, want: &ReadWant, reads: &Reads<'_>) -> ReadPoint;
    /// See `Engine::hold`, of a node that follows.
    fn hold(&self, want: &ReadWant) -> Option<Waiting<Kept>>;
    /// See `Engine::readable`.
    fn readable(&self, at: Position, touches: &[Touch], want: &ReadWant) -> Option<Waiting<()>>;
    /// The clock that fetches are stamped with.
    fn arrival(&self) -> u64;
    /// Whether a primary may acknowledge and serve strong reads: in a cluster that runs itself, while it holds its lease.
    fn may_serve(&self) -> bool;
}

/// 55000: the server takes part in no cluster that runs itself.
pub fn no_member() -> Error {
    let what = "this server is no member of a cluster that runs itself";
    Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, what)
}

/// How long a statement waits for a lease that is over: one that is to be had is back by then.
const LEASE: Duration = Duration::from_secs(3);
/// How often it is looked for.
const LOOK: Duration = Duration::from_millis(5);

/// 57P03.
fn no_lease() -> Error {
    let what = "this node may lead no more: it holds no lease of its cluster's members";
    Error::new(SqlState::CANNOT_CONNECT_NOW, what)
        .detail("Another node may be the primary by now.")
        .hint("Connect anew, with target_session_attrs=read-write where there are several hosts.")
}

/// A shared node that SQL sessions run on.
pub struct NodeEngine {
    pub node: Arc<Node>,
    /// Absent: the node is alone.
    pub cluster_view: Option<Arc<dyn ClusterView>>,
}

impl NodeEngine {
    /// Over a node that no other node knows.
    pub fn alone(node: Arc<Node>) -> NodeEngine {
        NodeEngine {
            node,
            cluster_view: None,
        }
    }

    /// Over a node with others around it.
    pub fn among(node: Arc<Node>, cluster_view: Arc<dyn ClusterView>) -> NodeEngine {
        NodeEngine {
            node,
            cluster_view: Some(cluster_view),
        }
    }

    /// A primary that holds its lease, where it needs one. What was read before this was asked is the newest there was.
    #[inline]
    fn holds_lease(&self) -> bool {
        let around = self.cluster_view.as_ref();
        self.node.role() != Role::Primary || around.is_none_or(|s| s.may_serve())
    }

    /// Waits for a lease that is over; 57P03 where it does not come back.
    fn lease(&self) -> Waiting<()> {
        let (node, around) = (self.node.clone(), self.cluster_view.clone());
        Box::pin(async move {
            match comes_back(&node, around.as_ref()).await {
                true => Ok(()),
                false => Err(no_lease()),
            }
        })
    }
}

/// Whether a lease that is over comes back in time.
async fn comes_back(node: &Node, around: Option<&Arc<dyn ClusterView>>) -> bool {
    let until = tokio::time::Instant::now() + LEASE;
    while node.role() == Role::Primary && tokio::time::Instant::now() < until {
        if around.is_none_or(|s| s.may_serve()) {
            return true;
        }
        tokio::time::sleep(LOOK).await;
    }
    false
}

/// Whether this reply acknowledges a commit that no replica has to have. Without a lease another primary may have begun that lacks it.
fn stands_alone(node: &Node, held: CommitWait) -> bool {
    match held {
        CommitWait::Published(_) => false,
        CommitWait::Flushed(_) => true,
        CommitWait::Written(_) | CommitWait::Decided(_) | CommitWait::Applied(_) => {
            node.shipping().replicas() == 0
        }
    }
}

/// 40003.
fn in_doubt() -> Error {
    let what = "the transaction stands on this node, which holds no lease of its cluster's members any more; whether it stays is not known";
    Error::new(SqlState::STATEMENT_COMPLETION_UNKNOWN, what)
        .detail("No replica had to have it, and another node may be the primary by now.")
}

impl Engine for NodeEngine {
    fn begin(&self, options: TxnOptions, autocommit_read: bool) -> Box<Txn> {
        Box::new(self.node.begin(options, autocommit_read))
    }

    fn commit(&self, txn: Box<Txn>, number: u64) -> Committing {
        self.node.committing(txn, number)
    }

    fn outcome(&self, number: u64, after: Position) -> Outcome {
        match self.node.outcome(number, after) {
            node::Outcome::Committed(_) => Outcome::Committed,
            node::Outcome::Aborted => Outcome::Aborted,
            node::Outcome::Running => Outcome::Running,
            node::Outcome::Unknown => Outcome::Unknown,
        }
    }

    fn rollback(&self, txn: Box<Txn>) -> CommitWait {
        self.node.rollback(txn)
    }

    fn is_disk_full(&self) -> bool {
        self.node.manager().is_disk_full()
    }

    fn is_published(&self, held: CommitWait) -> bool {
        self.node.is_published(held) && self.holds_lease()
    }

    fn published(&self, held: CommitWait) -> Published {
        let node = self.node.clone();
        // A commit that enough replicas have stays, whoever leads. What was read may be old by now.
        let reads = matches!(held, CommitWait::Published(_));
        let lease = (reads && !self.holds_lease()).then(|| self.lease());
        let around = self.cluster_view.clone();
        Box::pin(async move {
            if let Some(lease) = lease {
                lease.await?;
            }
            // Others of this core may commit in this turn, too: one flush for all.
            afterwards().await;
            node.flush_here(alone());
            let mut published = pin!(node.published(held));
            poll_fn(|cx| match published.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(Ok(())),
                // (What the last of them decided before it went counts.)
                Poll::Pending if decides_no_more(&node, held) => {
                    match published.as_mut().poll(cx) {
                        Poll::Ready(()) => Poll::Ready(Ok(())),
                        Poll::Pending => Poll::Ready(Err(undecided(held))),
                    }
                }
                Poll::Pending => Poll::Pending,
            })
            .await?;
            let without =
                stands_alone(&node, held) && around.as_ref().is_some_and(|s| !s.may_serve());
            if without && !comes_back(&node, around.as_ref()).await {
                return Err(in_doubt());
            }
            Ok(())
        })
    }

    fn catalog(&self) -> Arc<Catalog> {
        self.node.catalog()
    }

    fn schema_version(&self) -> u64 {
        self.node.manager().schema_version()
    }

    fn nextval(&self, sequence: &SequenceDef) -> Result<Drawn> {
        self.node.nextval(sequence)
    }

    fn setval(&self, sequence: &SequenceDef, value: i64, is_called: bool) -> Result<Position> {
        self.node.setval(sequence, value, is_called)
    }

    fn sequence_state(&self, sequence: &SequenceDef) -> (i64, bool) {
        self.node.sequence_state(sequence)
    }

    fn checkpoint(&self, check_cancelled: CheckCancelled<'_>) -> Result<()> {
        self.node.checkpoint_while(check_cancelled)
    }

    fn published_position(&self) -> Position {
        self.node.marks().published.get()
    }

    fn row_memory(&self) -> u64 {
        let memory = &self.node.manager().store.memory;
        memory.used() + memory.going()
    }

    fn tree_memory(&self) -> u64 {
        let catalog = self.node.catalog();
        let tables = catalog.schema.tables();
        let bytes =
            tables.filter_map(|t| Some(catalog.table(t.def.id)?.storage.node_bytes() as u64));
        bytes.sum()
    }

    fn follows(&self) -> bool {
        self.node.role() != Role::Primary
    }

    fn runs(&self, work: Work) -> bool {
        self.node.runs(work)
    }

    fn settling(&self) -> Option<Waiting<()>> {
        if self.node.role() != Role::Primary {
            return None;
        }
        let lease = (!self.holds_lease()).then(|| self.lease());
        // A session that is let in before the node is open (`canon.maintenance`) sees what is here.
        let published = self.node.leads_soon().filter(|_| self.node.is_open());
        if lease.is_none() && published.is_none() {
            return None;
        }
        Some(Box::pin(async move {
            // A node that was just named lacks both: its first lease comes before its replicas do.
            if let Some(lease) = lease {
                lease.await?;
            }
            if let Some(published) = published {
                published.await;
            }
            Ok(())
        }))
    }

    fn arrival(&self) -> u64 {
        match self.node.role() {
            Role::Primary => 0,
            _ => self.cluster_view.as_ref().map_or(0, |s| s.arrival()),
        }
    }

    fn read_point(&self, want: &ReadWant, reads: &Reads<'_>) -> ReadPoint {
        match self.cluster_view.as_ref() {
            Some(s) => s.read_point(want, reads),
            None => ReadPoint::Newest,
        }
    }

    fn hold(&self, want: &ReadWant) -> Option<Waiting<Kept>> {
        match self.node.role() {
            Role::Replica => self.cluster_view.as_ref()?.hold(want),
            _ => None,
        }
    }

    fn readable(&self, at: Position, touches: &[Touch], want: &ReadWant) -> Option<Waiting<()>> {
        match (self.node.role(), self.cluster_view.as_ref()) {
            (Role::Replica, Some(s)) => s.readable(at, touches, want),
            _ if at <= self.published_position() => None,
            _ => Some(self.published(CommitWait::Published(at))),
        }
    }

    fn history(&self) -> History {
        History {
            cluster: self.node.cluster(),
            terms: self.node.terms(),
        }
    }

    fn opening(&self) -> Option<Opening> {
        if self.node.is_open() {
            return None;
        }
        let why = self.cluster_view.as_ref().map(|s| s.waits_for());
        let node = self.node.clone();
        Some(Opening {
            why: why.unwrap_or_default(),
            ready: Box::pin(async move {
                node.opened().await;
                Ok(())
            }),
        })
    }

    fn cluster_status(&self) -> ClusterStatus {
        match self.cluster_view.as_ref() {
            Some(s) => s.cluster_status(),
            None => {
                let marks = self.node.marks();
                ClusterStatus {
                    current: marks.installed.get(),
                    flushed: marks.flushed.get(),
                    ..ClusterStatus::default()
                }
            }
        }
    }

    fn bytes(&self) -> u64 {
        self.node.manager().store.memory.used()
    }

    fn notifications(&self) -> &txn::Notifications {
        &self.node.manager().notifications
    }

    fn bearer(&self) -> txn::Bearer {
        self.node.manager().bearer()
    }

    fn lock_blockers(&self, id: u64) -> Vec<u64> {
        self.node.manager().locks.blockers(id)
    }

    fn split_values(&self) -> Vec<txn::SplitValue> {
        self.node.manager().split_values(false)
    }

    fn races(&self) -> Option<&txn::Races> {
        Some(&self.node.manager().races)
    }

    fn advisory_locks(&self) -> Vec<txn::AdvisoryHeld> {
        self.node.manager().advisory_locks()
    }

    fn table_locks(&self) -> Vec<txn::TableLock> {
        self.node.manager().table_locks()
    }

    fn newer_term_hinted(&self) {
        if let Some(s) = self.cluster_view.as_ref() {
            s.newer_term_hinted();
        }
    }

    fn unseal(&self, forget: bool, check_cancelled: CheckCancelled<'_>) -> Result<String> {
        let alone = "this server has not handed over";
        let s = self.cluster_view.as_ref();
        let s = s.ok_or_else(|| Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, alone))?;
        s.unseal(forget, check_cancelled)
    }

    fn change_membership(
        &self,
        change: MembershipChange,
        check_cancelled: CheckCancelled<'_>,
    ) -> Result<String> {
        let s = self.cluster_view.as_ref().ok_or_else(no_member)?;
        s.change_membership(change, check_cancelled)
    }

    fn promote(
        &self,
        force: bool,
        wait: Duration,
        check_cancelled: CheckCancelled<'_>,
    ) -> Result<Option<String>> {
        let alone = || {
            Error::new(
                SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                "recovery is not in progress",
            )
            .hint("Recovery control functions can only be executed during recovery.")
        };
        let s = self.cluster_view.as_ref().ok_or_else(alone)?;
        s.promote(force, wait, check_cancelled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Database;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Members that give the primary its lease, or do not.
    struct Members(AtomicBool);

    impl ClusterView for Members {
        fn may_serve(&self) -> bool {
            self.0.load(Ordering::SeqCst)
        }
        fn cluster_status(&self) -> ClusterStatus {
            unreachable!()
        }
        fn waits_for(&self) -> String {
            unreachable!()
        }
        fn unseal(&self, _: bool, _: CheckCancelled<'_>) -> Result<String> {
            unreachable!()
        }
        fn change_membership(&self, _: MembershipChange, _: CheckCancelled<'_>) -> Result<String> {
            unreachable!()
        }
        fn newer_term_hinted(&self) {}
        fn promote(&self, _: bool, _: Duration, _: CheckCancelled<'_>) -> Result<Option<String>> {
            unreachable!()
        }
        fn read_point(&self, _: &ReadWant, _: &Reads<'_>) -> ReadPoint {
            unreachable!()
        }
        fn hold(&self, _: &ReadWant) -> Option<Waiting<Kept>> {
            unreachable!()
        }
        fn readable(&self, _: Position, _: &[Touch], _: &ReadWant) -> Option<Waiting<()>> {
            unreachable!()
        }
        fn arrival(&self) -> u64 {
            0
        }
    }

    /// A node that was just named has no lease yet, and does not show all that was acknowledged before its term: its replicas have to hold that first. A read
    /// waits for both.
    #[tokio::test]
    async fn a_first_lease_shows_nothing_that_was_acknowledged_before() {
        let db = Database::temporary().expect("a database");
        db.execute("CREATE TABLE t (a int)", ()).expect("a table");
        let node = db.node().clone();
        node.shipping().want_replicas(1);
        let writer = db.clone();
        let written = std::thread::spawn(move || writer.execute("INSERT INTO t VALUES (1)", ()));
        while node.marks().flushed.get() <= node.marks().published.get() {
            tokio::time::sleep(LOOK).await;
        }
        node.begin_seal().expect("a primary");
        node.lead_again(None, &|| Ok(())).expect("it was sealed");
        let start = node.view().leads_after.expect("no replica holds it");
        let members = Arc::new(Members(AtomicBool::new(false)));
        let engine = NodeEngine::among(node.clone(), members.clone());
        let settled = engine.settling().expect("it has no lease");
        members.0.store(true, Ordering::SeqCst);
        let shown = async {
            settled.await.expect("the lease is there");
            node.marks().published.get()
        };
        let held = async {
            tokio::time::sleep(LOOK * 4).await;
            node.shipping().want_replicas(0);
        };
        let (shown, ()) = tokio::join!(shown, held);
        assert!(shown >= start, "{shown} < {start}");
        _ = written.join();
    }
}
