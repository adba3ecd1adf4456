//! The node as the SQL engine's machine: `sql::engine::Engine` over `node::Node`.

use base::schema::SequenceDef;
use base::{Held, Position, Result};
use node::Node;
use sql::engine::{Engine, Published};
use std::sync::Arc;
use txn::{Catalog, Txn, TxnOptions};

/// A shared node that SQL sessions run on.
#[derive(Clone)]
pub struct NodeEngine(pub Arc<Node>);

impl Engine for NodeEngine {
    fn begin(&self, options: TxnOptions, autocommit_read: bool) -> Txn {
        self.0.begin(options, autocommit_read)
    }

    fn commit(&self, txn: Txn) -> Result<Held> {
        self.0.commit(txn)
    }

    fn rollback(&self, txn: Txn) -> Held {
        self.0.rollback(txn)
    }

    fn is_published(&self, held: Held) -> bool {
        self.0.is_published(held)
    }

    fn published(&self, held: Held) -> Published {
        let wait = self.0.published(held);
        Box::pin(async move {
            wait.await;
            Ok(())
        })
    }

    fn catalog(&self) -> Arc<Catalog> {
        self.0.manager().catalog()
    }

    fn nextval(&self, sequence: &SequenceDef) -> Result<i64> {
        self.0.nextval(sequence)
    }

    fn setval(&self, sequence: &SequenceDef, value: i64, is_called: bool) -> Result<()> {
        self.0.setval(sequence, value, is_called)
    }

    fn sequence_state(&self, sequence: &SequenceDef) -> (i64, bool) {
        self.0.sequence_state(sequence)
    }

    fn checkpoint(&self) -> Result<()> {
        self.0.checkpoint()
    }

    fn published_position(&self) -> Position {
        self.0.marks().published.get()
    }
}
