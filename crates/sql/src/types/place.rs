//! `tid`: where a row stands, as `ctid` says.
//!
//! PostgreSQL names a place on disk by a block and a number in it: 48 bits, written `(block,number)`. Canon names a row by its key. The key of
//! a table without a primary key is a number of the row, and that of one `smallint`, `integer` or `bigint` column is a number, too. A number of
//! up to 48 bits is written as PostgreSQL writes a place. Any other key is written `(\x…)`, all of it, so that two rows never share a `ctid`.
//!
//! ```text
//! six bytes                 number of up to 48 bits     (0,17)
//! seven times 0xff, key     any other key               (\xffffffffffffff6162)
//! ```

use super::invalid_input;
use base::{Result, Type};

/// Kinds of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// The number of a row in a table without a primary key.
    Row,
    /// One signed integer, its sign bit turned.
    Integer,
    Other,
}

const LONG: [u8; 7] = [0xff; 7];

/// The place of the row with this key.
pub fn of_key(key: &[u8], kind: KeyKind) -> Vec<u8> {
    let number = match (kind, key.len()) {
        (KeyKind::Row, 8) => Some(u64::from_be_bytes(key.try_into().expect("8 bytes"))),
        (KeyKind::Integer, 2 | 4 | 8) => {
            let mut wide = [0; 8];
            wide[8 - key.len()..].copy_from_slice(key);
            Some(u64::from_be_bytes(wide) ^ (1 << (key.len() * 8 - 1)))
        }
        _ => None,
    };
    match number.filter(|n| *n < 1 << 48) {
        Some(n) => n.to_be_bytes()[2..].to_vec(),
        None => [&LONG, key].concat(),
    }
}

/// Whether these bytes can be a place.
pub fn is_place(b: &[u8]) -> bool {
    b.len() == 6 || b.starts_with(&LONG)
}

pub fn write(b: &[u8], out: &mut String) {
    use std::fmt::Write;
    if let [a, b, c, d, e, f] = *b {
        let (block, number) = (u32::from_be_bytes([a, b, c, d]), u16::from_be_bytes([e, f]));
        write!(out, "({block},{number})").expect("writing to a string");
        return;
    }
    out.push_str("(\\x");
    for x in b {
        write!(out, "{x:02x}").expect("writing to a string");
    }
    out.push(')');
}

/// 22P02 for what is no place.
pub fn read(s: &str) -> Result<Vec<u8>> {
    let wrong = || invalid_input(Type::Tid, s);
    let inner = s.trim().strip_prefix('(').and_then(|s| s.strip_suffix(')'));
    let inner = inner.ok_or_else(wrong)?;
    if let Some(hex) = inner.strip_prefix("\\x") {
        let digits = hex.as_bytes().chunks(2);
        let byte = |d: &[u8]| {
            let d = std::str::from_utf8(d).ok().filter(|d| d.len() == 2);
            d.and_then(|d| u8::from_str_radix(d, 16).ok())
        };
        let bytes: Option<Vec<u8>> = digits.map(byte).collect();
        return bytes.filter(|b| b.starts_with(&LONG)).ok_or_else(wrong);
    }
    let (block, number) = inner.split_once(',').ok_or_else(wrong)?;
    let block: u32 = block.trim().parse().map_err(|_| wrong())?;
    let number: u16 = number.trim().parse().map_err(|_| wrong())?;
    Ok([&block.to_be_bytes()[..], &number.to_be_bytes()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_as_they_are_written() {
        for (key, kind, text) in [
            (&17u64.to_be_bytes()[..], KeyKind::Row, "(0,17)"),
            (
                &(17u32 ^ 1 << 31).to_be_bytes()[..],
                KeyKind::Integer,
                "(0,17)",
            ),
            (
                &(3u64 << 16 ^ 1 << 63).to_be_bytes()[..],
                KeyKind::Integer,
                "(3,0)",
            ),
            (
                &(-1i64 as u64 ^ 1 << 63).to_be_bytes()[..],
                KeyKind::Integer,
                "(\\xffffffffffffff7fffffffffffffff)",
            ),
            (&b"ab"[..], KeyKind::Other, "(\\xffffffffffffff6162)"),
        ] {
            let place = of_key(key, kind);
            let mut s = String::new();
            write(&place, &mut s);
            assert_eq!(s, text);
            assert_eq!(read(&s).unwrap(), place);
        }
        for bad in ["", "(1)", "1,2", "(1,70000)", "(\\x00)", "(-1,2)"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
