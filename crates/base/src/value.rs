//! A value of SQL: what expressions compute with and what a row decodes to.
//!
//! Dates count days, times and timestamps microseconds, both from 2000-01-01 as on PostgreSQL's wire;
//! `i32::MIN/MAX` and `i64::MIN/MAX` are -infinity and infinity. The text-like types (text, varchar, bpchar, name)
//! share one variant, as do the oid-like ones; the static type says which it is. `bpchar` is stored without its
//! trailing blanks and padded when it is printed. `jsonb` holds its canonical text (keys sorted as PostgreSQL sorts
//! them, duplicates gone, PostgreSQL's spacing), so that equality is equality of bytes.
//!
//! A value takes 24 bytes; short strings (to 24 bytes) allocate nothing.

use crate::numeric::Numeric;
use crate::packed::{Packed, PackedValue};
use crate::types::Type;
use crate::user_type::UserType;
use compact_str::CompactString;

/// One value, NULL included.
#[derive(Clone, Debug, Default)]
pub enum Value {
    #[default]
    Null,
    Bool(bool),
    Int2(i16),
    Int4(i32),
    Int8(i64),
    Float4(f32),
    Float8(f64),
    Numeric(Box<Numeric>),
    /// text, varchar, bpchar (blanks trimmed), name, unknown literals, pg_node_tree, aclitem.
    Text(CompactString),
    /// PostgreSQL's `"char"`.
    Char(u8),
    Bytea(Box<[u8]>),
    Uuid(Box<[u8; 16]>),
    /// Days since 2000-01-01.
    Date(i32),
    /// Microseconds since midnight.
    Time(i64),
    /// Microseconds since 2000-01-01 00:00.
    Timestamp(i64),
    /// Microseconds since 2000-01-01 00:00 UTC.
    TimestampTz(i64),
    Interval(Box<Interval>),
    /// `json` keeps the text as given, `jsonb` the canonical text.
    Json(Box<str>),
    /// oid, regclass, regtype, regproc, regnamespace.
    Oid(u32),
    /// An array, int2vector or oidvector.
    Array(Box<Array>),
    /// The rank of an enum's label.
    Enum(UserType, u64),
    /// A bit string, an address, a time with a zone: the form that [`crate::packed`] describes.
    Packed(PackedValue),
    /// A value of a composite type.
    Row(Box<Row>),
}

/// PostgreSQL's interval: the three parts are kept apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Interval {
    pub months: i32,
    pub days: i32,
    pub micros: i64,
}

impl Interval {
    /// The span that comparison uses: a month is 30 days, a day 24 hours; in microseconds.
    pub fn span(&self) -> i128 {
        let days = i128::from(self.months) * 30 + i128::from(self.days);
        days * 86_400_000_000 + i128::from(self.micros)
    }
}

/// An array of one element type: dimensions with lower bounds, elements in row-major order.
#[derive(Clone, Debug)]
pub struct Array {
    pub element: Type,
    /// (length, lower bound) of each dimension; empty for the empty array.
    pub dims: Vec<(i32, i32)>,
    pub items: Vec<Value>,
}

impl Array {
    /// A one-dimensional array with lower bound 1.
    pub fn one_dim(element: Type, items: Vec<Value>) -> Array {
        let dims = if items.is_empty() {
            vec![]
        } else {
            vec![(items.len() as i32, 1)]
        };
        Array {
            element,
            dims,
            items,
        }
    }
}

/// A value of a composite type: a field for each attribute that the type has or had; NULL for those that are gone.
#[derive(Clone, Debug)]
pub struct Row {
    pub ty: UserType,
    pub fields: Vec<Value>,
}

impl Row {
    /// The fields of the attributes that are there.
    pub fn live(&self) -> impl Iterator<Item = (&'static crate::user_type::Attribute, &Value)> {
        let attributes = self.ty.attributes();
        attributes.map(|(i, a)| (a, self.fields.get(i).unwrap_or(&Value::Null)))
    }
}

impl Value {
    /// Text from a string slice.
    #[inline]
    pub fn text(s: &str) -> Value {
        Value::Text(CompactString::from(s))
    }

    /// A value of a kind that is kept as bytes, from a form of that kind.
    pub fn packed(kind: Packed, form: impl AsRef<[u8]>) -> Value {
        Value::Packed(PackedValue::new(kind, form.as_ref()))
    }

    /// The type whose values look like this one; of several that share a variant the plainest. NULL has none.
    pub fn natural_type(&self) -> Option<Type> {
        Some(match self {
            Value::Null => return None,
            Value::Bool(_) => Type::Bool,
            Value::Int2(_) => Type::Int2,
            Value::Int4(_) => Type::Int4,
            Value::Int8(_) => Type::Int8,
            Value::Float4(_) => Type::Float4,
            Value::Float8(_) => Type::Float8,
            Value::Numeric(_) => Type::Numeric,
            Value::Text(_) => Type::Text,
            Value::Char(_) => Type::Char,
            Value::Bytea(_) => Type::Bytea,
            Value::Uuid(_) => Type::Uuid,
            Value::Date(_) => Type::Date,
            Value::Time(_) => Type::Time,
            Value::Timestamp(_) => Type::Timestamp,
            Value::TimestampTz(_) => Type::TimestampTz,
            Value::Interval(_) => Type::Interval,
            Value::Json(_) => Type::Jsonb,
            Value::Oid(_) => Type::Oid,
            Value::Array(a) => a.element.array_of().unwrap_or(Type::TextArray),
            Value::Enum(ty, _) => Type::User(*ty),
            Value::Packed(p) => p.kind().ty(),
            Value::Row(r) => Type::User(r.ty),
        })
    }

    /// Whether this is NULL.
    #[inline]
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    /// The characters of a text-like value.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::Text(s) => Some(s),
            Value::Json(s) => Some(s),
            _ => None,
        }
    }

    /// Integer types and oids widened to 64 bits.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Value::Int2(v) => Some(i64::from(*v)),
            Value::Int4(v) => Some(i64::from(*v)),
            Value::Int8(v) => Some(*v),
            Value::Oid(v) => Some(i64::from(*v)),
            _ => None,
        }
    }

    /// The truth value of a condition: `Some(true)`, `Some(false)`, or `None` for NULL.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(b) => Some(*b),
            _ => None,
        }
    }
}

impl From<bool> for Value {
    fn from(v: bool) -> Self {
        Value::Bool(v)
    }
}

impl From<i16> for Value {
    fn from(v: i16) -> Self {
        Value::Int2(v)
    }
}

impl From<i32> for Value {
    fn from(v: i32) -> Self {
        Value::Int4(v)
    }
}

impl From<i64> for Value {
    fn from(v: i64) -> Self {
        Value::Int8(v)
    }
}

impl From<f64> for Value {
    fn from(v: f64) -> Self {
        Value::Float8(v)
    }
}

impl From<&str> for Value {
    fn from(v: &str) -> Self {
        Value::text(v)
    }
}

impl From<String> for Value {
    fn from(v: String) -> Self {
        Value::Text(v.into())
    }
}

impl From<Numeric> for Value {
    fn from(v: Numeric) -> Self {
        Value::Numeric(Box::new(v))
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(v: Option<T>) -> Self {
        v.map_or(Value::Null, Into::into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_three_words() {
        assert_eq!(std::mem::size_of::<Value>(), 24);
    }
}
