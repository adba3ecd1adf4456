//! Shipping: the primary's log to its replicas.
//!
//! ```text
//! primary: groups in memory, segments, checkpoint ──▶ sender ══ messages ══▶ receiver ──▶ ring ──▶ whoever consumes it
//!                                       acks ◀───────────────────────────────
//! ```
//! `message` is what they say, `ring` where the replica keeps what arrived.

mod message;
mod ring;

pub use message::{MAX_CHUNK, MAX_NAME, Malformed, Message, Refusal, Start, Step, VERSION};
pub use ring::{Read, Ring, RingReader, RingWriter};
