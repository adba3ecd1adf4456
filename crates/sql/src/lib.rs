//! sql: under construction.

pub mod catalog;
pub mod ddl;
pub mod engine;
pub mod functions;
pub mod types;
