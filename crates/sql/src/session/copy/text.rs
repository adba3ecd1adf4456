//! COPY's text format: a line per row, fields between delimiters, backslashes for what would be misread.

use super::CopyOptions;
use base::Result;
use std::borrow::Cow;

/// How lines end: as the first one does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineEnd {
    Newline,
    Return,
    Both,
}

/// The ends of the lines of a COPY FROM.
#[derive(Debug, Default)]
pub struct LineEnds {
    /// Those so far.
    known: Option<LineEnd>,
    /// There is no more data: what is left is the last line.
    pub last: bool,
}

impl LineEnds {
    /// The length of the line end at `buf[at]`, a newline or a carriage return. None: more is needed to know. 22P04 where it is not that
    /// of the lines before.
    pub fn at(&mut self, buf: &[u8], at: usize, csv: bool) -> Result<Option<usize>> {
        let (found, len) = match (buf[at], buf.get(at + 1)) {
            (b'\n', _) => (LineEnd::Newline, 1),
            // A newline behind the carriage return that ends lines begins the next one.
            (_, Some(b'\n')) if self.known != Some(LineEnd::Return) => (LineEnd::Both, 2),
            (_, None) if !self.last => return Ok(None),
            _ => (LineEnd::Return, 1),
        };
        if *self.known.get_or_insert(found) == found {
            return Ok(Some(len));
        }
        let (what, escape) = match buf[at] {
            b'\n' => ("newline", "\"\\n\""),
            _ => ("carriage return", "\"\\r\""),
        };
        let (how, escape) = match csv {
            true => ("unquoted", "quoted CSV field"),
            false => ("literal", escape),
        };
        let e = super::bad_data(format!("{how} {what} found in data"));
        Err(e.hint(format!("Use {escape} to represent {what}.")))
    }

    /// Where a line ends that nothing ends.
    pub fn none(&self, buf: &[u8]) -> Option<(usize, usize)> {
        (self.last && !buf.is_empty()).then_some((buf.len(), buf.len()))
    }
}

/// The end of the line that begins at `buf[0]`, without its line end, and where the next one begins. None: more is needed.
pub fn line(buf: &[u8], ends: &mut LineEnds) -> Result<Option<(usize, usize)>> {
    let mut i = 0;
    loop {
        let rest = buf.get(i..).unwrap_or_default();
        let Some(n) = rest.iter().position(|&b| matches!(b, b'\n' | b'\r')) else {
            return Ok(ends.none(buf));
        };
        let n = i + n;
        // Backslashes are rare: look for the line end first, then whether it is escaped.
        let slashes = buf[i..n].iter().rev().take_while(|&&b| b == b'\\').count();
        if slashes % 2 == 0 {
            let len = ends.at(buf, n, false)?;
            return Ok(len.map(|len| (n, n + len)));
        }
        i = n + 1;
    }
}

/// Takes a line apart: `None` is NULL.
pub fn fields<'a>(
    line: &'a str,
    o: &CopyOptions,
    out: &mut Vec<Option<Cow<'a, str>>>,
) -> Result<()> {
    out.clear();
    let bytes = line.as_bytes();
    let mut start = 0;
    loop {
        let mut end = start;
        let mut plain = true;
        while end < bytes.len() && bytes[end] != o.delimiter {
            if bytes[end] == b'\\' {
                plain = false;
                end += 1;
            }
            end += 1;
        }
        let end = end.min(bytes.len());
        let raw = &line[start..end];
        out.push(if raw == o.null {
            None
        } else if plain {
            Some(Cow::Borrowed(raw))
        } else {
            Some(Cow::Owned(unescape(raw)?))
        });
        if end >= bytes.len() {
            return Ok(());
        }
        start = end + 1;
    }
}

fn unescape(raw: &str) -> Result<String> {
    let mut out = Vec::with_capacity(raw.len());
    let b = raw.as_bytes();
    let mut i = 0;
    while i < b.len() {
        if b[i] != b'\\' {
            out.push(b[i]);
            i += 1;
            continue;
        }
        i += 1;
        let Some(&c) = b.get(i) else {
            out.push(b'\\');
            break;
        };
        i += 1;
        match c {
            b'b' => out.push(8),
            b'f' => out.push(12),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'v' => out.push(11),
            b'0'..=b'7' => {
                let more = b[i..]
                    .iter()
                    .take(2)
                    .take_while(|d| (b'0'..=b'7').contains(d));
                let n = more.clone().count();
                let v = more.fold(u32::from(c - b'0'), |v, d| v * 8 + u32::from(d - b'0'));
                out.push(v as u8);
                i += n;
            }
            b'x' => {
                let more = b[i..].iter().take(2).take_while(|d| d.is_ascii_hexdigit());
                let n = more.clone().count();
                if n == 0 {
                    out.push(b'x');
                } else {
                    let digit = |d: &u8| (*d as char).to_digit(16).expect("a hexadecimal digit");
                    out.push(more.fold(0, |v, d| v * 16 + digit(d)) as u8);
                }
                i += n;
            }
            // The end of the data, in the middle of a line.
            b'.' => return Err(super::bad_data("end-of-copy marker corrupt")),
            c => out.push(c),
        }
    }
    match String::from_utf8(out) {
        Ok(s) if !s.contains('\0') => Ok(s),
        Ok(s) => Err(base::bad_text(s.as_bytes())),
        Err(e) => Err(base::bad_text(e.as_bytes())),
    }
}

/// Appends a field.
pub fn put(v: &str, o: &CopyOptions, out: &mut Vec<u8>) {
    for &b in v.as_bytes() {
        match b {
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            8 => out.extend_from_slice(b"\\b"),
            12 => out.extend_from_slice(b"\\f"),
            11 => out.extend_from_slice(b"\\v"),
            b if b == o.delimiter => out.extend_from_slice(&[b'\\', b]),
            b => out.push(b),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::options;
    use super::*;
    use base::SqlState;

    #[test]
    fn lines_end_at_newlines_that_are_not_escaped() {
        let last = |last| LineEnds { known: None, last };
        assert_eq!(line(b"the end\r", &mut last(true)).unwrap(), Some((7, 8)));
        assert_eq!(line(b"the end", &mut last(true)).unwrap(), Some((7, 7)));
        let line = |b: &[u8]| line(b, &mut last(false)).unwrap();
        assert_eq!(line(b"a\\\nb\nc"), Some((4, 5)));
        assert_eq!(line(b"a\r\nb"), Some((1, 3)));
        assert_eq!(line(b"a\rb\n"), Some((1, 2)));
        assert_eq!(line(b"a\\\\\nb"), Some((3, 4)));
        assert_eq!(line(b"no end"), None);
        assert_eq!(line(b"no end yet\r"), None);
    }

    #[test]
    fn all_lines_end_alike() {
        for (bytes, before, want) in [
            (&b"a\nb"[..], LineEnd::Newline, Some((1, 2))),
            (b"a\r\nb", LineEnd::Newline, None),
            (b"a\rb\n", LineEnd::Newline, None),
            (b"a\\\rb\n", LineEnd::Newline, Some((4, 5))),
            (b"a\r\n", LineEnd::Both, Some((1, 3))),
            (b"a\n", LineEnd::Both, None),
            (b"a\rb", LineEnd::Both, None),
            (b"a\rb", LineEnd::Return, Some((1, 2))),
            (b"a\nb", LineEnd::Return, None),
        ] {
            let mut ends = LineEnds {
                known: Some(before),
                last: false,
            };
            match (line(bytes, &mut ends), want) {
                (Ok(found), Some(_)) => assert_eq!(found, want, "{bytes:?}"),
                (Err(e), None) => assert_eq!(e.code().code(), "22P04"),
                (found, _) => panic!("{bytes:?} {before:?}: {found:?}"),
            }
        }
    }

    #[test]
    fn what_is_put_is_read_back() {
        let o = options("COPY t FROM STDIN");
        for v in ["", "a\tb", "\\N", "x\ny\r\\", "\u{8}\u{b}\u{c}", "é"] {
            let mut out = Vec::new();
            put(v, &o, &mut out);
            let text = String::from_utf8(out).unwrap();
            let mut f = Vec::new();
            fields(&text, &o, &mut f).unwrap();
            assert_eq!(f, [Some(Cow::Borrowed(v))], "{v:?}");
        }
    }

    #[test]
    fn fields_nulls_and_escapes() {
        let o = options("COPY t FROM STDIN");
        let mut f = Vec::new();
        fields("1\t\\N\t\t\\x41\\101\\tz", &o, &mut f).unwrap();
        let f: Vec<Option<&str>> = f.iter().map(|f| f.as_deref()).collect();
        assert_eq!(f, [Some("1"), None, Some(""), Some("AA\tz")]);
        for bad in ["\\0", "\\xff"] {
            let e = fields(bad, &o, &mut Vec::new()).unwrap_err();
            assert_eq!(e.code(), SqlState::CHARACTER_NOT_IN_REPERTOIRE);
        }
    }
}
