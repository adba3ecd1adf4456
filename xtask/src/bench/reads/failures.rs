//! What breaks while the checker counts stale reads: `kill -9` of replicas, of the primary, and changes of the primary.
//!
//! ```text
//! promotions   in turn: planned (pg_promote at a replica), by force (kill -9 of the primary, then canon_promote(true) at whoever has most)
//!              then all others are killed and started again behind the new primary, as an operator would
//! ```
//! A promotion by force keeps what was acknowledged if commits wait for a replica, so that is how those clusters are set
//! (`synchronous_replicas = 1`); a primary that is killed and started again has it on its disk.
//!
//! Left out on purpose: cut cables (`cargo test -p canon --test failover`, the simulation).

use super::cluster::Cluster;
use crate::Result;
use crate::guard::Guard;
use std::time::{Duration, Instant};

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Failures {
    None,
    Replicas,
    Primary,
    Promotions,
}

/// A cluster that is not whole again by then will not be.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two of them clients get on with their work.
const CALM: Duration = Duration::from_millis(1500);

impl Failures {
    pub fn name(self) -> &'static str {
        match self {
            Failures::None => "none",
            Failures::Replicas => "kill -9 of replicas",
            Failures::Primary => "kill -9 of the primary",
            Failures::Promotions => "promotions, planned and by force",
        }
    }

    /// The nodes' environment.
    pub fn settings(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Failures::Promotions => &[("CANON_SYNCHRONOUS_REPLICAS", "1")],
            _ => &[],
        }
    }

    /// One round of it; `n` counts them.
    pub fn strike(self, n: usize, c: &mut Cluster, guard: &mut Guard) -> Result<()> {
        if self == Failures::None {
            return Ok(());
        }
        std::thread::sleep(CALM);
        match self {
            Failures::None => Ok(()),
            Failures::Primary => c.nodes[c.leader].server.crash_and_restart(guard).map(drop),
            Failures::Replicas => {
                for i in 1..c.nodes.len() {
                    c.nodes[i].server.crash_and_restart(guard)?;
                    std::thread::sleep(CALM);
                }
                Ok(())
            }
            Failures::Promotions => promotion(n % 2 == 1, c, guard),
        }
    }
}

fn promotion(force: bool, c: &mut Cluster, guard: &mut Guard) -> Result<()> {
    let others: Vec<usize> = (0..c.nodes.len()).filter(|i| *i != c.leader).collect();
    let begun = Instant::now();
    let following = format!("{}", others.len());
    while c
        .primary()
        .one("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'")?
        != following
    {
        if begun.elapsed() > PATIENCE {
            return Err("a replica does not come back".into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let old = c.leader;
    let new = match force {
        false => others[0],
        true => {
            c.nodes[old].server.kill()?;
            let mut most = (String::new(), others[0]);
            for i in &others {
                let has = c.nodes[*i].one("SELECT pg_last_wal_receive_lsn()")?;
                most = most.max((has, *i));
            }
            most.1
        }
    };
    let promote = if force {
        "SELECT canon_promote(true)"
    } else {
        "SELECT pg_promote()"
    };
    c.nodes[new].one(promote)?;
    c.leader = new;
    let address = c.nodes[new].address();
    c.nodes[new].server.set_env("CANON_REPLICA_OF", None);
    for i in (0..c.nodes.len()).filter(|i| *i != new) {
        let server = &mut c.nodes[i].server;
        server.set_env("CANON_REPLICA_OF", Some(&address));
        server.crash_and_restart(guard)?;
    }
    Ok(())
}
