//! Authorities and the certificates that they sign, as PEM files in a directory of the test.
#![allow(dead_code)] // Each test program uses its part.

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// An authority with a directory for what it signs.
pub struct Authority {
    directory: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key.
pub struct Pair {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Authority {
    pub fn new(name: &str) -> Authority {
        let directory = tempfile::tempdir().expect("a directory");
        let mut params = CertificateParams::new(Vec::<String>::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let own = params.self_signed(&key).expect("signed");
        std::fs::write(directory.path().join("ca.crt"), own.pem()).expect("written");
        Authority {
            directory,
            issuer: Issuer::new(params, key),
        }
    }

    /// Its own certificate.
    pub fn root(&self) -> PathBuf {
        self.directory.path().join("ca.crt")
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Signs a certificate for these hosts, with this common name, into files of this name.
    pub fn sign(&self, file: &str, common_name: &str, hosts: &[&str]) -> Pair {
        self.sign_until(file, common_name, hosts, 2100)
    }

    /// The same, and it ends with this year's first day.
    pub fn sign_until(&self, file: &str, common_name: &str, hosts: &[&str], year: i32) -> Pair {
        let hosts: Vec<String> = hosts.iter().map(|h| (*h).to_owned()).collect();
        let mut params = CertificateParams::new(hosts).expect("hosts");
        params
            .distinguished_name
            .push(DnType::CommonName, common_name);
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(year, 1, 1);
        let key = KeyPair::generate().expect("a key");
        let signed = params.signed_by(&key, &self.issuer).expect("signed");
        let at = |ending: &str| self.directory.path().join(format!("{file}.{ending}"));
        let pair = Pair {
            certificate: at("crt"),
            key: at("key"),
        };
        std::fs::write(&pair.certificate, signed.pem()).expect("written");
        std::fs::write(&pair.key, key.serialize_pem()).expect("written");
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&pair.key, mode).expect("only the owner's");
        pair
    }
}

impl Pair {
    /// The server's variables.
    pub fn variables(&self) -> Vec<(&'static str, &str)> {
        vec![
            ("CANON_TLS_CERTIFICATE", text(&self.certificate)),
            ("CANON_TLS_KEY", text(&self.key)),
        ]
    }
}

pub fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}
