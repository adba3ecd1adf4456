//! Signatures of requests: AWS Signature Version 4, in the header `Authorization`.
//!
//! ```text
//! canonical request   method, path, query, headers, names of headers, hash of the body      one to a line
//! text to sign        AWS4-HMAC-SHA256, time, DATE/REGION/s3/aws4_request, hash of the canonical request
//! key                 HMAC over date, region, service and "aws4_request", each keyed by the last; the first by "AWS4" and the secret
//! ```
//! The hash of the body is the header `x-amz-content-sha256`. S3 refuses a body that has another one.
//! The tests hold it against the examples of Amazon's documentation.
//!
//! Left out on purpose: signatures in the address, which end up in logs; bodies that are signed piece by piece.

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

/// In whose name, and where.
pub struct Signer<'a> {
    pub key: &'a str,
    pub secret: &'a str,
    pub region: &'a str,
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The time as requests have it, such as 20130524T000000Z, of microseconds since 1970-01-01 UTC.
pub fn stamp(micros: i64) -> String {
    let time = jiff::Timestamp::from_microsecond(micros).expect("the clock shows a time");
    time.strftime("%Y%m%dT%H%M%SZ").to_string()
}

/// All but letters, digits, `-`, `.`, `_` and `~` as `%` and two digits.
pub fn encode(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    let one = |b: u8| match plain(b) {
        true => (b as char).to_string(),
        false => format!("%{b:02X}"),
    };
    text.bytes().map(one).collect()
}

/// The query of parameters that ascend.
pub fn query(parameters: &[(&str, String)]) -> String {
    assert!(parameters.is_sorted(), "parameters are signed in order");
    let each = parameters.iter();
    let each = each.map(|(name, value)| format!("{name}={}", encode(value)));
    each.collect::<Vec<_>>().join("&")
}

fn mac(key: &[u8], text: &str) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length");
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().into()
}

/// The header `Authorization`. Path and query are encoded; headers ascend, and the hash of the body and the host are among them.
pub fn authorization(
    signer: &Signer<'_>,
    method: &str,
    path: &str,
    query: &str,
    headers: &[(&str, String)],
    stamp: &str,
) -> String {
    assert!(headers.is_sorted(), "headers are signed in order");
    let hash = headers.iter().find(|h| h.0 == "x-amz-content-sha256");
    let hash = &hash.expect("the hash of the body is signed").1;
    let lines: String = headers
        .iter()
        .map(|(name, value)| format!("{name}:{value}\n"))
        .collect();
    let names: Vec<&str> = headers.iter().map(|h| h.0).collect();
    let names = names.join(";");
    let canonical = format!("{method}\n{path}\n{query}\n{lines}\n{names}\n{hash}");
    let date = &stamp[..8];
    let scope = format!("{date}/{}/s3/aws4_request", signer.region);
    let hashed = hex(&Sha256::digest(canonical));
    let text = format!("AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashed}");
    let first = format!("AWS4{}", signer.secret);
    let mut key = mac(first.as_bytes(), date);
    for part in [signer.region, "s3", "aws4_request"] {
        key = mac(&key, part);
    }
    let signature = hex(&mac(&key, &text));
    format!(
        "AWS4-HMAC-SHA256 Credential={}/{scope},SignedHeaders={names},Signature={signature}",
        signer.key
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn signature(
        method: &str,
        path: &str,
        parameters: &[(&str, String)],
        more: &[(&'static str, &str)],
        hash: &str,
    ) -> String {
        let signer = Signer {
            key: "AKIAIOSFODNN7EXAMPLE",
            secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            region: "us-east-1",
        };
        let stamp = stamp(1_369_353_600_000_000);
        let mut headers = vec![
            ("host", "examplebucket.s3.amazonaws.com".to_owned()),
            ("x-amz-content-sha256", hash.to_owned()),
            ("x-amz-date", stamp.clone()),
        ];
        headers.extend(more.iter().map(|(n, v)| (*n, (*v).to_owned())));
        headers.sort_unstable();
        let query = query(parameters);
        let all = authorization(&signer, method, path, &query, &headers, &stamp);
        assert!(all.contains("/20130524/us-east-1/s3/aws4_request,"));
        let at = all.rfind('=').expect("it is there");
        all[at + 1..].to_owned()
    }

    /// Amazon's documentation, "Signature Calculations for the Authorization Header: Transferring Payload in a Single Chunk".
    #[test]
    fn the_examples_of_the_documentation() {
        assert_eq!(
            signature("GET", "/test.txt", &[], &[("range", "bytes=0-9")], EMPTY),
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
        );
        let body = "Welcome to Amazon S3.";
        assert_eq!(
            signature(
                "PUT",
                &format!("/{}", encode("test$file.text")),
                &[],
                &[
                    ("date", "Fri, 24 May 2013 00:00:00 GMT"),
                    ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
                ],
                &hex(&Sha256::digest(body)),
            ),
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"
        );
        let parameters = [("lifecycle", String::new())];
        assert_eq!(
            signature("GET", "/", &parameters, &[], EMPTY),
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"
        );
        let parameters = [("max-keys", "2".to_owned()), ("prefix", "J".to_owned())];
        assert_eq!(
            signature("GET", "/", &parameters, &[], EMPTY),
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"
        );
    }

    #[test]
    fn what_is_not_plain_is_encoded() {
        assert_eq!(encode("a-Z.0_~/ +ü"), "a-Z.0_~%2F%20%2B%C3%BC");
    }
}
