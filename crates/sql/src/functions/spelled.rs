//! Texts that are read as SQL reads names and literals: `parse_ident`, `unistr`.

use super::EvalContext;
use super::registry::{Registry, names::*};
use base::{Array, Error, Result, SqlState, Type, Value};

type Ctx<'a, 'b> = &'a mut EvalContext<'b>;

fn no_identifier(text: &str) -> Error {
    let what = format!("string is not a valid identifier: \"{text}\"");
    Error::new(SqlState::INVALID_PARAMETER_VALUE, what)
}

/// `a."B c"` as its parts. `strict`: nothing may stand behind the last one.
fn parts(text: &str, strict: bool) -> Result<Vec<String>> {
    let mut parts = vec![];
    let mut rest = text.trim_start();
    let mut after_dot = false;
    loop {
        let bad = || no_identifier(text);
        if let Some(inner) = rest.strip_prefix('"') {
            let mut name = String::new();
            let mut left = inner;
            loop {
                let end = left.find('"');
                let end = end.ok_or_else(|| bad().detail("String has unclosed double quotes."))?;
                name.push_str(&left[..end]);
                left = &left[end + 1..];
                match left.strip_prefix('"') {
                    Some(more) => left = more,
                    None => break,
                }
                name.push('"');
            }
            if name.is_empty() {
                return Err(bad().detail("Quoted identifier must not be empty."));
            }
            parts.push(name);
            rest = left;
        } else {
            let starts = |c: char| c == '_' || c.is_ascii_alphabetic() || !c.is_ascii();
            let goes_on = |c: char| starts(c) || c.is_ascii_digit() || c == '$';
            if !rest.starts_with(starts) {
                let detail = match (after_dot, rest.starts_with('.')) {
                    (_, true) => "No valid identifier before \".\".",
                    (true, _) => "No valid identifier after \".\".",
                    _ => return Err(bad()),
                };
                return Err(bad().detail(detail));
            }
            let end = rest.find(|c| !goes_on(c)).unwrap_or(rest.len());
            parts.push(rest[..end].to_ascii_lowercase());
            rest = &rest[end..];
        }
        rest = rest.trim_start();
        match rest.strip_prefix('.') {
            Some(more) => (rest, after_dot) = (more.trim_start(), true),
            None if rest.is_empty() || !strict => return Ok(parts),
            None => return Err(bad()),
        }
    }
}

fn parse_ident(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let strict = !matches!(a.get(1), Some(Value::Bool(false)));
    let parts = parts(a[0].as_str().expect("text"), strict)?;
    let items = parts.into_iter().map(Value::from).collect();
    Ok(Value::Array(Box::new(Array::one_dim(Type::Text, items))))
}

fn invalid(what: &str) -> Error {
    Error::new(SqlState::SYNTAX_ERROR, what)
}

/// The number of so many hexadecimal digits.
fn digits(text: &str, count: usize) -> Option<u32> {
    let digits = text.get(..count)?;
    let all = digits.bytes().all(|b| b.is_ascii_hexdigit());
    all.then(|| u32::from_str_radix(digits, 16).expect("digits"))
}

/// Behind a backslash: the code, and the bytes that it takes.
fn escape(rest: &str) -> Result<(u32, usize)> {
    let forms = [("+", 6), ("u", 4), ("U", 8), ("", 4)];
    for (head, count) in forms {
        let Some(more) = rest.strip_prefix(head) else {
            continue;
        };
        if let Some(code) = digits(more, count) {
            return Ok((code, head.len() + count));
        }
    }
    Err(invalid("invalid Unicode escape")
        .hint("Unicode escapes must be \\XXXX, \\+XXXXXX, \\uXXXX, or \\UXXXXXXXX."))
}

fn unistr(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let pair = || invalid("invalid Unicode surrogate pair");
    let mut out = String::new();
    let mut rest = a[0].as_str().expect("text");
    // The first half of a pair.
    let mut first: Option<u32> = None;
    while let Some(c) = rest.chars().next() {
        let escaped = rest.strip_prefix('\\');
        let Some(behind) = escaped.filter(|b| !b.starts_with('\\')) else {
            if first.is_some() {
                return Err(pair());
            }
            out.push(c);
            rest = &rest[c.len_utf8() + usize::from(escaped.is_some())..];
            continue;
        };
        let (code, taken) = escape(behind)?;
        rest = &behind[taken..];
        match (first.take(), code) {
            (None, 0xd800..0xdc00) => first = Some(code),
            (None, 0xdc00..0xe000) => return Err(pair()),
            (None, _) => {
                let c = char::from_u32(code).filter(|c| *c != '\0');
                out.push(c.ok_or_else(|| invalid("invalid Unicode code point"))?);
            }
            (Some(high), 0xdc00..0xe000) => {
                let code = 0x10000 + ((high - 0xd800) << 10) + (code - 0xdc00);
                out.push(char::from_u32(code).expect("two halves make a letter"));
            }
            (Some(_), _) => return Err(pair()),
        }
    }
    match first {
        Some(_) => Err(pair()),
        None => Ok(Value::from(out)),
    }
}

/// Adds the functions of spelled texts.
pub(super) fn register(r: &mut Registry) {
    r.f("parse_ident", &[TEXT], TEXTARRAY, IMM, parse_ident);
    r.f("parse_ident", &[TEXT, BOOL], TEXTARRAY, IMM, parse_ident);
    r.f("unistr", &[TEXT], TEXT, IMM, unistr);
}
