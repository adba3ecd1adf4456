//! The binary format of values.

use base::{Error, Result, SqlState, Type, Value};

/// Appends the binary form of a non-NULL value.
pub fn encode(v: &Value, ty: Type, out: &mut Vec<u8>) {
    let _ = ty;
    match v {
        Value::Int2(x) => out.extend_from_slice(&x.to_be_bytes()),
        Value::Int4(x) => out.extend_from_slice(&x.to_be_bytes()),
        Value::Int8(x) => out.extend_from_slice(&x.to_be_bytes()),
        Value::Bool(x) => out.push(u8::from(*x)),
        Value::Text(s) => out.extend_from_slice(s.as_bytes()),
        _ => {}
    }
}

/// Reads a value from its binary form; 22P03 when it is malformed.
pub fn decode(b: &[u8], ty: Type) -> Result<Value> {
    let bad = |_| {
        Error::new(
            SqlState::INVALID_BINARY_REPRESENTATION,
            "incorrect binary data format",
        )
    };
    Ok(match ty {
        Type::Int2 => Value::Int2(i16::from_be_bytes(b.try_into().map_err(bad)?)),
        Type::Int4 => Value::Int4(i32::from_be_bytes(b.try_into().map_err(bad)?)),
        Type::Int8 => Value::Int8(i64::from_be_bytes(b.try_into().map_err(bad)?)),
        Type::Bool => Value::Bool(b.first() == Some(&1)),
        _ => Value::text(std::str::from_utf8(b).map_err(|_| Error::unsupported("this"))?),
    })
}
