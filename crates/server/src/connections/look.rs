//! A replica's look at the newest schema, for logins: a role, a password or the end of one that was acknowledged at the primary counts here.
//!
//! ```text
//! startup message ──▶ the look, SOON at most, whoever it is ──▶ role is not there, or may not log in ──▶ the look, LIMIT at most ──▶ as if it came now
//!                                                           ──▶ SCRAM: a look that is not over goes on beside the client's first message
//!                                                               a proof that is wrong ──▶ the look, LIMIT at most ──▶ refused
//! ```
//! Before a proof is known to be right or wrong nothing waits that depends on the name, and then all who are wrong wait alike: so outsiders
//! cannot tell by the clock which roles exist. (To those who need no password the server says so in words.) A proof is made for the salt
//! that the client was sent, so it cannot be looked at again with another.
//!
//! Looks share their fetches with those of strong reads (docs/design/fresh-reads.md). While the primary cannot be asked, or what it has done does not
//! come, what is shown decides: after one that was in vain others wait BRIEFLY, until one is not. A look ends when this node becomes the primary: the old
//! one may not answer for long, and the other replicas wait at this login.
//!
//! Left out on purpose: looks for sessions that there are. What a role may do is asked with each statement.

use base::Result;
use futures::future::{BoxFuture, Either, select};
use sql::engine::Engine;
use sql::reading::{Consistency, ReadPoint, ReadPolicy, ReadWant, Touch};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Longest wait for it.
const LIMIT: Duration = Duration::from_secs(5);
/// Longest wait of those who may get in without it.
const SOON: Duration = Duration::from_secs(2);
/// The same while looks are in vain.
const BRIEFLY: Duration = Duration::from_millis(250);
/// How often a look that waits sees whether this node is the primary by now.
const TURN: Duration = Duration::from_millis(10);

/// What the looks of a server have come to.
#[derive(Default)]
pub(super) struct Looks {
    /// The last one was.
    in_vain: AtomicBool,
}

/// See the head of the file. It begins when somebody waits for it, or for something beside it.
pub(super) struct Look<'a> {
    /// None: it is over. Whether it came to something.
    ends: Option<BoxFuture<'a, bool>>,
    looks: &'a Looks,
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

/// Until this node is the primary.
async fn leads<E: Engine>(engine: &E) {
    while engine.follows() {
        sleep(TURN).await;
    }
}

impl<'a> Look<'a> {
    /// At a primary there is nothing to wait for.
    pub fn at<E: Engine>(engine: &'a E, looks: &'a Looks) -> Look<'a> {
        let look = async move {
            let renewed = pin!(timeout(LIMIT, renewed(engine)));
            match select(renewed, pin!(leads(engine))).await {
                // Why it could not be is for nobody who is not logged in.
                Either::Left((done, _)) => matches!(done, Ok(Ok(()))),
                Either::Right(_) => true,
            }
        };
        let follows = engine.follows();
        Look {
            ends: follows.then(|| Box::pin(look) as BoxFuture<'a, bool>),
            looks,
        }
    }

    /// Waits for it as everybody does.
    pub async fn soon(&mut self) {
        let Some(ends) = &mut self.ends else { return };
        let patience = match self.looks.in_vain.load(Relaxed) {
            true => BRIEFLY,
            false => SOON,
        };
        let ended = timeout(patience, ends).await;
        self.looks.in_vain.store(ended != Ok(true), Relaxed);
        if ended.is_ok() {
            self.ends = None;
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
