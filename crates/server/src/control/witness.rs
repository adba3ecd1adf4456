//! `canon witness`: a member that votes and has no data, for people with two machines. With it two servers have the three votes that a fail-over needs.
//!
//! ```text
//! DIR/CANON_SECRET    the cluster's secret
//! DIR/control         as at a server: the witness's number, and what the members agree on
//! DIR/control/CLUSTER the cluster that it is of: the first that it has met. Members of others are refused
//! ```
//! Its listeners take connections of members only. Clients are told 57P03, so that libpq goes on to the next host.
//!
//! It runs in a process of its own, or in the one of a proxy ([`Beside`]).
//!
//! Left out on purpose: one witness for several clusters.

use super::Seat;
use super::joining::join;
use crate::config::{Config, Overrides};
use crate::connections::waiting::{Door, WaitingRoom};
use crate::console::Pages;
use crate::metrics::Metrics;
use crate::replication::{Membership, Primary};
use crate::start::{bind, refuse_plain_network, say_certificates, start_logging};
use ::cluster::Kind;
use base::{Error, Result, SqlState};
use clap::{Args, FromArgMatches};
use env::Env;
use service::{http, runtime, stop_signal, system};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tracing::{error, info};

/// See the head of the file.
const CLUSTER: &str = "CLUSTER";

/// What a witness takes of the settings of `canon start`.
const TAKEN: [&str; 15] = [
    "data",
    "listen",
    "http",
    "config",
    "join",
    "cluster_address",
    "cluster_secret_file",
    "failover_lease",
    "node_name",
    "allow_plain_network",
    "tls_certificate",
    "tls_key",
    "tls_cluster_ca",
    "log_level",
    "log_format",
];

fn is_taken(id: &clap::Id) -> bool {
    TAKEN.contains(&id.as_str())
}

/// What `canon witness` is told: settings of `canon start`. The others may stand in the configuration file and in variables, where they mean nothing to a
/// witness. As flags they are refused.
#[derive(Clone, Debug)]
pub struct WitnessOptions(Overrides);

impl Args for WitnessOptions {
    fn augment_args(command: clap::Command) -> clap::Command {
        let all = Overrides::augment_args(command);
        all.mut_args(|a| match is_taken(a.get_id()) {
            true => a,
            false => a.hide(true),
        })
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        WitnessOptions::augment_args(command)
    }
}

impl FromArgMatches for WitnessOptions {
    fn from_arg_matches(matches: &clap::ArgMatches) -> std::result::Result<Self, clap::Error> {
        let all = Overrides::augment_args(clap::Command::new("start"));
        let given = |id: &clap::Id| {
            let from = matches.value_source(id.as_str());
            !is_taken(id) && from == Some(clap::parser::ValueSource::CommandLine)
        };
        if let Some(of_servers) = all.get_arguments().find(|a| given(a.get_id())) {
            let flag = of_servers.get_long().unwrap_or_default();
            let what = format!("--{flag} means nothing to a witness, which has no data\n");
            return Err(clap::Error::raw(
                clap::error::ErrorKind::UnknownArgument,
                what,
            ));
        }
        Overrides::from_arg_matches(matches).map(WitnessOptions)
    }

    fn update_from_arg_matches(
        &mut self,
        matches: &clap::ArgMatches,
    ) -> std::result::Result<(), clap::Error> {
        *self = WitnessOptions::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Runs a witness until it is told to stop, or has left its cluster.
pub fn run(options: &WitnessOptions) -> Result<()> {
    let config = Config::load(&options.0)?;
    start_logging(&config);
    let runtime = runtime()?;
    runtime.block_on(async {
        let witness = Witness::begin(&config).await?;
        let done = tokio::select! {
            name = stop_signal() => {
                info!(signal = name?, "stopping");
                Ok(())
            }
            done = witness.ended() => done,
        };
        witness.stop().await;
        done
    })?;
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

/// What another program of this house says of the witness that runs in its process.
#[derive(Clone, Debug)]
pub struct Beside {
    pub data: PathBuf,
    pub listen: String,
    /// A server of the cluster.
    pub join: String,
    pub secret_file: Option<PathBuf>,
    /// Certificate and key.
    pub tls: Option<(PathBuf, PathBuf)>,
    pub tls_cluster_ca: Option<PathBuf>,
    pub allow_plain_network: bool,
}

impl Beside {
    /// The same as a configuration. Variables and files of servers say nothing here.
    pub fn config(self) -> Result<Config> {
        let (certificate, key) = self.tls.unzip();
        Config::load(&Overrides {
            data: Some(self.data),
            listen: Some(self.listen),
            join: Some(self.join),
            cluster_secret_file: self.secret_file,
            tls_certificate: certificate,
            tls_key: key,
            tls_cluster_ca: self.tls_cluster_ca,
            allow_plain_network: self.allow_plain_network,
            ..Overrides::default()
        })
    }
}

/// A witness that runs.
pub struct Witness {
    seat: Arc<Seat>,
    room: WaitingRoom,
    metrics: Arc<Metrics>,
    _lock: env::DirLock,
}

impl Witness {
    /// Starts one. Call inside of a runtime with several threads.
    pub async fn begin(config: &Config) -> Result<Witness> {
        if config.replica_of.is_some() {
            let what = "a witness has no data and follows no server: leave replica_of out";
            return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, what));
        }
        refuse_plain_network(config)?;
        let env = Env::os();
        let io = |e: std::io::Error| system(format!("{}: {e}", config.data.display()));
        let lock = tokio::task::block_in_place(|| {
            env.disk.create_dir_all(&config.data)?;
            let lock = env.disk.lock_dir(&config.data)?;
            env.disk.make_private(&config.data).map(|_| lock)
        })
        .map_err(io)?;
        let seat = Seat::open_as(config, Kind::Witness).await?;
        // As of a node that is given a copy of the secret: a witness makes none up.
        let joining = seat.named(Some(door_to(&seat)?));
        let noted = seat.dir.join(CLUSTER);
        let membership = Arc::new(Membership::of(&joining, &env)?.notes(noted)?);
        tokio::task::block_in_place(|| membership.keep(&config.data))?;
        _ = seat.membership.set(membership.clone());
        let metrics = Arc::new(Metrics::default());
        let pages = Arc::new(Pages::new(metrics.clone(), config.entrance.clone()));
        for address in &config.http {
            tokio::spawn(http::serve(bind(address).await?, pages.clone()));
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
        Ok(Witness {
            seat,
            room,
            metrics,
            _lock: lock,
        })
    }

    /// Ready when it is to stop: it has left its cluster, or cannot go on, and why.
    pub async fn ended(&self) -> Result<()> {
        tokio::select! {
            () = self.seat.left() => {
                info!("this witness has left its cluster; stopping");
                Ok(())
            }
            e = self.seat.ended() => {
                error!("{}; stopping", e.fields().message);
                Err(e)
            }
        }
    }

    /// Ends it.
    pub async fn stop(self) {
        self.metrics.phase.stopping();
        drop(self.room.close().await);
        self.seat.stop().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> std::result::Result<WitnessOptions, clap::Error> {
        let command = WitnessOptions::augment_args(clap::Command::new("witness"));
        let all = ["witness"].iter().chain(arguments);
        WitnessOptions::from_arg_matches(&command.try_get_matches_from(all)?)
    }

    #[test]
    fn a_witness_takes_settings_of_a_server_but_none_about_data() {
        let options = parse(&["--data", "/w", "--join", "a:5432"]).expect("its own");
        assert_eq!(options.0.join.as_deref(), Some("a:5432"));
        let refused = parse(&["--data", "/w", "--max-memory", "1GB"]).expect_err("of servers");
        assert!(refused.to_string().contains("--max-memory"), "{refused}");
        let all = Overrides::augment_args(clap::Command::new("start"));
        for name in TAKEN {
            assert!(all.get_arguments().any(|a| a.get_id() == name), "{name}");
        }
    }
}
