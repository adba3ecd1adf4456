//! env: under construction.
