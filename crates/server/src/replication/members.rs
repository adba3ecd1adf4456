//! How a connection of the control plane is answered: a node asks, this one answers. One question at a time.
//!
//! ```text
//! replication=control, proof by the cluster's secret ──▶ 'd' frames: a question ──▶ … ◀── 'd' frames: 0 and the answer, or 1 and why not
//! canon.meant=NUMBER beside it: another member than that one refuses the connection
//! ```
//! An address may lead to another member than the asking one believes. Two members at one address would be one process that votes and testifies twice. So the asking end
//! says which member it means.
//!
//! The proof is the login. Such a connection is let in beyond `max_connections`, since without it no member could be heard while all places are taken.
//!
//! Left out on purpose: what is asked ([`Members`] knows), and the asking end (`control::roads`).

use super::copy_both::CopyBoth;
use crate::connections::wire::{Stream, Wire};
use base::{Error, Result, SqlState};
use futures::future::BoxFuture;
use sql::engine::{CheckCancelled, MembershipChange};
use std::sync::Arc;
use std::time::Duration;

/// The code of a refusal because another member is meant.
pub const ANOTHER_MEANT: SqlState = SqlState::UNDEFINED_OBJECT;

/// The control plane of this node.
pub trait Members: Send + Sync {
    /// The number of the member that this server is, or is to be; none: it never is one.
    fn number(&self) -> Option<u64>;

    /// The answer to a question of another node; an error is told there.
    fn answer(self: Arc<Self>, question: Vec<u8>) -> BoxFuture<'static, Result<Vec<u8>>>;

    /// An error where the members agree on their primary themselves. Waits for them, on a thread that may wait.
    fn may_promote(&self, check_cancelled: CheckCancelled<'_>) -> Result<()>;

    /// A planned promotion of this replica: its report, or none within the time. `None`: the members do not decide that.
    fn take_over(
        &self,
        wait: Duration,
        check_cancelled: CheckCancelled<'_>,
    ) -> Option<Result<Option<String>>>;

    /// The members become others. What happened, in words.
    fn change(
        &self,
        change: MembershipChange,
        check_cancelled: CheckCancelled<'_>,
    ) -> Result<String>;

    /// The cluster as this node sees it; none: it is a member of none.
    fn together(&self) -> Option<Together>;

    /// Whether this node may acknowledge and serve strong reads, if it leads.
    fn may_serve(&self) -> bool;
}

/// The cluster as this node sees it.
#[derive(Clone, Debug, Default)]
pub struct Together {
    pub members: Vec<MemberSeen>,
    /// Replicas that a commit waits for, and those that hold each commit that was acknowledged.
    pub wanted: usize,
    pub promised: usize,
    pub degraded: bool,
    /// What is set for the cluster, each as `NAME=VALUE`.
    pub settings: Vec<String>,
    /// The last fail-over that may have lost commits that were acknowledged: the term that it began, and within which time before it.
    pub lost: Option<(u64, Duration)>,
    /// How long the lease is held, where this node leads.
    pub lease: Option<Duration>,
    /// Why no other node is named if the primary is lost; none: one is.
    pub obstacle: Option<String>,
}

/// One member.
#[derive(Clone, Debug)]
pub struct MemberSeen {
    pub name: String,
    /// `HOST:PORT`
    pub address: String,
    pub has_copy: bool,
    pub site: bool,
    pub votes: bool,
    /// The primary.
    pub leads: bool,
    /// The leader of the consensus.
    pub decides: bool,
}

/// 42704 where the other end means another member than this server. It says a number, or none as a build that knows of no such parameter.
pub fn is_meant(members: Option<&Arc<dyn Members>>, meant: Option<&str>, own: &str) -> Result<()> {
    let number = members.and_then(|m| m.number());
    let is_own = |meant: &str| number.is_some_and(|n| meant.parse() == Ok(n));
    match meant {
        Some(meant) if !is_own(meant) => Err(Error::new(
            ANOTHER_MEANT,
            format!("another member is meant than \"{own}\""),
        )),
        _ => Ok(()),
    }
}

/// The bytes of a frame, whatever they are.
pub fn bytes(b: &[u8]) -> std::result::Result<Vec<u8>, &'static str> {
    Ok(b.to_vec())
}

/// Answers another node until it goes.
pub async fn serve<S: Stream>(
    wire: &mut Wire<S>,
    members: Option<&Arc<dyn Members>>,
) -> Result<()> {
    let members = members.ok_or_else(|| {
        let what = "this server takes part in no cluster that runs itself";
        Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, what)
            .hint("It follows another server with --replica-of: join that one.")
    })?;
    let input = wire.input.bytes().to_vec();
    wire.input.take(input.len());
    let mut link = CopyBoth::new(&mut wire.stream, input);
    loop {
        let question = link.next_as(bytes).await?;
        let answer = members.clone().answer(question).await;
        link.send_with(|out| match &answer {
            Ok(answer) => {
                out.push(0);
                out.extend_from_slice(answer);
            }
            Err(e) => {
                out.push(1);
                out.extend_from_slice(e.fields().message.as_bytes());
            }
        });
        let sent = link.flush().await;
        sent.map_err(|e| super::copy_both::lost(&e))?;
    }
}
