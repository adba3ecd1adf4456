//! `(start, end) OVERLAPS (start, end)`: whether two periods have a moment in common. An end may be an interval after its start.
//!
//! A period begins with the smaller of its two and does not hold its end, unless it is a single moment. NULL counts as not known:
//! the answer is NULL only when it depends on it.

use super::EvalContext;
use super::registry::{Registry, names::*};
use crate::types::ops::datetime;
use base::{Result, Value};

type Ctx<'a, 'b> = &'a mut EvalContext<'b>;

pub fn register(r: &mut Registry) {
    for t in [TIME, TIMESTAMP, TIMESTAMPTZ] {
        for first in [t, INTERVAL] {
            for second in [t, INTERVAL] {
                r.f("overlaps", &[t, first, t, second], BOOL, STA_N, overlaps);
            }
        }
    }
    let zoned = [TIMETZ, TIMETZ, TIMETZ, TIMETZ];
    r.f("overlaps", &zoned, BOOL, IMM_N, |a, c| {
        overlaps(&a.iter().map(super::timetz::moment).collect::<Vec<_>>(), c)
    });
}

/// Start and, where it is known, end; nothing when neither is.
fn period(start: &Value, end: &Value, c: Ctx<'_, '_>) -> Result<Option<(i64, Option<i64>)>> {
    let moment = |v: &Value| match v {
        Value::Time(t) | Value::Timestamp(t) | Value::TimestampTz(t) => Some(*t),
        _ => None,
    };
    let pair = [start.clone(), end.clone()];
    let end = match (start, end) {
        (Value::Time(_), Value::Interval(_)) => moment(&datetime::time_plus_interval(&pair, c)?),
        (Value::Timestamp(_), Value::Interval(_)) => {
            moment(&datetime::timestamp_plus_interval(&pair, c)?)
        }
        (Value::TimestampTz(_), Value::Interval(_)) => {
            moment(&datetime::timestamptz_plus_interval(&pair, c)?)
        }
        (_, end) => moment(end),
    };
    Ok(match (moment(start), end) {
        (Some(s), Some(e)) => Some((s.min(e), Some(s.max(e)))),
        (Some(one), None) | (None, Some(one)) => Some((one, None)),
        (None, None) => None,
    })
}

fn overlaps(a: &[Value], c: Ctx<'_, '_>) -> Result<Value> {
    let (Some(a), Some(b)) = (period(&a[0], &a[1], c)?, period(&a[2], &a[3], c)?) else {
        return Ok(Value::Null);
    };
    let (early, late) = if a.0 <= b.0 { (a, b) } else { (b, a) };
    let answer = match (early.1, late.1) {
        _ if early.0 == late.0 => (early.1.is_some() && late.1.is_some()).then_some(true),
        (None, _) => None,
        (Some(end), _) if late.0 < end => Some(true),
        (_, None) => None,
        _ => Some(false),
    };
    Ok(answer.map_or(Value::Null, Value::Bool))
}
