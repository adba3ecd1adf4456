//! Functions that drivers and tools ask of PostgreSQL's catalogs: keywords, access lists, options, what `information_schema` is made of.
//!
//! Left out on purpose: those of `information_schema` that take whole rows of a catalog (`_pg_truetypid`).

use super::jsonb::Made;
use super::registry::{Registry, names::*};
use super::{EvalContext, RowSource};
use crate::types::ops::array;
use base::modifier::numeric_modifier;
use base::{Error, Oid, Result, SqlState, Type, Value};

type Ctx<'a, 'b> = &'a mut EvalContext<'b>;
type Rows = Result<Box<dyn RowSource>>;

/// PostgreSQL 15's words, each with its class; `-` behind it: not without AS.
const KEYWORDS: &str = include_str!("keywords.txt");

fn made(rows: Vec<Vec<Value>>) -> Rows {
    Ok(Box::new(Made(rows.into_iter())))
}

fn keywords(_: &[Value], _: &[Type], _: Ctx<'_, '_>) -> Rows {
    let all: Vec<&str> = KEYWORDS.split_whitespace().collect();
    let (pairs, _) = all.as_chunks::<2>();
    let row = |[word, class]: &[&str; 2]| {
        let code = class.as_bytes()[0];
        let bare = !class.ends_with('-');
        let what = match code {
            b'U' => "unreserved",
            b'C' => "unreserved (cannot be function or type name)",
            b'T' => "reserved (can be function or type name)",
            _ => "reserved",
        };
        vec![
            Value::text(word),
            Value::Char(code),
            Value::Bool(bare),
            Value::text(what),
            Value::text(if bare {
                "can be bare label"
            } else {
                "requires AS"
            }),
        ]
    };
    made(pairs.iter().map(row).collect())
}

/// Elements of an array, and their numbers from 1.
fn expand(a: &[Value], _: &[Type], _: Ctx<'_, '_>) -> Rows {
    let items = array::of(&a[0]).items.iter().zip(1..);
    made(
        items
            .map(|(v, n)| vec![v.clone(), Value::Int4(n)])
            .collect(),
    )
}

fn options(a: &[Value], _: &[Type], _: Ctx<'_, '_>) -> Rows {
    let row = |v: &Value| {
        let text = v.as_str().unwrap_or_default();
        let (name, value) = match text.split_once('=') {
            Some((n, v)) => (n, Value::text(v)),
            None => (text, Value::Null),
        };
        vec![Value::text(name), value]
    };
    made(array::of(&a[0]).items.iter().map(row).collect())
}

const PRIVILEGES: [(char, &str); 14] = [
    ('a', "INSERT"),
    ('r', "SELECT"),
    ('w', "UPDATE"),
    ('d', "DELETE"),
    ('D', "TRUNCATE"),
    ('x', "REFERENCES"),
    ('t', "TRIGGER"),
    ('X', "EXECUTE"),
    ('U', "USAGE"),
    ('C', "CREATE"),
    ('T', "TEMPORARY"),
    ('c', "CONNECT"),
    ('s', "SET"),
    ('A', "ALTER SYSTEM"),
];

/// The parts of `grantee=privileges/grantor`.
fn parts(item: &str) -> Option<(String, &str, String)> {
    let mut quoted = false;
    let equals = item.char_indices().find_map(|(i, c)| {
        quoted ^= c == '"';
        (c == '=' && !quoted).then_some(i)
    })?;
    let (grantee, rest) = (&item[..equals], &item[equals + 1..]);
    let (privileges, grantor) = rest.split_once('/')?;
    let plain = |n: &str| n.trim_matches('"').replace("\"\"", "\"");
    Some((plain(grantee), privileges, plain(grantor)))
}

fn explode(a: &[Value], _: &[Type], c: Ctx<'_, '_>) -> Rows {
    let mut rows = vec![];
    for item in &array::of(&a[0]).items {
        let text = item.as_str().unwrap_or_default();
        let bad = || {
            Error::new(
                SqlState::INVALID_TEXT_REPRESENTATION,
                format!("invalid access list: \"{text}\""),
            )
        };
        let (grantee, privileges, grantor) = parts(text).ok_or_else(bad)?;
        let role = |name: &str| match name {
            "" => Ok(Value::Oid(0)),
            name => {
                let name = [Value::text(name)];
                c.session
                    .catalog_function("role number", &[Type::Text], &name)
            }
        };
        let (grantor, grantee) = (role(&grantor)?, role(&grantee)?);
        for (letter, name) in PRIVILEGES {
            if let Some(at) = privileges.find(letter) {
                let option = privileges[at + 1..].starts_with('*');
                rows.push(vec![
                    grantor.clone(),
                    grantee.clone(),
                    Value::text(name),
                    Value::Bool(option),
                ]);
            }
        }
    }
    made(rows)
}

fn type_of(v: &Value) -> Option<Type> {
    Type::from_oid(v.as_i64()? as Oid)
}

fn modifier(v: &Value) -> Option<i32> {
    v.as_i64().map(|n| n as i32).filter(|n| *n != -1)
}

fn int(n: Option<i32>) -> Result<Value> {
    Ok(n.map_or(Value::Null, Value::Int4))
}

fn char_length(a: &[Value]) -> Option<i32> {
    match type_of(&a[0])? {
        Type::Varchar | Type::Bpchar => Some(modifier(&a[1])? - 4),
        _ => None,
    }
}

/// (bits or digits, radix, scale) of a number.
fn number(a: &[Value]) -> (Option<i32>, Option<i32>, Option<i32>) {
    let Some(ty) = type_of(&a[0]) else {
        return (None, None, None);
    };
    match ty {
        Type::Int2 => (Some(16), Some(2), Some(0)),
        Type::Int4 => (Some(32), Some(2), Some(0)),
        Type::Int8 => (Some(64), Some(2), Some(0)),
        Type::Float4 => (Some(24), Some(2), None),
        Type::Float8 => (Some(53), Some(2), None),
        Type::Numeric => {
            let digits = modifier(&a[1]).and_then(numeric_modifier);
            (digits.map(|d| d.0), Some(10), digits.map(|d| d.1))
        }
        _ => (None, None, None),
    }
}

fn fraction(a: &[Value]) -> Option<i32> {
    match type_of(&a[0])? {
        Type::Date => Some(0),
        Type::Time | Type::TimeTz | Type::Timestamp | Type::TimestampTz => {
            Some(modifier(&a[1]).unwrap_or(6))
        }
        Type::Interval => Some(match modifier(&a[1]) {
            Some(n) if n & 0xffff != 0xffff => n & 0xffff,
            _ => 6,
        }),
        _ => None,
    }
}

/// What `information_schema` says of a column's type.
fn facts_of_types(r: &mut Registry) {
    let of_type = &[OID, INT4];
    r.f("_pg_char_max_length", of_type, INT4, IMM, |a, _| {
        int(char_length(a))
    });
    r.f("_pg_char_octet_length", of_type, INT4, IMM, |a, _| {
        int(match type_of(&a[0]) {
            Some(Type::Text) => Some(1 << 30),
            Some(Type::Varchar | Type::Bpchar) => {
                Some(char_length(a).map_or(1 << 30, |n| n.saturating_mul(4)))
            }
            _ => None,
        })
    });
    r.f("_pg_numeric_precision", of_type, INT4, IMM, |a, _| {
        int(number(a).0)
    });
    r.f("_pg_numeric_precision_radix", of_type, INT4, IMM, |a, _| {
        int(number(a).1)
    });
    r.f("_pg_numeric_scale", of_type, INT4, IMM, |a, _| {
        int(number(a).2)
    });
    r.f("_pg_datetime_precision", of_type, INT4, IMM, |a, _| {
        int(fraction(a))
    });
    r.f("_pg_interval_type", of_type, TEXT, IMM, |_, _| {
        Ok(Value::Null)
    });
}

/// Adds them all.
pub(super) fn register(r: &mut Registry) {
    const WORDS: &[(&str, Type)] = &[
        ("word", Type::Text),
        ("catcode", Type::Char),
        ("barelabel", Type::Bool),
        ("catdesc", Type::Text),
        ("baredesc", Type::Text),
    ];
    r.records("pg_get_keywords", &[], WORDS, STA, keywords);
    const INT2S: &[(&str, Type)] = &[("x", Type::Int2), ("n", Type::Int4)];
    const INT4S: &[(&str, Type)] = &[("x", Type::Int4), ("n", Type::Int4)];
    const OIDS: &[(&str, Type)] = &[("x", Type::Oid), ("n", Type::Int4)];
    const TEXTS: &[(&str, Type)] = &[("x", Type::Text), ("n", Type::Int4)];
    for (sig, columns) in [
        (INT2VECTOR, INT2S),
        (INT2ARRAY, INT2S),
        (INT4ARRAY, INT4S),
        (OIDVECTOR, OIDS),
        (OIDARRAY, OIDS),
        (TEXTARRAY, TEXTS),
    ] {
        r.records("_pg_expandarray", &[sig], columns, IMM, expand);
    }
    const OPTIONS: &[(&str, Type)] = &[("option_name", Type::Text), ("option_value", Type::Text)];
    r.records("pg_options_to_table", &[TEXTARRAY], OPTIONS, STA, options);
    const GRANTS: &[(&str, Type)] = &[
        ("grantor", Type::Oid),
        ("grantee", Type::Oid),
        ("privilege_type", Type::Text),
        ("is_grantable", Type::Bool),
    ];
    r.records("aclexplode", &[ACLITEMARRAY], GRANTS, STA, explode);
    const TREE: &[(&str, Type)] = &[
        ("relid", Type::RegClass),
        ("parentrelid", Type::RegClass),
        ("isleaf", Type::Bool),
        ("level", Type::Int4),
    ];
    // Nothing is partitioned.
    r.records("pg_partition_tree", &[REGCLASS], TREE, STA, |_, _, _| {
        made(vec![])
    });
    r.f("pg_partition_root", &[REGCLASS], REGCLASS, IMM, |_, _| {
        Ok(Value::Null)
    });
    // Numbers of transactions do not run out, so none grows old.
    for n in ["age", "mxid_age"] {
        r.f(n, &[OID], INT4, STA, |_, _| Ok(Value::Int4(0)));
    }
    r.f("nameconcatoid", &[NAME, OID], NAME, IMM, |a, _| {
        let number = format!("_{}", a[1].as_i64().unwrap_or(0));
        let name = a[0].as_str().unwrap_or_default();
        let room = crate::catalog::MAX_NAME - number.len();
        let mut cut = room.min(name.len());
        while !name.is_char_boundary(cut) {
            cut -= 1;
        }
        Ok(Value::from(format!("{}{number}", &name[..cut])))
    });
    r.f("record field", &[RECORD, INT4], TEXT, IMM, |a, _| {
        let at = a[1].as_i64().unwrap_or(0) as usize;
        let text = a[0].as_str().unwrap_or_default();
        Ok(fields(text)
            .into_iter()
            .nth(at)
            .flatten()
            .map_or(Value::Null, Value::from))
    });
    // `name[0]` is its first byte.
    r.f("name byte", &[NAME, INT4], CHAR, IMM, |a, _| {
        let at = a[1].as_i64().and_then(|n| usize::try_from(n).ok());
        let name = a[0].as_str().unwrap_or_default().as_bytes();
        let room = at.filter(|n| *n < 64);
        Ok(room.map_or(Value::Null, |n| {
            Value::Char(name.get(n).copied().unwrap_or(0))
        }))
    });
    facts_of_types(r);
}

/// The fields of a record's text.
fn fields(text: &str) -> Vec<Option<String>> {
    let inner = text.strip_prefix('(').and_then(|t| t.strip_suffix(')'));
    let (mut all, mut field, mut some, mut quoted) = (vec![], String::new(), false, false);
    let mut chars = inner.unwrap_or_default().chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => field.extend(chars.next()),
            '\\' => field.extend(chars.next()),
            '"' => (quoted, some) = (!quoted, true),
            ',' if !quoted => {
                let value = std::mem::take(&mut field);
                all.push((some || !value.is_empty()).then_some(value));
                some = false;
            }
            c => field.push(c),
        }
    }
    all.push((some || !field.is_empty()).then_some(field));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_taken_apart() {
        let some = |s: &str| Some(s.to_owned());
        let all = fields(r#"(1,,"a ""b"" \\, (c)","",x)"#);
        assert_eq!(
            all,
            [
                some("1"),
                None,
                some(r#"a "b" \, (c)"#),
                some(""),
                some("x")
            ]
        );
    }

    #[test]
    fn every_word_has_a_class() {
        let all: Vec<&str> = KEYWORDS.split_whitespace().collect();
        assert_eq!(all.len(), 2 * 460);
        assert!(
            all.as_chunks::<2>()
                .0
                .iter()
                .all(|[_, c]| "UCTR".contains(&c[..1]))
        );
    }
}
