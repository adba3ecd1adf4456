//! The one row format of log, store and replica.
//!
//! ```text
//! | version u16 | columns u16, top bit: wide | null bits, 1 = NULL | fixed part | ends of varying values | varying values |
//! ```
//! All integers little-endian. `version` is the table's row version that wrote the row, `columns` how many columns it had then;
//! a column added later is absent and reads as its *missing value*. Fixed-width columns stand at offsets that depend
//! only on the columns before them, NULL or not, so that any column is found without looking at another. Varying values
//! follow one another; the table holds where each ends (u16, or u32 in a wide row, counted from the first value).
//! A NULL takes its fixed bytes (zero) or an empty varying value.
//!
//! Left out on purpose: alignment, compression, out-of-line values.

use crate::error::{Error, Result, SqlState};
use crate::numeric::Numeric;
use crate::packed::Packed;
use crate::types::Type;
use crate::user_type::UserType;
use crate::value::{Array, Interval, Row, Value};
use bigdecimal::BigDecimal;
use num_bigint::BigInt;
use std::sync::Arc;

const HEADER: usize = 4;
const WIDE: u16 = 0x8000;

/// Most columns of a table, as in PostgreSQL.
pub const MAX_COLUMNS: usize = 1600;
/// Most bytes of an encoded row.
pub const MAX_ROW_BYTES: usize = 64 << 20;

#[derive(Clone, Copy, Debug)]
enum Place {
    /// Offset in the fixed part.
    Fixed(u32),
    /// Index in the table of ends.
    Varying(u16),
}

/// Where each column of a table stands in its rows; computed once per schema version.
#[derive(Clone, Debug)]
pub struct RowLayout {
    types: Arc<[Type]>,
    places: Arc<[Place]>,
    /// Bytes of the fixed part when a row has the first n columns.
    fixed_len: Arc<[u32]>,
    /// Varying columns among the first n.
    varying: Arc<[u16]>,
    /// What rows written before a column existed hold in it; NULL for columns past its end.
    missing: Arc<[Value]>,
}

impl RowLayout {
    /// The layout of these columns, dropped ones included.
    pub fn new(types: impl IntoIterator<Item = Type>) -> RowLayout {
        let types: Arc<[Type]> = types.into_iter().collect();
        assert!(
            types.len() <= MAX_COLUMNS,
            "{} columns exceed the limit",
            types.len()
        );
        let (mut fixed, mut var) = (0u32, 0u16);
        let mut places = Vec::with_capacity(types.len());
        let (mut fixed_len, mut varying) = (vec![0], vec![0]);
        for t in types.iter() {
            match t.fixed_width() {
                Some(w) => {
                    places.push(Place::Fixed(fixed));
                    fixed += w as u32;
                }
                None => {
                    places.push(Place::Varying(var));
                    var += 1;
                }
            }
            fixed_len.push(fixed);
            varying.push(var);
        }
        RowLayout {
            types,
            places: places.into(),
            fixed_len: fixed_len.into(),
            varying: varying.into(),
            missing: Arc::new([]),
        }
    }

    /// The same layout with the values that columns added later have in older rows.
    pub fn with_missing(mut self, missing: Vec<Value>) -> RowLayout {
        self.missing = missing.into();
        self
    }

    /// Number of columns.
    pub fn len(&self) -> usize {
        self.types.len()
    }

    /// Whether there is no column.
    pub fn is_empty(&self) -> bool {
        self.types.is_empty()
    }

    /// The type of column `i`.
    pub fn column_type(&self, i: usize) -> Type {
        self.types[i]
    }

    /// Appends the row of these values, one per column and of the column's type, to `out`.
    pub fn encode(&self, version: u16, values: &[Value], out: &mut Vec<u8>) -> Result<()> {
        assert_eq!(values.len(), self.len(), "a row has a value per column");
        let n = values.len();
        let start = out.len();
        out.extend_from_slice(&version.to_le_bytes());
        out.extend_from_slice(&(n as u16).to_le_bytes());
        let nulls = out.len();
        let fixed = nulls + n.div_ceil(8);
        let ends = fixed + self.fixed_len[n] as usize;
        let vars = self.varying[n] as usize;
        out.resize(ends + 2 * vars, 0);
        let data = out.len();
        let mut wide: Vec<u32> = Vec::new();
        for (i, v) in values.iter().enumerate() {
            if v.is_null() {
                out[nulls + i / 8] |= 1 << (i % 8);
            }
            match self.places[i] {
                Place::Fixed(o) => put_fixed(&mut out[fixed + o as usize..], v, self.types[i]),
                Place::Varying(k) => {
                    put_varying(out, v);
                    let end = out.len() - data;
                    match u16::try_from(end) {
                        Ok(e) if wide.is_empty() => {
                            let at = ends + 2 * k as usize;
                            out[at..at + 2].copy_from_slice(&e.to_le_bytes());
                        }
                        _ => {
                            if wide.is_empty() {
                                wide = (0..k as usize)
                                    .map(|j| u32::from(u16_at(out, ends + 2 * j)))
                                    .collect();
                            }
                            wide.push(end as u32);
                        }
                    }
                }
            }
        }
        if !wide.is_empty() {
            let table: Vec<u8> = wide.iter().flat_map(|e| e.to_le_bytes()).collect();
            out.splice(ends..data, table);
            let cols = n as u16 | WIDE;
            out[start + 2..start + 4].copy_from_slice(&cols.to_le_bytes());
        }
        if out.len() - start > MAX_ROW_BYTES {
            out.truncate(start);
            return Err(Error::new(
                SqlState::PROGRAM_LIMIT_EXCEEDED,
                format!("row is too big: the limit is {MAX_ROW_BYTES} bytes"),
            ));
        }
        Ok(())
    }

    /// The bytes of `old` with some columns (of the column's type) set, appended to `out`; false, and nothing appended, when that cannot be
    /// done in place: the row was written under another version, or a varying value changes its length.
    pub fn patch(
        &self,
        version: u16,
        old: RowRef<'_>,
        set: &[(usize, Value)],
        out: &mut Vec<u8>,
    ) -> bool {
        if old.version() != version || old.columns() != self.len() {
            return false;
        }
        let start = out.len();
        out.extend_from_slice(old.bytes);
        for (i, v) in set {
            let (i, bytes) = (*i, &mut out[start..]);
            let null = &mut bytes[HEADER + i / 8];
            let was_null = *null & (1 << (i % 8)) != 0;
            *null = *null & !(1 << (i % 8)) | u8::from(v.is_null()) << (i % 8);
            let at = old.raw(i).as_ptr() as usize - old.bytes.as_ptr() as usize;
            match (self.places[i], self.types[i].fixed_width()) {
                (Place::Fixed(_), Some(width)) => {
                    let to = &mut bytes[at..at + width];
                    to.fill(0);
                    put_fixed(to, v, self.types[i]);
                }
                _ => {
                    let len = old.raw(i).len();
                    let text = match v {
                        Value::Text(s) if !was_null => Some(s.as_bytes()),
                        Value::Null => Some(&[][..]),
                        _ => None,
                    };
                    let Some(text) = text.filter(|t| t.len() == len) else {
                        out.truncate(start);
                        return false;
                    };
                    bytes[at..at + len].copy_from_slice(text);
                }
            }
        }
        true
    }

    /// Whether an encoded row has no columns that came to the table after this layout.
    #[inline]
    pub fn knows(&self, bytes: &[u8]) -> bool {
        (u16_at(bytes, 2) & !WIDE) as usize <= self.len()
    }

    /// A view of an encoded row. The bytes must have been made by [`RowLayout::encode`] of this table (any version). Of one that this
    /// layout does not know, nothing is seen: all columns are missing. Who may meet such a row asks [`RowLayout::knows`].
    #[inline]
    pub fn row<'a>(&'a self, bytes: &'a [u8]) -> RowRef<'a> {
        let head = u16_at(bytes, 2);
        let columns = head & !WIDE;
        let (columns, fixed_len) = match self.fixed_len.get(columns as usize) {
            Some(len) => (columns, *len),
            None => (0, 0),
        };
        let fixed = (HEADER + (columns as usize).div_ceil(8)) as u32;
        RowRef {
            layout: self,
            bytes,
            columns,
            end_width: if head & WIDE == 0 { 2 } else { 4 },
            fixed,
            ends: fixed + fixed_len,
        }
    }

    /// Checks that bytes of unknown origin are a row that this layout can read.
    pub fn check(&self, bytes: &[u8]) -> bool {
        if bytes.len() < HEADER || (u16_at(bytes, 2) & !WIDE) as usize > self.len() {
            return false;
        }
        let r = self.row(bytes);
        let (n, w) = (r.columns(), r.end_width());
        let vars = self.varying[n] as usize;
        let data = r.ends_at() + vars * w;
        if bytes.len() < data {
            return false;
        }
        let mut last = 0;
        for k in 0..vars {
            let e = r.end(k);
            if e < last || data + e > bytes.len() {
                return false;
            }
            last = e;
        }
        data + last == bytes.len() && (0..n).all(|i| r.stored(i).is_some())
    }
}

/// A row's bytes with the layout to read them.
#[derive(Clone, Copy)]
pub struct RowRef<'a> {
    layout: &'a RowLayout,
    bytes: &'a [u8],
    /// How many columns the row has.
    columns: u16,
    /// Bytes of an entry in the table of ends.
    end_width: u8,
    /// Where the fixed part begins.
    fixed: u32,
    /// Where the table of ends begins.
    ends: u32,
}

impl<'a> RowRef<'a> {
    /// The row version that wrote the row.
    #[inline]
    pub fn version(&self) -> u16 {
        u16_at(self.bytes, 0)
    }

    /// How many columns the row has; later ones are missing.
    #[inline]
    pub fn columns(&self) -> usize {
        self.columns as usize
    }

    /// The encoded bytes.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    #[inline]
    fn end_width(&self) -> usize {
        self.end_width as usize
    }

    #[inline]
    fn ends_at(&self) -> usize {
        self.ends as usize
    }

    #[inline]
    fn end(&self, k: usize) -> usize {
        match self.end_width() {
            2 => u16_at(self.bytes, self.ends_at() + 2 * k) as usize,
            _ => u32_at(self.bytes, self.ends_at() + 4 * k) as usize,
        }
    }

    /// Whether the row was written before column `i` existed.
    #[inline]
    pub fn is_missing(&self, i: usize) -> bool {
        i >= self.columns()
    }

    /// Whether column `i`, which the row has, is NULL.
    #[inline]
    pub fn is_null(&self, i: usize) -> bool {
        self.bytes[HEADER + i / 8] & (1 << (i % 8)) != 0
    }

    /// The encoded bytes of column `i`, which the row has and which is not NULL: little-endian for fixed
    /// types, characters for text.
    #[inline]
    pub fn raw(&self, i: usize) -> &'a [u8] {
        match self.layout.places[i] {
            Place::Fixed(o) => {
                let at = (self.fixed + o) as usize;
                let w = self.layout.types[i].fixed_width().expect("fixed");
                &self.bytes[at..at + w]
            }
            Place::Varying(k) => {
                let k = k as usize;
                let vars = self.layout.varying[self.columns()] as usize;
                let data = self.ends_at() + vars * self.end_width();
                let from = if k == 0 { 0 } else { self.end(k - 1) };
                &self.bytes[data + from..data + self.end(k)]
            }
        }
    }

    /// Column `i`: its missing value when the row is older than the column.
    #[inline]
    pub fn get(&self, i: usize) -> Value {
        if self.is_missing(i) {
            return self.layout.missing.get(i).cloned().unwrap_or_default();
        }
        self.stored(i).expect("a stored row is well formed")
    }

    /// Every column, in order.
    pub fn values(&self) -> Vec<Value> {
        (0..self.layout.len()).map(|i| self.get(i)).collect()
    }

    /// Column `i`, which the row has. None: its bytes are no value of the column's type.
    #[inline]
    fn stored(&self, i: usize) -> Option<Value> {
        if self.is_null(i) {
            return Some(Value::Null);
        }
        decode_value(self.layout.types[i], self.raw(i))
    }
}

#[inline]
fn u16_at(b: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([b[at], b[at + 1]])
}

#[inline]
fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(b[at..at + 4].try_into().expect("4 bytes"))
}

fn put_fixed(to: &mut [u8], v: &Value, ty: Type) {
    match v {
        Value::Null => {}
        Value::Bool(b) => to[0] = u8::from(*b),
        Value::Char(c) => to[0] = *c,
        Value::Int2(x) => to[..2].copy_from_slice(&x.to_le_bytes()),
        Value::Int4(x) | Value::Date(x) => to[..4].copy_from_slice(&x.to_le_bytes()),
        Value::Oid(x) => to[..4].copy_from_slice(&x.to_le_bytes()),
        Value::Enum(_, rank) => to[..8].copy_from_slice(&rank.to_le_bytes()),
        Value::Float4(x) => to[..4].copy_from_slice(&x.to_le_bytes()),
        Value::Int8(x) | Value::Time(x) | Value::Timestamp(x) | Value::TimestampTz(x) => {
            to[..8].copy_from_slice(&x.to_le_bytes());
        }
        Value::Float8(x) => to[..8].copy_from_slice(&x.to_le_bytes()),
        Value::Uuid(x) => to[..16].copy_from_slice(&x[..]),
        Value::Interval(x) => {
            to[..8].copy_from_slice(&x.micros.to_le_bytes());
            to[8..12].copy_from_slice(&x.days.to_le_bytes());
            to[12..16].copy_from_slice(&x.months.to_le_bytes());
        }
        Value::Packed(p) => to[..p.form().len()].copy_from_slice(p.form()),
        _ => panic!("{v:?} is not of the fixed type {ty:?}"),
    }
}

fn put_varying(out: &mut Vec<u8>, v: &Value) {
    match v {
        Value::Null => {}
        Value::Text(s) => out.extend_from_slice(s.as_bytes()),
        Value::Json(s) => out.extend_from_slice(s.as_bytes()),
        Value::Bytea(b) => out.extend_from_slice(b),
        Value::Numeric(n) => put_numeric(out, n),
        Value::Array(a) => put_array(out, a),
        Value::Packed(p) => out.extend_from_slice(p.form()),
        Value::Row(r) => put_fields(out, r),
        _ => panic!("{v:?} is not of a varying type"),
    }
}

fn put_numeric(out: &mut Vec<u8>, n: &Numeric) {
    match n {
        Numeric::NegInfinity => out.push(0),
        Numeric::Infinity => out.push(2),
        Numeric::NaN => out.push(3),
        Numeric::Finite(d) => {
            let (digits, scale) = d.as_bigint_and_exponent();
            out.push(1);
            out.extend_from_slice(&(scale as i32).to_le_bytes());
            out.extend_from_slice(&digits.to_signed_bytes_le());
        }
    }
}

fn put_array(out: &mut Vec<u8>, a: &Array) {
    out.extend_from_slice(&a.element.oid().to_le_bytes());
    out.push(a.dims.len() as u8);
    for (len, lower) in &a.dims {
        out.extend_from_slice(&len.to_le_bytes());
        out.extend_from_slice(&lower.to_le_bytes());
    }
    for v in &a.items {
        let at = out.len();
        out.extend_from_slice(&u32::MAX.to_le_bytes());
        if !v.is_null() {
            encode_value(a.element, v, out);
            let len = (out.len() - at - 4) as u32;
            out[at..at + 4].copy_from_slice(&len.to_le_bytes());
        }
    }
}

/// How many fields there are, then each field: its length, or all ones for NULL, and its bytes.
fn put_fields(out: &mut Vec<u8>, r: &Row) {
    let attributes = r.ty.attributes.expect("a composite type");
    out.extend_from_slice(&(attributes.len() as u16).to_le_bytes());
    for (i, a) in attributes.iter().enumerate() {
        let at = out.len();
        out.extend_from_slice(&u32::MAX.to_le_bytes());
        let v = r.fields.get(i).filter(|v| !v.is_null() && !a.dropped);
        if let Some(v) = v {
            encode_value(a.ty.ty, v, out);
            let len = (out.len() - at - 4) as u32;
            out[at..at + 4].copy_from_slice(&len.to_le_bytes());
        }
    }
}

/// A row that has fewer fields is older than the attributes that it lacks. One that has more is newer than this version of the type, and a
/// transaction with an older schema may meet it, as in the words of a conflict: what this version does not know is passed over.
fn get_fields(ty: UserType, b: &[u8]) -> Option<Row> {
    let attributes = ty.attributes?;
    let (n, mut rest) = b.split_first_chunk::<2>()?;
    let n = usize::from(u16::from_le_bytes(*n));
    let mut fields = Vec::with_capacity(attributes.len());
    for i in 0..n {
        let (len, behind) = rest.split_first_chunk::<4>()?;
        let len = u32::from_le_bytes(*len);
        rest = behind;
        let field = match len {
            u32::MAX => None,
            len => {
                let (field, behind) = rest.split_at_checked(len as usize)?;
                rest = behind;
                Some(field)
            }
        };
        let Some(a) = attributes.get(i) else { continue };
        fields.push(match field.filter(|_| !a.dropped) {
            None => Value::Null,
            Some(field) => decode_value(a.ty.ty, field)?,
        });
    }
    fields.resize(attributes.len(), Value::Null);
    rest.is_empty().then_some(Row { ty, fields })
}

/// Appends one non-NULL value in the form it has inside a row.
pub fn encode_value(ty: Type, v: &Value, out: &mut Vec<u8>) {
    match ty.fixed_width() {
        Some(w) => {
            let at = out.len();
            out.resize(at + w, 0);
            put_fixed(&mut out[at..], v, ty);
        }
        None => put_varying(out, v),
    }
}

/// A number for these values that is another one after any change of at most 32 bits in a row, and after any other with a chance of all but 2⁻³². It is
/// the same at every node and after a restart. 0, 1 and 2 are left free.
pub fn fingerprint(values: &[Value]) -> u32 {
    let mut bytes = Vec::new();
    for v in values {
        let Some(ty) = v.natural_type() else {
            bytes.extend_from_slice(&u32::MAX.to_le_bytes());
            continue;
        };
        let at = bytes.len();
        bytes.extend_from_slice(&[0; 4]);
        encode_value(ty, v, &mut bytes);
        let len = (bytes.len() - at - 4) as u32;
        bytes[at..at + 4].copy_from_slice(&len.to_le_bytes());
    }
    match crc32c::crc32c(&bytes) {
        n @ 0..=2 => n + 3,
        n => n,
    }
}

/// Reads what [`encode_value`] wrote; `None` when the bytes are not of this type.
pub fn decode_value(ty: Type, b: &[u8]) -> Option<Value> {
    if ty.fixed_width().is_some_and(|w| w != b.len()) {
        return None;
    }
    let i4 = |at: usize| i32::from_le_bytes(b[at..at + 4].try_into().expect("4 bytes"));
    let i8 = || i64::from_le_bytes(b[..8].try_into().expect("8 bytes"));
    Some(match ty {
        Type::Bool => Value::Bool(b[0] != 0),
        Type::Char => Value::Char(b[0]),
        Type::Int2 => Value::Int2(i16::from_le_bytes([b[0], b[1]])),
        Type::Int4 => Value::Int4(i4(0)),
        Type::Date => Value::Date(i4(0)),
        Type::Float4 => Value::Float4(f32::from_bits(i4(0) as u32)),
        Type::Oid
        | Type::RegClass
        | Type::RegType
        | Type::RegProc
        | Type::RegNamespace
        | Type::Xid => Value::Oid(i4(0) as u32),
        Type::Int8 => Value::Int8(i8()),
        Type::Time => Value::Time(i8()),
        Type::Timestamp => Value::Timestamp(i8()),
        Type::TimestampTz => Value::TimestampTz(i8()),
        Type::Float8 => Value::Float8(f64::from_bits(i8() as u64)),
        Type::Uuid => Value::Uuid(Box::new(b.try_into().ok()?)),
        Type::Interval => Value::Interval(Box::new(Interval {
            micros: i8(),
            days: i4(8),
            months: i4(12),
        })),
        Type::Numeric => Value::Numeric(Box::new(get_numeric(b)?)),
        Type::Bytea | Type::Tid => Value::Bytea(b.into()),
        Type::Json | Type::Jsonb => Value::Json(std::str::from_utf8(b).ok()?.into()),
        Type::User(u) if u.is_composite() => Value::Row(Box::new(get_fields(u, b)?)),
        Type::User(u) => Value::Enum(u, i8() as u64),
        t if t.element().is_some() => Value::Array(Box::new(get_array(t, b)?)),
        t => match Packed::of(t) {
            Some(kind) => kind.is_form(b).then(|| Value::packed(kind, b))?,
            None => Value::Text(std::str::from_utf8(b).ok()?.into()),
        },
    })
}

fn get_numeric(b: &[u8]) -> Option<Numeric> {
    Some(match (*b.first()?, b.len()) {
        (0, 1) => Numeric::NegInfinity,
        (2, 1) => Numeric::Infinity,
        (3, 1) => Numeric::NaN,
        (1, n) if n > 5 => {
            let scale = i32::from_le_bytes(b[1..5].try_into().ok()?);
            Numeric::Finite(BigDecimal::new(
                BigInt::from_signed_bytes_le(&b[5..]),
                i64::from(scale),
            ))
        }
        _ => return None,
    })
}

fn get_array(ty: Type, b: &[u8]) -> Option<Array> {
    let word = |at: usize| Some(u32::from_le_bytes(b.get(at..at + 4)?.try_into().ok()?));
    // An array of one string type may stand in a column of another; that of a user's type is the column's.
    let element = match ty.element() {
        Some(e @ Type::User(_)) => e,
        _ => Type::from_oid(word(0)?)?,
    };
    let ndim = *b.get(4)? as usize;
    let mut at = 5;
    let mut dims = Vec::new();
    for _ in 0..ndim {
        dims.push((word(at)? as i32, word(at + 4)? as i32));
        at += 8;
    }
    let mut items = Vec::new();
    while at < b.len() {
        let len = word(at)?;
        at += 4;
        if len == u32::MAX {
            items.push(Value::Null);
        } else {
            let end = at.checked_add(len as usize)?;
            if element.element().is_some() {
                return None;
            }
            items.push(decode_value(element, b.get(at..end)?)?);
            at = end;
        }
    }
    Some(Array {
        element,
        dims,
        items,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::str::FromStr;

    fn layout() -> RowLayout {
        RowLayout::new([
            Type::Int4,
            Type::Text,
            Type::Int8,
            Type::Numeric,
            Type::Bool,
            Type::TextArray,
        ])
    }

    fn sample(text: &str) -> Vec<Value> {
        vec![
            Value::Int4(-5),
            Value::text(text),
            Value::Null,
            Value::from(Numeric::from_str("-12.340").unwrap()),
            Value::Bool(true),
            Value::Array(Box::new(Array::one_dim(
                Type::Text,
                vec![Value::text("a"), Value::Null],
            ))),
        ]
    }

    #[test]
    fn rows_round_trip_narrow_and_wide() {
        for text in ["", "hello", &"x".repeat(70_000)] {
            let l = layout();
            let mut b = Vec::new();
            l.encode(3, &sample(text), &mut b).unwrap();
            assert!(l.check(&b));
            let r = l.row(&b);
            assert_eq!((r.version(), r.columns()), (3, 6));
            assert_eq!(r.get(0).as_i64(), Some(-5));
            assert_eq!(r.get(1).as_str(), Some(text));
            assert!(r.get(2).is_null());
            assert!(matches!(r.get(3), Value::Numeric(n) if n.to_string() == "-12.340"));
            assert!(
                matches!(r.get(5), Value::Array(a) if a.items.len() == 2 && a.items[1].is_null())
            );
        }
    }

    #[test]
    fn a_patched_row_is_the_row_of_the_patched_values() {
        let l = layout();
        let all = [
            vec![(0, Value::Int4(9)), (4, Value::Bool(false))],
            vec![(1, Value::text("HELLO")), (2, Value::Int8(-1))],
            vec![(0, Value::Null), (1, Value::text("same!"))],
        ];
        for set in all {
            let mut values = sample("hello");
            let (mut old, mut new, mut want) = (vec![], vec![7], vec![]);
            l.encode(3, &values, &mut old).unwrap();
            assert!(l.patch(3, l.row(&old), &set, &mut new));
            for (i, v) in set {
                values[i] = v;
            }
            l.encode(3, &values, &mut want).unwrap();
            assert_eq!(new[1..], want);
        }
        let mut old = vec![];
        l.encode(3, &sample("x"), &mut old).unwrap();
        let not_in_place = [
            (1, Value::text("longer")),
            (1, Value::Null),
            (3, Value::Null),
        ];
        for set in not_in_place {
            let mut new = vec![7];
            assert!(!l.patch(3, l.row(&old), &[set], &mut new));
            assert_eq!(new, [7]);
        }
        assert!(!l.patch(4, l.row(&old), &[(0, Value::Int4(1))], &mut vec![]));
    }

    #[test]
    fn a_column_added_later_is_missing() {
        let old = RowLayout::new([Type::Int4, Type::Text]);
        let mut b = Vec::new();
        old.encode(0, &[Value::Int4(1), Value::text("t")], &mut b)
            .unwrap();
        let r = layout();
        let r = r.row(&b);
        assert!(r.is_missing(2) && !r.is_missing(1));
        assert_eq!(r.get(1).as_str(), Some("t"));
    }

    #[test]
    fn damaged_rows_are_refused() {
        let l = layout();
        let mut b = Vec::new();
        l.encode(0, &sample("abc"), &mut b).unwrap();
        for n in 0..b.len() {
            assert!(!l.check(&b[..n]), "a row cut at {n} passed");
        }
    }
}
