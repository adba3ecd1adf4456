//! `json` keeps its text: its members in their order, equal keys, blanks, numbers as they were written. So what is taken out of it is a piece
//! of that text, and not a value that is printed again (`jsonb` is: see [`super::json`]).

use super::json::Parser;
use base::{Result, Value};

/// A JSON text taken apart by one level.
pub enum Raw<'a> {
    Object(Vec<(String, &'a str)>),
    Array(Vec<&'a str>),
    Scalar(&'a str),
}

/// 22P02 when it is malformed.
pub fn open(s: &str) -> Result<Raw<'_>> {
    take_apart(s, false)
}

/// The same where no text is made of any string: keys are not to be looked at.
pub fn open_pieces(s: &str) -> Result<Raw<'_>> {
    take_apart(s, true)
}

fn take_apart(s: &str, text_only: bool) -> Result<Raw<'_>> {
    let mut p = Parser {
        s,
        at: 0,
        text_only,
    };
    p.blanks();
    let scalar = s[p.at..].trim_end_matches([' ', '\t', '\n', '\r']);
    match p.peek() {
        Some(b'{') => {
            let mut members = Vec::new();
            p.members(0, &mut |k, _, v| members.push((k, v)))?;
            Ok(Raw::Object(members))
        }
        Some(b'[') => {
            let mut items = Vec::new();
            p.elements(0, &mut |_, v| items.push(v))?;
            Ok(Raw::Array(items))
        }
        _ => Ok(Raw::Scalar(scalar)),
    }
}

/// The member of this key: of equal ones the last.
pub fn member<'a>(s: &'a str, key: &str) -> Result<Option<&'a str>> {
    Ok(match open(s)? {
        Raw::Object(m) => m.into_iter().rev().find(|m| m.0 == key).map(|m| m.1),
        _ => None,
    })
}

/// The element of this number, from the end when it is negative.
pub fn element(s: &str, at: i64) -> Result<Option<&str>> {
    Ok(match open(s)? {
        Raw::Array(items) => {
            let at = if at < 0 { at + items.len() as i64 } else { at };
            usize::try_from(at).ok().and_then(|i| items.get(i).copied())
        }
        _ => None,
    })
}

/// What stands at a path.
pub fn walk<'a>(s: &'a str, path: &[Option<&str>]) -> Result<Option<&'a str>> {
    let mut here = s;
    for step in path {
        let Some(step) = step else { return Ok(None) };
        let next = match member(here, step)? {
            Some(m) => Some(m),
            None => match step.trim().parse() {
                Ok(at) => element(here, at)?,
                Err(_) => None,
            },
        };
        match next {
            Some(next) => here = next,
            None => return Ok(None),
        }
    }
    Ok(Some(here))
}

/// A piece as `json`.
pub fn value(piece: Option<&str>) -> Value {
    piece.map_or(Value::Null, |s| Value::Json(s.into()))
}

/// A piece as text: strings without their quotes, null as NULL.
pub fn text(piece: Option<&str>) -> Result<Value> {
    let Some(s) = piece else {
        return Ok(Value::Null);
    };
    let t = s.trim_matches([' ', '\t', '\n', '\r']);
    Ok(match t {
        "null" => Value::Null,
        t if t.starts_with('"') => super::json::parse(t)?.into_text_value(),
        _ => Value::from(s),
    })
}

/// The text without blanks and without members that are null.
pub fn without_nulls(s: &str, out: &mut String) -> Result<()> {
    match open(s)? {
        Raw::Object(m) => {
            let start = out.len();
            out.push('{');
            for (k, v) in m.iter().filter(|m| m.1 != "null") {
                if out.len() > start + 1 {
                    out.push(',');
                }
                super::json::write_string(k, out);
                out.push(':');
                without_nulls(v, out)?;
            }
            out.push('}');
        }
        Raw::Array(items) => {
            out.push('[');
            for (i, v) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                without_nulls(v, out)?;
            }
            out.push(']');
        }
        Raw::Scalar(s) => out.push_str(s),
    }
    Ok(())
}
