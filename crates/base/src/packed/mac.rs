//! `macaddr` and `macaddr8`: hardware addresses of six and eight bytes. The form is the bytes.

use super::errors::invalid;
use crate::error::{Error, Result, SqlState};
use std::fmt::Write;

pub(super) fn write(form: &[u8], out: &mut String) {
    for (i, b) in form.iter().enumerate() {
        if i > 0 {
            out.push(':');
        }
        write!(out, "{b:02x}").expect("writing to a string");
    }
}

/// Six numbers (`8:0:2b:1:2:3`), or twelve digits in one, two or three groups.
pub(super) fn read(s: &str) -> Result<[u8; 6]> {
    let t = s.trim_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c']);
    let bad = || invalid("macaddr", s);
    for separator in [':', '-'] {
        let parts: Vec<&str> = t.split(separator).collect();
        if parts.len() == 6 {
            let mut out = [0; 6];
            for (b, part) in out.iter_mut().zip(parts) {
                let n = hex(part).ok_or_else(bad)?;
                *b = u8::try_from(n).map_err(|_| {
                    let what = format!("invalid octet value in \"macaddr\" value: \"{s}\"");
                    Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, what)
                })?;
            }
            return Ok(out);
        }
    }
    let groups: &[(char, usize)] = &[(':', 6), ('-', 6), ('.', 4), ('-', 4), (' ', 12)];
    let digits = groups.iter().find_map(|(separator, width)| {
        let parts: Vec<&str> = t.split(*separator).collect();
        let digits = |p: &&str| p.len() == *width && p.bytes().all(|c| c.is_ascii_hexdigit());
        let fits = parts.len() * width == 12 && parts.iter().all(digits);
        fits.then(|| parts.concat())
    });
    let digits = digits.ok_or_else(bad)?;
    let n = u64::from_str_radix(&digits, 16).map_err(|_| bad())?;
    Ok(n.to_be_bytes()[2..].try_into().expect("six bytes"))
}

fn hex(s: &str) -> Option<u32> {
    let digits = !s.is_empty() && s.len() <= 8 && s.bytes().all(|c| c.is_ascii_hexdigit());
    digits.then(|| u32::from_str_radix(s, 16).ok())?
}

/// Six or eight pairs of digits, with one separator between them or none. Of six, `ff:fe` comes into the middle.
pub(super) fn read8(s: &str) -> Result<[u8; 8]> {
    let t = s.trim_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c']);
    let bad = || invalid("macaddr8", s);
    let (mut bytes, mut separator) = (vec![], None);
    let mut rest = t.as_bytes();
    while !rest.is_empty() {
        if let Some(c) = rest.first().filter(|c| matches!(c, b':' | b'-' | b'.')) {
            if bytes.is_empty() || *separator.get_or_insert(*c) != *c {
                return Err(bad());
            }
            rest = &rest[1..];
        }
        let pair = rest.get(..2).and_then(|p| std::str::from_utf8(p).ok());
        let pair = pair.and_then(hex).ok_or_else(bad)?;
        bytes.push(pair as u8);
        rest = &rest[2..];
    }
    match bytes.len() {
        6 => Ok(widen(bytes.try_into().expect("six bytes"))),
        8 => Ok(bytes.try_into().expect("eight bytes")),
        _ => Err(bad()),
    }
}

/// The address of eight bytes that one of six is.
pub fn widen([a, b, c, d, e, f]: [u8; 6]) -> [u8; 8] {
    [a, b, c, 0xff, 0xfe, d, e, f]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_many_spellings_of_one_address() {
        let all = [
            "08:00:2b:01:02:03",
            "8:0:2B:1:2:3",
            "08-00-2b-01-02-03",
            "08002b:010203",
            "08002b-010203",
            "0800.2b01.0203",
            "0800-2b01-0203",
            " 08002b010203 ",
        ];
        for s in all {
            assert_eq!(read(s).unwrap(), [8, 0, 0x2b, 1, 2, 3], "{s}");
        }
        for s in [
            "0800:2b01:0203",
            "not even close",
            "08:00:2b:01:02",
            "08:00:2b:01:02:0g",
        ] {
            assert!(read(s).is_err(), "{s}");
        }
        let wide = [8, 0, 0x2b, 0xff, 0xfe, 1, 2, 3];
        for s in [
            "08:00:2b:01:02:03",
            "08-00-2b-ff-fe-01-02-03",
            "08002bfffe010203",
        ] {
            assert_eq!(read8(s).unwrap(), wide, "{s}");
        }
        assert!(read8("08:00-2b:01:02:03").is_err());
    }
}
