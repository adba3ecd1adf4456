//! Counters of nodes.

use std::time::Duration;

/// What EXPLAIN ANALYZE shows of a node.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeStats {
    pub loops: u64,
    pub rows: u64,
    /// Up to the first row of each loop, or its end.
    pub startup: Duration,
    pub time: Duration,
}

/// As EXPLAIN shows times.
pub(super) fn millis(d: Duration) -> f64 {
    d.as_secs_f64() * 1e3
}
