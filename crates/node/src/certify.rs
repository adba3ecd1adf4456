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
//! Left out on purpose: the connection that candidates come on. Until it stands nothing sends candidates to this node.

use base::{Candidate, Error, Held, Result, SqlState, Work};

use crate::node::Node;
use crate::outcomes::Claim;

/// What a primary says of a candidate that it does not refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It has committed; the verdict is sent when this is released.
    Committed(Held),
    /// A request with this number runs: its outcome is to be asked for.
    Running,
}

impl Node {
    /// Certifies a candidate on this thread. An error says why its transaction is rolled back, except 40003: it may have committed before.
    /// The caller has the log flushed next.
    pub fn certify(&self, candidate: &Candidate) -> Result<Verdict> {
        if !self.topology().runs(Work::Write) {
            let what = "this node is not the primary and certifies nothing";
            return Err(Error::new(SqlState::CANNOT_CONNECT_NOW, what));
        }
        let outcomes = &self.shared().outcomes;
        let number = candidate.number;
        match outcomes.claim(number, candidate.footprint.snapshot)? {
            Claim::New => {}
            Claim::Running => return Ok(Verdict::Running),
            Claim::Committed(at) => return Ok(Verdict::Committed(Held::Decided(at))),
        }
        let committed = self.run_candidate(candidate);
        if committed.is_err() {
            outcomes.aborted(number);
        }
        committed.map(Verdict::Committed)
    }

    fn run_candidate(&self, candidate: &Candidate) -> Result<Held> {
        let txn = self.manager().adopt(candidate)?;
        if !txn.has_writes() {
            let what = "a candidate without writes";
            return Err(Error::new(SqlState::PROTOCOL_VIOLATION, what));
        }
        crate::topology::Local::commit_here(self, Box::new(txn), candidate.number)
    }
}
