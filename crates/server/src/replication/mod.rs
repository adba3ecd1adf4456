//! Replication over sockets: the log goes out of a primary, and into a replica.
//!
//! ```text
//! primary   connections ──▶ send.rs    one task per replica, which carries what node::sending says
//!           accept.rs           how a replica's connection begins
//! replica   follow.rs           one task: connects (peer.rs), carries what node::receiving says, takes requests to promote
//!           bootstrap.rs        before there is a database: carries what node::copying says
//! both      log_ring.rs       the log's ring in memory that both map, where they are on one host
//! replica   strong_reads.rs            strong reads: what sessions ask and wait for; the primary's region is read over connections
//!                               (lane.rs, one for each core, remote.rs), or in place where both are on one host (shared.rs)
//! primary   region.rs           its other end
//! both      holds.rs            snapshots that the primary keeps for transactions of REPEATABLE READ that may move to it
//! both      site.rs           a site's changes go to be certified; verdicts come back
//!           ask.rs              how far its replicas are, before it serves
//!           archive.rs          finished log and checkpoints go to the archive, older log comes from there
//!           backups.rs          a base in the archive every so often, and what is removed there
//! both      membership.rs     the cluster's secret, by which nodes know each other;  herald.rs  a primary's term is told to those that are known
//!           members.rs        how a connection of the control plane is answered
//!           copy_both.rs        messages over CopyData
//! ```
//! What is decided is decided in `replica::ship`, which knows no socket; what is kept, in `node`. Here are the tasks between them, and
//! what SQL, metrics and probes are told ([`Place`]).
//!
//! Left out on purpose: replicas of replicas.

mod accept;
pub mod archive;
pub mod ask;
pub mod backups;
pub mod bootstrap;
mod commands;
pub mod copy_both;
pub mod follow;
pub mod herald;
mod holds;
mod lane;
mod log_ring;
pub mod members;
pub mod membership;
mod peer;
mod place;
mod region;
mod remote;
pub mod send;
pub mod shared;
pub mod site;
pub mod strong_reads;

pub use follow::Follow;
pub use herald::Herald;
pub use membership::Membership;
pub use node::restart::{Restart, Word};
pub use peer::{Found, Primary, Target};
pub use place::{Place, ReplicaLag};
pub use send::Senders;
pub use site::Site;
pub use strong_reads::StrongReads;
