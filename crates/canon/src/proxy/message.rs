//! Messages of the wire protocol, as far as who passes them on must read and write them.
//!
//! Whole messages are bytes with their type and length; a body is what follows these.
//!
//! Left out on purpose: all that is passed on unread.

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
    let mut body = Vec::new();
    for (kind, v) in [
        (b'S', severity),
        (b'V', severity),
        (b'C', code),
        (b'M', what),
    ] {
        body.push(kind);
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
