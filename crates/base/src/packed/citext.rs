//! `citext`: a text that compares without regard to case. The form is the text's bytes; the key and the order are those of the text in lower case.

use std::cmp::Ordering;

/// One character in lower case, where that is one character.
pub fn lower(c: char) -> char {
    let mut it = c.to_lowercase();
    match (it.next(), it.next()) {
        (Some(l), None) => l,
        _ => c,
    }
}

/// The text of a form that is known to be one.
pub fn text(form: &[u8]) -> &str {
    std::str::from_utf8(form).expect("the form is a text")
}

pub(super) fn compare(a: &[u8], b: &[u8]) -> Ordering {
    // UTF-8 orders as the characters do.
    text(a).chars().map(lower).cmp(text(b).chars().map(lower))
}

pub(super) fn write_key(form: &[u8], out: &mut Vec<u8>) {
    let folded: String = text(form).chars().map(lower).collect();
    crate::key_bytes::encode_bytes(folded.as_bytes(), out);
}
