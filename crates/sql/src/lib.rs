//! sql: under construction.

pub(crate) mod bind;
pub mod catalog;
pub mod ddl;
pub mod engine;
pub mod exec;
pub(crate) mod expr;
pub mod functions;
pub mod plan;
pub mod reading;
pub mod rules;
pub mod session;
pub mod standing;
pub mod types;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
