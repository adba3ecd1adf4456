//! A server that follows another one by `--replica-of`, which may be a member of a cluster that runs itself.
//!
//! Such a server is no member. The members agree on their primary without it, so its promotion would make a second history: the members choose again, above its
//! term, and what it has committed is set aside. So it asks its primary before it lets itself be promoted.
//!
//! Left out on purpose: a primary that does not answer. Then `canon promote --force --old-primary-is-down` is believed, as in a cluster of pairs.

use super::roads::Roads;
use super::words::{system, wait_for};
use crate::replication::members::{Members, Together};
use crate::replication::{Place, Primary};
use ::cluster::question::Question;
use base::{Error, Result, SqlState};
use embedded::engine::no_member;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use sql::engine::{CheckCancelled, MembershipChange};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// How long the primary has to say whether it is a member.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long it counts that nothing was said against a promotion. A second request for the same promotion does not ask again.
const COUNTS: Duration = Duration::from_secs(10);

/// The answer to a question of another node.
pub(super) fn takes_no_part() -> Error {
    let what = "this server takes part in no cluster that runs itself";
    Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, what)
}

/// See the head of the file.
pub struct Outsider {
    runtime: Handle,
    roads: Arc<Roads>,
    primary: Primary,
    /// When nothing was said against a promotion.
    allowed: Mutex<Option<Instant>>,
}

impl Outsider {
    /// Of the server here, if it follows another node. Call inside of a runtime.
    pub(super) fn of(place: &Place) -> Option<Arc<Outsider>> {
        let follow = place.follow.as_ref()?;
        Some(Arc::new(Outsider {
            runtime: Handle::current(),
            roads: Arc::default(),
            primary: follow.primary().clone(),
            allowed: Mutex::default(),
        }))
    }

    /// Guards this place, of a process that has no seat.
    pub fn attach(place: &Place) {
        if let Some(outsider) = Outsider::of(place) {
            let outsider: Arc<dyn Members> = outsider;
            _ = place.senders.control.set(outsider);
        }
    }

    fn asks(&self, check_cancelled: CheckCancelled<'_>) -> Result<Result<bool>> {
        let question = Question::RunsItself.encode();
        let (roads, primary) = (self.roads.clone(), self.primary.clone());
        let (told, heard) = std::sync::mpsc::channel();
        self.runtime.spawn(async move {
            _ = told.send(roads.ask(&primary, None, &question).await);
        });
        let answer = tokio::task::block_in_place(|| wait_for(&heard, PATIENCE, check_cancelled))?;
        let said = || {
            let late = || system("no answer");
            serde_json::from_slice(&answer.ok_or_else(late)??).map_err(system)
        };
        Ok(said())
    }
}

impl Members for Outsider {
    fn number(&self) -> Option<u64> {
        None
    }

    fn answer(self: Arc<Self>, _question: Vec<u8>) -> BoxFuture<'static, Result<Vec<u8>>> {
        Box::pin(async { Err(takes_no_part()) })
    }

    fn may_promote(&self, check_cancelled: CheckCancelled<'_>) -> Result<()> {
        let lately = *self.allowed.lock();
        if lately.is_some_and(|at| at.elapsed() < COUNTS) {
            return Ok(());
        }
        // A server that does not answer, or of an older build, says nothing against it.
        if !self.asks(check_cancelled)?.unwrap_or(false) {
            *self.allowed.lock() = Some(Instant::now());
            return Ok(());
        }
        let what = "this server is no member of the cluster whose primary it follows";
        Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, what)
            .detail("The members agree among themselves which node is the primary.")
            .hint("Start it with --join in place of --replica-of to make it a member."))
    }

    fn take_over(
        &self,
        _wait: Duration,
        _check_cancelled: CheckCancelled<'_>,
    ) -> Option<Result<Option<String>>> {
        None
    }

    fn change(
        &self,
        _change: MembershipChange,
        _check_cancelled: CheckCancelled<'_>,
    ) -> Result<String> {
        Err(no_member())
    }

    fn together(&self) -> Option<Together> {
        None
    }

    fn may_serve(&self) -> bool {
        true
    }
}
