//! A replica's look at the newest schema, for logins that would be refused otherwise: a role that was just made at the primary gets in here.
//!
//! ```text
//! startup message ──▶ role is not there, or may not log in ──▶ the look, LIMIT at most ──▶ as if it came now
//!                 ──▶ SCRAM: the look goes on beside the client's first message; nobody waits for it
//!                     a proof that is wrong ──▶ the look, LIMIT at most ──▶ refused; who tries again is measured by the newest schema
//! ```
//! Whoever gets in has waited for nothing. Before a proof is known to be right or wrong nothing waits that depends on the name, and then all who
//! are wrong wait alike: so outsiders cannot tell by the clock which roles exist. (To those who need no password the server says so
//! in words.) A proof is made for the salt that the client was sent, so it cannot be looked at again with another.
//!
//! Looks share their fetches with those of strong reads (docs/fresh-reads.md). While the primary cannot be asked a refusal is what it was, LIMIT
//! later.
//!
//! Left out on purpose: looks for those who get in. A password that was just changed at the primary may be good here until the schema is.

use base::Result;
use futures::future::{BoxFuture, Either, select};
use sql::engine::Engine;
use sql::reading::{Consistency, ReadPoint, ReadPolicy, ReadWant, Touch};
use std::pin::pin;
use std::time::Duration;

/// Longest wait for it.
const LIMIT: Duration = Duration::from_secs(5);

/// See the head of the file. It begins when somebody waits for it, or for something beside it.
pub(super) struct Look<'a> {
    /// None: it is over.
    ends: Option<BoxFuture<'a, ()>>,
}

/// Until this node shows the schema that a strong read would see that arrives now.
async fn renewed<E: Engine>(engine: &E) -> Result<()> {
    let want = ReadWant {
        consistency: Consistency::Strong,
        policy: ReadPolicy::Tracker,
        arrived: engine.arrival(),
    };
    let mut found = engine.read_point(&want, &|| vec![Touch::Catalog]);
    loop {
        match found {
            ReadPoint::Newest => return Ok(()),
            ReadPoint::Wait(ready) => found = ready.await?,
            ReadPoint::At(at) => {
                return match engine.readable(at, &[Touch::Catalog], &want) {
                    None => Ok(()),
                    Some(shown) => shown.await,
                };
            }
        }
    }
}

impl<'a> Look<'a> {
    /// At a primary there is nothing to wait for.
    pub fn at<E: Engine>(engine: &'a E) -> Look<'a> {
        let look = async move {
            // Why it could not be is for nobody who is not logged in.
            _ = tokio::time::timeout(LIMIT, renewed(engine)).await;
        };
        let follows = engine.in_recovery();
        Look {
            ends: follows.then(|| Box::pin(look) as BoxFuture<'a, ()>),
        }
    }

    /// Waits for it.
    pub async fn end(&mut self) {
        if let Some(ends) = &mut self.ends {
            ends.await;
            self.ends = None;
        }
    }

    /// Waits for something else, and the look goes on meanwhile.
    pub async fn beside<T>(&mut self, other: impl Future<Output = T>) -> T {
        let mut other = pin!(other);
        if let Some(ends) = &mut self.ends {
            match select(other.as_mut(), ends).await {
                Either::Left((t, _)) => return t,
                Either::Right(_) => self.ends = None,
            }
        }
        other.await
    }
}
