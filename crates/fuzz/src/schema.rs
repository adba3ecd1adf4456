//! `schema`: changes of the schema as a record of the log holds them.

use base::schema::{Schema, decode_changes, encode_changes};

pub fn run(bytes: &[u8]) -> bool {
    let Some(changes) = decode_changes(bytes) else {
        return false;
    };
    let written = encode_changes(&changes);
    let again = decode_changes(&written).expect("what was written can be read");
    assert_eq!(
        encode_changes(&again),
        written,
        "reading and writing settles at once"
    );
    true
}

pub fn seeds() -> Vec<Vec<u8>> {
    vec![
        encode_changes(&Schema::bootstrap("canon").dump()),
        encode_changes(&[]),
    ]
}
