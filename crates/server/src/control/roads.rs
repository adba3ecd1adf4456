//! The asking end of the control plane's connections (`replication::members`).
//!
//! A connection that has had its answer is kept for the next question. One question goes over a connection at a time, so that one that is given up takes its connection with it.
//!
//! Left out on purpose: what is asked.

use crate::replication::copy_both::{CopyBoth, broken};
use crate::replication::members::bytes;
use crate::replication::{Primary, membership};
use base::{Error, Result, SqlState};
use parking_lot::Mutex;
use protocol::Line;
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

async fn connect(primary: &Primary) -> Result<Connection> {
    let mut primary = primary.clone();
    primary.connect_timeout = primary.connect_timeout.min(CONNECT);
    let parameters = [(membership::REPLICATION, "control")];
    let link = primary.connect(&parameters).await?;
    let (stream, input) = link.into_parts();
    Ok(CopyBoth::new(stream, input))
}

/// Connections to other nodes, by address.
#[derive(Default)]
pub struct Roads {
    idle: Mutex<HashMap<(String, u16), Vec<Connection>>>,
    ways: Mutex<HashMap<(String, u16), Arc<Semaphore>>>,
}

impl Roads {
    /// A place for one more question to this node; none: too many wait for it already.
    pub fn way(&self, to: &(String, u16)) -> Option<OwnedSemaphorePermit> {
        let mut ways = self.ways.lock();
        let places = || Arc::new(Semaphore::new(MOST));
        let place = ways.entry(to.clone()).or_insert_with(places).clone();
        place.try_acquire_owned().ok()
    }

    /// Asks the node at this address, which must prove that it is of the cluster. 08006 when no answer comes.
    pub async fn ask(&self, primary: &Primary, question: &[u8]) -> Result<Vec<u8>> {
        let address = primary.address();
        let kept = self.idle.lock().get_mut(&address).and_then(Vec::pop);
        if let Some(kept) = kept
            && let Ok(answer) = self.exchange(kept, &address, question).await
        {
            return answer;
        }
        // It was of an earlier start of that node.
        self.idle.lock().remove(&address);
        let made = connect(primary).await?;
        self.exchange(made, &address, question).await?
    }

    /// The same for a question that must not be asked twice. None: it was asked, and the connection ended before the answer.
    pub async fn ask_once(&self, primary: &Primary, question: &[u8]) -> Result<Option<Vec<u8>>> {
        let made = connect(primary).await?;
        match self.exchange(made, &primary.address(), question).await {
            Ok(answer) => answer.map(Some),
            Err(_) => Ok(None),
        }
    }

    /// The inner result is the other end's. Dropped on the way, it takes the connection with it.
    async fn exchange(
        &self,
        mut link: Connection,
        address: &(String, u16),
        question: &[u8],
    ) -> Result<Result<Vec<u8>>> {
        link.send_with(|out| out.extend_from_slice(question));
        let answer = tokio::time::timeout(PATIENCE, link.next_as(bytes)).await;
        let answer = answer.map_err(|_| {
            let what = format!("{}:{} does not answer", address.0, address.1);
            Error::new(SqlState::CONNECTION_FAILURE, what)
        })??;
        let mut idle = self.idle.lock();
        idle.entry(address.clone()).or_default().push(link);
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
