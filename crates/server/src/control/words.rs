//! What this node's parts of the control plane speak of. What nodes ask each other is [`::cluster::question`].

use ::cluster::NodeId;
use base::{Error, Position, Result, SqlState};
use serde::{Deserialize, Serialize};
use sql::engine::CheckCancelled;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How often a thread that waits looks whether it is to go on.
const LOOK: Duration = Duration::from_millis(5);

pub fn system(e: impl std::fmt::Display) -> Error {
    Error::new(SqlState::SYSTEM_ERROR, format!("control plane: {e}"))
}

/// What a task answers to this thread. None: nothing came in time. An error of `check_cancelled` ends the wait.
pub fn wait_for<T>(
    heard: &Receiver<T>,
    limit: Duration,
    check_cancelled: CheckCancelled<'_>,
) -> Result<Option<T>> {
    let until = Instant::now() + limit;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match heard.recv_timeout(left.min(LOOK)) {
            Ok(answer) => return Ok(Some(answer)),
            Err(RecvTimeoutError::Timeout) if !left.is_zero() => check_cancelled()?,
            Err(_) => return Ok(None),
        }
    }
}

/// The content of MEMBER.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Identity {
    pub node: NodeId,
    /// Where it joined; none: it founded the cluster.
    pub joined: Option<String>,
    /// It has no data.
    #[serde(default)]
    pub witness: bool,
    #[serde(default)]
    pub site: bool,
    /// It followed by hand, and was taken in while it ran: its settings may still name a primary.
    #[serde(default)]
    pub adopted: bool,
    /// The latest term that it had heard of when it was about to join. One above it that it has led was drawn by hand. A build before this one noted none: then no term
    /// is taken for such a one, as it may be that of the primary that is followed.
    #[serde(default = "unknown")]
    pub heard: u64,
}

fn unknown() -> u64 {
    u64::MAX
}

/// Why a server of a lower level than [`LEASES`](::cluster::question::LEASES) cannot be a member.
pub const NO_LEASES: &str =
    "the cluster has set failover.lease, and the build of this server does not know that";

/// Why a server of a lower level than [`SETTINGS`](::cluster::question::SETTINGS) cannot be a member now.
pub const NO_MAINTENANCE: &str =
    "maintenance is on, and the build of this server does not know that";

/// Why a server of a lower level than [`SITES`](::cluster::question::SITES) cannot be a member.
pub const NO_SITES: &str =
    "the cluster has sites among its members, and the build of this server does not know those";

/// Why a site is no member where the primary is of no cluster yet.
pub const NO_CLUSTER: &str =
    "the server there takes part in no cluster that runs itself, and a site begins none";

/// What is remembered between two looks at the data.
#[derive(Default)]
pub struct Watched {
    /// Where decided stood.
    pub decided: Position,
    /// Where published stood, of a primary.
    pub published: Option<Position>,
    pub copied: Copied,
    /// A promotion by hand is being told.
    pub telling: Arc<AtomicBool>,
}

/// A copy that is followed for so many looks in a row has heard what its primary has.
const LOOKS: u32 = 20;

/// When a copy that was taken anew has what its primary had since it is followed. What comes later does not count: the copy of a busy primary is always a little
/// behind.
#[derive(Default)]
pub struct Copied {
    /// The stream over which it was told what its primary has, and for how many looks.
    told: Option<u64>,
    looks: u32,
    /// What the primary had then.
    had: Option<Position>,
}

impl Copied {
    /// A look: the stream that flows, if the primary has said over it what it has; that; and what is on the disk here. Whether the copy is whole.
    pub fn look(&mut self, told: Option<u64>, claimed: Position, persisted: Position) -> bool {
        if told.is_none() || told != self.told {
            *self = Copied {
                told,
                ..Copied::default()
            };
            return false;
        }
        self.looks += 1;
        if self.looks <= LOOKS {
            return false;
        }
        persisted >= *self.had.get_or_insert(claimed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_a_busy_primary_is_whole_when_it_has_what_that_had() {
        let p = |n| Position::new(1, n);
        let mut copy = Copied::default();
        // On each stream anew.
        for stream in [1, 2] {
            assert!(!copy.look(None, p(900), p(900)), "nothing flows");
            for n in 0..=LOOKS {
                assert!(!copy.look(Some(stream), p(100 + n), p(100 + n)), "{n}");
            }
            // The primary goes on, and the copy stays ten behind.
            let whole = |n: &u32| copy.look(Some(stream), p(200 + n), p(190 + n));
            assert_eq!((0..100).find(whole), Some(10));
        }
    }
}
