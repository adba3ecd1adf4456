//! Transactions as closures: run, committed, run again where they lose a race.
//!
//! Left out on purpose: what a run does (`transaction`), and SQL in it (`statements`).

use super::database::{Database, TransactionOptions};
use super::transaction::Transaction;
use base::{CommitWait, Committing, Error, Position, Result, SqlState};
use node::Node;
use std::time::Duration;

/// The result of a transaction. Its commit has its place in the order; it may not be on the disk yet.
#[must_use = "until wait() returns, a crash may take the transaction back"]
pub struct Committed<'db, T> {
    /// What the closure returned.
    pub value: T,
    /// Where the commit stands; of a transaction that only read, its snapshot.
    pub position: Position,
    held: CommitWait,
    node: &'db Node,
}

impl<T> Committed<'_, T> {
    /// Whether a crash can no longer take it back.
    pub fn is_durable(&self) -> bool {
        self.node.is_published(self.held)
    }

    /// Waits until it counts, and gives the value.
    pub fn wait(self) -> T {
        wait_published(self.node, self.held);
        self.value
    }
}

/// The outcome of a commit. The thread waits where another node decides.
fn decided(committing: Committing) -> Result<CommitWait> {
    match committing {
        Committing::Done(outcome) => outcome,
        Committing::Later(decided) => futures::executor::block_on(decided),
    }
}

fn wait_published(node: &Node, held: impl Into<CommitWait>) {
    let held = held.into();
    if node.is_published(held) {
        return;
    }
    // This thread waits in any case.
    node.flush_here(true);
    if !node.is_published(held) {
        futures::executor::block_on(node.published(held));
    }
}

impl Database {
    /// Runs `f` in a transaction, again when it loses a race, and returns when it is committed and durable.
    pub fn transaction<T>(&self, f: impl FnMut(&Transaction) -> Result<T>) -> Result<T> {
        self.transaction_with(&self.0.transaction, f)
    }

    /// The same with options of its own, and with an error type of the caller's (an `Err` rolls back and is not tried again).
    pub fn transaction_with<T, E: From<Error>>(
        &self,
        options: &TransactionOptions,
        f: impl FnMut(&Transaction) -> Result<T, E>,
    ) -> Result<T, E> {
        Ok(self.run(options, f)?.wait())
    }

    /// Reads in one snapshot that holds every acknowledged commit. Waits for nothing, and is never run again.
    pub fn read<T>(&self, mut f: impl FnMut(&Transaction) -> Result<T>) -> Result<T> {
        let options = TransactionOptions {
            read_only: true,
            ..self.0.transaction.clone()
        };
        let tx = Transaction::begin(self, &options, false)?;
        let value = f(&tx)?;
        tx.into_parts().1.map_or(Ok(value), Err)
    }

    /// Runs `f` in a transaction and returns when the commit has its place in the order; the flush goes on meanwhile.
    pub fn transaction_nowait<T>(
        &self,
        f: impl FnMut(&Transaction) -> Result<T>,
    ) -> Result<Committed<'_, T>> {
        self.transaction_nowait_with(&self.0.transaction, f)
    }

    /// `transaction_nowait` with options of its own.
    pub fn transaction_nowait_with<T, E: From<Error>>(
        &self,
        options: &TransactionOptions,
        f: impl FnMut(&Transaction) -> Result<T, E>,
    ) -> Result<Committed<'_, T>, E> {
        let committed = self.run(options, f)?;
        self.0.node.flush_soon();
        Ok(committed)
    }

    fn run<T, E: From<Error>>(
        &self,
        options: &TransactionOptions,
        mut f: impl FnMut(&Transaction) -> Result<T, E>,
    ) -> Result<Committed<'_, T>, E> {
        let node = &*self.0.node;
        let mut runs = 0;
        // A constraint that is broken by a row which the snapshot did not show may be a lost race: looked at once more.
        let mut doubts = 1;
        loop {
            let locking = runs >= options.optimistic_runs && !options.read_only;
            let tx = Transaction::begin(self, options, locking)?;
            let outcome = f(&tx).and_then(|value| {
                tx.check_deferred()?;
                Ok(value)
            });
            let (txn, failed) = tx.into_parts();
            let snapshot = txn.snapshot().unwrap_or_default();
            let error = match (outcome, failed) {
                (Ok(value), None) => match decided(node.committing(txn, 0)) {
                    Ok(held) => {
                        return Ok(Committed {
                            value,
                            position: held.position(),
                            held,
                            node,
                        });
                    }
                    Err(e) => e,
                },
                (_, Some(e)) => {
                    node.rollback(txn);
                    e
                }
                (Err(e), None) => {
                    wait_published(node, node.rollback(txn));
                    return Err(e);
                }
            };
            runs += 1;
            let seen = node.marks().installed.get();
            let constraint = matches!(
                error.code(),
                SqlState::UNIQUE_VIOLATION | SqlState::FOREIGN_KEY_VIOLATION
            );
            let doubtful = constraint && doubts > 0 && seen > snapshot;
            if doubtful {
                doubts -= 1;
            }
            if runs >= options.max_runs || !(error.code().is_retryable() || doubtful) {
                // That the disk is full is told at once: what was read may be waiting for the disk.
                if error.code() != SqlState::DISK_FULL {
                    wait_published(node, seen);
                }
                return Err(error.into());
            }
            self.pause(runs);
        }
    }

    /// Nothing after the first lost race, then a random part of a time that doubles, to 10 ms at most.
    fn pause(&self, runs: u32) {
        if runs < 2 {
            return;
        }
        let most = (25u64 << runs.min(9)).min(10_000);
        let micros = self.0.random.next_u64() % most;
        self.0.clock.sleep(Duration::from_micros(micros));
    }
}
