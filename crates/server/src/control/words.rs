//! What this node's parts of the control plane, and nodes among each other, speak of.

use ::cluster::{Member, NodeId};
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

/// What is asked.
#[derive(Debug, Serialize, Deserialize)]
pub enum Question {
    /// Whether this node is of a cluster that runs itself.
    RunsItself,
    /// Which node leads the data. `you`: how the node was reached that is asked.
    Primary { you: String },
    /// Which node leads the data, and where the members are: a site asks that, as long as it is none of them.
    Guide { you: String },
    /// Whether the node of this number is a member.
    IsMember { node: NodeId },
    /// To the primary: this member is to be the next one. Answered when the members have been told.
    HandOver { to: NodeId },
    /// A node wants to be a member.
    Join(Joining),
    /// To a replica that follows by hand: whether it can be a member. `now`: it is to be one.
    Adopt { now: bool },
    /// Answered with [`LEVEL`].
    Level,
}

/// What this build knows of what the members may have agreed on. A build that says none knows nothing of it.
///
/// | level | knows |
/// |---|---|
/// | 1 | [`LEASES`]: `failover.lease` |
/// | 2 | [`SETTINGS`]: `canon cluster set` |
/// | 3 | [`SITES`]: members that are sites, and `failover.sites_may_lead` |
pub const LEVEL: u32 = SITES;

/// From this level on a build takes leases to be as long as the members have agreed on.
pub const LEASES: u32 = 1;

/// From this level on a build takes a change of settings as all others do: it knows maintenance, and which change comes too late.
pub const SETTINGS: u32 = 2;

/// From this level on a build knows that the copy of a site counts only where it may lead. A build before counts it always.
pub const SITES: u32 = 3;

/// The level of this build.
pub fn level() -> u32 {
    match env::fault::planted("join.no_level") {
        true => 0,
        false if env::fault::planted("join.no_sites") => SETTINGS,
        false => LEVEL,
    }
}

/// Why a server of a lower level than [`LEASES`] cannot be a member.
pub const NO_LEASES: &str =
    "the cluster has set failover.lease, and the build of this server does not know that";

/// Why a server of a lower level than [`SITES`] cannot be a member.
pub const NO_SITES: &str =
    "the cluster has sites among its members, and the build of this server does not know those";

/// Why a site is no member where the primary is of no cluster yet.
pub const NO_CLUSTER: &str =
    "the server there takes part in no cluster that runs itself, and a site begins none";

/// What a member says to a site that is none.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Guidance {
    /// The term of the primary, or of the one that is looked for.
    pub term: u64,
    /// Where the primary is; none: one is looked for.
    pub primary: Option<String>,
    /// Where all members are.
    pub members: Vec<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Joining {
    pub you: String,
    pub node: NodeId,
    pub member: Member,
    /// [`LEVEL`] of the build.
    #[serde(default)]
    pub level: u32,
}

/// The answer to a wish to join, and to the question whether a node is a member.
#[derive(Debug, Serialize, Deserialize)]
pub enum Joined {
    Yes,
    /// Ask there.
    Elsewhere(String),
    /// Not now.
    Later,
    Never(String),
}

/// Before a message of a member.
pub const OF_MEMBER: u8 = b'M';
/// Before a question of a node that may be none.
pub const ASKED: u8 = b'Q';

impl Question {
    pub fn of_member(message: Vec<u8>) -> Vec<u8> {
        [&[OF_MEMBER], &message[..]].concat()
    }

    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![ASKED];
        bytes.extend(serde_json::to_vec(self).map_err(system)?);
        Ok(bytes)
    }
}

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
