//! A node: the rooms below put together. `pipeline` runs what was decided (log, publish, release), `recovery` comes back
//! from the disk, `checkpoint` shortens the way back, `sequences` hands out numbers, `node` starts and stops it all, `housekeeping` goes on beside it.
//! `start_check` decides whether a log is all that it was, `reach` keeps the anchor that tells. `shipping` is what a
//! primary keeps for its replicas, `following` a replica's work with `sink` for what replay asks back, `promote` the change of roles,
//! `aside` what a node had to set aside, `verify` a whole directory looked at from outside.
//!
//! No SQL here.

pub mod aside;
pub mod checkpoint;
mod following;
mod housekeeping;
mod node;
mod notice;
mod options;
mod outcomes;
mod own_log;
mod pipeline;
mod promote;
pub mod reach;
pub mod recovery;
pub mod sequences;
mod shipping;
mod sink;
pub mod start_check;
pub mod verify;

pub use following::{FollowStats, Following};
pub use node::Node;
pub use notice::Notice;
pub use options::{NodeOptions, RecoveryReport};
pub use outcomes::{Outcome, Outcomes};
pub use pipeline::{FlushStats, modified};
pub use promote::{Promoted, Role};
pub use shipping::{Follower, Next, Shipped, Shipping};
