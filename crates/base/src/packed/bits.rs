//! `bit(n)` and `bit varying(n)`: strings of bits.
//!
//! The form is a byte with the number of unused bits of the last byte, then the bits, the first in the highest place. Unused bits are zero.
//! The order is that of the bytes, then of the lengths.

use super::errors::malformed;
use crate::error::{Error, Result, SqlState};
use std::cmp::Ordering;

/// Most bits of a string, as many as a `bit(n)` may have.
pub const MAX_BITS: usize = 10 * 1024 * 1024 * 8;

pub fn is_form(b: &[u8]) -> bool {
    match b.split_last() {
        None => false,
        Some((0, [])) => true,
        Some((_, [])) => false,
        Some((last, _)) => b[0] < 8 && last & ((1 << b[0]) - 1) == 0,
    }
}

/// How many bits there are.
pub fn len(form: &[u8]) -> usize {
    8 * (form.len() - 1) - form[0] as usize
}

/// Bit `i`, counted from the left.
pub fn get(form: &[u8], i: usize) -> bool {
    form[1 + i / 8] >> (7 - i % 8) & 1 == 1
}

/// Sets bit `i`, counted from the left.
pub fn set(form: &mut [u8], i: usize, bit: bool) {
    let mask = 1 << (7 - i % 8);
    match bit {
        true => form[1 + i / 8] |= mask,
        false => form[1 + i / 8] &= !mask,
    }
}

/// A string of `n` zeros.
pub fn zeros(n: usize) -> Box<[u8]> {
    let mut form = vec![0; 1 + n.div_ceil(8)];
    form[0] = (n.div_ceil(8) * 8 - n) as u8;
    form.into()
}

/// The string of these bits.
pub fn collect(bits: impl ExactSizeIterator<Item = bool>) -> Box<[u8]> {
    let mut form = zeros(bits.len());
    for (i, bit) in bits.enumerate() {
        if bit {
            set(&mut form, i, true);
        }
    }
    form
}

/// `n` bits from bit `from` on; those past the end are zero.
pub fn part(form: &[u8], from: usize, n: usize) -> Box<[u8]> {
    let all = len(form);
    if from.is_multiple_of(8) && from + n <= all {
        let mut out = zeros(n);
        let bytes = out.len() - 1;
        out[1..].copy_from_slice(&form[1 + from / 8..1 + from / 8 + bytes]);
        clear_unused(&mut out);
        return out;
    }
    collect((from..from + n).map(|i| i < all && get(form, i)))
}

/// Makes the unused bits of the last byte zero.
pub fn clear_unused(form: &mut [u8]) {
    let unused = form[0];
    if let Some(last) = form[1..].last_mut() {
        *last &= !((1u8 << unused) - 1);
    }
}

/// The low `n` bits of a number, with its sign before them when `n` is greater than its width.
pub fn of_number(x: i64, n: usize) -> Box<[u8]> {
    collect((0..n).map(|i| x >> (n - 1 - i).min(63) & 1 == 1))
}

/// The bits as the low bits of a number.
pub fn to_number(form: &[u8]) -> u64 {
    (0..len(form)).fold(0, |n, i| n << 1 | u64::from(get(form, i)))
}

pub(super) fn compare(a: &[u8], b: &[u8]) -> Ordering {
    a[1..].cmp(&b[1..]).then_with(|| b[0].cmp(&a[0]))
}

pub(super) fn write_key(form: &[u8], out: &mut Vec<u8>) {
    crate::key_bytes::encode_bytes(&form[1..], out);
    out.push(8 - form[0]);
}

pub(super) fn write(form: &[u8], out: &mut String) {
    out.extend((0..len(form)).map(|i| if get(form, i) { '1' } else { '0' }));
}

/// `101`, `b101` or `x1F`.
pub(super) fn read(s: &str) -> Result<Box<[u8]>> {
    match s.as_bytes().first() {
        Some(b'x' | b'X') => read_hex(&s[1..]),
        Some(b'b' | b'B') => read_binary_digits(&s[1..]),
        _ => read_binary_digits(s),
    }
}

fn wrong_digit(c: char, what: &str) -> Error {
    let what = format!("\"{c}\" is not a valid {what} digit");
    Error::new(SqlState::INVALID_TEXT_REPRESENTATION, what)
}

fn too_long(bits: usize) -> Result<()> {
    if bits > MAX_BITS {
        let what = format!("bit string length exceeds the maximum allowed ({MAX_BITS})");
        return Err(Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, what));
    }
    Ok(())
}

/// The string of these digits, 0 and 1; 22P02 for others.
pub fn read_binary_digits(s: &str) -> Result<Box<[u8]>> {
    if let Some(c) = s.chars().find(|c| !matches!(c, '0' | '1')) {
        return Err(wrong_digit(c, "binary"));
    }
    too_long(s.len())?;
    Ok(collect(s.bytes().map(|b| b == b'1')))
}

/// The string of these hexadecimal digits, four bits each; 22P02 for others.
pub fn read_hex(s: &str) -> Result<Box<[u8]>> {
    let wrong = s.chars().find(|c| !c.is_ascii_hexdigit());
    if let Some(c) = wrong {
        return Err(wrong_digit(c, "hexadecimal"));
    }
    too_long(4 * s.len())?;
    let mut form = zeros(4 * s.len());
    for (i, c) in s.chars().enumerate() {
        let digit = c.to_digit(16).expect("looked at above") as u8;
        form[1 + i / 2] |= digit << (4 * (1 - i % 2));
    }
    Ok(form)
}

pub(super) fn read_binary(b: &[u8]) -> Result<Box<[u8]>> {
    let (n, bytes) = b.split_first_chunk::<4>().ok_or_else(malformed)?;
    let n = u32::from_be_bytes(*n) as usize;
    if n.div_ceil(8) != bytes.len() {
        return Err(malformed());
    }
    too_long(n)?;
    let mut form = zeros(n);
    form[1..].copy_from_slice(bytes);
    clear_unused(&mut form);
    Ok(form)
}

/// Whether a column of `n` bits, or of at most `n`, takes the string.
pub(super) fn check(fixed: bool, form: &[u8], n: usize) -> Result<()> {
    let has = len(form);
    if fixed && has != n {
        let what = format!("bit string length {has} does not match type bit({n})");
        return Err(Error::new(SqlState::STRING_DATA_LENGTH_MISMATCH, what));
    }
    if has > n {
        let what = format!("bit string too long for type bit varying({n})");
        return Err(Error::new(SqlState::STRING_DATA_RIGHT_TRUNCATION, what));
    }
    Ok(())
}

/// The string as a cast to this length makes it: cut at the right; one of a fixed length is filled up with zeros.
pub fn cut(fixed: bool, form: Box<[u8]>, n: usize) -> Box<[u8]> {
    let has = len(&form);
    match has > n || fixed && has < n {
        true => part(&form, 0, n),
        false => form,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(form: &[u8]) -> String {
        let mut s = String::new();
        write(form, &mut s);
        s
    }

    #[test]
    fn parts_numbers_and_lengths() {
        let all = read("1011001110001").unwrap();
        assert!(is_form(&all));
        assert_eq!(
            (len(&all), show(&part(&all, 0, 9)).as_str()),
            (13, "101100111")
        );
        assert_eq!(show(&part(&all, 3, 5)), "10011");
        assert_eq!(show(&part(&all, 8, 8)), "10001000");
        assert_eq!(show(&of_number(44, 10)), "0000101100");
        assert_eq!(show(&of_number(-44, 12)), "111111010100");
        assert_eq!(show(&of_number(-1, 70)), "1".repeat(70));
        assert_eq!(to_number(&read("x1F").unwrap()), 31);
        assert_eq!(show(&read("xab5").unwrap()), "101010110101");
        assert_eq!(show(&cut(true, read("101").unwrap(), 5)), "10100");
        assert_eq!(show(&cut(false, read("101").unwrap(), 2)), "10");
        assert!(read("12").is_err() && read("xg").is_err());
    }
}
