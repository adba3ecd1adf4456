//! The server's configuration: one commented file, `CANON_*` variables, command-line flags; the later wins.
//!
//! Everything is checked here, before a disk or a socket is touched: an unknown key, a variable that is nearly a known one
//! ([`variables`]), a size that is none, an address that cannot be one, a password where others can read it ([`secrets`]).

pub mod entrance;
mod secrets;
mod variables;

pub use secrets::{refuse_passwords, without_password};
pub use variables::check_variables;

use crate::entrance::Entrance;
use crate::forward;
use crate::replication::Primary;
use crate::replication::archive::Place;
use base::units::{duration, size};
use base::{Error, Position, Result, SqlState};
use replica::replay::Policy;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The file that `canon config` prints, with the defaults.
pub const COMMENTED: &str = include_str!("canon.toml");

/// How logs are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

/// The file, as it is written. Every key may be left out.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    data: Option<PathBuf>,
    listen: Option<String>,
    http: Option<String>,
    unix_socket_directory: Option<PathBuf>,
    max_connections: Option<u32>,
    allow_passwordless_network: Option<bool>,
    allow_plain_network: Option<bool>,
    shutdown_timeout: Option<String>,
    max_memory: Option<String>,
    snapshot_max_age: Option<String>,
    checkpoint_bytes: Option<String>,
    segment_bytes: Option<String>,
    epoch_max_duration: Option<String>,
    node_name: Option<String>,
    replica_of: Option<String>,
    site: Option<bool>,
    synchronous_replicas: Option<u32>,
    wal_keep_bytes: Option<String>,
    archive: Option<String>,
    archive_checkpoints: Option<u32>,
    shared_memory: Option<bool>,
    #[serde(default)]
    tls: entrance::Tls,
    #[serde(default)]
    access: Vec<entrance::Access>,
    #[serde(default)]
    memory: Memory,
    #[serde(default)]
    cluster: Cluster,
    #[serde(default)]
    replication: Replication,
    #[serde(default)]
    replay: Replay,
    #[serde(default)]
    forward: Forward,
    log_level: Option<String>,
    log_format: Option<LogFormat>,
    #[serde(default)]
    settings: BTreeMap<String, toml::Value>,
}

/// The section `[memory]` of the file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Memory {
    total: Option<String>,
}

/// The section `[cluster]` of the file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cluster {
    secret_file: Option<PathBuf>,
    join: Option<String>,
    address: Option<String>,
}

/// The section `[replication]` of the file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Replication {
    ring: Option<String>,
}

/// The section `[replay]` of the file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Replay {
    policy: Option<String>,
    workers: Option<u32>,
}

/// The section `[forward]` of the file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Forward {
    connections: Option<u32>,
    wait: Option<String>,
    silence: Option<String>,
}

impl File {
    /// What the file and the flags say of the way in, and the authorities of the cluster's nodes.
    fn entrance(&self, flags: &Overrides) -> Result<(Entrance, Option<PathBuf>)> {
        let passwordless = self.allow_passwordless_network.unwrap_or(false);
        let plain = self.allow_plain_network.unwrap_or(false);
        let entrance = Entrance {
            allow_passwordless_network: flags.allow_passwordless_network || passwordless,
            allow_plain_network: flags.tls.allow_plain_network || plain,
            tls: self.tls.acceptor(&flags.tls)?,
            access: entrance::rules(&self.access, self.tls.knows_clients(&flags.tls))?,
        };
        Ok((entrance, self.tls.cluster_ca(&flags.tls)?))
    }

    /// Whether it holds what nobody else on the machine may read.
    fn holds_secrets(&self) -> bool {
        self.replica_of
            .as_deref()
            .is_some_and(secrets::has_password)
    }
}

/// What flags and variables say; they win over the file.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Overrides {
    /// Data directory; made and initialised when it is absent
    #[arg(long, value_name = "DIR", env = "CANON_DATA")]
    pub data: Option<PathBuf>,
    /// Address for PostgreSQL clients
    #[arg(long, value_name = "HOST:PORT", env = "CANON_LISTEN")]
    pub listen: Option<String>,
    /// Address for /healthz, /readyz and /metrics; none: no HTTP
    #[arg(long, value_name = "HOST:PORT", env = "CANON_HTTP")]
    pub http: Option<String>,
    /// Directory of a Unix socket for PostgreSQL clients
    #[arg(long, value_name = "DIR", env = "CANON_UNIX_SOCKET_DIRECTORY")]
    pub unix_socket_directory: Option<PathBuf>,
    /// Configuration file; `canon config` prints one with every key
    #[arg(long, value_name = "FILE", env = "CANON_CONFIG")]
    pub config: Option<PathBuf>,
    /// Most client connections
    #[arg(long, value_name = "N", env = "CANON_MAX_CONNECTIONS")]
    pub max_connections: Option<u32>,
    /// Let users without a password in from other machines
    #[arg(long, env = "CANON_ALLOW_PASSWORDLESS_NETWORK")]
    pub allow_passwordless_network: bool,
    #[command(flatten)]
    pub tls: entrance::Flags,
    /// Most memory that rows may take, such as 8GB
    #[arg(long, value_name = "SIZE", env = "CANON_MAX_MEMORY")]
    pub max_memory: Option<String>,
    /// Most memory that statements, sessions and queues may take together, beside the rows, such as 2GB
    #[arg(long, value_name = "SIZE", env = "CANON_MEMORY_TOTAL")]
    pub memory_total: Option<String>,
    /// Age at which a snapshot ends, such as 1h
    #[arg(long, value_name = "TIME", env = "CANON_SNAPSHOT_MAX_AGE")]
    pub snapshot_max_age: Option<String>,
    /// Log written since the last checkpoint that calls for the next, such as 1GB
    #[arg(long, value_name = "SIZE", env = "CANON_CHECKPOINT_BYTES")]
    pub checkpoint_bytes: Option<String>,
    /// Size of a file of the log, such as 64MB
    #[arg(long, value_name = "SIZE", env = "CANON_SEGMENT_BYTES")]
    pub segment_bytes: Option<String>,
    /// Most time that an epoch lasts while there is work, such as 10ms
    #[arg(long, value_name = "TIME", env = "CANON_EPOCH_MAX_DURATION")]
    pub epoch_max_duration: Option<String>,
    /// Time that running transactions get at SIGTERM, such as 30s
    #[arg(long, value_name = "TIME", env = "CANON_SHUTDOWN_TIMEOUT")]
    pub shutdown_timeout: Option<String>,
    /// Follow this primary: HOST:PORT, or a connection string with user and password (else PGPASSWORD)
    #[arg(long, value_name = "PRIMARY", env = "CANON_REPLICA_OF")]
    pub replica_of: Option<String>,
    /// Join the cluster that the server at this address belongs to: needed once. A cluster agrees by itself which server is the primary
    #[arg(long, value_name = "HOST:PORT", env = "CANON_CLUSTER_JOIN")]
    pub join: Option<String>,
    /// Where other members of the cluster reach this server; else the address that it listens on
    #[arg(long, value_name = "HOST:PORT", env = "CANON_CLUSTER_ADDRESS")]
    pub cluster_address: Option<String>,
    /// Be a site: a replica that runs changes of rows itself and has its primary certify them
    #[arg(long, env = "CANON_SITE")]
    pub site: bool,
    /// What this node, and no other, calls itself to others; a proxy looks for it at HOST:PORT; else its host's name and port
    #[arg(long, value_name = "NAME", env = "CANON_NODE_NAME")]
    pub node_name: Option<String>,
    /// The cluster's secret, for a node that joins: a copy of CANON_SECRET from the primary's data directory; needed once
    #[arg(long, value_name = "FILE", env = "CANON_CLUSTER_SECRET_FILE")]
    pub cluster_secret_file: Option<PathBuf>,
    /// Replicas that must have a commit on disk before it counts as durable
    #[arg(long, value_name = "N", env = "CANON_SYNCHRONOUS_REPLICAS")]
    pub synchronous_replicas: Option<u32>,
    /// Log kept for replicas that are away, such as 4GB
    #[arg(long, value_name = "SIZE", env = "CANON_WAL_KEEP_BYTES")]
    pub wal_keep_bytes: Option<String>,
    /// Where finished log and checkpoints are copied to, such as file:///backup/canon
    #[arg(long, value_name = "URL", env = "CANON_ARCHIVE")]
    pub archive: Option<String>,
    /// Checkpoints that stay in the archive: a restore can go back to the oldest
    #[arg(long, value_name = "N", env = "CANON_ARCHIVE_CHECKPOINTS")]
    pub archive_checkpoints: Option<u32>,
    /// Whether replicas on this host may read what this node has published in shared memory
    #[arg(long, value_name = "BOOL", env = "CANON_SHARED_MEMORY")]
    pub shared_memory: Option<bool>,
    /// How the log goes to a replica on this host: auto (into a ring in shared memory), message
    #[arg(long, value_name = "HOW", env = "CANON_REPLICATION_RING")]
    pub replication_ring: Option<String>,
    /// How a replica replays: row, serial, table, transaction, page, transaction-worker
    #[arg(long, value_name = "POLICY", env = "CANON_REPLAY_POLICY")]
    pub replay_policy: Option<String>,
    /// Threads that install rows at a replica
    #[arg(long, value_name = "N", env = "CANON_REPLAY_WORKERS")]
    pub replay_workers: Option<u32>,
    /// Clients of a replica that may be in the middle of something at the primary
    #[arg(long, value_name = "N", env = "CANON_FORWARD_CONNECTIONS")]
    pub forward_connections: Option<u32>,
    /// How long further clients wait for their turn at the primary, such as 30s
    #[arg(long, value_name = "TIME", env = "CANON_FORWARD_WAIT")]
    pub forward_wait: Option<String>,
    /// A primary that is not heard for so long is taken for lost, such as 10s
    #[arg(long, value_name = "TIME", env = "CANON_FORWARD_SILENCE")]
    pub forward_silence: Option<String>,
    /// The default of a session setting, as in the section [settings]; may be repeated
    #[arg(
        long = "setting",
        value_name = "NAME=VALUE",
        env = "CANON_SETTINGS",
        value_delimiter = ';'
    )]
    pub settings: Vec<String>,
    /// error, warn, info, debug or trace, also per module: info,canon=debug
    #[arg(long, value_name = "LEVEL", env = "CANON_LOG_LEVEL")]
    pub log_level: Option<String>,
    /// How logs are written
    #[arg(long, value_name = "FORMAT", env = "CANON_LOG_FORMAT")]
    pub log_format: Option<LogFormat>,
}

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
    pub wal_keep_bytes: u64,
    pub archive: Option<Place>,
    /// Whether replicas on this host may map what they ask for.
    pub shared_memory: bool,
    /// Whether the log goes through a ring in shared memory to replicas on this host.
    pub log_ring: bool,
    pub replay_policy: Policy,
    /// 0: as many as there are CPUs.
    pub replay_workers: u32,
    pub forward: forward::Limits,
    pub log_level: String,
    pub log_format: LogFormat,
    /// Defaults of session settings.
    pub settings: Vec<(String, String)>,
    /// A log that ends before its anchor is taken if it ends here. Said at the command line only, as it is for one start.
    pub accept_log_end: Option<Position>,
    /// Variables of the environment that look like ours and mean nothing.
    pub foreign: Vec<String>,
}

fn bad(key: &str, value: &str, why: &str) -> Error {
    let value = without_password(value);
    Error::new(
        SqlState::INVALID_PARAMETER_VALUE,
        format!("{key} = {value:?}: {why}"),
    )
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

/// The server to join and the address to be reached at, both HOST:PORT.
fn joining(
    flags: &Overrides,
    file: &Cluster,
    replica_of: Option<&Primary>,
) -> Result<(Option<String>, Option<String>)> {
    let plain = |key: &str, flag: &Option<String>, file: &Option<String>| {
        let said = flag.as_deref().or(file.as_deref()).unwrap_or("");
        match said {
            "" => Ok(None),
            // A role and its password are not what members prove themselves by.
            v if v.contains('=') || v.contains("//") => Err(bad(key, v, "HOST:PORT")),
            v => Primary::parse(v)
                .map(|p| Some(p.to_string()))
                .map_err(|why| bad(key, v, &why)),
        }
    };
    let join = plain("cluster.join", &flags.join, &file.join)?;
    let address = plain("cluster.address", &flags.cluster_address, &file.address)?;
    match (replica_of, &join) {
        (Some(_), Some(join)) => {
            let why =
                "a server follows by hand (replica_of), or belongs to a cluster that runs itself";
            Err(bad("cluster.join", join, why))
        }
        _ => Ok((join, address)),
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
        if self.site && self.replica_of.is_none() {
            return Err(bad("site", "true", "a site is a replica: say replica_of"));
        }
        if self.epoch_max_duration.is_zero() {
            return Err(bad("epoch_max_duration", "0", "more than nothing"));
        }
        if self.synchronous_replicas > 16 {
            let v = self.synchronous_replicas.to_string();
            return Err(bad("synchronous_replicas", &v, "0 to 16"));
        }
        Ok(())
    }

    fn check(file: File, flags: &Overrides) -> Result<Config> {
        let (entrance, cluster_ca) = file.entrance(flags)?;
        let text = |a: &Option<String>, b: &Option<String>, d: &str| {
            a.clone()
                .or_else(|| b.clone())
                .unwrap_or_else(|| d.to_owned())
        };
        let data = flags.data.clone().or(file.data).ok_or_else(|| {
            Error::new(
                SqlState::INVALID_PARAMETER_VALUE,
                "no data directory: say --data DIR, CANON_DATA or data in the configuration file",
            )
        })?;
        let listen = text(&flags.listen, &file.listen, "127.0.0.1:5432");
        let http = text(&flags.http, &file.http, "");
        let max_connections = flags
            .max_connections
            .or(file.max_connections)
            .unwrap_or(100);
        if !(1..=262_143).contains(&max_connections) {
            return Err(bad(
                "max_connections",
                &max_connections.to_string(),
                "1 to 262143",
            ));
        }
        let settings = said_settings(file.settings, &flags.settings)?;
        let log_level = text(&flags.log_level, &file.log_level, "info");
        if log_level.parse::<tracing_subscriber::EnvFilter>().is_err() {
            return Err(bad(
                "log_level",
                &log_level,
                "error, warn, info, debug or trace",
            ));
        }
        let duration = |key: &str, a: &Option<String>, b: &Option<String>, d: &str| {
            let v = text(a, b, d);
            duration(&v).ok_or_else(|| bad(key, &v, "a time such as 500ms, 30s, 5min, 1h"))
        };
        let size = |key: &str, a: &Option<String>, b: &Option<String>, d: &str| {
            let v = text(a, b, d);
            size(&v)
                .filter(|n| *n > 0)
                .ok_or_else(|| bad(key, &v, "a size such as 512MB or 8GB"))
        };
        let replica_of = text(&flags.replica_of, &file.replica_of, "");
        let replica_of = match replica_of.as_str() {
            "" => None,
            v => Some(Primary::parse(v).map_err(|why| bad("replica_of", v, &why))?),
        };
        let (join, cluster_address) = joining(flags, &file.cluster, replica_of.as_ref())?;
        let site = flags.site || file.site.unwrap_or(false);
        let synchronous_replicas = flags.synchronous_replicas.or(file.synchronous_replicas);
        let shared_memory = flags.shared_memory.or(file.shared_memory).unwrap_or(true);
        let ring = text(&flags.replication_ring, &file.replication.ring, "auto");
        let log_ring = match ring.as_str() {
            "auto" => shared_memory,
            "message" => false,
            _ => return Err(bad("replication.ring", &ring, "auto or message")),
        };
        let policy = text(&flags.replay_policy, &file.replay.policy, "row");
        let names = "row, serial, table, transaction, page or transaction-worker";
        let replay_policy = policy
            .parse()
            .map_err(|_| bad("replay.policy", &policy, names))?;
        let node_name = match text(&flags.node_name, &file.node_name, "") {
            n if n.is_empty() => format!("{}:{}", host_name(), port_of(&listen)),
            n => n,
        };
        if node_name.len() > 63 || node_name.chars().any(char::is_control) {
            return Err(bad("node_name", &node_name, "at most 63 printable bytes"));
        }
        let connections = flags.forward_connections.or(file.forward.connections);
        let connections = connections.unwrap_or(64);
        if !(1..=262_143).contains(&connections) {
            let v = connections.to_string();
            return Err(bad("forward.connections", &v, "1 to 262143"));
        }
        let forward = forward::Limits {
            connections: connections as usize,
            wait: duration(
                "forward.wait",
                &flags.forward_wait,
                &file.forward.wait,
                "30s",
            )?,
            silence: duration(
                "forward.silence",
                &flags.forward_silence,
                &file.forward.silence,
                "10s",
            )?,
        };
        if forward.silence < Duration::from_secs(1) {
            let v = text(&flags.forward_silence, &file.forward.silence, "");
            return Err(bad("forward.silence", &v, "at least 1s"));
        }
        let max_memory = match text(&flags.max_memory, &file.max_memory, "") {
            v if v.is_empty() => machine_memory().map_or(u64::MAX, |m| m / 4 * 3),
            v => size("max_memory", &Some(v), &None, "")?,
        };
        let memory_total = match text(&flags.memory_total, &file.memory.total, "") {
            v if v.is_empty() => half_of_the_rest(max_memory),
            v => size("memory.total", &Some(v), &None, "")?,
        };
        if memory_total < LEAST_TOTAL {
            let v = memory_total.to_string();
            return Err(bad("memory.total", &v, "at least 64MB"));
        }
        let config = Config {
            data,
            listen: addresses("listen", &listen)?,
            http: match http.as_str() {
                "" => vec![],
                at => addresses("http", at)?,
            },
            unix_socket_directory: flags
                .unix_socket_directory
                .clone()
                .or(file.unix_socket_directory),
            max_connections,
            entrance,
            cluster_ca,
            shutdown_timeout: duration(
                "shutdown_timeout",
                &flags.shutdown_timeout,
                &file.shutdown_timeout,
                "30s",
            )?,
            max_memory,
            memory_total,
            snapshot_max_age: duration(
                "snapshot_max_age",
                &flags.snapshot_max_age,
                &file.snapshot_max_age,
                "1h",
            )?,
            checkpoint_bytes: size(
                "checkpoint_bytes",
                &flags.checkpoint_bytes,
                &file.checkpoint_bytes,
                "1GB",
            )?,
            segment_bytes: size(
                "segment_bytes",
                &flags.segment_bytes,
                &file.segment_bytes,
                "64MB",
            )?,
            epoch_max_duration: duration(
                "epoch_max_duration",
                &flags.epoch_max_duration,
                &file.epoch_max_duration,
                "10ms",
            )?,
            node_name,
            replica_of,
            site,
            cluster_secret_file: flags
                .cluster_secret_file
                .clone()
                .or(file.cluster.secret_file),
            join,
            cluster_address,
            synchronous_replicas: synchronous_replicas.unwrap_or(0),
            synchronous_said: synchronous_replicas,
            wal_keep_bytes: size(
                "wal_keep_bytes",
                &flags.wal_keep_bytes,
                &file.wal_keep_bytes,
                "4GB",
            )?,
            archive: Place::checked(
                text(&flags.archive, &file.archive, ""),
                flags.archive_checkpoints.or(file.archive_checkpoints),
            )?,
            shared_memory,
            log_ring,
            replay_policy,
            replay_workers: flags.replay_workers.or(file.replay.workers).unwrap_or(0),
            forward,
            log_level,
            log_format: flags.log_format.or(file.log_format).unwrap_or_default(),
            settings,
            accept_log_end: None,
            foreign: Vec::new(),
        };
        config.fits()?;
        if config.replay_workers > 256 {
            let v = config.replay_workers.to_string();
            return Err(bad("replay.workers", &v, "0 to 256"));
        }
        if config.segment_bytes < 1 << 20 {
            return Err(bad(
                "segment_bytes",
                &config.segment_bytes.to_string(),
                "at least 1MB",
            ));
        }
        sql::session::check_settings(&config.settings)?;
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
    if file.holds_secrets() {
        secrets::must_be_private(path, "a password").map_err(|e| failed(&e.fields().message))?;
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

/// The least `memory.total`: a server with less could not serve its connections.
const LEAST_TOTAL: u64 = 64 << 20;

/// What this process may take at most: the machine's memory, or what its cgroup allows. Bytes.
fn machine_memory() -> Option<u64> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let machine = meminfo
        .lines()
        .find_map(|l| l.strip_prefix("MemTotal:"))
        .and_then(|l| l.trim().trim_end_matches("kB").trim().parse::<u64>().ok())
        .map(|kb| kb << 10);
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    machine.into_iter().chain(cgroup_limits(&own)).min()
}

/// The limits of the cgroups that the process is in and of those around them: version 2 (`0::/a/b`), and version 1's `memory`.
fn cgroup_limits(own: &str) -> Vec<u64> {
    let mut limits = Vec::new();
    for line in own.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            c if c.split(',').any(|c| c == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        for part in Path::new(path.trim_start_matches('/')).ancestors() {
            let text = std::fs::read_to_string(Path::new(root).join(part).join(file));
            limits.extend(text.ok().and_then(|t| t.trim().parse::<u64>().ok()));
        }
    }
    limits
}

/// `memory.total` when nothing is said.
fn half_of_the_rest(max_memory: u64) -> u64 {
    let left = machine_memory().map_or(u64::MAX, |m| m.saturating_sub(max_memory));
    (left / 2).max(LEAST_TOTAL)
}

#[cfg(test)]
mod tests;
