//! The servers of the bench, and where the clients of each place connect.
//!
//! The followers of the places live one way at a time. A replica becomes a site, and a site a replica, by a start with the same data. So a
//! way that does not run takes no processor's time.
//!
//! ```text
//! client ── site ────────── delay ────────── primary      COMMIT crosses
//! client ── replica ─────── delay ────────── primary      each statement crosses from the first change on
//! client ────────────────── delay ────────── primary      each statement crosses
//! client ────────────────── delay ────────── PostgreSQL   each statement crosses
//! client ── pgpool ──────── delay ────────── PostgreSQL   each statement crosses from the first change on (`pgpool`)
//! ```
//! Left out on purpose: links that break.

use crate::bench::delay::link;
use crate::bench::http;
use crate::guard::Guard;
use crate::server::{self, Server};
use crate::{Result, clients, process};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::measure::{Load, Rounds, at_all};
use super::pgpool::{self, Pool};

/// Where a client connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Site,
    Replica,
    Primary,
    Peer,
    Pgpool,
}

impl Way {
    pub fn name(self) -> &'static str {
        match self {
            Way::Site => "site",
            Way::Replica => "replica that forwards",
            Way::Primary => "primary behind the delay",
            Way::Peer => "PostgreSQL behind the delay",
            Way::Pgpool => "pgpool with a standby beside it",
        }
    }

    /// The least that a site is to be over this way: in the mean of the places, and at the farthest.
    pub fn bar(self) -> Option<(f64, f64)> {
        matches!(self, Way::Primary | Way::Peer).then_some((7.6, 12.0))
    }
}

/// A replica or a site.
pub struct Follower {
    pub server: Server,
    http: u16,
}

impl Follower {
    /// Time between candidates and their verdicts so far: how many, and the seconds of all of them.
    pub fn verdicts(&self) -> (f64, f64) {
        let text = http::metrics(self.http, Duration::from_secs(5));
        let value = |of: &str| http::value(&text, &format!("canon_site_verdict_seconds_{of}"));
        (value("count").unwrap_or(0.0), value("sum").unwrap_or(0.0))
    }
}

pub struct Nodes {
    binary: PathBuf,
    directory: PathBuf,
    pub guard: Guard,
    pub primary: Server,
    /// PostgreSQL, or why there is none.
    pub peer: Result<Server>,
    /// A node that nothing follows.
    pub plain: Option<Server>,
    followers: Vec<Follower>,
    pools: Vec<Pool>,
    /// What the followers are, and how far each is from the primary.
    follow: (Way, Vec<u64>),
}

impl Nodes {
    pub fn start(binary: PathBuf, parent: &Path) -> Result<Nodes> {
        let mut guard = Guard::new()?;
        let directory = server::new_directory(parent, &mut guard)?;
        let peer = clients::postgres_bin()
            .and_then(|bin| server::postgres(&bin, &directory, &mut guard, false));
        if let Err(why) = &peer {
            println!("without PostgreSQL: {why}");
        }
        let primary = server::canon(&binary, &directory, &mut guard)?;
        Ok(Nodes {
            binary,
            directory,
            guard,
            primary,
            peer,
            plain: None,
            followers: Vec::new(),
            pools: Vec::new(),
            follow: (Way::Peer, Vec::new()),
        })
    }

    /// The ways that can be measured here.
    pub fn ways(&self) -> Vec<Way> {
        let mut all = vec![Way::Site, Way::Replica, Way::Primary];
        all.extend(self.peer.is_ok().then_some(Way::Peer));
        all
    }

    /// A node that nothing follows, started when it is asked for first.
    pub fn plain(&mut self) -> Result<&Server> {
        if self.plain.is_none() {
            let home = self.directory.join("plain");
            std::fs::create_dir_all(&home).map_err(|e| format!("{}: {e}", home.display()))?;
            self.plain = Some(server::canon(&self.binary, &home, &mut self.guard)?);
        }
        Ok(self.plain.as_ref().expect("started"))
    }

    /// Where the clients of each place connect. The followers are as the way asks for, and have caught up.
    pub fn ports(&mut self, way: Way, places: &[u64]) -> Result<Vec<u16>> {
        let far = |port, rtt: &u64| link(port, Duration::from_micros(rtt * 500));
        // Standbys without a reader would take the peer's time.
        self.pools.clear();
        match (way, &self.peer) {
            (Way::Pgpool, Ok(peer)) => {
                for (n, rtt) in places.iter().enumerate() {
                    let home = self.directory.join(format!("pool-{n}"));
                    let pool = pgpool::start(&home, peer.port, *rtt, &mut self.guard)?;
                    self.pools.push(pool);
                }
                Ok(self.pools.iter().map(|p| p.pgpool.port).collect())
            }
            (Way::Peer, Ok(peer)) => places.iter().map(|rtt| far(peer.port, rtt)).collect(),
            (Way::Peer | Way::Pgpool, Err(why)) => Err(why.clone()),
            (Way::Primary, _) => places
                .iter()
                .map(|rtt| far(self.primary.port, rtt))
                .collect(),
            (Way::Site | Way::Replica, _) => {
                let all = self.follow(way, places)?;
                Ok(all.iter().map(|f| f.server.port).collect())
            }
        }
    }

    /// Followers of this way so far from the primary, which have caught up; 0 is without a link.
    pub fn follow(&mut self, way: Way, places: &[u64]) -> Result<&[Follower]> {
        if self.follow.0 != way || self.follow.1 != places {
            self.followers.clear();
            for (n, rtt) in places.iter().enumerate() {
                let to = match rtt {
                    0 => self.primary.port,
                    _ => link(self.primary.port, Duration::from_micros(rtt * 500))?,
                };
                let home = self.directory.join(format!("node-{n}"));
                let started = follower(&self.binary, &home, to, way, &mut self.guard)?;
                self.followers.push(started);
            }
            for f in &mut self.followers {
                f.server.ready()?;
            }
            self.follow = (way, places.into());
        }
        self.catch_up()?;
        Ok(&self.followers)
    }

    /// A replica beside the places', as long as it is kept.
    pub fn copy(&mut self) -> Result<Follower> {
        let home = self.directory.join("copy");
        let to = self.primary.port;
        let mut copy = follower(&self.binary, &home, to, Way::Replica, &mut self.guard)?;
        copy.server.ready()?;
        Ok(copy)
    }

    /// Starts the primary again, whose commits wait for so many copies.
    pub fn wait_for_copies(&mut self, copies: Option<&str>) -> Result<()> {
        self.primary.set_env("CANON_SYNCHRONOUS_REPLICAS", copies);
        self.primary.restart(&mut self.guard)?;
        self.catch_up()
    }

    /// Until the followers show what the primary has.
    pub fn catch_up(&self) -> Result<()> {
        let at = self.primary.sql("SELECT pg_current_wal_lsn()")?;
        let at = at.rows[0][0].clone().unwrap_or_default();
        for f in &self.followers {
            f.server.sql(&format!("WAIT FOR LSN '{at}'"))?;
        }
        Ok(())
    }

    /// Seconds of processor time of the primary, and of each follower.
    pub fn cpu(&self) -> (f64, Vec<f64>) {
        let of = |s: &Server| process::cpu_seconds(s.pid());
        let followers = self.followers.iter().map(|f| of(&f.server)).collect();
        (of(&self.primary), followers)
    }

    /// Rounds of these ways, in turns; the way that begins changes with each round. `make` gives the load of (round, way, place, client).
    pub fn turns<L: Load + 'static>(
        &mut self,
        ways: &[Way],
        places: &[u64],
        clients: usize,
        (rounds, seconds): (usize, u64),
        make: impl Fn(usize, usize, usize, usize) -> L,
    ) -> Result<Vec<(Way, Rounds)>> {
        let mut all: Vec<_> = ways.iter().map(|w| (*w, Rounds::default())).collect();
        for round in 0..rounds {
            for turn in 0..ways.len() {
                let at = (round + turn) % ways.len();
                let ports = self.ports(ways[at], places)?;
                let before = self.cpu();
                let done = at_all(&ports, clients, seconds, |place, client| {
                    make(round, at, place, client)
                })?;
                let after = self.cpu();
                let (name, busy) = (ways[at].name(), done.1);
                let sum: usize = done.0.iter().map(|d| d.transactions).sum();
                let each = |cpu: f64| cpu * 1e3 / sum.max(1) as f64;
                let followers = after.1.iter().sum::<f64>() - before.1.iter().sum::<f64>();
                println!(
                    "round {} of {rounds}, {clients} clients a place, {name}: {sum} transactions, busy {busy}; CPU of each, ms: primary \
                     {:.2}, followers {:.2}",
                    round + 1,
                    each(after.0 - before.0),
                    each(followers),
                );
                all[at].1.take(done);
                self.catch_up()?;
            }
        }
        Ok(all)
    }
}

/// Starts a replica, or a site, that follows the primary over this port.
fn follower(program: &Path, home: &Path, of: u16, way: Way, guard: &mut Guard) -> Result<Follower> {
    let (port, http) = (server::free_port()?, server::free_port()?);
    std::fs::create_dir_all(home).map_err(|e| format!("{}: {e}", home.display()))?;
    let secret = home.parent().unwrap_or(home).join("canon/CANON_SECRET");
    let mut node = Command::new(program);
    node.arg("start").arg("--data").arg(home.join("data"));
    node.args(["--listen", &format!("127.0.0.1:{port}")]);
    node.args(["--http", &format!("127.0.0.1:{http}")]);
    node.args(["--replica-of", &format!("127.0.0.1:{of}")]);
    node.arg("--cluster-secret-file").arg(secret);
    // Through memory nothing would take its time.
    node.env("CANON_SHARED_MEMORY", "false");
    if way == Way::Site {
        node.arg("--site");
    }
    let server = server::start(way.name(), node, port, "-TERM", &home.join("log"), guard)?;
    Ok(Follower { server, http })
}
