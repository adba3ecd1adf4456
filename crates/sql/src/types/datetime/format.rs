//! Writing dates, times and intervals in the session's style.

use super::{
    Fields, USECS_PER_DAY, USECS_PER_HOUR, USECS_PER_MIN, USECS_PER_SEC, calendar, is_infinite,
};
use crate::types::{DateOrder, DateStyle, IntervalStyle, OutputSettings};
use base::Interval;
use std::fmt::Write;

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];
const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];

macro_rules! put {
    ($out:expr, $($arg:tt)*) => { write!($out, $($arg)*).expect("writing to a string") };
}

/// `+02`, `-03:30`: an offset in seconds east.
pub fn offset(seconds: i32, out: &mut String) {
    let s = seconds.abs();
    let sign = if seconds < 0 { '-' } else { '+' };
    put!(out, "{sign}{:02}", s / 3600);
    if s % 3600 != 0 {
        put!(out, ":{:02}", s / 60 % 60);
    }
    if s % 60 != 0 {
        put!(out, ":{:02}", s % 60);
    }
}

/// A date; `i32::MIN` and `i32::MAX` are the infinities.
pub fn date(days: i32, settings: &OutputSettings, out: &mut String) {
    match days {
        i32::MIN => return out.push_str("-infinity"),
        i32::MAX => return out.push_str("infinity"),
        _ => {}
    }
    let (y, m, d) = calendar::from_days(i64::from(days));
    ymd(y, m, d, settings, out);
    if y <= 0 {
        out.push_str(" BC");
    }
}

fn ymd(year: i32, m: i32, d: i32, settings: &OutputSettings, out: &mut String) {
    let y = if year > 0 { year } else { 1 - year };
    let dmy = settings.date_order == DateOrder::Dmy;
    match settings.datestyle {
        DateStyle::Iso => put!(out, "{y:04}-{m:02}-{d:02}"),
        DateStyle::Sql if dmy => put!(out, "{d:02}/{m:02}/{y:04}"),
        DateStyle::Sql => put!(out, "{m:02}/{d:02}/{y:04}"),
        DateStyle::German => put!(out, "{d:02}.{m:02}.{y:04}"),
        DateStyle::Postgres if dmy => put!(out, "{d:02}-{m:02}-{y:04}"),
        DateStyle::Postgres => put!(out, "{m:02}-{d:02}-{y:04}"),
    }
}

/// A time of day in microseconds.
pub fn time(micros: i64, out: &mut String) {
    let (h, m, s) = (
        micros / USECS_PER_HOUR,
        micros / USECS_PER_MIN % 60,
        micros / USECS_PER_SEC % 60,
    );
    put!(out, "{h:02}:{m:02}:{s:02}");
    fraction(micros % USECS_PER_SEC, out);
}

fn fraction(micros: i64, out: &mut String) {
    if micros != 0 {
        let digits = format!("{micros:06}");
        out.push('.');
        out.push_str(digits.trim_end_matches('0'));
    }
}

/// A timestamp without time zone.
pub fn timestamp(t: i64, settings: &OutputSettings, out: &mut String) {
    moment(t, None, settings, out);
}

/// A timestamp with time zone, shown in the session's zone.
pub fn timestamptz(t: i64, settings: &OutputSettings, out: &mut String) {
    moment(t, Some(()), settings, out);
}

fn moment(t: i64, zoned: Option<()>, settings: &OutputSettings, out: &mut String) {
    if is_infinite(t) {
        return out.push_str(if t < 0 { "-infinity" } else { "infinity" });
    }
    let zone = &settings.timezone;
    let east = zoned.map(|()| zone.offset_at(t));
    let local = t.saturating_add(i64::from(east.unwrap_or(0)) * USECS_PER_SEC);
    let f = Fields::of(local);
    let zone_text = |out: &mut String| {
        if east.is_some() {
            out.push(' ');
            out.push_str(&zone.abbreviation_at(t));
        }
    };
    match settings.datestyle {
        DateStyle::Iso => {
            ymd(f.year, f.month, f.day, settings, out);
            out.push(' ');
            time(f.micros, out);
            if let Some(e) = east {
                offset(e, out);
            }
        }
        DateStyle::Sql | DateStyle::German => {
            ymd(f.year, f.month, f.day, settings, out);
            out.push(' ');
            time(f.micros, out);
            zone_text(out);
        }
        DateStyle::Postgres => {
            let dow = calendar::day_of_week(local.div_euclid(USECS_PER_DAY));
            out.push_str(DAYS[dow as usize]);
            let month = MONTHS[f.month as usize - 1];
            if settings.date_order == DateOrder::Dmy {
                put!(out, " {:02} {month} ", f.day);
            } else {
                put!(out, " {month} {:02} ", f.day);
            }
            time(f.micros, out);
            let y = if f.year > 0 { f.year } else { 1 - f.year };
            put!(out, " {y:04}");
            zone_text(out);
        }
    }
    if f.year <= 0 {
        out.push_str(" BC");
    }
}

/// An interval.
pub fn interval(i: &Interval, settings: &OutputSettings, out: &mut String) {
    match settings.intervalstyle {
        IntervalStyle::Postgres => postgres(i, out),
        IntervalStyle::PostgresVerbose => verbose(i, out),
        IntervalStyle::SqlStandard => sql_standard(i, out),
        IntervalStyle::Iso8601 => iso_8601(i, out),
    }
}

fn postgres(i: &Interval, out: &mut String) {
    let (mut first, mut before_negative) = (true, false);
    for (n, unit) in [
        (i.months / 12, "year"),
        (i.months % 12, "mon"),
        (i.days, "day"),
    ] {
        if n != 0 {
            let space = if first { "" } else { " " };
            let plus = if before_negative && n > 0 { "+" } else { "" };
            let s = if n == 1 { "" } else { "s" };
            put!(out, "{space}{plus}{n} {unit}{s}");
            (first, before_negative) = (false, n < 0);
        }
    }
    if first || i.micros != 0 {
        let space = if first { "" } else { " " };
        let sign = match i.micros {
            m if m < 0 => "-",
            _ if before_negative => "+",
            _ => "",
        };
        put!(out, "{space}{sign}");
        clock(i.micros.unsigned_abs(), out);
    }
}

fn clock(us: u64, out: &mut String) {
    put!(
        out,
        "{:02}:{:02}:{:02}",
        us / 3_600_000_000,
        us / 60_000_000 % 60,
        us / 1_000_000 % 60
    );
    fraction((us % 1_000_000) as i64, out);
}

fn verbose(i: &Interval, out: &mut String) {
    out.push('@');
    let (mut empty, mut ago) = (true, false);
    let us = i.micros;
    for (n, unit) in [
        (i64::from(i.months / 12), "year"),
        (i64::from(i.months % 12), "mon"),
        (i64::from(i.days), "day"),
        (us / USECS_PER_HOUR, "hour"),
        (us % USECS_PER_HOUR / USECS_PER_MIN, "min"),
    ] {
        if n != 0 {
            if empty {
                ago = n < 0;
            }
            let shown = if ago { -n } else { n };
            put!(
                out,
                " {shown} {unit}{}",
                if n.abs() == 1 { "" } else { "s" }
            );
            empty = false;
        }
    }
    let sec = us % USECS_PER_MIN;
    if sec != 0 {
        if empty {
            ago = sec < 0;
        }
        let negative = (sec < 0) != ago;
        put!(
            out,
            " {}{}",
            if negative { "-" } else { "" },
            sec.abs() / USECS_PER_SEC
        );
        fraction(sec.abs() % USECS_PER_SEC, out);
        put!(
            out,
            " sec{}",
            if sec.abs() == USECS_PER_SEC { "" } else { "s" }
        );
        empty = false;
    }
    if empty {
        out.push_str(" 0");
    }
    if ago {
        out.push_str(" ago");
    }
}

fn sql_standard(i: &Interval, out: &mut String) {
    let negative = i.months < 0 || i.days < 0 || i.micros < 0;
    let positive = i.months > 0 || i.days > 0 || i.micros > 0;
    let (has_ym, has_day, has_time) = (i.months != 0, i.days != 0, i.micros != 0);
    if !negative && !positive {
        return out.push('0');
    }
    let months = i.months.unsigned_abs();
    let (y, m, days) = (months / 12, months % 12, i.days.unsigned_abs());
    if (negative && positive) || (has_ym && (has_day || has_time)) {
        let s = |neg: bool| if neg { '-' } else { '+' };
        put!(
            out,
            "{}{y}-{m} {}{days} {}",
            s(i.months < 0),
            s(i.days < 0),
            s(i.micros < 0)
        );
        short_clock(i.micros, out);
        return;
    }
    if negative {
        out.push('-');
    }
    if has_ym {
        put!(out, "{y}-{m}");
    } else {
        if has_day {
            put!(out, "{days} ");
        }
        short_clock(i.micros, out);
    }
}

fn short_clock(us: i64, out: &mut String) {
    let us = us.unsigned_abs();
    put!(
        out,
        "{}:{:02}:{:02}",
        us / 3_600_000_000,
        us / 60_000_000 % 60,
        us / 1_000_000 % 60
    );
    fraction((us % 1_000_000) as i64, out);
}

fn iso_8601(i: &Interval, out: &mut String) {
    if *i == Interval::default() {
        return out.push_str("PT0S");
    }
    out.push('P');
    for (n, unit) in [(i.months / 12, 'Y'), (i.months % 12, 'M'), (i.days, 'D')] {
        if n != 0 {
            put!(out, "{n}{unit}");
        }
    }
    if i.micros != 0 {
        out.push('T');
        for (n, unit) in [
            (i.micros / USECS_PER_HOUR, 'H'),
            (i.micros % USECS_PER_HOUR / USECS_PER_MIN, 'M'),
        ] {
            if n != 0 {
                put!(out, "{n}{unit}");
            }
        }
        let sec = i.micros % USECS_PER_MIN;
        if sec != 0 {
            put!(
                out,
                "{}{}",
                if sec < 0 { "-" } else { "" },
                sec.abs() / USECS_PER_SEC
            );
            fraction(sec.abs() % USECS_PER_SEC, out);
            out.push('S');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(months: i32, days: i32, micros: i64, style: IntervalStyle) -> String {
        let settings = OutputSettings {
            intervalstyle: style,
            ..OutputSettings::default()
        };
        let mut s = String::new();
        interval(
            &Interval {
                months,
                days,
                micros,
            },
            &settings,
            &mut s,
        );
        s
    }

    #[test]
    fn intervals_in_every_style() {
        use IntervalStyle::*;
        assert_eq!(
            show(14, 3, 14_706_789_000, Postgres),
            "1 year 2 mons 3 days 04:05:06.789"
        );
        assert_eq!(show(0, -1, 7_380_000_000, Postgres), "-1 days +02:03:00");
        assert_eq!(show(0, 0, 0, Postgres), "00:00:00");
        assert_eq!(
            show(-14, 3, -1, Postgres),
            "-1 years -2 mons +3 days -00:00:00.000001"
        );
        assert_eq!(show(14, 3, 14_706_789_000, Iso8601), "P1Y2M3DT4H5M6.789S");
        assert_eq!(show(14, 3, 14_706_000_000, SqlStandard), "+1-2 +3 +4:05:06");
        assert_eq!(
            show(14, 3, 14_706_000_000, PostgresVerbose),
            "@ 1 year 2 mons 3 days 4 hours 5 mins 6 secs"
        );
    }
}
