//! What became of transactions whose client may not have heard it: commits that carry a number of their own.
//!
//! ```text
//! 0 ── begin, claim ──▶ running ── committed ──▶ committed at a position      also learnt from the log: by recovery, and by a replica
//!                   └────── aborted ────▶ 0
//! 0 ── ask ───▶ refused: a commit with this number fails from now on
//! ```
//! The number stands in the head of the commit's record (`stamp`), so it is exactly as durable as the commit and comes to
//! every node that the commit comes to. An answer of the primary stays true: a number that is not there and does not run
//! is refused before it is said that it was not committed.
//!
//! The newest [`MOST`] numbers are kept. A question says from which position on the commit may be; one from before what is kept is not
//! answered. After a start that is the position of the checkpoint.
//!
//! Left out on purpose: transactions without writes (they leave no record: "aborted"), and refusals after a change of the primary, which
//! the terms make superfluous: what the old one commits is no part of the history.

use base::{Error, Position, Result, SqlState};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet, VecDeque};

/// Numbers kept.
const MOST: usize = 1 << 18;

/// What is known of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Committed(Position),
    /// Not committed, and it will not be.
    Aborted,
    Running,
    /// It is too long ago.
    Unknown,
}

fn given_up() -> Error {
    Error::new(
        SqlState::SERIALIZATION_FAILURE,
        "the transaction was given up: its outcome was asked for before it committed",
    )
}

/// See the head of the file.
#[derive(Default)]
pub struct Outcomes(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    running: HashSet<u64>,
    committed: HashMap<u64, Position>,
    /// Committed ones, as they came.
    order: VecDeque<u64>,
    refused: HashSet<u64>,
    refusals: VecDeque<u64>,
    /// Commits at or below may have been forgotten.
    complete_from: Position,
}

impl Inner {
    /// A commit with this number fails from now on.
    fn refuse(&mut self, number: u64) {
        if self.refused.insert(number) {
            self.refusals.push_back(number);
        }
        if self.refusals.len() > MOST
            && let Some(old) = self.refusals.pop_front()
        {
            self.refused.remove(&old);
        }
    }
}

/// What a request with a number finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// It is new, and counts as running from now on.
    New,
    /// A request with this number runs.
    Running,
    /// One has committed.
    Committed(Position),
}

impl Outcomes {
    /// A request that may be a repeated one, whose transaction could commit above `after`. It must not run twice: 40003 where its outcome
    /// is not known any more, 40001 where a question about it was answered with no.
    pub(crate) fn claim(&self, number: u64, after: Position) -> Result<Claim> {
        let mut s = self.0.lock();
        if let Some(at) = s.committed.get(&number)
            && !env::fault::planted("site.number_again")
        {
            return Ok(Claim::Committed(*at));
        }
        if s.running.contains(&number) {
            return Ok(Claim::Running);
        }
        if s.refused.contains(&number) {
            return Err(given_up());
        }
        if after < s.complete_from {
            let what = "whether the transaction has committed before is not known any more";
            return Err(Error::new(SqlState::STATEMENT_COMPLETION_UNKNOWN, what));
        }
        s.running.insert(number);
        Ok(Claim::New)
    }

    /// Before a commit. An error (40001) means that a question was answered with: there will be none.
    pub fn begin(&self, number: u64) -> Result<()> {
        let mut s = self.0.lock();
        if s.refused.contains(&number) {
            return Err(given_up());
        }
        s.running.insert(number);
        Ok(())
    }

    /// After a commit that failed.
    pub fn aborted(&self, number: u64) {
        self.0.lock().running.remove(&number);
    }

    /// After a request that was refused. Its client is told, so a second copy of it that comes later must not commit.
    pub(crate) fn refuse(&self, number: u64) {
        let mut s = self.0.lock();
        s.running.remove(&number);
        if !env::fault::planted("site.refused_again") {
            s.refuse(number);
        }
    }

    /// A commit with a number is in the history, or will be if it survives.
    pub fn committed(&self, number: u64, at: Position) {
        let mut s = self.0.lock();
        s.running.remove(&number);
        if s.committed.insert(number, at).is_none() {
            s.order.push_back(number);
        }
        if s.order.len() > MOST
            && let Some(old) = s.order.pop_front()
        {
            let at = s.committed.remove(&old).unwrap_or_default();
            s.complete_from = s.complete_from.max(at);
        }
    }

    /// Commits at or below may have been missed.
    pub fn missed(&self, upto: Position) {
        let mut s = self.0.lock();
        s.complete_from = s.complete_from.max(upto);
    }

    /// Where it has committed, if that is known here.
    pub(crate) fn committed_at(&self, number: u64) -> Option<Position> {
        self.0.lock().committed.get(&number).copied()
    }

    /// For a primary: what became of the transaction that could commit above `after`. It is refused if it has not begun to.
    pub fn ask(&self, number: u64, after: Position) -> Outcome {
        let mut s = self.0.lock();
        if let Some(at) = s.committed.get(&number) {
            return Outcome::Committed(*at);
        }
        if s.running.contains(&number) {
            return Outcome::Running;
        }
        if after < s.complete_from {
            return Outcome::Unknown;
        }
        s.refuse(number);
        Outcome::Aborted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_stays_true() {
        let o = Outcomes::default();
        let at = Position::new(1, 1);
        o.begin(1).unwrap();
        assert_eq!(o.ask(1, Position::ZERO), Outcome::Running);
        o.committed(1, at);
        assert_eq!(o.ask(1, Position::ZERO), Outcome::Committed(at));
        o.begin(2).unwrap();
        o.aborted(2);
        assert_eq!(o.ask(2, Position::ZERO), Outcome::Aborted);
        assert!(o.begin(2).is_err(), "it was said that it will not");
        assert_eq!(o.ask(3, Position::ZERO), Outcome::Aborted);
        assert!(o.begin(3).is_err());
    }

    #[test]
    fn a_repeated_request_runs_once() {
        let o = Outcomes::default();
        let at = Position::new(1, 1);
        o.missed(Position::new(1, 0));
        let claim = |n, after| o.claim(n, after);
        let old = claim(1, Position::ZERO).expect_err("it may have committed");
        assert_eq!(old.code(), SqlState::STATEMENT_COMPLETION_UNKNOWN);
        assert_eq!(claim(1, at).unwrap(), Claim::New);
        assert_eq!(claim(1, at).unwrap(), Claim::Running);
        o.committed(1, at);
        assert_eq!(claim(1, Position::ZERO).unwrap(), Claim::Committed(at));
        assert_eq!(claim(2, at).unwrap(), Claim::New);
        o.aborted(2);
        assert_eq!(claim(2, at).unwrap(), Claim::New, "it ran, and has failed");
        o.refuse(2);
        assert!(
            claim(2, at).is_err(),
            "it was told so, and a copy comes late"
        );
        assert_eq!(o.ask(3, at), Outcome::Aborted);
        let refused = claim(3, at).expect_err("it was said that it will not");
        assert_eq!(refused.code(), SqlState::SERIALIZATION_FAILURE);
    }

    #[test]
    fn what_may_have_been_missed_is_not_answered() {
        let o = Outcomes::default();
        o.missed(Position::new(2, 0));
        assert_eq!(o.ask(1, Position::new(1, 5)), Outcome::Unknown);
        assert_eq!(o.ask(1, Position::new(2, 0)), Outcome::Aborted);
        for n in 0..MOST as u64 + 1 {
            o.committed(n + 10, Position::from_u64(1 << 40 | n));
        }
        assert_eq!(o.ask(10, Position::new(3, 0)), Outcome::Unknown);
        assert!(matches!(o.ask(11, Position::ZERO), Outcome::Committed(_)));
    }
}
