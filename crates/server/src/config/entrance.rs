//! The sections `[tls]`, a certificate and its key, and `[[access]]`, which role may come from where.
//!
//! ```text
//! tls.certificate, tls.key ──▶ both or none ──▶ the key is the certificate's, and the file is readable for its owner alone ──▶ Acceptor
//! ```
//! The files are read here, so that a start with a wrong one ends before a disk or a socket is touched.
//!
//! Left out on purpose: a choice of ciphers and of versions of TLS. Those of `rustls` are all sound.

use super::table::{Access, Given};
use crate::entrance::Entrance;
use crate::entrance::access::{Method, Roles, Rule, Source};
use base::{Error, Result, SqlState};
use protocol::tls::{Acceptor, Files, authorities};
use std::path::PathBuf;
use std::sync::Arc;

/// The rules that these sections are. 22023 for one that is none.
fn rules(sections: &[Access], knows_clients: bool) -> Result<Vec<Rule>> {
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

/// What is said of the way in, and the rules of these sections. The acceptor is `None` where nothing is said of TLS.
pub fn of(given: &Given, sections: &[Access]) -> Result<Entrance> {
    Ok(Entrance {
        allow_passwordless_network: given.allow_passwordless_network.is_on(),
        allow_plain_network: given.allow_plain_network.is_on(),
        tls: acceptor(given)?.map(Arc::new),
        access: rules(sections, given.tls_client_ca.path().is_some())?,
    })
}

/// Authorities of the cluster's nodes; 22023 for a file without one.
pub fn cluster_ca(given: &Given) -> Result<Option<PathBuf>> {
    let path = given.tls_cluster_ca.path();
    if let Some(path) = &path {
        authorities(path).map_err(|e| bad("cluster_ca", &e.fields().message))?;
    }
    Ok(path)
}

fn acceptor(given: &Given) -> Result<Option<Acceptor>> {
    let client_ca = given.tls_client_ca.path();
    let files = match (given.tls_certificate.path(), given.tls_key.path()) {
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
    service::secret::must_be_private(&files.key, "a private key").map_err(|e| {
        bad(
            "key",
            format!("{}: {}", files.key.display(), e.fields().message),
        )
    })?;
    let made = Acceptor::new(files).map_err(|e| {
        let code = e.code();
        Error::new(code, format!("tls: {}", e.fields().message))
    })?;
    Ok(Some(made))
}
