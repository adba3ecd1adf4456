//! Every setting of `canon start`, declared once: help, flag, variable, key of the file, type and default.
//!
//! ```text
//! settings! { … } ──▶ Overrides  what flags and variables say (clap)
//!                 ──▶ File       what the file says (serde); unknown keys are refused
//!                 ──▶ Given      the one over the other, over the default
//! ```
//! A flag is named like the field. The key of the file is the field's name, or what stands before `=>` in a section. `= …` is the default.
//! `canon.toml`, which `canon config` prints, says the same in more words; a test compares them.
//!
//! Left out on purpose: what a value may be (`super::said` and `Config::check`).

use super::said::Said;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// How logs are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

/// One section `[[access]]`. What is left out is `any`, or `all`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Access {
    pub from: Option<String>,
    pub role: Option<String>,
    pub database: Option<String>,
    pub tls: Option<bool>,
    pub method: String,
}

/// Something that the file can say, with its default as the table writes it.
pub trait Value: Clone {
    type Default;

    fn of(default: Self::Default) -> Self;
}

impl Value for String {
    type Default = &'static str;

    fn of(default: &'static str) -> String {
        default.to_owned()
    }
}

impl Value for u32 {
    type Default = u32;

    fn of(default: u32) -> u32 {
        default
    }
}

impl Value for bool {
    type Default = bool;

    fn of(default: bool) -> bool {
        default
    }
}

impl Value for LogFormat {
    type Default = LogFormat;

    fn of(default: LogFormat) -> LogFormat {
        default
    }
}

impl Value for PathBuf {
    type Default = &'static str;

    fn of(default: &'static str) -> PathBuf {
        default.into()
    }
}

/// What a flag or its variable says.
pub trait Flag {
    type Value: Value;

    /// Over what the file says.
    fn over(&self, file: Option<Self::Value>) -> Option<Self::Value>;
}

/// A flag with a value.
impl<T: Value> Flag for Option<T> {
    type Value = T;

    fn over(&self, file: Option<T>) -> Option<T> {
        self.clone().or(file)
    }
}

/// A flag without one: there, it says yes; absent, it says nothing.
impl Flag for bool {
    type Value = bool;

    fn over(&self, file: Option<bool>) -> Option<bool> {
        if *self { Some(true) } else { file }
    }
}

macro_rules! settings {
    (
        top { $( $(#[$top_meta:meta])* $top:ident : $top_type:ty $(= $top_default:expr)?; )* }
        $( section $section:ident $name:ident {
            $( $(#[$meta:meta])* $key:ident => $field:ident : $type:ty $(= $default:expr)?; )*
        } )*
        flags { $( $(#[$flag_meta:meta])* $flag:ident : $flag_type:ty; )* }
    ) => {
        /// What flags and variables say; they win over the file.
        #[derive(Clone, Debug, Default, clap::Args)]
        pub struct Overrides {
            $( $(#[$top_meta])* pub $top: $top_type, )*
            $( $( $(#[$meta])* pub $field: $type, )* )*
            $( $(#[$flag_meta])* pub $flag: $flag_type, )*
        }

        /// The file, as it is written. Every key may be left out.
        #[derive(Clone, Debug, Default, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct File {
            $( pub $top: Option<<$top_type as Flag>::Value>, )*
            $( #[serde(default)] pub $section: $name, )*
            #[serde(default)]
            pub access: Vec<Access>,
            #[serde(default)]
            pub settings: BTreeMap<String, toml::Value>,
        }

        $(
            /// A section of the file.
            #[derive(Clone, Debug, Default, Deserialize)]
            #[serde(deny_unknown_fields)]
            pub struct $name {
                $( pub $key: Option<<$type as Flag>::Value>, )*
            }
        )*

        /// Flags and variables over the file, over the defaults.
        pub struct Given {
            $( pub $top: Said<<$top_type as Flag>::Value>, )*
            $( $( pub $field: Said<<$type as Flag>::Value>, )* )*
        }

        impl Given {
            pub fn of(file: File, flags: &Overrides) -> Given {
                Given {
                    $( $top: Said {
                        key: stringify!($top),
                        value: flags.$top.over(file.$top) $( .or_else(|| Some(Value::of($top_default))) )?,
                    }, )*
                    $( $( $field: Said {
                        key: concat!(stringify!($section), ".", stringify!($key)),
                        value: flags.$field.over(file.$section.$key) $( .or_else(|| Some(Value::of($default))) )?,
                    }, )* )*
                }
            }
        }

        /// The key of each setting, and its default where the table has one.
        #[cfg(test)]
        pub fn keys() -> Vec<(String, Option<String>)> {
            let default = |d: &dyn std::fmt::Debug| format!("{d:?}");
            vec![
                $( (stringify!($top).to_owned(), [$( default(&$top_default) )?].into_iter().next()), )*
                $( $( (
                    concat!(stringify!($section), ".", stringify!($key)).to_owned(),
                    [$( default(&$default) )?].into_iter().next(),
                ), )* )*
            ]
        }
    };
}

settings! {
    top {
        /// Data directory; made and initialised when it is absent
        #[arg(long, value_name = "DIR", env = "CANON_DATA")]
        data: Option<PathBuf>;
        /// Address for PostgreSQL clients
        #[arg(long, value_name = "HOST:PORT", env = "CANON_LISTEN")]
        listen: Option<String> = "127.0.0.1:5432";
        /// Address for /healthz, /readyz, /metrics and /console; none: no HTTP
        #[arg(long, value_name = "HOST:PORT", env = "CANON_HTTP")]
        http: Option<String> = "";
        /// Directory of a Unix socket for PostgreSQL clients
        #[arg(long, value_name = "DIR", env = "CANON_UNIX_SOCKET_DIRECTORY")]
        unix_socket_directory: Option<PathBuf>;
        /// Most client connections
        #[arg(long, value_name = "N", env = "CANON_MAX_CONNECTIONS")]
        max_connections: Option<u32> = 100;
        /// Let users without a password in from other machines
        #[arg(long, env = "CANON_ALLOW_PASSWORDLESS_NETWORK")]
        allow_passwordless_network: bool = false;
        /// Let connections without TLS in from other machines
        #[arg(long, env = "CANON_ALLOW_PLAIN_NETWORK")]
        allow_plain_network: bool = false;
        /// Time that running transactions get at SIGTERM, such as 30s
        #[arg(long, value_name = "TIME", env = "CANON_SHUTDOWN_TIMEOUT")]
        shutdown_timeout: Option<String> = "30s";
        /// Most memory that rows may take, such as 8GB
        #[arg(long, value_name = "SIZE", env = "CANON_MAX_MEMORY")]
        max_memory: Option<String>;
        /// Age at which a snapshot ends, such as 1h
        #[arg(long, value_name = "TIME", env = "CANON_SNAPSHOT_MAX_AGE")]
        snapshot_max_age: Option<String> = "1h";
        /// How hot split values get and lose records: binary, linear or quadratic
        #[arg(long, value_name = "POLICY", env = "CANON_SPLIT_ADJUST")]
        split_adjust: Option<String> = "linear";
        /// What moves between the records of split values in the mode rows: minmax, random, all or none
        #[arg(long, value_name = "POLICY", env = "CANON_SPLIT_BALANCE")]
        split_balance: Option<String> = "minmax";
        /// Which candidates of sites take turns at their primary: rows (none), tables or serial
        #[arg(long, value_name = "HOW", env = "CANON_SITE_CERTIFICATION")]
        site_certification: Option<String> = "rows";
        /// Log written since the last checkpoint that calls for the next, such as 1GB
        #[arg(long, value_name = "SIZE", env = "CANON_CHECKPOINT_BYTES")]
        checkpoint_bytes: Option<String> = "1GB";
        /// Size of a file of the log, such as 64MB
        #[arg(long, value_name = "SIZE", env = "CANON_SEGMENT_BYTES")]
        segment_bytes: Option<String> = "64MB";
        /// Most time that an epoch lasts while there is work, such as 10ms
        #[arg(long, value_name = "TIME", env = "CANON_EPOCH_MAX_DURATION")]
        epoch_max_duration: Option<String> = "10ms";
        /// What this node, and no other, calls itself to others; a proxy looks for it at HOST:PORT; else its host's name and port
        #[arg(long, value_name = "NAME", env = "CANON_NODE_NAME")]
        node_name: Option<String>;
        /// Follow this primary: HOST:PORT, or a connection string with user and password (else PGPASSWORD)
        #[arg(long, value_name = "PRIMARY", env = "CANON_REPLICA_OF")]
        replica_of: Option<String>;
        /// Be a site: a replica that runs changes of rows itself and has its primary certify them
        #[arg(long, env = "CANON_SITE")]
        site: bool = false;
        /// Replicas that must have a commit on disk before it counts as durable
        #[arg(long, value_name = "N", env = "CANON_SYNCHRONOUS_REPLICAS")]
        // Without a default: the members of a cluster agree on another one where nothing is said.
        synchronous_replicas: Option<u32>;
        /// Log kept for replicas that are away, such as 4GB
        #[arg(long, value_name = "SIZE", env = "CANON_WAL_KEEP_BYTES")]
        wal_keep_bytes: Option<String> = "4GB";
        /// Where finished log and checkpoints are copied to, such as file:///backup/canon or s3://bucket/canon
        #[arg(long, value_name = "URL", env = "CANON_ARCHIVE")]
        archive: Option<String> = "";
        /// Checkpoints that stay in the archive: a restore can go back to the oldest
        #[arg(long, value_name = "N", env = "CANON_ARCHIVE_CHECKPOINTS")]
        archive_checkpoints: Option<u32> = 2;
        /// Whether replicas on this host may read what this node has published in shared memory
        #[arg(long, value_name = "BOOL", env = "CANON_SHARED_MEMORY")]
        shared_memory: Option<bool> = true;
        /// error, warn, info, debug or trace, also per module: info,server=debug
        #[arg(long, value_name = "LEVEL", env = "CANON_LOG_LEVEL")]
        log_level: Option<String> = "info";
        /// How logs are written
        #[arg(long, value_name = "FORMAT", env = "CANON_LOG_FORMAT")]
        log_format: Option<LogFormat> = LogFormat::Text;
    }
    section tls Tls {
        /// The server's certificate for TLS, PEM, with those of authorities between it and one that clients know
        #[arg(long, value_name = "FILE", env = "CANON_TLS_CERTIFICATE")]
        certificate => tls_certificate: Option<PathBuf>;
        /// The certificate's private key, PEM; only the server may read it
        #[arg(long, value_name = "FILE", env = "CANON_TLS_KEY")]
        key => tls_key: Option<PathBuf>;
        /// Authorities that sign certificates of clients, PEM
        #[arg(long, value_name = "FILE", env = "CANON_TLS_CLIENT_CA")]
        client_ca => tls_client_ca: Option<PathBuf>;
        /// Authorities that sign certificates of the cluster's nodes, PEM; other nodes must show one for their host then
        #[arg(long, value_name = "FILE", env = "CANON_TLS_CLUSTER_CA")]
        cluster_ca => tls_cluster_ca: Option<PathBuf>;
    }
    section memory Memory {
        /// Most memory that statements, sessions and queues may take together, beside the rows, such as 2GB
        #[arg(long, value_name = "SIZE", env = "CANON_MEMORY_TOTAL")]
        total => memory_total: Option<String>;
    }
    section cluster Cluster {
        /// The cluster's secret, for a node that joins: a copy of CANON_SECRET from the primary's data directory; needed once
        #[arg(long, value_name = "FILE", env = "CANON_CLUSTER_SECRET_FILE")]
        secret_file => cluster_secret_file: Option<PathBuf>;
        /// Join the cluster that the server at this address belongs to: needed once. A cluster agrees by itself which server is the primary
        #[arg(long, value_name = "HOST:PORT", env = "CANON_CLUSTER_JOIN")]
        join => join: Option<String>;
        /// Where other members of the cluster reach this server; else the address that it listens on
        #[arg(long, value_name = "HOST:PORT", env = "CANON_CLUSTER_ADDRESS")]
        address => cluster_address: Option<String>;
    }
    section backup Backup {
        /// How often a base, that is a whole checkpoint, is made in the archive, such as 24h; none: each checkpoint is archived
        #[arg(long, value_name = "TIME", env = "CANON_BACKUP_EVERY")]
        every => backup_every: Option<String> = "";
        /// What is kept there: so many bases, such as 7, or what restores each moment of a time, such as 7d; none: all
        #[arg(long, value_name = "N|TIME", env = "CANON_BACKUP_KEEP")]
        keep => backup_keep: Option<String> = "";
    }
    section replication Replication {
        /// How the log goes to a replica on this host: auto (into a ring in shared memory), message
        #[arg(long, value_name = "HOW", env = "CANON_REPLICATION_RING")]
        ring => replication_ring: Option<String> = "auto";
    }
    section lease Lease {
        /// Whether a primary grants replicas read leases, and replicas ask for them; the same at every server of a cluster
        #[arg(long, env = "CANON_LEASE_READS")]
        reads => lease_reads: bool = false;
        /// A replica whose acknowledgements take longer gets no read lease, such as 1ms
        #[arg(long, value_name = "TIME", env = "CANON_LEASE_MAX_COMMIT_WAIT")]
        max_commit_wait => lease_max_commit_wait: Option<String> = "1ms";
    }
    section failover Failover {
        /// Without synchronous replicas: another server is named by itself if it lacks commits of at most this time; none: no server is
        #[arg(long, value_name = "TIME", env = "CANON_FAILOVER_MAX_LOSS")]
        max_loss => failover_max_loss: Option<String> = "";
        /// How long the primary's lease is, 300ms to 1500ms, the same at every server of a cluster: it holds from the founding on; none: 1500ms
        #[arg(long, value_name = "TIME", env = "CANON_FAILOVER_LEASE")]
        lease => failover_lease: Option<String> = "";
    }
    section replay Replay {
        /// How a replica replays: row, serial, table, transaction, page, transaction-worker
        #[arg(long, value_name = "POLICY", env = "CANON_REPLAY_POLICY")]
        policy => replay_policy: Option<String> = "row";
        /// Threads that install rows at a replica
        #[arg(long, value_name = "N", env = "CANON_REPLAY_WORKERS")]
        workers => replay_workers: Option<u32> = 0;
    }
    section forward Forward {
        /// Clients of a replica that may be in the middle of something at the primary
        #[arg(long, value_name = "N", env = "CANON_FORWARD_CONNECTIONS")]
        connections => forward_connections: Option<u32> = 64;
        /// How long further clients wait for their turn at the primary, such as 30s
        #[arg(long, value_name = "TIME", env = "CANON_FORWARD_WAIT")]
        wait => forward_wait: Option<String> = "30s";
        /// A primary that is not heard for so long is taken for lost, such as 10s
        #[arg(long, value_name = "TIME", env = "CANON_FORWARD_SILENCE")]
        silence => forward_silence: Option<String> = "10s";
    }
    flags {
        /// Configuration file; `canon config` prints one with every key
        #[arg(long, value_name = "FILE", env = "CANON_CONFIG")]
        config: Option<PathBuf>;
        /// The default of a session setting, as in the section [settings]; may be repeated
        #[arg(
            long = "setting",
            value_name = "NAME=VALUE",
            env = "CANON_SETTINGS",
            value_delimiter = ';'
        )]
        settings: Vec<String>;
    }
}
