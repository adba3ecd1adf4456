//! What `json_to_record` and its kin take of JSON: see `bind::json_records`.

use super::EvalContext;
use super::registry::{Registry, names::*};
use crate::types::json::{self, Json};
use crate::types::json_raw;
use crate::types::ops::jsonb::raw;
use base::{Error, Result, SqlState, Value};

type Ctx<'a, 'b> = &'a mut EvalContext<'b>;

fn no_object() -> Error {
    let what = "argument of json_to_recordset must be an array of objects";
    Error::new(SqlState::INVALID_PARAMETER_VALUE, what)
}

fn quote(s: &str, out: &mut String) {
    out.push('"');
    for c in s.chars() {
        if matches!(c, '"' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out.push('"');
}

/// An array of JSON as the text of an array of SQL.
fn write_array(j: &Json, out: &mut String) {
    match j {
        Json::Array(items) => {
            out.push('{');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write_array(item, out);
            }
            out.push('}');
        }
        Json::Null => out.push_str("NULL"),
        Json::String(s) => quote(s, out),
        j => quote(&j.to_text(), out),
    }
}

fn as_array(j: Json) -> Result<Value> {
    Ok(match j {
        Json::Null => Value::Null,
        Json::Array(_) => {
            let mut out = String::new();
            write_array(&j, &mut out);
            Value::from(out)
        }
        Json::String(s) => Value::from(s),
        _ => {
            let what = "expected JSON array";
            return Err(Error::new(SqlState::INVALID_TEXT_REPRESENTATION, what));
        }
    })
}

/// `(jsonb, key, kind)`.
fn field(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let (Some(key), Some(kind)) = (a[1].as_str(), a[2].as_str()) else {
        return Ok(Value::Null);
    };
    let Json::Object(members) = json::of(&a[0])? else {
        return Err(no_object());
    };
    let found = members.into_iter().find(|m| m.0 == key).map(|m| m.1);
    let found = found.unwrap_or(Json::Null);
    match kind {
        "array" => as_array(found),
        "json" if !matches!(found, Json::Null) => Ok(Value::from(found.to_text())),
        _ => Ok(found.into_text_value()),
    }
}

/// `(json, key, kind)`: a member of type json keeps its spelling.
fn raw_field(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let (Some(key), Some(kind)) = (a[1].as_str(), a[2].as_str()) else {
        return Ok(Value::Null);
    };
    let text = raw(&a[0])?;
    if !text.trim_start().starts_with('{') {
        return Err(no_object());
    }
    let found = json_raw::member(text, key)?;
    match (kind, found.map(str::trim)) {
        (_, None | Some("null")) => Ok(Value::Null),
        ("array", Some(piece)) => as_array(json::parse(piece)?),
        ("json", Some(piece)) => Ok(Value::from(piece.to_owned())),
        (_, piece) => json_raw::text(piece),
    }
}

/// Adds them.
pub(super) fn register(r: &mut Registry) {
    r.f("json record field", &[JSONB, TEXT, TEXT], TEXT, IMM, field);
    r.f(
        "json record field",
        &[JSON, TEXT, TEXT],
        TEXT,
        IMM,
        raw_field,
    );
    r.f("json record", &[JSON], JSON, IMM, |a, _| Ok(a[0].clone()));
    r.f(
        "jsonb record",
        &[JSONB],
        JSONB,
        IMM,
        |a, _| Ok(a[0].clone()),
    );
}
