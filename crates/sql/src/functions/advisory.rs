//! Advisory locks, and who waits for whom.
//!
//! PostgreSQL's names: `pg_[try_]advisory_[xact_]lock[_shared]` over one `bigint` or two `int`s, and the unlocks of what the session took. The
//! session waits on its thread, so a lock is taken when its call is evaluated, and is not given back when the statement fails.

use super::effect::{SESSION_LOCK, TRANSACTION_LOCK, UNLOCK};
use super::registry::{Registry, names::*};
use base::{Array, Type, Value};
use txn::{AdvisoryKey, AdvisoryLock};

fn int4(v: &Value) -> i32 {
    match v {
        Value::Int4(n) => *n,
        v => v.as_i64().expect("an integer") as i32,
    }
}

fn key(a: &[Value]) -> AdvisoryKey {
    match a {
        [one] => AdvisoryKey::One(one.as_i64().expect("an integer")),
        [a, b, ..] => AdvisoryKey::Two(int4(a), int4(b)),
        [] => unreachable!("a lock has a key"),
    }
}

fn pids(list: Vec<i32>) -> Value {
    let items = list.into_iter().map(Value::Int4).collect();
    Value::Array(Box::new(Array::one_dim(Type::Int4, items)))
}

macro_rules! locks {
    ($r:ident; $($name:literal $shared:literal $of_transaction:literal;)*) => { $(
        for args in [&[INT8][..], &[INT4, INT4]] {
            $r.f(concat!("pg_advisory", $name), args, VOID, VOL, |a, c| {
                let lock = AdvisoryLock { key: key(a), shared: $shared, of_transaction: $of_transaction };
                c.session.advisory_lock(lock, true)?;
                Ok(Value::text(""))
            });
            $r.f(concat!("pg_try_advisory", $name), args, BOOL, VOL, |a, c| {
                let lock = AdvisoryLock { key: key(a), shared: $shared, of_transaction: $of_transaction };
                c.session.advisory_lock(lock, false).map(Value::Bool)
            });
        }
    )* };
}

/// Adds them all.
pub(super) fn register(r: &mut Registry) {
    locks! { r;
        "_lock" false false;
        "_lock_shared" true false;
        "_xact_lock" false true;
        "_xact_lock_shared" true true;
    }
    for args in [&[INT8][..], &[INT4, INT4]] {
        r.f("pg_advisory_unlock", args, BOOL, VOL, |a, c| {
            c.session.advisory_unlock(key(a), false).map(Value::Bool)
        });
        r.f("pg_advisory_unlock_shared", args, BOOL, VOL, |a, c| {
            c.session.advisory_unlock(key(a), true).map(Value::Bool)
        });
    }
    r.does(
        SESSION_LOCK,
        &[
            "pg_advisory_lock",
            "pg_advisory_lock_shared",
            "pg_try_advisory_lock",
            "pg_try_advisory_lock_shared",
        ],
    );
    r.does(
        TRANSACTION_LOCK,
        &[
            "pg_advisory_xact_lock",
            "pg_advisory_xact_lock_shared",
            "pg_try_advisory_xact_lock",
            "pg_try_advisory_xact_lock_shared",
        ],
    );
    r.does(UNLOCK, &["pg_advisory_unlock", "pg_advisory_unlock_shared"]);
    r.f("pg_advisory_unlock_all", &[], VOID, VOL, |_, c| {
        c.session.advisory_unlock_all()?;
        Ok(Value::text(""))
    });
    r.f("pg_blocking_pids", &[INT4], INT4ARRAY, VOL, |a, c| {
        c.session.blocking_pids(int4(&a[0])).map(pids)
    });
    // No transaction waits for a safe snapshot.
    r.f(
        "pg_safe_snapshot_blocking_pids",
        &[INT4],
        INT4ARRAY,
        VOL,
        |_, _| Ok(pids(vec![])),
    );
    r.f(
        "pg_isolation_test_session_is_blocked",
        &[INT4, INT4ARRAY],
        BOOL,
        VOL,
        |a, c| {
            let blocking = c.session.blocking_pids(int4(&a[0]))?;
            let of_interest = &crate::types::ops::array::of(&a[1]).items;
            let hit = |p: &i32| {
                of_interest
                    .iter()
                    .any(|i| i.as_i64() == Some(i64::from(*p)))
            };
            Ok(Value::Bool(blocking.iter().any(hit)))
        },
    );
}
