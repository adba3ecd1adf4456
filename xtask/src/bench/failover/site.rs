//! A site beside the members: it runs transactions of its own, and follows by hand.
//!
//! ```text
//! round ──▶ another server leads ──▶ the site is started again with --replica-of that one ──▶ its commits go on
//! ```
//! A site is no member and knows one primary. Between a fail-over and its start its commits wait, which is not measured here. What it acknowledged must not be lost.
//!
//! Left out on purpose: how long a site is without commits, which the person decides that starts it.

use super::writers::Writers;
use crate::Result;
use crate::guard::Guard;
use crate::server::{self, Server};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Its numbers begin above those of all others.
const FIRST: u64 = 1 << 40;

/// See the head of the file.
pub struct Site {
    program: PathBuf,
    directory: PathBuf,
    port: u16,
    follows: u16,
    server: Option<Server>,
    writers: Writers,
}

impl Site {
    /// Beside the primary at this port.
    pub fn start(
        program: &Path,
        directory: &Path,
        primary: u16,
        split: bool,
        guard: &mut Guard,
    ) -> Result<Site> {
        let port = server::free_port()?;
        let mut site = Site {
            program: program.to_owned(),
            directory: directory.to_owned(),
            port,
            follows: primary,
            server: None,
            writers: Writers::start(1, &[port], FIRST, split),
        };
        site.launch(guard)?;
        Ok(site)
    }

    fn launch(&mut self, guard: &mut Guard) -> Result<()> {
        let mut start = Command::new(&self.program);
        let home = self.directory.join("site");
        start.arg("start").arg("--data").arg(home).arg("--site");
        start.args(["--listen", &format!("127.0.0.1:{}", self.port)]);
        start.args(["--node-name", "site"]);
        start.args(["--replica-of", &format!("127.0.0.1:{}", self.follows)]);
        let secret = self.directory.join("node-0/CANON_SECRET");
        start.arg("--cluster-secret-file").arg(secret);
        let log = self.directory.join("site.log");
        let mut server = server::start("canon", start, self.port, "-TERM", &log, guard)?;
        server.ready()?;
        self.server = Some(server);
        Ok(())
    }

    /// Follows the primary at this port from now on.
    pub fn follow(&mut self, primary: u16, guard: &mut Guard) -> Result<()> {
        if primary == self.follows {
            return Ok(());
        }
        self.follows = primary;
        // It ends in good order, and its port is free then.
        self.server = None;
        self.launch(guard)
    }

    /// What it has acknowledged.
    pub fn end(self) -> BTreeSet<u64> {
        self.writers.end()
    }
}
