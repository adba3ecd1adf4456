//! Casts: which type may become which (`pg_cast`), and the conversion.
//!
//! [`apply`] converts to the type first and then to its modifier ([`modify`]). What has no conversion of its own goes
//! through text. Rounding is PostgreSQL's: floats to the nearest even integer, numerics half away from zero.

use super::datetime::{USECS_PER_DAY, is_infinite, overflow};
use super::json::{self, Json};
use super::{OutputSettings, float, numeric as num, out_of_range, packed, text, typename};
use base::{Array, ColumnType, Error, Interval, Numeric, Packed, Result, SqlState, Type, Value};
use compact_str::CompactString;
use num_bigint::BigInt;

/// When a cast may happen without being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CastKind {
    /// In any expression.
    Implicit,
    /// When a value is stored in a column.
    Assignment,
    /// Only by CAST or `::`.
    Explicit,
}

/// Whether and when `from` may become `to`: PostgreSQL's `pg_cast`, arrays by their elements, and conversion through
/// text. `None` when there is no such cast. Unknown literals go anywhere.
pub fn find(from: Type, to: Type) -> Option<CastKind> {
    use CastKind::{Assignment, Explicit, Implicit};
    if from == to || from == Type::Unknown {
        return Some(Implicit);
    }
    if let Some(k) = catalogued(from, to) {
        return Some(k);
    }
    if let (Some(f), Some(t)) = (from.element(), to.element()) {
        let vector = |t| matches!(t, Type::Int2Vector | Type::OidVector);
        if vector(from) && f == t && !vector(to) {
            return Some(Implicit);
        }
        return find(f, t).filter(|_| !vector(to));
    }
    if from == Type::Record && to.composite().is_some()
        || to == Type::Record && from.composite().is_some()
    {
        return Some(Implicit);
    }
    if matches!(from, Type::Void | Type::Record) || matches!(to, Type::Void | Type::Record) {
        let printed = matches!(from, Type::Void | Type::Record) && to.is_string();
        return printed.then_some(Assignment);
    }
    if to.is_string() && to != Type::Unknown || to == Type::Citext {
        return Some(Assignment);
    }
    if from.is_string() || from == Type::Citext {
        return Some(Explicit);
    }
    None
}

fn is_reg(t: Type) -> bool {
    matches!(
        t,
        Type::RegClass | Type::RegType | Type::RegProc | Type::RegNamespace
    )
}

fn catalogued(from: Type, to: Type) -> Option<CastKind> {
    use CastKind::{Assignment, Explicit, Implicit};
    use Type::*;
    Some(match (from, to) {
        (Int2, Int4 | Int8 | Float4 | Float8 | Numeric | Oid) => Implicit,
        (Int4, Int8 | Float4 | Float8 | Numeric | Oid) => Implicit,
        (Int8, Float4 | Float8 | Numeric | Oid) => Implicit,
        (Int2 | Int4 | Int8 | Oid, t) if is_reg(t) => Implicit,
        (t, Oid) if is_reg(t) => Implicit,
        (Oid, Int4 | Int8) => Assignment,
        (t, Int4 | Int8) if is_reg(t) => Assignment,
        (Numeric, Float4 | Float8) | (Float4, Float8) => Implicit,
        (Int4, Int2) | (Int8, Int2 | Int4) => Assignment,
        (Float4, Int2 | Int4 | Int8 | Numeric) => Assignment,
        (Float8, Int2 | Int4 | Int8 | Numeric | Float4) => Assignment,
        (Numeric, Int2 | Int4 | Int8) => Assignment,
        (Bool, Int4) | (Int4, Bool | Char) | (Char, Int4) => Explicit,
        (Jsonb, Bool | Int2 | Int4 | Int8 | Float4 | Float8 | Numeric) => Explicit,
        (Json, Jsonb) | (Jsonb, Json) => Assignment,
        (Text, Varchar | Bpchar | Name | RegClass) => Implicit,
        (Varchar, Text | Bpchar | Name | RegClass) => Implicit,
        (Bpchar, Text | Varchar | Name) => Implicit,
        (Name, Text) | (Char, Text) | (PgNodeTree, Text) => Implicit,
        (Name, Varchar | Bpchar) | (Char, Varchar | Bpchar) => Assignment,
        (Text | Varchar | Bpchar, Char) => Assignment,
        (Bool, Text | Varchar | Bpchar) => Assignment,
        (Date, Timestamp | TimestampTz) | (Timestamp, TimestampTz) | (Time, Interval) => Implicit,
        (Time, TimeTz) | (Cidr, Inet) | (Bit, VarBit) | (VarBit, Bit) => Implicit,
        (Citext, Text | Varchar) => Implicit,
        (MacAddr, MacAddr8) | (MacAddr8, MacAddr) => Implicit,
        (TimeTz, Time) | (TimestampTz, TimeTz) | (Inet, Cidr) => Assignment,
        (Bit, Int4 | Int8) | (Int4 | Int8, Bit) => Explicit,
        (Timestamp, Date | Time) | (TimestampTz, Date | Time | Timestamp) | (Interval, Time) => {
            Assignment
        }
        _ => return None,
    })
}

/// Converts a value. `explicit` tells `CAST` from storing: only it cuts strings to `varchar(n)` silently. NULL stays NULL.
/// 42846 when there is no such cast.
pub fn apply(
    v: Value,
    from: ColumnType,
    to: ColumnType,
    explicit: bool,
    settings: &OutputSettings,
) -> Result<Value> {
    if v.is_null() {
        return Ok(v);
    }
    let v = if from.ty == to.ty {
        v
    } else if let (Type::Bit, Some(n)) = (to.ty, v.as_i64()) {
        // The length says which bits of the number there are.
        return Ok(packed::bits_of_number(n, to.typmod));
    } else {
        convert(v, from, to.ty, explicit, settings)?
    };
    if to.typmod < 0 && !matches!(to.ty, Type::Bpchar | Type::Name) {
        return Ok(v);
    }
    modify(v, to, explicit)
}

/// Fits a value of the right type to the type's modifier: length, precision and scale, digits of seconds.
pub fn modify(v: Value, to: ColumnType, explicit: bool) -> Result<Value> {
    let p = to.typmod;
    Ok(match v {
        Value::Text(s) => return string(s, to, explicit),
        Value::Array(mut a) if p >= 0 => {
            let ty = to.ty.element().unwrap_or(a.element);
            for x in &mut a.items {
                if !x.is_null() {
                    *x = modify(std::mem::take(x), ColumnType { ty, typmod: p }, explicit)?;
                }
            }
            Value::Array(a)
        }
        Value::Packed(v) if explicit => packed::cut(&v, p)?,
        v => base::modifier::fit(v, p)?,
    })
}

/// A string as `varchar(n)`, `char(n)` or `name`: 22001 when it is too long, unless only blanks are cut or the cast is explicit.
pub(crate) fn string(mut s: CompactString, to: ColumnType, explicit: bool) -> Result<Value> {
    if to.ty == Type::Name {
        if s.len() > 63 {
            let cut = (0..=63).rev().find(|&i| s.is_char_boundary(i)).unwrap_or(0);
            s.truncate(cut);
        }
        return Ok(Value::Text(s));
    }
    if to.typmod >= 4 && s.len() > to.typmod as usize - 4 {
        let n = to.typmod as usize - 4;
        if let Some((at, _)) = s.char_indices().nth(n) {
            if !explicit && s[at..].bytes().any(|b| b != b' ') {
                return Err(Error::new(
                    SqlState::STRING_DATA_RIGHT_TRUNCATION,
                    format!(
                        "value too long for type {}",
                        typename::format_type(to.ty, to.typmod)
                    ),
                ));
            }
            s.truncate(at);
        }
    }
    if to.ty == Type::Bpchar {
        let len = s.trim_end_matches(' ').len();
        s.truncate(len);
    }
    Ok(Value::Text(s))
}

/// A number as `numeric(p,s)`.
pub(crate) fn numeric(n: Numeric, typmod: i32) -> Result<Value> {
    Ok(Value::from(num::apply_typmod(n, typmod)?))
}

fn convert(
    v: Value,
    from: ColumnType,
    to: Type,
    explicit: bool,
    settings: &OutputSettings,
) -> Result<Value> {
    // Unknown literals and other strings are read by the type's input function.
    if let (Type::Unknown, Value::Text(s)) = (from.ty, &v) {
        return match to {
            Type::Varchar | Type::Bpchar | Type::Text => Ok(v),
            _ => text::input(s, ColumnType::plain(to), settings),
        };
    }
    if let Some(moment) = moment(&v, to, settings)? {
        return Ok(moment);
    }
    match (v, to) {
        (v, Type::Citext) => {
            let text = convert(v, from, Type::Text, explicit, settings)?;
            let form = text.as_str().unwrap_or_default().as_bytes();
            Ok(Value::packed(Packed::Citext, form))
        }
        (Value::Packed(p), _) if p.kind() == Packed::Citext && !to.is_string() => {
            let s = base::packed::citext::text(p.form());
            text::input(s, ColumnType::plain(to), settings)
        }
        (v @ (Value::Int2(_) | Value::Int4(_) | Value::Int8(_)), _) if !to.is_string() => {
            integer(v.as_i64().expect("an integer"), from.ty, to)
        }
        (Value::Float4(x), Type::Float8) => Ok(Value::Float8(f64::from(x))),
        (Value::Float4(x), _) if !to.is_string() => {
            let mut s = String::new();
            float::write4(x, 0, &mut s);
            from_float(f64::from(x), s, from.ty, to)
        }
        (Value::Float8(x), _) if !to.is_string() => {
            let mut s = String::new();
            if to == Type::Numeric {
                float::write8(x, 0, &mut s);
            }
            from_float(x, s, from.ty, to)
        }
        (Value::Numeric(n), _) if !to.is_string() => from_numeric(&n, from.ty, to),
        (Value::Bool(b), Type::Int4) => Ok(Value::Int4(i32::from(b))),
        (Value::Bool(b), Type::Text | Type::Varchar | Type::Bpchar) => {
            Ok(Value::text(if b { "true" } else { "false" }))
        }
        (Value::Char(c), Type::Int4) => Ok(Value::Int4(i32::from(c as i8))),
        (Value::Oid(x), Type::Int4) => Ok(Value::Int4(x as i32)),
        (Value::Oid(x), Type::Int8) => Ok(Value::Int8(i64::from(x))),
        (Value::Oid(x), t) if t == Type::Oid || is_reg(t) => Ok(Value::Oid(x)),
        (Value::Json(s), Type::Json) => Ok(Value::Json(s)),
        (Value::Json(s), Type::Jsonb) => Ok(json::parse(&s)?.into_value()),
        (Value::Json(s), _) if !to.is_string() => from_json(json::parse(&s)?, to),
        (Value::Array(a), _) if to.element().is_some() => array(*a, from, to, explicit, settings),
        (Value::Packed(p), t) => packed::convert(&p, t)?.ok_or_else(|| cannot(from.ty, to)),
        (Value::Text(s), t) if t.is_string() || t == Type::PgNodeTree || t == Type::AclItem => {
            Ok(Value::Text(s))
        }
        (Value::Text(s), _) => text::input(&s, ColumnType::plain(to), settings),
        (v, t) if t.is_string() || t == Type::Record => {
            let mut s = String::new();
            text::output(&v, from.ty, settings, &mut s);
            Ok(Value::from(s))
        }
        _ => Err(cannot(from.ty, to)),
    }
}

/// Dates and times as others; `None` where neither is one.
fn moment(v: &Value, to: Type, settings: &OutputSettings) -> Result<Option<Value>> {
    let zone = &settings.timezone;
    let instant = |t: i64| if is_infinite(t) { t } else { zone.instant(t) };
    let local = |t: i64| if is_infinite(t) { t } else { zone.local(t) };
    Ok(Some(match (v, to) {
        (Value::Date(d), Type::Timestamp) => Value::Timestamp(date_to_timestamp(*d)?),
        (Value::Date(d), Type::TimestampTz) => Value::TimestampTz(instant(date_to_timestamp(*d)?)),
        (Value::Timestamp(t), Type::TimestampTz) => Value::TimestampTz(instant(*t)),
        (Value::Timestamp(t), Type::Date) => Value::Date(timestamp_to_date(*t)),
        (Value::TimestampTz(t), Type::Timestamp) => Value::Timestamp(local(*t)),
        (Value::TimestampTz(t), Type::Date) => Value::Date(timestamp_to_date(local(*t))),
        (Value::Timestamp(t), Type::Time) => time_of(*t),
        (Value::TimestampTz(t), Type::Time) => time_of(local(*t)),
        (Value::Time(_) | Value::TimestampTz(_), Type::TimeTz) => packed::with_zone(v, settings),
        (Value::Time(t), Type::Interval) => Value::Interval(Box::new(Interval {
            months: 0,
            days: 0,
            micros: *t,
        })),
        (Value::Interval(i), Type::Time) => Value::Time(i.micros.rem_euclid(USECS_PER_DAY)),
        _ => return Ok(None),
    }))
}

/// 42846.
fn cannot(from: Type, to: Type) -> Error {
    Error::new(
        SqlState::CANNOT_COERCE,
        format!(
            "cannot cast type {} to {}",
            typename::format_type(from, -1),
            typename::format_type(to, -1)
        ),
    )
}

fn integer(x: i64, from: Type, to: Type) -> Result<Value> {
    let fits = |v: Option<Value>| v.ok_or_else(|| out_of_range(to));
    match to {
        Type::Int2 => fits(i16::try_from(x).ok().map(Value::Int2)),
        Type::Int4 => fits(i32::try_from(x).ok().map(Value::Int4)),
        Type::Int8 => Ok(Value::Int8(x)),
        Type::Float4 => Ok(Value::Float4(x as f32)),
        Type::Float8 => Ok(Value::Float8(x as f64)),
        Type::Numeric => Ok(Value::from(Numeric::from(x))),
        Type::Bool => Ok(Value::Bool(x != 0)),
        Type::Char => i8::try_from(x)
            .map(|c| Value::Char(c as u8))
            .map_err(|_| out_of_range(to)),
        t if t == Type::Oid || is_reg(t) => match from {
            Type::Int8 => u32::try_from(x)
                .map(Value::Oid)
                .map_err(|_| out_of_range(Type::Oid)),
            _ => Ok(Value::Oid(x as i32 as u32)),
        },
        _ => Err(cannot(from, to)),
    }
}

fn from_float(x: f64, digits: String, from: Type, to: Type) -> Result<Value> {
    let r = x.round_ties_even();
    let int = |low: f64, high: f64| {
        if r >= low && r < high {
            Ok(r as i64)
        } else {
            Err(out_of_range(to))
        }
    };
    Ok(match to {
        Type::Int2 => Value::Int2(int(-32768.0, 32768.0)? as i16),
        Type::Int4 => Value::Int4(int(-2147483648.0, 2147483648.0)? as i32),
        Type::Int8 => Value::Int8(int(-9223372036854775808.0, 9223372036854775808.0)?),
        Type::Numeric => Value::from(num::parse(&digits)?),
        Type::Float8 => Value::Float8(x),
        Type::Float4 => {
            let y = x as f32;
            if y.is_infinite() && x.is_finite() {
                return Err(float_range("overflow"));
            }
            if y == 0.0 && x != 0.0 {
                return Err(float_range("underflow"));
            }
            Value::Float4(y)
        }
        _ => return Err(cannot(from, to)),
    })
}

/// 22003 `value out of range: overflow`.
pub(crate) fn float_range(how: &str) -> Error {
    Error::new(
        SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
        format!("value out of range: {how}"),
    )
}

fn from_numeric(n: &Numeric, from: Type, to: Type) -> Result<Value> {
    Ok(match to {
        Type::Int2 | Type::Int4 | Type::Int8 => {
            let x = numeric_to_i64(n, to)?;
            return integer(x, Type::Int8, to);
        }
        Type::Float8 => Value::Float8(numeric_to_f64(n)?),
        Type::Float4 => {
            let s = n.to_string();
            Value::Float4(float::read4(&s)?)
        }
        _ => return Err(cannot(from, to)),
    })
}

/// Rounds to an integer; 0A000 for NaN and the infinities, 22003 when it does not fit.
pub(crate) fn numeric_to_i64(n: &Numeric, to: Type) -> Result<i64> {
    let what = match n {
        Numeric::Finite(d) => {
            let whole: BigInt = num::round(d, 0).as_bigint_and_exponent().0;
            return i64::try_from(whole).map_err(|_| out_of_range(to));
        }
        Numeric::NaN => "NaN",
        _ => "infinity",
    };
    Err(Error::unsupported("").message(format!(
        "cannot convert {what} to {}",
        typename::format_type(to, -1)
    )))
}

/// The nearest float; 22003 when it is too large.
pub(crate) fn numeric_to_f64(n: &Numeric) -> Result<f64> {
    match n {
        Numeric::NaN => Ok(f64::NAN),
        Numeric::Infinity => Ok(f64::INFINITY),
        Numeric::NegInfinity => Ok(f64::NEG_INFINITY),
        Numeric::Finite(_) => float::read8(&n.to_string()),
    }
}

fn from_json(j: Json, to: Type) -> Result<Value> {
    match (j, to) {
        (Json::Bool(b), Type::Bool) => Ok(Value::Bool(b)),
        (Json::Number(n), Type::Numeric) => Ok(Value::from(n)),
        (Json::Number(n), t) if t != Type::Bool => from_numeric(&n, Type::Numeric, t),
        (j, _) => Err(Error::new(
            SqlState::INVALID_PARAMETER_VALUE,
            format!(
                "cannot cast jsonb {} to type {}",
                match j.type_name() {
                    n @ ("array" | "object") => n,
                    n => n,
                },
                typename::format_type(to, -1)
            ),
        )),
    }
}

fn array(
    a: Array,
    from: ColumnType,
    to: Type,
    explicit: bool,
    settings: &OutputSettings,
) -> Result<Value> {
    let element = to.element().expect("an array type");
    let from = ColumnType {
        ty: a.element,
        typmod: from.typmod,
    };
    let items = a
        .items
        .into_iter()
        .map(|v| apply(v, from, ColumnType::plain(element), explicit, settings))
        .collect::<Result<Vec<_>>>()?;
    Ok(Value::Array(Box::new(Array {
        element,
        dims: a.dims,
        items,
    })))
}

/// Midnight of a date; 22008 when timestamps do not reach it.
pub(crate) fn date_to_timestamp(d: i32) -> Result<i64> {
    match d {
        i32::MIN => Ok(i64::MIN),
        i32::MAX => Ok(i64::MAX),
        _ => i64::from(d)
            .checked_mul(USECS_PER_DAY)
            .filter(|t| *t < super::datetime::END_TIMESTAMP)
            .ok_or_else(|| overflow("date out of range for timestamp")),
    }
}

/// The date of a timestamp.
pub(crate) fn timestamp_to_date(t: i64) -> i32 {
    match t {
        i64::MIN => i32::MIN,
        i64::MAX => i32::MAX,
        _ => t.div_euclid(USECS_PER_DAY) as i32,
    }
}

fn time_of(t: i64) -> Value {
    if is_infinite(t) {
        return Value::Null;
    }
    Value::Time(t.rem_euclid(USECS_PER_DAY))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cast(s: &str, from: Type, to: &str) -> Result<String> {
        let set = OutputSettings::default();
        let v = text::input(s, ColumnType::plain(from), &set)?;
        let to = typename::parse(to)?;
        let v = apply(v, ColumnType::plain(from), to, true, &set)?;
        Ok(if v.is_null() {
            "NULL".into()
        } else {
            text::to_string(&v, to.ty, &set)
        })
    }

    #[test]
    fn conversions_are_those_of_postgresql() {
        use Type::*;
        for (s, from, to, want) in [
            ("2.5", Float8, "int4", "2"),
            ("3.5", Float8, "int4", "4"),
            ("2.5", Numeric, "int4", "3"),
            ("-2.5", Numeric, "int8", "-3"),
            ("0.1", Float4, "float8", "0.10000000149011612"),
            ("0.1", Float8, "numeric", "0.1"),
            ("1e20", Float8, "numeric", "100000000000000000000"),
            ("123456.789", Numeric, "numeric(8,2)", "123456.79"),
            ("t", Bool, "int4", "1"),
            ("t", Bool, "text", "true"),
            ("7", Int4, "bool", "t"),
            ("abcdef", Text, "varchar(3)", "abc"),
            ("ab  ", Text, "char(5)", "ab"),
            ("65", Int4, "\"char\"", "A"),
            ("2020-02-29", Date, "timestamp", "2020-02-29 00:00:00"),
            ("2020-02-29 23:59", Timestamp, "date", "2020-02-29"),
            ("25:30", Interval, "time", "01:30:00"),
            ("12", Jsonb, "int4", "12"),
            ("{1,2}", Int4Array, "text[]", "{1,2}"),
            ("{1,2}", Int4Array, "text", "{1,2}"),
            ("42", Text, "int8", "42"),
            ("4294967295", Int8, "oid", "4294967295"),
            ("12:34:56.789", Time, "time(1)", "12:34:56.8"),
        ] {
            assert_eq!(cast(s, from, to).unwrap(), want, "{s}::{from:?}::{to}");
        }
    }

    #[test]
    fn errors() {
        use Type::*;
        for (s, from, to, want) in [
            ("1e10", Float8, "int4", "22003: integer out of range"),
            (
                "NaN",
                Numeric,
                "int4",
                "0A000: cannot convert NaN to integer",
            ),
            ("40000", Int4, "int2", "22003: smallint out of range"),
            (
                "1e39",
                Float8,
                "float4",
                "22003: value out of range: overflow",
            ),
            (
                "\"a\"",
                Jsonb,
                "int4",
                "22023: cannot cast jsonb string to type integer",
            ),
            ("t", Bool, "date", "42846: cannot cast type boolean to date"),
        ] {
            assert_eq!(cast(s, from, to).unwrap_err().to_string(), want);
        }
        let e = text::input(
            "abcd",
            typename::parse("varchar(3)").unwrap(),
            &OutputSettings::default(),
        )
        .unwrap_err();
        assert_eq!(
            e.to_string(),
            "22001: value too long for type character varying(3)"
        );
    }

    #[test]
    fn which_casts_there_are() {
        use CastKind::*;
        assert_eq!(find(Type::Int4, Type::Int8), Some(Implicit));
        assert_eq!(find(Type::Int8, Type::Int4), Some(Assignment));
        assert_eq!(find(Type::Int4, Type::Text), Some(Assignment));
        assert_eq!(find(Type::Text, Type::Int4), Some(Explicit));
        assert_eq!(find(Type::Bool, Type::Int8), None);
        assert_eq!(find(Type::Int4Array, Type::Int8Array), Some(Implicit));
        assert_eq!(find(Type::Unknown, Type::Jsonb), Some(Implicit));
        assert_eq!(find(Type::Date, Type::Int4), None);
    }
}
