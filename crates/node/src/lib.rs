//! node: under construction.
