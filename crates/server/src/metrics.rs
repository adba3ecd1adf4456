//! `/metrics`: everything that is counted or waits on purpose, in Prometheus' text format.

use crate::connections::Connections;
use crate::replication::archive::Archiving;
use crate::replication::backups::Seen;
use crate::replication::members::{MemberSeen, Members, Together};
use crate::replication::{Place, ReplicaLag, Site, StrongReads};
use embedded::engine::{ClusterView, NodeEngine};
use service::http::Probe;
use service::page::Page;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use txn::{Cause, Spared};

/// What the server is doing, for `/readyz`.
#[derive(Default)]
pub struct Phase(AtomicU8);

impl Phase {
    const SERVING: u8 = 1;
    const STOPPING: u8 = 2;

    pub fn serving(&self) {
        self.0.store(Phase::SERVING, Ordering::SeqCst);
    }

    pub fn stopping(&self) {
        self.0.store(Phase::STOPPING, Ordering::SeqCst);
    }
}

/// Where the numbers come from. Before recovery is over there is only the phase.
pub struct Metrics {
    pub phase: Phase,
    pub source: std::sync::OnceLock<(Arc<Place>, Arc<Connections<NodeEngine>>)>,
    /// Of a witness, which has no data.
    pub witness: std::sync::OnceLock<Arc<dyn Members>>,
    started: Instant,
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics {
            phase: Phase::default(),
            source: Default::default(),
            witness: Default::default(),
            started: Instant::now(),
        }
    }
}

impl Metrics {
    /// Since the process began.
    pub fn uptime(&self) -> Duration {
        self.started.elapsed()
    }
}

impl Probe for Metrics {
    fn ready(&self, max_lag: Option<Duration>) -> Result<(), String> {
        match self.phase.0.load(Ordering::SeqCst) {
            Phase::SERVING => match (max_lag, self.source.get()) {
                (_, Some((place, _))) if !place.node.is_open() => Err(place.waits_for()),
                (_, Some((place, _))) if place.node.is_disk_full() => {
                    Err("the disk is full: commits wait for room".into())
                }
                (Some(lag), Some((place, _))) => place.is_fresh(lag),
                _ => Ok(()),
            },
            Phase::STOPPING => Err("stopping".into()),
            _ => Err("starting".into()),
        }
    }

    fn metrics(&self) -> String {
        let mut p = Page::default();
        p.head("canon_info", "gauge", "The version that runs.");
        _ = writeln!(
            p.0,
            "canon_info{{version=\"{}\"}} 1",
            env!("CARGO_PKG_VERSION")
        );
        p.gauge(
            "canon_ready",
            "Whether it serves.",
            u8::from(self.ready(None).is_ok()),
        );
        p.gauge(
            "canon_uptime_seconds",
            "Since the process began.",
            self.uptime().as_secs(),
        );
        let Some((place, connections)) = self.source.get() else {
            if let Some(together) = self.witness.get().and_then(|w| w.together()) {
                p.head("canon_role", "gauge", "What this node is.");
                _ = writeln!(p.0, "canon_role{{role=\"witness\"}} 1");
                members(&mut p, &together);
            }
            return p.0;
        };
        sessions(&mut p, connections);
        engine(&mut p, &place.node);
        replication(&mut p, place);
        if let Some(together) = place.senders.together() {
            members(&mut p, &together);
        }
        place.site.iter().for_each(|site| certified(&mut p, site));
        p.0
    }
}

fn sessions(p: &mut Page, connections: &Connections<NodeEngine>) {
    let n = |a: &std::sync::atomic::AtomicU64| a.load(Ordering::Relaxed);
    let micros = |a: &std::sync::atomic::AtomicU64| n(a) as f64 / 1e6;
    let c = &connections.shared.counters;
    p.gauge(
        "canon_connections",
        "Client connections.",
        connections.open(),
    );
    let memory = &connections.shared.sessions.memory;
    p.gauge(
        "canon_memory_total_bytes",
        "Bytes that statements, sessions, queues, connections and the server itself take beside the rows.",
        memory.used(),
    );
    p.gauge(
        "canon_memory_total_limit_bytes",
        "Most bytes that they may take (memory.total).",
        memory.limit(),
    );
    p.counter(
        "canon_memory_refused_total",
        "Statements and sessions ended because of what they took (53200).",
        memory.refused.load(Ordering::Relaxed),
    );
    p.gauge(
        "canon_connections_max",
        "Most client connections.",
        connections.shared.max_connections,
    );
    p.counter(
        "canon_connections_accepted_total",
        "Connections taken.",
        connections.accepted.load(Ordering::Relaxed),
    );
    p.counter(
        "canon_connections_moved_total",
        "Times that a connection went to another thread of the server, to be beside those of its client.",
        connections.moves(),
    );
    p.counter(
        "canon_connections_refused_total",
        "Connections refused with 53300.",
        connections.refused.load(Ordering::Relaxed),
    );
    p.counter(
        "canon_statements_total",
        "Statements run.",
        c.statements.get(),
    );
    p.counter(
        "canon_transactions_committed_total",
        "Transactions of sessions that committed.",
        c.commits.get(),
    );
    p.counter(
        "canon_transactions_rolled_back_total",
        "Transactions of sessions that were rolled back.",
        n(&c.rollbacks),
    );
    let errors = [
        ("40001", n(&c.serialization_failures)),
        ("40P01", n(&c.deadlocks)),
    ];
    p.counters(
        "canon_errors_total",
        "Errors given to clients.",
        "code",
        errors,
    );
    p.counter(
        "canon_retries_total",
        "Transactions of one statement run again by the server.",
        n(&c.retries),
    );
    forwarded(p, connections);
    p.counter(
        "canon_restarts_total",
        "Statements run again on a newer snapshot inside their transaction.",
        n(&c.restarts),
    );
    p.times(
        "canon_lock_wait_seconds",
        "Waits for row locks.",
        n(&c.lock_waits),
        micros(&c.lock_wait_micros),
    );
    p.times(
        "canon_commit_wait_seconds",
        "Replies held until what they depend on was published.",
        n(&c.commit_waits),
        micros(&c.commit_wait_micros),
    );
    plans(p, connections);
}

fn plans(p: &mut Page, connections: &Connections<NodeEngine>) {
    let n = |a: &std::sync::atomic::AtomicU64| a.load(Ordering::Relaxed);
    let c = &connections.shared.counters;
    p.counter(
        "canon_plans_made_total",
        "Statements planned.",
        n(&c.plans_made),
    );
    p.counter(
        "canon_plans_found_total",
        "Plans found in the shared cache.",
        n(&c.plans_found),
    );
    p.gauge(
        "canon_plans_cached",
        "Plans in the shared cache.",
        connections.shared.plans.len(),
    );
    p.gauge(
        "canon_plans_bytes",
        "Memory of the plans in the shared cache, about.",
        connections.shared.plans.bytes(),
    );
}

/// Where the members are.
fn addresses(p: &mut Page, t: &Together) {
    p.head(
        "canon_member_address",
        "gauge",
        "Per member: where the others reach it, as a label.",
    );
    for m in &t.members {
        let (member, address) = (label(&m.name), label(&m.address));
        _ = writeln!(
            p.0,
            "canon_member_address{{member=\"{member}\",address=\"{address}\"}} 1"
        );
    }
}

/// The members of a cluster that runs itself, as this one sees them.
fn members(p: &mut Page, t: &Together) {
    type Of = fn(&MemberSeen) -> bool;
    let all: [(&str, &str, Of); 5] = [
        (
            "canon_member_primary",
            "Per member: whether it leads the data.",
            |m| m.leads,
        ),
        ("canon_member_votes", "Per member: whether it votes.", |m| {
            m.votes
        }),
        (
            "canon_member_decides",
            "Per member: whether it leads the consensus.",
            |m| m.decides,
        ),
        (
            "canon_member_copy",
            "Per member: whether it has a copy of the data.",
            |m| m.has_copy,
        ),
        (
            "canon_member_site",
            "Per member: whether it is a site.",
            |m| m.site,
        ),
    ];
    for (name, what, of) in all {
        p.head(name, "gauge", what);
        for m in &t.members {
            let member = label(&m.name);
            _ = writeln!(p.0, "{name}{{member=\"{member}\"}} {}", u8::from(of(m)));
        }
    }
    addresses(p, t);
    p.gauge(
        "canon_cluster_wanted",
        "Replicas that a commit waits for.",
        t.wanted,
    );
    p.gauge(
        "canon_cluster_promised",
        "Replicas that hold each commit that was acknowledged.",
        t.promised,
    );
    p.gauge(
        "canon_cluster_degraded",
        "Whether commits wait for fewer replicas than they should.",
        u8::from(t.degraded),
    );
    p.head(
        "canon_cluster_setting",
        "gauge",
        "Per setting of the cluster that was set: its value, as a label.",
    );
    for setting in &t.settings {
        let setting = label(setting);
        _ = writeln!(p.0, "canon_cluster_setting{{setting=\"{setting}\"}} 1");
    }
    if let Some((term, within)) = t.lost {
        p.head(
            "canon_failover_lost_seconds",
            "gauge",
            "Per term that began without synchronous replicas: commits of so many seconds before it may be lost.",
        );
        let seconds = within.as_secs_f64();
        _ = writeln!(
            p.0,
            "canon_failover_lost_seconds{{term=\"{term}\"}} {seconds}"
        );
    }
    if let Some(lease) = t.lease {
        p.gauge(
            "canon_lease_seconds",
            "How long this primary's lease is held.",
            lease.as_secs_f64(),
        );
    }
    let why = t.obstacle.as_deref().unwrap_or("");
    p.head(
        "canon_failover",
        "gauge",
        "Whether another node is named if the primary is lost, and why not.",
    );
    _ = writeln!(
        p.0,
        "canon_failover{{obstacle=\"{}\"}} {}",
        label(why),
        u8::from(t.obstacle.is_none())
    );
}

/// What a primary has archived.
fn archived(p: &mut Page, a: &Archiving) {
    p.gauge(
        "canon_archive_waiting_bytes",
        "Finished log that is not in the archive.",
        a.waiting(),
    );
    p.counter(
        "canon_archive_segments_total",
        "Segments of the log copied to the archive.",
        a.copied(),
    );
    p.counter(
        "canon_archive_failures_total",
        "Times that copying to the archive, or reading from it, failed.",
        a.failures(),
    );
    if let Some(seen) = a.backups.as_ref().and_then(|b| b.seen()) {
        backups(p, &seen);
    }
}

/// What a primary's schedule of backups has done.
fn backups(p: &mut Page, seen: &Seen) {
    let seconds = |micros: u64| micros as f64 / 1e6;
    p.gauge(
        "canon_backup_bases",
        "Bases in the archive that were read whole there.",
        seen.bases,
    );
    if let Some(newest) = seen.newest {
        p.gauge(
            "canon_backup_last_timestamp_seconds",
            "When the newest of this term was read whole, since 1970.",
            seconds(newest),
        );
    }
    if let Some(since) = seen.since {
        p.gauge(
            "canon_backup_since_timestamp_seconds",
            "The first moment that can be restored, since 1970.",
            seconds(since),
        );
    }
    p.gauge(
        "canon_backup_under_way",
        "Whether a backup is being made.",
        u8::from(seen.under_way.is_some()),
    );
    p.gauge(
        "canon_backup_under_way_bytes",
        "What it has copied and read so far.",
        seen.under_way.unwrap_or(0),
    );
    p.counter(
        "canon_backup_failures_total",
        "Backups that failed.",
        seen.failures,
    );
    p.head(
        "canon_backup_failing",
        "gauge",
        "Whether the last backup failed, and why.",
    );
    let why = seen.failed.as_deref().unwrap_or("");
    let failing = u8::from(seen.failed.is_some());
    _ = writeln!(
        p.0,
        "canon_backup_failing{{why=\"{}\"}} {failing}",
        label(why)
    );
}

/// The node's place in its cluster. A replica that is not connected has no lag here.
fn replication(p: &mut Page, place: &Place) {
    let role = place.node.role().name();
    p.head("canon_role", "gauge", "What this node is.");
    _ = writeln!(p.0, "canon_role{{role=\"{role}\"}} 1");
    p.gauge("canon_term", "The term of its log.", place.node.term());
    if let (Some(follow), Some(own)) = (&place.follow, place.own()) {
        p.gauge(
            "canon_primary_connected",
            "Whether this replica hears its primary.",
            u8::from(follow.is_connected()),
        );
        lag(p, "canon_replica", "This replica", &[own], false);
        p.counter(
            "canon_replica_batches_in_ring_total",
            "Batches of the log that came in a ring in shared memory.",
            follow.in_ring(),
        );
        if let Some(reads) = &place.strong_reads {
            strong_reads(p, reads);
        }
        if let Some(f) = place.node.following() {
            p.counter(
                "canon_replica_ring_overruns_total",
                "Times that the log came faster than it was taken from memory.",
                f.stats.overruns.load(Ordering::Relaxed),
            );
        }
    }
    let (commits, rows) = place.set_aside;
    p.gauge(
        "canon_set_aside_commits",
        "Commits that lie under set-aside, because the cluster's history does not have them.",
        commits,
    );
    p.gauge(
        "canon_set_aside_rows",
        "Rows that they put or deleted.",
        rows,
    );
    let replicas = place.replicas();
    p.gauge(
        "canon_replicas_connected",
        "Replicas that follow this node.",
        replicas.len(),
    );
    p.gauge(
        "canon_synchronous_replicas",
        "Replicas that durable commits wait for.",
        place.node.shipping().replicas(),
    );
    if let Some(archive) = &place.senders.archive {
        archived(p, archive);
    }
    let (in_ring, in_messages) = place.senders.batches();
    p.counters(
        "canon_replication_batches_total",
        "Batches of the log sent to replicas, by how.",
        "how",
        [("ring", in_ring), ("message", in_messages)],
    );
    p.head(
        "canon_nodes_asked_total",
        "counter",
        "How often another node was told of this node's term and asked for its own.",
    );
    _ = writeln!(
        p.0,
        "canon_nodes_asked_total {}",
        place.senders.herald.asked()
    );
    p.head(
        "canon_replica_connected",
        "gauge",
        "Per replica known since the start: whether it follows now.",
    );
    for (name, connected) in place.senders.known() {
        let name = label(&name);
        _ = writeln!(
            p.0,
            "canon_replica_connected{{replica=\"{name}\"}} {}",
            u8::from(connected)
        );
    }
    lends(p, place);
    lag(p, "canon_replication", "A replica", &replicas, true);
}

/// Which replicas hold read leases.
fn lends(p: &mut Page, place: &Place) {
    p.head(
        "canon_replica_lease",
        "gauge",
        "Per connected replica: whether it holds a read lease now.",
    );
    for (name, holds) in place.senders.lends() {
        let (name, holds) = (label(&name), u8::from(holds));
        _ = writeln!(p.0, "canon_replica_lease{{replica=\"{name}\"}} {holds}");
    }
}

/// What a replica passes on.
fn forwarded(p: &mut Page, connections: &Connections<NodeEngine>) {
    let n = |a: &AtomicU64| a.load(Ordering::Relaxed);
    let c = &connections.shared.counters;
    p.counter(
        "canon_forwarded_total",
        "Statements and pipelines that a replica passed on to its primary.",
        n(&c.forwarded),
    );
    p.counter(
        "canon_forwarded_blocks_total",
        "Transaction blocks that began at a replica and went on at its primary.",
        n(&c.forwarded_blocks),
    );
    if let Some(pool) = &connections.forward {
        p.gauge(
            "canon_forward_connections",
            "Connections to the primary for sessions of this replica.",
            pool.open(),
        );
    }
}

/// What this site has had certified (docs/sites.md).
fn certified(p: &mut Page, site: &Site) {
    let s = &site.stats;
    let n = |a: &AtomicU64| a.load(Ordering::Relaxed);
    let (committed, refused) = (n(&s.committed), n(&s.refused));
    p.counters(
        "canon_site_verdicts_total",
        "Transactions of this site that its primary has decided.",
        "verdict",
        [("committed", committed), ("refused", refused)],
    );
    p.counter(
        "canon_site_repeated_total",
        "Candidates that were sent again, because their verdict had not come.",
        n(&s.repeated),
    );
    p.counter(
        "canon_site_ranges_total",
        "Ranges of numbers of sequences that this site has drawn from its primary.",
        n(&s.ranges),
    );
    p.gauge(
        "canon_site_pending",
        "Candidates without a verdict.",
        site.pending(),
    );
    p.times(
        "canon_site_verdict_seconds",
        "Time between a candidate and its verdict.",
        committed + refused,
        n(&s.waited) as f64 / 1e9,
    );
}

/// What strong reads here cost (docs/design/fresh-reads.md).
fn strong_reads(p: &mut Page, reads: &StrongReads) {
    let n = |a: &std::sync::atomic::AtomicU64| a.load(Ordering::Relaxed);
    let s = reads.stats();
    p.gauge(
        "canon_strong_reads_connected",
        "Whether the primary can be asked what it has published.",
        u8::from(reads.is_connected()),
    );
    p.gauge(
        "canon_read_lease_held",
        "Whether a read lease is held: sessions with canon.read_policy = lease need not ask the primary.",
        u8::from(reads.holds_lease()),
    );
    p.counter(
        "canon_read_fetches_total",
        "Fetches from the primary, for any number of reads each, and looks at memory that is shared with it, for one.",
        n(&s.fetches) + n(&s.looked),
    );
    p.counter(
        "canon_read_fetches_rejected_total",
        "Answers of a node that is not the primary that is followed.",
        n(&s.rejected),
    );
    let how = [
        ("reused", n(&s.reused)),
        ("joined", n(&s.joined)),
        ("fetched", n(&s.began)),
        ("looked", n(&s.looked)),
        ("lease", n(&s.leased)),
    ];
    p.counters(
        "canon_read_timestamps_total",
        "Timestamps given to reads: of a fetch that had landed, in flight, or begun for it, looked up in shared memory, or by a read lease.",
        "how",
        how,
    );
    for (name, help, values) in [
        (
            "canon_reads_at_once_total",
            "Reads that waited for no replay, by what told so.",
            &s.at_once,
        ),
        (
            "canon_reads_waited_total",
            "Reads that waited for replay, by what they waited for.",
            &s.waits,
        ),
    ] {
        let levels = ["visible", "global", "catalog", "table", "row"];
        let levels = levels.iter().zip(values.iter().map(n));
        p.counters(name, help, "level", levels);
    }
    let waits: u64 = s.waits.iter().map(n).sum();
    p.times(
        "canon_read_wait_seconds",
        "Waits of strong reads for replay.",
        waits,
        n(&s.waited) as f64 / 1e9,
    );
    p.times(
        "canon_read_fetch_seconds",
        "Waits of strong reads for the primary's answers.",
        n(&s.joined) + n(&s.began),
        n(&s.fetching) as f64 / 1e9,
    );
}

fn lag(p: &mut Page, prefix: &str, whose: &str, all: &[ReplicaLag], named: bool) {
    let mut rows = |what: &str, help: &str, value: &dyn Fn(&ReplicaLag) -> Option<String>| {
        let name = format!("{prefix}_lag_{what}");
        p.head(&name, "gauge", &format!("{whose} is behind by {help}."));
        for r in all {
            let labels = match named {
                true => format!("{{replica=\"{}\"}}", label(&r.name)),
                false => String::new(),
            };
            if let Some(v) = value(r) {
                _ = writeln!(p.0, "{name}{labels} {v}");
            }
        }
    };
    rows(
        "positions",
        "raw positions, of which an epoch has 2^24",
        &|r| Some(r.positions.to_string()),
    );
    rows("epochs", "epochs", &|r| Some(r.epochs.to_string()));
    rows("seconds", "time", &|r| r.seconds.map(|s| format!("{s:.6}")));
}

/// A label's value.
fn label(s: &str) -> String {
    s.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

fn split_values(p: &mut Page, m: &txn::TxnManager) {
    let deltas = m.stats.deltas();
    p.counters(
        "canon_split_deltas_total",
        "Deltas of split columns: done beside others, refused by a guard, or done as an exact write.",
        "outcome",
        [0, 1, 2].map(|o| (txn::Outcome::NAMES[o], deltas[o])),
    );
    p.gauge(
        "canon_split_reserved_values",
        "Values of split columns of which running transactions reserve something.",
        m.reserved_values(),
    );
}

fn split_worker(p: &mut Page, node: &node::Node) {
    let (more, fewer) = node.split_steps();
    p.counters(
        "canon_split_worker_steps_total",
        "How often the worker of split values gave a value more records, or fewer.",
        "records",
        [("more", more), ("fewer", fewer)],
    );
    let (done, gave_up) = node.balance_steps();
    p.counters(
        "canon_split_balance_steps_total",
        "How often the worker of split values in the mode rows moved parts between the records of a value, or gave up because one was in use.",
        "outcome",
        [("done", done), ("gave_up", gave_up)],
    );
}

fn engine(p: &mut Page, node: &node::Node) {
    let m = node.manager();
    p.counter(
        "canon_commits_total",
        "Transactions that wrote and committed, the library's included.",
        m.stats.commits(),
    );
    p.counters(
        "canon_aborts_total",
        "Transactions told to try again, by cause.",
        "reason",
        Cause::ALL.map(|c| (c.name(), m.stats.aborts(c))),
    );
    p.counters(
        "canon_aborts_spared_total",
        "Transactions that committed where whole rows and ranges as their footprint would have told them to try again, by what told apart.",
        "by",
        Spared::ALL.map(|by| (by.name(), m.stats.spared(by))),
    );
    p.counter(
        "canon_snapshot_moves_total",
        "Snapshots moved forward instead of an abort.",
        m.stats.moves(),
    );
    split_values(p, m);
    split_worker(p, node);
    let f = node.flush_stats();
    let n = |a: &std::sync::atomic::AtomicU64| a.load(Ordering::Relaxed);
    p.times(
        "canon_flush_seconds",
        "Groups of commits written to the log.",
        n(&f.groups),
        n(&f.nanos) as f64 / 1e9,
    );
    p.counter(
        "canon_log_commits_total",
        "Commits written to the log.",
        n(&f.commits),
    );
    p.counter(
        "canon_log_bytes_total",
        "Bytes written to the log.",
        n(&f.bytes),
    );
    p.counter(
        "canon_disk_full_total",
        "Times that a group found the disk full.",
        n(&f.disk_full),
    );
    p.counter(
        "canon_checkpoints_total",
        "Checkpoints written.",
        node.checkpoints(),
    );
    p.gauge(
        "canon_memory_bytes",
        "Bytes that rows, indexes and versions take.",
        m.store.memory.used(),
    );
    p.gauge(
        "canon_memory_limit_bytes",
        "Most bytes that they may take.",
        m.store.memory.limit(),
    );
    p.gauge(
        "canon_resident_bytes",
        "Bytes of the process that are in the machine's memory.",
        resident(),
    );
    let (versions, waiting) = node.reclaimed();
    p.counter(
        "canon_versions_reclaimed_total",
        "Old versions of rows taken away.",
        versions,
    );
    p.gauge(
        "canon_versions_waiting_records",
        "Rows that have old versions, which a snapshot may still need.",
        waiting,
    );
    let decided = node.marks().decided.get();
    p.gauge(
        "canon_snapshots",
        "Snapshots that somebody reads at, and the newest.",
        m.store.snapshots.live(decided).len(),
    );
    p.gauge(
        "canon_snapshots_held",
        "Snapshots kept for transactions at replicas, which may yet write.",
        m.held(),
    );
    p.head("canon_position", "gauge", "Watermarks, as raw positions.");
    for (name, at) in [
        ("installed", node.marks().installed.get()),
        ("decided", node.marks().decided.get()),
        ("published", node.marks().published.get()),
    ] {
        _ = writeln!(p.0, "canon_position{{mark=\"{name}\"}} {}", at.as_u64());
    }
}
/// Bytes of this process that are in memory.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kb = status
        .lines()
        .find_map(|l| l.strip_prefix("VmRSS:"))
        .and_then(|l| l.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kb.unwrap_or(0) << 10
}
