//! What values look like and how they turn into one another: text and binary formats, casts, operators.
//!
//! - [`text`] and [`binary`] are PostgreSQL's two wire formats of every type;
//! - [`cast`] says which type may become which (`pg_cast`), and does it;
//! - [`ops`] compares and computes on values of known types;
//! - [`datetime`] is the calendar, [`zone`] the time zones, [`json`] the trees behind `jsonb`;
//! - [`typename`] prints and reads the names of types.
//!
//! Nothing here knows of tables or sessions: what a conversion needs from outside stands in [`OutputSettings`].
//!
//! Left out on purpose: collations other than C, `lc_monetary` and its kin, date styles other than ISO for output of
//! intervals beside `postgres`.

pub mod array_text;
pub mod binary;
pub mod cast;
pub mod composite;
pub mod datetime;
pub mod float;
pub mod ident;
pub mod json;
pub mod json_raw;
pub mod numeric;
pub mod ops;
pub mod packed;
pub mod place;
pub mod record;
pub mod settings;
pub mod text;
pub mod typename;
pub mod zone;

pub use settings::{CatalogLookup, DateOrder, DateStyle, IntervalStyle, OutputSettings};

use base::{Error, SqlState, Type, Value};

/// 22P02 `invalid input syntax for type integer: "x"`.
pub(crate) fn invalid_input(ty: Type, s: &str) -> Error {
    let name = typename::format_type(ty, -1);
    let shown = match ty {
        Type::Time => "time",
        Type::Timestamp => "timestamp",
        Type::TimestampTz => "timestamp with time zone",
        _ => &name,
    };
    let code = match ty {
        Type::Date
        | Type::Time
        | Type::TimeTz
        | Type::Timestamp
        | Type::TimestampTz
        | Type::Interval => SqlState::INVALID_DATETIME_FORMAT,
        _ => SqlState::INVALID_TEXT_REPRESENTATION,
    };
    Error::new(
        code,
        format!("invalid input syntax for type {shown}: \"{s}\""),
    )
}

/// 22003 `integer out of range`.
pub(crate) fn out_of_range(ty: Type) -> Error {
    let name = match ty {
        Type::Float4 => "value",
        Type::Oid => "OID",
        _ => &typename::format_type(ty, -1),
    };
    Error::new(
        SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
        format!("{name} out of range"),
    )
}

/// Bytes that a value takes, its heap part included.
pub fn value_bytes(v: &Value) -> usize {
    24 + match v {
        Value::Text(s) if s.len() > 24 => s.len(),
        Value::Json(s) => s.len(),
        Value::Bytea(b) => b.len(),
        Value::Numeric(_) => 64,
        Value::Uuid(_) | Value::Interval(_) => 16,
        Value::Packed(p) => p.form().len(),
        Value::Row(r) => 40 + r.fields.iter().map(value_bytes).sum::<usize>(),
        Value::Array(a) => 64 + a.items.iter().map(value_bytes).sum::<usize>(),
        _ => 0,
    }
}
