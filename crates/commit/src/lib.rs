//! commit: under construction.
