//! Regular expressions: PostgreSQL's advanced ones (ARE) rewritten for the `regex` crate, compiled once per thread and kept.
//!
//! What differs: back references and look-around are refused (0A000); where several alternatives match at one place the
//! first is taken, not the longest.

use super::regex_run::{Pattern, Syntax};
use crate::functions::EvalContext;
use base::{Error, Result, SqlState, Value};
use foldhash::{HashMap, HashMapExt};
use std::cell::RefCell;
use std::rc::Rc;

const CACHED: usize = 64;

/// How to match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags {
    pub ignore_case: bool,
    /// `.` and `[^` do not match a newline.
    pub newline_stops: bool,
    /// `^` and `$` match at lines.
    pub newline_anchors: bool,
    pub expanded: bool,
    pub literal: bool,
    /// All matches, not only the first: for the functions that take it.
    pub global: bool,
}

impl Flags {
    /// The letters of a `flags` argument; 22023 for others.
    pub fn parse(s: &str) -> Result<Flags> {
        let mut f = Flags::default();
        for c in s.chars() {
            match c {
                'g' => f.global = true,
                'i' => f.ignore_case = true,
                'c' => f.ignore_case = false,
                'm' | 'n' => (f.newline_stops, f.newline_anchors) = (true, true),
                'p' => (f.newline_stops, f.newline_anchors) = (true, false),
                'w' => (f.newline_stops, f.newline_anchors) = (false, true),
                's' => (f.newline_stops, f.newline_anchors) = (false, false),
                'x' => f.expanded = true,
                't' => f.expanded = false,
                'q' => f.literal = true,
                'e' | 'b' => {}
                c => {
                    return Err(Error::new(
                        SqlState::INVALID_PARAMETER_VALUE,
                        format!("invalid regular expression option: \"{c}\""),
                    ));
                }
            }
        }
        Ok(f)
    }
}

thread_local! {
    static CACHE: RefCell<HashMap<(String, Flags), Rc<Pattern>>> = RefCell::new(HashMap::new());
}

/// The compiled form of a pattern; 2201B when it is none.
pub fn compile(pattern: &str, flags: Flags) -> Result<Rc<Pattern>> {
    CACHE.with_borrow_mut(|cache| {
        let key = (
            pattern.to_string(),
            Flags {
                global: false,
                ..flags
            },
        );
        if let Some(r) = cache.get(&key) {
            return Ok(r.clone());
        }
        let r = Rc::new(build(pattern, flags)?);
        if cache.len() >= CACHED {
            cache.clear();
        }
        cache.insert(key, r.clone());
        Ok(r)
    })
}

fn invalid(why: impl std::fmt::Display) -> Error {
    Error::new(
        SqlState::INVALID_REGULAR_EXPRESSION,
        format!("invalid regular expression: {why}"),
    )
}

fn build(pattern: &str, mut flags: Flags) -> Result<Pattern> {
    let mut p = pattern;
    if let Some(rest) = p.strip_prefix("***=") {
        flags.literal = true;
        p = rest;
    } else if let Some(rest) = p.strip_prefix("***:") {
        p = rest;
    }
    if let Some(rest) = p.strip_prefix("(?")
        && let Some((letters, after)) = rest.split_once(')')
        && !letters.is_empty()
        && letters.bytes().all(|b| b.is_ascii_lowercase())
    {
        let inner = Flags::parse(letters)?;
        flags = Flags {
            ignore_case: inner.ignore_case || flags.ignore_case,
            ..inner
        };
        p = after;
    }
    let translated = if flags.literal {
        regex::escape(p)
    } else {
        translate(p)?
    };
    let syntax = Syntax {
        ignore_case: flags.ignore_case,
        dot_matches_newline: !flags.newline_stops,
        multi_line: flags.newline_anchors,
        expanded: flags.expanded,
    };
    Pattern::new(&translated, syntax).map_err(|e| match e {
        regex::Error::CompiledTooBig(_) => invalid("regular expression is too complex"),
        e => {
            let text = e.to_string();
            let last = text
                .lines()
                .last()
                .unwrap_or("")
                .trim_start_matches("error: ");
            invalid(match last {
                "unclosed group" | "unopened group" => "parentheses () not balanced",
                "unclosed character class" => "brackets [] not balanced",
                "repetition operator missing expression" => "quantifier operand invalid",
                m if m.starts_with("invalid character class range") => "invalid character range",
                m if m.contains("repetition") => "invalid repetition count(s)",
                m => m,
            })
        }
    })
}

/// Rewrites an ARE in the syntax of the `regex` crate.
fn translate(p: &str) -> Result<String> {
    let mut out = String::with_capacity(p.len() + 8);
    let mut it = p.chars().peekable();
    while let Some(c) = it.next() {
        match c {
            '\\' => escape(&mut it, false, &mut out)?,
            '[' if rest_is(&it, "[:<:]]") => {
                skip(&mut it, 6);
                out.push_str(r"\b{start}");
            }
            '[' if rest_is(&it, "[:>:]]") => {
                skip(&mut it, 6);
                out.push_str(r"\b{end}");
            }
            '[' => bracket(&mut it, &mut out)?,
            '{' if !it.peek().is_some_and(char::is_ascii_digit) => out.push_str(r"\{"),
            '(' if it.peek() == Some(&'?') => {
                let mut ahead = it.clone();
                ahead.next();
                match ahead.next() {
                    Some(':') => out.push('('),
                    Some('=' | '!' | '<') => {
                        return Err(Error::unsupported("look-around in regular expressions"));
                    }
                    _ => return Err(invalid("quantifier operand invalid")),
                }
            }
            c => out.push(c),
        }
    }
    Ok(out)
}

type Chars<'a> = std::iter::Peekable<std::str::Chars<'a>>;

fn rest_is(it: &Chars<'_>, s: &str) -> bool {
    let mut it = it.clone();
    s.chars().all(|c| it.next() == Some(c))
}

fn skip(it: &mut Chars<'_>, n: usize) {
    for _ in 0..n {
        it.next();
    }
}

fn escape(it: &mut Chars<'_>, in_bracket: bool, out: &mut String) -> Result<()> {
    let c = it
        .next()
        .ok_or_else(|| invalid("invalid escape \\ sequence"))?;
    match c {
        'd' | 'w' | 's' | 'D' | 'W' | 'S' | 'n' | 'r' | 't' | 'f' | 'v' | 'a' => {
            out.push('\\');
            out.push(c);
        }
        'A' if !in_bracket => out.push_str(r"\A"),
        'Z' if !in_bracket => out.push_str(r"\z"),
        'm' if !in_bracket => out.push_str(r"\b{start}"),
        'M' if !in_bracket => out.push_str(r"\b{end}"),
        'y' if !in_bracket => out.push_str(r"\b"),
        'Y' if !in_bracket => out.push_str(r"\B"),
        'B' => out.push_str(r"\\"),
        'b' => out.push_str(r"\x08"),
        'e' => out.push_str(r"\x1b"),
        '0' => out.push_str(r"\x00"),
        'u' | 'U' | 'x' => {
            let most = match c {
                'u' => 4,
                'U' => 8,
                _ => 6,
            };
            let mut hex = String::new();
            while hex.len() < most && it.peek().is_some_and(char::is_ascii_hexdigit) {
                hex.extend(it.next());
            }
            if hex.is_empty() {
                return Err(invalid("invalid escape \\ sequence"));
            }
            out.push_str(&format!(r"\x{{{hex}}}"));
        }
        '1'..='9' if !in_bracket => {
            return Err(Error::unsupported("back references in regular expressions"));
        }
        c if c.is_ascii_alphanumeric() => return Err(invalid("invalid escape \\ sequence")),
        c => {
            if c.is_ascii() {
                out.push('\\');
            }
            out.push(c);
        }
    }
    Ok(())
}

fn bracket(it: &mut Chars<'_>, out: &mut String) -> Result<()> {
    out.push('[');
    if it.peek() == Some(&'^') {
        it.next();
        out.push('^');
    }
    let mut first = true;
    loop {
        let c = it
            .next()
            .ok_or_else(|| invalid("brackets [] not balanced"))?;
        match c {
            ']' if !first => break,
            ']' => out.push_str(r"\]"),
            '[' if it.peek() == Some(&':') => {
                out.push('[');
                for c in it.by_ref() {
                    out.push(c);
                    if c == ']' {
                        break;
                    }
                }
            }
            '[' if matches!(it.peek(), Some('.' | '=')) => {
                let mark = it.next().expect("peeked");
                let mut name = String::new();
                while let Some(c) = it.next() {
                    if c == mark && it.peek() == Some(&']') {
                        it.next();
                        break;
                    }
                    name.push(c);
                }
                out.push_str(&regex::escape(&name));
            }
            '\\' => escape(it, true, out)?,
            '[' | '&' | '~' => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
        first = false;
    }
    out.push(']');
    Ok(())
}

/// `similar_to_escape`: the ARE of a SIMILAR TO pattern. Without `esc` the escape character is `\`.
pub fn similar(pattern: &str, esc: Option<&str>) -> Result<String> {
    Ok(format!("^(?:{})$", similar_part(pattern, esc, false)?))
}

/// A part of a SIMILAR TO pattern as an ARE; with `lazy` each repetition takes as little as it can.
pub fn similar_part(pattern: &str, esc: Option<&str>, lazy: bool) -> Result<String> {
    let esc = match esc {
        None => Some('\\'),
        Some(e) => {
            let mut it = e.chars();
            let first = it.next();
            if it.next().is_some() {
                return Err(
                    Error::new(SqlState::INVALID_ESCAPE_SEQUENCE, "invalid escape string")
                        .hint("Escape string must be empty or one character."),
                );
            }
            first
        }
    };
    let least = if lazy { "?" } else { "" };
    let mut out = String::new();
    let (mut after, mut in_class) = (false, false);
    for c in pattern.chars() {
        if after {
            if c.is_alphanumeric() {
                out.push(c);
            } else {
                out.push('\\');
                out.push(c);
            }
            after = false;
        } else if Some(c) == esc {
            after = true;
        } else if in_class {
            if c == '\\' {
                out.push('\\');
            }
            out.push(c);
            in_class = c != ']';
        } else {
            match c {
                '[' => {
                    out.push(c);
                    in_class = true;
                }
                '%' => {
                    out.push_str(".*");
                    out.push_str(least);
                }
                '*' | '+' | '?' | '}' => {
                    out.push(c);
                    out.push_str(least);
                }
                '_' => out.push('.'),
                '(' => out.push_str("(?:"),
                '\\' | '.' | '^' | '$' => {
                    out.push('\\');
                    out.push(c);
                }
                c => out.push(c),
            }
        }
    }
    Ok(out)
}

fn is_match(a: &[Value], ignore_case: bool) -> Result<bool> {
    let (s, p) = (a[0].as_str().expect("text"), a[1].as_str().expect("text"));
    let flags = Flags {
        ignore_case,
        ..Flags::default()
    };
    compile(p, flags)?.is_match(s)
}

pub fn op_match(a: &[Value], _: &mut EvalContext<'_>) -> Result<Value> {
    is_match(a, false).map(Value::Bool)
}

pub fn op_not_match(a: &[Value], _: &mut EvalContext<'_>) -> Result<Value> {
    is_match(a, false).map(|m| Value::Bool(!m))
}

pub fn op_imatch(a: &[Value], _: &mut EvalContext<'_>) -> Result<Value> {
    is_match(a, true).map(Value::Bool)
}

pub fn op_not_imatch(a: &[Value], _: &mut EvalContext<'_>) -> Result<Value> {
    is_match(a, true).map(|m| Value::Bool(!m))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advanced_expressions() {
        let m = |s: &str, p: &str| compile(p, Flags::default()).unwrap().is_match(s).unwrap();
        assert!(m("abc", "^a.c$") && m("a\nb", "a.b") && !m("b\na", "^a"));
        assert!(m("the cat", r"\mcat\M") && !m("concat", r"\mcat"));
        assert!(m("x{y", "x{y") && m("aaa", "^a{3}$"));
        assert!(m("a]b", "[]]") && m("&", "[&&]") && m("5", r"[\d]") && m("q", "[[:alpha:]]"));
        assert!(m("ABC", "(?i)abc") && m("pg_x", "^(pg_.*)$") && m("a.b", r"a\.b"));
        assert!(m("a+b", "***=a+b"));
        assert_eq!(
            compile("(", Flags::default()).unwrap_err().code().code(),
            "2201B"
        );
        assert_eq!(
            compile(r"(a)\1", Flags::default())
                .unwrap_err()
                .code()
                .code(),
            "0A000"
        );
    }

    #[test]
    fn similar_to() {
        let m = |s: &str, p: &str| {
            compile(&similar(p, None).unwrap(), Flags::default())
                .unwrap()
                .is_match(s)
                .unwrap()
        };
        assert!(
            m("abc", "a%")
                && m("abc", "%(b|d)%")
                && !m("abc", "(b|c)%")
                && m("a.c", "a.c")
                && !m("abc", "a.c")
        );
        assert!(m("a%", r"a\%") && !m("ab", r"a\%"));
    }
}
