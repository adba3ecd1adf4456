//! Rows as values on the wire in binary form: `record_send`.
//!
//! A row's value is its text, `(1,"a b",)`. The binary form has the type of each field, which the text has not, so the binder
//! hands the types on as a [`Shape`]; each field is read back as its type and written in that type's binary form.
//!
//! ```text
//! | fields i32 | per field: type oid u32, length i32 (-1: NULL), bytes |
//! ```
//!
//! Left out on purpose: the type of a table's rows as a type of its own; the oid of a row is that of `record`.

use super::{OutputSettings, binary, text};
use base::{Type, Value};
use std::sync::Arc;

/// The types of a row's fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape(pub Vec<(Type, Option<Arc<Shape>>)>);

/// A field of a record's text: quoted where PostgreSQL quotes it.
pub(crate) fn push_field(out: &mut String, s: &str) {
    let special = |c: char| matches!(c, '"' | '\\' | '(' | ')' | ',') || c.is_ascii_whitespace();
    if !s.is_empty() && !s.contains(special) {
        return out.push_str(s);
    }
    out.push('"');
    for c in s.chars() {
        if matches!(c, '"' | '\\') {
            out.push(c);
        }
        out.push(c);
    }
    out.push('"');
}

/// The fields of a row's text; an empty one without quotes is NULL.
fn fields(row: &str) -> Vec<Option<String>> {
    let inner = row.strip_prefix('(').and_then(|r| r.strip_suffix(')'));
    let mut out = vec![];
    let mut field: Option<String> = None;
    let mut quoted = false;
    let mut chars = inner.unwrap_or(row).chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            // A quote inside of quotes is written twice, a backslash, too.
            '"' | '\\' if quoted && chars.peek() == Some(&c) => {
                chars.next();
                field.get_or_insert_default().push(c);
            }
            '"' => {
                quoted = !quoted;
                field.get_or_insert_default();
            }
            ',' if !quoted => out.push(field.take()),
            c => field.get_or_insert_default().push(c),
        }
    }
    out.push(field);
    out
}

/// Appends the binary form of the row whose text this is.
pub fn encode(row: &str, shape: &Shape, settings: &OutputSettings, out: &mut Vec<u8>) {
    out.extend_from_slice(&(shape.0.len() as u32).to_be_bytes());
    let mut texts = fields(row).into_iter();
    for (ty, inner) in &shape.0 {
        let Some(s) = texts.next().flatten() else {
            out.extend_from_slice(&ty.oid().to_be_bytes());
            out.extend_from_slice(&(-1i32).to_be_bytes());
            continue;
        };
        let mut bytes = Vec::new();
        let mut oid = ty.oid();
        match (inner, text::input(&s, (*ty).into(), settings)) {
            (Some(shape), _) => encode(&s, shape, settings, &mut bytes),
            (None, Ok(v)) if *ty != Type::Record && !v.is_null() => {
                binary::encode(&v, *ty, &mut bytes);
            }
            // What cannot be read back is text, and says so.
            _ => {
                oid = Type::Text.oid();
                binary::encode(&Value::text(&s), Type::Text, &mut bytes);
            }
        }
        out.extend_from_slice(&oid.to_be_bytes());
        out.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
        out.extend_from_slice(&bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_taken_apart_as_they_were_put_together() {
        let some = |s: &str| Some(s.to_owned());
        assert_eq!(
            fields(r#"(1,,"","a ""b"" \\,c",d)"#),
            [some("1"), None, some(""), some(r#"a "b" \,c"#), some("d")]
        );
    }

    #[test]
    fn a_row_has_the_types_of_its_fields() {
        let inner = Shape(vec![(Type::Bool, None)]);
        let shape = Shape(vec![
            (Type::Int4, None),
            (Type::Text, None),
            (Type::Record, Some(Arc::new(inner))),
            (Type::Unknown, None),
        ]);
        let mut out = vec![];
        encode("(7,,(t),a)", &shape, &OutputSettings::default(), &mut out);
        let mut expected = vec![0, 0, 0, 4, 0, 0, 0, 23, 0, 0, 0, 4, 0, 0, 0, 7];
        expected.extend([0, 0, 0, 25, 255, 255, 255, 255]);
        expected.extend([0, 0, 8, 201, 0, 0, 0, 13, 0, 0, 0, 1]);
        expected.extend([0, 0, 0, 16, 0, 0, 0, 1, 1]);
        // A literal of no type.
        expected.extend([0, 0, 2, 193, 0, 0, 0, 1, b'a']);
        assert_eq!(out, expected);
    }
}
