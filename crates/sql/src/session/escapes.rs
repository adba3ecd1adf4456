//! Strings with escapes (`E'…'`) that the tokeniser cannot read: bytes above 127 written as `\xc3` or `\303`, surrogate pairs, and
//! what PostgreSQL refuses in words of its own.
//!
//! The tokeniser makes a character of each escape, so that it knows no bytes. Where it gives up, [`rewrite`] goes through all such strings
//! of the text by PostgreSQL's rules and writes the characters in the place of their bytes, with blanks behind the string: all that
//! stands further on keeps its line and column, and places of errors stay true.
//!
//! Left out on purpose: `U&'…'`, whose escapes are characters.

use base::{Error, Result, SqlState};
use std::ops::Range;

/// The text as the tokeniser can read it. 22021 for bytes that are no UTF-8, 22025 and 42601 for escapes that are none.
pub(super) fn rewrite(sql: &str) -> Result<String> {
    let mut out = String::with_capacity(sql.len());
    let mut copied = 0;
    for body in bodies(sql) {
        out.push_str(&sql[copied..body.start]);
        let saved = string(&sql[body.clone()], &mut out)?;
        out.push('\'');
        out.extend(std::iter::repeat_n(' ', saved));
        copied = body.end + 1;
    }
    out.push_str(&sql[copied..]);
    Ok(out)
}

/// What stands between the quotes of the strings with escapes.
fn bodies(sql: &str) -> Vec<Range<usize>> {
    let b = sql.as_bytes();
    let word = |c: u8| c.is_ascii_alphanumeric() || c == b'_' || c == b'$' || c >= 0x80;
    let find = |from: usize, what: &str| sql[from..].find(what).map_or(b.len(), |n| from + n);
    let mut out = Vec::new();
    let mut i = 0;
    while i < b.len() {
        match b[i] {
            b'\'' => {
                let escapes =
                    i > 0 && matches!(b[i - 1], b'e' | b'E') && (i < 2 || !word(b[i - 2]));
                let from = i + 1;
                i = from;
                while i < b.len() && (b[i] != b'\'' || b.get(i + 1) == Some(&b'\'')) {
                    i += match b[i] {
                        b'\\' if escapes => 2,
                        b'\'' => 2,
                        _ => 1,
                    };
                }
                if escapes && i < b.len() {
                    out.push(from..i);
                }
                i += 1;
            }
            b'"' => i = find(i + 1, "\"") + 1,
            b'-' if b.get(i + 1) == Some(&b'-') => i = find(i, "\n"),
            b'/' if b.get(i + 1) == Some(&b'*') => {
                let mut depth = 0;
                loop {
                    match (b.get(i), b.get(i + 1)) {
                        (Some(b'/'), Some(b'*')) => (depth, i) = (depth + 1, i + 2),
                        (Some(b'*'), Some(b'/')) => (depth, i) = (depth - 1, i + 2),
                        (Some(_), _) => i += 1,
                        (None, _) => break,
                    }
                    if depth == 0 {
                        break;
                    }
                }
            }
            b'$' if i == 0 || !word(b[i - 1]) => {
                let tag = b[i + 1..].iter().take_while(|c| word(**c) && **c != b'$');
                let end = i + 1 + tag.count();
                let digit = b.get(i + 1).is_some_and(u8::is_ascii_digit);
                i = match b.get(end) {
                    Some(b'$') if !digit => {
                        let tag = &sql[i..=end];
                        find(end + 1, tag) + tag.len()
                    }
                    _ => end,
                };
            }
            _ => i += 1,
        }
    }
    out
}

/// Writes what stands between the quotes of a string; how many characters shorter its last line has become.
fn string(body: &str, out: &mut String) -> Result<usize> {
    let mut saved = 0;
    let mut rest = body;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        if rest[..at].contains('\n') {
            saved = 0;
        }
        let escape = &rest[at..];
        let before = out.chars().count();
        let taken = one(escape, out)?;
        let written = out.chars().count() - before;
        saved += escape[..taken].chars().count() - written;
        rest = &escape[taken..];
    }
    out.push_str(rest);
    Ok(if rest.contains('\n') { 0 } else { saved })
}

/// An escape, or bytes in a row; how much of the text it takes.
fn one(text: &str, out: &mut String) -> Result<usize> {
    let (bytes, taken) = bytes(text);
    if taken > 0 {
        if bytes.iter().all(|b| (1..128).contains(b)) {
            out.push_str(&text[..taken]);
            return Ok(taken);
        }
        for c in base::text(&bytes)?.chars() {
            match c {
                '\'' => out.push_str("''"),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                c => out.push(c),
            }
        }
        return Ok(taken);
    }
    let Some((first, taken)) = unicode(text)? else {
        let taken = 1 + text[1..].chars().next().map_or(0, char::len_utf8);
        out.push_str(&text[..taken]);
        return Ok(taken);
    };
    let pair = || Error::new(SqlState::SYNTAX_ERROR, "invalid Unicode surrogate pair");
    if !(0xd800..0xe000).contains(&first) {
        let what = "invalid Unicode escape value";
        if first == 0 || char::from_u32(first).is_none() {
            return Err(Error::new(SqlState::SYNTAX_ERROR, what));
        }
        out.push_str(&text[..taken]);
        return Ok(taken);
    }
    match unicode(&text[taken..])? {
        Some((second @ 0xdc00..0xe000, more)) if first < 0xdc00 => {
            let c = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
            out.push(char::from_u32(c).ok_or_else(pair)?);
            Ok(taken + more)
        }
        _ => Err(pair()),
    }
}

/// The bytes that the text begins with as escapes, and how much of the text they take.
fn bytes(text: &str) -> (Vec<u8>, usize) {
    let b = text.as_bytes();
    let mut out = Vec::new();
    let mut i = 0;
    while b.get(i) == Some(&b'\\') {
        let (radix, from, most) = match b.get(i + 1) {
            Some(b'x') => (16, i + 2, 2),
            Some(b'0'..=b'7') => (8, i + 1, 3),
            _ => break,
        };
        let digit = |c: &&u8| char::from(**c).is_digit(radix);
        let n = b[from..].iter().take(most).take_while(digit).count();
        let Ok(value) = u32::from_str_radix(&text[from..from + n], radix) else {
            break;
        };
        out.push(value as u8);
        i = from + n;
    }
    (out, i)
}

/// The number of a `\uXXXX` or `\UXXXXXXXX` that the text begins with, and its length.
fn unicode(text: &str) -> Result<Option<(u32, usize)>> {
    let digits = match text.as_bytes() {
        [b'\\', b'u', ..] => 4,
        [b'\\', b'U', ..] => 8,
        _ => return Ok(None),
    };
    let hex = text.get(2..2 + digits);
    let hex = hex.filter(|h| h.bytes().all(|c| c.is_ascii_hexdigit()));
    match hex.and_then(|h| u32::from_str_radix(h, 16).ok()) {
        Some(n) => Ok(Some((n, 2 + digits))),
        None => Err(
            Error::new(SqlState::INVALID_ESCAPE_SEQUENCE, "invalid Unicode escape")
                .hint("Unicode escapes must be \\uXXXX or \\UXXXXXXXX."),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_keep_their_places() {
        for (sql, want) in [
            (r"SELECT E'\xc3\xa4', 1", "SELECT E'ä'       , 1"),
            (
                r"SELECT e'a\303\244b\n''\'' x",
                r"SELECT e'aäb\n''\''        x",
            ),
            ("SELECT E'\\xc3\\xa4\n' x", "SELECT E'ä\n' x"),
            (r"E'\ud83d\ude00'", "E'\u{1f600}'           "),
            (r"E'\x41\x27'", r"E'\x41\x27'"),
            (
                r"'\xff' $$E'\xff'$$ -- E'\xff'",
                r"'\xff' $$E'\xff'$$ -- E'\xff'",
            ),
            (
                r#"some'\xff' "E'\xff'" /* /* */ E'\xff' */"#,
                r#"some'\xff' "E'\xff'" /* /* */ E'\xff' */"#,
            ),
            (
                r"$a$ $ E'\xff' $a$, $1, E'\xc3\xa4'",
                r"$a$ $ E'\xff' $a$, $1, E'ä'       ",
            ),
        ] {
            assert_eq!(rewrite(sql).unwrap(), want);
        }
    }

    #[test]
    fn what_is_no_text_is_refused() {
        for (sql, code) in [
            (r"E'\000'", "22021"),
            (r"E'\xff'", "22021"),
            (r"E'\xc3'", "22021"),
            (r"E'\u12'", "22025"),
            (r"E'\u0000'", "42601"),
            (r"E'\ud83d'", "42601"),
        ] {
            let e = rewrite(sql).unwrap_err();
            assert_eq!(e.code().to_string(), code, "{sql}");
        }
    }
}
