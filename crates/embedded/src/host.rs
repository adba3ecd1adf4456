//! Time and chance for sessions, from `env`.
//!
//! Left out on purpose: an audit log. A library's owner has no other users to audit; a server adds one.

use std::time::Duration;

/// The operating system's.
pub struct EnvHost(pub env::Env);

impl sql::session::Host for EnvHost {
    fn unix_micros(&self) -> i64 {
        self.0.clock.unix_micros()
    }

    fn monotonic_millis(&self) -> u64 {
        self.0.clock.monotonic_nanos() / 1_000_000 + 1
    }

    fn random(&self, out: &mut [u8]) {
        self.0.random.fill(out);
    }

    fn sleep(&self, time: Duration) {
        self.0.clock.sleep(time);
    }
}
