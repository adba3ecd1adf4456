//! Commit: prepare, take a position, certify, install; all on the committing thread.
//!
//! ```text
//! prepare    lock the records of the write set (in key order), link their index entries     every scan sees them from here
//! order      take the position                                                             the one global step
//! certify    compare what was read and replaced with the commits below the position
//! install    push the versions, unlock, hand the record to the log                         `installed` passes the position
//! undo       where one of them fails: unlink, unlock, leave a hole
//! ```
//! Position order is serialization order, because snapshots are prefixes of it. So certification comes *after* the position (not
//! before it, as in Silo): whatever a commit with a smaller position wrote is then locked or installed, and a commit that is met
//! with a larger position does not matter. A certifier waits for smaller positions only, so no two wait for each other.
//!
//! The four parts are values and steps of their own ([`Prepared`]), because other topologies put time between them: partitions
//! prepare at several shards before any of them installs (COCO §3), and a site sends what it prepared as a
//! [`base::Candidate`] that the primary certifies (PSP §3.3).
//!
//! Left out on purpose: group validation; read validity intervals (LT-OCC), which belong to partitions.

mod certify;
mod install;
mod prepare;

use base::{Error, Position, Result};
use store::pin;

use crate::backoff::Backoff;
use crate::txn::Txn;
use crate::writes::TableWrites;

/// Where a commit gets its position and leaves its record. `node` puts this over the order and the log.
pub trait CommitOrder {
    /// Waits while too much waits for the log; before a commit locks anything, because the log may wait for who waits for that. `check_cancelled` is
    /// asked every few milliseconds: an error of it ends the wait.
    fn wait_for_room(&self, check_cancelled: &dyn Fn() -> Result<()>) -> Result<()>;

    /// The next position, and a ticket for its place in the order. An error (a full disk, say) refuses the commit.
    fn begin(&self) -> Result<(Position, u64)>;

    /// The commit of this ticket is installed; its record may be logged.
    fn ready(&self, ticket: u64, heads: Vec<u8>, data: Vec<u8>);

    /// The position stays empty.
    fn abort(&self, ticket: u64);
}

/// Most bytes of one commit's record in the log.
pub const MAX_COMMIT_BYTES: usize = (1 << 30) - (1 << 20);

/// How often a commit chooses records for its deltas. A choice is wrong while a worker's commit, which is short, changes how many there are.
const MOST_CHOICES: u64 = 1_000_000;

fn too_big() -> Error {
    let what =
        format!("transaction is too big: the limit is {MAX_COMMIT_BYTES} bytes of changed rows");
    Error::new(base::SqlState::PROGRAM_LIMIT_EXCEEDED, what)
}

/// 40001: a site that has been promoted does not decide what began before.
fn began_at_a_site() -> Error {
    let what = "could not serialize access: this node has become the primary since";
    Error::new(base::SqlState::SERIALIZATION_FAILURE, what)
        .hint("The transaction might succeed if retried.")
}

impl Txn {
    /// Prepares, certifies and installs. The position that the reply has to wait for: the commit's, or the snapshot's when nothing was
    /// written. An error means that the transaction is rolled back.
    pub fn commit(mut self, order: &dyn CommitOrder) -> Result<Position> {
        self.commit_here(order)
    }

    /// The same for a transaction that is not moved. It is to be dropped next: nothing else may be asked of it.
    pub fn commit_here(&mut self, order: &dyn CommitOrder) -> Result<Position> {
        let temp = self.part_temp();
        let committed = self.commit_shared(order);
        self.return_temp(temp, committed.is_ok());
        committed
    }

    /// The same for what is not of the session alone.
    fn commit_shared(&mut self, order: &dyn CommitOrder) -> Result<Position> {
        let snapshot = self.snapshot().unwrap_or(Position::ZERO);
        if !self.has_writes() {
            return Ok(snapshot);
        }
        if self.standing.elsewhere {
            return Err(began_at_a_site());
        }
        // Without locks nothing is put off but new keys, which certification compares.
        assert!(
            !self.has_deferred() || !self.options.locking && !self.references.asked_late,
            "checks that were put off are made before the commit"
        );
        self.shared.check_accepts_writes()?;
        // Before the guard: what is unlinked meanwhile could not be freed.
        order.wait_for_room(&|| {
            self.shared.check_accepts_writes()?;
            self.check_told()
        })?;
        self.writes.tables.sort_by_key(|t| t.table.storage.id);
        for t in &mut self.writes.tables {
            t.rows.retain(|_, p| p.row.is_some() || p.existed);
        }
        if let Some(own) = &self.schema.own {
            // Rows of no table: replay would look for their storage.
            let unused = own.unused(&self.schema.catalog);
            let of_a_table = |t: &TableWrites| !unused.contains(&t.table.storage.id);
            self.writes.tables.retain(of_a_table);
        }
        let guard = pin();
        if self.view()?.check().is_err() {
            return Err(Txn::snapshot_too_old());
        }
        if !self.notifications.is_empty() {
            self.shared.notifications.check_room(&self.notifications)?;
        }
        let position = self.commit_writes(order, &guard)?;
        if let Some(f) = &self.courtesy.shown {
            f.committed_at(position);
        }
        if let Some(mut own) = self.schema.own.take() {
            own.forget_unused(&self.schema.catalog);
        }
        Ok(position)
    }

    fn commit_writes(&self, order: &dyn CommitOrder, guard: &store::Guard) -> Result<Position> {
        // A panic would leave records locked, or a place in the order open: every later commit would wait for ever, without a visible cause.
        let _whole = env::say::Whole("a commit");
        let mut wait = Backoff::default();
        for attempt in 0..MOST_CHOICES {
            let redirected = self.redirected(attempt, guard);
            let tables = redirected.as_deref().unwrap_or(&self.writes.tables);
            let prepared = self.prepare(tables, guard)?;
            if prepared.stale {
                prepared.undo();
                wait.pause();
                continue;
            }
            let (position, ticket) = match order.begin() {
                Ok(given) => given,
                Err(e) => {
                    prepared.undo();
                    return Err(e);
                }
            };
            let spared = match prepared.certify(position) {
                Ok(spared) => spared,
                Err(e) => {
                    prepared.undo();
                    order.abort(ticket);
                    return Err(e);
                }
            };
            let (heads, data) = prepared.install(position);
            order.ready(ticket, heads, data);
            self.shared.stats.committed(spared);
            return Ok(position);
        }
        Err(Error::internal("a split value has no record to add to"))
    }
}
