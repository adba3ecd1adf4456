//! What follows the position: a replica receives the primary's log, replays it row by row in parallel and shows prefixes of it.
//!
//! ```text
//! primary ──▶ ship: batches and ticks ──▶ ring ──▶ replay: scheduler ──▶ workers ──▶ store
//!                                                                          └──▶ snapshotter: visible
//! ```
//! `marks` names how far each step has come; `lease` says when a replica knows all that was acknowledged without asking; `proof` says which nodes are of the cluster, so that what they claim is believed. Nothing here opens a transaction, knows SQL or owns a socket.

pub mod lease;
mod marks;
pub mod proof;
pub mod read;
pub mod replay;
pub mod ship;

pub use marks::ReplicaMarks;
pub use replay::{Build, Policy, Replay, ReplayOptions, ReplayStats, SchemaSink, Step, Stepper};
