//! The primary's end of a site's connection: candidates come, verdicts go.
//!
//! A candidate of few rows is certified on this task, when it comes: certification is a commit without its waits. One of many rows is certified
//! on a thread of its own, since the core serves clients, too; those behind it do not wait for it. What the verdict waits for, the disk and
//! replicas, is waited for beside it, so that candidates which come together are flushed together.
//!
//! A node that is not the primary of the term that the site follows decides nothing and says so: the site asks again when it has heard of the
//! new one. The same holds for a primary of a cluster that runs itself, while it has no lease. Where commits wait for no replica, a verdict is certain once it stands in
//! the log here, and another node may lead by then.
//!
//! The primary says that it is there without being asked. A question of the site would stand behind a large candidate in the same stream, and
//! the site would take a slow line for a lost one.
//!
//! Left out on purpose: several threads for the short candidates of one site. Each site has its own connection, which is on one of the server's
//! cores.

use crate::replication::copy_both::{CopyBoth, lost};
use base::{Candidate, CommitWait, Error, Position, Result, SqlState};
use env::turns::afterwards;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use node::site_words::{Answer, Asked, Certify, Draw, decode_asked};
use node::{Node, Outcome, Verdict};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{MissedTickBehavior, interval};

/// Answers in bytes that a site may leave unread before nothing more is read of it.
const UNREAD: usize = 1 << 20;

/// Before a site is told to ask again.
const AGAIN: Duration = Duration::from_millis(10);

/// How often a site hears at least that its primary is there.
const BEAT: Duration = Duration::from_millis(500);

/// Bytes up to which a candidate is read on the connection's core, ...
const SHORT: usize = 64 << 10;
/// ... and rows that it read and wrote, up to which it is certified there.
const FEW: u64 = 1_000;

type Answering = BoxFuture<'static, Answer>;

/// [`afterwards`], of a future that its task polls beside others: it is polled again only if it is woken.
async fn behind_the_others() {
    let mut others = pin!(afterwards());
    poll_fn(|cx| {
        let behind = others.as_mut().poll(cx);
        if behind.is_pending() {
            cx.waker().wake_by_ref();
        }
        behind
    })
    .await;
}

/// A verdict, once it may leave.
async fn committed(node: Arc<Node>, number: u64, held: CommitWait) -> Answer {
    // Candidates that came with this one have committed by then: one flush for all.
    behind_the_others().await;
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

/// What has become of a candidate that is not readable here. Nothing of it commits from now on.
fn unreadable(node: &Arc<Node>, asked: &Certify) -> Answer {
    let number = asked.number;
    // One that was sent before may have been certified by another primary.
    let after = asked.again.unwrap_or(Position::MAX);
    let (code, what) = match node.outcome(number, after) {
        Outcome::Committed(at) => return Answer::Committed(number, at),
        Outcome::Running => return Answer::Later(number),
        Outcome::Aborted => (
            SqlState::PROTOCOL_VIOLATION,
            "the primary cannot read what this site asks it to commit",
        ),
        Outcome::Unknown => (
            SqlState::STATEMENT_COMPLETION_UNKNOWN,
            "the primary cannot read what this site asks it to commit; whether the transaction committed before is not known",
        ),
    };
    let e = Error::new(code, what).hint("Site and primary must run the same release.");
    Answer::Refused(number, node.marks().published.get(), e)
}

fn decoded(asked: &Certify) -> Option<Candidate> {
    Candidate::decode(&asked.candidate).filter(|c| c.number == asked.number)
}

/// Rows that certification looks up.
fn rows(c: &Candidate) -> u64 {
    let f = &c.footprint;
    let in_ranges = f.ranges.iter().map(|r| r.rows.count);
    let single = f.reads.len() + f.writes.len();
    in_ranges.fold(single as u64, u64::saturating_add)
}

fn certify(node: &Arc<Node>, site: &Arc<str>, leads: bool, asked: Certify) -> Answering {
    if !leads || node.region().term() != asked.term {
        return Box::pin(later(asked.number));
    }
    if asked.candidate.len() > SHORT {
        return Box::pin(aside(node.clone(), site.clone(), asked));
    }
    match decoded(&asked) {
        Some(c) if rows(&c) > FEW => Box::pin(aside(node.clone(), site.clone(), asked)),
        candidate => decide(node, site, &asked, candidate),
    }
}

/// On a thread of its own.
async fn aside(node: Arc<Node>, site: Arc<str>, asked: Certify) -> Answer {
    let number = asked.number;
    let decide = move || decide(&node, &site, &asked, decoded(&asked));
    let decided = tokio::task::spawn_blocking(decide);
    match decided.await {
        Ok(answer) => answer.await,
        Err(e) if e.is_panic() => std::panic::resume_unwind(e.into_panic()),
        // The server ends.
        Err(_) => later(number).await,
    }
}

/// The site waits until it shows what the answer tells of, so the log up to there leaves at once.
fn decide(
    node: &Arc<Node>,
    site: &str,
    asked: &Certify,
    candidate: Option<Candidate>,
) -> Answering {
    let number = asked.number;
    let Some(candidate) = candidate else {
        return match unreadable(node, asked) {
            Answer::Later(number) => Box::pin(later(number)),
            answer => Box::pin(std::future::ready(answer)),
        };
    };
    let after = asked.again.unwrap_or(Position::MAX);
    let verdict = node.certify_as(&candidate, asked.durability, after);
    match verdict {
        Ok(Verdict::Committed(held)) => {
            node.shipping().waits_for_log(site, held.position());
            Box::pin(committed(node.clone(), number, held))
        }
        Ok(Verdict::Running) => Box::pin(later(number)),
        Err(e) if decides_no_more(e.code()) => Box::pin(later(number)),
        Err(e) => {
            let at = node.marks().installed.get();
            node.shipping().waits_for_log(site, at);
            Box::pin(async move { Answer::Refused(number, at, e) })
        }
    }
}

/// Draws numbers for a site; they leave once it is certain that they are drawn.
fn draw(node: &Arc<Node>, leads: bool, asked: Draw) -> Answering {
    let sequence = asked.sequence;
    let later = || async move {
        tokio::time::sleep(AGAIN).await;
        Answer::DrawLater(sequence)
    };
    if !leads || node.region().term() != asked.term {
        return Box::pin(later());
    }
    match node.draw_range(sequence, asked.count) {
        Ok((numbers, at)) => {
            let node = node.clone();
            Box::pin(async move {
                behind_the_others().await;
                node.flush_here(false);
                node.published(CommitWait::Published(at)).await;
                Answer::Numbers(sequence, numbers)
            })
        }
        Err(e) if decides_no_more(e.code()) => Box::pin(later()),
        Err(e) => Box::pin(std::future::ready(Answer::NoNumbers(sequence, e))),
    }
}

/// Serves the site of this name until it goes. `leads`: whether this node may acknowledge, as far as it is the primary.
pub async fn serve<S: AsyncRead + AsyncWrite>(
    mut link: CopyBoth<S>,
    node: &Arc<Node>,
    site: &Arc<str>,
    leads: impl Fn() -> bool,
) -> Result<()> {
    let mut answers: FuturesUnordered<Answering> = FuturesUnordered::new();
    let mut beat = interval(BEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            asked = link.next_as(decode_asked) => answers.push(match asked? {
                Asked::Certify(c) => certify(node, site, leads(), c),
                Asked::Draw(d) => draw(node, leads(), d),
            }),
            Some(answer) = answers.next(), if !answers.is_empty() => {
                link.send_with(|out| answer.encode(out));
            }
            _ = beat.tick() => link.send_with(|out| Answer::IAm.encode(out)),
        }
        if link.pending() > UNREAD {
            link.flush().await.map_err(|e| lost(&e))?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use node::NodeOptions;
    use txn::Durability;

    #[tokio::test]
    async fn what_waits_behind_others_of_a_turn_goes_on_beside_other_futures() {
        env::turns::set_left(1);
        let mut all: FuturesUnordered<_> = [behind_the_others()].into_iter().collect();
        let once = poll_fn(|cx| std::task::Poll::Ready(all.poll_next_unpin(cx).is_pending()));
        assert!(once.await, "others are left in this turn");
        env::turns::set_left(0);
        assert!(all.next().await.is_some());
    }

    #[tokio::test]
    async fn a_candidate_that_cannot_be_read_is_refused_and_the_connection_goes_on() {
        let scratch = tempfile::tempdir().expect("a directory");
        let node = Node::open(scratch.path(), NodeOptions::default()).expect("a node");
        let node = Arc::new(node);
        let asked = |number, again| Certify {
            number,
            term: node.region().term(),
            again,
            durability: Durability::On,
            candidate: vec![1, 2, 3],
        };
        let code = |answer| match answer {
            Answer::Refused(_, _, e) => e.code(),
            other => panic!("{other:?}"),
        };
        let site: Arc<str> = "a".into();
        let first = certify(&node, &site, true, asked(7, None)).await;
        assert_eq!(code(first), SqlState::PROTOCOL_VIOLATION);
        // A long one is looked at on another thread.
        let mut long = asked(6, None);
        long.candidate.resize(SHORT + 1, 7);
        let refused = certify(&node, &site, true, long).await;
        assert_eq!(code(refused), SqlState::PROTOCOL_VIOLATION);
        // Another primary may have committed it, and this one may have forgotten that.
        let repeated = certify(&node, &site, true, asked(8, Some(Position::ZERO))).await;
        let known = [
            SqlState::PROTOCOL_VIOLATION,
            SqlState::STATEMENT_COMPLETION_UNKNOWN,
        ];
        assert!(known.contains(&code(repeated)));
        let mut old = asked(9, None);
        old.term += 1;
        assert!(matches!(
            certify(&node, &site, true, old).await,
            Answer::Later(9)
        ));
        let without_a_lease = certify(&node, &site, false, asked(10, None)).await;
        assert!(matches!(without_a_lease, Answer::Later(10)));
    }
}
