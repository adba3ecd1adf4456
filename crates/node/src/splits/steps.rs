//! Counters of the worker of split values.
//!
//! Left out on purpose: what they mean, which `splits` says.

use std::sync::atomic::AtomicU64;

/// What the workers have done.
#[derive(Default)]
pub(crate) struct Steps {
    pub more: AtomicU64,
    pub fewer: AtomicU64,
    pub balanced: AtomicU64,
    pub gave_up: AtomicU64,
    /// Looks at what lies where: the chance of the policy `random`.
    pub looks: AtomicU64,
}
