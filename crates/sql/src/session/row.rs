//! A row of a result as the client gets it: each field its length and its bytes, text or binary.
//!
//! A stored row is not decoded: integers, strings and Booleans go from its bytes to the buffer.

use super::client::{Column, Format};
use crate::exec::RowView;
use crate::types::{OutputSettings, binary, record, text};
use base::{RowRef, Type, Value, row};

/// The format of each column of a result.
#[derive(Clone, Debug, Default)]
pub enum Formats {
    #[default]
    Text,
    Binary,
    Each(Vec<Format>),
}

impl Formats {
    #[inline]
    pub fn of(&self, i: usize) -> Format {
        match self {
            Formats::Text => Format::Text,
            Formats::Binary => Format::Binary,
            Formats::Each(f) => f[i],
        }
    }

    /// One format per column.
    pub fn list(&self, columns: usize) -> Vec<Format> {
        (0..columns).map(|i| self.of(i)).collect()
    }
}

/// Appends the fields of a row. `scratch` is reused between rows.
#[inline]
pub fn put_row(
    view: &RowView<'_>,
    columns: &[Column],
    formats: &Formats,
    settings: &OutputSettings,
    scratch: &mut String,
    out: &mut Vec<u8>,
) {
    match view {
        RowView::Stored { row, columns: at } => {
            for (i, c) in columns.iter().enumerate() {
                if c.ty.ty == Type::Bpchar {
                    let at = at[i] as usize;
                    if row.is_missing(at) {
                        put_padded(&view.get(i), c.ty.typmod, out);
                    } else if row.is_null(at) {
                        out.extend_from_slice(&NULL);
                    } else {
                        put_blanks(row.raw(at), c.ty.typmod, out);
                    }
                    continue;
                }
                if let (Type::BpcharArray, 5..) = (c.ty.ty, c.ty.typmod) {
                    let v = text::padded_items(&view.get(i), c.ty.typmod);
                    put_value(&v, c.ty.ty, formats.of(i), settings, scratch, out);
                    continue;
                }
                put_stored(
                    *row,
                    at[i] as usize,
                    c.ty.ty,
                    formats.of(i),
                    settings,
                    scratch,
                    out,
                );
            }
        }
        _ => {
            for (i, c) in columns.iter().enumerate() {
                let v = view.value(i).expect("not a stored row");
                if c.ty.ty == Type::Bpchar {
                    put_padded(v, c.ty.typmod, out);
                    continue;
                }
                if let (Type::BpcharArray, 5..) = (c.ty.ty, c.ty.typmod) {
                    let v = text::padded_items(v, c.ty.typmod);
                    put_value(&v, c.ty.ty, formats.of(i), settings, scratch, out);
                    continue;
                }
                if let (Some(shape), Format::Binary, Value::Text(s)) = (&c.record, formats.of(i), v)
                {
                    field(out, |o| record::encode(s, shape, settings, o));
                    continue;
                }
                put_value(v, c.ty.ty, formats.of(i), settings, scratch, out);
            }
        }
    }
}

/// A `char(n)`, which is stored without the blanks at its end.
fn put_padded(v: &Value, typmod: i32, out: &mut Vec<u8>) {
    let Value::Text(s) = v else {
        return out.extend_from_slice(&NULL);
    };
    put_blanks(s.as_bytes(), typmod, out);
}

/// The same from its bytes.
fn put_blanks(s: &[u8], typmod: i32, out: &mut Vec<u8>) {
    let width = usize::try_from(typmod - 4).unwrap_or(0);
    // Every byte but those that go on a character begins one.
    let characters = match s.is_ascii() {
        true => s.len(),
        false => s.iter().filter(|b| **b & 0xc0 != 0x80).count(),
    };
    let blanks = width.saturating_sub(characters);
    out.extend_from_slice(&((s.len() + blanks) as u32).to_be_bytes());
    out.extend_from_slice(s);
    out.resize(out.len() + blanks, b' ');
}

/// Writes a field whose bytes `f` appends.
#[inline]
fn field(out: &mut Vec<u8>, f: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    f(out);
    let len = (out.len() - at - 4) as u32;
    out[at..at + 4].copy_from_slice(&len.to_be_bytes());
}

#[inline]
fn bytes(out: &mut Vec<u8>, b: &[u8]) {
    out.extend_from_slice(&(b.len() as u32).to_be_bytes());
    out.extend_from_slice(b);
}

#[inline]
fn integer(out: &mut Vec<u8>, n: impl itoa::Integer) {
    bytes(out, itoa::Buffer::new().format(n).as_bytes());
}

const NULL: [u8; 4] = (-1i32).to_be_bytes();

fn put_stored(
    r: RowRef<'_>,
    at: usize,
    ty: Type,
    format: Format,
    settings: &OutputSettings,
    scratch: &mut String,
    out: &mut Vec<u8>,
) {
    if r.is_missing(at) {
        return put_value(&r.get(at), ty, format, settings, scratch, out);
    }
    if r.is_null(at) {
        return out.extend_from_slice(&NULL);
    }
    let raw = r.raw(at);
    match (ty, format) {
        (Type::Text | Type::Varchar | Type::Name, _) => bytes(out, raw),
        (Type::Int4, Format::Text) => {
            integer(out, i32::from_le_bytes(raw.try_into().expect("four bytes")))
        }
        (Type::Int8, Format::Text) => integer(
            out,
            i64::from_le_bytes(raw.try_into().expect("eight bytes")),
        ),
        (Type::Int2, Format::Text) => {
            integer(out, i16::from_le_bytes(raw.try_into().expect("two bytes")))
        }
        (Type::Int2 | Type::Int4 | Type::Int8, Format::Binary) => {
            field(out, |o| o.extend(raw.iter().rev()))
        }
        _ => {
            let v = row::decode_value(ty, raw).expect("stored values are readable");
            put_value(&v, ty, format, settings, scratch, out);
        }
    }
}

/// Appends one field.
pub fn put_value(
    v: &Value,
    ty: Type,
    format: Format,
    settings: &OutputSettings,
    scratch: &mut String,
    out: &mut Vec<u8>,
) {
    match (v, format) {
        (Value::Null, _) => out.extend_from_slice(&NULL),
        (Value::Int2(n), Format::Text) => integer(out, *n),
        (Value::Int4(n), Format::Text) => integer(out, *n),
        (Value::Int8(n), Format::Text) => integer(out, *n),
        (Value::Text(s), _) if ty != Type::Bpchar => bytes(out, s.as_bytes()),
        (_, Format::Text) => {
            scratch.clear();
            text::output(v, ty, settings, scratch);
            bytes(out, scratch.as_bytes());
        }
        (_, Format::Binary) => field(out, |o| binary::encode(v, ty, o)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::RowLayout;

    #[test]
    fn a_stored_row_looks_like_its_values() {
        let types = [
            Type::Int4,
            Type::Text,
            Type::Int8,
            Type::Int2,
            Type::Varchar,
            Type::Int4,
        ];
        let values = [
            Value::Int4(-7),
            Value::text("abc"),
            Value::Int8(i64::MIN),
            Value::Int2(12),
            Value::text(""),
            Value::Null,
        ];
        let layout = RowLayout::new(types);
        let mut stored = Vec::new();
        layout.encode(0, &values, &mut stored).unwrap();
        let columns: Vec<Column> = types.iter().map(|t| Column::new("c", *t)).collect();
        let (settings, mut scratch) = (OutputSettings::default(), String::new());
        for formats in [Formats::Text, Formats::Binary] {
            let (mut a, mut b) = (Vec::new(), Vec::new());
            let at: Vec<_> = (0..6).collect();
            let view = RowView::Stored {
                row: layout.row(&stored),
                columns: &at,
            };
            put_row(&view, &columns, &formats, &settings, &mut scratch, &mut a);
            put_row(
                &RowView::Values(&values),
                &columns,
                &formats,
                &settings,
                &mut scratch,
                &mut b,
            );
            assert_eq!(a, b);
        }
    }
}
