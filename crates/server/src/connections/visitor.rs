//! What is known of the other end of a connection when it has been let in.

use base::{Error, Oid, SqlState};
use std::net::SocketAddr;

/// Where a connection comes from.
#[derive(Clone, Debug)]
pub struct Origin {
    pub address: Option<SocketAddr>,
    /// From this machine.
    pub local: bool,
}

/// What has connected with `replication=canon`.
pub struct Visitor {
    pub user: Oid,
    /// Where it says that it takes clients.
    pub listen: Option<SocketAddr>,
    /// The node that it has proven to be; none: a stranger, which may read the log.
    pub member: Option<String>,
    /// Its number in a cluster that runs itself, by its own word.
    pub number: Option<u64>,
    /// It knows of read leases, and wants one.
    pub leases: bool,
    /// It can be told how to acknowledge.
    pub acks: bool,
    /// All places are taken: it gets in for the log alone, as commits may wait for it.
    pub full: bool,
}

/// 53300.
pub fn too_many() -> Error {
    Error::new(
        SqlState::TOO_MANY_CONNECTIONS,
        "sorry, too many clients already",
    )
}
