//! What SQL needs of the machine below it. `node` implements this; tests may implement it over anything.

use crate::cluster_status::ClusterStatus;
use crate::reading::{History, Kept, ReadPoint, ReadWant, Reads, Touch, Waiting};
use base::schema::SequenceDef;
use base::{CommitWait, Committing, Drawn, Error, Position, Result, SqlState, Work};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use txn::{Catalog, Txn, TxnOptions};

/// A position that must be published before the reply that depends on it may leave.
pub type Published = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// Why the database does not serve yet, in words, and when it will.
pub struct Opening {
    pub why: String,
    pub ready: Published,
}

/// What became of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Committed,
    Aborted,
    Running,
    /// It is too long ago to be known.
    Unknown,
}

/// A change of the members of a cluster that runs itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MembershipChange {
    /// The member of this name leaves; none: this node.
    Leave(Option<String>),
    /// Replicas that follow this primary by hand become members.
    Adopt,
    /// A setting of the cluster, by name, gets this value.
    Set(String, String),
}

/// Asked every few milliseconds by what waits on its thread: an error (the statement was cancelled) ends the wait.
pub type CheckCancelled<'a> = &'a dyn Fn() -> Result<()>;

/// The database underneath. All calls are quick and never wait, except the futures.
pub trait Engine: Send + Sync + 'static {
    /// Begins a transaction. `autocommit_read`: a single read-only statement, which reads at *published* and so waits for nothing.
    /// (A transaction is too large to be moved from hand to hand.)
    fn begin(&self, options: TxnOptions, autocommit_read: bool) -> Box<Txn>;

    /// Commits. The outcome is what the reply has to wait for; an error means rolled back. Where this node decides, all of it has happened
    /// when the call returns. By a `number` the outcome can be asked for ([`Engine::outcome`]); 0: it cannot.
    fn commit(&self, txn: Box<Txn>, number: u64) -> Committing;

    /// What became of the transaction of this number, which could commit above `after`. It does not commit any more if it has not begun to.
    fn outcome(&self, _number: u64, _after: Position) -> Outcome {
        Outcome::Unknown
    }

    /// Rolls back. What the reply has to wait for.
    fn rollback(&self, txn: Box<Txn>) -> CommitWait;

    /// Whether a reply may leave.
    fn is_published(&self, held: CommitWait) -> bool;

    /// Ready when the reply may leave.
    fn published(&self, held: CommitWait) -> Published;

    /// Whether commits wait because what is to be logged finds no room on the disk.
    fn is_disk_full(&self) -> bool {
        false
    }

    /// The newest schema.
    fn catalog(&self) -> Arc<Catalog>;

    /// Its version, which costs less to ask for.
    fn schema_version(&self) -> u64;

    /// The next value of a sequence (2200H at its limit). The definition is the caller's transaction's.
    fn nextval(&self, sequence: &SequenceDef) -> Result<Drawn>;

    /// Sets a sequence: the next `nextval` gives `value` (or the one after it when `is_called`).
    fn setval(&self, sequence: &SequenceDef, value: i64, is_called: bool) -> Result<Position>;

    /// (last value, is called) of a sequence, for `SELECT * FROM seq`.
    fn sequence_state(&self, sequence: &SequenceDef) -> (i64, bool);

    /// Writes a checkpoint and waits for it on this thread (CHECKPOINT).
    fn checkpoint(&self, check_cancelled: CheckCancelled<'_>) -> Result<()>;

    /// Where *published* stands.
    fn published_position(&self) -> Position;

    /// Bytes that the rows take, those of dropped tables until they are freed included; and what the trees take that they stand in, which
    /// costs a look at each table.
    fn row_memory(&self) -> u64 {
        0
    }

    fn tree_memory(&self) -> u64 {
        0
    }

    /// Where this node's history comes from: true when from another node, or when its own is closed. What may run here is another
    /// question ([`Engine::runs`]).
    fn follows(&self) -> bool {
        false
    }

    /// Whether this kind of work may run here. What may not goes to the primary, or is refused.
    fn runs(&self, _work: Work) -> bool {
        true
    }

    /// This node has become the primary and does not show yet all that was acknowledged before it was: ready when it does. `None`: it
    /// does, or is no primary. Asked for each statement, so it must cost nothing.
    fn settling(&self) -> Option<Waiting<()>> {
        None
    }

    /// A stamp for a message that is taken off the wire now: the engine tells by it which fetches of the primary's *published* began
    /// afterwards. It only grows; a later stamp than the true one is safe.
    fn arrival(&self) -> u64 {
        0
    }

    /// Where a read that wants this may stand. Asked for each snapshot, so a primary must answer without work. `reads` tells what it will
    /// touch as far as that is known yet, so that what [`readable`](Engine::readable) asks for may be fetched in the same round trip.
    fn read_point(&self, _want: &ReadWant, _reads: &Reads<'_>) -> ReadPoint {
        ReadPoint::Newest
    }

    /// Keeps a snapshot at the primary for a transaction here that keeps its own when it moves there: at what is published when it is
    /// asked, so that it is also where a read that wants this may stand. `None`: nothing is kept for such reads, or by this node.
    fn hold(&self, _want: &ReadWant) -> Option<Waiting<Kept>> {
        None
    }

    /// Whether the state at `at` may be read here as far as these are concerned: `None` when it may now, else a future that is
    /// ready when it may. `at` may lie above what `read_point` gave (the session has seen more); what is asked for to answer this must be
    /// asked for after the call. Once it may be read it stays so, for a snapshot that was registered before the call. Only strong reads
    /// may need the primary for it; others wait until `at` is visible.
    fn readable(&self, at: Position, _touches: &[Touch], _want: &ReadWant) -> Option<Waiting<()>> {
        if at <= self.published_position() {
            return None;
        }
        Some(self.published(CommitWait::Published(at)))
    }

    /// Whose history this node has, and its terms: what a token is compared with.
    fn history(&self) -> History {
        History::default()
    }

    /// What serving waits for; `None`: it serves.
    fn opening(&self) -> Option<Opening> {
        None
    }

    /// Where this node stands in its cluster.
    fn cluster_status(&self) -> ClusterStatus {
        ClusterStatus::default()
    }

    /// A client speaks of a term that this primary does not know: a hint, which proves nothing.
    fn newer_term_hinted(&self) {}

    /// This node has handed over, and leads again, because the one that it handed over to never took over. What happened, in words.
    ///
    /// `forget`: also one that has heard of a primary of a newer term, which is lost with what it alone has.
    fn unseal(&self, _forget: bool, _check_cancelled: CheckCancelled<'_>) -> Result<String> {
        Err(Error::new(
            SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
            "this server has not handed over",
        ))
    }

    /// Bytes of memory that the rows take.
    fn bytes(&self) -> u64;

    /// What commits have said to listeners, as far as it was not delivered.
    fn notifications(&self) -> &txn::Notifications;

    /// An owner for the advisory locks of a session.
    fn bearer(&self) -> txn::Bearer;

    /// Those that this transaction, or bearer, waits for.
    fn lock_blockers(&self, id: u64) -> Vec<u64>;

    /// Values of split columns that have further records or are watched.
    fn split_values(&self) -> Vec<txn::SplitValue> {
        vec![]
    }

    /// Rows that transactions fight for, and the transactions that were told to try again lately.
    fn races(&self) -> Option<&txn::Races> {
        None
    }

    /// Every advisory lock that is held or waited for.
    fn advisory_locks(&self) -> Vec<txn::AdvisoryHeld>;

    /// Locks on tables, held or waited for.
    fn table_locks(&self) -> Vec<txn::TableLock>;

    /// The members of the cluster become others. What happened, in words.
    fn change_membership(
        &self,
        _change: MembershipChange,
        _check_cancelled: CheckCancelled<'_>,
    ) -> Result<String> {
        Err(Error::new(
            SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
            "this server is no member of a cluster that runs itself",
        ))
    }

    /// Makes this node the primary (`pg_promote`), on this thread: the old primary hands over, or (`force`) is not asked. What
    /// happened, in words; `None`: it did not within `wait`, and still may.
    fn promote(
        &self,
        _force: bool,
        _wait: Duration,
        _check_cancelled: CheckCancelled<'_>,
    ) -> Result<Option<String>> {
        Err(Error::new(
            SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
            "recovery is not in progress",
        )
        .hint("Recovery control functions can only be executed during recovery."))
    }
}
