//! A delta of a split column, as a statement asks for it, and what became of it.
//!
//! Left out on purpose: how it is done, in which the two modes differ.

/// One delta of one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delta {
    /// Place of the column, which is split.
    pub column: usize,
    /// What is added, in units.
    pub amount: i128,
    /// The value has to be at least this before, in units: a guard of the statement. None: only the bounds count.
    pub need: Option<i128>,
}

/// What became of a delta.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is in the write set.
    Done,
    /// The row does not satisfy the guards, or is not there.
    Refused,
    /// It has to be done as an exact write ([`Txn::update`]): the transaction has changed the row otherwise, or only the end of others decides.
    Exact,
}

impl Outcome {
    /// In the order of [`Stats::deltas`](crate::Stats::deltas), with the labels of the metrics.
    pub const NAMES: [&str; 3] = ["done", "refused", "exact"];
}
