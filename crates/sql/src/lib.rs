//! sql: under construction.
