//! The PostgreSQL wire protocol: messages of both sides, the start-up, and ways to log in.
//!
//! ```text
//! what a server needs    startup.rs   the first message, and requests in its place
//!                        frontend.rs  a client's messages, read in place
//!                        backend.rs   replies, written into one buffer
//!                        scram.rs     SCRAM-SHA-256 and -PLUS, the server's side
//!                        tls.rs       certificates that are read again, the handshake
//! what a client needs    conninfo.rs  where a server is, and the role that logs in
//!                        dial.rs      the way to a server, and TLS as sslmode asks for it
//!                        link.rs      an asynchronous connection: log in, query, CopyBoth
//!                        client.rs    a blocking connection, for benches and the demonstration
//! what a proxy needs     message.rs   whole messages, built and taken apart
//! what both ends need    line.rs      a connection, plain or inside of TLS;   certificate.rs  what a certificate says
//! ```
//! Nothing here decides anything about data: a session, a replica, a proxy and a bench speak through this crate, and know nothing of each
//! other. [`startup`] also names the parameters of the start-up that only Canon has.
//!
//! Left out on purpose: Unix sockets, `FunctionCall`.

pub mod backend;
pub mod certificate;
pub mod client;
pub mod conninfo;
pub mod dial;
pub mod frontend;
pub mod line;
pub mod link;
pub mod message;
pub mod scram;
pub mod startup;
pub mod tls;

pub use conninfo::Conninfo;
pub use line::Line;
pub use link::Link;

/// The name of the one database, and of the role that a new data directory has.
pub const DATABASE: &str = "canon";

/// The detail of the FATAL error that ends a session with nothing under way. A proxy may send what the session has sent since the last
/// ReadyForQuery to another server: none of it has run.
pub const NOTHING_RUN: &str = "Nothing was under way; what was sent since has not run.";
