//! A node: the rooms below put together. `pipeline` runs what was decided (log, publish, release), `recovery` comes back
//! from the disk, `checkpoint` shortens the way back, `sequences` hands out numbers (`ranges` those of a site), `node` starts and stops it all, `housekeeping` goes on beside it, by the threads of a `house`, `ended` is a node that was stopped in its process.
//! `start_check` decides whether a log is all that it was, `reach` keeps the anchor that tells. `shipping` is what a
//! primary keeps for its replicas, `sending` its end of a connection to one of them (with `log_reads`, `pace` and `hand_over`), `receiving` a replica's end, `copying` what it does before it has a database to follow with (`restart` says why), `reading` where a strong read stands and when it may read, `lending` which replicas hold read leases, `holding` the snapshots that a primary keeps for transactions at replicas, `following` a replica's work with `sink` for what replay asks back, `promote` the change of roles,
//! `splits` gives hot split values further records, `certify` decides candidates of other nodes, `site` sends them by a `certifier` in the words of `site_words`, `topology` is all in which the ways differ that a cluster's nodes share work, `steps` is a node without threads, `aside` what a node had to set aside, `verify` a whole directory looked at from outside.
//!
//! No SQL here.

pub mod aside;
mod certifier;
mod certify;
pub mod checkpoint;
pub mod copying;
mod ended;
mod errors;
mod following;
mod hand_over;
pub mod holding;
mod house;
mod housekeeping;
mod lending;
mod log_reads;
mod node;
mod notice;
mod options;
mod outcomes;
mod own_log;
mod pace;
mod pipeline;
mod promote;
mod ranges;
pub mod reach;
pub mod reading;
pub mod receiving;
pub mod recovery;
mod replaying;
pub mod restart;
pub mod sending;
pub mod sequences;
mod shipping;
mod sink;
mod site;
pub mod site_words;
pub mod splits;
pub mod start_check;
mod steps;
pub mod topology;
mod turns;
pub mod verify;

pub use certifier::{Certifier, Request};
pub use certify::Verdict;
pub use ended::Ended;
pub use following::{FollowStats, Following};
pub use house::House;
pub use log_reads::OlderLog;
pub use node::Node;
pub use notice::Notice;
pub use options::{Leases, NodeOptions, RecoveryReport};
pub use outcomes::{Outcome, Outcomes};
pub use pipeline::{FlushStats, modified};
pub use promote::{Heir, Promoted, Role};
pub use ranges::{Numbers, Ranges};
pub use shipping::{Follower, LeadsUntil, Next, Shipped, Shipping};
pub use turns::Certification;
