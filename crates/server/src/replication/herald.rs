//! A node tells the nodes that it knows of its term, and asks them for theirs (`replica::proof::Rounds` says when).
//!
//! ```text
//! a primary whose term other nodes have not heard of  ──▶ replication=terms, with a proof, until they have answered
//! a hint (a client's token, a stranger's claim)       ──▶ the same, to all of them, at most once a second
//! DIR/CANON_NODES    an address a line: where this node found its primary, and where replicas say that they take clients
//! ```
//! So the old primary of a forced promotion hears of the new term as soon as it can be reached. Only what a node has proven counts: a hint
//! costs one question and changes nothing else.
//!
//! Left out on purpose: nodes that another node knows, and an end to asking those that are gone; one connection in 30 s is cheap.

use super::{Primary, Senders};
use base::{Error, Result, SqlState};
use node::{Node, Role};
use parking_lot::Mutex;
use replica::proof::Rounds;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tracing::{info, warn};

/// The file in the data directory.
const FILE: &str = "CANON_NODES";
/// How often it is looked who is due.
const LOOK: Duration = Duration::from_millis(200);
/// How long another node may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// See the head of the file.
pub struct Herald {
    node: Arc<Node>,
    path: PathBuf,
    rounds: Mutex<Rounds>,
    /// How often a node was told and asked.
    asked: AtomicU64,
}

impl Herald {
    /// Knows the nodes that the directory tells of.
    pub fn new(node: Arc<Node>) -> Herald {
        let path = node.dir().path().join(FILE);
        let mut rounds = Rounds::default();
        let known = std::fs::read_to_string(&path).unwrap_or_default();
        for address in known.lines().filter(|a| Primary::parse(a).is_ok()) {
            rounds.know(address);
        }
        Herald {
            node,
            path,
            rounds: Mutex::new(rounds),
            asked: AtomicU64::new(0),
        }
    }

    /// There is a node of this cluster at this address.
    pub fn know(&self, address: &str) {
        let mut rounds = self.rounds.lock();
        if !rounds.know(address) {
            return;
        }
        let text: String = rounds.nodes().map(|a| format!("{a}\n")).collect();
        let temporary = self.path.with_extension("tmp");
        let write = || {
            _ = std::fs::remove_file(&temporary);
            let mut options = std::fs::OpenOptions::new();
            let options = options.write(true).create_new(true).mode(0o600);
            options.open(&temporary)?.write_all(text.as_bytes())?;
            std::fs::rename(&temporary, &self.path)
        };
        if let Err(e) = write() {
            // It is known until the next start.
            warn!("could not write {}: {e}", self.path.display());
        }
    }

    /// Something that proves nothing speaks of a newer term.
    pub fn hint(&self) {
        self.rounds.lock().hint();
    }

    /// How often a node was told and asked since the start.
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// Tells and asks, as long as the server runs.
    pub async fn run(self: Arc<Herald>, senders: Arc<Senders>) {
        let began = tokio::time::Instant::now();
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            look.tick().await;
            let now = began.elapsed().as_millis() as u64;
            let leads = self.node.role() == Role::Primary;
            let term = senders.membership.known();
            let due = self.rounds.lock().due(now, term, leads);
            for address in due {
                let (herald, senders) = (self.clone(), senders.clone());
                tokio::spawn(async move { herald.tell(&senders, &address).await });
            }
        }
    }

    async fn tell(&self, senders: &Senders, address: &str) {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let term = senders.membership.known();
        // One that cannot be reached is asked again.
        if let Ok(knows) = self.ask(senders, address).await {
            info!(%address, term, "a node was told of this term");
            self.rounds.lock().answered(address, knows.max(term));
        }
    }

    async fn ask(&self, senders: &Senders, address: &str) -> Result<u64> {
        let primary = Primary::parse(address)
            .map_err(|why| Error::new(SqlState::INVALID_PARAMETER_VALUE, why))?;
        let mut primary = primary.as_member(senders.membership.clone());
        primary.connect_timeout = PATIENCE;
        let terms = [(super::membership::REPLICATION, "terms")];
        let (_, claim) = primary.connect_proven(&terms).await?;
        let claim = claim.ok_or_else(|| Error::internal("no proof"))?;
        senders.told(&claim);
        Ok(claim.term)
    }
}
