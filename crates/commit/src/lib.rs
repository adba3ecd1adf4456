//! The order of commits: who gets which position, what is installed, what may be logged, and who waits for it.
//!
//! Nothing here has a clock, a disk or a socket: `node` ticks the epochs, writes the log and tells the order what is durable.

mod order;
mod waiters;

pub use order::{Logged, Order};
pub use waiters::{PublishedWait, Waiters};
