//! Functions of `bytea`: hashes, encodings, single bytes and bits.

use super::EvalContext;
use super::registry::{Registry, names::*};
use crate::types::text;
use base::{Error, Result, SqlState, Type, Value};
use md5::{Digest, Md5};
use sha2::{Sha224, Sha256, Sha384, Sha512};

type Ctx<'a, 'b> = &'a mut EvalContext<'b>;

fn bytes(v: &Value) -> &[u8] {
    match v {
        Value::Bytea(b) => b,
        Value::Text(s) => s.as_bytes(),
        v => panic!("{v:?} has no bytes"),
    }
}

fn bad(m: impl Into<String>) -> Error {
    Error::new(SqlState::INVALID_PARAMETER_VALUE, m)
}

/// Lower-case hexadecimal digits.
pub fn hex(b: &[u8]) -> String {
    b.iter().map(|x| format!("{x:02x}")).collect()
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Base 64 with a line end after every 76 characters, as PostgreSQL writes it.
fn to_base64(b: &[u8]) -> String {
    let mut out = String::new();
    let mut line = 0;
    for c in b.chunks(3) {
        if line == 76 {
            out.push('\n');
            line = 0;
        }
        let n = c.iter().fold(0u32, |n, x| n << 8 | u32::from(*x)) << (8 * (3 - c.len()));
        for i in 0..4 {
            if i <= c.len() {
                out.push(BASE64[(n >> (18 - 6 * i) & 63) as usize] as char);
            } else {
                out.push('=');
            }
        }
        line += 4;
    }
    out
}

fn from_base64(s: &str) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let (mut n, mut bits, mut end) = (0u32, 0, 0);
    for c in s.bytes().filter(|c| !c.is_ascii_whitespace()) {
        if c == b'=' {
            end += 1;
            continue;
        }
        let v = BASE64.iter().position(|x| *x == c).filter(|_| end == 0);
        let v = v.ok_or_else(|| {
            bad(format!(
                "invalid symbol \"{}\" found while decoding base64 sequence",
                c as char
            ))
        })?;
        n = n << 6 | v as u32;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            out.push((n >> bits) as u8);
            n &= (1 << bits) - 1;
        }
    }
    if bits >= 6 || end > 2 || (end > 0) != (bits > 0) {
        return Err(bad("invalid base64 end sequence")
            .hint("Input data is missing padding, is truncated, or is otherwise corrupted."));
    }
    Ok(out)
}

fn encode(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let b = bytes(&a[0]);
    let f = a[1].as_str().expect("text");
    Ok(Value::from(match f.to_ascii_lowercase().as_str() {
        "hex" => hex(b),
        "base64" => to_base64(b),
        "escape" => b
            .iter()
            .map(|x| match x {
                0 | 0x80.. => format!("\\{x:03o}"),
                b'\\' => "\\\\".into(),
                x => (*x as char).to_string(),
            })
            .collect(),
        _ => return Err(bad(format!("unrecognized encoding: \"{f}\""))),
    }))
}

fn decode(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let s = a[0].as_str().expect("text");
    let f = a[1].as_str().expect("text");
    Ok(Value::Bytea(match f.to_ascii_lowercase().as_str() {
        "hex" => text::read_hex(s.as_bytes())?,
        "base64" => from_base64(s)?.into(),
        "escape" if s.starts_with("\\x") => {
            return Err(Error::new(
                SqlState::INVALID_TEXT_REPRESENTATION,
                "invalid input syntax for type bytea",
            ));
        }
        "escape" => text::read_bytea(s)?,
        _ => return Err(bad(format!("unrecognized encoding: \"{f}\""))),
    }))
}

fn place(b: &[u8], i: i64, per: i64) -> Result<usize> {
    let n = b.len() as i64 * per;
    if (0..n).contains(&i) {
        return Ok(i as usize);
    }
    Err(Error::new(
        SqlState::ARRAY_SUBSCRIPT_ERROR,
        format!("index {i} out of valid range, 0..{}", n - 1),
    ))
}

fn int(v: &Value) -> i64 {
    v.as_i64().expect("an integer")
}

fn get_byte(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let b = bytes(&a[0]);
    Ok(Value::Int4(b[place(b, int(&a[1]), 1)?].into()))
}

fn set_byte(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let mut b = bytes(&a[0]).to_vec();
    let i = place(&b, int(&a[1]), 1)?;
    b[i] = int(&a[2]) as u8;
    Ok(Value::Bytea(b.into()))
}

fn get_bit(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let b = bytes(&a[0]);
    let i = place(b, int(&a[1]), 8)?;
    Ok(Value::Int4((b[i / 8] >> (i % 8) & 1).into()))
}

fn set_bit(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let mut b = bytes(&a[0]).to_vec();
    let i = place(&b, int(&a[1]), 8)?;
    let bit = int(&a[2]);
    if !matches!(bit, 0 | 1) {
        return Err(bad("new bit must be 0 or 1"));
    }
    b[i / 8] = (b[i / 8] & !(1 << (i % 8))) | ((bit as u8) << (i % 8));
    Ok(Value::Bytea(b.into()))
}

/// Without the bytes of a set at its ends.
fn trim(a: &[Value], start: bool, end: bool) -> Result<Value> {
    let (mut b, set) = (bytes(&a[0]), bytes(&a[1]));
    while start && b.first().is_some_and(|x| set.contains(x)) {
        b = &b[1..];
    }
    while end && b.last().is_some_and(|x| set.contains(x)) {
        b = &b[..b.len() - 1];
    }
    Ok(Value::Bytea(b.into()))
}

fn overlay(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let (b, new, from) = (bytes(&a[0]), bytes(&a[1]), int(&a[2]));
    let len = a.get(3).map_or(new.len() as i64, int);
    if from <= 0 {
        let what = "negative substring length not allowed";
        return Err(Error::new(SqlState::SUBSTRING_ERROR, what));
    }
    let place = |i: i64| usize::try_from(i).unwrap_or(0).min(b.len());
    let (head, tail) = (&b[..place(from - 1)], &b[place(from - 1 + len)..]);
    base::memory::want(head.len() + new.len() + tail.len())?;
    Ok(Value::Bytea([head, new, tail].concat().into()))
}

/// A type's value in binary format.
fn send(a: &[Value], types: &[Type], _: Ctx<'_, '_>) -> Result<Value> {
    let mut out = Vec::new();
    crate::types::binary::encode(&a[0], types[0], &mut out);
    Ok(Value::Bytea(out.into()))
}

fn convert_from(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    utf8_name(&a[1])?;
    crate::types::binary::decode(bytes(&a[0]), base::Type::Text)
}

fn utf8_name(v: &Value) -> Result<()> {
    let n = v.as_str().expect("text");
    match n.to_ascii_lowercase().replace(['-', '_'], "").as_str() {
        "utf8" | "unicode" => Ok(()),
        _ => Err(Error::unsupported(format!(
            "conversion to encoding \"{n}\""
        ))),
    }
}

/// Adds the functions of `bytea`.
pub(super) fn register(r: &mut Registry) {
    for t in [TEXT, BYTEA] {
        r.f("md5", &[t], TEXT, IMM, |a, _| {
            Ok(Value::from(hex(&Md5::digest(bytes(&a[0])))))
        });
    }
    r.f("sha224", &[BYTEA], BYTEA, IMM, |a, _| {
        Ok(Value::Bytea(Sha224::digest(bytes(&a[0])).to_vec().into()))
    });
    r.f("sha256", &[BYTEA], BYTEA, IMM, |a, _| {
        Ok(Value::Bytea(Sha256::digest(bytes(&a[0])).to_vec().into()))
    });
    r.f("sha384", &[BYTEA], BYTEA, IMM, |a, _| {
        Ok(Value::Bytea(Sha384::digest(bytes(&a[0])).to_vec().into()))
    });
    r.f("sha512", &[BYTEA], BYTEA, IMM, |a, _| {
        Ok(Value::Bytea(Sha512::digest(bytes(&a[0])).to_vec().into()))
    });
    r.f("encode", &[BYTEA, TEXT], TEXT, IMM, encode);
    r.f("decode", &[TEXT, TEXT], BYTEA, IMM, decode);
    r.f("get_byte", &[BYTEA, INT4], INT4, IMM, get_byte);
    r.f("set_byte", &[BYTEA, INT4, INT4], BYTEA, IMM, set_byte);
    r.f("get_bit", &[BYTEA, INT8], INT4, IMM, get_bit);
    r.f("set_bit", &[BYTEA, INT8, INT4], BYTEA, IMM, set_bit);
    r.f("ltrim", &[BYTEA, BYTEA], BYTEA, IMM, |a, _| {
        trim(a, true, false)
    });
    r.f("rtrim", &[BYTEA, BYTEA], BYTEA, IMM, |a, _| {
        trim(a, false, true)
    });
    r.f("btrim", &[BYTEA, BYTEA], BYTEA, IMM, |a, _| {
        trim(a, true, true)
    });
    r.f("overlay", &[BYTEA, BYTEA, INT4], BYTEA, IMM, overlay);
    r.f("overlay", &[BYTEA, BYTEA, INT4, INT4], BYTEA, IMM, overlay);
    for (name, t) in [
        ("boolsend", BOOL),
        ("int2send", INT2),
        ("int4send", INT4),
        ("int8send", INT8),
        ("float4send", FLOAT4),
        ("float8send", FLOAT8),
        ("numeric_send", NUMERIC),
        ("textsend", TEXT),
        ("byteasend", BYTEA),
        ("uuid_send", UUID),
        ("date_send", DATE),
        ("time_send", TIME),
        ("timestamp_send", TIMESTAMP),
        ("timestamptz_send", TIMESTAMPTZ),
        ("interval_send", INTERVAL),
        ("oidsend", OID),
        ("inet_send", INET),
        ("cidr_send", CIDR),
    ] {
        r.t(name, &[t], BYTEA, IMM, send);
    }
    r.f("convert_from", &[BYTEA, NAME], TEXT, IMM, convert_from);
    r.f("convert_to", &[TEXT, NAME], BYTEA, IMM, |a, _| {
        utf8_name(&a[1])?;
        Ok(Value::Bytea(bytes(&a[0]).into()))
    });
}

#[cfg(test)]
mod tests {
    use crate::functions::testing::call;

    #[test]
    fn results_are_those_of_postgresql() {
        for (f, args, want) in [
            ("md5", &["abc"][..], "900150983cd24fb0d6963f7d28e17f72"),
            (
                "sha256",
                &["abc::bytea"],
                "\\xba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            ),
            ("encode", &["123\\000\\001::bytea", "base64"], "MTIzAAE="),
            (
                "encode",
                &["123\\000\\001::bytea", "escape"],
                "123\\000\u{1}",
            ),
            ("decode", &["MTIzAAE=", "base64"], "\\x3132330001"),
            ("decode", &["DEADBEEF", "hex"], "\\xdeadbeef"),
            ("get_byte", &["\\x1234::bytea", "#1"], "52"),
        ] {
            assert_eq!(call(f, args), want, "{f}{args:?}");
        }
        assert!(call("decode", &["x", "hex"]).contains("22023: invalid hexadecimal digit"));
    }
}
