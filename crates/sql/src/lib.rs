//! sql: under construction.
pub mod engine;
