//! The order of commits: who gets which position, what is installed, what may be logged, what replicas make durable, and who waits for it.
//!
//! Nothing here has a clock, a disk or a socket: `node` ticks the epochs, writes the log and tells the order what is durable.

mod order;
mod quorum;
mod waiters;

pub use order::{Logged, Order};
pub use quorum::{Acked, Levels, Quorum};
pub use waiters::{PublishedWait, Waiters};
