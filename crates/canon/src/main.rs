//! The `canon` binary: under construction.

fn main() {}
