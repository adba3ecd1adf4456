//! COPY's CSV format: quotes around what would be misread, doubled inside.

use super::text::LineEnds;
use super::{CopyOptions, Header, Names, bad_data};
use base::Result;
use std::borrow::Cow;

/// The end of the record that begins at `buf[0]`, without its newline, and where the next one begins. Newlines inside of quotes
/// belong to the record. None: more is needed.
pub fn record(buf: &[u8], o: &CopyOptions, ends: &mut LineEnds) -> Result<Option<(usize, usize)>> {
    let (mut quoted, mut i) = (false, 0);
    while i < buf.len() {
        let b = buf[i];
        if quoted && b == o.escape && o.escape != o.quote {
            i += 2;
            continue;
        }
        if b == o.quote {
            quoted = !quoted;
        } else if matches!(b, b'\n' | b'\r') && !quoted {
            return Ok(ends.at(buf, i, true)?.map(|len| (i, i + len)));
        }
        i += 1;
    }
    Ok(ends.none(buf))
}

/// Takes a record apart: `None` is NULL, which only an unquoted field can be (unless FORCE_NULL says otherwise).
pub fn fields<'a>(
    line: &'a str,
    o: &CopyOptions,
    names: &[String],
    out: &mut Vec<Option<Cow<'a, str>>>,
) -> Result<()> {
    out.clear();
    let b = line.as_bytes();
    let mut i = 0;
    loop {
        let rest = b[i..].iter();
        let plain = rest.take_while(|&&c| c != o.delimiter && c != o.quote);
        let end = i + plain.count();
        let (text, was_quoted) = if b.get(end) == Some(&o.quote) {
            let (text, next) = quoted(line, i, o)?;
            i = next;
            (Cow::Owned(text), true)
        } else {
            let text = Cow::Borrowed(&line[i..end]);
            i = end;
            (text, false)
        };
        let name = names.get(out.len()).map_or("", String::as_str);
        let null = text == o.null
            && if was_quoted {
                o.force_null.has(name)
            } else {
                !o.force_not_null.has(name)
            };
        out.push(if null { None } else { Some(text) });
        if i >= b.len() {
            return Ok(());
        }
        i += 1;
    }
}

/// The field that begins at `i` and has quotes in it, and where it ends.
fn quoted(line: &str, mut i: usize, o: &CopyOptions) -> Result<(String, usize)> {
    let b = line.as_bytes();
    let mut field = Vec::new();
    loop {
        match b.get(i) {
            Some(&c) if c == o.quote => {
                i += 1;
                loop {
                    match b.get(i) {
                        None => return Err(bad_data("unterminated CSV quoted field")),
                        Some(&c) if c == o.escape && next_is(b, i + 1, o) => {
                            field.push(b[i + 1]);
                            i += 2;
                        }
                        Some(&c) if c == o.quote => {
                            i += 1;
                            break;
                        }
                        Some(&c) => {
                            field.push(c);
                            i += 1;
                        }
                    }
                }
            }
            Some(&c) if c != o.delimiter => {
                field.push(c);
                i += 1;
            }
            _ => break,
        }
    }
    let text = String::from_utf8(field).map_err(|e| base::bad_text(e.as_bytes()))?;
    Ok((text, i))
}

fn next_is(b: &[u8], at: usize, o: &CopyOptions) -> bool {
    b.get(at).is_some_and(|&n| n == o.quote || n == o.escape)
}

/// Appends a field; the only one of its row is quoted when it could be taken for the end-of-data mark.
pub fn put(v: &str, o: &CopyOptions, name: &str, alone: bool, out: &mut Vec<u8>) {
    let force = o.force_quote != Names::None && o.force_quote.has(name);
    quote_if(force || v == o.null || (alone && v == "\\."), v, o, out);
}

/// Appends the name of a column.
pub fn put_name(name: &str, o: &CopyOptions, out: &mut Vec<u8>) {
    quote_if(name == o.null, name, o, out);
}

/// Appends a text, in quotes if they are asked for or needed.
fn quote_if(force: bool, v: &str, o: &CopyOptions, out: &mut Vec<u8>) {
    let special = |b: u8| b == o.delimiter || b == o.quote || b == b'\n' || b == b'\r';
    if !force && !v.bytes().any(special) {
        return out.extend_from_slice(v.as_bytes());
    }
    out.push(o.quote);
    for b in v.bytes() {
        if b == o.quote || b == o.escape {
            out.push(o.escape);
        }
        out.push(b);
    }
    out.push(o.quote);
}

/// Checks a header line that must match the columns.
pub fn check_header(
    fields: &[Option<Cow<'_, str>>],
    names: &[String],
    o: &CopyOptions,
) -> Result<()> {
    if o.header != Header::Match {
        return Ok(());
    }
    if fields.len() != names.len() {
        return Err(bad_data(format!(
            "wrong number of fields in header line: got {}, expected {}",
            fields.len(),
            names.len()
        )));
    }
    for (i, (f, n)) in fields.iter().zip(names).enumerate() {
        if f.as_deref() != Some(n) {
            return Err(bad_data(format!(
                "column name mismatch in header line field {}: got \"{}\", expected \"{n}\"",
                i + 1,
                f.as_deref().unwrap_or("")
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::options;
    use super::*;

    #[test]
    fn records_may_hold_newlines_in_quotes() {
        let o = options("COPY t FROM STDIN CSV");
        let ends = |b: &[u8]| record(b, &o, &mut LineEnds::default()).unwrap();
        assert_eq!(ends(b"a,\"b\nc\"\r\nd"), Some((7, 9)));
        assert_eq!(ends(b"a,\"b\n"), None);
        let mut mixed = LineEnds::default();
        assert!(record(b"a\n", &o, &mut mixed).is_ok());
        assert!(record(b"a\rb\n", &o, &mut mixed).is_err());
    }

    #[test]
    fn quotes_nulls_and_force() {
        let o = options("COPY t FROM STDIN CSV FORCE NOT NULL b");
        let names = ["a".to_owned(), "b".to_owned(), "c".to_owned()];
        let mut f = Vec::new();
        fields(",,\"\"", &o, &names, &mut f).unwrap();
        assert_eq!(f, [None, Some("".into()), Some("".into())]);
        fields("x\"y,\"\"\"z", &o, &names, &mut f).unwrap();
        assert_eq!(f, [Some("xy,\"z".into())]);
        fields("a,\"b", &o, &names, &mut f).unwrap_err();
        fields("\"a \"\"q\"\"\",b,c", &o, &names, &mut f).unwrap();
        assert_eq!(f[0].as_deref(), Some("a \"q\""));
    }

    #[test]
    fn what_is_put_is_read_back() {
        let o = options("COPY t FROM STDIN CSV");
        for v in ["", "a,b", "\"", "x\ny", "\\.", "plain"] {
            let mut out = Vec::new();
            put(v, &o, "a", true, &mut out);
            let text = String::from_utf8(out).unwrap();
            let mut f = Vec::new();
            fields(&text, &o, &["a".to_owned()], &mut f).unwrap();
            assert_eq!(f, [Some(v.into())], "{v:?}");
        }
    }
}
