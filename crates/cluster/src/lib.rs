//! The control plane: what the members of a cluster agree on, and which of them leads the data.
//!
//! ```text
//! catalogue   the state that all agree on, as a value; commands in, the same state at each member out
//! leases      until when a primary knows that no other one was named
//! standing    what a copy has promised, so that a leader that was left behind gets no more acknowledgements
//! waiting     how many replicas the primary waits for
//! failover    the consensus leader's decider: lease over, ask, name
//! elections   when a member stands for election as the consensus leader
//! consensus   the log that carries commands, by openraft, over this project's disk
//! member      one running member: all of these, and a copy of the data
//! word        what members say to each other, as bytes
//! question    what nodes ask each other that may be no members, as bytes
//! tasks, time what the last two run on: tokio's, or a simulation's
//! ```
//! The first six decide purely. They take events with the time of the caller's own clock and return what is to be done. The safety of commits rests on terms and
//! promises; clocks protect only reads at a primary that is cut off.
//!
//! Left out on purpose: the network. Messages between nodes are `server`'s.

pub mod catalogue;
pub mod consensus;
pub mod elections;
pub mod failover;
pub mod leases;
pub mod member;
pub mod question;
pub mod standing;
pub mod tasks;
pub mod time;
pub mod waiting;
pub mod word;

pub use catalogue::{Catalogue, Command, Kind, Lost, Member, NodeId, Phase, Policies, Refused};
pub use consensus::{Carry, Consensus};
pub use elections::Timing;
pub use failover::{Action, Failover, Obstacle};
pub use leases::{Ballots, Before, Grantor, Holder, Request, Terms};
pub use member::RunningMember;
pub use standing::{Answer, End, Standing, Testimony};
pub use waiting::Waiting;
