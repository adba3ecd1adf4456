//! The members, and whether the cluster is whole.

use super::leading::{LEADS, SILENCE};
use crate::Result;
use crate::bench::http;
use crate::server::Server;
use std::time::{Duration, Instant};

/// A cluster that is not whole again by then will not be.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// One member.
pub struct Node {
    pub server: Server,
    pub http: u16,
}

impl Node {
    pub fn metrics(&self) -> String {
        http::metrics(self.http, SILENCE)
    }

    pub fn leads(&self) -> bool {
        self.metrics().contains(LEADS)
    }

    /// The term, as it says.
    pub fn term(&self) -> Option<u64> {
        http::value(&self.metrics(), "canon_term").map(|term| term as u64)
    }

    pub fn is_whole(&self) -> bool {
        let m = self.metrics();
        let follows = m.contains(LEADS) || m.contains("canon_primary_connected 1");
        follows && m.contains("canon_failover{obstacle=\"\"} 1")
    }
}

/// Waits until each of them counts for the next fail-over; which leads.
pub fn whole(nodes: &[Node]) -> Result<usize> {
    let limit = Instant::now() + PATIENCE;
    loop {
        let leads: Vec<usize> = (0..nodes.len()).filter(|i| nodes[*i].leads()).collect();
        if let ([leads], true) = (&leads[..], nodes.iter().all(Node::is_whole)) {
            return Ok(*leads);
        }
        if Instant::now() > limit {
            return Err("the cluster does not become whole again".into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
