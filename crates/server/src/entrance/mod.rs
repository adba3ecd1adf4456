//! What clients need to come in, as the configuration says it: TLS, and rules of which role may come from where.
//!
//! ```text
//! config ──▶ Entrance { certificates, rules, what is allowed in so many words } ──▶ connections
//! ```
//! Left out on purpose: what a connection is asked, and in which order (`connections::startup`).

pub mod access;
pub mod roles;

use protocol::tls::Acceptor;
use std::path::PathBuf;
use std::sync::Arc;

/// See the head of the file.
#[derive(Clone, Debug, Default)]
pub struct Entrance {
    /// Roles without a password get in from other machines too.
    pub allow_passwordless_network: bool,
    /// So do connections without TLS.
    pub allow_plain_network: bool,
    /// None: no TLS.
    pub tls: Option<Arc<Acceptor>>,
    /// Which role may come from where; empty: see [`access`].
    pub access: Vec<access::Rule>,
}

impl Entrance {
    /// Settings of PostgreSQL that show it: name, value.
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        let Some(tls) = &self.tls else {
            return Vec::new();
        };
        let files = tls.files();
        let shown = |path: &PathBuf| path.display().to_string();
        let ca = files.client_ca.as_ref().map(shown);
        vec![
            ("ssl", "on".to_owned()),
            ("ssl_cert_file", shown(&files.certificate)),
            ("ssl_key_file", shown(&files.key)),
            ("ssl_ca_file", ca.unwrap_or_default()),
        ]
    }
}
