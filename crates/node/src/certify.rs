//! A primary certifies what ran at another node (PSP §3.3).
//!
//! ```text
//! candidate ──▶ its number is claimed     a repeated request is answered with the first one's verdict
//!           ──▶ TxnManager::adopt         a transaction with the same reads and writes
//!           ──▶ commit                    certification is the commit that exists; record locks keep apart what conflicts
//! ```
//! The verdict is what a reply waits for, or the error that the candidate's client gets. A node that repeats a request after a lost
//! connection names the same number. So a candidate commits once at most, also where the first verdict never arrived, and also after a change
//! of the primary: numbers come with the log.
//!
//! Left out on purpose: the connection that candidates come on, which is the server's.

use base::{Candidate, CommitWait, Error, Position, Result, SqlState, Work};
use txn::{CommitOrder, Durability};

use crate::node::Node;
use crate::outcomes::Claim;
use crate::pipeline::{Marked, Quiet};

/// What a primary says of a candidate that it does not refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It has committed; the verdict is sent when this is released.
    Committed(CommitWait),
    /// A request with this number runs: its outcome is to be asked for.
    Running,
}

/// The statements have found their constraints satisfied where they ran. A row that violates one now came after their snapshot, so the
/// transaction is to run again, and its statement then says what is violated, or does what ON CONFLICT asks for.
fn concurrent(e: Error) -> Error {
    match e.code() {
        SqlState::UNIQUE_VIOLATION | SqlState::FOREIGN_KEY_VIOLATION => {
            let what = "could not serialize access due to concurrent update";
            Error::new(SqlState::SERIALIZATION_FAILURE, what)
                .detail(e.fields().message.to_string())
                .hint("The transaction might succeed if retried.")
        }
        _ => e,
    }
}

impl Node {
    /// Certifies a candidate on this thread, whose request may be a repeated one. An error says why its transaction is rolled back, but for
    /// two: 40003, it may have committed before; 57P03, this node is not the primary. The caller has the log flushed next.
    pub fn certify(&self, candidate: &Candidate) -> Result<Verdict> {
        self.certify_as(candidate, Durability::On, candidate.footprint.snapshot)
    }

    /// The same with what the acknowledgement promises. `after`: if the request has come before, it can have committed above this position
    /// only. One that comes for the first time says the greatest position, and is never 40003.
    pub fn certify_as(
        &self,
        candidate: &Candidate,
        durability: Durability,
        after: Position,
    ) -> Result<Verdict> {
        let order = Quiet(&self.shared().pipeline);
        self.certify_in(candidate, durability, after, &order)
    }

    /// The same in an order that does something beside ([`Node::commit_in`]).
    pub fn certify_in(
        &self,
        candidate: &Candidate,
        durability: Durability,
        after: Position,
        order: &dyn CommitOrder,
    ) -> Result<Verdict> {
        if !self.runs(Work::Write) {
            let what = "this node is not the primary and certifies nothing";
            return Err(Error::new(SqlState::CANNOT_CONNECT_NOW, what));
        }
        let outcomes = &self.shared().outcomes;
        let number = candidate.number;
        match outcomes.claim(number, after)? {
            Claim::New => {}
            Claim::Running => return Ok(Verdict::Running),
            Claim::Committed(at) => {
                return Ok(Verdict::Committed(self.promised(durability, at)));
            }
        }
        let committed = self.run_candidate(candidate, durability, order);
        if committed.is_err() {
            // For good: the same request may be on its way a second time, and its site has then been told.
            outcomes.refuse(number);
        }
        committed.map(Verdict::Committed).map_err(concurrent)
    }

    fn run_candidate(
        &self,
        candidate: &Candidate,
        durability: Durability,
        order: &dyn CommitOrder,
    ) -> Result<CommitWait> {
        let _turn = self.shared().pipeline.turns.take(candidate);
        let mut txn = self.manager().adopt(candidate)?;
        txn.set_durability(durability);
        if !txn.has_writes() {
            let what = "a candidate without writes";
            return Err(Error::new(SqlState::PROTOCOL_VIOLATION, what));
        }
        let marked = Marked {
            order,
            outcomes: &self.shared().outcomes,
            number: candidate.number,
            once: true,
        };
        self.commit_in(Box::new(txn), &marked)
    }
}
