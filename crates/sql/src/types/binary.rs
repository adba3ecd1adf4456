//! The binary wire format of values: PostgreSQL's `typsend` and `typreceive`.
//!
//! Integers and floats are big-endian; `numeric` is groups of four decimal digits with weight, sign and scale; dates and times
//! count from 2000; `jsonb` has a version byte; arrays carry their element type and bounds.

use super::json;
use super::numeric::{MAX_SCALE, pow10};
use base::{Array, Error, Interval, Numeric, Packed, Result, SqlState, Type, Value};
use bigdecimal::BigDecimal;
use num_bigint::{BigInt, Sign};

/// Appends the binary form of a non-NULL value. `char(n)` comes without its blanks: see [`encode_column`].
pub fn encode(v: &Value, ty: Type, out: &mut Vec<u8>) {
    match v {
        Value::Null => {}
        Value::Bool(x) => out.push(u8::from(*x)),
        Value::Char(x) => out.push(*x),
        Value::Int2(x) => out.extend_from_slice(&x.to_be_bytes()),
        Value::Int4(x) | Value::Date(x) => out.extend_from_slice(&x.to_be_bytes()),
        Value::Int8(x) | Value::Time(x) | Value::Timestamp(x) | Value::TimestampTz(x) => {
            out.extend_from_slice(&x.to_be_bytes());
        }
        Value::Float4(x) => out.extend_from_slice(&x.to_be_bytes()),
        Value::Float8(x) => out.extend_from_slice(&x.to_be_bytes()),
        Value::Oid(x) => out.extend_from_slice(&x.to_be_bytes()),
        Value::Text(s) => out.extend_from_slice(s.as_bytes()),
        Value::Bytea(b) => out.extend_from_slice(b),
        Value::Uuid(u) => out.extend_from_slice(&u[..]),
        Value::Interval(i) => {
            out.extend_from_slice(&i.micros.to_be_bytes());
            out.extend_from_slice(&i.days.to_be_bytes());
            out.extend_from_slice(&i.months.to_be_bytes());
        }
        Value::Json(s) => {
            if ty == Type::Jsonb {
                out.push(1);
            }
            out.extend_from_slice(s.as_bytes());
        }
        Value::Numeric(n) => put_numeric(n, out),
        Value::Array(a) => put_array(a, out),
        Value::Enum(ty, rank) => {
            out.extend_from_slice(ty.label(*rank).unwrap_or_default().as_bytes());
        }
        Value::Packed(p) => p.kind().write_binary(p.form(), out),
        Value::Row(r) => super::composite::encode(r, out),
    }
}

fn put_numeric(n: &Numeric, out: &mut Vec<u8>) {
    let mut header = |ndigits: u16, weight: i16, sign: u16, dscale: u16| {
        for x in [ndigits, weight as u16, sign, dscale] {
            out.extend_from_slice(&x.to_be_bytes());
        }
    };
    let d = match n {
        Numeric::NaN => return header(0, 0, 0xC000, 0),
        Numeric::Infinity => return header(0, 0, 0xD000, 0x20),
        Numeric::NegInfinity => return header(0, 0, 0xF000, 0x20),
        Numeric::Finite(d) => d,
    };
    let (int, scale) = d.as_bigint_and_exponent();
    let dscale = scale.max(0) as u16;
    // Digits to the right of the point in whole groups of four.
    let groups_after = scale.max(0).div_euclid(4) + i64::from(scale.max(0) % 4 != 0);
    let aligned = int.magnitude() * pow10(groups_after * 4 - scale).magnitude();
    let text = aligned.to_str_radix(10);
    let pad = (4 - text.len() % 4) % 4;
    let padded = format!("{}{text}", "0".repeat(pad));
    let mut groups: Vec<u16> = padded
        .as_bytes()
        .chunks(4)
        .map(|c| c.iter().fold(0, |n, b| n * 10 + u16::from(b - b'0')))
        .collect();
    let mut weight = groups.len() as i64 - 1 - groups_after;
    let zeros = groups.iter().take_while(|g| **g == 0).count();
    groups.drain(..zeros);
    weight -= zeros as i64;
    while groups.last() == Some(&0) {
        groups.pop();
    }
    if groups.is_empty() {
        weight = 0;
    }
    let sign = if int.sign() == Sign::Minus { 0x4000 } else { 0 };
    header(groups.len() as u16, weight as i16, sign, dscale);
    for g in groups {
        out.extend_from_slice(&g.to_be_bytes());
    }
}

fn put_array(a: &Array, out: &mut Vec<u8>) {
    let mut word = |x: i32| out.extend_from_slice(&x.to_be_bytes());
    word(a.dims.len() as i32);
    word(i32::from(a.items.iter().any(Value::is_null)));
    word(a.element.oid() as i32);
    for (len, lower) in &a.dims {
        word(*len);
        word(*lower);
    }
    for v in &a.items {
        let at = out.len();
        out.extend_from_slice(&(-1i32).to_be_bytes());
        if !v.is_null() {
            encode(v, a.element, out);
            let len = (out.len() - at - 4) as i32;
            out[at..at + 4].copy_from_slice(&len.to_be_bytes());
        }
    }
}

/// 22P03.
fn malformed(what: &str) -> Error {
    Error::new(SqlState::INVALID_BINARY_REPRESENTATION, what)
}

fn bytes<const N: usize>(b: &[u8]) -> Result<[u8; N]> {
    b.try_into()
        .map_err(|_| malformed("incorrect binary data format"))
}

/// Reads a value from its binary form; 22P03 when it is malformed.
pub fn decode(b: &[u8], ty: Type) -> Result<Value> {
    Ok(match ty {
        Type::Bool => Value::Bool(bytes::<1>(b)?[0] != 0),
        Type::Char => Value::Char(bytes::<1>(b)?[0]),
        Type::Int2 => Value::Int2(i16::from_be_bytes(bytes(b)?)),
        Type::Int4 => Value::Int4(i32::from_be_bytes(bytes(b)?)),
        Type::Int8 => Value::Int8(i64::from_be_bytes(bytes(b)?)),
        Type::Float4 => Value::Float4(f32::from_be_bytes(bytes(b)?)),
        Type::Float8 => Value::Float8(f64::from_be_bytes(bytes(b)?)),
        Type::Oid
        | Type::RegClass
        | Type::RegType
        | Type::RegProc
        | Type::RegNamespace
        | Type::Xid => Value::Oid(u32::from_be_bytes(bytes(b)?)),
        Type::Tid if !super::place::is_place(b) => {
            return Err(malformed("incorrect binary data format"));
        }
        Type::Tid => Value::Bytea(b.into()),
        Type::Date => {
            let d = i32::from_be_bytes(bytes(b)?);
            let finite =
                (super::datetime::MIN_DATE..super::datetime::END_DATE).contains(&i64::from(d));
            if !finite && d != i32::MIN && d != i32::MAX {
                return Err(super::datetime::overflow("date out of range"));
            }
            Value::Date(d)
        }
        Type::Time => {
            let t = i64::from_be_bytes(bytes(b)?);
            if !(0..=super::datetime::USECS_PER_DAY).contains(&t) {
                return Err(super::datetime::overflow("time out of range"));
            }
            Value::Time(t)
        }
        Type::Timestamp => Value::Timestamp(timestamp(b)?),
        Type::TimestampTz => Value::TimestampTz(timestamp(b)?),
        Type::Interval => {
            let b = bytes::<16>(b)?;
            let word = |at: usize| i32::from_be_bytes(b[at..at + 4].try_into().expect("4 bytes"));
            Value::Interval(Box::new(Interval {
                micros: i64::from_be_bytes(b[..8].try_into().expect("8 bytes")),
                days: word(8),
                months: word(12),
            }))
        }
        Type::Uuid => Value::Uuid(Box::new(bytes(b)?)),
        Type::Bytea => Value::Bytea(b.into()),
        Type::Json => {
            let s = base::text(b)?;
            json::check(s)?;
            Value::Json(s.into())
        }
        Type::Jsonb => match b.split_first() {
            Some((1, rest)) => json::parse(base::text(rest)?)?.into_value(),
            Some((v, _)) => {
                return Err(Error::internal(format!(
                    "unsupported jsonb version number {v}"
                )));
            }
            None => return Err(malformed("insufficient data left in message")),
        },
        Type::Numeric => Value::from(get_numeric(b)?),
        Type::Bpchar => Value::text(base::text(b)?.trim_end_matches(' ')),
        Type::User(u) if u.is_composite() => super::composite::decode(b, u)?,
        Type::User(u) => super::text::label(base::text(b)?, u)?,
        t if t.element().is_some() => Value::Array(Box::new(get_array(b, t)?)),
        t => match Packed::of(t) {
            Some(kind) => Value::packed(kind, kind.read_binary(b)?),
            None => Value::text(base::text(b)?),
        },
    })
}

fn timestamp(b: &[u8]) -> Result<i64> {
    let t = i64::from_be_bytes(bytes(b)?);
    if super::datetime::is_infinite(t) || super::datetime::in_range(t) {
        Ok(t)
    } else {
        Err(super::datetime::overflow("timestamp out of range"))
    }
}

fn get_numeric(b: &[u8]) -> Result<Numeric> {
    let bad = || malformed("invalid length in external \"numeric\" value");
    let word = |i: usize| -> Result<u16> {
        let w = b.get(2 * i..2 * i + 2).ok_or_else(bad)?;
        Ok(u16::from_be_bytes([w[0], w[1]]))
    };
    let (n, weight, sign, dscale) = (word(0)? as usize, word(1)? as i16, word(2)?, word(3)?);
    match sign {
        0 | 0x4000 => {}
        0xC000 => return Ok(Numeric::NaN),
        0xD000 => return Ok(Numeric::Infinity),
        0xF000 => return Ok(Numeric::NegInfinity),
        _ => return Err(malformed("invalid sign in external \"numeric\" value")),
    }
    if b.len() != 8 + 2 * n {
        return Err(bad());
    }
    if i64::from(dscale) > MAX_SCALE {
        return Err(malformed("invalid scale in external \"numeric\" value"));
    }
    let mut text = String::with_capacity(4 * n + 1);
    for i in 0..n {
        let g = word(4 + i)?;
        if g > 9999 {
            return Err(malformed("invalid digit in external \"numeric\" value"));
        }
        text.push_str(&format!("{g:04}"));
    }
    let int =
        BigInt::parse_bytes(if n == 0 { b"0" } else { text.as_bytes() }, 10).ok_or_else(bad)?;
    let int = if sign == 0x4000 { -int } else { int };
    // The digits stand for int * 10000^(weight - n + 1).
    let scale = (n as i64 - 1 - i64::from(weight)) * 4;
    let scale = if n == 0 { 0 } else { scale };
    let at = i64::from(dscale);
    // Digits beyond the scale are cut, as PostgreSQL does.
    let int = if scale > at {
        if scale - at > 200_000 {
            BigInt::from(0)
        } else {
            int / pow10(scale - at)
        }
    } else {
        int * pow10(at - scale)
    };
    Ok(Numeric::Finite(BigDecimal::new(int, at)))
}

fn get_array(b: &[u8], ty: Type) -> Result<Array> {
    let bad = || malformed("insufficient data left in message");
    let mut at = 0;
    let mut word = |b: &[u8]| -> Result<i32> {
        let w = b.get(at..at + 4).ok_or_else(bad)?;
        at += 4;
        Ok(i32::from_be_bytes(w.try_into().expect("4 bytes")))
    };
    let ndim = word(b)?;
    if !(0..=6).contains(&ndim) {
        return Err(malformed("invalid number of dimensions"));
    }
    let _has_null = word(b)?;
    let oid = word(b)? as u32;
    let element = ty.element().expect("an array type");
    if oid != element.oid() {
        return Err(Error::new(
            SqlState::DATATYPE_MISMATCH,
            format!(
                "binary data has array element type {oid} instead of expected {}",
                element.oid()
            ),
        ));
    }
    let mut dims = Vec::new();
    let mut count: usize = i32::from(ndim > 0) as usize;
    for _ in 0..ndim {
        let (len, lower) = (word(b)?, word(b)?);
        let len = usize::try_from(len).map_err(|_| malformed("invalid array size"))?;
        // Each element takes at least four bytes.
        count = count
            .checked_mul(len)
            .filter(|c| *c <= b.len() / 4)
            .ok_or_else(bad)?;
        dims.push((len as i32, lower));
    }
    let mut items = Vec::with_capacity(count);
    for _ in 0..count {
        let len = b.get(at..at + 4).ok_or_else(bad)?;
        let len = i32::from_be_bytes(len.try_into().expect("4 bytes"));
        at += 4;
        if len == -1 {
            items.push(Value::Null);
            continue;
        }
        let len = usize::try_from(len).map_err(|_| bad())?;
        let v = b.get(at..at + len).ok_or_else(bad)?;
        items.push(decode(v, element)?);
        at += len;
    }
    if at != b.len() {
        return Err(malformed("improper binary format in array"));
    }
    if count == 0 {
        dims.clear();
    }
    Ok(Array {
        element,
        dims,
        items,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{OutputSettings, text};
    use base::ColumnType;

    fn hex(s: &str, ty: Type) -> String {
        let v = text::input(s, ColumnType::plain(ty), &OutputSettings::default()).unwrap();
        let mut out = Vec::new();
        encode(&v, ty, &mut out);
        let back = decode(&out, ty).unwrap();
        assert_eq!(
            text::to_string(&back, ty, &OutputSettings::default()),
            text::to_string(&v, ty, &OutputSettings::default())
        );
        out.iter().map(|b| format!("{b:02x}")).collect()
    }

    #[test]
    fn bytes_are_those_of_postgresql() {
        use Type::*;
        for (s, ty, want) in [
            ("12345.678", Numeric, "000300010000000300010929 1a7c"),
            ("-0.0001", Numeric, "0001ffff400000040001"),
            ("0.00", Numeric, "0000000000000002"),
            ("10000", Numeric, "00010001000000000001"),
            ("NaN", Numeric, "00000000c0000000"),
            (
                "1 mon 2 days 00:00:03",
                Interval,
                "00000000002dc6c00000000200000001",
            ),
            ("2000-01-02", Date, "00000001"),
            ("{\"a\": 1}", Jsonb, "017b2261223a20317d"),
            (
                "{1,NULL}",
                Int4Array,
                "0000000100000001000000170000000200000001000000040000 0001ffffffff",
            ),
            ("{}", TextArray, "000000000000000000000019"),
            ("1.5", Float8, "3ff8000000000000"),
            ("10110", Bit, "00000005b0"),
            ("10.1.2.3/8", Inet, "020800040a010203"),
            ("10.0.0.0/8", Cidr, "020801040a000000"),
            ("08:00:2b:01:02:03", MacAddr, "08002b010203"),
            ("04:05:06-08", TimeTz, "000000036c8bc080 00007080"),
            (
                "{101,1}",
                VarBitArray,
                "00000001000000000000061a0000000200000001 0000000500000003a0 000000050000000180",
            ),
        ] {
            assert_eq!(hex(s, ty), want.replace(' ', ""), "{s}");
        }
    }

    #[test]
    fn malformed_bytes_are_refused() {
        assert!(decode(&[1, 2, 3], Type::Int4).is_err());
        assert!(decode(&[0, 1, 0, 0, 0, 0, 0, 0], Type::Numeric).is_err());
        assert!(decode(&[0xff], Type::Text).is_err());
        assert!(
            decode(
                &[
                    0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 23, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 1
                ],
                Type::Int4Array
            )
            .is_err()
        );
        assert!(decode(&[2, b'1'], Type::Jsonb).is_err());
    }
}
