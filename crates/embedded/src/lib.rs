//! The embedded library: a database in this process, tables by key and by range, transactions as closures.
//!
//! ```text
//! transaction(|tx| ...) ──▶ optimistic run: reads at a snapshot, writes kept private ──▶ commit: validate, install ──▶ durable
//!        ▲                                             │ 40001, 40P01: another transaction won
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
//! transactions are short and run on the calling thread), users and privileges (a program with the `Database` owns all of it).

mod convert;
mod create;
mod database;
#[cfg(feature = "sql")]
pub mod engine;
#[cfg(feature = "sql")]
pub mod host;
mod run;
#[cfg(feature = "sql")]
mod sessions;
#[cfg(feature = "sql")]
mod statements;
mod table;
mod transaction;

pub use base::{ColumnType, Error, Result, SqlState, Type, Value};
pub use convert::{Datum, FromColumn, FromRow, IntoRow, Named, Row, ToDatum, ToKey, WriteRow};
pub use create::TableBuilder;
pub use database::{Database, DatabaseOptions, TransactionOptions};
pub use run::Committed;
pub use table::{RangeOf, Scan, Table, prefix};
pub use transaction::Transaction;
