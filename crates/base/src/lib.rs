//! base: under construction.
