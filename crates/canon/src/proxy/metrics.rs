//! `/metrics`, `/readyz` and `/healthz` of a proxy.

use super::Proxy;
use crate::http::Probe;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What is counted since the start.
#[derive(Default)]
pub struct Counters {
    pub accepted: AtomicU64,
    pub refused: AtomicU64,
    pub cancels: AtomicU64,
    /// Sessions that went on at another node: asked to, or because theirs was lost.
    pub moves: AtomicU64,
    pub losses: AtomicU64,
    /// Statements that were sent a second time, unseen.
    pub reruns: AtomicU64,
    /// Errors of our own that clients were told.
    pub told: AtomicU64,
}

impl Counters {
    pub fn add(n: &AtomicU64) {
        n.fetch_add(1, Ordering::Relaxed);
    }
}

/// Answers probes for a proxy.
pub struct Page(pub Arc<Proxy>);

impl Probe for Page {
    /// Whether a session would get a node; with a limit, one that is no older.
    fn ready(&self, max_lag: Option<Duration>) -> Result<(), String> {
        if self.0.closing.load(Ordering::SeqCst) {
            return Err("stopping".into());
        }
        let router = self.0.router.lock();
        let fits = |s: &super::route::Seen| {
            s.primary || max_lag.is_none_or(|m| s.age.is_some_and(|a| a <= m))
        };
        match router
            .nodes
            .iter()
            .filter_map(|n| n.seen.as_ref())
            .any(fits)
        {
            true => Ok(()),
            false => Err("no node can be reached".into()),
        }
    }

    fn metrics(&self) -> String {
        let p = &self.0;
        let mut out = String::new();
        let n = |a: &AtomicU64| a.load(Ordering::Relaxed).to_string();
        let c = &p.counters;
        let plain = [
            (
                "canon_proxy_clients",
                "gauge",
                "Clients.",
                p.clients.lock().len().to_string(),
            ),
            (
                "canon_proxy_clients_max",
                "gauge",
                "Most clients.",
                p.options.max_connections.to_string(),
            ),
            (
                "canon_proxy_clients_accepted_total",
                "counter",
                "Clients taken.",
                n(&c.accepted),
            ),
            (
                "canon_proxy_clients_refused_total",
                "counter",
                "Clients refused with 53300.",
                n(&c.refused),
            ),
            (
                "canon_proxy_cancels_total",
                "counter",
                "Cancel requests passed on.",
                n(&c.cancels),
            ),
            (
                "canon_proxy_moves_total",
                "counter",
                "Sessions that went on at another node.",
                n(&c.moves),
            ),
            (
                "canon_proxy_losses_total",
                "counter",
                "Connections to nodes that were lost under a session.",
                n(&c.losses),
            ),
            (
                "canon_proxy_reruns_total",
                "counter",
                "Statements sent to a second node, unseen by the client.",
                n(&c.reruns),
            ),
            (
                "canon_proxy_errors_total",
                "counter",
                "Errors of its own that clients were told.",
                n(&c.told),
            ),
        ];
        for (name, kind, help, v) in plain {
            _ = writeln!(
                out,
                "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {v}"
            );
        }
        let router = p.router.lock();
        let primary = router.primary();
        let mut rows = |name: &str, help: &str, value: &dyn Fn(usize) -> Option<String>| {
            _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} gauge");
            for (id, node) in router
                .nodes
                .iter()
                .enumerate()
                .filter(|(_, n)| !n.forgotten)
            {
                if let Some(v) = value(id) {
                    _ = writeln!(out, "{name}{{node=\"{}\"}} {v}", node.address);
                }
            }
        };
        let nodes = &router.nodes;
        let flag = |b: bool| Some(u8::from(b).to_string());
        rows("canon_proxy_node_up", "Whether the node answers.", &|i| {
            flag(nodes[i].seen.is_some())
        });
        rows(
            "canon_proxy_node_primary",
            "Whether it is the primary.",
            &|i| flag(Some(i) == primary),
        );
        rows(
            "canon_proxy_node_sessions",
            "Sessions of this proxy there.",
            &|i| Some(nodes[i].sessions.to_string()),
        );
        rows(
            "canon_proxy_node_lag_seconds",
            "How old what it shows is.",
            &|i| Some(format!("{:.6}", nodes[i].seen?.age?.as_secs_f64())),
        );
        out
    }
}
