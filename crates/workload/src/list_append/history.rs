//! Histories: what the clients of a run saw, nothing else.

/// Which list.
pub type Key = u64;
/// What was appended; unique over the whole history.
pub type Value = u64;

/// One operation as it was executed, in the order of the transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    Append(Key, Value),
    /// A read and the list that it returned; a list that is not there is empty. A range read is
    /// one of these per key of the range.
    Read(Key, Vec<Value>),
}

/// What the client learned about the transaction's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The commit was acknowledged.
    Ok,
    /// The transaction is known not to have happened.
    Fail,
    /// No answer: it happened, or it did not.
    Unknown,
}

/// One transaction. Times come from one clock, in any unit.
#[derive(Clone, Debug)]
pub struct Txn {
    /// The node that ran it, numbered by the test. Parallel snapshot isolation orders the transactions of one node.
    pub site: usize,
    /// Before its first message was sent.
    pub invoke: u64,
    /// After its last answer arrived; meaningless unless the outcome is [`Outcome::Ok`].
    pub complete: u64,
    pub outcome: Outcome,
    pub ops: Vec<Op>,
}
