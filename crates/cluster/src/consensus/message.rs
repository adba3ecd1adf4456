//! Messages of the consensus, as bytes: openraft's requests as JSON, and two of this project's own about elections.
//!
//! openraft takes what a member says as true, and goes down where the numbers do not fit each other. So a message is looked at before openraft has it:
//!
//! | what | is refused |
//! |---|---|
//! | a term above [`MAX_TERM`] | its successor could wrap |
//! | an index above [`MOST`] | the same |
//! | entries that do not follow each other, and the one that they are said to follow | openraft asserts that they do |
//!
//! Left out on purpose: entries that contradict what is agreed on. Only a member that lies says such, and the cluster's secret keeps liars out.

use base::MAX_TERM;
use openraft::error::RaftError;
use openraft::raft::{AppendEntriesRequest, InstallSnapshotRequest, VoteRequest, VoteResponse};
use openraft::{EntryPayload, LogId, Vote};
use serde::{Deserialize, Serialize};
use std::io;

use super::campaign::Last;
use super::types::{Entry, Types};
use crate::catalogue::NodeId;
use crate::word::checked;

/// Greatest index of an entry. One entry in a microsecond reaches it in 36,000 years.
const MOST: u64 = MAX_TERM;

type Answered<T> = Result<T, RaftError<NodeId>>;

/// See the head of the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Message {
    Append(AppendEntriesRequest<Types>),
    /// As builds before [`Message::Ballot`] ask for a vote.
    Vote(VoteRequest<NodeId>),
    Snapshot(InstallSnapshotRequest<Types>),
    /// Whether this one would vote for a member with such a log: answered with yes or no.
    Stand {
        candidate: NodeId,
        last: Last,
    },
    /// Answered with a [`Ballot`].
    Ballot(VoteRequest<NodeId>),
}

/// A vote, or none.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ballot {
    pub(super) answer: Answered<VoteResponse<NodeId>>,
    /// Nanoseconds since this voter may have taken part in a lease that was granted.
    pub(super) age: u64,
}

impl Message {
    /// Reads a message. An error: a build after this one says it, or its numbers do not fit.
    pub fn decode(bytes: &[u8]) -> io::Result<Message> {
        let message: Message = serde_json::from_slice(bytes)?;
        message.check()?;
        Ok(message)
    }

    /// The bytes that are sent.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("texts and numbers are written")
    }

    fn check(&self) -> io::Result<()> {
        match self {
            Message::Append(m) => {
                vote(&m.vote)?;
                logs([m.prev_log_id, m.leader_commit])?;
                entries(m.prev_log_id, &m.entries)
            }
            Message::Vote(m) | Message::Ballot(m) => {
                vote(&m.vote)?;
                logs([m.last_log_id])
            }
            Message::Snapshot(m) => {
                vote(&m.vote)?;
                logs([m.meta.last_log_id, *m.meta.last_membership.log_id()])
            }
            Message::Stand { last, .. } => logs([*last]),
        }
    }
}

fn refused(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn vote(vote: &Vote<NodeId>) -> io::Result<()> {
    checked([vote.leader_id.term])
}

fn logs(all: impl IntoIterator<Item = Last>) -> io::Result<()> {
    for id in all.into_iter().flatten() {
        checked([id.leader_id.term])?;
        if id.index > MOST {
            return Err(refused("there is no such entry"));
        }
    }
    Ok(())
}

/// Entries behind this one.
fn entries(before: Option<LogId<NodeId>>, all: &[Entry]) -> io::Result<()> {
    let first = before.map_or(0, |id| id.index + 1);
    for (index, entry) in (first..).zip(all) {
        logs([Some(entry.log_id)])?;
        if entry.log_id.index != index {
            return Err(refused("entries that do not follow each other"));
        }
        if let EntryPayload::Normal(command) = &entry.payload {
            checked(command.terms())?;
        }
    }
    Ok(())
}
