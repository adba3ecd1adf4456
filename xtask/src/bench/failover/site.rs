//! A site beside the members: it runs transactions of its own, and follows the primary by itself.
//!
//! ```text
//! round ──▶ another server leads ──▶ the site hears of it from any member, and follows that one ──▶ its commits go on
//! ```
//! The site is started with `--join`, and has no vote. Its commits wait until it follows the next primary, and after a loss it may start again within its process. How long
//! it is without commits is counted as at the members. What it acknowledged must not be lost.
//!
//! Left out on purpose: a site that follows by hand, which waits for a person.

use super::writers::Writers;
use crate::Result;
use crate::guard::Guard;
use crate::server::{self, Server};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Its numbers begin above those of all others.
const FIRST: u64 = 1 << 40;

/// See the head of the file.
pub struct Site {
    /// It ends with this.
    _server: Server,
    writers: Writers,
}

impl Site {
    /// Joins at this member's address.
    pub fn start(
        program: &Path,
        directory: &Path,
        join: &str,
        split: bool,
        guard: &mut Guard,
    ) -> Result<Site> {
        let port = server::free_port()?;
        let mut start = Command::new(program);
        start.arg("start").arg("--data").arg(directory.join("site"));
        start.args(["--listen", &format!("127.0.0.1:{port}")]);
        start.args(["--node-name", "site", "--site", "--join", join]);
        let secret = directory.join("node-0/CANON_SECRET");
        start.arg("--cluster-secret-file").arg(secret);
        let log = directory.join("site.log");
        let mut server = server::start("canon", start, port, "-TERM", &log, guard)?;
        server.ready()?;
        Ok(Site {
            _server: server,
            writers: Writers::start(1, &[port], FIRST, split),
        })
    }

    /// The longest time without an acknowledgement from `begun` on, once commits have gone on for a while.
    pub fn without(&self, begun: Instant) -> Result<Duration> {
        let without = self.writers.without(begun);
        without.map_err(|e| format!("at the site: {e}"))
    }

    /// What it has acknowledged.
    pub fn end(self) -> BTreeSet<u64> {
        self.writers.end()
    }
}
