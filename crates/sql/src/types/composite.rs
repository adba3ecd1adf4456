//! Values of composite types: their text, `(1,"a b",)`, and their binary form, which is that of a record.
//!
//! Attributes that were dropped show in neither. A value is read with exactly as many fields as the type has attributes now.

use super::{OutputSettings, binary, record, text};
use base::{Error, Result, Row, SqlState, UserType, Value};

/// A value of these fields, one for each attribute that is there.
pub fn row(ty: UserType, mut fields: impl Iterator<Item = Value>) -> Value {
    let all = ty.attributes.expect("a composite type").iter();
    let fields = all
        .map(|a| match a.dropped {
            true => Value::Null,
            false => fields.next().expect("a field per attribute"),
        })
        .collect();
    Value::Row(Box::new(Row { ty, fields }))
}

/// Appends the text.
pub fn write(r: &Row, settings: &OutputSettings, out: &mut String) {
    out.push('(');
    for (i, (a, v)) in r.live().enumerate() {
        if i > 0 {
            out.push(',');
        }
        if !v.is_null() {
            let mut s = String::new();
            text::output_column(v, a.ty, settings, &mut s);
            record::push_field(out, &s);
        }
    }
    out.push(')');
}

/// 22P02.
fn malformed(s: &str, detail: &str) -> Error {
    let what = format!("malformed record literal: \"{s}\"");
    Error::new(SqlState::INVALID_TEXT_REPRESENTATION, what).detail(detail)
}

/// The texts of the fields; `None` is NULL. A detail for what is none.
fn fields(s: &str) -> std::result::Result<Vec<Option<String>>, &'static str> {
    let s = s.trim_matches(|c: char| c.is_ascii_whitespace());
    let inner = s.strip_prefix('(').ok_or("Missing left parenthesis.")?;
    let (mut out, mut field, mut quoted) = (vec![], None::<String>, false);
    let mut chars = inner.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => {
                let c = chars.next().ok_or("Unexpected end of input.")?;
                field.get_or_insert_default().push(c);
            }
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                field.get_or_insert_default().push('"');
            }
            '"' => {
                quoted = !quoted;
                field.get_or_insert_default();
            }
            ',' if !quoted => out.push(field.take()),
            ')' if !quoted => {
                out.push(field.take());
                return match chars.next() {
                    None => Ok(out),
                    Some(_) => Err("Junk after right parenthesis."),
                };
            }
            c => field.get_or_insert_default().push(c),
        }
    }
    Err("Unexpected end of input.")
}

/// Reads the text; 22P02, and what the fields' types say of theirs.
pub fn read(s: &str, ty: UserType, settings: &OutputSettings) -> Result<Value> {
    let mut texts = fields(s).map_err(|detail| malformed(s, detail))?;
    let attributes = ty.attributes();
    if attributes.len() == 0 && matches!(texts[..], [None]) {
        texts.clear();
    }
    if texts.len() != attributes.len() {
        let few = texts.len() < attributes.len();
        let detail = if few {
            "Too few columns."
        } else {
            "Too many columns."
        };
        return Err(malformed(s, detail));
    }
    let values = attributes.zip(texts).map(|((_, a), text)| match text {
        None => Ok(Value::Null),
        Some(t) => text::input(&t, a.ty, settings),
    });
    let values: Vec<Value> = values.collect::<Result<_>>()?;
    Ok(row(ty, values.into_iter()))
}

/// Appends the binary form.
pub fn encode(r: &Row, out: &mut Vec<u8>) {
    out.extend_from_slice(&(r.live().count() as u32).to_be_bytes());
    for (a, v) in r.live() {
        out.extend_from_slice(&a.ty.ty.oid().to_be_bytes());
        let at = out.len();
        out.extend_from_slice(&(-1i32).to_be_bytes());
        if !v.is_null() {
            binary::encode(v, a.ty.ty, out);
            let len = (out.len() - at - 4) as i32;
            out[at..at + 4].copy_from_slice(&len.to_be_bytes());
        }
    }
}

/// Reads the binary form: 22P03, and 42804 where number or types of the fields are others.
pub fn decode(b: &[u8], ty: UserType) -> Result<Value> {
    let bad = || {
        let what = "insufficient data left in message";
        Error::new(SqlState::INVALID_BINARY_REPRESENTATION, what)
    };
    let mut rest = b;
    let word = |rest: &mut &[u8]| -> Result<u32> {
        let (w, behind) = rest.split_first_chunk::<4>().ok_or_else(bad)?;
        *rest = behind;
        Ok(u32::from_be_bytes(*w))
    };
    let (n, attributes) = (word(&mut rest)?, ty.attributes());
    if n as usize != attributes.len() {
        let what = format!(
            "wrong number of columns: {n}, expected {}",
            attributes.len()
        );
        return Err(Error::new(SqlState::DATATYPE_MISMATCH, what));
    }
    let mut values = Vec::with_capacity(attributes.len());
    for (i, (_, a)) in attributes.enumerate() {
        let (oid, wanted) = (word(&mut rest)?, a.ty.ty.oid());
        if oid != wanted {
            let what = format!(
                "binary data has type {oid} instead of expected {wanted} in record column {}",
                i + 1
            );
            return Err(Error::new(SqlState::DATATYPE_MISMATCH, what));
        }
        let len = word(&mut rest)?;
        if len == u32::MAX {
            values.push(Value::Null);
            continue;
        }
        let (field, behind) = rest.split_at_checked(len as usize).ok_or_else(bad)?;
        rest = behind;
        let v = binary::decode(field, a.ty.ty)?;
        values.push(super::cast::modify(v, a.ty, false)?);
    }
    if !rest.is_empty() {
        let what = "improper binary format in record";
        return Err(Error::new(SqlState::INVALID_BINARY_REPRESENTATION, what));
    }
    Ok(row(ty, values.into_iter()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::user_type::{Attribute, intern_composite};
    use base::{ColumnType, Type};

    fn pair() -> UserType {
        let part = |name: &str, ty, dropped| Attribute {
            name: name.into(),
            ty: ColumnType::plain(ty),
            dropped,
        };
        let gone = part("gone", Type::Bytea, true);
        let parts = [
            part("a", Type::Int4, false),
            gone,
            part("b", Type::Text, false),
        ];
        intern_composite(90101, 90102, "pair", &parts)
    }

    #[test]
    fn values_are_read_as_they_are_written() {
        let (ty, set) = (pair(), OutputSettings::default());
        for (given, shown) in [
            ("(1,x)", "(1,x)"),
            (" (1,) ", "(1,)"),
            ("(,\"\")", "(,\"\")"),
            ("(7,\"a \"\"b\"\" \\\\ c\")", "(7,\"a \"\"b\"\" \\\\ c\")"),
            ("(7,a\\,b)", "(7,\"a,b\")"),
        ] {
            let v = read(given, ty, &set).unwrap();
            assert_eq!(text::to_string(&v, Type::User(ty), &set), shown);
            let (mut wire, mut stored) = (vec![], vec![]);
            binary::encode(&v, Type::User(ty), &mut wire);
            let back = decode(&wire, ty).unwrap();
            assert_eq!(text::to_string(&back, Type::User(ty), &set), shown);
            base::row::encode_value(Type::User(ty), &v, &mut stored);
            let back = base::row::decode_value(Type::User(ty), &stored).unwrap();
            assert_eq!(text::to_string(&back, Type::User(ty), &set), shown);
            for n in 0..stored.len() {
                assert!(base::row::decode_value(Type::User(ty), &stored[..n]).is_none());
            }
        }
        // A value that a newer version of the type has written.
        let newer = Attribute {
            name: "c".into(),
            ty: ColumnType::plain(Type::Int8),
            dropped: false,
        };
        let parts = [ty.attributes.unwrap(), &[newer]].concat();
        let more = intern_composite(90101, 90102, "pair", &parts);
        let (mut stored, v) = (vec![], read("(7,x,8)", more, &set).unwrap());
        base::row::encode_value(Type::User(more), &v, &mut stored);
        let back = base::row::decode_value(Type::User(ty), &stored).unwrap();
        assert_eq!(text::to_string(&back, Type::User(ty), &set), "(7,x)");
        for bad in ["1,x", "(1)", "(1,2,3)", "(1,x", "(1,x)y", "(x,y)", ""] {
            assert!(read(bad, ty, &set).is_err(), "{bad}");
        }
    }
}
