//! Functions of replication, with PostgreSQL's names: where the log is, whether this server follows another, promotion.
//!
//! Places in the log are positions, written as PostgreSQL writes `pg_lsn` ([`crate::cluster_status::lsn`]).

use super::EvalContext;
use super::effect::{AT_PRIMARY, OF_THE_NODE};
use super::registry::{Registry, names::*};
use crate::cluster_status::{lsn, parse_lsn};
use crate::engine::MembershipChange;
use base::{Error, Numeric, Position, Result, SqlState, Value};
use std::time::Duration;

type Ctx<'a, 'b> = &'a mut EvalContext<'b>;

/// What `pg_promote()` waits for when it is told nothing.
const PATIENCE: i64 = 60;

fn place(p: Position) -> Value {
    Value::from(lsn(p))
}

/// A place of the server's own log, which a server in recovery does not write.
fn current(
    c: Ctx<'_, '_>,
    of: fn(&crate::cluster_status::ClusterStatus) -> Position,
) -> Result<Value> {
    if c.session.in_recovery() {
        return Err(Error::new(
            SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
            "recovery is in progress",
        )
        .hint("WAL control functions cannot be executed during recovery."));
    }
    Ok(place(of(&c.session.cluster_status())))
}

/// What only a server in recovery has; else NULL.
fn followed(
    c: Ctx<'_, '_>,
    of: fn(&crate::cluster_status::ClusterStatus) -> Value,
) -> Result<Value> {
    if !c.session.in_recovery() {
        return Ok(Value::Null);
    }
    Ok(of(&c.session.cluster_status()))
}

fn diff(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let at = |i: usize| parse_lsn(a[i].as_str().unwrap_or("")).map(Position::as_u64);
    let n = i128::from(at(0)?) - i128::from(at(1)?);
    let digits = num_bigint::BigInt::from(n);
    Ok(Value::Numeric(Box::new(Numeric::Finite(
        bigdecimal::BigDecimal::new(digits, 0),
    ))))
}

fn promote(a: &[Value], c: Ctx<'_, '_>) -> Result<Value> {
    let wait = a.first().and_then(Value::as_bool).unwrap_or(true);
    let seconds = a.get(1).and_then(Value::as_i64).unwrap_or(PATIENCE);
    if seconds <= 0 {
        return Err(Error::new(
            SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
            "\"wait_seconds\" must not be negative or zero",
        ));
    }
    let time = Duration::from_secs(if wait { seconds as u64 } else { 0 });
    let done = c.session.promote(false, time)?;
    Ok(Value::Bool(done.is_some() || !wait))
}

/// `canon_promote([force])`: what happened, in words. By force the old primary is not asked, which must be down.
fn canon_promote(a: &[Value], c: Ctx<'_, '_>) -> Result<Value> {
    let force = a.first().and_then(Value::as_bool).unwrap_or(false);
    let time = Duration::from_secs(PATIENCE as u64);
    let late = || {
        Error::new(
            SqlState::QUERY_CANCELED,
            "the promotion did not end in time",
        )
        .detail("The promotion goes on.")
    };
    let done = c.session.promote(force, time)?;
    done.map(Value::from).ok_or_else(late)
}

/// Adds the functions of this file.
pub(super) fn register(r: &mut Registry) {
    r.f("pg_is_in_recovery", &[], BOOL, VOL, |_, c| {
        Ok(Value::Bool(c.session.in_recovery()))
    });
    r.f("pg_is_wal_replay_paused", &[], BOOL, VOL, |_, _| {
        Ok(Value::Bool(false))
    });
    for n in ["pg_current_wal_lsn", "pg_current_wal_insert_lsn"] {
        r.f(n, &[], TEXT, VOL, |_, c| current(c, |s| s.current));
    }
    r.f("pg_current_wal_flush_lsn", &[], TEXT, VOL, |_, c| {
        current(c, |s| s.flushed)
    });
    r.f("pg_last_wal_receive_lsn", &[], TEXT, VOL, |_, c| {
        followed(c, |s| place(s.received))
    });
    r.f("pg_last_wal_replay_lsn", &[], TEXT, VOL, |_, c| {
        followed(c, |s| place(s.replayed))
    });
    r.f(
        "pg_last_xact_replay_timestamp",
        &[],
        TIMESTAMPTZ,
        VOL,
        |_, c| followed(c, |s| s.replayed_at.map_or(Value::Null, Value::TimestampTz)),
    );
    // A cast in the form of a call, as postgres_exporter has it.
    r.f("pg_lsn", &[TEXT], TEXT, IMM, |a, _| {
        let text = a[0].as_str().unwrap_or_default();
        parse_lsn(text).map(place)
    });
    r.f("pg_wal_lsn_diff", &[TEXT, TEXT], NUMERIC, IMM, diff);
    r.f("pg_promote", &[], BOOL, VOL, promote);
    r.f("pg_promote", &[BOOL], BOOL, VOL, promote);
    r.f("pg_promote", &[BOOL, INT4], BOOL, VOL, promote);
    r.f("canon_txn_status", &[TEXT], TEXT, VOL, |a, c| {
        let token = a[0].as_str().unwrap_or_default();
        c.session.transaction_status(token).map(Value::from)
    });
    // A primary that has handed over leads again; who it handed over to must be down and must not have taken over.
    r.f("canon_unseal", &[], TEXT, VOL, |_, c| {
        c.session.unseal(false).map(Value::from)
    });
    // The same, also for one that has heard of a primary of a newer term, which must be down for good.
    r.f("canon_unseal", &[BOOL], TEXT, VOL, |a, c| {
        let forget = a[0].as_bool().unwrap_or(false);
        c.session.unseal(forget).map(Value::from)
    });
    // This server, or the member of this name, is one no more.
    r.f("canon_leave", &[], TEXT, VOL, |_, c| {
        let leave = MembershipChange::Leave(None);
        c.session.change_membership(leave).map(Value::from)
    });
    r.f("canon_leave", &[TEXT], TEXT, VOL, |a, c| {
        let leave = MembershipChange::Leave(a[0].as_str().map(str::to_owned));
        c.session.change_membership(leave).map(Value::from)
    });
    // Replicas that follow this primary by hand become members.
    r.f("canon_adopt", &[], TEXT, VOL, |_, c| {
        let adopt = MembershipChange::Adopt;
        c.session.change_membership(adopt).map(Value::from)
    });
    // A setting of the cluster gets this value.
    r.f("canon_cluster_set", &[TEXT, TEXT], TEXT, VOL, |a, c| {
        let said = |i: usize| a[i].as_str().unwrap_or_default().to_owned();
        let set = MembershipChange::Set(said(0), said(1));
        c.session.change_membership(set).map(Value::from)
    });
    r.f("canon_promote", &[], TEXT, VOL, canon_promote);
    r.f("canon_promote", &[BOOL], TEXT, VOL, canon_promote);
    r.does(AT_PRIMARY, &["canon_txn_status"]);
    r.does(
        OF_THE_NODE,
        &[
            "pg_promote",
            "canon_promote",
            "canon_unseal",
            "canon_leave",
            "canon_adopt",
            "canon_cluster_set",
        ],
    );
}

#[cfg(test)]
mod tests {
    use crate::functions::testing::call;

    #[test]
    fn a_server_alone_is_not_in_recovery() {
        for (f, args, want) in [
            ("pg_is_in_recovery", &[][..], "f"),
            ("pg_last_wal_replay_lsn", &[], "NULL"),
            ("pg_current_wal_lsn", &[], "00000000/00000000"),
            ("pg_wal_lsn_diff", &["1/0", "0/10"], "4294967280"),
            ("pg_wal_lsn_diff", &["0/0", "0/A"], "-10"),
            ("pg_lsn", &["1/A"], "00000001/0000000A"),
        ] {
            assert_eq!(call(f, args), want, "{f}{args:?}");
        }
        assert!(call("pg_wal_lsn_diff", &["x", "0/0"]).contains("22P02"));
        assert!(call("pg_lsn", &["x"]).contains("22P02"));
    }
}
