//! Bytes that are to be text: UTF-8 without zero bytes, as PostgreSQL has it, and the error (22021) that shows where they are not.
//!
//! Left out on purpose: other encodings.

use crate::{Error, Result, SqlState};

/// The text that these bytes are.
pub fn text(bytes: &[u8]) -> Result<&str> {
    match std::str::from_utf8(bytes) {
        Ok(s) if !bytes.contains(&0) => Ok(s),
        _ => Err(bad_text(bytes)),
    }
}

/// 22021 for bytes that are no text, with the first that are wrong: as many as the first of them promises.
pub fn bad_text(bytes: &[u8]) -> Error {
    let valid = match std::str::from_utf8(bytes) {
        Ok(s) => s.len(),
        Err(e) => e.valid_up_to(),
    };
    let zero = bytes[..valid].iter().position(|b| *b == 0);
    let wrong = &bytes[zero.unwrap_or(valid)..];
    let promised = match wrong.first() {
        Some(0xc0..0xe0) => 2,
        Some(0xe0..0xf0) => 3,
        Some(0xf0..0xf8) => 4,
        _ => 1,
    };
    let shown = wrong.iter().take(promised).map(|b| format!(" 0x{b:02x}"));
    let message = "invalid byte sequence for encoding \"UTF8\":".to_owned();
    Error::new(
        SqlState::CHARACTER_NOT_IN_REPERTOIRE,
        shown.fold(message, |m, b| m + &b),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_text_is_shown() {
        assert_eq!(text("aä".as_bytes()).unwrap(), "aä");
        for (bytes, shown) in [
            (&b"a\xff"[..], "0xff"),
            (b"a\0\xff", "0x00"),
            (b"\xc3\x28 ", "0xc3 0x28"),
            (b"\xe2\x82", "0xe2 0x82"),
            (b"\xf0\x9f\x92\x41x", "0xf0 0x9f 0x92 0x41"),
        ] {
            let e = text(bytes).unwrap_err();
            assert_eq!(e.code(), SqlState::CHARACTER_NOT_IN_REPERTOIRE);
            let want = format!("invalid byte sequence for encoding \"UTF8\": {shown}");
            assert_eq!(e.fields().message, want);
        }
    }
}
