//! `to_timestamp` and `to_date`: dates and times read under a format of [`super::to_char`].
//!
//! The format is followed piece by piece. How much of the text a piece takes:
//!
//! | piece | takes |
//! |---|---|
//! | a number before something that is no digit, or with `FM` or `TH` | all digits there are |
//! | a number before another number | as many characters as its keyword says; fewer are 22007 |
//! | a name | itself, in any case |
//! | a separator or blank | one separator or blank, or nothing where there is none |
//! | another character | one character, unless more blanks were passed over than the format has |
//!
//! Blanks before and after fields are passed over. Behind `FX` nothing is.
//!
//! Left out on purpose: localised names (`TM`).

use super::EvalContext;
use super::registry::{Registry, names::*};
use super::to_char::{DAYS, MONTHS, Node, ROMAN, parse};
use crate::types::cast::timestamp_to_date;
use crate::types::datetime::{
    Fields, USECS_PER_HOUR, USECS_PER_MIN, USECS_PER_SEC, calendar, overflow,
};
use base::modifier::round_to;
use base::{Error, Result, SqlState, Value};

type Ctx<'a, 'b> = &'a mut EvalContext<'b>;

/// How the fields of a date are counted. A format may use one way only.
#[derive(Clone, Copy, PartialEq)]
enum Counting {
    Gregorian,
    IsoWeeks,
}

/// What a text says under a format. Zero is what no field said.
#[derive(Default)]
struct Read {
    counting: Option<Counting>,
    year: i32,
    /// Digits of the year's keyword.
    year_digits: usize,
    century: i32,
    month: i32,
    week: i32,
    week_of_month: i32,
    day: i32,
    day_of_year: i32,
    /// From Sunday, 1 to 7.
    day_of_week: i32,
    julian: i32,
    hour: i32,
    minute: i32,
    second: i32,
    seconds_of_day: i32,
    millis: i32,
    micros: i32,
    /// Digits of seconds that the result is rounded to.
    precision: Option<i32>,
    twelve: bool,
    pm: bool,
    bc: bool,
    zone_sign: Option<i32>,
    zone_hours: i32,
    zone_minutes: i32,
}

fn format_error(message: String) -> Error {
    Error::new(SqlState::INVALID_DATETIME_FORMAT, message)
}

fn invalid(word: &str, s: &str) -> Error {
    format_error(format!("invalid value \"{s}\" for \"{word}\""))
}

/// The text that is left, and how far the reading is ahead of the format.
struct Input<'a> {
    all: &'a str,
    rest: &'a str,
    /// Blanks and separators that were passed over and that the format did not ask for.
    ahead: i32,
    fixed: bool,
}

fn is_separator(c: char) -> bool {
    c.is_ascii_graphic() && !c.is_ascii_alphanumeric()
}

impl Input<'_> {
    fn blanks(&mut self) {
        let left = self
            .rest
            .trim_start_matches(|c: char| c.is_ascii_whitespace());
        self.ahead += (self.rest.len() - left.len()) as i32;
        self.rest = left;
    }

    fn skip(&mut self, chars: usize) {
        let mut it = self.rest.chars();
        for _ in 0..chars {
            it.next();
        }
        self.rest = it.as_str();
    }

    fn literal(&mut self, separator: bool) {
        match (separator, self.fixed) {
            (_, true) => self.skip(1),
            (true, false) => {
                self.ahead -= 1;
                if self
                    .rest
                    .starts_with(|c: char| c.is_ascii_whitespace() || is_separator(c))
                {
                    self.skip(1);
                    self.ahead += 1;
                }
            }
            (false, false) if self.ahead > 0 => self.ahead -= 1,
            (false, false) => self.skip(1),
        }
    }

    /// The character before the rest.
    fn before(&self) -> Option<char> {
        self.all[..self.all.len() - self.rest.len()]
            .chars()
            .next_back()
    }

    /// A number and how many characters it took. `greedy`: all digits, not just `width` characters.
    fn number(&mut self, word: &str, width: usize, greedy: bool) -> Result<(i32, usize)> {
        self.rest = self
            .rest
            .trim_start_matches(|c: char| c.is_ascii_whitespace());
        let first = |n: usize| -> String { self.rest.chars().take(n).collect() };
        let piece = match greedy {
            true => self.rest,
            false => {
                let end = self
                    .rest
                    .char_indices()
                    .nth(width)
                    .map_or(self.rest.len(), |(i, _)| i);
                &self.rest[..end]
            }
        };
        if !greedy && piece.len() < width {
            return Err(format_error(format!(
                "source string too short for \"{word}\" formatting field"
            ))
            .detail(format!(
                "Field requires {width} characters, but only {} remain.",
                piece.len()
            ))
            .hint("If your source string is not fixed-width, try using the \"FM\" modifier."));
        }
        let sign = usize::from(piece.starts_with(['-', '+']));
        let digits = piece[sign..].bytes().take_while(u8::is_ascii_digit).count();
        let used = sign + digits;
        if digits == 0 {
            return Err(invalid(word, &first(width)).detail("Value must be an integer."));
        }
        if !greedy && used < width {
            return Err(invalid(word, &first(width))
                .detail(format!(
                    "Field requires {width} characters, but only {used} could be parsed."
                ))
                .hint("If your source string is not fixed-width, try using the \"FM\" modifier."));
        }
        let n = piece[..used].parse::<i32>().map_err(|_| {
            overflow(format!(
                "value for \"{word}\" in source string is out of range"
            ))
            .detail("Value must be in the range -2147483648 to 2147483647.")
        })?;
        self.rest = &self.rest[used..];
        Ok((n, used))
    }

    /// Which of these names stands here, in any case.
    fn name(&mut self, word: &str, names: &[&str]) -> Result<usize> {
        let here = |name: &&str| {
            let head = self.rest.get(..name.len());
            head.is_some_and(|h| h.eq_ignore_ascii_case(name))
        };
        let Some(k) = names.iter().position(here) else {
            let token: String = self
                .rest
                .chars()
                .take_while(|c| !c.is_whitespace())
                .collect();
            return Err(invalid(word, &token).detail(
                "The given value did not match any of the allowed values for this field.",
            ));
        };
        self.rest = &self.rest[names[k].len()..];
        Ok(k)
    }
}

/// Characters that a number takes before another number; `None` for words that are no numbers.
fn width_of(word: &str) -> Option<usize> {
    Some(match word {
        "YYYY" | "IYYY" | "FF4" => 4,
        "YYY" | "IYY" | "DDD" | "IDDD" | "MS" | "FF3" => 3,
        "YY" | "IY" | "MM" | "DD" | "IW" | "WW" | "CC" | "HH24" | "HH12" | "HH" | "MI" | "SS"
        | "FF2" => 2,
        "Y" | "I" | "ID" | "D" | "W" | "Q" | "J" | "FF1" => 1,
        "SSSS" | "FF5" => 5,
        "SSSSS" => 5,
        "US" | "FF6" => 6,
        "Y,YYY" => 5,
        _ => return None,
    })
}

/// Years of fewer than four digits are those next to 2020.
fn near_2020(y: i32) -> i32 {
    match y {
        0..70 => y + 2000,
        70..100 => y + 1900,
        100..520 => y + 2000,
        520..1000 => y + 1000,
        y => y,
    }
}

/// Sets a field; 22007 when it was set to something else.
fn put(field: &mut i32, n: i32, word: &str) -> Result<()> {
    if *field != 0 && *field != n {
        return Err(format_error(format!(
            "conflicting values for \"{word}\" field in formatting string"
        ))
        .detail("This value contradicts a previous setting for the same field type."));
    }
    *field = n;
    Ok(())
}

fn counting(word: &str) -> Option<Counting> {
    match word {
        "IYYY" | "IYY" | "IY" | "I" | "IW" | "ID" | "IDDD" => Some(Counting::IsoWeeks),
        "Y,YYY" | "YYYY" | "YYY" | "YY" | "Y" | "MM" | "DD" | "DDD" | "D" | "W" | "WW" | "RM"
        | "rm" => Some(Counting::Gregorian),
        w if w.to_ascii_uppercase().starts_with("MON") => Some(Counting::Gregorian),
        _ => None,
    }
}

fn read(s: &str, format: &str) -> Result<Read> {
    let mut r = Read::default();
    let mut input = Input {
        all: s,
        rest: s,
        ahead: 0,
        fixed: false,
    };
    let nodes = parse(format);
    for (i, node) in nodes.iter().enumerate() {
        if input.rest.is_empty() {
            break;
        }
        if !input.fixed && (i == 0 || matches!(node, Node::Key { .. })) {
            input.blanks();
        }
        match node {
            Node::Fixed => input.fixed = true,
            Node::Separator(_) => input.literal(true),
            Node::Text(_) => input.literal(false),
            Node::Key {
                word,
                fill,
                ordinal,
            } => {
                let greedy = !fill || ordinal.is_some() || !digits_follow(&nodes[i + 1..]);
                field(&mut r, &mut input, word, greedy)?;
                if ordinal.is_some() {
                    input.skip(2);
                }
                if !input.fixed {
                    input.ahead = 0;
                    input.blanks();
                }
            }
        }
    }
    Ok(r)
}

/// Whether the next piece of the format is made of digits.
fn digits_follow(nodes: &[Node<'_>]) -> bool {
    match nodes.iter().find(|n| !matches!(n, Node::Fixed)) {
        None => false,
        Some(Node::Key { word, .. }) => width_of(word).is_some(),
        Some(Node::Text(t) | Node::Separator(t)) => t.bytes().all(|b| b.is_ascii_digit()),
        Some(Node::Fixed) => false,
    }
}

fn field(r: &mut Read, input: &mut Input<'_>, word: &'static str, greedy: bool) -> Result<()> {
    if let Some(c) = counting(word) {
        if r.counting.is_some_and(|before| before != c) {
            return Err(
                format_error("invalid combination of date conventions".into()).hint(
                    "Do not mix Gregorian and ISO week date conventions in a formatting template.",
                ),
            );
        }
        r.counting = Some(c);
    }
    if word == "Y,YYY" {
        return year_with_comma(r, input);
    }
    if let Some(width) = width_of(word) {
        let (n, used) = input.number(word, width, greedy)?;
        return number_field(r, word, n, used);
    }
    let upper = word.to_ascii_uppercase();
    match upper.as_str() {
        "MONTH" | "MON" | "RM" => {
            let short: Vec<&str> = MONTHS.iter().map(|m| &m[..3]).collect();
            let month = match upper.as_str() {
                "MONTH" => input.name(word, &MONTHS)?,
                "MON" => input.name(word, &short)?,
                // The longer before those that they begin with.
                _ => 11 - input.name(word, &ROMAN.iter().rev().copied().collect::<Vec<_>>())?,
            };
            put(&mut r.month, month as i32 + 1, word)
        }
        "DAY" | "DY" => {
            let short: Vec<&str> = DAYS.iter().map(|d| &d[..3]).collect();
            let names = if upper == "DAY" { &DAYS[..] } else { &short };
            let day = input.name(word, names)?;
            put(&mut r.day_of_week, day as i32 + 1, word)
        }
        "AM" | "PM" => flag(&mut r.pm, input, word, &["am", "pm"]).map(|()| r.twelve = true),
        "A.M." | "P.M." => {
            flag(&mut r.pm, input, word, &["a.m.", "p.m."]).map(|()| r.twelve = true)
        }
        "AD" | "BC" => flag(&mut r.bc, input, word, &["ad", "bc"]),
        "A.D." | "B.C." => flag(&mut r.bc, input, word, &["a.d.", "b.c."]),
        "TZH" => {
            // A minus sign may have been taken for a separator.
            let sign = match input.rest.chars().next() {
                Some(c @ ('+' | '-' | ' ')) => {
                    input.skip(1);
                    c
                }
                _ if input.ahead > 0 => input.before().unwrap_or('+'),
                _ => '+',
            };
            r.zone_sign = Some(if sign == '-' { -1 } else { 1 });
            r.zone_hours = input.number(word, 2, greedy)?.0;
            Ok(())
        }
        "TZM" => {
            r.zone_sign.get_or_insert(1);
            r.zone_minutes = input.number(word, 2, greedy)?.0;
            Ok(())
        }
        _ => Err(Error::unsupported("").message(format!(
            "formatting field \"{word}\" is only supported in to_char"
        ))),
    }
}

/// Which of two names stands here.
fn flag(on: &mut bool, input: &mut Input<'_>, word: &str, names: &[&str]) -> Result<()> {
    *on = input.name(word, names)? == 1;
    Ok(())
}

fn year_with_comma(r: &mut Read, input: &mut Input<'_>) -> Result<()> {
    let bad = || format_error("invalid input string for \"Y,YYY\"".into());
    let (thousands, rest) = input.rest.split_once(',').ok_or_else(bad)?;
    let thousands: i32 = thousands.trim().parse().map_err(|_| bad())?;
    let digits = rest.bytes().take(3).take_while(u8::is_ascii_digit).count();
    let years: i32 = rest[..digits].parse().map_err(|_| bad())?;
    let year = thousands
        .checked_mul(1000)
        .and_then(|t| t.checked_add(years));
    input.rest = &rest[digits..];
    r.year_digits = 4;
    let range = || overflow("value for \"Y,YYY\" in source string is out of range");
    put(&mut r.year, year.ok_or_else(range)?, "Y,YYY")
}

fn number_field(r: &mut Read, word: &str, n: i32, used: usize) -> Result<()> {
    // Digits behind the point are worth more the fewer they are.
    let scaled = |places: u32| n.saturating_mul(10i32.pow(places.saturating_sub(used as u32)));
    match word {
        "YYYY" | "IYYY" | "YYY" | "IYY" | "YY" | "IY" | "Y" | "I" => {
            r.year_digits = word.len();
            let full = word.len() == 4 || used >= 4;
            put(&mut r.year, if full { n } else { near_2020(n) }, word)
        }
        "MM" => put(&mut r.month, n, word),
        "DD" => put(&mut r.day, n, word),
        "DDD" | "IDDD" => put(&mut r.day_of_year, n, word),
        "WW" | "IW" => put(&mut r.week, n, word),
        "W" => put(&mut r.week_of_month, n, word),
        "D" => put(&mut r.day_of_week, n, word),
        "ID" => put(&mut r.day_of_week, if n >= 7 { 1 } else { n + 1 }, word),
        "J" => put(&mut r.julian, n, word),
        "CC" => put(&mut r.century, n, word),
        // Which day of the quarter is meant, nothing says.
        "Q" => Ok(()),
        "HH24" => put(&mut r.hour, n, word),
        "HH" | "HH12" => {
            r.twelve = true;
            put(&mut r.hour, n, word)
        }
        "MI" => put(&mut r.minute, n, word),
        "SS" => put(&mut r.second, n, word),
        "SSSS" | "SSSSS" => put(&mut r.seconds_of_day, n, word),
        "MS" => put(&mut r.millis, scaled(3), word),
        "US" => put(&mut r.micros, scaled(6), word),
        _ => {
            r.precision = Some(i32::from(word.as_bytes()[2] - b'0'));
            put(&mut r.micros, scaled(6), word)
        }
    }
}

impl Read {
    fn year(&self) -> i32 {
        let century = if self.bc { -self.century } else { self.century };
        match (self.year, century) {
            (0, 0) => 0,
            (0, c) if c > 0 => (c - 1) * 100 + 1,
            (0, c) => c * 100 + 1,
            (y, c) if c != 0 && self.year_digits <= 2 => match (y % 100, c > 0) {
                (0, true) => c * 100,
                (0, false) => c * 100 + 1,
                (y, true) => (c - 1) * 100 + y,
                (y, false) => (c + 1) * 100 - y + 1,
            },
            (y, _) => {
                let y = if self.bc { y.saturating_neg() } else { y };
                if y < 0 { y + 1 } else { y }
            }
        }
    }

    fn date(&self, s: &str) -> Result<(i32, i32, i32)> {
        let bad = || overflow(format!("date/time field value out of range: \"{s}\""));
        if self.century.unsigned_abs() >= 100_000 {
            return Err(bad());
        }
        let year = self.year();
        // What is far outside of all dates is not to be computed with.
        let small = |n: i32| n.unsigned_abs() < 10_000_000;
        if ![year, self.week, self.day_of_year, self.week_of_month]
            .into_iter()
            .all(small)
        {
            return Err(bad());
        }
        let iso = self.counting == Some(Counting::IsoWeeks);
        let mut date = (year, 1, 1);
        let mut whole = false;
        if self.julian != 0 {
            date = calendar::from_days(i64::from(self.julian) - calendar::JULIAN_2000);
            whole = true;
        }
        let mut day_of_year = self.day_of_year;
        if self.week != 0 && iso {
            let from_monday = match self.day_of_week {
                0 => 0,
                1 => 6,
                d => d - 2,
            };
            let start = calendar::iso_week_start(year, 1) + i64::from(self.week - 1) * 7;
            date = calendar::from_days(start + i64::from(from_monday));
            whole = true;
        } else if self.week != 0 {
            day_of_year = (self.week - 1) * 7 + 1;
        }
        let day = match self.week_of_month {
            0 => self.day,
            w => (w - 1) * 7 + 1,
        };
        if day != 0 {
            date.2 = day;
        }
        if self.month != 0 {
            date.1 = self.month;
        }
        if day_of_year != 0 && (date.1 <= 1 || date.2 <= 1) && !whole {
            if year == 0 && !self.bc {
                return Err(format_error(
                    "cannot calculate day of year without year information".into(),
                ));
            }
            if iso {
                let start = calendar::iso_week_start(year, 1);
                return Ok(calendar::from_days(start + i64::from(day_of_year) - 1));
            }
            if !(1..=365 + i32::from(calendar::is_leap(year))).contains(&day_of_year) {
                return Err(bad());
            }
            let (_, m, d) = calendar::from_days(calendar::to_days(year, 1, day_of_year));
            if date.1 <= 1 {
                date.1 = m;
            }
            if date.2 <= 1 {
                date.2 = d;
            }
        }
        let (y, m, d) = date;
        if !(1..=12).contains(&m) || !(1..=calendar::days_in_month(y, m)).contains(&d) {
            return Err(bad());
        }
        Ok(date)
    }

    fn time(&self, s: &str) -> Result<i64> {
        let n = self.seconds_of_day;
        let or = |field: i32, other: i32| if field != 0 { field } else { other };
        let mut h = or(self.hour, n / 3600);
        let minute = or(self.minute, n / 60 % 60);
        let second = or(self.second, n % 60);
        if self.twelve {
            if !(1..=12).contains(&h) {
                return Err(
                    format_error(format!("hour \"{h}\" is invalid for the 12-hour clock"))
                        .hint("Use the 24-hour clock, or give an hour between 1 and 12."),
                );
            }
            h = h % 12 + if self.pm { 12 } else { 0 };
        }
        let us = i64::from(self.millis) * 1000 + i64::from(self.micros);
        if !(0..24).contains(&h)
            || !(0..60).contains(&minute)
            || !(0..60).contains(&second)
            || !(0..USECS_PER_SEC).contains(&us)
        {
            return Err(overflow(format!(
                "date/time field value out of range: \"{s}\""
            )));
        }
        Ok(i64::from(h) * USECS_PER_HOUR
            + i64::from(minute) * USECS_PER_MIN
            + i64::from(second) * USECS_PER_SEC
            + us)
    }

    /// Seconds east of Greenwich.
    fn east(&self, s: &str) -> Result<Option<i32>> {
        let Some(sign) = self.zone_sign else {
            return Ok(None);
        };
        if !(0..=15).contains(&self.zone_hours) || !(0..60).contains(&self.zone_minutes) {
            return Err(overflow(format!(
                "date/time field value out of range: \"{s}\""
            )));
        }
        Ok(Some(
            sign * (self.zone_hours * 3600 + self.zone_minutes * 60),
        ))
    }
}

/// The local time, its zone, and the digits of its seconds.
fn to_local(a: &[Value]) -> Result<(i64, Option<i32>, Option<i32>)> {
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
    Ok((t, r.east(s)?, r.precision))
}

fn to_timestamp(a: &[Value], c: Ctx<'_, '_>) -> Result<Value> {
    let (t, east, precision) = to_local(a)?;
    let t = match east {
        Some(e) => t - i64::from(e) * USECS_PER_SEC,
        None => c.settings.timezone.instant(t),
    };
    Ok(Value::TimestampTz(round_to(t, precision.unwrap_or(-1))))
}

fn to_date(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    Ok(Value::Date(timestamp_to_date(to_local(a)?.0)))
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
