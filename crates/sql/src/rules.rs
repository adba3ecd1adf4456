//! CHECK and DEFAULT expressions, compiled for transactions.

pub use crate::bind::analyze::Compiler;
