//! `wire`: what a client sends after the start-up, message by message.

use protocol::frontend::{Frontend, decode, frame};

/// Accepted: every message up to the first incomplete one is well formed, and there is at least one.
pub fn run(bytes: &[u8]) -> bool {
    let (mut rest, mut messages) = (bytes, 0);
    while let Ok(Some((kind, length))) = frame(rest) {
        assert!(
            (5..=rest.len()).contains(&length),
            "a whole message lies in the buffer"
        );
        let Ok(message) = decode(kind, &rest[5..length]) else {
            return false;
        };
        if let Frontend::Bind(bind) = message {
            let sent: usize = bind.params.iter().flatten().map(<[u8]>::len).sum();
            assert!(sent < length, "parameters lie inside their message");
            assert_eq!(bind.params.iter().count(), bind.params.count);
            for formats in [bind.param_formats, bind.result_formats] {
                assert_eq!(formats.iter().count(), formats.len());
            }
        }
        (rest, messages) = (&rest[length..], messages + 1);
    }
    messages > 0 && frame(rest).is_ok()
}

pub fn seeds() -> Vec<Vec<u8>> {
    let message = |kind: u8, body: &[u8]| {
        let mut bytes = vec![kind];
        bytes.extend((body.len() as i32 + 4).to_be_bytes());
        bytes.extend(body);
        bytes
    };
    let parse = message(b'P', b"s\0SELECT $1, $2\0\0\x01\0\0\0\x17");
    let bind = message(
        b'B',
        b"\0s\0\0\x01\0\x01\0\x02\0\0\0\x04abcd\xff\xff\xff\xff\0\x01\0\0",
    );
    let rest = [
        message(b'D', b"P\0"),
        message(b'E', b"\0\0\0\0\x0a"),
        message(b'C', b"Ss\0"),
        message(b'S', b""),
    ];
    vec![
        message(b'Q', b"SELECT 1\0"),
        [parse, bind, rest.concat()].concat(),
        [message(b'd', b"1\t2\n"), message(b'c', b"")].concat(),
        [message(b'H', b""), message(b'X', b"")].concat(),
    ]
}
