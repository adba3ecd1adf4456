//! Reading intervals: PostgreSQL's words (`1 year 2 mons -3 days 04:05:06 ago`), SQL's (`1-2`, `3 4:05:06`) and ISO 8601
//! (`P1Y2M3DT4H5M6S`).

use super::parse::micros_of;
use super::{USECS_PER_DAY, USECS_PER_HOUR, USECS_PER_MIN, USECS_PER_SEC};
use crate::types::IntervalStyle;
use crate::types::invalid_input;
use base::modifier::round_to;
use base::{Error, Interval, Result, SqlState, Type};
use std::borrow::Cow;

/// SQLSTATE of an interval field that is too large.
const INTERVAL_FIELD_OVERFLOW: SqlState = SqlState(*b"22015");

/// A unit of time in intervals, `extract` and `date_trunc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Microsecond,
    Millisecond,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Quarter,
    Year,
    Decade,
    Century,
    Millennium,
}

impl Unit {
    /// The unit of a word, singular, plural or abbreviated. As in PostgreSQL ten letters say which one it is.
    pub fn parse(w: &str) -> Option<Unit> {
        let w = w.get(..10).unwrap_or(w);
        Some(match w.to_ascii_lowercase().as_str() {
            "us" | "usec" | "usecs" | "usecond" | "useconds" | "microsecon" => Unit::Microsecond,
            "ms" | "msec" | "msecs" | "msecond" | "mseconds" | "millisecon" => Unit::Millisecond,
            "s" | "sec" | "secs" | "second" | "seconds" => Unit::Second,
            "m" | "min" | "mins" | "minute" | "minutes" => Unit::Minute,
            "h" | "hr" | "hrs" | "hour" | "hours" => Unit::Hour,
            "d" | "day" | "days" => Unit::Day,
            "w" | "week" | "weeks" => Unit::Week,
            "mon" | "mons" | "month" | "months" => Unit::Month,
            "qtr" | "quarter" => Unit::Quarter,
            "y" | "yr" | "yrs" | "year" | "years" => Unit::Year,
            "dec" | "decs" | "decade" | "decades" => Unit::Decade,
            "c" | "cent" | "century" | "centuries" => Unit::Century,
            "mil" | "mils" | "millennia" | "millennium" => Unit::Millennium,
            _ => return None,
        })
    }
}

/// Years and months are summed by themselves, each within 32 bits.
struct Sum {
    years: i32,
    months: i32,
    days: i64,
    micros: i128,
}

impl Sum {
    /// Adds `whole + frac` units. The fraction of a unit above a day goes to the next smaller parts.
    fn add(&mut self, unit: Unit, whole: i64, frac: f64) -> Option<()> {
        match unit {
            Unit::Microsecond => self.micros += i128::from(whole) + frac.round_ties_even() as i128,
            Unit::Millisecond => self.time(1000, whole, frac),
            Unit::Second => self.time(USECS_PER_SEC, whole, frac),
            Unit::Minute => self.time(USECS_PER_MIN, whole, frac),
            Unit::Hour => self.time(USECS_PER_HOUR, whole, frac),
            Unit::Day => {
                self.days = self.days.checked_add(whole)?;
                self.time(USECS_PER_DAY, 0, frac);
            }
            Unit::Week => {
                self.days = self.days.checked_add(whole.checked_mul(7)?)?;
                self.day_fraction(frac * 7.0);
            }
            Unit::Month => {
                self.months(whole)?;
                self.day_fraction(frac * 30.0);
            }
            Unit::Quarter => return None,
            Unit::Year => self.years(1, whole, frac)?,
            Unit::Decade => self.years(10, whole, frac)?,
            Unit::Century => self.years(100, whole, frac)?,
            Unit::Millennium => self.years(1000, whole, frac)?,
        }
        Some(())
    }

    fn time(&mut self, unit: i64, whole: i64, frac: f64) {
        self.micros += i128::from(unit) * i128::from(whole);
        self.micros += (frac * unit as f64).round_ties_even() as i128;
    }

    fn day_fraction(&mut self, days: f64) {
        self.days += days.trunc() as i64;
        self.time(USECS_PER_DAY, 0, days.fract());
    }

    fn months(&mut self, n: i64) -> Option<()> {
        self.months = self.months.checked_add(i32::try_from(n).ok()?)?;
        Some(())
    }

    /// `whole` units of so many years. Their fraction is months.
    fn years(&mut self, unit: i32, whole: i64, frac: f64) -> Option<()> {
        let years = i32::try_from(whole).ok()?.checked_mul(unit)?;
        self.years = self.years.checked_add(years)?;
        self.months((frac * f64::from(unit) * 12.0).round_ties_even() as i64)
    }

    fn negate(&mut self) -> Option<()> {
        self.years = self.years.checked_neg()?;
        self.months = self.months.checked_neg()?;
        self.days = self.days.checked_neg()?;
        self.micros = -self.micros;
        Some(())
    }

    fn finish(self) -> Result<Interval, Fail> {
        let days = self.days.try_into().map_err(|_| Fail::TooLarge)?;
        let micros = self.micros.try_into().map_err(|_| Fail::TooLarge)?;
        let months = i64::from(self.years) * 12 + i64::from(self.months);
        let months = i32::try_from(months).map_err(|_| Fail::Together)?;
        Ok(Interval {
            months,
            days,
            micros,
        })
    }
}

/// Reads an interval. 22007 for what is none, 22015 for fields that are too large, 22008 for those that are too large together.
pub fn parse(s: &str, typmod: i32, style: IntervalStyle) -> Result<Interval> {
    let t = s.trim();
    let read = match t.strip_prefix('P') {
        Some(rest) => iso_8601(rest),
        None => words(t, style),
    };
    let mut i = match read.and_then(Sum::finish) {
        Ok(i) => i,
        Err(Fail::Syntax) => return Err(invalid_input(Type::Interval, s)),
        Err(Fail::TooLarge) => return Err(too_large(s)),
        Err(Fail::Together) => return Err(super::overflow("interval out of range")),
    };
    i.micros = round_to(i.micros, typmod);
    Ok(i)
}

/// Drops what is smaller than the last field of `interval … TO last`.
pub fn keep_fields(i: &mut Interval, last: &str) {
    let unit = match last {
        "year" | "month" | "day" => i64::MAX,
        "hour" => USECS_PER_HOUR,
        "minute" => USECS_PER_MIN,
        _ => return,
    };
    i.micros = i.micros / unit * unit;
    if matches!(last, "year" | "month") {
        i.days = 0;
    }
    if last == "year" {
        i.months = i.months / 12 * 12;
    }
}

fn too_large(s: &str) -> Error {
    Error::new(
        INTERVAL_FIELD_OVERFLOW,
        format!("interval field value out of range: \"{s}\""),
    )
}

enum Fail {
    Syntax,
    TooLarge,
    Together,
}

/// The units that a time of day has behind its minutes.
const SECONDS: &[Unit] = &[Unit::Second, Unit::Millisecond, Unit::Microsecond];

fn empty() -> Sum {
    Sum {
        years: 0,
        months: 0,
        days: 0,
        micros: 0,
    }
}

/// A number with a fraction: its whole part, and the fraction with the number's sign.
fn number(t: &str) -> Result<(i64, f64), Fail> {
    let negative = t.starts_with('-');
    let digits = t.strip_prefix(['+', '-']).unwrap_or(t);
    let (int, frac) = digits.split_once('.').unwrap_or((digits, ""));
    let ok = |d: &str| d.bytes().all(|b| b.is_ascii_digit());
    if digits.is_empty() || digits == "." || !ok(int) || !ok(frac) {
        return Err(Fail::Syntax);
    }
    let whole: i128 = if int.is_empty() {
        0
    } else {
        int.parse().map_err(|_| Fail::TooLarge)?
    };
    let whole = if negative { -whole } else { whole };
    let whole = i64::try_from(whole).map_err(|_| Fail::TooLarge)?;
    let f: f64 = if frac.is_empty() {
        0.0
    } else {
        format!("0.{frac}").parse().map_err(|_| Fail::Syntax)?
    };
    Ok((whole, if negative { -f } else { f }))
}

/// Words, numbers and times. A sign belongs to what follows it, also behind blanks.
fn tokens(t: &str) -> Result<Vec<Cow<'_, str>>, Fail> {
    let mut tokens = Vec::new();
    let b = t.as_bytes();
    let mut i = 0;
    while i < b.len() {
        let c = b[i];
        if c.is_ascii_whitespace() || c == b'@' || c == b',' {
            i += 1;
            continue;
        }
        let from = i;
        let alpha = c.is_ascii_alphabetic();
        if !alpha && !c.is_ascii_digit() && !matches!(c, b'+' | b'-' | b'.') {
            return Err(Fail::Syntax);
        }
        i += 1;
        let mut inner = i;
        if matches!(c, b'+' | b'-') {
            while b.get(inner).is_some_and(u8::is_ascii_whitespace) {
                inner += 1;
            }
            if !b
                .get(inner)
                .is_some_and(|c| c.is_ascii_digit() || *c == b'.')
            {
                return Err(Fail::Syntax);
            }
        }
        let apart = inner > i;
        i = inner;
        while i < b.len()
            && (if alpha {
                b[i].is_ascii_alphabetic()
            } else {
                b[i].is_ascii_digit() || matches!(b[i], b':' | b'.' | b'-')
            })
        {
            i += 1;
        }
        tokens.push(match apart {
            true => Cow::Owned(format!("{}{}", c as char, &t[inner..i])),
            false => Cow::Borrowed(&t[from..i]),
        });
    }
    match tokens.is_empty() {
        true => Err(Fail::Syntax),
        false => Ok(tokens),
    }
}

fn words(t: &str, style: IntervalStyle) -> Result<Sum, Fail> {
    let mut tokens = tokens(t)?;
    let signed = |w: &Cow<'_, str>| w.starts_with(['-', '+']);
    // In the style of the standard a sign in front of all is everybody's.
    let all_negative = style == IntervalStyle::SqlStandard
        && tokens[0].starts_with('-')
        && !tokens[1..].iter().any(signed);
    let ago = tokens.last().is_some_and(|w| w.eq_ignore_ascii_case("ago"));
    if ago {
        tokens.pop();
    }
    let mut sum = empty();
    let mut k = 0;
    let mut any = false;
    // A unit may be named once.
    let mut seen: Vec<Unit> = Vec::new();
    let mut once = |units: &[Unit]| {
        let again = units.iter().any(|u| seen.contains(u));
        seen.extend_from_slice(units);
        if again { Err(Fail::Syntax) } else { Ok(()) }
    };
    while k < tokens.len() {
        let w = tokens[k].as_ref();
        let unit = tokens.get(k + 1).and_then(|u| Unit::parse(u));
        let inner = w.strip_prefix(['+', '-']).unwrap_or(w);
        if inner.contains(':') {
            once(&[Unit::Hour, Unit::Minute])?;
            once(SECONDS)?;
            sum.micros += match clock(w)? {
                us if all_negative => -us.abs(),
                us => us,
            };
        } else if inner.contains('-') {
            once(&[Unit::Year, Unit::Month])?;
            let (y, m) = inner.split_once('-').ok_or(Fail::Syntax)?;
            let (y, m) = (number(y)?, number(m)?);
            if y.1 != 0.0 || m.1 != 0.0 {
                return Err(Fail::Syntax);
            }
            if m.0 > 11 {
                return Err(Fail::TooLarge);
            }
            let n =
                y.0.checked_mul(12)
                    .and_then(|n| n.checked_add(m.0))
                    .ok_or(Fail::TooLarge)?;
            let negative = all_negative || w.starts_with('-');
            sum.months(if negative { -n } else { n })
                .ok_or(Fail::TooLarge)?;
        } else {
            let (mut whole, mut frac) = number(w)?;
            if all_negative && whole > 0 {
                whole = -whole;
            }
            if all_negative {
                frac = -frac.abs();
            }
            let next_is_time = tokens.get(k + 1).is_some_and(|t| t.contains(':'));
            let unit = match unit {
                Some(u) => {
                    k += 1;
                    u
                }
                None if tokens
                    .get(k + 1)
                    .is_some_and(|t| t.as_bytes()[0].is_ascii_alphabetic()) =>
                {
                    return Err(Fail::Syntax);
                }
                None if next_is_time => Unit::Day,
                None => Unit::Second,
            };
            // Seconds with a fraction stand for the smaller units, too.
            match unit {
                Unit::Second if frac != 0.0 => once(SECONDS)?,
                unit => once(&[unit])?,
            }
            sum.add(unit, whole, frac).ok_or(Fail::TooLarge)?;
        }
        any = true;
        k += 1;
    }
    if !any {
        return Err(Fail::Syntax);
    }
    if ago {
        sum.negate().ok_or(Fail::TooLarge)?;
    }
    Ok(sum)
}

/// `[-]H:M[:S[.f]]`, hours without limit; `M:S.f` when there are two parts and a fraction.
fn clock(w: &str) -> Result<i128, Fail> {
    let negative = w.starts_with('-');
    let inner = w.strip_prefix(['+', '-']).unwrap_or(w);
    let parts: Vec<&str> = inner.split(':').collect();
    let int = |p: &str| -> Result<i64, Fail> {
        if p.is_empty() || !p.bytes().all(|b| b.is_ascii_digit()) {
            return Err(Fail::Syntax);
        }
        p.parse().map_err(|_| Fail::TooLarge)
    };
    let (h, m, s) = match parts[..] {
        [m, s] if s.contains('.') => (0, int(m)?, s),
        [h, m] => (int(h)?, int(m)?, "0"),
        [h, m, s] => (int(h)?, int(m)?, s),
        _ => return Err(Fail::Syntax),
    };
    let (si, frac) = s.split_once('.').unwrap_or((s, ""));
    let si = int(si)?;
    if !frac.bytes().all(|b| b.is_ascii_digit()) {
        return Err(Fail::Syntax);
    }
    if m > 59 || si > 60 {
        return Err(Fail::TooLarge);
    }
    let us = i128::from(h) * i128::from(USECS_PER_HOUR)
        + i128::from(m * USECS_PER_MIN + si * USECS_PER_SEC + micros_of(frac));
    Ok(if negative { -us } else { us })
}

/// The sign, whole part and fraction at the start of `rest`, and what stands behind.
fn iso_number(rest: &str) -> Result<(i64, f64, &str, &str), Fail> {
    let sign = usize::from(rest.starts_with(['-', '+']));
    let end = rest[sign..]
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .map_or(rest.len(), |n| n + sign);
    let (whole, frac) = number(&rest[..end])?;
    Ok((whole, frac, &rest[..end], &rest[end..]))
}

/// `P1Y2M3DT4H5M6S`, and the forms without units: `P0001-02-03T04:05:06`, `P00010203T040506`.
fn iso_8601(mut rest: &str) -> Result<Sum, Fail> {
    let mut sum = empty();
    let (mut in_time, mut field, mut any) = (false, false, false);
    while !rest.is_empty() {
        if let Some(r) = rest.strip_prefix('T') {
            if in_time && field {
                return Err(Fail::Syntax);
            }
            (rest, in_time, field) = (r, true, false);
            continue;
        }
        let (whole, frac, digits, behind) = iso_number(rest)?;
        let width = digits
            .bytes()
            .take_while(|b| *b != b'.')
            .filter(u8::is_ascii_digit)
            .count();
        let unit = behind.chars().next();
        let named = match (unit, in_time) {
            (Some('Y'), false) => Some(Unit::Year),
            (Some('M'), false) => Some(Unit::Month),
            (Some('W'), false) => Some(Unit::Week),
            (Some('D'), false) => Some(Unit::Day),
            (Some('H'), true) => Some(Unit::Hour),
            (Some('M'), true) => Some(Unit::Minute),
            (Some('S'), true) => Some(Unit::Second),
            _ => None,
        };
        any = true;
        if let Some(unit) = named {
            sum.add(unit, whole, frac).ok_or(Fail::TooLarge)?;
            (rest, field) = (&behind[1..], true);
            continue;
        }
        let (separator, units) = match in_time {
            false => ('-', [Unit::Year, Unit::Month, Unit::Day]),
            true => (':', [Unit::Hour, Unit::Minute, Unit::Second]),
        };
        let ends = unit.is_none() || (!in_time && unit == Some('T'));
        if field || !(ends || unit == Some(separator)) {
            return Err(Fail::Syntax);
        }
        let basic = width == if in_time { 6 } else { 8 };
        let mut add = |unit, whole, frac| sum.add(unit, whole, frac).ok_or(Fail::TooLarge);
        if ends && basic {
            add(units[0], whole / 10_000, 0.0)?;
            add(units[1], whole / 100 % 100, 0.0)?;
            add(units[2], whole % 100, frac)?;
            rest = behind;
            continue;
        }
        add(units[0], whole, frac)?;
        rest = behind;
        for unit in &units[1..] {
            let Some(r) = rest.strip_prefix(separator) else {
                break;
            };
            let (whole, frac, _, behind) = iso_number(r)?;
            add(*unit, whole, frac)?;
            rest = behind;
        }
        if !(rest.is_empty() || (!in_time && rest.starts_with('T'))) {
            return Err(Fail::Syntax);
        }
    }
    match any {
        true => Ok(sum),
        false => Err(Fail::Syntax),
    }
}
