//! Shipping: the primary's log to its replicas.
//!
//! ```text
//! primary: groups in memory, segments, checkpoint ──▶ sender ══ messages ══▶ receiver ──▶ ring ──▶ who consumes it
//!                                                        ◀── acknowledgements ──
//! ```
//! `message` is what they say; `sender` and `receiver` decide and do nothing, so that a test or a simulation can be their
//! network, disk and clock; `history` says from their terms where two histories part; `ring` is where what arrives waits.
//!
//! **The consumer** of the ring takes frames in order, raises *received*, hands the group to replay and to the replica's own log,
//! and tells the receiver when it was overrun. A frame's group may begin at or below what it has: once, behind a bootstrap.

mod history;
mod message;
pub mod receiver;
mod ring;
pub mod sender;
#[cfg(all(test, not(feature = "shuttle")))]
mod tests;

pub use history::{fork, next_term, term_at};
pub use message::{MAX_CHUNK, MAX_NAME, Malformed, Message, Refusal, Start, Step, VERSION};
pub use receiver::{Identity, Receiver};
pub use ring::{Read, Ring, RingReader, RingWriter};
pub use sender::{Acked, Facts, Sender};
