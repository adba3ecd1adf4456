//! The commands that a connection with `replication=canon` takes, one for each thing that a node asks of another.

/// The log, from a position on: `send` at its one end, `follow` and `bootstrap` at the other.
pub const LOG: &str = "START_REPLICATION";
/// What the node has published, and which rows it has changed last: `region`, `remote`.
pub const REGION: &str = "READ_REGION";
/// Snapshots that are kept for transactions of a replica: `holds`.
pub const HOLDS: &str = "HOLD_SNAPSHOTS";
/// Verdicts about the commits of a site: `site`, and its `certifier`.
pub const COMMITS: &str = "CERTIFY_COMMITS";
