//! workload: under construction.
