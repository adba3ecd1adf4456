//! A server that follows another one by `--replica-of`, which may be a member of a cluster that runs itself.
//!
//! Such a server is no member. The members agree on their primary without it, so its promotion would make a second history: the members choose again, above its
//! term, and what it has committed is set aside. So it asks its primary before it lets itself be promoted.
//!
//! Left out on purpose: a primary that does not answer. Then `canon promote --force --old-primary-is-down` is believed, as in a cluster of pairs.

use super::roads::Roads;
use super::words::{Question, system};
use crate::replication::members::{Members, Together};
use crate::replication::{Place, Primary};
use base::{Error, Result, SqlState};
use embedded::engine::no_member;
use futures::future::BoxFuture;
use sql::engine::{CheckCancelled, MembershipChange};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// How long the primary has to say whether it is a member.
const PATIENCE: Duration = Duration::from_secs(5);

/// See the head of the file.
pub struct Outsider {
    runtime: Handle,
    roads: Arc<Roads>,
    primary: Primary,
}

impl Outsider {
    /// Guards this place, if it follows another node. Call inside of a runtime.
    pub fn attach(place: &Place) {
        let Some(follow) = &place.follow else { return };
        let outsider: Arc<dyn Members> = Arc::new(Outsider {
            runtime: Handle::current(),
            roads: Arc::default(),
            primary: follow.primary().clone(),
        });
        _ = place.senders.control.set(outsider);
    }

    fn asks(&self) -> Result<bool> {
        let question = Question::RunsItself.to_bytes()?;
        let (roads, primary) = (self.roads.clone(), self.primary.clone());
        let (told, heard) = std::sync::mpsc::channel();
        self.runtime.spawn(async move {
            _ = told.send(roads.ask(&primary, &question).await);
        });
        let answer = tokio::task::block_in_place(|| heard.recv_timeout(PATIENCE));
        let answer = answer.map_err(system)??;
        serde_json::from_slice(&answer).map_err(system)
    }
}

impl Members for Outsider {
    fn answer(self: Arc<Self>, _question: Vec<u8>) -> BoxFuture<'static, Result<Vec<u8>>> {
        let what = "this server takes part in no cluster that runs itself";
        let e = Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, what);
        Box::pin(async move { Err(e) })
    }

    fn may_promote(&self) -> Result<()> {
        // A server that does not answer, or of an older build, says nothing against it.
        if !self.asks().unwrap_or(false) {
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
        _go_on: CheckCancelled<'_>,
    ) -> Option<Result<Option<String>>> {
        None
    }

    fn change(&self, _change: MembershipChange, _go_on: CheckCancelled<'_>) -> Result<String> {
        Err(no_member())
    }

    fn together(&self) -> Option<Together> {
        None
    }

    fn may_serve(&self) -> bool {
        true
    }
}
