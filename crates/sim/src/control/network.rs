//! The ways between the members: late, lost, doubled, cut in one direction or both.
//!
//! ```text
//! question ── delay ──▶ the machine runs, and its process is there ──▶ hear ── delay ──▶ answer
//! ```
//! A message that is lost is missed only after a server's patience. One to a process that is not there is refused at once. What comes to a machine that stands still is
//! taken up when it goes on. A message that is slow was past a cut that comes later.
//!
//! Left out on purpose: connections. The consensus counts on no order of messages.

use super::executor::OUTSIDE;
use super::world::World;
use cluster::consensus::Carried;
use cluster::time::{sleep, timeout};
use cluster::{Carry, NodeId};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// How long another member may take for one answer, as in a server.
const PATIENCE: Duration = Duration::from_secs(10);

const MS: u64 = 1_000_000;

impl World {
    fn is_cut(&self, from: NodeId, to: NodeId) -> bool {
        self.links.lock().cut.contains(&(from, to))
    }

    /// Most are quick, some slow, some lost. Whether it has arrived.
    async fn travels(&self, from: NodeId, to: NodeId) -> bool {
        let below = |n| self.executor.below(n);
        let mended = self.links.lock().mended;
        let delay = match below(50) {
            0 | 1 if !mended => below(3000 * MS),
            2 if !mended => return false,
            _ => below(4 * MS),
        };
        let slow = delay > 100 * MS;
        if self.is_cut(from, to) {
            return false;
        }
        sleep(Duration::from_nanos(delay)).await;
        slow || !self.is_cut(from, to)
    }

    /// Ready when the machine runs.
    async fn runs(&self, node: NodeId) {
        loop {
            let until = self.executor.paused(node as usize);
            let left = until.saturating_sub(self.executor.time());
            if left == 0 {
                return;
            }
            sleep(Duration::from_nanos(left)).await;
        }
    }

    /// Takes a message there and runs this on the machine, if its process is there.
    pub fn post(
        self: &Arc<World>,
        from: NodeId,
        to: NodeId,
        then: impl FnOnce(Arc<World>) + Send + 'static,
    ) {
        let world = self.clone();
        self.executor.spawn_on(OUTSIDE, async move {
            if !world.travels(from, to).await {
                return;
            }
            world.runs(to).await;
            if world.is_up(to) {
                let here = world.clone();
                let then = async move { then(here) };
                world.executor.spawn_on(to as usize, then);
            }
        });
    }

    /// The same with a question of the control plane. What is told is the answer; nothing is told of one that is lost.
    async fn ask(
        self: Arc<World>,
        from: NodeId,
        to: NodeId,
        message: Vec<u8>,
        told: Option<oneshot::Sender<io::Result<Vec<u8>>>>,
    ) {
        if !self.travels(from, to).await {
            return sleep(2 * PATIENCE).await;
        }
        self.runs(to).await;
        let Some(ear) = self.ear(to) else {
            if let Some(told) = told {
                self.runs(from).await;
                _ = told.send(Err(io::ErrorKind::ConnectionRefused.into()));
            }
            return;
        };
        let (say, heard) = oneshot::channel();
        self.executor.spawn_on(to as usize, async move {
            _ = say.send(ear.hear(&message).await);
        });
        let answer = heard.await;
        // The process is gone.
        let answer = answer.unwrap_or_else(|_| Err(io::ErrorKind::ConnectionReset.into()));
        if !self.travels(to, from).await {
            return sleep(2 * PATIENCE).await;
        }
        if let Some(told) = told {
            self.runs(from).await;
            _ = told.send(answer);
        }
    }
}

/// One member's way into the network.
pub struct Road {
    pub me: NodeId,
    pub world: Arc<World>,
}

impl Carry for Road {
    fn carry(&self, to: NodeId, message: Vec<u8>) -> Carried<'_> {
        Box::pin(async move {
            let (from, world) = (self.me, &self.world);
            world.report.lock().messages += 1;
            // A server asks again over another connection, if one that it has kept breaks.
            if world.executor.below(100) == 0 {
                let twice = world.clone().ask(from, to, message.clone(), None);
                world.executor.spawn_on(OUTSIDE, twice);
            }
            let (told, answer) = oneshot::channel();
            let asked = world.clone().ask(from, to, message, Some(told));
            world.executor.spawn_on(OUTSIDE, asked);
            match timeout(PATIENCE, answer).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(_)) => Err(io::ErrorKind::ConnectionReset.into()),
                Err(_) => Err(io::ErrorKind::TimedOut.into()),
            }
        })
    }
}
