//! JSON as a tree, and the canonical text of `jsonb`: keys sorted by length and then bytes, the last of duplicates kept, a
//! blank after `:` and `,`, numbers as `numeric` prints them.

use super::numeric;
use base::{Error, Numeric, Result, SqlState, Value};

/// A JSON value.
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    Null,
    Bool(bool),
    Number(Numeric),
    String(String),
    Array(Vec<Json>),
    /// Sorted by [`key_order`], keys distinct.
    Object(Vec<(String, Json)>),
}

/// Arrays and objects that may stand in each other.
pub const MAX_DEPTH: usize = 1000;

/// PostgreSQL's order of keys: by length in bytes, then by bytes.
pub fn key_order(a: &str, b: &str) -> std::cmp::Ordering {
    a.len()
        .cmp(&b.len())
        .then_with(|| a.as_bytes().cmp(b.as_bytes()))
}

/// The order of `jsonb`: objects, arrays, booleans, numbers, strings, null, the greatest first; the longer array or object is
/// greater; then element by element. (An empty array at the top is less than null, as in PostgreSQL.)
pub fn compare(a: &Json, b: &Json) -> std::cmp::Ordering {
    use std::cmp::Ordering;
    fn kind(j: &Json) -> u8 {
        match j {
            Json::Null => 0,
            Json::String(_) => 1,
            Json::Number(_) => 2,
            Json::Bool(_) => 3,
            Json::Array(_) => 4,
            Json::Object(_) => 5,
        }
    }
    fn inner(a: &Json, b: &Json) -> Ordering {
        match (a, b) {
            (Json::String(x), Json::String(y)) => x.as_bytes().cmp(y.as_bytes()),
            (Json::Number(x), Json::Number(y)) => x.cmp(y),
            (Json::Bool(x), Json::Bool(y)) => x.cmp(y),
            (Json::Array(x), Json::Array(y)) => x.len().cmp(&y.len()).then_with(|| {
                let pairs = x.iter().zip(y).map(|(a, b)| inner(a, b));
                pairs
                    .into_iter()
                    .find(|o| o.is_ne())
                    .unwrap_or(Ordering::Equal)
            }),
            (Json::Object(x), Json::Object(y)) => x.len().cmp(&y.len()).then_with(|| {
                let pairs = x
                    .iter()
                    .zip(y)
                    // In the order of storage, but each pair of keys as strings.
                    .map(|(a, b)| {
                        let keys = a.0.as_bytes().cmp(b.0.as_bytes());
                        keys.then_with(|| inner(&a.1, &b.1))
                    });
                pairs
                    .into_iter()
                    .find(|o| o.is_ne())
                    .unwrap_or(Ordering::Equal)
            }),
            _ => kind(a).cmp(&kind(b)),
        }
    }
    let empty = |j: &Json| matches!(j, Json::Array(v) if v.is_empty());
    match (empty(a), empty(b)) {
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
        _ => inner(a, b),
    }
}

impl Json {
    /// An object from pairs in any order; of equal keys the last holds.
    pub fn object(mut pairs: Vec<(String, Json)>) -> Json {
        pairs.reverse();
        pairs.sort_by(|a, b| key_order(&a.0, &b.0));
        pairs.dedup_by(|later, first| later.0 == first.0);
        Json::Object(pairs)
    }

    /// The member of an object.
    pub fn get(&self, key: &str) -> Option<&Json> {
        match self {
            Json::Object(m) => {
                let i = m.binary_search_by(|p| key_order(&p.0, key)).ok()?;
                Some(&m[i].1)
            }
            _ => None,
        }
    }

    /// The element of an array, from the end when negative.
    pub fn at(&self, i: i64) -> Option<&Json> {
        match self {
            Json::Array(a) => {
                let i = if i < 0 { i + a.len() as i64 } else { i };
                usize::try_from(i).ok().and_then(|i| a.get(i))
            }
            _ => None,
        }
    }

    /// The canonical text.
    pub fn to_text(&self) -> String {
        let mut s = String::new();
        self.write(&mut s);
        s
    }

    /// A `jsonb` value.
    pub fn into_value(self) -> Value {
        Value::Json(self.to_text().into())
    }

    /// What `->>` gives: a string without quotes, NULL for null.
    pub fn into_text_value(self) -> Value {
        match self {
            Json::Null => Value::Null,
            Json::String(s) => Value::from(s),
            j => Value::from(j.to_text()),
        }
    }

    pub fn write(&self, out: &mut String) {
        use std::fmt::Write;
        match self {
            Json::Null => out.push_str("null"),
            Json::Bool(true) => out.push_str("true"),
            Json::Bool(false) => out.push_str("false"),
            Json::Number(n) => write!(out, "{n}").expect("writing to a string"),
            Json::String(s) => write_string(s, out),
            Json::Array(a) => {
                out.push('[');
                for (i, v) in a.iter().enumerate() {
                    if i > 0 {
                        out.push_str(", ");
                    }
                    v.write(out);
                }
                out.push(']');
            }
            Json::Object(m) => {
                out.push('{');
                for (i, (k, v)) in m.iter().enumerate() {
                    if i > 0 {
                        out.push_str(", ");
                    }
                    write_string(k, out);
                    out.push_str(": ");
                    v.write(out);
                }
                out.push('}');
            }
        }
    }

    /// The text over several lines, four blanks deeper at each level.
    pub fn write_pretty(&self, indent: usize, out: &mut String) {
        let line = |n: usize, out: &mut String| {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', 4 * n));
        };
        match self {
            Json::Array(a) => {
                out.push('[');
                for (i, v) in a.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    line(indent + 1, out);
                    v.write_pretty(indent + 1, out);
                }
                line(indent, out);
                out.push(']');
            }
            Json::Object(m) => {
                out.push('{');
                for (i, (k, v)) in m.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    line(indent + 1, out);
                    write_string(k, out);
                    out.push_str(": ");
                    v.write_pretty(indent + 1, out);
                }
                line(indent, out);
                out.push('}');
            }
            j => j.write(out),
        }
    }

    /// `jsonb_typeof`.
    pub fn type_name(&self) -> &'static str {
        match self {
            Json::Null => "null",
            Json::Bool(_) => "boolean",
            Json::Number(_) => "number",
            Json::String(_) => "string",
            Json::Array(_) => "array",
            Json::Object(_) => "object",
        }
    }
}

/// Appends a quoted string.
pub fn write_string(s: &str, out: &mut String) {
    use std::fmt::Write;
    out.push('"');
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if (c as u32) < 0x20 => {
                write!(out, "\\u{:04x}", c as u32).expect("writing to a string")
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// The tree of a stored `jsonb` or `json` value.
pub fn of(v: &Value) -> Result<Json> {
    match v {
        Value::Json(s) => parse(s),
        v => Err(Error::internal(format!("{v:?} is no JSON"))),
    }
}

/// Reads JSON; 22P02 when malformed.
pub fn parse(s: &str) -> Result<Json> {
    read(s, false)
}

/// Whether this is JSON, as the type `json` asks: its strings and numbers may say what neither `text` nor `numeric` can hold.
pub fn check(s: &str) -> Result<()> {
    read(s, true).map(|_| ())
}

/// What kind of value a `json` text is: see [`Json::type_name`].
pub fn kind_of_text(s: &str) -> Result<&'static str> {
    Ok(read(s, true)?.type_name())
}

fn read(s: &str, text_only: bool) -> Result<Json> {
    let mut p = Parser {
        s,
        at: 0,
        text_only,
    };
    p.blanks();
    let j = p.value(0)?;
    p.blanks();
    if p.at < s.len() {
        return Err(p.unexpected("Expected end of input, but found"));
    }
    Ok(j)
}

/// Reads a text from front to back.
pub(super) struct Parser<'a> {
    pub s: &'a str,
    pub at: usize,
    /// The form is looked at, and nothing is made of escapes and digits.
    pub text_only: bool,
}

impl<'a> Parser<'a> {
    pub fn peek(&self) -> Option<u8> {
        self.s.as_bytes().get(self.at).copied()
    }

    pub fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn bad(&self, detail: impl Into<String>) -> Error {
        Error::new(
            SqlState::INVALID_TEXT_REPRESENTATION,
            "invalid input syntax for type json",
        )
        .detail(detail)
    }

    fn unexpected(&self, what: &str) -> Error {
        if self.at >= self.s.len() {
            return self.bad("The input string ended unexpectedly.");
        }
        let token: String = {
            let rest = &self.s[self.at..];
            let word = rest
                .bytes()
                .take_while(|b| b.is_ascii_alphanumeric() || *b >= 128 || *b == b'_')
                .count();
            let n = if word > 0 {
                word
            } else {
                rest.chars().next().map_or(0, char::len_utf8)
            };
            rest[..n].into()
        };
        match what {
            "" => self.bad(format!("Token \"{token}\" is invalid.")),
            w => self.bad(format!("{w} \"{token}\".")),
        }
    }

    fn value(&mut self, depth: usize) -> Result<Json> {
        if depth > MAX_DEPTH {
            return Err(Error::new(
                SqlState::STATEMENT_TOO_COMPLEX,
                "stack depth limit exceeded",
            ));
        }
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => Ok(Json::String(self.string()?)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => {
                for (word, j) in [
                    ("null", Json::Null),
                    ("true", Json::Bool(true)),
                    ("false", Json::Bool(false)),
                ] {
                    if let Some(rest) = self.s[self.at..].strip_prefix(word)
                        && !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_')
                    {
                        self.at += word.len();
                        return Ok(j);
                    }
                }
                match self.peek() {
                    Some(b'}' | b']' | b',' | b':') => {
                        Err(self.unexpected("Expected JSON value, but found"))
                    }
                    _ => Err(self.unexpected("")),
                }
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Json> {
        let mut pairs = Vec::new();
        self.members(depth, &mut |k, v, _| pairs.push((k, v)))?;
        Ok(Json::object(pairs))
    }

    /// The members of the object here: each one's key, value and the value's text.
    pub fn members(
        &mut self,
        depth: usize,
        f: &mut dyn FnMut(String, Json, &'a str),
    ) -> Result<()> {
        self.at += 1;
        self.blanks();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.blanks();
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("Expected string, but found"));
            }
            let k = self.string()?;
            self.blanks();
            if self.peek() != Some(b':') {
                return Err(self.unexpected("Expected \":\", but found"));
            }
            self.at += 1;
            self.blanks();
            let from = self.at;
            let v = self.value(depth + 1)?;
            f(k, v, &self.s[from..self.at]);
            self.blanks();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err(self.unexpected("Expected \",\" or \"}\", but found")),
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<Json> {
        let mut items = Vec::new();
        self.elements(depth, &mut |v, _| items.push(v))?;
        Ok(Json::Array(items))
    }

    /// The elements of the array here, each with its text.
    pub fn elements(&mut self, depth: usize, f: &mut dyn FnMut(Json, &'a str)) -> Result<()> {
        self.at += 1;
        self.blanks();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.blanks();
            let from = self.at;
            let v = self.value(depth + 1)?;
            f(v, &self.s[from..self.at]);
            self.blanks();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err(self.unexpected("Expected \",\" or \"]\", but found")),
            }
        }
    }

    fn number(&mut self) -> Result<Json> {
        let b = self.s.as_bytes();
        let from = self.at;
        let mut i = from;
        if b[i] == b'-' {
            i += 1;
        }
        let digits = |mut i: usize| {
            while b.get(i).is_some_and(u8::is_ascii_digit) {
                i += 1;
            }
            i
        };
        let int = i;
        i = digits(i);
        let mut ok = i > int && !(b[int] == b'0' && i > int + 1);
        if b.get(i) == Some(&b'.') {
            let end = digits(i + 1);
            ok &= end > i + 1;
            i = end;
        }
        if matches!(b.get(i), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(b.get(i + 1), Some(b'+' | b'-')));
            let end = digits(i + 1 + sign);
            ok &= end > i + 1 + sign;
            i = end;
        }
        if !ok
            || b.get(i)
                .is_some_and(|c| c.is_ascii_alphanumeric() || *c == b'_')
        {
            return Err(self.unexpected(""));
        }
        self.at = i;
        Ok(Json::Number(match self.text_only {
            true => Numeric::from(0),
            false => numeric::parse(&self.s[from..i])?,
        }))
    }

    fn string(&mut self) -> Result<String> {
        self.at += 1;
        let b = self.s.as_bytes();
        let mut out = String::new();
        loop {
            let from = self.at;
            while b
                .get(self.at)
                .is_some_and(|c| !matches!(c, b'"' | b'\\') && *c >= 0x20)
            {
                self.at += 1;
            }
            out.push_str(&self.s[from..self.at]);
            match b.get(self.at) {
                None => return Err(self.bad("The input string ended unexpectedly.")),
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => {
                    self.at += 1;
                    let c = *b
                        .get(self.at)
                        .ok_or_else(|| self.bad("The input string ended unexpectedly."))?;
                    self.at += 1;
                    match c {
                        b'"' | b'\\' | b'/' => out.push(c as char),
                        b'b' => out.push('\u{8}'),
                        b'f' => out.push('\u{c}'),
                        b'n' => out.push('\n'),
                        b'r' => out.push('\r'),
                        b't' => out.push('\t'),
                        b'u' => out.push(self.unicode()?),
                        _ => return Err(self.bad("Escape sequence is invalid.")),
                    }
                }
                Some(c) => {
                    return Err(
                        self.bad(format!("Character with value 0x{c:02x} must be escaped."))
                    );
                }
            }
        }
    }

    fn unicode(&mut self) -> Result<char> {
        let first = self.four()?;
        if self.text_only {
            return Ok(char::REPLACEMENT_CHARACTER);
        }
        if first == 0 {
            return Err(
                Error::new(SqlState(*b"22P05"), "unsupported Unicode escape sequence")
                    .detail("\\u0000 cannot be converted to text."),
            );
        }
        let code = match first {
            0xD800..0xDC00 => {
                let low = if self.s.as_bytes()[self.at..].starts_with(b"\\u") {
                    self.at += 2;
                    self.four()?
                } else {
                    0
                };
                if !(0xDC00..0xE000).contains(&low) {
                    return Err(self.bad("Unicode low surrogate must follow a high surrogate."));
                }
                0x10000 + ((first - 0xD800) << 10) + (low - 0xDC00)
            }
            0xDC00..0xE000 => {
                return Err(self.bad("Unicode low surrogate must follow a high surrogate."));
            }
            c => c,
        };
        char::from_u32(code).ok_or_else(|| self.bad("Escape sequence is invalid."))
    }

    fn four(&mut self) -> Result<u32> {
        let hex = self.s.as_bytes().get(self.at..self.at + 4);
        let hex = hex
            .and_then(|h| std::str::from_utf8(h).ok())
            .filter(|h| h.bytes().all(|b| b.is_ascii_hexdigit()));
        let n = hex.and_then(|h| u32::from_str_radix(h, 16).ok());
        let n =
            n.ok_or_else(|| self.bad("\"\\u\" must be followed by four hexadecimal digits."))?;
        self.at += 4;
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_text() {
        let c = |s: &str| parse(s).unwrap().to_text();
        assert_eq!(
            c(r#"{"bb":1,"a":2,"a":3,"c":{}}"#),
            r#"{"a": 3, "c": {}, "bb": 1}"#
        );
        assert_eq!(
            c(r#"[1e3, -0.50, "a\u00e9\n\ud83d\ude00"]"#),
            "[1000, -0.50, \"aé\\n😀\"]"
        );
        assert_eq!(c(" true "), "true");
        for bad in [
            "",
            "{",
            "[1,]",
            "01",
            "1.",
            "{\"a\"}",
            "nul",
            "\"\\u12\"",
            "tru e",
            "{\"a\":1}x",
        ] {
            assert_eq!(parse(bad).unwrap_err().code().code(), "22P02", "{bad}");
        }
        assert_eq!(parse("\"\\u0000\"").unwrap_err().code().code(), "22P05");
    }
}
