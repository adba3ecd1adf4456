//! A site: a replica that runs changes of rows itself and has its primary certify them (PSP §3.3).
//!
//! ```text
//! session ──▶ Topology::commit ──▶ Txn::candidate ──▶ Certifier::certify      the server's connection; the verdict, however long it takes
//!                                                   ──▶ published             what was written is shown here, in its place in the history
//!                                                   ──▶ the transaction ends  its row locks go, and whatever waits for them sees what it wrote
//! ```
//! The transaction lives in the future until then. So a hot row queues at its site, and transactions of one site do not lose to each other. The
//! session's next snapshot has its own commit. A refusal comes when what won is shown here: a transaction that runs again at once does not
//! lose to it again.
//!
//! **A verdict counts only where the history here has the commit.** A primary that was replaced may have given it, and the site may follow the next one by the time
//! that it shows so much: then that one is asked, under the same number.
//!
//! A node that is promoted is a site no more. What was in flight is looked up by its number in the history that the node has; what had not
//! been sent is refused by `txn`, since only the old primary could have certified it.
//!
//! Left out on purpose: commits of a site that are shown there before the prefix has them (`Version::stamp` is for them), and speculation.

use base::schema::SequenceDef;
use base::{Candidate, CommitWait, Committing, Drawn, Error, Oid, Position, Result, SqlState};
use commit::PublishedWait;
use std::sync::Arc;
use txn::Txn;

use crate::certifier::{Certifier, Request};
use crate::node::Node;
use crate::ranges::{Found, Numbers};

/// Planted: a verdict counts whatever the history here has.
fn believes_all() -> bool {
    let planted = env::fault::planted;
    planted("site.answers_unshown") || planted("site.believes_any_verdict")
}

impl Node {
    /// Makes a replica a site, for as long as it is one; before it serves. The first call counts.
    pub fn be_site(&self, certifier: Arc<dyn Certifier>) {
        if self.shared().certifier.set(certifier).is_ok() {
            self.manager().set_site(true);
        }
    }

    /// Whether changes of rows run here and are certified at the primary.
    pub fn is_site(&self) -> bool {
        std::ptr::addr_eq(self.topology(), &crate::topology::SITE)
    }

    /// Where the transaction of this number has committed, as far as the history that is here says.
    pub fn committed_at(&self, number: u64) -> Option<Position> {
        self.shared().outcomes.committed_at(number)
    }

    /// What the primary says to a question for numbers of a sequence.
    pub fn numbers_came(&self, sequence: Oid, answer: Result<Numbers>) {
        self.shared().ranges.come(sequence, answer);
    }

    /// This node follows no more, and gives numbers of its own.
    pub fn draws_no_more(&self) {
        self.shared().ranges.end();
    }

    pub(crate) fn take_number(&self, sequence: &SequenceDef) -> Drawn {
        let shared = self.shared();
        let now = shared.options.env.clock.monotonic_nanos() / 1_000_000;
        let (found, ask) = shared.ranges.take(sequence, now);
        if let Some(count) = ask {
            let certifier = shared.certifier.get().expect("a site has one");
            certifier.draw(sequence.id, count);
        }
        match found {
            // Published before it came.
            Found::Number(n) => Drawn::Number(n, Position::ZERO),
            Found::None(told) => Drawn::Coming(Box::pin(async move {
                told.await.unwrap_or_else(|_| {
                    let what = "the numbers of the sequence that were asked for do not come";
                    Err(Error::new(SqlState::CANNOT_CONNECT_NOW, what))
                })
            })),
        }
    }

    pub(crate) fn send_candidate(&self, txn: Box<Txn>, number: u64) -> Committing {
        let number = match number {
            0 => self.shared().options.env.random.next_u64().max(1),
            n => n,
        };
        let candidate = match txn.candidate(number) {
            Ok(candidate) => candidate,
            Err(e) => return Committing::Done(Err(e)),
        };
        if candidate.footprint.writes.is_empty() {
            // What it inserted it has deleted again: it has read only.
            return Committing::Done(Ok(CommitWait::Published(candidate.footprint.snapshot)));
        }
        let (after, durability) = (self.marks().published.get(), txn.durability());
        let request = move |candidate: Candidate, again| Request {
            number,
            after,
            again,
            durability,
            candidate: candidate.encode(),
        };
        let certifier = self.shared().certifier.get();
        let certifier = certifier.expect("a site has one").clone();
        let verdict = certifier.clone().certify(request(candidate, false));
        let pipeline = &self.shared().pipeline;
        let (marks, waiters) = (pipeline.marks.clone(), pipeline.waiters.clone());
        let outcomes = self.shared().outcomes.clone();
        Committing::Later(Box::pin(async move {
            let mut at = verdict.await?;
            loop {
                let shown = CommitWait::Published(at);
                if !env::fault::planted("site.answers_unshown") {
                    PublishedWait::new(shown, marks.clone(), waiters.clone()).await;
                }
                match outcomes.committed_at(number) {
                    Some(here) if here > at => at = here,
                    None if !believes_all() => {
                        let again = request(txn.candidate(number)?, true);
                        at = certifier.clone().certify(again).await?;
                    }
                    _ => {
                        drop(txn);
                        return Ok(shown);
                    }
                }
            }
        }))
    }
}
