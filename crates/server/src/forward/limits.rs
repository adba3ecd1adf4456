//! How much a replica may have under way at its primary.

use std::time::Duration;

/// What is configured (`[forward]`).
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections to the primary at most: clients that are in the middle of something there at the same time.
    pub connections: usize,
    /// How long a client waits for one.
    pub wait: Duration,
    /// A primary that says nothing for so long is asked anew, and taken for lost when no new connection comes about.
    pub silence: Duration,
}
