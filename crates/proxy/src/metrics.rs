//! `/metrics`, `/readyz` and `/healthz` of a proxy.

use super::route::Seen;
use super::shared::Proxy;
use service::http::Probe;
use service::page::Page;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Answers probes for a proxy.
pub struct State(pub Arc<Proxy>);

impl Probe for State {
    /// Whether a session would get a node; with a limit, one that is no older.
    fn ready(&self, max_lag: Option<Duration>) -> Result<(), String> {
        if self.0.closing.load(Ordering::SeqCst) {
            return Err("stopping".into());
        }
        let router = self.0.router.lock();
        let fits = |s: &Seen| s.primary || max_lag.is_none_or(|m| s.age.is_some_and(|a| a <= m));
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
        let mut out = Page::default();
        clients(p, &mut out);
        nodes(p, &mut out);
        out.0
    }
}

fn clients(p: &Proxy, out: &mut Page) {
    let now = p.clients.lock().len();
    out.gauge("canon_proxy_clients", "Clients.", now);
    let most = p.options.max_connections;
    out.gauge("canon_proxy_clients_max", "Most clients.", most);
    let c = &p.counters;
    for (name, help, n) in [
        ("clients_accepted", "Clients taken.", &c.accepted),
        ("clients_refused", "Clients refused with 53300.", &c.refused),
        ("cancels", "Cancel requests passed on.", &c.cancels),
        ("moves", "Sessions that went on at another node.", &c.moves),
        (
            "losses",
            "Connections to nodes that were lost under a session.",
            &c.losses,
        ),
        (
            "reruns",
            "Statements sent to a second node, unseen by the client.",
            &c.reruns,
        ),
        (
            "errors",
            "Errors of its own that clients were told.",
            &c.told,
        ),
    ] {
        let name = format!("canon_proxy_{name}_total");
        out.counter(&name, help, n.load(Ordering::Relaxed));
    }
}

fn nodes(p: &Proxy, out: &mut Page) {
    let router = p.router.lock();
    let primary = router.primary();
    let known = || {
        let all = router.nodes.iter().enumerate();
        all.filter(|(_, n)| !n.forgotten)
    };
    out.gauges(
        "canon_proxy_node_up",
        "Whether the node answers.",
        "node",
        known().map(|(_, n)| (&n.address, u8::from(n.seen.is_some()))),
    );
    out.gauges(
        "canon_proxy_node_primary",
        "Whether it is the primary.",
        "node",
        known().map(|(i, n)| (&n.address, u8::from(Some(i) == primary))),
    );
    out.gauges(
        "canon_proxy_node_sessions",
        "Sessions of this proxy there.",
        "node",
        known().map(|(_, n)| (&n.address, n.sessions)),
    );
    let age = |s: &Seen| s.age.map(|a| format!("{:.6}", a.as_secs_f64()));
    out.gauges(
        "canon_proxy_node_lag_seconds",
        "How old what it shows is.",
        "node",
        known().filter_map(|(_, n)| Some((&n.address, age(n.seen.as_ref()?)?))),
    );
}
