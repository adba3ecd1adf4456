//! sql: under construction.

pub mod bind;
pub mod catalog;
pub mod ddl;
pub mod engine;
pub mod exec;
pub mod expr;
pub mod functions;
pub mod plan;
pub mod rules;
pub mod types;
