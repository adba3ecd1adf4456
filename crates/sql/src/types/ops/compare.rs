//! The total order of values of one type.

use crate::types::json;
use base::{Array, Row, Value};
use std::cmp::Ordering;

/// Orders two non-NULL values of one type; integers of different widths, and floats, may be mixed. NaN is equal to itself and
/// the greatest float. Panics when the types cannot be compared: the binder has cast them.
pub fn compare(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Int4(x), Value::Int4(y)) => x.cmp(y),
        (Value::Int8(x), Value::Int8(y)) => x.cmp(y),
        (Value::Text(x), Value::Text(y)) => x.as_bytes().cmp(y.as_bytes()),
        (Value::Int2(x), Value::Int2(y)) => x.cmp(y),
        (Value::Bool(x), Value::Bool(y)) => x.cmp(y),
        (Value::Numeric(x), Value::Numeric(y)) => x.cmp(y),
        (Value::Timestamp(x), Value::Timestamp(y))
        | (Value::TimestampTz(x), Value::TimestampTz(y))
        | (Value::Time(x), Value::Time(y)) => x.cmp(y),
        (Value::Date(x), Value::Date(y)) => x.cmp(y),
        (Value::Uuid(x), Value::Uuid(y)) => x.cmp(y),
        (Value::Bytea(x), Value::Bytea(y)) => x.cmp(y),
        (Value::Oid(x), Value::Oid(y)) => x.cmp(y),
        (Value::Char(x), Value::Char(y)) => x.cmp(y),
        (Value::Enum(_, x), Value::Enum(_, y)) => x.cmp(y),
        (Value::Row(x), Value::Row(y)) => compare_rows(x, y),
        (Value::Packed(x), Value::Packed(y)) => x.kind().compare(x.form(), y.form()),
        (Value::Interval(x), Value::Interval(y)) => x.span().cmp(&y.span()),
        (Value::Json(x), Value::Json(y)) => compare_json(x, y),
        (Value::Array(x), Value::Array(y)) => compare_arrays(x, y),
        (Value::Float4(_) | Value::Float8(_), Value::Float4(_) | Value::Float8(_)) => {
            compare_floats(as_f64(a), as_f64(b))
        }
        _ => match (a.as_i64(), b.as_i64()) {
            (Some(x), Some(y)) => x.cmp(&y),
            _ => panic!("cannot compare {a:?} with {b:?}"),
        },
    }
}

/// Field by field, NULL greatest.
fn compare_rows(a: &Row, b: &Row) -> Ordering {
    let mut pairs = a.live().zip(b.live());
    let differs = pairs.find_map(|((_, x), (_, y))| match compare_nulls(x, y) {
        Ordering::Equal => None,
        o => Some(o),
    });
    differs.unwrap_or(Ordering::Equal)
}

/// Equal text is the common case; else the trees decide.
fn compare_json(x: &str, y: &str) -> Ordering {
    if x == y {
        return Ordering::Equal;
    }
    match (json::parse(x), json::parse(y)) {
        (Ok(a), Ok(b)) => json::compare(&a, &b),
        _ => x.as_bytes().cmp(y.as_bytes()),
    }
}

/// Whether two non-NULL values of one type are equal.
pub fn eq(a: &Value, b: &Value) -> bool {
    compare(a, b) == Ordering::Equal
}

/// Orders values of one type with NULL greater than all: `ORDER BY … ASC` as PostgreSQL has it by default.
pub fn compare_nulls(a: &Value, b: &Value) -> Ordering {
    match (a.is_null(), b.is_null()) {
        (false, false) => compare(a, b),
        (x, y) => x.cmp(&y),
    }
}

fn as_f64(v: &Value) -> f64 {
    match v {
        Value::Float4(x) => f64::from(*x),
        Value::Float8(x) => *x,
        _ => unreachable!("a float"),
    }
}

/// PostgreSQL's order of floats.
pub fn compare_floats(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b)
        .unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// Elements first, NULL greatest; then the shorter; then dimensions and lower bounds.
fn compare_arrays(a: &Array, b: &Array) -> Ordering {
    for (x, y) in a.items.iter().zip(&b.items) {
        match compare_nulls(x, y) {
            Ordering::Equal => {}
            o => return o,
        }
    }
    (a.items.len().cmp(&b.items.len()))
        .then(a.dims.len().cmp(&b.dims.len()))
        .then_with(|| a.dims.cmp(&b.dims))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_mix_and_nulls_come_last() {
        assert_eq!(compare(&Value::Int4(1), &Value::Int8(2)), Ordering::Less);
        assert_eq!(
            compare_nulls(&Value::Null, &Value::Int4(9)),
            Ordering::Greater
        );
        assert_eq!(
            compare(&Value::Float8(f64::NAN), &Value::Float8(f64::INFINITY)),
            Ordering::Greater
        );
        assert!(eq(&Value::Float8(-0.0), &Value::Float8(0.0)));
    }
}
