//! `login`: what a client says to prove its password, plain and bound to TLS. `certificate`: the bytes of a certificate.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use protocol::certificate::{end_point, subject};
use protocol::scram::{Exchange, MECHANISM, MECHANISM_PLUS};

const VERIFIER: &str = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$\
    WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";

/// A certificate that has signed itself: ECDSA with SHA-256, /C=AT/CN=alice.
const CERTIFICATE: &str = "\
MIIBkjCCATegAwIBAgIUH4Zr45cghqsDY+X3MYwD8PFrtYkwCgYIKoZIzj0EAwIwHTELMAkGA1UEBhMCQVQxDjAMBgNVBAMM\
BWFsaWNlMCAXDTI2MTEyODEzNDkyNVoYDzIxMjYxMTA0MTM0OTI1WjAdMQswCQYDVQQGEwJBVDEOMAwGA1UEAwwFYWxpY2Uw\
WTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAQOrKfTkb3fZECCu/1L9JkB28eWc0vPm9VsNDd2VBAZKoBgqCp5AEIsLzA0VokX\
6QCPWYjEU2uoJQO0Efgj2Ibso1MwUTAdBgNVHQ4EFgQUE77uj2nlmThtQ/TeMeoFNLhGIqkwHwYDVR0jBBgwFoAUE77uj2nl\
mThtQ/TeMeoFNLhGIqkwDwYDVR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNJADBGAiEA346ZpmkK31O1+hAbWfUxRF6VM773\
bj3EJVsdyg0D/XQCIQCgtfdKndDvwoJbdAVLUUZk58YU7Y+nQlPLl9LkDFbkMA==\
";

/// The first byte chooses the mechanism and the binding; a zero parts the two messages. Accepted: the first message. No bytes are a proof: the
/// nonce is not known before.
pub fn login(bytes: &[u8]) -> bool {
    let Some((&choice, rest)) = bytes.split_first() else {
        return false;
    };
    let Ok(text) = std::str::from_utf8(rest) else {
        return false;
    };
    let (first, last) = text.split_once('\0').unwrap_or((text, ""));
    let end_point: Option<&[u8]> = (choice & 1 == 1).then_some(b"certificate");
    let mechanism = if choice & 2 == 2 {
        MECHANISM_PLUS
    } else {
        MECHANISM
    };
    let exchange = Exchange::new("user", Some(VERIFIER), b"secret", &[7; 18]);
    let mut exchange = exchange.over(end_point);
    let Ok(challenge) = exchange.first(mechanism, first) else {
        return false;
    };
    assert!(challenge.starts_with("r="), "{challenge}");
    assert!(exchange.last(last).is_err(), "no password was known");
    true
}

pub fn logins() -> Vec<Vec<u8>> {
    let plain = b"\0n,,n=user,r=abc\0c=biws,r=abc,p=AAAA";
    let bound = b"\x03p=tls-server-end-point,,n=,r=abc\0c=AAAA,r=abc,p=AAAA";
    vec![plain.to_vec(), bound.to_vec(), b"\0y,,n=,r=x\0".to_vec()]
}

/// Accepted: a certificate that can be read.
pub fn certificate(bytes: &[u8]) -> bool {
    if let Some(hash) = end_point(bytes) {
        assert!(matches!(hash.len(), 32 | 48 | 64), "{}", hash.len());
    }
    let Some(s) = subject(bytes) else {
        return false;
    };
    assert!(s.serial.bytes().all(|b| b.is_ascii_digit()), "{}", s.serial);
    assert!(s.common_name.is_none_or(|n| !n.contains('\0')));
    true
}

pub fn certificates() -> Vec<Vec<u8>> {
    let der = BASE64_STANDARD.decode(CERTIFICATE);
    vec![der.expect("base64")]
}
