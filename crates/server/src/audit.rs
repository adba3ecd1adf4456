//! What an auditor asks the log for, under the target `canon::audit`: logins that were refused, changes of schema, roles and rights with the role
//! that made them, and the configuration that a server starts with.
//!
//! ```text
//! connections::startup ── refused login ──▶            sql::session ── DDL, GRANT, roles ──▶ Host::audit ──▶            server::run ── configuration ──▶
//! ```
//! `log_level = "warn,canon::audit=info"` keeps these when the rest is quiet. A statement stands in the log as it was sent, as PostgreSQL's
//! `log_statement = ddl` has it, whether or not its transaction commits; from the word PASSWORD on it is cut. Texts of clients are escaped, so
//! that no name and no statement can forge a line.
//!
//! Left out on purpose: reads, writes of rows, and logins that succeed.

use crate::config::Config;
use base::{Error, SqlState};
use sql::session::Deed;
use std::net::SocketAddr;
use tracing::{info, warn};

/// Most characters of a statement.
const MOST: usize = 1000;

/// The configuration in force, without passwords.
pub fn configuration(config: &Config) {
    info!(target: "canon::audit", configuration = ?config, "starting");
}

/// A login that was refused. `address`: none for a Unix socket.
pub fn refused_login(user: &str, address: Option<SocketAddr>, e: &Error) {
    let from = address.map_or_else(|| "local".to_owned(), |a| a.to_string());
    warn!(target: "canon::audit", ?user, from, code = %e.code(), reason = e.fields().message, "login refused");
}

/// A handshake of TLS that failed: a certificate that does not count, or no TLS at all.
pub fn refused_handshake(address: Option<SocketAddr>, e: &Error) {
    let from = address.map_or_else(|| "local".to_owned(), |a| a.to_string());
    warn!(target: "canon::audit", from, reason = e.fields().message, "TLS refused");
}

/// A statement that changed the schema, roles or rights, or was refused for want of rights.
pub fn deed(d: &Deed<'_>) {
    let (role, login, pid) = (d.role, d.session_user, d.pid);
    let statement = shown(d.statement);
    match d.refused {
        None => {
            info!(target: "canon::audit", ?role, ?login, pid, ?statement, "{}", d.tag);
        }
        Some(e) if e.code() == SqlState::INSUFFICIENT_PRIVILEGE => {
            let reason = &e.fields().message;
            warn!(target: "canon::audit", ?role, ?login, pid, ?statement, reason, "refused");
        }
        Some(_) => {}
    }
}

/// The statement up to the word PASSWORD, and not too long.
fn shown(statement: &str) -> String {
    const WORD: &[u8] = b"password";
    let bytes = statement.as_bytes();
    let secret = bytes
        .windows(WORD.len())
        .position(|w| w.eq_ignore_ascii_case(WORD));
    let mut text: String = match secret {
        Some(at) => statement[..at + WORD.len()].chars().take(MOST).collect(),
        None => statement.chars().take(MOST).collect(),
    };
    if text.len() < statement.len() {
        text.push_str(" ...");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_and_long_texts_are_cut() {
        for (statement, wanted) in [
            ("DROP TABLE t", "DROP TABLE t"),
            (
                "create role r login password 'x'",
                "create role r login password ...",
            ),
            (
                "DO 'é'; ALTER ROLE r PassWord 'x'; DROP TABLE t",
                "DO 'é'; ALTER ROLE r PassWord ...",
            ),
            ("ALTER ROLE password", "ALTER ROLE password"),
        ] {
            assert_eq!(shown(statement), wanted);
        }
        let long = shown(&"é".repeat(MOST + 1));
        assert_eq!(long.chars().count(), MOST + 4);
    }
}
