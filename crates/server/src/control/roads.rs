//! The asking end of the control plane's connections (`replication::members`).
//!
//! A connection that has had its answer is kept for the next question. One question goes over a connection at a time, so that one that is given up takes its connection with it.
//!
//! **A member is an address and a number.** The address alone may lead to another member: a name or a balancer for several, a loopback address, the address of a machine that
//! another member has now. The other end refuses then.
//!
//! Left out on purpose: what is asked.

use crate::replication::copy_both::{CopyBoth, broken};
use crate::replication::members::bytes;
use crate::replication::{Primary, membership};
use ::cluster::NodeId;
use base::{Error, Result, SqlState};
use parking_lot::Mutex;
use protocol::Line;
use protocol::startup::MEANT;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How long another node may take for one answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long it may take to be connected to.
const CONNECT: Duration = Duration::from_secs(2);

type Connection = CopyBoth<Line<TcpStream>>;

/// Most questions of a member that wait for one node.
const MOST: usize = 32;

/// An address, and the number of the member that is meant there; none: whichever node of the cluster it leads to.
type Way = ((String, u16), Option<NodeId>);

/// 42704: the address leads to another member than the one that is meant.
async fn connect(primary: &Primary, to: Option<NodeId>) -> Result<Connection> {
    let mut primary = primary.clone();
    primary.connect_timeout = primary.connect_timeout.min(CONNECT);
    let number = to.map(|n| n.to_string());
    let mut parameters = vec![(membership::REPLICATION, "control")];
    parameters.extend(number.as_deref().map(|n| (MEANT, n)));
    let (link, claim) = primary.connect_proven(&parameters).await?;
    if let (Some(member), Some(claim)) = (&primary.member, claim) {
        member.meets(claim.cluster)?;
    }
    let (stream, input) = link.into_parts();
    Ok(CopyBoth::new(stream, input))
}

/// Connections to other nodes, by address and number.
#[derive(Default)]
pub struct Roads {
    idle: Mutex<HashMap<Way, Vec<Connection>>>,
    places: Mutex<HashMap<Way, Arc<Semaphore>>>,
}

impl Roads {
    /// A place for one more question to this member; none: too many wait for it already.
    pub fn way(&self, primary: &Primary, to: NodeId) -> Option<OwnedSemaphorePermit> {
        let mut places = self.places.lock();
        let all = || Arc::new(Semaphore::new(MOST));
        let way = (primary.address(), Some(to));
        let place = places.entry(way).or_insert_with(all).clone();
        place.try_acquire_owned().ok()
    }

    /// Asks the node at this address, which must prove that it is of the cluster. 08006 when no answer comes, 42704 when it is another member than
    /// the one that is meant.
    pub async fn ask(
        &self,
        primary: &Primary,
        to: Option<NodeId>,
        question: &[u8],
    ) -> Result<Vec<u8>> {
        let way = (primary.address(), to);
        let kept = self.idle.lock().get_mut(&way).and_then(Vec::pop);
        if let Some(kept) = kept
            && let Ok(answer) = self.exchange(kept, &way, question).await
        {
            return answer;
        }
        // It was of an earlier start of that node.
        self.idle.lock().remove(&way);
        let made = connect(primary, to).await?;
        self.exchange(made, &way, question).await?
    }

    /// The same for a question that must not be asked twice. None: it was asked, and the connection ended before the answer.
    pub async fn ask_once(
        &self,
        primary: &Primary,
        to: NodeId,
        question: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        let made = connect(primary, Some(to)).await?;
        let way = (primary.address(), Some(to));
        match self.exchange(made, &way, question).await {
            Ok(answer) => answer.map(Some),
            Err(_) => Ok(None),
        }
    }

    /// The inner result is the other end's. Dropped on the way, it takes the connection with it.
    async fn exchange(
        &self,
        mut link: Connection,
        way: &Way,
        question: &[u8],
    ) -> Result<Result<Vec<u8>>> {
        link.send_with(|out| out.extend_from_slice(question));
        let answer = tokio::time::timeout(PATIENCE, link.next_as(bytes)).await;
        let answer = answer.map_err(|_| {
            let (host, port) = &way.0;
            let what = format!("{host}:{port} does not answer");
            Error::new(SqlState::CONNECTION_FAILURE, what)
        })??;
        let mut idle = self.idle.lock();
        idle.entry(way.clone()).or_default().push(link);
        drop(idle);
        Ok(match answer.split_first() {
            Some((0, answer)) => Ok(answer.to_vec()),
            Some((_, why)) => {
                let why = String::from_utf8_lossy(why).into_owned();
                Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, why))
            }
            None => Err(broken("an answer without a word")),
        })
    }
}
