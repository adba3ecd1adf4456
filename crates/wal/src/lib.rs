//! wal: under construction.
