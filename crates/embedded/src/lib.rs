//! The embedded library: a database in this process, tables by key and by range, transactions as closures.
//!
//! ```text
//! transaction(|tx| ...) ──▶ optimistic run: reads at a snapshot, writes kept private ──▶ commit: validate, install ──▶ durable
//!        ▲                                             │ 40001, 40P01: somebody was faster
//!        └── run again: at once, then after a short random pause, from the fourth time on with row locks ◀──┘
//! ```
//! Nothing is locked before commit, so a transaction that loses a race is simply run again; one that loses three times takes row locks
//! while it runs, and so queues on a hot row instead of losing again. The number of runs is bounded. The closure may run
//! several times: it must not do anything that cannot be repeated.
//!
//! An operation that fails ends its transaction: whatever the closure returns then, nothing is committed. (An error tells
//! something about other rows, and that is not among the reads that commit validates.)
//!
//! ```
//! # use embedded as canon;
//! use canon::{Database, TableBuilder, Type, prefix, row};
//!
//! # fn main() -> canon::Result<()> {
//! let db = Database::temporary()?; // or Database::open("/var/lib/shop", Default::default())?
//! db.create_table(TableBuilder::new("accounts").column("id", Type::Int8).column("balance", Type::Int8).primary_key(["id"]))?;
//! let sent = TableBuilder::new("transfers").column("account", Type::Int8).column("number", Type::Int4).column("amount", Type::Int8);
//! db.create_table(sent.primary_key(["account", "number"]).references(["account"], "accounts"))?;
//! db.transaction(|tx| (1..=3).try_for_each(|id: i64| tx.table("accounts")?.insert((id, 100))))?;
//! let left = db.transaction(|tx| { // runs again by itself when it loses a race; returns when it is on the disk
//!     let (accounts, transfers) = (tx.table("accounts")?, tx.table("transfers")?);
//!     let (_, balance): (i64, i64) = accounts.get(1)?.expect("account 1");
//!     accounts.update(1, |a: (i64, i64)| row! { balance: a.1 - 30 })?;
//!     accounts.update(2, |a: (i64, i64)| row! { balance: a.1 + 30 })?;
//!     transfers.insert((1, 1, -30))?;
//!     Ok(balance - 30)
//! })?;
//! let sent: Vec<(i64, i32, i64)> = db.read(|tx| tx.table("transfers")?.scan(prefix(1)).reverse().rows())?;
//! assert_eq!((left, sent), (70, vec![(1, 1, -30)]));
//! # #[cfg(feature = "sql")]
//! # {
//! // SQL goes beside it, alone or in the same transaction.
//! db.execute("UPDATE accounts SET balance = balance + $1 WHERE id = $2", (5, 3))?;
//! let rich: Vec<(i64, i64)> = db.transaction(|tx| {
//!     tx.table("accounts")?.update(1, |a: (i64, i64)| row! { balance: a.1 + 60 })?;
//!     tx.query("SELECT id, balance FROM accounts WHERE balance > $1 ORDER BY id", 100)
//! })?;
//! assert_eq!(rich, [(1, 130), (2, 130), (3, 105)]);
//! # }
//! # Ok(())
//! # }
//! ```
//!
//! A result leaves when everything the transaction saw or wrote is published: after COMMIT on the disk, also for one that only read.
//! [`Database::transaction_nowait`] gives it out earlier, so that the next transaction runs while the log is flushed;
//! [`Committed::wait`] then says when it counts.
//!
//! Left out on purpose: derive macros for rows (tuples and [`row!`](crate::row) do), asynchronous closures (the library's
//! transactions are short and run on the calling thread), users and privileges (who holds the `Database` owns it).

mod convert;
mod create;
#[cfg(feature = "sql")]
pub mod engine;
#[cfg(feature = "sql")]
pub mod host;
#[cfg(feature = "sql")]
mod statements;
mod table;
mod transaction;

pub use base::{ColumnType, Error, Result, SqlState, Type, Value};
pub use convert::{Datum, FromColumn, FromRow, IntoRow, Named, Row, ToDatum, ToKey, WriteRow};
pub use create::TableBuilder;
pub use table::{RangeOf, Scan, Table, prefix};
pub use transaction::Transaction;

use base::{Committing, Held, Position};
use node::{Node, NodeOptions, RecoveryReport};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use txn::{Durability, Isolation, TxnManager};

/// How a database is opened.
#[derive(Clone, Default)]
pub struct DatabaseOptions {
    /// The node below: memory limit, checkpoints, the age at which snapshots end, the surroundings.
    pub node: NodeOptions,
    /// What transactions have that do not say otherwise.
    pub transaction: TransactionOptions,
}

/// How a transaction runs.
#[derive(Clone, Debug)]
pub struct TransactionOptions {
    /// SERIALIZABLE unless told otherwise.
    pub isolation: Isolation,
    /// `Off`: acknowledged before the log is on the disk; a crash may lose the last moments, never the order.
    pub durability: Durability,
    /// Writes are refused (25006).
    pub read_only: bool,
    /// Runs before the last error is given back.
    pub max_runs: u32,
    /// Runs without row locks; later ones take them.
    pub optimistic_runs: u32,
}

impl Default for TransactionOptions {
    fn default() -> Self {
        TransactionOptions {
            isolation: Isolation::Serializable,
            durability: Durability::On,
            read_only: false,
            max_runs: 64,
            optimistic_runs: 3,
        }
    }
}

struct Inner {
    node: Arc<Node>,
    transaction: TransactionOptions,
    clock: Arc<dyn env::Clock>,
    random: Arc<dyn env::Random>,
    /// A temporary directory, removed at the end.
    temporary: Option<PathBuf>,
    #[cfg(feature = "sql")]
    statements: statements::Statements,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(dir) = &self.temporary {
            self.node.stop();
            let _ = std::fs::remove_dir_all(dir);
        }
    }
}

/// A database in this process; clones share it. The last one to go stops it cleanly.
#[derive(Clone)]
pub struct Database(Arc<Inner>);

/// The result of a transaction whose commit has its place in the order, but may not be on the disk yet.
#[must_use = "until wait() returns, a crash may take the transaction back"]
pub struct Committed<'db, T> {
    /// What the closure returned.
    pub value: T,
    /// Where the commit stands; of a transaction that only read, its snapshot.
    pub position: Position,
    held: Held,
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
fn decided(committing: Committing) -> Result<Held> {
    match committing {
        Committing::Done(outcome) => outcome,
        Committing::Later(decided) => futures::executor::block_on(decided),
    }
}

fn wait_published(node: &Node, held: impl Into<Held>) {
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
    /// Opens the database in this directory, making it if there is none, and recovers it. 55006 when another process has it.
    pub fn open(path: impl AsRef<Path>, options: DatabaseOptions) -> Result<Database> {
        Database::start(path.as_ref(), options, None)
    }

    /// A database in a new directory among the system's temporary ones, removed when the last clone goes.
    pub fn temporary() -> Result<Database> {
        Database::temporary_in(&std::env::temp_dir(), DatabaseOptions::default())
    }

    /// The same below a directory of the caller's choice.
    pub fn temporary_in(parent: &Path, options: DatabaseOptions) -> Result<Database> {
        let name = format!("canon-{:016x}", options.node.env.random.next_u64());
        let path = parent.join(name);
        Database::start(&path, options, Some(path.clone()))
    }

    fn start(
        path: &Path,
        options: DatabaseOptions,
        temporary: Option<PathBuf>,
    ) -> Result<Database> {
        let env = options.node.env.clone();
        let node = Arc::new(Node::open(path, options.node)?);
        #[cfg(feature = "sql")]
        node.set_compiler(Arc::new(sql::rules::Compiler));
        Ok(Database::with(node, options.transaction, env, temporary))
    }

    /// Over a node that runs already (a server that also has work of its own).
    pub fn over(node: Arc<Node>, options: TransactionOptions) -> Database {
        Database::with(node, options, env::Env::os(), None)
    }

    fn with(
        node: Arc<Node>,
        transaction: TransactionOptions,
        env: env::Env,
        temporary: Option<PathBuf>,
    ) -> Database {
        Database(Arc::new(Inner {
            #[cfg(feature = "sql")]
            statements: statements::Statements::new(&node, &env),
            node,
            transaction,
            clock: env.clock,
            random: env.random,
            temporary,
        }))
    }

    /// What the start found on the disk.
    pub fn report(&self) -> &RecoveryReport {
        self.0.node.report()
    }

    /// The node below: watermarks, flush figures, checkpoints.
    pub fn node(&self) -> &Arc<Node> {
        &self.0.node
    }

    /// What transactions share: store, locks, counts of commits and of aborts by cause.
    pub fn manager(&self) -> &TxnManager {
        self.0.node.manager()
    }

    /// Writes a checkpoint now and waits for it.
    pub fn checkpoint(&self) -> Result<()> {
        self.0.node.checkpoint()
    }

    /// Makes a table. 42P07 when the name is taken; other errors as CREATE TABLE gives them.
    pub fn create_table(&self, table: TableBuilder) -> Result<()> {
        create::create(self, &table)
    }

    /// Drops a table and its rows. 42P01 when there is none; 2BP01 when a foreign key references it.
    pub fn drop_table(&self, name: &str) -> Result<()> {
        create::drop_table(self, name)
    }

    /// Whether there is a table of this name.
    pub fn has_table(&self, name: &str) -> bool {
        let catalog = self.manager().catalog();
        create::find(&catalog.schema, name).is_some()
    }

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
            let outcome = f(&tx);
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
