//! `to_char` of dates, times and intervals; its counterparts stand in [`super::from_char`].
//!
//! Left out on purpose: `TM` localised names, `SP` spell mode.

use super::EvalContext;
use super::registry::{Registry, names::*};
use crate::types::cast::date_to_timestamp;
use crate::types::datetime::{
    Fields, USECS_PER_DAY, USECS_PER_HOUR, USECS_PER_MIN, USECS_PER_SEC, calendar, format,
    is_infinite,
};
use crate::types::ops::datetime::iv;
use base::{Error, Result, SqlState, Value};
use std::fmt::Write;

type Ctx<'a, 'b> = &'a mut EvalContext<'b>;

pub(super) const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
pub(super) const DAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];
pub(super) const ROMAN: [&str; 12] = [
    "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII",
];

/// Keywords, the longer before their prefixes.
const KEYWORDS: &[&str] = &[
    "SSSSS", "SSSS", "Y,YYY", "YYYY", "IYYY", "MONTH", "Month", "month", "HH24", "HH12", "IDDD",
    "A.M.", "P.M.", "a.m.", "p.m.", "A.D.", "B.C.", "a.d.", "b.c.", "YYY", "IYY", "DAY", "Day",
    "day", "DDD", "MON", "Mon", "mon", "FF1", "FF2", "FF3", "FF4", "FF5", "FF6", "TZH", "TZM",
    "AM", "PM", "am", "pm", "AD", "BC", "ad", "bc", "CC", "DD", "DY", "Dy", "dy", "HH", "ID", "IW",
    "IY", "MI", "MM", "MS", "OF", "RM", "rm", "SS", "TZ", "tz", "US", "WW", "YY", "D", "I", "J",
    "Q", "W", "Y",
];

/// A piece of a format.
pub(super) enum Node<'a> {
    Key {
        word: &'static str,
        fill: bool,
        ordinal: Option<bool>,
    },
    /// A character that stands for itself.
    Text(&'a str),
    /// A blank or a mark outside of quotes, which stands for itself.
    Separator(&'a str),
    /// `FX`: what follows is read as it stands.
    Fixed,
}

impl<'a> Node<'a> {
    /// What stands for itself.
    fn literal(&self) -> &'a str {
        match self {
            Node::Text(t) | Node::Separator(t) => t,
            _ => "",
        }
    }
}

/// Keywords are known in upper case, lower case (as `yyyy`) and, for names, in three spellings.
fn keyword(rest: &str) -> Option<(&'static str, usize)> {
    KEYWORDS.iter().find_map(|k| {
        let head = rest.get(..k.len())?;
        let cased = k.bytes().any(|b| b.is_ascii_lowercase())
            || [
                "MONTH", "DAY", "MON", "DY", "AM", "PM", "AD", "BC", "A.M.", "P.M.", "A.D.",
                "B.C.", "RM", "TZ",
            ]
            .contains(k);
        let hit = if cased {
            head == *k
        } else {
            head.eq_ignore_ascii_case(k)
        };
        hit.then_some((*k, k.len()))
    })
}

/// The characters up to the closing quote, one by one: a backslash takes the next one as it is. Gives how many bytes were taken.
pub(super) fn quoted<'a>(s: &'a str, f: &mut dyn FnMut(&'a str)) -> usize {
    let mut it = s.char_indices();
    while let Some((i, c)) = it.next() {
        let (i, c) = match c {
            '"' => return i + 1,
            '\\' => it.next().unwrap_or((i, c)),
            _ => (i, c),
        };
        f(&s[i..i + c.len_utf8()]);
    }
    s.len()
}

pub(super) fn parse(f: &str) -> Vec<Node<'_>> {
    let mut out = Vec::new();
    let mut i = 0;
    while i < f.len() {
        let rest = &f[i..];
        if let Some(text) = rest.strip_prefix('"') {
            i += 1 + quoted(text, &mut |c| out.push(Node::Text(c)));
            continue;
        }
        if rest.starts_with("\\\"") {
            out.push(Node::Separator("\""));
            i += 2;
            continue;
        }
        let (mut fill, mut at) = (true, i);
        loop {
            let head = f.get(at..at + 2).unwrap_or("");
            if head.eq_ignore_ascii_case("FM") {
                fill = false;
            } else {
                let translated = head.eq_ignore_ascii_case("TM") && keyword(&f[at + 2..]).is_some();
                if !translated && !head.eq_ignore_ascii_case("FX") {
                    break;
                }
                fill &= !translated;
                if !translated {
                    out.push(Node::Fixed);
                }
            }
            at += 2;
        }
        if let Some((word, len)) = keyword(&f[at..]) {
            at += len;
            let ordinal = match f.get(at..at + 2) {
                Some("TH") => Some(true),
                Some("th") => Some(false),
                _ => None,
            };
            at += 2 * usize::from(ordinal.is_some());
            out.push(Node::Key {
                word,
                fill,
                ordinal,
            });
            i = at;
        } else if at > i {
            i = at;
        } else {
            let c = rest.chars().next().expect("not at the end");
            let piece = &rest[..c.len_utf8()];
            let mark =
                c.is_ascii_whitespace() || (c.is_ascii_graphic() && !c.is_ascii_alphanumeric());
            out.push(match mark {
                true => Node::Separator(piece),
                false => Node::Text(piece),
            });
            i += piece.len();
        }
    }
    out
}

/// What a format may print.
struct Parts {
    f: Fields,
    day: i64,
    /// Hours without limit: those of an interval.
    hours: i64,
    zone: Option<(i32, String)>,
    interval: bool,
}

pub(super) fn th(n: i64) -> &'static str {
    match (n.abs() % 100, n.abs() % 10) {
        (11..=13, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    }
}

fn cased(name: &str, key: &str) -> String {
    if key.chars().all(|c| !c.is_ascii_lowercase()) {
        name.to_uppercase()
    } else if key.starts_with(|c: char| c.is_ascii_lowercase()) {
        name.to_lowercase()
    } else {
        name.into()
    }
}

/// The Roman numeral of the month. An interval's months run from -11 to 11: whole years count as December of the one before, or
/// as January when they are negative; months below zero count from December back.
fn roman(f: &Fields) -> Option<&'static str> {
    let month = match f.month {
        0 if f.year == 0 => return None,
        0 if f.year > 0 => 12,
        0 => 1,
        m if m < 0 => 13 + m,
        m => m,
    };
    ROMAN.get(month as usize - 1).copied()
}

fn write(p: &Parts, format: &str) -> Result<String> {
    let mut out = String::new();
    for node in parse(format) {
        let (word, fill, ordinal) = match node {
            Node::Key {
                word,
                fill,
                ordinal,
            } => (word, fill, ordinal),
            other => {
                out.push_str(other.literal());
                continue;
            }
        };
        let f = &p.f;
        let year = if f.year > 0 || p.interval {
            f.year
        } else {
            1 - f.year
        };
        let (iso_year, iso_week) = calendar::iso_week(p.day);
        let iso_year = if iso_year > 0 { iso_year } else { 1 - iso_year };
        let minute = f.micros / USECS_PER_MIN % 60;
        let second = f.micros / USECS_PER_SEC % 60;
        let us = f.micros % USECS_PER_SEC;
        let dow = calendar::day_of_week(p.day);
        let doy = p.day - calendar::to_days(f.year, 1, 1) + 1;
        let name = |s: &str, width: usize| {
            let s = cased(s, word);
            if fill { format!("{s:<width$}") } else { s }
        };
        if p.interval
            && matches!(
                word.to_ascii_uppercase().as_str(),
                "MONTH"
                    | "MON"
                    | "DAY"
                    | "DY"
                    | "AD"
                    | "BC"
                    | "TZ"
                    | "OF"
                    | "TZH"
                    | "TZM"
                    | "D"
                    | "ID"
            )
        {
            return Err(Error::new(
                SqlState::INVALID_DATETIME_FORMAT,
                "invalid format specification for an interval value",
            )
            .hint("Intervals are not tied to specific calendar dates."));
        }
        let (n, width): (i64, usize) = match word {
            "HH24" => (p.hours, 2),
            "HH12" | "HH" => (if p.hours % 12 == 0 { 12 } else { p.hours % 12 }, 2),
            "MI" => (minute, 2),
            "SS" => (second, 2),
            "MS" | "FF3" => (us / 1000, 3),
            "US" | "FF6" => (us, 6),
            "FF1" => (us / 100_000, 1),
            "FF2" => (us / 10_000, 2),
            "FF4" => (us / 100, 4),
            "FF5" => (us / 10, 5),
            "SSSS" | "SSSSS" => (p.hours * 3600 + minute * 60 + second, 1),
            "YYYY" => (year.into(), 4),
            "YYY" => (i64::from(year % 1000), 3),
            "YY" => (i64::from(year % 100), 2),
            "Y" => (i64::from(year % 10), 1),
            "IYYY" => (iso_year.into(), 4),
            "IYY" => (i64::from(iso_year % 1000), 3),
            "IY" => (i64::from(iso_year % 100), 2),
            "I" => (i64::from(iso_year % 10), 1),
            "MM" => (f.month.into(), 2),
            "DD" => (f.day.into(), 2),
            "DDD" => (doy, 3),
            "IDDD" => (
                p.day - calendar::iso_week_start(calendar::iso_week(p.day).0, 1) + 1,
                3,
            ),
            "D" => (dow + 1, 1),
            "ID" => ((dow + 6) % 7 + 1, 1),
            "W" => (i64::from((f.day - 1) / 7 + 1), 1),
            "WW" => ((doy - 1) / 7 + 1, 2),
            "IW" => (iso_week.into(), 2),
            "CC" => (
                i64::from(if f.year > 0 {
                    (f.year - 1) / 100 + 1
                } else {
                    f.year / 100 - 1
                }),
                2,
            ),
            "J" => (p.day + calendar::JULIAN_2000, 1),
            "Q" => (i64::from((f.month - 1) / 3 + 1), 1),
            _ => {
                match word {
                    "Y,YYY" => {
                        write!(out, "{},{:03}", year / 1000, year % 1000).expect("to a string")
                    }
                    "AM" | "PM" => out.push_str(if p.hours % 24 >= 12 { "PM" } else { "AM" }),
                    "am" | "pm" => out.push_str(if p.hours % 24 >= 12 { "pm" } else { "am" }),
                    "A.M." | "P.M." => {
                        out.push_str(if p.hours % 24 >= 12 { "P.M." } else { "A.M." })
                    }
                    "a.m." | "p.m." => {
                        out.push_str(if p.hours % 24 >= 12 { "p.m." } else { "a.m." })
                    }
                    "AD" | "BC" => out.push_str(if f.year > 0 { "AD" } else { "BC" }),
                    "ad" | "bc" => out.push_str(if f.year > 0 { "ad" } else { "bc" }),
                    "A.D." | "B.C." => out.push_str(if f.year > 0 { "A.D." } else { "B.C." }),
                    "a.d." | "b.c." => out.push_str(if f.year > 0 { "a.d." } else { "b.c." }),
                    "MONTH" | "Month" | "month" => {
                        out.push_str(&name(MONTHS[f.month as usize - 1], 9))
                    }
                    "MON" | "Mon" | "mon" => {
                        out.push_str(&name(&MONTHS[f.month as usize - 1][..3], 3))
                    }
                    "DAY" | "Day" | "day" => out.push_str(&name(DAYS[dow as usize], 9)),
                    "DY" | "Dy" | "dy" => out.push_str(&name(&DAYS[dow as usize][..3], 3)),
                    "RM" | "rm" => out.push_str(&match roman(f) {
                        Some(numeral) => name(numeral, 4),
                        None => String::new(),
                    }),
                    _ => zone(word, p, &mut out),
                }
                continue;
            }
        };
        if fill {
            // A negative number keeps its digits beside the sign.
            let width = width + usize::from(n < 0);
            write!(out, "{n:0width$}").expect("to a string");
        } else {
            write!(out, "{n}").expect("to a string");
        }
        match ordinal {
            Some(true) => out.push_str(&th(n).to_uppercase()),
            Some(false) => out.push_str(th(n)),
            None => {}
        }
    }
    Ok(out)
}

fn zone(word: &str, p: &Parts, out: &mut String) {
    let Some((east, name)) = &p.zone else {
        if matches!(word, "OF" | "TZH") {
            out.push_str("+00");
        } else if word == "TZM" {
            out.push_str("00");
        }
        return;
    };
    match word {
        "TZ" => out.push_str(name),
        "tz" => out.push_str(&name.to_lowercase()),
        "OF" => format::offset(*east, out),
        "TZH" => write!(
            out,
            "{}{:02}",
            if *east < 0 { '-' } else { '+' },
            east.abs() / 3600
        )
        .expect("to a string"),
        _ => write!(out, "{:02}", east.abs() / 60 % 60).expect("to a string"),
    }
}

/// `to_char` of a timestamp, with or without time zone.
pub(super) fn moment(a: &[Value], c: Ctx<'_, '_>) -> Result<Value> {
    let zone = &c.settings.timezone;
    let (t, named) = match a[0] {
        Value::Timestamp(t) => (t, None),
        Value::TimestampTz(t) if is_infinite(t) => (t, None),
        Value::TimestampTz(t) => (
            zone.local(t),
            Some((zone.offset_at(t), zone.abbreviation_at(t))),
        ),
        Value::Date(d) => (date_to_timestamp(d)?, None),
        ref v => panic!("{v:?} is no timestamp"),
    };
    if is_infinite(t) {
        return Ok(Value::Null);
    }
    let f = Fields::of(t);
    let p = Parts {
        f,
        day: t.div_euclid(USECS_PER_DAY),
        hours: f.hour(),
        zone: named,
        interval: false,
    };
    write(&p, a[1].as_str().expect("text")).map(Value::from)
}

fn interval(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let i = iv(&a[0]);
    let p = Parts {
        f: Fields {
            year: i.months / 12,
            month: i.months % 12,
            day: i.days,
            micros: i.micros % USECS_PER_DAY,
        },
        day: i64::from(i.days),
        hours: i.micros / USECS_PER_HOUR,
        zone: None,
        interval: true,
    };
    write(&p, a[1].as_str().expect("text")).map(Value::from)
}

/// Adds the formatting functions of dates and times.
pub(super) fn register(r: &mut Registry) {
    super::from_char::register(r);
    r.f("to_char", &[TIMESTAMP, TEXT], TEXT, STA, moment);
    r.f("to_char", &[TIMESTAMPTZ, TEXT], TEXT, STA, moment);
    r.f("to_char", &[INTERVAL, TEXT], TEXT, STA, interval);
}

#[cfg(test)]
mod tests {
    use crate::functions::testing::call;

    #[test]
    fn formats_are_those_of_postgresql() {
        let t = "2020-03-04 15:06:07.123456::timestamp";
        for (f, want) in [
            (
                "YYYY-MM-DD HH24:MI:SS.US Day DD Mon FMMonth Dth Q WW IW DDD D ID J CC HH12 AM a.m. MS TZ OF",
                "2020-03-04 15:06:07.123456 Wednesday 04 Mar March 4th 1 10 10 064 4 3 2458913 21 03 PM p.m. 123  +00",
            ),
            ("FMDD/FMMM/YY", "4/3/20"),
            ("\"Quarter\" Q, DAY", "Quarter 1, WEDNESDAY"),
            ("yyyy-mm-dd hh24:mi", "2020-03-04 15:06"),
            ("DDth Y,YYY", "04th 2,020"),
            ("month Month|", "march     March    |"),
        ] {
            assert_eq!(call("to_char", &[t, f]), want, "{f}");
        }
        assert_eq!(
            call("to_char", &["15h 2m 12s::interval", "HH24:MI:SS"]),
            "15:02:12"
        );
        assert_eq!(
            call("to_date", &["05 Dec 2000", "DD Mon YYYY"]),
            "2000-12-05"
        );
        assert_eq!(call("to_date", &["20001205", "YYYYMMDD"]), "2000-12-05");
        assert_eq!(
            call(
                "to_timestamp",
                &["2000-12-05 03:04:05.5 PM", "YYYY-MM-DD HH:MI:SS.MS PM"]
            ),
            "2000-12-05 15:04:05.5+00"
        );
        assert!(
            call("to_date", &["x", "YYYY"]).contains("22007: invalid value \"x\" for \"YYYY\"")
        );
    }
}
