//! The extension `uuid-ossp`: UUIDs of versions 1, 3, 4 and 5, and the namespaces that 3 and 5 take.
//!
//! Version 1 has the time of the session's clock and, where PostgreSQL puts the address of a network card, random bits that are marked as such
//! (RFC 4122 §4.5), new ones in each call. So `uuid_generate_v1` and `uuid_generate_v1mc` are one function here.

use super::EvalContext;
use super::registry::{Registry, names::*};
use base::{Result, Value};
use md5::Md5;
use sha1::{Digest, Sha1};

type Ctx<'a, 'b> = &'a mut EvalContext<'b>;

pub(super) const EXTENSION: &str = "uuid-ossp";
/// From 1582-10-15, where version 1 begins to count, to 2000-01-01, in steps of 100 ns.
const TICKS_TO_2000: i64 = 131_659_776_000_000_000;

/// The last half of the namespaces of RFC 4122, and the first byte group by which they differ.
const fn namespace(n: u8) -> [u8; 16] {
    let mut out = [
        0x6b, 0xa7, 0xb8, 0x10, 0x9d, 0xad, 0x11, 0xd1, 0x80, 0xb4, 0, 0xc0, 0x4f, 0xd4, 0x30, 0xc8,
    ];
    out[3] += n;
    out
}

fn uuid(mut bytes: [u8; 16], version: u8) -> Value {
    bytes[6] = bytes[6] & 0x0f | version << 4;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    Value::Uuid(Box::new(bytes))
}

fn by_time(_: &[Value], c: Ctx<'_, '_>) -> Result<Value> {
    let mut bytes = [0; 16];
    c.session.random_bytes(&mut bytes[8..]);
    bytes[10] |= 1;
    let ticks = TICKS_TO_2000.wrapping_add(c.session.clock_timestamp().wrapping_mul(10)) as u64;
    bytes[..4].copy_from_slice(&(ticks as u32).to_be_bytes());
    bytes[4..6].copy_from_slice(&((ticks >> 32) as u16).to_be_bytes());
    bytes[6..8].copy_from_slice(&((ticks >> 48) as u16).to_be_bytes());
    Ok(uuid(bytes, 1))
}

fn by_chance(_: &[Value], c: Ctx<'_, '_>) -> Result<Value> {
    let mut bytes = [0; 16];
    c.session.random_bytes(&mut bytes);
    Ok(uuid(bytes, 4))
}

fn by_name<D: Digest>(a: &[Value], version: u8) -> Value {
    let Value::Uuid(space) = &a[0] else {
        panic!("{:?} is no UUID", a[0]);
    };
    let name = a[1].as_str().expect("text");
    let hash = D::new().chain_update(&space[..]).chain_update(name);
    let hash = hash.finalize();
    uuid(hash[..16].try_into().expect("at least 16 bytes"), version)
}

/// Adds the functions.
pub(super) fn register(r: &mut Registry) {
    let constants: [(&str, super::ScalarFn); 5] = [
        ("uuid_nil", |_, _| Ok(Value::Uuid(Box::new([0; 16])))),
        ("uuid_ns_dns", |_, _| {
            Ok(Value::Uuid(Box::new(namespace(0))))
        }),
        ("uuid_ns_url", |_, _| {
            Ok(Value::Uuid(Box::new(namespace(1))))
        }),
        ("uuid_ns_oid", |_, _| {
            Ok(Value::Uuid(Box::new(namespace(2))))
        }),
        ("uuid_ns_x500", |_, _| {
            Ok(Value::Uuid(Box::new(namespace(4))))
        }),
    ];
    for (n, f) in constants {
        r.f(n, &[], UUID, IMM, f);
    }
    for n in ["uuid_generate_v1", "uuid_generate_v1mc"] {
        r.f(n, &[], UUID, VOL, by_time);
    }
    r.f("uuid_generate_v4", &[], UUID, VOL, by_chance);
    r.f("uuid_generate_v3", &[UUID, TEXT], UUID, IMM, |a, _| {
        Ok(by_name::<Md5>(a, 3))
    });
    r.f("uuid_generate_v5", &[UUID, TEXT], UUID, IMM, |a, _| {
        Ok(by_name::<Sha1>(a, 5))
    });
    r.belong(
        EXTENSION,
        &[
            "uuid_nil",
            "uuid_ns_dns",
            "uuid_ns_url",
            "uuid_ns_oid",
            "uuid_ns_x500",
            "uuid_generate_v1",
            "uuid_generate_v1mc",
            "uuid_generate_v3",
            "uuid_generate_v4",
            "uuid_generate_v5",
        ],
    );
}
