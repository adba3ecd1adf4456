//! What the console draws, as JSON: counters since the start, and the newest of what has names.
//!
//! ```text
//! Place, Connections, TxnManager ── collect ──▶ Data ── serde ──▶ /console/data
//! ```
//! Counters are raw. The page asks again and again, and makes rates of the differences. `at` tells when each was read. Positions are texts, since a number
//! of JavaScript does not hold 64 bits. Names, keys and statements are data: the page puts them into the document as text and never as markup.
//!
//! | list | most | order |
//! |---|---|---|
//! | members, replicas | [`NODES`] | as known |
//! | sessions | [`SESSIONS`] | the longest statement first, then the longest transaction. Idle ones are counted only |
//! | a statement, a name | [`TEXT`] characters | cut |
//! | contended rows, lost races | `txn::races` | most events first; the newest first |
//! | split values | [`SPLITS`] of the watched ones | the most contended first |
//!
//! Left out on purpose: other nodes' sessions; statements that have ended, which nothing keeps.

use crate::connections::Connections;
use crate::metrics::Metrics;
use crate::replication::members::Together;
use crate::replication::{Place, ReplicaLag};
use base::Value;
use embedded::engine::{ClusterView, NodeEngine};
use serde::Serialize;
use service::http::Probe;
use sql::session::Waits;
use std::sync::atomic::{AtomicU64, Ordering};
use txn::{Cause, ContendedRow, Outcome, Race, SplitValue};

/// Most members, and most replicas.
const NODES: usize = 64;
/// Most sessions.
const SESSIONS: usize = 20;
/// Most split values.
const SPLITS: usize = 20;
/// Most characters of a statement, a name or a key.
const TEXT: usize = 400;

/// See the head of the file.
#[derive(Serialize)]
pub struct Data {
    /// Microseconds since the process began.
    at: u64,
    version: &'static str,
    /// Why it does not serve; none: it does.
    obstacle: Option<String>,
    uptime: u64,
    node: Option<NodeSeen>,
    cluster: Option<ClusterSeen>,
    counters: Option<Counters>,
    aborts: Vec<(&'static str, u64)>,
    deltas: Vec<(&'static str, u64)>,
    gauges: Option<Gauges>,
    sessions: Vec<SessionSeen>,
    /// Sessions by state.
    states: Vec<(&'static str, usize)>,
    /// Whether keys and totals are shown.
    keys: bool,
    rows: Vec<RowSeen>,
    races: Vec<RaceSeen>,
    splits: Vec<SplitSeen>,
    /// Split values that are watched.
    watched: usize,
    archive: Option<Archive>,
    site: Option<SiteSeen>,
}

#[derive(Serialize)]
struct NodeSeen {
    name: String,
    role: &'static str,
    term: u64,
    published: String,
    /// Replicas that a durable commit waits for.
    synchronous: usize,
    primary: Option<Neighbour>,
    replicas: Vec<Neighbour>,
    set_aside: u64,
}

/// A primary or a replica, as this node sees it.
#[derive(Serialize)]
struct Neighbour {
    name: String,
    address: Option<String>,
    state: &'static str,
    connected: bool,
    seconds: Option<f64>,
    epochs: Option<u64>,
}

#[derive(Serialize)]
struct ClusterSeen {
    members: Vec<Member>,
    wanted: usize,
    settings: Vec<String>,
    promised: usize,
    degraded: bool,
    lease: Option<f64>,
    /// Why no other node is named if the primary is lost.
    obstacle: Option<String>,
}

#[derive(Serialize)]
struct Member {
    name: String,
    role: &'static str,
    votes: bool,
    decides: bool,
}

#[derive(Serialize)]
struct Counters {
    statements: u64,
    committed: u64,
    rolled_back: u64,
    commits: u64,
    retries: u64,
    restarts: u64,
    serialization_failures: u64,
    deadlocks: u64,
    lock_waits: u64,
    lock_wait_micros: u64,
    commit_waits: u64,
    commit_wait_micros: u64,
    forwarded: u64,
    flushes: u64,
    flush_nanos: u64,
    log_bytes: u64,
    checkpoints: u64,
}

#[derive(Serialize)]
struct Gauges {
    connections: usize,
    connections_max: u32,
    rows_bytes: u64,
    rows_limit: u64,
    rest_bytes: u64,
    rest_limit: u64,
    disk_full: bool,
}

#[derive(Serialize)]
struct SessionSeen {
    pid: i32,
    role: String,
    application: String,
    client: Option<String>,
    state: &'static str,
    waits: Option<String>,
    /// Microseconds since the statement began, and since the transaction did.
    statement: Option<i64>,
    transaction: Option<i64>,
    /// When the statement began, microseconds since 1970: with the pid it names the statement.
    began: Option<i64>,
    query: String,
}

#[derive(Serialize)]
struct RowSeen {
    table: String,
    key: Option<String>,
    waits: u64,
    lost: u64,
}

#[derive(Serialize)]
struct RaceSeen {
    number: u64,
    table: String,
    key: Option<String>,
    loser: u64,
    winner: String,
}

#[derive(Serialize)]
struct SplitSeen {
    table: String,
    column: String,
    key: Option<String>,
    total: Option<String>,
    records: u32,
    mode: &'static str,
    heat: f64,
}

#[derive(Serialize)]
struct Archive {
    waiting_bytes: u64,
    segments: u64,
    failures: u64,
    backups: Option<BackupsSeen>,
}

/// A schedule of backups. Times are seconds since 1970.
#[derive(Serialize)]
struct BackupsSeen {
    bases: usize,
    newest: Option<u64>,
    since: Option<u64>,
    /// Bytes so far of the one that is being made.
    under_way: Option<u64>,
    failures: u64,
    failed: Option<String>,
}

#[derive(Serialize)]
struct SiteSeen {
    committed: u64,
    refused: u64,
    repeated: u64,
    pending: usize,
    waited_nanos: u64,
}

fn n(a: &AtomicU64) -> u64 {
    a.load(Ordering::Relaxed)
}

/// Microseconds from 1970 to 2000, where SQL's times begin.
const EPOCH: i64 = 946_684_800_000_000;

/// A number as psql shows it.
fn number(v: &Value) -> String {
    match (v, v.as_i64()) {
        (_, Some(n)) => n.to_string(),
        (Value::Numeric(n), None) => n.to_string(),
        (other, None) => format!("{other:?}"),
    }
}

/// A text that is not too long.
fn cut(text: &str) -> String {
    match text.char_indices().nth(TEXT) {
        Some((at, _)) => format!("{} …", &text[..at]),
        None => text.to_owned(),
    }
}

/// Everything, with keys and totals or without.
pub fn collect(metrics: &Metrics, keys: bool) -> Data {
    let uptime = metrics.uptime();
    let mut data = Data {
        at: uptime.as_micros() as u64,
        version: env!("CARGO_PKG_VERSION"),
        obstacle: metrics.ready(None).err(),
        uptime: uptime.as_secs(),
        node: None,
        cluster: None,
        counters: None,
        aborts: vec![],
        deltas: vec![],
        gauges: None,
        sessions: vec![],
        states: vec![],
        keys,
        rows: vec![],
        races: vec![],
        splits: vec![],
        watched: 0,
        archive: None,
        site: None,
    };
    let Some((place, connections)) = metrics.source.get() else {
        let witness = metrics.witness.get().and_then(|w| w.together());
        data.cluster = witness.map(cluster);
        return data;
    };
    data.node = Some(node(place));
    data.cluster = place.senders.together().map(cluster);
    data.counters = Some(counters(place, connections));
    data.gauges = Some(gauges(place, connections));
    sessions(&mut data, connections);
    contention(&mut data, place);
    data.archive = place.senders.archive.as_ref().map(|a| Archive {
        waiting_bytes: a.waiting(),
        segments: a.copied(),
        failures: a.failures(),
        backups: a
            .backups
            .as_ref()
            .and_then(|b| b.seen())
            .map(|b| BackupsSeen {
                bases: b.bases,
                newest: b.newest.map(|t| t / 1_000_000),
                since: b.since.map(|t| t / 1_000_000),
                under_way: b.under_way,
                failures: b.failures,
                failed: b.failed.as_deref().map(cut),
            }),
    });
    data.site = place.site.as_ref().map(|site| SiteSeen {
        committed: n(&site.stats.committed),
        refused: n(&site.stats.refused),
        repeated: n(&site.stats.repeated),
        pending: site.pending(),
        waited_nanos: n(&site.stats.waited),
    });
    data
}

fn node(place: &Place) -> NodeSeen {
    let neighbour = |lag: ReplicaLag, address: Option<String>, connected| Neighbour {
        name: cut(&lag.name),
        address,
        state: lag.state,
        connected,
        seconds: lag.seconds,
        epochs: Some(lag.epochs),
    };
    let status = place.cluster_status();
    let address = |name: &str| {
        let sender = status.senders.iter().find(|s| s.name == name);
        sender.and_then(|s| s.listen.clone().or_else(|| s.client_addr.clone()))
    };
    let mut replicas: Vec<Neighbour> = (place.replicas().into_iter())
        .map(|r| {
            let at = address(&r.name);
            neighbour(r, at, true)
        })
        .collect();
    let away = place.senders.known().into_iter().filter(|k| !k.1);
    replicas.extend(away.map(|(name, connected)| Neighbour {
        name: cut(&name),
        address: None,
        state: "away",
        connected,
        seconds: None,
        epochs: None,
    }));
    replicas.truncate(NODES);
    let connected = place.follow.as_ref().is_some_and(|f| f.is_connected());
    NodeSeen {
        name: cut(place.senders.membership.name()),
        role: place.node.role().name(),
        term: place.node.term(),
        published: place.node.marks().published.get().to_string(),
        synchronous: place.node.shipping().replicas(),
        primary: place.own().map(|own| neighbour(own, None, connected)),
        replicas,
        set_aside: place.set_aside.0,
    }
}

fn cluster(t: Together) -> ClusterSeen {
    let members = t.members.into_iter().take(NODES).map(|m| Member {
        role: match () {
            () if m.leads => "primary",
            () if m.site => "site",
            () if m.has_copy => "replica",
            () => "witness",
        },
        name: cut(&m.name),
        votes: m.votes,
        decides: m.decides,
    });
    ClusterSeen {
        members: members.collect(),
        wanted: t.wanted,
        promised: t.promised,
        degraded: t.degraded,
        settings: t.settings,
        lease: t.lease.map(|l| l.as_secs_f64()),
        obstacle: t.obstacle,
    }
}

fn counters(place: &Place, connections: &Connections<NodeEngine>) -> Counters {
    let c = &connections.shared.counters;
    let flush = place.node.flush_stats();
    Counters {
        statements: c.statements.get(),
        committed: c.commits.get(),
        rolled_back: n(&c.rollbacks),
        commits: place.node.manager().stats.commits(),
        retries: n(&c.retries),
        restarts: n(&c.restarts),
        serialization_failures: n(&c.serialization_failures),
        deadlocks: n(&c.deadlocks),
        lock_waits: n(&c.lock_waits),
        lock_wait_micros: n(&c.lock_wait_micros),
        commit_waits: n(&c.commit_waits),
        commit_wait_micros: n(&c.commit_wait_micros),
        forwarded: n(&c.forwarded),
        flushes: n(&flush.groups),
        flush_nanos: n(&flush.nanos),
        log_bytes: n(&flush.bytes),
        checkpoints: place.node.checkpoints(),
    }
}

fn gauges(place: &Place, connections: &Connections<NodeEngine>) -> Gauges {
    let manager = place.node.manager();
    let memory = &connections.shared.sessions.memory;
    Gauges {
        connections: connections.open(),
        connections_max: connections.shared.max_connections,
        rows_bytes: manager.store.memory.used(),
        rows_limit: manager.store.memory.limit(),
        rest_bytes: memory.used(),
        rest_limit: memory.limit(),
        disk_full: place.node.is_disk_full(),
    }
}

/// The sessions that are busy longest, and how many there are in each state.
fn sessions(data: &mut Data, connections: &Connections<NodeEngine>) {
    let shared = &connections.shared;
    let (catalog, now) = (shared.engine.node.catalog(), shared.now());
    let mut busy = vec![];
    for handle in shared.sessions.list() {
        let activity = handle.activity.lock();
        let state = match activity.state {
            "" => "starting",
            state => state,
        };
        match data.states.iter_mut().find(|s| s.0 == state) {
            Some(known) => known.1 += 1,
            None => data.states.push((state, 1)),
        }
        let statement = activity.query_start.filter(|_| state == "active");
        if let Some(since) = statement.or(activity.xact_start) {
            let order = (statement.is_none(), since);
            drop(activity);
            busy.push((order, handle));
        }
    }
    data.states.sort_unstable();
    busy.sort_by_key(|b| b.0);
    busy.truncate(SESSIONS);
    for (_, handle) in busy {
        let a = handle.activity.lock().clone();
        let since = |t: i64| now.saturating_sub(t).max(0);
        let statement = a.query_start.filter(|_| a.state == "active");
        let waits = shared.waits_of(&handle, a.waits).map(Waits::event);
        let role = catalog.schema.role(a.user);
        data.sessions.push(SessionSeen {
            pid: handle.pid,
            role: role.map_or_else(String::new, |r| cut(&r.name)),
            application: cut(&a.application_name),
            client: a.client_addr,
            state: a.state,
            waits: waits.map(|(kind, name)| format!("{kind}: {name}")),
            statement: statement.map(since),
            transaction: a.xact_start.map(since),
            began: a.query_start.map(|t| t + EPOCH),
            query: cut(&a.query),
        });
    }
}

/// What transactions fight for. Without `data.keys` no row is named.
fn contention(data: &mut Data, place: &Place) {
    let (manager, keys) = (place.node.manager(), data.keys);
    let shown = |text: &str| keys.then(|| cut(text));
    data.aborts = Cause::ALL
        .map(|c| (c.name(), manager.stats.aborts(c)))
        .into();
    let deltas = manager.stats.deltas();
    data.deltas = std::iter::zip(Outcome::NAMES, deltas).collect();
    let row = |r: ContendedRow| RowSeen {
        table: cut(&r.label.qualified()),
        key: shown(&r.label.key),
        waits: r.waits,
        lost: r.lost,
    };
    data.rows = manager.races.rows().into_iter().map(row).collect();
    let race = |r: Race| RaceSeen {
        number: r.number,
        table: cut(&r.label.qualified()),
        key: shown(&r.label.key),
        loser: r.loser,
        winner: r.winner.to_string(),
    };
    data.races = manager.races.newest().into_iter().map(race).collect();
    let (hottest, watched) = manager.hottest_split_values(SPLITS);
    let catalog = manager.catalog();
    let split = |v: SplitValue| {
        let def = &catalog.schema.table(v.table)?.def;
        Some(SplitSeen {
            table: cut(&def.name),
            column: cut(&def.columns.get(usize::from(v.column))?.name),
            key: shown(&v.name),
            total: keys.then(|| number(&v.total)),
            records: u32::from(v.records) + 1,
            mode: v.mode.name(),
            heat: v.heat.rate.max(v.heat.rate_now()),
        })
    };
    data.splits = hottest.into_iter().filter_map(split).collect();
    data.watched = watched;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn before_there_is_a_node_only_the_phase_is_told() {
        let data = collect(&Metrics::default(), true);
        let json = serde_json::to_value(&data).expect("JSON");
        assert_eq!(json["obstacle"], "starting");
        for absent in ["node", "cluster", "counters", "gauges", "archive", "site"] {
            assert!(json[absent].is_null(), "{absent}");
        }
        assert_eq!(json["sessions"], serde_json::json!([]));
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(cut("short"), "short");
        let long = cut(&"é".repeat(TEXT + 1));
        assert_eq!(long.chars().count(), TEXT + 2);
        assert!(long.ends_with(" …"));
    }

    #[test]
    fn numbers_are_shown_as_in_psql() {
        assert_eq!(number(&Value::Int4(-3)), "-3");
        assert_eq!(number(&Value::from(base::Numeric::from(7i64))), "7");
    }
}
