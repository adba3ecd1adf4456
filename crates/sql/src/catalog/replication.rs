//! `pg_stat_replication` and `pg_stat_wal_receiver`: a primary's replicas, a replica's primary.
//!
//! A replica that is away has no row, as in PostgreSQL: lag is a number only while somebody is there to have it.

use super::CatalogScan;
use super::relations::Rows;
use super::rows::*;
use crate::cluster_status::lsn;
use base::{Interval, Result, Value};

fn lag(micros: Option<i64>) -> Value {
    let interval = |micros| {
        Value::Interval(Box::new(Interval {
            months: 0,
            days: 0,
            micros,
        }))
    };
    micros.map_or(Value::Null, interval)
}

/// The replicas that follow. Of those of other roles an ordinary role sees the name only.
pub(super) fn pg_stat_replication(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    for s in cx.facts.cluster_status().senders {
        if !cx.sees_activity_of(s.user) {
            rows.push(&[
                ("pid", Value::Int4(s.pid)),
                ("usesysid", oid(s.user)),
                ("usename", text(role_name(cx.schema(), s.user))),
                ("application_name", text(&s.name)),
            ]);
            continue;
        }
        rows.push(&[
            ("pid", Value::Int4(s.pid)),
            ("usesysid", oid(s.user)),
            ("usename", text(role_name(cx.schema(), s.user))),
            ("application_name", text(&s.name)),
            ("client_addr", maybe(s.client_addr.as_ref())),
            (
                "client_port",
                s.client_port.map_or(Value::Null, Value::Int4),
            ),
            ("backend_start", time(Some(s.since))),
            ("state", text(s.state)),
            ("sent_lsn", text(lsn(s.sent))),
            ("write_lsn", text(lsn(s.received))),
            ("flush_lsn", text(lsn(s.persisted))),
            ("replay_lsn", text(lsn(s.visible))),
            ("write_lag", lag(s.received_lag)),
            ("flush_lag", lag(s.persisted_lag)),
            ("replay_lag", lag(s.visible_lag)),
            ("sync_priority", Value::Int4(i32::from(s.synchronous))),
            (
                "sync_state",
                text(if s.synchronous { "quorum" } else { "async" }),
            ),
            ("reply_time", time(s.replied)),
            ("canon_listen", maybe(s.listen.as_ref())),
            ("canon_member", Value::Bool(s.member)),
        ]);
    }
    Ok(())
}

pub(super) fn pg_stat_wal_receiver(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    let Some(r) = cx.facts.cluster_status().receiver else {
        return Ok(());
    };
    if !cx.sees_activity_of(0) {
        rows.push(&[("pid", Value::Int4(r.pid))]);
        return Ok(());
    }
    rows.push(&[
        ("pid", Value::Int4(r.pid)),
        ("status", text(r.status)),
        ("receive_start_lsn", text(lsn(r.start))),
        ("receive_start_tli", Value::Int4(r.term as i32)),
        ("written_lsn", text(lsn(r.received))),
        ("flushed_lsn", text(lsn(r.persisted))),
        ("received_tli", Value::Int4(r.term as i32)),
        ("last_msg_receipt_time", time(r.last_message)),
        ("latest_end_lsn", text(lsn(r.received))),
        ("latest_end_time", time(r.last_message)),
        ("sender_host", text(&r.host)),
        ("sender_port", Value::Int4(i32::from(r.port))),
        ("conninfo", text(&r.conninfo)),
    ]);
    Ok(())
}
