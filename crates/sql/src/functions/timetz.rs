//! Functions and operators of `time with time zone`. Its form stands in [`base::packed::timetz`].

use super::EvalContext;
use super::datetime::zone_of;
use super::registry::{Registry, names::*};
use crate::types::cast::date_to_timestamp;
use crate::types::datetime::{USECS_PER_DAY, USECS_PER_SEC, in_range, is_infinite, overflow};
use crate::types::ops::datetime::iv;
use base::modifier::round_to;
use base::packed::timetz;
use base::{Packed, Result, Value};

type Ctx<'a, 'b> = &'a mut EvalContext<'b>;

/// Local time and seconds west.
fn parts(v: &Value) -> (i64, i32) {
    match v {
        Value::Packed(p) if p.kind() == Packed::TimeTz => timetz::parts(p.form()),
        v => panic!("{v:?} is no time with a zone"),
    }
}

fn value(local: i64, west: i32) -> Value {
    let form = timetz::form(local.rem_euclid(USECS_PER_DAY), west);
    Value::packed(Packed::TimeTz, form)
}

/// The time in UTC as a plain one, for comparisons; NULL of NULL.
pub(super) fn moment(v: &Value) -> Value {
    match v {
        Value::Null => Value::Null,
        v => {
            let (local, west) = parts(v);
            Value::Time(local + i64::from(west) * USECS_PER_SEC)
        }
    }
}

fn moved(time: &Value, by: i64) -> Value {
    let (local, west) = parts(time);
    value(local + by % USECS_PER_DAY, west)
}

fn on_date(date: &Value, time: &Value) -> Result<Value> {
    let Value::Date(d) = date else {
        panic!("{date:?} is no date");
    };
    let day = date_to_timestamp(*d)?;
    if is_infinite(day) {
        return Ok(Value::TimestampTz(day));
    }
    let (local, west) = parts(time);
    let t = day.checked_add(local + i64::from(west) * USECS_PER_SEC);
    t.filter(|t| in_range(*t))
        .map(Value::TimestampTz)
        .ok_or_else(|| overflow("date out of range for timestamp"))
}

/// The same moment's time in another zone, as that zone is now.
fn at_zone(a: &[Value], c: Ctx<'_, '_>) -> Result<Value> {
    let east = zone_of(&a[0])?.offset_at(c.now());
    let (local, west) = parts(&a[1]);
    let utc = local + i64::from(west) * USECS_PER_SEC;
    Ok(value(utc + i64::from(east) * USECS_PER_SEC, -east))
}

fn now(c: &EvalContext<'_>, precision: i32) -> Value {
    let zone = &c.settings.timezone;
    let local = zone.local(c.now()).rem_euclid(USECS_PER_DAY);
    let form = timetz::form(round_to(local, precision), -zone.offset_at(c.now()));
    Value::packed(Packed::TimeTz, form)
}

/// Adds the operators.
pub(super) fn register_operators(r: &mut Registry) {
    r.f("+", &[TIMETZ, INTERVAL], TIMETZ, IMM, |a, _| {
        Ok(moved(&a[0], iv(&a[1]).micros))
    });
    r.f("+", &[INTERVAL, TIMETZ], TIMETZ, IMM, |a, _| {
        Ok(moved(&a[1], iv(&a[0]).micros))
    });
    r.f("-", &[TIMETZ, INTERVAL], TIMETZ, IMM, |a, _| {
        Ok(moved(&a[0], -(iv(&a[1]).micros % USECS_PER_DAY)))
    });
    r.f("+", &[DATE, TIMETZ], TIMESTAMPTZ, IMM, |a, _| {
        on_date(&a[0], &a[1])
    });
    r.f("+", &[TIMETZ, DATE], TIMESTAMPTZ, IMM, |a, _| {
        on_date(&a[1], &a[0])
    });
}

/// Adds the functions.
pub(super) fn register(r: &mut Registry) {
    r.f("current_time", &[], TIMETZ, STA, |_, c| Ok(now(c, -1)));
    r.f("current_time", &[INT4], TIMETZ, STA, |a, c| {
        let precision = a[0].as_i64().expect("an integer");
        Ok(now(c, precision as i32))
    });
    for z in [TEXT, INTERVAL] {
        r.f("timezone", &[z, TIMETZ], TIMETZ, STA, at_zone);
    }
}
