//! Arithmetic of dates, times and intervals.
//!
//! Adding an interval adds its months first (the day is cut to the month's length), then its days, then its time; for
//! `timestamptz` months and days move the local clock of the session's zone.

use crate::functions::EvalContext;
use crate::types::OutputSettings;
use crate::types::cast::date_to_timestamp;
use crate::types::datetime::{
    END_DATE, Fields, MIN_DATE, USECS_PER_DAY, calendar, in_range, is_infinite, overflow,
};
use base::{Error, Interval, Result, Value};

type Ctx<'a, 'b> = &'a mut EvalContext<'b>;

fn ts(v: &Value) -> i64 {
    match v {
        Value::Timestamp(t) | Value::TimestampTz(t) | Value::Time(t) => *t,
        v => panic!("{v:?} is no timestamp"),
    }
}

fn date(v: &Value) -> i32 {
    match v {
        Value::Date(d) => *d,
        v => panic!("{v:?} is no date"),
    }
}

/// The interval in a value.
pub fn iv(v: &Value) -> &Interval {
    match v {
        Value::Interval(i) => i,
        v => panic!("{v:?} is no interval"),
    }
}

fn value(i: Interval) -> Value {
    Value::Interval(Box::new(i))
}

fn out_of_range(what: &str) -> Error {
    overflow(format!("{what} out of range"))
}

fn interval_range() -> Error {
    out_of_range("interval")
}

/// A local time plus an interval; 22008 outside the range.
pub fn add_local(t: i64, i: &Interval) -> Result<i64> {
    if is_infinite(t) {
        return Ok(t);
    }
    let err = || out_of_range("timestamp");
    let t = add_months_days(t, i)?;
    let t = t.checked_add(i.micros).ok_or_else(err)?;
    if in_range(t) { Ok(t) } else { Err(err()) }
}

fn add_months_days(t: i64, i: &Interval) -> Result<i64> {
    let err = || out_of_range("timestamp");
    let mut t = t;
    if i.months != 0 {
        let mut f = Fields::of(t);
        let m = i64::from(f.year) * 12 + i64::from(f.month) - 1 + i64::from(i.months);
        f.year = i32::try_from(m.div_euclid(12)).map_err(|_| err())?;
        f.month = m.rem_euclid(12) as i32 + 1;
        f.day = f.day.min(calendar::days_in_month(f.year, f.month));
        t = f.to_timestamp().ok_or_else(err)?;
    }
    // From the first instant to the last one there are more microseconds than an i64 holds.
    let t = i128::from(t) + i128::from(i.days) * i128::from(USECS_PER_DAY);
    i64::try_from(t).map_err(|_| err())
}

/// An instant plus an interval, months and days by the zone's clock.
pub fn add_instant(t: i64, i: &Interval, settings: &OutputSettings) -> Result<i64> {
    if is_infinite(t) {
        return Ok(t);
    }
    let err = || out_of_range("timestamp");
    let mut t = t;
    if i.months != 0 || i.days != 0 {
        let local = add_months_days(settings.timezone.local(t), i)?;
        t = settings.timezone.instant(local);
    }
    let t = t.checked_add(i.micros).ok_or_else(err)?;
    if in_range(t) { Ok(t) } else { Err(err()) }
}

/// The interval with its signs turned; 22008 when a part has no negative.
pub fn negate(i: &Interval) -> Result<Interval> {
    let n = |x: i32| x.checked_neg().ok_or_else(interval_range);
    Ok(Interval {
        months: n(i.months)?,
        days: n(i.days)?,
        micros: i.micros.checked_neg().ok_or_else(interval_range)?,
    })
}

/// Sum of two intervals, part by part.
pub fn add_intervals(a: &Interval, b: &Interval) -> Result<Interval> {
    let n = |x: i32, y: i32| x.checked_add(y).ok_or_else(interval_range);
    Ok(Interval {
        months: n(a.months, b.months)?,
        days: n(a.days, b.days)?,
        micros: a.micros.checked_add(b.micros).ok_or_else(interval_range)?,
    })
}

/// Difference of two moments in days and time.
pub fn difference(a: i64, b: i64) -> Result<Interval> {
    if is_infinite(a) || is_infinite(b) {
        return Err(overflow("cannot subtract infinite timestamps"));
    }
    let us = a.checked_sub(b).ok_or_else(interval_range)?;
    Ok(Interval {
        months: 0,
        days: (us / USECS_PER_DAY) as i32,
        micros: us % USECS_PER_DAY,
    })
}

fn micro_round(x: f64) -> f64 {
    (x * 1e6).round_ties_even() / 1e6
}

/// An interval times a factor; fractions of months become days (30 to the month), fractions of days time.
pub fn scale(i: &Interval, factor: f64) -> Result<Interval> {
    each_part(i, |x| x * factor)
}

fn each_part(i: &Interval, change: impl Fn(f64) -> f64) -> Result<Interval> {
    let part = |x: i32| -> Result<(i32, f64)> {
        let r = change(f64::from(x));
        if r.is_nan() || r > f64::from(i32::MAX) || r < f64::from(i32::MIN) {
            return Err(interval_range());
        }
        Ok((r as i32, r))
    };
    let ((months, m), (mut days, d)) = (part(i.months)?, part(i.days)?);
    let extra_days = micro_round((m - f64::from(months)) * 30.0);
    let mut secs = (d - f64::from(days) + extra_days - extra_days.trunc()) * 86_400.0;
    secs = micro_round(secs);
    if secs.abs() >= 86_400.0 {
        let whole = (secs / 86_400.0).trunc();
        days = days.checked_add(whole as i32).ok_or_else(interval_range)?;
        secs -= whole * 86_400.0;
    }
    days = days
        .checked_add(extra_days as i32)
        .ok_or_else(interval_range)?;
    let micros = (change(i.micros as f64) + secs * 1e6).round_ties_even();
    if !(-9.223372036854775e18..=9.223372036854775e18).contains(&micros) {
        return Err(interval_range());
    }
    Ok(Interval {
        months,
        days,
        micros: micros as i64,
    })
}

fn f8(v: &Value) -> f64 {
    super::float::f64_of(v)
}

pub fn timestamp_plus_interval(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    add_local(ts(&a[0]), iv(&a[1])).map(Value::Timestamp)
}

pub fn interval_plus_timestamp(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    add_local(ts(&a[1]), iv(&a[0])).map(Value::Timestamp)
}

pub fn timestamp_minus_interval(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    add_local(ts(&a[0]), &negate(iv(&a[1]))?).map(Value::Timestamp)
}

pub fn timestamptz_plus_interval(a: &[Value], c: Ctx<'_, '_>) -> Result<Value> {
    add_instant(ts(&a[0]), iv(&a[1]), c.settings).map(Value::TimestampTz)
}

pub fn interval_plus_timestamptz(a: &[Value], c: Ctx<'_, '_>) -> Result<Value> {
    add_instant(ts(&a[1]), iv(&a[0]), c.settings).map(Value::TimestampTz)
}

pub fn timestamptz_minus_interval(a: &[Value], c: Ctx<'_, '_>) -> Result<Value> {
    add_instant(ts(&a[0]), &negate(iv(&a[1]))?, c.settings).map(Value::TimestampTz)
}

pub fn timestamp_difference(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    difference(ts(&a[0]), ts(&a[1])).map(value)
}

pub fn date_plus_interval(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    add_local(date_to_timestamp(date(&a[0]))?, iv(&a[1])).map(Value::Timestamp)
}

pub fn interval_plus_date(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    add_local(date_to_timestamp(date(&a[1]))?, iv(&a[0])).map(Value::Timestamp)
}

pub fn date_minus_interval(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    add_local(date_to_timestamp(date(&a[0]))?, &negate(iv(&a[1]))?).map(Value::Timestamp)
}

pub fn date_plus_time(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let (d, t) = match (&a[0], &a[1]) {
        (Value::Date(d), t) => (*d, ts(t)),
        (t, d) => (date(d), ts(t)),
    };
    let day = date_to_timestamp(d)?;
    if is_infinite(day) {
        return Ok(Value::Timestamp(day));
    }
    let t = day.checked_add(t).filter(|t| in_range(*t));
    t.map(Value::Timestamp)
        .ok_or_else(|| out_of_range("timestamp"))
}

fn shift_date(d: i32, n: i64) -> Result<Value> {
    if d == i32::MIN || d == i32::MAX {
        return Ok(Value::Date(d));
    }
    let r = i64::from(d) + n;
    if (MIN_DATE..END_DATE).contains(&r) {
        Ok(Value::Date(r as i32))
    } else {
        Err(out_of_range("date"))
    }
}

fn int(v: &Value) -> i64 {
    v.as_i64().expect("an integer")
}

pub fn date_plus_int(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    shift_date(date(&a[0]), int(&a[1]))
}

pub fn int_plus_date(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    shift_date(date(&a[1]), int(&a[0]))
}

pub fn date_minus_int(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    shift_date(date(&a[0]), -int(&a[1]))
}

pub fn date_difference(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let (x, y) = (date(&a[0]), date(&a[1]));
    let infinite = |d: i32| d == i32::MIN || d == i32::MAX;
    if infinite(x) || infinite(y) {
        return Err(overflow("cannot subtract infinite dates"));
    }
    Ok(Value::Int4(x.wrapping_sub(y)))
}

fn wrap(t: i128) -> Value {
    Value::Time(t.rem_euclid(i128::from(USECS_PER_DAY)) as i64)
}

pub fn time_plus_interval(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    Ok(wrap(i128::from(ts(&a[0])) + i128::from(iv(&a[1]).micros)))
}

pub fn interval_plus_time(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    Ok(wrap(i128::from(ts(&a[1])) + i128::from(iv(&a[0]).micros)))
}

pub fn time_minus_interval(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    Ok(wrap(i128::from(ts(&a[0])) - i128::from(iv(&a[1]).micros)))
}

pub fn time_difference(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    Ok(value(Interval {
        months: 0,
        days: 0,
        micros: ts(&a[0]) - ts(&a[1]),
    }))
}

pub fn interval_add(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    add_intervals(iv(&a[0]), iv(&a[1])).map(value)
}

pub fn interval_sub(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let (x, y) = (iv(&a[0]), iv(&a[1]));
    let n = |x: i32, y: i32| x.checked_sub(y).ok_or_else(interval_range);
    Ok(value(Interval {
        months: n(x.months, y.months)?,
        days: n(x.days, y.days)?,
        micros: x.micros.checked_sub(y.micros).ok_or_else(interval_range)?,
    }))
}

pub fn interval_neg(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    negate(iv(&a[0])).map(value)
}

pub fn interval_times(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    match &a[0] {
        Value::Interval(i) => scale(i, f8(&a[1])).map(value),
        x => scale(iv(&a[1]), f8(x)).map(value),
    }
}

pub fn interval_over(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let d = f8(&a[1]);
    if d == 0.0 {
        return Err(super::arith::division_by_zero());
    }
    divide(iv(&a[0]), d).map(value)
}

/// An interval divided; as [`scale`] but each part by division.
pub fn divide(i: &Interval, d: f64) -> Result<Interval> {
    each_part(i, |x| x / d)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::datetime::{interval, parse};
    use crate::types::{text, zone::Zone};
    use base::Type;

    fn show(v: Value, ty: Type, s: &OutputSettings) -> String {
        text::to_string(&v, ty, s)
    }

    #[test]
    fn months_are_cut_and_days_follow_the_local_clock() {
        let mut s = OutputSettings::default();
        let add = |t: &str, i: &str, s: &OutputSettings| {
            let t = parse::timestamp(t, -1, s).unwrap();
            show(
                Value::Timestamp(
                    add_local(
                        t,
                        &interval::parse(i, -1, crate::types::IntervalStyle::Postgres).unwrap(),
                    )
                    .unwrap(),
                ),
                Type::Timestamp,
                s,
            )
        };
        assert_eq!(add("2020-01-31", "1 month", &s), "2020-02-29 00:00:00");
        assert_eq!(add("2020-02-29", "-1 year", &s), "2019-02-28 00:00:00");
        s.timezone = Zone::parse("America/New_York").unwrap();
        let t = parse::timestamptz("2020-03-07 12:00", -1, &s).unwrap();
        let day = add_instant(
            t,
            &interval::parse("1 day", -1, crate::types::IntervalStyle::Postgres).unwrap(),
            &s,
        )
        .unwrap();
        let hours = add_instant(
            t,
            &interval::parse("24 hours", -1, crate::types::IntervalStyle::Postgres).unwrap(),
            &s,
        )
        .unwrap();
        assert_eq!(
            show(Value::TimestampTz(day), Type::TimestampTz, &s),
            "2020-03-08 12:00:00-04"
        );
        assert_eq!(
            show(Value::TimestampTz(hours), Type::TimestampTz, &s),
            "2020-03-08 13:00:00-04"
        );
    }

    #[test]
    fn intervals_scale_with_cascades() {
        let s = OutputSettings::default();
        let f = |i: &str, x: f64| {
            show(
                value(
                    scale(
                        &interval::parse(i, -1, crate::types::IntervalStyle::Postgres).unwrap(),
                        x,
                    )
                    .unwrap(),
                ),
                Type::Interval,
                &s,
            )
        };
        assert_eq!(f("1 month", 0.5), "15 days");
        assert_eq!(f("1 day", 1.5), "1 day 12:00:00");
        assert_eq!(
            f("1 year 3 days 02:00", 2.5),
            "2 years 6 mons 7 days 17:00:00"
        );
        assert_eq!(
            show(
                value(
                    divide(
                        &interval::parse("1 hour", -1, crate::types::IntervalStyle::Postgres)
                            .unwrap(),
                        1.5
                    )
                    .unwrap()
                ),
                Type::Interval,
                &s
            ),
            "00:40:00"
        );
    }
}
