//! Canon, as an application and an operator see it: the embedded library ([`Database`]), and behind the feature `wire` the program.
//!
//! ```text
//! main.rs ──▶ cli ──▶ start, demo ──▶ server: a node that clients and other nodes reach
//!               │ ──▶ backup, restore, copy, verify, set-aside: what an operator does with directories
//!               └───▶ bench, proxy
//! application ──▶ embedded: a database in its own process
//! ```
//! The crates below are named here once, so that an application depends on `canon` only.
//!
//! Left out on purpose: anything that runs while a server runs; that is in `server`.

#[cfg(feature = "wire")]
mod backup;
#[cfg(feature = "wire")]
pub mod cli;
#[cfg(feature = "wire")]
mod copy;
#[cfg(feature = "wire")]
mod demo;
#[cfg(feature = "wire")]
mod endpoint;
#[cfg(feature = "wire")]
mod set_aside;
#[cfg(feature = "wire")]
mod status;
#[cfg(feature = "wire")]
mod verify;

#[cfg(feature = "bench")]
pub use ::bench;
/// The embedded library with all that it has; what most programs need of it lies beside this.
pub use embedded as database;
pub use embedded::{
    ColumnType, Database, DatabaseOptions, Error, Result, SqlState, TableBuilder,
    TransactionOptions, Type, Value, row,
};
#[cfg(feature = "wire")]
pub use server::config::Overrides as Options;
#[cfg(feature = "wire")]
pub use server::{Cluster, cluster};
