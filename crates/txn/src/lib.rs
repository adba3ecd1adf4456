//! txn: under construction.
