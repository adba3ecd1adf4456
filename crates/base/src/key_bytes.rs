//! Bytes of any length in a key: 0x00 is written as 0x00 0xFF, and 0x00 0x00 ends them, so that no key is the beginning of another.

/// Appends the bytes in this form.
pub(crate) fn encode_bytes(b: &[u8], out: &mut Vec<u8>) {
    out.reserve(b.len() + 2);
    let mut rest = b;
    while let Some(i) = rest.iter().position(|&x| x == 0) {
        out.extend_from_slice(&rest[..i]);
        out.extend_from_slice(&[0, 0xFF]);
        rest = &rest[i + 1..];
    }
    out.extend_from_slice(rest);
    out.extend_from_slice(&[0, 0]);
}
