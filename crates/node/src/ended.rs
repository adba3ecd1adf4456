//! A node ends in its process, and may start again there: as what it was, or as a replica of the node that leads now.
//!
//! ```text
//! Node::end ──▶ stopped: threads joined, the log flushed and closed ──▶ taken apart: directory unlocked, memory given back ──▶ Ended
//! Ended::start(replica) ──▶ Node
//! ```
//! A node that is in use somewhere else in the process (a session, a connection) is stopped all the same, and is given back to be ended again
//! later: its directory stays locked until then, so two nodes never have one directory.
//!
//! Left out on purpose: what else a process has of a node, such as sockets and sessions. Those end before.

use base::{Position, Result};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::node::Node;
use crate::options::NodeOptions;

/// See the head of the file.
pub struct Ended {
    path: PathBuf,
    options: NodeOptions,
    /// The last position in its log.
    pub last: Position,
    /// Commits that had no room on the disk and are not in the log.
    pub given_up: u64,
}

impl Node {
    /// Stops the node and takes it apart. Err: something of the process has it still. It is stopped all the same.
    pub fn end(self: Arc<Node>) -> std::result::Result<Ended, Arc<Node>> {
        self.stop();
        let node = Arc::try_unwrap(self)?;
        let ended = Ended {
            path: node.path().to_owned(),
            options: node.shared().options.clone(),
            last: match node.following() {
                Some(f) => f.marks.persisted.get(),
                None => node.marks().flushed.get(),
            },
            given_up: node.flush_stats().given_up.load(Ordering::SeqCst),
        };
        node.take_apart();
        Ok(ended)
    }
}

impl Ended {
    /// Starts the node again over its directory. `replica`: to follow another one.
    pub fn start(self, replica: bool) -> Result<Node> {
        let options = NodeOptions {
            replica,
            // That was for one start.
            accept_log_end: None,
            ..self.options
        };
        Node::open(&self.path, options)
    }
}
