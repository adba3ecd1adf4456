//! Asks one node how it is, again and again, over a connection of the proxy's own role.
//!
//! A primary also tells which replicas follow it. Those that have proven to it that they are of the cluster are nodes, too; what else reads
//! its log is not. A replica whose name is HOST:PORT, as it is by default, is at
//! that address. Where the name of the host means nothing here, it is at the address that the primary sees it come from. Any other is where
//! it says that it listens. One that is known at either address already is that one.

use super::route::{Event, NodeId, Seen};
use super::shared::Proxy;
use base::{MAX_TERM, Result};
use protocol::startup::REPORT_SETTINGS;
use protocol::{Conninfo, Link};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch::Receiver;
use tracing::{info, warn};

/// What a node must answer within.
const LIMIT: Duration = Duration::from_secs(2);

/// What lies at least between two questions.
const LEAST: Duration = Duration::from_millis(30);

const STANDING: &str = "SELECT pg_is_in_recovery(),
    (SELECT received_tli FROM pg_stat_wal_receiver WHERE status = 'streaming'),
    extract(epoch FROM clock_timestamp() - pg_last_xact_replay_timestamp())";
const FOLLOWERS: &str = "SELECT application_name, client_addr, canon_listen
    FROM pg_stat_replication WHERE canon_member";

/// Runs until it is aborted.
pub async fn watch(proxy: Arc<Proxy>, id: NodeId) {
    let (mut up, mut ask) = (None, proxy.ask.subscribe());
    loop {
        let why = match follow(&proxy, id, &mut up, &mut ask).await {
            Ok(()) => {
                tracing::debug!(node = %proxy.node(id), "its role or its term has changed");
                continue;
            }
            Err(e) => {
                proxy.failed(id, &e);
                let why = format!("{} {}", e.code(), e.fields().message);
                if up != Some(false) {
                    warn!(node = %proxy.node(id), "does not answer: {why}");
                }
                up = Some(false);
                why
            }
        };
        tracing::debug!(node = %proxy.node(id), why, "asking anew");
        pause(&proxy, &mut ask).await;
    }
}

/// One connection, until it fails or the node has another role or follows in another term: that is told at the start.
async fn follow(
    proxy: &Arc<Proxy>,
    id: NodeId,
    up: &mut Option<bool>,
    ask: &mut Receiver<()>,
) -> Result<()> {
    let node = proxy.node(id);
    let parameters = [
        ("application_name", "canon proxy"),
        (REPORT_SETTINGS, "on"),
        ("canon.read_consistency", "eventual"),
    ];
    let mut link = proxy.connect(&node, &parameters).await?;
    let term = link.parameters.iter().find(|p| p.0 == "canon.term");
    let term = term.and_then(|t| t.1.parse().ok());
    // What says a term that none can be knows of none.
    let term = term.filter(|t| *t <= MAX_TERM).unwrap_or(0);
    // What a replica says of the term that it hears is 32 bits of it.
    let sign = (term as i32).to_string();
    let (mut was, mut told) = (None, Vec::new());
    loop {
        let (seen, heard) = limited(standing(&mut link, term)).await?;
        if was.is_some_and(|w| w != seen.primary) {
            return Ok(());
        }
        if *up != Some(true) || was.is_none() {
            let role = if seen.primary { "primary" } else { "replica" };
            info!(%node, role, term = seen.term, "answers");
        }
        (*up, was) = (Some(true), Some(seen.primary));
        proxy.event(Event::Seen(id, seen));
        if seen.primary {
            for (name, addresses) in limited(followers(&mut link)).await? {
                let Some(address) = proxy.router.lock().known(&addresses) else {
                    if !told.contains(&name) {
                        warn!(%node, name, "a replica does not say where it is: only --nodes can");
                        told.push(name);
                    }
                    continue;
                };
                proxy.event(Event::Found {
                    address,
                    configured: false,
                });
            }
        }
        pause(proxy, ask).await;
        if heard.is_some_and(|h| h != sign) {
            return Ok(());
        }
    }
}

/// Up to the next question: the interval, or less when something has happened.
async fn pause(proxy: &Proxy, ask: &mut Receiver<()>) {
    let all = proxy.options.check_interval;
    tokio::time::sleep(LEAST.min(all)).await;
    _ = tokio::time::timeout(all.saturating_sub(LEAST), ask.changed()).await;
}

async fn limited<T>(f: impl Future<Output = Result<T>>) -> Result<T> {
    let late = |_| service::system("no answer in time");
    tokio::time::timeout(LIMIT, f).await.map_err(late)?
}

/// How it is, and a sign of the term of the primary that it hears.
async fn standing(link: &mut Link, term: u64) -> Result<(Seen, Option<String>)> {
    let rows = link.query(STANDING).await?;
    let field = |i: usize| rows.first().and_then(|r| r.get(i).cloned()).flatten();
    let primary = field(0).as_deref() == Some("f");
    let heard = field(1);
    let age: Option<f64> = field(2).and_then(|s| s.parse().ok());
    let age = match primary {
        true => Some(Duration::ZERO),
        // Without its primary a replica is as old as one can be.
        false => (age.filter(|_| heard.is_some())).map(|s| Duration::from_secs_f64(s.max(0.0))),
    };
    Ok((Seen { primary, term, age }, heard))
}

/// The names of those that follow it, with the addresses at which they may be, the best one first.
async fn followers(link: &mut Link) -> Result<Vec<(String, Vec<String>)>> {
    let mut found = Vec::new();
    for row in link.query(FOLLOWERS).await? {
        let mut fields = row.into_iter();
        let mut next = || fields.next().flatten();
        let (name, from, listens) = (next().unwrap_or_default(), next(), next());
        let mut all: Vec<String> = address(&name, from.as_deref()).await.into_iter().collect();
        all.extend(listens);
        found.push((name, all));
    }
    Ok(found)
}

/// Where a replica of this name is, if its name says so.
async fn address(name: &str, from: Option<&str>) -> Option<String> {
    let p = Conninfo::parse(name).ok()?;
    if !name.contains(':') || name.contains('=') {
        return None;
    }
    let known = tokio::net::lookup_host((p.host.as_str(), p.port)).await;
    match (known.is_ok_and(|mut a| a.next().is_some()), from) {
        (true, _) => Some(name.to_owned()),
        (false, Some(from)) if from.contains(':') => Some(format!("[{from}]:{}", p.port)),
        (false, Some(from)) => Some(format!("{from}:{}", p.port)),
        (false, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn replicas_are_found_by_names_that_are_addresses() {
        for (name, from, wanted) in [
            ("127.0.0.1:7001", Some("10.0.0.9"), Some("127.0.0.1:7001")),
            (
                "no-such-host.invalid:7001",
                Some("10.0.0.9"),
                Some("10.0.0.9:7001"),
            ),
            ("no-such-host.invalid:7001", Some("::1"), Some("[::1]:7001")),
            ("no-such-host.invalid:7001", None, None),
            ("reports", Some("10.0.0.9"), None),
        ] {
            assert_eq!(address(name, from).await.as_deref(), wanted, "{name}");
        }
    }
}
