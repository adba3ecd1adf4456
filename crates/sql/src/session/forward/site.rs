//! What a site runs itself: changes of rows, which the primary certifies at COMMIT.
//!
//! | transaction | changes of rows | SELECT FOR UPDATE, FOR SHARE |
//! |---|---|---|
//! | a statement alone, at any level | here; at the primary once it has lost a few races | at the primary |
//! | a block at REPEATABLE READ or SERIALIZABLE | here | here; the rows travel as reads |
//! | a block at READ COMMITTED | at the primary, or here by `canon.site_read_committed` | likewise |
//!
//! Numbers of sequences are drawn here in each of them (`numbers`). All else that a replica may not run goes to the primary as from a replica:
//! changes of the schema, COPY FROM, `setval`, advisory locks, LOCK TABLE, NOTIFY.
//!
//! Such a transaction stands at what is shown here as a whole. It never stands above, as a read of a replica may, since what its
//! changes touch (parents, unique keys) is found out only when it runs.
//!
//! Left out on purpose: how a candidate travels (`node::site`).

use super::super::block::Kind;
use super::super::class::Runs;
use super::super::handle::{Reason, Waits};
use super::super::parse::{Parsed, Stmt};
use super::super::token::to_be_asked;
use super::super::utility::Utility;
use super::super::{Session, run};
use crate::ddl::privileges;
use crate::engine::Engine;
use crate::plan::Prepared;
use base::{CommitWait, Error, Result, SqlState, Work};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use txn::Isolation;

/// What comes of a commit that another node decides.
type Decided = Pin<Box<dyn Future<Output = Result<CommitWait>> + Send>>;

/// The session stops waiting for a commit that another node decides. It may commit.
fn unknown(why: Reason) -> Error {
    let by = match why {
        Reason::Terminate => "the end of the session",
        Reason::StatementTimeout => "statement timeout",
        Reason::Memory | Reason::Cancel => "user request",
    };
    Error::new(
        SqlState::STATEMENT_COMPLETION_UNKNOWN,
        format!(
            "canceling the wait for the primary's verdict due to {by}; whether the transaction committed is not known"
        ),
    )
}

impl<E: Engine> Session<E> {
    /// Whether this node is one that has its changes of rows certified elsewhere.
    pub(in super::super) fn at_site(&self) -> bool {
        let engine = &self.shared.engine;
        self.forward.adopted.is_none() && engine.follows() && engine.runs(Work::Rows)
    }

    /// Whether the transaction's changes of rows, or of the one that begins, run here and are certified elsewhere. `block`: it has several
    /// statements.
    pub(in super::super) fn certifies(&mut self, block: bool) -> bool {
        if !self.at_site() || self.forward.pinned || self.forward.moved {
            return false;
        }
        if !block && self.block.kind == Kind::None {
            return true;
        }
        let hot = &self.state.settings.get_mut().hot;
        let level = match &self.block.txn {
            Some(t) => t.isolation(),
            None => {
                let named = self.block.modes().isolation;
                named.unwrap_or(hot.isolation).isolation()
            }
        };
        level != Isolation::ReadCommitted || hot.read_committed_here
    }

    /// Whether numbers of sequences are drawn at this node for the session's statements.
    pub(in super::super) fn draws_here(&self) -> bool {
        self.at_site() && !self.forward.pinned && !self.forward.moved
    }

    /// Whether a text begins with a BEGIN that says the level of what follows.
    pub(super) fn begins_here(&self, statements: &[Parsed]) -> bool {
        let Some(Stmt::Utility(first)) = statements.first().map(|p| &p.stmt) else {
            return false;
        };
        let level = match &**first {
            Utility::Begin { modes, .. } => modes.isolation,
            _ => None,
        };
        level.is_some() && self.block.kind == Kind::None && !self.forward.pinned && self.at_site()
    }

    /// Whether a statement may run here.
    pub(super) fn may_run(&mut self, runs: Runs, block: bool) -> bool {
        match runs {
            Runs::Anywhere => true,
            Runs::Rows => self.certifies(block),
            // Alone, its locks would end with it.
            Runs::Locks => (block || self.block.kind != Kind::None) && self.certifies(block),
            Runs::Numbers => self.draws_here(),
            Runs::Primary => false,
        }
    }

    /// The same of a plan, as the transaction stands.
    pub(in super::super) fn changes_here(&mut self, p: &Prepared) -> bool {
        let runs = match p.locks_rows {
            true => Runs::Locks,
            false => Runs::Rows,
        };
        let read_only = self.block.txn.as_ref().is_some_and(|t| t.is_read_only());
        !read_only && self.may_run(runs, false)
    }

    /// What the transaction has changed here, to go on with at the primary. 0A000 where that cannot be told there: which changes a savepoint
    /// would undo, and what is locked.
    pub(super) fn own_changes(&mut self) -> Result<Option<Vec<u8>>> {
        let changed = |t: &txn::Txn| t.has_writes();
        let txn = self.block.txn.as_deref().filter(|t| changed(t));
        let Some(txn) = txn.filter(|_| self.block.kind != Kind::None) else {
            return Ok(None);
        };
        if txn.may_move_changes()? && self.block.savepoint_list().is_empty() {
            return Ok(Some(txn.candidate(0)?.encode()));
        }
        let what = "cannot run this in a transaction that has changed rows at a site";
        Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, what)
            .detail("It runs at the primary only, where the transaction cannot go: it has savepoints, has locked rows, or is READ COMMITTED.")
            .hint("Run it before the first change, or run the transaction at the primary."))
    }

    /// Notes, for the node that certifies the transaction, what a plan uses of the schema: its relations, its role, the owners of its views.
    pub(in super::super) fn note_used(&mut self, p: &Prepared) {
        let txn = self.block.txn.as_deref_mut();
        let Some(txn) = txn.filter(|t| t.is_certified_elsewhere()) else {
            return;
        };
        if p.touches().all_names || p.touches().unversioned {
            return txn.uses_all();
        }
        let catalog = txn.catalog();
        let (schema, role) = (&catalog.schema, self.state.current_role.get());
        txn.uses(schema.rights_of(role).iter());
        for n in &p.privileges {
            txn.uses([n.relation]);
            if n.view != 0 {
                txn.uses([n.view]);
                let reader = privileges::reader_in(schema, n.view, role);
                txn.uses(schema.rights_of(reader).iter());
            }
        }
    }

    /// Notes the sequences that the transaction has drawn from, likewise.
    pub(in super::super) fn note_drawn(&mut self, txn: &mut txn::Txn) {
        let drawn = self.state.numbers.used.take();
        if txn.is_certified_elsewhere() && !drawn.is_empty() {
            txn.uses(drawn);
        }
    }

    /// Waits for a commit that another node decides. 40003, with the token, when the session is told to stop waiting.
    pub(in super::super) async fn decided_elsewhere(
        &mut self,
        mut decided: Decided,
        token: &str,
    ) -> Result<CommitWait> {
        self.handle.begin_wait(0, Waits::Verdict);
        let outcome = poll_fn(|cx| {
            if let Poll::Ready(outcome) = decided.as_mut().poll(cx) {
                return Poll::Ready(outcome);
            }
            self.handle.wake_by(cx);
            match self.handle.interrupted() {
                // Its memory is wanted, which no client has asked for.
                Some(why @ Reason::Memory) => {
                    self.handle.forget(why);
                    Poll::Pending
                }
                Some(why) => Poll::Ready(Err(unknown(why))),
                None => Poll::Pending,
            }
        })
        .await;
        self.handle.end_wait();
        outcome.map_err(|e| to_be_asked(e, token))
    }

    /// Before a statement, or a run of one, at a node that follows: waits until what it has to stand on is shown here.
    pub(in super::super) async fn await_winner(&mut self) -> Result<()> {
        let Some(txn) = &self.block.txn else {
            return Ok(());
        };
        let at = txn.awaits();
        let engine = &self.shared.engine;
        if at <= engine.published_position() {
            return Ok(());
        }
        let mut shown = engine.published(CommitWait::Published(at));
        self.handle.begin_wait(0, Waits::Freshness);
        let waited = poll_fn(|cx| {
            if let Poll::Ready(r) = shown.as_mut().poll(cx) {
                return Poll::Ready(r);
            }
            self.handle.wake_by(cx);
            match self.handle.interrupted() {
                Some(why) => Poll::Ready(Err(run::interruption(why))),
                None => Poll::Pending,
            }
        })
        .await;
        self.handle.end_wait();
        waited
    }
}
