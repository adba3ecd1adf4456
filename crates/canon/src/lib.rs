//! canon: under construction.

pub mod engine;
