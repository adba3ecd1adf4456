//! Operators on values whose types are known to fit.
//!
//! [`compare`] and [`eq`] take non-NULL values of one type (or two integer or float widths) and never fail; the order is the one of
//! encoded keys. Functions in the submodules have the shape of [`crate::functions::ScalarFn`] where they are reached
//! through the table of operators.
//!
//! `jsonb` is ordered by its text, not by PostgreSQL's order of types and lengths.

pub mod arith;
pub mod array;
pub mod compare;
pub mod datetime;
pub mod float;
pub mod jsonb;
pub mod like;
pub mod numeric;
pub mod numeric_log;
pub mod regex;
pub mod regex_run;

pub use compare::{compare, compare_nulls, eq};
