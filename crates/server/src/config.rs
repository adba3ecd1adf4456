//! The server's configuration: one commented file, `CANON_*` variables, command-line flags; the later wins.
//!
//! ```text
//! table   every setting, declared once ──▶ said   read as a time, a size, a number ──▶ Config
//! ```
//! Everything is checked here, before a disk or a socket is touched: an unknown key, a variable that is nearly a known one
//! ([`variables`]), a size that is none, an address that cannot be one, a password where others can read it ([`secrets`]).

mod entrance;
mod memory;
mod said;
mod secrets;
mod table;
mod variables;

pub(crate) use said::Said;
pub use secrets::{refuse_passwords, without_password};
pub use table::{LogFormat, Overrides};
pub use variables::check_variables;

use crate::entrance::Entrance;
use crate::forward::Limits;
use crate::replication::Primary;
use crate::replication::archive::Destination;
use crate::replication::backups::Schedule;
use base::{Error, Position, Result, SqlState};
use node::Certification;
use node::splits::adjust::Adjust;
use node::splits::balance::Balance;
use replica::replay::Policy;
use said::bad;
use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;
use table::{File, Given};
use wal::retention::Keep;

/// Most connections that a limit may allow.
const MOST_CONNECTIONS: u32 = 262_143;

/// The least that a fail-over may be allowed to lose: a lease and an election take most of it.
const LEAST_LOSS: Duration = Duration::from_secs(3);

/// The file that `canon config` prints, with the defaults.
pub const COMMENTED: &str = include_str!("canon.toml");

/// A checked configuration.
#[derive(Clone, Debug)]
pub struct Config {
    pub data: PathBuf,
    pub listen: Vec<SocketAddr>,
    pub http: Vec<SocketAddr>,
    pub unix_socket_directory: Option<PathBuf>,
    pub max_connections: u32,
    pub entrance: Entrance,
    /// Authorities that sign certificates of the cluster's nodes.
    pub cluster_ca: Option<PathBuf>,
    pub shutdown_timeout: Duration,
    /// Bytes.
    pub max_memory: u64,
    /// Bytes of statements, sessions, queues and connections together (`memory.total`).
    pub memory_total: u64,
    pub snapshot_max_age: Duration,
    /// What the worker of split values does.
    pub split_adjust: Adjust,
    pub split_balance: Balance,
    /// Which candidates of sites take turns.
    pub site_certification: Certification,
    pub checkpoint_bytes: u64,
    pub segment_bytes: u64,
    pub epoch_max_duration: Duration,
    pub node_name: String,
    /// The primary that this node follows.
    pub replica_of: Option<Primary>,
    /// Whether it runs changes of rows itself and has the primary certify them.
    pub site: bool,
    /// Where the cluster's secret is, if not in the data directory.
    pub cluster_secret_file: Option<PathBuf>,
    /// A server of the cluster that this one is to join.
    pub join: Option<String>,
    /// Where other members reach this server.
    pub cluster_address: Option<String>,
    pub synchronous_replicas: u32,
    /// The same, where it was said at all.
    pub synchronous_said: Option<u32>,
    /// What a fail-over may lose where no replica has to have a commit; none: there is no fail-over then.
    pub failover_max_loss: Option<Duration>,
    /// How long the primary's lease is; none: as usual.
    pub failover_lease: Option<Duration>,
    pub wal_keep_bytes: u64,
    pub archive: Option<Destination>,
    /// When the archive gets a base, and what is kept there; none: each checkpoint is archived.
    pub backup: Option<Schedule>,
    /// Whether replicas on this host may map what they ask for.
    pub shared_memory: bool,
    /// Whether the log goes through a ring in shared memory to replicas on this host.
    pub log_ring: bool,
    /// Whether there are read leases, and the longest acknowledgement of a replica that gets one.
    pub lease_reads: bool,
    pub lease_max_commit_wait: Duration,
    pub replay_policy: Policy,
    /// 0: as many as there are CPUs.
    pub replay_workers: u32,
    pub forward: Limits,
    pub log_level: String,
    pub log_format: LogFormat,
    /// Defaults of session settings.
    pub settings: Vec<(String, String)>,
    /// A log that ends before its anchor is taken if it ends here. Said at the command line only, as it is for one start.
    pub accept_log_end: Option<Position>,
    /// Variables of the environment that look like ours and mean nothing.
    pub foreign: Vec<String>,
}

/// Settings of sessions as the file and the flags say them; the later wins.
fn said_settings(
    file: BTreeMap<String, toml::Value>,
    flags: &[String],
) -> Result<Vec<(String, String)>> {
    let mut settings: Vec<(String, String)> = file
        .into_iter()
        .map(|(name, v)| {
            let value = match v {
                toml::Value::String(s) => s,
                toml::Value::Boolean(b) => if b { "on" } else { "off" }.to_owned(),
                toml::Value::Integer(n) => n.to_string(),
                toml::Value::Float(x) => x.to_string(),
                v => {
                    return Err(bad(
                        &name,
                        &v.to_string(),
                        "a string, a number or a Boolean",
                    ));
                }
            };
            Ok((name, value))
        })
        .collect::<Result<_>>()?;
    for said in flags.iter().filter(|s| !s.trim().is_empty()) {
        let Some((name, value)) = said.split_once('=') else {
            return Err(bad("settings", said, "NAME=VALUE, with ; between several"));
        };
        let (name, value) = (name.trim().to_lowercase(), value.trim().to_owned());
        settings.retain(|(n, _)| !n.eq_ignore_ascii_case(&name));
        settings.push((name, value));
    }
    Ok(settings)
}

/// A server of the cluster, HOST:PORT.
fn member(said: &Said<String>) -> Result<Option<String>> {
    match said.if_any() {
        None => Ok(None),
        // A role and its password are not what members prove themselves by.
        Some(v) if v.contains('=') || v.contains("//") => Err(said.bad("HOST:PORT")),
        Some(v) => match Primary::parse(v) {
            Ok(p) => Ok(Some(p.to_string())),
            Err(why) => Err(said.bad(&why)),
        },
    }
}

/// The primary to follow.
fn primary(said: &Said<String>) -> Result<Option<Primary>> {
    let parsed = said.if_any().map(Primary::parse).transpose();
    parsed.map_err(|why| said.bad(&why))
}

/// What a node is called: its host and port where nothing is said.
fn node_name(said: &Said<String>, listen: &str) -> Result<String> {
    let name = match said.if_any() {
        None => format!("{}:{}", host_name(), port_of(listen)),
        Some(name) => name.to_owned(),
    };
    match name.len() > 63 || name.chars().any(char::is_control) {
        true => Err(bad(said.key, &name, "at most 63 printable bytes")),
        false => Ok(name),
    }
}

/// Whether the log goes to replicas on this host through a ring.
fn log_ring(said: &Said<String>, shared_memory: bool) -> Result<bool> {
    match said.text() {
        "auto" => Ok(shared_memory),
        "message" => Ok(false),
        _ => Err(said.bad("auto or message")),
    }
}

fn log_level(said: &Said<String>) -> Result<String> {
    match said.text().parse::<tracing_subscriber::EnvFilter>() {
        Ok(_) => Ok(said.text().to_owned()),
        Err(_) => Err(said.bad("error, warn, info, debug or trace")),
    }
}

/// A primary that is cut off acknowledges for as long as its lease lasts, and the copies are asked after that.
pub(crate) fn max_loss(said: &Said<String>) -> Result<Option<Duration>> {
    match said.if_any().map(|_| said.time()).transpose()? {
        Some(time) if time < LEAST_LOSS => Err(said.bad("at least 3s")),
        time => Ok(time),
    }
}

/// How long the lease of a primary may be made.
const LEASES: RangeInclusive<Duration> = Duration::from_millis(300)..=Duration::from_millis(1500);

fn lease(said: &Said<String>) -> Result<Option<Duration>> {
    match said.if_any().map(|_| said.time()).transpose()? {
        Some(time) if !LEASES.contains(&time) => Err(said.bad("300ms to 1500ms")),
        time => Ok(time),
    }
}

/// The least time between two bases.
const LEAST_EVERY: Duration = Duration::from_secs(1);

/// When bases are made, and what is kept.
fn schedule(given: &Given) -> Result<Option<Schedule>> {
    let (every, keep) = (&given.backup_every, &given.backup_keep);
    let kept = match keep.if_any() {
        None => Keep::All,
        Some(v) => v.parse().map_err(|why| keep.bad(why))?,
    };
    match every.if_any() {
        None if kept != Keep::All => Err(keep.bad("it needs backup.every")),
        None => Ok(None),
        Some(_) if given.archive.if_any().is_none() => Err(every.bad("it needs archive")),
        Some(_) if every.time()? < LEAST_EVERY => Err(every.bad("at least 1s")),
        Some(_) => Ok(Some(Schedule {
            every: every.time()?,
            keep: kept,
        })),
    }
}

fn forward_limits(given: &Given) -> Result<Limits> {
    let limits = Limits {
        connections: given.forward_connections.within(1..=MOST_CONNECTIONS)? as usize,
        wait: given.forward_wait.time()?,
        silence: given.forward_silence.time()?,
    };
    match limits.silence < Duration::from_secs(1) {
        true => Err(given.forward_silence.bad("at least 1s")),
        false => Ok(limits),
    }
}

impl Config {
    /// Reads the file that the flags name, if they do, puts flags and variables over it and checks it all.
    pub fn load(flags: &Overrides) -> Result<Config> {
        let file = match &flags.config {
            None => File::default(),
            Some(path) => read(path)?,
        };
        Config::check(file, flags)
    }

    /// What the values have to be together.
    fn fits(&self) -> Result<()> {
        if self.site && self.replica_of.is_none() && self.join.is_none() {
            let why = "a site follows a primary: say join, or replica_of";
            return Err(bad("site", "true", why));
        }
        if let (Some(_), Some(join)) = (&self.replica_of, &self.join) {
            let why =
                "a server follows by hand (replica_of), or belongs to a cluster that runs itself";
            return Err(bad("cluster.join", join, why));
        }
        if self.epoch_max_duration.is_zero() {
            return Err(bad("epoch_max_duration", "0", "more than nothing"));
        }
        if self.segment_bytes < 1 << 20 {
            let v = self.segment_bytes.to_string();
            return Err(bad("segment_bytes", &v, "at least 1MB"));
        }
        sql::session::check_settings(&self.settings)
    }

    fn check(mut file: File, flags: &Overrides) -> Result<Config> {
        let rules = std::mem::take(&mut file.access);
        let settings = said_settings(std::mem::take(&mut file.settings), &flags.settings)?;
        let given = Given::of(file, flags);
        let entrance = entrance::of(&given, &rules)?;
        let listen = given.listen.text();
        let shared_memory = given.shared_memory.is_on();
        let max_memory = memory::of_rows(&given.max_memory)?;
        let config = Config {
            listen: addresses("listen", listen)?,
            http: match given.http.if_any() {
                None => vec![],
                Some(at) => addresses("http", at)?,
            },
            max_connections: given.max_connections.within(1..=MOST_CONNECTIONS)?,
            entrance,
            cluster_ca: entrance::cluster_ca(&given)?,
            shutdown_timeout: given.shutdown_timeout.time()?,
            max_memory,
            memory_total: memory::of_the_rest(&given.memory_total, max_memory)?,
            snapshot_max_age: given.snapshot_max_age.time()?,
            split_adjust: given.split_adjust.named("binary, linear or quadratic")?,
            split_balance: given.split_balance.named("minmax, random, all or none")?,
            site_certification: given.site_certification.named("rows, tables or serial")?,
            checkpoint_bytes: given.checkpoint_bytes.size()?,
            segment_bytes: given.segment_bytes.size()?,
            epoch_max_duration: given.epoch_max_duration.time()?,
            node_name: node_name(&given.node_name, listen)?,
            replica_of: primary(&given.replica_of)?,
            site: given.site.is_on(),
            join: member(&given.join)?,
            cluster_address: member(&given.cluster_address)?,
            synchronous_replicas: given.synchronous_replicas.within(0..=16)?,
            synchronous_said: given.synchronous_replicas.value,
            failover_max_loss: max_loss(&given.failover_max_loss)?,
            failover_lease: lease(&given.failover_lease)?,
            wal_keep_bytes: given.wal_keep_bytes.size()?,
            archive: Destination::checked(
                given.archive.text().to_owned(),
                given.archive_checkpoints.value,
            )?,
            backup: schedule(&given)?,
            shared_memory,
            log_ring: log_ring(&given.replication_ring, shared_memory)?,
            lease_reads: given.lease_reads.is_on(),
            lease_max_commit_wait: given.lease_max_commit_wait.time()?,
            replay_policy: given
                .replay_policy
                .named("row, serial, table, transaction, page or transaction-worker")?,
            replay_workers: given.replay_workers.within(0..=256)?,
            forward: forward_limits(&given)?,
            log_level: log_level(&given.log_level)?,
            log_format: given.log_format.value.unwrap_or_default(),
            settings,
            accept_log_end: None,
            foreign: Vec::new(),
            data: given.data.value.ok_or_else(no_directory)?,
            unix_socket_directory: given.unix_socket_directory.value,
            cluster_secret_file: given.cluster_secret_file.value,
        };
        config.fits()?;
        Ok(config)
    }

    /// Whether an address is open to other machines.
    pub fn on_network(&self) -> bool {
        self.listen.iter().any(|a| !a.ip().is_loopback())
    }
}

fn read(path: &Path) -> Result<File> {
    let failed = |e: &dyn std::fmt::Display| {
        Error::new(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("configuration file {}: {e}", path.display()),
        )
    };
    let text = std::fs::read_to_string(path).map_err(|e| failed(&e))?;
    let file: File = toml::from_str(&text).map_err(|e| failed(&e))?;
    if file
        .replica_of
        .as_deref()
        .is_some_and(secrets::has_password)
    {
        service::secret::must_be_private(path, "a password")
            .map_err(|e| failed(&e.fields().message))?;
    }
    Ok(file)
}

fn addresses(key: &str, v: &str) -> Result<Vec<SocketAddr>> {
    let found: Vec<SocketAddr> = v
        .to_socket_addrs()
        .map_err(|e| bad(key, v, &format!("not HOST:PORT ({e})")))?
        .collect();
    // `localhost` is often both 127.0.0.1 and ::1: the first is the one that is meant.
    found
        .into_iter()
        .next()
        .map(|a| vec![a])
        .ok_or_else(|| bad(key, v, "no such address"))
}

/// This machine's name, as its kernel tells it.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "localhost".to_owned(),
        n => n.chars().take(40).collect(),
    }
}

fn port_of(listen: &str) -> &str {
    listen.rsplit(':').next().unwrap_or("")
}

/// 22023.
fn no_directory() -> Error {
    Error::new(
        SqlState::INVALID_PARAMETER_VALUE,
        "no data directory: say --data DIR, CANON_DATA or data in the configuration file",
    )
}

#[cfg(test)]
mod tests;
