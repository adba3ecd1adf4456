//! `canon witness`: a member that votes and has no data, for people with two machines. With it two servers have the three votes that a fail-over needs.
//!
//! ```text
//! DIR/CANON_SECRET    the cluster's secret
//! DIR/control         as at a server: the witness's number, and what the members agree on
//! ```
//! Its listeners take connections of members only. Clients are told 57P03, so that libpq goes on to the next host.
//!
//! Left out on purpose: a witness inside of the proxy, and one witness for several clusters.

use super::Seat;
use super::joining::join;
use crate::config::{Config, Overrides};
use crate::gate::waiting::{Door, WaitingRoom};
use crate::metrics::Metrics;
use crate::replication::{Membership, Primary};
use crate::start::{bind, refuse_plain_network, say_certificates, start_logging};
use ::cluster::Kind;
use base::{Error, Result, SqlState};
use env::Env;
use service::{http, runtime, stop_signal, system};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tracing::{error, info};

/// What `canon witness` is told.
#[derive(clap::Args)]
pub struct WitnessOptions {
    /// Directory of the witness; made when it is absent
    #[arg(long, value_name = "DIR", env = "CANON_DATA")]
    data: Option<PathBuf>,
    /// Address for the other members
    #[arg(long, value_name = "HOST:PORT", env = "CANON_LISTEN")]
    listen: Option<String>,
    /// Address for /healthz, /readyz and /metrics; none: no HTTP
    #[arg(long, value_name = "HOST:PORT", env = "CANON_HTTP")]
    http: Option<String>,
    /// Configuration file, as a server's
    #[arg(long, value_name = "FILE", env = "CANON_CONFIG")]
    config: Option<PathBuf>,
    /// Join the cluster that the server at this address belongs to: needed once
    #[arg(long, value_name = "HOST:PORT", env = "CANON_CLUSTER_JOIN")]
    join: Option<String>,
    /// Where other members reach this witness; else the address that it listens on
    #[arg(long, value_name = "HOST:PORT", env = "CANON_CLUSTER_ADDRESS")]
    cluster_address: Option<String>,
    /// What this member, and no other, is called; else its host's name and port
    #[arg(long, value_name = "NAME", env = "CANON_NODE_NAME")]
    node_name: Option<String>,
    /// A copy of CANON_SECRET from a server's data directory; needed once
    #[arg(long, value_name = "FILE", env = "CANON_CLUSTER_SECRET_FILE")]
    cluster_secret_file: Option<PathBuf>,
    /// Let connections without TLS in from other machines
    #[arg(long, env = "CANON_ALLOW_PLAIN_NETWORK")]
    allow_plain_network: bool,
    /// The witness's certificate for TLS, PEM, with those of authorities between it and one that the members know
    #[arg(long, value_name = "FILE", env = "CANON_TLS_CERTIFICATE")]
    tls_certificate: Option<PathBuf>,
    /// The certificate's private key, PEM; only the witness may read it
    #[arg(long, value_name = "FILE", env = "CANON_TLS_KEY")]
    tls_key: Option<PathBuf>,
    /// Authorities that sign certificates of the cluster's nodes, PEM
    #[arg(long, value_name = "FILE", env = "CANON_TLS_CLUSTER_CA")]
    tls_cluster_ca: Option<PathBuf>,
    /// error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL", env = "CANON_LOG_LEVEL")]
    log_level: Option<String>,
}

impl WitnessOptions {
    fn config(&self) -> Result<Config> {
        Config::load(&Overrides {
            data: self.data.clone(),
            listen: self.listen.clone(),
            http: self.http.clone(),
            config: self.config.clone(),
            join: self.join.clone(),
            cluster_address: self.cluster_address.clone(),
            node_name: self.node_name.clone(),
            cluster_secret_file: self.cluster_secret_file.clone(),
            allow_plain_network: self.allow_plain_network,
            tls_certificate: self.tls_certificate.clone(),
            tls_key: self.tls_key.clone(),
            tls_cluster_ca: self.tls_cluster_ca.clone(),
            log_level: self.log_level.clone(),
            ..Overrides::default()
        })
    }
}

/// Runs a witness until it is told to stop, or has left its cluster.
pub fn run(options: &WitnessOptions) -> Result<()> {
    let config = options.config()?;
    start_logging(&config);
    if config.replica_of.is_some() {
        let what = "a witness has no data and follows no server: leave replica_of out";
        return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, what));
    }
    let runtime = runtime()?;
    runtime.block_on(serve(&config))?;
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(())
}

/// A server of the cluster, for a witness that belongs to none yet.
fn door_to(seat: &Seat) -> Result<Primary> {
    let at = seat.asked_to_join().ok_or_else(|| {
        let what = "this witness belongs to no cluster yet";
        Error::new(SqlState::INVALID_PARAMETER_VALUE, what)
            .hint("Say which one: --join HOST:PORT of any of its servers.")
    })?;
    Primary::parse(&at).map_err(|why| Error::new(SqlState::INVALID_PARAMETER_VALUE, why))
}

async fn serve(config: &Config) -> Result<()> {
    refuse_plain_network(config)?;
    let env = Env::os();
    let io = |e: std::io::Error| system(format!("{}: {e}", config.data.display()));
    let _lock = tokio::task::block_in_place(|| {
        env.disk.create_dir_all(&config.data)?;
        let lock = env.disk.lock_dir(&config.data)?;
        env.disk.make_private(&config.data).map(|_| lock)
    })
    .map_err(io)?;
    let seat = Seat::open_as(config, Kind::Witness).await?;
    // As of a node that is given a copy of the secret: a witness makes none up.
    let joining = seat.named(Some(door_to(&seat)?));
    let membership = Arc::new(Membership::of(&joining, &env)?);
    tokio::task::block_in_place(|| membership.keep(&config.data))?;
    _ = seat.membership.set(membership.clone());
    let metrics = Arc::new(Metrics::default());
    for address in &config.http {
        tokio::spawn(http::serve(bind(address).await?, metrics.clone()));
    }
    let mut listeners = Vec::new();
    for address in &config.listen {
        listeners.push(bind(address).await?);
    }
    let tls = config.entrance.tls.clone();
    if let Some(tls) = &tls {
        tokio::spawn(tls.clone().keep(say_certificates));
    }
    let why = "this is a witness: it votes and has no data".to_owned();
    let door = Door {
        membership,
        members: seat.clone(),
    };
    let room = WaitingRoom::with_door(listeners, why, door, tls);
    _ = metrics.witness.set(seat.clone());
    metrics.phase.serving();
    info!(version = env!("CARGO_PKG_VERSION"), directory = %config.data.display(), "a witness is ready");
    let joins = seat.clone();
    tokio::spawn(async move { join(&joins).await });
    let done = tokio::select! {
        name = stop_signal() => {
            info!(signal = name?, "stopping");
            Ok(())
        }
        () = seat.left() => {
            info!("this witness has left its cluster; stopping");
            Ok(())
        }
        e = seat.ended() => {
            error!("{}; stopping", e.fields().message);
            Err(e)
        }
    };
    metrics.phase.stopping();
    drop(room.close().await);
    seat.stop().await;
    done
}
