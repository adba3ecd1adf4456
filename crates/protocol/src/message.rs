//! Messages as bytes: what a client reads of a server, and what a proxy writes in the place of either.
//!
//! A whole message is its type, its length and its body; a body is what follows the first two.
//!
//! Left out on purpose: messages that a proxy passes on unread.

use base::{Error, SqlState};

/// Rows as texts, NULL as none.
pub type Rows = Vec<Vec<Option<String>>>;

/// Appends a string and its zero byte; a zero inside ends it early, as it would for the reader.
pub fn put_cstr(b: &mut Vec<u8>, s: &str) {
    let bytes = s.as_bytes();
    let end = bytes.iter().position(|&c| c == 0).unwrap_or(bytes.len());
    b.extend_from_slice(&bytes[..end]);
    b.push(0);
}

/// Reads a string that ends with a zero byte; what follows it.
pub fn cstr(b: &[u8]) -> (&[u8], &[u8]) {
    let end = b.iter().position(|x| *x == 0).unwrap_or(b.len());
    (&b[..end], b.get(end + 1..).unwrap_or_default())
}

/// A string as a text, whatever its bytes.
pub fn text(b: &[u8]) -> String {
    String::from_utf8_lossy(b).into_owned()
}

/// A field of an ErrorResponse.
pub fn field(body: &[u8], kind: u8) -> Option<String> {
    let fields = body.split(|b| *b == 0);
    fields.into_iter().find_map(|f| match f.split_first() {
        Some((k, rest)) if *k == kind => Some(text(rest)),
        _ => None,
    })
}

/// What an ErrorResponse says. A code that is none counts as XX000.
pub fn server_error(body: &[u8]) -> Error {
    let field = |kind: u8| field(body, kind).unwrap_or_default();
    let code = field(b'C').into_bytes();
    let code = SqlState(code.try_into().unwrap_or(*b"XX000"));
    Error::new(code, field(b'M'))
        .detail(field(b'D'))
        .hint(field(b'H'))
}

/// The fields of a DataRow; `None` when it is malformed.
pub fn row(body: &[u8]) -> Option<Vec<Option<String>>> {
    let (count, mut rest) = body.split_at_checked(2)?;
    let n = u16::from_be_bytes([count[0], count[1]]);
    let mut fields = Vec::with_capacity(n.into());
    for _ in 0..n {
        let (len, tail) = rest.split_at_checked(4)?;
        let len = i32::from_be_bytes(len.try_into().ok()?);
        rest = tail;
        fields.push(match usize::try_from(len) {
            Err(_) => None,
            Ok(len) => {
                let (value, tail) = rest.split_at_checked(len)?;
                rest = tail;
                Some(text(value))
            }
        });
    }
    Some(fields)
}

/// The message with another SQLSTATE.
pub fn with_code(whole: &[u8], old: &str, new: &str) -> Vec<u8> {
    let mut m = whole.to_vec();
    let field = format!("\0C{old}\0");
    if let Some(at) = m.windows(field.len()).position(|w| w == field.as_bytes()) {
        m[at + 2..][..new.len()].copy_from_slice(new.as_bytes());
    }
    m
}

/// Name and value of a ParameterStatus.
pub fn parameter(body: &[u8]) -> Option<(String, String)> {
    let (name, rest) = cstr(body);
    (!name.is_empty()).then(|| (text(name), text(cstr(rest).0)))
}

/// A whole message.
pub fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut m = vec![kind];
    m.extend_from_slice(&((body.len() + 4) as u32).to_be_bytes());
    m.extend_from_slice(body);
    m
}

/// An ErrorResponse of ours.
pub fn error(severity: &str, code: &str, what: &str) -> Vec<u8> {
    of_fields(severity, code, &[(b'M', what)])
}

/// The ErrorResponse with which a connection ends, with what may help.
pub fn fatal(e: &Error) -> Vec<u8> {
    let f = e.fields();
    let said = [(b'M', &*f.message), (b'D', &f.detail), (b'H', &f.hint)];
    of_fields("FATAL", &e.code().to_string(), &said)
}

/// Fields without a text are left out.
fn of_fields(severity: &str, code: &str, said: &[(u8, &str)]) -> Vec<u8> {
    let head = [(b'S', severity), (b'V', severity), (b'C', code)];
    let mut body = Vec::new();
    for (kind, v) in head.iter().chain(said).filter(|(_, v)| !v.is_empty()) {
        body.push(*kind);
        body.extend_from_slice(v.as_bytes());
        body.push(0);
    }
    body.push(0);
    message(b'E', &body)
}

/// A ReadyForQuery.
pub fn ready(status: u8) -> Vec<u8> {
    message(b'Z', &[status])
}

/// A ParameterStatus.
pub fn status(name: &str, value: &str) -> Vec<u8> {
    message(b'S', format!("{name}\0{value}\0").as_bytes())
}

/// A FATAL error of a session that ends with nothing under way: see [`NOTHING_RUN`](crate::NOTHING_RUN).
pub fn nothing_run() -> Vec<u8> {
    let mut m = error(
        "FATAL",
        "57P01",
        "terminating connection due to administrator command",
    );
    m.pop();
    m.extend_from_slice(format!("D{}\0\0", crate::NOTHING_RUN).as_bytes());
    let len = (m.len() - 1) as u32;
    m[1..5].copy_from_slice(&len.to_be_bytes());
    m
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_read_and_a_short_one_refused() {
        let body = b"\0\x02\0\0\0\x01a\xff\xff\xff\xff";
        assert_eq!(row(body), Some(vec![Some("a".into()), None]));
        for n in 0..body.len() {
            assert_eq!(row(&body[..n]), None, "{n}");
        }
    }

    #[test]
    fn an_error_is_read_as_it_was_written() {
        let m = error("ERROR", "40001", "again");
        let e = server_error(&m[5..]);
        assert_eq!((e.code().code(), &*e.fields().message), ("40001", "again"));
        let other = with_code(&m, "40001", "40003");
        assert_eq!(server_error(&other[5..]).code().code(), "40003");
        let e = server_error(&nothing_run()[5..]);
        assert_eq!(e.fields().detail, crate::NOTHING_RUN);
        assert_eq!(server_error(b"Cbad\0\0").code(), SqlState::INTERNAL_ERROR);
    }
}
