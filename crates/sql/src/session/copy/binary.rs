//! COPY's binary format.
//!
//! ```text
//! | "PGCOPY\n\xff\r\n\0" | flags u32 | length of the extension u32 | extension |
//! per row | fields u16 | per field: length i32 (-1: NULL), bytes |
//! | -1 i16 |
//! ```

use super::bad_data;
use base::Result;

pub const SIGNATURE: &[u8; 11] = b"PGCOPY\n\xff\r\n\0";

/// Appends the header.
pub fn put_header(out: &mut Vec<u8>) {
    out.extend_from_slice(SIGNATURE);
    out.extend_from_slice(&[0; 8]);
}

/// Appends the end.
pub fn put_end(out: &mut Vec<u8>) {
    out.extend_from_slice(&(-1i16).to_be_bytes());
}

/// The length of the header at the front of `buf`. None: more is needed.
pub fn header(buf: &[u8]) -> Result<Option<usize>> {
    let n = buf.len().min(SIGNATURE.len());
    if buf[..n] != SIGNATURE[..n] {
        return Err(bad_data("COPY file signature not recognized"));
    }
    let Some(rest) = buf.get(11..19) else {
        return Ok(None);
    };
    let word = |i: usize| u32::from_be_bytes([rest[i], rest[i + 1], rest[i + 2], rest[i + 3]]);
    if word(0) >> 16 != 0 {
        return Err(bad_data("unrecognized critical flags in COPY file header"));
    }
    let whole = 19usize.saturating_add(word(4) as usize);
    Ok((buf.len() >= whole).then_some(whole))
}

/// A row at the front of `buf`.
pub enum Row<'a> {
    /// Its fields, and the bytes it took.
    Fields(Vec<Option<&'a [u8]>>, usize),
    End,
    More,
}

/// Takes a row of `columns` fields apart.
pub fn row(buf: &[u8], columns: usize) -> Result<Row<'_>> {
    let Some(head) = buf.get(..2) else {
        return Ok(Row::More);
    };
    let n = i16::from_be_bytes([head[0], head[1]]);
    if n == -1 {
        return Ok(Row::End);
    }
    if n < 0 || n as usize != columns {
        return Err(bad_data(format!(
            "row field count is {n}, expected {columns}"
        )));
    }
    let mut at = 2;
    let mut out = Vec::with_capacity(columns);
    for _ in 0..columns {
        let Some(b) = buf.get(at..at + 4) else {
            return Ok(Row::More);
        };
        let len = i32::from_be_bytes([b[0], b[1], b[2], b[3]]);
        at += 4;
        if len == -1 {
            out.push(None);
            continue;
        }
        let len = usize::try_from(len).map_err(|_| bad_data("invalid field size"))?;
        let Some(v) = buf.get(at..at.saturating_add(len)) else {
            return Ok(Row::More);
        };
        out.push(Some(v));
        at += len;
    }
    Ok(Row::Fields(out, at))
}
