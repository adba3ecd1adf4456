//! Time. Three clocks: the monotonic one measures, the one since boot counts leases, the civil one is shown to users and never compared.

use parking_lot::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A source of time.
pub trait Clock: Send + Sync {
    /// Nanoseconds since an arbitrary origin; never falls.
    fn monotonic_nanos(&self) -> u64;

    /// Nanoseconds since an arbitrary origin, those included in which the machine was suspended; never falls. A lease has to age in a suspended
    /// machine, too.
    fn boot_nanos(&self) -> u64 {
        self.monotonic_nanos()
    }

    /// Microseconds since 1970-01-01 UTC; may jump either way.
    fn unix_micros(&self) -> i64;

    /// Blocks the calling thread for `duration`.
    fn sleep(&self, duration: Duration);
}

/// The operating system's clocks.
pub struct OsClock {
    origin: Instant,
}

impl OsClock {
    /// A clock whose monotonic origin is now.
    pub fn new() -> OsClock {
        OsClock {
            origin: Instant::now(),
        }
    }
}

impl Default for OsClock {
    fn default() -> OsClock {
        OsClock::new()
    }
}

impl Clock for OsClock {
    fn monotonic_nanos(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).expect("a process runs less than 584 years")
    }

    #[cfg(target_os = "linux")]
    fn boot_nanos(&self) -> u64 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let seconds = u64::try_from(now.tv_sec).expect("a machine was not booted before itself");
        let rest = u64::try_from(now.tv_nsec).expect("a part of a second is not negative");
        seconds * 1_000_000_000 + rest
    }

    fn unix_micros(&self) -> i64 {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_micros()).unwrap_or(i64::MAX),
            Err(before) => -i64::try_from(before.duration().as_micros()).unwrap_or(i64::MAX),
        }
    }

    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }
}

/// A clock that moves only when it is told to; a sleep moves it.
pub struct ManualClock {
    /// (monotonic nanoseconds, microseconds since 1970)
    now: Mutex<(u64, i64)>,
}

impl ManualClock {
    /// Starts at monotonic zero and the given civil time (microseconds since 1970).
    pub fn new(unix_micros: i64) -> ManualClock {
        ManualClock {
            now: Mutex::new((0, unix_micros)),
        }
    }

    /// Moves both clocks forward.
    pub fn advance(&self, by: Duration) {
        let mut now = self.now.lock();
        now.0 += u64::try_from(by.as_nanos()).expect("a step fits in 64 bits of nanoseconds");
        now.1 += i64::try_from(by.as_micros()).expect("a step fits in 63 bits of microseconds");
    }
}

impl Clock for ManualClock {
    fn monotonic_nanos(&self) -> u64 {
        self.now.lock().0
    }

    fn unix_micros(&self) -> i64 {
        self.now.lock().1
    }

    fn sleep(&self, duration: Duration) {
        self.advance(duration);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_os_clock_never_falls() {
        let clock = OsClock::new();
        let a = clock.monotonic_nanos();
        let b = clock.monotonic_nanos();
        assert!(a <= b);
        let a = clock.boot_nanos();
        assert!(0 < a && a <= clock.boot_nanos());
        assert!(
            clock.unix_micros() > 1_600_000_000_000_000,
            "civil time is after 2020"
        );
    }

    #[test]
    fn a_manual_clock_moves_by_what_it_is_told() {
        let clock = ManualClock::new(50);
        clock.advance(Duration::from_micros(7));
        clock.sleep(Duration::from_micros(1));
        assert_eq!((clock.monotonic_nanos(), clock.unix_micros()), (8_000, 58));
    }
}
