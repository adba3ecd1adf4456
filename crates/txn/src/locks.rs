//! Row locks.

/// PostgreSQL's four row-lock modes, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockMode {
    KeyShare,
    Share,
    NoKeyUpdate,
    Update,
}

/// What to do about a lock that is held by another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitPolicy {
    Wait,
    /// 55P03 at once.
    NoWait,
    SkipLocked,
}

/// A lock that a statement waits for: a future that is ready when it is worth trying again.
pub struct LockWait {}
