//! What openraft is made of here. Its runtime is [`Runtime`]: tokio's, or a simulation's.

use super::runtime::Runtime;
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
        AsyncRuntime = Runtime,
);

/// One entry of the consensus log.
pub type Entry = openraft::Entry<Types>;
