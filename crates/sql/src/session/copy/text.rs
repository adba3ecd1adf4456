//! COPY's text format: a line per row, fields between delimiters, backslashes for what would be misread.

use super::CopyOptions;
use base::{Error, Result, SqlState};
use std::borrow::Cow;

/// The end of the line that begins at `buf[0]`, without its newline, and where the next one begins. None: more is needed.
pub fn line(buf: &[u8], from: usize) -> Option<(usize, usize)> {
    let mut i = from;
    loop {
        // Backslashes are rare: look for the newline first, then whether it is escaped.
        let n = i + buf.get(i..)?.iter().position(|&b| b == b'\n')?;
        let slashes = buf[..n].iter().rev().take_while(|&&b| b == b'\\').count();
        if slashes % 2 == 0 {
            let end = if n > 0 && buf[n - 1] == b'\r' {
                n - 1
            } else {
                n
            };
            return Some((end, n + 1));
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
            c => out.push(c),
        }
    }
    if out.contains(&0) {
        return Err(super::no_nul());
    }
    String::from_utf8(out).map_err(|_| {
        Error::new(
            SqlState::CHARACTER_NOT_IN_REPERTOIRE,
            "invalid byte sequence for encoding \"UTF8\"",
        )
    })
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

    #[test]
    fn lines_end_at_newlines_that_are_not_escaped() {
        assert_eq!(line(b"a\\\nb\nc", 0), Some((4, 5)));
        assert_eq!(line(b"a\r\nb", 0), Some((1, 3)));
        assert_eq!(line(b"a\\\\\nb", 0), Some((3, 4)));
        assert_eq!(line(b"no end", 0), None);
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
