//! The first message of a connection, from the side that writes it and from the side that reads it.
//!
//! ```text
//! | length i32, itself included | code i32 | body |
//! code 3.x: a start-up message, whose body is pairs of strings, and an empty string at the end
//! other codes: a request in its place (TLS, GSS encryption, to cancel what another connection runs)
//! ```
//! Left out on purpose: protocol 2, and requests of Canon's nodes to each other.

use crate::frontend::{Reader, violation};
use base::{Error, Result, SqlState};

/// Codes of the requests that stand in place of a start-up message.
pub const SSL_REQUEST: u32 = 80_877_103;
pub const GSS_REQUEST: u32 = 80_877_104;
pub const CANCEL_REQUEST: u32 = 80_877_102;
/// Longest first message, its length included.
pub const MAX_STARTUP: usize = 10_000;

/// The setting by which a proxy is told of all settings that change, and of the log's term.
pub const REPORT_SETTINGS: &str = "canon.report_settings";
/// The start-up parameter that names the role that a session is for.
pub const SESSION_USER: &str = "canon.session_user";
/// The start-up parameter by which a replica says where it takes clients: an address and a port.
pub const LISTEN: &str = "canon.listen";
/// The start-up parameter by which a replica says its number in a cluster that runs itself.
pub const MEMBER: &str = "canon.member";
/// The start-up parameter by which a member says which member it means to reach: that one's number.
pub const MEANT: &str = "canon.meant";
/// The start-up parameter by which a replica says that it knows of read leases: `on`.
pub const LEASES: &str = "canon.leases";
/// The start-up parameter by which a replica says that it can be told how to acknowledge: `on`.
pub const ACKS: &str = "canon.acks";

/// The start-up parameter of a proxy that passes a client's login on: the binding of the connection that the client sees, with a proof by the
/// cluster's secret.
pub const RELAYED: &str = "canon.relayed";
/// The start-up parameter of a node or a proxy that proves the cluster's secret and has it proven: its name.
pub const NODE: &str = "canon.node";
/// The name of that exchange among a server's ways to authenticate.
pub const NODE_MECHANISM: &str = "CANON-NODE-1";

/// A start-up message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Startup {
    /// The minor version that the client speaks at most.
    pub minor: u16,
    /// As they came.
    pub parameters: Vec<(String, String)>,
}

impl Startup {
    /// Reads one from its version on, without the length. 0A000 for another major version, 08P01 for a message that is malformed.
    pub fn read(message: &[u8]) -> Result<Startup> {
        let mut r = Reader(message);
        let (major, minor) = (r.u16()?, r.u16()?);
        if major != 3 {
            return Err(Error::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                format!(
                    "unsupported frontend protocol {major}.{minor}: server supports 3.0 to 3.0"
                ),
            ));
        }
        let mut parameters = Vec::new();
        loop {
            let name = r.string()?;
            if name.is_empty() {
                break;
            }
            parameters.push((name.to_owned(), r.string()?.to_owned()));
        }
        if !r.0.is_empty() {
            return Err(violation(
                "invalid startup packet layout: expected terminator as last byte",
            ));
        }
        let minor = minor as u16;
        Ok(Startup { minor, parameters })
    }
}

/// A whole start-up message.
pub fn message<'a>(
    minor: u16,
    parameters: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Vec<u8> {
    let mut m = vec![0, 0, 0, 0, 0, 3];
    m.extend_from_slice(&minor.to_be_bytes());
    for (name, value) in parameters {
        for s in [name, value] {
            m.extend_from_slice(s.as_bytes());
            m.push(0);
        }
    }
    m.push(0);
    let len = m.len() as u32;
    m[..4].copy_from_slice(&len.to_be_bytes());
    m
}

/// A whole request to cancel what a connection runs; `key` is the process number and the secret of its BackendKeyData.
pub fn cancel(key: &[u8; 8]) -> Vec<u8> {
    let mut m = 16u32.to_be_bytes().to_vec();
    m.extend_from_slice(&CANCEL_REQUEST.to_be_bytes());
    m.extend_from_slice(key);
    m
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let parameters = [("user", "a"), ("options", "-c x=1"), ("empty", "")];
        let m = message(2, parameters);
        assert_eq!(m[..4], (m.len() as u32).to_be_bytes());
        let s = Startup::read(&m[4..]).unwrap();
        let read: Vec<_> = s.parameters.iter().map(|(k, v)| (&**k, &**v)).collect();
        assert_eq!((s.minor, read), (2, parameters.to_vec()));
    }

    #[test]
    fn malformed_messages_are_errors_and_not_panics() {
        let m = message(0, [("user", "a")]);
        for n in 4..m.len() {
            assert!(Startup::read(&m[4..n]).is_err(), "{n}");
        }
        let longer = [&m[4..], b"x"].concat();
        let e = Startup::read(&longer).unwrap_err();
        assert_eq!(e.code(), SqlState::PROTOCOL_VIOLATION);
        let e = Startup::read(&[0, 2, 0, 0, 0]).unwrap_err();
        assert_eq!(e.code(), SqlState::FEATURE_NOT_SUPPORTED);
    }

    #[test]
    fn a_request_to_cancel_carries_the_key() {
        let m = cancel(b"\0\0\0\x07\xff\xff\xff\xff");
        assert_eq!(m, b"\0\0\0\x10\x04\xd2\x16\x2e\0\0\0\x07\xff\xff\xff\xff");
    }
}
