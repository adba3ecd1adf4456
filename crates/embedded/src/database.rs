//! A database in this process: opened, shared by its clones, stopped by the last of them.
//!
//! Left out on purpose: what is done with it. Transactions are in `run`, tables in `create`, SQL in `statements`.

#[cfg(feature = "sql")]
use super::sessions::Sessions;
use base::Result;
use node::{Node, NodeOptions, RecoveryReport};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use txn::{Durability, Isolation, TxnManager};

/// How a database is opened.
#[derive(Clone, Default)]
pub struct DatabaseOptions {
    /// The node below: memory limit, checkpoints, the age at which snapshots end, the surroundings.
    pub node: NodeOptions,
    /// What transactions have that do not say otherwise.
    pub transaction: TransactionOptions,
}

/// How a transaction runs.
#[derive(Clone, Debug)]
pub struct TransactionOptions {
    /// SERIALIZABLE unless told otherwise.
    pub isolation: Isolation,
    /// `Off`: acknowledged before the log is on the disk; a crash may lose the last moments, never the order.
    pub durability: Durability,
    /// Writes are refused (25006).
    pub read_only: bool,
    /// Runs before the last error is given back.
    pub max_runs: u32,
    /// Runs without row locks; later ones take them.
    pub optimistic_runs: u32,
}

impl Default for TransactionOptions {
    fn default() -> Self {
        TransactionOptions {
            isolation: Isolation::Serializable,
            durability: Durability::On,
            read_only: false,
            max_runs: 64,
            optimistic_runs: 3,
        }
    }
}

pub(super) struct Inner {
    pub(super) node: Arc<Node>,
    pub(super) transaction: TransactionOptions,
    pub(super) clock: Arc<dyn env::Clock>,
    pub(super) random: Arc<dyn env::Random>,
    /// A temporary directory, removed at the end.
    temporary: Option<PathBuf>,
    #[cfg(feature = "sql")]
    pub(super) sessions: Sessions,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(dir) = &self.temporary {
            self.node.stop();
            let _ = std::fs::remove_dir_all(dir);
        }
    }
}

/// A database in this process; clones share it. The last one to go stops it cleanly.
#[derive(Clone)]
pub struct Database(pub(super) Arc<Inner>);

impl Database {
    /// Opens the database in this directory, making it if there is none, and recovers it. 55006 when another process has it.
    pub fn open(path: impl AsRef<Path>, options: DatabaseOptions) -> Result<Database> {
        Database::start(path.as_ref(), options, None)
    }

    /// A database in a new directory among the system's temporary ones, removed when the last clone goes.
    pub fn temporary() -> Result<Database> {
        Database::temporary_in(&std::env::temp_dir(), DatabaseOptions::default())
    }

    /// The same below a directory of the caller's choice.
    pub fn temporary_in(parent: &Path, options: DatabaseOptions) -> Result<Database> {
        let name = format!("canon-{:016x}", options.node.env.random.next_u64());
        let path = parent.join(name);
        Database::start(&path, options, Some(path.clone()))
    }

    fn start(
        path: &Path,
        options: DatabaseOptions,
        temporary: Option<PathBuf>,
    ) -> Result<Database> {
        let env = options.node.env.clone();
        let node = Arc::new(Node::open(path, options.node)?);
        #[cfg(feature = "sql")]
        node.set_compiler(Arc::new(sql::rules::Compiler));
        Ok(Database::with(node, options.transaction, env, temporary))
    }

    /// Over a node that runs already (a server that also has work of its own).
    pub fn over(node: Arc<Node>, options: TransactionOptions) -> Database {
        Database::with(node, options, env::Env::os(), None)
    }

    fn with(
        node: Arc<Node>,
        transaction: TransactionOptions,
        env: env::Env,
        temporary: Option<PathBuf>,
    ) -> Database {
        Database(Arc::new(Inner {
            #[cfg(feature = "sql")]
            sessions: Sessions::new(&node, &env),
            node,
            transaction,
            clock: env.clock,
            random: env.random,
            temporary,
        }))
    }

    /// What the start found on the disk.
    pub fn report(&self) -> &RecoveryReport {
        self.0.node.report()
    }

    /// The node below: watermarks, flush figures, checkpoints.
    pub fn node(&self) -> &Arc<Node> {
        &self.0.node
    }

    /// What transactions share: store, locks, counts of commits and of aborts by cause.
    pub fn manager(&self) -> &TxnManager {
        self.0.node.manager()
    }

    /// Writes a checkpoint now and waits for it.
    pub fn checkpoint(&self) -> Result<()> {
        self.0.node.checkpoint()
    }
}
