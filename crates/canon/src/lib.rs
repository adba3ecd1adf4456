//! canon: under construction.

pub mod database;
#[cfg(feature = "sql")]
pub mod engine;

pub use base::{ColumnType, Error, Result, SqlState, Type, Value};
pub use database::{Database, DatabaseOptions, TableBuilder, TransactionOptions};
