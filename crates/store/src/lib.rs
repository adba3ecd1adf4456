//! store: under construction.
pub mod tree;
