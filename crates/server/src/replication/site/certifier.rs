//! The primary's end of a site's connection: candidates come, verdicts go.
//!
//! Candidates are certified on this task, one after the other: certification is a commit without its waits. What the verdict waits for, the
//! disk and replicas, is waited for beside it, so that candidates which come together are flushed together.
//!
//! A node that is not the primary of the term that the site follows decides nothing and says so: the site asks again when it has heard of the
//! new one.
//!
//! Left out on purpose: several certifying threads for one site. Each site has its own connection, which is on one of the gate's cores.

use super::words::{Answer, Asked, Certify, decode_asked};
use crate::replication::copy_both::{CopyBoth, broken, lost};
use base::{Candidate, Held, Result, SqlState};
use env::turns::afterwards;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use node::{Node, Verdict};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};

/// Answers in bytes that a site may leave unread before nothing more is read of it.
const UNREAD: usize = 1 << 20;

/// Before a site is told to ask again.
const AGAIN: Duration = Duration::from_millis(10);

type Answering = BoxFuture<'static, Answer>;

/// A verdict, once it may leave.
async fn committed(node: Arc<Node>, number: u64, held: Held) -> Answer {
    // Candidates that came with this one have committed by then: one flush for all.
    afterwards().await;
    node.flush_here(false);
    node.published(held).await;
    Answer::Committed(number, held.position())
}

async fn later(number: u64) -> Answer {
    tokio::time::sleep(AGAIN).await;
    Answer::Later(number)
}

/// This node stops, or is the primary no more: nothing is decided here, and the site asks again.
fn decides_no_more(code: SqlState) -> bool {
    let codes = [
        SqlState::CANNOT_CONNECT_NOW,
        SqlState::ADMIN_SHUTDOWN,
        SqlState::READ_ONLY_SQL_TRANSACTION,
    ];
    codes.contains(&code)
}

fn certify(node: &Arc<Node>, asked: &Certify) -> Result<Answering> {
    let number = asked.number;
    let candidate = Candidate::decode(&asked.candidate).filter(|c| c.number == number);
    let candidate = candidate.ok_or_else(|| broken("a candidate that is not readable"))?;
    if node.region().term() != asked.term {
        return Ok(Box::pin(later(number)));
    }
    let verdict = node.certify_as(&candidate, asked.durability, asked.again);
    Ok(match verdict {
        Ok(Verdict::Committed(held)) => Box::pin(committed(node.clone(), number, held)),
        Ok(Verdict::Running) => Box::pin(later(number)),
        Err(e) if decides_no_more(e.code()) => Box::pin(later(number)),
        Err(e) => {
            let at = node.marks().installed.get();
            Box::pin(async move { Answer::Refused(number, at, e) })
        }
    })
}

/// Serves a site until it goes.
pub async fn serve<S: AsyncRead + AsyncWrite>(
    mut link: CopyBoth<S>,
    node: &Arc<Node>,
) -> Result<()> {
    let mut answers: FuturesUnordered<Answering> = FuturesUnordered::new();
    loop {
        tokio::select! {
            asked = link.next_as(decode_asked) => match asked? {
                Asked::AreYouThere => link.send_with(|out| Answer::IAm.encode(out)),
                Asked::Certify(c) => answers.push(certify(node, &c)?),
            },
            Some(answer) = answers.next(), if !answers.is_empty() => {
                link.send_with(|out| answer.encode(out));
            }
        }
        if link.pending() > UNREAD {
            link.flush().await.map_err(|e| lost(&e))?;
        }
    }
}
