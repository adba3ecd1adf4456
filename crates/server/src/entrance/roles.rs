//! What the schema says of a role that wants in: whether it may log in, and what its password is held against.
//!
//! Left out on purpose: how it proves itself (`access`), and where it comes from.

use base::schema::Schema;
use base::{Error, Result, SqlState};

/// What the schema keeps of the role's password, if it has one.
pub fn verifier<'a>(schema: &'a Schema, user: &str) -> Option<&'a str> {
    schema.role_named(user)?.password.as_deref()
}

/// Whether the role's password counts at this time: after VALID UNTIL it is as good as none, and no password is right (28P01).
pub fn is_valid(schema: &Schema, user: &str, now: i64) -> bool {
    let until = schema.role_named(user).and_then(|r| r.valid_until);
    until.is_none_or(|t| now <= t)
}

/// 28000 for a role that is not there or may not log in.
pub fn may_log_in(schema: &Schema, user: &str) -> Result<()> {
    let what = match schema.role_named(user) {
        Some(role) if role.login => return Ok(()),
        Some(_) => "is not permitted to log in",
        None => "does not exist",
    };
    Err(Error::new(
        SqlState::INVALID_AUTHORIZATION,
        format!("role \"{user}\" {what}"),
    ))
}
