//! `time with time zone`: a time of day and the zone's distance from UTC.
//!
//! The form is the time in UTC, in microseconds, then the zone's seconds *west* of Greenwich; both big-endian with the sign bit turned, so that
//! the order of the bytes is PostgreSQL's: by moment, then by zone.

use super::errors::malformed;
use crate::error::{Error, Result, SqlState};
use crate::rounding::round_to;
use std::fmt::Write;

/// Bytes of a form.
pub const WIDTH: usize = 12;
const DAY: i64 = 86_400_000_000;
const SECOND: i64 = 1_000_000;
/// No zone is so far from Greenwich, in seconds.
const MOST_WEST: i32 = 16 * 3600;

/// The form of a local time and its zone, in seconds west.
pub fn form(local: i64, west: i32) -> Box<[u8]> {
    let utc = local + i64::from(west) * SECOND;
    let mut out = ((utc as u64) ^ (1 << 63)).to_be_bytes().to_vec();
    out.extend_from_slice(&((west as u32) ^ (1 << 31)).to_be_bytes());
    out.into()
}

/// Local time in microseconds since midnight, and seconds west.
pub fn parts(form: &[u8]) -> (i64, i32) {
    let (utc, west) = form.split_at(8);
    let utc = u64::from_be_bytes(utc.try_into().expect("eight bytes")) ^ (1 << 63);
    let west = u32::from_be_bytes(west.try_into().expect("four bytes")) ^ (1 << 31);
    (utc as i64 - i64::from(west as i32) * SECOND, west as i32)
}

pub(super) fn round(value: Box<[u8]>, typmod: i32) -> Box<[u8]> {
    let (local, west) = parts(&value);
    form(round_to(local, typmod), west)
}

pub(super) fn write(form: &[u8], out: &mut String) {
    let (local, west) = parts(form);
    let (s, fraction) = (local / SECOND, local % SECOND);
    let two = |out: &mut String, sign: &str, n: i64| {
        write!(out, "{sign}{n:02}").expect("writing to a string")
    };
    two(out, "", s / 3600);
    two(out, ":", s / 60 % 60);
    two(out, ":", s % 60);
    if fraction != 0 {
        let digits = format!(".{fraction:06}");
        out.push_str(digits.trim_end_matches('0'));
    }
    let zone = i64::from(west.abs());
    two(out, if west > 0 { "-" } else { "+" }, zone / 3600);
    if zone % 3600 != 0 {
        two(out, ":", zone / 60 % 60);
    }
    if zone % 60 != 0 {
        two(out, ":", zone % 60);
    }
}

pub(super) fn read_binary(b: &[u8]) -> Result<Box<[u8]>> {
    let b: [u8; WIDTH] = b.try_into().map_err(|_| malformed())?;
    let local = i64::from_be_bytes(b[..8].try_into().expect("eight bytes"));
    let west = i32::from_be_bytes(b[8..].try_into().expect("four bytes"));
    if !(0..=DAY).contains(&local) {
        let what = "time out of range";
        return Err(Error::new(SqlState::DATETIME_FIELD_OVERFLOW, what));
    }
    if west <= -MOST_WEST || west >= MOST_WEST {
        let what = "time zone displacement out of range";
        return Err(Error::new(SqlState::INVALID_TIME_ZONE, what));
    }
    Ok(form(local, west))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_order_first_and_texts_show_the_zone() {
        let at = |h: i64, west: i32| form(h * 3600 * SECOND, west * 3600);
        assert!(at(12, 0) < at(12, 1) && at(13, 0) < at(12, 2));
        assert!(
            at(13, 0) < at(12, 1),
            "the same moment, further to the west"
        );
        let shown = |f: &[u8]| {
            let mut s = String::new();
            write(f, &mut s);
            s
        };
        assert_eq!(shown(&at(4, 8)), "04:00:00-08");
        assert_eq!(shown(&form(1_500_000, -19_800)), "00:00:01.5+05:30");
        assert_eq!(parts(&form(DAY, 7)), (DAY, 7));
        assert_eq!(shown(&round(form(1_999_999, 0), 0)), "00:00:02+00");
    }
}
