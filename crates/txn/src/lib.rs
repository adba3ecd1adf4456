//! Transactions on one node: snapshots, row locks, isolation levels, constraints, and the footprint by which a commit
//! is validated. Reads come from the store at a snapshot (a prefix of the log) under the transaction's own writes,
//! which stay private until commit; nothing uncommitted is ever in the store.
//!
//! Everything here is synchronous. A statement that must wait for a row lock ends with [`Stop::Blocked`] and leaves the wait
//! in [`Txn::take_wait`]; a statement that met a version newer than its snapshot ends with [`Stop::Restart`]. The caller
//! undoes the statement ([`Txn::rollback_statement`]), waits or moves the snapshot, and runs it again: locks that the
//! statement took stay, so each run gets further. See [`Txn`] for the protocol, `commit` for how a transaction commits.
//!
//! This crate knows no log and no SQL text.

mod advance;
mod advisory;
mod announced;
mod backoff;
mod candidate;
mod cascade;
mod cascades;
mod commit;
mod contention;
mod deferred;
mod dml;
mod errors;
mod fk;
mod handle;
mod hold;
mod holds;
mod key_values;
mod locks;
mod manager;
mod moved;
mod newest;
mod notifications;
mod own_schema;
mod patch;
mod probe;
mod races;
mod range;
mod savepoint;
mod scan;
mod schema_change;
mod settle;
mod split;
mod stand;
mod state;
mod stats;
mod stop;
mod table_locks;
mod table_modes;
mod temp;
mod temp_change;
mod txn;
mod unique;
mod used;
mod uses;
mod verify;
mod waits;
mod writes;

pub use advisory::{AdvisoryHeld, AdvisoryKey, AdvisoryLock, Bearer, Taking};
pub use backoff::Backoff;
pub use commit::CommitOrder;
pub use handle::{Catalog, RuleCompiler, TableHandle, TableRules, Tables};
pub use holds::RemoteSnapshot;
pub use locks::{LockMode, LockTable, LockWait, TxnId, WaitPolicy};
pub use manager::TxnManager;
pub use newest::NewestRows;
pub use notifications::Notifications;
pub use races::{ContendedRow, Race, Races, RowLabel, Winner};
pub use range::{ALL_COLUMNS, RowFilter, Spared, column_set};
pub use scan::{Access, Direction, Scan};
pub use schema_change::{fill_index, fill_indexes, follow_changes, is_rewrite, replay_changes};
pub use split::escrow::Heat;
pub use split::heat::SplitValue;
pub use split::rows::{Move, Share};
pub use split::walk::Limits;
pub use split::{Delta, Outcome, Reservation};
pub use state::Parked;
pub use stats::{Cause, Stats};
pub use stop::{Result, Stop};
pub use table_locks::TableLock;
pub use table_modes::TableModes;
pub use temp::{OnCommit, TempSpace};
pub use txn::{Durability, InsertOutcome, Interrupt, Isolation, Txn, TxnOptions};
pub use uses::Uses;
pub use verify::{RowFault, verify_rows};
