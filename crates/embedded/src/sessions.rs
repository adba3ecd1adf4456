//! The SQL sessions of a database: a transaction that runs a statement takes one, and gives it back at its end.

use super::engine::NodeEngine;
use super::host::EnvHost;
use base::Result;
use node::Node;
use parking_lot::Mutex;
use sql::session::{Embedded, Shared};
use std::sync::Arc;

/// The name that `current_database()` gives.
const DATABASE: &str = "canon";

pub(super) type Session = Embedded<NodeEngine>;

/// See the head of the file.
pub(super) struct Sessions {
    shared: Arc<Shared<NodeEngine>>,
    /// Sessions that no transaction has now.
    idle: Mutex<Vec<Session>>,
}

impl Sessions {
    pub fn new(node: &Arc<Node>, env: &env::Env) -> Sessions {
        let engine = Arc::new(NodeEngine::alone(node.clone()));
        Sessions {
            shared: Arc::new(Shared::new(
                engine,
                Arc::new(EnvHost(env.clone())),
                DATABASE,
            )),
            idle: Mutex::default(),
        }
    }

    pub fn take(&self) -> Result<Session> {
        let idle = self.idle.lock().pop();
        let mut session = match idle {
            Some(s) => s,
            None => Embedded::new(&self.shared)?,
        };
        session.begin();
        Ok(session)
    }

    pub fn give(&self, mut session: Session) {
        session.end();
        self.idle.lock().push(session);
    }
}
