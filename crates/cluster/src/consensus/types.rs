//! What openraft is made of here.

use crate::catalogue::{Command, NodeId, Refused};
use openraft::EmptyNode;
use std::io::Cursor;

openraft::declare_raft_types!(
    /// Commands go in, what the catalogue says to them comes out.
    pub Types:
        D = Command,
        R = Result<(), Refused>,
        NodeId = NodeId,
        Node = EmptyNode,
);

/// One entry of the consensus log.
pub type Entry = openraft::Entry<Types>;
