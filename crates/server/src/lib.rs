//! A node that others reach: PostgreSQL's clients, the nodes of its cluster, and whoever reads its HTTP pages.
//!
//! ```text
//! start        a server from its first log line to its last; everything below is tied together there
//! config       the file, the variables and the flags ──▶ Config
//! entrance     who may come in, by which method          audit   what an auditor asks the log for
//! connections         connections of clients: a thread per core, messages ◀──▶ sql::session
//! forward      transactions that a replica sends to its primary
//! replication  the log goes out, and in; strong reads; sites; who is a node of this cluster
//! bucket       an archive in a bucket, over S3's protocol
//! control      what the members decide together, over connections
//! metrics      what /metrics says                            console the page that draws it
//! host         what sessions ask of the process
//! cluster      several servers in one process, for tests of applications
//! ```
//! `embedded::engine` is what sessions run on. What is decided about the log, replicas and promotions is decided in `node` and `replica`;
//! here bytes are moved.
//!
//! Left out on purpose: the command line and what works on directories without a server (`canon`), the endpoint before several nodes (`proxy`).

mod audit;
mod bucket;
pub mod cluster;
pub mod config;
pub mod connections;
mod console;
pub mod control;
pub mod entrance;
pub mod forward;
mod host;
pub mod metrics;
pub mod replication;
mod start;

pub use cluster::Cluster;
pub use start::{DATABASE, Server, is_logging, log_failure, run, start_logging};
