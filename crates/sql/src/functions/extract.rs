//! `extract` and `date_part`: the fields of dates, times and intervals.
//!
//! `extract` gives `numeric`: seconds and epochs with six digits, milliseconds with three; `date_part` the same as `float8`.

use super::EvalContext;
use super::datetime::{bad_unit, unsupported_unit};
use super::registry::{Registry, names::*};
use crate::types::cast::{date_to_timestamp, numeric_to_f64};
use crate::types::datetime::interval::Unit;
use crate::types::datetime::{
    Fields, USECS_PER_DAY, USECS_PER_HOUR, USECS_PER_MIN, USECS_PER_SEC, calendar, is_infinite,
};
use crate::types::numeric::from_scaled;
use base::packed::timetz;
use base::{Interval, Numeric, Packed, Result, Type, Value};
use num_bigint::BigInt;

type Ctx<'a, 'b> = &'a mut EvalContext<'b>;

fn scaled(n: i128, scale: i64) -> Numeric {
    from_scaled(BigInt::from(n), scale)
}

fn whole(n: i64) -> Numeric {
    Numeric::from(n)
}

/// A field of a value; `None` is NULL (a cyclic field of an infinite time).
fn field(name: &str, v: &Value, c: &EvalContext<'_>) -> Result<Option<Numeric>> {
    match v {
        Value::Date(d) => {
            let t = date_to_timestamp(*d)?;
            let unit = Unit::parse(name);
            let clock = matches!(
                unit,
                Some(
                    Unit::Microsecond
                        | Unit::Millisecond
                        | Unit::Second
                        | Unit::Minute
                        | Unit::Hour
                )
            );
            if clock || name.starts_with("timezone") {
                return Err(unsupported_unit(name, Type::Date));
            }
            if name == "epoch" && !is_infinite(t) {
                return Ok(Some(whole(i64::from(*d) * 86_400 + 946_684_800)));
            }
            if name == "julian" && !is_infinite(t) {
                return Ok(Some(whole(i64::from(*d) + calendar::JULIAN_2000)));
            }
            moment(name, t, t, None, Type::Date)
        }
        Value::Timestamp(t) => moment(name, *t, *t, None, Type::Timestamp),
        Value::TimestampTz(t) if is_infinite(*t) => {
            moment(name, *t, *t, Some(0), Type::TimestampTz)
        }
        Value::TimestampTz(t) => {
            let east = c.settings.timezone.offset_at(*t);
            let local = t.saturating_add(i64::from(east) * USECS_PER_SEC);
            moment(name, local, *t, Some(east), Type::TimestampTz)
        }
        Value::Time(t) => time(name, *t, Type::Time),
        Value::Packed(p) if p.kind() == Packed::TimeTz => {
            let (us, west) = timetz::parts(p.form());
            time_with_zone(name, us, west)
        }
        Value::Interval(i) => interval(name, i),
        v => panic!("{v:?} has no fields"),
    }
}

fn time(name: &str, us: i64, ty: Type) -> Result<Option<Numeric>> {
    if name == "epoch" {
        return Ok(Some(scaled(us.into(), 6)));
    }
    let unit = Unit::parse(name).ok_or_else(|| bad_unit(name, ty))?;
    clock(unit, us)
        .map(Some)
        .ok_or_else(|| unsupported_unit(name, ty))
}

fn time_with_zone(name: &str, us: i64, west: i32) -> Result<Option<Numeric>> {
    let east = i64::from(-west);
    Ok(Some(match name {
        "timezone" => whole(east),
        "timezone_hour" => whole(east / 3600),
        "timezone_minute" => whole(east / 60 % 60),
        "epoch" => scaled(i128::from(us - east * USECS_PER_SEC), 6),
        _ => return time(name, us, Type::TimeTz),
    }))
}

/// Fields of the time of day.
fn clock(unit: Unit, us: i64) -> Option<Numeric> {
    let sec = i128::from(us % USECS_PER_MIN);
    Some(match unit {
        Unit::Microsecond => scaled(sec, 0),
        Unit::Millisecond => scaled(sec, 3),
        Unit::Second => scaled(sec, 6),
        Unit::Minute => whole(us % USECS_PER_HOUR / USECS_PER_MIN),
        Unit::Hour => whole(us / USECS_PER_HOUR),
        _ => return None,
    })
}

fn moment(
    name: &str,
    local: i64,
    instant: i64,
    east: Option<i32>,
    ty: Type,
) -> Result<Option<Numeric>> {
    if is_infinite(local) {
        let monotonic = matches!(name, "epoch" | "julian" | "isoyear")
            || matches!(
                Unit::parse(name),
                Some(Unit::Year | Unit::Decade | Unit::Century | Unit::Millennium)
            );
        let known = Unit::parse(name).is_some()
            || matches!(
                name,
                "dow" | "isodow" | "doy" | "timezone" | "timezone_hour" | "timezone_minute"
            );
        return match (monotonic, known) {
            (true, _) => Ok(Some(if local > 0 {
                Numeric::Infinity
            } else {
                Numeric::NegInfinity
            })),
            (false, true) => Ok(None),
            _ => Err(bad_unit(name, ty)),
        };
    }
    let f = Fields::of(local);
    let day = local.div_euclid(USECS_PER_DAY);
    let shown = |y: i32| i64::from(if y > 0 { y } else { y - 1 });
    let n = match name {
        "epoch" => return Ok(Some(scaled(i128::from(instant) + 946_684_800_000_000, 6))),
        "dow" => calendar::day_of_week(day),
        "isodow" => (calendar::day_of_week(day) + 6) % 7 + 1,
        "doy" => day - calendar::to_days(f.year, 1, 1) + 1,
        "isoyear" => shown(calendar::iso_week(day).0),
        "julian" => {
            let part = crate::types::ops::numeric::div(&whole(f.micros), &whole(USECS_PER_DAY))?;
            let days = whole(day + calendar::JULIAN_2000);
            return crate::types::ops::numeric::add(&days, &part).map(Some);
        }
        "timezone" | "timezone_hour" | "timezone_minute" => {
            let Some(e) = east else {
                return Err(unsupported_unit(name, ty));
            };
            i64::from(match name {
                "timezone" => e,
                "timezone_hour" => e / 3600,
                _ => e / 60 % 60,
            })
        }
        _ => {
            let unit = Unit::parse(name).ok_or_else(|| bad_unit(name, ty))?;
            if let Some(n) = clock(unit, f.micros) {
                return Ok(Some(n));
            }
            let y = i64::from(f.year);
            match unit {
                Unit::Day => i64::from(f.day),
                Unit::Week => i64::from(calendar::iso_week(day).1),
                Unit::Month => i64::from(f.month),
                Unit::Quarter => i64::from((f.month - 1) / 3 + 1),
                Unit::Year => shown(f.year),
                Unit::Decade => y.div_euclid(10),
                Unit::Century if y > 0 => (y + 99) / 100,
                Unit::Century => -((99 - (y - 1)) / 100),
                _ if y > 0 => (y + 999) / 1000,
                _ => -((999 - (y - 1)) / 1000),
            }
        }
    };
    Ok(Some(whole(n)))
}

fn interval(name: &str, i: &Interval) -> Result<Option<Numeric>> {
    if name == "epoch" {
        let years = i128::from(i.months / 12) * 31_557_600;
        let secs = years + i128::from(i.months % 12) * 2_592_000 + i128::from(i.days) * 86_400;
        return Ok(Some(scaled(secs * 1_000_000 + i128::from(i.micros), 6)));
    }
    let unit = Unit::parse(name).ok_or_else(|| bad_unit(name, Type::Interval))?;
    if let Some(n) = clock(unit, i.micros) {
        return Ok(Some(n));
    }
    let (years, months) = (i.months / 12, i.months % 12);
    Ok(Some(whole(i64::from(match unit {
        Unit::Day => i.days,
        Unit::Month => months,
        Unit::Quarter => months / 3 + 1,
        Unit::Year => years,
        Unit::Decade => years / 10,
        Unit::Century => years / 100,
        Unit::Millennium => years / 1000,
        _ => return Err(unsupported_unit(name, Type::Interval)),
    }))))
}

fn extract(a: &[Value], c: Ctx<'_, '_>) -> Result<Value> {
    let name = a[0].as_str().expect("text").to_lowercase();
    Ok(field(&name, &a[1], c)?.into())
}

fn date_part(a: &[Value], c: Ctx<'_, '_>) -> Result<Value> {
    let name = a[0].as_str().expect("text").to_lowercase();
    // date_part of a date goes through its timestamp, so it knows hours.
    let at_midnight;
    let v = match &a[1] {
        Value::Date(d) => {
            at_midnight = Value::Timestamp(date_to_timestamp(*d)?);
            &at_midnight
        }
        v => v,
    };
    Ok(match field(&name, v, c)? {
        Some(n) => Value::Float8(numeric_to_f64(&n)?),
        None => Value::Null,
    })
}

/// Adds both.
pub(super) fn register(r: &mut Registry) {
    for t in [DATE, TIME, TIMETZ, TIMESTAMP, TIMESTAMPTZ, INTERVAL] {
        let fl = if t == TIMESTAMPTZ { STA } else { IMM };
        r.f("extract", &[TEXT, t], NUMERIC, fl, extract);
        r.f("date_part", &[TEXT, t], FLOAT8, fl, date_part);
    }
}

#[cfg(test)]
mod tests {
    use crate::functions::testing::call;

    #[test]
    fn fields_are_those_of_postgresql() {
        let t = "2001-02-16 20:38:40.12::timestamp";
        for (unit, v, want) in [
            ("century", t, "21"),
            ("day", t, "16"),
            ("decade", t, "200"),
            ("dow", t, "5"),
            ("isodow", "2001-02-18::date", "7"),
            ("doy", t, "47"),
            ("epoch", t, "982355920.120000"),
            ("epoch", "2001-02-16::date", "982281600"),
            ("epoch", "5 days 3 hours::interval", "442800.000000"),
            ("hour", t, "20"),
            ("isoyear", "2006-01-01::date", "2005"),
            ("julian", "2006-01-01::date", "2453737"),
            (
                "julian",
                "2006-01-01 12:00::timestamp",
                "2453737.50000000000000000000",
            ),
            ("microseconds", t, "40120000"),
            ("millennium", t, "3"),
            ("milliseconds", t, "40120.000"),
            ("month", "2 years 13 months::interval", "1"),
            ("quarter", t, "1"),
            ("second", "17:12:28.5::time", "28.500000"),
            ("week", t, "7"),
            ("year", "0044-03-15 BC::date", "-44"),
            ("year", "infinity::timestamp", "Infinity"),
            ("month", "infinity::timestamp", "NULL"),
            ("timezone", "2001-02-16 20:38:40+00::timestamptz", "0"),
        ] {
            assert_eq!(call("extract", &[unit, v]), want, "{unit} of {v}");
        }
        assert_eq!(call("date_part", &["second", t]), "40.12");
        assert!(
            call("extract", &["hour", "2001-01-01::date"])
                .contains("0A000: unit \"hour\" not supported for type date")
        );
        assert!(call("extract", &["nope", t]).contains("22023: unit \"nope\" not recognized"));
    }
}
