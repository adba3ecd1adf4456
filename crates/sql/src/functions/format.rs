//! `format`, which fills names and literals into a text.

use super::EvalContext;
use super::string::{MAX, too_large};
use crate::types::ident::{quote_ident, quote_literal};
use crate::types::text;
use base::{Error, Result, SqlState, Type, Value};

type Ctx<'a, 'b> = &'a mut EvalContext<'b>;

type Letters<'a> = std::iter::Peekable<std::str::Chars<'a>>;

/// The digits that stand next, as a number; none where there are no digits. 22003 above 2147483647.
fn number(it: &mut Letters<'_>) -> Result<Option<usize>> {
    let mut n: Option<i32> = None;
    while let Some(d) = it.peek().and_then(|c| c.to_digit(10)) {
        let more = n.unwrap_or(0).checked_mul(10);
        let more = more.and_then(|n| n.checked_add(d as i32));
        let range = || {
            let what = "number is out of range";
            Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, what)
        };
        n = Some(more.ok_or_else(range)?);
        it.next();
    }
    Ok(n.map(|n| n as usize))
}

/// What stands for an argument: the text itself (`s`), a name (`I`; 22004 for NULL) or a literal (`L`).
fn piece(kind: char, text: String, is_null: bool) -> Result<String> {
    Ok(match kind {
        's' => text,
        'I' if is_null => {
            return Err(Error::new(
                SqlState::NULL_VALUE_NOT_ALLOWED,
                "null values cannot be formatted as an SQL identifier",
            ));
        }
        'I' => quote_ident(&text),
        _ if is_null => "NULL".into(),
        _ => quote_literal(&text),
    })
}

/// `format(text, …)`: `%s`, `%I`, `%L`, `%%`, with position `n$`, flag `-` and width.
pub(super) fn format(a: &[Value], types: &[Type], c: Ctx<'_, '_>) -> Result<Value> {
    let Some(f) = a[0].as_str() else {
        return Ok(Value::Null);
    };
    let bad = |m: String| Error::new(SqlState::INVALID_PARAMETER_VALUE, m);
    let few = || bad("too few arguments for format()".into());
    let zeroth = || bad("format specifies argument 0, but arguments are numbered from 1".into());
    let unterminated = || {
        bad("unterminated format() type specifier".into()).hint("For a single \"%\" use \"%%\".")
    };
    let mut out = String::new();
    let mut it = f.chars().peekable();
    let mut next = 1;
    while let Some(ch) = it.next() {
        if ch != '%' {
            out.push(ch);
            continue;
        }
        if it.peek() == Some(&'%') {
            it.next();
            out.push('%');
            continue;
        }
        let mut at = None;
        let mut width: Option<i64> = number(&mut it)?.map(|n| n as i64);
        if width.is_some() && it.peek() == Some(&'$') {
            it.next();
            at = width.take().map(|n| n as usize);
            if at == Some(0) {
                return Err(zeroth());
            }
        }
        let mut minus = false;
        while it.peek() == Some(&'-') {
            it.next();
            minus = true;
        }
        if it.peek() == Some(&'*') {
            it.next();
            let k = match number(&mut it)? {
                Some(0) => return Err(zeroth()),
                Some(_) if it.peek() != Some(&'$') => {
                    return Err(bad("width argument position must be ended by \"$\"".into()));
                }
                Some(k) => {
                    it.next();
                    k
                }
                None => next,
            };
            next = k + 1;
            width = a.get(k).ok_or_else(few)?.as_i64();
        } else if width.is_none() {
            width = number(&mut it)?.map(|n| n as i64);
        }
        let kind = it.next().ok_or_else(unterminated)?;
        if !matches!(kind, 's' | 'I' | 'L') {
            return Err(
                bad(format!("unrecognized format() type specifier \"{kind}\""))
                    .hint("For a single \"%\" use \"%%\"."),
            );
        }
        let k = at.unwrap_or(next);
        next = k + 1;
        let v = a.get(k).ok_or_else(few)?;
        let t = text::to_string(v, types[k], c.settings);
        let piece = piece(kind, t, v.is_null())?;
        let width = width.unwrap_or(0);
        let (minus, width) = (minus || width < 0, width.unsigned_abs() as usize);
        let fill = width.saturating_sub(piece.chars().count());
        if out.len() + piece.len() + fill > MAX {
            return Err(too_large());
        }
        base::memory::want(fill)?;
        if !minus {
            out.extend(std::iter::repeat_n(' ', fill));
        }
        out.push_str(&piece);
        if minus {
            out.extend(std::iter::repeat_n(' ', fill));
        }
    }
    Ok(Value::from(out))
}
