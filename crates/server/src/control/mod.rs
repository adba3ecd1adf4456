//! This node's place in a cluster that runs itself: the control plane (the crate `cluster`) over the node's connections and its copy of the data.
//!
//! ```text
//! DIR/control     MEMBER: this node's number, where it joined;  consensus.log: what the members agree on
//! seat.rs         the process's place among the members: opens the member, and tells the server to be the primary or a replica of that node
//! data.rs         what the copy does when the members ask: promise, lead, follow; what a primary sees of its replicas
//! answers.rs      questions of other nodes: which node leads, may this one join; and the messages of members
//! words.rs        what they speak of
//! roads.rs        connections to other nodes, for questions
//! hand_over.rs    a planned change of the primary
//! leaving.rs      a member that leaves
//! settings.rs     settings of the cluster, changed while it works
//! moving.rs       a member at another address than before
//! witness.rs      `canon witness`: a member without data
//! outsider.rs     a server that follows by hand, and is no member
//! guest.rs        a site that is no member yet
//! adopting.rs     servers that followed by hand become members while they run
//! reached.rs      whether a member is where it says
//! joining.rs      a server that joins: finds the primary, follows it, and then asks to be a member
//! ```
//! A server without MEMBER takes no part, and nothing here acts. It founds a cluster of one when the first other server asks to join it. One that follows by hand
//! does so until it is adopted.
//!
//! A role changes in two ways. A replica that is named is promoted in place, and a replica whose primary is another one now connects there. A
//! primary that leads no more starts again within the process, as a replica: its sessions end with 57P01.
//!
//! Left out on purpose: what is decided (the crate `cluster`), and the connections (`replication::members`).

mod adopting;
mod answers;
mod data;
mod guest;
mod hand_over;
mod joining;
mod leaving;
mod moving;
mod outsider;
mod reached;
mod roads;
mod seat;
mod settings;
pub mod witness;
mod words;

pub use outsider::Outsider;
pub use seat::Seat;
