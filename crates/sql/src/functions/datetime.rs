//! Functions of dates and times: the clock, truncation, construction, zones.

use super::EvalContext;
use super::registry::{Registry, names::*};
use super::to_char;
use crate::types::cast::{date_to_timestamp, timestamp_to_date};
use crate::types::datetime::interval::Unit;
use crate::types::datetime::{
    Fields, USECS_PER_DAY, USECS_PER_HOUR, USECS_PER_MIN, USECS_PER_SEC, calendar, in_range,
    is_infinite, overflow, parse,
};
use crate::types::ops::datetime::iv;
use crate::types::ops::float::f64_of;
use crate::types::typename::format_type;
use crate::types::zone::Zone;
use base::modifier::round_to;
use base::{Error, Interval, Result, SqlState, Type, Value};

type Ctx<'a, 'b> = &'a mut EvalContext<'b>;

fn ts(v: &Value) -> i64 {
    match v {
        Value::Timestamp(t) | Value::TimestampTz(t) | Value::Time(t) => *t,
        v => panic!("{v:?} is no timestamp"),
    }
}

fn int(v: &Value) -> i32 {
    v.as_i64().expect("an integer") as i32
}

fn interval(months: i32, days: i32, micros: i64) -> Value {
    Value::Interval(Box::new(Interval {
        months,
        days,
        micros,
    }))
}

/// 22023 `unit "x" not recognized for type …`.
pub(super) fn bad_unit(unit: &str, ty: Type) -> Error {
    Error::new(
        SqlState::INVALID_PARAMETER_VALUE,
        format!(
            "unit \"{unit}\" not recognized for type {}",
            format_type(ty, -1)
        ),
    )
}

/// 0A000 `unit "x" not supported for type …`.
pub(super) fn unsupported_unit(unit: &str, ty: Type) -> Error {
    Error::unsupported("").message(format!(
        "unit \"{unit}\" not supported for type {}",
        format_type(ty, -1)
    ))
}

/// Cuts a local time to a unit.
fn trunc_local(t: i64, unit: Unit) -> Option<i64> {
    let mut f = Fields::of(t);
    let cut = |us: i64, f: &mut Fields| f.micros -= f.micros % us;
    match unit {
        Unit::Microsecond => {}
        Unit::Millisecond => cut(1000, &mut f),
        Unit::Second => cut(USECS_PER_SEC, &mut f),
        Unit::Minute => cut(USECS_PER_MIN, &mut f),
        Unit::Hour => cut(USECS_PER_HOUR, &mut f),
        Unit::Day => f.micros = 0,
        Unit::Week => {
            let day = t.div_euclid(USECS_PER_DAY);
            return (day - (calendar::day_of_week(day) + 6) % 7).checked_mul(USECS_PER_DAY);
        }
        _ => {
            f.micros = 0;
            f.day = 1;
            let years = |n: i32, y: i32| {
                if y > 0 {
                    (y + n - 1) / n * n - (n - 1)
                } else {
                    -((n - 1 - (y - 1)) / n) * n + 1
                }
            };
            match unit {
                Unit::Quarter => f.month = (f.month - 1) / 3 * 3 + 1,
                Unit::Month => {}
                _ => {
                    f.month = 1;
                    f.year = match unit {
                        Unit::Year => f.year,
                        Unit::Decade => f.year.div_euclid(10) * 10,
                        Unit::Century => years(100, f.year),
                        _ => years(1000, f.year),
                    };
                }
            }
        }
    }
    f.to_timestamp()
}

fn trunc_unit(v: &Value, ty: Type) -> Result<Unit> {
    let name = v.as_str().expect("text").to_lowercase();
    Unit::parse(&name).ok_or_else(|| bad_unit(&name, ty))
}

fn date_trunc(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let unit = trunc_unit(&a[0], Type::Timestamp)?;
    let t = ts(&a[1]);
    if is_infinite(t) {
        return Ok(a[1].clone());
    }
    let r = trunc_local(t, unit).ok_or_else(|| overflow("timestamp out of range"))?;
    Ok(Value::Timestamp(r))
}

fn date_trunc_tz(a: &[Value], c: Ctx<'_, '_>) -> Result<Value> {
    let unit = trunc_unit(&a[0], Type::TimestampTz)?;
    let t = ts(&a[1]);
    if is_infinite(t) {
        return Ok(a[1].clone());
    }
    let named = a
        .get(2)
        .map(|z| Zone::parse(z.as_str().expect("text")))
        .transpose()?;
    let zone = named.as_ref().unwrap_or(&c.settings.timezone);
    let east = i64::from(zone.offset_at(t)) * USECS_PER_SEC;
    let local = trunc_local(t + east, unit).ok_or_else(|| overflow("timestamp out of range"))?;
    let small = matches!(
        unit,
        Unit::Microsecond | Unit::Millisecond | Unit::Second | Unit::Minute | Unit::Hour
    );
    Ok(Value::TimestampTz(if small {
        local - east
    } else {
        zone.instant(local)
    }))
}

fn date_trunc_interval(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let unit = trunc_unit(&a[0], Type::Interval)?;
    let i = iv(&a[1]);
    let months = |n: i32| interval(i.months / n * n, 0, 0);
    let time = |us: i64| interval(i.months, i.days, i.micros / us * us);
    Ok(match unit {
        Unit::Microsecond => time(1),
        Unit::Millisecond => time(1000),
        Unit::Second => time(USECS_PER_SEC),
        Unit::Minute => time(USECS_PER_MIN),
        Unit::Hour => time(USECS_PER_HOUR),
        Unit::Day => interval(i.months, i.days, 0),
        Unit::Week => {
            return Err(unsupported_unit("week", Type::Interval)
                .detail("Months usually have fractional weeks."));
        }
        Unit::Month => months(1),
        Unit::Quarter => months(3),
        Unit::Year => months(12),
        Unit::Decade => months(120),
        Unit::Century => months(1200),
        Unit::Millennium => months(12_000),
    })
}

/// `date_bin(stride, source, origin)`.
fn date_bin(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let (stride, t, origin) = (iv(&a[0]), ts(&a[1]), ts(&a[2]));
    if is_infinite(t) {
        return Ok(a[1].clone());
    }
    if is_infinite(origin) {
        return Err(overflow("origin out of range"));
    }
    if stride.months != 0 {
        return Err(Error::unsupported("")
            .message("timestamps cannot be binned into intervals containing months or years"));
    }
    let us = i64::from(stride.days)
        .checked_mul(USECS_PER_DAY)
        .and_then(|us| us.checked_add(stride.micros))
        .ok_or_else(|| overflow("interval out of range"))?;
    if us <= 0 {
        return Err(overflow("stride must be greater than zero"));
    }
    let since = t
        .checked_sub(origin)
        .ok_or_else(|| overflow("interval out of range"))?;
    let (origin, us) = (i128::from(origin), i128::from(us));
    let r = i64::try_from(origin + i128::from(since).div_euclid(us) * us).ok();
    let r = r
        .filter(|r| crate::types::datetime::in_range(*r))
        .ok_or_else(|| overflow("timestamp out of range"))?;
    Ok(match a[1] {
        Value::TimestampTz(_) => Value::TimestampTz(r),
        _ => Value::Timestamp(r),
    })
}

/// Years, months and days between two local times, as people count them.
fn age(x: i64, y: i64) -> Result<Value> {
    if is_infinite(x) || is_infinite(y) {
        return Err(overflow("cannot subtract infinite timestamps"));
    }
    let (a, b) = (Fields::of(x), Fields::of(y));
    let sign = if x < y { -1 } else { 1 };
    let mut years = sign * (a.year - b.year);
    let mut months = sign * (a.month - b.month);
    let mut days = sign * (a.day - b.day);
    let mut micros = i64::from(sign) * (a.micros - b.micros);
    if micros < 0 {
        micros += USECS_PER_DAY;
        days -= 1;
    }
    while days < 0 {
        let (year, month) = if sign < 0 {
            (a.year, a.month)
        } else {
            (b.year, b.month)
        };
        days += calendar::days_in_month(year, month);
        months -= 1;
    }
    while months < 0 {
        months += 12;
        years -= 1;
    }
    Ok(interval(
        sign * (years * 12 + months),
        sign * days,
        i64::from(sign) * micros,
    ))
}

fn today(c: &EvalContext<'_>) -> i64 {
    let zone = &c.settings.timezone;
    zone.local(c.now()).div_euclid(USECS_PER_DAY) * USECS_PER_DAY
}

fn make_date(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let f = date_fields(a)?;
    let days = calendar::to_days(f.year, f.month, f.day);
    Ok(Value::Date(
        i32::try_from(days).map_err(|_| overflow("date out of range"))?,
    ))
}

fn date_fields(a: &[Value]) -> Result<Fields> {
    let (y, m, d) = (int(&a[0]), int(&a[1]), int(&a[2]));
    let year = if y < 0 { y + 1 } else { y };
    let ok = y != 0
        && (-4713..=5_874_897).contains(&y)
        && (1..=12).contains(&m)
        && (1..=calendar::days_in_month(year, m)).contains(&d);
    if !ok {
        return Err(overflow(format!(
            "date field value out of range: {y}-{m:02}-{d:02}"
        )));
    }
    Ok(Fields {
        year,
        month: m,
        day: d,
        micros: 0,
    })
}

fn time_of(a: &[Value]) -> Result<i64> {
    let (h, m, s) = (int(&a[0]), int(&a[1]), f64_of(&a[2]));
    let us = (s * 1e6).round_ties_even();
    let ok = (0..=24).contains(&h)
        && (0..=59).contains(&m)
        && (0.0..=60_000_000.0).contains(&us)
        && (h < 24 || (m == 0 && us == 0.0));
    if !ok {
        return Err(overflow(format!(
            "time field value out of range: {h}:{m:02}:{s:02}"
        )));
    }
    Ok(i64::from(h) * USECS_PER_HOUR + i64::from(m) * USECS_PER_MIN + us as i64)
}

fn make_local(a: &[Value]) -> Result<i64> {
    let mut f = date_fields(&a[..3])?;
    f.micros = time_of(&a[3..6])?;
    parse::make_timestamp(f)
}

/// `make_interval(years, months, weeks, days, hours, mins, secs)`, any number of them.
fn make_interval(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let n = |i: usize| a.get(i).map_or(0, |v| i64::from(int(v)));
    let secs = a.get(6).map_or(0.0, f64_of);
    let err = || overflow("interval out of range");
    if !secs.is_finite() {
        return Err(err());
    }
    let months = i32::try_from(n(0) * 12 + n(1)).map_err(|_| err())?;
    let days = i32::try_from(n(2) * 7 + n(3)).map_err(|_| err())?;
    let micros = i128::from(n(4) * USECS_PER_HOUR + n(5) * USECS_PER_MIN)
        + (secs * 1e6).round_ties_even() as i128;
    let micros = i64::try_from(micros).map_err(|_| err())?;
    Ok(interval(months, days, micros))
}

/// The sum of two parts of an interval; 22008 when it is no number of 32 bits.
fn part(a: i32, b: i64) -> Result<i32> {
    let sum = i64::from(a).checked_add(b);
    sum.and_then(|n| i32::try_from(n).ok())
        .ok_or_else(|| overflow("interval out of range"))
}

fn justify_days(i: &Interval) -> Result<Interval> {
    let mut r = Interval {
        months: part(i.months, i64::from(i.days / 30))?,
        days: i.days % 30,
        micros: i.micros,
    };
    if r.months > 0 && r.days < 0 {
        r.days += 30;
        r.months -= 1;
    } else if r.months < 0 && r.days > 0 {
        r.days -= 30;
        r.months += 1;
    }
    Ok(r)
}

fn justify_hours(i: &Interval) -> Result<Interval> {
    let mut r = Interval {
        months: i.months,
        days: part(i.days, i.micros / USECS_PER_DAY)?,
        micros: i.micros % USECS_PER_DAY,
    };
    if r.days > 0 && r.micros < 0 {
        r.micros += USECS_PER_DAY;
        r.days -= 1;
    } else if r.days < 0 && r.micros > 0 {
        r.micros -= USECS_PER_DAY;
        r.days += 1;
    }
    Ok(r)
}

fn justify_interval(i: &Interval) -> Result<Interval> {
    // Whole months leave the days first where days and hours have one sign, so that their sum has room.
    let mut r = *i;
    if (r.days > 0 && r.micros > 0) || (r.days < 0 && r.micros < 0) {
        r.months = part(r.months, i64::from(r.days / 30))?;
        r.days %= 30;
    }
    let mut r = justify_days(&justify_hours(&r)?)?;
    let positive = |r: &Interval| r.months > 0 || (r.months == 0 && r.days > 0);
    let negative = |r: &Interval| r.months < 0 || (r.months == 0 && r.days < 0);
    if r.months > 0 && (r.days < 0 || (r.days == 0 && r.micros < 0)) {
        r.days += 30;
        r.months -= 1;
    } else if r.months < 0 && (r.days > 0 || (r.days == 0 && r.micros > 0)) {
        r.days -= 30;
        r.months += 1;
    }
    if positive(&r) && r.micros < 0 {
        r.micros += USECS_PER_DAY;
        r.days -= 1;
    } else if negative(&r) && r.micros > 0 {
        r.micros -= USECS_PER_DAY;
        r.days += 1;
    }
    Ok(r)
}

pub(super) fn zone_of(v: &Value) -> Result<Zone> {
    match v {
        Value::Interval(i) if i.months != 0 || i.days != 0 => Err(Error::new(
            SqlState::INVALID_PARAMETER_VALUE,
            "interval time zone must not include months or days",
        )),
        Value::Interval(i) => Ok(Zone::fixed((i.micros / USECS_PER_SEC) as i32)),
        v => Zone::parse(v.as_str().expect("text")),
    }
}

fn at_zone(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let zone = zone_of(&a[0])?;
    Ok(match &a[1] {
        v @ (Value::Timestamp(t) | Value::TimestampTz(t)) if is_infinite(*t) => match v {
            Value::Timestamp(_) => Value::TimestampTz(*t),
            _ => Value::Timestamp(*t),
        },
        Value::Timestamp(t) => Value::TimestampTz(zone.instant(*t)),
        Value::TimestampTz(t) => Value::Timestamp(zone.local(*t)),
        v => panic!("{v:?} is no timestamp"),
    })
}

fn to_timestamp(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let s = f64_of(&a[0]);
    if s.is_infinite() {
        return Ok(Value::TimestampTz(if s > 0.0 {
            i64::MAX
        } else {
            i64::MIN
        }));
    }
    let us = (s - 946_684_800.0) * 1e6;
    let t = us.round_ties_even();
    if s.is_nan() || t.abs() > 9.2e18 || !in_range(t as i64) {
        return Err(overflow(format!("timestamp out of range: \"{s}\"")));
    }
    Ok(Value::TimestampTz(t as i64))
}

fn finite(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    Ok(Value::Bool(match &a[0] {
        Value::Date(d) => *d != i32::MIN && *d != i32::MAX,
        Value::Interval(_) => true,
        v => !is_infinite(ts(v)),
    }))
}

fn local_now(c: &EvalContext<'_>) -> i64 {
    c.settings.timezone.local(c.now())
}

fn clock(r: &mut Registry) {
    for n in ["now", "current_timestamp", "transaction_timestamp"] {
        r.f(n, &[], TIMESTAMPTZ, STA, |_, c| {
            Ok(Value::TimestampTz(c.now()))
        });
    }
    r.f("current_timestamp", &[INT4], TIMESTAMPTZ, STA, |a, c| {
        Ok(Value::TimestampTz(round_to(c.now(), int(&a[0]))))
    });
    r.f("statement_timestamp", &[], TIMESTAMPTZ, STA, |_, c| {
        Ok(Value::TimestampTz(c.session.statement_timestamp()))
    });
    r.f("clock_timestamp", &[], TIMESTAMPTZ, VOL, |_, c| {
        Ok(Value::TimestampTz(c.session.clock_timestamp()))
    });
    r.f("timeofday", &[], TEXT, VOL, |_, c| {
        let t = Value::TimestampTz(c.session.clock_timestamp());
        let f = Value::text("Dy Mon DD HH24:MI:SS.US YYYY TZ");
        to_char::moment(&[t, f], c)
    });
    r.f("current_date", &[], DATE, STA, |_, c| {
        Ok(Value::Date(timestamp_to_date(local_now(c))))
    });
    r.f("localtime", &[], TIME, STA, |_, c| {
        Ok(Value::Time(local_now(c).rem_euclid(USECS_PER_DAY)))
    });
    r.f("localtime", &[INT4], TIME, STA, |a, c| {
        Ok(Value::Time(round_to(
            local_now(c).rem_euclid(USECS_PER_DAY),
            int(&a[0]),
        )))
    });
    r.f("localtimestamp", &[], TIMESTAMP, STA, |_, c| {
        Ok(Value::Timestamp(local_now(c)))
    });
    r.f("localtimestamp", &[INT4], TIMESTAMP, STA, |a, c| {
        Ok(Value::Timestamp(round_to(local_now(c), int(&a[0]))))
    });
    r.f("pg_postmaster_start_time", &[], TIMESTAMPTZ, STA, |_, c| {
        Ok(Value::TimestampTz(c.session.server_start()))
    });
}

/// `make_date` and its kin: values made of numbers.
fn makers(r: &mut Registry) {
    r.f("make_date", &[INT4, INT4, INT4], DATE, IMM, make_date);
    r.f("make_time", &[INT4, INT4, FLOAT8], TIME, IMM, |a, _| {
        time_of(a).map(Value::Time)
    });
    let six = [INT4, INT4, INT4, INT4, INT4, FLOAT8];
    r.f("make_timestamp", &six, TIMESTAMP, IMM, |a, _| {
        make_local(a).map(Value::Timestamp)
    });
    r.f("make_timestamptz", &six, TIMESTAMPTZ, STA, |a, c| {
        Ok(Value::TimestampTz(
            c.settings.timezone.instant(make_local(a)?),
        ))
    });
    r.f(
        "make_timestamptz",
        &[INT4, INT4, INT4, INT4, INT4, FLOAT8, TEXT],
        TIMESTAMPTZ,
        STA,
        |a, _| {
            let zone = Zone::east(a[6].as_str().expect("text"))?;
            Ok(Value::TimestampTz(zone.instant(make_local(a)?)))
        },
    );
    let seven = [INT4, INT4, INT4, INT4, INT4, INT4, FLOAT8];
    for n in 0..=7 {
        r.f("make_interval", &seven[..n], INTERVAL, IMM, make_interval);
    }
}

/// Adds the functions of dates and times.
pub(super) fn register(r: &mut Registry) {
    clock(r);
    super::extract::register(r);
    to_char::register(r);
    r.f("date_trunc", &[TEXT, TIMESTAMP], TIMESTAMP, IMM, date_trunc);
    r.f(
        "date_trunc",
        &[TEXT, TIMESTAMPTZ],
        TIMESTAMPTZ,
        STA,
        date_trunc_tz,
    );
    r.f(
        "date_trunc",
        &[TEXT, TIMESTAMPTZ, TEXT],
        TIMESTAMPTZ,
        STA,
        date_trunc_tz,
    );
    r.f(
        "date_trunc",
        &[TEXT, INTERVAL],
        INTERVAL,
        IMM,
        date_trunc_interval,
    );
    r.f(
        "date_bin",
        &[INTERVAL, TIMESTAMP, TIMESTAMP],
        TIMESTAMP,
        IMM,
        date_bin,
    );
    r.f(
        "date_bin",
        &[INTERVAL, TIMESTAMPTZ, TIMESTAMPTZ],
        TIMESTAMPTZ,
        IMM,
        date_bin,
    );
    r.f("age", &[TIMESTAMP, TIMESTAMP], INTERVAL, IMM, |a, _| {
        age(ts(&a[0]), ts(&a[1]))
    });
    r.f("age", &[TIMESTAMP], INTERVAL, STA, |a, c| {
        age(today(c), ts(&a[0]))
    });
    r.f("age", &[TIMESTAMPTZ, TIMESTAMPTZ], INTERVAL, STA, |a, c| {
        let z = &c.settings.timezone;
        age(z.local(ts(&a[0])), z.local(ts(&a[1])))
    });
    r.f("age", &[TIMESTAMPTZ], INTERVAL, STA, |a, c| {
        age(today(c), c.settings.timezone.local(ts(&a[0])))
    });
    makers(r);
    let justify: [(&str, super::ScalarFn); 3] = [
        ("justify_days", |a, _| {
            Ok(Value::Interval(Box::new(justify_days(iv(&a[0]))?)))
        }),
        ("justify_hours", |a, _| {
            Ok(Value::Interval(Box::new(justify_hours(iv(&a[0]))?)))
        }),
        ("justify_interval", |a, _| {
            Ok(Value::Interval(Box::new(justify_interval(iv(&a[0]))?)))
        }),
    ];
    for (n, f) in justify {
        r.f(n, &[INTERVAL], INTERVAL, IMM, f);
    }
    for t in [DATE, TIMESTAMP, TIMESTAMPTZ, INTERVAL] {
        r.f("isfinite", &[t], BOOL, IMM, finite);
    }
    for z in [TEXT, INTERVAL] {
        r.f("timezone", &[z, TIMESTAMP], TIMESTAMPTZ, IMM, at_zone);
        r.f("timezone", &[z, TIMESTAMPTZ], TIMESTAMP, IMM, at_zone);
    }
    r.f("to_timestamp", &[FLOAT8], TIMESTAMPTZ, IMM, to_timestamp);
    r.f("date", &[TIMESTAMP], DATE, IMM, |a, _| {
        Ok(Value::Date(timestamp_to_date(ts(&a[0]))))
    });
    r.f("datetime_pl", &[DATE, TIME], TIMESTAMP, IMM, |a, _| {
        let Value::Date(d) = a[0] else {
            panic!("a date")
        };
        Ok(Value::Timestamp(
            date_to_timestamp(d)?.saturating_add(ts(&a[1])),
        ))
    });
}

#[cfg(test)]
mod tests {
    use crate::functions::testing::{call, call_in};
    use crate::types::OutputSettings;
    use crate::types::zone::Zone;

    #[test]
    fn results_are_those_of_postgresql() {
        let t = "2001-02-16 20:38:40.123::timestamp";
        for (f, args, want) in [
            ("date_trunc", &["hour", t][..], "2001-02-16 20:00:00"),
            ("date_trunc", &["week", t], "2001-02-12 00:00:00"),
            ("date_trunc", &["quarter", t], "2001-01-01 00:00:00"),
            ("date_trunc", &["decade", t], "2000-01-01 00:00:00"),
            ("date_trunc", &["century", t], "2001-01-01 00:00:00"),
            (
                "date_trunc",
                &["day", "3 days 02:47:33::interval"],
                "3 days",
            ),
            (
                "date_bin",
                &["15 minutes", t, "2001-01-01::timestamp"],
                "2001-02-16 20:30:00",
            ),
            (
                "age",
                &["2001-04-10::timestamp", "1957-06-13::timestamp"],
                "43 years 9 mons 27 days",
            ),
            (
                "age",
                &["1957-06-13::timestamp", "2001-04-10::timestamp"],
                "-43 years -9 mons -27 days",
            ),
            ("make_date", &["#2013", "#7", "#15"], "2013-07-15"),
            ("make_time", &["#8", "#15", "23.5"], "08:15:23.5"),
            ("make_interval", &["#0", "#0", "#0", "#10"], "10 days"),
            (
                "justify_interval",
                &["1 mon -1 hour::interval"],
                "29 days 23:00:00",
            ),
            ("justify_hours", &["27 hours::interval"], "1 day 03:00:00"),
            (
                "timezone",
                &["America/Denver", "2001-02-16 20:38:40::timestamp"],
                "2001-02-17 03:38:40+00",
            ),
            (
                "timezone",
                &["America/Denver", "2001-02-16 20:38:40-05::timestamptz"],
                "2001-02-16 18:38:40",
            ),
            (
                "to_timestamp",
                &["1284352323.5::float8"],
                "2010-09-13 04:32:03.5+00",
            ),
            ("isfinite", &["infinity::date"], "f"),
        ] {
            assert_eq!(call(f, args), want, "{f}{args:?}");
        }
        assert_eq!(
            call("date_trunc", &["fortnight", t]),
            "22023: unit \"fortnight\" not recognized for type timestamp without time zone"
        );
        assert_eq!(
            call("make_date", &["#2013", "#2", "#30"]),
            "22008: date field value out of range: 2013-02-30"
        );
    }

    #[test]
    fn days_begin_at_local_midnight() {
        let s = OutputSettings {
            timezone: Zone::parse("America/New_York").unwrap(),
            ..OutputSettings::default()
        };
        assert_eq!(
            call_in(
                "date_trunc",
                &["day", "2020-03-08 12:00:00::timestamptz"],
                &s
            ),
            "2020-03-08 00:00:00-05"
        );
    }
}
