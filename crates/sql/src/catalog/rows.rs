//! Short names for the values that catalog rows are made of.

use base::schema::{Acl, Schema, privilege};
use base::{Array, Oid, Type, Value};

pub(super) fn oid(o: Oid) -> Value {
    Value::Oid(o)
}

pub(super) fn text(s: impl AsRef<str>) -> Value {
    Value::text(s.as_ref())
}

pub(super) fn maybe(s: Option<impl AsRef<str>>) -> Value {
    s.map_or(Value::Null, text)
}

pub(super) fn char(c: u8) -> Value {
    Value::Char(c)
}

pub(super) fn yes_no(b: bool) -> Value {
    text(if b { "YES" } else { "NO" })
}

pub(super) fn time(t: Option<i64>) -> Value {
    t.map_or(Value::Null, Value::TimestampTz)
}

pub(super) fn array(element: Type, items: Vec<Value>) -> Value {
    Value::Array(Box::new(Array::one_dim(element, items)))
}

/// `int2vector` or `oidvector`: counts from 0.
pub(super) fn vector(element: Type, items: Vec<Value>) -> Value {
    Value::Array(Box::new(Array {
        element,
        dims: vec![(items.len() as i32, 0)],
        items,
    }))
}

pub(super) fn int2s(items: impl IntoIterator<Item = i16>) -> Value {
    array(Type::Int2, items.into_iter().map(Value::Int2).collect())
}

/// A role's name for an ACL or a view of owners.
pub(super) fn role_name(schema: &Schema, role: Oid) -> String {
    match schema.role(role) {
        Some(r) => r.name.clone(),
        None => format!("unknown (OID={role})"),
    }
}

/// An ACL as `{canon=arwdDxt/canon,=r/canon}`; NULL when nobody has changed it.
pub(super) fn acl(schema: &Schema, owner: Oid, acl: &Acl) -> Value {
    if acl.is_empty() {
        return Value::Null;
    }
    let item = |&(to, bits): &(Oid, u32)| {
        let to = if to == 0 {
            String::new()
        } else {
            acl_name(schema, to)
        };
        text(format!(
            "{to}={}/{}",
            letters(bits),
            acl_name(schema, owner)
        ))
    };
    array(Type::AclItem, acl.iter().map(item).collect())
}

fn acl_name(schema: &Schema, role: Oid) -> String {
    let name = role_name(schema, role);
    let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if plain {
        name
    } else {
        format!("\"{}\"", name.replace('"', "\"\""))
    }
}

/// The letters that PostgreSQL writes for privileges, in its order.
fn letters(bits: u32) -> String {
    const LETTERS: [(u32, char); 10] = [
        (privilege::INSERT, 'a'),
        (privilege::SELECT, 'r'),
        (privilege::UPDATE, 'w'),
        (privilege::DELETE, 'd'),
        (privilege::TRUNCATE, 'D'),
        (privilege::REFERENCES, 'x'),
        (privilege::TRIGGER, 't'),
        (privilege::EXECUTE, 'X'),
        (privilege::USAGE, 'U'),
        (privilege::CREATE, 'C'),
    ];
    LETTERS
        .iter()
        .filter(|(b, _)| bits & b != 0)
        .map(|(_, c)| c)
        .collect()
}
