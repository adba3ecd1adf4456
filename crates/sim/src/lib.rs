//! Whole clusters in one thread under a seed: a primary, three replicas and their clients, on a bad network and bad disks.
//!
//! ```text
//! clients ─▶ txn ─▶ order ─▶ log ─▶ sender ══ network ══▶ receiver ─▶ ring ─▶ log, replay ─▶ readers
//!                                                                                  └─ invariants, after every event
//! ```
//! Each machine runs the real node, without threads (`node::NodeOptions::threads`): the simulation makes its steps in an order that the seed
//! chooses, on disks in memory that tear and lose what was not synced. Both ends of a connection are the real ones (`node::sending`,
//! `node::receiving`, `node::copying`). Simulated are: time ([`world`]), the network ([`network`]), what carries the messages and commands of a
//! primary ([`primary`]) and of a replica ([`follower`]), machines that crash ([`machine`]), operators who promote ([`operator`]), clients
//! ([`clients`]) the strong reads of some ([`reads`]), and transactions whose snapshot the primary keeps ([`holding`]). Clients change stocks, too, by deltas ([`stock`]).
//!
//! A run has two phases. First things break: messages are delayed, reordered, lost, doubled, nodes cut off; machines crash at any event,
//! and come back; replicas are promoted, with the primary's help or by force. Then everything is mended and the cluster must
//! converge: one primary, all replicas equal to it, new commits acknowledged.
//!
//! What seeds meet too seldom is written down ([`scenario`]). In runs of their own replicas are sites ([`site`]), or hold read leases ([`lease`]).
//! Small histories of a primary and its sites, hundreds a second, are compared with an ideal ([`histories`]). Clusters whose members name their primary by themselves
//! run the control plane over virtual time ([`control`]).
//!
//! [`model`] remembers every commit by term and position; [`invariants`] compare. A seed decides everything: `--seed N` shows
//! that run, a line per event.
//!
//! Left out on purpose: races between threads (shuttle looks for those), DDL while things break, and full disks.

pub mod clients;
pub mod control;
pub mod follower;
pub mod forward;
pub mod histories;
pub mod holding;
pub mod invariants;
pub mod lease;
pub mod machine;
pub mod model;
pub mod network;
pub mod operator;
pub mod primary;
pub mod reads;
pub mod scenario;
pub mod schema;
pub mod site;
pub mod stock;
mod stranger;
pub mod values;
pub mod world;

pub use world::{Config, Report, World};

/// Runs one seed to its end. `Err` says which invariant did not hold, and holds the last events.
pub fn run(seed: u64, loud: bool) -> Result<Report, String> {
    caught(World::new(seed, loud), World::run)
}

/// The same where replicas are sites.
pub fn run_sites(seed: u64, loud: bool) -> Result<Report, String> {
    let mut world = World::new(seed, loud);
    world.sites.on = true;
    caught(world, World::run)
}

/// The same where replicas hold read leases, clocks drift and machines stand still for a while.
pub fn run_leases(seed: u64, loud: bool) -> Result<Report, String> {
    let mut world = World::new(seed, loud);
    world.lend();
    caught(world, World::run)
}

/// What a world does, or which invariant did not hold, and the last events.
fn caught(mut world: World, play: fn(&mut World) -> Report) -> Result<Report, String> {
    let seed = world.seed;
    let ran = words_of(|| play(&mut world));
    ran.map_err(|what| format!("seed {seed}: {what}\n{}", world.last_lines()))
}

/// What this returns, or the words of its panic.
fn words_of<R>(play: impl FnOnce() -> R) -> Result<R, String> {
    // What a node has to say would drown what was found.
    env::say::set_logger(|_, _| {});
    let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(play));
    ran.map_err(|payload| {
        let said = payload
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| payload.downcast_ref::<&str>().map(|s| (*s).to_owned()));
        said.unwrap_or_else(|| "a panic without words".into())
    })
}
