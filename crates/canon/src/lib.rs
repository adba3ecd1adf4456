//! Canon, the whole of it: the embedded library ([`Database`]), and behind features SQL (`sql`) and the server (`wire`).

#[cfg(feature = "wire")]
mod backup;
#[cfg(feature = "bench")]
pub mod bench;
pub mod database;
#[cfg(feature = "sql")]
pub mod engine;

#[cfg(feature = "wire")]
mod audit;
#[cfg(feature = "wire")]
pub mod cli;
#[cfg(feature = "wire")]
pub mod cluster;
#[cfg(feature = "wire")]
pub mod config;
#[cfg(feature = "wire")]
pub mod control;
#[cfg(feature = "wire")]
mod copy;
#[cfg(feature = "wire")]
pub mod demo;
#[cfg(feature = "wire")]
pub mod entrance;
#[cfg(feature = "wire")]
pub mod forward;
#[cfg(feature = "wire")]
pub mod gate;
#[cfg(feature = "sql")]
mod host;
#[cfg(feature = "wire")]
pub mod metrics;
#[cfg(feature = "wire")]
pub mod replication;
#[cfg(feature = "wire")]
pub mod server;
#[cfg(feature = "wire")]
mod set_aside;
#[cfg(feature = "wire")]
mod status;
#[cfg(feature = "wire")]
mod verify;

#[cfg(feature = "wire")]
pub use self::cluster::Cluster;
pub use base::{ColumnType, Error, Result, SqlState, Type, Value};
#[cfg(feature = "wire")]
pub use config::Overrides as Options;
pub use database::{Database, DatabaseOptions, TableBuilder, TransactionOptions};
