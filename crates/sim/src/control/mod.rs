//! The control plane itself under a seed: openraft, the members' deciders and their disks, over virtual time.
//!
//! ```text
//! Executor ── time, tasks ──▶ RunningMember: openraft, campaign, leases, fail-over ── MemDisk
//!     └─────── network, power, pauses ──┘    └── Data: a copy that is a list (`copy`)
//! ```
//! Each member is the one that a server runs (`cluster::RunningMember`), with its log in frames on a disk that loses what was not synced. Simulated are the runtime
//! ([`executor`]), the network ([`network`]), the copy of the data ([`copy`], [`server`]) and the hand that breaks things ([`play`]). [`rules`] says what holds after each step.
//!
//! The deciders alone run over an ideal log in `crates/cluster/tests/worlds.rs`: more worlds in less time, and faults that hide behind a real log. What is seen here
//! alone is what openraft, its log on the disk and the deciders do to each other.
//!
//! A seed decides everything, and a run of it can be made again step by step ([`Report::trace`]).
//!
//! Left out on purpose: the node and its log (the other clusters of this crate have them), sites, commits that wait for no copy, and a server's own part of
//! joining and leaving (`crates/canon/tests/members`).

pub mod copy;
pub mod executor;
pub mod network;
pub mod play;
pub mod report;
pub mod rules;
pub mod server;
pub mod world;

pub use report::Report;
pub use world::World;

use std::sync::Arc;

/// Runs one seed to its end. `Err` says which rule did not hold, and holds the last events.
pub fn run(seed: u64, loud: bool) -> Result<Report, String> {
    caught(seed, loud, |world| world.run_seed())
}

/// A consensus leader is taken out and another member comes, in a cluster where nothing breaks.
pub fn run_leader_leaves(seed: u64, loud: bool) -> Result<Report, String> {
    caught(seed, loud, |world| world.run_leader_leaves())
}

fn caught(seed: u64, loud: bool, play: fn(&Arc<World>) -> Report) -> Result<Report, String> {
    let world = World::new(seed, loud);
    let ran = crate::words_of(|| play(&world));
    ran.map_err(|what| format!("seed {seed}: {what}\n{}", world.last_lines()))
}
