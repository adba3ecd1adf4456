//! SCRAM-SHA-256 from the server's side (RFC 5802, RFC 7677), without channel binding.
//!
//! A role that does not exist, or has no password, is answered like one that has: with a salt made from its name and a secret
//! of the process, so that an outsider cannot tell which names exist.

use super::frontend::violation;
use base::{Error, Result, SqlState};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

/// The mechanism's name on the wire.
pub const MECHANISM: &str = "SCRAM-SHA-256";

/// What is kept of a password.
struct Verifier {
    iterations: u32,
    salt: Vec<u8>,
    stored: [u8; 32],
    server: [u8; 32],
    /// Made up: no proof is right.
    mock: bool,
}

impl Verifier {
    /// Reads `SCRAM-SHA-256$4096:salt$StoredKey:ServerKey`.
    fn read(text: &str) -> Option<Verifier> {
        let (head, keys) = text.strip_prefix("SCRAM-SHA-256$")?.split_once('$')?;
        let (iterations, salt) = head.split_once(':')?;
        let (stored, server) = keys.split_once(':')?;
        let key = |k: &str| BASE64_STANDARD.decode(k).ok()?.try_into().ok();
        Some(Verifier {
            iterations: iterations.parse().ok()?,
            salt: BASE64_STANDARD.decode(salt).ok()?,
            stored: key(stored)?,
            server: key(server)?,
            mock: false,
        })
    }

    fn mock(user: &str, secret: &[u8]) -> Verifier {
        Verifier {
            iterations: 4096,
            salt: mac(secret, user.as_bytes())[..16].to_vec(),
            stored: [0; 32],
            server: [0; 32],
            mock: true,
        }
    }
}

fn mac(key: &[u8], text: &[u8]) -> [u8; 32] {
    let mut m = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    m.update(text);
    m.finalize().into_bytes().into()
}

/// An exchange: [`Exchange::first`], then [`Exchange::last`].
pub struct Exchange {
    verifier: Verifier,
    user: String,
    nonce: String,
    /// client-first-bare "," server-first
    transcript: String,
    gs2: String,
}

/// 28P01.
fn denied(user: &str) -> Error {
    Error::new(
        SqlState::INVALID_PASSWORD,
        format!("password authentication failed for user \"{user}\""),
    )
}

impl Exchange {
    /// For this user. `verifier` is what the schema keeps of the password; `secret` and `nonce` are random.
    pub fn new(user: &str, verifier: Option<&str>, secret: &[u8], nonce: &[u8; 18]) -> Exchange {
        Exchange {
            verifier: verifier
                .and_then(Verifier::read)
                .unwrap_or_else(|| Verifier::mock(user, secret)),
            user: user.to_owned(),
            nonce: BASE64_STANDARD.encode(nonce),
            transcript: String::new(),
            gs2: String::new(),
        }
    }

    /// Takes client-first, gives server-first.
    pub fn first(&mut self, message: &str) -> Result<String> {
        let bad = || violation("malformed SCRAM message");
        let mut parts = message.splitn(3, ',');
        let (flag, authzid) = (parts.next().ok_or_else(bad)?, parts.next().ok_or_else(bad)?);
        let bare = parts.next().ok_or_else(bad)?;
        match flag {
            "n" | "y" => {}
            _ if flag.starts_with("p=") => {
                return Err(violation("channel binding is not supported without TLS"));
            }
            _ => return Err(bad()),
        }
        if !authzid.is_empty() {
            return Err(Error::unsupported("an authorization identity in SCRAM"));
        }
        let client_nonce = bare
            .split(',')
            .find_map(|a| a.strip_prefix("r="))
            .filter(|n| !n.is_empty() && n.bytes().all(|b| (0x21..0x7f).contains(&b)))
            .ok_or_else(bad)?;
        self.nonce.insert_str(0, client_nonce);
        let v = &self.verifier;
        let reply = format!(
            "r={},s={},i={}",
            self.nonce,
            BASE64_STANDARD.encode(&v.salt),
            v.iterations
        );
        self.gs2 = format!("{flag},,");
        self.transcript = format!("{bare},{reply}");
        Ok(reply)
    }

    /// Takes client-final, gives server-final: the client has proven its name.
    pub fn last(self, message: &str) -> Result<String> {
        let bad = || violation("malformed SCRAM message");
        let (without_proof, proof) = message.rsplit_once(",p=").ok_or_else(bad)?;
        let attribute = |name: &str| without_proof.split(',').find_map(|a| a.strip_prefix(name));
        let binding = attribute("c=").ok_or_else(bad)?;
        if binding != BASE64_STANDARD.encode(&self.gs2) || attribute("r=") != Some(&self.nonce) {
            return Err(bad());
        }
        let proof: [u8; 32] = BASE64_STANDARD
            .decode(proof)
            .ok()
            .and_then(|p| p.try_into().ok())
            .ok_or_else(bad)?;
        let transcript = format!("{},{without_proof}", self.transcript);
        let v = &self.verifier;
        let signature = mac(&v.stored, transcript.as_bytes());
        let mut client_key = [0; 32];
        for (k, (p, s)) in client_key.iter_mut().zip(proof.iter().zip(signature)) {
            *k = p ^ s;
        }
        let hash: [u8; 32] = Sha256::digest(client_key).into();
        // Compared without leaving early.
        let differs = hash.iter().zip(v.stored).fold(0, |d, (a, b)| d | (a ^ b));
        if differs != 0 || v.mock {
            return Err(denied(&self.user));
        }
        let server = mac(&v.server, transcript.as_bytes());
        Ok(format!("v={}", BASE64_STANDARD.encode(server)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PENCIL: &str = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$\
        WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";

    /// The exchange of RFC 7677, section 3; the server's part of the nonce is put in by hand.
    fn rfc(verifier: Option<&str>) -> Result<String> {
        let mut x = Exchange::new("user", verifier, b"secret", &[0; 18]);
        x.nonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0".into();
        let reply = x.first("n,,n=user,r=rOprNGfwEbeRWgbNEkqO")?;
        if verifier.is_some() {
            assert_eq!(
                reply,
                "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
            );
        }
        x.last(
            "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
             p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        )
    }

    #[test]
    fn the_exchange_of_the_rfc() {
        assert_eq!(
            rfc(Some(PENCIL)).unwrap(),
            "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
        );
    }

    #[test]
    fn wrong_proofs_and_unknown_users_are_refused_alike() {
        let other = PENCIL.replace("WG5d", "XG5d");
        for v in [Some(other.as_str()), None] {
            let e = rfc(v).unwrap_err();
            assert_eq!(e.code(), SqlState::INVALID_PASSWORD);
        }
    }

    #[test]
    fn malformed_messages_are_errors() {
        let mut x = Exchange::new("u", None, b"s", &[0; 18]);
        for bad in [
            "",
            "n",
            "n,,",
            "n,,n=u",
            "p=tls-unique,,n=,r=a",
            "x,,n=,r=a",
            "n,,n=,r=",
        ] {
            assert!(x.first(bad).is_err(), "{bad}");
        }
        x.first("n,,n=,r=abc").unwrap();
        assert!(x.last("c=biws,r=abc").is_err());
    }
}
