//! Functions with regular expressions, and those that split and join strings.

use super::jsonb::Made;
use super::registry::{Registry, names::*};
use super::{EvalContext, RowSource};
use crate::types::ops::array;
use crate::types::ops::regex::{Flags, compile, similar, similar_part};
use crate::types::ops::regex_run::{Groups, Pattern};
use crate::types::text;
use base::{Array, Error, Result, SqlState, Type, Value};
use std::ops::ControlFlow;

type Ctx<'a, 'b> = &'a mut EvalContext<'b>;

fn s(v: &Value) -> &str {
    v.as_str().expect("text")
}

fn int(v: &Value) -> i64 {
    v.as_i64().expect("an integer")
}

fn texts(items: Vec<Value>) -> Value {
    Value::Array(Box::new(Array::one_dim(Type::Text, items)))
}

fn flags(a: &[Value], i: usize) -> Result<Flags> {
    a.get(i)
        .map_or(Ok(Flags::default()), |v| Flags::parse(s(v)))
}

/// The replacement with `\1` and `\&` filled in.
fn expand(template: &str, t: &str, c: &Groups, out: &mut String) {
    let group = |k: usize| c.get(k).cloned().flatten().map_or("", |r| &t[r]);
    let mut it = template.chars();
    while let Some(ch) = it.next() {
        if ch != '\\' {
            out.push(ch);
            continue;
        }
        match it.next() {
            Some('&') => out.push_str(group(0)),
            Some(d @ '1'..='9') => {
                let k = d as usize - '0' as usize;
                out.push_str(group(k));
            }
            Some('\\') | None => out.push('\\'),
            Some(other) => {
                out.push('\\');
                out.push(other);
            }
        }
    }
}

/// Byte offset of a character position from 1.
fn offset(t: &str, from: i64) -> Result<usize> {
    if from < 1 {
        return Err(parameter("start", from));
    }
    Ok(t.char_indices()
        .nth(from as usize - 1)
        .map_or(t.len(), |(i, _)| i))
}

/// A parameter that counts from one; 22023 below.
fn from_one(v: Option<&Value>, name: &str, least: i64) -> Result<usize> {
    let n = v.map_or(1, int);
    match n < least {
        true => Err(parameter(name, n)),
        false => Ok(n as usize),
    }
}

fn parameter(name: &str, n: i64) -> Error {
    Error::new(
        SqlState::INVALID_PARAMETER_VALUE,
        format!("invalid value for parameter \"{name}\": {n}"),
    )
}

/// The flags of a function that has no use for `g`.
fn flags_of(a: &[Value], i: usize, function: &str) -> Result<Flags> {
    let f = flags(a, i)?;
    match f.global {
        true => Err(Error::new(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("{function}() does not support the \"global\" option"),
        )),
        false => Ok(f),
    }
}

/// The match itself.
fn whole(c: &Groups) -> std::ops::Range<usize> {
    c[0].clone().expect("a match has a place")
}

fn go_on_unless(done: bool) -> ControlFlow<()> {
    match done {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    }
}

/// Replaces match number `which` (all when 0) from byte `from` on.
fn replace(t: &str, re: &Pattern, template: &str, from: usize, which: usize) -> Result<Value> {
    let mut out = String::from(&t[..from]);
    let (mut last, mut nth) = (from, 0);
    let rest = &t[from..];
    re.each(rest, true, |c| {
        nth += 1;
        if which == 0 || which == nth {
            let m = whole(c);
            out.push_str(&t[last..from + m.start]);
            expand(template, rest, c, &mut out);
            last = from + m.end;
            if out.len() > super::string::MAX.max(t.len()) {
                return Err(super::string::too_large());
            }
        }
        Ok(go_on_unless(which == nth))
    })?;
    out.push_str(&t[last..]);
    Ok(Value::from(out))
}

fn regexp_replace(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let f = flags(a, 3)?;
    let re = compile(s(&a[1]), f)?;
    replace(s(&a[0]), &re, s(&a[2]), 0, usize::from(!f.global))
}

fn regexp_replace_from(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let f = flags(a, 5)?;
    let re = compile(s(&a[1]), f)?;
    let from = offset(s(&a[0]), int(&a[3]))?;
    let which = match a.get(4) {
        Some(v) => from_one(Some(v), "n", 0)?,
        None => usize::from(!f.global),
    };
    replace(s(&a[0]), &re, s(&a[2]), from, which)
}

/// The groups of a match, or the whole match when there are none.
fn groups(t: &str, c: &Groups) -> Value {
    let shown = if c.len() == 1 { c } else { &c[1..] };
    let text = |g: &Option<std::ops::Range<usize>>| g.clone().map(|r| &t[r]).into();
    texts(shown.iter().map(text).collect())
}

fn regexp_match(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let f = flags(a, 2)?;
    if f.global {
        return Err(Error::new(
            SqlState::INVALID_PARAMETER_VALUE,
            "regexp_match() does not support the \"global\" option",
        )
        .hint("Use the regexp_matches function instead."));
    }
    let re = compile(s(&a[1]), f)?;
    let t = s(&a[0]);
    Ok(re.first(t)?.map_or(Value::Null, |c| groups(t, &c)))
}

fn regexp_matches(a: &[Value], _: &[Type], _: Ctx<'_, '_>) -> Result<Box<dyn RowSource>> {
    let f = flags(a, 2)?;
    let re = compile(s(&a[1]), f)?;
    let t = s(&a[0]);
    let mut rows: Vec<Vec<Value>> = Vec::new();
    re.each(t, true, |c| {
        rows.push(vec![groups(t, c)]);
        Ok(go_on_unless(!f.global))
    })?;
    Ok(Box::new(Made(rows.into_iter())))
}

/// Pieces between matches; an empty match at the start or end, or right after another match, splits nothing.
fn split(a: &[Value], function: &str) -> Result<Vec<Value>> {
    let f = flags_of(a, 2, function)?;
    let re = compile(s(&a[1]), f)?;
    let t = s(&a[0]);
    let mut out = Vec::new();
    let mut last = 0;
    re.each(t, false, |c| {
        let m = whole(c);
        if !m.is_empty() || (m.start != 0 && m.end != t.len()) {
            out.push(Value::text(&t[last..m.start]));
            last = m.end;
        }
        Ok(ControlFlow::Continue(()))
    })?;
    out.push(Value::text(&t[last..]));
    Ok(out)
}

/// `substring(text from pattern)`: the first group, or the whole match.
fn substring(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let re = compile(s(&a[1]), Flags::default())?;
    let t = s(&a[0]);
    let c = re.first(t)?;
    let hit = c.and_then(|c| c[usize::from(c.len() > 1)].clone());
    Ok(hit.map(|r| &t[r]).into())
}

/// The same with a SIMILAR TO pattern and escape character.
fn substring_similar(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let (pattern, esc) = (s(&a[1]), s(&a[2]));
    let mark = format!("{esc}\"");
    let parts: Vec<&str> = pattern.split(mark.as_str()).collect();
    let inner = |p: &str| similar_part(p, Some(esc), false);
    // As little as can be is in front of the part that is wanted.
    let first = |p: &str| similar_part(p, Some(esc), true);
    let ere = match parts[..] {
        [whole] => format!("^({})$", inner(whole)?),
        // What is behind one separator alone is all of the rest.
        [before, middle] => format!("^(?:{})({})$", first(before)?, inner(middle)?),
        [before, middle, after] => {
            format!(
                "^(?:{})({})(?:{})$",
                first(before)?,
                inner(middle)?,
                inner(after)?
            )
        }
        _ => {
            return Err(Error::new(
                SqlState(*b"2200C"),
                "SQL regular expression may not contain more than two escape-double-quote separators",
            ));
        }
    };
    let re = compile(&ere, Flags::default())?;
    let t = s(&a[0]);
    let hit = re.first(t)?.and_then(|c| c[1].clone());
    Ok(hit.map(|r| &t[r]).into())
}

fn regexp_count(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let from = a.get(2).map_or(Ok(0), |v| offset(s(&a[0]), int(v)))?;
    let re = compile(s(&a[1]), flags_of(a, 3, "regexp_count")?)?;
    let mut n = 0;
    re.each(&s(&a[0])[from..], false, |_| {
        n += 1;
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(Value::Int4(n))
}

fn regexp_substr(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let from = a.get(2).map_or(Ok(0), |v| offset(s(&a[0]), int(v)))?;
    let n = from_one(a.get(3), "n", 1)?;
    let re = compile(s(&a[1]), flags_of(a, 4, "regexp_substr")?)?;
    let rest = &s(&a[0])[from..];
    let hit = numbered(&re, rest, n, 0)?;
    Ok(hit.map(|r| &rest[r]).into())
}

/// The place of a group in match number `n`, from 1.
fn numbered(
    re: &Pattern,
    t: &str,
    n: usize,
    group: usize,
) -> Result<Option<std::ops::Range<usize>>> {
    let (mut seen, mut hit) = (0, None);
    re.each(t, group > 0, |c| {
        seen += 1;
        if seen == n {
            hit = c.get(group).cloned().flatten();
        }
        Ok(go_on_unless(seen == n))
    })?;
    Ok(hit)
}

/// Text, pattern, start, which match, flags, group: the match's or the group's place in the text.
fn nth_match(
    a: &[Value],
    from: Option<&Value>,
    nth: Option<&Value>,
    re: &Pattern,
    group: Option<&Value>,
) -> Result<Option<std::ops::Range<usize>>> {
    let t = s(&a[0]);
    let from = from.map_or(Ok(0), |v| offset(t, int(v)))?;
    let n = from_one(nth, "n", 1)?;
    let group = match group {
        Some(v) => from_one(Some(v), "subexpr", 0)?,
        None => 0,
    };
    let hit = numbered(re, &t[from..], n, group)?;
    Ok(hit.map(|r| r.start + from..r.end + from))
}

/// 1-based; 0 when there is none. The end asked for is the place after the match.
fn regexp_instr(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let at_end = match a.get(4).map_or(0, int) {
        0 => false,
        1 => true,
        n => return Err(parameter("endoption", n)),
    };
    let re = compile(s(&a[1]), flags_of(a, 5, "regexp_instr")?)?;
    let hit = nth_match(a, a.get(2), a.get(3), &re, a.get(6))?;
    let place = hit.map_or(0, |r| {
        let at = if at_end { r.end } else { r.start };
        s(&a[0])[..at].chars().count() as i32 + 1
    });
    Ok(Value::Int4(place))
}

fn regexp_substr_group(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let re = compile(s(&a[1]), flags_of(a, 4, "regexp_substr")?)?;
    let hit = nth_match(a, a.get(2), a.get(3), &re, a.get(5))?;
    Ok(hit.map(|r| &s(&a[0])[r]).into())
}

fn string_to_array(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let Some(t) = a[0].as_str() else {
        return Ok(Value::Null);
    };
    let null = a.get(2).and_then(Value::as_str);
    let piece = |p: &str| {
        if Some(p) == null {
            Value::Null
        } else {
            Value::text(p)
        }
    };
    let items = match a[1].as_str() {
        _ if t.is_empty() => vec![],
        None => t
            .chars()
            .map(|c| piece(c.encode_utf8(&mut [0; 4])))
            .collect(),
        Some("") => vec![piece(t)],
        Some(sep) => t.split(sep).map(piece).collect(),
    };
    Ok(texts(items))
}

fn string_to_table(a: &[Value], _: &[Type], c: Ctx<'_, '_>) -> Result<Box<dyn RowSource>> {
    let rows = match string_to_array(a, c)? {
        Value::Array(v) => v.items.into_iter().map(|x| vec![x]).collect(),
        _ => vec![],
    };
    Ok(Box::new(Made(rows.into_iter())))
}

fn array_to_string(a: &[Value], _: &[Type], c: Ctx<'_, '_>) -> Result<Value> {
    if a[0].is_null() || a[1].is_null() {
        return Ok(Value::Null);
    }
    let (list, sep) = (array::of(&a[0]), s(&a[1]));
    let null = a.get(2).and_then(Value::as_str);
    let mut out = String::new();
    let mut first = true;
    for v in &list.items {
        if v.is_null() && null.is_none() {
            continue;
        }
        if !first {
            out.push_str(sep);
        }
        first = false;
        match null {
            Some(n) if v.is_null() => out.push_str(n),
            _ => text::output(v, list.element, c.settings, &mut out),
        }
    }
    Ok(Value::from(out))
}

/// Those that count matches, or ask for one by its number.
fn nth_matches(r: &mut Registry) {
    r.f("regexp_count", &[TEXT, TEXT], INT4, IMM, regexp_count);
    r.f("regexp_count", &[TEXT, TEXT, INT4], INT4, IMM, regexp_count);
    r.f(
        "regexp_count",
        &[TEXT, TEXT, INT4, TEXT],
        INT4,
        IMM,
        regexp_count,
    );
    r.f("regexp_substr", &[TEXT, TEXT], TEXT, IMM, regexp_substr);
    r.f(
        "regexp_substr",
        &[TEXT, TEXT, INT4],
        TEXT,
        IMM,
        regexp_substr,
    );
    r.f(
        "regexp_substr",
        &[TEXT, TEXT, INT4, INT4],
        TEXT,
        IMM,
        regexp_substr,
    );
    r.f(
        "regexp_substr",
        &[TEXT, TEXT, INT4, INT4, TEXT],
        TEXT,
        IMM,
        regexp_substr,
    );
    let instr = [TEXT, TEXT, INT4, INT4, INT4, TEXT, INT4];
    for n in 2..=instr.len() {
        r.f("regexp_instr", &instr[..n], INT4, IMM, regexp_instr);
    }
    let group = [TEXT, TEXT, INT4, INT4, TEXT, INT4];
    r.f("regexp_substr", &group, TEXT, IMM, regexp_substr_group);
}

/// Adds the functions of this file.
pub(super) fn register(r: &mut Registry) {
    let from = [TEXT, TEXT, TEXT, INT4, INT4, TEXT];
    for n in 4..=from.len() {
        r.f("regexp_replace", &from[..n], TEXT, IMM, regexp_replace_from);
    }
    for args in [&from[..3], &[TEXT; 4]] {
        r.f("regexp_replace", args, TEXT, IMM, regexp_replace);
    }
    r.f("regexp_match", &[TEXT, TEXT], TEXTARRAY, IMM, regexp_match);
    r.f(
        "regexp_match",
        &[TEXT, TEXT, TEXT],
        TEXTARRAY,
        IMM,
        regexp_match,
    );
    r.set(
        "regexp_matches",
        &[TEXT, TEXT],
        TEXTARRAY,
        IMM,
        regexp_matches,
    );
    r.set(
        "regexp_matches",
        &[TEXT, TEXT, TEXT],
        TEXTARRAY,
        IMM,
        regexp_matches,
    );
    for args in [&[TEXT, TEXT][..], &[TEXT, TEXT, TEXT][..]] {
        r.f("regexp_split_to_array", args, TEXTARRAY, IMM, |a, _| {
            split(a, "regexp_split_to_array").map(texts)
        });
        r.set("regexp_split_to_table", args, TEXT, IMM, |a, _, _| {
            let rows: Vec<Vec<Value>> = split(a, "regexp_split_to_table")?
                .into_iter()
                .map(|v| vec![v])
                .collect();
            Ok(Box::new(Made(rows.into_iter())))
        });
        r.f("regexp_like", args, BOOL, IMM, |a, _| {
            let re = compile(s(&a[1]), flags_of(a, 2, "regexp_like")?)?;
            re.is_match(s(&a[0])).map(Value::Bool)
        });
        r.f("string_to_array", args, TEXTARRAY, IMM_N, string_to_array);
        r.set("string_to_table", args, TEXT, IMM_N, string_to_table);
    }
    nth_matches(r);
    r.f("substring", &[TEXT, TEXT], TEXT, IMM, substring);
    r.f(
        "substring",
        &[TEXT, TEXT, TEXT],
        TEXT,
        IMM,
        substring_similar,
    );
    r.f("similar_to_escape", &[TEXT], TEXT, IMM, |a, _| {
        similar(s(&a[0]), None).map(Value::from)
    });
    r.f("similar_to_escape", &[TEXT, TEXT], TEXT, IMM, |a, _| {
        similar(s(&a[0]), Some(s(&a[1]))).map(Value::from)
    });
    r.t(
        "array_to_string",
        &[ANYARRAY, TEXT],
        TEXT,
        STA_N,
        array_to_string,
    );
    r.t(
        "array_to_string",
        &[ANYARRAY, TEXT, TEXT],
        TEXT,
        STA_N,
        array_to_string,
    );
}

#[cfg(test)]
mod tests {
    use crate::functions::testing::call;

    #[test]
    fn results_are_those_of_postgresql() {
        for (f, args, want) in [
            ("regexp_replace", &["Thomas", ".[mN]a.", "M"][..], "ThM"),
            (
                "regexp_replace",
                &["foobarbaz", "b(..)", "X\\1Y", "g"],
                "fooXarYXazY",
            ),
            ("regexp_replace", &["foobarbaz", "b..", "X"], "fooXbaz"),
            (
                "regexp_match",
                &["foobarbequebaz", "(bar)(beque)"],
                "{bar,beque}",
            ),
            ("regexp_match", &["abc", "x"], "NULL"),
            (
                "regexp_split_to_array",
                &["hello world", "\\s+"],
                "{hello,world}",
            ),
            ("regexp_split_to_array", &["the", ""], "{t,h,e}"),
            ("substring", &["Thomas", "...$"], "mas"),
            ("substring", &["foobar", "o(.)b"], "o"),
            ("substring", &["Thomas", "%#\"o_a#\"_", "#"], "oma"),
            (
                "string_to_array",
                &["xx~~yy~~zz", "~~", "yy"],
                "{xx,NULL,zz}",
            ),
            ("string_to_array", &["abc", "NULL"], "{a,b,c}"),
            ("regexp_count", &["123456789012", "\\d\\d\\d"], "4"),
            ("regexp_like", &["Hello", "hello", "i"], "t"),
        ] {
            assert_eq!(call(f, args), want, "{f}{args:?}");
        }
        assert!(call("regexp_replace", &["a", "(", "b"]).contains("2201B"));
    }
}
