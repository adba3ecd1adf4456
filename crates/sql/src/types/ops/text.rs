//! Text operators.

use base::{Result, Value};

/// `a || b`.
pub fn concat(a: &Value, b: &Value) -> Result<Value> {
    let (a, b) = (a.as_str().expect("text"), b.as_str().expect("text"));
    let mut s = compact_str::CompactString::with_capacity(a.len() + b.len());
    s.push_str(a);
    s.push_str(b);
    Ok(Value::Text(s))
}
