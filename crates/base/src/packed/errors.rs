//! What is no value: texts (22P02) and bytes of the wire (22P03).

use crate::error::{Error, SqlState};

/// 22P03.
pub(super) fn malformed() -> Error {
    let what = "incorrect binary data format";
    Error::new(SqlState::INVALID_BINARY_REPRESENTATION, what)
}

/// 22P02.
pub(super) fn invalid(ty: &str, s: &str) -> Error {
    let what = format!("invalid input syntax for type {ty}: \"{s}\"");
    Error::new(SqlState::INVALID_TEXT_REPRESENTATION, what)
}
