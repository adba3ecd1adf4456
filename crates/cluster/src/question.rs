//! What nodes ask each other about their cluster, as bytes. Members ask it, and so do nodes that are none yet: servers that want to join, sites, and servers that
//! follow by hand.
//!
//! ```text
//! question   'M' and a message of a member (crate::message)    or 'Q' and a Question as JSON
//! answer     JSON, of the type that the question names
//! ```
//! Both ends have proven the cluster's secret before. A build that does not know a question answers with an error.
//!
//! Left out on purpose: the connection, and which node may ask what. Both are the task of `server`.

use serde::{Deserialize, Serialize};
use std::io;

use crate::catalogue::{Member, NodeId};

/// Before a message of a member.
const OF_MEMBER: u8 = b'M';
/// Before a question of a node that may be none.
const ASKED: u8 = b'Q';

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Question {
    /// Whether this node is of a cluster that runs itself. Answered with a `bool`.
    RunsItself,
    /// Which node leads the data. `you`: how the node was reached that is asked. Answered with an address, or none.
    Primary { you: String },
    /// Which node leads the data, and where the members are: a site asks that, as long as it is none of them. Answered with a [`Guidance`].
    Guide { you: String },
    /// Whether the node of this number is a member. Each member asks the consensus leader so now and then, and says its [`LEVEL`] with it; builds before say
    /// none. Answered with a [`Joined`].
    IsMember {
        node: NodeId,
        #[serde(default)]
        level: u32,
    },
    /// To the primary: this member is to be the next one. Answered, with nothing, when the members have been told.
    HandOver { to: NodeId },
    /// A node wants to be a member. Answered with a [`Joined`].
    Join(Joining),
    /// To a replica that follows by hand: whether it can be a member. `now`: it is to be one. Answered with why not, or none.
    Adopt { now: bool },
    /// Answered with a `u32`, the build's [`LEVEL`].
    Level,
    /// Answered with the number and the [`Member`] that this server is, or is to be.
    AsMember,
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

/// A node that wants to be a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Joining {
    /// How the node was reached that is asked.
    pub you: String,
    pub node: NodeId,
    pub member: Member,
    /// [`LEVEL`] of the build.
    #[serde(default)]
    pub level: u32,
}

/// The answer to a wish to join, and to the question whether a node is a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Joined {
    Yes,
    /// Ask there.
    Elsewhere(String),
    /// Not now.
    Later,
    /// Never, and why.
    Never(String),
}

/// What a member says to a site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guidance {
    /// The term of the primary, or of the one that is looked for.
    pub term: u64,
    /// Where the primary is; none: one is looked for.
    pub primary: Option<String>,
    /// Where all members are.
    pub members: Vec<String>,
}

/// What came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked<'a> {
    /// For the running member (`crate::member::Ear`).
    OfMember(&'a [u8]),
    Question(Question),
}

impl Asked<'_> {
    /// Reads it. An error: a build after this one asks, or no member does.
    pub fn decode(bytes: &[u8]) -> io::Result<Asked<'_>> {
        match bytes.split_first() {
            Some((&OF_MEMBER, message)) => Ok(Asked::OfMember(message)),
            Some((&ASKED, question)) => Ok(Asked::Question(serde_json::from_slice(question)?)),
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a question that is not known here",
            )),
        }
    }

    /// The bytes that are sent.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Asked::OfMember(message) => [&[OF_MEMBER], *message].concat(),
            Asked::Question(question) => question.encode(),
        }
    }
}

impl Question {
    /// The bytes that are sent.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![ASKED];
        serde_json::to_writer(&mut bytes, self).expect("texts and numbers are written");
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_read_as_builds_before_wrote_them() {
        let join = br#"Q{"Join":{"you":"a:1","node":7,"member":{"name":"b","address":"b:1","kind":"Server"}}}"#;
        let Ok(Asked::Question(Question::Join(joining))) = Asked::decode(join) else {
            panic!("a wish to join");
        };
        assert_eq!((joining.node, joining.level), (7, 0), "it says no level");
        assert_eq!(
            Asked::decode(b"M!").ok(),
            Some(Asked::OfMember(b"!")),
            "whatever it is"
        );
        let level = Question::Level.encode();
        assert_eq!(level, b"Q\"Level\"");
        for bad in [&b""[..], b"Q", b"Q\"Levels\"", b"X\"Level\"", b"\"Level\""] {
            assert!(Asked::decode(bad).is_err(), "{bad:?}");
        }
    }
}
