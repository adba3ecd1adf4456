//! Texts of settings: checked, and brought to the form that SHOW prints.

use super::{Kind, Setting, Unit};
use crate::session::token::Token;
use crate::types::zone::Zone;
use crate::types::{self, OutputSettings};
use base::{Error, Result, SqlState, Type, Value};
use compact_str::{CompactString, format_compact};
use std::fmt::Display;
use std::time::Duration;

/// The canonical form of a value given for a setting; 22023 when it is none. `old` is the value in force.
pub fn canonical(s: &Setting, v: &str, old: &str) -> Result<CompactString> {
    let bad = || invalid(s.name, v);
    match s.kind {
        Kind::Bool => {
            let on = bool_of(v).ok_or_else(|| {
                Error::new(
                    SqlState::INVALID_PARAMETER_VALUE,
                    format!("parameter \"{}\" requires a Boolean value", s.name),
                )
            })?;
            if s.name == "standard_conforming_strings" && !on {
                return Err(bad());
            }
            Ok(if on { "on" } else { "off" }.into())
        }
        Kind::Int(lo, hi, unit) => match interval(s.name, v) {
            Some(ms) => integer(s, &ms, lo, hi, unit),
            None => integer(s, v, lo, hi, unit),
        },
        Kind::Real(lo, hi) => {
            let x: f64 = v.trim().parse().map_err(|_| bad())?;
            if x.is_finite() && (lo..=hi).contains(&x) {
                Ok(format_compact!("{x}"))
            } else {
                Err(bad())
            }
        }
        Kind::RealMilliseconds(lo, hi) => {
            let ms = number(s, v, Unit::Milliseconds)?;
            match (lo..=hi).contains(&ms) {
                true => Ok(with_unit_of_time(ms)),
                false => Err(out_of_range(s, ms, &lo, &hi, Unit::Milliseconds)),
            }
        }
        Kind::Enum(names) => {
            let wanted = v.trim();
            if let Some(n) = names.iter().find(|n| n.eq_ignore_ascii_case(wanted)) {
                return Ok((*n).into());
            }
            // Enumerations with "on" and "off" take the other spellings of a Boolean too.
            match bool_of(wanted).map(|b| if b { "on" } else { "off" }) {
                Some(n) if names.contains(&n) => Ok(n.into()),
                _ => Err(bad().hint(format!("Available values: {}.", names.join(", ")))),
            }
        }
        Kind::Text => text(s.name, v, old),
    }
}

fn invalid(name: &str, v: &str) -> Error {
    Error::new(
        SqlState::INVALID_PARAMETER_VALUE,
        format!("invalid value for parameter \"{name}\": \"{v}\""),
    )
}

fn text(name: &str, v: &str, old: &str) -> Result<CompactString> {
    match name {
        // PostgreSQL looks at letters and digits only, so that quotes do not matter.
        "client_encoding" => {
            let plain = v.chars().filter(char::is_ascii_alphanumeric);
            match plain.collect::<String>().to_ascii_lowercase().as_str() {
                "utf8" | "unicode" => Ok("UTF8".into()),
                // Nothing is converted then: the client gets the bytes of the database, and has to send such.
                "sqlascii" => Ok("SQL_ASCII".into()),
                _ => Err(invalid(name, v)),
            }
        }
        "TimeZone" => Ok(zone(v)?),
        "DateStyle" => datestyle(v, old).ok_or_else(|| invalid(name, v)),
        "search_path" => {
            name_list(v)?;
            Ok(v.into())
        }
        "canon.min_token" if v.is_empty() => Ok(v.into()),
        "canon.min_token" => match Token::parse(v) {
            Some(t) => Ok(format_compact!("{t}")),
            None => Err(invalid(name, v).detail(
                "A token is the value of canon.commit_token: cluster, term and position with colons between.",
            )),
        },
        // Anything but printable ASCII becomes a question mark, as in PostgreSQL.
        "application_name" => Ok(v
            .bytes()
            .map(|b| {
                if (32..127).contains(&b) {
                    b as char
                } else {
                    '?'
                }
            })
            .take(63)
            .collect()),
        _ => Ok(v.into()),
    }
}

/// The milliseconds of an interval, for the setting that takes one beside the times with unit that others take.
fn interval(name: &str, v: &str) -> Option<String> {
    if name != "canon.max_staleness" {
        return None;
    }
    let digits = v.trim_start_matches(|c: char| c.is_ascii_digit() || c.is_whitespace());
    if digits.is_empty() || TIMES.iter().any(|(unit, _)| *unit == digits.trim()) {
        return None;
    }
    match types::text::input(v, Type::Interval.into(), &OutputSettings::default()) {
        Ok(Value::Interval(i)) => Some((i.span() / 1000).to_string()),
        _ => None,
    }
}

fn zone(v: &str) -> Result<CompactString> {
    let t = v.trim();
    if t.eq_ignore_ascii_case("local") || t.eq_ignore_ascii_case("default") {
        return Ok("UTC".into());
    }
    Zone::setting(t)
        .map(|z| z.name().into())
        .map_err(|e| match e.fields().detail.as_str() {
            "" => invalid("TimeZone", v),
            d => invalid("TimeZone", v).detail(d),
        })
}

fn datestyle(v: &str, old: &str) -> Option<CompactString> {
    let (mut style, mut order) = old.split_once(", ").unwrap_or(("ISO", "MDY"));
    let mut order_given = false;
    for word in v.split(',').map(str::trim).filter(|w| !w.is_empty()) {
        let w = word.to_ascii_lowercase();
        match w.as_str() {
            "iso" => style = "ISO",
            "sql" => style = "SQL",
            "german" => {
                style = "German";
                if !order_given {
                    order = "DMY";
                }
            }
            "mdy" | "us" | "noneuropean" | "noneuro" => (order, order_given) = ("MDY", true),
            "dmy" | "european" | "euro" => (order, order_given) = ("DMY", true),
            "ymd" => (order, order_given) = ("YMD", true),
            "default" => (style, order) = ("ISO", "MDY"),
            _ if w.starts_with("postgres") => style = "Postgres",
            _ => return None,
        }
    }
    Some(format_compact!("{style}, {order}"))
}

/// PostgreSQL's Booleans: any unambiguous beginning of true, false, yes, no; on, off, 1, 0.
pub fn bool_of(v: &str) -> Option<bool> {
    let v = v.trim().to_ascii_lowercase();
    let starts = |w: &str| !v.is_empty() && w.starts_with(&v);
    match v.as_str() {
        "on" | "1" => Some(true),
        "of" | "off" | "0" => Some(false),
        _ if starts("true") || starts("yes") => Some(true),
        _ if starts("false") || starts("no") => Some(false),
        _ => None,
    }
}

const TIMES: &[(&str, f64)] = &[
    ("d", 86_400_000.0),
    ("h", 3_600_000.0),
    ("min", 60_000.0),
    ("s", 1000.0),
    ("ms", 1.0),
    ("us", 0.001),
];
const SIZES: &[(&str, f64)] = &[
    ("TB", 1_073_741_824.0),
    ("GB", 1_048_576.0),
    ("MB", 1024.0),
    ("kB", 1.0),
    ("B", 1.0 / 1024.0),
];

fn units(unit: Unit) -> &'static [(&'static str, f64)] {
    match unit {
        Unit::Milliseconds => TIMES,
        Unit::Kilobytes => SIZES,
        Unit::None => &[],
    }
}

/// The number that a text says, in the setting's unit.
fn number(s: &Setting, v: &str, unit: Unit) -> Result<f64> {
    let t = v.trim();
    let end = t
        .find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '-' | '+')))
        .unwrap_or(t.len());
    let number: f64 = t[..end].parse().map_err(|_| invalid(s.name, v))?;
    let name = t[end..].trim();
    let factor = if name.is_empty() {
        1.0
    } else {
        units(unit)
            .iter()
            .find(|(n, _)| *n == name)
            .map(|(_, f)| *f)
            .ok_or_else(|| invalid(s.name, v))?
    };
    Ok(number * factor)
}

fn out_of_range(s: &Setting, n: f64, lo: &dyn Display, hi: &dyn Display, unit: Unit) -> Error {
    let u = match unit {
        Unit::Milliseconds => " ms",
        Unit::Kilobytes => " kB",
        Unit::None => "",
    };
    let name = s.name;
    let what =
        format!("{n}{u} is outside the valid range for parameter \"{name}\" ({lo}{u} .. {hi}{u})");
    Error::new(SqlState::INVALID_PARAMETER_VALUE, what)
}

fn integer(s: &Setting, v: &str, lo: i64, hi: i64, unit: Unit) -> Result<CompactString> {
    let n = number(s, v, unit)?.round();
    if !(lo as f64..=hi as f64).contains(&n) {
        return Err(out_of_range(s, n, &lo, &hi, unit));
    }
    Ok(with_unit(n as i64, unit))
}

/// Milliseconds as a whole number of the largest unit that there is.
fn with_unit_of_time(ms: f64) -> CompactString {
    let us = (ms * 1000.0).round() as i64;
    let fits = |u: &&(&str, f64)| us % ((u.1 * 1000.0).round() as i64) == 0;
    match TIMES.iter().find(fits) {
        Some((name, f)) if us > 0 => {
            format_compact!("{}{name}", us / (f * 1000.0).round() as i64)
        }
        _ => format_compact!("{us}"),
    }
}

/// A number with the largest unit that divides it, as SHOW prints it.
fn with_unit(n: i64, unit: Unit) -> CompactString {
    if n > 0 {
        for (name, f) in units(unit) {
            if *f >= 1.0 && n % (*f as i64) == 0 {
                return format_compact!("{}{name}", n / *f as i64);
            }
        }
    }
    format_compact!("{n}")
}

/// A canonical value as a number in its unit: `5s` is 5000.
pub fn bare(v: &str, unit: Unit) -> String {
    let end = v
        .find(|c: char| !(c.is_ascii_digit() || c == '-'))
        .unwrap_or(v.len());
    let factor = units(unit)
        .iter()
        .find(|(n, _)| *n == &v[end..])
        .map_or(1.0, |(_, f)| *f);
    match v[..end].parse::<i64>() {
        Ok(n) => ((n as f64) * factor).to_string(),
        Err(_) => v.to_owned(),
    }
}

/// The duration that a text means as the value of a time setting would.
pub fn milliseconds_of(text: &str) -> Option<Duration> {
    let s = super::SETTINGS[super::find("statement_timeout")?];
    let Kind::Int(lo, hi, unit) = s.kind else {
        return None;
    };
    milliseconds(&integer(&s, text, lo, hi, unit).ok()?)
}

/// The duration that a canonical time setting means.
pub fn milliseconds(v: &str) -> Option<Duration> {
    let end = v.find(|c: char| !c.is_ascii_digit()).unwrap_or(v.len());
    let n: u64 = v[..end].parse().ok()?;
    let f = TIMES
        .iter()
        .find(|(name, _)| *name == &v[end..])
        .map_or(1, |(_, f)| *f as u64);
    Some(Duration::from_millis(n * f))
}

/// The names in a list such as `search_path`: unquoted ones in lower case.
pub fn name_list(v: &str) -> Result<Vec<String>> {
    let bad = || {
        Error::new(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("invalid value for parameter \"search_path\": \"{v}\""),
        )
        .detail("List syntax is invalid.")
    };
    let mut names = Vec::new();
    let mut rest = v.trim();
    while !rest.is_empty() {
        let name;
        if let Some(quoted) = rest.strip_prefix('"') {
            let mut text = String::new();
            let mut chars = quoted.char_indices().peekable();
            let end = loop {
                match chars.next().ok_or_else(bad)? {
                    (_, '"') if chars.next_if(|(_, c)| *c == '"').is_some() => text.push('"'),
                    (i, '"') => break i,
                    (_, c) => text.push(c),
                }
            };
            name = text;
            rest = quoted[end + 1..].trim_start();
        } else {
            let end = rest.find(',').unwrap_or(rest.len());
            name = rest[..end].trim().to_lowercase();
            rest = &rest[end..];
            if name.is_empty() {
                return Err(bad());
            }
        }
        if !name.is_empty() {
            names.push(name);
        }
        match rest.strip_prefix(',') {
            Some(r) if !r.trim().is_empty() => rest = r.trim_start(),
            Some(_) => return Err(bad()),
            None if rest.is_empty() => {}
            None => return Err(bad()),
        }
    }
    Ok(names)
}

/// `64MB`, `1GB`, `4096` (kilobytes, as PostgreSQL's memory settings).
pub fn bytes(s: &str) -> Option<u64> {
    let s = s.trim();
    let at = s.find(|c: char| !c.is_ascii_digit()).unwrap_or(s.len());
    let n: u64 = s[..at].parse().ok()?;
    let unit = match s[at..].trim() {
        "B" => 1,
        "" | "kB" => 1 << 10,
        "MB" => 1 << 20,
        "GB" => 1 << 30,
        "TB" => 1 << 40,
        _ => return None,
    };
    n.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_lists() {
        let list = |s| name_list(s).unwrap();
        assert_eq!(list("\"$user\", public"), ["$user", "public"]);
        assert_eq!(list("A,\"B\"\"c\""), ["a", "B\"c"]);
        assert!(list("").is_empty());
        assert!(list("\"\"").is_empty());
        for bad in ["a,", ",a", "\"a", "\"a\" b"] {
            assert!(name_list(bad).is_err(), "{bad}");
        }
    }
}
