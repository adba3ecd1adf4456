//! Memory-comparable keys: the order of the encoded bytes is the order of the values.
//!
//! Integers: big-endian with the sign bit flipped. Floats: IEEE bits, all flipped when negative (−0 equals 0, NaN is the
//! greatest). Text (C collation) and bytea: bytes with 0x00 written as 0x00 0xFF, ended by 0x00 0x00. Numeric: sign,
//! exponent, decimal digits. A nullable column has a byte before it: 0x01 a value follows, 0x02 NULL (NULLS LAST),
//! 0x00 NULL (NULLS FIRST). Descending columns have all their bytes inverted, marker aside.
//!
//! Keys are compared and hashed, never decoded: the row holds the values.
//! Left out on purpose: collations other than C.

use crate::key_bytes::encode_bytes;
use crate::numeric::Numeric;
use crate::types::Type;
use crate::value::Value;
use num_bigint::Sign;
use std::borrow::Cow;

/// Most bytes of an encoded key.
pub const MAX_KEY_BYTES: usize = 8 << 10;

/// One column of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyColumn {
    pub ty: Type,
    pub desc: bool,
    pub nulls_first: bool,
    /// Columns of a primary key have no marker byte.
    pub nullable: bool,
}

impl KeyColumn {
    /// Appends `v`; panics on NULL in a column that is not nullable.
    #[inline]
    pub fn encode(&self, v: &Value, out: &mut Vec<u8>) {
        if v.is_null() {
            assert!(self.nullable, "NULL in a key column that is not nullable");
            out.push(if self.nulls_first { 0 } else { 2 });
            return;
        }
        if self.nullable {
            out.push(1);
        }
        let at = out.len();
        encode_value(v, out);
        if self.desc {
            out[at..].iter_mut().for_each(|b| *b = !*b);
        }
    }
}

impl KeyColumn {
    /// Where the column ends that begins at this place; none where its bytes do not tell.
    fn end(&self, key: &[u8], at: usize) -> Option<usize> {
        let from = at + usize::from(self.nullable);
        if self.nullable && *key.get(at)? != 1 {
            return Some(from);
        }
        let fixed = |width| Some(from + width).filter(|end| *end <= key.len());
        match self.ty {
            Type::Bool | Type::Char => fixed(1),
            Type::Int2 => fixed(2),
            Type::Int4 | Type::Date | Type::Float4 | Type::Oid => fixed(4),
            Type::Int8 | Type::Time | Type::Timestamp | Type::TimestampTz | Type::Float8 => {
                fixed(8)
            }
            Type::Uuid | Type::Interval => fixed(16),
            Type::Text | Type::Varchar | Type::Bpchar | Type::Name | Type::Bytea => {
                let zero = if self.desc { 0xFF } else { 0 };
                let mut at = from;
                loop {
                    at += key.get(at..)?.iter().position(|b| *b == zero)? + 2;
                    if *key.get(at - 1)? == zero {
                        return Some(at);
                    }
                }
            }
            _ => None,
        }
    }
}

/// Equalities over columns of an index, asked of the bytes of an entry before its row is looked at.
#[derive(Debug)]
pub struct KeyTest {
    columns: Vec<KeyColumn>,
    /// What the column in each place has to be, encoded.
    wanted: Vec<Option<Vec<u8>>>,
}

impl KeyTest {
    /// Of the columns of an index: what they have to be, in the same order. None where nothing is asked.
    pub fn new(columns: &[KeyColumn], mut wanted: Vec<Option<Vec<u8>>>) -> Option<KeyTest> {
        let last = wanted.iter().rposition(Option::is_some)?;
        wanted.truncate(last + 1);
        Some(KeyTest {
            columns: columns[..=last].to_vec(),
            wanted,
        })
    }

    /// Whether the key may have the wanted columns. False is sure; true is not where the place of a column cannot be told.
    pub fn may_hold(&self, key: &[u8]) -> bool {
        let mut at = 0;
        for (c, wanted) in self.columns.iter().zip(&self.wanted) {
            match wanted {
                Some(w) if !key[at..].starts_with(w) => return false,
                Some(w) => at += w.len(),
                None => match c.end(key, at) {
                    Some(end) => at = end,
                    None => return true,
                },
            }
        }
        true
    }
}

/// Appends one non-NULL value, ascending.
pub fn encode_value(v: &Value, out: &mut Vec<u8>) {
    match v {
        Value::Null => panic!("NULL has no key bytes of its own"),
        Value::Bool(b) => out.push(u8::from(*b)),
        Value::Char(c) => out.push(*c),
        Value::Int2(x) => out.extend_from_slice(&((*x as u16) ^ 0x8000).to_be_bytes()),
        Value::Int4(x) | Value::Date(x) => {
            out.extend_from_slice(&((*x as u32) ^ (1 << 31)).to_be_bytes())
        }
        Value::Int8(x) | Value::Time(x) | Value::Timestamp(x) | Value::TimestampTz(x) => {
            out.extend_from_slice(&((*x as u64) ^ (1 << 63)).to_be_bytes());
        }
        Value::Oid(x) => out.extend_from_slice(&x.to_be_bytes()),
        Value::Enum(_, rank) => out.extend_from_slice(&rank.to_be_bytes()),
        Value::Packed(p) => p.kind().write_key(p.form(), out),
        // Only keys of one statement have rows in them, so attributes do not come and go meanwhile.
        Value::Row(r) => {
            for (_, v) in r.live() {
                out.push(if v.is_null() { 2 } else { 1 });
                if !v.is_null() {
                    encode_value(v, out);
                }
            }
        }
        Value::Float4(x) => {
            let x = if x.is_nan() { f32::NAN } else { *x + 0.0 };
            let b = x.to_bits();
            let b = if b >> 31 == 1 { !b } else { b | 1 << 31 };
            out.extend_from_slice(&b.to_be_bytes());
        }
        Value::Float8(x) => {
            let x = if x.is_nan() { f64::NAN } else { *x + 0.0 };
            let b = x.to_bits();
            let b = if b >> 63 == 1 { !b } else { b | 1 << 63 };
            out.extend_from_slice(&b.to_be_bytes());
        }
        Value::Numeric(n) => encode_numeric(n, out),
        Value::Text(s) => encode_bytes(s.as_bytes(), out),
        Value::Json(s) => encode_bytes(plain_numbers(s).as_bytes(), out),
        Value::Bytea(b) => encode_bytes(b, out),
        Value::Uuid(u) => out.extend_from_slice(&u[..]),
        Value::Interval(i) => {
            out.extend_from_slice(&((i.span() as u128) ^ (1 << 127)).to_be_bytes())
        }
        Value::Array(a) => {
            for v in &a.items {
                if v.is_null() {
                    out.push(2);
                } else {
                    out.push(1);
                    encode_value(v, out);
                }
            }
            out.push(0);
            out.push(a.dims.len() as u8);
            for (len, lower) in &a.dims {
                out.extend_from_slice(&len.to_be_bytes());
                out.extend_from_slice(&((*lower as u32) ^ (1 << 31)).to_be_bytes());
            }
        }
    }
}

/// A canonical `jsonb` text in which equal numbers look alike: `1.0` and `1.00` are `1`.
fn plain_numbers(s: &str) -> Cow<'_, str> {
    let b = s.as_bytes();
    let mut out: Option<String> = None;
    let (mut copied, mut i) = (0, 0);
    while i < b.len() {
        match b[i] {
            b'"' => {
                i += 1;
                while i < b.len() && b[i] != b'"' {
                    i += 1 + usize::from(b[i] == b'\\');
                }
                i += 1;
            }
            b'.' => {
                let digits = b[i + 1..].iter().take_while(|c| c.is_ascii_digit()).count();
                let end = i + 1 + digits;
                let zeros = b[i + 1..end]
                    .iter()
                    .rev()
                    .take_while(|c| **c == b'0')
                    .count();
                let keep = if zeros == digits { i } else { end - zeros };
                if keep < end {
                    let text = out.get_or_insert_with(|| String::with_capacity(s.len()));
                    text.push_str(&s[copied..keep]);
                    copied = end;
                }
                i = end;
            }
            _ => i += 1,
        }
    }
    match out {
        None => Cow::Borrowed(s),
        Some(mut text) => {
            text.push_str(&s[copied..]);
            Cow::Owned(text)
        }
    }
}

/// Class byte (-Inf 0, negative 1, zero 2, positive 3, Inf 4, NaN 5), then for finite non-zero values the decimal exponent and
/// the digits plus one, ended by 0; all inverted when negative.
fn encode_numeric(n: &Numeric, out: &mut Vec<u8>) {
    let d = match n {
        Numeric::NegInfinity => return out.push(0),
        Numeric::Infinity => return out.push(4),
        Numeric::NaN => return out.push(5),
        Numeric::Finite(d) => d,
    };
    let (int, scale) = d.as_bigint_and_exponent();
    let negative = match int.sign() {
        Sign::NoSign => return out.push(2),
        Sign::Minus => true,
        Sign::Plus => false,
    };
    out.push(if negative { 1 } else { 3 });
    let at = out.len();
    let digits = int.magnitude().to_str_radix(10);
    let exponent = digits.len() as i64 - scale;
    out.extend_from_slice(&((exponent as i32 as u32) ^ (1 << 31)).to_be_bytes());
    out.extend(digits.trim_end_matches('0').bytes().map(|c| c - b'0' + 1));
    out.push(0);
    if negative {
        out[at..].iter_mut().for_each(|b| *b = !*b);
    }
}

/// Turns a prefix into the first key that is greater than every key with that prefix; false when there is none.
pub fn prefix_end(prefix: &mut Vec<u8>) -> bool {
    while let Some(last) = prefix.pop() {
        if last != 0xFF {
            prefix.push(last + 1);
            return true;
        }
    }
    false
}

/// The hash of a key that log records carry, locks use and buckets are chosen by. Stable across versions.
pub fn hash(storage: u32, key: &[u8]) -> u64 {
    let mut h = 0xcbf2_9ce4_8422_2325u64 ^ u64::from(storage).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut chunks = key.chunks_exact(8);
    for c in &mut chunks {
        h = mix(h ^ u64::from_le_bytes(c.try_into().expect("8 bytes")));
    }
    let mut tail = [0u8; 8];
    tail[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
    mix(h ^ u64::from_le_bytes(tail) ^ (key.len() as u64) << 56)
}

fn mix(x: u64) -> u64 {
    let m = u128::from(x).wrapping_mul(0xA076_1D64_78BD_642F_E703_7ED1_A0B4_28DB);
    (m as u64) ^ ((m >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::str::FromStr;

    fn enc(v: &Value) -> Vec<u8> {
        let mut out = Vec::new();
        encode_value(v, &mut out);
        out
    }

    fn ascending(vs: &[Value]) {
        for w in vs.windows(2) {
            assert!(
                enc(&w[0]) < enc(&w[1]),
                "{:?} should sort before {:?}",
                w[0],
                w[1]
            );
        }
    }

    #[test]
    fn a_test_of_keys_refuses_those_with_another_column_alone() {
        let column = |ty, desc, nullable| KeyColumn {
            ty,
            desc,
            nulls_first: desc,
            nullable,
        };
        let texts = ["", "a", "a\0", "\0", "\0\0b", "\u{7f}b", "ab"];
        let ints = [i32::MIN, -1, 0, 255, 65535, i32::MAX];
        let texts: Vec<Value> = texts.iter().map(|s| Value::from(*s)).collect();
        let ints: Vec<Value> = ints.iter().map(|n| Value::Int4(*n)).collect();
        for desc in [false, true] {
            for first in [Type::Text, Type::Int4] {
                let columns = [column(first, desc, true), column(Type::Int4, desc, true)];
                let nulls = [Value::Null];
                let firsts = if first == Type::Text { &texts } else { &ints };
                for a in firsts.iter().chain(&nulls) {
                    for b in ints.iter().chain(&nulls) {
                        let mut key = vec![];
                        columns[0].encode(a, &mut key);
                        columns[1].encode(b, &mut key);
                        key.extend_from_slice(b"primary key");
                        for wanted in &ints {
                            let mut bytes = vec![];
                            columns[1].encode(wanted, &mut bytes);
                            let test = KeyTest::new(&columns, vec![None, Some(bytes)]);
                            let test = test.expect("something is asked");
                            assert_eq!(
                                test.may_hold(&key),
                                b.as_i64() == wanted.as_i64(),
                                "{a:?} {b:?} {wanted:?}"
                            );
                        }
                    }
                }
            }
        }
        // Where the first column ends is not told by numbers of any length: nothing is refused.
        let columns = [
            column(Type::Numeric, false, true),
            column(Type::Int4, false, true),
        ];
        let test = KeyTest::new(&columns, vec![None, Some(vec![1, 0, 0, 0, 7])]);
        assert!(test.expect("something is asked").may_hold(&[1, 3, 1]));
        assert!(KeyTest::new(&columns, vec![None, None]).is_none());
    }

    #[test]
    fn equal_jsonb_has_equal_keys() {
        let key = |s: &str| {
            let mut out = Vec::new();
            encode_value(&Value::Json(s.into()), &mut out);
            out
        };
        for (a, b) in [
            ("1.0", "1"),
            ("[1.50, 2.00]", "[1.5, 2]"),
            (r#"{"a": -0.10, "b": "x"}"#, r#"{"a": -0.1, "b": "x"}"#),
        ] {
            assert_eq!(key(a), key(b), "{a}");
        }
        for (a, b) in [
            (r#""1.0""#, r#""1""#),
            (r#""\\\"1.0""#, r#""\\\"1""#),
            ("1.01", "1.1"),
            ("10", "1"),
        ] {
            assert_ne!(key(a), key(b), "{a}");
        }
    }

    #[test]
    fn bytes_sort_as_values() {
        ascending(&[i32::MIN, -1, 0, 1, i32::MAX].map(Value::Int4));
        ascending(
            &[
                f64::NEG_INFINITY,
                -1.5,
                0.0,
                1e-9,
                2.0,
                f64::INFINITY,
                f64::NAN,
            ]
            .map(Value::Float8),
        );
        ascending(&["", "\0", "\0a", "a", "a\0", "ab", "b"].map(Value::text));
        let n = [
            "-Infinity",
            "-100",
            "-99.5",
            "-0.01",
            "0",
            "0.001",
            "0.01",
            "1",
            "1.5",
            "10",
            "99",
            "100",
            "Infinity",
            "NaN",
        ];
        ascending(&n.map(|s| Value::from(Numeric::from_str(s).unwrap())));
        assert_eq!(enc(&Value::Float8(-0.0)), enc(&Value::Float8(0.0)));
        let one = |s| enc(&Value::from(Numeric::from_str(s).unwrap()));
        assert_eq!(one("1.10"), one("1.1"));
        assert_eq!(one("100"), one("1e2"));
    }

    #[test]
    fn nulls_and_descending_columns() {
        let c = KeyColumn {
            ty: Type::Int4,
            desc: true,
            nulls_first: false,
            nullable: true,
        };
        let e = |v: &Value| {
            let mut o = Vec::new();
            c.encode(v, &mut o);
            o
        };
        assert!(e(&Value::Int4(2)) < e(&Value::Int4(1)));
        assert!(e(&Value::Int4(1)) < e(&Value::Null));
    }

    #[test]
    fn a_prefix_ends_after_all_its_keys() {
        let mut p = vec![1, 0xFF, 0xFF];
        assert!(prefix_end(&mut p));
        assert_eq!(p, vec![2]);
        let mut p = vec![0xFF];
        assert!(!prefix_end(&mut p));
    }
}
