//! Strong reads at a replica: what to ask the primary, and when a read may go on (PolarDB-SCC §4.1, §4.2; docs/design/fresh-reads.md).
//!
//! ```text
//! a read arrives ──▶ Timestamps::ask ──▶ a timestamp t whose fetch began later: known, in flight, or to be fetched
//! it names what it reads ──▶ Timestamps::check(t, visible) ──▶ read at t now | fetch these slots | wait until this is visible
//! a fetch ──▶ words of the primary's region (`base::region`), in order ──▶ Timestamps::landed
//! a read that may be old ──▶ Shown, for all threads: as of when (AsOf) what this node shows is the newest there was
//! ```
//! [`Timestamps`] knows neither clock nor socket; what a read does with it decides `node::reading`. [`RemoteMemory`] is how words are read;
//! `canon` puts one over a connection, or over memory that both nodes map.

mod as_of;
mod memory;
mod shown;
mod timestamps;

pub use as_of::AsOf;
pub use memory::{
    Answer, Reading, RemoteMemory, Request, SharedMemory, SharedWords, WritableMemory,
    decode_answer, decode_place, decode_request, encode_answer, encode_place, encode_request,
};
pub use shown::{Found, Shown};
pub use timestamps::{Ask, Check, Fetch, Level, Rejected, Timestamps, Touch, decide};
