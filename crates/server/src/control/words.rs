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
}

/// What is asked.
#[derive(Debug, Serialize, Deserialize)]
pub enum Question {
    /// Whether this node is of a cluster that runs itself.
    RunsItself,
    /// Which node leads the data. `you`: how the node was reached that is asked.
    Primary { you: String },
    /// Whether the node of this number is a member.
    IsMember { node: NodeId },
    /// To the primary: this member is to be the next one. Answered when the members have been told.
    HandOver { to: NodeId },
    /// A node wants to be a member.
    Join(Joining),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Joining {
    pub you: String,
    pub node: NodeId,
    pub member: Member,
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
    /// The stream over which an incomplete copy was told what its primary has, and for how many looks.
    pub told: Option<u64>,
    pub followed: u32,
    /// A promotion by hand is being told.
    pub telling: Arc<AtomicBool>,
}
