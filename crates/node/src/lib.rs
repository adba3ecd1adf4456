//! A node: the rooms below put together. `pipeline` runs what was decided (log, publish, release), `recovery` comes back
//! from the disk, `checkpoint` shortens the way back, `sequences` hands out numbers, `node` starts and stops it all.
//!
//! No SQL here.

mod checkpoint;
mod node;
mod pipeline;
mod recovery;
mod sequences;

pub use node::{Node, NodeOptions, RecoveryReport};
pub use pipeline::FlushStats;
