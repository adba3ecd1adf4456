//! `inet` and `cidr`: addresses of IPv4 and IPv6 with the length of a network's mask.
//!
//! The form is a byte with the family (4 or 6), one with the mask's bits, then the address. A `cidr` has no bits behind its mask.
//! The order is: IPv4 first; then the network, that is, the address under its mask; then the shorter mask; then the address.

use super::errors::{invalid, malformed};
use crate::error::{Error, Result, SqlState};
use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

/// An address. That of IPv4 stands in the low 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inet {
    pub v6: bool,
    /// Bits of the mask.
    pub bits: u8,
    pub address: u128,
}

/// The address of a form that is known to be one.
pub fn expect(form: &[u8]) -> Inet {
    Inet::of(form).expect("the form of an address")
}

impl Inet {
    /// The address of these bytes, if they are a form.
    pub fn of(b: &[u8]) -> Option<Inet> {
        let (v6, address) = match b {
            [4, _, a, b, c, d] => (false, u128::from(u32::from_be_bytes([*a, *b, *c, *d]))),
            [6, _, a @ ..] => (true, u128::from_be_bytes(a.try_into().ok()?)),
            _ => return None,
        };
        let bits = b[1];
        let found = Inet { v6, bits, address };
        (bits <= found.width()).then_some(found)
    }

    pub fn form(&self) -> Box<[u8]> {
        let mut out = vec![if self.v6 { 6 } else { 4 }, self.bits];
        self.write_address(self.address, &mut out);
        out.into()
    }

    /// Bits of an address of the family.
    pub fn width(&self) -> u8 {
        if self.v6 { 128 } else { 32 }
    }

    /// All bits of an address of the family.
    pub fn ones(&self) -> u128 {
        if self.v6 {
            u128::MAX
        } else {
            u128::from(u32::MAX)
        }
    }

    /// The mask: ones, then zeros.
    pub fn mask(&self) -> u128 {
        let zeros = u32::from(self.width() - self.bits);
        self.ones() & u128::MAX.checked_shl(zeros).unwrap_or(0)
    }

    /// The same mask over another address.
    pub fn at(&self, address: u128) -> Inet {
        Inet { address, ..*self }
    }

    /// The network: no bits behind the mask.
    pub fn network(&self) -> Inet {
        self.at(self.address & self.mask())
    }

    /// Whether `other`'s network is within this one, or the same.
    pub fn contains(&self, other: &Inet) -> bool {
        self.v6 == other.v6
            && self.bits <= other.bits
            && (self.address ^ other.address) & self.mask() == 0
    }

    pub(super) fn order(&self) -> (bool, u128, u8, u128) {
        (self.v6, self.network().address, self.bits, self.address)
    }

    pub(super) fn write_key(&self, out: &mut Vec<u8>) {
        out.push(if self.v6 { 6 } else { 4 });
        self.write_address(self.network().address, out);
        out.push(self.bits);
        self.write_address(self.address, out);
    }

    fn write_address(&self, address: u128, out: &mut Vec<u8>) {
        match self.v6 {
            true => out.extend_from_slice(&address.to_be_bytes()),
            false => out.extend_from_slice(&(address as u32).to_be_bytes()),
        }
    }

    /// Appends the address without its mask.
    pub fn write_host(&self, out: &mut String) {
        match self.v6 {
            false => {
                let a = Ipv4Addr::from(self.address as u32);
                write!(out, "{a}").expect("writing to a string");
            }
            true => write_v6(self.address, out),
        }
    }

    /// Appends address and mask; the mask of a single host only if it is asked for.
    pub fn write(&self, mask: bool, out: &mut String) {
        self.write_host(out);
        if mask || self.bits < self.width() {
            write!(out, "/{}", self.bits).expect("writing to a string");
        }
    }

    pub(super) fn write_binary(&self, cidr: bool, out: &mut Vec<u8>) {
        out.push(if self.v6 { 3 } else { 2 });
        out.push(self.bits);
        out.push(u8::from(cidr));
        out.push(self.width() / 8);
        self.write_address(self.address, out);
    }

    pub(super) fn read_binary(b: &[u8], cidr: bool) -> Result<Inet> {
        let [family, bits, _, n, address @ ..] = b else {
            return Err(malformed());
        };
        let family = match (family, n, address.len()) {
            (2, 4, 4) => 4,
            (3, 16, 16) => 6,
            _ => return Err(malformed()),
        };
        let form = [&[family, *bits], address].concat();
        let found = Inet::of(&form).ok_or_else(malformed)?;
        if cidr && found.network() != found {
            let what = "invalid external \"cidr\" value";
            return Err(Error::new(SqlState::INVALID_BINARY_REPRESENTATION, what)
                .detail("Value has bits set to right of mask."));
        }
        Ok(found)
    }
}

/// The longest run of at least two groups of zeros is left out. An address with one of IPv4 inside shows that.
fn write_v6(address: u128, out: &mut String) {
    let groups = Ipv6Addr::from(address).segments();
    let (mut best, mut run) = ((0, 0), (0, 0));
    for (i, g) in groups.iter().enumerate() {
        run = match (g, run) {
            (0, (_, 0)) => (i, 1),
            (0, (from, n)) => (from, n + 1),
            _ => (0, 0),
        };
        if run.1 > best.1 {
            best = run;
        }
    }
    if best.1 < 2 {
        best = (8, 0);
    }
    let inside = best.0 == 0
        && match best.1 {
            6 => true,
            5 => groups[5] == 0xffff,
            _ => false,
        };
    let shown = if inside { 6 } else { 8 };
    let mut i = 0;
    while i < shown {
        if i == best.0 {
            out.push_str("::");
            i += best.1;
            continue;
        }
        if i > 0 && !out.ends_with(':') {
            out.push(':');
        }
        write!(out, "{:x}", groups[i]).expect("writing to a string");
        i += 1;
    }
    if inside {
        if !out.ends_with(':') {
            out.push(':');
        }
        let v4 = Ipv4Addr::from(address as u32);
        write!(out, "{v4}").expect("writing to a string");
    }
}

/// Reads an address, or a network. An `inet` without a mask is a single host and has all its parts. A `cidr` may leave out parts and the mask,
/// which then follows from what is there and from the class of the network.
pub(super) fn read(s: &str, cidr: bool) -> Result<Inet> {
    let ty = if cidr { "cidr" } else { "inet" };
    let (address, bits) = match s.split_once('/') {
        Some((a, b)) => (a, Some(b)),
        None => (s, None),
    };
    let v6 = address.contains(':');
    let most = if v6 { 128 } else { 32 };
    let digits = |b: &str| {
        let plain = !b.is_empty() && b.len() <= 3 && b.bytes().all(|c| c.is_ascii_digit());
        let n = plain.then(|| b.parse::<u16>().expect("three digits"))?;
        (n <= most).then_some(n as u8)
    };
    let bits = match bits {
        Some(b) => Some(digits(b).ok_or_else(|| invalid(ty, s))?),
        None => None,
    };
    let found = match v6 {
        true => address.parse::<Ipv6Addr>().ok().map(|a| Inet {
            v6,
            bits: bits.unwrap_or(128),
            address: u128::from(a),
        }),
        false => read_v4(address, bits, cidr),
    };
    let found = found.ok_or_else(|| invalid(ty, s))?;
    if cidr && found.network() != found {
        let what = format!("invalid cidr value: \"{s}\"");
        return Err(Error::new(SqlState::INVALID_TEXT_REPRESENTATION, what)
            .detail("Value has bits set to right of mask."));
    }
    Ok(found)
}

fn read_v4(s: &str, bits: Option<u8>, cidr: bool) -> Option<Inet> {
    let mut octets = [0u8; 4];
    let mut n = 0;
    for part in s.split('.') {
        if part.is_empty() || !part.bytes().all(|c| c.is_ascii_digit()) {
            return None;
        }
        *octets.get_mut(n)? = part.parse().ok()?;
        n += 1;
    }
    let bits = match bits {
        // The mask may not reach past the parts that are there.
        Some(b) if !cidr && usize::from(b / 8) > n => return None,
        Some(b) => b,
        None if !cidr => (n == 4).then_some(32)?,
        None => {
            let class = match octets[0] {
                240.. => 32,
                224.. => 8,
                192.. => 24,
                128.. => 16,
                _ => 8,
            };
            match class.max(8 * n as u8) {
                8 if octets[0] == 224 => 4,
                b => b,
            }
        }
    };
    let address = u128::from(u32::from_be_bytes(octets));
    Some(Inet {
        v6: false,
        bits,
        address,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(s: &str, cidr: bool) -> String {
        let mut out = String::new();
        match read(s, cidr) {
            Ok(i) => i.write(cidr, &mut out),
            Err(e) => out = e.to_string(),
        }
        out
    }

    #[test]
    fn texts_are_those_of_postgresql() {
        for (s, want) in [
            ("10.1.2.3", "10.1.2.3"),
            ("10.1.2.3/32", "10.1.2.3"),
            ("10.1/16", "10.1.0.0/16"),
            ("::1", "::1"),
            ("::2", "::2"),
            ("::10.2.3.4", "::10.2.3.4"),
            ("::ffff:1.2.3.4", "::ffff:1.2.3.4"),
            ("2001:DB8:0:0:1:0:0:1/64", "2001:db8::1:0:0:1/64"),
            ("1:0:2:0:3:0:4:0", "1:0:2:0:3:0:4:0"),
            ("::", "::"),
        ] {
            assert_eq!(both(s, false), want);
        }
        for (s, want) in [
            ("10", "10.0.0.0/8"),
            ("192.168.1", "192.168.1.0/24"),
            ("224", "224.0.0.0/4"),
            ("::/0", "::/0"),
        ] {
            assert_eq!(both(s, true), want);
        }
        for s in [
            "10.1",
            "1.2.3.4.5",
            "256.1.1.1",
            "1.2.3.4/33",
            "1.2.3.4/",
            "",
            "::g",
        ] {
            assert!(read(s, false).is_err(), "{s}");
        }
        assert!(both("10.1.2.3/8", true).contains("invalid cidr value"));
    }
}
