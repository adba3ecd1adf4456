//! What a certificate says, as far as PostgreSQL's protocol needs it: the subject's name, and the hash that a login is bound to.
//!
//! ```text
//! server's certificate ──▶ end_point: the hash of its bytes (RFC 5929, tls-server-end-point) ──▶ SCRAM-SHA-256-PLUS, both ends
//! client's certificate ──▶ common name ──▶ the role that a rule `cert` lets in;   names and number ──▶ pg_stat_ssl
//! ```
//! The hash is the one that signed the certificate, and SHA-256 where that is weaker (MD5, SHA-1). A signature whose
//! name says no hash (Ed25519, RSASSA-PSS) has no binding here; RFC 5929 leaves Ed25519 undefined.
//!
//! Left out on purpose: alternative names. `rustls` compares them with a host's name.

use sha2::{Digest, Sha256, Sha384, Sha512};
use x509_cert::Certificate;
use x509_cert::der::{Decode, oid::ObjectIdentifier};
use x509_cert::name::Name;

/// What a client's certificate tells of the client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// The last common name (CN) of the subject, if it has one.
    pub common_name: Option<String>,
    /// `/C=AT/CN=name`, as PostgreSQL shows it.
    pub subject: String,
    pub issuer: String,
    /// The certificate's number, decimal.
    pub serial: String,
}

/// Signatures by the hash that they use: RSA with PKCS #1, then ECDSA.
const SHA384: [ObjectIdentifier; 2] = [
    ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.12"),
    ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.3"),
];
const SHA512: [ObjectIdentifier; 2] = [
    ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.13"),
    ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.4"),
];
/// MD5 and SHA-1, which count as SHA-256, and SHA-256.
const SHA256: [ObjectIdentifier; 5] = [
    ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.4"),
    ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.5"),
    ObjectIdentifier::new_unwrap("1.2.840.10045.4.1"),
    ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.11"),
    ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.2"),
];
const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");

/// The binding `tls-server-end-point` of this certificate (DER). `None`: its signature has no hash that both ends would agree on.
pub fn end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    let parsed = Certificate::from_der(certificate).ok()?;
    let signature = parsed.signature_algorithm.oid;
    match signature {
        s if SHA256.contains(&s) => Some(Sha256::digest(certificate).to_vec()),
        s if SHA384.contains(&s) => Some(Sha384::digest(certificate).to_vec()),
        s if SHA512.contains(&s) => Some(Sha512::digest(certificate).to_vec()),
        _ => None,
    }
}

/// What this certificate (DER) tells. `None`: it is malformed.
pub fn subject(certificate: &[u8]) -> Option<Subject> {
    let parsed = Certificate::from_der(certificate).ok()?.tbs_certificate;
    Some(Subject {
        common_name: common_name(&parsed.subject),
        subject: shown(&parsed.subject),
        issuer: shown(&parsed.issuer),
        serial: decimal(parsed.serial_number.as_bytes()),
    })
}

fn common_name(name: &Name) -> Option<String> {
    let mut all = name.0.iter().flat_map(|rdn| rdn.0.iter());
    let last = all.rfind(|a| a.oid == COMMON_NAME)?;
    // UTF8String, PrintableString, TeletexString, IA5String: their bytes are the text. A zero byte would be read in two ways.
    let text = std::str::from_utf8(last.value.value()).ok()?;
    (!text.contains('\0')).then(|| text.to_owned())
}

fn shown(name: &Name) -> String {
    let all = name.0.iter().flat_map(|rdn| rdn.0.iter());
    all.map(|a| format!("/{a}")).collect()
}

/// A number of any length, most significant byte first, in decimal digits.
fn decimal(bytes: &[u8]) -> String {
    // Least significant digit first.
    let mut digits = vec![0u8];
    for byte in bytes {
        let mut carry = u32::from(*byte);
        for d in &mut digits {
            let n = u32::from(*d) * 256 + carry;
            (*d, carry) = ((n % 10) as u8, n / 10);
        }
        while carry > 0 {
            digits.push((carry % 10) as u8);
            carry /= 10;
        }
    }
    digits.iter().rev().map(|d| char::from(b'0' + d)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair, PKCS_ECDSA_P384_SHA384, PKCS_ED25519};

    fn certificate(algorithm: &'static rcgen::SignatureAlgorithm) -> Vec<u8> {
        let key = KeyPair::generate_for(algorithm).expect("a key");
        let mut p = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        p.distinguished_name.push(DnType::CountryName, "AT");
        p.distinguished_name.push(DnType::CommonName, "alice");
        p.serial_number = Some(vec![1u8, 0, 2].into());
        p.self_signed(&key).expect("signed").der().to_vec()
    }

    #[test]
    fn the_hash_is_that_of_the_signature() {
        let c = certificate(&rcgen::PKCS_ECDSA_P256_SHA256);
        assert_eq!(end_point(&c), Some(Sha256::digest(&c).to_vec()));
        let c = certificate(&PKCS_ECDSA_P384_SHA384);
        assert_eq!(end_point(&c), Some(Sha384::digest(&c).to_vec()));
        assert_eq!(end_point(&certificate(&PKCS_ED25519)), None);
        assert_eq!(end_point(b"rubbish"), None);
    }

    #[test]
    fn a_subject_is_shown_as_postgresql_does() {
        let s = subject(&certificate(&rcgen::PKCS_ECDSA_P256_SHA256)).expect("parsed");
        assert_eq!(s.common_name.as_deref(), Some("alice"));
        assert!(s.subject.contains("/C=AT"), "{}", s.subject);
        assert!(s.subject.contains("/CN=alice"), "{}", s.subject);
        assert_eq!(s.subject, s.issuer);
        assert_eq!(s.serial, "65538");
        assert_eq!(subject(b""), None);
    }

    #[test]
    fn long_numbers_are_decimal() {
        assert_eq!(decimal(&[]), "0");
        assert_eq!(decimal(&[0, 255]), "255");
        assert_eq!(
            decimal(&[0xff; 16]),
            "340282366920938463463374607431768211455"
        );
    }
}
