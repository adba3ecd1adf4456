//! Passwords stay out of what others on the machine can read: the process list, the configuration file, messages.
//!
//! An argument is in the process list from the first moment on, and whatever a program does to its own arguments comes later. So a connection
//! string with a password is refused as an argument. It may stand where only the owner of the process can read it:
//!
//! | where | read by |
//! |---|---|
//! | `CANON_REPLICA_OF`, `PGPASSWORD` | the owner of the process, and root |
//! | the configuration file | its owner (0600), or a group where root owns it (0640); else the start is refused |
//!
//! Left out on purpose: a password file of its own, and secrets that do not look like passwords of connection strings.

use base::{Error, Result, SqlState};

/// Whether a connection string holds a password: `password=` as libpq's words or URL parameters have it, or behind a URL's user.
pub fn has_password(text: &str) -> bool {
    let login = text.split_once("://").map(|(_, rest)| {
        let authority = rest.split(['/', '?']).next().unwrap_or("");
        authority.rsplit_once('@').map_or("", |(login, _)| login)
    });
    let in_login = login
        .and_then(|l| l.split_once(':'))
        .is_some_and(|(_, password)| !password.is_empty());
    let word = |at: usize| {
        let begins = text[..at].ends_with(|c: char| c.is_whitespace() || "=?&'\"".contains(c));
        let value = text[at + WORD.len()..].trim_start().strip_prefix('=');
        let given = value.is_some_and(|v| !v.trim_matches(['\'', '"', ' ']).is_empty());
        (at == 0 || begins) && given
    };
    const WORD: &str = "password";
    in_login || text.match_indices(WORD).any(|(at, _)| word(at))
}

/// The text, unless it holds a password.
pub fn without_password(text: &str) -> &str {
    match has_password(text) {
        true => "(not shown: it holds a password)",
        false => text,
    }
}

/// 22023 for an argument with a password in it.
pub fn refuse_passwords(arguments: impl Iterator<Item = String>) -> Result<()> {
    for (i, argument) in arguments.enumerate() {
        if has_password(&argument) {
            return Err(Error::new(
                SqlState::INVALID_PARAMETER_VALUE,
                format!(
                    "argument {} holds a password, which the process list shows to every user of the machine",
                    i + 1
                ),
            )
            .hint(
                "Leave it out and set PGPASSWORD, or give the whole connection string by CANON_REPLICA_OF or the configuration file.",
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_found_in_connection_strings_only() {
        for with in [
            "postgres://u:p@h:1/db",
            "--replica-of=postgresql://u:p@h",
            "host=h password=x",
            "password = 'x'",
            "--replica-of=password=x",
            "postgres://h/db?user=u&password=x",
        ] {
            assert!(has_password(with), "{with}");
            assert!(!without_password(with).contains('='), "{with}");
        }
        for without in [
            "",
            "h:5432",
            "postgres://u@h:1/db",
            "postgres://u:@h",
            "host=h user=password",
            "host=h password=''",
            "--allow-passwordless-network",
            "--setting=password_encryption=scram-sha-256",
            "http://h:80/a@b",
        ] {
            assert!(!has_password(without), "{without}");
            assert_eq!(without_password(without), without);
        }
        let arguments = ["start", "--replica-of", "host=h password=x"].map(str::to_owned);
        let e = refuse_passwords(arguments.into_iter()).expect_err("refused");
        assert!(e.fields().message.starts_with("argument 3 "), "{e}");
        assert!(!e.to_string().contains("=x"), "{e}");
    }
}
