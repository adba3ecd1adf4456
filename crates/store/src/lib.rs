//! store: under construction.
