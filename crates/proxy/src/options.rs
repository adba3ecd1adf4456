//! What `canon proxy` is told: flags and their variables.

use std::path::PathBuf;
use std::time::Duration;

/// One field for each flag.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Nodes of the cluster; one that answers is enough, replicas of the primary are found
    #[arg(
        long,
        value_name = "HOST:PORT,…",
        env = "CANON_PROXY_NODES",
        value_delimiter = ',',
        required = true
    )]
    pub nodes: Vec<String>,
    /// Address for PostgreSQL clients, which get any node
    #[arg(
        long,
        value_name = "HOST:PORT",
        env = "CANON_PROXY_LISTEN",
        default_value = "127.0.0.1:6432"
    )]
    pub listen: String,
    /// A second address, whose clients get the primary
    #[arg(long, value_name = "HOST:PORT", env = "CANON_PROXY_LISTEN_PRIMARY")]
    pub listen_primary: Option<String>,
    /// A third address, whose clients get replicas
    #[arg(long, value_name = "HOST:PORT", env = "CANON_PROXY_LISTEN_STANDBY")]
    pub listen_standby: Option<String>,
    /// Address for /healthz, /readyz and /metrics
    #[arg(long, value_name = "HOST:PORT", env = "CANON_PROXY_HTTP")]
    pub http: Option<String>,
    /// The proxy's own role, a superuser; its password comes from PGPASSWORD
    #[arg(long, value_name = "ROLE", env = "CANON_PROXY_USER", default_value = protocol::DATABASE)]
    pub user: String,
    /// A file with the cluster's secret, by which nodes and the proxy prove themselves to each other
    #[arg(long, value_name = "FILE", env = "CANON_PROXY_CLUSTER_SECRET_FILE")]
    pub cluster_secret_file: Option<PathBuf>,
    /// Most clients
    #[arg(
        long,
        value_name = "N",
        env = "CANON_PROXY_MAX_CONNECTIONS",
        default_value_t = 1000
    )]
    pub max_connections: usize,
    /// A replica that is older gets no sessions while there is a fresher one
    #[arg(long, value_name = "TIME", env = "CANON_PROXY_MAX_LAG", default_value = "1s", value_parser = time)]
    pub max_lag: Duration,
    /// How often nodes are asked how they are
    #[arg(long, value_name = "TIME", env = "CANON_PROXY_CHECK_INTERVAL", default_value = "200ms", value_parser = time)]
    pub check_interval: Duration,
    /// How long a client waits for a node when none can take it
    #[arg(long, value_name = "TIME", env = "CANON_PROXY_PATIENCE", default_value = "30s", value_parser = time)]
    pub patience: Duration,
    /// Time that open transactions get at SIGTERM
    #[arg(long, value_name = "TIME", env = "CANON_PROXY_SHUTDOWN_TIMEOUT", default_value = "30s", value_parser = time)]
    pub shutdown_timeout: Duration,
    /// Let users without a password in from other machines than this
    #[arg(long, env = "CANON_ALLOW_PASSWORDLESS_NETWORK")]
    pub allow_passwordless_network: bool,
    /// Let clients without TLS in from other machines than this, and go to nodes on others without it
    #[arg(long, env = "CANON_ALLOW_PLAIN_NETWORK")]
    pub allow_plain_network: bool,
    /// The proxy's certificate for TLS, PEM, with those of authorities between it and one that clients know
    #[arg(
        long,
        value_name = "FILE",
        env = "CANON_PROXY_TLS_CERTIFICATE",
        requires = "tls_key"
    )]
    pub tls_certificate: Option<PathBuf>,
    /// The certificate's private key, PEM
    #[arg(
        long,
        value_name = "FILE",
        env = "CANON_PROXY_TLS_KEY",
        requires = "tls_certificate"
    )]
    pub tls_key: Option<PathBuf>,
    /// Authorities that sign certificates of the cluster's nodes, PEM; a node must show one for its host then
    #[arg(long, value_name = "FILE", env = "CANON_PROXY_TLS_CLUSTER_CA")]
    pub tls_cluster_ca: Option<PathBuf>,
    /// error, warn, info, debug or trace
    #[arg(
        long,
        value_name = "LEVEL",
        env = "CANON_LOG_LEVEL",
        default_value = "info"
    )]
    pub log_level: String,
}

fn time(text: &str) -> std::result::Result<Duration, String> {
    let found = base::units::duration(text).filter(|d| !d.is_zero());
    found.ok_or_else(|| "a time such as 500ms or 30s".into())
}
