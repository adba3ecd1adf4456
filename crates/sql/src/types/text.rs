//! The text format of values.

use super::{OutputSettings, invalid_input, out_of_range};
use base::{ColumnType, Error, Result, SqlState, Type, Value};
use std::fmt::Write;

/// Appends the text of a non-NULL value.
pub fn output(v: &Value, ty: Type, settings: &OutputSettings, out: &mut String) {
    let _ = (ty, settings);
    match v {
        Value::Int2(x) => write!(out, "{x}").expect("to a string"),
        Value::Int4(x) => write!(out, "{x}").expect("to a string"),
        Value::Int8(x) => write!(out, "{x}").expect("to a string"),
        Value::Bool(x) => out.push(if *x { 't' } else { 'f' }),
        Value::Text(s) => out.push_str(s),
        Value::Json(s) => out.push_str(s),
        Value::Numeric(n) => write!(out, "{n}").expect("to a string"),
        Value::Float8(x) => write!(out, "{x}").expect("to a string"),
        Value::Oid(x) => write!(out, "{x}").expect("to a string"),
        v => write!(out, "{v:?}").expect("to a string"),
    }
}

/// Reads a value from text.
pub fn input(s: &str, ty: ColumnType, settings: &OutputSettings) -> Result<Value> {
    let _ = settings;
    let t = s.trim_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c']);
    let int = |lo: i64, hi: i64| -> Result<i64> {
        let digits = t.strip_prefix(['-', '+']).unwrap_or(t);
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(invalid_input(ty.ty, s));
        }
        match t.parse::<i64>() {
            Ok(x) if (lo..=hi).contains(&x) => Ok(x),
            _ => Err(Error::new(
                SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
                format!(
                    "value \"{s}\" is out of range for type {}",
                    super::typename::format_type(ty.ty, -1)
                ),
            )),
        }
    };
    Ok(match ty.ty {
        Type::Int2 => Value::Int2(int(i16::MIN.into(), i16::MAX.into())? as i16),
        Type::Int4 => Value::Int4(int(i32::MIN.into(), i32::MAX.into())? as i32),
        Type::Int8 => Value::Int8(int(i64::MIN, i64::MAX)?),
        Type::Text | Type::Varchar | Type::Bpchar | Type::Name | Type::Unknown => Value::text(s),
        Type::Bool => match t.to_ascii_lowercase().as_str() {
            "t" | "true" | "on" | "yes" | "y" | "1" => Value::Bool(true),
            "f" | "false" | "off" | "no" | "n" | "0" => Value::Bool(false),
            _ => return Err(invalid_input(ty.ty, s)),
        },
        t => return Err(out_of_range(t)),
    })
}
