//! What SQL and a node say to each other of the topology: how a cluster's nodes share the work.
//!
//! Two questions are kept apart. Where a node's history comes from decides what its readers see. What may run at the node decides where a
//! statement goes. A replica follows and runs no writes, so one answer served for both; a node that follows and commits writes
//! of its own gives two.
//!
//! Left out on purpose: what a topology does, which is the node's (`node::topology`).

use crate::{CommitWait, Position, Result};
use std::future::Future;
use std::pin::Pin;

/// The next number of a sequence.
pub enum Drawn {
    /// It, and what has to be published before it is told.
    Number(i64, Position),
    /// None is here. When this is ready there are some, and they are asked for again; other sessions may have been faster.
    Coming(Pin<Box<dyn Future<Output = Result<()>> + Send>>),
}

/// A commit on its way.
pub enum Committing {
    /// The outcome is known: what the reply has to wait for, or why the transaction was rolled back.
    Done(Result<CommitWait>),
    /// Another node decides. The transaction lives in the future; dropping the future leaves the outcome unknown here.
    Later(Pin<Box<dyn Future<Output = Result<CommitWait>> + Send>>),
}

impl Committing {
    /// The outcome, which is there at once where this node decides.
    #[inline]
    pub async fn outcome(self) -> Result<CommitWait> {
        match self {
            Committing::Done(outcome) => outcome,
            Committing::Later(decided) => decided.await,
        }
    }
}

/// A kind of work, as far as topologies differ about where it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// What changes or locks rows, changes the schema or moves a sequence: all of it.
    Write,
    /// Of that, what changes rows by statements with a plan. A site runs it, and has the primary certify it.
    Rows,
    /// Advisory locks that hold in the whole cluster.
    Lock,
    /// NOTIFY, which goes through the log.
    Notify,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Error, Position, SqlState};
    use std::task::{Context, Poll, Waker};

    fn now<T>(f: impl Future<Output = T>) -> Poll<T> {
        let mut f = std::pin::pin!(f);
        f.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn an_outcome_that_is_known_is_there_at_once() {
        let held = CommitWait::Decided(Position::new(1, 2));
        let done = now(Committing::Done(Ok(held)).outcome());
        assert!(matches!(done, Poll::Ready(Ok(h)) if h == held));
        let later = Committing::Later(Box::pin(std::future::pending()));
        assert!(now(later.outcome()).is_pending());
        let lost = Error::new(SqlState::SERIALIZATION_FAILURE, "lost");
        let later = Committing::Later(Box::pin(std::future::ready(Err(lost))));
        let Poll::Ready(Err(e)) = now(later.outcome()) else {
            panic!("it was decided");
        };
        assert_eq!(e.code(), SqlState::SERIALIZATION_FAILURE);
    }
}
