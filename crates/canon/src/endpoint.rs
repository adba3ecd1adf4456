//! `canon proxy`, with a witness in its process where one is asked for.
//!
//! A proxy stands on a machine of its own, beside the servers. That is the third machine that a cluster of two servers needs for its third vote. The witness keeps what
//! it has voted in a directory, and members reach it at an address of its own.
//!
//! **The proxy goes on without its witness.** A witness that has left its cluster, or whose disk takes no writes, stops alone: clients are served as before, and
//! `canon status` at a server says that its vote is missing.
//!
//! Left out on purpose: an HTTP port of the witness. Each server knows what it votes.

use base::Result;
use server::control::witness::{Beside, Witness};
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::oneshot;

/// What `canon proxy` is told.
#[derive(Clone, Debug, clap::Args)]
pub struct Endpoint {
    #[command(flatten)]
    proxy: proxy::Options,
    /// Vote in the cluster of the nodes, too, as canon witness does: the directory of that witness
    #[arg(
        long,
        value_name = "DIR",
        env = "CANON_PROXY_WITNESS",
        requires = "witness_listen"
    )]
    witness: Option<PathBuf>,
    /// Address at which servers reach the witness
    #[arg(
        long,
        value_name = "HOST:PORT",
        env = "CANON_PROXY_WITNESS_LISTEN",
        requires = "witness"
    )]
    witness_listen: Option<String>,
    /// A server of the cluster that the witness joins; else the first of the nodes
    #[arg(
        long,
        value_name = "HOST:PORT",
        env = "CANON_PROXY_JOIN",
        requires = "witness"
    )]
    join: Option<String>,
}

impl Endpoint {
    fn witness(&self) -> Option<Beside> {
        let (data, listen) = (self.witness.clone()?, self.witness_listen.clone()?);
        let of = &self.proxy;
        Some(Beside {
            data,
            listen,
            join: self.join.clone().or_else(|| of.nodes.first().cloned())?,
            secret_file: of.cluster_secret_file.clone(),
            tls: of.tls_certificate.clone().zip(of.tls_key.clone()),
            tls_cluster_ca: of.tls_cluster_ca.clone(),
            allow_plain_network: of.allow_plain_network,
        })
    }
}

/// Runs a proxy until it is told to stop.
pub fn run(options: Endpoint) -> Result<()> {
    proxy::prepare(&options.proxy);
    let witness = options.witness().map(Beside::config).transpose()?;
    let runtime = service::runtime()?;
    runtime.block_on(async {
        let (stop, stopped) = oneshot::channel::<()>();
        let votes = match &witness {
            Some(config) => {
                let witness = Witness::begin(config).await?;
                Some(tokio::spawn(async move {
                    tokio::select! {
                        // Its log says why.
                        _ = witness.ended() => {}
                        _ = stopped => {}
                    }
                    witness.stop().await;
                }))
            }
            None => None,
        };
        let done = proxy::serve(options.proxy).await;
        drop(stop);
        if let Some(votes) = votes {
            _ = votes.await;
        }
        done
    })?;
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(())
}
