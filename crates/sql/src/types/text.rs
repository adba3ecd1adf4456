//! The text format of values, as `SELECT` shows it and literals are read.

use super::datetime::{format as dates, interval, parse};
use super::settings::ByteaOutput;
use super::{
    OutputSettings, array_text, cast, composite, float, invalid_input, json, numeric, place,
    typename,
};
use base::{ColumnType, Error, Oid, Packed, Result, SqlState, Type, UserType, Value};
use std::fmt::Write;

macro_rules! put {
    ($out:expr, $($arg:tt)*) => { write!($out, $($arg)*).expect("writing to a string") };
}

/// Appends the text of a non-NULL value. `char(n)` comes without its blanks: see [`output_column`].
pub fn output(v: &Value, ty: Type, settings: &OutputSettings, out: &mut String) {
    match v {
        Value::Null => {}
        Value::Int2(x) => int(i64::from(*x), out),
        Value::Int4(x) => int(i64::from(*x), out),
        Value::Int8(x) => int(*x, out),
        Value::Bool(x) => out.push(if *x { 't' } else { 'f' }),
        Value::Text(s) => out.push_str(s),
        Value::Json(s) => out.push_str(s),
        Value::Numeric(n) => put!(out, "{n}"),
        Value::Float4(x) => float::write4(*x, settings.extra_float_digits, out),
        Value::Float8(x) => float::write8(*x, settings.extra_float_digits, out),
        Value::Char(0) => {}
        Value::Char(c @ 1..128) => out.push(*c as char),
        Value::Char(c) => put!(out, "\\{c:03o}"),
        Value::Bytea(b) if ty == Type::Tid => place::write(b, out),
        Value::Bytea(b) => bytea(b, settings.bytea_output, out),
        Value::Uuid(u) => uuid(u, out),
        Value::Date(d) => dates::date(*d, settings, out),
        Value::Time(t) => dates::time(*t, out),
        Value::Timestamp(t) => dates::timestamp(*t, settings, out),
        Value::TimestampTz(t) => dates::timestamptz(*t, settings, out),
        Value::Interval(i) => dates::interval(i, settings, out),
        Value::Oid(x) => oid(*x, ty, settings, out),
        Value::Array(a) => array_text::write(a, ty, settings, out),
        Value::Enum(ty, rank) => out.push_str(ty.label(*rank).unwrap_or_default()),
        Value::Packed(p) => p.kind().write_text(p.form(), out),
        Value::Row(r) => composite::write(r, settings, out),
    }
}

/// By this routine an error says that an enum has no such label; the newest schema may have it.
pub(crate) const ENUM_IN: &str = "enum_in";

/// The label of an enum that this text is: 22P02.
pub(super) fn label(s: &str, ty: UserType) -> Result<Value> {
    let rank = ty.rank(s).ok_or_else(|| {
        let name = typename::format_type(Type::User(ty), -1);
        Error::new(
            SqlState::INVALID_TEXT_REPRESENTATION,
            format!("invalid input value for enum {name}: \"{s}\""),
        )
        .routine(ENUM_IN)
    })?;
    Ok(Value::Enum(ty, rank))
}

/// An array of `char(n)` whose items have the blanks at their end.
pub fn padded_items(v: &Value, typmod: i32) -> Value {
    let mut v = v.clone();
    if let Value::Array(a) = &mut v {
        for item in &mut a.items {
            if let Value::Text(s) = item {
                let missing = (typmod as usize - 4).saturating_sub(s.chars().count());
                *item = Value::Text(format!("{s}{}", " ".repeat(missing)).into());
            }
        }
    }
    v
}

/// A row that is refused, for the detail of the error. Long values are cut.
pub fn failing_row<'v>(row: impl Iterator<Item = &'v Value>, settings: &OutputSettings) -> String {
    let mut out = String::from("Failing row contains (");
    for (i, v) in row.enumerate() {
        if i > 0 {
            out.push_str(", ");
        }
        if v.is_null() {
            out.push_str("null");
            continue;
        }
        let mut s = String::new();
        let ty = v.natural_type().unwrap_or(Type::Text);
        output(v, ty, settings, &mut s);
        if s.chars().count() > 64 {
            s = s.chars().take(64).collect::<String>() + "...";
        }
        out.push_str(&s);
    }
    out.push_str(").");
    out
}

/// As [`output`], with `char(n)` and items of `char(n)[]` padded to their length.
pub fn output_column(v: &Value, ty: ColumnType, settings: &OutputSettings, out: &mut String) {
    if let (Type::BpcharArray, 5..) = (ty.ty, ty.typmod) {
        return output(&padded_items(v, ty.typmod), ty.ty, settings, out);
    }
    output(v, ty.ty, settings, out);
    if let (Type::Bpchar, Value::Text(s)) = (ty.ty, v)
        && ty.typmod >= 4
    {
        let chars = s.chars().count();
        out.extend(std::iter::repeat_n(
            ' ',
            (ty.typmod as usize - 4).saturating_sub(chars),
        ));
    }
}

/// The text as a string of its own.
pub fn to_string(v: &Value, ty: Type, settings: &OutputSettings) -> String {
    let mut s = String::new();
    output(v, ty, settings, &mut s);
    s
}

fn int(mut x: i64, out: &mut String) {
    if (0..10).contains(&x) {
        return out.push((b'0' + x as u8) as char);
    }
    let mut buf = [0u8; 20];
    let mut at = buf.len();
    let negative = x < 0;
    loop {
        at -= 1;
        buf[at] = b'0' + (x % 10).unsigned_abs() as u8;
        x /= 10;
        if x == 0 {
            break;
        }
    }
    if negative {
        out.push('-');
    }
    out.push_str(std::str::from_utf8(&buf[at..]).expect("digits"));
}

fn bytea(b: &[u8], style: ByteaOutput, out: &mut String) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    match style {
        ByteaOutput::Hex => {
            out.reserve(2 + 2 * b.len());
            out.push_str("\\x");
            for x in b {
                out.push(HEX[(x >> 4) as usize] as char);
                out.push(HEX[(x & 15) as usize] as char);
            }
        }
        ByteaOutput::Escape => {
            for &x in b {
                match x {
                    b'\\' => out.push_str("\\\\"),
                    0x20..0x7f => out.push(x as char),
                    _ => put!(out, "\\{x:03o}"),
                }
            }
        }
    }
}

fn uuid(u: &[u8; 16], out: &mut String) {
    for (i, b) in u.iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            out.push('-');
        }
        put!(out, "{b:02x}");
    }
}

fn oid(x: Oid, ty: Type, settings: &OutputSettings, out: &mut String) {
    let catalog = settings.catalog.as_deref();
    let name = match ty {
        Type::RegClass => catalog.and_then(|c| c.relation_name(x)),
        Type::RegNamespace => catalog.and_then(|c| c.namespace_name(x)),
        Type::RegProc => catalog.and_then(|c| c.procedure_name(x)),
        Type::RegType => match Type::from_oid(x) {
            Some(t) if t.extension().is_none() => Some(typename::format_type(t, -1)),
            _ => catalog.and_then(|c| c.type_name(x)),
        },
        _ => return int(i64::from(x), out),
    };
    match name {
        Some(n) => out.push_str(&n),
        None if x == 0 => out.push('-'),
        None => int(i64::from(x), out),
    }
}

/// A `"char"`: a byte, as itself or as a backslash and three octal digits.
fn one_char(s: &str) -> u8 {
    match s.as_bytes() {
        [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7'] => {
            ((a - b'0') << 6) | ((b - b'0') << 3) | (c - b'0')
        }
        b => b.first().copied().unwrap_or(0),
    }
}

/// Reads a value from text. The modifier is applied as when storing: too long a string for `varchar(n)` is 22001.
/// Malformed text is 22P02, 22007 for dates and times; what does not fit 22003 or 22008.
pub fn input(s: &str, ty: ColumnType, settings: &OutputSettings) -> Result<Value> {
    let v = match ty.ty {
        Type::Int2 => Value::Int2(integer(s, i16::MIN.into(), i16::MAX.into(), ty.ty)? as i16),
        Type::Int4 => Value::Int4(integer(s, i32::MIN.into(), i32::MAX.into(), ty.ty)? as i32),
        Type::Int8 => Value::Int8(integer(s, i64::MIN, i64::MAX, ty.ty)?),
        Type::Text | Type::Unknown | Type::PgNodeTree | Type::AclItem => Value::text(s),
        Type::Varchar | Type::Bpchar | Type::Name => {
            return cast::string(s.into(), ty, false);
        }
        Type::Bool => Value::Bool(boolean(s)?),
        Type::Float4 => Value::Float4(float::read4(s)?),
        Type::Float8 => Value::Float8(float::read8(s)?),
        Type::Numeric => return cast::numeric(numeric::parse(s)?, ty.typmod),
        Type::Char => Value::Char(one_char(s)),
        Type::Bytea => Value::Bytea(read_bytea(s)?),
        Type::Uuid => Value::Uuid(Box::new(read_uuid(s)?)),
        Type::Date => Value::Date(parse::date(s, settings)?),
        Type::Time => Value::Time(parse::time(s, ty.typmod, settings)?),
        Type::TimeTz => Value::packed(Packed::TimeTz, parse::timetz(s, ty.typmod, settings)?),
        Type::Timestamp => Value::Timestamp(parse::timestamp(s, ty.typmod, settings)?),
        Type::TimestampTz => Value::TimestampTz(parse::timestamptz(s, ty.typmod, settings)?),
        Type::Interval => Value::Interval(Box::new(interval::parse(
            s,
            ty.typmod,
            settings.intervalstyle,
        )?)),
        Type::Json => {
            json::check(s)?;
            Value::Json(s.into())
        }
        Type::Jsonb => json::parse(s)?.into_value(),
        Type::Oid | Type::Xid => Value::Oid(read_oid(s, ty.ty)?),
        Type::Tid => Value::Bytea(place::read(s)?.into()),
        Type::RegClass | Type::RegType | Type::RegProc | Type::RegNamespace => {
            Value::Oid(read_reg(s, ty.ty, settings)?)
        }
        Type::User(u) if u.is_composite() => composite::read(s, u, settings)?,
        Type::User(u) => label(s, u)?,
        Type::Void => Value::text(""),
        Type::Record => return Err(Error::unsupported("input of a composite type")),
        t => match Packed::of(t) {
            Some(kind) => Value::packed(kind, kind.fit(kind.read_text(s)?, ty.typmod)?),
            None => Value::Array(Box::new(array_text::read(s, t, ty.typmod, settings)?)),
        },
    };
    Ok(v)
}

/// The blanks that input functions skip.
pub(super) fn trim(s: &str) -> &str {
    s.trim_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c'])
}

fn integer(s: &str, low: i64, high: i64, ty: Type) -> Result<i64> {
    let t = trim(s);
    let digits = t.strip_prefix(['-', '+']).unwrap_or(t);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(invalid_input(ty, s));
    }
    t.parse::<i64>()
        .ok()
        .filter(|x| (low..=high).contains(x))
        .ok_or_else(|| {
            Error::new(
                SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
                format!(
                    "value \"{s}\" is out of range for type {}",
                    typename::format_type(ty, -1)
                ),
            )
        })
}

/// Unique prefixes of true, false, yes, no, and on, off, 1, 0.
fn boolean(s: &str) -> Result<bool> {
    let t = trim(s).to_ascii_lowercase();
    let prefix = |w: &str, min: usize| t.len() >= min && w.starts_with(t.as_str());
    if prefix("true", 1) || prefix("yes", 1) || t == "on" || t == "1" {
        Ok(true)
    } else if prefix("false", 1) || prefix("no", 1) || prefix("off", 2) || t == "0" {
        Ok(false)
    } else {
        Err(invalid_input(Type::Bool, s))
    }
}

/// Reads `\x…` or the escape format.
pub fn read_bytea(s: &str) -> Result<Box<[u8]>> {
    if let Some(hex) = s.strip_prefix("\\x") {
        return read_hex(hex.as_bytes());
    }
    let b = s.as_bytes();
    let mut out = Vec::with_capacity(b.len());
    let mut i = 0;
    while i < b.len() {
        if b[i] != b'\\' {
            out.push(b[i]);
            i += 1;
        } else if b.get(i + 1) == Some(&b'\\') {
            out.push(b'\\');
            i += 2;
        } else {
            let octal = b.get(i + 1..i + 4).filter(|d| {
                (b'0'..=b'3').contains(&d[0]) && d[1..].iter().all(|c| (b'0'..=b'7').contains(c))
            });
            let d = octal.ok_or_else(|| {
                Error::new(
                    SqlState::INVALID_TEXT_REPRESENTATION,
                    "invalid input syntax for type bytea",
                )
            })?;
            out.push(d.iter().fold(0, |n, c| n << 3 | (c - b'0')));
            i += 4;
        }
    }
    Ok(out.into())
}

/// Reads pairs of hexadecimal digits, blanks between them allowed.
pub fn read_hex(hex: &[u8]) -> Result<Box<[u8]>> {
    let digit = |c: u8| {
        (c as char).to_digit(16).map(|d| d as u8).ok_or_else(|| {
            Error::new(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("invalid hexadecimal digit: \"{}\"", c as char),
            )
        })
    };
    let mut out = Vec::with_capacity(hex.len() / 2);
    let mut it = hex.iter().copied().filter(|c| !c.is_ascii_whitespace());
    while let Some(a) = it.next() {
        let high = digit(a)?;
        let Some(b) = it.next() else {
            return Err(Error::new(
                SqlState::INVALID_PARAMETER_VALUE,
                "invalid hexadecimal data: odd number of digits",
            ));
        };
        out.push(high << 4 | digit(b)?);
    }
    Ok(out.into())
}

/// 32 digits, braces around them and a hyphen after every four allowed.
fn read_uuid(s: &str) -> Result<[u8; 16]> {
    let bad = || invalid_input(Type::Uuid, s);
    let t = match s.strip_prefix('{') {
        Some(r) => r.strip_suffix('}').ok_or_else(bad)?,
        None => s,
    };
    let mut out = [0u8; 16];
    let (mut n, mut last_hyphen) = (0, true);
    for c in t.chars() {
        if c == '-' && !last_hyphen && n % 4 == 0 && n < 32 {
            last_hyphen = true;
            continue;
        }
        let d = c.to_digit(16).filter(|_| n < 32).ok_or_else(bad)? as u8;
        out[n / 2] = out[n / 2] << 4 | d;
        n += 1;
        last_hyphen = false;
    }
    if n == 32 && !last_hyphen {
        Ok(out)
    } else {
        Err(bad())
    }
}

fn read_oid(s: &str, ty: Type) -> Result<Oid> {
    let x = integer(s, i64::MIN, i64::MAX, ty)?;
    if let Ok(n) = i32::try_from(x) {
        return Ok(n as u32);
    }
    u32::try_from(x).map_err(|_| {
        Error::new(
            SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
            format!("value \"{s}\" is out of range for type oid"),
        )
    })
}

fn read_reg(s: &str, ty: Type, settings: &OutputSettings) -> Result<Oid> {
    let t = trim(s);
    if t == "-" {
        return Ok(0);
    }
    if !t.is_empty() && t.bytes().all(|b| b.is_ascii_digit()) {
        return read_oid(t, ty);
    }
    let catalog = settings.catalog.as_deref();
    let (found, code, what) = match ty {
        Type::RegType => {
            if let Some(schema) = catalog.and_then(|c| c.missing_namespace(t)) {
                return Err(no_schema(&schema));
            }
            return match typename::parse(t) {
                Ok(c) => Ok(c.ty.oid()),
                Err(e) => catalog.and_then(|c| c.type_oid(t)).ok_or(e),
            };
        }
        Type::RegClass => (
            catalog.map_or(Ok(None), |c| c.relation_oid(t))?,
            SqlState::UNDEFINED_TABLE,
            "relation",
        ),
        Type::RegNamespace => (
            catalog.and_then(|c| c.namespace_oid(t)),
            SqlState::INVALID_SCHEMA_NAME,
            "schema",
        ),
        _ => (
            catalog.map_or(Ok(None), |c| c.procedure_oid(t))?,
            SqlState::UNDEFINED_FUNCTION,
            "function",
        ),
    };
    found.ok_or_else(|| match catalog.and_then(|c| c.missing_namespace(t)) {
        Some(schema) => no_schema(&schema),
        None => Error::new(code, format!("{what} \"{t}\" does not exist")),
    })
}

/// 3F000.
pub(crate) fn no_schema(name: &str) -> Error {
    Error::new(
        SqlState::INVALID_SCHEMA_NAME,
        format!("schema \"{name}\" does not exist"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(s: &str, ty: Type) -> Result<Value> {
        input(s, ColumnType::plain(ty), &OutputSettings::default())
    }

    fn both(s: &str, ty: Type) -> String {
        to_string(&read(s, ty).unwrap(), ty, &OutputSettings::default())
    }

    fn error(s: &str, ty: Type) -> String {
        read(s, ty).unwrap_err().to_string()
    }

    #[test]
    fn what_is_read_is_written_as_postgresql_writes_it() {
        use Type::*;
        for (ty, from, to) in [
            (Int4, " -12 ", "-12"),
            (Int8, "-9223372036854775808", "-9223372036854775808"),
            (Bool, "YES", "t"),
            (Bool, "of", "f"),
            (Float8, "1e15", "1e+15"),
            (Float8, "0.1", "0.1"),
            (Float8, "123456789012345", "123456789012345"),
            (Float8, "-1e-5", "-1e-05"),
            (Float8, "inf", "Infinity"),
            (Float4, "1234567", "1.234567e+06"),
            (Numeric, "001.50", "1.50"),
            (Numeric, "-1.5e3", "-1500"),
            (Bytea, "\\xDEADbeef", "\\xdeadbeef"),
            (Bytea, "a\\\\b\\001", "\\x615c6201"),
            (
                Uuid,
                "{A0EEBC99-9C0B4EF8-BB6D6BB9-BD380A11}",
                "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            ),
            (Date, "January 8, 1999", "1999-01-08"),
            (Date, "1/8/1999", "1999-01-08"),
            (Date, "08-Jan-1999", "1999-01-08"),
            (Date, "19990108", "1999-01-08"),
            (Date, "990108", "1999-01-08"),
            (Date, "1999.008", "1999-01-08"),
            (Date, "J2451187", "1999-01-08"),
            (Date, "January 8, 99 BC", "0099-01-08 BC"),
            (Date, "infinity", "infinity"),
            (Time, "04:05 PM", "16:05:00"),
            (Time, "040506", "04:05:06"),
            (Time, "24:00", "24:00:00"),
            (Time, "04:05:06.789-8", "04:05:06.789"),
            (Timestamp, "2004-10-19T10:23:54+02", "2004-10-19 10:23:54"),
            (
                Timestamp,
                "Mon Oct 19 10:23:54.5 2004",
                "2004-10-19 10:23:54.5",
            ),
            (Timestamp, "20041019 102354", "2004-10-19 10:23:54"),
            (
                TimestampTz,
                "2004-10-19 10:23:54+02",
                "2004-10-19 08:23:54+00",
            ),
            (
                TimestampTz,
                "2004-10-19 10:23:54 America/New_York",
                "2004-10-19 14:23:54+00",
            ),
            (
                TimestampTz,
                "2004-10-19 10:23:54 PST",
                "2004-10-19 18:23:54+00",
            ),
            (Interval, "1-2", "1 year 2 mons"),
            (Interval, "3 4:05:06", "3 days 04:05:06"),
            (
                Interval,
                "1 year 2 months 3 days 4 hours 5 minutes 6 seconds ago",
                "-1 years -2 mons -3 days -04:05:06",
            ),
            (Interval, "P1Y2M3DT4H5M6S", "1 year 2 mons 3 days 04:05:06"),
            (Interval, "1.5 months", "1 mon 15 days"),
            (Interval, "1.5 days", "1 day 12:00:00"),
            (Interval, "1 week", "7 days"),
            (
                Jsonb,
                "{\"b\":1,\"a\":[1.50, null]}",
                "{\"a\": [1.50, null], \"b\": 1}",
            ),
            (Json, "{\"b\":1}", "{\"b\":1}"),
            (Int4Array, "{1, 2,NULL}", "{1,2,NULL}"),
            (
                TextArray,
                "{\"a b\",\"NULL\",x\\\"y}",
                "{\"a b\",\"NULL\",\"x\\\"y\"}",
            ),
            (Int4Array, "[0:1]={5,6}", "[0:1]={5,6}"),
            (Int4Array, "{{1,2},{3,4}}", "{{1,2},{3,4}}"),
            (RegType, "int", "integer"),
            (Char, "xyz", "x"),
        ] {
            assert_eq!(both(from, ty), to, "{from} as {ty:?}");
        }
    }

    #[test]
    fn errors_are_those_of_postgresql() {
        use Type::*;
        for (ty, from, want) in [
            (
                Int4,
                "x",
                "22P02: invalid input syntax for type integer: \"x\"",
            ),
            (
                Int4,
                "99999999999",
                "22003: value \"99999999999\" is out of range for type integer",
            ),
            (
                Int2,
                "40000",
                "22003: value \"40000\" is out of range for type smallint",
            ),
            (
                Float8,
                "1e400",
                "22003: \"1e400\" is out of range for type double precision",
            ),
            (
                Numeric,
                "1.2.3",
                "22P02: invalid input syntax for type numeric: \"1.2.3\"",
            ),
            (
                Bool,
                "maybe",
                "22P02: invalid input syntax for type boolean: \"maybe\"",
            ),
            (
                Uuid,
                "12",
                "22P02: invalid input syntax for type uuid: \"12\"",
            ),
            (
                Date,
                "2020-13-01",
                "22008: date/time field value out of range: \"2020-13-01\"",
            ),
            (
                Date,
                "2021-02-29",
                "22008: date/time field value out of range: \"2021-02-29\"",
            ),
            (
                Date,
                "foo",
                "22007: invalid input syntax for type date: \"foo\"",
            ),
            (
                Timestamp,
                "2020-01-01 25:00",
                "22008: date/time field value out of range: \"2020-01-01 25:00\"",
            ),
            (
                TimestampTz,
                "yes",
                "22007: invalid input syntax for type timestamp with time zone: \"yes\"",
            ),
            (
                TimestampTz,
                "2020-01-01 10:00 Foo/Bar",
                "22023: time zone \"Foo/Bar\" not recognized",
            ),
            (
                Timestamp,
                "300000-01-01",
                "22008: timestamp out of range: \"300000-01-01\"",
            ),
            (
                Interval,
                "1 fortnight",
                "22007: invalid input syntax for type interval: \"1 fortnight\"",
            ),
        ] {
            assert_eq!(error(from, ty), want);
        }
        assert!(error("{1,2", Int4Array).starts_with("22P02: malformed array literal: \"{1,2\""));
    }
}
