//! sql: under construction.

pub mod functions;
pub mod types;
