//! Functions of character strings.
//!
//! Case mapping is Unicode's, one character to one; order and comparison are by bytes.

use super::EvalContext;
use super::format::format;
use super::registry::{Registry, names::*};
use crate::types::ident::{quote_ident, quote_literal};
use crate::types::ops::like;
use crate::types::text;
use base::{Error, Result, SqlState, Type, Value};

type Ctx<'a, 'b> = &'a mut EvalContext<'b>;

fn s(v: &Value) -> &str {
    v.as_str().expect("text")
}

fn int(v: &Value) -> i64 {
    v.as_i64().expect("an integer")
}

fn count(n: usize) -> Value {
    Value::Int4(n as i32)
}

/// 54000 for results beyond what a row can hold.
pub(super) fn too_large() -> Error {
    Error::new(
        SqlState::PROGRAM_LIMIT_EXCEEDED,
        "requested length too large",
    )
}

pub(super) const MAX: usize = 64 << 20;
/// Bytes of a set of characters that is searched from end to end faster than by its hash.
const FEW: usize = 16;

fn lower(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    Ok(Value::from(
        s(&a[0]).chars().map(like::lower).collect::<String>(),
    ))
}

fn upper(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    Ok(Value::from(
        s(&a[0]).chars().map(like::upper).collect::<String>(),
    ))
}

fn initcap(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let mut inside = false;
    let out: String = s(&a[0])
        .chars()
        .map(|c| {
            let d = if inside {
                like::lower(c)
            } else {
                like::upper(c)
            };
            inside = c.is_alphanumeric();
            d
        })
        .collect();
    Ok(Value::from(out))
}

/// The bytes of `t` from character `from` (counted from 1, may lie before the text) over `len` characters.
fn slice(t: &str, from: i64, len: Option<i64>) -> Result<&str> {
    let end = match len {
        Some(n) if n < 0 => {
            return Err(Error::new(
                SqlState::SUBSTRING_ERROR,
                "negative substring length not allowed",
            ));
        }
        Some(n) => from.saturating_add(n),
        None => i64::MAX,
    };
    let skip = (from - 1).max(0) as usize;
    let take = end.saturating_sub(from.max(1)).max(0) as usize;
    if t.is_ascii() {
        let a = skip.min(t.len());
        return Ok(&t[a..a.saturating_add(take).min(t.len())]);
    }
    let a = t.char_indices().nth(skip).map_or(t.len(), |(i, _)| i);
    let b = t[a..]
        .char_indices()
        .nth(take)
        .map_or(t.len(), |(i, _)| a + i);
    Ok(&t[a..b])
}

fn substr(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    Ok(Value::text(slice(s(&a[0]), int(&a[1]), a.get(2).map(int))?))
}

fn bytes(v: &Value) -> &[u8] {
    match v {
        Value::Bytea(b) => b,
        v => panic!("{v:?} is no bytea"),
    }
}

fn substr_bytes(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let b = bytes(&a[0]);
    let (from, len) = (int(&a[1]), a.get(2).map(int));
    if len.is_some_and(|n| n < 0) {
        return Err(Error::new(
            SqlState::SUBSTRING_ERROR,
            "negative substring length not allowed",
        ));
    }
    let end = len.map_or(i64::MAX, |n| from.saturating_add(n));
    let i = (from - 1).clamp(0, b.len() as i64) as usize;
    let j = (end - 1).clamp(i as i64, b.len() as i64) as usize;
    Ok(Value::Bytea(b[i..j].into()))
}

fn left(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let (t, n) = (s(&a[0]), int(&a[1]));
    let n = if n < 0 {
        (t.chars().count() as i64 + n).max(0)
    } else {
        n
    };
    Ok(Value::text(slice(t, 1, Some(n))?))
}

fn right(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let (t, n) = (s(&a[0]), int(&a[1]));
    let len = t.chars().count() as i64;
    let skip = if n < 0 { -n } else { (len - n).max(0) };
    Ok(Value::text(slice(t, skip + 1, None)?))
}

fn pad(a: &[Value], on_left: bool) -> Result<Value> {
    let (t, n) = (s(&a[0]), int(&a[1]).max(0) as usize);
    let fill = a.get(2).map_or(" ", s);
    let len = t.chars().count();
    if n > MAX {
        return Err(too_large());
    }
    if n <= len || fill.is_empty() {
        return Ok(Value::text(slice(t, 1, Some(n.min(len) as i64))?));
    }
    base::memory::want(n)?;
    let padding: String = fill.chars().cycle().take(n - len).collect();
    Ok(Value::from(if on_left {
        padding + t
    } else {
        format!("{t}{padding}")
    }))
}

fn trim(a: &[Value], from_left: bool, from_right: bool) -> Result<Value> {
    fn both(mut t: &str, from_left: bool, from_right: bool, goes: impl Fn(char) -> bool) -> &str {
        if from_left {
            t = t.trim_start_matches(&goes);
        }
        if from_right {
            t = t.trim_end_matches(&goes);
        }
        t
    }
    let t = s(&a[0]);
    let set = a.get(1).map_or(" ", s);
    if set.len() <= FEW {
        let t = both(t, from_left, from_right, |c| set.contains(c));
        return Ok(Value::text(t));
    }
    let set: foldhash::HashSet<char> = set.chars().collect();
    let t = both(t, from_left, from_right, |c| set.contains(&c));
    Ok(Value::text(t))
}

fn replace(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let (t, from, to) = (s(&a[0]), s(&a[1]), s(&a[2]));
    if from.is_empty() {
        return Ok(a[0].clone());
    }
    // The result is counted, not the text: a replacement may be longer than what it replaces, a million times.
    let mut out = String::with_capacity(t.len());
    let mut last = 0;
    for (at, _) in t.match_indices(from) {
        let piece = &t[last..at];
        base::cancel::work(piece.len() + from.len() + to.len())?;
        if out.len() + piece.len() + to.len() > MAX.max(t.len()) {
            return Err(too_large());
        }
        out.push_str(piece);
        out.push_str(to);
        last = at + from.len();
    }
    out.push_str(&t[last..]);
    Ok(Value::from(out))
}

fn translate(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    // Of a character that is there twice the first place counts.
    let mut becomes = foldhash::HashMap::default();
    let mut to = s(&a[2]).chars();
    for c in s(&a[1]).chars() {
        let new = to.next();
        becomes.entry(c).or_insert(new);
    }
    let t = s(&a[0]);
    let mut out = String::with_capacity(t.len());
    for c in t.chars() {
        base::cancel::work(1)?;
        out.extend(becomes.get(&c).copied().unwrap_or(Some(c)));
    }
    Ok(Value::from(out))
}

fn repeat(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let (t, n) = (s(&a[0]), int(&a[1]).max(0) as usize);
    if t.len().saturating_mul(n) > MAX {
        return Err(too_large());
    }
    base::memory::want(t.len() * n)?;
    Ok(Value::from(t.repeat(n)))
}

/// Position of a needle in characters, from 1; 0 when it is not there.
fn strpos(hay: &str, needle: &str) -> Value {
    count(hay.find(needle).map_or(0, |i| hay[..i].chars().count() + 1))
}

fn split_part(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let (t, sep, n) = (s(&a[0]), s(&a[1]), int(&a[2]));
    if n == 0 {
        return Err(Error::new(
            SqlState::INVALID_PARAMETER_VALUE,
            "field position must not be zero",
        ));
    }
    let part = if t.is_empty() {
        None
    } else if sep.is_empty() {
        (n == 1 || n == -1).then_some(t)
    } else if n > 0 {
        t.split(sep).nth(n as usize - 1)
    } else {
        let parts: Vec<&str> = t.split(sep).collect();
        usize::try_from(parts.len() as i64 + n)
            .ok()
            .and_then(|i| parts.get(i).copied())
    };
    Ok(Value::text(part.unwrap_or("")))
}

fn concat(a: &[Value], types: &[Type], c: Ctx<'_, '_>) -> Result<Value> {
    let mut out = String::new();
    for (v, t) in a.iter().zip(types) {
        append(&mut out, v, *t, c)?;
    }
    Ok(Value::from(out))
}

/// A long text is asked for before the buffer grows, because a buffer that grows takes twice what it had.
fn append(out: &mut String, v: &Value, t: Type, c: Ctx<'_, '_>) -> Result<()> {
    if let Some(s) = v.as_str()
        && s.len() >= 1 << 20
    {
        base::memory::want(out.len() + s.len())?;
        out.reserve_exact(s.len());
    }
    text::output(v, t, c.settings, out);
    base::memory::check()
}

fn concat_ws(a: &[Value], types: &[Type], c: Ctx<'_, '_>) -> Result<Value> {
    let Some(sep) = a[0].as_str() else {
        return Ok(Value::Null);
    };
    let mut out = String::new();
    let mut first = true;
    for (v, t) in a.iter().zip(types).skip(1).filter(|(v, _)| !v.is_null()) {
        if !first {
            out.push_str(sep);
        }
        append(&mut out, v, *t, c)?;
        first = false;
    }
    Ok(Value::from(out))
}

fn chr(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let n = int(&a[0]);
    let limit = |m: &str| Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, m);
    if n == 0 {
        return Err(limit("null character not permitted"));
    }
    if n < 0 {
        return Err(limit("character number must be positive"));
    }
    let c = u32::try_from(n).ok().and_then(char::from_u32);
    let c = c.ok_or_else(|| limit(&format!("requested character not valid for encoding: {n}")))?;
    Ok(Value::from(c.to_string()))
}

fn overlay(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let (t, new, from) = (s(&a[0]), s(&a[1]), int(&a[2]));
    let len = a.get(3).map_or(new.chars().count() as i64, int);
    if from <= 0 {
        return Err(Error::new(
            SqlState::SUBSTRING_ERROR,
            "negative substring length not allowed",
        ));
    }
    let head = slice(t, 1, Some(from - 1))?;
    let tail = slice(t, from.saturating_add(len), None)?;
    base::memory::want(head.len() + new.len() + tail.len())?;
    Ok(Value::from(format!("{head}{new}{tail}")))
}

fn to_hex(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    Ok(Value::from(match a[0] {
        Value::Int4(x) => format!("{x:x}"),
        ref v => format!("{:x}", int(v)),
    }))
}

fn char_length(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    Ok(count(s(&a[0]).chars().count()))
}

/// Adds the string functions.
pub(super) fn register(r: &mut Registry) {
    for n in ["length", "char_length", "character_length"] {
        r.f(n, &[TEXT], INT4, IMM, char_length);
        r.f(n, &[BPCHAR], INT4, IMM, char_length);
    }
    r.f("length", &[BYTEA], INT4, IMM, |a, _| {
        Ok(count(bytes(&a[0]).len()))
    });
    for t in [TEXT, BPCHAR] {
        r.f("octet_length", &[t], INT4, IMM, |a, _| {
            Ok(count(s(&a[0]).len()))
        });
        r.f("bit_length", &[t], INT4, IMM, |a, _| {
            Ok(count(8 * s(&a[0]).len()))
        });
    }
    r.f("octet_length", &[BYTEA], INT4, IMM, |a, _| {
        Ok(count(bytes(&a[0]).len()))
    });
    r.f("bit_length", &[BYTEA], INT4, IMM, |a, _| {
        Ok(count(8 * bytes(&a[0]).len()))
    });
    r.f("lower", &[TEXT], TEXT, IMM, lower);
    r.f("upper", &[TEXT], TEXT, IMM, upper);
    r.f("initcap", &[TEXT], TEXT, IMM, initcap);
    for n in ["substr", "substring"] {
        r.f(n, &[TEXT, INT4], TEXT, IMM, substr);
        r.f(n, &[TEXT, INT4, INT4], TEXT, IMM, substr);
        r.f(n, &[BYTEA, INT4], BYTEA, IMM, substr_bytes);
        r.f(n, &[BYTEA, INT4, INT4], BYTEA, IMM, substr_bytes);
    }
    r.f("left", &[TEXT, INT4], TEXT, IMM, left);
    r.f("right", &[TEXT, INT4], TEXT, IMM, right);
    r.f("lpad", &[TEXT, INT4], TEXT, IMM, |a, _| pad(a, true));
    r.f("lpad", &[TEXT, INT4, TEXT], TEXT, IMM, |a, _| pad(a, true));
    r.f("rpad", &[TEXT, INT4], TEXT, IMM, |a, _| pad(a, false));
    r.f("rpad", &[TEXT, INT4, TEXT], TEXT, IMM, |a, _| pad(a, false));
    for args in [&[TEXT][..], &[TEXT, TEXT][..]] {
        r.f("ltrim", args, TEXT, IMM, |a, _| trim(a, true, false));
        r.f("rtrim", args, TEXT, IMM, |a, _| trim(a, false, true));
        r.f("btrim", args, TEXT, IMM, |a, _| trim(a, true, true));
    }
    r.f("replace", &[TEXT, TEXT, TEXT], TEXT, IMM, replace);
    r.f("translate", &[TEXT, TEXT, TEXT], TEXT, IMM, translate);
    r.f("repeat", &[TEXT, INT4], TEXT, IMM, repeat);
    r.f("reverse", &[TEXT], TEXT, IMM, |a, _| {
        Ok(Value::from(s(&a[0]).chars().rev().collect::<String>()))
    });
    // position(needle IN hay) reaches "position" with the text first, as strpos.
    for n in ["position", "strpos"] {
        r.f(n, &[TEXT, TEXT], INT4, IMM, |a, _| {
            Ok(strpos(s(&a[0]), s(&a[1])))
        });
    }
    r.f("starts_with", &[TEXT, TEXT], BOOL, IMM, |a, _| {
        Ok(Value::Bool(s(&a[0]).starts_with(s(&a[1]))))
    });
    r.f("split_part", &[TEXT, TEXT, INT4], TEXT, IMM, split_part);
    r.variadic("concat", &[ANY], TEXT, STA_N, concat);
    r.variadic("concat_ws", &[TEXT, ANY], TEXT, STA_N, concat_ws);
    r.t("format", &[TEXT], TEXT, STA_N, format);
    r.variadic("format", &[TEXT, ANY], TEXT, STA_N, format);
    r.f("chr", &[INT4], TEXT, IMM, chr);
    r.f("ascii", &[TEXT], INT4, IMM, |a, _| {
        Ok(Value::Int4(s(&a[0]).chars().next().map_or(0, |c| c as i32)))
    });
    r.f("overlay", &[TEXT, TEXT, INT4], TEXT, IMM, overlay);
    r.f("overlay", &[TEXT, TEXT, INT4, INT4], TEXT, IMM, overlay);
    r.f("to_hex", &[INT4], TEXT, IMM, to_hex);
    r.f("to_hex", &[INT8], TEXT, IMM, to_hex);
    r.f("quote_ident", &[TEXT], TEXT, IMM, |a, _| {
        Ok(Value::from(quote_ident(s(&a[0]))))
    });
    r.f("quote_literal", &[TEXT], TEXT, IMM, |a, _| {
        Ok(Value::from(quote_literal(s(&a[0]))))
    });
    r.t("quote_literal", &[ANYELEMENT], TEXT, STA, |a, t, c| {
        Ok(Value::from(quote_literal(&text::to_string(
            &a[0], t[0], c.settings,
        ))))
    });
    r.f("quote_nullable", &[TEXT], TEXT, IMM_N, |a, _| {
        Ok(Value::from(
            a[0].as_str().map_or("NULL".into(), quote_literal),
        ))
    });
    r.t("quote_nullable", &[ANYELEMENT], TEXT, STA_N, |a, t, c| {
        Ok(Value::from(if a[0].is_null() {
            "NULL".into()
        } else {
            quote_literal(&text::to_string(&a[0], t[0], c.settings))
        }))
    });
    r.f("textcat", &[TEXT, TEXT], TEXT, IMM, |a, _| {
        Ok(Value::from(format!("{}{}", s(&a[0]), s(&a[1]))))
    });
    r.f("like_escape", &[TEXT, TEXT], TEXT, IMM, |a, _| {
        like::escape(s(&a[0]), s(&a[1])).map(Value::from)
    });
}

#[cfg(test)]
mod tests {
    use crate::functions::testing::call;

    #[test]
    fn results_are_those_of_postgresql() {
        for (f, args, want) in [
            ("length", &["höhe"][..], "4"),
            ("octet_length", &["höhe"], "5"),
            ("initcap", &["hi THOMAS o'neil"], "Hi Thomas O'Neil"),
            ("substr", &["alphabet", "#3", "#2"], "ph"),
            ("substr", &["alphabet", "#-1", "#4"], "al"),
            ("left", &["abcde", "#-2"], "abc"),
            ("right", &["abcde", "#-2"], "cde"),
            ("right", &["abcde", "#2"], "de"),
            ("lpad", &["hi", "#5", "xy"], "xyxhi"),
            ("rpad", &["hello", "#3"], "hel"),
            ("btrim", &["xyxtrimyyx", "xyz"], "trim"),
            ("translate", &["12345", "143", "ax"], "a2x5"),
            ("split_part", &["abc~@~def~@~ghi", "~@~", "#2"], "def"),
            ("split_part", &["a,b,c", ",", "#-1"], "c"),
            ("strpos", &["high", "ig"], "2"),
            ("concat_ws", &[",", "a", "NULL", "b"], "a,b"),
            ("concat", &["a", "#2", "NULL"], "a2"),
            (
                "format",
                &["%s %I %L %%", "x", "A b", "it's"],
                "x \"A b\" 'it''s' %",
            ),
            ("format", &["|%-5s|%5s|%2$s|", "a", "b"], "|a    |    b|b|"),
            ("overlay", &["Txxxxas", "hom", "#2", "#4"], "Thomas"),
            ("quote_ident", &["select"], "\"select\""),
            ("quote_ident", &["foo_1"], "foo_1"),
            ("quote_literal", &["a\\b"], "E'a\\\\b'"),
            ("to_hex", &["#-1"], "ffffffff"),
            ("reverse", &["abc"], "cba"),
            ("chr", &["#233"], "é"),
            ("repeat", &["ab", "#-1"], ""),
            ("upper", &["straße"], "STRAßE"),
        ] {
            assert_eq!(call(f, args), want, "{f}{args:?}");
        }
        assert!(
            call("split_part", &["a", ",", "#0"])
                .contains("22023: field position must not be zero")
        );
        assert!(call("substr", &["a", "#1", "#-1"]).contains("22011"));
    }
}
