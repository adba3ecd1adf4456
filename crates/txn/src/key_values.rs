//! Values of keys that reference and are referenced: whether two are the same, the bytes of a key, the record that has it.
//!
//! Left out on purpose: locks and the transaction's own writes.

use base::schema::ForeignKey;
use base::{Error, KeyRange, Position, Result, Value};
use store::{Guard, Record};

use crate::handle::TableHandle;
use crate::settle::settle_below;

/// The values of some columns, or none if one is NULL (MATCH SIMPLE: such a row references nothing).
pub(crate) fn values_of(row: &[Value], columns: &[u16]) -> Option<Vec<Value>> {
    columns
        .iter()
        .map(|c| Some(row[*c as usize].clone()).filter(|v| !v.is_null()))
        .collect()
}

/// The bytes of a key's values, of which none is NULL: equal for what [`same`] takes for equal.
pub(crate) fn group_of<'v>(values: impl IntoIterator<Item = &'v Value>) -> Vec<u8> {
    let mut key = Vec::new();
    for v in values {
        match v.as_i64() {
            Some(i) => base::key::encode_value(&Value::Int8(i), &mut key),
            None => base::key::encode_value(v, &mut key),
        }
    }
    key
}

/// Equality of two column values by their key bytes.
pub(crate) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Null, Value::Null) => true,
        (Value::Null, _) | (_, Value::Null) => false,
        (Value::Int4(x), Value::Int4(y)) => x == y,
        (Value::Int8(x), Value::Int8(y)) => x == y,
        // A foreign key may join integers of different widths.
        (Value::Int2(_) | Value::Int4(_) | Value::Int8(_), _) if b.as_i64().is_some() => {
            a.as_i64() == b.as_i64()
        }
        _ => {
            let (mut x, mut y) = (Vec::new(), Vec::new());
            base::key::encode_value(a, &mut x);
            base::key::encode_value(b, &mut y);
            x == y
        }
    }
}

/// The key of the referenced row in the referenced index (a whole primary key, or the columns of a unique index), and the index.
pub(crate) fn parent_key(
    parent: &TableHandle,
    fk: &ForeignKey,
    values: &[Value],
) -> Result<(Vec<u8>, usize)> {
    let indexes = &parent.table.def.indexes;
    let place = indexes.iter().position(|i| i.id == fk.ref_index);
    let place =
        place.ok_or_else(|| Error::internal("a foreign key references an index that is gone"))?;
    let mut key = Vec::new();
    for (c, k) in indexes[place].columns.iter().zip(&parent.table.keys[place]) {
        let at = fk.ref_columns.iter().position(|r| *r == c.column);
        let at = at.ok_or_else(|| Error::internal("a foreign key does not cover its index"))?;
        // The referencing column may be narrower or wider than the referenced one; keys are made of the latter's type.
        k.encode(&widen(&values[at], k.ty), &mut key);
    }
    Ok((key, place))
}

pub(crate) fn widen(v: &Value, ty: base::Type) -> Value {
    use base::Type;
    match (v.as_i64(), ty) {
        (Some(x), Type::Int8) => Value::Int8(x),
        (Some(x), Type::Int4) => i32::try_from(x).map_or_else(|_| v.clone(), Value::Int4),
        (Some(x), Type::Int2) => i16::try_from(x).map_or_else(|_| v.clone(), Value::Int2),
        _ => v.clone(),
    }
}

/// The live row with this key of a unique index in the newest state below `me`.
pub(crate) fn newest_with_key<'g>(
    table: &'g TableHandle,
    key: &[u8],
    place: usize,
    me: Position,
    guard: &'g Guard,
) -> Option<&'g Record> {
    let Some(index) = table.indexes[place].as_deref() else {
        let r = table.storage.primary.get(key, guard)?;
        settle_below(r, me);
        return r.row_at(me.prev(), guard).map(|_| r);
    };
    let mut found = None;
    let range = KeyRange::prefix(key);
    crate::range::each_in_range(table, Some(index), &range, guard, &mut |r, entry| {
        settle_below(r, me);
        if let (Some(row), Some(e)) = (r.row_at(me.prev(), guard), entry)
            && index.matches(e, row, &mut Vec::new())
        {
            found = Some(r);
        }
        found.is_none()
    });
    found
}

/// An index whose first columns are these, in any order. One that names a column twice lacks another.
pub(crate) fn prefix_index(table: &TableHandle, columns: &[u16]) -> Option<usize> {
    table.table.def.indexes.iter().position(|i| {
        let Some(first) = i.columns.get(..columns.len()) else {
            return false;
        };
        first.iter().all(|c| columns.contains(&c.column))
            && columns.iter().all(|c| first.iter().any(|k| k.column == *c))
    })
}

pub(crate) fn ordered(
    table: &TableHandle,
    place: usize,
    fk: &ForeignKey,
    values: &[Value],
) -> Vec<Value> {
    let index = &table.table.def.indexes[place];
    let of = |c: u16| fk.columns.iter().position(|x| *x == c);
    let columns = index
        .columns
        .iter()
        .map_while(|c| Some((of(c.column)?, c.column)));
    columns
        .map(|(i, c)| widen(&values[i], table.table.def.columns[c as usize].ty().ty))
        .collect()
}

pub(crate) fn names(table: &TableHandle, columns: &[u16]) -> String {
    let names: Vec<&str> = columns
        .iter()
        .map(|c| table.table.def.columns[*c as usize].name.as_str())
        .collect();
    names.join(", ")
}

pub(crate) fn values_text(values: &[Value]) -> String {
    let texts: Vec<String> = values.iter().map(crate::handle::plain).collect();
    texts.join(", ")
}

pub(crate) fn key_text(child: &TableHandle, fk: &ForeignKey, values: &[Value]) -> String {
    format!("({})=({})", names(child, &fk.columns), values_text(values))
}
