//! Shipping: the primary's log to its replicas.
//!
//! ```text
//! primary: groups in memory, segments, checkpoint ──▶ sender ══ messages ══▶ receiver ──▶ ring ──▶ who consumes it
//!                                                        ◀── acknowledgements ──
//! ```
//! `message` is what they say; `sender` and `receiver` decide and do nothing, so that a test or a simulation can be their
//! network, disk and clock; `history` says from their terms where two histories part, `standing` which of two nodes is ahead, `evidence` whether it has
//! shown that; `ring` is where what arrives waits, `freshness` how old what has arrived is.
//!
//! Where both are on one host, batches go through memory that the primary writes (`remote_ring`), and a bell is what is sent (`medium`). Neither
//! sender nor receiver knows: the same messages arrive in the same order.
//!
//! **The consumer** of the ring takes frames in order, raises *received*, hands the group to replay and to the replica's own log,
//! and tells the receiver when it was overrun. A frame's group may begin at or below what it has: once, behind a bootstrap.

pub mod evidence;
mod freshness;
pub mod gather;
mod history;
mod medium;
mod message;
pub mod receiver;
mod remote_ring;
mod ring;
pub mod sender;
mod standing;
#[cfg(all(test, not(feature = "shuttle")))]
mod tests;

pub use freshness::{Freshness, Way};
pub use history::{fork, next_term, term_at};
pub use medium::{Heard, Medium};
pub use message::{MAX_CHUNK, MAX_NAME, Malformed, Message, Refusal, Start, Step, VERSION};
pub use receiver::{Identity, Receiver};
pub use remote_ring::{NAME_WORD, RING_WORDS, RemoteRing, Ringside};
pub use ring::{Read, Ring, RingReader, RingWriter};
pub use sender::{Acked, Facts, Peer, Sender};
pub use standing::{Ours, Stands, stands};
