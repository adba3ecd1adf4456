//! LIKE and ILIKE: `%` any characters, `_` one, `\` makes the next one plain.

use crate::functions::EvalContext;
use base::{Error, Result, SqlState, Value};

pub use base::packed::citext::lower;

/// One character in upper case, where that is one character.
pub fn upper(c: char) -> char {
    let mut it = c.to_uppercase();
    match (it.next(), it.next()) {
        (Some(u), None) => u,
        _ => c,
    }
}

/// Whether `s` matches; `fold` ignores case. 22025 when the pattern ends with its escape character.
pub fn matches(s: &str, pattern: &str, fold: bool) -> Result<bool> {
    if !fold {
        return run(s.as_bytes(), pattern.as_bytes());
    }
    let s: String = s.chars().map(lower).collect();
    let p: String = pattern.chars().map(lower).collect();
    run(s.as_bytes(), p.as_bytes())
}

/// Matches bytes; `_` takes a whole UTF-8 character.
fn run(s: &[u8], p: &[u8]) -> Result<bool> {
    let (mut i, mut j) = (0, 0);
    // Where to go on when the text after the last `%` does not fit: one character further.
    let mut back: Option<(usize, usize)> = None;
    while i < s.len() {
        let ok = match p.get(j) {
            Some(b'%') => {
                j += 1;
                back = Some((i, j));
                continue;
            }
            Some(b'_') => {
                i += width(s[i]);
                j += 1;
                true
            }
            Some(b'\\') => {
                let c = p.get(j + 1).ok_or_else(escape_at_end)?;
                let hit = *c == s[i];
                if hit {
                    i += 1;
                    j += 2;
                }
                hit
            }
            Some(c) if *c == s[i] => {
                i += 1;
                j += 1;
                true
            }
            _ => false,
        };
        if !ok {
            let Some((from, after)) = back else {
                return Ok(false);
            };
            // All that was read since the last `%` is read again.
            base::cancel::work(1 + i - from)?;
            i = from + width(s[from]);
            j = after;
            back = Some((i, j));
        }
    }
    while p.get(j) == Some(&b'%') {
        j += 1;
    }
    Ok(j == p.len())
}

fn width(first: u8) -> usize {
    match first {
        0xF0.. => 4,
        0xE0.. => 3,
        0xC0.. => 2,
        _ => 1,
    }
}

fn escape_at_end() -> Error {
    Error::new(
        SqlState::INVALID_ESCAPE_SEQUENCE,
        "LIKE pattern must not end with escape character",
    )
}

/// The literal prefix of a pattern without wildcards before it, and whether the pattern is nothing else: what an index
/// can use.
pub fn prefix(pattern: &str) -> (String, bool) {
    let mut out = String::new();
    let mut it = pattern.chars();
    while let Some(c) = it.next() {
        match c {
            '%' | '_' => return (out, false),
            '\\' => match it.next() {
                Some(c) => out.push(c),
                None => return (out, false),
            },
            c => out.push(c),
        }
    }
    (out, true)
}

/// `like_escape`: a pattern with another escape character, rewritten to use `\`.
pub fn escape(pattern: &str, esc: &str) -> Result<String> {
    let mut chars = esc.chars();
    let e = chars.next();
    if chars.next().is_some() {
        return Err(
            Error::new(SqlState::INVALID_ESCAPE_SEQUENCE, "invalid escape string")
                .hint("Escape string must be empty or one character."),
        );
    }
    if e == Some('\\') {
        return Ok(pattern.into());
    }
    let mut out = String::with_capacity(pattern.len());
    let mut after = false;
    for c in pattern.chars() {
        if Some(c) == e && !after {
            out.push('\\');
            after = true;
        } else {
            if c == '\\' && !after {
                out.push('\\');
            }
            out.push(c);
            after = false;
        }
    }
    Ok(out)
}

fn str_of(v: &Value) -> &str {
    v.as_str().expect("text")
}

pub fn op_like(a: &[Value], _: &mut EvalContext<'_>) -> Result<Value> {
    matches(str_of(&a[0]), str_of(&a[1]), false).map(Value::Bool)
}

pub fn op_not_like(a: &[Value], _: &mut EvalContext<'_>) -> Result<Value> {
    matches(str_of(&a[0]), str_of(&a[1]), false).map(|m| Value::Bool(!m))
}

pub fn op_ilike(a: &[Value], _: &mut EvalContext<'_>) -> Result<Value> {
    matches(str_of(&a[0]), str_of(&a[1]), true).map(Value::Bool)
}

pub fn op_not_ilike(a: &[Value], _: &mut EvalContext<'_>) -> Result<Value> {
    matches(str_of(&a[0]), str_of(&a[1]), true).map(|m| Value::Bool(!m))
}

pub fn op_bytea_like(a: &[Value], _: &mut EvalContext<'_>) -> Result<Value> {
    let (Value::Bytea(s), Value::Bytea(p)) = (&a[0], &a[1]) else {
        panic!("bytea");
    };
    run(s, p).map(Value::Bool)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        let m = |s: &str, p: &str| matches(s, p, false).unwrap();
        assert!(
            m("abc", "a%")
                && m("abc", "_b_")
                && m("abc", "%c")
                && m("", "%")
                && m("aXbXc", "a%b%c")
        );
        assert!(!m("abc", "a") && !m("abc", "_") && !m("", "_") && !m("abcd", "%bc"));
        assert!(m("a%c", "a\\%c") && !m("abc", "a\\%c"));
        assert!(m("äb", "_b") && matches("ÄB", "äb", true).unwrap());
        assert!(m("mississippi", "%iss%ppi"));
        assert!(matches("abc", "ab\\", false).is_err());
        assert_eq!(escape("a#%b\\", "#").unwrap(), "a\\%b\\\\");
        assert_eq!(prefix("ab\\%c%d"), ("ab%c".into(), false));
        assert_eq!(prefix("abc"), ("abc".into(), true));
    }
}
