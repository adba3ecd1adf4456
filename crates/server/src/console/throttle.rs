//! How often an address may try passwords.
//!
//! An address has [`BURST`] wrong passwords at once, and one more each [`EVERY`]. Each wrong password takes one; a right one takes none. Networks of IPv6 give a
//! customer a whole /64, which counts as one address here. At most [`MOST`] addresses are known. Beyond that the address that is
//! nearest to a full number is forgotten first.
//!
//! Pure: the caller says what time it is.
//!
//! Left out on purpose: a limit over all addresses. It would let one attacker keep all others out.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

/// Wrong passwords that an address has at once.
const BURST: u32 = 10;
/// After so long it has one more.
const EVERY: Duration = Duration::from_secs(1);
/// Addresses that are known.
const MOST: usize = 1024;

/// Per address: the time at which it has all its tries again.
#[derive(Default)]
pub struct Throttle(HashMap<IpAddr, Duration>);

fn counted(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(a) => IpAddr::V6(Ipv6Addr::from(u128::from(a) & (u128::MAX << 64))),
        v4 => v4,
    }
}

impl Throttle {
    /// How long this address has to wait before its next try; none: it may try now.
    pub fn wait(&self, address: IpAddr, now: Duration) -> Option<Duration> {
        let full = *self.0.get(&counted(address))?;
        let spent = full.saturating_sub(now) + EVERY;
        let over = spent.saturating_sub(EVERY * BURST);
        Some(over).filter(|over| !over.is_zero())
    }

    /// A wrong password came from this address.
    pub fn failed(&mut self, address: IpAddr, now: Duration) {
        let address = counted(address);
        if self.0.len() >= MOST && !self.0.contains_key(&address) {
            self.0.retain(|_, full| *full > now);
            let nearest = self.0.iter().min_by_key(|a| a.1).map(|a| *a.0);
            if let Some(nearest) = nearest.filter(|_| self.0.len() >= MOST) {
                self.0.remove(&nearest);
            }
        }
        let full = self.0.entry(address).or_insert(now);
        *full = (*full).max(now) + EVERY;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn an_address_has_so_many_tries_and_then_one_at_a_time() {
        let mut t = Throttle::default();
        let (a, mut now) = (at("192.0.2.1"), Duration::from_secs(100));
        for _ in 0..BURST {
            assert_eq!(t.wait(a, now), None);
            t.failed(a, now);
        }
        assert_eq!(t.wait(a, now), Some(EVERY));
        assert_eq!(t.wait(at("192.0.2.2"), now), None);
        now += EVERY;
        assert_eq!(t.wait(a, now), None);
        t.failed(a, now);
        assert!(t.wait(a, now).is_some());
        assert_eq!(t.wait(a, now + EVERY * BURST), None);
    }

    #[test]
    fn a_network_of_ipv6_is_one_address_and_a_mapped_one_is_ipv4() {
        let (mut t, now) = (Throttle::default(), Duration::ZERO);
        for n in 0..BURST {
            t.failed(at(&format!("2001:db8::{n}")), now);
            t.failed(at("::ffff:192.0.2.1"), now);
        }
        assert!(t.wait(at("2001:db8::ffff"), now).is_some());
        assert!(t.wait(at("192.0.2.1"), now).is_some());
        assert_eq!(t.wait(at("2001:db8:0:1::1"), now), None);
    }

    #[test]
    fn many_addresses_take_no_more_room_and_do_not_free_one_that_is_full() {
        let (mut t, now) = (Throttle::default(), Duration::ZERO);
        let bad = at("198.51.100.1");
        (0..BURST).for_each(|_| t.failed(bad, now));
        for n in 0..2 * MOST as u32 {
            t.failed(IpAddr::V4(n.into()), now);
        }
        assert!(t.0.len() <= MOST);
        assert!(t.wait(bad, now).is_some());
    }
}
