//! What a node says of itself at `/metrics`.
//!
//! Left out on purpose: metrics with labels, which a caller looks for in the text.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// The text at this port; empty: no answer in this time.
pub fn metrics(port: u16, within: Duration) -> String {
    let ask = || -> std::io::Result<String> {
        let mut s = TcpStream::connect(("127.0.0.1", port))?;
        s.set_read_timeout(Some(within))?;
        write!(s, "GET /metrics HTTP/1.1\r\n\r\n")?;
        let mut text = String::new();
        s.read_to_string(&mut text)?;
        Ok(text)
    };
    ask().unwrap_or_default()
}

/// The value of a metric without labels.
pub fn value(text: &str, name: &str) -> Option<f64> {
    let mut lines = text.lines();
    let line = lines.find_map(|l| l.strip_prefix(name)?.strip_prefix(' '));
    line?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_begins_alike_is_another() {
        let text = "# TYPE a counter\na_more 7\na{of=\"b\"} 3\na 2.5\n";
        assert_eq!(value(text, "a"), Some(2.5));
        assert_eq!(value(text, "b"), None);
    }
}
