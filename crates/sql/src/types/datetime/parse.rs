//! Reading dates, times and timestamps.
//!
//! The text is cut into pieces (words, numbers, dates with `-`, `/` or `.`, times with `:`, zone offsets), and the pieces are
//! put together as PostgreSQL does: a first number of three digits or more is the year, otherwise the session's date
//! order decides; a month's name frees the other two; years of two digits lie between 1970 and 2069.

use super::{
    END_DATE, Fields, MIN_DATE, USECS_PER_DAY, USECS_PER_HOUR, USECS_PER_MIN, USECS_PER_SEC,
};
use super::{calendar, in_range, overflow};
use crate::types::zone::Zone;
use crate::types::{DateOrder, OutputSettings, invalid_input};
use base::modifier::round_to;
use base::{Error, Result, SqlState, Type};

/// What a text says, before it becomes a value of one type.
#[derive(Default)]
struct Parsed {
    date: Option<(i32, i32, i32)>,
    micros: Option<i64>,
    zone: Option<At>,
    special: Option<Special>,
}

enum At {
    Offset(i32),
    Zone(Zone),
}

#[derive(Clone, Copy, PartialEq)]
enum Special {
    Infinity,
    NegInfinity,
    Now,
    Epoch,
    /// Days from today.
    Today(i64),
}

enum Fail {
    Syntax,
    /// A field is out of range; whether another date order may help.
    Field(bool),
    Displacement,
    Zone(String),
}

impl Fail {
    fn error(self, ty: Type, s: &str) -> Error {
        match self {
            Fail::Syntax => invalid_input(ty, s),
            Fail::Field(hint) => {
                let e = overflow(format!("date/time field value out of range: \"{s}\""));
                if hint {
                    e.hint("Perhaps you need a different \"datestyle\" setting.")
                } else {
                    e
                }
            }
            Fail::Displacement => Error::new(
                SqlState::INVALID_TIME_ZONE,
                format!("time zone displacement out of range: \"{s}\""),
            ),
            Fail::Zone(z) => Error::new(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("time zone \"{z}\" not recognized"),
            ),
        }
    }
}

/// Reads a date: days since 2000-01-01.
pub fn date(s: &str, settings: &OutputSettings) -> Result<i32> {
    let p = read(s, settings, false).map_err(|f| f.error(Type::Date, s))?;
    let days = match p.special {
        Some(Special::Infinity) => return Ok(i32::MAX),
        Some(Special::NegInfinity) => return Ok(i32::MIN),
        Some(Special::Epoch) => calendar::to_days(1970, 1, 1),
        Some(Special::Now) => settings
            .timezone
            .local(settings.now)
            .div_euclid(USECS_PER_DAY),
        Some(Special::Today(n)) => {
            settings
                .timezone
                .local(settings.now)
                .div_euclid(USECS_PER_DAY)
                + n
        }
        None => {
            let (y, m, d) = p.date.ok_or_else(|| invalid_input(Type::Date, s))?;
            calendar::to_days(y, m, d)
        }
    };
    if !(MIN_DATE..END_DATE).contains(&days) {
        return Err(overflow(format!("date out of range: \"{s}\"")));
    }
    Ok(days as i32)
}

/// Reads a time of day: microseconds.
pub fn time(s: &str, typmod: i32, settings: &OutputSettings) -> Result<i64> {
    let p = read(s, settings, true).map_err(|f| f.error(Type::Time, s))?;
    let us = match (p.special, p.micros) {
        (Some(Special::Now), _) => settings
            .timezone
            .local(settings.now)
            .rem_euclid(USECS_PER_DAY),
        (None, Some(us)) => us,
        _ => return Err(invalid_input(Type::Time, s)),
    };
    Ok(round_to(us, typmod))
}

/// Reads a time of day with its zone; without one in the text the session's holds, as it is on the text's date or else today.
pub fn timetz(s: &str, typmod: i32, settings: &OutputSettings) -> Result<Box<[u8]>> {
    let bad = || invalid_input(Type::TimeTz, s);
    let p = read(s, settings, true).map_err(|f| f.error(Type::TimeTz, s))?;
    let today = || settings.timezone.local(settings.now);
    let us = match (p.special, p.micros) {
        (Some(Special::Now), _) => today().rem_euclid(USECS_PER_DAY),
        (None, Some(us)) => us,
        _ => return Err(bad()),
    };
    let day = match p.date {
        Some((y, m, d)) => calendar::to_days(y, m, d),
        None => today().div_euclid(USECS_PER_DAY),
    };
    let local = day.saturating_mul(USECS_PER_DAY).saturating_add(us);
    let east = match p.zone {
        Some(At::Offset(east)) => east,
        // The offset of such a zone is not known without a date.
        Some(At::Zone(z)) if p.date.is_none() && z.has_rules() => return Err(bad()),
        Some(At::Zone(z)) => z.offset_of_local(local),
        None => settings.timezone.offset_of_local(local),
    };
    Ok(base::packed::timetz::form(round_to(us, typmod), -east))
}

/// Reads a timestamp; a zone in the text is ignored, as PostgreSQL does.
pub fn timestamp(s: &str, typmod: i32, settings: &OutputSettings) -> Result<i64> {
    moment(s, typmod, Type::Timestamp, settings)
}

/// Reads a timestamp with time zone; without a zone in the text the session's holds.
pub fn timestamptz(s: &str, typmod: i32, settings: &OutputSettings) -> Result<i64> {
    moment(s, typmod, Type::TimestampTz, settings)
}

fn moment(s: &str, typmod: i32, ty: Type, settings: &OutputSettings) -> Result<i64> {
    let p = read(s, settings, false).map_err(|f| f.error(ty, s))?;
    let zoned = ty == Type::TimestampTz;
    let out_of_range = || overflow(format!("timestamp out of range: \"{s}\""));
    let session = &settings.timezone;
    let local = match p.special {
        Some(Special::Infinity) => return Ok(i64::MAX),
        Some(Special::NegInfinity) => return Ok(i64::MIN),
        Some(Special::Now) if zoned => return Ok(round_to(settings.now, typmod)),
        Some(Special::Now) => return Ok(round_to(session.local(settings.now), typmod)),
        Some(Special::Epoch) => return Ok(-946_684_800 * USECS_PER_SEC),
        Some(Special::Today(n)) => {
            let day = session.local(settings.now).div_euclid(USECS_PER_DAY) + n;
            day * USECS_PER_DAY + p.micros.unwrap_or(0)
        }
        None => {
            let (year, month, day) = p.date.ok_or_else(|| invalid_input(ty, s))?;
            let micros = p.micros.unwrap_or(0);
            let days = calendar::to_days(year, month, day);
            let t = i128::from(days) * i128::from(USECS_PER_DAY) + i128::from(micros);
            i64::try_from(t).map_err(|_| out_of_range())?
        }
    };
    let t = match (zoned, &p.zone) {
        (false, _) => local,
        (true, None) => session.instant(local),
        (true, Some(At::Zone(z))) => z.instant(local),
        (true, Some(At::Offset(east))) => local
            .checked_sub(i64::from(*east) * USECS_PER_SEC)
            .ok_or_else(out_of_range)?,
    };
    let t = round_to(t, typmod);
    if in_range(t) {
        Ok(t)
    } else {
        Err(out_of_range())
    }
}

/// Pieces of the text.
#[derive(Debug)]
enum Piece<'a> {
    /// Digits, perhaps with a point and a fraction.
    Number(&'a str),
    /// Parts joined by `-`, `/` or `.`.
    Date(Vec<&'a str>),
    /// With colons.
    Time(&'a str),
    /// `+` or `-` and what follows.
    Offset(&'a str),
    Word(&'a str),
}

/// Cuts the text. In one of a time alone two numbers with `-` between them are a time and a zone.
fn split(s: &str, only_time: bool) -> Result<Vec<Piece<'_>>, Fail> {
    let b = s.as_bytes();
    let mut out = Vec::new();
    let mut i = 0;
    let run = |from: usize, ok: &dyn Fn(u8) -> bool| {
        b[from..]
            .iter()
            .position(|&c| !ok(c))
            .map_or(b.len(), |n| from + n)
    };
    while i < b.len() {
        let c = b[i];
        if c.is_ascii_whitespace() || c == b',' || c == b'(' || c == b')' {
            i += 1;
        } else if c.is_ascii_digit() {
            let end = run(i, &|c| c.is_ascii_digit());
            let next = b.get(end).copied().unwrap_or(b' ');
            let after = b.get(end + 1).copied().unwrap_or(b' ');
            if next == b':' {
                let end = run(i, &|c| c.is_ascii_digit() || c == b':' || c == b'.');
                out.push(Piece::Time(&s[i..end]));
                i = end;
            } else if matches!(next, b'-' | b'/' | b'.') && after.is_ascii_alphanumeric() {
                let end = run(i, &|c| c.is_ascii_alphanumeric() || c == next);
                // A `T` before the time ends the date.
                let end = (i..end)
                    .find(|&k| {
                        b[k].eq_ignore_ascii_case(&b'T')
                            && b[k - 1].is_ascii_digit()
                            && b.get(k + 1).is_some_and(u8::is_ascii_digit)
                    })
                    .unwrap_or(end);
                let parts: Vec<&str> = s[i..end].split(next as char).collect();
                let zoned = only_time || has_time(&out);
                let zoned_number = next == b'-' && zoned && parts.len() == 2;
                if zoned_number {
                    let end = run(i, &|c| c.is_ascii_digit());
                    out.push(Piece::Number(&s[i..end]));
                    i = end;
                    continue;
                }
                if next == b'.' && parts.len() == 2 {
                    let end = run(end.min(i + parts[0].len() + 1), &|c| c.is_ascii_digit());
                    out.push(Piece::Number(&s[i..end]));
                    i = end;
                } else {
                    out.push(Piece::Date(parts));
                    i = end;
                }
            } else {
                out.push(Piece::Number(&s[i..end]));
                i = end;
            }
        } else if c == b'+' || c == b'-' {
            let end = run(i + 1, &|c| c.is_ascii_digit() || c == b':');
            if end > i + 1 {
                out.push(Piece::Offset(&s[i..end]));
                i = end;
            } else {
                let end = run(i + 1, &|c| c.is_ascii_alphabetic());
                if end == i + 1 {
                    return Err(Fail::Syntax);
                }
                out.push(Piece::Word(&s[i..end]));
                i = end;
            }
        } else if c.is_ascii_alphabetic() && month_then_date(&s[i..]) {
            let delimiter = b[run(i, &|c| c.is_ascii_alphabetic())];
            let end = run(i, &|c| c.is_ascii_alphanumeric() || c == delimiter);
            out.push(Piece::Date(s[i..end].split(delimiter as char).collect()));
            i = end;
        } else if c.is_ascii_alphabetic() {
            let mut end = run(i, &|c| c.is_ascii_alphabetic());
            let numbered = run(end, &|c| {
                c.is_ascii_digit() || matches!(c, b'+' | b'-' | b':')
            });
            if matches!(b.get(end), Some(b'+' | b'-')) && Zone::is_numbered(&s[i..numbered]) {
                end = numbered;
            } else if matches!(b.get(end), Some(b'/' | b'_')) {
                end = run(i, &|c| !c.is_ascii_whitespace() && c != b',');
            } else if end - i >= 3
                && b.get(end).is_some_and(u8::is_ascii_digit)
                && Zone::find(&s[i..run(i, &|c| c.is_ascii_alphanumeric())]).is_some()
            {
                end = run(i, &|c| c.is_ascii_alphanumeric());
            }
            out.push(Piece::Word(&s[i..end]));
            i = end;
            if b.get(i) == Some(&b'.') {
                i += 1;
            }
        } else {
            return Err(Fail::Syntax);
        }
    }
    Ok(out)
}

/// `Jan-08-1999`.
fn month_then_date(s: &str) -> bool {
    let end = s.bytes().take_while(u8::is_ascii_alphabetic).count();
    let mut rest = s[end..].bytes();
    month(&s[..end]).is_some()
        && matches!(rest.next(), Some(b'-' | b'/' | b'.'))
        && rest.next().is_some_and(|c| c.is_ascii_digit())
}

fn has_time(pieces: &[Piece<'_>]) -> bool {
    pieces.iter().any(|p| matches!(p, Piece::Time(_)))
}

const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];
const DAYS: [&str; 7] = [
    "sunday",
    "monday",
    "tuesday",
    "wednesday",
    "thursday",
    "friday",
    "saturday",
];

/// The month (1 to 12) of a name or its abbreviation.
fn month(w: &str) -> Option<i32> {
    let w = w.to_ascii_lowercase();
    let hit = |m: &str| {
        w == m || (w.len() == 3 && m.starts_with(&w)) || (w == "sept" && m.starts_with("sep"))
    };
    MONTHS.iter().position(|m| hit(m)).map(|i| i as i32 + 1)
}

fn is_day_name(w: &str) -> bool {
    let w = w.to_ascii_lowercase();
    matches!(w.as_str(), "tues" | "thur" | "thurs" | "wednes" | "weds")
        || DAYS
            .iter()
            .any(|d| w == *d || (w.len() == 3 && d.starts_with(&w)))
}

fn read(s: &str, settings: &OutputSettings, only_time: bool) -> Result<Parsed, Fail> {
    let pieces = split(s.trim(), only_time)?;
    let mut p = Parsed::default();
    let (mut bc, mut pm, mut named_month, mut julian) = (None, None, None, false);
    let mut loose: Vec<&str> = Vec::new();
    let mut parts: Option<Vec<&str>> = None;
    for piece in &pieces {
        match *piece {
            Piece::Time(t) => {
                if p.micros.replace(read_time(t)?).is_some() {
                    return Err(Fail::Syntax);
                }
            }
            Piece::Date(ref d) => {
                if parts.replace(d.clone()).is_some() {
                    return Err(Fail::Syntax);
                }
            }
            Piece::Number(n) => {
                let int = n.split('.').next().unwrap_or("");
                if julian {
                    let j: f64 = n.parse().map_err(|_| Fail::Syntax)?;
                    p.date = Some(calendar::from_days(j as i64 - calendar::JULIAN_2000));
                    if j.fract() != 0.0 {
                        p.micros = Some((j.fract() * USECS_PER_DAY as f64).round() as i64);
                    }
                    julian = false;
                } else if (parts.is_some() || p.date.is_some() || only_time && loose.is_empty())
                    && p.micros.is_none()
                    && matches!(int.len(), 4 | 6)
                {
                    p.micros = Some(read_digits_time(n)?);
                } else if int.len() >= 8 && !n.contains('.') {
                    let k = int.len() - 4;
                    p.date = Some(check(
                        int[..k].parse().map_err(|_| Fail::Syntax)?,
                        int[k..k + 2].parse().map_err(|_| Fail::Syntax)?,
                        int[k + 2..].parse().map_err(|_| Fail::Syntax)?,
                    )?);
                } else if int.len() == 6
                    && loose.is_empty()
                    && named_month.is_none()
                    && pieces.len() > 1
                {
                    p.micros = Some(read_digits_time(n)?);
                } else if int.len() == 6 && loose.is_empty() && named_month.is_none() {
                    let y = two_digit_year(int[..2].parse().map_err(|_| Fail::Syntax)?);
                    let (m, d) = (&int[2..4], &int[4..6]);
                    p.date = Some(check(
                        y,
                        m.parse().map_err(|_| Fail::Syntax)?,
                        d.parse().map_err(|_| Fail::Syntax)?,
                    )?);
                } else if n.contains('.') && n.len() == 8 && int.len() == 4 {
                    p.date = Some(day_of_year(int, &n[5..])?);
                } else {
                    loose.push(n);
                }
            }
            Piece::Offset(o) => {
                let special = p.special.is_some() || p.zone.is_some();
                if special || (p.micros.is_none() && parts.is_none() && p.date.is_none()) {
                    return Err(Fail::Syntax);
                }
                p.zone = Some(At::Offset(read_offset(o)?));
            }
            Piece::Word(w) => {
                let lower = w.to_ascii_lowercase();
                match lower.as_str() {
                    "t" | "at" | "on" => {}
                    "j" => julian = true,
                    "ad" => bc = Some(false),
                    "bc" => bc = Some(true),
                    "am" => pm = Some(false),
                    "pm" => pm = Some(true),
                    "infinity" | "+infinity" => p.special = Some(Special::Infinity),
                    "-infinity" => p.special = Some(Special::NegInfinity),
                    "now" => p.special = Some(Special::Now),
                    "epoch" => p.special = Some(Special::Epoch),
                    "today" => p.special = Some(Special::Today(0)),
                    "tomorrow" => p.special = Some(Special::Today(1)),
                    "yesterday" => p.special = Some(Special::Today(-1)),
                    "allballs" => {
                        p.micros = Some(0);
                        p.zone = Some(At::Offset(0));
                    }
                    "z" | "zulu" | "utc" => p.zone = Some(At::Offset(0)),
                    "dst" => {}
                    _ if is_day_name(w) => {}
                    _ => match (month(w), named_month) {
                        (Some(m), None) => named_month = Some(m),
                        (Some(_), Some(_)) => return Err(Fail::Syntax),
                        (None, _) => match Zone::find(w) {
                            Some(z) if p.zone.is_none() => p.zone = Some(At::Zone(z)),
                            _ if w.contains('/') => return Err(Fail::Zone(w.into())),
                            _ => return Err(Fail::Syntax),
                        },
                    },
                }
            }
        }
    }
    if julian || (p.special.is_some() && (parts.is_some() || p.date.is_some())) {
        return Err(Fail::Syntax);
    }
    if let Some(pm) = pm {
        let us = p.micros.ok_or(Fail::Syntax)?;
        let h = us / USECS_PER_HOUR;
        if !(0..=12).contains(&h) {
            return Err(Fail::Field(false));
        }
        p.micros = Some(us % USECS_PER_HOUR + (h % 12 + if pm { 12 } else { 0 }) * USECS_PER_HOUR);
    }
    let fields = match parts {
        Some(d) if loose.is_empty() => d,
        None => loose,
        Some(_) => return Err(Fail::Syntax),
    };
    if !fields.is_empty() || named_month.is_some() {
        if p.date.is_some() || p.special.is_some() {
            return Err(Fail::Syntax);
        }
        p.date = Some(assemble(
            &fields,
            named_month,
            bc == Some(true),
            settings.date_order,
        )?);
    } else if bc.is_some() {
        let (y, m, d) = p.date.ok_or(Fail::Syntax)?;
        p.date = Some(if bc == Some(true) {
            (1 - y, m, d)
        } else {
            (y, m, d)
        });
    }
    if p.date.is_none() && p.micros.is_none() && p.special.is_none() {
        return Err(Fail::Syntax);
    }
    Ok(p)
}

fn number(s: &str) -> Result<i32, Fail> {
    if s.is_empty() || !s.bytes().all(|b| b.is_ascii_digit()) {
        return Err(Fail::Syntax);
    }
    s.parse().map_err(|_| Fail::Field(false))
}

fn two_digit_year(y: i32) -> i32 {
    if y < 70 { y + 2000 } else { y + 1900 }
}

/// Year, month and day from two or three fields, one of which may be a month's name.
fn assemble(
    fields: &[&str],
    named: Option<i32>,
    bc: bool,
    order: DateOrder,
) -> Result<(i32, i32, i32), Fail> {
    let word = fields.iter().position(|f| month(f).is_some());
    let (y, m, d) = match (named, word, fields.len()) {
        (Some(m), None, 2) => named_date(fields[0], fields[1], m, order),
        // The month's name comes first or second.
        (None, Some(k), 3) if k < 2 => {
            let m = month(fields[k]).expect("found above");
            let rest: Vec<&str> = (0..3).filter(|&i| i != k).map(|i| fields[i]).collect();
            named_date(rest[0], rest[1], m, order)
        }
        (None, None, 3) => {
            let [a, b, c] = [fields[0], fields[1], fields[2]];
            let (y, m, d) = if a.len() >= 3 {
                (a, b, c)
            } else {
                match order {
                    DateOrder::Ymd => (a, b, c),
                    DateOrder::Mdy => (c, a, b),
                    DateOrder::Dmy => (c, b, a),
                }
            };
            (y, number(m)?, d)
        }
        (None, None, 2) if fields[0].len() >= 4 && fields[1].len() == 3 => {
            return day_of_year(fields[0], fields[1]);
        }
        _ => return Err(Fail::Syntax),
    };
    let mut year = number(y)?;
    if bc {
        if year == 0 {
            return Err(Fail::Field(false));
        }
        year = 1 - year;
    } else if y.len() <= 2 {
        year = two_digit_year(year);
    } else if year == 0 {
        return Err(Fail::Field(false));
    }
    check(year, m, number(d)?)
}

/// Which of two numbers beside a month's name is the year.
fn named_date<'a>(a: &'a str, b: &'a str, m: i32, order: DateOrder) -> (&'a str, i32, &'a str) {
    if a.len() >= 3 || (order == DateOrder::Ymd && b.len() < 3) {
        (a, m, b)
    } else {
        (b, m, a)
    }
}

fn day_of_year(year: &str, day: &str) -> Result<(i32, i32, i32), Fail> {
    let (y, n) = (number(year)?, number(day)?);
    if !(1..=365 + i32::from(calendar::is_leap(y))).contains(&n) {
        return Err(Fail::Field(false));
    }
    Ok(calendar::from_days(calendar::to_days(y, 1, n)))
}

fn check(y: i32, m: i32, d: i32) -> Result<(i32, i32, i32), Fail> {
    if !(1..=12).contains(&m) || !(1..=31).contains(&d) {
        return Err(Fail::Field(true));
    }
    if d > calendar::days_in_month(y, m) {
        return Err(Fail::Field(false));
    }
    Ok((y, m, d))
}

/// `04:05`, `04:05:06.789`.
fn read_time(t: &str) -> Result<i64, Fail> {
    let mut parts = t.split(':');
    let h = number(parts.next().unwrap_or(""))?;
    let m = number(parts.next().unwrap_or(""))?;
    let (s, us) = match parts.next() {
        Some(x) => seconds(x)?,
        None => (0, 0),
    };
    if parts.next().is_some() {
        return Err(Fail::Syntax);
    }
    clock(h, m, s, us)
}

fn seconds(x: &str) -> Result<(i32, i64), Fail> {
    let (s, frac) = x.split_once('.').unwrap_or((x, ""));
    if !frac.bytes().all(|b| b.is_ascii_digit()) {
        return Err(Fail::Syntax);
    }
    Ok((number(s)?, micros_of(frac)))
}

/// Microseconds of the digits after a point, rounded.
pub(super) fn micros_of(frac: &str) -> i64 {
    if frac.is_empty() {
        return 0;
    }
    let f: f64 = format!("0.{frac}").parse().unwrap_or(0.0);
    (f * 1e6).round_ties_even() as i64
}

/// `040506.789`, `0405`.
fn read_digits_time(n: &str) -> Result<i64, Fail> {
    let (int, frac) = n.split_once('.').unwrap_or((n, ""));
    let s = if int.len() == 6 {
        number(&int[4..])?
    } else {
        0
    };
    clock(number(&int[..2])?, number(&int[2..4])?, s, micros_of(frac))
}

fn clock(h: i32, m: i32, s: i32, us: i64) -> Result<i64, Fail> {
    let late = h == 24 && (m > 0 || s > 0 || us > 0);
    if h > 24 || m > 59 || s > 60 || late || (s == 60 && us > 0) {
        return Err(Fail::Field(false));
    }
    Ok(i64::from(h) * USECS_PER_HOUR
        + i64::from(m) * USECS_PER_MIN
        + i64::from(s) * USECS_PER_SEC
        + us)
}

/// `+05`, `-0530`, `+05:30:15`: seconds east.
fn read_offset(o: &str) -> Result<i32, Fail> {
    let sign = if o.starts_with('-') { -1 } else { 1 };
    let digits = &o[1..];
    let (h, m, s) = if digits.contains(':') {
        let mut it = digits.split(':');
        let mut next = || it.next().map_or(Ok(0), number);
        (next()?, next()?, next()?)
    } else {
        match digits.len() {
            0..=2 => (number(digits)?, 0, 0),
            3 | 4 => {
                let k = digits.len() - 2;
                (number(&digits[..k])?, number(&digits[k..])?, 0)
            }
            6 => (
                number(&digits[..2])?,
                number(&digits[2..4])?,
                number(&digits[4..])?,
            ),
            _ => return Err(Fail::Syntax),
        }
    };
    if h > 15 || m > 59 || s > 59 {
        return Err(Fail::Displacement);
    }
    Ok(sign * (h * 3600 + m * 60 + s))
}

/// The moment of broken-down fields, 22008 outside the range.
pub fn make_timestamp(f: Fields) -> Result<i64> {
    f.to_timestamp()
        .ok_or_else(|| overflow("timestamp out of range"))
}
