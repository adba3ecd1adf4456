//! Casts: which type may become which, and the conversion.

use super::{OutputSettings, invalid_input, out_of_range, text, typename};
use base::{ColumnType, Error, Result, SqlState, Type, Value};

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
    if matches!(from, Type::Void | Type::Record) || matches!(to, Type::Void | Type::Record) {
        return (from == Type::Record && to.is_string()).then_some(Assignment);
    }
    if to.is_string() && to != Type::Unknown {
        return Some(Assignment);
    }
    if from.is_string() {
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
        (Timestamp, Date | Time) | (TimestampTz, Date | Time | Timestamp) | (Interval, Time) => {
            Assignment
        }
        _ => return None,
    })
}

/// Converts a value. `explicit` tells `CAST` from storing: only it cuts strings to `varchar(n)` silently. NULL stays NULL.
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
    let _ = explicit;
    if from.ty == to.ty {
        return Ok(v);
    }
    if let Some(x) = v.as_i64() {
        match to.ty {
            Type::Int2 => {
                return i16::try_from(x)
                    .map(Value::Int2)
                    .map_err(|_| out_of_range(to.ty));
            }
            Type::Int4 => {
                return i32::try_from(x)
                    .map(Value::Int4)
                    .map_err(|_| out_of_range(to.ty));
            }
            Type::Int8 => return Ok(Value::Int8(x)),
            _ => {}
        }
    }
    match v {
        Value::Text(s) if to.ty.is_string() => Ok(Value::Text(s)),
        Value::Text(s) => text::input(&s, to, settings),
        v if to.ty.is_string() => {
            let mut s = String::new();
            text::output(&v, from.ty, settings, &mut s);
            Ok(Value::from(s))
        }
        _ => Err(Error::new(
            SqlState::CANNOT_COERCE,
            format!(
                "cannot cast type {} to {}",
                typename::format_type(from.ty, -1),
                typename::format_type(to.ty, -1)
            ),
        )),
    }
}

/// 22P02 for a text that is not of the type.
#[allow(dead_code)]
fn bad(ty: Type, s: &str) -> Error {
    invalid_input(ty, s)
}
