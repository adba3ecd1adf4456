//! The extension `pgcrypto`: digests, message authentication, random bytes, and passwords by Blowfish (`crypt`, `gen_salt('bf')`).
//!
//! `gen_random_uuid` is built in, as in PostgreSQL 15. Random bytes come from the session, so a simulation repeats them.
//!
//! Left out on purpose (0A000): `pgp_*`, `armor`, `dearmor`, `encrypt`, `decrypt` and their kin; salts of kinds other than `bf`.

use super::registry::{Registry, names::*};
use super::{EvalContext, ScalarFn};
use base::{Error, Result, SqlState, Value};
use base64::Engine;
use base64::alphabet::BCRYPT;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use blowfish::Blowfish;
use hmac::{Hmac, KeyInit, Mac};
use md5::Md5;
use sha1::{Digest, Sha1};
use sha2::{Sha224, Sha256, Sha384, Sha512};

type Ctx<'a, 'b> = &'a mut EvalContext<'b>;

pub(super) const EXTENSION: &str = "pgcrypto";
/// Rounds of Blowfish between two looks for a cancel; a round takes about 100 microseconds.
const LOOK: u32 = 256;
const COSTS: std::ops::RangeInclusive<i64> = 4..=31;

/// The alphabet of bcrypt. The last character of a salt has two bits that mean nothing.
const SALT_TEXT: GeneralPurpose = GeneralPurpose::new(
    &BCRYPT,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone)
        .with_decode_allow_trailing_bits(true),
);

fn bytes(v: &Value) -> &[u8] {
    match v {
        Value::Bytea(b) => b,
        v => v.as_str().expect("text").as_bytes(),
    }
}

fn bad(what: impl Into<String>) -> Error {
    Error::new(SqlState::INVALID_PARAMETER_VALUE, what)
}

/// The name of a digest, as it is known. 22023.
fn kind(v: &Value) -> Result<&'static str> {
    let name = v.as_str().expect("text");
    let known = ["md5", "sha1", "sha224", "sha256", "sha384", "sha512"];
    let plain = name.to_ascii_lowercase().replacen("sha-", "sha", 1);
    let found = known.into_iter().find(|k| *k == plain);
    found.ok_or_else(|| bad(format!("Cannot use \"{name}\": No such hash algorithm")))
}

fn digest(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let b = bytes(&a[0]);
    let hash = match kind(&a[1])? {
        "md5" => Md5::digest(b).to_vec(),
        "sha1" => Sha1::digest(b).to_vec(),
        "sha224" => Sha224::digest(b).to_vec(),
        "sha256" => Sha256::digest(b).to_vec(),
        "sha384" => Sha384::digest(b).to_vec(),
        _ => Sha512::digest(b).to_vec(),
    };
    Ok(Value::Bytea(hash.into()))
}

fn hmac(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let (b, key) = (bytes(&a[0]), bytes(&a[1]));
    fn of<M: Mac + KeyInit>(b: &[u8], key: &[u8]) -> Vec<u8> {
        let mac = <M as KeyInit>::new_from_slice(key).expect("a key may have any length");
        mac.chain_update(b).finalize().into_bytes().to_vec()
    }
    let mac = match kind(&a[2])? {
        "md5" => of::<Hmac<Md5>>(b, key),
        "sha1" => of::<Hmac<Sha1>>(b, key),
        "sha224" => of::<Hmac<Sha224>>(b, key),
        "sha256" => of::<Hmac<Sha256>>(b, key),
        "sha384" => of::<Hmac<Sha384>>(b, key),
        _ => of::<Hmac<Sha512>>(b, key),
    };
    Ok(Value::Bytea(mac.into()))
}

fn random(a: &[Value], c: Ctx<'_, '_>) -> Result<Value> {
    let n = a[0].as_i64().expect("an integer");
    if !(1..=1024).contains(&n) {
        return Err(Error::new(SqlState(*b"39000"), "Length not in range"));
    }
    let mut out = vec![0; n as usize];
    c.session.random_bytes(&mut out);
    Ok(Value::Bytea(out.into()))
}

fn gen_salt(a: &[Value], c: Ctx<'_, '_>) -> Result<Value> {
    let kind = a[0].as_str().expect("text").to_ascii_lowercase();
    match kind.as_str() {
        "bf" => {}
        "md5" | "des" | "xdes" => return Err(Error::unsupported(format!("gen_salt('{kind}')"))),
        _ => return Err(bad("gen_salt: Unknown salt algorithm")),
    }
    let cost = match a.get(1).map(|v| v.as_i64().expect("an integer")) {
        None | Some(0) => 6,
        Some(n) if COSTS.contains(&n) => n,
        Some(_) => return Err(bad("gen_salt: Incorrect number of rounds")),
    };
    let mut salt = [0; 16];
    c.session.random_bytes(&mut salt);
    let salt = SALT_TEXT.encode(salt);
    Ok(Value::from(format!("$2a${cost:02}${salt}")))
}

fn crypt(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let (password, setting) = (bytes(&a[0]), a[1].as_str().expect("text"));
    let Some(rest) = setting.strip_prefix("$2a$") else {
        let what = "crypt with a salt that is not one of gen_salt('bf')";
        return Err(Error::unsupported(what));
    };
    let parts = rest.split_at_checked(2).and_then(|(cost, rest)| {
        let salt = rest.strip_prefix('$')?.get(..22)?;
        let cost: i64 = cost.parse().ok()?;
        let salt: [u8; 16] = SALT_TEXT.decode(salt).ok()?.try_into().ok()?;
        COSTS.contains(&cost).then_some((cost as u32, salt))
    });
    let (cost, salt) = parts.ok_or_else(|| bad("invalid salt"))?;
    let hash = blowfish_hash(password, &salt, cost)?;
    let (salt, hash) = (SALT_TEXT.encode(salt), SALT_TEXT.encode(&hash[..23]));
    Ok(Value::from(format!("$2a${cost:02}${salt}{hash}")))
}

/// bcrypt: 2^cost rounds of an expensive key schedule, then 64 encryptions of a fixed text. 57014 when it is cancelled.
fn blowfish_hash(password: &[u8], salt: &[u8; 16], cost: u32) -> Result<[u8; 24]> {
    // A zero byte ends the password, and counts.
    let end = password.iter().position(|b| *b == 0);
    let mut key = password[..end.unwrap_or(password.len())].to_vec();
    key.push(0);
    key.truncate(72);
    let mut state: Blowfish = Blowfish::bc_init_state();
    state.salted_expand_key(salt, &key);
    for round in 0..1u64 << cost {
        if round % u64::from(LOOK) == 0 {
            base::cancel::check_cancelled()?;
        }
        state.bc_expand_key(&key);
        state.bc_expand_key(salt);
    }
    let mut out = *b"OrpheanBeholderScryDoubt";
    for block in out.chunks_exact_mut(8) {
        let (left, right) = block.split_at(4);
        let word = |b: &[u8]| u32::from_be_bytes(b.try_into().expect("four bytes"));
        let mut pair = [word(left), word(right)];
        for _ in 0..64 {
            pair = state.bc_encrypt(pair);
        }
        block[..4].copy_from_slice(&pair[0].to_be_bytes());
        block[4..].copy_from_slice(&pair[1].to_be_bytes());
    }
    Ok(out)
}

/// Names of the extension's functions that are refused.
const REFUSED: [&str; 16] = [
    "encrypt",
    "decrypt",
    "encrypt_iv",
    "decrypt_iv",
    "armor",
    "dearmor",
    "pgp_armor_headers",
    "pgp_key_id",
    "pgp_sym_encrypt",
    "pgp_sym_decrypt",
    "pgp_sym_encrypt_bytea",
    "pgp_sym_decrypt_bytea",
    "pgp_pub_encrypt",
    "pgp_pub_decrypt",
    "pgp_pub_encrypt_bytea",
    "pgp_pub_decrypt_bytea",
];

/// Adds the functions.
pub(super) fn register(r: &mut Registry) {
    for t in [TEXT, BYTEA] {
        r.f("digest", &[t, TEXT], BYTEA, IMM, digest);
        r.f("hmac", &[t, t, TEXT], BYTEA, IMM, hmac);
    }
    r.f("gen_random_bytes", &[INT4], BYTEA, VOL, random);
    r.f("gen_salt", &[TEXT], TEXT, VOL, gen_salt);
    r.f("gen_salt", &[TEXT, INT4], TEXT, VOL, gen_salt);
    r.f("crypt", &[TEXT, TEXT], TEXT, IMM, crypt);
    let names = ["digest", "hmac", "gen_random_bytes", "gen_salt", "crypt"];
    r.belong(EXTENSION, &names);
    let refused: ScalarFn = |_, _| Err(Error::unsupported("this function of pgcrypto"));
    for n in REFUSED {
        r.add(n, &[ANY], TEXT, STA_N, super::Kind::Scalar(refused));
        r.last_is_variadic(n);
    }
    r.belong(EXTENSION, &REFUSED);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_those_of_other_programs() {
        let call = |p: &str, s: &str| {
            let settings = crate::types::OutputSettings::default();
            let mut c = EvalContext {
                settings: &settings,
                session: &super::super::NoSession,
            };
            crypt(&[Value::text(p), Value::text(s)], &mut c)
        };
        for (password, hash) in [
            (
                "",
                "$2a$06$DCq7YPn5Rq63x1Lad4cll.TV4S6ytwfsfvkgY8jIucDrjc8deX1s.",
            ),
            (
                "a",
                "$2a$06$m0CrhHm10qJ3lXRY.5zDGO3rS2KdeeWLuGmsfGlMfOxih58VYVfxe",
            ),
            (
                "abc",
                "$2a$06$If6bvum7DFjUnE9p2uDeDu0YHzrHM6tf.iqN8.yx.jNN1ILEf7h0i",
            ),
        ] {
            assert_eq!(call(password, hash).unwrap().as_str(), Some(hash));
        }
        assert!(call("x", "$2a$99$aaaaaaaaaaaaaaaaaaaaaa").is_err());
        assert!(call("x", "$1$salt").is_err() && call("x", "ab").is_err());
    }
}
