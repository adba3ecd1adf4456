//! The sections `[tls]`, a certificate and its key, and `[[access]]`, which role may come from where.
//!
//! ```text
//! tls.certificate, tls.key ──▶ both or none ──▶ the key is the certificate's, and the file is readable for its owner alone ──▶ Acceptor
//! ```
//! The files are read here, so that a start with a wrong one ends before a disk or a socket is touched.
//!
//! Left out on purpose: a choice of ciphers and of versions of TLS. Those of `rustls` are all sound.

use super::secrets;
use crate::entrance::access::{Method, Roles, Rule, Source};
use base::{Error, Result, SqlState};
use protocol::tls::{Acceptor, Files, authorities};
use serde::Deserialize;
use std::path::PathBuf;
use std::sync::Arc;

/// What flags and variables say.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Flags {
    /// Let connections without TLS in from other machines
    #[arg(long, env = "CANON_ALLOW_PLAIN_NETWORK")]
    pub allow_plain_network: bool,
    /// The server's certificate for TLS, PEM, with those of authorities between it and one that clients know
    #[arg(long, value_name = "FILE", env = "CANON_TLS_CERTIFICATE")]
    pub tls_certificate: Option<PathBuf>,
    /// The certificate's private key, PEM; only the server may read it
    #[arg(long, value_name = "FILE", env = "CANON_TLS_KEY")]
    pub tls_key: Option<PathBuf>,
    /// Authorities that sign certificates of clients, PEM
    #[arg(long, value_name = "FILE", env = "CANON_TLS_CLIENT_CA")]
    pub tls_client_ca: Option<PathBuf>,
    /// Authorities that sign certificates of the cluster's nodes, PEM; other nodes must show one for their host then
    #[arg(long, value_name = "FILE", env = "CANON_TLS_CLUSTER_CA")]
    pub tls_cluster_ca: Option<PathBuf>,
}

/// The section of the file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tls {
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    client_ca: Option<PathBuf>,
    cluster_ca: Option<PathBuf>,
}

/// One section `[[access]]`. What is left out is `any`, or `all`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Access {
    from: Option<String>,
    role: Option<String>,
    database: Option<String>,
    tls: Option<bool>,
    method: String,
}

/// The rules that these sections are. 22023 for one that is none.
pub(super) fn rules(sections: &[Access], knows_clients: bool) -> Result<Vec<Rule>> {
    let one = |(i, a): (usize, &Access)| {
        let bad = |key: &str, value: &str, why: &str| {
            let code = SqlState::INVALID_PARAMETER_VALUE;
            Error::new(
                code,
                format!("access rule {}: {key} = {value:?}: {why}", i + 1),
            )
        };
        let from = a.from.as_deref().unwrap_or("any");
        let places = "any, local, or an address such as 10.0.0.7 or 10.0.0.0/8";
        let method = match a.method.as_str() {
            "scram" => Method::Scram,
            "cert" if !knows_clients => {
                return Err(bad("method", "cert", "it needs tls.client_ca"));
            }
            "cert" => Method::Cert,
            "trust" => Method::Trust,
            "reject" => Method::Reject,
            m => return Err(bad("method", m, "scram, cert, trust or reject")),
        };
        Ok(Rule {
            from: Source::parse(from).ok_or_else(|| bad("from", from, places))?,
            roles: match a.role.as_deref() {
                None | Some("all") => Roles::All,
                Some("" | "+") => return Err(bad("role", "", "a role, or + and a role")),
                Some(role) => match role.strip_prefix('+') {
                    Some(group) => Roles::MembersOf(group.to_owned()),
                    None => Roles::Role(role.to_owned()),
                },
            },
            database: a.database.clone().filter(|d| d != "all"),
            tls: a.tls,
            method,
        })
    };
    sections.iter().enumerate().map(one).collect()
}

/// 22023.
fn bad(key: &str, why: impl std::fmt::Display) -> Error {
    let code = SqlState::INVALID_PARAMETER_VALUE;
    Error::new(code, format!("tls.{key}: {why}"))
}

/// What a flag says, else the file; an empty path is none.
fn said(flag: &Option<PathBuf>, file: &Option<PathBuf>) -> Option<PathBuf> {
    let path = flag.clone().or_else(|| file.clone());
    path.filter(|p| !p.as_os_str().is_empty())
}

impl Tls {
    /// Authorities of the cluster's nodes; 22023 for a file without one.
    pub fn cluster_ca(&self, flags: &Flags) -> Result<Option<PathBuf>> {
        let path = said(&flags.tls_cluster_ca, &self.cluster_ca);
        if let Some(path) = &path {
            authorities(path).map_err(|e| bad("cluster_ca", &e.fields().message))?;
        }
        Ok(path)
    }

    /// Whether certificates of clients can be looked at.
    pub fn knows_clients(&self, flags: &Flags) -> bool {
        said(&flags.tls_client_ca, &self.client_ca).is_some()
    }

    /// What flags and file say together. `None`: nothing, so there is no TLS.
    pub fn acceptor(&self, flags: &Flags) -> Result<Option<Arc<Acceptor>>> {
        let certificate = said(&flags.tls_certificate, &self.certificate);
        let key = said(&flags.tls_key, &self.key);
        let client_ca = said(&flags.tls_client_ca, &self.client_ca);
        let files = match (certificate, key) {
            (Some(certificate), Some(key)) => Files {
                certificate,
                key,
                client_ca,
            },
            (Some(_), None) => return Err(bad("certificate", "it needs tls.key")),
            (None, Some(_)) => return Err(bad("key", "it needs tls.certificate")),
            (None, None) if client_ca.is_some() => {
                return Err(bad("client_ca", "it needs tls.certificate and tls.key"));
            }
            (None, None) => return Ok(None),
        };
        secrets::must_be_private(&files.key, "a private key").map_err(|e| {
            bad(
                "key",
                format!("{}: {}", files.key.display(), e.fields().message),
            )
        })?;
        let made = Acceptor::new(files).map_err(|e| {
            let code = e.code();
            Error::new(code, format!("tls: {}", e.fields().message))
        })?;
        Ok(Some(Arc::new(made)))
    }
}
