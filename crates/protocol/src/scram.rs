//! SCRAM-SHA-256 from the server's side (RFC 5802, RFC 7677), and with a binding to the channel that it goes over.
//!
//! ```text
//! connection     offered                             a client that says      gets
//! plain          SCRAM-SHA-256                       n, y                    in, by its proof
//! inside of TLS  SCRAM-SHA-256-PLUS, SCRAM-SHA-256   n                       in: it knows no binding
//!                                                    y                       refused: it was not told of the binding, so another stands between
//!                                                    p=tls-server-end-point  in, if it has seen the certificate of this server
//! ```
//! A role that does not exist, or has no password, is answered like one that has: with a salt made from its name and a secret
//! of the process, so that an outsider cannot tell which names exist.

use super::frontend::violation;
use base::{Error, Result, SqlState};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

/// The mechanisms' names on the wire, without a binding to the channel and with one.
pub const MECHANISM: &str = "SCRAM-SHA-256";
pub const MECHANISM_PLUS: &str = "SCRAM-SHA-256-PLUS";
/// The binding that is offered (RFC 5929).
const END_POINT: &str = "tls-server-end-point";

/// What a client may choose from over a connection that can be bound to this, the better first.
pub fn offered(end_point: Option<&[u8]>) -> &'static [&'static str] {
    match end_point {
        Some(_) => &[MECHANISM_PLUS, MECHANISM],
        None => &[MECHANISM],
    }
}

/// 08P01: a client has chosen another.
pub fn not_offered() -> Error {
    violation("client selected an invalid SASL authentication mechanism")
}

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
    /// What the connection can be bound to.
    end_point: Option<Vec<u8>>,
    /// What client-final has to repeat: the head of client-first, and the binding.
    input: Vec<u8>,
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
            end_point: None,
            input: Vec::new(),
        }
    }

    /// The same over a connection that can be bound to this (`Line::end_point`).
    pub fn over(self, end_point: Option<&[u8]>) -> Exchange {
        let end_point = end_point.map(<[u8]>::to_vec);
        Exchange { end_point, ..self }
    }

    /// What client-final has to repeat behind the head of client-first, whose first part this is.
    fn binding(&self, mechanism: &str, flag: &str) -> Result<&[u8]> {
        let plus = mechanism == MECHANISM_PLUS;
        match (flag, &self.end_point) {
            ("n" | "y", _) if plus => Err(violation(
                "malformed SCRAM message: the mechanism that was chosen wants a binding to the channel",
            )),
            ("n", _) | ("y", None) => Ok(&[]),
            ("y", Some(_)) => Err(Error::new(
                SqlState::INVALID_AUTHORIZATION,
                "SCRAM channel binding negotiation error",
            )
            .detail("The client supports SCRAM channel binding but thinks the server does not. However, this server does support channel binding.")),
            (_, Some(end_point)) if plus => match flag.strip_prefix("p=") {
                Some(END_POINT) => Ok(end_point),
                Some(kind) => Err(violation(format!(
                    "unsupported SCRAM channel-binding type \"{kind}\""
                ))),
                None => Err(violation("malformed SCRAM message")),
            },
            _ if flag.starts_with("p=") && self.end_point.is_none() => {
                Err(violation("channel binding is not supported without TLS"))
            }
            _ => Err(violation("malformed SCRAM message")),
        }
    }

    /// Takes client-first of the mechanism that the client has chosen, gives server-first.
    pub fn first(&mut self, mechanism: &str, message: &str) -> Result<String> {
        if !offered(self.end_point.as_deref()).contains(&mechanism) {
            return Err(not_offered());
        }
        let bad = || violation("malformed SCRAM message");
        let mut parts = message.splitn(3, ',');
        let (flag, authzid) = (parts.next().ok_or_else(bad)?, parts.next().ok_or_else(bad)?);
        let bare = parts.next().ok_or_else(bad)?;
        let mut input = format!("{flag},,").into_bytes();
        input.extend_from_slice(self.binding(mechanism, flag)?);
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
        self.input = input;
        self.transcript = format!("{bare},{reply}");
        Ok(reply)
    }

    /// Takes client-final, gives server-final: the client has proven its name.
    pub fn last(self, message: &str) -> Result<String> {
        let bad = || violation("malformed SCRAM message");
        let (without_proof, proof) = message.rsplit_once(",p=").ok_or_else(bad)?;
        let attribute = |name: &str| without_proof.split(',').find_map(|a| a.strip_prefix(name));
        let binding = attribute("c=").ok_or_else(bad)?;
        if binding != BASE64_STANDARD.encode(&self.input) {
            return Err(match self.input.starts_with(b"p=") {
                true => Error::new(
                    SqlState::INVALID_AUTHORIZATION,
                    "SCRAM channel binding check failed",
                ),
                false => bad(),
            });
        }
        if attribute("r=") != Some(&self.nonce) {
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
    use postgres_protocol::authentication::sasl::{ChannelBinding, ScramSha256};

    const PENCIL: &str = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$\
        WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";

    /// The exchange of RFC 7677, section 3; the server's part of the nonce is put in by hand.
    fn rfc(verifier: Option<&str>) -> Result<String> {
        let mut x = Exchange::new("user", verifier, b"secret", &[0; 18]);
        x.nonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0".into();
        let reply = x.first(MECHANISM, "n,,n=user,r=rOprNGfwEbeRWgbNEkqO")?;
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

    /// What comes of a client's login over a connection that the server binds to `server`.
    fn login(client: ChannelBinding, mechanism: &str, server: Option<&[u8]>) -> Result<String> {
        let mut c = ScramSha256::new(b"pencil", client);
        let mut x = Exchange::new("user", Some(PENCIL), b"secret", &[0; 18]).over(server);
        let text = |b: &[u8]| String::from_utf8(b.to_vec()).expect("text");
        let first = x.first(mechanism, &text(c.message()))?;
        c.update(first.as_bytes()).expect("a challenge");
        x.last(&text(c.message()))
    }

    #[test]
    fn a_proof_is_bound_to_its_channel() {
        let end = |b: &[u8]| ChannelBinding::tls_server_end_point(b.to_vec());
        let code = |r: Result<String>| r.expect_err("refused").code();
        assert!(login(end(b"here"), MECHANISM_PLUS, Some(b"here")).is_ok());
        // The client has seen the certificate of another.
        let r = login(end(b"there"), MECHANISM_PLUS, Some(b"here"));
        assert_eq!(code(r), SqlState::INVALID_AUTHORIZATION);
        // The better mechanism was taken out of the offer on its way.
        let r = login(ChannelBinding::unrequested(), MECHANISM, Some(b"here"));
        assert_eq!(code(r), SqlState::INVALID_AUTHORIZATION);
        assert!(login(ChannelBinding::unrequested(), MECHANISM, None).is_ok());
        assert!(login(ChannelBinding::unsupported(), MECHANISM, Some(b"here")).is_ok());
        for (client, mechanism, server) in [
            (end(b"here"), MECHANISM_PLUS, None),
            (end(b"here"), MECHANISM, Some(&b"here"[..])),
            (ChannelBinding::unsupported(), MECHANISM_PLUS, Some(b"here")),
        ] {
            let r = login(client, mechanism, server);
            assert_eq!(code(r), SqlState::PROTOCOL_VIOLATION, "{mechanism}");
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
            assert!(x.first(MECHANISM, bad).is_err(), "{bad}");
        }
        x.first(MECHANISM, "n,,n=,r=abc").unwrap();
        assert!(x.last("c=biws,r=abc").is_err());
    }
}
