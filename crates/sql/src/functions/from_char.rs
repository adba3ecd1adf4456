//! `to_timestamp` and `to_date`: dates and times read under a format of [`super::to_char`].
//!
//! Separators of the format stand for any run of separators or blanks; a number takes as many digits as its keyword says
//! when another field follows at once, otherwise all there are.

use super::EvalContext;
use super::registry::{Registry, names::*};
use super::to_char::{MONTHS, Node, ROMAN, parse};
use crate::types::cast::timestamp_to_date;
use crate::types::datetime::{
    Fields, USECS_PER_HOUR, USECS_PER_MIN, USECS_PER_SEC, calendar, overflow,
};
use base::{Error, Result, SqlState, Value};

type Ctx<'a, 'b> = &'a mut EvalContext<'b>;

/// What a text says under a format.
#[derive(Default)]
struct Read {
    year: Option<i32>,
    month: Option<i32>,
    day: Option<i32>,
    doy: Option<i32>,
    julian: Option<i64>,
    iso: (Option<i32>, Option<i32>, Option<i32>),
    hour: i64,
    minute: i64,
    second: i64,
    micros: i64,
    seconds_of_day: Option<i64>,
    pm: Option<bool>,
    twelve: bool,
    bc: bool,
    century: Option<i32>,
    east: Option<i32>,
}

fn invalid(word: &str, s: &str) -> Error {
    Error::new(
        SqlState::INVALID_DATETIME_FORMAT,
        format!("invalid value \"{s}\" for \"{word}\""),
    )
    .detail("Value must be an integer.")
}

/// A number at the start of the rest: `width` digits when another field follows at once, else all there are.
fn take_number(rest: &mut &str, word: &str, width: usize, followed: bool) -> Result<i64> {
    let sign = usize::from(rest.starts_with(['-', '+']));
    let digits = rest[sign..].bytes().take_while(u8::is_ascii_digit).count();
    let take = if followed { digits.min(width) } else { digits };
    if take == 0 {
        let token: String = rest.chars().take(width).collect();
        return Err(invalid(word, &token));
    }
    let n = rest[..sign + take]
        .parse::<i64>()
        .map_err(|_| invalid(word, rest))?;
    *rest = &rest[sign + take..];
    Ok(n)
}

fn read(s: &str, format: &str) -> Result<Read> {
    let mut r = Read::default();
    let mut rest = s.trim_start();
    let nodes = parse(format);
    for (i, node) in nodes.iter().enumerate() {
        let word = match node {
            Node::Text(t) => {
                // Separators stand for any run of separators or blanks.
                let separator = |c: char| !c.is_alphanumeric();
                if t.chars().all(separator) {
                    let skipped = rest.trim_start();
                    rest = skipped;
                    if let Some(c) = rest.chars().next()
                        && separator(c)
                        && (t.contains(c) || !matches!(c, '+' | '-'))
                    {
                        rest = &rest[c.len_utf8()..];
                    }
                } else {
                    rest = rest
                        .char_indices()
                        .nth(t.chars().count())
                        .map_or("", |(i, _)| &rest[i..]);
                }
                continue;
            }
            Node::Key { word, .. } => *word,
        };
        rest = rest.trim_start();
        if rest.is_empty() {
            break;
        }
        let followed = matches!(nodes.get(i + 1), Some(Node::Key { word, .. }) if word.starts_with(|c: char| "YIMDHSWJQCUF".contains(c)));
        let number = |rest: &mut &str, width: usize| take_number(rest, word, width, followed);
        match word {
            "YYYY" | "IYYY" => {
                let y = number(&mut rest, 4)? as i32;
                if word == "YYYY" {
                    r.year = Some(y)
                } else {
                    r.iso.0 = Some(y)
                }
            }
            "Y,YYY" => {
                let t = number(&mut rest, 9)? as i32;
                rest = rest.strip_prefix(',').unwrap_or(rest);
                let digits = rest.bytes().take(3).take_while(u8::is_ascii_digit).count();
                r.year = Some(t * 1000 + rest[..digits].parse::<i32>().unwrap_or(0));
                rest = &rest[digits..];
            }
            "YYY" | "YY" | "Y" | "IYY" | "IY" | "I" => {
                let y = number(&mut rest, word.trim_start_matches('I').len().max(1))? as i32;
                let y = match y {
                    0..70 => y + 2000,
                    70..100 => y + 1900,
                    100..520 => y + 2000,
                    520..1000 => y + 1000,
                    y => y,
                };
                if word.starts_with('I') {
                    r.iso.0 = Some(y)
                } else {
                    r.year = Some(y)
                }
            }
            "MM" => r.month = Some(number(&mut rest, 2)? as i32),
            "DD" => r.day = Some(number(&mut rest, 2)? as i32),
            "DDD" => r.doy = Some(number(&mut rest, 3)? as i32),
            "IW" => r.iso.1 = Some(number(&mut rest, 2)? as i32),
            "ID" => r.iso.2 = Some(number(&mut rest, 1)? as i32),
            "J" => r.julian = Some(number(&mut rest, 7)?),
            "CC" => r.century = Some(number(&mut rest, 2)? as i32),
            "D" | "W" | "WW" | "Q" | "IDDD" => {
                number(&mut rest, 2)?;
            }
            "HH24" => r.hour = number(&mut rest, 2)?,
            "HH" | "HH12" => {
                r.hour = number(&mut rest, 2)?;
                r.twelve = true;
                if !(1..=12).contains(&r.hour) {
                    return Err(Error::new(
                        SqlState::INVALID_DATETIME_FORMAT,
                        format!("hour \"{}\" is invalid for the 12-hour clock", r.hour),
                    )
                    .hint("Use the 24-hour clock, or give an hour between 1 and 12."));
                }
            }
            "MI" => r.minute = number(&mut rest, 2)?,
            "SS" => r.second = number(&mut rest, 2)?,
            "SSSS" | "SSSSS" => r.seconds_of_day = Some(number(&mut rest, 5)?),
            "MS" | "US" | "FF1" | "FF2" | "FF3" | "FF4" | "FF5" | "FF6" => {
                let most = if word == "MS" || word == "FF3" { 3 } else { 6 };
                let before = rest.len();
                let n = number(&mut rest, most)?;
                let digits = (before - rest.len()).min(6) as u32;
                r.micros = n * 10i64.pow(6 - digits);
            }
            "MONTH" | "Month" | "month" | "MON" | "Mon" | "mon" => {
                let full = word.len() == 5;
                let hit = MONTHS.iter().position(|m| {
                    let m = if full { m } else { &m[..3] };
                    rest.get(..m.len())
                        .is_some_and(|h| h.eq_ignore_ascii_case(m))
                });
                let k = hit.ok_or_else(|| {
                    let token: String = rest.chars().take_while(|c| !c.is_whitespace()).collect();
                    Error::new(
                        SqlState::INVALID_DATETIME_FORMAT,
                        format!("invalid value \"{token}\" for \"{word}\""),
                    )
                    .detail(
                        "The given value did not match any of the allowed values for this field.",
                    )
                })?;
                rest = &rest[if full { MONTHS[k].len() } else { 3 }..];
                r.month = Some(k as i32 + 1);
            }
            "DAY" | "Day" | "day" | "DY" | "Dy" | "dy" | "TZ" | "tz" => {
                rest = rest.trim_start_matches(|c: char| c.is_ascii_alphabetic());
            }
            "RM" | "rm" => {
                let len = rest.bytes().take_while(|b| b"IVXivx".contains(b)).count();
                r.month = ROMAN
                    .iter()
                    .position(|m| rest[..len].eq_ignore_ascii_case(m))
                    .map(|k| k as i32 + 1);
                rest = &rest[len..];
            }
            "TZH" | "OF" => {
                r.east = Some(number(&mut rest, 2)? as i32 * 3600 + r.east.unwrap_or(0))
            }
            "TZM" => {
                let e = r.east.unwrap_or(0);
                r.east = Some(e + e.signum() * number(&mut rest, 2)? as i32 * 60);
            }
            w => {
                let len = if rest.get(1..2) == Some(".") { 4 } else { 2 }.min(rest.len());
                let flag = rest.get(..len).unwrap_or("").to_ascii_lowercase();
                match w.to_ascii_lowercase().as_bytes()[0] {
                    b'a' | b'p' | b'b' => match flag.as_bytes().first() {
                        Some(b'p') => r.pm = Some(true),
                        Some(b'a')
                            if !w.to_ascii_lowercase().contains('d')
                                && !w.to_ascii_lowercase().contains('b') =>
                        {
                            r.pm = Some(false)
                        }
                        Some(b'b') => r.bc = true,
                        _ => {}
                    },
                    _ => {}
                }
                rest = rest.get(len..).unwrap_or("");
            }
        }
    }
    Ok(r)
}

impl Read {
    fn date(&self, s: &str) -> Result<(i32, i32, i32)> {
        let bad = || overflow(format!("date/time field value out of range: \"{s}\""));
        if let Some(j) = self.julian {
            return Ok(calendar::from_days(j - calendar::JULIAN_2000));
        }
        if let (Some(y), w, d) = self.iso {
            let day = calendar::iso_week_start(y, w.unwrap_or(1)) + i64::from(d.unwrap_or(1) - 1);
            return Ok(calendar::from_days(day));
        }
        let mut year = match (self.year, self.century) {
            (Some(y), Some(c)) => (c - 1) * 100 + y % 100,
            (Some(y), None) => y,
            (None, Some(c)) => (c - 1) * 100 + 1,
            (None, None) => 0,
        };
        if self.bc && year > 0 {
            year = 1 - year;
        }
        if let Some(n) = self.doy {
            if !(1..=365 + i32::from(calendar::is_leap(year))).contains(&n) {
                return Err(bad());
            }
            return Ok(calendar::from_days(calendar::to_days(year, 1, n)));
        }
        let (m, d) = (self.month.unwrap_or(1), self.day.unwrap_or(1));
        if !(1..=12).contains(&m) || !(1..=calendar::days_in_month(year, m)).contains(&d) {
            return Err(bad());
        }
        Ok((year, m, d))
    }

    fn time(&self, s: &str) -> Result<i64> {
        if let Some(n) = self.seconds_of_day {
            return Ok(n * USECS_PER_SEC + self.micros);
        }
        let mut h = self.hour;
        if self.twelve {
            h %= 12;
            h += if self.pm == Some(true) { 12 } else { 0 };
        } else if self.pm == Some(true) && h < 12 {
            h += 12;
        }
        if !(0..24).contains(&h)
            || !(0..60).contains(&self.minute)
            || !(0..60).contains(&self.second)
        {
            return Err(overflow(format!(
                "date/time field value out of range: \"{s}\""
            )));
        }
        Ok(h * USECS_PER_HOUR
            + self.minute * USECS_PER_MIN
            + self.second * USECS_PER_SEC
            + self.micros)
    }
}

fn to_local(a: &[Value]) -> Result<(i64, Option<i32>)> {
    let (s, f) = (a[0].as_str().expect("text"), a[1].as_str().expect("text"));
    let r = read(s, f)?;
    let (year, month, day) = r.date(s)?;
    let f = Fields {
        year,
        month,
        day,
        micros: r.time(s)?,
    };
    let t = f
        .to_timestamp()
        .ok_or_else(|| overflow(format!("timestamp out of range: \"{s}\"")))?;
    Ok((t, r.east))
}

fn to_timestamp(a: &[Value], c: Ctx<'_, '_>) -> Result<Value> {
    let (t, east) = to_local(a)?;
    Ok(Value::TimestampTz(match east {
        Some(e) => t - i64::from(e) * USECS_PER_SEC,
        None => c.settings.timezone.instant(t),
    }))
}

fn to_date(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let (t, _) = to_local(a)?;
    Ok(Value::Date(timestamp_to_date(t)))
}

/// Adds both.
pub(super) fn register(r: &mut Registry) {
    r.f(
        "to_timestamp",
        &[TEXT, TEXT],
        TIMESTAMPTZ,
        STA,
        to_timestamp,
    );
    r.f("to_date", &[TEXT, TEXT], DATE, STA, to_date);
}
